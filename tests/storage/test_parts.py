"""Images and files in a store: their bytes are there once, by their hash, and come back with the run."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from pathlib import Path
from typing import Any

import pytest

import agentlab as lab
from agentlab.errors import ConfigurationError
from agentlab.model import parts
from agentlab.storage import MemoryStorage, SqliteStorage
from agentlab.testing import ScriptedProvider, call
from tests.model.test_parts import PDF, picture

NOISE = picture(size=(60, 60)) + bytes(range(256)) * 40


def look() -> list[Any]:
    """Look."""
    return ["Here:", lab.Image(NOISE), lab.Document(PDF, name="May.pdf")]


def agent(store: lab.Store) -> lab.Agent:
    script = [call("look"), call("look"), "Two pictures."]
    return lab.Agent(ScriptedProvider(script), tools=[look], observers=[store])


@pytest.fixture(params=["sqlite", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> lab.Store:
    return lab.Store(SqliteStorage(tmp_path / "runs.db") if request.param == "sqlite" else MemoryStorage())


async def _run(store: lab.Store) -> Any:
    run = agent(store).run(["What is", lab.Image(NOISE), "?"])
    await run
    return run


def run_in(store: lab.Store) -> Any:
    return asyncio.run(_run(store))


def test_a_loaded_run_has_the_same_messages_and_bytes(store: lab.Store) -> None:
    run = run_in(store)
    before, run_id = [list(map(str, message.pieces)) for message in run.messages], run.id
    results = [list(map(str, result.pieces)) for step in run.history for result in step.tool_results]
    del run
    parts._held.clear()  # so the store alone has them
    loaded = store.load(run_id)
    assert [list(map(str, message.pieces)) for message in loaded.messages] == before
    assert [list(map(str, result.pieces)) for step in loaded.history for result in step.tool_results] == results
    assert loaded.messages[0].parts[0].data == NOISE
    assert loaded.messages[0].parts[0].data is loaded.history[1].tool_results[0].parts[0].data
    assert loaded.messages[2].tool_results[0].parts[1].data == PDF


def test_the_bytes_are_in_the_file_once_for_all_runs(tmp_path: Path) -> None:
    store = lab.Store(tmp_path / "runs.db")
    first, second = run_in(store), run_in(store)
    image = lab.Image(NOISE)
    with contextlib.closing(sqlite3.connect(tmp_path / "runs.db")) as database, database:
        assert database.execute("SELECT count(*) FROM parts").fetchone() == (2,)
        texts = database.execute(
            "SELECT body FROM steps UNION ALL SELECT head FROM runs UNION ALL SELECT row FROM steps"
        ).fetchall()
    assert not [text for (text,) in texts if image.base64[:200] in text]
    store.delete(first.id)
    assert store.load(second.id).messages[0].parts[0].data == NOISE
    store.delete(second.id)
    with contextlib.closing(sqlite3.connect(tmp_path / "runs.db")) as database, database:
        assert database.execute("SELECT count(*) FROM parts").fetchone() == (0,)


def test_a_run_whose_bytes_are_missing_can_be_read_but_not_sent(tmp_path: Path) -> None:
    run_id = run_in(lab.Store(tmp_path / "runs.db")).id
    with contextlib.closing(sqlite3.connect(tmp_path / "runs.db")) as database, database:
        database.execute("DELETE FROM parts")
        database.execute("DELETE FROM notes")
    parts._held.clear()
    loaded = lab.Store(tmp_path / "runs.db").load(run_id)
    assert loaded.prompt.startswith("What is\n[image png 60x60, ")
    assert len(loaded.history) == 3
    with pytest.raises(ConfigurationError, match="are not stored here"):
        _ = loaded.messages[0].parts[0].data


def test_a_run_that_is_kept_later_has_them_too(tmp_path: Path) -> None:
    memory = lab.Store(MemoryStorage())
    run = run_in(memory)
    store = lab.Store(tmp_path / "runs.db")
    store.keep(run)
    run_id = run.id
    del run, memory
    parts._held.clear()
    assert store.load(run_id).messages[2].tool_results[0].parts[1].data == PDF
    assert store.load(run_id).result.text == "Two pictures."

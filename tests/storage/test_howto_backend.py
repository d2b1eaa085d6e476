"""The storage backend in docs/howto/backend.md passes the tests of every storage backend, and a run resumes from it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import agentlab as lab
from agentlab.storage import Storage
from agentlab.testing import ScriptedProvider, StorageContract, call

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "backend.md"


def namespace_of_the_page() -> dict[str, Any]:
    """Return the names that the Python blocks of the page define."""
    names: dict[str, Any] = {}
    for block in re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
        exec(compile(block, PAGE.name, "exec"), names)
    return names


ONE_FILE: Callable[[Path], Storage] = namespace_of_the_page()["OneFile"]


class TestOneFile(StorageContract):
    @pytest.fixture
    def make(self, tmp_path: Path) -> Callable[[], Storage]:
        return lambda: ONE_FILE(tmp_path / "runs.json")


def ping() -> str:
    """Answer the call."""
    return "pong"


def test_an_interrupted_run_resumes_from_the_file(tmp_path: Path) -> None:
    path = tmp_path / "runs.json"
    agent = lab.Agent(ScriptedProvider([call("ping"), "Done."]), tools=[ping])
    store = lab.Store(ONE_FILE(path))
    run = store.keep(agent.run("Ping."))
    asyncio.run(_one_step(run))
    store.let_go(run)

    reopened = lab.Store(ONE_FILE(path))
    assert reopened.state(run.id) == "interrupted"
    resumed = reopened.resume(run.id, agent)
    result = asyncio.run(_to_the_end(resumed))
    assert (result.text, len(result.history)) == ("Done.", 2)
    assert lab.Store(ONE_FILE(path)).state(run.id) == "ended"


async def _one_step(run: lab.Run) -> None:
    await run.step()


async def _to_the_end(run: lab.Run) -> lab.RunResult:
    return await run

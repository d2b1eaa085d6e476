"""Export to Parquet and back: every run unchanged, files that pandas alone can read, and clear errors."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest
from engine.builders import agent, go, looping

import agentlab as lab
from agentlab import StepCountIs
from agentlab.errors import ConfigurationError, StorageError
from agentlab.model.messages import ToolCall
from agentlab.storage.store import Store
from agentlab.testing import call, say

from .comparisons import FRAMES


async def taken(run: lab.Run, steps: int) -> lab.Run:
    for _ in range(steps):
        await run.step()
    return run


def odd(history: Any) -> Any:
    """Not met, with a value of another type each time."""
    return 0.0 if len(history) > 1 else ""


@pytest.fixture
def store() -> Store:
    """Runs that ended, one that did not, one without a step, a branch, and columns of several types."""
    made = Store()
    run = go(taken(looping(observers=[made]).run("go", stop=StepCountIs(3)), 3))
    go(taken(run.fork(1, stop=StepCountIs(2)), 1))
    go(taken(looping(observers=[made]).run("go", stop=StepCountIs(9) | odd), 2))
    go(taken(agent([call("look"), say("half \ud83d"), "b"], observers=[made]).run("ünder way"), 1))
    made.keep(looping().run("not begun"))
    return made


def test_an_export_is_imported_unchanged(store: Store, tmp_path: Path) -> None:
    store.export(tmp_path / "new" / "folder")
    with Store(tmp_path / "runs.db") as other:
        assert other.import_from(tmp_path / "new" / "folder") == store.run_ids()
        assert other.storage.runs() == store.storage.runs()
        for run_id in store.run_ids():
            assert other.storage.steps(run_id) == store.storage.steps(run_id)
        for what in ("runs", *FRAMES):
            pd.testing.assert_frame_equal(other.frame(what), store.frame(what), obj=what)
        assert other.import_from(tmp_path / "new" / "folder") == []


def test_every_parquet_reader_reads_the_frames(store: Store, tmp_path: Path) -> None:
    store.export(tmp_path)
    frames = ("calls", "runs", "steps", "tools")
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{name}.parquet" for name in frames]
    steps, frame = pd.read_parquet(tmp_path / "steps.parquet"), store.frame("steps")
    assert list(steps.columns) == [*frame.columns, "row", "body"]
    assert steps["cumulative_tokens"].to_list() == frame["cumulative_tokens"].to_list()
    runs, frame = pd.read_parquet(tmp_path / "runs.parquet"), store.frame("runs")
    assert set(frame.columns) < set(runs.columns)
    assert runs["stop_reason"].dropna().to_list() == frame["stop_reason"].dropna().to_list()


def test_an_empty_store_and_a_second_export(store: Store, tmp_path: Path) -> None:
    Store().export(tmp_path)
    assert Store().import_from(tmp_path) == []
    store.export(tmp_path)
    assert Store().import_from(tmp_path) == store.run_ids()


def test_a_run_with_different_content_here_is_refused(store: Store, tmp_path: Path) -> None:
    store.export(tmp_path)
    other = Store()
    other.import_from(tmp_path)
    run_id = store.run_ids()[3]
    kept = other.storage.runs([run_id])[0]
    other.storage.add(run_id, kept.head.writer, [], "{}")
    with pytest.raises(StorageError, match=rf"'{run_id}' is already in this store and differs"):
        other.import_from(tmp_path)


def test_an_imported_run_continues(store: Store, tmp_path: Path) -> None:
    store.export(tmp_path)
    other = Store()
    other.import_from(tmp_path)
    run_id = store.run_ids()[3]
    made = agent(lambda request, index: say("end"))
    run = other.resume(run_id, made, take_over=True)
    assert go(taken(run, 1)).result is not None
    assert ToolCall("call_look", "look", "{}") in run.messages[1].tool_calls


def cut(folder: Path) -> None:
    path = folder / "steps.parquet"
    path.write_bytes(path.read_bytes()[:-200])


def others(folder: Path) -> None:
    pd.DataFrame({"run_id": ["a"]}).to_parquet(folder / "runs.parquet")


def newer(folder: Path) -> None:
    table = pq.read_table(folder / "runs.parquet")
    pq.write_table(table.replace_schema_metadata({b"agentlab": b"2"}), folder / "runs.parquet")


def fewer(folder: Path) -> None:
    table = pq.read_table(folder / "steps.parquet")
    pq.write_table(table.slice(1), folder / "steps.parquet")


FAULTS = {
    "cut": (cut, "cannot be used for Parquet"),
    "gone": (lambda folder: (folder / "steps.parquet").unlink(), "cannot be used for Parquet"),
    "others": (others, r"was not written by store\.export"),
    "newer": (newer, r"newer agentlab \(format 2; this version reads up to 1\)"),
    "fewer": (fewer, r"has 2 of 3 steps of the run"),
}


@pytest.mark.parametrize(("harm", "message"), FAULTS.values(), ids=FAULTS.keys())
def test_faulty_files_are_reported(store: Store, tmp_path: Path, harm: Any, message: str) -> None:
    store.export(tmp_path)
    harm(tmp_path)
    with pytest.raises(StorageError, match=message):
        Store().import_from(tmp_path)


def test_an_unwritable_place_is_reported(store: Store) -> None:
    with pytest.raises(StorageError, match="/proc/export"):
        store.export("/proc/export")


def test_without_pyarrow_the_error_says_what_to_install(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for do in (store.export, store.import_from):
        with pytest.raises(ConfigurationError, match=r"pip install 'agentlab-jupyter\[parquet\]'"):
            do(tmp_path)

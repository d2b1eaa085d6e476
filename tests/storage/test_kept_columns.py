"""A SQLite file keeps the columns of its steps, made of their rows: a frame is the same with and without them."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import agentlab as lab
from agentlab._internal import redaction
from agentlab.errors import StorageError
from agentlab.storage import MemoryStorage, SqliteStorage, StoredHead, StoredStep, frames
from agentlab.storage.sqlite import APPLICATION_ID, VERSION
from agentlab.testing import ScriptedProvider, call

from .comparisons import assert_kept

RUNS, STEPS = 6, 4


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "BLOCK_STEPS", 2 * STEPS)


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with lab.Store(tmp_path / "runs.db") as made:
        yield made


def recorded(store: lab.Store, conditions: int = 2) -> list[lab.RunResult]:
    """Runs of STEPS steps, the first ones with another condition than the others."""

    def look(q: str) -> str:
        """Look."""
        return f"saw {q}"

    agent = lab.Agent(
        ScriptedProvider(lambda request, number: call("look", {"q": "it"}, cost="0.01")), tools=[look], observers=[store]
    )
    stops = [lab.StepCountIs(STEPS) | lab.MaxCost(5)] * (RUNS - conditions) + [lab.StepCountIs(STEPS)] * conditions

    async def run_all() -> list[lab.RunResult]:
        return [await agent.run(f"go {number}", stop=stop).with_id(f"run {number}") for number, stop in enumerate(stops)]

    return asyncio.run(run_all())


def kept(store: lab.Store) -> list[tuple[int, int]]:
    """The numbers of the first and last runs of kept columns."""
    return database(store).execute("SELECT first, last FROM step_columns WHERE body IS NOT NULL ORDER BY last").fetchall()


def database(store: lab.Store) -> sqlite3.Connection:
    return store.storage._database  # type: ignore[attr-defined,no-any-return]


def without_columns(store: lab.Store) -> pd.DataFrame:
    """The frame of the same runs in memory, where no columns are kept."""
    other = lab.Store(MemoryStorage())
    for run in store.storage.runs():
        other.storage.begin(run.head, store.storage.steps(run.head.run_id), run.end)
    return other.frame("steps")


def test_the_frame_is_the_same_whether_columns_are_kept_or_not(store: lab.Store) -> None:
    results = recorded(store)
    expected = lab.frame(results)
    for _ in range(3):
        pd.testing.assert_frame_equal(store.frame("steps"), expected)
        assert kept(store) == [(1, 2), (3, 4), (5, 6)]
    pd.testing.assert_frame_equal(without_columns(store), expected)
    pd.testing.assert_frame_equal(store.frame("steps", ["run 1", "run 4"]), lab.frame([results[1], results[4]]))
    with lab.Store(store.storage.path) as again:  # type: ignore[attr-defined]
        pd.testing.assert_frame_equal(again.frame("steps"), expected)
        database(again).execute("DELETE FROM steps")  # what is kept goes with its rows
        assert kept(again) == []


def test_kept_columns_are_read_instead_of_rows(store: lab.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded(store)
    expected = store.frame("steps")
    monkeypatch.setattr(SqliteStorage, "rows", None)
    pd.testing.assert_frame_equal(store.frame("steps"), expected)


CHANGES: dict[str, tuple[Callable[[sqlite3.Connection], object], list[tuple[int, int]]]] = {
    "a step is added": (
        lambda d: d.execute("INSERT INTO steps SELECT id + 1, replace(row, '\"step\":4', '\"step\":5'), body FROM steps "
                            f"WHERE id = (3 << 32) + {STEPS}"),
        [(1, 2), (5, 6)],
    ),
    "a step is removed": (lambda d: d.execute(f"DELETE FROM steps WHERE id = (1 << 32) + {STEPS}"), [(3, 4), (5, 6)]),
    "a row is changed": (
        lambda d: d.execute("UPDATE steps SET row = replace(row, '\"output_tokens\":5', '\"output_tokens\":6') WHERE id >> 32 = 6"),
        [(1, 2), (3, 4)],
    ),
    "a step moves to another run": (
        lambda d: d.execute(f"UPDATE steps SET id = (3 << 32) + {STEPS + 1} WHERE id = (1 << 32) + {STEPS}"), [(5, 6)],
    ),
    "a run is removed": (
        lambda d: [d.execute("DELETE FROM runs WHERE number = 2"), d.execute("DELETE FROM steps WHERE id >> 32 = 2")],
        [(3, 4), (5, 6)],
    ),
    "a run has another id": (lambda d: d.execute("UPDATE runs SET run_id = 'other' WHERE number = 4"), [(1, 2), (5, 6)]),
    "a run has another model": (
        lambda d: d.execute("UPDATE runs SET head = replace(head, '\"model\":\"script\"', '\"model\":\"other\"') WHERE number = 5"),
        [(1, 2), (3, 4)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_every_change_of_a_run_removes_its_columns(store: lab.Store, change: str) -> None:
    recorded(store)
    before = store.frame("steps")
    make, left = CHANGES[change]
    make(database(store))
    assert kept(store) == left
    after = store.frame("steps")
    pd.testing.assert_frame_equal(after, without_columns(store))
    assert not after.equals(before)
    pd.testing.assert_frame_equal(store.frame("steps"), after)


def test_an_end_that_comes_later_removes_the_columns(store: lab.Store) -> None:
    recorded(store)
    run = store.storage.runs(["run 2"])[0]
    assert run.end is not None
    store.delete("run 2")
    row = {name: value for name, value in json.loads(store.storage.steps("run 3")[-1].row).items() if name != "stop_reason"}
    steps = [*store.storage.steps("run 3")[:-1], StoredStep(STEPS, json.dumps(row), "{}")]
    store.storage.begin(replace(run.head, writer="nobody"), steps)
    assert store.frame("steps")["stop_reason"].isna().iloc[-1]
    assert kept(store)[-1] == (6, 7)
    store.storage.add("run 2", "nobody", [], run.end)
    assert store.frame("steps")["stop_reason"].iloc[-1] == "stop_condition"


def test_a_run_that_changes_while_its_rows_are_read_is_not_kept(store: lab.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded(store)
    read = frames._parsed

    def meanwhile(texts: list[str]) -> Any:
        database(store).execute("UPDATE steps SET row = replace(row, '\"output_tokens\":5', '\"output_tokens\":6')")
        return read(texts)

    monkeypatch.setattr(frames, "_parsed", meanwhile)
    store.frame("steps")
    assert kept(store) == []
    monkeypatch.setattr(frames, "_parsed", read)
    assert set(store.frame("steps")["output_tokens"]) == {6}
    assert len(kept(store)) == 3


def test_an_open_run_is_not_kept(store: lab.Store) -> None:
    recorded(store)
    run = store.keep(lab.Agent(ScriptedProvider(["x"])).run("open").with_id("open"))
    store.frame("steps")
    assert kept(store) == [(1, 2), (3, 4), (5, 6)]
    run.stop()


@pytest.mark.parametrize(
    ("first", "later", "dtype"),
    [(1, 2.5, "Float64"), (1, None, "Int64"), (None, "b", "string"), (None, None, "boolean"), (True, 1, "object"), ("a", 1, "object"),
     (2**70, 1, "Float64"), ([1], None, "object")],
)  # fmt: skip
def test_a_leaf_has_the_dtype_of_all_its_values(store: lab.Store, first: object, later: object, dtype: str) -> None:
    for number in range(RUNS):
        value = first if number < RUNS // 2 else later
        rows = [{"step": step, "calls": 1, "leaves": {"Mine": [value, value, None]}} for step in range(1, STEPS + 1)]
        head = StoredHead(f"run {number}", 1.5, "nobody", json.dumps({"provider": "p", "model": "m"}))
        store.storage.begin(head, [StoredStep(row["step"], json.dumps(row), "{}") for row in rows])  # type: ignore[arg-type]
    storage = MemoryStorage()
    for run in store.storage.runs():
        storage.begin(run.head, store.storage.steps(run.head.run_id), run.end)
    expected = frames._block_of_rows(lab.Store(storage), storage.runs(), whole_store=True).leaves["Mine"]
    for _ in range(2):
        frame = store.frame("steps")
        assert str(frame["Mine.value"].dtype) == dtype
        for name, array in zip(("value", "limit", "met"), expected, strict=True):
            pd.testing.assert_series_equal(frame[f"Mine.{name}"], pd.Series(array, name=f"Mine.{name}"))


def test_a_key_that_becomes_known_later_is_redacted(store: lab.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded(store)
    database(store).execute('UPDATE steps SET row = replace(row, \'"text":""\', \'"text":"my zebra-crossing-91"\')')
    assert set(store.frame("steps")["text"]) == {"my zebra-crossing-91"}
    assert len(kept(store)) == 3
    redact = redaction.redact
    monkeypatch.setattr("agentlab.records.frames.redact", lambda text: redact(text).replace("zebra-crossing-91", "REDACTED"))
    assert set(store.frame("steps")["text"]) == {"my REDACTED"}


def test_columns_of_another_form_are_made_again(store: lab.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    results = recorded(store)
    store.frame("steps")
    monkeypatch.setattr(frames, "_MADE_AS", "another form")
    pd.testing.assert_frame_equal(store.frame("steps"), lab.frame(results))
    assert database(store).execute("SELECT DISTINCT made_as FROM step_columns").fetchall() == [("another form",)]


def test_without_pyarrow_rows_are_read(store: lab.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    results = recorded(store)
    monkeypatch.setattr(frames, "_arrow", lambda: None)
    pd.testing.assert_frame_equal(store.frame("steps"), lab.frame(results))
    assert kept(store) == []


def test_a_file_that_cannot_be_written_is_read(store: lab.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    results = recorded(store)
    monkeypatch.setattr(store.storage, "_is_read_only", True)
    pd.testing.assert_frame_equal(store.frame("steps"), lab.frame(results))
    assert kept(store) == []
    with pytest.raises(StorageError, match="read-only"):
        store.storage.announce_columns("run 0", "run 1")  # type: ignore[attr-defined]


def test_a_file_of_the_format_before_is_upgraded(tmp_path: Path) -> None:
    """`format_4.sql` was written by agentlab when it kept no columns."""
    path = tmp_path / "runs.db"
    old = sqlite3.connect(path)
    old.executescript(Path(__file__).with_name("format_4.sql").read_text())
    old.execute("PRAGMA user_version = 4")
    old.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    old.close()
    for _ in range(2):
        with lab.Store(path) as store:
            frame = store.frame("steps")
            assert frame[["run_id", "step", "cumulative_tokens", "stop_reason"]].fillna("").to_numpy().tolist() == [
                ["one", 1, 15, ""], ["one", 2, 30, "stop_condition"], ["two", 1, 15, ""],
            ]  # fmt: skip
            assert frame["MaxCost.limit"].to_list() == [0.5, 0.5, pd.NA]
            assert store.frame("runs")["state"].to_list() == ["ended", "interrupted"]
            assert database(store).execute("PRAGMA user_version").fetchone() == (VERSION,)
            pd.testing.assert_frame_equal(frame, lab.frame([store.load("one"), store.load("two")]))
            assert_kept(store, store.load("one"))

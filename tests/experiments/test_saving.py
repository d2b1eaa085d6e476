"""Steps that are complete at the same time are stored in one transaction, before the next ones begin, and nothing is lost."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

import agentlab as lab
from agentlab.errors import StorageError
from agentlab.model.messages import ModelRequest
from agentlab.storage import SqliteStorage, StoredHead, StoredStep
from agentlab.storage.store import Store
from agentlab.testing import Said

from .parts import STEPS, assert_same, look, looking, script


class Checking:
    """Answers all runs of a round together, after it has looked into the file at what is stored of each."""

    name, model = "checking", "script"

    def __init__(self, path: Path, runs: int) -> None:
        self.path, self.runs, self.stored = path, runs, list[int]()
        self._waiting: list[asyncio.Future[None]] = []

    async def respond(self, request: ModelRequest, context: Any) -> Said:
        """Wait until all runs have asked."""
        run_id = f"experiment#{context.replay_key.partition('#')[2]}"
        with closing(sqlite3.connect(self.path)) as file:
            of_run = "SELECT number, (SELECT count(*) FROM steps WHERE id >> 32 = number) FROM runs WHERE run_id = ?"
            found = file.execute(of_run, (run_id,)).fetchall()
        steps_before = len(request.messages) // 2
        assert [count for _, count in found] == [steps_before], run_id
        self.stored.append(steps_before)
        self._waiting.append(asyncio.get_running_loop().create_future())
        mine = self._waiting[-1]
        if len(self._waiting) == self.runs:
            for one in self._waiting:
                one.set_result(None)
            self._waiting = []
        await mine
        return script(request, context.index)  # type: ignore[return-value]


def commits(storage: SqliteStorage) -> Counter[str]:
    """Count the statements that begin a transaction or end it, from now on."""
    seen: Counter[str] = Counter()
    storage._database.set_trace_callback(lambda statement: seen.update([statement.partition(" ")[0]]))
    return seen


def test_a_step_is_durable_before_the_next_one_and_runs_share_transactions(tmp_path: Path) -> None:
    path, runs = tmp_path / "runs.db", 20
    store, model = Store(path), Checking(path, runs)
    assert isinstance(store.storage, SqliteStorage)
    counted = commits(store.storage)
    study = lab.Experiment({"a": lab.Agent(model, tools=[look])}, ["x"], repeats=runs, store=store)
    results = asyncio.run(study.run(concurrency=runs, progress=False))
    assert len(results) == runs
    assert Counter(model.stored) == dict.fromkeys(range(STEPS), runs)  # each found all steps before it in the file
    assert STEPS <= counted["COMMIT"] <= 2 * (1 + STEPS)  # the runs, then their steps; a few may be complete a turn later
    assert set(results.steps.groupby("run_id").size()) == {STEPS}


class Failing(SqliteStorage):
    """A file in which transactions of several runs cannot be committed."""

    tried = 0

    @contextmanager
    def together(self) -> Iterator[None]:
        """Take all back at the end."""
        with super().together():
            yield
            self.tried += 1
            raise StorageError("no space left.")


def test_runs_are_saved_one_by_one_if_the_common_transaction_fails(tmp_path: Path) -> None:
    def study(storage: SqliteStorage) -> lab.Experiment:
        return lab.Experiment([looking("a", "pa")], ["x", "y"], repeats=2, store=Store(storage))

    storage = Failing(tmp_path / "failing.db")
    failed = study(storage)
    results = asyncio.run(failed.run(progress=False))
    assert storage.tried > STEPS
    assert failed.store.unsaved == {}
    assert_same(results, asyncio.run(study(SqliteStorage(tmp_path / "whole.db")).run(progress=False)))


def test_a_failed_run_does_not_cost_the_others_their_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file refuses the steps of one run only; those of the others that are saved with it are stored."""
    storage = SqliteStorage(tmp_path / "runs.db")
    add = storage.add

    def refuse(run_id: str, *rest: Any) -> None:
        if run_id.endswith("/2"):
            raise StorageError(f"{run_id} cannot be written.")
        add(run_id, *rest)

    monkeypatch.setattr(storage, "add", refuse)
    study = lab.Experiment([looking("a", "pa")], ["x"], repeats=3, store=Store(storage))
    with (
        pytest.warns(lab.AgentlabWarning, match="cannot be written"),
        pytest.raises(StorageError, match="1 run is in the memory"),
    ):
        asyncio.run(study.run(progress=False))
    stored = {run.head.run_id[-1]: (run.steps, run.end is not None) for run in storage.runs()}
    assert stored == {"1": (STEPS, True), "2": (0, False), "3": (STEPS, True)}
    monkeypatch.undo()
    assert len(asyncio.run(study.run(progress=False)).steps) == 3 * STEPS


def test_writes_together_are_all_or_nothing(tmp_path: Path) -> None:
    storage = SqliteStorage(tmp_path / "runs.db")

    def write(run_id: str) -> None:
        storage.begin(StoredHead(run_id, 1.0, "me", "{}"))
        storage.add(run_id, "me", [StoredStep(1, "{}", "{}")], "{}")

    with storage.together():
        write("a")
        write("b")
    with pytest.raises(StorageError, match="already exists"), storage.together():  # noqa: PT012  both are one transaction
        write("c")
        write("a")
    write("d")
    assert [(run.head.run_id, run.steps) for run in storage.runs()] == [("a", 1), ("b", 1), ("d", 1)]
    storage.close()

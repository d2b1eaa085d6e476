"""kill -9 at random moments of an experiment with several concurrent runs: no finished step is lost or duplicated, the file is
intact."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import agentlab as lab
from agentlab.storage.store import Store

from .parts import STEPS, Slow, assert_same, look, steps_taken

KILLS, AT_ONCE = 100, 8
NOBODY = os.open(os.devnull, os.O_WRONLY)


class Held(Slow):
    """Records each call and blocks at the last one, so that the kill may come at any later time."""

    def __init__(self, log: Path | None, report_fd: int, last: int) -> None:
        super().__init__(0.001, log)
        self.report_fd, self.left = report_fd, last

    async def respond(self, request: Any, context: Any) -> Any:
        """The script's answer after a delay."""
        os.write(self.report_fd, b".")
        self.left -= 1
        while self.left <= 0:
            signal.pause()
        return await super().respond(request, context)


def study(path: Path, log: Path | None, number: int, model: Slow | None = None) -> lab.Experiment:
    agent = lab.Agent(model or Held(log, NOBODY, 10**9), tools=[look], name="a")
    return lab.Experiment([agent], ["x", "y"], repeats=10, score=steps_taken, store=path, name=f"e{number}")


def killed_at_random(path: Path, log: Path, number: int, chance: random.Random) -> None:
    """The experiment in a separate process that is killed between its start and its end."""
    asks = chance.randint(0, 40)
    read, write = os.pipe()
    process = os.fork()
    if not process:
        try:
            model = Held(log, write, asks + 20)
            asyncio.run(study(path, log, number, model).run(concurrency=AT_ONCE, progress=False))
        finally:
            os._exit(0)
    os.close(write)
    for _ in range(asks):
        os.read(read, 1)
    time.sleep(chance.uniform(0.0, 0.01))
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    os.close(read)


def asked_for(log: Path) -> Counter[tuple[str, int]]:
    """How often the model was asked for each step of each cell; a step is requested after the one before it is finished and stored."""
    lines = [line.split() for line in log.read_text().splitlines()] if log.exists() else []
    return Counter((label, int(step)) for _, label, step in lines)


@pytest.mark.timeout(300)
def test_a_hundred_kills_of_an_experiment_lose_no_finished_step(tmp_path: Path) -> None:
    path, chance = tmp_path / "runs.db", random.Random(66)
    whole = asyncio.run(study(tmp_path / "whole.db", None, 1).run(progress=False))
    number, cut_off = 1, 0
    for _ in range(KILLS):
        log = tmp_path / f"log{number}"
        killed_at_random(path, log, number, chance)
        with Store(path) as store:
            (is_whole,) = store.storage._database.execute("PRAGMA integrity_check").fetchone()  # type: ignore[attr-defined]
            assert is_whole == "ok"
            runs = store.storage.runs()
            mine = [run for run in runs if run.head.run_id.startswith(f"e{number}#")]
            kept = {run.head.run_id.partition("#")[2]: run.steps for run in mine}
            for label, step in asked_for(log):
                assert kept.get(label, 0) >= step - 1
            states = set(map(store.state_of, runs))
            assert "open" not in states
            cut_off += "interrupted" in states
            is_done = list(kept.values()) == [STEPS] * 20
        if is_done:
            number += 1
    assert cut_off > KILLS / 4
    for each in range(1, number + 1):
        results = asyncio.run(study(path, tmp_path / f"log{each}", each).run(progress=False))
        asked = asked_for(tmp_path / f"log{each}")
        assert len(asked) == 20 * STEPS
        assert sum(asked.values()) - len(asked) <= KILLS * AT_ONCE  # only the current steps are requested again
        if each == 1:
            assert_same(results, whole)
        assert set(results.runs["state"]) == {"ended"}
        assert results.runs["score"].to_list() == [STEPS] * 20
        assert results.steps.groupby("run_id", sort=False)["step"].apply(list).to_list() == [[1, 2, 3, 4]] * 20

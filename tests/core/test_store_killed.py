"""kill -9 at random moments: no finished step is lost, the file is whole, and the run goes on to the same end."""

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
from agentlab.events import Event, TurnCompleted
from agentlab.storage.store import Store
from agentlab.testing import Said, ScriptedProvider, call, say
from agentlab.types import ModelRequest, StopReason

from .stored import spoken

KILLS, STEPS = 100, 12


@lab.tool(inline=True)
def look(q: str) -> str:
    """Look something up."""
    return f"saw {q} " * 50


def script(request: ModelRequest, index: int) -> Said:
    asked = len(request.messages) // 2 + 1
    return say("end") if asked == STEPS else call("look", {"q": str(asked)}, id=f"c{asked}", cost="0.01")


class Log:
    """Writes down, safely, each step that is told to be finished, and then says so: it observes after the store. Behind step `last`
    it stays for ever: who is to kill it may come as late as may be."""

    def __init__(self, path: Path, told: int, last: int) -> None:
        self.file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        self.told, self.last = told, last

    def __call__(self, event: Event) -> None:
        if isinstance(event, TurnCompleted):
            os.write(self.file, f"{event.step.index}\n".encode())
            os.fsync(self.file)
            os.write(self.told, b".")
            while event.step.index == self.last:
                signal.pause()


def agent(*observers: Any) -> lab.Agent:
    return lab.Agent(ScriptedProvider(script), tools=[look], observers=observers)


async def taken(run: lab.Run) -> lab.RunResult:
    return await run


def begun(path: Path, log: Path, last: int) -> tuple[int, int]:
    """A run in a process of its own: its id, and where it says that it begins, and that a step is finished."""
    read, write = os.pipe()
    process = os.fork()
    if process:
        os.close(write)
        return process, read
    try:
        with Store(path) as store:
            os.write(write, b".")
            asyncio.run(taken(agent(store, Log(log, write, last)).run("go")))
    finally:
        os._exit(0)


def killed_at_random(path: Path, log: Path, chance: random.Random, step_s: float) -> list[int]:
    """The steps that were finished before the kill."""
    steps = chance.randint(0, STEPS)
    process, told = begun(path, log, steps + 3 if steps + 3 < STEPS else 0)
    for _ in range(steps):
        os.read(told, 1)
    time.sleep(chance.uniform(0.0, step_s))
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    os.close(told)
    return [int(line) for line in log.read_text().split()] if log.exists() else []


@pytest.mark.timeout(300)
def test_a_hundred_kills_lose_no_finished_step(tmp_path: Path) -> None:
    whole = asyncio.run(taken(agent(Store()).run("go")))
    path, chance = tmp_path / "runs.db", random.Random(6)
    known: list[str] = []
    states: Counter[str] = Counter()
    for number in range(KILLS):
        finished = killed_at_random(path, tmp_path / f"log{number}", chance, whole.history.elapsed_s / STEPS * 3)
        with Store(path) as store:
            (is_whole,) = store.storage._database.execute("PRAGMA integrity_check").fetchone()  # type: ignore[attr-defined]
            assert is_whole == "ok"
            new = store.run_ids()[len(known) :]
            known += new
            assert (len(new), finished) == (1, list(range(1, len(finished) + 1))) if finished else len(new) <= 1
            for run_id in new:
                state, kept = store.state(run_id), store.load(run_id)
                states[state] += 1
                assert len(kept.history) in (len(finished), len(finished) + 1)
                assert state == ("ended" if len(kept.history) == STEPS else "interrupted")
                if state == "interrupted":
                    result = asyncio.run(taken(store.resume(run_id, agent(store))))
                    assert (result.run_id, result.stop_reason, len(result.history)) == (run_id, StopReason.COMPLETED, STEPS)
                    assert spoken(result.messages) == spoken(whole.messages)
                assert spoken(store.load(run_id).messages) == spoken(whole.messages)
    with Store(path) as store:
        assert set(store.frame("runs")["state"]) == {"ended"}
        assert set(store.frame("runs")["steps"]) == {STEPS}
    assert states["interrupted"] > KILLS / 2

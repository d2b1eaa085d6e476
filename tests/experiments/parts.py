"""Agents, tools and scores of the experiments' tests; importable by name, so that workers find them."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import agentlab as lab
from agentlab.model.messages import ModelRequest
from agentlab.testing import Said, ScriptedProvider, call, say

if TYPE_CHECKING:
    import pandas as pd  # takes workers longer to import than all the rest; none of them needs it

TIMING = ["begun_at", "elapsed_s", "started_s", "duration_s", "remaining_time_s", "at_s", "detection_s"]
STEPS = 4


@lab.tool(inline=True)
def look(q: str = "") -> str:
    """Look something up."""
    return f"saw {q}"


def script(request: ModelRequest, index: int) -> Said:
    """Look three times, then answer."""
    asked = len(request.messages) // 2 + 1
    return say("end", cost="0.01") if asked == STEPS else call("look", {"q": str(asked)}, id=f"c{asked}", cost="0.01")


def looking(name: str = "a", provider: str = "scripted", **more: Any) -> lab.Agent:
    """An agent that takes `STEPS` steps, of 15 tokens and 0.01 dollars each."""
    return lab.Agent(ScriptedProvider(script, name=provider), tools=[look], name=name, **more)


class Slow:
    """The script, with a wait before each answer."""

    name, model = "slow", "script"

    def __init__(self, delay_s: float, log: Path | None = None, *, stuck_at: int | None = None) -> None:
        self.delay_s, self.log, self.stuck_at, self.asked = delay_s, log, stuck_at, 0

    async def respond(self, request: ModelRequest, context: Any) -> Any:
        """Record the call, wait, answer; from the call `stuck_at` on never return."""
        self.asked += 1
        if self.stuck_at is not None and self.asked >= self.stuck_at:
            if self.asked == self.stuck_at:
                print("under way", flush=True)
            await asyncio.sleep(3600)
        if self.log is not None:
            with self.log.open("a") as file:
                file.write(f"{os.getpid()} {context.replay_key.partition('#')[2]} {len(request.messages) // 2 + 1}\n")
        await asyncio.sleep(self.delay_s)
        return script(request, context.index)


class KillsItsWorker:
    """Ends its whole process, once, during a run: a file records that it did."""

    name, model = "deadly", "script"

    def __init__(self, done: Path, label: str, times: int = 1) -> None:
        self.done, self.label, self.times = done, label, times

    async def respond(self, request: ModelRequest, context: Any) -> Any:
        """At the third step of one cell, kill -9."""
        if context.replay_key.endswith(self.label) and len(request.messages) // 2 + 1 == 3:
            killed = self.done.read_text() if self.done.exists() else ""
            if len(killed) < self.times:
                self.done.write_text(killed + "x")
                os.kill(os.getpid(), signal.SIGKILL)
        return script(request, context.index)


def steps_taken(result: lab.RunResult) -> float:
    """A score."""
    return len(result.history)


async def steps_later(result: lab.RunResult) -> dict[str, Any]:
    """A score of several parts that takes a while."""
    await asyncio.sleep(0)
    return {"score": len(result.history) == STEPS, "steps": len(result.history)}


def untimed(frame: pd.DataFrame) -> pd.DataFrame:
    """A frame without the columns that differ between runs."""
    return frame.drop(columns=[name for name in TIMING if name in frame.columns])


def assert_same(one: lab.ExperimentResults, other: lab.ExperimentResults) -> None:
    """Assert that all frames are the same, row for row."""
    from storage.comparisons import assert_equal  # which imports pandas

    for what in ("runs", "steps", "calls", "tools"):
        assert_equal(untimed(one.frame(what)), untimed(other.frame(what)), what)


def within(condition: Any, limit_s: float = 60.0, every_s: float = 0.01) -> None:
    """Wait for an event in another process."""
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(every_s)


class Uneven:
    """Takes 1 to 6 steps with different costs and durations, by the prompt alone; the same in any process."""

    name, model = "uneven", "script"

    async def respond(self, request: ModelRequest, context: Any) -> Any:
        """Wait a little, then look, or answer."""
        number = int(request.messages[0].text)
        asked = len(request.messages) // 2 + 1
        await asyncio.sleep(0.001 * (number * 7 % 5))
        cost, tokens = f"0.0{1 + (number + asked) % 5}", (10, number % 7)
        if asked > number % 6:
            return say("end", cost=cost, tokens=tokens)
        return call("look", {"q": str(asked)}, id=f"c{asked}", cost=cost, tokens=tokens)


MOST_OF_A_STEP = {"max_cost": 0.05, "max_tokens": 16, "max_calls": 1}


def uneven(**more: Any) -> lab.Agent:
    """An agent whose runs cost 0.01 to 0.18 dollars."""
    return lab.Agent(Uneven(), tools=[look], name="a", **more)


def spent_of(results: lab.ExperimentResults, limit: str) -> float:
    """The total of the calls frame, summed by pandas."""
    calls = results.calls
    return float(
        {"max_cost": calls["cost_usd"], "max_tokens": calls["total_tokens"], "max_calls": calls["call"] > 0}[limit].sum()
    )


JUDGE = lab.Agent(ScriptedProvider(lambda request, index: say(str(STEPS), cost="0.05")), name="judge")


async def judged(result: lab.RunResult) -> float:
    """A score by an agent, for 5 cents."""
    return float((await JUDGE.run("How many steps?")).text)


async def judged_twice(result: lab.RunResult) -> float:
    """A score by two calls, of which the second may be refused."""
    first = await JUDGE.run("How many steps?")
    await asyncio.sleep(0.001)
    try:
        return float((await JUDGE.run("Sure?")).text)
    except ValueError:
        return float(first.text) - 100  # no score to be kept

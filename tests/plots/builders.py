"""Frames for the plots: from real runs on scripted answers, and small ones written by hand."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Sequence
from typing import Any

import pandas as pd

import agentlab as lab
from agentlab import AgentlabWarning
from agentlab.model.messages import ModelRequest
from agentlab.model.responses import ModelResponse
from agentlab.testing import Script, ScriptedProvider, call, say

NA = pd.NA


def look(q: str = "") -> str:
    """A tool that does nothing."""
    return f"seen {q}"


def looping(tokens: tuple[int | None, int | None] = (80, 20), cost: str | None = "0.001", end: int = 0) -> Script:
    """An agent that calls a tool at each step, and completes at step `end` (0: never)."""

    def script(_: ModelRequest, number: int) -> ModelResponse:
        if number == end:
            return say("Done.", tokens=tokens, cost=cost)
        return call("look", {"q": str(number)}, tokens=tokens, cost=cost)

    return script


def run_of(
    script: Script, name: str = "one", model: str = "m1", changes: dict[int, dict[str, Any]] | None = None, **more: Any
) -> Any:
    """The result of a run; `changes` are limits set after a step, by its number."""

    async def go() -> lab.RunResult:
        run = lab.Agent(ScriptedProvider(script, name=name, model=model), tools=[look]).run("go", **more)
        while run.result is None:
            await run.step()
            for limit, value in (changes or {}).get(len(run.history), {}).items():
                setattr(run.limits, limit, value)
        return run.result

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AgentlabWarning)  # unknown usage and unknown prices are intended here
        return asyncio.run(go())


def steps_of(*runs: Sequence[Any], **columns: Sequence[Any]) -> pd.DataFrame:
    """A hand-made steps frame. A run is (provider, values), its steps counted from 1; `columns` are further ones, over all rows."""
    rows = [
        (f"r{number}", provider, step, value)
        for number, (provider, values) in enumerate(runs, start=1)
        for step, value in enumerate(values, start=1)
    ]
    values = [row[3] for row in rows]
    return pd.DataFrame(
        {
            "run_id": [row[0] for row in rows],
            "provider": [row[1] for row in rows],
            "step": [row[2] for row in rows],
            "cumulative_tokens": pd.array(values, dtype="Float64").astype("Int64"),
            "cumulative_cost_usd": pd.array(values, dtype="Float64") / 1000,
            **columns,
        }
    )


def runs_of(*rows: tuple[str, bool | None, str | None]) -> pd.DataFrame:
    """A hand-made runs frame; a row is (provider, terminated, stop_reason), with None for a running run."""
    terminated = [row[1] for row in rows]
    return pd.DataFrame(
        {
            "provider": [row[0] for row in rows],
            "stop_reason": pd.array([row[2] for row in rows], dtype="string"),
            "terminated": pd.array(terminated, dtype="boolean"),
            "truncated": pd.array([None if one is None else not one for one in terminated], dtype="boolean"),
        }
    )


def listed(values: Any) -> list[Any]:
    """A column as a list with None for NA."""
    return [None if pd.isna(value) else value for value in values]

"""A search on the recordings in `fixtures/`: its figures are those of single replayed runs, and a second search is equal."""

from __future__ import annotations

import asyncio
from typing import Any

import optuna
import pandas as pd
import pytest
from fixtures.scenarios import FIXTURES, MODELS, SCENARIOS

import agentlab as lab
from agentlab import Budget

RUNAWAY = next(one for one in SCENARIOS if one.name == "runaway")
TASKS = [f"{RUNAWAY.prompt} It is number {number}." for number in range(3)]
SPACE: dict[str, list[Any]] = {"model": [MODELS["openai"], MODELS["gemini"]], "max_turns": [4, 13, 20]}


def replaying() -> Any:
    """The recorded answers in their order, whatever the prompt."""
    return lab.replay(FIXTURES / "runaway", match="order")


def agent(model: str, turns: int = 20) -> lab.Agent:
    limits = Budget(max_turns=turns)
    return lab.Agent(model, tools=RUNAWAY.tools, instructions=RUNAWAY.instructions, name="a", budget=limits)


def finished(result: lab.RunResult) -> bool:
    return result.terminated and bool(result.text)


def searched() -> lab.Tuning:
    async def search() -> lab.Tuning:
        study = lab.Experiment([agent(MODELS["openai"])], TASKS, score=finished)
        sampler = optuna.samplers.GridSampler(SPACE, seed=1)
        return await lab.tune(study, SPACE, trials=6, sampler=sampler, held_out=1 / 3, progress=False)

    with replaying():
        return asyncio.run(search())


def test_a_search_on_recordings_gives_the_figures_of_single_runs_twice() -> None:
    found = searched()
    trials = found.trials
    assert len(trials) == 6 and trials["state"].eq("complete").all() and set(trials["how"]) == {"live", "what-if"}
    for row in [*trials.to_dict("records"), *found.front.to_dict("records")]:
        with replaying():
            alone = asyncio.run(single(agent(row["model"], row["max_turns"])))
        assert (row["score"], row["cost_usd"]) == pytest.approx((float(finished(alone)), float(alone.cost.usd)))
    assert found.best is not None and found.best["model"] == MODELS["openai"] and found.best["max_turns"] >= 13
    assert (found.best["score"], found.best["units"], len(found.tuning_tasks)) == (1.0, 1, 2)

    again = searched()
    pd.testing.assert_frame_equal(again.trials, trials)
    pd.testing.assert_frame_equal(again.front, found.front)
    assert (again.spent, repr(again)) == (found.spent, repr(found))


async def single(agent: lab.Agent) -> lab.RunResult:
    return await agent.run(TASKS[0])

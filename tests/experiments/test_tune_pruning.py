"""Pruned trials of a search: what stops them, what they paid, and the same decisions at any concurrency."""

from __future__ import annotations

import asyncio
from typing import Any

import optuna
import pytest

import agentlab as lab
from agentlab.model.messages import ModelRequest
from agentlab.testing import say

from .test_tune import Heats, heating, study_of, tuned


def test_a_pruned_trial_starts_no_further_run_and_what_it_paid_is_kept() -> None:
    log: list[str] = []
    values = [0.1, 0.2, 0.7, 0.9]
    order = optuna.samplers.GridSampler({"temperature": values}, seed=3)
    pruner = optuna.pruners.MedianPruner(n_startup_trials=1, n_warmup_steps=1)
    found = tuned(
        heating(log), {"temperature": values}, objectives="score", sampler=order, pruner=pruner, concurrency=2, held_out=0.25
    )
    trials, best = found.trials, float("-inf")
    for row in trials.to_dict("records"):  # the median of the trials so far, in any order
        before = trials[: row["number"]]
        median = before["temperature"].median()
        expected = "pruned" if len(before) and row["temperature"] > median else "complete"
        assert row["state"] == expected, row
        best = max(best, -row["temperature"])
    pruned = trials[trials["state"] == "pruned"]
    assert len(pruned) and pruned["runs"].eq(2).all() and pruned["paid_calls"].eq(2).all() and pruned["paid_usd"].eq(0.02).all()
    assert pruned["score"].isna().all() and "pruned after 1 of 9 runs" in pruned["why"].iloc[0]
    assert len(log) == trials["paid_calls"].sum() + 3 * len(found.front) == found.spent.calls
    assert found.best is not None and found.best["temperature"] == 0.1
    reported = found.study.trials[0].intermediate_values
    assert list(reported) == [*range(1, 10)]


class Shuffled(Heats):
    """The later runs of each wave end first; the answer has the temperature, the task and the repeat in it."""

    async def respond(self, request: ModelRequest, context: Any) -> Any:
        """Wait, and name a number."""
        number = int(request.messages[0].text)
        await asyncio.sleep(0.002 * (12 - number))
        heat, repeat = request.parameters.temperature or 0.0, int(context.replay_key.rpartition("/")[2])
        return say(str((heat * (7 + number * repeat)) % 1), cost="0.01")


@pytest.mark.parametrize(
    ("pruner", "others"),
    [
        (optuna.pruners.MedianPruner(n_startup_trials=1), [3, 64]),
        (optuna.pruners.SuccessiveHalvingPruner(min_resource=2, reduction_factor=2), [64]),
    ],
    ids=["median", "halving"],
)
def test_a_pruner_reads_the_runs_in_their_order_and_decides_the_same_at_any_concurrency(pruner: Any, others: list[int]) -> None:
    def search(concurrency: int) -> lab.Tuning:
        study = study_of(lab.Agent(Shuffled(), name="a"), score=lambda result: float(result.text), repeats=2)
        more: dict[str, Any] = {"objectives": "score", "trials": 8, "pruner": pruner, "held_out": 0.25}
        return tuned(study, {"temperature": (0.0, 1.0)}, concurrency=concurrency, **more)

    one = search(1)
    states = one.trials["state"].tolist()
    assert states.count("pruned") >= 2 and states.count("complete") + states.count("pruned") == 8
    for trial in one.study.trials:
        heat, ids = trial.params["temperature"], [int(task.prompt) for task in one.tuning_tasks]
        values = [(heat * (7 + number * repeat)) % 1 for number in ids for repeat in (1, 2)]
        means = [sum(values[:count]) / count for count in range(1, len(values) + 1)]
        reported = list(trial.intermediate_values.values())
        assert reported == pytest.approx(means[: len(reported)])
    for concurrency in others:
        other = search(concurrency)
        assert [trial.intermediate_values for trial in other.study.trials] == [
            trial.intermediate_values for trial in one.study.trials
        ]
        same = ["number", "state", "temperature", "score", "on_front", "why"]
        assert other.trials[same].equals(one.trials[same])


def test_a_trial_whose_first_runs_fail_goes_on() -> None:
    class Fails(Heats):
        async def respond(self, request: ModelRequest, context: Any) -> Any:
            """Fail for the first task."""
            if request.messages[0].text == first:
                raise ValueError("no answer")
            return say("1", cost="0.01")

    def search(**more: Any) -> lab.Tuning:
        study = study_of(lab.Agent(Fails(), name="a"), score=lambda result: 1)
        return tuned(study, {"max_turns": [2]}, objectives="score", trials=1, held_out=0.25, concurrency=1, **more)

    first = ""
    first = search().tuning_tasks[0].text
    found = search(pruner=optuna.pruners.MedianPruner())
    assert found.trials["score"].tolist() == pytest.approx([8 / 9])
    assert found.trials["why"].tolist()[0].startswith("1 run failed")
    assert list(found.study.trials[0].intermediate_values.values()) == pytest.approx([n / (n + 1) for n in range(9)])

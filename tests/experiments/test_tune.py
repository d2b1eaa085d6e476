"""A search over settings: what-if trials equal live runs, the front equals brute force, one budget, pruning, resuming after a kill."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

import optuna
import pandas as pd
import pytest

import agentlab as lab
from agentlab import Budget, HasToolCall, MaxTokensUsed, StepCountIs
from agentlab.model.messages import ModelRequest
from agentlab.testing import Said, ScriptedProvider, call, say

from .parts import Slow, look, within

TASKS = [str(number) for number in range(12)]


@lab.tool(inline=True)
def finish(answer: str) -> str:
    """Hand in the answer."""
    return answer.upper()


class Answers:
    """Takes 1 to 6 steps by the prompt alone: some hand in with a tool, some answer, some go on for ever."""

    name, model = "answers", "script"

    def __init__(self, log: list[str] | None = None) -> None:
        self.log = log

    async def respond(self, request: ModelRequest, context: Any) -> Any:
        """Look, and finally answer."""
        await asyncio.sleep(0)
        number, asked = int(request.messages[0].text), len(request.messages) // 2 + 1
        if self.log is not None:
            self.log.append(f"{number} {request.parameters.temperature}")
        cost, tokens = f"0.0{1 + (number + asked) % 5}", (10, 1 + number % 7)
        said = f"thought {number * asked % 11}"
        if asked <= number % 6 or number % 5 == 4:
            return call("look", {"q": str(asked)}, text=said, id=f"c{asked}", cost=cost, tokens=tokens)
        if number % 2:
            return call("finish", {"answer": f"it is {number}"}, text=said, id=f"c{asked}", cost=cost, tokens=tokens)
        return say(f"end {number}", cost=cost, tokens=tokens)


def answering(log: list[str] | None = None, **more: Any) -> lab.Agent:
    return lab.Agent(Answers(log), tools=[look, finish], name="a", **{"budget": Budget(max_turns=6), **more})


def marked(result: lab.RunResult, task: lab.Task) -> dict[str, float]:
    """A score that reads all of a result: its answer, messages, results of tools, and the reason of its end."""
    seen = [one.content for step in result.history for one in step.tool_results]
    parts = [result.text, str(result.output), *seen, str(result.stop_reason), str(len(result.messages)), str(result.terminated)]
    return {"score": sum(map(ord, "".join(parts))) % 97 / 97, "right": task.prompt in result.text}


def study_of(agent: lab.Agent, tasks: Any = TASKS, **more: Any) -> lab.Experiment:
    return lab.Experiment({"a": agent}, tasks, **{"score": marked, **more})


def tuned(study: lab.Experiment, space: Any, **more: Any) -> lab.Tuning:
    async def searched() -> lab.Tuning:
        return await lab.tune(study, space, progress=False, **more)

    return asyncio.run(searched())


def recorded(agent: lab.Agent, **more: Any) -> lab.Experiment:
    study = study_of(agent, **more)
    asyncio.run(ended(study))
    return study


async def ended(study: lab.Experiment) -> lab.ExperimentResults:
    return await study.run(progress=False)


LIMITS = {
    "max_turns": [1, 4],
    "max_cost": [None, 0.04],
    "stop": [None, StepCountIs(4) | HasToolCall("finish"), MaxTokensUsed(30) & StepCountIs(2)],
}
GOALS = ["score", "-cost_usd", "score.right", "-total_tokens", "terminated", "-steps"]


@pytest.mark.filterwarnings("ignore:.* can never be met")  # on purpose
def test_what_if_trials_are_what_live_runs_give() -> None:
    log: list[str] = []
    study = recorded(answering(log), repeats=2)
    before = len(log)
    found = tuned(study, LIMITS, objectives=GOALS, trials=40, sampler=grid_of(LIMITS), held_out=0.25)
    assert len(log) == before and found.spent.calls == 0
    assert found.trials["how"].eq("what-if").all() and len(found.trials) == 12
    assert found.trials["why"].isna().all()
    for row in found.trials.to_dict("records"):
        agent = found.agent(row["number"])
        live = naive(answering(stop=agent.settings.stop, budget=agent.settings.budget), found.tuning_tasks)
        assert [row[goal.removeprefix("-")] for goal in GOALS] == pytest.approx([live[goal.removeprefix("-")] for goal in GOALS])
    for row in found.front.to_dict("records"):
        agent = found.agent(row["number"])
        live = naive(answering(stop=agent.settings.stop, budget=agent.settings.budget), found.held_out_tasks)
        assert [row[goal.removeprefix("-")] for goal in GOALS] == pytest.approx([live[goal.removeprefix("-")] for goal in GOALS])
    assert set(found.front["number"]) == brute_force(found.trials, GOALS)


def grid_of(space: dict[str, list[Any]]) -> Any:
    """A sampler that tries all combinations; stop conditions are texts to Optuna."""
    written = {
        name: [repr(one) if isinstance(one, lab.StopCondition) else one for one in values] for name, values in space.items()
    }
    return optuna.samplers.GridSampler(written)


def naive(agent: lab.Agent, tasks: lab.Tasks) -> dict[str, float]:
    """The means over single runs, without an experiment."""

    async def all_of() -> list[lab.RunResult]:
        return [await agent.run(task.prompt) for task in tasks]

    rows = []
    for task, result in zip(tasks, asyncio.run(all_of()), strict=True):
        scores = marked(result, task)
        usage = {"cost_usd": result.cost.usd, "total_tokens": result.usage.total_tokens, "steps": len(result.history)}
        rows.append({"score": scores["score"], "score.right": scores["right"], "terminated": result.terminated, **usage})
    return {name: sum(float(row[name]) for row in rows) / len(rows) for name in rows[0]}


def brute_force(trials: pd.DataFrame, goals: list[str]) -> set[int]:
    """The trials that no other one dominates; of equal settings the first."""
    signs = [-1 if goal.startswith("-") else 1 for goal in goals]
    points = {
        row["number"]: [sign * row[goal.removeprefix("-")] for sign, goal in zip(signs, goals, strict=True)]
        for row in trials.to_dict("records")
    }
    return {
        one for one, mine in points.items()
        if not any(all(a >= b for a, b in zip(other, mine, strict=True)) and other != mine for other in points.values())
    }  # fmt: skip


def test_a_condition_with_lists_is_one_value_for_each_combination() -> None:
    study = recorded(answering())
    space = {"stop": StepCountIs([1, 2]) | MaxTokensUsed([20, 40])}
    with pytest.warns(optuna.exceptions.ExperimentalWarning):
        sampler = optuna.samplers.BruteForceSampler(seed=1)
    found = tuned(study, space, trials=12, sampler=sampler)
    assert sorted(found.trials["stop"]) == [
        f"AnyOf(StepCountIs(steps={a}), MaxTokensUsed(tokens={b}))" for a in (1, 2) for b in (20, 40)
    ]
    assert "the sampler has tried all combinations" in found.ended


def test_a_trial_beyond_the_record_is_live_and_later_ones_use_its_runs() -> None:
    log: list[str] = []
    study = recorded(answering(log, budget=Budget(max_turns=2)))
    before = len(log)
    found = tuned(study, {"max_turns": [1, 2, 4, 6]}, objectives="score", trials=4, sampler=grid_of({"max_turns": [1, 2, 4, 6]}))
    trials = found.trials.set_index("max_turns")
    assert list(trials.loc[[1, 2], "how"]) == ["what-if", "what-if"]
    assert list(trials.loc[[1, 2], "paid_calls"]) == [0, 0]
    assert {"live", "what-if"} >= set(trials.loc[[4, 6], "how"]) and trials.loc[6, "how"] == "live"
    assert "ends before these limits" in trials.loc[6, "why"]
    first_is_6 = trials.loc[6, "number"] < trials.loc[4, "number"]
    assert trials.loc[4, "how"] == ("what-if" if first_is_6 else "live")
    assert first_is_6 == (trials.loc[4, "why"] == "from the runs of an earlier trial")
    assert found.spent.calls == len(log) - before >= trials["paid_calls"].sum()  # the rest is for held-out runs
    assert found.trials["paid_usd"].sum() <= float(found.spent.cost_usd) + 1e-9


@pytest.mark.parametrize("name", ["temperature", "instructions", "model"])
def test_other_parameters_than_limits_are_run_live_with_the_value(name: str) -> None:
    log: list[str] = []
    study = recorded(answering(log))
    other = Answers(log)
    other.model = "other"
    space: dict[str, Any] = {"temperature": (0.0, 1.0), "instructions": ["Be brief.", "Think."], "model": [other]}
    before = len(log)
    found = tuned(study, {name: space[name]}, objectives="-cost_usd", trials=2)
    assert found.trials["how"].iloc[0] == "live" and len(log) > before
    chosen = found.trials[name].iloc[0]
    agent = found.agent(0)
    assert (
        chosen
        == {
            "temperature": agent.parameters.temperature,
            "instructions": agent.instructions,
            "model": f"answers:{agent.model.model}",
        }[name]
    )
    if name == "temperature":
        assert {line.split()[1] for line in log[before:]} == {str(one) for one in found.trials["temperature"]}


def test_held_out_tasks_are_run_after_the_search_for_the_front_alone() -> None:
    log: list[str] = []
    study = study_of(answering(log), [str(number) for number in range(20)])
    found = tuned(study, {"temperature": (0.0, 1.0)}, objectives="score", trials=3, held_out=0.5)
    held_out = {task.prompt for task in found.held_out_tasks}
    assert len(held_out) == 10 and not held_out & {task.prompt for task in found.tuning_tasks}
    asked = [line.split() for line in log]
    first = next(place for place, (prompt, _) in enumerate(asked) if prompt in held_out)
    assert all(prompt in held_out for prompt, _ in asked[first:])
    assert {heat for _, heat in asked[first:]} == {str(one) for one in found.front["temperature"]}
    best = found.best
    assert best is not None
    scores = naive(answering(), found.held_out_tasks)
    assert best["score"] == pytest.approx(scores["score"]) and best["units"] == 10
    assert best["score_low"] < best["score"] < best["score_high"] and best["methods"].startswith("score: t or Hall")


def test_tasks_with_the_same_text_are_in_the_same_part() -> None:
    tasks = [{"prompt": str(number % 6), "target": number} for number in range(18)]
    found = tuned(recorded(answering(), tasks=tasks), {"max_turns": [1, 2]}, trials=2, held_out=0.5)
    assert not {task.prompt for task in found.tuning_tasks} & {task.prompt for task in found.held_out_tasks}
    assert len(found.held_out_tasks) == 9


class Heats(Answers):
    """Answers in one step, well at a low temperature."""

    async def respond(self, request: ModelRequest, context: Any) -> Any:
        """Name the temperature, for a cent."""
        await asyncio.sleep(0)
        if self.log is not None:
            self.log.append(request.messages[0].text)
        return say(f"{request.parameters.temperature}", cost="0.01")


def heating(log: list[str], **more: Any) -> lab.Experiment:
    agent = lab.Agent(Heats(log), name="a")
    return lab.Experiment({"a": agent}, TASKS, score=lambda result: 1 - float(result.text), **more)


def test_prompts_are_templates_around_the_prompts_of_the_tasks() -> None:
    asked: list[str] = []

    class Obeys(Answers):
        async def respond(self, request: ModelRequest, context: Any) -> Any:
            """Answer right if asked to think."""
            text = request.messages[0].text
            asked.append(text)
            return say(text.split()[0] if "think" in text or "think" in request.instructions else "?", cost="0.01")

    agent = lab.Agent(Obeys(), name="a")
    tasks = lab.Tasks([{"id": f"t{number}", "prompt": number, "target": number} for number in TASKS])
    study = study_of(agent, tasks, score=lab.scorers.Exact(), repeats=2)
    asyncio.run(ended(study))
    before = len(asked)
    space = {"prompt": ["{prompt}", '{prompt} {"think": 1}', "{prompt} quickly"], "instructions": ["", "Please think."]}
    found = tuned(study, space, objectives="score", trials=6, sampler=grid_of(space), held_out=0.25)
    trials = found.trials.set_index(["prompt", "instructions"])
    for prompt, instructions in trials.index:
        assert trials.loc[(prompt, instructions), "score"] == float("think" in prompt + instructions)
    assert trials.loc[("{prompt}", ""), "how"] == "what-if"  # the experiment's own runs
    assert (trials["how"] == "live").sum() == 5
    assert set(asked[before:]) == {prompt.replace("{prompt}", number) for prompt in space["prompt"] for number in TASKS}
    best = found.best
    assert best is not None and best["score"] == 1.0 and best["units"] == 3
    again = found.held_out_tasks.with_prompt(best["prompt"])
    repeated = lab.Experiment([found.agent()], again, score=lab.scorers.Exact())
    assert asyncio.run(ended(repeated)).runs["score"].eq(1).all()


@pytest.mark.parametrize("limit", [{"max_calls": 60}, {"max_cost": 0.6}, {"max_tokens": 900}], ids=str)
def test_one_budget_is_for_the_whole_search_and_leaves_the_held_out_runs_their_share(limit: dict[str, Any]) -> None:
    log: list[str] = []
    study = heating(log)
    found = tuned(
        study, {"temperature": (0.0, 1.0)}, objectives=["score", "-cost_usd"], trials=30, budget=Budget(**limit), held_out=0.25
    )
    assert 40 < len(log) <= 60 == 12 * 5
    assert "the rest of the budget is reserved for the held-out runs" in found.ended and "of 30 trials" in found.ended
    assert found.front["score"].notna().all() and found.front["runs"].eq(3).all()
    open_trial = found.trials[found.trials["state"] == "interrupted"]
    assert len(open_trial) == 1 and open_trial["paid_calls"].iloc[0] < 9
    assert len(log) == found.spent.calls == found.trials["paid_calls"].sum() + 3 * len(found.front)


def test_a_larger_budget_continues_the_same_search(tmp_path: Path) -> None:
    log: list[str] = []

    def search(calls: int) -> lab.Tuning:
        study = heating(log, store=tmp_path / "runs.db")
        more: dict[str, Any] = {"objectives": "score", "trials": 3, "storage": tmp_path / "tune.db", "held_out": 0.25}
        return tuned(study, {"temperature": (0.0, 1.0)}, budget=Budget(max_calls=calls), **more)

    first = search(20)
    assert 0 < len(first.trials[first.trials["state"] == "complete"]) < 3 and len(log) <= 20
    second = search(100)
    ended = second.trials[second.trials["state"] == "complete"]
    assert len(ended) == 3 and not second.ended
    assert "another trial continues it" in second.trials.loc[second.trials["state"] == "interrupted", "why"].iloc[0]
    heats = first.trials["temperature"].tolist()  # the open trial too, whose runs are not repeated
    assert set(heats) <= set(ended["temperature"]) and ended["temperature"].is_unique
    assert (
        len(log)
        == second.spent.calls
        == ended["paid_calls"].sum() + 3 * len({*first.front["temperature"], *second.front["temperature"]})
    )
    before = len(log)
    assert len(search(100).trials) == len(second.trials) and len(log) == before  # all is there


def test_a_budget_that_is_spent_before_the_held_out_runs_leaves_their_figures_unknown() -> None:
    class Doubling(Heats):
        async def respond(self, request: ModelRequest, context: Any) -> Any:
            """Cost more with each call."""
            assert self.log is not None
            self.log.append("x")
            return say("0.5", cost=0.01 * 2 ** len(self.log))

    study = lab.Experiment({"a": lab.Agent(Doubling([]), name="a")}, TASKS, score=lambda result: 0.5)
    more: dict[str, Any] = {
        "objectives": "score",
        "trials": 1,
        "held_out": 0.75,
        "budget": Budget(max_cost=0.5),
        "concurrency": 1,
    }
    found = tuned(study, {"temperature": [0.5]}, **more)
    assert found.front["score"].isna().all() and found.front["score_tuning"].eq(0.5).all()
    assert "not measured on the held-out tasks: the budget of the experiment is spent" in found.front["why"].iloc[0]
    assert "score unknown" in repr(found)


def slow_search(folder: Path, model: Slow) -> lab.Tuning:
    study = lab.Experiment({"a": lab.Agent(model, tools=[look], name="a")}, TASKS[:6], store=folder / "runs.db")
    more: dict[str, Any] = {"objectives": ["terminated", "-cost_usd"], "trials": 4, "storage": f"sqlite:///{folder / 'tune.db'}"}
    return tuned(study, {"temperature": (0.0, 1.0), "max_turns": [3, 4]}, held_out=0.34, concurrency=2, **more)


def test_kill_9_in_the_middle_of_a_trial_loses_nothing(tmp_path: Path) -> None:
    log = tmp_path / "log"
    process = os.fork()
    if not process:
        try:
            slow_search(tmp_path, Slow(0.01, log))
        finally:
            os._exit(0)
    within(lambda: log.exists() and len(log.read_text().splitlines()) >= 20)
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    before = log.read_text().splitlines()
    found = slow_search(tmp_path, Slow(0.0, log))
    assert found.trials["state"].value_counts().to_dict() == {"complete": 4, "interrupted": 1}
    interrupted = found.trials[found.trials["state"] == "interrupted"]
    continued = found.trials[found.trials["number"] == interrupted["number"].iloc[0] + 1]
    assert (
        continued[["temperature", "max_turns"]].to_numpy().tolist()
        == interrupted[["temperature", "max_turns"]].to_numpy().tolist()
    )
    assert interrupted["paid_calls"].isna().all()
    asked_for = len(log.read_text().splitlines())
    assert len(before) < asked_for
    assert found.spent.calls <= asked_for <= found.spent.calls + 2  # of each running run, the step in flight is taken again


def test_a_trial_that_cannot_run_or_has_no_value_is_recorded_as_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    study = study_of(answering())
    space = {"model": ["openai:gpt-5.4-mini", Answers()]}
    found = tuned(
        study, space, objectives="-cost_usd", trials=2, sampler=grid_of({"model": ["openai:gpt-5.4-mini", "answers:script"]})
    )
    trials = found.trials.set_index("model")
    assert (
        trials.loc["openai:gpt-5.4-mini", "state"] == "failed" and "MissingKeyError" in trials.loc["openai:gpt-5.4-mini", "why"]
    )
    assert trials.loc["answers:script", "state"] == "complete" and found.front["model"].tolist() == ["answers:script"]


class Breaks(Answers):
    """Fails for some prompts, or for all."""

    def __init__(self, model: str, among: int) -> None:
        super().__init__()
        self.model, self.among = model, among

    async def respond(self, request: ModelRequest, context: Any) -> Any:
        """Fail without any cost."""
        if (int(request.messages[0].text) + 1) % self.among == 0:
            raise lab.errors.ProviderError("the server is down")
        return await super().respond(request, context)


def test_a_trial_whose_runs_all_fail_is_not_the_cheapest() -> None:
    models = [Breaks("never", 99), Breaks("sometimes", 3), Breaks("always", 1)]
    space, written = {"model": models}, {"model": [f"answers:{one.model}" for one in models]}
    for objective, expected in (("-cost_usd", "failed"), ("terminated", "complete")):  # the cost of a run that failed is unknown
        found = tuned(study_of(answering()), space, objectives=objective, trials=3, sampler=grid_of(written), held_out=0.25)
        trials = found.trials.set_index("model")
        assert trials["state"].to_dict() == {
            "answers:never": "complete",
            "answers:sometimes": expected,
            "answers:always": "failed",
        }
        assert "answers:always" not in found.front["model"].tolist()
    assert trials.loc["answers:always", "state"] == "failed" and "all 9 runs failed" in trials.loc["answers:always", "why"]
    assert "the server is down" in trials.loc["answers:always", "why"]
    failing = sum((int(task.prompt) + 1) % 3 == 0 for task in found.tuning_tasks)
    assert f"{failing} runs failed" in trials.loc["answers:sometimes", "why"]


def broken(result: lab.RunResult) -> float:
    """A score that raises for long answers."""
    if len(result.history) > 2:
        raise ValueError(f"too long, and {KEY}")
    return 1.0


KEY = "sk-ant-" + "a1B2" * 8


def test_an_unknown_score_is_no_value() -> None:
    study = study_of(answering(), score=broken)
    found = tuned(
        study,
        {"max_turns": [1, 4], "instructions": [f"Use {KEY}."]},
        objectives="score",
        trials=2,
        sampler=grid_of({"max_turns": [1, 4], "instructions": ["Use [REDACTED]."]}),
    )
    trials = found.trials.set_index("max_turns")
    assert trials.loc[1, "state"] == "complete" and trials.loc[1, "score"] == 1.0
    assert trials.loc[4, "state"] == "failed" and pd.isna(trials.loc[4, "score"]) and trials.loc[4, "paid_calls"] > 0
    assert trials.loc[4, "why"].startswith("score is unknown in ") and "ValueError: too long" in trials.loc[4, "why"]
    assert KEY not in found.trials.to_csv() + found.front.to_csv() + repr(found) + str(found.study.get_trials())


def test_a_judge_is_not_asked_by_a_what_if() -> None:
    asked: list[str] = []

    def verdict(request: ModelRequest, index: int) -> Said:
        asked.append(request.messages[0].text)
        return say("1", cost="0.05")

    judge = lab.Agent(ScriptedProvider(verdict), name="judge")

    async def judged(result: lab.RunResult) -> float:
        return float((await judge.run("Good?", budget=Budget(max_calls=1))).text)

    study = recorded(lab.Agent(Heats([]), name="a"), score=judged)
    before = len(asked)
    found = tuned(study, {"max_turns": [2, 4]}, objectives="score", trials=2, held_out=0.25)
    assert found.trials["how"].eq("what-if").all() and len(asked) == before  # each run ends as in the record
    log: list[str] = []
    study = recorded(answering(log), score=judged)
    found = tuned(study, {"max_turns": [1]}, objectives="score", trials=1, held_out=0.25)
    assert found.trials["how"].eq("live").all() and found.trials["why"].iloc[0] == "live since the scorer asks a model"


def test_several_agents_and_settings_are_parameters() -> None:
    agents = {"quick": answering(budget=Budget(max_turns=2)), "slow": answering()}
    study = lab.Experiment(agents, TASKS, {"one": {"stop": StepCountIs(1)}, "all": {}}, score=marked)
    asyncio.run(ended(study))
    space = {"agent": ["quick", "slow"], "settings": ["one", "all"]}
    found = tuned(study, space, objectives="-steps", trials=4, sampler=grid_of(space))
    steps = {(row["agent"], row["settings"]): row["steps"] for row in found.trials.to_dict("records")}
    runs = asyncio.run(ended(study)).runs
    tuning = runs[runs["prompt_id"].isin(found.tuning_tasks.ids)]
    assert steps == pytest.approx(tuning.groupby(["agent", "settings"])["steps"].mean().to_dict())
    assert found.trials["how"].eq("what-if").all()


@pytest.mark.parametrize(
    "sampler", [None, optuna.samplers.RandomSampler(seed=7), optuna.samplers.TPESampler(seed=7)], ids=["default", "random", "TPE"]
)
def test_the_same_seed_gives_the_same_search(sampler: Any) -> None:
    study = recorded(answering())
    found = tuned(study, {"max_turns": (1, 6), "max_cost": (0.01, 0.2, "log")}, trials=6, sampler=sampler, seed=5)
    again = tuned(study, {"max_turns": (1, 6), "max_cost": (0.01, 0.2, "log")}, trials=6, seed=5)
    assert found.trials["how"].eq("what-if").all() and found.trials["max_cost"].between(0.01, 0.2).all()
    if sampler is None:
        pd.testing.assert_frame_equal(found.trials, again.trials)
        pd.testing.assert_frame_equal(found.front, again.front)


# Bad input ------------------------------------------------------------------------------------------------------------------------

BAD: dict[str, tuple[Any, dict[str, Any], str]] = {
    "an unknown parameter": ({"max_tunrs": [1]}, {}, "space: There is no parameter 'max_tunrs'. Did you mean 'max_turns'?"),
    "no parameter": ({}, {}, "space={}: pass a dict of parameters"),
    "an empty range": ({"max_turns": (4, 4)}, {}, r"the range max_turns=(4, 4) is empty"),
    "a reversed range": ({"temperature": (1.0, 0.0)}, {}, r"the range temperature=(1.0, 0.0) is empty"),
    "a range of texts": ({"model": ("a", "b")}, {}, "a range is (low, high)"),
    "log from 0": ({"temperature": (0.0, 1.0, "log")}, {}, "needs numbers above 0"),
    "an empty list": ({"model": []}, {}, "space: model=[]: pass at least one value."),
    "a single value": ({"max_turns": 4}, {}, "space: max_turns=4: pass a list of values, or a range"),
    "a value twice": ({"max_turns": [4, 4]}, {}, "space: max_turns has 4 twice"),
    "an invalid limit": ({"max_turns": [0]}, {}, "max_turns must be at least 1"),
    "an invalid temperature": ({"temperature": (0.0, 3.0)}, {}, "temperature=3.0: pass a number from 0 to 2."),
    "a prompt without its place": ({"prompt": ["Be brief."]}, {}, "prompt='Be brief.': pass a text with {prompt} once"),
    "a prompt that is no text": ({"prompt": [3]}, {}, "prompt=3: pass a text with {prompt} once"),
    "instructions that are no text": ({"instructions": [3]}, {}, "instructions=3: pass texts."),
    "an unknown agent": ({"agent": ["b"]}, {}, "'b'"),
    "no column": ({"max_turns": [2]}, {"objectives": "costs_usd"}, "Did you mean 'cost_usd'?"),
    "a column of texts": ({"max_turns": [2]}, {"objectives": ["-stop_reason"]}, "'stop_reason'"),
    "no objective": ({"max_turns": [2]}, {"objectives": []}, "objectives=[]"),
    "a column twice": ({"max_turns": [2]}, {"objectives": ["score", "-score"]}, "a column occurs twice"),
    "nothing held out": ({"max_turns": [2]}, {"held_out": 0}, "held_out=0: pass a share between 0 and 1"),
    "no held-out task": ({"max_turns": [2]}, {"held_out": 0.01}, "leaves no held-out task"),
    "no tuning task": ({"max_turns": [2]}, {"held_out": 0.99}, "leaves no tuning task"),
    "a pruner with two objectives": (
        {"max_turns": [2]},
        {"pruner": optuna.pruners.NopPruner()},
        "Optuna prunes for one objective only",
    ),
    "a storage without a store": ({"max_turns": [2]}, {"storage": "sqlite:///x.db"}, "give the experiment a store"),
    "no trials": ({"max_turns": [2]}, {"trials": 0}, "trials"),
    "a budget that is none": ({"max_turns": [2]}, {"budget": 3}, "budget=3: pass a Budget"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_an_error_that_says_what_to_do(name: str) -> None:
    space, more, text = BAD[name]
    with pytest.raises((lab.errors.ConfigurationError, lab.errors.LimitError)) as caught:
        tuned(study_of(answering()), space, **more)
    assert text in str(caught.value)


def test_other_bad_input() -> None:
    with pytest.raises(lab.errors.ConfigurationError, match=r"pass a lab\.Experiment"):
        tuned([1], {"max_turns": [2]})  # type: ignore[arg-type]
    with pytest.raises(lab.errors.ConfigurationError, match="'score' needs an experiment with score=…"):
        tuned(study_of(answering(), score=None), {"max_turns": [2]})
    with pytest.raises(lab.errors.ConfigurationError, match="The experiment has 2 agents: add 'agent' to the space"):
        tuned(lab.Experiment({"a": answering(), "b": answering()}, TASKS, score=marked), {"max_turns": [2]})


def test_without_optuna_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(lab.errors.ConfigurationError, match=r"pip install 'agentlab-jupyter\[tune\]'"):
        tuned(study_of(answering()), {"max_turns": [2]})


def test_a_storage_with_another_search_under_the_name_is_an_error(tmp_path: Path) -> None:
    def search(space: Any = None, **more: Any) -> lab.Tuning:
        study = study_of(more.pop("agent", answering()), store=tmp_path / "runs.db")
        given: dict[str, Any] = {"objectives": "-steps", "trials": 1, "storage": tmp_path / "tune.db", **more}
        return tuned(study, space or {"max_turns": [1]}, **given)

    search()
    for changed, what in (
        ({"space": {"max_turns": [1, 2]}}, "space"),
        ({"objectives": "steps"}, "objectives"),
        ({"held_out": 0.5}, "tasks"),
        ({"agent": answering(instructions="Be brief.")}, "agents and settings"),
    ):
        with pytest.raises(
            lab.errors.ConfigurationError, match=f"has a study 'experiment' with other {what}: give the experiment"
        ):
            search(**changed)


# Showing it -----------------------------------------------------------------------------------------------------------------------


def test_the_plot_has_the_trials_and_the_front() -> None:
    study = recorded(answering())
    found = tuned(study, {"max_turns": [1, 2, 4]}, trials=3, sampler=grid_of({"max_turns": [1, 2, 4]}), held_out=0.5)
    data = lab.plots.tuning_data(found)
    assert data["on"].tolist() == ["tuning"] * 3 + ["held-out"] * len(found.front)
    assert data["x"].tolist() == [*found.trials["cost_usd"], *found.front["cost_usd"]]
    assert data["y"].tolist() == [*found.trials["score"], *found.front["score"]]
    ax = found.plot()
    drawn = {line.get_gid(): line.get_xydata().tolist() for line in ax.lines if str(line.get_gid()).startswith("points")}
    assert sorted(map(len, drawn.values())) == sorted([3, len(found.front)])
    assert "Score against cost_usd on the tuning tasks of 3 trials. On the front, on 6 held-out tasks: trial " in ax.alt
    assert ax.xaxis.get_major_formatter().format_ticks([0, 0.01]) == ["$0", "$0.01"]
    assert found.plot(x="score", y="cost_usd").alt.startswith("Cost_usd against score")
    with pytest.raises(lab.errors.ConfigurationError, match="y='steps'"):
        found.plot(y="steps")
    with pytest.raises(lab.errors.ConfigurationError, match=r"takes the result of lab\.tune"):
        lab.plots.tuning(study)


def test_without_a_value_there_is_no_best_agent() -> None:
    found = tuned(study_of(answering(), score=lambda result: None), {"max_turns": [1]}, objectives="score", trials=1)
    assert found.best is None and found.front.empty and "no trial has a value" in repr(found)
    assert found.trials["why"].tolist() == ["score is unknown in 8 of 8 runs"]
    with pytest.raises(lab.errors.ConfigurationError, match="No trial has a value"):
        found.agent()
    with pytest.raises(lab.errors.ConfigurationError, match="There is no trial 7"):
        found.agent(7)
    assert found.plot().alt == "Score: no trial has a value."

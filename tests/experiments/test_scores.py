"""Scores: dicts without a score, changed functions, and agents as judges, whose cost counts."""

from __future__ import annotations

import asyncio
import concurrent.futures
import itertools
import warnings
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from engine.server import Asked, Reply, serving, whole
from providers.bodies import Answer, Call
from providers.bodies import whole as body_of

import agentlab as lab
from agentlab import AgentlabWarning, Budget
from agentlab.storage.store import Store
from agentlab.testing import ScriptedProvider, call, say

from .parts import STEPS, Slow, judged, judged_twice, look, looking, steps_taken
from .test_budget import figure_in, go, results_and_warning

PROMPTS = [str(number) for number in range(12)]
NUMBERS = itertools.count()


# A model as judge -------------------------------------------------------------------------------------------------------------------


def test_the_cost_of_a_judge_is_counted_and_shown() -> None:
    results = go(lab.Experiment([looking()], ["x", "y"], score=judged))
    assert (
        results.runs[["score", "score_calls", "score_tokens", "score_cost_usd"]].to_numpy().tolist() == [[4.0, 1, 15, 0.05]] * 2
    )
    assert results.runs["cost_usd"].to_list() == [0.04, 0.04]  # the run's cost stays the run's cost
    assert (results.spent.calls, results.spent.cost_usd) == (2 * STEPS + 2, Decimal("0.18"))
    plain = go(lab.Experiment([looking()], ["x"], score=steps_taken)).runs
    assert plain[["score_calls", "score_cost_usd"]].to_numpy().tolist() == [[0, 0.0]]
    unscored = go(lab.Experiment([looking()], ["x"])).runs
    assert unscored[["score_calls", "score_cost_usd"]].isna().all(axis=None)


@pytest.mark.parametrize("where", ["file", "memory"])
@pytest.mark.parametrize(("kind", "concurrency"), [("here", 1), ("here", 8), ("threads", 1), ("threads", 8), ("processes", 8)])
def test_no_judge_is_called_after_the_budget_is_spent(
    kind: str, where: str, concurrency: int, tmp_path: Path, two_processes: concurrent.futures.Executor
) -> None:
    """Runs cost 4 cents and their judges 10, in two calls: $0.50 is exceeded by at most one step per worker."""
    store = Store(tmp_path / "r.db" if where == "file" else None)
    study = lab.Experiment([looking()], PROMPTS, score=judged_twice, budget=Budget(max_cost="0.5"), store=store)
    kinds = {"here": None, "threads": partial(concurrent.futures.ThreadPoolExecutor, 3), "processes": two_processes}
    results, warning = results_and_warning(study, concurrency=concurrency, executor=kinds[kind])
    spent = float(results.calls["cost_usd"].sum() + results.runs["score_cost_usd"].sum())
    missing = results.runs["score"].isna() & (results.runs["state"] == "ended")
    cut_off = spent < float(results.spent.cost_usd)  # a judge whose second call was refused still has a cost
    assert 0.5 <= float(results.spent.cost_usd) < 0.5 + concurrency * 0.05 + 1e-9
    assert missing.any() or not cut_off
    assert figure_in(warning) == pytest.approx(float(results.spent.cost_usd))
    assert (results.runs["score"].dropna() == STEPS).all()
    assert results.runs["score_error"].isna().all()
    study.budget = Budget(max_cost=9)
    done = go(study, concurrency=concurrency, executor=kinds[kind])
    assert done.runs["score"].to_list() == [float(STEPS)] * len(PROMPTS)
    assert done.runs["problem"].isna().all()


def test_a_judge_is_bounded_by_the_experiments_budget() -> None:
    dear = lab.Agent(ScriptedProvider(lambda request, index: say("5", cost="1")))

    async def score(result: lab.RunResult) -> float:
        return float((await dear.run("How good?")).text)

    study = lab.Experiment([looking()], ["x", "y"], repeats=10, score=score, budget=Budget(max_cost="0.5"))
    results, warning = results_and_warning(study, concurrency=1)
    assert results.spent.cost_usd == Decimal("1.04")
    assert results.runs["score"].notna().sum() == 1
    assert "$1.04 of $0.50" in warning
    assert repr(results).endswith("20 runs: 1 ended, 19 not started)")
    results, _ = results_and_warning(
        lab.Experiment([looking()], ["x", "y"], score=score, budget=Budget(max_cost="0.04")), concurrency=1
    )
    assert repr(results).endswith("2 runs: 1 ended but not scored, 1 not started)")


def test_sub_agents_of_a_judge_and_background_judges_count_once() -> None:
    inner = looking("inner").as_tool("research")
    script = [call("research", {"task": "x"}, cost="0.01"), say("7", cost="0.01")]
    judge = lab.Agent(ScriptedProvider(lambda request, index: script[len(request.messages) // 2]), tools=[inner])

    def score(result: lab.RunResult) -> float:
        run = judge.run("How good?").start()  # without a front end it has ended when this returns
        return float(run.wait().text)

    runs = go(lab.Experiment([looking()], ["x"], score=lambda result: asyncio.to_thread(score, result))).runs
    assert runs[["score", "score_calls", "score_cost_usd"]].to_numpy().tolist() == [[7.0, 2 + STEPS, pytest.approx(0.06)]]


def test_a_judge_of_unknown_cost_makes_the_sum_unknown() -> None:
    judge = lab.Agent(ScriptedProvider(lambda request, index: say("5")))

    async def score(result: lab.RunResult) -> float:
        return float((await judge.run("How good?")).text)

    study = lab.Experiment([looking()], ["x", "y"], score=score, budget=Budget(max_cost=9))
    with pytest.warns(AgentlabWarning, match="max_cost of the experiment cannot be checked completely"):
        results = go(study)
    assert pd.isna(results.runs["score_cost_usd"][0])
    assert repr(results.spent).endswith("at least $0.0800)")
    study = lab.Experiment([looking()], ["x", "y"], score=score, budget=Budget(max_cost=9, missing_usage="fail"))
    assert "the cost of the score of experiment#a/p1/default/1 is unknown" in results_and_warning(study, concurrency=1)[1]


def numbered(asked: Asked) -> Reply:
    """The model `m` calls its tool once; each other answer is a new number."""
    if asked.json["model"] == "m" and asked.json["messages"][-1]["role"] == "user":
        return whole(body_of("openai", Answer(text=(), calls=[Call("ask", {})], finish=lab.FinishReason.TOOL_CALLS)))
    return whole(body_of("openai", Answer(text=(str(next(NUMBERS)),))))


@pytest.mark.parametrize("kind", ["here", "threads", "processes"])
def test_agents_of_scores_and_tools_use_the_transport_of_the_experiment(
    kind: str, tmp_path: Path, two_processes: concurrent.futures.Executor
) -> None:
    """Created in a block and run outside of it, or run by a worker: all requests are recorded, and none is sent in a replay."""
    executor = {"here": None, "threads": partial(concurrent.futures.ThreadPoolExecutor, 2), "processes": two_processes}[kind]
    with serving(script=numbered) as server:
        model = partial(lab.Provider, "compatible", base_url=server.base, api_key="made-up")
        other = lab.Agent(model(model="other"))

        async def ask() -> str:
            """Ask another agent."""
            return (await other.run("A number?")).text

        async def score(result: lab.RunResult) -> float:
            return float((await other.run(f"Which number is {result.text}?")).text)

        def study(**more: Any) -> lab.Experiment:
            return lab.Experiment(
                [lab.Agent(model(model="m"), tools=[ask], name="a")], ["x", "y"], repeats=2, score=score, **more
            )

        with lab.record(tmp_path / "rec"):
            recording = study(store=tmp_path / "recorded.db")
        with pytest.warns(AgentlabWarning, match="Tools ran agents"):
            recorded = go(recording, executor=executor)
        asked = len(server.asked)
        with lab.replay(tmp_path / "rec"):
            assert len(lab.transport.current().index.interactions) == asked == 4 * (2 + 1 + 1)  # type: ignore[attr-defined]
            replaying = study(store=tmp_path / "replayed.db")
        with pytest.warns(AgentlabWarning, match="Tools ran agents"):
            replayed = go(replaying, executor=executor)
        assert len(server.asked) == asked
    assert recorded.tools["content"].to_list() == replayed.tools["content"].to_list()
    assert recorded.runs["score"].nunique() == 4
    assert recorded.runs["score"].to_list() == replayed.runs["score"].to_list()


# Values of a score ------------------------------------------------------------------------------------------------------------------


def test_a_dict_without_a_score_is_reported_with_its_keys() -> None:
    study = lab.Experiment([looking()], ["x", "y"], score=lambda result: {"length": len(result.history), "right": True})
    with pytest.warns(
        AgentlabWarning, match=r"2 scores are dicts without 'score' \(it has 'length', 'right'\).*\{\"score\": …, 'length'"
    ):
        runs = go(study).runs
    assert runs["score"].isna().all()
    assert runs["score.length"].to_list() == [4.0, 4.0]
    with pytest.warns(AgentlabWarning, match=r"1 score is a dict without 'score' \(it has no keys\)"):
        go(lab.Experiment([looking()], ["x"], score=lambda result: {}))


@pytest.mark.parametrize("nothing", [None, float("nan"), float("inf"), Decimal("inf"), {"score": None, "length": 3}])
def test_scores_are_reported_only_if_all_are_unknown(nothing: Any) -> None:
    study = lab.Experiment([looking()], ["x", "y"], score=lambda result: nothing)
    with pytest.warns(AgentlabWarning, match="2 scores are None, or not a number: no score is known") as caught:
        go(study)
    assert len(caught) == 1
    some = lab.Experiment([looking()], ["x", "y"], score=lambda result: nothing if result.prompt == "x" else True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        go(some)


@pytest.mark.parametrize("where", ["file", "memory"])
def test_a_changed_score_function_scores_again_and_the_same_one_does_not(where: str, tmp_path: Path) -> None:
    store = Store(tmp_path / "r.db" if where == "file" else None)
    asked: list[str] = []

    def study(score: Any) -> lab.Experiment:
        return lab.Experiment([looking()], ["x", "y"], score=score, store=store)

    def old(result: lab.RunResult) -> float:
        asked.append("old")
        return 1.0

    def new(result: lab.RunResult) -> float:
        asked.append("new")
        return 2.0

    go(study(old))
    go(study(old))
    assert asked == ["old", "old"]
    stale = study(new).results().runs
    assert stale["score"].isna().all()
    assert stale["score_error"].str.contains("another version of the score function").all()
    assert len(study(new).plan()) == 2
    with pytest.warns(AgentlabWarning, match="2 scores of another version of the score function were computed again"):
        assert go(study(new)).runs["score"].to_list() == [2.0, 2.0]
    assert asked == ["old", "old", "new", "new"]
    assert study(None).results().runs["score"].to_list() == [2.0, 2.0]  # for reading, without a function


def test_a_score_stored_by_an_earlier_version_is_kept(tmp_path: Path) -> None:
    study = lab.Experiment([looking()], ["x"], score=steps_taken, store=tmp_path / "r.db")
    go(lab.Experiment([looking()], ["x"], store=tmp_path / "r.db"))
    study.store.storage.note("experiment#a/p1/default/1", "score", '{"score": 3.0}')
    runs = go(study).runs
    assert runs["score"].to_list() == [3.0]
    assert runs["score_cost_usd"].isna().all()  # it is unknown whether a judge was called


def test_a_score_added_later_repeats_no_run_with_workers_without_the_store(tmp_path: Path) -> None:
    log, store = tmp_path / "log", Store()
    agents = [lab.Agent(Slow(0, log), tools=[look], name="a")]
    go(lab.Experiment(agents, ["x", "y"], store=store))
    with concurrent.futures.ThreadPoolExecutor(2) as executor:
        results = go(lab.Experiment(agents, ["x", "y"], score=steps_taken, store=store), executor=executor)
    assert results.runs["score"].to_list() == [4.0, 4.0]
    assert len(log.read_text().splitlines()) == 2 * STEPS

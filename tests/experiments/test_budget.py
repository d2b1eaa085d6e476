"""The budget of an experiment: what was spent, by how much it can be exceeded, what is held back, and unknown costs."""

from __future__ import annotations

import asyncio
import concurrent.futures
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from fixtures.scenarios import SCENARIOS

import agentlab as lab
from agentlab import AgentlabWarning, Budget
from agentlab.errors import ProviderStatusError
from agentlab.experiments.shared_budget import SharedBudget, Spent
from agentlab.storage.store import Store
from agentlab.testing import ScriptedProvider, call, say

from .parts import MOST_OF_A_STEP, STEPS, Uneven, assert_same, look, looking, script, spent_of, uneven

FIXTURES = Path(__file__).parents[2] / "fixtures"
LIMITS = {"max_cost": (1.5, 40), "max_tokens": (900, 20000), "max_calls": (60, 2000)}
PROMPTS = [str(number) for number in range(100)]


def go(study: lab.Experiment, **more: Any) -> lab.ExperimentResults:
    return asyncio.run(study.run(progress=False, **more))


def results_and_warning(study: lab.Experiment, **more: Any) -> tuple[lab.ExperimentResults, str]:
    """The results, and the warning that reports what was left out."""
    why = "since .*the budget of the experiment (is spent|has missing_usage='fail')"
    with pytest.warns(AgentlabWarning, match=why) as caught:
        results = go(study, **more)
    return results, next(str(one.message) for one in caught if re.search(why, str(one.message)))


def figure_in(text: str) -> float:
    """The amount spent according to a warning."""
    found = re.search(r"is spent: \$?([\d.,]+)", text)
    assert found is not None
    return float(found[1].replace(",", ""))


# How far the budget can be exceeded -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def unlimited() -> lab.ExperimentResults:
    """The results without a budget."""
    return go(lab.Experiment([uneven()], PROMPTS))


@pytest.mark.parametrize(
    ("limit", "concurrency"),  # with one worker the bound is exact to a step
    [("max_cost", 1), ("max_cost", 64), ("max_tokens", 1), ("max_calls", 1), ("max_calls", 64)],
)
def test_each_worker_exceeds_the_budget_by_at_most_one_step(
    limit: str, concurrency: int, unlimited: lab.ExperimentResults
) -> None:
    small, large = LIMITS[limit]
    study = lab.Experiment([uneven()], PROMPTS, budget=Budget(**{limit: small}))
    results, warning = results_and_warning(study, concurrency=concurrency)
    spent = spent_of(results, limit)
    assert small <= spent < small + concurrency * MOST_OF_A_STEP[limit] + 1e-9
    assert figure_in(warning) == pytest.approx(spent, abs=1e-6)
    assert set(results.runs["state"]) <= {"ended", "interrupted", "not_started"}
    assert (results.runs["state"] == "ended").sum() >= 10  # starts are limited by the cost of earlier runs
    assert (results.runs["problem"].isna() == (results.runs["state"] == "ended")).all()
    again, warning = results_and_warning(study, concurrency=concurrency)
    assert (spent_of(again, limit), figure_in(warning)) == (spent, pytest.approx(spent))  # no further call
    study.budget = Budget(**{limit: large})
    assert_same(go(study, concurrency=concurrency), unlimited)


@pytest.mark.parametrize(("limit", "where"), [("max_cost", "memory"), ("max_tokens", "file"), ("max_calls", "memory")])
def test_workers_in_other_processes_exceed_the_budget_by_at_most_one_step(
    limit: str, where: str, tmp_path: Path, two_processes: concurrent.futures.Executor, unlimited: lab.ExperimentResults
) -> None:
    small, large = LIMITS[limit]
    store = Store(tmp_path / "r.db" if where == "file" else None)
    study = lab.Experiment([uneven()], PROMPTS, budget=Budget(**{limit: small}), store=store)
    results, warning = results_and_warning(study, executor=two_processes, concurrency=8)
    spent = spent_of(results, limit)
    assert small <= spent < small + 8 * MOST_OF_A_STEP[limit] + 1e-9
    assert figure_in(warning) == pytest.approx(spent, abs=1e-6)
    assert (results.runs["state"] == "ended").sum() >= 10
    study.budget = Budget(**{limit: large})
    assert_same(go(study, executor=two_processes, concurrency=8), unlimited)


def test_a_workers_share_is_what_a_run_of_its_group_cost_and_counts_what_the_run_spent_before() -> None:
    limits = Budget(max_cost="1.00", max_calls=100)
    begun = {"continued": {"run": Spent(2, 0, Decimal("0.05"))}, "nearly done": {"run": Spent(6, 0, Decimal("0.15"))}}
    shared = SharedBudget(limits, None, begun)

    def share(run_id: str) -> tuple[int | None, Decimal | None]:
        assert shared.reserve(run_id, "group", Budget(max_cost="0.20", max_calls=8), at_once=3)
        lease = shared.lease(run_id)
        assert lease is not None
        return lease.max_calls, lease.max_cost

    assert share("first") == (8, Decimal("0.20"))  # its own limits, as long as no run has ended
    assert share("continued") == (8, Decimal("0.20"))
    shared.release("continued", "group", ended=False)
    shared.book("first", Spent(4, 0, Decimal("0.10")))
    shared.release("first", "group", ended=True)
    assert share("second") == (4, Decimal("0.10"))
    assert share("continued") == (4, Decimal("0.10"))
    assert share("nearly done") == (7, Decimal("0.175"))  # it spent more than the first run: a quarter of that run on top


def trip(**more: Any) -> lab.Experiment:
    scenario = next(one for one in SCENARIOS if one.name == "trip")
    agents = {name: scenario.agent(name) for name in ("openai", "anthropic", "gemini")}
    settings = {"end": {"stop": lab.HasToolCall("finalize") | lab.StepCountIs(8)}}
    return lab.Experiment(agents, [scenario.prompt], settings, repeats=20, **more)


@pytest.fixture(scope="module")
def whole() -> lab.ExperimentResults:
    """The results of the recording without a budget."""
    with lab.replay(FIXTURES / "trip"):
        return go(trip())


@pytest.mark.parametrize("concurrency", [1, 64])
def test_replayed_runs_are_held_back_and_continue_to_the_same_end(concurrency: int, whole: lab.ExperimentResults) -> None:
    dearest = float(whole.calls["cost_usd"].max())
    small = float(whole.calls["cost_usd"].sum()) / 3
    with lab.replay(FIXTURES / "trip"):
        study = trip(budget=Budget(max_cost=small))
        results, warning = results_and_warning(study, concurrency=concurrency)
        spent = spent_of(results, "max_cost")
        assert small <= spent < small + concurrency * dearest
        assert figure_in(warning) == pytest.approx(spent, abs=1e-6)
        assert float(results.spent.cost_usd) == pytest.approx(spent)
        study.budget = None
        assert_same(go(study, concurrency=concurrency), whole)


@pytest.mark.usefixtures("fake_time")  # no answer comes before all runs that may start have asked
def test_a_runs_own_limit_is_reserved_until_a_cost_is_known() -> None:
    """Four runs of half a dollar are two dollars: no fifth starts before one has ended."""
    under_way, most, at_first_end = [0], [0], list[int]()

    class Counted(Uneven):
        async def respond(self, request: Any, context: Any) -> Any:
            under_way[0] += 1
            most[0] = max(most[0], under_way[0])
            await asyncio.sleep(0.005)
            under_way[0] -= 1
            if len(request.messages) // 2 + 1 == STEPS:
                at_first_end.append(most[0])
            return script(request, context.index)

    def study(**more: Any) -> lab.Experiment:
        most[0] = 0
        return lab.Experiment([lab.Agent(Counted(), tools=[look])], PROMPTS[:8], more.pop("settings", None), **more)

    half = [{"budget": Budget(max_cost="0.5")}]
    go(study(settings=half, budget=Budget(max_cost=2)), concurrency=64)
    assert at_first_end[0] == 4
    results_and_warning(study(settings=half, budget=Budget(max_cost="0.08")), concurrency=64)
    assert most[0] == 1
    go(study(budget=Budget(max_cost=9)), concurrency=64)
    assert most[0] == 7  # one runs first and shows the cost
    go(study(), concurrency=64)
    assert most[0] == 8


def test_spending_of_an_earlier_process_counts_including_a_step_cut_short(tmp_path: Path) -> None:
    def study(**more: Any) -> lab.Experiment:
        def answer(request: Any, index: int) -> Any:
            return call("wait", {"q": "x"}, cost="0.03") if len(request.messages) == 1 else say("end", cost="0.01")

        @lab.tool
        async def wait(q: str = "") -> str:
            """Wait."""
            if not (tmp_path / "cut off").exists():
                (tmp_path / "cut off").touch()
                under_way[0].cancel()
                await asyncio.sleep(30)
            return q

        return lab.Experiment(
            [lab.Agent(ScriptedProvider(answer), tools=[wait], name="a")], ["x"], store=tmp_path / "r.db", **more
        )

    under_way: list[asyncio.Task[Any]] = []

    async def cut_off() -> None:
        under_way.append(asyncio.ensure_future(study().run(progress=False)))
        with pytest.raises(asyncio.CancelledError):
            await under_way[0]

    asyncio.run(cut_off())
    assert float(study().results().spent.cost_usd) == 0.03  # paid for, and in no stored step
    assert results_and_warning(study(budget=Budget(max_cost="0.03")))[0].runs["state"].to_list() == ["interrupted"]
    results = go(study())
    assert (results.runs["cost_usd"].to_list(), float(results.spent.cost_usd)) == ([0.04], 0.07)


@pytest.mark.parametrize("is_async", [True, False])
def test_agents_run_by_tools_count_and_are_reported(is_async: bool) -> None:
    helper = lab.Agent(ScriptedProvider(lambda request, index: say("yes", cost="0.10")))

    @lab.tool
    async def ask(q: str = "") -> str:
        """Ask."""
        return (await helper.run("really?")).text

    @lab.tool(name="ask")
    def ask_at_once(q: str = "") -> str:
        """Ask."""
        return str(helper.run("really?").start().wait().text)

    def answer(request: Any, index: int) -> Any:
        return call("ask", cost="0.01") if len(request.messages) == 1 else say("end", cost="0.01")

    agent = lab.Agent(ScriptedProvider(answer), tools=[ask if is_async else ask_at_once], name="a")
    study = lab.Experiment([agent], PROMPTS[:5], budget=Budget(max_cost="0.2"))
    results, warning = results_and_warning(study, concurrency=1)
    assert f"{results.spent.cost_usd}" == "0.23"
    assert results.runs["state"].value_counts().to_dict() == {"not_started": 3, "ended": 1, "interrupted": 1}
    assert "Tools ran agents by themselves ($0.2000): this is in results.spent, but in no row." in warning


# Unknown costs ----------------------------------------------------------------------------------------------------------------------


def of_unknown_cost(tokens: Any = (10, 5)) -> lab.Agent:
    def answer(request: Any, index: int) -> Any:
        return say("end", tokens=tokens) if len(request.messages) > 1 else call("look", tokens=tokens)

    return lab.Agent(ScriptedProvider(answer), tools=[look], name="a")


@pytest.mark.parametrize("there", [False, True])
def test_missing_usage_fail_ends_the_experiment_at_the_first_unknown_cost(there: bool) -> None:
    study = lab.Experiment([of_unknown_cost()], ["x", "y"], repeats=15, budget=Budget(max_cost="0.01", missing_usage="fail"))
    with concurrent.futures.ThreadPoolExecutor(4) as executor:
        results, warning = results_and_warning(study, concurrency=8, executor=executor if there else None)
    why = "the cost of experiment#a/p1/default/1 is unknown, and the budget of the experiment has missing_usage='fail'"
    assert f"since {why}. To continue" in warning
    assert results.runs["state"].value_counts().to_dict() == {"not_started": 29, "interrupted": 1}
    assert set(results.runs["problem"]) == {why}
    assert results_and_warning(study)[0].runs["state"].value_counts().to_dict() == {"not_started": 29, "interrupted": 1}
    study.budget = Budget(max_cost="0.01")
    with pytest.warns(AgentlabWarning, match="max_cost of the experiment cannot be checked completely") as caught:
        assert set(go(study).runs["state"]) == {"ended"}
    assert len(caught) == 1
    assert results.spent.unknown_cost


def test_missing_usage_fail_checks_tokens_too_and_cost_only_if_limited() -> None:
    study = lab.Experiment([of_unknown_cost()], ["x"], budget=Budget(max_calls=9, missing_usage="fail"))
    assert go(study).runs["state"].to_list() == ["ended"]
    study = lab.Experiment([of_unknown_cost((None, None))], ["x"], budget=Budget(max_calls=9, missing_usage="fail"))
    assert "the usage of experiment#a/p1/default/1 is unknown" in results_and_warning(study)[1]


@pytest.mark.parametrize("policy", ["estimate", "charge_cap"])
def test_unreported_usage_is_estimated_as_in_a_run(policy: Any) -> None:
    budget = Budget(max_tokens=10**6, missing_usage=policy)
    alone = go(lab.Experiment([of_unknown_cost((None, None))], ["x"], [{"budget": Budget(missing_usage=policy)}]))
    study = lab.Experiment([of_unknown_cost((None, None))], ["x"], budget=budget)
    results = go(study)
    assert results.runs["total_tokens"].to_list() == alone.runs["total_tokens"].to_list()
    assert results.runs["total_tokens"].notna().all()
    assert not results.spent.unknown_tokens
    assert_same(go(study), results)


# Reports ----------------------------------------------------------------------------------------------------------------------------


def test_failed_runs_are_counted_and_reported_as_unsuccessful() -> None:
    def half(request: Any, index: int) -> Any:
        return ProviderStatusError("down", status=500) if int(request.messages[0].text) % 2 else script(request, index)

    study = lab.Experiment([lab.Agent(ScriptedProvider(half), tools=[look], name="a")], PROMPTS[:60])
    with pytest.warns(AgentlabWarning, match=r"30 of 60 runs failed; .*run\(retry=True\); until then they count as failures\."):
        results = go(study)
    assert repr(results) == "ExperimentResults('experiment', 60 runs: 30 ended, 30 failed (counted as failures))"


def test_runs_with_a_problem_outside_of_them_are_reported_apart_from_failed_ones() -> None:
    def half(request: Any, index: int) -> Any:
        if request.messages[0].text == "1":
            raise ProviderStatusError("down", status=500)
        return say("end")

    class Unusable(lab.Agent):
        def run(self, prompt: Any, **more: Any) -> Any:
            if prompt in "23" and "transport" in more:
                raise OSError("no such place")
            return super().run(prompt, **more)

    study = lab.Experiment([Unusable(ScriptedProvider(half), name="a")], ["1", "2", "3", "4"])
    with pytest.warns(AgentlabWarning) as caught:
        results = go(study)
    assert str(caught[0].message) == (
        "1 of 4 runs failed; the first one was experiment#a/p1/default/1: ProviderStatusError: down. Try again with "
        "run(retry=True); until then it counts as a failure. 2 of 4 runs failed; the first one was experiment#a/p2/default/1: "
        "OSError: no such place. Try again with run(); until then they are left out of the rates."
    )
    summary = results.summary().iloc[0]
    assert summary[["runs", "not_ended", "failed", "completion_rate"]].tolist() == [4, 2, 1, 0.5]


def test_the_runs_frame_marks_replays_and_a_mixture_is_reported(tmp_path: Path) -> None:
    from .test_experiment import serving_numbers

    with serving_numbers(iter(range(100))) as base:

        def study(**more: Any) -> lab.Experiment:
            agent = lab.Agent(lab.Provider("compatible", model="m", base_url=base, api_key="none"), name="a")
            return lab.Experiment([agent], ["x"], repeats=3, store=tmp_path / "r.db", **more)

        with lab.record(tmp_path / "rec"):
            recorded = go(lab.Experiment([study().grid.agents["a"]], ["x"], repeats=3))
        live = go(study(cells=[("a", "p1", "default", 1)]))
        warning = "2 runs are replays of recordings and 1 are live: the column `replayed`"
        with lab.replay(tmp_path / "rec"), pytest.warns(AgentlabWarning, match=warning):
            mixed = go(study())
    assert recorded.runs["replayed"].to_list() == live.runs["replayed"].to_list() * 3 == [False] * 3
    assert mixed.runs["replayed"].to_list() == [False, True, True]
    assert mixed.runs["recording_id"].notna().all()


def test_a_look_costs_the_documented_amount() -> None:
    """Check the script of these tests by independent arithmetic."""
    assert go(lab.Experiment([looking()], ["x"])).runs["cost_usd"].to_list() == [0.01 * STEPS]
    assert pd.isna(go(lab.Experiment([of_unknown_cost()], ["x"])).runs["cost_usd"][0])

"""`Budget(last_answer=…)`: one last answer without tools, within a share of the budget that is held back."""

from __future__ import annotations

import asyncio
import dataclasses
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from engine.builders import Slow, assert_is_whole, go, look
from hypothesis import given, settings
from hypothesis import strategies as st

import agentlab as lab
from agentlab import Budget, StopReason
from agentlab.engine.ask import _with_tool_choice
from agentlab.engine.plan import LAST_ANSWER, LIMIT_RAISED
from agentlab.engine.run_tree import differences
from agentlab.errors import LimitError
from agentlab.model.messages import ModelRequest
from agentlab.model.responses import ModelResponse
from agentlab.testing import ScriptedProvider, call, say

asked: list[ModelRequest] = []


def searching(tokens: tuple[int | None, int | None] = (10, 5), *, obeys: bool = True, cost: str | None = "0.01") -> Any:
    """A script that calls `look` until it is asked for its last answer."""
    asked.clear()

    def script(request: ModelRequest, index: int) -> ModelResponse:
        asked.append(request)
        is_last = request.parameters.tool_choice == "none"
        return (
            say("so far", tokens=tokens, cost=cost)
            if is_last and obeys
            else call("look", {"q": str(index)}, tokens=tokens, cost=cost)
        )

    return script


def run_of(budget: Budget, script: Any = None, **more: Any) -> lab.Run:
    model = more.pop("model", None) or ScriptedProvider(script or searching())
    return lab.Agent(model, tools=more.pop("tools", [look]), **more).run("go", budget=budget)


async def end_of(run: lab.Run) -> lab.RunResult:
    return await run


def done(run: lab.Run) -> lab.RunResult:
    result = go(end_of(run))
    assert_is_whole(run)
    return result


# When it is asked for ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("budget", "steps", "reason", "detail"),
    [
        (Budget(max_turns=4), 4, "turn_limit", "max_turns 4 of 4"),
        (Budget(max_calls=4), 4, "call_limit", "max_calls 4 of 4"),
        (Budget(max_tokens=100), 7, "token_budget", "max_tokens 105 of 100"),  # 80 are for work: 6 steps are 90
        (Budget(max_tokens=90), 6, "token_budget", "max_tokens 90 of 90"),  # 72: 5 steps are 75
        (Budget(max_cost=Decimal("0.10")), 9, "cost_budget", "max_cost $0.09 of $0.10"),
        (Budget(), 20, "turn_limit", "max_turns 20 of 20"),
        (Budget(max_tokens=90, max_turns=7), 6, "token_budget", "max_tokens 90 of 90"),  # the limit that came first
    ],
)
def test_a_limit_that_is_nearly_used_up_leaves_one_answer(budget: Budget, steps: int, reason: str, detail: str) -> None:
    run = run_of(with_more(budget, last_answer=0.2))
    result = done(run)
    assert (len(result.history), str(result.stop_reason), result.text) == (steps, reason, "so far")
    assert result.detail == f"Budget reached: {detail}, with one last answer."
    assert [step.last_answer for step in result.history] == [False] * (steps - 1) + [True]
    assert result.truncated and not result.terminated
    assert [request.parameters.tool_choice for request in asked] == [None] * (steps - 1) + ["none"]
    assert asked[-1].tools == asked[0].tools
    assert run.messages[-2].text == LAST_ANSWER
    frame = result.to_frame()
    assert frame["last_answer"].tolist() == [False] * (steps - 1) + [True]
    kinds = [type(event).__name__ for event in result.events]
    assert kinds.count("LastAnswerAsked") == 1


def test_a_message_after_a_last_answer_gives_the_tools_back() -> None:
    run = run_of(Budget(max_turns=4, last_answer=0.25))
    done(run)
    branch = run.fork(4, message="And in winter?", budget=Budget(max_turns=6))
    assert [message.text for message in branch.messages[-3:]] == ["so far", LIMIT_RAISED, "And in winter?"]
    assert differences(branch) == ('message "And in winter?"', "max_turns 6", "last_answer none held back")
    assert run.fork(3, message="Go on.").messages[-2].role == "tool"


def with_more(budget: Budget, **more: Any) -> Budget:

    return dataclasses.replace(budget, **more)


@pytest.mark.parametrize(
    ("budget", "tokens", "steps"),
    [
        pytest.param(Budget(max_tokens=100, last_answer=0.1), (70, 30), 1, id="one call used the reserve too"),
        pytest.param(Budget(max_tokens=100, last_answer=0.1), (60, 30), 2, id="exactly the reserve is left"),
        pytest.param(Budget(max_turns=1, last_answer=0.5), (10, 5), 1, id="of one step nothing is held back"),
        pytest.param(Budget(max_tokens=100), (60, 30), 2, id="without last_answer"),
    ],
)
def test_the_last_answer_fits_into_the_reserve_or_is_not_asked_for(budget: Budget, tokens: tuple[int, int], steps: int) -> None:
    result = done(run_of(budget, searching(tokens)))
    assert len(result.history) == steps
    assert result.history[-1].last_answer is (steps == 2 and budget.last_answer is not None)


def test_a_run_that_finishes_before_is_not_asked() -> None:
    result = done(run_of(Budget(max_turns=4, last_answer=0.2), [call("look"), "done"]))
    assert (result.stop_reason, result.text, result.history[-1].last_answer) == (StopReason.COMPLETED, "done", False)


def test_unknown_usage_holds_nothing_back() -> None:
    with pytest.warns(lab.AgentlabWarning, match="max_tokens"):
        result = done(run_of(Budget(max_tokens=100, max_turns=9, last_answer=0.2), searching((None, None))))
    assert (len(result.history), result.stop_reason) == (9, StopReason.TURN_LIMIT)
    assert result.history[-1].last_answer


def test_time_that_is_nearly_up_cuts_the_step_and_leaves_time_for_an_answer(fake_time: Any) -> None:
    run = run_of(Budget(timeout=10, last_answer=0.5), model=Slow(searching(), 2.0))
    result = done(run)
    assert (result.stop_reason, result.text) == (StopReason.TIMEOUT, "so far")
    assert [len(step.calls) for step in result.history] == [1, 1, 0, 1]
    assert 7 <= result.history.elapsed_s < 8


def test_a_last_answer_that_takes_too_long_is_cut_off(fake_time: Any) -> None:
    result = done(run_of(Budget(timeout=10, last_answer=0.1), model=Slow(searching(), 2.0)))
    assert (result.stop_reason, result.text) == (StopReason.TIMEOUT, "")
    assert result.history[-1].last_answer


def test_a_model_that_calls_tools_anyway_gets_none() -> None:
    run = run_of(Budget(max_turns=3, last_answer=0.2), searching(obeys=False))
    result = done(run)
    assert (len(result.history), result.stop_reason) == (3, StopReason.TURN_LIMIT)
    assert not result.history[-1].tool_results
    assert run.messages[-1].tool_results[0].error == "not_executed"


def test_errors_and_stops_keep_their_reasons() -> None:
    def script(request: ModelRequest, index: int) -> ModelResponse | Exception:
        return lab.errors.ProviderError("down") if request.parameters.tool_choice == "none" else call("look", {"q": str(index)})

    run = run_of(Budget(max_turns=3, last_answer=0.2), script)
    result = done(run)
    assert result.stop_reason is StopReason.ERROR
    assert run.next_actions[0].at == 2


def test_conditions_that_are_met_by_it_are_listed() -> None:
    run = run_of(Budget(max_turns=3, last_answer=0.2))
    run.limits.stop = lab.StepCountIs(3)
    result = done(run)
    assert result.stop_reason is StopReason.TURN_LIMIT
    assert [str(one) for one in result.conditions_met] == ["StepCountIs 3 of 3"]


def test_terminating_tools_and_continuations() -> None:
    result = done(
        run_of(Budget(max_turns=3, last_answer=0.2), terminating=["look2"], tools=[look, lab.tool(look.function, name="look2")])
    )
    assert (len(result.history), result.stop_reason, result.text) == (3, StopReason.TURN_LIMIT, "so far")

    def script(request: ModelRequest, index: int) -> ModelResponse:
        if index == 3:
            return say("the answer is ", finish=lab.FinishReason.MAX_TOKENS)
        return say("42.") if index == 4 else call("look", {"q": str(index)})

    result = done(run_of(Budget(max_calls=4, max_tokens=59, last_answer=0.5), script))
    assert (result.stop_reason, result.text) == (StopReason.TOKEN_BUDGET, "the answer is 42.")


# Limits raised meanwhile -------------------------------------------------------------------------------------------------------


def test_a_limit_raised_before_it_lets_the_run_continue() -> None:
    run = run_of(Budget(max_turns=3, last_answer=0.2))

    async def main() -> None:
        await run.step()
        await run.step()
        run.limits.max_turns = 5
        await run

    go(main())
    assert [step.last_answer for step in run.history] == [False] * 4 + [True]


def test_a_limit_raised_during_it_lets_the_run_continue() -> None:
    runs: list[lab.Run] = []
    inner = searching()

    def script(request: ModelRequest, index: int) -> ModelResponse:
        if index == 3:
            runs[0].limits.max_turns = 6
        answer: ModelResponse = inner(request, index)
        return answer

    runs.append(run_of(Budget(max_turns=3, last_answer=0.2), script))
    result = done(runs[0])
    assert [step.last_answer for step in result.history] == [False, False, True, False, False, True]
    assert [message.text for message in runs[0].messages if message.role == "system"] == [LAST_ANSWER, LIMIT_RAISED, LAST_ANSWER]
    assert result.stop_reason is StopReason.TURN_LIMIT


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 12), st.integers(1, 200), st.floats(0.05, 0.9), st.integers(1, 30))
def test_never_more_than_the_budget_and_one_call(turns: int, tokens: int, share: float, each: int) -> None:
    budget = Budget(max_turns=turns, max_tokens=tokens, last_answer=share)
    result = done(run_of(budget, searching((each, 1))))
    assert len(result.history) <= turns
    assert result.history.known_tokens < tokens + each + 1
    without = done(run_of(Budget(max_turns=turns, max_tokens=tokens), searching((each, 1))))
    assert len(result.history) <= len(without.history)
    assert result.history[-1].last_answer == (result.text == "so far")


# Branches, stores, sub-agents -------------------------------------------------------------------------------------------------


def test_the_next_action_continues_before_the_last_answer() -> None:
    run = run_of(Budget(max_turns=3, last_answer=0.2))
    done(run)
    action = run.next_actions[0]
    assert (action.at, dict(action.edits)) == (2, {"max_turns": 6})

    async def main() -> lab.RunResult:
        return await run.apply(action)

    result = go(main())
    assert [step.last_answer for step in result.history] == [False] * 5 + [True]
    assert LIMIT_RAISED not in [message.text for message in result.messages]


def test_a_fork_behind_it_needs_a_message() -> None:
    run = run_of(Budget(max_turns=3, last_answer=0.2))
    done(run)
    with pytest.raises(lab.errors.ConfigurationError, match="message"):
        run.fork(at=3, budget=Budget(max_turns=9))
    result = done(run.fork(at=3, budget=Budget(max_turns=9), message="Go on."))
    assert len(result.history) == 9


def test_a_store_keeps_it_and_resumes_before_it(tmp_path: Path) -> None:
    with lab.Store(tmp_path / "runs.db") as store:
        run = run_of(Budget(max_turns=3, last_answer=0.2), observers=[store])

        async def two() -> None:
            await run.step()
            await run.step()

        go(two())
        run_id = run.id
        store.close()
    with lab.Store(tmp_path / "runs.db") as store:
        agent = lab.Agent(ScriptedProvider(searching()), tools=[look], observers=[store])
        again = store.resume(run_id, agent)
        result = go(end_of(again))
        assert [step.last_answer for step in result.history] == [False, False, True]
        kept = store.load(run_id)
        assert [step.last_answer for step in kept.history] == [False, False, True]
        assert kept.limits.last_answer == 0.2
        assert store.frame("steps")["last_answer"].tolist() == [False, False, True]


def test_the_reserve_is_kept_from_sub_agents() -> None:
    child = lab.Agent(ScriptedProvider(searching()), tools=[look])
    boss = lab.Agent(
        ScriptedProvider([call("child", {"task": "x"}), "told"]), tools=[child.as_tool("child", budget=Budget(max_turns=None))]
    )
    run = boss.run("go", budget=Budget(max_tokens=200, last_answer=0.25))
    result = done(run)
    assert result.history[0].children[0].known_tokens == 135  # of 150 - 15
    assert result.history[-1].last_answer
    assert (result.stop_reason, result.text) == (StopReason.TOKEN_BUDGET, "told")


def test_a_sub_agent_may_give_a_last_answer_within_its_own_budget() -> None:
    child = lab.Agent(ScriptedProvider(searching()), tools=[look])
    boss = lab.Agent(
        ScriptedProvider([call("child", {"task": "x"}), "told"]),
        tools=[child.as_tool("child", budget=Budget(max_turns=3, last_answer=0.1))],
    )
    run = boss.run("go")
    done(run)
    assert run.history[0].tool_results[0].content.startswith("so far\n")
    assert "was cut off (turn_limit)" in run.history[0].tool_results[0].content


# Bad input ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0, 1, 1.5, -0.1, True, "10%", float("nan")])
def test_a_share_that_is_none_is_refused(share: Any) -> None:
    with pytest.raises(LimitError, match=r"last_answer=.*such as 0\.15"):
        Budget(last_answer=share)


def test_providers_that_cannot_forbid_tools_get_the_tools_as_before() -> None:

    spec = look.spec
    for name, choice in (
        ("bedrock", None),
        ("openai", "none"),
        ("anthropic", "none"),
        ("gemini", "none"),
        ("compatible", "none"),
    ):
        provider = lab.Provider(name, model="m", **({"base_url": "http://localhost:1"} if name == "compatible" else {}))
        agent = lab.Agent(provider, tools=[look])
        run = agent.run("x")
        request = _with_tool_choice(run.stepper.context, ModelRequest((lab.Message("user", "x"),), "", (spec,)), "none")
        assert (request.parameters.tool_choice, request.tools) == (choice, (spec,)), name


@pytest.mark.parametrize("fits", [True, False])
def test_a_typed_answer_may_be_the_last_one(fits: bool) -> None:
    def script(request: ModelRequest, index: int) -> ModelResponse:
        asked.append(request)
        if request.parameters.tool_choice == "final_answer":
            return call("final_answer", {"answer": 7 if fits else "seven"})
        return call("look", {"q": str(index)})

    asked.clear()
    run = run_of(Budget(max_turns=3, last_answer=0.2), script, output=int)
    result = done(run)
    assert [request.parameters.tool_choice for request in asked] == [None, None, "final_answer"]
    assert (result.output, len(result.history)) == (7 if fits else None, 3)
    assert result.stop_reason == ("terminating_tool" if fits else "turn_limit")
    assert run.to_frame()["last_answer"].tolist() == [False, False, True]


def test_asyncio_is_free_afterwards() -> None:
    async def main() -> None:
        await run_of(Budget(max_turns=3, last_answer=0.2))
        assert asyncio.all_tasks() == {asyncio.current_task()}

    go(main())

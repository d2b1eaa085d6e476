"""Limits across nested runs: the limits of the outermost run bound every run below it, however the runs were made."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

import agentlab as lab
from agentlab import Budget, StopReason, errors
from agentlab.engine import call_context
from agentlab.model.finish_reasons import FinishReason
from agentlab.model.messages import ModelRequest, ToolCall
from agentlab.model.responses import ModelResponse
from agentlab.testing import ScriptedProvider, say

from .builders import Slow, assert_is_whole, call_tool, go, look, looping, until

TOO_MANY = 300
"""The number of requests after which a recursion counts as endless; the model then fails, so that the test ends."""


class Asked:
    """An endless model: each answer calls `me` this many times. `count` is the number of requests."""

    name, model = "recursive", "script"

    def __init__(self, wide: int = 1, delay_s: float = 0.0) -> None:
        self.wide, self.delay_s, self.count = wide, delay_s, 0
        self.scripted = ScriptedProvider(self._answer)
        self._lock = threading.Lock()

    def _answer(self, request: ModelRequest, index: int) -> ModelResponse:
        calls = [ToolCall(f"c{index}.{place}", "me", '{"task": "x"}') for place in range(self.wide)]
        return say(finish=FinishReason.TOOL_CALLS, calls=calls, tokens=(10, 5), cost="0.01")

    async def respond(self, request: ModelRequest, context: Any) -> ModelResponse:
        with self._lock:
            self.count += 1
        if self.count > TOO_MANY:
            raise RuntimeError("asked without an end")
        await asyncio.sleep(self.delay_s)
        return await self.scripted.respond(request, context)


def with_tool(agent: lab.Agent, tool: lab.Tool) -> lab.Agent:
    """Set this as the agent's only tool, in place."""
    agent.tools, agent.tool_specs = {tool.name: tool}, (tool.spec,)
    return agent


def of_itself(model: Asked, **more: Any) -> lab.Agent:
    agent = lab.Agent(model, **more)
    return with_tool(agent, agent.as_tool("me"))


def of_another(model: Asked, **more: Any) -> lab.Agent:
    one, other = lab.Agent(model, **more), lab.Agent(model, **more)
    with_tool(other, one.as_tool("me"))
    return with_tool(one, other.as_tool("me"))


def by_code(model: Asked, **more: Any) -> lab.Agent:
    async def me(task: str) -> str:
        return (await agent.run(task)).detail

    agent = lab.Agent(model, tools=[me], **more)
    return agent


def by_code_on_a_thread(model: Asked, **more: Any) -> lab.Agent:
    def me(task: str) -> str:
        async def main() -> lab.RunResult:
            return await agent.run(task)

        return asyncio.run(main()).detail

    agent = lab.Agent(model, tools=[me], **more)
    return agent


def in_lockstep(model: Asked, **more: Any) -> lab.Agent:
    async def me(task: str) -> str:
        return str([result.detail for result in await lab.Lockstep([agent.run(task), agent.run(task)])])

    agent = lab.Agent(model, tools=[me], **more)
    return agent


SHAPES = (of_itself, of_another, by_code, by_code_on_a_thread, in_lockstep)
Make = Callable[..., lab.Agent]


def family_of(run: lab.Run) -> list[lab.Run]:
    return [run, *[below for child in run.children for below in family_of(child)]]


def ended(run: lab.Run) -> lab.RunResult:
    async def main() -> lab.RunResult:
        return await run

    return go(main())


def tool_answers(run: lab.Run) -> str:
    """The answers of the tools of a run and of all runs below it."""
    return "\n".join([result.content for each in family_of(run) for step in each.history for result in step.tool_results])


# Depth and calls ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wide", [1, 4])
@pytest.mark.parametrize("make", SHAPES)
def test_an_agent_that_is_its_own_tool_ends(make: Make, wide: int) -> None:
    """It ends when the calls of its steps and of the runs below reach the limit; its own steps are not cut short."""
    model = Asked(wide)
    run = make(model).run("go", budget=Budget(max_turns=3))
    result = ended(run)
    assert (result.stop_reason, len(result.history)) == (StopReason.TURN_LIMIT, 3)
    assert 3 < model.count <= 3 + 3 * call_context.CALLS_BELOW_PER_STEP
    for each in family_of(run):
        assert_is_whole(each)


@pytest.mark.parametrize("make", SHAPES)
@pytest.mark.parametrize(("deep", "asked"), [(0, 1), (1, 2), (3, 4), (5, 6)])
def test_runs_are_nested_up_to_the_maximum_depth(make: Make, deep: int, asked: int) -> None:
    """One step each: one request at each depth, two in lockstep. A deeper run is an error of the tool, without a request."""
    model = Asked()
    run = make(model, max_depth=deep).run("go", budget=Budget(max_turns=1))
    ended(run)
    most = 1 + call_context.CALLS_BELOW_PER_STEP
    assert model.count == (min(2**asked - 1, most) if make is in_lockstep else asked)
    assert max(each.stepper.context.depth for each in family_of(run)) == (deep if make in (of_itself, of_another) else 0)
    if make in (of_itself, of_another):
        *_, deepest = family_of(run)
        (refused,) = deepest.history[0].tool_results
        assert refused.is_error
        assert refused.content == (
            f"me raised ConfigurationError: Sub-agents may be nested {deep} deep; this one would be nested {deep + 1} deep and was "
            f"not started. Do its task without it. A person may allow more: Agent(…, max_depth={deep + 1}) of the outermost agent."
        )
        assert deepest.children == ()


def test_without_a_depth_limit_the_call_limit_bounds_the_nesting() -> None:
    model = Asked()
    run = of_itself(model, max_depth=None).run("go", budget=Budget(max_turns=2))
    ended(run)
    assert model.count == 2 + 2 * call_context.CALLS_BELOW_PER_STEP
    assert max(each.stepper.context.depth for each in family_of(run)) == 2 * call_context.CALLS_BELOW_PER_STEP


def test_the_depth_limit_of_the_outermost_agent_applies() -> None:
    model = Asked()
    inner = of_itself(model, max_depth=0)
    ended(with_tool(lab.Agent(model, max_depth=2), inner.as_tool("me")).run("go", budget=Budget(max_turns=1)))
    assert model.count == 3


@pytest.mark.parametrize("wrong", [-1, True, 1.5, "3"])
def test_an_invalid_depth_is_an_error(wrong: Any) -> None:
    with pytest.raises(errors.LimitError, match=f"max_depth={wrong!r}: pass a whole number, 0 for no sub-agents"):
        lab.Agent(Asked(), max_depth=wrong)


def test_a_branch_made_by_a_tool_counts_like_any_run() -> None:
    model = Asked()

    async def me(task: str) -> str:
        return (await latest.fork(0)).detail

    agent = lab.Agent(model, tools=[me])
    latest = agent.run("go", budget=Budget(max_turns=1))
    assert "may be nested 3 deep" not in ended(latest.fork(0)).history[0].tool_results[0].content
    assert model.count == 4
    assert latest.fork(0).stepper.context.depth == 0


def test_at_the_call_limit_the_reason_is_reported_and_nothing_more_starts() -> None:
    model = Asked(5)
    run = of_itself(model, max_depth=1).run("go", budget=Budget(max_turns=5))
    ended(run)
    assert (model.count, len(run.children)) == (105, 20)
    why = (
        "The sub-agents of a run with max_turns=5 may make 100 model calls together (20 per step), and have made 100. "
        "Budget(max_calls=…) of the outermost run allows more."
    )
    assert [result.content for result in run.history[-1].tool_results] == [
        f"me raised ConfigurationError: Not started: {why}"
    ] * 5


def test_max_calls_set_by_the_user_replaces_the_default_bound() -> None:
    model = Asked(4)
    ended(of_itself(model).run("go", budget=Budget(max_turns=3, max_calls=200)))
    assert model.count == 200


def test_a_run_cut_short_names_the_limit_that_ended_it() -> None:
    run = of_itself(Asked(1), max_depth=None).run("go", budget=Budget(max_turns=2))
    ended(run)
    by_family = [each.result for each in family_of(run) if each.result and "(20 per step)" in each.result.detail]
    assert by_family
    assert {result.stop_reason for result in by_family} == {StopReason.CALL_LIMIT}
    with pytest.raises(errors.CallLimitReached, match=r"Budget\(max_calls=…\) of the outermost run allows more"):
        by_family[0].raise_for_stop()


# Each kind of limit ---------------------------------------------------------------------------------------------------------------

KINDS: dict[str, tuple[Budget, int]] = {
    "calls": (Budget(max_turns=50, max_calls=9), 9),
    "tokens": (Budget(max_turns=50, max_tokens=15 * 9 - 1), 9),
    "cost": (Budget(max_turns=50, max_cost=Decimal("0.09")), 9),
}


@pytest.mark.parametrize("make", [of_itself, of_another])
@pytest.mark.parametrize(("budget", "calls"), KINDS.values(), ids=KINDS.keys())
def test_the_outermost_limits_apply_to_all_runs(make: Make, budget: Budget, calls: int) -> None:
    model = Asked(2)
    run = make(model).run("go", budget=budget)
    result = ended(run)
    assert model.count == calls == result.history.calls


@pytest.mark.parametrize("make", [by_code, by_code_on_a_thread])
@pytest.mark.parametrize(("budget", "calls"), KINDS.values(), ids=KINDS.keys())
def test_runs_made_by_a_tool_itself_are_bounded_too(make: Make, budget: Budget, calls: int) -> None:
    """Their usage is in no history of the outermost run, so its own steps continue until its own usage reaches the limit."""
    model = Asked()
    run = make(model).run("go", budget=budget)
    result = ended(run)
    assert result.history.calls == calls
    assert model.count == calls + (calls - 1)
    assert (
        f"Budget of the outermost run reached: max_{'cost' if budget.max_cost else 'tokens' if budget.max_tokens else 'calls'}"
        in (tool_answers(run))
    )


@pytest.mark.usefixtures("fake_time")
@pytest.mark.parametrize("make", SHAPES[:3])
def test_the_time_limit_of_the_outermost_run_applies_to_all(make: Make) -> None:
    async def main() -> None:
        model = Asked(delay_s=0.1)
        run = make(model).run("go", budget=Budget(max_turns=None, timeout=2))
        result = await run
        assert result.stop_reason is StopReason.TIMEOUT
        assert model.count == 20
        assert run.timeline.clock.elapsed_s() == pytest.approx(2, abs=0.1)
        await asyncio.sleep(5)
        assert model.count == 20

    go(main())


@pytest.mark.parametrize(("own", "steps"), [(2, 2), (7, 4), (None, 4)], ids=["lower", "higher", "none"])
def test_a_nested_run_takes_no_more_steps_than_the_outermost_allows(own: int | None, steps: int) -> None:
    tool = looping(budget=Budget(max_turns=own)).as_tool("me")
    run = with_tool(lab.Agent(Asked()), tool).run("go", budget=Budget(max_turns=4))
    ended(run)
    first = run.children[0]
    assert first.result is not None
    assert (len(first.history), first.result.detail) == (steps, f"Budget reached: max_turns {steps} of {steps}.")
    assert "Left of its budget: 0 turns." in tool_answers(run)
    run = with_tool(lab.Agent(Asked()), tool).run("go", budget=Budget(max_turns=None, max_tokens=300))
    ended(run)
    assert len(run.children[0].history) == (own or 19)


# At the same time -----------------------------------------------------------------------------------------------------------------


def at_once(many: int) -> tuple[lab.Agent, Slow]:
    """An agent whose tool runs this many sub-agents at the same time, and their model."""
    model = Slow(
        lambda request, index: say(finish=FinishReason.TOOL_CALLS, calls=[ToolCall(f"c{index}", "look", "{}")], cost="0.01")
    )
    worker = lab.Agent(model, tools=[look]).as_tool("worker")

    async def me(task: str) -> list[str]:
        return list(await asyncio.gather(*[worker.function(task=f"{task} {place}") for place in range(many)]))

    return lab.Agent(Asked(), tools=[me]), model


@pytest.mark.parametrize(
    "budget",
    [Budget(max_calls=31), Budget(max_tokens=15 * 31), Budget(max_cost=Decimal("0.31"))],
    ids=["calls", "tokens", "cost"],
)
def test_concurrent_sub_agents_exceed_a_limit_by_at_most_one_call_each(budget: Budget) -> None:
    agent, model = at_once(8)
    run = agent.run("go", budget=budget)
    result = ended(run)
    assert 31 <= model.asked + 1 <= 31 + 8
    assert result.history.calls == model.asked + 1
    assert len({use.handle for use in result.history[0].children}) == 8


def test_the_outermost_limits_can_be_edited_while_a_nested_run_works() -> None:
    async def main(edit: dict[str, Any], reason: StopReason) -> None:
        deep = lab.Agent(
            Slow(lambda request, index: say(finish=FinishReason.TOOL_CALLS, calls=[ToolCall("c", "look", "{}")]), 0.002)
        )
        with_tool(deep, lab.tool(look.function))
        middle = with_tool(lab.Agent(Asked()), deep.as_tool("me", budget=Budget(max_turns=None)))
        run = with_tool(lab.Agent(Asked()), middle.as_tool("me")).run("go", budget=Budget(max_turns=1_000))
        task = asyncio.ensure_future(run.step())
        await until(lambda: run.children and run.children[0].children and len(run.children[0].children[0].history) >= 3)
        run.limits.edit(**edit)
        await until(lambda: run.children[0].children[0].result is not None)
        at_work = run.children[0].children[0].result
        assert at_work is not None
        assert at_work.stop_reason is reason
        run.cancel()
        await task

    for edit, reason in (
        ({"max_turns": 2}, StopReason.TURN_LIMIT),
        ({"max_calls": 4}, StopReason.CALL_LIMIT),
        ({"max_tokens": 60}, StopReason.TOKEN_BUDGET),
        ({"timeout": 0.001}, StopReason.TIMEOUT),
    ):
        go(main(edit, reason))


def test_a_run_on_a_thread_ends_with_the_outermost_one() -> None:
    model, held, going = Asked(), threading.Event(), threading.Event()

    def me(task: str) -> str:
        if len(results) < 1:
            results.append(None)

            async def main() -> lab.RunResult:
                run = agent.run(task)
                await run.step()
                return await run

            results[0] = asyncio.run(main())
            return ""
        going.set()
        held.wait(60)
        return ""

    results: list[lab.RunResult | None] = []
    agent = lab.Agent(model, tools=[me])

    async def main() -> None:
        run = agent.run("go", budget=Budget(max_turns=50))
        task = asyncio.ensure_future(run.step())
        await until(going.is_set)
        run.cancel()
        await task
        held.set()
        await until(lambda: results[0] is not None)
        below = results[0]
        assert below is not None
        assert (below.stop_reason, below.detail) == (StopReason.CANCELLED, "Cancelled with the outermost run.")
        assert model.count == 2

    go(main())


def test_nested_limits_apply_in_an_experiment_too() -> None:
    model = Asked(3)
    results = go(lab.Experiment({"me": of_itself(model)}, ["go"], [{"budget": Budget(max_turns=2)}]).run(progress=False))
    assert results.runs["stop_reason"].to_list() == ["turn_limit"]
    assert model.count == 2 + 2 * call_context.CALLS_BELOW_PER_STEP


def test_outside_a_run_a_tool_is_at_depth_one() -> None:
    assert (
        "came to its end"
        in call_tool(lab.Agent(ScriptedProvider(["Paris."]), max_depth=0).as_tool("ask"), '{"task": "?"}').content
    )

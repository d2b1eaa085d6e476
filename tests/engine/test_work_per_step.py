"""A step costs the same in a long run as in a short one, and what does not change from step to step is kept once."""

import asyncio
from collections.abc import Callable

import pytest
from measured_work import calls_in

from agentlab import Agent, Budget, FinishReasonIs, HasToolCall, RunResult, StepCountIs
from agentlab.testing import ScriptedProvider, call, say


def run_of(steps: int) -> Callable[[], RunResult]:
    """A run of this many steps with a tool call, and one for the answer."""

    async def look_up(word: str) -> str:
        """Look a word up."""
        return word

    script = [
        *[call("look_up", {"word": "a"}, id=f"call_{number}", cost="0.01") for number in range(steps)],
        say("Done.", cost="0.01"),
    ]
    agent = Agent(ScriptedProvider(script), tools=[look_up], budget=Budget(max_turns=steps + 1, max_tokens=10**9, max_cost=10**6))
    run = agent.run(
        "?", stop=StepCountIs(steps + 1) | HasToolCall("look_up", "other") & StepCountIs(steps + 1) | FinishReasonIs("length")
    )

    async def result() -> RunResult:
        return await run

    return lambda: asyncio.run(result())


@pytest.mark.filterwarnings("ignore:.* can never be met")  # on purpose
def test_a_step_makes_as_many_calls_in_a_long_run_as_in_a_short_one() -> None:
    """The least of several counts: a first one includes imports, and the event loop's turns differ a little."""
    ten, twenty, hundred = (min(calls_in(run_of(steps)) for _ in range(4)) for steps in (10, 20, 100))
    assert hundred - ten <= 9 * (twenty - ten) * 1.02


@pytest.mark.filterwarnings("ignore:.* can never be met")  # on purpose
def test_what_is_left_and_a_reading_that_stays_are_kept_once() -> None:
    result = run_of(3)()
    first, second = result.history[0], result.history[1]
    started = [event for event in result.events if type(event).__name__ == "StepStarted"]
    assert started[1].budget_remaining is first.remaining  # type: ignore[attr-defined]
    assert first.readings is not None and second.readings is not None
    assert list(first.readings.leaves())[-1] is list(second.readings.leaves())[-1]
    assert result.messages[2].tool_results is first.tool_results

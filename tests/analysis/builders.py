"""Random runs, conditions and budgets for the tests of this folder. The model is the package's ScriptedProvider."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

import agentlab as lab
from agentlab import Budget, Custom, FinishReasonIs, HasToolCall, MaxCost, MaxTokensUsed, Off, StepCountIs
from agentlab.errors import AgentlabWarning, ProviderConnectionError
from agentlab.limits.combinators import StopCondition
from agentlab.limits.reading import Reading
from agentlab.model.finish_reasons import FinishReason
from agentlab.model.messages import ModelRequest, ToolCall
from agentlab.records.history import RunHistory
from agentlab.testing import Said, ScriptedProvider, call, say

UNBOUNDED = Budget(max_turns=None, max_tokens=10**9)


def look(key: str = "a") -> str:
    """Look something up."""
    return f"value of {key}"


def finalize(answer: str = "") -> str:
    """Submit the answer."""
    return answer


def halt() -> lab.Stop:
    """Ask to end the run."""
    return lab.Stop("enough", "halted")


def fail() -> str:
    """Always fail."""
    raise ValueError("it is broken")


TOOLS = [lab.tool(each) for each in (look, finalize, halt, fail)]
"""Made once: there are thousands of agents here, and building a tool's schema takes longer than one of these steps."""


def agent(script: Sequence[Said]) -> lab.Agent:
    """Return an agent that gives these responses in order."""

    def respond(request: ModelRequest, number: int) -> Said:
        return script[number - 1] if number <= len(script) else say("the end", tokens=(3, 2), cost="0.001")

    return lab.Agent(ScriptedProvider(respond), tools=TOOLS)


def run(script: Sequence[Said], stop: Any = None, budget: Budget = UNBOUNDED, **more: Any) -> lab.RunResult:
    """Run to the end."""

    async def main() -> lab.RunResult:
        return await agent(script).run("go", stop=stop, budget=budget, **more)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AgentlabWarning)
        return asyncio.run(main())


# Custom conditions -----------------------------------------------------------------------------------------------------------


def newest_calls_a_tool(history: RunHistory) -> bool:
    """Met at some steps and not at others: it does not latch."""
    return bool(history[-1].tool_calls)


@dataclass(frozen=True, slots=True)
class RaisesFrom:
    """A function of the history that raises from a given step on and returns False before it."""

    step: int
    __name__ = "raises"

    def __call__(self, history: RunHistory) -> bool:
        """Return False or raise."""
        if len(history) >= self.step:
            raise RuntimeError(f"no more than {self.step}")
        return False


async def raises_later(history: RunHistory) -> bool:
    """An async predicate that raises."""
    await asyncio.sleep(0)
    if len(history) >= 2:
        raise RuntimeError("no more than two")
    return False


def raises_without_text(history: RunHistory) -> bool:
    """Raises on a step without text, so that it answers differently for a step that was cut off."""
    if not history[-1].text and len(history[-1].calls) < 2:
        raise RuntimeError("no text")
    return False


def odd(history: RunHistory) -> bool:
    """Met at every second step."""
    return len(history) % 2 == 1


async def even(history: RunHistory) -> bool:
    """An async predicate."""
    await asyncio.sleep(0)
    return len(history) % 2 == 0


class Answers:
    """A sync function that returns an awaitable, so that its signature does not show that it is async."""

    def __call__(self, history: RunHistory) -> Any:
        """Return an awaitable."""
        return even(history)


class LastUsed(StopCondition):
    """A custom condition with three answers: unknown if the usage of the last step is unknown."""

    def read(self, history: RunHistory) -> Reading:
        """True if the last step used more than twenty tokens."""
        used = history[-1].usage.total_tokens
        return Reading("LastUsed", used, 20, None if used is None else used > 20)


@dataclass(frozen=True, slots=True)
class Fixed(StopCondition):
    """A condition with a fixed answer."""

    name: str
    met: bool | None

    def read(self, history: RunHistory) -> Reading:
        """Return the fixed answer."""
        return Reading(self.name, None, 1, self.met)


# Strategies ------------------------------------------------------------------------------------------------------------------

amounts = st.one_of(st.none(), st.integers(0, 40))
tokens = st.one_of(st.tuples(st.integers(0, 30), st.integers(0, 30)), st.tuples(amounts, amounts))
costs = st.sampled_from([None, "0.001", "0.003", "0.01", "0.0000123", "0"])
names = st.sampled_from(["look", "finalize", "halt", "fail", "nobody", "look, finalize"])
ENDS = [
    FinishReason.END_TURN,
    FinishReason.MAX_TOKENS,
    FinishReason.PAUSED,
    FinishReason.CONTENT_FILTERED,
    FinishReason.STOP_SEQUENCE,
]


@st.composite
def several_calls(draw: st.DrawFn) -> Said:
    asked = draw(st.lists(names, min_size=2, max_size=3))
    calls = [ToolCall(f"c{place}", name, "{}") for place, name in enumerate(asked)]
    return say("", finish=FinishReason.TOOL_CALLS, tokens=draw(tokens), cost=draw(costs), calls=calls)


tool_calls = st.builds(lambda name, used, cost: call(name, {}, tokens=used, cost=cost), names, tokens, costs)
texts = st.builds(
    lambda end, used, cost: say("some words", finish=end, tokens=used, cost=cost),
    st.sampled_from([*ENDS[1:3], FinishReason.MAX_TOKENS]),
    tokens,
    costs,
)
endings = st.builds(
    lambda end, used, cost: say("words", finish=end, tokens=used, cost=cost), st.sampled_from(ENDS), tokens, costs
)
broken = st.just(ProviderConnectionError("no connection"))
scripts = st.lists(
    st.one_of(tool_calls, tool_calls, tool_calls, tool_calls, several_calls(), texts, texts, endings, broken), max_size=9
)

built_in = st.one_of(
    st.builds(StepCountIs, st.integers(1, 8)),
    st.builds(MaxTokensUsed, st.integers(1, 200)),
    st.builds(MaxCost, st.sampled_from(["0.001", "0.002", "0.003", "0.004", "0.01", "0.013", "0.02", "0.0000123", "0.0000246"])),
    st.builds(HasToolCall, names),
    st.builds(HasToolCall, names, names),
    st.builds(FinishReasonIs, st.sampled_from([*ENDS, FinishReason.TOOL_CALLS, "nothing"])),
)
OWN = [
    Custom(newest_calls_a_tool),
    *(Custom(RaisesFrom(step)) for step in (1, 2, 3, 5)),
    Custom(raises_later),
    Custom(raises_without_text),
    lab.MaxToolCalls(3),
    lab.MaxToolCalls(2, "look"),
    lab.MaxOutputTokens(25),
    lab.Repeats(2),
    Custom(even),
    Custom(Answers(), "answers"),
    LastUsed(),
    Fixed("yes", True),
    Fixed("no", False),
    Fixed("open", None),
]


def trees(leaves: st.SearchStrategy[StopCondition]) -> st.SearchStrategy[StopCondition]:
    """Conditions combined from these leaves."""
    return st.recursive(
        leaves,
        lambda below: st.one_of(
            st.builds(lambda a, b: a | b, below, below),
            st.builds(lambda a, b: a & b, below, below),
            st.builds(lambda a: ~a, below),
            st.builds(Off, below),
        ),
        max_leaves=5,
    )


any_tree = trees(st.one_of(built_in, built_in, built_in, st.sampled_from(OWN)))
built_in_tree = trees(built_in)
limit = st.one_of(st.none(), st.none(), st.integers(1, 8))
budgets = st.builds(
    lambda turns, calls, used, cost: Budget(max_turns=turns, max_calls=calls, max_tokens=used, max_cost=cost),
    limit,
    limit,
    st.one_of(st.none(), st.none(), st.integers(1, 200)),
    st.one_of(st.none(), st.none(), st.sampled_from([Decimal("0.001"), Decimal("0.004"), Decimal("0.02")])),
)

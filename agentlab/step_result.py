"""What happened in one step: what its conditions read, the decision, the model calls, and what sub-agents used.

All values are frozen; times are seconds, money is US dollars.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from agentlab.amounts import as_set, exactly, read_of
from agentlab.redaction import shown_without_keys, without_keys
from agentlab.shown import Shown
from agentlab.types import (
    JSON,
    Cost,
    FinishReason,
    Hole,
    ModelResponse,
    StopReason,
    TerminationSignal,
    ToolCall,
    ToolResult,
    Usage,
    moved,
)

if TYPE_CHECKING:
    from agentlab.settings import RunSettings

# Readings and decisions --------------------------------------------------------------------------------------------------------

Scalar: TypeAlias = int | float | Decimal | str | bool | None


@shown_without_keys
@dataclass(frozen=True, slots=True)
class Reading(Shown):
    """What a condition read after one step: its value, its limit, and whether it was met.

    `value` None means unknown (usage that was not reported). `met` None means undecided: a value is unknown, or an async condition was
    not awaited since the others had decided. A combination has `children` and no value. `goal` marks a condition on what the agent
    itself did (it called `finalize`), in contrast to one that cuts it off. A condition that is turned off keeps its values, has `met`
    None, and is the child of a reading named `Off`.

    Example:
        >>> reading = lab.StepCountIs(8).read(result.history)
        >>> reading.value, reading.limit, reading.met
        (4, 8, False)
        >>> str(reading)
        'StepCountIs 4 of 8'
    """

    name: str
    value: Scalar = None
    limit: Scalar = None
    met: bool | None = None
    children: tuple[Reading, ...] = ()
    goal: bool = False

    def leaves(self) -> Iterator[Reading]:
        """Yield the readings of the single conditions, in the order they were written.

        Example:
            >>> reading = (lab.StepCountIs(8) | lab.HasToolCall("finalize")).read(result.history)
            >>> [(one.name, one.met) for one in reading.leaves()]
            [('StepCountIs', False), ('HasToolCall', True)]
        """
        if not self.children:
            yield self
        for child in self.children:
            yield from child.leaves()

    def deciding(self) -> Iterator[Reading]:
        """Yield the readings that made this one met; none if it is not met.

        Example:
            >>> reading = (lab.StepCountIs(4) | lab.MaxCost(1)).read(result.history)
            >>> [str(one) for one in reading.deciding()]
            ['StepCountIs 4 of 4']
        """
        if not self.met:
            return
        if not self.children:
            yield self
            return
        if self.name == "Not":
            yield self.that_counts() or self
            return
        for child in self.children:
            yield from child.deciding()

    def without_answer(self) -> Reading:
        """Return this reading with its values and without `met`, as for a condition that is turned off."""
        return replace(self, met=None, children=tuple(child.without_answer() for child in self.children))

    def that_counts(self) -> Reading | None:
        """Return this reading without the parts that are turned off; None if all are."""
        if not self.children:
            return self
        kept = () if self.name == "Off" else tuple(child for each in self.children if (child := each.that_counts()) is not None)
        if not kept:
            return None
        unchanged = len(kept) == len(self.children) and all(map(operator.is_, kept, self.children))
        return self if unchanged else replace(self, children=kept)

    def __str__(self) -> str:
        return without_keys(self._text())

    def _text(self) -> str:
        if self.name == "Not" and self.children:
            return f"not {self.children[0]._text()}"
        if self.name == "Off" and self.children:
            return f"{self.children[0]._text()} (off)"
        if self.children:
            return f"{self.name}({', '.join(child._text() for child in self.children)})"
        if self.goal:
            return f"{self.name}({self.limit}): {self.value} call{'s' * (self.value != 1)}"
        if self.value is None and self.met:  # the known part is enough
            return f"{self.name} at least {as_set(self.name, self.limit)}, of which not all is known"
        return f"{self.name} {read_of(self.name, self.value, self.limit)}"


class Action(StrEnum):
    """What the run does after a response.

    Example:
        >>> [step.decision.action.value for step in result.history]
        ['execute_tools', 'execute_tools', 'execute_tools', 'execute_tools']
    """

    EXECUTE_TOOLS = "execute_tools"
    ASK_AGAIN = "ask_again"
    CONTINUE_OUTPUT = "continue_output"
    REPAIR_TOOL_CALL = "repair_tool_call"
    RESUME = "resume"
    NUDGE = "nudge"
    COMPLETE = "complete"
    ABORT = "abort"


@shown_without_keys
@dataclass(frozen=True, slots=True)
class Decision(Shown):
    """What the run does after a response, and the reason in one sentence. `stop_reason` is set if the action ends the run; `suggestion`
    is what a person can do about it: `retry`, `modify_prompt`, `increase_budget`, `stop`, or None.

    Example:
        >>> [step.decision.reason for step in (await brief.run("?")).history]
        ['The model ended its turn.']
    """

    action: Action
    reason: str
    stop_reason: StopReason | None = None
    suggestion: str | None = None
    metadata: Mapping[str, JSON] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Remaining(Shown):
    """What is left of each limit of the budget. None: there is no limit, or the usage is unknown; the history's `known_tokens` and
    `known_cost_usd` are then lower bounds."""

    turns: int | None = None
    calls: int | None = None
    tokens: int | None = None
    cost_usd: Decimal | None = None
    time_s: float | None = None


# Steps ---------------------------------------------------------------------------------------------------------------------

N = TypeVar("N", int, Decimal)


@dataclass(frozen=True, slots=True)
class ModelCall(Shown):
    """One round trip to the model.

    `index` counts the run's calls from 1. `usage` counts against the budget; its `source` says whether the provider reported it.
    `started_s` is the time since the run's first step, `retries` the number of failed attempts before this answer. `used` is False if
    a middleware discarded the answer, or if it lost a piece and was requested again: it was paid for, but is not part of the step's
    text. `decision` led to another call in the same step; the decision after the last call is the step's.
    """

    index: int
    response: ModelResponse
    usage: Usage
    cost: Cost
    started_s: float
    duration_s: float
    requested_cap: int | None = None
    retries: int = 0
    used: bool = True
    decision: Decision | None = None


@shown_without_keys
@dataclass(frozen=True, slots=True)
class Seam:
    """The place in the text of a step where the text of a further call begins.

    `call` is the `index` of that call and `place` the number of characters of the step's text before it. `dropped` is the text that
    was left out there: a repetition, or white space that a prefilled answer may not end with. Nothing is ever added.
    """

    call: int
    place: int
    dropped: str = ""

    def __str__(self) -> str:
        place = f"Call {self.call} continues at character {self.place:,}"
        if not self.dropped:
            return f"{place}."
        what = f"{'blank' if self.dropped.isspace() else 'repeated'} character{'s' * (len(self.dropped) != 1)}"
        return without_keys(f"{place}: dropped {len(self.dropped):,} {what}: {self.dropped!r}")


@shown_without_keys
@dataclass(frozen=True, slots=True)
class ChildUse:
    """What a sub-agent's run used within one step of its caller, its own sub-agents included.

    `handle` is the name by which the model refers to it (`research-1`), `call_id` the tool call that started it, `tool` the name of
    that tool. If it continues an earlier run, only the new part counts. `known_*` are sums of the known parts, lower bounds.
    `stop_reason` is None if it had not ended when the step was interrupted. `cut_off` is True if it belongs to an earlier attempt at
    the step, which ended with its process: the step was repeated, and the attempt was paid for.
    """

    run_id: str
    call_id: str
    tool: str
    handle: str
    stop_reason: StopReason | None
    steps: int
    calls: int
    usage: Usage
    cost: Cost
    known_tokens: int
    known_cost_usd: Decimal
    cut_off: bool = False


@shown_without_keys
@dataclass(frozen=True, slots=True, repr=False)
class StepResult(Shown):
    """One step of the run: the model's answer, from one or several calls, and the tools it called.

    `index` counts from 1. `usage` and `cost` are sums over `calls`; the usage of sub-agents is in `children`. `seams` are the places
    where the texts of several calls meet. `settings` are those the step was evaluated with; `readings` is what the stop condition read
    after it (None without a condition). `stop_reason` is set on the run's last step, `error` if an exception ended the step.

    Example:
        >>> result.history[0]
        StepResult(1, tool_calls, tools=['get_weather', 'get_weather'], tokens=637, cost_usd=0.003207)
        >>> result.history[0].tool_results[0].content
        '{"city":"Graz","sky":"rain","high_c":17}'
    """

    index: int
    calls: tuple[ModelCall, ...]
    tool_results: tuple[ToolResult, ...]
    usage: Usage
    cost: Cost
    decision: Decision
    settings: RunSettings
    remaining: Remaining
    readings: Reading | None
    started_s: float
    duration_s: float
    stop_reason: StopReason | None = None
    error: BaseException | None = None
    answer: ModelResponse | None = None
    children: tuple[ChildUse, ...] = ()
    seams: tuple[Seam, ...] = ()

    def __repr__(self) -> str:
        parts = [f"StepResult({self.index}", str(self.finish_reason or "no answer")]
        if self.tool_calls:
            parts.append(f"tools={[call.name for call in self.tool_calls]}")
        if self.holes:
            parts.append(f"holes={len(self.holes)}")
        tokens = "unknown" if self.usage.total_tokens is None else self.usage.total_tokens
        parts += [f"tokens={tokens}", f"cost_usd={'unknown' if self.cost.usd is None else exactly(self.cost.usd)}"]
        if self.stop_reason is not None:
            parts.append(f"stop_reason={self.stop_reason}")
        return ", ".join(parts) + ")"

    @property
    def total_tokens(self) -> int | None:
        """Tokens of the step without sub-agents; None if the provider does not report them.

        Example:
            >>> result.history[0].total_tokens
            637
        """
        return self.usage.total_tokens

    @property
    def child_tokens(self) -> int | None:
        """Tokens of the sub-agents called in this step; None if a part is unknown.

        Example:
            >>> planner = lab.Agent(ScriptedProvider([call("scout", {"task": "Go."}), "Done."]), tools=[brief.as_tool("scout")])
            >>> step = (await planner.run("?")).history[0]
            >>> step.usage.total_tokens, step.child_tokens, step.all_tokens
            (15, 15, 30)
        """
        return tokens_of(self.children)

    @property
    def child_cost_usd(self) -> Decimal | None:
        """Cost of the sub-agents called in this step; None if a part is unknown.

        Example:
            >>> result.history[0].child_cost_usd  # no sub-agent was called
            Decimal('0')
        """
        return cost_usd_of(self.children)

    @property
    def all_tokens(self) -> int | None:
        """Tokens of the step, sub-agents included; None if a part is unknown.

        Example:
            >>> result.history[0].all_tokens
            637
        """
        return _sum([self.usage.total_tokens, self.child_tokens], 0) if self.children else self.usage.total_tokens

    @property
    def all_cost_usd(self) -> Decimal | None:
        """Cost of the step, sub-agents included; None if a part is unknown.

        Example:
            >>> result.history[0].all_cost_usd
            Decimal('0.003207')
        """
        return _sum([self.cost.usd, self.child_cost_usd], Decimal(0)) if self.children else self.cost.usd

    @property
    def response(self) -> ModelResponse | None:
        """The last response of the step; None if no call was answered.

        Example:
            >>> result.history[0].response.model
            'claude-sonnet-4-6'
        """
        return self.calls[-1].response if self.calls else None

    @property
    def signal(self) -> TerminationSignal | None:
        """Why the step's last response ended.

        Example:
            >>> result.history[0].signal.raw_field, result.history[0].signal.raw_value
            ('stop_reason', 'tool_use')
        """
        return self.calls[-1].response.signal if self.calls else None

    @property
    def finish_reason(self) -> FinishReason | None:
        """Why the step's last response ended, in one word.

        Example:
            >>> [step.finish_reason.value for step in result.history]
            ['tool_calls', 'tool_calls', 'tool_calls', 'tool_calls']
        """
        return self.calls[-1].response.signal.finish_reason if self.calls else None

    @property
    def text(self) -> str:
        """The model's text, from all calls of the step; `seams` are the places where they meet, `holes` those where a piece is missing.

        Example:
            >>> result.history[0].text
            "I'll look at the forecast for both cities first."
        """
        if self.answer is not None:
            return self.answer.text
        if len(self.calls) == 1 and (only := self.calls[0]).used:
            return only.response.text
        return "".join([call.response.text for call in self.calls if call.used])

    @property
    def holes(self) -> tuple[Hole, ...]:
        """The places in `text` where a stream lost a piece; empty for a complete answer.

        Example:
            >>> result.history[0].holes
            ()
        """
        if self.answer is not None:
            return self.answer.holes
        found: list[Hole] = []
        before = 0
        for call in self.calls:
            if call.used:
                found += moved(call.response.holes, before)
                before += len(call.response.text)
        return tuple(found)

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The tool calls of the model, from all calls of the step.

        Example:
            >>> result.history[0].tool_calls[0].arguments
            '{"city":"Graz","day":"2027-06-12"}'
        """
        if self.answer is not None:
            return self.answer.tool_calls
        if len(self.calls) == 1:
            return self.calls[0].response.tool_calls
        return tuple([tool_call for call in self.calls if call.used for tool_call in call.response.tool_calls])


def _sum(parts: Iterable[N | None], start: N) -> N | None:
    for part in parts:
        if part is None:
            return None
        start = start + part
    return start


def tokens_of(children: Iterable[ChildUse]) -> int | None:
    """Return the tokens of sub-agents; None if a part is unknown."""
    return _sum([child.usage.total_tokens for child in children], 0)


def cost_usd_of(children: Iterable[ChildUse]) -> Decimal | None:
    """Return the cost of sub-agents; None if a part is unknown."""
    return _sum([child.cost.usd for child in children], Decimal(0))

"""What a step leaves behind: the readings of its conditions, the decision, its calls of the model, what sub-agents used in it.

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

N = TypeVar("N", int, Decimal)
Scalar: TypeAlias = int | float | Decimal | str | bool | None


@shown_without_keys
@dataclass(frozen=True, slots=True)
class Reading(Shown):
    """What a condition read at one step: its value, the limit that held, and whether it was met.

    `value` None means that it is not known (usage that was not reported); `met` None that it cannot be said, or that an async
    condition was not awaited since the others had decided. A combination has `children` and no value of its own. `goal` marks a
    condition on what the agent itself did (it called `finalize`), as against one that cuts it off. What is turned off has its values
    and `met` None, below a reading named `Off`.

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
        """The readings of the single conditions, in the order they were written.

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
        """The readings that made this one met; nothing where it is not.

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
        """This reading where it does not count: the values, and nothing said of whether they were met."""
        return replace(self, met=None, children=tuple(child.without_answer() for child in self.children))

    def that_counts(self) -> Reading | None:
        """This reading without what is turned off in it; itself where nothing is, None where all of it is."""
        if not self.children:
            return self
        kept = () if self.name == "Off" else tuple(child for each in self.children if (child := each.that_counts()) is not None)
        if not kept:
            return None
        unchanged = len(kept) == len(self.children) and all(map(operator.is_, kept, self.children))
        return self if unchanged else replace(self, children=kept)

    def __str__(self) -> str:
        return without_keys(self._in_words())

    def _in_words(self) -> str:
        if self.name == "Not" and self.children:
            return f"not {self.children[0]}"
        if self.name == "Off" and self.children:
            return f"{self.children[0]} (off)"
        if self.children:
            return f"{self.name}({', '.join(map(str, self.children))})"
        if self.goal:
            return f"{self.name}({self.limit}): {self.value} call{'s' * (self.value != 1)}"
        if self.value is None and self.met:  # what is known of it is enough
            return f"{self.name} at least {as_set(self.name, self.limit)}, of which not all is known"
        return f"{self.name} {read_of(self.name, self.value, self.limit)}"


class Action(StrEnum):
    """What follows from a response.

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
    """What follows from a response, and why in one sentence. `stop_reason` is set where the action ends the run; `suggestion` is what
    a person could do about it: `retry`, `modify_prompt`, `increase_budget`, `stop`, or None.

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
class ModelCall(Shown):
    """One round trip to the model. `index` counts the run's calls from 1; `usage` is what counts against the budget (its `source`
    says whether the provider reported it); `started_s` is the time since the run's first step, `retries` the attempts that failed
    before this answer. `used` is False where a middleware left the answer aside, or where it lost a piece on its way and was asked for
    again: it was paid for, and is no part of what the model said in the step. `decision` is what followed where another call of the
    same step did; what followed from the last one is the step's."""

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

    `call` is the `index` of that call and `place` the number of characters of the step's text before it. `dropped` is the text left
    out there: what the call said again, or white space that a prefilled answer may not end with. Nothing is ever added.
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
    """What the run of a sub-agent used within a step of the run that called it, its own sub-agents included.

    `handle` is what the model calls it by (`research-1`), `call_id` the tool call it was started by, `tool` that tool's name. Of one
    that goes on from an earlier run, only what is new is counted. `known_*` are the sums of what is known, a lower bound. `stop_reason`
    None: it had not come to an end when the step was cut off. `cut_off` True: it was called in an earlier try at the step, which ended
    with its process; the step was taken again, and what is kept of that try was paid for.
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


@dataclass(frozen=True, slots=True)
class Remaining(Shown):
    """What is left on each dimension of the budget after a step. None: no limit, or not known (then the limit is set and
    `known_*` of the history is a lower bound of what was used)."""

    turns: int | None = None
    calls: int | None = None
    tokens: int | None = None
    cost_usd: Decimal | None = None
    time_s: float | None = None


@shown_without_keys
@dataclass(frozen=True, slots=True, repr=False)
class StepResult(Shown):
    """One turn of the loop: the model's answer, however many calls it took, and the tools it asked for.

    `index` counts from 1. `usage` and `cost` are sums over `calls`; what sub-agents used is in `children`. `seams` are the places
    where the texts of several calls meet, with what was dropped there. `settings` are those it was judged by; `readings` is what the
    stop condition read after it (None without a condition). `stop_reason` is set on the run's last step, `error` where an exception
    cut the step short.

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
        """Tokens of the step, without those of sub-agents; None where the provider does not report them.

        Example:
            >>> result.history[0].total_tokens
            637
        """
        return self.usage.total_tokens

    @property
    def child_tokens(self) -> int | None:
        """Tokens of the sub-agents that were called in this step; None where a part is unknown.

        Example:
            >>> planner = lab.Agent(ScriptedProvider([call("scout", {"task": "Go."}), "Done."]), tools=[brief.as_tool("scout")])
            >>> step = (await planner.run("?")).history[0]
            >>> step.usage.total_tokens, step.child_tokens, step.all_tokens
            (15, 15, 30)
        """
        return tokens_of(self.children)

    @property
    def child_cost_usd(self) -> Decimal | None:
        """Money that they cost; None where a part is unknown.

        Example:
            >>> result.history[0].child_cost_usd  # no sub-agent was called
            Decimal('0')
        """
        return cost_usd_of(self.children)

    @property
    def all_tokens(self) -> int | None:
        """Tokens of the step, sub-agents included; None where a part is unknown.

        Example:
            >>> result.history[0].all_tokens
            637
        """
        own = self.usage.total_tokens
        return own if not self.children else _sum([own, self.child_tokens], 0)

    @property
    def all_cost_usd(self) -> Decimal | None:
        """Money of the step, sub-agents included; None where a part is unknown.

        Example:
            >>> result.history[0].all_cost_usd
            Decimal('0.003207')
        """
        return self.cost.usd if not self.children else _sum([self.cost.usd, self.child_cost_usd], Decimal(0))

    @property
    def response(self) -> ModelResponse | None:
        """The last response of the step; None where no call came back.

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
        """What the model said, over all calls of the step; `seams` says where they meet, `holes` where a piece is missing.

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
        """The places in `text` where a stream lost a piece; empty for a whole answer.

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
        """What the model asked for, over all calls of the step.

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
    """Tokens of sub-agents; None where a part is unknown."""
    return _sum([child.usage.total_tokens for child in children], 0)


def cost_usd_of(children: Iterable[ChildUse]) -> Decimal | None:
    """Money that sub-agents cost; None where a part is unknown."""
    return _sum([child.cost.usd for child in children], Decimal(0))

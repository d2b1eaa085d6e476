"""The step under way: its responses and tool results so far, until it becomes a StepResult."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

from agentlab._internal.redaction import in_words
from agentlab._internal.values import dataclass
from agentlab.engine.control import StopRequest
from agentlab.engine.plan import Ending
from agentlab.engine.timeline import Timeline
from agentlab.errors import ConfigurationError, FixtureError, MissingUsageError, ProviderError
from agentlab.limits.reading import Action, Decision, Reading, Remaining
from agentlab.limits.settings import RunSettings
from agentlab.model.finish_reasons import StopReason
from agentlab.model.messages import ToolResult
from agentlab.model.responses import ModelResponse, moved
from agentlab.model.usage import FREE, NOTHING_USED, Cost, Usage, add_cost, add_usage
from agentlab.records.history import ZERO, RunHistory
from agentlab.records.result import advice_for
from agentlab.records.step import ChildUse, ModelCall, Seam, StepResult

_UNKNOWN_USAGE = Usage()
_UNKNOWN_COST = Cost(reason="A call was started and never returned.")
_CANCELLED = Decision(Action.ABORT, "The step was cut short.", StopReason.CANCELLED, "retry")
_NOT_READ = Remaining()


@dataclass(frozen=True, slots=True)
class Used:
    """Usage: model calls, with their known tokens and cost."""

    calls: int = 0
    tokens: int = 0
    cost_usd: Decimal = ZERO

    def __add__(self, other: Used) -> Used:
        return Used(self.calls + other.calls, self.tokens + other.tokens, self.cost_usd + other.cost_usd)


@dataclass(frozen=True, slots=True, eq=False)
class OpenChild:
    """A child run that has not ended: its usage so far, its earlier history, the name of its tool, and the call that started it."""

    used: Callable[[], Used]
    before: RunHistory
    tool: str
    call_id: str

    def used_now(self) -> Used:
        """Return its usage since it began."""
        now, before = self.used(), self.before
        return Used(now.calls - before.calls, now.tokens - before.known_tokens, now.cost_usd - before.known_cost_usd)


@dataclass(frozen=True, slots=True)
class Share:
    """The share of a sub-agent that runs beside others in what their caller has left: its place from 0, of how many. `before` is the
    caller's usage at their start. It is fixed, so that how far a sub-agent gets does not depend on how fast the others are."""

    tool: str
    place: int
    of: int
    before: Used

    def part(self, whole: Any) -> Any:
        """Return the part of an amount; the first ones get one more of what cannot be divided."""
        return whole // self.of + (self.place < whole % self.of) if isinstance(whole, int) else whole / self.of


class StepBuilder:
    """A step under way.

    `open_calls` counts the model calls that have not returned. `open_children` holds the child runs that have not ended.
    `answer` merges the answers of several calls, `parts` are the texts before it. `notice` says that the answer is incomplete.
    `response` is the answer that the step acts on, `output` the typed answer in it, `started_tools` the ids of the tool calls that
    were begun, `cut_during` what a child run waited for when the step was interrupted,
    `waiting_children` by call the child runs that wait for approval, and `shares` by call the shares of sub-agents that
    run at the same time. A step that waits for approval is kept in its builder. `last_answer` is the limit that is nearly used up, if
    the step asks for a last answer.
    """

    __slots__ = (
        "answer",
        "calls",
        "children",
        "cut_during",
        "decision",
        "error",
        "fault",
        "last_answer",
        "notice",
        "open_calls",
        "open_children",
        "output",
        "parts",
        "response",
        "seams",
        "settings",
        "shares",
        "started_s",
        "started_tools",
        "stop_request",
        "terminating",
        "to_raise",
        "tool_results",
        "waiting_children",
    )

    def __init__(self, settings: RunSettings, started_s: float) -> None:
        self.settings = settings
        self.started_s = started_s
        self.calls: list[ModelCall] = []
        self.tool_results: list[ToolResult] = []
        self.children: list[ChildUse] = []
        self.open_calls = 0
        self.open_children: list[OpenChild] = []
        self.decision = _CANCELLED
        self.error: BaseException | None = None
        self.to_raise: Exception | None = None
        self.stop_request: StopRequest | None = None
        self.fault: tuple[str, Exception | None] = ("", None)
        self.answer: ModelResponse | None = None
        self.parts: list[str] = []
        self.seams: list[Seam] = []
        self.terminating: ToolResult | None = None
        self.output: object = None
        self.notice = self.cut_during = ""
        self.last_answer = ""
        self.response: ModelResponse | None = None
        self.started_tools: set[str] = set()
        self.waiting_children: dict[str, Any] = {}
        self.shares: dict[str, Share] = {}

    @classmethod
    def of_step(cls, step: StepResult, settings: RunSettings) -> StepBuilder:
        """Return the builder of a step that waited for approval when it was stored."""
        builder = cls(settings, step.started_s)
        builder.calls, builder.tool_results = list(step.calls), list(step.tool_results)
        builder.children = [child for child in step.children if not child.cut_off]
        builder.decision, builder.answer, builder.seams = step.decision, step.answer, list(step.seams)
        builder.response = step.answer or step.calls[-1].response
        return builder

    # Usage so far -----------------------------------------------------------------------------------------------------------

    @property
    def calls_made(self) -> int:
        """Model calls, including those under way."""
        return len(self.calls) + self.open_calls

    @property
    def known_tokens(self) -> int:
        """Known tokens of this step's calls, without child runs."""
        return sum([call.usage.known_tokens for call in self.calls])

    @property
    def known_cost_usd(self) -> Decimal:
        """Known cost of this step's calls in USD, without child runs."""
        return sum([call.cost.known_usd for call in self.calls], ZERO)

    def whole_answer(self) -> ModelResponse | None:
        """Return the merged answer of several calls, with the text before a pause; None if the answer came from one call."""
        if self.answer is None or not self.parts:
            return self.answer
        before = "".join(self.parts)
        return replace(self.answer, text=before + self.answer.text, holes=moved(self.answer.holes, len(before)))

    # Failure ----------------------------------------------------------------------------------------------------------------

    def blame(self, source: str, error: Exception) -> None:
        """Record which layer raised an exception, "" for the call itself. Outer layers that it passes through do not count."""
        if self.fault[1] is not error:
            self.fault = (source, error)

    def fail(self, error: Exception) -> None:
        """End the step with an error. An error that a person has to fix is also raised once the step is recorded: a ConfigurationError,
        a FixtureError, a bug in a custom model. Errors of a policy or a middleware are in the result only."""
        source = self.fault[0] if self.fault[1] is error else ""
        reason = f"{source} raised {in_words(error)}" if source else in_words(error)
        self.error = error
        self.decision = Decision(Action.ABORT, reason, StopReason.ERROR, advice_for(error))
        if not isinstance(error, ProviderError | MissingUsageError) and (
            not source or isinstance(error, ConfigurationError | FixtureError)
        ):
            self.to_raise = error

    # The step ---------------------------------------------------------------------------------------------------------------

    def build(self, timeline: Timeline) -> StepResult:
        """Return the step; `complete` fills in its readings. Usage and cost are unknown if a call never returned: it may have cost
        something."""
        usage, cost = (_UNKNOWN_USAGE, _UNKNOWN_COST) if self.open_calls else (NOTHING_USED, FREE)
        if len(self.calls) == 1 and not self.open_calls:
            usage, cost = self.calls[0].usage, self.calls[0].cost
        else:
            for call in self.calls:
                usage, cost = add_usage(usage, call.usage), add_cost(cost, call.cost)
        return StepResult(
            index=timeline.next_step,
            calls=tuple(self.calls),
            tool_results=tuple(self.tool_results),
            usage=usage,
            cost=cost,
            decision=self.decision,
            settings=self.settings,
            remaining=_NOT_READ,
            readings=None,
            started_s=self.started_s,
            duration_s=timeline.clock.elapsed_s() - self.started_s,
            stop_reason=None,
            error=self.error,
            answer=self.whole_answer(),
            children=(*timeline.history.cut_off, *self.children),
            seams=tuple(self.seams),
            last_answer=bool(self.last_answer),
        )

    def complete(self, step: StepResult, remaining: Remaining, readings: Reading | None, ending: Ending | None) -> None:
        """Fill in what depends on the history with this step in it. The step does not change afterwards."""
        fill = object.__setattr__  # no one else holds the step yet
        fill(step, "remaining", remaining)
        fill(step, "readings", readings)
        if ending is not None:
            fill(step, "stop_reason", ending.stop_reason)
            fill(step, "error", self.error if ending.error is None else ending.error)

"""What a run tells while it goes on. An observer is any callable that takes an event.

`at_s` is the active time since the run's first step. Observers are called where the event happens: mostly on the run's loop,
LimitsChanged on the thread that made the change. One that raises is reported once and never ends the run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from agentlab.redaction import shown_without_keys
from agentlab.results import ChildUse, Remaining, RunResult, StepResult
from agentlab.types import FinishReason, ToolCall, ToolResult, Usage

if TYPE_CHECKING:
    from agentlab.settings import RunSettings


@dataclass(frozen=True, slots=True)
class Event:
    """The root of all events."""

    at_s: float


@shown_without_keys
@dataclass(frozen=True, slots=True)
class RunStarted(Event):
    """The first step is about to be taken; or the first one after the run was resumed from a store."""

    run_id: str
    provider: str
    model: str
    settings: RunSettings


@dataclass(frozen=True, slots=True)
class TurnStarted(Event):
    """A step begins, with this much left."""

    turn: int
    budget_remaining: Remaining


@shown_without_keys
@dataclass(frozen=True, slots=True)
class CallRetried(Event):
    """A call failed and is tried again after `wait_s` seconds; `reason` is the failure in one line."""

    turn: int
    attempt: int
    wait_s: float
    reason: str


@shown_without_keys
@dataclass(frozen=True, slots=True)
class TextReceived(Event):
    """A piece of streamed text, of the run's call number `call`. Not kept in `run.events`."""

    turn: int
    text: str
    call: int


@shown_without_keys
@dataclass(frozen=True, slots=True)
class StopReasonObserved(Event):
    """A response came in and ended for this reason."""

    provider: str
    model: str
    finish_reason: FinishReason
    raw_value: str | int | None
    turn: int
    call: int


ContinuationOutcome: TypeAlias = Literal["completed", "retry_limit", "budget_exhausted", "safety_blocked"]


@dataclass(frozen=True, slots=True)
class ContinuationAttempted(Event):
    """A response was cut, and the model is asked to go on: the `attempt`-th time in this step.

    `output_tokens` (None: not reported) and `output_chars` are those of the step so far, `remaining` how many more times it may be
    asked.
    """

    turn: int
    attempt: int
    output_tokens: int | None
    output_chars: int
    remaining: int


@dataclass(frozen=True, slots=True)
class ContinuationEnded(Event):
    """Going on with a cut response has come to its end after `attempts`, in `duration_s` seconds since the first cut.

    `completed`: the answer is whole. `retry_limit`: it is not, and no attempt is left (or none was allowed). `budget_exhausted`: a cap
    on tokens or characters of the step, or the run's budget, is reached. `safety_blocked`: the provider filtered what came.
    """

    turn: int
    outcome: ContinuationOutcome
    attempts: int
    duration_s: float


@shown_without_keys
@dataclass(frozen=True, slots=True)
class ToolPayloadRepair(Event):
    """A tool call came incomplete. `issue` says how: `incomplete` (cut off) or `malformed` (the provider could not read it).
    `attempted` is whether the model was asked again, `succeeded` whether it then gave a whole one."""

    turn: int
    issue: str
    attempted: bool
    succeeded: bool


@dataclass(frozen=True, slots=True)
class Nudged(Event):
    """An answer without a tool call was answered with the reminder, the `consecutive`-th in a row of at most `allowed`."""

    turn: int
    consecutive: int
    allowed: int


@dataclass(frozen=True, slots=True)
class ToolStarted(Event):
    """A tool is about to run."""

    turn: int
    tool_call: ToolCall


@dataclass(frozen=True, slots=True)
class ToolFinished(Event):
    """A tool came back, or failed."""

    turn: int
    result: ToolResult


@shown_without_keys
@dataclass(frozen=True, slots=True)
class ChildStarted(Event):
    """A tool call has made a run of a sub-agent, which is about to begin; `settings` are those it begins with. Its own events are its
    own affair: they are told to whoever observes it."""

    turn: int
    call_id: str
    tool: str
    run_id: str
    settings: RunSettings


@dataclass(frozen=True, slots=True)
class ChildEnded(Event):
    """That run is over, and this is what it used."""

    turn: int
    child: ChildUse


@dataclass(frozen=True, slots=True)
class LimitsChanged(Event):
    """Someone changed the run's settings; `by` says who: `code` or `panel`. In force from the next reading on."""

    before: RunSettings
    after: RunSettings
    by: str


@dataclass(frozen=True, slots=True)
class RunPaused(Event):
    """The run waits for a person before its next step."""


@dataclass(frozen=True, slots=True)
class RunResumed(Event):
    """The run goes on after `paused_s` seconds, which do not count against the timeout."""

    paused_s: float


@shown_without_keys
@dataclass(frozen=True, slots=True)
class Warned(Event):
    """Something that a person should know and that ends nothing."""

    message: str


@dataclass(frozen=True, slots=True)
class TurnCompleted(Event):
    """A step is in the history."""

    step: StepResult
    cumulative_usage: Usage


@shown_without_keys
@dataclass(frozen=True, slots=True)
class RunEnded(Event):
    """The run is over."""

    result: RunResult


class RunObserver(Protocol):
    """Anything that takes an event."""

    def __call__(self, event: Event, /) -> object:
        """Look at the event; what is returned is ignored."""
        ...

"""The events of a run, and their texts. An observer is any callable that takes an event.

`at_s` is the active time since the run's first step, `run_id` the id of the run, by which an observer of several runs tells them apart:
sub-agents' runs and forks have ids of their own. Observers are called on the thread of the event: usually that of the run's loop;
for LimitsChanged, the thread that made the change. If an observer raises, a warning reports it once and the run continues.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from agentlab._internal.formatting import as_set, counted, read_of
from agentlab._internal.names import defined_in, module_hooks
from agentlab._internal.redaction import redacted_repr
from agentlab._internal.values import dataclass
from agentlab.limits.reading import Remaining
from agentlab.limits.settings import RunSettings
from agentlab.model.finish_reasons import FinishReason
from agentlab.model.messages import ToolCall, ToolResult
from agentlab.model.responses import Hole, RateLimit
from agentlab.model.usage import Usage
from agentlab.records.result import Event as Event  # noqa: PLC0414  public here
from agentlab.records.result import RunResult
from agentlab.records.step import ChildUse, Seam, StepResult

if TYPE_CHECKING:
    from typing import Any  # not a name of `lab.events`

EARLIER_NAMES = {"TurnStarted": "StepStarted", "TurnCompleted": "StepCompleted"}  # names in stores and frames of earlier versions


@redacted_repr
@dataclass(frozen=True, slots=True)
class RunStarted(Event):
    """The run is about to take its first step, or its first one after it was resumed from a store.

    Example:
        >>> started = result.events[0]
        >>> type(started).__name__, started.provider, started.settings.budget
        ('RunStarted', 'anthropic', Budget(max_turns=20))
    """

    provider: str
    model: str
    settings: RunSettings


@dataclass(frozen=True, slots=True)
class StepStarted(Event):
    """A step begins. `budget_remaining` is the rest of the limits.

    Example:
        >>> steps = [event for event in result.events if isinstance(event, lab.events.StepStarted)]
        >>> [(event.step, event.budget_remaining.turns) for event in steps]
        [(1, 20), (2, 19), (3, 18), (4, 17)]
    """

    step: int
    budget_remaining: Remaining


@redacted_repr
@dataclass(frozen=True, slots=True)
class CallRetried(Event):
    """A call failed and is retried after `wait_s` seconds. `reason` is the error message; `rate_limit` the account's limits from the
    headers of the response, None if they are missing.

    Example:
        >>> from agentlab.testing import faults, faulty
        >>> with lab.replay("fixtures/trip"), faulty(faults.Status(529), at=2):
        ...     result = await agent.run(TASK)
        >>> [(event.step, event.attempt) for event in result.events if isinstance(event, lab.events.CallRetried)]
        [(2, 1)]
    """

    step: int
    attempt: int
    wait_s: float
    reason: str
    rate_limit: RateLimit | None = None


@redacted_repr
@dataclass(frozen=True, slots=True)
class AskedAgain(Event):
    """The streamed answer of the run's call number `call` lost a piece, and the model is asked again: the `attempt`-th time, with
    `remaining` further attempts. The answer remains one of the step's calls, since it was paid for, but is not used. `holes` are the
    places of the missing pieces.

    Example:
        >>> from dataclasses import replace
        >>> from agentlab.model.responses import Hole
        >>> holed = replace(say("pay 100 to Bob"), holes=(Hole(8),))
        >>> result = await lab.Agent(ScriptedProvider([holed, "pay 100 NOT to Bob"])).run("?")
        >>> [(event.step, event.attempt) for event in result.events if isinstance(event, lab.events.AskedAgain)]
        [(1, 1)]
        >>> [(call.response.text, call.used) for call in result.history[0].calls]
        [('pay 100 to Bob', False), ('pay 100 NOT to Bob', True)]
    """

    step: int
    call: int
    attempt: int
    remaining: int
    holes: tuple[Hole, ...] = ()


@redacted_repr
@dataclass(frozen=True, slots=True)
class TextReceived(Event):
    """A piece of streamed text of the run's call number `call`. Not recorded in `run.events`. After CallRetried and AskedAgain the text
    starts again.

    Example:
        >>> seen = []
        >>> result = await brief.run("?", observers=[seen.append])
        >>> [(event.step, event.text) for event in seen if isinstance(event, lab.events.TextReceived)]
        [(1, 'Paris.')]
    """

    step: int
    text: str
    call: int


@redacted_repr
@dataclass(frozen=True, slots=True)
class ArgumentsReceived(Event):
    """A piece of the streamed arguments (JSON text) of the tool call at `place`, from 0, in an answer. Otherwise like TextReceived.

    Example:
        >>> lab.events.ArgumentsReceived(0.2, 1, "search", '{"query":', 0, 1).text
        '{"query":'
    """

    step: int
    tool: str
    text: str
    place: int
    call: int


@redacted_repr
@dataclass(frozen=True, slots=True)
class StopReasonObserved(Event):
    """A response was received, with this finish reason.

    Example:
        >>> seen = [event for event in result.events if isinstance(event, lab.events.StopReasonObserved)]
        >>> seen[0].finish_reason, seen[0].raw_value, seen[0].step
        (<FinishReason.TOOL_CALLS: 'tool_calls'>, 'tool_use', 1)
    """

    provider: str
    model: str
    finish_reason: FinishReason
    raw_value: str | int | None
    step: int
    call: int


ContinuationOutcome: TypeAlias = Literal[
    "completed", "retry_limit", "budget_exhausted", "safety_blocked", "error", "context_window_exceeded", "cancelled"
]


@dataclass(frozen=True, slots=True)
class ContinuationAttempted(Event):
    """A response was cut off, and the model is asked to continue: the `attempt`-th time in this step.

    `output_tokens` (None: not reported) and `output_chars` count the step so far. The other fields are what is left of each limit after
    this attempt: `remaining` further attempts, `tokens_remaining` output tokens of the step (None: no cap is known), `chars_remaining`
    characters of its answer, `repairs_remaining` repairs of a tool call, `invocations_remaining` round trips until `max_invocations`
    (None: no terminating tools), and `budget_remaining` of the run's budget. The tokens, characters, money and time of the attempt
    itself are not known yet. Events stored by an earlier version have None for all but `remaining`.

    Example:
        >>> cut = lab.Agent(ScriptedProvider([say("A cut", finish=lab.FinishReason.MAX_TOKENS), say(" answer.")]))
        >>> result = await cut.run("?")
        >>> [(event.attempt, event.remaining) for event in result.events if isinstance(event, lab.events.ContinuationAttempted)]
        [(1, 2)]
    """

    step: int
    attempt: int
    output_tokens: int | None
    output_chars: int
    remaining: int
    tokens_remaining: int | None = None
    chars_remaining: int | None = None
    repairs_remaining: int | None = None
    invocations_remaining: int | None = None
    budget_remaining: Remaining | None = None


@dataclass(frozen=True, slots=True)
class ContinuationEnded(Event):
    """The continuation of a cut response ended after `attempts`, `duration_s` seconds after the first cut; 0 attempts means that it was
    not possible. `seams` are the places in the step's text where the pieces meet.

    `completed`: the answer is complete. `retry_limit`: no attempt is left. `budget_exhausted`: a limit on the step or the run.
    `safety_blocked`: a filter. `error`: a further call failed. `context_window_exceeded`: it is full. `cancelled`: also by a stop.

    Example:
        >>> cut = lab.Agent(ScriptedProvider([say("A cut", finish=lab.FinishReason.MAX_TOKENS), say(" answer.")]))
        >>> result = await cut.run("?")
        >>> [(event.outcome, event.attempts) for event in result.events if isinstance(event, lab.events.ContinuationEnded)]
        [('completed', 1)]
        >>> result.history[0].seams
        (Seam(call=2, place=5, dropped=''),)
    """

    step: int
    outcome: ContinuationOutcome
    attempts: int
    duration_s: float
    seams: tuple[Seam, ...] = ()


@redacted_repr
@dataclass(frozen=True, slots=True)
class ToolPayloadRepair(Event):
    """A tool call was unusable. `issue` is `incomplete` (cut off) or `malformed` (the provider could not parse it). `attempted` is True
    if the model was asked again, `succeeded` if it then returned a complete call.

    Example:
        >>> script = [call("search", '{"words": "umb'), call("search", {"words": "umbrella"}), "Nothing found."]
        >>> result = await lab.Agent(ScriptedProvider(script), tools=[search]).run("?")
        >>> [(event.issue, event.succeeded) for event in result.events if isinstance(event, lab.events.ToolPayloadRepair)]
        [('incomplete', True)]
    """

    step: int
    issue: str
    attempted: bool
    succeeded: bool


@dataclass(frozen=True, slots=True)
class Nudged(Event):
    """The model answered without a tool call and was reminded: the `consecutive`-th time in a row, of at most `allowed`.

    Example:
        >>> clerk = lab.Agent(ScriptedProvider(["I am done.", call("finalize", {"answer": "IC 41"})]), tools=[finalize])
        >>> result = await clerk.run("?", terminating=["finalize"])
        >>> [(event.consecutive, event.allowed) for event in result.events if isinstance(event, lab.events.Nudged)]
        [(1, 1)]
    """

    step: int
    consecutive: int
    allowed: int


@redacted_repr
@dataclass(frozen=True, slots=True)
class OutputRejected(Event):
    """An answer does not fit the agent's `output`, and the model is asked again: the `attempt`-th time, of at most `allowed`.

    Example:
        >>> clerk = lab.Agent(ScriptedProvider(["Tomorrow.", '{"city": "Graz", "days": 2}']), output=Trip)
        >>> result = await clerk.run("Where, and for how long?")
        >>> [(event.attempt, event.problems) for event in result.events if isinstance(event, lab.events.OutputRejected)]
        [(1, 'Invalid JSON: expected value at line 1 column 1')]
    """

    step: int
    attempt: int
    allowed: int
    problems: str


@redacted_repr
@dataclass(frozen=True, slots=True)
class LastAnswerAsked(Event):
    """The model is asked for its final answer, without tools, since `limit` of the budget is nearly used up.

    Example:
        >>> run = endless.run("?", budget=lab.Budget(max_turns=3, last_answer=0.2))
        >>> [event.limit for event in (await run).events if isinstance(event, lab.events.LastAnswerAsked)]
        ['max_turns']
    """

    step: int
    limit: str


@dataclass(frozen=True, slots=True)
class ToolStarted(Event):
    """A tool is about to run.

    Example:
        >>> [event.tool_call.name for event in result.events if isinstance(event, lab.events.ToolStarted)][:2]
        ['get_weather', 'get_weather']
    """

    step: int
    tool_call: ToolCall


@redacted_repr
@dataclass(frozen=True, slots=True)
class ToolProgress(Event):
    """A tool of an MCP server reports its progress: up to `total` (None: not known), with a message. At most 100 a call.

    Example:
        >>> lab.events.ToolProgress(1.5, 2, "call_1", "crawl", 3.0, 10.0, "page 3").message
        'page 3'
    """

    step: int
    call_id: str
    tool: str
    progress: float
    total: float | None
    message: str


@dataclass(frozen=True, slots=True)
class ToolFinished(Event):
    """A tool returned or failed.

    Example:
        >>> finished = [event for event in result.events if isinstance(event, lab.events.ToolFinished)]
        >>> finished[0].result.content, finished[0].result.is_error
        ('{"city":"Graz","sky":"rain","high_c":17}', False)
    """

    step: int
    result: ToolResult


@redacted_repr
@dataclass(frozen=True, slots=True)
class ApprovalRequested(Event):
    """The run asks a person before it calls a tool, for the reason `why`.

    Example:
        >>> careful = lab.Agent(ScriptedProvider([call("search", {"words": "umbrella"}), "Done."]), tools=[search], approve=True)
        >>> result = await careful.run("?", approver=lambda call: True)
        >>> [(event.tool_call.name, event.why) for event in result.events if isinstance(event, lab.events.ApprovalRequested)]
        [('search', 'every tool is asked about')]
    """

    step: int
    tool_call: ToolCall
    why: str


@redacted_repr
@dataclass(frozen=True, slots=True)
class ApprovalGiven(Event):
    """A person or the approver decided on a tool call after `waited_s` seconds. They count as time of the run, unless it was paused.

    `decision` is `approved`, `edited` (`arguments` replace those of the model), `answered` or `refused` (with `text`).

    Example:
        >>> careful = lab.Agent(ScriptedProvider([call("search", {"words": "umbrella"}), "Done."]), tools=[search], approve=True)
        >>> result = await careful.run("?", approver=lambda call: lab.Approval.refuse("Not now."))
        >>> [(event.decision, event.text) for event in result.events if isinstance(event, lab.events.ApprovalGiven)]
        [('refused', 'Not now.')]
    """

    step: int
    call_id: str
    tool: str
    decision: str
    waited_s: float
    arguments: str | None = None
    text: str = ""


@redacted_repr
@dataclass(frozen=True, slots=True)
class ChildStarted(Event):
    """A tool call is about to start the run of a sub-agent, `child_id`, with these `settings`. The child run's events go to its own
    observers.

    Example:
        >>> planner = lab.Agent(ScriptedProvider([call("scout", {"task": "Go."}), "Done."]), tools=[brief.as_tool("scout")])
        >>> result = await planner.run("?")
        >>> [(event.step, event.tool) for event in result.events if isinstance(event, lab.events.ChildStarted)]
        [(1, 'scout')]
    """

    step: int
    call_id: str
    tool: str
    child_id: str
    settings: RunSettings


@dataclass(frozen=True, slots=True)
class ChildEnded(Event):
    """The run of a sub-agent ended. `child` is its usage.

    Example:
        >>> planner = lab.Agent(ScriptedProvider([call("scout", {"task": "Go."}), "Done."]), tools=[brief.as_tool("scout")])
        >>> result = await planner.run("?")
        >>> [event.child.stop_reason for event in result.events if isinstance(event, lab.events.ChildEnded)]
        [<StopReason.COMPLETED: 'completed'>]
    """

    step: int
    child: ChildUse


@dataclass(frozen=True, slots=True)
class LimitsChanged(Event):
    """The run's settings were changed, `by` code or the panel. The change applies when the run next reads them.

    Example:
        >>> run = endless.run("?", stop=lab.StepCountIs(2))
        >>> step = await run.step()
        >>> run.limits.max_turns = 5
        >>> result = await run
        >>> [(event.after.budget.max_turns, event.by) for event in result.events if isinstance(event, lab.events.LimitsChanged)]
        [(5, 'code')]
    """

    before: RunSettings
    after: RunSettings
    by: str


@dataclass(frozen=True, slots=True)
class RunPaused(Event):
    """The run is paused before its next step.

    Example:
        >>> step = await run.step()
        >>> run.pause()
        >>> type(run.events[-1]).__name__
        'RunPaused'
    """


@dataclass(frozen=True, slots=True)
class RunResumed(Event):
    """The run continues after `paused_s` seconds, which do not count against the timeout.

    Example:
        >>> step = await run.step()
        >>> run.pause()
        >>> run.resume()
        >>> run.events[-1].paused_s >= 0
        True
    """

    paused_s: float


@redacted_repr
@dataclass(frozen=True, slots=True)
class Warned(Event):
    """A problem that does not end the run.

    Example:
        >>> import warnings
        >>> silent = lab.Agent(ScriptedProvider([say("Hello.", tokens=(None, None))]))
        >>> with warnings.catch_warnings():
        ...     warnings.simplefilter("ignore")  # it is a Python warning as well
        ...     result = await silent.run("?", budget=lab.Budget(max_tokens=100))
        >>> [event.message[:44] for event in result.events if isinstance(event, lab.events.Warned)]
        ['scripted (script) reports no usage, so only ']
    """

    message: str


@dataclass(frozen=True, slots=True)
class StepCompleted(Event):
    """A step was appended to the history.

    Example:
        >>> done = [event for event in result.events if isinstance(event, lab.events.StepCompleted)]
        >>> [(event.step.index, event.cumulative_usage.total_tokens) for event in done]
        [(1, 637), (2, 1384), (3, 2208), (4, 3146)]
    """

    step: StepResult
    cumulative_usage: Usage


@redacted_repr
@dataclass(frozen=True, slots=True)
class RunEnded(Event):
    """The run ended.

    Example:
        >>> result.events[-1].result is result
        True
    """

    result: RunResult


class RunObserver(Protocol):
    """A callable that takes an event.

    Example:
        >>> def print_step(event):
        ...     if isinstance(event, lab.events.StepCompleted):
        ...         print(event.step)
        >>> result = await brief.run("?", observers=[print_step])
        StepResult(1, end_turn, tokens=15, cost_usd=unknown, stop_reason=completed)
    """

    def __call__(self, event: Event, /) -> object:
        """Handle the event; the return value is ignored."""
        ...


__all__ = sorted(["Event", *defined_in(globals())])  # noqa: PLE0605  a list of names, computed

if not TYPE_CHECKING:
    __getattr__, __dir__ = module_hooks("agentlab.events", __all__)


# Texts --------------------------------------------------------------------------------------------------------------------------


def _changes(part: str, before: Any, after: Any) -> list[str]:
    """Return the fields that differ between two values of one part of the settings; either may be None."""
    if before is None or after is None:
        return [] if before is after else [f"{part} {before!r} -> {after!r}"]
    fields = [(name, getattr(before, name), getattr(after, name)) for name in before.__dataclass_fields__]
    return [f"{name} {as_set(name, old)} -> {as_set(name, new)}" for name, old, new in fields if old != new]


def changes_between(before: RunSettings, after: RunSettings) -> list[str]:
    """Return what differs between two settings, such as `max_turns 20 -> 4`."""
    parts = ("budget", "continuation", "terminating")
    changes = [change for part in parts for change in _changes(part, getattr(before, part), getattr(after, part))]
    whole = [(name, getattr(before, name), getattr(after, name)) for name in ("stop", "policy", "approve")]
    return changes + [f"{name} {old!r} -> {new!r}" for name, old, new in whole if old != new]


def step_of(event: Event) -> int | None:
    """Return the number of the step that an event belongs to; None for an event of the whole run."""
    step: int | None = getattr(event, "step", None)
    return event.step.index if isinstance(event, StepCompleted) else step


def detail_of(event: Event) -> str:
    """Return the details of an event as text, without its name, time and step."""
    match event:
        case RunStarted():
            return f"{event.provider}:{event.model}, {event.settings.budget!r}, stop={event.settings.stop!r}"
        case LimitsChanged():
            return f"{', '.join(changes_between(event.before, event.after))} (by {event.by})"
        case StopReasonObserved():
            return f"{event.finish_reason} ({event.raw_value!r})"
        case CallRetried():
            return f"attempt {event.attempt} failed, next in {event.wait_s:.1f} s: {event.reason}"
        case AskedAgain():
            lost = f"call {event.call} lost a piece of its answer, attempt {event.attempt}, {event.remaining} left"
            return f"{lost}: {'; '.join(map(str, event.holes))}"
        case ContinuationAttempted():
            tokens = "unknown" if event.output_tokens is None else f"{event.output_tokens:,}"
            so_far = f"{tokens} output tokens and {event.output_chars:,} characters so far"
            caps = {"tokens": event.tokens_remaining, "characters": event.chars_remaining}
            left = " and ".join(f"{value:,} {name}" for name, value in caps.items() if value is not None)
            return f"attempt {event.attempt}, {event.remaining} left: {so_far}{f', {left} left' if left else ''}"
        case ContinuationEnded():
            dropped = sum(len(seam.dropped) for seam in event.seams)
            without = f", {counted(dropped, 'character')} dropped where the pieces meet" if dropped else ""
            return f"{event.outcome} after {counted(event.attempts, 'attempt')} and {event.duration_s:.1f} s{without}"
        case ToolPayloadRepair():
            outcome = "whole" if event.succeeded else "in vain"  # read by plots, also in exported frames
            return f"{event.issue} tool call: {f'asked again, {outcome}' if event.attempted else 'not asked again'}"
        case Nudged():
            return f"reminder {event.consecutive} of {event.allowed} in a row"
        case OutputRejected():
            return f"asked again, {event.attempt} of {event.allowed}: {event.problems}"
        case LastAnswerAsked():
            return f"{event.limit} is nearly used up"
        case ToolStarted() | ApprovalRequested():
            why = f": {event.why}" if isinstance(event, ApprovalRequested) else ""
            return f"{event.tool_call.name}({event.tool_call.arguments}){why}"
        case ToolProgress():
            done = read_of("", event.progress, event.total)
            return f"{event.tool}: {done}{f', {event.message}' if event.message else ''}"
        case ToolFinished():
            return f"{event.result.name}: {event.result.error or 'ok'}"
        case ApprovalGiven():
            return ": ".join(
                filter(None, [f"{event.tool} {event.decision} after {event.waited_s:.1f} s", event.arguments, event.text])
            )
        case ChildStarted():
            return f"{event.tool}: run {event.child_id}, {event.settings.budget!r}"
        case ChildEnded(child=child):
            tokens = "unknown" if child.usage.total_tokens is None else f"{child.usage.total_tokens:,}"
            return f"{child.handle}: {child.stop_reason or 'cut off'}, {counted(child.steps, 'step')}, {tokens} tokens"
        case RunResumed() | Warned():
            return event.message if isinstance(event, Warned) else f"after {event.paused_s:.1f} s"
        case StepCompleted():
            return event.step.decision.reason
        case RunEnded():
            return f"{event.result.stop_reason}: {event.result.detail}"
    return ""

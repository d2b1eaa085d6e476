"""One step of a run: the model's answer, the tools it asked for, and whether the run ends.

    before    the budget is read; with nothing left the run ends and no call is started
    ask       one call, or more where the provider pauses its turn
    decide    what follows from the response (termination.decide)
    act       the tools, in order
    record    the step goes into the history
    read      stop condition and budget, the new step included
    end       explicit stop > the model's own end, or an abort > condition > budget

Whatever breaks into this (a cancel, an interrupt, a time-out, an error) the calls that came back and the tools that ran are
recorded as a step before anything else happens.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING

from agentlab import events
from agentlab.calls import CallContext
from agentlab.errors import (
    ConfigurationError,
    FixtureError,
    MissingUsageError,
    ProviderError,
    ProviderStatusError,
    StopRequested,
)
from agentlab.evaluate import read_condition
from agentlab.history import add_cost, add_usage
from agentlab.pricing import cost_of
from agentlab.results import Action, Decision, ModelCall, Reading, Remaining, StepResult
from agentlab.settings import LIMIT_REASONS, RunSettings
from agentlab.termination import decide, is_cut_off
from agentlab.tools import execute
from agentlab.types import (
    Cost,
    CostSource,
    Message,
    ModelRequest,
    ModelResponse,
    StopReason,
    ToolResult,
    Usage,
    UsageSource,
)

if TYPE_CHECKING:
    from agentlab.run import Run

MOST_RESUMES = 8
"""How often a turn that the provider pauses is resumed within one step."""

CHARACTERS_PER_TOKEN = 4

NOTHING_READ = Remaining()
_NO_USAGE, _UNKNOWN_USAGE = Usage(0, 0, 0, 0, 0, UsageSource.REPORTED), Usage()
_NO_COST, _UNKNOWN_COST = Cost(Decimal(0), CostSource.REPORTED), Cost()
_CANCELLED = Decision(Action.ABORT, "The step was cut short.", StopReason.CANCELLED, "retry")


@dataclass(frozen=True, slots=True)
class ExplicitStop:
    """Somebody asked for the end: `who` is `tool`, `middleware` or `person`."""

    reason: str
    output: object
    who: str


@dataclass(frozen=True, slots=True)
class Ending:
    """Why the run ends, in the words of RunResult."""

    stop_reason: StopReason
    detail: str
    conditions_met: tuple[Reading, ...] = ()
    output: object = None
    stopped_by: str = ""
    error: BaseException | None = None


class Draft:
    """A step under way."""

    __slots__ = ("calls", "decision", "error", "explicit", "in_flight", "settings", "started_s", "tool_results")

    def __init__(self, settings: RunSettings, started_s: float) -> None:
        self.settings = settings
        self.started_s = started_s
        self.calls: list[ModelCall] = []
        self.tool_results: list[ToolResult] = []
        self.in_flight = False
        self.decision = _CANCELLED
        self.error: BaseException | None = None
        self.explicit: ExplicitStop | None = None

    def step(self, run: Run, remaining: Remaining, readings: Reading | None, stop_reason: StopReason | None) -> StepResult:
        """The draft as a step. A call that was cut off in flight may have cost something: the sums are then unknown."""
        usage, cost = (_UNKNOWN_USAGE, _UNKNOWN_COST) if self.in_flight else (_NO_USAGE, _NO_COST)
        if len(self.calls) == 1 and not self.in_flight:
            usage, cost = self.calls[0].usage, self.calls[0].cost
        else:
            for call in self.calls:
                usage, cost = add_usage(usage, call.usage), add_cost(cost, call.cost)
        return StepResult(
            len(run.history) + 1,
            tuple(self.calls),
            tuple(self.tool_results),
            usage,
            cost,
            self.decision,
            self.settings,
            remaining,
            readings,
            self.started_s,
            run.clock.elapsed_s() - self.started_s,
            stop_reason,
            self.error,
        )


async def take_step(run: Run) -> StepResult | None:
    """Take the next step of `run`, record it, and end the run if it is to end.

    None where the run ended without another step. After recording, what a person has to mend is raised (a ConfigurationError, a
    FixtureError, a bug in a middleware), and so is a cancellation.
    """
    settings = run.take_up_settings()
    started_s = run.clock.elapsed_s()
    spent = settings.budget.exhausted(run.history, started_s)
    if spent is not None:
        run.end(Ending(LIMIT_REASONS[spent.name], f"Budget reached: {spent}."))
        return None
    draft = Draft(settings, started_s)
    run.emit(events.TurnStarted(started_s, len(run.history) + 1, settings.budget.remaining(run.history, started_s)))
    try:
        if settings.budget.timeout is None:
            await _ask_and_act(run, draft)
        else:
            await _within(settings.budget.timeout - started_s, run, draft)
    except Exception as error:
        draft.error = error
        draft.decision = Decision(Action.ABORT, f"{type(error).__name__}: {error}", StopReason.ERROR, "retry")
    except BaseException as error:  # a cancel or an interrupt: record what is there, then let it pass
        draft.error = error
        _record(run, draft, None, Ending(StopReason.CANCELLED, f"Cancelled during step {len(run.history) + 1}.", error=error))
        raise
    step = await _judge(run, draft)
    if draft.error is not None and not isinstance(draft.error, ProviderError | MissingUsageError):
        raise draft.error
    return step


async def _judge(run: Run, draft: Draft) -> StepResult:
    """Read condition and budget with the new step in the history, and end the run by the first reason that holds."""
    run.answer_open_calls(draft.tool_results)
    draft.settings = run.take_up_settings()
    run.history.append(draft.step(run, NOTHING_READ, None, None))
    reading: Reading | None = None
    failure: Exception | None = None
    if draft.settings.stop is not None:
        try:
            reading = await read_condition(draft.settings.stop, run.history)
        except Exception as error:
            failure = error
        except BaseException as error:
            draft.error = error
            _finish(run, draft, None, Ending(StopReason.CANCELLED, f"Cancelled after step {len(run.history)}.", error=error))
            raise
    return _finish(run, draft, reading, _why_it_ends(run, draft, reading, failure))


def _why_it_ends(run: Run, draft: Draft, reading: Reading | None, failure: Exception | None) -> Ending | None:
    """Explicit stop > the model's own end, or an abort > condition > budget. Conditions that were met are told in any case."""
    met = tuple(reading.deciding()) if reading is not None else ()
    explicit = draft.explicit or run.stop_request
    if explicit is not None:
        told = f"Stopped by the {explicit.who}: {explicit.reason}"
        return Ending(StopReason.EXPLICIT_STOP, told, met, output=explicit.output, stopped_by=explicit.who, error=draft.error)
    if failure is not None:
        told = f"The stop condition {draft.settings.stop!r} raised {type(failure).__name__}: {failure}"
        return Ending(StopReason.ERROR, told, met, error=failure)
    if draft.decision.stop_reason is not None:
        return Ending(draft.decision.stop_reason, draft.decision.reason, met, error=draft.error)
    if met:
        return Ending(StopReason.STOP_CONDITION, f"Stop condition met: {', '.join(map(str, met))}.", met)
    spent = draft.settings.budget.exhausted(run.history, run.clock.elapsed_s())
    return None if spent is None else Ending(LIMIT_REASONS[spent.name], f"Budget reached: {spent}.")


def _record(run: Run, draft: Draft, reading: Reading | None, ending: Ending) -> None:
    """Put a step that was cut short into the history and end the run."""
    run.answer_open_calls(draft.tool_results)
    run.history.append(draft.step(run, NOTHING_READ, None, None))
    _finish(run, draft, reading, ending)


def _finish(run: Run, draft: Draft, reading: Reading | None, ending: Ending | None) -> StepResult:
    """Complete the newest step with what was read, tell of it, and end the run where there is an ending."""
    newest = run.history[-1]
    step = StepResult(
        newest.index,
        newest.calls,
        newest.tool_results,
        newest.usage,
        newest.cost,
        newest.decision,
        newest.settings,
        draft.settings.budget.remaining(run.history, run.clock.elapsed_s()),
        reading,
        newest.started_s,
        newest.duration_s,
        None if ending is None else ending.stop_reason,
        draft.error if ending is None or ending.error is None else ending.error,
    )
    run.history.amend(step)
    run.mark_step()
    run.emit(events.TurnCompleted(run.clock.elapsed_s(), step, run.history.usage))
    if ending is not None:
        run.end(ending)
    return step


async def _within(limit_s: float, run: Run, draft: Draft) -> None:
    """Ask and act, cut off where the budget's timeout is reached."""
    try:
        async with asyncio.timeout(limit_s) as scope:
            await _ask_and_act(run, draft)
    except TimeoutError:
        if not scope.expired():
            raise
        budget = draft.settings.budget
        draft.decision = Decision(
            Action.ABORT, f"Budget reached: timeout {budget.timeout:g} s.", StopReason.TIMEOUT, "increase_budget"
        )


async def _ask_and_act(run: Run, draft: Draft) -> None:
    try:
        response = await _ask(run, draft)
        for _ in range(MOST_RESUMES):
            if draft.decision.action is not Action.RESUME or _no_call_left(run, draft):
                break
            response = await _ask(run, draft)
        if draft.decision.action is Action.RESUME:
            said = f"The provider paused its turn and was not resumed after {len(draft.calls)} calls."
            draft.decision = Decision(Action.ABORT, said, StopReason.TRUNCATED, "increase_budget")
        if draft.decision.action is Action.EXECUTE_TOOLS:
            await _execute_tools(run, draft, response)
    except StopRequested as stop:  # from a middleware; a tool's becomes its result
        draft.in_flight = False
        draft.explicit = ExplicitStop(stop.reason, stop.output, "middleware")


async def _ask(run: Run, draft: Draft) -> ModelResponse:
    """One call of the model: its response is in the draft and in the conversation before anything else can happen."""
    agent = run.agent
    index = run.history.calls + len(draft.calls) + 1
    turn = len(run.history) + 1
    request = ModelRequest(
        run.conversation.view(),
        agent.instructions,
        agent.tool_specs,
        draft.settings.budget.output_cap(run.history.known_tokens + sum([call.usage.known_tokens for call in draft.calls])),
        agent.options,
        agent.stream,
    )
    retries = 0

    def on_retry(attempt: int, wait_s: float, reason: str) -> None:
        nonlocal retries
        retries = attempt
        run.emit(events.CallRetried(run.clock.elapsed_s(), turn, attempt, wait_s, reason))

    def on_text(text: str) -> None:
        if run.observers:
            run.emit(events.TextReceived(run.clock.elapsed_s(), turn, text))

    context = CallContext(run.transport, run.id, index, on_text, on_retry)
    started_s, started = run.clock.elapsed_s(), time.perf_counter()
    respond: Callable[[ModelRequest], Awaitable[ModelResponse]] = lambda asked: agent.model.respond(asked, context)  # noqa: E731
    if agent.middleware:
        respond = agent.through_middleware(respond)
    draft.in_flight = True
    try:
        response = await respond(request)
    except (ProviderStatusError, ConfigurationError, FixtureError):
        draft.in_flight = False  # refused: nothing was generated
        raise
    usage = _charged(run, draft, request, response)
    cost = cost_of(agent.model.name, response.model or agent.model.model, usage, response.cost_usd)
    duration_s = time.perf_counter() - started
    draft.in_flight = False
    draft.calls.append(ModelCall(index, response, usage, cost, started_s, duration_s, request.max_output_tokens, retries))
    draft.decision = decide(response)
    run.conversation.append(_assistant_message(response))
    signal = response.signal
    run.emit(
        events.StopReasonObserved(
            run.clock.elapsed_s(), agent.model.name, agent.model.model, signal.finish_reason, signal.raw_value, turn, index
        )
    )
    if usage.source is UsageSource.UNKNOWN:
        _tell_of_missing_usage(run, draft)
    return response


async def _execute_tools(run: Run, draft: Draft, response: ModelResponse) -> None:
    """Run the tools in the order they were asked for; the first that asks for a stop ends it, the rest is answered unexecuted."""
    turn = len(run.history) + 1
    for tool_call in response.tool_calls:
        run.emit(events.ToolStarted(run.clock.elapsed_s(), turn, tool_call))
        result = await execute(tool_call, run.agent.tools)
        draft.tool_results.append(result)
        run.emit(events.ToolFinished(run.clock.elapsed_s(), turn, result))
        if result.stop is not None:
            draft.explicit = ExplicitStop(result.stop.reason, result.stop.output, "tool")
            break


def _assistant_message(response: ModelResponse) -> Message:
    """What the conversation keeps of a response: calls that were cut off are left out, since no wire takes them back."""
    whole = tuple([call for call in response.tool_calls if not is_cut_off(call)]) if response.tool_calls else ()
    if len(whole) < len(response.tool_calls):
        return Message("assistant", response.text, whole)
    return Message("assistant", response.text, whole, native=response.native)


def _no_call_left(run: Run, draft: Draft) -> bool:
    """The budget, read before a further call inside the step: calls are counted exactly, tokens and cost with those of the step."""
    settings = run.limits.snapshot()
    budget, history = settings.budget, run.history
    if budget.max_calls is not None and history.calls + len(draft.calls) >= budget.max_calls:
        return True
    tokens = history.known_tokens + sum(call.usage.known_tokens for call in draft.calls)
    if budget.max_tokens is not None and tokens >= budget.max_tokens:
        return True
    cost_usd = history.known_cost_usd + sum(call.cost.usd or 0 for call in draft.calls)
    return budget.max_cost is not None and cost_usd >= budget.max_cost


# Usage that was not reported ------------------------------------------------------------------------------------------------


def _charged(run: Run, draft: Draft, request: ModelRequest, response: ModelResponse) -> Usage:
    """What counts against the budget: the reported usage, or where there is none what `Budget.missing_usage` says."""
    policy = draft.settings.budget.missing_usage
    if response.usage.total_tokens is not None or policy in ("warn", "fail"):
        return response.usage
    asked = run.conversation.characters + len(request.instructions) + sum(len(spec.parameters_json) for spec in request.tools)
    said = len(response.text) + len(response.reasoning) + sum(len(call.name + call.arguments) for call in response.tool_calls)
    output = -(-said // CHARACTERS_PER_TOKEN)
    source = UsageSource.ESTIMATED
    if policy == "charge_cap" and request.max_output_tokens is not None:
        output, source = request.max_output_tokens, UsageSource.CHARGED_CAP
    known = response.usage
    return replace(
        known,
        input_tokens=-(-asked // CHARACTERS_PER_TOKEN) if known.input_tokens is None else known.input_tokens,
        output_tokens=output if known.output_tokens is None else known.output_tokens,
        source=source,
    )


def _tell_of_missing_usage(run: Run, draft: Draft) -> None:
    budget = draft.settings.budget
    if budget.missing_usage == "fail":
        raise MissingUsageError(
            f"{run.agent.model.name} ({run.agent.model.model}) reported no usage, and Budget(missing_usage='fail') is set. "
            "Choose 'warn', 'estimate' or 'charge_cap' to go on without."
        )
    watched = [name for name in ("max_tokens", "max_cost") if getattr(budget, name) is not None]
    if draft.settings.stop is not None:
        watched += [
            type(leaf).__name__ for leaf in draft.settings.stop.leaves() if type(leaf).__name__ in ("MaxTokensUsed", "MaxCost")
        ]
    if watched:
        run.warn_once(
            f"{run.agent.model.name} ({run.agent.model.model}) reports no usage, so {' and '.join(watched)} cannot be watched. "
            "Budget(missing_usage='estimate') counts 4 characters as a token; 'charge_cap' charges the output cap."
        )

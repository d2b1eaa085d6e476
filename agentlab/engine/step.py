"""One step of a run: the model's answer, the tools it asked for, and whether the run ends.

    before    read the budget; if nothing is left, the run ends and no request is sent; if only the share for a last answer is left,
              the step asks for it
    ask       make one call, or more if the provider pauses or the answer is cut off: the table in turn.py
    decide    choose what to do with the response: termination.decide
    act       execute the tools in order, up to the first terminating one, remind the model to call one, or check a typed answer:
              tool_calls.py
    read      append the step to the history, then read the stop condition and the budget
    end       terminating tool > explicit stop > end of the model's turn, or an abort > condition > budget

If a cancel, an interrupt, a timeout or an error interrupts the step, the calls that came back and the tools that ran are still
recorded as a step before anything else happens.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from agentlab._internal.formatting import in_words as number_in_words
from agentlab._internal.redaction import in_words, redact
from agentlab.engine import call_context
from agentlab.engine.ask import BudgetExhausted
from agentlab.engine.call_context import RunContext
from agentlab.engine.control import StepSuspended, StopRequest
from agentlab.engine.plan import LAST_ANSWER, LIMIT_RAISED, Ending
from agentlab.engine.step_builder import StepBuilder
from agentlab.engine.timeline import Timeline
from agentlab.engine.tool_calls import check_output, execute_tools, give_up_children, remind
from agentlab.engine.turn import take_turn
from agentlab.errors import StopRequested
from agentlab.limits.budget import LIMIT_REASONS, DefaultTurns
from agentlab.limits.combinators import StopCondition
from agentlab.limits.conditions import HasToolCall
from agentlab.limits.evaluation import read_condition
from agentlab.limits.policies import INVOCATIONS_EXCEEDED
from agentlab.limits.reading import Action, Decision, Reading, Remaining
from agentlab.limits.settings import RunSettings
from agentlab.model.finish_reasons import StopReason
from agentlab.model.messages import Message, ToolResult
from agentlab.records import events
from agentlab.records.result import INCREASE_BUDGET
from agentlab.records.step import StepResult


async def take_step(run: RunContext) -> StepResult | None:
    """Take the next step and record it. `run.ending` is then why the run ends with it, or None.

    Returns None if the run ends without another step, or if the step waits for approval (`run.builder` is then kept, and the next call
    goes on with that step). A cancel is raised once the step is recorded, and so is an error that a person
    has to fix (`StepBuilder.fail`).
    """
    builder = run.builder
    if builder is None:
        run.ending = _before(run)
        if run.ending is not None:
            return None
        builder = _begin(run)
    try:
        await _ask_and_act(run, builder)
    except StepSuspended:
        return None
    except Exception as error:
        builder.fail(error)
    except BaseException as error:  # a cancel or an interrupt: record what is there, then raise it
        step = _append(run, builder, error)
        _complete(run, builder, step, None, _cancelled(f"during step {step.index}", error))
        raise
    step = _append(run, builder)
    try:
        reading, failure = await _read(run, builder)
    except BaseException as error:
        _complete(run, builder, step, None, _cancelled(f"after step {step.index}", error))
        raise
    ending, output = _end(run, builder, reading, failure), run.agent.output_type
    if ending is not None and output is not None:
        typed = output.accept(ending.output) if builder.output is None and ending.output is not None else builder.output
        ending = replace(ending, output=typed)
    _complete(run, builder, step, reading, ending)
    if builder.to_raise is not None:
        raise builder.to_raise
    return step


# before -------------------------------------------------------------------------------------------------------------------------


def _before(run: RunContext) -> Ending | None:
    """Return the ending if the budget of the run, or of the outermost run, has nothing left."""
    ending = _limit_reached(run, run.refresh_settings())
    if ending is None and (bound := call_context.outer_limit_reached(run)) is not None:
        ending = Ending(*bound)
    return ending


def _begin(run: RunContext) -> StepBuilder:
    timeline, settings = run.timeline, run.in_force
    started_s = timeline.clock.elapsed_s()
    run.builder = builder = StepBuilder(settings, started_s)
    timeline.emit(events.StepStarted(started_s, timeline.next_step, _remaining(timeline, settings, started_s)))
    builder.last_answer = _nearly_used_up(run, settings)
    if builder.last_answer:
        timeline.conversation.append(Message("system", LAST_ANSWER))
        timeline.emit(events.LastAnswerAsked(timeline.clock.elapsed_s(), timeline.next_step, builder.last_answer))
    return builder


def _remaining(timeline: Timeline, settings: RunSettings, now_s: float) -> Remaining:
    """Return what is left of the budget: that after the last step, if only the time has passed and has no limit."""
    history, budget = timeline.history, settings.budget
    last = history.last
    if last is not None and last.settings.budget is budget and budget.timeout is None and not history.cut_off:
        return last.remaining
    return budget.remaining(history, now_s)


def _nearly_used_up(run: RunContext, settings: RunSettings, before: str = "") -> str:
    """Return the limit of which only the share for a last answer is left, "" if there is none; `before` if it is still one."""
    if settings.budget.last_answer is None:
        return ""
    readings = settings.budget.before_last_answer().readings(run.timeline.history, run.timeline.clock.elapsed_s())
    met = sorted([one for one in readings if one.met], key=lambda one: isinstance(one.limit, DefaultTurns))
    names = [one.name for one in met]
    return before if before in names else names[0] if names else ""


def _limit_reached(run: RunContext, settings: RunSettings) -> Ending | None:
    """Return the ending if a limit of the budget or of the terminating tools is reached."""
    history, terminating = run.timeline.history, settings.terminating
    if terminating is not None and (calls := history.own_calls) >= terminating.max_invocations:
        detail = f"{INVOCATIONS_EXCEEDED}: {calls} of {terminating.max_invocations}, and no terminating tool was called."
        return Ending(StopReason.CALL_LIMIT, detail)
    budget = settings.budget
    reached = budget.exhausted(history, 0.0 if budget.timeout is None else run.timeline.clock.elapsed_s())
    if reached is None:
        return None
    default = ", the default: Budget(max_turns=…) raises it" if isinstance(reached.limit, DefaultTurns) else ""
    return Ending(LIMIT_REASONS[reached.name], f"Budget reached: {reached}{default}.")


def _after_last_answer(run: RunContext, settings: RunSettings, limit: str) -> Ending:
    """Return the ending after a last answer: that of the limit."""
    readings = settings.budget.readings(run.timeline.history, run.timeline.clock.elapsed_s())
    reading = next(one for one in readings if one.name == limit)
    return Ending(LIMIT_REASONS[limit], f"Budget reached: {reading}, with one last answer.")


# ask, decide, act ---------------------------------------------------------------------------------------------------------------


async def _ask_and_act(run: RunContext, builder: StepBuilder) -> None:
    """Ask the model and act on the answer, within the budget's timeout."""
    if builder.response is not None and (left_s := run.left_s) is not None and left_s <= 0:  # it was over while a call waited
        _out_of_time(run, builder, run.control.waits_for)
        give_up_children(run, builder)
        return
    try:
        async with asyncio.timeout(None) as run.deadline:
            run.set_deadline()
            await _act(run, builder)
    except TimeoutError as error:
        if run.deadline is None or not run.deadline.expired():
            raise
        cut = error.__cause__ or error.__context__  # the work that was interrupted; the cause is missing before Python 3.11.3
        _out_of_time(run, builder, builder.cut_during, *getattr(cut, "__notes__", ()))
    finally:
        run.deadline = None


def _out_of_time(run: RunContext, builder: StepBuilder, *during: str) -> None:
    """Decide to end the run at its timeout, `during` something."""
    where = "".join(f", while {one}" for one in during if one)
    reason = redact(f"Budget reached: timeout {number_in_words(run.timeout_s, 's')}{where}.")
    builder.decision = Decision(Action.ABORT, reason, StopReason.TIMEOUT, INCREASE_BUDGET)


async def _act(run: RunContext, builder: StepBuilder) -> None:
    try:
        if builder.response is None:
            builder.response = await take_turn(run, builder)
        response = builder.response
        output = run.agent.output_type
        is_answer = output is not None and [call.name for call in response.tool_calls] == [output.spec.name]
        if builder.decision.action is Action.EXECUTE_TOOLS and builder.last_answer and not is_answer:
            builder.decision = Decision(Action.ABORT, "The model called tools in its last answer.", None, INCREASE_BUDGET)
        elif builder.decision.action is Action.EXECUTE_TOOLS:
            await execute_tools(run, builder, response)
        elif builder.decision.action is Action.COMPLETE and output is not None:
            check_output(run, builder, output, response.text)
        elif builder.decision.action is Action.COMPLETE and builder.settings.terminating is not None and not builder.last_answer:
            remind(run, builder, builder.settings.terminating)
    except StopRequested as stop:  # from a middleware; that of a tool becomes its result
        builder.stop_request = StopRequest(stop.reason, stop.output, "middleware")
    except BudgetExhausted:
        builder.decision = Decision(Action.ABORT, "The budget left no further call.", None, INCREASE_BUDGET)


# read ---------------------------------------------------------------------------------------------------------------------------


def _append(run: RunContext, builder: StepBuilder, error: BaseException | None = None) -> StepResult:
    """Append the step to the history and return it. An interrupted step keeps the settings that it began with."""
    timeline = run.timeline
    if error is None:
        builder.settings = run.refresh_settings()
    else:
        builder.error = error
    step, run.builder = builder.build(timeline), None
    timeline.conversation.answer_open_calls(step.tool_results)
    timeline.append(step)
    if run.control.approvals.asked:
        run.control.approvals.clear()
    return step


def abandon(run: RunContext, builder: StepBuilder, ending: Ending) -> None:
    """Record the step that waits for approval, without the calls that were not executed: the run ends."""
    give_up_children(run, builder)
    builder.decision = Decision(Action.ABORT, ending.detail, ending.stop_reason, "retry")
    _complete(run, builder, _append(run, builder), None, ending)


async def _read(run: RunContext, builder: StepBuilder) -> tuple[Reading | None, Exception | None]:
    """Read the stop condition, with the new step in the history. Returns its reading, or the exception that it raised."""
    condition, timeout_s = builder.settings.stop, builder.settings.budget.timeout
    if condition is None:
        return None, None
    try:
        if not condition.may_wait:
            return condition.read(run.timeline.history), None
        left_s = None if timeout_s is None else max(0.0, timeout_s - run.timeline.clock.elapsed_s())
        return await read_condition(condition, run.timeline.history, left_s), None
    except Exception as error:
        return None, error


# end ----------------------------------------------------------------------------------------------------------------------------


def _end(run: RunContext, builder: StepBuilder, reading: Reading | None, failure: Exception | None) -> Ending | None:
    """Return why the run ends, or None: terminating tool > explicit stop > end of the model's turn, or an abort > condition > budget.

    Conditions that were met are listed in every case.
    """
    met = tuple(reading.deciding()) if reading is not None else ()
    if (done := builder.terminating) is not None:
        output = done.stop.output if done.stop is not None else done.value
        return Ending(StopReason.TERMINATING_TOOL, f"The terminating tool {done.name} was called.", met, output=output)
    request = builder.stop_request or run.control.stop_request
    if request is not None:
        return replace(stopped(request), conditions_met=met, error=builder.error)
    if failure is not None:
        detail = f"The stop condition {builder.settings.stop!r} raised {in_words(failure)}"
        return Ending(StopReason.ERROR, detail, met, error=failure)
    decided = builder.decision.stop_reason
    if builder.last_answer and decided in (None, StopReason.COMPLETED, StopReason.TIMEOUT):
        if limit := _nearly_used_up(run, builder.settings, builder.last_answer):
            return replace(_after_last_answer(run, builder.settings, limit), conditions_met=met)
        if not met:  # the limit was raised meanwhile
            run.timeline.conversation.append(Message("system", LIMIT_RAISED))
            return None
    if decided not in (None, StopReason.TIMEOUT, StopReason.TOKEN_BUDGET):
        return Ending(decided, builder.decision.reason, met, error=builder.error)
    if met:
        detail = f"Stop condition met: {', '.join(map(str, met))}."
        return Ending(
            StopReason.STOP_CONDITION, detail, met, output=goal_output(builder.settings.stop, met, builder.tool_results)
        )
    is_cut_for_last_answer = decided is StopReason.TIMEOUT and _nearly_used_up(run, builder.settings) == "timeout"
    if decided is not None and not is_cut_for_last_answer:
        return Ending(decided, builder.decision.reason)
    return _limit_reached(run, builder.settings)


def stopped(request: StopRequest) -> Ending:
    """Return the ending of a run that a person, a tool or a middleware stopped."""
    detail = f"Stopped by the {request.who}: {redact(request.reason)}"
    return Ending(StopReason.EXPLICIT_STOP, detail, output=request.output, stopped_by=request.who)


def _cancelled(when: str, error: BaseException) -> Ending:
    return Ending(StopReason.CANCELLED, f"Cancelled {when}.", error=error)


def goal_output(stop: StopCondition | None, met: Sequence[Reading], results: Sequence[ToolResult]) -> object:
    """Return the value of the tool that a `HasToolCall` waited for: the final answer for `HasToolCall("finalize")`. None unless one of
    the met conditions is a goal."""
    leaves = stop.leaves(that_count=True) if stop is not None and any(one.goal for one in met) else ()
    names = {name for leaf in leaves if isinstance(leaf, HasToolCall) for name in leaf.names}
    return next((result.value for result in reversed(results) if result.name in names and not result.is_error), None)


def _complete(run: RunContext, builder: StepBuilder, step: StepResult, reading: Reading | None, ending: Ending | None) -> None:
    """Add the readings to the step and notify the observers."""
    timeline = run.timeline
    if ending is not None and builder.notice and "cut off" not in ending.detail:
        full_stop = "" if ending.detail.endswith((".", "!", "?")) else "."
        ending = replace(ending, detail=f"{ending.detail}{full_stop} {builder.notice}")
    now_s = timeline.clock.elapsed_s()
    builder.complete(step, builder.settings.budget.remaining(timeline.history, now_s), reading, ending)
    run.ending = ending
    timeline.complete()
    timeline.emit(events.StepCompleted(now_s, step, timeline.history.usage))

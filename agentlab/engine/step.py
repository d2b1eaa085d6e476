"""One step of a run: the model's answer, the tools it asked for, and whether the run ends.

    before    the budget is read; with nothing left the run ends and no call is started
    ask       one call, or more where the provider pauses its turn, or the answer was cut: the table in turns.py
    decide    what follows from the response (termination.decide)
    act       the tools, in order, up to the first terminating one; or the reminder that one is to be called
    record    the step goes into the history
    read      stop condition and budget, the new step included
    end       terminating tool > explicit stop > the model's own end, or an abort > condition > budget

Whatever breaks into this (a cancel, an interrupt, a time-out, an error) the calls that came back and the tools that ran are
recorded as a step before anything else happens.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from agentlab import events
from agentlab.amounts import in_words as number_in_words
from agentlab.budget import LIMIT_REASONS, DefaultTurns
from agentlab.conversation import NOT_DONE
from agentlab.engine import call_context
from agentlab.engine.ask import BudgetExhausted, StepBuilder, StopRequest
from agentlab.engine.turn import take_turn
from agentlab.errors import (
    ConfigurationError,
    FixtureError,
    MissingUsageError,
    ProviderError,
    StopRequested,
)
from agentlab.evaluate import read_condition
from agentlab.redaction import in_words, known_hidden, without_keys
from agentlab.results import Action, Decision, Reading, Remaining, StepResult
from agentlab.settings import RunSettings
from agentlab.shelter import GRACE_S, sheltered
from agentlab.stop import HasToolCall
from agentlab.suggestions import INCREASE_BUDGET, MODIFY_PROMPT, for_failure
from agentlab.terminating import TerminatingTools
from agentlab.tools import INTERRUPTED, Executed, carried_out
from agentlab.types import (
    Message,
    ModelResponse,
    StopReason,
    ToolCall,
    ToolResult,
)

if TYPE_CHECKING:
    from agentlab.engine.stepper import Stepper

NOTHING_READ = Remaining()


@dataclass(frozen=True, slots=True)
class Ending:
    """Why the run ends, in the words of RunResult."""

    stop_reason: StopReason
    detail: str
    conditions_met: tuple[Reading, ...] = ()
    output: object = None
    stopped_by: str = ""
    error: BaseException | None = None


async def take_step(run: Stepper) -> StepResult | None:
    """Take the next step of `run`, record it, and end the run if it is to end.

    None where the run ended without another step. After recording, what a person has to mend is raised (a ConfigurationError, a
    FixtureError, a bug in a model of one's own), and so is a cancellation. What a policy or a middleware raises is in the result, as
    what a stop condition raises is.
    """
    settings = run.refresh_settings()
    started_s = run.clock.elapsed_s()
    if (spent := _spent(run, settings, started_s)) is not None:
        run.end(spent)
        return None
    if (bound := call_context.bound_from_above(run)) is not None:
        run.end(Ending(*bound))
        return None
    run.draft = draft = StepBuilder(settings, started_s)
    run.emit(events.TurnStarted(started_s, len(run.history) + 1, settings.budget.remaining(run.history, started_s)))
    try:
        if settings.budget.timeout is None:
            await _ask_and_act(run, draft)
        else:
            await _within(settings.budget.timeout - started_s, run, draft)
    except Exception as error:
        draft.error = error
        whose = draft.fault[0] if draft.fault[1] is error else ""
        said = f"{whose} raised {in_words(error)}" if whose else in_words(error)
        draft.decision = Decision(Action.ABORT, said, StopReason.ERROR, for_failure(error))
        raises = not isinstance(error, ProviderError | MissingUsageError) and (
            not whose or isinstance(error, ConfigurationError | FixtureError)
        )
    except BaseException as error:  # a cancel or an interrupt: record what is there, then let it pass
        draft.error = error
        _record(run, draft, None, Ending(StopReason.CANCELLED, f"Cancelled during step {len(run.history) + 1}.", error=error))
        raise
    step = await evaluate_step(run, draft)
    if draft.error is not None and raises:
        raise draft.error
    return step


async def evaluate_step(run: Stepper, draft: StepBuilder) -> StepResult:
    """Read condition and budget with the new step in the history, and end the run by the first reason that holds."""
    run.conversation.answer_open_calls(draft.tool_results)
    draft.settings = run.refresh_settings()
    _append(run, draft)
    reading: Reading | None = None
    failure: Exception | None = None
    if draft.settings.stop is not None:
        try:
            timeout_s = draft.settings.budget.timeout
            left_s = None if timeout_s is None else max(0.0, timeout_s - run.clock.elapsed_s())
            reading = await read_condition(draft.settings.stop, run.history, left_s)
        except Exception as error:
            failure = error
        except BaseException as error:
            draft.error = error
            _finish(run, draft, None, Ending(StopReason.CANCELLED, f"Cancelled after step {len(run.history)}.", error=error))
            raise
    return _finish(run, draft, reading, _why_it_ends(run, draft, reading, failure))


def _why_it_ends(run: Stepper, draft: StepBuilder, reading: Reading | None, failure: Exception | None) -> Ending | None:
    """Terminating tool > explicit stop > the model's own end, or an abort > condition > budget. Conditions that were met are told in
    any case."""
    met = tuple(reading.deciding()) if reading is not None else ()
    if (done := draft.terminating) is not None:
        output = done.stop.output if done.stop is not None else done.value
        return Ending(StopReason.TERMINATING_TOOL, f"The terminating tool {done.name} was called.", met, output=output)
    explicit = draft.explicit or run.stop_request
    if explicit is not None:
        told = f"Stopped by the {explicit.who}: {without_keys(explicit.reason)}"
        return Ending(StopReason.EXPLICIT_STOP, told, met, output=explicit.output, stopped_by=explicit.who, error=draft.error)
    if failure is not None:
        told = f"The stop condition {draft.settings.stop!r} raised {in_words(failure)}"
        return Ending(StopReason.ERROR, told, met, error=failure)
    decided = draft.decision.stop_reason
    if decided is not None and decided is not StopReason.TIMEOUT:
        return Ending(decided, draft.decision.reason, met, error=draft.error)
    if met:
        told = f"Stop condition met: {', '.join(map(str, met))}."
        return Ending(StopReason.STOP_CONDITION, told, met, output=goal_output(draft) if any(one.goal for one in met) else None)
    if decided is not None:
        return Ending(decided, draft.decision.reason)
    return _spent(run, draft.settings, run.clock.elapsed_s())


def _spent(run: Stepper, settings: RunSettings, elapsed_s: float) -> Ending | None:
    """The end by a limit on what the run may use, where one is met."""
    terminating, calls = settings.terminating, run.history.own_calls
    if terminating is not None and calls >= terminating.max_invocations:
        told = f"The model was called {calls} times (max_invocations), and no terminating tool was."
        return Ending(StopReason.CALL_LIMIT, told)
    spent = settings.budget.exhausted(run.history, elapsed_s)
    if spent is None:
        return None
    default = ", which is the default: Budget(max_turns=…) raises it" if isinstance(spent.limit, DefaultTurns) else ""
    return Ending(LIMIT_REASONS[spent.name], f"Budget reached: {spent}{default}.")


def goal_output(draft: StepBuilder) -> object:
    """What the tool gave whose call was to end the run: with `HasToolCall("finalize")`, the answer that was handed in."""
    leaves = draft.settings.stop.leaves(that_count=True) if draft.settings.stop is not None else ()
    names = {name for leaf in leaves if isinstance(leaf, HasToolCall) for name in leaf.names}
    return next((result.value for result in reversed(draft.tool_results) if result.name in names and not result.is_error), None)


def _record(run: Stepper, draft: StepBuilder, reading: Reading | None, ending: Ending) -> None:
    """Put a step that was cut short into the history and end the run."""
    run.conversation.answer_open_calls(draft.tool_results)
    _append(run, draft)
    _finish(run, draft, reading, ending)


def _append(run: Stepper, draft: StepBuilder) -> None:
    """Put the step into the history, which counts it from here on."""
    step, run.draft = draft.step(run, NOTHING_READ, None, None), None
    run.history.append(step)


def _finish(run: Stepper, draft: StepBuilder, reading: Reading | None, ending: Ending | None) -> StepResult:
    """Complete the newest step with what was read, tell of it, and end the run where there is an ending."""
    newest = run.history[-1]
    if ending is not None and draft.notice and "cut off" not in ending.detail:
        end = "" if ending.detail.endswith((".", "!", "?")) else "."
        ending = replace(ending, detail=f"{ending.detail}{end} {draft.notice}")
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
        newest.answer,
        newest.children,
        newest.seams,
    )
    run.history.amend(step)
    run.mark_step(ending)
    run.emit(events.TurnCompleted(run.clock.elapsed_s(), step, run.history.usage))
    if ending is not None:
        run.end(ending)
    return step


async def _within(limit_s: float, run: Stepper, draft: StepBuilder) -> None:
    """Ask and act, cut off where the budget's timeout is reached."""
    try:
        async with asyncio.timeout(limit_s) as scope:
            await _ask_and_act(run, draft)
    except TimeoutError as error:
        if not scope.expired():
            raise
        where = "".join(f", while {note}" for note in getattr(error.__cause__, "__notes__", ()))  # what was waited for
        told = without_keys(f"Budget reached: timeout {number_in_words(draft.settings.budget.timeout, 's')}{where}.")
        draft.decision = Decision(Action.ABORT, told, StopReason.TIMEOUT, INCREASE_BUDGET)


async def _ask_and_act(run: Stepper, draft: StepBuilder) -> None:
    try:
        response = await take_turn(run, draft)
        if draft.decision.action is Action.EXECUTE_TOOLS:
            await _execute_tools(run, draft, response)
        elif draft.decision.action is Action.COMPLETE and draft.settings.terminating is not None:
            _remind(run, draft, draft.settings.terminating)
    except StopRequested as stop:  # from a middleware; a tool's becomes its result
        draft.explicit = StopRequest(stop.reason, stop.output, "middleware")
    except BudgetExhausted:
        draft.decision = Decision(Action.ABORT, "The budget left nothing for a further call.", None, INCREASE_BUDGET)


def _remind(run: Stepper, draft: StepBuilder, terminating: TerminatingTools) -> None:
    """An answer that calls no tool does not end a run that has terminating tools: it is answered with the reminder, so many times."""
    before = 0
    for step in reversed(run.history):
        if step.decision.action is not Action.NUDGE:
            break
        before += 1
    if before >= terminating.consecutive_nudges:
        told = (
            f"Max consecutive nudges exceeded: {before} of {terminating.consecutive_nudges}, and no terminating tool was called."
        )
        draft.decision = Decision(Action.ABORT, told, StopReason.NUDGES_EXHAUSTED, MODIFY_PROMPT)
        return
    draft.decision = Decision(Action.NUDGE, "The answer calls no terminating tool; the model is reminded.")
    run.conversation.append(Message("system", terminating.nudge_message))
    run.emit(events.Nudged(run.clock.elapsed_s(), len(run.history) + 1, before + 1, terminating.consecutive_nudges))


async def _execute_tools(run: Stepper, draft: StepBuilder, response: ModelResponse) -> None:
    """Run the tools in the order they were asked for; the first that asks for a stop ends it, and so does the first terminating one
    that succeeds. After a stop the rest is answered unexecuted; after a terminating tool it is taken out of the conversation."""
    turn = len(run.history) + 1
    terminating = draft.settings.terminating
    for number, tool_call in enumerate(response.tool_calls, 1):
        run.emit(events.ToolStarted(run.clock.elapsed_s(), turn, tool_call))
        started = time.perf_counter()
        here = call_context.enter(run, draft, tool_call)
        try:
            if run.agent.tool_middleware and tool_call.closed:
                executed = await _through_middleware(run, draft, tool_call)
            else:
                executed = await _called(run, tool_call)
        except BaseException:  # an interrupt: what the tool did until then is not known
            cut_s = time.perf_counter() - started
            result = ToolResult(tool_call.id, tool_call.name, INTERRUPTED, None, "interrupted", tool_call.arguments, cut_s)
            _tool_done(run, draft, result)
            raise
        finally:
            call_context.leave(here)
        result = executed.result
        _tool_done(run, draft, result)
        if executed.cut is not None:
            raise executed.cut
        if terminating is not None and tool_call.name in terminating.tools and not result.is_error:
            draft.terminating = result
            if number < len(response.tool_calls):
                run.conversation.replace_last(Message("assistant", response.text, response.tool_calls[:number]))
            break
        if result.stop is not None:
            draft.explicit = StopRequest(result.stop.reason, result.stop.output, "tool")
            break


async def _through_middleware(run: Stepper, draft: StepBuilder, tool_call: ToolCall) -> Executed:
    """A call with the middleware around it. Whatever ends it, the result of what was executed last is kept."""
    started = time.perf_counter()
    done: list[tuple[ToolCall, ToolResult]] = []

    async def execute(call: ToolCall) -> ToolResult:
        if (call.id, call.name, call.closed) != (tool_call.id, tool_call.name, True):
            raise ConfigurationError(
                f"A middleware made {call!r} of {tool_call!r}: change its arguments only, as in replace(call, arguments=…)."
            )
        executed = await _called(run, call)
        done.append((call, executed.result))
        if executed.cut is not None:
            raise executed.cut
        return executed.result

    cut: BaseException | None = None
    result = ToolResult(tool_call.id, tool_call.name, NOT_DONE, None, "not_executed")
    try:
        result = await run.agent.through_tool_middleware(execute, draft.blame)(tool_call)
    except (Exception, asyncio.CancelledError) as error:  # a stop too
        cut = error
        result = done[-1][1] if done else result
    call, plain = done[-1] if done else (tool_call, None)
    changed = ["arguments"] if call.arguments != tool_call.arguments else []
    changed += [] if result is plain else ["result"]
    result = replace(
        result,
        call_id=tool_call.id,
        name=tool_call.name,
        content=known_hidden(result.content),
        arguments=tool_call.arguments,
        duration_s=time.perf_counter() - started,
        executed_arguments=call.arguments if call.arguments != tool_call.arguments else None,
        middleware=" and ".join(changed) if done else "" if cut is not None else "answer",
    )
    return Executed(result, cut)


async def _called(run: Stepper, tool_call: ToolCall) -> Executed:
    """What came of a call, and the cancel that had to wait for it."""
    if run.holds and (refused := await _refused(run, tool_call)) is not None:
        return Executed(refused)
    executed = await _kept_from_cancel(run, tool_call)
    if executed.left_behind:
        run.warn_once(
            f"The tool {tool_call.name!r} did not end within {GRACE_S:g} s of its cancel and was left behind: it may still be "
            "running. Have it let asyncio.CancelledError pass."
        )
    return executed


async def _refused(run: Stepper, tool_call: ToolCall) -> ToolResult | None:
    """The result of a call that is not to be executed again: it may have run in a try at this step that ended with its process."""
    turn = len(run.history) + 1
    this = (turn, tool_call.id)
    before = [
        hold
        for hold in run.holds
        if hold.call.name == tool_call.name and (hold.answered is None or (hold.answered, hold.by) == this)
    ]
    if not before:
        return None
    run.holds = tuple([replace(hold, answered=turn, by=tool_call.id) if hold in before else hold for hold in run.holds])
    again, failed = run.again or run.outermost.again, ""
    try:
        allowed = False if again is None else again(tool_call)
        if await allowed if inspect.isawaitable(allowed) else allowed:
            return None
    except Exception as error:  # without an answer it is not executed
        failed = f" Whether to execute it again could not be asked: again raised {in_words(error).rstrip('.')}."
    said = (
        f"Not executed. {tool_call.name} was begun before, and the process ended in that step: it may have run already, with "
        f"{' and '.join(hold.call.arguments for hold in before)}. Find out whether it did before you call it again.{failed}"
    )
    return ToolResult(tool_call.id, tool_call.name, said, None, "may_have_run", tool_call.arguments)


async def _kept_from_cancel(run: Stepper, tool_call: ToolCall) -> Executed:
    """The same: a tool whose `on_cancel` is "wait" is not cut off."""
    tools = run.agent.tools
    target = tools.get(tool_call.name)
    if target is None or target.on_cancel == "cancel":
        return await carried_out(tool_call, tools)
    try:
        await asyncio.sleep(0)
    except asyncio.CancelledError as cut:  # it was on its way: the tool is not begun any more, and that is known
        return Executed(ToolResult(tool_call.id, tool_call.name, NOT_DONE, None, "not_executed", tool_call.arguments, 0.0), cut)
    run.waits_for_tool = True
    try:
        executed, waited = await sheltered(carried_out(tool_call, tools))
        return executed if waited is None else replace(executed, cut=waited)
    finally:
        run.waits_for_tool = False


def _tool_done(run: Stepper, draft: StepBuilder, result: ToolResult) -> None:
    draft.tool_results.append(result)
    run.emit(events.ToolFinished(run.clock.elapsed_s(), len(run.history) + 1, result))

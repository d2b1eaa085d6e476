"""The part of a step that acts: executes the tools that the model called, reminds it to call a terminating one, or
checks a typed answer.

A tool that needs approval is executed once a person has decided; until then the step is left (`StepSuspended`).
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import time
from collections.abc import Awaitable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from fnmatch import fnmatchcase

import pydantic

from agentlab._internal.asyncio_tools import GRACE_S, sheltered
from agentlab._internal.formatting import counted
from agentlab._internal.redaction import in_words, redact_known
from agentlab.engine import call_context
from agentlab.engine.call_context import RunContext
from agentlab.engine.control import Given, PendingCall, StepSuspended, StopRequest
from agentlab.engine.step_builder import Share, StepBuilder
from agentlab.errors import ConfigurationError
from agentlab.limits.evaluation import read_condition
from agentlab.limits.policies import NUDGES_EXCEEDED, TerminatingTools
from agentlab.limits.reading import Action, Decision
from agentlab.model.conversation import NOT_DONE
from agentlab.model.finish_reasons import StopReason
from agentlab.model.messages import Message, ToolCall, ToolResult
from agentlab.model.responses import ModelResponse
from agentlab.records import events
from agentlab.records.result import MODIFY_PROMPT
from agentlab.tools import INTERRUPTED, Executed, Tool, execute_call, schemas
from agentlab.tools.outputs import OutputType

REFUSED = "The person refused this call. It was not executed."
UNDECIDED = "This call could not be approved. It was not executed."


def remind(run: RunContext, builder: StepBuilder, terminating: TerminatingTools) -> None:
    """Remind a model that called no tool to call a terminating one, up to `consecutive_nudges` times."""
    timeline, before = run.timeline, 0
    for step in reversed(timeline.history):
        if step.decision.action is not Action.NUDGE:
            break
        before += 1
    if before >= terminating.consecutive_nudges:
        reason = f"{NUDGES_EXCEEDED}: {before} of {terminating.consecutive_nudges}, and no terminating tool was called."
        builder.decision = Decision(Action.ABORT, reason, StopReason.NUDGES_EXHAUSTED, MODIFY_PROMPT)
        return
    builder.decision = Decision(Action.NUDGE, "The answer calls no terminating tool; the model is reminded.")
    timeline.conversation.append(Message("system", terminating.nudge_message))
    now_s = timeline.clock.elapsed_s()
    timeline.emit(events.Nudged(now_s, timeline.next_step, before + 1, terminating.consecutive_nudges))


def check_output(run: RunContext, builder: StepBuilder, output: OutputType, text: str) -> None:
    """Check a text as the typed answer. If it does not fit, the model is asked again, as often as `output_retries` allows."""
    checked = output.read(text)
    if not checked.problems:
        builder.output = checked.value
    elif _reject_output(run, builder, output, checked.problems):
        form = output.form_for(run.agent.model, run.agent.tools)
        how = (
            f"Call the tool {output.spec.name}." if form == "tool" else "Answer with JSON that fits the schema, and nothing else."
        )
        run.timeline.conversation.append(Message("system", f"The answer does not fit {output.name}: {checked.problems}\n{how}"))


def _reject_output(run: RunContext, builder: StepBuilder, output: OutputType, problems: str) -> bool:
    """Decide to ask for another answer; False if the model was asked often enough, and the run ends."""
    timeline, before = run.timeline, 0
    for step in reversed(timeline.history):
        if step.decision.action in (Action.COMPLETE, Action.ABORT):  # a fork asked something else
            break
        before += step.decision.action is Action.REJECT_OUTPUT
    if before >= run.agent.output_retries:
        answers = counted(before + 1, "answer")
        reason = f"{answers} did not fit {output.name}. The last one: {problems}"
        builder.decision = Decision(Action.ABORT, reason, StopReason.INVALID_OUTPUT, MODIFY_PROMPT)
        return False
    builder.decision = Decision(
        Action.REJECT_OUTPUT, f"The answer does not fit {output.name}; the model is asked again: {problems}"
    )
    now_s = timeline.clock.elapsed_s()
    timeline.emit(events.OutputRejected(now_s, timeline.next_step, before + 1, run.agent.output_retries, problems))
    return True


async def execute_tools(run: RunContext, builder: StepBuilder, response: ModelResponse) -> None:
    """Execute the tool calls in order, up to the first that requests a stop or the first terminating tool that succeeds. Neighbours
    whose tools are all `parallel` run at the same time, once a person has decided on those that need approval.

    After a stop, the remaining calls get a result that says they were not executed. After a terminating tool, they are removed from
    the conversation. A typed answer that fits ends the run like a terminating tool.
    """
    timeline, terminating, output = run.timeline, builder.settings.terminating, run.agent.output_type
    number = 0
    for calls in _together(run, builder, response):
        number += len(calls)
        todo = calls
        if builder.tool_results:  # some ended before the step waited for approval
            done = {result.call_id for result in builder.tool_results}
            todo = [call for call in calls if call.id not in done]
        given: list[Given | None] = [None] * len(todo)
        for place in range(len(todo)):
            if run.limits.snapshot().approve or run.control.approvals.asked:
                given[place] = await _approval_of(run, builder, (*todo[place:], *response.tool_calls[number:]))
        if len(todo) == 1:
            cut = await _execute_and_record(run, builder, todo[0], given[0])
        else:
            cut = await _execute_at_once(run, builder, todo, given) if todo else None
        if len(calls) > 1:
            _put_in_order(builder, response)
        if cut is not None:
            give_up_children(run, builder)
            raise cut
        if any(call.id in builder.waiting_children for call in calls):  # their results come when the child runs continue
            raise StepSuspended
        results = builder.tool_results
        if len(results) > len(calls):
            ids = {call.id for call in calls}
            results = [result for result in results if result.call_id in ids]
        last = results[-1]  # a terminating tool is never executed with others
        is_answer = output is not None and last.name == output.spec.name
        if not last.is_error and (is_answer or (terminating is not None and last.name in terminating.tools)):
            builder.terminating = last
            builder.output = last.value if is_answer else None
            if number < len(response.tool_calls):
                timeline.conversation.replace_last(Message("assistant", response.text, response.tool_calls[:number]))
            break
        stop = next((result.stop for result in results if result.stop is not None), None)
        if stop is not None:
            builder.stop_request = StopRequest(stop.reason, stop.output, "tool")
            break
    if output is not None and builder.terminating is None:
        rejected = [one.content for one in builder.tool_results if one.name == output.spec.name and one.is_error]
        if rejected:
            _reject_output(run, builder, output, rejected[0].partition(": ")[2] or rejected[0])


def _together(run: RunContext, builder: StepBuilder, response: ModelResponse) -> Iterator[list[ToolCall]]:
    """Yield the calls that may run at the same time: neighbours whose tools are all parallel; any other call alone."""
    tools, terminating = run.agent.tools, builder.settings.terminating
    ends = () if terminating is None else terminating.tools

    if len(response.tool_calls) == 1:
        yield list(response.tool_calls)
        return

    def is_parallel(tool_call: ToolCall) -> bool:
        target = tools.get(tool_call.name)
        return target is not None and target.parallel and tool_call.name not in ends

    for parallel, group in itertools.groupby(response.tool_calls, is_parallel):
        calls = list(group)
        yield from [calls] if parallel else [[tool_call] for tool_call in calls]


async def _execute_at_once(
    run: RunContext, builder: StepBuilder, calls: Sequence[ToolCall], given: Sequence[Given | None]
) -> BaseException | None:
    """Execute calls at the same time, each in its task, until all have ended. Returns what has to be raised then.

    A cancel or a timeout of the step reaches each of them; an interrupt by a person in one of them cancels the others.
    """
    sub_agents = [call for call in calls if getattr(run.agent.tools[call.name].function, "ends_when_cancelled", False)]
    if len(sub_agents) > 1 and sub_agents[0].id not in builder.shares:
        before = run.used()
        builder.shares = {call.id: Share(call.name, place, len(sub_agents), before) for place, call in enumerate(sub_agents)}
    tasks = [
        asyncio.create_task(_execute_and_record(run, builder, call, one), name=f"agentlab-call-{call.name}")
        for call, one in zip(calls, given, strict=True)
    ]
    running, cut = set(tasks), None
    try:
        while running:
            try:
                done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                interrupted = any(isinstance(_cut_of(task), KeyboardInterrupt) for task in done)
            except asyncio.CancelledError as error:
                cut, interrupted = cut or error, True
                running = {task for task in running if not task.done()}
            for task in tasks if interrupted else ():
                task.cancel()
    finally:
        for task in running:  # if this coroutine itself was closed
            task.cancel()
    cuts = [one for task in tasks if (one := _cut_of(task)) is not None]
    return next((one for one in cuts if isinstance(one, KeyboardInterrupt)), cut or (cuts[0] if cuts else None))


def _cut_of(task: asyncio.Task[BaseException | None]) -> BaseException | None:
    return None if task.cancelled() else task.result()  # cancelled before it began: nothing was executed


async def _execute_and_record(
    run: RunContext, builder: StepBuilder, tool_call: ToolCall, given: Given | None
) -> BaseException | None:
    """Execute a call and record its result, unless a child run of it waits for approval. Returns what has to be raised then."""
    timeline = run.timeline
    if tool_call.id not in builder.started_tools:
        builder.started_tools.add(tool_call.id)
        timeline.emit(events.ToolStarted(timeline.clock.elapsed_s(), timeline.next_step, tool_call))
    started = time.perf_counter()
    token = call_context.enter(run, builder, tool_call)
    try:
        output = run.agent.output_type
        if output is not None and tool_call.name == output.spec.name:
            executed = Executed(output.read_call(tool_call))
        elif given is None:
            executed = await _execution(run, builder, tool_call)
        else:
            executed = await _carry_out(run, builder, tool_call, given)
    except BaseException as error:  # an interrupt: the effect of the tool so far is unknown
        cut_s = time.perf_counter() - started
        result = ToolResult(tool_call.id, tool_call.name, INTERRUPTED, None, "interrupted", tool_call.arguments, cut_s)
        executed = Executed(_with_decision(result, tool_call, given), error)
    finally:
        call_context.leave(token)
    if executed.cut is not None or tool_call.id not in builder.waiting_children:
        builder.tool_results.append(executed.result)
        timeline.emit(events.ToolFinished(timeline.clock.elapsed_s(), timeline.next_step, executed.result))
    return executed.cut


def _put_in_order(builder: StepBuilder, response: ModelResponse) -> None:
    """Put results and child runs in the order of the calls."""
    place_of = {call.id: place for place, call in enumerate(response.tool_calls)}
    builder.tool_results.sort(key=lambda result: place_of[result.call_id])
    builder.children.sort(key=lambda child: place_of.get(child.call_id, 0))


def give_up_children(run: RunContext, builder: StepBuilder) -> None:
    """Record the usage of the child runs that wait for approval, and cancel them: the step is over."""
    for waiting in tuple(builder.waiting_children.values()):
        waiting.give_up()
    builder.waiting_children.clear()
    run.control.below = ()


# Approval -----------------------------------------------------------------------------------------------------------------------


async def _approval_of(run: RunContext, builder: StepBuilder, calls: Sequence[ToolCall]) -> Given | None:
    """Return the decision on the first of these calls, None if nobody has to be asked. Raises StepSuspended until there is one.

    All calls of the step that need approval are asked about at once.
    """
    approvals, first = run.control.approvals, calls[0]
    if first.id in builder.waiting_children:  # it has begun
        return approvals.given.get(first.id)
    if first.id not in approvals.asked:
        by_condition = await _condition_met(run, builder)
        new_calls = [call for call in calls if call.id not in approvals.asked and call.id not in builder.waiting_children]
        reasons = [(call, _why(run, call, by_condition)) for call in new_calls]
        if not reasons[0][1]:
            return None
        step, now = run.timeline.next_step, datetime.now(UTC)
        new = [(call, why) for call, why in reasons if why]
        approvals.ask([PendingCall(call.id, call.name, call.arguments, step, why, now, run.run_id) for call, why in new])
        approvals.waits_at = first.id
        for call, why in new:
            run.timeline.emit(events.ApprovalRequested(run.timeline.clock.elapsed_s(), step, call, why))
    approvals.waits_at = first.id
    if first.id not in approvals.given:
        raise StepSuspended
    return approvals.given[first.id]


def _why(run: RunContext, tool_call: ToolCall, by_condition: str) -> str:
    """Return why a person is asked before this call, "" if nobody is. A call that cannot be executed needs no approval."""
    if tool_call.name not in run.agent.tools or not tool_call.closed:
        return ""
    patterns = [part for part in run.limits.snapshot().approve if isinstance(part, str) and fnmatchcase(tool_call.name, part)]
    if "*" in patterns:
        return "every tool is asked about"
    return f"approve has {patterns[0]!r}" if patterns else by_condition


async def _condition_met(run: RunContext, builder: StepBuilder) -> str:
    """Return which condition of `approve` is met, with the step under way in the history, else which is unknown; "" if none."""
    conditions = [part for part in run.limits.snapshot().approve if not isinstance(part, str)]
    if not conditions:
        return ""
    history = run.timeline.history.prefix(len(run.timeline.history))
    history.append(builder.build(run.timeline))
    unknown = ""
    for condition in conditions:
        try:
            reading = await read_condition(condition, history)
        except Exception as error:
            return f"{condition!r} raised {in_words(error)}"
        if reading.met:
            return ", ".join(map(str, reading.deciding()))
        if reading.met is None and not condition.is_off and not unknown:
            open_parts = [str(part) for part in (reading.that_counts() or reading).leaves() if part.met is None]
            unknown = f"unknown whether this condition is met: {', '.join(open_parts)}"
    return unknown


async def _carry_out(run: RunContext, builder: StepBuilder, tool_call: ToolCall, given: Given) -> Executed:
    """Do what the person decided about a call."""
    approval, call = given.approval, tool_call
    if approval.decision in ("approved", "edited"):
        call = call if approval.arguments is None else replace(call, arguments=approval.arguments)
        executed = await _execution(run, builder, call)
    elif approval.decision == "answered":
        text = redact_known(approval.text)
        executed = Executed(ToolResult(call.id, call.name, text, text))
    else:
        text = UNDECIDED if given.cause else f"The person refused: {approval.text}" if approval.text else REFUSED
        executed = Executed(ToolResult(call.id, call.name, redact_known(text), None, "refused"))
    executed.result = _with_decision(executed.result, tool_call, given)
    return executed


def problem_with(arguments: str, target: Tool) -> str:
    """Return why the arguments do not fit a tool, "" if they do."""
    try:
        target.validate(arguments)
    except pydantic.ValidationError as error:
        return schemas.problems(error)
    except Exception as error:  # a validator raised what pydantic does not catch, such as a KeyError
        return f"their validation raised {in_words(error)}"
    return ""


def _with_decision(result: ToolResult, tool_call: ToolCall, given: Given | None) -> ToolResult:
    """Add a person's decision to the result of a call."""
    if given is None:
        return result
    executed = result.executed_arguments or given.approval.arguments
    decision = given.approval.decision
    return replace(result, arguments=tool_call.arguments, executed_arguments=executed, approval=decision, waited_s=given.waited_s)


# Execution ----------------------------------------------------------------------------------------------------------------------


def _execution(run: RunContext, builder: StepBuilder, tool_call: ToolCall) -> Awaitable[Executed]:
    """Execute a call, with the middleware around it if there is any."""
    if run.agent.tool_middleware and tool_call.closed:
        return _through_middleware(run, builder, tool_call)
    return _execute(run, tool_call)


async def _through_middleware(run: RunContext, builder: StepBuilder, tool_call: ToolCall) -> Executed:
    """Execute a call with the middleware around it. If the middleware fails, the result of the last execution is kept."""
    started = time.perf_counter()
    done: list[tuple[ToolCall, ToolResult]] = []

    async def execute(call: ToolCall) -> ToolResult:
        if (call.id, call.name, call.closed) != (tool_call.id, tool_call.name, True):
            raise ConfigurationError(
                f"A middleware changed {tool_call!r} to {call!r}: change only its arguments, as in replace(call, arguments=…)."
            )
        executed = await _execute(run, call)
        done.append((call, executed.result))
        if executed.cut is not None:
            raise executed.cut
        return executed.result

    cut: BaseException | None = None
    result = ToolResult(tool_call.id, tool_call.name, NOT_DONE, None, "not_executed")
    try:
        result = await run.agent.through_tool_middleware(execute, builder.blame)(tool_call)
    except (Exception, asyncio.CancelledError) as error:  # including StopRequested
        cut = error
        result = done[-1][1] if done else result
    call, plain = done[-1] if done else (tool_call, None)
    changed = ["arguments"] if call.arguments != tool_call.arguments else []
    changed += [] if result is plain else ["result"]
    result = replace(
        result,
        call_id=tool_call.id,
        name=tool_call.name,
        content=redact_known(result.content),
        arguments=tool_call.arguments,
        duration_s=time.perf_counter() - started,
        executed_arguments=call.arguments if call.arguments != tool_call.arguments else None,
        middleware=" and ".join(changed) if done else "" if cut is not None else "answer",
    )
    return Executed(result, cut)


async def _execute(run: RunContext, tool_call: ToolCall) -> Executed:
    """Execute one call, unless it is held. Returns the result, and the cancel that was delayed by it."""
    if run.holds and (refused := await _refused(run, tool_call)) is not None:
        return Executed(refused)
    tools = run.agent.tools
    target = tools.get(tool_call.name)
    if target is None or target.on_cancel == "cancel":
        executed = await execute_call(tool_call, tools)
    else:
        executed = await _execute_to_the_end(run, tool_call)
    if executed.left_behind:
        run.timeline.warn_once(
            f"The tool {tool_call.name!r} did not end within {GRACE_S:g} s of its cancel and was left behind: it may still be "
            "running. It must not suppress asyncio.CancelledError."
        )
    return executed


async def _execute_to_the_end(run: RunContext, tool_call: ToolCall) -> Executed:
    """Execute a tool whose `on_cancel` is "wait": a cancel waits until it is done."""
    try:
        await asyncio.sleep(0)
    except asyncio.CancelledError as cut:  # cancelled before the start: the tool did not run
        return Executed(ToolResult(tool_call.id, tool_call.name, NOT_DONE, None, "not_executed", tool_call.arguments, 0.0), cut)
    run.waits_for_tool += 1
    try:
        executed, waited = await sheltered(execute_call(tool_call, run.agent.tools))
        return executed if waited is None else replace(executed, cut=waited)
    finally:
        run.waits_for_tool -= 1


async def _refused(run: RunContext, tool_call: ToolCall) -> ToolResult | None:
    """Return an error result for a held call, which may have run before its process died; None if it may be executed."""
    step = run.timeline.next_step
    this = (step, tool_call.id)
    before = [
        hold
        for hold in run.holds
        if hold.call.name == tool_call.name and (hold.answered is None or (hold.answered, hold.by) == this)
    ]
    if not before:
        return None
    run.holds = tuple([replace(hold, answered=step, by=tool_call.id) if hold in before else hold for hold in run.holds])
    if tool_call.id in run.control.approvals.given:
        return None
    again, failed = run.again or run.outermost.again, ""
    try:
        allowed = False if again is None else again(tool_call)
        if await allowed if inspect.isawaitable(allowed) else allowed:
            return None
    except Exception as error:  # not executed without permission
        failed = f" Whether to execute it again could not be asked: again raised {in_words(error).rstrip('.')}."
    content = (
        f"Not executed. {tool_call.name} was begun before, and the process ended in that step: it may have run already, with "
        f"{' and '.join(hold.call.arguments for hold in before)}. Find out whether it did before you call it again.{failed}"
    )
    return ToolResult(tool_call.id, tool_call.name, content, None, "may_have_run", tool_call.arguments)

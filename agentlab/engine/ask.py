"""The part of a step that asks the model: one or more round trips, their cost, and the decision on the response."""

from __future__ import annotations

import inspect
import time
from dataclasses import replace
from datetime import UTC, datetime

from agentlab._internal.asyncio_tools import name_of
from agentlab._internal.redaction import in_words
from agentlab.engine import call_context
from agentlab.engine.call_context import RunContext
from agentlab.engine.client import CallContext
from agentlab.engine.continuation import ContinuationRequest, least_tokens
from agentlab.engine.step_builder import StepBuilder
from agentlab.engine.termination import DecisionContext, Policy, checked, is_cut_off, standard
from agentlab.errors import (
    ConfigurationError,
    FixtureError,
    MissingUsageError,
    ProviderError,
    ProviderStatusError,
    ProviderStreamError,
    ReplayMissError,
)
from agentlab.limits.budget import TOTAL_OF
from agentlab.limits.conditions import MaxOutputTokens
from agentlab.limits.reading import Action, Decision
from agentlab.limits.settings import RunSettings
from agentlab.model.finish_reasons import StopReason
from agentlab.model.messages import Message, ModelRequest
from agentlab.model.pricing import cost_of
from agentlab.model.responses import ModelResponse, RateLimit
from agentlab.model.usage import Cost, CostSource, Usage, UsageSource
from agentlab.providers.finish_detection import log_signal
from agentlab.providers.wires.read import unique_call_ids
from agentlab.records import events
from agentlab.records.result import advice_for
from agentlab.records.step import ModelCall, Seam

CHARACTERS_PER_TOKEN = 4

MAX_REPEATS = 2
"""How often the model is asked again after a stream lost a piece; less if RetryPolicy(attempts=…) allows fewer retries."""


class BudgetExhausted(Exception):  # noqa: N818  a signal that ends the step, not an error
    """The budget leaves no further call in this step."""


async def ask(run: RunContext, builder: StepBuilder, continuation: ContinuationRequest | None = None) -> ModelResponse:
    """Ask the model, and record the response in the builder and in the conversation before any other code runs.

    A middleware may ask several times, or answer itself. Every answer that came back counts as a call of the step, used or not.
    With `continuation`, ask for the rest of the newest answer and merge the two.
    """
    before = len(builder.calls)
    if before:
        builder.calls[-1] = replace(builder.calls[-1], decision=builder.decision)
    request, response, failure = await _ask_until_complete(run, builder, continuation)
    response = _add_to_answer(run, builder, response, continuation, before)
    builder.decision = await _decide(run, builder, request, response)
    for call in builder.calls[before:] if before else builder.calls:
        known = call.usage.total_tokens is not None
        if (not known or call.cost.usd is None) and run.warned_unknown != (builder.settings, known):
            _warn_of_unknown_use(run, builder.settings, call)
            run.warned_unknown = (builder.settings, known)
    if failure is not None:
        raise failure
    return response


def _add_to_answer(
    run: RunContext, builder: StepBuilder, response: ModelResponse, continuation: ContinuationRequest | None, before: int
) -> ModelResponse:
    """Add the response to the conversation, as a message or merged into the newest one, and record the seam between two texts."""
    conversation, number = run.timeline.conversation, builder.calls[-1].index
    if continuation is None:
        conversation.append(_assistant_message(response))
        if builder.answer is not None:  # the answer was continued, then paused and resumed
            builder.parts.append(builder.answer.text)
            builder.answer = response
        if before and response.text:
            merged = builder.answer is not None
            so_far = builder.parts if merged else [call.response.text for call in builder.calls[:before] if call.used]
            if any(so_far):
                builder.seams.append(Seam(number, sum(map(len, so_far))))
        return response
    if builder.answer is None and before > 1:  # the answer was paused and resumed, then cut off
        builder.parts = [call.response.text for call in builder.calls[: before - 1] if call.used]
    response, seam = continuation.merge(response, number)
    if seam is not None:
        builder.seams.append(replace(seam, place=seam.place + sum(map(len, builder.parts))))
    builder.answer = response
    conversation.replace_last(_assistant_message(response))
    return response


async def _decide(run: RunContext, builder: StepBuilder, request: ModelRequest, response: ModelResponse) -> Decision:
    """Decide what to do with a response: by the standard table, or by the run's policy."""
    timeline, policy = run.timeline, builder.settings.policy
    context = DecisionContext(
        response, timeline.next_step, len(builder.calls), request.max_output_tokens, builder.settings, timeline.history
    )
    return standard(response.signal, context) if policy is None else await _decide_by(policy, builder, response, context)


async def _decide_by(policy: Policy, builder: StepBuilder, response: ModelResponse, context: DecisionContext) -> Decision:
    try:
        decision = policy(response.signal, context)
        if not isinstance(decision, Decision) and inspect.isawaitable(decision):
            decision = await decision
    except Exception as error:
        builder.blame(f"The policy {name_of(policy)}", error)
        raise
    try:
        return checked(decision, policy, context)
    except ConfigurationError as error:
        builder.error = error
        return Decision(Action.ABORT, str(error), StopReason.ERROR, advice_for(error))


async def _ask_until_complete(
    run: RunContext, builder: StepBuilder, continuation: ContinuationRequest | None
) -> tuple[ModelRequest, ModelResponse, ProviderStreamError | None]:
    """Ask the model, and ask again if the stream lost a piece: no tool call of such an answer has been executed.

    Returns the request, the last answer, and an error if that answer is incomplete too.
    """
    start, attempt = len(builder.calls), 0
    request, response = await _ask_once(run, builder, continuation)
    while response.is_spoilt:
        decision = await _decide(run, builder, request, response)
        if decision.action is not Action.ASK_AGAIN:
            break
        here, retry = len(builder.calls), getattr(run.agent.model, "retry", None)
        most = MAX_REPEATS if retry is None else min(MAX_REPEATS, retry.attempts - 1)
        if attempt >= most:
            tries = "1 retry" if attempt == 1 else f"{attempt} retries"
            why = f"{tries} did not give a complete one" if most else "no retry is allowed"
            return request, response, _stream_error(run, response, why)
        if no_call_left(run, builder):
            return request, response, _stream_error(run, response, "the budget leaves no call for a retry")
        attempt += 1
        timeline, index = run.timeline, builder.calls[-1].index
        now_s = timeline.clock.elapsed_s()
        timeline.emit(events.AskedAgain(now_s, timeline.next_step, index, attempt, most - attempt, response.holes))
        try:
            request, response = await _ask_once(run, builder, continuation)
        except ReplayMissError:
            return request, response, _stream_error(run, response, "the recording has no other answer")
        except ProviderError as error:
            failure = _stream_error(run, response, f"a retry failed: {in_words(error)}")
            failure.__cause__ = error
            return request, response, failure
        builder.calls[here - 1] = replace(builder.calls[here - 1], decision=decision)
        builder.calls[start:here] = [replace(call, used=False) for call in builder.calls[start:here]]
    return request, response, None


def _stream_error(run: RunContext, response: ModelResponse, why: str) -> ProviderStreamError:
    return ProviderStreamError(
        f"{_name(run)}: a piece of the streamed answer was lost ({response.holes[0]}), and {why.rstrip('.')}. The received text "
        "is kept. Try again; if the error persists, check for a proxy that alters the stream."
    )


def _name(run: RunContext) -> str:
    return f"{run.agent.model.name} ({run.agent.model.model})"


async def _ask_once(
    run: RunContext, builder: StepBuilder, continuation: ContinuationRequest | None
) -> tuple[ModelRequest, ModelResponse]:
    """Ask the model once, through the middleware."""
    agent, timeline, before = run.agent, run.timeline, len(builder.calls)
    tools, schema = agent.tool_specs, None
    if (output := agent.output_type) is not None:
        form = output.form_for(agent.model, tools or agent.options.get("tools") or ())
        schema = output.schema_in(form)
        tools = (*tools, output.spec) if schema is None else tools
    request = ModelRequest(
        timeline.conversation.view(None if continuation is None else continuation.messages),
        agent.instructions,
        tools,
        _output_cap(run, builder, continuation),
        agent.options,
        agent.stream,
        agent.parameters,
        schema,
    )
    if builder.last_answer:
        request = _with_tool_choice(run, request, "none" if output is None or schema is not None else output.spec.name)
    if not agent.middleware:
        return request, await _send(run, builder, request)

    async def send(asked: ModelRequest) -> ModelResponse:
        try:
            return await _send(run, builder, asked)
        except Exception as error:
            builder.blame("", error)  # not the fault of the middleware that it passes through
            raise

    try:
        response = await agent.through_middleware(send, builder.blame)(request)
    except BaseException:
        if len(builder.calls) > before and continuation is None:
            timeline.conversation.append(_assistant_message(builder.calls[-1].response))
        raise
    return request, choose_response(run, builder, request, response, before)


def _with_tool_choice(run: RunContext, request: ModelRequest, choice: str) -> ModelRequest:
    """Return the request with the tool choice `none`, or the tool of a typed answer; `auto` if the provider refuses that, such as
    Bedrock. All tools are still sent: some providers require them where the conversation has calls."""
    asked = replace(request, parameters=replace(request.parameters, tool_choice=choice))
    build = getattr(getattr(run.agent.model, "provider", None), "build_request", None)
    try:
        if build is not None and request.tools:
            build(asked)
    except ConfigurationError:
        return replace(request, parameters=replace(request.parameters, tool_choice=None))
    return asked


def _output_cap(run: RunContext, builder: StepBuilder, continuation: ContinuationRequest | None) -> int | None:
    """Return the output cap of a request in tokens: the cap per step, lowered to what the budget leaves."""
    budget, known = run.budget_of(builder.settings), run.timeline.history.known_tokens + builder.known_tokens
    if continuation is None or continuation.cap is None:
        return budget.output_cap(known)
    if budget.max_tokens is None:
        return continuation.cap
    return min(continuation.cap, max(least_tokens(builder.calls), budget.max_tokens - known))  # the least, before a last answer


async def _send(run: RunContext, builder: StepBuilder, request: ModelRequest) -> ModelResponse:
    """Make one round trip and record the response. Raises BudgetExhausted if the budget leaves no further call in this step."""
    if builder.calls_made and no_call_left(run, builder):
        raise BudgetExhausted
    timeline, agent = run.timeline, run.agent
    index, step = timeline.history.own_calls + builder.calls_made + 1, timeline.next_step
    is_below, retries = run.outermost is not run, 0

    def on_retry(attempt: int, wait_s: float, reason: str, rate_limit: RateLimit | None = None) -> None:
        nonlocal retries
        retries = attempt
        timeline.emit(events.CallRetried(timeline.clock.elapsed_s(), step, attempt, wait_s, reason, rate_limit))

    def on_text(text: str) -> None:
        if timeline.observers:
            timeline.emit(events.TextReceived(timeline.clock.elapsed_s(), step, text, index))

    def on_arguments(tool: str, text: str, place: int) -> None:
        if timeline.observers:
            timeline.emit(events.ArgumentsReceived(timeline.clock.elapsed_s(), step, tool, text, place, index))

    context = CallContext(run.transport, run.replay_key, index, on_text, on_retry, on_arguments)
    started_s, started = timeline.clock.elapsed_s(), time.perf_counter()
    builder.open_calls += 1
    if is_below:
        call_context.count_outside_history(run, calls=1)
    try:
        response = await agent.model.respond(request, context)
        if response.tool_calls:
            response = unique_call_ids(response)
    except (ProviderStatusError, ConfigurationError, FixtureError):
        builder.open_calls -= 1  # refused: nothing was generated
        call_context.count_outside_history(run, calls=-1)
        raise
    builder.open_calls -= 1
    record_call(run, builder, request, response, index, started_s, time.perf_counter() - started, retries)
    return response


def record_call(  # noqa: PLR0917  all of them describe the call
    run: RunContext,
    builder: StepBuilder,
    request: ModelRequest,
    response: ModelResponse,
    index: int,
    started_s: float,
    duration_s: float,
    retries: int,
) -> None:
    """Add a response to the step, with its cost, and emit why it ended."""
    timeline, model, signal = run.timeline, run.agent.model, response.signal
    usage = _charged_usage(run, builder, request, response)
    if response.cost_usd is not None:
        cost = Cost(response.cost_usd, CostSource.REPORTED)
    else:
        at = datetime.now(UTC) if response.source is None else response.source.at  # without HTTP, the answer was made just now
        address, named = getattr(model, "address", ""), response.model or model.model
        cost = cost_of(model.name, named, usage, at=at, address=address, requested=model.model)
    log_signal(signal, model.name, model.model)
    builder.calls.append(ModelCall(index, response, usage, cost, started_s, duration_s, request.max_output_tokens, retries))
    if run.outermost is not run:
        call_context.count_outside_history(run, tokens=usage.known_tokens, cost_usd=cost.known_usd)
    now_s = timeline.clock.elapsed_s()
    timeline.emit(
        events.StopReasonObserved(
            now_s, model.name, model.model, signal.finish_reason, signal.raw_value, timeline.next_step, index
        )
    )


def choose_response(
    run: RunContext, builder: StepBuilder, request: ModelRequest, response: ModelResponse, before: int
) -> ModelResponse:
    """Make the response that a middleware returned the last call of the step; its other calls are kept and marked as not used."""
    made = builder.calls[before:]
    if not made:  # the middleware answered itself, for example from a cache
        response = unique_call_ids(response)
        timeline = run.timeline
        index, now_s = timeline.history.own_calls + before + 1, timeline.clock.elapsed_s()
        record_call(run, builder, request, response, index, now_s, 0.0, 0)
        return response
    chosen = next((call for call in made if call.response is response), made[-1])
    original = chosen.response
    if response is not original and (response.text, response.tool_calls) != (original.text, original.tool_calls):
        response = unique_call_ids(replace(response, native=None))  # the native form has the text before the middleware's changes
    unused = [replace(call, used=False) for call in made if call is not chosen]
    builder.calls[before:] = [*unused, replace(chosen, response=response)]
    return response


def _assistant_message(response: ModelResponse) -> Message:
    """Return the message for the conversation, without calls that were cut off: providers reject them."""
    calls = response.tool_calls
    if any(map(is_cut_off, calls)):
        return Message("assistant", response.text, tuple([call for call in calls if not is_cut_off(call)]))
    return Message("assistant", response.text, calls, native=response.native)


def no_call_left(run: RunContext, builder: StepBuilder) -> bool:
    """True if the budget allows no further call within the step; the tokens and cost of this step count."""
    settings, history = run.settings_now(), run.timeline.history
    budget, terminating, made = run.budget_of(settings), settings.terminating, builder.calls_made
    return (
        (budget.max_calls is not None and history.calls + made >= budget.max_calls)
        or (terminating is not None and history.own_calls + made >= terminating.max_invocations)
        or (budget.max_tokens is not None and history.known_tokens + builder.known_tokens >= budget.max_tokens)
        or (budget.max_cost is not None and history.known_cost_usd + builder.known_cost_usd >= budget.max_cost)
        or call_context.outer_limit_reached(run) is not None
    )


# Usage that was not reported ----------------------------------------------------------------------------------------------------


def _charged_usage(run: RunContext, builder: StepBuilder, request: ModelRequest, response: ModelResponse) -> Usage:
    """Return the usage that counts against the budget: as reported, or else by the rule in `Budget.missing_usage`."""
    policy, known = builder.settings.budget.missing_usage, response.usage
    if known.total_tokens is not None or policy in ("warn", "fail"):
        return known
    sent = run.timeline.conversation.characters + len(request.instructions)
    sent += sum(len(spec.parameters_json) for spec in request.tools)
    received = len(response.text) + len(response.reasoning) + sum(len(call.name + call.arguments) for call in response.tool_calls)
    output, source = -(-received // CHARACTERS_PER_TOKEN), UsageSource.ESTIMATED
    if policy == "charge_cap" and request.max_output_tokens is not None:
        output, source = request.max_output_tokens, UsageSource.CHARGED_CAP
    return replace(
        known,
        input_tokens=-(-sent // CHARACTERS_PER_TOKEN) if known.input_tokens is None else known.input_tokens,
        output_tokens=output if known.output_tokens is None else known.output_tokens,
        source=source,
    )


def _warn_of_unknown_use(run: RunContext, settings: RunSettings, call: ModelCall) -> None:
    """Warn of limits toward which only a part counts, since the usage or the price is unknown."""
    model, warn_once = _name(run), run.timeline.warn_once
    if call.usage.total_tokens is not None:
        limits = _limits_on(settings, "cost")
        if limits:
            why = f"{call.cost.reason} " if call.cost.reason else ""
            warn_once(
                f"The price of {model} is not known, so only what is known counts toward {limits}. {why}Limit the tokens instead."
            )
        return
    if settings.budget.missing_usage == "fail":
        raise MissingUsageError(
            f"{model} reported no usage, and Budget(missing_usage='fail') is set. "
            "Choose 'warn', 'estimate' or 'charge_cap' to continue without it."
        )
    unknown = ["tokens", *(["cost"] if call.cost.usd is None else []), *(["output"] if call.usage.output_tokens is None else [])]
    limits = _limits_on(settings, *unknown)
    if limits:
        part = "no" if call.usage.known_tokens == 0 else "only a part of the"
        warn_once(
            f"{model} reports {part} usage, so only what is known counts toward {limits}. "
            "Budget(missing_usage='estimate') counts 4 characters as a token; 'charge_cap' charges the output cap."
        )


def _limits_on(settings: RunSettings, *totals: str) -> str:
    """Return the names of the limits that are set on these totals: fields of the budget, and leaves of the stop condition."""
    names = [name for name, total in TOTAL_OF.items() if total in totals and getattr(settings.budget, name) is not None]
    if settings.stop is not None:
        for leaf in settings.stop.leaves(that_count=True):
            if ("output" if isinstance(leaf, MaxOutputTokens) else leaf.total) in totals:
                names.append(type(leaf).__name__)
    return " and ".join(dict.fromkeys(names))

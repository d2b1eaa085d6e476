"""Asking the model within a step: the draft that what comes back is put into, one round trip or several, and what they cost."""

from __future__ import annotations

import inspect
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from agentlab import events
from agentlab.engine import call_context
from agentlab.engine.client import CallContext
from agentlab.engine.continuation import ContinuationRequest
from agentlab.errors import (
    ConfigurationError,
    FixtureError,
    MissingUsageError,
    ProviderError,
    ProviderStatusError,
    ProviderStreamError,
    ReplayMissError,
)
from agentlab.predicates import name_of
from agentlab.pricing import cost_of
from agentlab.providers.finish_detection import log_signal
from agentlab.providers.wires.read import with_ids_of_their_own
from agentlab.redaction import in_words
from agentlab.results import Action, ChildUse, Decision, ModelCall, Reading, Remaining, Seam, StepResult
from agentlab.settings import RunSettings
from agentlab.stop import MaxCost, MaxTokensUsed, StopCondition
from agentlab.termination import DecisionContext, Policy, checked, is_cut_off, standard
from agentlab.types import (
    Cost,
    Message,
    ModelRequest,
    ModelResponse,
    RateLimit,
    StopReason,
    ToolCall,
    ToolResult,
    Usage,
    UsageSource,
    moved,
)
from agentlab.usage import FREE, NOTHING_USED, add_cost, add_usage

if TYPE_CHECKING:
    from agentlab.engine.stepper import Stepper
    from agentlab.history import RunHistory

CHARACTERS_PER_TOKEN = 4

MOST_ASKED_AGAIN = 2
"""How often an answer that lost a piece is asked for again; less where RetryPolicy(attempts=…) allows fewer retries."""

_UNKNOWN_USAGE = Usage()
_UNKNOWN_COST = Cost(reason="A call was begun and never came back.")
_CANCELLED = Decision(Action.ABORT, "The step was cut short.", StopReason.CANCELLED, "retry")


@dataclass(frozen=True, slots=True)
class StopRequest:
    """Somebody asked for the end: `who` is `tool`, `middleware` or `person`."""

    reason: str
    output: object
    who: str


@dataclass(frozen=True, slots=True)
class Hold:
    """A call that may have run in a step which ended with its process: its tool is not called again without a question.

    `answered` is the step in which the tool was called again, None before that. A branch that begins before that step is held too.
    `by` is that call's id: a middleware that executes the same call twice is held twice.
    """

    call: ToolCall
    answered: int | None = None
    by: str = ""

    def at(self, steps: int) -> Hold:
        """The hold as it is after so many steps of its run."""
        return self if self.answered is None or self.answered <= steps else Hold(self.call)


class StepBuilder:
    """A step under way."""

    __slots__ = (
        "answer",
        "calls",
        "children",
        "decision",
        "error",
        "explicit",
        "fault",
        "notice",
        "open_calls",
        "open_children",
        "parts",
        "seams",
        "settings",
        "started_s",
        "terminating",
        "tool_results",
    )

    def __init__(self, settings: RunSettings, started_s: float) -> None:
        self.settings = settings
        self.started_s = started_s
        self.calls: list[ModelCall] = []
        self.tool_results: list[ToolResult] = []
        self.children: list[ChildUse] = []
        self.open_calls = 0
        self.open_children: dict[Stepper, tuple[RunHistory, str]] = {}
        self.decision = _CANCELLED
        self.error: BaseException | None = None
        self.explicit: StopRequest | None = None
        self.fault: tuple[str, Exception | None] = ("", None)
        self.answer: ModelResponse | None = None
        self.parts: list[str] = []
        self.seams: list[Seam] = []
        self.terminating: ToolResult | None = None
        self.notice = ""

    def step(self, run: Stepper, remaining: Remaining, readings: Reading | None, stop_reason: StopReason | None) -> StepResult:
        """The draft as a step. A call that was begun and never came back may have cost something: the sums are then unknown."""
        usage, cost = (_UNKNOWN_USAGE, _UNKNOWN_COST) if self.open_calls else (NOTHING_USED, FREE)
        if len(self.calls) == 1 and not self.open_calls:
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
            self.whole_answer(),
            (*run.history.cut_off, *self.children),
            tuple(self.seams),
        )

    def blame(self, whom: str, error: Exception) -> None:
        """Note what raised an exception, "" for the call itself; who lets it pass is not to blame."""
        if self.fault[1] is not error:
            self.fault = (whom, error)

    def whole_answer(self) -> ModelResponse | None:
        """What several calls came to, where some of it was put together; with what a paused turn had said before (`parts`)."""
        if self.answer is None or not self.parts:
            return self.answer
        before = "".join(self.parts)
        return replace(self.answer, text=before + self.answer.text, holes=moved(self.answer.holes, len(before)))


class BudgetExhausted(Exception):  # noqa: N818  a signal to the step, which ends there
    """A middleware asks the model again and the budget is used up."""


async def ask(run: Stepper, draft: StepBuilder, going_on: ContinuationRequest | None = None) -> ModelResponse:
    """Ask the model: its response is in the draft and in the conversation before anything else can happen.

    A middleware may ask several times, or answer of its own. Each answer that came back is a call of the step, whatever becomes of it.
    `going_on` asks for the rest of the newest answer, which is then put together with it.
    """
    before = len(draft.calls)
    if before:
        draft.calls[-1] = replace(draft.calls[-1], decision=draft.decision)
    request, response, lost = await _ask_again_while_lost(run, draft, going_on)
    number = draft.calls[-1].index
    if going_on is None:
        run.conversation.append(_assistant_message(response))
        if draft.answer is not None:  # a turn that was continued, then paused and resumed
            draft.parts.append(draft.answer.text)
            draft.answer = response
        so_far = draft.parts if draft.answer is not None else [call.response.text for call in draft.calls[:before] if call.used]
        if response.text and any(so_far):
            draft.seams.append(Seam(number, sum(map(len, so_far))))
    else:
        if draft.answer is None and before > 1:  # a turn that was paused and resumed, then cut
            draft.parts = [call.response.text for call in draft.calls[: before - 1] if call.used]
        response, seam = going_on.put_together(response, number)
        if seam is not None:
            draft.seams.append(replace(seam, place=seam.place + sum(map(len, draft.parts))))
        draft.answer = response
        run.conversation.replace_last(_assistant_message(response))
    draft.decision = await _decided(run, draft, request, response)
    for call in draft.calls[before:]:
        known = call.usage.total_tokens is not None
        if (not known or call.cost.usd is None) and run.told_unknown != (draft.settings, known):
            _tell_of_what_is_unknown(run, draft, call)
            run.told_unknown = (draft.settings, known)
    if lost is not None:
        raise lost
    return response


async def _decided(run: Stepper, draft: StepBuilder, request: ModelRequest, response: ModelResponse) -> Decision:
    """What follows from a response."""
    context = DecisionContext(
        response, len(run.history) + 1, len(draft.calls), request.max_output_tokens, draft.settings, run.history
    )
    policy = draft.settings.policy
    return standard(response.signal, context) if policy is None else await _by(policy, draft, response, context)


async def _ask_again_while_lost(
    run: Stepper, draft: StepBuilder, going_on: ContinuationRequest | None
) -> tuple[ModelRequest, ModelResponse, ProviderStreamError | None]:
    """Ask the model, and again where its answer lost a piece on its way: nothing of it has been executed. Returns an error with the
    answer that has to do where no whole one came."""
    start, attempt = len(draft.calls), 0
    request, response = await _asked(run, draft, going_on)
    while response.is_spoilt:
        decision = await _decided(run, draft, request, response)
        if decision.action is not Action.ASK_AGAIN:
            break
        here, retry = len(draft.calls), getattr(run.agent.model, "retry", None)
        most = MOST_ASKED_AGAIN if retry is None else min(MOST_ASKED_AGAIN, retry.attempts - 1)
        if attempt >= most:
            asked = f"asked for again {attempt} time{'s' * (attempt != 1)}, it came no better" if most else "no retry is allowed"
            return request, response, _lost(run, response, asked)
        if no_call_left(run, draft):
            return request, response, _lost(run, response, "the budget leaves no call to ask for it again")
        attempt += 1
        turn, index = len(run.history) + 1, draft.calls[-1].index
        run.emit(events.AskedAgain(run.clock.elapsed_s(), turn, index, attempt, most - attempt, response.holes))
        try:
            request, response = await _asked(run, draft, going_on)
        except ReplayMissError:
            return request, response, _lost(run, response, "the recording has no other answer")
        except ProviderError as error:
            lost = _lost(run, response, f"asking for it again failed: {in_words(error)}")
            lost.__cause__ = error
            return request, response, lost
        draft.calls[here - 1] = replace(draft.calls[here - 1], decision=decision)
        draft.calls[start:here] = [replace(call, used=False) for call in draft.calls[start:here]]
    return request, response, None


def _lost(run: Stepper, response: ModelResponse, why: str) -> ProviderStreamError:
    who = f"{run.agent.model.name} ({run.agent.model.model})"
    return ProviderStreamError(
        f"{who}: a piece of the streamed answer was lost ({response.holes[0]}), and {why.rstrip('.')}. What came is kept. "
        "Try again; if it stays, look for what changes the stream on its way, such as a proxy."
    )


async def _asked(run: Stepper, draft: StepBuilder, going_on: ContinuationRequest | None) -> tuple[ModelRequest, ModelResponse]:
    """Ask the model once, through the middleware."""
    agent, before = run.agent, len(draft.calls)
    budget, known = draft.settings.budget, run.history.known_tokens + sum([call.usage.known_tokens for call in draft.calls])
    cap = budget.output_cap(known)
    if going_on is not None and going_on.cap is not None:
        cap = going_on.cap if budget.max_tokens is None else min(going_on.cap, max(1, budget.max_tokens - known))
    request = ModelRequest(
        run.conversation.view(None if going_on is None else going_on.messages),
        agent.instructions,
        agent.tool_specs,
        cap,
        agent.options,
        agent.stream,
    )
    if not agent.middleware:
        response = await _send(run, draft, request)
    else:
        try:
            response = await agent.through_middleware(lambda asked: _through(run, draft, asked), draft.blame)(request)
        except BaseException:
            if len(draft.calls) > before and going_on is None:
                run.conversation.append(_assistant_message(draft.calls[-1].response))
            raise
        response = choose_response(run, draft, request, response, before)
    return request, response


async def _by(policy: Policy, draft: StepBuilder, response: ModelResponse, context: DecisionContext) -> Decision:
    """What a policy decides, which may have to be awaited."""
    try:
        decision = policy(response.signal, context)
        if not isinstance(decision, Decision) and inspect.isawaitable(decision):
            decision = await decision
    except Exception as error:
        draft.blame(f"The policy {name_of(policy)}", error)
        raise
    return checked(decision, policy, context)


async def _through(run: Stepper, draft: StepBuilder, request: ModelRequest) -> ModelResponse:
    """One round trip for a middleware: what fails here is not its fault, whatever it lets pass."""
    try:
        return await _send(run, draft, request)
    except Exception as error:
        draft.blame("", error)
        raise


async def _send(run: Stepper, draft: StepBuilder, request: ModelRequest) -> ModelResponse:
    """One round trip; what comes back is in the draft."""
    if (draft.calls or draft.open_calls) and no_call_left(run, draft):
        raise BudgetExhausted
    agent = run.agent
    index = run.history.own_calls + len(draft.calls) + draft.open_calls + 1
    turn = len(run.history) + 1
    retries = 0

    def on_retry(attempt: int, wait_s: float, reason: str, rate_limit: RateLimit | None = None) -> None:
        nonlocal retries
        retries = attempt
        run.emit(events.CallRetried(run.clock.elapsed_s(), turn, attempt, wait_s, reason, rate_limit))

    def on_text(text: str) -> None:
        if run.observers:
            run.emit(events.TextReceived(run.clock.elapsed_s(), turn, text, index))

    context = CallContext(run.transport, run.replay_key, index, on_text, on_retry)
    started_s, started = run.clock.elapsed_s(), time.perf_counter()
    draft.open_calls += 1
    call_context.count_beside(run, call_context.Used(1))
    try:
        response = await agent.model.respond(request, context)
        if response.tool_calls:
            response = with_ids_of_their_own(response)
    except (ProviderStatusError, ConfigurationError, FixtureError):
        draft.open_calls -= 1  # refused: nothing was generated
        call_context.count_beside(run, call_context.Used(-1))
        raise
    draft.open_calls -= 1
    duration_s = time.perf_counter() - started
    record_call(run, draft, request, response, index=index, started_s=started_s, duration_s=duration_s, retries=retries)
    return response


def record_call(
    run: Stepper,
    draft: StepBuilder,
    request: ModelRequest,
    response: ModelResponse,
    *,
    index: int,
    started_s: float,
    duration_s: float,
    retries: int = 0,
) -> None:
    """Put a response that came back into the draft, and tell of it."""
    model, signal = run.agent.model, response.signal
    usage = _charged(run, draft, request, response)
    at = datetime.now(UTC) if response.source is None else response.source.at  # an answer without HTTP was made now
    address = getattr(model, "address", "")
    cost = cost_of(model.name, response.model or model.model, usage, response.cost_usd, at=at, address=address)
    log_signal(signal, model.name, model.model)
    draft.calls.append(ModelCall(index, response, usage, cost, started_s, duration_s, request.max_output_tokens, retries))
    call_context.count_beside(run, call_context.Used(0, usage.known_tokens, cost.known_usd))
    turn = len(run.history) + 1
    run.emit(
        events.StopReasonObserved(
            run.clock.elapsed_s(), model.name, model.model, signal.finish_reason, signal.raw_value, turn, index
        )
    )


def choose_response(
    run: Stepper, draft: StepBuilder, request: ModelRequest, response: ModelResponse, before: int
) -> ModelResponse:
    """Make the response that a middleware gave the last of the draft's calls; those it left aside stay, as not used."""
    asked = draft.calls[before:]
    if not asked:  # an answer of its own, from a cache for example
        response = with_ids_of_their_own(response)
        index, now_s = run.history.own_calls + before + 1, run.clock.elapsed_s()
        record_call(run, draft, request, response, index=index, started_s=now_s, duration_s=0.0)
        return response
    chosen = next((call for call in asked if call.response is response), asked[-1])
    came = chosen.response
    if response is not came and (response.text, response.tool_calls) != (came.text, came.tool_calls):
        # The provider's own form still says what the middleware has changed.
        response = with_ids_of_their_own(replace(response, native=None))
    aside = [replace(call, used=False) for call in asked if call is not chosen]
    draft.calls[before:] = [*aside, replace(chosen, response=response)]
    return response


def _assistant_message(response: ModelResponse) -> Message:
    """What the conversation keeps of a response: calls that were cut off are left out, since no wire takes them back."""
    whole = tuple([call for call in response.tool_calls if not is_cut_off(call)]) if response.tool_calls else ()
    if len(whole) < len(response.tool_calls):
        return Message("assistant", response.text, whole)
    return Message("assistant", response.text, whole, native=response.native)


def no_call_left(run: Stepper, draft: StepBuilder) -> bool:
    """The budget, read before a further call inside the step: calls are counted exactly, tokens and cost with those of the step."""
    settings = run.settings_now()
    budget, history = settings.budget, run.history
    here = len(draft.calls) + draft.open_calls
    if budget.max_calls is not None and history.calls + here >= budget.max_calls:
        return True
    if settings.terminating is not None and history.own_calls + here >= settings.terminating.max_invocations:
        return True
    tokens = history.known_tokens + sum(call.usage.known_tokens for call in draft.calls)
    if budget.max_tokens is not None and tokens >= budget.max_tokens:
        return True
    cost_usd = history.known_cost_usd + sum(call.cost.known_usd for call in draft.calls)
    if budget.max_cost is not None and cost_usd >= budget.max_cost:
        return True
    return call_context.bound_from_above(run) is not None


# Usage that was not reported ------------------------------------------------------------------------------------------------


def _charged(run: Stepper, draft: StepBuilder, request: ModelRequest, response: ModelResponse) -> Usage:
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


def _tell_of_what_is_unknown(run: Stepper, draft: StepBuilder, call: ModelCall) -> None:
    """Warn of limits that cannot be watched, since the usage or the price is not known."""
    who = f"{run.agent.model.name} ({run.agent.model.model})"
    settings = draft.settings
    if call.usage.total_tokens is not None:
        watched = _watched(settings, max_cost=MaxCost)
        if watched:
            why = f"{call.cost.reason} " if call.cost.reason else ""
            run.warn_once(f"The price of {who} is not known, so {watched} cannot be watched. {why}Bound the tokens instead.")
        return
    if settings.budget.missing_usage == "fail":
        raise MissingUsageError(
            f"{who} reported no usage, and Budget(missing_usage='fail') is set. "
            "Choose 'warn', 'estimate' or 'charge_cap' to go on without."
        )
    cost: dict[str, type[StopCondition]] = {"max_cost": MaxCost} if call.cost.usd is None else {}
    watched = _watched(settings, max_tokens=MaxTokensUsed, **cost)
    if watched:
        run.warn_once(
            f"{who} reports no usage, so {watched} cannot be watched. "
            "Budget(missing_usage='estimate') counts 4 characters as a token; 'charge_cap' charges the output cap."
        )


def _watched(settings: RunSettings, **kinds: type[StopCondition]) -> str:
    """The limits among these that are set, as fields of the budget or as leaves of the stop condition."""
    names = [name for name in kinds if getattr(settings.budget, name) is not None]
    if settings.stop is not None:
        leaves = settings.stop.leaves(that_count=True)
        names += [type(leaf).__name__ for leaf in leaves if isinstance(leaf, tuple(kinds.values()))]
    return " and ".join(dict.fromkeys(names))

"""Further calls for an answer that was cut off: what to ask, how two texts become one, and how often it may be asked."""

from __future__ import annotations

from dataclasses import dataclass, replace

from agentlab.engine.termination import is_cut_off
from agentlab.limits.policies import ContinuationPolicy
from agentlab.limits.reading import Action, Decision
from agentlab.model.conversation import repeated
from agentlab.model.finish_reasons import FinishReason, StopReason
from agentlab.model.messages import Message, ToolCall
from agentlab.model.responses import ModelResponse, moved
from agentlab.providers.wires.read import free_id
from agentlab.records.events import ContinuationOutcome
from agentlab.records.result import INCREASE_BUDGET, larger_cap
from agentlab.records.step import ModelCall, Seam

FEWEST_TOKENS = 8
"""Tokens of a prefill below which their count does not show an echo."""


@dataclass(frozen=True, slots=True)
class ContinuationRequest:
    """A request for the rest of an answer: the answer so far, and the messages sent in its place.

    `exact` is True if the answer is prefilled: the model continues right behind its own words. `tokens` is what the answer so far took,
    None if not known.
    """

    so_far: ModelResponse
    messages: tuple[Message, ...]
    exact: bool
    cap: int | None = None
    tokens: int | None = None

    def merge(self, rest: ModelResponse, call: int) -> tuple[ModelResponse, Seam | None]:
        """Merge the rest, which came with this call: one text, the whole tool calls of both, and how the rest ended.

        Also return the seam between the two texts, if both have text.
        """
        said, seam = self.so_far.text, None
        before = len(said)
        if said and rest.text:
            given = said.rstrip() if self.exact else said  # a prefilled answer is sent without white space at its end
            again = self._echoed(given, rest) if self.exact else repeated(given, rest.text)
            seam = Seam(call, len(given), said[len(given) :] + rest.text[:again])
            said, before = given + rest.text[again:], len(given) - again
        merged = replace(
            rest,
            text=said or rest.text,
            tool_calls=_calls_of_both(self.so_far.tool_calls, rest.tool_calls),
            reasoning=self.so_far.reasoning + rest.reasoning,
            native=None,
            holes=(*self.so_far.holes, *moved(rest.holes, before)),
        )
        return merged, seam

    def _echoed(self, given: str, rest: ModelResponse) -> int:
        """Return the length of a prefill that the server repeats before the rest, as llama.cpp does; 0 if in doubt.

        Its token count shows it: a text takes at least as many as its beginning alone.
        """
        took = rest.usage.output_tokens
        if self.tokens is None or took is None or self.tokens < FEWEST_TOKENS:
            return len(given) if repeated(given, rest.text) == len(given) else 0
        is_echo = rest.text.startswith(given) and took - (len(rest.text) > len(given)) < self.tokens
        return len(given) if is_echo else 0


def _calls_of_both(first: tuple[ToolCall, ...], rest: tuple[ToolCall, ...]) -> tuple[ToolCall, ...]:
    """Return the calls that were whole before, then those that came; ids stay unique.

    The model does not see which of its calls were whole and repeats them: each is left out once.
    """
    calls = [call for call in first if not is_cut_off(call)]
    said = [(call.name, call.arguments) for call in calls]
    ids = {call.id for call in calls}
    for call in rest:
        if (call.name, call.arguments) in said:
            said.remove((call.name, call.arguments))
            continue
        new_id = free_id(call.id, ids)
        ids.add(new_id)
        calls.append(call if new_id == call.id else replace(call, id=new_id))
    return tuple(calls)


def _tokens_of_text(calls: list[ModelCall]) -> int | None:
    """Return the tokens of these calls' text; None if they are not known, or if some of them were not part of the text."""
    took = 0
    for response in [call.response for call in calls if call.used]:
        tokens, paused = response.usage.output_tokens, response.signal.finish_reason is FinishReason.PAUSED
        if tokens is None or paused or response.tool_calls or response.usage.reasoning_tokens:
            return None
        took += tokens
    return took


class FurtherCalls:
    """Counts the further calls within one step: `continuations` for the rest of a text, `repairs` for a tool call again."""

    __slots__ = ("continuations", "cut_s", "issue", "outcome", "policy", "repairs", "repairs_reported")

    def __init__(self, policy: ContinuationPolicy) -> None:
        self.policy = policy
        self.continuations = 0
        self.repairs = 0
        self.repairs_reported = 0
        self.issue = ""
        self.outcome: ContinuationOutcome = "completed"
        self.cut_s = 0.0

    @property
    def attempts(self) -> int:
        """Further calls of either kind."""
        return self.continuations + self.repairs

    def pending(self, action: Action, calls: list[ModelCall], answer: ModelResponse, policy: ContinuationPolicy) -> str:
        """Return what happens in ContinuePending: `allowed`, or `at_cap` with the cap in `self.outcome`."""
        self.policy = policy
        made, most = (
            (self.repairs, policy.max_tool_repair_attempts)
            if action is Action.REPAIR_TOOL_CALL
            else (self.continuations, policy.max_continuations_per_turn)
        )
        if made >= most:
            self.outcome = "retry_limit"
            return "at_cap"
        left = self.tokens_left(calls)
        if (left is not None and left <= 0) or len(answer.text) >= policy.max_total_output_chars_per_turn:
            self.outcome = "budget_exhausted"
            return "at_cap"
        return "allowed"

    def tokens_left(self, calls: list[ModelCall]) -> int | None:
        """Return the output tokens that the step may still take; None if not known. The policy counts them from the first call's cap,
        or if it had none from what it took."""
        first = calls[0]
        cap = self.policy.completion_tokens(first.requested_cap or first.usage.output_tokens)
        return None if cap is None else cap - sum(call.usage.output_tokens or 0 for call in calls)

    def request(self, answer: ModelResponse, action: Action, calls: list[ModelCall], *, prefills: bool) -> ContinuationRequest:
        """Count a further call, and return what to ask in it."""
        cap, left = calls[-1].requested_cap, self.tokens_left(calls)
        if action is Action.REPAIR_TOOL_CALL:
            self.repairs += 1
            prefills = False  # half a call is no text to go on from
            cap = None if cap is None else left  # within the cap that cut it, it would be cut again
        else:
            self.continuations += 1
            cap = cap if cap is None or left is None else min(cap, left)
        prefills = prefills and not answer.reasoning  # Anthropic and llama.cpp refuse a prefill for a model that thinks
        said = answer.text.rstrip() if prefills else answer.text
        partial = (Message("assistant", said),) if said.strip() else ()
        hint = () if prefills and partial else (Message("user", self.policy.hint),)
        return ContinuationRequest(answer, (*partial, *hint), bool(prefills and partial), cap, _tokens_of_text(calls))

    def give_up(self, calls: list[ModelCall], answer: ModelResponse, why: str = "") -> Decision:
        """Return the decision of AbortPartial: the answer stays, with a notice that it is not whole. `why` if no cap was the reason."""
        what = "A tool call was cut off and was not executed" if self.issue else "The answer was cut off and is not whole"
        metadata = {**larger_cap(calls[-1].requested_cap, answer), "outcome": self.outcome, "attempts": self.attempts}
        if not why:
            cap, what_it_did = self._which_cap(calls, answer)
            why, metadata["capped_by"] = f"{what_it_did} ({cap})", cap
        return Decision(Action.ABORT, f"{what}: {why}.", StopReason.TRUNCATED, INCREASE_BUDGET, metadata)

    def _which_cap(self, calls: list[ModelCall], answer: ModelResponse) -> tuple[str, str]:
        """Return the field of the policy that allowed no further call, and its effect in words."""
        left, first = self.tokens_left(calls), calls[0]
        if self.outcome == "budget_exhausted" and left is not None and left <= 0:
            most = self.policy.completion_tokens(first.requested_cap or first.usage.output_tokens)
            return "max_total_completion_tokens_per_turn", f"the step's {most} output tokens are used"
        if self.outcome == "budget_exhausted":
            return "max_total_output_chars_per_turn", f"it has {len(answer.text):,} characters"
        if self.issue:
            return "max_tool_repair_attempts", f"the model was asked {self.repairs} more time{'s' * (self.repairs != 1)}"
        return "max_continuations_per_turn", f"it was continued {self.continuations} time{'s' * (self.continuations != 1)}"


def is_half_a_call(response: ModelResponse) -> bool:
    """True if a tool call of the response came incomplete, or the provider could not read it."""
    signal, calls = response.signal, response.tool_calls
    cut = signal.finish_reason is FinishReason.MAX_TOKENS and not all(call.arguments.strip() for call in calls)
    return signal.repairable or cut or any(map(is_cut_off, calls))


def issue_of(response: ModelResponse) -> str:
    """Return what is wrong with a tool call that the model is asked to repeat."""
    return "malformed" if response.signal.finish_reason is FinishReason.ERROR else "incomplete"

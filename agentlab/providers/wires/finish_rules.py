"""The rules that all wires share: turn a provider's finish reason, and the rest of its response, into a TerminationSignal.

Confidence. HIGH: a documented value that agrees with the rest of the response. MEDIUM: inferred from the pattern. LOW: missing, unknown
or contradictory. A provider's file has the table of its values; these rules weigh them against the rest of the response.

If a part of the answer does not have its documented form, such as a number in place of the text, the confidence is at most MEDIUM. If
nothing of the answer is left, an ordinary end is UNKNOWN.

A gateway passes on the vendor's finish reason as `native_finish_reason`, beside its own, which is the documented one and is read first.
- If the gateway's value is missing or undocumented, the native value is read in its place, with at most MEDIUM confidence, and only if
it agrees with the rest of the response.
- If both are known and contradict each other (a clean end of a response that was cut, filtered or failed, or the reverse), the
documented reason is kept, at LOW. A tool call in such a response counts as cut.
- If the native value is an error, the gateway's an ordinary end, and the response is empty: ERROR at MEDIUM.
- If both are errors, the native value decides whether the call is repairable.
- An error object takes precedence over both values.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Literal, TypeAlias

from agentlab._internal.values import dataclass
from agentlab.model.finish_reasons import Confidence, FinishReason, TerminationSignal
from agentlab.model.messages import JSON
from agentlab.model.responses import Hole
from agentlab.providers.wires.read import as_dict, as_text, dumps, whole_text

Ended: TypeAlias = Literal["whole", "marked", "unmarked"]
"""How a response ended: as a whole body, as a stream with the wire's end marker, or as a stream without it."""

_SENTENCES = {
    FinishReason.END_TURN: "The model ended its turn.",
    FinishReason.STOP_SEQUENCE: "A stop sequence was generated.",
    FinishReason.TOOL_CALLS: "The model asks for tools.",
    FinishReason.MAX_TOKENS: "The response was cut at its output cap.",
    FinishReason.CONTEXT_WINDOW_EXCEEDED: "The response filled the model's context window.",
    FinishReason.CONTENT_FILTERED: "The response was refused, withheld or cut by a content filter.",
    FinishReason.PAUSED: "The provider paused the turn; sending it back resumes it.",
    FinishReason.CANCELLED: "The response was cancelled.",
    FinishReason.ERROR: "The provider reports an error.",
    FinishReason.UNKNOWN: "The provider does not say why the response ended.",
}

_VALUE_CHARS = 200


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts about the rest of a response, against which its finish reason is weighed.

    `tool_calls`: the number of calls. `complete_calls`: the arguments of all calls are JSON. `answered`: there is text or a call.
    `damaged`: a piece of the stream was unreadable, missing, or arrived after the end. `misfit`: the part of the answer that does not
    have its documented form, and its type; empty if there is none. `output_tokens`, `requested_cap`: None means
    unknown. `error`: the provider's error object or text, None if there is none.
    """

    tool_calls: int = 0
    complete_calls: bool = True
    answered: bool = False
    refused: bool = False
    ended: Ended = "whole"
    damaged: bool = False
    misfit: str = ""
    output_tokens: int | None = None
    requested_cap: int | None = None
    error: JSON = None
    message: str = ""
    metadata: Mapping[str, JSON] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Table:
    """The finish reasons of a wire. `field` is the place of the value. `stop_with_calls`: the wire also ends responses with tool calls
    with an ordinary end. `repairable`: values of errors that another attempt may repair. `prefix`: the beginning of values, listed or
    not, that name a fault of a tool call: one that is not listed is an error of that kind.

    Example:
        >>> from agentlab.providers import FINISH_REASONS, Table
        >>> FINISH_REASONS.field, FINISH_REASONS.reasons["length"]
        ('choices[].finish_reason', <FinishReason.MAX_TOKENS: 'max_tokens'>)
        >>> Table("choices[].finish_reason", {"cut": lab.FinishReason.MAX_TOKENS}).reasons.get("done") is None
        True
    """

    field: str
    reasons: Mapping[str | int, FinishReason]
    stop_with_calls: bool = False
    repairable: frozenset[str | int] = frozenset()
    prefix: str = ""

    def meaning(self, value: str | int) -> FinishReason | None:
        """Return the meaning of a value; None if the table does not know it.

        Example:
            >>> from agentlab.providers import FINISH_REASONS
            >>> FINISH_REASONS.meaning("length"), FINISH_REASONS.meaning("cut")
            (<FinishReason.MAX_TOKENS: 'max_tokens'>, None)
        """
        known = self.reasons.get(value)
        return FinishReason.ERROR if known is None and self._is_unlisted_fault(value) else known

    def may_be_repaired(self, value: str | int | None) -> bool:
        """True if another attempt may repair an error with this value.

        Example:
            >>> from agentlab.providers import Table
            >>> gateway = Table("choices[].finish_reason", {"bad_call": lab.FinishReason.ERROR}, repairable=frozenset({"bad_call"}))
            >>> gateway.may_be_repaired("bad_call"), gateway.may_be_repaired("length")
            (True, False)
        """
        return value in self.repairable or self._is_unlisted_fault(value)

    def _is_unlisted_fault(self, value: str | int | None) -> bool:
        has_prefix = bool(self.prefix) and isinstance(value, str) and value.startswith(self.prefix)
        return has_prefix and value not in self.reasons


def judge(table: Table, value: JSON, facts: Facts, *, provider: str, model: str) -> TerminationSignal:
    """Return the signal for the provider's `value` (None: missing), weighed against `facts`."""
    raw = raw_value(value)
    if facts.error is not None:
        return _error(facts, provider, model, raw)
    why = ""
    if raw is None:
        reason, confidence, why = _missing(facts)
    elif (known := table.meaning(raw)) is None:
        log_unknown(provider, model, raw)
        reason, confidence = FinishReason.UNKNOWN, Confidence.LOW
        why = f"The provider sent {raw!r}, which its documentation does not list."
    else:
        reason, confidence, why = _weigh(known, facts, stop_with_calls=table.stop_with_calls)
    if confidence is Confidence.HIGH and (facts.damaged or facts.ended == "unmarked"):
        confidence = Confidence.MEDIUM
        damage = "A piece of the stream was unreadable, missing or out of place."
        why = why or f"{_SENTENCES[reason]} {damage if facts.damaged else 'The stream broke off after that.'}"
    message = facts.message or why or _SENTENCES[reason]
    if facts.misfit:
        confidence = min(confidence, Confidence.MEDIUM)
        message = f"{message} But the answer is malformed: {facts.misfit}."
        if not facts.answered and reason in _CLEAN:
            reason, confidence = FinishReason.UNKNOWN, Confidence.LOW
    return TerminationSignal(
        finish_reason=reason,
        confidence=confidence,
        provider=provider,
        raw_field=table.field,
        raw_value=raw,
        message=message,
        repairable=table.may_be_repaired(raw),
        metadata=facts.metadata,
        model=model,
    )


_CLEAN = (FinishReason.END_TURN, FinishReason.STOP_SEQUENCE, FinishReason.TOOL_CALLS, FinishReason.PAUSED)
_CUT = (FinishReason.MAX_TOKENS, FinishReason.CONTEXT_WINDOW_EXCEEDED)


def not_whole(signal: TerminationSignal, holes: Sequence[Hole]) -> TerminationSignal:
    """Return the signal of a response that lost a piece: UNKNOWN, whatever its end. An error, a filter or a cancel is kept."""
    if signal.finish_reason not in (*_CLEAN, FinishReason.MAX_TOKENS, FinishReason.UNKNOWN):
        return signal
    where = str(holes[0]) + (f", and in {len(holes) - 1} more places" if len(holes) > 1 else "")
    but = "" if signal.raw_value is None else f", though the provider says {signal.raw_value!r}"
    message = f"A piece of the stream was lost: the answer is not whole{but}. {where[0].upper()}{where[1:]}."
    return replace(signal, finish_reason=FinishReason.UNKNOWN, confidence=Confidence.LOW, message=message, repairable=False)


def _missing(facts: Facts) -> tuple[FinishReason, Confidence, str]:
    if facts.ended != "marked" or facts.damaged or not facts.answered:
        why = "The stream broke off before a finish reason." if facts.ended == "unmarked" else _SENTENCES[FinishReason.UNKNOWN]
        return FinishReason.UNKNOWN, Confidence.LOW, why
    if facts.tool_calls:
        if not facts.complete_calls:
            return FinishReason.UNKNOWN, Confidence.LOW, "No finish reason, and the arguments of a tool call are incomplete."
        return FinishReason.TOOL_CALLS, Confidence.MEDIUM, "The stream closed properly with tool calls, without a finish reason."
    return FinishReason.END_TURN, Confidence.MEDIUM, "The stream closed properly, without a finish reason."


def _weigh(reason: FinishReason, facts: Facts, *, stop_with_calls: bool) -> tuple[FinishReason, Confidence, str]:
    confidence, why = Confidence.HIGH, ""
    if reason is FinishReason.UNKNOWN:
        return reason, Confidence.LOW, "The provider gives a reason without a meaning."
    if reason is FinishReason.END_TURN and facts.refused:
        return FinishReason.CONTENT_FILTERED, Confidence.HIGH, "The model refused to answer."
    if reason in (FinishReason.END_TURN, FinishReason.STOP_SEQUENCE) and facts.tool_calls:
        reason = FinishReason.TOOL_CALLS
        if not stop_with_calls:
            confidence, why = Confidence.MEDIUM, "The response has tool calls, though the provider says that the turn ended."
    if reason is FinishReason.TOOL_CALLS:
        if not facts.tool_calls:
            return reason, Confidence.LOW, "The provider says that tools are called, but the response has no call."
        if not facts.complete_calls:
            return reason, Confidence.LOW, "The provider says that tools are called, but the arguments of a call are incomplete."
    at_cap = facts.requested_cap is not None and facts.output_tokens == facts.requested_cap
    if at_cap and confidence is Confidence.HIGH and reason in (FinishReason.END_TURN, FinishReason.TOOL_CALLS):
        confidence, why = Confidence.MEDIUM, f"{_SENTENCES[reason]} Its output tokens equal the cap of {facts.requested_cap}."
    return reason, confidence, why


def _error(facts: Facts, provider: str, model: str, said: str | int | None) -> TerminationSignal:
    """Return the signal of an error in the body. It takes precedence over the finish reason, which is kept as metadata."""
    filtered = filtered_by(facts.error)
    where, value = filtered or error_code(facts.error)
    contradicted = said not in (None, "error")
    summary = "A content filter refused it" if filtered else "The provider reports an error"
    return TerminationSignal(
        finish_reason=FinishReason.CONTENT_FILTERED if filtered else FinishReason.ERROR,
        confidence=Confidence.MEDIUM if contradicted else Confidence.HIGH,
        provider=provider,
        raw_field=where,
        raw_value=value,
        message=f"{summary}: {error_text(facts.error) or value}",
        metadata={**facts.metadata, "finish_reason": said} if contradicted else facts.metadata,
        model=model,
    )


FILTERED = frozenset(
    {
        "content_filter",
        "responsibleaipolicyviolation",
        "content_policy_violation",
        "image_content_policy_violation",
        "data_inspection_failed",
        "datainspectionfailed",
    }
)
"""Error codes, in lower case, of a filter that withheld the prompt or the answer: Azure OpenAI
(https://learn.microsoft.com/azure/ai-foundry/openai/concepts/content-filter), OpenAI (its client's `ResponseError`) and OpenRouter
(https://openrouter.ai/docs/api/reference/errors-and-debugging), Alibaba (https://help.aliyun.com/en/model-studio/error-code); read
2026-11-23."""


def filtered_by(error: JSON) -> tuple[str, str | int | None] | None:
    """Return the field and the value in which an error names a content filter; None for any other error."""
    fields = as_dict(error)
    inner, metadata = as_dict(fields.get("innererror")), as_dict(fields.get("metadata"))
    for where, value in (("code", fields.get("code")), ("type", fields.get("type")), ("innererror.code", inner.get("code"))):
        if isinstance(value, str) and value.lower() in FILTERED:
            return f"error.{where}", raw_value(value)
    if "flagged_input" in metadata:  # OpenRouter's moderation, whose code is a number
        return "error.code", raw_value(fields.get("code"))
    return None


def raw_value(value: JSON) -> str | int | None:
    """Return the provider's value for the record, shortened: text and integers as they are, anything else as JSON text."""
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value if value is None or abs(value) < 2**63 else hex(value)[:_VALUE_CHARS]
    if isinstance(value, str):
        return whole_text(value[:_VALUE_CHARS])
    return dumps(value).decode()[:_VALUE_CHARS]


def error_code(error: JSON) -> tuple[str, str | int | None]:
    """Return the field and the value that name the kind of an error, such as `("error.type", "overloaded_error")`."""
    for name in ("type", "status", "code"):
        value = as_dict(error).get(name)
        if value not in (None, "") and not (name == "status" and isinstance(value, int)):  # not an HTTP status
            return f"error.{name}", raw_value(value)
    return "error", raw_value(error_text(error)) or None


def error_text(error: JSON) -> str:
    """Return the vendor's message in an error, which is an object or text."""
    if isinstance(error, str):
        return whole_text(error)
    fields = as_dict(error[0] if isinstance(error, list) and error else error)
    return next((text for key in ("message", "msg", "detail", "error", "title") if (text := as_text(fields.get(key)))), "")


def find_error(payload: JSON) -> JSON:
    """Return the error in a body, or None. An empty `error` key is not an error."""
    body = as_dict(payload[0] if isinstance(payload, list) and payload else payload)
    error = body.get("error")
    if error:
        return error
    if body.get("object") == "error" or body.get("type") == "error":
        return body
    return None


def body_message(payload: JSON) -> str:
    """Return the vendor's message in an error body of any usual shape, or an empty string."""
    error = find_error(payload)
    if error is None and isinstance(payload, list):
        payload = payload[0] if payload else None
    return error_text(error) or error_text(as_dict(payload))


@functools.lru_cache(1_000)
def log_unknown(provider: str, model: str, value: str | int) -> None:
    """Log a value that no table lists, once per provider, model and value."""
    logging.getLogger("agentlab.providers").warning(
        "%s (%s) ended a response with %r, which is not a documented finish reason", provider, model or "model unknown", value
    )


# The native finish reason of a gateway -------------------------------------------------------------------------------------


def native_reason(table: Table, metadata: Mapping[str, JSON]) -> FinishReason | None:
    """Return the meaning of the native value; None if it is missing or not in the table."""
    native = metadata.get("native_finish_reason")
    return table.reasons.get(native) if isinstance(native, str) else None


def is_cut(table: Table, metadata: Mapping[str, JSON]) -> bool:
    """True if the native value says that the response is incomplete."""
    reason = native_reason(table, metadata)
    return reason is not None and reason not in _CLEAN


def weigh_native(signal: TerminationSignal, said: FinishReason | None, table: Table, facts: Facts) -> TerminationSignal:
    """Weigh the signal of the gateway's value against the native one, by the rules in this module's docstring. `said` is the documented
    meaning of the gateway's value, None if it is missing or undocumented."""
    native = native_reason(table, facts.metadata)
    if native is None or facts.error is not None:
        return signal
    if said is None or (native is FinishReason.ERROR and said is FinishReason.END_TURN and not facts.answered):
        return _read_native(signal, table, facts)
    value = facts.metadata["native_finish_reason"]
    if native is signal.finish_reason or _agree(said, native):
        return replace(signal, repairable=True) if value in table.repairable else signal
    why = f"The provider sent {signal.raw_value!r}, but the vendor behind it sent {value!r}."
    return replace(signal, confidence=Confidence.LOW, message=why)


def _read_native(signal: TerminationSignal, table: Table, facts: Facts) -> TerminationSignal:
    value = facts.metadata["native_finish_reason"]
    found = judge(table, value, facts, provider=signal.provider, model=signal.model)
    if found.finish_reason is FinishReason.UNKNOWN or found.confidence is Confidence.LOW:
        return signal
    said = {} if signal.raw_value in (None, "") else {"finish_reason": signal.raw_value}
    return replace(
        found,
        confidence=Confidence.MEDIUM,
        message=f"The provider gave no reason, or a less precise one; the vendor behind it sent {value!r}.",
        metadata={**found.metadata, **said},
    )


def _agree(said: FinishReason, native: FinishReason) -> bool:
    if said in _CLEAN and native in _CLEAN:  # some vendors have no value for a turn with calls
        return True
    return said is native or (said in _CUT and native in _CUT)

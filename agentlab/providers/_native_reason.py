"""What a `native_finish_reason` does to a signal. A gateway passes on in it what the vendor behind it said, beside its own word.

The rule, in full. The gateway's own word is what is documented, so it is read first.
- Where that word is missing or undocumented, the native one is read in its place: never surer than MEDIUM, and only where it agrees
  with the rest of the response.
- Where both are known and contradict each other (a clean end over a response that was cut, filtered or failed, or the other way
  round), the reason stays the documented one, and is LOW. A tool call in such a response counts as cut.
- Where the native word is an error over an ordinary end with nothing in it, the emptiness bears it out: ERROR, MEDIUM.
- Where both say error, the native word tells whether asking again may mend it.
- An error object outweighs both words, as everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from agentlab.providers._signals import Facts, Table, judge
from agentlab.types import JSON, Confidence, FinishReason, TerminationSignal

_CLEAN = (FinishReason.END_TURN, FinishReason.STOP_SEQUENCE, FinishReason.TOOL_CALLS, FinishReason.PAUSED)
_CUT = (FinishReason.MAX_TOKENS, FinishReason.CONTEXT_WINDOW_EXCEEDED)


def native_reason(table: Table, metadata: Mapping[str, JSON]) -> FinishReason | None:
    """What the native word means; None where it is missing or not in the table."""
    native = metadata.get("native_finish_reason")
    return table.reasons.get(native) if isinstance(native, str) else None


def is_cut(table: Table, metadata: Mapping[str, JSON]) -> bool:
    """Whether the native word says that the response is not all there."""
    reason = native_reason(table, metadata)
    return reason is not None and reason not in _CLEAN


def weigh_native(signal: TerminationSignal, said: FinishReason | None, table: Table, facts: Facts) -> TerminationSignal:
    """The signal of the gateway's word in the light of the native one, by the rule above. `said` is what that word is documented to
    mean; None where it is missing or undocumented."""
    native = native_reason(table, facts.metadata)
    if native is None or facts.error is not None:
        return signal
    if said is None or (native is FinishReason.ERROR and said is FinishReason.END_TURN and not facts.answered):
        return _instead(signal, table, facts)
    word = facts.metadata["native_finish_reason"]
    if native is signal.finish_reason or _agree(said, native):
        return replace(signal, repairable=True) if word in table.repairable else signal
    why = f"The provider says {signal.raw_value!r}, but the vendor behind it said {word!r}."
    return replace(signal, confidence=Confidence.LOW, message=why)


def _instead(signal: TerminationSignal, table: Table, facts: Facts) -> TerminationSignal:
    word = facts.metadata["native_finish_reason"]
    found = judge(table, word, facts, provider=signal.provider, model=signal.model)
    if found.finish_reason is FinishReason.UNKNOWN or found.confidence is Confidence.LOW:
        return signal
    said = {} if signal.raw_value in (None, "") else {"finish_reason": signal.raw_value}
    return replace(
        found,
        confidence=Confidence.MEDIUM,
        message=f"The provider gives no reason of its own, or one that says less; the vendor behind it said {word!r}.",
        metadata={**found.metadata, **said},
    )


def _agree(said: FinishReason, native: FinishReason) -> bool:
    if said in _CLEAN and native in _CLEAN:  # vendors differ in whether a turn with calls has a word of its own
        return True
    return said is native or (said in _CUT and native in _CUT)

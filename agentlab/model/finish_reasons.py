"""Why a response ended and why a run ended, in one vocabulary for all providers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum

from agentlab._internal.display import Displayable
from agentlab._internal.errors import ConfigurationError
from agentlab._internal.redaction import clean_json, redact, redacted_repr
from agentlab._internal.values import dataclass
from agentlab.model.messages import JSON

# Finish reasons --------------------------------------------------------------------------------------------------------------


class FinishReason(StrEnum):
    """Why one response ended.

    Example:
        >>> lab.detect("anthropic", {"type": "message", "content": [], "stop_reason": "pause_turn"}).finish_reason
        <FinishReason.PAUSED: 'paused'>
        >>> lab.FinishReason("max_tokens") == "max_tokens"
        True
    """

    END_TURN = "end_turn"
    STOP_SEQUENCE = "stop_sequence"
    TOOL_CALLS = "tool_calls"
    MAX_TOKENS = "max_tokens"
    CONTEXT_WINDOW_EXCEEDED = "context_window_exceeded"
    CONTENT_FILTERED = "content_filtered"
    PAUSED = "paused"
    CANCELLED = "cancelled"
    ERROR = "error"
    UNKNOWN = "unknown"


class StopReason(StrEnum):
    """Why a run ended.

    Example:
        >>> result.stop_reason is lab.StopReason.STOP_CONDITION
        True
        >>> print(lab.StopReason.TURN_LIMIT)
        turn_limit
    """

    COMPLETED = "completed"
    TERMINATING_TOOL = "terminating_tool"
    EXPLICIT_STOP = "explicit_stop"
    STOP_CONDITION = "stop_condition"
    TURN_LIMIT = "turn_limit"
    CALL_LIMIT = "call_limit"
    TOKEN_BUDGET = "token_budget"  # noqa: S105  not a password
    COST_BUDGET = "cost_budget"
    TIMEOUT = "timeout"
    TRUNCATED = "truncated"
    CONTENT_FILTERED = "content_filtered"
    NUDGES_EXHAUSTED = "nudges_exhausted"
    INVALID_OUTPUT = "invalid_output"
    AWAITING_APPROVAL = "awaiting_approval"
    CANCELLED = "cancelled"
    ERROR = "error"


class Confidence(StrEnum):
    """Confidence of a TerminationSignal; LOW < MEDIUM < HIGH.

    HIGH: a documented value that agrees with the rest of the response. MEDIUM: inferred from the response's pattern. LOW:
    missing, unknown or contradictory.

    Example:
        >>> lab.detect("openai", {"choices": [{"message": {"content": "Hi"}, "finish_reason": "stop"}]}).confidence
        <Confidence.HIGH: 'high'>
        >>> lab.detect("openai", {"choices": [{"message": {"content": "Hi"}, "finish_reason": "finished"}]}).confidence
        <Confidence.LOW: 'low'>
    """

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"

    def _rank(self) -> int:
        return ["low", "medium", "high"].index(self.value)

    def __lt__(self, other: str) -> bool:
        return self._rank() < Confidence(other)._rank()

    def __le__(self, other: str) -> bool:
        return self._rank() <= Confidence(other)._rank()

    def __gt__(self, other: str) -> bool:
        return self._rank() > Confidence(other)._rank()

    def __ge__(self, other: str) -> bool:
        return self._rank() >= Confidence(other)._rank()


@redacted_repr
@dataclass(frozen=True, slots=True)
class TerminationSignal(Displayable):
    """Why a response ended, and the confidence in it.

    `raw_field` and `raw_value` are the provider's field and value as sent (`raw_value` None: missing). `message` explains the reason in
    one sentence. `repairable` marks an ERROR that another request may repair, such as a malformed tool call. `metadata` has further
    values from the response: short JSON, redacted. `model` is the requested model, "" if unknown (ignored in comparisons).

    Words are converted to FinishReason and Confidence. Raises ConfigurationError for an unknown word, and for a field of another type.

    Example:
        >>> signal = result.history[0].signal
        >>> signal.finish_reason, signal.raw_field, signal.raw_value, signal.should_terminate
        (<FinishReason.TOOL_CALLS: 'tool_calls'>, 'stop_reason', 'tool_use', False)
    """

    finish_reason: FinishReason
    confidence: Confidence
    provider: str = ""
    raw_field: str = ""
    raw_value: str | int | None = None
    message: str = ""
    repairable: bool = False
    metadata: Mapping[str, JSON] = field(default_factory=dict)
    model: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        if type(self.finish_reason) is not FinishReason:
            object.__setattr__(self, "finish_reason", _member(FinishReason, "finish_reason", self.finish_reason))
        if type(self.confidence) is not Confidence:
            object.__setattr__(self, "confidence", _member(Confidence, "confidence", self.confidence))
        for name, (kinds, words) in _FIELDS.items():
            value = getattr(self, name)
            if not isinstance(value, kinds) or (name == "raw_value" and isinstance(value, bool)):
                raise ConfigurationError(f"TerminationSignal({name}={value!r}): {name} must be {words}.")
        if self.metadata:
            object.__setattr__(self, "metadata", clean_json(self.metadata))
        if self.finish_reason in (FinishReason.ERROR, FinishReason.CONTENT_FILTERED):  # these quote the vendor
            object.__setattr__(self, "message", redact(self.message))
            if isinstance(self.raw_value, str):
                object.__setattr__(self, "raw_value", redact(self.raw_value))

    @property
    def should_terminate(self) -> bool:
        """True if the response itself needs no further request: no tools to run, nothing to resume.

        Example:
            >>> [step.signal.should_terminate for step in (await brief.run("?")).history]
            [True]
        """
        return self.finish_reason not in (FinishReason.TOOL_CALLS, FinishReason.PAUSED)


_FIELDS: Mapping[str, tuple[type | tuple[type, ...], str]] = {
    **dict.fromkeys(("provider", "raw_field", "message", "model"), (str, "text")),
    "raw_value": ((str, int, type(None)), "text, an integer or None"),
    "repairable": (bool, "True or False"),
    "metadata": (Mapping, "a mapping"),
}
"""The types of a signal's fields, beside its two enums."""


def _member(kind: type[StrEnum], name: str, value: str) -> StrEnum:
    """Convert a word, for example from a user's detector, to a member of the enum. Raises ConfigurationError for unknown words."""
    try:
        return kind(value)
    except ValueError:
        raise ConfigurationError(f"TerminationSignal({name}={value!r}): use one of {', '.join(kind)}.") from None

"""The words of other vocabularies: why a response ended, and who answered."""

from __future__ import annotations

from collections.abc import Mapping

from agentlab.pricing import PRICE_BOOK_NAMES
from agentlab.types import FinishReason

_E = FinishReason
FINISH_REASONS: Mapping[str, FinishReason] = {
    # OpenAI chat completions, and those who speak that wire; OpenTelemetry's own list has these too, and `tool_call`
    "stop": _E.END_TURN,
    "length": _E.MAX_TOKENS,
    "tool_calls": _E.TOOL_CALLS,
    "tool_call": _E.TOOL_CALLS,
    "function_call": _E.TOOL_CALLS,
    "content_filter": _E.CONTENT_FILTERED,
    "error": _E.ERROR,
    # OpenAI Responses
    "completed": _E.END_TURN,
    "max_output_tokens": _E.MAX_TOKENS,
    "failed": _E.ERROR,
    "cancelled": _E.CANCELLED,
    # Anthropic, Bedrock
    "end_turn": _E.END_TURN,
    "stop_sequence": _E.STOP_SEQUENCE,
    "tool_use": _E.TOOL_CALLS,
    "max_tokens": _E.MAX_TOKENS,
    "model_context_window_exceeded": _E.CONTEXT_WINDOW_EXCEEDED,
    "refusal": _E.CONTENT_FILTERED,
    "pause_turn": _E.PAUSED,
    "guardrail_intervened": _E.CONTENT_FILTERED,
    "content_filtered": _E.CONTENT_FILTERED,
    "malformed_tool_use": _E.ERROR,
    "malformed_model_output": _E.ERROR,
    # Gemini
    "safety": _E.CONTENT_FILTERED,
    "recitation": _E.CONTENT_FILTERED,
    "blocklist": _E.CONTENT_FILTERED,
    "prohibited_content": _E.CONTENT_FILTERED,
    "spii": _E.CONTENT_FILTERED,
    "image_safety": _E.CONTENT_FILTERED,
    "malformed_function_call": _E.ERROR,
    # Inspect, where it has words of its own
    "model_length": _E.CONTEXT_WINDOW_EXCEEDED,
}
"""Lower case: Gemini's are upper case on its wire and lower in many spans. Each means the same wherever it is said."""


def finish_reason_of(word: str | None, *, called_tools: bool = False) -> FinishReason | None:
    """Our word for theirs; UNKNOWN for one that no page lists, None where there is none.

    Gemini and OpenAI's Responses say the same of an answer that ends a turn and of one that calls tools; `called_tools` tells which.
    """
    if not word:
        return None
    reason = FINISH_REASONS.get(word.lower(), FinishReason.UNKNOWN)
    return FinishReason.TOOL_CALLS if reason is FinishReason.END_TURN and called_tools else reason


_PROVIDERS: Mapping[str, str] = {
    "aws.bedrock": "bedrock",
    "aws_bedrock": "bedrock",
    "azure.ai.openai": "azure",
    "az.ai.openai": "azure",
    "azureai": "azure",
    "gcp.gemini": "gemini",
    "gcp.gen_ai": "gemini",
    "google": "gemini",
    "grok": "xai",
    "x_ai": "xai",
}


def provider_of(name: str | None) -> str | None:
    """A provider by the name it has in agentlab, where it has one there."""
    if not name:
        return None
    small = name.lower()
    return _PROVIDERS.get(small, small if small in PRICE_BOOK_NAMES else name)

"""Reads the attributes of OpenTelemetry's GenAI conventions, current and earlier ones, from a span.

Also those of OpenLLMetry (`llm.request.type`, `gen_ai.completion.0.*`) and OpenInference (`openinference.span.kind`,
`llm.token_count.*`), where one of their names corresponds to one of ours.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from agentlab.interop import otel_attributes as names
from agentlab.interop.rows import count_of, money_of, provider_of, text_of, usage_of
from agentlab.interop.spans import Span
from agentlab.model.pricing import cost_of
from agentlab.model.usage import Cost, CostSource, Usage

AGENT, CHAT, TOOL = "agent", "chat", "tool"

_OPERATIONS = {
    names.INVOKE_AGENT: AGENT,
    names.CHAT: CHAT,
    "text_completion": CHAT,
    "generate_content": CHAT,
    names.EXECUTE_TOOL: TOOL,
}
_OTHER_KINDS = (
    ("openinference.span.kind", {"AGENT": AGENT, "LLM": CHAT, "TOOL": TOOL}),
    ("llm.request.type", {"chat": CHAT, "completion": CHAT}),
    ("traceloop.span.kind", {"agent": AGENT, "tool": TOOL}),
)

_INPUT = (names.INPUT_TOKENS, "gen_ai.usage.prompt_tokens", "llm.usage.prompt_tokens", "llm.token_count.prompt")
_OUTPUT = (names.OUTPUT_TOKENS, "gen_ai.usage.completion_tokens", "llm.usage.completion_tokens", "llm.token_count.completion")
_CACHE_READ = (
    names.CACHE_READ_TOKENS,
    "gen_ai.usage.cache_read_input_tokens",
    "gen_ai.usage.details.cache_read_tokens",
    "llm.token_count.prompt_details.cache_read",
)
_CACHE_WRITE = (
    names.CACHE_WRITE_TOKENS,
    "gen_ai.usage.cache_creation_input_tokens",
    "gen_ai.usage.details.cache_write_tokens",
    "llm.token_count.prompt_details.cache_write",
)
_REASONING = (
    names.REASONING_TOKENS,
    "gen_ai.usage.reasoning_tokens",
    "gen_ai.usage.details.reasoning_tokens",
    "llm.token_count.completion_details.reasoning",
)
_TIER = ("openai.response.service_tier", "gen_ai.openai.response.service_tier")
_COST = (names.COST_USD, "gen_ai.usage.cost", "operation.cost", "llm.cost.total")
_MODEL = (names.REQUEST_MODEL, names.RESPONSE_MODEL, "llm.model_name")
_PROVIDER = (names.PROVIDER, "gen_ai.system", "llm.provider", "llm.system")
_TOOL_NAME = (names.TOOL, "tool.name", "traceloop.entity.name")
_CONVERSATION = ("gen_ai.conversation.id", "session.id")


def kind_of(span: Span) -> str | None:
    """Return the kind of a span: an agent's run, a call of a model or a tool; None for other spans."""
    attributes = span.attributes
    operation = attributes.get(names.OPERATION)
    if isinstance(operation, str):
        return _OPERATIONS.get(operation.lower())
    for name, kinds in _OTHER_KINDS:
        word = attributes.get(name)
        if isinstance(word, str) and word in kinds:
            return kinds[word]
    if names.TOOL in attributes:
        return TOOL
    return (
        CHAT
        if text_at(attributes, (names.REQUEST_MODEL,)) and ("gen_ai.system" in attributes or names.PROVIDER in attributes)
        else None
    )


def text_at(attributes: Mapping[str, Any], where: tuple[str, ...]) -> str | None:
    """Return the first of these attributes that is a text."""
    return next((text for name in where if (text := text_of(attributes.get(name)))), None)


def _count_at(attributes: Mapping[str, Any], where: tuple[str, ...]) -> int | None:
    return next((count for name in where if (count := count_of(attributes.get(name))) is not None), None)


def number_at(attributes: Mapping[str, Any], name: str) -> int | None:
    """Return a number that agentlab counts from 1."""
    return count_of(attributes.get(name)) or None


def model(span: Span) -> str | None:
    """Return the requested model, else the one that answered."""
    return text_at(span.attributes, _MODEL)


def provider(span: Span) -> str | None:
    """Return agentlab's name of the provider."""
    return provider_of(text_at(span.attributes, _PROVIDER))


def conversation(span: Span) -> str | None:
    """Return the id of the conversation."""
    return text_at(span.attributes, _CONVERSATION)


def tool_name(span: Span) -> str:
    """Return the tool's name, else the span's."""
    return text_at(span.attributes, _TOOL_NAME) or span.name


def usage(span: Span) -> tuple[Usage, bool]:
    """Return the tokens, and True if cached tokens had to be added to the input.

    By the conventions the input includes tokens read from and written to a cache. If the cached part is larger than the input, the span
    reports them apart, as Anthropic's API does.
    """
    attributes = span.attributes
    tokens_in, read, written = (
        _count_at(attributes, _INPUT),
        _count_at(attributes, _CACHE_READ),
        _count_at(attributes, _CACHE_WRITE),
    )
    cached = (read or 0) + (written or 0)
    apart = tokens_in is not None and cached > tokens_in
    if apart and tokens_in is not None:
        tokens_in += cached
    tier, reasoning = text_at(attributes, _TIER), _count_at(attributes, _REASONING)
    return usage_of(tokens_in, _count_at(attributes, _OUTPUT), read, written, reasoning, service_tier=tier), apart


def cost(span: Span, used: Usage, *, price: bool = True, several: bool = False) -> Cost:
    """Return the recorded cost, else the cost by public prices of that time, if the server, the model and all tokens are known.

    `price` is False if the record has unknown costs that must stay unknown; `several` is True if the tokens are those of several calls.
    """
    reported = next((usd for name in _COST if (usd := money_of(span.attributes.get(name))) is not None), None)
    if reported is not None:
        source = span.attributes.get(names.COST_SOURCE)
        return Cost(reported, CostSource.PRICED if source == CostSource.PRICED.value else CostSource.REPORTED)
    who = provider(span)
    if not price or who is None:
        return Cost(reason=text_at(span.attributes, (names.COST_NOTE,)) or "The record has neither a provider nor a cost.")
    at = None if span.start_ns is None else datetime.fromtimestamp(span.start_ns / 1e9, UTC)
    host = text_at(span.attributes, (names.SERVER_ADDRESS,))
    address = f"https://{host}" if host else None
    found = Cost(reason="The record does not name the model.")
    asked, answered = (text_at(span.attributes, (name,)) for name in (names.REQUEST_MODEL, names.RESPONSE_MODEL))
    for one in dict.fromkeys(name for name in (asked, answered, model(span)) if name):
        found = cost_of(who, one, used, at=at, address=address, several=several)
        if found.usd is not None:
            return found
    return found


def finish_word(span: Span) -> str | None:
    """Return the provider's finish reason."""
    attributes = span.attributes
    words = attributes.get(names.FINISH_REASONS)
    if isinstance(words, str) and words.startswith("["):
        words = _parsed(words)
    first = words[0] if isinstance(words, list | tuple) and words else words
    if isinstance(first, str) and first:
        return first
    return text_at(attributes, ("gen_ai.completion.0.finish_reason", "llm.response.finish_reason", "llm.finish_reason"))


def answer(span: Span) -> tuple[str | None, tuple[str, ...] | None]:
    """Return the text of the model and the names of the tools it called; None if the span has no content."""
    messages = _messages(span, names.OUTPUT_MESSAGES)
    if messages is None:
        return None, None
    parts = [part for message in messages for part in _parts(message)]
    text = "".join(content for part in parts if part.get("type") == "text" and isinstance(content := part.get("content"), str))
    tools = tuple(str(part.get("name") or "") for part in parts if part.get("type") == "tool_call")
    return text, tools


def prompt(span: Span) -> str | None:
    """Return the first user message."""
    for message in _messages(span, names.INPUT_MESSAGES) or []:
        if message.get("role") == "user":
            texts = [part.get("content") for part in _parts(message) if part.get("type") == "text"]
            return "".join(text for text in texts if isinstance(text, str))
    return None


def _messages(span: Span, name: str) -> list[Mapping[str, Any]] | None:
    value = span.attributes.get(name)
    value = _parsed(value) if isinstance(value, str) else value
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else None


def _parts(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    parts = message.get("parts")
    return [part for part in parts if isinstance(part, Mapping)] if isinstance(parts, list) else []


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None

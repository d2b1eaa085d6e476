"""What a span says by OpenTelemetry's GenAI conventions, under the names of today and of earlier versions of them.

Also under those of OpenLLMetry (`llm.request.type`, `gen_ai.completion.0.*`) and of OpenInference (`openinference.span.kind`,
`llm.token_count.*`), as far as one name stands for one of ours.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from agentlab.interop import otel_attributes as names
from agentlab.interop.rows import count_of, money_of, provider_of, text_of, usage_of
from agentlab.interop.spans import Span
from agentlab.pricing import cost_of
from agentlab.types import Cost, CostSource, Usage

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
    """Whether it is an agent's run, a call of a model, or a tool; None for everything else."""
    told = span.attributes
    operation = told.get(names.OPERATION)
    if isinstance(operation, str):
        return _OPERATIONS.get(operation.lower())
    for name, kinds in _OTHER_KINDS:
        word = told.get(name)
        if isinstance(word, str) and word in kinds:
            return kinds[word]
    if names.TOOL in told:
        return TOOL
    return CHAT if text_at(told, (names.REQUEST_MODEL,)) and ("gen_ai.system" in told or names.PROVIDER in told) else None


def text_at(told: Mapping[str, Any], where: tuple[str, ...]) -> str | None:
    """The first of these attributes that holds text."""
    return next((text for name in where if (text := text_of(told.get(name)))), None)


def _count_at(told: Mapping[str, Any], where: tuple[str, ...]) -> int | None:
    return next((count for name in where if (count := count_of(told.get(name))) is not None), None)


def number_at(told: Mapping[str, Any], name: str) -> int | None:
    """A count of agentlab's own, from 1."""
    return count_of(told.get(name)) or None


def model(span: Span) -> str | None:
    """The model asked for, or the one that says it answered."""
    return text_at(span.attributes, _MODEL)


def provider(span: Span) -> str | None:
    """Who answered, by agentlab's name."""
    return provider_of(text_at(span.attributes, _PROVIDER))


def conversation(span: Span) -> str | None:
    """The id of the conversation that it is a part of."""
    return text_at(span.attributes, _CONVERSATION)


def tool_name(span: Span) -> str:
    """The tool's name; the span's own where it has none."""
    return text_at(span.attributes, _TOOL_NAME) or span.name


def usage(span: Span) -> tuple[Usage, bool]:
    """Tokens, and whether what was cached had to be added to the input.

    By the conventions the input includes what was read from and written to a cache. Where the cached part is larger than the input,
    the input cannot be the whole of it, so whoever wrote the span kept them apart, as Anthropic's API does.
    """
    told = span.attributes
    tokens_in, read, written = _count_at(told, _INPUT), _count_at(told, _CACHE_READ), _count_at(told, _CACHE_WRITE)
    cached = (read or 0) + (written or 0)
    apart = tokens_in is not None and cached > tokens_in
    if apart and tokens_in is not None:
        tokens_in += cached
    tier = text_at(told, _TIER)
    return usage_of(tokens_in, _count_at(told, _OUTPUT), read, written, _count_at(told, _REASONING), service_tier=tier), apart


def cost(span: Span, used: Usage, *, price: bool = True, several: bool = False) -> Cost:
    """What the record says it cost, else by public prices of its time, where the server, the model and all of its tokens are known.
    `price` is whether the record leaves that to us; `several` that the tokens are those of several calls."""
    told = next((usd for name in _COST if (usd := money_of(span.attributes.get(name))) is not None), None)
    if told is not None:
        source = span.attributes.get(names.COST_SOURCE)
        return Cost(told, CostSource.PRICED if source == CostSource.PRICED.value else CostSource.REPORTED)
    who = provider(span)
    if not price or who is None:
        return Cost(
            reason=text_at(span.attributes, (names.COST_NOTE,)) or "The record does not say who answered, or for how much."
        )
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
    """Why the response ended, in the provider's own word."""
    told = span.attributes
    words = told.get(names.FINISH_REASONS)
    if isinstance(words, str) and words.startswith("["):
        words = _parsed(words)
    first = words[0] if isinstance(words, list | tuple) and words else words
    if isinstance(first, str) and first:
        return first[:200]
    return text_at(told, ("gen_ai.completion.0.finish_reason", "llm.response.finish_reason", "llm.finish_reason"))


def answer(span: Span) -> tuple[str | None, tuple[str, ...] | None]:
    """What the model said, and the names of the tools it asked for; None where the span does not hold what was said."""
    messages = _messages(span, names.OUTPUT_MESSAGES)
    if messages is None:
        return None, None
    parts = [part for message in messages for part in _parts(message)]
    text = "".join(said for part in parts if part.get("type") == "text" and isinstance(said := part.get("content"), str))
    tools = tuple(str(part.get("name") or "")[:200] for part in parts if part.get("type") == "tool_call")
    return text_of(text), tools


def prompt(span: Span) -> str | None:
    """The first thing that a person said to it."""
    for message in _messages(span, names.INPUT_MESSAGES) or []:
        if message.get("role") == "user":
            said = [part.get("content") for part in _parts(message) if part.get("type") == "text"]
            return text_of("".join(part for part in said if isinstance(part, str)))
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

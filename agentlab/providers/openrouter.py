"""OpenRouter, one address for many vendors' models, over chat completions and over its Responses API.

Vendor pages, read 2026-11-22: https://openrouter.ai/docs/api-reference/overview,
https://openrouter.ai/docs/api/reference/errors-and-debugging (errors under status 200, and within a stream),
https://openrouter.ai/docs/use-cases/usage-accounting (usage and cost come with every response),
https://openrouter.ai/docs/use-cases/reasoning-tokens (`reasoning_details` are sent back with a turn that calls tools) and
https://openrouter.ai/docs/api/reference/responses/overview (it stores nothing, and always sends encrypted reasoning). The tables of
finish reasons of Responses are in `wires/responses.py`.
"""

from __future__ import annotations

from typing import Any, ClassVar

from agentlab._internal.values import dataclass
from agentlab.model.finish_reasons import FinishReason
from agentlab.model.messages import JSON
from agentlab.providers.base import Capabilities
from agentlab.providers.wires import read
from agentlab.providers.wires.chat import FILTER_RESULTS, FINISH_REASONS, Dialect, native_details
from agentlab.providers.wires.chat_provider import VersionedChat
from agentlab.providers.wires.finish_rules import Table
from agentlab.providers.wires.responses_provider import Responses

BASE_URL = "https://openrouter.ai/api/v1"
KEY_VARIABLES = ("OPENROUTER_API_KEY",)

NATIVE_REASONS = Table(
    field="choices[].native_finish_reason",
    reasons={
        **FINISH_REASONS.reasons,  # OpenAI's chat completions, and most servers of open models
        # OpenAI's and xAI's Responses: the status, or the reason why they are incomplete:
        # https://platform.openai.com/docs/api-reference/responses/object
        "completed": FinishReason.END_TURN,
        "max_output_tokens": FinishReason.MAX_TOKENS,
        "failed": FinishReason.ERROR,
        "cancelled": FinishReason.CANCELLED,
        # Anthropic: https://platform.claude.com/docs/en/build-with-claude/handling-stop-reasons
        "end_turn": FinishReason.END_TURN,
        "stop_sequence": FinishReason.STOP_SEQUENCE,
        "tool_use": FinishReason.TOOL_CALLS,
        "max_tokens": FinishReason.MAX_TOKENS,
        "model_context_window_exceeded": FinishReason.CONTEXT_WINDOW_EXCEEDED,
        "refusal": FinishReason.CONTENT_FILTERED,
        "pause_turn": FinishReason.PAUSED,
        # Google: https://ai.google.dev/api/generate-content#FinishReason
        "STOP": FinishReason.END_TURN,
        "MAX_TOKENS": FinishReason.MAX_TOKENS,
        "SAFETY": FinishReason.CONTENT_FILTERED,
        "RECITATION": FinishReason.CONTENT_FILTERED,
        "BLOCKLIST": FinishReason.CONTENT_FILTERED,
        "PROHIBITED_CONTENT": FinishReason.CONTENT_FILTERED,
        "SPII": FinishReason.CONTENT_FILTERED,
        "LANGUAGE": FinishReason.CONTENT_FILTERED,
        "IMAGE_SAFETY": FinishReason.CONTENT_FILTERED,
        "IMAGE_PROHIBITED_CONTENT": FinishReason.CONTENT_FILTERED,
        "IMAGE_RECITATION": FinishReason.CONTENT_FILTERED,
        "MODEL_ARMOR": FinishReason.CONTENT_FILTERED,
        "MALFORMED_FUNCTION_CALL": FinishReason.ERROR,
        "UNEXPECTED_TOOL_CALL": FinishReason.ERROR,
        "TOO_MANY_TOOL_CALLS": FinishReason.ERROR,
        "MISSING_THOUGHT_SIGNATURE": FinishReason.ERROR,
        "MALFORMED_RESPONSE": FinishReason.ERROR,
        # Bedrock: https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Converse.html
        "guardrail_intervened": FinishReason.CONTENT_FILTERED,
        "content_filtered": FinishReason.CONTENT_FILTERED,
        # Together AI: https://docs.together.ai/reference/chat-completions-1
        "eos": FinishReason.END_TURN,
        # Mistral: https://docs.mistral.ai/api/
        "model_length": FinishReason.CONTEXT_WINDOW_EXCEEDED,
        # DeepSeek: https://api-docs.deepseek.com/api/create-chat-completion
        "insufficient_system_resource": FinishReason.ERROR,
        # Zhipu: https://docs.z.ai/api-reference/llm/chat-completion
        "sensitive": FinishReason.CONTENT_FILTERED,
        "network_error": FinishReason.ERROR,
    },
    stop_with_calls=True,
    repairable=frozenset({"MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "MALFORMED_RESPONSE"}),
)
"""Finish reasons of the vendors behind OpenRouter, each from the vendor's page; `wires/finish_rules.py` says how they are weighed."""


def end_details(body: dict[str, Any], choice: dict[str, Any]) -> dict[str, JSON]:
    """Return the native finish reason, and the details of a refusal by Anthropic's models."""
    details = {key: text for key, value in read.as_dict(choice.get("stop_details")).items() if (text := read.some_text(value))}
    return {**native_details(body, choice), **({"stop_details": details} if details else {})}


@dataclass(frozen=True, slots=True)
class OpenRouter(VersionedChat):
    """OpenRouter, whose models are named `vendor/model`.

    Pass OpenRouter's own fields, such as `provider`, `models` or `reasoning`, in `options`, and the optional `HTTP-Referer` and
    `X-Title`, which name your application, in `headers`. The cost is the reported one; with your own key at the vendor (BYOK), it is
    the sum of OpenRouter's fee and the vendor's charge.
    """

    name: ClassVar[str] = "openrouter"
    wire: ClassVar[str] = "openrouter.chat"
    cap_field: ClassVar[str] = "max_tokens"
    capabilities: ClassVar[Capabilities] = Capabilities(reports_cost=True)
    key_variables: ClassVar[tuple[str, ...]] = KEY_VARIABLES
    dialect: ClassVar[Dialect] = Dialect(
        native=NATIVE_REASONS,
        details=end_details,
        kept=(*FILTER_RESULTS, "stop_details"),
        effort=lambda effort: {"reasoning": {"effort": effort}},
    )

    base_url: str = BASE_URL


@dataclass(frozen=True, slots=True)
class OpenRouterResponses(Responses):
    """OpenRouter's server, or a proxy of it at `base_url`, to which the key of OPENROUTER_API_KEY is sent too."""

    name: ClassVar[str] = "openrouter-responses"
    wire: ClassVar[str] = "openrouter.responses"
    capabilities: ClassVar[Capabilities] = Capabilities(reports_cost=True)
    key_variables: ClassVar[tuple[str, ...]] = KEY_VARIABLES
    full_items: ClassVar[bool] = True

    base_url: str = BASE_URL


PROVIDERS = (OpenRouter, OpenRouterResponses)

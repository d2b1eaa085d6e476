"""Servers on a wire that several share: any one by its address, and those that are known by name, one row of `PRESETS` each.

Some of these servers leave out a key, usage, finish reasons, ids, statuses, or the output in the last event, so none of these is
required here, and requests have no fields that a simple server may not support. Several, including llama.cpp, send `completed` on the
Responses wire although they stopped at the cap: an answer over `compatible-responses` with as many tokens as the cap counts as
truncated, MAX_TOKENS at MEDIUM confidence.

A preset differs from others in name, address, key and finish reasons only. To add one, add a row. `pages` are the vendor's pages or the
types of its client, and `read` is the date on which they were read. `prices` is the seller in the price list of genai-prices, found by
the address; without one, the cost of a call is unknown. `unverified` names what no page of the vendor confirmed. `reasons` are finish
reasons besides those of the wire. `structured`: the server takes the schema of a typed answer as `response_format`, with each of its
models; in requests with tools, which some servers refuse then, such an answer is a tool call. `lacks` are the parameters of an agent
that the server does not take, by its own pages: a name, or one value as `tool_choice=required`. `tool_choice=name` is the choice of one
tool by its name. `unforced` are models that take no forced tool choice while they reason: the servers' error messages say so.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import field
from decimal import Decimal
from types import MappingProxyType
from typing import Any, ClassVar

from agentlab._internal.values import dataclass
from agentlab.model.finish_reasons import FinishReason
from agentlab.model.messages import JSON, OutputForm
from agentlab.providers.base import Capabilities
from agentlab.providers.wires.chat import FINISH_REASONS, Dialect, plain_effort
from agentlab.providers.wires.chat_provider import ChatCompletions
from agentlab.providers.wires.finish_rules import Table
from agentlab.providers.wires.responses_provider import Responses

_WRONG_CALLS = (
    "MALFORMED_FUNCTION_CALL",
    "UNEXPECTED_TOOL_CALL",
    "TOO_MANY_TOOL_CALLS",
    "MISSING_THOUGHT_SIGNATURE",
    "MALFORMED_RESPONSE",
    "PUP_LIMITED_DISABLED",
)
_FILTERED = (
    "SAFETY",
    "RECITATION",
    "LANGUAGE",
    "BLOCKLIST",
    "PROHIBITED_CONTENT",
    "SPII",
    "IMAGE_SAFETY",
    "IMAGE_PROHIBITED_CONTENT",
    "IMAGE_RECITATION",
    "ESCALATION",
    "MODEL_ARMOR",
)

GEMINI_REASONS = Table(
    field=FINISH_REASONS.field,
    reasons={
        **{f"function_call_filter: {value}": FinishReason.ERROR for value in _WRONG_CALLS},
        **{f"content_filter: {value}": FinishReason.CONTENT_FILTERED for value in _FILTERED},
    },
    repairable=frozenset(
        f"function_call_filter: {value}" for value in ("MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "MALFORMED_RESPONSE")
    ),
    prefix="function_call_filter: ",
)
"""Finish reasons of Gemini's OpenAI-compatible address (https://ai.google.dev/gemini-api/docs/openai): the name of a filter, then the
value of Gemini's own wire, as in `function_call_filter: MALFORMED_FUNCTION_CALL`. The values are those of
https://ai.google.dev/api/generate-content#FinishReason; the two names are from public reports of responses. Read 2026-11-29."""


@dataclass(frozen=True, slots=True)
class Compatible(ChatCompletions):
    """A server on the chat completions wire at `base_url`, which is required (for example `http://127.0.0.1:8080/v1`).

    `api_key` is optional and the only key that is ever sent: no environment variable is read. `prefill`: the server continues an answer
    if its beginning is the last message. A cut answer is then continued that way. `structured`: the server takes the schema of a typed
    answer as `response_format`, as llama.cpp, vLLM, Ollama and LM Studio do; otherwise such an answer is a tool call.
    """

    name: ClassVar[str] = "compatible"
    wire: ClassVar[str] = "compatible.chat"
    cap_field: ClassVar[str] = "max_tokens"
    capabilities: ClassVar[Capabilities] = Capabilities(reports_cost=True)
    dialect: ClassVar[Dialect] = Dialect(tables=(FINISH_REASONS, GEMINI_REASONS))

    base_url: str = ""
    prefill: bool = False
    structured: bool = False

    def output_form(self, *, with_tools: bool) -> OutputForm:
        """Return `strict` for a `structured` server, else `tool`."""
        return "strict" if self.structured else "tool"

    @property
    def prefills(self) -> bool:
        """True if a cut answer is continued right after its text."""
        return self.prefill


@dataclass(frozen=True, slots=True)
class CompatibleResponses(Responses):
    """A server on the Responses wire at `base_url`, which is required (for example `http://127.0.0.1:8080/v1`).

    `api_key` is optional and the only key that is ever sent: no environment variable is read. `structured`: the server takes the schema
    of a typed answer as `text.format`; otherwise such an answer is a tool call.
    """

    name: ClassVar[str] = "compatible-responses"
    wire: ClassVar[str] = "compatible.responses"
    capabilities: ClassVar[Capabilities] = Capabilities(reports_cost=True)
    full_items: ClassVar[bool] = True
    trusted: ClassVar[bool] = False

    base_url: str = ""
    structured: bool = False

    def output_form(self, *, with_tools: bool) -> OutputForm:
        """Return `strict` for a `structured` server, else `tool`."""
        return "strict" if self.structured else "tool"


# Servers known by name ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Preset:
    """One server. Without `keys`, the environment variables of its key, the key is optional and only a given one is sent."""

    name: str
    title: str
    address: str
    keys: tuple[str, ...]
    prices: str
    pages: tuple[str, ...]
    read: str
    cap_field: str = "max_tokens"
    reasons: Mapping[str | int, FinishReason] = field(default_factory=dict)
    seed_field: str = "seed"
    effort: Callable[[str], dict[str, JSON]] = plain_effort
    lacks: tuple[str, ...] = ()
    unforced: str = ""
    call_id: Callable[[str], str] = str
    structured: bool = False
    unverified: str = ""


def switched_effort(effort: str) -> dict[str, JSON]:
    """Return the field for a reasoning effort, of servers that turn reasoning off with another field."""
    return {"thinking": {"type": "disabled"}} if effort == "none" else {"reasoning_effort": effort}


def nine_characters(call_id: str) -> str:
    """Return an id that Mistral takes, which has nine letters and digits: https://mistralai.github.io/mistral-common/usage/tools."""
    if re.fullmatch("[A-Za-z0-9]{9}", call_id):
        return call_id
    return hashlib.sha256(call_id.encode("utf-8", "replace")).hexdigest()[:9]


_GITHUB = "https://github.com"

PRESETS = (
    Preset(
        name="mistral",
        title="Mistral",
        address="https://api.mistral.ai/v1",
        keys=("MISTRAL_API_KEY",),
        prices="mistral",
        pages=(f"{_GITHUB}/mistralai/client-python/blob/main/src/mistralai/client/models/chatcompletionchoice.py",),
        read="2026-11-24",
        reasons={"model_length": FinishReason.CONTEXT_WINDOW_EXCEEDED},
        seed_field="random_seed",
        call_id=nine_characters,
        structured=True,
    ),
    Preset(
        name="groq",
        title="Groq",
        address="https://api.groq.com/openai/v1",
        keys=("GROQ_API_KEY",),
        prices="groq",
        pages=(f"{_GITHUB}/groq/groq-python/blob/main/src/groq/types/chat/chat_completion.py",),
        read="2026-11-23",
        cap_field="max_completion_tokens",
    ),
    Preset(
        name="deepseek",
        title="DeepSeek",
        address="https://api.deepseek.com",
        keys=("DEEPSEEK_API_KEY",),
        prices="deepseek",
        pages=(
            "https://api-docs.deepseek.com/api/create-chat-completion",
            "https://api-docs.deepseek.com/guides/thinking_mode",
        ),
        read="2026-11-24",
        reasons={"insufficient_system_resource": FinishReason.ERROR, "aborted": FinishReason.CANCELLED},
        effort=switched_effort,
        unforced="deepseek-(?:v4|flash|reasoner)",
    ),
    Preset(
        name="together",
        title="Together AI",
        address="https://api.together.ai/v1",
        keys=("TOGETHER_API_KEY",),
        prices="together",
        pages=(
            f"{_GITHUB}/togethercomputer/together-py/blob/main/src/together/types/chat/chat_completion.py",
            "https://docs.together.ai/docs/inference/openai-compatibility",
        ),
        read="2026-11-24",
        reasons={"eos": FinishReason.END_TURN},
    ),
    Preset(
        name="fireworks",
        title="Fireworks",
        address="https://api.fireworks.ai/inference/v1",
        keys=("FIREWORKS_API_KEY",),
        prices="fireworks",
        pages=(
            f"{_GITHUB}/fw-ai-external/python-sdk/blob/main/src/fireworks/types/shared/choice.py",
            "https://docs.fireworks.ai/structured-responses/structured-response-formatting",
        ),
        read="2026-11-24",
        structured=True,
    ),
    Preset(
        name="cerebras",
        title="Cerebras",
        address="https://api.cerebras.ai/v1",
        keys=("CEREBRAS_API_KEY",),
        prices="cerebras",
        pages=(f"{_GITHUB}/Cerebras/cerebras-cloud-sdk-python/blob/main/src/cerebras/cloud/sdk/types/chat/chat_completion.py",),
        read="2026-11-23",
        cap_field="max_completion_tokens",
    ),
    Preset(
        name="moonshot",
        title="Moonshot AI (Kimi)",
        address="https://api.moonshot.ai/v1",
        keys=("MOONSHOT_API_KEY",),
        prices="moonshotai",
        pages=("https://platform.kimi.ai/docs/api/chat",),
        read="2026-11-24",
        cap_field="max_completion_tokens",
        effort=switched_effort,
        unforced="kimi-k2",
    ),
    Preset(
        name="cohere",
        title="Cohere",
        address="https://api.cohere.ai/compatibility/v1",
        keys=("CO_API_KEY", "COHERE_API_KEY"),
        prices="cohere",
        pages=("https://docs.cohere.com/docs/compatibility-api",),
        read="2026-11-24",
        lacks=("parallel_tool_calls", *(f"reasoning_effort={effort}" for effort in ("minimal", "low", "medium", "xhigh", "max"))),
        unverified="finish reasons",
    ),
    Preset(
        name="huggingface",
        title="Hugging Face Inference Providers",
        address="https://router.huggingface.co/v1",
        keys=("HF_TOKEN",),
        prices="huggingface",
        pages=("https://huggingface.co/docs/inference-providers/tasks/chat-completion",),
        read="2026-11-24",
        reasons={"eos_token": FinishReason.END_TURN, "stop_sequence": FinishReason.STOP_SEQUENCE},
        unverified="finish reasons",
    ),
    Preset(
        name="ollama",
        title="Ollama",
        address="http://127.0.0.1:11434/v1",
        keys=(),
        prices="",
        pages=(f"{_GITHUB}/ollama/ollama/blob/main/docs/api/openai-compatibility.mdx",),
        read="2026-11-24",
        lacks=("tool_choice",),
        structured=True,
    ),
    Preset(
        name="lmstudio",
        title="LM Studio",
        address="http://127.0.0.1:1234/v1",
        keys=(),
        prices="",
        pages=(
            "https://lmstudio.ai/docs/developer/openai-compat/chat-completions",
            "https://lmstudio.ai/docs/developer/api-changelog",
        ),
        read="2026-11-23",
        lacks=("tool_choice=name",),
        structured=True,
    ),
    Preset(
        name="vllm",
        title="vLLM",
        address="http://127.0.0.1:8000/v1",
        keys=(),
        prices="",
        pages=(f"{_GITHUB}/vllm-project/vllm/blob/main/vllm/v1/engine/__init__.py",),
        read="2026-11-23",
        reasons={"abort": FinishReason.CANCELLED},
        structured=True,
    ),
    Preset(
        name="llama-cpp",
        title="llama.cpp",
        address="http://127.0.0.1:8080/v1",
        keys=(),
        prices="",
        pages=(f"{_GITHUB}/ggml-org/llama.cpp/blob/master/tools/server/README.md",),
        read="2026-11-23",
        structured=True,
    ),
)


def _no_cost(usage: dict[str, Any]) -> Decimal | None:
    """Return None: none of these servers reports a cost. Some pass on a field of another server, which is 0 here."""
    return None


def _schema_without_tools(self: ChatCompletions, *, with_tools: bool) -> OutputForm:
    """Return `strict`, or `tool` in requests with tools, which some servers refuse together with a schema."""
    return "tool" if with_tools else "strict"


def _class_of(preset: Preset) -> type[ChatCompletions]:
    """Return the provider's class for a row."""
    more = (Table(FINISH_REASONS.field, preset.reasons),) if preset.reasons else ()
    key = f"The key is that of {' or '.join(preset.keys)}." if preset.keys else "`api_key` is optional."
    body = {
        "__module__": __name__,
        "__doc__": f"{preset.title}, or a server at `base_url` that behaves like it. {key}",
        "__annotations__": {"base_url": "str"},
        "name": preset.name,
        "wire": f"{preset.name}.chat",
        "cap_field": preset.cap_field,
        "capabilities": Capabilities(),
        "key_variables": preset.keys,
        "dialect": Dialect(
            tables=(FINISH_REASONS, *more),
            cost=_no_cost,
            seed_field=preset.seed_field,
            effort=preset.effort,
            lacks=preset.lacks,
            unforced=preset.unforced,
            call_id=preset.call_id,
        ),
        "base_url": preset.address,
    }
    if preset.structured:
        body["output_form"] = _schema_without_tools
    name = "".join(part.capitalize() for part in preset.name.split("-"))
    return dataclass(frozen=True, slots=True)(type(name, (ChatCompletions,), body))


_NAMED = {preset.name: _class_of(preset) for preset in PRESETS}
globals().update({kind.__name__: kind for kind in _NAMED.values()})  # so that their objects can be pickled
CLASSES: Mapping[str, Any] = MappingProxyType({"compatible": Compatible, "compatible-responses": CompatibleResponses, **_NAMED})

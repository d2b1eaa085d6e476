"""xAI, over chat completions and over its Responses API.

Vendor pages, read 2026-11-22: https://docs.x.ai/docs/api-reference#chat-completions (`stop`, `length`; `end_turn` or null in chunks of
a stream before the last), https://docs.x.ai/developers/cost-tracking (10^10 ticks are one US dollar) and
https://docs.x.ai/developers/rate-limits (reasoning tokens are charged like the completion's). Reasoning tokens are not part of
`completion_tokens`, as the totals of recorded responses show. Responses:
https://docs.x.ai/developers/model-capabilities/text/generate-text and
https://docs.x.ai/developers/model-capabilities/text/best-practices, with the tables of finish reasons in `wires/responses.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, ClassVar

from agentlab._internal.values import dataclass
from agentlab.model.finish_reasons import FinishReason
from agentlab.model.messages import JSON, OutputForm
from agentlab.model.responses import ModelResponse, StreamEvent
from agentlab.providers.base import Capabilities, StreamParser
from agentlab.providers.wires import read
from agentlab.providers.wires.chat import FINISH_REASONS, Dialect, cost_in_ticks, read_body
from agentlab.providers.wires.chat_provider import ChatStreamParser, VersionedChat
from agentlab.providers.wires.finish_rules import Table
from agentlab.providers.wires.responses_provider import Responses

BASE_URL = "https://api.x.ai/v1"
KEY_VARIABLES = ("XAI_API_KEY",)
_NOT_WITH_TOOLS = re.compile(r"grok-[1-3]\b")
"""Models that refuse structured output in a request with tools: https://docs.x.ai/docs/guides/structured-outputs, read 2026-11-23."""

SAMPLE_REASONS = Table(
    field="outputs[].finish_reason",
    reasons={
        "REASON_INVALID": FinishReason.UNKNOWN,
        "REASON_MAX_LEN": FinishReason.MAX_TOKENS,
        "REASON_MAX_CONTEXT": FinishReason.CONTEXT_WINDOW_EXCEEDED,
        "REASON_STOP": FinishReason.END_TURN,
        "REASON_TOOL_CALLS": FinishReason.TOOL_CALLS,
        "REASON_TIME_LIMIT": FinishReason.ERROR,
    },
)


@dataclass(frozen=True, slots=True)
class XAI(VersionedChat):
    """xAI's server, or a proxy of it at `base_url`. The cost is the reported one. Also reads recorded gRPC responses of xAI's SDK."""

    name: ClassVar[str] = "xai"
    wire: ClassVar[str] = "xai.chat"
    cap_field: ClassVar[str] = "max_completion_tokens"
    capabilities: ClassVar[Capabilities] = Capabilities(reports_cost=True)
    key_variables: ClassVar[tuple[str, ...]] = KEY_VARIABLES
    dialect: ClassVar[Dialect] = Dialect(
        tables=(FINISH_REASONS, SAMPLE_REASONS),
        not_yet=frozenset({"", "end_turn"}),
        cost=cost_in_ticks,
        reasoning_on_top=True,
        system_anywhere=True,
    )

    base_url: str = BASE_URL

    def output_form(self, *, with_tools: bool) -> OutputForm:
        """Return `strict`, or `tool` where tools and structured output exclude each other."""
        return "tool" if with_tools and _NOT_WITH_TOOLS.match(self.model) else "strict"

    def parse(self, payload: JSON, *, requested_cap: int | None = None) -> ModelResponse:
        """Read a whole body."""
        origin = self._origin(requested_cap)
        if is_sample(payload):
            return replace(read_body(to_chat(payload), origin), raw=payload)
        return read_body(payload, origin)

    def stream_parser(self, *, requested_cap: int | None = None) -> StreamParser:
        """Return a new parser for one stream."""
        return SampleStreamParser(self._origin(requested_cap))


@dataclass(frozen=True, slots=True)
class XAIResponses(Responses):
    """xAI's server, or a proxy of it at `base_url`, to which the key of XAI_API_KEY is sent too. Requests ask xAI to store nothing, and
    to send its reasoning encrypted; the reasoning is sent back with the next turn."""

    name: ClassVar[str] = "xai-responses"
    wire: ClassVar[str] = "xai.responses"
    capabilities: ClassVar[Capabilities] = Capabilities(reports_cost=True)
    key_variables: ClassVar[tuple[str, ...]] = KEY_VARIABLES
    system_anywhere: ClassVar[bool] = True
    defaults: ClassVar[Mapping[str, JSON]] = MappingProxyType({"store": False, "include": ("reasoning.encrypted_content",)})

    base_url: str = BASE_URL

    def output_form(self, *, with_tools: bool) -> OutputForm:
        """Return `strict`, or `tool` where tools and structured output exclude each other."""
        return "tool" if with_tools and _NOT_WITH_TOOLS.match(self.model) else "strict"


# Samples -------------------------------------------------------------------------------------------------------------------
# Responses of xAI's SDK over gRPC, in protobuf's JSON, as cassettes of other tools contain them. Vendor page:
# https://github.com/xai-org/xai-proto (proto/xai/api/v1/chat.proto, sample.proto, usage.proto), read 2026-11-22. Fields that are zero
# or empty are left out. An answer may have several `outputs`: a turn of the model with calls of the server's tools, their results
# (ROLE_TOOL), and the model's next turn. All turns of the model are read as one answer, and the last turn says why it ended.

_CLIENT_SIDE = (None, "TOOL_CALL_TYPE_INVALID", "TOOL_CALL_TYPE_CLIENT_SIDE_TOOL")
"""The types of calls to the request's tools; the server runs the tools of other types."""

_KEPT = ("total_tokens", "num_sources_used", "cost_in_usd_ticks", "server_side_tools_used")

_ANSWERING = (None, "INVALID_ROLE", "ROLE_ASSISTANT")


def is_sample(body: JSON) -> bool:
    """True if a body, or a chunk of a stream, is a sample."""
    return isinstance(body, dict) and "outputs" in body and "choices" not in body


def to_chat(body: dict[str, Any], *, calls_before: bool = False) -> dict[str, Any]:
    """Return a sample as the body of a chat completion, or a chunk of a stream of samples as a chunk of one.

    A turn that ends with calls of the server's tools does not end the answer. `calls_before`: an earlier chunk had calls of the
    request's tools.
    """
    texts: dict[str, list[str]] = {"content": [], "reasoning_content": []}
    calls: list[dict[str, Any]] = []
    finish: JSON = None
    for output in read.as_list(body.get("outputs")):
        part = read.as_dict(read.as_dict(output).get("message")) or read.as_dict(read.as_dict(output).get("delta"))
        if not isinstance(output, dict) or part.get("role") not in _ANSWERING:
            continue
        for key, pieces in texts.items():
            if isinstance(text := part.get(key), str):
                pieces.append(text)
        calls += [_call(entry) for entry in read.as_list(part.get("tool_calls")) if _is_client_call(entry)]
        reason = output.get("finish_reason")
        if reason == "REASON_TOOL_CALLS" and not calls and not calls_before:
            reason = None
        finish = reason if reason is not None else finish
    message: dict[str, Any] = {"role": "assistant", **{key: text for key in texts if (text := "".join(texts[key]))}}
    if calls:
        message["tool_calls"] = calls
    choice = {"index": 0, "message": message, "finish_reason": finish}
    kept: dict[str, Any] = {key: body[key] for key in ("id", "model", "system_fingerprint", "error") if key in body}
    usage = _usage(read.as_dict(body.get("usage")))
    return {**kept, "object": "chat.completion", "choices": [choice], **({"usage": usage} if usage else {})}


def _is_client_call(entry: JSON) -> bool:
    """True for a complete call of the request's tools; a fragment is sent again once the call is complete."""
    call = read.as_dict(entry)
    return bool(call) and call.get("type") in _CLIENT_SIDE and call.get("status") != "TOOL_CALL_STATUS_IN_PROGRESS"


def _call(entry: dict[str, Any]) -> dict[str, Any]:
    return {"id": entry.get("id"), "type": "function", "function": read.as_dict(entry.get("function"))}


def _usage(sampled: dict[str, Any]) -> dict[str, Any]:
    """Return the usage in the shape of chat completions. A missing count is zero if the total shows that."""
    prompt, total = sampled.get("prompt_tokens"), sampled.get("total_tokens")
    if prompt is None:
        return {}
    completion = sampled.get("completion_tokens")
    if completion is None and total == prompt:
        completion = 0
    return {
        **{key: sampled[key] for key in _KEPT if key in sampled},
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "prompt_tokens_details": {"cached_tokens": sampled.get("cached_prompt_text_tokens")},
        "completion_tokens_details": {"reasoning_tokens": sampled.get("reasoning_tokens")},
    }


class SampleStreamParser(ChatStreamParser):
    """Parses one stream of chunks, which may be samples."""

    def _take(self, name: bytes, chunk: dict[str, Any], events: list[StreamEvent]) -> None:
        if "outputs" in chunk and is_sample(chunk):
            chunk = to_chat(chunk, calls_before=bool(self._calls))
        super()._take(name, chunk, events)


PROVIDERS = (XAI, XAIResponses)

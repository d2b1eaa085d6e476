"""xAI, over chat completions.

Vendor pages, read 2026-11-22: https://docs.x.ai/docs/api-reference#chat-completions (`stop`, `length`; `end_turn` or null stand in a
stream where the chunk is not the last), https://docs.x.ai/developers/cost-tracking (10^10 ticks are one US dollar) and
https://docs.x.ai/developers/rate-limits (reasoning tokens are paid like the completion's). Those come on top of `completion_tokens`,
as the total of recorded responses shows. What its SDK was recorded to get over gRPC is read as well: `_xai_samples.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from agentlab.providers._base import Capabilities, StreamParser
from agentlab.providers._chat_completions import FINISH_REASONS, Dialect, read_body
from agentlab.providers._chat_provider import VersionedChat
from agentlab.providers._chat_usage import cost_in_ticks
from agentlab.providers._request import find_key
from agentlab.providers._xai_samples import SAMPLE_REASONS, SampleStreamParser, is_sample, to_chat
from agentlab.types import JSON, ModelResponse

BASE_URL = "https://api.x.ai/v1"
KEY_VARIABLES = ("XAI_API_KEY",)


@dataclass(frozen=True, slots=True)
class XAI(VersionedChat):
    """xAI's own server, or a proxy of it at `base_url`. Cost is what it reports."""

    name: ClassVar[str] = "xai"
    wire: ClassVar[str] = "xai.chat"
    cap_field: ClassVar[str] = "max_completion_tokens"
    capabilities: ClassVar[Capabilities] = Capabilities(reports_cost=True)
    dialect: ClassVar[Dialect] = Dialect(
        tables=(FINISH_REASONS, SAMPLE_REASONS), not_yet=frozenset({"", "end_turn"}), cost=cost_in_ticks, reasoning_on_top=True
    )

    base_url: str = BASE_URL

    def parse(self, payload: JSON, *, requested_cap: int | None = None) -> ModelResponse:
        """Read a whole body."""
        origin = self._origin(requested_cap)
        if is_sample(payload):
            return replace(read_body(to_chat(payload), origin), raw=payload)
        return read_body(payload, origin)

    def stream_parser(self, *, requested_cap: int | None = None) -> StreamParser:
        """A new parser for one stream."""
        return SampleStreamParser(self._origin(requested_cap))

    def auth_headers(self) -> dict[str, str]:
        """The key as a bearer token. Raises MissingKeyError."""
        return {**self.headers, "authorization": f"Bearer {find_key(self.name, self.api_key, KEY_VARIABLES)}"}


PROVIDER = XAI

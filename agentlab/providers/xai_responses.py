"""xAI, over its Responses API.

Vendor pages, read 2026-11-22: https://docs.x.ai/developers/model-capabilities/text/generate-text and
https://docs.x.ai/developers/model-capabilities/text/best-practices. The tables of finish reasons are the wire's own, in
`_responses.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

from agentlab.providers._base import Capabilities
from agentlab.providers._request import find_key
from agentlab.providers._responses_provider import Responses
from agentlab.types import JSON

BASE_URL = "https://api.x.ai/v1"
KEY_VARIABLES = ("XAI_API_KEY",)

DEFAULTS: Mapping[str, JSON] = MappingProxyType({"store": False, "include": ("reasoning.encrypted_content",)})
"""Nothing is kept at xAI, and reasoning comes encrypted, to go back with the next turn."""


@dataclass(frozen=True, slots=True)
class XAIResponses(Responses):
    """xAI's own server, or a proxy of it at `base_url`, to which the key of XAI_API_KEY goes too."""

    name: ClassVar[str] = "xai-responses"
    wire: ClassVar[str] = "xai.responses"
    capabilities: ClassVar[Capabilities] = Capabilities(reports_cost=True)

    base_url: str = BASE_URL

    def auth_headers(self) -> dict[str, str]:
        """The key as a bearer token. Raises MissingKeyError."""
        return {**self.headers, "authorization": f"Bearer {find_key(self.name, self.api_key, KEY_VARIABLES)}"}

    def _defaults(self) -> Mapping[str, JSON]:
        return DEFAULTS


PROVIDER = XAIResponses

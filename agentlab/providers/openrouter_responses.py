"""OpenRouter, over its Responses API.

Vendor page: https://openrouter.ai/docs/api/reference/responses/overview, read 2026-11-22: it keeps nothing, and sends encrypted
reasoning without being asked. The tables of finish reasons are the wire's own, in `_responses.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from agentlab.providers._base import Capabilities
from agentlab.providers._request import find_key
from agentlab.providers._responses_provider import Responses

BASE_URL = "https://openrouter.ai/api/v1"
KEY_VARIABLES = ("OPENROUTER_API_KEY",)


@dataclass(frozen=True, slots=True)
class OpenRouterResponses(Responses):
    """OpenRouter's server, or a proxy of it at `base_url`, to which the key of OPENROUTER_API_KEY goes too."""

    name: ClassVar[str] = "openrouter-responses"
    wire: ClassVar[str] = "openrouter.responses"
    capabilities: ClassVar[Capabilities] = Capabilities(reports_cost=True)
    full_items: ClassVar[bool] = True

    base_url: str = BASE_URL

    def auth_headers(self) -> dict[str, str]:
        """The key as a bearer token. Raises MissingKeyError."""
        return {**self.headers, "authorization": f"Bearer {find_key(self.name, self.api_key, KEY_VARIABLES)}"}


PROVIDER = OpenRouterResponses

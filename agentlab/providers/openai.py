"""OpenAI, over chat completions.

Vendor page: https://platform.openai.com/docs/api-reference/chat/create. The table of finish reasons is the wire's own, in
`_chat_completions.py`.

OpenAI, over the Responses API.

Vendor page: https://platform.openai.com/docs/api-reference/responses, read 2026-11-22. The tables of finish reasons are the wire's own,
in `_responses.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

from agentlab.providers.base import Capabilities, find_key
from agentlab.providers.wires.chat_provider import VersionedChat
from agentlab.providers.wires.responses_provider import Responses
from agentlab.types import JSON

BASE_URL = "https://api.openai.com/v1"
KEY_VARIABLES = ("OPENAI_API_KEY",)


@dataclass(frozen=True, slots=True)
class OpenAI(VersionedChat):
    """OpenAI's own server, or a proxy of it at `base_url`.

    The key of the environment variable OPENAI_API_KEY goes to `base_url` too: for a server of somebody else take `compatible`, which
    sends only the key that it was given. `api_version` is the version that `base_url` ends in; given, it takes that one's place.
    """

    name: ClassVar[str] = "openai"
    wire: ClassVar[str] = "openai.chat"
    cap_field: ClassVar[str] = "max_completion_tokens"
    capabilities: ClassVar[Capabilities] = Capabilities()

    base_url: str = BASE_URL

    def auth_headers(self) -> dict[str, str]:
        """The key as a bearer token. Raises MissingKeyError."""
        return {**self.headers, "authorization": f"Bearer {find_key(self.name, self.api_key, KEY_VARIABLES)}"}


DEFAULTS: Mapping[str, JSON] = MappingProxyType({"store": False})
"""Nothing is kept at OpenAI. Reasoning then comes encrypted of itself, and goes back with the next turn; `include` asks for it
too, but models that do not reason refuse that with a 400."""


@dataclass(frozen=True, slots=True)
class OpenAIResponses(Responses):
    """OpenAI's own server, or a proxy of it at `base_url`.

    The key of the environment variable OPENAI_API_KEY goes to `base_url` too: for a server of somebody else take
    `compatible-responses`, which sends only the key that it was given.
    """

    name: ClassVar[str] = "openai-responses"
    wire: ClassVar[str] = "openai.responses"
    capabilities: ClassVar[Capabilities] = Capabilities()

    base_url: str = BASE_URL

    def auth_headers(self) -> dict[str, str]:
        """The key as a bearer token. Raises MissingKeyError."""
        return {**self.headers, "authorization": f"Bearer {find_key(self.name, self.api_key, KEY_VARIABLES)}"}

    def _defaults(self) -> Mapping[str, JSON]:
        return DEFAULTS


PROVIDERS = (OpenAI, OpenAIResponses)

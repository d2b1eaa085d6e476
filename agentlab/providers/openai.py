"""OpenAI, over chat completions.

Vendor page: https://platform.openai.com/docs/api-reference/chat/create. The table of finish reasons is the wire's own, in
`_chat_completions.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from agentlab.providers._base import Capabilities
from agentlab.providers._chat_provider import VersionedChat
from agentlab.providers._request import find_key

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


PROVIDER = OpenAI

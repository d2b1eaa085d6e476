"""OpenAI, over chat completions and over the Responses API.

Vendor pages: https://platform.openai.com/docs/api-reference/chat/create; https://platform.openai.com/docs/api-reference/responses, read
2026-11-22. The tables of finish reasons are those of the wires, in `wires/chat.py` and `wires/responses.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

from agentlab.model.messages import JSON
from agentlab.providers.base import Capabilities
from agentlab.providers.wires.chat_provider import VersionedChat
from agentlab.providers.wires.responses_provider import Responses

BASE_URL = "https://api.openai.com/v1"
KEY_VARIABLES = ("OPENAI_API_KEY",)


@dataclass(frozen=True, slots=True)
class OpenAI(VersionedChat):
    """OpenAI's server, or a proxy of it at `base_url`.

    The key of the environment variable OPENAI_API_KEY is sent to `base_url` too. For another server use `compatible`, which sends only
    a given key. `api_version` replaces the version at the end of `base_url`.
    """

    name: ClassVar[str] = "openai"
    wire: ClassVar[str] = "openai.chat"
    cap_field: ClassVar[str] = "max_completion_tokens"
    capabilities: ClassVar[Capabilities] = Capabilities()
    key_variables: ClassVar[tuple[str, ...]] = KEY_VARIABLES

    base_url: str = BASE_URL


@dataclass(frozen=True, slots=True)
class OpenAIResponses(Responses):
    """OpenAI's server, or a proxy of it at `base_url`.

    The key of the environment variable OPENAI_API_KEY is sent to `base_url` too. For another server use `compatible-responses`, which
    sends only a given key.

    Requests ask OpenAI to store nothing. Reasoning is then sent encrypted, and is sent back with the next turn. They do not ask for it
    with `include`, which models that do not reason refuse with a 400.
    """

    name: ClassVar[str] = "openai-responses"
    wire: ClassVar[str] = "openai.responses"
    capabilities: ClassVar[Capabilities] = Capabilities()
    key_variables: ClassVar[tuple[str, ...]] = KEY_VARIABLES
    defaults: ClassVar[Mapping[str, JSON]] = MappingProxyType({"store": False})

    base_url: str = BASE_URL


PROVIDERS = (OpenAI, OpenAIResponses)

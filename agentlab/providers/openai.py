"""OpenAI, over chat completions and over the Responses API.

Vendor pages: https://platform.openai.com/docs/api-reference/chat/create; https://platform.openai.com/docs/api-reference/responses, read
2026-11-22. The tables of finish reasons are those of the wires, in `wires/chat.py` and `wires/responses.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

from agentlab._internal.values import dataclass
from agentlab.errors import ConfigurationError
from agentlab.model.messages import JSON, ModelRequest, OutputForm
from agentlab.providers.base import Capabilities
from agentlab.providers.wires.chat import Dialect
from agentlab.providers.wires.chat_provider import VersionedChat
from agentlab.providers.wires.responses_provider import Responses
from agentlab.transport.http import HttpRequest

_ALWAYS_REASONS = re.compile(
    r"o[134](?=$|-)|gpt-5(?=$|-(?!chat))|gpt-5\.\d+-(?:pro|chat)|gpt-5\.1-codex|gpt-6-astra|gpt-6\.1-sol"
)
_REASONS_UNASKED = re.compile(r"gpt-5\.[5-9]|gpt-6")
_MAY_REASON = re.compile(r"gpt-5\.|gpt-6")
"""Models that always reason, that reason unless the effort is `none`, and that reason if asked to:
https://developers.openai.com/api/docs/guides/latest-model, and the table in pydantic-ai 2.68, which was checked against the live API;
read 2026-11-24."""


def refuse_temperature(model: str, request: ModelRequest) -> None:
    """Raise ConfigurationError for a temperature that the model refuses: one other than 1, while it reasons."""
    asked, effort = request.parameters.temperature, request.parameters.reasoning_effort
    if asked in (None, 1):
        return
    if _ALWAYS_REASONS.match(model):
        raise ConfigurationError(f"temperature={asked!r}: {model} always reasons and takes no temperature but 1. Leave it out.")
    set_by_options = "reasoning" in request.options or "reasoning_effort" in request.options
    if not set_by_options and effort != "none" and (_MAY_REASON if effort else _REASONS_UNASKED).match(model):
        raise ConfigurationError(
            f'temperature={asked!r}: {model} takes no temperature but 1 while it reasons. Leave it out, or use reasoning_effort="none".'
        )


BASE_URL = "https://api.openai.com/v1"
UNSTRUCTURED = re.compile(r"gpt-3|gpt-4(?:-|$)|gpt-4o-2024-05-13|o1-(?:mini|preview)|chatgpt-")
"""Models without structured output: https://developers.openai.com/api/docs/guides/structured-outputs, read 2026-11-23."""
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
    dialect: ClassVar[Dialect] = Dialect(system_anywhere=True)

    base_url: str = BASE_URL

    def build_request(self, request: ModelRequest) -> HttpRequest:
        """Return a POST to `/chat/completions`. Raises ConfigurationError for a temperature that the model refuses."""
        refuse_temperature(self.model, request)
        return VersionedChat.build_request(self, request)

    def output_form(self, *, with_tools: bool) -> OutputForm:
        """Return `strict`, or `tool` for a model without structured output."""
        return "tool" if UNSTRUCTURED.match(self.model) else "strict"


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
    system_anywhere: ClassVar[bool] = True
    defaults: ClassVar[Mapping[str, JSON]] = MappingProxyType({"store": False})

    base_url: str = BASE_URL

    def build_request(self, request: ModelRequest) -> HttpRequest:
        """Return a POST to `/responses`. Raises ConfigurationError for a temperature that the model refuses, and for a seed."""
        refuse_temperature(self.model, request)
        return Responses.build_request(self, request)

    def output_form(self, *, with_tools: bool) -> OutputForm:
        """Return `strict`, or `tool` for a model without structured output."""
        return "tool" if UNSTRUCTURED.match(self.model) else "strict"


PROVIDERS = (OpenAI, OpenAIResponses)

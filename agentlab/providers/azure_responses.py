"""OpenAI's models on Azure, over the Responses API.

Vendor page: https://learn.microsoft.com/azure/ai-foundry/openai/how-to/responses, read 2026-11-22. The tables of finish reasons are the
wire's own, in `_responses.py`; addresses and keys are in `_azure.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar

from agentlab.providers import _azure as azure
from agentlab.providers._base import Capabilities
from agentlab.providers._responses_provider import Responses
from agentlab.types import JSON

_KEEP_NOTHING: Mapping[str, JSON] = MappingProxyType({"store": False})
_KEEP_NOTHING_OF_REASONING: Mapping[str, JSON] = MappingProxyType({"store": False, "include": ("reasoning.encrypted_content",)})
_REASONS = re.compile(r"(?<![a-z0-9])(o\d|gpt-?[5-9]|codex)(?!.*chat)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class AzureResponses(Responses):
    """A resource on Azure. `model` is the name of the deployment.

    `base_url` is the resource's address (`https://your-resource.openai.azure.com`), else that of the environment variable
    AZURE_OPENAI_ENDPOINT. `api_version` None is the v1 address, which needs none. The key is that of AZURE_OPENAI_API_KEY; for a
    Microsoft Entra token pass `headers={"authorization": "Bearer …"}` instead.

    Nothing is kept on Azure; its reasoning models are asked to send their reasoning encrypted, to go back with the next turn. Which
    model it is shows in the deployment's name only. Where yours says nothing, pass
    `options={"include": ["reasoning.encrypted_content"]}` to an agent with a reasoning model; `[]` where the model refuses it.
    """

    name: ClassVar[str] = "azure-responses"
    wire: ClassVar[str] = "azure.responses"
    capabilities: ClassVar[Capabilities] = Capabilities()

    base_url: str = ""
    api_version: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "base_url", azure.find_endpoint(self.base_url, self.name))
        azure.check_version(self.api_version, self.name)

    def auth_headers(self) -> dict[str, str]:
        """The key as `api-key`. Raises MissingKeyError."""
        return azure.auth_headers(self.name, self.api_key, self.headers)

    def _url(self) -> str:
        return azure.address(self.base_url, self.api_version, "/responses")

    def _defaults(self) -> Mapping[str, JSON]:
        return _KEEP_NOTHING_OF_REASONING if _REASONS.search(self.model) else _KEEP_NOTHING


PROVIDER = AzureResponses

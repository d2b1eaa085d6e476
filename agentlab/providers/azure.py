"""OpenAI's and other vendors' models on Azure (Microsoft Foundry), over chat completions and over the Responses API.

Vendor pages, read 2026-11-22: https://learn.microsoft.com/azure/ai-foundry/openai/reference (the wire, whose finish reasons are
OpenAI's, and dated versions, `?api-version=`), https://learn.microsoft.com/azure/ai-foundry/openai/api-version-lifecycle (the v1
address, which needs no version), https://learn.microsoft.com/azure/ai-foundry/openai/how-to/responses and
https://learn.microsoft.com/azure/ai-foundry/openai/concepts/content-filter (a filtered answer ends with `content_filter`; a filtered
prompt is an error 400 with the code `content_filter`). In recorded responses, models of other vendors send `tool_call`, in the
singular, which no page lists; `wires/chat.py` explains how such values are read. The tables of finish reasons are those of the wires.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from decimal import Decimal
from types import MappingProxyType
from typing import Any, ClassVar
from urllib.parse import quote

from agentlab._internal.values import dataclass
from agentlab.errors import ConfigurationError
from agentlab.model.messages import JSON, OutputForm
from agentlab.providers.base import Capabilities, clean_url, find_key
from agentlab.providers.wires.chat import Dialect
from agentlab.providers.wires.chat_provider import ChatCompletions
from agentlab.providers.wires.responses_provider import Responses

KEY_VARIABLES = ("AZURE_OPENAI_API_KEY",)
ENDPOINT_VARIABLE = "AZURE_OPENAI_ENDPOINT"

_UNDATED = ("preview", "latest")
"""Versions that are passed in the query of the v1 address."""

_BELOW_THE_ENDPOINT = re.compile(r"/openai(/(v1|deployments|responses|chat)\b.*)?$")
_VERSION = re.compile(r"[A-Za-z0-9._-]+")


def find_endpoint(base_url: str, provider: str) -> str:
    """Return the resource's address without `/openai` and what follows: the given one, else that of AZURE_OPENAI_ENDPOINT.

    Raises ConfigurationError for a missing or malformed address.
    """
    given = base_url.strip() or os.environ.get(ENDPOINT_VARIABLE, "").strip()
    if not given:
        raise ConfigurationError(
            f"{provider} needs the address of your resource: set the environment variable {ENDPOINT_VARIABLE}, or pass "
            f'lab.Provider("{provider}", model="your-deployment", base_url="https://your-resource.openai.azure.com").'
        )
    if "?api-version=" in given:
        raise ConfigurationError(
            f"The address of {provider} contains a version. Leave out the query, and pass api_version= or write "
            f"{provider}@version:model."
        )
    return _BELOW_THE_ENDPOINT.sub("", clean_url(given, provider))


def check_version(api_version: str | None, provider: str) -> None:
    """Raise ConfigurationError for a version that cannot be part of an address."""
    if api_version and not _VERSION.fullmatch(api_version):
        raise ConfigurationError(
            f"api_version={api_version!r} of {provider} is not a version. Pass a version such as '2025-04-01-preview'."
        )


def address(endpoint: str, api_version: str | None, path: str, *, deployment: str | None = None) -> str:
    """Return the address of an operation, such as `/responses`.

    `api_version` None or `v1` is the v1 address. In the address of a dated version, operations that belong to a `deployment` (chat
    completions do, responses do not) are below its name.
    """
    if api_version in (None, "", "v1"):
        return f"{endpoint}/openai/v1{path}"
    if api_version in _UNDATED:
        return f"{endpoint}/openai/v1{path}?api-version={api_version}"
    place = "" if deployment is None else f"/deployments/{quote(deployment, safe='')}"
    return f"{endpoint}/openai{place}{path}?api-version={api_version}"


def azure_headers(provider: str, api_key: str | None, headers: Mapping[str, str]) -> dict[str, str]:
    """Return the key as `api-key` and the user's headers, or only these if one of them is a credential (a Microsoft Entra token as
    `authorization`). Raises MissingKeyError."""
    if api_key is None and any(name.lower() in ("authorization", "api-key") for name in headers):
        return dict(headers)
    return {**headers, "api-key": find_key(provider, api_key, KEY_VARIABLES)}


def _no_cost(usage: dict[str, Any]) -> Decimal | None:
    """Return None: Azure reports no cost. Models of other vendors send their own server's field, but it is 0 on Azure."""
    return None


@dataclass(frozen=True, slots=True)
class Azure(ChatCompletions):
    """A deployment (`model`) of an Azure resource.

    `base_url` is the resource's address, `https://….openai.azure.com`, else that of the environment variable AZURE_OPENAI_ENDPOINT.
    `api_version` None is the v1 address; a dated version has another address. The key is that of AZURE_OPENAI_API_KEY; pass a Microsoft
    Entra token as `headers={"authorization": "Bearer …"}`.
    """

    name: ClassVar[str] = "azure"
    wire: ClassVar[str] = "azure.chat"
    cap_field: ClassVar[str] = "max_completion_tokens"
    capabilities: ClassVar[Capabilities] = Capabilities()
    structured_output: ClassVar[OutputForm] = "strict"
    dialect: ClassVar[Dialect] = Dialect(cost=_no_cost, system_anywhere=True)

    base_url: str = ""
    api_version: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "base_url", find_endpoint(self.base_url, self.name))
        check_version(self.api_version, self.name)

    def auth_headers(self) -> dict[str, str]:
        """Return the key as `api-key`. Raises MissingKeyError."""
        return azure_headers(self.name, self.api_key, self.headers)

    def _url(self) -> str:
        return address(self.base_url, self.api_version, "/chat/completions", deployment=self.model)


_STORE_NOTHING: Mapping[str, JSON] = MappingProxyType({"store": False})
_WITH_ENCRYPTED_REASONING: Mapping[str, JSON] = MappingProxyType({"store": False, "include": ("reasoning.encrypted_content",)})
_REASONING_MODEL = re.compile(r"(?<![a-z0-9])(o\d|gpt-?[5-9]|codex)(?!.*chat)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class AzureResponses(Responses):
    """A resource on Azure. `model` is the name of the deployment.

    Address, version and key are as for `azure`. Requests ask Azure to store nothing. Requests to reasoning models also ask for
    encrypted reasoning, which is sent back with the next turn. The model is guessed from the deployment's name. If that name does not
    contain the model, pass `options={"include": ["reasoning.encrypted_content"]}` for a reasoning model, or `[]` if the model refuses
    that field.
    """

    name: ClassVar[str] = "azure-responses"
    wire: ClassVar[str] = "azure.responses"
    capabilities: ClassVar[Capabilities] = Capabilities()
    system_anywhere: ClassVar[bool] = True
    structured_output: ClassVar[OutputForm] = "strict"

    base_url: str = ""
    api_version: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "base_url", find_endpoint(self.base_url, self.name))
        check_version(self.api_version, self.name)

    def auth_headers(self) -> dict[str, str]:
        """Return the key as `api-key`. Raises MissingKeyError."""
        return azure_headers(self.name, self.api_key, self.headers)

    def _url(self) -> str:
        return address(self.base_url, self.api_version, "/responses")

    def _defaults(self) -> Mapping[str, JSON]:
        return _WITH_ENCRYPTED_REASONING if _REASONING_MODEL.search(self.model) else _STORE_NOTHING


PROVIDERS = (Azure, AzureResponses)

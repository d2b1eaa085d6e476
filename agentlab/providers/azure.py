"""OpenAI's and other vendors' models on Azure (Microsoft Foundry), over chat completions.

Vendor pages, read 2026-11-22: https://learn.microsoft.com/azure/ai-foundry/openai/reference (the wire, whose finish reasons are
OpenAI's) and https://learn.microsoft.com/azure/ai-foundry/openai/concepts/content-filter (a filtered answer ends with
`content_filter`; a filtered prompt is an error 400 with the code `content_filter`). Models of other vendors have been recorded to say
`tool_call`, in the singular, which no page lists: see `_chat_completions.py` on such words.

OpenAI's models on Azure, over the Responses API.

Vendor page: https://learn.microsoft.com/azure/ai-foundry/openai/how-to/responses, read 2026-11-22. The tables of finish reasons are the
wire's own, in `_responses.py`; addresses and keys are in `_azure.py`.

Where an Azure resource serves OpenAI's wires, and how a call proves who it is.

Vendor pages, read 2026-11-22: https://learn.microsoft.com/azure/ai-foundry/openai/api-version-lifecycle (the v1 address, which needs no
version) and https://learn.microsoft.com/azure/ai-foundry/openai/reference (the dated versions, `?api-version=`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from types import MappingProxyType
from typing import Any, ClassVar
from urllib.parse import quote

from agentlab.errors import ConfigurationError
from agentlab.http import HttpRequest
from agentlab.providers.base import Capabilities, clean_url, content_headers, find_key
from agentlab.providers.wires import read
from agentlab.providers.wires.chat import Dialect, request_body
from agentlab.providers.wires.chat_provider import ChatCompletions
from agentlab.providers.wires.finish_rules import find_error
from agentlab.providers.wires.responses_provider import Responses
from agentlab.types import JSON, ModelRequest

KEY_VARIABLES = ("AZURE_OPENAI_API_KEY",)
ENDPOINT_VARIABLE = "AZURE_OPENAI_ENDPOINT"

_UNDATED = ("preview", "latest")
"""Versions of the v1 address, which are asked for in its query."""

_BELOW_THE_ENDPOINT = re.compile(r"/openai(/(v1|deployments|responses|chat)\b.*)?$")
_VERSION = re.compile(r"[A-Za-z0-9._-]+")


def find_endpoint(base_url: str, provider: str) -> str:
    """The resource's address, without `/openai` and what comes below it: the one given, else that of AZURE_OPENAI_ENDPOINT.

    Raises ConfigurationError where there is none, or where it is no address.
    """
    given = base_url.strip() or os.environ.get(ENDPOINT_VARIABLE, "").strip()
    if not given:
        raise ConfigurationError(
            f"{provider} needs the address of your resource: set the environment variable {ENDPOINT_VARIABLE}, or pass "
            f'lab.Provider("{provider}", model="your-deployment", base_url="https://your-resource.openai.azure.com").'
        )
    if "?api-version=" in given:
        raise ConfigurationError(
            f"The address of {provider} holds a version: leave out the query, and pass api_version= or write {provider}@version:model."
        )
    return _BELOW_THE_ENDPOINT.sub("", clean_url(given, provider))


def check_version(api_version: str | None, provider: str) -> None:
    """Raises ConfigurationError where a version could not be a part of an address."""
    if api_version and not _VERSION.fullmatch(api_version):
        raise ConfigurationError(
            f"api_version={api_version!r} of {provider} is no version: write one such as '2025-04-01-preview'."
        )


def address(endpoint: str, api_version: str | None, path: str, *, deployment: str | None = None) -> str:
    """The address of an operation, such as `/responses`.

    `api_version` None or `v1` is the v1 address. A dated version has an address of its own, in which the operations that belong to a
    deployment (chat completions do, responses do not) stand under its name: `deployment`.
    """
    if api_version in (None, "", "v1"):
        return f"{endpoint}/openai/v1{path}"
    if api_version in _UNDATED:
        return f"{endpoint}/openai/v1{path}?api-version={api_version}"
    place = "" if deployment is None else f"/deployments/{quote(deployment, safe='')}"
    return f"{endpoint}/openai{place}{path}?api-version={api_version}"


def azure_headers(provider: str, api_key: str | None, headers: Mapping[str, str]) -> dict[str, str]:
    """The key as `api-key`, with a person's further headers; no key where one of those is a credential already (a Microsoft Entra
    token as `authorization`). Raises MissingKeyError."""
    if api_key is None and any(name.lower() in ("authorization", "api-key") for name in headers):
        return dict(headers)
    return {**headers, "api-key": find_key(provider, api_key, KEY_VARIABLES)}


_VERDICTS = ("filtered", "detected")


def filters_that_fired(body: dict[str, Any], choice: dict[str, Any]) -> dict[str, JSON]:
    """The content filters that took effect, by category: on the answer, and on the prompt, which may have failed for it."""
    refused = read.as_dict(read.as_dict(find_error(body)).get("innererror"))
    prompts = [read.as_dict(entry).get("content_filter_results") for entry in read.as_list(body.get("prompt_filter_results"))]
    found = {
        "content_filter": _fired([choice.get("content_filter_results")]),
        "prompt_filter": _fired([*prompts, refused.get("content_filter_result")]),
    }
    return {name: fired for name, fired in found.items() if fired}


def _fired(results: list[JSON]) -> dict[str, JSON]:
    """Of each category that filtered, or detected what it looks for, how severe it was (`true` where it has no degrees)."""
    return {
        category: read.some_text(verdict.get("severity")) or True
        for result in results
        for category, verdict in read.as_dict(result).items()
        if isinstance(verdict, dict) and any(verdict.get(name) is True for name in _VERDICTS)
    }


def _no_cost(usage: dict[str, Any]) -> Decimal | None:
    """Azure reports no cost; models of other vendors bring along the field of their own server's, which says 0 here."""
    return None


@dataclass(frozen=True, slots=True)
class Azure(ChatCompletions):
    """A deployment (`model`) of an Azure resource.

    `base_url` is the resource's address, `https://….openai.azure.com`; without it, that of the environment variable
    AZURE_OPENAI_ENDPOINT. `api_version` None is the v1 address, which needs none; a dated version has an address of its own. For a
    Microsoft Entra token instead of a key pass it as `headers={"authorization": "Bearer …"}`.
    """

    name: ClassVar[str] = "azure"
    wire: ClassVar[str] = "azure.chat"
    cap_field: ClassVar[str] = "max_completion_tokens"
    capabilities: ClassVar[Capabilities] = Capabilities()
    dialect: ClassVar[Dialect] = Dialect(
        details=filters_that_fired, kept=("content_filter_results", "prompt_filter_results"), cost=_no_cost
    )

    base_url: str = ""
    api_version: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "base_url", find_endpoint(self.base_url, self.name))
        check_version(self.api_version, self.name)

    def build_request(self, request: ModelRequest) -> HttpRequest:
        """A POST to the deployment's chat completions."""
        return HttpRequest(
            method="POST",
            url=address(self.base_url, self.api_version, "/chat/completions", deployment=self.model),
            headers=content_headers(stream=request.stream),
            body=request_body(request, model=self.model, wire=self.wire, cap_field=self.cap_field),
        )

    def auth_headers(self) -> dict[str, str]:
        """The key as `api-key`. Raises MissingKeyError."""
        return azure_headers(self.name, self.api_key, self.headers)


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
        object.__setattr__(self, "base_url", find_endpoint(self.base_url, self.name))
        check_version(self.api_version, self.name)

    def auth_headers(self) -> dict[str, str]:
        """The key as `api-key`. Raises MissingKeyError."""
        return azure_headers(self.name, self.api_key, self.headers)

    def _url(self) -> str:
        return address(self.base_url, self.api_version, "/responses")

    def _defaults(self) -> Mapping[str, JSON]:
        return _KEEP_NOTHING_OF_REASONING if _REASONS.search(self.model) else _KEEP_NOTHING


PROVIDERS = (Azure, AzureResponses)

"""OpenAI's and other vendors' models on Azure (Microsoft Foundry), over chat completions.

Vendor pages, read 2026-11-22: https://learn.microsoft.com/azure/ai-foundry/openai/reference (the wire, whose finish reasons are
OpenAI's) and https://learn.microsoft.com/azure/ai-foundry/openai/concepts/content-filter (a filtered answer ends with
`content_filter`; a filtered prompt is an error 400 with the code `content_filter`). Models of other vendors have been recorded to say
`tool_call`, in the singular, which no page lists: see `_chat_completions.py` on such words.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any, ClassVar

from agentlab.providers import _azure as azure
from agentlab.providers import _read as read
from agentlab.providers._base import Capabilities
from agentlab.providers._chat_completions import Dialect, request_body
from agentlab.providers._chat_provider import ChatCompletions
from agentlab.providers._request import content_headers
from agentlab.providers._signals import find_error
from agentlab.transport.http import HttpRequest
from agentlab.types import JSON, ModelRequest

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
        object.__setattr__(self, "base_url", azure.find_endpoint(self.base_url, self.name))
        azure.check_version(self.api_version, self.name)

    def build_request(self, request: ModelRequest) -> HttpRequest:
        """A POST to the deployment's chat completions."""
        return HttpRequest(
            method="POST",
            url=azure.address(self.base_url, self.api_version, "/chat/completions", deployment=self.model),
            headers=content_headers(stream=request.stream),
            body=request_body(request, model=self.model, wire=self.wire, cap_field=self.cap_field),
        )

    def auth_headers(self) -> dict[str, str]:
        """The key as `api-key`. Raises MissingKeyError."""
        return azure.auth_headers(self.name, self.api_key, self.headers)


PROVIDER = Azure

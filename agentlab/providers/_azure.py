"""Where an Azure resource serves OpenAI's wires, and how a call proves who it is.

Vendor pages, read 2026-11-22: https://learn.microsoft.com/azure/ai-foundry/openai/api-version-lifecycle (the v1 address, which needs no
version) and https://learn.microsoft.com/azure/ai-foundry/openai/reference (the dated versions, `?api-version=`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from urllib.parse import quote

from agentlab.errors import ConfigurationError
from agentlab.providers._request import clean_url, find_key

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


def auth_headers(provider: str, api_key: str | None, headers: Mapping[str, str]) -> dict[str, str]:
    """The key as `api-key`, with a person's further headers; no key where one of those is a credential already (a Microsoft Entra
    token as `authorization`). Raises MissingKeyError."""
    if api_key is None and any(name.lower() in ("authorization", "api-key") for name in headers):
        return dict(headers)
    return {**headers, "api-key": find_key(provider, api_key, KEY_VARIABLES)}

"""API versions in provider names (`gemini@v1`, `anthropic@2023-06-01`): what they look like, and where they go in an address."""

from __future__ import annotations

import re

from agentlab.errors import ConfigurationError
from agentlab.redaction import Redactor

_IN_PATH = re.compile(r"v\d{1,3}(?:p\d{1,2})?(?:(?:alpha|beta|internal)\d{0,2})?", re.ASCII)
_DATED = re.compile(r"\d{4}-\d{2}-\d{2}(?:-preview)?", re.ASCII)
_SHOWN_CHARACTERS = 20


def place_version(base_url: str, version: str | None, provider: str) -> tuple[str, str | None]:
    """An address that ends in its version, and that version.

    `version` takes the place of the one that the address ends in, or is added; None keeps the address's own, which may have none.
    Raises ConfigurationError for what is no version.
    """
    bare, _, last = base_url.rpartition("/")
    in_address = last if _IN_PATH.fullmatch(last) else None
    if version is None:
        return base_url, in_address
    if not isinstance(version, str) or not _IN_PATH.fullmatch(version):
        raise _no_version(version, provider, "v1")
    return f"{bare if in_address else base_url}/{version}", version


def check_date(version: str, provider: str) -> str:
    """A version that is a date. Raises ConfigurationError for what is none."""
    if not isinstance(version, str) or not _DATED.fullmatch(version):
        raise _no_version(version, provider, "2023-06-01")
    return version


def _no_version(version: object, provider: str, example: str) -> ConfigurationError:
    shown = repr(Redactor().text(str(version)))
    if len(shown) > _SHOWN_CHARACTERS + 2:
        shown = "What was given"  # a key pasted in the wrong place is not repeated
    return ConfigurationError(f"{shown} is no API version of {provider}: write one such as {provider}@{example}:model.")

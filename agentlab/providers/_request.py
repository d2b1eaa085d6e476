"""What all requests have in common: options merged into the body, addresses, and keys that never show."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from agentlab.errors import ConfigurationError, MissingKeyError
from agentlab.providers import _read as read
from agentlab.types import JSON


def content_headers(*, stream: bool) -> dict[str, str]:
    """What is sent and what is wanted."""
    return {"content-type": "application/json", "accept": "text/event-stream" if stream else "application/json"}


def merge_options(fields: dict[str, bytes], options: Mapping[str, JSON], *, reserved: Sequence[str]) -> None:
    """Add a person's further fields to a request body, in place.

    A field that the request has already keeps its value, so that a budget's output cap holds; but `tools` are added to the
    request's own (a vendor's server-side tools), and objects are merged. `reserved` fields raise ConfigurationError.
    """
    for name, value in options.items():
        if name in reserved:
            raise ConfigurationError(
                f"options[{name!r}] is not for options: agentlab writes {', '.join(reserved)} itself. Leave it out."
            )
        try:
            encoded = read.dumps(value)
        except TypeError as error:
            raise ConfigurationError(f"options[{name!r}] cannot be sent as JSON: {error}") from None
        if name not in fields:
            fields[name] = encoded
        elif fields[name].startswith(b"[") and isinstance(value, list) and value:
            fields[name] = fields[name][:-1] + b"," + encoded[1:]
        elif fields[name].startswith(b"{") and isinstance(value, Mapping):
            fields[name] = read.dumps({**value, **read.loads(fields[name])})


def clean_url(base_url: str, provider: str) -> str:
    """A base address without its last slash. Raises ConfigurationError where it is not an http address, or could hold a secret:
    addresses are shown and recorded."""
    if not base_url.startswith(("http://", "https://")):
        raise ConfigurationError(f"base_url={base_url!r} of {provider} is not an address: it begins with https:// or http://")
    if "@" in base_url or "?" in base_url or "#" in base_url:
        raise ConfigurationError(
            f"The base_url of {provider} holds a name, a password or a query: give keys as api_key= or headers=."
        )
    return base_url.rstrip("/")


def find_key(provider: str, api_key: str | None, variables: Sequence[str]) -> str:
    """The key given, else the first environment variable that holds one. Raises MissingKeyError.

    Example:
        >>> from agentlab.providers import find_key
        >>> find_key("kiosk", "a key", ["KIOSK_API_KEY"])
        'a key'
        >>> find_key("kiosk", None, ["KIOSK_API_KEY"])
        Traceback (most recent call last):
            ...
        agentlab.errors.MissingKeyError: No API key for kiosk. Set the environment variable KIOSK_API_KEY, or pass...
    """
    key = api_key or next((value for name in variables if (value := os.environ.get(name, "").strip())), "")
    if not key:
        raise MissingKeyError(
            f"No API key for {provider}. Set the environment variable {' or '.join(variables)}, or pass "
            f'lab.Provider("{provider}", model=…, api_key=…); or run on recorded responses, without a key, inside lab.replay(folder).'
        )
    return check_key(provider, key)


def check_key(provider: str, key: str) -> str:
    """The key without white space around it. Raises ConfigurationError where no header can carry it; never shows it."""
    key = key.strip()
    if not key.isascii() or not key.isprintable():
        raise ConfigurationError(f"The API key for {provider} holds a character that no key has: copy it again, in one line.")
    return key

"""The known keys of this process: those that its providers sent, and those in its environment. They are kept in memory only.

They are replaced in everything that is written or shown, also in the spellings of JSON and URLs.
"""

from __future__ import annotations

import os
import pathlib
import re
import threading
import time
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import TypeAlias

Spelling: TypeAlias = tuple[bytes, "re.Pattern[bytes]"]
"""A word that is part of the key in any spelling, for a fast search, and the pattern of the whole key."""

MIN_LENGTH = 12
"""The minimum length of keys that are replaced everywhere. A shorter key could be a word, and is replaced only where it was sent."""
MIN_LENGTH_WITHOUT_DIGIT = 20
"""A shorter text without a digit may be a word, such as the password of a local database."""
MAX_REMEMBERED = 256
"""The number of keys that are remembered, the most recently sent ones. Signed requests send a new one each time."""
_ENVIRONMENT_INTERVAL_S = 1.0

_NAME = re.compile(
    r"(?i)(?:(?:.*_)?(?:(?:api|access|secret|private|account|subscription|master|encryption|signing|service)key|secret|token|password"
    r"|passwd|passphrase|credentials?|pat|api_?secret|auth)|.*(?<!public)_key)(?:_id|_value|_[0-9]+|_bedrock)?"
)
"""Names of environment variables with keys: OPENAI_API_KEY, SERPAPI_KEY, AWS_SESSION_TOKEN, DB_PASSWORD, …"""
_NO_KEY = re.compile(r"(?i)(?:true|false|yes|no|none|null|disabled|enabled|[0-9]+)")
_WORD = re.compile(rb"[A-Za-z0-9]+")

_lock = threading.Lock()
_sent: dict[str, None] = {}
_environment: frozenset[str] = frozenset()
_environment_read_s = float("-inf")
_spellings: tuple[Spelling, ...] = ()


def remember(values: Iterable[str]) -> None:
    """Redact these values from now on, except those that could be ordinary words."""
    distinctive = [value for value in values if value in _sent or is_distinctive(value)]
    with _lock:
        has_new = any(value not in _sent for value in distinctive)
        for value in distinctive:
            _sent.pop(value, None)
            _sent[value] = None  # moved to the end: the least recently sent key is forgotten first
        if has_new:
            for old in list(_sent)[:-MAX_REMEMBERED]:
                del _sent[old]
            _update_spellings()


def spellings() -> tuple[Spelling, ...]:
    """Return the patterns of all known keys. Reads the environment again from time to time."""
    if time.monotonic() - _environment_read_s > _ENVIRONMENT_INTERVAL_S:
        read_environment()
    return _spellings


def read_environment() -> None:
    """Read the environment now."""
    global _environment, _environment_read_s  # noqa: PLW0603  under a lock
    found = in_environment(os.environ)
    with _lock:
        _environment_read_s = time.monotonic()
        if found != _environment:
            _environment = found
            _update_spellings()


def in_environment(environment: Mapping[str, str]) -> frozenset[str]:
    """Return the values that are keys, according to the names of their variables."""
    found = (value.strip() for name, value in environment.items() if _NAME.fullmatch(name))
    return frozenset(value for value in found if is_distinctive(value))


def is_distinctive(value: str) -> bool:
    """True if a key looks so unlike a word, a number or a path that it can safely be replaced everywhere."""
    if len(value) < MIN_LENGTH or _NO_KEY.fullmatch(value) or any(character.isspace() for character in value):
        return False
    if value.startswith(("/", "./", "~/")) and (pathlib.PurePath(value).suffix or os.path.exists(value)):  # noqa: PTH110  any text
        return False
    digits = sum(character.isdigit() for character in value)
    return 0 < digits < len(value) or len(value) >= MIN_LENGTH_WITHOUT_DIGIT


def _update_spellings() -> None:
    global _spellings  # noqa: PLW0603  one assignment, under the lock
    _spellings = tuple(map(spelling_of, sorted({*_sent, *_environment}, key=len, reverse=True)))


@lru_cache(maxsize=2 * MAX_REMEMBERED)
def spelling_of(value: str) -> Spelling:
    """Return the pattern of a key, which also matches it escaped by JSON or a URL, once or twice."""
    literal = max(_WORD.findall(value.encode("utf-8", "surrogatepass")), key=len, default=b"")
    return literal, re.compile(b"".join(map(_of_character, value)))


def _of_character(character: str) -> bytes:
    data = character.encode("utf-8", "surrogatepass")
    if character.isascii() and (character.isalnum() or character in "-_."):
        return re.escape(data)
    in_url = b"".join(b"%%(?:25)?(?i:%02x)" % byte for byte in data)
    return b"(?:" + rb"\\*" + re.escape(data) + b"|" + in_url + rb"|\\+u(?i:%04x))" % ord(character)

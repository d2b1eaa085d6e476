"""The keys that this process knows: those its providers sent, and those that stand in its environment. In memory only.

They are looked for in whatever is written or shown, however they are spelled there: as they are, in JSON, in a URL, in HTML, in base64.
"""

from __future__ import annotations

import base64
import os
import re
import threading
import time
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import PurePath
from typing import TypeAlias

Spelling: TypeAlias = tuple[bytes, "re.Pattern[bytes]"]
"""How a key may be written: a piece that stands in it for certain, which is quick to look for, and the whole."""

SHORTEST = 12
"""Characters of a key that is looked for everywhere. A shorter one could be a word, and is looked for where it was sent only."""
LONGEST_WITHOUT_DIGIT = 20
"""A text of letters alone that is shorter may be a word, such as the password of a database of one's own."""
MOST = 256
"""Keys that are remembered, those that were sent last."""
_LOOKED_AT_S = 1.0
"""The environment is read this often at most."""

_NAME = re.compile(
    r"(?i)(?:.*_)?(?:(?:api|access|secret|private|account|subscription|master|encryption|signing|service)_?key|secret|token|password"
    r"|passwd|passphrase|credentials?|pat|secret_access_key|api_?secret|auth)(?:_id|_value|_[0-9]+|_bedrock)?"
)
"""Names of environment variables that hold keys: OPENAI_API_KEY, AWS_SESSION_TOKEN, DB_PASSWORD, …"""
_NO_KEY = re.compile(r"(?i)(?:true|false|yes|no|none|null|disabled|enabled|[0-9]+)")
_IN_WORDS = re.compile(rb"[A-Za-z0-9]+")
_HTML = {"&": "amp", "<": "lt", ">": "gt", '"': "quot", "'": "apos"}

_lock = threading.Lock()
_sent: dict[str, None] = {}
_environment: frozenset[str] = frozenset()
_looked_s = float("-inf")
_spellings: tuple[Spelling, ...] = ()


def remember(values: Iterable[str]) -> None:
    """Look for these from here on, where they could be nothing but keys."""
    telling = [value for value in values if value in _sent or is_telling(value)]
    with _lock:
        new = [value for value in telling if value not in _sent]
        for value in telling:
            _sent.pop(value, None)
            _sent[value] = None  # behind all others: the one that was not sent for longest is forgotten first
        if new:
            for old in list(_sent)[:-MOST]:
                del _sent[old]
            _renew()


def spellings() -> tuple[Spelling, ...]:
    """How the known keys may be written. The environment is looked at now and then."""
    if time.monotonic() - _looked_s > _LOOKED_AT_S:
        look()
    return _spellings


def look() -> None:
    """Read the environment now."""
    global _environment, _looked_s  # noqa: PLW0603  under a lock
    found = in_environment(os.environ)
    with _lock:
        _looked_s = time.monotonic()
        if found != _environment:
            _environment = found
            _renew()


def in_environment(environment: Mapping[str, str]) -> frozenset[str]:
    """The values that are keys, by the names of their variables."""
    found = (value.strip() for name, value in environment.items() if _NAME.fullmatch(name))
    return frozenset(value for value in found if is_telling(value))


def is_telling(value: str) -> bool:
    """Whether a key is so unlike a word, a number or a path that replacing it everywhere spoils nothing else."""
    if len(value) < SHORTEST or _NO_KEY.fullmatch(value) or any(character.isspace() for character in value):
        return False
    if value.startswith(("/", "./", "~/")) and (PurePath(value).suffix or os.path.exists(value)):  # noqa: PTH110  any text
        return False
    digits = sum(character.isdigit() for character in value)
    return 0 < digits < len(value) or len(value) >= LONGEST_WITHOUT_DIGIT


def _renew() -> None:
    global _spellings  # noqa: PLW0603  one assignment, under the lock
    known = sorted({*_sent, *_environment}, key=len, reverse=True)
    _spellings = tuple(one for value in known for one in spellings_of(value))


@lru_cache(maxsize=2 * MOST)
def spellings_of(value: str) -> tuple[Spelling, ...]:
    """A key as it is, escaped by JSON, URLs or HTML (once or twice), and inside of something that is base64."""
    pattern = b"".join(_of_character(character) for character in value)
    found = [(_longest_word(value.encode("utf-8", "surrogatepass")), re.compile(pattern))]
    if len(value) >= SHORTEST:
        for offset in range(3):
            found += _in_base64(value.encode("utf-8", "surrogatepass"), offset)
    return tuple(found)


def _of_character(character: str) -> bytes:
    data = character.encode("utf-8", "surrogatepass")
    if character.isascii() and (character.isalnum() or character in "-_."):
        return re.escape(data)
    number = ord(character)
    units = character.encode("utf-16-be", "surrogatepass")
    escaped = b"".join(rb"\\+u(?i:%02x%02x)" % (units[at], units[at + 1]) for at in range(0, len(units), 2))
    ways = [
        rb"\\*" + re.escape(data),
        b"".join(b"%%(?:25)?(?i:%02x)" % byte for byte in data),
        escaped,
        b"&#(?:0*%d|(?i:x0*%x));" % (number, number),
    ]
    if character in _HTML:
        ways.append(b"&" + _HTML[character].encode() + b";")
    return b"(?:" + b"|".join(ways) + b")"


def _in_base64(data: bytes, offset: int) -> Iterable[Spelling]:
    """What of an encoding does not depend on what stands around the key, `offset` bytes into a group of three."""
    encoded = base64.b64encode(b"\0" * offset + data)
    first = (offset * 8 + 5) // 6  # characters that hold bits of what stands before
    last = (offset + len(data)) * 8 // 6
    core = encoded[first:last]
    spelled = re.escape(core).replace(rb"\+", rb"(?:\+|-|%2[Bb])").replace(b"/", rb"(?:\\*/|_|%2[Ff])")
    yield _longest_word(core), re.compile(b"(?P<base64>" + spelled + b")")


def _longest_word(data: bytes) -> bytes:
    """The longest piece that every spelling has."""
    return max(_IN_WORDS.findall(data), key=len, default=b"")

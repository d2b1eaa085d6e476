"""Redaction: replaces keys in everything that is written or shown, and selects the headers that are recorded."""

from __future__ import annotations

import itertools
import math
import re
import urllib.parse
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from functools import cache, lru_cache
from typing import Any, TypeVar

from agentlab._internal import secrets as known_keys

REDACTED = "REDACTED"
T = TypeVar("T")

REQUEST_HEADERS = frozenset({"accept", "anthropic-beta", "anthropic-version", "content-type", "openai-beta"})
"""Request headers that are recorded; every other one is dropped."""

RESPONSE_HEADERS = frozenset(
    {
        "content-type",
        "date",  # a Retry-After that is a date is relative to it
        "inference-id",
        "openai-processing-ms",
        "openai-version",
        "request-id",
        "retry-after",
        "retry-after-ms",
        "x-amzn-errortype",
        "x-amzn-requestid",
        "x-generation-id",
        "x-ms-request-id",
        "x-request-id",
        "x-should-retry",
    }
)
RESPONSE_HEADER_PREFIXES = ("anthropic-ratelimit-", "x-ratelimit-")
"""Response headers that are recorded: these names, and names with these prefixes."""

_SECRET_QUERY = re.compile(
    r"(?i)(key|code|sig|(.*[-_])?(api[-_]?key|subscription[-_]?key|access[-_]?key|secret|password|credential|signature)"
    r"|((.*[-_])?(access|auth|id|refresh|session|security|bearer|api|sas)[-_]?)?token)"
)
_SECRET_NAME = re.compile(r"(?i)(.*[-_])?(api[-_]?key|authorization|cookie|password|secret|credentials?|access[-_]?token)")
_SECRET_HEADER = re.compile(
    r"(?i)auth|(?<!idempotency-)key|token|secret|cookie|password|credential|organi[sz]ation|project|account"
)
_SCHEME = re.compile(r"(?i)^(?:bearer|basic|token|key)\s+(\S.*)$")

MIN_SECRET_LENGTH = 6
PLACEHOLDERS = frozenset(
    {"dummy-key", "lm-studio", "localhost", "no-key", "not-needed", "not-used", "ollama", "placeholder", "unused"}
)
"""Placeholders for a key that is not needed. These, and values shorter than MIN_SECRET_LENGTH, are not secrets: replacing them would
spoil the text."""

# A text is first searched for the literals that the patterns begin with, and a pattern is compiled only if its literal is found. So the
# scan of a text without keys is fast, and so is the import.
_PREFIXES: dict[bytes, bytes] = {
    b"sk-": rb"[A-Za-z0-9_-]{12,}",  # OpenAI, Anthropic, OpenRouter, DeepSeek
    b"sk_": rb"[A-Za-z0-9_]{16,}",
    b"xai-": rb"[A-Za-z0-9]{12,}",
    b"gsk_": rb"[A-Za-z0-9]{12,}",  # Groq
    b"AIza": rb"[A-Za-z0-9_-]{16,}",  # Google
    b"AQ.": rb"[A-Za-z0-9_-]{30,}",
    b"ya29.": rb"[A-Za-z0-9_.-]{20,}",
    b"AKIA": rb"[A-Z0-9]{16,}",  # AWS
    b"ASIA": rb"[A-Z0-9]{16,}",
    b"ABSK": rb"[A-Za-z0-9+/]{40,}={0,2}",  # Bedrock
    b"bedrock-api-key-": rb"[A-Za-z0-9+/=_-]{16,}",
    **{b"gh%b_" % kind: rb"[A-Za-z0-9]{16,}" for kind in (b"o", b"p", b"r", b"s", b"u")},  # GitHub
    b"github_pat_": rb"[A-Za-z0-9_]{20,}",
    b"glpat-": rb"[A-Za-z0-9_-]{20,}",
    b"hf_": rb"[A-Za-z0-9]{20,}",
    b"nvapi-": rb"[A-Za-z0-9_-]{20,}",
    b"pplx-": rb"[A-Za-z0-9]{20,}",
    b"r8_": rb"[A-Za-z0-9]{30,}",
    b"xoxb-": rb"[A-Za-z0-9-]{10,}",  # Slack
    b"xoxp-": rb"[A-Za-z0-9-]{10,}",
    b"org-": rb"[A-Za-z0-9]{20,}",  # an OpenAI organisation, named in its error bodies
    b"eyJ": rb"[A-Za-z0-9_-]{8,}+\.eyJ[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]{8,}",  # a JSON web token
    # A private key, which ends before a quotation mark, where another text begins; a truncated key ends with its base64 text.
    b"-----BEGIN": rb"(?:[A-Z ]|%20|\+)*PRIVATE(?: |%20|\+)KEY-----"
    rb"(?:(?:[A-Za-z0-9+/=\\\s:,.%]++|-(?!----))*+-----END(?:[A-Z ]|%20|\+)*PRIVATE(?: |%20|\+)KEY-----"
    rb"|(?:[A-Za-z0-9+/=]|\\+[rn]|\s|%[0-9A-Fa-f]{2})*)",
}
_KEY_PATTERNS: dict[bytes, bytes] = {prefix: re.escape(prefix) + rest for prefix, rest in _PREFIXES.items()} | {
    b"Bearer ": rb"(?<=Bearer )(?!REDACTED)[A-Za-z0-9._~+/=-]{8,}",
    b"bearer ": rb"(?<=bearer )(?=\S*[0-9])[A-Za-z0-9._~+/=-]{12,}",
    b"earer%20": rb"(?<=earer%20)(?!REDACTED)[A-Za-z0-9._~+/=%-]{8,}",
    b"Basic ": rb"(?<=Basic )(?=\S*[0-9A-Z=])[A-Za-z0-9+/]{12,}={0,2}",
}
"""Patterns of keys, by the literal that each pattern begins with or follows."""

_MIN_KEY_BYTES = 15
"""A shorter text matches none of the patterns."""

_LITERALS = (
    rb"-(?:(?<=sk-)|(?<=xai-)|(?<=bedrock-api-key-)|(?<=glpat-)|(?<=nvapi-)|(?<=pplx-)|(?<=xox[bp]-)|(?<=org-)|----BEGIN)",
    rb"_(?:(?<=sk_)|(?<=gh[posur]_)|(?<=github_pat_)|(?<=hf_)|(?<=r8_))",
    rb"A(?:Iza|Q\.|KIA|SIA|BSK)",
    rb"9(?<=ya29)\.",
    rb"J(?<=eyJ)",
    rb"B(?:earer |asic )",
    rb"b(?:earer )",
    rb"%(?<=earer%)20",
)
"""All literals of the patterns, each beginning with a rare character: `re` jumps from one such character to the next."""


@cache
def _literals() -> tuple[re.Pattern[bytes], ...]:
    return tuple(map(re.compile, _LITERALS))


# A key is at the start of a word. In JSON or YAML text, the character before it may belong to an escape: \n, \u0027, %20.
_INSIDE_WORD = re.compile(rb"[A-Za-z0-9]\Z")
_ESCAPE = re.compile(rb"(?:\\[abefnrtv0]|\\x[0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|%[0-9a-fA-F]{2})\Z")


def kept_request_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the request headers that are recorded, with names in lower case."""
    return {name.lower(): value for name, value in headers.items() if name.lower() in REQUEST_HEADERS}


def kept_response_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the response headers that are recorded, with names in lower case."""
    lowered = ((name.lower(), value) for name, value in headers.items())
    return {
        name: value
        for name, value in lowered
        if name in RESPONSE_HEADERS
        or name.startswith(RESPONSE_HEADER_PREFIXES)
        or (name, value) == ("content-length", "0")  # shows that the body is empty, not truncated
    }


def _is_kept(name: str) -> bool:
    return name in REQUEST_HEADERS or name in RESPONSE_HEADERS or name.startswith(RESPONSE_HEADER_PREFIXES)


def secrets_in_headers(headers: Mapping[str, str], *, sure: bool = False) -> set[str]:
    """Return the values of headers that carry secrets. `sure` means that all of these headers are authentication."""
    return {value for name, value in headers.items() if sure or (_SECRET_HEADER.search(name) and not _is_kept(name.lower()))}


def secrets_in_url(url: str) -> set[str]:
    """Return the values of a URL's key parameters, and its password."""
    parts = urllib.parse.urlsplit(url)
    found = {
        urllib.parse.unquote(value) for name, value in _pairs(parts.query) if _SECRET_QUERY.fullmatch(urllib.parse.unquote(name))
    }
    return found | ({urllib.parse.unquote(parts.password)} if parts.password else set())


@lru_cache(maxsize=4096)
def redact_url(url: str) -> str:
    """Return the URL without user name and password, and with key parameters and everything that looks like a key replaced."""
    parts = urllib.parse.urlsplit(url)
    query = "&".join(
        f"{name}={REDACTED}" if _SECRET_QUERY.fullmatch(urllib.parse.unquote(name)) else (f"{name}={value}" if value else name)
        for name, value in _pairs(parts.query)
    )
    return redact(urllib.parse.urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, query, "")))


def is_key_parameter(name: str) -> bool:
    """True if a query parameter of this name carries a key."""
    return _SECRET_QUERY.fullmatch(name) is not None


def _pairs(query: str) -> list[tuple[str, str]]:
    return [(name, value) for name, _, value in (part.partition("=") for part in query.split("&") if part)]


def known_secrets(values: Iterable[str]) -> list[str]:
    """Return the secrets among these header values, with and without their `Bearer`, the longest first."""
    found: set[str] = set()
    for secret in values:
        scheme = _SCHEME.match(secret.strip())
        for value in (secret.strip(), scheme[1] if scheme else ""):
            if len(value) >= MIN_SECRET_LENGTH and value != REDACTED and value.lower() not in PLACEHOLDERS:
                found.add(value)
    return sorted(found, key=len, reverse=True)


class Redactor:
    """Replaces known secrets and everything that looks like a key.

    The known secrets are the given ones and those of the process (see `secrets`), also in the spellings of JSON and URLs.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._known = tuple(map(known_keys.spelling_of, known_secrets(secrets)))

    def text(self, text: str) -> str:
        """Return the text with every secret replaced by REDACTED."""
        data = text.encode("utf-8", "surrogatepass")
        places = self.places(data)
        return _replaced(data, places)[0].decode("utf-8", "surrogatepass") if places else text

    def body(self, data: bytes, chunks: tuple[int, ...] = ()) -> tuple[bytes, tuple[int, ...]]:
        """Return the bytes with every secret replaced, and the adjusted sizes of the chunks in which they arrived."""
        return _replaced(data, self.places(data), chunks)

    def known(self, text: str) -> str:
        """Return the text with the known secrets replaced, and nothing else."""
        if not self._known and not known_keys.spellings():
            return text
        data = text.encode("utf-8", "surrogatepass")
        places = _merged(self._known_places(data))
        return _replaced(data, places)[0].decode("utf-8", "surrogatepass") if places else text

    def places(self, data: bytes) -> list[tuple[int, int]]:
        """Return where secrets begin and end, sorted and not overlapping."""
        places = self._known_places(data)
        if len(data) >= _MIN_KEY_BYTES and any(literal.search(data) for literal in _literals()):
            for literal, pattern in _KEY_PATTERNS.items():
                if literal in data:
                    found = re.compile(pattern).finditer(data)
                    places += [match.span() for match in found if literal[:1] == b"-" or not _inside_word(data, match.start())]
        return _merged(places)

    def _known_places(self, data: bytes) -> list[tuple[int, int]]:
        spellings = (*self._known, *known_keys.spellings())
        return [match.span() for literal, pattern in spellings if literal in data for match in pattern.finditer(data)]


def _inside_word(data: bytes, position: int) -> bool:
    before = data[max(0, position - 6) : position]
    return bool(_INSIDE_WORD.search(before)) and not _ESCAPE.search(before)


def _merged(places: list[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, end in sorted(places):
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _replaced(data: bytes, places: list[tuple[int, int]], chunks: tuple[int, ...] = ()) -> tuple[bytes, tuple[int, ...]]:
    """Return the data with these places replaced, and the adjusted sizes of its chunks."""
    if not places:
        return data, chunks
    parts: list[bytes] = []
    olds, news = [0], [0]  # positions right after a replacement, before and after redaction
    for start, end in places:
        parts += [data[olds[-1] : start], REDACTED.encode()]
        news.append(news[-1] + start - olds[-1] + len(REDACTED))
        olds.append(end)
    parts.append(data[olds[-1] :])
    result = b"".join(parts)
    starts = [start for start, _ in places]
    sizes: list[int] = []
    position = before = 0
    for size in chunks:
        position += size
        index = bisect_right(olds, position) - 1
        inside = index < len(starts) and starts[index] < position  # a boundary in a secret moves to the end of its replacement
        new = min(news[index + 1] if inside else news[index] + position - olds[index], len(result))
        sizes.append(new - before)
        before = new
    return result, tuple(sizes)


_ALL_KNOWN = Redactor()


def redact(text: str) -> str:
    """Return a text for display or storage, with known keys and anything that looks like a key replaced."""
    return _ALL_KNOWN.text(text)


def redact_known(text: str) -> str:
    """Return a text for a model, with only the known keys of this process replaced."""
    return _ALL_KNOWN.known(text)


def is_free_of_keys(error: BaseException) -> bool:
    """True if an error, its causes and its contexts contain no key."""
    seen: set[int] = set()
    unread: list[BaseException | None] = [error]
    while unread:
        cause = unread.pop()
        if cause is not None and id(cause) not in seen:
            seen.add(id(cause))
            text = f"{text_of(cause)}\n{text_of(cause, repr)}"
            if redact(text) != text:
                return False
            unread += [cause.__cause__, None if cause.__suppress_context__ else cause.__context__]
    return True


def in_words(error: BaseException) -> str:
    """Return the type and the message of an error, without keys."""
    return redact(f"{type(error).__name__}: {text_of(error)}")


def text_of(value: object, how: Callable[[Any], str] = str) -> str:
    """Return the text of a user's object, even if its `__str__` or `__repr__` raises. Raises only KeyboardInterrupt."""
    try:
        return how(value)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return f"<{type(value).__name__}, whose text raised {type(error).__name__}>"


def redacted_repr(kind: type[T]) -> type[T]:
    """Redact the repr of a class, for values that contain text of a model, a tool or a server."""
    plain = kind.__repr__
    if hasattr(plain, "redacts"):  # the class was created a second time, like all dataclasses with slots
        return kind

    def __repr__(self: T) -> str:  # noqa: N807
        return redact(text_of(self, plain))

    __repr__.redacts = True  # type: ignore[attr-defined]
    kind.__repr__ = __repr__  # type: ignore[method-assign, assignment]
    return kind


# Metadata ----------------------------------------------------------------------------------------------------------------------

MAX_ITEMS, MAX_CHARACTERS, MAX_LEVELS = 50, 500, 5
"""Limits on a provider's metadata: items of a collection, characters of a text, levels of nesting."""


def clean_json(value: object, level: int = 0) -> Any:
    """Return a value as short JSON without keys; anything that is not JSON becomes its `str`."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping) and level < MAX_LEVELS:
        named = [(str(name), part) for name, part in itertools.islice(value.items(), MAX_ITEMS)]
        return {_clean_text(name): REDACTED if is_secret_name(name) else clean_json(part, level + 1) for name, part in named}
    if isinstance(value, list | tuple | set | frozenset) and level < MAX_LEVELS:
        return [clean_json(part, level + 1) for part in itertools.islice(value, MAX_ITEMS)]
    return _clean_text(value if isinstance(value, str) else text_of(value))


@lru_cache(maxsize=1024)
def is_secret_name(name: str) -> bool:
    """True if a field of this name contains a secret."""
    return _SECRET_NAME.fullmatch(name) is not None


def _clean_text(text: str) -> str:
    """Return at most MAX_CHARACTERS of a text without keys. It is redacted before it is cut, since half a key is secret too."""
    clean = redact(text[: 8 * MAX_CHARACTERS])
    return clean if len(clean) <= MAX_CHARACTERS else clean[: MAX_CHARACTERS - 1] + "…"

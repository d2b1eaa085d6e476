"""What may be written to disk of a request and its response: headers by an allow-list, no keys anywhere."""

from __future__ import annotations

import itertools
import math
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, lru_cache
from typing import Any, TypeAlias, TypeVar
from urllib.parse import unquote, urlsplit, urlunsplit
from weakref import WeakSet

from agentlab import known_keys

REDACTED = "REDACTED"
T = TypeVar("T")
_Span: TypeAlias = tuple[int, int, bool]
"""Where a secret begins and ends, and whether it stands in base64."""

REQUEST_HEADERS = frozenset({"accept", "anthropic-beta", "anthropic-version", "content-type", "openai-beta"})
"""Request headers that are written; every other one is dropped."""

RESPONSE_HEADERS = frozenset(
    {
        "content-type",
        "date",  # a Retry-After that is a date counts from here
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
"""Response headers that are written: these names, and names that begin with these words."""

_SECRET_QUERY = re.compile(
    r"(?i)(key|code|sig|(.*[-_])?(api[-_]?key|subscription[-_]?key|access[-_]?key|secret|password|credential|signature)"
    r"|((.*[-_])?(access|auth|id|refresh|session|security|bearer|api|sas)[-_]?)?token)"
)
_SECRET_NAME = re.compile(r"(?i)(.*[-_])?(api[-_]?key|authorization|cookie|password|secret|credentials?|access[-_]?token)")
_SECRET_HEADER = re.compile(
    r"(?i)auth|(?<!idempotency-)key|token|secret|cookie|password|credential|organi[sz]ation|project|account"
)
_SCHEME = re.compile(r"(?i)^(?:bearer|basic|token|key)\s+(\S.*)$")

SHORTEST_SECRET = 6
PLACEHOLDERS = frozenset(
    {"dummy-key", "lm-studio", "localhost", "no-key", "not-needed", "not-used", "ollama", "placeholder", "unused"}
)
"""What people write where no key is needed, and everything shorter, is no secret: to replace it would spoil the text."""

# The literal each pattern begins with is looked for first, all of them in a few passes (`_looks`), and the pattern is compiled where
# that was found: a scan of a text without keys costs next to nothing, and so does the import.
_KEY_PATTERNS: tuple[tuple[bytes, bytes], ...] = (
    *(
        (prefix.encode(), (re.escape(prefix) + rest).encode())
        for prefix, rest in (
            ("sk-", r"[A-Za-z0-9_-]{12,}"),  # OpenAI, Anthropic, OpenRouter, DeepSeek
            ("sk_", r"[A-Za-z0-9_]{16,}"),
            ("xai-", r"[A-Za-z0-9]{12,}"),
            ("gsk_", r"[A-Za-z0-9]{12,}"),  # Groq
            ("AIza", r"[A-Za-z0-9_-]{16,}"),  # Google
            ("AQ.", r"[A-Za-z0-9_-]{30,}"),
            ("ya29.", r"[A-Za-z0-9_.-]{20,}"),
            ("AKIA", r"[A-Z0-9]{16,}"),  # AWS
            ("ASIA", r"[A-Z0-9]{16,}"),
            ("ABSK", r"[A-Za-z0-9+/]{40,}={0,2}"),  # Bedrock
            ("bedrock-api-key-", r"[A-Za-z0-9+/=_-]{16,}"),
            ("ghp_", r"[A-Za-z0-9]{16,}"),  # GitHub
            ("gho_", r"[A-Za-z0-9]{16,}"),
            ("ghu_", r"[A-Za-z0-9]{16,}"),
            ("ghs_", r"[A-Za-z0-9]{16,}"),
            ("ghr_", r"[A-Za-z0-9]{16,}"),
            ("github_pat_", r"[A-Za-z0-9_]{20,}"),
            ("glpat-", r"[A-Za-z0-9_-]{20,}"),
            ("hf_", r"[A-Za-z0-9]{20,}"),
            ("nvapi-", r"[A-Za-z0-9_-]{20,}"),
            ("pplx-", r"[A-Za-z0-9]{20,}"),
            ("r8_", r"[A-Za-z0-9]{30,}"),
            ("xoxb-", r"[A-Za-z0-9-]{10,}"),  # Slack
            ("xoxp-", r"[A-Za-z0-9-]{10,}"),
            ("org-", r"[A-Za-z0-9]{20,}"),  # an OpenAI organisation, named in its error bodies
            ("eyJ", r"[A-Za-z0-9_-]{8,}+\.eyJ[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]{8,}"),  # a JSON web token
            # Never over a quotation mark, where another text begins; without its end, from an answer that was cut, what is base64.
            (
                "-----BEGIN",
                r"(?:[A-Z ]|%20|\+)*PRIVATE(?: |%20|\+)KEY-----"
                r"(?:(?:[A-Za-z0-9+/=\\\s:,.%]++|-(?!----))*+-----END(?:[A-Z ]|%20|\+)*PRIVATE(?: |%20|\+)KEY-----"
                r"|(?:[A-Za-z0-9+/=]|\\+[rn]|\s|%[0-9A-Fa-f]{2})*)",
            ),
        )
    ),
    (b"Bearer ", rb"(?<=Bearer )(?!REDACTED)[A-Za-z0-9._~+/=-]{8,}"),
    (b"bearer ", rb"(?<=bearer )(?=\S*[0-9])[A-Za-z0-9._~+/=-]{12,}"),
    (b"earer%20", rb"(?<=earer%20)(?!REDACTED)[A-Za-z0-9._~+/=%-]{8,}"),
    (b"Basic ", rb"(?<=Basic )(?=\S*[0-9A-Z=])[A-Za-z0-9+/]{12,}={0,2}"),
)

_SHORTEST_KEY_BYTES = 15
"""What is shorter fits none of the patterns."""

_RARE = b"%JAB9-_b"
"""Characters of those literals that are rare in other text, the rarest first."""


@cache
def _looks() -> tuple[re.Pattern[bytes], ...]:
    """All literals of the patterns, those with the same rare character as one: from one such to the next goes `re` at the speed of C's
    memchr, and sees there what stands around it. That takes a sixth of the time that looking for one literal after the other does."""
    groups: dict[bytes, list[tuple[bytes, bytes]]] = {}
    for literal, _ in _KEY_PATTERNS:
        rare = next((bytes([character]) for character in _RARE if character in literal), literal[:1])
        before, _, behind = literal.rpartition(rare)
        groups.setdefault(rare, []).append((before, behind))
    return tuple(_around(rare, ways) for rare, ways in groups.items())


def _around(rare: bytes, ways: list[tuple[bytes, bytes]]) -> re.Pattern[bytes]:
    """The character with any of these before and behind it."""
    rare = re.escape(rare)
    last = b"".join(re.escape(before[-1:]) for before, _ in ways)
    quickly = b"(?<=[%b]%b)" % (last, rare) if all(before for before, _ in ways) else b""
    each = [(b"(?<=%b%b)" % (re.escape(before), rare) if before else b"") + re.escape(behind) for before, behind in ways]
    return re.compile(b"%b%b(?:%b)" % (rare, quickly, b"|".join(each)))


# A key begins a word. In JSON or YAML text the character before it may belong to an escape: \n, \u0027, %20.
_TOKEN, _WORD = b"eyJ", re.compile(rb"[A-Za-z0-9_-]+")
_INSIDE_WORD = re.compile(rb"[A-Za-z0-9]\Z")
_ESCAPE = re.compile(rb"(?:\\[abefnrtv0]|\\x[0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|%[0-9a-fA-F]{2})\Z")


def kept_request_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """The request headers that are written, names in lower case."""
    return {name.lower(): value for name, value in headers.items() if name.lower() in REQUEST_HEADERS}


def kept_response_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """The response headers that are written, names in lower case."""
    lowered = ((name.lower(), value) for name, value in headers.items())
    return {
        name: value
        for name, value in lowered
        if name in RESPONSE_HEADERS
        or name.startswith(RESPONSE_HEADER_PREFIXES)
        or (name, value) == ("content-length", "0")  # empty on purpose, and not broken off
    }


def _is_kept(name: str) -> bool:
    return name in REQUEST_HEADERS or name in RESPONSE_HEADERS or name.startswith(RESPONSE_HEADER_PREFIXES)


def secrets_in_headers(headers: Mapping[str, str], *, sure: bool = False) -> set[str]:
    """The values to look for in everything that is written. `sure`: all of these headers are authentication."""
    return {value for name, value in headers.items() if sure or (_SECRET_HEADER.search(name) and not _is_kept(name.lower()))}


def secrets_in_url(url: str) -> set[str]:
    """The values of a URL's key parameters, and its password."""
    parts = urlsplit(url)
    found = {unquote(value) for name, value in _pairs(parts.query) if _SECRET_QUERY.fullmatch(unquote(name))}
    return found | ({unquote(parts.password)} if parts.password else set())


@lru_cache(maxsize=4096)
def redact_url(url: str) -> str:
    """The URL without user name and password, with the values of key parameters and everything that looks like a key replaced."""
    parts = urlsplit(url)
    query = "&".join(
        f"{name}={REDACTED}" if _SECRET_QUERY.fullmatch(unquote(name)) else (f"{name}={value}" if value else name)
        for name, value in _pairs(parts.query)
    )
    return Redactor().text(urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, query, "")))


def is_key_parameter(name: str) -> bool:
    """Whether a query parameter of this name carries a key."""
    return _SECRET_QUERY.fullmatch(name) is not None


def _pairs(query: str) -> list[tuple[str, str]]:
    return [(name, value) for name, _, value in (part.partition("=") for part in query.split("&") if part)]


def known_secrets(values: Iterable[str]) -> list[str]:
    """What is a secret among these values of headers, with and without its `Bearer`, the longest first."""
    found: set[str] = set()
    for secret in values:
        bare = _SCHEME.match(secret.strip())
        for value in (secret.strip(), bare[1] if bare else ""):
            if len(value) >= SHORTEST_SECRET and value != REDACTED and value.lower() not in PLACEHOLDERS:
                found.add(value)
    return sorted(found, key=len, reverse=True)


class Redactor:
    """Replaces known secrets and everything that looks like a key.

    Known are the secrets that it is given, and those that the whole process knows (`agentlab.known_keys`). They are looked for without
    their `Bearer` too, and as JSON, URLs, HTML and base64 write them. A key that a stream sends in pieces, one event each, is seen by
    `agentlab.transport.stream_redaction`.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._known = tuple(one for value in known_secrets(secrets) for one in known_keys.spellings_of(value))

    def text(self, text: str) -> str:
        """The text with every secret replaced by `REDACTED`."""
        data = text.encode("utf-8", "surrogatepass")
        return self.body(data)[0].decode("utf-8", "surrogatepass") if self._spans(data) else text

    def body(self, data: bytes, chunks: tuple[int, ...] = ()) -> tuple[bytes, tuple[int, ...]]:
        """The bytes with every secret replaced, and the sizes of the chunks they came in, moved accordingly."""
        return _replaced(data, self._spans(data), chunks)

    def places(self, data: bytes) -> list[tuple[int, int]]:
        """Where secrets begin and end: sorted, not overlapping."""
        return [(start, end) for start, end, _ in self._spans(data)]

    def known(self, text: str) -> str:
        """The text with the known secrets replaced, and no more."""
        data = text.encode("utf-8", "surrogatepass")
        spans = _merged(self._known_spans(data))
        return _replaced(data, spans)[0].decode("utf-8", "surrogatepass") if spans else text

    def _known_spans(self, data: bytes) -> list[_Span]:
        spellings = (*self._known, *known_keys.spellings())
        found = (match for literal, pattern in spellings if literal in data for match in pattern.finditer(data))
        return [(*match.span(), match.lastgroup is not None) for match in found]

    def _spans(self, data: bytes) -> list[_Span]:
        """Where secrets stand: sorted, not overlapping."""
        spans = self._known_spans(data)
        if len(data) < _SHORTEST_KEY_BYTES or not any(look.search(data) for look in _looks()):
            return _merged(spans)
        for literal, looks_like in _KEY_PATTERNS:
            if literal in data:
                found = _matches(literal, re.compile(looks_like), data)
                spans += [
                    (*match.span(), False) for match in found if literal[:1] == b"-" or not _inside_word(data, match.start())
                ]
        return _merged(spans)


def _matches(literal: bytes, pattern: re.Pattern[bytes], data: bytes) -> Iterator[re.Match[bytes]]:
    """The matches, as `finditer` has them, in a time that does not grow faster than the data.

    In base64 there is a beginning of a token every now and then. Where one leads to none, what goes on from it without a point has
    none either: to look at each again takes minutes for a megabyte.
    """
    if literal != _TOKEN:
        yield from pattern.finditer(data)
        return
    start = data.find(literal)
    while start >= 0:
        match = pattern.match(data, start)
        if match is not None:
            yield match
        end = match.end() if match is not None else _WORD.match(data, start).end()  # type: ignore[union-attr]  # it is not empty
        start = data.find(literal, end)


def _merged(spans: list[_Span]) -> list[_Span]:
    spans.sort()
    merged: list[_Span] = []
    for start, end, in_base64 in spans:
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]), merged[-1][2] and in_base64)
        else:
            merged.append((start, end, in_base64))
    return merged


def _replaced(data: bytes, spans: list[_Span], chunks: tuple[int, ...] = ()) -> tuple[bytes, tuple[int, ...]]:
    """The data with these places replaced, and the sizes of the chunks it came in, moved accordingly."""
    if not spans:
        return data, chunks
    parts: list[bytes] = []
    olds, news = [0], [0]  # positions right after a replacement, before and after redaction
    for start, end, in_base64 in spans:
        instead = REDACTED.encode()
        if in_base64:  # as long as it was, so that what it is a part of can still be decoded
            instead = (instead * (end - start))[: end - start]
        parts += [data[olds[-1] : start], instead]
        news.append(news[-1] + start - olds[-1] + len(instead))
        olds.append(end)
    parts.append(data[olds[-1] :])
    result = b"".join(parts)
    starts = [start for start, _, _ in spans]
    sizes: list[int] = []
    position = moved = 0
    for size in chunks:
        position += size
        index = bisect_right(olds, position) - 1
        inside = index < len(starts) and starts[index] < position  # a boundary in a secret moves behind its replacement
        new = min(news[index + 1] if inside else news[index] + position - olds[index], len(result))
        sizes.append(new - moved)
        moved = new
    return result, tuple(sizes)


def without_keys(text: str) -> str:
    """A text that is shown or written: known keys, and what looks like a key, replaced."""
    return _EVERYTHING_KNOWN.text(text)


def known_hidden(text: str) -> str:
    """A text that a model is given: the keys that this process knows replaced, and nothing else."""
    return _EVERYTHING_KNOWN.known(text)


def holds_no_key(error: BaseException) -> bool:
    """Whether an error, and those that it came of, can be shown as they are."""
    seen: set[int] = set()
    open_errors: list[BaseException | None] = [error]
    while open_errors:
        one = open_errors.pop()
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            said = f"{text_of(one)}\n{text_of(one, repr)}"
            if without_keys(said) != said:
                return False
            open_errors += [one.__cause__, None if one.__suppress_context__ else one.__context__]
    return True


def in_words(error: BaseException) -> str:
    """An error's kind and what it says, without keys."""
    return without_keys(f"{type(error).__name__}: {text_of(error)}")


def text_of(value: object, how: Callable[[Any], str] = str) -> str:
    """The text of an object that other people wrote, also where its `__str__` or `__repr__` raises. Only an interrupt passes."""
    try:
        return how(value)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return f"<{type(value).__name__}, whose text raised {type(error).__name__}>"


def shown_without_keys(kind: type[T]) -> type[T]:
    """A class whose repr holds no keys: for values that carry what a model, a tool or a server said."""
    plain = kind.__repr__
    if plain in _WITHOUT_KEYS:  # of a class that was made once more, as dataclasses with slots are
        return kind

    def __repr__(self: T) -> str:  # noqa: N807
        return without_keys(text_of(self, plain))

    _WITHOUT_KEYS.add(__repr__)
    kind.__repr__ = __repr__  # type: ignore[method-assign, assignment]
    return kind


_WITHOUT_KEYS: WeakSet[Any] = WeakSet()
"""The reprs that were made so."""


def _inside_word(data: bytes, position: int) -> bool:
    before = data[max(0, position - 6) : position]
    return bool(_INSIDE_WORD.search(before)) and not _ESCAPE.search(before)


_EVERYTHING_KNOWN = Redactor()

# Metadata ----------------------------------------------------------------------------------------------------------------------

MOST_ITEMS, MOST_CHARACTERS, MOST_LEVELS = 50, 500, 5
"""What is kept of a provider's metadata: items of a collection, characters of a text, levels of nesting."""
_USUAL_NAME_CHARACTERS = 64


def clean_json(value: object, level: int = 0) -> Any:
    """A value as JSON can hold it, short, and with nothing in it that looks like a key; what is no JSON becomes its `str`."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping) and level < MOST_LEVELS:
        items = itertools.islice(value.items(), MOST_ITEMS)
        named = ((_clean_name(str(key)), part) for key, part in items)
        return {name: REDACTED if secret else clean_json(part, level + 1) for (name, secret), part in named}
    if isinstance(value, list | tuple | set | frozenset) and level < MOST_LEVELS:
        return [clean_json(part, level + 1) for part in itertools.islice(value, MOST_ITEMS)]
    return _clean_text(value if isinstance(value, str) else text_of(value))


def _clean_name(name: str) -> tuple[str, bool]:
    """A field's name as it is kept, and whether it is one of a secret."""
    return _usual_name(name) if len(name) <= _USUAL_NAME_CHARACTERS else (_clean_text(name), is_secret_name(name))


@lru_cache(maxsize=1024)
def _usual_name(name: str) -> tuple[str, bool]:
    return _clean_text(name), is_secret_name(name)  # the same few names come with every response


def is_secret_name(name: str) -> bool:
    """Whether a field of this name holds a secret."""
    return _SECRET_NAME.fullmatch(name) is not None


def _clean_text(text: str) -> str:
    """The text without secrets, at most MOST_CHARACTERS of it. Cut after it was looked through: half a key is a key too."""
    clean = Redactor().text(text[: 8 * MOST_CHARACTERS])
    return clean if len(clean) <= MOST_CHARACTERS else clean[: MOST_CHARACTERS - 1] + "…"

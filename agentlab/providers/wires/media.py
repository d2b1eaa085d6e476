"""Which images, documents and audio a wire takes, checked before a request is sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace

from agentlab._internal.values import dataclass
from agentlab.errors import ConfigurationError
from agentlab.model.messages import JSON
from agentlab.model.parts import Part, in_bytes


@dataclass(frozen=True, slots=True)
class Takes:
    """The parts that a wire takes.

    `kinds` are the media types of each kind of part, `urls` the kinds that it also takes as a URL, `results` the kinds that it takes in
    the results of tools. `most_bytes` are documented limits by kind, of the bytes before they are encoded; `request_bytes` is
    that of a whole request, in which images and files are a third larger (base64). A limit that is not documented is the provider's.
    """

    name: str
    kinds: Mapping[str, Sequence[str]]
    urls: Sequence[str] = ()
    results: Sequence[str] = ()
    most_bytes: Mapping[str, int] = field(default_factory=dict)
    request_bytes: int | None = None

    def check(self, part: Part, *, in_result: bool = False) -> Part:
        """Return the part. Raises ConfigurationError if this wire does not take it."""
        problem = self._problem(part, in_result)
        if problem:
            raise ConfigurationError(f"{part.text} cannot be sent: {problem}")
        return part

    def check_request(self, body: bytes) -> bytes:
        """Return the body of a request. Raises ConfigurationError if it is larger than the vendor takes."""
        if self.request_bytes is not None and len(body) > self.request_bytes:
            raise ConfigurationError(
                f"This request has {len(body):,} bytes; {self.name} takes at most {self.request_bytes:,}. Images and files are a third "
                "larger within a request: make them smaller, send fewer, or pass URLs."
            )
        return body

    def _problem(self, part: Part, in_result: bool) -> str:
        if part.kind not in self.kinds:
            takes = " and ".join(_PLURALS[kind] for kind in self.kinds)
            return f"{self.name} takes no {_PLURALS[part.kind]}, only {takes}. Pass it as text, or use another provider."
        if in_result and part.kind not in self.results:
            takes = " and ".join(_PLURALS[kind] for kind in self.results) or "text"
            return f"{self.name} takes only {takes} in the result of a tool. Return text, or use another provider."
        if part.url and part.kind not in self.urls:
            return f"{self.name} takes no URL of {_ARTICLES[part.kind]}. Download it, and pass the file or its bytes."
        if part.media_type and part.media_type not in self.kinds[part.kind]:
            return f"{self.name} takes {', '.join(self.kinds[part.kind])}, not {part.media_type}. Convert it."
        most = self.most_bytes.get(part.kind)
        if most is not None and part.size_bytes > most:
            return f"{self.name} takes at most {in_bytes(most)} for {_ARTICLES[part.kind]}. Make it smaller."
        return ""


_PLURALS = {"image": "images", "document": "documents", "audio": "audio"}
_ARTICLES = {"image": "an image", "document": "a document", "audio": "audio"}


def file_name(part: Part) -> str:
    """Return the part's name, which some wires require."""
    return part.name or f"{part.kind}.{part.format or 'pdf'}"


def data_uri(part: Part) -> str:
    """Return the URL of the part, or its bytes as a data URI."""
    return part.url or f"data:{part.media_type};base64,{part.base64}"


IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")
PDF = ("application/pdf",)

ANTHROPIC = Takes(
    "Anthropic",
    {"image": IMAGES, "document": PDF},
    urls=("image", "document"),
    results=("image", "document"),
    most_bytes={"image": 10 * 10**6},
    request_bytes=32 * 2**20,
)
"""The types of the vendor's client (anthropic 2.12). Sizes: https://platform.claude.com/docs/en/build-with-claude/vision and
https://platform.claude.com/docs/en/build-with-claude/pdf-support (2026-11-24); some models and platforms take less."""

ANTHROPIC_VERTEX = replace(ANTHROPIC, name="Claude on Vertex AI", urls=())
"""The vision page above: only base64 on Google Cloud."""


def anthropic_block(piece: str | Part) -> dict[str, JSON]:
    """Return a text or a part as a block. Raises ConfigurationError if Anthropic's wire does not take it."""
    if isinstance(piece, str):
        return {"type": "text", "text": piece}
    ANTHROPIC.check(piece)
    data = (
        {"type": "url", "url": piece.url}
        if piece.url
        else {"type": "base64", "media_type": piece.media_type, "data": piece.base64}
    )
    block: dict[str, JSON] = {"type": piece.kind, "source": data}
    if piece.kind == "document" and piece.name:
        block["title"] = piece.name
    if piece.cache_control is not None:
        block["cache_control"] = {"type": "ephemeral", "ttl": piece.cache_control}
    return block

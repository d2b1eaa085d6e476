"""Images, documents and audio in messages and tool results.

A message keeps its text and its parts. The text has a line for each part, such as `[image png 640x480, 12 kB]`, at the place where
the part is sent; `split` puts the parts back there. So everything that reads the text needs not know parts, and an edit of the text
that keeps the line keeps the part.

Media types are read from the first bytes, never from the name of a file.
"""

from __future__ import annotations

import base64
import hashlib
import io
import os
import pathlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, ClassVar, Literal, TypeAlias, cast, get_args
from weakref import WeakValueDictionary

import pydantic_core

from agentlab._internal.display import Displayable
from agentlab._internal.errors import ConfigurationError
from agentlab._internal.formatting import counted
from agentlab._internal.redaction import redact_known, redact_url
from agentlab._internal.safe_text import one_line
from agentlab._internal.values import dataclass

MAX_BYTES = 100 * 10**6
"""More than any provider takes within a request."""

MOST_ROWS = 1_000
"""How many rows of a DataFrame are sent."""

CacheControl: TypeAlias = Literal["5m", "1h"]


class _Held:
    """The bytes of all parts with the same hash."""

    __slots__ = ("__weakref__", "data")

    def __init__(self, data: bytes) -> None:
        self.data = data


_held: WeakValueDictionary[str, _Held] = WeakValueDictionary()


def hold(data: bytes) -> tuple[str, _Held]:
    """Return the hash of some bytes, and their only copy; parts are read back from a store while it is alive."""
    sha256 = hashlib.sha256(data).hexdigest()
    return sha256, _held.setdefault(sha256, _Held(data))


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Part(Displayable):
    """What Image, Document and Audio have in common: bytes with their SHA-256, or a URL; and a media type, empty for a URL that does
    not give it. The repr does not contain the bytes."""

    kind: ClassVar[str] = ""
    accepts: ClassVar[Mapping[str, str]] = {}

    media_type: str
    sha256: str
    size_bytes: int
    name: str
    url: str
    width: int | None
    height: int | None
    cache_control: CacheControl | None
    _held: _Held | None = field(repr=False, compare=False)

    def __init__(
        self, source: object, *, name: str = "", media_type: str = "", cache_control: CacheControl | None = None
    ) -> None:
        label = type(self).__name__
        if cache_control not in (None, *get_args(CacheControl)):
            raise ConfigurationError(f"lab.{label}(cache_control={cache_control!r}): pass '5m' or '1h', or leave it out.")
        if media_type and media_type not in self.accepts:
            raise ConfigurationError(
                f"lab.{label}(media_type={media_type!r}): use {_either(self.accepts)}, or leave it out: it is read from the bytes."
            )
        if isinstance(source, str) and source.startswith(("http://", "https://")):
            self._set(media_type, "", 0, name, source, None, None, cache_control, None)
            return
        data, shown, own_name = self._read(source)
        if not data:
            raise ConfigurationError(f"lab.{label}({shown}): it is empty.")
        self._refuse_too_large(len(data), shown)
        found = sniff(data)
        if found not in self.accepts:
            raise ConfigurationError(
                f"lab.{label}({shown}): this is {_what(data, found)}, not {_either(self.accepts)}.{self._hint(found)}"
            )
        if media_type and found != media_type:
            raise ConfigurationError(f"lab.{label}({shown}, media_type={media_type!r}): its bytes are {found}.")
        width, height = _dimensions(data, found)
        sha256, held = hold(data)
        self._set(found, sha256, len(data), name or own_name, "", width, height, cache_control, held)

    def _set(self, *values: object) -> None:
        values = (*values[:3], one_line(str(values[3]), 60) if values[3] else "", *values[4:])
        for name, value in zip(_FIELDS, values, strict=True):
            object.__setattr__(self, name, value)

    def _read(self, source: object) -> tuple[bytes, str, str]:
        """Return the bytes, how an error shows the source, and its name."""
        label = type(self).__name__
        if isinstance(source, bytes | bytearray | memoryview):
            return bytes(source), f"{len(source):,} bytes", ""
        if isinstance(source, str) and source.startswith("data:"):
            head, _, encoded = source.partition(",")
            try:
                return base64.b64decode(encoded, validate=True), f"'{one_line(head, 40)},…'", ""
            except ValueError:
                raise ConfigurationError(f"lab.{label}('{one_line(head, 40)},…'): this data URI is not base64.") from None
        if isinstance(source, str | os.PathLike) and source:
            return self._read_file(pathlib.Path(source).expanduser(), one_line(repr(str(source)), 120))
        if (made := self._drawn(source)) is not None:
            return made, f"<{type(source).__name__}>", ""
        raise ConfigurationError(f"lab.{label}({one_line(repr(source))}): pass {self._sources()}.")

    def _read_file(self, path: pathlib.Path, shown: str) -> tuple[bytes, str, str]:
        label = type(self).__name__
        try:
            size = path.stat().st_size
            data = path.read_bytes() if size <= MAX_BYTES else b""
        except FileNotFoundError:
            where = "" if path.is_absolute() else f" in {pathlib.Path.cwd()}"
            hint = " Of URLs, only http and https are sent; other files need a path." if "://" in shown else ""
            raise ConfigurationError(f"lab.{label}({shown}): there is no such file{where}.{hint}") from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            hint = " For base64, pass the bytes: base64.b64decode(…)." if len(str(path)) > 255 else ""
            raise ConfigurationError(f"lab.{label}({shown}): the file cannot be read: {reason}.{hint}") from None
        self._refuse_too_large(size, shown)
        return data, shown, path.name

    def _refuse_too_large(self, size: int, shown: str) -> None:
        if size > MAX_BYTES:
            raise ConfigurationError(
                f"lab.{type(self).__name__}({shown}): {size:,} bytes are too much: no provider takes more than {in_bytes(MAX_BYTES)} "
                "within a request. Make it smaller, or pass a URL."
            )

    def _drawn(self, source: object) -> bytes | None:
        """Return the bytes of another library's object; None for any other."""
        return None

    def _sources(self) -> str:
        return "bytes, a path, or a URL"

    def _hint(self, found: str) -> str:
        other = next((kind for kind in (Image, Document, Audio) if found in kind.accepts), None)
        return f" Use lab.{other.__name__}." if other is not None else ""

    @property
    def data(self) -> bytes:
        """The bytes. Empty for a URL; raises ConfigurationError if they are not stored.

        Example:
            >>> lab.Document(b"%PDF-1.7 ...").data
            b'%PDF-1.7 ...'
        """
        if self._held is None and not self.url:
            raise ConfigurationError(f"The bytes of {self.text} are not stored here: pass the file again in a new prompt.")
        return b"" if self._held is None else self._held.data

    @property
    def is_held(self) -> bool:
        """True if the bytes are here: not for a URL, and not if they were not stored."""
        return self._held is not None

    @property
    def base64(self) -> str:
        """The bytes as base64."""
        return base64.b64encode(self.data).decode()

    @property
    def format(self) -> str:
        """The short name of the media type, such as png, pdf or mp3."""
        return self.accepts.get(self.media_type, "")

    @property
    def text(self) -> str:
        """The line that takes the part's place in a text.

        Example:
            >>> lab.Document(b"%PDF-1.7 ...", name="report.pdf").text
            '[pdf report.pdf, 12 B]'
        """
        if self.url:
            return f"[{self.kind} {one_line(redact_url(self.url), 100)}]"
        size = f" {self.width}x{self.height}" if self.width else ""
        words = f"{self.kind} {self.format}{size}" if self.kind != "document" else self.format
        return f"[{words}{f' {self.name}' if self.name and not size else ''}, {in_bytes(self.size_bytes)}]"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.text[1:-1]!r})"

    def to_jsonable(self, *, with_data: bool = False) -> dict[str, Any]:
        """Return the part as a dict for JSON; without the data, it refers to the bytes by their hash."""
        stored = {name: getattr(self, name) for name in _FIELDS[:-1]}
        data = {"data": self.base64} if with_data and self._held is not None else {}
        return {"kind": self.kind} | {name: value for name, value in stored.items() if value not in ("", None, 0)} | data

    @staticmethod
    def from_jsonable(stored: Mapping[str, Any]) -> Part:
        """Return the part of a dict from `to_jsonable`. Raises ValueError for anything else."""
        kind = KINDS.get(stored.get("kind", ""))
        if kind is None:
            raise ValueError(f"a part of kind {stored.get('kind')!r}")
        part = kind.__new__(kind)
        sha256, held = stored.get("sha256", ""), None
        if "data" in stored:
            sha256, held = hold(base64.b64decode(stored["data"]))
        empty = {"size_bytes": 0, "width": None, "height": None, "cache_control": None, "sha256": sha256}
        values = [{**empty, **stored}.get(name, "") for name in _FIELDS[:-1]]
        part._set(*values, held or _held.get(sha256))
        return part


_FIELDS = ("media_type", "sha256", "size_bytes", "name", "url", "width", "height", "cache_control", "_held")


class Image(Part):
    """An image in a prompt or in the result of a tool: PNG, JPEG, GIF or WebP.

    `source` is bytes, a path, a data URI, a URL (the provider fetches it; agentlab never does), a PIL image, or a matplotlib figure or
    its axes. With `cache_control`, Anthropic and Bedrock cache the conversation up to this part for 5 minutes or an hour; the other
    providers cache without being asked, or not at all. Raises ConfigurationError for anything that is no such image.

    Example:
        >>> pixel = "data:image/gif;base64,R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7"
        >>> lab.Image(pixel)
        Image('image gif 1x1, 42 B')
        >>> brief.run(["What is this?", lab.Image(pixel)]).prompt
        'What is this?\\n[image gif 1x1, 42 B]'
        >>> lab.Image(b"GIF, but not really")
        Traceback (most recent call last):
            ...
        agentlab.errors.ConfigurationError: lab.Image(19 bytes): this is text, not image/png, image/jpeg, image/gif or...
    """

    __slots__ = ()
    kind = "image"
    accepts: ClassVar[Mapping[str, str]] = {
        "image/png": "png", "image/jpeg": "jpeg", "image/gif": "gif", "image/webp": "webp",
    }  # fmt: skip

    def _drawn(self, source: object) -> bytes | None:
        return drawn(source)

    def _sources(self) -> str:
        return "bytes, a path, a URL, a PIL image or a matplotlib figure"

    def _hint(self, found: str) -> str:
        return " Convert it with Pillow: lab.Image(PIL.Image.open(…))." if found.startswith("image/") else super()._hint(found)


class Document(Part):
    """A PDF in a prompt or in the result of a tool, from bytes, a path, a data URI or a URL (see `Image`). `name` is by default the
    file's. Pass other documents as text. Raises ConfigurationError for anything that is no PDF.

    Example:
        >>> lab.Document(b"%PDF-1.7 ...", name="report.pdf")
        Document('pdf report.pdf, 12 B')
        >>> lab.Document("missing.pdf")
        Traceback (most recent call last):
            ...
        agentlab.errors.ConfigurationError: lab.Document('missing.pdf'): there is no such file in ...
    """

    __slots__ = ()
    kind = "document"
    accepts: ClassVar[Mapping[str, str]] = {"application/pdf": "pdf"}

    def _hint(self, found: str) -> str:
        other = super()._hint(found)
        return other or " Pass its content as text, or convert it to PDF."


class Audio(Part):
    """Audio in a prompt: WAV, MP3, FLAC, Ogg, AAC or AIFF, from bytes, a path, a data URI or a URL (see `Image`).

    Raises ConfigurationError for anything else.

    Example:
        >>> lab.Audio(b"RIFF\\x00\\x00\\x00\\x00WAVEfmt ")
        Audio('audio wav, 16 B')
    """

    __slots__ = ()
    kind = "audio"
    accepts: ClassVar[Mapping[str, str]] = {
        "audio/wav": "wav", "audio/mp3": "mp3", "audio/flac": "flac", "audio/ogg": "ogg", "audio/aac": "aac", "audio/aiff": "aiff",
    }  # fmt: skip


KINDS: Mapping[str, type[Part]] = {kind.kind: kind for kind in (Image, Document, Audio)}

Content: TypeAlias = str | Sequence[Any]
"""Text, or a list of texts and parts; also PIL images, matplotlib figures and DataFrames."""


# Texts with parts ------------------------------------------------------------------------------------------------------------


def joined(content: Iterable[object], where: str) -> tuple[str, tuple[Part, ...]]:
    """Return texts and parts as one text, a line for each part, and the parts. Raises ConfigurationError for anything else."""
    texts, parts = [], list[Part]()
    for item in content:
        if isinstance(item, str):
            texts.append(item)
            continue
        if (table := as_table(item)) is not None:
            texts.append(table + "\n")  # the empty line ends the table
            continue
        part = as_part(item)
        if part is None:
            raise ConfigurationError(
                f"{where}: {one_line(repr(item))} is neither text nor a part: use lab.Image, lab.Document or lab.Audio for bytes and "
                "files, and text for anything else."
            )
        parts.append(part)
        texts.append(part.text)
    return "\n".join(texts), tuple(parts)


def part_of(data: bytes, name: str = "") -> Part | None:
    """Return bytes as the image, the document or the audio that they are; None for any other bytes. Raises ConfigurationError for more
    than MAX_BYTES."""
    found = sniff(data)
    kind = next((kind for kind in KINDS.values() if found in kind.accepts), None)
    return None if kind is None else kind(data, name=name)


def as_part(value: object) -> Part | None:
    """Return a part as it is, and a PIL image or a matplotlib figure as an Image; None for any other value."""
    if isinstance(value, Part):
        return value
    data = drawn(value)
    return None if data is None else Image(data)


def as_text(value: object) -> str:
    """Return a value as text for the model: text as it is, anything else as JSON. Raises ValueError if that is impossible."""
    if isinstance(value, bytes) and part_of(value) is not None:
        raise ValueError("return lab.Image, lab.Document or lab.Audio for the bytes of an image or a file.")
    try:
        return value if isinstance(value, str) else pydantic_core.to_json(value, fallback=_as_python).decode()
    except pydantic_core.PydanticSerializationError as error:
        if _Held.__name__ in str(error):
            raise ValueError("images and files cannot be inside a dict: return a list of texts and parts.") from None
        known = _without_missing(value)
        if known is value:  # and not to be read again, as a generator could not be
            raise
        return pydantic_core.to_json(known, fallback=_as_python).decode()


def _as_python(value: Any) -> object:
    """Return a number or an array of numpy, which a sum of a column is, as Python's. Raises TypeError for anything else."""
    if hasattr(type(value), "tolist"):
        return value.tolist()
    advice = " inside another value: return it by itself or in a list" if hasattr(type(value), "itertuples") else ""
    raise TypeError(f"{type(value).__name__} is no JSON{advice}")


def _without_missing(value: object) -> object:
    """Return the value with None for pandas' NaT, which pydantic takes for a date, and its NA; itself if there are none."""
    if type(value).__name__ in ("NaTType", "NAType"):
        return None
    inside = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    known = [_without_missing(one) for one in inside]
    if all(one is before for one, before in zip(known, inside, strict=True)):
        return value
    return dict(zip(value, known, strict=True)) if isinstance(value, Mapping) else known


def as_content(value: object) -> tuple[str, tuple[Part, ...]]:
    """Return a tool's value as text for the model, and its parts: a part, a PIL image, a matplotlib figure or a DataFrame, or a list
    that has one beside texts and values. Raises ValueError for a value that is not JSON."""
    if type(value) is str:
        return value, ()
    items = value if isinstance(value, list | tuple) else (value,)
    found = [as_part(item) or as_table(item) for item in items]
    if all(one is None for one in found):
        return as_text(value), ()
    if items is not value and isinstance(found[0], str):
        return found[0], ()
    known = [item if one is not None else as_text(item) for one, item in zip(found, items, strict=True)]
    return joined(known, "the result")


def as_table(value: object) -> str | None:
    """Return a DataFrame or a Series as a table in Markdown; None for any other value.

    It has the first MOST_ROWS rows, and says how many are left out. The index is a column, unless it only numbers the rows.
    """
    if type(value) in _PLAIN or "pandas" not in {kind.__module__.partition(".")[0] for kind in type(value).__mro__}:
        return None
    frame: Any = value if hasattr(value, "columns") or not hasattr(value, "to_frame") else value.to_frame()
    if not hasattr(frame, "itertuples"):
        return None
    index = frame.index
    only_numbers = type(index).__name__ == "RangeIndex" and (index.name, index.start, index.step) == (None, 0, 1)
    names = [] if only_numbers else ["" if name is None else name for name in index.names]
    rows: list[Iterable[object]] = [[*names, *frame.columns], ["---"] * (len(names) + frame.shape[1])]
    for row in frame.head(MOST_ROWS).itertuples(index=bool(names), name=None):
        rows.append([*row[0], *row[1:]] if len(names) > 1 else row)
    lines = [f"| {' | '.join(' '.join(str(cell).split()).replace('|', chr(92) + '|') for cell in row)} |" for row in rows]
    left_out = len(frame) - MOST_ROWS
    return "\n".join([*lines, *([f"\nLeft out: {counted(left_out, 'more row')}."] if left_out > 0 else [])])


def without_keys(text: str, parts: Sequence[Part]) -> str:
    """Return a text without keys of this process; the lines of its parts stay as they are."""
    if not parts:
        return redact_known(text)
    return "\n".join(piece.text if isinstance(piece, Part) else redact_known(piece) for piece in split(text, parts))


def split(text: str, parts: Sequence[Part]) -> list[str | Part]:
    """Return the text around the parts, and the parts at their places. A part whose line is not in the text is left out."""
    found: list[str | Part] = []
    rest, begun = text, False
    for part in parts:
        before, line, after = rest.partition(part.text)
        if not line:
            continue
        before = (before.removeprefix("\n") if begun else before).removesuffix("\n")
        found += [before, part] if before.strip() else [part]
        rest, begun = after, True
    rest = rest.removeprefix("\n") if begun else rest
    return [*found, rest] if rest.strip() or not found else found


def drawn(value: object) -> bytes | None:
    """Return a PIL image, or a matplotlib figure or what is drawn in one, as a PNG; None for any other value, which is not touched."""
    if type(value) in _PLAIN:
        return None
    modules = {kind.__module__.partition(".")[0] for kind in type(value).__mro__}
    buffer, source = io.BytesIO(), cast(Any, value)
    if "matplotlib" in modules:
        source = getattr(source, "figure", source)  # that of axes, as pandas' plots return them
    if "matplotlib" in modules and hasattr(source, "savefig"):
        source.savefig(buffer, format="png", bbox_inches="tight", metadata={"Software": None})  # not the version of matplotlib
        return buffer.getvalue()
    if "PIL" in modules and hasattr(source, "convert"):
        image = source if source.mode in _PNG_MODES else source.convert("RGBA" if "A" in source.mode else "RGB")
        image.save(buffer, format="PNG")
        return buffer.getvalue()
    return None


_PLAIN = frozenset({str, int, float, bool, dict, list, tuple, bytes, type(None)})
_PNG_MODES = ("1", "L", "LA", "I", "P", "RGB", "RGBA")


def in_bytes(count: int) -> str:
    """Format a size: `42 B`, `12 kB`, `3.4 MB`."""
    if count < 1000:
        return f"{count} B"
    return f"{count / 1000:.0f} kB" if count < 999_500 else f"{count / 10**6:.1f} MB".replace(".0 MB", " MB")


# Bytes -----------------------------------------------------------------------------------------------------------------------

_MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"BM", "image/bmp"),
    (b"II*\0", "image/tiff"),
    (b"MM\0*", "image/tiff"),
    (b"%PDF-", "application/pdf"),
    (b"ID3", "audio/mp3"),
    (b"fLaC", "audio/flac"),
    (b"OggS", "audio/ogg"),
    (b"PK\x03\x04", "application/zip"),
)
_RIFF = {b"WEBP": "image/webp", b"WAVE": "audio/wav"}
_FTYP = {b"heic": "image/heic", b"heix": "image/heic", b"mif1": "image/heif", b"avif": "image/avif"}


def sniff(data: bytes) -> str:
    """Return the media type that the first bytes show; empty if it is none of those known."""
    if data[:4] == b"RIFF":
        return _RIFF.get(data[8:12], "")
    if data[4:8] == b"ftyp":
        return _FTYP.get(data[8:12], "video/mp4")
    if data[:4] == b"FORM" and data[8:12] in (b"AIFF", b"AIFC"):
        return "audio/aiff"
    if len(data) > 2 and data[0] == 0xFF and data[1] & 0xE0 == 0xE0 and data[1] != 0xFF:
        if data[1] & 0xF6 == 0xF0:
            return "audio/aac"
        return "image/jpeg" if data[1] == 0xD8 else "audio/mp3" if data[1] & 0x06 else ""
    return next((kind for magic, kind in _MAGIC if data.startswith(magic)), "")


def _what(data: bytes, found: str) -> str:
    if found:
        return "a zip file, such as docx or xlsx" if found == "application/zip" else found
    if b"<svg" in data[:1000]:
        return "an SVG"
    if b"<html" in data[:1000].lower():
        return "an HTML page"
    try:
        data[:200].decode()
    except UnicodeDecodeError:
        return "of an unknown type"
    return "of an unknown type" if b"\0" in data[:200] else "text"


def _either(names: Iterable[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} or {last}" if most else last


def _dimensions(data: bytes, media_type: str) -> tuple[int | None, int | None]:
    """Return width and height in pixels; None if they are not where the format has them."""
    width = height = 0
    if media_type == "image/png":
        width, height = int.from_bytes(data[16:20]), int.from_bytes(data[20:24])
    elif media_type == "image/gif":
        width, height = int.from_bytes(data[6:8], "little"), int.from_bytes(data[8:10], "little")
    elif media_type == "image/webp":
        width, height = _webp(data)
    elif media_type == "image/jpeg":
        width, height = _jpeg(data)
    return (width, height) if width and height else (None, None)


def _webp(data: bytes) -> tuple[int, int]:
    if data[12:16] == b"VP8X":
        return int.from_bytes(data[24:27], "little") + 1, int.from_bytes(data[27:30], "little") + 1
    if data[12:16] == b"VP8L":
        bits = int.from_bytes(data[21:25], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    return int.from_bytes(data[26:28], "little") & 0x3FFF, int.from_bytes(data[28:30], "little") & 0x3FFF


_FRAME = re.compile(rb"[\xc0-\xc3\xc5-\xc7\xc9-\xcb\xcd-\xcf]")


def _jpeg(data: bytes) -> tuple[int, int]:
    """Return width and height from the frame header, after the segments before it."""
    place = 2
    while place + 9 < len(data) and data[place] == 0xFF:
        if _FRAME.match(data, place + 1):
            return int.from_bytes(data[place + 7 : place + 9]), int.from_bytes(data[place + 5 : place + 7])
        place += 1 if data[place + 1] == 0xFF else 2 + int.from_bytes(data[place + 2 : place + 4])
    return 0, 0

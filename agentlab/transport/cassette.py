"""Reads cassettes. Their format is VCR's: YAML that people can read, or JSON for large sets, also compressed by gzip.

    version: 1
    origin: synthetic                       our addition: a word, or a mapping with `recorded` (a date) and `from` (a host)
    interactions:
    - request: {method, uri, body, headers}
      response: {status: {code, message}, headers, body: {string}}
      recorded_at: 2026-11-20T09:30:00Z     optional, when the request was sent; otherwise the header `date` is used
      lane: …                               our addition, optional: the label of the run that sent the request

Our optional additions to a response: `chunks` (the sizes in bytes of the chunks in which a stream arrived), `delays_s` (the seconds
before each chunk), `incomplete: true` (the connection broke off, or the caller stopped reading). Also read: `parsed_body` in place of a
body, the bodies of cassetter ({type: json, content: …}), and gRPC samples of xAI's SDK, which are served as HTTP. Other interactions
that are not HTTP are counted and skipped. A body with unknown keys only is an error.
"""

from __future__ import annotations

import base64
import difflib
import gzip
import json
import os
import re
import zlib
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

from agentlab._internal.redaction import redacted_repr
from agentlab._internal.safe_text import one_line
from agentlab._internal.values import dataclass
from agentlab.errors import FixtureNotFoundError, MalformedCassetteError
from agentlab.model.messages import JSON
from agentlab.transport.cassette_text import UnreadableText, read_document
from agentlab.transport.http import Recorded
from agentlab.transport.samples import PREFIX, sample

# gRPC samples of xAI's SDK ------------------------------------------------------------------------------------------------------

ADDRESS = "https://api.x.ai/v1/chat/completions"


def as_http(entry: Mapping[str, JSON]) -> dict[str, JSON] | None:
    """Return a gRPC sample as an HTTP interaction; None for any other entry."""
    sent = _part(entry, "request_sample", "json") or _part(entry, "request_stream", "json")
    answer, chunks = _part(entry, "response_sample", "json"), _part(entry, "response_stream", "chunks_json")
    if not isinstance(sent, dict):
        return None
    if isinstance(answer, dict):
        content_type, body = "application/json", _as_json(answer)
    elif isinstance(chunks, list):
        content_type = "text/event-stream"
        body = "".join(f"data: {_as_json(_unwrapped(chunk))}\n\n" for chunk in chunks) + "data: [DONE]\n\n"
    else:
        return None
    request = {"method": "POST", "uri": ADDRESS, "body": _as_json(sent), "headers": {"content-type": ["application/json"]}}
    response = {"status": {"code": 200, "message": "OK"}, "headers": {"content-type": [content_type]}, "body": {"string": body}}
    return {"request": request, "response": response, **({"lane": entry["lane"]} if "lane" in entry else {})}


def _part(entry: Mapping[str, JSON], name: str, key: str) -> JSON:
    part = entry.get(name)
    return part.get(key) if isinstance(part, dict) else None


def _unwrapped(chunk: JSON) -> JSON:
    return chunk["chunk"] if isinstance(chunk, dict) and isinstance(chunk.get("chunk"), dict) else chunk


def _as_json(value: JSON) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)


# Cassettes ----------------------------------------------------------------------------------------------------------------------

SUFFIXES = (".yaml", ".yml", ".json", ".json.gz")


@redacted_repr
@dataclass(frozen=True, slots=True)
class RecordedResponse:
    """A response for replay: header names in lower case, the body decoded.

    `chunks` are sizes in bytes and `delays_s` the seconds before each chunk; both may be empty. `incomplete`: the connection broke off
    after this body.
    """

    status: int
    message: str
    headers: dict[str, str]
    body: bytes
    chunks: tuple[int, ...] = ()
    delays_s: tuple[float, ...] = ()
    incomplete: bool = False

    def pieces(self) -> list[bytes]:
        """Return the body in its recorded chunks. Sizes are hints: an edited body is still served whole."""
        if not self.chunks:
            return [self.body] if self.body else []
        pieces, start = [], 0
        for size in self.chunks:
            pieces.append(self.body[start : start + size])
            start += size
        return [*pieces, self.body[start:]] if start < len(self.body) else pieces

    def timed(self, pace: float) -> list[tuple[float, bytes]]:
        """Return each chunk after the seconds to wait for it: its recorded delay times `pace`."""
        delays = self.delays_s if pace else ()
        return [(delays[at] * pace if at < len(delays) else 0.0, piece) for at, piece in enumerate(self.pieces())]


class _Malformed(Exception):  # noqa: N818  turned into a MalformedCassetteError, with the file and the number
    def __init__(self, where: str, problem: str) -> None:
        super().__init__(where, problem)
        self.where, self.problem = where, problem


class Interaction:
    """A request and its response. `source` names the file and the number in it, `label` is that of the run ("" if it had none)."""

    __slots__ = ("_name", "_number", "_plain", "_recorded", "_response", "_time", "body", "label", "method", "uri")

    def __init__(self, entry: Mapping[str, JSON], name: str, number: int) -> None:
        self._name = name
        self._number = number
        try:
            request = entry.get("request")
            if type(request) is not dict:
                raise _Malformed("request", f"expected a mapping, found {_kind(request)}")
            method, uri, body, label = request.get("method"), request.get("uri"), request.get("body"), entry.get("lane", "")
            if type(method) is not str or type(uri) is not str:
                wrong, value = ("uri", uri) if isinstance(method, str) else ("method", method)
                raise _Malformed(f"request.{wrong}", f"expected text, found {_kind(value)}")
            self.method: str = method
            self.uri: str = uri
            self.body = body.encode("utf-8", "surrogatepass") if type(body) is str else _body(request, "request")
        except _Malformed as error:
            raise self._error(error) from error.__cause__
        self.label: str = label if type(label) is str else ""
        self._time = entry.get("recorded_at")
        self._recorded: Recorded | None = None
        response = entry.get("response")
        self._plain = response if _is_plain(response) else None  # parsed on first access
        self._response = None if self._plain is not None else self._parse(response)

    @property
    def response(self) -> RecordedResponse:
        """The recorded response."""
        if self._response is None:
            self._response = self._parse(self._plain)
        return self._response

    @property
    def source(self) -> str:
        """The file and the number in it."""
        return f"{self._name}, interaction {self._number}"

    @property
    def recorded(self) -> Recorded:
        """Source and time of the recording: the recorder's time, else the header `date` of the response."""
        if self._recorded is None:
            self._recorded = Recorded(self.source, _time_of(self._time) or _time_of(self.response.headers.get("date")))
        return self._recorded

    def _parse(self, response: JSON) -> RecordedResponse:
        try:
            return _response(response)
        except _Malformed as error:
            raise self._error(error) from error.__cause__

    def _error(self, error: _Malformed) -> MalformedCassetteError:
        return _malformed(self._name, f"interaction {self._number}, {error.where}", error.problem)

    def __repr__(self) -> str:
        return f"Interaction({self.method} {self.uri}, {self.source})"


def _time_of(written: JSON) -> datetime | None:
    """Return a recorded time in UTC: from ISO 8601 with a time zone (parsed by YAML, or text), or an HTTP date; else None."""
    found = written
    if isinstance(written, str):
        try:
            found = datetime.fromisoformat(written) if written[:4].isdigit() else parsedate_to_datetime(written)
        except ValueError:
            return None
    return found.astimezone(UTC) if isinstance(found, datetime) and found.tzinfo is not None else None


def _is_plain(response: JSON) -> bool:
    """True if a response has the most common form, which needs no further check."""
    if type(response) is not dict or len(response) > 3:
        return False
    status, headers, body = response.get("status"), response.get("headers"), response.get("body")
    if type(status) is not dict or type(headers) is not dict or type(body) is not dict or type(body.get("string")) is not str:
        return False
    code = status.get("code")
    if type(code) is not int or not 100 <= code <= 599 or len(body) > 1:
        return False
    return all(type(name) is str and (len(name) != 16 or name.lower() != "content-encoding") for name in headers)


@dataclass(frozen=True, slots=True)
class Cassette:
    """The content of one file. `skipped` counts interactions that are neither HTTP nor a known kind of sample."""

    path: Path
    interactions: tuple[Interaction, ...]
    origin: str | Mapping[str, JSON] | None = None
    skipped: int = 0


def parse_cassette(document: JSON, path: Path, name: str = "") -> Cassette:
    """Return the cassette in a loaded document. Raises MalformedCassetteError, which names the file and the place in it."""
    name = name or path.name
    entries = document.get("interactions", ...) if isinstance(document, dict) else ...
    if not isinstance(entries, list | None):
        keys = ", ".join(str(key)[:30] for key in list(document)[:5]) or "none" if isinstance(document, dict) else ""
        found = f"a mapping without `interactions` (its keys: {keys})" if keys else _kind(document)
        raise _malformed(name, "the top level", f"expected a mapping with a list `interactions`, found {found}")
    version, origin = document.get("version", 1), document.get("origin")
    if version != 1:
        raise _malformed(name, "version", f"only version 1 of the format is known, found {version!r}")
    if not isinstance(origin, str | dict | None):
        raise _malformed(name, "origin", f"expected a word such as `synthetic`, or a mapping, found {_kind(origin)}")
    interactions: list[Interaction] = []
    others = sum(len(document.get(key) or ()) for key in ("grpc_interactions", "ws_interactions"))  # of cassetter
    for number, entry in enumerate(entries or (), 1):
        if type(entry) is not dict:
            raise _malformed(name, f"interaction {number}", f"expected a mapping, found {_kind(entry)}")
        if "request" in entry or not any(str(key).startswith("request_") for key in entry):
            interactions.append(Interaction(_with_media(entry, path, name, number), name, number))
        elif (sample := as_http(entry)) is not None:
            interactions.append(Interaction(sample, name, number))
    return Cassette(path, tuple(interactions), origin, len(entries or ()) - len(interactions) + others)


MEDIA_FOLDER = "media"
"""The folder, beside the cassettes, with the images and files of requests and of MCP results. A replay needs only the latter."""

MCP = "mcp://"
"""How the address of an MCP server begins."""

_HASH = re.compile(r'("(?:data|blob)"\s*:\s*)"sha256:([0-9a-f]{64})"')


def _with_media(entry: Mapping[str, JSON], path: Path, name: str, number: int) -> Mapping[str, JSON]:
    """Return an entry with the images and files in the result of an MCP server, which are in MEDIA_FOLDER beside the cassette."""
    request, response = entry.get("request"), entry.get("response")
    uri = request.get("uri") if isinstance(request, dict) else None
    body = response.get("body") if isinstance(response, dict) else None
    text = body.get("string") if isinstance(body, dict) else None
    if not (isinstance(uri, str) and uri.startswith(MCP) and isinstance(text, str) and _HASH.search(text)):
        return entry
    assert isinstance(response, dict)  # noqa: S101  it has the text

    def encoded(match: re.Match[str]) -> str:
        found = next((path.parent / MEDIA_FOLDER).glob(f"{match[2]}.*"), None)
        if found is None:
            reason = f"the file {MEDIA_FOLDER}/{match[2][:12]}….* of a tool's result is missing"
            raise _malformed(name, f"interaction {number}", reason)
        return f'{match[1]}"{base64.b64encode(found.read_bytes()).decode()}"'

    text = _HASH.sub(encoded, text)
    sizes = [len(line) for line in text.encode().splitlines(keepends=True)]  # a chunk is a line
    return {**entry, "response": {**response, "body": {"string": text}, "chunks": sizes}}


def _response(response: JSON) -> RecordedResponse:
    if not isinstance(response, dict):
        raise _Malformed("response", f"expected a mapping, found {_kind(response)}")
    status = response.get("status", response.get("status_code"))
    code, message = (status.get("code"), status.get("message")) if isinstance(status, dict) else (status, "")
    try:
        code = int(code)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        code = 0
    if not 100 <= code <= 599:
        raise _Malformed("response.status", f"expected {{code: 200, message: OK}}, found {_short(status)}")
    headers = _headers(response.get("headers"))
    body = _decoded(_body(response, "response"), headers)
    chunks, delays = _numbers(response, "chunks", int), _numbers(response, "delays_s", int | float)
    return RecordedResponse(code, str(message or ""), headers, body, chunks, delays, bool(response.get("incomplete", False)))


_TRANSFER = ("content-length", "transfer-encoding", "connection", "keep-alive")


def _headers(headers: JSON) -> dict[str, str]:
    """Return headers with names in lower case, without transfer headers, since the body is served decoded and whole.

    `content-length: 0` is kept: it distinguishes an empty body from one that broke off.
    """
    if headers is None:
        return {}
    if isinstance(headers, list) and all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in headers):
        pairs = [(key, value) for key, value in headers]
    elif isinstance(headers, dict):
        pairs = list(headers.items())
    else:
        raise _Malformed("response.headers", f"expected a mapping of names to lists of values, found {_kind(headers)}")
    result: dict[str, str] = {}
    for key, value in pairs:
        name = str(key).lower()
        text = ", ".join(map(_text, value)) if isinstance(value, list | tuple) else _text(value)
        if name not in _TRANSFER or (name, text) == ("content-length", "0"):
            result[name] = f"{result[name]}, {text}" if name in result else text
    return result


_BODIES = ("body", "content", "parsed_body")
_WITHOUT_BODY = {"method", "uri", "url", "headers", "status", "status_code", "http_version", "chunks", "delays_s", "incomplete"}


def _body(part: Mapping[str, JSON], where: str) -> bytes:
    """Return the body of a request or a response: text, bytes, `{string: …}`, `{base64_string: …}`, `{type: …, content: …}` or a
    `parsed_body`."""
    body = part.get("body", part.get("content"))
    if body is None and part.get("parsed_body") is not None:
        return _as_json(part["parsed_body"]).encode("utf-8", "surrogatepass")
    if not any(key in part for key in _BODIES):
        _check_keys(part, _WITHOUT_BODY, where)
    if isinstance(body, dict):
        if "type" in body and body.keys() <= {"type", "content"}:
            return _typed_body(body["type"], body.get("content"), f"{where}.body")
        if body.get("string") is None and body.get("base64_string") is None:
            _check_keys(body, {"string", "base64_string", "encoding"}, f"{where}.body")
        encoded = body.get("base64_string")
        if encoded is not None:
            try:
                return base64.b64decode("".join(encoded.split()), validate=True)
            except (AttributeError, ValueError) as error:
                raise _Malformed(f"{where}.body.base64_string", f"not base64: {error}") from error
        body = body.get("string")
    if isinstance(body, str):
        return body.encode("utf-8", "surrogatepass")
    if isinstance(body, bytes | None):
        return body or b""
    raise _Malformed(f"{where}.body", f"expected text, bytes or {{string: …}}, found {_kind(body)}")


def _check_keys(part: Mapping[str, JSON], known: set[str], where: str) -> None:
    """Raise _Malformed for keys that nobody knows, one of which may have the body."""
    unknown = [str(key) for key in part if key not in known]
    if unknown:
        raise _Malformed(where, f"no body that can be read, but unknown keys: {', '.join(unknown[:5])}")


def _typed_body(kind: JSON, content: JSON, where: str) -> bytes:
    """Return a body in cassetter's form: JSON as a value, text, or bytes in hexadecimal digits."""
    if kind == "none":
        return b""
    if kind == "json":
        return _as_json(content).encode("utf-8", "surrogatepass")
    if kind not in ("text", "binary"):
        raise _Malformed(f"{where}.type", f"expected json, text, binary or none, found {_short(kind)}")
    if not isinstance(content, str):
        raise _Malformed(f"{where}.content", f"expected text, found {_kind(content)}")
    if kind == "text":
        return content.encode("utf-8", "surrogatepass")
    try:
        return bytes.fromhex(content)
    except ValueError as error:
        raise _Malformed(f"{where}.content", f"not hexadecimal digits: {error}") from error


_ZIPPED = (b"\x1f\x8b", b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")


def _decoded(body: bytes, headers: dict[str, str]) -> bytes:
    """Decompress the body if needed, and drop its encoding header: most recorders store the body decompressed, with that header."""
    encoding = headers.get("content-encoding", "").strip().lower()
    if encoding in ("gzip", "x-gzip", "deflate"):
        if body[:2] in _ZIPPED:
            try:
                body = zlib.decompressobj(zlib.MAX_WBITS | 32).decompress(body)
            except zlib.error as error:
                raise _Malformed("response.body", f"the {encoding} data cannot be unpacked: {error}") from error
    elif encoding not in ("", "identity"):
        try:
            body.decode()
        except UnicodeDecodeError:
            return body  # still compressed, in a format that needs another library: the client decodes it by its header
    headers.pop("content-encoding", None)
    return body


def _numbers(response: Mapping[str, JSON], name: str, kinds: Any) -> tuple[Any, ...]:
    values = response.get(name)
    if values is None:
        return ()
    if not isinstance(values, list) or not all(isinstance(value, kinds) and value >= 0 for value in values):
        raise _Malformed(f"response.{name}", f"expected a list of numbers of at least 0, found {_short(values)}")
    return tuple(values)


def _malformed(name: str, where: str, problem: str) -> MalformedCassetteError:
    return MalformedCassetteError(
        f"{name}, {where}: {problem}. A cassette is in VCR's format, version 1: `interactions`, each a request (method, uri, body, "
        "headers) and a response (status, headers, body). Repair the file by hand, move it out of the folder, or record it again "
        "with `agentlab.record(…)`."
    )


def _text(value: JSON) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


def _kind(value: JSON) -> str:
    kinds: dict[type[Any], str] = {type(None): "nothing", dict: "a mapping", list: "a list", str: "text", bytes: "bytes"}
    return kinds.get(type(value)) or repr(value)[:60]


def _short(value: JSON) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:80] + "…"


# Files -------------------------------------------------------------------------------------------------------------------------


def load_cassettes(path: str | Path) -> list[Cassette]:
    """Return the cassette in a file, or all cassettes in a folder or sample, at any depth, in the order of their names.

    Hidden files and folders are skipped (Jupyter keeps old versions of edited files in one).
    """
    root = sample(path.removeprefix(PREFIX)) if isinstance(path, str) and path.startswith(PREFIX) else Path(path).expanduser()
    if not root.exists():
        raise FixtureNotFoundError(f"{path} does not exist{_suggest_path(root)} {_how_to_record(path)}")
    if not root.is_file() and not root.is_dir():
        raise MalformedCassetteError(f"{path} is neither a file nor a folder. {_how_to_record(path)}")
    files = [root] if root.is_file() else cassette_files(root)
    if not files:
        raise FixtureNotFoundError(
            f"{path} has no cassette (*.yaml, *.yml, *.json, *.json.gz): it contains {_listing(root)}. {_how_to_record(path)}"
        )
    names = [file.name if root.is_file() else file.relative_to(root).as_posix() for file in files]
    return [load_cassette(file, one_line(name, 255)) for file, name in zip(files, names, strict=True)]


def cassette_files(folder: Path) -> list[Path]:
    """Return the cassettes in a folder, at any depth, in the order of their names: `host` before `host-2` before `host-10`."""
    files = [file.relative_to(folder) for file in folder.rglob("*") if file.name.endswith(SUFFIXES) and file.is_file()]
    visible = [file for file in files if not any(part.startswith(".") for part in file.parts)]
    return [folder / file for file in sorted(visible, key=_by_name)]


def _by_name(file: Path) -> list[str | int]:
    words = re.split(r"(\d+)", file.with_suffix("").as_posix())
    return [*(int(word) if index % 2 else word for index, word in enumerate(words)), file.suffix]


def load_cassette(file: Path, name: str = "") -> Cassette:
    """Return the cassette in one file; messages call it `name`."""
    name = name or file.name
    return parse_cassette(load_document(file, name), file, name)


def is_json(file: Path) -> bool:
    """True if a cassette's name says that it is JSON, compressed or not."""
    return file.name.lower().endswith((".json", ".json.gz"))


def is_compressed(file: Path) -> bool:
    """True if a cassette's name says that it is compressed."""
    return file.name.lower().endswith(".gz")


def load_document(file: Path, name: str = "") -> JSON:
    """Return the document in a file, unchecked."""
    if file.suffix.lower() == ".toml":
        raise _malformed(name or file.name, "the text", "TOML is not read: `cassetter convert` makes YAML of it")
    data = file.read_bytes()
    try:
        if is_compressed(file):
            data = _decompressed(data)
        return read_document(data, as_json=is_json(file))
    except UnreadableText as error:
        raise _malformed(name or file.name, "the text", str(error)) from error


def _decompressed(data: bytes) -> bytes:
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise UnreadableText(f"not gzip data: {error}") from error


def _how_to_record(path: str | Path) -> str:
    return f'To record it, do the same runs inside `with agentlab.record("{path}"): …`, with the provider\'s key if it needs one.'


_FOLDERS_UP = 4


def _suggest_path(path: Path) -> str:
    """Return the end of the sentence "… does not exist": the path that was probably meant, or the content of the nearest folder."""
    meant = None
    with suppress(OSError):  # a folder without permission to read
        meant = _from_another_folder(path) or _similar_path(path)
    if meant is not None:
        return f". Did you mean {meant.as_posix()!r}? That path exists."
    folder = next((parent for parent in path.absolute().parents if parent.is_dir()), None)
    if folder is None:
        return ": no folder above it exists."
    return f": the nearest existing folder, {os.path.normpath(folder)}, contains {_listing(folder)}."


def _listing(folder: Path) -> str:
    names = sorted(entry.name + "/" * entry.is_dir() for entry in folder.iterdir() if not entry.name.startswith("."))
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return ", ".join(names[:8]) + more if names else "nothing"


def _from_another_folder(path: Path) -> Path | None:
    """Return the same path from another working directory, if it exists: `../fixtures/trip` for `fixtures/trip`, and the reverse."""
    if path.is_absolute():
        return None
    named = Path(*(part for part in path.parts if part != ".."))
    places = (Path(*[".."] * up, named) for up in range(_FOLDERS_UP + 1))
    return next((place for place in places if place.exists()), None)


def _similar_path(path: Path) -> Path | None:
    """Return the path with its first missing name replaced by a similar one, if that whole path exists."""
    parts = path.parts
    missing = next((at for at in range(len(parts)) if not Path(*parts[: at + 1]).exists()), len(parts))
    folder = Path(*parts[:missing])
    if missing == len(parts) or not folder.is_dir():
        return None
    near = difflib.get_close_matches(parts[missing], [entry.name for entry in folder.iterdir()], n=3)
    candidates = (Path(folder, name, *parts[missing + 1 :]) for name in near)
    return next((candidate for candidate in candidates if candidate.exists()), None)

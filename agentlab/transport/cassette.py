"""The format of recorded HTTP: VCR's, as YAML for the eye or as JSON for the machine. No HTTP library is imported here.

    version: 1
    origin: synthetic                       ours: or a mapping, `recorded` (a date) and `from` (a host)
    interactions:
    - request: {method, uri, body, headers}
      response: {status: {code, message}, headers, body: {string}}
      recorded_at: 2026-11-20T09:30:00Z     optional, when the request was sent; without it the header `date` says it
      lane: …                               ours, optional: which run asked, by its label

A response may hold, ours and optional: `chunks` (the sizes in bytes in which a stream arrived), `delays_s` (the seconds before each of
them), `incomplete: true` (it broke off, or nobody read to its end). Read as well: `parsed_body` in place of a body, and what xAI's SDK
got over gRPC (`grpc.py`), served as HTTP. Other interactions that are not HTTP are counted and skipped.
"""

from __future__ import annotations

import base64
import binascii
import difflib
import json
import os
import re
import stat
import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from agentlab.errors import FixtureNotFoundError, MalformedCassetteError
from agentlab.printable import one_line
from agentlab.redaction import shown_without_keys
from agentlab.transport.cassette_format import UnreadableText, read_document
from agentlab.transport.grpc import as_http
from agentlab.transport.http import Recorded
from agentlab.types import JSON

FOLDERS_UP = 4


def instead_of(path: Path) -> str:
    """The end of the sentence "… does not exist": the path that was probably meant, else what the nearest folder holds."""
    meant = None
    with suppress(OSError):  # a folder that is not to be read
        meant = _from_another_folder(path) or _nearly_so_called(path)
    if meant is not None:
        return f". Did you mean {meant.as_posix()!r}? That is there."
    folder = next((one for one in path.absolute().parents if one.is_dir()), None)
    if folder is None:
        return ": no folder above it exists."
    return f": the nearest folder that does, {os.path.normpath(folder)}, holds {listing(folder)}."


def listing(folder: Path) -> str:
    """A few names of what a folder holds."""
    names = sorted(entry.name + "/" * entry.is_dir() for entry in folder.iterdir() if not entry.name.startswith("."))
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return ", ".join(names[:8]) + more if names else "nothing"


def _from_another_folder(path: Path) -> Path | None:
    """The same as seen from the folder of a notebook, or from one above it: `../fixtures/trip` for `fixtures/trip`, and back."""
    if path.is_absolute():
        return None
    named = Path(*(part for part in path.parts if part != ".."))
    places = (Path(*[".."] * up, named) for up in range(FOLDERS_UP + 1))
    return next((place for place in places if place.exists()), None)


def _nearly_so_called(path: Path) -> Path | None:
    """The path with its first name that does not exist replaced by one that is nearly the same, where all of that exists."""
    parts = path.parts
    missing = next((at for at in range(len(parts)) if not Path(*parts[: at + 1]).exists()), len(parts))
    folder = Path(*parts[:missing])
    if missing == len(parts) or not folder.is_dir():
        return None
    near = difflib.get_close_matches(parts[missing], [entry.name for entry in folder.iterdir()], n=3)
    whole = (Path(folder, name, *parts[missing + 1 :]) for name in near)
    return next((one for one in whole if one.exists()), None)


SUFFIXES = (".yaml", ".yml", ".json")
MAX_FILE_BYTES = 512 * 2**20
MAX_BODY_BYTES = 256 * 2**20


@shown_without_keys
@dataclass(frozen=True, slots=True)
class RecordedResponse:
    """A response as it is served: headers in lower case, the body decoded.

    `chunks` are sizes in bytes and `delays_s` the seconds before each chunk; both may be empty. `incomplete`: it broke off here.
    """

    status: int
    message: str
    headers: dict[str, str]
    body: bytes
    chunks: tuple[int, ...] = ()
    delays_s: tuple[float, ...] = ()
    incomplete: bool = False

    def pieces(self) -> list[bytes]:
        """The body in the chunks it came in. Sizes are hints: an edited body is served whole all the same."""
        if not self.chunks:
            return [self.body] if self.body else []
        pieces, start = [], 0
        for size in self.chunks:
            pieces.append(self.body[start : start + size])
            start += size
        return [*pieces, self.body[start:]] if start < len(self.body) else pieces


class Interaction:
    """A request and what was answered. `source` names the file and the number in it, `lane` which run asked ("" unknown)."""

    __slots__ = ("_name", "_number", "_plain", "_recorded", "_response", "_time", "body", "lane", "method", "uri")

    def __init__(self, entry: Mapping[str, JSON], name: str, number: int) -> None:
        request = entry.get("request")
        if type(request) is not dict:
            raise _malformed(name, f"interaction {number}, request", f"expected a mapping, found {_kind(request)}")
        method, uri, body, lane = request.get("method"), request.get("uri"), request.get("body"), entry.get("lane", "")
        if type(method) is not str or type(uri) is not str:
            wrong, value = ("uri", uri) if isinstance(method, str) else ("method", method)
            raise _malformed(name, f"interaction {number}, request.{wrong}", f"expected text, found {_kind(value)}")
        self.method: str = method
        self.uri: str = uri
        self.body = (
            body.encode("utf-8", "surrogatepass") if type(body) is str else _body(request, name, f"interaction {number}, request")
        )
        self.lane: str = lane if type(lane) is str else ""
        self._name = name
        self._number = number
        self._time = entry.get("recorded_at")
        self._recorded: Recorded | None = None
        response = entry.get("response")
        self._plain = response if _is_plain(response) else None  # the rest of the work is done when it is served
        self._response = None if self._plain is not None else _response(response, name, f"interaction {number}, response")

    @property
    def response(self) -> RecordedResponse:
        """What was answered."""
        if self._response is None:
            self._response = _response(self._plain, self._name, f"interaction {self._number}, response")
        return self._response

    @property
    def source(self) -> str:
        """The file and the number in it."""
        return f"{self._name}, interaction {self._number}"

    @property
    def recorded(self) -> Recorded:
        """Where and when it was recorded: the recorder's time, else that of the response's header `date`."""
        if self._recorded is None:
            self._recorded = Recorded(self.source, _time_of(self._time) or _time_of(self.response.headers.get("date")))
        return self._recorded

    def __repr__(self) -> str:
        return f"Interaction({self.method} {self.uri}, {self.source})"


def _time_of(written: JSON) -> datetime | None:
    """A time of a recording, in UTC: ISO 8601 with a zone, as YAML reads it or as text, or an HTTP date. None for anything else."""
    found = written
    if isinstance(written, str):
        from email.utils import parsedate_to_datetime  # slow to load

        try:
            found = datetime.fromisoformat(written) if written[:4].isdigit() else parsedate_to_datetime(written)
        except ValueError:
            return None
    return found.astimezone(UTC) if isinstance(found, datetime) and found.tzinfo is not None else None


def _is_plain(response: JSON) -> bool:
    """Whether a response is of the most common form, in which nothing can be wrong."""
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
    """One file. `skipped` counts interactions that are neither HTTP nor a known kind of sample."""

    path: Path
    interactions: tuple[Interaction, ...]
    origin: str | Mapping[str, JSON] | None = None
    skipped: int = 0


def parse_cassette(document: JSON, path: Path, name: str = "") -> Cassette:
    """Check a loaded document and take it apart. Raises MalformedCassetteError naming file, place, and what to do."""
    name = name or path.name
    if (
        not isinstance(document, dict)
        or not isinstance(document.get("interactions"), list | None)
        or "interactions" not in document
    ):
        found = (
            f"a mapping without `interactions` (its keys: {_names(document)})" if isinstance(document, dict) else _kind(document)
        )
        raise _malformed(name, "the top level", f"expected a mapping with a list `interactions`, found {found}")
    version = document.get("version", 1)
    if version != 1:
        raise _malformed(name, "version", f"only version 1 of the format is known, found {version!r}")
    interactions: list[Interaction] = []
    for number, entry in enumerate(document["interactions"] or (), 1):
        if type(entry) is not dict:
            raise _malformed(name, f"interaction {number}", f"expected a mapping, found {_kind(entry)}")
        if "request" in entry or not any(str(key).startswith("request_") for key in entry):
            interactions.append(Interaction(entry, name, number))
        elif (sample := as_http(entry)) is not None:
            interactions.append(Interaction(sample, name, number))
    skipped = len(document["interactions"] or ()) - len(interactions)
    origin = document.get("origin")
    if not isinstance(origin, str | dict | None):
        raise _malformed(name, "origin", f"expected a word such as `synthetic`, or a mapping, found {_kind(origin)}")
    return Cassette(path, tuple(interactions), origin, skipped)


def _response(response: JSON, name: str, where: str) -> RecordedResponse:
    if not isinstance(response, dict):
        raise _malformed(name, where, f"expected a mapping, found {_kind(response)}")
    status = response.get("status", response.get("status_code"))
    code, message = (status.get("code"), status.get("message")) if isinstance(status, dict) else (status, "")
    try:
        code = int(code)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        code = 0
    if not 100 <= code <= 599:
        raise _malformed(name, f"{where}.status", f"expected {{code: 200, message: OK}}, found {_short(status)}")
    headers = _headers(response.get("headers"), name, f"{where}.headers")
    body = _decoded(_body(response, name, where), headers, name, where)
    chunks = _numbers(response.get("chunks"), int, name, f"{where}.chunks")
    delays = _numbers(response.get("delays_s"), (int, float), name, f"{where}.delays_s")
    incomplete = bool(response.get("incomplete", False))
    return RecordedResponse(code, str(message or ""), headers, body, chunks, delays, incomplete)


def _headers(headers: JSON, name: str, where: str) -> dict[str, str]:
    """Names in lower case. What described the transfer is left out, since the body is served decoded and whole; but not that there
    was to be no body, which tells it from one that broke off."""
    if headers is None:
        return {}
    if isinstance(headers, list) and all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in headers):
        pairs = [(key, value) for key, value in headers]
    elif isinstance(headers, dict):
        pairs = list(headers.items())
    else:
        raise _malformed(name, where, f"expected a mapping of names to lists of values, found {_kind(headers)}")
    result: dict[str, str] = {}
    for key, value in pairs:
        lowered = str(key).lower()
        text = ", ".join(map(_text, value)) if isinstance(value, list | tuple) else _text(value)
        if lowered not in ("content-length", "transfer-encoding", "connection", "keep-alive") or (lowered, text) == (
            "content-length",
            "0",
        ):
            result[lowered] = f"{result[lowered]}, {text}" if lowered in result else text
    return result


def _body(part: Mapping[str, JSON], name: str, where: str) -> bytes:
    """The body's bytes: text, bytes, `{string: …}`, `{base64_string: …}` or a `parsed_body`."""
    body = part.get("body", part.get("content"))
    if body is None and part.get("parsed_body") is not None:
        return json.dumps(part["parsed_body"], ensure_ascii=False, separators=(",", ":"), default=str).encode(
            "utf-8", "surrogatepass"
        )
    where = f"{where}.body"
    if isinstance(body, dict):
        encoded = body.get("base64_string")
        if encoded is not None:
            try:
                return base64.b64decode("".join(encoded.split()), validate=True)
            except (binascii.Error, AttributeError, ValueError) as error:
                raise _malformed(name, f"{where}.base64_string", f"not base64: {error}") from error
        body = body.get("string")
    if isinstance(body, str):
        return body.encode("utf-8", "surrogatepass")
    if isinstance(body, bytes):
        return body
    if body is None:
        return b""
    raise _malformed(name, where, f"expected text, bytes or {{string: …}}, found {_kind(body)}")


def _decoded(body: bytes, headers: dict[str, str], name: str, where: str) -> bytes:
    """The body with its compression undone, if it still has it: most recorders write it decoded and leave the header."""
    encoding = headers.get("content-encoding", "").strip().lower()
    if not encoding:
        return body
    if encoding in ("gzip", "x-gzip", "deflate") and body[:2] in (
        b"\x1f\x8b",
        b"\x78\x01",
        b"\x78\x5e",
        b"\x78\x9c",
        b"\x78\xda",
    ):
        unzip = zlib.decompressobj(zlib.MAX_WBITS | 32)
        try:
            body = unzip.decompress(body, MAX_BODY_BYTES)
        except zlib.error as error:
            raise _malformed(name, f"{where}.body", f"the {encoding} data cannot be unpacked: {error}") from error
        if unzip.unconsumed_tail:
            raise _malformed(name, f"{where}.body", f"unpacks to more than {MAX_BODY_BYTES:,} bytes")
    elif encoding not in ("gzip", "x-gzip", "deflate", "identity"):
        try:
            body.decode()
        except UnicodeDecodeError:
            return body  # still compressed, in a way that needs another library: the header stays for the client to act on
    del headers["content-encoding"]
    return body


def _numbers(values: JSON, kinds: Any, name: str, where: str) -> tuple[Any, ...]:
    if values is None:
        return ()
    if not isinstance(values, list) or not all(isinstance(value, kinds) and value >= 0 for value in values):
        raise _malformed(name, where, f"expected a list of numbers, none below 0, found {_short(values)}")
    return tuple(values)


def _malformed(name: str, where: str, what: str) -> MalformedCassetteError:
    return MalformedCassetteError(
        f"{name}, {where}: {what}. A cassette is in VCR's format, version 1: `interactions`, each a request (method, uri, body, "
        "headers) and a response (status, headers, body). Mend the file by hand, move it out of the folder, or record it again "
        "with `agentlab.record(…)`."
    )


def _text(value: JSON) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


def _kind(value: JSON) -> str:
    kinds: dict[type[Any], str] = {type(None): "nothing", dict: "a mapping", list: "a list", str: "text", bytes: "bytes"}
    return kinds.get(type(value)) or repr(value)[:60]


def _names(value: Mapping[Any, JSON]) -> str:
    return ", ".join(str(key)[:30] for key in list(value)[:5]) or "none"


def _short(value: JSON) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:80] + "…"


# Files -------------------------------------------------------------------------------------------------------------------------


def load_cassettes(path: str | Path) -> list[Cassette]:
    """Every cassette of a file, or of a folder and what is in it, in the order of their names.

    Hidden files and folders are passed over (Jupyter keeps old versions of edited files in one).
    """
    root = Path(path).expanduser()
    if not root.exists():
        raise FixtureNotFoundError(f"{path} does not exist{instead_of(root)} {_how_to_record(path)}")
    if not root.is_file() and not root.is_dir():
        raise MalformedCassetteError(f"{path} is neither a file nor a folder. {_how_to_record(path)}")
    files = [root] if root.is_file() else cassette_files(root)
    if not files:
        inside = listing(root)
        raise FixtureNotFoundError(f"{path} holds no cassette (*.yaml, *.yml, *.json): it holds {inside}. {_how_to_record(path)}")
    names = [file.name if root.is_file() else file.relative_to(root).as_posix() for file in files]
    shown = [name if name.isprintable() else one_line(name, 255) for name in names]
    return [load_cassette(file, name) for file, name in zip(files, shown, strict=True)]


def cassette_files(folder: Path) -> list[Path]:
    """The cassettes in a folder, at any depth, in the order of their names: `host` before `host-2` before `host-10`."""
    found: list[Path] = []
    waiting = [folder]
    while waiting:  # not by rglob, which gives up at some hundred levels
        with suppress(PermissionError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(Path(entry.path))
                elif entry.name.endswith(SUFFIXES) and Path(entry.path).is_file():
                    found.append(Path(entry.path).relative_to(folder))
    return [folder / file for file in sorted(found, key=_by_name)]


def _by_name(file: Path) -> list[str | int]:
    words = re.split(r"(\d+)", file.with_suffix("").as_posix())
    return [*(int(word) if index % 2 else word for index, word in enumerate(words)), file.suffix]


def load_cassette(file: Path, name: str = "") -> Cassette:
    """One file. `name` is what messages call it."""
    name = name or file.name
    try:
        return parse_cassette(load_document(file, name), file, name)
    except RecursionError as error:
        raise _malformed(name, "a body", "nested too deeply") from error


def load_document(file: Path, name: str = "") -> JSON:
    """A file's document, not yet looked at."""
    name = name or file.name
    data = _bytes_of(file, name)
    try:
        return read_document(data, as_json=file.suffix.lower() == ".json")
    except UnreadableText as error:
        raise _malformed(name, "the text", str(error)) from error


def _bytes_of(file: Path, name: str) -> bytes:
    """A file's bytes, no more than a cassette has: what says that it has none, as those of /proc do, may never end."""
    handle = os.open(file, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    found = os.fstat(handle)
    if not stat.S_ISREG(found.st_mode):
        os.close(handle)
        raise _malformed(name, "the file", "a folder, a device or a pipe")
    with os.fdopen(handle, "rb") as stream:
        data = stream.read(min(found.st_size, MAX_FILE_BYTES) + 1) or b""
        if found.st_size < len(data) <= MAX_FILE_BYTES:
            data += stream.read(MAX_FILE_BYTES) or b""
    if len(data) > MAX_FILE_BYTES:
        raise _malformed(name, "the file", f"larger than {MAX_FILE_BYTES:,} bytes")
    return data


def _how_to_record(path: str | Path) -> str:
    return f'Record it with a key at hand: `with agentlab.record("{path}"): …`, then the same runs as under replay.'

"""Writes interactions into cassettes: each as soon as it is complete, redacted, and merged with earlier recordings."""

from __future__ import annotations

import errno
import gzip
import itertools
import json
import os
import re
import shutil
import threading
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import field
from datetime import UTC, date, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from agentlab._internal.redaction import (
    Redactor,
    kept_request_headers,
    kept_response_headers,
    redact_url,
    secrets_in_headers,
    secrets_in_url,
)
from agentlab._internal.values import dataclass
from agentlab.errors import ConfigurationError, FixtureError
from agentlab.model.messages import JSON
from agentlab.model.parts import sniff
from agentlab.transport import aws_eventstream as event_frames
from agentlab.transport.cassette import (
    MCP,
    MEDIA_FOLDER,
    SUFFIXES,
    Interaction,
    cassette_files,
    is_compressed,
    is_json,
    load_document,
    parse_cassette,
)
from agentlab.transport.cassette_text import readable_body, write_document, write_interaction
from agentlab.transport.http import HttpRequest
from agentlab.transport.request_matching import address, same_question, without_media
from agentlab.transport.samples import PREFIX
from agentlab.transport.stream_redaction import redact_frames, redact_lines

STREAM_TYPES = ("text/event-stream", event_frames.CONTENT_TYPE, "application/x-ndjson")
"""Content types whose chunks are recorded one by one."""

FULL_FILE_BYTES = 2**20
"""A file of this size in a folder is full: further recordings go into a new one."""

_SECRETS_KEPT = 64
"""The number of most recent secrets that are removed from everything written: signatures differ with each request."""


@dataclass(slots=True)
class _Entry:
    """One interaction of a file.

    `key` is equal for recordings of the same request; `sequence` is None for recordings from before this session. `scanned_by` is the
    last redactor applied to `text`: all text of a file is redacted before it is written, once by each redactor.
    """

    key: tuple[str, bytes] | None
    value: Mapping[str, JSON]
    sequence: int | None = None
    text: str = ""
    scanned_by: Redactor | None = None

    @property
    def label(self) -> str:
        """The label of the run."""
        return str(self.value.get("lane", "")) if isinstance(self.value, dict) else ""

    def replaces(self, other: _Entry) -> bool:
        """True if this recording replaces the other one: the same request, by the same run if both have labels."""
        return other.sequence is None and self.key == other.key and (not self.label or other.label in ("", self.label))


@dataclass(slots=True)
class _File:
    """A cassette as last seen on disk."""

    path: Path
    head: dict[str, Any] = field(default_factory=lambda: {"version": 1})
    entries: list[_Entry] = field(default_factory=list)
    stamp: tuple[int, int, int] | None = None

    def refresh(self, recorded: set[tuple[Any, str]]) -> None:
        """Read the file again if another program wrote it, and keep this session's own interactions."""
        stamp = _stamp(self.path)
        if stamp == self.stamp:
            return
        others = []
        if stamp is not None:
            document = load_document(self.path)
            parse_cassette(document, self.path)  # raises for a malformed file
            self.head = {key: value for key, value in document.items() if key != "interactions"}
            others = [_Entry(_key(value), value) for value in document["interactions"] or ()]
        own = [entry for entry in self.entries if entry.sequence is not None]
        self.entries = [entry for entry in others if (entry.key, entry.label) not in recorded] + own
        self.stamp = stamp

    def write(self, redactor: Redactor) -> None:
        """Replace the file atomically: for readers, and after a crash, it is the old one or the new one, complete."""
        as_json = is_json(self.path)
        for entry in self.entries:
            if entry.scanned_by is not redactor:
                entry.text = redactor.text(entry.text or write_interaction(entry.value, as_json=as_json))
                entry.scanned_by = redactor
        head = json.loads(redactor.text(json.dumps(self.head, default=str)))
        text = write_document(head, [entry.text for entry in self.entries], as_json=as_json)
        target = self.path.resolve()
        temporary = target.with_name(f".{target.name}.tmp")
        temporary.unlink(missing_ok=True)
        data = text.encode()
        if is_compressed(target):
            data = gzip.compress(data, mtime=0)  # the same text gives the same bytes
        with temporary.open("xb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        if target.exists():
            shutil.copymode(target, temporary)
        temporary.replace(target)
        self.stamp = _stamp(self.path)


class Recorder:
    """Writes a folder of cassettes, or one file. Safe for threads, event loops and several processes at once."""

    def __init__(self, path: str | Path, *, origin: str | Mapping[str, JSON] | None = None) -> None:
        self.path = Path(path).expanduser().absolute()
        self.count = 0
        self.requests = 0
        self.origin = dict(origin) if isinstance(origin, Mapping) else origin
        self._single = self.path.name.lower().endswith(SUFFIXES) and not self.path.is_dir()
        if str(path).startswith(PREFIX):
            folder = f"fixtures/{str(path).removeprefix(PREFIX)}"
            raise ConfigurationError(f"{path} comes with agentlab and stays as it is: record into a folder, such as {folder!r}.")
        if self.path.is_file() and not self._single:
            raise ConfigurationError(
                f"{path} is a file: record into a folder, or into a file ending in .yaml, .json or .json.gz."
            )
        self._files: dict[Path, _File] = {}
        self._recorded: set[tuple[Any, str]] = set()
        self._secrets: dict[str, None] = {}
        self._waiting: list[tuple[str, _Entry]] = []
        self._redactor = Redactor()
        self._sequence = itertools.count()
        self._lock = threading.Lock()
        self._load()

    def begin(self, request: HttpRequest, *, auth: Mapping[str, str] | None = None, replay_key: str = "") -> Tape:
        """Return the tape for a request about to be sent. Raises ConfigurationError if the folder is not writable."""
        folder = self.path.parent if self._single else self.path
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if not os.access(folder, os.W_OK):
                raise PermissionError(errno.EACCES, "it is not writable")
        except OSError as error:
            raise ConfigurationError(
                f"Cannot record into {folder}: {error.strerror}. Choose a folder that can be written to."
            ) from error
        with self._lock:
            secrets = secrets_in_headers(request.headers) | secrets_in_url(request.url)
            self._remember(secrets_in_headers(auth or {}, sure=True) | secrets)
            self.requests += 1
            return Tape(self, next(self._sequence), request, replay_key)

    def keep_media(self, media: Mapping[str, bytes]) -> None:
        """Write images and files of requests and MCP results into MEDIA_FOLDER beside the cassettes, each once, by their hash."""
        folder = (self.path.parent if self._single else self.path) / MEDIA_FOLDER
        for sha256, data in media.items():
            path = folder / f"{sha256}.{sniff(data).rpartition('/')[2]}"
            if not path.exists():
                folder.mkdir(exist_ok=True)
                temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
                temporary.write_bytes(data)
                temporary.replace(path)

    def add(self, sequence: int, host: str, entry: Mapping[str, JSON]) -> None:
        """Write one complete interaction and remove recordings of the same request from before this session."""
        with self._lock, _locked(self.path.parent if self._single else self.path):
            self._waiting.append((host, _Entry(_key(entry), entry, sequence)))
            while self._waiting:  # including earlier ones that could not be written
                host, new = self._waiting[0]
                fresh = self._merge(host, new)
                del self._waiting[0]
                self.count += 1
                for file in self._files.values() if fresh else ():
                    kept = [old for old in file.entries if not new.replaces(old)]
                    if len(kept) < len(file.entries):
                        file.entries = kept
                        file.write(self._redactor)

    def _merge(self, host: str, new: _Entry) -> bool:
        """Write into the host's file. True if the request is recorded for the first time in this session."""
        self._load()
        fresh = (new.key, new.label) not in self._recorded
        target = self._target(host)
        before = target.entries
        kept = [old for old in before if not (fresh and new.replaces(old))]
        target.entries = sorted([*kept, new], key=lambda entry: -1 if entry.sequence is None else entry.sequence)
        target.head = {"version": 1} | target.head | {"origin": self._origin_of(target, host)}
        try:
            target.write(self._redactor)
        except OSError:
            target.entries = before
            raise
        self._recorded.add((new.key, new.label))
        return fresh

    def redactor(self, more: set[str]) -> Redactor:
        """Return a redactor of every known secret of this recorder, and of these."""
        return Redactor({*self._secrets, *more}) if more - self._secrets.keys() else self._redactor

    def _remember(self, secrets: set[str]) -> None:
        if not secrets <= self._secrets.keys():
            remembered = [*self._secrets, *sorted(secrets - self._secrets.keys())]
            self._secrets = dict.fromkeys(remembered[-_SECRETS_KEPT:])
            self._redactor = Redactor(self._secrets)

    def _load(self) -> None:
        """Read the files on disk."""
        paths = [self.path] if self._single else cassette_files(self.path) if self.path.is_dir() else []
        for path in paths:
            self._files.setdefault(path, _File(path)).refresh(self._recorded)

    def _target(self, host: str) -> _File:
        """Return the file for a host: a new one if the last is full, so that each write stays short."""
        path, number = self.path, 1
        stem = re.sub(r"[^a-z0-9.-]+", "-", host.lower()[:100]).strip(".-") or "unknown-host"
        while not self._single:
            path = self.path / (f"{stem}.yaml" if number == 1 else f"{stem}-{number}.yaml")
            stamp = _stamp(path)
            if stamp is None or stamp[1] < FULL_FILE_BYTES:
                break
            number += 1
        file = self._files.setdefault(path, _File(path))
        file.refresh(self._recorded)
        return file

    def _origin_of(self, file: _File, host: str) -> JSON:
        if self.origin is not None:
            return self.origin
        before = file.head.get("origin")
        known = before if isinstance(before, dict) else {"beside": before} if before else {}
        hosts = {name for name in str(known.get("from", "")).split(", ") if name} | {host}
        return {**known, "recorded": date.today().isoformat(), "from": ", ".join(sorted(hosts))}


class Tape:
    """Collects one interaction while it happens, and writes it at its end."""

    def __init__(self, recorder: Recorder, sequence: int, request: HttpRequest, replay_key: str) -> None:
        self._recorder = recorder
        self._sequence = sequence
        self._request = request
        self._replay_key = replay_key
        self._status = 0
        self._message = ""
        self._headers: dict[str, str] = {}
        self._chunks: list[bytes] = []
        self._times = [time.monotonic()]
        self._began = datetime.now(UTC)
        self._broke = self._done = False
        self._media: dict[str, bytes] = {}

    def headers(self, status: int, message: str, headers: Mapping[str, str]) -> None:
        """Take the status and the headers of the response."""
        self._status, self._headers = status, {name.lower(): value for name, value in headers.items()}
        self._message = message or (HTTPStatus(status).phrase if status in set(HTTPStatus) else "")

    def chunk(self, data: bytes) -> None:
        """Take the next piece of the decoded body."""
        self._chunks.append(data)
        self._times.append(time.monotonic())

    def broke(self) -> None:
        """Note that the connection broke off."""
        self._broke = True

    def complete(self) -> None:
        """Write the interaction with its whole body."""
        self._write(incomplete=False)

    def close(self) -> None:
        """Write an incomplete interaction if the caller stopped reading or the connection broke off; nothing if no byte arrived."""
        if self._status and (self._chunks or self._broke):
            self._write(incomplete=True)

    def _write(self, *, incomplete: bool) -> None:
        if self._done:
            return
        self._done = True
        entry = self._entry(incomplete)
        try:
            self._recorder.keep_media(self._media)
            self._recorder.add(self._sequence, urlsplit(self._request.url).netloc.rpartition("@")[2], entry)
        except (OSError, FixtureError) as error:  # the run still gets its response
            warnings.warn(f"{self._recorder.path}: this response could not be recorded: {error}", RuntimeWarning, stacklevel=2)

    def _entry(self, incomplete: bool) -> dict[str, JSON]:
        sent = self._request
        redactor = self._recorder.redactor(secrets_in_headers(self._headers))
        as_json = is_json(self._recorder.path)
        content_type = self._headers.get("content-type", "").partition(";")[0].strip().lower()
        streamed = content_type in STREAM_TYPES
        if sent.url.startswith(MCP):
            self._chunks = [without_media(chunk, self._media) for chunk in self._chunks]  # each is a line
        sizes = tuple(map(len, self._chunks)) if streamed else ()
        times = self._times if streamed else [self._times[0], self._times[-1]]
        body, binary = b"".join(self._chunks), content_type == event_frames.CONTENT_TYPE
        content, sizes = redact_frames(redactor, body, sizes) if binary else redact_lines(redactor, body, sizes)
        response: dict[str, JSON] = {
            "status": {"code": self._status, "message": self._message},
            "headers": _listed(kept_response_headers(self._headers), redactor),
            "body": {"string": content if binary else readable_body(content, as_json=as_json or streamed)},
        }
        if streamed:
            response["chunks"] = list(sizes)
        response["delays_s"] = [round(after - before, 4) for before, after in itertools.pairwise(times)]
        if incomplete:
            response["incomplete"] = True
        request: dict[str, JSON] = {
            "method": sent.method.upper(),
            "uri": redactor.text(redact_url(sent.url)),
            "body": readable_body(redactor.body(without_media(sent.body, self._media))[0], as_json=as_json)
            if sent.body
            else None,
            "headers": _listed(kept_request_headers(sent.headers), redactor),
        }
        label = self._replay_key.partition("#")[2]  # the part before it differs with each run
        entry: dict[str, JSON] = {"request": request, "response": response}
        entry["recorded_at"] = self._began.isoformat(timespec="seconds").replace("+00:00", "Z")
        return entry | ({"lane": redactor.text(label)} if label else {})


def _listed(headers: Mapping[str, str], redactor: Redactor) -> dict[str, list[str]]:
    return {name: [redactor.text(value)] for name, value in headers.items()}


def _key(value: JSON) -> tuple[str, bytes] | None:
    """Return the key that all recordings of a request have in common; None for an interaction that is not HTTP."""
    if not isinstance(value, dict) or "request" not in value:
        return None
    parsed = Interaction(value, "the recording", 1)
    return address(parsed.method, parsed.uri), same_question(parsed.body)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        stat = path.stat()
    except FileNotFoundError:
        return None
    return stat.st_mtime_ns, stat.st_size, stat.st_ino


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Prevent other processes from writing into the folder, if the system supports it."""
    try:
        import fcntl
    except ImportError:  # Windows: the last writer wins
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # a network file system without locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)

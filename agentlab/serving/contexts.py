"""Stored conversations by context id, in a SQLite file or in memory.

The messages of one request are written in one transaction that is on the disk before `append` returns (WAL, synchronous=FULL), so a
crash leaves a context with all of them or none. SQLite's WAL does not work on network file systems.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from agentlab._internal.redaction import redact
from agentlab.errors import ConfigurationError, ContextChangedError, StorageError
from agentlab.model.messages import Message, decode, encode

IN_MEMORY = ":memory:"
VERSION = 1
WRITE_TIMEOUT_S = 5.0
"""The time that a write waits for another process to finish writing."""

_TABLE = """
CREATE TABLE IF NOT EXISTS messages (
    context_id TEXT NOT NULL,
    position INTEGER NOT NULL,
    message TEXT NOT NULL,
    PRIMARY KEY (context_id, position)
) WITHOUT ROWID
"""


class Contexts:
    """The messages of each context, in order, append only. Any thread may use it.

    Raises ConfigurationError for a path that cannot be opened, or another kind of file. Every method raises StorageError if it fails
    (a full disk, a locked file, closed contexts).
    """

    def __init__(self, path: str | Path = IN_MEMORY) -> None:
        self.path: str = str(path)
        self._lock = threading.Lock()
        try:
            self._database = sqlite3.connect(self.path, timeout=WRITE_TIMEOUT_S, isolation_level=None, check_same_thread=False)
        except sqlite3.Error as error:
            raise ConfigurationError(
                f"path={self.path!r} cannot be opened: {error}. Pass a file in a folder that exists."
            ) from error
        weakref.finalize(self, self._database.close)  # a chat in a notebook is rarely closed
        try:
            self._prepare()
        except BaseException as error:
            self._database.close()
            if not isinstance(error, sqlite3.Error):
                raise
            raise ConfigurationError(
                f"path={self.path!r} cannot be used for conversations: {error}. Pass another file; it is created if it does not exist."
            ) from error

    def _prepare(self) -> None:
        (version,) = self._database.execute("PRAGMA user_version").fetchone()
        tables = {name for (name,) in self._database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if tables - {"messages"} and (version == 0 or "messages" not in tables):
            other = f"database of another program (tables {', '.join(sorted(tables))})"
            raise ConfigurationError(
                f"path={self.path!r} is a {'Store of runs' if {'runs', 'steps'} <= tables else other}: pass another file."
            )
        if version > VERSION:
            raise ConfigurationError(
                f"path={self.path!r} was written by a newer agentlab (format {version}; this version reads up to {VERSION}): "
                "update agentlab."
            )
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("PRAGMA synchronous = FULL")
        self._database.execute(_TABLE)
        self._database.execute(f"PRAGMA user_version = {VERSION}")

    def messages(self, context_id: str) -> list[Message]:
        """Return the messages of a context, in order; none if it does not exist. Raises ConfigurationError for a damaged row."""
        with self._access():
            rows = self._database.execute(
                "SELECT position, message FROM messages WHERE context_id = ? ORDER BY position", (context_id,)
            ).fetchall()
        found = []
        for position, text in rows:
            try:
                found.append(decode(text))
            except ValueError as error:
                raise ConfigurationError(
                    f"Message {position} of the context {context_id!r} in {self.path!r} is damaged ({error}): delete that row."
                ) from error
        return found

    def append(self, context_id: str, messages: Sequence[Message], *, after: int) -> None:
        """Add all of these messages, or none. Raises ContextChangedError if the context does not have `after` messages."""
        rows = [(context_id, after + index, redact(encode(message))) for index, message in enumerate(messages)]
        with self._access(), self._database:  # commits at the end, or rolls back
            self._database.execute("BEGIN IMMEDIATE")
            (count,) = self._database.execute("SELECT count(*) FROM messages WHERE context_id = ?", (context_id,)).fetchone()
            if count != after:
                raise ContextChangedError(
                    f"The context {context_id!r} had {after} messages when the request began, and now has {count}: "
                    "another process or event loop wrote to it. Nothing was saved; send the request again."
                )
            self._database.executemany("INSERT INTO messages VALUES (?, ?, ?)", rows)

    def ids(self) -> list[str]:
        """Return the ids of all contexts, sorted."""
        with self._access():
            return [row[0] for row in self._database.execute("SELECT DISTINCT context_id FROM messages ORDER BY context_id")]

    @contextlib.contextmanager
    def _access(self) -> Iterator[None]:
        """Let one thread at a time use the database, and raise its errors as StorageError."""
        with self._lock:
            try:
                yield
            except sqlite3.Error as error:
                raise StorageError(f"The contexts in {self.path!r} cannot be read or written: {error}.") from error

    def close(self) -> None:
        """Close the file; contexts in memory are lost."""
        with self._lock:
            self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

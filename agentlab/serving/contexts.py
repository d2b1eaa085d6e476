"""Conversations that are kept, by the id of their context: a SQLite file, or memory.

What one request said is written in one transaction that is on the disk before `append` returns (WAL, synchronous=FULL), so a crash
leaves a context with all of it or with none of it. SQLite's WAL does not work on network file systems.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import sqlite3
import threading
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from agentlab.errors import ConfigurationError, ContextChangedError, StorageError
from agentlab.message_json import decode, encode
from agentlab.redaction import without_keys
from agentlab.types import Message

IN_MEMORY = ":memory:"
VERSION = 1
LONGEST_WAIT_S = 5.0
"""How long a write waits for another process that is writing."""

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

    Raises ConfigurationError for a path that cannot be opened, or that holds something else. Every method raises StorageError where it
    cannot do its work (a full disk, a locked file, contexts that are closed).
    """

    def __init__(self, path: str | Path = IN_MEMORY) -> None:
        self.path: str = str(path)
        self._lock = threading.Lock()
        try:
            self._database = sqlite3.connect(
                self.path, timeout=LONGEST_WAIT_S, isolation_level=None, check_same_thread=False, uri=False
            )
        except sqlite3.Error as error:
            raise ConfigurationError(
                f"path={self.path!r} cannot be opened: {error}. Give a file in a folder that exists."
            ) from error
        try:
            self._prepare()
        except sqlite3.Error as error:
            self._database.close()
            raise ConfigurationError(
                f"path={self.path!r} cannot be used for conversations: {error}. Give another file; it is made where there is none."
            ) from error
        except ConfigurationError:
            self._database.close()
            raise

    def _prepare(self) -> None:
        (version,) = self._database.execute("PRAGMA user_version").fetchone()
        if version > VERSION:
            raise ConfigurationError(
                f"path={self.path!r} was written by a newer agentlab (format {version}, this one knows {VERSION}): update agentlab."
            )
        tables = {name for (name,) in self._database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if version == 0 and tables - {"messages"}:
            raise ConfigurationError(
                f"path={self.path!r} is a database of something else (tables {', '.join(sorted(tables))}): give another file."
            )
        foreign = self._database.execute("SELECT type, name FROM sqlite_master WHERE type IN ('view', 'trigger')").fetchone()
        if foreign is not None:  # they would act, or never end, where a message is read or written
            raise ConfigurationError(f"path={self.path!r} holds the {foreign[0]} {foreign[1]!r}: give another file.")
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("PRAGMA synchronous = FULL")
        self._database.execute(_TABLE)
        self._database.execute(f"PRAGMA user_version = {VERSION}")

    def messages(self, context_id: str) -> list[Message]:
        """What the context holds, in order; nothing where there is no such context. Raises ConfigurationError for a damaged row."""
        with self._at_work():
            rows = self._database.execute(
                "SELECT position, message FROM messages WHERE context_id = ? ORDER BY position", (context_id,)
            ).fetchall()
        found = []
        for position, text in rows:
            try:
                found.append(decode(text))
            except ValueError as error:
                raise ConfigurationError(
                    f"Message {position} of the context {context_id!r} in {self.path!r} is damaged ({error}): mend or delete that row."
                ) from error
        return found

    def append(self, context_id: str, messages: Sequence[Message], *, after: int) -> None:
        """Add all of these messages, or none, behind the first `after`. Raises ContextChangedError where it holds more or fewer."""
        rows = [(context_id, after + index, without_keys(encode(message))) for index, message in enumerate(messages)]
        with self._at_work():
            self._database.execute("BEGIN IMMEDIATE")
            try:
                (count,) = self._database.execute("SELECT count(*) FROM messages WHERE context_id = ?", (context_id,)).fetchone()
                if count != after:
                    raise ContextChangedError(
                        f"The context {context_id!r} had {after} messages when the request began, and now has {count}: "
                        "another process wrote to it. Nothing was saved; send the request again."
                    )
                self._database.executemany("INSERT INTO messages VALUES (?, ?, ?)", rows)
                self._database.execute("COMMIT")
            except BaseException:
                if self._database.in_transaction:
                    self._database.execute("ROLLBACK")
                raise

    def ids(self) -> list[str]:
        """The contexts that hold anything, sorted."""
        with self._at_work():
            return [row[0] for row in self._database.execute("SELECT DISTINCT context_id FROM messages ORDER BY context_id")]

    @contextlib.contextmanager
    def _at_work(self) -> Iterator[None]:
        """One thread at a time; what the database says is said as an error of ours."""
        with self._lock:
            try:
                yield
            except sqlite3.Error as error:
                raise StorageError(f"The contexts in {self.path!r} cannot be read or written: {error}.") from error

    def close(self) -> None:
        """Close the file; what was in memory is gone."""
        with self._lock:
            self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class OneAtATime:
    """Locks by name, handed on in the order in which they were asked for. A name that nobody holds takes no room.

    An asyncio.Lock belongs to one loop; what is held here may be asked for from a notebook's loop and from the background's.
    """

    __slots__ = ("_guard", "_waiting")

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._waiting: dict[str, deque[concurrent.futures.Future[None]]] = {}

    @asynccontextmanager
    async def holding(self, name: str) -> AsyncIterator[None]:
        """Wait for one's turn, and hold the name within the block."""
        await self._take(name)
        try:
            yield
        finally:
            self._hand_on(name)

    async def _take(self, name: str) -> None:
        with self._guard:
            if name not in self._waiting:
                self._waiting[name] = deque()
                return
            turn: concurrent.futures.Future[None] = concurrent.futures.Future()
            self._waiting[name].append(turn)
        try:
            await asyncio.wrap_future(turn)
        except asyncio.CancelledError:
            if not turn.cancel() and not turn.cancelled():  # it was handed over just before
                self._hand_on(name)
            raise

    def _hand_on(self, name: str) -> None:
        with self._guard:
            waiting = self._waiting[name]
            while waiting:
                turn = waiting.popleft()
                if turn.set_running_or_notify_cancel():
                    turn.set_result(None)
                    return
            del self._waiting[name]

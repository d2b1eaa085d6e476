"""Stores runs in a SQLite file. Each step is on the disk before the next one begins (WAL, synchronous=FULL), so a killed process loses
no finished step. SQLite's WAL does not work on network file systems."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import sys
import tempfile
import threading
import time
import uuid
import weakref
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NoReturn

from agentlab._internal.formatting import counted
from agentlab.errors import StorageError
from agentlab.storage.base import PART_NOTE, StoredHead, StoredRun, StoredStep, check_order, check_writer

IN_MEMORY = ":memory:"
WRITE_TIMEOUT_S = 5.0
"""The time that a write waits for another process to finish writing. The other runs of this process wait too."""

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        "CREATE TABLE runs (number INTEGER PRIMARY KEY, run_id TEXT NOT NULL UNIQUE, begun_at REAL NOT NULL, writer TEXT NOT NULL, "
        "head TEXT NOT NULL, ended TEXT)",
        "CREATE TABLE steps (run INTEGER NOT NULL REFERENCES runs (number), step INTEGER NOT NULL, row TEXT NOT NULL, "
        "body TEXT NOT NULL, PRIMARY KEY (run, step))",
    ),
    # One number for run and step: without a separate index, each step writes half as many pages.
    (
        "CREATE TABLE numbered (id INTEGER PRIMARY KEY, row TEXT NOT NULL, body TEXT NOT NULL)",
        "INSERT INTO numbered SELECT (run << 32) + step, row, body FROM steps ORDER BY run, step",
        "DROP TABLE steps",
        "ALTER TABLE numbered RENAME TO steps",
    ),
    # Data that is stored about a run from outside it, such as a score.
    ("CREATE TABLE notes (run INTEGER NOT NULL, name TEXT NOT NULL, body TEXT NOT NULL, PRIMARY KEY (run, name)) WITHOUT ROWID",),
    # Notes with the bytes of images and files, which are equal for all runs: the body in `notes` is then empty.
    ("CREATE TABLE parts (name TEXT PRIMARY KEY, body TEXT NOT NULL)",),
    # Columns of the steps of consecutive runs, made of their rows. A change of any of these runs removes them, in any program.
    (
        "CREATE TABLE step_columns (last INTEGER PRIMARY KEY, first INTEGER NOT NULL, made_as TEXT NOT NULL, body BLOB)",
        *(
            f"CREATE TRIGGER {name} AFTER {change} BEGIN DELETE FROM step_columns WHERE last >= {run} AND first <= {run}; END"  # noqa: S608  constants
            for name, change, run in (
                ("step_added", "INSERT ON steps", "(new.id >> 32)"),
                ("step_changed", "UPDATE ON steps", "(old.id >> 32)"),
                ("step_moved", "UPDATE OF id ON steps", "(new.id >> 32)"),
                ("step_removed", "DELETE ON steps", "(old.id >> 32)"),
                ("run_changed", "UPDATE OF number, run_id, head, ended ON runs", "old.number"),
                ("run_removed", "DELETE ON runs", "old.number"),
            )
        ),
    ),
)
"""The statements from each version of the format to the next; a new file executes all of them."""

VERSION = len(MIGRATIONS)
APPLICATION_ID = 0x61674C62
"""Written into the file to identify it."""

_COUNT = (
    "(SELECT coalesce(max(id), number << 32) - (number << 32) FROM steps "
    "WHERE id BETWEEN number << 32 AND (number << 32) + 4294967295)"
)
"""The number of steps of a run, which is the number of its last step; the query does not read the other steps."""

RUNS_AT_ONCE = 200

_INHERITED: list[sqlite3.Connection] = []
"""Connections of the process that this process was forked from; they must be neither used nor closed here."""


class SqliteStorage:
    """Runs in a file, which is created if it does not exist. Several processes may write to it at the same time. A file in a read-only
    folder is read from a copy in memory; writing to it raises StorageError.

    Raises StorageError for a path that cannot be opened, another kind of file, or a file of a newer agentlab.

    Example:
        >>> import tempfile
        >>> from agentlab.storage import SqliteStorage
        >>> place = SqliteStorage(tempfile.mkdtemp() + "/runs.db")
        >>> lab.Store(place).run_ids()
        []
        >>> place.close()
    """

    def __init__(self, path: str | Path) -> None:
        self.path = IN_MEMORY if str(path) == IN_MEMORY else str(Path(path).absolute())
        self._lock = threading.RLock()
        self._database: sqlite3.Connection
        self._is_open = False
        self._is_read_only = False
        self._file: tuple[int, int] | None = None
        try:
            with self._errors("opened"):
                self._open_first()
        except BaseException:
            self.close()
            raise

    def _open_first(self) -> None:
        try:
            self._connect()
            self._prepare(self._database)
            self._file = _file_at(self.path)
        except sqlite3.OperationalError:
            if not os.path.isfile(self.path) or os.access(os.path.dirname(self.path), os.W_OK):  # noqa: PTH113, PTH120  it is text
                raise
            self.close()
            self._is_read_only = True
            self._connect()
            self._prepare(self._database)

    def _connect(self) -> None:
        self._process = os.getpid()
        self._database = _copy_in_memory(self.path) if self._is_read_only else _connection(self.path)
        self._is_open = True
        # A notebook rarely closes its store; since Python 3.13 a connection that is freed without being closed is a warning.
        weakref.finalize(self, _close_own, self._database, self._process, self._lock)
        self._database.execute("PRAGMA synchronous = FULL")

    def _prepare(self, database: sqlite3.Connection) -> None:
        # The tables are looked up before version and id, since another process may be creating all of them at this moment.
        has_tables = database.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone() is not None
        (version,) = database.execute("PRAGMA user_version").fetchone()
        (application,) = database.execute("PRAGMA application_id").fetchone()
        if application not in (0, APPLICATION_ID) or (application == 0 and has_tables):
            raise StorageError(
                f"{self.path!r} is a database of another program: pass another file; it is created if it does not exist."
            )
        if version > VERSION:
            raise StorageError(
                f"{self.path!r} was written by a newer agentlab (format {version}; this version reads up to {VERSION}): update "
                "agentlab."
            )
        _use_wal(database)
        if version < VERSION:
            with self._transaction():
                (version,) = database.execute("PRAGMA user_version").fetchone()  # another process may have been faster
                for statements in MIGRATIONS[version:]:
                    for statement in statements:
                        database.execute(statement)
                database.execute(f"PRAGMA user_version = {VERSION}")
                database.execute(f"PRAGMA application_id = {APPLICATION_ID}")

    def begin(self, head: StoredHead, steps: Sequence[StoredStep] = (), end: str | None = None) -> None:
        """Add a new run."""
        check_order(head.run_id, 0, steps)
        with self._errors("written to"), self._write() as database:
            if database.execute("SELECT 1 FROM runs WHERE run_id = ?", (head.run_id,)).fetchone():
                raise StorageError(f"The run {head.run_id!r} already exists in {self.path!r}: delete it, or resume it.")
            number = database.execute(
                "INSERT INTO runs (run_id, begun_at, writer, head, ended) VALUES (?, ?, ?, ?, ?)",
                (head.run_id, head.begun_at, head.writer, head.body, end),
            ).lastrowid
            self._insert(database, number or 0, steps)

    def claim(self, run_id: str, writer: str, *, instead_of: str) -> None:
        """Make `writer` the only writer of the run."""
        with self._errors("written to"), self._write() as database:
            number, _, current = self._find(database, run_id)
            check_writer(run_id, current, instead_of)
            database.execute("UPDATE runs SET writer = ? WHERE number = ?", (writer, number))

    def add(self, run_id: str, writer: str, steps: Sequence[StoredStep], end: str | None = None) -> None:
        """Add steps, and the end."""
        with self._errors("written to"), self._write() as database:
            number, count, current = self._find(database, run_id)
            check_writer(run_id, current, writer)
            check_order(run_id, count, steps)
            self._insert(database, number, steps)
            if end is not None:
                database.execute("UPDATE runs SET ended = ? WHERE number = ?", (end, number))

    @staticmethod
    def _insert(database: sqlite3.Connection, number: int, steps: Sequence[StoredStep]) -> None:
        first, _ = _id_range(number)
        database.executemany(
            "INSERT INTO steps (id, row, body) VALUES (?, ?, ?)", [(first + step.step, step.row, step.body) for step in steps]
        )

    def runs(self, run_ids: Iterable[str] | None = None) -> list[StoredRun]:
        """Return all runs, or the given ones."""
        return [run for _, run in self._numbered(run_ids)]

    def _numbered(self, run_ids: Iterable[str] | None) -> list[tuple[int, StoredRun]]:
        with self._errors("read"), self._lock:
            database, columns = self._open(), f"SELECT number, run_id, begun_at, writer, head, {_COUNT}, ended FROM runs"  # noqa: S608  a constant
            if run_ids is None:
                rows = database.execute(f"{columns} ORDER BY number").fetchall()
            else:
                rows = []
                for run_id in dict.fromkeys(run_ids):
                    row = database.execute(f"{columns} WHERE run_id = ?", (run_id,)).fetchone()
                    rows.append(row or self._missing(database, run_id))
                rows.sort()
        return [(row[0], StoredRun(StoredHead(*row[1:5]), *row[5:])) for row in rows]

    def excerpts(
        self, of_head: Sequence[str], of_end: Sequence[str], of_row: Sequence[str]
    ) -> list[tuple[StoredRun, str | None]]:
        """Return all runs with these parts only of their head and end, as a JSON array, and of the newest step's row if a run has not
        ended. What SQLite does not read as JSON is returned whole."""
        last = f"(SELECT {_some('row', of_row)} FROM steps WHERE ended IS NULL AND id = (number << 32) + count)"  # noqa: S608  constants
        columns = f"run_id, begun_at, writer, {_some('head', of_head)}, count, {_some('ended', of_end)}, {last}"
        with self._errors("read"), self._lock:
            query = f"SELECT {columns} FROM (SELECT *, {_COUNT} AS count FROM runs) ORDER BY number"  # noqa: S608  constants
            rows = self._open().execute(query).fetchall()
        return [(StoredRun(StoredHead(*row[:4]), *row[4:6]), row[6]) for row in rows]

    def steps(self, run_id: str) -> list[StoredStep]:
        """Return the steps of a run."""
        with self._errors("read"), self._lock:
            database = self._open()
            number, _, _ = self._find(database, run_id)
            ids = _id_range(number)
            rows = database.execute("SELECT id, row, body FROM steps WHERE id BETWEEN ? AND ? ORDER BY id", ids).fetchall()
        return [StoredStep(row[0] - ids[0], *row[1:]) for row in rows]

    def rows(self, run_ids: Sequence[str] | None = None) -> Iterator[tuple[str, str]]:
        """Yield (run_id, row) for every step, read for RUNS_AT_ONCE runs at a time, so that others can write in between."""
        found = self._numbered(run_ids)
        begin = 0
        for end in range(1, len(found) + 1):
            # Deleted runs have no steps, so without `run_ids` a gap between numbers costs nothing.
            is_next = end < len(found) and (run_ids is None or found[end][0] == found[end - 1][0] + 1)
            if is_next and end - begin < RUNS_AT_ONCE:
                continue
            ids = {number: run.head.run_id for number, run in found[begin:end]}
            begin = end
            with self._errors("read"), self._lock:
                rows = (
                    self._open()
                    .execute(
                        "SELECT id >> 32, row FROM steps WHERE id BETWEEN ? AND ? ORDER BY id",
                        (_id_range(min(ids))[0], _id_range(max(ids))[1]),
                    )
                    .fetchall()
                )
            yield from ((ids[number], row) for number, row in rows if number in ids)

    def kept_columns(self, made_as: str) -> list[tuple[str, str, bytes]]:
        """Return the columns that were made this way: the ids of the first and the last of the consecutive runs, and the columns."""
        query = (
            "SELECT one.run_id, other.run_id, body FROM step_columns JOIN runs AS one ON one.number = first "
            "JOIN runs AS other ON other.number = last WHERE made_as = ? ORDER BY last"
        )
        with self._errors("read"), self._lock:
            return self._open().execute(query, (made_as,)).fetchall()

    def announce_columns(self, first: str, last: str) -> str:
        """Return the name under which to keep columns of these consecutive runs. To be called before their rows are read: if one of
        the runs changes afterwards, nothing is kept."""
        name = uuid.uuid4().hex
        with self._errors("written to"), self._write() as database:
            numbers = (self._find(database, first)[0], self._find(database, last)[0])
            database.execute("DELETE FROM step_columns WHERE last >= ? AND first <= ?", numbers)
            database.execute("INSERT INTO step_columns (first, last, made_as) VALUES (?, ?, ?)", (*numbers, name))
        return name

    def keep_columns(self, announced: str, made_as: str, body: bytes) -> None:
        """Keep columns beside the rows that they were made of, unless a run of theirs has changed since they were announced."""
        with self._errors("written to"), self._write() as database:
            database.execute("UPDATE step_columns SET made_as = ?, body = ? WHERE made_as = ?", (made_as, body, announced))

    def note(self, run_id: str, name: str, text: str) -> None:
        """Store a text beside a run."""
        with self._errors("written to"), self._write() as database:
            number, _, _ = self._find(database, run_id)
            if name.startswith(PART_NOTE):
                database.execute("INSERT OR IGNORE INTO parts (name, body) VALUES (?, ?)", (name, text))
                text = ""
            database.execute("INSERT OR REPLACE INTO notes (run, name, body) VALUES (?, ?, ?)", (number, name, text))

    def notes(self, name: str, run_ids: Iterable[str] | None = None) -> dict[str, str]:
        """Return the notes of that name."""
        query = (
            "SELECT run_id, coalesce(parts.body, notes.body) FROM runs JOIN notes ON run = number LEFT JOIN parts USING (name)"
        )
        query = f"{query} WHERE notes.name = ?"
        with self._errors("read"), self._lock:
            database = self._open()
            if run_ids is None:
                return dict(database.execute(query, (name,)).fetchall())
            rows = [database.execute(f"{query} AND run_id = ?", (name, run_id)).fetchone() for run_id in run_ids]
        return dict(row for row in rows if row is not None)

    def delete(self, run_id: str) -> None:
        """Delete a run."""
        with self._errors("written to"), self._write() as database:
            number, _, _ = self._find(database, run_id)
            names = "SELECT name FROM notes WHERE run"
            unused = f"DELETE FROM parts WHERE name IN ({names} = ?) AND name NOT IN ({names} <> ?)"  # noqa: S608  constants
            database.execute(unused, (number, number))
            database.execute("DELETE FROM notes WHERE run = ?", (number,))
            database.execute("DELETE FROM steps WHERE id BETWEEN ? AND ?", _id_range(number))
            database.execute("DELETE FROM runs WHERE number = ?", (number,))

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._is_open:
                self._is_open = False
                self._database.close()

    def _open(self) -> sqlite3.Connection:
        if not self._is_open:
            raise StorageError(f"{self.path!r} was closed: open it again with Store({self.path!r}).")
        if self._file is not None and self._file != _file_at(self.path):  # SQLite would write to the deleted file
            raise StorageError(
                f"{self.path!r} was deleted or replaced after it was opened: open it again with Store({self.path!r}), and pass the new "
                "store to your agents."
            )
        if self._process != os.getpid():
            _INHERITED.append(self._database)
            self._connect()
        return self._database

    def __reduce__(self) -> tuple[type[SqliteStorage], tuple[str]]:
        return SqliteStorage, (self.path,)  # another process opens the path

    def _find(self, database: sqlite3.Connection, run_id: str) -> tuple[int, int, str]:
        """Return the run's number, the number of its stored steps, and its writer."""
        found: tuple[int, int, str] | None = database.execute(
            f"SELECT number, {_COUNT}, writer FROM runs WHERE run_id = ?",  # noqa: S608  a constant
            (run_id,),
        ).fetchone()
        return found or self._missing(database, run_id)

    def _missing(self, database: sqlite3.Connection, run_id: str) -> NoReturn:
        (count,) = database.execute("SELECT count(*) FROM runs").fetchone()
        raise StorageError(f"There is no run {run_id!r} in {self.path!r}, which has {counted(count, 'run')}.")

    @contextlib.contextmanager
    def _write(self) -> Iterator[sqlite3.Connection]:
        """Begin a write. Raises StorageError if the file is read-only."""
        if self._is_read_only:
            raise StorageError(
                f"{self.path!r} cannot be written to: its folder is read-only. Copy the file, and the -wal file beside it if there is "
                "one, to a folder that can be written, and open the copy."
            )
        with self._transaction() as database:
            yield database

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Make all writes in this block one transaction, which takes about as long as one of them. If one of them fails, or the
        commit, none has an effect."""
        with self._errors("written to"), self._write():
            yield

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Begin an exclusive transaction, or join that of `together`: the data that it reads does not change before it writes."""
        with self._lock:
            database = self._open()
            if database.in_transaction:
                yield database
                return
            with database:  # commits at the end, or rolls back
                database.execute("BEGIN IMMEDIATE")
                yield database

    @contextlib.contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise StorageError(f"{self.path!r} cannot be {what}: {error}.{_hint(str(error))}") from error


def _close_own(database: sqlite3.Connection, process: int, lock: contextlib.AbstractContextManager[object]) -> None:
    """Close a connection that nobody uses any more, or at exit, unless this process was forked from its own."""
    if process == os.getpid():
        with lock:  # at exit a run in the background may be in the middle of a transaction
            database.close()
    else:
        _INHERITED.append(database)


def _use_wal(database: sqlite3.Connection) -> None:
    """Switch the file to WAL. SQLite's timeout does not apply to this statement while another process creates the same file."""
    until = time.monotonic() + WRITE_TIMEOUT_S
    while True:
        try:
            database.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
            time.sleep(0.01)
        else:
            return


def _file_at(path: str) -> tuple[int, int] | None:
    """Return device and inode of a file; None if there is none."""
    try:
        found = os.stat(path)  # noqa: PTH116  at every access
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _connection(path: str) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=WRITE_TIMEOUT_S, isolation_level=None, check_same_thread=False)


def _copy_in_memory(path: str) -> sqlite3.Connection:
    """Return a copy of the file with its log: SQLite reads the log only if it can write beside the file."""
    memory = _connection(IN_MEMORY)
    with tempfile.TemporaryDirectory() as folder:
        for end in ("", "-wal"):
            with contextlib.suppress(FileNotFoundError):
                shutil.copyfile(path + end, f"{folder}/runs.db{end}")
        with contextlib.closing(sqlite3.connect(f"{folder}/runs.db")) as copy:
            copy.backup(memory)
    return memory


def _some(column: str, paths: Sequence[str]) -> str:
    """Return the expression for a JSON array of the values at these paths."""
    parts = ", ".join(f"'$.{path}'" for path in paths)
    return f"CASE WHEN json_valid({column}) THEN json_extract({column}, {parts}) ELSE {column} END"


def _id_range(number: int) -> tuple[int, int]:
    """Return the range of the ids of a run's steps; the first id in the range is not used."""
    return number << 32, (number << 32) + 0xFFFFFFFF


def _hint(error: str) -> str:
    if "full" in error:
        return " Free some space on the disk; the stored data is not lost."
    if "I/O error" in error and sys.platform == "emscripten":
        return " JupyterLite keeps no database in the folder of the notebooks: pass a file elsewhere, such as /tmp/runs.db."
    if "I/O error" in error:
        return " The disk is full or damaged: check it, and try again; the stored data is not lost."
    if "unable to open" in error or "readonly" in error:
        return " Pass a file in a folder that exists and that you may write to."
    if "locked" in error or "busy" in error:
        return f" Another process has been writing for over {WRITE_TIMEOUT_S:g} s: stop it, or try again."
    if "malformed" in error or "not a database" in error:
        return " The file is damaged, or not a database: pass another one."
    return ""

"""The interface of a storage: it stores runs as texts, and each write is atomic; and the storage in memory."""

from __future__ import annotations

import threading
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from agentlab._internal.formatting import counted
from agentlab.errors import StorageError


@dataclass(frozen=True, slots=True)
class StoredHead:
    """The data of a run before its first step. `begun_at` is in seconds since 1970; `writer` names the process that writes the run;
    `body` is JSON text.

    Example:
        >>> from agentlab.storage import StoredHead
        >>> StoredHead("r1", begun_at=1.5, writer="this process", body="{}").run_id
        'r1'
    """

    run_id: str
    begun_at: float
    writer: str
    body: str


@dataclass(frozen=True, slots=True)
class StoredStep:
    """One step: its number, from 1, and as JSON text its row of the steps frame and the whole step.

    Example:
        >>> from agentlab.storage import StoredStep
        >>> StoredStep(1, row='{"step": 1}', body="{}").row
        '{"step": 1}'
    """

    step: int
    row: str
    body: str


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A stored run: the number of stored steps, and its end as JSON text (None: it has not ended).

    Example:
        >>> from agentlab.storage import StoredHead, StoredRun
        >>> StoredRun(StoredHead("r1", 1.5, "this process", "{}"), steps=0, end=None).end is None
        True
    """

    head: StoredHead
    steps: int
    end: str | None


class Storage(Protocol):
    """Stores runs. Any thread may call it; a write is atomic, and durable when the method returns.

    Every method raises StorageError if it fails (a full disk, a damaged file), without a loss of stored data.

    A storage may also have `together()`, a context manager that makes all writes in its block one transaction, all or nothing: an
    experiment then stores the steps of many runs in the time of one.

    `lab.Store` takes a storage. `agentlab.testing.StorageContract` has the tests that it has to pass.

    Example:
        >>> from agentlab.storage import MemoryStorage
        >>> store = lab.Store(MemoryStorage())
        >>> result = await lab.Agent(ScriptedProvider(["Paris."]), observers=[store]).run("?")
        >>> len(store.frame("steps"))
        1
    """

    def begin(self, head: StoredHead, steps: Sequence[StoredStep] = (), end: str | None = None) -> None:
        """Add a new run with its steps so far, all or nothing. Raises StorageError if the id exists.

        Example:
            >>> from agentlab.storage import MemoryStorage, StoredHead, StoredStep
            >>> place = MemoryStorage()
            >>> place.begin(StoredHead("r1", 1.5, "this process", "{}"))
            >>> place.runs()[0].head.run_id
            'r1'
        """

    def claim(self, run_id: str, writer: str, *, instead_of: str) -> None:
        """Make `writer` the only writer of the run. Raises StorageError if the current writer is not `instead_of`.

        Example:
            >>> from agentlab.storage import MemoryStorage, StoredHead, StoredStep
            >>> place = MemoryStorage()
            >>> place.begin(StoredHead("r1", 1.5, "this process", "{}"))
            >>> place.claim("r1", "another process", instead_of="this process")
            >>> place.add("r1", "this process", [])
            Traceback (most recent call last):
                ...
            agentlab.errors.StorageError: The run 'r1' was resumed by another process, which writes to it now: changes by this...
        """

    def add(self, run_id: str, writer: str, steps: Sequence[StoredStep], end: str | None = None) -> None:
        """Add steps, and the run's end (None: it has not ended), all or nothing; a new end replaces an earlier one.

        Raises StorageError if another writer has claimed the run, or if the steps do not follow the stored ones.

        Example:
            >>> from agentlab.storage import MemoryStorage, StoredHead, StoredStep
            >>> place = MemoryStorage()
            >>> place.begin(StoredHead("r1", 1.5, "this process", "{}"))
            >>> place.add("r1", "this process", [StoredStep(1, "{}", "{}")], end="{}")
            >>> place.runs()[0].steps, place.runs()[0].end
            (1, '{}')
        """

    def runs(self, run_ids: Iterable[str] | None = None) -> list[StoredRun]:
        """Return all runs, or the given ones, in the order in which they began. Raises StorageError for an unknown id, with the words
        "no run 'that id'" in its message.

        Example:
            >>> from agentlab.storage import MemoryStorage, StoredHead, StoredStep
            >>> place = MemoryStorage()
            >>> place.begin(StoredHead("r1", 1.5, "this process", "{}"))
            >>> [(run.head.run_id, run.steps, run.end) for run in place.runs()]
            [('r1', 0, None)]
        """

    def steps(self, run_id: str) -> list[StoredStep]:
        """Return the steps of a run, in order.

        Example:
            >>> from agentlab.storage import MemoryStorage, StoredHead, StoredStep
            >>> place = MemoryStorage()
            >>> place.begin(StoredHead("r1", 1.5, "this process", "{}"))
            >>> place.add("r1", "this process", [StoredStep(1, "{}", "{}")])
            >>> place.steps("r1")
            [StoredStep(step=1, row='{}', body='{}')]
        """

    def rows(self, run_ids: Sequence[str] | None = None) -> Iterator[tuple[str, str]]:
        """Yield (run_id, row) for every step of all runs, or of the given ones, in the order of `runs`. Steps written meanwhile may be
        included or not.

        Example:
            >>> from agentlab.storage import MemoryStorage, StoredHead, StoredStep
            >>> place = MemoryStorage()
            >>> place.begin(StoredHead("r1", 1.5, "this process", "{}"))
            >>> place.add("r1", "this process", [StoredStep(1, '{"step": 1}', "{}")])
            >>> list(place.rows())
            [('r1', '{"step": 1}')]
        """

    def note(self, run_id: str, name: str, text: str) -> None:
        """Store a text beside a run, such as its score; it replaces an earlier note of that name. Any process may do so.

        Example:
            >>> from agentlab.storage import MemoryStorage, StoredHead, StoredStep
            >>> place = MemoryStorage()
            >>> place.begin(StoredHead("r1", 1.5, "this process", "{}"))
            >>> place.note("r1", "score", "1.0")
            >>> place.notes("score")
            {'r1': '1.0'}
        """

    def notes(self, name: str, run_ids: Iterable[str] | None = None) -> dict[str, str]:
        """Return the notes of that name by run id, of all runs or of the given ones; runs without such a note are left out.

        Example:
            >>> from agentlab.storage import MemoryStorage, StoredHead, StoredStep
            >>> place = MemoryStorage()
            >>> place.begin(StoredHead("r1", 1.5, "this process", "{}"))
            >>> place.note("r1", "score", "1.0")
            >>> place.notes("score"), place.notes("remark")
            ({'r1': '1.0'}, {})
        """

    def delete(self, run_id: str) -> None:
        """Delete a run and its notes.

        Example:
            >>> from agentlab.storage import MemoryStorage, StoredHead, StoredStep
            >>> place = MemoryStorage()
            >>> place.begin(StoredHead("r1", 1.5, "this process", "{}"))
            >>> place.delete("r1")
            >>> place.runs()
            []
        """

    def close(self) -> None:
        """Close the storage; closing it again does nothing.

        Example:
            >>> from agentlab.storage import SqliteStorage
            >>> place = SqliteStorage(":memory:")
            >>> place.close()
            >>> place.close()
            >>> place.runs()
            Traceback (most recent call last):
                ...
            agentlab.errors.StorageError: ...
        """


def check_writer(run_id: str, current: str, given: str) -> None:
    """Raise StorageError if the given writer is not the run's current one.

    Example:
        >>> from agentlab.storage import check_writer
        >>> check_writer("r1", "another process", "this process")
        Traceback (most recent call last):
            ...
        agentlab.errors.StorageError: The run 'r1' was resumed by another process, which writes to it now: changes by this...
    """
    if current != given:
        raise StorageError(
            f"The run {run_id!r} was resumed by {current}, which writes to it now: changes by this process are not stored."
        )


def check_order(run_id: str, stored: int, steps: Sequence[StoredStep]) -> None:
    """Raise StorageError if these steps do not follow the stored ones.

    Example:
        >>> from agentlab.storage import StoredStep, check_order
        >>> check_order("r1", 2, [StoredStep(4, "{}", "{}")])
        Traceback (most recent call last):
            ...
        agentlab.errors.StorageError: The run 'r1' has 2 steps: steps [4] do not follow them.
    """
    if [step.step for step in steps] != list(range(stored + 1, stored + 1 + len(steps))):
        given = [step.step for step in steps]
        raise StorageError(f"The run {run_id!r} has {stored} steps: steps {given} do not follow them.")


PART_NOTE = "part:"
"""The beginning of the names of notes with the bytes of an image or a file, as base64; the rest of the name is their SHA-256. They
are equal for all runs, so a storage may keep them once."""

# In memory --------------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _MemoryRun:
    head: StoredHead
    steps: list[StoredStep] = field(default_factory=list)
    end: str | None = None
    notes: dict[str, str] = field(default_factory=dict)


class MemoryStorage:
    """Runs in a dict.

    Example:
        >>> from agentlab.storage import MemoryStorage
        >>> lab.Store(MemoryStorage()).run_ids()
        []
    """

    def __init__(self) -> None:
        self._runs: dict[str, _MemoryRun] = {}
        self._lock = threading.Lock()

    def begin(self, head: StoredHead, steps: Sequence[StoredStep] = (), end: str | None = None) -> None:
        """Add a new run."""
        with self._lock:
            if head.run_id in self._runs:
                raise StorageError(f"The run {head.run_id!r} already exists: delete it, or resume it.")
            check_order(head.run_id, 0, steps)
            self._runs[head.run_id] = _MemoryRun(head, list(steps), end)

    def claim(self, run_id: str, writer: str, *, instead_of: str) -> None:
        """Make `writer` the only writer of the run."""
        with self._lock:
            run = self._find(run_id)
            check_writer(run_id, run.head.writer, instead_of)
            run.head = replace(run.head, writer=writer)

    def add(self, run_id: str, writer: str, steps: Sequence[StoredStep], end: str | None = None) -> None:
        """Add steps, and the end."""
        with self._lock:
            run = self._find(run_id)
            check_writer(run_id, run.head.writer, writer)
            check_order(run_id, len(run.steps), steps)
            run.steps.extend(steps)
            run.end = run.end if end is None else end

    def runs(self, run_ids: Iterable[str] | None = None) -> list[StoredRun]:
        """Return all runs, or the given ones."""
        with self._lock:
            wanted: Container[str] = self._runs if run_ids is None else {run_id: self._find(run_id) for run_id in run_ids}
            return [StoredRun(run.head, len(run.steps), run.end) for run_id, run in self._runs.items() if run_id in wanted]

    def steps(self, run_id: str) -> list[StoredStep]:
        """Return the steps of a run."""
        with self._lock:
            return list(self._find(run_id).steps)

    def rows(self, run_ids: Sequence[str] | None = None) -> Iterator[tuple[str, str]]:
        """Yield (run_id, row) for every step."""
        for run in self.runs(run_ids):
            for step in self.steps(run.head.run_id):
                yield run.head.run_id, step.row

    def note(self, run_id: str, name: str, text: str) -> None:
        """Store a text beside a run."""
        with self._lock:
            self._find(run_id).notes[name] = text

    def notes(self, name: str, run_ids: Iterable[str] | None = None) -> dict[str, str]:
        """Return the notes of that name."""
        with self._lock:
            wanted: Container[str] = self._runs if run_ids is None else set(run_ids)
            return {run_id: run.notes[name] for run_id, run in self._runs.items() if run_id in wanted and name in run.notes}

    def delete(self, run_id: str) -> None:
        """Delete a run."""
        with self._lock:
            self._find(run_id)
            del self._runs[run_id]

    def close(self) -> None:
        """Do nothing: no file is open."""

    def _find(self, run_id: str) -> _MemoryRun:
        run = self._runs.get(run_id)
        if run is None:
            raise StorageError(f"There is no run {run_id!r} in this store, which has {counted(len(self._runs), 'run')}.")
        return run

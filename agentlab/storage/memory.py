"""Stores runs in memory; they are lost when the process ends."""

from __future__ import annotations

import threading
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from agentlab._internal.formatting import counted
from agentlab.errors import StorageError
from agentlab.storage.base import StoredHead, StoredRun, StoredStep, check_order, check_writer


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

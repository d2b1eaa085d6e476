"""Runs in memory, for play: gone with the process."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from agentlab.amounts import counted
from agentlab.errors import StorageError
from agentlab.storage.base import StoredHead, StoredRun, StoredStep, check_order, check_writer


@dataclass(slots=True)
class _Kept:
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
        self._runs: dict[str, _Kept] = {}
        self._lock = threading.Lock()

    def begin(self, head: StoredHead, steps: Sequence[StoredStep] = (), end: str | None = None) -> None:
        """A new run."""
        with self._lock:
            if head.run_id in self._runs:
                raise StorageError(f"There is a run {head.run_id!r} already: delete it, or resume it.")
            check_order(head.run_id, 0, steps)
            self._runs[head.run_id] = _Kept(head, list(steps), end)

    def claim(self, run_id: str, writer: str, *, instead_of: str) -> None:
        """From here on `writer` writes to the run."""
        with self._lock:
            kept = self._of(run_id)
            check_writer(run_id, kept.head.writer, instead_of)
            kept.head = replace(kept.head, writer=writer)

    def add(self, run_id: str, writer: str, steps: Sequence[StoredStep], end: str | None = None) -> None:
        """Further steps, and the end."""
        with self._lock:
            kept = self._of(run_id)
            check_writer(run_id, kept.head.writer, writer)
            check_order(run_id, len(kept.steps), steps)
            kept.steps.extend(steps)
            kept.end = kept.end if end is None else end

    def runs(self, run_ids: Iterable[str] | None = None) -> list[StoredRun]:
        """All runs, or those."""
        with self._lock:
            wanted = None if run_ids is None else {run_id: self._of(run_id) for run_id in run_ids}
            found = self._runs if wanted is None else {name: kept for name, kept in self._runs.items() if name in wanted}
            return [StoredRun(kept.head, len(kept.steps), kept.end) for kept in found.values()]

    def steps(self, run_id: str) -> list[StoredStep]:
        """The steps of a run."""
        with self._lock:
            return list(self._of(run_id).steps)

    def rows(self, run_ids: Sequence[str] | None = None) -> Iterator[tuple[str, str]]:
        """(run_id, row) of every step."""
        for run in self.runs(run_ids):
            for step in self.steps(run.head.run_id):
                yield run.head.run_id, step.row

    def note(self, run_id: str, name: str, text: str) -> None:
        """Keep a text beside a run."""
        with self._lock:
            self._of(run_id).notes[name] = text

    def notes(self, name: str, run_ids: Iterable[str] | None = None) -> dict[str, str]:
        """The texts of that name."""
        with self._lock:
            wanted = self._runs if run_ids is None else [run_id for run_id in run_ids if run_id in self._runs]
            return {run_id: self._runs[run_id].notes[name] for run_id in wanted if name in self._runs[run_id].notes}

    def delete(self, run_id: str) -> None:
        """Forget a run."""
        with self._lock:
            self._of(run_id)
            del self._runs[run_id]

    def close(self) -> None:
        """Nothing is held open."""

    def _of(self, run_id: str) -> _Kept:
        kept = self._runs.get(run_id)
        if kept is None:
            raise StorageError(f"There is no run {run_id!r} in this store, which holds {counted(len(self._runs), 'run')}.")
        return kept

"""What a store asks of the place where runs are kept: text in, text out, and nothing half written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from agentlab.errors import StorageError


@dataclass(frozen=True, slots=True)
class StoredHead:
    """What is known of a run before its first step. `begun_at` is in seconds since 1970; `writer` says which process writes to it;
    `body` is JSON text."""

    run_id: str
    begun_at: float
    writer: str
    body: str


@dataclass(frozen=True, slots=True)
class StoredStep:
    """One step: its number from 1, its row of the steps frame and all that it was, both as JSON text."""

    step: int
    row: str
    body: str


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run as it stands: how many steps are kept, and its end as JSON text (None: it has not ended)."""

    head: StoredHead
    steps: int
    end: str | None


class Storage(Protocol):
    """A place for runs. Any thread may call it; what was written is durable when the method returns, all of it or nothing.

    Every method raises StorageError where it cannot do its work (a full disk, a damaged file), and loses nothing by that.
    """

    def begin(self, head: StoredHead, steps: Sequence[StoredStep] = (), end: str | None = None) -> None:
        """A new run, with what it has done so far, all or nothing. Raises StorageError where there is one of that id."""

    def claim(self, run_id: str, writer: str, *, instead_of: str) -> None:
        """From here on `writer` writes to the run. Raises StorageError where somebody else than `instead_of` does by now."""

    def add(self, run_id: str, writer: str, steps: Sequence[StoredStep], end: str | None = None) -> None:
        """Further steps, and the run's end (None: it goes on), all or nothing; an end may be given again, as it has become.

        Raises StorageError where somebody else writes to the run by now, and for steps that do not follow on those that are there.
        """

    def runs(self, run_ids: Iterable[str] | None = None) -> list[StoredRun]:
        """All runs, or those, in the order in which they began. Raises StorageError for an id that there is not."""

    def steps(self, run_id: str) -> list[StoredStep]:
        """The steps of a run, in order."""

    def rows(self, run_ids: Sequence[str] | None = None) -> Iterator[tuple[str, str]]:
        """(run_id, row) of every step, or of those runs, in the order of `runs`. What is written meanwhile may be in it or not."""

    def note(self, run_id: str, name: str, text: str) -> None:
        """Keep a text beside a run, such as its score, in the place of an earlier one of that name; whoever writes to the run."""

    def notes(self, name: str, run_ids: Iterable[str] | None = None) -> dict[str, str]:
        """The texts of that name, of all runs or of those, by the ids of the runs that have one."""

    def delete(self, run_id: str) -> None:
        """Forget a run, and what is noted of it."""

    def close(self) -> None:
        """Let go of the place; to close twice does no harm."""


def check_writer(run_id: str, now: str, given: str) -> None:
    """Raises StorageError where a run is written by somebody else than whoever is given."""
    if now != given:
        raise StorageError(
            f"The run {run_id!r} was resumed, and is written by {now} by now: what is done with it here is not kept."
        )


def check_order(run_id: str, kept: int, steps: Sequence[StoredStep]) -> None:
    """Raises StorageError where these steps do not follow on so many that are kept."""
    if [step.step for step in steps] != list(range(kept + 1, kept + 1 + len(steps))):
        raise StorageError(f"The run {run_id!r} has {kept} steps: {[step.step for step in steps]} do not follow on that.")

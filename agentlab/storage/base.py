"""What a store asks of the place where runs are kept: text in, text out, and nothing half written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from agentlab.errors import StorageError


@dataclass(frozen=True, slots=True)
class StoredHead:
    """What is known of a run before its first step. `begun_at` is in seconds since 1970; `writer` says which process writes to it;
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
    """One step: its number from 1, its row of the steps frame and all that it was, both as JSON text.

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
    """A run as it stands: how many steps are kept, and its end as JSON text (None: it has not ended).

    Example:
        >>> from agentlab.storage import StoredHead, StoredRun
        >>> StoredRun(StoredHead("r1", 1.5, "this process", "{}"), steps=0, end=None).end is None
        True
    """

    head: StoredHead
    steps: int
    end: str | None


class Storage(Protocol):
    """A place for runs. Any thread may call it; what was written is durable when the method returns, all of it or nothing.

    Every method raises StorageError where it cannot do its work (a full disk, a damaged file), and loses nothing by that.

    `lab.Store` takes one. `agentlab.testing.StorageContract` has the tests that it has to pass.

    Example:
        >>> from agentlab.storage import MemoryStorage
        >>> store = lab.Store(MemoryStorage())
        >>> result = await lab.Agent(ScriptedProvider(["Paris."]), observers=[store]).run("?")
        >>> len(store.frame("steps"))
        1
    """

    def begin(self, head: StoredHead, steps: Sequence[StoredStep] = (), end: str | None = None) -> None:
        """A new run, with what it has done so far, all or nothing. Raises StorageError where there is one of that id.

        Example:
            >>> from agentlab.storage import MemoryStorage, StoredHead, StoredStep
            >>> place = MemoryStorage()
            >>> place.begin(StoredHead("r1", 1.5, "this process", "{}"))
            >>> place.runs()[0].head.run_id
            'r1'
        """

    def claim(self, run_id: str, writer: str, *, instead_of: str) -> None:
        """From here on `writer` writes to the run. Raises StorageError where somebody else than `instead_of` does by now.

        Example:
            >>> from agentlab.storage import MemoryStorage, StoredHead, StoredStep
            >>> place = MemoryStorage()
            >>> place.begin(StoredHead("r1", 1.5, "this process", "{}"))
            >>> place.claim("r1", "another process", instead_of="this process")
            >>> place.add("r1", "this process", [])
            Traceback (most recent call last):
                ...
            agentlab.errors.StorageError: The run 'r1' was resumed, and is written by another process by now: what is done...
        """

    def add(self, run_id: str, writer: str, steps: Sequence[StoredStep], end: str | None = None) -> None:
        """Further steps, and the run's end (None: it goes on), all or nothing; an end may be given again, as it has become.

        Raises StorageError where somebody else writes to the run by now, and for steps that do not follow on those that are there.

        Example:
            >>> from agentlab.storage import MemoryStorage, StoredHead, StoredStep
            >>> place = MemoryStorage()
            >>> place.begin(StoredHead("r1", 1.5, "this process", "{}"))
            >>> place.add("r1", "this process", [StoredStep(1, "{}", "{}")], end="{}")
            >>> place.runs()[0].steps, place.runs()[0].end
            (1, '{}')
        """

    def runs(self, run_ids: Iterable[str] | None = None) -> list[StoredRun]:
        """All runs, or those, in the order in which they began. Raises StorageError for an id that there is not, with the words
        "no run 'that id'" in its message.

        Example:
            >>> from agentlab.storage import MemoryStorage, StoredHead, StoredStep
            >>> place = MemoryStorage()
            >>> place.begin(StoredHead("r1", 1.5, "this process", "{}"))
            >>> [(run.head.run_id, run.steps, run.end) for run in place.runs()]
            [('r1', 0, None)]
        """

    def steps(self, run_id: str) -> list[StoredStep]:
        """The steps of a run, in order.

        Example:
            >>> from agentlab.storage import MemoryStorage, StoredHead, StoredStep
            >>> place = MemoryStorage()
            >>> place.begin(StoredHead("r1", 1.5, "this process", "{}"))
            >>> place.add("r1", "this process", [StoredStep(1, "{}", "{}")])
            >>> place.steps("r1")
            [StoredStep(step=1, row='{}', body='{}')]
        """

    def rows(self, run_ids: Sequence[str] | None = None) -> Iterator[tuple[str, str]]:
        """(run_id, row) of every step, or of those runs, in the order of `runs`. What is written meanwhile may be in it or not.

        Example:
            >>> from agentlab.storage import MemoryStorage, StoredHead, StoredStep
            >>> place = MemoryStorage()
            >>> place.begin(StoredHead("r1", 1.5, "this process", "{}"))
            >>> place.add("r1", "this process", [StoredStep(1, '{"step": 1}', "{}")])
            >>> list(place.rows())
            [('r1', '{"step": 1}')]
        """

    def note(self, run_id: str, name: str, text: str) -> None:
        """Keep a text beside a run, such as its score, in the place of an earlier one of that name; whoever writes to the run.

        Example:
            >>> from agentlab.storage import MemoryStorage, StoredHead, StoredStep
            >>> place = MemoryStorage()
            >>> place.begin(StoredHead("r1", 1.5, "this process", "{}"))
            >>> place.note("r1", "score", "1.0")
            >>> place.notes("score")
            {'r1': '1.0'}
        """

    def notes(self, name: str, run_ids: Iterable[str] | None = None) -> dict[str, str]:
        """The texts of that name, of all runs or of those, by the ids of the runs that have one.

        Example:
            >>> from agentlab.storage import MemoryStorage, StoredHead, StoredStep
            >>> place = MemoryStorage()
            >>> place.begin(StoredHead("r1", 1.5, "this process", "{}"))
            >>> place.note("r1", "score", "1.0")
            >>> place.notes("score"), place.notes("remark")
            ({'r1': '1.0'}, {})
        """

    def delete(self, run_id: str) -> None:
        """Forget a run, and what is noted of it.

        Example:
            >>> from agentlab.storage import MemoryStorage, StoredHead, StoredStep
            >>> place = MemoryStorage()
            >>> place.begin(StoredHead("r1", 1.5, "this process", "{}"))
            >>> place.delete("r1")
            >>> place.runs()
            []
        """

    def close(self) -> None:
        """Let go of the place; to close twice does no harm.

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


def check_writer(run_id: str, now: str, given: str) -> None:
    """Raises StorageError where a run is written by somebody else than whoever is given.

    Example:
        >>> from agentlab.storage import check_writer
        >>> check_writer("r1", "another process", "this process")
        Traceback (most recent call last):
            ...
        agentlab.errors.StorageError: The run 'r1' was resumed, and is written by another process by now: what is done...
    """
    if now != given:
        raise StorageError(
            f"The run {run_id!r} was resumed, and is written by {now} by now: what is done with it here is not kept."
        )


def check_order(run_id: str, kept: int, steps: Sequence[StoredStep]) -> None:
    """Raises StorageError where these steps do not follow on so many that are kept.

    Example:
        >>> from agentlab.storage import StoredStep, check_order
        >>> check_order("r1", 2, [StoredStep(4, "{}", "{}")])
        Traceback (most recent call last):
            ...
        agentlab.errors.StorageError: The run 'r1' has 2 steps: [4] do not follow on that.
    """
    if [step.step for step in steps] != list(range(kept + 1, kept + 1 + len(steps))):
        raise StorageError(f"The run {run_id!r} has {kept} steps: {[step.step for step in steps]} do not follow on that.")

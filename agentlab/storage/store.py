"""A store records runs: every step is durable as soon as it is complete, and an interrupted run can be resumed from there.

store = lab.Store("runs.db")                           # a SQLite file; lab.Store() is in memory
agent = lab.Agent("…", tools=[…], observers=[store])   # records all runs of the agent, branches too
store.frame("runs")                                    # their state: ended, open, interrupted
run = store.resume(run_id, agent)                      # resumes after the last finished step
run = store.load(run_id)                               # to read: its panel, frames, forks
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import asdict, replace
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeAlias
from weakref import WeakValueDictionary

from agentlab._internal.display import Displayable
from agentlab.agent import Agent, Run
from agentlab.engine.branches import set_caller, set_parent
from agentlab.engine.termination import Policy
from agentlab.engine.worker import RunState
from agentlab.errors import ConfigurationError, StorageError
from agentlab.limits.settings import RunSettings
from agentlab.model.messages import ToolCall
from agentlab.records import events
from agentlab.records.provenance import LazySetup, this_process
from agentlab.records.result import Out, RunResult
from agentlab.storage import MemoryStorage, SqliteStorage, Storage, StoredRun
from agentlab.storage.loader import RESUMED_NOTE, check_resumable, load_run
from agentlab.storage.sqlite import IN_MEMORY
from agentlab.storage.writer import RunWriter, active_writers, is_writer_alive, is_writer_here, store_note, writer_text
from agentlab.subagent import SubAgent

if TYPE_CHECKING:
    import pandas as pd

Where: TypeAlias = str | Path | Storage | None

RunId: TypeAlias = str | Run[Any] | RunResult[Any]

ENDED, OPEN, INTERRUPTED = "ended", "open", "interrupted"


def id_of(given: RunId) -> str:
    """Return the id of a run, which may be given as the run or its result. Raises ConfigurationError for anything else."""
    found = given if isinstance(given, str) else given.run_id if isinstance(given, RunResult) else getattr(given, "id", None)
    if not isinstance(found, str):
        raise ConfigurationError(f"{given!r} is not the id of a run: pass the id, the run, or its result.")
    return found


class Store(Displayable):
    """Runs and all their steps, stored in `where`: a path, None for memory, or a Storage of your own.

    A store is an observer: pass it to an agent or to a run. Steps that cannot be written (a full disk) stay in memory, with a warning,
    and are written later. Any thread may use a store, and several processes may share a file. The provider's key is never written.
    A `run_id` may also be the run or its result.

    Example:
        >>> store = lab.Store()  # lab.Store("runs.db") is a file
        >>> keeping = lab.Agent(ScriptedProvider(["Paris."]), observers=[store])
        >>> result = await keeping.run("What is the capital of France?")
        >>> store.frame("runs")[["prompt", "state", "steps"]]
                                   prompt  state  steps
        0  What is the capital of France?  ended      1
        >>> store.load(result.run_id).messages[-1].text
        'Paris.'
    """

    def __init__(self, where: Where = None) -> None:
        self.storage: Storage = (
            MemoryStorage() if where is None else SqliteStorage(where) if isinstance(where, str | Path) else where
        )
        if not hasattr(self.storage, "runs"):
            raise ConfigurationError(f"Store({where!r}): pass a path, None for memory, or a Storage.")
        self._writers: WeakValueDictionary[str, RunWriter] = WeakValueDictionary()  # weak, so that the store keeps no run alive
        self._unsaved_writers: dict[str, RunWriter] = {}

    # Recording ----------------------------------------------------------------------------------------------------------------

    def follow_run(self, run: Run) -> RunWriter:
        """Return the observer of this run; a run calls this when it starts."""
        writer = self._writers.get(run.id)
        if writer is None or writer.run is not run:
            writer = self._writers[run.id] = RunWriter(self.storage, run, self._unsaved_writers)
        return writer

    def __call__(self, event: events.Event) -> None:
        """Raises ConfigurationError: a store needs the run itself, so it observes through `follow_run`."""
        if isinstance(event, events.StepStarted):
            raise ConfigurationError("A store cannot be passed to run.observe(…) during a run: call store.keep(run).")

    def keep(self, run: Run) -> Run:
        """Record this run from now on, with all its steps so far, and later its sub-agents' runs and forks; return the same run.

        Retries failed writes. Raises StorageError if the run cannot be written.

        Example:
            >>> store = lab.Store()
            >>> store.keep(ended) is ended
            True
            >>> store.state(ended.id)
            'ended'
        """
        if not hasattr(run, "timeline"):
            raise ConfigurationError(
                f"keep({type(run).__name__}): pass the run itself, store.keep(run), before or after its end."
            )
        writer = self.follow_run(run)
        if self not in run.timeline.observers and writer not in run.timeline.observers:
            run.observe(writer)
        run.timeline.inherit(self)
        writer.save()
        return run

    def let_go(self, run: Run) -> None:
        """Stop recording this run; the store then lists it as interrupted after its last finished step.

        Example:
            >>> store = lab.Store()
            >>> run = store.keep(endless.run("?"))
            >>> step = await run.step()
            >>> store.let_go(run)
            >>> store.state(run.id)
            'interrupted'
        """
        writer = self._writers.pop(run.id, None)
        if writer is not None:
            writer.release()
            run.timeline.forget(writer)

    def save(self) -> None:
        """Retry failed writes. Raises StorageError if they fail again.

        Example:
            >>> store = lab.Store()
            >>> result = await store.keep(brief.run("?"))
            >>> store.save()  # everything was written already
            >>> store.unsaved
            {}
        """
        for writer in list(self._unsaved_writers.values()):
            writer.save()

    @property
    def unsaved(self) -> dict[str, int]:
        """The runs that could not be written completely, each with the number of its steps that are only in memory.

        Example:
            >>> store = lab.Store()
            >>> result = await store.keep(brief.run("?"))
            >>> store.unsaved
            {}
        """
        return {run_id: writer.unsaved for run_id, writer in list(self._unsaved_writers.items())}

    def unsaved_run(self, run_id: str) -> Run | None:
        """Return the run if it could not be written completely."""
        writer = self._unsaved_writers.get(run_id)
        return None if writer is None else writer.run

    # Reading ----------------------------------------------------------------------------------------------------------------

    def run_ids(self) -> list[str]:
        """Return the ids of all runs, in the order in which they began.

        Example:
            >>> store = lab.Store()
            >>> run = store.keep(brief.run("?").with_id("first"))
            >>> result = await run
            >>> store.run_ids()
            ['first']
        """
        return [stored.head.run_id for stored in self.storage.runs()]

    def state(self, run_id: RunId) -> str:
        """Return the state of a run: `ended`; `open` if a live process writes it, or a process on another machine, which cannot be
        checked; `interrupted` if that process ended, or released the run, before the run's end.

        Example:
            >>> store = lab.Store()
            >>> run = store.keep(endless.run("?"))
            >>> step = await run.step()
            >>> store.state(run.id)
            'open'
            >>> run.stop()
            >>> store.state(run.id)
            'ended'
        """
        return self.state_of(self._one(run_id))

    def state_of(self, stored: StoredRun) -> str:
        """Return the state of a run that was read from the storage."""
        if stored.end is not None:
            return ENDED
        if is_writer_here(stored.head.writer):
            return INTERRUPTED if active_writers.get(stored.head.writer) is None else OPEN
        return INTERRUPTED if is_writer_alive(stored.head.writer) is False else OPEN

    def load(
        self,
        run_id: RunId,
        agent: Agent[Out] | None = None,
        *,
        stop: object = None,
        policy: Policy | None = None,
        approve: object = None,
    ) -> Run[Out]:
        """Return the stored run, for reading and forking. If it is continued, further steps are not recorded; its forks are recorded if
        the store observes the agent.

        `agent` is needed to continue a run that had tools, since functions cannot be stored. Your own stop conditions and policies are
        stored by name only: the agent's default of that name is used, unless you pass `stop`, `policy` or `approve` again.

        Example:
            >>> store = lab.Store()
            >>> result = await store.keep(brief.run("?").with_id("first"))
            >>> store.load("first").to_frame()[["step", "text"]]
               step    text
            0     1  Paris.
            >>> store.load("second")
            Traceback (most recent call last):
                ...
            agentlab.errors.StorageError: There is no run 'second' in this store, which has 1 run.
        """
        run = load_run(self.storage, self._one(run_id), agent, stop=stop, policy=policy, approve=approve)
        self._connect(run)
        return run

    def _connect(self, run: Run) -> None:
        """Load the runs of the run's sub-agents on first access."""
        run.branches.recall = self._recall
        run.branches.recall_children = self._load_children

    def _recall(self, run_id: str, agent: Agent, settings: RunSettings) -> Run:
        """Return the run of a sub-agent whose tool has these settings, for continuing it."""
        run = load_run(self.storage, self._one(run_id), agent, defaults=settings)
        check_resumable(run)
        self._connect(run)
        return run

    def _load_children(self, run: Run) -> None:
        """Load the runs of the sub-agents in a run's history as its children, read-only; deleted or damaged ones are left out."""
        loaded: dict[str, Run] = {}
        for use in chain(*(step.children for step in run.history), run.history.cut_off):
            child = self._load_child(run, use.run_id, use.tool)
            if child is None:
                continue
            self._connect(child)
            origin = child.origin
            parent = None if origin.forked_at is None else loaded.get(origin.parent_run_id or "")
            if parent is not None:
                set_parent(child, parent)
            set_caller(child, run, origin.parent_step or 0, origin.called_by or use.call_id)
            child.stepper.context.origin = replace(child.origin, parent_run_id=origin.parent_run_id)
            loaded[child.id] = child

    def _load_child(self, caller: Run, run_id: str, tool: str) -> Run | None:
        sub_agent = getattr(getattr(caller.agent.tools.get(tool), "function", None), "__self__", None)
        own = (sub_agent.agent, sub_agent.settings) if isinstance(sub_agent, SubAgent) else (None, None)
        for agent, settings in (own, (None, None)):  # if the tool has another agent now, the run can still be read
            try:
                child = load_run(self.storage, self._one(run_id), agent, defaults=settings)
            except ConfigurationError:
                continue
            except StorageError:
                return None
            child.stepper.context.transport, child.branches.was_loaded = caller.stepper.context.transport, True
            return child
        return None

    def resume(
        self,
        run_id: RunId,
        agent: Agent[Out] | None = None,
        *,
        stop: object = None,
        policy: Policy | None = None,
        approve: object = None,
        again: Callable[[ToolCall], bool | Awaitable[bool]] | None = None,
        take_over: bool = False,
    ) -> Run[Out]:
        """Return the run, to continue after its last finished step under the same id. A Run object of it in this process is no longer
        recorded.

        An interrupted step is taken again, under the limits of the step before it, so a tool may run twice. A tool with
        `idempotent=False` that was started in that step does not run twice: its next call gets an error result, which says that it may
        have run. `again`, a function of that call, sync or async, is called first: if it returns True, the tool is executed; if it
        raises, the tool is not executed. The same applies to branches that begin before that call.

        A step that waits for approval is continued, not taken again: `run.pending` lists its calls, and decisions are kept. A call that
        was begun when its process ended is asked about again. `approve` replaces the tools and conditions that ask a person from now
        on; it releases no call that waits already.

        `take_over` resumes a run that another process seems to write, such as a process on a lost machine. Raises ConfigurationError if
        the run has ended or is running, and if its tools or other functions are missing.

        Example:
            >>> store = lab.Store()
            >>> run = store.keep(endless.run("?", stop=lab.StepCountIs(3)))
            >>> step = await run.step()
            >>> store.let_go(run)  # as if the process had ended here
            >>> result = await store.resume(run.id, endless)
            >>> len(result.history), result.stop_reason
            (3, <StopReason.STOP_CONDITION: 'stop_condition'>)
        """
        if again is not None and not callable(again):
            raise ConfigurationError(
                f"resume(again={again!r}): pass a function that takes the call, such as again=lambda call: True."
            )
        stored = self._one(run_id)
        self._check_state(stored, take_over=take_over)
        run = load_run(self.storage, stored, agent, stop=stop, policy=policy, approve=approve)
        check_resumable(run)
        self._connect(run)
        run.stepper.context.again = again
        writer = RunWriter(self.storage, run, self._unsaved_writers, begun=True)
        self.storage.claim(run.id, writer.writer, instead_of=stored.head.writer)
        self._note_process(run)
        self._writers[run.id] = writer
        others = [one for one in run.agent.observers if not self._is_of_my_place(one)]
        run.timeline.observers = (*others, writer)
        run.timeline.inherit(self)
        return run

    def _is_of_my_place(self, observer: object) -> bool:
        """True for this store, and for another one of the same file: in a notebook, the cell that opens it was run again."""
        if observer is self or not isinstance(observer, Store):
            return observer is self
        path = getattr(self.storage, "path", IN_MEMORY)
        return path != IN_MEMORY and getattr(observer.storage, "path", None) == path

    def _note_process(self, run: Run) -> None:
        """Store the process that resumes a run, if its versions or its commit differ from those before."""
        setup, now = run.stepper.context.setup.get(), this_process()
        if now != [setup.process, *setup.resumed_in][-1]:
            setup = replace(setup, resumed_in=(*setup.resumed_in, now))
            store_note(self.storage, run.id, RESUMED_NOTE, list(map(asdict, setup.resumed_in)))
            run.stepper.context.setup = LazySetup(setup=setup)

    def _check_state(self, stored: StoredRun, *, take_over: bool) -> None:
        run_id, state = stored.head.run_id, self.state_of(stored)
        if state == ENDED:
            raise ConfigurationError(
                f"The run {run_id!r} has ended: branch it with store.load({run_id!r}, agent).fork(at={stored.steps}, …)."
            )
        here = active_writers.get(stored.head.writer)
        if here is None:
            if state == OPEN and not take_over:
                raise ConfigurationError(
                    f"The run {run_id!r} is running in {writer_text(stored.head.writer)}: stop it there first or, if that process is "
                    "gone, call resume(…, take_over=True)."
                )
        elif here.run.state is RunState.ENDED:
            raise ConfigurationError(
                f"The run {run_id!r} has ended, but its end could not be written yet: call store.save() first."
            )
        elif here.run.state is not RunState.READY and (here.run.stepper.affinity.is_busy or not here.run.pending):
            raise ConfigurationError(f"The run {run_id!r} is running in this process: use that Run object, or stop it first.")

    def delete(self, run_id: RunId) -> None:
        """Delete a run. Raises ConfigurationError if a live process writes it.

        Example:
            >>> store = lab.Store()
            >>> result = await store.keep(brief.run("?"))
            >>> store.delete(result.run_id)
            >>> store.run_ids()
            []
        """
        stored = self._one(run_id)
        if self.state_of(stored) == OPEN:
            raise ConfigurationError(f"The run {stored.head.run_id!r} is running: stop it before you delete it.")
        self.storage.delete(stored.head.run_id)

    def frame(self, what: str = "runs", run_ids: Iterable[RunId] | None = None) -> pd.DataFrame:
        """Return all runs, or the given ones, as a DataFrame: `runs`, with their state, `steps`, `calls`, `tools`, `events`, `readings`
        or `termination`.

        Example:
            >>> store = lab.Store()
            >>> result = await store.keep(brief.run("?"))
            >>> store.frame("steps")[["step", "finish_reason", "total_tokens"]]
               step finish_reason  total_tokens
            0     1      end_turn            15
        """
        from agentlab.storage.frames import frame

        return frame(self, what, run_ids)

    def export(self, folder: str | Path) -> None:
        """Write all runs as runs.parquet, steps.parquet, calls.parquet and tools.parquet into a folder, replacing an earlier export.
        Any Parquet reader can read them: they have the columns of the frames. Needs the extra `agentlab-jupyter[parquet]`.

        Example:
            >>> from pathlib import Path
            >>> from tempfile import mkdtemp
            >>> store = lab.Store()
            >>> result = await store.keep(brief.run("?"))
            >>> folder = Path(mkdtemp())
            >>> store.export(folder)
            >>> sorted(path.name for path in folder.iterdir())
            ['calls.parquet', 'runs.parquet', 'steps.parquet', 'tools.parquet']
        """
        from agentlab.storage.parquet import export

        export(self, folder)

    def import_from(self, folder: str | Path) -> list[str]:
        """Add the runs that `export` wrote into a folder; return the ids of the new ones. Needs the same extra.

        A run that is already in this store is not changed. Raises StorageError if it differs from the exported one, and for files that
        are not an export.

        Example:
            >>> from tempfile import mkdtemp
            >>> folder, store = mkdtemp(), lab.Store()
            >>> result = await store.keep(brief.run("?"))
            >>> store.export(folder)
            >>> lab.Store().import_from(folder) == store.run_ids()
            True
        """
        from agentlab.storage.parquet import import_from

        return import_from(self, folder)

    def _one(self, run_id: RunId) -> StoredRun:
        return self.storage.runs([id_of(run_id)])[0]

    def close(self) -> None:
        """Close the file.

        Example:
            >>> from pathlib import Path
            >>> from tempfile import mkdtemp
            >>> path = Path(mkdtemp()) / "runs.db"
            >>> with lab.Store(path) as store:  # closed at the end
            ...     result = await store.keep(brief.run("?"))
            >>> with lab.Store(path) as store:
            ...     print(len(store.run_ids()))
            1
        """
        self.storage.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __reduce__(self) -> tuple[type[Store], tuple[Storage]]:
        return Store, (self.storage,)  # another process opens the same storage; the runs stay here

    def __repr__(self) -> str:
        return f"Store({getattr(self.storage, 'path', type(self.storage).__name__)!r})"

"""A store keeps runs: every step is durable as soon as it happened, and a run that was cut off goes on from there.

store = lab.Store("runs.db")                           # a SQLite file; lab.Store() is memory, for play
agent = lab.Agent("…", tools=[…], observers=[store])   # keeps all runs of the agent, branches too
store.frame("runs")                                    # how they stand: ended, open, interrupted
run = store.resume(run_id, agent)                      # goes on after the last finished step
run = store.load(run_id)                               # to look at: its panel, frames, forks
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeAlias
from weakref import WeakValueDictionary

from agentlab import events, sugar
from agentlab.agent import Agent
from agentlab.engine.worker import RunState
from agentlab.errors import ConfigurationError
from agentlab.run import Run
from agentlab.settings import RunSettings
from agentlab.shown import Shown
from agentlab.storage import MemoryStorage, SqliteStorage, Storage, StoredRun, writers
from agentlab.storage.children import put_back
from agentlab.storage.keeper import Keeper, at_work
from agentlab.storage.rebuild import rebuilt, refuse_what_is_forgotten
from agentlab.termination import Policy
from agentlab.types import ToolCall

if TYPE_CHECKING:
    import pandas as pd

Where: TypeAlias = str | Path | Storage | None

ENDED, OPEN, INTERRUPTED = "ended", "open", "interrupted"


class Store(Shown):
    """Runs and all their steps, kept where `where` says: a path, None for memory, or a Storage of your own.

    It is an observer: give it to an agent or to a run. What cannot be written (a full disk) stays in memory, with a warning, and is
    written later. Any thread may use it, and several processes may share a file. The provider's key is never written.

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
        self._keepers: WeakValueDictionary[str, Keeper] = WeakValueDictionary()  # a run that nobody holds is not held here either
        self._behind: dict[str, Keeper] = {}

    # Keeping ----------------------------------------------------------------------------------------------------------------

    def follow_run(self, run: Run) -> Keeper:
        """The observer of this one run; a run asks for it when it begins."""
        keeper = self._keepers.get(run.id)
        if keeper is None or keeper.run is not run:
            keeper = self._keepers[run.id] = Keeper(self.storage, run, self._behind)
        return keeper

    def __call__(self, event: events.Event) -> None:
        """Raises ConfigurationError: an event does not say whose it is, so only `follow_run` knows what to do with it."""
        if isinstance(event, events.TurnStarted):
            raise ConfigurationError("A store cannot be handed to run.observe(…) in mid-run: store.keep(run) does that.")

    def keep(self, run: Run) -> Run:
        """Keep this run from here on, with all that it has done so far, and what comes from it later: sub-agents' runs and forks. The
        same run comes back. What could not be written before is tried again. Raises StorageError where it cannot be written.

        Example:
            >>> store = lab.Store()
            >>> store.keep(ended) is ended
            True
            >>> store.state(ended.id)
            'ended'
        """
        keeper = self.follow_run(run)
        if self not in run.timeline.observers and keeper not in run.timeline.observers:
            run.observe(keeper)
        run.timeline.inherit(self)
        keeper.save()
        return run

    def let_go(self, run: Run) -> None:
        """Keep nothing more of what this run does: as far as the store is concerned it is interrupted, after its last finished step.

        Example:
            >>> store = lab.Store()
            >>> run = store.keep(endless.run("?"))
            >>> step = await run.step()
            >>> store.let_go(run)
            >>> store.state(run.id)
            'interrupted'
        """
        keeper = self._keepers.pop(run.id, None)
        if keeper is not None:
            keeper.let_go()
            run.timeline.forget(keeper)

    def save(self) -> None:
        """Try again to write what could not be written before. Raises StorageError where it still cannot be.

        Example:
            >>> store = lab.Store()
            >>> result = await store.keep(brief.run("?"))
            >>> store.save()  # nothing was left to write
            >>> store.unsaved
            {}
        """
        for keeper in list(self._behind.values()):
            keeper.save()

    @property
    def unsaved(self) -> dict[str, int]:
        """The runs that could not be written as they are, and how many of their steps are in memory only.

        Example:
            >>> store = lab.Store()
            >>> result = await store.keep(brief.run("?"))
            >>> store.unsaved
            {}
        """
        return {run_id: keeper.unsaved for run_id, keeper in list(self._behind.items())}

    def unsaved_run(self, run_id: str) -> Run | None:
        """The run, where it could not be written as it is."""
        keeper = self._behind.get(run_id)
        return None if keeper is None else keeper.run

    # Reading ----------------------------------------------------------------------------------------------------------------

    def run_ids(self) -> list[str]:
        """The ids of all runs, in the order in which they began.

        Example:
            >>> store = lab.Store()
            >>> run = store.keep(brief.run("?").with_id("first"))
            >>> result = await run
            >>> store.run_ids()
            ['first']
        """
        return [kept.head.run_id for kept in self.storage.runs()]

    def state(self, run_id: str) -> str:
        """How the run stands: `ended`; `open`, where a living process has it (or one on another machine, of which that cannot be
        said); `interrupted`, where that process is gone, or has let go of the run, and it has not ended.

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

    def state_of(self, kept: StoredRun) -> str:
        """The same of what was read from the storage."""
        if kept.end is not None:
            return ENDED
        if writers.is_here(kept.head.writer):
            return INTERRUPTED if at_work.get(kept.head.writer) is None else OPEN
        return INTERRUPTED if writers.is_alive(kept.head.writer) is False else OPEN

    def load(self, run_id: str, agent: Agent | None = None, *, stop: object = None, policy: Policy | None = None) -> Run:
        """The run as it stands, to look at and to fork. What it does from here on is not kept; its forks are, where the store observes
        the agent.

        `agent` is needed to go on with it where it had tools, since functions cannot be kept. A stop condition or a policy of your own
        is kept by its name only: it is the agent's default of that name, or pass it again with `stop` or `policy`.

        Example:
            >>> store = lab.Store()
            >>> result = await store.keep(brief.run("?").with_id("first"))
            >>> store.load("first").to_frame()[["step", "text"]]
               step    text
            0     1  Paris.
            >>> store.load("second")
            Traceback (most recent call last):
                ...
            agentlab.errors.StorageError: There is no run 'second' in this store, which holds 1 run.
        """
        run = rebuilt(self.storage, self._one(run_id), agent, stop=stop, policy=policy)
        self._ready(run)
        return run

    def _ready(self, run: Run) -> None:
        """Have the run know where its sub-agents' runs are to be had."""
        run.branches.recall = self._recall
        run.branches.recall_children = partial(put_back, self.storage, self._ready)

    def _recall(self, run_id: str, agent: Agent, settings: RunSettings) -> Run:
        """The run of a sub-agent, whose tool has these settings, to go on from."""
        run = rebuilt(self.storage, self._one(run_id), agent, defaults=settings)
        refuse_what_is_forgotten(run)
        self._ready(run)
        return run

    def resume(
        self,
        run_id: str,
        agent: Agent | None = None,
        *,
        stop: object = None,
        policy: Policy | None = None,
        again: Callable[[ToolCall], bool | Awaitable[bool]] | None = None,
        take_over: bool = False,
    ) -> Run:
        """The run, to go on after its last finished step, under the same id; a step that was cut off is taken again, with the limits
        that held for the step before. A Run of it that this process has had until now is no longer kept.

        So a tool may run twice. One with `idempotent=False` that was begun in that step does not: the next call of it gets an error
        result, which says that it may have run. `again`, a function of that call, sync or async, is asked first: True has it executed.
        Where `again` raises, the call is not executed. Branches that begin before that call are held in the same way.

        `take_over` resumes what another process seems to have, such as one of a machine that is gone. Raises ConfigurationError where
        the run has ended or is under way, and where its tools, or other functions, are missing.

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
            raise ConfigurationError(f"resume(again={again!r}): pass a function of the call, such as again=lambda call: True.")
        kept = self._one(run_id)
        self._refuse_to_resume(kept, take_over=take_over)
        run = rebuilt(self.storage, kept, agent, stop=stop, policy=policy)
        refuse_what_is_forgotten(run)
        self._ready(run)
        run.stepper.again = again
        keeper = Keeper(self.storage, run, self._behind, begun=True)
        self.storage.claim(run_id, keeper.writer, instead_of=kept.head.writer)
        self._keepers[run_id] = keeper
        others = run.agent.observers
        run.timeline.observers = (*[one for one in others if one is not self], keeper)
        run.timeline.inherit(self)
        return run

    def _refuse_to_resume(self, kept: StoredRun, *, take_over: bool) -> None:
        run_id, state = kept.head.run_id, self.state_of(kept)
        if state == ENDED:
            raise ConfigurationError(
                f"The run {run_id!r} has ended: branch it with store.load({run_id!r}, agent).fork(at={kept.steps}, …)."
            )
        here = at_work.get(kept.head.writer)
        if here is None:
            if state == OPEN and not take_over:
                raise ConfigurationError(
                    f"The run {run_id!r} is under way in {writers.told(kept.head.writer)}: end that one first; or, if you know that it "
                    "is gone, resume(…, take_over=True)."
                )
        elif here.run.state is RunState.ENDED:
            raise ConfigurationError(f"The run {run_id!r} has ended, which could not be written yet: call store.save() first.")
        elif here.run.state is not RunState.READY:
            raise ConfigurationError(
                f"The run {run_id!r} is under way in this very process: go on with that one, or stop it first."
            )

    def delete(self, run_id: str) -> None:
        """Forget a run. Raises ConfigurationError where a living process has it.

        Example:
            >>> store = lab.Store()
            >>> result = await store.keep(brief.run("?"))
            >>> store.delete(result.run_id)
            >>> store.run_ids()
            []
        """
        if self.state(run_id) == OPEN:
            raise ConfigurationError(f"The run {run_id!r} is under way: end it before it is deleted.")
        self.storage.delete(run_id)

    def frame(self, what: str = "runs", run_ids: Iterable[str] | None = None) -> pd.DataFrame:
        """All runs, or those, as a DataFrame: `runs`, with how they stand, `steps`, `calls`, `tools`, `events`, `readings` or
        `termination`.

        Example:
            >>> store = lab.Store()
            >>> result = await store.keep(brief.run("?"))
            >>> store.frame("steps")[["step", "finish_reason", "total_tokens"]]
               step finish_reason  total_tokens
            0     1      end_turn            15
        """
        made: pd.DataFrame = sugar.call("agentlab.storage.frames:frame", self, what, run_ids)
        return made

    def export(self, folder: str | Path) -> None:
        """Write all runs as runs.parquet and steps.parquet into a folder, in the place of an earlier export. Anything that reads
        Parquet can read them: they have the columns of the frames. Needs the extra `agentlab-jupyter[parquet]`.

        Example:
            >>> from pathlib import Path
            >>> from tempfile import mkdtemp
            >>> store = lab.Store()
            >>> result = await store.keep(brief.run("?"))
            >>> folder = Path(mkdtemp())
            >>> store.export(folder)
            >>> sorted(path.name for path in folder.iterdir())
            ['runs.parquet', 'steps.parquet']
        """
        sugar.call("agentlab.storage.parquet:export", self, folder)

    def import_from(self, folder: str | Path) -> list[str]:
        """Add the runs that `export` wrote into a folder; the ids of those that were not here yet. Needs the same extra.

        A run that is here already, as it is there, is left alone. Raises StorageError for one that is not the same, and for files that
        are no export.

        Example:
            >>> from tempfile import mkdtemp
            >>> folder, store = mkdtemp(), lab.Store()
            >>> result = await store.keep(brief.run("?"))
            >>> store.export(folder)
            >>> lab.Store().import_from(folder) == store.run_ids()
            True
        """
        added: list[str] = sugar.call("agentlab.storage.parquet:import_from", self, folder)
        return added

    def _one(self, run_id: str) -> StoredRun:
        return self.storage.runs([run_id])[0]

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
        return Store, (self.storage,)  # to another process goes the place, and none of the runs of this one

    def __repr__(self) -> str:
        return f"Store({getattr(self.storage, 'path', type(self.storage).__name__)!r})"

"""Keeps one run while it goes on: each step is durable before the next one begins."""

from __future__ import annotations

import contextlib
import json
import threading
import time
import warnings
from collections.abc import MutableMapping, Sequence
from decimal import Decimal
from typing import Any, cast
from weakref import WeakValueDictionary

from pydantic_core import to_json

from agentlab import events, message_json
from agentlab.agent import Agent
from agentlab.columns import RUN_COLUMNS, STEP_COLUMNS, Column, Source, StepRow, named_leaves, plain, step_rows
from agentlab.engine.snapshot import Hold, RunSnapshot
from agentlab.errors import AgentlabWarning, StorageError
from agentlab.history import RunHistory
from agentlab.redaction import Redactor, known_secrets, text_of
from agentlab.results import RunResult, StepResult
from agentlab.run import Run
from agentlab.storage import Storage, StoredHead, StoredStep, cut_off, run_json, writers
from agentlab.storage.but_for_keys import hidden
from agentlab.types import Message

OF_THE_RUN = ("run_id", "provider", "model")
"""Columns of the steps frame that are the same in every row of a run, and are put in when it is read."""

_WORTH_WRITING = (events.RunStarted, events.ChildStarted, events.ToolStarted, events.TurnCompleted, events.RunEnded)

at_work: WeakValueDictionary[str, Keeper] = WeakValueDictionary()
"""The keepers of this process, whichever store they belong to, by the name that they write under."""


class Keeper:
    """An observer of one run that writes what happened into a storage.

    What cannot be written stays in memory, is told once, and is tried again at the next step and at the end; until then the keeper
    stands in `behind`, which holds it (and the run) where nobody else does. `begun` is for a run that is kept already.
    """

    def __init__(self, storage: Storage, run: Run, behind: MutableMapping[str, Keeper], *, begun: bool = False) -> None:
        self.run = run
        self.writer = writers.new_name()
        self._storage, self._behind = storage, behind
        self._begun = begun
        self._steps = len(run.history) if begun else 0
        self._events = len(run.events) if begun else 0
        self._row_before = _row_before(run.history) if begun else None
        self._end: str | None = None
        self._hide = Redactor(secrets_of(run.agent)).text
        self._lock = threading.Lock()
        self._let_go = False
        self._called: list[tuple[str, str, str]] = []
        self._tools: list[Hold] = []
        at_work[self.writer] = self

    def __call__(self, event: events.Event) -> None:
        """Write what is new where a step is complete or the run is over."""
        if isinstance(event, _WORTH_WRITING):
            try:
                if isinstance(event, events.ChildStarted):
                    self._note(event)
                elif isinstance(event, events.ToolStarted):
                    self._note_tool(event)
                else:
                    self.save()
            except StorageError as error:
                self._tell(f"{error} What run {self.run.id} does stays in memory meanwhile; store.save() tries again.")

    def _tell(self, message: str) -> None:
        if self.run.result is None:
            self.run.timeline.warn_once(message)
        else:  # nothing comes behind the end of a run
            warnings.warn(message, AgentlabWarning, stacklevel=2)

    @property
    def unsaved(self) -> int:
        """Steps that are in memory only."""
        return self.run.timeline.whole_steps - self._steps

    def let_go(self) -> None:
        """Write nothing from here on; the run counts as interrupted, for other processes too."""
        self._let_go = True
        if self._begun:
            with contextlib.suppress(StorageError):  # else it does once this process has ended
                self._storage.claim(self.run.id, writers.NOBODY, instead_of=self.writer)
        at_work.pop(self.writer, None)
        self._behind.pop(self.run.id, None)

    def save(self) -> None:
        """Write all that is not kept yet. Raises StorageError where that cannot be done."""
        with self._lock:
            if self._let_go:
                return
            try:
                self._save()
            except StorageError:
                self._behind[self.run.id] = self
                raise
            self._behind.pop(self.run.id, None)

    def _note(self, event: events.ChildStarted) -> None:
        """Note a sub-agent of the step under way, before it uses anything: should the step be cut off, that is known then."""
        with self._lock:
            self._called.append((event.run_id, event.call_id, event.tool))
            if self._begun and not self._let_go:
                earlier = [(use.run_id, use.call_id, use.tool) for use in self.run.history.cut_off]
                note = cut_off.note_of(event.turn, [*earlier, *self._called])
                self._storage.note(self.run.id, cut_off.CALLED, hidden(note, self._hide))

    def _note_tool(self, event: events.ToolStarted) -> None:
        """Note a tool that must not run twice, before it runs; the others cost nothing here."""
        tool = self.run.agent.tools.get(event.tool_call.name)
        if tool is None or tool.idempotent:
            return
        with self._lock:
            self._tools.append(Hold(event.tool_call))
            self._write_tools(event.turn)

    def _write_tools(self, step: int) -> None:
        if self._begun and not self._let_go:
            self._storage.note(
                self.run.id, cut_off.BEGUN, hidden(cut_off.begun_note(step, [*self.run.stepper.holds, *self._tools]), self._hide)
            )

    def _save(self) -> None:
        run = self.run.stepper.snapshot()
        new = run.prefix.history[self._steps : run.steps]
        happened = [event for event in run.events[self._events :] if not isinstance(event, events.RunEnded)]
        sums = list(step_rows(new, self._row_before))
        steps = [self._stored(run, step, sums[place], () if place else happened) for place, step in enumerate(new)]
        end = None if run.result is None else self._end_text(run, run.result, () if new else happened)
        if not self._begun:
            self._storage.begin(StoredHead(run.run_id, time.time(), self.writer, self._text(_head(run))), steps, end)
            self._begun = True
            if run.holds:  # of the run that it branches from
                self._write_tools(self._steps + len(new) + 1)
        elif steps or end != self._end:
            self._storage.add(run.run_id, self.writer, steps, end)
        else:
            return
        self._end = end
        if new:
            before = self._steps
            self._steps, self._events = self._steps + len(new), self._events + len(happened)
            self._row_before = sums[-1]
            self._called, self._tools = [], []
            if any(hold.answered is None or hold.answered > before for hold in run.holds):
                self._write_tools(self._steps + 1)

    def _stored(self, run: RunSnapshot, step: StepResult, row: StepRow, happened: Sequence[events.Event]) -> StoredStep:
        """Of several steps at once, which only a failure or a fork brings about, the first has the events of all."""
        kept = run_json.plain_step(step, run.prefix.messages_of(step.index), happened)
        try:
            return StoredStep(step.index, self._text(self._row(run, step, row)), self._text(kept, plain=True))
        except (TypeError, ValueError, RecursionError) as error:  # a model or a policy of somebody's own gave what is no JSON
            raise StorageError(f"Step {step.index} of run {run.run_id} cannot be written as text: {error}.") from error

    def _row(self, run: RunSnapshot, step: StepResult, row: StepRow) -> dict[str, Any]:
        """The step's row of the steps frame, without what is unknown."""
        values = _values(STEP_COLUMNS, _source(run), row)
        if step.readings is not None:
            leaves = named_leaves(step.readings)
            values["leaves"] = {name: [plain(leaf.value), plain(leaf.limit), leaf.met] for name, leaf in leaves.items()}
        return values

    def _end_text(self, run: RunSnapshot, result: RunResult, happened: Sequence[events.Event]) -> str:
        history, settings = run.prefix.history, run.settings
        ended = [event.at_s for event in run.events[-1:] if isinstance(event, events.RunEnded)]
        last = history.last
        unfinished = [run_json.plain(use) for use in history.cut_off]
        return self._text(
            {
                **({"cut_off": unfinished} if unfinished else {}),
                "stop_reason": result.stop_reason.value,
                "detail": result.detail,
                "conditions_met": [run_json.plain(reading) for reading in result.conditions_met],
                "output": run_json.loosely(result.output),
                "error": run_json.plain(result.error),
                "stopped_by": result.stopped_by,
                "at_s": ended[0] if ended else run.elapsed_s,
                "row": _values(RUN_COLUMNS, _source(run), result),
                "events": [run_json.plain_event(event) for event in happened],
                "settings": None if last is not None and settings == last.settings else run_json.plain(settings),
            }
        )

    def _text(self, kept: object, *, plain: bool = False) -> str:
        """As JSON, without the provider's key and any other that is known, and without anything that looks like one. `plain`: there is
        nothing in it that JSON does not know."""
        return hidden(_plain_as_json(kept) if plain else _as_json(kept), self._hide)


def _head(run: RunSnapshot) -> dict[str, Any]:
    """What is known of a run before its first step, or before it was kept."""
    agent, origin = cast(Agent, run.agent), run.origin
    first: list[Message] = list(run.prefix.messages_of(0))
    return {
        "provider": agent.model.name,
        "model": agent.model.model,
        "agent": agent.name,
        "instructions": agent.instructions,
        "tools": list(agent.tools),
        "options": dict(agent.options),
        "stream": agent.stream,
        "can_be_made_again": agent.is_made_of_names,
        "prompt": run.prefix.prompt,
        "prompt_at": run.prefix.prompt_at,
        "parent_run_id": origin.parent_run_id,
        "forked_at": origin.forked_at,
        "parent_step": origin.parent_step,
        "called_by": origin.called_by,
        "steps_before": run.steps,
        "settings": run_json.plain(run.settings),
        "messages": [message_json.plain(message) for message in first],
    }


def _row_before(history: RunHistory) -> StepRow | None:
    """The sums of a run that is kept already."""
    if history.last is None:
        return None
    return StepRow(history.last, history.tokens, history.cost_usd, history.known_tokens, history.known_cost_usd)


def _source(run: RunSnapshot) -> Source:
    model, origin = run.agent.model, run.origin
    known = (run.result, run.prefix.prompt, origin.parent_run_id, origin.forked_at, origin.parent_step, origin.called_by)
    return Source(run.run_id, model.name, model.model, run.prefix.history, [], *known)


def _values(columns: tuple[Column, ...], source: Source, row: object) -> dict[str, Any]:
    """What is known of a row, by the names of the columns."""
    return {
        column.name: value
        for column in columns
        if column.name not in OF_THE_RUN and (value := column.read(source, row)) is not None
    }


def _plain_as_json(kept: object) -> str:
    """The same in a fifth of the time; what the quick way refuses, half a surrogate pair and depths of nesting, as ever."""
    try:
        return to_json(kept, fallback=_number).decode()
    except ValueError:
        return _as_json(kept)


def _number(value: object) -> object:
    return float(value) if isinstance(value, Decimal) else text_of(value)


_as_json = json.JSONEncoder(separators=(",", ":"), default=_number).encode


def secrets_of(agent: Agent) -> tuple[str, ...]:
    """The keys that the run's provider sends: a server may repeat them anywhere in what it says."""
    provider = getattr(agent.model, "provider", None)
    try:
        headers = provider.auth_headers() if provider is not None else {}
    except Exception:  # no key is set: there is none to be seen
        return ()
    return tuple(known_secrets(headers.values()))

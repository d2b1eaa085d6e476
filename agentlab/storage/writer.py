"""Records one run while it runs: each step is durable before the next one begins. Keys are removed here, before writing."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import socket
import sys
import threading
import time
import uuid
import warnings
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from copy import copy
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any, cast
from weakref import WeakValueDictionary

from pydantic_core import to_json

from agentlab._internal.redaction import Redactor, known_secrets, redact, text_of
from agentlab._internal.safe_text import one_line
from agentlab.agent import Agent, Run
from agentlab.engine.plan import Hold, RunSnapshot
from agentlab.errors import AgentlabWarning, StorageError
from agentlab.model import messages as message_json
from agentlab.model.messages import Message
from agentlab.records import events
from agentlab.records.columns import RUN_COLUMNS, STEP_COLUMNS, Column, Source, StepRow, named_leaves, plain, step_rows
from agentlab.records.history import RunHistory
from agentlab.records.result import RunResult
from agentlab.records.step import StepResult
from agentlab.storage import Storage, StoredHead, StoredStep, codec
from agentlab.storage.base import PART_NOTE
from agentlab.storage.codec import Redact, redact_json
from agentlab.storage.loader import BEGUN_TOOLS_NOTE, SUB_AGENTS_NOTE, WAITING_NOTE, holds_note

if sys.platform != "emscripten":  # which has one process for each page
    import psutil

RUN_CONSTANT_COLUMNS = ("run_id", "provider", "model", "parent_run_id", "called_by")
"""Columns of the steps frame that are constant within a run: they are not stored, but added on reading."""

_PROGRESS = ("_begun", "_steps", "_events", "_row_before", "_end", "_kept", "_children", "_tools")

active_writers: WeakValueDictionary[str, RunWriter] = WeakValueDictionary()
"""The writers of this process, of all stores, by their names."""


class RunWriter:
    """An observer of one run that writes it into a storage.

    Failed writes stay in memory, with one warning, and are tried again at the next step and at the end. Until then the writer is in
    `unsaved_writers`, which keeps it and the run alive. `begun` is True for a run that is stored already.
    """

    def __init__(
        self, storage: Storage, run: Run, unsaved_writers: MutableMapping[str, RunWriter], *, begun: bool = False
    ) -> None:
        self.run = run
        self.writer = new_writer_name()
        self._storage, self._unsaved_writers = storage, unsaved_writers
        self._begun = begun
        self._steps = len(run.history) if begun else 0
        self._events = len(run.events) if begun else 0
        self._row_before = _last_row(run.history) if begun else None
        self._end: str | None = None
        self._redact = Redactor(secrets_of(run.agent)).text
        self._kept: set[str] = set()
        self._lock = threading.Lock()
        self._released = False
        self._children: list[tuple[str, str, str]] = []
        self._tools: list[Hold] = []
        self._under_way = ""
        active_writers[self.writer] = self

    def __call__(self, event: events.Event) -> None:
        """Write new data when a step is complete or the run has ended; note sub-agents and tools before they start."""
        try:
            match event:
                case events.RunStarted():
                    self.save()
                    self._note_waiting()
                case events.StepCompleted() | events.RunEnded():
                    self.save()
                case events.ChildStarted():
                    self._note_child(event)
                case events.ToolStarted():
                    self._note_tool(event)
                    self._under_way = event.tool_call.id
                    self._note_waiting()
                case events.ToolFinished():
                    self._under_way = ""
                    self._note_waiting()
                case events.ApprovalRequested() | events.ApprovalGiven() | events.RunPaused() | events.RunResumed():
                    self._note_waiting()
        except StorageError as error:
            message = f"{error} The run {self.run.id} stays in memory until then; store.save() tries again."
            if self.run.result is None:
                self.run.timeline.warn_once(message)
            else:  # no event may follow the end of a run
                warnings.warn(message, AgentlabWarning, stacklevel=2)

    @property
    def unsaved(self) -> int:
        """The number of steps that are only in memory."""
        return self.run.timeline.complete_steps - self._steps

    def release(self) -> None:
        """Stop writing; the run counts as interrupted, for other processes too."""
        self._released = True
        if self._begun:
            with contextlib.suppress(StorageError):  # without this, it counts as interrupted once this process has ended
                self._storage.claim(self.run.id, NOBODY, instead_of=self.writer)
        active_writers.pop(self.writer, None)
        self._unsaved_writers.pop(self.run.id, None)

    def save(self) -> None:
        """Write everything that is not stored yet. Raises StorageError if that fails."""
        with self._lock:
            if self._released:
                return
            try:
                self._save()
            except StorageError:
                self._unsaved_writers[self.run.id] = self
                raise
            self._unsaved_writers.pop(self.run.id, None)

    def progress(self) -> dict[str, Any]:
        """Return what is stored so far, for `set_back`."""
        return {name: copy(getattr(self, name)) for name in _PROGRESS}

    def set_back(self, progress: dict[str, Any]) -> None:
        """Forget writes that were taken back."""
        for name, value in progress.items():
            setattr(self, name, value)

    def _note_child(self, event: events.ChildStarted) -> None:
        """Note a sub-agent before it starts, so that its usage is known if the step is interrupted."""
        with self._lock:
            self._children.append((event.child_id, event.call_id, event.tool))
            earlier = [(use.run_id, use.call_id, use.tool) for use in self.run.history.cut_off]
            self._note(SUB_AGENTS_NOTE, {"step": event.step, "children": [*earlier, *self._children]})

    def _note_tool(self, event: events.ToolStarted) -> None:
        """Note a call of a tool that must not run twice, before it runs."""
        tool = self.run.agent.tools.get(event.tool_call.name)
        if tool is not None and not tool.idempotent:
            with self._lock:
                self._tools.append(Hold(event.tool_call))
                self._note_holds(event.step)

    def _note_waiting(self) -> None:
        """Note a step that has waited for approval since it began: what it has so far, and the decisions."""
        run, context = self.run, self.run.stepper.context
        approvals, builder = context.control.approvals, context.builder
        if not approvals.asked or builder is None or run.timeline.complete_steps != self._steps:
            return
        with self._lock:
            prefix, step = run.timeline.prefix(), builder.build(run.timeline)
            begin = prefix.marks[-1] if prefix.marks else prefix.first_length
            self._keep_parts([*run.messages[begin:], Message("tool", tool_results=step.tool_results)])
            body = codec.step_to_jsonable(step, run.messages[begin:], run.events[self._events :])
            asked = [codec.to_jsonable(call) for call in tuple(approvals.asked.values())]
            given = {call_id: codec.to_jsonable(one) for call_id, one in dict(approvals.given).items()}
            now = {"begun": self._under_way, "at": datetime.now(UTC).isoformat(), "paused": run.control.is_paused}
            self._note(WAITING_NOTE, {"step": step.index, "body": body, "asked": asked, "given": given, **now})

    def _note_holds(self, step: int) -> None:
        self._note(BEGUN_TOOLS_NOTE, holds_note(step, [*self.run.stepper.context.holds, *self._tools]))

    def _note(self, name: str, value: object) -> None:
        if self._begun and not self._released:
            store_note(self._storage, self.run.id, name, value, self._redact)

    def _keep_parts(self, messages: Iterable[Message]) -> None:
        """Store the bytes of images and files, each once, before what refers to them."""
        new = {part.sha256: part for message in messages for part in message.all_parts() if part.is_held}
        for sha256 in new.keys() - self._kept:
            if self._begun and not self._released:
                self._storage.note(self.run.id, PART_NOTE + sha256, new[sha256].base64)
                self._kept.add(sha256)

    def _save(self) -> None:
        run = self.run.stepper.context.snapshot()
        new = run.prefix.history[self._steps : run.steps]
        happened = [event for event in run.events[self._events :] if not isinstance(event, events.RunEnded)]
        sums = list(step_rows(new, self._row_before))
        steps = [self._stored(run, step, sums[place], () if place else happened) for place, step in enumerate(new)]
        end = None if run.result is None else self._end_text(run, run.result, () if new else happened)
        said = run.prefix.messages_of(0) if not self._begun else ()
        said = [*said, *(message for step in new for message in run.prefix.messages_of(step.index))]
        said += [Message("tool", tool_results=step.tool_results) for step in new]
        if not self._begun:
            head = StoredHead(run.run_id, time.time(), self.writer, self._text(_head(run)))
            has_parts = any(True for message in said for _ in message.all_parts())
            self._storage.begin(head, () if has_parts else steps, None if has_parts else end)
            self._begun = True
            if has_parts:
                self._keep_parts(said)
                self._storage.add(run.run_id, self.writer, steps, end)
            if run.holds:  # inherited from the run that this run branches from
                self._note_holds(self._steps + len(new) + 1)
        elif steps or end != self._end:
            self._keep_parts(said)
            self._storage.add(run.run_id, self.writer, steps, end)
        else:
            return
        self._end = end
        if new:
            before = self._steps
            self._steps, self._events = self._steps + len(new), self._events + len(happened)
            self._row_before = sums[-1]
            self._children, self._tools = [], []
            if any(hold.answered is None or hold.answered > before for hold in run.holds):
                self._note_holds(self._steps + 1)

    def _stored(self, run: RunSnapshot, step: StepResult, row: StepRow, happened: Sequence[events.Event]) -> StoredStep:
        """Encode a step. If several steps are written at once, after a failure or a fork, the first one has the events of all."""
        body = codec.step_to_jsonable(step, run.prefix.messages_of(step.index), happened)
        try:
            values, is_plain = _row(step, row)
            texts = _plain_to_text(values) if is_plain else _to_text(values), _plain_to_text(body)
            if self._redact(whole := "\n".join(texts)) != whole:  # one search for both: most steps have no keys
                texts = redact_json(texts[0], self._redact), redact_json(texts[1], self._redact)
            return StoredStep(step.index, *texts)
        except (TypeError, ValueError, RecursionError) as error:  # a user's model or policy returned a value that is not JSON
            raise StorageError(f"Step {step.index} of run {run.run_id} cannot be written as JSON: {error}.") from error

    def _end_text(self, run: RunSnapshot, result: RunResult, happened: Sequence[events.Event]) -> str:
        history, settings = run.prefix.history, run.settings
        ended = [event.at_s for event in run.events[-1:] if isinstance(event, events.RunEnded)]
        last = history.last
        unfinished = [codec.to_jsonable(use) for use in history.cut_off]
        return self._text(
            {
                **({"cut_off": unfinished} if unfinished else {}),
                "stop_reason": result.stop_reason.value,
                "detail": result.detail,
                "conditions_met": [codec.to_jsonable(reading) for reading in result.conditions_met],
                "output": codec.user_value_to_jsonable(_plain_output(run, result)),
                "error": codec.to_jsonable(result.error),
                "stopped_by": result.stopped_by,
                "at_s": ended[0] if ended else run.elapsed_s,
                "row": _values(_OF_RUN, _source(run), result),
                "events": [codec.event_to_jsonable(event) for event in happened],
                "settings": None if last is not None and settings == last.settings else codec.to_jsonable(settings),
            }
        )

    def _text(self, value: object) -> str:
        """Return the value as JSON text without keys."""
        return redact_json(_to_text(value), self._redact)


def _head(run: RunSnapshot) -> dict[str, Any]:
    """Return the data of a run before its first step, or before it was stored."""
    agent, origin = cast(Agent, run.agent), run.origin
    return {
        "provider": agent.model.name,
        "model": agent.model.model,
        "agent": agent.name,
        "instructions": agent.instructions,
        "tools": list(agent.tools),
        "options": dict(agent.options),
        "parameters": agent.parameters.given() or None,
        "stream": agent.stream,
        "can_be_made_again": agent.is_made_of_names,
        "prompt": run.prefix.prompt,
        "prompt_at": run.prefix.prompt_at,
        "asked_at": run.prefix.asked_at,
        "parent_run_id": origin.parent_run_id,
        "forked_at": origin.forked_at,
        "parent_step": origin.parent_step,
        "called_by": origin.called_by,
        "steps_before": run.steps,
        "settings": codec.to_jsonable(run.settings),
        "made": run.setup.get().to_dict(),
        "messages": [message_json.plain(message) for message in run.prefix.messages_of(0)],
    }


def _last_row(history: RunHistory) -> StepRow | None:
    """Return the sums of a run that is already stored."""
    if history.last is None:
        return None
    return StepRow(history.last, history.tokens, history.cost_usd, history.known_tokens, history.known_cost_usd)


def _source(run: RunSnapshot) -> Source:
    model, origin = run.agent.model, run.origin
    known = (run.result, run.prefix.prompt, origin.parent_run_id, origin.forked_at, origin.parent_step, origin.called_by)
    return Source(run.run_id, model.name, model.model, run.prefix.history, [], *known)


def _plain_output(run: RunSnapshot, result: RunResult) -> object:
    """Return the output as JSON values if the agent says its type, from which it is restored; any other output as it is."""
    output_type = run.agent.output_type
    return result.output if output_type is None or result.output is None else output_type.plain(result.output)


def _row(step: StepResult, row: StepRow) -> tuple[dict[str, Any], bool]:
    """Return the step's row of the steps frame, without unknown values, and True if it consists of JSON types only."""
    values = _values(_OF_STEP, None, row)
    if step.readings is None:
        return values, True
    leaves = {name: [plain(leaf.value), plain(leaf.limit), leaf.met] for name, leaf in named_leaves(step.readings).items()}
    values["leaves"] = leaves
    return values, all(type(value) in _JSON_TYPES for three in leaves.values() for value in three)


_JSON_TYPES = (int, float, str, bool, type(None))

_OF_STEP, _OF_RUN = (
    tuple(column for column in columns if column.name not in RUN_CONSTANT_COLUMNS) for columns in (STEP_COLUMNS, RUN_COLUMNS)
)


def _values(columns: tuple[Column, ...], source: Any, row: object) -> dict[str, Any]:
    """Return the known values of a row by column; those of a step need no `source`."""
    return {column.name: value for column in columns if (value := column.read(source, row)) is not None}


def _plain_to_text(value: object) -> str:
    """Encode five times as fast as `_to_text`, which is used for halves of surrogate pairs and deep nesting."""
    try:
        return to_json(value, fallback=_number).decode()
    except ValueError:
        return _to_text(value)


def _number(value: object) -> object:
    return float(value) if isinstance(value, Decimal) else text_of(value)


_to_text = json.JSONEncoder(separators=(",", ":"), default=_number).encode


def secrets_of(agent: Agent) -> tuple[str, ...]:
    """Return the keys that the agent's provider sends, since a server may repeat them in any response."""
    provider = getattr(agent.model, "provider", None)
    try:
        headers = provider.auth_headers() if provider is not None else {}
    except Exception:  # no key is set
        return ()
    return tuple(known_secrets(headers.values()))


def store_note(storage: Storage, run_id: str, name: str, value: object, redact: Redact = redact) -> None:
    """Store a JSON value beside a run, without keys."""
    storage.note(run_id, name, redact_json(_to_text(value), redact))


def save_together(storage: Storage, saves: Mapping[RunWriter, Callable[[], None] | None]) -> bool:
    """Save several runs in one transaction, each with what its function stores beside it. False, and nothing is saved, if that fails or
    if the storage has no such transaction: the runs are then to be saved one by one, which shows the error of each."""
    together = getattr(storage, "together", None)
    if together is None:
        return False
    before = [(writer, writer.progress()) for writer in saves]
    try:
        with together():
            for writer, beside in saves.items():
                writer.save()
                if beside is not None:
                    beside()
    except StorageError:
        for writer, progress in before:
            writer.set_back(progress)
        return False
    return True


# Writers ---------------------------------------------------------------------------------------------------------------------


_numbers = itertools.count(1)
_MAX_PROCESS_ID = 2**31

NOBODY = "nobody"
"""The writer of a run that was released, so that any process may resume it."""


def new_writer_name() -> str:
    """Return a unique name for a writer of this process."""
    return json.dumps([*_this_process(os.getpid()), next(_numbers)])


def is_writer_alive(name: str) -> bool | None:
    """True if the writer's process is still running; None for a process on another machine, which cannot be checked."""
    if name == NOBODY:
        return False
    host, process, begun_at = _parse_writer_name(name)
    if host != socket.gethostname():
        return None
    return bool(_begun_at(process) == begun_at)


def is_writer_here(name: str) -> bool:
    """True if the writer belongs to this process."""
    return _parse_writer_name(name) == _this_process(os.getpid())


@cache
def _this_process(process: int) -> tuple[str, int, str]:  # which has another id after a fork
    return socket.gethostname(), process, _begun_at(process)


def writer_text(name: str) -> str:
    """Return a writer's name for people."""
    host, process, _ = _parse_writer_name(name)
    return f"process {process} on {one_line(host)}" if host else "an unknown process"


def _parse_writer_name(name: str) -> tuple[str, int, str]:
    """Return the host, the process id and the start of the process; the host is empty for text that is not a writer's name."""
    try:
        host, process, begun_at, _ = json.loads(name)
    except (ValueError, TypeError, RecursionError):
        return "", 0, ""
    is_valid = isinstance(host, str) and type(process) is int and 0 < process < _MAX_PROCESS_ID and isinstance(begun_at, str)
    return (host, process, begun_at) if is_valid else ("", 0, "")


@cache
def _start_reader() -> Callable[[int], str]:
    if sys.platform == "emscripten":
        return _from_this_page
    return _from_proc if Path("/proc/self/stat").exists() else _from_psutil


def _begun_at(process: int) -> str:
    """Return the start of a process, or "" if it does not exist: process ids are reused, but not with the same start."""
    return _start_reader()(process)


def _from_proc(process: int) -> str:
    try:
        stat = Path(f"/proc/{process}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
    state, *rest = stat.rpartition(")")[2].split()
    return "" if state in "ZX" else rest[18]


def _from_psutil(process: int) -> str:
    """Return the start of a process on systems without /proc, such as macOS and Windows."""
    try:
        found = psutil.Process(process)
        return "" if found.status() == psutil.STATUS_ZOMBIE else repr(found.create_time())
    except psutil.NoSuchProcess:
        return ""
    except psutil.AccessDenied:
        return "running"  # another user's process


_this_page = uuid.uuid4().hex


def _from_this_page(process: int) -> str:
    """Return the start of a process in a browser: each page has one process, with the same id every time."""
    return _this_page if process == os.getpid() else ""

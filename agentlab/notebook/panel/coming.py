"""The step under way: the answer while it streams in, the tool calls and the sub-agents at work.

The run's loop only puts events into a queue, which the panel's redraw reads. Blocks of an answer that are complete are rendered once;
only its end is rendered anew. So the cost of a piece does not depend on the length of the answer, nor on the speed of the page.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field
from html import escape
from typing import Any

from agentlab._internal.redaction import redact
from agentlab._internal.safe_text import cut, one_line
from agentlab.agent import Run
from agentlab.engine.worker import RunState
from agentlab.model.finish_reasons import FinishReason
from agentlab.notebook.page.rich_text import fields_html, markdown_piece, seen, settled_pieces
from agentlab.notebook.page.step_detail import seconds
from agentlab.notebook.page.steps import first_line, on_one_line
from agentlab.records import events
from agentlab.tools.outputs import OutputType

JSON = dict[str, Any]

LONGEST_TAIL = 1_500
"""Characters of the end that is rendered anew. A block that is longer, such as a file of code, is continued in a second one."""
LONGEST_ANSWER = 100_000
"""Characters of an answer that are shown while it streams in."""
LONGEST_WRITTEN = 10_000
"""Characters of a typed answer that are shown while it streams in: it is read from its start each time."""
SHOWN_AFTER_S, WAITS_AFTER_S = 0.3, 1.0
"""A step is shown after this time, one without text and tools after the longer one: quick steps would only flicker."""
MOST_CALLS, LONGEST_ARGUMENTS, LONGEST_PIECE = 30, 2_000, 200

_JSON = re.compile(r"\s*(?:[{\[]|```json)")
_UNFINISHED_WORD = re.compile(r"[\w+/=.~-]*\Z", re.ASCII)
"""The last word may be half a key, which nobody would recognise: it is shown with what follows it."""


@dataclass(slots=True)
class _Call:
    """A tool call; `since_s` is None before and after it runs."""

    name: str
    arguments: str
    outcome: str
    since_s: float | None = None
    failed: bool = False
    first: str = ""
    """The first line of the result."""


@dataclass(slots=True)
class _Written:
    """The arguments of a tool call that streams in."""

    tool: str
    text: str = ""


@dataclass(slots=True)
class _Step:
    """What is known of the step under way.

    `blocks` is the HTML of the complete blocks, `tail` the text after them, in a block that `carried` opens. `kept` is the same for the
    earlier calls of the step that this one continues: number of blocks, `carried`, `tail`, `length`. `written` are the tool calls that
    stream in, by their places. An answer of type `output` is JSON, shown as its `fields` so far.
    """

    n: int
    since_s: float
    output: OutputType | None = None
    call: int = 0
    written: dict[int, _Written] = field(default_factory=dict)
    fields: str = ""
    blocks: list[str] = field(default_factory=list)
    kept: tuple[int, str, str, int] = (0, "", "", 0)
    carried: str = ""
    tail: str = ""
    length: int = 0
    pieces: list[str] = field(default_factory=list)
    complete: bool = False
    calls: dict[str, _Call] = field(default_factory=dict)
    children: list[str] = field(default_factory=list)
    from_start: bool = True
    cut_off: bool = False

    def restart(self) -> None:
        """Drop the text of this call: it is sent again."""
        self.pieces.clear()
        self.written.clear()
        self.fields = ""
        blocks, self.carried, self.tail, self.length = self.kept
        del self.blocks[blocks:]
        self.complete, self.from_start = False, True

    def settle(self) -> None:
        """Read the new pieces, and render the blocks that are complete."""
        new = "".join(self.pieces)[: max(0, LONGEST_ANSWER - self.length)]
        self.pieces.clear()
        self.length += len(new)
        self.tail += new
        if not new or self.is_typed:
            return
        done, self.carried, self.tail = settled_pieces(self.carried, self.tail, LONGEST_TAIL)
        self.blocks += done

    @property
    def is_typed(self) -> bool:
        """True if the text is an answer as JSON."""
        return self.output is not None and not self.blocks and _JSON.match(self.tail) is not None

    def end(self) -> str:
        """Return the HTML of the end of the text, and of the tool calls that stream in."""
        text = self.tail if self.complete else _without_unfinished_word(self.tail)
        calls = "".join(map(self._being_written, self.written.values()))
        if self.is_typed:
            return self._begun(text) + calls
        return (markdown_piece(self.carried, text) if text.strip() else "") + calls

    def _being_written(self, call: _Written) -> str:
        text = redact(_without_unfinished_word(call.text))
        if self.output is not None and call.tool == self.output.spec.name:
            return self._begun(text)
        shown = escape(seen(one_line(text[-LONGEST_PIECE:], LONGEST_PIECE)))
        before = "…" if len(text) > LONGEST_PIECE else ""
        return f'<div class="agentlab-note">{escape(on_one_line(call.tool))} <code>{before}{shown}</code></div>'

    def _begun(self, text: str) -> str:
        """Return the fields of a typed answer so far; those shown before, if the newest piece of the JSON cannot be read yet."""
        data = None if self.output is None else self.output.begun(redact(text[:LONGEST_WRITTEN]))
        if data not in (None, {}):
            self.fields = fields_html(data)
        return self.fields


class Coming:
    """The step under way of one run. `take` is called on the run's loop, everything else by the panel's redraw."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._waiting: deque[events.Event] = deque()
        self._step: _Step | None = None
        self._sent: JSON | None = None
        self._sent_step: _Step | None = None
        self._paused = False
        if run.state is RunState.RUNNING:  # opened in the middle of a step: what was streamed before is not known
            for event in reversed(run.events[-200:]):
                self._waiting.appendleft(event)
                if isinstance(event, events.StepStarted | events.StepCompleted):
                    break
            self.read(from_start=False)

    def take(self, event: events.Event) -> None:
        """Queue the event until the next redraw."""
        kind = type(event)
        if kind in _TAKEN:
            if kind is events.StepStarted:
                self._waiting.clear()  # earlier steps are in the history
            self._waiting.append(event)

    # What is sent -----------------------------------------------------------------------------------------------------------

    def forget(self) -> None:
        """The page has nothing."""
        self._sent = self._sent_step = None

    def news(self, complete: int) -> JSON:
        """Return what is new of the step under way as fields of the head: `live` is None after it; no field if nothing is new.

        `complete` is the number of steps that the page has with this message, counted after `read()`: a step is under way until it is
        among them, and no longer. `blocks` has those from `first` on, `calls` by their place only what has changed.
        """
        step = self._step
        if step is not None and step.n <= complete and not step.cut_off:
            step = None  # complete, though its event may still be with another observer
        if step is not None:
            step.settle()
        if step is None or not self._is_shown(step):
            was, self._sent, self._sent_step = self._sent, None, None
            return {"live": None} if was is not None else {}
        before = self._sent if self._sent_step is step and self._sent is not None else {}
        now = {
            "n": step.n,
            "words": self._words(step),
            "note": _note(step),
            "tail": step.end(),
            "children": step.children.copy(),
            "blocks": step.blocks.copy(),
            "calls": self._calls(step),
        }
        self._sent, self._sent_step = now, step
        return {"live": _difference(before, now)} if now != before else {}

    def _is_shown(self, step: _Step) -> bool:
        at_work = step.length or step.written or step.calls or step.children
        after_s = SHOWN_AFTER_S if at_work else WAITS_AFTER_S
        return step is self._sent_step or step.cut_off or self._waited_s(step) >= after_s

    def _waited_s(self, step: _Step) -> float:
        return self._run.timeline.clock.elapsed_s() - step.since_s

    def _words(self, step: _Step) -> str:
        if step.cut_off:
            return "cut off"
        if any(call.since_s is not None for call in step.calls.values()):
            return "running tools"
        if step.calls:
            return ""
        return "streaming" if step.length or step.written else f"waiting for the model · {_whole_seconds(self._waited_s(step))}"

    def _calls(self, step: _Step) -> list[JSON]:
        now_s = self._run.timeline.clock.elapsed_s()
        return [
            {
                "name": call.name,
                "arguments": call.arguments,
                "outcome": call.outcome if call.since_s is None else f"{call.outcome} {_whole_seconds(now_s - call.since_s)}",
                "failed": call.failed,
                "first": call.first,
            }
            for call in step.calls.values()
        ]

    # What happened ----------------------------------------------------------------------------------------------------------

    def read(self, *, from_start: bool = True) -> None:
        """Read the events queued so far."""
        for _ in range(len(self._waiting)):  # only those queued now: more arrive all the time
            try:
                event = self._waiting.popleft()
            except IndexError:  # cleared meanwhile
                return
            self._read(event)
        if self._step is not None and not from_start:
            self._step.from_start = False

    def _read(self, event: events.Event) -> None:
        step = self._step
        match event:
            case events.StepStarted(step=n):
                self._step = self._new(n, event.at_s)
                self._paused = False
            case events.TextReceived(step=n, text=text, call=call):
                if step is None or (step.n, step.call) < (n, call):
                    step = self._begin(n, call, event.at_s)
                if step.call == call:  # of parallel calls the newest is shown
                    step.pieces.append(text)
            case events.ArgumentsReceived(step=n, tool=tool, text=text, place=place, call=call):
                if step is None or (step.n, step.call) < (n, call):
                    step = self._begin(n, call, event.at_s)
                if step.call == call:
                    written = step.written.setdefault(place, _Written(tool))
                    written.text += text if len(written.text) < LONGEST_ANSWER else ""
            case events.CallRetried() if step is not None:
                step.restart()
            case events.AskedAgain(call=call) if step is not None:
                step.restart()
                step.call = call + 1
            case events.StopReasonObserved(finish_reason=reason):
                self._paused = reason in (FinishReason.PAUSED, FinishReason.MAX_TOKENS)
                if step is not None:
                    step.complete = not self._paused
            case events.StepCompleted(step=completed):
                if step is not None:
                    step.settle()
                    came_back = {call.index for call in completed.calls}
                    step.cut_off = step.n == completed.index and step.length > 0 and step.call not in came_back
                    step.complete = True
                    self._step = step if step.cut_off else None
            case _:
                self._read_tools(event)

    def _read_tools(self, event: events.Event) -> None:
        match event:
            case events.ToolStarted(step=n, tool_call=call) | events.ApprovalRequested(step=n, tool_call=call):
                if self._step is None or self._step.n != n:
                    self._step = self._new(n, event.at_s)
                self._step.written.clear()
                calls, asks = self._step.calls, isinstance(event, events.ApprovalRequested)
                if len(calls) < MOST_CALLS or call.id in calls:
                    outcome, since_s = ("waits for approval", None) if asks else ("running", event.at_s)
                    calls[call.id] = _Call(on_one_line(call.name), seen(cut(call.arguments, LONGEST_ARGUMENTS)), outcome, since_s)
            case events.ToolFinished(result=result) if self._step is not None and result.call_id in self._step.calls:
                made = self._step.calls[result.call_id]
                made.since_s, made.failed, made.first = None, result.is_error, first_line(result)
                made.outcome = f"failed: {on_one_line(result.error or '')}" if result.is_error else "done"
                made.outcome += f" · {seconds(result.duration_s)}"
            case events.ApprovalGiven(call_id=call_id, decision=decision) if (
                self._step is not None and call_id in self._step.calls
            ):
                self._step.calls[call_id].outcome = f"{decision} by a person"
            case events.ChildStarted(child_id=child_id) if self._step is not None:
                self._step.children.append(child_id)
            case events.ChildEnded(child=child) if self._step is not None and child.run_id in self._step.children:
                self._step.children.remove(child.run_id)

    def _new(self, n: int, at_s: float) -> _Step:
        return _Step(n, at_s, self._run.agent.output_type)

    def _begin(self, n: int, call: int, at_s: float) -> _Step:
        """Begin the text of another call. It continues the step's text if that was paused or cut off; otherwise it replaces it, since a
        middleware repeated the call."""
        step = self._step
        if step is None or step.n != n:
            step = self._new(n, at_s)
        elif self._paused:
            step.settle()
            step.written.clear()
            step.kept = (len(step.blocks), step.carried, step.tail, step.length)
            step.complete = False
        elif step.call:
            step.kept = (0, "", "", 0)
            step.restart()
        step.call, self._step, self._paused = call, step, False
        return step


_TAKEN = frozenset(
    (events.StepStarted, events.TextReceived, events.ArgumentsReceived, events.CallRetried, events.AskedAgain,
     events.StopReasonObserved, events.ToolStarted,
     events.ToolFinished, events.ApprovalRequested, events.ApprovalGiven, events.ChildStarted, events.ChildEnded, events.StepCompleted)
)  # fmt: skip


def _without_unfinished_word(text: str) -> str:
    return text[: _UNFINISHED_WORD.search(text).start()]  # type: ignore[union-attr]


def _note(step: _Step) -> str:
    if step.cut_off:
        return "The call was not answered: this text is not in the history."
    if step.length and not step.from_start:
        return "Only the end: the beginning was received before this panel was opened."
    most = LONGEST_WRITTEN if step.is_typed else LONGEST_ANSWER
    if step.length >= most:
        return f"The first {most:,} characters; the step will have the rest."
    return ""


def _whole_seconds(value: float) -> str:
    whole = max(0, int(value))
    return f"{whole} s" if whole < 60 else f"{whole // 60} min {whole % 60:02d} s"


def _difference(before: JSON, now: JSON) -> JSON:
    """Return the fields of `now` that differ; of blocks the new ones, of calls those with a change."""
    fields = {name: value for name, value in now.items() if before.get(name, ...) != value or name == "n"}
    if not before:  # the page begins with empty fields
        return {name: value for name, value in fields.items() if value} | {"fresh": True, "calls": dict(enumerate(now["calls"]))}
    old, new = before.get("blocks", []), now["blocks"]
    if "blocks" in fields:
        same = len(old)
        while new[:same] != old[:same]:
            same -= 1
        fields |= {"first": same, "blocks": new[same:]}
    if "calls" in fields:
        old_calls = before.get("calls", [])
        fields["calls"] = {
            str(place): {
                name: value for name, value in call.items() if place >= len(old_calls) or old_calls[place][name] != value
            }
            for place, call in enumerate(now["calls"])
            if place >= len(old_calls) or old_calls[place] != call
        }
    return fields

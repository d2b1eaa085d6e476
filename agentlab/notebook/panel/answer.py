"""The model's newest answer: its end while it streams in, afterwards the text in the history.

The run's loop only puts events into a queue. The panel's redraw reads them and stores only the visible part of a streamed answer, so
the cost of a piece does not depend on the answer's length or the page's speed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import ipywidgets as widgets

from agentlab.agent import Run
from agentlab.engine.worker import RunState
from agentlab.model.finish_reasons import FinishReason
from agentlab.model.messages import ToolCall
from agentlab.model.responses import marked
from agentlab.notebook import markup
from agentlab.notebook.live_view import PanelState
from agentlab.notebook.markup import Html
from agentlab.records import events
from agentlab.records.step import StepResult

LONGEST_COMING = 2_000
"""Characters shown of an answer that is streaming in."""
LONGEST = 20_000
"""Characters shown of a complete answer."""
MOST_TOOLS = 6
"""The most requested tools that are named."""


@dataclass(frozen=True, slots=True)
class ShownAnswer:
    """An answer as shown: its end, at most LONGEST characters.

    `length` is the length of the whole answer in characters; None if it began before the panel was opened. `note` is a remark;
    `coming` is True while it streams in.
    """

    label: str
    text: str = ""
    length: int | None = 0
    note: str = ""
    coming: bool = False

    @property
    def about(self) -> str:
        """The note, and a remark on the left-out part of the text."""
        if self.length is None:
            left_out = "only its end: the beginning was received before this panel was opened"
        else:
            left_out = f"the last {len(self.text):,} of {self.length:,} characters" if self.length > len(self.text) else ""
        return "; ".join(filter(None, (left_out, self.note)))

    def __str__(self) -> str:
        head = f"{self.label} ({self.about})" if self.about else self.label
        return f"{head}:\n{self.text}" if self.text else head


@dataclass(slots=True)
class _Coming:
    """An answer under way. `before` is the text of the step's earlier calls that this call continues."""

    step: int
    call: int = 0
    before: str = ""
    before_length: int = 0
    text: str = ""
    length: int = 0
    pieces: list[str] = field(default_factory=list)
    tools: list[ToolCall] = field(default_factory=list)
    whole: bool = True
    cut_off: bool = False

    def join(self) -> None:
        """Append the new pieces, and drop the text that is not shown any more."""
        new = "".join(self.pieces)
        self.pieces.clear()
        self.length += len(new)
        self.text = (self.text + new)[-LONGEST_COMING:]

    def restart(self) -> None:
        """Drop the text of this call: it is sent again."""
        self.pieces.clear()
        self.text, self.length, self.whole = "", 0, True

    def end(self) -> str:
        """The end of the text, over the calls that belong together."""
        return (self.before + self.text)[-LONGEST_COMING:]


class Answer:
    """The newest answer of a run. `take` is called on the run's loop, everything else by the panel's redraw."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._waiting: deque[events.Event] = deque()
        self._coming: _Coming | None = None
        self._paused = False
        self._seen_from_start = True

    def watch(self) -> None:
        """Follow events from now on; the beginning of a call under way is unknown."""
        self._seen_from_start = self._run.state is not RunState.RUNNING

    def take(self, event: events.Event) -> None:
        """Queue the event until the next redraw."""
        if isinstance(event, _TAKEN):
            self._waiting.append(event)

    def catch_up(self) -> ShownAnswer:
        """Read the queued events; returns the answer to show now."""
        for _ in range(len(self._waiting)):  # only those queued now: more arrive all the time
            self._read(self._waiting.popleft())
        if self._coming is not None:
            self._coming.join()
        return self.shown()

    def shown(self) -> ShownAnswer:
        """The answer as of the last redraw; for a run that was not watched, the one in its history."""
        coming = self._coming
        if coming is None:
            return _in_history(self._run)
        label, text = f"Answer of step {coming.step}", coming.end()
        length = coming.before_length + coming.length if coming.whole else None
        if coming.cut_off:
            return ShownAnswer(f"{label}, cut off", text, length, "the call was not answered: this text is not in the history")
        if not text and coming.tools:
            return _without_text(label, coming.tools, coming=True)
        return ShownAnswer(label, text, length, _asked_for(coming.tools), coming=True)

    def _read(self, event: events.Event) -> None:
        coming = self._coming
        match event:
            case events.TextReceived(step=step, text=text, call=call):
                if coming is None or (coming.step, coming.call) < (step, call):
                    coming = self._begin(step, call)
                if coming.call == call:  # of parallel calls the newest is shown
                    coming.pieces.append(text)
            case events.CallRetried() if coming is not None:
                coming.restart()
            case events.AskedAgain(call=call) if coming is not None:
                coming.restart()
                coming.call = call + 1
            case events.StopReasonObserved(finish_reason=reason):
                self._paused = reason in (FinishReason.PAUSED, FinishReason.MAX_TOKENS)
            case events.ToolStarted(step=step, tool_call=tool_call):
                if coming is None or coming.step != step:
                    coming = self._begin(step, 0)
                coming.tools.append(tool_call)
            case events.StepCompleted(step=completed):
                self._complete(completed)
        self._seen_from_start = self._seen_from_start or not isinstance(event, events.TextReceived)

    def _begin(self, step: int, call: int) -> _Coming:
        """Begin the text of another call. It continues the step's text if that was paused or cut off; otherwise it replaces it, since a
        middleware repeated the call."""
        new, old = _Coming(step, call, whole=self._seen_from_start), self._coming
        if old is not None and old.step == step and self._paused:
            old.join()
            new.before, new.before_length, new.whole = old.end(), old.before_length + old.length, old.whole
        self._paused = False
        self._coming = new
        return new

    def _complete(self, step: StepResult) -> None:
        """The step is complete: from now on the history has the text, except for a call that was cut off."""
        coming = self._coming
        if coming is None:
            return
        coming.join()
        came_back = {call.index for call in step.calls}
        coming.cut_off = coming.step == step.index and coming.length > 0 and coming.call not in came_back
        if not coming.cut_off:
            self._coming = None


_TAKEN = (
    events.TextReceived, events.CallRetried, events.AskedAgain, events.StopReasonObserved, events.ToolStarted, events.StepCompleted,
)  # fmt: skip


def _in_history(run: Run) -> ShownAnswer:
    """The newest step's text or tool calls; at the end of a run without output, the last text."""
    step, result = run.history.last, run.result
    if step is None:
        return ShownAnswer("Answer", note="none yet" if result is None else "none")
    if not step.text and result is not None and result.output is None:
        step = next((one for one in reversed(run.history) if one.text), step)
    label, text, note = f"Answer of step {step.index}", marked(step.text, step.holes), _asked_for(step.tool_calls)
    if not text and step.response is not None and step.response.refusal:
        text, note = step.response.refusal, "refused"
    if not text and step.tool_calls:
        return _without_text(label, step.tool_calls)
    return ShownAnswer(label, text[-LONGEST:], len(text), note or ("" if text else "no text"))


def _without_text(label: str, tools: Sequence[ToolCall], *, coming: bool = False) -> ShownAnswer:
    """The tool calls of an answer without text, with their arguments."""
    calls = "\n".join(f"{call.name}({call.arguments})" for call in tools)
    return ShownAnswer(label, calls[-LONGEST:], len(calls), _asked_for(tools), coming)


def _asked_for(tools: Sequence[ToolCall]) -> str:
    more = f" and {len(tools) - MOST_TOOLS} more" if len(tools) > MOST_TOOLS else ""
    return f"asks for {', '.join(call.name for call in tools[:MOST_TOOLS])}{more}" if tools else ""


# In the page ----------------------------------------------------------------------------------------------------------------


def answer_label_html(shown: ShownAnswer) -> str:
    """Return the label of an answer, and remarks on it."""
    about = f" {markup.aside(f'— {shown.about}')}" if shown.about else ""
    return f'<div class="agentlab-answer-label"><b>{markup.escape(shown.label)}</b>{about}</div>'


def answer_html(shown: ShownAnswer) -> str:
    """The text of an answer. A screen reader reads it once it is complete, not piece by piece."""
    busy = "true" if shown.coming else "false"
    return (  # HTML drops the first line break of a <pre>
        f'<div class="agentlab-answer" role="log" aria-live="polite" aria-busy="{busy}" aria-label="{markup.escape(shown.label)}">'
        f'<pre dir="auto">\n{markup.escape_whole(shown.text)}</pre></div>'
    )


class AnswerView:
    """A label, and a box that follows the end of the text; it scrolls, so the keyboard reaches it."""

    def __init__(self, state: PanelState) -> None:
        self.answer = Answer(state.run)
        self.label, self.text = Html(), Html(tabbable=True)
        self.text.add_class("agentlab-answer-box")
        self.view = widgets.VBox([self.label, self.text])

    def show(self) -> bool:
        """Show the text received so far."""
        shown_answer = self.answer.catch_up()
        self.label.value, self.text.value = answer_label_html(shown_answer), answer_html(shown_answer)
        return False

"""What the model says, as the panel shows it: while it streams in the end of it, afterwards what stands in the history.

The run's loop only puts events into a queue. They are read by the one writer of the panel, which keeps no more of a streamed answer
than it shows: what a piece of text costs the run depends neither on the answer's length nor on how slow the page is.
"""

from __future__ import annotations

import html
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import ipywidgets as widgets

from agentlab import events
from agentlab.notebook.panel import markup
from agentlab.notebook.panel.markup import Html
from agentlab.notebook.panel.state import PanelState
from agentlab.results import StepResult
from agentlab.run import Run, RunState
from agentlab.types import FinishReason, ToolCall, marked

LONGEST_COMING = 2_000
"""So many characters of an answer are shown while it comes in."""

LONGEST = 20_000
"""So many are shown of one that has come."""

MOST_TOOLS = 6
"""So many of the tools that it asks for are named."""


@dataclass(frozen=True, slots=True)
class Said:
    """An answer as it is shown: its end, at most LONGEST characters.

    `length` is that of the whole answer in characters; None where its beginning came before the panel was there to see it. `note` is
    what else is to be said of it; `coming` whether there is more to come.
    """

    label: str
    text: str = ""
    length: int | None = 0
    note: str = ""
    coming: bool = False

    @property
    def about(self) -> str:
        """What is to be said of the text: what is left out of it, and the note."""
        if self.length is None:
            left_out = "the end of it: its beginning came before this panel was opened"
        else:
            left_out = f"the last {len(self.text):,} of {self.length:,} characters" if self.length > len(self.text) else ""
        return "; ".join(filter(None, (left_out, self.note)))

    def __str__(self) -> str:
        head = f"{self.label} ({self.about})" if self.about else self.label
        return f"{head}:\n{self.text}" if self.text else head


@dataclass(slots=True)
class _Coming:
    """An answer under way. `before` is what the step's earlier calls said, where this one goes on with it."""

    turn: int
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
        """Put the new pieces to the text, and forget what is too far back to be shown."""
        new = "".join(self.pieces)
        self.pieces.clear()
        self.length += len(new)
        self.text = (self.text + new)[-LONGEST_COMING:]

    def end(self) -> str:
        """The end of the text, over the calls that belong together."""
        return (self.before + self.text)[-LONGEST_COMING:]


class Answer:
    """The newest answer of a run. `take` is called on the run's loop, all else by the writer of the panel."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._waiting: deque[events.Event] = deque()
        self._coming: _Coming | None = None
        self._paused = False
        self._seen_from_start = True

    def watch(self) -> None:
        """From here on events are taken: of a call that is under way already, the beginning is not known."""
        self._seen_from_start = self._run.state is not RunState.RUNNING

    def take(self, event: events.Event) -> None:
        """Remember the event until the panel is drawn."""
        if isinstance(event, _TAKEN):
            self._waiting.append(event)

    def catch_up(self) -> Said:
        """What is to be shown now, with all that has come."""
        for _ in range(len(self._waiting)):  # as many as there are now: more may come all the time
            self._read(self._waiting.popleft())
        if self._coming is not None:
            self._coming.join()
        return self.said()

    def said(self) -> Said:
        """What was to be shown when the panel was drawn last; for a run that nobody watched, what stands in its history."""
        coming = self._coming
        if coming is None:
            return _in_history(self._run)
        label, text = f"Answer of step {coming.turn}", coming.end()
        length = coming.before_length + coming.length if coming.whole else None
        if coming.cut_off:
            return Said(f"{label}, cut off", text, length, "the call did not come back: this is not in the history")
        if not text and coming.tools:
            return _without_text(label, coming.tools, coming=True)
        return Said(label, text, length, _asked_for(coming.tools), coming=True)

    def _read(self, event: events.Event) -> None:
        coming = self._coming
        match event:
            case events.TextReceived(turn=turn, text=text, call=call):
                if coming is None or (coming.turn, coming.call) < (turn, call):
                    coming = self._begin(turn, call)
                if coming.call == call:  # of calls that speak at the same time the newest is shown
                    coming.pieces.append(text)
            case events.CallRetried() if coming is not None:  # what the attempt said that failed comes again
                coming.pieces.clear()
                coming.text, coming.length, coming.whole = "", 0, True
            case events.AskedAgain(call=call) if (
                coming is not None
            ):  # what it said is left aside, and comes again in the next call
                coming.pieces.clear()
                coming.text, coming.length, coming.whole, coming.call = "", 0, True, call + 1
            case events.StopReasonObserved(finish_reason=reason):
                self._paused = reason in _GOES_ON
            case events.ToolStarted(turn=turn, tool_call=tool_call):
                if coming is None or coming.turn != turn:
                    coming = self._begin(turn, 0)
                coming.tools.append(tool_call)
            case events.TurnCompleted(step=step):
                self._complete(step)
        self._seen_from_start = self._seen_from_start or not isinstance(event, events.TextReceived)

    def _begin(self, turn: int, call: int) -> _Coming:
        """A call speaks for the first time: it goes on with what the step said before where that was paused or cut;
        otherwise it says it anew, for a middleware that asked again."""
        new, old = _Coming(turn, call, whole=self._seen_from_start), self._coming
        if old is not None and old.turn == turn and self._paused:
            old.join()
            new.before, new.before_length, new.whole = old.end(), old.before_length + old.length, old.whole
        self._paused = False
        self._coming = new
        return new

    def _complete(self, step: StepResult) -> None:
        """From here on the history says it, unless the call that spoke was cut off: its text is nowhere else."""
        coming = self._coming
        if coming is None:
            return
        coming.join()
        came_back = {call.index for call in step.calls}
        coming.cut_off = coming.turn == step.index and coming.length > 0 and coming.call not in came_back
        if not coming.cut_off:
            self._coming = None


_GOES_ON = (FinishReason.PAUSED, FinishReason.MAX_TOKENS)
"""After these the next call of the step says the rest of the same answer."""

_TAKEN = (
    events.TextReceived, events.CallRetried, events.AskedAgain, events.StopReasonObserved, events.ToolStarted, events.TurnCompleted,
)  # fmt: skip


def _in_history(run: Run) -> Said:
    """The newest step's answer: its text, or else what it asks for; at the end of a run that handed nothing in, the last text."""
    step, result = run.history.last, run.result
    if step is None:
        return Said("Answer", note="none yet" if result is None else "none")
    if not step.text and result is not None and result.output is None:
        step = next((one for one in reversed(run.history) if one.text), step)
    label, text, note = f"Answer of step {step.index}", marked(step.text, step.holes), _asked_for(step.tool_calls)
    if not text and step.response is not None and step.response.refusal:
        text, note = step.response.refusal, "refused"
    if not text and step.tool_calls:
        return _without_text(label, step.tool_calls)
    return Said(label, text[-LONGEST:], len(text), note or ("" if text else "no text"))


def _without_text(label: str, tools: Sequence[ToolCall], *, coming: bool = False) -> Said:
    """The tool calls of an answer that is nothing else, with their arguments as they were written."""
    calls = "\n".join(f"{call.name}({call.arguments})" for call in tools)
    return Said(label, calls[-LONGEST:], len(calls), _asked_for(tools), coming)


def _asked_for(tools: Sequence[ToolCall]) -> str:
    """The tools that it asks for, in words."""
    more = f" and {len(tools) - MOST_TOOLS} more" if len(tools) > MOST_TOOLS else ""
    return f"asks for {', '.join(call.name for call in tools[:MOST_TOOLS])}{more}" if tools else ""


def answer_label_html(said: Said) -> str:
    """Whose answer it is, and what is to be said of it."""
    about = f' <span class="agentlab-note">— {markup.escape(markup.printable(said.about))}</span>' if said.about else ""
    return f'<div class="agentlab-answer-label"><b>{markup.escape(said.label)}</b>{about}</div>'


def answer_html(said: Said) -> str:
    """The text of an answer, as it was written. It is a log to those who listen: told when it has come, not piece by piece."""
    busy = "true" if said.coming else "false"
    text = html.escape(markup.printable(said.text))
    label = html.escape(said.label, quote=True)
    return (  # the first line break of a <pre> is no part of it
        f'<div class="agentlab-answer" role="log" aria-live="polite" aria-busy="{busy}" aria-label="{label}">'
        f'<pre dir="auto">\n{text}</pre></div>'
    )


class AnswerView:
    """A label, and a box that stays at the end of the text while it grows; it scrolls, so it is in reach of the keyboard."""

    def __init__(self, scene: PanelState) -> None:
        self.answer = Answer(scene.run)
        self.label, self.text = Html(), Html(tabbable=True)
        self.text.add_class("agentlab-answer-box")
        self.view = widgets.VBox([self.label, self.text])

    def show(self) -> bool:
        """Show what has come."""
        said = self.answer.catch_up()
        self.label.value, self.text.value = answer_label_html(said), answer_html(said)
        return False

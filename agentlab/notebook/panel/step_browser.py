"""Going through the run: its steps in a table, controls to go from one to the next, and below it one step in full."""

from __future__ import annotations

import threading
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import ipywidgets as widgets

from agentlab.errors import ConfigurationError
from agentlab.notebook.panel import markup
from agentlab.notebook.panel.controls import set_button
from agentlab.notebook.panel.markup import Html, dollars, escape, printable, tokens
from agentlab.notebook.panel.state import PanelState, is_drawing
from agentlab.notebook.panel.step_detail import OPEN_AT_FIRST, detail, seconds, seen
from agentlab.results import StepResult
from agentlab.run import Run

_MOST_DIGITS = 9


class StepBrowser:
    """The steps of the run, and the one that is looked at: the chosen one, or the newest while none is.

    `number` takes a step; empty it follows the newest.
    """

    title = "Steps"

    def __init__(self, scene: PanelState) -> None:
        self._scene = scene
        self._table = StepTable(scene.run)
        self._opened = set(OPEN_AT_FIRST)
        self._detailed: StepResult | None = None
        self._shown_text = ""
        self._lock = threading.RLock()  # what is typed and the redraw come on threads of their own
        self.number = widgets.Text(
            description="Step",
            placeholder="newest",
            continuous_update=False,
            tooltip="The step to look at; empty: the newest",
            style={"description_width": "3em"},
            layout=widgets.Layout(width="9em"),
        )
        self.earlier = widgets.Button(description="◀ Earlier", layout=widgets.Layout(width="8em"))
        self.later = widgets.Button(description="Later ▶", layout=widgets.Layout(width="8em"))
        self.newest = widgets.Button(description="Newest", layout=widgets.Layout(width="8em"))
        self.message = Html()
        self.table, self.detail = Html(), Html()
        self.number.observe(self._typed, "value")
        self.earlier.on_click(lambda _: self._go_to(lambda at: at - 1))
        self.later.on_click(lambda _: self._go_to(lambda at: at + 1))
        self.newest.on_click(lambda _: self._go_to(lambda at: None))
        going = widgets.HBox([self.number, self.earlier, self.later, self.newest], layout=widgets.Layout(flex_flow="row wrap"))
        self.view = widgets.VBox([going, self.message, self.table, self.detail])

    def show(self) -> bool:
        """Bring table, controls and detail up to date. The detail is made anew only for another step: what a person has opened in it,
        marked or scrolled to stays."""
        run = self._scene.run
        steps = len(run.history)
        chosen = self._show_controls(steps)
        self.table.value = self._table.html(chosen)
        if not steps:
            return False
        index = steps if chosen is None else chosen
        step = run.history[index - 1]
        if step is not self._detailed:
            self._detailed = step
            self.detail.value = detail(run, index, frozenset(self._opened))
        return False

    def remember(self, section: str, is_open: bool) -> None:
        """The person opened or closed a section: it is so in the next step that is shown, too."""
        if is_open:
            self._opened.add(section)
        else:
            self._opened.discard(section)

    def _show_controls(self, steps: int) -> int | None:
        with self._lock:
            chosen = self._scene.chosen
            text = "" if chosen is None else str(chosen)
            if self._shown_text != text:
                self._shown_text = text  # first: the box tells of a change by whoever made it
                self.number.value, self.message.value = text, ""
        at = steps if chosen is None else chosen
        nothing = "No step has been taken yet." if not steps else ""
        set_button(self.earlier, nothing or ("This is the first step." if at <= 1 else ""), "Look at the step before")
        set_button(self.later, nothing or ("This is the newest step." if at >= steps else ""), "Look at the next step")
        followed = "The newest step is shown, and followed." if chosen is None else ""
        set_button(self.newest, nothing or followed, "Follow the newest step again")
        return chosen

    def _typed(self, change: Any) -> None:
        if is_drawing():
            return
        text = change["new"].strip()
        with self._lock:
            try:
                if text != self._shown_text:
                    self._scene.choose(_as_step(text))
                    self._shown_text = text  # else the next redraw would take it for a change, and what is typed until then away
                    self.number.value = text  # also where a redraw came in between
            except ConfigurationError as error:
                self.message.value = markup.fault(str(error))
            else:
                self.message.value = ""

    def _go_to(self, where: Callable[[int], int | None]) -> None:
        """Choose another step, given the one that is looked at."""
        at = self._scene.chosen or len(self._scene.run.history)
        self._scene.do(lambda: self._scene.choose(where(at)))


def _as_step(text: str) -> int | None:
    """The number that was typed; None for nothing."""
    if not text:
        return None
    if not (text.isascii() and text.isdecimal()) or len(text) > _MOST_DIGITS:
        raise ConfigurationError(f"Step {text[:40]!r}: type a step's number, such as 3, or nothing for the newest.")
    return int(text)


MOST_ROWS = 12
HEADS = (("step", True), ("finish reason", False), ("tools", False), ("tokens", True), ("so far", True), ("cost", True),
         ("so far", True), ("time", True))  # fmt: skip
"""The columns, and whether they hold numbers."""

Sums = tuple[int | None, Decimal | None]


class StepTable:
    """The table of a run's steps; reads only those that are new."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._sums: list[Sums] = [(0, Decimal(0))]

    def html(self, chosen: int | None) -> str:
        """The newest steps, or those around the chosen one, of which the row is marked."""
        steps = self._count()
        if not steps:
            return '<p class="agentlab-note">No steps yet.</p>'
        first, last = window(steps, chosen)
        rows = "".join(_row(step, self._sums[step.index], step.index == chosen) for step in self._run.history[first - 1 : last])
        head = "".join(f'<th scope="col"{_css(is_number)}>{name}</th>' for name, is_number in HEADS)
        return (
            f'<table class="agentlab-steps agentlab-step-table"><caption>{_caption(first, last, steps)}</caption>'
            f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
        )

    def _count(self) -> int:
        """How many steps there are, their sums taken in. A step is amended, but not what it used."""
        for step in self._run.history[len(self._sums) - 1 :]:
            so_far, cost = self._sums[-1]
            used, paid = step.all_tokens, step.all_cost_usd
            self._sums.append(
                (None if so_far is None or used is None else so_far + used, None if cost is None or paid is None else cost + paid)
            )
        return len(self._sums) - 1


def window(steps: int, chosen: int | None, most: int = MOST_ROWS) -> tuple[int, int]:
    """The first and last step that are shown: the newest, or `chosen` in the middle as far as that goes."""
    last = steps if chosen is None else min(steps, max(most, chosen + most // 2 - 1))
    return max(1, last - most + 1), last


def _caption(first: int, last: int, steps: int) -> str:
    shown = f"step {first}" if first == last else f"steps {first:,} to {last:,}"
    beside = [f"{first - 1:,} earlier"] * (first > 1) + [f"{steps - last:,} later"] * (last < steps)
    return f"{shown} of {steps:,}" + (f" ({', '.join(beside)})" if beside else "")


def _row(step: StepResult, sums: Sums, is_chosen: bool) -> str:
    failed = sum(result.is_error for result in step.tool_results)
    called = seen(printable(", ".join(call.name for call in step.tool_calls[:20])[:300])) + (
        f" ({failed} failed)" if failed else ""
    )
    texts = (
        f"{'▸ ' if is_chosen else ''}{step.index}",
        step.finish_reason or "no answer",
        called,
        tokens(step.all_tokens),
        tokens(sums[0]),
        dollars(step.all_cost_usd),
        dollars(sums[1]),
        seconds(step.duration_s),
    )
    cells = "".join(f"<td{_css(is_number)}>{escape(text, 120)}</td>" for text, (_, is_number) in zip(texts, HEADS, strict=True))
    mark = ' aria-current="step"' if is_chosen else ""
    return f'<tr data-step="{step.index}"{mark}>{cells}</tr>'


def _css(is_number: bool) -> str:
    return ' class="number"' if is_number else ""

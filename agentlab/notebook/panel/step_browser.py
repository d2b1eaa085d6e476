"""The tab Steps: the steps in a table, controls to move between them, and one step in full."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import ipywidgets as widgets

from agentlab.agent import Run
from agentlab.errors import ConfigurationError
from agentlab.notebook import markup
from agentlab.notebook.live_view import PanelState, is_drawing
from agentlab.notebook.markup import Html
from agentlab.notebook.page.step_detail import OPEN_AT_FIRST, detail, seconds, seen
from agentlab.notebook.page.steps import RunningTotals
from agentlab.notebook.panel.controls import set_button
from agentlab.records.step import StepResult

MOST_ROWS = 12


class StepBrowser:
    """The steps of the run, and the chosen step in full, or the newest while none is chosen.

    `number` takes a step; empty, it follows the newest.
    """

    title = "Steps"

    def __init__(self, state: PanelState) -> None:
        self._state = state
        self._table = StepTable(state.run)
        self._opened = set(OPEN_AT_FIRST)
        self._detailed: StepResult | None = None
        self._shown_text = ""
        self._lock = threading.RLock()  # edits and redraws arrive on different threads
        self.number = widgets.Text(
            description="Step",
            placeholder="newest",
            continuous_update=False,
            tooltip="The step to show; empty: the newest",
            style={"description_width": "3em"},
            layout=widgets.Layout(width="9em"),
        )
        self.earlier, self.later, self.newest = (
            widgets.Button(description=text, layout=widgets.Layout(width="8em")) for text in ("◀ Earlier", "Later ▶", "Newest")
        )
        self.message, self.table, self.detail = Html(), Html(), Html()
        self.number.observe(self._typed, "value")
        self.earlier.on_click(lambda _: self._go_to(lambda at: at - 1))
        self.later.on_click(lambda _: self._go_to(lambda at: at + 1))
        self.newest.on_click(lambda _: self._go_to(lambda at: None))
        row = widgets.HBox([self.number, self.earlier, self.later, self.newest], layout=widgets.Layout(flex_flow="row wrap"))
        self.view = widgets.VBox([row, self.message, self.table, self.detail])

    def show(self) -> bool:
        """Update table, controls and detail. The detail is replaced for another step only, so that opened sections, selections and the
        scroll position stay."""
        run = self._state.run
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
        """Record that the person opened or closed a section: other steps are shown like that too."""
        if is_open:
            self._opened.add(section)
        else:
            self._opened.discard(section)

    def _show_controls(self, steps: int) -> int | None:
        with self._lock:
            chosen = self._state.chosen
            text = "" if chosen is None else str(chosen)
            if self._shown_text != text:
                self._shown_text = text  # first: the box reports this change too
                self.number.value, self.message.value = text, ""
        at = steps if chosen is None else chosen
        nothing = "No step has been taken yet." if not steps else ""
        set_button(self.earlier, nothing or ("This is the first step." if at <= 1 else ""), "Show the step before")
        set_button(self.later, nothing or ("This is the newest step." if at >= steps else ""), "Show the next step")
        followed = "The newest step is shown already." if chosen is None else ""
        set_button(self.newest, nothing or followed, "Follow the newest step again")
        return chosen

    def _typed(self, change: Any) -> None:
        if is_drawing():
            return
        text = change["new"].strip()
        with self._lock:
            try:
                if text != self._shown_text:
                    self._state.choose(_as_step(text))
                    self._shown_text = text  # otherwise the next redraw would overwrite what is typed until then
                    self.number.value = text  # a redraw may have come in between
            except ConfigurationError as error:
                self.message.value = markup.fault(str(error))
            else:
                self.message.value = ""

    def _go_to(self, where: Callable[[int], int | None]) -> None:
        at = self._state.chosen or len(self._state.run.history)
        self._state.do(lambda: self._state.choose(where(at)))


def _as_step(text: str) -> int | None:
    """The typed number; None for an empty text."""
    if not text:
        return None
    try:
        return int(text) if text.isdecimal() else int("")
    except ValueError:
        message = f"Step {text[:40]!r}: type the number of a step, such as 3, or leave the box empty for the newest."
        raise ConfigurationError(message) from None


class StepTable:
    """The steps around the chosen one as a table. Its cost does not grow with the run: sums are cached, and rows are few."""

    def __init__(self, run: Run) -> None:
        self._run, self._totals = run, RunningTotals(run)

    def html(self, chosen: int | None) -> str:
        """The newest steps, or those around the chosen step, whose row is marked. A click on a row chooses its step."""
        steps = self._totals.catch_up()
        first, last = window(steps, chosen)
        shown = self._run.history[first - 1 : last]
        return self._table(
            shown,
            chosen,
            css="agentlab-step-table",
            caption=_caption(first, last, steps),
            row_attributes=[
                f' data-step="{step.index}"' + (' aria-current="step"' if step.index == chosen else "") for step in shown
            ],
        )

    def static_html(self, most: int) -> str:
        """The newest `most` steps, without times."""
        earlier = max(0, self._totals.catch_up() - most)
        note = f'<p class="agentlab-note">… {earlier} earlier steps</p>' if earlier else ""
        return note + self._table(self._run.history[earlier:], None, timing=False)

    def _table(self, shown: Sequence[StepResult], chosen: int | None, *, timing: bool = True, **more: Any) -> str:
        if not shown:
            return '<p class="agentlab-note">No steps yet.</p>'
        heads: tuple[str, ...] = ("step", "finish reason", "tools", "tokens", "total", "cost", "total", "time")
        rows = [self._row(step, step.index == chosen) for step in shown]
        if not timing:  # a saved notebook has up to a hundred rows: without the cost of each step
            heads, rows = (*heads[:5], "total cost"), [(*row[:5], row[6]) for row in rows]
        return markup.table(heads, rows, numbers=(0, *range(3, len(heads))), **more)

    def _row(self, step: StepResult, is_chosen: bool) -> tuple[object, ...]:
        failed = sum(result.is_error for result in step.tool_results)
        called = seen(", ".join(call.name for call in step.tool_calls[:20])[:200])
        return (
            f"{'▸ ' if is_chosen else ''}{step.index}",
            step.finish_reason or "no answer",
            f"{called} ({failed} failed)" if failed else called,
            markup.tokens(step.all_tokens),
            markup.tokens(self._totals.tokens[step.index]),
            markup.dollars(step.all_cost_usd),
            markup.dollars(self._totals.cost[step.index]),
            seconds(step.duration_s),
        )


def window(steps: int, chosen: int | None, most: int = MOST_ROWS) -> tuple[int, int]:
    """The first and last step to show: the newest, or `chosen` in the middle as far as possible."""
    last = steps if chosen is None else min(steps, max(most, chosen + most // 2 - 1))
    return max(1, last - most + 1), last


def _caption(first: int, last: int, steps: int) -> str:
    shown = f"step {first}" if first == last else f"steps {first:,} to {last:,}"
    beside = [f"{first - 1:,} earlier"] * (first > 1) + [f"{steps - last:,} later"] * (last < steps)
    return f"{shown} of {steps:,}" + (f" ({', '.join(beside)})" if beside else "")

"""The explorer: tries limits on recorded runs, and shows cost and success while a slider moves."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Set
from functools import cache
from pathlib import Path
from typing import Any

import ipywidgets as widgets
import pandas as pd

from agentlab._internal.asyncio_tools import can_start_threads
from agentlab._internal.formatting import counted
from agentlab._internal.safe_text import AS_WRITTEN, label, printable
from agentlab.analysis.backtest import Goal
from agentlab.analysis.sources import Recorded, records_of
from agentlab.engine.worker import running_loop
from agentlab.limits.budget import Budget
from agentlab.limits.combinators import StopCondition
from agentlab.notebook import markup
from agentlab.notebook.explorer.controls import CopyButton, Html, NumberField, RangeSlider, drawing, is_drawing
from agentlab.notebook.explorer.figures import (
    Others,
    TradeOff,
    Trials,
    Tried,
    code_html,
    ends_html,
    figures_html,
    reached,
    share,
    summary_html,
)
from agentlab.notebook.explorer.limits import (
    ChosenLimits,
    Offer,
    Value,
    as_code,
    budget_of,
    notes,
    offers,
    recorded_limits,
    stop_of,
    tells_time,
    usual_limits,
)
from agentlab.notebook.live_view import LiveView, Picture, StaticOutputs
from agentlab.notebook.page import style as page_style
from agentlab.notebook.redrawer import redrawer

SETTLED_S = 0.8
"""Time between the last change and saving the choice in the notebook's file."""
SHOW_OTHERS_EVERY_S = 0.5
"""Time between two pictures while other limits are tried."""
FIRST_OTHERS = 5
NO_LIMIT, AS_RECORDED = "no limit", "as recorded"
"""The labels of None: no limit, or the limit of each run if they differ."""


def explore(recorded: Recorded, *, goal: Goal = None, runs: pd.DataFrame | None = None, limits: object = None) -> Explorer:
    """Return an Explorer: a slider for each limit, and cost, success, stop reasons and the Pareto frontier while a slider moves.

    recorded  a steps frame, a Store, results of an experiment, a result, a run, or a list of these
    goal      the success criterion, as for `lab.backtest`; None: the agent finished on its own
    runs      with a steps frame, its runs frame
    limits    names of the limits that get a slider, or a dict of names with the values of the slider (None: round values); without it
              one for each of steps, tokens, cost, calls and time, as the runs had them, unless it cannot say anything:
              `StepCountIs`, `MaxTokensUsed`, `MaxCost`, `HasToolCall`, and of the budget `max_turns`, `max_tokens`, `max_cost`,
              `max_calls`, `timeout`

    It opens with the limits that the runs had, and with their recorded figures. A limit that you do not change stays as it was in
    each run. A limit that differs between runs is `None`, as recorded, until you set it for all runs. A frame has the limits in columns
    such as `max_turns` and `HasToolCall.limit`; the page names limits that are unknown.

    `explorer.stop` and `explorer.budget` are the chosen limits, for `agent.run(…)`; `explorer.code` has both as text.
    `explorer.limits["MaxCost"] = 0.02` moves the slider. `explorer.frame` has the figures, `explorer.others` those of the grid
    behind the frontier, both with the columns of `lab.backtest`. If some runs are unknown, the success is a range. A mean is shown only
    if most runs are known, with their number, and compared with the record of the same runs.
    Errors: ConfigurationError if `recorded` has no runs, and for unknown names and goals.

    Example:
        >>> explorer = lab.explore([result, *others], limits={"StepCountIs": [2, 4, 8]})
        >>> explorer.code
        "stop=StepCountIs(8) | HasToolCall('finalize')"
        >>> explorer.limits["StepCountIs"] = 4
        >>> explorer.code
        "stop=StepCountIs(4) | HasToolCall('finalize')"
    """
    return Explorer(recorded, goal=goal, runs=runs, limits=limits)


class Explorer(LiveView):
    """Limits with sliders, their outcome on recorded runs, and a comparison with other limits."""

    def __init__(self, recorded: Recorded, *, goal: Goal = None, runs: pd.DataFrame | None = None, limits: object = None) -> None:
        super().__init__()
        records = records_of(recorded, runs)
        self._recorded = recorded_limits(records)
        self._offered = offers(records, limits, usual_limits(self._recorded), self._recorded.shared)
        self._timed = tells_time(records)
        self._trials = Trials(records, self._offered, self._recorded, goal)
        self._others = Others(self._trials)
        self._picture = TradeOff(self._trials.record)
        self._goal = _goal_words(goal)
        self._tried: Tried | None = None
        self._compared = 0
        self._comparing = threading.Lock()
        self._changed_at = 0.0
        self._longest = self._trials.longest
        self.limits = ChosenLimits(self._trials.opening)
        self.limits.on_change = self._changed

    # The choice -------------------------------------------------------------------------------------------------------------

    @property
    def stop(self) -> StopCondition | None:
        """The chosen stop condition, for `agent.run(…, stop=…)`; None for no condition."""
        return stop_of(self._trials.complete(self.limits.snapshot()))

    @property
    def budget(self) -> Budget | None:
        """The chosen budget, for `agent.run(…, budget=…)`; None if the default suffices."""
        limits = budget_of(self._trials.complete(self.limits.snapshot()), self._longest)
        return Budget(**limits) if limits else None

    @property
    def code(self) -> str:
        """Both as arguments of `agent.run(…)`."""
        return self._code_of(self.limits.snapshot())

    def _code_of(self, chosen: Mapping[str, Value]) -> str:
        return as_code(self._trials.complete(chosen), self._longest)

    @property
    def frame(self) -> pd.DataFrame:
        """One row with the chosen limits and their outcome, with the columns of `lab.backtest`."""
        return self._now().frame.copy()

    @property
    def others(self) -> pd.DataFrame:
        """One row per configuration of the grid behind the frontier, for `lab.plots.what_if`. Waits until all were tried."""
        self._others.finish()
        return self._others.frame()

    def _now(self) -> Tried:
        chosen = self.limits.snapshot()
        tried = self._tried
        if tried is None or tried.chosen is not chosen:
            self._tried = tried = self._trials.of(chosen)
        return tried

    # Live -------------------------------------------------------------------------------------------------------------------

    @property
    def widget(self) -> widgets.VBox:
        """The live widget, created on first access."""
        if self._widget is None:
            self._redrawer = redrawer(self._draw_safely, self._is_under_way)
            self._widget = widgets.VBox(_dom_classes=("agentlab-panel", "agentlab-page", "agentlab-explorer", AS_WRITTEN))
            self._compose()
        return self._widget

    def _compose(self) -> None:
        self.fault = Html()
        self.rows = rows_of(self._offered, self.limits, self._recorded.differing)
        self.summary = Html(_dom_classes=("agentlab-summary",))
        self.figures, self.chart = Html(), Html()
        self.code_text, self.progress = Html(), Html()
        self.copy = CopyButton()
        heading = Html("<h2>Limits</h2>", _dom_classes=("agentlab-heading",))
        code_heading = Html("<h2>For agent.run(…)</h2>", _dom_classes=("agentlab-heading",))
        self.back = widgets.Button(description="As recorded", tooltip="Restore the limits that the runs had")
        self.back.on_click(lambda _: self.limits.update(self._trials.opening))
        missing = Html(notes(self._recorded, self._offered), _dom_classes=("agentlab-message",))
        limits = widgets.VBox(
            [heading, *(row.view for row in self.rows.values()), self.back, missing, code_heading, self.code_text, self.copy],
            _dom_classes=("agentlab-tried",),
        )  # fmt: skip
        about = Html(markup.note(f"The goal: {self._goal}."))
        found = widgets.VBox([self.chart, self.progress, self.figures, about], _dom_classes=("agentlab-found",))
        for _ in range(FIRST_OTHERS):
            self._others.one_more()
        body = widgets.HBox([found, limits], layout=widgets.Layout(flex_flow="row wrap"), _dom_classes=("agentlab-body",))
        style = Html(f"<style>{page_style()}.{self._kept_class} {{display:none}}</style>{_sheet('live')}")
        with self._drawing:
            self.widget.children = [style, self.summary, body, self.fault]
            self._draw_safely()  # last: from here on, events request redraws
        if can_start_threads():
            threading.Thread(target=self._try_others, name="agentlab-explorer", daemon=True).start()
        elif running_loop() is not None:
            self._trying = asyncio.ensure_future(self._try_others_here())  # kept, since a loop has only weak references to tasks

    def _try_others(self) -> None:
        """Try the grid on a thread. It sleeps as long as it works, so that sliders stay responsive."""
        for rest_s in self._tries():
            time.sleep(rest_s)

    async def _try_others_here(self) -> None:
        """Try the grid on the event loop, where there are no threads."""
        for rest_s in self._tries():
            await asyncio.sleep(rest_s)

    def _tries(self) -> Iterator[float]:
        """Try the grid one by one. Yields the seconds to sleep after each."""
        shown_at = time.monotonic()
        while not self._others.over:
            began = time.monotonic()
            self._others.one_more()
            ended = time.monotonic()
            if ended > shown_at + SHOW_OTHERS_EVERY_S:
                shown_at = ended
                self._redrawer.mark()
            yield ended - began
        self._redrawer.mark()

    def _changed(self) -> None:
        self._changed_at = time.monotonic()
        if self._widget is not None:
            self._redrawer.mark(soon=True)

    def _report(self, fault: str) -> None:
        self.fault.value = markup.fault(fault) if fault else ""

    def _controls(self) -> Iterator[widgets.Widget]:
        waiting: list[widgets.Widget] = [self.widget]
        while waiting:
            widget = waiting.pop()
            yield widget
            waiting.extend(getattr(widget, "children", ()))

    def _show(self) -> None:
        with drawing():
            self._show_now()

    def _show_now(self) -> None:
        for row in self.rows.values():
            row.show()  # first: trying takes a while, and a slider that is moved meanwhile must not be moved back
        tried = self._now()
        self.summary.value = summary_html(tried, self._trials.record)
        self.figures.value = figures_html(tried, self._trials.record, timed=self._timed)
        self.chart.value = self._pictured(tried).as_html()
        text = self._code_of(tried.chosen)
        self.copy.text = text  # first, so that the button copies the visible code
        self.code_text.value = code_html(text)
        done, whole = self._compared, len(self._others.several)
        self.progress.value = markup.note(f"{done:,} of {whole:,} other configurations tried so far." if done < whole else "")

    def _pictured(self, tried: Tried) -> Picture:
        with self._comparing:  # a display may request the picture while the page is drawn
            if self._compared != self._others.done:
                self._compared = self._others.done
                self._picture.compare_with(self._others.frame())
        return self._picture.draw(tried)

    def _is_under_way(self) -> bool:
        return not self._others.over or not self._is_settled

    @property
    def _is_settled(self) -> bool:
        return time.monotonic() >= self._changed_at + SETTLED_S

    def _finished(self) -> object:
        return ("kept", self.limits.version) if self._others.over and self._is_settled else None

    def _static(self) -> StaticTrial:
        tried = self._now()
        about = markup.note(f"The goal: {self._goal}.") + notes(self._recorded, self._offered)
        return StaticTrial(tried, self._trials.record, self._code_of(tried.chosen), about, lambda: self._still_picture(tried))

    def _still_picture(self, tried: Tried) -> Picture:
        """Return the picture for a reader without a kernel: with all other limits, unless the live page is trying them."""
        if self._widget is None:
            self._others.finish()
        return self._pictured(tried)

    def __repr__(self) -> str:
        return f"Explorer({counted(self._trials.record.row['runs'], 'run')}, {self.code})"


class StaticTrial(StaticOutputs):
    """The limits and their outcome for a reader without a kernel. `about` has remarks on both, as HTML; `picture` draws them."""

    def __init__(self, tried: Tried, record: Tried, code: str, about: str, picture: Callable[[], Picture]) -> None:
        self._tried, self._record, self._code, self._about, self._picture = tried, record, code, about, picture

    def pictures(self) -> list[Picture]:
        """The chosen limits among others."""
        return [self._picture()]

    def text(self) -> str:
        """Return the limits and their outcome in two lines."""
        row = self._tried.row
        ended = ", ".join(f"{label}: {count:,}" for label, count in self._tried.ends if count)
        return printable(
            f"{self._code}\n{counted(row['runs'], 'run')}{', as recorded' if self._tried.is_record else ''}: "
            f"{reached(row)} reached the goal, {share(row['unknown_share'])} unknown. {ended}"
        )

    def html(self, pictures: str = "") -> str:
        """Figures and ends as tables."""
        parts = (
            summary_html(self._tried, self._record),
            self._about,
            f"<pre>{markup.escape(self._code, 2000)}</pre>",
            figures_html(self._tried, self._record, timed=False),
            pictures,
            ends_html(self._tried),
        )
        return f'<div class="agentlab-panel {AS_WRITTEN}">{_sheet("static")}{"".join(parts)}</div>'


@cache
def _sheet(name: str) -> str:
    """Return a style sheet: `static` is saved in notebooks, `live` is for the live explorer only."""
    return f"<style>\n{Path(__file__).with_name(f'{name}.css').read_text(encoding='utf-8')}</style>"


def _goal_words(goal: Goal) -> str:
    if goal is None:
        return "the agent finished on its own, or called the tool that ended the run"
    if isinstance(goal, str):
        return f"{goal} of at least 1"
    if isinstance(goal, Mapping | pd.Series):
        return "a value of at least 1 for the run"
    return repr(goal) if isinstance(goal, StopCondition) else getattr(goal, "__name__", type(goal).__name__)


# The rows -------------------------------------------------------------------------------------------------------------------


class LimitRow:
    """One limit: a number, a check box for None, and a slider. Typing, ticking, sliding and code set the same value."""

    def __init__(self, offer: Offer, chosen: ChosenLimits, none: str = NO_LIMIT) -> None:
        self.offer, self._chosen, self._name = offer, chosen, offer.kind.name
        value, kind = chosen[self._name], offer.kind
        middle = offer.values[len(offer.values) // 2]
        help_ = f"{self._name}: {none}, or a value from {offer.values[0]} to {offer.values[-1]} and beyond"
        start = middle if value is None else value
        self.number = NumberField(
            kind.label, value, self._write, kind=kind.number, unit=kind.unit, start=start, nothing=none, about=help_
        )
        words = [f"{kind.label} {_in_words(one, kind.unit)}" for one in offer.values]
        self.slider = RangeSlider(
            label=f"{kind.label}, slider", texts=[*words, f"{kind.label}: {none}"], place=offer.place_of(value)
        )
        self.slider.observe(self._slid, "place")
        self.view = widgets.VBox([self.number.view, self.slider], _dom_classes=("agentlab-limit-row",))

    def show(self) -> None:
        """Update number and slider."""
        self.number.follow(lambda: self._chosen[self._name])
        self.slider.place = self.offer.place_of(self._chosen[self._name])

    def _write(self, value: Value) -> None:
        self._chosen[self._name] = value

    def _slid(self, change: Any) -> None:
        place = change["new"]
        if is_drawing() or place == self.offer.place_of(self._chosen[self._name]):
            return
        self._chosen[self._name] = None if place >= len(self.offer.values) else self.offer.values[place]


class ToolTicks:
    """A check box for each tool. A run stops when a ticked tool was called."""

    def __init__(self, offer: Offer, chosen: ChosenLimits, none: str = NO_LIMIT) -> None:
        self._chosen, self._name = chosen, offer.kind.name
        self.boxes = {
            name: widgets.Checkbox(
                value=name in (chosen[self._name] or ()), description=label(name), indent=False,
                tooltip="Stop when this tool was called", layout={"width": "auto"}, _dom_classes=("agentlab-tick",),
            )
            for name in offer.values
        }  # fmt: skip
        for name, box in self.boxes.items():
            box.observe(self._on_tick(name), "value")
        each = "" if none == NO_LIMIT else f" ({none} while none is ticked)"
        head = Html(f"Stop when one of these tools was called{each}:", _dom_classes=("agentlab-tools-head",))
        self.view = widgets.VBox([head, widgets.HBox(list(self.boxes.values()), _dom_classes=("agentlab-ticks",))])

    def show(self) -> None:
        """Update the boxes."""
        for name, box in self.boxes.items():
            box.value = name in (self._chosen[self._name] or ())

    def _on_tick(self, name: str) -> Callable[[Any], None]:
        def ticked(change: Any) -> None:
            names = self._chosen[self._name] or ()
            if not is_drawing() and (name in names) != change["new"]:
                others = tuple(one for one in names if one != name)
                self._chosen[self._name] = ((*others, name) if change["new"] else others) or None

        return ticked


def rows_of(offered: Mapping[str, Offer], chosen: ChosenLimits, differing: Set[str]) -> dict[str, LimitRow | ToolTicks]:
    """Return a row for each limit that has values. The limits in `differing` differ between the runs."""
    return {
        name: (ToolTicks if offer.kind.number is tuple else LimitRow)(
            offer, chosen, AS_RECORDED if name in differing else NO_LIMIT
        )
        for name, offer in offered.items()
        if offer.values
    }


def _in_words(value: Value, unit: str) -> str:
    if isinstance(value, int):
        return f"{value:,} {unit}".strip()
    return f"{value:f} {unit}" if unit == "USD" else f"{value:g} {unit}"

"""All displays of runs in the package, collected as text: HTML, plain text, the texts of pictures, the state of widgets."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import ipywidgets
import matplotlib as mpl
import pandas as pd
import pytest
from thread_tools import drawn, undisturbed

import agentlab as lab
from agentlab._internal.safe_text import AS_WRITTEN
from agentlab.notebook.page.data import page_data
from agentlab.notebook.page.steps import Shown
from agentlab.notebook.panel.feed import Feed
from agentlab.records.frames import FRAMES

Kind = Literal["html", "text", "svg", "trait"]


@dataclass(frozen=True)
class Displayable:
    """A displayed text: its kind, and where it is shown."""

    kind: Kind
    where: str
    text: str


BY = ("provider", "model", "prompt")


def all_of(runs: Sequence[lab.Run], by: Sequence[str] = BY) -> Iterator[Displayable]:
    """All displays of ended runs, in groups by these columns."""
    yield from displays_of(runs)
    yield from plots(runs, by)


def displays_of(runs: Sequence[lab.Run]) -> Iterator[Displayable]:
    """All except the plots: of each run, of several, and of their figures."""
    results, frames = _results(runs), {what: lab.frame(_results(runs), what) for what in FRAMES}
    for run in runs:
        yield from of_run(run)
    for what, frame in frames.items():
        yield from of_frame(f"frame {what}", frame)
    yield from side_by_side(runs[:8])
    yield from explorer(results, frames["steps"])
    yield from figures_of(frames["runs"], frames["steps"])


def _results(runs: Sequence[lab.Run]) -> list[lab.RunResult]:
    return [run.result for run in runs if run.result is not None]


def of_run(run: lab.Run) -> Iterator[Displayable]:
    """A run's own displays: the result's, its page, and the panel's, live and stored."""
    assert run.result is not None
    yield from of_bundle("result", run.result._repr_mimebundle_())
    yield Displayable("text", "run.next_actions", "\n".join(map(repr, (*run.next_actions, run, run.agent, run.agent.model))))
    yield Displayable("text", "page", run.to_html(raw=True))
    yield from of_page("page, data", page_data([run], "Runs", Shown(raw=True)))
    yield from of_page("panel, data", Feed((run,)).news())
    yield from of_view("panel", run.panel())


def of_view(where: str, view: Any) -> Iterator[Displayable]:
    """A view such as the panel, live and stored."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGENTLAB_FRONTEND", "widgets")
        drawn(view)
        with undisturbed(view):  # each widget in its container
            live = [shown for widget in _below(view.widget) for shown in of_widget(where, widget)]
        yield from live
    yield Displayable("text", f"{where}, repr", repr(view))
    static = view._static()
    pictures = static.pictures()  # drawn once for both
    static.pictures = lambda: pictures
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(view, "_static", lambda: static)
        kept = view._kept_bundle()
    yield from of_bundle(f"{where}, kept", kept)
    for data, about in static.outputs():
        yield from of_bundle(f"{where}, static", data)
        yield Displayable("text", f"{where}, static: alt", " ".join(str(one.get("alt", "")) for one in about.values()))


def of_page(where: str, data: object, field: str = "") -> Iterator[Displayable]:
    """The data of a page: the fields that become markup, and all others."""
    if isinstance(data, dict):
        for name, value in data.items():
            yield from of_page(where, value, str(name))
    elif isinstance(data, list | tuple):
        for value in data:
            yield from of_page(where, value, field)
    elif isinstance(data, str):
        if field in ("html", "details") or field.endswith("_html"):
            yield Displayable("html", f"{where}, {field}", f'<div class="{AS_WRITTEN}">{data}</div>')  # as the page's own element
        else:
            yield Displayable("trait", f"{where}, {field}", data)


def of_widget(where: str, widget: ipywidgets.Widget) -> Iterator[Displayable]:
    """The HTML of HTML widgets, and the other texts that a widget sends to the page."""
    state = widget.get_state()
    if isinstance(widget, ipywidgets.HTML):
        yield Displayable("html", f"{where}, live", str(state.pop("value")))
    for name, value in state.items():
        if name not in ("_esm", "_css") and not name.startswith("_model") and not name.startswith("_view"):
            for text in _texts(value):
                yield Displayable("trait", f"{where}, {type(widget).__name__}.{name}", text)


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for one in value.items():
            yield from _texts(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _texts(one)


def _below(widget: Any) -> Iterator[ipywidgets.Widget]:
    if isinstance(widget, ipywidgets.Widget):
        yield widget
        for child in getattr(widget, "children", ()):
            yield from _below(child)


def of_bundle(where: str, data: dict[str, Any]) -> Iterator[Displayable]:
    """The output of a display by mime type; pictures are checked elsewhere."""
    for mime, content in data.items():
        if mime == "text/html":
            yield Displayable("html", where, content)
        elif not mime.startswith("image/"):
            yield Displayable("text", f"{where} ({mime})", content if isinstance(content, str) else json.dumps(content))


def of_frame(where: str, frame: pd.DataFrame) -> Iterator[Displayable]:
    """A frame: its cells, and its display in a notebook. Its repr is pandas' own, and has the beginnings of the same texts."""
    assert type(frame) is pd.DataFrame
    with pd.option_context("display.max_colwidth", None, "display.max_rows", 500, "display.max_columns", 100):
        yield Displayable("html", f"{where}, HTML", frame.to_html())  # the output of _repr_html_, with all rows
    yield Displayable("text", where, frame.to_csv())


def side_by_side(runs: Sequence[lab.Run]) -> Iterator[Displayable]:
    """Several runs in one panel."""
    view = lab.panel(list(runs))
    yield from of_page("side by side, data", Feed(tuple(runs)).news())
    yield from of_view("side by side", view)


def explorer(results: Sequence[lab.RunResult], steps: pd.DataFrame) -> Iterator[Displayable]:
    """An explorer of recorded runs, from the runs and from their frame alone."""
    for name, recorded in (("explorer", list(results)), ("explorer of a frame", steps)):
        view: Any = lab.explore(recorded, limits={"StepCountIs": [1, 2], "HasToolCall": None})
        yield from of_view(name, view)
        tools = view._offered["HasToolCall"].values
        if tools:
            view.limits["HasToolCall"] = tools
            yield from of_view(f"{name}, tools chosen", view)
        yield Displayable("text", f"{name}, code", view.code)
        yield from of_frame(f"{name}.frame", view.frame)
        yield from of_frame(f"{name}.others", view.others)


def figures_of(runs: pd.DataFrame, steps: pd.DataFrame) -> Iterator[Displayable]:
    """Figures in tables and sentences."""
    for by in BY:
        yield from of_frame(f"summary by {by}", lab.summary(runs, by))
        if runs[by].nunique() > 1:
            agreement = _or_none(lambda by=by: lab.agreement(runs, by=by))
            if agreement is not None:
                yield from of_html(f"agreement by {by}", agreement)
            paired = _or_none(lambda by=by: lab.paired(runs, "total_tokens", by))
            if paired is not None:
                yield from of_frame(f"paired by {by}", paired)
    tried = lab.backtest(steps, lab.StepCountIs([1, 2]))
    yield from of_frame("backtest", tried)
    suggestion = lab.suggest(steps, lab.StepCountIs([1, 2]))
    yield from of_html("suggestion", suggestion)
    yield Displayable("text", "suggestion.why", "\n".join(suggestion.why))


def of_html(where: str, value: Any) -> Iterator[Displayable]:
    """An object with a `_repr_html_`."""
    yield Displayable("html", where, value._repr_html_())
    yield Displayable("text", where, f"{value!r}\n{value}")


def _or_none(make: Callable[[], Any]) -> Any:
    try:
        return make()
    except lab.AgentlabError:
        return None


# Plots ------------------------------------------------------------------------------------------------------------------------


def plots(runs: Sequence[lab.Run], by: Sequence[str] = BY) -> Iterator[Displayable]:
    """Every plot of these runs: the drawn texts, as SVG, and the descriptions."""
    shown, results = lab.plots, _results(runs)
    frame = lab.frame(results, "runs")
    steps = lab.frame(results).merge(frame[["run_id", "prompt"]], on="run_id")
    made: dict[str, Callable[[], Any]] = {
        "tokens": lambda: shown.tokens(steps),
        "cost": lambda: shown.cost(steps),
        "curves": lambda: shown.curves(steps),
        "timeline": lambda: shown.timeline(results[0]),
        "timeline of several": lambda: shown.timeline(list(results)),
        "tree": lambda: shown.tree(list(runs)),
        "what_if": lambda: shown.what_if(lab.backtest(steps, lab.StepCountIs([1, 2])), "tokens_mean"),
        "what_if of tools": lambda: shown.what_if(_tools_tried(steps), "tokens_mean"),
    }
    for one in by:
        made |= {
            f"stop_reasons by {one}": lambda one=one: shown.stop_reasons(frame, by=one),
            f"bands by {one}": lambda one=one: shown.bands(steps, by=one),
            f"survival by {one}": lambda one=one: shown.survival(frame, by=one),
            f"estimates by {one}": lambda one=one: shown.estimates(frame, by=one),
            f"cost_success by {one}": lambda one=one: shown.cost_success(frame, by=one),
            f"small_multiples by {one}": lambda one=one: shown.small_multiples(shown.tokens, steps, by=one),
        }
    made["comparison"] = lambda: shown.comparison(frame, steps)
    for name, draw in made.items():
        yield from of_picture(name, draw())


def _tools_tried(steps: pd.DataFrame) -> pd.DataFrame:
    tools = [name for cell in steps["tools"].dropna() for name in str(cell).split(", ") if name.strip()]
    stops = {name: lab.HasToolCall(name) for name in dict.fromkeys(tools)} or {"one": lab.StepCountIs(1)}
    return lab.backtest(steps, stops)


def of_picture(name: str, drawn: Any) -> Iterator[Displayable]:
    """A picture: its texts in SVG, and its description."""
    figure = getattr(drawn, "figure", drawn)
    yield Displayable("text", f"plot {name}: alt", f"{drawn.alt}")
    data, metadata = figure.bundle()
    yield from of_bundle(f"plot {name}", data)
    yield Displayable("text", f"plot {name}: metadata", metadata["image/png"]["alt"])
    out = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none"}):
        figure.savefig(out, format="svg", metadata={"Date": None})
    yield Displayable("svg", f"plot {name}", out.getvalue())

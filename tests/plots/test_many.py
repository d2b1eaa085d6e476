"""Many groups, long names, overlapping points: every text in a picture stays readable and distinguishable."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import agentlab as lab
from agentlab import MaxCost, MaxTokensUsed, StepCountIs
from agentlab.plots.figure import short_names, shorten
from agentlab.plots.series import looks_of
from tests.analysis.run_builders import known, steps_of

MANY = 40


def runs_of_many(groups: int) -> pd.DataFrame:
    rows = [
        {"run_id": f"{group} {run}", "provider": f"provider-{group}", "terminated": True, "truncated": False, "steps": 1 + run,
         "stop_reason": ("completed", "terminating_tool")[run % 2], "total_tokens": 100 * (1 + run), "cost_usd": 0.001 * (1 + run)}
        for group in range(groups) for run in range(6)
    ]  # fmt: skip
    return pd.DataFrame(rows)


def steps_of_many(groups: int) -> pd.DataFrame:
    parts = [steps_of([1, 2, 3, 4, 5, 6], [True] * 6, ids=[f"{group} {run}" for run in range(6)]) for group in range(groups)]
    providers = [f"provider-{group}" for group, part in enumerate(parts) for _ in range(len(part))]
    return pd.concat(parts, ignore_index=True).assign(provider=providers)


def texts_of(ax: Any) -> list[str]:
    return [text.get_text() for text in ax.get_legend().get_texts()]


def is_inside(ax: Axes) -> bool:
    """True if the legend is within the figure."""
    figure = ax.figure
    assert isinstance(figure, lab.plots.PlotFigure)
    figure.draw_without_rendering()  # computes the layout
    legend = ax.get_legend()
    assert legend is not None
    box = legend.get_window_extent()
    return bool(box.y0 >= 0 and box.y1 <= figure.bbox.height and box.x1 <= figure.bbox.width)


def suggested() -> Any:
    return lab.suggest(steps_of_many(MANY), StepCountIs([1, 3, 6]), cost="tokens", by="provider").plot()


PICTURES: dict[str, Callable[[], Any]] = {
    "cost_success": lambda: lab.plots.cost_success(runs_of_many(MANY)),
    "what_if": lambda: lab.plots.what_if(lab.backtest(steps_of_many(MANY), StepCountIs([1, 3, 6]), by="provider"), by="provider"),
    "suggestions": suggested,
}


@pytest.mark.parametrize("make", PICTURES.values(), ids=list(PICTURES))
def test_forty_groups_are_all_named_beside_their_axes(make: Callable[[], Any]) -> None:
    ax = make()

    assert [text for text in texts_of(ax) if text.startswith("provider-")] == [f"provider-{group}" for group in range(MANY)]
    assert is_inside(ax)
    assert ax.get_window_extent().height > 0.7 * ax.figure.bbox.height


def test_further_groups_are_counted() -> None:
    ax = lab.plots.cost_success(runs_of_many(60))

    assert texts_of(ax)[-1] == "and 20 more" and is_inside(ax)
    tried = lab.backtest(steps_of_many(60), StepCountIs([1, 3]), by="provider")
    assert "and 20 more" in texts_of(lab.plots.what_if(tried, by="provider"))


def test_forty_groups_have_forty_looks_without_a_line() -> None:
    looks = looks_of(f"provider-{place}" for place in range(48))

    assert len({(one.colour, one.marker) for one in looks.values()}) == 48


def test_groups_that_are_not_drawn_take_no_room() -> None:
    few, many = (lab.plots.survival(runs_of_many(count)).figure.get_size_inches()[1] for count in (8, MANY))

    assert few == many


def test_the_lines_of_a_comparison_of_forty_groups_do_not_overlap() -> None:
    figure = lab.plots.comparison(runs_of_many(MANY))
    figure.draw_without_rendering()

    for ax in figure.axes:
        for labels in (ax.get_xticklabels(), ax.get_yticklabels()):
            boxes = [label.get_window_extent() for label in labels if label.get_text()]
            boxes = [box for box in boxes if ax.bbox.padded(20).overlaps(box)]
            for one, other in pairwise(boxes):
                shared = min(one.y1, other.y1) - max(one.y0, other.y0), min(one.x1, other.x1) - max(one.x0, other.x0)
                assert min(shared) <= 2.0, [label.get_text() for label in labels]


# What if -----------------------------------------------------------------------------------------------------------------------


def test_points_at_one_place_have_their_numbers_side_by_side() -> None:
    ax: Any = lab.plots.what_if(lab.backtest(steps_of([2] * 9, [True] * 9), StepCountIs([1, 2, 3, 4])))

    assert [text.get_text() for text in ax.texts] == ["0", "1, 2, 3"], "the numbers of the frame"


def test_a_label_keeps_the_values_that_distinguish_it() -> None:
    grid = StepCountIs([2, 4]) | MaxTokensUsed([500, 200_000]) | MaxCost([0.001, 0.005])
    labels = [text for text in texts_of(lab.plots.what_if(lab.backtest(known(), grid))) if text[0].isdigit()]

    assert labels and all("…" not in text for text in labels)
    assert labels[0] == "0  StepCountIs 2, MaxTokensUsed 500\n    MaxCost 0.001"


def test_the_suggestion_is_in_the_legend_and_its_ring_is_complete() -> None:
    ax = lab.suggest(known(), StepCountIs([2, 3, 10]), keep=0.9, cost="steps").plot()

    assert texts_of(ax)[0] == "suggested"
    ring = next(line for line in ax.lines if line.get_markersize() == 16)
    assert not ring.get_clip_on()
    alone = lab.suggest(known(), StepCountIs([1, 2]), cost="steps")
    assert not alone and "suggested" not in texts_of(alone.plot())


def test_given_axes_keep_their_size() -> None:
    figure = Figure(figsize=(4, 3))
    lab.plots.cost_success(runs_of_many(3), ax=figure.add_subplot())

    assert tuple(figure.get_size_inches()) == (4, 3)


@pytest.mark.parametrize("names", [("模型", "模式"), ("通义-1", "豆包-1")], ids=str)
def test_names_in_letters_missing_in_the_font_stay_different(names: tuple[str, str]) -> None:
    runs = runs_of_many(2)
    runs["provider"] = runs["provider"].map(dict(zip(("provider-0", "provider-1"), names, strict=True)))

    assert len(set(texts_of(lab.plots.cost_success(runs)))) == 2
    assert len({label.get_text() for label in lab.plots.estimates(runs, "cost").get_yticklabels()}) == 2


MODELS = [f"meta-llama/llama-3.1-{size}-instruct:free" for size in ("8b", "70b", "405b")]
"""Names whose first and last letters are the same."""


def of_models() -> tuple[pd.DataFrame, pd.DataFrame]:
    named = dict(zip(("provider-0", "provider-1", "provider-2"), MODELS, strict=True))
    return tuple(of(3).replace({"provider": named}).assign(model="m") for of in (runs_of_many, steps_of_many))  # type: ignore[return-value]


def ticks_of(ax: Any) -> list[str]:
    return [label.get_text() for label in ax.get_yticklabels() if label.get_text() not in ("completed", "terminating_tool")]


RUNS, STEPS = of_models()
ALIKE: dict[str, Callable[[], list[str]]] = {
    "estimates": lambda: ticks_of(lab.plots.estimates(RUNS, "cost")),
    "stop_reasons": lambda: ticks_of(lab.plots.stop_reasons(RUNS)),
    "cost_success": lambda: texts_of(lab.plots.cost_success(RUNS)),
    "frontier": lambda: [text.partition("\n")[0] for text in texts_of(lab.plots.frontier(RUNS))[-3:]],
    "survival": lambda: texts_of(lab.plots.survival(RUNS)),
    "survival, below": lambda: [text.get_text() for text in lab.plots.survival(RUNS).texts if text.get_gid() == "table"][1:],
    "bands": lambda: texts_of(lab.plots.bands(steps_with_totals()))[:3],
    "tokens": lambda: texts_of(lab.plots.tokens(steps_with_totals()))[1:4],
    "what_if": lambda: texts_of(lab.plots.what_if(lab.backtest(STEPS, StepCountIs([1, 3]), by="provider"), by="provider"))[:3],
    "small multiples": lambda: [ax.get_title() for ax in small_multiples().axes],
    "legend of small multiples": lambda: [text.get_text() for text in small_multiples().legends[0].get_texts()][:3],
    "legend of a comparison": lambda: [text.get_text() for text in lab.plots.comparison(RUNS).legends[0].get_texts()][:3],
}


def steps_with_totals() -> pd.DataFrame:
    return STEPS.assign(cumulative_tokens=STEPS.groupby("run_id")["total_tokens"].cumsum(), cumulative_cost_usd=pd.NA)


def small_multiples() -> Any:
    return lab.plots.small_multiples(lab.plots.bands, steps_with_totals())


@pytest.mark.parametrize("what", ALIKE)
def test_long_names_that_differ_in_the_middle_have_different_labels(what: str) -> None:
    labels = ALIKE[what]()

    assert len(labels) == len(set(labels)) == 3
    assert all(size in label for size, label in zip(("8b", "70b", "405b"), labels, strict=True)), labels


@given(st.lists(st.text("ab-", max_size=60), unique=True, max_size=6), st.integers(6, 30))
def test_different_names_have_different_labels(names: list[str], width: int) -> None:
    names = [f"x{name}x" for name in names]
    labels = short_names(names, width)

    assert list(labels) == names and len(set(labels.values())) == len(names)
    alone = [shorten(name, width) for name in names]
    assert len(set(alone)) < len(alone) or list(labels.values()) == alone, "longer only if they must be"

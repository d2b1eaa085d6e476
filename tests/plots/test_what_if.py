"""What-if: the cost and success of other limits: the points, which of them are efficient, and the drawing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.axes import Axes

import agentlab as lab
from agentlab import MaxCost, StepCountIs, errors
from agentlab.plots import what_if_data
from agentlab.plots.what_if_frontier import on_the_frontier

from .test_drawing import legend_of


def backtested(
    cost: list[float | None], rate: list[float | None], unknown: list[float] | None = None, **front: Any
) -> pd.DataFrame:
    """A frame in the form of lab.backtest, with these figures."""
    count = len(cost)
    shares = unknown or [0.0] * count
    data: dict[str, Any] = {
        "configuration": list(range(count)),
        "StepCountIs": list(range(1, count + 1)),
        **front,
        "runs": [10] * count,
    }
    for stem, values in (("cost_mean", cost), ("success_rate", rate)):
        name = stem.partition("_")[0]
        data |= {stem: values, f"{name}_low": [None if v is None else v * 0.9 for v in values],
                 f"{name}_high": [None if v is None else v * 1.1 for v in values], f"{name}_unknown": shares}  # fmt: skip
    return pd.DataFrame(data).convert_dtypes()


def steps() -> pd.DataFrame:
    """Three runs of 2, 4 and 6 steps; the last was truncated."""
    rows = [
        (f"r{run}", step, 100, 0.001, 1, 0.5, "complete" if step == 2 * run and run < 3 else "continue")
        for run in (1, 2, 3)
        for step in range(1, 2 * run + 1)
    ]
    return pd.DataFrame(rows, columns=["run_id", "step", "total_tokens", "cost_usd", "calls", "duration_s", "action"])


def line(ax: Axes, kind: str) -> Any:
    return next(one for one in ax.lines if str(one.get_gid()).partition(":")[0] == kind)


def test_the_points_equal_those_of_the_backtest() -> None:
    frame = lab.backtest(steps(), StepCountIs([1, 2, 4, 6, 8]) | MaxCost([0.003, 1]))
    data = what_if_data(frame)

    assert data["x"].tolist() == frame["cost_mean"].tolist()
    assert data["y"].tolist() == frame["success_rate"].tolist()
    assert data["label"].iloc[0] == "StepCountIs 1, MaxCost 0.003"
    assert data["unknown"].iloc[-1] == pytest.approx(1 / 3), "the truncated run would have continued"
    assert not data["efficient"].iloc[-1]
    best = data[data["efficient"]].sort_values("x")
    assert best["y"].tolist() == [0, pytest.approx(1 / 3), pytest.approx(2 / 3)]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=12))
def test_the_frontier_has_exactly_the_points_that_no_other_dominates(points: list[tuple[int, int]]) -> None:
    x, y = (np.array([point[axis] for point in points], dtype=float) for axis in (0, 1))
    chosen = on_the_frontier(x, y)
    for place in range(len(points)):
        above = (x <= x[place]) & (y >= y[place]) & ((x < x[place]) | (y > y[place]))
        assert not (chosen[place] and above.any())
        assert chosen[place] or (chosen & (x <= x[place]) & (y >= y[place])).any()


def test_mostly_unknown_points_are_not_drawn() -> None:
    frame = backtested([1, 2, 3, None], [0.2, 0.9, 0.8, 0.5], [0.0, 0.2, 0.05, 0.0])
    ax = lab.plots.what_if(frame)

    assert line(ax, "frontier").get_xydata().tolist() == [[1, 0.2], [3, 0.8]]
    assert line(ax, "points").get_xydata().tolist() == [[1, 0.2], [3, 0.8]]
    assert legend_of(ax) == [
        "Pareto frontier", "1 not drawn: more than\n5% of the runs unknown",
            "1 not drawn:\ncost or success unknown",
        "0  StepCountIs 1", "2  StepCountIs 3\n    5% of the runs unknown",
    ]  # fmt: skip
    assert "0% to 5% of the runs unknown. Not drawn, since more than 5% of the runs are unknown: 1." in ax.alt
    assert "more than 1% of the runs are unknown in all" in lab.plots.what_if(frame.iloc[[1, 2]], most_unknown=0.01).alt
    assert line(lab.plots.what_if(frame, most_unknown=0.2), "frontier").get_xydata().tolist() == [[1, 0.2], [2, 0.9]]


def test_each_group_has_its_frontier_and_look() -> None:
    frame = backtested([1, 2, 1, 2], [0.2, 0.9, 0.1, 0.3], provider=["a", "a", "b", "b"])
    ax = lab.plots.what_if(frame, by="provider")

    fronts = {str(one.get_gid()): one for one in ax.lines if str(one.get_gid()).startswith("frontier:")}
    assert list(fronts) == ["frontier:a", "frontier:b"]
    assert fronts["frontier:a"].get_color() != fronts["frontier:b"].get_color()
    assert legend_of(ax)[:2] == ["a", "b"]


def test_other_figures_than_cost_and_success() -> None:
    frame = lab.backtest(steps(), StepCountIs([1, 2, 4]))
    ax = lab.plots.what_if(frame, x="step_mean", y="tokens_mean")
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("steps per run (mean)", "tokens per run (mean)")
    assert what_if_data(frame, x="step_mean")["unknown"].tolist() == frame["unknown_share"].tolist()


def test_no_data_and_invalid_data() -> None:
    empty = lab.backtest(steps(), StepCountIs([1, 2])).iloc[:0]
    assert lab.plots.what_if(empty).alt.endswith("no configurations yet.")
    assert "cost or success is unknown in all" in lab.plots.what_if(backtested([None], [0.5])).alt
    with pytest.raises(errors.ConfigurationError, match="cost_mean"):
        lab.plots.what_if(empty, x="costs_mean")
    with pytest.raises(errors.ConfigurationError, match="needs the column"):
        lab.plots.what_if(steps())
    with pytest.raises(errors.ConfigurationError, match="most_unknown"):
        lab.plots.what_if(empty, most_unknown=5)


def test_it_draws_into_given_axes_and_many_points_have_no_names() -> None:
    frame = backtested([float(place) for place in range(1, 60)], [place / 60 for place in range(1, 60)])
    ax = lab.plots.what_if(frame)
    assert not any(text.get_text() == "1" for text in ax.texts)

    few = backtested([float(place) for place in range(1, 61)], [min(place, 3) / 60 for place in range(1, 61)])
    named = [text.get_text() for text in lab.plots.what_if(few).get_legend().get_texts()]
    assert [name.split()[0] for name in named] == ["Pareto", "0", "1", "2"]  # those on the frontier, however many are below it
    assert lab.plots.what_if(frame, ax=ax) is ax

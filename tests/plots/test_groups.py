"""Groups of runs: the data of their plots, and their drawing."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

import agentlab as lab
from agentlab import errors
from agentlab.plots import PlotFigure, bands_data, cost_success_data, estimates_data, stop_reasons_data, survival_data
from agentlab.testing import call, say
from tests.analysis.frame_builders import runs_of

from .builders import NA, listed, looping, run_of, steps_of
from .test_drawing import legend_of, words_in

THREE = steps_of(("a", [10, 20, 30]), ("a", [20, 40]), ("a", [30, 60, 90]), ("b", [5, NA]), ("b", [7, 8]))
ENDED = ["completed", "completed", "completed", "turn_limit", "turn_limit"]


def runs(count: int = 8, **columns: Any) -> pd.DataFrame:
    provider = ["a", "b"] * (count // 2)
    tokens = [100 * place if name == "a" else None for place, name in enumerate(provider, start=1)]
    costs = [None if value is None else value / 1000 for value in tokens]
    terminated = [place % 3 != 0 for place in range(count)]
    return runs_of(
        provider, terminated=terminated, total_tokens=tokens, cost_usd=costs, **{"steps": [*range(1, count + 1)], **columns}
    )


def drawn(ax: Axes, kind: str) -> dict[str, Any]:
    return {str(line.get_gid()).split(":", 1)[1]: line for line in ax.lines if str(line.get_gid()).startswith(f"{kind}:")}


# Bands ---------------------------------------------------------------------------------------------------------------------------


def test_the_median_and_the_middle_half_of_the_runs_at_each_step() -> None:
    data = bands_data(THREE)

    assert data[["group", "step", "runs", "known"]].to_numpy().tolist() == [
        ["a", 1, 3, 3], ["a", 2, 3, 3], ["a", 3, 2, 2], ["b", 1, 2, 2], ["b", 2, 2, 1],
    ]  # fmt: skip
    assert listed(data["median"]) == [20, 40, 60, 6, 8]
    assert listed(data["low"]) == [15, 30, 45, 5.5, 8]
    assert listed(bands_data(THREE, quantiles=(0, 1))["high"]) == [30, 60, 90, 7, 8]
    assert listed(bands_data(THREE, "cost")["median"])[0] == pytest.approx(0.02)


def test_unknown_in_a_band_is_not_0_and_a_duplicated_run_counts_once() -> None:
    unknown = bands_data(steps_of(("a", [NA, NA])))
    assert listed(unknown["median"]) == [None, None]
    assert list(unknown["known"]) == [0, 0]
    pd.testing.assert_frame_equal(bands_data(pd.concat([THREE, THREE])), bands_data(THREE))


def test_bands_of_real_runs() -> None:
    data = bands_data(lab.frame([run_of(looping(end=end)) for end in (1, 2, 3)]))

    assert list(data["runs"]) == [3, 2, 1]
    assert list(data["median"]) == [100, 200, 300]


def test_a_group_is_a_line_with_a_band_that_is_thin_for_few_runs() -> None:
    steps = steps_of(("a", [1, 2, 3, 4]), ("a", [2, 3]), ("a", [3, 4]))
    ax = lab.plots.bands(steps)

    assert drawn(ax, "median")["a"].get_xydata().tolist() == [[1, 2], [2, 3]]
    assert drawn(ax, "thin")["a"].get_xydata().tolist() == [[2, 3], [3, 3], [4, 4]]
    assert [collection.get_gid() for collection in ax.collections] == ["band:a"]
    assert legend_of(ax) == ["a", "thin: fewer than half\nof the runs remain"]
    assert words_in(ax) == ["runs that took the step", "a", "3", "3", "1", "1"]
    assert ax.alt == "Cumulative tokens per step, median and band of 1 group: a 3 (2 to 4) after step 2, by 3 of 3 runs."


def test_an_unknown_cost_is_in_the_legend_and_the_alt_text() -> None:
    ax = lab.plots.bands(steps_of(("a", [NA, NA]), ("b", [1, NA]), ("c", [1, 2])), "cost")

    assert legend_of(ax) == ["a", "b", "c", "cost unknown: a", "cost partly unknown: b"]
    assert "a unknown after step 2" in ax.alt
    assert words_in(lab.plots.bands(steps_of(("a", [NA]))))[0] == "tokens unknown"


# Survival --------------------------------------------------------------------------------------------------------------------------


def test_survival_equals_a_calculation_by_hand() -> None:
    data = survival_data(runs_of(["a"] * 10, terminated=[True, False, True, None, True] * 2, steps=[1, 2, 2, 3, 4] * 2))

    assert list(data["step"]) == [0, 1, 2, 3, 4]
    assert list(data["at_risk"]) == [10, 10, 8, 4, 2]
    assert list(data["ended"]) == [0, 2, 2, 0, 2]
    assert list(data["censored"]) == [0, 0, 2, 2, 0]
    assert list(data["alive"]) == pytest.approx([1, 0.8, 0.6, 0.6, 0])
    assert listed(data["low"].isna()) == [True, False, False, False, True]
    assert (data["low"].dropna() < 0.8).all()


def test_truncated_and_running_runs_are_censored_and_unknown_steps_are_excluded() -> None:
    data = survival_data(runs_of(["a", "a", "b"], terminated=[False, None, True], steps=[2, 0, None]))

    assert set(data["group"]) == {"a"}
    assert list(data["alive"]) == [1, 1, 1]
    assert data["low"].isna().all()


def test_a_survival_curve_marks_truncated_runs() -> None:
    ax = lab.plots.survival(runs())

    assert list(drawn(ax, "alive")) == ["a", "b"]
    assert drawn(ax, "alive")["a"].get_ydata()[0] == 1
    assert drawn(ax, "censored")["a"].get_xdata().tolist() == [1, 7]
    assert legend_of(ax)[-1] == "cut off or\nnot ended"
    assert "a at least half finished by step 5 (estimated), 2 of 4 finished, 2 cut off or not ended; b " in ax.alt
    none = lab.plots.survival(runs_of(["a", "a"], terminated=[False, None], steps=[2, 1]))
    assert "a fewer than half finished (estimated), 0 of 2 finished, 2 cut off or not ended." in none.alt


# Points with intervals ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["completion", "success", "score", "tokens", "cost"])
def test_estimates_equal_those_of_the_summary(what: str) -> None:
    frame = runs(16, score=[1, 0] * 8)
    table, data = lab.summary(frame), estimates_data(frame, what)

    value = {"completion": "completion_rate", "success": "success_rate"}.get(what, f"{what}_mean")
    for mine, theirs in (("value", value), ("low", f"{what}_low"), ("high", f"{what}_high")):
        assert listed(data[mine]) == listed(table[theirs])
    assert list(data["group"]) == ["a", "b"]


def test_a_point_with_its_interval_and_its_number() -> None:
    ax = lab.plots.estimates(runs(24), "tokens")

    assert list(drawn(ax, "point")) == list(drawn(ax, "interval")) == ["a"]
    low, high = drawn(ax, "interval")["a"].get_xdata()
    assert low < drawn(ax, "point")["a"].get_xdata()[0] == 1_200 < high
    assert words_in(ax) == ["1,200  12 runs", "unknown"]
    assert "a 1,200 (" in ax.alt and "b unknown" in ax.alt


def test_a_point_without_an_interval_is_hollow() -> None:
    ax = lab.plots.estimates(runs(4), "cost")

    assert drawn(ax, "interval") == {}
    assert drawn(ax, "point")["a"].get_markerfacecolor() == "none"
    assert "no interval" in ax.alt
    assert ax.get_xlabel() == "cost per run (mean, US dollars)\nhollow: no interval"
    filled = lab.plots.estimates(runs(24), "cost")
    assert filled.get_xlabel() == "cost per run (mean, US dollars)\nIntervals: t on the logarithm or Hall."
    several = lab.plots.small_multiples(lab.plots.estimates, runs(4), columns=1)
    assert [each.get_xlabel() for each in several.axes] == ["hollow: no interval", "finished on its own\nhollow: no interval"]


@pytest.mark.parametrize(
    ("score", "measure", "label"),
    [
        pytest.param(None, "completion", "finished on its own", id="no score"),
        pytest.param([True, False] * 4, "success", "succeeded", id="yes or no"),
        pytest.param([0.25, 0.75] * 4, "score", "mean score", id="graded"),
    ],
)
def test_cost_against_each_kind_of_success(score: Any, measure: str, label: str) -> None:
    frame = runs() if score is None else runs(score=score)

    assert set(cost_success_data(frame)["measure"]) == {measure}
    ax = lab.plots.cost_success(frame)
    assert ax.get_ylabel() == label
    assert legend_of(ax) == ["a", "b", "cost unknown: b"]
    assert drawn(ax, "point")["b"].get_markerfacecolor() == "none"
    assert "b" in ax.alt and "at a cost of unknown" in ax.alt


def test_no_known_cost() -> None:
    ax = lab.plots.cost_success(runs_of(["a"] * 3))

    assert ax.get_xlabel() == "cost unknown\nhollow: an interval is missing"
    assert list(ax.get_xticks()) == []


def test_groups_are_side_by_side_if_no_cost_is_known() -> None:
    ax = lab.plots.cost_success(runs_of([*"abcd"] * 6))

    assert [point.get_xdata()[0] for point in drawn(ax, "point").values()] == pytest.approx([n / 4 / 1.02 for n in (1, 2, 3, 4)])


def test_the_notes_below_small_plots_are_inside_the_figure() -> None:
    frame = runs_of([*"abc"] * 24, score=[True, False] * 36, prompt_id=[f"p{place // 6}" for place in range(72)])
    figure = lab.plots.small_multiples(lab.plots.estimates, frame, what="success")
    figure.draw_without_rendering()
    boxes = [ax.xaxis.label.get_window_extent() for ax in figure.axes]

    assert "effective n" in figure.axes[0].get_xlabel().replace("\n", " ")
    assert boxes[0].x0 >= 0 and boxes[-1].x1 <= figure.bbox.width
    assert not any(one.overlaps(other) for one, other in pairwise(boxes))


# Several -----------------------------------------------------------------------------------------------------------------------------


def test_small_multiples_share_axes_looks_and_one_legend() -> None:
    figure = lab.plots.small_multiples(lab.plots.tokens, THREE.assign(stop_reason=pd.NA))

    assert isinstance(figure, PlotFigure)
    assert [ax.get_title() for ax in figure.axes] == ["a", "b"]
    assert len({ax.get_ylim() for ax in figure.axes}) == len({ax.get_xlim() for ax in figure.axes}) == 1
    together = drawn(lab.plots.tokens(THREE), "run")
    alone = [drawn(ax, "run") for ax in figure.axes]
    assert to_hex(alone[1]["r4"].get_color()) == to_hex(together["r4"].get_color()) != to_hex(alone[0]["r1"].get_color())
    assert [ax.get_legend() for ax in figure.axes] == [None, None]
    assert legend_of(figure) == ["a", "b"]
    assert figure.alt.startswith("a: Cumulative tokens")


def test_the_note_on_what_is_unknown_is_below_the_title() -> None:
    script = [call("look", {}, cost=0.01), say("the end")]
    results = [run_of(script, name) for name in ("alpha", "beta", "gamma")]
    figure = lab.plots.small_multiples(lab.plots.cost, results)
    figure.draw_without_rendering()
    for ax in figure.axes:
        (note,) = [text for text in ax.texts if "cost unknown" in text.get_text()]
        assert not note.get_window_extent().overlaps(ax.title.get_window_extent())


def test_a_comparison_says_how_many_groups_an_axis_leaves_out() -> None:
    frame = pd.concat([runs().assign(provider=f"g{place:02}") for place in range(10)], ignore_index=True)
    frame["run_id"] = [str(place) for place in range(len(frame))]
    labels = [ax.get_xlabel().partition("\n")[0] for ax in lab.plots.comparison(frame).axes]
    assert labels[-1] == "steps (2 more not drawn)" and sum("not drawn" in label for label in labels) == 1


def test_small_multiples_of_bars_keep_their_names_apart() -> None:
    frame = runs_of(["a", "a", "b"], terminated=[True, False, False])
    figure = lab.plots.small_multiples(lab.plots.stop_reasons, frame, columns=1)

    assert [[text.get_text() for text in ax.get_yticklabels()] for ax in figure.axes] == [
        ["a", "completed", "turn_limit"],
        ["b", "turn_limit"],
    ]


def test_small_multiples_accept_options_and_custom_plots() -> None:
    seen: list[tuple[int, str]] = []

    def mine(frame: pd.DataFrame, ax: Axes, word: str = "") -> None:
        seen.append((len(frame), word))

    lab.plots.small_multiples(mine, runs(), word="x")
    assert seen == [(4, "x"), (4, "x")]


@pytest.mark.parametrize(
    ("plot", "options", "axis"),
    [
        (lab.plots.cost_success, {}, "xaxis"),
        (lab.plots.frontier, {}, "xaxis"),
        (lab.plots.estimates, {"what": "cost"}, "xaxis"),
        (lab.plots.cost, {}, "yaxis"),
        (lab.plots.bands, {"what": "cost"}, "yaxis"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_group_of_unknown_cost_does_not_flatten_the_others(plot: Any, options: dict[str, Any], axis: str) -> None:
    results = [
        run_of(looping(end=2, cost=cost), name) for name, cost in (("a", "0.001"), ("b", "0.002"), ("c", None)) for _ in "xy"
    ]
    axes = lab.plots.small_multiples(plot, results, **options).axes
    limits = [getattr(ax, axis).get_view_interval().tolist() for ax in axes]

    assert limits == [limits[0]] * 3 and 0.004 < limits[0][1] < 0.005
    assert [len(getattr(ax, axis).get_ticklocs()) > 0 for ax in axes] == [True, True, False]


def test_the_point_of_an_unknown_cost_is_at_the_right_edge_of_all_axes() -> None:
    several = lab.plots.small_multiples(lab.plots.cost_success, runs()).axes
    point = drawn(several[1], "point")["b"]
    (at, _), *_ = several[1].transAxes.inverted().transform(point.get_transform().transform(point.get_xydata()))

    assert at == pytest.approx(1 / 1.02)


def test_small_frontiers_have_room_beside_their_legend() -> None:
    figure = lab.plots.small_multiples(lab.plots.frontier, runs(48).assign(cost_usd=[1 + place % 7 for place in range(48)]))
    figure.draw_without_rendering()

    assert all(ax.get_position().height * figure.get_figheight() > 1 for ax in figure.axes)
    assert [text.partition("\n")[0] for text in legend_of(figure)[:2]] == ["a", "b"]
    for ax in figure.axes:
        line = next(line for line in ax.lines if line.get_gid() == "frontier")
        assert line.get_xdata()[-1] > ax.get_xlim()[1], "up to the edge"


def test_many_groups_are_counted() -> None:
    steps = steps_of(*[(f"p{number:02}", [1, 2]) for number in range(20)])

    assert len(lab.plots.small_multiples(lab.plots.tokens, steps).axes) == 12
    assert legend_of(lab.plots.bands(steps))[-1] == "and 12 more"


@pytest.mark.parametrize("with_steps", [True, False])
def test_the_picture_of_a_comparison(with_steps: bool) -> None:
    steps = lab.frame([run_of(looping(end=2), "a"), run_of(looping(end=3), "b")])
    figure = lab.plots.comparison(runs(score=[True, False] * 4), steps if with_steps else None)

    titles = [ax.get_title() for ax in figure.axes]
    assert titles == ["Outcome", "Cost against success", "Why runs ended", "Tokens", "Cost", "How long they ran"]
    assert figure.axes[3].get_xlabel() == ("step" if with_steps else "tokens per run (mean)\nhollow: no interval")
    assert all(ax.get_legend() is None for ax in figure.axes)
    assert [text.split("\n")[0] for text in legend_of(figure)][:2] == ["a", "b"]
    assert "Cost against success of 2 groups" in figure.alt


def test_a_share_of_runs_is_a_count_beside_its_point() -> None:
    ax = lab.plots.estimates(runs_of(["a"] * 30, terminated=[True] * 30))

    assert ax.texts[0].get_text().splitlines()[0] == "30 of 30 runs"
    assert "a 100% (" in ax.alt and "30 runs" in ax.alt  # type: ignore[attr-defined]


def test_a_comparison_says_once_of_which_groups_the_cost_is_unknown() -> None:
    results = [run_of(looping(cost=cost, end=2), model=model) for model, cost in (("a", "0.01"), ("b", None), ("c", None))]
    figure = lab.plots.comparison(results)

    assert legend_of(figure) == ["a", "b", "c", "cost unknown: b, c"]
    assert legend_of(lab.plots.frontier(results))[-1] == "cost or success unknown: b, c"
    assert " ".join(legend_of(lab.plots.frontier(results))).count("unknown") == 1


@pytest.mark.parametrize("frame", ["runs", "events"])
def test_small_timelines_are_those_of_what_differs(frame: str) -> None:
    results = [run_of(looping(end=2), model=model) for model in "aab"]
    shown = results if frame == "runs" else lab.frame(results, "events")

    assert [ax.get_title() for ax in lab.plots.small_multiples(lab.plots.timeline, shown).axes] == ["a", "b"]
    bare = lab.frame(results, "events").drop(columns=["provider", "model"])
    assert len(lab.plots.small_multiples(lab.plots.timeline, bare).axes) == 3, "one per run"


@pytest.mark.parametrize(
    ("do", "message"),
    [
        (lambda: lab.plots.tokens(THREE, colour="red"), "tokens takes no 'colour'. It takes: steps, ax."),
        (lambda: lab.plots.bands(THREE, quantile=(0, 1)), "bands takes no 'quantile'. Did you mean 'quantiles'?"),
        (lambda: lab.plots.small_multiples(lab.plots.tokens, THREE, level=0.9), "tokens takes no 'level'"),
        (lambda: lab.plots.survival_data(runs(), group="a"), "survival_data takes no 'group'"),
    ],
)
def test_a_wrong_keyword_is_an_error_that_lists_the_right_ones(do: Any, message: str) -> None:
    with pytest.raises(errors.ConfigurationError) as caught:
        do()
    assert message in str(caught.value)


def test_all_plots_check_their_keywords() -> None:
    plots = [name for name in lab.plots.__all__ if name.islower() and name != "small_multiples"]  # which passes them on
    assert len(plots) > 20
    for name in plots:
        with pytest.raises(errors.ConfigurationError, match=f"{name} takes no 'nothing'"):
            getattr(lab.plots, name)(THREE, nothing=1)


def test_a_comparison_by_other_columns() -> None:
    figure = lab.plots.comparison(runs().assign(settings=["short", "long"] * 4, provider="one"), by=["provider", "settings"])

    assert legend_of(figure)[0] == "one · short"
    assert stop_reasons_data(runs().assign(settings="s"), "settings").columns[0] == "group"


# All plots ---------------------------------------------------------------------------------------------------------------------------

PLOTS: dict[str, tuple[Any, pd.DataFrame]] = {
    "bands": (lab.plots.bands, THREE),
    "survival": (lab.plots.survival, runs()),
    "estimates": (lab.plots.estimates, runs()),
    "cost_success": (lab.plots.cost_success, runs()),
    "small_multiples": (lambda frame: lab.plots.small_multiples(lab.plots.bands, frame), THREE),
    "comparison": (lab.plots.comparison, runs()),
}
each = pytest.mark.parametrize(("plot", "frame"), PLOTS.values(), ids=PLOTS.keys())


@each
def test_the_same_data_give_the_same_picture_and_stay_unchanged(plot: Any, frame: pd.DataFrame) -> None:
    before = frame.copy(deep=True)
    first, second = plot(frame), plot(frame)

    assert first.alt == second.alt
    one, other = (shown if isinstance(shown, PlotFigure) else shown.figure for shown in (first, second))
    assert one.png(1) == other.png(1) == one.png(1)
    pd.testing.assert_frame_equal(frame, before)


@each
def test_empty_data_give_an_empty_plot(plot: Any, frame: pd.DataFrame) -> None:
    for nothing in (pd.DataFrame(), frame.iloc[:0]):
        shown = plot(nothing)
        assert "yet" in shown.alt
        assert (shown if isinstance(shown, PlotFigure) else shown.figure).png(0.4).startswith(b"\x89PNG")


@each
def test_a_missing_column_is_named(plot: Any, frame: pd.DataFrame) -> None:
    with pytest.raises(errors.ConfigurationError, match="needs the column"):
        plot(frame.drop(columns="provider"))
    with pytest.raises(errors.ConfigurationError, match="cannot read list"):
        plot([1])


@pytest.mark.parametrize("name", ["bands", "survival", "estimates", "cost_success"])
def test_given_axes_are_drawn_into(name: str) -> None:
    given = Figure().add_subplot()
    plot, frame = PLOTS[name]

    assert plot(frame, ax=given) is given
    assert given.lines


@each
def test_names_from_outside_are_drawn_literally(plot: Any, frame: pd.DataFrame) -> None:
    names = ("$x_1$", "_hidden", "two\nlines", "模", "a" * 80)
    several = [frame.assign(provider=name, run_id=[f"{name} {run}" for run in frame["run_id"]]) for name in names]
    shown = plot(pd.concat(several, ignore_index=True))
    assert (shown if isinstance(shown, PlotFigure) else shown.figure).png(0.4).startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("do", "message"),
    [
        pytest.param(lambda: lab.plots.bands(THREE, "steps"), "what='steps'", id="what"),
        pytest.param(
            lambda: lab.plots.bands(THREE, quantiles=(0.6, 0.7)), "quantiles=(0.6, 0.7): pass two numbers", id="quantiles"
        ),
        pytest.param(lambda: lab.plots.bands(THREE, quantiles=3), "quantiles=3", id="no quantiles"),
        pytest.param(lambda: lab.plots.estimates(runs(), "time"), "what='time'", id="no measure"),
        pytest.param(lambda: lab.plots.small_multiples("tokens", THREE), "plot='tokens'", id="no plot"),
        pytest.param(lambda: lab.plots.small_multiples(lab.plots.tokens, THREE, columns=0), "columns=0", id="columns"),
    ],
)
def test_invalid_input_names_the_value(do: Any, message: str) -> None:
    with pytest.raises(errors.ConfigurationError) as caught:
        do()
    assert message in str(caught.value)

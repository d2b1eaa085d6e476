"""The drawing, read from the artists of the axes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.lines import Line2D

import agentlab as lab
from agentlab import Budget, MaxCost, MaxTokensUsed, errors
from agentlab.model.finish_reasons import StopReason
from agentlab.plots import PlotFigure
from agentlab.plots.figure import END_MARKERS

from .builders import NA, looping, run_of, runs_of, steps_of


def lines_of(ax: Axes, kind: str) -> list[Line2D]:
    """The lines that are runs, limits or ends."""
    return [line for line in ax.lines if str(line.get_gid()).startswith(f"{kind}:")]


def legend_of(where: Any) -> list[str]:
    legend: Legend | None = where.get_legend() if isinstance(where, Axes) else where.legends[0]
    return [] if legend is None else [text.get_text() for text in legend.get_texts() if text.get_text()]


def words_in(ax: Axes) -> list[str]:
    return [text.get_text() for text in ax.texts]


# Runs ----------------------------------------------------------------------------------------------------------------------


def test_one_line_per_run_with_its_values() -> None:
    ax = lab.plots.tokens(steps_of(("one", [10, 20, 30]), ("two", [15, 40])))

    first, second = lines_of(ax, "run")
    assert first.get_xydata().tolist() == [[1, 10], [2, 20], [3, 30]]
    assert second.get_xydata().tolist() == [[1, 15], [2, 40]]
    assert legend_of(ax) == ["runs", "one", "two"]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("step", "cumulative tokens")
    assert ax.get_ylim()[0] == 0


def test_cost_is_in_dollars() -> None:
    ax = lab.plots.cost(steps_of(("one", [10, 20, 30])))

    assert lines_of(ax, "run")[0].get_ydata().tolist() == pytest.approx([0.01, 0.02, 0.03])
    assert ax.get_ylabel() == "cumulative cost (US dollars)"
    assert ax.yaxis.get_major_formatter().format_ticks([0, 0.0005, 0.001]) == ["$0", "$0.0005", "$0.0010"]


def test_providers_differ_in_colour_and_in_marker_and_line_style() -> None:
    names = [f"provider {place}" for place in range(12)]
    lines = lines_of(lab.plots.tokens(steps_of(*[(name, [1, 2]) for name in names])), "run")
    few = lines_of(lab.plots.tokens(steps_of(*[(name, [1, 2]) for name in names[:6]])), "run")

    assert len({line.get_marker() for line in lines}) == len(names)
    assert len({(to_hex(line.get_color()), str(line._unscaled_dash_pattern)) for line in lines}) == len(names)
    assert len({to_hex(line.get_color()) for line in few}) == len({line.get_marker() for line in few}) == 6


def test_models_of_one_provider_differ_in_colour_marker_and_line_style() -> None:
    steps = steps_of(("one", [1, 2]), ("one", [2, 3]), ("one", [3, 4]))
    first, second, third = lines_of(lab.plots.tokens(steps.assign(model=[*"aabbaa"])), "run")

    assert to_hex(first.get_color()) != to_hex(second.get_color())
    assert first.get_marker() != second.get_marker()
    assert str(first._unscaled_dash_pattern) != str(second._unscaled_dash_pattern)
    assert (first.get_color(), first.get_marker()) == (third.get_color(), third.get_marker())
    assert legend_of(lab.plots.tokens(steps.assign(model=[*"aabbaa"]))) == ["runs", "a × 2", "b"]


@pytest.mark.parametrize(
    ("columns", "names"),
    [
        pytest.param({"model": "xxyy"}, ["x", "y"], id="models"),
        pytest.param({"model": "xxxx", "provider": "ppqq"}, ["p", "q"], id="one model at two providers"),
        pytest.param({"agent": "aabb", "model": "xxyy"}, ["a", "b"], id="named agents"),
        pytest.param(
            {"agent": ["p:x", "p:x", "p:y", "p:y"], "provider": "pppp", "model": "xxyy"}, ["x", "y"], id="unnamed agents"
        ),
        pytest.param({"agent": "aaaa", "settings": "sstt"}, ["s", "t"], id="settings of one agent"),
        pytest.param({"agent": "aabb", "settings": "sstt", "model": "xxxx"}, ["a", "b"], id="agents with their own settings"),
        pytest.param({"agent": "aaaa", "model": "xxyy"}, ["x", "y"], id="models of one agent"),
    ],
)
def test_the_legend_has_only_what_differs(columns: dict[str, Any], names: list[str]) -> None:
    steps = steps_of(("one", [1, 2]), ("one", [2, 3])).assign(**{name: [*values] for name, values in columns.items()})

    assert legend_of(lab.plots.tokens(steps)) == ["runs", *names]
    assert len({to_hex(line.get_color()) for line in lines_of(lab.plots.tokens(steps), "run")}) == 2
    assert lab.plots.bands_data(steps)["group"].unique().tolist() == names


def test_agents_under_several_settings_share_a_colour_if_the_colours_run_out() -> None:
    steps = steps_of(*[("one", [1, 2])] * 8)
    both = steps.assign(agent=[*"a" * 8, *"b" * 8], settings=[*"ppqqrrss"] * 2)
    lines = lines_of(lab.plots.tokens(both), "run")

    assert legend_of(lab.plots.tokens(both))[1:3] == ["a · p", "a · q"]
    assert [len({to_hex(line.get_color()) for line in some}) for some in (lines, lines[:4], lines[4:])] == [2, 1, 1]
    assert len({str(line._unscaled_dash_pattern) for line in lines[:4]}) == 4
    assert [line.get_marker() for line in lines[:4]] == [line.get_marker() for line in lines[4:]]


def test_a_name_keeps_its_colour_in_other_plots() -> None:
    names = ["alpha", "beta", "gamma"]
    steps = steps_of(*[("one", [1, 2])] * 3).assign(model=[name for name in names for _ in range(2)])
    colours = {name: line.get_color() for name, line in zip(names, lines_of(lab.plots.tokens(steps), "run"), strict=True)}
    (alone,) = lines_of(lab.plots.cost(steps[steps["model"] == "gamma"]), "run")
    median = next(line for line in lab.plots.bands(steps[steps["model"] != "alpha"]).lines if line.get_gid() == "median:beta")

    assert len(set(colours.values())) == 3
    assert alone.get_color() == colours["gamma"]
    assert median.get_color() == colours["beta"]


def test_runs_of_one_model_are_numbered_if_they_are_few() -> None:
    steps = steps_of(("one", [1, 2]), ("one", [2, 3]))
    ax = lab.plots.tokens(steps)
    first, second = lines_of(ax, "run")

    assert to_hex(first.get_color()) != to_hex(second.get_color())
    assert first.get_marker() != second.get_marker()
    assert legend_of(ax) == ["runs", "one", "run 1", "run 2"]
    assert "of 2 runs of one: run 1 2 after 2 steps" in ax.alt  # type: ignore[attr-defined]
    assert legend_of(lab.plots.tokens(steps_of(*[("one", [1])] * 9)))[1] == "one × 9"


def test_a_provider_looks_the_same_in_both_plots() -> None:
    steps = steps_of(("one", [NA, NA]), ("two", [1, 2])).assign(cumulative_cost_usd=[0.1, 0.2, 0.3, 0.4])
    (in_tokens,) = lines_of(lab.plots.tokens(steps), "run")
    in_cost = lines_of(lab.plots.cost(steps), "run")[1]

    assert (in_tokens.get_color(), in_tokens.get_marker()) == (in_cost.get_color(), in_cost.get_marker())


@pytest.mark.parametrize(
    ("values", "points", "note", "question_marks"),
    [
        pytest.param([10, 20, 30], 3, "", 0, id="known"),
        pytest.param([10, NA, NA], 1, "tokens unknown for 1 of 2 runs (one): no usage was reported", 1, id="known for a while"),
        pytest.param([10, NA, 30], 2, "tokens unknown for 1 of 2 runs (one): no usage was reported", 0, id="a gap"),
        pytest.param([NA, NA, NA], 0, "tokens unknown for 1 of 2 runs (one): no usage was reported", 0, id="never known"),
    ],
)
def test_unknown_is_a_gap_and_a_note(values: list[Any], points: int, note: str, question_marks: int) -> None:
    ax = lab.plots.tokens(steps_of(("one", values), ("two", [1, 2, 3])))

    runs = {line.get_gid(): line.get_ydata() for line in lines_of(ax, "run")}
    known = runs.get("run:r1", np.array([math.nan]))
    assert int(np.isfinite(known).sum()) == points
    assert 0 not in known
    assert legend_of(ax) == ["runs", "one", "two"]
    assert [" ".join(text.split()) for text in words_in(ax) if "unknown" in text] == [note] * bool(note)
    assert words_in(ax).count("?") == question_marks


def test_entirely_unknown_values_are_reported_in_the_middle() -> None:
    ax = lab.plots.cost(steps_of(("one", [NA, NA])))

    assert lines_of(ax, "run") == []
    assert words_in(ax) == ["cost unknown: one reported no\nusage"]
    assert legend_of(ax) == ["runs", "one"]


def test_the_reason_for_an_unknown_cost_is_in_the_plot() -> None:
    priced = run_of(looping((80, 20), "0.01", end=2), name="known")
    unpriced = [run_of(looping((80, 20), None, end=2), name=name) for name in ("one", "two$^2$")]
    (above,) = words_in(lab.plots.cost(lab.frame([priced, *unpriced])))
    assert " ".join(above.split()) == (
        "cost unknown for 2 of 3 runs (one, two$^2$): the price list does not have the provider 'one', the price list does not have "
        "the provider 'two$^2$'; lab.plots.tokens shows tokens"
    )
    assert max(map(len, above.splitlines())) <= 56
    (middle,) = words_in(lab.plots.cost(lab.frame(unpriced[:1])))
    assert " ".join(middle.split()) == (
        "cost unknown: the price list does not have the provider 'one'; lab.plots.tokens shows tokens"
    )
    assert words_in(lab.plots.tokens(lab.frame(unpriced))) == []
    assert lab.plots.cost(lab.frame(unpriced[:1])).alt.endswith(
        " Cost unknown: the price list does not have the provider 'one'; lab.plots.tokens shows tokens."
    )
    (older,) = words_in(lab.plots.cost(lab.frame(unpriced).drop(columns="cost_note")))
    assert " ".join(older.split()) == "cost unknown: no price for one:m1, two$^2$:m1; lab.plots.tokens shows tokens"
    bare = lab.frame(unpriced[:1])[["run_id", "provider", "step", "cumulative_cost_usd"]]
    assert words_in(lab.plots.cost(bare)) == ["cost unknown"]


def test_many_runs_are_counted_in_the_legend() -> None:
    ax = lab.plots.tokens(steps_of(*[(f"p{number:02}", [1, 2]) for number in range(20)]))

    assert legend_of(ax)[-2:] == ["p07", "and 12 more"]
    assert "and 12 more" in ax.alt


# Limits --------------------------------------------------------------------------------------------------------------------


def test_a_limit_is_a_line_over_the_steps_at_which_it_applied() -> None:
    ax = lab.plots.tokens(run_of(looping(end=3), budget=Budget(max_tokens=500)).to_frame())

    (limit,) = lines_of(ax, "limit")
    assert limit.get_gid() == "limit:max_tokens"
    assert set(limit.get_ydata()) == {500}
    assert (limit.get_xdata()[0], limit.get_xdata()[-1]) == (0.5, 3.5)
    assert "max_tokens 500" in legend_of(ax)
    assert "max_tokens" in words_in(ax)


def test_a_limit_changed_during_the_run_is_a_stepped_line() -> None:
    changes = {1: {"max_tokens": 700}, 3: {"max_tokens": None}}
    ax = lab.plots.tokens(run_of(looping(end=5), changes=changes, budget=Budget(max_tokens=500, max_turns=9)).to_frame())

    (limit,) = lines_of(ax, "limit")
    edges = [edge for step in range(1, 6) for edge in (step - 0.5, step + 0.5)]
    assert limit.get_xdata().tolist() == edges
    assert np.nan_to_num(limit.get_ydata()).tolist() == [500, 500, 700, 700, 700, 700, 0, 0, 0, 0]
    assert "max_tokens 500 → 700 → none" in legend_of(ax)


def test_both_kinds_of_limits_are_drawn_differently() -> None:
    steps = run_of(
        looping(end=3), stop=MaxTokensUsed(600) | MaxCost("0.005"), budget=Budget(max_tokens=500, max_cost=0.004)
    ).to_frame()

    in_tokens, in_cost = lines_of(lab.plots.tokens(steps), "limit"), lines_of(lab.plots.cost(steps), "limit")
    assert [line.get_gid() for line in in_tokens] == ["limit:max_tokens", "limit:MaxTokensUsed"]
    assert [line.get_gid() for line in in_cost] == ["limit:max_cost_usd", "limit:MaxCost"]
    assert len({str(line._unscaled_dash_pattern) for line in in_tokens}) == 2
    assert [text for text in legend_of(lab.plots.cost(steps)) if text.startswith("max")] == ["max_cost_usd $0.004"]


def test_without_limits_there_is_no_limit_line() -> None:
    ax = lab.plots.tokens(run_of(looping(end=3)).to_frame())

    assert lines_of(ax, "limit") == []
    assert "limits" not in legend_of(ax)


@pytest.mark.parametrize(
    ("limit", "inside"),
    [pytest.param(1200, True, id="four times what was used"), pytest.param(1201, False, id="more than that")],
)
def test_a_limit_far_above_the_usage_does_not_flatten_the_curve(limit: int, inside: bool) -> None:
    ax = lab.plots.tokens(run_of(looping(end=3), budget=Budget(max_tokens=limit)).to_frame())

    assert bool(ax.get_ylim()[1] > limit) is inside
    assert (f"max_tokens {limit:,}" in legend_of(ax)) is inside
    assert (f"max_tokens {limit:,}\nabove the plot" in legend_of(ax)) is not inside


@pytest.mark.parametrize(
    ("limits", "count", "label"),
    [
        pytest.param([500] * 4, 1, "max_tokens 500", id="the same"),
        pytest.param([500, 500, 400, 400], 2, "max_tokens 400 or 500", id="two"),
        pytest.param([500, 450, 400, 350], 2, "max_tokens 400 → 350 or 500 → 450", id="two that change"),
        pytest.param([10000, 10000, 10000, NA], 2, "max_tokens 10,000 or none", id="dropped by one"),
        pytest.param([11500, 10450, 10400, 10350], 2, "max_tokens 10,350 to 11,500", id="too long for the legend"),
    ],
)
def test_a_limit_that_differs_between_runs_has_a_line_for_each(limits: list[Any], count: int, label: str) -> None:
    ax = lab.plots.tokens(steps_of(("one", [100, 9000]), ("two", [100, 300]), max_tokens=limits))

    lines = lines_of(ax, "limit")
    assert len(lines) == count
    assert label in legend_of(ax)
    assert len({to_hex(line.get_color()) for line in lines}) == count


# Ends ----------------------------------------------------------------------------------------------------------------------


def test_the_end_of_each_run_is_marked_by_its_stop_reason() -> None:
    results = [
        run_of(looping(end=3)),
        run_of(looping(end=2), name="two"),
        run_of(looping(), name="three", budget=Budget(max_turns=4)),
    ]
    ax = lab.plots.tokens(lab.frame(results))

    ends = {line.get_gid(): (line.get_marker(), line.get_xydata().tolist()) for line in lines_of(ax, "end")}
    assert ends == {"end:completed": ("o", [[3, 300], [2, 200]]), "end:turn_limit": (">", [[4, 400]])}
    assert legend_of(ax)[-3:] == ["ended by", "completed × 2", "turn_limit"]


def test_a_running_run_has_no_end_mark() -> None:
    ax = lab.plots.tokens(run_of(looping(end=3)).to_frame().iloc[:2])

    assert lines_of(ax, "end") == []
    assert "ended by" not in legend_of(ax)
    assert "not ended" in ax.alt


def test_an_end_at_an_unknown_sum_is_listed_and_not_drawn() -> None:
    ax = lab.plots.tokens(run_of(looping((None, None), None, end=2)).to_frame())

    assert lines_of(ax, "end") == []
    assert legend_of(ax)[-2:] == ["ended by", "completed"]


def test_every_stop_reason_has_its_own_marker() -> None:
    assert set(END_MARKERS) == {reason.value for reason in StopReason}
    assert len(set(END_MARKERS.values())) == len(StopReason)


# Axes, figures, descriptions ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("function", ["tokens", "cost"])
def test_no_steps_yet(function: str) -> None:
    ax = getattr(lab.plots, function)(lab.frame([]))

    assert words_in(ax) == ["no steps yet"]
    assert len(ax.lines) == 0
    assert ax.get_legend() is None
    assert "no steps yet" in ax.alt


@pytest.mark.parametrize("function", ["tokens", "cost", "stop_reasons"])
def test_given_axes_are_drawn_into_and_returned(function: str) -> None:
    figure = Figure(facecolor="yellow")
    given = figure.add_subplot()
    given.set_facecolor("pink")
    frame = runs_of(("one", True, "completed")) if function == "stop_reasons" else steps_of(("one", [1, 2]))

    assert getattr(lab.plots, function)(frame, ax=given) is given
    assert given.lines or given.patches
    assert to_hex(figure.get_facecolor()) == to_hex("yellow")
    assert to_hex(given.get_facecolor()) == to_hex("pink")


@pytest.mark.parametrize("function", ["tokens", "stop_reasons"])
def test_an_invalid_axes_argument_is_an_error(function: str) -> None:
    both = Figure().subplots(1, 2)
    frame = runs_of(("one", True, "completed")) if function == "stop_reasons" else steps_of(("one", [1, 2]))

    with pytest.raises(errors.ConfigurationError, match="takes one matplotlib Axes, not ndarray"):
        getattr(lab.plots, function)(frame, ax=both)


def test_curves_are_tokens_and_cost_with_one_legend() -> None:
    steps = lab.frame([run_of(looping((80, 20), None, end=3), budget=Budget(max_tokens=500, max_cost=0.01))])
    figure = lab.plots.curves(steps)

    assert isinstance(figure, PlotFigure)
    assert [ax.get_ylabel() for ax in figure.axes] == ["cumulative tokens", "cumulative cost (US dollars)"]
    assert [ax.get_legend() for ax in figure.axes] == [None, None]
    expected = ["runs", "m1", "limits", "max_tokens 500", "max_cost_usd $0.01", "ended by", "completed"]
    assert legend_of(figure) == expected
    assert figure.alt.count("per step of 1 run") == 2


def test_curves_without_steps() -> None:
    figure = lab.plots.curves(lab.frame([]))

    assert [words_in(ax) for ax in figure.axes] == [["no steps yet"]] * 2
    assert figure.legends == []


def test_the_alt_text_describes_the_picture() -> None:
    steps = lab.frame(
        [
            run_of(looping((1000, 200), "0.0012", end=2), budget=Budget(max_tokens=4000)),
            run_of(looping((None, None), None), name="two", budget=Budget(max_turns=1, max_tokens=4000)),
        ]
    )

    assert lab.plots.tokens(steps).alt == (
        "Cumulative tokens per step of 2 runs: one 2,400 after 2 steps, completed; two unknown after 1 step, turn_limit. "
        "Limits: max_tokens 4,000. Tokens unknown for 1 of 2 runs (two): no usage was reported."
    )
    assert lab.plots.cost(steps).alt == (
        "Cumulative cost (US dollars) per step of 2 runs: one $0.0024 after 2 steps, completed; "
        "two unknown after 1 step, turn_limit. Cost unknown for 1 of 2 runs (two): no usage was reported."
    )


@pytest.mark.parametrize(
    ("provider", "label"),
    [
        pytest.param("a" * 80, f"{'a' * 15}…{'a' * 14}", id="long"),
        pytest.param("$x_1$ and $y$", "$x_1$ and $y$", id="looks like mathematics"),
        pytest.param("_hidden", " _hidden", id="begins with an underscore"),
        pytest.param("two\nlines\x00", "two lines", id="control characters"),
        pytest.param("模型 x", "U+6A21 U+578B x", id="letters the font does not have"),
        pytest.param("模", "U+6A21", id="no letter that the font has"),
        pytest.param("🦙", "unnamed", id="nothing left"),
    ],
)
def test_names_from_outside_are_drawn_literally(provider: str, label: str) -> None:
    ax = lab.plots.tokens(steps_of((provider, [1, 2])))

    assert legend_of(ax) == ["runs", label]
    assert ax.figure.png().startswith(b"\x89PNG")
    assert lab.plots.stop_reasons(runs_of((provider, True, "completed"))).figure.png().startswith(b"\x89PNG")


@pytest.mark.parametrize("count", [1, 2, 5, 9, 100, 5000])
def test_step_ticks_are_integers(count: int) -> None:
    ax = lab.plots.tokens(steps_of(("one", list(range(1, count + 1)))))

    ticks = [tick for tick in ax.get_xticks() if ax.get_xlim()[0] <= tick <= ax.get_xlim()[1]]
    assert ticks
    assert all(tick == int(tick) for tick in ticks)


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (0, "$0"),
        (0.0012, "$0.0012"),
        (0.05, "$0.05"),
        (0.1, "$0.10"),
        (0.00123456, "$0.00123"),
        (0.000001, "$0.000001"),
        (1, "$1.00"),
        (1234.5, "$1,234.50"),
    ],
)
def test_dollars_are_readable(amount: float, text: str) -> None:
    ax = lab.plots.cost(steps_of(("one", [1]), max_cost_usd=[amount or NA]))

    assert ax.yaxis.get_major_formatter()(amount) == text
    if amount:
        assert any(f"max_cost_usd {text}" in label for label in legend_of(ax))


# Stop reasons --------------------------------------------------------------------------------------------------------------


def test_stop_reasons_are_bars_with_colour_hatch_and_count() -> None:
    ax = lab.plots.stop_reasons(
        runs_of(
            ("one", True, "completed"),
            ("one", True, "completed"),
            ("one", False, "turn_limit"),
            ("two", None, None),
        )
    )

    assert [label.get_text() for label in ax.get_yticklabels()] == ["one", "completed", "turn_limit", "two", "no reason yet"]
    assert [label.get_fontweight() for label in ax.get_yticklabels()] == ["bold", "normal", "normal", "bold", "normal"]
    assert words_in(ax) == ["2 terminated", "1 truncated", "1 not ended"]
    assert [bar.get_width() for bar in ax.patches] == [2, 1, 1]
    assert len({to_hex(bar.get_facecolor()) for bar in ax.patches}) == 3
    assert len({bar.get_hatch() or "" for bar in ax.patches}) == 3
    assert ax.alt == "Stop reasons by provider: one 2 terminated by completed, 1 truncated by turn_limit; two 1 not ended."


def test_no_runs_yet() -> None:
    ax = lab.plots.stop_reasons(lab.frame([], "runs"))

    assert words_in(ax) == ["no runs yet"]
    assert "no runs yet" in ax.alt


def test_the_figure_grows_with_its_bars() -> None:
    few = runs_of(("one", True, "completed"))
    many = pd.concat([runs_of((f"p{number}", True, "completed"), (f"p{number}", False, "error")) for number in range(8)])

    heights = [lab.plots.stop_reasons(runs).figure.get_size_inches()[1] for runs in (few, many)]
    assert heights[1] > 2 * heights[0]


@pytest.mark.parametrize("values", [[10, NA, 30], [NA, NA, NA]])
def test_names_of_wide_letters_leave_room_for_the_axes(values: list[Any]) -> None:
    wide = "W" * 60
    steps = steps_of((wide, values), ("one", values), prompt=[wide] * 6)
    small = lab.plots.small_multiples(lab.plots.tokens, steps, by="prompt")
    for figure in (lab.plots.cost(steps).figure, lab.plots.curves(steps), small):
        assert isinstance(figure, PlotFigure)
        assert figure.png()  # a failed layout warns
        assert min(ax.get_position().width for ax in figure.axes) > 0.1

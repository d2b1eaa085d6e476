"""The timeline: which event it places at which time, and its drawing."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path
from typing import Any, get_args

import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

import agentlab as lab
from agentlab import errors
from agentlab.model.finish_reasons import FinishReason, StopReason
from agentlab.plots import PlotFigure, timeline_data
from agentlab.plots.figure import END_MARKERS
from agentlab.plots.run_timeline import BARS, LANES, MARKS, SHOWN_RUNS, UNWELL
from agentlab.records.columns import EVENT_COLUMNS
from agentlab.records.events import ContinuationOutcome
from agentlab.testing import say

from .builders import NA, listed, look, looping, run_of
from .test_look import DARK, LIGHT, contrast

FIXTURES = Path(__file__).parents[2] / "fixtures"
COLUMNS = ["run_id", "lane", "step", "start_s", "end_s", "mark", "outcome", "label"]
Happened = tuple[str, float, Any, str]


def events_of(*happened: Happened, run_id: str = "r1") -> pd.DataFrame:
    """A hand-made events frame; a row is (event, at_s, step, detail)."""
    rows = [(run_id, "one", "m1", at_s, event, step, detail) for event, at_s, step, detail in happened]
    frame = pd.DataFrame(rows, columns=[column.name for column in EVENT_COLUMNS])
    return frame.astype({column.name: column.dtype for column in EVENT_COLUMNS})


def rows_of(data: pd.DataFrame, *lanes: str) -> list[tuple[Any, ...]]:
    """(start_s, end_s, mark, outcome, label) of some lanes, in order."""
    found = data[data["lane"].isin(lanes)]
    return [tuple(listed(row)) for row in found[COLUMNS[3:]].itertuples(index=False)]


STEP: tuple[Happened, ...] = (
    ("RunStarted", 0.0, NA, "openai:gpt-4.1-mini, Budget(max_turns=20), stop=None"),
    ("StepStarted", 0.0, 1, ""),
)
ALL = events_of(
    *STEP,
    ("CallRetried", 0.5, 1, "attempt 1 failed, next in 0.5 s: busy"),
    ("StopReasonObserved", 2.0, 1, "tool_calls ('tool_calls')"),
    ("ToolStarted", 2.1, 1, 'search({"q": "a: b"})'),
    ("ToolFinished", 3.0, 1, "search: ok"),
    ("ToolStarted", 3.0, 1, "open: x({})"),
    ("ToolFinished", 3.4, 1, "open: x: exception"),
    ("LimitsChanged", 3.4, NA, "max_tokens 10 -> 20 (by panel)"),
    ("StepCompleted", 3.5, 1, "The model asks for tools."),
    ("RunPaused", 3.5, NA, ""),
    ("RunResumed", 3.5, NA, "after 12.0 s"),
    ("StepStarted", 3.5, 2, ""),
    ("StopReasonObserved", 5.0, 2, "max_tokens ('length')"),
    ("ContinuationAttempted", 5.1, 2, "attempt 1, 2 left: 30 output tokens and 120 characters so far"),
    ("StopReasonObserved", 6.0, 2, "max_tokens ('length')"),
    ("ContinuationAttempted", 6.1, 2, "attempt 2, 1 left: 60 output tokens and 240 characters so far"),
    ("StopReasonObserved", 7.0, 2, "end_turn ('stop')"),
    ("ContinuationEnded", 7.0, 2, "completed after 2 attempts and 2.0 s"),
    ("ToolPayloadRepair", 7.1, 2, "incomplete tool call: asked again, in vain"),
    ("Nudged", 7.2, 2, "reminder 1 of 1 in a row"),
    ("StepCompleted", 7.3, 2, "An answer without a tool call."),
    ("StepStarted", 7.3, 3, ""),
    ("StepCompleted", 8.0, 3, "ProviderConnectionError: no"),
    ("RunEnded", 8.1, NA, "error: ProviderConnectionError: no"),
)


# The data ------------------------------------------------------------------------------------------------------------------------


def test_every_event_has_its_lane() -> None:
    data = timeline_data(ALL)

    assert list(data.columns) == COLUMNS
    assert rows_of(data, "run", "step", "end") == [
        (0.0, None, "run", "ok", "openai:gpt-4.1-mini"),
        (0.0, None, "step", "ok", "step 1"),
        (3.5, None, "step", "ok", "step 2"),
        (7.3, None, "step", "ok", "step 3"),
        (8.1, None, "end", "ok", "error"),
    ]
    assert rows_of(data, "call") == [
        (0.5, None, "retry", "failed", "attempt 1 failed, next in 0.5 s: busy"),
        (0.0, 2.0, "bar", "ok", "tool_calls"),
        (3.5, 5.0, "bar", "cut", "max_tokens"),
        (5.0, 6.0, "bar", "cut", "max_tokens"),
        (6.0, 7.0, "bar", "ok", "end_turn"),
        (7.3, 8.0, "bar", "failed", "no answer"),
    ]
    assert rows_of(data, "tool") == [(2.1, 3.0, "bar", "ok", "search"), (3.0, 3.4, "bar", "failed", "open: x")]
    assert [(row[0], row[1], row[2], row[3]) for row in rows_of(data, "continuation")] == [
        (5.1, None, "attempt", "ok"),
        (6.1, None, "attempt", "ok"),
        (5.1, 7.0, "bar", "ok"),
        (7.1, None, "repair", "failed"),
    ]
    assert rows_of(data, "nudge", "limit", "pause") == [
        (3.4, None, "limit", "ok", "max_tokens 10 -> 20 (by panel)"),
        (3.5, None, "paused", "ok", ""),
        (3.5, None, "resumed", "ok", "after 12.0 s"),
        (7.2, None, "nudge", "ok", "reminder 1 of 1 in a row"),
    ]
    assert set(data["lane"]) - {"run", "step", "end"} == set(LANES)


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [(outcome, {"completed": "ok", "error": "failed"}.get(outcome, "cut")) for outcome in get_args(ContinuationOutcome)],
)
@pytest.mark.parametrize("attempts", [0, 1])
def test_how_a_continuation_ended(outcome: str, expected: str, attempts: int) -> None:
    attempted = [("ContinuationAttempted", 1.0, 1, "attempt 1")] * attempts
    ended = ("ContinuationEnded", 2.0, 1, f"{outcome} after {attempts} attempts and 1.0 s")

    (*_, bar) = rows_of(timeline_data(events_of(*STEP, *attempted, ended)), "continuation")

    assert bar[:4] == (1.0 if attempts else 2.0, 2.0, "bar", expected)


def test_a_continued_call_that_then_fails() -> None:
    happened = [("StopReasonObserved", 1.0, 1, "max_tokens ('length')"), ("ContinuationAttempted", 1.0, 1, "attempt 1")]
    data = timeline_data(events_of(*STEP, *happened, ("StepCompleted", 3.0, 1, "ProviderConnectionError: no")))

    assert rows_of(data, "call") == [(0.0, 1.0, "bar", "cut", "max_tokens"), (1.0, 3.0, "bar", "failed", "no answer")]


def test_a_run_a_result_a_list_and_a_frame_give_the_same() -> None:
    result = run_of(looping(end=3))
    data = timeline_data(result)

    assert len(rows_of(data, "step")) == len(rows_of(data, "call")) == 3
    assert [row[4] for row in rows_of(data, "tool")] == ["look", "look"]
    assert rows_of(data, "end")[0][4] == "completed"
    for same in ([result], result.to_frame("events"), lab.frame([result], "events"), iter([result])):
        pd.testing.assert_frame_equal(timeline_data(same), data)

    async def half() -> lab.Run:
        run = lab.Agent(lab.testing.ScriptedProvider(looping()), tools=[look]).run("go")
        await run.step()
        return run

    unfinished = timeline_data(asyncio.run(half()))
    assert rows_of(unfinished, "end") == []
    assert len(rows_of(unfinished, "call")) == 1


def test_bars_of_a_real_run_follow_each_other_and_end_before_it() -> None:
    with lab.replay(FIXTURES / "essay", match="order"):
        run = lab.Agent("openai:gpt-4.1-mini").run("Why are night trains coming back?")
        run.start()
    data = timeline_data(run)

    calls = rows_of(data, "call")
    assert [row[3] for row in calls] == ["cut", "ok"]
    assert all(0 <= start <= end for start, end, *_ in calls)
    assert calls[0][1] <= calls[1][0]
    assert calls[-1][1] <= rows_of(data, "end")[0][0]
    assert [row[2] for row in rows_of(data, "continuation")] == ["attempt", "bar"]


def test_a_frame_from_a_file_gives_the_same() -> None:
    back = pd.read_csv(io.StringIO(ALL.to_csv(index=False)))

    pd.testing.assert_frame_equal(timeline_data(back), timeline_data(ALL))


def test_a_frame_of_an_earlier_version_gives_the_same() -> None:
    earlier = {"StepStarted": "TurnStarted", "StepCompleted": "TurnCompleted"}
    frame = ALL.assign(event=ALL["event"].replace(earlier))

    assert "TurnStarted" in set(frame["event"])
    pd.testing.assert_frame_equal(timeline_data(frame), timeline_data(ALL))


def test_several_runs_stay_apart_in_a_mixed_frame() -> None:
    one, two = (events_of(*STEP, ("StopReasonObserved", at_s, 1, "end_turn ('stop')"), run_id=f"r{at_s}") for at_s in (1.0, 2.0))
    data = timeline_data(pd.concat([one, two]).sort_values("at_s", kind="stable"))

    assert {run_id: rows_of(rows, "call") for run_id, rows in data.groupby("run_id")} == {
        "r1.0": [(0.0, 1.0, "bar", "ok", "end_turn")],
        "r2.0": [(0.0, 2.0, "bar", "ok", "end_turn")],
    }


@pytest.mark.parametrize("nothing", [pd.DataFrame(), ALL.iloc[:0], [], lab.frame([], "events")], ids=str)
def test_no_events_give_empty_data_and_a_note(nothing: Any) -> None:
    assert list(timeline_data(nothing).columns) == COLUMNS
    assert timeline_data(nothing).empty
    ax = lab.plots.timeline(nothing)
    assert [text.get_text() for text in ax.texts] == ["no events yet"]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        pytest.param(7, "int", id="a number"),
        pytest.param("run", "str", id="a text"),
        pytest.param([1, 2], "list", id="a list of others"),
        pytest.param(run_of(looping(end=1)).to_frame(), "columns at_s, event, detail", id="steps"),
    ],
)
def test_an_undrawable_object_is_an_error_that_says_what_to_pass(wrong: Any, message: str) -> None:
    with pytest.raises(errors.ConfigurationError) as raised:
        lab.plots.timeline(wrong)

    assert message in str(raised.value)
    assert 'result.to_frame("events")' in str(raised.value)


# The drawing ---------------------------------------------------------------------------------------------------------------------


def gids(ax: Axes) -> list[str]:
    """The drawn elements, by name."""
    return [str(artist.get_gid()) for artist in (*ax.collections, *ax.lines, *ax.texts) if artist.get_gid()]


def texts_of(ax: Axes, gid: str) -> list[str]:
    return [text.get_text() for text in ax.texts if text.get_gid() == gid]


def lane_names(ax: Axes) -> list[str]:
    return [label.get_text() for label in ax.get_yticklabels()]


def test_lanes_bars_marks_steps_and_the_end() -> None:
    ax = lab.plots.timeline(ALL)

    assert lane_names(ax) == [
        "openai:gpt-4.1-mini",
        "calls",
        "tools: search, open: x",
        *[name for name, _ in list(LANES.values())[2:]],
    ]
    assert {gid for gid in gids(ax) if gid.startswith("bar:")} == {
        "bar:call:ok", "bar:call:cut", "bar:call:failed", "bar:tool:ok", "bar:tool:failed", "bar:continuation:ok",
    }  # fmt: skip
    assert {gid for gid in gids(ax) if gid.startswith("mark:")} == {f"mark:{mark}" for mark in MARKS}
    assert texts_of(ax, "step") == ["1", "2", "3"]
    assert texts_of(ax, "reason") == ["error"]
    assert texts_of(ax, "paused") == ["12.0 s"]
    assert "end:error" in gids(ax)
    assert ax.get_xlabel() == "active time, seconds"
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [
        "cut off", "failed", "call retried", "asked to continue", "tool call repaired",
    ]  # fmt: skip


def test_bars_are_at_the_positions_of_the_data() -> None:
    ax = lab.plots.timeline(ALL)
    (cut,) = [bars for bars in ax.collections if bars.get_gid() == "bar:call:cut"]

    spans = sorted((path.vertices[:, 0].min(), path.vertices[:, 0].max()) for path in cut.get_paths())
    assert spans == [(3.5, 5.0), (5.0, 6.0)]
    assert cut.get_hatch() == UNWELL["cut"][1]


def test_the_alt_text_describes_the_picture() -> None:
    assert lab.plots.timeline(ALL).alt == (  # type: ignore[attr-defined]
        "Timeline of 1 run; openai:gpt-4.1-mini: 3 steps, 5 calls (2 cut off, 1 failed), 2 tools (1 failed), 1 continuation, 1 nudge, "
        "1 change of limits, 1 pause, 1 repair of a tool call, ended after 8.1 s: error."
    )


@pytest.mark.parametrize("background", [LIGHT, DARK])
@pytest.mark.parametrize(
    "colour", sorted({*BARS.values(), *[one[0] for one in UNWELL.values()], *[one[1] for one in MARKS.values()]})
)
def test_colours_are_legible_on_dark_and_light(colour: str, background: str) -> None:
    assert contrast(colour, background) >= 3.0


def test_no_two_marks_in_a_lane_differ_by_colour_alone() -> None:
    assert len({hatch for _, hatch, _ in UNWELL.values()} | {""}) == len(UNWELL) + 1
    assert len({marker for marker, _, _ in MARKS.values()}) == len(MARKS)


@pytest.mark.parametrize("reason", list(StopReason))
def test_each_end_has_its_marker(reason: StopReason) -> None:
    ax = lab.plots.timeline(events_of(*STEP, ("RunEnded", 1.0, NA, f"{reason}: so it was")))

    (end,) = [line for line in ax.lines if line.get_gid() == f"end:{reason}"]
    assert end.get_marker() == END_MARKERS[reason]
    assert texts_of(ax, "reason") == [str(reason)]


def test_runs_shorter_than_a_second_are_in_milliseconds() -> None:
    ax = lab.plots.timeline(events_of(*STEP, ("RunEnded", 0.25, NA, "completed: done")))
    FigureCanvasAgg(ax.figure).draw()

    assert ax.get_xlabel() == "active time, milliseconds"
    assert "200" in [label.get_text() for label in ax.get_xticklabels()]


def test_the_first_of_many_runs_are_shown_and_the_rest_counted() -> None:
    frames = [events_of(*STEP, ("RunEnded", 1.0, NA, "completed: done"), run_id=f"{n:06}") for n in range(SHOWN_RUNS + 3)]
    ax = lab.plots.timeline(pd.concat(frames))

    assert lane_names(ax) == [f"openai:gp…4.1-mini {n:06}" for n in range(SHOWN_RUNS)]
    assert ax.get_xlabel().endswith("(and 3 more runs)")
    assert lab.plots.timeline(pd.concat(frames[:-2])).get_xlabel().endswith("(and 1 more run)")
    assert ax.alt.endswith("; and 3 more.")  # type: ignore[attr-defined]


def test_the_time_axis_is_that_of_the_runs_that_are_shown() -> None:
    lengths = [1.0] * SHOWN_RUNS + [100.0]
    frames = [events_of(*STEP, ("RunEnded", end, NA, "completed: done"), run_id=f"{n:06}") for n, end in enumerate(lengths)]

    assert lab.plots.timeline(pd.concat(frames)).get_xlim()[1] < 2


@pytest.mark.parametrize(
    ("run_ids", "shown"),
    [
        (["study#brief/p1/ten/1", "study#brief/p2/ten/1"], ["p1/ten", "p2/ten"]),
        (["study#brief/p1/ten/1", "study#thorough/p1/ten/1"], ["brief/", "thorou"]),
        (["study#brief/p1/1", "study#brief/p2/1", "study#quick/p1/1"], ["brief/p1", "brief/p2", "quick/p1"]),
        (["9f31c2d4e5", "9f31c2ffff"], ["9f31c2d", "9f31c2f"]),
        (["run", "run 2"], ["run", "run 2"]),
    ],
    ids=["prompts", "agents", "both", "random", "short"],
)
def test_runs_are_named_by_the_part_of_their_ids_in_which_they_differ(run_ids: list[str], shown: list[str]) -> None:
    frames = [events_of(*STEP, ("RunEnded", 1.0, NA, "completed: done"), run_id=run_id) for run_id in run_ids]

    assert lane_names(lab.plots.timeline(pd.concat(frames))) == [f"openai:gp…4.1-mini {run_id}" for run_id in shown]


def test_it_draws_into_given_axes() -> None:
    given = Figure().add_subplot()

    assert lab.plots.timeline(ALL, ax=given) is given
    with pytest.raises(errors.ConfigurationError, match="one matplotlib Axes"):
        lab.plots.timeline(ALL, ax=[given])


def crowded() -> pd.DataFrame:
    """Sixty short steps with tools of long names, in several runs, one of them still running."""
    happened = [STEP[0]]
    for step in range(60):
        happened += [
            ("StepStarted", step * 0.1, step + 1, ""),
            ("StopReasonObserved", step * 0.1 + 0.08, step + 1, "tool_calls ('x')"),
            ("ToolStarted", step * 0.1 + 0.08, step + 1, "t()"),
            ("ToolFinished", step * 0.1 + 0.1, step + 1, f"a_tool_with_a_rather_long_name_{step % 3}: ok"),
        ]
    happened += [("RunPaused", at, NA, "") for at in (1.0, 1.1)] + [
        ("RunResumed", at, NA, "after 3,600.0 s") for at in (1.0, 1.1)
    ]
    return pd.concat(
        [
            events_of(*happened, ("RunEnded", 6.0, NA, "nudges_exhausted: enough"), run_id="first"),
            ALL,
            events_of(*happened[:60], run_id="$third"),
        ]
    )


PICTURES = {"all": ALL, "crowded": crowded(), "real": run_of(looping(end=30), changes={3: {"max_tokens": 9}})}


@pytest.mark.parametrize("kind", PICTURES)
def test_everything_is_inside_and_texts_do_not_overlap(kind: str) -> None:
    figure = lab.plots.timeline(PICTURES[kind]).figure
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    width, height = canvas.get_width_height()
    (ax,) = figure.axes

    box = ax.get_tightbbox()
    assert (box.x0, box.y0) >= (0, 0)
    assert box.x1 <= width + 1
    assert box.y1 <= height + 1
    boxes = [text.get_window_extent() for text in (*ax.texts, *ax.get_yticklabels()) if text.get_text().strip()]
    assert not any(one.overlaps(other) for place, one in enumerate(boxes) for other in boxes[place + 1 :])
    assert ax.get_window_extent().width > 0.5 * width


@pytest.mark.parametrize("kind", PICTURES)
def test_the_picture_is_transparent_and_reproducible(kind: str) -> None:
    figure = lab.plots.timeline(PICTURES[kind]).figure
    assert isinstance(figure, PlotFigure)
    png = figure.png(1)
    picture = Image.open(io.BytesIO(png)).convert("RGBA")

    assert picture.getchannel("A").getpixel((0, 0)) == 0
    assert picture.getchannel("A").histogram()[0] > 0.6 * picture.width * picture.height
    assert png == figure.png(1) == lab.plots.timeline(PICTURES[kind]).figure.png(1)


def test_a_truncated_answer_of_a_real_run_is_hatched() -> None:
    none = lab.ContinuationPolicy(max_continuations_per_turn=0)
    result = run_of([say("half an ans", finish=FinishReason.MAX_TOKENS)], continuation=none)

    ax = lab.plots.timeline(result)
    assert "bar:call:cut" in gids(ax)
    assert texts_of(ax, "reason") == ["truncated"]

"""Frames: the declared columns with the declared dtypes, NA for unknown values, one shape for all runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from html.parser import HTMLParser
from typing import Any

import pandas as pd
import pytest
from engine.builders import agent, go, look, looping, result_of, run_of
from hypothesis import given, settings
from hypothesis import strategies as st

import agentlab as lab
from agentlab import Budget, Custom, HasToolCall, MaxCost, MaxTokensUsed, StepCountIs, errors
from agentlab.model.finish_reasons import FinishReason
from agentlab.model.messages import ToolCall
from agentlab.records.columns import CALL_COLUMNS, EVENT_COLUMNS, READING_COLUMNS, RUN_COLUMNS, STEP_COLUMNS, TOOL_COLUMNS, Column
from agentlab.testing import Said, call, say

KINDS: dict[str, tuple[Column, ...]] = {
    "runs": RUN_COLUMNS,
    "steps": STEP_COLUMNS,
    "calls": CALL_COLUMNS,
    "tools": TOOL_COLUMNS,
    "events": EVENT_COLUMNS,
    "readings": READING_COLUMNS,
}
LIMITED = Budget(max_turns=9, max_calls=9, max_tokens=1000, max_tokens_per_turn=50, max_cost=1, timeout=60)
UNKNOWN: list[Said] = [call("look", tokens=(None, 7)), say("end", tokens=(None, None))]


async def _end(run: lab.Run) -> lab.RunResult:
    return await run


RUNS: dict[str, Callable[[], lab.Run | lab.RunResult]] = {
    "not-begun": lambda: looping().run("go"),
    "ended-without-a-step": lambda: _stopped(looping().run("go")),
    "one-step": lambda: result_of(["end"]),
    "nothing-reported": lambda: result_of(UNKNOWN),
    "everything-set": lambda: result_of(
        [call("look", cost="0.1"), call("nobody", cost="0.1"), say("end", cost="0.1")],
        budget=LIMITED,
        stop=StepCountIs(9) | HasToolCall("finalize") | MaxCost(1) | Custom(len),
    ),
    "failed-before-any-answer": lambda: result_of([errors.ProviderStatusError("no", status=400)]),
}


def _stopped(run: lab.Run) -> lab.Run:
    run.stop()
    return run


@pytest.mark.parametrize("what", KINDS)
@pytest.mark.parametrize("make", RUNS.values(), ids=RUNS.keys())
def test_every_frame_has_the_declared_columns_and_dtypes(make: Callable[[], Any], what: str) -> None:
    frame = lab.frame(make(), what)
    declared = KINDS[what]
    assert list(frame.columns)[: len(declared)] == [column.name for column in declared]
    for column in declared:
        assert str(frame.dtypes[column.name]) == column.dtype, column.name
    assert list(frame.index) == list(range(len(frame)))


@pytest.mark.parametrize("what", KINDS)
def test_columns_are_described_and_unique(what: str) -> None:
    names = [column.name for column in KINDS[what]]
    assert len(set(names)) == len(names)
    assert all(column.help for column in KINDS[what])
    assert {column.dtype for column in KINDS[what]} <= {"string", "Int64", "Float64", "boolean", "object", "datetime64[us, UTC]"}


def test_one_row_per_step() -> None:
    script = [call("look", {"q": "a"}, text="Let me see. ", cost="0.1"), call("nobody", cost="0.2"), say("end", cost="0.3")]
    frame = result_of(script, budget=LIMITED).to_frame()
    columns = [
        "step",
        "calls",
        "finish_reason",
        "action",
        "stop_reason",
        "total_tokens",
        "cumulative_tokens",
        "tools",
        "tool_errors",
    ]
    rows = [tuple(None if pd.isna(value) else value for value in row) for row in frame[columns].itertuples(index=False)]
    assert rows == [
        (1, 1, "tool_calls", "execute_tools", None, 15, 15, "look", 0),
        (2, 1, "tool_calls", "execute_tools", None, 15, 30, "nobody", 1),
        (3, 1, "end_turn", "complete", "completed", 15, 45, "", 0),
    ]
    assert frame["text"].tolist() == ["Let me see. ", "", "end"]
    assert frame["cumulative_cost_usd"].tolist() == pytest.approx([0.1, 0.3, 0.6])
    assert frame["remaining_turns"].tolist() == [8, 7, 6]
    assert frame["remaining_tokens"].tolist() == [985, 970, 955]
    assert frame["max_cost_usd"].tolist() == [1.0, 1.0, 1.0]
    assert frame["provider"].unique().tolist() == ["scripted"]


def test_unknown_is_na_in_values_and_in_sums() -> None:
    frame = result_of([call("look"), *[call("look", tokens=(None, 7))], call("look"), "end"]).to_frame()
    assert frame["input_tokens"].isna().tolist() == [False, True, False, False]
    assert frame["output_tokens"].tolist() == [5, 7, 5, 5]
    assert frame["total_tokens"].isna().tolist() == [False, True, False, False]
    assert frame["cumulative_tokens"].isna().tolist() == [False, True, True, True]
    for name in (
        "cost_usd",
        "cumulative_cost_usd",
        "max_tokens",
        "remaining_cost_usd",
        "error",
        "condition_met",
        "reasoning_tokens",
    ):
        assert frame[name].isna().all(), name
    assert frame["cost_source"].unique().tolist() == ["unknown"]
    assert frame["cost_usd"].sum(min_count=1) is pd.NA


def test_readings_are_columns_with_the_limit_that_applied() -> None:
    async def main() -> lab.RunResult:
        run = looping().run("go", stop=StepCountIs(9) | HasToolCall("finalize") | MaxCost(1) | StepCountIs(8))
        await run.step()
        run.limits.edit_condition("StepCountIs", steps=3)
        await run.step()
        run.limits.stop = StepCountIs(3) & MaxTokensUsed(45)
        return await run

    frame = go(main()).to_frame()
    wide = frame.iloc[:, len(STEP_COLUMNS) :]
    assert list(wide.columns) == [
        f"{name}.{part}"
        for name in ("StepCountIs", "HasToolCall", "MaxCost", "StepCountIs_2", "MaxTokensUsed")
        for part in ("value", "limit", "met")
    ]
    assert frame["StepCountIs.limit"].tolist() == [9, 3, 3]
    assert frame["StepCountIs.value"].tolist() == [1, 2, 3]
    assert frame["StepCountIs.met"].tolist() == [False, False, True]
    assert frame["StepCountIs_2.limit"].isna().tolist() == [False, False, True]
    assert frame["MaxTokensUsed.met"].isna().tolist() == [True, True, False]
    assert frame["MaxCost.value"].tolist()[:2] == pytest.approx([0.01, 0.02])
    assert frame["condition_met"].tolist() == [False, False, True]
    dtypes = {name: str(dtype) for name, dtype in wide.dtypes.items()}
    assert dtypes["StepCountIs.value"] == "Int64"
    assert dtypes["MaxCost.limit"] == "Float64"
    assert dtypes["HasToolCall.limit"] == "string"
    assert {dtypes[name] for name in dtypes if name.endswith(".met")} == {"boolean"}


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        pytest.param([True, False], "boolean", id="bool"),
        pytest.param([1, 2], "Int64", id="int"),
        pytest.param([1, 0.5], "Float64", id="mixed-numbers"),
        pytest.param([Decimal("0.5"), Decimal(1)], "Float64", id="money"),
        pytest.param(["", "why"], "string", id="text"),
        pytest.param([False, "why"], "object", id="mixed"),
        pytest.param([2**80, 1], "Float64", id="more-than-a-column-of-whole-numbers-holds"),
        pytest.param([[], [1]], "boolean", id="anything-else-by-its-truth"),
    ],
)
def test_the_result_of_a_predicate_is_its_value(values: list[Any], dtype: str) -> None:
    def judge(history: lab.RunHistory) -> Any:
        return values[len(history) - 1]

    result = result_of([call("look"), "end"], stop=Custom(judge) & StepCountIs(2))
    frame = result.to_frame()
    assert str(frame.dtypes["judge.value"]) == dtype
    assert len(result.to_frame("readings")) == 4


def test_a_predicate_that_was_not_awaited_is_na() -> None:
    async def judge(history: lab.RunHistory) -> bool:
        return True

    frame = result_of(["end"], stop=StepCountIs(1) | judge).to_frame()
    assert frame["judge.met"].isna().all()
    assert frame["judge.value"].isna().all()
    assert frame["StepCountIs.met"].tolist() == [True]


def test_the_long_frame_of_readings() -> None:
    frame = result_of([call("look", cost="0.1"), say("end", cost="0.1")], stop=StepCountIs(5) | MaxCost("0.5")).to_frame(
        "readings"
    )
    assert frame[["step", "condition", "limit"]].to_numpy().tolist() == [
        [1, "StepCountIs", 5], [1, "MaxCost", 0.5], [2, "StepCountIs", 5], [2, "MaxCost", 0.5],
    ]  # fmt: skip
    assert frame["value"].tolist() == [1, 0.1, 2, 0.2]
    assert frame["met"].tolist() == [False] * 4


def test_calls_and_tools() -> None:
    both = say(
        finish=FinishReason.TOOL_CALLS,
        calls=[ToolCall("a", "look", '{"q": "x"}'), ToolCall("b", "nobody", "{}"), ToolCall("c", "look", '{"q": 3}')],
    )
    result = result_of([say("…", finish=FinishReason.PAUSED), both, "end"], tools=[look])
    calls = result.to_frame("calls")
    assert calls[["step", "call", "finish_reason"]].to_numpy().tolist() == [
        [1, 1, "paused"], [1, 2, "tool_calls"], [2, 3, "end_turn"],
    ]  # fmt: skip
    assert calls["used"].all()
    assert result.to_frame()["calls"].tolist() == [2, 1]
    tools = result.to_frame("tools")
    assert tools[["step", "call_id", "tool", "arguments"]].to_numpy().tolist() == [
        [1, "a", "look", '{"q": "x"}'], [1, "b", "nobody", "{}"], [1, "c", "look", '{"q": 3}'],
    ]  # fmt: skip
    assert tools["error"].fillna("ok").tolist() == ["ok", "unknown_tool", "invalid_arguments"]
    assert tools["content"].tolist()[0] == "saw x"
    assert result.to_frame()["tool_errors"].tolist() == [2, 0]


def test_events_have_the_step_they_belong_to() -> None:
    frame = result_of([call("look"), "end"]).to_frame("events")
    assert frame[["event", "step"]].fillna(0).to_numpy().tolist() == [
        ["RunStarted", 0], ["StepStarted", 1], ["StopReasonObserved", 1], ["ToolStarted", 1], ["ToolFinished", 1],
        ["StepCompleted", 1], ["StepStarted", 2], ["StopReasonObserved", 2], ["StepCompleted", 2], ["RunEnded", 0],
    ]  # fmt: skip
    details = dict(zip(frame["event"], frame["detail"], strict=True))
    assert details["RunEnded"] == "completed: The model ended its turn."
    assert details["ToolStarted"] == "look({})"
    assert "Budget(max_turns=20)" in details["RunStarted"]


@pytest.mark.filterwarnings("ignore:.* can never be met")  # on purpose
def test_a_change_of_limits_is_a_row() -> None:
    async def main() -> lab.Run:
        run = looping().run("go", stop=StepCountIs(9))
        await run.step()
        run.limits.edit(max_turns=1, max_cost=0.5, by="panel")
        run.limits.stop = StepCountIs(2)
        return run

    frame = go(main()).to_frame("events")
    changes = frame[frame["event"] == "LimitsChanged"]["detail"].tolist()
    assert changes == [
        "max_turns 20 -> 1, max_cost None -> $0.50 (by panel)",
        "stop StepCountIs(steps=9) -> StepCountIs(steps=2) (by code)",
    ]


def test_several_runs_in_one_frame() -> None:
    looked = result_of([call("look"), "end"], stop=StepCountIs(9))
    results = [looked, result_of(["end"]), result_of(["end"], stop=HasToolCall("finalize"))]
    steps = lab.frame(results)
    assert steps["run_id"].tolist() == [results[0].run_id] * 2 + [results[1].run_id, results[2].run_id]
    assert steps["StepCountIs.met"].isna().tolist() == [False, False, True, True]
    assert steps["cumulative_tokens"].tolist() == [15, 30, 15, 15]
    runs = lab.frame(results, "runs")
    assert runs["steps"].tolist() == [2, 1, 1]
    assert runs["stop_reason"].tolist() == ["completed"] * 3
    assert runs["terminated"].all()
    assert not runs["truncated"].any()
    assert len(lab.frame(iter(results), "calls")) == 4
    assert list(lab.frame([]).columns) == [column.name for column in STEP_COLUMNS]


def test_frames_of_all_runs_have_the_same_columns() -> None:
    """The fixed columns do not depend on the content of a run, so that frames can be concatenated."""
    frames = [lab.frame(make())[[column.name for column in STEP_COLUMNS]] for make in RUNS.values()]
    for frame in frames[1:]:
        assert list(frame.dtypes) == list(frames[0].dtypes)
    together = pd.concat(frames, ignore_index=True)
    assert list(together.dtypes) == list(frames[0].dtypes)


def test_equal_runs_have_equal_frames() -> None:
    timed = ["run_id", "started_s", "duration_s", "remaining_time_s"]
    first, second = (
        result_of([call("look"), call("nobody"), "end"], stop=StepCountIs(9)).to_frame().drop(columns=timed) for _ in range(2)
    )
    pd.testing.assert_frame_equal(first, second)


def test_a_running_run_has_a_frame() -> None:
    async def main() -> None:
        run = looping().run("go")
        await run.step()
        assert len(run.to_frame()) == 1
        runs = lab.frame(run, "runs")
        assert runs["stop_reason"].isna().all()
        assert runs["terminated"].isna().all()
        assert runs["steps"].tolist() == [1]
        await run.step()
        assert len(run.to_frame()) == 2

    go(main())


def test_a_run_stopped_between_steps_has_the_reason_on_its_last_step() -> None:
    async def main() -> lab.Run:
        run = looping().run("go")
        await run.step()
        await run.step()
        run.stop()
        return run

    assert go(main()).to_frame()["stop_reason"].fillna("").tolist() == ["", "explicit_stop"]


def test_an_error_is_in_the_frame() -> None:
    frame = result_of([call("look"), errors.ProviderStatusError("overloaded", status=529)]).to_frame()
    assert frame["error"].fillna("").tolist() == ["", "ProviderStatusError: overloaded"]
    assert frame["finish_reason"].isna().tolist() == [False, True]
    assert frame["stop_reason"].tolist()[-1] == "error"


def test_lone_surrogates_are_replaced() -> None:
    """A provider may cut an answer inside an escaped emoji: a lone surrogate is not text for Arrow."""
    half = json.loads('"cut: \\ud83d"')
    result = result_of([call("look", {"q": half}, text=half), say(half)])
    assert result.to_frame()["text"].tolist() == ["cut: ?", "cut: ?"]
    for what in KINDS:
        lab.frame(result, what)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.one_of(st.text(max_size=8), st.text("<>&\"'", max_size=5)), min_size=1, max_size=3))
def test_any_text_is_accepted(texts: list[str]) -> None:
    result = result_of([*[call("look", {"q": text}, text=text) for text in texts], say("end")])
    frame = result.to_frame()
    assert frame["text"].tolist() == [*texts, "end"]
    assert lab.frame(result, "tools")["content"].tolist() == [f"saw {text}" for text in texts]


class Tags(HTMLParser):
    """The tags of a document."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.seen.add(tag)


def test_frames_are_escaped_in_a_notebook() -> None:
    evil = "<script>alert(1)</script><img src=x onerror=alert(1)>"

    @lab.tool(inline=True)
    def quit_it() -> lab.Stop:
        return lab.Stop(evil)

    made = agent([call(evil), call("quit_it")], tools=[quit_it], name=evil)
    result = go(_end(made.run(evil)))
    bundle = result._repr_mimebundle_()
    assert set(bundle) == {"text/plain", "text/html"}
    tags = Tags()
    tags.feed(bundle["text/html"])
    assert tags.seen <= {"div", "p", "b", "table", "thead", "tbody", "tr", "th", "td"}
    assert "&lt;script&gt;" in bundle["text/html"]
    assert "explicit_stop" in bundle["text/html"]
    assert bundle["text/plain"] == repr(result)


def test_an_unknown_frame_is_an_error_that_lists_the_frames() -> None:
    result = result_of(["end"])
    for ask in (result.to_frame, lambda what: lab.frame(result, what), looping().run("go").to_frame):
        with pytest.raises(
            errors.ConfigurationError, match=r"no frame 'step': choose one of runs, steps, .* Did you mean 'steps'"
        ):
            ask("step")


@pytest.mark.parametrize("wrong", [[5], 5, ["run"], None], ids=repr)
def test_a_frame_of_another_object_is_refused(wrong: Any) -> None:
    with pytest.raises(errors.ConfigurationError, match="is not a run or a result"):
        lab.frame(wrong)


def test_a_frame_that_an_import_does_not_have_is_refused() -> None:
    store = lab.Store()
    store.keep(run_of(["end"]))
    imported = lab.importers.store(store)
    for source, what in ((imported, "events"), (imported.steps, "steps"), (imported.steps, "runs")):
        name = type(source).__name__
        with pytest.raises(errors.ConfigurationError, match=f"cannot make '{what}' of {name}: pass runs, results or a store"):
            lab.frame(source, what)
    for function in (lab.termination_report, lab.plots.timeline):
        with pytest.raises(errors.ConfigurationError, match=r"\(\) cannot read Imported: pass a run"):
            function(imported)


def test_forks_have_their_parent_in_the_frame() -> None:
    run = run_of(["end"])
    go(_end(run))
    branch = run.fork(at=1, message="and more?")
    frame = lab.frame([run, branch], "runs")
    assert frame["parent_run_id"].fillna("").tolist() == ["", run.id]
    assert frame["forked_at"].dtype == "Int64"
    assert frame["forked_at"].isna().tolist() == [True, False]
    assert frame["forked_at"][1] == 1

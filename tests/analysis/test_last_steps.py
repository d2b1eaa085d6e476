"""What-if answers that depend on how the last step of a run ended, one by one, worked out by hand."""

from __future__ import annotations

import asyncio
import functools
from typing import Any

import pandas as pd
import pytest

import agentlab as lab
from agentlab import AgentlabWarning, Budget, HasToolCall, StepCountIs
from agentlab.model.messages import ModelRequest
from agentlab.testing import ScriptedProvider, call, say

USED: dict[str, Any] = {"tokens": (10, 5), "cost": "0.001"}
LAST_ANSWER = Budget(max_turns=3, last_answer=0.4)
UNKNOWN = ("unknown", None, None)


def finalize(answer: str) -> str:
    """Finish."""
    return answer


def looks(request: ModelRequest, index: int) -> Any:
    return call("look", {"q": "it"}, **USED)


def looks_longer_in_step_2(request: ModelRequest, index: int) -> Any:
    return call("look", {"q": str(index)}, **USED)


def is_cut_off_from_step_2(request: ModelRequest, index: int) -> Any:
    return looks(request, index) if index == 1 else say("half", finish=lab.FinishReason.MAX_TOKENS, **USED)


def finishes_in_step_3(request: ModelRequest, index: int) -> Any:
    return call("finalize", {"answer": "it"}, **USED) if index == 3 else looks(request, index)


def only_talks(request: ModelRequest, index: int) -> Any:
    return say("Nothing.", **USED)


def answers_in_step_3(request: ModelRequest, index: int) -> Any:
    return say("So far nothing.", **USED) if index == 3 else looks(request, index)


@functools.cache
def recorded(how: str) -> lab.RunResult:
    """A run whose last step ended in this way."""
    script, settings = {
        "a last answer": (answers_in_step_3, {"budget": LAST_ANSWER}),
        "a last answer that calls a tool": (looks, {"budget": LAST_ANSWER}),
        "cancelled in a tool": (looks_longer_in_step_2, {}),
        "out of time in a tool": (looks_longer_in_step_2, {"budget": Budget(timeout=0.5)}),
        "stopped by a person in an answer that was cut off": (is_cut_off_from_step_2, {}),
        "a terminating tool": (finishes_in_step_3, {"terminating": ["finalize"]}),
        "the goal": (finishes_in_step_3, {"stop": HasToolCall("finalize") | StepCountIs(9)}),
        "no call of the terminating tool": (
            only_talks,
            {"terminating": lab.TerminatingTools(["finalize"], consecutive_nudges=1)},
        ),
        "another condition than the goal": (looks, {"stop": HasToolCall("finalize") | StepCountIs(3)}),
    }[how]

    async def look(q: str) -> str:
        if q == "2":
            if how == "cancelled in a tool":
                run.cancel()
            await asyncio.sleep(10)
        return "nothing"

    async def stops(request: ModelRequest, next: Any) -> Any:
        response = await next(request)
        if how.startswith("stopped") and response.text:
            run.stop("enough")
        return response

    run = lab.Agent(ScriptedProvider(script), tools=[look, finalize], middleware=[stops]).run("?", **settings)
    run.start().wait(30)
    assert run.result is not None
    return run.result


CASES: list[tuple[str, str, dict[str, Any], tuple[str, int | None, bool | None]]] = [
    # Without the limit, its last step would not have been a last answer.
    ("a last answer", "frames", {"stop": StepCountIs(2)}, ("stopped", 2, False)),
    ("a last answer", "frames", {"stop": StepCountIs(3)}, UNKNOWN),
    ("a last answer", "frames", {"stop": StepCountIs(4)}, UNKNOWN),
    ("a last answer that calls a tool", "runs", {"budget": {"max_calls": 2}}, ("stopped", 2, False)),
    ("a last answer that calls a tool", "runs", {"budget": {"max_calls": 3}}, UNKNOWN),
    # What the rest of the step would have used is unknown.
    ("cancelled in a tool", "frames", {"stop": StepCountIs(1)}, ("stopped", 1, False)),
    ("cancelled in a tool", "frames", {"stop": StepCountIs(2)}, UNKNOWN),
    ("out of time in a tool", "runs", {"budget": {"max_tokens": 15}}, ("stopped", 1, False)),
    ("out of time in a tool", "runs", {"budget": {"max_tokens": 30}}, UNKNOWN),
    ("stopped by a person in an answer that was cut off", "runs", {"budget": {"max_calls": 1}}, ("stopped", 1, False)),
    ("stopped by a person in an answer that was cut off", "runs", {"budget": {"max_calls": 2}}, ("stopped", 2, False)),
    ("stopped by a person in an answer that was cut off", "runs", {"budget": {"max_calls": 5}}, UNKNOWN),
    ("stopped by a person in an answer that was cut off", "frames", {"stop": StepCountIs(3)}, UNKNOWN),
    # Without a frame of the runs, only the columns of its last step say whether the goal was reached.
    ("a terminating tool", "steps", {"stop": StepCountIs(4)}, ("finished", 3, True)),
    ("the goal", "steps", {"stop": StepCountIs(3)}, ("stopped", 3, True)),
    ("the goal", "steps", {"stop": StepCountIs(2)}, ("stopped", 2, False)),
    ("another condition than the goal", "steps", {"stop": StepCountIs(3)}, ("stopped", 3, False)),
    ("another condition than the goal", "steps", {"stop": StepCountIs(4)}, UNKNOWN),
    ("no call of the terminating tool", "steps", {"stop": StepCountIs(4)}, ("finished", 2, False)),
]


@pytest.mark.parametrize(("how", "form", "limits", "expected"), CASES)
def test_the_last_step(how: str, form: str, limits: dict[str, Any], expected: tuple[str, int | None, bool | None]) -> None:
    result = recorded(how)
    given: Any = [result] if form == "runs" else lab.frame(result)
    runs = lab.frame([result], "runs") if form == "frames" else None
    row = lab.backtest(given, limits.get("stop"), budget=limits.get("budget"), runs=runs, per="run").iloc[0]
    assert tuple(None if pd.isna(row[name]) else row[name] for name in ("outcome", "step", "goal_reached")) == expected


def test_a_run_that_failed_before_its_first_step_fails_under_any_limits() -> None:
    result = recorded("another condition than the goal")
    runs = pd.concat([lab.frame([result], "runs")] * 2, ignore_index=True)
    runs.loc[1, ["run_id", "steps", "stop_reason"]] = ["failed", 0, "error"]
    rows = lab.backtest(lab.frame(result), StepCountIs(1), runs=runs, per="run").set_index("run_id")
    assert rows.loc["failed", ["outcome", "step", "stop_reason", "tokens"]].tolist() == ["finished", 0, "error", 0]


@pytest.mark.parametrize("form", ["runs", "steps"])
def test_a_misspelt_tool_is_reported(form: str) -> None:
    result = recorded("the goal")
    given: Any = [result] if form == "runs" else lab.frame(result)
    with pytest.warns(
        AgentlabWarning, match="HasToolCall.'finalise'.: no step of these runs has 'finalise'. Did you mean 'finalize'"
    ):
        row = lab.backtest(given, HasToolCall("finalise"), per="run").iloc[0]
    assert row["outcome"] == "unknown"
    # Perhaps they had this tool, and did not call it.
    assert lab.backtest(given, HasToolCall("search"), per="run").loc[0, "outcome"] == "unknown"

"""A run as data for the page, and the page as a file: what is in it, what is not, and that nothing in it acts."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import hashlib
import json
import pickle
import re
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import html5lib
import pandas as pd
import pytest
from inert import HOSTILE as HOSTILE_TEXTS
from inert import hostile_run, text_of, to_the_end, what_acts
from live_page import LivePage
from measured_work import calls_in
from soak.planted_keys import ALL, IN_ENVIRONMENT, KEYS, SENT, found_in
from test_rich_text import png
from thread_tools import drawn, wait_until

import agentlab as lab
from agentlab import Budget, HasToolCall, MaxCost, StepCountIs
from agentlab._internal import secrets as known_keys
from agentlab.agent import Run
from agentlab.engine.worker import RunState
from agentlab.errors import AgentlabWarning, ConfigurationError
from agentlab.model.messages import ToolCall
from agentlab.notebook.page import page_html, script, style
from agentlab.notebook.page.data import as_json, page_data
from agentlab.notebook.page.steps import Shown
from agentlab.testing import ScriptedProvider, call, say

FIXTURES = Path(__file__).parents[2] / "fixtures"
HOSTILE = "".join(HOSTILE_TEXTS.values())


def search(query: str) -> str:
    """Search."""
    return json.dumps({"hits": [], "query": query})


def ended(script: Any, prompt: str = "Find it.", *, tools: Sequence[Any] = (search,), agent: Any = None, **more: Any) -> Run:
    """A run on a script, to its end."""
    model = ScriptedProvider(script) if not isinstance(script, ScriptedProvider) else script
    run = lab.Agent(model, tools=[*tools], **(agent or {})).run(prompt, **more)
    to_the_end(run)
    return run


def data_of(*runs: Run, **more: Any) -> dict[str, Any]:
    """The data as the page reads it."""
    return as_read(as_json(page_data(runs, "title", Shown(**more))))


def as_read(text: str) -> dict[str, Any]:
    """The data in a page, with all steps of each run."""
    data: dict[str, Any] = json.loads(text)
    by_id = {run["id"]: run for run in data["runs"]}
    for run in data["runs"]:
        run["steps"] = by_id[run["parent"]]["steps"][: run.pop("kept")] + run["steps"] if "kept" in run else run["steps"]
    return data


def only(run: Run, **more: Any) -> dict[str, Any]:
    (data,) = data_of(run, **more)["runs"]
    return dict(data)


# Shape --------------------------------------------------------------------------------------------------------------------------

NUMBER, TEXT, WHOLE = (int, float, type(None)), (str,), (int, type(None))
SHAPE: dict[str, Any] = {
    "id": str, "name": str, "agent": str, "model": str, "parent": (str, type(None)), "forked_at": WHOLE, "called_by": (str, type(None)),
    "continues": bool, "in_force": dict, "state": str, "system_html": str, "prompt_html": str,
    "actions": [{"label": str, "why": str, "code": str, "needs_prompt": bool}],
    "totals": {"steps": int, "tokens": WHOLE, "cost_usd": NUMBER, "elapsed_s": NUMBER},
    "limits": [{
        "name": str, "label": str, "unit": str, "value": (*NUMBER, str), "limit": (*NUMBER, str), "share": NUMBER,
        "met": (bool, type(None)), "goal": bool, "off": bool, "with": [str], "key": str,
        "order": str,
    }],
    "pending": [{"tool": str, "arguments": str, "step": int, "why": str}],
    "end": (dict, type(None)),
    "steps": [{
        "n": int, "html": str, "finish": str, "stop_reason": (str, type(None)), "action": str, "tokens": WHOLE, "cost_usd": NUMBER,
        "duration_s": NUMBER, "started_s": NUMBER, "reads": str, "details": str,
        "spans": [{"kind": str, "label": str, "start_s": NUMBER, "end_s": NUMBER}], "children": [str],
        "same": str, "in_force": (dict, type(None)),
    }],
    "marks": [{"step": int, "kind": str, "text": str}],
    "made": [[str]],
}  # fmt: skip


def fits(value: Any, shape: Any, place: str = "") -> None:
    if isinstance(shape, dict):
        assert value.keys() == shape.keys(), place
        for name, part in shape.items():
            fits(value[name], part, f"{place}.{name}")
    elif isinstance(shape, list):
        assert isinstance(value, list), place
        for number, part in enumerate(value):
            fits(part, shape[0], f"{place}[{number}]")
    else:
        assert isinstance(value, shape), f"{place} is {value!r}"


def family() -> Run:
    """A replayed run with a fork of another budget and one with another tool result, neither taken further but the first."""
    from fixtures.scenarios import SCENARIOS

    trip = next(one for one in SCENARIOS if one.name == "trip")
    with lab.replay(FIXTURES / "trip", match="order"):
        run = to_the_end(trip.agent("anthropic").run(trip.prompt, stop=HasToolCall("finalize") | StepCountIs(8)))
    with lab.replay(FIXTURES / "trip", match="order"):
        to_the_end(run.fork(at=2, budget=Budget(max_turns=3)))
    run.fork(at=1, tool_results={run.history[0].tool_calls[0].id: '{"city":"Graz","sky":"sunny"}'})
    return run


def test_spans_of_tools_that_run_at_the_same_time_overlap() -> None:
    barrier = threading.Barrier(2)

    def meet(mark: str) -> str:
        barrier.wait(30)
        return mark

    calls = [ToolCall(mark, "meet", json.dumps({"mark": mark})) for mark in "ab"]
    run = ended([say(finish=lab.FinishReason.TOOL_CALLS, calls=calls), "end"], tools=[lab.tool(meet, parallel=True)])
    first, second = [span for span in only(run)["steps"][0]["spans"] if span["kind"] == "tool"]
    assert max(first["start_s"], second["start_s"]) <= min(first["end_s"], second["end_s"])


def test_a_family_of_replayed_runs() -> None:
    data = data_of(family())
    assert {name: type(value) for name, value in data.items()} == {"title": str, "open": str, "runs": list}
    fits(data["runs"], [SHAPE])
    first, shorter, edited = data["runs"]
    assert data["open"] == first["id"] and first["parent"] is None
    assert [run["name"] for run in data["runs"]] == [
        "anthropic:claude-sonnet-4-6", "max_turns 3", "edited result of get_weather at step 1",
    ]  # fmt: skip
    assert [(run["parent"], run["forked_at"], run["state"]) for run in (shorter, edited)] == [
        (first["id"], 2, "ended"),
        (first["id"], 1, "idle"),
    ]
    assert first["totals"] | {"elapsed_s": 0} == {"steps": 4, "tokens": 3146, "cost_usd": 0.014346, "elapsed_s": 0}
    steps = first["steps"]
    assert [step["n"] for step in steps] == [1, 2, 3, 4] and sum(step["tokens"] for step in steps) == 3146
    assert steps[0]["reads"] == "HasToolCall(finalize): 0 calls · StepCountIs 1 of 8 · not met"
    assert steps[0]["started_s"] == 0 and [span["kind"] for span in steps[0]["spans"]] == ["call", "tool", "tool"]
    assert first["end"] | {"output_html": ""} == {
        "kind": "terminated", "stop_reason": "stop_condition", "detail": "Stop condition met: HasToolCall(finalize): 1 call.",
        "fired": ["HasToolCall(finalize): 1 call"], "output_html": "",
        "signal": "The provider said stop_reason = tool_use, read as tool_calls (confidence high).",
    }  # fmt: skip
    assert "Salzburg, by a wide margin" in text_of(first["end"]["output_html"]) and first["actions"] == []
    assert "You plan day trips" in text_of(first["system_html"]) and "I live in Vienna" in text_of(first["prompt_html"])
    assert shorter["end"]["kind"] == "truncated"
    assert shorter["actions"][0]["label"] == "Raise the turn limit to 6 and continue"
    assert shorter["actions"][0]["code"] == "branch = run.apply()\nresult = await branch"
    assert "edited in this branch" in edited["steps"][0]["html"] and "edited in this branch" not in steps[0]["html"]


def test_the_transcript_of_a_step() -> None:
    reply = dataclasses.replace(call("search", {"query": "<b>"}, text="I **look**.", tokens=(9, 3)), reasoning="It is *hidden*.")
    run = ended([reply, "Done."], agent={"instructions": "Be `brief`."})
    html = only(run)["steps"][0]["html"]
    assert re.findall(r'^<details class="agentlab-reasoning"><summary>Reasoning', html)
    assert '<div class="agentlab-assistant">' in html and "<strong>look</strong>" in html and "<em>hidden</em>" in html
    head = re.findall(
        r'<details class="agentlab-call"><summary><span class="agentlab-call-name">search</span> '
        r'<span class="agentlab-call-args">(.*?)</span> <span class="agentlab-call-outcome">(.*?)</span></summary>'
        r'<div class="agentlab-args"><pre class="agentlab-code agentlab-json"',
        html,
    )
    assert len(head) == 1 and text_of(head[0][0]) == '{"query": "<b>"}' and text_of(head[0][1]).startswith("done · ")
    assert '<div class="agentlab-result"><pre' in html
    assert re.findall('data-section="(.*?)"', only(run)["steps"][0]["details"]) == ["calls", "signal", "decision", "limits"]


@pytest.mark.parametrize(
    ("decision", "outcome", "heading"),
    [
        (lab.Approval.allow(), "approved · done", ""),
        (lab.Approval.allow({"query": "<i>"}), "edited · done", "Arguments after the edit by a person:"),
        (lab.Approval.answer("<b>Nothing.</b>"), "answered by a person", ""),
        (lab.Approval.refuse("<b>No.</b>"), "refused by a person", ""),
    ],
)
def test_what_a_person_decided_about_a_call(decision: lab.Approval, outcome: str, heading: str) -> None:
    more: dict[str, Any] = {"approve": ["search"], "approver": lambda pending: decision}
    run = ended([call("search", {"query": "a"}), "Done."], **more)
    (step, _) = only(run, timing=False)["steps"]
    assert f'<span class="agentlab-call-outcome">{outcome}</span>' in step["html"]
    assert re.findall(r"Arguments after .*?:|\w+ by a person\.|with other arguments", step["html"]) == (
        [heading] if heading else []
    )
    assert "<b>" not in step["html"] and "<i>" not in step["html"]
    assert ('a person:</div><div><pre class="agentlab-code' in step["html"]) == bool(heading)  # as wide as the other arguments


@pytest.mark.parametrize(
    ("result", "first"),
    [
        ("Rain.\nIt is 17 degrees.", "Rain."),
        ("\n\n  Rain.", "Rain."),
        ({"sky": "<rain>", "high_c": 17}, '{"sky":"<rain>","high_c":17}'),
        ('{\n  "sky": "rain"\n}', '{ "sky": "rain" }'),
        ("x" * 500, f"{'x' * 159}…"),
        ("key sk-" + "abcdefghijklmnopqrstuvwxyz0123456789ABCD" + "\nmore", "key REDACTED"),
        (lab.Image(png()), "image png 40x20, 82 B"),
        ("", None),
        (ValueError("no weather"), None),
    ],
    ids=["lines", "blank lines", "dict", "JSON", "long", "key", "image", "empty", "error"],
)
def test_a_tool_call_shows_the_first_line_of_its_result(result: Any, first: str | None) -> None:
    def weather() -> Any:
        """Weather."""
        if isinstance(result, Exception):
            raise result
        return result

    html = only(ended([call("weather", {}), "Done."], tools=[weather]))["steps"][0]["html"]
    found = re.findall('<span class="agentlab-call-first">(.*?)</span></summary>', html)
    assert [text_of(one) for one in found] == ([] if first is None else [first])


def test_chat_history_reminders_and_messages_of_a_person() -> None:
    def finalize(answer: str) -> str:
        """Hand in."""
        return answer

    before = [lab.Message("user", "Hello."), lab.Message("assistant", "*Hi!*")]
    run = ended(["I am done.", call("finalize", {"answer": "42"})], tools=[finalize], terminating=["finalize"], messages=before)
    data = only(run)
    assert re.findall('class="agentlab-(user|assistant)"', data["prompt_html"]) == ["user", "assistant", "user"]
    assert "<em>Hi!</em>" in data["prompt_html"]
    assert 'class="agentlab-nudge"' in data["steps"][0]["html"] and data["steps"][0]["action"] == "nudge"
    assert [(mark["kind"], mark["step"]) for mark in data["marks"]] == [("nudge", 1)]
    run.fork(at=1, message="And *now*?")
    _, branch = data_of(run)["runs"]
    assert (
        branch["steps"][0]["html"].endswith("<p>And <em>now</em>?</p>\n</div></div>") and branch["name"] == 'message "And *now*?"'
    )


def test_tables_and_images_are_shown_as_such() -> None:
    def sales() -> pd.DataFrame:
        """Sales."""
        return pd.DataFrame({"train": ["IC 41"], "eur": [29]})

    def chart() -> bytes:
        """A chart."""
        return png()

    async def as_csv(tool_call: lab.ToolCall, run_tool: Any) -> lab.ToolResult:
        result: lab.ToolResult = await run_tool(tool_call)
        is_table = isinstance(result.value, pd.DataFrame)
        return dataclasses.replace(result, content=result.value.to_csv(), error=None) if is_table else result

    script = [call("sales"), call("chart"), "Done."]
    run = ended(script, tools=[sales, chart], agent={"tool_middleware": [as_csv]})
    table, image, _ = (step["html"] for step in only(run)["steps"])
    assert "0,IC 41,29" in table and "Changed by a middleware." in table and "unserialisable" in image
    assert "<th>train</th>" in table and "What the model read" in table
    assert '<img class="agentlab-image" src="data:image/png;base64,' in image
    assert what_acts(table) == what_acts(image) == []


# Limits -------------------------------------------------------------------------------------------------------------------------


def rows(run: Run) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in only(run)["limits"]}


@pytest.mark.filterwarnings("ignore:.* can never be met")  # on purpose
def test_two_limits_on_one_thing_are_one_row() -> None:
    stop = StepCountIs(3) | MaxCost("0.5") | HasToolCall("search")
    run = ended([call("search", {"query": "a"}, cost="0.01"), "Done."], stop=stop, budget=Budget(max_turns=9, max_cost="0.1"))
    found = rows(run)
    assert found["StepCountIs"]["with"] == ["max_turns", "StepCountIs"]
    assert (found["StepCountIs"]["value"], found["StepCountIs"]["limit"], found["StepCountIs"]["label"]) == (1, 3, "Steps")
    assert found["max_cost"]["with"] == ["max_cost", "MaxCost"] and (found["max_cost"]["limit"], found["max_cost"]["unit"]) == (
        0.1,
        "usd",
    )
    goal = found["HasToolCall"]
    assert goal["goal"] and goal["met"] and (goal["value"], goal["limit"]) == (1, "search")
    assert list(found) == ["StepCountIs", "max_cost", "HasToolCall"]
    assert [row["order"] for row in found.values()] == [
        "StepCountIs 3 applies before max_turns 9",
        "max_cost $0.10 applies before MaxCost $0.50",
        "",
    ]


def test_limits_that_do_not_end_the_run_alone_have_their_own_row() -> None:
    stop = (StepCountIs(2) & ~HasToolCall("search")) | lab.Off(StepCountIs(1)) | (lambda history: False)
    run = ended(["Done."], stop=stop, budget=Budget(max_turns=9))
    limits = only(run)["limits"]
    assert [(row["name"], row["label"], row["off"], row["met"]) for row in limits] == [
        ("max_turns", "Steps", False, False),
        ("StepCountIs", "Steps", False, False),
        ("HasToolCall", "not: Call of search", False, False),
        ("StepCountIs", "Steps", True, None),
        ("custom", "custom", False, False),
    ]
    assert [row["share"] for row in limits] == [pytest.approx(1 / 9, abs=1e-6), 0.5, None, None, None]


def test_the_default_of_max_turns_does_not_come_before_an_equal_condition() -> None:
    found = rows(ended(["Done."], stop=StepCountIs(20)))
    assert found["StepCountIs"]["order"] == "StepCountIs 20 and max_turns 20"


# Unknown is unknown -------------------------------------------------------------------------------------------------------------


def test_unknown_usage_stays_unknown() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AgentlabWarning)
        run = ended(
            [call("search", {"query": "a"}, tokens=(None, None)), say("Done.", cost="0.5")],
            budget=Budget(max_tokens=99, max_cost=9),
        )
    data = only(run)
    first, last = data["steps"]
    assert [(step["tokens"], step["cost_usd"]) for step in (first, last)] == [(None, None), (15, 0.5)]
    assert data["totals"]["tokens"] is None is data["totals"]["cost_usd"]
    found = {row["name"]: (row["value"], row["share"], row["met"]) for row in data["limits"]}
    assert found["max_tokens"] == found["max_cost"] == (None, None, None)
    assert {mark["kind"] for mark in data["marks"]} == {"warning"}


@pytest.mark.parametrize("odd", ["NaN", "Infinity", "1e-30"])
def test_a_cost_that_is_no_number(odd: str) -> None:
    run = ended([say("Done.", cost="0.5")], budget=Budget(max_cost=9))
    step = run.history[-1]
    run.history.amend(dataclasses.replace(step, cost=dataclasses.replace(step.cost, usd=Decimal(odd))))
    shown = only(run)["steps"][0]["cost_usd"]
    assert shown == (1e-30 if odd == "1e-30" else None)


# States and ends ----------------------------------------------------------------------------------------------------------------


def test_a_truncated_answer() -> None:
    cut = [say("A long", finish=lab.FinishReason.MAX_TOKENS, tokens=(9, 3)) for _ in range(9)]
    data = only(ended(cut))
    (step,) = data["steps"]
    assert (
        data["end"]["kind"] == "truncated" == data["end"]["stop_reason"] == step["stop_reason"] and step["finish"] == "max_tokens"
    )
    assert {mark["kind"] for mark in data["marks"]} == {"continuation"} and len(step["spans"]) > 1
    assert "continues at character" in text_of(step["html"]) and data["actions"]


def test_an_error() -> None:
    data = only(ended([call("search", {"query": "a"}), RuntimeError("the <wire> broke")]))
    assert data["steps"][-1]["finish"] == "no_answer" and "No answer was received." in data["steps"][-1]["html"]
    assert "RuntimeError: the <wire> broke" in text_of(data["steps"][-1]["html"]) and data["end"]["stop_reason"] == "error"


def test_a_run_that_has_not_begun_is_paused_or_goes_on() -> None:
    async def go() -> list[dict[str, Any]]:
        waits, seen = asyncio.Event(), []

        async def slow() -> str:
            """Wait."""
            seen.append(only(run))
            waits.set()
            return "done"

        run = lab.Agent(ScriptedProvider([call("slow"), call("slow"), "Done."]), tools=[slow]).run("?")
        seen.append(only(run))
        await run.step()
        run.pause()
        seen.append(only(run))
        return seen

    idle, running, paused = asyncio.run(go())
    assert [one["state"] for one in (idle, running, paused)] == ["idle", "running", "paused"]
    assert [len(one["steps"]) for one in (idle, running, paused)] == [0, 0, 1]
    assert idle["end"] is None is running["end"] and "?" in text_of(idle["prompt_html"])
    assert paused["marks"][-1]["kind"] == "paused" and paused["marks"][-1]["text"]
    fits([idle, running, paused], [SHAPE])


def test_calls_that_wait_for_approval() -> None:
    agent = lab.Agent(ScriptedProvider([call("search", {"query": "a"}), call("search", {"query": HOSTILE})]), tools=[search])
    run = agent.run("?", approve=["sea*", MaxCost("0.5")])
    assert asyncio.run(_result_of(run)).stop_reason is lab.StopReason.AWAITING_APPROVAL
    run.approve()
    asyncio.run(_result_of(run))

    data = only(run)
    (waits,) = data["pending"]
    assert (len(data["steps"]), data["state"], data["end"]) == (1, "waiting", None)
    assert (waits["tool"], waits["step"], waits["why"]) == ("search", 2, "approve has 'sea*'")
    assert waits["arguments"].startswith('{"query": ')
    assert data["limits"][-1]["name"] == "approve" and data["limits"][-1]["value"] == "sea*, MaxCost(0.5)"
    assert data["in_force"]["approve"] == "sea*, MaxCost(0.5)"
    fits(data, SHAPE)
    run.limits.approve = True
    assert only(run)["limits"][-1]["value"] == "every tool"
    run.stop()
    assert only(run)["pending"] == []


def test_a_step_that_waits_for_approval_counts_with_the_calls_that_were_answered() -> None:
    asked = call("search", {"query": "a"}, tokens=(100, 10), cost="0.25")
    run = lab.Agent(ScriptedProvider([asked, asked, say("Done.", cost=0)]), tools=[search]).run(
        "?", approve=True, budget=lab.Budget(max_tokens=1_000, max_calls=10), stop=lab.MaxCost(2)
    )
    names = ("max_tokens", "max_calls", "MaxCost", "max_turns")
    seen = []
    for _ in range(2):
        asyncio.run(_result_of(run))
        data = only(run)
        seen.append([*list(data["totals"].values())[:-1], *(rows(run)[name]["value"] for name in names)])
        run.approve()
    assert seen == [[0, 110, 0.25, 110, 1, 0.25, 0], [1, 220, 0.5, 220, 2, 0.5, 1]]
    asyncio.run(_result_of(run))
    assert only(run)["totals"]["tokens"] == run.history.tokens == 235
    run = lab.Agent(ScriptedProvider([call("search", {"query": "a"}, tokens=(None, 1))]), tools=[search]).run("?", approve=True)
    asyncio.run(_result_of(run))
    assert [only(run)["totals"][name] for name in ("tokens", "cost_usd")] == [None, None]


def outcomes(step: dict[str, Any]) -> list[str]:
    return re.findall('<span class="agentlab-call-outcome">(.*?)</span>', step["html"])


@pytest.mark.parametrize("end", [Run.stop, Run.cancel])
def test_calls_that_waited_when_the_run_ended_say_so(end: Callable[[Run], None]) -> None:
    both = [*call("search", {"query": "a"}, id="1").tool_calls, *call("search", {"query": "b"}, id="2").tool_calls]
    asked = say("Hm.", calls=both, finish=lab.FinishReason.TOOL_CALLS)
    run = lab.Agent(ScriptedProvider([asked]), tools=[search]).run("?", approve=True)
    asyncio.run(_result_of(run))
    run.approve(run.pending[1])
    end(run)
    branch = run.fork(at=1)
    for data in data_of(run)["runs"]:
        assert outcomes(data["steps"][0]) == ["waited for approval · not executed", "approved by a person · not executed"]
    assert [type(event).__name__ for event in run.events if "Approval" in type(event).__name__] == [
        "ApprovalRequested", "ApprovalRequested", "ApprovalGiven",
    ]  # fmt: skip
    assert len(run.history.last.tool_calls) == 2 and branch.history[0].tool_results == ()  # type: ignore[union-attr]


def test_the_call_of_a_sub_agent_that_waited_when_the_run_ended_says_so() -> None:
    scout = lab.Agent(ScriptedProvider([call("search", {"query": "a"})]), tools=[search], name="scout", approve=["search"])
    run = lab.Agent(ScriptedProvider([call("scout", {"task": "Go."})]), tools=[scout.as_tool("scout", "Looks.")]).run("?")
    asyncio.run(_result_of(run))
    run.stop()
    caller, child = data_of(run)["runs"]
    assert (outcomes(caller["steps"][0]), outcomes(child["steps"][0])) == (["cut off"], ["waited for approval · not executed"])
    assert "Sub-agent scout-1: cancelled, 1 step" in text_of(caller["steps"][0]["html"])


def test_an_attempt_that_was_cut_off_with_its_process_is_in_the_step() -> None:
    scout = lab.Agent(ScriptedProvider(lambda request, index: say("Sunny.", cost="0.25")), name="scout")
    run = ended([call("scout", {"task": "<b>Go."})], tools=[scout.as_tool("scout", "Looks.")], stop=StepCountIs(1))
    step = run.history[0]
    (use,) = step.children
    before = dataclasses.replace(use, handle="scout (cut off)", stop_reason=None, cut_off=True)  # as it is stored
    run.history.amend(dataclasses.replace(step, children=(before, use)))
    said = text_of(data_of(run)["runs"][0]["steps"][0]["html"])
    assert said.startswith(
        "An earlier attempt at this step was cut off with its process. Its sub-agent scout: cut off, 1 step, 15 tokens, $0.25"
    )
    assert said.count("Sub-agent scout-1: completed, 1 step") == 1


async def _result_of(run: Run) -> lab.RunResult:
    return await run


def test_a_child_run() -> None:
    scout = lab.Agent(ScriptedProvider(lambda request, index: say("Sunny.", cost="0.25")), name="scout")
    planner = ScriptedProvider([call("scout", {"task": "Go."}, cost="0.5", id="c1"), "Done."])
    run = ended(planner, tools=[scout.as_tool("scout", "Looks.")])
    caller, child = data_of(run)["runs"]
    assert child["parent"] == caller["id"] and child["called_by"] == "c1" and child["forked_at"] is None
    assert child["name"] == "scout-1" and caller["steps"][0]["children"] == [child["id"]]
    assert caller["steps"][0]["cost_usd"] == 0.75 and [span["kind"] for span in caller["steps"][0]["spans"]] == [
        "call",
        "child",
        "tool",
    ]
    assert "Sub-agent scout-1: completed, 1 step" in text_of(caller["steps"][0]["html"])
    assert data_of(run.children[0])["open"] == child["id"]


def test_names_say_what_differs_and_are_unique() -> None:
    run = ended(["Done."], agent={"name": "clerk"})
    run.fork(at=0, prompt="Another.")
    run.fork(at=0, prompt="One more.")
    run.fork(at=0, budget=Budget(max_turns=10))
    run.fork(at=0)
    names = [one["name"] for one in data_of(run)["runs"]]
    assert names == ["clerk", "another prompt", "another prompt (2)", "max_turns 10", "the same from step 1"]


def test_marks() -> None:
    async def go() -> Run:
        model = ScriptedProvider([call("search", {"query": "a"}, cost="0.1"), say("Done.", cost="0.1")])
        run = lab.Agent(model, tools=[search]).run("?")
        run.limits.max_turns = 5
        await run.step()
        run.limits.max_cost = 0.5
        run.fork(at=1)
        await run
        return run

    run = asyncio.run(go())
    own, branch = (data["marks"] for data in data_of(run)["runs"])
    assert [(mark["step"], mark["kind"]) for mark in own] == [(1, "limits"), (1, "limits")]
    assert own[0]["text"] == "max_turns 20 → 5 (by code)" and branch == own


# Hostile texts, keys ------------------------------------------------------------------------------------------------------------


def htmls(value: Any, name: str = "") -> Iterator[str]:
    """All fields of the data that are HTML."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield from htmls(part, key)
    elif isinstance(value, list):
        for part in value:
            yield from htmls(part, name)
    elif name.endswith("html") or name == "details":
        yield value


@pytest.mark.parametrize("text", [*HOSTILE_TEXTS.values(), HOSTILE], ids=[*HOSTILE_TEXTS, "all"])
def test_hostile_texts_are_inert_wherever_they_are(text: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AgentlabWarning)
        run = hostile_run(text)
    page = run.to_html(raw=True)
    scripts = re.findall(r"<script[^>]*>", page)
    assert scripts == ['<script type="application/json" id="agentlab-data">', "<script>"]
    assert page.count("</script>") == 2 and page.count("<style>") == 1 == page.count("</style>")
    parsed = html5lib.parse(page, treebuilder="etree", namespaceHTMLElements=False)
    assert [one.tag for one in parsed.find("body").iter()] == ["body", "div", "noscript", "script", "script"]
    data = as_read(parsed.find("body/script").text)
    assert len(parsed.findall("head/title")) == 1
    fits(data["runs"], [SHAPE])
    for html in htmls(data):
        assert what_acts(html) == []


@pytest.fixture
def _planted(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, value in IN_ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    known_keys.read_environment()
    known_keys.remember([SENT])
    yield
    monkeypatch.undo()
    known_keys.read_environment()


@pytest.mark.usefixtures("_planted")
@pytest.mark.filterwarnings("ignore::agentlab.errors.AgentlabWarning")
@pytest.mark.parametrize("text", [ALL, *KEYS.values()], ids=["all", *KEYS])
def test_no_key_is_in_the_file(text: str, tmp_path: Path) -> None:
    run = hostile_run(text)
    for page in (run.to_html(tmp_path / "run.html", raw=True).read_text(), lab.panel([run, *run.branches]).to_html()):
        assert found_in(str(page)) == []
    assert found_in(json.dumps(page_data([run], text))) == []


@pytest.mark.usefixtures("_planted")
@pytest.mark.filterwarnings("ignore::agentlab.errors.AgentlabWarning")
def test_no_key_is_in_what_a_live_page_gets() -> None:
    text = ALL

    def search(query: str) -> str:
        """Search."""
        return query

    model = ScriptedProvider([call("search", {"query": text}, text=text), text])
    waiting, ended = lab.Agent(model, tools=[search], name=text).run(text, approve=["search"]), hostile_run(text)
    asyncio.run(_result_of(waiting))
    page = LivePage(lab.panel([waiting, ended, *ended.branches]))
    (asked,) = page.of(waiting)["asked"]
    which = {"call": asked["call"], "of": asked["of"]}
    answers = [page.ask("details", ended, step=1), page.ask("branch_form", ended, step=1), page.ask("check", waiting, **which)]
    page.ask("decide", waiting, decision="approve", **which)
    wait_until(lambda: waiting.state is RunState.ENDED)
    drawn(page.panel)
    assert len(page.steps(waiting)) == 2
    assert found_in(json.dumps([page.messages, answers])) == []


# The file -----------------------------------------------------------------------------------------------------------------------


def test_the_file_is_one_page_that_may_do_nothing_but_its_script(tmp_path: Path) -> None:
    run = ended([call("search", {"query": "a"}), "Done."])
    file = run.to_html(tmp_path / "run.html")
    assert file == tmp_path / "run.html" and file.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    page = file.read_text(encoding="utf-8")
    code = page.rpartition("<script>")[2].partition("</script>")[0]
    policy = re.findall('http-equiv="Content-Security-Policy" content="(.*?)"', page)[0]
    hashed = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
    assert f"script-src 'sha256-{hashed}'" in policy and policy.startswith("default-src 'none'; ") and "img-src data:;" in policy
    assert not re.search(r"unsafe-eval|https?:", policy)
    assert "<title>scripted:script: Find it.</title>" in page
    embedded = page.partition('id="agentlab-data">')[2].partition("</script>")[0]
    assert not re.search("[<>&\u2028\u2029]", embedded) and json.loads(embedded)["runs"][0]["id"] == run.id
    for text in (script(), style()):
        assert not re.search(
            r"</script|</style|<!--|\b(fetch|XMLHttpRequest|WebSocket|eval|localStorage|importScripts)\b|url\(\s*['\"]?http", text
        )


def test_a_file_is_written_where_it_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = ended(["Done."])
    monkeypatch.chdir(tmp_path)
    assert run.to_html("run.html") == Path("run.html") and run.to_html(str(tmp_path / "run.html")).stat().st_size > 1_000
    with pytest.raises(ConfigurationError, match=r"to_html\('no/run\.html'\): there is no folder 'no'; make it first\."):
        run.to_html("no/run.html")
    with pytest.raises(ConfigurationError, match=r"that is a folder; name a file in it, such as '.*run\.html'\."):
        run.to_html(tmp_path)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"path": 5}, r"to_html\(5\): name a file, such as to_html\('run\.html'\)\."),
        ({"path": ""}, r"to_html\(''\): name a file"),
        ({"path": "a\0b"}, r"to_html\('a\\x00b'\): name a file"),
        ({"path": b"run.html"}, r"to_html\(b'run\.html'\): name a file"),
        ({"raw": [99]}, r"to_html\(raw=\[99\]\): there is no step 99; they are numbered from 1 to 1\."),
        ({"raw": [0]}, r"there is no step 0; they are numbered from 1 to 1\."),
        ({"raw": "yes"}, r"to_html\(raw='yes'\): pass True for all steps, or the numbers of steps in a list, such as \[3\]\."),
        ({"raw": 1}, r"such as \[1\]\."),
        ({"raw": ["a"]}, r"to_html\(raw=\['a'\]\): pass True"),
        ({"raw": None}, r"to_html\(raw=None\): pass True"),
        ({"timing": "no"}, r"to_html\(timing='no'\): pass True or False\."),
    ],
)
def test_bad_input_is_named(given: dict[str, Any], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = ended(["Done."])
    for one in (run, lab.panel(run), lab.panel([run])):
        with pytest.raises(ConfigurationError, match=words):
            one.to_html(**given)
    assert not [*tmp_path.iterdir()]


def test_steps_of_a_run_that_has_not_begun_do_not_exist() -> None:
    idle = lab.Agent(ScriptedProvider([])).run("?")
    with pytest.raises(ConfigurationError, match=r"there is no step 1; no step has been taken yet\."):
        idle.to_html(raw=[1])


def test_a_result_says_to_keep_its_run() -> None:
    run = ended(["Done."])
    keep = r"[Kk]eep (the|its) run: `run = agent\.run\(…\); await run`"
    for name in ("to_html", "panel"):
        with pytest.raises(AttributeError, match=f"A result has no '{name}'; .*{keep}, then run.{name}"):
            getattr(run.result, name)
    for given in (run.result, [run.result]):
        with pytest.raises(ConfigurationError, match=f"panel.*this is a result. {keep}"):
            lab.panel(given)  # type: ignore[arg-type]
    assert not hasattr(run.result, "other") and pickle.loads(pickle.dumps(run.result)).text == "Done."


def test_what_is_not_a_run_is_named() -> None:
    run = ended(["Done."])
    with pytest.raises(ConfigurationError, match=r"^panel\('x'\): pass a run from agent\.run\(…\), or several in a list\."):
        lab.panel("x")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r"^panel\(.*this run is listed twice\. Fork it, or remove one\."):
        lab.panel([run, run])


def test_panels_write_files_too(tmp_path: Path) -> None:
    one, other = ended(["Done."]), ended(["Done."], agent={"name": "other"})
    assert lab.panel(one).to_html(tmp_path / "one.html") == tmp_path / "one.html"
    page = lab.panel([one, other]).to_html()
    assert isinstance(page, str) and "<title>2 runs</title>" in page and page.count(f'"id":"{other.id}"') == 1


def test_the_same_bytes_twice_without_times() -> None:
    first, second = (page_html([family()], timing=False) for _ in range(2))
    assert first == second
    data = only(ended(["Done."], budget=Budget(timeout=60)), timing=False)
    assert data["id"] == "run-1" and data["totals"]["elapsed_s"] is None and data["steps"][0]["spans"] == []
    assert data["steps"][0]["started_s"] is None is data["steps"][0]["duration_s"] and "timeout" not in str(data["limits"])


def test_raw_responses_are_there_where_they_are_asked_for() -> None:
    run = ended(
        [
            dataclasses.replace(call("search", {"query": "a"}), raw={"body": "one"}),
            dataclasses.replace(say("Done."), raw={"body": "two"}),
        ]
    )

    def held(raw: bool | frozenset[int]) -> list[int]:
        return [step["n"] for step in only(run, raw=raw)["steps"] if 'data-section="raw"' in step["details"]]

    with pytest.raises(ConfigurationError, match=r"to_html\(raw=3\): pass True for all steps, or the numbers of steps in a list"):
        run.to_html(raw=3)  # type: ignore[call-overload]
    assert (held(False), held(True), held(frozenset({2}))) == ([], [1, 2], [2])
    assert '"two"' in text_of(only(run, raw=True)["steps"][1]["details"]) and len(run.to_html(raw=[1])) > len(run.to_html())


def test_steps_that_a_branch_shares_are_in_the_file_once() -> None:
    run = ended(lambda request, index: call("search", {"query": f"number {index} of them"}), budget=Budget(max_turns=30))
    alone = len(as_json(page_data([run], "")))
    for at in (30, 29, 28):
        run.fork(at=at)
    data = page_data([run], "")
    assert len(as_json(data)) < 1.3 * alone
    assert [len(one["steps"]) for one in data["runs"]] == [30, 30, 29, 28]
    assert data_of(run)["runs"][1]["steps"][:29] == data_of(run)["runs"][0]["steps"][:29]


def long_run(steps: int) -> Run:
    def script(request: Any, index: int) -> Any:
        return call("search", {"query": f"umbrella {index}"}, text="I look **further**.", cost="0.001", tokens=(90, 9))

    return ended(script, budget=Budget(max_turns=steps), stop=StepCountIs(9_999) | MaxCost(999))


@pytest.mark.filterwarnings("ignore:.* can never be met")  # on purpose
def test_five_hundred_steps() -> None:
    text = as_json(page_data([long_run(500)], ""))
    assert len(text.encode()) < 6_000 * 500 and len(json.loads(text)["runs"][0]["steps"]) == 500


@pytest.mark.filterwarnings("ignore:.* can never be met")  # on purpose
def test_the_work_and_the_size_grow_with_the_number_of_steps() -> None:
    short, long = long_run(100), long_run(200)
    small, large = (len(as_json(page_data([run], ""))) for run in (short, long))
    assert large < 2.02 * small
    few, many = (calls_in(lambda run=run: page_data([run], "")) for run in (short, long))  # type: ignore[misc]
    assert many < 2.1 * few


def test_a_run_offers_it_and_not_its_parts() -> None:
    run = ended(["Done."])
    assert "to_html" in dir(run) and not {"stepper", "worker", "control", "timeline"} & set(dir(run))
    assert run.timeline is run.stepper.timeline


# Typed answers --------------------------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Found:
    place: str
    notes: list[str]


@pytest.mark.parametrize("by", ["text", "tool"])
def test_a_typed_answer_is_a_table_of_its_fields(by: str) -> None:
    value = {"place": "<b>here</b><script>alert(1)</script>", "notes": ["a"]}
    good: Any = json.dumps(value) if by == "text" else call("final_answer", value)
    data = only(ended(['{"place": 3}', good], agent={"output": Found}))
    rejected, answered = data["steps"]
    assert 'class="agentlab-nudge"' in rejected["html"] and 'class="agentlab-code' in rejected["html"]
    assert [(mark["kind"], mark["step"]) for mark in data["marks"]] == [("retry", 1)]
    assert "<th>place</th><td>&lt;b&gt;here&lt;/b&gt;&lt;script&gt;" in answered["html"]
    assert data["end"]["output_html"] in answered["html"]
    assert "<script" not in answered["html"] and "<b>" not in answered["html"]

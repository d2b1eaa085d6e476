"""Two runs side by side: the first difference, and the differences in tokens, cost and end."""

from __future__ import annotations

import asyncio
import json
import pickle
import warnings
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import agentlab as lab
from agentlab import AgentlabWarning, Budget, errors
from agentlab.analysis.diff import _given, _rows, _Side
from agentlab.model.finish_reasons import FinishReason
from agentlab.model.messages import Message, ModelRequest, ToolCall
from agentlab.records.step import canonical
from agentlab.testing import Said, ScriptedProvider, call, say
from tests.measured_work import calls_in


def diff_rows(a: Any, b: Any) -> list[dict[str, Any]]:
    """The rows of `lab.diff` before they become a frame."""
    return list(_rows(_Side.of(a, "run_a"), _Side.of(b, "run_b")))


def look(key: str = "a", n: Any = None) -> str:
    """Look something up."""
    return f"value of {key}"


def fail() -> str:
    """Always fail."""
    raise ValueError("it is broken")


def finalize(answer: str = "") -> str:
    """Submit the answer."""
    return answer


TOOLS = [lab.tool(each) for each in (look, fail, finalize)]


def agent(script: Sequence[Said], **more: Any) -> lab.Agent:
    def respond(request: ModelRequest, number: int) -> Said:
        return script[number - 1] if number <= len(script) else say("the end", tokens=(3, 2), cost="0.001")

    return lab.Agent(ScriptedProvider(respond), tools=TOOLS, **more)


def go(work: Coroutine[Any, Any, Any]) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AgentlabWarning)  # unknown usage and prices are intended here
        return asyncio.run(work)


def run_of(script: Sequence[Said], prompt: str = "go", *, steps: int | None = None, **more: Any) -> lab.Run:
    """A run to its end, or of so many steps."""
    run = agent(script).run(prompt, **more)
    go(_take(run, steps))
    return run


async def _take(run: lab.Run, steps: int | None) -> None:
    while run.result is None and (steps is None or steps > 0):
        await run.step()
        steps = None if steps is None else steps - 1


def listed(frame: pd.DataFrame, column: str) -> list[Any]:
    return [None if pd.isna(value) else value for value in frame[column]]


LOOKS = [call("look", {"key": "a"}, cost="0.01"), call("look", {"key": "b"}, cost="0.02"), say("Done.", cost="0.005")]

# Against a naive computation -----------------------------------------------------------------------------------------------------


def naive(a: lab.Run, b: lab.Run, shared: int) -> list[dict[str, Any]]:
    """The rows by definition, for runs with one call per step whose first `shared` steps are the same ones."""

    def before(run: lab.Run, step: int) -> list[Any]:
        if step == 1:
            return [(m.role, m.text) for m in run.timeline.messages_of(0)]
        return [(m.role, m.text) for m in run.timeline.messages_of(step - 1) if m.role in ("user", "system")]

    def used(run: lab.Run, until: int) -> tuple[int | None, Decimal | None]:
        tokens: list[Any] = [step.calls[0].usage.total_tokens for step in run.history[:until]]
        costs: list[Any] = [step.calls[0].cost.usd for step in run.history[:until]]
        return None if None in tokens else sum(tokens), None if None in costs else sum(costs, Decimal(0))

    def limits(n: int) -> list[Any]:
        return [(run.history[n - 1].settings.budget, repr(run.history[n - 1].settings)) for run in (a, b)]

    def what(n: int) -> str:
        if n > len(a.history) or n > len(b.history):
            return "only in b" if n > len(a.history) else "only in a"
        left, right = a.history[n - 1], b.history[n - 1]
        one, other = left.calls[0].response, right.calls[0].response
        own = range(1, n + 1) if n == shared + 1 else range(n, n + 1) if n > shared else ()
        if any(before(a, m) != before(b, m) for m in own):
            return "prompt"
        if (one.text, one.signal.finish_reason, one.reasoning) != (other.text, other.signal.finish_reason, other.reasoning):
            return "answer"
        if [each.name for each in one.tool_calls] != [each.name for each in other.tool_calls]:
            return "tool calls"
        arguments = [[json.dumps(json.loads(each.arguments), sort_keys=True) for each in r.tool_calls] for r in (one, other)]
        if arguments[0] != arguments[1]:
            return "arguments"
        if [(r.content, r.error) for r in left.tool_results] != [(r.content, r.error) for r in right.tool_results]:
            return "tool results"
        ends = [None if run.result is None else run.result.stop_reason for run in (a, b)]
        if n == len(a.history) == len(b.history) and None not in ends and ends[0] != ends[1]:
            return "end"
        return "limits" if limits(n)[0] != limits(n)[1] and (n == 1 or limits(n) != limits(n - 1)) else ""

    rows = []
    for n in range(1, max(len(a.history), len(b.history)) + 1):
        (tokens_a, cost_a), (tokens_b, cost_b) = used(a, n), used(b, n)
        row: dict[str, Any] = {"step": n, "same": what(n) == "", "differs_in": what(n)}
        for letter, run in (("a", a), ("b", b)):
            step = run.history[n - 1] if n <= len(run.history) else None
            row[f"finish_reason_{letter}"] = step and step.calls[0].response.signal.finish_reason.value
            row[f"tools_{letter}"] = step and ", ".join(each.name for each in step.calls[0].response.tool_calls)
            row[f"tokens_{letter}"] = step and step.calls[0].usage.total_tokens
            cost = step and step.calls[0].cost.usd
            row[f"cost_usd_{letter}"] = None if cost is None else float(cost)
            last = step is not None and n == len(run.history) and run.result is not None
            row[f"stop_reason_{letter}"] = run.result.stop_reason.value if last and run.result is not None else None
        row["cumulative_tokens_difference"] = None if None in (tokens_a, tokens_b) else tokens_b - tokens_a  # type: ignore[operator]
        row["cumulative_cost_usd_difference"] = None if cost_a is None or cost_b is None else float(cost_b - cost_a)
        rows.append(row)
    return rows


USED = st.sampled_from([((10, 5), "0.01"), ((20, 5), "0.01"), ((10, 5), None), ((None, 5), None)])
ARGUMENTS = st.sampled_from(
    ['{"key": "a", "n": 1}', '{"n":1,"key":"a"}', '{"key": "a", "n": "1"}', '{"key": "b", "n": [1, null]}']
)


@st.composite
def answers(draw: st.DrawFn) -> Said:
    tokens, cost = draw(USED)
    more: dict[str, Any] = {"tokens": tokens, "cost": cost}
    kind = draw(st.sampled_from(["look", "look", "look", "fail", "both", "say"]))
    if kind == "say":
        return say(draw(st.sampled_from(["One.", "One. "])), **more)
    if kind == "both":
        calls = [ToolCall("c1", "look", draw(ARGUMENTS)), ToolCall("c2", "fail", "{}")]
        return say("Both.", finish=FinishReason.TOOL_CALLS, calls=calls, **more)
    made = call("look", draw(ARGUMENTS), **more) if kind == "look" else call("fail", {}, **more)
    return replace(made, reasoning=draw(st.sampled_from(["", "", "Hm."])))


scripts = st.lists(answers(), max_size=5)
options = st.fixed_dictionaries(
    {
        "prompt": st.sampled_from(["go", "go", "stop"]),
        "steps": st.sampled_from([None, None, 0, 1, 3]),
        "budget": st.sampled_from([Budget(max_turns=4), Budget(max_turns=4), Budget(max_turns=2)]),
        "terminating": st.sampled_from([None, None, ["finalize"]]),
    }
)


@settings(max_examples=150, deadline=None)
@given(scripts, scripts, options, options, st.booleans())
def test_rows_of_two_independent_runs(one: list[Said], other: list[Said], first: Any, second: Any, alike: bool) -> None:
    a, b = run_of(one, **first), run_of([*one[:2], *other] if alike else other, **second)

    assert diff_rows(a, b) == naive(a, b, 0)


@settings(max_examples=150, deadline=None)
@given(scripts, scripts, options, st.data())
def test_rows_of_a_run_and_its_branches(one: list[Said], other: list[Said], first: Any, data: st.DataObject) -> None:
    parent = run_of(one, **first)

    def branch_of(run: lab.Run) -> tuple[lab.Run, int]:
        at = data.draw(st.integers(0, len(run.history)))
        results = run.history[at - 1].tool_results if at else ()
        more: list[dict[str, Any]] = [{}, {"message": "More."}, {"prompt": "other"}, {"budget": Budget(max_turns=6)}]
        more += [{"tool_results": {results[0].call_id: "edited"}}] if results else []
        chosen, then = data.draw(st.sampled_from(more)), agent(data.draw(st.sampled_from([one, [*one[:at], *other], other])))
        try:
            branch = run.fork(at=at, agent=then, **chosen)
        except errors.ConfigurationError:  # the model had finished
            branch = run.fork(at=at, agent=then, message="More.")
        go(_take(branch, data.draw(st.sampled_from([None, 0, 1]))))
        return branch, at

    (left, at), (right, also) = branch_of(parent), branch_of(parent)
    below, from_left = branch_of(left)

    assert diff_rows(parent, left) == naive(parent, left, at)
    assert diff_rows(left, right) == naive(left, right, min(at, also))
    assert diff_rows(below, parent) == naive(below, parent, min(at, from_left))
    assert diff_rows(below, right) == naive(below, right, min(at, from_left, also))


# What counts ---------------------------------------------------------------------------------------------------------------------


def changed(script: Sequence[Said], place: int, answer: Said) -> list[Said]:
    return [*script[:place], answer, *script[place + 1 :]]


@pytest.mark.parametrize(
    ("answer", "what"),
    [
        pytest.param(call("look", '{"key" : "b"}', id="another id"), "", id="spaces, call id"),
        pytest.param(replace(LOOKS[1], response_id="r2", model="other"), "", id="response id and model"),
        pytest.param(replace(call("look", {"key": "b"}), text="Hm."), "answer", id="text"),
        pytest.param(replace(call("look", {"key": "b"}), reasoning="Hm."), "answer", id="reasoning"),
        pytest.param(replace(call("look", {"key": "b"}), refusal="No."), "answer", id="refusal"),
        pytest.param(call("fail"), "tool calls", id="another tool"),
        pytest.param(call("look", {"key": "c"}), "arguments", id="arguments"),
    ],
)
def test_the_first_difference_is_named(answer: Said, what: str) -> None:
    found = lab.diff(run_of(LOOKS), run_of(changed(LOOKS, 1, answer)))

    assert listed(found, "differs_in") == ["", what, ""]
    assert listed(found, "same") == [True, not what, True]
    assert (found.first_difference, found.what) == ((2, what) if what else (None, ""))


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ('{"a": 1, "b": [1, 2]}', '{"b":[1,2],"a":1.0}', True),
        ('{"a": 0.1}', '{"a": 1e-1}', True),
        ('{"a": 1}', '{"a": true}', False),
        ('{"a": 0}', '{"a": false}', False),
        ('{"a": 0}', '{"a": null}', False),
        ('{"a": 1}', '{"a": "1"}', False),
        ('{"a": [1, 2]}', '{"a": [2, 1]}', False),
        ('{"a": [true]}', '{"a": [1]}', False),
        ('{"a": {}}', '{"a": []}', False),
        ('{"a": 9007199254740993}', '{"a": 9007199254740992}', False),
        ('{"a": 0.10000000000000000001}', '{"a": 0.1}', False),
        ('{"a": NaN}', '{"a": NaN}', True),
        ('{"a": NaN}', '{"a":NaN}', False),
        ('{"a": ', '{"a":', False),
        ("", "{}", False),
        ("[" * 100_000, "[" * 100_001, False),
        ("1" * 5_000, "1" * 5_001, False),
        ("1e999999999999999999999", "2", False),
        ('{"a": 1e999999999}', '{"a": 1e999999998}', False),
        ('{"a": {"c": 1, "b": [1.50]}}', '{"a": {"b": [1.5], "c": 1}}', True),
        ('{"a": 1, "a": 2}', '{"a": 2}', True),
        ('{"a": 0}', '{"a": -0.0}', True),
        ('{"a": "Decimal(\'1\')"}', '{"a": 1}', False),
        ("1" * 30, "1" * 29 + "2", False),
        ("{", "{", True),
    ],
)
def test_arguments_are_compared_as_json(one: str, other: str, same: bool) -> None:
    assert (canonical(one) == canonical(other)) is same


def test_arguments_that_a_middleware_changed_count() -> None:
    async def other_key(tool_call: ToolCall, run_tool: Any) -> Any:
        return await run_tool(replace(tool_call, arguments='{"key": "z"}'))

    changing = agent(LOOKS, tool_middleware=[other_key]).run("go")
    go(_take(changing, None))

    assert lab.diff(run_of(LOOKS), changing).what == "arguments"


def test_instructions_count_as_prompt_and_are_unknown_for_results() -> None:
    a, b = agent(LOOKS, instructions="Be short.").run("go"), agent(LOOKS, instructions="Be long.").run("go")
    for run in (a, b):
        go(_take(run, None))

    assert listed(lab.diff(a, b), "differs_in") == ["prompt", "", ""]
    assert listed(lab.diff(a, b.result), "differs_in") == ["", "", ""]


def test_earlier_messages_count_as_prompt() -> None:
    def after(*messages: Message) -> lab.Run:
        run = agent(LOOKS).run("go", messages=list(messages))
        go(_take(run, None))
        return run

    hello, hi = Message("user", "Hello."), Message("assistant", "Hi!")
    assert lab.diff(after(hello, hi), after(hello, hi)).what == ""
    assert listed(lab.diff(after(hello, hi), after(hello, Message("assistant", "Yes?"))), "differs_in") == ["prompt", "", ""]
    assert listed(lab.diff(after(hello, hi), after()), "differs_in") == ["prompt", "", ""]


def test_limits_that_were_edited_count_from_the_step_that_they_applied_to() -> None:
    a, b = run_of(LOOKS), agent(LOOKS).run("go")
    go(_take(b, 1))
    b.limits.max_cost = 1
    go(_take(b, None))

    assert listed(lab.diff(a, b), "differs_in") == ["", "limits", ""]


def test_content_comes_before_limits_which_count_once() -> None:
    a, tight = run_of(LOOKS), run_of(LOOKS, budget=Budget(max_turns=4, max_cost="0.5"))
    found = lab.diff(a, tight)
    assert listed(found, "differs_in") == ["limits", "", ""]
    assert found.what == "limits"
    assert found.summary.startswith("First difference: step 1, limits: max_turns 20 → 4, max_cost None → $0.50. Tokens ")

    other = run_of(changed(LOOKS, 0, call("look", {"key": "c"})), budget=Budget(max_turns=4))
    assert listed(lab.diff(a, other), "differs_in") == ["arguments", "", ""]
    ends = lab.diff(run_of(LOOKS, budget=Budget(max_turns=3)), run_of(LOOKS[:2], budget=Budget(max_turns=2)))
    assert listed(ends, "differs_in") == ["limits", "", "only in a"]

    branch = a.fork(at=1, budget=Budget(max_turns=4))
    go(_take(branch, 1))
    branch.limits.max_turns = 5
    go(_take(branch, None))
    assert listed(lab.diff(a, branch), "differs_in") == ["", "limits", "limits"]  # they differ in another way from then on


def test_functions_that_are_compared_by_name_are_not_named_as_changed() -> None:
    one = run_of(LOOKS, stop=lambda history: False)
    other = run_of(LOOKS, stop=lambda history: False, budget=Budget(max_turns=9))
    assert "step 1, limits: max_turns 20 → 9. Tokens" in lab.diff(one, other).summary


def test_the_state_of_a_run_that_has_not_ended(tmp_path: Path) -> None:
    waits = agent(LOOKS).run("go", approve=["look"])
    assert go(_result_of(waits)).stop_reason is lab.StopReason.AWAITING_APPROVAL
    cut = agent(LOOKS).run("go")
    with lab.Store(tmp_path / "runs.db") as store:
        store.keep(cut)
        go(_take(cut, 1))
    with lab.Store(tmp_path / "runs.db") as store:
        loaded = store.load(cut.id)
        runs = [run_of(LOOKS), agent(LOOKS).run("go"), waits, cut, loaded]
        ends = [lab.diff(runs[0], run).summary.rpartition("end ")[2] for run in runs]
    words = ["not started.", "waiting for approval.", "not ended.", "not ended."]
    assert ends == ["completed, both.", *(f"completed → {one}" for one in words)]
    paused = run_of(LOOKS, steps=1)
    paused.pause()
    assert lab.diff(runs[0], paused).summary.endswith("end completed → paused.")


async def _result_of(run: lab.Run) -> lab.RunResult:
    return await run


def test_the_same_steps_with_another_end() -> None:
    a, b = run_of(LOOKS, steps=2), run_of(LOOKS, steps=2)
    assert lab.diff(a, b).what == ""

    a.stop("enough")
    assert lab.diff(a, b).what == ""  # the other one may still end in the same way
    assert lab.diff(a, b).ends == ("explicit_stop", None)
    assert "end explicit_stop → not ended" in lab.diff(a, b).summary

    b.cancel()
    found = lab.diff(a, b)
    assert listed(found, "differs_in") == ["", "end"]
    assert (listed(found, "stop_reason_a"), listed(found, "stop_reason_b")) == ([None, "explicit_stop"], [None, "cancelled"])


# Branches ------------------------------------------------------------------------------------------------------------------------


def test_an_edited_tool_result_is_the_only_difference_of_a_shared_step() -> None:
    run = run_of(LOOKS)
    branch = run.fork(at=2, tool_results={"call_look": "edited"}, agent=agent([say("Else.")]))
    go(_take(branch, None))

    assert listed(lab.diff(run, branch), "differs_in") == ["", "tool results", "answer"]


def test_a_new_prompt_counts_for_the_first_step_that_the_branch_takes() -> None:
    run = run_of(LOOKS)
    branch = run.fork(at=1, prompt="Something else.")
    assert lab.diff(run, branch).what == "only in a"

    go(_take(branch, None))
    assert listed(lab.diff(run, branch), "differs_in") == ["", "prompt", ""]
    assert listed(lab.diff(branch, run), "differs_in") == ["", "prompt", ""]
    assert listed(lab.diff(branch.result, run.result), "differs_in") == ["", "prompt", ""]


def test_a_branch_that_goes_on_where_a_limit_ended_its_parent() -> None:
    run = run_of(LOOKS, budget=Budget(max_turns=2))
    branch = run.apply()
    go(_take(branch, None))

    found = lab.diff(run, branch)
    assert listed(found, "differs_in") == ["", "", "only in b"]
    assert found.ends[0] == "turn_limit"
    assert listed(found, "stop_reason_a") == [None, "turn_limit", None]


@pytest.mark.parametrize("continued", [True, False], ids=["continued", "paused and resumed"])
def test_messages_are_assigned_to_the_step_that_follows_them(continued: bool) -> None:
    """A result has no marks of its steps in its conversation; several calls of a step may add one message or several."""
    finish = FinishReason.MAX_TOKENS if continued else FinishReason.PAUSED
    script = [
        say("The first half,", finish=finish),
        call("look", {"key": "a"}),
        call("look", {"key": "b"}),
        say("Hm."),
        say("Hm."),
    ]
    run = run_of(script, terminating=["finalize"])
    branch = run.fork(at=1, message="More.", agent=agent([*script[2:3], say("One more."), say("Hm.")]))
    go(_take(branch, None))

    for one in (run, branch):
        assert one.result is not None
        steps = one.history[:]
        expected = [
            [(m.role, m.text) for m in one.timeline.messages_of(n) if n == 0 or m.role in ("user", "system")]
            for n in range(len(steps) + 1)
        ]
        assert [[each[:2] for each in some] for some in _given(one.result.messages, steps)] == expected
        assert len(steps[0].calls) == 2
    assert listed(lab.diff(run.result, branch.result), "differs_in")[:2] == ["", "prompt"]


# Tokens and cost -----------------------------------------------------------------------------------------------------------------


def test_differences_are_cumulative_and_go_on_after_the_end_of_one_run() -> None:
    found = lab.diff(run_of(LOOKS[2:]), run_of(LOOKS))

    assert listed(found, "differs_in") == ["answer", "only in b", "only in b"]
    assert listed(found, "cumulative_tokens_difference") == [0, 15, 30]
    assert listed(found, "cumulative_cost_usd_difference") == [0.005, 0.025, 0.03]
    assert (found.tokens_difference, found.cost_difference_usd) == (30, 0.03)
    assert lab.diff(run_of(LOOKS), run_of(LOOKS[2:])).cost_difference_usd == -0.03


def test_unknown_usage_stays_unknown() -> None:
    unknown = changed(LOOKS, 1, call("look", {"key": "b"}, tokens=(None, 5)))
    found = lab.diff(run_of(LOOKS), run_of(unknown))

    assert found.what == ""
    assert listed(found, "tokens_b") == [15, None, 15]
    assert listed(found, "cumulative_tokens_difference") == [0, None, None]
    assert listed(found, "cumulative_cost_usd_difference") == [0.0, None, None]
    assert found.tokens_difference is found.cost_difference_usd is None
    assert "Tokens unknown (45 → unknown), cost unknown" in found.summary


def test_sub_agents_count() -> None:
    def with_scout(tokens: tuple[int, int]) -> lab.Run:
        scout = lab.Agent(ScriptedProvider([say("Sunny.", tokens=tokens, cost="0.02")]))
        run = lab.Agent(
            ScriptedProvider([call("scout", {"task": "Go."}, cost="0.01"), say("Done.", cost="0.01")]),
            tools=[scout.as_tool("scout")],
        ).run("go")
        go(_take(run, None))
        return run

    found = lab.diff(with_scout((10, 5)), with_scout((100, 5)))
    assert listed(found, "tokens_a") == [30, 15]
    assert listed(found, "cumulative_tokens_difference") == [90, 90]
    assert listed(found, "cost_usd_a") == [0.03, 0.01]


def test_a_cost_that_is_no_number_is_unknown() -> None:
    odd = run_of(changed(LOOKS, 0, replace(LOOKS[0], cost_usd=Decimal("NaN"))))

    rows = diff_rows(run_of(LOOKS), odd)
    assert [row["cost_usd_b"] for row in rows] == [None, 0.02, 0.005]
    assert json.loads(json.dumps(rows, allow_nan=False)) == rows


# Kinds of runs -------------------------------------------------------------------------------------------------------------------


def test_runs_results_and_stored_runs_are_the_same(tmp_path: Path) -> None:
    def twice(history: lab.RunHistory) -> bool:
        return history.tool_count("look") >= 2

    run = run_of(LOOKS, stop=twice)
    branch, raised = run.fork(at=1, prompt="Something else."), run.fork(at=1, budget=Budget(max_turns=9))
    go(_take(branch, None))
    go(_take(raised, None))
    with lab.Store(tmp_path / "runs.db") as store:
        for one in (run, branch, raised):
            store.keep(one)
        stored, loaded = store.load(run.id), store.load(branch.id)
        rows = diff_rows(run, branch)
        assert [row["differs_in"] for row in rows] == ["", "prompt"]
        assert listed(lab.diff(stored, store.load(raised.id)), "differs_in") == ["", "limits"]
        for one in (run, run.result, stored):
            assert lab.diff(run, one).what == ""  # functions are compared by name
            for other in (branch, branch.result, loaded):
                assert diff_rows(one, other) == rows


def test_runs_without_steps() -> None:
    empty, ended = agent(LOOKS).run("go"), run_of(LOOKS)

    assert listed(lab.diff(empty, ended), "differs_in") == ["only in b"] * 3
    assert listed(lab.diff(ended, empty), "differs_in") == ["only in a"] * 3
    nothing = lab.diff(empty, empty)
    assert (len(nothing), list(nothing.columns)) == (0, list(lab.diff(ended, ended).columns))
    assert nothing.summary == "No difference in 0 steps. Tokens +0 (0 → 0), cost +$0, end not started, both."


def test_a_run_that_is_still_running() -> None:
    found = lab.diff(run_of(LOOKS), run_of(LOOKS, steps=2))

    assert listed(found, "differs_in") == ["", "", "only in a"]
    assert listed(found, "stop_reason_b") == [None, None, None]
    assert found.ends == ("completed", None)


@pytest.mark.parametrize("place", ["run_a", "run_b"])
@pytest.mark.parametrize(
    ("given_as", "kind"), [("run-1", "str"), (None, "NoneType"), ([], "list"), (lab.Run, "type"), (5, "int")]
)
def test_anything_but_one_run_is_an_error(place: str, given_as: Any, kind: str) -> None:
    both = {"run_a": run_of(LOOKS), "run_b": run_of(LOOKS), place: given_as}

    with pytest.raises(errors.ConfigurationError) as raised:
        lab.diff(**both)
    assert f"lab.diff({place}=" in str(raised.value)
    assert f"{kind} is not one run. Pass a run, its result, or store.load(run_id)" in str(raised.value)


def test_several_runs_are_an_error_that_says_to_choose_one(tmp_path: Path) -> None:
    run = run_of(LOOKS)
    with lab.Store(tmp_path / "runs.db") as store:
        for several in ([run, run], store, lab.frame(run)):
            with pytest.raises(errors.ConfigurationError, match="of several runs, one"):
                lab.diff(run, several)


# The frame -----------------------------------------------------------------------------------------------------------------------


def test_the_display_begins_with_the_summary() -> None:
    found = lab.diff(run_of(LOOKS), run_of(changed(LOOKS, 1, call("look", {"key": "<c>"}, tokens=(10_000, 5)))))

    assert found.summary == (
        "First difference: step 2, arguments. Tokens +9,990 (45 → 10,035), cost unknown, end completed, both."
    )
    head, names, first, second, _, more = repr(found).splitlines()
    assert head == found.summary
    assert names.split() == ["step", "same", "differs_in", "tokens_a", "tokens_b", "finish_reason_a", "finish_reason_b"]
    assert first.split()[2:] == ["True", "15", "15", "tool_calls", "tool_calls"] and second.split()[3] == "arguments"
    assert more == "… and 8 columns more: .columns"
    assert "First difference: step 2, arguments." in str(found._repr_html_())
    assert pickle.loads(pickle.dumps(found)).summary == found.summary


def test_a_selection_is_a_plain_frame() -> None:
    found = lab.diff(run_of(LOOKS), run_of(LOOKS))

    for part in (found[["step"]], found[found["same"]], found.head(1), found.copy()):
        assert type(part) is pd.DataFrame
    del found["same"]
    assert "No difference in 3 steps" in repr(found)
    assert found.dtypes["tokens_a"] == "Int64"


def test_rows_are_those_of_the_frame() -> None:
    a, b = run_of(LOOKS), run_of(LOOKS[1:])
    found, rows = lab.diff(a, b), diff_rows(a, b)

    assert list(rows[0]) == list(found.columns)
    assert [{name: listed(found, name)[n] for name in found.columns} for n in range(len(rows))] == rows
    assert json.loads(json.dumps(rows)) == rows


def test_the_work_grows_in_proportion_to_the_steps() -> None:
    def work(steps: int) -> int:
        runs = [run_of([call("look", {"key": str(n)}) for n in range(steps)], budget=Budget(max_turns=steps)) for _ in range(2)]
        return calls_in(lambda: lab.diff(*runs))

    work(1)  # imports
    assert work(200) < 4.5 * work(50)


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        ({"model": "m1"}, {"model": "m2"}, "a: m1, b: m2. First"),
        ({"model": "m1", "agent": "brief"}, {"model": "m1", "agent": "thorough"}, "a: brief, b: thorough. First"),
        ({"model": "m1", "name": "one"}, {"model": "m1", "name": "two"}, "a: one, b: two. First"),
        ({"model": "m1"}, {"model": "m1"}, "First"),
    ],
    ids=["models", "named agents", "providers", "nothing"],
)
def test_the_display_says_which_run_is_which_if_they_differ(one: dict[str, str], other: dict[str, str], said: str) -> None:
    runs = []
    for place, names in enumerate((one, other)):
        model = ScriptedProvider([say(f"Answer {place}.")], name=names.get("name", "p"), model=names["model"])
        runs.append(lab.Agent(model, name=names.get("agent")).run("go"))
        go(runs[-1].step())
    found = lab.diff(*runs)

    assert repr(found).startswith(said)
    assert f"<b>{said}" in str(found._repr_html_())

"""Scorers of answers, tool calls and programs, and models as judges, on scripted runs and real processes."""

from __future__ import annotations

import asyncio
import pickle
import random
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import agentlab as lab
from agentlab.errors import ConfigurationError
from agentlab.experiments.identity import code_of
from agentlab.experiments.scorers import base
from agentlab.experiments.scorers.answers import f1_of, numbers_in
from agentlab.experiments.scorers.programs import program_in
from agentlab.testing import ScriptedProvider, call, say
from agentlab.tools import tool

from .parts import within


def run_of(*script: Any, tools: Any = (), **more: Any) -> Any:
    async def taken() -> Any:
        return await lab.Agent(ScriptedProvider([*script]), tools=tools, **more).run("?")

    return asyncio.run(taken())


def scored(scorer: Any, text: str, target: Any = None, **more: Any) -> Any:
    found = base.ask(scorer, run_of(say(text)), lab.Task("?", target=target, id="t", **more))
    return asyncio.run(found) if asyncio.iscoroutine(found) else found


S = lab.scorers
ANSWERS: list[tuple[Any, str, Any, object]] = [
    (S.Exact(), " Paris\n", "Paris", True),
    (S.Exact(), "paris", "Paris", False),
    (S.Exact(), "B", ["A", "B"], True),
    (S.Exact(), "42", 42, True),
    (S.Normalised(), "The  cafe\u0301!", "caf\u00e9", True),
    (S.Normalised(), "\uff30aris.", ["rome", "PARIS"], True),
    (S.Normalised(), "a", "b", False),
    (S.Includes(), "It is PARIS, I think", "paris", True),
    (S.Includes(ignore_case=False), "It is PARIS", "paris", False),
    (S.Includes(), "Paris or Rome", ["Oslo", "Rome"], True),
    (S.Includes(all=True), "Paris or Rome", ["Oslo", "Rome"], False),
    (S.Matches(r"\d{4}"), "in 1997", None, True),
    (S.Matches(r"\d{4}"), "in 97", None, False),
    (S.Matches(r"ANSWER: (\w+)"), "ANSWER: no. ANSWER: yes", "yes", True),
    (S.Matches(r"answer: (\w+)", ignore_case=True), "ANSWER: Yes", "yes", True),
    (S.Numeric(), "It is 1,234.50 EUR", 1234.5, True),
    (S.Numeric(), "3,14", 3.14, True),
    (S.Numeric(), "It is 12,5 degrees", 12.5, True),
    (S.Numeric(), "1,2,3", 3, True),
    (S.Numeric(), "12,34,567.5", 1234567.5, True),
    (S.Numeric(), "1e999999999999", 1, False),
    (S.Numeric(), "1,234", 1234, True),
    (S.Numeric(), "10\u202f000 km", 10000, True),
    (S.Numeric(), "1'000'000", "1,000,000", True),
    (S.Numeric(), "\u22125 degrees", -5, True),
    (S.Numeric(), "6.02e23", 6.02e23, True),
    (S.Numeric(), "It is 12.", 12, True),
    (S.Numeric(), "first 1, then 2", 2, True),
    (S.Numeric(which="first"), "first 1, then 2", 1, True),
    (S.Numeric(which="only"), "first 1, then 2", 2, False),
    (S.Numeric(which="only"), "2, so 2.0", 2, True),
    (S.Numeric(0.01), "3.15", 3.14, True),
    (S.Numeric(0.009), "3.15", 3.14, False),
    (S.Numeric(relative=0.1), "109", 100, True),
    (S.Numeric(), "GPT-4 says 7", 7, True),
    (S.Numeric(), "none", 7, False),
    (S.JsonEqual(), 'Here: ```json\n{"b": [1, 2.0], "a": "x"}\n```', {"a": "x", "b": [1, 2]}, True),
    (S.JsonEqual(), 'so {"a": 1} it is', '{"a": 1}', True),
    (S.JsonEqual(), '{"a": true}', {"a": 1}, False),
    (S.JsonEqual(), '{"a": 1, "b": 2}', {"a": 1}, False),
    (S.JsonEqual(subset=True), '{"a": 1, "b": 2}', {"a": 1}, True),
    (S.JsonEqual(), "[2, 1]", [1, 2], False),
    (S.JsonEqual(any_order=True), "[2, 1]", [1, 2], True),
    (S.JsonEqual(0.01), '{"a": 0.999}', {"a": 1}, True),
    (S.JsonEqual(), "no", {"a": 1}, False),
    (S.Choice(["red", "blue"]), "B", "B", True),
    (S.Choice(["red", "blue"]), "(b)", "blue", True),
    (S.Choice(["red", "blue"]), "A) red. Not B", "red", True),
    (S.Choice(["red", "blue"]), "The answer is **B**, not A", "B", True),
    (S.Choice(["red", "blue"]), "Answer: A. On reflection: ANSWER: B", "blue", True),
    (S.Choice(["red", "blue"]), "It is blue.", "B", True),
    (S.Choice(["red", "blue"]), "red or blue", "B", False),
    (S.Choice(["York", "New York"]), "New York", "New York", True),
    (S.Choice(["red", "blue"]), "green", "B", False),
    (S.F1(), "the Paris region", "Paris", pytest.approx(2 / 3)),
    (S.F1(), "x", ["y", "x z"], pytest.approx(2 / 3)),
    (S.F1(), "x", "y", 0.0),
]


@pytest.mark.parametrize(("scorer", "text", "target", "value"), ANSWERS, ids=[f"{one!r}-{text!r}" for one, text, *_ in ANSWERS])
def test_answers_are_compared_with_targets(scorer: Any, text: str, target: Any, value: object) -> None:
    assert scored(scorer, text, target).value == value


def test_a_hyphen_between_numbers_is_no_sign() -> None:
    assert numbers_in("pages 3-4, -5, x2") == [3, 4, -5]


def test_a_long_answer_takes_no_longer_than_its_length() -> None:
    """Each of these would take minutes if every beginning were read to the end."""
    assert numbers_in("1," * 100_000) == [1] * 100_000
    assert scored(S.JsonEqual(), "[1," * 20_000, [1]).why == "no JSON"
    assert scored(S.JsonEqual(), "[" * 100_000, [1]).why == "no JSON"
    assert scored(S.JsonEqual(), "```" + "\n" * 100_000, [1]).why == "no JSON"
    assert program_in("```a " * 50_000) == "```a " * 50_000


def test_reasons_name_what_was_read() -> None:
    assert scored(S.Numeric(), "about 12 %", 13).why == "read 12"
    assert scored(S.JsonEqual(), '{"a": {"b": 1}}', {"a": {"b": 2}}).why == "a.b is '1'"
    assert scored(S.Includes(), "x", "Paris").why == "without 'Paris'"
    assert scored(S.Choice(["red", "blue"]), "red, blue", "A").why == "A and B"


def test_choices_of_the_task() -> None:
    assert scored(S.Choice(), "B", "B", metadata={"choices": ["x", "y"]}).value is True
    with pytest.raises(ConfigurationError, match="the task 't' has no choices"):
        scored(S.Choice(), "B", "B")
    with pytest.raises(ConfigurationError, match=r"target 'C' of the task 't' is none of \['x', 'y'\]"):
        scored(S.Choice(["x", "y"]), "B", "C")


@pytest.mark.parametrize("seed", range(20))
def test_f1_equals_precision_and_recall_by_hand(seed: int) -> None:
    chance = random.Random(seed)
    found, target = ([chance.choice("abc") for _ in range(chance.randint(1, 6))] for _ in range(2))
    hits = sum(min(count, target.count(word)) for word, count in Counter(found).items())
    precision, recall = hits / len(found), hits / len(target)
    assert f1_of(found, target) == pytest.approx(2 * precision * recall / (precision + recall) if hits else 0)


@pytest.mark.parametrize("name", ["Exact", "Normalised", "Includes", "Numeric", "JsonEqual", "F1"])
def test_a_missing_target_is_an_error_before_anything_runs(name: str) -> None:
    scorer = getattr(lab.scorers, name)()
    with pytest.raises(ConfigurationError, match="compares with a target, and the task 't' has none"):
        scored(scorer, "x")
    agent = lab.Agent(ScriptedProvider([say("x")]))
    with pytest.raises(ConfigurationError, match="compares with a target, but 1 of 2 tasks has none: 'p2'"):
        lab.Experiment([agent], [{"prompt": "a", "target": "x"}, "b"], score=scorer)


def graded(score: Any) -> lab.Experiment:
    return lab.Experiment([lab.Agent(ScriptedProvider([say("x")]))], [{"prompt": "a", "target": "x"}], score=score)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: S.Numeric(-1), "tolerance=-1"),
        (lambda: S.Numeric(which="best"), "choose last, first or only"),
        (lambda: S.Matches("("), "missing \\)"),
        (lambda: S.ToolUse("search"), r"pass a list, such as ToolUse\(\['search'\]\)"),
        (lambda: S.Labels("no-such.jsonl"), r"There is no file 'no-such.jsonl': lab.label\(results, path\) writes it"),
        (lambda: S.ToolUse(["a"], order="all"), "choose one of any, in_order, exact"),
        (lambda: S.Judge("openai:m", " ", budget=lab.Budget(max_calls=1)), "say in words"),
        (lambda: S.Judge("openai:m", "good", budget=None), "a judge needs a budget"),  # type: ignore[arg-type]
        (lambda: S.Pairwise("openai:m", "good", budget=None), "a judge needs a budget"),  # type: ignore[arg-type]
        (lambda: S.Judge("openai:m", "good"), "a judge needs a budget"),
        (lambda: S.Judge("openai:m", "good", budget=lab.Budget(max_calls=1), grades={"x": 1}), "at least two"),
        (lambda: graded(lambda: 1), "score: <lambda> is called with the result, .*: too many positional arguments"),
        (
            lambda: graded([S.Exact(), lambda result, task, more: 1]),
            "score: <lambda> is called .*: missing a required argument: 'more'",
        ),
        (lambda: graded({"by key": lambda result, *, key: 1}), "score: by key is called .*: missing a required argument: 'key'"),
    ],
)
def test_invalid_scorers_are_refused(make: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        make()


@dataclass
class Trip:
    """A trip."""

    city: str
    km: float


def test_a_typed_answer_is_compared_as_json() -> None:
    result = run_of(call("final_answer", {"city": "Graz", "km": 200.0}), output=Trip)
    assert result.output == Trip("Graz", 200.0)
    assert S.JsonEqual()(result, lab.Task("?", target={"km": 200, "city": "Graz"})).value is True


# Calls ---------------------------------------------------------------------------------------------------------------------------


@tool(inline=True)
def look(q: str) -> str:
    """Look it up."""
    return q


@tool(inline=True)
def keep(q: str, n: int = 1) -> str:
    """Keep it."""
    return q


@pytest.mark.parametrize(
    ("expected", "order", "right", "share"),
    [
        (["look"], "any", True, 1),
        (["keep", "look"], "any", True, 1),
        (["keep", "look"], "in_order", True, 1),
        (["keep", "keep"], "in_order", False, 0.5),
        (["look", "keep", "look"], "exact", True, 1),
        (["look", "keep"], "exact", False, 1),
        (["look", "look", "look"], "any", False, 2 / 3),
        ([{"tool": "look", "arguments": {"q": "b"}}], "any", True, 1),
        ([{"tool": "look", "arguments": {"q": "c"}}], "any", False, 0),
        ([{"tool": "keep", "arguments": {"n": 2}}], "any", True, 1),
        ([], "any", True, 1),
        ([], "exact", False, 1),
    ],
)
def test_tool_calls(expected: Any, order: str, right: bool, share: float) -> None:
    calls = [call("look", {"q": "a"}, id="1"), call("keep", {"q": "x", "n": 2}, id="2"), call("look", {"q": "b"}, id="3")]
    refused = call("keep", {"n": "no"}, id="4")
    result = run_of(*calls, refused, say("end"), tools=[look, keep])
    found = S.ToolUse(expected, order)(result, lab.Task("?"))
    assert (found.value, found.parts["share"]) == (right, pytest.approx(share))
    if expected:
        assert S.ToolUse(order=order)(result, lab.Task("?", target=expected)) == found


# Programs ------------------------------------------------------------------------------------------------------------------------

TESTS = "assert add(1, 2) == 3"
GOOD = "def add(a, b):\n    return a + b"


@pytest.mark.parametrize(
    ("answer", "value", "why"),
    [
        (GOOD, True, ""),
        (f"First:\n```\nno\n```\nNow:\n```python\n{GOOD}\n```\nDone.", True, ""),
        ("def add(a, b):\n    return a - b", False, "AssertionError"),
        ("no python", False, "SyntaxError: invalid syntax"),
        (GOOD + "\nimport sys; sys.exit(0)", False, "ended before the tests, with exit code 0"),
        (GOOD + "\nimport os; os._exit(0)", False, "ended before the tests, with exit code 0"),
        (GOOD + "\nopen('passed', 'w').write('yes'); import os; os._exit(0)", False, "ended before the tests"),
        ("while True: pass", False, "still running after 1 s"),
        ("import time\nwhile True: time.sleep(1)", False, "still running after 1 s"),
        ("x = bytearray(2**31)", False, "MemoryError"),
        ("open('big', 'wb').write(b'0' * 50_000_000)", False, ""),
        ("import os\nassert 'AGENTLAB_TEST_KEY' not in os.environ\n" + GOOD, True, ""),
        ("for _ in range(20_000): print('x' * 10_000)\n" + GOOD, True, ""),
        ("import os, time\nfor _ in range(3):\n    os.fork()\ntime.sleep(60)", False, "still running after 1 s"),
    ],
)
def test_programs(monkeypatch: pytest.MonkeyPatch, answer: str, value: bool, why: str) -> None:
    monkeypatch.setenv("AGENTLAB_TEST_KEY", "secret")
    begun = time.monotonic()
    found = scored(S.Code(timeout_s=1 if "running" in why else 60), answer, TESTS)
    assert found.value is value, found
    assert why in found.why
    assert "sleep(60)" not in answer or time.monotonic() - begun < 30  # its children end too


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="reads the states of processes")
def test_a_process_that_leaves_its_group_is_killed_too(tmp_path: Path) -> None:
    child = tmp_path / "child"
    program = f"""
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open({str(child)!r}, "w").write(str(os.getpid()))
        time.sleep(300)
    os._exit(0)
while not os.path.exists({str(child)!r}) or not open({str(child)!r}).read():
    time.sleep(0.01)
"""
    assert scored(S.Code(timeout_s=60), program, "pass").value is True
    status = Path("/proc", child.read_text(), "stat")

    def is_gone() -> bool:
        return not status.exists() or status.read_text().rpartition(")")[2].split()[0] == "Z"

    within(is_gone)


def test_the_tests_may_be_given_or_in_the_metadata() -> None:
    assert scored(S.Code(TESTS), GOOD).value is True
    assert scored(S.Code(), GOOD, "no tests", metadata={"tests": TESTS}).value is True
    with pytest.raises(ConfigurationError, match="'t' has no tests"):
        scored(S.Code(), GOOD)


# Judges --------------------------------------------------------------------------------------------------------------------------

BUDGET = lab.Budget(max_calls=4)


def judging(answer: Any) -> ScriptedProvider:
    """A judge whose verdict is that of a function of what it reads."""
    return ScriptedProvider(lambda request, index: call("final_answer", answer(request.messages[-1].text), cost="0.01"))


def test_a_judge_grades_with_a_reason_and_its_cost_counts() -> None:
    read = []

    def verdict(text: str) -> dict[str, str]:
        read.append(text)
        return {"reason": "It says so.", "grade": "correct" if "Paris" in text.rsplit("Answer:", maxsplit=1)[-1] else "wrong"}

    judge = S.Judge(judging(verdict), "The capital is named.", BUDGET)
    agent = lab.Agent(ScriptedProvider(lambda request, index: say("Paris" if "1" in request.messages[-1].text else "Rome")))
    results = asyncio.run(lab.Experiment([agent], ["task 1", "task 2"], score=judge).run(progress=False))
    assert results.runs["score"].to_list() == [True, False]
    assert results.runs["score_why"].to_list() == ["It says so."] * 2
    assert results.runs["score_cost_usd"].to_list() == [0.01, 0.01]
    sign = read[0].split("--- ")[1].split()[0]
    answer = next(text for text in read if "task 1" in text)
    sign = answer.split("--- ")[1].split()[0]
    assert len(sign) == 16
    assert f"Answer:\n--- {sign}\nParis\n--- {sign}" in answer
    assert all(sign not in text for text in read if text is not answer)


def test_a_judge_without_a_verdict_is_unknown() -> None:
    judge = S.Judge(ScriptedProvider([say("I would rather not.")] * 9), "good", lab.Budget(max_calls=1))
    found = scored(judge, "Paris")
    assert found.value is None
    assert found.why.startswith("the judge gave no verdict: ")


def two_answers(text: str) -> tuple[str, str]:
    one, two = (part.split("\n")[2] for part in text.split("answer:")[1:])
    return one, two


@pytest.mark.parametrize(
    ("better", "winner", "consistent"),
    [
        (lambda one, two: "first" if len(one) < len(two) else "second", "left", True),
        (lambda one, two: "second" if len(one) < len(two) else "first", "right", True),
        (lambda one, two: "first", "tie", False),
        (lambda one, two: "equal", "tie", True),
    ],
)
def test_pairs_are_judged_in_both_orders(better: Any, winner: str, consistent: bool) -> None:
    def verdict(text: str) -> dict[str, str]:
        return {"reason": "so", "better": better(*two_answers(text))}

    judge = S.Pairwise(judging(verdict), "The shorter one.", BUDGET)
    found = asyncio.run(judge(lab.Task("?"), "abc", "abcdef"))
    assert (found.winner, found.consistent) == (winner, consistent)


def test_the_runs_of_an_experiment_are_judged_in_pairs() -> None:
    def agent(name: str, text: str) -> lab.Agent:
        return lab.Agent(ScriptedProvider(lambda request, index: say(text)), name=name)

    def verdict(text: str) -> dict[str, str]:
        one, two = map(len, two_answers(text))
        return {"reason": "so", "better": "first" if one < two else "equal" if one == two else "second"}

    agents = [agent("a", "xx"), agent("b", "x"), agent("c", "xx")]
    results = asyncio.run(lab.Experiment(agents, [f"task {n}" for n in range(6)], repeats=2).run(progress=False))
    judge = S.Pairwise(judging(verdict), "Short.", BUDGET)
    pairs = asyncio.run(S.judge_pairs(results, judge, progress=False))
    assert len(pairs) == 3 * 6 * 2
    rates = S.win_rates(pairs)
    assert rates[["left", "right", "left_wins", "ties", "right_wins", "win_rate", "units"]].to_numpy().tolist() == [
        ["a", "b", 0, 0, 12, 0.0, 6],
        ["a", "c", 0, 12, 0, 0.5, 6],
        ["b", "c", 12, 0, 0, 1.0, 6],
    ]
    with pytest.raises(ConfigurationError, match="No two runs have the same task"):
        asyncio.run(S.judge_pairs(results, judge, by="settings"))


def test_an_error_of_a_judge_ends_the_other_comparisons() -> None:
    agents = [lab.Agent(ScriptedProvider(lambda request, index: say("x")), name=name) for name in "ab"]
    asked, judged = [], []

    async def judge(task: lab.Task, first: str, second: str) -> Any:
        asked.append(task.text)
        if task.text == "task 1":
            raise ZeroDivisionError
        await asyncio.sleep(60)
        judged.append(task.text)

    async def main() -> None:
        results = await lab.Experiment(agents, [f"task {n}" for n in range(3)]).run(progress=False)
        with pytest.raises(ZeroDivisionError):
            await S.judge_pairs(results, judge, progress=False)  # type: ignore[arg-type]
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())
    assert (asked, judged) == (["task 0", "task 1", "task 2"], [])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (S.ToolUse(["a"]), S.ToolUse(["b"])),
        (S.ToolUse([{"tool": "a", "arguments": {"n": 1}}]), S.ToolUse([{"tool": "a", "arguments": {"n": 2}}])),
        (S.Choice(["a", "b"]), S.Choice(["a", "c"])),
        (S.Judge("openai:m", "good", BUDGET), S.Judge("openai:m", "good", BUDGET, {"good": 1, "poor": 0})),
        (S.Judge("openai:m", "good", BUDGET), S.Judge("openai:m", "good", lab.Budget(max_calls=5))),
        (
            S.Judge(lab.Provider("openai", model="m", api_key="k"), "good", BUDGET),
            S.Judge(lab.Provider("openai", model="n", api_key="k"), "good", BUDGET),
        ),
    ],
    ids=str,
)
def test_other_options_of_a_scorer_are_another_version(one: Any, other: Any) -> None:
    assert code_of(one) != code_of(other)
    assert code_of(one) == code_of(pickle.loads(pickle.dumps(one)))  # in another process


def test_a_key_of_a_judge_is_no_part_of_its_version() -> None:
    one, other = (S.Judge(lab.Provider("openai", model="m", api_key=key), "good", BUDGET) for key in ("k", "l"))
    assert code_of(one) == code_of(other)

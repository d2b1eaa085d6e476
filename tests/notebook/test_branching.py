"""Branches and several runs without a browser: what the form offers, what the page may ask for, and what it is sent."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

import agentlab as lab
from agentlab import Budget, StepCountIs
from agentlab._internal import secrets
from agentlab.agent import Run
from agentlab.errors import ConfigurationError
from agentlab.model.messages import ModelRequest, ToolCall
from agentlab.model.responses import ModelResponse
from agentlab.notebook.page.data import run_data
from agentlab.notebook.page.steps import Shown
from agentlab.notebook.panel import Panel, panel
from agentlab.notebook.panel.branching import LONGEST_TEXT, expression_for
from agentlab.records.step import STEP_PARTS, step_keys
from agentlab.testing import ScriptedProvider, call, say

KEY = "sk-" + "branched0123456789form"  # of this file alone: a key that another test has sent is known from then on
HOSTILE = '<script>alert(1)</script><img src=x onerror="alert(2)">'


def agent(name: str = "one", end: int = 0, given: str = "nothing") -> lab.Agent:
    def script(request: ModelRequest, index: int) -> ModelResponse:
        return say("Found.") if index == end else call("search", {"query": str(index)}, cost="0.001")

    def search(query: str) -> str:
        """Search."""
        return given

    return lab.Agent(ScriptedProvider(script, name=name, model="m"), tools=[search])


def ended(run: Run) -> Run:
    async def to_the_end() -> None:
        await run

    asyncio.run(to_the_end())
    return run


def four_steps(given: str = "nothing", prompt: str = "Find it.") -> Run:
    """Four steps, ended by its budget."""
    return ended(agent(given=given).run(prompt, budget=Budget(max_turns=4)))


def shown(run: Run, **more: Any) -> Panel:
    """The panel of a run as a page shows it."""
    made = panel(run, **more)
    _ = made.widget
    return made


def ask(made: Panel, do: str, run: Run | None = None, **more: Any) -> Any:
    """What the page would ask for, of the shown run unless another one is named."""
    return made.carry_out({"do": do, "run": (run or made.run).id, **more})


def data_of(run: Run) -> dict[str, Any]:
    """What the page has of a run."""
    return run_data(run, Shown(), {run.id: run.id, **({} if run.origin.parent is None else {run.origin.parent.id: "parent"})})


# The form --------------------------------------------------------------------------------------------------------------------------


def test_the_form_offers_the_results_of_the_step_and_the_agents() -> None:
    run = four_steps()
    form = ask(shown(run, agents=[agent("two")]), "branch_form", step=2)
    (result,) = form["results"]
    assert (result["label"], result["text"], result["redacted"]) == ("Result of search", "nothing", False)
    assert (form["prompt"], form["agents"], form["model"], form["needs_message"]) == (None, ["two:m"], "one:m", False)


def test_agents_of_one_name_are_numbered() -> None:
    run = four_steps()
    terse, long = agent("two"), agent("two")
    made = lab.panel(run, agents=[terse, long])
    _ = made.widget
    assert ask(made, "branch_form", step=2)["agents"] == ["two:m", "two:m (2)"]
    ask(made, "branch", step=2, agent=1)
    assert made.run.agent is long


def test_a_single_agent_is_an_error_that_says_what_to_pass() -> None:
    one: Any = agent("two")
    with pytest.raises(ConfigurationError, match=r"pass agents in a list"):
        lab.panel(four_steps(), agents=one)


def test_results_of_several_calls_of_one_tool_have_different_labels() -> None:
    def search(query: str) -> str:
        """Search."""
        return "nothing"

    def look(at: str) -> str:
        """Look."""
        return "nothing"

    asked = [
        ("search", {"query": "cellar"}),
        ("look", {"at": "it"}),
        ("search", {"query": "x" * 200}),
        ("search", {"query": KEY}),
    ]
    calls = [ToolCall(str(place), name, json.dumps(given)) for place, (name, given) in enumerate(asked)]
    model = ScriptedProvider([say(finish=lab.FinishReason.TOOL_CALLS, calls=calls), "Done."])
    run = ended(lab.Agent(model, tools=[search, look]).run("?"))
    labels = [one["label"] for one in ask(shown(run), "branch_form", step=1)["results"]]
    assert labels[:2] == ['Result of search 1: {"query": "cellar"}', "Result of look"]
    assert labels[2].startswith('Result of search 2: {"query": "xxx') and len(labels[2]) < 110
    assert labels[3].startswith("Result of search 3: ") and KEY not in labels[3]


def test_below_the_prompt_the_prompt_can_be_edited() -> None:
    form = ask(shown(four_steps()), "branch_form", step=0)
    assert (form["prompt"]["text"], form["results"]) == ("Find it.", [])


def test_the_form_says_if_a_message_is_needed() -> None:
    made = shown(ended(agent(end=3).run("Find it.")))
    assert [ask(made, "branch_form", step=step)["needs_message"] for step in (0, 2, 3)] == [False, False, True]


def test_a_long_result_is_not_in_the_form_and_stays_unless_it_is_replaced() -> None:
    run = four_steps("x" * (LONGEST_TEXT + 1))
    made = shown(run)
    (result,) = ask(made, "branch_form", step=2)["results"]
    assert (result["text"], result["length"]) == (None, LONGEST_TEXT + 1)
    ask(made, "branch", step=2)
    assert len(run.branches[0].history[1].tool_results[0].content) > LONGEST_TEXT
    ask(made, "branch", run, step=2, tool_results={result["id"]: "short"})
    assert run.branches[1].history[1].tool_results[0].content == "short"


def test_keys_are_not_in_the_form(monkeypatch: pytest.MonkeyPatch) -> None:
    made = shown(four_steps(f"the key is {KEY}", f"Use {KEY}."))
    monkeypatch.setenv("OPENAI_API_KEY", KEY)  # known only now: the result of a tool that has a known key is kept without it
    secrets.read_environment()
    prompt, (result,) = (
        ask(made, "branch_form", step=0)["prompt"],
        ask(made, "branch_form", step=1)["results"],
    )
    assert prompt["redacted"] and result["redacted"]
    assert KEY not in prompt["text"] + result["text"]


def test_a_branch_has_what_was_changed_and_nothing_else() -> None:
    run = four_steps()
    made = shown(run, agents=[agent("two")])
    (result,) = ask(made, "branch_form", step=2)["results"]
    made_id = ask(made, "branch", step=2, tool_results={result["id"]: "page 12"}, message="The oldest first.", agent=0)
    branch = run.branches[0]
    assert made.run is branch and made_id == branch.id
    assert (branch.origin.forked_at, branch.agent.name, branch.prompt, branch.state) == (2, "two:m", "Find it.", "ready")
    assert branch.history[1].tool_results[0].content == "page 12" and branch.messages[-1].text == "The oldest first."
    assert run.history[1].tool_results[0].content == "nothing"
    ask(made, "branch", run, step=4)
    same = run.branches[1]
    assert (list(same.messages), same.agent, data_of(same)["name"]) == (list(run.messages), run.agent, "the same from step 5")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"step": 9}, "0 to 4"),
        ({"step": 2.5}, "0 to 4"),
        ({"step": 0, "prompt": "  "}, "pass the task as text"),
        ({"step": 2, "model": " "}, "provider:model"),
        ({"step": 2, "model": "nobody:nothing"}, "nobody"),
    ],
    ids=["too many steps", "half a step", "no prompt", "no model", "unknown provider"],
)
def test_an_impossible_branch_says_why(change: dict[str, Any], reason: str) -> None:
    run = four_steps()
    made = shown(run)
    with pytest.raises(ConfigurationError, match=reason):
        ask(made, "branch", **change)
    assert not run.branches and made.run is run


# Names, and conversations ------------------------------------------------------------------------------------------------------------


def test_the_name_follows_the_limits_of_the_branch() -> None:
    run = four_steps()
    branch = run.fork(4, budget=Budget(max_turns=10))
    assert data_of(branch)["name"] == "max_turns 10"
    branch.limits.max_turns = 15
    assert data_of(branch)["name"] == "max_turns 15"


def test_names_say_what_differs() -> None:
    run = four_steps()
    call_id = run.history[1].tool_results[0].call_id
    names = {
        data_of(branch)["name"]
        for branch in (
            run.fork(2, tool_results={call_id: "page 12"}),
            run.fork(0, prompt="Find it quickly."),
            run.fork(3, message="Look at the oldest first, then at all of the others, one by one."),
        )
    }
    said = 'message "Look at the oldest f…others, one by one."'
    assert names == {"edited result of search at step 2", "another prompt", said}


def test_a_message_with_a_key_is_not_in_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    name = data_of(four_steps().fork(4, message=f"Use the key {KEY} for it, please, and be quick."))["name"]
    assert name.startswith('message "Use the key') and "planted" not in name and "abcdef" not in name


def test_a_message_after_the_end_continues_the_conversation() -> None:
    run = ended(agent(end=3).run("Find it."))
    chat = ended(run.fork(3, message="And then?"))
    again = chat.fork(len(chat.history), message="And now?", budget=Budget(max_turns=50))
    assert [data_of(one)["continues"] for one in (run, chat, again)] == [False, True, True]
    others = [run.fork(2, message="Another way."), run.fork(2), run.fork(3, message="By you.", agent=agent("two"))]
    assert [data_of(one)["continues"] for one in others] == [False] * 3


def test_hostile_text_is_text() -> None:
    run = four_steps(HOSTILE, HOSTILE)
    branch = run.fork(1, prompt=HOSTILE * 2, message=HOSTILE)
    data = data_of(branch)
    assert "<script" not in data["prompt_html"] and "<img" not in "".join(step["html"] for step in data["steps"])


# In code -----------------------------------------------------------------------------------------------------------------------------


def test_the_shortest_expression_for_a_run() -> None:
    run = four_steps()
    branches = [run.fork(2), run.fork(3)]
    below = branches[1].fork(1)
    shown = panel([run, four_steps()])
    names: dict[str, Any] = {"run": run}
    assert expression_for(run, names) == "run"
    assert expression_for(below, names) == "run.branches[1].branches[0]"
    assert expression_for(below, {**names, "second": branches[1]}) == "second.branches[0]"
    assert expression_for(run, {"runs": [None, run]}) == "runs[1]"
    assert expression_for(run, {"by_name": {"first": run}}) == "by_name['first']"
    assert expression_for(branches[0], {"row": shown}) == "row.runs[0].branches[0]"
    assert expression_for(run, {"_": run, "_12": shown, "a_long_name": run}) == "a_long_name"
    assert expression_for(run, {"_": run, "_12": shown}) == "_12.runs[0]"
    assert expression_for(run, {"other": four_steps()}) == ""
    assert eval(expression_for(below, names), dict(names)) is below


def test_the_expression_for_a_sub_agent() -> None:
    boss = lab.Agent(ScriptedProvider([call("scout", {"task": "Go."}), "Done."]), tools=[agent(end=1).as_tool("scout")])
    run = ended(boss.run("?"))
    assert expression_for(run.children[0], {"run": run}) == "run.children[0]"


# Comparison --------------------------------------------------------------------------------------------------------------------------


def test_keys_of_steps_differ_where_the_frame_says_so() -> None:
    run = four_steps()
    call_id = run.history[1].tool_results[0].call_id
    for branch, step in ((run.fork(2, tool_results={call_id: "page 12"}), 2), (ended(run.fork(3, agent=agent(end=4))), 4)):
        ours, theirs = (step_keys(one.history[step - 1], None).split(" ") for one in (run, branch))
        first = next(part for part, a, b in zip(STEP_PARTS, ours, theirs, strict=True) if a != b)
        found = lab.diff(run, branch)
        assert (found.first_difference, found.what) == (step, first)


def test_limits_are_noted_where_they_change() -> None:
    async def changed() -> Run:
        run = agent().run("Find it.", stop=StepCountIs(4), budget=Budget(max_turns=9, max_cost=1))
        await run.step()
        await run.step()
        run.limits.max_turns = 5
        await run
        return run

    data = data_of(asyncio.run(changed()))
    noted = {step["n"]: step["in_force"] for step in data["steps"] if step.get("in_force")}
    first = {"max_turns": "9", "max_cost": "$1.00", "stop": "StepCountIs(steps=4)"}
    assert noted == {1: first, 3: {**first, "max_turns": "5"}} and data["in_force"] == noted[3]


# Several runs ------------------------------------------------------------------------------------------------------------------------


def test_the_page_knows_which_runs_are_side_by_side() -> None:
    runs = [four_steps(), agent("two").run("Find it.")]
    sent: list[dict[str, Any]] = []
    made = panel(runs)
    made.widget.send = lambda content, buffers=None: sent.append(content)
    made.carry_out({"do": "hello", "page": "one"})
    assert sent[-1]["all"]["runs"] == [run.id for run in runs] and sent[-1]["open"] == runs[0].id
    runs[1].fork(0)
    assert panel(runs).runs == tuple(runs)


def test_more_runs_than_fit_are_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"panel\(\) of 9 runs: at most 8 fit side by side"):
        panel([agent().run("?") for _ in range(9)])

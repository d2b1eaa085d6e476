"""How a conversation continues in the panel: decisions on calls, the next message, and the ways to continue after the end."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import pytest
from thread_tools import wait_until

import agentlab as lab
from agentlab import Budget, StepCountIs
from agentlab.agent import Run
from agentlab.engine.worker import RunState
from agentlab.errors import ConfigurationError
from agentlab.model.messages import ToolCall
from agentlab.notebook.panel import Panel
from agentlab.notebook.panel.actions import live_data
from agentlab.testing import ScriptedProvider, call, say

KEY = "sk-" + "planted0123456789abcdef"


@pytest.fixture(autouse=True)
def _front_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTLAB_FRONTEND", "widgets")


async def to_the_end(run: Run) -> Any:
    return await run


def panel_of(run: Run) -> Panel:
    panel = Panel([run])
    _ = panel.widget
    return panel


def do(panel: Panel, name: str, **more: Any) -> Any:
    return panel.carry_out({"do": name, "run": panel.run.id, **more})


def read(panel: Panel) -> dict[str, Any]:
    """What a person can do to the open run."""
    return live_data(panel.run)


# The next message -------------------------------------------------------------------------------------------------------------


def test_a_message_continues_the_conversation_in_a_branch_that_is_shown_and_started() -> None:
    run = lab.Agent(ScriptedProvider(["In Graz.", "200 km."])).run("Where?")
    panel = panel_of(run)
    assert read(panel)["chat"]["why_not"] == "Once the run has begun, you can send the next message."
    with pytest.raises(ConfigurationError, match="Once the run has begun"):
        do(panel, "say", text="How far?")
    asyncio.run(to_the_end(run))
    assert read(panel)["chat"] == {"why_not": "", "raise": ""}
    with pytest.raises(ConfigurationError, match="Write a message first"):
        do(panel, "say", text=" \n ")
    do(panel, "say", text="How far?\n")
    (branch,) = run.branches
    assert panel.run is branch and branch.wait(60) is not None
    assert [message.text for message in branch.messages] == ["Where?", "In Graz.", "How far?", "200 km."]
    assert len(run.history) == 1


def test_a_reached_limit_is_named_and_raised_only_if_the_person_says_so() -> None:
    run = lab.Agent(ScriptedProvider(["In Graz.", "200 km."])).run("Where?", budget=Budget(max_turns=1))
    asyncio.run(to_the_end(run))
    panel = panel_of(run)
    assert read(panel)["chat"]["raise"] == "Raise the turn limit to 2"
    with pytest.raises(ConfigurationError, match=r"A limit is reached.*Raise the turn limit to 2 and send"):
        do(panel, "say", text="How far?")
    assert not run.branches
    do(panel, "say", text="How far?", **{"raise": True})
    assert panel.run is not run and panel.run.wait(60) is not None
    assert panel.run.limits.max_turns == 2 and run.limits.max_turns == 1


def test_a_met_stop_condition_is_raised_for_a_message_too() -> None:
    model = ScriptedProvider([call("search", {}), "200 km."])
    run = lab.Agent(model, tools=[search]).run("Where?", stop=StepCountIs(1))
    asyncio.run(to_the_end(run))
    assert read(panel_of(run))["chat"]["raise"] == "Raise StepCountIs to 2"


def test_a_met_goal_is_turned_off_for_a_message_which_is_then_answered() -> None:
    script = [call("search", {}), call("finalize", {"answer": "Graz"}), call("search", {}), "In Linz."]
    agent = lab.Agent(ScriptedProvider(script), tools=[search, finalize])
    run = agent.run("Where?", stop=lab.HasToolCall("finalize") | StepCountIs(8))
    asyncio.run(to_the_end(run))
    panel = panel_of(run)
    assert run.result is not None and run.result.terminated
    assert read(panel)["chat"]["raise"] == "Turn HasToolCall off"
    with pytest.raises(ConfigurationError, match=r"Turn HasToolCall off and send the message"):
        do(panel, "say", text="And tomorrow?")
    do(panel, "say", text="And tomorrow?", **{"raise": True})
    assert getattr(panel.run.wait(60), "text", "") == "In Linz."


def test_a_condition_met_at_the_end_is_raised_for_a_message_and_a_function_is_asked_again() -> None:
    script = [call("search", {}), "In Graz.", call("search", {}), "In Linz."]
    agent = lab.Agent(ScriptedProvider(script), tools=[search])
    for stop, needed in ((StepCountIs(2), "Raise StepCountIs to 4"), (lambda history: history[-1].text == "In Graz.", "")):
        run = agent.run("Where?", stop=stop)
        asyncio.run(to_the_end(run))
        panel = panel_of(run)
        assert run.result is not None and run.result.stop_reason is lab.StopReason.COMPLETED
        assert read(panel)["chat"]["raise"] == needed
        do(panel, "say", text="And tomorrow?", **{"raise": True})
        assert getattr(panel.run.wait(60), "text", "") == "In Linz."


def test_a_stop_condition_changed_since_the_end_is_as_it_is_for_a_message() -> None:
    run = lab.Agent(ScriptedProvider([call("search", {})]), tools=[search]).run("Where?", stop=StepCountIs(1))
    asyncio.run(to_the_end(run))
    run.limits.stop = StepCountIs(8) & lab.HasToolCall("finalize")
    assert read(panel_of(run))["chat"]["raise"] == ""


def test_a_paused_run_is_continued_with_a_message() -> None:
    run = lab.Agent(ScriptedProvider(lambda request, index: call("search", {})), tools=[search]).run(
        "Where?", stop=StepCountIs(3)
    )
    asyncio.run(take_a_step(run))
    run.pause()
    panel = panel_of(run)
    do(panel, "say", text="Hurry.")
    assert panel.run.wait(60) is not None and len(run.history) == 1
    assert panel.run.timeline.messages_of(1)[-1].text == "Hurry."


async def take_a_step(run: Run) -> None:
    await run.step()


def search() -> str:
    """Search."""
    return "nothing"


def finalize(answer: str) -> str:
    """Hand in."""
    return answer


# Approvals --------------------------------------------------------------------------------------------------------------------


class Trip:
    """A run with a call that waits for approval; `booked` has what was booked."""

    def __init__(self, *more: Any, arguments: dict[str, Any] | None = None) -> None:
        self.booked: list[int] = []

        async def book_room(nights: int, note: str = "") -> str:
            """Book."""
            self.booked.append(nights)
            return f"{nights} nights"

        calls = [call("book_room", arguments or {"nights": 2}), *more, "Done."]
        self.run: Run = lab.Agent(ScriptedProvider(calls), tools=[book_room], name="guide").run("Book.", approve=["book_*"])
        self.panel = panel_of(self.run)
        self.panel.carry_out({"do": "hello", "page": "one"})  # a page is open: a person is there

    def ask(self) -> list[dict[str, Any]]:
        """Run until a call waits."""
        do(self.panel, "go")
        wait_until(lambda: self.run.state is RunState.WAITING)
        return list(read(self.panel)["asked"])

    def decide(self, asked: dict[str, Any], decision: str, text: str | None = None) -> None:
        do(self.panel, "decide", call=asked["call"], of=asked["of"], decision=decision, text=text)

    def result_read(self) -> str:
        """What the model read as the result of the first call."""
        assert self.run.wait(60) is not None
        return str(self.run.history[0].tool_results[0].content)


def test_a_call_that_waits_is_approved() -> None:
    trip = Trip()
    (asked,) = trip.ask()
    assert (asked["tool"], asked["arguments"], asked["why"]) == ("book_room", '{"nights": 2}', "approve has 'book_*'")
    assert not asked["redacted"]
    assert read(trip.panel)["buttons"]["go"]["why_not"] == "Decide on the tool call that waits."
    trip.decide(asked, "approve")
    assert trip.result_read() == "2 nights"
    with pytest.raises(ConfigurationError, match="does not wait any more"):
        trip.decide(asked, "refuse")


@pytest.mark.parametrize(
    ("decision", "text", "read", "booked"),
    [
        ("approve", '{"nights": 3}', "3 nights", [3]),
        ("answer", "By phone.", "By phone.", []),
        ("refuse", "Too long.", "The person refused: Too long.", []),
    ],
)
def test_other_decisions(decision: str, text: str, read: str, booked: list[int]) -> None:
    trip = Trip()
    trip.decide(trip.ask()[0], decision, text)
    assert (trip.result_read(), trip.booked) == (read, booked)


def test_arguments_that_do_not_fit_are_refused_and_the_call_still_waits() -> None:
    trip = Trip()
    (asked,) = trip.ask()
    for wrong in ("{", "[]", '{"nights": "many"}'):
        with pytest.raises(ConfigurationError):
            trip.decide(asked, "approve", wrong)
    assert len(trip.run.pending) == 1
    trip.run.cancel()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"nights": 3}', None),
        ("{", "The arguments do not fit the tool: Invalid JSON"),
        (" ", "Write the arguments as a JSON object"),
        ('{"nights": "many"}', "The arguments do not fit the tool: nights: Input should be a valid integer"),
    ],
)
def test_edited_arguments_are_checked_before_the_decision(text: str, why: str | None) -> None:
    trip = Trip()
    (asked,) = trip.ask()
    found = do(trip.panel, "check", call=asked["call"], of=asked["of"], text=text)
    assert found == "" if why is None else found.startswith(why)
    if found:
        with pytest.raises(ConfigurationError, match="^" + re.escape(found)):
            trip.decide(asked, "approve", text)
    assert len(trip.run.pending) == 1
    trip.run.cancel()


def test_arguments_of_the_model_are_checked_too() -> None:
    trip = Trip(arguments={"nights": "many"})
    (asked,) = trip.ask()
    assert "nights: Input should be a valid integer" in do(trip.panel, "check", call=asked["call"], of=asked["of"])
    trip.decide(asked, "approve")
    assert "nights" in trip.result_read() and trip.booked == []
    with pytest.raises(ConfigurationError, match="does not wait any more"):
        do(trip.panel, "check", call=asked["call"], of=asked["of"])


def test_the_arguments_of_a_sub_agents_call_are_checked_against_its_tool() -> None:
    def book(nights: int) -> str:
        """Book."""
        return "booked"

    scout = lab.Agent(ScriptedProvider([call("book", {"nights": "many"}), "Done."], name="b"), tools=[book], approve=["book"])
    planner = lab.Agent(ScriptedProvider([call("scout", {"task": "Go."}), "Done."]), tools=[scout.as_tool("scout", "Books.")])
    run = planner.run("?")
    asyncio.run(to_the_end(run))
    panel = panel_of(run)
    (asked,) = read(panel)["asked"]
    assert "nights: Input should be a valid integer" in do(panel, "check", call=asked["call"], of=asked["of"])
    assert do(panel, "check", call=asked["call"], of=asked["of"], text='{"nights": 1}') == ""
    run.cancel()


def test_long_arguments_are_written_over_several_lines_and_keys_are_hidden() -> None:
    trip = Trip(arguments={"nights": 2, "note": f"with the key {KEY} and a view over the castle"})
    (asked,) = trip.ask()
    assert asked["arguments"].startswith('{\n  "nights": 2,\n') and KEY not in json.dumps(asked)
    assert asked["redacted"]
    trip.run.cancel()


def test_all_calls_of_a_step_are_approved_at_once() -> None:
    booked: list[int] = []

    async def book_room(nights: int) -> str:
        """Book."""
        booked.append(nights)
        return "booked"

    calls = [ToolCall(f"call_{nights}", "book_room", json.dumps({"nights": nights})) for nights in (1, 2)]
    both = say(finish=lab.FinishReason.TOOL_CALLS, calls=calls)
    run = lab.Agent(ScriptedProvider([both, "Done."]), tools=[book_room]).run("Book.", approve=True)
    assert asyncio.run(to_the_end(run)).stop_reason is lab.StopReason.AWAITING_APPROVAL
    panel = panel_of(run)  # opened afterwards: nobody was there
    assert len(read(panel)["asked"]) == 2
    do(panel, "decide", decision="all")
    assert run.wait(60) is not None and booked == [1, 2], "the run continues without another press"


def test_the_card_has_the_time_at_which_the_timeout_ends_the_wait() -> None:
    trip = Trip()
    assert trip.ask()[0]["ends_at_s"] is None
    trip.run.limits.timeout = 60
    assert trip.ask()[0]["ends_at_s"] == 60
    assert read(trip.panel)["ticks"]
    do(trip.panel, "pause")
    assert not read(trip.panel)["ticks"]
    assert read(trip.panel)["soon"] == "its time is paused"
    assert read(trip.panel)["buttons"]["go"] | {"tip": ""} == {"label": "Resume", "why_not": "", "tip": ""}
    do(trip.panel, "go")
    assert read(trip.panel)["ticks"]
    trip.run.limits.timeout = 0.01
    assert trip.run.wait(60).stop_reason is lab.StopReason.TIMEOUT
    assert read(trip.panel)["asked"] == []


def test_the_card_of_a_sub_agents_call_has_the_shortest_time() -> None:
    async def book(nights: int) -> str:
        """Book."""
        return "booked"

    scout = lab.Agent(ScriptedProvider([call("book", {"nights": 1}), "Done."], name="b"), tools=[book], approve=["book"])
    boss = lab.Agent(ScriptedProvider([call("scout", {"task": "Book."}), "Done."]), tools=[scout.as_tool("scout")])
    run = boss.run("Go.", budget=Budget(timeout=60))
    asyncio.run(to_the_end(run))
    panel = panel_of(run)
    assert [one["ends_at_s"] for one in read(panel)["asked"]] == [60]
    run.children[0].limits.timeout = 30
    (asked,) = read(panel)["asked"]
    assert 30 <= asked["ends_at_s"] < 35
    do(panel, "pause")
    assert not read(panel)["ticks"]
    run.cancel()


def test_a_branch_with_a_higher_timeout_waits_in_the_panel_for_the_same_call() -> None:
    booked: list[int] = []

    async def book_room(nights: int) -> str:
        """Book."""
        booked.append(nights)
        return "booked"

    model = ScriptedProvider([call("book_room", {"nights": 2}), "Done."])
    run = lab.Agent(model, tools=[book_room]).run("Book.", approve=True, budget=Budget(timeout=0.3))
    panel = panel_of(run)
    do(panel, "go")
    result = run.wait(60)
    assert result is not None and result.stop_reason is lab.StopReason.TIMEOUT
    run.limits.timeout = 60
    label = run.next_actions[0].label
    do(panel, "proceed", place=0, label=label)
    (branch,) = run.branches
    wait_until(lambda: branch.stepper.has_begun and branch.state is lab.RunState.WAITING)
    (asked,) = read(panel)["asked"]
    assert (asked["tool"], asked["of"], asked["ends_at_s"]) == ("book_room", branch.id, 60)
    do(panel, "decide", call=asked["call"], of=asked["of"], decision="approve")
    assert branch.wait(60) is not None and booked == [2]


# After the end ----------------------------------------------------------------------------------------------------------------


def searching(turns: int) -> Run:
    model = ScriptedProvider(lambda request, index: call("search", {}))
    run = lab.Agent(model, tools=[search]).run("Find it.", budget=Budget(max_turns=turns))
    asyncio.run(to_the_end(run))
    return run


def test_a_way_to_continue_makes_a_branch_that_is_shown_and_started() -> None:
    run = searching(2)
    panel = panel_of(run)
    label = run.next_actions[0].label
    do(panel, "proceed", place=0, label=label)
    (branch,) = run.branches
    assert panel.run is branch and branch.wait(60) is not None
    assert (len(branch.history), len(run.history)) == (4, 2)
    with pytest.raises(ConfigurationError, match="have changed"):
        do(panel, "proceed", place=0, label=label)  # the second of a double click, on the branch
    assert not branch.branches


def test_ways_to_continue_follow_an_edit_after_the_end() -> None:
    run = searching(2)
    panel = panel_of(run)
    label = run.next_actions[0].label
    run.limits.max_turns = 9
    with pytest.raises(ConfigurationError, match="have changed"):
        do(panel, "proceed", place=0, label=label)
    assert run.next_actions[0].label == "Continue from step 2"


OTHER = f"sk-{'x' * 24}"


@pytest.mark.parametrize(
    ("edited", "sent"),
    [
        ("Use REDACTED and REDACTED.", f"Use {KEY} and {OTHER}."),
        ("Take REDACTED, then REDACTED. Be brief.", f"Take {KEY}, then {OTHER}. Be brief."),
        ("Use no key.", "Use no key."),
    ],
    ids=["as it was", "edited", "without the keys"],
)
def test_the_keys_of_an_edited_prompt_stay(edited: str, sent: str) -> None:
    model = ScriptedProvider([say("", finish=lab.FinishReason.CONTENT_FILTERED), "Done."])
    run = lab.Agent(model).run(f"Use {KEY} and {OTHER}.")
    asyncio.run(to_the_end(run))
    panel = panel_of(run)
    assert read(panel)["prompt"] == "Use REDACTED and REDACTED."
    label = run.next_actions[0].label
    with pytest.raises(ConfigurationError, match="has 2 keys"):
        do(panel, "proceed", place=0, label=label, prompt="Use REDACTED.")
    assert not run.branches
    do(panel, "proceed", place=0, label=label, prompt=edited)
    assert run.branches[0].prompt == sent
    assert run.branches[0].wait(60) is not None


def test_another_prompt_is_asked_for_and_started() -> None:
    model = ScriptedProvider([say("", finish=lab.FinishReason.CONTENT_FILTERED), "Less."])
    run = lab.Agent(model).run("Tell me <b>all</b>.")
    asyncio.run(to_the_end(run))
    panel = panel_of(run)
    assert read(panel)["prompt"] == "Tell me <b>all</b>."
    label = run.next_actions[0].label
    with pytest.raises(ConfigurationError, match="Write the prompt first"):
        do(panel, "proceed", place=0, label=label, prompt=" ")
    assert not run.branches
    do(panel, "proceed", place=0, label=label, prompt="Tell me less.")
    (branch,) = run.branches
    assert (branch.prompt, run.prompt, panel.run) == ("Tell me less.", "Tell me <b>all</b>.", branch)
    assert branch.wait(60) is not None

"""Typed answers: checked, asked for again within a cap, and typed in the result; also replayed, stored, forked and in a what-if."""

from __future__ import annotations

import asyncio
import json
import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from providers.bodies import Answer, Call
from pydantic import BaseModel, Field, field_validator
from typing_extensions import TypedDict

import agentlab as lab
from agentlab.engine.control import Approval
from agentlab.errors import ConfigurationError, InvalidOutput, LimitError, ToolDefinitionError
from agentlab.limits.reading import Action
from agentlab.model.finish_reasons import FinishReason, StopReason
from agentlab.model.messages import ModelRequest, OutputForm
from agentlab.records import events
from agentlab.testing import ScriptedProvider, call, say

from .call_builders import agent as agent_on
from .call_builders import essence, finished, go, reply_to
from .server import serving

S = StopReason


class Trip(BaseModel):
    """A day trip."""

    city: str
    day: date
    eur: float = Field(default=0, ge=0)

    @field_validator("city")
    @classmethod
    def known(cls, city: str) -> str:
        return {"graz": "Graz", "linz": "Linz"}[city.lower()]  # a KeyError for any other


@dataclass
class Bus:
    line: int


class Walk(TypedDict):
    minutes: int


@lab.tool(inline=True)
def look(q: str) -> str:
    """Look something up."""
    return f"found {q}"


GOOD = '{"city": "graz", "day": "2027-06-12"}'
GRAZ = Trip(city="Graz", day=date(2027, 6, 12))
BAD = '{"city": "graz"}'


class Structured(ScriptedProvider):
    """A model whose wire takes a schema."""

    def output_form(self, *, with_tools: bool) -> OutputForm:
        return "strict"


def run_of(script: Sequence[Any], **more: Any) -> lab.Run[Any]:
    output: Any = more.pop("output", Trip)
    model: Any = more.pop("model", ScriptedProvider)(list(script))
    return lab.Agent(model, tools=[look], output=output, **more).run("Where to?")


def result_of(script: Sequence[Any], **more: Any) -> lab.RunResult[Any]:
    return asyncio.run(finished(run_of(script, **more)))


def actions(result: lab.RunResult[Any]) -> list[Action]:
    return [step.decision.action for step in result.history]


# The answer -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("output", "text", "value"),
    [
        pytest.param(Trip, GOOD, GRAZ, id="model"),
        pytest.param(Trip, f"```json\n{GOOD}\n```", GRAZ, id="code-block"),
        pytest.param(Bus, '{"line": 7}', Bus(7), id="dataclass"),
        pytest.param(Walk, '{"minutes": 5}', {"minutes": 5}, id="typed-dict"),
        pytest.param(Trip | Bus, '{"answer": {"line": 7}}', Bus(7), id="union"),
        pytest.param(Trip | Bus, f'{{"answer": {GOOD}}}', GRAZ, id="union-the-other"),
        pytest.param(list[Bus], '{"answer": [{"line": 7}]}', [Bus(7)], id="list"),
        pytest.param(Trip | Bus, '{"line": 7}', Bus(7), id="union-without-the-object-around-it"),
    ],
)
@pytest.mark.parametrize("by", ["text", "tool"])
def test_the_output_is_a_value_of_the_type(output: Any, text: str, value: object, by: str) -> None:
    if by == "text":
        result = result_of([text], model=Structured, output=output)
        assert result.stop_reason is S.COMPLETED
    else:
        result = result_of([call("final_answer", json.loads(text.strip("`json\n")))], output=output)
        assert result.stop_reason is S.TERMINATING_TOOL
    assert result.output == value
    assert type(result.output) is type(value)
    assert result.terminated
    assert result.raise_for_stop() is result
    assert json.loads(result.text) == json.loads(json.dumps(value, default=lambda one: json.loads(_plain(one))))


def _plain(value: Any) -> str:
    return value.model_dump_json() if isinstance(value, BaseModel) else json.dumps(vars(value))


def test_the_run_has_the_output_too() -> None:
    run = run_of([GOOD])
    assert run.output is None
    asyncio.run(finished(run))
    assert run.output == GRAZ


def test_a_wire_without_schemas_gets_a_tool_after_the_agents_own() -> None:
    seen: list[ModelRequest] = []

    def script(request: ModelRequest, number: int) -> Any:
        seen.append(request)
        return call("look", {"q": "x"}) if number == 1 else call("final_answer", json.loads(GOOD))

    agent = lab.Agent(ScriptedProvider(script), tools=[look], output=Trip)
    result = asyncio.run(finished(agent.run("?")))
    assert [[tool.name for tool in one.tools] for one in seen] == [["look", "final_answer"]] * 2
    assert seen[0].output_schema is None
    assert "A day trip." in seen[0].tools[1].description
    assert list(agent.tools) == ["look"]
    assert [[one.name for one in step.tool_results] for step in result.history] == [["look"], ["final_answer"]]


def test_a_wire_with_schemas_gets_the_schema() -> None:
    seen: list[ModelRequest] = []

    def script(request: ModelRequest, number: int) -> Any:
        seen.append(request)
        return GOOD

    asyncio.run(finished(lab.Agent(Structured(script), tools=[look], output=Trip).run("?")))
    assert [tool.name for tool in seen[0].tools] == ["look"]
    assert seen[0].output_schema is not None
    assert seen[0].output_schema["required"] == ["city", "day", "eur"]


def test_calls_after_the_answer_are_dropped_and_those_before_it_are_executed() -> None:
    both = say("", calls=[call("look", {"q": "a"}).tool_calls[0], call("final_answer", json.loads(GOOD)).tool_calls[0]])
    result = result_of([both])
    assert [one.name for one in result.history[0].tool_results] == ["look", "final_answer"]
    assert result.output == GRAZ
    turned = say("", calls=list(reversed(both.tool_calls)))
    result = result_of([turned])
    assert [one.name for one in result.history[0].tool_results] == ["final_answer"]
    assert [one.name for one in result.messages[1].tool_calls] == ["final_answer"]


def test_no_person_is_asked_about_the_answer() -> None:
    asked: list[str] = []

    def approver(pending: Any) -> Approval:
        asked.append(pending.tool)
        return Approval.allow()

    result = result_of([call("look", {"q": "x"}), call("final_answer", json.loads(GOOD))], approve=True, approver=approver)
    assert (result.output, asked) == (GRAZ, ["look"])


def test_an_answer_that_was_cut_off_is_continued_and_then_checked() -> None:
    half = say(GOOD[:20], finish=FinishReason.MAX_TOKENS)
    result = result_of([half, GOOD[20:]], model=Structured)
    assert (result.output, len(result.history), len(result.history[0].calls)) == (GRAZ, 1, 2)


def test_a_streamed_answer_is_checked_whole() -> None:
    assert result_of([GOOD], model=Structured, stream=True).output == GRAZ


# Asked again ----------------------------------------------------------------------------------------------------------------


def test_a_text_that_does_not_fit_is_sent_back_with_the_problems() -> None:
    result = result_of([BAD, GOOD], model=Structured)
    assert (result.output, actions(result)) == (GRAZ, [Action.REJECT_OUTPUT, Action.COMPLETE])
    again = result.messages[2]
    assert again.role == "system"
    assert (
        again.text
        == "The answer does not fit Trip: day: Field required\nAnswer with JSON that fits the schema, and nothing else."
    )
    (rejected,) = [event for event in result.events if isinstance(event, events.OutputRejected)]
    assert (rejected.step, rejected.attempt, rejected.allowed, rejected.problems) == (1, 1, 2, "day: Field required")
    assert result.prompt == "Where to?"


def test_a_call_that_does_not_fit_gets_the_problems_as_its_result() -> None:
    result = result_of([call("final_answer", {"city": "graz"}), call("final_answer", json.loads(GOOD))])
    assert (result.output, actions(result)) == (GRAZ, [Action.REJECT_OUTPUT, Action.EXECUTE_TOOLS])
    first = result.history[0].tool_results[0]
    assert (first.error, first.content) == ("invalid_arguments", "The answer does not fit Trip: day: Field required")
    assert [message.role for message in result.messages] == ["user", "assistant", "tool", "assistant", "tool"]


def test_prose_where_the_answer_is_a_tool_call_is_asked_for_the_call() -> None:
    result = result_of(["To Graz.", call("final_answer", json.loads(GOOD))])
    assert result.output == GRAZ
    assert result.messages[2].text.endswith("Call the tool final_answer.")


@pytest.mark.parametrize(
    ("output", "text", "value"),
    [
        pytest.param(str, "To Graz.", "To Graz.", id="text"),
        pytest.param(str, '"To Graz."', "To Graz.", id="JSON"),
        pytest.param(str, "42", "42", id="a-number-as-text"),
        pytest.param(str, "[1] To Graz.", "[1] To Graz.", id="text-that-begins-as-a-list"),
        pytest.param(str, "```\n1\n```", "```\n1\n```", id="code"),
        pytest.param(Trip | str, "To Graz.", "To Graz.", id="union"),
        pytest.param(Trip | str, GOOD, GRAZ, id="union-the-other"),
        pytest.param(int | str, "42", 42, id="union-with-a-number"),
    ],
)
def test_plain_text_fits_a_type_that_accepts_text(output: Any, text: str, value: object) -> None:
    result = result_of([text], output=output)
    assert (result.output, result.stop_reason, len(result.history)) == (value, "completed", 1)


@pytest.mark.parametrize("output", [Trip | str, str])
def test_json_with_an_error_is_no_plain_text(output: Any) -> None:
    result = result_of(['{"city": "graz"', "To Graz."], output=output)
    assert (result.output, len(result.history)) == ("To Graz.", 2)


def test_a_validator_that_raises_is_a_problem_of_the_answer() -> None:
    result = result_of(['{"city": "Rome", "day": "2027-06-12"}', GOOD], model=Structured)
    assert result.output == GRAZ
    assert "its validation raised KeyError: 'rome'" in result.messages[2].text


@pytest.mark.parametrize("by", ["text", "tool"])
@pytest.mark.parametrize("retries", [0, 1, 3])
def test_an_answer_that_never_fits_ends_the_run_after_the_cap(by: str, retries: int) -> None:
    bad: Any = BAD if by == "text" else call("final_answer", {"city": "graz"})
    result = result_of([bad] * 9, output_retries=retries)
    assert (result.stop_reason, result.output, len(result.history)) == (S.INVALID_OUTPUT, None, retries + 1)
    answers = "1 answer" if retries == 0 else f"{retries + 1} answers"
    assert result.detail == f"{answers} did not fit Trip. The last one: day: Field required"
    assert result.truncated
    assert not result.terminated
    with pytest.raises(InvalidOutput, match="did not fit Trip") as raised:
        result.raise_for_stop()
    assert raised.value.result is result
    assert (result.history[-1].text or result.history[-1].tool_calls[0].arguments) == '{"city": "graz"}'


def test_other_steps_between_do_not_renew_the_cap() -> None:
    bad = call("final_answer", {})
    result = result_of(
        [bad, call("look", {"q": "x"}), bad, call("look", {"q": "y"}), bad, call("final_answer", json.loads(GOOD))]
    )
    assert (result.stop_reason, len(result.history)) == (S.INVALID_OUTPUT, 5)


def test_two_rejected_calls_of_one_answer_count_once_and_a_good_one_beside_them_counts() -> None:
    bad, good = call("final_answer", {}).tool_calls[0], call("final_answer", json.loads(GOOD)).tool_calls[0]
    result = result_of([say("", calls=[bad, bad]), say("", calls=[bad, good])], output_retries=1)
    assert (result.output, len(result.history)) == (GRAZ, 2)
    assert [event.attempt for event in result.events if isinstance(event, events.OutputRejected)] == [1]


def test_asking_again_counts_in_the_budget() -> None:
    result = result_of([BAD] * 9, budget=lab.Budget(max_turns=2), output_retries=5)
    assert (result.stop_reason, result.output, len(result.history)) == (S.TURN_LIMIT, None, 2)
    result = result_of([BAD] * 9, stop=lab.MaxTokensUsed(30), output_retries=5)
    assert (result.stop_reason, len(result.history)) == (S.STOP_CONDITION, 2)


def test_the_frames_show_it() -> None:
    result = result_of([BAD, GOOD])
    assert result.to_frame()["action"].tolist() == ["reject_output", "complete"]
    happened = result.to_frame("events").set_index("event")["detail"]
    assert happened["OutputRejected"] == "asked again, 1 of 2: day: Field required"
    termination = result.to_frame("termination")
    assert termination["reason"][0] == "The answer does not fit Trip; the model is asked again: day: Field required"


# Other ends -----------------------------------------------------------------------------------------------------------------


def test_a_condition_met_with_the_answer_does_not_hide_it() -> None:
    result = result_of([call("final_answer", json.loads(GOOD))], stop=lab.HasToolCall("final_answer"))
    assert (result.stop_reason, result.output, result.stopped_by_condition) == (S.TERMINATING_TOOL, GRAZ, True)


def test_the_output_of_a_tool_that_stops_the_run_is_of_the_type_or_none() -> None:
    @lab.tool(inline=True)
    def give_up(what: str) -> Any:
        """Give up."""
        return lab.Stop("given up", output={"city": "linz", "day": "2027-06-13"} if what == "trip" else "no trip")

    def result(what: str) -> lab.RunResult[Any]:
        agent = lab.Agent(ScriptedProvider([call("give_up", {"what": what})]), tools=[give_up], output=Trip)
        return asyncio.run(finished(agent.run("?")))

    assert result("trip").output == Trip(city="Linz", day=date(2027, 6, 13))
    assert result("x").output is None
    assert result("x").history[0].tool_results[0].stop == lab.Stop("given up", "no trip")


def test_a_filtered_answer_is_not_asked_for_again() -> None:
    result = result_of([say("", finish=FinishReason.CONTENT_FILTERED)])
    assert (result.stop_reason, result.output) == (S.CONTENT_FILTERED, None)


# Bad input ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", ["Trip", 3, object(), lambda: None, type("Plain", (), {})])
def test_a_type_that_cannot_be_checked_is_refused(given: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"Pass a class made from pydantic.BaseModel, a dataclass, a TypedDict"):
        lab.Agent(ScriptedProvider([]), output=given)


def test_the_error_for_no_type_shows_the_value_as_it_was_given() -> None:
    trip = Trip(city="Graz", day=date(2027, 6, 12), eur=2.5)
    for given, shown in (("Trip", "output='Trip': it is not a type"), (2.5, r"output=2\.5: "), (trip, r"eur=2\.5\): ")):
        with pytest.raises(ConfigurationError, match=shown):
            lab.Agent(ScriptedProvider([]), output=given)


def test_a_tool_of_the_reserved_name_is_refused() -> None:
    with pytest.raises(ToolDefinitionError, match=r"final_answer.*rename"):
        lab.Agent(ScriptedProvider([]), tools=[lab.tool(look.function, name="final_answer")], output=Trip)


@pytest.mark.parametrize("retries", [-1, 1.5, True, None])
def test_the_cap_is_a_whole_number(retries: Any) -> None:
    with pytest.raises(LimitError, match="output_retries="):
        lab.Agent(ScriptedProvider([]), output=Trip, output_retries=retries)


def test_terminating_tools_and_a_typed_answer_exclude_each_other() -> None:
    with pytest.raises(ConfigurationError, match="leave one of them out"):
        lab.Agent(ScriptedProvider([]), tools=[look], output=Trip, terminating=["look"])
    with pytest.raises(ConfigurationError, match="leave one of them out"):
        lab.Agent(ScriptedProvider([]), tools=[look], output=Trip).run("?", terminating=["look"])


# Replay, stores, forks, what-if ---------------------------------------------------------------------------------------------

TOOL_ANSWER = Answer(text=(), calls=(Call("final_answer", json.loads(GOOD)),), finish=FinishReason.TOOL_CALLS)


@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    ("wire", "answer"),
    [("openai", Answer(text=(GOOD,))), ("gemini", Answer(text=(GOOD,))), ("anthropic", TOOL_ANSWER), ("compatible", TOOL_ANSWER)],
)
def test_a_recorded_run_replays_with_its_output(tmp_path: Path, wire: str, answer: Answer, *, streaming: bool) -> None:
    replies = [reply_to(wire, one, streaming=streaming) for one in (Answer(text=("To Graz.",)), answer)]
    with serving(*replies) as server:
        with lab.record(tmp_path):
            run = agent_on(server, wire, output=Trip, stream=streaming).run("go")
        live = go(finished(run))
        with lab.replay(tmp_path):
            again = go(finished(agent_on(server, wire, key=None, output=Trip, stream=streaming).run("go")))
        assert len(server.asked) == 2
    assert live.output == again.output == GRAZ
    assert essence(live) == essence(again)
    assert actions(live)[0] is Action.REJECT_OUTPUT


def test_a_store_gives_the_output_back(tmp_path: Path) -> None:
    agent = lab.Agent(ScriptedProvider([BAD, GOOD]), output=Trip)
    with lab.Store(tmp_path / "runs.db") as store:
        run = agent.run("?", observers=[store])
        result = asyncio.run(finished(run))
        loaded = store.load(run.id, agent=agent)
        assert loaded.result is not None
        assert loaded.output == result.output == GRAZ
        assert [type(event) for event in loaded.events] == [type(event) for event in run.events]
        bare = store.load(run.id)
        assert bare.output == {"city": "Graz", "day": "2027-06-12", "eur": 0}


def test_a_run_resumed_from_a_store_counts_what_was_asked_before(tmp_path: Path) -> None:
    def agent(*script: Any) -> lab.Agent[Trip | None]:
        return lab.Agent(ScriptedProvider(list(script)), output=Trip)

    async def first_step(run: lab.Run[Any]) -> None:
        await run.step()

    with lab.Store(tmp_path / "runs.db") as store:
        run = agent(BAD).run("?", observers=[store])
        asyncio.run(first_step(run))
    with lab.Store(tmp_path / "runs.db") as store:
        resumed = store.resume(run.id, agent=agent(*[BAD] * 3, GOOD))
        result = asyncio.run(finished(resumed))
    assert (result.stop_reason, len(result.history)) == (S.INVALID_OUTPUT, 3)


def test_a_fork_has_a_typed_output_and_a_new_question_a_new_cap() -> None:
    run = run_of([BAD, BAD, BAD])
    assert asyncio.run(finished(run)).stop_reason is S.INVALID_OUTPUT
    branch = run.fork(at=3, message="Say the day as well.", agent=lab.Agent(ScriptedProvider([*[BAD] * 4, GOOD]), output=Trip))
    assert asyncio.run(finished(branch)).output == GRAZ
    retried = run.fork(at=2, agent=lab.Agent(ScriptedProvider([BAD, BAD, GOOD]), output=Trip))
    assert asyncio.run(finished(retried)).output == GRAZ
    assert [action.label for action in run.next_actions] == ["Edit the prompt and start again", "Repeat step 3"]


def test_what_if_counts_the_steps_that_asked_again() -> None:
    result = result_of([BAD, BAD, GOOD])
    frame = lab.backtest([result], lab.StepCountIs([2, 3]))
    assert (frame["stopped"].tolist(), frame["finished"].tolist()) == ([1, 0], [0, 1])
    tokens = [int(result.history.prefix(steps).tokens or 0) for steps in (2, 3)]
    assert frame["tokens_mean"].tolist() == tokens


def test_a_sub_agent_answers_its_caller_with_json() -> None:
    scout = lab.Agent(ScriptedProvider([GOOD]), output=Trip).as_tool("scout", "Plans a trip.")
    result = asyncio.run(finished(lab.Agent(ScriptedProvider([call("scout", {"task": "?"}), "Done."]), tools=[scout]).run("?")))
    assert '"city":"Graz"' in result.history[0].tool_results[0].content.replace('\\"', '"').replace('": "', '":"')


def test_an_agent_with_an_output_can_be_pickled() -> None:
    again = pickle.loads(pickle.dumps(lab.Agent("openai:gpt-5.4-mini", output=Bus | Walk)))
    assert again.output_type.read('{"answer": {"line": 7}}').value == Bus(7)
    assert repr(again) == "Agent(openai:gpt-5.4-mini, output=Bus | Walk, budget=Budget(max_turns=20))"

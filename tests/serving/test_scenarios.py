"""The endpoints and the methods in the same scenarios: a Chat in this process, and real HTTP."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

import agentlab as lab
from agentlab.engine.plan import LAST_ANSWER
from agentlab.limits.policies import NO_CONTINUATION
from agentlab.model.finish_reasons import FinishReason
from agentlab.model.messages import ModelRequest
from agentlab.serving.app import served
from agentlab.testing import ScriptedProvider, call, say
from tests.fixtures import scenarios
from tests.model.test_parts import picture

from .builders import FINISH, finalize, parrot, scripted, serving

Reply = dict[str, Any]


class Door:
    """A client's actions, by either access; each returns the reply as JSON."""

    def __init__(self, chat: lab.Chat, client: httpx.Client | None) -> None:
        self.kept = chat
        self.client = client

    def chat(self, **body: Any) -> Reply:
        return self._ask("/chat", self.kept.chat, body)

    def invoke(self, **body: Any) -> Reply:
        return self._ask("/chat/invoke", self.kept.invoke, body)

    def add_ai_message(self, **body: Any) -> Reply:
        return self._ask("/chat/add-ai-message", self.kept.add_ai_message, body)

    def ask(self, **body: Any) -> Reply:
        return self._ask("/chat/ask", self.kept.ask, body)

    def add_message(self, **body: Any) -> Reply:
        return self._ask("/chat/add-message", self.kept.add_message, body)

    def _ask(self, path: str, method: Any, body: dict[str, Any]) -> Reply:
        if self.client is None:
            return served(asyncio.run(method(**body))).model_dump(mode="json", exclude_unset=True)
        answer = self.client.post(path, json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()


@pytest.fixture(params=["methods", "http"])
def opened(request: pytest.FixtureRequest) -> Iterator[Callable[..., Door]]:
    with ExitStack() as stack:

        def door(agent: lab.Agent | lab.Chat) -> Door:
            chat = agent if isinstance(agent, lab.Chat) else lab.Chat(agent)
            client = stack.enter_context(serving(chat)) if request.param == "http" else None
            if client is None:
                stack.enter_context(chat)
            return Door(chat, client)

        yield door


def human(text: str) -> dict[str, str]:
    return {"sender": "human", "message": text}


def system(text: str) -> dict[str, str]:
    return {"sender": "system", "message": text}


def ai(text: str) -> dict[str, str]:
    return {"sender": "ai", "message": text}


def test_a_conversation_continues_in_its_context(opened: Callable[..., Door]) -> None:
    door = opened(parrot())
    assert door.chat(context_id="a", message="one")["response"] == "one"
    second = door.chat(context_id="a", message="two")
    assert second["response"] == "one | two"
    assert door.chat(context_id="b", message="three")["response"] == "three"
    assert second["generated_messages"] == [human("two"), ai("one | two")]
    assert second["messages"] == [{"role": "user", "content": "two"}, {"role": "assistant", "content": "one | two"}]
    assert (second["saved_ai_messages"], second["stop_reason"], second["notice"]) == (True, "completed", "")
    assert [message.text for message in door.kept.messages("a")] == ["one", "one", "two", "one | two"]
    assert door.kept.context_ids() == ["a", "b"]


def roles(request: ModelRequest, index: int) -> str:
    return " | ".join(f"{message.role}: {message.text}" for message in request.messages)


def test_a_request_without_a_context_is_not_stored(opened: Callable[..., Door]) -> None:
    door = opened(parrot())
    alone = door.ask(prompt="one")
    assert (alone["response"], alone["saved_ai_messages"]) == ("one", False)
    assert alone["generated_messages"] == [human("one"), ai("one")]
    assert door.kept.context_ids() == []


def test_a_context_is_run_unchanged(opened: Callable[..., Door]) -> None:
    door = opened(scripted(roles))
    door.add_message(context_id="a", message="Hello", role="user")
    first = door.invoke(context_id="a")
    assert (first["response"], first["generated_messages"]) == ("user: Hello", [ai("user: Hello")])
    assert first["saved_ai_messages"] is True
    assert door.invoke(context_id="a")["response"] == "user: Hello | assistant: user: Hello"
    assert [message.role for message in door.kept.messages("a")] == ["user", "assistant", "assistant"]


def test_a_run_cut_by_a_limit_continues_without_a_message(opened: Callable[..., Door]) -> None:
    script = lambda request, index: call("look") if len(request.messages) == 1 else "Done."  # noqa: E731
    door = opened(scripted(script, budget=lab.Budget(max_turns=1)))
    assert door.chat(context_id="a", message="go")["stop_reason"] == "turn_limit"
    assert door.invoke(context_id="a")["response"] == "Done."
    assert [message.role for message in door.kept.messages("a")] == ["user", "assistant", "tool", "assistant"]


def test_the_assistants_next_message_follows_the_instructions(opened: Callable[..., Door]) -> None:
    door = opened(scripted(roles))
    assert door.add_ai_message(context_id="a", prompt="Greet.")["generated_messages"][0] == human("Greet.")
    reply = door.add_ai_message(context_id="a", prompt="Say good bye.")
    assert reply["response"].endswith("Say good bye.")
    assert (reply["saved_ai_messages"], reply["stop_reason"]) == (True, "completed")
    assert reply["generated_messages"] == [human("Say good bye."), ai(reply["response"])]
    kept = door.kept.messages("a")
    assert [message.role for message in kept] == ["system", "assistant", "system", "assistant"]
    assert kept[-1].text == reply["response"]


def test_the_assistants_next_message_needs_no_instruction(opened: Callable[..., Door]) -> None:
    door = opened(scripted(roles))
    door.add_message(context_id="a", message="Hello", role="user")
    reply = door.add_ai_message(context_id="a")
    assert (reply["response"], reply["generated_messages"]) == ("user: Hello", [ai("user: Hello")])
    assert door.add_ai_message(context_id="a", prompt=None)["response"] == "user: Hello | assistant: user: Hello"
    assert [message.role for message in door.kept.messages("a")] == ["user", "assistant", "assistant"]


def test_an_inserted_assistant_message_is_sent_to_the_model(opened: Callable[..., Door]) -> None:
    door = opened(scripted(roles))
    added = door.add_message(context_id="a", message="Your parcel is here.")
    assert (added["response"], added["stop_reason"], added["generated_messages"]) == ("Your parcel is here.", None, [])
    assert added["saved_ai_messages"] is True
    assert added["messages"] == [{"role": "assistant", "content": "Your parcel is here."}]
    response_text = door.chat(context_id="a", message="Thanks")["response"]
    assert response_text == "assistant: Your parcel is here. | user: Thanks"


def test_tool_calls_and_results_are_returned_and_stored_in_order(opened: Callable[..., Door]) -> None:
    door = opened(parrot())
    reply = door.chat(context_id="a", message="look there")
    assert reply["generated_messages"] == [
        human("look there"),
        ai("I look."),
        {"type": "tool_call", "tool_call_id": "call_look", "tool_name": "look", "tool_input": {"q": "there"}},
        {"type": "tool_response", "tool_call_id": "call_look", "tool_output": "saw there"},
        ai("look there"),
    ]
    _, made, result, last_message = reply["messages"]
    assert (made["role"], made["content"]) == ("assistant", "I look.")
    assert made["tool_calls"] == [{"id": "call_look", "name": "look", "arguments": '{"q": "there"}'}]
    assert result["role"] == "tool"
    assert result["tool_results"] == [{"call_id": "call_look", "name": "look", "content": "saw there", "error": None}]
    assert last_message["content"] == reply["response"] == "look there"
    assert [message.role for message in door.kept.messages("a")] == ["user", "assistant", "tool", "assistant"]


@pytest.mark.parametrize(
    ("arguments", "given"),
    [
        ("", {}),
        ('{"q": {"a": [1, null]}}', {"q": {"a": [1, None]}}),
        ('{"q": 1e999}', {"raw": '{"q": 1e999}'}),
        ('{"q": NaN}', {"raw": '{"q": NaN}'}),
        ('["there"]', {"raw": '["there"]'}),
        ("there \ud83c", {"raw": "there \ufffd"}),
        ('{"q": ' + "[" * 300 + "]" * 300 + "}", {"raw": '{"q": ' + "[" * 300 + "]" * 300 + "}"}),
        ('{"q": "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789"}', {"q": "REDACTED"}),
    ],
    ids=["none", "nested", "infinite", "not-a-number", "list", "half-a-pair", "deep", "key"],
)
def test_any_arguments_of_a_model_are_a_tool_input(opened: Callable[..., Door], arguments: str, given: Any) -> None:
    reply = opened(scripted([call("look", arguments), "Done."])).ask(prompt="go")
    assert reply["generated_messages"][1]["tool_input"] == given


def test_a_terminating_tool_can_be_named_by_its_id(opened: Callable[..., Door]) -> None:
    door = opened(lab.Chat(parrot(), tool_ids={"7f3a": "finalize"}))
    reply = door.chat(context_id="a", message="finish", terminating_config={"tool_ids": ["7f3a"]})
    assert (reply["stop_reason"], reply["generated_messages"][1]["tool_name"]) == ("terminating_tool", "finalize")


def test_a_terminating_tool_gives_the_response(opened: Callable[..., Door]) -> None:
    door = opened(parrot())
    reply = door.chat(context_id="a", message="finish", terminating_config=FINISH)
    assert reply["stop_reason"] == "terminating_tool"
    assert reply["response"] == '{"answer":"finish"}'
    assert [message["role"] for message in reply["messages"]] == ["user", "assistant", "tool"]
    assert door.chat(context_id="a", message="and now")["response"] == "finish | and now"


def test_an_answer_without_a_call_is_nudged_a_limited_number_of_times(opened: Callable[..., Door]) -> None:
    terminating = lab.TerminatingTools(["finalize"], consecutive_nudges=2, nudge_message="Call it!")
    door = opened(scripted(lambda request, index: f"words {index}", terminating=terminating))
    reply = door.chat(context_id="a", message="go")
    assert reply["stop_reason"] == "nudges_exhausted"
    assert reply["detail"] == "Max consecutive nudges exceeded: 2 of 2, and no terminating tool was called."
    assert reply["notice"] == f"[{reply['detail']}]"
    assert reply["response"] == f"words 3\n\n{reply['notice']}"
    nudge = system("Call it!")
    assert reply["generated_messages"] == [human("go"), ai("words 1"), nudge, ai("words 2"), nudge, ai("words 3")]
    assert [message["role"] for message in reply["messages"]][1:3] == ["assistant", "system"]


def test_a_reminder_that_is_answered_with_the_call_is_of_the_system(opened: Callable[..., Door]) -> None:
    script = ["I think so.", call("finalize", {"answer": "yes"})]
    reply = opened(scripted(script)).chat(
        context_id="a", message="go", terminating_config={**FINISH, "nudge_message": "Call it!"}
    )
    assert reply["stop_reason"] == "terminating_tool"
    assert reply["generated_messages"][:3] == [human("go"), ai("I think so."), system("Call it!")]


def test_an_unanswered_reminder_is_not_stored(opened: Callable[..., Door]) -> None:
    door = opened(scripted(lambda request, index: f"words {index}", budget=lab.Budget(max_turns=1)))
    reply = door.chat(context_id="a", message="go", terminating_config=FINISH)
    assert reply["stop_reason"] == "turn_limit"
    assert [message.role for message in door.kept.messages("a")] == ["user", "assistant"]


def test_the_request_for_a_last_answer_is_not_stored(opened: Callable[..., Door]) -> None:
    def script(request: Any, index: int) -> Any:
        return say("so far") if request.parameters.tool_choice == "none" else call("look", {"q": str(index)})

    door = opened(scripted(script, budget=lab.Budget(max_turns=2, last_answer=0.5)))
    reply = door.chat(context_id="a", message="go")
    assert reply["response"] == f"so far\n\n{reply['notice']}"
    assert reply["notice"].startswith("[Budget reached: max_turns")
    assert reply["generated_messages"][-2] == system(LAST_ANSWER)
    assert [message.role for message in door.kept.messages("a")] == ["user", "assistant", "tool", "assistant"]


def test_calls_are_limited_by_max_invocations(opened: Callable[..., Door]) -> None:
    script = lambda request, index: call("look", {"q": str(index)}, text=f"try {index}")  # noqa: E731
    door = opened(scripted(script, terminating=lab.TerminatingTools(["finalize"], max_invocations=3)))
    reply = door.ask(prompt="go")
    assert reply["detail"] == "Max invocations exceeded: 3 of 3, and no terminating tool was called."
    assert (reply["stop_reason"], reply["response"]) == ("call_limit", f"try 3\n\n[{reply['detail']}]")
    assert len([message for message in reply["messages"] if message["role"] == "assistant"]) == 3


LIMITS: dict[str, tuple[dict[str, Any], str]] = {
    "turns": ({"budget": lab.Budget(max_turns=2)}, "turn_limit"),
    "calls": ({"budget": lab.Budget(max_calls=2)}, "call_limit"),
    "tokens": ({"budget": lab.Budget(max_tokens=2)}, "token_budget"),
    "cost": ({"budget": lab.Budget(max_cost=0.02)}, "cost_budget"),
    "time": ({"budget": lab.Budget(timeout=0.2)}, "timeout"),
    "condition": ({"stop": lab.StepCountIs(2)}, "stop_condition"),
}


@pytest.mark.parametrize(("limit", "stop_reason"), LIMITS.values(), ids=LIMITS.keys())
def test_a_limit_is_an_outcome_and_the_notice_says_so(
    opened: Callable[..., Door], limit: dict[str, Any], stop_reason: str
) -> None:
    def script(request: ModelRequest, index: int) -> Any:
        if index == 3:  # only the timeout is not reached before
            time.sleep(0.3)
        return call("look", {"q": str(index)}, text="on it", tokens=(1, 0), cost="0.01")

    door = opened(scripted(script, **limit))
    reply = door.chat(context_id="a", message="go")
    assert (reply["stop_reason"], reply["notice"]) == (stop_reason, f"[{reply['detail']}]")
    assert reply["response"] == f"on it\n\n{reply['notice']}"
    if stop_reason == "timeout":
        return
    assert [message.role for message in door.kept.messages("a")] == ["user", "assistant", "tool", "assistant", "tool"]


def test_an_answer_that_remains_cut_says_so_and_is_stored_unchanged(opened: Callable[..., Door]) -> None:
    cut = say("Night trains are coming ba", finish=FinishReason.MAX_TOKENS)
    door = opened(scripted([cut], continuation=NO_CONTINUATION))
    reply = door.chat(context_id="a", message="go")
    assert reply["stop_reason"] == "truncated"
    assert reply["response"] == f"Night trains are coming ba\n\n[{reply['detail']}]"
    assert reply["notice"] == f"[{reply['detail']}]"
    assert door.kept.messages("a")[-1].text == "Night trains are coming ba"


def test_an_answer_cut_by_the_budget_says_so(opened: Callable[..., Door]) -> None:
    cut = say("Night trains are coming ba", finish=FinishReason.MAX_TOKENS)
    reply = opened(scripted([cut], budget=lab.Budget(max_calls=1))).ask(prompt="go")
    assert reply["response"] == f"Night trains are coming ba\n\n[{reply['detail']}]"


@pytest.mark.parametrize("budget", [lab.Budget(max_calls=1), lab.Budget(max_tokens=1)], ids=["calls", "tokens"])
@pytest.mark.parametrize(
    "cut", [say("Night trains are coming ba", finish=FinishReason.MAX_TOKENS), call("look", '{"q": "tr', text="I")]
)
def test_the_budgets_cut_is_in_the_detail(opened: Callable[..., Door], cut: Any, budget: lab.Budget) -> None:
    reply = opened(scripted([cut], budget=budget, stream=True)).ask(prompt="go")
    assert reply["stop_reason"] in ("call_limit", "token_budget")
    assert "cut off" in reply["detail"]
    assert reply["notice"] == f"[{reply['detail']}]"
    assert reply["response"] == f"{cut.text}\n\n[{reply['detail']}]"


def test_a_continued_cut_answer_is_complete(opened: Callable[..., Door]) -> None:
    script = [say("Night trains are coming ba", finish=FinishReason.MAX_TOKENS), say("ck.")]
    reply = opened(scripted(script)).chat(context_id="a", message="go")
    assert (reply["stop_reason"], reply["response"]) == ("completed", "Night trains are coming back.")
    assert reply["generated_messages"] == [human("go"), ai("Night trains are coming back.")]


def test_a_request_without_an_answer_leaves_the_context_unchanged(opened: Callable[..., Door]) -> None:
    door = opened(scripted([say("", finish=FinishReason.CONTENT_FILTERED)]))
    door.add_message(context_id="a", message="Hello")
    reply = door.chat(context_id="a", message="something bad")
    assert reply["stop_reason"] == "content_filtered"
    assert reply["saved_ai_messages"] is False
    assert [message.text for message in door.kept.messages("a")] == ["Hello"]


def test_invalid_unicode_is_stored_unchanged_and_sent_in_a_valid_form(opened: Callable[..., Door]) -> None:
    door = opened(scripted(["half \ud83c a pair"]))
    assert door.chat(context_id="a", message="go")["response"] == "half \ufffd a pair"
    assert door.kept.messages("a")[-1].text == "half \ud83c a pair"


@pytest.mark.parametrize("model", ["openai:gpt-5.4-mini", "anthropic:claude-sonnet-4-6", "gemini:gemini-3.5-flash"])
def test_recorded_providers_converse(opened: Callable[..., Door], model: str) -> None:
    agent = lab.Agent(model, tools=[scenarios.get_weather, finalize])
    with lab.replay("fixtures/question", match="order"):
        door = opened(lab.Chat(agent))
    first = door.chat(context_id="a", message="Do I need an umbrella in Graz on Saturday, 12 June 2027?")
    assert first["stop_reason"] == "completed"
    assert [message["role"] for message in first["messages"]] == ["user", "assistant", "tool", "assistant"]
    assert first["generated_messages"][-1] == ai(first["response"]) != ai("")
    second = door.chat(context_id="a", message="Are you sure?")  # continues from stored messages in the provider's native form
    assert second["response"] == first["response"]
    kept = door.kept.messages("a")
    assert len(kept) == 8
    assert kept[1].native is not None


# Images and files -------------------------------------------------------------------------------------------------------------


def test_a_message_in_code_may_have_images_and_files(tmp_path: Path) -> None:
    image = lab.Image(picture())
    seen: list[ModelRequest] = []

    def answer(request: ModelRequest, index: int) -> Any:
        seen.append(request)
        return say("A square.")

    async def main() -> None:
        agent = lab.Agent(ScriptedProvider(answer))
        with lab.Chat(agent, path=tmp_path / "chat.sqlite") as chat:
            reply = await chat.chat("anna", ["What is", image])
            assert reply.generated_messages[0] == {"sender": "human", "message": f"What is\n{image.text}"}
            await chat.add_message("anna", [image, "again"], role="user")
            await chat.ask([image])
        with lab.Chat(agent, path=tmp_path / "chat.sqlite") as again:
            assert [message.pieces for message in again.messages("anna")] == [["What is", image], ["A square."], [image, "again"]]
            await again.chat("anna", "And now?")
        assert [part.data for part in seen[-1].messages[0].parts] == [image.data]
        assert seen[1].messages[0].parts == (image,)

    asyncio.run(main())


NO_MESSAGE: dict[str, tuple[Any, str]] = {
    "bytes": ([b"abc"], r"message=\[…\]: b'abc' is neither text nor a part: use lab\.Image"),
    "nothing": ([], "message='': pass a non-empty text"),
    "half a character": (["\ud800", lab.Image(picture())], "contains half a surrogate pair"),
    "a part alone": (lab.Image(picture()), r"message=.*: pass a non-empty text"),
}


@pytest.mark.parametrize(("message", "says"), NO_MESSAGE.values(), ids=NO_MESSAGE.keys())
def test_a_message_that_is_none_is_refused(message: Any, says: str) -> None:
    with lab.Chat(parrot()) as chat, pytest.raises(lab.errors.ChatInputError, match=says):
        asyncio.run(to_the_end(chat.chat("anna", message)))


def test_only_the_user_has_images() -> None:
    with lab.Chat(parrot()) as chat, pytest.raises(lab.errors.ChatInputError, match=r"message=.*: pass a non-empty text"):
        asyncio.run(to_the_end(chat.add_message("anna", ["See", lab.Image(picture())])))


async def to_the_end(work: Any) -> Any:
    return await work

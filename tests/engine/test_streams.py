"""A stream emits its text as it arrives; a broken stream is an error that keeps the paid text and runs no tool."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from fake_time import OwnTime
from providers import responses_bodies
from providers.bodies import READERS, WIRES, Answer, Call, sse

import agentlab as lab
from agentlab.engine.client import KEPT_ALIVE, LONGEST_SILENCE_S
from agentlab.model.finish_reasons import Confidence, FinishReason, StopReason
from agentlab.notebook.page.steps import Shown, step_html
from agentlab.records.events import ArgumentsReceived, AskedAgain, Event, TextReceived, ToolStarted
from agentlab.testing.fault_bodies import injected_answer, with_body

from .call_builders import (
    HELLO,
    agent,
    before_the_end,
    finished,
    go,
    looked,
    pieces,
    reply_to,
    result_of,
    retried,
    stream_bytes,
    texts,
    whole_body,
)
from .server import JSON_TYPE, SSE_TYPE, Reply, cut, pausing, raw, serving, status, stream, whole, zipped

TALK_AND_LOOK = Answer(text=("Let me ", "see"), calls=(Call("look", {"q": "tea"}),), finish=FinishReason.TOOL_CALLS)


@pytest.fixture(autouse=True)
def _forget() -> None:
    looked.clear()


# While streaming ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("kind", [SSE_TYPE, JSON_TYPE, ("x-no-type", "1")], ids=["events", "mislabelled as JSON", "no type"])
def test_text_is_emitted_before_the_stream_ends(wire: str, kind: tuple[str, str]) -> None:
    seen: list[Event] = []

    def observe(event: Event) -> None:
        seen.append(event)
        if isinstance(event, TextReceived):
            server.go.set()

    with serving(pausing(*before_the_end(wire, HELLO), kind)) as server:
        result = result_of(server, wire, stream=True, observers=[observe])
        assert not server.waited_in_vain
    assert texts(seen) == ["Hel", "lo ", "there"]
    assert {event.step for event in seen if isinstance(event, TextReceived)} == {1}
    assert (result.text, result.usage.total_tokens) == ("Hello there", 15)
    assert texts(result.events) == []  # not kept


RECORDED = Path(__file__).parents[2] / "fixtures" / "question"
MODELS = {
    "anthropic": "anthropic:claude-sonnet-4-6", "bedrock": "bedrock:us.anthropic.claude-sonnet-4-5-20250929-v1:0",
    "gemini": "gemini:gemini-3.5-flash",
    "openai": "openai:gpt-5.4-mini", "openai-responses": "openai-responses:gpt-5.4-mini", "openrouter": "openrouter:qwen/qwen3.6-27b",
}  # fmt: skip


@pytest.mark.parametrize("wire", MODELS)
def test_arguments_are_emitted_piece_by_piece(wire: str) -> None:
    def get_weather(city: str, day: str) -> str:
        """The weather forecast for a city."""
        return "rain"

    seen: list[Event] = []
    with lab.replay(RECORDED / f"{wire}-stream.yaml", match="order"):
        agent = lab.Agent(MODELS[wire], tools=[get_weather], stream=True)
        run = agent.run("Do I need an umbrella in Graz on Saturday, 12 June 2027?", observers=[seen.append])
        run.start()
        result = run.wait(10)
    assert result is not None
    pieces = [event for event in seen if isinstance(event, ArgumentsReceived)]
    called = result.history[0].tool_calls[0]
    assert {(event.tool, event.step, event.place, event.call) for event in pieces} == {(called.name, 1, 0, 1)}
    assert json.loads("".join(event.text for event in pieces)) == json.loads(called.arguments)
    assert not any(isinstance(event, ArgumentsReceived) for event in result.events)


def chunk_of(part: dict[str, Any]) -> dict[str, Any]:
    return {"candidates": [{"content": {"role": "model", "parts": [part]}}], "responseId": "r1"}


def gemini_stream(*parts: dict[str, Any], finish: str = "STOP") -> bytes:
    return sse([*map(chunk_of, parts), {"candidates": [{"finishReason": finish}], "responseId": "r1"}])


def in_pieces(*texts: str, more: bool = True) -> list[dict[str, Any]]:
    """The parts of a call of `look`, whose argument arrives in these pieces."""
    begin = {"functionCall": {"name": "look", "willContinue": True}, "thoughtSignature": "c2lnbg=="}
    found = [{"jsonPath": "$.q", "stringValue": text, "willContinue": True} for text in texts]
    if not more:
        del found[-1]["willContinue"]
    return [begin, *({"functionCall": {"partialArgs": [piece], "willContinue": True}} for piece in found)]


STREAM_ARGUMENTS = {"toolConfig": {"functionCallingConfig": {"streamFunctionCallArguments": True}}}


def test_a_call_whose_arguments_arrive_in_pieces_is_executed_and_sent_back_whole() -> None:
    begin, first, *rest = in_pieces("black ", "tea", more=False)
    before, after = sse([chunk_of(begin), chunk_of(first)]), gemini_stream(*rest, {"functionCall": {}})
    seen: list[Event] = []

    def observe(event: Event) -> None:
        seen.append(event)
        if isinstance(event, ArgumentsReceived) and event.text:
            server.go.set()

    with serving(pausing(before, after), reply_to("gemini", HELLO, streaming=True)) as server:
        result = result_of(server, "gemini", stream=True, observers=[observe], options=STREAM_ARGUMENTS)
        assert not server.waited_in_vain  # the first piece was emitted before the second one was sent
    assert (result.stop_reason, result.text, looked) == (StopReason.COMPLETED, "Hello there", ["black tea"])
    assert [event.text for event in seen if isinstance(event, ArgumentsReceived)] == ["", '{"q":"black ', 'tea"', "}"]
    asked, again = (request.json for request in server.asked)
    assert asked["toolConfig"] == STREAM_ARGUMENTS["toolConfig"]
    assert again["contents"][1] == {
        "role": "model",
        "parts": [{"functionCall": {"name": "look", "args": {"q": "black tea"}}, "thoughtSignature": "c2lnbg=="}],
    }
    (response,) = again["contents"][2]["parts"]
    assert response["functionResponse"]["response"] == {"output": "saw black tea"}


@pytest.mark.parametrize("finish", ["STOP", "MAX_TOKENS"])
def test_a_call_cut_within_a_piece_is_repaired_and_never_executed(finish: str) -> None:
    half, whole_call = in_pieces("black ", "te"), in_pieces("black ", "tea", more=False)
    replies = [stream(gemini_stream(*half, finish=finish)), stream(gemini_stream(*whole_call))]
    with serving(*replies, reply_to("gemini", HELLO, streaming=True)) as server:
        result = result_of(server, "gemini", stream=True)
    assert (result.stop_reason, looked, len(result.history[0].calls)) == (StopReason.COMPLETED, ["black tea"], 2)
    assert all("willContinue" not in json.dumps(request.json) for request in server.asked)


@pytest.mark.parametrize("wire", WIRES)
def test_a_stream_that_calls_a_tool(wire: str) -> None:
    seen: list[Event] = []
    with serving(reply_to(wire, TALK_AND_LOOK, streaming=True), reply_to(wire, HELLO, streaming=True)) as server:
        result = result_of(server, wire, stream=True, observers=[seen.append])
    assert (result.stop_reason, result.text, looked) == (StopReason.COMPLETED, "Hello there", ["tea"])
    assert texts(seen) == ["Let me ", "see", "Hel", "lo ", "there"]
    assert [step.usage.total_tokens for step in result.history] == [15, 15]


@pytest.mark.parametrize("wire", WIRES)
def test_a_gzip_stream_is_read(wire: str) -> None:
    with serving(zipped(stream_bytes(wire, HELLO), SSE_TYPE)) as server:
        assert result_of(server, wire, stream=True).text == "Hello there"


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_chunks_of_any_size_are_read(wire: str, size: int) -> None:
    body = stream_bytes(wire, Answer(text=("Gr", "üße 🌊")))
    with serving(stream(*[body[at : at + size] for at in range(0, len(body), size)])) as server:
        seen: list[Event] = []
        assert result_of(server, wire, stream=True, observers=[seen.append]).text == "Grüße 🌊"
    assert texts(seen) == ["Gr", "üße 🌊"]


@pytest.mark.parametrize("wire", WIRES)
def test_an_event_over_a_megabyte_is_read(wire: str) -> None:
    long = "x" * 3_000_000
    with serving(reply_to(wire, Answer(text=("a", long)), streaming=True)) as server:
        assert result_of(server, wire, stream=True).text == f"a{long}"


# Broken streams -------------------------------------------------------------------------------------------------------------

ENDS = {"closed in order": "end", "reset in mid-body": "leave", "reset": "reset"}


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_a_broken_stream_keeps_its_text_and_is_not_retried(wire: str, end: str) -> None:
    before, _ = before_the_end(wire, HELLO)
    seen: list[Event] = []
    with serving(stream(before, end=end), reply_to(wire, HELLO, streaming=True)) as server:
        result = result_of(server, wire, stream=True, observers=[seen.append])
    assert (len(server.asked), retried(result)) == (1, [])
    assert (result.stop_reason, result.text) == (StopReason.ERROR, "Hello there")
    assert texts(seen) == ["Hel", "lo ", "there"]
    ((call,),) = [step.calls for step in result.history]
    signal = call.response.signal
    assert (signal.finish_reason, signal.confidence, call.retries) == (FinishReason.ERROR, Confidence.LOW, 0)
    assert result.detail == signal.message
    assert "broke off" in result.detail
    assert (result.usage.output_tokens, result.usage.total_tokens) == (None, None)  # interim counts are not a total
    assert result.messages[-1].text == "Hello there"


@pytest.mark.parametrize("wire", READERS)
@pytest.mark.parametrize(
    "before", [(), (b": working\n\n", b"\n"), (b'data: {"id": "r1", "mo',)], ids=["no byte", "comments", "half an event"]
)
@pytest.mark.parametrize("end", ["leave", "reset"])
def test_a_stream_that_breaks_before_any_content_is_retried(wire: str, before: tuple[bytes, ...], end: str) -> None:
    with serving(stream(*before, end=end), reply_to(wire, HELLO, streaming=True)) as server:
        result = result_of(server, wire, stream=True)
    assert (len(server.asked), result.stop_reason, result.text) == (2, StopReason.COMPLETED, "Hello there")
    (event,) = retried(result)
    assert "broke off" in event.reason


@pytest.mark.parametrize("wire", WIRES)
def test_an_empty_stream_is_retried(wire: str) -> None:
    """Like a stream that breaks off before any content: an overloaded server may end it properly."""
    with serving(stream(), reply_to(wire, HELLO, streaming=True)) as server:
        result = result_of(server, wire, stream=True)
    assert (len(server.asked), result.stop_reason, result.text) == (2, StopReason.COMPLETED, "Hello there")
    (event,) = retried(result)
    assert "the connection closed before any part of the answer arrived" in event.reason


@pytest.mark.parametrize("wire", READERS)
@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_no_tool_of_a_broken_stream_is_run(wire: str, end: str) -> None:
    """At any break before the finish reason, even if the whole call has arrived."""
    before, _ = before_the_end(wire, TALK_AND_LOOK)
    events = [event + b"\n\n" for event in before.split(b"\n\n") if event]
    for count in range(1, len(events) + 1):
        with serving(stream(b"".join(events[:count]), end=end)) as server:
            result = result_of(server, wire, stream=True)
        assert result.stop_reason is StopReason.ERROR
        assert result.text in ("", "Let me ", "Let me see")
        assert not any(isinstance(event, ToolStarted) for event in result.events)
        answered = [one for message in result.messages for one in message.tool_results]
        assert {one.error for one in answered} <= {"not_executed"}
        whole_calls = [one for message in result.messages for one in message.tool_calls]
        assert len(whole_calls) == len(answered)
    assert looked == []


@pytest.mark.parametrize("wire", ["openai", "compatible", "anthropic"])
@pytest.mark.parametrize("end", ["leave", "reset"])
def test_a_stream_that_breaks_after_its_last_event_is_complete(wire: str, end: str) -> None:
    replies = [stream(*pieces(wire, answer), end=end) for answer in (TALK_AND_LOOK, HELLO)]
    with serving(*replies) as server:
        result = result_of(server, wire, stream=True)
    assert (result.stop_reason, result.text, looked) == (StopReason.COMPLETED, "Hello there", ["tea"])
    assert result.usage.total_tokens == 30


FINISHED = {
    "closed in order": ("end", StopReason.COMPLETED, ["tea"]),
    "reset in mid-body": ("leave", StopReason.ERROR, []),
    "reset": ("reset", StopReason.ERROR, []),
}


@pytest.mark.parametrize("wire", ["openai", "compatible"])
@pytest.mark.parametrize(("end", "expected", "run"), FINISHED.values(), ids=FINISHED)
def test_a_stream_without_its_last_event_after_the_finish_reason(
    wire: str, end: str, expected: StopReason, run: list[str]
) -> None:
    """Some servers omit the last event; a broken connection is different."""
    with serving(stream(*pieces(wire, TALK_AND_LOOK)[:-1], end=end), stream(*pieces(wire, HELLO)[:-1])) as server:
        result = result_of(server, wire, stream=True)
    assert (result.stop_reason, looked) == (expected, run)
    assert result.history[0].usage.total_tokens == 15
    assert result.history[0].signal is not None
    assert result.history[0].signal.confidence is (Confidence.MEDIUM if run else Confidence.LOW)


def test_a_stream_that_lost_its_tool_call_is_an_error() -> None:
    events = [event for event in pieces("compatible", TALK_AND_LOOK) if b'tool_calls": [' not in event]
    lost = b'data: {"id": }\n\n'
    with serving(stream(*events[:3], lost, *events[3:])) as server:
        result = result_of(server, stream=True, retry=lab.RetryPolicy(attempts=1))
    assert (result.stop_reason, result.text, looked) == (StopReason.ERROR, "Let me see", [])
    assert isinstance(result.error, lab.errors.ProviderStreamError)
    assert "no retry is allowed" in result.detail


# Lost events ------------------------------------------------------------------------------------------------------------------

PAY = Answer(text=("pay 100 ", "NOT ", "to Bob"))
MARKED = "pay 100 [… part of the stream was lost here …] to Bob"


def holed(wire: str, answer: Answer = PAY, piece: bytes = b"NOT ") -> Reply:
    """The answer as a stream in which the event with this piece is unreadable."""
    return stream(*[b'data: {"id": \n\n' if piece in event else event for event in pieces(wire, answer)])


def asked_again(result: lab.RunResult) -> list[AskedAgain]:
    return [event for event in result.events if isinstance(event, AskedAgain)]


@pytest.mark.parametrize("wire", WIRES)
def test_an_answer_with_a_lost_piece_is_retried(wire: str) -> None:
    seen: list[Event] = []
    with serving(holed(wire), reply_to(wire, PAY, streaming=True)) as server:
        result = result_of(server, wire, stream=True, observers=[seen.append])
    assert (result.stop_reason, result.text) == (StopReason.COMPLETED, "pay 100 NOT to Bob")
    assert server.asked[0].body == server.asked[1].body
    ((first, second),) = [step.calls for step in result.history]
    assert (first.used, first.response.text, first.usage.total_tokens) == (False, "pay 100 to Bob", 15)
    assert (second.used, second.index, second.response.holes) == (True, 2, ())
    assert first.decision is not None
    assert first.decision.action is lab.Action.ASK_AGAIN
    assert result.usage.total_tokens == 30  # both were paid for
    (event,) = asked_again(result)
    assert (event.step, event.call, event.attempt, event.remaining, event.holes) == (1, 1, 1, 1, first.response.holes)
    assert [message.text for message in result.messages] == ["go", "pay 100 NOT to Bob"]
    kinds = [type(event).__name__ for event in seen if isinstance(event, AskedAgain | TextReceived)]
    assert kinds == ["TextReceived"] * 2 + ["AskedAgain"] + ["TextReceived"] * 3
    assert {event.call for event in seen if isinstance(event, TextReceived)} == {1, 2}
    calls, steps = result.to_frame("calls"), result.to_frame()
    assert calls["used"].to_list() == [False, True]
    assert calls["holes"].fillna("").to_list() == ["at character 8: an event could not be read (7 bytes)", ""]
    assert steps["holes"].to_list() == [0]


@pytest.mark.parametrize("wire", WIRES)
def test_an_answer_with_a_gap_is_never_complete(wire: str) -> None:
    with serving(*[holed(wire)] * 9) as server:
        result = result_of(server, wire, stream=True)
    assert (len(server.asked), len(asked_again(result))) == (3, 2)
    assert (result.stop_reason, result.text) == (StopReason.ERROR, "pay 100 to Bob")
    assert isinstance(result.error, lab.errors.ProviderStreamError)
    assert "at character 8" in result.detail
    assert "2 retries did not give a complete one" in result.detail
    (step,) = result.history
    assert [call.used for call in step.calls] == [False, False, True]
    assert [hole.place for hole in step.holes] == [8]
    assert (step.error, step.decision.suggestion) == (result.error, "retry")
    assert "holes=1" in repr(step)
    assert result.usage.total_tokens == 45
    assert result.to_frame()["holes"].to_list() == [1]
    with pytest.raises(lab.errors.RunFailed):
        result.raise_for_stop()


@pytest.mark.parametrize(
    ("more", "calls", "words"),
    [
        pytest.param({"retry": lab.RetryPolicy(attempts=1)}, 1, "no retry is allowed", id="no retry"),
        pytest.param(
            {"retry": lab.RetryPolicy(attempts=2, first_wait_s=0)}, 2, "1 retry did not give a complete one", id="one retry"
        ),
        pytest.param({"budget": lab.Budget(max_calls=2)}, 2, "the budget leaves no call", id="two calls"),
        pytest.param({"budget": lab.Budget(max_tokens=20)}, 2, "the budget leaves no call", id="tokens"),
    ],
)
def test_an_answer_with_a_gap_is_retried_within_the_limits(more: dict[str, Any], calls: int, words: str) -> None:
    with serving(*[holed("compatible")] * 9) as server:
        result = result_of(server, stream=True, **more)
    assert (len(server.asked), result.stop_reason) == (calls, StopReason.ERROR)
    assert words in result.detail


def test_if_the_retry_fails_the_received_text_is_kept() -> None:
    with serving(holed("compatible"), status(400)) as server:
        result = result_of(server, stream=True)
    assert (result.stop_reason, result.text) == (StopReason.ERROR, "pay 100 to Bob")
    assert isinstance(result.error, lab.errors.ProviderStreamError)
    assert isinstance(result.error.__cause__, lab.errors.ProviderStatusError)
    assert "a retry failed" in result.detail


def test_a_recording_without_a_second_answer_ends_with_the_error(tmp_path: Path) -> None:
    with serving(holed("compatible")) as server, lab.record(tmp_path / "once.yaml"):
        first = result_of(server, stream=True, retry=lab.RetryPolicy(attempts=1))
    with lab.replay(tmp_path / "once.yaml"):
        again = result_of(server, stream=True)
    assert first.stop_reason is again.stop_reason is StopReason.ERROR
    assert first.text == again.text == "pay 100 to Bob"
    assert isinstance(again.error, lab.errors.ProviderStreamError)
    assert "the recording has no other answer" in again.detail
    assert [call.used for call in again.history[0].calls] == [True]


def test_a_recording_of_both_answers_replays_both(tmp_path: Path) -> None:
    with serving(holed("compatible"), reply_to("compatible", PAY, streaming=True)) as server, lab.record(tmp_path / "two.yaml"):
        live = result_of(server, stream=True)
    with lab.replay(tmp_path / "two.yaml"):
        again = result_of(server, stream=True)
    assert again.text == live.text == "pay 100 NOT to Bob"
    assert [call.used for call in again.history[0].calls] == [False, True]


@pytest.mark.parametrize("wire", ["openai", "anthropic"])
def test_a_call_with_a_lost_piece_is_retried_and_not_run(wire: str) -> None:
    look = Answer(text=("Let me see",), calls=(Call("look", {"q": "all that you can find"}),), finish=FinishReason.TOOL_CALLS)
    replies = [holed(wire, look, b"t you c"), reply_to(wire, look, streaming=True), reply_to(wire, HELLO, streaming=True)]
    with serving(*replies) as server:
        result = result_of(server, wire, stream=True)
    assert looked == ["all that you can find"]
    assert (result.stop_reason, result.text) == (StopReason.COMPLETED, "Hello there")
    assert server.asked[0].body == server.asked[1].body


def test_a_continuation_with_a_lost_piece_is_retried() -> None:
    begun = Answer(text=("I say: ",), finish=FinishReason.MAX_TOKENS)
    replies = [reply_to("compatible", begun, streaming=True), holed("compatible"), reply_to("compatible", PAY, streaming=True)]
    with serving(*replies) as server:
        result = result_of(server, stream=True)
    assert (result.stop_reason, result.text) == (StopReason.COMPLETED, "I say: pay 100 NOT to Bob")
    assert [call.used for call in result.history[0].calls] == [True, False, True]
    assert server.asked[1].body == server.asked[2].body
    with serving(replies[0], *[holed("compatible")] * 3) as server:
        broken = result_of(server, stream=True)
    assert (broken.stop_reason, broken.text) == (StopReason.ERROR, "I say: pay 100 to Bob")
    assert [hole.place for hole in broken.history[0].holes] == [15]
    assert broken.messages[-1].text == "I say: pay 100 to Bob"


def test_a_cut_answer_with_a_gap_is_retried_instead_of_continued() -> None:
    cut_off = Answer(text=PAY.text, finish=FinishReason.MAX_TOKENS)
    with serving(holed("compatible", cut_off), reply_to("compatible", PAY, streaming=True)) as server:
        result = result_of(server, stream=True)
    assert result.text == "pay 100 NOT to Bob"
    assert server.asked[0].body == server.asked[1].body


def test_a_policy_may_accept_the_text_with_a_gap() -> None:
    with serving(holed("compatible")) as server:
        run = agent(server, stream=True).run("go", policy=lab.termination.lenient)
        result = go(finished(run))
    assert (len(server.asked), result.stop_reason, result.text) == (1, StopReason.COMPLETED, "pay 100 to Bob")
    assert result.detail.startswith("Accepted as it is: ")
    assert [hole.place for hole in result.history[0].holes] == [8]


def test_a_custom_signal_does_not_make_it_complete() -> None:
    undo = lab.signals.register("compatible", lambda body: lab.TerminationSignal(FinishReason.END_TURN, Confidence.HIGH))
    try:
        with serving(*[holed("compatible")] * 3) as server:
            assert result_of(server, stream=True).stop_reason is StopReason.ERROR
    finally:
        undo()


def test_a_gap_is_kept_and_shown_in_its_place(tmp_path: Path) -> None:
    with lab.Store(tmp_path / "runs.db") as store, serving(*[holed("compatible")] * 3) as server:
        run = agent(server, stream=True, observers=[store]).run("go")
        result = go(finished(run))
        kept = store.load(result.run_id)
        assert kept.result is not None
        assert kept.history[0].holes == result.history[0].holes != ()
        assert [type(event) for event in kept.events] == [type(event) for event in result.events]
        assert store.frame("steps")["holes"].to_list() == [1]
        for one in (run, kept):
            assert MARKED in one.panel().bundle()["text/html"]
            said = step_html(one, one.history[0], Shown())
            assert MARKED in said and "A piece is missing at character 8" in said
    assert any("lost a piece" in event_detail for event_detail in result.to_frame("events")["detail"])


def test_a_gap_in_the_reasoning_ends_no_run() -> None:
    thinking = Answer(text=("Hello",), reasoning=("I ", "do not ", "know"))
    with serving(holed("compatible", thinking, b"do not ")) as server:
        result = result_of(server, stream=True)
    assert (len(server.asked), result.stop_reason, result.text) == (1, StopReason.COMPLETED, "Hello")
    assert [hole.in_reasoning for hole in result.history[0].holes] == [True]


def test_text_repeated_at_the_end_of_a_stream_is_not_emitted_twice() -> None:
    events = responses_bodies.stream(PAY).split(b"\n\n")
    body = [b'data: {"id": \n\n' if b'"NOT ' in event else event + b"\n\n" for event in events if event]
    seen: list[Event] = []
    with serving(stream(*body)) as server:
        result = result_of(server, "compatible-responses", stream=True, observers=[seen.append])
    assert (result.stop_reason, result.text) == (StopReason.COMPLETED, "pay 100 NOT to Bob")
    assert texts(seen) == ["pay 100 ", "to Bob"]


@pytest.mark.parametrize("wire", WIRES)
def test_a_run_continues_from_before_a_broken_step(wire: str) -> None:
    before, _ = before_the_end(wire, TALK_AND_LOOK)
    replies = [reply_to(wire, TALK_AND_LOOK, streaming=True), stream(before, end="reset"), reply_to(wire, HELLO, streaming=True)]

    async def main() -> tuple[lab.RunResult, lab.RunResult]:
        run = agent(server, wire, stream=True).run("go")
        return await run, await run.fork(at=1)

    with serving(*replies) as server:
        broken, mended = go(main())
    assert (broken.stop_reason, mended.stop_reason) == (StopReason.ERROR, StopReason.COMPLETED)
    assert [step.text for step in mended.history] == ["Let me see", "Hello there"]


# Errors within a response ----------------------------------------------------------------------------------------------------

ERRORS = {
    "openai": b'data: {"error": {"message": "The server had an error", "type": "server_error"}}\n\n',
    "compatible": b'data: {"error": {"message": "The server had an error", "code": 502}, "choices": []}\n\n',
    "anthropic": b'event: error\ndata: {"type": "error", "error": {"type": "api_error", "message": "The server had an error"}}\n\n',
    "gemini": b'data: {"error": {"code": 503, "message": "The server had an error", "status": "UNAVAILABLE"}}\n\n',
}


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_an_error_event_within_a_stream(wire: str, end: str) -> None:
    before, _ = before_the_end(wire, TALK_AND_LOOK)
    with serving(stream(before, ERRORS.get(wire, ERRORS["openai"]), end=end)) as server:
        result = result_of(server, wire, stream=True)
    assert (len(server.asked), result.stop_reason, result.text) == (1, StopReason.ERROR, "Let me see")
    assert result.detail == "The provider reports an error: The server had an error"
    assert looked == []


BODIES: dict[str, Any] = {
    "object": {"error": {"message": "Out of capacity", "type": "overloaded"}},
    "text": {"error": "Out of capacity"},
    "typed": {"type": "error", "error": {"type": "invalid_request_error", "message": "Out of capacity"}},
    "flat": {"object": "error", "message": "Out of capacity"},
    "list": [{"error": {"code": 403, "message": "Out of capacity"}}],
    "quota": {"error": {"code": 429, "type": "insufficient_quota", "message": "Out of capacity"}},
}


@pytest.mark.parametrize("wire", READERS)
@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_an_error_body_with_status_200(wire: str, streaming: bool, body: Any) -> None:
    with serving(whole(body)) as server:
        result = result_of(server, wire, stream=streaming)
    assert (len(server.asked), result.stop_reason, result.text) == (1, StopReason.ERROR, "")
    assert "Out of capacity" in result.detail


# JSON in place of a stream ---------------------------------------------------------------------------------------------------


def as_lines(wire: str, answer: Answer) -> bytes:
    """The stream's chunks as JSON, one per line."""
    events = [piece.split(b"data: ", 1)[1] for piece in pieces(wire, answer)]
    return b"".join(event.strip() + b"\n" for event in events if b"[DONE]" not in event)


def as_array(wire: str, answer: Answer) -> bytes:
    """The stream's chunks as one JSON array, as Gemini sends them without `alt=sse`."""
    return b"[" + b",\n".join(as_lines(wire, answer).splitlines()) + b"]"


def in_json(wire: str, answer: Answer, form: str) -> bytes:
    if form == "one body":
        return json.dumps(whole_body(wire, answer)).encode()
    return as_lines(wire, answer) if form == "lines" else as_array(wire, answer)


@pytest.mark.parametrize("wire", READERS)
@pytest.mark.parametrize("form", ["one body", "lines", "array"])
@pytest.mark.parametrize("kind", ["application/json; charset=utf-8", "text/event-stream"])
def test_json_in_place_of_a_stream_is_read(wire: str, form: str, kind: str) -> None:
    replies = [raw(in_json(wire, answer, form), ("content-type", kind)) for answer in (TALK_AND_LOOK, HELLO)]
    seen: list[Event] = []
    with serving(*replies) as server:
        result = result_of(server, wire, stream=True, observers=[seen.append])
    assert (result.stop_reason, result.text, looked) == (StopReason.COMPLETED, "Hello there", ["tea"])
    assert "".join(texts(seen)) == "Let me seeHello there"
    assert result.usage.total_tokens == 30


@pytest.mark.parametrize("wire", WIRES)
def test_the_last_event_may_lack_its_blank_line(wire: str) -> None:
    body = stream_bytes(wire, HELLO).removesuffix(b"data: [DONE]\n\n").rstrip()
    seen: list[Event] = []
    with serving(stream(body)) as server:
        result = result_of(server, wire, stream=True, observers=[seen.append])
    assert (result.stop_reason, result.text) == (StopReason.COMPLETED, "Hello there")
    assert "".join(texts(seen)) == "Hello there"


def test_text_in_an_unterminated_event_is_emitted_once() -> None:
    body = b'data: {"choices": [{"index": 0, "delta": {"content": "Hi "}}]}\n\n'
    body += b'data: {"choices": [{"index": 0, "delta": {"content": "there"}, "finish_reason": "stop"}]}'
    seen: list[Event] = []
    with serving(stream(body)) as server:
        result = result_of(server, stream=True, observers=[seen.append])
    assert (texts(seen), result.text) == (["Hi ", "there"], "Hi there")


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("reply", ["cut", "closed"])
def test_truncated_json_in_place_of_a_stream_is_an_error(wire: str, reply: str) -> None:
    body = json.dumps(whole_body(wire, TALK_AND_LOOK)).encode()
    half: Reply = cut(body, "leave") if reply == "cut" else raw(body[: len(body) // 2], JSON_TYPE)
    with serving(half) as server:
        result = result_of(server, wire, stream=True)
    assert (result.stop_reason, looked) == (StopReason.ERROR, [])


def test_a_whole_answer_is_emitted_as_one_piece() -> None:
    seen: list[Event] = []
    with serving(reply_to("compatible", HELLO, streaming=False)) as server:
        go(finished(agent(server).run("go", observers=[seen.append])))
    assert texts(seen) == ["Hello there"]


# Keep-alives ------------------------------------------------------------------------------------------------------------------


class Alive:
    """A transport whose response never ends: the given content, then `keep` every twenty seconds, `times` times or forever."""

    needs_key = True  # as with a reached provider: failures are retried

    def __init__(self, before: bytes, keep: bytes, after: bytes = b"", times: int | None = None) -> None:
        self.before, self.keep, self.after, self.times = before, keep, after, times
        self.asked = 0

    @asynccontextmanager
    async def open(self, request: Any, **how: Any) -> AsyncIterator[Any]:
        self.asked += 1
        yield with_body(injected_answer(b""), self.chunks)

    async def chunks(self, _: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        yield self.before
        for _number in itertools.count() if self.times is None else range(self.times):
            await asyncio.sleep(20)
            yield self.keep
        yield self.after


KEEPS_OPEN = {
    "comments": (b": OPENROUTER PROCESSING\n\n", "openrouter"),
    "a comment without an end": (b":", "openrouter"),
    "pings": (b'event: ping\ndata: {"type": "ping"}\n\n', "anthropic"),
    "keepalives": (b'data: {"type":"keepalive","sequence_number":7}\n\n', "openai-responses"),
    "empty events": (b"data:\n\n", "openai"),
    "white space": (b" \n", "gemini"),
    "an event without an end": (b"data: x", "openai"),
}


@pytest.mark.parametrize(("keep", "wire"), KEEPS_OPEN.values(), ids=KEEPS_OPEN)
@pytest.mark.parametrize("begun", [False, True], ids=["before the answer", "within it"])
def test_keep_alives_alone_time_out(keep: bytes, wire: str, begun: bool, fake_time: OwnTime) -> None:
    body = responses_bodies.stream(HELLO) if wire == "openai-responses" else stream_bytes(wire, HELLO)
    before = b"\n\n".join([*body.split(b"\n\n")[:5], b""]) if begun else b""
    transport = Alive(before, keep)
    began_s = fake_time.now_s
    run = agent("http://nowhere/v1", wire, stream=True, retry=lab.RetryPolicy(attempts=2)).run("go", transport=transport)
    result = go(finished(run))
    assert result.stop_reason is StopReason.ERROR
    assert "sent only comments, pings or white space" in result.detail
    assert bool(result.text) is begun
    assert transport.asked == (1 if begun else 2)  # no retry in mid-stream
    waited_s = (fake_time.now_s - began_s) / transport.asked
    longest_s = KEPT_ALIVE * LONGEST_SILENCE_S
    assert longest_s < waited_s < longest_s + 60


@pytest.mark.parametrize(("streaming", "keep"), [(True, b": working\n\n"), (True, b"\n"), (False, b" ")])
def test_a_model_that_thinks_for_minutes_is_waited_for(streaming: bool, keep: bytes, fake_time: OwnTime) -> None:
    body = stream_bytes("openai", HELLO) if streaming else json.dumps(whole_body("openai", HELLO)).encode()
    times = int(KEPT_ALIVE * LONGEST_SILENCE_S / 20) - 1
    result = go(
        finished(agent("http://nowhere/v1", "openai", stream=streaming).run("go", transport=Alive(b"", keep, body, times)))
    )
    assert (result.stop_reason, result.text) == (StopReason.COMPLETED, "Hello there")


def test_a_body_that_sends_only_white_space_times_out(fake_time: OwnTime) -> None:
    transport = Alive(b"", b" ")
    run = agent("http://nowhere/v1", "openai", retry=lab.RetryPolicy(attempts=1)).run("go", transport=transport)
    result = go(finished(run))
    assert (result.stop_reason, type(result.error)) == (StopReason.ERROR, lab.errors.ProviderConnectionError)


def test_a_slow_answer_is_waited_for(fake_time: OwnTime) -> None:
    chunk = b'data: {"choices": [{"index": 0, "delta": {"content": "a"}}]}\n\n'
    end = b'data: {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'
    result = go(finished(agent("http://nowhere/v1", "openai", stream=True).run("go", transport=Alive(b"", chunk, end, 100))))
    assert (result.stop_reason, result.text) == (StopReason.COMPLETED, "a" * 100)

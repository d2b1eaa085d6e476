"""The registry of detectors, replaceable at any time."""

from __future__ import annotations

import asyncio
import json
import logging
import pickle
import random
import threading
from dataclasses import dataclass
from typing import Any

import pytest

import agentlab as lab
from agentlab.errors import ConfigurationError, UnknownProviderError
from agentlab.model.finish_reasons import Confidence, FinishReason, TerminationSignal
from agentlab.model.responses import SignalSeen, TextDelta
from agentlab.providers import FINISH_REASONS, Capabilities, ChatCompletions, Dialect, Table, finish_detection
from agentlab.providers.detectors import finish_words
from agentlab.providers.finish_detection import SignalRegistry
from agentlab.providers.gemini import BLOCK_REASONS
from agentlab.providers.registry import names, own_tables
from agentlab.records.result import RunResult
from tests.tried import odd_json, tried

from .bodies import WIRES, Answer, Call, stream, whole

F, HIGH, MEDIUM, LOW = FinishReason, Confidence.HIGH, Confidence.MEDIUM, Confidence.LOW
CUT = Answer(finish=F.MAX_TOKENS)


@pytest.fixture
def registry() -> SignalRegistry:
    finish_detection._own_detector.cache_clear()
    return SignalRegistry()


def all_is_well(body: Any) -> TerminationSignal:
    """A custom reading: every response completed."""
    return TerminationSignal(F.END_TURN, HIGH, raw_field="mine", raw_value="fine", metadata={"keys": sorted(body)})


# Our own providers -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WIRES)
def test_a_stream_chunk_by_chunk_without_an_agent(registry: SignalRegistry, name: str) -> None:
    parser = registry.get(name).stream()
    data, early = stream(name, CUT), None
    for position in range(0, len(data), 7):
        for event in parser.feed(data[position : position + 7]):
            early = event.signal if isinstance(event, SignalSeen) else early
    signal = parser.finish()
    assert (signal.finish_reason, signal.confidence, parser.sound) == (F.MAX_TOKENS, HIGH, True)
    assert early is not None and early.finish_reason is F.MAX_TOKENS
    parser.reset()
    parser.feed(data[: len(data) // 2])
    assert parser.finish().confidence is not HIGH or not parser.sound


@pytest.mark.parametrize("name", WIRES)
def test_a_name_may_include_a_version_and_a_model(registry: SignalRegistry, name: str) -> None:
    assert registry.detect(f"{name}:some-model", whole(name, CUT)).finish_reason is F.MAX_TOKENS


# The body that states a value in a field of its wire. OpenRouter's native reason is one of several, and xAI's outputs are
# gRPC's.
SAYING: dict[str, Any] = {
    "choices[].finish_reason": lambda one: {"choices": [{"message": {"content": "Hi"}, "finish_reason": one}]},
    "stop_reason": lambda one: {"type": "message", "content": [{"type": "text", "text": "Hi"}], "stop_reason": one},
    "stopReason": lambda one: {"output": {"message": {"content": [{"text": "Hi"}]}}, "stopReason": one},
    "candidates[].finishReason": lambda one: {"candidates": [{"content": {"parts": [{"text": "Hi"}]}, "finishReason": one}]},
    "promptFeedback.blockReason": lambda one: {"promptFeedback": {"blockReason": one}},
    "status": lambda one: {"object": "response", "status": one, "output": []},
    "incomplete_details.reason": lambda one: {
        "object": "response", "status": "incomplete", "incomplete_details": {"reason": one}, "output": [],
    },
}  # fmt: skip


def test_a_wire_sends_the_reasons_listed_in_its_capabilities() -> None:
    for name in lab.capabilities():
        read = 0
        for reason, fields in lab.capabilities(name).reasons.items():
            for field, values in fields.items():
                for value in values if field in SAYING else ():
                    found = lab.detect(name, SAYING[field](value)).finish_reason
                    assert found is reason or reason is FinishReason.TOOL_CALLS, (name, field, value)  # this one needs a call
                    read += 1
        assert read >= 5, name


def test_reasons_of_a_custom_dialect_are_listed() -> None:
    @dataclass(frozen=True, slots=True)
    class Kiosk(ChatCompletions):
        name = "kiosk"
        capabilities = Capabilities(reports_cost=True)
        dialect = Dialect(tables=(FINISH_REASONS, Table("choices[].finish_reason", {"done": FinishReason.END_TURN})))

    assert Kiosk.capabilities == Capabilities(reports_cost=True)
    assert Kiosk.capabilities.reasons[FinishReason.END_TURN] == {"choices[].finish_reason": ("stop", "done")}
    assert Capabilities().reasons == {}
    assert pickle.loads(pickle.dumps(Kiosk.capabilities)).reasons == Kiosk.capabilities.reasons


@pytest.mark.parametrize("name", [*WIRES, "bedrock", "somebody-else"])
def test_the_signal_keeps_the_model(registry: SignalRegistry, name: str) -> None:
    body, data = (whole(name, CUT), stream(name, CUT)) if name in WIRES else ({"stopReason": "max_tokens"}, b"")
    for model in ("some/model:1", "another"):
        spec = f"{name}:{model}"
        payloads = [body, json.dumps(body), *([data] if data else []), {}, {"error": {"message": "No."}}, b"<html>"]
        assert [registry.detect(spec, payload).model for payload in payloads] == [model] * len(payloads)
        assert registry.detect(spec, body, status=502).model == model
        parser = registry.stream(spec)
        seen = [event.signal.model for event in parser.feed(data) if isinstance(event, SignalSeen)]
        assert {parser.finish().model, parser.response().signal.model, *seen} == {model}
    assert registry.detect(name, body).model == ""
    assert registry.detect(name, body) == registry.detect(f"{name}:another", body)  # compared without it
    registry.register(name, all_is_well)
    assert registry.detect(f"{name}:another", body).model == "another"


@pytest.mark.parametrize("name", ["openai", "somebody-else"])
def test_unknown_reasons_are_logged_once_per_provider_model_and_value(
    registry: SignalRegistry, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    word = f"word of {name}, seen here alone"
    for model in ("a", "b", "a"):
        registry.detect(f"{name}:{model}", {"choices": [{"message": {"content": "Hi"}, "finish_reason": word}]})
    logged = [record.message for record in caplog.records if record.name == "agentlab.providers"]
    models = [f"({model})" if name == "openai" else f"({name}:{model})" for model in "ab"]
    assert [next(one for one in models if one in text) for text in logged] == models
    looked = [record for record in caplog.records if record.name == "agentlab.signals"]
    assert len(looked) == (name != "openai")  # an unknown provider is logged once, for any model


SAID = "the harbour is open"
LOGGED = [
    ({"choices": [{"message": {"content": SAID}, "finish_reason": "length"}]},
     "max_tokens, high confidence, choices[].finish_reason=length"),
    ({"error": {"message": SAID}}, f"error, high confidence, error=<{len(SAID)} characters>"),
    ({"choices": [{"message": {"content": SAID}}]}, "unknown, low confidence, choices[].finish_reason=None"),
    ({"choices": [{"message": {"content": SAID}, "finish_reason": 7}]}, "unknown, low confidence, choices[].finish_reason=7"),
]  # fmt: skip


def debugged(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The records of the signals logger, without logging's own attributes."""
    return [one.getMessage() for one in caplog.records if one.name == "agentlab.signals" and one.levelno == logging.DEBUG]


@pytest.mark.parametrize(("body", "expected"), LOGGED)
def test_signals_are_logged_at_debug_without_text(body: Any, expected: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="agentlab.signals"):
        lab.detect("openai:gpt-5.4", body)
    assert debugged(caplog) == []
    with caplog.at_level(logging.DEBUG, logger="agentlab.signals"):
        lab.detect("openai:gpt-5.4", body)
    assert debugged(caplog) == [f"openai (gpt-5.4): {expected}"]


def test_signals_of_runs_are_logged_too(caplog: pytest.LogCaptureFixture) -> None:
    script = lab.testing.ScriptedProvider([lab.testing.say(SAID)], name="openai", model="gpt-5.4")
    with caplog.at_level(logging.DEBUG, logger="agentlab.signals"):
        lab.Agent(script).run(SAID).start().wait()
    assert debugged(caplog) == ["openai (gpt-5.4): end_turn, high confidence, finish_reason=end_turn"]


def test_every_provider_has_a_detector_and_capabilities(registry: SignalRegistry) -> None:
    assert set(lab.capabilities()) == set(names())
    for name in names():
        assert registry.detect(name, {}).finish_reason is F.UNKNOWN
        assert lab.capabilities(name) == lab.capabilities()[name] == lab.capabilities(f"{name}:model")
    with pytest.raises(UnknownProviderError, match="Did you mean 'gemini'"):
        lab.capabilities("gemin")


# Registering -----------------------------------------------------------------------------------------------------------------


def test_a_function_replaces_a_provider_and_undo_restores_it(registry: SignalRegistry) -> None:
    undo = registry.register("openai", all_is_well)
    for payload in (whole("openai", CUT), json.dumps(whole("openai", CUT)), stream("openai", CUT)):
        found = registry.detect("openai", payload)
        assert (found.finish_reason, found.raw_field, found.provider) == (F.END_TURN, "mine", "openai")
    assert registry.detect("anthropic", whole("anthropic", CUT)).finish_reason is F.MAX_TOKENS
    assert "choices" in registry.detect("openai", stream("openai", CUT)).metadata["keys"]
    undo()
    undo()
    assert registry.detect("openai", whole("openai", CUT)).finish_reason is F.MAX_TOKENS


def test_undo_restores_the_previous_registration(registry: SignalRegistry) -> None:
    registry.register("openai", all_is_well)
    undo = registry.register("openai", lambda body: TerminationSignal(F.PAUSED, LOW))
    assert registry.detect("openai", {}).finish_reason is F.PAUSED
    undo()
    assert registry.detect("openai", {"a": 1}).finish_reason is F.END_TURN


def test_the_function_gets_the_whole_text_and_no_early_signal(registry: SignalRegistry) -> None:
    registry.register("anthropic", all_is_well)
    parser = registry.stream("anthropic")
    events = parser.feed(stream("anthropic", CUT))
    assert any(isinstance(event, TextDelta) for event in events)
    assert not any(isinstance(event, SignalSeen) for event in events)
    assert (parser.finish().confidence, parser.sound, parser.response().signal) == (HIGH, True, parser.finish())


@pytest.mark.parametrize("name", WIRES)
def test_a_broken_stream_is_never_a_certain_end_for_any_function(registry: SignalRegistry, name: str) -> None:
    registry.register(name, all_is_well)
    data = stream(name, Answer())
    for end in range(len(data) // 2):
        assert registry.detect(name, data[:end], streaming=True).confidence is not HIGH


def test_an_alias_for_a_wire(registry: SignalRegistry) -> None:
    registry.register("my-gateway", "anthropic")
    found = registry.detect("my-gateway", whole("anthropic", CUT))
    assert (found.finish_reason, found.confidence, found.provider) == (F.MAX_TOKENS, HIGH, "my-gateway")
    assert registry.stream("my-gateway").feed(stream("anthropic", CUT))


def test_a_version_may_have_its_own_detector(registry: SignalRegistry) -> None:
    registry.register("gateway@2", all_is_well, like="openai")
    registry.register("gateway", "openai")
    assert registry.detect("gateway@2:m", whole("openai", CUT)).finish_reason is F.END_TURN
    assert registry.detect("gateway@1:m", whole("openai", CUT)).finish_reason is F.MAX_TOKENS
    assert registry.detect("gateway", whole("openai", CUT)).finish_reason is F.MAX_TOKENS


@pytest.mark.parametrize(
    "wrong", [lambda body: "stop", lambda body: body["nothing"], lambda body: TerminationSignal("done", HIGH)]
)  # type: ignore[arg-type]
def test_a_failing_function_gives_a_low_confidence_signal_with_the_reason(
    registry: SignalRegistry, wrong: Any, caplog: pytest.LogCaptureFixture
) -> None:
    registry.register("openai", wrong)
    with caplog.at_level(logging.WARNING):
        found = registry.detect("openai", whole("openai", CUT))
    assert (found.finish_reason, found.confidence) == (F.UNKNOWN, LOW)
    assert "registered for 'openai'" in found.message
    assert "registered for 'openai'" in caplog.text


class RaisingDetector:
    """A user's own detector with a bug."""

    def detect(self, payload: Any, **of: Any) -> TerminationSignal:
        raise LookupError("no such field")

    def stream(self, **of: Any) -> Any:
        return lab.signals.get("openai").stream()


def raising(body: Any) -> TerminationSignal:
    raise LookupError("no such field")


@pytest.mark.parametrize("detector", [raising, RaisingDetector()], ids=["function", "object"])
@pytest.mark.parametrize("name", ["openai", "my-gateway"])
def test_a_raising_detector_is_named_and_no_log_says_that_there_is_none(
    registry: SignalRegistry, name: str, detector: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        registry.register(name, detector)
        assert caplog.text == ""
        found = registry.detect(name, whole("openai", CUT))
    assert found.message == f"The detector registered for {name!r} raised LookupError: no such field."
    assert [record.message for record in caplog.records] == [found.message]


@pytest.mark.parametrize("detector", [raising, RaisingDetector()], ids=["function", "object"])
def test_a_run_names_the_detector_that_raised(detector: Any) -> None:
    undo = lab.signals.register("openai", detector)
    try:
        with lab.replay("fixtures/question", match="order"):
            result = asyncio.run(_run(lab.Agent("openai:gpt-5.4-mini"), max_turns=5))
    finally:
        undo()
    assert (len(result.history), result.stop_reason) == (2, lab.StopReason.COMPLETED)
    assert result.text
    assert result.detail == (
        "The detector registered for 'openai' raised LookupError: no such field; the text is accepted as the answer."
    )


WRONG_FIELDS = {
    "metadata": ["x", 5, None, [("a", 1)]],
    "message": [5, None, b"x", ["x"]],
    "raw_field": [5, None],
    "raw_value": [1.5, True, ["stop"], b"stop"],
    "provider": [5, None],
    "model": [5, None],
    "repairable": ["yes", 1, None],
    "finish_reason": ["finished", 5, None],
    "confidence": ["sure", 5, None],
}


@pytest.mark.parametrize(("field", "value"), [(field, value) for field, values in WRONG_FIELDS.items() for value in values])
def test_a_signal_with_a_field_of_the_wrong_type_is_refused(field: str, value: Any) -> None:
    fields = {"finish_reason": F.END_TURN, "confidence": HIGH, field: value}
    with pytest.raises(ConfigurationError, match=rf"TerminationSignal\({field}="):
        TerminationSignal(**fields)


def test_an_http_error_is_an_error_for_every_detector(registry: SignalRegistry) -> None:
    registry.register("openai", all_is_well)
    assert registry.detect("openai", b"busy", status=529).finish_reason is F.ERROR


@pytest.mark.parametrize(("name", "detector"), [("", all_is_well), (7, all_is_well), ("x", 7), ("x", None)])
def test_invalid_registrations_are_refused(registry: SignalRegistry, name: Any, detector: Any) -> None:
    with pytest.raises(ConfigurationError):
        registry.register(name, detector)


def test_a_misspelt_wire_is_refused(registry: SignalRegistry) -> None:
    with pytest.raises(UnknownProviderError, match="Did you mean 'openai'"):
        registry.register("mine", "openia")


def test_threads_may_register_and_detect_concurrently(registry: SignalRegistry) -> None:
    def work(number: int) -> None:
        for _ in range(50):
            undo = registry.register(f"p{number}", all_is_well, like="openai")
            assert registry.detect(f"p{number}", {"choices": []}).finish_reason is F.END_TURN
            undo()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert repr(registry) == repr(SignalRegistry())


@pytest.mark.parametrize("streamed", [False, True])
def test_a_run_uses_the_registered_detector(streamed: bool) -> None:
    def capped(body: Any) -> TerminationSignal:
        return TerminationSignal(F.MAX_TOKENS, MEDIUM, raw_field="mine", raw_value="cut")

    undo = lab.signals.register("openai", capped)
    try:
        with lab.replay("fixtures/question", match="order"):
            result = asyncio.run(_run(lab.Agent("openai:gpt-5.4-mini", stream=streamed)))
    finally:
        undo()
    signal = result.history[0].signal
    assert (signal.finish_reason, signal.raw_field, signal.provider) == (F.MAX_TOKENS, "mine", "openai")


async def _run(agent: lab.Agent, max_turns: int = 1) -> RunResult:  # type: ignore[name-defined]
    return await agent.run("Do I need an umbrella?", budget=lab.Budget(max_turns=max_turns))


# Unknown providers -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WIRES)
@pytest.mark.parametrize(
    "answer",
    [Answer(), CUT, Answer(finish=F.TOOL_CALLS, calls=(Call("look", {"q": "x"}),))],
    ids=["end", "cut", "calls"],
)
def test_an_unknown_provider_is_read_by_the_pattern(registry: SignalRegistry, name: str, answer: Answer) -> None:
    sure = registry.detect(name, whole(name, answer))
    for payload in (whole(name, answer), json.dumps(whole(name, answer)), stream(name, answer)):
        found = registry.detect("nobody-knows", payload)
        assert (found.finish_reason, found.confidence, found.provider) == (sure.finish_reason, MEDIUM, "nobody-knows")
        assert found.raw_value == sure.raw_value


@pytest.mark.parametrize("name", ["openai", "anthropic", "gemini"])  # the other wires have the bytes of OpenAI's
def test_streams_of_an_unknown_provider_may_be_cut_anywhere(registry: SignalRegistry, name: str) -> None:
    data = stream(name, CUT)
    for place in range(len(data)):
        parser = registry.stream("nobody-knows")
        parser.feed(data[:place])
        parser.feed(data[place:])
        assert (parser.finish().finish_reason, parser.sound) == (F.MAX_TOKENS, True)
        parser.reset()
        parser.feed(data[:place])
        assert parser.finish().finish_reason is not F.END_TURN


@pytest.mark.parametrize(
    ("payload", "reason", "confidence", "field"),
    [
        ({"message": {"content": "hi"}, "done": True, "done_reason": "stop"}, F.END_TURN, MEDIUM, "done_reason"),
        ({"message": {"content": "hi"}, "done": True, "done_reason": "length"}, F.MAX_TOKENS, MEDIUM, "done_reason"),
        ({"message": {"content": [{"text": "hi"}]}, "finish_reason": "COMPLETE"}, F.END_TURN, MEDIUM, "finish_reason"),
        ({"message": {"tool_calls": [{"id": "1"}]}, "finish_reason": "TOOL_CALL"}, F.TOOL_CALLS, MEDIUM, "finish_reason"),
        ({"details": {"finish_reason": "eos_token"}, "generated_text": "x"}, F.END_TURN, MEDIUM, "details.finish_reason"),
        ({"results": [{"stop_reason": "max_tokens"}]}, F.MAX_TOKENS, MEDIUM, "results[].stop_reason"),
        ({"text": "hi", "finishReason": "Recitation"}, F.CONTENT_FILTERED, MEDIUM, "finishReason"),
        ({"text": "hi", "finish_reason": "model_length"}, F.CONTEXT_WINDOW_EXCEEDED, MEDIUM, "finish_reason"),
        ({"finish_reason": "because"}, F.UNKNOWN, LOW, "finish_reason"),
        ({"finish_reason": "COMPLETE", "tool_calls": [{"id": "1"}]}, F.TOOL_CALLS, MEDIUM, "finish_reason"),
        ({"error": {"type": "overloaded", "message": "busy"}}, F.ERROR, HIGH, "error.type"),
        ({"some": "thing"}, F.UNKNOWN, LOW, ""),
        ({}, F.UNKNOWN, LOW, ""),
        ("words", F.UNKNOWN, LOW, ""),
    ],
)
def test_other_shapes_are_read_by_their_field_names(
    registry: SignalRegistry, payload: Any, reason: FinishReason, confidence: Confidence, field: str
) -> None:
    found = registry.detect("nobody-knows", payload)
    assert (found.finish_reason, found.confidence, found.raw_field) == (reason, confidence, field)
    assert found.message


def test_a_stream_of_no_known_wire(registry: SignalRegistry) -> None:
    lines = b'{"response": "a", "done": false}\n{"response": "b", "done": true, "done_reason": "length"}\n'
    for streaming in (None, True):
        assert registry.detect("nobody-knows", lines, streaming=streaming).finish_reason is F.MAX_TOKENS
    parser = registry.stream("nobody-knows")
    parser.feed(lines)
    assert parser.finish().confidence is MEDIUM
    assert parser.response().text == "ba" or parser.response().text == "ab"


def test_a_misspelt_provider_is_logged_once(registry: SignalRegistry, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            registry.detect("gemin", {})
    assert caplog.text.count("Did you mean 'gemini'") == 1


@pytest.mark.parametrize(
    ("payload", "explanation"),
    [
        (b"", "empty"),
        ("", "empty"),
        ({}, "empty"),
        (None, "empty"),
        (b"<html>no</html>", "neither JSON"),
        (b"7", "not an object"),
    ],
)
@pytest.mark.parametrize("name", ["openai", "anthropic", "gemini", "nobody-knows"])
def test_a_payload_that_is_no_response_is_reported(registry: SignalRegistry, name: str, payload: Any, explanation: str) -> None:
    found = registry.detect(name, payload)
    assert (found.finish_reason, found.confidence) == (F.UNKNOWN, LOW)
    assert explanation in found.message


KEYS = "choices candidates output message content finish_reason stopReason type error x"


@tried(200)
def test_no_payload_raises(chance: random.Random) -> None:
    payload, bits, cut = (
        odd_json(chance, KEYS.split(), ("stop", "COMPLETE", "length")),
        chance.randbytes(40),
        chance.randrange(80),
    )
    registry = SignalRegistry()
    data = json.dumps(payload).encode()
    for body in (payload, data, b"data: " + data + b"\n\n", bits, data[:cut], b"data: " + data[:cut]):
        for streaming in (None, True, False):
            assert registry.detect("nobody-knows", body, streaming=streaming).finish_reason in F


def test_no_finish_reason_has_two_meanings() -> None:
    words = finish_words()
    for table in own_tables():
        if table is not BLOCK_REASONS:  # those of a prompt
            for word, reason in table.reasons.items():
                assert isinstance(word, int) or words[word.lower()] is reason, word

"""Responses of real providers, recorded by public projects. They are beside the repository, not in it."""

from __future__ import annotations

import base64
import gzip
import json
import random
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from agentlab.model.finish_reasons import Confidence, FinishReason
from agentlab.model.responses import SignalSeen, TextDelta
from agentlab.providers.finish_detection import detect

from .bodies import cut, parse_stream, provider
from .responses_bodies import RESPONSES
from .test_any_json import check_types

RECORDINGS = Path(__file__).parents[2].parent / "shared" / "corpus" / "recordings.jsonl.gz"
pytestmark = pytest.mark.skipif(not RECORDINGS.exists(), reason="the corpus of recorded responses is not beside this repository")

PROVIDERS = {
    "openai.chat": "openai",
    "azure.chat": "azure",
    "openrouter.chat": "openrouter",
    "xai.chat": "xai",
    "other-compatible.chat": "compatible",
    "anthropic.messages": "anthropic",
    "anthropic.messages(vertex)": "anthropic",
    "anthropic.messages(bedrock-invoke)": "anthropic",
    "other-compatible.messages": "anthropic",
    "gemini.generate": "gemini",
    "other-compatible.gemini": "gemini",
    "bedrock.converse": "bedrock",
    "other-compatible.converse": "bedrock",
    "openai.responses": "openai-responses",
    "azure.responses": "azure-responses",
    "openrouter.responses": "openrouter-responses",
    "xai.responses": "xai-responses",
    "other-compatible.responses": "compatible-responses",
}

F, HIGH = FinishReason, Confidence.HIGH
REASONS = {
    "openai": {
        "stop": F.END_TURN,
        "length": F.MAX_TOKENS,
        "tool_calls": F.TOOL_CALLS,
        "function_call": F.TOOL_CALLS,
        "content_filter": F.CONTENT_FILTERED,
    },
    "anthropic": {
        "end_turn": F.END_TURN,
        "stop_sequence": F.STOP_SEQUENCE,
        "tool_use": F.TOOL_CALLS,
        "max_tokens": F.MAX_TOKENS,
        "refusal": F.CONTENT_FILTERED,
    },
    "gemini": {
        "STOP": F.END_TURN,
        "1": F.END_TURN,
        "2": F.MAX_TOKENS,
        "MAX_TOKENS": F.MAX_TOKENS,
        "SAFETY": F.CONTENT_FILTERED,
        "MODEL_ARMOR": F.CONTENT_FILTERED,
        "MALFORMED_FUNCTION_CALL": F.ERROR,
        "UNEXPECTED_TOOL_CALL": F.ERROR,
    },
    "bedrock": {
        "end_turn": F.END_TURN,
        "stop_sequence": F.STOP_SEQUENCE,
        "tool_use": F.TOOL_CALLS,
        "max_tokens": F.MAX_TOKENS,
        "guardrail_intervened": F.CONTENT_FILTERED,
        "content_filtered": F.CONTENT_FILTERED,
    },
}
CHAT = ("openai", "azure", "openrouter", "xai", "compatible")
REASONS.update(dict.fromkeys(CHAT, REASONS["openai"]))
INCOMPLETE = {"max_output_tokens": F.MAX_TOKENS, "content_filter": F.CONTENT_FILTERED}
STATUSES = {"completed": F.END_TURN, "failed": F.ERROR, "cancelled": F.CANCELLED}
REASONS.update(dict.fromkeys(RESPONSES, STATUSES))


@cache
def recordings() -> list[dict[str, Any]]:
    with gzip.open(RECORDINGS, "rt", encoding="utf-8") as lines:
        found = [json.loads(line) for line in lines]
    return [recording for recording in found if recording["wire"] in PROVIDERS]


def body(recording: dict[str, Any]) -> bytes:
    text = recording["response_body"]
    return base64.b64decode(text) if recording["encoding"] == "base64" else text.encode("utf-8", "surrogatepass")


def signal(recording: dict[str, Any]) -> Any:
    return detect(
        PROVIDERS[recording["wire"]],
        body(recording),
        streaming=recording["streaming"],
        status=recording["status"] or 200,
        requested_cap=recording["requested_cap"],
    )


def fills_its_cap(recording: dict[str, Any]) -> bool:
    """True if a body says that it used as many tokens as it was allowed."""
    caps = re.findall(r'"max_output_tokens":\s*(\d+)', recording["response_body"])
    used = re.findall(r'"output_tokens":\s*(\d+)', recording["response_body"])
    return bool(caps) and caps[-1:] == used[-1:]


def judged(recording: dict[str, Any]) -> set[FinishReason]:
    """The expected finish reason, which a simple script read from the body."""
    name, word, tags = PROVIDERS[recording["wire"]], recording["native_value"], recording["tags"]
    if re.search(r'"code": ?"(content_filter|ResponsibleAIPolicyViolation)"', recording["response_body"]):
        return {F.CONTENT_FILTERED}
    if (recording["status"] or 200) >= 400 or recording["native_field"].startswith("error") or "error_object_present" in tags:
        return {F.ERROR}
    if word is None and "data: [DONE]" in recording["response_body"] and name in CHAT:
        if "no_text_no_tool" in tags or "unparseable_event" in tags:
            return {F.UNKNOWN}
        return {F.TOOL_CALLS} if recording["has_tool_calls"] else {F.END_TURN}  # closed properly: inferred
    if any(tag.startswith("promptFeedback.blockReason") for tag in tags):
        return {F.CONTENT_FILTERED}
    if name in RESPONSES:
        if word is None:  # inferred from the items, or from the last event
            return {F.END_TURN, F.TOOL_CALLS, F.MAX_TOKENS, F.UNKNOWN}
        if word == "incomplete":
            return {INCOMPLETE.get(recording["native_detail"], F.UNKNOWN)}
        silent = "no_text_no_tool" in tags and not recording["refusal_present"]
        if word == "completed" and name == "compatible-responses" and fills_its_cap(recording):
            return {F.MAX_TOKENS}
        if word == "completed" and silent:  # the script did not look for items that wait for the caller
            return {F.END_TURN, F.TOOL_CALLS}
    reason = REASONS[name].get(str(word), F.UNKNOWN)
    # the first of several choices counts, and another may have been refused
    if reason is F.END_TURN and recording["refusal_present"]:
        return {F.CONTENT_FILTERED, F.END_TURN} if "multi_choice" in tags else {F.CONTENT_FILTERED}
    if reason is F.END_TURN and "unparseable_json" in tags:  # where the script saw no calls
        return {F.END_TURN, F.TOOL_CALLS}
    if reason is F.END_TURN and "tool_calls_with_end_turn" in tags:
        return {F.END_TURN, F.TOOL_CALLS}  # depends on whether the vendor's own code has answered the calls
    if reason is F.END_TURN and recording["has_tool_calls"]:
        return {F.TOOL_CALLS}
    return {reason}


def test_every_signal_is_right():
    wrong = []
    table: Counter[tuple[str, ...]] = Counter()
    for recording in recordings():
        found = signal(recording)
        table[recording["wire"], str(recording["native_value"])[:24], found.finish_reason, found.confidence] += 1
        holed = recording["authenticity"] == "doubtful" and "A piece of the stream was lost" in found.message
        if recording["authenticity"] != "synthetic" and not holed and found.finish_reason not in judged(recording):
            wrong.append(
                (recording["id"][:8], recording["wire"], recording["native_value"], found.finish_reason, recording["tags"])
            )
    for key, number in sorted(table.items()):
        print(f"{number:5}  " + "  ".join(f"{part:<26}" for part in key))
    assert wrong == []
    assert sum(table.values()) == 3_061  # all there are, on every wire


def test_documented_values_that_agree_are_certain():
    """Real recordings of ordinary whole bodies: no doubt is invented."""
    doubted = [
        (recording["id"][:8], recording["wire"], recording["native_value"])
        for recording in recordings()
        if recording["authenticity"] == "recorded"
        and not recording["streaming"]
        and not recording["tags"]
        and str(recording["native_value"]) in REASONS[PROVIDERS[recording["wire"]]]
        and signal(recording).confidence is not HIGH
    ]
    assert doubted == []


def test_undocumented_values_are_kept_and_uncertain():
    for recording in recordings():
        word, known = recording["native_value"], REASONS[PROVIDERS[recording["wire"]]]
        if recording["native_field"] != "choices[].finish_reason" or word in (None, "") or word in known:
            continue
        if recording["authenticity"] != "synthetic":
            found = signal(recording)
            assert (found.finish_reason, found.confidence, found.raw_value) == (F.UNKNOWN, Confidence.LOW, word), recording["id"]


def test_calls_cut_by_the_vendor_behind_a_gateway_are_not_complete():
    seen = 0
    for recording in recordings():
        if recording["native_value"] != "tool_calls" or recording["native_finish_reason"] not in ("length", "max_output_tokens"):
            continue
        assert signal(recording).confidence is Confidence.LOW, recording["id"]
        streamed = recording["streaming"]
        name, data = PROVIDERS[recording["wire"]], body(recording)
        response = parse_stream(name, [data])[0] if streamed else provider(name).parse(json.loads(data))
        assert "partial_tool_json" not in recording["tags"] or not response.tool_calls[-1].closed
        seen += 1
    assert seen >= 5


def whole_bodies() -> Iterator[tuple[dict[str, Any], Any]]:
    for recording in recordings():
        if (
            not recording["streaming"]
            and "unparseable_json" not in recording["tags"]
            and "non_json_body" not in recording["tags"]
        ):
            yield recording, json.loads(recording["response_body"])


def test_whole_bodies_are_read():
    for recording, payload in whole_bodies():
        response = provider(PROVIDERS[recording["wire"]]).parse(payload, requested_cap=recording["requested_cap"])
        check_types(response)
        if (
            recording["usage_present"]
            and recording["native_value"] is not None
            and response.signal.finish_reason not in (F.ERROR, F.CONTENT_FILTERED)
        ):
            assert response.usage.known_tokens > 0 or response.usage.input_tokens is not None, recording["id"]
        if recording["cost_present"] and not recording["wire"].startswith("azure") and reports_cost(payload):
            assert response.cost_usd is not None, recording["id"]
        check_total(recording, payload, response)


def reports_cost(payload: Any) -> bool:
    return not {"cost", "cost_in_usd_ticks"}.isdisjoint(payload.get("usage") or {})


def check_total(recording: dict[str, Any], payload: Any, response: Any) -> None:
    """Check that the provider's own total is the sum that we compute."""
    usage = payload.get("usageMetadata") or payload.get("usage") if isinstance(payload, dict) else None
    named = ("totalTokenCount", "total_tokens", "totalTokens")
    total = next((usage[name] for name in named if name in usage), None) if usage else None
    if isinstance(total, int) and response.usage.total_tokens is not None and recording["authenticity"].startswith("recorded"):
        assert response.usage.total_tokens == total, (recording["id"], recording["wire"], usage)


def test_streams_are_read_alike_in_any_chunks():
    chance = random.Random(7)
    for recording in recordings():
        if not recording["streaming"]:
            continue
        name, data, cap = PROVIDERS[recording["wire"]], body(recording), recording["requested_cap"]
        expected, emitted = parse_stream(name, [data], cap)
        check_types(expected)
        places = [chance.randrange(len(data) + 1) for _ in range(chance.randrange(1, 30))] if data else []
        found, emitted_in_pieces = parse_stream(name, cut(data, places), cap)
        assert found == expected or repr(found) == repr(expected), recording["id"]  # a NaN in `raw` is equal to nothing
        assert emitted_in_pieces == emitted
        # The last event may lack its blank line: its text is then in the response only.
        spoken = "".join(event.text for event in emitted if isinstance(event, TextDelta))
        assert expected.text.startswith(spoken) or recording["authenticity"] in ("doubtful", "recorded-body"), recording["id"]
        if any(isinstance(event, SignalSeen) for event in emitted):
            assert expected.signal.finish_reason is not F.UNKNOWN or expected.signal.raw_value is not None


def test_broken_streams_have_no_clean_end():
    """Each recorded stream with a clean end, cut before its last events."""
    chance = random.Random(11)
    for recording in recordings():
        name, data = PROVIDERS[recording["wire"]], body(recording)
        text = data.lstrip().startswith((b"data:", b"event:", b":"))
        if not recording["streaming"] or not (text or name == "bedrock") or name == "gemini":
            continue
        ends = {"anthropic": b'"message_stop"', "bedrock": b"messageStop"} | dict.fromkeys(RESPONSES, b"response.completed")
        last = data.rfind(ends.get(name, b"data: [DONE]"))
        if last < 0:
            continue
        for _ in range(3):
            response, _ = parse_stream(name, [data[: chance.randrange(last)]])
            assert response.signal.finish_reason is F.ERROR or response.signal.confidence is not HIGH, recording["id"]


def test_damaged_bodies_raise_nothing():
    chance = random.Random(13)
    for recording in chance.sample(recordings(), 300):
        data = bytearray(body(recording))
        for _ in range(1 + len(data) // 500):
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        name = PROVIDERS[recording["wire"]]
        detect(name, bytes(data))
        detect(name, bytes(data[: chance.randrange(len(data))]), streaming=recording["streaming"])
        check_types(parse_stream(name, [bytes(data)])[0])

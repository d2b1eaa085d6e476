"""One answer in the format of Bedrock's Converse: as a whole body, as events, and in every known framing of these."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Sequence
from typing import Any

from agentlab.model.finish_reasons import FinishReason
from agentlab.transport.aws_eventstream import build_frame, encode_headers

from .bodies import Answer, sse

WORDS = {
    FinishReason.END_TURN: "end_turn",
    FinishReason.TOOL_CALLS: "tool_use",
    FinishReason.MAX_TOKENS: "max_tokens",
    FinishReason.CONTENT_FILTERED: "guardrail_intervened",
}

TOOL_USE = {"toolUse": {"toolUseId": "t1", "name": "f", "input": {"a": 1}}}

Events = Sequence[tuple[str, dict[str, Any]]]


def converse(stop_reason: Any = "end_turn", content: Any = None, **more: Any) -> dict[str, Any]:
    """A small body for tests to modify."""
    content = [{"text": "Hi"}] if content is None else content
    return {"output": {"message": {"role": "assistant", "content": content}}, "stopReason": stop_reason, **more}


def _usage(answer: Answer) -> dict[str, Any]:
    total = answer.input_tokens + answer.cached + answer.output_tokens
    cache = {"cacheReadInputTokens": answer.cached, "cacheWriteInputTokens": 0}
    return {"inputTokens": answer.input_tokens, "outputTokens": answer.output_tokens, "totalTokens": total, **cache}


def whole(answer: Answer) -> dict[str, Any]:
    content: list[dict[str, Any]] = []
    if answer.reasoning:
        content.append({"reasoningContent": {"reasoningText": {"text": "".join(answer.reasoning), "signature": "sig"}}})
    if answer.text:
        content.append({"text": "".join(answer.text)})
    content += [
        {"toolUse": {"toolUseId": f"c{n}", "name": call.name, "input": call.arguments}} for n, call in enumerate(answer.calls)
    ]
    return {
        "metrics": {"latencyMs": 5},
        "output": {"message": {"role": "assistant", "content": content}},
        "stopReason": WORDS[answer.finish],
        "usage": _usage(answer),
    }


def events(answer: Answer) -> list[tuple[str, dict[str, Any]]]:
    """Names and payloads, padded like the vendor's."""
    found: list[tuple[str, dict[str, Any]]] = [("messageStart", {"p": "abc", "role": "assistant"})]
    index = 0

    def block(start: dict[str, Any] | None, deltas: Iterable[dict[str, Any]]) -> None:
        nonlocal index
        if start:
            found.append(("contentBlockStart", {"contentBlockIndex": index, "p": "ab", "start": start}))
        found.extend(("contentBlockDelta", {"contentBlockIndex": index, "delta": delta, "p": "abcd"}) for delta in deltas)
        found.append(("contentBlockStop", {"contentBlockIndex": index, "p": "a"}))
        index += 1

    if answer.reasoning:
        deltas = [{"reasoningContent": {"text": piece}} for piece in answer.reasoning]
        block(None, [*deltas, {"reasoningContent": {"signature": "sig"}}])
    if answer.text:
        block(None, [{"text": piece} for piece in answer.text])
    for n, call in enumerate(answer.calls):
        text = json.dumps(call.arguments)
        pieces = [text[at : at + 7] for at in range(0, len(text), 7)]
        block({"toolUse": {"toolUseId": f"c{n}", "name": call.name}}, [{"toolUse": {"input": piece}} for piece in pieces])
    found.append(("messageStop", {"p": "abcdef", "stopReason": WORDS[answer.finish]}))
    found.append(("metadata", {"metrics": {"latencyMs": 5}, "p": "ab", "usage": _usage(answer)}))
    return found


def frame(name: str, payload: Any, kind: str = "event") -> bytes:
    """One event as a binary frame."""
    headers = [(f":{'exception' if kind == 'exception' else 'event'}-type", name), (":content-type", "application/json")]
    data = payload if isinstance(payload, bytes) else json.dumps(payload, ensure_ascii=False).encode("utf-8", "surrogatepass")
    return build_frame(encode_headers([*headers, (":message-type", kind)]), data)


def frames(these: Events) -> list[bytes]:
    return [frame(name, payload) for name, payload in these]


def stream(answer: Answer) -> bytes:
    return b"".join(frames(events(answer)))


def lines(these: Events) -> bytes:
    """As an SDK's dumped objects: one per line, each under its name."""
    return "\n".join(json.dumps({name: payload}) for name, payload in these).encode()


def array(these: Events) -> bytes:
    return json.dumps([{name: payload} for name, payload in these]).encode()


def text_events(these: Events) -> bytes:
    """As server-sent events whose data contains the name."""
    return sse([{name: payload} for name, payload in these])


def named_text_events(these: Events) -> bytes:
    """As server-sent events with names."""
    return "".join(f"event: {name}\ndata: {json.dumps(payload)}\n\n" for name, payload in these).encode()


def chunk_frames(body: bytes) -> bytes:
    """The events of another wire, wrapped like those of InvokeModelWithResponseStream."""
    data = [line[6:] for line in body.split(b"\n") if line.startswith(b"data: {")]
    return b"".join(frame("chunk", {"bytes": base64.b64encode(one).decode(), "p": "abc"}) for one in data)

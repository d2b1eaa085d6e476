"""One answer on the Responses wire: as a whole body, and as the events of a stream, in several variants; after the vendors' pages."""

from __future__ import annotations

import json
from typing import Any

from agentlab.model.finish_reasons import FinishReason

from .bodies import Answer, sse

RESPONSES = ("openai-responses", "azure-responses", "openrouter-responses", "xai-responses", "compatible-responses")
MANNERS = ("named", "unnamed", "empty end", "done only")
"""As OpenAI streams; without names and with [DONE], like OpenRouter; with an empty output in the last event; without pieces."""

ENDS: dict[FinishReason, tuple[str, str | None]] = {
    FinishReason.END_TURN: ("completed", None),
    FinishReason.TOOL_CALLS: ("completed", None),
    FinishReason.MAX_TOKENS: ("incomplete", "max_output_tokens"),
    FinishReason.CONTENT_FILTERED: ("incomplete", "content_filter"),
}


def message(text: str = "Hi", **more: Any) -> dict[str, Any]:
    part = {"type": "output_text", "annotations": [], "logprobs": [], "text": text}
    return {"id": "msg_1", "type": "message", "status": "completed", "role": "assistant", "content": [part], **more}


def refusal(words: str = "I can't help with that.") -> dict[str, Any]:
    return message(content=[{"type": "refusal", "refusal": words}])


def reasoning(text: str = "Hm.", **more: Any) -> dict[str, Any]:
    return {"id": "rs_1", "type": "reasoning", "summary": [{"type": "summary_text", "text": text}], **more}


def function_call(arguments: Any = '{"a": 1}', **more: Any) -> dict[str, Any]:
    call = {"id": "fc_1", "type": "function_call", "status": "completed", "call_id": "t1", "name": "f", "arguments": arguments}
    return {**call, **more}


def body(*output: Any, status: Any = "completed", reason: Any = None, **more: Any) -> dict[str, Any]:
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1795305600,
        "status": status,
        "error": None,
        "incomplete_details": None if reason is None else {"reason": reason},
        "model": "some-model-1",
        "output": list(output) or [message()],
        **more,
    }


def usage(answer: Answer) -> dict[str, Any]:
    taken = answer.input_tokens + answer.cached
    return {
        "input_tokens": taken,
        "input_tokens_details": {"cached_tokens": answer.cached},
        "output_tokens": answer.output_tokens,
        "output_tokens_details": {"reasoning_tokens": answer.thinking},
        "total_tokens": taken + answer.output_tokens,
    }


def items(answer: Answer) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    if answer.reasoning:
        found.append(reasoning("".join(answer.reasoning), encrypted_content="sealed"))
    if answer.text:
        cut = ENDS[answer.finish][0] == "incomplete"
        found.append(message("".join(answer.text), status="incomplete" if cut else "completed"))
    found += [
        function_call(json.dumps(call.arguments), id=f"fc_{n}", call_id=f"c{n}", name=call.name)
        for n, call in enumerate(answer.calls)
    ]
    return found


def whole(answer: Answer) -> dict[str, Any]:
    status, reason = ENDS[answer.finish]
    return {**body(status=status, reason=reason, usage=usage(answer)), "output": items(answer)}


def events(answer: Answer, manner: str = "named") -> list[dict[str, Any] | str]:
    final = whole(answer)
    begun = {**final, "status": "in_progress", "incomplete_details": None, "output": [], "usage": None}
    emitted: list[dict[str, Any] | str] = [
        {"type": "response.created", "response": begun},
        {"type": "response.in_progress", "response": begun},
    ]
    for place, item in enumerate(final["output"]):
        emitted += _item(item, place, answer, in_pieces=manner != "done only")
    last = {**final, "output": []} if manner == "empty end" else final
    emitted.append({"type": f"response.{final['status']}", "response": last})
    for number, event in enumerate(emitted):
        event["sequence_number"] = number
    return [*emitted, "[DONE]"] if manner == "unnamed" else emitted


def _item(item: dict[str, Any], place: int, answer: Answer, *, in_pieces: bool) -> list[dict[str, Any]]:
    at = {"item_id": item["id"], "output_index": place}
    begun = {key: value for key, value in item.items() if key not in ("content", "summary", "arguments", "encrypted_content")}
    emitted: list[dict[str, Any]] = []
    if item["type"] == "message":
        begun |= {"content": [], "status": "in_progress"}
        part = {**at, "content_index": 0}
        empty = {"type": "output_text", "annotations": [], "logprobs": [], "text": ""}
        emitted = [{"type": "response.content_part.added", **part, "part": empty}]
        emitted += [
            {"type": "response.output_text.delta", **part, "delta": piece, "logprobs": [], "obfuscation": "x"}
            for piece in answer.text
        ]
        emitted.append({"type": "response.output_text.done", **part, "text": "".join(answer.text), "logprobs": []})
        emitted.append({"type": "response.content_part.done", **part, "part": item["content"][0]})
    elif item["type"] == "reasoning":
        begun |= {"summary": []}
        part = {**at, "summary_index": 0}
        emitted = [{"type": "response.reasoning_summary_part.added", **part, "part": {"type": "summary_text", "text": ""}}]
        emitted += [{"type": "response.reasoning_summary_text.delta", **part, "delta": piece} for piece in answer.reasoning]
        emitted.append({"type": "response.reasoning_summary_text.done", **part, "text": "".join(answer.reasoning)})
        emitted.append({"type": "response.reasoning_summary_part.done", **part, "part": item["summary"][0]})
    else:
        begun |= {"arguments": "", "status": "in_progress"}
        text = item["arguments"]
        pieces = [text[at : at + 7] for at in range(0, len(text), 7)]
        emitted = [{"type": "response.function_call_arguments.delta", **at, "delta": piece} for piece in pieces]
        emitted.append({"type": "response.function_call_arguments.done", **at, "arguments": text})
    return [
        {"type": "response.output_item.added", "output_index": place, "item": begun},
        *(emitted if in_pieces else []),
        {"type": "response.output_item.done", "output_index": place, "item": item},
    ]


def stream(answer: Answer, manner: str = "named", *, newline: str = "\n") -> bytes:
    return sse(events(answer, manner), named=manner != "unnamed", newline=newline)

"""Messages as JSON, for stores.

The Python objects that tools returned (`ToolResult.value`, `Stop.output`) are left out; the text that the model received is kept. The
JSON is ASCII, so that half surrogate pairs, which models do send, survive.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, cast, get_args

from agentlab.types import Message, NativeContent, Role, Stop, ToolCall, ToolResult


def encode(message: Message) -> str:
    """Return a message as JSON text, without empty fields."""
    return json.dumps(plain(message), separators=(",", ":"))


def plain(message: Message, place_of: Mapping[int, int] = MappingProxyType({})) -> dict[str, Any]:
    """Return a message as a dict for JSON. Tool results whose `id()` is in `place_of` are replaced by that place."""
    data: dict[str, Any] = {"role": message.role, "text": message.text}
    if message.tool_calls:
        data["tool_calls"] = [
            {"id": call.id, "name": call.name, "arguments": call.arguments, "closed": call.closed} for call in message.tool_calls
        ]
    if message.tool_results:
        data["tool_results"] = [
            {"of_step": place_of[id(result)]} if id(result) in place_of else _result(result) for result in message.tool_results
        ]
    if message.native is not None:
        data["native"] = {"wire": message.native.wire, "content": message.native.content}
    return data


def decode(text: str) -> Message:
    """Return the message encoded by `encode`. Raises ValueError for any other text."""
    return made(json.loads(text))


def made(data: Any) -> Message:
    """Return the message from a dict made by `plain`. Raises ValueError for anything else."""
    try:
        if data["role"] not in get_args(Role):
            raise ValueError(f"role {data['role']!r} is none of {', '.join(get_args(Role))}")
        native = data.get("native")
        return Message(
            cast(Role, data["role"]),
            data["text"],
            tuple([ToolCall(**call) for call in data.get("tool_calls", ())]),
            tuple([_as_result(result) for result in data.get("tool_results", ())]),
            None if native is None else NativeContent(native["wire"], native["content"]),
        )
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"not a message: {type(error).__name__}: {error}") from error


_RESULT_FIELDS = ("call_id", "name", "content", "error", "arguments", "duration_s")
_CHANGED_FIELDS = ("middleware", "executed_arguments")


def _result(result: ToolResult) -> dict[str, Any]:
    names = _RESULT_FIELDS + _CHANGED_FIELDS if result.middleware else _RESULT_FIELDS
    stop = {} if result.stop is None else {"stop": result.stop.reason}
    return {name: getattr(result, name) for name in names} | stop


def of_step(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a stored tool result of a step in the form of a message's."""
    stop = {} if data.get("stop") is None else {"stop": data["stop"]["reason"]}
    return {name: data[name] for name in _RESULT_FIELDS + _CHANGED_FIELDS if name in data} | stop


def _as_result(data: dict[str, Any]) -> ToolResult:
    stop = data.get("stop")
    return ToolResult(**{**data, "stop": None if stop is None else Stop(stop)})

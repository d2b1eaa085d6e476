"""Reads values of any shape, and writes JSON.

A provider may send anything: a list where an object is documented, null, a number as text, NaN. These functions return an empty value
for a wrong shape, and never raise.
"""

from __future__ import annotations

import copy
import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from typing import Any, TypeAlias

import pydantic_core

from agentlab._internal.safe_text import whole
from agentlab.model.messages import JSON, ToolCall
from agentlab.model.responses import ModelResponse
from agentlab.model.usage import Usage

MAX_COUNT = 2**63 - 1
"""The largest token count that fits into a frame's column."""

UNPARSED = "_unparsed"
"""The key of arguments that are not a JSON object, sent as text on a wire that needs an object."""

whole_text = whole

_NOT_IN_ID = re.compile(r"[^a-zA-Z0-9_-]")


def as_dict(value: JSON) -> dict[str, Any]:
    """Return the value if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def as_list(value: JSON) -> list[Any]:
    """Return the value if it is an array, else an empty one."""
    return value if isinstance(value, list) else []


def as_text(value: JSON) -> str:
    """Return the value if it is a string, else an empty one. Halves of surrogate pairs are joined or replaced."""
    return whole_text(value) if isinstance(value, str) else ""


Shape: TypeAlias = "type | tuple[Shape, ...] | list[Shape] | Fields"
"""A documented form of JSON: a type, several alternatives, a list of one form, or an object."""

Fields: TypeAlias = dict[str, Shape]
"""The forms of some fields of an object."""

NULL = type(None)
TEXT: tuple[Shape, ...] = (str, NULL)

_KINDS = {NULL: "null", bool: "a boolean", int: "a number", float: "a number", str: "text", list: "a list", dict: "an object"}


def misfit(value: JSON, shape: Shape, where: str) -> str:
    """Return the first part of a value that does not have its documented form, as `choices[].message.content is a number`; an empty
    string if all have. Missing and further fields are ignored.

    Example:
        >>> from agentlab.providers.wires.read import TEXT, misfit
        >>> misfit({"content": [{"text": 5}]}, {"content": [{"text": TEXT}]}, "message")
        'message.content[].text is a number'
    """
    if isinstance(shape, tuple):
        found = [misfit(value, one, where) for one in shape]
        return "" if "" in found else found[-1]
    if isinstance(shape, dict) and isinstance(value, dict):
        parts = ((value[name], inner, f"{where}.{name}") for name, inner in shape.items() if name in value)
    elif isinstance(shape, list) and isinstance(value, list):
        parts = ((item, shape[0], f"{where}[]") for item in value)
    elif isinstance(shape, type) and isinstance(value, shape):
        return ""
    else:
        return f"{where} is {_KINDS.get(type(value), 'of an unknown type')}"
    return next(filter(None, (misfit(*part) for part in parts)), "")


def some_text(value: JSON) -> str | None:
    """Return the value if it is a string and not empty, else None."""
    return as_text(value) or None


def count(value: JSON) -> int | None:
    """Return a number of tokens, or None for anything else."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_COUNT:
        return value
    return None


def added(first: int | None, *others: int | None) -> int | None:
    """Return the sum of token counts, in which None counts as 0; None if the first is None."""
    if first is None:
        return None
    return first + sum(other or 0 for other in others)


def so_far(usage: Usage) -> Usage:
    """Return the usage of a broken stream without its output tokens, since the stream reported only the first ones."""
    return replace(usage, output_tokens=None, reasoning_tokens=None, output_audio_tokens=None, output_image_tokens=None)


def money(value: JSON) -> Decimal | None:
    """Return US dollars, or None for anything else. `repr` of a float has the digits of the JSON."""
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        return None
    try:
        amount = Decimal(repr(value) if isinstance(value, float) else value)
    except (InvalidOperation, ValueError):
        return None
    return amount if amount.is_finite() and amount >= 0 else None


def loads(text: str | bytes) -> JSON:
    """Parse JSON. Raises ValueError only, also for deep nesting and long integers.

    pydantic's parser is about three times as fast as the standard library's, but stricter (halves of surrogate pairs, bytes that are
    not UTF-8): the standard library parses text that pydantic refuses.
    """
    try:
        return pydantic_core.from_json(text)
    except (TypeError, ValueError):  # a TypeError for text that cannot be encoded
        pass
    try:
        return json.loads(text if isinstance(text, str) else text.decode("utf-8", "replace"))
    except RecursionError:
        raise ValueError("JSON nested too deeply") from None


def ends_early(text: str | bytes) -> bool:
    """True if the text is the beginning of a JSON object or array that was cut off."""
    text = (text if isinstance(text, str) else text.decode("utf-8", "replace")).strip()
    if not text.startswith(("{", "[")):
        return False
    try:
        pydantic_core.from_json(text)
    except (TypeError, ValueError) as error:
        if "EOF while parsing" in str(error):
            return True
    else:
        return False
    try:  # the lenient parser may accept what the strict one refused
        json.loads(text)
    except json.JSONDecodeError as error:
        return error.pos >= len(text) or error.msg.startswith("Unterminated string")
    except (RecursionError, ValueError):
        return False
    return False


def dumps(value: JSON) -> bytes:
    """Return compact UTF-8 JSON in the given order. NaN, infinities, very long integers and deeply nested values become null."""
    try:
        try:
            text = _ENCODER.encode(value)
        except ValueError:
            text = json.dumps(_writable(value), ensure_ascii=False, separators=(",", ":"), default=_plain)
    except RecursionError:
        return b"null"
    return text.encode("utf-8", "replace")


def _plain(value: object) -> dict[Any, Any]:
    if isinstance(value, Mapping):  # a frozen mapping
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not a JSON value")


_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=_plain)


def _writable(value: JSON) -> JSON:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, int):
        return value if value.bit_length() < 10_000 else None  # Python refuses to write more than 4,300 digits
    if isinstance(value, dict):
        return {key: _writable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_writable(item) for item in value]
    return value


def json_object(fields: Iterable[tuple[str, bytes]]) -> bytes:
    """Return an object of names and encoded values."""
    return b"{" + b",".join(dumps(name) + b":" + value for name, value in fields) + b"}"


def json_array(values: Iterable[bytes]) -> bytes:
    """Return an array of encoded values, without empty ones (empty messages)."""
    return b"[%b]" % b",".join(filter(None, values))  # fast, since all messages of a run are joined for each request


def is_json(text: str) -> bool:
    """True if a tool call's arguments are complete: one JSON value and nothing else."""
    try:
        loads(text)
    except ValueError:
        return False
    return True


def is_json_object(text: str) -> bool:
    """True if a tool call's arguments are valid: one JSON object and nothing else."""
    try:
        return isinstance(loads(text), dict)
    except ValueError:
        return False


def arguments_object(text: str) -> bytes:
    """Return a tool call's arguments for a wire that needs an object; other values are wrapped under UNPARSED."""
    if not text.strip():
        return b"{}"
    try:
        value = loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        return dumps({UNPARSED: text})
    if "NaN" in text or "Infinity" in text:  # not JSON, though Python accepts them
        return dumps(value)
    return text.encode("utf-8", "replace")


def arguments_text(value: JSON, *, closed: bool) -> str:
    """Return a tool call's arguments as text, from text, an object or None.

    A closed call without arguments is `{}`, since several servers send an empty string for a tool without parameters.
    """
    if isinstance(value, str):
        text = whole_text(value)
        return "{}" if closed and not text.strip() else text
    if value is None:
        return "{}" if closed else ""
    return dumps(value).decode()


def plain_id(text: str) -> str:
    """Return a tool call's id with only the characters that every vendor accepts."""
    return _NOT_IN_ID.sub("_", text)


# Tool calls ----------------------------------------------------------------------------------------------------------------


def tool_call(call_id: JSON, number: int, name: JSON, arguments: JSON, *, closed: bool) -> ToolCall:
    """Return a tool call from unchecked values; its id is made from `number` if the server sent none."""
    text = arguments_text(arguments, closed=closed)
    return ToolCall(as_text(call_id) or f"call_{number}", as_text(name), text, closed=closed)


RawCall: TypeAlias = tuple[JSON, JSON, JSON]
"""The unchecked id, name and arguments of a call in a block."""


def tool_calls(
    blocks: list[dict[str, Any]], raw_call: Callable[[dict[str, Any]], RawCall | None], *, cut: bool
) -> tuple[ToolCall, ...]:
    """Return the calls among the blocks. The last block of a cut response counts as open, since a whole body does not mark open
    blocks."""
    calls: list[ToolCall] = []
    for number, block in enumerate(blocks, 1):
        found = raw_call(block)
        if found is None:
            continue
        call_id, name, arguments = found
        calls.append(tool_call(call_id, len(calls) + 1, name, arguments, closed=not (cut and number == len(blocks))))
    return tuple(calls)


def unique_call_ids(response: ModelResponse) -> ModelResponse:
    """Return the response with a new id for each call without an id, or with the id of an earlier call, since results are sent by id.
    The native form of the turn gets the same ids."""
    if len(response.tool_calls) == 1 and response.tool_calls[0].id:
        return response
    ids = {call.id for call in response.tool_calls}
    if "" not in ids and len(ids) == len(response.tool_calls):
        return response
    calls: list[ToolCall] = []
    taken: set[str] = set()
    for number, call in enumerate(response.tool_calls, 1):
        new = free_id(call.id or f"call_{number}", taken)
        taken.add(new)
        calls.append(call if new == call.id else replace(call, id=new))
    native = response.native
    if native is not None:
        native = replace(native, content=_with_ids(native.content, response.tool_calls, calls))
    return replace(response, tool_calls=tuple(calls), native=native)


def free_id(call_id: str, taken: Collection[str]) -> str:
    """Return the id, with a number appended if it is taken."""
    number, new = 2, call_id
    while new in taken:
        new, number = f"{call_id}_{number}", number + 1
    return new


def _with_ids(content: JSON, before: tuple[ToolCall, ...], after: list[ToolCall]) -> JSON:
    content = copy.deepcopy(content)
    places = list(_id_places(content))
    if len(places) != len(before):  # some are calls that the vendor runs
        waiting = [call.id for call in before]
        places = [(part, name) for part, name in places if part.get(name) in waiting]
    may_lack_id = "parts" in as_dict(content)  # Gemini's calls and their results may have no id
    for (part, name), call in zip(places, after, strict=False):
        if part.get(name) or not may_lack_id:
            part[name] = call.id
    return content


def _id_places(content: JSON) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield each call of a turn in a provider's form, and the field with its id."""
    whole = as_dict(content)
    for call in as_list(whole.get("tool_calls")):  # chat completions
        yield as_dict(call), "id"
    for part in as_list(whole.get("parts")):  # Gemini
        if isinstance(call := as_dict(part).get("functionCall"), dict):
            yield call, "id"
    for block in map(as_dict, as_list(content)):
        if block.get("type") == "tool_use":  # Anthropic
            yield block, "id"
        elif block.get("type") == "function_call":  # Responses
            yield block, "call_id"
        elif isinstance(call := block.get("toolUse"), dict) and "type" not in call:  # Bedrock; it runs tools with a type itself
            yield call, "toolUseId"

"""Reading values whose shape nobody promised, and writing JSON by one rule.

What a provider sends is data of any shape: a list where an object is documented, null, a number as text, NaN. The readers here
answer with an empty value where the shape is wrong, and never raise.

What wires have in common: reading calls out of blocks, and a unique id for each call.
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

from pydantic_core import from_json

from agentlab.printable import whole
from agentlab.types import JSON, ModelResponse, ToolCall, Usage

MAX_COUNT = 2**63 - 1
"""A larger token count is nonsense, and would not fit the column of a frame."""

UNPARSED = "_unparsed"
"""Where the arguments of a tool call are not a JSON object, but the wire needs one, they travel as the text under this key."""

whole_text = whole

_MAX_BITS = 10_000  # Python refuses to write an integer of more than 4,300 digits

_NOT_IN_ID = re.compile(r"[^a-zA-Z0-9_-]")


def as_dict(value: JSON) -> dict[str, Any]:
    """The value where it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def as_list(value: JSON) -> list[Any]:
    """The value where it is an array, else an empty one."""
    return value if isinstance(value, list) else []


def as_text(value: JSON) -> str:
    """The value where it is a string, else an empty one. Halves of surrogate pairs are put together, or replaced."""
    return whole_text(value) if isinstance(value, str) else ""


def some_text(value: JSON) -> str | None:
    """The value where it is a string with something in it, else None."""
    return as_text(value) or None


def count(value: JSON) -> int | None:
    """A number of tokens, or None where it is not one."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_COUNT:
        return value
    return None


def added(first: int | None, *others: int | None) -> int | None:
    """The sum of a token count and of its parts that may be absent; None where the first is."""
    if first is None:
        return None
    return first + sum(other or 0 for other in others)


def so_far(usage: Usage) -> Usage:
    """The usage of a stream that broke off: what it reported of the output were the first tokens, and more were charged."""
    return replace(usage, output_tokens=None, reasoning_tokens=None, output_audio_tokens=None, output_image_tokens=None)


def money(value: JSON) -> Decimal | None:
    """US dollars, or None where it is not an amount. `repr` of a float is the shortest text, hence the JSON's own digits."""
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        return None
    try:
        amount = Decimal(repr(value) if isinstance(value, float) else value)
    except (InvalidOperation, ValueError):
        return None
    return amount if amount.is_finite() and amount >= 0 else None


def loads(text: str | bytes) -> JSON:
    """Parse JSON. Raises ValueError, and nothing else: also for nesting too deep and for integers too long.

    pydantic's parser is about three times as fast as the standard library's, and stricter (halves of surrogate pairs, bytes that are
    not UTF-8): what it refuses, the other one gets.
    """
    try:
        return from_json(text)
    except (TypeError, ValueError):  # a TypeError for text that cannot be encoded
        pass
    try:
        return json.loads(text if isinstance(text, str) else text.decode("utf-8", "replace"))
    except RecursionError:
        raise ValueError("JSON nested too deeply") from None


def ends_early(text: str | bytes) -> bool:
    """Whether a JSON object or array begins here and does not come to its end: what is left of one that was cut off."""
    text = (text if isinstance(text, str) else text.decode("utf-8", "replace")).strip()
    if not text.startswith(("{", "[")):
        return False
    try:
        from_json(text)
    except (TypeError, ValueError) as error:
        if "EOF while parsing" in str(error):
            return True
    else:
        return False
    try:  # what the strict parser stumbled on may be none of the other one's business
        json.loads(text)
    except json.JSONDecodeError as error:
        return error.pos >= len(text) or error.msg.startswith("Unterminated string")
    except (RecursionError, ValueError):
        return False
    return False


def dumps(value: JSON) -> bytes:
    """Compact UTF-8 JSON in the order given. NaN and infinities, which JSON has no word for, become null; so do integers too long
    to be written, and a value nested too deeply."""
    try:
        try:
            text = _ENCODER.encode(value)
        except ValueError:
            text = json.dumps(_writable(value), ensure_ascii=False, separators=(",", ":"), default=_plain)
    except RecursionError:
        return b"null"
    return text.encode("utf-8", "replace")


def _plain(value: object) -> dict[Any, Any]:
    if isinstance(value, Mapping):  # a frozen one
        return dict(value)
    raise TypeError(f"{type(value).__name__} is no JSON value")


_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=_plain)


def _writable(value: JSON) -> JSON:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, int):
        return value if value.bit_length() < _MAX_BITS else None
    if isinstance(value, dict):
        return {key: _writable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_writable(item) for item in value]
    return value


def json_object(fields: Iterable[tuple[str, bytes]]) -> bytes:
    """An object from names and values that are JSON already."""
    return b"{" + b",".join(dumps(name) + b":" + value for name, value in fields) + b"}"


def json_array(values: Iterable[bytes]) -> bytes:
    """An array from values that are JSON already; empty ones (a message with nothing in it) are left out."""
    return b"[%b]" % b",".join(filter(None, values))  # in C: the messages of a long run are joined for each of its requests


def is_json(text: str) -> bool:
    """Whether a tool call's arguments are complete: one JSON value and nothing else."""
    try:
        loads(text)
    except ValueError:
        return False
    return True


def is_json_object(text: str) -> bool:
    """Whether a tool call's arguments are what they should be: one JSON object and nothing else."""
    try:
        return isinstance(loads(text), dict)
    except ValueError:
        return False


def arguments_object(text: str) -> bytes:
    """A tool call's arguments for a wire that needs an object: as they are, or wrapped under UNPARSED where they are not one."""
    if not text.strip():
        return b"{}"
    try:
        value = loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        return dumps({UNPARSED: text})
    if "NaN" in text or "Infinity" in text:  # Python's parsers take them, other people's do not
        return dumps(value)
    return text.encode("utf-8", "replace")


def arguments_text(value: JSON, *, closed: bool) -> str:
    """A tool call's arguments as text, from a server that sent text, an object, or nothing at all.

    A finished call without arguments is `{}`: several servers send an empty string for a tool without parameters.
    """
    if isinstance(value, str):
        text = whole_text(value)
        return "{}" if closed and not text.strip() else text
    if value is None:
        return "{}" if closed else ""
    return dumps(value).decode()


def plain_id(text: str) -> str:
    """A tool call's id in the letters that every vendor accepts."""
    return _NOT_IN_ID.sub("_", text)


Asked: TypeAlias = tuple[JSON, JSON, JSON]
"""A call as a block has it: its id, the tool's name and the arguments, none of them checked."""


def tool_calls(
    blocks: list[dict[str, Any]], asked: Callable[[dict[str, Any]], Asked | None], *, cut: bool
) -> tuple[ToolCall, ...]:
    """The calls among the blocks. A whole body shows a block that was cut as if it were complete: so the last block of a response
    that was cut counts as open."""
    calls: list[ToolCall] = []
    for number, block in enumerate(blocks, 1):
        found = asked(block)
        if found is None:
            continue
        call_id, name, arguments = found
        closed = not (cut and number == len(blocks))
        calls.append(
            ToolCall(
                id=as_text(call_id) or f"call_{len(calls) + 1}",
                name=as_text(name),
                arguments=arguments_text(arguments, closed=closed),
                closed=closed,
            )
        )
    return tuple(calls)


def with_ids_of_their_own(response: ModelResponse) -> ModelResponse:
    """The response, with another id for each call whose id an earlier call of it has, or that has none: results are given back by id.
    The turn in the provider's own form has the same ids."""
    found = response.tool_calls
    if (
        not found
        or (len(found) == 1 and found[0].id)
        or ("" not in (ids := {call.id for call in found}) and len(ids) == len(found))
    ):
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
    """The id, with a number behind it where it is taken."""
    number, new = 2, call_id
    while new in taken:
        new, number = f"{call_id}_{number}", number + 1
    return new


def _with_ids(content: JSON, before: tuple[ToolCall, ...], after: list[ToolCall]) -> JSON:
    content = copy.deepcopy(content)
    places = list(_id_places(content))
    if len(places) != len(before):  # the vendor's own calls are among them
        waiting = [call.id for call in before]
        places = [(part, name) for part, name in places if part.get(name) in waiting]
    may_lack_it = "parts" in as_dict(content)  # Gemini's calls may go without an id, and their results then too
    for (part, name), call in zip(places, after, strict=False):
        if part.get(name) or not may_lack_it:
            part[name] = call.id
    return content


def _id_places(content: JSON) -> Iterator[tuple[dict[str, Any], str]]:
    """The calls of a turn in a provider's own form, and the field that holds their id."""
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
        elif (
            isinstance(call := block.get("toolUse"), dict) and "type" not in call
        ):  # Bedrock; with a type, it runs the tool itself
            yield call, "toolUseId"

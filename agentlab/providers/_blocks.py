"""What wires have in common: reading calls out of blocks, and a unique id for each call."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from typing import Any, TypeAlias

from agentlab.providers import _read as read
from agentlab.types import JSON, ModelResponse, ToolCall

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
                id=read.as_text(call_id) or f"call_{len(calls) + 1}",
                name=read.as_text(name),
                arguments=read.arguments_text(arguments, closed=closed),
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
    may_lack_it = "parts" in read.as_dict(content)  # Gemini's calls may go without an id, and their results then too
    for (part, name), call in zip(places, after, strict=False):
        if part.get(name) or not may_lack_it:
            part[name] = call.id
    return content


def _id_places(content: JSON) -> Iterator[tuple[dict[str, Any], str]]:
    """The calls of a turn in a provider's own form, and the field that holds their id."""
    whole = read.as_dict(content)
    for call in read.as_list(whole.get("tool_calls")):  # chat completions
        yield read.as_dict(call), "id"
    for part in read.as_list(whole.get("parts")):  # Gemini
        if isinstance(call := read.as_dict(part).get("functionCall"), dict):
            yield call, "id"
    for block in map(read.as_dict, read.as_list(content)):
        if block.get("type") == "tool_use":  # Anthropic
            yield block, "id"
        elif block.get("type") == "function_call":  # Responses
            yield block, "call_id"
        elif (
            isinstance(call := block.get("toolUse"), dict) and "type" not in call
        ):  # Bedrock; with a type, it runs the tool itself
            yield call, "toolUseId"

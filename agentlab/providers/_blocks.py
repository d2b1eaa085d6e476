"""What the wires have in common on which a turn of the model is a list of blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from agentlab.providers import _read as read
from agentlab.types import JSON, ToolCall

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

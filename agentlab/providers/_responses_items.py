"""The items of a Responses output: what each of them says, and which wait for the caller."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from agentlab.providers import _read as read
from agentlab.types import JSON

Item = dict[str, Any]

_WAITING = frozenset(
    {
        "function_call",
        "custom_tool_call",
        "computer_call",
        "local_shell_call",
        "shell_call",
        "apply_patch_call",
        "mcp_approval_request",
        "tool_search_call",
    }
)
"""Items that ask the caller for something. Some of them are run by the vendor too, and then their results stand in the same output."""

_LED_BY_REASONING = ("message", "function_call")
_TEXT_TYPES = ("output_text", "text", None)


def items_of(output: JSON) -> list[Item]:
    """The items that are objects; a message that does not say its type is given it."""
    found = [item for item in read.as_list(output) if isinstance(item, dict)]
    return [{"type": "message", **item} if "type" not in item and "role" in item else item for item in found]


def waiting_items(items: list[Item]) -> list[Item]:
    """The items that wait for the caller: calls of the person's functions whose result is not there, and what else the vendor leaves
    to the caller, unless the model has gone on with a message (xAI lists calls of its own tools as `custom_tool_call`)."""
    answered = {read.as_text(item.get("call_id")) for item in items if read.as_text(item.get("type")).endswith("_output")} - {""}
    last_message = max((place for place, item in enumerate(items) if item.get("type") == "message"), default=-1)
    return [
        item
        for place, item in enumerate(items)
        if is_waiting_kind(item.get("type"))
        and read.as_text(item.get("call_id")) not in answered
        and item.get("execution") != "server"
        and (item.get("type") == "function_call" or place > last_message)
    ]


def is_waiting_kind(kind: JSON) -> bool:
    """Whether items of this type ask the caller for something."""
    return isinstance(kind, str) and kind in _WAITING


def text_of(item: Item) -> str:
    """The text of a message."""
    content = item.get("content")
    if item.get("type") != "message" or isinstance(content, str):
        return read.as_text(content) if item.get("type") == "message" else ""
    return "".join(_texts(content, _TEXT_TYPES))


def refusals_of(item: Item) -> list[str]:
    """The refusals in a message."""
    if item.get("type") != "message":
        return []
    parts = [part for part in read.as_list(item.get("content")) if isinstance(part, dict) and part.get("type") == "refusal"]
    return [read.as_text(part.get("refusal")) for part in parts]


def thoughts_of(item: Item) -> list[str]:
    """The paragraphs of a reasoning item: its summary and its text. Servers that send the same under both names are heard once."""
    if item.get("type") != "reasoning":
        return []
    content = item.get("content")
    texts = [content] if isinstance(content, str) else _texts(content, ("reasoning_text", "text"))
    summary = _texts(item.get("summary"), ("summary_text", None))
    return [paragraph for paragraph in (texts if summary == texts else [*summary, *texts]) if paragraph]


def _texts(parts: JSON, types: Iterable[str | None]) -> list[str]:
    return [
        read.as_text(part.get("text")) for part in read.as_list(parts) if isinstance(part, dict) and part.get("type") in types
    ]


def arguments_of(item: Item) -> JSON:
    """What a call is called with, as sent."""
    return item.get("input") if item.get("type") == "custom_tool_call" else item.get("arguments")


def call_id_of(item: Item, number: int) -> str:
    """The id that the result of a call is given back under; `number` makes one where a server sends none."""
    return read.as_text(item.get("call_id")) or read.as_text(item.get("id")) or f"call_{number}"


def weight(items: Iterable[Item]) -> int:
    """How many characters of text, reasoning and arguments there are: of two forms of one output, the fuller one is the truth."""
    total = 0
    for item in items:
        arguments = arguments_of(item)
        total += len(text_of(item)) + sum(map(len, refusals_of(item))) + sum(map(len, thoughts_of(item)))
        total += len(arguments) if isinstance(arguments, str) else 2 * (arguments is not None)
    return total


def native_items(items: list[Item], *, stored: bool) -> list[Item]:
    """The items as they are sent back, for a server that keeps nothing unless `stored`.

    They go as they came, with these exceptions, each of which some server refuses: null fields; arguments that are no JSON object;
    reasoning without its content, which only its id would find; reasoning that nothing follows; messages without content. Where
    reasoning is left out, the items that it led to go without their ids, which would demand it.
    """
    kept: list[Item] = []
    calls, left_out = 0, False
    for item in items:
        kind = item.get("type")
        if kind == "function_call":
            calls += 1
            kept.append(_call_to_send(item, calls))
        elif kind == "reasoning" and not stored and not item.get("encrypted_content") and not item.get("content"):
            left_out = True
        elif kind == "message" and not item.get("content"):
            continue
        else:
            kept.append(
                {key: value for key, value in item.items() if value is not None} if kind in ("message", "reasoning") else item
            )
    while kept and kept[-1].get("type") == "reasoning":
        kept.pop()
    if left_out:
        kept = [
            {key: value for key, value in item.items() if key != "id"} if item.get("type") in _LED_BY_REASONING else item
            for item in kept
        ]
    return kept


def _call_to_send(item: Item, number: int) -> Item:
    text = read.arguments_text(item.get("arguments"), closed=True)
    fit = {key: value for key, value in item.items() if value is not None}
    return {
        **fit,
        "call_id": call_id_of(item, number),
        "name": read.as_text(item.get("name")),
        "arguments": read.arguments_object(text).decode(),
    }


# What is charged beside the tokens -----------------------------------------------------------------------------------------

_TOKENS_ONLY = frozenset(
    {"function_call", "custom_tool_call", "mcp_call", "computer_call", "tool_search_call", "apply_patch_call", "local_shell_call"}
)
"""Calls that cost their tokens and nothing more: the caller runs them, or the vendor does so for nothing."""

_COUNTED = frozenset({"web_search_call", "file_search_call"})
_IN_WORDS = {"code_interpreter_call": "a code container", "shell_call": "a code container", "image_generation_call": "images"}


def web_searches(body: Mapping[str, Any], items: list[Item]) -> int:
    """Web searches that are charged: the vendor's count of them, else the searches in the output."""
    counted = read.count(read.as_dict(read.as_dict(body.get("tool_usage")).get("web_search")).get("num_requests"))
    return len(_searches(items)) if counted is None else counted


def charged_beside_tokens(body: Mapping[str, Any], items: list[Item]) -> Iterator[str]:
    """What the vendor ran and charges for, other than searches that are counted."""
    usage, tool_usage = read.as_dict(body.get("usage")), read.as_dict(body.get("tool_usage"))
    answered = [item.get("call_id") for item in items if item.get("type") == "shell_call_output"]
    for item in items:
        kind = read.as_text(item.get("type"))
        if not kind.endswith("_call") or kind in _TOKENS_ONLY or kind in _COUNTED:
            continue
        if kind != "shell_call" or item.get("call_id") in answered:  # the vendor ran it: its result is in the same output
            yield _IN_WORDS.get(kind, kind.removesuffix("_call").replace("_", " "))
    if read.count(read.as_dict(tool_usage.get("image_gen")).get("total_tokens")):
        yield "images"
    searches = _searches(items)
    kinds = {read.as_text(read.as_dict(tool).get("type")) for tool in read.as_list(body.get("tools"))}
    if searches and any(kind.startswith("web_search_preview") for kind in kinds):
        yield "web searches by the preview tool"
    elif len(searches) > web_searches(body, items):
        yield "web searches at a discount"
    elif "tool_usage" not in body and any(len(read.as_list(_action(item).get("queries"))) > 1 for item in searches):
        yield "web searches of several queries"
    written = read.as_dict(read.as_dict(usage.get("input_tokens_details")).get("cache_write_tokens_details"))
    if read.count(written.get("ttl_12h_tokens")):
        yield "cache writes kept for 12 hours"
    if read.count(usage.get("num_sources_used")):
        yield "sources of a live search"
    ran = read.as_dict(usage.get("server_side_tool_usage_details"))
    yield from (
        name.removesuffix("_calls").replace("_", " ") for name, times in ran.items() if read.count(times) and "mcp" not in name
    )


def _searches(items: list[Item]) -> list[Item]:
    """The web searches in an output; one that does not say what it did is one."""
    return [item for item in items if item.get("type") == "web_search_call" and _action(item).get("type") in (None, "search")]


def _action(item: Item) -> dict[str, Any]:
    return read.as_dict(item.get("action"))

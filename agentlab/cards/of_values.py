"""Cards of values: budgets and conditions, messages and tools, what was read and decided. Others show their fields."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from agentlab.cards.card import FIRST, UNKNOWN, Card, Table, ends_of, in_words
from agentlab.stop_tree import outline
from agentlab.usage import said_by

if TYPE_CHECKING:
    from agentlab.budget import Budget
    from agentlab.providers._base import Provider
    from agentlab.results import Reading
    from agentlab.settings import LiveSettings, RunSettings
    from agentlab.stop import StopCondition
    from agentlab.tools import Tool
    from agentlab.types import Cost, Message, TerminationSignal, Usage

NO_LIMIT, NONE = "no limit", "none"
AMOUNTS = ("usd", "tokens", "score")
"""How the names of fields end whose None means that it is not known."""
NOT_SHOWN = ("raw", "native", "duration_s", "started_s", "run_id", "parent_run_id", "parameters_json", "metadata", "time_s")
"""Fields of no use to a reader, or other ones at every execution."""


def fields_of(value: Any) -> Card:
    """A dataclass's fields; those that its repr leaves out, as keys are, are left out here too."""
    kind = type(value).__name__
    if not dataclasses.is_dataclass(value):
        return Card(kind, (("", value),))
    shown = [field.name for field in dataclasses.fields(value) if field.repr and field.name not in NOT_SHOWN]
    return Card(kind, tuple((name, _plain(name, getattr(value, name))) for name in shown))


def _plain(name: str, value: object) -> object:
    """A field's value: of amounts None is unknown, of all else it is none; several things stand one below the other."""
    if value is None:
        return UNKNOWN if name.endswith(AMOUNTS) else NONE
    if not isinstance(value, tuple) or not value:
        return value
    if all(isinstance(one, str) for one in value):
        return ", ".join(value)
    few, count = ends_of(value)
    lines = [repr(one) for one in few]
    if count > len(few):
        lines.insert(FIRST, f"… {count - len(few):,} more …")
    return "\n".join(lines)


def budget(value: Budget) -> Card:
    """Each limit with its unit, and what it bounds."""
    return Card("Budget", table=Table(("limit", "value", "bounds"), rows := tuple(_limits(value)), len(rows)))


def _limits(value: Any) -> Iterator[tuple[str, object, str]]:
    for field in dataclasses.fields(value):
        held = getattr(value, field.name)
        unit = field.metadata.get("unit", "")
        unit = unit.removesuffix("s") if held == 1 and len(unit) > 1 else unit
        yield field.name, NO_LIMIT if held is None else f"{in_words(held)} {unit}".strip(), field.metadata.get("help", "")


def condition(value: StopCondition) -> Card:
    """The tree, a line a node, a part further to the right than what it is a part of."""
    return Card("Stop condition", table=_tree(value))


def _tree(value: StopCondition) -> Table:
    nodes, count = ends_of(outline(value))
    rows = tuple((_indented(node.depth, node.name), _values(node), _flags(node)) for node in nodes)
    return Table(("condition", "values", ""), rows, count)


def _indented(depth: int, text: str) -> str:
    return "\N{NO-BREAK SPACE}" * 4 * depth + text


def _values(node: Any) -> str:
    if node.is_group:
        return f"{'any' if type(node.condition).__name__ == 'AnyOf' else 'all'} of the {len(node.condition.parts)} below"
    if not dataclasses.is_dataclass(node.condition):
        return repr(node.condition)
    shown = [field.name for field in dataclasses.fields(node.condition) if field.repr]
    return ", ".join(f"{name}={_in_short(getattr(node.condition, name))}" for name in shown)


def _in_short(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return getattr(value, "__name__", "a function") if callable(value) else in_words(value)


def _flags(node: Any) -> str:
    return ", ".join([*(["not"] if node.negated else []), *(["off"] if node.off else [])])


def settings(value: RunSettings) -> Card:
    """All that can be edited."""
    limits = [(name, held) for name, held, _ in _limits(value.budget)]
    more = [
        ("stop", "none" if value.stop is None else value.stop),
        ("terminating", "none" if value.terminating is None else value.terminating),
        ("continuation", value.continuation),
        ("policy", "the standard one" if value.policy is None else getattr(value.policy, "__name__", value.policy)),
    ]
    return Card(type(value).__name__, (*limits, *more))


def live(value: LiveSettings) -> Card:
    """The same as it is now."""
    return dataclasses.replace(
        settings(value.snapshot()), title="LiveSettings", note="As they are now; each can be set at any time."
    )


def reading(value: Reading) -> Card:
    """Each condition with what it read, its limit, and whether it was met."""
    rows = tuple(_read(value, 0))
    few, count = ends_of(rows)
    return Card("Reading", table=Table(("condition", "value", "limit", "met"), tuple(few), count))


def _read(value: Reading, depth: int) -> Iterator[tuple[object, ...]]:
    is_group = bool(value.children)
    held = ("", "") if is_group else (value.value, "" if value.limit is None else value.limit)
    yield _indented(depth, value.name), *held, value.met
    for child in value.children:
        yield from _read(child, depth + 1)


def usage(value: Usage) -> Card:
    """Tokens, the sum included."""
    return Card("Usage", (*said_by(value), ("total_tokens", value.total_tokens)))


def cost(value: Cost) -> Card:
    """The money, where the figure comes from, and what is to be said about it."""
    return Card("Cost", tuple(said_by(value)))


def message(value: Message) -> Card:
    """Who said it, what, and which tools were called."""
    calls, count = ends_of(value.tool_calls)
    results, given = ends_of(value.tool_results)
    rows = [
        *((f"calls {call.name}", call.arguments) for call in calls),
        *((f"{result.name} {'failed' if result.is_error else 'gave'}", result.content) for result in results),
    ]
    left_out = count - len(calls) + given - len(results)
    note = f"{left_out:,} more calls and results are left out here." if left_out else ""
    return Card(f"Message of the {value.role}", ((("text", value.text),) if value.text else ()) + tuple(rows), note=note)


def signal(value: TerminationSignal) -> Card:
    """The reason, and the provider's own words."""
    card = fields_of(value)
    missing = {"raw_value": "missing"} if value.raw_value is None else {}
    return dataclasses.replace(card, rows=tuple((name, missing.get(name, held)) for name, held in card.rows))


def tool(value: Tool) -> Card:
    """What a model is told of it."""
    known: Any = value.spec.parameters.get("properties", {})
    required: Any = value.spec.parameters.get("required", [])
    parameters = [
        (name, kind.get("type", "any") if isinstance(kind, dict) else "any", "" if name in required else "optional", _told(kind))
        for name, kind in known.items()
    ]
    few, count = ends_of(parameters)
    limit = "none" if value.timeout_s is None else f"{value.timeout_s:g} s"
    rows = (("description", value.spec.description), ("time limit", limit))
    return Card(f"Tool {value.name}", rows, Table(("parameter", "type", "", "description"), tuple(few), count) if few else None)


def _told(kind: object) -> str:
    return str(kind.get("description", "")) if isinstance(kind, dict) else ""


def provider(value: Provider) -> Card:
    """Its fields, never its key, and what it can do."""
    can = value.capabilities
    able = ", ".join(field.name for field in dataclasses.fields(can) if getattr(can, field.name) is True)
    card = fields_of(value)
    return Card(f"Provider {value.name}", (*card.rows, ("can", able)))


def optional_limits(value: Any) -> Card:
    """Fields of which None means that there is no limit."""
    return Card(type(value).__name__, tuple((name, held) for name, held, _ in _limits(value)))


def remaining(value: Any) -> Card:
    """What is left of each limit; of those that are not set, and of those that are not known, that is said."""
    rows = ((name, "no limit, or not known" if held in (NONE, UNKNOWN) else held) for name, held in fields_of(value).rows)
    return Card("Remaining", tuple(rows))


def proposal(value: Any) -> Card:
    """What would be changed."""
    changes = {"edits": value.edits, "leaves": value.leaves, "off": value.off}
    kept = tuple((name, held if not isinstance(held, tuple) else ", ".join(held)) for name, held in changes.items() if held)
    rows = (("does", value.label), ("why", value.why), ("branches after step", value.at), *kept)
    return Card(f"NextAction: {value.kind}", (*rows, ("needs a prompt", value.needs_prompt)))


CARDS: Mapping[str, Callable[[Any], Card]] = {
    "Budget": budget,
    "ChatCompletions": provider,
    "Anthropic": provider,
    "Bedrock": provider,
    "Gemini": provider,
    "Responses": provider,
    "ContinuationPolicy": optional_limits,
    "LiveSettings": live,
    "Message": message,
    "NextAction": proposal,
    "Reading": reading,
    "Remaining": remaining,
    "RunSettings": settings,
    "StopCondition": condition,
    "TerminationSignal": signal,
    "Tool": tool,
    "Usage": usage,
    "Cost": cost,
}

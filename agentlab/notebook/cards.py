"""Cards: the display of public values in a notebook, as HTML with a title, rows of names and values, a table, and a note.

A card is short, escaped and legible on white and on black. It has no times and no ids, so it is the same at every execution.
"""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeVar

import pandas as pd

from agentlab._internal.redaction import redact_url, text_of
from agentlab._internal.safe_text import AS_WRITTEN, cut, escape
from agentlab.agent import Agent, Run
from agentlab.engine.lockstep import Lockstep
from agentlab.engine.next_actions import NextAction
from agentlab.engine.termination import DecisionContext
from agentlab.experiments.experiment import Experiment
from agentlab.experiments.results import ExperimentResults
from agentlab.experiments.shared_budget import DryRun
from agentlab.experiments.tasks import Tasks
from agentlab.experiments.verify import Verification
from agentlab.interop.otel_export import Telemetry
from agentlab.limits.budget import Budget
from agentlab.limits.combinators import StopCondition
from agentlab.limits.condition_tree import Node, condition_code, outline
from agentlab.limits.live import LiveSettings
from agentlab.limits.reading import Reading
from agentlab.limits.settings import RunSettings
from agentlab.model.finish_reasons import TerminationSignal
from agentlab.model.messages import Message, ToolResult
from agentlab.model.parts import Part, in_bytes
from agentlab.model.usage import Cost, Usage, shown_fields
from agentlab.notebook.markup import provenance_rows
from agentlab.providers.base import Provider
from agentlab.records.history import RunHistory
from agentlab.records.step import StepResult
from agentlab.storage.store import Store
from agentlab.tools import McpServer, Tool

if TYPE_CHECKING:
    from agentlab.serving.chat import Chat, ChatReply  # a package at the same level

MOST_ROWS = 24
FIRST, LAST = 10, 10
"""Number of rows shown from the start and from the end of a long table."""
LONGEST_VALUE, LONGEST_NAME = 300, 80
UNKNOWN, NO_LIMIT, NONE = "unknown", "no limit", "none"
AMOUNTS = ("usd", "tokens", "score")
"""Suffixes of fields in which None means unknown."""
NOT_SHOWN = ("raw", "native", "duration_s", "started_s", "run_id", "parent_run_id", "parameters_json", "metadata", "time_s")
"""Fields that are not shown: internal ones, and those that differ at every execution."""

_LEFT = "text-align:left;vertical-align:top"
_NAME = f"{_LEFT};min-width:6em"
_VALUE = f"{_LEFT};white-space:pre-wrap;overflow-wrap:anywhere;max-width:60em"

F = TypeVar("F", bound=Callable[[Any], "Card"])


@dataclass(frozen=True, slots=True)
class Table:
    """A table with column heads, and the first and last of its `count` rows."""

    heads: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]
    count: int


@dataclass(frozen=True, slots=True)
class Card:
    """The content of a card. Values may be of any type: `as_html` converts them to text and escapes them."""

    title: str
    rows: tuple[tuple[str, object], ...] = ()
    table: Table | None = None
    note: str = ""
    images: tuple[Part, ...] = ()


_CARDS: dict[str, Callable[[Any], Card]] = {"Provenance": lambda made: Card("Provenance", tuple(provenance_rows(made)))}


def _card_of(*names: str) -> Callable[[F], F]:
    """Register a function that makes the card of the classes with these names."""

    def register(make: F) -> F:
        _CARDS.update(dict.fromkeys(names, make))
        return make

    return register


def card_of(value: object) -> Card:
    """Return the card that is registered for the value's class or one of its bases; otherwise a card of its fields."""
    for kind in type(value).__mro__:
        if kind.__name__ in _CARDS and kind.__module__.startswith("agentlab"):
            return _CARDS[kind.__name__](value)
    return fields_of(value)


def fields_of(value: Any) -> Card:
    """Return the fields of a dataclass, without those that its repr leaves out, such as keys."""
    kind = type(value).__name__
    if not dataclasses.is_dataclass(value):
        return Card(kind, (("", value),))
    shown = [field.name for field in dataclasses.fields(value) if field.repr and field.name not in NOT_SHOWN]
    return Card(kind, tuple((name, _field(name, getattr(value, name))) for name in shown))


def _field(name: str, value: object) -> object:
    if value is None:
        return UNKNOWN if name.endswith(AMOUNTS) else NONE
    if not isinstance(value, tuple) or not value:
        return value
    if all(isinstance(one, str) for one in value):
        return ", ".join(value)
    few, count = _ends_of(value)
    lines = [repr(one) for one in few]
    if count > len(few):
        lines.insert(FIRST, f"… {count - len(few):,} more …")
    return "\n".join(lines)


def _ends_of(whole: Sequence[Any]) -> tuple[list[Any], int]:
    """Return the first and the last items of a long sequence, and its length. The other items are not read."""
    count = len(whole)
    if count <= FIRST + LAST:
        return list(whole), count
    return [*(whole[at] for at in range(FIRST)), *(whole[at] for at in range(count - LAST, count))], count


def _table(heads: tuple[str, ...], whole: Sequence[Any], row: Callable[[Any], tuple[object, ...]] = tuple) -> Table | None:
    few, count = _ends_of(whole)
    return Table(heads, tuple(map(row, few)), count) if count else None


# HTML -----------------------------------------------------------------------------------------------------------------------


def as_html(card: Card) -> str:
    """Return the card as HTML, with everything in it escaped."""
    rows = "".join(
        f'<tr><th scope="row" style="{_NAME}">{escape(name, LONGEST_NAME)}</th><td style="{_VALUE}">{_cell(value)}</td></tr>'
        for name, value in card.rows[:MOST_ROWS]
    )
    more = len(card.rows) - MOST_ROWS
    note = re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(card.note))
    parts = [
        f'<p style="margin:0 0 2px"><b>{escape(card.title)}</b></p>',
        f"<table><tbody>{rows}</tbody></table>" if rows else "",
        f"<p>… and {more:,} more</p>" if more > 0 else "",
        "" if card.table is None else _table_html(card.table),
        f"<p>{note}</p>" if note else "",
        *map(_image_html, card.images),
    ]
    return f'<div class="agentlab-card {AS_WRITTEN}">{"".join(parts)}</div>'


LARGEST_IMAGE, MOST_IMAGES = 500_000, 4
"""Bytes of the largest image in a card, and how many it shows: a notebook keeps each output."""


def _image_html(part: Part) -> str:
    """Return an image whose media type was read from its bytes; empty for any other part, and for a large one."""
    if part.kind != "image" or not part.is_held or part.size_bytes > LARGEST_IMAGE:
        return ""
    source = f"data:{part.media_type};base64,{part.base64}"
    return f'<p><img src="{source}" alt="{escape(part.text[1:-1])}" style="max-width:320px;max-height:320px"></p>'


def _table_html(table: Table) -> str:
    heads = "".join(f'<th scope="col" style="{_LEFT}">{escape(head, LONGEST_NAME)}</th>' for head in table.heads)
    rows = ["<tr>" + "".join(f'<td style="{_VALUE}">{_cell(cell)}</td>' for cell in row) + "</tr>" for row in table.rows]
    left_out = table.count - len(rows)
    if left_out:
        rows.insert(FIRST, f'<tr><td colspan="{len(table.heads)}" style="{_LEFT}">… {left_out:,} more …</td></tr>')
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _cell(value: object) -> str:
    return escape(in_words(value), LONGEST_VALUE)


def in_words(value: object) -> str:
    """Return a value as text; None as `unknown`."""
    if value is None:
        return UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Decimal):
        return f"{value.normalize():f}"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Mapping | list | tuple | set | frozenset) and not value:
        return NONE
    if isinstance(value, StopCondition):
        return condition_code(value)
    return text_of(value, repr)


def _or(value: object, word: str = NONE) -> object:
    return word if value is None else value


# Limits, conditions and readings --------------------------------------------------------------------------------------------


def _limits(value: Any) -> Iterator[tuple[str, object, str]]:
    """Return name, value with unit, and meaning of each limit."""
    for field in dataclasses.fields(value):
        held, data = getattr(value, field.name), field.metadata
        unit = data.get("unit", "")
        unit = unit.removesuffix("s") if held == 1 and len(unit) > 1 else unit
        words = data.get("none", NO_LIMIT) if held is None else f"{in_words(held)} {unit}".strip()
        yield field.name, words, data.get("help", "")


@_card_of("Budget")
def _budget(value: Budget) -> Card:
    return Card("Budget", table=_table(("limit", "value", "bounds"), tuple(_limits(value))))


@_card_of("ContinuationPolicy")
def _continuation(value: Any) -> Card:
    return Card(type(value).__name__, tuple((name, held) for name, held, _ in _limits(value)))


@_card_of("RunSettings")
def _settings(value: RunSettings) -> Card:
    policy = "standard" if value.policy is None else getattr(value.policy, "__name__", value.policy)
    more = (("stop", _or(value.stop)), ("terminating", _or(value.terminating)), ("continuation", value.continuation))
    asks = (("approve", ", ".join(map(str, value.approve))),) if value.approve else ()
    return Card(
        type(value).__name__, (*((name, held) for name, held, _ in _limits(value.budget)), *more, *asks, ("policy", policy))
    )


@_card_of("LiveSettings")
def _live_settings(value: LiveSettings) -> Card:
    note = "The current values; each can be changed at any time."
    return dataclasses.replace(_settings(value.snapshot()), title="LiveSettings", note=note)


@_card_of("StopCondition")
def _condition(value: StopCondition) -> Card:
    def row(node: Node) -> tuple[object, ...]:
        flags = [word for word, on in (("not", node.negated), ("off", node.off)) if on]
        return _indented(node.depth, node.name), _condition_values(node), ", ".join(flags)

    return Card("Stop condition", table=_table(("name", "condition", ""), outline(value), row))


def _indented(depth: int, text: str) -> str:
    return "\N{NO-BREAK SPACE}" * 4 * depth + text


def _condition_values(node: Node) -> str:
    if node.is_group:
        return f"{'any' if type(node.condition).__name__ == 'AnyOf' else 'all'} of the {len(node.condition.parts)} below"
    return condition_code(node.condition)


@_card_of("Reading")
def _reading(value: Reading) -> Card:
    return Card("Reading", table=_table(("condition", "value", "limit", "met"), tuple(_reading_rows(value, 0))))


def _reading_rows(value: Reading, depth: int) -> Iterator[tuple[object, ...]]:
    held = ("", "") if value.children else (value.value, _or(value.limit, ""))
    yield _indented(depth, value.name), *held, value.met
    for child in value.children:
        yield from _reading_rows(child, depth + 1)


@_card_of("Remaining")
def _remaining(value: Any) -> Card:
    rows = ((name, "no limit, or unknown" if held in (NONE, UNKNOWN) else held) for name, held in fields_of(value).rows)
    return Card("Remaining", tuple(rows))


@_card_of("NextAction")
def _proposal(value: NextAction) -> Card:
    changes = {"edits": value.edits, "conditions": value.conditions, "off": value.off}
    kept = tuple((name, held if not isinstance(held, tuple) else ", ".join(held)) for name, held in changes.items() if held)
    rows = (("does", value.label), ("why", value.why), ("branches after step", value.at), *kept)
    return Card(f"NextAction: {value.kind}", (*rows, ("needs a prompt", value.needs_prompt)))


# Messages, tools and providers ----------------------------------------------------------------------------------------------


@_card_of("Message")
def _message(value: Message) -> Card:
    calls, count = _ends_of(value.tool_calls)
    results, result_count = _ends_of(value.tool_results)
    rows = (
        *((("text", value.text),) if value.text else ()),
        *((f"calls {call.name}", call.arguments) for call in calls),
        *((f"{result.name} {'failed' if result.is_error else 'result'}", result.content) for result in results),
    )
    left_out = count - len(calls) + result_count - len(results)
    note = f"{left_out:,} more calls and results." if left_out else ""
    return Card(f"Message of the {value.role}", rows, note=note, images=tuple(value.all_parts())[:MOST_IMAGES])


@_card_of("ToolResult")
def _tool_result(value: ToolResult) -> Card:
    returned = (("value", value.value),) if isinstance(value.value, str) else ()
    return Card("ToolResult", (*fields_of(value).rows, *returned), images=value.parts[:MOST_IMAGES])


@_card_of("Part")
def _part(value: Part) -> Card:
    shown = (("type", value.media_type), ("name", value.name), ("URL", redact_url(value.url) if value.url else ""))
    size = (("size", in_bytes(value.size_bytes)),) if value.size_bytes else ()
    pixels = (("pixels", f"{value.width} x {value.height}"),) if value.width else ()
    cached = (("cached for", value.cache_control),) if value.cache_control else ()
    rows = (*((name, held) for name, held in shown if held), *size, *pixels, *cached)
    return Card(type(value).__name__, rows, images=(value,))


@_card_of("Usage")
def _usage(value: Usage) -> Card:
    return Card("Usage", (*shown_fields(value), ("total_tokens", value.total_tokens)))


@_card_of("Cost")
def _cost(value: Cost) -> Card:
    return Card("Cost", tuple(shown_fields(value)))


@_card_of("TerminationSignal")
def _signal(value: TerminationSignal) -> Card:
    card = fields_of(value)
    missing = {"raw_value": "missing"} if value.raw_value is None else {}
    return dataclasses.replace(card, rows=tuple((name, missing.get(name, held)) for name, held in card.rows))


@_card_of("Tool")
def _tool(value: Tool) -> Card:
    known: Any = value.spec.parameters.get("properties", {})
    required: Any = value.spec.parameters.get("required", [])

    def row(parameter: tuple[str, Any]) -> tuple[object, ...]:
        name, kind = parameter
        kind = kind if isinstance(kind, dict) else {}
        return name, kind.get("type", "any"), "" if name in required else "optional", str(kind.get("description", ""))

    limit = NONE if value.timeout_s is None else f"{value.timeout_s:g} s"
    rows = (("description", value.spec.description), ("time limit", limit))
    return Card(f"Tool {value.name}", rows, _table(("parameter", "type", "", "description"), tuple(known.items()), row))


@_card_of("McpServer")
def _mcp_server(value: McpServer) -> Card:
    """The address or the command, without keys; the headers and the environment are not shown."""
    where, tools = getattr(value, "where", None), vars(value).get("_tools")
    rows = () if where is None else (("URL", redact_url(where.url)) if where.url else ("command", shlex.join(where.command)),)
    if tools is None:
        return Card(f"MCP server {value.name}", rows, note="Not open. `async with` or `await` starts it and lists its tools.")

    def row(one: Tool) -> tuple[object, ...]:
        known: Any = one.spec.parameters.get("properties", {})
        return one.name, ", ".join(known) or NONE, one.spec.description.partition("\n")[0]

    return Card(f"MCP server {value.name}", rows, _table(("tool", "parameters", "description"), tools, row))


@_card_of("ChatCompletions", "Responses", "Anthropic", "Bedrock", "Gemini")
def _provider(value: Provider) -> Card:
    can = value.capabilities
    able = ", ".join(field.name for field in dataclasses.fields(can) if getattr(can, field.name) is True)
    return Card(f"Provider {value.name}", (*fields_of(value).rows, ("can", able)))


# Agents and runs ------------------------------------------------------------------------------------------------------------


@_card_of("Agent")
def _agent(value: Agent) -> Card:
    settings = value.settings
    rows: list[tuple[str, object]] = [
        ("model", f"{value.model.name}:{value.model.model}"),
        ("tools", ", ".join(value.tools) or NONE),
        ("instructions", value.instructions or NONE),
        ("budget", settings.budget),
        ("stop", _or(settings.stop)),
    ]
    if settings.terminating is not None:
        rows.append(("terminating", settings.terminating))
    if settings.approve:
        rows.append(("approve", ", ".join(map(str, settings.approve))))
    rows += value.parameters.given().items()
    if value.options:
        rows.append(("options", ", ".join(value.options)))
    return Card(f"Agent {value.name}", (*rows, ("stream", value.stream)))


@_card_of("Run")
def _run(value: Run) -> Card:
    result, settings = value.result, value.limits.snapshot()
    rows = (
        ("agent", value.agent.name),
        ("prompt", value.prompt),
        ("state", value.state),
        *(() if result is None else (("ended", f"{result.stop_reason}: {result.detail}"),)),
        *_totals(value.history),
        ("budget", settings.budget),
        ("stop", _or(settings.stop)),
    )
    note = "" if result is not None else "`run.panel()` shows it live; `await run` runs it to its end."
    return Card("Run", rows, _steps(value.history), note)


@_card_of("RunHistory")
def _history(value: RunHistory) -> Card:
    return Card("RunHistory", tuple(_totals(value)), _steps(value))


def _totals(of: RunHistory) -> list[tuple[str, object]]:
    return [("steps", len(of)), ("calls", of.calls), ("tokens", of.tokens), ("cost, USD", of.cost_usd)]


def _steps(of: Sequence[StepResult]) -> Table | None:
    def row(step: StepResult) -> tuple[object, ...]:
        tools = ", ".join(call.name for call in step.tool_calls[:20])
        used = (step.all_tokens, step.all_cost_usd)
        return step.index, _or(step.finish_reason, "no answer"), tools, *used, _or(step.stop_reason, "")

    return _table(("step", "finish reason", "tools", "tokens", "cost, USD", "stop reason"), of, row)


@_card_of("StepResult")
def _step(value: StepResult) -> Card:
    called, count = _ends_of(value.tool_calls)
    rows: list[tuple[str, object]] = [("text", value.text)] if value.text else []
    rows += [(f"calls {call.name}", call.arguments) for call in called]
    rows += [("more calls", count - len(called))] if count > len(called) else []
    rows += [("finish reason", _or(value.finish_reason, "no answer"))]
    rows += [("decision", f"{value.decision.action}: {value.decision.reason}")]
    rows += [("model calls", len(value.calls)), ("tokens", value.all_tokens), ("cost, USD", value.all_cost_usd)]
    rows += [] if value.readings is None else [("conditions", f"{value.readings}")]
    rows += [] if value.error is None else [("error", f"{type(value.error).__name__}: {value.error}")]
    rows += [] if value.stop_reason is None else [("stop reason", value.stop_reason)]
    return Card(f"Step {value.index}", tuple(rows))


@_card_of("Lockstep")
def _lockstep(value: Lockstep) -> Card:
    def row(run: Run) -> tuple[object, ...]:
        return run.agent.name, run.state, len(run.history), run.history.tokens, run.history.cost_usd

    table = _table(("agent", "state", "steps", "tokens", "cost, USD"), value.runs, row)
    return Card("Lockstep", (("state", value.state), ("rounds", value.round)), table)


@_card_of("DecisionContext")
def _context(value: DecisionContext) -> Card:
    rows = (
        ("step", value.step),
        ("call", value.call),
        ("requested cap, tokens", _or(value.requested_cap)),
        ("settings", _or(value.settings)),
        ("response", value.response is not None),
        ("history", value.history is not None),
    )
    return Card("DecisionContext", rows)


# Stores, experiments and serving --------------------------------------------------------------------------------------------


@_card_of("Store")
def _store(value: Store) -> Card:
    behind = [("not yet written", len(value.unsaved))] if value.unsaved else []
    note = "`.frame()` lists the runs; `.load(run_id, agent)` restores one."
    return Card("Store", (("place", getattr(value.storage, "path", type(value.storage).__name__)), *behind), note=note)


@_card_of("Verification")
def _verification(value: Verification) -> Card:
    unequal = value.unequal.drop(columns="equal").astype(object).fillna(UNKNOWN)
    rows = (("figures", len(value.figures)), ("not equal", len(unequal)), ("differences", _field("", value.differences)))
    table = _table(tuple(unequal.columns), unequal.to_numpy().tolist())
    return Card("Verification", rows, table, note="`.figures` has all figures, `.differences` what else differs.")


@_card_of("Experiment")
def _experiment(value: Experiment) -> Card:
    grid = value.grid
    named = (("agents", grid.agents), ("tasks", grid.tasks.by_id), ("settings", grid.settings))
    rows = tuple((name, f"{len(parts):,}: {', '.join(_ends_of(list(parts))[0])}") for name, parts in named)
    return Card(f"Experiment {grid.name}", (*rows, ("runs", len(grid.cells)), ("store", value.store)))


@_card_of("ExperimentResults")
def _results(value: ExperimentResults) -> Card:
    table = _table(("run", "problem"), list(value.problems.items()))
    note = "`.runs` and `.steps` are frames, `.summary()` compares the runs, `.plot()` draws the comparison."
    return Card(f"Results of {value.grid.name}", (("runs", len(value)), *value.states.items()), table, note)


@_card_of("Tasks")
def _tasks(value: Tasks) -> Card:
    table = _table(("id", "prompt", "target"), [(one.id, one.text, "" if one.target is None else one.target) for one in value])
    return Card("Tasks", (("tasks", len(value)), ("version", value.version)), table, note="`.to_frame()` has all of them.")


@_card_of("DryRun")
def _dry_run(value: DryRun) -> Card:
    limits = ("call_limit", "token_limit", "cost_limit_usd")
    rows = [(name, NO_LIMIT if name in limits and getattr(value, name) is None else held) for name, held in fields_of(value).rows]
    return Card("DryRun", tuple(rows), note=f"{value}")


@_card_of("Chat")
def _chat(value: Chat) -> Card:
    return Card("Chat", (("agent", value.agent.name), ("contexts", value.contexts.path)))


@_card_of("ChatReply")
def _reply(value: ChatReply) -> Card:
    end = "the agent was not run" if value.stop_reason is None else f"{value.stop_reason}: {value.detail}"
    rows = (
        ("response", value.response),
        *((("notice", value.notice),) if value.notice else ()),
        ("ended", end),
        ("saved assistant messages", value.saved_ai_messages),
        ("messages of this request", len(value.messages)),
    )
    return Card("ChatReply", rows)


@_card_of("Telemetry")
def _telemetry(value: Telemetry) -> Card:
    return Card("Telemetry", (("exports message texts", bool(value.content)),))


# Display: the mime bundle of a value, and DataFrames without formulas -----------------------------------------------------------

LONGEST_TEXT = 2_000
"""Maximum number of characters of a repr."""
PLACES = ("pandas", "pandas.core.frame")
"""The module of DataFrame in pandas 3, and in earlier versions."""


def bundle(value: object) -> dict[str, str]:
    """Return the value as text and as HTML, for `_repr_mimebundle_`."""
    return {"text/plain": cut(repr(value), LONGEST_TEXT), "text/html": as_html(card_of(value))}


def show_frames_as_written(shell: Any) -> None:
    """Make this IPython display DataFrames without formulas, unless their display was changed already.

    JupyterLab renders the text between two `$` in a table as a formula, so "from $5 to $10" is garbled. No option of pandas is changed.
    """
    html = shell.display_formatter.formatters["text/html"]
    for place in PLACES:
        if f"{place}.DataFrame" not in html:
            html.for_type_by_name(place, "DataFrame", as_written)


def show_frames_as_pandas_does(shell: Any) -> None:
    """Undo `show_frames_as_written`."""
    html = shell.display_formatter.formatters["text/html"]
    for place in PLACES:
        name = f"{place}.DataFrame"
        if name in html and html.lookup_by_type(name) is as_written:
            html.pop(name)


def as_written(frame: Any) -> str | None:
    """Return the HTML of a DataFrame, marked so that JupyterLab renders no formulas in it."""
    with pd.option_context("display.html.use_mathjax", False):
        html: str | None = frame._repr_html_()
    return html

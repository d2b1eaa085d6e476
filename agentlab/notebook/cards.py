"""A card: a title, rows of a name and a value, a table, a line below. Here it becomes HTML, and nowhere else is that made of one."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from agentlab.condition_code import condition_code
from agentlab.printable import AS_WRITTEN, escape
from agentlab.redaction import text_of
from agentlab.stop import StopCondition
from agentlab.stop_tree import outline
from agentlab.usage import said_by

if TYPE_CHECKING:
    from agentlab.agent import Agent
    from agentlab.budget import Budget
    from agentlab.engine.lockstep import Lockstep
    from agentlab.experiments.estimate import DryRun
    from agentlab.experiments.experiment import Experiment
    from agentlab.experiments.results import ExperimentResults
    from agentlab.history import RunHistory
    from agentlab.interop.otel_export import Telemetry
    from agentlab.providers.base import Provider
    from agentlab.results import Reading, StepResult
    from agentlab.run import Run
    from agentlab.serving.chat import Chat, ChatReply
    from agentlab.settings import LiveSettings, RunSettings
    from agentlab.stop import StopCondition
    from agentlab.storage.store import Store
    from agentlab.termination import DecisionContext
    from agentlab.tools import Tool
    from agentlab.types import Cost, Message, TerminationSignal, Usage


MOST_ROWS = 24
FIRST, LAST = 10, 10
"""So many rows of a long table are shown, of its beginning and of its end."""
LONGEST_VALUE = 300
"""Characters of a value."""
LONGEST_NAME = 80
UNKNOWN = "unknown"

_LEFT = "text-align:left;vertical-align:top"
_NAME = f"{_LEFT};min-width:6em"
_VALUE = f"{_LEFT};white-space:pre-wrap;overflow-wrap:anywhere;max-width:60em"


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under column heads; of a long one the first and the last, `count` in all."""

    heads: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]
    count: int

    @property
    def left_out(self) -> int:
        """Rows that are not shown."""
        return self.count - len(self.rows)


@dataclass(frozen=True, slots=True)
class Card:
    """What is shown of a value. Values may be anything: they are told in words and escaped when the card becomes HTML."""

    title: str
    rows: tuple[tuple[str, object], ...] = ()
    table: Table | None = None
    note: str = ""


def ends_of(whole: Sequence[Any]) -> tuple[list[Any], int]:
    """The first and the last of a long sequence, and how many there are; the rest is not touched."""
    count = len(whole)
    if count <= FIRST + LAST:
        return list(whole), count
    return [*(whole[at] for at in range(FIRST)), *(whole[at] for at in range(count - LAST, count))], count


def in_words(value: object) -> str:
    """A value for people: None is unknown unless the card has said otherwise."""
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
        return "none"
    if isinstance(value, StopCondition):
        return condition_code(value)
    return text_of(value, repr)


def as_html(card: Card) -> str:
    """The card, with nothing in it that a page could run."""
    rows = "".join(
        f'<tr><th scope="row" style="{_NAME}">{escape(name, LONGEST_NAME)}</th><td style="{_VALUE}">{_cell(value)}</td></tr>'
        for name, value in card.rows[:MOST_ROWS]
    )
    more = len(card.rows) - MOST_ROWS
    parts = [
        f'<p style="margin:0 0 2px"><b>{escape(card.title)}</b></p>',
        f"<table><tbody>{rows}</tbody></table>" if rows else "",
        f"<p>… and {more:,} more</p>" if more > 0 else "",
        "" if card.table is None else _table(card.table),
        f"<p>{_with_code(card.note)}</p>" if card.note else "",
    ]
    return f'<div class="agentlab-card {AS_WRITTEN}">{"".join(parts)}</div>'


def _with_code(note: str) -> str:
    """A note, with code in it where it says so by backticks."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(note))


def _table(table: Table) -> str:
    heads = "".join(f'<th scope="col" style="{_LEFT}">{escape(head, LONGEST_NAME)}</th>' for head in table.heads)
    rows = [_row(row) for row in table.rows]
    if table.left_out:
        gap = f'<tr><td colspan="{len(table.heads)}" style="{_LEFT}">… {table.left_out:,} more …</td></tr>'
        rows.insert(FIRST, gap)
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _row(cells: tuple[object, ...]) -> str:
    told = "".join(f'<td style="{_VALUE}">{_cell(cell)}</td>' for cell in cells)
    return f"<tr>{told}</tr>"


def _cell(value: object) -> str:
    return escape(in_words(value), LONGEST_VALUE)


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
    return Card(f"Proposal: {value.kind}", (*rows, ("needs a prompt", value.needs_prompt)))


_STEP_HEADS = ("step", "finish reason", "tools", "tokens", "cost, USD", "stop reason")


def agent(value: Agent) -> Card:
    """What it is made of."""
    kept = value.settings
    rows: list[tuple[str, object]] = [
        ("model", f"{value.model.name}:{value.model.model}"),
        ("tools", ", ".join(value.tools) or "none"),
        ("instructions", value.instructions or "none"),
        ("budget", kept.budget),
        ("stop", "none" if kept.stop is None else kept.stop),
    ]
    if kept.terminating is not None:
        rows.append(("terminating", kept.terminating))
    if value.options:
        rows.append(("options", ", ".join(value.options)))
    return Card(f"Agent {value.name}", (*rows, ("stream", value.stream)))


def run(value: Run) -> Card:
    """How it stands, and its steps."""
    end = [] if value.result is None else [("ended", f"{value.result.stop_reason}: {value.result.detail}")]
    now = value.limits.snapshot()
    rows: list[tuple[str, object]] = [
        ("agent", value.agent.name),
        ("prompt", value.prompt),
        ("state", value.state),
        *end,
        *_totals(value.history),
        ("budget", now.budget),
        ("stop", "none" if now.stop is None else now.stop),
    ]
    note = "" if value.result is not None else "`run.panel()` shows it live; `await run` takes it to its end."
    return Card("Run", tuple(rows), _steps(value.history), note)


def history(value: RunHistory) -> Card:
    """The totals, and the steps."""
    return Card("RunHistory", tuple(_totals(value)), _steps(value))


def _totals(of: RunHistory) -> list[tuple[str, object]]:
    return [("steps", len(of)), ("calls", of.calls), ("tokens", of.tokens), ("cost, USD", of.cost_usd)]


def _steps(of: Sequence[StepResult]) -> Table | None:
    few, count = ends_of(of)
    rows = tuple(
        (
            one.index,
            "no answer" if one.finish_reason is None else one.finish_reason,
            ", ".join(call.name for call in one.tool_calls[:20]),
            one.usage.total_tokens,
            one.cost.usd,
            "" if one.stop_reason is None else one.stop_reason,
        )
        for one in few
    )
    return Table(_STEP_HEADS, rows, count) if rows else None


def step(value: StepResult) -> Card:
    """What it did, and what it took."""
    called, count = ends_of(value.tool_calls)
    rows: list[tuple[str, object]] = [("text", value.text)] if value.text else []
    rows += [(f"calls {call.name}", call.arguments) for call in called]
    rows += [("more calls", count - len(called))] if count > len(called) else []
    rows += [("finish reason", "no answer" if value.finish_reason is None else value.finish_reason)]
    rows += [("decision", f"{value.decision.action}: {value.decision.reason}")]
    rows += [("calls of the model", len(value.calls)), ("tokens", value.usage.total_tokens), ("cost, USD", value.cost.usd)]
    rows += [] if value.readings is None else [("conditions", f"{value.readings}")]
    rows += [] if value.error is None else [("error", f"{type(value.error).__name__}: {value.error}")]
    rows += [] if value.stop_reason is None else [("stop reason", value.stop_reason)]
    return Card(f"Step {value.index}", tuple(rows))


def lockstep(value: Lockstep) -> Card:
    """A row a run."""
    few, count = ends_of(value.runs)
    rows = tuple((one.agent.name, one.state, len(one.history), one.history.tokens, one.history.cost_usd) for one in few)
    table = Table(("agent", "state", "steps", "tokens", "cost, USD"), rows, count)
    return Card("Lockstep", (("state", value.state), ("rounds", value.round)), table)


def store(value: Store) -> Card:
    """Where it is; nothing is read for it."""
    behind = [("not yet written", len(value.unsaved))] if value.unsaved else []
    note = "`.frame()` lists the runs; `.load(run_id, agent)` has one back."
    return Card("Store", (("place", getattr(value.storage, "path", type(value.storage).__name__)), *behind), note=note)


def experiment(value: Experiment) -> Card:
    """The sizes of its parts, and their names."""
    grid = value.grid
    named = (("agents", grid.agents), ("prompts", grid.prompts), ("settings", grid.settings))
    rows = tuple((name, f"{len(parts):,}: {', '.join(ends_of(list(parts))[0])}") for name, parts in named)
    return Card(f"Experiment {grid.name}", (*rows, ("runs", len(grid.cells)), ("store", value.store)))


def results(value: ExperimentResults) -> Card:
    """How many runs stand how."""
    few, count = ends_of(list(value.problems.items()))
    table = Table(("run", "problem"), tuple(few), count) if few else None
    note = "`.runs` and `.steps` are tables of them, `.summary()` compares them, `.plot()` draws it."
    return Card(f"Results of {value.grid.name}", (("runs", len(value)), *value.states.items()), table, note)


def dry_run(value: DryRun) -> Card:
    """What is to be done at most; what nothing bounds says so."""
    bounds = ("call_limit", "token_limit", "cost_limit_usd")
    rows = [(name, NO_LIMIT if name in bounds and getattr(value, name) is None else held) for name, held in fields_of(value).rows]
    return Card("DryRun", tuple(rows), note=f"{value}")


def chat(value: Chat) -> Card:
    """Who answers, and where contexts are kept."""
    return Card("Chat", (("agent", value.agent.name), ("contexts", value.contexts.path)))


def reply(value: ChatReply) -> Card:
    """What was answered."""
    end = "the agent was not run" if value.stop_reason is None else f"{value.stop_reason}: {value.detail}"
    notice = [("notice", value.notice)] if value.notice else []
    rows = (
        ("response", value.response),
        *notice,
        ("ended", end),
        ("messages of the assistant saved", value.saved_ai_messages),
    )
    return Card("ChatReply", (*rows, ("messages of this request", len(value.messages))))


def telemetry(value: Telemetry) -> Card:
    """Whether texts go along."""
    return Card("Telemetry", (("texts of messages in the spans", bool(value.content)),))


def context(value: DecisionContext) -> Card:
    """The figures; what is large is named."""
    given = {name: held is not None for name, held in (("response", value.response), ("history", value.history))}
    rows = (
        ("turn", value.turn),
        ("call", value.call),
        ("requested cap, tokens", "none" if value.requested_cap is None else value.requested_cap),
    )
    return Card("DecisionContext", (*rows, ("settings", "none" if value.settings is None else value.settings), *given.items()))


_CARDS: Mapping[str, Callable[[Any], Card]] = {
    "Agent": agent,
    "Anthropic": provider,
    "Bedrock": provider,
    "Budget": budget,
    "Chat": chat,
    "ChatCompletions": provider,
    "ChatReply": reply,
    "ContinuationPolicy": optional_limits,
    "Cost": cost,
    "DecisionContext": context,
    "DryRun": dry_run,
    "Experiment": experiment,
    "ExperimentResults": results,
    "Gemini": provider,
    "LiveSettings": live,
    "Lockstep": lockstep,
    "Message": message,
    "Proposal": proposal,
    "Reading": reading,
    "Remaining": remaining,
    "Responses": provider,
    "Run": run,
    "RunHistory": history,
    "RunSettings": settings,
    "StepResult": step,
    "StopCondition": condition,
    "Store": store,
    "Telemetry": telemetry,
    "TerminationSignal": signal,
    "Tool": tool,
    "Usage": usage,
}


def card_of(value: object) -> Card:
    """What is shown of a value: by the name of its class, or of the first of its bases that has a card."""
    for kind in type(value).__mro__:
        if kind.__name__ in _CARDS and kind.__module__.startswith("agentlab"):
            return _CARDS[kind.__name__](value)
    return fields_of(value)

"""The details of a step, as HTML: its calls, why the response ended, what followed, readings, limits, and the raw response.

Text from outside is cut before it is escaped, and redacted. In what was sent (arguments, a raw response) invisible characters are
written as escapes. In text that people read they stay, since joiners and direction marks belong to real scripts, and a note names them.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import Any

from agentlab._internal.formatting import as_set, measured
from agentlab._internal.redaction import REDACTED, is_secret_name
from agentlab._internal.safe_text import cut
from agentlab.limits.reading import Reading
from agentlab.model.messages import JSON, ToolResult
from agentlab.model.usage import Usage
from agentlab.notebook.markup import dollars, escape, note, table, tokens
from agentlab.notebook.page.rich_text import at_most, code, seen
from agentlab.records.step import ChildUse, StepResult

MOST_CALLS, MOST_RAW = 30, 4
"""The newest calls and raw responses that are shown."""
LONGEST_RAW = 20_000
"""Characters shown of a raw response."""


def sections(step: StepResult, names: Iterable[str], *, timing: bool = True) -> str:
    """Return these sections of a step; without `timing` they have no times, which differ at each execution."""
    made = ((name, *SECTIONS[name](step, timing)) for name in names)
    return "".join(_section(name, title, body, about) for name, title, about, body in made if body)


def _section(name: str, title: str, body: str, about: str) -> str:
    """Return a section that opens and closes, by mouse and keyboard; `title` and `about` are plain text, `body` is HTML."""
    summary = f' <span class="agentlab-note">{escape(about)}</span>' if about else ""
    return (
        f'<details class="agentlab-section" data-section="{name}"><summary>{escape(title)}{summary}</summary>'
        f"<div>{body}</div></details>"
    )


def _name(text: str) -> str:
    """A name from outside as plain text, without invisible characters."""
    return seen(cut(text, 200))


# Calls -------------------------------------------------------------------------------------------------------------


def changed_by(result: ToolResult) -> str:
    """Return who changed the arguments of a tool call."""
    if result.approval != "edited":
        return "a middleware"
    return "a person and a middleware" if "arguments" in result.middleware else "a person"


def child_use(use: ChildUse) -> str:
    """Return how a sub-agent's run ended, and its usage, which is not part of the step's own calls."""
    ended = "cut off" if use.stop_reason is None else use.stop_reason.replace("_", " ")
    spent = f"{use.steps} step{'s' * (use.steps != 1)}, {tokens(use.usage.total_tokens)} tokens, {dollars(use.cost.usd)}"
    return f"{_name(use.handle.removesuffix(' (cut off)'))}: {ended}, {spent}"


def _calls(step: StepResult, timing: bool) -> str:
    if not step.calls:
        return note("No call was answered.")
    rows: list[tuple[object, ...]] = []
    for call in step.calls[-MOST_CALLS:]:
        usage = call.usage
        remarks = [] if call.used else ["discarded by a middleware"]
        if call.cost.reason and usage.total_tokens is not None:
            remarks.append(call.cost.reason)
        if usage.source.value != "reported":
            remarks.append(f"usage {usage.source.replace('_', ' ')}")
        if call.decision is not None:
            remarks.append(f"then: {call.decision.action.replace('_', ' ')}")
        cost = f"{dollars(call.cost.usd)} {call.cost.source}" if call.cost.usd is not None else "unknown"
        rows.append(
            (call.index, call.response.signal.finish_reason, tokens(usage.input_tokens), _cached(usage),
             tokens(usage.output_tokens), _or_dash(usage.reasoning_tokens), cost, _or_dash(call.requested_cap),
             seconds(call.duration_s) if timing else "", call.retries, "; ".join(remarks))
        )  # fmt: skip
    heads = ("call", "finish reason", "input", "cached", "output", "reasoning", "cost", "cap", "time", "retries", "")
    kept = [place for place in range(len(heads)) if any(row[place] not in _EMPTY for row in rows)]
    rows = [tuple(row[place] for place in kept) for row in rows]
    numbers = [at for at, place in enumerate(kept) if place not in (1, 10)]
    earlier = note(f"… {len(step.calls) - MOST_CALLS} earlier calls") if len(step.calls) > MOST_CALLS else ""
    response = step.response
    about = [("answered by", response.model), ("response id", response.response_id)] if response is not None else []
    return earlier + table([heads[place] for place in kept], rows, numbers=numbers) + facts(about)


_EMPTY = ("–", "", 0)


def _cached(usage: Usage) -> str:
    if usage.cache_read_tokens is None and usage.cache_write_tokens is None:
        return "–"
    written = f" + {usage.cache_write_tokens:,} written" if usage.cache_write_tokens else ""
    return f"{usage.cache_read_tokens or 0:,}{written}"


def _or_dash(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"


# Why it ended, and the readings ----------------------------------------------------------------------------------------------


def _signal_summary(step: StepResult) -> str:
    signal = step.signal
    if signal is None:
        return ""
    return f"{_name(signal.raw_field)} = {_name(str(signal.raw_value))} ({signal.confidence} confidence)"


def _signal(step: StepResult) -> str:
    signal = step.signal
    if signal is None:
        return note("No response came back, so the provider gave no reason.")
    rows = facts(
        [
            ("finish reason", signal.finish_reason),
            ("confidence", signal.confidence),
            ("the provider's field", signal.raw_field or None),
            ("its value", "missing" if signal.raw_value is None else signal.raw_value),
            ("provider", signal.provider or None),
            ("message", signal.message or None),
            ("another attempt may help", "yes" if signal.repairable else None),
        ]
    )
    return rows + (raw(dict(signal.metadata), f"run.history[{step.index - 1}].signal.metadata") if signal.metadata else "")


def _decision(step: StepResult) -> str:
    decision = step.decision
    rows = facts(
        [
            ("action", decision.action),
            ("why", decision.reason),
            ("ends the run as", step.stop_reason or decision.stop_reason),
            ("suggestion", decision.suggestion and decision.suggestion.replace("_", " ")),
            ("error", None if step.error is None else f"{type(step.error).__name__}: {step.error}"),
        ]
    )
    return rows + (raw(dict(decision.metadata), f"run.history[{step.index - 1}].decision.metadata") if decision.metadata else "")


def _met(readings: Reading | None) -> str:
    deciding = () if readings is None else tuple(readings.deciding())
    return f"met: {', '.join(_name(str(one)) for one in deciding)}"[:200] if deciding else "not met"


def _readings(readings: Reading | None) -> str:
    """The tree of readings as nested lists; those that decided are marked."""
    if readings is None:
        return ""
    deciding = tuple(readings.deciding())

    def item(one: Reading) -> str:
        met = {True: "met", False: "not met", None: "unknown"}[one.met]
        mark = ' <b class="agentlab-decided">◀ decided</b>' if one in deciding else ""
        if one.children:
            return f"<li>{escape(_name(one.name))} — {met}{mark}<ul>{''.join(map(item, one.children))}</ul></li>"
        return f"<li>{escape(_name(one.name))}: {_value_of(one)} — {met}{mark}</li>"

    return f'<ul class="agentlab-readings">{item(readings)}</ul>'


def _value_of(one: Reading) -> str:
    value = _whole_number(one.value) or measured(one.name, one.value)
    limit = "" if one.limit is None else f" of {_whole_number(one.limit) or as_set(one.name, one.limit)}"
    return f"<b>{escape(_name(value), 120)}</b>{escape(_name(limit), 120)}"


def _whole_number(value: object) -> str:
    """Return the number with separators; empty if it is not a whole number."""
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else ""


def _plain(value: object) -> str:
    return f"{value.normalize():f}" if isinstance(value, Decimal) else _whole_number(value) or str(value)


_LEFT_OF: dict[str, Callable[[StepResult], Any]] = {
    "max_turns": lambda step: step.remaining.turns,
    "max_calls": lambda step: step.remaining.calls,
    "max_tokens": lambda step: step.remaining.tokens,
    "max_cost": lambda step: step.remaining.cost_usd,
    "timeout": lambda step: None if step.remaining.time_s is None else round(step.remaining.time_s, 2),
}


def _limits(step: StepResult, timing: bool) -> str:
    settings = step.settings
    rows: list[tuple[str, object]] = []
    for field in dataclasses.fields(settings.budget):
        value = getattr(settings.budget, field.name)
        if value is None:
            continue
        unit = field.metadata.get("unit", "")
        left = _LEFT_OF[field.name](step) if field.name in _LEFT_OF and (timing or field.name != "timeout") else None
        rows.append((field.name, f"{_plain(value)} {unit}".strip() + (f" — {_plain(left)} left" if left is not None else "")))
    rows.append(("stop condition", "none" if settings.stop is None else repr(settings.stop)))
    if settings.terminating is not None:
        rows.append(("terminating tools", ", ".join(settings.terminating.tools)))
    rows.append(("continuations in a step", settings.continuation.max_continuations_per_turn))
    if settings.policy is not None:
        rows.append(("policy", getattr(settings.policy, "__name__", type(settings.policy).__name__)))
    return facts(rows)


def _raw(step: StepResult) -> str:
    shown = step.calls[-MOST_RAW:]
    first = len(step.calls) - len(shown)
    parts = [note(f"… {first} earlier calls: run.history[{step.index - 1}].calls")] if first else []
    for place, call in enumerate(shown, first):
        if len(step.calls) > 1:
            parts.append(f'<div class="agentlab-label">call {call.index}</div>')
        where = f"run.history[{step.index - 1}].calls[{place}].response.raw"
        kept = call.response.raw
        parts.append(note("Not recorded.") if kept is None else raw(kept, where, LONGEST_RAW // len(shown)))
    return "".join(parts)


SECTIONS: Mapping[str, Callable[[StepResult, bool], tuple[str, str, str]]] = {
    "calls": lambda step, timing: (
        "Model calls",
        f"{len(step.calls)} · {tokens(step.usage.total_tokens)} tokens · {dollars(step.cost.usd)}",
        _calls(step, timing),
    ),
    "signal": lambda step, timing: ("Why the response ended", _signal_summary(step), _signal(step)),
    "decision": lambda step, timing: ("What followed", step.decision.action.replace("_", " "), _decision(step)),
    "readings": lambda step, timing: ("Stop condition", _met(step.readings), _readings(step.readings)),
    "limits": lambda step, timing: ("Limits in force", "and what was left after the step", _limits(step, timing)),
    "raw": lambda step, timing: ("Raw response", "as the provider sent it", _raw(step)),
}
"""Title, summary beside the title, and HTML of each section; a section without HTML is left out."""


# Text from outside -----------------------------------------------------------------------------------------------------------

_MOST_ITEMS, _DEEPEST, _LONGEST_STRING = 200, 24, 2_000
_LONGEST_LINE = 1_000


def raw(value: JSON, where: str, longest: int = LONGEST_RAW) -> str:
    """A provider's response as JSON. Long strings are shortened, so that what follows them is visible."""
    with at_most(longest):
        return code(json.dumps(_shortened(value), indent=2, ensure_ascii=False, default=str), "text", where)


def _shortened(value: JSON, level: int = 0) -> JSON:
    """JSON with long strings and lists cut, and secrets redacted."""
    if isinstance(value, str):
        left_out = len(value) - _LONGEST_STRING
        return value if left_out <= 0 else f"{cut(value, _LONGEST_STRING)} ({left_out:,} more characters)"
    if not isinstance(value, Mapping | list | tuple):
        return value
    if level >= _DEEPEST:
        return "… (left out)"
    left_out = len(value) - _MOST_ITEMS
    if isinstance(value, Mapping):
        named = ((cut(name, 200), part) for name, part in itertools.islice(value.items(), _MOST_ITEMS))
        kept = {name: REDACTED if is_secret_name(name) else _shortened(part, level + 1) for name, part in named}
        return kept if left_out <= 0 else {**kept, "…": f"{left_out:,} more fields"}
    items = [_shortened(part, level + 1) for part in value[:_MOST_ITEMS]]
    return items if left_out <= 0 else [*items, f"… ({left_out:,} more items)"]


def line(text: str) -> str:
    """A sentence or a value, at most _LONGEST_LINE characters of it."""
    return escape(seen(cut(text, 2 * _LONGEST_LINE)), _LONGEST_LINE)


def facts(rows: Iterable[tuple[str, object]]) -> str:
    """Names and values, one per line, from plain text. Those without a value are left out."""
    known = [(name, str(value)) for name, value in rows if value is not None and value != ""]
    lines = "".join(f"<dt>{escape(name)}</dt><dd>{line(value)}</dd>" for name, value in known)
    return f'<dl class="agentlab-facts">{lines}</dl>'


def seconds(value: float) -> str:
    """A duration in words."""
    if value >= 0.9995:
        return f"{value:,.2f} s"
    return f"{1_000 * value:.0f} ms" if value >= 0.0005 else "<1 ms"

"""The panel's pieces of HTML, and the widget that shows them. Text from models, tools and providers is escaped here."""

from __future__ import annotations

import base64
import html
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import TypeGuard

from agentlab._internal.safe_text import escape as escape  # noqa: PLC0414  the panel's parts import it from here
from agentlab._internal.safe_text import printable
from agentlab.agent import Run
from agentlab.limits.budget import TOTAL_OF
from agentlab.limits.combinators import AllOf, Custom, read_off
from agentlab.limits.condition_tree import outline
from agentlab.limits.reading import Reading, Scalar
from agentlab.records.columns import named_leaves
from agentlab.records.history import RunHistory
from agentlab.records.provenance import Provenance, process_text

NEAR = 0.8
"""Share of a limit from which its bar is marked as near."""


class Markup(str):
    """HTML that is escaped already."""

    __slots__ = ()


def escape_whole(text: str) -> str:
    """Return text of any length as safe HTML."""
    return html.escape(printable(text))


def tokens(value: int | None) -> str:
    """A count of tokens, or `unknown`."""
    return "unknown" if value is None else f"{value:,}"


def dollars(value: Decimal | float | None) -> str:
    """An amount in USD without exponent: rounded to a millionth, and to two digits where it is smaller than that."""
    if value is None:
        return "unknown"
    amount = Decimal(value)
    text = f"{amount:.6f}"
    if amount and not amount.is_nan() and abs(amount) < Decimal("0.0000005"):
        text = f"{Context(prec=2).plus(amount):f}"
    return f"${text.rstrip('0').rstrip('.') if '.' in text else text}"


def duration(seconds: float) -> str:
    """A time in words: 3.2 s, 2 min 05 s, 1 h 02 min."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def name(text: str) -> str:
    """A name from outside, isolated so that its writing direction does not affect the text around it."""
    return f"<bdi>{escape(text, 120)}</bdi>"


def note(text: str) -> str:
    """A remark in small print; empty for an empty text."""
    return f'<div class="agentlab-note">{escape(text, 1000)}</div>' if text else ""


def fault(message: str) -> str:
    """An error below a control."""
    return f'<div class="agentlab-fault" role="alert">{escape(message, 1000)}</div>'


def picture(png: bytes, alt: str, width: int) -> str:
    """A picture embedded in the page, with its alternative text; at most `width` pixels wide."""
    source = f"data:image/png;base64,{base64.b64encode(png).decode()}"
    return f'<img src="{source}" alt="{escape_whole(alt)}" style="width:100%; max-width:{width}px">'


def table(
    heads: Sequence[str],
    rows: Iterable[Sequence[object]],
    numbers: Sequence[int] = (),
    *,
    css: str = "",
    caption: str = "",
) -> str:
    """A table. Cells are escaped unless they are `Markup`; the columns in `numbers` are aligned to the right."""
    css_of = [' class="number"' if index in numbers else "" for index in range(len(heads))]
    head = "".join(
        f'<th scope="col"{number}>{escape(name)}</th>' if name else "<td></td>"
        for name, number in zip(heads, css_of, strict=True)
    )
    lines = []
    for row in rows:
        cells = (cell if isinstance(cell, Markup) else escape(cell) for cell in row)
        body = "".join(f"<td{number}>{cell}</td>" for cell, number in zip(cells, css_of, strict=True))
        lines.append(f"<tr>{body}</tr>")
    return (
        f'<table class="{f"agentlab-steps {css}".strip()}">{f"<caption>{caption}</caption>" if caption else ""}'
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
    )


def provenance_rows(made: Provenance) -> list[tuple[str, str]]:
    """What made a run, as names and texts that are not escaped yet."""
    plain = made.to_dict()
    process = plain["process"]
    dirty = {True: ", with changed files", False: "", None: ""}[process["dirty"]]
    listed = {name: "; ".join(plain[name]) for name in ("response_models", "recordings", "price_lists")}
    source = {True: "replayed", False: "live", None: "unknown, or without HTTP"}[plain["replayed"]]
    return [
        ("model", f"{plain['provider']}:{plain['model']}"),
        ("model in the responses", listed["response_models"] or "unknown"),
        ("address", plain["base_url"] or "unknown"),
        ("sent", _named(plain["parameters"])),
        ("responses", f"{source}{', from ' if listed['recordings'] else ''}{listed['recordings']}"),
        ("hash of responses", plain["responses_hash"] or "unknown"),
        ("hash of instructions and prompt", plain["prompt_hash"] or "unknown"),
        ("hashes of tools", _named(plain["tools"])),
        ("prices", listed["price_lists"] or "unknown"),
        ("agentlab", process["agentlab"] or "unknown"),
        ("Python", process["python"] or "unknown"),
        ("platform", process["platform"] or "unknown"),
        ("libraries", ", ".join(f"{name} {version}" for name, version in process["libraries"].items()) or "unknown"),
        ("git commit", f"{process['commit']}{dirty}" if process["commit"] else "unknown"),
        *[("resumed by", process_text(one)) for one in made.resumed_in],
    ]


def _named(values: dict[str, object] | None) -> str:
    if values is None:
        return "unknown"
    return ", ".join(f"{name}: {value}" for name, value in values.items()) or "none"


# State and limits of a run --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LimitNow:
    """A limit of a run as it is now. `total` is the running total that it bounds: "steps", "calls", "tokens", "cost", "time", or None.

    `ends_alone` is False for a part of a stop condition that needs others to end the run. A negated one's `label` says so.
    """

    reading: Reading
    label: str
    total: str | None = None
    off: bool = False
    negated: bool = False
    ends_alone: bool = True


def used_so_far(run: Run) -> RunHistory:
    """Return the history with totals that also count the step under way: its calls that were answered, its sub-agents that ended."""
    context = run.stepper.context
    builder = context.builder
    if builder is None:
        return run.history
    counted = run.history.counting(tuple(builder.calls), tuple(builder.children))
    return counted if context.builder is builder else run.history  # otherwise its step may be in the history too


def limits_now(run: Run, *, timing: bool = True) -> list[LimitNow]:
    """Return the limits of the budget that are set, and the single conditions of the stop condition; `timing` False leaves out time."""
    settings, history = run.limits.snapshot(), used_so_far(run)
    found = [
        LimitNow(reading, reading.name, TOTAL_OF[reading.name])
        for reading in settings.budget.readings(history, run.timeline.clock.elapsed_s())
        if timing or reading.name != "timeout"
    ]
    nodes = outline(settings.stop)
    own = last_custom_readings(run)
    for node in nodes:
        if node.is_group:
            continue
        around = [one for one in nodes if node.path[: len(one.path)] == one.path]
        off = any(one.off for one in around)
        negated = sum(one.negated for one in around) % 2 == 1
        alone = not any(one.negated or isinstance(one.condition, AllOf) for one in around)
        if isinstance(node.condition, Custom):
            reading = Reading(node.name) if off else own.get(node.name, Reading(node.name))
        else:
            reading = read_off(node.condition, history)  # never raises: the run reports a condition that raises
        label = f"not {node.name}" if negated else node.name
        found.append(LimitNow(reading, label, node.condition.total, off, negated, alone))
    return found


def last_custom_readings(run: Run) -> dict[str, Reading]:
    """The readings of the person's own functions after the newest step, by their names in `run.limits.conditions`. The panel never
    calls these functions."""
    newest = run.history.last
    read = named_leaves(newest.readings) if newest is not None and newest.readings is not None else {}
    return {name: read.get(name, Reading(name)) for name, leaf in run.limits.conditions.items() if isinstance(leaf, Custom)}


def _is_number(value: Scalar) -> TypeGuard[int | float | Decimal]:
    """True if it is a finite number."""
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool) and math.isfinite(float(Decimal(value)))


def share_of(value: Scalar, limit: Scalar) -> float | None:
    """Return the used part of a limit, which may be above 1; None if either is not a number, or the limit is 0."""
    if not _is_number(value) or not _is_number(limit) or not limit:
        return None
    return max(0.0, float(value) / float(limit))

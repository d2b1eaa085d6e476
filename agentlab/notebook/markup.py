"""The panel's pieces of HTML, and the widget that shows them. Text from models, tools and providers is escaped here."""

from __future__ import annotations

import base64
import html
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import TypeGuard

import ipywidgets as widgets
from traitlets import CUnicode

from agentlab._internal.safe_text import AS_WRITTEN, printable
from agentlab._internal.safe_text import escape as escape  # noqa: PLC0414  the panel's parts import it from here
from agentlab.agent import Run
from agentlab.engine.next_actions import nothing_to_do
from agentlab.engine.worker import RunState
from agentlab.limits.budget import TOTAL_OF
from agentlab.limits.combinators import AllOf, Custom, read_off
from agentlab.limits.condition_tree import outline
from agentlab.limits.reading import Reading, Scalar
from agentlab.model.finish_reasons import StopReason
from agentlab.records.columns import named_leaves
from agentlab.records.result import RunResult

NEAR = 0.8
"""Share of a limit from which its bar is marked as near."""


class Html(widgets.HTML):  # type: ignore[misc]  # no types
    """An HTML widget in which `$…$` stays text. Only what is sent to the page differs from `value`."""

    value = CUnicode(help="String value").tag(
        sync=True,
        to_json=lambda value, widget: f'<div class="{AS_WRITTEN}" style="display:contents">{value}</div>' if value else "",
    )


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


def aside(text: str) -> str:
    """A remark in small print within a line."""
    return f'<span class="agentlab-note">{escape(text)}</span>'


def fault(message: str) -> str:
    """An error below a control."""
    return f'<div class="agentlab-fault" role="alert">{escape(message, 1000)}</div>'


def picture(png: bytes, alt: str, width: int, *, attributes: str = "") -> str:
    """A picture embedded in the page, with its alternative text; at most `width` pixels wide."""
    source = f"data:image/png;base64,{base64.b64encode(png).decode()}"
    return f'<img{attributes} src="{source}" alt="{escape_whole(alt)}" style="width:100%; max-width:{width}px">'


def table(
    heads: Sequence[str],
    rows: Iterable[Sequence[object]],
    numbers: Sequence[int] = (),
    *,
    css: str = "",
    attributes: str = "",
    caption: str = "",
    row_attributes: Sequence[str] = (),
) -> str:
    """A table. Cells are escaped unless they are `Markup`; the columns in `numbers` are aligned to the right."""
    css_of = [' class="number"' if index in numbers else "" for index in range(len(heads))]
    head = "".join(
        f'<th scope="col"{number}>{escape(name)}</th>' if name else "<td></td>"
        for name, number in zip(heads, css_of, strict=True)
    )
    lines = []
    for at, row in enumerate(rows):
        cells = (cell if isinstance(cell, Markup) else escape(cell) for cell in row)
        body = "".join(f"<td{number}>{cell}</td>" for cell, number in zip(cells, css_of, strict=True))
        lines.append(f"<tr{row_attributes[at] if row_attributes else ''}>{body}</tr>")
    return (
        f'<table class="{f"agentlab-steps {css}".strip()}"{attributes}>{f"<caption>{caption}</caption>" if caption else ""}'
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
    )


# State and limits of a run --------------------------------------------------------------------------------------------------


def status(run: Run, *, timing: bool = True) -> str:
    """State, provider, model, and the totals so far."""
    history = run.history
    stopping = " (stops after this step)" if run.control.stop_request is not None and run.result is None else ""
    pausing = " (pauses after this step)" if run.control.pausing and run.state is RunState.RUNNING else ""
    model = f"{run.agent.model.name}:{run.agent.model.model}"
    facts = [name(run.agent.name)] + ([name(model)] if model != run.agent.name else [])
    facts += [
        f"step <b>{len(history)}</b>",
        f"tokens <b>{tokens(history.tokens)}</b>",
        f"cost <b>{dollars(history.cost_usd)}</b>",
    ]
    if timing:
        facts.append(f"elapsed <b>{duration(run.timeline.clock.elapsed_s())}</b>")
        if run.control.paused_s >= 0.1:
            facts.append(f"paused <b>{duration(run.control.paused_s)}</b>")
    badge = f'<span class="agentlab-badge {run.state}" role="status">{run.state}{stopping}{pausing}</span>'
    return f'<div class="agentlab-status">{badge} <span>{"</span> <span>".join(facts)}</span></div>'


def meters(run: Run) -> str:
    """Return a bar for every limit that is set, with usage and rest in colour, pattern and words."""
    rows = "".join(
        f"{label}{bar or '<span></span>'}<span>{used}</span><span>{left}</span>" for label, bar, used, left in _meters(run)
    )
    return f'<div class="agentlab-meter">{rows}</div>' if rows else ""


def limits(run: Run) -> str:
    """The limits as a table, readable without a style sheet. Times are left out."""
    rows = "".join(
        f'<tr><th scope="row">{label}</th><td class="agentlab-bar-cell">{bar}</td><td>{used}</td><td>{left}</td></tr>'
        for label, bar, used, left in _meters(run, timing=False)
    )
    return f'<table class="agentlab-steps"><tbody>{rows}</tbody></table>' if rows else ""


def _meters(run: Run, *, timing: bool = True) -> list[tuple[str, str, str, str]]:
    """Name, bar, amount used and amount left of each limit, as HTML."""
    return [_meter(one) for one in limits_now(run, timing=timing)]


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


def limits_now(run: Run, *, timing: bool = True) -> list[LimitNow]:
    """Return the limits of the budget that are set, and the single conditions of the stop condition; `timing` False leaves out time."""
    settings, history = run.limits.snapshot(), run.history
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


def _meter(limit: LimitNow) -> tuple[str, str, str, str]:
    """Return name, bar (if the limit has a share), amount used and amount left, as HTML."""
    reading, label, off, negated = limit.reading, limit.label, limit.off, limit.negated
    used, left, share = _used(reading), _left(reading), share_of(reading.value, reading.limit)
    if off:
        used, left = f"<b>off</b> ({used})", ""
    state = "met" if reading.met else "near" if share is not None and share >= NEAR else ""
    if off or negated:
        state = ""
    words = {"met": " — <b>met</b>" if share is None else " — <b>reached</b>", "near": " — <b>near</b>", "": ""}[state]
    bar = ""
    if share is not None:
        percent = min(100.0, 100 * share)
        spoken = escape_whole("; ".join(filter(None, (_without_tags(used + words), left))))
        bar = (
            f'<div class="agentlab-bar{" off" * off}" role="meter" aria-label="{escape(label)}" aria-valuemin="0" '
            f'aria-valuemax="100" aria-valuenow="{percent:.0f}" aria-valuetext="{spoken}">'
            f'<div class="agentlab-fill {state}" style="width:{percent:.1f}%"></div></div>'
        )
    return name(label), bar, f"{used}{words}", "" if negated else left


def _without_tags(markup: str) -> str:
    return html.unescape(re.sub("<[^>]*>", "", markup))


def _left(reading: Reading) -> str:
    """Return the rest of a limit; empty if the limit is not a number."""
    value, limit = reading.value, reading.limit
    if not _is_number(limit) or reading.goal:
        return ""
    if not _is_number(value):
        return "left: unknown" if value is None and not reading.met else ""
    rest = Decimal(str(limit)) - Decimal(str(value))
    if rest <= 0:
        return "none left"
    whole = isinstance(value, int) and isinstance(limit, int)
    return f"{_amount(reading, int(rest) if whole else float(rest) if isinstance(value, float) else rest)} left"


def _used(reading: Reading) -> str:
    if reading.goal:
        times = f"called {reading.value} time{'s' * (reading.value != 1)}" if reading.value else "not called"
        return f"{name(str(reading.limit))}: {times}"
    if reading.limit is not None:
        return f"{_amount(reading, reading.value)} of {_amount(reading, reading.limit)}"
    return "not read yet" if reading.met is None else name(str(reading.value))


def _amount(reading: Reading, value: Scalar) -> str:
    if value is None:
        return "unknown"
    if reading.name in ("max_cost", "MaxCost") and isinstance(value, int | float | Decimal):
        return dollars(value)
    if reading.name == "timeout" and isinstance(value, int | float):
        return duration(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return f"{value:,.4g}" if isinstance(value, float) else name(str(value))


def _is_number(value: Scalar) -> TypeGuard[int | float | Decimal]:
    """True if it is a finite number."""
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool) and math.isfinite(float(Decimal(value)))


def share_of(value: Scalar, limit: Scalar) -> float | None:
    """Return the used part of a limit, which may be above 1; None if either is not a number, or the limit is 0."""
    if not _is_number(value) or not _is_number(limit) or not limit:
        return None
    return max(0.0, float(value) / float(limit))


# The end of a run -----------------------------------------------------------------------------------------------------------


def end(result: RunResult | None) -> str:
    """Return why the run stopped: stop reason, conditions that fired, the provider's finish reason, and the output."""
    if result is None:
        return ""
    kind = "terminated" if result.terminated else "truncated"
    last = result.history.last
    signal = last.signal if last is not None else None
    lines = [f'<b>{kind} · {result.stop_reason}</b> — <span class="agentlab-lines">{escape(result.detail, 1_500)}</span>']
    if result.conditions_met:
        lines.append(f"Fired: {escape(', '.join(map(str, result.conditions_met)))}")
    if signal is not None:
        if signal.raw_value is None:
            said = f"The provider gave no reason for the end of its last answer, read as {signal.finish_reason}"
        else:
            said = f"The provider said {escape(signal.raw_field)} = <code>{escape(signal.raw_value)}</code>"
            said += "" if str(signal.raw_value) == signal.finish_reason else f", read as {signal.finish_reason}"
        lines.append(f"{said} (confidence {signal.confidence})")
    if result.output is not None:
        lines.append(f"Output: {escape(result.output, 2000)}")
    wrong = " error" if result.stop_reason is StopReason.ERROR else ""
    return f'<div class="agentlab-end {kind}{wrong}">{"<br>".join(lines)}</div>'


def ending_line(run: Run) -> str:
    """Return why the run stopped, in one line; empty while it runs."""
    result = run.result
    if result is None:
        return ""
    kind = "terminated" if result.terminated else "truncated"
    return f'<div class="agentlab-end {kind}"><b>{kind} · {result.stop_reason}</b> — {escape(result.detail, 240)}</div>'


def continue_note(run: Run) -> str:
    """Return how to continue after a truncated end, for readers without buttons."""
    if run.result is None or run.result.terminated:
        return ""
    offered = [f"{one.label}: {one.why}" for one in run.next_actions[:1]] or [nothing_to_do(run)]
    return note(f"To continue: {offered[0]}")

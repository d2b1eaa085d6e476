"""The panel's pieces of HTML. Whatever comes from a model, a tool or a provider is escaped here, and nowhere is HTML made elsewhere."""

from __future__ import annotations

import base64
import html
import math
import re
from collections.abc import Iterable, Sequence
from decimal import Context, Decimal
from typing import TypeGuard

from agentlab.columns import named_leaves
from agentlab.engine.next_actions import nothing_to_do
from agentlab.printable import escape as escape  # noqa: PLC0414  other modules take them from here
from agentlab.printable import printable as printable  # noqa: PLC0414
from agentlab.results import Reading, RunResult, Scalar
from agentlab.run import Run, RunState
from agentlab.stop import Custom, read_off
from agentlab.stop_tree import outline
from agentlab.types import StopReason
from agentlab.widgets.answer import Said

NEAR = 0.8
"""From this share of a limit on, its bar says so."""
LONGEST_DETAIL, MOST_LINES = 1_500, 14
"""Of why a run ended: so many characters are shown, and so many line breaks kept."""
MILLIONTH = Decimal("0.000001")
LARGE = 20
"""An amount of more digits than this before its point is not rounded: Decimal has 28 in all."""

_STATE_WORDS = {
    RunState.READY: "ready",
    RunState.RUNNING: "running",
    RunState.PAUSED: "paused",
    RunState.ENDED: "ended",
}


def tokens(value: int | None) -> str:
    """A count of tokens in words."""
    return "unknown" if value is None else f"{value:,}"


def dollars(value: Decimal | float | None) -> str:
    """An amount of money in words: to a millionth of a dollar, what is below that to two digits; no exponent."""
    if value is None:
        return "unknown"
    amount = Decimal(value)
    if amount.is_finite() and amount.adjusted() < LARGE:
        amount = amount.quantize(MILLIONTH) or Context(prec=2).plus(amount)
    return f"${amount.normalize():f}"


def status(run: Run, *, timing: bool = True) -> str:
    """State, provider and model, and the totals so far."""
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
    badge = f'<span class="agentlab-badge {run.state}" role="status">{_STATE_WORDS[run.state]}{stopping}{pausing}</span>'
    return f'<div class="agentlab-status">{badge} <span>{"</span> <span>".join(facts)}</span></div>'


def name(text: str) -> str:
    """A name from outside: whatever direction it is written in, it leaves alone what stands beside it."""
    return f"<bdi>{escape(printable(text), 120)}</bdi>"


def duration(seconds: float) -> str:
    """A time in words: 3.2 s, 2 min 05 s, 1 h 02 min."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def note(text: str) -> str:
    """A remark of ours in small; nothing where there is nothing to say."""
    return f'<div class="agentlab-note">{escape(text, 1000)}</div>' if text else ""


def picture(png: bytes, alt: str, width: int) -> str:
    """A picture that needs no file, with the same in words for those who do not see it; at most `width` pixels of the page wide."""
    source = f"data:image/png;base64,{base64.b64encode(png).decode()}"
    return f'<img src="{source}" alt="{html.escape(printable(alt), quote=True)}" style="width:100%; max-width:{width}px">'


def meters(run: Run) -> str:
    """A bar for every limit that is set: what is used of it and what is left, in colour, pattern and words."""
    rows = "".join(
        f"{label}{bar or '<span></span>'}<span>{said}</span><span>{left}</span>" for label, bar, said, left in _meters(run)
    )
    return f'<div class="agentlab-meter">{rows}</div>' if rows else ""


def limits(run: Run) -> str:
    """The same as a table, which can be read also where a page takes the style away. Times are left out."""
    rows = "".join(
        f'<tr><th scope="row">{label}</th><td class="agentlab-bar-cell">{bar}</td><td>{said}</td><td>{left}</td></tr>'
        for label, bar, said, left in _meters(run, timing=False)
    )
    return f'<table class="agentlab-steps"><tbody>{rows}</tbody></table>' if rows else ""


def _meters(run: Run, *, timing: bool = True) -> list[tuple[str, str, str, str]]:
    """For each limit its name, a bar, what is used, and what is left."""
    settings, history = run.limits.snapshot(), run.history
    rows = [
        _meter(reading, reading.name)
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
        if isinstance(node.condition, Custom):
            reading = Reading(node.name) if off else own.get(node.name, Reading(node.name))
        else:
            reading = read_off(node.condition, history)  # as if it were off: what it raises is the run's to tell
        rows.append(_meter(reading, f"not {node.name}" if negated else node.name, off=off, negated=negated))
    return rows


def last_custom_readings(run: Run) -> dict[str, Reading]:
    """What the person's own functions said after the newest step, by their names in `run.limits.leaves`; they are never called for the
    sake of the panel."""
    newest = run.history.last
    read = named_leaves(newest.readings) if newest is not None and newest.readings is not None else {}
    return {name: read.get(name, Reading(name)) for name, leaf in run.limits.leaves.items() if isinstance(leaf, Custom)}


def _meter(reading: Reading, label: str, *, off: bool = False, negated: bool = False) -> tuple[str, str, str, str]:
    """The cells of one limit: its name, a bar where there is a share of it, what is used, what is left."""
    said, left, share = _used(reading), _left(reading), _share(reading.value, reading.limit)
    if off:
        said, left = f"<b>off</b> ({said})", ""
    state = "met" if reading.met else "near" if share is not None and share >= NEAR else ""
    if off or negated:
        state = ""
    words = {"met": " — <b>met</b>" if share is None else " — <b>reached</b>", "near": " — <b>near</b>", "": ""}[state]
    bar = ""
    if share is not None:
        percent = min(100.0, 100 * share)
        spoken = html.escape("; ".join(filter(None, (_plain(said + words), left))), quote=True)
        bar = (
            f'<div class="agentlab-bar{" off" * off}" role="meter" aria-label="{escape(printable(label))}" aria-valuemin="0" '
            f'aria-valuemax="100" aria-valuenow="{percent:.0f}" aria-valuetext="{spoken}">'
            f'<div class="agentlab-fill {state}" style="width:{percent:.1f}%"></div></div>'
        )
    return name(label), bar, f"{said}{words}", "" if negated else left


def _left(reading: Reading) -> str:
    """What is left of a limit, in words; nothing where there is no such number."""
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
    return (
        f"{_amount(reading, reading.value)} of {_amount(reading, reading.limit)}"
        if reading.limit is not None
        else _custom(reading)
    )


def _custom(reading: Reading) -> str:
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
    """Whether it can be measured against another: infinity cannot, nor what float has no number for."""
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool) and math.isfinite(float(Decimal(value)))


def _share(value: Scalar, limit: Scalar) -> float | None:
    if not _is_number(value) or not _is_number(limit) or not limit:
        return None
    return max(0.0, float(value) / float(limit))


def _plain(markup: str) -> str:
    """Our own markup as text."""
    return html.unescape(re.sub("<[^>]*>", "", markup))


STEP_HEADS = ("step", "finish reason", "tools", "tokens", "so far", "cost so far")


def steps(run: Run, most: int | None = None) -> str:
    """The newest steps as a table, the oldest of them first."""
    history = run.history
    first = 0 if most is None else max(0, len(history) - most)
    shown = history[first:]
    so_far: int | None = 0
    cost: Decimal | None = Decimal(0)
    if first:  # what was used before is the run's total less what is shown: no look at the steps that are left out
        so_far = None if history.tokens is None else history.tokens - sum(step.all_tokens or 0 for step in shown)
        cost = None if history.cost_usd is None else history.cost_usd - sum(step.all_cost_usd or 0 for step in shown)
    rows = []
    for step in shown:
        used, spent = step.all_tokens, step.all_cost_usd
        so_far = None if so_far is None or used is None else so_far + used
        cost = None if cost is None or spent is None else cost + spent
        failed = sum(result.is_error for result in step.tool_results)
        called = ", ".join(call.name for call in step.tool_calls) + (f" ({failed} failed)" if failed else "")
        rows.append((step.index, step.finish_reason or "no answer", called, tokens(used), tokens(so_far), dollars(cost)))
    left_out = f'<p class="agentlab-note">… {first} earlier steps</p>' if first else ""
    return left_out + table(STEP_HEADS, rows, numbers=(0, 3, 4, 5)) if rows else '<p class="agentlab-note">No steps yet.</p>'


def table(heads: Sequence[str], rows: Iterable[Sequence[object]], numbers: Sequence[int] = ()) -> str:
    """A table of escaped texts; the columns in `numbers` are aligned to the right."""
    css = [' class="number"' if index in numbers else "" for index in range(len(heads))]
    head = "".join(f'<th scope="col"{style}>{escape(name)}</th>' for name, style in zip(heads, css, strict=True))
    body = "".join(
        "<tr>" + "".join(f"<td{style}>{escape(value)}</td>" for value, style in zip(row, css, strict=True)) + "</tr>"
        for row in rows
    )
    return f'<table class="agentlab-steps"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def end(result: RunResult | None) -> str:
    """Why the run stopped: what ended it, which leaf fired, what the provider said, and what was handed in."""
    if result is None:
        return ""
    kind = "terminated" if result.terminated else "truncated"
    last = result.history.last
    signal = last.signal if last is not None else None
    detail = escape(printable(result.detail), LONGEST_DETAIL)
    if detail.count("\n") <= MOST_LINES:  # as of a replay that missed: one line for each difference, and what to do at the end
        detail = f'<span class="agentlab-lines">{detail}</span>'
    lines = [f"<b>{escape(kind)} · {escape(result.stop_reason)}</b> — {detail}"]
    if result.conditions_met:
        lines.append(f"Fired: {escape(printable(', '.join(map(str, result.conditions_met))))}")
    if signal is not None:
        if signal.raw_value is None:
            said = f"The provider gave no reason for the end of its last answer, read as {signal.finish_reason}"
        else:
            said = f"The provider said {escape(signal.raw_field)} = <code>{escape(printable(str(signal.raw_value)))}</code>"
            said += "" if str(signal.raw_value) == signal.finish_reason else f", read as {signal.finish_reason}"
        lines.append(f"{said} (confidence {signal.confidence})")
    if result.output is not None:
        lines.append(f"Output: {escape(printable(str(result.output)), 2000)}")
    wrong = " error" if result.stop_reason is StopReason.ERROR else ""
    return f'<div class="agentlab-end {kind}{wrong}">{"<br>".join(lines)}</div>'


def what_next(run: Run) -> str:
    """What can be done about an end, for readers who have no button to press."""
    if run.result is None or run.result.terminated:
        return ""
    offered = [f"{one.label}: {one.why}" for one in run.next_actions[:1]] or [nothing_to_do(run)]
    return note(f"What can be done: {offered[0]}")


def answer_label(said: Said) -> str:
    """Whose answer it is, and what is to be said of it."""
    about = f' <span class="agentlab-note">— {escape(printable(said.about))}</span>' if said.about else ""
    return f'<div class="agentlab-answer-label"><b>{escape(said.label)}</b>{about}</div>'


def answer(said: Said) -> str:
    """The text of an answer, as it was written. It is a log to those who listen: told when it has come, not piece by piece."""
    busy = "true" if said.coming else "false"
    text = html.escape(printable(said.text))
    label = html.escape(said.label, quote=True)
    return (  # the first line break of a <pre> is no part of it
        f'<div class="agentlab-answer" role="log" aria-live="polite" aria-busy="{busy}" aria-label="{label}">'
        f'<pre dir="auto">\n{text}</pre></div>'
    )


def fault(message: str) -> str:
    """Something that went wrong in a control."""
    return f'<div class="agentlab-fault" role="alert">{escape(message, 1000)}</div>'

"""The panel's pieces of HTML. Whatever comes from a model, a tool or a provider is escaped here, and nowhere is HTML made elsewhere."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from decimal import Decimal

from agentlab.providers._read import whole_text
from agentlab.results import Reading, RunResult, Scalar
from agentlab.run import Run, RunState
from agentlab.stop import Custom
from agentlab.widgets.answer import Said

NEAR = 0.8
"""From this share of a limit on, its bar says so."""

_STATE_WORDS = {
    RunState.READY: "ready",
    RunState.RUNNING: "running",
    RunState.PAUSED: "paused",
    RunState.ENDED: "ended",
}


_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def escape(value: object, longest: int = 300) -> str:
    """Any text as harmless HTML, cut where it is long."""
    text = str(value)
    return html.escape(text if len(text) <= longest else text[: longest - 1] + "…")


def tokens(value: int | None) -> str:
    """A count of tokens in words."""
    return "unknown" if value is None else f"{value:,}"


def dollars(value: Decimal | float | None) -> str:
    """An amount of money in words: four significant digits, no exponent."""
    if value is None:
        return "unknown"
    amount = Decimal(value).quantize(Decimal("0.000001")).normalize()
    return f"${amount:f}"


def status(run: Run, *, timing: bool = True) -> str:
    """State, model, and the totals so far."""
    history = run.history
    stopping = " (stops after this step)" if run.stop_request is not None and run.result is None else ""
    pausing = " (pauses after this step)" if run.pausing and run.state is RunState.RUNNING else ""
    facts = [
        f"step <b>{len(history)}</b>",
        f"tokens <b>{tokens(history.tokens)}</b>",
        f"cost <b>{dollars(history.cost_usd)}</b>",
    ]
    if timing:
        facts.append(f"elapsed <b>{run.clock.elapsed_s():.1f} s</b>")
        if run.paused_s >= 0.1:
            facts.append(f"paused <b>{run.paused_s:.1f} s</b>")
    badge = f'<span class="agentlab-badge" role="status">{_STATE_WORDS[run.state]}{stopping}{pausing}</span>'
    return f'<div class="agentlab-status">{badge}<span>{escape(run.agent.name)}</span><span>{"</span><span>".join(facts)}</span></div>'


def meters(run: Run, *, timing: bool = True) -> str:
    """A bar for every limit that is set: what is used of it, in colour, pattern and words."""
    settings = run.limits.snapshot()
    readings = [
        reading for reading in settings.budget.readings(run.history, run.clock.elapsed_s()) if timing or reading.name != "timeout"
    ]
    if settings.stop is not None:
        for leaf in settings.stop.leaves():
            if not isinstance(leaf, Custom):
                readings.append(leaf.read(run.history))
        readings += last_custom_readings(run)
    return f'<div class="agentlab-meter">{"".join(map(_meter, readings))}</div>' if readings else ""


def last_custom_readings(run: Run) -> list[Reading]:
    """What the person's own conditions said after the newest step; they are never called for the sake of the panel."""
    stop, newest = run.limits.snapshot().stop, run.history.last
    names = [leaf.name for leaf in stop.leaves() if isinstance(leaf, Custom)] if stop is not None else []
    read = {leaf.name: leaf for leaf in newest.readings.leaves()} if newest is not None and newest.readings is not None else {}
    return [read.get(name, Reading(name)) for name in names]


def _meter(reading: Reading) -> str:
    name = escape(reading.name)
    said = _used(reading)
    share = _share(reading.value, reading.limit)
    if share is None:
        state = "met" if reading.met else ""
        return f"<span>{name}</span><span></span><span>{said}{' — <b>met</b>' if state else ''}</span>"
    state = "met" if reading.met else "near" if share >= NEAR else ""
    words = {"met": " — <b>reached</b>", "near": " — <b>near</b>", "": ""}[state]
    percent = min(100.0, 100 * share)
    bar = (
        f'<div class="agentlab-bar" role="meter" aria-label="{name}" aria-valuemin="0" aria-valuemax="100" '
        f'aria-valuenow="{percent:.0f}" aria-valuetext="{html.escape(_plain(said), quote=True)}">'
        f'<div class="agentlab-fill {state}" style="width:{percent:.1f}%"></div></div>'
    )
    return f"<span>{name}</span>{bar}<span>{said}{words}</span>"


def _used(reading: Reading) -> str:
    if reading.goal:
        times = f"called {reading.value} time{'s' * (reading.value != 1)}" if reading.value else "not called"
        return f"{escape(reading.limit, 80)}: {times}"
    return (
        f"{_amount(reading, reading.value)} of {_amount(reading, reading.limit)}"
        if reading.limit is not None
        else _custom(reading)
    )


def _custom(reading: Reading) -> str:
    return "not read yet" if reading.met is None else escape(reading.value, 80)


def _amount(reading: Reading, value: Scalar) -> str:
    if value is None:
        return "unknown"
    if reading.name in ("max_cost", "MaxCost") and isinstance(value, int | float | Decimal):
        return dollars(value)
    if reading.name == "timeout" and isinstance(value, int | float):
        return f"{value:.1f} s"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else escape(value, 80)


def _share(value: Scalar, limit: Scalar) -> float | None:
    numbers = (int, float, Decimal)
    if not isinstance(value, numbers) or not isinstance(limit, numbers) or not limit:
        return None
    return float(value) / float(limit)


def _plain(markup: str) -> str:
    return html.unescape(markup)


STEP_HEADS = ("step", "finish reason", "tools", "tokens", "so far", "cost so far")


def steps(run: Run, most: int | None = None) -> str:
    """The newest steps as a table, the oldest of them first."""
    history = run.history
    first = 0 if most is None else max(0, len(history) - most)
    shown = history[first:]
    so_far: int | None = 0
    cost: Decimal | None = Decimal(0)
    if first:  # what was used before is the run's total less what is shown: no look at the steps that are left out
        so_far = None if history.tokens is None else history.tokens - sum(step.usage.total_tokens or 0 for step in shown)
        cost = None if history.cost_usd is None else history.cost_usd - sum(step.cost.usd or 0 for step in shown)
    rows = []
    for step in shown:
        used = step.usage.total_tokens
        so_far = None if so_far is None or used is None else so_far + used
        cost = None if cost is None or step.cost.usd is None else cost + step.cost.usd
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
    lines = [f"<b>{escape(kind)} · {escape(result.stop_reason)}</b> — {escape(result.detail, 600)}"]
    if result.conditions_met:
        lines.append(f"Fired: {escape(', '.join(map(str, result.conditions_met)))}")
    if signal is not None and signal.raw_value is not None:
        lines.append(
            f"The provider said {escape(signal.raw_field)} = <code>{escape(signal.raw_value)}</code> (confidence {signal.confidence})"
        )
    if result.output is not None:
        lines.append(f"Output: {escape(result.output, 2000)}")
    return f'<div class="agentlab-end {kind}">{"<br>".join(lines)}</div>'


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


def printable(text: str) -> str:
    """Text with its line breaks and tabs; other control characters, such as those that steer a terminal, and halves of characters
    are made visible."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", whole_text(text.replace("\r\n", "\n")))


def fault(message: str) -> str:
    """Something that went wrong in a control."""
    return f'<div class="agentlab-fault" role="alert">{escape(message, 1000)}</div>'

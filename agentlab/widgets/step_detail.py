"""One step in full, as HTML: what the model was told and said, its tools, its calls, why it ended, what was read, what was sent."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator, Sequence
from decimal import Decimal
from typing import Any

from agentlab.amounts import as_set, measured
from agentlab.results import ChildUse, Reading, StepResult
from agentlab.run import Run
from agentlab.types import Message, ToolCall, ToolResult, Usage, marked
from agentlab.widgets.detail_markup import LONGEST_RAW, code, facts, line, note, prose, raw, seconds, section, seen
from agentlab.widgets.markup import dollars, escape, printable, tokens

OPEN_AT_FIRST = frozenset({"messages", "tools"})
"""The sections that are open until a person closes them."""

MOST_TOOLS, MOST_CALLS, MOST_RAW, MOST_MESSAGES = 20, 30, 4, 8
"""So many of each are shown; the newest where there are more."""


def detail(run: Run, index: int, opened: Collection[str] = OPEN_AT_FIRST) -> str:
    """The step with this index (from 1); `opened` names the sections that are open."""
    step = run.history[index - 1]
    sections = "".join(
        section(name, title, body, is_open=name in opened, about=about)
        for name, title, about, body in _sections(run, step)
        if body
    )
    return f'<div class="agentlab-detail">{_head(step)}{sections}</div>'


def _sections(run: Run, step: StepResult) -> Iterator[tuple[str, str, str, str]]:
    """Name, title, what is said beside the title, and the HTML of each section."""
    failed = sum(result.is_error for result in step.tool_results)
    told_failed = f", {failed} failed" if failed else ""
    yield "messages", "Messages", "what was new to the model, and its answer", _messages(run, step)
    if step.tool_calls:
        yield "tools", "Tool calls", f"{len(step.tool_calls)}{told_failed}", _tools(step)
    used = f"{len(step.calls)} · {tokens(step.usage.total_tokens)} tokens · {dollars(step.cost.usd)}"
    yield "calls", "Model calls", used, _calls(step)
    yield "signal", "Why the response ended", _said_in_short(step), _signal(step)
    yield "decision", "What followed", step.decision.action.replace("_", " "), _decision(step)
    if step.readings is not None:
        yield (
            "readings",
            "Stop condition",
            _decided(step.readings),
            f'<ul class="agentlab-readings">{_reading(step.readings)}</ul>',
        )
    yield "limits", "Limits that held", "and what was left after the step", _limits(step)
    yield "raw", "Raw response", "as the provider sent it", _raw(step)


def _head(step: StepResult) -> str:
    reason = (step.finish_reason or "no answer").replace("_", " ")
    told = [
        f"<b>Step {step.index}</b>",
        escape(reason),
        f"{seconds(step.duration_s)}",
        escape(step.decision.action.replace("_", " ")),
    ]
    if step.stop_reason is not None:
        told.append(f"<b>the run ended: {escape(step.stop_reason)}</b>")
    said = line(step.decision.reason)
    return f'<div class="agentlab-detail-head"><div>{" · ".join(told)}</div><div class="agentlab-note">{said}</div></div>'


# Messages ------------------------------------------------------------------------------------------------------------------


def new_to_the_model(run: Run, index: int) -> list[Message]:
    """What stood in the conversation when this step began and the model had not seen yet: all after its last words."""
    before = run.timeline.messages_of(index - 1)
    said = [place for place, message in enumerate(before) if message.role == "assistant"]
    return list(before[said[-1] + 1 if said else 0 :])


def who_took(run: Run, index: int) -> Run:
    """The run that took this step: of a branch's first steps, the one that it was forked from."""
    while (origin := run.origin).parent is not None and origin.forked_at is not None and index <= origin.forked_at:
        run = origin.parent
    return run


def _messages(run: Run, step: StepResult) -> str:
    told = new_to_the_model(run, step.index)
    instructions = who_took(run, 1).agent.instructions if step.index == 1 else ""
    where = f"in run.timeline.messages_of({step.index - 1})"
    parts = [note(f"… {len(told) - MOST_MESSAGES} earlier messages, {where}")] if len(told) > MOST_MESSAGES else []
    if instructions:
        parts.insert(0, _said("Instructions", prose(instructions, "run.agent.instructions")))
    for message in told[-MOST_MESSAGES:]:
        if message.role == "tool":
            parts += [
                _said(f"Tool {_name(result.name)}", code(result.content, where)) for result in message.tool_results[:MOST_TOOLS]
            ]
        else:
            parts.append(_said("User", prose(message.text, where)))
    here = f"run.history[{step.index - 1}]"
    for number, call in enumerate(step.calls[-MOST_RAW:]):
        if call.response.reasoning:
            place = len(step.calls) - len(step.calls[-MOST_RAW:]) + number
            parts.append(_said("Model, thinking", prose(call.response.reasoning, f"{here}.calls[{place}].response.reasoning")))
    if step.response is not None and step.response.refusal:
        parts.append(_said("Model, refusing", prose(step.response.refusal, f"{here}.response.refusal")))
    if step.text:
        seams = "".join(f'<div class="agentlab-note">{line(str(seam))}</div>' for seam in step.seams[-MOST_CALLS:])
        holes = "".join(
            f'<div class="agentlab-note">A piece is missing {line(str(hole))}</div>' for hole in step.holes[:MOST_CALLS]
        )
        parts.append(_said("Model", prose(marked(step.text, step.holes), f"{here}.text") + seams + holes))
    elif step.calls:
        asks = "asks for tools, and says nothing else" if step.tool_calls else "no text"
        parts.append(_said("Model", note(asks)))
    else:
        parts.append(_said("Model", note("no answer came back")))
    return _rows(parts)


def _said(who: str, body: str, css: str = "agentlab-who") -> str:
    return f'<div class="agentlab-said"><div class="{css}">{escape(who, 120)}</div><div>{body}</div></div>'


def _rows(parts: list[str]) -> str:
    return f'<div class="agentlab-rows">{"".join(parts)}</div>'


def _name(text: str) -> str:
    """A name from outside on one line, nothing in it unseen."""
    return seen(printable(text[:200]))


# Tools and calls -------------------------------------------------------------------------------------------------------------


def _tools(step: StepResult) -> str:
    left, here = list(step.tool_results), f"run.history[{step.index - 1}]"
    parts = []
    for number, call in enumerate(step.tool_calls[:MOST_TOOLS]):
        result = next((one for one in left if one.call_id == call.id), None)
        if result is not None:
            left.remove(result)
        uses = [use for use in step.children if use.call_id == call.id and not use.cut_off]
        parts.append(_tool(call, result, here, f"{here}.tool_calls[{number}]", uses))
    if len(step.tool_calls) > MOST_TOOLS:
        parts.append(note(f"… {len(step.tool_calls) - MOST_TOOLS} more: {here}.tool_calls"))
    parts += [note(f"Before this, in a try that ended with its process: {_used(use)}.") for use in step.children if use.cut_off]
    return "".join(parts)


def _tool(call: ToolCall, result: ToolResult | None, step: str, where: str, uses: Sequence[ChildUse]) -> str:
    if result is None:
        outcome = "not executed" if call.closed else "cut off, not executed"
    elif result.is_error:
        outcome = f"failed: {result.error} · {seconds(result.duration_s)}"
    else:
        outcome = f"done · {seconds(result.duration_s)}"
    failed = " agentlab-failed" if result is None or result.is_error else ""
    head = f'<div class="agentlab-who">{escape(_name(call.name))} <span class="agentlab-note">{escape(outcome)}</span></div>'
    parts = [_said("arguments", code(call.arguments, f"{where}.arguments"), "agentlab-label")]
    if result is not None:
        if result.executed_arguments is not None:
            executed = code(result.executed_arguments, f"in {step}.tool_results")
            parts.append(_said("executed with, by a middleware", executed, "agentlab-label"))
        label = "error" if result.is_error else "result"
        if result.middleware == "answer":
            label += " of a middleware, not executed"
        elif "result" in result.middleware:
            label += ", changed by a middleware"
        parts.append(_said(label, code(result.content, f"in {step}.tool_results"), "agentlab-label"))
        if result.stop is not None:
            parts.append(_said("stop", note(printable(result.stop.reason)), "agentlab-label"))
    parts += [_said("sub-agent", note(_used(use)), "agentlab-label") for use in uses]
    return f'<div class="agentlab-tool{failed}">{head}{_rows(parts)}</div>'


def _used(use: ChildUse) -> str:
    """What the run of a sub-agent came to, and what it used on top of the step's own calls."""
    ended = "cut off" if use.stop_reason is None else use.stop_reason.replace("_", " ")
    spent = f"{use.steps} step{'s' * (use.steps != 1)}, {tokens(use.usage.total_tokens)} tokens, {dollars(use.cost.usd)}"
    return f"{_name(use.handle)}: {ended}, {spent}, run {use.run_id[:6]}"


_CALL_HEADS = ("call", "finish reason", "input", "cached", "output", "reasoning", "cost", "cap", "time", "retries", "")


def _calls(step: StepResult) -> str:
    if not step.calls:
        return note("No call came back.")
    rows = []
    for call in step.calls[-MOST_CALLS:]:
        usage, cap = call.usage, "–" if call.requested_cap is None else f"{call.requested_cap:,}"
        cost = f"{dollars(call.cost.usd)} {call.cost.source}" if call.cost.usd is not None else "unknown"
        remarks = [] if call.used else ["left aside by a middleware"]
        if call.cost.reason and usage.total_tokens is not None:
            remarks.append(call.cost.reason)
        if usage.source.value != "reported":
            remarks.append(f"usage {usage.source.replace('_', ' ')}")
        if call.decision is not None:
            remarks.append(f"then: {call.decision.action.replace('_', ' ')}")
        cells = (
            call.index, call.response.signal.finish_reason, tokens(usage.input_tokens), _cached(usage), tokens(usage.output_tokens),
            _or_dash(usage.reasoning_tokens), cost, cap, seconds(call.duration_s), call.retries, "; ".join(remarks),
        )  # fmt: skip
        rows.append("<tr>" + "".join(f"<td{_css(at)}>{escape(cell)}</td>" for at, cell in enumerate(cells)) + "</tr>")
    head = "".join(f'<th scope="col"{_css(at)}>{name}</th>' if name else "<td></td>" for at, name in enumerate(_CALL_HEADS))
    earlier = note(f"… {len(step.calls) - MOST_CALLS} earlier calls") if len(step.calls) > MOST_CALLS else ""
    model = step.response.model if step.response is not None else None
    said = facts([("answered by", model), ("response id", step.response.response_id if step.response is not None else None)])
    return f'{earlier}<table class="agentlab-steps"><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table>{said}'


def _css(at: int) -> str:
    return "" if at in (1, len(_CALL_HEADS) - 1) else ' class="number"'


def _cached(usage: Usage) -> str:
    if usage.cache_read_tokens is None and usage.cache_write_tokens is None:
        return "–"
    written = f" + {usage.cache_write_tokens:,} written" if usage.cache_write_tokens else ""
    return f"{usage.cache_read_tokens or 0:,}{written}"


def _or_dash(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"


# Why it ended, and what was read -------------------------------------------------------------------------------------------------


def _said_in_short(step: StepResult) -> str:
    signal = step.signal
    return (
        "" if signal is None else f"{_name(signal.raw_field)} = {_name(str(signal.raw_value))} ({signal.confidence} confidence)"
    )


def _signal(step: StepResult) -> str:
    signal = step.signal
    if signal is None:
        return note("No response came back, so that no provider said why.")
    missing = "missing" if signal.raw_value is None else signal.raw_value
    told = facts(
        [
            ("finish reason", signal.finish_reason),
            ("confidence", signal.confidence),
            ("the provider's field", signal.raw_field or None),
            ("its value", missing),
            ("provider", signal.provider or None),
            ("message", signal.message or None),
            ("asking again may mend it", "yes" if signal.repairable else None),
        ]
    )
    return told + (raw(dict(signal.metadata), f"run.history[{step.index - 1}].signal.metadata") if signal.metadata else "")


def _decision(step: StepResult) -> str:
    decision = step.decision
    error = None if step.error is None else f"{type(step.error).__name__}: {step.error}"
    told = facts(
        [
            ("action", decision.action),
            ("why", decision.reason),
            ("ends the run as", step.stop_reason or decision.stop_reason),
            ("suggestion", decision.suggestion and decision.suggestion.replace("_", " ")),
            ("error", error),
        ]
    )
    return told + (raw(dict(decision.metadata), f"run.history[{step.index - 1}].decision.metadata") if decision.metadata else "")


def _decided(readings: Reading) -> str:
    deciding = tuple(readings.deciding())
    return f"met: {', '.join(_name(str(one)) for one in deciding)}"[:200] if deciding else "not met"


def _reading(readings: Reading) -> str:
    """The tree of readings as nested lists; those that decided say so."""
    deciding = tuple(readings.deciding())

    def item(one: Reading) -> str:
        met = {True: "met", False: "not met", None: "not known"}[one.met]
        mark = ' <b class="agentlab-decided">◀ decided</b>' if one in deciding else ""
        if one.children:
            inner = "".join(map(item, one.children))
            return f"<li>{escape(_name(one.name))} — {met}{mark}<ul>{inner}</ul></li>"
        return f"<li>{escape(_name(one.name))}: {_value_of(one)} — {met}{mark}</li>"

    return item(readings)


def _value_of(one: Reading) -> str:
    value = _counted(one.value) or measured(one.name, one.value)
    limit = "" if one.limit is None else f" of {_counted(one.limit) or as_set(one.name, one.limit)}"
    return f"<b>{escape(_name(value), 120)}</b>{escape(_name(limit), 120)}"


def _counted(value: object) -> str:
    """A whole number; empty where it is none."""
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else ""


def _plain(value: object) -> str:
    if isinstance(value, Decimal):
        return f"{value.normalize():f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


_LEFT_OF: dict[str, Callable[[StepResult], Any]] = {
    "max_turns": lambda step: step.remaining.turns,
    "max_calls": lambda step: step.remaining.calls,
    "max_tokens": lambda step: step.remaining.tokens,
    "max_cost": lambda step: step.remaining.cost_usd,
    "timeout": lambda step: None if step.remaining.time_s is None else round(step.remaining.time_s, 2),
}


def _limits(step: StepResult) -> str:
    settings = step.settings
    rows: list[tuple[str, object]] = []
    for field in dataclasses.fields(settings.budget):
        value = getattr(settings.budget, field.name)
        if value is None:
            continue
        unit = field.metadata.get("unit", "")
        left = _LEFT_OF[field.name](step) if field.name in _LEFT_OF else None
        rows.append((field.name, f"{_plain(value)} {unit}".strip() + (f" — {_plain(left)} left" if left is not None else "")))
    rows.append(("stop condition", "none" if settings.stop is None else repr(settings.stop)))
    if settings.terminating is not None:
        rows.append(("terminating tools", ", ".join(settings.terminating.tools)))
    caps = settings.continuation
    rows.append(("continuations in a step", caps.max_continuations_per_turn))
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
        parts.append(note("Nothing was kept of it.") if kept is None else raw(kept, where, LONGEST_RAW // len(shown)))
    return "".join(parts)

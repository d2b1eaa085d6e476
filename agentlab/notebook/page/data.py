"""A run as plain JSON for the page. Fields named `html` or `…_html` are safe HTML; all others are plain text, numbers or None.

Unknown values are None, never zero. Without `timing` there are no times, and runs are
numbered, so that recorded fixtures give the same data each time.
"""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from agentlab._internal.formatting import as_set, counted
from agentlab._internal.redaction import redact
from agentlab._internal.safe_text import cut, escape, one_line
from agentlab.agent import Run
from agentlab.engine.control import PendingCall
from agentlab.engine.next_actions import NextAction
from agentlab.engine.run_tree import differences, family_of
from agentlab.engine.worker import RunState
from agentlab.limits.budget import DefaultTurns
from agentlab.limits.combinators import StopCondition
from agentlab.limits.fields import limit_fields
from agentlab.limits.reading import Reading, Scalar
from agentlab.model.messages import Message, ToolCall, ToolResult
from agentlab.model.responses import marked
from agentlab.notebook.live_view import RunningTotals
from agentlab.notebook.markup import LimitNow, limits_now, share_of
from agentlab.notebook.page.rich_text import code, markdown, sanitised, value_html
from agentlab.notebook.page.step_detail import Extent, changed_by, child_use, line, seconds, sections, seen
from agentlab.records import events
from agentlab.records.events import detail_of, step_of
from agentlab.records.result import RunResult
from agentlab.records.step import ChildUse, StepResult

JSON = dict[str, Any]

VERSION = 1
LONGEST_LINE = 160
"""Characters of a tool call's arguments in its one line."""
MOST_CALLS = 100
"""Tool calls of a step that are shown."""

_STATES = {
    RunState.READY: "idle",
    RunState.RUNNING: "running",
    RunState.PAUSED: "paused",
    RunState.WAITING: "waiting",
    RunState.ENDED: "ended",
}


@dataclass(frozen=True, slots=True)
class Shown:
    """What is shown of runs: times and ids, which differ at each execution, and the raw responses of these steps (True: of all)."""

    timing: bool = True
    raw: bool | frozenset[int] = False

    def has_raw(self, step: int) -> bool:
        """True if the raw responses of this step are shown."""
        return self.raw if isinstance(self.raw, bool) else step in self.raw

    def time(self, value: float | None) -> float | None:
        """Return a time in seconds, to a tenth of a millisecond; None without timing."""
        return None if value is None or not self.timing else round(value, 4)


def page_data(runs: Sequence[Run], title: str, shown: Shown = Shown()) -> JSON:
    """Return all runs of the families of these runs, each after the run that it came from. Steps that a branch shares with its parent
    are the same objects in both."""
    family = {node.run.id: node.run for run in runs for node in family_of(run)}
    ids = {run_id: run_id if shown.timing else f"run-{place}" for place, run_id in enumerate(family, start=1)}
    made: dict[str, JSON] = {}
    names: Counter[str] = Counter()
    for run in family.values():
        parent = run.origin.parent
        data = run_data(run, shown, ids, made[parent.id]["steps"] if parent is not None and parent.id in made else ())
        names[data["name"]] += 1
        if names[data["name"]] > 1:
            data["name"] += f" ({names[data['name']]})"
        made[run.id] = data
    return {"version": VERSION, "title": on_one_line(title, 200), "open": ids[runs[0].id], "runs": [*made.values()]}


def as_json(data: JSON) -> str:
    """Return data as JSON for a script element, without keys: they are looked for once more in all of it.

    Of a branch the steps that it shares with its parent are left out: `kept` is their number.
    """
    by_id = {run["id"]: run for run in data["runs"]}
    runs = [_without_shared(run, by_id.get(run["parent"])) for run in data["runs"]]
    text = json.dumps({**data, "runs": runs}, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return redact(text).translate(_ESCAPED)


_ESCAPED = {ord(each): f"\\u{ord(each):04x}" for each in "<>&\u2028\u2029"}


def _without_shared(run: JSON, parent: JSON | None) -> JSON:
    pairs = zip(run["steps"], () if parent is None else parent["steps"], strict=False)
    kept = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] is pair[1], pairs))
    return {**run, "kept": kept, "steps": run["steps"][kept:]} if kept else run


# A run --------------------------------------------------------------------------------------------------------------------------


def run_data(run: Run, shown: Shown, ids: Mapping[str, str], of_parent: Sequence[JSON] = ()) -> JSON:
    """Return one run with all its steps; `ids` has the ids of the runs in the page, `of_parent` the steps of the run it is forked
    from."""
    history, origin = run.history, run.origin
    before = origin.parent or origin.caller
    watched = _Watched.of(run, shown)
    return {
        "id": ids[run.id],
        "name": _name(run),
        "agent": one_line(run.agent.name),
        "model": one_line(f"{run.agent.model.name}:{run.agent.model.model}"),
        "parent": None if before is None else ids.get(before.id),
        "forked_at": origin.forked_at,
        "called_by": None if origin.called_by is None else one_line(origin.called_by),
        "state": _STATES[run.state],
        "system_html": _instructions(run),
        "prompt_html": sanitised("".join(_message(message, "") for message in run.timeline.messages_of(0))),
        "totals": {
            "steps": len(history),
            "tokens": history.tokens,
            "input_tokens": history.usage.input_tokens,
            "output_tokens": history.usage.output_tokens,
            "cost_usd": number(history.cost_usd),
            "elapsed_s": shown.time(run.timeline.clock.elapsed_s()),
        },
        "limits": limit_rows(run, shown),
        "pending": [_pending(one) for one in run.pending],
        "end": end_data(run.result),
        "actions": [_action(place, one) for place, one in enumerate(run.next_actions)],
        "steps": list(steps_data(run, shown, ids, watched, of_parent)),
        "marks": watched.marks,
    }


def _name(run: Run) -> str:
    """Return how a branch differs from the run it was forked from, the handle of a child run, else the agent's name."""
    origin = run.origin
    handle = next((use.handle for use in _uses_of(origin.caller) if use.run_id == run.id), "")
    if origin.parent is None:
        return one_line(handle or run.agent.name)
    edited = "tool result of "
    changed = [
        f"edited result of {one.removeprefix(edited)} at step {origin.forked_at}" if one.startswith(edited) else one
        for one in differences(run)
    ]
    words = ", ".join(changed) or f"the same from step {(origin.forked_at or 0) + 1}"
    return one_line(f"{handle}: {words}" if handle else words, 120)


def _uses_of(run: Run | None) -> Iterator[ChildUse]:
    for step in () if run is None else run.history:
        yield from step.children


def _instructions(run: Run) -> str:
    text = run.agent.instructions
    return sanitised(f'<div class="agentlab-system">{markdown(text, "run.agent.instructions")}</div>') if text else ""


def _action(place: int, action: NextAction) -> JSON:
    given = [f"run.next_actions[{place}]"] if place else []
    given += ['prompt="…"'] if action.needs_prompt else []
    return {
        "label": one_line(action.label, 200),
        "why": on_one_line(action.why, 1_000),
        "code": f"branch = run.apply({', '.join(given)})\nresult = await branch",
    }


def _pending(call: PendingCall) -> JSON:
    """Return a call that waits for a person's word."""
    return {
        "tool": on_one_line(call.tool),
        "arguments": seen(cut(call.arguments, 2_000)),
        "step": call.step,
        "why": on_one_line(call.why, 300),
    }


def end_data(result: RunResult | None) -> JSON | None:
    """Return why the run ended; None before."""
    if result is None:
        return None
    last = result.history.last
    signal = None if last is None else last.signal
    said = ""
    if signal is not None:
        raw = f"said {signal.raw_field} = {signal.raw_value}" if signal.raw_value is not None else "gave no reason"
        said = f"The provider {raw}, read as {signal.finish_reason} (confidence {signal.confidence})."
    output = ""
    if result.output is not None:
        output = sanitised(value_html(result.output) or _text_or_json(result.text, "run.result.output"))
    return {
        "kind": "terminated" if result.terminated else "truncated",
        "stop_reason": str(result.stop_reason),
        "detail": seen(cut(result.detail, 2_000)),
        "fired": [one_line(str(one), 300) for one in result.conditions_met],
        "signal": on_one_line(said, 600),
        "output_html": output,
    }


def _text_or_json(text: str, where: str) -> str:
    return code(text, where=where) if text[:1] in ("{", "[") else markdown(text, where)


def on_one_line(text: str, longest: int = 80) -> str:
    """Return a text from outside on one line, without characters that turn it round; empty for an empty one."""
    return one_line(text, longest) if text.strip() else ""


def number(value: Scalar) -> int | float | str | None:
    """Return a value as JSON has it: no infinity, no NaN, no Decimal."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Decimal | float):
        amount = float(value)
        return amount if math.isfinite(amount) else None
    return on_one_line(value) if isinstance(value, str) else value


# Limits -------------------------------------------------------------------------------------------------------------------------

_UNITS = {"steps": "steps", "calls": "calls", "tokens": "tokens", "cost": "usd", "time": "s"}
_LABELS = {"steps": "Steps", "calls": "Model calls", "tokens": "Tokens", "cost": "Cost", "time": "Time"}
"""Unit and label of each running total."""


def limit_rows(run: Run, shown: Shown) -> list[JSON]:
    """Return the limits of a run as they are now, one row for each thing that is limited.

    Of several limits on one total the row has the one that comes first, and the names of all; `first` marks that there are others, and
    `order` says it in words.
    """
    rows: dict[str, list[LimitNow]] = {}
    for place, one in enumerate(limits_now(run, timing=shown.timing)):
        alike = one.total is not None and one.ends_alone and not one.off
        rows.setdefault(one.total if alike and one.total else f"{place}", []).append(one)
    return [*(_limit_row(several, run) for several in rows.values()), *_approve_row(run.limits.approve)]


def _approve_row(approve: Sequence[str | StopCondition]) -> list[JSON]:
    """Return the row that says before which tools a person is asked; none if nobody is."""
    if not approve:
        return []
    asked = ", ".join("every tool" if one == "*" else str(one) for one in approve)
    unknown = dict.fromkeys(("limit", "share", "met"))
    no = dict.fromkeys(("goal", "off", "first"), False)
    words = {"name": "approve", "key": "approve", "label": "Asks a person before", "value": on_one_line(asked, 200), "with": ["approve"]}
    return [{**words, **unknown, **no, "unit": "", "order": ""}]


def _limit_row(several: Sequence[LimitNow], run: Run) -> JSON:
    def comes_first(one: LimitNow) -> tuple[Decimal, bool]:
        return Decimal(str(one.reading.limit)), isinstance(one.reading.limit, DefaultTurns)

    limit = min(several, key=comes_first) if len(several) > 1 else several[0]
    reading = limit.reading
    share = None if limit.off or limit.negated else share_of(reading.value, reading.limit)
    return {
        "name": one_line(limit.reading.name),
        "key": one_line(limit.label.removeprefix("not ")),
        "label": _label(limit),
        "unit": _UNITS.get(limit.total or "") or _unit_of(run, limit.label),
        "value": number(reading.value),
        "limit": number(reading.limit),
        "share": None if share is None else min(1.0, round(share, 6)),
        "met": None if limit.off else reading.met,
        "goal": reading.goal,
        "off": limit.off,
        "first": len(several) > 1,
        "with": [one_line(one.reading.name) for one in several],
        "order": _order(limit, several),
    }


def _order(limit: LimitNow, several: Sequence[LimitNow]) -> str:
    """Return which of several limits on one total applies, and before which; "" for a single one."""
    others = [one.reading for one in several if one is not limit]
    reading = limit.reading
    if not others:
        return ""
    words = " and " if all(one.limit == reading.limit for one in others) else " applies before "
    return one_line(words.join([_as_written(reading), ", ".join(map(_as_written, others))]), 200)


def _as_written(reading: Reading) -> str:
    return f"{reading.name} {as_set(reading.name, reading.limit)}"


def _label(limit: LimitNow) -> str:
    reading = limit.reading
    label = _LABELS.get(limit.total or "")
    if label is None:
        label = (
            f"Call of {reading.limit}" if reading.goal else "Finish reason" if reading.name == "FinishReasonIs" else reading.name
        )
    return one_line(f"not: {label}" if limit.negated else label)


def _unit_of(run: Run, name: str) -> str:
    condition = run.limits.conditions.get(name.removeprefix("not "))
    units = [] if condition is None else [entry.metadata["unit"] for entry in limit_fields(condition)]
    return {"USD": "usd", "turns": "steps"}.get(units[0], units[0]) if len(units) == 1 else ""


# Steps --------------------------------------------------------------------------------------------------------------------------


def steps_data(
    run: Run, shown: Shown, ids: Mapping[str, str], watched: _Watched, of_parent: Sequence[JSON] = ()
) -> Iterator[JSON]:
    """Yield the steps of a run, those that it shares with its parent as they are there."""
    history, parent, totals = run.history, run.origin.parent, RunningTotals(run)
    for place in range(totals.catch_up()):
        step = history[place]
        if parent is not None and place < len(of_parent) and parent.history[place] is step:
            yield of_parent[place]
            continue
        settled = bool(place) and history[place - 1].settings == step.settings
        used = {"total_tokens": totals.tokens[place + 1], "total_cost_usd": number(totals.cost[place + 1])}
        yield _step(run, step, shown, ids, watched, settled=settled) | used


def _step(run: Run, step: StepResult, shown: Shown, ids: Mapping[str, str], watched: _Watched, *, settled: bool) -> JSON:
    names = ["calls", "signal", "decision", "readings", *([] if settled else ["limits"])]
    names += ["raw"] if shown.has_raw(step.index) else []
    return {
        "n": step.index,
        "html": step_html(run, step, shown),
        "finish": str(step.finish_reason or "no_answer"),
        "stop_reason": None if step.stop_reason is None else str(step.stop_reason),
        "action": str(step.decision.action),
        "tokens": step.all_tokens,
        "cost_usd": number(step.all_cost_usd),
        "duration_s": shown.time(step.duration_s),
        "started_s": shown.time(step.started_s),
        "reads": _reads(step.readings),
        "spans": watched.spans(step) if shown.timing else [],
        "details": sanitised(sections(run, step, names, extent=Extent(shown.timing, empty_columns=False))),
        "children": [ids[use.run_id] for use in step.children if use.run_id in ids],
    }


def _reads(readings: Reading | None) -> str:
    if readings is None:
        return ""
    met = {True: "met", False: "not met", None: "unknown"}[readings.met]
    return one_line(" · ".join([*map(str, readings.leaves()), met]), 300)


def step_html(run: Run, step: StepResult, shown: Shown) -> str:
    """Return what a step added to the conversation."""
    where = f"run.history[{step.index - 1}]"
    parts = []
    for place, call in enumerate(step.calls):
        if call.response.reasoning:
            length = counted(len(call.response.reasoning), "character")
            body = markdown(call.response.reasoning, f"{where}.calls[{place}].response.reasoning")
            summary = f'<summary>Reasoning <span class="agentlab-note">{length}</span></summary>'
            parts.append(f'<details class="agentlab-reasoning">{summary}{body}</details>')
    if step.text:
        remarks = [*map(str, step.seams), *(f"A piece is missing {hole}" for hole in step.holes)]
        below = "".join(f'<div class="agentlab-note">{line(remark)}</div>' for remark in remarks[:MOST_CALLS])
        parts.append(f'<div class="agentlab-assistant">{markdown(marked(step.text, step.holes), f"{where}.text")}{below}</div>')
    if step.response is not None and step.response.refusal:
        refusal = markdown(step.response.refusal, f"{where}.response.refusal")
        parts.append(f'<div class="agentlab-assistant"><div class="agentlab-note">The model refused:</div>{refusal}</div>')
    if not step.calls:
        parts.append('<div class="agentlab-note">No answer was received.</div>')
    if step.error is not None:
        parts.append(f'<div class="agentlab-note agentlab-fault">{line(f"{type(step.error).__name__}: {step.error}")}</div>')
    parts += _tool_calls(run, step, where, shown)
    said = run.timeline.messages_of(step.index)
    answered = max((place for place, message in enumerate(said) if message.role in ("assistant", "tool")), default=-1)
    parts += [_message(message, where) for message in said[answered + 1 :]]
    return sanitised("".join(parts))


def _message(message: Message, where: str) -> str:
    """Return a message that the model did not write in this run: a prompt, the chat before it, a reminder."""
    if message.role == "system":
        return f'<div class="agentlab-nudge">{markdown(message.text)}</div>'
    parts = [markdown(message.text)] if message.text else []
    parts += [_call(call, None, "", where, True) for call in message.tool_calls[:MOST_CALLS]]
    parts += [f'<div class="agentlab-result">{code(result.content)}</div>' for result in message.tool_results[:MOST_CALLS]]
    role = "user" if message.role == "user" else "assistant"
    return f'<div class="agentlab-{role}">{"".join(parts)}</div>' if parts else ""


def _tool_calls(run: Run, step: StepResult, where: str, shown: Shown) -> Iterator[str]:
    left = list(step.tool_results)
    edited = _edited(run, step)
    for call in step.tool_calls[:MOST_CALLS]:
        result = next((one for one in left if one.call_id == call.id), None)
        if result is not None:
            left.remove(result)
        uses = [use for use in step.children if use.call_id == call.id and not use.cut_off]
        yield _call(call, result, "".join(map(_child, uses)), where, shown.timing, edited=call.id in edited)
    if len(step.tool_calls) > MOST_CALLS:
        yield f'<div class="agentlab-note">… {len(step.tool_calls) - MOST_CALLS:,} more: {where}.tool_calls</div>'


def _child(use: ChildUse) -> str:
    return f'<div class="agentlab-note">Sub-agent {escape(child_use(use))}</div>'


def _edited(run: Run, step: StepResult) -> frozenset[str]:
    """Return the calls whose results this branch replaced."""
    parent = run.origin.parent
    if parent is None or run.origin.forked_at != step.index or step.index > len(parent.history):
        return frozenset()
    before = {result.call_id: result.content for result in parent.history[step.index - 1].tool_results}
    return frozenset(one.call_id for one in step.tool_results if before.get(one.call_id) != one.content)


def _call(call: ToolCall, result: ToolResult | None, below: str, where: str, timing: bool, *, edited: bool = False) -> str:
    """Return a tool call in one line that unfolds to its arguments and its result."""
    failed = result is None or result.is_error
    if result is None:
        outcome = "not executed" if call.closed else "cut off, not executed"
    elif result.approval in ("answered", "refused"):
        outcome = f"{result.approval} by a person"
    else:
        outcome = f"{result.approval} · " if result.approval else ""
        outcome += f"failed: {result.error}" if result.is_error else "done"
        outcome += f" · {seconds(result.duration_s)}" if timing else ""
    outcome += " · edited in this branch" if edited else ""
    arguments = seen(one_line(call.arguments[:4_000], LONGEST_LINE)) if call.arguments else ""
    return (
        f'<details class="agentlab-call{" failed" if failed else ""}"><summary>'
        f'<span class="agentlab-call-name">{escape(seen(one_line(call.name)))}</span> '
        f'<span class="agentlab-call-args">{escape(arguments)}</span> '
        f'<span class="agentlab-call-outcome">{escape(outcome)}</span></summary>'
        f'<div class="agentlab-args">{code(call.arguments, where=f"{where}.tool_calls") if call.arguments else ""}</div>'
        f"{_result(result, where)}{below}</details>"
    )


def _result(result: ToolResult | None, where: str) -> str:
    if result is None:
        return ""
    notes = []
    if result.executed_arguments is not None:
        edit = "Arguments after the edit by" if result.approval == "edited" else "Executed with other arguments, by"
        notes.append(f'<div class="agentlab-note">{edit} {changed_by(result)}:</div><div>{code(result.executed_arguments)}</div>')
    if result.middleware == "answer":
        notes.append('<div class="agentlab-note">Answered by a middleware, not executed.</div>')
    elif "result" in result.middleware:
        notes.append('<div class="agentlab-note">Changed by a middleware.</div>')
    drawn = value_html(result.value)
    text = code(result.content, where=f"{where}.tool_results")
    if drawn:
        text = f'{drawn}<details class="agentlab-read"><summary>What the model read</summary>{text}</details>'
    if result.stop is not None:
        notes.append(f'<div class="agentlab-note">Stop: {line(result.stop.reason)}</div>')
    return f'{"".join(notes)}<div class="agentlab-result">{text}</div>'


# Events -------------------------------------------------------------------------------------------------------------------------

_KINDS: Mapping[type, str] = {
    events.LimitsChanged: "limits",
    events.RunPaused: "paused",
    events.Nudged: "nudge",
    events.CallRetried: "retry",
    events.AskedAgain: "retry",
    events.ContinuationAttempted: "continuation",
    events.ToolPayloadRepair: "continuation",
    events.Warned: "warning",
}


@dataclass(slots=True)
class _Watched:
    """What the events of a run and of the runs it was forked from say: when tools ran, and what is worth a mark."""

    shown: Shown
    marks: list[JSON] = field(default_factory=list)
    tools: dict[int, list[JSON]] = field(default_factory=dict)

    @classmethod
    def of(cls, run: Run, shown: Shown) -> _Watched:
        """Read the events of a run; of those it was forked from, the part that it shares with them."""
        watched = cls(shown)
        line_of_runs: list[tuple[Run, float]] = [(run, math.inf)]
        while (parent := line_of_runs[-1][0].origin.parent) is not None:
            line_of_runs.append((parent, min(line_of_runs[-1][1], line_of_runs[-1][0].origin.forked_at or 0)))
        for one, until in reversed(line_of_runs):
            watched._read(one.events, until)
        return watched

    def _read(self, happened: Iterable[events.Event], until: float) -> None:
        step, started = 1, {}
        for event in tuple(happened):
            step = step_of(event) or step
            if step > until:
                return
            if isinstance(event, events.ToolFinished):
                begin = event.at_s - event.result.duration_s
                self._span(step, "tool", event.result.name, begin, event.at_s)
            elif isinstance(event, events.ChildStarted):
                started[event.run_id] = event.at_s
            elif isinstance(event, events.ChildEnded):
                self._span(step, "child", event.child.handle, started.get(event.child.run_id, event.at_s), event.at_s)
            elif (kind := _KINDS.get(type(event))) is not None:
                words = "before the next step" if kind == "paused" else detail_of(event).replace(" -> ", " → ")
                text = on_one_line(words, 500)
                self.marks.append({"at_s": self.shown.time(event.at_s), "step": step, "kind": kind, "text": text})

    def _span(self, step: int, kind: str, label: str, begin: float, end: float) -> None:
        span = {
            "kind": kind,
            "label": one_line(label, 60),
            "start_s": self.shown.time(max(0.0, begin)),
            "end_s": self.shown.time(end),
        }
        self.tools.setdefault(step, []).append(span)

    def spans(self, step: StepResult) -> list[JSON]:
        """Return when the model was asked and the tools ran."""
        calls = [
            {
                "kind": "call",
                "label": str(call.response.signal.finish_reason),
                "start_s": self.shown.time(call.started_s),
                "end_s": self.shown.time(call.started_s + call.duration_s),
            }
            for call in step.calls
        ]
        return [*calls, *self.tools.get(step.index, ())]

"""The steps of a run as plain JSON: in outline, with what they said and did, and in full; and what happened between them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from agentlab._internal.formatting import as_set, counted
from agentlab._internal.safe_text import cut, escape, one_line
from agentlab.agent import Run
from agentlab.limits.budget import Budget
from agentlab.limits.policies import CONTINUATION
from agentlab.limits.reading import Action, Reading, Scalar
from agentlab.limits.settings import RunSettings
from agentlab.model.messages import Message, ToolCall, ToolResult
from agentlab.model.parts import Part
from agentlab.model.responses import marked
from agentlab.notebook.markup import note
from agentlab.notebook.page.rich_text import code, fields_html, markdown, part_html, sanitised, seen, value_html
from agentlab.notebook.page.step_detail import changed_by, child_use, line, seconds, sections
from agentlab.records import events
from agentlab.records.events import detail_of
from agentlab.records.step import StepResult, step_keys

JSON = dict[str, Any]

LONGEST_LINE = 160
"""Characters of a tool call's arguments in its one line."""
MOST_CALLS = 100
"""Tool calls of a step that are shown."""


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


EVERYTHING = Shown()


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


# Steps --------------------------------------------------------------------------------------------------------------------------


class Steps:
    """The steps of one run. `catch_up` reads what is new of steps and events; the data of a step is made when it is asked for.

    `ids` are the runs of the page by the ids of runs; None for all runs under their own ids.
    """

    def __init__(self, run: Run, shown: Shown, ids: Mapping[str, str] | None = None) -> None:
        self._run, self._shown, self._ids = run, shown, ids
        self._read_events, self._step_now = 0, 1
        self._tools: dict[int, list[events.Event]] = {}
        self.marks: list[JSON] = []
        line_of_runs: list[tuple[Run, float]] = [(run, math.inf)]
        while (parent := line_of_runs[-1][0].origin.parent) is not None:
            line_of_runs.append((parent, min(line_of_runs[-1][1], line_of_runs[-1][0].origin.forked_at or 0)))
        for one, until in reversed(line_of_runs[1:]):  # what a branch shares with the runs that it was forked from
            self._read(one.events, until)
            self._read_events, self._step_now = 0, 1

    def catch_up(self) -> int:
        """Read the new steps and events; returns the number of steps."""
        self._read(self._run.events, math.inf)
        return len(self._run.history)

    def _read(self, happened: list[events.Event], until: float) -> None:
        new = happened[self._read_events :]
        self._read_events += len(new)
        for event in new:
            kind = type(event)
            if kind is events.StepStarted:
                self._step_now = event.step  # type: ignore[attr-defined]
                if self._step_now > until:
                    return
            elif kind in _OF_TOOLS:
                self._tools.setdefault(event.step, []).append(event)  # type: ignore[attr-defined]
            elif kind in _KINDS:
                words = "before the next step" if kind is events.RunPaused else detail_of(event).replace(" -> ", " → ")
                self.marks.append({"step": self._step_now, "kind": _KINDS[kind], "text": on_one_line(words, 500)})

    def keys(self, n: int) -> str:
        """Return what two steps are compared by."""
        return step_keys(self._run.history[n - 1], _given(self._run, n))

    def outline(self, n: int) -> JSON:
        """Return the numbers of a step (from 1)."""
        step, time = self._run.history[n - 1], self._shown.time
        row = {
            "n": n,
            "finish": str(step.finish_reason or "no_answer"),
            "stop_reason": None if step.stop_reason is None else str(step.stop_reason),
            "action": str(step.decision.action),
            "tokens": step.all_tokens,
            "cost_usd": number(step.all_cost_usd),
            "duration_s": time(step.duration_s),
            "started_s": time(step.started_s),
            "children": [],
            "in_force": None,
        }
        if n == 1 or self._run.history[n - 2].settings != step.settings:
            row["in_force"] = in_force(step.settings)
        if step.children:
            ids = self._ids
            row["children"] = [
                use.run_id if ids is None else ids[use.run_id] for use in step.children if ids is None or use.run_id in ids
            ]
        return row

    def content(self, n: int) -> JSON:
        """Return what a step added to the conversation, what the conditions read, and when the model and the tools were at work."""
        step = self._run.history[n - 1]
        html = step_html(self._run, step, self._shown)
        return {
            "n": n,
            "html": html,
            "reads": _reads(step.readings),
            "spans": list(self._spans(step)) if self._shown.timing else [],
        }

    def details(self, n: int) -> str:
        """Return a step in full, as HTML."""
        history, shown = self._run.history, self._shown
        step = history[n - 1]
        settled = n > 1 and history[n - 2].settings == step.settings
        names = ["calls", "signal", "decision", "readings", *([] if settled else ["limits"])]
        names += ["raw"] if shown.has_raw(n) else []
        return sanitised(sections(step, names, timing=shown.timing))

    def _spans(self, step: StepResult) -> Iterator[JSON]:
        for call in step.calls:
            yield self._span("call", str(call.response.signal.finish_reason), call.started_s, call.started_s + call.duration_s)
        started = {}
        for event in self._tools.get(step.index, ()):
            if isinstance(event, events.ToolFinished):
                yield self._span("tool", event.result.name, event.at_s - event.result.duration_s, event.at_s)
            elif isinstance(event, events.ChildStarted):
                started[event.child_id] = event.at_s
            elif isinstance(event, events.ChildEnded):
                yield self._span("child", event.child.handle, started.get(event.child.run_id, event.at_s), event.at_s)

    def _span(self, kind: str, label: str, begin: float, end: float) -> JSON:
        time = self._shown.time
        return {"kind": kind, "label": one_line(label, 60), "start_s": time(max(0.0, begin)), "end_s": time(end)}


def _given(run: Run, n: int) -> object:
    """Return what the model was given before a step besides its own answers and the results of tools."""
    messages = run.timeline.messages_of(n - 1)
    if n > 1:
        return [(one.role, one.text) for one in messages if one.role not in ("assistant", "tool")]
    calls = [(call.name, call.arguments) for one in messages for call in one.tool_calls]
    results = [result.content for one in messages for result in one.tool_results]
    return [run.agent.instructions, [(one.role, one.text) for one in messages], calls, results]


def in_force(settings: RunSettings) -> dict[str, str]:
    """Return the limits that are set, in words by their names; of the rest only what is not the default."""
    found = {}
    for part, default in ((settings.budget, Budget()), (settings.continuation, CONTINUATION), (settings.terminating, None)):
        for name in () if part is None else type(part).__dataclass_fields__:
            value = getattr(part, name)
            is_limit = part is settings.budget and name != "missing_usage"
            if value is not None and (is_limit or default is None or value != getattr(default, name)):
                found[name] = as_set(name, value)
    whole = {"stop": settings.stop, "policy": settings.policy}
    found |= {name: repr(value) for name, value in whole.items() if value is not None}
    found["approve"] = ", ".join("every tool" if one == "*" else str(one) for one in settings.approve)
    return {name: on_one_line(text, 200) for name, text in found.items() if text}


def _reads(readings: Reading | None) -> str:
    if readings is None:
        return ""
    met = {True: "met", False: "not met", None: "unknown"}[readings.met]
    return one_line(" · ".join([*map(str, readings.leaves()), met]), 300)


def step_html(run: Run, step: StepResult, shown: Shown) -> str:
    """Return what a step added to the conversation."""
    where = f"run.history[{step.index - 1}]"
    earlier = "An earlier attempt at this step was cut off with its process. Its sub-agent"
    parts = [note(f"{earlier} {child_use(use)}") for use in step.children if use.cut_off]
    answer = _answer_html(run, step)
    for place, call in enumerate(step.calls):
        if call.response.reasoning:
            length = counted(len(call.response.reasoning), "character")
            body = markdown(call.response.reasoning, f"{where}.calls[{place}].response.reasoning")
            summary = f'<summary>Reasoning <span class="agentlab-note">{length}</span></summary>'
            parts.append(f'<details class="agentlab-reasoning">{summary}{body}</details>')
    if step.text:
        remarks = [*map(str, step.seams), *(f"A piece is missing {hole}" for hole in step.holes)]
        below = "".join(f'<div class="agentlab-note">{line(remark)}</div>' for remark in remarks[:MOST_CALLS])
        text = answer if answer and not step.tool_calls else _text_html(run, step, f"{where}.text")
        parts.append(f'<div class="agentlab-assistant">{text}{below}</div>')
    if step.response is not None and step.response.refusal:
        refusal = markdown(step.response.refusal, f"{where}.response.refusal")
        parts.append(f'<div class="agentlab-assistant"><div class="agentlab-note">The model refused:</div>{refusal}</div>')
    if not step.calls:
        parts.append('<div class="agentlab-note">No answer was received.</div>')
    if step.error is not None:
        parts.append(f'<div class="agentlab-note agentlab-fault">{line(f"{type(step.error).__name__}: {step.error}")}</div>')
    parts += _tool_calls(run, step, where, shown)
    if answer and step.tool_calls:
        parts.append(f'<div class="agentlab-assistant">{answer}</div>')
    said = run.timeline.messages_of(step.index)
    answered = max((place for place, message in enumerate(said) if message.role in ("assistant", "tool")), default=-1)
    parts += [message_html(message, where) for message in said[answered + 1 :]]
    return sanitised("".join(parts))


def _text_html(run: Run, step: StepResult, where: str) -> str:
    is_json = run.agent.output_type is not None and step.text.lstrip()[:1] in ("{", "[")
    return code(step.text, where=where) if is_json else markdown(marked(step.text, step.holes), where)


def _answer_html(run: Run, step: StepResult) -> str:
    """Return the typed answer of a step as a table of its fields; empty if it has none."""
    output = run.agent.output_type
    if output is None:
        return ""
    where = "run.output"
    for result in step.tool_results:
        if result.name == output.spec.name and not result.is_error:
            return fields_html(json.loads(result.content), where)
    if step.decision.action is not Action.COMPLETE or (checked := output.read(step.text)).problems:
        return ""
    return fields_html(output.plain(checked.value), where)


def message_html(message: Message, where: str) -> str:
    """Return a message that the model did not write in this run: a prompt, the chat before it, a reminder."""
    if message.role == "system":
        return f'<div class="agentlab-nudge">{markdown(message.text)}</div>'
    parts = [part_html(one) if isinstance(one, Part) else markdown(one) for one in message.pieces if one]
    parts += [call_html(call, None, "", where, True) for call in message.tool_calls[:MOST_CALLS]]
    parts += [f'<div class="agentlab-result">{_content(result, "")}</div>' for result in message.tool_results[:MOST_CALLS]]
    role = "user" if message.role == "user" else "assistant"
    return f'<div class="agentlab-{role}">{"".join(parts)}</div>' if parts else ""


def _tool_calls(run: Run, step: StepResult, where: str, shown: Shown) -> Iterator[str]:
    left = list(step.tool_results)
    edited = _edited(run, step)
    asked = _asked(run, step) if step.settings.approve and len(left) < len(step.tool_calls) else {}
    for call in step.tool_calls[:MOST_CALLS]:
        result = next((one for one in left if one.call_id == call.id), None)
        if result is not None:
            left.remove(result)
        uses = [use for use in step.children if use.call_id == call.id and not use.cut_off]
        below, undone = (
            "".join(note(f"Sub-agent {child_use(use)}") for use in uses),
            "cut off" if uses else asked.get(call.id, ""),
        )
        yield call_html(call, result, below, where, shown.timing, edited=call.id in edited, undone=undone)
    if len(step.tool_calls) > MOST_CALLS:
        yield f'<div class="agentlab-note">… {len(step.tool_calls) - MOST_CALLS:,} more: {where}.tool_calls</div>'


def _asked(run: Run, step: StepResult) -> dict[str, str]:
    """Return the outcome of calls that a person was asked about and that were not executed, by their ids."""
    while (parent := run.origin.parent) is not None and step.index <= (run.origin.forked_at or 0):
        run = parent
    found: dict[str, str] = {}
    for event in run.events:
        match event:
            case events.ApprovalRequested(step=step.index, tool_call=call):
                found[call.id] = "waited for approval · not executed"
            case events.ApprovalGiven(step=step.index, call_id=call_id, decision=decision):
                found[call_id] = f"{decision} by a person · not executed"
    return found


def _edited(run: Run, step: StepResult) -> frozenset[str]:
    """Return the calls whose results this branch replaced."""
    parent = run.origin.parent
    if parent is None or run.origin.forked_at != step.index or step.index > len(parent.history):
        return frozenset()
    before = {result.call_id: result.content for result in parent.history[step.index - 1].tool_results}
    return frozenset(one.call_id for one in step.tool_results if before.get(one.call_id) != one.content)


def call_html(
    call: ToolCall, result: ToolResult | None, below: str, where: str, timing: bool, *, edited: bool = False, undone: str = ""
) -> str:
    """Return a tool call in one line that unfolds to its arguments and its result. `undone` says why it has none."""
    failed = result is None or result.is_error
    if result is None:
        outcome = undone or ("not executed" if call.closed else "cut off, not executed")
    elif result.approval in ("answered", "refused"):
        outcome = f"{result.approval} by a person"
    else:
        outcome = f"{result.approval} · " if result.approval else ""
        outcome += f"failed: {result.error}" if result.is_error else "done"
        outcome += f" · {seconds(result.duration_s)}" if timing else ""
    outcome += " · edited in this branch" if edited else ""
    arguments = seen(one_line(cut(call.arguments, 4_000), LONGEST_LINE)) if call.arguments else ""
    return (
        f'<details class="agentlab-call{" failed" if failed else ""}"><summary>'
        f'<span class="agentlab-call-name">{escape(seen(one_line(call.name)))}</span> '
        f'<span class="agentlab-call-args">{escape(arguments)}</span> '
        f'<span class="agentlab-call-outcome">{escape(outcome)}</span>{_first_html(result)}</summary>'
        f'<div class="agentlab-args">{code(call.arguments, where=f"{where}.tool_calls") if call.arguments else ""}</div>'
        f"{_result(result, where)}{below}</details>"
    )


def first_line(result: ToolResult) -> str:
    """Return the first line of what the model read of a result; of JSON the beginning, on one line. Empty for an error, which is named
    as the outcome."""
    if result.is_error:
        return ""
    piece = next((one for one in result.pieces if isinstance(one, Part) or one.strip()), "")
    text = piece.text[1:-1] if isinstance(piece, Part) else cut(piece.strip(), 4_000)
    line = text if text.startswith(("{", "[")) else text.split("\n", 1)[0]
    return seen(cut(on_one_line(line, 4_000), LONGEST_LINE))


def _first_html(result: ToolResult | None) -> str:
    line = "" if result is None else first_line(result)
    return f' <span class="agentlab-call-first">{escape(line)}</span>' if line else ""


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
    drawn = "" if result.parts else value_html(result.value)
    text = _content(result, f"{where}.tool_results")
    if drawn:
        text = f'{drawn}<details class="agentlab-read"><summary>What the model read</summary>{text}</details>'
    if result.stop is not None:
        notes.append(f'<div class="agentlab-note">Stop: {line(result.stop.reason)}</div>')
    return f'{"".join(notes)}<div class="agentlab-result">{text}</div>'


def _content(result: ToolResult, where: str) -> str:
    """Return what the model read of a result: texts, images, and a line for each other part."""
    return "".join(part_html(one) if isinstance(one, Part) else code(one, where=where) for one in result.pieces)


# Events -------------------------------------------------------------------------------------------------------------------------

_KINDS: Mapping[type, str] = {
    events.LimitsChanged: "limits",
    events.RunPaused: "paused",
    events.Nudged: "nudge",
    events.OutputRejected: "retry",
    events.LastAnswerAsked: "limits",
    events.CallRetried: "retry",
    events.AskedAgain: "retry",
    events.ContinuationAttempted: "continuation",
    events.ToolPayloadRepair: "continuation",
    events.Warned: "warning",
}
"""What is worth a mark, by the type of the event."""
_OF_TOOLS = frozenset((events.ToolFinished, events.ChildStarted, events.ChildEnded))

"""A run as plain JSON for the page. Fields named `html` or `…_html` are safe HTML; all others are plain text, numbers or None.

Unknown values are None, never zero. Without `timing` there are no times, and runs are
numbered, so that recorded fixtures give the same data each time.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from agentlab._internal.formatting import as_set
from agentlab._internal.redaction import redact
from agentlab._internal.safe_text import cut, one_line
from agentlab.agent import Run
from agentlab.engine.control import PendingCall
from agentlab.engine.next_actions import NextAction
from agentlab.engine.plan import Origin
from agentlab.engine.run_tree import differences, family_of
from agentlab.engine.worker import RunState
from agentlab.limits.budget import DefaultTurns
from agentlab.limits.fields import limit_fields
from agentlab.limits.reading import Reading
from agentlab.notebook.markup import LimitNow, limits_now, provenance_rows, share_of, used_so_far
from agentlab.notebook.page.rich_text import code, fields_html, markdown, sanitised, seen, value_html
from agentlab.notebook.page.steps import EVERYTHING, Shown, Steps, in_force, message_html, number, on_one_line
from agentlab.records.result import RunResult
from agentlab.records.step import ChildUse
from agentlab.tools.outputs import OutputType

JSON = dict[str, Any]


def page_data(runs: Sequence[Run], title: str, shown: Shown = EVERYTHING) -> JSON:
    """Return all runs of the families of these runs, each after the run that it came from. Steps that a branch shares with its parent
    are the same objects in both."""
    family = {node.run.id: node.run for run in runs for node in family_of(run)}
    ids = {run_id: run_id if shown.timing else f"run-{place}" for place, run_id in enumerate(family, start=1)}
    made: dict[str, JSON] = {}
    names: Counter[str] = Counter()
    for run in family.values():
        parent = run.origin.parent
        data = run_data(run, shown, ids, made[parent.id]["steps"] if parent is not None and parent.id in made else ())
        rows = [[name, on_one_line(text, 400)] for name, text in provenance_rows(run.provenance)] if shown.timing else []
        made[run.id] = data | {"name": unique_name(data["name"], names), "made": rows}
    return {"title": on_one_line(title, 200), "open": ids[runs[0].id], "runs": [*made.values()]}


def as_json(data: JSON) -> str:
    """Return data as JSON for a script element, without keys: they are looked for once more in all of it.

    Of a branch the steps that it shares with its parent are left out: `kept` is their number.
    """
    by_id = {run["id"]: run for run in data["runs"]}
    runs = [_without_shared(run, by_id.get(run["parent"])) for run in data["runs"]]
    return script_json({**data, "runs": runs})


def script_json(data: JSON) -> str:
    """Return JSON that cannot end the script element around it, without keys."""
    return redact(json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))).translate(_ESCAPED)


_ESCAPED = {ord(each): f"\\u{ord(each):04x}" for each in "<>&\u2028\u2029"}


def _without_shared(run: JSON, parent: JSON | None) -> JSON:
    pairs = zip(run["steps"], () if parent is None else parent["steps"], strict=False)
    kept = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] is pair[1], pairs))
    return {**run, "kept": kept, "steps": run["steps"][kept:]} if kept else run


# A run --------------------------------------------------------------------------------------------------------------------------


def run_data(run: Run, shown: Shown, ids: Mapping[str, str], of_parent: Sequence[JSON] = ()) -> JSON:
    """Return one run with all its steps; `ids` has the ids of the runs in the page, `of_parent` the steps of the run it is forked
    from: those that it shares with this one are the same objects."""
    steps, parent = Steps(run, shown, ids), run.origin.parent
    rows = []
    for n in range(1, steps.catch_up() + 1):
        shared = parent is not None and n <= len(of_parent) and parent.history[n - 1] is run.history[n - 1]
        more = {} if shared else {"same": steps.keys(n), "details": steps.details(n)}
        rows.append(of_parent[n - 1] if shared else steps.outline(n) | steps.content(n) | more)
    return {**head_data(run, shown, ids), "steps": rows, "marks": steps.marks}


def head_data(run: Run, shown: Shown, ids: Mapping[str, str]) -> JSON:
    """Return one run without its steps and its marks."""
    return {**fixed_data(run, ids), **state_data(run, shown)}


def fixed_data(run: Run, ids: Mapping[str, str]) -> JSON:
    """Return what stays as it is while a run is under way."""
    origin = run.origin
    before = origin.parent or origin.caller
    return {
        "id": ids[run.id],
        "agent": one_line(run.agent.name),
        "model": one_line(f"{run.agent.model.name}:{run.agent.model.model}"),
        "parent": None if before is None else ids.get(before.id),
        "forked_at": origin.forked_at,
        "called_by": None if origin.called_by is None else one_line(origin.called_by),
        "continues": _continues(run),
        "system_html": _instructions(run),
        "prompt_html": sanitised("".join(message_html(message, "") for message in run.timeline.messages_of(0))),
    }


def state_data(run: Run, shown: Shown) -> JSON:
    """Return what changes while a run is under way. The cost does not grow with the number of steps."""
    history = used_so_far(run)
    return {
        "name": _name(run),
        "state": "idle" if run.state is RunState.READY else str(run.state),
        "totals": {
            "steps": len(history),
            "tokens": history.tokens,
            "cost_usd": number(history.cost_usd),
            "elapsed_s": shown.time(run.timeline.clock.elapsed_s()),
        },
        "limits": limit_rows(run, shown),
        "in_force": in_force(run.limits.snapshot()),
        "pending": [_pending(one) for one in run.pending],
        "end": end_data(run.result, run.agent.output_type),
        "actions": [_action(place, one) for place, one in enumerate(run.next_actions)],
    }


def marks_of(run: Run, shown: Shown) -> list[JSON]:
    """Return what happened in a run besides its steps: changed limits, retries, pauses, reminders."""
    steps = Steps(run, shown)
    steps.catch_up()
    return steps.marks


def unique_name(name: str, names: Counter[str]) -> str:
    """Return the name of a run, with a number if another one has it; `names` counts them."""
    names[name] += 1
    return name if names[name] == 1 else f"{name} ({names[name]})"


def _name(run: Run) -> str:
    """Return how a branch differs from the run it was forked from, the handle of a child run, else the agent's name."""
    origin = run.origin
    handle = next((use.handle for use in _uses_of(origin) if use.run_id == run.id), "")
    if origin.parent is None:
        return one_line(handle or run.agent.name)
    edited = "tool result of "
    changed = [
        f"edited result of {one.removeprefix(edited)} at step {origin.forked_at}" if one.startswith(edited) else one
        for one in differences(run)
    ]
    words = ", ".join(changed) or f"the same from step {(origin.forked_at or 0) + 1}"
    return one_line(f"{handle}: {words}" if handle else words, 120)


def _continues(run: Run) -> bool:
    """True if the run is the conversation of its parent with one more message; it may have other limits."""
    parent, changed = run.origin.parent, differences(run)
    ended = parent is not None and parent.result is not None and run.origin.forked_at == len(parent.history)
    return ended and bool(changed) and changed[0].startswith("message ")


def _uses_of(origin: Origin[Run]) -> Sequence[ChildUse]:
    """Return the child runs of the step that called this one; none while it is under way."""
    step = origin.parent_step or 0
    return (
        origin.caller.history[step - 1].children if origin.caller is not None and 0 < step <= len(origin.caller.history) else ()
    )


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
        "needs_prompt": action.needs_prompt,
    }


def _pending(call: PendingCall) -> JSON:
    """Return a call that waits for a person's word."""
    return {
        "tool": on_one_line(call.tool),
        "arguments": seen(cut(call.arguments, 2_000)),
        "step": call.step,
        "why": on_one_line(call.why, 300),
    }


def end_data(result: RunResult | None, output_type: OutputType | None = None) -> JSON | None:
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
    if result.output is not None and output_type is not None:
        output = fields_html(output_type.plain(result.output), "run.output")
    elif result.output is not None:
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


# Limits -------------------------------------------------------------------------------------------------------------------------

_UNITS = {"steps": "steps", "calls": "calls", "tokens": "tokens", "cost": "usd", "time": "s"}
_LABELS = {"steps": "Steps", "calls": "Model calls", "tokens": "Tokens", "cost": "Cost", "time": "Time"}
"""Unit and label of each running total."""


def limit_rows(run: Run, shown: Shown) -> list[JSON]:
    """Return the limits of a run as they are now, one row for each thing that is limited.

    Of several limits on one total the row has the one that comes first, and the names of all; `order` says in words which one
    applies.
    """
    rows: dict[str, list[LimitNow]] = {}
    for place, one in enumerate(limits_now(run, timing=shown.timing)):
        alike = one.total is not None and one.ends_alone and not one.off
        rows.setdefault(one.total if alike and one.total else f"{place}", []).append(one)
    asked = in_force(run.limits.snapshot()).get("approve")
    return [*(_limit_row(several, run) for several in rows.values()), *_approve_row(asked)]


def _approve_row(asked: str | None) -> list[JSON]:
    """Return the row that says before which tools a person is asked; none if nobody is."""
    words = {"name": "approve", "key": "approve", "label": "Asks a person before", "value": asked, "with": ["approve"]}
    rest = {"limit": None, "share": None, "met": None, "goal": False, "off": False, "unit": "", "order": ""}
    return [] if asked is None else [words | rest]


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

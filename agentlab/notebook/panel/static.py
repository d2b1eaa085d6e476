"""The panel for readers without a kernel: what the page shows, without its script. It is saved in the notebook's file.

It reads well without a style sheet too, since code hosts remove it, and has neither times nor ids: the same run gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agentlab._internal.formatting import counted
from agentlab._internal.safe_text import cut, printable
from agentlab.agent import Run
from agentlab.engine.next_actions import nothing_to_do
from agentlab.engine.run_tree import family_of
from agentlab.model.responses import marked
from agentlab.notebook.live_view import Picture, StaticOutputs, panel_html
from agentlab.notebook.markup import NEAR, Markup, dollars, duration, escape, name, note, table, tokens
from agentlab.notebook.page.data import head_data, marks_of
from agentlab.notebook.page.rich_text import at_most
from agentlab.notebook.page.steps import Shown, step_html
from agentlab.plots.figure import DPI
from agentlab.plots.usage_curves import curves_of
from agentlab.records.frames import array, to_frame
from agentlab.records.step import StepResult

JSON = Mapping[str, Any]

MOST_STEPS, MOST_RUNS = 100, 30
"""The newest steps of a run, and the first rows of the table of runs."""
LONGEST_TEXT, LONGEST_ANSWER, LARGEST = 4_000, 1_000, 300_000
"""Characters of a text of a step, of the answer in plain text, and of the HTML of all steps."""
SCALE = 1.25
"""Pixels of the picture per pixel of the page."""
_SHOWN = Shown(timing=False)
_WORDS = {
    '<div class="agentlab-args"></div>': "",
    '<div class="agentlab-args">': '<div class="agentlab-args"><small>arguments</small>',
    '<div class="agentlab-result">': '<div class="agentlab-result"><small>result</small>',
    '<div class="agentlab-user">': '<div class="agentlab-user"><small>User</small>',
    '<span class="agentlab-call-outcome">': '<span class="agentlab-call-outcome">→ ',
}
"""Words that the style sheet of the page adds."""


class StaticPanel(StaticOutputs):
    """Runs as text, HTML and a picture: `shown` with its transcript if it is the only one of `runs`, else all of them compared."""

    def __init__(self, shown: Run, runs: Sequence[Run]) -> None:
        self._runs = (shown,) if len(runs) == 1 else tuple(runs)
        self._family = list({node.run.id: node.run for run in runs for node in family_of(run)}.values())
        self._numbers = {run.id: place for place, run in enumerate(self._family, start=1)}

    def text(self) -> str:
        """The runs in a few lines."""
        lines = [f"{run.agent.name}: {run if run.result is None else run.result}" for run in self._runs]
        if len(self._runs) == 1:
            lines.append(_answer_as_text(self._runs[0]))
        return printable("\n".join(lines))

    def html(self, pictures: str = "") -> str:
        """State and totals, why the run ended, limits and transcript; of several runs a table, their ends and last answers."""
        with at_most(LONGEST_TEXT):
            parts = self._one(self._runs[0], pictures) if len(self._runs) == 1 else self._several(pictures)
            return panel_html(*parts)

    def pictures(self) -> list[Picture]:
        """Tokens and cost over the steps, if there are any."""
        if not any(len(run.history) for run in self._runs):
            return []
        steps = to_frame(self._runs)
        names = {run.id: run.agent.name for run in self._runs}
        agents = array([names.get(run_id) for run_id in steps["run_id"]], "string")
        figure = curves_of(steps.assign(agent=agents), self._numbers if len(self._runs) > 1 else None)
        width, height = (round(inches * DPI) for inches in figure.get_size_inches())
        return [Picture(figure.png(SCALE), figure.alt, width, height)]

    def _head(self, run: Run) -> JSON:
        return head_data(run, _SHOWN, {run_id: f"run-{place}" for run_id, place in self._numbers.items()})

    def _one(self, run: Run, pictures: str) -> Iterator[str]:
        data = self._head(run)
        yield _head(data)
        if len(self._family) > 1:
            yield self._table()
        yield _end(run, data)
        yield _limits(data["limits"])
        yield pictures
        yield f"<details><summary>Instructions</summary>{data['system_html']}</details>" if data["system_html"] else ""
        yield _in_words(data["prompt_html"])
        yield from _steps(run)

    def _several(self, pictures: str) -> Iterator[str]:
        yield self._table()
        yield pictures
        for run in self._runs:
            data = self._head(run)
            yield f"<h4>Run {self._numbers[run.id]}: {name(data['name'])}, {escape(_state(data))}</h4>{_end(run, data)}"
            answered = next((step for step in reversed(run.history) if step.text), run.history.last)
            if answered is not None:
                yield _step(run, answered, ())

    def _table(self) -> str:
        """One row for each run, in the order of the tree; those that were given are bold."""
        runs, numbers, rows = self._family, self._numbers, []
        for run in runs[:MOST_RUNS]:
            data = self._head(run)
            before = run.origin.parent or run.origin.caller
            from_ = "" if before is None or before.id not in numbers else f"{numbers[before.id]}"
            if from_ and data["forked_at"] is not None:
                from_ += f", after step {data['forked_at']}"
            called = Markup(f"<b>{name(data['name'])}</b>") if run in self._runs else data["name"]
            totals = data["totals"]
            spent = (totals["steps"], tokens(totals["tokens"]), dollars(run.history.cost_usd))
            ended = "" if data["end"] is None else _reason(data["end"])
            rows.append((numbers[run.id], called, from_, data["model"], _state(data), *spent, ended))
        heads = ["Run", "Name", "From run", "Model", "State", "Steps", "Tokens", "Cost", "Why it ended"]
        left = note(f"… {counted(len(runs) - MOST_RUNS, 'more run')}") if len(runs) > MOST_RUNS else ""
        return table(heads, rows, numbers=(5, 6, 7)) + left


# One run ------------------------------------------------------------------------------------------------------------------------


def _head(data: JSON) -> str:
    """State, agent, model, and what was used so far."""
    totals = data["totals"]
    kind = data["end"]["kind"] if data["end"] else data["state"]
    model = "" if data["model"] == data["agent"] else f" {name(data['model'])}"
    used = [counted(totals["steps"], "step"), f"{tokens(totals['tokens'])} tokens", f"{dollars(totals['cost_usd'])} cost"]
    return (
        f'<div class="agentlab-head"><b class="agentlab-state {kind}">{escape(_state(data))}</b> '
        f"<b>{name(data['agent'])}</b>{model}<br>{' · '.join(used)}</div>"
    )


def _state(data: JSON) -> str:
    if data["end"] is not None:
        return "ended" if data["end"]["kind"] == "terminated" else "ended early"
    idle = "ready for the next step" if data["totals"]["steps"] else "not started yet"
    return {"idle": idle, "running": "still running", "waiting": "waiting for approval"}.get(data["state"], str(data["state"]))


def _reason(end: JSON) -> str:
    return str(end["stop_reason"]).replace("_", " ")


def _end(run: Run, data: JSON) -> str:
    """Why it ended, its output unless a step shows it, and how to continue."""
    waiting = "".join(note(f"Waiting for approval: {one['tool']}({one['arguments']})") for one in data["pending"])
    end = data["end"]
    if end is None:
        return waiting
    fired = [one for one in end["fired"] if one not in end["detail"]]
    why = [f"<b>Why it ended: {escape(_reason(end))}</b>"]
    why += [escape(end["detail"], 1_500)] if end["detail"] else []
    why += [f"Fired: {escape(', '.join(fired))}"] if fired else []
    why += [f"<small>{escape(end['signal'])}</small>"] if end["signal"] else []
    last = run.history.last
    hidden = last is None or str(run.result.output if run.result else "") != last.text
    output = f"<details open><summary>Output</summary>{end['output_html']}</details>" if hidden and end["output_html"] else ""
    return f'<blockquote class="agentlab-end {end["kind"]}">{"<br>".join(why)}</blockquote>{_to_continue(run, data)}{output}{waiting}'


def _to_continue(run: Run, data: JSON) -> str:
    if run.result is None or run.result.terminated:
        return ""
    if not data["actions"]:
        return note(nothing_to_do(run))
    first = data["actions"][0]
    return (
        f"<details><summary>To continue: {escape(first['label'])}</summary>{note(first['why'])}"
        f"<pre><code>{escape(first['code'], 500)}</code></pre></details>"
    )


def _limits(rows: Sequence[JSON]) -> str:
    """The limits; where two limit the same, which comes first."""
    cells = []
    for row in rows:
        names = row["order"] or ", ".join(row["with"])
        share = None if row["off"] or row["goal"] else row["share"]
        state = [] if share is None else [f"{share:.0%}"]
        if row["off"]:
            state = ["off"]
        elif row["met"]:
            state.append("met" if share is None else "reached")
        elif share is not None and share >= NEAR:
            state.append("near")
        cells.append((row["label"], _used(row), ", ".join(state), names))
    return table(("Limit", "Used", "State", "Set by"), cells) if cells else ""


def _used(row: JSON) -> str:
    value, unit = row["value"], row["unit"]
    if row["goal"] and not isinstance(value, str):
        return f"called {counted(value, 'time')}" if value else "not called yet"
    return (
        _amount(value, unit)
        if row["limit"] is None or row["goal"]
        else f"{_amount(value, unit)} of {_amount(row['limit'], unit)}"
    )


def _amount(value: Any, unit: str) -> str:
    if value is None or isinstance(value, str):
        return value or "unknown"
    if unit in ("usd", "s"):
        return dollars(value) if unit == "usd" else duration(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"


# Steps --------------------------------------------------------------------------------------------------------------------------


def _steps(run: Run) -> Iterator[str]:
    """The newest steps, folded to a line each except for the last one."""
    history, marks = run.history, marks_of(run, _SHOWN)
    made: list[str] = []
    for step in reversed(history[-MOST_STEPS:]):
        made.append(_step(run, step, [one for one in marks if one["step"] == step.index], is_open=not made))
        if sum(map(len, made)) > LARGEST:
            break
    left = len(history) - len(made)
    yield note(f"… {counted(left, 'earlier step')}: run.history has all of them.") if left else ""
    yield from reversed(made)
    yield "" if made else note("No steps yet.")


def _step(run: Run, step: StepResult, marks: Sequence[JSON], *, is_open: bool = True) -> str:
    facts = [(step.finish_reason or "no answer").replace("_", " ")]
    facts.append("tokens unknown" if step.all_tokens is None else counted(step.all_tokens, "token"))
    facts.append("cost unknown" if step.all_cost_usd is None else dollars(step.all_cost_usd))
    said = ", ".join(call.name for call in step.tool_calls[:6])
    if not said and not is_open:
        said = " ".join(cut(step.text, 80).split())
    below = [f"{one['kind']}: {one['text']}" for one in marks]
    below += [f"Conditions: {', '.join(map(str, step.readings.leaves()))}"] if step.readings is not None else []
    return (
        f"<details{' open' if is_open else ''}><summary><b>Step {step.index}</b> · {escape(' · '.join(facts))}"
        f"{f' · {name(said)}' if said.strip() else ''}</summary>"
        f"<div>{_in_words(step_html(run, step, _SHOWN))}{''.join(note(one) for one in below)}</div></details>"
    )


def _in_words(html: str) -> str:
    for found, better in _WORDS.items():
        html = html.replace(found, better)
    return html


def _answer_as_text(run: Run) -> str:
    """The newest text of the model, or what it asked for."""
    step = next((one for one in reversed(run.history) if one.text), run.history.last)
    if step is None:
        return "No steps yet."
    said = marked(step.text, step.holes) or ", ".join(f"{call.name}({call.arguments})" for call in step.tool_calls[:6])
    said = said or (step.response.refusal if step.response is not None else "") or "no text"
    part = f" (the first {LONGEST_ANSWER:,} of {len(said):,} characters)" if len(said) > LONGEST_ANSWER else ""
    return f"Step {step.index}{part}: {cut(said, LONGEST_ANSWER)}"

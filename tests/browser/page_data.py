"""Runs as the plain data of a page, and the page built from them: one file, as a browser opens it."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any

from agentlab.notebook.page import script, style

Data = dict[str, Any]


def page_of(runs: list[Data], title: str = "A page") -> str:
    """The page as one text, with its content security policy."""
    code = script()
    hashed = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{hashed}'"
    data = json.dumps({"title": title, "open": runs[0]["id"], "runs": runs})
    for character in "<>&":
        data = data.replace(character, f"\\u{ord(character):04x}")
    return (
        f'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{policy}">'
        f"<title>A page</title><style>{style()}</style></head><body><div class='agentlab-page'></div>"
        f'<script type="application/json" id="agentlab-data">{data}</script><script>{code}</script></body></html>'
    )


def call(name: str, arguments: str, result: str, outcome: str = "done · 3 ms", failed: bool = False) -> str:
    """A tool call: one line that unfolds."""
    return (
        f'<details class="agentlab-call{" failed" * failed}"><summary><span class="agentlab-call-name">{name}</span> '
        f'<span class="agentlab-call-args">{arguments}</span> <span class="agentlab-call-outcome">{outcome}</span></summary>'
        f'<div class="agentlab-args"><pre class="agentlab-code">{arguments}</pre></div>'
        f'<div class="agentlab-result"><pre class="agentlab-code">{result}</pre></div></details>'
    )


def says(text: str) -> str:
    """An answer of the model."""
    return f'<div class="agentlab-assistant"><div class="agentlab-md"><p>{text}</p></div></div>'


def a_step(n: int, html: str, finish: str = "tool_calls", **fields: Any) -> Data:
    """A step of 100 tokens, 0.01 USD and half a second."""
    details = '<details class="agentlab-section"><summary>Model calls</summary><div>one call</div></details>'
    return {
        "n": n, "html": html, "finish": finish, "stop_reason": None, "action": "execute_tools", "tokens": 100, "cost_usd": 0.01,
        "duration_s": 0.5, "started_s": 0.5 * n,
        "reads": f"StepCountIs {n} of 8 · not met", "details": details, "children": [],
        "same": f"given {hashlib.sha256(f'{html} {finish}'.encode()).hexdigest()[:8]} tools arguments results",
        "in_force": {"max_turns": "20"} if n == 1 else None,
        "spans": [
            {"kind": "call", "label": finish, "start_s": 0.5 * n, "end_s": 0.5 * n + 0.3},
            {"kind": "tool", "label": "search", "start_s": 0.5 * n + 0.3, "end_s": 0.5 * n + 0.5},
        ],
        **fields,
    }  # fmt: skip


def a_limit(name: str, label: str, unit: str, value: Any, limit: Any, **fields: Any) -> Data:
    """A row of the limits."""
    share = value / limit if isinstance(value, int | float) and isinstance(limit, int | float) else None
    return {
        "name": name, "key": name, "label": label, "unit": unit, "value": value, "limit": limit, "share": share,
        "met": bool(share and share >= 1), "goal": False, "off": False, "with": [name], "order": "", **fields,
    }  # fmt: skip


def a_run(run_id: str, steps: list[Data], name: str = "", **fields: Any) -> Data:
    """A run that completed, unless `fields` say otherwise."""
    taken = len(steps)
    tokens, cost = 100 * taken, round(0.01 * taken, 6)
    return {
        "id": run_id, "name": name or run_id, "agent": "guide", "model": "anthropic:claude-sonnet-4-6", "parent": None,
        "forked_at": None, "called_by": None, "continues": False, "in_force": {"max_turns": "20"}, "state": "ended",
        "system_html": '<div class="agentlab-system"><div class="agentlab-md"><p>Look things up.</p></div></div>',
        "prompt_html": '<div class="agentlab-user"><div class="agentlab-md"><p>Where is the green umbrella?</p></div></div>',
        "totals": {
            "steps": taken, "tokens": tokens, "cost_usd": cost, "elapsed_s": 0.5 * taken,
        },
        "limits": [
            a_limit("StepCountIs", "Steps", "steps", taken, 2 * taken + 1,
                    order="StepCountIs 9 applies before max_turns 20", **{"with": ["StepCountIs", "max_turns"]}),
            a_limit("max_tokens", "Tokens", "tokens", tokens, 200 * taken + 1),
            a_limit("max_cost", "Cost", "usd", cost, round(0.011 * taken + 0.01, 6)),
        ],
        "end": {
            "kind": "terminated", "stop_reason": "completed", "detail": "The model ended its turn.", "fired": [],
            "signal": "The provider said stop_reason = end_turn (confidence high).", "output_html": "",
        },
        "pending": [], "actions": [], "steps": steps, "marks": [], **fields,
    }  # fmt: skip


def long_run(steps: int) -> list[Data]:
    """A run of steps of several heights."""
    made = [
        a_step(
            n,
            says(f"Shelf {n}: nothing. " + "I look at the next one, and then at those beside it. " * (n % 7))
            + call("search", f'{{"shelf": {n}}}', "nothing<br>" * (n % 5)) * (1 + n % 3),
            "max_tokens" if n % 400 == 0 else "tool_calls",
        )
        for n in range(1, steps)
    ]
    return [a_run("long", [*made, a_step(steps, says("It is in Linz."), "end_turn")], "long")]


def family() -> list[Data]:
    """A run of four steps, a branch that differs from step 3 on, and a sub-agent's run."""
    first = [
        a_step(1, says("I look on the shelves.") + call("search", '{"where": "shelves"}', "two black ones")),
        a_step(2, says("Then in the cellar.") + call("search", '{"where": "cellar"}', "no light", "failed: error", failed=True)),
    ]
    steps = [*first, a_step(3, says("I ask the scout."), children=["scout"]), a_step(4, says("It is in Linz."), "end_turn")]
    branch = [*first, a_step(3, says("I stop here."), "max_tokens", stop_reason="turn_limit")]
    end = {
        "kind": "truncated", "stop_reason": "turn_limit", "detail": "Budget reached: max_turns 3 of 3.", "fired": ["max_turns"],
        "signal": "", "output_html": "",
    }  # fmt: skip
    actions = [
        {"label": "Raise the turn limit to 6 and go on", "why": "The limit ended the run.", "code": "branch = run.apply()"}
    ]
    marks = [{"step": 2, "kind": "warning", "text": "the cellar is dark"}]
    return [
        a_run("main", steps, "guide", marks=marks),
        a_run("branch", branch, "max_turns 3", parent="main", forked_at=2, end=end, actions=actions),
        a_run("scout", [a_step(1, says("In Linz."), "end_turn")], "scout-1", agent="scout", parent="main", called_by="call_1"),
    ]


def hostile_run(text: str) -> list[Data]:
    """The same with this text in every field that is text."""
    steps = [a_step(1, says("Fine."), text, action=text, reads=text, stop_reason=text, spans=[
        {"kind": text, "label": text, "start_s": 0.0, "end_s": 0.1}])]  # fmt: skip
    first = a_run("one", steps, text, agent=text, model=text, marks=[{"step": 1, "kind": text, "text": text}])
    first["limits"] = [a_limit(text, text, text, text, text, **{"with": [text, text + "2"]})]
    first["end"] = {"kind": text, "stop_reason": text, "detail": text, "fired": [text], "signal": text, "output_html": ""}
    first["actions"] = [{"label": text, "why": text, "code": text}]
    other = a_run("two", [a_step(1, says("Fine."))], text, parent="one", forked_at=1, called_by=text, state=text, end=None)
    return [first, other]

"""Branches from the page: what the form for one offers, how it is made, and how code gets hold of a run."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agentlab._internal.redaction import redact
from agentlab._internal.safe_text import printable
from agentlab.agent import Run
from agentlab.engine.plan import RunPrefix
from agentlab.errors import ConfigurationError
from agentlab.model.messages import ToolResult
from agentlab.notebook.live_view import LiveView
from agentlab.notebook.page.steps import on_one_line
from agentlab.notebook.panel.page_widget import PanelOfRuns as Panel

JSON = dict[str, Any]
Message = Mapping[str, Any]

LONGEST_TEXT = 20_000
"""A longer text is not put into the form; typed text replaces it."""


def branch_form(panel: Panel, run: Run, message: Message) -> JSON:
    """Return what the form for a branch after a step offers: the texts that can be edited, and agents."""
    step = message["step"]
    prefix = run.timeline.prefix().until(step)
    return {
        "prompt": None if step else _editable(run.prompt),
        "results": _results(results_of(run, step)),
        "needs_message": _has_finished(prefix, run.limits.continuation.hint),
        "model": on_one_line(f"{run.agent.model.name}:{run.agent.model.model}"),
        "agents": list(map(on_one_line, panel.agents)),
    }


def _results(results: Sequence[ToolResult]) -> list[JSON]:
    """Return the results to edit; several of one tool are numbered, with their arguments."""
    calls = Counter(one.name for one in results)
    numbers: Counter[str] = Counter()
    found = []
    for one in results:
        numbers[one.name] += 1
        which = f" {numbers[one.name]}: {on_one_line(redact(one.arguments))}" if calls[one.name] > 1 else ""
        found.append({"id": one.call_id, "label": f"Result of {on_one_line(one.name)}{which}", **_editable(one.content)})
    return found


def _editable(text: str) -> JSON:
    return {"text": printable(text) if len(text) <= LONGEST_TEXT else None, "length": len(text), "redacted": redact(text) != text}


def _has_finished(prefix: RunPrefix, hint: str) -> bool:
    """True if the model would have nothing to answer without a further message."""
    try:
        prefix.answerable(hint)
    except ConfigurationError:
        return True
    return False


def results_of(run: Run, step: int) -> tuple[ToolResult, ...]:
    """Return the tool results that the model read after a step; empty before the first one."""
    results = [message.tool_results for message in run.timeline.messages_of(step) if message.role == "tool"] if step else []
    return tuple(results[-1]) if results else ()


def branch(panel: Panel, run: Run, message: Message) -> str:
    """Make a branch that keeps so many steps, show it, and return its id. Of the texts, the page sends only those that were edited."""
    changes: JSON = {name: message[name] for name in ("prompt", "message", "tool_results", "model") if name in message}
    if "agent" in message:
        changes["agent"] = [*panel.agents.values()][message["agent"]]
    if "model" in message and not message["model"].strip():
        raise ConfigurationError("Write the model as provider:model, such as openai:gpt-4.1-mini.")
    made = run.fork(message["step"], **changes)
    panel.open(made)
    return made.id


# In code ------------------------------------------------------------------------------------------------------------------------


def in_code(panel: Panel, run: Run, message: Message) -> str:
    """Return the shortest expression that gives the run in the person's notebook; "" if no variable leads to it."""
    return expression_for(run, vars(sys.modules["__main__"]))


def expression_for(run: Run, names: Mapping[str, Any]) -> str:
    """Return an expression for a run, such as `run.branches[0]`, with these variables; "" if none leads to it."""
    way = ""  # from `one` to the run
    one: Any = run
    while one is not None:
        found = [expression for expression, value in _runs_in(names) if value is one]
        if found:
            return min(found, key=lambda text: (text.startswith("_"), len(text))) + way
        parent, caller = one.origin.parent, one.origin.caller
        place = _place_in(() if parent is None else parent.branches, one)
        if place is not None:
            way, one = f".branches[{place}]{way}", parent
            continue
        place = _place_in(() if caller is None else caller.children, one)
        way, one = f".children[{place}]{way}", caller if place is not None else None
    return ""


def _runs_in(names: Mapping[str, Any]) -> Iterator[tuple[str, Run]]:
    """Yield the runs that variables hold, by themselves, in a list, in a dict, or in a panel. `_` is another thing after each cell."""
    for name, value in tuple(names.items()):
        if name.isidentifier() and name.strip("_"):
            yield from _runs_at(name, value)


def _runs_at(where: str, value: Any) -> Iterator[tuple[str, Run]]:
    if isinstance(value, Run):
        yield where, value
    elif isinstance(value, LiveView):
        yield from _runs_at(f"{where}.runs", getattr(value, "runs", None))  # an explorer has none
    elif type(value) in (list, tuple):
        yield from ((f"{where}[{place}]", one) for place, one in enumerate(value[:MOST_ITEMS]) if isinstance(one, Run))
    elif type(value) is dict:
        pairs = tuple(value.items())[:MOST_ITEMS]
        yield from ((f"{where}[{key!r}]", one) for key, one in pairs if isinstance(one, Run) and redact(repr(key)) == repr(key))


MOST_ITEMS = 1_000
"""Items of a list or dict that are looked at."""


def _place_in(runs: Sequence[Run], run: Run) -> int | None:
    return next((place for place, one in enumerate(runs) if one is run), None)


COMMANDS = {"branch": branch, "branch_form": branch_form, "in_code": in_code}

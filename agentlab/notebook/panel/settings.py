"""The limits of a run as forms for the page, and the person's edits of them.

A place in the forms is `[part, field]`, such as `["budget", "max_turns"]`, or `["stop", condition, field]` with the name of the
condition in `run.limits.conditions`. Readings, which change with each step, are in the page's `limits` rows.
"""

from __future__ import annotations

import dataclasses
import functools
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from agentlab._internal.redaction import redact
from agentlab._internal.safe_text import one_line
from agentlab.agent import Run
from agentlab.engine.unreachable import why_never
from agentlab.engine.worker import RunState
from agentlab.errors import ConfigurationError
from agentlab.limits import condition_tree
from agentlab.limits.budget import TOTAL_OF, USED, Budget
from agentlab.limits.combinators import AllOf, AnyOf, Custom, Off, StopCondition
from agentlab.limits.condition_tree import Node, Path
from agentlab.limits.conditions import StepCountIs
from agentlab.limits.fields import limit_fields, start_of, unknown_name
from agentlab.limits.policies import NUDGE_MESSAGE, ContinuationPolicy, TerminatingTools
from agentlab.limits.settings import EDITABLE, RunSettings
from agentlab.model.finish_reasons import FinishReason
from agentlab.notebook.panel.inputs import entered, field_data, kind_of, shown
from agentlab.notebook.panel.page_widget import PanelOfRuns as Panel
from agentlab.records.events import LimitsChanged

JSON = dict[str, Any]
Message = Mapping[str, Any]

GROUPS: dict[str, type[AnyOf | AllOf]] = {"any of": AnyOf, "all of": AllOf}
PENDING = "Takes effect at the next step."
ENDED = "The run has ended: branch it to change limits."
CHANGED = "The stop condition was changed elsewhere meanwhile: check it, then try again."
ADDED_OFF = "{} would be met at once, so it was added but turned off: set its value, then tick its box."

_forms: weakref.WeakKeyDictionary[Run, tuple[tuple[Any, ...], JSON]] = weakref.WeakKeyDictionary()
"""The newest form of each run, and what it was made from."""


def settings_data(run: Run) -> JSON:
    """Return all limits of a run with what their controls need: the same object until one of them changes."""
    settings, in_force, editable = run.limits.snapshot(), run.stepper.context.in_force, run.state is not RunState.ENDED
    waits = run.state is RunState.RUNNING and in_force is not settings and in_force != settings
    note = PENDING if waits else "" if editable else ENDED
    made_from = (settings, editable, note, tuple(run.agent.tools), tuple(condition_tree.kinds()))
    before, form = _forms.get(run, ((None,), {}))
    if before[0] is not settings or before[1:] != made_from[1:]:
        form = _form(run, settings, made_from[-1]) | {"editable": editable, "note": note}
        _forms[run] = made_from, form
    return form


def _form(run: Run, settings: RunSettings, kinds: Iterable[str]) -> JSON:
    tools = [*run.agent.tools]
    return {
        "budget": [{**one, "total": TOTAL_OF.get(one["name"])} for one in _fields(Budget, settings.budget)],
        "tree": [_node(run, node) for node in condition_tree.outline(settings.stop)],
        "shape": _shape(settings.stop),
        "kinds": [*kinds],
        "terminating": _terminating(tools, settings.terminating),
        "continuation": _fields(ContinuationPolicy, settings.continuation),
        "approve": _approve(tools, settings.approve),
    }


def _fields(owner: type, value: object) -> list[JSON]:
    return [field_data(owner, field, getattr(value, field.name)) for field in _declared(owner)]


def _declared(owner: Any) -> tuple[dataclasses.Field[Any], ...]:
    """Return the fields of a dataclass or of one of its values; none for anything else."""
    return dataclasses.fields(owner) if dataclasses.is_dataclass(owner) else ()


def _node(run: Run, node: Node) -> JSON:
    """Return one condition of the tree: a single one with its fields, or a group."""
    condition = node.condition
    is_own = isinstance(condition, Custom) or not dataclasses.is_dataclass(condition)
    known: dict[str, Iterable[str]] = {"tools": run.agent.tools, "finish reasons": FinishReason}
    return {
        "path": node.path,
        "name": one_line(node.name),
        "group": next((word for word, kind in GROUPS.items() if node.is_group and isinstance(condition, kind)), ""),
        "negated": node.negated,
        "off": node.off,
        "total": condition.total,
        "own": is_own and not node.is_group,
        "why_never": "" if node.off else redact(why_never(condition, run.agent, run.history, run.limits.snapshot().budget)),
        "fields": [
            field_data(type(condition), field, getattr(condition, field.name), "none", known)
            for field in ([] if is_own or node.is_group else _declared(condition))
            if field.init or "unit" in field.metadata
        ],
    }


def _terminating(tools: list[str], terminating: TerminatingTools | None) -> JSON:
    held = () if terminating is None else terminating.tools
    named = dict.fromkeys([*tools, *held])
    fields = _fields(TerminatingTools, terminating or TerminatingTools(("any",)))
    return {
        "tools": [{"name": redact(name), "on": name in held} for name in named],
        "fields": [one for one in fields if one["name"] != "tools"],
    }


def _approve(tools: list[str], approve: tuple[str | StopCondition, ...]) -> JSON:
    """Return before which tools a person is asked; the patterns and conditions that no tick shows are named in `others`."""
    every = "*" in approve
    return {
        "every": every,
        "tools": [{"name": redact(name), "on": every or name in approve} for name in tools],
        "others": [_word(part) for part in approve if part != "*" and part not in tools],
    }


def _word(part: str | StopCondition) -> str:
    return redact(str(part))


# What the page may ask for ------------------------------------------------------------------------------------------------------


def set_field(panel: Panel, run: Run, message: Message) -> JSON:
    """Set the field at the place `at` to `value`. Return the value as the control shows it."""
    part, *names = message["at"]
    limits, name = run.limits, names[-1]
    if part == "stop" and names[0] not in limits.conditions:
        raise ConfigurationError(unknown_name("stop condition", names[0], list(limits.conditions)))
    owner: Any = limits.conditions[names[0]] if part == "stop" else getattr(limits.snapshot(), part) if part in EDITABLE else None
    field = next((one for one in _declared(owner) if one.name == name), None)
    if field is None:
        raise ConfigurationError(f"{name!r} is not a field of the limits in force.")
    now = getattr(owner, name)
    kind = kind_of(type(owner), name, now)
    try:
        new = entered(type(owner), field, message["value"], now)
        if part == "stop":
            limits.edit_condition(names[0], by="panel", **{name: new})
        else:
            limits.edit(by="panel", **{name: new})
    except Exception as error:  # a user's condition may raise anything
        text = str(error) if isinstance(error, ConfigurationError) else f"{type(error).__name__}: {error}"
        in_force = field.metadata.get("none", "no limit") if now is None else shown(kind, now)
        raise ConfigurationError(f"{text} Still in force: {in_force}.") from error
    return {"value": shown(kind, new)}


def set_limit(panel: Panel, run: Run, message: Message) -> JSON:
    """Set a limit by its name: that of a field of the budget, or of a condition with one number."""
    name = message["name"]
    if name in TOTAL_OF:
        return set_field(panel, run, {**message, "at": ["budget", name]})
    condition = run.limits.conditions.get(name)
    fields = () if condition is None else limit_fields(condition)
    if len(fields) != 1:
        raise ConfigurationError(unknown_name("limit", name, [*TOTAL_OF, *run.limits.conditions]))
    return set_field(panel, run, {**message, "at": ["stop", name, fields[0].name]})


def switch(panel: Panel, run: Run, message: Message) -> None:
    """Turn the condition at this path on or off."""
    _change(run, message, lambda stop, path: condition_tree.switched(stop, path, bool(message["on"])))


def negate(panel: Panel, run: Run, message: Message) -> None:
    """Negate the condition at this path, or undo that."""
    _change(run, message, lambda stop, path: condition_tree.negated(stop, path, bool(message["on"])))


def regroup(panel: Panel, run: Run, message: Message) -> None:
    """Make the group at this path any of its parts, or all of them."""
    _change(run, message, lambda stop, path: condition_tree.regrouped(stop, path, GROUPS[message["group"]]))


def remove(panel: Panel, run: Run, message: Message) -> None:
    """Remove the condition at this path."""
    _change(run, message, condition_tree.without)


def add(panel: Panel, run: Run, message: Message) -> JSON:
    """Add a limit of the budget, or a condition to the group at this path, with start values that do not end the run at once.

    Return the name of the new condition or limit, and a note for the person: a condition that is met already is added turned off.
    """
    name = message["kind"]
    if name in TOTAL_OF or name in {field.name for field in limit_fields(Budget)}:
        run.limits.edit(by="panel", **{name: _first_limit(run, name)})
        return {"name": name, "note": ""}
    new, path = _made(run, name), tuple(message["path"])
    is_met = _is_met(new, run)
    after = _change(run, message, lambda stop, path: condition_tree.added(stop, path, Off(new) if is_met else new))
    leaves = [node for node in condition_tree.outline(after.stop) if not node.is_group and node.path[: len(path)] == path]
    return {"name": one_line(leaves[-1].name), "note": ADDED_OFF.format(name) if is_met else ""}


def _first_limit(run: Run, name: str) -> Any:
    """Return the start value of a limit of the budget; twice what is used, if that is more."""
    start = start_of(next(field for field in limit_fields(Budget) if field.name == name))
    total = TOTAL_OF.get(name)
    used = run.timeline.clock.elapsed_s() if total == "time" else USED[total](run.history)[1] if total else 0
    return max(start, type(start)(2 * used))


def _made(run: Run, name: str) -> StopCondition:
    if name in GROUPS:
        return GROUPS[name](condition_tree.started(StepCountIs))
    known = condition_tree.kinds()
    if name not in known:
        raise ConfigurationError(f"There is no condition {name!r}. Choose from {', '.join(known)}.")
    return condition_tree.started(known[name], tuple(run.agent.tools))


def _is_met(condition: StopCondition, run: Run) -> bool:
    """True if it would end the run now."""
    try:
        return len(run.history) > 0 and bool(condition.read(run.history).met)
    except Exception:
        return False  # the run reports a condition that raises


def _change(run: Run, message: Message, change: Callable[[Any, Path], StopCondition | None]) -> RunSettings:
    """Change the tree of the stop condition that the page has shown. Return the new settings."""
    now = run.limits.snapshot().stop
    if _shape(now) != message["shape"]:
        raise ConfigurationError(CHANGED)
    return run.limits.edit(by="panel", stop=change(now, tuple(message["path"])))


def _shape(stop: StopCondition | None) -> str:
    """Return the conditions of a tree with their places, as one text: the page's paths are right as long as it is the same."""
    return " ".join(
        f"{'.'.join(map(str, node.path))}:{one_line(node.name)}" for node in condition_tree.outline(stop) if not node.is_group
    )


def terminate(panel: Panel, run: Run, message: Message) -> None:
    """Let a call of this tool end the run, or no longer. The reminders are kept for the next tool."""
    now, name, on = run.limits.snapshot().terminating, message["tool"], bool(message["on"])
    held = () if now is None else now.tools
    tools = tuple(one for one in dict.fromkeys([*run.agent.tools, *held]) if (on if redact(one) == name else one in held))
    if not tools:
        run.limits.edit(by="panel", terminating=None)
    elif held:
        run.limits.edit(by="panel", tools=tools)
    else:
        changes = (event.before.terminating for event in reversed(run.events) if isinstance(event, LimitsChanged))
        before = next((one for one in changes if one is not None), TerminatingTools(tools, nudge_message=NUDGE_MESSAGE))
        run.limits.edit(by="panel", terminating=dataclasses.replace(before, tools=tools))


def approve(panel: Panel, run: Run, message: Message) -> None:
    """Ask a person before a tool (`*` means every tool), or no longer; `part` may be a pattern or a condition that was set in code."""
    now, part, on = run.limits.snapshot().approve, message["part"], bool(message["on"])
    kept = [one for one in now if _word(one) != part]
    tool = next((name for name in run.agent.tools if redact(name) == part), part)
    run.limits.edit(by="panel", approve=[*kept, tool] if on else kept)


def _before_the_end(action: Callable[[Panel, Run, Message], JSON | None]) -> Callable[[Panel, Run, Message], JSON | None]:
    @functools.wraps(action)
    def act(panel: Panel, run: Run, message: Message) -> JSON | None:
        if run.state is RunState.ENDED:
            raise ConfigurationError(ENDED)
        return action(panel, run, message)

    return act


COMMANDS = {
    "set": _before_the_end(set_field),
    "limit": _before_the_end(set_limit),
    "switch": _before_the_end(switch),
    "negate": _before_the_end(negate),
    "regroup": _before_the_end(regroup),
    "remove": _before_the_end(remove),
    "add": _before_the_end(add),
    "terminating": _before_the_end(terminate),
    "approve": _before_the_end(approve),
}

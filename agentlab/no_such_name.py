"""Errors for names that agentlab does not have: what to write in place of another tool's name, else the nearest name there is.

Nothing of agentlab is imported here before an error is made: modules import this file while they are imported themselves.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

_EVENTS = (
    "RunStarted", "RunPaused", "RunResumed", "RunEnded", "TurnStarted", "TurnCompleted", "Nudged", "CallRetried", "TextReceived",
    "StopReasonObserved", "ContinuationAttempted", "ContinuationEnded", "ToolPayloadRepair", "ToolStarted", "ToolFinished",
    "ChildStarted", "ChildEnded", "LimitsChanged", "Warned",
)  # fmt: skip

ELSEWHERE = {
    # why something ended
    "UnifiedTerminationSignal": "`lab.TerminationSignal`",
    "NormalizedStopReason": "`lab.FinishReason`, why one response ended",
    "TerminationReason": "`lab.StopReason`, why a run ended",
    "TerminationDetector": '`lab.detect("openai", payload)`, or `lab.signals.get("openai")` for the detector itself',
    "TerminationDetectionRegistry": "`lab.signals.register`, or `lab.signals.SignalRegistry()` for a registry apart",
    "TerminationDecisionEngine": "`lab.decide(signal)`",
    "StreamingTerminationHandler": '`lab.signals.stream("openai")`',
    # stop conditions
    "Any": "`lab.AnyOf`, or join conditions with |",
    "All": "`lab.AllOf`, or join conditions with &",
    "IsStopConditionMet": "`lab.is_stop_condition_met`",
    "StopConditions": '`lab.StepCountIs(8) | lab.HasToolCall("finalize")`',
    "stop_conditions": '`stop=lab.StepCountIs(8) | lab.HasToolCall("finalize")`',
    "stop_when": '`stop=lab.StepCountIs(8) | lab.HasToolCall("finalize")`',
    # limits
    "maxTurns": "`budget=lab.Budget(max_turns=8)`",
    "max_steps": "`budget=lab.Budget(max_turns=8)`",
    "max_iterations": "`budget=lab.Budget(max_turns=8)`",
    "recursion_limit": "`budget=lab.Budget(max_turns=8)`",
    "request_limit": "`budget=lab.Budget(max_calls=8)`",
    # agents and their results
    "Orchestrator": "`lab.Agent`",
    "OrchestrationResult": "`lab.RunResult`",
    "TurnResult": "`lab.StepResult`",
    "ToolOutput": "`step.tool_results`, which holds what each tool returned",
    "system_prompt": '`instructions="…"`',
    "output_type": '`terminating=["finalize"]`, with a tool `finalize` whose parameters are the fields: `result.output` is its value',
    "terminating_config": '`terminating=lab.TerminatingTools(["finalize"])`',
    "tool_ids": '`terminating=lab.TerminatingTools(tools=["finalize"])`',
    # events; those whose names differ in case alone follow
    "continuation_attempt": "`lab.events.ContinuationAttempted`",
    "continuation_terminated": "`lab.events.ContinuationEnded`",
    **{re.sub("(?<=[a-z])(?=[A-Z])", "_", event).lower(): f"`lab.events.{event}`" for event in _EVENTS},
}
"""Names in other tools, and what to write here."""


def hint_for(name: str) -> str:
    """What to write in place of a name that other tools use, as a sentence; "" for a name that nobody is known to use."""
    return f"Write {ELSEWHERE[name]}." if name in ELSEWHERE else ""


def no_such_name(module: str, name: str, known: Sequence[str]) -> AttributeError:
    """The error for `module.name`, where `known` are the names that there are."""
    hint = hint_for(name)
    if not hint:
        near = difflib.get_close_matches(name, known, n=1)
        there = f"It has: {', '.join(known)}." if len(known) <= 30 else f"`dir({module})` lists what it has."
        hint = f"Did you mean {near[0]!r}? {there}" if near else there
    error = AttributeError(f"{module} has no name {name!r}. {hint}")
    error._render_traceback_ = lambda: import_module("agentlab.short_traceback").rendered(error)  # type: ignore[attr-defined]
    return error


def defined_in(module: Mapping[str, object]) -> list[str]:
    """The public names that a module defines, without those it imports; `module` is its `globals()`."""
    here = module["__name__"]
    return sorted(name for name, value in module.items() if name[0] != "_" and getattr(value, "__module__", None) == here)


def only(module: str, names: Sequence[str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a module: a missing name is an error that helps, and completion offers `names` alone."""

    def missing(name: str) -> Any:
        raise no_such_name(module, name, names)

    return missing, lambda: list(names)

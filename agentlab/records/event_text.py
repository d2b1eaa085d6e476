"""Events in words, as in the last column of the events frame."""

from __future__ import annotations

from typing import Any

from agentlab._internal.formatting import as_set, counted
from agentlab.records import events

EARLIER_NAMES = {"TurnStarted": "StepStarted", "TurnCompleted": "StepCompleted"}
"""Names of events in stores and frames of earlier versions, and what they are now."""


def _changes(part: str, before: Any, after: Any) -> list[str]:
    """Return the fields that differ between two values of one part of the settings; either may be None."""
    if before is None or after is None:
        return [] if before is after else [f"{part} {before!r} -> {after!r}"]
    fields = [(name, getattr(before, name), getattr(after, name)) for name in before.__dataclass_fields__]
    return [f"{name} {as_set(name, old)} -> {as_set(name, new)}" for name, old, new in fields if old != new]


def step_of(event: events.Event) -> int | None:
    """Return the number of the step that an event belongs to; None for an event of the run."""
    step: int | None = getattr(event, "step", None)
    return event.step.index if isinstance(event, events.StepCompleted) else step


def detail_of(event: events.Event) -> str:
    """Return an event in words, without its name, its time and its step."""
    match event:
        case events.RunStarted():
            return f"{event.provider}:{event.model}, {event.settings.budget!r}, stop={event.settings.stop!r}"
        case events.LimitsChanged():
            changes = [
                change
                for part in ("budget", "continuation", "terminating")
                for change in _changes(part, getattr(event.before, part), getattr(event.after, part))
            ]
            changes += [
                f"{name} {getattr(event.before, name)!r} -> {getattr(event.after, name)!r}"
                for name in ("stop", "policy")
                if getattr(event.before, name) != getattr(event.after, name)
            ]
            return f"{', '.join(changes)} (by {event.by})"
        case events.StopReasonObserved():
            return f"{event.finish_reason} ({event.raw_value!r})"
        case events.CallRetried():
            return f"attempt {event.attempt} failed, next in {event.wait_s:.1f} s: {event.reason}"
        case events.AskedAgain():
            where = "; ".join(map(str, event.holes))
            return f"call {event.call} lost a piece of its answer, attempt {event.attempt}, {event.remaining} left: {where}"
        case events.ContinuationAttempted():
            tokens = "unknown" if event.output_tokens is None else f"{event.output_tokens:,}"
            so_far = f"{tokens} output tokens and {event.output_chars:,} characters so far"
            caps = {"tokens": event.tokens_remaining, "characters": event.chars_remaining}
            left = " and ".join(f"{value:,} {name}" for name, value in caps.items() if value is not None)
            return f"attempt {event.attempt}, {event.remaining} left: {so_far}{f', {left} left' if left else ''}"
        case events.ContinuationEnded():
            attempts = counted(event.attempts, "attempt")
            dropped = sum(len(seam.dropped) for seam in event.seams)
            without = f", {counted(dropped, 'character')} dropped where the pieces meet" if dropped else ""
            return f"{event.outcome} after {attempts} and {event.duration_s:.1f} s{without}"
        case events.ToolPayloadRepair():
            outcome = "whole" if event.succeeded else "in vain"  # read by plots, also in exported frames
            return f"{event.issue} tool call: {f'asked again, {outcome}' if event.attempted else 'not asked again'}"
        case events.Nudged():
            return f"reminder {event.consecutive} of {event.allowed} in a row"
        case events.ToolStarted():
            return f"{event.tool_call.name}({event.tool_call.arguments})"
        case events.ToolFinished():
            return f"{event.result.name}: {event.result.error or 'ok'}"
        case events.ChildStarted():
            return f"{event.tool}: run {event.run_id}, {event.settings.budget!r}"
        case events.ChildEnded():
            tokens = "unknown" if event.child.usage.total_tokens is None else f"{event.child.usage.total_tokens:,}"
            steps = counted(event.child.steps, "step")
            return f"{event.child.handle}: {event.child.stop_reason or 'cut off'}, {steps}, {tokens} tokens"
        case events.RunResumed():
            return f"after {event.paused_s:.1f} s"
        case events.Warned():
            return event.message
        case events.StepCompleted():
            return event.step.decision.reason
        case events.RunEnded():
            return f"{event.result.stop_reason}: {event.result.detail}"
        case _:
            return ""

"""The part of a long run that one timeline can show, found without a look at the rest of its events."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from itertools import islice

import pandas as pd

from agentlab import events
from agentlab.columns import EVENT_COLUMNS, Source
from agentlab.run import Run

MOST_STEPS = 60
MOST_EVENTS = 400
"""So much of a run is drawn at once: more could not be told apart, and drawing takes longer the more there is."""
_FIRST_FEW = 20
"""The run's start is among its first events: only a change of limits may come before it."""


@dataclass(frozen=True, slots=True)
class TimelinePart:
    """Events of one run as a frame. `first` and `last` are the steps that they are of (0: none), `begin_s` where the axis of time
    begins; `whole` whether they are all events that there are."""

    frame: pd.DataFrame
    first: int
    last: int
    begin_s: float
    whole: bool

    def has(self, step: int | None) -> bool:
        """Whether this step is in it."""
        return step is not None and self.first <= step <= self.last


def timeline_part(run: Run, step: int | None = None) -> TimelinePart:
    """The newest steps of a run, at most MOST_STEPS and MOST_EVENTS; with `step` those around it, where it is no more among them."""
    happened, end = run.events, len(run.events)
    start, first, last = _back_from(happened, end)
    if step is not None and first > step:
        found = _where(run, step)
        if found is not None:
            end = _forward_from(happened, found, MOST_STEPS // 2, MOST_EVENTS // 2)
            start, first, last = _back_from(happened, end)
    kept = list(islice(happened, start, end))
    whole = start == 0 and end == len(happened)
    begin_s = 0.0 if start == 0 or not kept else kept[0].at_s
    if start:
        kept[:0] = [event for event in islice(happened, _FIRST_FEW) if isinstance(event, events.RunStarted)][:1]
    return TimelinePart(_frame(run, kept), first, last, begin_s, whole)


def _back_from(happened: list[events.Event], end: int) -> tuple[int, int, int]:
    """Where to begin so that whole steps are shown, the first of them and the last; 0 where there is none."""
    start: int | None = None
    place, first, last, steps = end, 0, 0, 0
    while place and steps < MOST_STEPS and end - place < MOST_EVENTS:
        place -= 1
        event = happened[place]
        if isinstance(event, events.TurnStarted):
            start, first, last, steps = place, event.turn, last or event.turn, steps + 1
    if place == 0:
        return 0, first, last
    if start is None:  # a single step that has more events than are shown
        turn = next((event.turn for event in happened[place:end] if isinstance(event, _OF_A_STEP)), 0)
        return place, turn, turn
    if start <= _FIRST_FEW and not any(isinstance(event, events.TurnStarted) for event in happened[:start]):
        start = 0
    return start, first, last


_OF_A_STEP = (events.StopReasonObserved, events.ToolStarted, events.ToolFinished, events.CallRetried, events.AskedAgain)


def _forward_from(happened: list[events.Event], start: int, steps: int, most: int) -> int:
    """Where the steps after this place end, so many of them."""
    end = min(len(happened), start + most)
    for place in range(start, end):
        if isinstance(happened[place], events.TurnStarted):
            if not steps:
                return place
            steps -= 1
    return end


def _where(run: Run, step: int) -> int | None:
    """Where the step begins among the events; None for one that was taken before the fork."""
    if step > len(run.history):
        return None
    happened = run.events
    near = bisect_left(happened, run.history[step - 1].started_s, key=lambda event: event.at_s)
    for place in range(
        max(0, near - _FIRST_FEW), min(len(happened), near + _FIRST_FEW)
    ):  # a change from elsewhere may be between
        event = happened[place]
        if isinstance(event, events.TurnStarted) and event.turn == step:
            return place
    return None


def _frame(run: Run, kept: list[events.Event]) -> pd.DataFrame:
    """These events, with the columns of the events frame."""
    model = run.agent.model
    origin = run.origin
    came = (origin.parent_run_id, origin.forked_at, origin.parent_step, origin.called_by)
    source = Source(run.id, model.name, model.model, run.history, kept, run.result, run.prompt, *came)
    return pd.DataFrame({column.name: [column.read(source, event) for event in kept] for column in EVENT_COLUMNS})

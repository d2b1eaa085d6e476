"""What happened when in runs, as data. Nothing is drawn here."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias

import pandas as pd

from agentlab.comparing.groups import misses
from agentlab.recorder import Recordings, frame_of

Shown: TypeAlias = Recordings | pd.DataFrame

RUN, STEP, CALL, TOOL, CONTINUATION, NUDGE, LIMIT, PAUSE, END = (
    "run", "step", "call", "tool", "continuation", "nudge", "limit", "pause", "end",
)  # fmt: skip
OK, CUT, FAILED = "ok", "cut", "failed"
ADVICE = 'their events, result.to_frame("events")'
_CUT_REASONS = ("max_tokens", "context_window_exceeded", "content_filtered")
_NEEDED = ("run_id", "at_s", "event", "step", "detail")


def timeline_data(shown: Shown) -> pd.DataFrame:
    """What happened when, a row a thing that lasted or happened.

    Columns: `run_id`; `lane` (`run`, `step`, `call`, `tool`, `continuation`, `nudge`, `limit`, `pause`, `end`); `step`; `start_s` and
    `end_s`, in seconds of the run's active time (`end_s` NA: it happened at an instant); `mark`, what it is within its lane (`bar`, or
    for an instant `retry`, `attempt`, `repair`, …); `outcome` (`ok`, `cut`, `failed`); `label`, in words. A pause takes no active time,
    so it is two instants.

    A call has no event at its start: it begins where what came before it in the step has ended.

    Example:
        >>> lab.plots.timeline_data(result).columns.tolist()[:6]
        ['run_id', 'lane', 'step', 'start_s', 'end_s', 'mark']
    """
    frame = _events_of(shown)
    runs: dict[str, _Reader] = {}
    for run_id, at_s, event, step, detail in zip(*(frame[name] for name in _NEEDED), strict=True):
        name = "unnamed run" if pd.isna(run_id) else str(run_id)
        reader = runs.setdefault(name, _Reader(name))
        if not pd.isna(at_s):
            reader.take(str(event), float(at_s), None if pd.isna(step) else int(step), "" if pd.isna(detail) else str(detail))
    rows = [row for reader in runs.values() for row in reader.rows]
    columns: dict[str, Any] = {
        "run_id": "string",
        "lane": "string",
        "step": "Int64",
        "start_s": "Float64",
        "end_s": "Float64",
        "mark": "string",
        "outcome": "string",
        "label": "string",
    }
    return pd.DataFrame(
        {name: pd.array([row[place] for row in rows], dtype=dtype) for place, (name, dtype) in enumerate(columns.items())}
    )


def _events_of(shown: Shown) -> pd.DataFrame:
    frame = frame_of(shown, "events", "lab.plots.timeline", ADVICE)
    missing = [name for name in _NEEDED if name not in frame.columns]
    if missing and (len(frame) or len(frame.columns)):
        raise misses("lab.plots.timeline", missing, f"a run, a result, several of them in a list, or {ADVICE}")
    return pd.DataFrame(columns=list(_NEEDED)) if missing else frame


Row: TypeAlias = tuple[str, str, int | None, float, float | None, str, str, str]


@dataclass(slots=True)
class _Reader:
    """The events of one run, one after the other."""

    run_id: str
    rows: list[Row] = field(default_factory=list)
    since_s: float = 0.0  # where the next call of the step begins
    answered: bool = True  # whether a response has come in the step under way
    tool_since_s: float | None = None
    cut_since_s: float | None = None

    def take(self, event: str, at_s: float, step: int | None, detail: str) -> None:
        match event:
            case "RunStarted":
                self._add(RUN, None, at_s, None, mark=RUN, outcome=OK, label=detail.partition(", ")[0])
            case "TurnStarted":
                self.since_s, self.answered = at_s, False
                self._add(STEP, step, at_s, None, mark=STEP, outcome=OK, label=f"step {step}")
            case "StopReasonObserved":
                reason = detail.partition(" ")[0]
                outcome = CUT if reason in _CUT_REASONS else FAILED if reason == "error" else OK
                self._add(CALL, step, self.since_s, at_s, mark="bar", outcome=outcome, label=reason)
                self.since_s, self.answered = at_s, True
            case "AskedAgain":
                self.answered = False
                self._add(CALL, step, at_s, None, mark="retry", outcome=FAILED, label=detail)
            case "CallRetried":
                self._add(CALL, step, at_s, None, mark="retry", outcome=FAILED, label=detail)
            case "ToolStarted":
                self.tool_since_s = at_s
            case "ToolFinished":
                name, _, error = detail.rpartition(": ")
                began_s = self.since_s if self.tool_since_s is None else self.tool_since_s
                self._add(TOOL, step, began_s, at_s, mark="bar", outcome=OK if error == "ok" else FAILED, label=name)
                self.since_s, self.tool_since_s = at_s, None
            case "ContinuationAttempted":
                self.cut_since_s = at_s if self.cut_since_s is None else self.cut_since_s
                self.answered = False
                self._add(CONTINUATION, step, at_s, None, mark="attempt", outcome=OK, label=detail)
            case "ContinuationEnded":
                since_s, self.cut_since_s = self.cut_since_s, None
                outcome = OK if detail.startswith("completed") else CUT
                self._add(
                    CONTINUATION, step, at_s if since_s is None else since_s, at_s, mark="bar", outcome=outcome, label=detail
                )
            case "ToolPayloadRepair":
                self._add(
                    CONTINUATION,
                    step,
                    at_s,
                    None,
                    mark="repair",
                    outcome=OK if detail.endswith("whole") else FAILED,
                    label=detail,
                )
            case "TurnCompleted":
                if not self.answered:
                    self._add(CALL, step, self.since_s, at_s, mark="bar", outcome=FAILED, label="no answer")
                self.answered, self.cut_since_s = True, None
            case "RunEnded":
                self._add(END, None, at_s, None, mark=END, outcome=OK, label=detail.partition(":")[0])
            case "Nudged" | "LimitsChanged" | "RunPaused" | "RunResumed":
                lane, mark = _INSTANTS[event]
                self._add(lane, step, at_s, None, mark=mark, outcome=OK, label=detail)

    def _add(
        self, lane: str, step: int | None, start_s: float, end_s: float | None, *, mark: str, outcome: str, label: str
    ) -> None:
        self.rows.append((self.run_id, lane, step, start_s, end_s, mark, outcome, label))


_INSTANTS = {
    "Nudged": (NUDGE, "nudge"),
    "LimitsChanged": (LIMIT, "limit"),
    "RunPaused": (PAUSE, "paused"),
    "RunResumed": (PAUSE, "resumed"),
}

"""The limits that recorded runs had, read off their last steps: what an explorer opens with, and which ends stay as they were when
another limit is changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from agentlab.budget import LIMIT_REASONS
from agentlab.stop import AnyOf, HasToolCall
from agentlab.types import StopReason
from agentlab.whatif.records import Bools, Records, numbers
from agentlab.widgets import markup
from agentlab.widgets.chosen_limits import DEFAULT_TURNS
from agentlab.widgets.tried_limits import KINDS, Value

COLUMNS = {"max_turns": "max_turns", "max_calls": "max_calls", "max_tokens": "max_tokens", "max_cost": "max_cost_usd",
           "timeout": "timeout_s"}  # fmt: skip
"""Where a steps frame has the limits of the budget."""
ANOTHER = "another condition"
"""What runs ended by whose condition has no slider, or is not in the frame."""
RAISED = "a condition that raised"


@dataclass(frozen=True, slots=True)
class RecordedLimits:
    """The limits of the runs, by the names of KINDS."""

    shared: Mapping[str, Value]
    """The value that all runs had; None: none of them had that limit."""
    differing: frozenset[str]
    """Those that differ from run to run, or are not known."""
    of_budget: Sequence[str]
    """Those of the budget that the runs had, without the default of turns where no run reached it."""
    others: Sequence[str]
    """In words, what bounded the runs and has no slider."""
    ends: Mapping[str, Bools]
    """By limit or condition, the runs that ended by it."""
    broken: Bools
    """The runs whose last step was broken off before a further call, by whichever limit of the budget."""

    def stays(self, changed: set[str]) -> Bools:
        """The runs that end as recorded, whatever the changed limits are: they ended by another one."""
        found: Bools = np.any([runs for name, runs in self.ends.items() if name not in changed], axis=0)
        return found & ~self.broken if changed & COLUMNS.keys() - {"max_turns"} else found


def recorded_limits(records: Records) -> RecordedLimits:
    """Read the limits off the last step of each run."""
    there, columns = records.lengths > 0, set(map(str, records.steps.columns))
    last = records.steps.iloc[records.start[1:][there] - 1]
    leaves = [name.removesuffix(".limit") for name in map(str, records.steps.columns) if name.endswith(".limit")]
    any_of = _is_any_of(records, leaves)
    reason = records.reason.astype(str)
    by_limit = ~records.own_end & there
    ends = {name: by_limit & (reason == str(LIMIT_REASONS[name])) for name in COLUMNS}
    shared: dict[str, Value] = {}
    for name, kind in KINDS.items():
        if kind.leaf is not None:
            column, is_told = f"{name}.limit", "condition_met" in columns
            none = name not in leaves or not any_of
        else:
            column, none = COLUMNS[name], False
            is_told = column in columns and not (ends[name][there] & last[column].isna().to_numpy()).any()
        if none and is_told:
            shared[name] = None
        elif column in columns and is_told and last[column].nunique(dropna=False) <= 1:
            values = last[column].dropna().tolist()
            shared[name] = kind.checked(_value(kind.leaf is HasToolCall, values[0])) if values else None
    stopped, named = by_limit & (reason == str(StopReason.STOP_CONDITION)), np.zeros(len(records), bool)
    for leaf in leaves if any_of else ():
        ends[leaf] = stopped.copy()
        ends[leaf][there] &= (numbers(last, f"{leaf}.met") == 1).to_numpy()
        named |= ends[leaf]
    ends |= {ANOTHER: stopped & ~named, RAISED: by_limit & (reason == str(StopReason.ERROR))}
    others = [leaf for leaf in leaves if leaf not in KINDS] if any_of else [f"a combination of {', '.join(leaves)}"]
    if not others and ends[ANOTHER].any():
        others = ["a condition that is not in the frame"]
    if "max_tokens_per_turn" in columns and last["max_tokens_per_turn"].notna().any():
        others.append("max_tokens_per_turn")
    had = [name for name, column in COLUMNS.items() if ends[name].any() or (column in columns and last[column].notna().any())]
    if shared.get("max_turns") == DEFAULT_TURNS and not ends["max_turns"].any():
        had.remove("max_turns")
    return RecordedLimits(shared, frozenset(KINDS) - frozenset(shared), had, others, ends, records.wanted_more)


def _value(names: bool, value: object) -> object:
    return tuple(str(value).split(" or ")) if names else value.item() if isinstance(value, np.generic) else value


def _is_any_of(records: Records, leaves: Sequence[str]) -> bool:
    """Whether the condition of the runs is met where any of its leaves is: what sliders can show."""
    steps = records.steps
    if not leaves:
        return True
    met = np.any([numbers(steps, f"{leaf}.met") == 1 for leaf in leaves], axis=0)
    if "condition_met" in steps.columns and not np.array_equal(met, numbers(steps, "condition_met") == 1):
        return False
    if records.histories is None:
        return True
    there = np.flatnonzero(records.lengths)
    forms = steps[[f"{leaf}.limit" for leaf in leaves]].iloc[records.start[1:][there] - 1].isna()
    for run in there[~forms.duplicated().to_numpy()]:  # one run for each set of conditions: a store need not load them all
        tree = records.histories(int(run))[-1].settings.stop
        if tree is not None and any(part.parts for part in (tree.parts if isinstance(tree, AnyOf) else (tree,))):
            return False
    return True


def notes(recorded: RecordedLimits, offered: Sequence[str]) -> str:
    """What is to be said of limits that no slider shows, as HTML."""
    differ = [KINDS[name].label for name in offered if name in recorded.differing]
    told = []
    if differ:
        told.append(f"{', '.join(differ)}: not the same in all runs, or not known. As recorded until you set one for all.")
    if recorded.others:
        told.append(f"Stays as recorded, and is not in the code: {', '.join(recorded.others)}.")
    return "".join(map(markup.note, told))

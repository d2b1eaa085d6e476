"""The limits of an explorer: those that can be tried, with their values; the chosen ones; and those of the recorded runs."""

from __future__ import annotations

import functools
import math
import operator
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeAlias, TypeGuard

import numpy as np

from agentlab.analysis.grids import Grid, fields_of
from agentlab.analysis.groups import floats
from agentlab.analysis.records import Bools, Records
from agentlab.errors import ConfigurationError
from agentlab.limits.budget import LIMIT_REASONS, Budget
from agentlab.limits.combinators import AnyOf, StopCondition
from agentlab.limits.conditions import HasToolCall, MaxCost, MaxTokensUsed, StepCountIs
from agentlab.limits.fields import unknown_name
from agentlab.model.finish_reasons import StopReason
from agentlab.notebook import markup

MOST_STOPS = 40
"""Maximum number of values on a slider: more cannot be distinguished."""
MOST_TOOLS = 12
"""Maximum number of tools with a check box; others can be set from code."""
SKEWED = 12
"""If the ratio of the largest total to the median is larger, the values on a slider rise by factors."""
_STEPS = (1, 2, 5)
_FACTORS = (1, 2, 3, 5, 7)

Value: TypeAlias = Any
"""The value of a limit: an int, a Decimal for money, a float for seconds, a tuple of names for tools; None for no limit."""


# Limits that can be tried ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Kind:
    """A limit: its name in code and its label.

    `number` is the type of its value, `measure` the running total that it bounds, `leaf` the class of its stop condition (None for a
    limit of the budget).
    """

    name: str
    label: str
    unit: str
    number: type
    measure: str
    leaf: Callable[..., StopCondition] | None = None

    def condition(self, value: Value) -> StopCondition:
        """Return the stop condition with this value. Raises LimitError for an invalid value."""
        assert self.leaf is not None  # noqa: S101  for the type checker
        return self.leaf(*value) if self.leaf is HasToolCall else self.leaf(value)

    def checked(self, value: Value) -> Value:
        """Return the value in its type. Raises LimitError for an invalid value."""
        if value is None:
            return None
        if self.leaf is HasToolCall:
            names = (value,) if isinstance(value, str) else tuple(value)
            return HasToolCall(*names).names if names else None
        if self.leaf is None:
            return getattr(Budget(**{self.name: value}), self.name)
        made = self.condition(value)
        (field,) = fields_of(made)
        return getattr(made, field)


KINDS = {
    kind.name: kind
    for kind in (
        Kind("StepCountIs", "Steps", "", int, "steps", StepCountIs),
        Kind("MaxTokensUsed", "Tokens", "", int, "tokens", MaxTokensUsed),
        Kind("MaxCost", "Cost", "USD", Decimal, "cost_usd", MaxCost),
        Kind("HasToolCall", "Tool called", "", tuple, "tools", HasToolCall),
        Kind("max_turns", "Max turns", "", int, "steps"),
        Kind("max_tokens", "Max tokens", "", int, "tokens"),
        Kind("max_cost", "Max cost", "USD", Decimal, "cost_usd"),
        Kind("max_calls", "Model calls", "", int, "calls"),
        Kind("timeout", "Time", "s", float, "time_s"),
    )
}
USUAL = ("StepCountIs", "MaxTokensUsed", "MaxCost", "max_calls", "timeout", "HasToolCall")
SHORTEST_S = 1.0
"""If all runs took less, as runs of a replay do, a limit on time says nothing."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A limit with the values to try in rising order, or the names of tools. If there are none, `why_not` has the reason."""

    kind: Kind
    values: tuple[Value, ...] = ()
    why_not: str = ""

    def place_of(self, value: Value) -> int:
        """Return the index of the nearest value; the index after the last value means no limit."""
        if value is None:
            return len(self.values)
        return min(range(len(self.values)), key=lambda place: abs(float(self.values[place]) - float(value)), default=0)


def offers(records: Records, limits: object, usual: Sequence[str], recorded: Mapping[str, Value]) -> dict[str, Offer]:
    """Return the limits by name with their values, the recorded value included. `limits` has the names of the wanted limits, or a dict
    of names with the values to try (None: the usual ones).

    Raises ConfigurationError for an unknown name, and LimitError for an invalid value.
    """
    wanted = _wanted(limits, usual)
    found = {name: _with(recorded.get(name), _offer(records, KINDS[name], values)) for name, values in wanted.items()}
    if limits is None and recorded.get("timeout") is None and found["timeout"].values and not tells_time(records):
        found["timeout"] = Offer(KINDS["timeout"], why_not="replayed, or under a second in all of these runs")
    return found


def _with(value: Value, offer: Offer) -> Offer:
    if value is None:
        return offer
    if isinstance(value, tuple):
        return Offer(offer.kind, tuple(dict.fromkeys((*value, *offer.values))))
    return Offer(offer.kind, tuple(sorted({*offer.values, value})))


def _wanted(limits: object, usual: Sequence[str]) -> Mapping[str, Iterable[Value] | None]:
    if limits is None:
        return dict.fromkeys(usual)
    if not _are_several(limits):
        raise ConfigurationError(
            f"explore(…, limits={limits!r}): pass names in a list, such as ['StepCountIs', 'MaxCost'], or a dict."
        )
    wanted = dict(limits) if isinstance(limits, Mapping) else dict.fromkeys(limits)
    for name in wanted:
        if name not in KINDS:
            raise ConfigurationError(f"explore(…, limits=…): {unknown_name('limit', str(name), list(KINDS))}")
    if not wanted:
        raise ConfigurationError("explore(…, limits=[]): pass at least one name, such as 'StepCountIs'.")
    return {name: values if values is None or _are_several(values) else [values] for name, values in wanted.items()}


def _are_several(values: object) -> TypeGuard[Iterable[Any]]:
    return isinstance(values, Iterable) and not isinstance(values, str)


def usual_limits(recorded: RecordedLimits) -> tuple[str, ...]:
    """Return the names of the limits that are offered unless others are wanted: for each running total the one that the runs had; of
    two the smaller, which applies first."""
    found: dict[str, str] = {}
    for name in (*USUAL, *recorded.of_budget):
        before = found.setdefault(KINDS[name].measure, name)
        if before != name and _applies_before(name, before, recorded):
            found[KINDS[name].measure] = name
    return tuple(found.values())


def _applies_before(of_budget: str, condition: str, recorded: RecordedLimits) -> bool:
    if condition in recorded.differing:
        return False
    its, budget = recorded.shared[condition], recorded.shared.get(of_budget)
    return its is None or (budget is not None and budget < its)


def tells_time(records: Records) -> bool:
    """True if the recorded times are those of the models, and not of a replay."""
    last = records.totals["time_s"][records.start[1:][records.lengths > 0] - 1]
    replayed = records.about["replayed"].eq(True).all() if "replayed" in records.about.columns else False
    return not replayed and not (last < SHORTEST_S).all()


def _offer(records: Records, kind: Kind, given: Iterable[Value] | None) -> Offer:
    if kind.leaf is HasToolCall:
        names = tuple(map(str, given)) if given is not None else _tools(records)
        no_column = given is None and "tools" not in records.steps.columns
        why_not = "the steps have no column 'tools'" if no_column else "no tool was called in these runs"
        return Offer(kind, names, "" if names else why_not)
    if given is not None:
        values = sorted({kind.checked(value) for value in given if value is not None})
        if not values:
            raise ConfigurationError(
                f"explore(…, limits={{{kind.name!r}: …}}): pass at least one value, or None for the usual ones."
            )
        return Offer(kind, tuple(values))
    return _from_the_data(records, kind)


def _from_the_data(records: Records, kind: Kind) -> Offer:
    there = records.lengths > 0
    if not there.any():
        return Offer(kind, why_not="no run took a step")
    last = records.start[1:][there] - 1
    if kind.measure == "steps":
        return Offer(kind, round_values(1.0, records.lengths[there].astype(float), int))
    known = records.totals[kind.measure]
    firsts, totals = known[records.start[:-1][there]], known[last]
    firsts, totals = firsts[~np.isnan(firsts)], totals[~np.isnan(totals)]
    if not len(totals):
        return Offer(kind, why_not="unknown in all of these runs")
    if totals.max() <= 0:
        return Offer(kind, why_not="0 in all of these runs")
    if kind.name == "max_calls" and (totals == records.lengths[there]).all():
        return Offer(kind, why_not="one call per step in all of these runs: the limit on steps is the same")
    return Offer(kind, round_values(float(firsts.min(initial=totals.min())), totals, kind.number))


def _tools(records: Records) -> tuple[str, ...]:
    """Return the names of the called tools, the most frequent first."""
    if "tools" not in records.steps.columns:
        return ()
    counts: dict[str, int] = {}
    for cell, count in records.steps["tools"].dropna().value_counts().items():
        for name in dict.fromkeys(str(cell).split(", ")):
            if name.strip():
                counts[name] = counts.get(name, 0) + int(count)
    return tuple(sorted(counts, key=lambda name: (-counts[name], name))[:MOST_TOOLS])


def round_values(least: float, totals: Any, kind: type) -> tuple[Value, ...]:
    """Return round numbers from about `least` to the largest total, few enough for a slider."""
    most = float(totals.max())
    whole = kind is int
    if float(np.median(totals)) * SKEWED < most:
        found = _by_factors(max(least, most / 1e6), most, whole=whole)
    else:
        found = _by_steps(least, most, whole=whole)
    return tuple(int(value) if whole else value if kind is Decimal else float(value) for value in found)


def _by_steps(least: float, most: float, *, whole: bool) -> list[Decimal]:
    """Return equally spaced values."""
    exponent = math.floor(math.log10(most / MOST_STOPS))
    sizes = (Decimal(digit).scaleb(power) for power in range(exponent, max(exponent, -1) + 2) for digit in _STEPS)
    size = next(size for size in sizes if math.ceil(most / float(size)) <= MOST_STOPS and (size >= 1 or not whole))
    first, last = max(1, math.floor(least / float(size))), math.ceil(most / float(size) - 1e-9)
    return [size * place for place in range(first, max(first, last) + 1)]


def _by_factors(least: float, most: float, *, whole: bool) -> list[Decimal]:
    """Return values that rise by a factor of about 1.5, for totals of which a few are much larger than the others."""
    powers = range(math.floor(math.log10(least)), math.ceil(math.log10(most)) + 1)
    rising = [Decimal(digit).scaleb(power) for power in powers for digit in _FACTORS]
    rising = [value for value in rising if value >= 1 or not whole]
    above = next((place for place, value in enumerate(rising) if value >= Decimal(repr(most))), len(rising) - 1)
    found = [value for value in rising[: above + 1] if float(value) >= least] or [rising[above]]
    return found[-MOST_STOPS:]


# Chosen limits --------------------------------------------------------------------------------------------------------------

DEFAULT_TURNS = Budget().max_turns or 0


class ChosenLimits(MutableMapping[str, Value]):
    """The chosen limits by name, None for no limit. Setting a limit moves its slider; `del` removes the limit."""

    def __init__(self, values: Mapping[str, Value]) -> None:
        self._values: dict[str, Value] = dict(values)
        self.on_change: Callable[[], None] | None = None
        """Called after every change."""
        self._lock = threading.Lock()
        self.version = 0
        """Number of changes."""

    def __getitem__(self, name: str) -> Value:
        return self._values[self._known(name)]

    def __setitem__(self, name: str, value: Value) -> None:
        checked = KINDS[self._known(name)].checked(value)
        with self._lock:
            if checked == self._values[name]:
                return
            self._values = {**self._values, name: checked}
            self.version += 1
        if self.on_change is not None:
            self.on_change()

    def __delitem__(self, name: str) -> None:
        self[name] = None

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def _known(self, name: str) -> str:
        if name not in self._values:
            raise KeyError(unknown_name("limit", str(name), list(self._values)))
        return name

    def snapshot(self) -> Mapping[str, Value]:
        """Return the limits now. Later changes do not affect the returned mapping."""
        return self._values

    def __repr__(self) -> str:
        return f"ChosenLimits({self._values!r})"


def stop_of(chosen: Mapping[str, Value]) -> StopCondition | None:
    """Return the stop condition of these limits; None if there is none."""
    leaves = [
        KINDS[name].condition(value) for name, value in chosen.items() if value is not None and KINDS[name].leaf is not None
    ]
    return functools.reduce(operator.or_, leaves) if leaves else None


def limits_of(chosen: Mapping[str, Value]) -> dict[str, Any]:
    """Return the limits of the budget among these."""
    return {name: value for name, value in chosen.items() if value is not None and KINDS[name].leaf is None}


def grid_of(chosen: Mapping[str, Value]) -> Grid:
    """Return these limits as a grid to try on the records."""
    return Grid("", stop_of(chosen), limits_of(chosen), ())


def budget_of(chosen: Mapping[str, Value], longest: int) -> dict[str, Any]:
    """Return the fields of a budget with which a new run would end as the recorded ones do under these limits; empty if the default
    budget is enough.

    The default budget ends a run after 20 steps. `max_turns` is that of the record if it is known; otherwise it is set if recorded runs
    have more steps (`longest` is their maximum).
    """
    limits = limits_of(chosen)
    if "max_turns" in chosen:
        limits = {"max_turns": chosen["max_turns"], **limits}
        return limits if limits["max_turns"] != DEFAULT_TURNS else {n: value for n, value in limits.items() if n != "max_turns"}
    steps = longest if chosen.get("StepCountIs") is None else min(longest, chosen["StepCountIs"])
    return {"max_turns": steps, **limits} if steps > DEFAULT_TURNS else limits


def as_code(chosen: Mapping[str, Value], longest: int) -> str:
    """Return the limits as arguments of `agent.run(…)`."""
    stop = stop_of(chosen)
    leaves = " | ".join(map(_written, stop.parts or (stop,))) if stop is not None else "None"
    budget = ", ".join(f"{name}={value}" for name, value in budget_of(chosen, longest).items())
    return f"stop={leaves}" + (f", budget=Budget({budget})" if budget else "")


def _written(leaf: StopCondition) -> str:
    """Return a condition as code without the name of its field: `StepCountIs(4)`."""
    if isinstance(leaf, HasToolCall):
        return repr(leaf)
    (value,) = (getattr(leaf, field) for field in fields_of(leaf))
    return f"{type(leaf).__name__}({value})"


# Recorded limits ------------------------------------------------------------------------------------------------------------

COLUMNS = {"max_turns": "max_turns", "max_calls": "max_calls", "max_tokens": "max_tokens", "max_cost": "max_cost_usd",
           "timeout": "timeout_s"}  # fmt: skip
"""The columns of a steps frame that hold the limits of the budget."""
ANOTHER = "another condition"
"""The reason for runs whose condition has no slider, or is not in the frame."""
RAISED = "a condition that raised"


@dataclass(frozen=True, slots=True)
class RecordedLimits:
    """The limits of the recorded runs, by the names of KINDS."""

    shared: Mapping[str, Value]
    """The value that all runs had; None: none of them had that limit."""
    differing: frozenset[str]
    """Names of limits that differ between runs, or are unknown."""
    of_budget: Sequence[str]
    """Names of the budget's limits that the runs had, without max_turns if it has the default and no run reached it."""
    others: Sequence[str]
    """Names of limits without a slider."""
    ends: Mapping[str, Bools]
    """By limit or condition, the runs that it ended."""
    cut_off: Bools
    """The runs whose last step was cut off before a further call, by any limit of the budget."""

    def stays(self, changed: set[str]) -> Bools:
        """Return the runs that end as recorded after these limits were changed, since another limit ended them."""
        found: Bools = np.any([runs for name, runs in self.ends.items() if name not in changed], axis=0)
        return found & ~self.cut_off if changed & COLUMNS.keys() - {"max_turns"} else found


def recorded_limits(records: Records) -> RecordedLimits:
    """Read the limits from the last step of each run."""
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
            column, is_known = f"{name}.limit", "condition_met" in columns
            none = name not in leaves or not any_of
        else:
            column, none = COLUMNS[name], False
            is_known = column in columns and not (ends[name][there] & last[column].isna().to_numpy()).any()
        if none and is_known:
            shared[name] = None
        elif column in columns and is_known and last[column].nunique(dropna=False) <= 1:
            values = last[column].dropna().tolist()
            shared[name] = kind.checked(_value(kind.leaf is HasToolCall, values[0])) if values else None
    stopped, named = by_limit & (reason == str(StopReason.STOP_CONDITION)), np.zeros(len(records), bool)
    for leaf in leaves if any_of else ():
        ends[leaf] = stopped.copy()
        ends[leaf][there] &= floats(last, f"{leaf}.met") == 1
        named |= ends[leaf]
    ends |= {ANOTHER: stopped & ~named, RAISED: by_limit & (reason == str(StopReason.ERROR))}
    others = [leaf for leaf in leaves if leaf not in KINDS] if any_of else [f"a combination of {', '.join(leaves)}"]
    if not others and ends[ANOTHER].any():
        others = ["a condition that is not in the frame"]
    if "max_tokens_per_turn" in columns and last["max_tokens_per_turn"].notna().any():
        others.append("max_tokens_per_turn")
    if "last_answer" in columns and last["last_answer"].eq(True).any():
        others.append("last_answer")
    had = [name for name, column in COLUMNS.items() if ends[name].any() or (column in columns and last[column].notna().any())]
    if shared.get("max_turns") == DEFAULT_TURNS and not ends["max_turns"].any():
        had.remove("max_turns")
    return RecordedLimits(shared, frozenset(KINDS) - frozenset(shared), had, others, ends, records.wanted_more)


def _value(names: bool, value: object) -> object:
    return tuple(str(value).split(" or ")) if names else value.item() if isinstance(value, np.generic) else value


def _is_any_of(records: Records, leaves: Sequence[str]) -> bool:
    """True if the condition of the runs is met when any of its leaves is met: only that can be shown with sliders."""
    steps = records.steps
    if not leaves:
        return True
    met = np.any([floats(steps, f"{leaf}.met") == 1 for leaf in leaves], axis=0)
    if "condition_met" in steps.columns and not np.array_equal(met, floats(steps, "condition_met") == 1):
        return False
    if records.histories is None:  # a kind that occurs twice is more often a part of a group, such as a | (a & b)
        return not any(re.fullmatch(r".+_\d+", leaf) for leaf in leaves)
    there = np.flatnonzero(records.lengths)
    forms = steps[[f"{leaf}.limit" for leaf in leaves]].iloc[records.start[1:][there] - 1].isna()
    for run in there[~forms.duplicated().to_numpy()]:  # one run per set of conditions, so that a store need not load all runs
        tree = records.histories(int(run))[-1].settings.stop
        if tree is not None and any(part.parts for part in (tree.parts if isinstance(tree, AnyOf) else (tree,))):
            return False
    return True


def notes(recorded: RecordedLimits, offered: Mapping[str, Offer]) -> str:
    """Return remarks on limits that have no slider, or are not the same in all runs, as HTML."""
    sliders = [name for name, offer in offered.items() if offer.values]
    without = [f"{offer.kind.label}: {offer.why_not}" for offer in offered.values() if not offer.values]
    kept = [name for name in recorded.of_budget if recorded.shared.get(name) is not None and name not in offered]
    without += [f"{KINDS[name].label}: {recorded.shared[name]} in all of these runs, and kept" for name in kept]
    differ = [KINDS[name].label for name in sliders if name in recorded.differing]
    remarks = [f"Without a slider. {'. '.join(without)}."] if without else []
    if differ:
        remarks.append(f"{', '.join(differ)}: not the same in all runs, or unknown. As recorded until you set a value for all.")
    if recorded.others:
        remarks.append(f"Kept as recorded, not in the code: {', '.join(recorded.others)}.")
    return "".join(map(markup.note, remarks))

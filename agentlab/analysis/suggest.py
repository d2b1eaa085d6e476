"""The cheapest limits that keep a given share of the successes, evaluated on runs that were not used to choose them.

found = lab.suggest(results)                                      of steps, tokens, cost and all pairs of them
found = lab.suggest(steps, StepCountIs([2, 4, 8]), keep=0.9, cost="tokens")
agent.run("…", stop=found.stop, budget=found.budget)              or paste found.code
found.kept, found.kept_low, found.kept_high                       the expected share of the successes
lab.suggest(results, by="model").frame                            for each model on its own
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Any, get_args, overload

import numpy as np
import pandas as pd

from agentlab._internal.formatting import counted
from agentlab.analysis import groups
from agentlab.analysis.backtest import Goal, Sums, Task, goal_reached
from agentlab.analysis.compare import TOO_FEW
from agentlab.analysis.conditions import First
from agentlab.analysis.cross_validation import (
    PARTS,
    Counts,
    Judged,
    Measured,
    candidates,
    confirmed,
    count,
    judge,
    measured,
    preference,
    single,
)
from agentlab.analysis.grids import Conditions, Grid, Limits, grids
from agentlab.analysis.groups import By
from agentlab.analysis.intervals import MIN_UNITS, SMALL_SAMPLE, Estimate, checked_level, of_mean, of_share
from agentlab.analysis.records import Bools, Floats, Ints, Records, Units, folds_of, order_of, reordered, units_of
from agentlab.analysis.sources import Recorded, records_of
from agentlab.analysis.suggestion import IN_WORDS, NO_INTERVAL, CostIn, Suggestion, Suggestions, configuration, sentences
from agentlab.errors import ConfigurationError
from agentlab.model.finish_reasons import StopReason

__all__ = ["Suggestion", "Suggestions", "suggest"]


@overload
def suggest(
    recorded: Recorded,
    conditions: Conditions = None,
    *,
    budget: Limits = None,
    goal: Goal = None,
    keep: float = 0.95,
    cost: CostIn = "cost_usd",
    by: None = None,
    runs: pd.DataFrame | None = None,
    folds: int = 5,
    level: float = 0.95,
    confidence: float | None = None,
) -> Suggestion: ...


@overload
def suggest(
    recorded: Recorded,
    conditions: Conditions = None,
    *,
    budget: Limits = None,
    goal: Goal = None,
    keep: float = 0.95,
    cost: CostIn = "cost_usd",
    by: By,
    runs: pd.DataFrame | None = None,
    folds: int = 5,
    level: float = 0.95,
    confidence: float | None = None,
) -> Suggestions: ...


def suggest(
    recorded: Recorded,
    conditions: Conditions = None,
    *,
    budget: Limits = None,
    goal: Goal = None,
    keep: float = 0.95,
    cost: CostIn = "cost_usd",
    by: By | None = None,
    runs: pd.DataFrame | None = None,
    folds: int = 5,
    level: float = 0.95,
    confidence: float | None = None,
) -> Suggestion | Suggestions:
    """Return the cheapest configuration that keeps a share of the successes, evaluated on runs that were not used to choose it.

    recorded    what `lab.backtest` takes: a steps frame, a Store, results of an experiment, or a list of results
    conditions  the candidates, a grid as for `lab.backtest`; with `budget`. Without both, the candidates are no limit, and limits on
                steps, tokens and cost, alone and in pairs, near the usage of the successes
    goal        the definition of success, as for `lab.backtest`. None: the agent finished on its own
    keep        the share to keep, above 0 and up to 1, of the runs that had reached their goal in the record
    cost        the measure to minimize: `cost_usd`, `tokens`, `time_s` or `steps`; the mean over all runs, successes or not
    by          column or columns that group the runs, such as `model`, as for `lab.backtest` and `lab.summary`. The result is then
                `Suggestions`: one for each group, chosen and evaluated on the runs of that group alone
    runs        with a steps frame, its runs frame: columns for `goal` and `by`, the prompts, and runs that took no step
    folds       number of parts for cross-validation; fewer if there are fewer independent units
    level       the confidence level of the intervals
    confidence  the chance, such as 0.95, with which the limits must truly keep that share, see below. None: it is not bounded

    **The rule.** Of the configurations that keep at least `keep` of the successes, choose the one with the lowest cost; if several have
    that cost, the one that keeps most; then the one with fewer limits, the one that was given first, the strictest. If a run was cut
    off in the record, its cost without that limit is unknown: the choice counts its recorded cost in every configuration.

    **Cross-validation.** The rule is applied to all folds but one, and its choice is evaluated on that one; this is repeated for each
    fold. All figures of the Suggestion are from these held-out runs.

    **With `confidence`.** The cheapest limits that keep enough in a sample truly keep less in more than half of the cases. With
    `confidence=0.95` they do in at most 5 %: one half of the runs gives the candidates and their order, the other half tests them one
    after the other until one is not shown to keep `keep`; of those before it the cheapest is chosen. All figures are from the second
    half. This takes more runs: for keep=0.95 at least 118 successes, for 0.9 at least 58, in independent units.

    **Independent units.** Repeats of a prompt and replays of a recording are not independent. A unit is a prompt (`prompt_id`, else
    `prompt`) with all runs that share a `recording_id` with it; for runs of one prompt it is the recording, else the run. No fold
    divides a unit, and the intervals are computed from the units' sums. `units` is their number; if the successes come from fewer
    than 5 units there is no suggestion.

    **Accuracy.** Simulated runs of prompts that differ in steps, success and cost; three in five succeed; about 250 candidates;
    keep=0.95. In %, from 200 samples of each size (prompts x repeats), by `python -m tests.benchmarks --only suggest_coverage`:

                                                                     60 x 1   200 x 1   20 x 5   50 x 4
        share kept on the runs that were used to choose                96.8      95.4     95.9     95.5
        true share kept, on other prompts                              92.7      94.1     92.7     94.0
        `kept`, the estimate in the Suggestion                         92.0      93.9     92.3     93.6
        true share kept by the choices from four fifths of the runs    91.9      94.2     92.4     94.0
        95 % interval of `kept` contains that true share               97.5      96.0     99.0     96.0
        95 % interval of `saved` contains the true value               93.0      94.5     94.0     95.0
        95 % interval of `cost` contains the true value                96.5      93.0     96.0     95.5
        95 % interval of `kept` contains the suggestion's true share   96.0      91.5     99.0     94.0

    Errors: ConfigurationError and LimitError for conditions and limits that cannot be tried. Too few successes, no known cost, or a
    share that no candidate keeps are not errors: the Suggestion is then False, and its `why` has the reason.

    Example:
        >>> good = [await brief.run("?") for _ in range(30)]
        >>> bad = [await endless.run("?", stop=lab.StepCountIs(9)) for _ in range(30)]
        >>> found = lab.suggest(good + bad, lab.StepCountIs([1, 3, 9]), cost="tokens")
        >>> found.code
        'stop=StepCountIs(1)'
        >>> found.kept, round(found.saved, 2)
        (1.0, 0.8)
        >>> both = await lab.Experiment({"brief": brief, "endless": endless}, ["?"], repeats=30).run(progress=False)
        >>> each = lab.suggest(both, lab.StepCountIs([1, 3, 9]), cost="tokens", by="agent").frame
        >>> each[["agent", "code", "runs", "successes", "kept", "kept_low"]]
             agent                 code  runs  successes  kept  kept_low
        0    brief  stop=StepCountIs(1)    30         30   1.0  0.884297
        1  endless                 <NA>    30          0  <NA>      <NA>
        >>> each["no_suggestion"][1]
        'Only 0 of 30 runs had reached their goal, and 5 are needed: record more runs, or define success with goal=….'
    """
    if isinstance(keep, bool) or not isinstance(keep, int | float) or not 0 < keep <= 1:
        raise ConfigurationError(f"keep={keep!r}: pass the share of the successes to keep, above 0 and up to 1, such as 0.95.")
    if isinstance(folds, bool) or not isinstance(folds, int) or folds < 2:
        raise ConfigurationError(f"folds={folds!r}: pass the number of parts to divide the runs into, at least 2, such as 5.")
    rule = _Rule(conditions, budget, float(keep), cost, folds, checked_level(level), confidence)
    if confidence is not None and (checked_level(confidence, "confidence") <= 0.5 or keep == 1):
        raise ConfigurationError(
            f"confidence={confidence!r}, keep={keep!r}: pass a confidence above 0.5, such as 0.95, and a share to keep below 1, since "
            "no number of runs shows that limits keep all."
        )
    if cost not in get_args(CostIn):
        raise ConfigurationError(f"cost={cost!r}: choose one of {', '.join(get_args(CostIn))}.")
    if rule.is_given:
        grids(conditions, budget)  # raises for invalid ones before the runs are read
    columns = [] if by is None else groups.columns_of(by)
    records = records_of(recorded, runs)
    reached, open_from = goal_reached(records, goal)
    if by is None:
        return _suggested(records, reached, open_from, rule)
    about = records.with_columns(columns, "by")
    names = groups.names_of(about, columns)
    found = {}
    for name in groups.in_order(names):
        its = np.flatnonzero(names == name)
        found[name] = _suggested(reordered(records, its), reached[its], open_from[its], rule)
    return Suggestions(tuple(columns), found, about.loc[~names.duplicated(), columns].reset_index(drop=True))


@dataclasses.dataclass(frozen=True, slots=True)
class _Rule:
    """The parameters of a search."""

    conditions: Conditions
    budget: Limits
    keep: float
    cost: CostIn
    folds: int
    level: float
    confidence: float | None

    @property
    def is_given(self) -> bool:
        """True if the candidates were given."""
        return self.conditions is not None or bool(self.budget)


def _suggested(records: Records, reached: First, open_from: First, rule: _Rule) -> Suggestion:
    """Return the suggestion for these runs."""
    order = order_of(records.about)
    records, reached, open_from = reordered(records, order), reached[order], open_from[order]
    is_open = open_from < records.lengths
    keep, cost, folds, level = rule.keep, rule.cost, rule.folds, rule.level
    measures = measured(records, reached, is_open, cost)
    successes = int(measures.succeeded.sum())
    units = units_of(records.about)
    nothing = Suggestion(keep, cost, None, runs=len(records), units=units.number, successes=successes)
    if (lacking := _lacking(measures, is_open, units)) is not None:
        return _because(nothing, lacking)
    folds = min(folds if rule.confidence is None else 2, units.count_of(measures.succeeded))
    fold = folds_of(units, measures.succeeded, folds)
    own = None
    if not rule.is_given:
        seen = np.flatnonzero(fold == 0) if rule.confidence is not None else np.arange(len(records))
        own = candidates(reordered(records, seen), reached[seen], measures.succeeded[seen], keep)
    tried = grids(rule.conditions if own is None else own, rule.budget)
    task = Task(records, tried, reached, open_from, units.codes)
    counts, sums = count(task, measures, fold, folds)
    order = preference(tried)
    points = [single(grid, point) for grid, point in task.configurations()]
    if rule.confidence is None:
        chosen = counts.cheapest(keep, order)
        by_fold = [counts.without(out).cheapest(keep, order) for out in range(folds)]
        elsewhere = [counts.without(out).most(order) if one is None else one for out, one in enumerate(by_fold)]
    else:
        first = counts.without(1)
        chosen = first.cheapest(keep, order, confirmed(task, measures, first, order, fold == 1, keep, rule.confidence))
        by_fold = [chosen]
        elsewhere, fold, folds = (
            [first.most(order) if chosen is None else chosen],
            fold - 1,
            1,
        )  # evaluated on the second half only
    judged = judge(task, measures, elsewhere, fold)
    frame = _frame(_Answer(task, counts, sums, elsewhere, chosen, judged, fold, measures, points), level)
    if chosen is None and rule.confidence is not None:
        testing, needed = (
            units.count_of(measures.succeeded & (fold == 0)),
            math.ceil(math.log(1 - rule.confidence) / math.log(keep)),
        )
        return _because(
            nothing,
            f"No configuration is shown to keep {keep:.4g} of the successes with a confidence of {rule.confidence:.4g}. The half of "
            f"the runs that tests has successes of {units.counted(testing)}, and it takes at least {needed:,}, of which all are kept: "
            "record more runs, or pass a lower value of keep or confidence.",
            frame,
        )
    if chosen is None:
        best = counts.most(order)
        return _because(
            nothing,
            f"None of {task.size:,} configurations keeps {keep:.4g} of the {successes:,} successes; the most, "
            f"{counts.share[best]:.1%}, is kept by {configuration(points[best], 0).code}: try looser limits, or a lower value of keep.",
            frame,
        )
    held_out = fold >= 0
    kept, saved, mean = _estimates(judged, measures, units, level, held_out)
    both = ~np.isnan(judged.used)
    found = Suggestion(
        keep,
        cost,
        configuration(points[chosen], _longest(task, points[chosen])),
        *(kept.value, kept.low, kept.high),
        *(saved.value, saved.low, saved.high),
        *(mean.value, mean.low, mean.high),
        cost_recorded=float(measures.whole[both].mean()) if mean.value is not None else None,
        runs=len(records),
        units=units.number,
        successes=successes,
        unknown_share=float(judged.unknown[held_out].mean()),
        folds=folds,
        same_choice=elsewhere.count(chosen),
        confidence=rule.confidence,
        frame=frame,
    )
    own_share = float(counts.share[chosen])
    why = list(sentences(found, candidates=task.size, own_share=own_share, unit=units.what, level=level))
    ended = int((records.reason.astype(str) == str(StopReason.STOP_CONDITION)).sum())
    if own is not None and ended:
        why.append(
            f"{ended:,} of {len(records):,} runs ended by a stop condition, which these limits do not include: pass it with them."
        )
    why += [*_cautions(records, measures, is_open, units, judged, by_fold, held_out), *_no_interval(kept, saved, mean)]
    return dataclasses.replace(found, why=tuple(why))


def _because(nothing: Suggestion, reason: str, frame: pd.DataFrame | None = None) -> Suggestion:
    return dataclasses.replace(nothing, why=(reason,), frame=pd.DataFrame() if frame is None else frame)


def _lacking(measures: Measured, is_open: Bools, units: Units) -> str | None:
    """Return why there can be no suggestion; None if there can be one."""
    runs, successes = len(is_open), int(measures.succeeded.sum())
    if successes < MIN_UNITS:
        unknown = f"; for {counted(int(is_open.sum()), 'run')} it is unknown" if is_open.any() else ""
        return (
            f"Only {successes} of {counted(runs, 'run')} had reached their goal{unknown}, and {MIN_UNITS} are needed: record more "
            "runs, or define success with goal=…."
        )
    if (several := units.count_of(measures.succeeded)) < MIN_UNITS:
        more = "record runs of more prompts" if units.what == "prompt" else "record the task again"
        return (
            f"All {successes:,} successes are of {units.counted(several)}, and runs of one {units.what} are not independent. A "
            f"suggestion needs {MIN_UNITS} {units.what}s: {more}."
        )
    if np.isnan(measures.whole).all():
        others = ", ".join(repr(name) for name in get_args(CostIn) if name != measures.cost)
        return f"cost={measures.cost!r} is unknown for all runs: use another measure, {others}."
    return None


def _longest(task: Task, grid: Grid) -> int:
    """Return the number of steps of the longest recorded run under a configuration."""
    one = dataclasses.replace(task, grids=[grid])
    return max(int(judge.verdict(grid, ()).row.max(initial=-1)) for _, judge in one.parts()) + 1


# Figures -----------------------------------------------------------------------------------------------------------------------


def _estimates(
    judged: Judged, measures: Measured, units: Units, level: float, held_out: Bools
) -> tuple[Estimate, Estimate, Estimate]:
    """Return the kept share of the successes, the saved share of the cost, and the mean cost, on held-out runs."""
    known = ~np.isnan(judged.kept)
    kept = of_share(judged.kept[known], units.of[known], level=level)
    spent = ~np.isnan(judged.used) & ~np.isnan(measures.whole)
    used, whole, of = judged.used[spent], measures.whole[spent], units.of[spent]
    runs = int(held_out.sum())
    if 2 * len(used) < runs:
        why = f"unknown for {runs - len(used):,} of {runs:,} runs{_half(held_out)}"
        unknown = Estimate(None, None, None, len(used), why)
        return kept, unknown, unknown
    mean = of_mean(used, of, level=level, least=0.0)
    return kept, _saved(used, whole, of, level), mean


def _saved(used: Floats, whole: Floats, of: Ints, level: float) -> Estimate:
    """Return the saved share of the cost. Its interval is computed on the logarithm of the remaining share, from the units' errors."""
    if not used.sum():
        return Estimate(1.0 if whole.sum() else None, None, None, len(used), "the cost is 0")
    left = float(used.sum() / whole.sum())
    errors = used / used.mean() - whole / whole.mean()  # of the logarithm of a ratio, to the first order
    found = of_mean(errors, of, level=level)
    if found.low is None or found.high is None:
        return dataclasses.replace(found, value=1 - left)
    return dataclasses.replace(
        found, value=1 - left, low=max(0.0, 1 - left * math.exp(found.high)), high=1 - left * math.exp(found.low)
    )


@dataclasses.dataclass(frozen=True, slots=True)
class _Answer:
    task: Task
    counts: Counts
    sums: Sums
    taken: Sequence[int]
    chosen: int | None
    judged: Judged
    fold: Ints
    measures: Measured
    points: Sequence[Grid]


def _frame(answer: _Answer, level: float) -> pd.DataFrame:
    """Return one row per candidate: that of a backtest, and the figures by which it was chosen and evaluated."""
    task, counts, judged = answer.task, answer.counts, answer.judged
    priced = int((~np.isnan(answer.measures.whole)).sum())
    size = range(task.size)
    held = {
        number: np.isin(answer.fold, [at for at, one in enumerate(answer.taken) if one == number]) for number in set(answer.taken)
    }

    def of_held_out(values: Any) -> list[float | None]:
        means = {number: values[here & ~np.isnan(values)] for number, here in held.items()}
        return [float(means[number].mean()) if number in means and len(means[number]) else None for number in size]

    share = counts.share
    return pd.DataFrame(
        {
            **task.named(),
            **answer.sums.columns(level),
            "code": pd.array([configuration(point, 0).code for point in answer.points], dtype="string"),
            "kept_share": pd.array([None if np.isnan(one) else float(one) for one in share], dtype="Float64"),
            "spent_mean": pd.array(counts.spent.sum(axis=1) / PARTS[answer.measures.cost] / priced, dtype="Float64"),
            "chosen": pd.array([number == answer.chosen for number in size], dtype="boolean"),
            "folds_chosen": pd.array([answer.taken.count(number) for number in size], dtype="Int64"),
            "held_out_runs": pd.array([int(held[number].sum()) if number in held else None for number in size], dtype="Int64"),
            "held_out_kept": pd.array(of_held_out(judged.kept), dtype="Float64"),
            "held_out_cost": pd.array(of_held_out(judged.used), dtype="Float64"),
        }
    )


# Words -------------------------------------------------------------------------------------------------------------------------


def _cautions(  # noqa: PLR0917
    records: Records,
    measures: Measured,
    is_open: Bools,
    units: Units,
    judged: Judged,
    by_fold: Sequence[int | None],
    held_out: Bools,
) -> Iterator[str]:
    """Yield sentences on how far the suggestion can be trusted."""
    runs, succeeded = len(records), measures.succeeded & held_out
    successes, held, half = int(succeeded.sum()), int(held_out.sum()), _half(held_out)
    if successes < SMALL_SAMPLE:
        yield f"{counted(successes, 'success').replace('successs', 'successes')}{half}: {TOO_FEW}."
    elif (several := units.count_of(succeeded)) < SMALL_SAMPLE:
        yield f"Successes of {units.counted(several)}{half}: {TOO_FEW}."
    if units.one_prompt:
        yield "All runs are of one prompt: this is valid for that prompt only."
    elif units.what == "run":
        yield "The prompts and recordings of the runs are unknown: this treats the runs as independent of each other."
    if failed := int((records.reason.astype(str) == str(StopReason.ERROR)).sum()):
        yield f"{failed:,} of {runs:,} runs ended in an error: they did not reach the goal, and their cost counts where it is known."
    if unknown := int(judged.unknown.sum()):
        yield (
            f"{unknown:,} of {held:,} runs{half} ({unknown / held:.1%}) were cut off in the record before these limits: their full "
            "cost is unknown and left out; the choice counts their recorded cost."
        )
    if no_cost := int(np.isnan(measures.whole[held_out]).sum()):
        what, is_or_are = IN_WORDS[measures.cost], "is" if measures.cost in ("cost_usd", "time_s") else "are"
        share = f"{no_cost:,} of {held:,} runs{half} ({no_cost / held:.1%})"
        yield f"For {share} {what} {is_or_are} unknown: they are left out of that figure."
    if is_open.any():
        yield f"For {int(is_open.sum()):,} of {runs:,} runs it is unknown whether they succeeded: they count as neither."
    if lost := int(np.isnan(judged.kept[succeeded]).sum()):
        yield f"For {lost:,} of {successes:,} successes{half} it is unknown whether these limits would keep them: they are left out."
    if cut := int((~records.own_end & ~measures.succeeded & ~is_open).sum()):
        yield f"{cut:,} of {runs:,} runs were cut off in the record without success: whether they would have succeeded is unknown."
    if None in by_fold:
        yield (
            f"In {by_fold.count(None)} of {len(by_fold)} parts no configuration kept enough: the one that kept most was evaluated "
            "there."
        )


def _half(held_out: Bools) -> str:
    """Return which runs these are, in words; empty if they are all."""
    return "" if held_out.all() else " of the second half"


def _no_interval(kept: Estimate, saved: Estimate, cost: Estimate) -> Iterator[str]:
    for what, estimate in (("the kept share", kept), ("the saved share", saved), ("the cost", cost)):
        if estimate.why is not None:
            yield f"{NO_INTERVAL} {what}: {estimate.why}."

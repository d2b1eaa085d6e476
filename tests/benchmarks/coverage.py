"""How often the intervals of whole comparisons contain the true value, in simulated experiments; `interval_coverage` has each interval.

`python -m tests.benchmarks --only coverage --no-peers` prints the share for every interval, number of prompts and number of
repeats, over 200 experiments each (100 where providers are compared), and in brackets how many had no interval. A correct 95 %
interval contains the true value 95 times in 100.

Each experiment draws new prompts. The difficulty differs between prompts and by provider; on average the providers are equal.
Costs are lognormal with a total sigma of 1, 0.8 of it between prompts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

import agentlab as lab
from tests.benchmarks.table import Row

UNITS, REPEATS = (3, 5, 10, 20, 50), (1, 5, 20)
STUDIES = 200
REASONS = np.array(["completed", "turn_limit", "cost_budget"])
MET = (0.6, 0.3, 0.1)
"""Probability of each end of a run."""
LAST = 8
"""Maximum number of steps of a run."""
AT = 4
"""The step after which a curve is read."""


def experiments(units: int, repeats: int, count: int, seed: int = 0) -> pd.DataFrame:
    """The runs of several experiments of the providers a and b; the column `study` numbers the experiments."""
    random = np.random.default_rng([seed, units, repeats])
    shape = (count, 2, units, repeats)
    prompt, own = random.normal(size=(count, 1, units, 1)), random.normal(size=(count, 2, units, 1))
    hard = np.broadcast_to(0.8 * prompt + 0.6 * own, shape)
    score = random.random(shape) < 1 / (1 + np.exp(1.5 * hard - 1))
    grade = 1 / (1 + np.exp(hard + random.normal(size=shape)))
    steps = np.minimum(LAST, 1 + random.poisson(np.exp(1 + 0.4 * hard)))
    usual = np.broadcast_to(random.choice(3, p=MET, size=(count, 1, units, 1)), shape)
    reason = np.where(
        random.random(shape) < random.uniform(0.4, 1, (count, 1, units, 1)), usual, random.choice(3, p=MET, size=shape)
    )
    grade_5 = 1 + np.floor(5 * grade)
    study, provider, prompt, repeat = (places.ravel() for places in np.indices(shape))
    return pd.DataFrame(
        {
            "study": study,
            "provider": np.array(["a", "b"])[provider],
            "prompt_id": prompt,
            "repeat": repeat,
            "score": score.ravel(),
            "grade": grade.ravel(),
            "judge": (score ^ (random.random(shape) < 0.15)).ravel(),
            "grade_5": grade_5.ravel(),
            "judge_5": np.clip(grade_5 + random.choice([-1, 0, 1], size=shape), 1, 5).ravel(),
            "cost_usd": np.exp(0.8 * hard + 0.6 * random.normal(size=shape)).ravel(),
            "total_tokens": (1_000 * random.gamma(4, 0.25, shape) * np.exp(0.5 * hard)).round().ravel(),
            "terminated": (random.random(shape) < 1 / (1 + np.exp(1.5 * hard - 2))).ravel(),
            "stop_reason": REASONS[reason].ravel(),
            "steps": steps.ravel(),
        }
    )


FIGURES = {
    "summary, completion": ("completion_rate", "completion"),
    "summary, success": ("success_rate", "success"),
    "summary, mean cost": ("cost_mean", "cost"),
    "summary, median cost": ("cost_median", "cost_median"),
    "summary, mean tokens": ("tokens_mean", "tokens"),
    "summary, median tokens": ("tokens_median", "tokens_median"),
    "summary, mean score": ("score_mean", "score"),
}
PAIRED = {
    "paired, success": ("score", None),
    "paired, cost": ("cost_usd", None),
    "paired, score, means of repeats": ("grade", "prompt_id"),
}


Intervals = dict[str, list[tuple[Any, Any, Any]]]
"""By name: for each experiment the value and its interval."""


def of_groups(runs: pd.DataFrame, **options: Any) -> Intervals:
    """The intervals of one provider's figures."""
    runs, found = runs[runs["provider"] == "a"], {}
    for scored, names in ((runs, [*FIGURES][:-1]), (runs.assign(score=runs["grade"]), [*FIGURES][-1:])):
        table = lab.summary(scored, by="study", **options)
        for name in names:
            value, prefix = FIGURES[name]
            found[name] = [*zip(table[value], table[f"{prefix}_low"], table[f"{prefix}_high"], strict=True)]
    curves = lab.plots.survival_data(runs.assign(terminated=runs["steps"] < LAST), by="study", **options)
    after = curves[curves["step"] <= AT].groupby("group", sort=False).tail(1)
    found["survival, a step"] = [*zip(after["alive"], after["low"], after["high"], strict=True)]
    return found


def of_pairs(runs: pd.DataFrame, **options: Any) -> Intervals:
    """The intervals of comparisons of two providers."""
    found: Intervals = {}
    for _, study in runs.groupby("study"):
        for name, (what, on) in PAIRED.items():
            row = lab.paired(study, what, on=on, **options).iloc[0]
            found.setdefault(name, []).append((row["difference"], row["low"], row["high"]))
        row = lab.agreement(study, **options).overall.iloc[0]
        for name, prefix in (("agreement, share", "share"), ("agreement, kappa", "kappa")):
            found.setdefault(name, []).append((row[prefix], row[f"{prefix}_low"], row[f"{prefix}_high"]))
    return found


def of_raters(runs: pd.DataFrame, **options: Any) -> Intervals:
    """The intervals of the agreement of a person and a judge about one provider's runs."""
    found: Intervals = {}
    for _, study in runs[runs["provider"] == "a"].groupby("study"):
        for what, names in (("yes or no", ["score", "judge"]), ("grades", ["grade_5", "judge_5"])):
            row = lab.raters(study, names, **options).iloc[0]
            for name in ("kappa", "alpha"):
                found.setdefault(f"raters, {name} of {what}", []).append((row[name], row[f"{name}_low"], row[f"{name}_high"]))
    return found


@cache
def answers() -> Mapping[str, float]:
    """The true values: the figures of an experiment with very many prompts."""
    runs = experiments(20_000, 1, 1, seed=1)
    return {name: float(found[0][0]) for name, found in (of_groups(runs) | of_pairs(runs) | of_raters(runs)).items()}


def covered(found: Intervals) -> dict[str, tuple[float, float]]:
    """For each interval, how often it contained the true value (NaN without an interval) and the share of experiments without one."""
    shares = {}
    for name, every in found.items():
        inside = [low <= answers()[name] <= high for _, low, high in every if not pd.isna(low)]
        shares[name] = (float(np.mean(inside)) if inside else np.nan, 1 - len(inside) / len(every))
    return shares


def table(cells: Mapping[tuple[int, int], Mapping[str, tuple[float, float]]]) -> str:
    """The shares as a markdown table: one row per interval, one column per number of prompts and of repeats."""
    head = ["intervals at 95 %", *(f"{units} x {repeats}" for units, repeats in cells)]
    lines = [head, ["-" * len(name) for name in head]]
    for name in answers():
        shares = [cells[cell][name] for cell in cells]
        lines.append(
            [name, *("none" if np.isnan(one) else f"{one:.0%}{f' ({none:.0%})' if none else ''}" for one, none in shares)]
        )
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in lines
    )


def rows(with_peers: bool) -> Iterator[Row]:
    """One row per interval with its worst coverage. The worst of many is lowered by chance; the whole table is printed."""
    cells = {}
    for units, repeats in product(UNITS, REPEATS):
        runs = experiments(units, repeats, STUDIES)
        cells[units, repeats] = covered(of_groups(runs) | of_pairs(runs[runs["study"] < STUDIES // 2]) | of_raters(runs))
    print(table(cells))
    for name in answers():
        missed = [100 * (1 - cell[name][0]) for cell in cells.values() if cell[name][1] < 0.5]
        yield Row(
            benchmark=f"misses at 95 %, worst size: {name}", unit="%", goal="<= 13", at_most=2.6, ours=max(missed), against=5.0
        )

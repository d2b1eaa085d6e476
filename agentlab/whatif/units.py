"""Independent units of runs, for intervals and for the folds of cross-validation.

Repeats of a prompt resemble each other, and replays of one recording are the same run. So a unit is a prompt with all its runs, and all
that share a recording with them. Where all runs are of one prompt, units are recordings, and hold for that prompt only. A run of which
neither is known is a unit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from agentlab.amounts import counted
from agentlab.comparing import groups
from agentlab.whatif.records import Bools, Ints, Records

SEED = 20_240_229
PROMPTS = ("prompt_id", "prompt")


@dataclass(frozen=True, slots=True)
class Units:
    """`what` the units are, `prompt`, `recording` or `run`, and the unit of each run, from 0."""

    what: str
    of: Ints
    one_prompt: bool
    """All runs are of one prompt."""

    @property
    def number(self) -> int:
        """The number of units."""
        return int(self.of.max(initial=-1)) + 1

    @property
    def codes(self) -> Ints | None:
        """`of`; None where each run is a unit."""
        return None if self.number == len(self.of) else self.of

    def count_of(self, runs: Bools) -> int:
        """The number of units of these runs."""
        return len(np.unique(self.of[runs]))

    def counted(self, number: int) -> str:
        """A number of units in words."""
        return counted(number, self.what)


def units_of(about: pd.DataFrame) -> Units:
    """The units of these runs, numbered by their first run."""
    about = about.reset_index(drop=True)
    prompt = groups.unit_of(about, None)
    one = bool(prompt) and about[prompt[0]].nunique(dropna=False) == 1
    columns = about.drop(columns=[name for name in PROMPTS if name in about.columns]) if one else about
    recorded = "recording_id" in about.columns and about["recording_id"].notna().any()
    what = "prompt" if prompt and not one else "recording" if recorded else "run"
    return Units(what, np.unique(groups.units_of(columns, None), return_inverse=True)[1].astype(np.int64), one)


def order_of(about: pd.DataFrame) -> Ints:
    """The places of the runs by unit and id, so that the order in which they were passed changes nothing."""
    by_id = np.argsort(about["run_id"].astype(str).to_numpy(), kind="stable")
    found: Ints = by_id[np.argsort(units_of(about.iloc[by_id]).of, kind="stable")]
    return found


def reordered(records: Records, order: Ints) -> Records:
    """The runs at these places, in this order."""
    if np.array_equal(order, np.arange(len(records))):
        return records
    lengths, histories = records.lengths[order], records.histories
    start = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    rows = np.arange(int(start[-1])) - np.repeat(start[:-1], lengths) + np.repeat(records.start[:-1][order], lengths)
    return Records(
        records.about.iloc[order].reset_index(drop=True),
        start,
        records.steps.iloc[rows].reset_index(drop=True),
        records.own_end[order],
        records.cut_short[order],
        records.wanted_more[order],
        records.reason[order],
        records.goal[order],
        None if histories is None else (lambda run: histories(int(order[run]))),
    )


def folds_of(units: Units, succeeded: Bools, folds: int) -> Ints:
    """The fold of each run: successes spread evenly, then runs, else in a random order that is always the same."""
    number = int(units.of.max()) + 1
    successes = np.bincount(units.of[succeeded], minlength=number)
    runs = np.bincount(units.of, minlength=number)
    shuffled = np.random.default_rng(SEED).permutation(number)
    fold_of = np.zeros(number, np.int64)
    filled = [[0, 0, fold] for fold in range(folds)]
    for unit in shuffled[np.argsort(-successes[shuffled], kind="stable")]:
        least = min(filled)
        least[0] += int(successes[unit])
        least[1] += int(runs[unit])
        fold_of[unit] = least[2]
    return fold_of[units.of]

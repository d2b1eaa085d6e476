"""Agreement of groups of runs: how often they end for the same reason on the same task."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from agentlab._internal.formatting import counted
from agentlab._internal.safe_text import AS_WRITTEN, printable
from agentlab.analysis.compare import default_shared, reasons_in_words, small_sample, unit_hint
from agentlab.analysis.groups import (
    By,
    checked,
    columns_of,
    each_once,
    in_order,
    names_of,
    outermost,
    runs_of,
    typed_frame,
    unit_of,
    units_of,
)
from agentlab.analysis.intervals import MIN_UNITS, Estimate, checked_level, of_share
from agentlab.errors import ConfigurationError
from agentlab.records.frames import Recordings

SHOWN_PAIRS = 24
"""Number of pairs shown in a notebook; `pairs` has all of them."""

REASONS = ("stop_reason", "finish_reason")
MEANING = {
    "stop_reason": "the same stop_reason, why the run ended",
    "finish_reason": "the same finish_reason, why the last response of the run ended",
}


@dataclass(frozen=True, slots=True)
class Agreement:
    """How often groups of runs ended for the same reason on the same tasks; the result of `lab.agreement`.

    Example:
        >>> both = lab.agreement(lab.frame([result, *others], "runs"), on="prompt")
        >>> both.pairs[["group_a", "group_b", "scenarios", "same"]]
             group_a group_b  scenarios  same
        0  anthropic  openai          1     1
        1  anthropic  gemini          1     1
        2     openai  gemini          1     1
    """

    what: str
    """The compared reason, in words."""
    overall: pd.DataFrame
    """One row: `groups`, the number of `scenarios` for which all groups have a reason, of independent `units`, of scenarios `left_out`,
    and of those in which all groups have the `same` reason; `share`, `share_low`, `share_high` (exact), `kappa` (Fleiss), `kappa_low`,
    `kappa_high`, `small_sample`, `no_interval`; `method`, how the intervals are computed."""
    pairs: pd.DataFrame
    """One row per pair of groups, `group_a` and `group_b`: the same columns, with Cohen's kappa."""
    confusion: pd.DataFrame
    """One row per pair of reasons that occurred together: `group_a`, `group_b`, `reason_a`, `reason_b`, `scenarios`."""
    scenarios: pd.DataFrame
    """One row per scenario: its columns, one column per group with the reason (NA: no ended run), `same` (NA: a reason is missing)."""

    def table(self, group_a: str, group_b: str) -> pd.DataFrame:
        """Counts of scenarios: one row per reason of `group_a`, one column per reason of `group_b`.

        Example:
            >>> both = lab.agreement(lab.frame([result, *others], "runs"), on="prompt")
            >>> both.table("anthropic", "openai")
            openai          stop_condition
            anthropic
            stop_condition               1
        """
        groups = list(self.overall["groups"].iloc[0].split(", ")) if len(self.overall) else []
        for name in (group_a, group_b):
            if name not in self.scenarios.columns:
                raise ConfigurationError(f"There is no group {name!r}. Groups: {', '.join(groups) or 'none'}.")
        both = self.scenarios[[group_a, group_b]].dropna()
        return pd.crosstab(both[group_a], both[group_b])

    def __repr__(self) -> str:
        return printable(f"Agreement({self.what}; {self._words()})")

    def _repr_html_(self) -> str:
        tables = "".join(
            table.head(SHOWN_PAIRS).to_html(index=False, border=0, escape=True, na_rep="") for table in (self.overall, self.pairs)
        )
        if len(self.pairs) > SHOWN_PAIRS:
            tables += f"<p>… and {len(self.pairs) - SHOWN_PAIRS:,} more in <code>.pairs</code></p>"
        return f'<div class="{AS_WRITTEN}"><p>{html.escape(printable(f"{self.what}: {self._words()}"))}</p>{tables}</div>'

    def _words(self) -> str:
        row = self.overall.iloc[0]
        if not row["scenarios"]:
            return "no scenario for which every group has a reason"
        units = f" in {counted(int(row['units']), 'independent unit')}" if row["units"] < row["scenarios"] else ""
        return f"the same in {row['same']} of {counted(int(row['scenarios']), 'scenario')}{units}"


def agreement(
    frame: Recordings | pd.DataFrame,
    what: str | None = None,
    by: By = "provider",
    on: By | None = None,
    *,
    level: float = 0.95,
    unit: By | None = None,
) -> Agreement:
    """Return how often groups of runs end for the same reason on the same scenario, and how far that exceeds chance.

    `frame` is anything that `lab.frame` takes, a frame with one row per run, or the termination frame (one row per response; the last
    one of each run counts) with the columns of the scenario. `what` is the compared column: `stop_reason` (why the run ended) or
    `finish_reason` (why its last response ended); by default the first that exists. `on` names the columns that define a scenario; by
    default `prompt_id` (or `prompt`), `settings` and `repeat`, as far as they exist.

    Kappa is 1 if all groups agree, and 0 if they agree as often as expected by chance, given how often each reason occurs; it is NA if
    there is only one reason. Each repeat of a prompt is a scenario. Scenarios of one prompt or one recording are one unit, and the
    intervals are computed from the units; see `lab.summary` for `unit`. A failed run has the reason `error`. A scenario is left out if
    one of its runs has no reason. The runs of sub-agents are left out, as in `lab.summary`.

    Errors: ConfigurationError if columns are missing, or if a group has several runs of one scenario.

    Example:
        >>> lab.agreement(lab.frame([result, *others], "runs"), on="prompt")
        Agreement(the same stop_reason, why the run ended; the same in 1 of 1 scenario)
    """
    columns, level, frame = columns_of(by), checked_level(level), runs_of(frame, "lab.agreement")
    of = what if what is not None else next((name for name in REASONS if name in frame.columns), REASONS[0])
    shared = columns_of(on, "on") if on is not None else default_shared(frame, columns)
    advice = 'one row per run with the columns of a scenario, such as frame.merge(runs[["run_id", "prompt_id"]], on="run_id")'
    rows = checked(frame, [*columns, of, *shared, *([] if unit is None else unit_of(frame, unit))], "lab.agreement", advice)
    if "call" in rows.columns and "run_id" in rows.columns:
        rows = rows.drop_duplicates("run_id", keep="last")
    rows = outermost(each_once(rows))
    rows = rows[rows[shared].notna().all(axis=1)].reset_index(drop=True)
    if "stop_reason" in rows.columns:  # a run that is still running has no reason yet
        rows = rows.assign(**{of: rows[of].astype("string").where(rows["stop_reason"].notna())})
    answers, rows = _reasons_by_scenario(rows, of, columns, shared)
    groups = [name for name in answers.columns if name not in shared]
    complete = answers[groups].notna().all(axis=1) & (len(groups) > 1)
    same = _all_agree(answers[groups]).astype("boolean").mask(~complete)
    pairs = list(combinations(groups, 2))
    reason_pairs = [_reason_pairs(answers, a, b) for a, b in pairs]

    def columns_for(*names: str) -> list[Any]:
        row = _agreement_row(answers[[*names]], rows[rows[_SCENARIO_GROUP].isin(names)], unit, level)
        return [row[name] for name in _AGREEMENT_COLUMNS]

    return Agreement(
        what=MEANING.get(of, f"the same {of}"),
        overall=typed_frame([(", ".join(groups), *columns_for(*groups))], {"groups": "string", **_AGREEMENT_COLUMNS}),
        pairs=typed_frame(
            [(a, b, *columns_for(a, b)) for a, b in pairs], {"group_a": "string", "group_b": "string", **_AGREEMENT_COLUMNS}
        ),
        confusion=pd.concat(reason_pairs, ignore_index=True)
        if reason_pairs
        else _reason_pairs(pd.DataFrame(columns=["a", "b"], dtype="string"), "a", "b"),
        scenarios=answers.assign(same=same),
    )


_SCENARIO, _SCENARIO_GROUP = "its scenario", "its group"


def _reasons_by_scenario(rows: pd.DataFrame, of: str, by: Sequence[str], on: Sequence[str]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return one row per scenario, with its columns and one column per group; and the runs, each with the number of its scenario."""
    task, group = names_of(rows, on, between="\x1f"), names_of(rows, by)
    twice = pd.DataFrame({"task": task, "group": group}).duplicated()
    if twice.any():
        first = int(twice.to_numpy().argmax())
        words = ", ".join(f"{name}={rows[name].astype(object)[first]!r}" for name in on)
        of_group = int(((task == task[first]) & (group == group[first])).sum())
        raise ConfigurationError(
            f"lab.agreement(): {group[first]} has {of_group} runs with {words}: add the column that distinguishes them to on=[…], "
            f'such as "repeat", computed with frame.groupby({[*by, *on]!r}).cumcount().'
        )
    scenarios = rows[~task.duplicated()][list(on)].reset_index(drop=True)
    order = in_order(task)
    groups = in_order(group)
    called = {name: f"{name} (group)" if name in (*on, "same") else name for name in groups}
    reasons = {name: pd.Series(rows[of].astype("string").array, index=task)[(group == name).to_numpy()] for name in groups}
    answers = {called[name]: reasons[name].reindex(order).array for name in groups}
    places: dict[str, Any] = {
        _SCENARIO: task.map({name: at for at, name in enumerate(order)}),
        _SCENARIO_GROUP: group.map(called),
    }
    return scenarios.assign(**answers), rows.assign(**places)


def _reason_pairs(answers: pd.DataFrame, a: str, b: str) -> pd.DataFrame:
    both = answers[[a, b]].dropna()
    counts = Counter(zip(both[a].astype(str), both[b].astype(str), strict=True))
    rows: list[tuple[Any, ...]] = [(a, b, *reasons, counts[reasons]) for reasons in sorted(counts)]
    return typed_frame(rows, dict.fromkeys(("group_a", "group_b", "reason_a", "reason_b"), "string") | {"scenarios": "Int64"})


_AGREEMENT_COLUMNS: dict[str, Any] = {
    **dict.fromkeys(("scenarios", "units", "left_out", "same"), "Int64"),
    **dict.fromkeys(("share", "share_low", "share_high", "kappa", "kappa_low", "kappa_high"), "Float64"),
    **dict.fromkeys(("small_sample", "no_interval", "method"), "string"),
}


def _all_agree(answers: pd.DataFrame) -> pd.Series[bool]:
    """Return True for each scenario in which all groups have the same reason."""
    texts = answers.astype(object)
    return texts.eq(texts.iloc[:, 0], axis=0).all(axis=1) if len(texts.columns) else pd.Series(False, index=answers.index)


def _agreement_row(answers: pd.DataFrame, rows: pd.DataFrame, unit: By | None, level: float) -> dict[str, Any]:
    """Return one row of `overall` or `pairs`, without the names of the groups."""
    complete = answers.dropna() if answers.shape[1] > 1 else answers.iloc[:0]
    rows = rows[rows[_SCENARIO].isin(complete.index)]
    units = pd.Series(units_of(rows, unit, _SCENARIO), index=rows[_SCENARIO]).groupby(level=0).first().reindex(complete.index)
    codes = np.unique(units.to_numpy(), return_inverse=True)[1]
    agree = _all_agree(complete).to_numpy(dtype=bool)
    share, kappa = of_share(agree, codes, level=level), _kappa(complete, codes, level)
    reasons = {what: one.why for what, one in (("share", share), ("kappa", kappa)) if one.why}
    advice = unit_hint(rows.drop_duplicates(_SCENARIO), unit) if share.units < MIN_UNITS <= len(complete) else None
    return {
        "scenarios": len(complete),
        "units": share.units,
        "left_out": len(answers) - len(complete),
        "same": int(agree.sum()),
        **share.columns("share", "share"),
        **kappa.columns("kappa", "kappa"),
        "small_sample": small_sample(share),
        "no_interval": reasons_in_words(reasons, advice),
        "method": reasons_in_words({what: one.method for what, one in (("share", share), ("kappa", kappa)) if one.method}),
    }


def _kappa(complete: pd.DataFrame, units: Any, level: float) -> Estimate:
    """Return Cohen's kappa for two groups or Fleiss' kappa for more, with its interval.

    J. Cohen, A coefficient of agreement for nominal scales (1960); J. L. Fleiss, Measuring nominal scale agreement among many raters
    (1971). The interval is that of the share of pairs of groups that agree, on kappa's scale.
    """
    number, groups = complete.shape
    if not number:
        return Estimate(None, None, None, 0, "no scenario for which all groups have a reason")
    codes, reasons = pd.factorize(complete.to_numpy().ravel(), sort=True)
    if len(reasons) == 1:
        return Estimate(None, None, None, number, f"not defined, all end with {reasons[0]}")
    chosen = np.eye(len(reasons))[codes].reshape(number, groups, -1)  # scenario, group, reason: 1 where it is
    counts, shares = chosen.sum(axis=1), chosen.mean(axis=0)
    agree = of_share((counts * (counts - 1)).sum(axis=1) / (groups * (groups - 1)), units, level=level)
    expected = float((shares[0] * shares[1] if groups == 2 else shares.mean(axis=0) ** 2).sum())
    if 1 - expected < 1e-12:
        return Estimate(None, None, None, number, "not defined, the groups always agree by chance")
    value, low, high = (
        None if one is None else (one - expected) / (1 - expected) for one in (agree.value, agree.low, agree.high)
    )
    return replace(agree, value=value, low=None if low is None else max(-1.0, low), high=high)

"""Stop reasons of runs as bars: data and drawing."""

from __future__ import annotations

from collections import Counter

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from agentlab.analysis.groups import By, checked, columns_of, each_once, names_of, numbers, runs_of, texts, typed_frame
from agentlab.model.finish_reasons import StopReason
from agentlab.plots import figure as look
from agentlab.records.frames import Recordings

TERMINATED, TRUNCATED, NOT_ENDED = "terminated", "truncated", "not_ended"
FILLS = {TERMINATED: (look.GREEN, ""), TRUNCATED: (look.VERMILLION, "////"), NOT_ENDED: (look.TEXT, "....")}


def stop_reasons_data(runs: Recordings | pd.DataFrame, by: By = "provider") -> pd.DataFrame:
    """Return the number of runs per stop reason for each provider, or for each group by other columns.

    Columns: `provider`, `outcome` (`terminated`, `truncated`, `not_ended`), `stop_reason` (NA: not ended) and `runs`, a count of at
    least 1. Providers are in the order of their first run. With `by`, the first column is called `group`.

    Example:
        >>> runs = lab.frame([result, *others], "runs")
        >>> lab.plots.stop_reasons_data(runs)
            provider     outcome     stop_reason  runs
        0  anthropic  terminated  stop_condition     1
        1     openai  terminated  stop_condition     1
        2     gemini  terminated  stop_condition     1
    """
    columns, runs = columns_of(by), runs_of(runs, "lab.plots.stop_reasons")
    runs = each_once(checked(runs, (*columns, "stop_reason", "terminated", "truncated"), "lab.plots.stop_reasons"))
    group, reason = names_of(runs, columns), texts(runs, "stop_reason").fillna("")
    terminated, truncated = (numbers(runs, name).fillna(0) == 1 for name in ("terminated", "truncated"))
    counts = Counter(
        (name, TERMINATED if finished else TRUNCATED if cut_off else NOT_ENDED, why)
        for name, finished, cut_off, why in zip(group, terminated, truncated, reason, strict=True)
    )
    groups, outcomes, reasons = list(dict.fromkeys(group)), list(FILLS), [*map(str, StopReason)]

    def place(key: tuple[str, str, str]) -> tuple[int, int, int, str]:
        known = reasons.index(key[2]) if key[2] in reasons else len(reasons)
        return groups.index(key[0]), outcomes.index(key[1]), known, key[2]

    first = "provider" if columns == ["provider"] else "group"
    dtypes = {first: "string", "outcome": "string", "stop_reason": "string", "runs": "Int64"}
    return typed_frame([(*key[:2], key[2] or None, counts[key]) for key in sorted(counts, key=place)], dtypes)


def stop_reasons(runs: Recordings | pd.DataFrame, ax: Axes | None = None, by: By = "provider") -> Axes:
    """Draw the number of runs per stop reason for each group. Runs that finished on their own and runs that were cut off are separate.

    `runs` is what `lab.frame` takes, or `lab.frame(results, "runs")`. Returns the axes; see `stop_reasons_data` for their data.
    Errors: ConfigurationError if columns are missing.

    Example:
        >>> runs = lab.frame([result, *others], "runs")
        >>> lab.plots.stop_reasons(runs).alt
        'Stop reasons by provider: anthropic 1 terminated by stop_condition; openai 1 terminated by stop_conditi...
    """
    data = stop_reasons_data(runs, by)
    rows = _rows(data)
    ax = look.axes_for(ax, "stop_reasons", 6.4, max(2.2, 0.8 + 0.26 * len(rows)))
    look.style(ax, left=False)
    ax.set_xlabel("runs")
    title = f"Stop reasons by {data.columns[0]}"
    if data.empty:
        return look.nothing(ax, "no runs yet", title)
    for place, (_, outcome, count) in enumerate(rows):
        if outcome:
            colour, hatch = FILLS[outcome]
            ax.barh(place, count, height=0.7, color=colour, hatch=hatch, edgecolor="white", linewidth=0, gid=f"bar:{outcome}")
            look.beside(ax, f"{count} {outcome.replace('_', ' ')}", (count, place), 5)
    look.names_axis(ax, [label for label, _, _ in rows], bold=[not outcome for _, outcome, _ in rows])
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8, min_n_ticks=1))
    look.grid(ax, "x")
    ax.set_xlim(0, int(data["runs"].max()) * 1.3)
    ax.set_ylim(len(rows) - 0.5, -0.6)
    groups = []
    for name, of_group in data.groupby(data.columns[0], sort=False):
        parts = [
            f"{count} {outcome.replace('_', ' ')}" + ("" if pd.isna(reason) else f" by {look.spoken(str(reason))}")
            for _, outcome, reason, count in of_group.itertuples(index=False)
        ]
        groups.append(f"{look.spoken(str(name))} {', '.join(parts)}")
    look.set_alt(ax, f"{title}: {'; '.join(groups)}.")
    return ax


def _rows(data: pd.DataFrame) -> list[tuple[str, str, int]]:
    """Return the rows of the plot, from the top: label, outcome, count. The heading of a group has an empty outcome."""
    rows: list[tuple[str, str, int]] = []
    for name, of_group in data.groupby(data.columns[0], sort=False):
        rows.append((look.shorten(str(name), 24), "", 0))
        for _, outcome, reason, count in of_group.itertuples(index=False):
            rows.append(("no reason yet" if pd.isna(reason) else look.shorten(str(reason), 24), str(outcome), int(count)))
    return rows

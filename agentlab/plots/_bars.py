"""Why runs ended, as bars."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from agentlab.comparing.groups import By
from agentlab.plots import _figure as look
from agentlab.plots._data import NOT_ENDED, TERMINATED, TRUNCATED, stop_reasons_data
from agentlab.recorder import Recordings

FILLS = {TERMINATED: (look.GREEN, ""), TRUNCATED: (look.VERMILLION, "////"), NOT_ENDED: (look.TEXT, "....")}


def stop_reasons(runs: Recordings | pd.DataFrame, ax: Axes | None = None, by: By = "provider") -> Axes:
    """How many runs of each group ended for which reason; what came to an end of its own apart from what was cut off.

    `runs` is what `lab.frame` takes, or `lab.frame(results, "runs")`. Returns the axes; see `stop_reasons_data` for what they show.
    Errors: ConfigurationError where columns are missing.

    Example:
        >>> runs = lab.frame([result, *others], "runs")
        >>> lab.plots.stop_reasons(runs).alt
        'Stop reasons by provider: anthropic 1 terminated by stop_condition; openai 1 terminated by stop_conditi...
    """
    data = stop_reasons_data(runs, by)
    rows = _rows(data)
    ax = look.axes_for(ax, "stop_reasons", 6.4, max(2.2, 0.8 + 0.26 * len(rows)))
    look.style(ax)
    ax.set_xlabel("runs")
    ax.spines["left"].set_visible(False)
    if data.empty:
        ax.set_xlim(0, 1)
        ax.set_xticks([])
        ax.set_yticks([])
        look.note(ax, "no runs yet")
        look.set_alt(ax, f"Stop reasons by {data.columns[0]}: no runs yet.")
        return ax
    most = int(data["runs"].max())
    for place, (_, outcome, count) in enumerate(rows):
        if outcome:
            colour, hatch = FILLS[outcome]
            ax.barh(place, count, height=0.7, color=colour, hatch=hatch, edgecolor="white", linewidth=0, gid=f"bar:{outcome}")
            ax.annotate(
                f"{count} {_said(outcome)}", (count, place), (5, 0), textcoords="offset points", va="center", color=look.TEXT,
                fontsize=look.SMALL_POINTS,
            )  # fmt: skip
    ax.set_yticks(range(len(rows)), [label for label, _, _ in rows])
    for text, (_, outcome, _) in zip(ax.get_yticklabels(), rows, strict=True):
        text.set_parse_math(False)
        text.set_fontweight("normal" if outcome else "bold")
    ax.tick_params(axis="y", length=0)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8, min_n_ticks=1))
    ax.grid(visible=True, axis="x", color=look.TEXT, alpha=0.25, linewidth=0.6)
    ax.set_xlim(0, most * 1.3)
    ax.set_ylim(len(rows) - 0.5, -0.6)
    look.set_alt(ax, _alt(data))
    return ax


def _rows(data: pd.DataFrame) -> list[tuple[str, str, int]]:
    """The lines of the plot, from the top: (label, outcome, count); a provider's heading has no outcome."""
    rows: list[tuple[str, str, int]] = []
    for provider, of_provider in data.groupby(data.columns[0], sort=False):
        rows.append((look.shorten(str(provider), 24), "", 0))
        for outcome, reason, count in zip(of_provider["outcome"], of_provider["stop_reason"], of_provider["runs"], strict=True):
            rows.append(("no reason yet" if pd.isna(reason) else look.shorten(str(reason), 24), str(outcome), int(count)))
    return rows


def _said(outcome: str) -> str:
    return outcome.replace("_", " ")


def _alt(data: pd.DataFrame) -> str:
    told = []
    for provider, of_provider in data.groupby(data.columns[0], sort=False):
        parts = [
            f"{count} {_said(outcome)}" + ("" if pd.isna(reason) else f" by {look.spoken(str(reason))}")
            for outcome, reason, count in zip(
                of_provider["outcome"], of_provider["stop_reason"], of_provider["runs"], strict=True
            )
        ]
        told.append(f"{look.spoken(str(provider))} {', '.join(parts)}")
    return f"Stop reasons by {data.columns[0]}: {'; '.join(told)}."

"""What limits come to, as HTML: the figures with their intervals and what is unknown of each, and why runs ended.

A mean of the runs that are known is no mean of all runs: those that the limits let go on are missing from it, and they are the long
ones. So it is shown only where most runs are known, with their number, and compared with what the same runs took in the record. The
share that reached the goal is then a range: from none to all of the unknown runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agentlab.amounts import counted
from agentlab.comparing.intervals import FEWEST
from agentlab.plots.what_if_frontier import number
from agentlab.widgets import markup
from agentlab.widgets.tried_figures import FAILED_WORD, FINISHED_WORD, UNKNOWN_WORD, Tried

HEADS = ("mean per run", "these limits", "95% interval", "against the record", "unknown")
FIGURES = {"cost": "cost", "tokens": "tokens", "step": "steps", "time": "seconds"}
MOST_UNKNOWN = 0.5
"""Of a figure that is unknown for more of the runs no mean is shown."""


def summary(tried: Tried) -> str:
    """The most important in one line, announced to screen readers when it changes."""
    row = tried.row
    unknown = f", <b>{share(row['unknown_share'])}</b> of the runs unknown" if row["unknown_share"] else ""
    recorded = ", as recorded" if tried.is_record else ""
    several = f", {counted(row['units'], f'independent {tried.unit}')}" if row["units"] < row["runs"] else ""
    return (
        f'<div class="agentlab-status" role="status"><span><b>{reached(row)}</b> reached the goal</span> <span>cost '
        f"<b>{mean(row, 'cost')}</b></span><span>{row['runs']:,} run{'s' * (row['runs'] != 1)}{several}{recorded}{unknown}</span></div>"
    )


def reached(row: Mapping[str, Any]) -> str:
    """The share that reached the goal; where some are unknown, from what to what it can be."""
    if row["success_unknown"] == 1:
        return "unknown"
    least, most = share(row["success_at_least"]), share(row["success_at_most"])
    return share(row["success_rate"]) if not row["success_unknown"] or least == most else f"{least} to {most}"


def mean(row: Mapping[str, Any], prefix: str) -> str:
    """A mean per run, of how many of them where not all are known; where most are not, no mean."""
    unknown, name = unknown_of(row, prefix), f"{prefix}_mean"
    known = row["runs"] - round(unknown * row["runs"])
    if unknown > MOST_UNKNOWN or row[name] is None:
        return f"unknown for {row['runs'] - known:,} of {row['runs']:,} runs"
    return _number(row[name], name) + (f" per run, of the {known:,} known" if unknown else " per run")


def unknown_of(row: Mapping[str, Any], prefix: str) -> float:
    """The share of the runs of which a figure is unknown."""
    return float(row["unknown_share"] if prefix == "step" else row[f"{prefix}_unknown"])


def figures(tried: Tried, record: Tried, *, timed: bool = True) -> str:
    """The figures, each with its interval, the difference from the record on the same runs, and the share of runs of which it is
    unknown; unless `timed` without seconds, which differ each time that a notebook is run."""
    row = tried.row
    known = not row["success_unknown"]
    interval = _interval(row, "success", share) if known else "none: not all known"
    rows: list[Sequence[object]] = [
        ("reached the goal", reached(row), interval, _points(row, record.row), _unknown(row["success_unknown"]))
    ]
    for prefix, label in FIGURES.items():
        if prefix == "time" and not timed:
            continue
        name, unknown = f"{prefix}_mean", unknown_of(row, prefix)
        few = unknown > MOST_UNKNOWN
        saved = None if few else _steps_saved(row, record.row) if prefix == "step" else row[f"{prefix}_saved"]
        interval = "none: not all known" if unknown else _interval(row, prefix, lambda value, name=name: _number(value, name))
        shown = mean(row, prefix).replace(" per run", "")
        rows.append((label, shown, interval, _against(saved, row[name], name, same=bool(unknown)), _unknown(unknown)))
    table = markup.table(HEADS, rows, numbers=(1, 2, 4))
    return table.replace('class="agentlab-steps"', 'class="agentlab-steps agentlab-figures"', 1)


def ends(tried: Tried) -> str:
    """How many runs ended for which reason, as bars with their numbers."""
    runs = tried.row["runs"]
    body = "".join(
        f'<tr><th scope="row">{markup.escape(label)}</th><td class="agentlab-bar-cell">{_bar(label, count / runs)}</td>'
        f'<td class="number">{count:,}</td><td class="number">{share(count / runs)}</td></tr>'
        for label, count in tried.ends
    )
    head = "<tr>" + "".join(f'<th scope="col"{css}>{text}</th>' for text, css in _ENDS_HEAD) + "</tr>"
    return f'<table class="agentlab-steps agentlab-ends"><thead>{head}</thead><tbody>{body}</tbody></table>'


_ENDS_HEAD = (("ended by", ""), ("", ' aria-hidden="true"'), ("runs", ' class="number"'), ("share", ' class="number"'))


def code(text: str) -> str:
    """What to paste into a run."""
    return f'<pre class="agentlab-to-copy" tabindex="0" aria-label="Code for agent.run(…)">{markup.escape(text, 2000)}</pre>'


def _bar(label: str, part: float) -> str:
    look = " off" if label == UNKNOWN_WORD else ""
    fill = "" if label in (FINISHED_WORD, FAILED_WORD, UNKNOWN_WORD) else " near"
    return f'<div class="agentlab-bar{look}" aria-hidden="true"><div class="agentlab-fill{fill}" style="width:{part:.1%}"></div></div>'


def share(value: float | None) -> str:
    """A share in words, with a tenth of a percent where that tells it from none and from all."""
    if value is None:
        return "unknown"
    return f"{value:.0%}" if value in (0, 1) or 0.01 <= value <= 0.99 else f"{value:.1%}"


def _unknown(value: float | None) -> str:
    return "all" if value in (None, 1) else share(value)


def _number(value: float | None, name: str) -> str:
    if value is None:
        return "unknown"
    if name == "step_mean":
        return f"{float(value):.1f}"
    if name == "time_mean":
        return f"{float(value):.3g}"
    return number(float(value), name).removesuffix(" tokens")


def _interval(row: Mapping[str, Any], prefix: str, words: Any) -> str:
    low, high = row[f"{prefix}_low"], row[f"{prefix}_high"]
    if low is not None and high is not None:
        return f"{words(low)} – {words(high)}"
    if row["units"] < FEWEST:
        return f"none: {counted(row['units'], 'independent unit')}, and it takes {FEWEST}"
    return "none" if row[f"{prefix}_mean"] is None else "none: all the same"


def _against(saved: float | None, mean: float | None, name: str, *, same: bool) -> str:
    """What is saved per run; `same`: on the same runs, where not all are known."""
    if saved is None or mean is None:
        return "unknown"
    on_them = " on these runs" if same else ""
    whole = float(saved) + float(mean)
    if abs(saved) < 1e-12 or not whole:
        return f"the same{on_them}"
    part = abs(float(saved)) / whole
    return f"{_number(abs(float(saved)), name)} {'less' if saved > 0 else 'more'} ({share(part)}){on_them}"


def _steps_saved(row: Mapping[str, Any], record: Mapping[str, Any]) -> float | None:
    """Of runs that are all known; else the means are not those of the same runs."""
    if row["unknown_share"] or row["step_mean"] is None or record["step_mean"] is None:
        return None
    return float(record["step_mean"]) - float(row["step_mean"])


def _points(row: Mapping[str, Any], record: Mapping[str, Any]) -> str:
    """The difference of two shares, where both are of all runs."""
    mine, its = row["success_rate"], record["success_rate"]
    if mine is None or its is None or row["success_unknown"] or record["success_unknown"]:
        return "unknown"
    points = round(100 * (float(mine) - float(its)), 1)
    if not points:
        return "the same"
    return f"{abs(points):g} point{'s' * (abs(points) != 1)} {'more' if points > 0 else 'less'}"

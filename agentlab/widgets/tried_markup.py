"""What limits come to, as HTML: the figures with their intervals and what is unknown of each, and why runs ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agentlab.plots._what_if import number
from agentlab.widgets import markup
from agentlab.widgets.tried_figures import FINISHED_WORD, UNKNOWN_WORD, Tried

HEADS = ("mean of a run", "these limits", "95% interval", "against the record", "unknown")
FIGURES = {"cost": "cost", "tokens": "tokens", "step": "steps", "time": "seconds"}


def summary(tried: Tried) -> str:
    """The most important in one line, told to those who listen when it changes."""
    row = tried.row
    rate, cost = share(row["success_rate"]), _number(row["cost_mean"], "cost_mean")
    unknown = f", <b>{share(row['unknown_share'])}</b> of the runs unknown" if row["unknown_share"] else ""
    return (
        f'<div class="agentlab-status" role="status"><span><b>{rate}</b> reached the goal</span> <span>cost <b>{cost}</b> a run'
        f"</span><span>{row['runs']:,} run{'s' * (row['runs'] != 1)}{unknown}</span></div>"
    )


def figures(tried: Tried, record: Tried, *, timed: bool = True) -> str:
    """The figures, each with its interval, what is saved against the record, and the share of runs of which it is unknown; unless
    `timed` without seconds, which differ each time that a notebook is run."""
    row = tried.row
    rows: list[Sequence[object]] = [
        (
            "reached the goal",
            share(row["success_rate"]),
            _interval(row, "success", share),
            _points(row, record.row),
            _unknown(row["success_unknown"]),
        )
    ]
    for prefix, label in FIGURES.items():
        if prefix == "time" and not timed:
            continue
        name = f"{prefix}_mean"
        unknown = row["unknown_share"] if prefix == "step" else row[f"{prefix}_unknown"]
        saved = _steps_saved(row, record.row) if prefix == "step" else row[f"{prefix}_saved"]
        rows.append(
            (
                label,
                _number(row[name], name),
                _interval(row, prefix, lambda value, name=name: _number(value, name)),
                _against(saved, row[name], name),
                _unknown(unknown),
            )
        )
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
    fill = "" if label in (FINISHED_WORD, UNKNOWN_WORD) else " near"
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
    return "none: too few runs" if low is None or high is None else f"{words(low)} – {words(high)}"


def _against(saved: float | None, mean: float | None, name: str) -> str:
    """What is saved a run, of the runs of which that is known."""
    if saved is None or mean is None:
        return "unknown"
    whole = float(saved) + float(mean)
    if abs(saved) < 1e-12 or not whole:
        return "the same"
    part = abs(float(saved)) / whole
    return f"{_number(abs(float(saved)), name)} {'less' if saved > 0 else 'more'} ({share(part)})"


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

"""The trials of a search over settings, and the Pareto front on held-out tasks: data and drawing."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from agentlab._internal.formatting import counted
from agentlab._internal.names import helps_with_keywords
from agentlab.errors import ConfigurationError
from agentlab.limits.fields import unknown_name
from agentlab.plots import figure as look
from agentlab.plots.figure import Row, plain

TUNED, HELD_OUT = look.COLOURS[0], look.COLOURS[1]
NUMBER = "number"


@helps_with_keywords
def tuning_data(tuned: Any, x: str | None = None, y: str | None = None) -> pd.DataFrame:
    """Return the points of `lab.plots.tuning`: one row per trial on the tuning tasks, then one per trial of the front on the held-out
    tasks. Trials without values are left out.

    Columns: `number` of the trial, `on` (`tuning` or `held-out`), `x` and `y` with the ends of their intervals, `on_front`. `tuned` is
    the result of `lab.tune`; `x` and `y` are two of its objectives, by default the second against the first, or with one objective the
    number of the trial against it.

    Example:
        >>> tasks = [f"Is umbrella {number} here?" for number in range(10)]
        >>> study = lab.Experiment({"endless": endless}, tasks, [dict(budget=lab.Budget(max_turns=4))])
        >>> results = await study.run(progress=False)
        >>> tuned = await lab.tune(study, {"max_turns": [1, 2, 4]}, objectives="-cost_usd", trials=8, progress=False)
        >>> lab.plots.tuning_data(tuned)[["number", "on", "y", "on_front"]].tail(1)
           number        on     y  on_front
        8       7  held-out  0.01      True
    """
    x, y = _axes(tuned, x, y)
    trials, front = tuned.trials, tuned.front
    shown = trials[trials["state"].eq("complete")]
    parts = {"tuning": shown, "held-out": front[front[y].notna() & (front[x].notna() if x != NUMBER else True)]}
    frames = []
    for where, part in parts.items():
        ends = {
            f"{axis}{end}": part[name + end].astype("Float64").array
            if name + end in part.columns
            else pd.array([pd.NA] * len(part), "Float64")
            for axis, name in (("x", x), ("y", y))
            for end in ("", "_low", "_high")
        }
        on_front = part["on_front"].array if where == "tuning" else pd.array([True] * len(part), "boolean")
        on = pd.array([where] * len(part), "string")
        frames.append(pd.DataFrame({"number": part["number"].array, "on": on, **ends, "on_front": on_front}))
    return pd.concat(frames, ignore_index=True)


def _axes(tuned: Any, x: str | None, y: str | None) -> tuple[str, str]:
    if not hasattr(tuned, "objectives"):
        raise ConfigurationError(f"lab.plots.tuning takes the result of lab.tune(…), not a {type(tuned).__name__}.")
    names = [one.column for one in tuned.objectives]
    x, y = x or (names[1] if len(names) > 1 else NUMBER), y or names[0]
    for axis, name, known in (("x", x, [NUMBER, *names]), ("y", y, names)):
        if name not in known:
            raise ConfigurationError(f"{axis}={name!r}: {unknown_name('objective', name, known)}")
    return x, y


@helps_with_keywords
def tuning(tuned: Any, x: str | None = None, y: str | None = None, ax: Axes | None = None) -> Axes:
    """Draw each trial of `lab.tune` on the tuning tasks as a small point, and the trials on the front on the held-out tasks with their
    intervals. A line joins the two figures of a trial: its length is the optimism of the search. Returns the axes; see `tuning_data`.

    Example:
        >>> tasks = [f"Is umbrella {number} here?" for number in range(10)]
        >>> study = lab.Experiment({"endless": endless}, tasks, [dict(budget=lab.Budget(max_turns=4))])
        >>> results = await study.run(progress=False)
        >>> tuned = await lab.tune(study, {"max_turns": [1, 2, 4]}, objectives=["-cost_usd", "-calls"], trials=8, progress=False)
        >>> lab.plots.tuning(tuned).alt
        'Cost_usd against calls on the tuning tasks of 8 trials. On the front, on 3 held-out tasks: trial 7 (0.01 at 1).'
    """
    (x_name, y_name), data = _axes(tuned, x, y), tuning_data(tuned, x, y)
    ax = look.axes_for(ax, "tuning", 8.2, 3.6)
    look.style(ax)
    ax.set_xlabel("trial" if x_name == NUMBER else f"{x_name} (mean per run)")
    ax.set_ylabel(f"{y_name} (mean per run)")
    for name, its_axis in ((x_name, ax.xaxis), (y_name, ax.yaxis)):
        if name.endswith("_usd"):
            its_axis.set_major_formatter(look.Dollars())
    on_tuning, held_out = data[data["on"] == "tuning"], data[data["on"] == "held-out"]
    title = y_name + ("" if x_name == NUMBER else f" against {x_name}")
    if data.empty:
        return look.nothing(ax, "no trial has a value", title)
    look.grid(ax)
    rows: list[Row] = []
    of_tuning: dict[str, Any] = {"linestyle": "none", "marker": "o", "color": TUNED, "markersize": 4, "alpha": 0.6}
    of_front: dict[str, Any] = {"linestyle": "none", "marker": "D", "color": HELD_OUT, "markersize": 7}
    for name, part, style in (
        (f"tuning tasks ({len(tuned.tuning_tasks)})", on_tuning, of_tuning),
        (f"front, held-out tasks ({len(tuned.held_out_tasks)})", held_out, of_front),
    ):
        points = part["x"].astype(float).to_numpy(), part["y"].astype(float).to_numpy()
        ax.plot(*points, gid=look.gid("points", name), zorder=3, clip_on=False, **style)
        rows.append((Line2D([], [], **style), name))
    chosen = on_tuning.set_index("number")
    for row in held_out.to_dict("records"):
        at, before = (float(row["x"]), float(row["y"])), chosen.loc[row["number"]]
        ax.plot([float(before["x"]), at[0]], [float(before["y"]), at[1]], color=look.TEXT, linewidth=0.8, alpha=0.6, zorder=1)
        for axis in ("x", "y"):
            if not pd.isna(row[f"{axis}_low"]):
                ends, other = [float(row[f"{axis}_low"]), float(row[f"{axis}_high"])], [at[axis == "x"]] * 2
                where = (ends, other) if axis == "x" else (other, ends)
                ax.plot(*where, color=HELD_OUT, linewidth=1.2, alpha=0.6, zorder=2, gid=look.gid("interval", str(row["number"])))
    plain(ax, rows)
    found = "; ".join(
        f"trial {row['number']} ({float(row['y']):.4g}" + ("" if x_name == NUMBER else f" at {float(row['x']):.4g}") + ")"
        for row in held_out.to_dict("records")
    )
    measured = (
        f"On the front, on {counted(len(tuned.held_out_tasks), 'held-out task')}: {found}." if found else "No held-out figure."
    )
    look.set_alt(ax, f"{look.sentence(title)} on the tuning tasks of {counted(len(on_tuning), 'trial')}. {measured}")
    return ax

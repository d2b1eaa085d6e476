"""Plots of runs: usage at each step, the limits in force, and why runs ended. Each file has one plot, or a few, with data and drawing.

    lab.plots.tokens(result)                               cumulative tokens, one line per run
    lab.plots.cost(results)                                cumulative cost of several runs and providers
    lab.plots.stop_reasons(results)                        why the runs of each provider ended
    lab.plots.curves(result)                               tokens and cost side by side
    lab.plots.timeline(result)                             calls, tools, continuations and nudges over time
    lab.plots.bands(results, "cost")                       a group's median over the steps, with a band over its runs
    lab.plots.estimates(results, "cost")                   one measure per group, with its interval
    lab.plots.cost_success(results)                        cost against success, one point per group, with both intervals
    lab.plots.frontier(results)                            the most success for the least cost, with a band
    lab.plots.survival(results)                            share of runs that are still running after each step
    lab.plots.small_multiples(lab.plots.tokens, results)   the same plot for each provider, side by side
    lab.plots.comparison(results)                          a whole comparison in one figure
    lab.plots.what_if(lab.backtest(steps, StepCountIs([2, 4, 8])))   cost and success under other limits
    lab.plots.tuning(lab.tune(…))                          trials of a search over settings, and the front on held-out tasks
    lab.plots.tree(run)                                    a run, its branches and its sub-agents, as a tree

Each takes what `lab.frame` takes (a run, a result, several in a list, a store, the results of an experiment), or a frame.

Each plot draws the data of a pure function (`tokens_data`, `cost_data`, `stop_reasons_data`, `timeline_data`, `tree_data`,
`bands_data`, `estimates_data`, `cost_success_data`, `frontier_data`, `survival_data`, `what_if_data`, `tuning_data`). With `ax=` it
draws into your axes, otherwise it makes a new figure without pyplot. The returned Axes are displayed if they are the last expression
of a notebook cell; `ax.figure.savefig("tokens.png")` saves them; `ax.alt` describes the picture in words.

Colour is what differs between the runs: the agent if agents have names, else the model, and the provider or the settings where they
differ too. Series differ in colour, marker and line style, never in colour alone, and a name keeps its colour in all plots of a
session. The background is transparent, and every colour is legible on white and on near black. An unknown value is a gap with a note,
never 0.

May import: `analysis` and what is below it.

    usage_curves        `tokens`, `cost`, `curves`
    run_timeline        `timeline`
    bands_and_survival  `bands`, `survival`
    group_estimates     `estimates`, `cost_success`, `stop_reasons`
    cost_frontier       `frontier`
    what_if_frontier    `what_if`
    tuning_front        `tuning`
    branch_tree         `tree`
    several             `small_multiples`, `comparison`
    series              what differs between runs, and the colours and shapes of that
    figure              the figures, axes, texts and legends of all plots
"""

from typing import TYPE_CHECKING

from agentlab._internal.names import module_hooks
from agentlab.plots.bands_and_survival import bands, bands_data, survival, survival_data
from agentlab.plots.branch_tree import tree, tree_data
from agentlab.plots.cost_frontier import frontier, frontier_data
from agentlab.plots.figure import PlotAxes, PlotFigure
from agentlab.plots.group_estimates import (
    cost_success,
    cost_success_data,
    estimates,
    estimates_data,
    stop_reasons,
    stop_reasons_data,
)
from agentlab.plots.run_timeline import timeline, timeline_data
from agentlab.plots.several import comparison, small_multiples
from agentlab.plots.tuning_front import tuning, tuning_data
from agentlab.plots.usage_curves import cost, cost_data, curves, tokens, tokens_data
from agentlab.plots.what_if_frontier import what_if, what_if_data

__all__ = [
    "PlotAxes",
    "PlotFigure",
    "bands",
    "bands_data",
    "comparison",
    "cost",
    "cost_data",
    "cost_success",
    "cost_success_data",
    "curves",
    "estimates",
    "estimates_data",
    "frontier",
    "frontier_data",
    "small_multiples",
    "stop_reasons",
    "stop_reasons_data",
    "survival",
    "survival_data",
    "timeline",
    "timeline_data",
    "tokens",
    "tokens_data",
    "tree",
    "tree_data",
    "tuning",
    "tuning_data",
    "what_if",
    "what_if_data",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = module_hooks(__name__, [name for name in __all__ if name.islower() and not name.endswith("_data")])

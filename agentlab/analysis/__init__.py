"""Answers from recorded runs: what other limits would have done, and how groups of runs compare. Nothing is drawn here.

May import: `interop` and what is below it.

    compare           groups of runs with intervals, and paired differences
    agreement         how often providers end for the same reason on the same task
    groups            groups of a frame
    intervals         intervals and survival curves
    records           recorded runs as arrays
    sources           records from frames, stores, experiments, runs
    grids             the limits to try
    conditions        a stop condition over all runs at once
    simulate          one configuration of limits over all runs
    outcomes          the results as frames, with the intervals of all limits at once
    backtest          `lab.backtest`
    suggest           `lab.suggest`
    suggestion        its result
    cross_validation  limits chosen on some runs, evaluated on others
"""

__all__ = [
    "compare",
    "agreement",
    "groups",
    "intervals",
    "records",
    "sources",
    "grids",
    "conditions",
    "simulate",
    "outcomes",
    "backtest",
    "suggest",
    "suggestion",
    "cross_validation",
]

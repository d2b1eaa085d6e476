"""Analysis of recorded runs: the effect of other limits, and comparisons of groups of runs. The plots are in `plots`.

May import: `interop` and what is below it.

    compare           groups of runs with intervals, and paired differences
    passes            pass@k and pass^k
    power             how many tasks a comparison needs
    reprice           what runs would have cost with other models
    origins           `lab.provenance`: what made recorded runs
    diff              two runs side by side, step by step
    agreement         how often groups of runs end for the same reason on the same task
    raters            how far people, judges and other scorers agree
    groups            the groups of a frame, and checks of its columns
    intervals         confidence intervals and survival curves
    records           recorded runs as arrays
    sources           builds records from frames, stores, experiments and runs
    grids             the limits to try
    conditions        evaluates a stop condition over all runs
    simulate          runs one configuration of limits over all recorded runs
    backtest          `lab.backtest`: the results of a simulation as frames, with the intervals of all configurations at once
    suggest           `lab.suggest`
    suggestion        the result of `lab.suggest`
    cross_validation  chooses limits on some runs and evaluates them on others
"""

__all__ = [
    "compare",
    "passes",
    "power",
    "reprice",
    "origins",
    "diff",
    "agreement",
    "raters",
    "groups",
    "intervals",
    "records",
    "sources",
    "grids",
    "conditions",
    "simulate",
    "backtest",
    "suggest",
    "suggestion",
    "cross_validation",
]

"""What if the limits had been others: where each recorded run would have stopped, what it would have cost and reached.

    records, from_frames, sources, units    the runs as arrays, made from what a person has
    words, conditions, prefixes             the first row at which a stop condition is met
    grids, budgets, judging                 configurations, and each of them simulated over all runs
    reasons, goals, frames, backtest        why runs end, what they reached, and the answers as frames
    candidates, choosing, suggest           limits that are chosen on some runs and judged on others

Nothing is guessed: what a run would have done after the end of its record is unknown.
"""

"""What if the limits had been others: recorded runs as arrays, and where each of them would have stopped.

    backtest     `lab.backtest`
    suggest      `lab.suggest`; what it answers with is `suggestion` and, by group, `suggestions`
    records      the runs as arrays
    from_frames  these made from a frame and, where there are any, the runs themselves
    grids        the configurations that conditions and budgets with several values make
    first_met    numpy only: the first row at which a running value meets each of many limits
    words        the tools that were called and the reasons that were given, by their first row
    conditions   a stop condition over all runs: by first rows where it latches, else row by row
    prefixes     what conditions of somebody's own say, asked prefix by prefix
    budgets      the limits of a budget, and which of them cut a step short
    judging      one configuration over all runs: where each would have stopped, why, and what that is worth
    reasons      why, in a run's own words, and what fired
    goals        what the runs were for, and when they had reached it
    units        which runs are independent of each other
    sources      the records of whatever a person has
    frames       the answers as DataFrames
    candidates   limits worth trying where a person names none
    choosing     choosing a configuration on some runs and judging it on others
    spelled      conditions and budgets as the code that makes them

Nothing is guessed: what a run would have done behind the end of its record is unknown.
"""

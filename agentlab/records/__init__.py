"""Records of runs: steps, results, events, and their frames. Only `frames` imports pandas.

May import: `tools`, `limits` and what is below them.

    step     one step, built once
    history  the steps of a run with running totals
    result   what a run returns, and what to do about its end
    events   what observers receive (`lab.events`), and each in words
    columns  the columns of every frame: add one here
    frames   runs as DataFrames
"""

__all__ = ["step", "history", "result", "events", "columns", "frames"]

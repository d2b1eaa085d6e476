"""Records of runs: steps, results, events, and their frames. Only `frames` imports pandas.

May import: `tools`, `limits` and what is below them.

    step     one step, built once
    history  the steps of a run with running totals
    result   the result of a run, and suggestions after a stop
    events   the events for observers (`lab.events`), and their texts
    columns  the columns of every frame: add one here
    frames   runs as DataFrames
"""

__all__ = ["step", "history", "result", "events", "columns", "frames"]

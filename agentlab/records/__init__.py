"""Records of runs: steps, results, events, and their frames. Only `frames` imports pandas.

May import: `tools`, `limits` and what is below them.

    step        one step: its calls, tool results, readings and decision
    history     the steps of a run with running totals
    result      the result of a run, and suggestions after it stopped
    events      the events for observers (`lab.events`), and their texts
    provenance  what made a run
    columns     the columns of `lab.frame` (steps, calls, tools, runs, …); add new ones here
    frames      runs as DataFrames
"""

__all__ = ["step", "history", "result", "events", "provenance", "columns", "frames"]

"""Records of runs: steps, results, events, and their frames. Only `frames` imports pandas.

May import: `tools`, `limits` and what is below them.

    step        one step, built once
    history     the steps of a run with running totals
    result      the result of a run
    stopped     suggestions after a stop
    events      the events for observers (`lab.events`)
    event_text  events in words
    columns     the columns of every frame; add new ones here
    frames      runs as DataFrames
"""

__all__ = ["step", "history", "result", "stopped", "events", "event_text", "columns", "frames"]

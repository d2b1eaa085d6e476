"""What happened: steps, results, events, and the frames made of them. Only `frames` imports pandas.

May import: `tools`, `limits` and what is below them.

    step        one step, built once
    history     the steps of a run with running totals
    result      what a run returns
    stopped     what a person can do about an end
    events      what observers receive (`lab.events`)
    event_text  an event in words
    columns     the columns of every frame: add one here
    frames      runs as DataFrames
"""

__all__ = ["step", "history", "result", "stopped", "events", "event_text", "columns", "frames"]

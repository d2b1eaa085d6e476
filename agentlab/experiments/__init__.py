"""The same task over agents, prompts and settings, in parallel and resumable.

May import: `plots` and what is below it.

    experiment     `lab.Experiment`
    grid           its cells
    schedule       order, concurrency and executors of the cells
    runner         runs one cell, at the rate that its provider allows
    shared_budget  what all runs may use together
    identity       what a run was made by, so that it is not run twice
    status         which cells are done, and progress bars
    results        `results.summary()`, `results.paired()` and the like
    frames         the frames of results
    estimate       `lab.DryRun`: what it may cost
"""

__all__ = ["experiment", "grid", "schedule", "runner", "shared_budget", "identity", "status", "results", "frames", "estimate"]

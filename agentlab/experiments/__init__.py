"""The same task over agents, prompts and settings, in parallel and resumable.

May import: `plots` and what is below it.

    experiment     `lab.Experiment`
    grid           its cells
    schedule       order, concurrency and executors of the cells
    runner         runs one cell, within `rate_limits`
    shared_budget  what all runs may use together
    identity       a fingerprint of agent and settings, which shows changes when an experiment is resumed
    status         which cells are done, and progress bars
    results        `results.summary()`, `results.paired()` and the like
    frames         the frames of results
    estimate       `lab.DryRun`: what it may cost
"""

__all__ = ["experiment", "grid", "schedule", "runner", "shared_budget", "identity", "status", "results", "frames", "estimate"]

"""Experiments: every agent on every prompt with all settings, in parallel and resumable.

May import: `plots` and what is below it.

    experiment     `lab.Experiment`
    grid           the cells of an experiment
    schedule       the order and concurrency of the cells, and executors
    runner         runs and scores one cell; spaces the requests to each provider (`rate_limits`)
    shared_budget  the budget of all runs together; `lab.DryRun`: the sum of their limits, before any request is sent
    identity       a fingerprint of agent and settings, which shows changes when an experiment is resumed
    status         which cells are done, and progress bars
    results        `ExperimentResults`: frames, `summary()`, `paired()`, `agreement()`, `plot()`
    frames         builds the frames of the results
"""

__all__ = ["experiment", "grid", "schedule", "runner", "shared_budget", "identity", "status", "results", "frames"]

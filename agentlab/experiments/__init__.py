"""Experiments: every agent on every task with all settings, in parallel and resumable.

May import: `plots` and what is below it.

    experiment     `lab.Experiment`
    tasks          `lab.Tasks`: prompts with targets and tags, from lists, tables and files
    scorers        `lab.scorers`: ready-made scorers
    grid           the cells of an experiment
    schedule       the order and concurrency of the cells, and executors
    scoring        scores a run, and books the cost of judges
    rescore        scores stored runs again
    labels         answers that people label, and the file of their labels
    runner         runs one cell; spaces the requests to each provider (`rate_limits`)
    shared_budget  the budget of all runs together; `lab.DryRun`: the sum of their limits, before any request is sent
    identity       a fingerprint of agent and settings, which shows changes when an experiment is resumed
    status         which cells are done, and progress bars
    results        `ExperimentResults`: frames, `summary()`, `paired()`, `agreement()`, `plot()`
    report         the analysis as data: what `results.report()` shows
    verify         `lab.verify`: repeats a report on its recordings
    frames         builds the frames of the results
    tune           `lab.tune`: a search over settings with Optuna
    tuning         the result of `lab.tune`
    search_space   the parameters of a search
    recorded       recorded runs under other limits, with their scores
"""

__all__ = [
    "experiment", "tasks", "scorers", "scoring", "rescore", "labels", "grid", "schedule", "runner", "shared_budget", "identity",
    "status", "results", "report", "verify", "frames", "tune", "tuning", "search_space", "recorded",
]  # fmt: skip

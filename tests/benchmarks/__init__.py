"""Benchmarks against the goals of the project, printed as ratios measured in one run: `python -m tests.benchmarks`."""

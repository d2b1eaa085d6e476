"""Standard errors clustered by task, against those that Inspect itself computes for the same scores: `make inspect`."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

import numpy as np
import pandas as pd
import pytest

import agentlab as lab

from .with_inspect import VARIABLE

pytestmark = pytest.mark.inspect

THEIRS = """
import json, sys
from inspect_ai.scorer import SampleScore, Score, stderr
for scores, tasks in json.load(sys.stdin):
    rows = [SampleScore(score=Score(value=value), sample_metadata={"task": task}) for value, task in zip(scores, tasks)]
    print(json.dumps([stderr(cluster="task")(rows), stderr()(rows)]))
"""


def drawn(seed: int) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    tasks = np.repeat(np.arange(25), random.integers(1, 6, 25))
    scores = random.random(len(tasks)) < random.random(25)[tasks] if seed % 2 else random.gamma(2, 1 + random.random(25)[tasks])
    about: dict[str, Any] = {"agent": "a", "terminated": True, "stop_reason": "completed", "total_tokens": 1, "cost_usd": 0.1}
    return pd.DataFrame({"prompt_id": tasks, "score": scores.astype(float), **about})


def test_standard_errors_are_inspects() -> None:
    runs = [drawn(seed) for seed in range(6)]
    given = json.dumps([[one["score"].to_list(), one["prompt_id"].to_list()] for one in runs])
    printed = subprocess.run([os.environ[VARIABLE], "-c", THEIRS], input=given, check=True, capture_output=True, text=True).stdout
    for one, line in zip(runs, printed.splitlines(), strict=True):
        clustered, independent = json.loads(line)
        assert lab.summary(one, "agent")["score_se"].item() == pytest.approx(clustered)
        assert lab.summary(one.drop(columns="prompt_id"), "agent")["score_se"].item() == pytest.approx(independent)
        assert clustered != pytest.approx(independent, rel=0.01)

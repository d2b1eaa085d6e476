"""Steps frames of made-up runs with known right answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd


def steps_of(
    lengths: Sequence[int],
    done: Sequence[bool],
    *,
    prompts: Sequence[str] | None = None,
    tokens: Any = None,
    price: float | None = 1e-5,
    ids: Sequence[str] | None = None,
) -> pd.DataFrame:
    """A steps frame in which each run takes the given number of steps and then is `done`, or was cut off by its limit of steps.

    `tokens` of all steps, one run after the other, 1,000 each by default; `price` of a token in USD, None means unknown.
    """
    each = np.asarray(lengths)
    total, names = int(each.sum()), [f"r{place:05}" for place in range(len(each))] if ids is None else list(ids)
    first = np.repeat(np.cumsum(each) - each, each)
    used = np.full(total, 1_000) if tokens is None else np.asarray(tokens)
    last = np.zeros(total, bool)
    last[np.cumsum(each) - 1] = True
    ended = np.where(np.repeat(np.asarray(done, bool), each), "completed", "turn_limit")
    frame = pd.DataFrame(
        {
            "run_id": np.repeat(np.array(names, dtype=object), each),
            "step": np.arange(total) - first + 1,
            "total_tokens": pd.array(used, dtype="Int64"),
            "input_tokens": pd.array(used, dtype="Int64"),
            "output_tokens": pd.array(np.zeros(total, int), dtype="Int64"),
            "cost_usd": pd.array([None] * total if price is None else used * price, dtype="Float64"),
            "calls": 1,
            "duration_s": 0.5,
            "tools": "",
            "tool_calls": 0,
            "finish_reason": "end_turn",
            "stop_reason": pd.array(np.where(last, ended, None), dtype="string"),
            "action": pd.array(np.where(last & (ended == "completed"), "complete", "execute_tools"), dtype="string"),
            "error": pd.array([None] * total, dtype="string"),
        }
    )
    return frame if prompts is None else frame.assign(prompt_id=np.repeat(np.array(prompts, dtype=object), each))


def drawn(random: np.random.Generator, runs: int, *, prompts: int | None = None, succeed: float = 0.6) -> pd.DataFrame:
    """Runs of which some succeed after a geometric number of steps and the others loop until step 20.

    With `prompts`, each prompt and each of its runs has its own difficulty.
    """
    of = np.arange(runs) if prompts is None else random.integers(0, prompts, runs)
    hard = random.uniform(0.2, 0.6, runs if prompts is None else prompts)[of] if prompts is not None else np.full(runs, 0.35)
    done = random.random(runs) < succeed
    lengths = np.where(done, np.minimum(random.geometric(hard), 20), 20)
    return steps_of(
        lengths.tolist(),
        done.tolist(),
        prompts=None if prompts is None else [f"p{place}" for place in of],
        tokens=random.integers(200, 2_000, int(lengths.sum())),
    )


def known() -> pd.DataFrame:
    """95 successes within 3 steps, 5 at the tenth, and 30 runs that loop: three steps keep 95 %."""
    return steps_of([3] * 95 + [10] * 5 + [20] * 30, [True] * 100 + [False] * 30)

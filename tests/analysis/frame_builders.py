"""Frames of runs, written by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

_DTYPES = {
    "terminated": "boolean",
    "truncated": "boolean",
    "stop_reason": "string",
    "total_tokens": "Int64",
    "cost_usd": "Float64",
}


def runs_of(provider: Sequence[str], **columns: Sequence[Any]) -> pd.DataFrame:
    """A runs frame. By default every run completed with unknown usage; None is NA."""
    number = len(provider)
    terminated = list(columns.get("terminated", [True] * number))
    given: dict[str, Sequence[Any]] = {
        "run_id": [f"r{place}" for place in range(number)],
        "provider": provider,
        "prompt_id": [f"p{place}" for place in range(number)],
        "terminated": terminated,
        "truncated": [None if one is None else not one for one in terminated],
        "stop_reason": [None if one is None else "completed" if one else "turn_limit" for one in terminated],
        "total_tokens": [None] * number,
        "cost_usd": [None] * number,
        **columns,
    }
    return pd.DataFrame(
        {name: pd.array(list(values), dtype=_DTYPES[name]) if name in _DTYPES else values for name, values in given.items()}
    )


def crossed(**reasons: Sequence[str | None]) -> pd.DataFrame:
    """One row per run: the stop reasons of each provider, prompt by prompt."""
    rows = [(provider, f"p{place}", reason) for provider, of in reasons.items() for place, reason in enumerate(of)]
    return runs_of([row[0] for row in rows], prompt_id=[row[1] for row in rows], stop_reason=[row[2] for row in rows])

"""Why a curve has nothing to show: which runs, and what is not known of their models."""

from __future__ import annotations

import textwrap

import pandas as pd

from agentlab.plots import _figure as look
from agentlab.plots._data import COST, TOKENS, Quantity

NAMED = 2
WIDTH = 56
"""Characters of a line, so that it fits above axes that share a figure."""


def why_unknown(steps: pd.DataFrame, data: pd.DataFrame, quantity: Quantity) -> str:
    """`cost unknown for 1 of 3 runs: no price for compatible:gemma3; lab.plots.tokens shows tokens`, and nothing where all is known.
    `data` is what is drawn of `steps`."""
    rows = data[data[quantity.name].isna()]
    if rows.empty:
        return ""
    few, all_runs = rows["run_id"].nunique(), data["run_id"].nunique()
    told = f"{'cost' if quantity is COST else 'tokens'} unknown"
    if few < all_runs:
        told += f" for {few:,} of {all_runs:,} runs"
    if TOKENS.column not in steps.columns:
        return told
    counted = steps[steps[TOKENS.column].notna()]
    with_tokens = set(zip(counted["run_id"].astype("string"), counted["step"], strict=True))
    without_price = rows[[place in with_tokens for place in zip(rows["run_id"], rows["step"], strict=True)]]
    if quantity is COST and not without_price.empty:
        return f"{told}: no price for {_listed(without_price)}; lab.plots.tokens shows tokens"
    return f"{told}: {_listed(rows)} reported no usage"


def wrapped(text: str, width: int = WIDTH) -> str:
    """The sentence in lines that fit."""
    return "\n".join(textwrap.wrap(text, width, break_on_hyphens=False))


def _listed(rows: pd.DataFrame) -> str:
    pairs = dict.fromkeys(zip(rows["provider"], rows["model"].fillna(""), strict=True))
    names = [look.shorten(":".join(filter(None, pair)), 40) for pair in pairs]
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more

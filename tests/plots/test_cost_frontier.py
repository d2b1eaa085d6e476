"""The cost-success frontier: against brute force, a naive bootstrap, and how often its band contains the true frontier."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import agentlab as lab
from agentlab.plots.cost_frontier import RESAMPLES, SEED, frontier_data

AGENTS = {"small": (0.3, 0.01), "large": (1.5, 0.05), "odd": (0.2, 0.03)}
"""The ease and the cost of each agent's runs."""


def drawn(seed: int, tasks: int = 30, repeats: int = 2) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    hard = random.normal(size=tasks)
    rows = [
        {
            "agent": agent,
            "prompt_id": f"p{task}",
            "score": float(random.random() < 1 / (1 + np.exp(hard[task] - ease))),
            "cost_usd": cost * np.exp(0.4 * hard[task] + 0.3 * random.normal()),
            **{"terminated": True, "stop_reason": "completed", "total_tokens": 100},
        }
        for agent, (ease, cost) in AGENTS.items()
        for task in range(tasks)
        for _ in range(repeats)
    ]
    return pd.DataFrame(rows)


def efficient(cost: Any, rate: Any) -> list[bool]:
    """True for groups that no other beats: at least as good in both, and better in one."""
    return [
        not any(c <= cost[i] and r >= rate[i] and (c < cost[i] or r > rate[i]) for c, r in zip(cost, rate, strict=True))
        for i in range(len(cost))
    ]


def test_the_frontier_and_its_shares_are_those_of_a_naive_bootstrap() -> None:
    runs = drawn(1)
    found = frontier_data(runs, "agent")

    means = runs.groupby("agent", sort=False)[["cost_usd", "score"]].mean()
    assert found["efficient"].to_list() == efficient([*means["cost_usd"]], [*means["score"]])
    weights = np.random.default_rng(SEED).multinomial(30, np.full(30, 1 / 30), RESAMPLES)[:100]
    tasks, on_it = runs["prompt_id"].str[1:].astype(int), []
    for weight in weights:
        again = (
            runs.loc[runs.index.repeat(weight[tasks])].groupby("agent", sort=False)[["cost_usd", "score"]].mean().loc[[*AGENTS]]
        )
        on_it.append(efficient([*again["cost_usd"]], [*again["score"]]))
    assert found["efficient_share"].to_list() == pytest.approx(np.mean(on_it, axis=0), abs=0.12)  # 100 of 1,000 resamples


def test_the_band_contains_the_true_frontier() -> None:
    whole = drawn(99, 5_000, 1).groupby("agent")[["cost_usd", "score"]].mean()
    true = {agent: (float(whole.loc[agent, "cost_usd"]), float(whole.loc[agent, "score"])) for agent in AGENTS}  # type: ignore[arg-type]
    inside = []
    for seed in range(20):
        band = frontier_data(drawn(seed), "agent", band=True)
        best = [max((rate for cost, rate in true.values() if cost <= at), default=0.0) for at in band["cost"]]
        inside.append(bool((band["low"] <= best).all() and (best <= band["high"]).all()))
    assert np.mean(inside) >= 0.8  # of 20 at 95 %, fewer occur in 1 of 300 cases


def test_a_frontier_of_few_units_has_neither_shares_nor_band() -> None:
    runs = drawn(1, tasks=4)
    found = frontier_data(runs, "agent")

    assert found["efficient"].any() and found["efficient_share"].isna().all()
    assert frontier_data(runs, "agent", band=True).empty
    assert "too few units to resample of 4 independent units" in lab.plots.frontier(runs, "agent").alt  # type: ignore[attr-defined]


def test_whether_a_group_of_unknown_cost_is_on_the_frontier_is_unknown() -> None:
    runs = drawn(1)
    runs.loc[runs["agent"] == "large", "cost_usd"] = None
    found = frontier_data(runs, "agent").set_index("group")

    assert found.loc["large", ["efficient", "efficient_share"]].isna().all()
    assert found.loc["small", "efficient"]
    assert "large cost or success unknown of" in lab.plots.frontier(runs, "agent").alt  # type: ignore[attr-defined]


def test_equal_groups_are_on_the_frontier_together_and_a_group_of_few_units_gives_no_shares() -> None:
    runs = pd.concat([drawn(1).query("agent == 'small'").assign(agent=name) for name in "abc"], ignore_index=True)
    found = frontier_data(runs, "agent")
    assert found["efficient"].all() and (found["efficient_share"] == 1).all()

    few = pd.concat([runs[runs["agent"] == "a"], runs[runs["agent"] == "b"].head(1).assign(cost_usd=0.00001)])
    assert frontier_data(few, "agent")["efficient_share"].isna().all()
    assert frontier_data(few.head(0), "agent").empty


def test_the_band_of_negative_scores_is_below_0_and_open_where_no_group_is_known_to_cost_so_little() -> None:
    runs = drawn(1)
    losses = runs.assign(score=runs["score"] - 2)
    found, band = frontier_data(losses, "agent"), frontier_data(losses, "agent", band=True)
    before = band["cost"] < found["cost_high"].min()

    assert (band["high"] < 0).all() and (band["low"].dropna() <= band["high"][~before]).all()
    assert before.any() and band["low"].isna().tolist() == before.tolist()
    assert frontier_data(runs, "agent", band=True)["low"][0] == 0
    (drawn_band,) = [one for one in lab.plots.frontier(losses, "agent").collections if one.get_gid() == "band"]
    assert max(path.vertices[:, 1].max() for path in drawn_band.get_paths()) < 0


def test_the_level_of_the_band_is_written_exactly() -> None:
    texts = [text.get_text() for text in lab.plots.frontier(drawn(1), "agent", level=0.999).get_legend().get_texts()]
    assert "its band at 99.9%\n(Bonferroni)" in texts


def test_the_picture_tells_frontier_band_shares_and_methods() -> None:
    ax = lab.plots.frontier(drawn(1), "agent")

    assert {"frontier", "band"} <= {str(one.get_gid()) for one in [*ax.lines, *ax.collections]}
    texts = [text.get_text() for text in ax.get_legend().get_texts()]
    assert texts[:2] == ["Pareto frontier", "its band at 95%\n(Bonferroni)"] and "30 independent units" in texts[2]
    assert "on the frontier in 100% of 1,000 resamples of 30 independent units" in ax.alt  # type: ignore[attr-defined]
    assert "Intervals: Clopper-Pearson, effective n of units; t on the logarithm or Hall." in ax.alt  # type: ignore[attr-defined]
    assert lab.plots.frontier(lab.frame([], "runs")).alt  # type: ignore[attr-defined]

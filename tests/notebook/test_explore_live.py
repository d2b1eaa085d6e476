"""An explorer's answer to a changed limit is what the runs do when they run again with it and their other limits."""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import agentlab as lab
from agentlab import Budget, Custom, HasToolCall, MaxCost, MaxTokensUsed, StepCountIs
from agentlab.analysis.simulate import UNKNOWN
from agentlab.limits.combinators import StopCondition
from agentlab.model.finish_reasons import FinishReason
from agentlab.notebook.explorer.limits import KINDS
from agentlab.testing import Said, call, say
from tests.analysis.builders import newest_calls_a_tool, run, scripts

LEAVES: dict[str, Any] = {
    "StepCountIs": st.builds(StepCountIs, st.integers(1, 7)),
    "MaxTokensUsed": st.builds(MaxTokensUsed, st.integers(1, 200)),
    "MaxCost": st.builds(MaxCost, st.sampled_from(["0.001", "0.003", "0.004", "0.013", "0.02"])),
    "HasToolCall": st.builds(HasToolCall, st.sampled_from(["look", "finalize", "fail"])),
    "own": st.sampled_from([Custom(newest_calls_a_tool), HasToolCall("look") & StepCountIs(2), ~StepCountIs(3)]),
}
LIMITS: dict[str, Any] = {
    "max_turns": st.integers(1, 8),
    "max_calls": st.integers(1, 8),
    "max_cost": st.sampled_from(["0.001", "0.004", "0.02"]),
}
own_limits = st.tuples(st.fixed_dictionaries({}, optional=LEAVES), st.fixed_dictionaries({}, optional=LIMITS))
changes = st.one_of(
    *(st.tuples(st.just(name), leaf) for name, leaf in LEAVES.items() if name != "own"),
    *(st.tuples(st.just(name), value) for name, value in LIMITS.items()),
    st.tuples(st.sampled_from([*LIMITS, "StepCountIs", "HasToolCall"]), st.none()),
)


def settings_of(leaves: Mapping[str, StopCondition | None], limits: Mapping[str, Any]) -> tuple[Any, Budget]:
    conditions = [leaf for leaf in leaves.values() if leaf is not None]
    stop = functools.reduce(operator.or_, conditions) if conditions else None
    return stop, Budget(**{"max_turns": None, "max_tokens": 10**9, **limits})


@pytest.mark.timeout(300)
@settings(max_examples=80, deadline=None)
@given(st.lists(scripts, min_size=1, max_size=3), own_limits, own_limits, changes, st.booleans())
def test_a_changed_limit_gives_what_the_runs_would_have_done(
    recorded: list[list[Said]], first: Any, second: Any, change: tuple[str, Any], as_frame: bool
) -> None:
    own = [first, *[second] * len(recorded)][: len(recorded)]
    records = [run(script, *settings_of(*limits)) for script, limits in zip(recorded, own, strict=True)]
    steps, runs = lab.frame(records), lab.frame(records, "runs")
    explorer = lab.explore(steps, runs=runs, limits=list(KINDS)) if as_frame else lab.explore(records, limits=list(KINDS))
    name, new = change
    opening = dict(explorer.limits)
    if name not in opening or (as_frame and steps["tools"].str.contains("look, finalize").any()):
        return  # no range for a slider; or a tool's name that a frame cannot distinguish from two
    assert explorer.frame["unknown"].iloc[0] == 0 and explorer.frame["runs"].iloc[0] == len(records)
    value = new if not isinstance(new, StopCondition) else new.names if isinstance(new, HasToolCall) else vars_of(new)
    explorer.limits[name] = value
    if explorer.limits[name] == opening[name]:
        return  # not changed
    verdict, _ = explorer._trials._verdict(explorer.limits.snapshot())
    # it is kept as a whole, and the limit is added to it
    combined = any("combination" in one for one in explorer._recorded.others)
    for place, (script, (leaves, limits), record) in enumerate(zip(recorded, own, records, strict=True)):
        held = leaves | {f"added {name}" if combined else name: new} if name in LEAVES else leaves
        live = run(script, *settings_of(held, limits if name in LEAVES else {**limits, name: new}))
        if verdict.outcome[place] == UNKNOWN:
            cut = max(len(one.calls) for one in live.history) > 1 if live.history else False
            assert len(live.history) >= len(record.history) or cut
            continue
        assert verdict.row[place] + 1 == len(live.history) or not live.history
        for column, used in (("tokens", live.history.tokens), ("cost_usd", live.history.cost_usd)):
            if not np.isnan(verdict.used[column][place]):
                assert verdict.used[column][place] == pytest.approx(float(used or 0), abs=1e-9)


def vars_of(leaf: StopCondition) -> Any:
    return next(getattr(leaf, name) for name in ("steps", "tokens", "usd") if hasattr(leaf, name))


def test_a_step_cut_short_is_not_taken_for_complete_under_a_looser_limit() -> None:
    cut = say("some words", finish=FinishReason.MAX_TOKENS, tokens=(0, 1), cost="0.001")
    budget = Budget(max_turns=1, max_cost="0.001", max_tokens=None)  # type: ignore[arg-type]
    records = [run([]), run([cut, call("look", {})], None, budget)]
    explorer = lab.explore(records, limits=["max_cost", "StepCountIs"])
    assert records[1].stop_reason == lab.StopReason.TURN_LIMIT, "the first of the two limits that were met"
    explorer.limits["StepCountIs"] = 5
    assert explorer.frame["unknown"].iloc[0] == 0
    explorer.limits["max_cost"] = "0.004"
    assert explorer.frame["unknown"].iloc[0] == 1

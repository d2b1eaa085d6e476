"""Recorded runs of an experiment under other limits: the runs, with their scores, that they would have been. For `lab.tune`.

`agentlab.analysis.backtest` says where each run would have stopped. A part of the record that ends there is scored as a run is. If one
run is not exactly known, none is: to run only the long ones again would mix answers of two kinds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pandas as pd

from agentlab._internal.formatting import counted
from agentlab._internal.redaction import text_of
from agentlab.agent import Agent, Run
from agentlab.analysis.backtest import backtest
from agentlab.analysis.conditions import deciding_readings
from agentlab.analysis.grids import BOUNDS
from agentlab.engine.step import goal_output
from agentlab.experiments.frames import names_and_scores
from agentlab.experiments.identity import made_by
from agentlab.experiments.results import ExperimentResults
from agentlab.experiments.runner import FAILED
from agentlab.experiments.scoring import OtherRuns, code_version, score_of, version_of
from agentlab.experiments.shared_budget import RUN, SCORE, SharedBudget, Spent
from agentlab.experiments.status import CellStatus
from agentlab.limits.budget import Budget
from agentlab.limits.settings import RunSettings
from agentlab.model.finish_reasons import StopReason
from agentlab.records.frames import to_frame
from agentlab.records.result import RunResult
from agentlab.storage import codec
from agentlab.storage.store import ENDED, Store

NO_LIMIT = {"max_turns": 1_000_000_000}


def answered_by(agent: Agent) -> str:
    """Return what the agent's answers depend on, as text: everything but the limits that can be tried on a record."""
    settings, capped = agent.settings, agent.settings.budget.max_tokens_per_turn is not None
    free: dict[str, Any] = {name: None for name in BOUNDS if not (capped and name == "max_tokens")}  # it lowers that cap
    bare = replace(settings, stop=None, budget=replace(settings.budget, **free))
    model, sent = agent.model, {**agent.parameters.given(), **agent.options}
    parts = [model.name, model.model, agent.instructions, sent, made_by(agent, bare), codec.to_jsonable(bare)]
    return json.dumps(parts, sort_keys=True, default=text_of)


async def under_limits(results: ExperimentResults, agent: Agent) -> pd.DataFrame | str:
    """Return the frame `runs` of these runs under the limits of the agent, or why it is not exactly known. No request is sent."""
    statuses, settings = results.statuses, agent.settings
    if missing := sum(one.state != ENDED for one in statuses):
        return f"{missing} of {counted(len(statuses), 'run')} are not recorded"
    if settings.budget.last_answer is not None:
        return "a last answer is not in the record"
    if any(one.changed for one in statuses):
        return f"the code of {', '.join(next(one.changed for one in statuses if one.changed))} has changed since the record"
    limits = {name: value for name in BOUNDS if (value := getattr(settings.budget, name)) is not None}
    tried = backtest(results, settings.stop, budget=limits or NO_LIMIT, per="run").set_index("run_id")
    ended, scored, code = [], [], code_version(results.score)
    for one, run in zip(statuses, results.loaded, strict=True):
        row: pd.Series[Any] = tried.loc[one.run_id]  # type: ignore[assignment]  # each run occurs once
        result = _result(run, row, settings, agent)
        if result is None:
            unknown = int((tried["outcome"] == "unknown").sum())
            return (
                f"the record of {counted(unknown, 'run')} ends before these limits"
                if unknown
                else "a run would end within a step"
            )
        is_same = row["outcome"] == "finished" and run.result is not None and result.conditions_met == run.result.conditions_met
        note = await _note(results, one, result, code, is_same=is_same)
        if note is None and results.score is not None and result.stop_reason.value not in FAILED:
            return "the scorer asks a model"
        ended.append(result)
        scored.append(replace(one, note=note, score_changed=False, more_scores={}))
    table = to_frame(ended, "runs")
    return pd.concat(
        [pd.DataFrame(names_and_scores(scored, range(len(scored)), results.score), index=table.index), table], axis=1
    )


def _result(run: Run, row: pd.Series[Any], settings: RunSettings, agent: Agent) -> RunResult | None:
    """Return the result of a run that ends as this row of a backtest says; None if that is not exactly known."""
    if run.result is None or row["outcome"] == "unknown" or pd.isna(row["stop_reason"]):
        return None
    beginning, reason = run.timeline.prefix().until(int(row["step"])), StopReason(row["stop_reason"])
    history, last = beginning.history, beginning.history.last
    met = () if settings.stop is None or last is None else deciding_readings(history, settings.stop)
    if met is not None and row["outcome"] == "finished":
        return replace(run.result, conditions_met=tuple(met))
    if last is None or met is None or reason is StopReason.ERROR or pd.isna(row["calls"]) or history.calls != row["calls"]:
        return None
    output = goal_output(settings.stop, met, last.tool_results) if reason is StopReason.STOP_CONDITION else None
    if output is not None and agent.output_type is not None:
        return None
    history.amend(replace(last, stop_reason=reason))
    return replace(
        run.result,
        history=history,
        messages=beginning.messages,
        events=(),
        stop_reason=reason,
        detail=f"Under other limits: {row['fired']}.",
        conditions_met=tuple(met),
        output=output,
        error=None,
        stopped_by="",
    )


async def _note(
    results: ExperimentResults, one: CellStatus, result: RunResult, code: str, *, is_same: bool
) -> Mapping[str, Any] | None:
    """Return the score as it is stored; that of the record if the run ends as it did there. None if the scorer asks a model."""
    if results.score is None or result.stop_reason.value in FAILED:
        return None
    if is_same and one.note is not None and not one.score_changed:
        return one.note
    task, spent = results.grid.tasks[one.cell.prompt_id], {"": {RUN: Spent(calls=1)}}
    refusing = OtherRuns(Store().storage, one.run_id, SharedBudget(Budget(max_calls=1), None, spent), SCORE, refuse=True)
    return await score_of(results.score, result, task, version_of(code, results.score, task), refusing)

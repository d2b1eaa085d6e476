"""The analysis of an experiment as plain data: what `results.report()` shows and embeds, and what `lab.verify` computes again."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from agentlab._internal.redaction import redact, text_of
from agentlab._internal.safe_text import whole
from agentlab.agent import Agent
from agentlab.analysis.compare import paired, summary
from agentlab.analysis.origins import provenance
from agentlab.analysis.passes import pass_at_k
from agentlab.engine.client import Model
from agentlab.errors import ConfigurationError
from agentlab.experiments.grid import AXES
from agentlab.experiments.results import ExperimentResults
from agentlab.experiments.scoring import code_version, each_of
from agentlab.limits.budget import Budget
from agentlab.limits.combinators import StopCondition
from agentlab.limits.condition_tree import condition_code
from agentlab.model.parts import as_text
from agentlab.providers.registry import Provider

FORMAT = 1
PAIRED = ("score", "cost_usd", "total_tokens")
"""The columns whose differences between agents are reported, as far as they have values."""
OF_RUNS = ("state", "stop_reason", "score_error", "steps", "calls", "total_tokens", "cost_usd", "replayed", "detail")

Data = dict[str, Any]


def study_data(results: ExperimentResults) -> Data:
    """Return the analysis as JSON values without keys: parts of the experiment, provenance, and all tables."""
    grid = results.grid
    runs = {run.id: run for run in results.loaded}
    data = {
        "format": FORMAT,
        "name": grid.name,
        "agents": {name: _agent(agent) for name, agent in grid.agents.items()},
        "settings": {name: {part: _code(value) for part, value in given.items()} for name, given in grid.settings.items()},
        "repeats": max(cell.repeat for cell in grid.cells),
        "tasks": {
            "version": grid.tasks.version,
            "items": [
                {
                    "id": task.id,
                    "prompt": task.text,
                    "target": None if task.target is None else as_text(task.target),
                    "tags": ", ".join(task.tags),
                    "hash": task.hash,
                }
                for task in grid.tasks
            ],
        },
        "scorers": _scorers(results),
        "responses": {
            one.cell.label: runs[one.run_id].provenance.responses_hash for one in results.statuses if one.run_id in runs
        },
        "tables": {name: _plain(table) for name, table in tables(results).items()},
        "provenance": _plain(provenance(results)),
    }
    clean: Data = json.loads(whole(redact(json.dumps(data, default=text_of, allow_nan=False, ensure_ascii=False))))
    return clean


def tables(results: ExperimentResults) -> dict[str, pd.DataFrame]:
    """Return the frames of the analysis by name."""
    runs = results.runs
    by = ["agent", "settings"] if runs["settings"].nunique() > 1 else ["agent"]
    found = {"summary": summary(runs, by)}
    scores = runs["score"].dropna()
    if runs["agent"].nunique() > 1:
        found |= {f"paired {what}": paired(runs, what, "agent") for what in PAIRED if runs[what].notna().any()}
    repeats = int(runs["repeat"].max())
    if repeats > 1 and len(scores) and set(scores.astype(float)) <= {0.0, 1.0}:
        found["pass@k"] = pass_at_k(runs, sorted({1, repeats}), by)
    more = [name for name in runs.columns if name == "score" or name.startswith("score.")]
    found["runs"] = runs[[*AXES, *more, *OF_RUNS]]
    return found


def _agent(agent: Agent) -> Data:
    return {
        "model": f"{agent.model.name}:{agent.model.model}",
        "instructions": agent.instructions,
        "tools": list(agent.tools),
        "parameters": {**agent.parameters.given(), **agent.options},
        "base_url": _address(agent.model),
        "limits": {
            name: _code(value)
            for name, value in (("budget", agent.settings.budget), ("stop", agent.settings.stop))
            if value not in (None, Budget())
        },
    }


def _address(model: Model) -> str | None:
    """Return the address of the model's server; None if it has none, or the vendor's."""
    address = getattr(model, "address", None) or None
    try:
        usual = getattr(Provider(model.name, model=model.model), "base_url", None)
    except ConfigurationError:  # it has no usual address, or is not of agentlab
        usual = None
    return None if address == usual else address


def _code(value: object) -> str:
    return condition_code(value) if isinstance(value, StopCondition) else text_of(value, repr)


def _scorers(results: ExperimentResults) -> list[Data]:
    """Return each scorer with the version of its code; those of `rescore` with the versions that are stored."""
    own = [{"name": name, "scorer": _named(one), "version": code_version(one)} for name, one in each_of(results.score)]
    later: dict[str, dict[str, None]] = {}
    for one in results.statuses:
        for name, note in one.more_scores.items():
            later.setdefault(name, {})[str(note.get("by", "")).rpartition(" ")[0] or str(note.get("by", ""))] = None
    return own + [
        {"name": name, "scorer": "added by rescore", "version": ", ".join(versions)} for name, versions in later.items()
    ]


def _named(scorer: object) -> str:
    """Return a scorer in words: its repr if its class defines one, else the name of the function."""
    return (
        text_of(scorer, repr)
        if type(scorer).__repr__ is not object.__repr__ and not hasattr(scorer, "__code__")
        else "a function"
    )


def _plain(table: pd.DataFrame) -> Data:
    columns = [[_cell(value) for value in table[name]] for name in table.columns]
    return {"columns": list(map(str, table.columns)), "rows": [list(row) for row in zip(*columns, strict=True)]}


def _cell(value: Any) -> Any:
    """Return a value of a frame as JSON: None for NA, text for infinity."""
    if value is pd.NA or value is pd.NaT or value is None:
        return None
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value if isinstance(value, bool | int | float | str) else text_of(value)


def rows_of(table: Mapping[str, Any]) -> Sequence[Data]:
    """Return the rows of a table as dicts."""
    return [dict(zip(table["columns"], row, strict=True)) for row in table["rows"]]

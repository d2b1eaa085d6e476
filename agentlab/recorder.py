"""Runs as DataFrames; what stands in them is declared in agentlab.columns.

    result.to_frame()                 one row a step
    result.to_frame("calls")          also `tools`, `events`, `readings`, `termination`
    lab.frame([result_a, result_b])   several runs in one frame; `lab.frame(results, "runs")` has a row a run

All dtypes are nullable: NA is unknown, never 0. After the fixed columns of the steps frame come, for each leaf of the stop condition,
`<leaf>.value`, `<leaf>.limit` and `<leaf>.met`, named as in `run.limits.leaves`.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

import pandas as pd

from agentlab.columns import (
    CALL_COLUMNS,
    EVENT_COLUMNS,
    READING_COLUMNS,
    RUN_COLUMNS,
    STEP_COLUMNS,
    TERMINATION_COLUMNS,
    TOOL_COLUMNS,
    Column,
    EndRow,
    Source,
    named_leaves,
    plain,
    step_rows,
)
from agentlab.errors import ConfigurationError
from agentlab.limits import LARGEST
from agentlab.results import Reading, RunResult, StepResult
from agentlab.run import Run

Recorded: TypeAlias = RunResult | Run


# Rows --------------------------------------------------------------------------------------------------------------------------


def _reading_rows(source: Source) -> Iterator[tuple[StepResult, str, Reading]]:
    for step in source.history:
        if step.readings is not None:
            for name, leaf in named_leaves(step.readings).items():
                yield step, name, leaf


def _end_rows(source: Source) -> Iterator[EndRow]:
    for step in source.history:
        for call in step.calls[:-1]:
            yield EndRow(step, call, last=False)
        yield EndRow(step, step.calls[-1] if step.calls else None, last=True)


_KINDS: dict[str, tuple[tuple[Column, ...], Callable[[Source], Iterable[Any]]]] = {
    "runs": (RUN_COLUMNS, lambda s: [s.result]),
    "steps": (STEP_COLUMNS, lambda s: step_rows(s.history)),
    "calls": (CALL_COLUMNS, lambda s: [(step, call) for step in s.history for call in step.calls]),
    "tools": (TOOL_COLUMNS, lambda s: [(step, result) for step in s.history for result in step.tool_results]),
    "events": (EVENT_COLUMNS, lambda s: s.events),
    "readings": (READING_COLUMNS, _reading_rows),
    "termination": (TERMINATION_COLUMNS, _end_rows),
}


FRAMES = tuple(_KINDS)


def to_frame(recorded: Recorded | Iterable[Recorded], what: str = "steps") -> pd.DataFrame:
    """Runs, finished or not, as a DataFrame: `runs`, `steps`, `calls`, `tools`, `events`, `readings` or `termination`."""
    if what not in _KINDS:
        raise ConfigurationError(f"There is no frame {what!r}: choose one of {', '.join(_KINDS)}.")
    columns, rows_of = _KINDS[what]
    several = recorded if isinstance(recorded, Iterable) and not isinstance(recorded, str | RunResult | Run) else [recorded]
    sources = [_source(one) for one in several]
    rows = [(source, row) for source in sources for row in list(rows_of(source))]
    frame = pd.DataFrame({column.name: array([column.read(*row) for row in rows], column.dtype) for column in columns})
    if what == "steps":
        readings = _reading_columns([row.step for _, row in rows])
        frame = pd.concat([frame, pd.DataFrame(readings)], axis=1) if readings else frame
    return frame


_COUNTED_BY = ["provider", "model", "finish_reason", "raw_finish_reason", "confidence", "action", "stop_reason", "suggestion"]


def termination_report(recorded: Recorded | Iterable[Recorded], *, summary: bool = False) -> pd.DataFrame:
    """How every response of one or several runs ended, what followed, and what could be done about it: a row a response.

    With `summary`, a row for each kind of end, and how many `responses` ended so, the most frequent first.
    """
    frame = to_frame(recorded, "termination")
    if not summary:
        return frame
    counted = frame.groupby(_COUNTED_BY, dropna=False, sort=False).size().reset_index(name="responses")
    counted["responses"] = counted["responses"].astype("Int64")
    return counted.sort_values("responses", ascending=False, kind="stable", ignore_index=True)


def _source(recorded: Recorded) -> Source:
    if isinstance(recorded, Run):
        model = recorded.agent.model
        return Source(
            recorded.id,
            model.name,
            model.model,
            recorded.history,
            list(recorded.events),
            recorded.result,
            recorded.prompt,
            recorded.parent_run_id,
            recorded.forked_at,
            recorded.parent_step,
            recorded.called_by,
        )
    if isinstance(recorded, RunResult):
        of = recorded
        kept = (of.parent_run_id, of.forked_at, of.parent_step, of.called_by)
        return Source(of.run_id, of.provider, of.model, of.history, list(of.events), of, of.prompt, *kept)
    raise ConfigurationError(f"{recorded!r} is not a run or a result: pass what agent.run(…) gave, or what awaiting it gave.")


def _reading_columns(steps: list[StepResult]) -> dict[str, Any]:
    """Three columns for each leaf that was read in any of these steps, in the order of their first appearance."""
    read = [named_leaves(step.readings) if step.readings is not None else {} for step in steps]
    names = dict.fromkeys(name for leaves in read for name in leaves)
    columns: dict[str, Any] = {}
    for name in names:
        leaves = [leaves.get(name) for leaves in read]
        columns[f"{name}.value"] = any_array([None if leaf is None else plain(leaf.value) for leaf in leaves])
        columns[f"{name}.limit"] = any_array([None if leaf is None else plain(leaf.limit) for leaf in leaves])
        columns[f"{name}.met"] = array([None if leaf is None else leaf.met for leaf in leaves], "boolean")
    return columns


def array(values: list[Any], dtype: str) -> Any:
    """The values of a column."""
    if values.count(None) == len(values):  # as most limits and details are, and to look at each value takes far longer
        return pd.Series(pd.NA, index=range(len(values)), dtype=dtype).array
    return pd.Series(_as_unicode(values) if dtype == "string" else values, dtype=dtype).array


def _as_unicode(values: list[Any]) -> list[Any]:
    """Half a surrogate pair, from an answer that was cut inside an escaped emoji, is no text to Arrow nor to a file: it becomes `?`."""
    try:
        "".join([value for value in values if value is not None]).encode()
    except UnicodeEncodeError:
        return [None if value is None else value.encode(errors="replace").decode() for value in values]
    return values


def any_array(values: list[Any]) -> Any:
    """Values of a type that only the condition knows, in the narrowest nullable dtype that holds them all."""
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {bool}:
        return array(values, "boolean")
    if kinds <= {int} and all(value is None or -LARGEST <= value <= LARGEST for value in values):
        return array(values, "Int64")
    if kinds <= {int, float}:
        return array(values, "Float64")
    if kinds <= {str}:
        return array(values, "string")
    return array(values, "object")


# What a notebook shows -----------------------------------------------------------------------------------------------------------

SHOWN = [
    "step",
    "finish_reason",
    "tools",
    "input_tokens",
    "output_tokens",
    "cumulative_tokens",
    "cumulative_cost_usd",
    "stop_reason",
]


def result_bundle(result: RunResult) -> dict[str, str]:
    """A result as plain text and as HTML: why it ended, and its steps. Whatever came from a model is escaped."""
    frame = to_frame(result)[SHOWN].astype("object")
    frame["stop_reason"] = frame["stop_reason"].fillna("")
    table = frame.where(frame.notna(), "unknown").to_html(index=False, border=0, escape=True)
    end = "terminated" if result.terminated else "truncated"
    head = f"{result.provider}:{result.model} · {end} · {result.stop_reason} — {result.detail}"
    return {"text/plain": repr(result), "text/html": f"<div><p><b>{html.escape(head)}</b></p>{table}</div>"}

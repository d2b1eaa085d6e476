"""Comparisons of runs for the tests of the store."""

from __future__ import annotations

import pandas as pd
from pydantic_core import to_jsonable_python

import agentlab as lab
from agentlab.storage.store import Store

FRAMES = ("steps", "calls", "tools", "events", "readings", "termination")
_OF_THE_STORE = ["state", "begun_at"]


def assert_kept(store: Store, recorded: lab.Run | lab.RunResult) -> None:
    """Assert that all frames of a run are the same from the store, and that the loaded run is too."""
    run_id = recorded.run_id if isinstance(recorded, lab.RunResult) else recorded.id
    loaded = store.load(run_id)
    for what in FRAMES:
        expected = lab.frame(recorded, what)
        assert_equal(store.frame(what, [run_id]), expected, what)
        assert_equal(loaded.to_frame(what), expected, f"loaded {what}")
    if isinstance(recorded, lab.RunResult):
        kept = store.frame("runs", [run_id])
        assert_equal(kept.drop(columns=_OF_THE_STORE), lab.frame(recorded, "runs"), "runs")
        assert kept["state"].to_list() == ["ended"]
        assert loaded.result is not None
        assert spoken(loaded.messages) == spoken(recorded.messages)
        written = to_jsonable_python(recorded.output, fallback=str)  # without the agent a typed output is its JSON values
        assert loaded.result.output in (recorded.output, str(recorded.output), written)
        assert loaded.result.text == recorded.text
        assert loaded.result.stopped_by == recorded.stopped_by
        assert loaded.result.conditions_met == recorded.conditions_met
        assert str(loaded.result.error) == str(recorded.error)


def assert_equal(found: pd.DataFrame, expected: pd.DataFrame, what: str) -> None:
    """What pandas asserts of two frames, which takes it several times as long; values and dtypes are compared first."""
    if not found.equals(expected):
        pd.testing.assert_frame_equal(found, expected, obj=what)
    pd.testing.assert_index_equal(found.index, expected.index, exact="equiv", obj=what)
    pd.testing.assert_index_equal(found.columns, expected.columns, exact="equiv", obj=what)


def spoken(messages: object) -> list[object]:
    """A conversation as the model sees it: tool results by their text, since a function's return value need not be stored."""
    return [
        (one.role, one.text, one.tool_calls, [(r.call_id, r.content, r.error) for r in one.tool_results], one.native)
        for one in messages  # type: ignore[attr-defined]
    ]

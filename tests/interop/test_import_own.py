"""agentlab's own files: stores and Parquet."""

from __future__ import annotations

import asyncio
import pickle
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import agentlab as lab
from agentlab import StepCountIs
from agentlab.errors import ConfigurationError, StorageError
from agentlab.testing import ScriptedProvider, call

SPAN = {
    "name": "chat m1", "traceId": "a1", "spanId": "b1", "startTimeUnixNano": "1", "endTimeUnixNano": "9",
    "attributes": {"gen_ai.operation.name": "chat"},
}  # fmt: skip


def look() -> str:
    """A tool."""
    return "seen"


def stored(path: Path, **more: Any) -> list[lab.RunResult]:
    """Some stored runs."""

    async def main() -> list[lab.RunResult]:
        with lab.Store(path) as store:
            model = ScriptedProvider([call("look", cost=0.1), "done"], name="one", model="m1")
            agent = lab.Agent(model, tools=[look], observers=[store])
            return [await agent.run("go", stop=StepCountIs(limit)) for limit in (1, 5)]

    return asyncio.run(main())


def test_a_store_is_read(tmp_path: Path) -> None:
    results = stored(tmp_path / "runs.db")
    found = lab.importers.store(tmp_path / "runs.db")
    with lab.Store(tmp_path / "runs.db") as store:
        pd.testing.assert_frame_equal(found.steps, store.frame("steps"))
        pd.testing.assert_frame_equal(found.runs, store.frame("runs"))
        pd.testing.assert_frame_equal(lab.importers.store(store).steps, store.frame("steps"))
    assert found.runs["run_id"].to_list() == [result.run_id for result in results]
    assert found.notes == ()
    assert repr(found).startswith("Imported(2 runs, 3 steps from ")


def test_the_calls_and_tools_of_a_store_are_read_when_they_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    stored(Path("runs.db"))
    with lab.Store("runs.db") as store:
        imported = (
            lab.importers.store("runs.db"),
            lab.importers.store(store),
            pickle.loads(pickle.dumps(lab.importers.store(store))),
        )
        stored(Path("runs.db"))  # later runs are not part of them
        monkeypatch.chdir("/")
        for found in imported:
            for what, kept in (("calls", found.calls), ("tools", found.tools)):
                pd.testing.assert_frame_equal(kept, store.frame(what, found.runs["run_id"]))
                assert lab.frame(found, what) is kept
    assert lab.importers.store(tmp_path / "runs.db").calls is not None
    assert lab.importers.otel(SPAN).calls is None


def test_a_store_of_an_experiment_has_its_scores(tmp_path: Path) -> None:
    agent = lab.Agent(ScriptedProvider(["yes"], name="one", model="m1"), tools=[look])

    async def main() -> None:
        with lab.Store(tmp_path / "runs.db") as store:
            score = {"score": True, "words": 1}
            results = await lab.Experiment({"a": agent}, ["go"], repeats=2, score=lambda result: score, store=store).run()
            await results.rescore(lambda result: len(result.text), name="letters")

    asyncio.run(main())
    runs = lab.importers.store(tmp_path / "runs.db").runs
    assert runs["score"].to_list() == [True, True]
    assert runs["score.words"].to_list() == [1.0, 1.0]
    assert runs["score.letters"].to_list() == [3.0, 3.0]


def test_a_missing_store_is_not_created(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="the file does not exist"):
        lab.importers.store(tmp_path / "runs.db")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ConfigurationError, match="the path does not exist"):
        lab.importers.parquet(tmp_path / "gone")
    with pytest.raises(ConfigurationError, match=r"no steps\.parquet"):
        lab.importers.parquet(tmp_path)


def test_an_export_is_read_like_the_store(tmp_path: Path) -> None:
    stored(tmp_path / "runs.db")
    with lab.Store(tmp_path / "runs.db") as store:
        store.export(tmp_path / "out")
    found, expected = lab.importers.parquet(tmp_path / "out"), lab.importers.store(tmp_path / "runs.db")
    pd.testing.assert_frame_equal(found.steps, expected.steps, check_dtype=False)
    assert found.steps.dtypes.to_dict() == expected.steps.dtypes.to_dict()
    for ours, exported in ((expected.calls, found.calls), (expected.tools, found.tools)):
        pd.testing.assert_frame_equal(ours, exported)
    assert set(found.runs) == set(expected.runs)
    pd.testing.assert_frame_equal(found.runs[list(expected.runs)], expected.runs)


def known(column: pd.Series) -> list[object]:
    """Values of a column, None for NA."""
    return [None if pd.isna(value) else value for value in column]


def test_steps_alone_give_their_runs(tmp_path: Path) -> None:
    results = stored(tmp_path / "runs.db")
    lab.frame(results).drop(columns=["model", "known_tokens"]).assign(mine=1).to_parquet(tmp_path / "mine.parquet")
    found = lab.importers.parquet(tmp_path / "mine.parquet")
    ours = lab.frame(results, "runs")
    for name in ("run_id", "stop_reason", "steps", "calls", "total_tokens", "cost_usd", "child_tokens"):
        assert known(found.runs[name]) == known(ours[name]), name
    decided = ~found.runs["stop_reason"].isin(["stop_condition", "explicit_stop"])  # either, which only the run knew
    for name in ("terminated", "truncated"):
        assert known(found.runs[name][decided]) == known(ours[name][decided]), name
        assert found.runs[name][~decided].isna().all()
    assert found.steps["model"].isna().all()
    assert found.steps["known_tokens"].to_list() == lab.frame(results)["known_tokens"].to_list()
    assert "mine" in " ".join(found.notes)
    assert "built from their steps" in " ".join(found.notes)


def test_words_and_scores_that_are_unknown_are_noted(tmp_path: Path) -> None:
    frame = pd.DataFrame({
        "run_id": ["a", "a", "b"],
        "finish_reason": ["tool_calls", "finished", None],
        "stop_reason": [None, "done", "completed"],
        "score": ["C", "C", "I"],
        "score.length": [1.0, 1.0, 2.0],
    })  # fmt: skip
    frame.to_parquet(tmp_path / "odd.parquet")
    found = lab.importers.parquet(tmp_path / "odd.parquet")
    assert found.notes[1:4] == (
        "Words in 'finish_reason' of odd.parquet that agentlab does not know: 'finished'.",
        "Words in 'stop_reason' of odd.parquet that agentlab does not know: 'done'.",
        "The column 'score' of odd.parquet has texts instead of numbers: its scores are NA.",
    )
    assert found.steps["score"].isna().all()
    assert found.steps["score.length"].to_list() == [1, 1, 2]


def test_tokens_by_run_are_sufficient(tmp_path: Path) -> None:
    pd.DataFrame({"run_id": ["a", "a", "b"], "total_tokens": [1.0, 2.0, None]}).to_parquet(tmp_path / "few.parquet")
    found = lab.importers.parquet(tmp_path / "few.parquet")
    assert found.steps["step"].to_list() == [1, 2, 1]
    assert found.runs["total_tokens"].to_list() == [3, pd.NA]
    assert found.steps["cumulative_tokens"].to_list() == [1, 3, pd.NA]
    assert found.steps["known_tokens"].to_list() == [1, 3, 0]
    assert list(found.steps) == list(lab.frame([]))


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (pd.DataFrame({"a": [1]}), "no column 'run_id'"),
        (pd.DataFrame({"run_id": ["a"], "step": ["first"]}), "the column 'step' is"),
        (pd.DataFrame({"run_id": ["a"], "total_tokens": [1.5]}), "the column 'total_tokens' is"),
    ],
)
def test_an_invalid_steps_frame_is_refused(tmp_path: Path, frame: pd.DataFrame, message: str) -> None:
    frame.to_parquet(tmp_path / "odd.parquet")
    with pytest.raises(StorageError, match=message):
        lab.importers.parquet(tmp_path / "odd.parquet")


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cut.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(StorageError, match="cannot be read as Parquet"):
        lab.importers.parquet(tmp_path / "cut.parquet")


def test_shown_values_are_escaped(tmp_path: Path) -> None:
    pd.DataFrame({"run_id": ["<b>a</b>"], "stop_reason": ["<script>"]}).to_parquet(tmp_path / "<i>.parquet")
    shown = lab.importers.parquet(tmp_path / "<i>.parquet")._repr_html_()
    assert "<script>" not in shown
    assert "<b>a</b>" not in shown
    assert "<i>" not in shown

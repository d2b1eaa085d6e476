"""Inspect's logs, as Inspect's own reader reads logs that Inspect made. Recorded for `make test`, made again by `make inspect`."""

from __future__ import annotations

import copy
import json
import os
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import agentlab as lab
from agentlab.errors import ConfigurationError, StorageError
from agentlab.interop.import_inspect import STOP_REASONS, from_lines

from .with_inspect import LINES, VARIABLE, make_logs

PYTHON = os.environ.get(VARIABLE)
needs_inspect = pytest.mark.inspect
Imported = lab.importers.Imported


@pytest.fixture(scope="session")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("logs")
    assert PYTHON is not None
    make_logs(PYTHON, folder)
    return folder


@pytest.fixture(scope="session", params=["recorded", pytest.param("made", marks=needs_inspect)])
def found(request: pytest.FixtureRequest) -> Imported:
    if request.param == "recorded":
        return from_lines(lines(), "a recording")
    return lab.importers.inspect(request.getfixturevalue("logs"), python=PYTHON)


def lines() -> list[dict[str, Any]]:
    return [json.loads(line) for line in LINES.read_text(encoding="utf-8").splitlines()]


def of(found: Imported, task: str) -> tuple[pd.DataFrame, pd.Series]:
    """The steps of the first run of a task, and its row."""
    run = found.runs[found.runs["task"] == task].iloc[0]
    return found.steps[found.steps["run_id"] == run["run_id"]], run


def test_a_run_is_an_epoch_of_a_sample(found: Imported) -> None:
    epochs = found.runs[found.runs["task"] == "epochs"]
    assert sorted(epochs["epoch"]) == [1, 2]
    assert epochs["run_id"].is_unique
    assert set(epochs["sample"]) == {"capital"}
    assert set(epochs["prompt"]) == {"What is the capital of France?"}
    assert set(epochs["stop_reason"]) == {"completed"}
    assert len(found.runs) == 8
    steps, run = of(found, "epochs")
    assert (run["provider"], run["model"], run["steps"], run["text"]) == ("mockllm", "model", 3, "It is Paris.")
    assert steps["step"].to_list() == [1, 2, 3]
    assert steps["finish_reason"].to_list() == ["tool_calls", "tool_calls", "end_turn"]
    assert steps["raw_finish_reason"].to_list() == ["tool_calls", "tool_calls", "stop"]
    assert steps["tools"].to_list() == ["look", "look", ""]
    assert steps["tool_errors"].to_list() == [0, 1, 0]
    assert steps["text"].to_list()[-1] == "It is Paris."


def test_tokens_follow_our_convention(found: Imported) -> None:
    steps, run = of(found, "epochs")
    assert steps["input_tokens"].to_list() == [117, 20, 30]
    assert steps["cache_read_tokens"].to_list() == [100, pd.NA, pd.NA]
    assert steps["cache_write_tokens"].to_list() == [7, pd.NA, pd.NA]
    assert steps["reasoning_tokens"].to_list() == [pd.NA, 4, pd.NA]
    assert steps["cumulative_tokens"].to_list() == [122, 148, 186]
    assert steps["known_tokens"].to_list() == [122, 148, 186]
    assert run["total_tokens"] == 186
    assert steps["cost_usd"].isna().all()
    assert set(steps["cost_source"]) == {"unknown"}
    paid, _ = of(found, "paid")
    assert (paid["cost_usd"].to_list(), paid["cost_source"].to_list()) == ([0.25], ["priced"])


def test_times_are_of_the_run(found: Imported) -> None:
    steps, run = of(found, "messages")
    assert steps["started_s"].is_monotonic_increasing
    assert (steps["duration_s"] > 0).all()
    assert (steps["started_s"] + steps["duration_s"]).iloc[-1] <= run["elapsed_s"] + 0.01


@pytest.mark.parametrize(
    ("task", "stop", "terminated", "detail"),
    [
        ("messages", "turn_limit", False, "The message limit of the sample, 6, was reached."),
        ("tokens", "token_budget", False, "The token limit of the sample, 50, was reached."),
        ("error", "error", False, "RuntimeError('the solver broke')"),
        ("cut", "truncated", False, pd.NA),
        ("react", "terminating_tool", True, "The agent submitted its answer."),
        ("paid", "completed", True, pd.NA),
    ],
)
def test_the_reason_for_the_end_is_imported(found: Imported, task: str, stop: str, terminated: bool, detail: str) -> None:
    steps, run = of(found, task)
    assert steps["stop_reason"].to_list() == [pd.NA] * (len(steps) - 1) + [stop]
    assert (run["stop_reason"], run["terminated"], run["truncated"]) == (stop, terminated, not terminated)
    assert pd.isna(run["detail"]) if pd.isna(detail) else run["detail"] == detail


def test_limits_are_columns(found: Imported) -> None:
    assert set(of(found, "tokens")[0]["max_tokens"]) == {50}
    assert of(found, "messages")[0]["max_turns"].isna().all()


def test_scores_are_numbers(found: Imported) -> None:
    assert of(found, "paid")[1]["score"] == 1.0
    assert of(found, "messages")[1]["score"] == 0.0
    assert pd.isna(of(found, "error")[1]["score"])
    _, cut = of(found, "cut")
    assert (cut["score"], cut["score.includes"], cut["score.length"], cut["score.graded"]) == (0.0, 0.0, 8.0, 0.5)


def test_a_scorers_call_is_no_step(found: Imported) -> None:
    steps, _ = of(found, "cut")
    assert steps["total_tokens"].to_list() == [7]
    assert found.notes == (
        "Model calls by scorers are not steps: 1 left out.",
        "Samples with several scorers: 1; `score` is that of the first scorer.",
    )


def test_the_frames_have_our_own_columns(found: Imported) -> None:
    assert list(found.steps) == list(lab.frame([]))
    ours = lab.frame([], "runs")
    assert list(found.runs)[: len(ours.columns)] == list(ours)
    assert found.steps.dtypes.to_dict() == lab.frame([]).dtypes.to_dict()
    assert not lab.summary(found.runs, by="task").empty


# Cases missing from these logs: recorded ones, changed by hand ----------------------------------------------------------------------


def changed(task: str, change: Callable[[dict[str, Any]], None]) -> Imported:
    line = copy.deepcopy(next(one for one in lines() if one["sample"]["task"] == task))
    change(line["sample"])
    return from_lines([line], "one")


def models(sample: dict[str, Any]) -> list[dict[str, Any]]:
    return [one for one in sample["events"] if one["event"] == "model"]


def test_every_limit_of_inspect_has_its_stop_reason() -> None:
    for kind, reason in STOP_REASONS.items():
        found = changed("paid", lambda sample, kind=kind: sample.update(limit={"type": kind, "limit": 1234567.0}))
        assert found.runs["stop_reason"].to_list() == [reason.value]
        assert f"The {kind} limit of the sample, 1234567," in found.runs["detail"][0]
    unknown = changed("paid", lambda sample: sample.update(limit={"type": "new", "limit": 3.0}))
    assert unknown.runs["stop_reason"].isna().all()
    assert unknown.runs["truncated"].isna().all()


def test_older_logs_counted_cached_tokens_as_input() -> None:
    def older(sample: dict[str, Any]) -> None:
        models(sample)[0]["usage"].update(input_tokens=117, total_tokens=122)

    found = changed("epochs", older)
    assert found.steps["input_tokens"].to_list() == [117, 20, 30]
    assert "Calls whose input already includes the cached tokens, according to their total: 1." in found.notes


def test_an_answer_from_inspects_cache_used_nothing() -> None:
    found = changed("epochs", lambda sample: models(sample)[2].update(cache="read"))
    assert found.steps["total_tokens"].to_list() == [122, 26, 0]
    assert found.steps["calls"].to_list() == [1, 1, 0]


def test_missing_usage_is_unknown() -> None:
    found = changed("epochs", lambda sample: models(sample)[1].update(usage=None))
    assert found.steps["total_tokens"].to_list() == [122, pd.NA, 38]
    assert found.steps["cumulative_tokens"].to_list() == [122, pd.NA, pd.NA]
    assert found.steps["known_tokens"].to_list() == [122, 122, 160]
    assert found.steps["usage_source"].to_list() == ["reported", "unknown", "reported"]


def test_a_failed_call_is_a_step_without_an_answer() -> None:
    secret = "sk-" + "a1B2c3D4" * 5
    found = changed("epochs", lambda sample: models(sample)[2].update(error=f"refused, key {secret}", answered=False))
    assert found.steps["finish_reason"].to_list()[-1] is pd.NA
    assert found.steps["calls"].to_list() == [1, 1, 0]
    assert "refused" in found.steps["error"].to_list()[-1]
    assert secret not in found.steps["error"].to_list()[-1]


def test_a_sample_without_events_is_read_from_its_messages() -> None:
    found = changed("epochs", lambda sample: sample.update(events=[]))
    assert found.steps["tools"].to_list() == ["look", "look", ""]
    assert found.steps["tool_errors"].to_list() == [0, 1, 0]
    assert found.steps["total_tokens"].isna().all()
    assert any("read from their messages: 1" in note for note in found.notes)


def test_a_real_model_is_priced() -> None:
    def real(sample: dict[str, Any]) -> None:
        sample["model"] = "anthropic/claude-sonnet-4-6"
        for one in models(sample):
            one["model"] = "anthropic/claude-sonnet-4-6"

    found = changed("epochs", real)
    assert set(found.steps["provider"]) == {"anthropic"}
    assert set(found.steps["cost_source"]) == {"priced"}
    assert found.steps["cumulative_cost_usd"].notna().all()


@pytest.mark.parametrize(
    ("value", "score"),
    [
        ("C", 1),
        ("P", 0.5),
        ("I", 0),
        ("N", 0),
        ("yes", 1),
        ("False", 0),
        (True, True),
        ("0.7", 0.7),
        (3, 3),
        ("nan", None),
        ("?", None),
        ([1], None),
    ],
)
def test_a_score_has_inspects_value(value: Any, score: Any) -> None:
    runs = changed("paid", lambda sample: sample.update(scores={"match": value})).runs
    assert (list(runs.get("score", [None]))) == [score]


def test_a_limit_that_is_unknown_is_noted() -> None:
    found = changed("paid", lambda sample: sample.update(limit={"type": "energy", "limit": 5}))
    assert found.runs["stop_reason"].isna().all()
    assert found.runs["detail"][0].startswith("The energy limit of the sample")
    note = "Samples that a limit ended which agentlab does not know: 1; `stop_reason` is NA, and `detail` names the limit."
    assert note in found.notes
    assert not any("does not say why" in one for one in found.notes)


def test_a_scorer_with_several_values() -> None:
    runs = changed("paid", lambda sample: sample.update(scores={"match": {"a": "C", "b": 2}})).runs
    assert (runs["score"][0], runs["score.match.a"][0], runs["score.match.b"][0]) == (1, 1, 2)


# Files -------------------------------------------------------------------------------------------------------------------------------


def test_missing_paths_and_environments_are_errors(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="found no file at"):
        lab.importers.inspect(tmp_path)
    with zipfile.ZipFile(tmp_path / "one.eval", "w") as made:
        made.writestr("header.json", "{}")
    with pytest.raises(ConfigurationError, match="cannot be started"):
        lab.importers.inspect(tmp_path, python=tmp_path / "python")
    with pytest.raises(ConfigurationError, match=r"agentlab-jupyter\[inspect\].*python="):
        lab.importers.inspect(tmp_path)


@needs_inspect
def test_a_broken_log_is_reported_and_the_rest_is_read(logs: Path, tmp_path: Path) -> None:
    good = next(logs.glob("*epochs*.eval"))
    (tmp_path / "a.eval").write_bytes(good.read_bytes()[:2_000])
    (tmp_path / "b.eval").write_bytes(b"no log at all")
    with zipfile.ZipFile(tmp_path / "c.eval", "w") as made:
        made.writestr("header.json", "{}")
    with pytest.raises(StorageError, match=r"No run can be read from 3 logs: .*Pass \.eval logs"):
        lab.importers.inspect(tmp_path, python=PYTHON)
    (tmp_path / "d.eval").write_bytes(good.read_bytes())
    found = lab.importers.inspect([*tmp_path.glob("*.eval")], python=PYTHON)
    assert len(found.runs) == 2
    assert any(note.startswith("3 logs could not be read") for note in found.notes)


@needs_inspect
def test_the_recording_equals_inspects_current_output(logs: Path) -> None:
    made = lab.importers.inspect(str(logs / "*.eval"), python=PYTHON)
    recorded = from_lines(lines(), "a recording")
    timed = ["run_id", "started_s", "duration_s", "elapsed_s", "log"]
    order = {"steps": made.runs.set_index("run_id")["task"], "recorded": recorded.runs.set_index("run_id")["task"]}
    for frame, tasks in ((made.steps, order["steps"]), (recorded.steps, order["recorded"])):
        frame["task"] = frame["run_id"].map(tasks)
    by = ["task", "step"]
    pd.testing.assert_frame_equal(
        made.steps.drop(columns=timed[:3]).sort_values(by, ignore_index=True, kind="stable"),
        recorded.steps.drop(columns=timed[:3]).sort_values(by, ignore_index=True, kind="stable"),
    )
    by = ["task", "epoch"]
    drop = [name for name in timed if name in made.runs]
    pd.testing.assert_frame_equal(
        made.runs.drop(columns=drop).sort_values(by, ignore_index=True),
        recorded.runs.drop(columns=drop).sort_values(by, ignore_index=True),
    )


def test_an_environment_without_pandas_says_what_it_needs(tmp_path: Path) -> None:
    venv.create(tmp_path / "env", symlinks=True)
    python = tmp_path / "env" / "bin" / "python"
    log = tmp_path / "a.eval"
    with zipfile.ZipFile(log, "w") as file:
        file.writestr("header.json", "{}")
    with pytest.raises(ConfigurationError, match=r"does not have the package inspect-ai; .* has inspect-ai, pandas and pyarrow"):
        lab.importers.inspect(log, python=python)
    (package := next((tmp_path / "env").glob("lib/*/site-packages")) / "inspect_ai").mkdir()
    (package / "__init__.py").touch()
    (package / "analysis.py").write_text("EvalColumn = SampleColumn = samples_df = None")
    with pytest.raises(ConfigurationError, match=r"does not have the package pandas; .* has inspect-ai, pandas and pyarrow"):
        lab.importers.inspect(log, python=python)

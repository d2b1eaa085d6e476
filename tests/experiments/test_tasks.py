"""Tasks from every source, their checks and hashes, and experiments on tasks with targets, results of tools, and parts."""

from __future__ import annotations

import asyncio
import csv
import dataclasses
import json
import re
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import agentlab as lab
from agentlab.errors import ConfigurationError, LimitError, StorageError
from agentlab.experiments import rescore, status
from agentlab.testing import ScriptedProvider, call, say
from tests.model.test_parts import picture

from .parts import looking

FRAME = {"question": ["What is the capital of France?", "And of Italy?"], "answer": ["Paris", "Rome"]}
ROWS = [
    {"id": "fr", "prompt": FRAME["question"][0], "target": "Paris", "tags": ["easy", "europe"], "level": 1},
    {"id": "it", "prompt": FRAME["question"][1], "target": "Rome"},
]


def written(folder: Path, kind: str) -> Path:
    """The rows as a file."""
    path = folder / f"tasks{kind}"
    if kind in (".csv", ".tsv"):
        frame = pd.DataFrame(ROWS).assign(tags=["easy, europe", None])
        frame.to_csv(path, index=False, sep="\t" if kind == ".tsv" else ";")
    elif kind == ".parquet":
        pd.DataFrame(ROWS).to_parquet(path)
    elif kind == ".json":
        path.write_text(json.dumps(ROWS))
    else:
        path.write_text("\n".join(json.dumps(row) for row in ROWS) + "\n\n")
    return path


@pytest.mark.parametrize("kind", [".csv", ".tsv", ".parquet", ".json", ".jsonl", ".ndjson"])
def test_files_have_the_same_tasks(tmp_path: Path, kind: str) -> None:
    tasks = lab.Tasks(str(written(tmp_path, kind)))
    assert [(one.id, one.prompt, one.target, one.tags) for one in tasks] == [
        ("fr", FRAME["question"][0], "Paris", ("easy", "europe")),
        ("it", FRAME["question"][1], "Rome", ()),
    ]
    assert [float(one.metadata["level"]) if one.metadata else None for one in tasks] == [1, None]
    if kind in (".json", ".jsonl", ".ndjson"):
        assert tasks.version == lab.Tasks(ROWS).version == lab.Tasks(ROWS[::-1]).version


@pytest.mark.parametrize(
    "prompts",
    [
        pd.DataFrame(FRAME)["question"],
        pd.Series(FRAME["question"], index=[7, 3]),
        pd.Series(FRAME["question"], index=["same", "same"]),
        pd.DataFrame(FRAME)["question"].astype("string"),
        pd.DataFrame(FRAME)[["question"]],
        np.array(FRAME["question"]),
        (text for text in FRAME["question"]),
        tuple(FRAME["question"]),
        dict.fromkeys(FRAME["question"]).keys(),
        {"p1": FRAME["question"][0], "p2": FRAME["question"][1]},
        [lab.Task(FRAME["question"][0], id="p1"), lab.Task(FRAME["question"][1], id="p2")],
    ],
)
def test_anything_with_texts_is_a_list_of_prompts(prompts: Any) -> None:
    study = lab.Experiment([looking()], prompts)
    assert {one.id: one.prompt for one in study.grid.tasks} == {"p1": FRAME["question"][0], "p2": FRAME["question"][1]}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert go(study).runs["prompt"].to_list() == FRAME["question"]


def test_a_task_is_a_prompt_first() -> None:
    task = lab.Task("What is 2 plus 3?", target="5")
    assert (task.prompt, task.target, task.tags) == ("What is 2 plus 3?", "5", ())
    assert lab.Task("What is 2 plus 3?", "5") == task
    assert repr(task) == f"Task('What is 2 plus 3?', id={task.id!r}, target='5')"
    assert lab.Task("What is 2 plus 3?", "5", id="sum").id == "sum"
    with pytest.raises(TypeError):
        lab.Task("sum", "What is 2 plus 3?", "5")  # type: ignore[misc]
    with pytest.raises(ConfigurationError, match="' ' is not an id"):
        lab.Task("x", id=" ")
    with pytest.raises(ConfigurationError, match=r"^A task has the prompt ' '"):
        lab.Task(" ")


def test_the_id_of_a_task_is_short_and_that_of_its_prompt() -> None:
    task = lab.Task("What is 2 plus 3?", target="5")
    assert re.fullmatch("p[0-9a-f]{8}", task.id)
    same = lab.Task("What is 2 plus 3?", target=5, tags=("sum",), tools={"look": 1}, metadata={"level": 2})
    assert same.id == task.id
    assert same.hash != task.hash
    red, blue = (lab.Image(picture(size=(side, side))) for side in (1, 2))
    ids = [lab.Task(prompt).id for prompt in ("What is 2 plus 2?", ["What is this?", red], ["What is this?", blue])]
    assert len({task.id, *ids}) == 4
    assert dataclasses.replace(task, prompt="other").id == task.id
    study = lab.Experiment([looking()], [lab.Task("one", target="1"), lab.Task("two", target="2")], repeats=2)
    assert study.grid.cells[0].label == f"a/{lab.Task('one').id}/default/1"
    with pytest.raises(ConfigurationError, match=f"Two of the tasks have the id '{task.id}', .*: pass another id"):
        lab.Tasks([task, same])


PAIR = [("What is 2 plus 3?", "5"), ("And 2 plus 2?", "4")]


@pytest.mark.parametrize(
    "source",
    [
        PAIR,
        tuple(PAIR),
        zip(*zip(*PAIR, strict=True), strict=True),
        dict(zip(["p1", "p2"], PAIR, strict=True)),
        [{"input": prompt, "expected": target} for prompt, target in PAIR],
        [{"prompt": prompt, "expected": target} for prompt, target in PAIR],
        [{"input": prompt, "target": target} for prompt, target in PAIR],
        [{"prompt": PAIR[0][0], "target": "5"}, {"input": PAIR[1][0], "expected": "4"}],
        {"p1": {"input": PAIR[0][0], "expected": "5"}, "p2": PAIR[1]},
        pd.DataFrame(PAIR, columns=["input", "expected"]),
        [lab.Task(*PAIR[0], id="p1"), PAIR[1]],
    ],
    ids=["pairs", "tuple", "zip", "by id", "other keys", "prompt", "target", "mixed", "dicts by id", "frame", "task"],
)
def test_pairs_and_other_tools_keys_are_tasks(source: Any) -> None:
    tasks = lab.Tasks(source)
    assert [(task.id, task.prompt, task.target, dict(task.metadata)) for task in tasks] == [
        ("p1", *PAIR[0], {}),
        ("p2", *PAIR[1], {}),
    ]
    assert tasks.version == lab.Tasks([{"prompt": prompt, "target": target} for prompt, target in PAIR]).version


def test_our_own_keys_come_first_and_a_list_is_a_prompt(tmp_path: Path) -> None:
    (one,) = lab.Tasks([{"prompt": "a", "input": "b", "target": "c", "expected": "d"}])
    assert (one.prompt, one.target, dict(one.metadata)) == ("a", "c", {"input": "b", "expected": "d"})
    image = lab.Image(picture(size=(1, 1)))
    listed = lab.Tasks([["Where is this?", "Answer in one word."], ("What is this?", image), (["What is this?", image], "a dot")])
    assert [task.target for task in listed] == [None, None, "a dot"]
    assert listed["p1"].text == "Where is this?\nAnswer in one word."
    (tmp_path / "a.csv").write_text("id,input,expected\nx,2 + 3,5\n,2 + 2,4\n")
    assert [(task.id, task.prompt, task.target) for task in lab.Tasks(tmp_path / "a.csv")] == [
        ("x", "2 + 3", "5"),
        ("p2", "2 + 2", "4"),
    ]
    (tmp_path / "a.json").write_text('[{"id": "", "input": "2 + 3"}]')
    assert lab.Tasks(tmp_path / "a.json").ids == ["p1"]


def test_the_index_of_a_column_gives_the_ids() -> None:
    prompts = pd.DataFrame({"id": ["france", "italy"], **FRAME}).set_index("id")["question"]
    assert lab.Tasks(prompts).ids == ["france", "italy"]


def test_a_frame_has_its_columns_by_name() -> None:
    tasks = lab.Tasks(pd.DataFrame({**FRAME, "n": [1, 2], "x": [0.5, np.nan]}), prompt="question", target="answer")
    assert [one.target for one in tasks] == ["Paris", "Rome"]
    assert [dict(one.metadata) for one in tasks] == [{"n": 1, "x": 0.5}, {"n": 2}]
    assert lab.Tasks(tasks.to_frame()[["id", "prompt", "target"]]).ids == ["p1", "p2"]


def test_a_dataset_of_hugging_face_is_read() -> None:
    datasets = pytest.importorskip("datasets")
    dataset = datasets.Dataset.from_dict(FRAME)
    assert [one.target for one in lab.Tasks(dataset, prompt="question", target="answer")] == ["Paris", "Rome"]
    with pytest.raises(ConfigurationError, match=r"several datasets: choose one, such as tasks=dataset\['train'\]"):
        lab.Tasks(datasets.DatasetDict({"train": dataset}))


def test_samples_of_inspect_are_read() -> None:
    """They have these attributes; the real ones are read in the environment of `make inspect`."""
    plain = SimpleNamespace(input="2 + 2?", target="4", id=7, choices=None, metadata=None)
    choices = SimpleNamespace(input="Which?", target="B", id="c", choices=["red", "blue"], metadata={"level": 1})
    turns = [SimpleNamespace(role="system", text="Be brief."), SimpleNamespace(role="user", text="Hi")]
    chat = SimpleNamespace(input=turns, target="", id=None, choices=None, metadata={})
    tasks = lab.Tasks([plain, choices, chat])
    assert tasks.ids == ["7", "c", "p3"]
    assert tasks["c"].prompt == "Which?\nA) red\nB) blue"
    assert dict(tasks["c"].metadata) == {"level": 1, "choices": ["red", "blue"]}
    assert (tasks["p3"].text, tasks["p3"].target) == ("Be brief.\nHi", None)


def go(study: lab.Experiment, **more: Any) -> lab.ExperimentResults:
    return asyncio.run(study.run(progress=False, **more))


INVALID: list[tuple[Any, str]] = [
    ({"first", "second"}, "a set has none"),
    (frozenset({"first"}), "a set has none"),
    ("first", "pass a list, such as tasks="),
    (b"first", "pass a list, such as tasks="),
    (5, "pass a list, such as tasks="),
    ([], r"tasks=\[\]: pass at least one"),
    ("none.csv", "'none.csv' cannot be read: .*No such file"),
    (Path("tasks.xlsx"), "none of the files that can be read"),
    ([b"first"], "number 1 is b'first': pass a text, a pair .*, a dict or a lab.Task"),
    (["first", float("nan")], "number 2 is nan: pass a text"),
    (["first", " "], "'p2' has the prompt ' ': pass the task as text"),
    (["first", "first"], "'p2' and 'p1' are the same task: leave one out"),
    ([{"prompt": "x", "target": 1}, {"prompt": "x", "target": 1}], "'p2' and 'p1' are the same task"),
    ([{"id": "a", "prompt": "x"}, {"id": "a", "prompt": "y"}], "Two of the tasks have the id 'a', the second one is number 2"),
    ([{"id": "a"}], "number 1 has no 'prompt'"),
    ([{"question": "x", "answer": "y"}], r"number 1 has no 'prompt': .* Name its column: lab.Tasks\(…, prompt='question'\)"),
    (pd.DataFrame(FRAME), r"no column 'prompt', but 'question', 'answer': name the column .*prompt='question'"),
    (pd.DataFrame({"id": [*"ab"], "tags": [*"ab"], **FRAME}), r"no column 'prompt', but 'id', .*prompt='question'"),
    (pd.DataFrame(FRAME).to_dict(), "number 1 has no 'prompt'"),
    (np.array([["first", "second"]]), "number 1 is array"),
    ([{"prompt": "x", "target": object()}], "The task 'p1' has a value that is not JSON"),
    ([{"prompt": "x", "target": float("inf")}], "a value that is not JSON"),
    ([{"prompt": "x", "tools": "no"}], "number 1 has tools that are not JSON"),
    ([{"prompt": "x", "tools": [1]}], r"The task 'p1' has tools=\[1\]: pass a dict"),
    ([{"prompt": "x", "tags": 5}], "number 1 has the tags 5: pass a list of texts"),
    ({1: "x"}, "1 is not an id"),
]


def test_a_misspelt_column_of_prompts_is_named_in_the_error() -> None:
    with pytest.raises(ConfigurationError, match=r"no column 'qestion', .*prompt='question'\)"):
        lab.Tasks(pd.DataFrame({"name": ["a"], "question": ["x"]}), prompt="qestion")


@pytest.mark.parametrize(("source", "message"), INVALID, ids=[message for _, message in INVALID])
def test_invalid_tasks_are_refused(source: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        lab.Experiment([looking()], source)


def test_wrong_lines_of_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"prompt": "x"}\n{"prompt": \n')
    (tmp_path / "b.csv").write_text("prompt,target\nx,1\ny,2,3\n")
    (tmp_path / "c.json").write_text('{"prompt": "x"}')
    messages = {"a.jsonl": "line 2, is not JSON", "b.csv": "line 3, has more cells", "c.json": "other values than objects"}
    for name, message in messages.items():
        with pytest.raises(ConfigurationError, match=message):
            lab.Tasks(tmp_path / name)


def test_a_long_cell_of_a_table_is_read(tmp_path: Path) -> None:
    prompt, limit = "word " * 30_000, csv.field_size_limit()
    (tmp_path / "a.csv").write_text(f'prompt,target\n"{prompt}",x\n')
    assert lab.Tasks(tmp_path / "a.csv")["p1"].prompt == prompt
    assert csv.field_size_limit() == limit


def test_lines_columns_dates_and_ids_of_files(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"prompt": "one\u2028line"}\n{"prompt": "b"}\n', encoding="utf-8")
    assert [one.prompt for one in lab.Tasks(tmp_path / "a.jsonl")] == ["one\u2028line", "b"]
    (tmp_path / "a.csv").write_text("prompt,target,prompt\na,b,c\n")
    with pytest.raises(ConfigurationError, match=r"a\.csv' has two columns 'prompt': rename one"):
        lab.Tasks(tmp_path / "a.csv")
    frame = pd.DataFrame({"id": [1, None], "prompt": ["a", "b"], "when": pd.to_datetime(["2027-06-12", "2027-06-13"])})
    tasks = lab.Tasks(frame)
    assert tasks.ids == ["1", "p2"]
    assert tasks["1"].metadata == {"when": "2027-06-12T00:00:00"}


def test_a_misspelt_column_is_an_error() -> None:
    with pytest.raises(
        ConfigurationError, match=r"target='anwser': no task has such a column or key\. There are: 'question', 'answer'"
    ):
        lab.Tasks(pd.DataFrame(FRAME), prompt="question", target="anwser")
    with pytest.raises(ConfigurationError, match="tags='topic': no task has such"):
        lab.Tasks([{"prompt": "a"}], tags="topic")


def test_the_version_is_that_of_the_content(tmp_path: Path) -> None:
    def version(**changes: Any) -> str:
        return lab.Tasks([{**ROWS[0], **changes}]).version

    assert version() == lab.Tasks([ROWS[0]]).version
    changes: list[dict[str, Any]] = [
        {"id": "x"}, {"prompt": "x"}, {"target": "x"}, {"tags": []}, {"level": 2}, {"tools": {"look": 1}},
    ]  # fmt: skip
    assert len({version(**one) for one in [{}, *changes]}) == len(changes) + 1


def test_the_same_prompt_may_have_other_targets() -> None:
    tasks = lab.Tasks([{"id": n, "prompt": "Guess.", "target": n} for n in (1, 2)])
    assert tasks.ids == ["1", "2"]
    study = lab.Experiment([looking()], tasks, score=lambda result, task: task.target == 2)
    assert go(study).runs["score"].to_list() == [False, True]


def test_parts_of_a_collection() -> None:
    tasks = lab.Tasks([{"prompt": str(n), "tags": ["odd"] if n % 2 else []} for n in range(100)])
    first, second = tasks.split(0.7, seed=1)
    assert sorted([*first.ids, *second.ids]) == sorted(tasks.ids)
    assert 55 <= len(first) <= 85
    more = lab.Tasks([*tasks, {"id": "new", "prompt": "x"}])
    assert {*first.ids} <= {*more.split(0.7, seed=1)[0].ids}
    assert len(tasks.tagged("odd")) == len(tasks.where(lambda task: int(task.text) % 2)) == 50
    assert tasks[:2].ids == ["p1", "p2"]
    assert tasks["p3"] is tasks[2]
    with pytest.raises(ConfigurationError, match=r"No task has the tag 'even'\. There are: 'odd'"):
        tasks.tagged("even")
    with pytest.raises(KeyError, match="There is no task 'x'"):
        tasks["x"]
    with pytest.raises(ConfigurationError, match="leaves none of the 100 tasks"):
        tasks.where(lambda task: False)


def test_a_template_is_put_around_the_prompts() -> None:
    image = lab.Image(b"\x89PNG\r\n\x1a\n" + bytes(8), media_type="image/png")
    tasks = lab.Tasks([{"id": "a", "prompt": "one", "target": 1, "tags": ["x"]}, {"id": "b", "prompt": ["two", image]}])
    made = tasks.with_prompt('Say {"n": …}: {prompt}!')
    assert made["a"] == dataclasses.replace(tasks["a"], prompt='Say {"n": …}: one!')
    assert list(made["b"].prompt) == ['Say {"n": …}: ', "two", image, "!"]
    assert tasks.with_prompt("{prompt}").version == tasks.version != made.version
    for wrong in ("none", "{prompt} {prompt}", None):
        with pytest.raises(ConfigurationError, match=r"pass a text with \{prompt\} once"):
            tasks.with_prompt(wrong)  # type: ignore[arg-type]


# Experiments --------------------------------------------------------------------------------------------------------------------


def test_a_task_gives_the_results_of_its_tools() -> None:
    called = []

    @lab.tool(inline=True)
    def look(q: str) -> str:
        """Look it up."""
        called.append(q)
        return "real"

    def answer(request: Any, index: int) -> Any:
        results = [result.content for message in request.messages for result in message.tool_results]
        return call("look", {"q": "x"}, id=f"c{index}") if len(results) < 3 else say(" ".join(results))

    agent = lab.Agent(ScriptedProvider(answer), tools=[look], name="a")
    tasks = lab.Tasks([{"id": "a", "prompt": "x", "tools": {"look": ["one", {"two": 2}]}}, {"id": "b", "prompt": "x"}])
    results = go(lab.Experiment([agent], tasks))
    assert [run.result.text for run in results.loaded] == ['one {"two":2} {"two":2}', "real real real"]  # type: ignore[union-attr]
    assert called == ["x"] * 3
    with pytest.raises(ConfigurationError, match="'a' has results of a tool that agent 'b' lacks"):
        lab.Experiment([lab.Agent(ScriptedProvider(answer), name="b")], tasks)


def test_a_changed_result_of_a_tool_is_another_experiment(tmp_path: Path) -> None:
    def study(result: str) -> lab.Experiment:
        return lab.Experiment([looking()], [{"prompt": "x", "tools": {"look": result}}], store=tmp_path / "a.db")

    go(study("one"))
    assert len(go(study("one")).runs) == 1
    with pytest.raises(ConfigurationError, match="results of tools in the task"):
        go(study("two"))


def test_a_prompt_may_have_parts(tmp_path: Path) -> None:
    image = lab.Image(b"\x89PNG\r\n\x1a\n" + b"\0\0\0\rIHDR\0\0\0\2\0\0\0\3" + b"\0" * 20)
    tasks = lab.Tasks([{"id": "map", "prompt": ["What is this?", image]}])
    results = go(lab.Experiment([looking()], tasks, store=tmp_path / "a.db"))
    assert results.loaded[0].messages[0].parts == (image,)
    assert results.runs["prompt"][0].startswith("What is this?\n[image png 2x3")
    assert len(go(lab.Experiment([looking()], tasks, store=tmp_path / "a.db")).runs) == 1
    assert tasks.version != lab.Tasks([{"id": "map", "prompt": ["What is this?"]}]).version


def test_rows_name_target_tags_and_hash() -> None:
    results = go(lab.Experiment([looking()], ROWS))
    assert results.runs[["target", "tags"]].fillna("").to_numpy().tolist() == [["Paris", "easy, europe"], ["Rome", ""]]
    assert results.runs["task_hash"].to_list() == [one.hash for one in lab.Tasks(ROWS)]


# Scores -------------------------------------------------------------------------------------------------------------------------


def test_several_scorers_have_a_column_each_and_an_error_keeps_the_others() -> None:
    def broken(result: Any) -> bool:
        raise ValueError("no")

    score = {"right": lambda result, task: result.text == task.target, "long": lambda result: len(result.text), "broken": broken}
    with pytest.warns(lab.AgentlabWarning, match="2 runs lack some scores: broken: ValueError: no"):
        results = go(lab.Experiment([looking()], [{"prompt": "x", "target": "end"}, {"prompt": "y", "target": "?"}], score=score))
    runs = results.runs
    assert runs["score"].to_list() == runs["score.right"].to_list() == [1.0, 0.0]
    assert runs["score.long"].to_list() == [3.0, 3.0]
    assert runs["score_error"].to_list() == ["broken: ValueError: no"] * 2
    assert runs["score.broken"].isna().to_list() == [True, True]


def test_a_scorer_of_parts_has_no_column_of_its_own() -> None:
    score = {"first": lambda result: True, "parts": lambda result: {"one": 1, "two": 2}}
    runs = go(lab.Experiment([looking()], ["x"], score=score)).runs
    assert [name for name in runs.columns if name.startswith("score.")] == ["score.first", "score.parts.one", "score.parts.two"]


def test_a_reason_is_a_column() -> None:
    def score(result: Any) -> lab.scorers.Score:
        return lab.scorers.Score(0.5, "half of it", {"length": 3})

    runs = go(lab.Experiment([looking()], ["x"], score=score)).runs
    assert (runs["score"][0], runs["score.length"][0], runs["score_why"][0]) == (0.5, 3.0, "half of it")


def test_a_changed_target_is_scored_again(tmp_path: Path) -> None:
    asked = []

    def score(result: Any, task: lab.Task) -> bool:
        asked.append(task.id)
        return bool(result.text == task.target)

    def study(target: str) -> lab.Experiment:
        tasks = [{"id": "a", "prompt": "x", "target": target}, {"id": "b", "prompt": "y", "target": "end"}]
        return lab.Experiment([looking()], tasks, score=score, store=tmp_path / "a.db")

    assert go(study("no")).runs["score"].to_list() == [False, True]
    with pytest.warns(lab.AgentlabWarning, match="computed again"):
        assert go(study("end")).runs["score"].to_list() == [True, True]
    assert asked == ["a", "b", "a"]


def test_scores_are_added_later_with_their_version(tmp_path: Path) -> None:
    asked = []

    def first(result: Any) -> float:
        asked.append("first")
        return 1.0

    def second(result: Any, task: lab.Task) -> dict[str, float]:
        asked.append("second")
        return {"score": 0.25, "part": 2}

    study = lab.Experiment([looking()], ["x", "y"], store=tmp_path / "a.db")
    results = go(study)
    results = go_on(results, first, name="later")
    assert results.runs["score.later"].to_list() == [1.0, 1.0]
    assert go_on(results, first, name="later").runs["score.later.version"].notna().all()
    assert asked == ["first"] * 2
    both = go_on(study.results(), {"later": second, "other": first})
    assert both.runs["score.later"].to_list() == [0.25] * 2
    assert both.runs["score.later.part"].to_list() == [2.0] * 2
    assert (both.runs["score.later.version"] != results.runs["score.later.version"]).all()
    assert both.runs["score"].isna().all()
    assert sorted(asked) == ["first"] * 4 + ["second"] * 2
    with pytest.raises(ConfigurationError, match="'score' cannot be the name"):
        go_on(results, first, name="score")
    with pytest.raises(ConfigurationError, match="is for one scorer, and there are 2"):
        go_on(results, [first, second], name="x")
    with pytest.raises(LimitError, match=r"budget=0\.5: pass a Budget"):
        go_on(results, first, name="x", budget=0.5)


def go_on(results: lab.ExperimentResults, *args: Any, **more: Any) -> lab.ExperimentResults:
    return asyncio.run(results.rescore(*args, progress=False, **more))


def test_a_later_score_that_cannot_be_stored_is_an_error_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    results = go(lab.Experiment([looking()], ["x", "y"]))

    def full(*args: Any) -> None:
        raise StorageError("the disk is full")

    monkeypatch.setattr(rescore, "store_note", full)
    with pytest.raises(StorageError, match="the disk is full"):
        go_on(results, lambda result: 1.0, name="late")


def test_the_cost_of_a_later_judge_is_bounded_and_counted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    judge = lab.Agent(ScriptedProvider(lambda request, index: say("1", cost="0.01")), name="judge")

    async def score(result: Any) -> float:
        return float((await judge.run("Grade: " + result.text)).text)

    results = go(lab.Experiment([looking()], ["x", "y", "z"]))
    before = results.spent.cost_usd
    with pytest.warns(
        lab.AgentlabWarning, match=r"1 score is missing: the budget of the experiment is spent.*rescore\(…\) tries again"
    ):
        some = go_on(results, score, name="judge", concurrency=1, budget=lab.Budget(max_cost="0.015"))
    assert some.runs["score.judge"].notna().sum() == 2
    done = go_on(some, score, name="judge")
    assert done.runs["score.judge"].to_list() == [1.0] * 3
    assert float(done.spent.cost_usd - before) == pytest.approx(0.03)
    assert done.runs[["score_calls", "score_tokens", "score_cost_usd"]].to_numpy().tolist() == [[1, 15, 0.01]] * 3
    again = go_on(done, score, name="second")
    assert again.runs["score_cost_usd"].to_list() == [0.02] * 3
    monkeypatch.setattr(status, "has_page", lambda: True)
    asyncio.run(again.rescore(score, name="third"))
    assert "3/3" in (drawn := capsys.readouterr().err) and "$0.0300" in drawn
    judge = lab.Agent(ScriptedProvider(lambda request, index: say("1")), name="judge")
    with pytest.warns(
        lab.AgentlabWarning, match=r"2 scores are missing: the cost of the score of experiment#a/p1/default/1 is unknown"
    ):
        go_on(results, score, name="x", concurrency=1, budget=lab.Budget(max_cost=1, missing_usage="fail"))


def test_the_dry_run_expects_the_mean_cost_of_the_ended_runs(tmp_path: Path) -> None:
    def study(tasks: list[str]) -> lab.Experiment:
        return lab.Experiment([looking()], tasks, store=tmp_path / "a.db")

    assert study(["x"]).dry_run().expected_cost_usd is None
    go(study(["x"]))
    expected = study(["x", "y", "z"]).dry_run()
    assert (float(expected.expected_cost_usd or 0), expected.expected_from) == (0.08, 1)
    assert "Expected: $0.0800, by the mean cost of 1 ended run." in str(expected)

"""Labels of people: the file, the widget's state without a page, scores and pairs made of them."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import agentlab as lab
from agentlab.errors import ConfigurationError
from agentlab.experiments.labels import keys_of
from agentlab.notebook import live_view
from agentlab.testing import ScriptedProvider, say

HOSTILE = '<script>alert(1)</script><img src=x onerror="alert(1)"> [x](javascript:alert(1))'
KEY = "sk-ant-" + "a1B2" * 8
ANSWERS = {"alpha": ["Paris", HOSTILE, KEY], "beta": ["Paris", "Lima", "Oslo"]}


def agent(name: str) -> lab.Agent:
    return lab.Agent(ScriptedProvider(lambda request, index: say(ANSWERS[name][int(request.messages[-1].text)])), name=name)


@pytest.fixture(scope="module")
def results() -> lab.ExperimentResults:
    tasks = [{"id": f"t{n}", "prompt": str(n), "target": target} for n, target in enumerate(["Paris", {"city": "Lima"}, None])]
    return asyncio.run(lab.Experiment([agent("alpha"), agent("beta")], tasks, repeats=2).run(progress=False))


def labeller(results: lab.ExperimentResults, tmp_path: Path, rater: str = "anna", **more: Any) -> Any:
    return lab.label(results, tmp_path / "labels.jsonl", rater=rater, **more)


def test_equal_answers_are_labelled_once_and_count_for_each_run(results: lab.ExperimentResults, tmp_path: Path) -> None:
    anna = labeller(results, tmp_path)
    assert sorted(item.runs for item in anna.items) == [2, 2, 2, 2, 4]
    while anna.place < len(anna.items):
        anna.grade("correct" if "Paris" in anna.items[anna.place].answers else "wrong")
    scored = asyncio.run(results.rescore(lab.scorers.Labels(tmp_path / "labels.jsonl"), name="people", progress=False))
    is_paris = [row["prompt_id"] == "t0" for _, row in scored.runs.iterrows()]
    assert scored.runs["score.people"].to_list() == is_paris
    assert scored.runs["score.people.anna"].to_list() == is_paris
    assert anna.frame["runs"].sum() == len(scored.runs)


def test_the_home_folder_of_labels(results: lab.ExperimentResults, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    lab.label(results, "~/labels.jsonl", rater="anna").grade("correct", 0)
    assert lab.scorers.Labels("~/labels.jsonl").known == lab.scorers.Labels(tmp_path / "labels.jsonl").known != {}


def test_more_labels_are_another_version_of_the_score(results: lab.ExperimentResults, tmp_path: Path) -> None:
    def scored() -> pd.DataFrame:
        scorer = lab.scorers.Labels(tmp_path / "labels.jsonl")
        return asyncio.run(results.rescore(scorer, name="later", progress=False)).runs

    anna, bert = labeller(results, tmp_path), labeller(results, tmp_path, "bert")
    anna.grade("correct", 0)
    assert scored()["score.later"].count() == anna.items[0].runs
    bert.grade("wrong", [one.key for one in bert.items].index(anna.items[0].key))
    runs = scored()
    assert set(runs["score.later"].dropna()) == {0.5}
    assert set(runs["score.later.anna"].dropna()) == {True}
    assert set(runs["score.later.bert"].dropna()) == {False}


def test_a_judge_is_compared_with_people(results: lab.ExperimentResults, tmp_path: Path) -> None:
    anna, bert = labeller(results, tmp_path), labeller(results, tmp_path, "bert")
    for one in (anna, bert):
        while one.place < 5:
            is_right = "Paris" in one.items[one.place].answers or (one is bert and "Lima" in one.items[one.place].answers)
            one.grade("correct" if is_right else "wrong")
    scorers = {"people": lab.scorers.Labels(tmp_path / "labels.jsonl"), "judge": lambda result: "Paris" in result.text}
    scored = asyncio.run(results.rescore(scorers, progress=False))
    found = lab.raters(scored, ["score.people.anna", "score.people.bert", "score.judge"])
    assert found["runs"].to_list() == [12] * 4
    assert found["same"].to_list() == [10, 12, 10, 10]
    assert found["units"].to_list() == [3] * 4
    assert found["kappa"].to_list()[1] == 1


def test_labelling_goes_on_after_a_crash_and_a_half_written_line(results: lab.ExperimentResults, tmp_path: Path) -> None:
    path, anna = tmp_path / "labels.jsonl", labeller(results, tmp_path)
    anna.grade("correct")
    anna.grade("wrong")
    with path.open("ab") as file:
        file.write(b'{"rater": "anna", "it')
    again = labeller(results, tmp_path)
    assert repr(again) == "Labeller('anna', 2 of 5 answers labelled)"
    assert again.place == 2
    again.grade("correct")
    assert repr(labeller(results, tmp_path)) == "Labeller('anna', 3 of 5 answers labelled)"
    assert repr(labeller(results, tmp_path, "bert")) == "Labeller('bert', 0 of 5 answers labelled)"
    assert len(path.read_text().splitlines()) == 4


def test_undo_skip_and_moves(results: lab.ExperimentResults, tmp_path: Path) -> None:
    anna = labeller(results, tmp_path)
    assert anna.carry_out({"do": "grade", "grade": "correct", "place": 0})["place"] == 1
    assert anna.carry_out({"do": "skip", "place": 1})["place"] == 2
    assert anna.carry_out({"do": "go", "place": 0})["grade"] == "correct"
    view = anna.carry_out({"do": "undo"})
    assert (view["place"], view["grade"], view["labelled"], view["undo"]) == (0, "", 0, False)
    for _ in range(5):
        view = anna.carry_out({"do": "grade", "grade": "wrong", "place": anna.place})
    assert (view["place"], view["labelled"]) == (5, 5)
    assert "answers" not in view
    anna.carry_out({"do": "go", "place": 0})
    anna.grade("correct")
    assert anna.frame["grade"].value_counts().to_dict() == {"wrong": 4, "correct": 1}
    with pytest.raises(ConfigurationError, match="all answers are labelled"):
        anna.grade("correct", 5)
    with pytest.raises(ConfigurationError, match=r"grade\('good'\): choose one of correct, wrong"):
        anna.grade("good", 0)


@pytest.mark.parametrize("by", [None, "agent"])
def test_undo_restores_an_earlier_label(results: lab.ExperimentResults, tmp_path: Path, by: str | None) -> None:
    first, second = ("correct", "wrong") if by is None else ("A", "B")
    labeller(results, tmp_path, by=by).grade(first, 0)
    anna = labeller(results, tmp_path, by=by)
    before = anna.frame.drop(columns="at")
    anna.grade(second, 0)
    assert not anna.frame.drop(columns="at").equals(before)
    assert anna.carry_out({"do": "undo"})["grade"] == first
    assert anna.frame.drop(columns="at").equals(before)
    assert repr(anna).partition(" of ")[0] == repr(labeller(results, tmp_path, by=by)).partition(" of ")[0]


def test_the_end_is_shown_only_once_all_are_labelled(results: lab.ExperimentResults, tmp_path: Path) -> None:
    anna = labeller(results, tmp_path)
    assert anna.carry_out({"do": "go", "place": 5})["place"] == 4
    for place in range(5):
        anna.grade("correct", place)
    assert anna.carry_out({"do": "go", "place": 9})["place"] == 5


def test_what_is_empty_is_not_called_unnamed(tmp_path: Path) -> None:
    quiet = lab.Agent(ScriptedProvider([say("")]))
    results = asyncio.run(lab.Experiment([quiet], ["Anything?"]).run(progress=False))
    shown = labeller(results, tmp_path).bundle()
    assert "unnamed" not in shown["text/html"] + shown["text/plain"]


def test_the_saved_copy_says_how_many_are_labelled(
    results: lab.ExperimentResults, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTLAB_FRONTEND", "widgets")
    kept: list[Any] = []
    for name in ("display", "update_display"):
        monkeypatch.setattr(live_view.display, name, lambda data, **more: kept.append(data["text/plain"].partition("\n")[0]))
    anna = labeller(results, tmp_path)
    anna._ipython_display_()
    for do in ("grade", "grade", "undo", "hello"):
        anna.carry_out({"do": do, "grade": "correct", "place": anna.place})
    assert [text.split(", ")[1] for text in kept if text] == [f"{n} of 5 answers labelled)" for n in (0, 1, 2, 1)]


def test_the_page_is_blind_and_inert(results: lab.ExperimentResults, tmp_path: Path) -> None:
    anna = labeller(results, tmp_path)
    sent = json.dumps([anna.carry_out({"do": "go", "place": place}) for place in range(5)])
    anna.grade("correct", 0)
    kept = anna.bundle()["text/html"]
    for text in (sent, kept, (tmp_path / "labels.jsonl").read_text()):
        assert not [word for word in ("alpha", "beta", "scripted", "experiment#", KEY) if word in text]
        assert "<script>" not in text
        assert "<img" not in text
    assert "href" not in sent
    assert labeller(results, tmp_path, target=False).carry_out({"do": "hello"})["target_html"] == ""


def test_the_order_is_that_of_the_seed_and_the_person(results: lab.ExperimentResults, tmp_path: Path) -> None:
    def order(rater: str, seed: int) -> list[str]:
        return [one.key for one in labeller(results, tmp_path, rater, seed=seed).items]

    assert order("anna", 0) == order("anna", 0)
    orders = {tuple(order(rater, seed)) for rater in ("anna", "bert", "cleo") for seed in range(4)}
    assert len(orders) > 6


def test_pairs_are_compared_without_sides(results: lab.ExperimentResults, tmp_path: Path) -> None:
    sides = set()
    for seed in range(8):
        path = tmp_path / f"{seed}.jsonl"
        anna = lab.label(results, path, rater="anna", by="agent", seed=seed)
        assert len(anna.items) == 2  # the agents' answers to t0 are equal
        while anna.place < 2:
            answers = anna.items[anna.place].answers
            better = next(one for one in answers if one not in ("Oslo", HOSTILE))
            sides.add("AB"[answers.index(better)])
            anna.grade("AB"[answers.index(better)])
        pairs = asyncio.run(lab.scorers.judge_pairs(results, lab.scorers.PairLabels(path), progress=False))
        assert pairs.groupby("prompt_id")["winner"].unique().map(list).to_dict() == {
            "t0": ["tie"],
            "t1": ["right"],
            "t2": ["left"],
        }
        again = lab.label(results, path, rater="anna", by="agent", seed=seed + 100)
        assert again.place == 2
        assert "Lima" in set(again.frame["answer"])
    assert sides == {"A", "B"}


def test_most_people_decide_a_pair(results: lab.ExperimentResults, tmp_path: Path) -> None:
    path = tmp_path / "pairs.jsonl"
    for rater, better in (("anna", "Lima"), ("bert", "Lima"), ("cleo", HOSTILE), ("dora", "")):
        labels = lab.label(results, path, rater=rater, by="agent")
        place = next(n for n, item in enumerate(labels.items) if "Lima" in item.answers)
        labels.grade("AB"[labels.items[place].answers.index(better)] if better else "equal", place)
    pairs = asyncio.run(lab.scorers.judge_pairs(results, lab.scorers.PairLabels(path), progress=False))
    row = pairs[pairs["prompt_id"] == "t1"].iloc[0]
    assert (row["winner"], row["why"]) == ("right", "1 left, 2 right, 1 tie")
    assert pairs["winner"][pairs["prompt_id"] == "t2"].isna().all()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"rater": ""}, "pass the name of the person"),
        ({"rater": "version"}, "pass the name of the person"),
        ({"grades": 1}, "pass 2 to 9 grades"),
        ({"grades": {"a": "b", "c": "d"}}, "pass 2 to 9 grades"),
        ({"by": "provider"}, "choose agent or settings"),
        ({"by": "settings"}, "another settings"),
    ],
)
def test_invalid_arguments_are_refused(results: lab.ExperimentResults, tmp_path: Path, more: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        lab.label(results, tmp_path / "labels.jsonl", **{"rater": "anna", **more})


def test_files_with_other_content_are_refused(results: lab.ExperimentResults, tmp_path: Path) -> None:
    labeller(results, tmp_path).grade("correct")
    with pytest.raises(ConfigurationError, match="has the grade 'correct', which is none of 1, 2, 3: pass the same grades"):
        labeller(results, tmp_path, grades=3)
    (tmp_path / "other.jsonl").write_text('{"a": 1}\n')
    with pytest.raises(ConfigurationError, match="line 1, is no label"):
        lab.label(results, tmp_path / "other.jsonl", rater="anna")
    with pytest.raises(ConfigurationError, match="there is no folder"):
        lab.label(results, tmp_path / "no" / "labels.jsonl", rater="anna")
    with pytest.raises(ConfigurationError, match="pass the results of an experiment"):
        lab.label(results.runs, tmp_path / "a.jsonl", rater="anna")  # type: ignore[arg-type]


def test_keys_are_numbers_and_free_letters() -> None:
    assert keys_of(["correct", "wrong"]) == [["1", "c"], ["2", "w"]]
    assert keys_of(["good", "great", "so-so", "unclear"]) == [["1"], ["2"], ["3"], ["4"]]


@pytest.mark.parametrize("seed", range(3))
def test_two_processes_may_add_to_one_file(results: lab.ExperimentResults, tmp_path: Path, seed: int) -> None:
    people = [labeller(results, tmp_path, rater) for rater in ("anna", "bert")]
    chance = random.Random(seed)
    for _ in range(10):
        one = chance.choice(people)
        if one.place < 5:
            one.grade(chance.choice(["correct", "wrong"]))
    counts = labeller(results, tmp_path).frame["rater"].value_counts()
    assert [counts.get(one.rater, 0) for one in people] == [len(one._labels) for one in people]

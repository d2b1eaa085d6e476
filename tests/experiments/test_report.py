"""The report of a replayed experiment: it verifies equal on its recordings, and says what differs; it is inert and without keys."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import html5lib
import pandas as pd
import pytest
from engine.server import Asked, Reply, serving, whole
from inert import HOSTILE, what_acts
from providers.bodies import Answer, Call
from providers.bodies import whole as body_of

import agentlab as lab
from agentlab._internal import secrets as known_keys
from agentlab.errors import AgentlabWarning, ConfigurationError
from agentlab.experiments.verify import read_report
from agentlab.notebook.report import _estimate, _number
from agentlab.testing import ScriptedProvider, say

from .parts import looking, uneven
from .test_budget import go as ended
from .test_budget import results_and_warning

CAPITALS = {"France": "Paris", "Peru": "Lima", "Norway": "Oslo", "Ghana": "Accra", "Chile": "Santiago", "Kenya": "Nairobi"}
TASKS = [{"id": name, "prompt": f"What is the capital of {name}?", "target": city} for name, city in CAPITALS.items()]
NUMBERS = itertools.count()
KEY = "sk-" + "planted0123456789abcdef"


def answer(asked: Asked) -> Reply:
    """The first model knows all capitals, the second one those of four letters."""
    question = asked.json["messages"][-1]["content"]
    city = next(city for name, city in CAPITALS.items() if name in question)
    known = asked.json["model"] == "m1" or len(city) == 4
    body = body_of("openai", Answer(text=(city if known else "No idea.",)))
    return whole({**body, "model": asked.json["model"], "id": f"answer {next(NUMBERS)}"})


class Study:
    """An experiment with two models, recorded once, and its variants."""

    def __init__(self, folder: Path) -> None:
        self.recordings = folder / "rec"
        with serving(script=answer) as server:
            self.base = server.base
            with lab.record(self.recordings):
                self.recorded = ended(self.experiment())
        with lab.replay(self.recordings):
            self.results = ended(self.experiment())
        self.report = self.results.report(folder / "study.html")

    def experiment(self, tasks: Any = TASKS, score: Any = None, **more: Any) -> lab.Experiment:
        agents = {f"a{n}": lab.Agent(lab.Provider("compatible", model=f"m{n}", base_url=self.base, api_key=KEY)) for n in (1, 2)}
        return lab.Experiment(agents, tasks, repeats=2, score=score or lab.scorers.Exact(), **more)


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    return Study(tmp_path_factory.mktemp("study"))


def verified(study: Study, experiment: Any, recordings: Path | None = None) -> lab.Verification:
    return asyncio.run(lab.verify(study.report, experiment, recordings=recordings or study.recordings))


def test_a_report_verifies_equal_on_its_recordings(study: Study) -> None:
    checked = verified(study, study.experiment())
    assert (checked.equal, checked.differences) == (True, ())
    figures = checked.figures.set_index(["table", "row", "column"])["reported"]
    runs = study.results.runs
    assert figures["runs", "a2 / Peru / default / 1", "score"] == "True"
    rate = runs.loc[runs["agent"] == "a2", "score"].astype(float).mean()
    assert float(figures["summary", "a2", "success_rate"]) == pytest.approx(rate) == pytest.approx(2 / 6)
    assert set(checked.figures["table"]) == {"summary", "paired score", "paired total_tokens", "pass@k", "runs"}
    assert verified(study, study.experiment).equal  # a function that makes it
    again = ended_replay(study.experiment(), study.recordings)
    assert again.report() == study.report.read_text()


def ended_replay(experiment: lab.Experiment, recordings: Path) -> lab.ExperimentResults:
    with lab.replay(recordings):
        return ended(experiment)


def test_a_live_study_verifies_on_what_was_recorded(study: Study) -> None:
    """The responses have the same hashes, and the figures are the same; where the responses came from is no figure."""
    checked = asyncio.run(lab.verify(study.recorded.report(), study.experiment(), recordings=study.recordings))
    assert (checked.equal, checked.differences) == (True, ())
    assert "replayed" not in set(checked.figures["column"])


def verdict(asked: Asked) -> Reply:
    """The model's answer, or that of a judge, which changes its mind with each request."""
    if asked.json["model"] != "judge":
        return answer(asked)
    pair = "Second answer" in asked.json["messages"][-1]["content"]
    word = ("first", "second") if pair else ("correct", "wrong")
    arguments = {"reason": "so", "better" if pair else "grade": word[next(NUMBERS) % 2]}
    return whole(body_of("openai", Answer(text=(), calls=[Call("final_answer", arguments)], finish=lab.FinishReason.TOOL_CALLS)))


def test_a_judge_of_recorded_runs_is_replayed_within_a_replay_and_asked_live_outside(tmp_path: Path) -> None:
    with serving(script=verdict) as server:
        model, judging = (lab.Provider("compatible", model=name, base_url=server.base, api_key=KEY) for name in ("m1", "judge"))
        judge = lab.scorers.Judge(judging, "Names the capital.", budget=lab.Budget(max_calls=2))

        def scored(results: lab.ExperimentResults) -> list[bool]:
            return list(asyncio.run(results.rescore(judge, name="judge", progress=False)).runs["score.judge"])

        def study() -> lab.Experiment:
            return lab.Experiment([lab.Agent(model, name="m1")], TASKS[:2])

        with lab.record(tmp_path / "rec"):
            recorded = scored(ended(study()))
        asked = len(server.asked)
        with lab.replay(tmp_path / "rec"):
            assert scored(ended(study())) == recorded
            outside = ended(study())
        assert len(server.asked) == asked
        scored(outside)
        assert len(server.asked) == asked + 2


def test_a_study_with_a_judge_replays_and_verifies(tmp_path: Path) -> None:
    """The judge's requests are the same each time, and each repeat gets its own verdict again."""
    with serving(script=verdict) as server:
        models = {
            name: lab.Provider("compatible", model=name, base_url=server.base, api_key=KEY) for name in ("m1", "m2", "judge")
        }
        judge = lab.scorers.Judge(models["judge"], "Names the capital.", budget=lab.Budget(max_calls=2))
        pairwise = lab.scorers.Pairwise(models["judge"], "Names the capital.", budget=lab.Budget(max_calls=2))

        def study() -> lab.Experiment:
            return lab.Experiment(
                [lab.Agent(models[name], name=name) for name in ("m1", "m2")], TASKS[:3], repeats=3, score=judge
            )

        with lab.record(tmp_path / "rec"):
            recorded = ended(study())
            asyncio.run(lab.scorers.judge_pairs(recorded, pairwise, progress=False))
        asked = len(server.asked)
        for match in ("strict", "order"):
            with lab.replay(tmp_path / "rec", match=match):
                replayed = ended(study())
            pd.testing.assert_frame_equal(replayed.runs.filter(like="score"), recorded.runs.filter(like="score"))
        with lab.replay(tmp_path / "rec"):
            pairs = asyncio.run(lab.scorers.judge_pairs(replayed, pairwise, progress=False))
        checked = asyncio.run(lab.verify(replayed.report(), study(), recordings=tmp_path / "rec"))
        assert len(server.asked) == asked
    assert set(recorded.runs["score"]) == {True, False}
    assert pairs["winner"].notna().all()
    assert (checked.equal, checked.differences) == (True, ())


def test_a_changed_recording_is_named_with_the_figures_that_it_changes(study: Study, tmp_path: Path) -> None:
    shutil.copytree(study.recordings, tmp_path / "rec")
    path = next((tmp_path / "rec").glob("*.yaml"))
    text = path.read_text()
    assert text.count("Lima") >= 2
    path.write_text(text.replace("Lima", "Cusco", 1))
    checked = verified(study, study.experiment(), tmp_path / "rec")
    assert len(checked.differences) == 1
    cell = re.fullmatch(r"The recording of '(a\d/Peru/default/\d)' differs\.", checked.differences[0])
    assert cell is not None
    agent = cell[1][:2]
    unequal = checked.unequal
    assert set(unequal.loc[unequal["table"] == "runs", "row"]) == {cell[1].replace("/", " / ")}
    assert {"score", "score_mean", "success_rate"} <= set(unequal["column"])
    assert set(unequal.loc[unequal["table"] == "summary", "row"]) == {agent}


def test_a_changed_task_is_named(study: Study) -> None:
    changed = [{**task, "target": "Quito"} if task["id"] == "Peru" else task for task in TASKS]
    checked = verified(study, study.experiment(changed))
    assert checked.differences == ("The task 'Peru' differs.",)
    rows = checked.unequal.loc[checked.unequal["table"] == "runs"]
    assert set(rows["row"]) == {f"a{n} / Peru / default / {repeat}" for n in (1, 2) for repeat in (1, 2)}
    assert "score" in set(rows["column"])
    assert "total_tokens" not in set(checked.unequal["column"])
    fewer = verified(study, study.experiment(TASKS[1:]))
    assert fewer.differences[0] == "The task 'France' is in the report only."
    assert not fewer.equal


def half(result: lab.RunResult) -> float:
    return 0.5


def test_a_changed_scorer_is_named(study: Study) -> None:
    checked = verified(study, study.experiment(score={"Exact": half}))
    assert checked.differences == ("The scorer 'Exact' differs.",)
    assert set(checked.unequal.loc[checked.unequal["table"] == "runs", "column"]) == {"score", "score.Exact"}


def test_another_version_is_named_and_the_figures_stay_equal(study: Study, tmp_path: Path) -> None:
    text = study.report.read_text()
    data = read_report(study.report)
    place = data["provenance"]["columns"].index("agentlab")
    for row in data["provenance"]["rows"]:
        row[place] = "0.0.9"
    old = re.search(r'(?s)(id="agentlab-report">)(.*?)(</script>)', text)
    assert old is not None
    path = tmp_path / "other.html"
    path.write_text(text.replace(old[2], json.dumps(data)))
    checked = asyncio.run(lab.verify(path, study.experiment(), recordings=study.recordings))
    assert checked.equal
    assert checked.differences == (f"agentlab: 0.0.9 in the report, {lab.__version__} now.",)


def test_results_are_no_experiment_to_verify(study: Study) -> None:
    with pytest.raises(lab.errors.ConfigurationError, match=r"experiment=ExperimentResults.*pass a lab\.Experiment"):
        asyncio.run(lab.verify(study.report, study.recorded))  # type: ignore[arg-type]


def test_without_recordings_no_request_is_sent(study: Study) -> None:
    with serving(script=answer) as server:
        live = Study.__new__(Study)
        live.base = server.base
        with pytest.warns(AgentlabWarning, match="24 of 24 runs failed.*Nothing recorded"):
            checked = asyncio.run(lab.verify(study.report, live.experiment()))
        with lab.record(study.recordings), pytest.warns(AgentlabWarning, match="Nothing recorded"):
            asyncio.run(lab.verify(study.report, live.experiment()))
        assert server.asked == []
    assert not checked.equal
    assert "The recording of 'a1/France/default/1' differs." in checked.differences


def test_the_surrounding_replay_is_used_and_the_store_stays_as_it_is(study: Study, tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    watched = lab.Store()
    with lab.replay(study.recordings):
        experiment = study.experiment(store=path)
        for agent in experiment.grid.agents.values():
            agent.observers = (watched,)
        results = ended(experiment)
    before = path.read_bytes(), watched.run_ids()
    checked = asyncio.run(lab.verify(results.report(), experiment))  # in the replay in which it was made
    assert (checked.equal, checked.differences) == (True, ())
    assert (path.read_bytes(), watched.run_ids()) == before


# The page -------------------------------------------------------------------------------------------------------------------------


def sections(page: str) -> str:
    """The part of the page that is read."""
    return page.partition("<main")[2].partition(">")[2].rpartition("</main>")[0]


def test_the_page_has_all_parts_one_data_element_and_no_script(study: Study) -> None:
    page = study.report.read_text()
    tree = html5lib.parse(page, namespaceHTMLElements=False)
    assert [element.text for element in tree.iter("h2")] == [
        "Results", "Figures", "Runs", "Methods", "Tasks", "Agents and settings", "Scorers", "Provenance", "To repeat it",
    ]  # fmt: skip
    scripts = list(tree.iter("script"))
    assert [one.get("type") for one in scripts] == ["application/json"]
    assert "script-src" not in page and "default-src 'none'" in page
    images = list(tree.iter("img"))
    assert len(images) == 1 and "Succeeded by group" in (images[0].get("alt") or "")
    text = "".join(tree.iter("main").__next__().itertext())
    assert "Independent units: a1: 6, a2: 6" in text
    assert "McNemar" in text and "Holm" in text and "Clopper-Pearson" in text
    assert "24 replayed from recordings" in text
    for task in study.results.grid.tasks:
        assert task.hash in text


def rows_of_table(page: str, place: int) -> list[list[str]]:
    table = list(html5lib.parse(page, namespaceHTMLElements=False).iter("table"))[place]
    cells = [[cell for cell in row if cell.tag in ("td", "th")] for row in table.iter("tr")]
    return [["".join(cell.itertext()) for cell in row] for row in cells]


def test_shares_of_runs_are_counts_and_figures_have_the_digits_of_their_interval(study: Study) -> None:
    heads, *rows = rows_of_table(study.report.read_text(), 0)
    shown = [dict(zip(heads, row, strict=True)) for row in rows]

    assert [row["completed [95 %]"] for row in shown] == ["12 of 12 [0.54, 1]"] * 2
    assert [row["success [95 %]"] for row in shown] == ["12 of 12 [0.54, 1]", "4 of 12 [0.04, 0.78]"]
    assert "score [95 %]" not in heads, "the same as success"
    assert [row[2] for row in rows_of_table(study.report.read_text(), 3)[1:]] == ["1 [0.54, 1]"] * 2 + ["0.33 [0.04, 0.78]"] * 2


def test_what_to_read_with_care_is_beside_the_figure_it_concerns(study: Study) -> None:
    page = html5lib.parse(study.report.read_text(), namespaceHTMLElements=False)
    first = next(page.iter("table"))
    marked = ["".join(cell.itertext()) for cell in first.iter("td") if cell.find("sup") is not None]
    notes = ["".join(line.itertext()) for line in next(one for one in page.iter("div") if one.get("class") == "care").iter("li")]

    assert marked == ["61", "152", "–3"] * 2, "6 units, 15 tokens, no cost"
    assert [note.partition(",")[0] for note in notes] == [
        "6 independent units: fewer than 20", "No interval: 12 values in 6 independent units", "No interval: none known",
    ]  # fmt: skip


@pytest.mark.filterwarnings("ignore::agentlab.errors.AgentlabWarning")
def test_runs_without_a_score_are_left_out_of_a_count() -> None:
    def score(result: lab.RunResult, task: lab.Task) -> bool:
        if task.id == "Peru":
            raise ValueError("no idea")
        return task.id != "Norway"

    agent = lab.Agent(ScriptedProvider(lambda request, index: say("Paris")), name="a")
    page = str(ended(lab.Experiment([agent], TASKS, score=score)).report())
    heads, row = rows_of_table(page, 0)

    assert dict(zip(heads, row, strict=True))["success [95 %]"].startswith("4 of 5 [")
    assert "Left out: 1 of 6 without a score" in page


@pytest.mark.parametrize(
    ("value", "low", "high", "column", "shown"),
    [
        (0.5, 0.1881, 0.8119, "score", "0.5 [0.19, 0.81]"),
        (1234.56, 1100.4, 1350.8, "tokens", "1,235 [1,100, 1,351]"),
        (0.0123456, 0.0101, 0.0145, "cost", "$0.0123 [$0.0101, $0.0145]"),
        (12.3456, 10.1, 14.5, "cost", "$12.35 [$10.10, $14.50]"),
        (-0.33333, -0.6001, -0.0603, "score", "-0.33 [-0.6, -0.06]"),
        (0.5, 0.499, 0.501, "score", "0.5 [0.499, 0.501]"),
        (0.33333, None, None, "score", "0.33"),
        (1234.56, None, None, "tokens", "1,235"),
        (1 / 3000, None, None, "cost", "$0.00033"),
        (0.0, None, None, "score", "0"),
        (15.0, 15.0, 15.0, "tokens", "15 [15, 15]"),
        (None, None, None, "score", "–"),
    ],
)
def test_a_figure_has_the_digits_that_its_interval_has(
    value: float | None, low: float | None, high: float | None, column: str, shown: str
) -> None:
    assert _estimate(value, low, high, column) == shown


def test_the_code_in_the_page_makes_the_study_again(study: Study, tmp_path: Path) -> None:
    def look(q: str = "") -> str:
        return q

    def agent(model: str, **more: Any) -> lab.Agent:
        provider = lab.Provider("compatible", model=model, base_url=study.base, api_key=KEY)
        return lab.Agent(provider, tools=[look], **more)

    words = "Answer with the name of a city, and nothing else. " * 20
    agents = {
        "one": agent("m1", instructions=words, temperature=0.5, seed=1, options={"user": "x"}, budget=lab.Budget(max_turns=3)),
        "two": agent("m2", stop=lab.StepCountIs(4) | lab.HasToolCall("look")),
        "three": lab.Agent("openai:gpt-5.4-mini"),
    }
    settings = {"few": {"budget": lab.Budget(max_turns=2, max_cost="0.1"), "stop": lab.MaxTokensUsed(500)}, "all": {}}
    made = lab.Experiment(agents, TASKS, settings, repeats=2, score=lab.scorers.Exact(), name="more")
    page = str(made.results().report())
    main = next(html5lib.parse(page, namespaceHTMLElements=False).iter("main"))
    code = "".join(next(main.iter("pre")).itertext())
    code = code[: code.index("await lab.verify")].replace("tasks = …", "tasks = TASKS").replace("score=…", "score=SCORER")
    known: dict[str, Any] = {"look": look, "TASKS": TASKS, "SCORER": lab.scorers.Exact()}
    exec(code, known)
    again = known["study"]
    assert read_report(str(again.results().report())) == read_report(page)
    assert [repr(one) for one in again.grid.agents.values()] == [repr(one) for one in agents.values()]
    assert [one.settings for one in again.grid.agents.values()] == [one.settings for one in agents.values()]


def kinds(page: str) -> set[str]:
    return {re.sub(r"=.*", "", one) for one in what_acts(sections(page))}


def hostile_study() -> lab.ExperimentResults:
    """Each text is a task with its target and tags, the answer to it, an error of its score, and a part of names and instructions."""
    texts = [one.encode("utf-16", "surrogatepass").decode("utf-16", "replace") for one in HOSTILE.values()]
    names = [" ".join(text.split())[:60].replace("#", "").replace("/", "") for text in texts]
    whole_text = "".join(texts)

    def said(request: Any, index: int) -> Any:
        return say(request.messages[0].text)

    agents = {
        f"{name} {n}": lab.Agent(ScriptedProvider(said, name=name, model=text), instructions=whole_text, name=text)
        for n, (name, text) in enumerate(zip(names[:2], texts[:2], strict=True))
    }
    tasks = [
        {"id": f"{n}{name}", "prompt": text, "target": text, "tags": [text]}
        for n, (name, text) in enumerate(zip(names, texts, strict=True))
    ]

    def score(result: lab.RunResult, task: lab.Task) -> float:
        raise ValueError(task.text)

    score.__name__ = whole_text
    settings = {names[0]: {"stop": lab.HasToolCall(whole_text)}}
    return asyncio.run(lab.Experiment(agents, tasks, settings, score=score, name=names[1]).run(progress=False))


@pytest.mark.filterwarnings("ignore::agentlab.errors.AgentlabWarning")
def test_hostile_texts_are_inert(study: Study) -> None:
    results = hostile_study()
    page = results.report()
    assert kinds(page) <= kinds(study.report.read_text())
    tree = html5lib.parse(page, namespaceHTMLElements=False)
    assert [one.get("type") for one in tree.iter("script")] == ["application/json"]
    assert len(list(tree.iter("img"))) == 1 and len(list(tree.iter("style"))) == 1
    assert asyncio.run(lab.verify(page, again_of(results))).equal


def again_of(results: lab.ExperimentResults) -> Callable[[], lab.Experiment]:
    grid = results.grid
    return lambda: lab.Experiment(grid.agents, grid.tasks, grid.settings, score=results.score, name=grid.name)


def test_a_tiny_cost_is_not_shown_as_nothing() -> None:
    shown = [_number(value, "cost_usd") for value in (0.00000024, -0.0000012, 1234.5, 0.0, 1e-18)]
    assert shown == ["$0.00000024", "-$0.000001", "$1,234.5", "$0", "$0"]


@pytest.mark.filterwarnings("ignore::agentlab.errors.AgentlabWarning")
def test_half_a_surrogate_pair_in_a_task_is_kept_out_of_the_file(tmp_path: Path) -> None:
    half = "cut \ud83d"
    tasks = lab.Tasks([{"id": "t", "prompt": half, "target": half, "tags": [half]}])
    agent = lab.Agent(ScriptedProvider(lambda request, index: say(half)), name="a", instructions=half)
    study = lab.Experiment([agent], tasks, store=tmp_path / "runs.db", score=lab.scorers.Exact())
    results = ended(study)
    assert tasks.to_frame()[["prompt", "tags"]].to_numpy().tolist() == [["cut ?", "cut ?"]]
    assert results.loaded[0].result is not None and "cut" in results.loaded[0].result.text
    report = results.report(tmp_path / "study.html")
    checked = asyncio.run(lab.verify(report, study))
    assert checked.equal and not checked.differences


HALF = "m\ud83d"


@pytest.mark.parametrize(
    "more",
    [
        {"agents": {HALF: looking()}},
        {"agents": [lab.Agent(ScriptedProvider(["x"], model=HALF))]},  # the name of its model
        {"tasks": [{"id": HALF, "prompt": "x"}]},
        {"settings": {HALF: {}}},
        {"name": HALF},
    ],
    ids=["agent", "model", "task", "settings", "experiment"],
)
def test_a_name_with_half_a_surrogate_pair_is_refused(more: dict[str, Any]) -> None:
    """Run ids consist of names, and neither a store nor a frame can hold such a text."""
    with pytest.raises(ConfigurationError, match=r"ud83d.* contains half a surrogate pair, which cannot be stored: rename"):
        lab.Experiment(**{"agents": [looking()], "tasks": ["x"], **more})


def test_no_key_is_in_the_page(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    secret = "e7Hc20vQ/planted+InTheEnvironment"
    monkeypatch.setenv("PLANTED_API_KEY", secret)
    known_keys.read_environment()
    text = f"Use {KEY} or {secret} now"
    agent = lab.Agent(ScriptedProvider(lambda request, index: say(text)), instructions=text, options={"user": KEY}, name=text)
    tasks = [{"id": "p", "prompt": text, "target": text, "tags": [text]}]
    results = ended(lab.Experiment({"a": agent}, tasks, score=lab.scorers.Includes()))
    page = results.report(tmp_path / "study.html").read_text()
    results.export(tmp_path / "out")
    exported = "".join(path.read_bytes().decode("latin-1") for path in (tmp_path / "out").iterdir())
    imported = lab.importers.parquet(tmp_path / "out")
    frames = "".join(frame.to_csv() for frame in (imported.runs, imported.calls, lab.provenance(results)) if frame is not None)
    for key in (KEY, secret, json.dumps(secret)[1:-1], secret.replace("/", "\\/")):
        assert key not in page + exported + frames
    assert asyncio.run(lab.verify(tmp_path / "study.html", again_of(results))).equal


FAULTS = {
    "another file": ("<html></html>", "is not a report"),
    "damaged data": ('<html><script type="application/json" id="agentlab-report">{</script>', "is not a report"),
    "newer": ('<html><script type="application/json" id="agentlab-report">{"format": 99}</script>', "newer agentlab"),
    "parts missing": ('<html><script type="application/json" id="agentlab-report">{"format": 1}</script>', "is damaged"),
}


@pytest.mark.parametrize(("page", "message"), FAULTS.values(), ids=FAULTS.keys())
def test_what_is_no_report_is_refused(page: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "study.html"
    path.write_text(page)
    for given in (path, page):
        with pytest.raises(ConfigurationError, match=message):
            asyncio.run(lab.verify(given, lab.Experiment([looking()], ["x"])))
    with pytest.raises(ConfigurationError, match=r"verify\('.*none\.html'\): the file cannot be read"):
        asyncio.run(lab.verify(tmp_path / "none.html", lab.Experiment([looking()], ["x"])))


def test_a_report_of_what_has_not_run(tmp_path: Path) -> None:
    experiment = lab.Experiment([looking()], ["x"])
    page = experiment.results().report()
    assert "0 ended" in page
    assert not asyncio.run(lab.verify(page, experiment)).equal
    with pytest.raises(ConfigurationError, match=r"report\('.*'\): that is a folder"):
        experiment.results().report(tmp_path)


# Export ---------------------------------------------------------------------------------------------------------------------------


def length(result: lab.RunResult) -> float:
    return float(len(result.history))


def test_an_export_has_the_experiments_columns_and_is_read_back(tmp_path: Path) -> None:
    made = lab.Store()
    tasks = [{"prompt": "1", "target": "x", "tags": "odd"}, {"prompt": "2", "tags": "even"}]
    settings = {"short": {"budget": lab.Budget(max_turns=2)}, "long": {}}
    planner = lab.Agent(ScriptedProvider(lambda request, index: say("end")), tools=[uneven().as_tool("helper")])
    study = lab.Experiment({"u": uneven(), "p": planner}, tasks, settings, repeats=2, store=made, score=length, max_runs=14)
    results, _ = results_and_warning(study)
    results = asyncio.run(results.rescore(lambda result: {"score": True, "part": 0.5}, name="late", progress=False))
    results.export(tmp_path)
    found = lab.importers.parquet(tmp_path)
    assert found.notes == ()
    runs = results.runs[results.runs["state"] != "not_started"].reset_index(drop=True)
    assert len(runs) == 14
    for what, frame in {"runs": runs, "steps": results.steps, "calls": results.calls, "tools": results.tools}.items():
        read = getattr(found, what)
        ours = read[read["run_id"].isin(runs["run_id"])]
        order = {run_id: place for place, run_id in enumerate(runs["run_id"])}
        ours = ours.iloc[ours["run_id"].map(order).argsort(kind="stable")].reset_index(drop=True)
        pd.testing.assert_frame_equal(ours[frame.columns], frame, obj=what)
        assert lab.frame(found, what) is read
    pd.testing.assert_frame_equal(lab.summary(found, "agent"), lab.summary(runs, "agent"))
    other = lab.Store()
    other.import_from(tmp_path)
    again = lab.Experiment(study.grid.agents, study.grid.tasks, settings, repeats=2, store=other, score=length).results()
    pd.testing.assert_frame_equal(again.runs, results.runs.assign(problem=again.runs["problem"]))
    assert lab.provenance(other).equals(lab.provenance(made))


def test_an_export_of_a_store_has_calls_and_tools(tmp_path: Path) -> None:
    store = lab.Store()
    run = store.keep(looking().run("?"))
    asyncio.run(run.worker.to_the_end())
    store.export(tmp_path)
    found = lab.importers.parquet(tmp_path)
    assert found.calls is not None and found.tools is not None
    pd.testing.assert_frame_equal(found.calls, store.frame("calls"))
    pd.testing.assert_frame_equal(found.tools, store.frame("tools"))
    assert "agent" not in found.runs
    for name in ("calls", "tools"):  # an export of an earlier version
        (tmp_path / f"{name}.parquet").unlink()
    assert lab.importers.parquet(tmp_path).calls is None


def test_the_notes_of_experiments_are_exported() -> None:
    from agentlab.experiments.runner import NOTES
    from agentlab.storage.parquet import _OF_NOTES

    assert set(NOTES) <= set(_OF_NOTES.values())

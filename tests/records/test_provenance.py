"""What made a run: versions and commit as pip and git report them, the same from a store, unknown in an old one, and without keys."""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from engine.builders import go
from engine.server import serving, whole
from providers.bodies import Answer
from providers.bodies import whole as body_of

import agentlab as lab
from agentlab.records.provenance import LIBRARIES, Process, Provenance, this_process
from agentlab.storage import MemoryStorage
from agentlab.testing import ScriptedProvider, call

KEY = "sk-" + "planted0123456789abcdef"


@lab.tool(inline=True)
def look(q: str = "") -> str:
    """Look something up."""
    return q


async def ended(run: lab.Run) -> lab.Run:
    await run
    return run


@pytest.fixture
def fresh_process() -> Iterator[None]:
    this_process.cache_clear()
    yield
    this_process.cache_clear()


def git(folder: Path, *words: str) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
    return subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


def test_the_versions_are_those_that_are_installed() -> None:
    made = this_process()
    assert (made.agentlab, made.python) == (lab.__version__, platform.python_version())
    assert made.libraries == {name: metadata.version(name) for name in LIBRARIES}


@pytest.mark.usefixtures("fresh_process")
def test_the_commit_is_what_git_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert (this_process().commit, this_process().dirty) == (None, None)  # no repository
    git(tmp_path, "init", "-q")
    this_process.cache_clear()
    assert (this_process().commit, this_process().dirty) == (None, None)  # no commit
    (tmp_path / "a.txt").write_text("one")
    git(tmp_path, "add", "a.txt")
    git(tmp_path, "commit", "-q", "-m", "One")
    (tmp_path / "b.txt").write_text("not tracked")
    this_process.cache_clear()
    assert (this_process().commit, this_process().dirty) == (git(tmp_path, "rev-parse", "HEAD"), False)
    (tmp_path / "a.txt").write_text("two")
    assert this_process().dirty is False  # collected once
    this_process.cache_clear()
    assert this_process().dirty is True


@pytest.mark.usefixtures("fresh_process")
def test_a_repository_cannot_name_a_program_to_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git(tmp_path, "init", "-q")
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    program.chmod(0o755)
    git(tmp_path, "config", "core.fsmonitor", str(program))
    (tmp_path / "a.txt").write_text("one")
    git(tmp_path, "-c", "core.fsmonitor=false", "add", "a.txt")
    git(tmp_path, "-c", "core.fsmonitor=false", "commit", "-q", "-m", "One")
    monkeypatch.chdir(tmp_path)
    assert this_process().dirty is False
    assert not (tmp_path / "ran").exists()


@pytest.mark.usefixtures("fresh_process")
@pytest.mark.parametrize("how", ["absent", "fails", "slow"])
def test_without_git_the_commit_is_unknown(how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if how != "absent":
        program = tmp_path / "git"
        program.write_text("#!/bin/sh\nexit 128\n" if how == "fails" else f"#!/bin/sh\nexec {shutil.which('sleep')} 60\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("agentlab.records.provenance.GIT_TIMEOUT_S", 0.2)
    assert (this_process().commit, this_process().dirty) == (None, None)
    assert this_process().agentlab == lab.__version__


@pytest.mark.usefixtures("fresh_process", "fake_time")
def test_the_wait_for_git_takes_no_fake_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "git"
    program.write_text(f"#!/bin/sh\necho '# branch.oid abc'\nexec {shutil.which('sleep')} 0.2 >&- 2>&-\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    begun = time.monotonic()
    assert this_process().commit == "abc"
    assert time.monotonic() - begun < 0.1


def test_a_run_says_what_it_asked_and_who_answered(tmp_path: Path) -> None:
    body = {**body_of("openai", Answer(text=("Paris.",))), "model": "named-by-the-server"}
    with serving(whole(body)) as server:
        model = lab.Provider("compatible", model="m", base_url=server.base, api_key=KEY)
        agent = lab.Agent(model, tools=[look], instructions="Be brief.", temperature=0.5, options={"top_p": 0.9})
        with lab.record(tmp_path / "rec"):
            live = go(ended(agent.run("Where?"))).provenance
    with lab.replay(tmp_path / "rec"):
        replayed = go(ended(agent.run("Where?"))).provenance
        result = go(ended(agent.run("Where?"))).result
    assert result is not None
    assert result.provenance == replayed
    assert (live.provider, live.model, live.response_models) == ("compatible", "m", ("named-by-the-server",))
    assert live.base_url == model.base_url
    assert live.parameters == {"temperature": 0.5, "top_p": 0.9, "stream": False}
    assert set(live.tools or ()) == {"look"}
    assert (live.replayed, live.recordings, replayed.replayed) == (False, (), True)
    assert len(replayed.recordings) == 1
    assert live.responses_hash == replayed.responses_hash is not None
    assert replace(live, replayed=True, recordings=replayed.recordings) == replayed
    assert KEY not in json.dumps(live.to_dict()) + repr(live)


def test_hashes_change_with_the_schema_the_instructions_and_the_prompt() -> None:
    def other(q: str = "") -> str:
        """Look elsewhere."""
        return q

    def made(prompt: str = "?", instructions: str = "", tool: Any = look) -> Provenance:
        agent = lab.Agent(ScriptedProvider(["end"]), tools=[tool], instructions=instructions)
        return agent.run(prompt).provenance

    assert made() == made()
    assert len({made().prompt_hash, made("!").prompt_hash, made(instructions="Be brief.").prompt_hash}) == 3
    assert made().tools != made(tool=lab.tool(other, name="look")).tools


def test_a_store_keeps_it(tmp_path: Path) -> None:
    agent = lab.Agent(ScriptedProvider([call("look", {"q": "x"}), "end"]), tools=[look], options={"user": KEY})
    with lab.Store(tmp_path / "runs.db") as store:
        run = go(ended(store.keep(agent.run(f"Use {KEY}").with_id("one"))))
        assert store.load("one").provenance.prompt_hash == run.provenance.prompt_hash
    assert KEY.encode() not in (tmp_path / "runs.db").read_bytes()
    with lab.Store(tmp_path / "runs.db") as store:
        loaded = store.load("one").provenance
        assert loaded.to_dict() == run.provenance.to_dict()
        assert lab.provenance(store)[["runs", "agentlab", "model"]].to_numpy().tolist() == [[1, lab.__version__, "script"]]


def without_provenance(storage: MemoryStorage) -> MemoryStorage:
    """The storage as an earlier agentlab has written it."""
    older = MemoryStorage()
    for run in storage.runs():
        body = json.loads(run.head.body)
        del body["made"]
        older.begin(replace(run.head, body=json.dumps(body)), storage.steps(run.head.run_id), run.end)
    return older


def test_a_run_of_an_earlier_version_says_unknown_and_its_resumption_is_noted() -> None:
    agent = lab.Agent(ScriptedProvider([call("look", {"q": "x"}), "end"]), tools=[look], options={"seed": 3})
    storage = MemoryStorage()
    store = lab.Store(storage)
    run = store.keep(agent.run("?").with_id("one"))
    go(run.step())
    store.let_go(run)
    older = lab.Store(without_provenance(storage))
    made = older.load("one").provenance
    assert made.process == Process()
    assert (made.prompt_hash, made.tools, made.parameters) == (None, None, {"seed": 3, "stream": False})
    assert made.response_models == ("script",)
    again = older.resume("one", agent)
    assert again.provenance.resumed_in == (this_process(),)
    result = go(ended(again)).result
    assert result is not None
    assert result.provenance.resumed_in == (this_process(),)
    assert older.load("one").provenance.resumed_in == (this_process(),)
    row = lab.provenance(older).iloc[0]
    assert row[["agentlab", "commit", "dirty", "tools"]].isna().all()
    assert f"agentlab {lab.__version__}" in row["resumed_in"]


def test_a_run_that_the_same_process_resumes_has_no_other_process() -> None:
    agent = lab.Agent(ScriptedProvider([call("look", {"q": "x"}), "end"]), tools=[look])
    store = lab.Store()
    run = store.keep(agent.run("?").with_id("one"))
    go(run.step())
    store.let_go(run)
    assert store.resume("one", agent).provenance.resumed_in == ()


def test_lab_provenance_has_a_row_per_origin() -> None:
    first, second = (lab.Agent(ScriptedProvider(lambda request, index: "end"), options={"seed": seed}) for seed in (1, 2))
    runs = [go(ended(agent.run("?"))) for agent in (first, second, first)]
    frame = lab.provenance(runs)
    assert frame["runs"].to_list() == [2, 1]
    assert frame["first_run"].to_list() == [runs[0].id, runs[1].id]
    assert [json.loads(one)["seed"] for one in frame["parameters"]] == [1, 2]
    assert lab.provenance([run.result for run in runs]).equals(frame)
    with pytest.raises(lab.errors.ConfigurationError, match=r"cannot read DataFrame: .* Frames have the ids of runs only\."):
        lab.provenance(lab.frame(runs, "runs"))  # type: ignore[arg-type]


def test_the_page_of_a_run_has_it_and_a_page_without_times_has_not() -> None:
    run = go(ended(lab.Agent(ScriptedProvider(["end"])).run("?")))
    data = json.loads(run.to_html().partition('id="agentlab-data">')[2].partition("</script>")[0])
    rows = dict(data["runs"][0]["made"])
    assert (rows["agentlab"], rows["model"]) == (lab.__version__, "scripted:script")
    assert platform.python_version() not in run.to_html(timing=False)

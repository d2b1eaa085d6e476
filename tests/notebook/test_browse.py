"""The runs of a store in a grid: what is listed of each, without reading its steps, and what the page gets when one is opened."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import re
import signal
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from inert import HOSTILE as HOSTILE_TEXTS
from inert import text_of, what_acts

import agentlab as lab
from agentlab.errors import ConfigurationError, StorageError
from agentlab.notebook.browse import Browser
from agentlab.notebook.page.data import page_data
from agentlab.storage.listing import summaries
from agentlab.testing import ScriptedProvider, call, say

HOSTILE = "".join(HOSTILE_TEXTS.values())
KEY = "sk-proj-abcdefghijklmnopqrstuvwxyz012345"


def search(query: str) -> str:
    """Search."""
    return f"nothing about {query}"


def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


def looking(request: Any, index: int) -> Any:
    return call("search", {"query": f"try {index}"}, tokens=(100, 10), cost="0.001")


def kept(
    store: lab.Store, prompt: str = "Find it.", *, script: Any = ("Found.",), name: str = "guide", **more: Any
) -> lab.RunResult:
    """Run an agent to its end in this store."""
    agent = lab.Agent(ScriptedProvider(script, name=name), name=name, tools=[search, pay], observers=[store])

    async def to_the_end() -> lab.RunResult:
        return await agent.run(prompt, **more)

    return asyncio.run(to_the_end())


def killed(work: Callable[[], object]) -> None:
    """Do the work in another process, which is then killed."""
    process = os.fork()
    if not process:
        try:
            work()
            os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(1)
    _, status = os.waitpid(process, 0)
    assert os.WIFSIGNALED(status)


def listed(given: Any) -> list[dict[str, Any]]:
    """The rows as the page reads them, the newest first."""
    browser = given if isinstance(given, Browser) else lab.browse(given)
    listing = json.loads(json.dumps(browser.carry_out({"do": "list"})))
    return [dict(zip(listing["fields"], row, strict=True)) for row in listing["rows"]]


def opened(browser: Browser, *ids: str) -> dict[str, Any]:
    return dict(json.loads(browser.carry_out({"do": "open", "runs": list(ids)})))


# What is listed -------------------------------------------------------------------------------------------------------------


def test_ended_runs_are_listed_with_what_they_used(tmp_path: Path) -> None:
    store = lab.Store(tmp_path / "runs.db")
    script = [call("search", {"query": "a"}, tokens=(100, 10), cost="0.001"), say("Found.", tokens=(200, 20), cost="0.002")]
    kept(store, "Find the way.", script=script)
    ended = kept(store, "Find more.", script=looking, stop=lab.StepCountIs(2))
    newest, oldest = listed(tmp_path / "runs.db")
    assert newest["id"] == ended.run_id
    want = {"state": "ended", "agent": "guide", "model": "guide:script", "prompt": "Find the way.", "steps": 2, "tokens": 330}
    want |= {"cost_usd": 0.003, "stop_reason": "completed", "terminated": True, "origin": "", "resumable": False, "score": None}
    assert want.items() <= oldest.items()
    assert oldest["elapsed_s"] > 0 and time.time() - 60 < oldest["begun_at"] < time.time()
    assert {"stop_reason": "stop_condition", "terminated": False, "tokens": 220}.items() <= newest.items()


def test_what_is_unknown_is_listed_as_unknown(tmp_path: Path) -> None:
    store = lab.Store(tmp_path / "runs.db")
    kept(store, script=[say("Found.", tokens=(None, None), cost=None)])
    (row,) = listed(store)
    assert (row["steps"], row["tokens"], row["cost_usd"]) == (1, None, None)
    assert "unknown" in lab.browse(store).bundle()["text/plain"]


def test_the_values_are_those_of_the_runs_frame(tmp_path: Path) -> None:
    store = lab.Store(tmp_path / "runs.db")
    expert = lab.Agent(ScriptedProvider([say("Yes.", tokens=(50, 5), cost="0.01")] * 9, name="expert"), name="expert")
    asking = [call("ask", {"task": "Is it?"}, tokens=(10, 1), cost="0.001"), say("It is.", tokens=(20, 2), cost="0.002")]
    chief = lab.Agent(ScriptedProvider(asking), tools=[expert.as_tool("ask", "Ask.")], observers=[store])

    async def ask() -> lab.RunResult:
        return await chief.run("Is it?")

    result = asyncio.run(ask())
    rows = {row["id"]: row for row in listed(store)}
    chief_row = rows.pop(result.run_id)
    (expert_row,) = rows.values()
    assert (expert_row["origin"], expert_row["agent"], chief_row["origin"]) == ("sub-agent", "expert", "")
    assert chief_row["tokens"] == result.history.tokens == 88 and chief_row["cost_usd"] == pytest.approx(0.013)
    for at, row in store.frame("runs").set_index("run_id").iterrows():
        mine = {**rows, result.run_id: chief_row}[str(at)]
        assert mine["tokens"] == row["total_tokens"] + row["child_tokens"]
        assert mine["elapsed_s"] == pytest.approx(row["elapsed_s"])


def test_killed_and_running_runs(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"

    def begin() -> None:
        store = lab.Store(path)
        run = lab.Agent(ScriptedProvider(looking), tools=[search], observers=[store]).run("killed").with_id("killed")
        asyncio.run(two_steps(run))

    async def two_steps(run: lab.Run) -> None:
        await run.step()
        await run.step()

    killed(begin)
    store = lab.Store(path)
    here = lab.Agent(ScriptedProvider(looking), tools=[search], observers=[store]).run("here").with_id("here")
    asyncio.run(two_steps(here))
    rows = {row["id"]: row for row in listed(path)}
    want = {"state": "interrupted", "steps": 2, "tokens": 220, "cost_usd": 0.002, "stop_reason": None, "resumable": True}
    assert want.items() <= rows["killed"].items()
    assert rows["killed"]["needs_agent"] is True
    assert (rows["here"]["state"], rows["here"]["resumable"]) == ("idle", False)
    here.stop()
    assert next(row for row in listed(path) if row["id"] == "here")["stop_reason"] == "explicit_stop"


def test_a_run_that_waits_for_approval(tmp_path: Path) -> None:
    path, paying = tmp_path / "runs.db", [call("pay", {"amount": 1}, id="c1"), say("Paid.")]

    def agent(store: lab.Store | None = None) -> lab.Agent:
        return lab.Agent(ScriptedProvider(paying), tools=[pay], approve=["pay"], observers=[] if store is None else [store])

    def begin() -> None:
        asyncio.run(to_the_end(agent(lab.Store(path)).run("Pay.").with_id("one")))

    async def to_the_end(run: lab.Run) -> lab.RunResult:
        return await run

    killed(begin)
    store = lab.Store(path)
    (row,) = listed(store)
    assert {"state": "waiting", "waits_for": ["pay"], "resumable": True, "stop_reason": None}.items() <= row.items()
    run = store.resume("one", agent())
    run.approve()
    (row,) = listed(store)
    assert row["waits_for"] == []
    asyncio.run(to_the_end(run))
    (row,) = listed(store)
    assert (row["state"], row["waits_for"], row["stop_reason"]) == ("ended", [], "completed")


def test_a_process_on_another_machine_cannot_be_checked(tmp_path: Path) -> None:
    store = lab.Store(tmp_path / "runs.db")
    run = lab.Agent(ScriptedProvider(looking), tools=[search]).run("far")

    async def one_step() -> None:
        await store.keep(run).step()

    asyncio.run(one_step())
    store.let_go(run)
    store.storage.claim(run.id, json.dumps(["elsewhere", 1, "1", 1]), instead_of="nobody")
    (row,) = listed(store)
    assert (row["state"], row["resumable"]) == ("unknown", None)


def test_runs_in_memory_are_listed_alike(tmp_path: Path) -> None:
    in_file, in_memory = lab.Store(tmp_path / "runs.db"), lab.Store()
    for store in (in_file, in_memory):
        kept(store, "one")
        run = store.keep(lab.Agent(ScriptedProvider(looking), tools=[search]).run("two"))
        asyncio.run(one_step(run))
        store.let_go(run)
    rows = [[{**row, "id": 0, "begun_at": 0, "elapsed_s": 0} for row in listed(store)] for store in (in_file, in_memory)]
    assert rows[0] == rows[1]
    assert [row["state"] for row in rows[0]] == ["interrupted", "ended"]


async def one_step(run: lab.Run) -> None:
    await run.step()


def test_scores_of_an_experiment_are_listed(tmp_path: Path) -> None:
    agent = lab.Agent(ScriptedProvider(["Paris."] * 9, name="guide"), name="guide")
    study = lab.Experiment([agent], ["Where?"], store=tmp_path / "runs.db", name="capitals", repeats=2, score=lambda result: 0.5)
    results = asyncio.run(scored(study))
    assert len(results) == 2
    rows = listed(tmp_path / "runs.db")
    assert [row["score"] for row in rows] == [0.5, 0.5]
    assert all(row["id"].startswith("capitals#") for row in rows)


async def scored(study: Any) -> Any:
    return await study.run()


def test_a_damaged_run_is_listed_and_does_not_hide_the_others(tmp_path: Path) -> None:
    store = lab.Store(tmp_path / "runs.db")
    kept(store, "good")
    bad = kept(store, "bad")
    with contextlib.closing(sqlite3.connect(tmp_path / "runs.db")) as database, database:
        database.execute("UPDATE runs SET head = '{\"agent\":' WHERE run_id = ?", (bad.run_id,))
    assert [row["state"] for row in listed(store)] == ["damaged", "ended"]
    with pytest.raises(StorageError, match="is damaged"):
        opened(lab.browse(store), bad.run_id)
    assert "good" in text_of(str(lab.browse(store).to_html()))


def test_values_that_sqlite_does_not_read_as_json(tmp_path: Path) -> None:
    store = lab.Store(tmp_path / "runs.db")
    kept(store, "half \ud83d")
    ended = kept(store, "nan")
    with contextlib.closing(sqlite3.connect(tmp_path / "runs.db")) as database, database:
        database.execute(
            'UPDATE runs SET ended = replace(ended, \'"output":\', \'"output":NaN,"was":\') WHERE run_id = ?', (ended.run_id,)
        )
    newest, oldest = listed(store)
    assert (newest["state"], newest["stop_reason"], newest["steps"]) == ("ended", "completed", 1)
    assert oldest["prompt"] == "half \N{REPLACEMENT CHARACTER}"


# Fast -----------------------------------------------------------------------------------------------------------------------


def many(path: Path, number: int) -> lab.Store:
    """A store of copies of a few runs."""
    few, store = lab.Store(), lab.Store(path)
    for place in range(5):
        kept(
            few,
            f"Find {place}. " + "And say why. " * 20,
            script=[*[looking(None, step) for step in range(place)], say("Found." * 300)],
        )
    runs = few.storage.runs()
    gc.collect()  # a run that is still in memory would give its own state to its copies
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        for place in range(number):
            run = runs[place % 5]
            steps = few.storage.steps(run.head.run_id)
            values = (f"{place:012x}", float(place), run.head.writer, run.head.body, run.end if place % 10 else None)
            at = database.execute(
                "INSERT INTO runs (run_id, begun_at, writer, head, ended) VALUES (?, ?, ?, ?, ?)", values
            ).lastrowid
            rows = [(((at or 0) << 32) + step.step, step.row, step.body) for step in steps]
            database.executemany("INSERT INTO steps (id, row, body) VALUES (?, ?, ?)", rows)
    return store


def test_thousands_of_runs_are_listed_without_reading_their_steps(tmp_path: Path) -> None:
    store = many(tmp_path / "runs.db", 5_000)
    best = min(_seconds(lambda: summaries(store)) for _ in range(3))
    assert best < 1.0, "0.1 s on an idle machine"
    read: list[str] = []
    store.storage._database.set_trace_callback(read.append)  # type: ignore[attr-defined]
    summaries(store)
    bodies = [query for query in read if re.search(r"SELECT [^()]*\b(body|head|ended)\b", query) and "notes" not in query]
    assert bodies == []
    rows = listed(store)
    assert len(rows) == 5_000 and rows[0]["id"] == f"{4_999:012x}"
    assert len(json.dumps(rows[0])) < 800
    assert sum(row["state"] == "interrupted" for row in rows) == 500


def _seconds(work: Callable[[], object]) -> float:
    begun = time.thread_time()
    work()
    return time.thread_time() - begun


# The page -------------------------------------------------------------------------------------------------------------------


def test_opened_runs_are_those_of_the_store_and_nothing_is_written(tmp_path: Path) -> None:
    store = lab.Store(tmp_path / "runs.db")
    one, other = kept(store, "one"), kept(store, "two")
    browser = lab.browse(tmp_path / "runs.db")
    before = (tmp_path / "runs.db").read_bytes()
    data = opened(browser, one.run_id, other.run_id)
    assert [run["id"] for run in data["runs"]] == [one.run_id, other.run_id]
    assert data["open"] == one.run_id
    expected = page_data([store.load(one.run_id)], "")["runs"][0]
    assert data["runs"][0]["steps"] == json.loads(json.dumps(expected["steps"]))
    assert (tmp_path / "runs.db").read_bytes() == before
    with pytest.raises(StorageError, match="no run 'nobody'"):
        opened(browser, "nobody")
    with pytest.raises(ConfigurationError, match="no such command"):
        browser.carry_out({"do": "go", "run": one.run_id})


def test_new_runs_are_listed_when_the_page_asks_again(tmp_path: Path) -> None:
    store = lab.Store(tmp_path / "runs.db")
    kept(store, "one")
    browser = lab.browse(tmp_path / "runs.db")
    assert len(listed(browser)) == 1
    kept(store, "two")
    assert [row["prompt"] for row in listed(browser)] == ["two", "one"]


def test_keys_never_leave(tmp_path: Path) -> None:
    store = lab.Store(tmp_path / "runs.db")
    kept(store, f"My key is {KEY}", name=f"agent {KEY}", script=[say(KEY)])
    browser = lab.browse(store)
    sent = json.dumps(browser.carry_out({"do": "list"})), browser.carry_out({"do": "open", "runs": store.run_ids()})
    for text in (*sent, str(browser.to_html()), *map(str, browser.bundle().values())):
        assert KEY not in text


def test_hostile_texts_are_inert_without_a_kernel(tmp_path: Path) -> None:
    store = lab.Store(tmp_path / "runs.db")
    kept(store, HOSTILE, name=HOSTILE[:300], script=[say(HOSTILE)])
    bundle = lab.browse(store).bundle()
    assert what_acts(bundle["text/html"]) == ["<style>"], "its own"
    page = str(lab.browse(store).to_html())
    assert page.count("<script") == 3, "the listing, one run, the code"


# As a file ------------------------------------------------------------------------------------------------------------------


def held(page: str) -> dict[str, int]:
    listing = re.search(r'id="agentlab-runs">(.*?)</script>', page)
    assert listing is not None
    return dict(json.loads(listing[1])["held"])


def test_the_file_holds_the_newest_runs_up_to_its_limit(tmp_path: Path) -> None:
    store = lab.Store(tmp_path / "runs.db")
    ids = [kept(store, f"run {place}", script=[say("word " * 2_000)]).run_id for place in range(6)]
    browser = lab.browse(tmp_path / "runs.db")
    whole = str(browser.to_html())
    assert set(held(whole)) == set(ids)
    assert "can be opened in this file" not in whole.partition("<script>")[0]
    assert f"{tmp_path}" not in whole, "the folders of this machine"
    one = len(re.search(r'id="agentlab-run-0">(.*?)</script>', whole)[1]) / 1e6  # type: ignore[index]
    some = str(browser.to_html(max_mb=3.5 * one))
    assert set(held(some)) == set(ids[3:])
    assert "3 of 6 runs can be opened in this file, the newest first, up to" in some
    assert held(str(browser.to_html(max_mb=0))) == {}
    assert browser.to_html(tmp_path / "runs.html") == tmp_path / "runs.html"
    assert (tmp_path / "runs.html").read_text(encoding="utf-8") == whole


def test_a_run_that_is_larger_than_the_file_does_not_keep_others_out(tmp_path: Path) -> None:
    store = lab.Store(tmp_path / "runs.db")
    small = kept(store, "small").run_id
    kept(store, "large", script=[say("word " * 20_000)])
    assert list(held(str(lab.browse(store).to_html(max_mb=0.05)))) == [small]


@pytest.mark.parametrize("size", [-1, float("nan"), True, "20"])
def test_a_wrong_size_of_the_file(size: Any) -> None:
    with pytest.raises(ConfigurationError, match="pass a number of megabytes"):
        lab.browse(lab.Store()).to_html(max_mb=size)


# Without a page -------------------------------------------------------------------------------------------------------------


def test_without_a_page_the_newest_fifty_are_a_table(tmp_path: Path) -> None:
    store = many(tmp_path / "runs.db", 60)
    bundle = lab.browse(store).bundle()
    text, html = bundle["text/plain"], bundle["text/html"]
    assert text.startswith("runs.db: 60 runs, the newest 50\n")
    assert len(text.splitlines()) == html.count("<tr>") == 51
    assert f"{59:012x}" in html and f"{9:012x}" not in html
    assert "completed" in text_of(html)


def test_an_empty_store_says_how_to_fill_it() -> None:
    bundle = lab.browse(lab.Store()).bundle()
    assert "store.keep(run)" in bundle["text/html"]
    assert bundle["text/plain"] == "Runs in memory: 0 runs"
    assert listed(lab.Store()) == []


# Input ----------------------------------------------------------------------------------------------------------------------


def test_what_is_not_a_store(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"browse\('no.db'\): there is no such file. lab.Store\('no.db'\) makes one"):
        lab.browse("no.db")
    assert not Path("no.db").exists()
    with pytest.raises(ConfigurationError, match="that is a folder"):
        lab.browse(tmp_path)
    for given in (5, None, "", b"runs.db", ["runs.db"]):
        with pytest.raises(ConfigurationError, match="pass the path of a store"):
            lab.browse(given)  # type: ignore[arg-type]
    (tmp_path / "notes.txt").write_text("not a database, but long enough to be read as one" * 20)
    with pytest.raises(StorageError, match="not a database"):
        lab.browse(tmp_path / "notes.txt")
    with contextlib.closing(sqlite3.connect(tmp_path / "other.db")) as other, other:
        other.execute("CREATE TABLE cakes (name TEXT)")
    with pytest.raises(StorageError, match="a database of another program"):
        lab.browse(tmp_path / "other.db")

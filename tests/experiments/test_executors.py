"""Experiments on other processes: every executor gives the same results; a dead worker loses and duplicates nothing."""

from __future__ import annotations

import asyncio
import concurrent.futures
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from fixtures.scenarios import SCENARIOS

import agentlab as lab
from agentlab import AgentlabWarning, HasToolCall, StepCountIs
from agentlab.errors import ConfigurationError
from agentlab.storage.store import Store
from agentlab.testing import ScriptedProvider, call, say

from .parts import STEPS, KillsItsWorker, Slow, assert_same, look, looking, steps_later, steps_taken, within

FIXTURES = Path(__file__).parents[2] / "fixtures"
two_new = partial(concurrent.futures.ProcessPoolExecutor, 2, mp_context=multiprocessing.get_context("forkserver"))


def go(study: lab.Experiment, **more: Any) -> lab.ExperimentResults:
    return asyncio.run(study.run(**more))


# Pickling --------------------------------------------------------------------------------------------------------------------------


def test_agents_and_tools_can_be_sent_to_workers() -> None:
    @lab.tool(timeout_s=3, inline=True)
    def nested(q: int) -> str:
        """Nested.

        Args:
            q: a number
        """
        return f"nested {q}"

    agent = lab.Agent("openai:gpt-5", tools=[look, nested], instructions="Be brief.", options={"seed": 1}, terminating=["look"])
    copy: lab.Agent = pickle.loads(cloudpickle.dumps(agent))
    assert repr(copy) == repr(agent)
    assert dict(copy.options) == {"seed": 1}
    assert copy.tool_specs == agent.tool_specs
    assert copy.tools["look"] is look  # by its name, as a decorator leaves it
    assert copy.tools["nested"].function(q=3) == "nested 3"
    assert (copy.tools["nested"].timeout_s, copy.tools["nested"].inline) == (3, True)
    plain: lab.Agent = pickle.loads(pickle.dumps(looking()))
    assert plain.tools["look"] is look


def test_an_unpicklable_agent_is_reported() -> None:
    study = lab.Experiment([looking(observers=[threading.Lock().acquire])], ["x"])
    with pytest.raises(ConfigurationError, match=r"cannot be sent to another process: .*lock.*or leave `executor` out"):
        go(study, executor=two_new)


# Executors -------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["file", "memory"])
@pytest.mark.parametrize("kind", ["processes", "threads"])
def test_every_executor_gives_the_same(where: str, kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    scenario = next(one for one in SCENARIOS if one.name == "trip")
    agents = {name: scenario.agent(name) for name in ("openai", "anthropic")}
    settings = {"end": {"stop": HasToolCall("finalize") | StepCountIs(8)}, "own": {"stop": lambda history: len(history) >= 2}}

    def study(store: Any = None) -> lab.Experiment:
        return lab.Experiment(agents, [scenario.prompt], settings, repeats=3, score=steps_later, store=store)

    with lab.replay(FIXTURES / "trip"):
        here = go(study())
        threads = concurrent.futures.ThreadPoolExecutor(3)
        executor = request.getfixturevalue("two_processes") if kind == "processes" else threads
        with threads:
            store = Store(tmp_path / "r.db" if where == "file" else None)
            there = study(store)
            assert_same(go(there, executor=executor, concurrency=4), here)
            assert_same(go(there, executor=executor), here)
    assert len(there.store.run_ids()) == 12
    assert (there.dry_run().to_do, set(here.runs["state"])) == (0, {"ended"})


def killing(tmp_path: Path, times: int = 1) -> lab.Agent:
    return lab.Agent(KillsItsWorker(tmp_path / "killed", "p2/default/1", times), tools=[look], name="a")


@pytest.mark.parametrize("where", ["file", "memory"])
def test_a_broken_pool_is_replaced_and_nothing_is_lost(where: str, tmp_path: Path) -> None:
    store = Store(tmp_path / "r.db" if where == "file" else None)
    study = lab.Experiment([killing(tmp_path)], ["x", "y", "z"], store=store, repeats=2)
    results = go(study, executor=two_new, concurrency=3)
    assert (tmp_path / "killed").read_text() == "x"
    assert results.runs[["state", "steps", "stop_reason"]].to_numpy().tolist() == [["ended", STEPS, "completed"]] * 6
    assert len(study.store.run_ids()) == 6
    if where == "file":
        started = study.store.frame("events").query("event == 'RunStarted'")["run_id"].value_counts()
        assert started["experiment#a/p2/default/1"] == 2  # resumed after its second step
        assert results.steps.groupby("run_id")["step"].apply(list).to_list() == [[1, 2, 3, 4]] * 6


def test_a_pool_passed_as_an_object_cannot_be_replaced(tmp_path: Path) -> None:
    study = lab.Experiment([killing(tmp_path)], ["x", "y"], store=tmp_path / "r.db")
    spawned = concurrent.futures.ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn"))
    with pytest.warns(AgentlabWarning, match=r"takes no more work.*executor=lambda: ProcessPoolExecutor.*Try again with run\(\)"):
        runs = go(study, executor=spawned, concurrency=1).runs
    assert "takes no more work" in runs["problem"][1]
    within(lambda: "open" not in study.results().runs["state"].to_list())  # the killed process may still be ending
    assert study.results().runs["state"].to_list()[1] == "interrupted"
    assert set(go(study).runs["state"]) == {"ended"}


def test_a_cell_that_always_kills_its_worker_fails_alone(tmp_path: Path) -> None:
    study = lab.Experiment([killing(tmp_path, times=99)], ["x", "y", "z"], store=tmp_path / "r.db")
    with pytest.warns(
        AgentlabWarning,
        match=r"1 of 3 runs failed.*its worker died 3 times.*with run\(\); until then it is left out of the rates\.",
    ):
        go(study, executor=two_new, concurrency=3)
    within(lambda: "open" not in study.results().runs["state"].to_list())  # the killed process may still be ending
    runs = study.results().runs
    assert runs["state"].to_list() == ["ended", "interrupted", "ended"]
    assert runs["steps"].to_list() == [STEPS, 2, STEPS]


def test_each_run_of_a_worker_has_its_share_of_the_rate(tmp_path: Path) -> None:
    log = tmp_path / "log"
    agent = lab.Agent(Slow(0.0, log), tools=[look], name="a")
    import time

    study = lab.Experiment([agent], ["x", "y"], rate_limits={"slow": 1200}, store=tmp_path / "r.db")
    with concurrent.futures.ThreadPoolExecutor(2) as executor:
        begun = time.monotonic()
        go(study, executor=executor, concurrency=2)
    assert time.monotonic() - begun > 0.05 * (2 * STEPS - 2)
    assert len(log.read_text().splitlines()) == 2 * STEPS


def test_a_full_disk_in_a_worker_sends_the_run_back(tmp_path: Path) -> None:
    """The worker's runs are passed to this process, which stores them when there is space."""
    from agentlab.experiments import runner

    store = Store(tmp_path / "r.db")
    common = runner.Common({"a": looking()}, lab.Tasks(["x"]), {"default": {}}, lab.transport.current(), store, steps_taken)
    database = store.storage._database  # type: ignore[attr-defined]
    (pages,) = database.execute("PRAGMA page_count").fetchone()
    database.execute(f"PRAGMA max_page_count = {pages}")
    job = runner.Job("experiment#a/p1/default/1", "a/p1/default/1", "a", "default", "p1")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        outcome = asyncio.run(runner._in_worker(common, job, None))
    assert outcome.run_copy is not None
    assert "full" in outcome.problem
    assert store.unsaved == {}
    database.execute("PRAGMA max_page_count = 1000000")
    for _ in range(2):
        runner.import_run(store, outcome.run_copy)
    study = lab.Experiment([looking()], ["x"], store=store, score=steps_taken)
    assert go(study).runs[["state", "score"]].to_numpy().tolist() == [["ended", 4.0]]


@pytest.mark.parametrize("where", ["file", "memory"])
def test_runs_of_sub_agents_are_stored_from_any_process(where: str, tmp_path: Path) -> None:
    inner = looking("worker").as_tool("research")
    agent = lab.Agent(ScriptedProvider([call("research", {"task": "x"}), say("end")]), tools=[inner], name="a")
    study = lab.Experiment([agent], ["x", "y"], store=Store(tmp_path / "r.db" if where == "file" else None))
    with concurrent.futures.ThreadPoolExecutor(2) as executor:
        assert set(go(study, executor=executor).runs["state"]) == {"ended"}
    runs = study.store.frame("runs")
    assert (len(runs), set(runs["state"])) == (4, {"ended"})
    assert set(runs["parent_run_id"].dropna()) == set(study.results().runs["run_id"])


FORKED = """
import asyncio, concurrent.futures, multiprocessing
import agentlab as lab
from experiments.parts import looking

looking().run("x").start().wait()
pool = lambda: concurrent.futures.ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork"))
print(*asyncio.run(lab.Experiment([looking()], ["x", "y"]).run(executor=pool)).runs["state"])
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_pool_works_after_the_background_thread_has_started() -> None:
    """A fork has the event loop of that thread, but not the thread."""
    program = subprocess.Popen(
        [sys.executable, "-c", FORKED], stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )
    try:
        out, err = program.communicate(timeout=100)
    finally:
        if program.returncode is None:
            os.killpg(program.pid, signal.SIGKILL)
    assert out.split() == [b"ended", b"ended"], err.decode()


def test_a_client_is_distinguished_from_its_executor() -> None:
    class Client:
        def get_executor(self) -> None: ...

    with pytest.raises(ConfigurationError, match=r"pass client\.get_executor\(pure=False\)"):
        go(lab.Experiment([looking()], ["x"]), executor=Client())
    with pytest.warns(AgentlabWarning, match="it must return a concurrent"):
        go(lab.Experiment([looking()], ["x"]), executor=lambda: 3)

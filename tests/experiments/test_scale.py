"""Tasks x agents x repeats over a recording: the same frames at any concurrency, on a cluster that loses a worker, after a kill.
The other test of such a cluster is here too, since a cluster takes long to start."""

from __future__ import annotations

import asyncio
import functools
import json
import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import agentlab as lab
from agentlab.storage.store import Store

from .parts import Slow, assert_same, steps_taken, within
from .parts import look as look_up


class Squares(BaseHTTPRequestHandler):
    """A model that looks a square up, then answers; its third version answers some tasks wrong."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Answer a chat completion."""
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        number = int(next(one["content"] for one in asked["messages"] if one["role"] == "user").split()[-1])
        message: dict[str, Any] = {
            "role": "assistant",
            "content": f"It is {number**2 + (asked['model'] == 'm3' and number % 7 == 0)}.",
        }
        if asked["messages"][-1]["role"] == "user":
            function = {"name": "look", "arguments": json.dumps({"number": number})}
            message = {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "c1", "type": "function", "function": function}],
            }
        reason = "tool_calls" if "tool_calls" in message else "stop"
        usage = {"prompt_tokens": 10 + number, "completion_tokens": 5, "total_tokens": 15 + number}
        choices = [{"index": 0, "message": message, "finish_reason": reason}]
        answer = {"id": "x", "object": "chat.completion", "model": asked["model"], "choices": choices, "usage": usage}
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


def look(number: int) -> int:
    """Look a square up."""
    return number**2


def study(count: int, port: int, store: Path, repeats: int = 3) -> lab.Experiment:
    address = f"http://127.0.0.1:{port}/v1"
    models = [lab.Provider("compatible", model=name, base_url=address, api_key="k") for name in ("m1", "m2", "m3")]
    agents = {one.model: lab.Agent(one, tools=[look]) for one in models}
    tasks = [{"id": f"t{n}", "prompt": f"The square of {n}", "target": n**2} for n in range(count)]
    score = [lab.scorers.Numeric(), lab.scorers.ToolUse(["look"])]
    return lab.Experiment(agents, tasks, repeats=repeats, score=score, store=store)


def go(recording: Path, experiment: lab.Experiment, **more: Any) -> lab.ExperimentResults:
    with lab.replay(recording):
        return asyncio.run(experiment.run(progress=False, **more))


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Return a function that gives the port and the recording for so many tasks."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Squares)
    threading.Thread(target=server.serve_forever, daemon=True).start()

    @functools.cache
    def record(count: int) -> tuple[int, Path]:
        folder = tmp_path_factory.mktemp("recording")
        with lab.record(folder / "recording"):
            asyncio.run(study(count, server.server_port, folder / "once.db", repeats=1).run(concurrency=8, progress=False))
        return server.server_port, folder / "recording"

    yield record
    server.shutdown()
    server.server_close()


COUNTS = [10, pytest.param(300, marks=pytest.mark.soak)]


@pytest.fixture(params=COUNTS, scope="module")
def whole(request: pytest.FixtureRequest, recorded: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[int, int, Path, Any]:
    """The number of tasks, the port, the recording, and the results of one run after the other."""
    port, recording = recorded(request.param)
    path = tmp_path_factory.mktemp("whole") / "1.db"
    return request.param, port, recording, go(recording, study(request.param, port, path), concurrency=1)


@pytest.mark.timeout(3600)
def test_the_frames_are_the_same_at_any_concurrency(whole: Any, tmp_path: Path) -> None:
    count, port, recording, results = whole
    assert results.states == {"ended": 9 * count}
    right = results.runs.groupby("agent")["score"].sum().to_dict()
    assert right == {"m1": 3 * count, "m2": 3 * count, "m3": 3 * (count - len(range(0, count, 7)))}
    for concurrency in (16, 64):
        assert_same(go(recording, study(count, port, tmp_path / f"{concurrency}.db"), concurrency=concurrency), results)


@pytest.mark.timeout(3600)
def test_the_frames_are_the_same_after_a_kill_in_the_middle(whole: Any, tmp_path: Path) -> None:
    count, port, recording, results = whole
    path = tmp_path / "killed.db"
    process = os.fork()
    if not process:
        try:
            go(recording, study(count, port, path), concurrency=4)
        finally:
            os._exit(0)
    within(lambda: ended_in(path) >= 3 * count, limit_s=1800, every_s=0.002 * count)  # often enough to be in the middle
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    assert 3 * count <= ended_in(path) < 9 * count
    assert_same(go(recording, study(count, port, path), concurrency=16), results)


WORKERS = 3


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The client of a cluster of worker processes. Each test kills one; the cluster starts another in its place. They are forked from
    a server that has imported what takes them long, as Dask's own setting makes it."""
    import dask
    import distributed

    local = {"processes": True, "dashboard_address": None, "host": "127.0.0.1"}
    folder = str(tmp_path_factory.mktemp("cluster"))
    with (
        dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"}),
        distributed.LocalCluster(n_workers=WORKERS, threads_per_worker=1, local_directory=folder, **local) as made,
        distributed.Client(made) as client,
    ):
        yield client


def pids_of(cluster: Any) -> list[int]:
    cluster.wait_for_workers(WORKERS)
    pids = list(cluster.run(os.getpid).values())
    assert len(set(pids)) == WORKERS
    assert os.getpid() not in pids
    return pids


@pytest.mark.filterwarnings("ignore")
@pytest.mark.timeout(3600)
def test_the_frames_are_the_same_on_a_cluster_that_loses_a_worker(whole: Any, cluster: Any, tmp_path: Path) -> None:
    count, port, recording, results = whole
    path, killed = tmp_path / "cluster.db", list[int]()

    def kill_one(pids: list[int]) -> None:
        within(lambda: ended_in(path) >= 2 * count, limit_s=1800, every_s=0.2)
        os.kill(pids[0], signal.SIGKILL)
        killed.append(ended_in(path))

    killer = threading.Thread(target=kill_one, args=(pids_of(cluster),))
    killer.start()
    there = go(recording, study(count, port, path), concurrency=8, executor=cluster.get_executor(pure=False))
    killer.join()
    assert killed[0] < 9 * count
    assert_same(there, results)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.timeout(180)
def test_a_cluster_that_loses_a_worker_half_way_repeats_at_most_one_step(cluster: Any, tmp_path: Path) -> None:
    """Several worker processes, one of them killed: nothing is lost or duplicated."""
    log = tmp_path / "log"
    agent = lab.Agent(Slow(0.05, log), tools=[look_up], name="a")
    experiment = lab.Experiment([agent], ["x", "y"], repeats=10, score=steps_taken, store=tmp_path / "runs.db")
    killed: list[int] = []

    def kill_one(pids: list[int]) -> None:
        """The worker that is in the middle of a run."""
        # the processes import everything first
        within(lambda: log.exists() and len(log.read_text().splitlines()) >= 20, limit_s=90.0)
        pid, *_ = log.read_text().splitlines()[-1].split()
        assert int(pid) in pids
        killed.append(int(pid))
        os.kill(int(pid), signal.SIGKILL)

    killer = threading.Thread(target=kill_one, args=(pids_of(cluster),))
    killer.start()
    results = asyncio.run(experiment.run(executor=cluster.get_executor(pure=False), concurrency=8))
    killer.join()
    assert len(killed) == 1
    again = asyncio.run(experiment.run(executor=cluster.get_executor(pure=False)))

    asked = [line.split() for line in log.read_text().splitlines()]
    assert len({pid for pid, *_ in asked}) >= WORKERS
    repeated = [cell for cell, times in Counter((label, step) for _, label, step in asked).items() if times > 1]
    assert len(repeated) <= 1  # the current step of the worker that died
    alone = lab.Experiment([lab.Agent(Slow(0), tools=[look_up], name="a")], ["x", "y"], repeats=10, score=steps_taken)
    expected = asyncio.run(alone.run())
    assert_same(results, expected)
    assert_same(again, expected)
    assert len(experiment.store.run_ids()) == 20


def ended_in(path: Path) -> int:
    """The number of ended runs in a store that another process writes."""
    if not path.exists():
        return 0
    with Store(path) as store:
        return sum(run.end is not None for run in store.storage.runs())

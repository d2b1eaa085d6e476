"""A real kernel in which agentlab can start no thread, as in a browser: the page's clicks are carried out between two steps."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .conftest import started
from .front_end import FrontEnd
from .kernel import LiveKernel
from .test_live_run import shown

NO_THREADS = """
import threading
start = threading.Thread.start

def refuse(thread):
    if type(thread).__module__ != "zmq.utils.garbage":  # without it pyzmq, which no browser has, sends broken messages
        raise RuntimeError("can't start new thread")
    start(thread)

threading.Thread.start = refuse
"""

RUN_OF_SYNC_TOOLS = """
import time
import agentlab as lab
from agentlab.testing import ScriptedProvider, call

def search(query: str) -> str:
    "Search the archive."
    time.sleep(0.02)
    return "nothing"

model = ScriptedProvider(lambda request, index: call("search", {"query": str(index)}, cost=0.001))
run = lab.Agent(model, tools=[search]).run("Find it.", budget=lab.Budget(max_turns=20_000))
"""


@pytest.fixture(scope="module")
def kernel(kernel_python: str) -> Iterator[LiveKernel]:
    """One kernel, without threads from the beginning."""
    with started(kernel_python) as live:
        live.execute(NO_THREADS)
        yield live


def test_buttons_and_edits_reach_a_run_on_the_kernels_own_loop(kernel: LiveKernel) -> None:
    front_end = FrontEnd(kernel, "main")
    kernel.execute(RUN_OF_SYNC_TOOLS)
    kernel.execute("run.panel()")
    run_id = shown(kernel, front_end)
    front_end.ask(run_id, "go")
    kernel.wait(lambda: kernel.value("len(run.history)") >= 2, what="two steps")
    front_end.ask(run_id, "limit", name="max_turns", value=10_000)
    kernel.wait(lambda: kernel.value("run.history[-1].settings.budget.max_turns") == 10_000, what="a step under the new limit")
    front_end.ask(run_id, "pause")
    kernel.wait(lambda: kernel.value("str(run.state)") == "paused", what="the pause")
    kernel.wait(lambda: front_end.shown(run_id, "buttons")["go"]["label"] == "Resume", what="the Resume button")
    front_end.ask(run_id, "go")
    kernel.wait(lambda: kernel.value("str(run.state)") == "running", what="the run to continue")
    front_end.ask(run_id, "stop")
    kernel.wait(lambda: kernel.value("run.result is not None"), what="the end")
    assert kernel.value("str(run.result.stop_reason)") == "explicit_stop"
    assert kernel.value("all(step.tool_results[0].content == 'nothing' for step in run.history[:-1])")


def test_a_started_run_continues_after_its_cell(kernel: LiveKernel) -> None:
    kernel.execute(RUN_OF_SYNC_TOOLS)
    started = kernel.execute("run.limits.max_turns = 5\nrun.start()\nprint(len(run.history))")
    assert started.printed == "0\n"
    kernel.wait(lambda: kernel.value("run.result is not None"), what="the end")
    assert kernel.value("len(run.history)") == 5

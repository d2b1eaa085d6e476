"""A long run of slow steps in a real kernel, and a page that changes its limits during the run."""

from __future__ import annotations

import pytest

from .front_end import FrontEnd
from .kernel import LiveKernel

SLOW_RUN = """
import asyncio, os
import agentlab as lab
from agentlab.testing import ScriptedProvider, call

async def search(query: str) -> str:
    "Search the archive."
    await asyncio.sleep(0.05)
    return "nothing"

model = ScriptedProvider(lambda request, index: call("search", {"query": str(index)}, cost=0.001))
run = lab.Agent(model, tools=[search]).run("Find it.", stop=lab.StepCountIs(2000), budget=lab.Budget(max_turns=2000))
"""

IN_THE_MIDDLE_OF_A_STEP = SLOW_RUN.replace(
    "await asyncio.sleep(0.05)",
    "await asyncio.sleep(0.05)\n    while len(run.history) == 5 and run.limits.max_turns == 2000:\n        await asyncio.sleep(0.01)",
)
"""The sixth step lasts until the limit is changed."""

TELL_OF_STEPS = """
def tell(event):
    if type(event).__name__ == "StepCompleted":
        print("a step under", event.step.settings.stop.steps, flush=True)

run.observe(tell)
"""

SEEN = "sorted({step.settings.stop.steps for step in run.history})"
"""The limits of `StepCountIs` in force at each step."""


@pytest.fixture
def kernel(tidied_kernel: LiveKernel) -> LiveKernel:
    """A kernel without names, widgets or runs, in an empty folder."""
    return tidied_kernel


def shown(kernel: LiveKernel, front_end: FrontEnd) -> str:
    """Open the page of the panel; returns the id of its run."""
    run_id = str(kernel.value("run.id"))
    front_end.ask(run_id, "hello", page="page")
    kernel.wait(lambda: front_end.shown(run_id, "state") is not None, what="the page")
    return run_id


def test_a_limit_lowered_in_the_page_ends_the_run_at_the_next_step(kernel: LiveKernel, front_end: FrontEnd) -> None:
    kernel.execute(IN_THE_MIDDLE_OF_A_STEP)
    kernel.execute("run.panel()")
    started = kernel.execute("run.start()\nprint('the cell has returned, and the run', run.result)")
    assert started.printed == "the cell has returned, and the run None\n"
    in_its_tool = "[type(event).__name__ for event in run.events][-1:] == ['ToolStarted'] and len(run.history)"
    kernel.wait(lambda: kernel.value(in_its_tool) == 5, what="the sixth")

    front_end.ask(shown(kernel, front_end), "limit", name="max_turns", value=3)  # fewer than it has taken

    kernel.wait(lambda: kernel.value("run.result is not None"), what="the run to end")
    assert kernel.value("str(run.result.stop_reason)") == "turn_limit"
    happened = kernel.value("[type(e).__name__ for e in run.events]")
    assert "StepStarted" not in happened[happened.index("LimitsChanged") :], "the run continued after the limit was lowered"
    assert kernel.value("[e.by for e in run.events if type(e).__name__ == 'LimitsChanged']") == ["panel"]
    assert kernel.value("len(run.history)") == 6
    assert kernel.value("run.history[-1].settings.budget.max_turns") == 3


def test_six_changes_of_a_leaf_all_reach_the_loop(kernel: LiveKernel, front_end: FrontEnd) -> None:
    kernel.execute(SLOW_RUN)
    kernel.execute("panel = run.panel(); panel")
    run_id = shown(kernel, front_end)
    kernel.execute("run.start(); None")
    for limit in (1900, 1800, 1700, 1600, 1500, 1400):
        front_end.ask(run_id, "limit", name="StepCountIs", value=limit)
        kernel.wait(lambda limit=limit: limit in kernel.value(SEEN), what=f"a step under {limit}")  # type: ignore[misc]
    kernel.execute("run.stop()\nresult = run.wait(50)")
    seen = kernel.value(SEEN)
    assert seen == [1400, 1500, 1600, 1700, 1800, 1900, 2000] or seen == [1400, 1500, 1600, 1700, 1800, 1900]


def test_buttons_run_pause_resume_and_stop(kernel: LiveKernel, front_end: FrontEnd) -> None:
    kernel.execute(SLOW_RUN)
    kernel.execute("run.panel()")
    run_id = shown(kernel, front_end)
    front_end.ask(run_id, "go")
    kernel.wait(lambda: kernel.value("len(run.history)") >= 2, what="two steps")
    front_end.ask(run_id, "pause")
    kernel.wait(lambda: kernel.value("str(run.state)") == "paused", what="the pause")
    kernel.wait(lambda: front_end.shown(run_id, "buttons")["go"]["label"] == "Resume", what="the Resume button")
    front_end.ask(run_id, "go")
    kernel.wait(lambda: kernel.value("str(run.state)") == "running", what="the run to go on")
    front_end.ask(run_id, "stop")
    kernel.wait(lambda: kernel.value("run.result is not None"), what="the end")
    assert kernel.value("str(run.result.stop_reason)") == "explicit_stop"


def test_the_display_is_updated_when_the_run_has_ended(kernel: LiveKernel, front_end: FrontEnd) -> None:
    updates = []
    kernel.listeners.append(lambda message: updates.append(message) if message["msg_type"] == "update_display_data" else None)
    kernel.execute(SLOW_RUN)
    shown = kernel.execute("run.panel()")
    live, kept = shown.displayed
    assert "not started yet" in kept["text/html"] and "application/vnd.jupyter.widget-view+json" in live
    kernel.execute("run.limits.max_turns = 2; run.start(); None")
    kernel.wait(lambda: bool(updates), what="the display to be updated")
    data = updates[0]["content"]["data"]
    assert "turn limit" in data["text/html"] and "turn_limit" in data["text/plain"] and data["image/png"]


def test_without_a_front_end_start_returns_after_the_run_and_the_panel_is_static(kernel: LiveKernel) -> None:
    kernel.execute(SLOW_RUN + "\nos.environ['AGENTLAB_FRONTEND'] = 'none'\nrun.limits.max_turns = 3")
    done = kernel.execute("run.start()\nprint(len(run.history), run.result.stop_reason)")
    assert done.printed == "3 turn_limit\n"
    shown, *pictures = kernel.execute("run.panel()").displayed
    assert set(shown) == {"text/plain", "text/html"}
    assert pictures and all(set(picture) == {"image/png"} for picture in pictures)


def test_the_stop_button_reaches_a_background_run(kernel: LiveKernel) -> None:
    kernel.execute(SLOW_RUN)
    kernel.execute("import signal; idle = signal.getsignal(signal.SIGINT); run.start(); None")
    kernel.wait(lambda: kernel.value("len(run.history)") >= 3, what="three steps")
    kernel.wait_for(0.5)
    kernel.interrupt()
    kernel.wait(lambda: kernel.value("run.result is not None"), what="the run to be cancelled")
    assert kernel.value("str(run.result.stop_reason)") == "cancelled"
    assert kernel.value("len(run.history)") >= 3
    assert kernel.execute("print('alive')").printed == "alive\n"


def test_the_stop_button_reaches_a_background_run_after_a_cell_that_awaited_something_else(kernel: LiveKernel) -> None:
    kernel.execute(SLOW_RUN + "\nimport asyncio\nrun.start()\nawait asyncio.sleep(0.5)\nrun.cancel()")
    kernel.wait(lambda: kernel.value("run.result is not None"), what="the first run to end")
    kernel.execute(SLOW_RUN + "\nrun.start()\nawait asyncio.sleep(0.5)")
    kernel.wait_for(0.5)
    kernel.interrupt()
    kernel.wait(lambda: kernel.value("run.result is not None"), what="the second run to be cancelled")
    assert kernel.value("str(run.result.stop_reason)") == "cancelled"


def test_the_stop_button_ends_an_awaiting_cell_and_every_step_is_kept(kernel: LiveKernel) -> None:
    kernel.execute(SLOW_RUN + TELL_OF_STEPS)
    waiting = kernel.submit("result = await run")
    kernel.wait(lambda: waiting.printed.count("a step under") >= 3, what="three steps")
    kernel.interrupt()
    kernel.wait(lambda: waiting.done, what="the cell to end")
    assert waiting.error is not None
    assert kernel.value("str(run.result.stop_reason)") == "cancelled"
    steps = kernel.value("len(run.history)")
    assert steps >= 3
    assert kernel.value("len(run.result.to_frame())") == steps


def test_an_interrupt_of_a_cell_does_not_end_a_background_run(kernel: LiveKernel) -> None:
    kernel.execute(SLOW_RUN)
    kernel.execute("run.start(); None")
    kernel.wait_for(0.5)
    sleeping = kernel.submit("import time; print('asleep', flush=True); time.sleep(3600)")
    kernel.wait(lambda: sleeping.printed == "asleep\n", what="the cell to sleep")
    kernel.wait_for(0.1)
    kernel.interrupt()
    kernel.wait(lambda: sleeping.done, what="the cell to end")
    assert kernel.value("run.result is None")
    kernel.execute("run.stop(); None")


def test_six_changes_reach_an_awaited_run(kernel: LiveKernel, front_end: FrontEnd) -> None:
    kernel.execute(SLOW_RUN + TELL_OF_STEPS)
    kernel.execute("run.panel()")
    run_id = shown(kernel, front_end)
    waiting = kernel.submit("result = await run")
    kernel.wait(lambda: waiting.busy, what="the cell to begin")
    for limit in (1900, 1800, 1700, 1600, 1500, 1400):
        front_end.ask(run_id, "limit", name="StepCountIs", value=limit)
        kernel.wait(lambda limit=limit: f"a step under {limit}\n" in waiting.printed, what=f"a step under {limit}")  # type: ignore[misc]
    front_end.ask(run_id, "stop")
    kernel.wait(lambda: waiting.done, what="the cell to end")
    seen = kernel.value("sorted({step.settings.stop.steps for step in result.history})")
    assert set(seen) >= {1400, 1500, 1600, 1700, 1800, 1900}
    assert kernel.value("str(result.stop_reason)") == "explicit_stop"


def test_the_panel_is_live_while_another_cell_awaits(kernel: LiveKernel, front_end: FrontEnd) -> None:
    kernel.execute(SLOW_RUN)
    kernel.execute("run.panel()")
    run_id = shown(kernel, front_end)
    kernel.execute("run.start(); None")
    other = kernel.submit("import asyncio; await asyncio.sleep(1.5)")
    kernel.wait(lambda: other.busy, what="the other cell to begin")
    for limit in (1900, 1800, 1700):
        front_end.ask(run_id, "limit", name="StepCountIs", value=limit)
        kernel.wait_for(0.2)
    kernel.wait(lambda: other.done, what="the other cell to end")
    front_end.ask(run_id, "limit", name="StepCountIs", value=1230)
    kernel.wait(lambda: kernel.value("run.limits.stop.steps") == 1230, what="the change after it")
    kernel.execute("run.stop(); None")


def test_the_stop_button_quickly_ends_a_wait_for_a_slow_provider(kernel: LiveKernel) -> None:
    kernel.execute(SLOW_RUN.replace("await asyncio.sleep(0.05)", "print('asleep', flush=True); await asyncio.sleep(3600)"))
    waiting = kernel.submit("result = await run")
    kernel.wait(lambda: waiting.printed == "asleep\n", what="the tool to begin")
    kernel.wait_for(0.1)
    kernel.interrupt()
    kernel.wait(lambda: waiting.done, what="the cell to end")
    assert kernel.value("str(run.result.stop_reason)") == "cancelled"
    assert kernel.value("len(run.history)") == 1


def test_the_front_end_is_detected_from_the_request(kernel: LiveKernel) -> None:
    ask = "from agentlab._internal.kernel import has_page; print(has_page())"
    kernel.execute("import os; os.environ.pop('AGENTLAB_FRONTEND', None); None")
    for allow_stdin, answer in ((True, "True"), (False, "False")):
        request = kernel.submit(ask, allow_stdin=allow_stdin)
        kernel.wait(lambda request=request: request.done, what="the answer")  # type: ignore[misc]
        assert request.printed == f"{answer}\n"


EXPERIMENT = """
import asyncio
import agentlab as lab
from agentlab.testing import ScriptedProvider, call, say

async def search(query: str) -> str:
    "Search the archive."
    await asyncio.sleep(0.05)
    if held and len(asks) >= 40:
        print("held", flush=True)
    while held and len(asks) >= 40:
        await asyncio.sleep(0.05)
    return "nothing"

def answer(request, index):
    asked = len(request.messages) // 2 + 1
    asks.append(asked)
    return say("found") if asked == 5 else call("search", {"query": str(asked)}, cost=0.001)

asks, held = [], [True]
agent = lab.Agent(ScriptedProvider(answer), tools=[search], name="a")
study = lab.Experiment([agent], ["x", "y"], repeats=10, score=lambda result: result.terminated, store="runs.db")
"""


def test_the_stop_button_ends_an_experiment_and_its_cell_resumes_it(kernel: LiveKernel) -> None:
    kernel.execute(EXPERIMENT)
    begun = kernel.submit("results = await study.run(concurrency=4)")
    kernel.wait(lambda: "held" in begun.printed, what="a run in the middle of a step")
    kernel.interrupt()
    kernel.wait(lambda: begun.done, what="the cell to end")
    assert begun.error is not None
    states = kernel.value("study.results().runs['state'].value_counts().to_dict()")
    assert states.get("interrupted", 0) >= 1 and states.get("not_started", 0) >= 1 and "open" not in states
    kept = kernel.value("len(study.results().steps)")
    assert kept >= 4
    kernel.execute("held.clear(); asked_before = len(asks); results = await study.run(concurrency=4)")
    assert kernel.value("results.runs[['state', 'steps', 'score']].drop_duplicates().to_numpy().tolist()") == [["ended", 5, True]]
    assert kernel.value("len(asks) - asked_before") == 100 - kept
    kernel.execute("del asks[:]; results = await study.run()")
    assert kernel.value("len(asks)") == 0


CUT_RUN = """
import asyncio
import agentlab as lab
from agentlab.testing import ScriptedProvider, say
from agentlab.model.finish_reasons import FinishReason
from agentlab.model.messages import ToolCall

did = []

@lab.tool(on_cancel="wait")
async def book() -> str:
    "Something that must not be half done."
    did.append("book began")
    print(did, flush=True)
    await asyncio.sleep(0.3)
    did.append("book ended")
    return "booked"

@lab.tool
async def search() -> str:
    "Search the archive, and clean up."
    did.append("search began")
    print(did, flush=True)
    try:
        await asyncio.sleep(0.3)
        did.append("search ended")
    finally:
        await asyncio.sleep(0)
        did.append("search cleaned")
    return "nothing"

async def weigh(history):
    did.append("weighing")
    print(did, flush=True)
    await asyncio.sleep(0.3)
    return False

both = say(finish=FinishReason.TOOL_CALLS, calls=[ToolCall("a", "book", "{}"), ToolCall("b", "search", "{}")])
store = lab.Store("runs.db")
agent = lab.Agent(ScriptedProvider(lambda request, index: both), tools=[book, search], observers=[store])
run = agent.run("go", stop=lab.Custom(weigh))
panel = run.panel()
shown = []
panel.widget.tell = shown.append

def as_values(history):
    return [(one.index, [(r.name, r.error, r.content) for r in one.tool_results], str(one.usage)) for one in history]

def agreement():
    kept = store.load(run.id)
    panel.carry_out({"do": "hello", "page": "page"})
    began, ended = (sum(one.endswith(word) for one in did) for word in ("began", "ended"))
    results = [r for one in run.history for r in one.tool_results]
    return {
        "history": as_values(kept.history) == as_values(run.history) and kept.result.stop_reason == run.result.stop_reason,
        "panel": shown[-1]["runs"][run.id]["end"]["stop_reason"] == str(run.result.stop_reason),
        "tools": began == sum(r.error != "not_executed" for r in results) and ended == sum(r.error is None for r in results),
        "booked": did.count("book began") == did.count("book ended"),
        "cleaned": did.count("search began") == did.count("search cleaned"),
        "events": [type(e).__name__ for e in run.events][-2:] == ["StepCompleted", "RunEnded"],
        "tasks": len([t for t in asyncio.all_tasks(run.stepper.affinity._loop) if "agentlab" in repr(t.get_coro())]) == 0,
    }
"""
MOMENTS = {
    "while a tool is waited for": "book began",
    "while a tool is cancelled": "search began",
    "while a condition waits": "weighing",
}


@pytest.mark.parametrize("awaiting", [True, False], ids=["awaiting-cell", "in-the-background"])
@pytest.mark.parametrize("moment", MOMENTS)
def test_after_the_stop_button_all_parts_agree(kernel: LiveKernel, moment: str, awaiting: bool) -> None:
    kernel.execute("import os; os.environ['AGENTLAB_FRONTEND'] = 'widgets'" + CUT_RUN)
    if awaiting:
        waiting = kernel.submit("result = await run")
        kernel.wait(lambda: MOMENTS[moment] in waiting.printed, what=moment)
    else:
        kernel.execute("run.start(); None")
        kernel.wait(lambda: MOMENTS[moment] in kernel.value("did"), what=moment)
    kernel.interrupt()
    if awaiting:
        kernel.wait(lambda: waiting.done, what="the cell to end")
        assert waiting.error is not None
    kernel.wait(lambda: kernel.value("run.result is not None"), what="the run to end")
    kernel.wait_for(0.1)
    assert kernel.value("str(run.result.stop_reason)") == "cancelled"
    assert set(kernel.value("agreement()").items()) == {
        (part, True) for part in ("history", "panel", "tools", "booked", "cleaned", "events", "tasks")
    }, kernel.value("[did, as_values(run.history), agreement()]")
    assert "never" not in kernel.log()

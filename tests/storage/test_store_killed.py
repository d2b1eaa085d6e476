"""kill -9 at random moments: no finished step is lost, the file is intact, and the run continues to the same end."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import random
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import agentlab as lab
from agentlab.engine.worker import RunState
from agentlab.errors import ConfigurationError, ProviderConnectionError
from agentlab.model.finish_reasons import StopReason
from agentlab.model.messages import ModelRequest
from agentlab.records.events import Event, StepCompleted
from agentlab.storage.store import Store
from agentlab.testing import Said, ScriptedProvider, call, say

from .comparisons import spoken

KILLS, STEPS = 100, 12


@lab.tool(inline=True)
def look(q: str) -> str:
    """Look something up."""
    return f"saw {q} " * 50


def script(request: ModelRequest, index: int) -> Said:
    asked = len(request.messages) // 2 + 1
    return say("end") if asked == STEPS else call("look", {"q": str(asked)}, id=f"c{asked}", cost="0.01")


class Log:
    """Records each finished step durably and then reports it: it observes after the store. After step `last`
    it blocks, so that the kill may come at any later time."""

    def __init__(self, path: Path, report_fd: int, last: int) -> None:
        self.file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        self.report_fd, self.last = report_fd, last

    def __call__(self, event: Event) -> None:
        if isinstance(event, StepCompleted):
            os.write(self.file, f"{event.step.index}\n".encode())
            os.fsync(self.file)
            os.write(self.report_fd, b".")
            while event.step.index == self.last:
                signal.pause()


def agent(*observers: Any) -> lab.Agent:
    return lab.Agent(ScriptedProvider(script), tools=[look], observers=observers)


async def taken(run: lab.Run) -> lab.RunResult:
    return await run


def begun(path: Path, log: Path, last: int) -> tuple[int, int]:
    """A run in a separate process: its id, and the place where it reports its start and each finished step."""
    read, write = os.pipe()
    process = os.fork()
    if process:
        os.close(write)
        return process, read
    try:
        with Store(path) as store:
            os.write(write, b".")
            asyncio.run(taken(agent(store, Log(log, write, last)).run("go")))
    finally:
        os._exit(0)


def killed_at_random(path: Path, log: Path, chance: random.Random, step_s: float) -> list[int]:
    """The steps that were finished before the kill."""
    steps = chance.randint(0, STEPS)
    process, report_fd = begun(path, log, steps + 3 if steps + 3 < STEPS else 0)
    for _ in range(steps):
        os.read(report_fd, 1)
    time.sleep(chance.uniform(0.0, step_s))
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    os.close(report_fd)
    return [int(line) for line in log.read_text().split()] if log.exists() else []


@pytest.mark.timeout(300)
def test_a_hundred_kills_lose_no_finished_step(tmp_path: Path) -> None:
    whole = asyncio.run(taken(agent(Store()).run("go")))
    path, chance = tmp_path / "runs.db", random.Random(6)
    known: list[str] = []
    states: Counter[str] = Counter()
    for number in range(KILLS):
        finished = killed_at_random(path, tmp_path / f"log{number}", chance, whole.history.elapsed_s / STEPS * 3)
        with Store(path) as store:
            (is_whole,) = store.storage._database.execute("PRAGMA integrity_check").fetchone()  # type: ignore[attr-defined]
            assert is_whole == "ok"
            new = store.run_ids()[len(known) :]
            known += new
            assert (len(new), finished) == (1, list(range(1, len(finished) + 1))) if finished else len(new) <= 1
            for run_id in new:
                state, kept = store.state(run_id), store.load(run_id)
                states[state] += 1
                assert len(kept.history) in (len(finished), len(finished) + 1)
                assert state == ("ended" if len(kept.history) == STEPS else "interrupted")
                if state == "interrupted":
                    result = asyncio.run(taken(store.resume(run_id, agent(store))))
                    assert (result.run_id, result.stop_reason, len(result.history)) == (run_id, StopReason.COMPLETED, STEPS)
                    assert spoken(result.messages) == spoken(whole.messages)
                assert spoken(store.load(run_id).messages) == spoken(whole.messages)
    with Store(path) as store:
        assert set(store.frame("runs")["state"]) == {"ended"}
        assert set(store.frame("runs")["steps"]) == {STEPS}
    assert states["interrupted"] > KILLS / 2


# Tools that must not run twice -------------------------------------------------------------------------------------------------


def payer(paid: Path, *, idempotent: bool, nested: bool = False, model: Any = None, observers: Any = ()) -> lab.Agent:
    """An agent that looks, pays, and ends. `pay` records that it ran, and in the process that is killed never returns."""
    home = os.getpid()

    def pay(eur: int) -> str:
        """Pay."""
        with paid.open("ab") as file:
            file.write(f"{eur}\n".encode())
        while os.getpid() != home:
            time.sleep(60)
        return "paid"

    def says(request: ModelRequest, index: int) -> Said:
        asked = len(request.messages) // 2 + 1
        return [call("look", {"q": "it"}), call("pay", {"eur": 5}), say("end")][asked - 1]

    def delegates(request: ModelRequest, index: int) -> Said:
        return call("clerk", {"task": "pay"}) if len(request.messages) == 1 else say("end")

    made = lab.tool(idempotent=idempotent)(pay)
    clerk = lab.Agent(ScriptedProvider(model or says), tools=[look, made], observers=() if nested else observers)
    if not nested:
        return clerk
    return lab.Agent(ScriptedProvider(delegates), tools=[clerk.as_tool("clerk")], observers=observers)


def killed_while_it_pays(path: Path, paid: Path, **how: bool) -> str:
    """The id of a run that was killed during its call of `pay`."""
    ready = payer(paid, **how)
    process = os.fork()
    if not process:
        try:
            with Store(path) as store:
                asyncio.run(taken(store.keep(ready.run("go").with_id("r1"))))
        finally:
            os._exit(0)
    until = time.monotonic() + 60
    while not (paid.exists() and paid.stat().st_size) and time.monotonic() < until:
        time.sleep(0.01)
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    assert paid.read_bytes() == b"5\n"
    return "r1"


@pytest.mark.parametrize(
    ("idempotent", "again", "times", "error"),
    [
        (True, None, 2, None),
        (False, None, 1, "may_have_run"),
        (False, lambda call: call.arguments != '{"eur": 5}', 1, "may_have_run"),
        (False, lambda call: call.arguments == '{"eur": 5}', 2, None),
    ],
    ids=["at-least-once", "nobody-to-ask", "refused", "allowed"],
)
def test_the_user_is_asked_about_a_tool_that_must_not_run_twice(
    tmp_path: Path, idempotent: bool, again: Any, times: int, error: Any
) -> None:
    path, paid = tmp_path / "runs.db", tmp_path / "paid"
    run_id = killed_while_it_pays(path, paid, idempotent=idempotent)
    with Store(path) as store:
        run = store.resume(run_id, payer(paid, idempotent=idempotent), again=again)
        result = asyncio.run(taken(run))
        assert (result.stop_reason, result.text) == (StopReason.COMPLETED, "end")
        assert paid.read_bytes() == b"5\n" * times
        report_fd = result.history[1].tool_results[0]
        assert report_fd.error == error
        if error:
            assert 'it may have run already, with {"eur": 5}.' in report_fd.content
        assert store.load(run_id).history[1].tool_results[0].error == error


def test_an_async_answer_is_awaited(tmp_path: Path) -> None:
    async def again(call: Any) -> bool:
        await asyncio.sleep(0)
        return False

    path, paid = tmp_path / "runs.db", tmp_path / "paid"
    run_id = killed_while_it_pays(path, paid, idempotent=False)
    with Store(path) as store:
        asyncio.run(taken(store.resume(run_id, payer(paid, idempotent=False), again=again)))
    assert paid.read_bytes() == b"5\n"


def test_a_sub_agent_with_such_a_tool_must_not_run_twice_either(tmp_path: Path) -> None:
    path, paid = tmp_path / "runs.db", tmp_path / "paid"
    run_id = killed_while_it_pays(path, paid, idempotent=False, nested=True)
    with Store(path) as store:
        result = asyncio.run(taken(store.resume(run_id, payer(paid, idempotent=False, nested=True))))
    assert [one.error for one in result.history[0].tool_results] == ["may_have_run"]
    assert paid.read_bytes() == b"5\n"


def test_the_hold_is_for_one_call_and_lasts_until_that_call(tmp_path: Path) -> None:
    """The model does something else first, and the process ends once more; then it calls the tool twice."""
    path, paid = tmp_path / "runs.db", tmp_path / "paid"
    run_id = killed_while_it_pays(path, paid, idempotent=False)
    later = [call("look", {"q": "else"}), call("pay", {"eur": 6}), call("pay", {"eur": 6}), say("end")]

    def model(request: ModelRequest, index: int) -> Said:
        return later[len(request.messages) // 2 - 1]

    with Store(path) as store:
        again = store.resume(run_id, payer(paid, idempotent=False, model=model))
        asyncio.run(again.step())
        store.let_go(again)
        result = asyncio.run(taken(store.resume(run_id, payer(paid, idempotent=False, model=model))))
    assert [step.tool_results[0].error for step in result.history[1:-1]] == [None, "may_have_run", None]
    assert paid.read_bytes() == b"5\n6\n"


def errors(result: lab.RunResult) -> list[str | None]:
    return [one.error for step in result.history for one in step.tool_results if one.name == "pay"]


@pytest.mark.parametrize("loaded", [False, True], ids=["in-process", "loaded"])
@pytest.mark.parametrize("way", ["error", "cancel", "cancel-first", "whole-then-fork", "fork-of-a-fork"])
def test_the_hold_is_inherited_by_forks_and_resumed_runs(tmp_path: Path, way: str, loaded: bool) -> None:
    """A resumed run that ends before the call is repeated, or a fork from before it, does not release the hold."""
    path, paid = tmp_path / "runs.db", tmp_path / "paid"
    run_id = killed_while_it_pays(path, paid, idempotent=False)
    fails = [way == "error"]

    def model(request: ModelRequest, index: int) -> Said:
        if fails.pop() if fails else False:
            raise ProviderConnectionError("no route")
        if way == "cancel" and run.state is not RunState.ENDED and not run.origin.parent:
            run.cancel()
        return [call("look", {"q": "it"}), call("pay", {"eur": 5}), say("end")][len(request.messages) // 2]

    with Store(path) as store:
        ready = payer(paid, idempotent=False, model=model, observers=[store])
        run = store.resume(run_id, ready)
        if way == "cancel-first":
            run.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            asyncio.run(taken(run))
        if loaded:
            run = store.load(run_id, ready)
        assert run.result is not None
        ended = {"error": StopReason.ERROR, "cancel": StopReason.CANCELLED, "cancel-first": StopReason.CANCELLED}
        assert run.result.stop_reason is ended.get(way, StopReason.COMPLETED)
        if way == "whole-then-fork":
            assert errors(run.result) == ["may_have_run"]
            assert run.fork(at=2).stepper.context.holds[0].answered == 2
            branch = run.fork(at=0)
        elif way == "fork-of-a-fork":
            branch = run.fork(at=2).fork(at=1)
        else:
            branch = run.apply()
        assert errors(asyncio.run(taken(branch))) == ["may_have_run"]
        assert paid.read_bytes() == b"5\n"
        store.keep(branch)
        assert errors(asyncio.run(taken(store.load(branch.id, ready).fork(at=1)))) == ["may_have_run"]
    assert paid.read_bytes() == b"5\n"


def test_a_stored_fork_that_never_ran_keeps_the_hold(tmp_path: Path) -> None:
    path, paid = tmp_path / "runs.db", tmp_path / "paid"
    run_id = killed_while_it_pays(path, paid, idempotent=False)
    with Store(path) as store:
        branch = store.keep(store.load(run_id, payer(paid, idempotent=False)).fork(at=0))
        store.let_go(branch)
        result = asyncio.run(taken(store.resume(branch.id, payer(paid, idempotent=False))))
    assert (errors(result), paid.read_bytes()) == (["may_have_run"], b"5\n")


def test_a_retry_by_a_middleware_is_held_again(tmp_path: Path) -> None:
    async def twice(tool_call: Any, execute: Any) -> Any:
        result = await execute(tool_call)
        return await execute(tool_call) if result.error else result

    path, paid = tmp_path / "runs.db", tmp_path / "paid"
    run_id = killed_while_it_pays(path, paid, idempotent=False)
    plain = payer(paid, idempotent=False)
    agent = lab.Agent(plain.model, tools=list(plain.tools.values()), tool_middleware=[twice])
    with Store(path) as store:
        result = asyncio.run(taken(store.resume(run_id, agent)))
    assert (errors(result), paid.read_bytes()) == (["may_have_run"], b"5\n")


def test_an_export_keeps_the_hold(tmp_path: Path) -> None:
    path, paid = tmp_path / "runs.db", tmp_path / "paid"
    run_id = killed_while_it_pays(path, paid, idempotent=False)
    with Store(path) as store:
        store.export(tmp_path / "export")
    other = Store()
    assert other.import_from(tmp_path / "export") == [run_id]
    result = asyncio.run(taken(other.resume(run_id, payer(paid, idempotent=False))))
    assert (errors(result), paid.read_bytes()) == (["may_have_run"], b"5\n")


@pytest.mark.parametrize(
    ("again", "says"),
    [(lambda call: input(), "EOFError"), (lambda: True, "TypeError"), (lambda call: {}["pay"], "KeyError")],
    ids=["no-terminal", "arity", "key"],
)
def test_a_failing_question_is_a_refusal(tmp_path: Path, monkeypatch: Any, again: Any, says: str) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    path, paid = tmp_path / "runs.db", tmp_path / "paid"
    run_id = killed_while_it_pays(path, paid, idempotent=False)
    with Store(path) as store:
        result = asyncio.run(taken(store.resume(run_id, payer(paid, idempotent=False), again=again)))
    assert (result.stop_reason, errors(result), paid.read_bytes()) == (StopReason.COMPLETED, ["may_have_run"], b"5\n")
    assert f"again raised {says}" in result.history[1].tool_results[0].content


def test_an_uncallable_question_is_refused_at_resume() -> None:
    with pytest.raises(ConfigurationError, match="again=5"):
        Store().resume("r1", again=5)  # type: ignore[arg-type]


def test_only_such_tools_cost_a_note() -> None:
    def notes(idempotent: bool) -> int:
        written: list[str] = []

        class Counting(lab.storage.MemoryStorage):
            def note(self, run_id: str, name: str, text: str) -> None:
                written.append(text)
                super().note(run_id, name, text)

        made = lab.tool(inline=True, idempotent=idempotent)(look.function)
        keeping = lab.Agent(ScriptedProvider(script), tools=[made], observers=[Store(Counting())])
        asyncio.run(taken(keeping.run("go")))
        assert all("look" in text for text in written)
        return len(written)

    assert (notes(idempotent=True), notes(idempotent=False)) == (0, STEPS - 1)

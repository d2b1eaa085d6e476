"""The store: it returns what was recorded for every stop reason; runs continue from it; faults lose nothing."""

from __future__ import annotations

import asyncio
import gc
import json
import pickle
import time
import weakref
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from engine.builders import agent, finalize, go, look, looping, run_of
from engine.server import serving, status
from fixtures.refresh import perform
from fixtures.scenarios import ALL, Fixture

import agentlab as lab
from agentlab import AgentlabWarning, Budget, Custom, HasToolCall, MaxCost, Off, RunState, StepCountIs, StopReason, errors
from agentlab.errors import ConfigurationError, StorageError, StoredError
from agentlab.limits.reading import Action, Decision
from agentlab.model import messages as message_json
from agentlab.model.finish_reasons import FinishReason
from agentlab.model.messages import ModelRequest
from agentlab.model.responses import ModelResponse
from agentlab.records.events import ToolFinished
from agentlab.records.step import StepResult
from agentlab.storage import codec
from agentlab.storage.store import Store
from agentlab.testing import Said, call, say

from .comparisons import FRAMES, assert_kept, spoken


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


@pytest.fixture
def store(path: Path) -> Any:
    with Store(path) as made:
        yield made


def until_five(store: Store, **more: Any) -> lab.Agent:
    """An agent that looks five times and then answers."""

    def script(request: ModelRequest, index: int) -> Said:
        asked = len(request.messages)
        return call("look", {"q": str(asked)}, cost="0.01") if asked < 11 else say("end")

    return agent(script, observers=[store], **more)


async def taken(run: lab.Run, steps: int) -> lab.Run:
    for _ in range(steps):
        await run.step()
    return run


def abandoned(store: Store, steps: int = 2, **more: Any) -> str:
    """The id of a run that was abandoned."""
    run_id = go(taken(until_five(store).run("go", **more), steps)).id
    gc.collect()
    return run_id


# Stored equals recorded ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fixture", ALL, ids=lambda fixture: fixture.id)
def test_every_frame_of_a_replayed_run_is_restored(fixture: Fixture, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = fixture.agent
    with Store(path) as store:

        def observed(self: Fixture) -> lab.Agent:
            one = made()
            one.observers = (store,)
            return one

        monkeypatch.setattr(Fixture, "agent", observed)
        results = go(perform(fixture, lab.replay(fixture.recordings)))
    with Store(path) as again:
        called = again.frame("runs").query("called_by.notna()")["run_id"].to_list()  # sub-agents' runs
        ids = [result.run_id for result in results]
        assert [run_id for run_id in again.run_ids() if run_id not in called] == ids
        for result in results:
            assert_kept(again, result)
        pd.testing.assert_frame_equal(again.frame("steps", ids), lab.frame(results, "steps"))


def raising(history: Any) -> bool:
    raise RuntimeError("out of reach")


def cautious(signal: Any, context: Any) -> Decision:
    return Decision(Action.ABORT, "no", StopReason.CONTENT_FILTERED, "stop", {"seen": {1, 2}, "by": cautious})


@lab.tool(inline=True)
def thing(q: str = "") -> Any:
    """A value without a JSON form."""
    return {"when": time.gmtime(0), "set": {1}}


@lab.tool(inline=True)
def stopping(q: str = "") -> lab.Stop:
    """End it."""
    return lab.Stop("enough", {"answer": Decimal("1.5")})


@lab.tool(inline=True)
def failing(q: str = "") -> str:
    """Fail."""
    raise OSError("no such thing \ud83d")


def LOOPS(request: ModelRequest, index: int) -> Said:
    return call("look", {"q": str(index)}, cost="0.01")


ENDINGS: dict[str, tuple[Any, dict[str, Any], dict[str, Any]]] = {
    "completed": ([call("look"), "end"], {}, {}),
    "condition": (LOOPS, {}, {"stop": StepCountIs(3) | (MaxCost("0.5") & ~HasToolCall("finalize")) | Off(StepCountIs(1))}),
    "own-condition": (LOOPS, {}, {"stop": StepCountIs(9) | (lambda history: len(history) > 1)}),
    "condition-raises": (LOOPS, {}, {"stop": raising}),
    "budget": (LOOPS, {}, {"budget": Budget(max_cost="0.025")}),
    "turns": (LOOPS, {}, {"budget": Budget(max_turns=2)}),
    "timeout": (LOOPS, {}, {"budget": Budget(timeout=0.02)}),
    "policy": (["a"], {"policy": cautious}, {}),
    "goal": ([call("finalize", {"answer": "x"})], {}, {"stop": HasToolCall("finalize")}),
    "terminating": (["a", call("finalize", {"answer": "x"})], {"terminating": ["finalize"]}, {}),
    "own-values": ([call("thing"), call("failing"), call("unknown"), call("stopping")], {}, {}),
    "provider-error": ([call("look"), errors.ProviderStatusError("down", status=500)], {}, {}),
    "bug": ([call("look"), RuntimeError("bug")], {}, {}),
    "nothing-reported": ([call("look", tokens=(None, None)), say("end", tokens=(3, None))], {}, {}),
    "surrogate": ([say("half \ud83d"), "end"], {}, {}),
    "cut": ([say("half", finish=FinishReason.MAX_TOKENS), say(" whole")], {"continuation": lab.ContinuationPolicy()}, {}),
}


IN_MEMORY = ("terminating", "own-values", "bug", "surrogate")
"""Runs with everything that a store takes care of by itself: both kinds of store keep the same text of them."""


@pytest.mark.parametrize(("case", "where"), [*((case, "file") for case in ENDINGS), *((case, "memory") for case in IN_MEMORY)])
def test_a_run_is_restored_for_every_stop_reason(case: str, where: str, path: Path) -> None:
    script, of_agent, of_run = ENDINGS[case]
    store = Store(path if where == "file" else None)
    made = agent(script, observers=[store], tools=[look, finalize, thing, stopping, failing], **of_agent)
    run = made.run("go", **of_run)

    async def main() -> None:
        try:
            await run
        except (ConfigurationError, RuntimeError):
            assert case == "bug"

    go(main())
    assert run.result is not None
    assert_kept(Store(path) if where == "file" else store, run.result)


def test_a_run_ended_between_two_steps_by_the_user_is_restored(store: Store) -> None:
    run = until_five(store).run("go")
    go(taken(run, 2))
    run.limits.max_turns = 7
    run.pause()
    run.resume()
    run.stop("I saw enough")
    assert run.result is not None
    assert_kept(store, run.result)
    assert store.frame("steps")["stop_reason"].to_list() == [pd.NA, "explicit_stop"]
    assert store.load(run.id).limits.max_turns == 7


def test_a_cancelled_run_is_restored(store: Store) -> None:
    async def slow(q: str = "") -> str:
        await asyncio.sleep(5)
        return q

    run = agent([call("slow")], tools=[slow], observers=[store]).run("go")

    async def main() -> None:
        task = asyncio.ensure_future(run.step())
        await asyncio.sleep(0.05)
        run.cancel()
        await task

    go(main())
    assert run.result is not None
    assert_kept(store, run.result)


def test_a_running_run_is_visible_in_another_store(store: Store, path: Path) -> None:
    run = go(taken(until_five(store).run("go"), 3))
    with Store(path) as other:
        assert_kept(other, run)
        (row,) = other.frame("runs").to_dict("records")
        assert (row["state"], row["steps"], row["calls"], row["total_tokens"]) == ("open", 3, 3, 45)
        assert (row["cost_usd"], row["elapsed_s"]) == (float(run.history.cost_usd or 0), run.history.elapsed_s)
        assert pd.isna(row["stop_reason"])
        with pytest.raises(ConfigurationError, match="is running: stop it before you delete it"):
            other.delete(run.id)
    assert repr(store) == f"Store({str(path)!r})"


def test_a_run_without_a_step_is_stored(store: Store) -> None:
    run = agent(["end"], observers=[store]).run("go", budget=Budget(max_turns=1))
    go(taken(run, 1))
    made = agent([errors.MissingKeyError("no key")], observers=[store]).run("other")
    with pytest.raises(ConfigurationError):
        go(taken(made, 1))
    assert store.frame("runs")["steps"].to_list() == [1, 1]
    for what in FRAMES:
        assert list(Store().frame(what).columns) == list(lab.frame([], what).columns)


def test_the_panel_of_a_stored_run_shows_it(store: Store) -> None:
    run_id = abandoned(store)
    loaded = store.load(run_id)
    assert loaded.state is RunState.READY
    html = loaded.panel().bundle()["text/html"]
    assert all(word in html for word in ("look", "ready for the next step"))


# Resuming --------------------------------------------------------------------------------------------------------------------------


def test_a_run_resumes_where_it_was_cut_short(store: Store, path: Path) -> None:
    whole = go(taken(until_five(Store()).run("go"), 6))
    run_id = abandoned(store, 3, budget=Budget(max_turns=6, timeout=60))
    assert store.state(run_id) == "interrupted"
    before = store.load(run_id)
    with Store(path) as other:
        run = other.resume(run_id, until_five(other))
        assert (run.id, len(run.history), run.state) == (run_id, 3, RunState.READY)
        assert run.timeline.clock.elapsed_s() == before.history.elapsed_s > 0
        assert other.state(run_id) == "open"
        result = go(taken(run, 3)).result
        assert result is not None
        assert result.stop_reason is StopReason.COMPLETED
        assert spoken(run.messages) == spoken(whole.messages)
        assert result.history[-1].remaining.time_s < 60 - before.history.elapsed_s
        assert_kept(other, result)
        assert [type(event).__name__ for event in run.events].count("RunStarted") == 2
        assert other.run_ids() == [run_id]


def test_a_run_of_an_agent_with_an_earlier_store_of_the_same_file_resumes_without_a_warning(store: Store, path: Path) -> None:
    """In a notebook, the cell that opens the store is run again, and the agent still has the store before."""
    run_id = abandoned(store, 2)
    with Store(path) as opened_again:
        result = go(taken(opened_again.resume(run_id, until_five(store)), 4)).result
        assert result is not None and opened_again.unsaved == {}
        assert opened_again.state(run_id) == "ended"
        assert_kept(opened_again, result)


def test_a_typed_agent_is_not_made_again_from_its_name(store: Store, path: Path) -> None:
    typed = lab.Agent("openai:gpt-5.4-mini", output=list[str])
    with lab.replay("sample:question", match="order"):
        run = go(taken(store.keep(typed.run("?", budget=Budget(max_turns=9))), 1))
    with pytest.raises(
        ConfigurationError, match=r"Only the name of the agent openai:gpt-5\.4-mini was stored: to continue, pass it"
    ):
        Store(path).resume(run.id)


def test_a_run_may_be_resumed_repeatedly_and_only_the_last_is_stored(store: Store) -> None:
    run_id = abandoned(store, 1)
    first = store.resume(run_id, until_five(store))
    second = store.resume(run_id, until_five(store))
    go(taken(second, 2))
    with pytest.warns(
        AgentlabWarning, match=r"was resumed by .*, which writes to it now: changes by this process are not stored"
    ):
        go(taken(first, 1))
    assert len(store.load(run_id).history) == 3
    assert_kept(store, second)


def test_a_run_that_is_running_here_is_not_resumed(store: Store) -> None:
    async def main() -> None:
        run = looping(observers=[store]).run("go", stop=lambda history: asyncio.sleep(0.01))
        task = asyncio.ensure_future(run.worker.to_the_end())
        await asyncio.sleep(0.03)
        with pytest.raises(ConfigurationError, match="is running in this process"):
            store.resume(run.id, looping())
        run.cancel()
        await task
        with pytest.raises(ConfigurationError, match=r"has ended: branch it with store\.load"):
            store.resume(run.id, looping())

    go(main())


def test_a_run_of_a_lost_machine_can_be_taken_over(store: Store) -> None:
    run_id = abandoned(store)
    kept = store.storage.runs([run_id])[0]
    store.storage.claim(run_id, '["elsewhere", 7, "1", 1]', instead_of=kept.head.writer)
    assert store.state(run_id) == "open"
    with pytest.raises(ConfigurationError, match=r"is running in process 7 on elsewhere.*take_over=True"):
        store.resume(run_id, until_five(store))
    run = store.resume(run_id, until_five(store), take_over=True)
    assert go(taken(run, 4)).result is not None
    assert store.state(run_id) == "ended"


def test_functions_have_to_be_passed_again(store: Store) -> None:
    def often(history: Any) -> bool:
        return len(history) > 3

    run_id = abandoned(store, 2, stop=StepCountIs(9) | often, policy=lab.termination.lenient)
    with pytest.raises(ConfigurationError, match=r"had tools that the agent does not have: look"):
        store.resume(run_id, agent(["a"], tools=[finalize]))
    with pytest.raises(ConfigurationError, match=r"pass it with its tools \(look, finalize\)"):
        store.resume(run_id)
    with pytest.raises(ConfigurationError, match=r"name of the condition 'often' was stored.*stop="):
        store.resume(run_id, until_five(store))
    with pytest.raises(ConfigurationError, match=r"name of the policy 'lenient' was stored.*policy="):
        store.resume(run_id, until_five(store), stop=often)
    with pytest.raises(ConfigurationError, match=r"used scripted:script, but the agent uses openai:gpt"):
        store.resume(run_id, lab.Agent("openai:gpt", tools=[look, finalize]))
    assert store.state(run_id) == "interrupted"
    run = store.resume(run_id, until_five(store, stop=StepCountIs(9) | often, policy=lab.termination.lenient))
    assert go(taken(run, 2)).result is not None
    assert run.result is not None
    assert run.result.conditions_met[0].name == "often"


def test_an_agent_restorable_by_names_need_not_be_passed(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def kept(made: lab.Agent) -> lab.Agent:
        return store.load(store.keep(made.run("go")).id).agent

    plain = kept(lab.Agent("openai:gpt-5", instructions="Be brief.", options={"seed": 1}, stream=True))
    assert (plain.instructions, plain.options["seed"], plain.stream) == ("Be brief.", 1, True)
    assert type(plain.model).__name__ == "HttpModel"
    elsewhere = lab.Provider("openai", model="gpt-5", base_url="http://127.0.0.1:1/v1")
    for own in (lab.Agent(elsewhere), lab.Agent("openai:gpt-5", middleware=[lambda request, ask: ask(request)])):
        assert type(kept(own).model).__name__ == "NamedModel"


def test_a_run_is_stored_once_and_seen_by_other_observers(store: Store) -> None:
    run_id, seen = abandoned(store, 1), []
    made = until_five(store)
    made.observers = (store, store, seen.append)
    run = store.resume(run_id, made)
    go(taken(run, 1))
    assert [type(event).__name__ for event in seen][:2] == ["RunStarted", "StepStarted"]
    assert_kept(store, run)


# Branches --------------------------------------------------------------------------------------------------------------------------


def test_branches_are_stored_with_the_steps_of_their_parent(store: Store) -> None:
    run = go(taken(until_five(store).run("go"), 4))
    branch = run.fork(2, budget=Budget(max_turns=9, max_cost=5), message="and now?")
    go(taken(branch, 1))
    assert_kept(store, branch)
    store.keep(other := run.fork(1, budget=Budget(max_cost=7)))
    assert store.load(other.id).limits.max_cost == 7
    frame = store.frame("runs").set_index("run_id")
    assert frame.loc[branch.id, ["parent_run_id", "forked_at", "steps"]].to_list() == [run.id, 2, 3]
    again = go(taken(store.load(run.id, until_five(store)).fork(at=3, prompt="other"), 1))
    assert_kept(store, again)
    assert store.load(again.id).fork(at=0, prompt="third").prompt == "third"


def test_a_stored_branch_knows_which_message_it_has_not_answered(store: Store) -> None:
    def script(request: ModelRequest, index: int) -> ModelResponse:
        return say("Graz.") if index == 1 else call("look", {"q": "x"})

    run = agent(script).run("go")
    branch = go(taken(run, 1)).fork(1, message="And in winter?", budget=Budget(max_turns=2))
    go(taken(branch, 1))
    store.keep(branch)
    assert (run.result.text, branch.result.text) == ("Graz.", "")
    loaded = store.load(branch.id)
    assert (loaded.result.text, loaded.result.asked_at) == ("", 1)
    assert go(taken(store.load(branch.id, agent(script)).fork(2, budget=Budget(max_turns=3)), 1)).result.text == ""


def test_a_loaded_run_that_continues_is_not_stored(store: Store) -> None:
    run_id = abandoned(store, 2)
    loaded = store.load(run_id, until_five(store))
    go(taken(loaded, 1))
    assert len(store.load(run_id).history) == 2
    with pytest.raises(StorageError, match=r"already exists.*: delete it, or resume it"):
        store.keep(loaded)
    store.delete(run_id)
    store.keep(loaded)
    assert_kept(store, loaded)


def test_keep_stores_a_run_from_its_middle_or_its_end(store: Store) -> None:
    run = go(taken(looping().run("go", stop=StepCountIs(4)), 2))
    run.limits.max_turns = 9
    assert store.keep(run) is run
    assert store.load(run.id).limits.max_turns == 9
    go(taken(run, 2))
    ended = looping().run("go", stop=StepCountIs(2))
    go(taken(ended, 2))
    store.keep(ended)
    for each in (run, ended):
        assert each.result is not None
        assert_kept(store, each.result)


def test_a_store_passed_in_mid_run_says_what_to_do(store: Store) -> None:
    run = go(taken(looping().run("go"), 1))
    run.observe(store)
    with pytest.warns(AgentlabWarning, match=r"call store\.keep\(run\)"):
        go(taken(run, 1))


# Faults ----------------------------------------------------------------------------------------------------------------------------


def full(store: Store) -> None:
    (pages,) = store.storage._database.execute("PRAGMA page_count").fetchone()  # type: ignore[attr-defined]
    store.storage._database.execute(f"PRAGMA max_page_count = {pages}")  # type: ignore[attr-defined]


def roomy(store: Store) -> None:
    store.storage._database.execute("PRAGMA max_page_count = 1000000")  # type: ignore[attr-defined]


@pytest.mark.parametrize("since", [0, 1, 3], ids=["from-the-beginning", "soon", "later"])
def test_on_a_full_disk_the_run_continues_and_is_written_later(store: Store, since: int) -> None:
    padded = agent(lambda request, index: call("look", {"q": "x" * 9000}, cost="0.01"), observers=[store])
    run = padded.run("go", stop=StepCountIs(5))
    go(taken(run, since))
    store.storage._database.execute("CREATE TABLE IF NOT EXISTS pad (x)")  # type: ignore[attr-defined]
    full(store)
    with pytest.warns(AgentlabWarning, match=r"disk is full.*stays in memory") as warned:
        go(taken(run, 5 - since))
    assert len(warned) <= 2  # once during the run, and once at its end
    assert store.unsaved[run.id] > 0
    with pytest.raises(StorageError, match="full"):
        store.save()
    roomy(store)
    store.save()
    assert store.unsaved == {}
    assert run.result is not None
    assert_kept(store, run.result)


def test_it_is_written_automatically_when_there_is_space_again(store: Store) -> None:
    run = agent(lambda request, index: call("look", {"q": "x" * 9000}), observers=[store]).run("go", stop=StepCountIs(5))
    go(taken(run, 1))
    full(store)
    with pytest.warns(AgentlabWarning, match="full"):
        go(taken(run, 2))
    roomy(store)
    go(taken(run, 1))
    assert store.unsaved == {}
    assert_kept(store, run)


def test_the_store_holds_only_what_could_not_be_written(store: Store) -> None:
    async def main() -> weakref.ref[lab.Run]:
        run = until_five(store).run("go")
        await run
        return weakref.ref(run)

    kept = go(main())
    gc.collect()
    assert kept() is None
    full(store)
    with pytest.warns(AgentlabWarning, match="full"):
        unkept = go(main())
    gc.collect()
    assert unkept() is not None
    roomy(store)
    store.save()
    gc.collect()
    assert unkept() is None
    assert store.frame("runs")["state"].to_list() == ["ended", "ended"]


def test_a_closed_store_loses_nothing(path: Path) -> None:
    store = Store(path)
    run = go(taken(until_five(store).run("go"), 1))
    store.close()
    with pytest.warns(AgentlabWarning, match="was closed: open it again"):
        go(taken(run, 1))
    assert store.unsaved == {run.id: 1}
    with pytest.raises(StorageError, match="was closed"):
        store.frame()


def test_a_value_without_a_json_form_is_reported_and_the_run_continues(store: Store) -> None:
    circle: dict[str, Any] = {}
    circle["itself"] = circle
    response = say("end")
    object.__setattr__(response, "raw", circle)
    run = agent([response], observers=[store]).run("go")
    with pytest.warns(AgentlabWarning, match=r"Step 1 of run .* cannot be written as JSON"):
        go(taken(run, 1))
    assert run.result is not None
    assert store.state(run.id) == "open"


def test_damaged_text_is_reported_with_its_run(store: Store) -> None:
    run_id = abandoned(store)
    database = store.storage._database  # type: ignore[attr-defined]
    database.execute("UPDATE steps SET body = substr(body, 1, 40) WHERE id % 2 = 0")
    with pytest.raises(StorageError, match=rf"stored run '{run_id}' is damaged"):
        store.load(run_id)
    database.execute("UPDATE steps SET row = 'x' WHERE id % 2 = 0")
    with pytest.raises(StorageError, match="damaged"):
        store.frame("steps")


def test_a_run_of_an_earlier_version_that_counted_turns_is_loaded(store: Store) -> None:
    run_id = abandoned(store)
    expected, database = store.load(run_id).events, store.storage._database  # type: ignore[attr-defined]
    assert {"StepStarted", "StepCompleted", "ToolFinished"} <= {type(event).__name__ for event in expected}
    rows = database.execute("SELECT id, body FROM steps").fetchall()
    for row_id, body in rows:
        stored = json.loads(body)
        for event in stored["events"]:
            if event["event"] != "StepCompleted" and "step" in event:
                event["turn"] = event.pop("step")
            event["event"] = event["event"].replace("Step", "Turn")
        database.execute("UPDATE steps SET body = ? WHERE id = ?", (json.dumps(stored), row_id))
    assert any('"TurnStarted"' in body and '"turn": 1' in body for (body,) in database.execute("SELECT body FROM steps"))
    assert store.load(run_id).events == expected


def test_a_run_and_its_result_are_accepted_as_the_id_of_the_run(store: Store) -> None:
    run = until_five(store).run("go")
    result = go(taken(run, 6)).result
    assert result is not None
    for one in (run, result):
        assert store.load(one).id == run.id
        assert store.state(one) == "ended"
        assert store.frame("steps", [one])["step"].to_list() == [1, 2, 3, 4, 5, 6]
    interrupted = abandoned(store)
    assert store.resume(store.load(interrupted), until_five(store)).id == interrupted
    store.delete(result)
    assert store.run_ids() == [interrupted]


def test_invalid_input_names_the_value(store: Store) -> None:
    for do, problem in (
        (lambda: Store(5), r"Store\(5\): pass a path"),  # type: ignore[arg-type]
        (lambda: store.load("nobody"), "There is no run 'nobody'"),
        (lambda: store.resume("nobody"), "There is no run 'nobody'"),
        (lambda: store.delete("nobody"), "There is no run 'nobody'"),
        (lambda: store.frame("stpes"), "There is no frame 'stpes': choose one of runs, .* Did you mean 'steps'"),
        (lambda: store.frame("steps", "abc"), "pass a list of ids"),
        (lambda: store.frame("steps", ["abc"]), "There is no run 'abc'"),
        (lambda: store.frame("steps", 5), "pass a list of ids"),  # type: ignore[arg-type]
        (lambda: store.load(5), "5 is not the id of a run: pass the id, the run, or its result"),  # type: ignore[arg-type]
        (lambda: store.keep("abc"), r"keep\(str\): pass the run itself"),  # type: ignore[arg-type]
    ):
        with pytest.raises(errors.AgentlabError, match=problem):
            do()


def test_pickling_a_store_sends_its_path(store: Store) -> None:
    run_id = abandoned(store)
    other: Store = pickle.loads(pickle.dumps(store))
    assert other.run_ids() == [run_id]
    other.close()


KEY = "sk-ant-REAL1234567890abcdefghijkl"


def test_no_key_is_written(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with Store(path) as store, serving(status(401, {"error": {"message": f"Incorrect API key: {KEY}"}})) as server:
        there = lab.Provider("openai", model="gpt-5", base_url=server.base)
        go(taken(lab.Agent(there, observers=[store]).run("go"), 1))
        own = errors.ProviderStatusError(f"the key {KEY} is wrong, says a gateway", status=401)
        result = go(taken(agent([call("look"), own], observers=[store]).run("go"), 2)).result
        assert result is not None
        assert isinstance(store.load(result.run_id).history[-1].error, StoredError)
    for file in path.parent.iterdir():
        assert KEY[8:].encode() not in file.read_bytes()


def test_custom_is_restored_only_by_name(store: Store) -> None:
    run_id = abandoned(store, 1, stop=Custom(lambda history: False, "mine"))
    stop = store.load(run_id).limits.stop
    assert repr(stop) == "Custom(mine)"


@pytest.mark.parametrize("how", ["stop", "cancel"])
def test_a_run_ended_before_it_started_is_stored(store: Store, how: str) -> None:
    run = looping(observers=[store]).run("go")
    getattr(run, how)()
    assert run.result is not None
    assert_kept(store, run.result)
    assert [type(event).__name__ for event in store.load(run.id).events] == ["RunEnded"]
    branch = looping(observers=[store]).run("go")
    go(taken(branch, 2))
    branch = branch.fork(at=1)
    getattr(branch, how)()
    assert branch.result is not None
    assert_kept(store, branch.result)


def test_a_long_tool_result_is_stored_once_and_restored_everywhere() -> None:
    @lab.tool(inline=True)
    def read(part: int) -> Any:
        """Read a part."""
        return "long text " * 500 if part == 1 else {"part": part}

    store = lab.Store()
    calls = [call("read", {"part": part}, id=f"c{part}").tool_calls[0] for part in (1, 2)]
    run = run_of([say(finish=lab.FinishReason.TOOL_CALLS, calls=calls), "end"], tools=[read], observers=[store])
    go(taken(run, 2))
    (first, _) = store.storage.steps(run.id)
    assert first.body.count("long text " * 500) == 1
    again = store.load(run.id)
    assert again.history[0].tool_results == run.history[0].tool_results
    assert [event for event in again.events if isinstance(event, ToolFinished)] == [
        event for event in run.events if isinstance(event, ToolFinished)
    ]
    assert [one.content for one in again.messages[2].tool_results] == ["long text " * 500, '{"part":2}']
    assert [replace(one, value=None) for one in run.messages[2].tool_results] == list(again.messages[2].tool_results)


def test_a_step_of_an_earlier_version_has_its_results_everywhere() -> None:
    run = run_of([call("look", {"q": "it"}), "end"])
    go(taken(run, 2))
    step, messages = run.history[0], run.timeline.messages_of(1)
    old = {
        "step": {
            **codec.to_jsonable(step),
            "tool_results": [{**codec.to_jsonable(step)["tool_results"][0], "value": {"json": "saw it"}}],
        },
        "messages": [message_json.plain(message) for message in messages],
        "events": [codec.event_to_jsonable(event) for event in run.events if isinstance(event, ToolFinished)],
    }
    kept = codec.restore_results(json.loads(json.dumps(old)))
    assert codec.from_jsonable(StepResult, kept["step"]).tool_results == step.tool_results
    assert message_json.made(kept["messages"][1]).tool_results[0].content == "saw it"
    assert codec.events_from_jsonable(kept["events"], run.history)[0] == next(
        e for e in run.events if isinstance(e, ToolFinished)
    )

"""Experiments: which runs are made, their results, and that an interruption, a budget, a failure or a full disk loses nothing."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from fixtures.scenarios import SCENARIOS

import agentlab as lab
from agentlab import AgentlabWarning, Budget, StepCountIs
from agentlab._internal import secrets as known_keys
from agentlab.errors import ConfigurationError, LimitError, ProviderStatusError, StorageError
from agentlab.storage import MemoryStorage
from agentlab.storage.store import Store
from agentlab.testing import ScriptedProvider, call, say

from .parts import STEPS, Slow, assert_same, look, looking, script, steps_later, steps_taken, untimed

FRONT = ["agent", "prompt_id", "settings", "repeat", "score", "score_error"]
FIXTURES = Path(__file__).parents[2] / "fixtures"


def go(study: lab.Experiment, **more: Any) -> lab.ExperimentResults:
    return asyncio.run(study.run(**more))


def two(**more: Any) -> lab.Experiment:
    """Two agents, two prompts, two settings."""
    more.setdefault("settings", {"whole": {}, "short": {"stop": StepCountIs(2), "budget": Budget(max_turns=9)}})
    more.setdefault("tasks", {"one": "first", "two": "second"})
    more.setdefault("agents", [looking("a", "pa"), looking("b", "pb")])
    return lab.Experiment(**more)


# Results ---------------------------------------------------------------------------------------------------------------------------


def test_all_cells_are_run_and_give_tidy_frames() -> None:
    study = two(repeats=2, score=steps_taken)
    assert study.plan()["state"].to_list() == ["not_started"] * 16
    results = go(study)
    assert [list(results.frame(what).columns)[:6] for what in ("runs", "steps", "calls", "tools")] == [FRONT] * 4
    assert len(results.runs) == len(results) == 16
    assert results.runs["score"].to_list() == [4.0, 4.0, 2.0, 2.0] * 4
    assert results.runs["agent"].to_list() == ["a"] * 8 + ["b"] * 8
    assert results.runs.loc[0, ["run_id", "state", "attempt", "stop_reason", "total_tokens"]].to_list() == [
        "experiment#a/one/whole/1", "ended", 1, "completed", 60,
    ]  # fmt: skip
    assert len(results.steps) == len(results.calls) == 48
    assert len(results.tools) == 2 * 2 * 2 * (3 + 2)
    assert results.steps.groupby(["agent", "prompt_id", "settings", "repeat"], sort=False).ngroups == 16
    assert (len(study.plan()), study.dry_run().to_do) == (0, 0)
    assert repr(results) == "ExperimentResults('experiment', 16 runs: 16 ended)"
    assert repr(study).startswith("Experiment('experiment', 2 agents, 2 tasks, 2 settings, 16 runs, Store(")


def test_the_scores_of_a_dict_have_separate_columns() -> None:
    runs = go(two(score=steps_later)).runs
    assert list(runs.columns)[:8] == [*FRONT, "score.steps", "state"]
    assert runs["score"].dtype == "boolean"
    assert runs["score"].to_list() == [True, False] * 4
    assert runs["score.steps"].to_list() == [4.0, 2.0] * 4


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("scenario", "repeats"), [("trip", 8), pytest.param("trip", 112, marks=pytest.mark.soak), ("question", 5)]
)
def test_concurrency_does_not_change_results_on_recorded_fixtures(scenario: str, repeats: int) -> None:
    """Runs (a thousand of them in `make soak`) one after the other, 64 at once, and once more: the same frames, row for row."""
    made = next(one for one in SCENARIOS if one.name == scenario)
    agents = {name: made.agent(name) for name in ("openai", "anthropic", "gemini")}
    end = (lab.HasToolCall("finalize") if scenario == "trip" else lab.FinishReasonIs("end_turn")) | StepCountIs(8)
    settings = {
        "one": {"stop": end},
        "two": {"stop": StepCountIs(2)},
        "three": {"stop": StepCountIs(1) | lab.MaxTokensUsed(900)},
    }
    with lab.replay(FIXTURES / scenario):
        studies = [lab.Experiment(agents, {"p": made.prompt}, settings, repeats=repeats, score=steps_taken) for _ in range(3)]
    alone, together, again = (go(study, concurrency=count) for study, count in zip(studies, (1, 64, 64), strict=True))
    assert set(alone.runs["state"]) == {"ended"}
    assert len(alone.runs) == len(agents) * len(settings) * repeats
    assert_same(alone, together)
    assert_same(together, again)


def test_cells_find_their_own_recordings_by_label(tmp_path: Path) -> None:
    """Recordings of an experiment are replayed cell by cell, in any order."""
    answers = iter(range(100))
    with serving_numbers(answers) as base:
        agent = lab.Agent(lab.Provider("compatible", model="m", base_url=base, api_key="none"), name="a")
        study = lab.Experiment([agent], ["same"], repeats=6)
        with lab.record(tmp_path / "rec"):
            first = go(study, concurrency=6)
    texts = first.runs["text"].to_list()
    assert len(set(texts)) == 6
    for count in (1, 6):
        with lab.replay(tmp_path / "rec"):
            again = lab.Experiment([agent], ["same"], repeats=6, where=lambda cell: cell.repeat != 2, name="other")
            assert go(again, concurrency=count).runs["text"].to_list() == [texts[0], *texts[2:]]


@contextlib.contextmanager
def serving_numbers(answers: Any) -> Any:
    """A chat completions server that answers with another number each time, after a varying delay."""
    import http.server
    import json
    import threading

    class Handler(http.server.BaseHTTPRequestHandler):
        asked_at: list[float] = []

        def do_POST(self) -> None:
            Handler.asked_at.append(time.monotonic())
            self.rfile.read(int(self.headers["content-length"]))
            choice = {"index": 0, "message": {"role": "assistant", "content": f"number {next(answers)}"}, "finish_reason": "stop"}
            usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
            body = json.dumps(
                {"id": "1", "object": "chat.completion", "model": "m", "choices": [choice], "usage": usage}
            ).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.asked_at = Handler.asked_at  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        base = f"http://127.0.0.1:{server.server_port}/v1"
        serving_numbers.asked_at = Handler.asked_at  # type: ignore[attr-defined]
        yield base
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


# Resuming --------------------------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("fake_time")
@pytest.mark.parametrize("where", ["file", "memory"])
def test_an_interrupted_experiment_resumes_and_gives_the_same_results(where: str, tmp_path: Path) -> None:
    whole = go(lab.Experiment({"a": lab.Agent(Slow(0), tools=[look])}, ["x", "y"], repeats=3, score=steps_taken))
    log = tmp_path / "log"
    store = Store(tmp_path / "runs.db" if where == "file" else None)

    def study() -> lab.Experiment:
        return lab.Experiment(
            {"a": lab.Agent(Slow(0.02, log), tools=[look])}, ["x", "y"], repeats=3, score=steps_taken, store=store
        )

    async def cut_off() -> None:
        """In the middle of the third and the fourth run, at any speed."""
        running = asyncio.create_task(study().run(concurrency=2))
        while not log.exists() or len(log.read_text().splitlines()) < 2 * STEPS + 3:
            await asyncio.sleep(0.001)
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running

    asyncio.run(cut_off())
    states = study().results().runs["state"].to_list()
    assert "interrupted" in states
    assert "not_started" in states
    assert set(study().plan()["state"]) == {"interrupted", "not_started"}
    kept = len(study().results().steps)
    assert_same(go(study(), concurrency=3), whole)
    asked = log.read_text().splitlines()
    assert len(asked) - len(set(asked)) <= 2  # only the steps that were cut short were taken twice
    assert len(asked) <= 6 * STEPS + 2
    assert kept > 0
    before = len(asked)
    assert_same(go(study()), whole)
    assert len(log.read_text().splitlines()) == before


SCRIPT = """
import asyncio, signal, sys
import agentlab as lab
from experiments.parts import Slow, look, steps_taken

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts background jobs with SIGINT ignored
agent = lab.Agent(Slow(0, stuck_at=10), tools=[look])
study = lab.Experiment({"a": agent}, ["x", "y"], repeats=3, score=steps_taken, store=sys.argv[1])
asyncio.run(study.run(concurrency=2))
"""


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGINT], ids=["kill", "interrupt"])
def test_another_process_resumes_after_a_kill(sent: int, tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])}
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(path)], env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "under way\n"
        process.send_signal(sent)
        process.wait()
    study = lab.Experiment({"a": lab.Agent(Slow(0), tools=[look])}, ["x", "y"], repeats=3, score=steps_taken, store=path)
    states = set(study.results().runs["state"])
    assert states & {"interrupted", "not_started"}
    assert not states & {"open"}
    whole = go(lab.Experiment({"a": lab.Agent(Slow(0), tools=[look])}, ["x", "y"], repeats=3, score=steps_taken))
    assert_same(go(study), whole)
    assert study.store.frame("runs")["state"].to_list() == ["ended"] * 6


@pytest.mark.usefixtures("fake_time")
def test_a_custom_condition_resumes_too(tmp_path: Path) -> None:
    def study(delay_s: float) -> lab.Experiment:
        agent = lab.Agent(Slow(delay_s), tools=[look], name="a")
        return lab.Experiment([agent], ["x"], [{"stop": lambda history: len(history) >= 3}], store=tmp_path / "r.db")

    async def cut_off() -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.15):
                await study(0.06).run()

    asyncio.run(cut_off())
    assert study(0).results().runs["state"].to_list() == ["interrupted"]
    assert go(study(0)).runs[["steps", "stop_reason"]].to_numpy().tolist() == [[3, "stop_condition"]]


# Failures --------------------------------------------------------------------------------------------------------------------------


def test_failures_are_rows_and_are_retried_on_request() -> None:
    broken = [True]

    def flaky(request: Any, index: int) -> Any:
        return (
            ProviderStatusError("down", status=500) if broken[0] and request.messages[0].text == "y" else script(request, index)
        )

    agent = lab.Agent(ScriptedProvider(flaky), tools=[look], name="a")
    study = lab.Experiment([agent], ["x", "y"], score=steps_taken, budget=Budget(max_cost=1))
    with pytest.warns(
        AgentlabWarning, match=r"1 of 2 runs failed; the first one was experiment#a/p2/default/1: .*down.*run\(retry=True\)"
    ):
        results = go(study)
    assert results.runs["stop_reason"].to_list() == ["completed", "error"]
    assert results.runs["score"].to_list() == [4.0, pd.NA]
    broken[0] = False
    with pytest.warns(AgentlabWarning, match="1 of 2 runs failed"):
        assert go(study).runs["stop_reason"].to_list() == ["completed", "error"]
    assert study.plan(retry=True)["run_id"].to_list() == ["experiment#a/p2/default/1~2"]
    results = go(study, retry=True)
    assert results.runs[["stop_reason", "attempt", "score"]].to_numpy().tolist() == [["completed", 1, 4.0], ["completed", 2, 4.0]]
    assert len(study.store.run_ids()) == 3  # the failed runs are still stored


def test_a_raising_score_is_stored_with_its_error() -> None:
    wrong: list[Any] = [ValueError("no sense")]

    def score(result: lab.RunResult) -> Any:
        if isinstance(wrong[0], Exception):
            raise wrong[0]
        return wrong[0]

    study = lab.Experiment([looking()], ["x"], score=score)
    with pytest.warns(AgentlabWarning, match=r"1 run has no score: ValueError: no sense \(see score_error\); run\("):
        assert go(study).runs.loc[0, ["score", "score_error", "state"]].to_list() == [pd.NA, "ValueError: no sense", "ended"]
    wrong[0] = "good"
    why = r"1 run has no score: TypeError: score is 'good': return a number, a bool, a dict of them, or None \(see score_error\)"
    with pytest.warns(AgentlabWarning, match=why):
        results = go(study, retry=True)
    assert results.runs["score_error"].to_list() == [
        "TypeError: score is 'good': return a number, a bool, a dict of them, or None."
    ]
    wrong[0] = Decimal("0.5")
    with pytest.warns(AgentlabWarning, match=why):
        go(study)
    assert go(study, retry=True).runs["score"].to_list() == [0.5]
    wrong[0] = 7
    assert go(study, retry=True).runs["score"].to_list() == [0.5]


def test_a_score_added_later_is_applied_to_the_stored_runs(tmp_path: Path) -> None:
    agents = [lab.Agent(Slow(0, tmp_path / "log"), tools=[look], name="a")]
    go(lab.Experiment(agents, ["x"], store=tmp_path / "r.db"))
    assert go(lab.Experiment(agents, ["x"], score=steps_taken, store=tmp_path / "r.db")).runs["score"].to_list() == [4.0]
    assert len((tmp_path / "log").read_text().splitlines()) == STEPS


def test_a_full_disk_loses_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs.db")
    study = lab.Experiment([looking()], ["x", "y", "z"], store=store, score=steps_taken)
    database = store.storage._database  # type: ignore[attr-defined]
    (pages,) = database.execute("PRAGMA page_count").fetchone()
    database.execute(f"PRAGMA max_page_count = {pages}")
    warning = r"full.*memory of this process only.*nothing is lost"
    with pytest.warns(AgentlabWarning, match="disk is full"), pytest.raises(StorageError, match=warning):
        go(study, concurrency=1)
    with pytest.raises(StorageError):
        go(study, concurrency=1)
    database.execute("PRAGMA max_page_count = 1000000")
    assert_same(go(study), go(lab.Experiment([looking()], ["x", "y", "z"], score=steps_taken)))


# Budgets and rates -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("budget", "max_runs", "ended", "held"),
    [
        (Budget(max_cost="0.08"), None, 2, 0),
        (Budget(max_cost="0.081"), None, 2, 1),
        (Budget(max_tokens=120), None, 2, 0),
        (Budget(max_calls=12), None, 3, 0),
        (None, 2, 2, 0),
        (Budget(timeout=1e-9), None, 0, 0),
    ],
)
def test_no_step_is_taken_after_the_budget_is_spent(budget: Budget | None, max_runs: int | None, ended: int, held: int) -> None:
    study = lab.Experiment([looking()], ["x", "y", "z", "u"], budget=budget, max_runs=max_runs)
    with pytest.warns(AgentlabWarning, match=r"left out.*since the budget of the experiment is spent"):
        results = go(study, concurrency=1)
    assert results.runs["state"].to_list() == ["ended"] * ended + ["interrupted"] * held + ["not_started"] * (4 - ended - held)
    left = results.runs.iloc[-1]
    assert (left["prompt"], left["provider"], left["model"], left["run_id"]) == (
        "u",
        "scripted",
        "script",
        "experiment#a/p4/default/1",
    )
    assert pd.isna(left["stop_reason"])
    assert results.runs["problem"].isna().sum() == ended
    assert len(results.steps) == ended * STEPS + held
    if ended:
        with pytest.warns(AgentlabWarning, match="left out"):
            assert (go(study).runs["state"] == "ended").sum() == ended
    study.budget, study.max_runs = Budget(max_cost=5), 4
    assert set(go(study).runs["state"]) == {"ended"}


def test_current_runs_are_held_back_at_the_budget_and_continue_with_more() -> None:
    study = lab.Experiment([lab.Agent(Slow(0.01), tools=[look])], ["x", "y", "z"], budget=Budget(max_cost="0.06"))
    with pytest.warns(AgentlabWarning, match=r"1 run was left out and 1 run was stopped .*: \$0\.06 of \$0\.06"):
        results = go(study, concurrency=2)
    assert results.runs["steps"].to_list() == [STEPS, 2, pd.NA]
    assert results.runs["stop_reason"].to_list() == ["completed", pd.NA, pd.NA]
    why = "the budget of the experiment is spent: $0.06 of $0.06 (max_cost)"
    assert results.runs["problem"].to_list() == [pd.NA, why, why]
    study.budget = Budget(max_cost=1)
    assert_same(go(study), go(lab.Experiment([lab.Agent(Slow(0.01), tools=[look])], ["x", "y", "z"])))


def with_sub_agent() -> lab.Agent:
    """An agent whose sub-agent looks: together 90 tokens and 6 cents, a third of it the agent's."""

    def answer(request: Any, index: int) -> Any:
        return say("end", cost="0.01") if index > 1 else call("research", {"task": "x"}, cost="0.01")

    tool = looking("worker").as_tool("research")
    return lab.Agent(ScriptedProvider(answer), tools=[tool], name="boss")


@pytest.mark.parametrize("where", ["file", "memory"])
def test_usage_of_sub_agents_counts_in_the_budget_on_resume(where: str, tmp_path: Path) -> None:
    store = Store(tmp_path / "r.db" if where == "file" else None)
    go(lab.Experiment([with_sub_agent()], ["x", "y", "z"], store=store, max_runs=None, cells=[("boss", "p1")]))
    study = lab.Experiment([with_sub_agent()], ["x", "y", "z"], store=store, budget=Budget(max_cost="0.06"))
    with pytest.warns(AgentlabWarning, match=r"2 runs were left out.*\$0\.06 of \$0\.06"):
        assert go(study).runs["state"].to_list() == ["ended", "not_started", "not_started"]


def test_usage_of_sub_agents_before_a_kill_counts_in_the_budget(tmp_path: Path) -> None:
    @lab.tool(inline=True)
    def deadly(q: str = "") -> str:
        """Ends its process at its second call."""
        if q == "2" and not (tmp_path / "killed").exists():
            (tmp_path / "killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return q

    def study(**more: Any) -> lab.Experiment:
        def answer(request: Any, index: int) -> Any:
            asked = len(request.messages) // 2 + 1
            return say("end", cost="0.01") if asked == 3 else call("deadly", {"q": str(asked)}, cost="0.01")

        sub_agent = lab.Agent(ScriptedProvider(answer), tools=[deadly]).as_tool("research")
        script = [call("research", {"task": "x"}, cost="0.01"), say("end", cost="0.01")]
        agent = lab.Agent(ScriptedProvider(script), tools=[sub_agent], name="boss")
        return lab.Experiment([agent], ["x", "y"], store=tmp_path / "r.db", **more)

    process = os.fork()
    if not process:
        try:
            asyncio.run(study().run(concurrency=1, progress=False))
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == -signal.SIGKILL
    assert study().results().runs[["state", "child_calls", "child_cost_usd"]].iloc[0].to_list() == ["interrupted", 1, 0.01]
    tight = study(budget=Budget(max_cost="0.01"))
    with pytest.warns(AgentlabWarning, match=r"1 run was left out and 1 run was stopped.*\$0\.01 of \$0\.01"):
        go(tight)
    results = go(study())
    assert results.runs["cost_usd"].to_list() == [0.02, 0.02]
    assert results.runs["child_cost_usd"].to_list() == pytest.approx([0.04, 0.03])
    assert results.summary()["cost_mean"].to_list() == pytest.approx([0.055])


def test_usage_of_sub_agents_is_in_the_comparison() -> None:
    study = lab.Experiment([with_sub_agent(), looking()], ["x", "y"], repeats=3)
    results = go(study)
    assert results.runs["cost_usd"].to_list() == pytest.approx([0.02] * 6 + [0.04] * 6)
    assert results.summary()[["tokens_mean", "cost_mean"]].to_numpy().tolist() == [[90.0, 0.06], [60.0, 0.04]]
    assert results.paired("cost_usd", against="a")["difference"].to_list() == pytest.approx([0.02])
    everything = study.store.frame("runs")
    assert len(everything) == 18  # the sub-agents' runs are stored too
    assert lab.summary(everything, by="provider")[["runs", "cost_mean"]].to_numpy().tolist() == [[12, pytest.approx(0.05)]]
    alone = everything[everything["called_by"].notna()]
    assert lab.summary(alone)[["runs", "cost_mean"]].to_numpy().tolist() == [[6, 0.04]]


def test_a_budget_that_cannot_be_enforced_is_reported() -> None:
    agent = lab.Agent(ScriptedProvider([say("end", tokens=(None, None))]))
    with pytest.warns(AgentlabWarning, match="max_cost of the experiment cannot be checked completely"):
        go(lab.Experiment([agent], ["x"], budget=Budget(max_cost=1)))


def test_requests_are_spaced_over_all_runs_of_a_provider() -> None:
    with serving_numbers(iter(range(100))) as base:
        asked_at = serving_numbers.asked_at  # type: ignore[attr-defined]
        agent = lab.Agent(lab.Provider("compatible", model="m", base_url=base, api_key="none"), name="a")
        begun = time.monotonic()
        go(lab.Experiment([agent], ["x"], repeats=6, rate_limits={"compatible": 600}), concurrency=6)
    assert len(asked_at) == 6
    assert all(at - begun >= 0.1 * place for place, at in enumerate(sorted(asked_at)))


def test_a_rate_limit_keeps_the_form_of_typed_answers_that_a_custom_model_asks_for() -> None:
    @dataclass
    class Trip:
        city: str

    class Structured:
        name, model, base_url = "mine", "m1", "http://127.0.0.1:9/v1"

        def output_form(self, *, with_tools: bool) -> str:
            return "schema"

        async def respond(self, request: Any, context: Any) -> Any:
            return say(json.dumps({"city": "Graz" if request.output_schema is not None and not request.tools else "no schema"}))

    results = go(lab.Experiment([lab.Agent(Structured(), output=Trip, name="a")], ["?"], rate_limits={"mine": 6000}))
    (ended,) = results.loaded
    assert ended.result.output == Trip("Graz")
    assert ended.provenance.base_url == "http://127.0.0.1:9/v1"


@pytest.mark.usefixtures("fake_time")
def test_custom_models_are_rate_limited_and_recordings_are_not() -> None:
    study = lab.Experiment([looking()], ["x", "y"], rate_limits={"scripted": 1200})
    begun = time.monotonic()
    assert go(study).runs["steps"].to_list() == [STEPS, STEPS]
    assert time.monotonic() - begun == pytest.approx(0.05 * (2 * STEPS - 1), abs=0.05)
    scenario = next(one for one in SCENARIOS if one.name == "question")
    with lab.replay(FIXTURES / "question"):
        begun = time.monotonic()
        go(lab.Experiment({"o": scenario.agent("openai")}, [scenario.prompt], repeats=20, rate_limits={"openai": 1}))
    assert time.monotonic() - begun < 0.1


# Dry runs --------------------------------------------------------------------------------------------------------------------------


def test_a_dry_run_reports_the_sum_of_the_limits_and_whether_it_is_a_bound() -> None:
    agent = lab.Agent("openai:gpt-4.1-mini", name="a")
    bounded = lab.Experiment([agent], ["x", "y"], [{"budget": Budget(max_cost="0.5", max_calls=7)}], repeats=3)
    estimate = bounded.dry_run()
    assert (estimate.runs, estimate.done, estimate.to_do, estimate.call_limit, estimate.token_limit, estimate.cost_limit_usd) == (
        6,
        0,
        6,
        42,
        None,
        3,
    )
    assert str(estimate) == (
        "6 of 6 runs to do; sum of their limits: 42 calls, any number of tokens, $3.0000. A run may exceed its limit by one model call."
    )
    unlimited = lab.Experiment([agent], ["x"], score=steps_taken).dry_run()
    assert (unlimited.cost_limit_usd, unlimited.unlimited) == (None, ("a with settings default",))
    assert "Nothing limits the cost of a with settings default: set Budget(max_cost=…)" in repr(unlimited)
    assert "The cost of the score is not included." in repr(unlimited)
    by_tokens = lab.Experiment([agent], ["x"], [{"budget": Budget(max_tokens=1_000_000)}]).dry_run()
    assert by_tokens.cost_limit_usd == Decimal("1.6")  # a million output tokens
    whole = lab.Experiment([agent], ["x"], [{"budget": Budget(max_cost="0.5")}], repeats=100, budget=Budget(max_cost=2))
    assert whole.dry_run().cost_limit_usd == 2
    assert lab.Experiment([agent], ["x"], repeats=9, budget=Budget(max_cost=2)).dry_run().cost_limit_usd == 2
    assert lab.Experiment([agent], ["x"], [{"budget": Budget(max_cost=1)}], repeats=9, max_runs=2).dry_run().cost_limit_usd == 2


def test_a_dry_run_reports_the_remaining_budget_and_whether_it_bounds_scores() -> None:
    def study(cost: str, **more: Any) -> lab.Experiment:
        return lab.Experiment([looking()], ["x", "y", "z"], budget=Budget(max_cost=cost), score=steps_taken, **more)

    half = study("0.06", settings=[{"budget": Budget(max_cost="0.05")}])
    assert "score" not in str(half.dry_run())  # of 6 cents in total
    half.budget = Budget(max_cost=9)
    assert "$0.1500. A run may exceed its limit by one model call. The cost of the score is not included." in str(half.dry_run())
    spent = study("0.04")
    with pytest.warns(AgentlabWarning, match="2 runs were left out"):
        go(spent, concurrency=1)
    estimate = spent.dry_run()
    assert (estimate.to_do, estimate.call_limit, estimate.token_limit, estimate.cost_limit_usd) == (2, 0, 0, 0)
    assert str(estimate) == "2 of 3 runs to do, but the budget of the experiment is spent: $0.04 of $0.04 (max_cost)."
    spent.budget = Budget(max_cost="0.05", max_calls=9)
    assert (spent.dry_run().call_limit, spent.dry_run().cost_limit_usd) == (5, Decimal("0.01"))


def test_cells_may_be_listed_and_filtered() -> None:
    listed = two(cells=[("b", "two", "short"), {"agent": "a", "prompt_id": "one", "settings": "whole", "repeat": 3}], repeats=2)
    assert [cell.label for cell in listed.grid.cells] == ["b/two/short/1", "b/two/short/2", "a/one/whole/3"]
    assert go(listed).runs["agent"].to_list() == ["b", "b", "a"]
    assert len(two(where=lambda cell: cell.agent == "a" and cell.prompt == "first").grid.cells) == 2
    with_one = two(cells=[("a", "one")], settings=[{"stop": StepCountIs(1)}])
    assert with_one.grid.cells[0].settings == "s1"


BAD: dict[str, tuple[Any, type[Exception], str]] = {
    "no-agents": (lambda: two(agents=[]), ConfigurationError, "agents=[]: pass at least one"),
    "no-tasks": (lambda: two(tasks={}), ConfigurationError, "tasks=[]: pass at least one"),
    "no-settings": (lambda: two(settings=[]), ConfigurationError, "settings=[]: pass at least one"),
    "no-cells": (lambda: two(cells=[]), ConfigurationError, "cells=[]: pass at least one"),
    "one-agent": (lambda: two(agents=looking()), ConfigurationError, "pass a list, such as agents=[…]"),
    "one-prompt": (lambda: two(tasks="go"), ConfigurationError, "tasks='go': pass a list"),
    "no-agent": (lambda: two(agents=["openai:gpt"]), ConfigurationError, "'openai:gpt' is not an agent: pass one, such as lab.Agent("),
    "same-name": (lambda: two(agents=[looking(), looking()]), ConfigurationError, "Two of the agents are called 'a'"),
    "same-model": (
        lambda: two(agents=[lab.Agent("openai:gpt"), lab.Agent("openai:gpt")]), ConfigurationError,
        "Two of the agents are called 'openai:gpt': pass a dict with a name for each",
    ),
    "same-prompt": (lambda: two(tasks=["x", "y", "x"]), ConfigurationError, "'p3' and 'p1' are the same task"),
    "blank-prompt": (lambda: two(tasks=["x", " "]), ConfigurationError, "'p2' has the prompt ' ': pass the task as text"),
    "number-for-a-name": (lambda: two(tasks={1: "x"}), ConfigurationError, "1 is not an id"),
    "unknown-setting": (lambda: two(settings=[{"bugdet": 1}]), ConfigurationError, "'s1' has 'bugdet'. Did you mean 'budget'?"),
    "no-dict": (lambda: two(settings=[Budget()]), ConfigurationError, "pass a dict, such as dict(budget=Budget(max_turns=5)"),
    "bad-setting": (lambda: two(settings={"x": {"stop": 5}}), ConfigurationError, "Agent 'a' with settings 'x': 5 is not a stop"),
    "no-such-tool": (lambda: two(settings=[{"terminating": ["lok"]}]), ConfigurationError, "Did you mean 'look'?"),
    "no-repeats": (lambda: two(repeats=0), LimitError, "repeats=0"),
    "filter-leaves-nothing": (lambda: two(where=lambda cell: False), ConfigurationError, "excludes all 8 cells"),
    "filter-number": (lambda: two(where=3), ConfigurationError, "where=3: pass a function of a cell"),
    "unknown-cell": (lambda: two(cells=[("a", "thre", "short")]), ConfigurationError, "There is no prompt_id 'thre'"),
    "cell-without-settings": (lambda: two(cells=[("a", "one")]), ConfigurationError, "names no settings: choose one of whole, short"),
    "empty-cell": (lambda: two(cells=["a"]), ConfigurationError, "cells: 'a': pass (agent, prompt_id)"),
    "cell-twice": (lambda: two(cells=[("a", "one", "short")] * 2), ConfigurationError, "is given twice: leave one out"),
    "same-id": (lambda: lab.Experiment({"a/b": looking(), "a": looking()}, {"c": "x", "b/c": "y"}), ConfigurationError, "same run id"),
    "name": (lambda: two(name="a#b"), ConfigurationError, "name='a#b': pass a name without '#'"),
    "score": (lambda: two(score=1), ConfigurationError, "score=1: pass a function"),
    "budget": (lambda: two(budget=5), LimitError, "budget=5: pass a Budget"),
    "budget-of-steps": (lambda: two(budget=Budget(max_turns=2)), LimitError, "max_turns=2 limits single runs: set it in settings"),
    "budget-of-20": (lambda: two(budget=Budget(max_turns=20)), LimitError, "[dict(budget=Budget(max_turns=20))]."),
    "budget-of-answers": (lambda: two(budget=Budget(max_tokens_per_turn=9, max_cost=1)), LimitError, "max_tokens_per_turn=9 limits"),
    "max-runs": (lambda: two(max_runs=0), LimitError, "max_runs=0"),
    "budget-later": (lambda: setattr(two(), "budget", 2), LimitError, "budget=2: pass a Budget, such as Budget(max_cost=5)."),
    "max-runs-later": (lambda: setattr(two(), "max_runs", 0.5), LimitError, "max_runs=0.5"),
    "score-later": (lambda: setattr(two(), "score", 1), ConfigurationError, "score=1: pass a function"),
    "rate-of-no-agent": (lambda: two(rate_limits={"openai": 5}), LimitError, "no agent uses the provider 'openai'. Choose from pa, pb"),
    "rate": (lambda: two(rate_limits={"pa": 0}), LimitError, "pass requests per minute, above 0"),
    "concurrency": (lambda: go(two(), concurrency=0), LimitError, "concurrency=0"),
    "executor": (lambda: go(two(), executor=4), ConfigurationError, "executor=4: pass a concurrent.futures.Executor"),
}  # fmt: skip


@pytest.mark.parametrize(("do", "error", "message"), BAD.values(), ids=BAD.keys())
def test_invalid_input_is_an_error_that_names_it(do: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        do()
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"tasks": ["another"]}, "with other prompt:"),
        ({"agents": [looking(instructions="Be brief.")]}, "with other instructions:"),
        ({"agents": [looking(provider="p2")]}, "with other provider:"),
        ({"settings": {"default": {"budget": Budget(max_turns=2)}}}, "with other settings:"),
    ],
)
def test_different_runs_under_the_same_name_are_refused(other: Any, message: str, tmp_path: Path) -> None:
    path = tmp_path / "r.db"
    go(lab.Experiment([looking()], ["x"], store=path))
    with pytest.raises(ConfigurationError, match=message):
        go(lab.Experiment(**{"agents": [looking()], "tasks": ["x"], "store": path, **other}))
    go(lab.Experiment(**{"agents": [looking()], "tasks": ["x"], "store": path, "name": "other", **other}))


def test_a_store_of_another_version_is_refused(tmp_path: Path) -> None:
    import sqlite3

    Store(tmp_path / "r.db").close()
    with contextlib.closing(sqlite3.connect(tmp_path / "r.db")) as database:
        database.execute("PRAGMA user_version = 99")
    with pytest.raises(StorageError, match="newer agentlab"):
        two(store=tmp_path / "r.db")


NO_ROOM = """
import resource, sys
import agentlab as lab
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
try:
    lab.Store(sys.argv[1])
except lab.errors.StorageError as error:
    print(error)
"""


def test_a_store_without_disk_space_says_so(tmp_path: Path) -> None:
    warning = subprocess.run(
        [sys.executable, "-c", NO_ROOM, str(tmp_path / "r.db")], check=True, timeout=60, capture_output=True, text=True
    ).stdout
    assert "The disk is full or damaged" in warning or "Free some space on the disk" in warning
    Store(tmp_path / "r.db").close()


def test_an_experiment_cannot_run_twice_at_once() -> None:
    study = lab.Experiment([lab.Agent(Slow(0.01), tools=[look])], ["x"])

    async def main() -> None:
        first = asyncio.ensure_future(study.run())
        await asyncio.sleep(0)
        with pytest.raises(ConfigurationError, match="is already running"):
            await study.run()
        await first

    asyncio.run(main())


def test_an_agent_observed_by_the_same_store_is_stored_once() -> None:
    store, seen = Store(), []
    agent = lab.Agent(ScriptedProvider(script), tools=[look], observers=[store, seen.append], name="a")
    assert go(lab.Experiment([agent], ["x"], store=store)).runs["steps"].to_list() == [STEPS]
    assert [type(event).__name__ for event in seen].count("StepCompleted") == STEPS


def test_providers_take_turns(tmp_path: Path) -> None:
    order: list[str] = []

    def noted(request: Any, index: int) -> Any:
        order.append(request.messages[0].text)
        return say("end")

    agents = {name: lab.Agent(ScriptedProvider(noted, name=name)) for name in ("pa", "pb")}
    cells = [("pa", "a1"), ("pa", "a2"), ("pa", "a3"), ("pb", "b1"), ("pb", "b2")]
    go(lab.Experiment(agents, {text: text for _, text in cells}, cells=cells), concurrency=2)
    assert sorted(order[:2]) == ["a1", "b1"]


def test_progress_bars_show_runs_cost_and_failures(capsys: pytest.CaptureFixture[str]) -> None:
    from agentlab.experiments.shared_budget import Spent
    from agentlab.experiments.status import Progress

    bars = Progress({"pa": 2, "pb": 1, "pairs": 2}, {"pa": 1}, shown=True)
    bars.spent("pa", "r1", Spent(1, 10, Decimal("0.5")))
    bars.spent("pa", "r1", Spent(2, 20, Decimal("0.75")))
    bars.ended("pa", failed=True)
    bars.spent("pb", "r2", Spent(unknown_cost=True))
    bars.ended("pairs", failed=False)
    assert [bars.text(name) for name in bars.total] == ["$0.7500, 1 failed", "cost unknown", ""]
    bars.close()
    assert capsys.readouterr().err == ""  # no front end could show them


def test_the_cost_is_drawn_before_a_run_ends(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from agentlab.experiments.shared_budget import Spent
    from agentlab.experiments.status import Progress

    monkeypatch.setenv("AGENTLAB_FRONTEND", "widgets")
    bars = Progress({"pa": 2}, {}, shown=True)
    bars._bars["pa"].last_print_t -= 1.0  # as if it had been drawn a second ago
    bars.spent("pa", "r1", Spent(1, 10, Decimal("0.5")))
    bars.spent("pa", "r1", Spent(2, 20, Decimal("0.75")))
    drawn = capsys.readouterr().err
    assert "| 0/2 [" in drawn
    assert "$0.5000" in drawn
    assert "$0.7500" not in drawn  # not twice within half a second
    bars.ended("pa", failed=False)
    bars.close()
    assert "$0.7500" in capsys.readouterr().err


def test_results_are_available_without_running() -> None:
    study = two()
    runs = study.results().runs
    assert runs["state"].to_list() == ["not_started"] * 8
    assert runs.dtypes.astype(str).to_dict() == go(two()).runs.dtypes.astype(str).to_dict() | {"score": "Float64"}
    assert untimed(study.results().steps).empty
    assert call("look").tool_calls


def test_results_are_compared_and_drawn_by_agent_and_settings() -> None:
    agents = {"one": looking("one"), "two": looking("two", provider="other")}
    settings = {"short": {"stop": StepCountIs(2)}, "long": {}}
    study = lab.Experiment(agents, ["go"], settings, repeats=2, score=lambda result: result.terminated)
    results = go(study, progress=False)
    summary = results.summary()
    assert list(zip(summary["agent"], summary["settings"], summary["success_rate"], strict=True)) == [
        ("one", "short", 0.0), ("one", "long", 1.0), ("two", "short", 0.0), ("two", "long", 1.0),
    ]  # fmt: skip
    assert list(results.summary(by="agent")["runs"]) == [4, 4]
    assert list(results.paired("total_tokens")["difference"]) == [0.0]
    assert results.agreement().overall["share"].iloc[0] == 1.0
    assert "one" in results.plot(by="agent").alt


def test_a_prompt_with_a_key_resumes_and_a_name_with_a_key_is_refused(tmp_path: Path) -> None:
    key = "sk-" + "planted0123456789abcdef"

    def study() -> lab.Experiment:
        return lab.Experiment([lab.Agent(ScriptedProvider(["done"]))], [f"Use {key}"], store=tmp_path / "runs.sqlite")

    assert asyncio.run(study().run(progress=False)).runs["prompt"].to_list() == ["Use REDACTED"]
    assert study().dry_run().to_do == 0
    with pytest.raises(ConfigurationError, match=r"REDACTED.* contains a key"):
        lab.Experiment({key: lab.Agent(ScriptedProvider(["done"]))}, ["go"])


@pytest.mark.parametrize("place", ["prompt", "instructions", "options", "settings"])
@pytest.mark.parametrize("kind", ["looks like one", "known to the process", "known, in what looks like one then"])
def test_an_experiment_with_a_key_resumes_as_the_same_experiment(
    kind: str, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = "planted/Opaque+0123456789"
    key = {"looks like one": "sk-" + "planted0123456789abcdef", "known to the process": planted}.get(kind, f"sk-{planted}-abcdef")
    monkeypatch.setenv("PLANTED_API_KEY", planted)
    known_keys.read_environment()
    prompt = f"Use {key} now"
    under_way: list[asyncio.Task[Any]] = []

    asked: list[str] = []

    @lab.tool
    async def cut_off(q: str) -> str:
        """Cancels the experiment at its second call."""
        asked.append(q)
        if len(asked) == 2:
            under_way[0].cancel()
            await asyncio.sleep(30)
        return q

    def study(more: str = "") -> lab.Experiment:
        text = {one: prompt + more if one == place else "Go." for one in ("prompt", "instructions", "options", "settings")}
        terminating = lab.TerminatingTools(["look"], nudge_message=text["settings"])
        model = ScriptedProvider(lambda request, index: call("look" if len(request.messages) > 4 else "cut_off", {"q": "1"}))
        more_ = {"instructions": text["instructions"], "options": {"stop": [text["options"]]}}
        agent = lab.Agent(model, tools=[look, cut_off], name="a", **more_)
        return lab.Experiment([agent], [text["prompt"]], [{"terminating": terminating}], store=tmp_path / "runs.sqlite")

    async def cut() -> None:
        under_way.append(asyncio.ensure_future(study().run(progress=False)))
        with pytest.raises(asyncio.CancelledError):
            await under_way[0]
        under_way.clear()

    asyncio.run(cut())
    assert [(one.state, one.stored is not None) for one in study().results().statuses] == [("interrupted", True)]
    first = asyncio.run(study().run(progress=False))
    assert first.runs["stop_reason"].to_list() == ["terminating_tool"]
    again = asyncio.run(study().run(progress=False))
    assert_same(first, again)
    assert study().dry_run().to_do == 0
    with pytest.raises(ConfigurationError, match=f"with other {place}: "):
        study(" and here").results()
    written = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert planted.encode() not in written
    assert b"planted0123456789" not in written


def test_a_store_error_that_names_no_run_does_not_mean_a_missing_run() -> None:
    from agentlab.storage.loader import find

    class Locked(MemoryStorage):
        def runs(self, run_ids: Any = None) -> Any:
            raise StorageError("There is no running process that holds the lock of 'here'.")

    with pytest.raises(StorageError, match="holds the lock"):
        find(Locked(), "r1")
    assert find(MemoryStorage(), "r1") is None

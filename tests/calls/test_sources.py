"""Where and when a response was made: of a live call, of its replay, in frames and in a store."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import agentlab as lab
from agentlab.transport.cassettes import Interaction
from agentlab.types import ResponseSource

from .made import agent, finished, go, looking_for
from .server import serving


def sources(result: lab.RunResult) -> list[ResponseSource]:
    found = [call.response.source for step in result.history for call in step.calls]
    assert all(found)
    return [source for source in found if source is not None]


def recorded(folder: Path, *, streaming: bool, store: lab.Store | None = None) -> tuple[lab.RunResult, lab.RunResult]:
    """A run of two calls over loopback, and its replay."""
    observers = [] if store is None else [store]
    with serving(script=looking_for(lambda asked: ["tea"], "compatible")) as server:
        with lab.record(folder):
            live = go(finished(agent(server, stream=streaming).run("go", observers=observers)))
        with lab.replay(folder):
            again = go(finished(agent(server, key=None, stream=streaming).run("go", observers=observers)))
    return live, again


@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "streamed"])
def test_a_replayed_call_has_the_time_of_its_recording(streaming: bool, tmp_path: Path) -> None:
    before = datetime.now(UTC)
    live, again = recorded(tmp_path, streaming=streaming)
    first, *_ = sources(live)
    assert first.at is not None
    assert before <= first.at <= datetime.now(UTC)
    assert [(source.replayed, source.recording) for source in sources(live)] == [(False, ""), (False, "")]
    for made, replayed in zip(sources(live), sources(again), strict=True):
        assert replayed.digest == made.digest
        assert replayed.at is not None
        assert made.at is not None
        assert abs(replayed.at - made.at) < timedelta(seconds=2)  # a recording keeps whole seconds
    assert [source.replayed for source in sources(again)] == [True, True]
    assert sources(again)[1].recording.endswith(".yaml, interaction 2")


def test_frames_and_stores_keep_it(tmp_path: Path) -> None:
    store = lab.Store(tmp_path / "runs.sqlite")
    live, again = recorded(tmp_path / "rec", streaming=False, store=store)
    for calls, runs in (
        (lab.frame([live, again], "calls"), lab.frame([live, again], "runs")),
        (store.frame("calls"), store.frame("runs")),
    ):
        assert list(calls["replayed"]) == [False, False, True, True]
        assert str(calls["called_at"].dtype) == "datetime64[us, UTC]"
        assert calls["called_at"].notna().all()
        assert calls["recording"].isna().tolist() == [True, True, False, False]
        assert calls["response_hash"].nunique() == 2
        assert list(runs["replayed"]) == [False, True]
        assert runs["recording_id"].nunique() == 1  # the replay adds nothing that the live run did not have
    loaded = store.load(again.run_id).result
    assert loaded is not None
    assert sources(loaded) == sources(again)


def test_a_branch_begins_with_the_response_of_its_run(tmp_path: Path) -> None:
    async def branched() -> tuple[lab.RunResult, lab.RunResult]:
        with lab.replay("fixtures/trip", match="order"):
            run = lab.Agent("anthropic:claude-sonnet-4-6", tools=[]).run("?", stop=lab.StepCountIs(2))
            return await run, await run.fork(at=1)

    runs = lab.frame(list(go(branched())), "runs")
    assert runs["recording_id"].nunique() == 1


def test_a_model_without_http_has_no_source() -> None:
    from agentlab.testing import ScriptedProvider

    result = go(finished(lab.Agent(ScriptedProvider(["Hi."])).run("?")))
    assert result.history[0].calls[0].response.source is None
    assert lab.frame(result, "runs")[["replayed", "recording_id"]].isna().all(axis=None)
    assert lab.frame(result, "calls")["called_at"].isna().all()


def interaction(recorded_at: Any = None, **headers: str) -> Interaction:
    entry: dict[str, Any] = {
        "request": {"method": "GET", "uri": "https://kiosk.example/"},
        "response": {"status": {"code": 200, "message": "OK"}, "headers": headers, "body": {"string": "{}"}},
    }
    if recorded_at is not None:
        entry["recorded_at"] = recorded_at
    return Interaction(entry, "kiosk.yaml", 1)


NOON = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("made", "at"),
    [
        (interaction("2026-11-20T12:00:00Z"), NOON),
        (interaction("2026-11-20T14:00:00+02:00"), NOON),
        (interaction(datetime(2026, 11, 20, 12, 0, tzinfo=UTC)), NOON),  # as YAML reads it
        (interaction("Fri, 20 Nov 2026 12:00:00 GMT"), NOON),  # as VCR for Ruby writes it
        (interaction(date="Fri, 20 Nov 2026 12:00:00 GMT"), NOON),  # the server's header
        (interaction("2026-11-20T12:00:00Z", date="Sat, 21 Nov 2026 12:00:00 GMT"), NOON),
        (interaction("2026-11-20T12:00:00"), None),  # no zone: the hour is not known
        (interaction("yesterday"), None),
        (interaction(20261120), None),
        (interaction(), None),
    ],
)
def test_the_time_of_a_recording(made: Interaction, at: datetime | None) -> None:
    assert made.recorded.at == at

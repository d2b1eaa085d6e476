"""Source and time of a response, and the account's rate limits in its headers: of a live call, of its replay, in frames and in
a store."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import agentlab as lab
from agentlab.model.responses import RateLimit, ResponseSource
from agentlab.transport.cassette import Interaction
from agentlab.transport.http import read_rate_limit

from .call_builders import HELLO, agent, finished, go, looking_for, pieces, result_of, retried, whole_body
from .server import JSON_TYPE, SSE_TYPE, raw, serving, status, whole


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
        assert abs(replayed.at - made.at) < timedelta(seconds=2)  # a recording stores whole seconds
    assert [source.replayed for source in sources(again)] == [True, True]
    assert sources(again)[1].recording.endswith(".yaml, interaction 2")


def test_frames_and_stores_keep_the_source(tmp_path: Path) -> None:
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
        assert runs["recording_id"].nunique() == 1  # the replay adds nothing to the live run
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
        (interaction(datetime(2026, 11, 20, 12, 0, tzinfo=UTC)), NOON),  # as YAML parses it
        (interaction("Fri, 20 Nov 2026 12:00:00 GMT"), NOON),  # as VCR for Ruby writes it
        (interaction(date="Fri, 20 Nov 2026 12:00:00 GMT"), NOON),  # the server's header
        (interaction("2026-11-20T12:00:00Z", date="Sat, 21 Nov 2026 12:00:00 GMT"), NOON),
        (interaction("2026-11-20T12:00:00"), None),  # without a zone the hour is unknown
        (interaction("yesterday"), None),
        (interaction(20261120), None),
        (interaction(), None),
    ],
)
def test_the_time_of_a_recording(made: Interaction, at: datetime | None) -> None:
    assert made.recorded.at == at


# Rate limits ----------------------------------------------------------------------------------------------------------------


def of(requests: tuple[str, str, str] | None = None, tokens: tuple[str, str, str] | None = None) -> dict[str, str]:
    """Headers as OpenAI names them."""
    kinds = (("requests", requests), ("tokens", tokens))
    words = ("remaining", "limit", "reset")
    return {f"x-ratelimit-{word}-{kind}": one for kind, said in kinds if said for word, one in zip(words, said, strict=True)}


def anthropic(kind: str, *said: str) -> dict[str, str]:
    return {f"anthropic-ratelimit-{kind}-{word}": one for word, one in zip(("remaining", "limit", "reset"), said, strict=True)}


NOON_S = NOON.timestamp()
RATES: dict[str, tuple[dict[str, str], RateLimit | None]] = {
    "nothing": ({"content-type": "application/json"}, None),
    "openai": (of(("499", "500", "120ms"), ("149984", "150000", "6m0s")), RateLimit(499, 500, 0.12, 149_984, 150_000, 360.0)),
    "groq": (
        of(("14370", "14400", "2m59.56s"), ("17997", "18000", "7.66s")),
        RateLimit(14370, 14400, 179.56, 17997, 18000, 7.66),
    ),
    "hours": (of(("1", "2", "1h2m3s")), RateLimit(1, 2, 3723.0)),
    "days": (of(("1", "2", "1d")), RateLimit(1, 2, 86_400.0)),
    "azure": (of(("9", "10", "37"), ("-1", "-1", "0")), RateLimit(9, 10, 37.0, None, None, 0.0)),
    "anthropic": (
        anthropic("requests", "49", "50", "2026-11-20T12:00:01Z")
        | anthropic("tokens", "0", "40000", "2026-11-20T13:00:00+00:00"),
        RateLimit(49, 50, 1.0, 0, 40_000, 3600.0),
    ),
    "in the past": (
        anthropic("tokens", "1", "2", "2026-11-20T11:59:00Z"),
        RateLimit(tokens_left=1, tokens_limit=2, tokens_renew_s=0.0),
    ),
    "openrouter": (
        {"x-ratelimit-limit": "50", "x-ratelimit-remaining": "0", "x-ratelimit-reset": str(int(NOON_S + 60) * 1000)},
        RateLimit(0, 50, 60.0),
    ),
    "seconds since 1970": ({"x-ratelimit-reset": str(int(NOON_S + 60))}, RateLimit(requests_renew_s=60.0)),
    "xai, without a time": ({"x-ratelimit-limit-requests": "480", "x-ratelimit-remaining-requests": "479"}, RateLimit(479, 480)),
    "mistral, of a minute": (
        {
            "x-ratelimit-limit-req-minute": "60",
            "x-ratelimit-remaining-req-minute": "54",
            "x-ratelimit-limit-tokens-minute": "500000",
            "x-ratelimit-remaining-tokens-minute": "499739",
        },
        RateLimit(54, 60, None, 499_739, 500_000),
    ),
    "words": (of(("many", "", "soon"), ("1,000", "1000;w=60", "6m0")), None),
    "too large": (of(("9" * 5000, "1e400", "nan"), ("9" * 30, "inf", "9" * 400 + "h")), None),
    "another header": ({"x-ratelimit-policy": "10;w=60"}, None),
}


@pytest.mark.parametrize(("headers", "expected"), RATES.values(), ids=RATES)
def test_rate_limits_from_headers(headers: dict[str, str], expected: RateLimit | None) -> None:
    assert read_rate_limit(headers, lambda: NOON_S) == expected


def test_a_reset_time_is_unknown_without_the_time_of_the_response() -> None:
    headers = anthropic("tokens", "1", "2", "2026-11-20T12:00:00Z")
    assert read_rate_limit(headers, lambda: None) == RateLimit(tokens_left=1, tokens_limit=2)


COLUMNS = [f"rate_{kind}_{what}" for kind in ("requests", "tokens") for what in ("left", "limit", "renew_s")]


@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "streamed"])
def test_rate_limits_are_kept_with_the_call(streaming: bool, tmp_path: Path) -> None:
    headers = [*of(("499", "500", "120ms")).items(), *anthropic("tokens", "9", "10", "2026-11-20T12:00:30Z").items()]
    headers += [("date", "Fri, 20 Nov 2026 12:00:00 GMT")]
    body = b"".join(pieces("compatible", HELLO)) if streaming else json.dumps(whole_body("compatible", HELLO)).encode()
    store, expected = lab.Store(tmp_path / "runs.sqlite"), RateLimit(499, 500, 0.12, 9, 10, 30.0)
    with serving(raw(body, SSE_TYPE if streaming else JSON_TYPE, *headers)) as server:
        with lab.record(tmp_path / "rec"):
            live = go(finished(agent(server, stream=streaming).run("go", observers=[store])))
        with lab.replay(tmp_path / "rec"):
            again = go(finished(agent(server, key=None, stream=streaming).run("go", observers=[store])))
    assert live.text == again.text == "Hello there"
    assert [result.history[0].calls[0].response.rate_limit for result in (live, again)] == [expected, expected]
    kept = store.load(again.run_id).result
    assert kept is not None and kept.history[0].response.rate_limit == expected
    for frame in (lab.frame([live, again], "calls"), store.frame("calls")):
        assert frame[COLUMNS].to_numpy().tolist() == [[499, 500, 0.12, 9, 10, 30.0]] * 2
        assert list(map(str, frame[COLUMNS].dtypes)) == ["Int64", "Int64", "Float64"] * 2


def test_an_error_response_has_rate_limits() -> None:
    headers = of(("0", "500", "1ms")).items()
    with serving(status(429, None, *headers), whole(whole_body("compatible", HELLO))) as server:
        result = result_of(server)
    assert result.text == "Hello there"
    assert [event.rate_limit for event in retried(result)] == [RateLimit(0, 500, 0.001)]
    assert lab.frame(result, "calls")[COLUMNS].isna().all(axis=None)
    with serving(status(429, None, *headers)) as server:
        failed = result_of(server, retry=lab.RetryPolicy(attempts=1))
    assert isinstance(failed.error, lab.errors.ProviderStatusError)
    assert failed.error.rate_limit == RateLimit(0, 500, 0.001)


def test_openrouter_has_rate_limits_in_the_body_of_an_error() -> None:
    headers = {
        "X-RateLimit-Limit": "50",
        "X-RateLimit-Remaining": "0",
        "X-RateLimit-Reset": str(int(NOON_S + 60) * 1000),
        "X-Other": 1,
    }
    refused = {"error": {"message": "Rate limit exceeded: free-models-per-day.", "code": 429, "metadata": {"headers": headers}}}
    date = ("date", "Fri, 20 Nov 2026 12:00:00 GMT")
    for body, expected in ((refused, RateLimit(0, 50, 60.0)), ({"error": {"metadata": {"headers": [1]}}}, None), ([1], None)):
        with serving(status(429, body, date)) as server:
            result = result_of(server, "openrouter", retry=lab.RetryPolicy(attempts=1))
        assert isinstance(result.error, lab.errors.ProviderStatusError)
        assert result.error.rate_limit == expected


def test_events_of_earlier_stores_are_read_without_a_source() -> None:
    from agentlab.storage.codec import event_to_jsonable, events_from_jsonable

    first_retry = lab.events.CallRetried(1.0, 1, 1, 0.5, "busy")
    assert "rate_limit" not in event_to_jsonable(first_retry)
    with_limits = lab.events.CallRetried(1.0, 1, 1, 0.5, "busy", RateLimit(0, 500, 0.001))
    assert events_from_jsonable([event_to_jsonable(first_retry), event_to_jsonable(with_limits)], ()) == [
        first_retry,
        with_limits,
    ]

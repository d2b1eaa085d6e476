"""Every fault on every reader of answers, whole and streamed: it is retried, or it is a step that says why; earlier steps are kept.
The providers that share a reader take some of the faults each.

The faults are injected over a recording; test_faults_on_the_wire.py covers those on the level of bytes through a real socket.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest
from fake_time import OwnTime

import agentlab as lab
from agentlab.engine.client import _is_unrecognised
from agentlab.errors import ProviderConnectionError, ProviderPayloadError, ProviderStatusError
from agentlab.model.finish_reasons import Confidence, FinishReason
from agentlab.providers.wires.read import ends_early
from agentlab.testing import faults, faulty

from .conversation import ANSWERS, NAMES, READERS, SPOILT, TALKS, WHOLE, Held, Talk
from .table import show

SILENCE_S = 0.01
SOON_S = 10.0

ANSWERED, RETRIED, BROKEN, REFUSED, NO_ANSWER, REPORTED = (
    "answered",
    "retried",
    "broken off",
    "refused",
    "no answer",
    "reported",
)

FAULTS: dict[str, tuple[Callable[[int], faults.Fault], str, str]] = {
    # the fault, made for a body of this many bytes; the outcome for a whole body, and for a stream
    "connection refused": (lambda size: faults.Refused(), RETRIED, RETRIED),
    "reset before or within the headers": (lambda size: faults.Reset(), RETRIED, RETRIED),
    "reset before the first byte of the body": (lambda size: faults.Reset(0), RETRIED, RETRIED),
    "reset in mid-body": (lambda size: faults.Reset(size // 2), RETRIED, BROKEN),
    "slow": (lambda size: faults.Slow(-(-size // 20), 0.0005), ANSWERED, ANSWERED),
    "stalled before the headers": (lambda size: faults.Stalled(longest_s=SILENCE_S), RETRIED, RETRIED),
    "stalled in mid-body": (lambda size: faults.Stalled(size // 2, longest_s=SILENCE_S), RETRIED, BROKEN),
    "429": (lambda size: faults.Status(429), RETRIED, RETRIED),
    "429, Retry-After: 0.1": (lambda size: faults.Status(429, retry_after_s=0.1), RETRIED, RETRIED),
    "429, Retry-After: 3600": (lambda size: faults.Status(429, retry_after_s=3600), REFUSED, REFUSED),
    "500": (lambda size: faults.Status(500), RETRIED, RETRIED),
    "502, a page": (lambda size: faults.Status(502, body="<html><h1>Bad gateway</h1>"), RETRIED, RETRIED),
    "503, empty": (lambda size: faults.Status(503, body=""), RETRIED, RETRIED),
    "529": (lambda size: faults.Status(529), RETRIED, RETRIED),
    "400": (lambda size: faults.Status(400), REFUSED, REFUSED),
    "invalid JSON": (lambda size: faults.InvalidJson(), NO_ANSWER, NO_ANSWER),
    "ended early, before the first byte": (lambda size: faults.Cut(0), RETRIED, RETRIED),
    "ended early, within the first piece": (lambda size: faults.Cut(11), RETRIED, RETRIED),
    "ended early, in the middle of its JSON": (lambda size: faults.Cut(size // 2), RETRIED, BROKEN),
    "an HTML page under 200": (lambda size: faults.Page(), NO_ANSWER, NO_ANSWER),
    "the answer as text/plain": (lambda size: faults.Relabelled(), ANSWERED, ANSWERED),
    "gzip broken at its start": (lambda size: faults.BrokenGzip(), RETRIED, RETRIED),
    "gzip broken in mid-body": (lambda size: faults.BrokenGzip(size // 2), RETRIED, BROKEN),
    "an error object under 200": (lambda size: faults.ErrorInBody(kind="invalid_request"), REPORTED, REPORTED),
    "every chunk twice": (lambda size: faults.Repeated(), NO_ANSWER, ANSWERED),
    "2 MB": (lambda size: faults.Padded(2_000_000), ANSWERED, ANSWERED),
}


SHARED = [talk for talk in TALKS if talk.name not in READERS]


def faults_of(talk: Talk) -> list[str]:
    """All faults for a reader's own provider. The others differ from it in addresses, keys and finish reasons only, and take every
    fourth fault, each from another one on: together they have each of them several times, whole and streamed."""
    return list(FAULTS) if talk.name in READERS else list(FAULTS)[(SHARED.index(talk) * 3 // 2) % 4 :: 4]


def held(talk: Talk, fault: Any, **more: Any) -> Held:
    """The conversation with its second response damaged, and all invariants of every fault."""
    transport = faulty(fault, at=SPOILT, over=talk.recording())
    with OwnTime().is_everybodys():
        before = time.monotonic()
        found: Held = asyncio.run(talk.held(transport, **more))
        assert time.monotonic() - before < SOON_S
    assert transport.injected == 1
    assert_nothing_lost(found)
    return found


def assert_nothing_lost(found: Held) -> None:
    """The first step is unchanged; the tool was only called as the model asked; the end says why."""
    result = found.result
    first = result.history[0]
    assert (first.text, first.usage.total_tokens) == ("Let me see", 15)
    assert [one.content for one in first.tool_results] == ["saw tea"]
    assert found.looked[:1] == WHOLE[:1]
    assert set(found.looked) <= set(WHOLE)
    assert len(found.looked) == len(set(found.looked))
    assert result.detail
    if result.stop_reason == "error":
        step = result.history[-1]
        assert step.stop_reason == "error"
        assert step.tool_results == () or {one.error for one in step.tool_results} == {"not_executed"}
        assert found.looked == WHOLE[:1]
        assert result.history.known_tokens >= 15


def assert_ended_so(found: Held, expected: str) -> None:
    """The run has the outcome of the table."""
    result, signal = found.result, found.result.history[1].signal
    if expected in (ANSWERED, RETRIED):
        assert (found.outcome, result.text) == (expected, "Hello there")
        assert [event.step for event in found.retries] == ([SPOILT] if expected == RETRIED else [])
        assert [step.calls[0].retries for step in result.history] == ([0, 1, 0] if expected == RETRIED else [0, 0, 0])
        return
    assert (found.outcome, len(result.history), found.retries) == ("error", 2, [])
    if expected == BROKEN:
        assert signal is not None
        assert (signal.finish_reason, signal.confidence) == (FinishReason.ERROR, Confidence.LOW)
        assert "broke off" in result.detail
        assert result.history[1].usage.total_tokens is None
        assert ANSWERS[1].text[0] in result.history[1].text or not result.history[1].text
    elif expected == REPORTED:
        assert signal is not None
        assert (signal.finish_reason, signal.message) == (FinishReason.ERROR, "The provider reports an error: an injected error")
    else:
        assert isinstance(result.error, ProviderStatusError if expected == REFUSED else ProviderPayloadError)
        assert signal is None


@pytest.mark.parametrize("talk", TALKS, ids=lambda talk: talk.id)
def test_every_fault_is_retried_or_is_a_step_that_says_why(talk: Talk) -> None:
    size = len(talk.bodies()[SPOILT - 1])
    for name in faults_of(talk):
        fault, whole, streamed = FAULTS[name]
        found = held(talk, fault(size))
        expected = streamed if talk.streaming else whole
        if name == "every chunk twice" and talk.streaming:
            assert found.outcome == "answered"  # deliberate repetition cannot be distinguished from duplicated chunks; see below
            assert (found.result.stop_reason, found.retries) == ("completed", [])
            outcome = "called once" if found.looked == WHOLE else "not called"
        else:
            assert_ended_so(found, expected)
            outcome = expected
        _seen.append((name, talk, outcome))


@pytest.mark.parametrize(
    "talk",
    [
        pytest.param(talk, id=talk.id, marks=() if talk.name in ("openai", "bedrock") else pytest.mark.soak)
        for talk in TALKS
        if talk.name in READERS
    ],
)
def test_50_mb_are_answered(talk: Talk) -> None:
    """`make test` takes one provider for each kind of stream, events in lines and in frames; every reader takes 2 MB."""
    assert_ended_so(held(talk, faults.Padded(50_000_000)), ANSWERED)


_seen: list[tuple[str, Talk, str]] = []


def test_the_table_of_the_faults() -> None:
    """Runs after the matrix and prints its observations."""
    if len(_seen) != sum(len(faults_of(talk)) for talk in TALKS):
        pytest.skip("only a part of the matrix was run")

    def outcome_of(name: str, streaming: bool) -> str:
        return counted(outcome for fault, talk, outcome in _seen if fault == name and talk.streaming is streaming)

    rows = [(name, outcome_of(name, False), outcome_of(name, True)) for name in FAULTS]
    text = show("faults", (f"fault, on {len(NAMES)} wires", "a whole body", "a stream"), rows)
    assert len(text.splitlines()) == len(FAULTS) + 1
    for streaming, words in ((False, "whole bodies"), (True, "streams")):
        on = {(fault, talk.name): outcome for fault, talk, outcome in _seen if talk.streaming is streaming}
        matrix = show(
            f"faults, {words}", (words, *NAMES), [(name, *(on.get((name, wire), "") for wire in NAMES)) for name in FAULTS]
        )
        assert len(matrix.splitlines()) == len(FAULTS) + 1
        for name in FAULTS:
            assert sum(fault == name and wire not in READERS for fault, wire in on) >= 4


def counted(outcomes: Iterable[str]) -> str:
    """How often each occurred."""
    return ", ".join(f"{count} {outcome}" for outcome, count in Counter(outcomes).most_common())


# More than once -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("talk", TALKS, ids=lambda talk: talk.id)
def test_a_persistent_fault_ends_the_run_after_the_allowed_attempts(talk: Talk) -> None:
    for fault, error in ((faults.Refused(), ProviderConnectionError), (faults.Status(529), ProviderStatusError)):
        transport = faulty(fault, at=SPOILT, times=None, over=talk.recording())
        found = asyncio.run(talk.held(transport))
        assert_nothing_lost(found)
        assert isinstance(found.result.error, error)
        assert (transport.injected, [event.attempt for event in found.retries]) == (4, [1, 2, 3])


@pytest.mark.parametrize("talk", TALKS, ids=lambda talk: talk.id)
def test_one_fault_after_the_other(talk: Talk) -> None:
    plan = [faults.Refused(), faults.Status(529), faults.Reset(), None, faults.Stalled(longest_s=SILENCE_S), faults.Reset(0)]
    found = asyncio.run(talk.held(faulty(plan, over=talk.recording())))
    assert (found.outcome, found.looked, found.result.text) == ("retried", WHOLE, "Hello there")
    assert [step.calls[0].retries for step in found.result.history] == [3, 2, 0]


@pytest.mark.usefixtures("fake_time")
@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("after", [None, 0, 60])
def test_the_budget_ends_a_silence(streaming: bool, after: int | None) -> None:
    """The read timeout alone is five minutes."""
    talk = Talk("compatible", streaming)
    transport = faulty(faults.Stalled(after), at=SPOILT, over=talk.recording())
    before = time.monotonic()
    found = asyncio.run(talk.held(transport, budget=lab.Budget(timeout=0.3)))
    assert time.monotonic() - before == pytest.approx(0.3, abs=0.01)
    assert (found.result.stop_reason, len(found.result.history), found.looked) == ("timeout", 2, WHOLE[:1])
    assert found.result.history.known_tokens == 15


# Repeated chunks ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("talk", [talk for talk in TALKS if talk.streaming], ids=lambda talk: talk.id)
@pytest.mark.parametrize("times", [2, 3])
def test_a_call_with_repeated_chunks_is_executed_at_most_once_and_is_uncertain(talk: Talk, times: int) -> None:
    found = held(talk, faults.Repeated(times))
    signal = found.result.history[1].signal
    assert signal is not None
    assert signal.confidence is not Confidence.HIGH
    if found.looked == WHOLE[:1]:  # the result said that the arguments are not JSON
        assert [one.error for one in found.result.history[1].tool_results] == ["invalid_arguments"]


# Any byte -------------------------------------------------------------------------------------------------------------------


def places(size: int, step: int) -> list[int]:
    """Places all over a body; every one if the step is 1."""
    return sorted({*range(0, size, step), *range(max(0, size - 5), size)})


def spoilt_anywhere(kind: str, step: int, names: Sequence[str]) -> list[tuple[str, str, int, str]]:
    """The conversation with each of these providers, its second answer damaged at each of many places, one after the other."""
    make = {"reset": faults.Reset, "cut": faults.Cut, "garbled": faults.Garbled}[kind]
    rows = []
    for streaming in (False, True):
        outcomes: Counter[str] = Counter()
        for talk in (talk for talk in TALKS if talk.streaming is streaming and talk.name in names):
            body = talk.bodies()[SPOILT - 1]
            for at in places(len(body), step):
                outcomes[one_place(talk, kind, make(at))] += 1
        outcome_of = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.most_common())
        rows.append((kind, "streams" if streaming else "whole bodies", outcomes.total(), outcome_of))
    return rows


def one_place(talk: Talk, kind: str, fault: faults.Fault) -> str:
    """The outcome; for a damaged byte only what a stream can detect."""
    if kind == "garbled" and not talk.streaming:
        found = asyncio.run(talk.held(faulty(fault, at=SPOILT, over=talk.recording())))
        assert found.result.history[0].text == "Let me see"
        return found.outcome
    transport = faulty(fault, at=SPOILT, over=talk.recording())
    found = asyncio.run(talk.held(transport))
    result = found.result
    if kind == "garbled":
        assert result.history[0].text == "Let me see"
        assert all(len(asked) == len(WHOLE[1]) for asked in found.looked[1:]), (fault, found.looked)
        return found.outcome
    assert_nothing_lost(found)
    assert not isinstance(result.error, ProviderPayloadError), "the beginning of an answer was taken for something else"
    if found.outcome == "answered":  # the end had arrived: nothing is missing
        assert found.looked == WHOLE
        assert talk.streaming
    elif found.outcome == "retried":
        assert found.looked == WHOLE
        assert [event.step for event in found.retries] == [SPOILT]
    else:
        assert found.outcome == "error", fault
        assert found.retries == []
        assert talk.streaming, "an incomplete whole body is always retried"
    return found.outcome


@pytest.mark.parametrize("talk", TALKS, ids=lambda talk: talk.id)
def test_a_body_without_any_content_is_known_to_be_truncated_at_every_place(talk: Talk) -> None:
    """With the readers alone, which is fast enough for every byte."""
    body = talk.bodies()[SPOILT - 1]
    if not talk.streaming:
        assert [at for at in range(1, len(body)) if not ends_early(body[:at])] == []
        return
    for at in range(1, len(body)):
        parser = talk.provider().stream_parser()
        outcome_of = parser.feed(body[:at])
        parser.finish()
        if outcome_of or not _is_unrecognised(parser.response()):
            break
        assert parser.cut_short, body[:at]
    assert at > len(b"data: {")


PLACES = ("fault", "where", "places", "outcome")


@pytest.mark.parametrize("kind", ["reset", "cut", "garbled"])
def test_a_fault_at_many_bytes(kind: str) -> None:
    show(f"faults-many-bytes-{kind}", PLACES, spoilt_anywhere(kind, 151, READERS))


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", ["reset", "cut", "garbled"])
def test_a_fault_at_any_byte(kind: str) -> None:
    show(f"faults-any-byte-{kind}", PLACES, spoilt_anywhere(kind, 1, NAMES))

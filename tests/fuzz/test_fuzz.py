"""Broken responses of every kind, on every wire: no exception, and no clean end of a broken stream. See `properties.py`."""

from __future__ import annotations

import logging
import random
from functools import cache

import pytest

import agentlab as lab
from agentlab.model.responses import ModelResponse
from tests.fuzz import mutations, properties
from tests.fuzz.seeds import seeds, sound_streams
from tests.fuzz.wires import PROVIDERS, READERS, UNKNOWN_NAME, family, form, is_last
from tests.tried import tried

every_reader = pytest.mark.parametrize("provider", READERS)
every_known = pytest.mark.parametrize("provider", [name for name in READERS if name != UNKNOWN_NAME])


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, "agentlab")


@cache
def undamaged(provider: str, body: bytes) -> ModelResponse:
    """The response before any damage."""
    response, _, _ = properties.read(provider, [body])
    return response


def test_no_reader_is_left_out():
    assert {(family(name), type(lab.signals.stream(name))) for name in PROVIDERS} == {
        (family(name), type(lab.signals.stream(name))) for name in READERS
    }


def reads(provider: str, chance: random.Random) -> None:
    many, others = seeds(provider), seeds(UNKNOWN_NAME)
    body = mutations.mutated(chance, chance.choice(many).body, chance.choice(others).body)
    places = [chance.randrange(len(body) + 1) for _ in range(chance.randrange(12))]
    properties.check_anything(provider, body, places, chance.choice((None, 5, 0)))


@every_reader
def test_any_bytes_are_read(provider: str):
    tried(200)(reads)(provider=provider)


def test_any_bytes_are_read_for_the_other_names():
    for provider in sorted({*PROVIDERS} - {*READERS}):
        tried(5)(reads)(provider=provider)


@every_reader
def test_an_undamaged_response_is_read_as_whole(provider: str):
    """The other side of the limit: the same streams, undamaged."""
    found = sound_streams(provider)
    assert len(found) >= 4
    for seed in found:
        response, _, sound = properties.read(provider, [seed.body])
        assert sound
        assert all(call.closed for call in response.tool_calls if response.signal.finish_reason in properties.CLEAN)


@every_reader
@tried(60)
def test_a_truncated_stream_is_not_clean(provider: str, chance: random.Random):
    seed = chance.choice(sound_streams(provider))
    original = undamaged(provider, seed.body)
    for _ in range(4):
        properties.check_truncated(provider, seed.body, mutations.place(chance, seed.body), original)


@every_known
@tried(60)
def test_a_corrupted_event_is_noticed(provider: str, chance: random.Random):
    seed = chance.choice(sound_streams(provider))
    original = undamaged(provider, seed.body)
    events = seed.events
    last = next(number for number, event in enumerate(events) if is_last(seed.wire, event))
    at = chance.choice([number for number, event in enumerate(events) if event.data is not None and number <= last])
    if form(seed.body) == "frames":
        broken = bytearray(events[at].raw)
        broken[chance.randrange(12, len(broken))] ^= 1 << chance.randrange(8)
        events[at] = mutations.Event(bytes(broken))
    else:
        events[at] = mutations.with_data(events[at], mutations.garbage(chance))
    properties.check_corrupted(provider, seed.body, mutations.joined(events), original)


@every_known
@tried(60)
def test_a_dropped_event_is_noticed(provider: str, chance: random.Random):
    seed = chance.choice(sound_streams(provider))
    original = undamaged(provider, seed.body)
    for _ in range(3):
        properties.check_dropped(provider, seed.body, chance.randrange(len(seed.events)), original)


@every_known
@tried(60)
def test_reordered_events_invent_nothing(provider: str, chance: random.Random):
    seed = chance.choice(sound_streams(provider))
    original = undamaged(provider, seed.body)
    events = seed.events
    if chance.random() < 0.5:
        chance.shuffle(events)
    else:
        events.insert(chance.randrange(len(events)), events.pop(chance.randrange(len(events))))
    properties.check_reordered(provider, events, original)


@every_known
@tried(60)
def test_two_responses_in_one_stream_do_not_end_cleanly(provider: str, chance: random.Random):
    same = [seed for seed in sound_streams(provider) if form(seed.body) == form(sound_streams(provider)[0].body)]
    first, second = chance.choice(same), chance.choice(same)
    properties.check_joined(provider, first.body, second.body, mutations.place(chance, second.body))


@every_reader
@tried(60)
def test_a_truncated_body_is_no_answer(provider: str, chance: random.Random):
    """Truncated JSON is no answer in any form."""
    body = chance.choice([seed.body for seed in seeds(provider) if form(seed.body) == "json" and seed.body.lstrip()[:1] == b"{"])
    value = body.strip()
    cut = value[: chance.randrange(1, len(value))]
    response, _, sound = properties.read(provider, [cut])
    if b"\n" not in value:  # several values, one per line, may be fewer
        assert not sound
        assert not properties.is_surely_clean(response.signal)
    properties.check_anything(provider, cut)

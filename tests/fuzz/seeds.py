"""The inputs of mutations: our fixtures, the generators of the providers' tests, and the corpus if it is beside the repository."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import agentlab as lab
from agentlab.model.finish_reasons import Confidence, FinishReason
from agentlab.transport.cassette import load_cassettes, load_document
from tests.fuzz.wires import PROVIDERS, UNKNOWN_NAME, Event, family, form, has_reason, is_error, is_last, split
from tests.providers import bedrock_bodies, bodies, responses_bodies
from tests.providers.bodies import Answer, Call

FIXTURES = Path(__file__).parents[2] / "fixtures"
LARGEST_BYTES = 12_000
FROM_CORPUS = 30
"""The number of recordings per wire, of those below a size limit: slow ones find nothing more."""

_CALLS = (Call("weather", {"city": "Zürich", "days": 3}), Call("pay", {"amount": 120, "to": ["a", "b"]}))
ANSWERS = (
    Answer(text=("Hello", " there,", " wörld 😀")),
    Answer(text=("Let me look.",), reasoning=("Hm,", " well."), calls=_CALLS, finish=FinishReason.TOOL_CALLS),
    Answer(text=(), calls=_CALLS[:1], finish=FinishReason.TOOL_CALLS),
    Answer(text=("It was", " long"), finish=FinishReason.MAX_TOKENS),
)


@dataclass(frozen=True, slots=True)
class Seed:
    """One response on one wire, as bytes. `about` says where it comes from."""

    wire: str
    body: bytes
    about: str

    @property
    def events(self) -> list[Event]:
        """Its events."""
        return split(self.body)


@cache
def all_seeds() -> tuple[Seed, ...]:
    """Every seed; each body only once."""
    found = {(seed.wire, seed.body): seed for seed in (*_generated(), *_fixtures(), *_corpus()) if seed.body}
    return tuple(found.values())


@cache
def seeds(provider: str) -> tuple[Seed, ...]:
    """The seeds of a provider's wire; all seeds for an unknown provider."""
    return tuple(seed for seed in all_seeds() if provider == UNKNOWN_NAME or seed.wire == family(provider))


@cache
def sound_streams(provider: str) -> tuple[Seed, ...]:
    """The streams that ended cleanly and certainly, including the wire's last event."""
    return tuple(seed for seed in seeds(provider) if _is_sound(provider, seed))


def _is_sound(provider: str, seed: Seed) -> bool:
    events = seed.events
    if form(seed.body) == "json" or any(map(is_error, events)):
        return False
    if sum(is_last(seed.wire, event) for event in events) != 1 or not any(has_reason(seed.wire, event) for event in events):
        return False
    parser = lab.signals.stream(provider)
    parser.feed(seed.body)
    surest = Confidence.MEDIUM if provider == UNKNOWN_NAME else Confidence.HIGH
    return parser.finish().confidence is surest and parser.sound


def _generated() -> list[Seed]:
    found = []
    for answer in ANSWERS:
        for wire, name in (("chat", "openai"), ("anthropic", "anthropic"), ("gemini", "gemini")):
            found += [Seed(wire, bodies.stream(name, answer), "generated stream")]
            found += [Seed(wire, _dumped(bodies.whole(name, answer)), "generated body")]
        events = bedrock_bodies.events(answer)
        forms = (bedrock_bodies.stream(answer), bedrock_bodies.lines(events), bedrock_bodies.array(events))
        texts = (bedrock_bodies.text_events(events), bedrock_bodies.named_text_events(events))
        found += [Seed("bedrock", body, "generated stream") for body in (*forms, *texts)]
        found += [Seed("bedrock", _dumped(bedrock_bodies.whole(answer)), "generated body")]
        found += [
            Seed("responses", responses_bodies.stream(answer, manner), f"generated stream, {manner}")
            for manner in responses_bodies.MANNERS
        ]
        found += [Seed("responses", _dumped(responses_bodies.whole(answer)), "generated body")]
    return found


def _dumped(body: object) -> bytes:
    return bodies.sse([body])[6:].strip()  # type: ignore[list-item]


def _fixtures() -> list[Seed]:
    found = []
    for cassette in load_cassettes(FIXTURES):
        place = cassette.path.relative_to(FIXTURES)
        if place.parts[0] == "rare":
            provider = str(load_document(cassette.path)["provider"]).partition("@")[0]
        elif place.parts[0] == "local":
            words = {"chat": "openai", "messages": "anthropic", "responses": "openai-responses"}
            provider = words[place.stem.removesuffix("-stream")]
        else:
            provider = place.stem.removesuffix("-stream")
        if provider in PROVIDERS:
            found += [Seed(family(provider), one.response.body, place.as_posix()) for one in cassette.interactions]
    return found


def _corpus() -> list[Seed]:
    from tests.providers import test_corpus as corpus

    if not corpus.RECORDINGS.exists():
        return []
    by_wire: dict[str, list[Seed]] = {}
    for recording in corpus.recordings():
        body = corpus.body(recording)
        if len(body) <= LARGEST_BYTES:
            wire = family(corpus.PROVIDERS[recording["wire"]])
            by_wire.setdefault(wire, []).append(Seed(wire, body, f"corpus {recording['id'][:8]}"))
    chance = random.Random(3)
    return [seed for many in by_wire.values() for seed in chance.sample(many, min(len(many), FROM_CORPUS))]

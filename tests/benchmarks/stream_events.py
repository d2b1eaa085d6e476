"""From the bytes of a streamed answer to its pieces of text, without any network."""

import json
from collections.abc import Iterator
from functools import partial

from tests.benchmarks.measure import Prepare, Thunk, interleaved
from tests.benchmarks.server import CHUNKS, events
from tests.benchmarks.table import Row, attempt


def floor(pieces: list[bytes]) -> Prepare:
    """Split and parse, taking for granted that no event is cut in two and that each is one line."""

    def run() -> None:
        texts = []
        for piece in pieces:
            for event in piece.split(b"\n\n"):
                if event and event != b"data: [DONE]":
                    choices = json.loads(event[6:])["choices"]
                    if choices:
                        texts.append(choices[0]["delta"].get("content"))
        assert len(texts) == CHUNKS + 2

    return lambda: run


def ours(pieces: list[bytes]) -> Prepare:
    """A provider's stream parser, up to its response."""
    from agentlab.providers.compatible import Compatible

    provider = Compatible(model="scripted", base_url="http://127.0.0.1/v1")

    def ready() -> Thunk:
        parser = provider.stream_parser()

        def run() -> None:
            deltas = [delta for piece in pieces for delta in parser.feed(piece)]
            parser.finish()
            assert len(deltas) >= CHUNKS
            assert parser.response().text.count("word") == CHUNKS

        return run

    return ready


def rows(with_peers: bool) -> Iterator[Row]:
    """The whole stream in one piece, and an event at a time as a network brings it."""
    for how, pieces in (("at a time", events()), ("of a whole body", [b"".join(events())])):
        candidate, why_not = attempt(partial(ours, pieces))
        candidates = {"floor": floor(pieces)} | ({"ours": candidate} if candidate else {})
        taken = {name: us / len(events()) for name, us in interleaved(candidates, repeats=20, seconds=3.0).items()}
        yield Row(
            benchmark=f"stream event to delta, one {how}",
            unit="us",
            goal="<= 1.3 x split + json.loads",
            at_most=1.3,
            floor=taken["floor"],
            ours=taken.get("ours"),
            against=taken["floor"],
            why_not=why_not,
        )

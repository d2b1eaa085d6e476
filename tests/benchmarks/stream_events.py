"""From the bytes of a streamed answer to its pieces of text, without any network, on every wire."""

import json
from collections.abc import Callable, Iterator
from functools import partial

from tests.benchmarks.measure import Prepare, Thunk, interleaved, set_aside
from tests.benchmarks.streams import STREAMS, TEXT, joined
from tests.benchmarks.table import Figure, Row, attempt

# Floors: split and parse, assuming that no event is cut in two, that each is one line, and that its fields are known --------


def chat(pieces: list[bytes]) -> list[str]:
    """`data: {…}`, up to `[DONE]`."""
    texts = []
    for piece in pieces:
        for event in piece.split(b"\n\n"):
            if event and event != b"data: [DONE]":
                choices = json.loads(event[6:])["choices"]
                if choices:
                    texts.append(choices[0]["delta"].get("content"))
    return texts


def responses(pieces: list[bytes]) -> list[str]:
    """`event: …`, then `data: {…}`."""
    texts = []
    for piece in pieces:
        for event in piece.split(b"\n\n"):
            if event:
                data = json.loads(event[event.index(b"\ndata: ") + 7 :])
                if data["type"] == "response.output_text.delta":
                    texts.append(data["delta"])
    return texts


def anthropic(pieces: list[bytes]) -> list[str]:
    """The same framing."""
    texts = []
    for piece in pieces:
        for event in piece.split(b"\n\n"):
            if event:
                data = json.loads(event[event.index(b"\ndata: ") + 7 :])
                if data["type"] == "content_block_delta":
                    texts.append(data["delta"]["text"])
    return texts


def gemini(pieces: list[bytes]) -> list[str]:
    """`data: {…}` with CRLF."""
    texts = []
    for piece in pieces:
        for event in piece.split(b"\r\n\r\n"):
            if event:
                texts.append(json.loads(event[6:])["candidates"][0]["content"]["parts"][0]["text"])
    return texts


def bedrock(pieces: list[bytes]) -> list[str]:
    """Frames, split by botocore."""
    from botocore.eventstream import EventStreamBuffer

    texts = []
    buffer = EventStreamBuffer()
    for piece in pieces:
        buffer.add_data(piece)
        for event in buffer:
            data = json.loads(event.payload)
            if event.headers[":event-type"] == "contentBlockDelta":
                texts.append(data["delta"]["text"])
    return texts


FLOORS: dict[str, Callable[[list[bytes]], list[str]]] = {
    "openai-responses": responses,
    "anthropic": anthropic,
    "gemini": gemini,
    "bedrock": bedrock,
}
"""By provider; the others are on the chat wire."""


def floor(name: str, pieces: list[bytes]) -> Prepare:
    """The wire's own floor, with its result checked."""
    read = FLOORS.get(name, chat)
    assert "".join(text or "" for text in read(pieces)) == TEXT, name
    return lambda: lambda: read(pieces)


# agentlab and the vendors ---------------------------------------------------------------------------------------------------


def ours(name: str, pieces: list[bytes]) -> Prepare:
    """A provider's stream parser, up to its response."""
    from agentlab import Provider
    from agentlab.model.finish_reasons import FinishReason
    from agentlab.model.responses import TextDelta

    provider = Provider(name, model="scripted", base_url="http://127.0.0.1/v1")
    check = provider.stream_parser()
    emitted = [event for piece in pieces for event in check.feed(piece)]
    assert "".join(event.text for event in emitted if isinstance(event, TextDelta)) == TEXT, name
    assert check.finish().finish_reason is FinishReason.END_TURN, (name, check.finish())

    def ready() -> Thunk:
        parser = provider.stream_parser()

        def run() -> None:
            deltas = [delta for piece in pieces for delta in parser.feed(piece)]
            parser.finish()
            assert len(deltas) == len(emitted)
            assert len(parser.response().text) == len(TEXT)

        return run

    return ready


def peers(name: str, pieces: list[bytes]) -> tuple[str, Prepare]:
    """The vendor's own client reading the same bytes."""
    from tests.benchmarks.sdk_streams import SDKS

    sdk, reader = SDKS[name]
    assert reader(pieces)() == TEXT, name
    set_aside()
    return sdk, lambda: reader(pieces)


def rows(with_peers: bool) -> Iterator[Row]:
    """For each provider: one event at a time, as from a network, and the whole stream in one piece."""
    for name, stream in STREAMS.items():
        events = stream()
        for how, pieces in (("one at a time", events), ("of a whole body", joined(events))):
            candidate, why_not = attempt(partial(ours, name, pieces))
            candidates = {"floor": floor(name, pieces)} | ({"ours": candidate} if candidate else {})
            taken = {kind: us / len(events) for kind, us in interleaved(candidates, repeats=25, seconds=2.0).items()}
            peer = None
            if with_peers:
                sdk, prepare = peers(name, pieces)
                peer = Figure(sdk, interleaved({sdk: prepare}, repeats=4, seconds=2.0)[sdk] / len(events))
            yield Row(
                benchmark=f"stream event to delta, {name}, {how}",
                unit="us",
                goal="<= 1.3 x split + json.loads",
                at_most=1.3,
                floor=taken["floor"],
                peer=peer,
                ours=taken.get("ours"),
                against=taken["floor"],
                why_not=why_not,
            )

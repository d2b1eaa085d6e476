"""Faults on the level of bytes, by a real server over a real socket: a call fails as with the injected faults.

`make test` takes one provider for each reader of answers, `make soak` the others: they differ in addresses, keys and finish reasons
only, and `test_faults.py` has all of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
import subprocess
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from engine.call_builders import everything_shown
from engine.server import Handler, Reply, cut, hang, raw, reset, serving, status

import agentlab as lab
from agentlab.engine import client
from agentlab.errors import ProviderConnectionError
from agentlab.testing import faults, faulty

from .conversation import KEY, NAMES, READERS, SPOILT, TALKS, Held, Talk
from .table import show
from .test_faults import ANSWERED, BROKEN, NO_ANSWER, REFUSED, RETRIED, assert_ended_so, assert_nothing_lost, counted

SILENCE_S = 1.0  # a loaded machine is silent for half a second by itself
LARGE_BYTES = 50_000_000


def good(talk: Talk, body: bytes) -> Reply:
    return raw(body, ("content-type", talk.kind))


def in_mid_headers(to: Handler) -> None:
    """The status line and half a header arrive, and nothing more."""
    to.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-ty")
    to.reset()


def slowly(talk: Talk, body: bytes) -> Reply:
    def reply(to: Handler) -> None:
        to.begin(200, ("content-type", talk.kind), ("content-length", str(len(body))))
        for at in range(0, len(body), 200):
            to.wfile.write(body[at : at + 200])
            time.sleep(0.002)

    return reply


def zipped_badly(talk: Talk, body: bytes) -> Reply:
    """Half of it, then bytes that start no gzip block."""
    packer = zlib.compressobj(wbits=zlib.MAX_WBITS | 16)
    half = packer.compress(body[: len(body) // 2]) + packer.flush(zlib.Z_FULL_FLUSH)

    def reply(to: Handler) -> None:
        to.begin(200, ("content-type", talk.kind), ("content-encoding", "gzip"), ("content-length", str(len(half) + 100)))
        to.wfile.write(half)
        time.sleep(0.02)
        to.wfile.write(b"\xff" * 100)

    return reply


def closed(talk: Talk, body: bytes) -> Reply:
    """A part of it, then the connection is closed; no header states the length."""

    def reply(to: Handler) -> None:
        to.begin(200, ("content-type", talk.kind))
        to.wfile.write(body[: len(body) // 2])
        to.leave()

    return reply


def too_short(talk: Talk, body: bytes) -> Reply:
    """A part of it, with exactly the length in the header, as from a proxy with a limit."""
    return raw(body[: len(body) // 2], ("content-type", talk.kind))


def half_zipped(talk: Talk, body: bytes) -> Reply:
    """The beginning of a gzip body that HTTP declares complete."""
    packer = zlib.compressobj(wbits=zlib.MAX_WBITS | 16)
    half = packer.compress(body[: len(body) // 2]) + packer.flush(zlib.Z_FULL_FLUSH)
    return raw(half, ("content-type", talk.kind), ("content-encoding", "gzip"))


def padded(talk: Talk, body: bytes) -> Reply:
    def reply(to: Handler) -> None:
        to.begin(200, ("content-type", talk.kind), ("content-length", str(len(body) + LARGE_BYTES)))
        for _ in range(LARGE_BYTES // 50_000):
            to.wfile.write(b" " * 49_999 + b"\n")
        to.wfile.write(body)

    return reply


Make = Callable[[Talk, bytes], Reply]
ON_THE_WIRE: dict[str, tuple[Make, str, str]] = {
    "RST before the headers": (lambda talk, body: reset, RETRIED, RETRIED),
    "RST within the headers": (lambda talk, body: in_mid_headers, RETRIED, RETRIED),
    "RST in mid-body": (lambda talk, body: cut(body, "reset", kind=("content-type", talk.kind)), RETRIED, BROKEN),
    "FIN in mid-body": (lambda talk, body: cut(body, "leave", kind=("content-type", talk.kind)), RETRIED, BROKEN),
    "closed in mid-body, no length said": (closed, RETRIED, BROKEN),
    "the wrong length said": (too_short, RETRIED, BROKEN),
    "a gzip without its end": (half_zipped, RETRIED, BROKEN),
    "invalid JSON": (lambda talk, body: raw(b'{"choices": oops}', ("content-type", talk.kind)), NO_ANSWER, NO_ANSWER),
    "silence before the headers": (lambda talk, body: hang, RETRIED, RETRIED),
    "silence in mid-body": (lambda talk, body: cut(body, "hang", kind=("content-type", talk.kind)), RETRIED, BROKEN),
    "slow": (slowly, ANSWERED, ANSWERED),
    "gzip broken in mid-body": (zipped_badly, RETRIED, BROKEN),
    "no gzip at all under its header": (
        lambda talk, body: raw(body, ("content-type", talk.kind), ("content-encoding", "gzip")), RETRIED, RETRIED,
    ),
    "429, Retry-After: 0.1": (lambda talk, body: status(429, None, ("retry-after", "0.1")), RETRIED, RETRIED),
    "429, Retry-After: 3600": (lambda talk, body: status(429, None, ("retry-after", "3600")), REFUSED, REFUSED),
    "529": (lambda talk, body: status(529), RETRIED, RETRIED),
    "an HTML page under 200": (lambda talk, body: raw(b"<html>Sign in</html>", ("content-type", "text/html")), NO_ANSWER, NO_ANSWER),
}  # fmt: skip

_seen: list[tuple[str, Talk, str]] = []

AT_ONCE = [name for name in ON_THE_WIRE if name.startswith("silence")]
"""They are tried all at once, since each waits for a second."""


def faults_of(talk: Talk) -> list[str]:
    """All the others for a provider of each kind of stream, events in lines and in frames. The rest take every third, each from another
    one on: the client reads the bytes, and `test_faults.py` has what each reader makes of their end."""
    names = [name for name in ON_THE_WIRE if name not in AT_ONCE]
    return names if talk.name in ("openai", "bedrock") else names[TALKS.index(talk) % 3 :: 3]


@pytest.mark.parametrize(
    "talk", [pytest.param(talk, id=talk.id, marks=() if talk.name in READERS else pytest.mark.soak) for talk in TALKS]
)
def test_every_fault_of_the_wire(talk: Talk) -> None:
    found = {name: asyncio.run(over_a_server(talk, name)) for name in faults_of(talk)}
    assert KEY not in everything_shown(*(one.result for one in found.values()))


@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name in READERS else pytest.mark.soak) for name in NAMES])
def test_silence_on_the_wire(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server delayed by a busy machine must not count as silent elsewhere."""
    monkeypatch.setattr(client, "LONGEST_SILENCE_S", SILENCE_S)

    async def silences() -> list[Held]:
        talks = [talk for talk in TALKS if talk.name == name]
        return await asyncio.gather(*(over_a_server(talk, fault) for talk in talks for fault in AT_ONCE))

    assert KEY not in everything_shown(*(one.result for one in asyncio.run(silences())))


async def over_a_server(talk: Talk, name: str) -> Held:
    """The conversation with a server whose second answer has this fault, and all that holds of it."""
    make, whole, streamed = ON_THE_WIRE[name]
    bodies = talk.bodies()
    replies = [good(talk, body) for body in bodies]
    replies.insert(SPOILT - 1, make(talk, bodies[SPOILT - 1]))
    if make is slowly:  # an answer after all
        replies.pop(SPOILT)
    with serving(*replies) as server:
        found = await talk.held(None, base=server.base)
    expected = streamed if talk.streaming else whole
    assert_nothing_lost(found)
    if name.startswith("gzip") and talk.streaming and found.outcome == "retried":
        expected = RETRIED  # nothing of the answer could be decompressed before
    assert_ended_so(found, expected)
    assert len(server.asked) == {ANSWERED: 3, RETRIED: 4}.get(expected, 2)
    if name == "429, Retry-After: 0.1":
        assert found.retries[0].wait_s >= 0.1
    assert KEY not in "".join(event.reason for event in found.retries)
    _seen.append((name, talk, expected))
    return found


def test_the_table_of_the_wire() -> None:
    """Runs after the matrix and prints its observations."""
    talks = {talk for _, talk, _ in _seen}
    if len(talks) < len(READERS) * 2 or len(_seen) < sum(len(faults_of(talk)) + len(AT_ONCE) for talk in talks):
        pytest.skip("only a part of the matrix was run")

    def outcome_of(name: str, streaming: bool) -> str:
        return counted(outcome for fault, talk, outcome in _seen if fault == name and talk.streaming is streaming)

    rows = [(name, outcome_of(name, False), outcome_of(name, True)) for name in ON_THE_WIRE]
    providers = len({talk.name for talk in talks})
    show("faults-on-the-wire", (f"by a real server, of {providers} providers", "a whole body", "a stream"), rows)


# The same, injected ---------------------------------------------------------------------------------------------------------

SAME: dict[str, tuple[Make, Callable[[int], faults.Fault]]] = {
    "RST before the headers": (lambda talk, body: reset, lambda size: faults.Reset()),
    "RST in mid-body": (lambda talk, body: cut(body, "reset"), lambda size: faults.Reset(size // 2)),
    "silence": (lambda talk, body: hang, lambda size: faults.Stalled(longest_s=0.01)),
    "silence in mid-body": (lambda talk, body: cut(body, "hang"), lambda size: faults.Stalled(size // 2, longest_s=0.01)),
    "gzip": (
        lambda talk, body: raw(body, ("content-encoding", "gzip")), lambda size: faults.BrokenGzip(),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("make", "fault"), SAME.values(), ids=SAME)
@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "stream"])
def test_an_injected_fault_equals_a_real_one(
    make: Make, fault: Callable[[int], faults.Fault], streaming: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "LONGEST_SILENCE_S", SILENCE_S)
    talk = Talk("compatible", streaming)
    bodies = talk.bodies()
    with serving(good(talk, bodies[0]), make(talk, bodies[1])) as server:
        real = asyncio.run(talk.held(None, base=server.base, retry=lab.RetryPolicy(attempts=1)))
    given = faulty(fault(len(bodies[1])), at=SPOILT, over=talk.recording())
    injected = asyncio.run(talk.held(given, retry=lab.RetryPolicy(attempts=1)))
    assert type(injected.result.error) is type(real.result.error)
    assert [(step.text, step.stop_reason, step.usage) for step in injected.result.history] == [
        (step.text, step.stop_reason, step.usage) for step in real.result.history
    ]
    assert essence(injected.result.detail) == essence(real.result.detail)


def essence(detail: str) -> str:
    """The message without the address and the text in brackets."""
    return " ".join(re.sub(r"\([^)]*\)|http://\S+:", "", detail).replace(" .", ".").split())


def test_an_injected_refused_connection_equals_a_real_one() -> None:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    talk = Talk("openai", False)
    policy = lab.RetryPolicy(attempts=1)
    real = asyncio.run(talk.held(None, base=f"http://127.0.0.1:{port}/v1", retry=policy))
    injected = asyncio.run(talk.held(faulty(faults.Refused(), over=talk.recording()), retry=policy))
    assert isinstance(real.result.error, ProviderConnectionError)
    assert type(injected.result.error) is ProviderConnectionError
    assert essence(injected.result.detail) == essence(real.result.detail)


# Large ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "stream"])
def test_an_endless_answer_is_abandoned(streaming: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentlab.engine.client.MAX_ANSWER_BYTES", 2_000_000)
    sent = 0

    def endless(to: Handler) -> None:
        nonlocal sent
        to.begin(200, ("content-type", talk.kind), ("transfer-encoding", "chunked"))
        while True:
            to.chunk(b" " * 50_000)
            sent += 50_000

    talk = Talk("compatible", streaming)
    with serving(good(talk, talk.bodies()[0]), endless) as server:
        found = asyncio.run(talk.held(None, base=server.base))
    assert_nothing_lost(found)
    assert found.result.detail == (
        "ProviderPayloadError: the answer is larger than 2,000,000 bytes and was discarded. "
        "Check that base_url is the address of an API."
    )
    assert sent < 40_000_000  # the buffers of the sockets in between


@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "stream"])
def test_an_endless_refusal_is_abandoned(streaming: bool) -> None:
    def endless(to: Handler) -> None:
        to.begin(400, ("transfer-encoding", "chunked"))
        while True:
            to.chunk(b"no " * 10_000)

    talk = Talk("compatible", streaming)
    with serving(good(talk, talk.bodies()[0]), endless) as server:
        found = asyncio.run(talk.held(None, base=server.base))
    assert_ended_so(found, REFUSED)
    assert "status 400: no explanation" in found.result.detail


MEASURE = """
import asyncio, json, os, sys, traceback
from pathlib import Path
sys.path.insert(0, "tests")
from soak.conversation import Talk

def peak_mb():
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024

async def main(name, streaming, base):
    talk = Talk(name, streaming)
    first = await talk.held(None, base=base)
    before = peak_mb()
    second = await talk.held(None, base=base)
    print(json.dumps([str(second.result.stop_reason), len(second.result.text), peak_mb() - before]), flush=True)

for asked in json.loads(sys.argv[1]):  # each in a process of its own
    if not os.fork():
        try:
            asyncio.run(main(*asked))
        except BaseException:
            traceback.print_exc()
        os._exit(0)
    os.wait()
"""


def large_text(talk: Talk) -> tuple[Reply, int]:
    """An answer of 50 MB, and the length of its text. A Responses stream has each text five times."""
    from providers.bodies import Answer

    piece = "wort " * 20_000
    times = 5 if talk.streaming and "responses" in talk.name else 1
    pieces = LARGE_BYTES // times // len(piece)
    return good(talk, talk.bodies(Answer(text=(piece,) * pieces))[0]), pieces * len(piece)


LARGE = {
    "50 MB of white space": (lambda talk: (padded(talk, talk.bodies()[2]), 11), 2.5),
    "50 MB of text": (large_text, 8.0),
}
"""The reply with the length of its text, and how many times its own size the memory may grow."""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of a process is read from /proc")
@pytest.mark.parametrize(
    "wires",
    [("openai",), pytest.param(tuple(name for name in NAMES if name != "openai"), marks=pytest.mark.soak)],
    ids=["one", "others"],
)
@pytest.mark.timeout(1800)
def test_memory_is_bounded_by_the_size_of_the_answer(wires: tuple[str, ...], request: pytest.FixtureRequest) -> None:
    rows, asked, expected = [], [], []
    with contextlib.ExitStack() as servers:
        for name, (make, times) in LARGE.items():
            for talk in (talk for talk in TALKS if talk.name in wires):
                small = [good(talk, body) for body in talk.bodies()]
                reply, length = make(talk)
                asked.append((talk.name, talk.streaming, servers.enter_context(serving(*small, reply)).base))
                expected.append((name, talk, length, times))
        code = [sys.executable, "-c", MEASURE, json.dumps(asked)]
        done = subprocess.run(code, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2])
    measured = done.stdout.splitlines()
    assert len(measured) == len(expected), done.stderr
    for line, (name, talk, length, times) in zip(measured, expected, strict=True):
        stop_reason, found, grown_mb = json.loads(line)
        rows.append((name, talk.id, stop_reason, f"{grown_mb:.0f} MB"))
        assert (stop_reason, found) == ("completed", length)
        assert grown_mb < times * LARGE_BYTES / 2**20, rows
    show(f"faults-large-{request.node.callspec.id}", ("answer", "wire", "ended", "memory grew by"), rows)

"""Recorded answers instead of a network: a request among 100 and 1,000 recorded ones, and loading a cassette."""

import json
from collections.abc import Callable, Iterator, Sequence
from itertools import count, islice
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
import yaml

from tests.benchmarks.measure import Prepare, await_it, interleaved
from tests.benchmarks.server import completion
from tests.benchmarks.table import Figure, Row, attempt

URL = "https://llm.example/v1/chat/completions"
HEADERS = {"content-type": "application/json"}
SIZES = (100, 1_000)
REQUESTS, ROUNDS = 100, 5
PEER_REQUESTS = 10
"""Fewer for the peer, whose time per request is a hundred times longer."""


def body(number: int) -> bytes:
    """The request of one interaction, different from all others."""
    system = {"role": "system", "content": "Answer in one sentence and name your source."}
    user = {"role": "user", "content": f"When was lighthouse {number} built, and how high is it?"}
    return json.dumps({"model": "scripted", "messages": [system, user], "temperature": 0.2}).encode()


def asked(size: int, requests: int) -> list[bytes]:
    """The timed requests, spread evenly over the recorded ones."""
    return [body(number) for number in range(0, size, size // requests)]


def write_cassettes(folder: Path, size: int) -> tuple[Path, Path]:
    """The same interactions in VCR's format as JSON and as YAML."""
    response = {
        "status": {"code": 200, "message": "OK"},
        "headers": {"content-type": ["application/json"]},
        "body": {"string": completion().decode()},
    }
    interactions = [
        {
            "request": {
                "method": "POST",
                "uri": URL,
                "body": body(number).decode(),
                "headers": {"content-type": ["application/json"]},
            },
            "response": response,
        }
        for number in range(size)
    ]
    cassette = {"version": 1, "interactions": interactions}
    as_json, as_yaml = folder / f"json-{size}" / "cassette.json", folder / f"yaml-{size}" / "cassette.yaml"
    text = json.dumps(cassette)
    as_json.parent.mkdir()
    as_json.write_text(text)
    as_yaml.parent.mkdir()
    as_yaml.write_text(yaml.dump(json.loads(text), Dumper=yaml.CSafeDumper))  # read back, so that no value is an alias
    return as_json, as_yaml


async def post_all(client: httpx.AsyncClient, bodies: Sequence[bytes], replay_key: str = "") -> None:
    """Send each request and read its response; `replay_key` marks these requests as those of one run."""
    for content in bodies:
        response = await client.post(URL, content=content, headers=HEADERS, extensions={"agentlab.lane": replay_key})
        assert response.status_code == 200
        assert len(response.content) > 100


def floor(size: int) -> Prepare:
    """httpx's own mock, which does no lookup."""
    content = completion()
    client = httpx.AsyncClient(
        transport=httpx.MockTransport(lambda request: httpx.Response(200, headers=HEADERS, content=content))
    )
    bodies = asked(size, REQUESTS)
    return lambda: lambda: await_it(post_all(client, bodies * ROUNDS))


def peers(cassette: Path, size: int) -> float:
    """Microseconds per request of vcrpy, which has to compare bodies too because all requests go to one address."""
    import vcr  # type: ignore[import-untyped]

    recorder = vcr.VCR(serializer="json", record_mode="none", match_on=["method", "uri", "body"])
    bodies = asked(size, PEER_REQUESTS)
    client = httpx.AsyncClient()
    with recorder.use_cassette(str(cassette), allow_playback_repeats=True):
        return interleaved({"vcrpy": lambda: lambda: await_it(post_all(client, bodies))}, repeats=2)["vcrpy"] / PEER_REQUESTS


def ours(cassette: Path, size: int) -> Prepare:
    """The replay transport as a run uses it, with its index already built."""
    from agentlab.transport import replay
    from agentlab.transport.http import HttpRequest

    transport = replay(cassette)
    requests = [HttpRequest("POST", URL, HEADERS, content) for content in asked(size, REQUESTS)]

    replay_keys = map(str, count())  # each run of an agent goes through the recordings independently

    async def ask() -> None:
        for replay_key in islice(replay_keys, ROUNDS):
            for request in requests:
                async with transport.open(request, auth={}, replay_key=replay_key, timeout_s=None) as answer:
                    assert answer.status == 200
                    assert len(await answer.read()) > 100

    return lambda: lambda: await_it(ask())


def ours_in_a_client(cassette: Path, size: int) -> Prepare:
    """The same in an httpx client, as other code would use it."""
    from agentlab.transport.live import ReplayTransport

    client = httpx.AsyncClient(transport=ReplayTransport(cassette))
    bodies = asked(size, REQUESTS)
    replay_keys = map(str, count())

    async def ask() -> None:
        for replay_key in islice(replay_keys, ROUNDS):
            await post_all(client, bodies, replay_key)

    return lambda: lambda: await_it(ask())


def ours_loading(cassette: Path) -> Prepare:
    """Load a cassette from its file into a transport that is ready to answer."""
    from agentlab.transport import replay

    return lambda: lambda: replay(cassette)


def requests(cassettes: dict[int, Path], with_peers: bool) -> Iterator[Row]:
    """One row per size, all sizes measured in turn, and the growth between them."""
    small, large = SIZES
    candidates = {f"floor {size}": floor(size) for size in SIZES}
    found, why_not = attempt(lambda: {f"ours {size}": ours(cassettes[size], size) for size in SIZES})
    client, _ = attempt(lambda: {"client": ours_in_a_client(cassettes[large], large)})
    candidates |= (found or {}) | (client or {})
    taken = {name: us / REQUESTS / ROUNDS for name, us in interleaved(candidates, repeats=15).items()}
    vcrpy = {size: Figure("vcrpy", peers(cassettes[size], size)) for size in SIZES} if with_peers else {}
    for who, name, size in (
        ("a request", f"ours {small}", small),
        ("a request", f"ours {large}", large),
        ("a client's request", "client", large),
    ):
        yield Row(
            benchmark=f"replay, {who} among {size:,}",
            unit="us",
            goal="<= 1.15 x MockTransport",
            at_most=1.15,
            floor=taken[f"floor {size}"],
            peer=vcrpy.get(size),
            ours=taken.get(name),
            against=taken[f"floor {size}"],
            why_not=why_not,
        )
    yield Row(
        benchmark="replay, a request among 1,000 to one among 100",
        unit="x",
        goal="no growth: <= 1.1",
        at_most=1.1,
        floor=taken[f"floor {large}"] / taken[f"floor {small}"],
        peer=Figure("vcrpy", vcrpy[large].value / vcrpy[small].value) if with_peers else None,
        ours=None if why_not else taken[f"ours {large}"] / taken[f"ours {small}"],
        against=1.0,
        why_not=why_not,
    )


def loading(as_json: Path, as_yaml: Path) -> Row:
    """A whole cassette from its file. YAML's C loader is listed as the best peer and the bare JSON parser as the floor."""
    loaders: dict[str, Callable[[], object]] = {
        "floor": lambda: json.loads(as_json.read_bytes()),
        "yaml": lambda: yaml.load(as_yaml.read_bytes(), Loader=yaml.CSafeLoader),
    }
    candidate, why_not = attempt(lambda: ours_loading(as_json))
    candidates: dict[str, Prepare] = {name: lambda load=load: load for name, load in loaders.items()}  # type: ignore[misc]
    candidates |= {"ours": candidate} if candidate else {}
    taken = {name: us / 1000 for name, us in interleaved(candidates, repeats=5).items()}
    return Row(
        benchmark="replay, loading 1,000 interactions as JSON",
        unit="ms",
        goal="<= 1/20 of YAML's C loader",
        at_most=1 / 20,
        floor=taken["floor"],
        peer=Figure("yaml", taken["yaml"]),
        ours=taken.get("ours"),
        against=taken["yaml"],
        why_not=why_not,
    )


def rows(with_peers: bool) -> Iterator[Row]:
    """Requests, their growth, and loading."""
    with TemporaryDirectory() as folder:
        cassettes = {size: write_cassettes(Path(folder), size) for size in SIZES}
        yield from requests({size: as_json for size, (as_json, _) in cassettes.items()}, with_peers)
        yield loading(*cassettes[max(SIZES)])

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from agentlab.transport import Transport
from agentlab.transport.cassette import Interaction, load_cassettes
from agentlab.transport.http import HttpRequest

from . import server

CORPUS = Path(__file__).parents[2].parent / "shared" / "corpus" / "cassettes"
KEY = "tok-Zq81mN4pXw77"


@dataclass
class Answered:
    status: int
    headers: dict[str, str]
    chunks: list[bytes]

    @property
    def body(self) -> bytes:
        return b"".join(self.chunks)

    def json(self) -> Any:
        return json.loads(self.body)


async def ask(
    transport: Transport,
    url: str,
    body: Any = b"",
    *,
    replay_key: str = "",
    method: str = "POST",
    auth: dict[str, str] | None = None,
    whole: bool = False,
    timeout_s: float | None = 60,
) -> Answered:
    """One request, read to its end."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = HttpRequest(method, url, {"content-type": "application/json"}, content)
    async with transport.open(request, auth=auth or {}, replay_key=replay_key, timeout_s=timeout_s) as answer:
        chunks = [await answer.read()] if whole else [chunk async for chunk in answer.chunks()]
        return Answered(answer.status, dict(answer.headers), chunks)


def asked(*args: Any, **kwargs: Any) -> Answered:
    return asyncio.run(ask(*args, **kwargs))


@pytest.fixture
def provider() -> Iterator[server.Server]:
    with server.running() as running:
        yield running


@pytest.fixture
def base(provider: server.Server) -> str:
    return f"http://127.0.0.1:{provider.server_port}/v1"


def interactions(path: Path) -> list[Interaction]:
    """All interactions recorded in a file or a folder."""
    return [one for cassette in load_cassettes(path) for one in cassette.interactions]


def interaction(
    body: Any = None, answer: Any = None, *, uri: str = "https://llm.example/v1/chat", **response: Any
) -> dict[str, Any]:
    """One interaction in VCR's format."""
    return {
        "request": {
            "method": "POST",
            "uri": uri,
            "body": json.dumps(body or {}),
            "headers": {"content-type": ["application/json"]},
        },
        "response": {
            "status": {"code": 200, "message": "OK"},
            "headers": {"Content-Type": ["application/json"]},
            "body": {"string": answer if isinstance(answer, str | bytes) else json.dumps(answer or {})},
            **response,
        },
    }


@pytest.fixture
def cassette(tmp_path: Path) -> Callable[..., Path]:
    """Write interactions into a file and return its path."""

    def write(*interactions: dict[str, Any], name: str = "turns.json", **head: Any) -> Path:
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"version": 1, **head, "interactions": interactions}), encoding="utf-8")
        return file

    return write

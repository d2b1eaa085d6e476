"""Agents to be served, and a server of them: real uvicorn on loopback, in this process or in a separate one."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import uvicorn

import agentlab as lab
from agentlab.engine.client import CallContext
from agentlab.model.messages import ModelRequest
from agentlab.model.responses import ModelResponse
from agentlab.serving.app import make_app
from agentlab.testing import ScriptedProvider, call, say

ROOT = Path(__file__).parents[2]
FINISH = {"tool_ids": ["finalize"]}
PATIENCE_S = 60.0


@lab.tool(inline=True)
def finalize(answer: str = "") -> dict[str, str]:
    """Hand in the answer."""
    return {"answer": answer}


@lab.tool(inline=True)
def look(q: str = "") -> str:
    """Look something up."""
    return f"saw {q}"


def users(request: ModelRequest) -> list[str]:
    """The messages of the user and the instructions in a request, in order."""
    return [message.text for message in request.messages if message.role in ("user", "system")]


class Parrot:
    """A model that repeats the user's messages and obeys some keywords in them. It yields to other tasks."""

    name, model = "parrot", "1"

    def __init__(self, delay_s: float = 0.0, together: int = 1) -> None:
        """Answers wait until this many requests have arrived: `together`."""
        self.delay_s, self.together = delay_s, together
        self.at_once = 0
        self.most_at_once = 0
        self._all_there = asyncio.Event()

    async def respond(self, request: ModelRequest, context: CallContext) -> ModelResponse:
        """Answer with the user's messages."""
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            if self.most_at_once >= self.together:
                self._all_there.set()
            async with asyncio.timeout(PATIENCE_S):
                await self._all_there.wait()
            await asyncio.sleep(self.delay_s)
        finally:
            self.at_once -= 1
        user_texts = users(request)
        if "finish" in user_texts[-1]:
            return call("finalize", {"answer": user_texts[-1]})
        if "look" in user_texts[-1] and request.messages[-1].role == "user":
            return call("look", {"q": "there"}, text="I look.")
        return say(" | ".join(user_texts))


def parrot(delay_s: float = 0.0, **more: Any) -> lab.Agent:
    """An agent on a Parrot."""
    return lab.Agent(Parrot(delay_s), tools=[look, finalize], name="parrot", **more)


def scripted(script: Any, **more: Any) -> lab.Agent:
    """An agent on a script; each request reads it from its start."""
    return lab.Agent(ScriptedProvider(script), tools=[look, finalize], **more)


@contextlib.contextmanager
def serving(chat: lab.Chat | lab.Agent, **more: Any) -> Iterator[httpx.Client]:
    """A server of this chat, and a client of it."""
    made = chat if isinstance(chat, lab.Chat) else lab.Chat(chat)
    # otherwise asyncio keeps Nagle's algorithm on, which costs 40 ms per request
    with socket.socket(proto=socket.IPPROTO_TCP) as sock:
        sock.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(make_app(made, **more), log_level="critical"))
        thread = threading.Thread(target=server.run, args=([sock],), daemon=True)
        thread.start()
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{sock.getsockname()[1]}", timeout=60, trust_env=False) as client:
                until_it_answers(client)
                yield client
        finally:
            server.should_exit = True
            thread.join(PATIENCE_S)
            assert not thread.is_alive()


def until_it_answers(client: httpx.Client) -> None:
    """Wait until the server accepts connections."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        with contextlib.suppress(httpx.ConnectError):
            client.get("/openapi.json")
            return
        threading.Event().wait(0.01)
    raise AssertionError("the server does not answer")


@contextlib.contextmanager
def process(*arguments: str, cwd: Path, end: int = signal.SIGTERM, env: dict[str, str] | None = None) -> Iterator[httpx.Client]:
    """`python -m agentlab serve …` on a free port, and a client of it; ended by the signal `end`."""
    with subprocess.Popen(
        [sys.executable, "-m", "agentlab", "serve", *arguments, "--port", "0"],
        cwd=cwd,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), **(env or {})},
    ) as started:
        assert started.stderr is not None
        user_texts: list[str] = []
        try:
            for line in started.stderr:
                user_texts.append(line)
                found = re.search(r"running on (http://[^ ]+)", line)
                if found:
                    break
            else:
                raise AssertionError("".join(user_texts))
            threading.Thread(target=started.stderr.read, daemon=True).start()
            with httpx.Client(base_url=found.group(1), timeout=60, trust_env=False) as client:
                yield client
        finally:
            started.send_signal(end)
            started.wait(PATIENCE_S)

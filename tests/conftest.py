"""What holds for every test: no network but loopback, no keys of the person who runs them, nobody to click."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from pytest_socket import socket_allow_hosts

KEY_VARIABLES = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY")

os.environ["AGENTLAB_FRONTEND"] = "none"


@pytest.fixture(autouse=True)
def _no_network() -> None:
    """Connections go to loopback and to Unix sockets only; anything else raises."""
    socket_allow_hosts(["127.0.0.1", "::1", "localhost"], allow_unix_socket=True)


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in KEY_VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def run_async() -> Callable[[Coroutine[Any, Any, Any]], Any]:
    """Run a coroutine to its end on a loop of its own."""
    return asyncio.run

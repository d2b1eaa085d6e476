"""What holds for every test: no network but loopback, no keys of the person who runs them, nobody to click."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
from hypothesis import settings
from own_time import OwnTime
from pytest_socket import socket_allow_hosts

KEY_VARIABLES = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY")

os.environ["AGENTLAB_FRONTEND"] = "none"

settings.register_profile(
    "agentlab", deadline=None
)  # how long an example takes is the machine's affair: pytest-timeout ends what hangs
settings.load_profile("agentlab")


def pytest_configure(config: pytest.Config) -> None:
    """Tell pytest of the marks that are used in one folder only."""
    config.addinivalue_line("markers", "own_page: a browser test that has a page and a kernel of its own")


@pytest.hookimpl(trylast=True)  # after each folder has marked its own
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where workers share the files, bring them into the order that they are to be taken in."""
    if hasattr(config, "workerinput"):
        from two_ends import from_browser_to_rest  # it needs xdist

        items.sort(key=from_browser_to_rest)


def pytest_collection_finish() -> None:
    """What all test files have imported stays to the end: a garbage collection need not go through these 900,000 objects each time."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Which worker gets which file; `--dist` other than loadfile is xdist's own."""
    if config.option.dist != "loadfile":
        return None
    from two_ends import FromTwoEnds  # it needs xdist

    config.option.loadscopereorder = False
    return FromTwoEnds(config, log)


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


@pytest.fixture
def own_time() -> Iterator[OwnTime]:
    """Seconds that pass at once, for what waits on one loop: see `own_time.py`."""
    own = OwnTime()
    with own.is_everybodys():
        yield own

"""Rules for every test: no network except loopback, no keys of the user who runs them, no front end."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
from fake_time import OwnTime
from hypothesis import settings

for key_variable in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY"):
    os.environ.pop(key_variable, None)
os.environ["AGENTLAB_FRONTEND"] = "none"

settings.register_profile(
    "agentlab", deadline=None
)  # the duration of an example depends on the machine; pytest-timeout ends a test that hangs
settings.load_profile("agentlab")


@pytest.hookimpl(trylast=True)  # after each folder has marked its tests
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Sort the files in the order in which the workers take them."""
    if hasattr(config, "workerinput"):
        from file_order import in_order  # needs xdist

        items[:] = in_order(items)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect no garbage while test files are imported: nearly everything that they make stays. This saves a seventh of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """Keep the imports of all test files out of garbage collections, which would visit these 900,000 objects each time. The garbage
    among them is a seventh: it takes longer to find than it is worth. What is left to look at is little, so look seldom."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


@pytest.fixture(autouse=True, scope="module")
def _left_by_the_file() -> Iterator[None]:
    """The same for what a file imported late or left in caches, without its garbage."""
    yield
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Assign files to workers; `--dist` other than loadfile is xdist's own."""
    if config.option.dist != "loadfile":
        return None
    from file_order import FromTwoEnds  # needs xdist

    config.option.loadscopereorder = False
    return FromTwoEnds(config, log)


@pytest.fixture
def run_async() -> Callable[[Coroutine[Any, Any, Any]], Any]:
    """Run a coroutine to its end on a new loop."""
    return asyncio.run


@pytest.fixture
def fake_time() -> Iterator[OwnTime]:
    """A clock whose seconds pass at once for waits on one loop: see `fake_time.py`."""
    own = OwnTime()
    with own.is_everybodys():
        yield own

"""Shared by the drivers. Runs in the peers' environment: the standard library only.

A driver is `python -m tests.peers.drivers.NAME ROOT FILE`: it runs its scenarios against the server at ROOT and writes the results
into FILE as facts; `judged.py` turns the facts of all drivers into the words of the table.
"""

from __future__ import annotations

import asyncio
import json
import sys
import urllib.request
from collections.abc import Awaitable, Callable
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

PROMPT = "I left a green umbrella on the train from Graz to Vienna. Please find it."
WEATHER = "What is the weather?"
STEPS = 4
"""The limit in scenarios that have one: this many answers of the model."""
MANY = 10_000_000
PATIENCE_S = 60.0

Facts = dict[str, Any]
Scenario = Callable[[str], Awaitable[Facts]]


class Tools:
    """The two tools, which record their calls: `forecasts` are the cities. `during` is called in each search."""

    def __init__(self, during: Callable[[int], object] = lambda number: None) -> None:
        self.searches = 0
        self.forecasts: list[str] = []
        self.during = during

    async def search_lost_property(self, words: str) -> str:
        """Search the railway's lost property office.

        Args:
            words: what to look for
        """
        self.searches += 1
        self.during(self.searches)
        return f"Nothing fits {words!r}."

    async def get_weather(self, city: str = "Graz") -> str:
        """The weather in a city.

        Args:
            city: where
        """
        self.forecasts.append(city)
        return f"Rain in {city}."


def asked(address: str) -> int:
    """The number of requests received there."""
    with urllib.request.urlopen(address + "/asked", timeout=5) as answer:
        return int(json.load(answer))


def raised(error: BaseException) -> Facts:
    """An exception as facts."""
    return {"came_back": "exception", "error": type(error).__name__, "says": " ".join(str(error).split())[:200]}


async def observe(who: str, root: str, wanted: dict[str, Scenario]) -> Facts:
    """Run every scenario; a failure is recorded as the driver's failure and never taken for an observation."""
    seen: Facts = {}
    for name, scenario in wanted.items():
        address = f"{root}/{name}/{who}/v1"
        try:
            facts = await asyncio.wait_for(scenario(address), PATIENCE_S)
        except Exception as failure:
            facts = {"failed": f"{type(failure).__name__}: {failure}"[:300]}
        seen[name] = {**facts, "requests": asked(address)}
    return seen


def there(names: dict[str, str]) -> dict[str, str]:
    """The names, each after it was found in its package: a name that is only documented is not in a table."""
    for place in names.values():
        module, _, name = place.partition(":")
        getattr(import_module(module), name)
    return names


def main(who: str, packages: tuple[str, ...], wanted: dict[str, Scenario], names: dict[str, str]) -> None:
    """The main program of a driver. `names` are looked up in the package instead of run, as `module:name`."""
    root, file = sys.argv[1], Path(sys.argv[2])
    facts = asyncio.run(observe(who, root, wanted))
    versions = {name: version(name) for name in packages}
    file.write_text(json.dumps({"versions": versions, "facts": facts, "names": there(names)}))

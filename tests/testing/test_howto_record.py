"""What docs/howto/record.md says about several runs of one prompt, and its tests for pytest."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

import agentlab as lab
from tests.engine.server import Server, serving, whole

pytest_plugins = "pytester"

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "record.md"


def block(having: str) -> str:
    """The one Python block of the page that has this text."""
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    (found,) = [one for one in blocks if having in one]
    return str(found)


def answers(*texts: str) -> AbstractContextManager[Server]:
    """A model that gives these answers in turn, again and again."""
    turn = itertools.cycle(texts)
    return serving(
        script=lambda asked: whole(
            {"choices": [{"index": 0, "message": {"role": "assistant", "content": next(turn)}, "finish_reason": "stop"}]}
        )
    )


def texts(agent: lab.Agent, way: str) -> list[str]:
    """The answers of three runs of one prompt."""

    async def loop() -> list[str]:
        return [(await agent.run("Name a colour.")).text for _ in range(3)]

    async def gather() -> list[str]:
        runs = [agent.run("Name a colour.") for _ in range(3)]
        return [result.text for result in await asyncio.gather(*runs)]

    async def repeats() -> list[str]:
        results = await lab.Experiment([agent], ["Name a colour."], repeats=3).run(concurrency=1)
        return list(results.runs["text"])

    async def labels() -> list[str]:
        names: dict[str, Any] = {"agent": agent}
        exec(block("def colours"), names)
        return list(await names["colours"]())

    ways: dict[str, Callable[[], Any]] = {"loop": loop, "gather": gather, "repeats": repeats, "labels": labels}
    return list(asyncio.run(ways[way]()))


@pytest.mark.parametrize("match", ["strict", "order"])
@pytest.mark.parametrize("way", ["loop", "gather", "repeats", "labels"])
def test_several_runs_of_one_prompt(tmp_path: Path, way: str, match: Any) -> None:
    with answers("red", "green", "blue") as server:
        agent = lab.Agent(lab.Provider("compatible", base_url=server.base, model="m"))
        with lab.record(tmp_path / "colours"):
            recorded = texts(agent, way)
    assert sorted(recorded) == ["blue", "green", "red"]
    with lab.replay(tmp_path / "colours", match=match):
        replayed = texts(agent, way)
    if way in ("repeats", "labels"):
        assert replayed == recorded
    else:
        assert replayed[0] == replayed[1] == replayed[2]


def test_the_tests_of_the_page_run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    with answers("Graz.") as server:
        start = f'import agentlab as lab\nagent = lab.Agent(lab.Provider("compatible", base_url="{server.base}", model="m"))\n'
        pytester.makepyfile(test_page=start + block("def test_planner").replace("https://api.example/v1/messages", server.base))
        options = ("-p", "no:cacheprovider", "-p", "agentlab.testing.pytest_plugin")
        pytester.runpytest_subprocess(*options, "--agentlab-record=once").assert_outcomes(passed=2)
    assert (pytester.path / "cassettes" / "test_page" / "test_planner.yaml").exists()
    pytester.runpytest_subprocess(*options).assert_outcomes(passed=2)

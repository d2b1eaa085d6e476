"""The README's first code block works in a notebook at the root of a clone: no key, no network."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

import agentlab as lab

REPOSITORY = Path(__file__).parents[2]


def block_of(heading: str) -> str:
    """The first Python block under a heading."""
    text = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    found = re.search(rf"^## {heading}\n.*?^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def test_the_first_code_block_runs_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPOSITORY)
    monkeypatch.setenv("AGENTLAB_FRONTEND", "none")
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    names: dict[str, Any] = {"__name__": "__main__"}
    code = compile(block_of("What it looks like"), "README.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)

    async def as_in_a_cell() -> None:
        waits = eval(code, names)  # the README's own code
        if inspect.isawaitable(waits):
            await waits

    asyncio.run(as_in_a_cell())
    result, other = names["result"], names["other"]
    assert (result.stop_reason, other.stop_reason) == ("stop_condition", "stop_condition")
    assert [str(one) for one in result.conditions_met] == ["HasToolCall(finalize): 1 call"]
    assert other.provider == "openai"
    assert result.history[0].settings.budget.max_cost != result.history[1].settings.budget.max_cost


def test_the_prompt_cell_is_answered_from_its_recording(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPOSITORY)
    text = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    found = re.search(r"^%%agent (\S+) --tools get_weather --max-cost 0\.05 --stream --replay (\S+)\n(.*)\n", text, re.MULTILINE)
    assert found is not None
    model, folder, prompt = found.groups()
    names: dict[str, Any] = {}
    exec(block_of("What it looks like").partition("def finalize")[0], names)  # the function of the README's first block
    agent = lab.Agent(model, tools=[names["get_weather"]], stream=True)
    with lab.replay(folder):
        run = agent.run(prompt, budget=lab.Budget(max_cost=0.05))

    async def to_the_end() -> lab.RunResult:
        return await run

    assert asyncio.run(to_the_end()).stop_reason == "completed"

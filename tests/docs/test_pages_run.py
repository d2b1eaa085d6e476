"""The code of the landing page, the first page, the recipes and the gallery runs from top to bottom, as in a notebook."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

import agentlab as lab
from agentlab.testing import ScriptedProvider, call

from .examples import REPOSITORY, Notebook

PAGES = ("index", "start/index", "howto/recipes")


def blocks_of(page: str) -> list[str]:
    """The Python blocks of a page in docs/."""
    return re.findall(
        r"^```python\n(.*?)^```", (REPOSITORY / "docs" / f"{page}.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )


@pytest.mark.parametrize("page", PAGES)
def test_each_block_of_the_page_runs(page: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(REPOSITORY)
    monkeypatch.setenv("AGENTLAB_FRONTEND", "none")
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    blocks = blocks_of(page)
    assert len(blocks) >= 2
    with Notebook() as notebook:
        for block in blocks:
            notebook.run(block)
            for name in ("result", "run"):  # an error does not raise: it is the run's result
                assert "error" not in str(getattr(notebook.names.get(name), "stop_reason", "")), block
        assert isinstance(notebook.names["result"], lab.RunResult)


def test_the_gallery_has_every_plot() -> None:
    """The build draws it: `test_site` fails where a block does."""
    shown = set(re.findall(r"lab\.plots\.(\w+)", (REPOSITORY / "docs" / "gallery.md").read_text(encoding="utf-8")))
    plots = {name for name in lab.plots.__all__ if name.islower() and not name.endswith("_data")}
    assert plots <= shown


ENDS = {
    "complete_task": ({"result": "ok"}, (lab.StopReason.TERMINATING_TOOL, "Task completed: ok")),
    "hand_in": ({"answer": "42"}, (lab.StopReason.EXPLICIT_STOP, {"answer": "42"})),
    "check_account": ({"iban": "XX1"}, (lab.StopReason.EXPLICIT_STOP, {"iban": "XX1"})),
}


@pytest.mark.parametrize(("name", "arguments", "end"), [(name, *of) for name, of in ENDS.items()], ids=ENDS)
def test_the_tools_of_the_page_about_tools_end_a_run(name: str, arguments: dict[str, str], end: tuple[object, object]) -> None:
    names = {"lab": lab}
    exec(next(block for block in blocks_of("howto/tools") if f"{name}(" in block), names)
    agent = lab.Agent(ScriptedProvider([call(name, arguments)]), tools=[*names["agent"].tools.values()])

    async def finished() -> lab.RunResult:
        return await agent.run("Go.", terminating=["complete_task"] if name == "complete_task" else None)

    result = asyncio.run(finished())
    assert (result.stop_reason, result.output) == end
    if result.stop_reason is lab.StopReason.EXPLICIT_STOP:
        assert result.stopped_by == "tool"


def hand_in(answer: str) -> str:
    """Stand in for the tool of the block before."""
    return answer


def test_the_middleware_of_the_page_about_tools_ends_a_run() -> None:
    names = {"lab": lab, "hand_in": hand_in}
    exec(next(block for block in blocks_of("howto/tools") if "short_conversations" in block), names)
    agent = lab.Agent(ScriptedProvider(["Never said."]), middleware=[names["short_conversations"]])

    async def finished() -> lab.RunResult:
        return await agent.run("Go.", messages=[lab.Message("user", str(number)) for number in range(40)])

    result = asyncio.run(finished())
    assert (result.stop_reason, result.stopped_by) == (lab.StopReason.EXPLICIT_STOP, "middleware")
    assert result.detail == "Stopped by the middleware: The conversation is too long"

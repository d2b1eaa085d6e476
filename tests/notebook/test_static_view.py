"""The panel without a front end, and the outputs stored in the notebook's file, read as other programs read them."""

from __future__ import annotations

import asyncio
from typing import Any

import nbformat
import pytest
from IPython.display import display
from nbconvert import HTMLExporter

import agentlab as lab
from agentlab import Budget, ContinuationPolicy
from agentlab.agent import Run
from agentlab.model.finish_reasons import FinishReason
from agentlab.notebook import live_view
from agentlab.notebook.panel.run_view import MOST_STEPS, Panel
from agentlab.testing import ScriptedProvider, call, say

WIDGET = "application/vnd.jupyter.widget-view+json"


async def search(query: str) -> str:
    """Search."""
    return "nothing"


def searching(turns: int) -> Run:
    model = ScriptedProvider(lambda request, index: call("search", {"query": str(index)}, cost="0.001"))
    run = lab.Agent(model, tools=[search]).run("Find it.", budget=Budget(max_turns=turns))
    asyncio.run(_to_the_end(run))
    return run


def continued() -> Run:
    model = ScriptedProvider([say("half of ", finish=FinishReason.MAX_TOKENS), say("it")])
    run = lab.Agent(model, continuation=ContinuationPolicy()).run("Say it.")
    asyncio.run(_to_the_end(run))
    return run


async def _to_the_end(run: Run) -> None:
    await run


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The outputs of a display as they are stored in a notebook's file."""
    outputs: list[dict[str, Any]] = []

    def keep(data: dict[str, Any], metadata: dict[str, Any] | None = None, **more: object) -> None:
        outputs.append(nbformat.v4.new_output("display_data", data, metadata=metadata or {}))

    monkeypatch.setattr(live_view.display, "display", keep)
    return outputs


def as_page(outputs: list[dict[str, Any]]) -> str:
    cell = nbformat.v4.new_code_cell("run.panel()", outputs=outputs)
    page, _ = HTMLExporter().from_notebook_node(nbformat.v4.new_notebook(cells=[cell]))  # type: ignore[no-untyped-call]
    return str(page).partition("<body")[2]


def test_without_a_front_end_pictures_are_separate_outputs(shown: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTLAB_FRONTEND", "none")
    Panel(continued())._ipython_display_()
    assert [set(output["data"]) for output in shown] == [{"text/plain", "text/html"}, {"image/png"}, {"image/png"}]
    curve, timeline = (output["metadata"]["image/png"] for output in shown[1:])
    assert curve["alt"].startswith("Tokens and cost over 1 step:") and (curve["width"], curve["height"]) == (616, 319)
    assert "1 continuation" in timeline["alt"] and timeline["width"] == 900
    page = as_page(shown)
    assert page.count("<img") == 2 and "terminated · completed" in page


def test_calls_alone_give_no_timeline(shown: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTLAB_FRONTEND", "none")
    Panel(searching(3))._ipython_display_()
    assert len(shown) == 2
    assert "To continue: Raise the turn limit to 6 and continue" in shown[0]["data"]["text/html"]


def test_before_the_first_step_nothing_is_drawn(shown: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTLAB_FRONTEND", "none")
    Panel(lab.Agent(ScriptedProvider(["x"])).run("go"))._ipython_display_()
    assert len(shown) == 1 and "No steps yet." in shown[0]["data"]["text/html"]


def test_text_and_html_are_the_same_at_every_execution() -> None:
    first, second = (Panel(continued())._static().outputs() for _ in range(2))
    assert first[:2] == second[:2], "only the timeline contains times"
    assert "elapsed" not in first[0][0]["text/html"]


def test_the_static_output_with_pictures_is_stored_beside_the_live_widget(
    shown: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTLAB_FRONTEND", "widgets")
    panel = Panel(continued())
    panel._ipython_display_()
    live, kept = shown
    assert set(live["data"]) == {WIDGET, "text/plain"} and not live["data"]["text/plain"]
    assert kept["data"]["text/html"].count("<img ") == 2
    assert f".{panel._kept_class} {{display:none}}" in panel._style.value
    assert panel._kept_class in kept["data"]["text/html"]
    page = as_page(shown)
    assert page.count("<img") == 2 and page.count("terminated · completed") == 1


def test_the_newest_steps_of_a_long_run_are_stored() -> None:
    html = Panel(searching(MOST_STEPS + 5)).bundle()["text/html"]
    assert "5 earlier steps" in html and html.count("<tr>") < MOST_STEPS + 10


def test_the_display_of_ipython_accepts_the_outputs(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTLAB_FRONTEND", "none")
    display(Panel(searching(1)))
    assert "turn_limit" in capsys.readouterr().out

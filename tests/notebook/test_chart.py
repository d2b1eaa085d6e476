"""The chart in the panel: the marked step, and which step a click in the picture selects."""

from __future__ import annotations

import asyncio
import html
import json
import re

import pytest

import agentlab as lab
from agentlab import Budget
from agentlab.agent import Run
from agentlab.errors import ProviderConnectionError
from agentlab.model.messages import ModelRequest
from agentlab.model.responses import ModelResponse
from agentlab.notebook.panel.pictures import Curve
from agentlab.testing import ScriptedProvider, call


def look() -> str:
    """Look."""
    return "nothing"


def run_of(steps: int, known: int = 10_000, cost: str | None = "0.01") -> Run:
    """A run of this many steps, of which the first `known` have known usage."""

    def answer(request: ModelRequest, index: int) -> ModelResponse:
        return call("look", {}, tokens=(10, 5) if index <= known else (None, None), cost=cost)

    run = lab.Agent(ScriptedProvider(answer), tools=[look]).run("go", budget=Budget(max_turns=99))

    async def go() -> None:
        for _ in range(steps):
            await run.step()

    asyncio.run(go())
    return run


def run_that_fails() -> Run:
    """A run whose first call fails."""

    def answer(request: ModelRequest, index: int) -> ModelResponse:
        raise ProviderConnectionError("It broke off.")

    run = lab.Agent(ScriptedProvider(answer)).run("go")

    async def go() -> None:
        await run

    asyncio.run(go())
    return run


def axes_of(page: str) -> list[dict[str, float]]:
    found = re.search(r'data-axes="([^"]*)"', page)
    assert found is not None
    places: list[dict[str, float]] = json.loads(html.unescape(found[1]))
    return places


def test_a_marked_step_is_drawn_described_and_removed_again() -> None:
    curve = Curve(run_of(5))
    plain, marked = curve.draw(), curve.draw(3)
    assert plain != marked != curve.draw(4)
    assert curve.draw() == plain
    assert "Step 3 is marked: 45 tokens, 0.03 US dollars so far." in curve.as_html(3)
    assert "marked" not in curve.as_html()
    assert [line.get_visible() for line in curve._mark_lines] == [False, False]


def test_a_step_with_an_unknown_sum_has_a_line_without_a_ring() -> None:
    curve = Curve(run_of(4, known=2))
    page = curve.as_html(3)
    assert "Step 3 is marked: unknown tokens" in page
    assert [list(line.get_xdata()) for line in curve._mark_lines] == [[3, 3], [3, 3]]
    assert [len(ring.get_xdata()) for ring in curve._rings] == [0, 1]


def test_unknown_values_are_mentioned_in_the_chart() -> None:
    curve = Curve(run_of(3, cost=None))
    assert "Cost unknown: no price for scripted:script." in curve.as_html()
    assert [note.get_text() for note in curve._notes] == ["", "cost unknown: no price for\nscripted:script"]
    partly = Curve(run_of(4, known=2))
    assert "Tokens unknown from step 3 on: scripted:script reported no usage." in partly.as_html()
    assert partly._notes[1].get_text() == ""
    refused = Curve(run_that_fails())
    assert "Tokens unknown: its call was not answered." in refused.as_html()
    known = Curve(run_of(2))
    assert "unknown" not in known.as_html()
    assert [note.get_text() for note in known._notes] == ["", ""]


def test_axes_are_given_as_shares_of_the_picture() -> None:
    curve = Curve(run_of(8))
    left, right = axes_of(curve.as_html())
    for place in (left, right):
        assert 0 < place["left"] < place["right"] < 1 and 0 < place["top"] < place["bottom"] < 1
        assert (place["from"], place["to"], place["first"], place["last"]) == (0, 8, 1, 8)
    assert left["right"] < right["left"]
    for place, axis in zip((left, right), curve._axes, strict=True):
        x, y = axis.transData.transform((5, axis.get_ylim()[0])) / curve._figure.bbox.size
        assert x == pytest.approx(place["left"] + (place["right"] - place["left"]) * 5 / 8, abs=0.001)
        assert 1 - y == pytest.approx(place["bottom"], abs=0.001)


def test_a_run_without_steps_is_not_clickable() -> None:
    assert "data-axes" not in Curve(run_of(0)).as_html()


def test_one_figure_is_kept_and_nothing_is_drawn_twice() -> None:
    curve = Curve(run_of(3))
    curve.draw(2)
    figure, png = curve._figure, curve._png
    assert curve.draw(2) is png
    curve.draw(1)
    assert curve._figure is figure

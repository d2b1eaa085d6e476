"""The file that `results.report` writes, in a real browser: it asks for nothing, and hostile texts in it do nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from inert import HOSTILE
from playwright.sync_api import Page, expect

import agentlab as lab
from agentlab.testing import ScriptedProvider, say

from .axe import faults_in_both_schemes

TEXT = "".join(one.encode("utf-16", "surrogatepass").decode("utf-16", "replace") for one in HOSTILE.values())


def report(folder: Path, text: str) -> Path:
    """The report of two agents on six tasks, with this text in all places that take one."""

    def said(request: Any, index: int) -> Any:
        return say(text if index % 2 else "yes", cost=f"0.00{len(request.messages[0].text) % 7 + 1}")

    agents = {name: lab.Agent(ScriptedProvider(said), instructions=text) for name in ("first", "second")}
    tasks = [{"id": f"t{n}", "prompt": f"{n * 'again '}{text}", "target": "yes", "tags": [text]} for n in range(6)]
    study = lab.Experiment(agents, tasks, repeats=2, score=lab.scorers.Exact())
    with ThreadPoolExecutor(1) as pool:  # this thread has the event loop of Playwright
        results = pool.submit(asyncio.run, study.run(progress=False)).result()
    return results.report(folder / "study.html")


@pytest.fixture(scope="module")
def harmless(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report with a harmless text."""
    return report(tmp_path_factory.mktemp("report"), "What is it?")


@pytest.fixture
def show(open_file: Callable[..., Page], tmp_path: Path, harmless: Path) -> Callable[..., Page]:
    """Opens the report with this text."""

    def opened(text: str = "", *size: int, **settings: Any) -> Page:
        page = open_file(report(tmp_path, text) if text else harmless, *size, **settings)
        expect(page.get_by_role("heading", name="Methods")).to_be_visible()
        return page

    return opened


def test_axe_finds_nothing_serious_and_no_table_widens_the_page(show: Callable[..., Page]) -> None:
    page = show("", 400, 800)
    page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    assert faults_in_both_schemes(page, ".report") == []
    background = "getComputedStyle(document.documentElement).backgroundColor"
    assert page.evaluate(background) == "rgb(20, 23, 27)"
    page.emulate_media(color_scheme="light")
    assert page.evaluate(background) == "rgb(255, 255, 255)"
    assert page.evaluate("document.documentElement.scrollWidth") == 400
    assert page.locator("figure img").evaluate("one => one.naturalWidth > 100 && one.alt.length > 50")


def test_paper_is_white_and_has_the_folded_runs(show: Callable[..., Page]) -> None:
    page = show("", 760, 1000, color_scheme="dark")
    page.locator("details").evaluate("one => { one.open = false; }")
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.documentElement).backgroundColor") == "rgb(255, 255, 255)"
    assert page.locator("details table").evaluate("one => one.getBoundingClientRect().height") > 200


def test_hostile_texts_do_nothing(show: Callable[..., Page]) -> None:
    page = show(TEXT)
    acting = "script:not([type='application/json']), iframe, object, embed, form, svg, a, [onerror], [onload], [onmouseover]"
    assert page.locator(acting).count() == 0
    assert page.locator("img:not([src^='data:image/png'])").count() == 0
    assert page.evaluate("window.owned === undefined && document.title === 'Report of experiment'")

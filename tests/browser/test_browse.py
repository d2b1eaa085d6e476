"""The grid of a store's runs in a real browser, as a file and in JupyterLab: filter, sort, open, compare, by mouse and by keyboard."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from inert import HOSTILE as HOSTILE_TEXTS
from inert import hostile_run
from playwright.sync_api import Locator, Page, expect

import agentlab as lab
from agentlab.testing import ScriptedProvider, call, say

from .axe import COLOURS, faults, faults_in_both_schemes
from .lab_page import DARK, LIGHT, LabPage

HOSTILE = "".join(HOSTILE_TEXTS.values())
GRID, OPENED = ".page-browse", ".page-browse-run"


def search(query: str) -> str:
    """Search."""
    return f"nothing about {query}"


def finish(work: Coroutine[Any, Any, None]) -> None:
    """Run it on a thread: the thread of the browser has an event loop already."""
    with ThreadPoolExecutor(1) as threads:
        threads.submit(asyncio.run, work).result()


def fill(store: lab.Store, *, begin: int = 0, runs: int = 12) -> None:
    """Runs of three agents: every third one is stopped by a condition, one is interrupted."""

    async def to_the_end() -> None:
        for place in range(begin, begin + runs):
            steps, name = 1 + place % 4, ("guide", "writer", "critic")[place % 3]
            script = [
                *[call("search", {"query": f"{n}"}, tokens=(100 * place + n, 10), cost=f"0.00{n + 1}") for n in range(steps)]
            ]
            script += [say(f"Found **{place}**.", tokens=(50, 10), cost="0.001")]
            agent = lab.Agent(ScriptedProvider(script, name=name), name=name, tools=[search], observers=[store])
            topic = "routes" if place % 2 else "prices"
            run = agent.run(f"Compare the {topic} of place {place}.", stop=lab.StepCountIs(1) if place % 3 == 2 else None)
            run.with_id(f"{place:012x}")
            if place == 10:
                await run.step()
                store.let_go(run)
            else:
                await run

    finish(to_the_end())


def many(path: Path, number: int) -> None:
    """A store of this number of runs, copies of twelve."""
    few, store = lab.Store(), lab.Store(path)
    fill(few)
    stored = [(run, few.storage.steps(run.head.run_id)) for run in few.storage.runs()]
    database = store.storage._database  # type: ignore[attr-defined]
    database.execute("BEGIN")
    for place in range(number):
        run, steps = stored[place % 12]
        values = (f"{place:012x}", float(place), run.head.writer, run.head.body, run.end)
        at = database.execute("INSERT INTO runs (run_id, begun_at, writer, head, ended) VALUES (?, ?, ?, ?, ?)", values).lastrowid
        rows = [((at << 32) + step.step, step.row, step.body) for step in steps]
        database.executemany("INSERT INTO steps (id, row, body) VALUES (?, ?, ?)", rows)
    database.execute("COMMIT")
    store.close()


@pytest.fixture
def show(open_file: Callable[..., Page], tmp_path: Path) -> Callable[..., Page]:
    """Opens the file of a store."""

    def open_store(store: lab.Store | Path, *size: int, max_mb: float = 20) -> Page:
        file = lab.browse(store).to_html(tmp_path / "runs.html", max_mb=max_mb)
        assert isinstance(file, Path)
        page = open_file(file, *size)
        expect(page.locator(GRID)).to_be_visible()
        return page

    return open_store


@pytest.fixture(scope="module")
def store() -> lab.Store:
    """Twelve runs, which no test changes."""
    made = lab.Store()
    fill(made)
    return made


def rows(page: Page) -> Locator:
    return page.locator(".page-grid-row")


def cells(page: Page, name: str) -> list[str]:
    return rows(page).locator(f".page-cell.{name}").all_inner_texts()


def number(page: Page) -> Locator:
    return page.locator(".page-browse-head [role=status]")


def sort_by(page: Page, label: str) -> None:
    page.locator(".page-grid-head").get_by_role("button", name=label, exact=True).click()


def focused(page: Page) -> str:
    return str(page.evaluate("document.activeElement?.dataset.id || document.activeElement?.textContent"))


# The grid -------------------------------------------------------------------------------------------------------------------


def test_a_row_says_what_the_run_did(show: Callable[..., Page], store: lab.Store) -> None:
    page = show(store)
    expect(number(page)).to_have_text("12 runs")
    newest = rows(page).first
    expect(newest).to_contain_text(
        re.compile(r"critic.*critic:script.*Compare the routes of place 11\..*ended early.*stop condition")
    )
    expect(newest.locator(".tokens")).to_have_text("1,110")
    expect(newest.locator(".cost_usd")).to_have_text("$0.001")
    expect(newest.locator(".begun_at")).to_have_text(re.compile(r"today \d\d:\d\d"))
    expect(rows(page).nth(1).locator(".state")).to_have_text("interrupted")
    expect(rows(page).nth(1).locator(".why")).to_have_text("")
    assert "score" not in page.locator(".page-grid-head").inner_text().lower()


def test_unknown_is_said(show: Callable[..., Page]) -> None:
    store = lab.Store()
    agent = lab.Agent(ScriptedProvider([say("Yes.", tokens=(None, None))]), observers=[store])

    async def to_the_end() -> None:
        await agent.run("Is it?")

    finish(to_the_end())
    page = show(store)
    assert cells(page, "tokens") == ["unknown"]
    assert cells(page, "cost_usd") == ["unknown"]


def test_filter(show: Callable[..., Page], store: lab.Store) -> None:
    page = show(store)
    box = page.get_by_role("searchbox", name="Filter the runs")
    box.fill("ROUTES guide")
    expect(number(page)).to_have_text("2 of 12 runs")
    assert cells(page, "prompt") == ["Compare the routes of place 9.", "Compare the routes of place 3."]
    for text, found in (("stop condition", 4), ("interrupted", 1), ("critic:script", 4), ("00000000000b", 1), ("nowhere", 0)):
        box.fill(text)
        expect(number(page)).to_have_text(f"{found} of 12 runs")
        expect(rows(page)).to_have_count(found)
    expect(page.get_by_text("No run matches.")).to_be_visible()
    box.press("Escape")
    expect(number(page)).to_have_text("12 runs")


def test_facets(show: Callable[..., Page], store: lab.Store) -> None:
    page = show(store)
    facets = page.get_by_role("group", name="State, or why it ended")
    assert facets.get_by_role("button").all_inner_texts() == ["All\n12", "completed\n7", "stop condition\n4", "interrupted\n1"]
    facets.get_by_role("button", name="stop condition").click()
    expect(number(page)).to_have_text("4 of 12 runs")
    expect(facets.get_by_role("button", name="stop condition")).to_be_focused()
    expect(facets.get_by_role("button", name="stop condition")).to_have_attribute("aria-pressed", "true")
    page.get_by_label("Model").select_option("guide:script")
    expect(number(page)).to_have_text("0 of 12 runs")
    assert facets.get_by_role("button").all_inner_texts() == ["All\n4", "completed\n4", "stop condition\n0"]
    facets.get_by_role("button", name="All").click()
    expect(number(page)).to_have_text("4 of 12 runs")


def test_a_facet_without_runs_any_more_is_let_go(show: Callable[..., Page], store: lab.Store) -> None:
    page = show(store)
    page.evaluate("""() => {
        window.grid = makeGrid({ onOpen() {}, onRefresh() {} });
        document.querySelector('.agentlab-page').replaceChildren(grid.node);
        window.listing = JSON.parse(document.getElementById('agentlab-runs').textContent);
        grid.take(listing);
    }""")
    page.get_by_label("Model").select_option("critic:script")
    expect(number(page)).to_have_text("4 of 12 runs")
    page.evaluate("grid.take({ ...listing, rows: listing.rows.filter((row) => !row.includes('critic:script')) })")
    expect(number(page)).to_have_text("8 runs, none new")
    expect(rows(page)).to_have_count(8)


def test_every_column_sorts(show: Callable[..., Page], store: lab.Store) -> None:
    page = show(store)
    heads = page.get_by_role("columnheader")
    started = heads.filter(has_text="Started")
    expect(started).to_have_attribute("aria-sort", "descending")
    for label, name in (("Tokens", "tokens"), ("Steps", "steps"), ("Cost", "cost_usd"), ("Time", "elapsed_s")):
        sort_by(page, label)
        expect(heads.filter(has_text=label)).to_have_attribute("aria-sort", "descending")
        expect(started).not_to_have_attribute("aria-sort", re.compile(".*"))
        falling = cells(page, name)
        sort_by(page, label)
        rising = cells(page, name)
        if name in ("tokens", "steps"):
            numbers = [int(one.replace(",", "")) for one in rising]
            assert numbers == sorted(numbers) and falling == rising[::-1]
    for label, name in (("Run", "name"), ("Model", "model"), ("Prompt", "prompt"), ("State", "state")):
        sort_by(page, label)
        expect(heads.filter(has_text=re.compile(f"^{label}$"))).to_have_attribute("aria-sort", "ascending")
        texts = cells(page, name)
        assert texts[0] == min(texts) or name == "prompt"
    prompts = [int(one.split()[-1].rstrip(".")) for one in cells(page, "prompt") if "prices" in one]
    sort_by(page, "Prompt")
    prompts = [int(one.split()[-1].rstrip(".")) for one in cells(page, "prompt") if "prices" in one]
    assert prompts == sorted(prompts), "place 10 after place 8"
    sort_by(page, "Why it ended")
    assert cells(page, "why")[-1] == "", "what has no value is last"
    sort_by(page, "Why it ended")
    assert cells(page, "why")[-1] == ""


def test_only_the_rows_in_view_are_in_the_document(show: Callable[..., Page], tmp_path: Path) -> None:
    many(tmp_path / "runs.db", 5_000)
    page = show(tmp_path / "runs.db", max_mb=0.2)
    expect(number(page)).to_have_text("5,000 runs")
    assert rows(page).count() < 50
    expect(page.get_by_role("grid")).to_have_attribute("aria-rowcount", "5001")
    first = rows(page).first
    first.focus()
    page.keyboard.press("End")
    expect(rows(page).last).to_be_focused()
    expect(rows(page).last).to_have_attribute("aria-rowindex", "5001")
    assert rows(page).count() < 50
    page.keyboard.press("Home")
    expect(rows(page).first).to_be_focused()
    page.mouse.move(600, 500)
    page.mouse.wheel(0, 40_000)
    expect(rows(page).filter(has_text="1970").first).to_be_visible()
    expect(page.locator("[data-id='000000001387']")).to_be_focused()
    assert rows(page).count() < 50
    box = page.get_by_role("searchbox")
    took = page.evaluate(
        """() => { const box = document.querySelector('input[type=search]'), began = performance.now();
        box.value = 'guide'; box.dispatchEvent(new Event('input')); return performance.now() - began; }"""
    )
    assert took < 500, "10 ms on an idle machine"
    expect(box).to_have_value("guide")
    expect(number(page)).to_have_text("1,667 of 5,000 runs")


# Open and compare -----------------------------------------------------------------------------------------------------------


def test_open_and_back(show: Callable[..., Page], store: lab.Store) -> None:
    page = show(store)
    page.get_by_role("searchbox").fill("place 9")
    rows(page).first.click()
    opened = page.locator(OPENED)
    expect(opened.locator(".page-bar h1")).to_have_text("guide")
    expect(opened.get_by_role("feed").locator("visible=true")).to_contain_text("Found 9.")
    expect(opened.locator(".page-code code").first).to_have_text('run = store.load("000000000009")')
    expect(opened.locator(".page-browse-codes")).not_to_contain_text("resume")
    expect(page.locator(GRID)).to_be_hidden()
    page.get_by_role("button", name="All runs").click()
    expect(opened).to_be_hidden()
    expect(number(page)).to_have_text("1 of 12 runs")
    expect(rows(page).first).to_be_focused()


def test_keys(show: Callable[..., Page], store: lab.Store) -> None:
    page = show(store)
    page.get_by_role("searchbox").focus()
    page.keyboard.press("ArrowDown")
    assert focused(page) == "00000000000b"
    page.keyboard.press("ArrowDown")
    page.keyboard.press("j")
    page.keyboard.press("k")
    assert focused(page) == "00000000000a"
    page.keyboard.press(" ")
    expect(rows(page).nth(1)).to_have_attribute("aria-selected", "true")
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="All runs")).to_be_focused()
    expect(page.locator(OPENED).locator(".page-bar [role=status]")).to_have_text("interrupted")
    page.keyboard.press("Escape")
    assert focused(page) == "00000000000a"
    page.keyboard.press("/")
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.keyboard.press("Tab")  # the model, then the facets, the heads and one row
    stops = []
    for _ in range(30):
        page.keyboard.press("Tab")
        stops.append(focused(page))
        if stops[-1] == "Clear":
            break
    assert len(stops) == 4 + 10 + 1 + 1, stops


def test_compare_two(show: Callable[..., Page], store: lab.Store) -> None:
    page = show(store)
    compare = page.get_by_role("button", name="Compare", exact=True).first
    expect(compare).to_be_disabled()
    rows(page).nth(0).get_by_role("checkbox", name="Compare critic").check()
    expect(compare).to_be_disabled()
    page.get_by_role("searchbox").fill("place 8")
    rows(page).first.get_by_role("checkbox").check()
    expect(page.locator(".page-browse-foot")).to_contain_text("2 ticked, 1 of them not in view")
    compare.click()
    diff = page.locator(OPENED).locator(".page-diff")
    expect(diff).to_be_visible()
    expect(diff.get_by_role("combobox").first).to_have_value("000000000008")
    expect(diff.get_by_role("combobox").last).to_have_value("00000000000b")
    expect(page.locator(OPENED).locator("code").first).to_have_text(
        'a, b = store.load("000000000008"), store.load("00000000000b"); lab.diff(a, b)'
    )
    page.get_by_role("button", name="All runs").focus()
    page.keyboard.press("Escape")
    expect(diff).to_be_hidden()
    page.keyboard.press("Escape")
    expect(page.locator(GRID)).to_be_visible()
    page.get_by_role("button", name="Clear").click()
    expect(page.locator(".page-browse-foot")).to_contain_text("Tick two or more runs to compare them.")
    expect(rows(page).first).to_be_focused()


def test_compare_more(show: Callable[..., Page], store: lab.Store) -> None:
    page = show(store)
    for place in range(9):
        rows(page).nth(place).get_by_role("checkbox").check()
    compare = page.get_by_role("button", name="Compare", exact=True).first
    expect(compare).to_be_disabled()
    expect(page.locator(".page-browse-foot")).to_contain_text("9 ticked; at most 8 can be compared.")
    for place in range(3, 9):
        rows(page).nth(place).get_by_role("checkbox").uncheck()
    compare.click()
    chips = page.locator(OPENED).locator(".page-chip")
    expect(chips).to_have_count(3)
    chips.last.click()
    expect(page.locator(OPENED).locator(".page-bar h1")).to_have_text("critic")


def test_code_that_continues_a_run(show: Callable[..., Page], tmp_path: Path) -> None:
    with lab.Store(tmp_path / "runs.db") as store:
        fill(store)
        far = store.run_ids()[10]
        store.storage.claim(far, json.dumps(["elsewhere", 1, "1", 1]), instead_of="nobody")
    page = show(tmp_path / "runs.db")
    expect(rows(page).nth(1).locator(".state")).to_have_text("unknown")
    rows(page).nth(1).click()
    codes = page.locator(OPENED).locator(".page-browse-codes")
    expect(codes).to_contain_text("To continue, once its process is gone")
    expect(codes.locator("code").last).to_have_text(f"run = lab.Store('runs.db').resume(\"{far}\", agent, take_over=True)")


def test_runs_that_are_not_in_the_file(show: Callable[..., Page], store: lab.Store) -> None:
    page = show(store, max_mb=0)
    expect(page.locator(".page-browse-foot")).to_contain_text("0 of 12 runs can be opened in this file")
    expect(rows(page).first.get_by_role("checkbox")).to_be_disabled()
    rows(page).first.click()
    expect(page.get_by_text("This run is listed but not in this file")).to_be_visible()
    expect(page.locator(OPENED).locator("code")).to_have_text('run = store.load("00000000000b")')
    page.keyboard.press("Escape")
    expect(page.locator(GRID)).to_be_visible()


def test_an_empty_store(show: Callable[..., Page]) -> None:
    page = show(lab.Store())
    expect(page.get_by_text("This store has no runs yet.")).to_be_visible()
    expect(page.get_by_text("store.keep(run)")).to_be_visible()
    assert faults(page, ".agentlab-page") == []


# On every screen, for everybody ---------------------------------------------------------------------------------------------

STICKS_OUT = """() => [...document.querySelectorAll('.page-browse *')].filter(one => {
    if (!one.checkVisibility() || one.closest('svg, .page-chips, .page-unseen')) return false;
    return one.getBoundingClientRect().right > innerWidth + 1;
}).map(one => one.outerHTML.slice(0, 120))"""


TWO_FRAMES = "new Promise(drawn => requestAnimationFrame(() => requestAnimationFrame(drawn)))"


def test_nothing_sticks_out(show: Callable[..., Page], store: lab.Store) -> None:
    page = show(store, 1900, 800)
    too_wide = "(() => { const grid = document.querySelector('.page-grid'); return grid.scrollWidth - grid.clientWidth; })()"
    for width in (1900, 1440, 1100, 1000, 900, 800, 420):
        page.set_viewport_size({"width": width, "height": 800})
        page.evaluate(TWO_FRAMES)
        assert page.evaluate("document.documentElement.scrollWidth") == width
        assert page.evaluate(too_wide) <= 0
        assert page.evaluate(STICKS_OUT) == [], width
        for column in page.locator(".page-grid-head .page-cell").locator("visible=true").all()[1:]:
            assert (column.bounding_box() or {})["width"] > 50, (width, column.inner_text())


LONG_NAME = "trip-to-lisbon-with-the-night-train"


@pytest.mark.parametrize(
    ("width", "without"),
    [
        (1440, []),
        (900, ["Model", "Why it ended", "Steps", "Time"]),
        (620, ["Model", "Steps", "Tokens", "Cost", "Time", "Started"]),
    ],
)
def test_names_have_room_and_the_grid_says_what_has_none(show: Callable[..., Page], width: int, without: list[str]) -> None:
    store = lab.Store()
    fill(store)
    agent = lab.Agent(ScriptedProvider([say("Yes.", tokens=(50, 10), cost="0.25")], name="sonnet"), observers=[store])
    run = agent.run("Plan a weekend.")
    run.with_id(LONG_NAME)

    async def to_the_end() -> None:
        await run

    finish(to_the_end())
    page = show(store, width, 700)
    name = rows(page).first.locator(".name bdi")
    expect(name).to_have_text(LONG_NAME)
    cell, text = rows(page).first.locator(".name").bounding_box(), name.bounding_box()
    assert cell and text
    if width > 620:
        assert text["x"] + text["width"] <= cell["x"] + cell["width"] - 9, "the name is not cut"
    heads = page.get_by_role("columnheader").locator("visible=true").all_inner_texts()
    assert not set(without) & set(heads)
    assert {"Run", "Prompt", "State"} <= set(heads)
    tip = rows(page).first.get_attribute("title") or ""
    foot = page.locator(".page-browse-foot")
    for label in without:
        expect(foot).to_contain_text(label)
        assert f"{label}: " in tip
    if not without:
        expect(foot).not_to_contain_text("No room")
        assert tip == ""
    page.set_viewport_size({"width": 1440, "height": 700})
    expect(foot).not_to_contain_text("No room")
    expect(page.get_by_role("columnheader", name="Model")).to_be_visible()


def test_axe_finds_no_fault(show: Callable[..., Page], store: lab.Store) -> None:
    page = show(store)
    for place in (2, 3):
        rows(page).nth(place).get_by_role("checkbox").check()
    assert faults_in_both_schemes(page, ".agentlab-page") == []
    page.get_by_role("button", name="Compare", exact=True).first.click()
    expect(page.locator(OPENED).locator(".page-diff")).to_be_visible()
    assert faults_in_both_schemes(page, OPENED) == []
    page.get_by_role("button", name="All runs").click()
    rows(page).nth(1).click()
    expect(page.locator(OPENED).get_by_role("feed").locator("visible=true")).to_be_visible()
    assert faults_in_both_schemes(page, OPENED) == []


def test_hostile_names_are_text(show: Callable[..., Page]) -> None:
    store = lab.Store()
    agent = lab.Agent(ScriptedProvider([say(HOSTILE)], name=HOSTILE[:200]), name=HOSTILE[:200], observers=[store])
    run = agent.run(HOSTILE)
    run.with_id("'\"); <b onclick=alert(1)>\N{RIGHT-TO-LEFT OVERRIDE}</script>\\")

    async def to_the_end() -> None:
        await run

    finish(to_the_end())
    page = show(store)
    row = rows(page).first
    assert row.locator(":scope *").evaluate_all("all => [...new Set(all.map(one => one.localName))].sort()") == [
        "bdi", "div", "input", "path", "small", "svg"
    ]  # fmt: skip
    row.click()
    code = page.locator(OPENED).locator("code").first.inner_text()
    scope: dict[str, Any] = {"store": store}
    exec(code, scope)
    assert scope["run"].id == run.id, "the code that is shown loads the run"
    assert "\N{RIGHT-TO-LEFT OVERRIDE}" not in code
    assert page.locator(OPENED).locator("[onclick]").count() == 0


ACTING = ':is(script:not([type="application/json"]), iframe, object, embed, form, [onerror], [onload], [onclick], '
ACTING += 'a[href^="javascript" i], img:not([src^="data:image/"]))'


@pytest.mark.filterwarnings("ignore::agentlab.errors.AgentlabWarning")
def test_hostile_runs_do_nothing(show: Callable[..., Page]) -> None:
    store = lab.Store()
    run = hostile_run(HOSTILE)
    for one in (run, *run.branches):
        store.keep(one)
    page = show(store)
    opened = page.locator(OPENED)
    for place in range(rows(page).count()):
        rows(page).nth(place).click()
        expect(opened.get_by_role("feed").locator("visible=true")).to_be_visible()
        for key in ("Home", "PageDown", "PageDown", "End"):
            page.keyboard.press(key)
            page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
        assert page.locator(f".agentlab-page {ACTING}").count() == 0
        page.get_by_role("button", name="All runs").click()
    for place in (0, 1):
        rows(page).nth(place).get_by_role("checkbox").check()
    page.get_by_role("button", name="Compare", exact=True).first.click()
    expect(opened.locator(".page-diff")).to_be_visible()
    assert page.locator(f".agentlab-page {ACTING}").count() == 0
    assert page.evaluate("window.owned === undefined && document.documentElement.scrollWidth === innerWidth")


# In JupyterLab --------------------------------------------------------------------------------------------------------------

CELLS = [
    """
import tempfile
import agentlab as lab
from agentlab.testing import ScriptedProvider, call, say

path = tempfile.mkdtemp() + "/runs.db"
store = lab.Store(path)

def search(query: str) -> str:
    "Search."
    return f"nothing about {query}"

async def one(place):
    script = [call("search", {"query": "a"}, tokens=(100, 10), cost="0.001"), say(f"Found **{place}**.", tokens=(50, 10), cost="0.001")]
    agent = lab.Agent(ScriptedProvider(script, name="guide"), name="guide", tools=[search], observers=[store])
    return await agent.run(f"Find place {place}.")

for place in range(5):
    await one(place)
asker = ScriptedProvider([call("search", {"query": "b"})])
await lab.Agent(asker, name="asker", tools=[search], approve=["search"], observers=[store]).run("Ask me.")
""",
    "lab.browse(path)",
    "for place in range(5, 7):\n    await one(place)",
]


def test_the_grid_in_a_notebook(lab_page_of_runs: LabPage) -> None:
    lab_page, page = lab_page_of_runs, lab_page_of_runs.page
    expect(number(page)).to_have_text("6 runs")
    expect(page.locator(".agentlab-kept").locator("visible=true")).to_have_count(0)
    expect(rows(page).first.locator(".state")).to_have_text("waiting for approval")
    assert faults(page, ".agentlab-page") == []
    lab_page.run_cell(2)
    expect(number(page)).to_have_text("6 runs")
    page.get_by_role("button", name="Refresh", exact=True).click()
    expect(number(page)).to_have_text("8 runs, 2 new")
    rows(page).first.focus()
    for key in "dd":  # which would delete the cell
        page.keyboard.press(key)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.locator(".jp-Notebook .jp-Cell")).to_have_count(3)
    opened = page.locator(OPENED)
    expect(opened.get_by_role("feed").locator("visible=true")).to_contain_text("Found 5.")
    expect(opened.locator("code").first).to_have_text(
        re.compile(r"run = lab\.Store\('/\S+/runs\.db'\)\.load\(\"[0-9a-f]{12}\"\)")
    )
    expect(opened.get_by_role("button", name="Pause")).to_have_count(0)
    assert faults(page, OPENED) == []
    lab_page.use_theme(DARK)
    assert faults(page, OPENED, only=COLOURS) == []
    lab_page.picture("browse-opened-dark")
    page.keyboard.press("Escape")
    for place in (1, 2):
        rows(page).nth(place).get_by_role("checkbox").check()
    lab_page.picture("browse-dark")
    assert faults(page, GRID) == []
    page.get_by_role("button", name="Compare", exact=True).first.click()
    expect(opened.locator(".page-diff")).to_be_visible()
    lab_page.use_theme(LIGHT)


def test_two_runs_are_compared_by_keyboard_in_a_notebook_and_one_is_gone(lab_page_of_runs: LabPage) -> None:
    page = lab_page_of_runs.page
    page.get_by_role("searchbox", name="Filter the runs").focus()
    for key in ("g", "u", "i", "ArrowDown", "Space", "ArrowDown", "Space"):
        page.keyboard.press(key)
    expect(page.locator(".page-browse-foot")).to_contain_text("2 ticked")
    for _ in range(20):
        page.keyboard.press("Tab")
        if focused(page) == "Compare":
            break
    page.keyboard.press("Enter")
    diff = page.locator(OPENED).locator(".page-diff")
    expect(diff).to_be_visible()
    expect(page.get_by_role("button", name="All runs")).to_be_focused()
    page.keyboard.press("Escape")
    expect(diff).to_be_hidden()
    expect(page.get_by_role("button", name="All runs")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator(GRID)).to_be_visible()
    assert page.evaluate("document.activeElement.closest('.page-browse') !== null")
    expect(page.locator(".jp-Notebook .jp-Cell")).to_have_count(3)
    saved = lab_page_of_runs.wait_for_saved(1, "Find place 4.")  # a copy is kept
    assert "runs.db: 6 runs" in "".join(saved["data"]["text/html"])

    page.get_by_role("searchbox", name="Filter the runs").fill("")
    lab_page_of_runs.kernel_value("[store.delete(one) for one in store.run_ids()[:1]]")
    rows(page).last.click()
    expect(page.locator(f"{OPENED} > .page-grid-empty")).to_contain_text("There is no run")
    page.get_by_role("button", name="All runs").click()
    page.get_by_role("button", name="Refresh", exact=True).click()
    expect(number(page)).to_have_text("5 runs, none new")


@pytest.fixture
def lab_page_of_runs(lab: LabPage, request: pytest.FixtureRequest) -> LabPage:
    """A notebook with a store of six runs, the grid of which is shown."""
    lab.open(lab.jupyter.write_notebook(re.sub(r"\W+", "-", request.node.name), CELLS))
    lab.run_cell(0)
    lab.run_cell(1)
    expect(rows(lab.page).first).to_be_visible()
    return lab

"""The page of a run in a real browser, opened as a file: everything on one screen, by mouse and by keyboard, however long the run."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

import agentlab as lab
from agentlab.notebook.panel.settings import settings_data
from agentlab.testing import ScriptedProvider, say
from agentlab.testing import call as called

from .axe import faults, faults_in_both_schemes
from .page_data import Data, a_limit, a_run, a_step, call, family, hostile_run, long_run, page_of, says

ROOT = ".agentlab-page"
Opened = Callable[..., Page]


@pytest.fixture
def opened(open_file: Opened, tmp_path: Path) -> Opened:
    """Opens the page of these runs from a file."""

    def open_page(runs: list[Data] | str, *size: int, **settings: Any) -> Page:
        file = tmp_path / f"page-{len(list(tmp_path.iterdir()))}.html"
        file.write_text(runs if isinstance(runs, str) else page_of(runs), encoding="utf-8")
        page = open_file(file, *size, **settings)
        expect(page.locator(".page-item").first).to_be_visible()
        return page

    return open_page


def transcript(page: Page) -> Locator:
    """The transcript, or the two beside each other: what is shown of them."""
    return page.get_by_role("feed").locator("visible=true")


def step(page: Page, n: int) -> Locator:
    return transcript(page).get_by_role("article", name=f"Step {n}", exact=True)


def chip(page: Page, name: str) -> Locator:
    return page.get_by_role("navigation", name="Runs").get_by_role("button", name=name, exact=True)


def at_step(page: Page, n: int) -> None:
    """The scrubber, the charts, the drawer and the transcript are at this step."""
    expect(page.get_by_role("slider", name="Step", exact=True)).to_have_value(str(n))
    expect(page.locator("[data-section=step] h2")).to_have_text(f"Step {n:,}")
    expect(page.get_by_role("slider", name="Tokens up to the chosen step")).to_have_attribute("aria-valuenow", str(n))
    expect(transcript(page).locator("[aria-current=step]")).to_have_attribute("data-index", str(n))
    expect(step(page, n)).to_be_in_viewport()


# One screen -----------------------------------------------------------------------------------------------------------------

STICKS_OUT = """() => [...document.querySelectorAll('.agentlab-page *')].filter(one => {
    if (!one.checkVisibility() || one.closest('svg') || one.getBoundingClientRect().right <= innerWidth + 1) return false;
    for (let box = one.parentElement; box; box = box.parentElement)
        if (['auto', 'scroll', 'hidden', 'clip'].includes(getComputedStyle(box).overflowX)
            && box.getBoundingClientRect().right <= innerWidth + 1) return false;
    return true;
}).map(one => one.outerHTML.slice(0, 120))"""


@pytest.mark.parametrize(("width", "height"), [(1440, 900), (900, 860), (1900, 1000), (420, 800)])
def test_all_is_on_one_screen(opened: Opened, width: int, height: int) -> None:
    page = opened(family(), width, height)
    size = page.evaluate(
        "[document.documentElement.scrollWidth, document.documentElement.scrollHeight, document.body.scrollHeight]"
    )
    assert size == [width, height, height]
    assert page.evaluate(STICKS_OUT) == []
    for area in (".page-bar", ".page-runs", ".page-tools", ".page-transcript >> nth=0"):
        expect(page.locator(area)).to_be_in_viewport(ratio=0.99)
    if width > 600:
        expect(page.locator("[data-section=end]")).to_be_in_viewport(ratio=0.99)
    else:
        page.get_by_role("button", name="Overview").click()
        expect(page.locator("[data-section=end]")).to_be_in_viewport(ratio=0.99)
        page.get_by_role("button", name="Transcript").click()
        expect(transcript(page)).to_be_visible()


@pytest.mark.parametrize("width", [1440, 900, 420])
def test_what_conditions_read_and_what_limits_hold_is_shown_whole(opened: Opened, width: int) -> None:
    reads = "HasToolCall(finalize): 0 calls · MaxTokensUsed 3,146 of 10,000 · MaxCost $0.014346 of $0.05 · is_long: no · not met"
    outcome = "done · 1.94 s · edited in this branch"
    called = call("look_up", '{"city": "Graz", "days": 12}', "rain", outcome)
    page = opened([a_run("one", [a_step(1, says("Hm.")), a_step(2, called, reads=reads)])], width)
    expect(step(page, 2).locator(".page-reads")).to_have_text(reads)
    expect(step(page, 2).locator(".agentlab-call-outcome")).to_have_text(outcome)
    cut = """() => [...document.querySelectorAll('.page-rule, .page-reads, .page-limits .page-limit-used, .agentlab-call-outcome')]
        .filter(one => one.checkVisibility() ? one.scrollWidth > one.clientWidth + 1 : one.matches('.page-reads'))
        .map(one => one.outerHTML)"""
    assert page.evaluate(cut) == []


CUT = """where => {
    const texts = [...document.querySelectorAll(`${where} :is(.page-label, .page-value)`)].filter(one => one.checkVisibility());
    const boxes = texts.map(one => one.getBoundingClientRect());
    const crosses = (a, b) => a !== b && a.left < b.right - 1 && a.right > b.left + 1 && a.top < b.bottom && a.bottom > b.top;
    return texts.filter((one, place) => one.scrollWidth > one.clientWidth + 1
        || boxes[place].right > one.closest(where).getBoundingClientRect().right
        || boxes.some(box => crosses(box, boxes[place]))).map(one => one.textContent);
}"""
"""Figures that are cut, stick out, or are printed over each other."""

NARROW = (1010, 990, 900, 848, 780, 700, 640, 390, 360)


def large(name: str, tokens: int, cost: float) -> Data:
    """A run with large figures and limits."""
    run = a_run(name, [a_step(1, says("Hm."))])
    run["totals"] |= {"steps": 42, "tokens": tokens, "cost_usd": cost, "elapsed_s": 754.2}
    used = [
        ("Steps", "steps", 42, 200),
        ("Tokens", "tokens", tokens, 4 * tokens),
        ("Cost", "usd", cost, 50.0),
        ("Time", "s", 754.2, 3_600),
    ]
    run["limits"] = [a_limit(title, title, *rest) for title, *rest in used]
    return run


@pytest.mark.parametrize("tokens", [123_456, 12_345_678])
def test_figures_in_the_bar_are_whole_at_every_width(opened: Opened, tokens: int) -> None:
    page = opened([large("one", tokens, 0.123456)])
    for width in NARROW:
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate(CUT, ".page-bar") == [], width


def test_the_bar_says_where_the_run_is(opened: Opened) -> None:
    page = opened(family())
    bar = page.locator(".page-bar")
    expect(bar.get_by_role("status")).to_have_text("ended")
    expect(bar).to_contain_text("guide")
    expect(bar).to_contain_text("anthropic:claude-sonnet-4-6")
    for text in ("Steps4 of 9", "Tokens400 of 801", "Cost$0.04 of $0.054", "Time2 s"):
        expect(bar.locator(".page-gauge", has_text=text)).to_have_count(1)
    chip(page, "max_turns 3").click()
    expect(bar.get_by_role("status")).to_have_text("ended early")
    expect(page.locator("[data-section=end]")).to_contain_text("Budget reached: max_turns 3 of 3.")


def test_a_limit_on_another_thing_is_not_taken_for_one_on_the_total(opened: Opened) -> None:
    (run,) = long_run(3)
    page = opened([{**run, "limits": [a_limit("OneStepTokens", "OneStepTokens", "tokens", 90, 100)]}])
    expect(page.locator(".page-gauge", has_text="Tokens")).to_have_text("Tokens300")
    expect(page.locator(".page-chart").first).not_to_contain_text("limit")
    expect(page.locator("[data-section=limits] li")).to_contain_text("90 of 100, near")


# Actions --------------------------------------------------------------------------------------------------------------------


def test_everything_follows_the_scrubber(opened: Opened) -> None:
    page = opened(long_run(61))
    at_step(page, 1)
    page.get_by_role("button", name="Next step").click()
    at_step(page, 2)
    page.get_by_role("button", name="Previous step").click()
    at_step(page, 1)
    scrubber = page.get_by_role("slider", name="Step", exact=True)
    scrubber.focus()
    page.keyboard.press("End")
    at_step(page, 61)
    expect(scrubber).to_have_attribute("aria-valuetext", "Step 61 of 61, end turn")
    page.keyboard.press("ArrowLeft")
    at_step(page, 60)
    box = scrubber.bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    at_step(page, 31)
    scrubber.fill("7")
    at_step(page, 7)


def test_keys_in_the_transcript(opened: Opened) -> None:
    page = opened(long_run(60))
    transcript(page).focus()
    page.keyboard.press("j")
    page.keyboard.press("j")
    at_step(page, 3)
    page.keyboard.press("k")
    at_step(page, 2)
    page.keyboard.press("ArrowDown")
    at_step(page, 3)
    page.keyboard.press("ArrowUp")
    at_step(page, 2)
    page.keyboard.press("End")
    at_step(page, 60)
    expect(transcript(page).get_by_role("article", name="End")).to_be_in_viewport(ratio=0.99)
    page.keyboard.press("Home")
    at_step(page, 1)
    expect(transcript(page).get_by_role("article", name="Prompt")).to_be_in_viewport(ratio=0.99)


def test_arrow_keys_scroll_through_a_step_that_is_longer_than_the_view(opened: Opened) -> None:
    page = opened([a_run("one", [a_step(1, says("a line<br>" * 120)), a_step(2, says("the end"), "end_turn")])])
    transcript(page).focus()
    page.keyboard.press("j")
    page.keyboard.press("k")
    at_step(page, 1)
    for _ in range(3):
        page.keyboard.press("ArrowDown")
    page.wait_for_timeout(300)
    at_step(page, 1)
    assert 0 < page.evaluate("document.querySelector('.page-transcript').scrollTop") < 1_000
    for _ in range(120):
        page.keyboard.press("ArrowDown")
    at_step(page, 2)


def test_scrolling_and_clicking_choose_the_step_that_is_read(opened: Opened) -> None:
    page = opened(long_run(60))
    transcript(page).hover()
    for _ in range(8):
        page.mouse.wheel(0, 300)
        page.wait_for_timeout(20)
    chosen = int(page.get_by_role("slider", name="Step", exact=True).input_value())
    assert 5 < chosen < 40
    at_step(page, chosen)
    page.mouse.wheel(0, 100_000)
    at_step(page, 60)
    page.mouse.wheel(0, -100_000)
    expect(transcript(page).get_by_role("article", name="Prompt")).to_be_in_viewport(ratio=0.99)
    step(page, 2).locator(".agentlab-md").click()
    at_step(page, 2)
    assert page.evaluate("document.querySelector('.page-transcript').scrollTop") == 0, "a click does not scroll"


def test_charts_read_values_and_choose_a_step(opened: Opened) -> None:
    page = opened(long_run(60))
    chart = page.locator(".page-chart", has_text="Tokens").first
    reader = page.get_by_role("slider", name="Tokens up to the chosen step")
    box = reader.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 50)
    expect(chart.locator("output")).to_have_text("step 30: 3,000 (+100)")
    page.mouse.move(5, 5)
    expect(chart.locator("output")).to_have_text("step 1: 100 (+100)")
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + 50)
    at_step(page, 30)
    reader.focus()
    page.keyboard.press("ArrowRight")
    at_step(page, 31)
    expect(reader).to_have_attribute("aria-valuetext", "step 31: 3,100 (+100), limit 12,001")
    page.keyboard.press("PageUp")
    at_step(page, 37)
    page.keyboard.press("Home")
    at_step(page, 1)
    expect(chart).to_contain_text("limit 12,001")
    expect(page.locator(".page-chart", has_text="Cost").first).to_contain_text("used $0.60")


def test_a_total_is_unknown_from_the_first_unknown_step_on(opened: Opened) -> None:
    steps = [a_step(n, says(f"Shelf {n}."), tokens=tokens) for n, tokens in enumerate((100, None, 100), 1)]
    page = opened([a_run("gap", steps)])
    reader = page.get_by_role("slider", name="Tokens up to the chosen step")
    reader.focus()
    for key, words in (
        ("Home", "step 1: 100 (+100)"),
        ("ArrowRight", "step 2: unknown"),
        ("ArrowRight", "step 3: unknown (+100)"),
    ):
        page.keyboard.press(key)
        expect(reader).to_have_attribute("aria-valuetext", re.compile(re.escape(words) + "(,|$)"))
    expect(page.get_by_role("slider", name="Cost up to the chosen step")).to_have_attribute(
        "aria-valuetext", re.compile(r"step 3: \$0\.03 ")
    )


def test_runs_are_opened_from_chips_links_table_and_keys(opened: Opened) -> None:
    page = opened(family())
    expect(chip(page, "guide")).to_have_attribute("aria-current", "true")
    step(page, 2).get_by_role("button", name="max_turns 3").click()
    expect(chip(page, "max_turns 3")).to_have_attribute("aria-current", "true")
    expect(transcript(page)).to_contain_text("I stop here.")
    step(page, 2).get_by_role("button", name="guide").click()
    step(page, 3).get_by_role("button", name="scout-1").click()
    expect(transcript(page)).to_contain_text("In Linz.")
    page.locator("[data-section=runs] summary").click()
    rows = page.locator("[data-section=runs] tbody tr")
    expect(rows).to_have_count(3)
    expect(rows.nth(1)).to_contain_text("turn limit, branch after step 2")
    expect(rows.nth(2)).to_contain_text("completed, sub-agent")
    rows.first.get_by_role("button").focus()
    page.keyboard.press("Enter")
    expect(chip(page, "guide")).to_have_attribute("aria-current", "true")
    expect(rows.first.get_by_role("button")).to_be_focused()
    page.keyboard.press("]")
    expect(chip(page, "max_turns 3")).to_have_attribute("aria-current", "true")
    page.keyboard.press("[")
    expect(chip(page, "guide")).to_have_attribute("aria-current", "true")
    chip(page, "scout-1").focus()
    page.keyboard.press("Enter")
    expect(transcript(page)).to_contain_text("In Linz.")


def test_a_branch_has_the_steps_that_it_shares_with_its_parent(opened: Opened) -> None:
    runs = family()
    runs[1]["steps"] = runs[1]["steps"][2:]
    runs[1]["kept"] = 2
    page = opened(runs)
    chip(page, "max_turns 3").click()
    expect(page.locator(".page-step")).to_have_text("Step 1 of 3")
    for n, text in ((1, "shelves"), (2, "cellar"), (3, "I stop here.")):
        expect(step(page, n)).to_contain_text(text)


def test_each_run_keeps_its_chosen_step(opened: Opened) -> None:
    page = opened(family())
    step(page, 3).locator(".agentlab-md").click()
    chip(page, "max_turns 3").click()
    at_step(page, 1)
    chip(page, "guide").click()
    at_step(page, 3)


def test_search_goes_from_hit_to_hit_and_unfolds_what_hides_it(opened: Opened) -> None:
    page = opened(family())
    page.keyboard.press("/")
    box = page.get_by_role("searchbox")
    expect(box).to_be_focused()
    box.fill("no LIGHT")
    expect(page.locator(".page-found")).to_have_text("1 step")
    expect(page.locator(".page-hit-tick")).to_have_count(1)
    page.keyboard.press("Enter")
    at_step(page, 2)
    expect(step(page, 2).get_by_text("no light")).to_be_in_viewport()
    assert page.evaluate("[...CSS.highlights.get('agentlab-hit')].map(String)") == ["no light"]
    box.fill("linz")
    page.keyboard.press("Enter")
    at_step(page, 4)
    box.fill("search")
    expect(page.locator(".page-found")).to_have_text(re.compile("2 steps"))
    page.get_by_role("button", name="Next hit").click()
    at_step(page, 1)
    page.get_by_role("button", name="Previous hit").click()
    at_step(page, 2)
    box.fill("nowhere")
    expect(page.locator(".page-found")).to_have_text("no hits")
    box.press("Escape")
    expect(page.locator(".page-found")).to_have_text("")
    expect(transcript(page)).to_be_focused()
    assert page.evaluate("CSS.highlights.get('agentlab-hit').size") == 0


def test_the_number_of_hits_has_room_on_a_phone(opened: Opened) -> None:
    page = opened(family(), 390, 800)
    page.get_by_role("searchbox").fill("search")
    said = page.locator(".page-found")
    expect(said).to_have_text("1 of 2 steps")
    boxes = [one.bounding_box() for one in (page.get_by_role("searchbox"), said, page.get_by_role("button", name="Previous hit"))]
    for left, right in itertools.pairwise(boxes):
        assert left and right and left["x"] + left["width"] <= right["x"]


def test_search_finds_the_prompt_and_marks_only_what_it_counts(opened: Opened) -> None:
    page = opened(family())
    box, said = page.get_by_role("searchbox"), page.locator(".page-found")
    prompt = transcript(page).get_by_role("article", name="Prompt")
    marked = "[...CSS.highlights.get('agentlab-hit')].map(String)"
    transcript(page).press("End")
    box.fill("green umbrella")
    box.press("Enter")
    expect(said).to_have_text("1 of 1 place")
    expect(prompt).to_be_in_viewport(ratio=0.99)
    assert page.evaluate(marked) == ["green umbrella"]
    box.fill("the ")
    expect(said).to_have_text("1 of 4 places")
    for place in (2, 3, 4):
        box.press("Enter")
        expect(said).to_have_text(f"{place} of 4 places")
        at_step(page, place - 1)
    box.press("Enter")
    expect(said).to_have_text("1 of 4 places")
    expect(prompt).to_be_in_viewport(ratio=0.99)
    box.press("Shift+Enter")
    at_step(page, 3)
    box.fill("ended its turn")  # in the words on the end
    expect(said).to_have_text("no hits")
    assert page.evaluate(marked) == []


def test_folds_stay_as_they_were_left(opened: Opened) -> None:
    page = opened(long_run(300))
    first = step(page, 1).locator(".agentlab-call").first
    expect(first.locator("pre").first).to_be_hidden()
    first.locator("summary").click()
    step(page, 1).get_by_text("Details").click()
    step(page, 1).get_by_text("Model calls").click()
    transcript(page).focus()
    page.keyboard.press("End")
    at_step(page, 300)
    expect(step(page, 1)).to_have_count(0)
    page.keyboard.press("Home")
    expect(first.locator("pre").first).to_be_visible()
    expect(step(page, 1).get_by_text("one call")).to_be_visible()
    first.locator("summary").click()
    expect(first.locator("pre").first).to_be_hidden()


def test_a_fold_that_is_opened_as_its_step_leaves_the_document_stays_open(opened: Opened) -> None:
    page = opened(long_run(300))
    transcript(page).focus()
    page.evaluate("""() => {
        document.querySelector('.page-more').open = true; // its event comes after what follows
        const end = new KeyboardEvent('keydown', { key: 'End', bubbles: true });
        document.activeElement.dispatchEvent(end);
    }""")
    at_step(page, 300)
    expect(step(page, 1)).to_have_count(0)
    page.keyboard.press("Home")
    expect(step(page, 1).locator(".page-more")).to_have_attribute("open", "")


def test_a_fold_opens_in_its_place(opened: Opened) -> None:
    """Its summary does not move under the pointer, also at the end of the transcript."""
    page = opened(long_run(300))
    for n, key in ((1, "Home"), (299, "End")):
        transcript(page).focus()
        page.keyboard.press(key)
        summary = step(page, n).locator(".agentlab-call > summary").first
        expect(summary).to_be_in_viewport(ratio=0.99)
        before = summary.bounding_box()
        summary.click()
        page.wait_for_timeout(100)
        assert summary.bounding_box() == before


def test_two_runs_are_compared(opened: Opened) -> None:
    page = opened(family())
    page.get_by_role("button", name="Compare", exact=True).click()
    pair = page.get_by_role("region", name="Comparison")
    expect(pair.get_by_label("Left run").locator("option:checked")).to_have_text("guide")
    expect(pair.get_by_label("Right run").locator("option:checked")).to_have_text(re.compile("max_turns 3"))
    facts = pair.locator(".page-differences")
    for text in (
        "First differencestep 3",
        "Steps\u22121 (\u221225 %)",
        "Tokens\u2212100 (\u221225 %)",
        "Cost\u2212$0.01 (\u221225 %)",
    ):
        expect(facts).to_contain_text(text)
    expect(facts).to_contain_text("completed \u2192 turn limit")
    expect(step(page, 3)).to_be_in_viewport()
    expect(step(page, 3)).to_contain_text("first difference")
    expect(step(page, 3).locator(".page-own")).to_have_count(2)
    expect(step(page, 4)).to_contain_text("The run ended before this step")
    transcript(page).focus()
    page.keyboard.press("Home")
    expect(step(page, 1)).to_contain_text("the same")
    expect(step(page, 1).locator(".page-side")).to_have_count(1)
    facts.get_by_role("button", name="step 3").click()
    expect(step(page, 3)).to_be_in_viewport()
    pair.get_by_role("button", name="Swap the runs").click()
    expect(facts).to_contain_text("turn limit \u2192 completed")
    expect(facts).to_contain_text("Tokens+100 (+33 %)")
    chip(page, "max_turns 3").click()  # the run on the other side: they change places
    expect(facts).to_contain_text("completed \u2192 turn limit")
    pair.get_by_label("Left run").select_option("scout")
    expect(facts).to_contain_text("First differencestep 1")
    pair.get_by_role("button", name="Close").click()
    expect(pair).to_be_hidden()
    expect(step(page, 1)).to_be_visible()
    page.keyboard.press("c")
    expect(pair).to_be_visible()
    page.keyboard.press("Escape")
    expect(pair).to_be_hidden()


def test_keys_go_through_the_steps_that_only_the_other_run_has(opened: Opened) -> None:
    shelves = [a_step(n, says(f"Shelf {n}. " + "I look at the next one. " * 60)) for n in range(1, 9)]
    page = opened(
        [a_run("long", shelves), a_run("short", [*shelves[:2], a_step(3, says("I stop."))], parent="long", forked_at=2)]
    )
    chip(page, "short").click()
    page.keyboard.press("c")
    transcript(page).press("Home")
    top = "() => document.elementFromPoint(300, document.querySelector('.page-pairs').getBoundingClientRect().top + 20)"
    at_the_top = top + ".closest('[data-index]').getAttribute('aria-label')"
    for n in (2, 3, 4, 5, 6):
        page.keyboard.press("j")
        assert page.evaluate(at_the_top) == f"Step {n}"
    for n in (5, 4, 3, 2):
        page.keyboard.press("k")
        assert page.evaluate(at_the_top) == f"Step {n}"
    page.keyboard.press("End")
    expect(transcript(page).locator("[data-index='9']")).to_be_in_viewport(ratio=0.99)


def test_times_do_not_make_two_steps_differ(opened: Opened) -> None:
    runs = family()
    twin = [{**one, "html": one["html"].replace("3 ms", "2 s"), "duration_s": 9.0} for one in runs[0]["steps"]]
    page = opened([runs[0], a_run("twin", twin, "twin")])
    page.keyboard.press("c")
    expect(page.locator(".page-differences")).to_contain_text("none: the steps are the same")


def test_code_of_a_next_action_is_copied(opened: Opened) -> None:
    page = opened(family())
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    chip(page, "max_turns 3").click()
    button = page.get_by_role("button", name="Copy the code: Raise the turn limit to 6 and go on")
    button.click()
    expect(button).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == "branch = run.apply()"


def test_keys_are_listed(opened: Opened) -> None:
    page = opened(family())
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog", name="Keys and marks")
    expect(dialog).to_be_visible()
    expect(dialog).to_contain_text("next step, previous step")
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    page.get_by_role("button", name="Keys and marks").click()
    dialog.get_by_role("button", name="Close").click()
    expect(dialog).to_be_hidden()


def test_sections_fold_and_show_the_chosen_step(opened: Opened) -> None:
    page = opened(family())
    section = page.locator("[data-section=step]")
    expect(section.locator(".page-timeline li")).to_have_text([re.compile("model"), re.compile("tool search")])
    section.locator("summary").click()
    expect(section.locator(".page-timeline")).to_be_hidden()
    page.get_by_role("button", name="Next step").click()
    expect(section.locator("h2")).to_have_text("Step 2")
    expect(section.locator(".page-timeline")).to_be_hidden()
    expect(page.locator("[data-section=limits] li").first).to_contain_text("StepCountIs 9 applies before max_turns 20")
    expect(step(page, 2)).to_contain_text("warning the cellar is dark")


# Long runs ------------------------------------------------------------------------------------------------------------------

MOST_NODES = 3_000

SCROLL = """([frames, by]) => new Promise(done => {
    const box = [...document.querySelectorAll('.page-transcript')].find(one => one.checkVisibility());
    let left = frames;
    const since = performance.now();
    const next = () => { box.scrollTop += by; left-- ? requestAnimationFrame(next) : done(performance.now() - since); };
    requestAnimationFrame(next);
})"""

WATCH = """() => {
    const box = document.querySelector('.page-transcript');
    cancelAnimationFrame(window.watching); // from another place in this page
    window.jumps = []; window.moved = 0;
    let last = new Map();
    const look = () => {
        const top = box.getBoundingClientRect().top;
        const items = [...box.querySelectorAll('article')];
        const now = new Map(items.map(one => [one.dataset.index, one.getBoundingClientRect().top - top]));
        const by = [...now].filter(([index]) => last.has(index)).map(([index, at]) => at - last.get(index));
        if (last.size && !by.length) window.jumps.push('nothing of the last frame is left');
        if (by.length && Math.max(...by) - Math.min(...by) > 1) window.jumps.push(by.join(' '));
        if (by.length) window.moved += by[0];
        const edges = [...now.values()];
        if (Math.min(...edges) > 0 || edges.length < 3) window.jumps.push('empty at the top');
        last = now;
        window.watching = requestAnimationFrame(look);
    };
    look();
}"""


def test_a_run_of_5000_steps_keeps_the_document_small(opened: Opened) -> None:
    page = opened(long_run(5_000))
    nodes = "document.querySelectorAll('*').length"
    for key in ("End", "Home"):
        transcript(page).focus()
        page.keyboard.press(key)
        page.evaluate(SCROLL, [60, 300 if key == "Home" else -300])
        assert page.evaluate(nodes) < MOST_NODES
    for n in (2_500, 4_000, 17):
        page.get_by_role("slider", name="Step", exact=True).fill(str(n))
        at_step(page, n)
        assert page.evaluate(nodes) < MOST_NODES
    page.get_by_role("searchbox").fill("shelf 4321:")
    expect(page.locator(".page-found")).to_have_text("1 step")
    page.get_by_role("searchbox").press("Enter")
    at_step(page, 4321)


def test_scrolling_5000_steps_is_as_smooth_as_scrolling_50(opened: Opened) -> None:
    """Compared on the same machine at the same time, the best of several: others use the processor too."""
    pages = [opened(long_run(50)), opened(long_run(5_000), beside=True)]
    ratios = []
    while len(ratios) < 6 and min(ratios, default=9) > 1.3:
        for page in pages:
            page.evaluate("document.querySelector('.page-transcript').scrollTop = 0")
        short, long = (page.evaluate(SCROLL, [60, 90]) for page in pages)
        ratios.append(long / short)
    print("60 frames of 5,000 steps and of 50:", ratios)
    assert min(ratios) <= 1.3, ratios


def test_scrolling_never_jumps(opened: Opened) -> None:
    """In each frame all items move by the same amount, together by what the wheel was turned, also where nothing was measured yet."""
    page = opened(long_run(5_000))
    for start in (40, 2_500, 5_000):
        page.get_by_role("slider", name="Step", exact=True).fill(str(start))
        at_step(page, start)
        transcript(page).hover()
        page.evaluate(WATCH)
        for _ in range(25):
            page.mouse.wheel(0, -120)
            page.wait_for_timeout(30)
        page.wait_for_timeout(500)
        assert page.evaluate("window.jumps") == [], start
        assert abs(page.evaluate("window.moved") - 25 * 120) <= 12, start


# A run that goes on ---------------------------------------------------------------------------------------------------------

LIVE = """(run) => {
    window.store = makeStore({ runs: [run], open: run.id });
    window.sent = [];
    window.takeDown = mountPage(document.querySelector('.agentlab-page'), window.store, async (message) => {
        window.sent.push(message);
    });
}"""


def live(page: Page, steps: int) -> Data:
    """The page mounted anew on a store that tests feed, with a run that is running."""
    run = {**long_run(max(steps, 1))[0], "state": "running", "end": None}
    run["steps"] = run["steps"][:steps]
    page.evaluate(LIVE, run)
    return run


def more(page: Page, first: int, last: int) -> None:
    page.evaluate("steps => store.append('long', steps)", [a_step(n, says(f"Shelf {n}.")) for n in range(first, last + 1)])


def test_a_step_that_arrives_is_styled_and_laid_out_with_little_work(opened: Opened) -> None:
    page = opened(family())
    live(page, 30)
    at_step(page, 30)
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")

    def done() -> tuple[float, float]:
        metrics = {one["name"]: one["value"] for one in session.send("Performance.getMetrics")["metrics"]}
        return metrics["LayoutCount"], metrics["RecalcStyleCount"]

    append = """steps => new Promise(drawn => {
        store.append('long', steps);
        requestAnimationFrame(() => requestAnimationFrame(drawn));
    })"""
    before = done()
    for n in range(31, 51):
        page.evaluate(append, [a_step(n, says(f"Shelf {n}."))])
    layouts, styles = [(now - then) / 20 for then, now in zip(before, done(), strict=True)]
    assert layouts <= 4, "a part reads sizes while others are being drawn"
    assert styles <= 8, "a rule with :has() looks at all that is inserted, or a part reads sizes"


def test_new_steps_are_followed_by_a_reader_at_the_end_only(opened: Opened) -> None:
    page = opened(family())
    live(page, 0)
    expect(page.locator(".page-bar").get_by_role("status")).to_have_text("running")
    expect(page.get_by_text("still running")).to_have_count(0)  # the badge says it
    expect(transcript(page).get_by_role("article")).to_have_count(1)
    expect(page.locator("[data-section=end]")).to_be_hidden()
    more(page, 1, 3)
    expect(step(page, 3)).to_be_visible()
    at_step(page, 3)
    more(page, 4, 40)
    at_step(page, 40)
    expect(step(page, 40)).to_be_in_viewport(ratio=0.99)
    transcript(page).hover()
    page.mouse.wheel(0, -600)
    page.wait_for_timeout(200)
    places = "() => [...document.querySelectorAll('.page-item')].map(one => [one.dataset.index, one.getBoundingClientRect().top])"
    before = dict(map(tuple, page.evaluate(places)))
    chosen = page.get_by_role("slider", name="Step", exact=True).input_value()
    more(page, 41, 80)
    expect(page.locator(".page-step")).to_have_text(f"Step {chosen} of 80")
    after = dict(map(tuple, page.evaluate(places)))
    kept = before.keys() & after.keys()
    assert kept and all(abs(before[one] - after[one]) < 1 for one in kept)


def test_a_branch_is_opened_at_its_end_and_its_next_steps_are_followed(opened: Opened) -> None:
    page = opened(family(), 740, 600)
    live(page, 30)
    steps = [a_step(1, says("The first shelf is empty."))]
    branch = {**a_run("branch", steps), "parent": "long", "forked_at": 1, "state": "idle", "end": None}
    page.evaluate("run => { store.put('branch', run); store.set({ open: 'branch' }); }", branch)
    end = transcript(page).get_by_role("article", name="End")
    expect(end).to_contain_text("ready for the next step")
    expect(end).to_be_in_viewport(ratio=0.99)
    page.evaluate("steps => store.append('branch', steps)", [a_step(n, says(f"Shelf {n}.")) for n in range(2, 9)])
    at_step(page, 8)
    expect(step(page, 8)).to_be_in_viewport()
    page.evaluate("store.choose(3)")
    page.evaluate("store.set({ open: 'long' })")
    page.evaluate("store.set({ open: 'branch' })")
    expect(step(page, 3)).to_be_in_viewport()


def test_fields_that_change_are_drawn(opened: Opened) -> None:
    page = opened(family())
    run = live(page, 3)
    page.evaluate("fields => store.put('long', fields)", {"state": "paused"})
    expect(page.locator(".page-bar").get_by_role("status")).to_have_text("paused")
    limits = [{**one, "limit": 4, "share": 0.75} if one["unit"] == "steps" else one for one in run["limits"]]
    page.evaluate("fields => store.put('long', fields)", {"limits": limits})
    expect(page.locator(".page-bar")).to_contain_text("of 4")
    ended = {**family()[1]["end"], "detail": "The cellar is locked."}
    page.evaluate("fields => store.put('long', fields)", {"state": "ended", "end": ended})
    expect(page.locator("[data-section=end]")).to_contain_text("The cellar is locked.")
    expect(transcript(page)).to_contain_text("turn limit")
    page.evaluate("run => store.put('other', run)", {**family()[2], "id": "other"})
    expect(chip(page, "scout-1")).to_be_visible()
    page.evaluate("takeDown()")
    expect(page.locator(ROOT)).to_be_empty()


def test_the_end_of_the_run_takes_back_what_is_typed_in_a_limit_and_the_focus(opened: Opened) -> None:
    page = opened(family())
    live(page, 3)
    budget = lab.Budget(max_turns=40)
    form = settings_data(lab.Agent(ScriptedProvider(["Done."])).run("go", budget=budget))
    put = "fields => store.put('long', fields)"
    page.evaluate(put, {"settings": form})
    box = page.get_by_role("textbox", name="max_turns")
    box.fill("9")
    page.evaluate(put, {"state": "ended", "end": family()[0]["end"], "settings": {**form, "editable": False}})
    expect(box).to_be_disabled()
    expect(box).to_have_value("40")
    expect(transcript(page)).to_be_focused()


def test_a_long_message_is_sent_whole(opened: Opened) -> None:
    page = opened(family())
    live(page, 3)
    page.evaluate("fields => store.put('long', fields)", {"chat": {"why_not": "", "raise": ""}})
    page.get_by_role("textbox", name="Next message").click()
    page.keyboard.insert_text("x" * 150_000)
    page.keyboard.press("Enter")
    assert page.evaluate("sent.find((one) => one.do === 'say').text.length") == 150_000


def test_a_card_says_that_an_edit_does_not_keep_a_hidden_key(opened: Opened) -> None:
    page = opened(family())
    live(page, 3)
    call = {
        "call": "a",
        "of": "long",
        "tool": "note",
        "arguments": '{"text": "key REDACTED"}',
        "step": 4,
        "why": "approve has 'note'",
    }
    asked = [{**call, "redacted": True}, {**call, "call": "b", "redacted": False}]
    page.evaluate("fields => store.put('long', fields)", {"state": "waiting", "asked": asked})
    cards = page.get_by_role("textbox", name="Arguments of note")
    why, words = "step 4 · approve has 'note'", "keys are hidden, and an edited text is used as it is shown"
    expect(cards.first).to_have_accessible_description(f"{why}; {words}")
    expect(cards.last).to_have_accessible_description(why)
    expect(page.get_by_text(words)).to_be_in_viewport(ratio=0.99)


def test_a_card_counts_down_what_is_left_of_the_timeout(opened: Opened) -> None:
    page = opened(family())
    run = live(page, 3)
    call = {"call": "a", "of": "long", "tool": "note", "arguments": "{}", "step": 4, "why": "", "redacted": False}
    left = page.get_by_role("group", name="Call of note").locator(".page-left")
    waits = {"state": "waiting", "ticks": True, "totals": {**run["totals"], "elapsed_s": 2.0}}
    page.evaluate("fields => store.put('long', fields)", {**waits, "asked": [{**call, "ends_at_s": None}]})
    expect(page.get_by_role("group", name="Call of note")).to_be_visible()
    expect(left).to_have_text("")
    page.evaluate("fields => store.put('long', fields)", {**waits, "asked": [{**call, "ends_at_s": 61.5}]})
    box = page.get_by_role("textbox", name="Arguments of note")
    box.fill('{"text": "mine"}')
    expect(left).to_have_text(re.compile("^[1-5]?[0-9] s left of the timeout$"))
    first = left.inner_text()
    expect(left).not_to_have_text(first)
    assert int(left.inner_text().split()[0]) < int(first.split()[0]) <= 60
    stands = {"ticks": False, "totals": {**run["totals"], "elapsed_s": 57.0}}
    page.evaluate("fields => store.put('long', fields)", stands)
    expect(left).to_have_text("5 s left of the timeout, paused")
    expect(box).to_have_value('{"text": "mine"}')
    page.evaluate("fields => store.put('long', fields)", {"asked": [{**call, "ends_at_s": 177.0}]})
    expect(left).to_have_text("2 min left of the timeout, paused")


def test_an_edited_prompt_stays_while_another_run_is_looked_at(opened: Opened) -> None:
    page = opened(family())
    live(page, 3)
    action = {"label": "Edit the prompt and start again", "why": "It was refused.", "code": "", "needs_prompt": True}
    page.evaluate("fields => store.put('long', fields)", {"prompt": "Find it.", "actions": [action]})
    page.evaluate("run => store.put('other', run)", {**family()[2], "id": "other"})
    box = page.get_by_role("textbox", name="The new prompt")
    expect(box).to_have_value("Find it.")
    box.fill("Find the green one.")
    for run in ("other", "long"):
        page.evaluate("open => store.set({ open })", run)
    expect(box).to_have_value("Find the green one.")
    page.get_by_role("button", name=action["label"]).click()
    assert page.evaluate("sent.find((one) => one.do === 'proceed').prompt") == "Find the green one."


def test_clocks_begin_at_0_s(opened: Opened) -> None:
    page = opened(family())
    run = live(page, 3)
    put = "fields => { window.performance.now = () => 0; store.put('long', fields); }"  # the clock stands still
    limits = [*run["limits"], a_limit("timeout", "Time", "s", 0.0, 60)]
    page.evaluate(put, {"ticks": True, "totals": {**run["totals"], "elapsed_s": 0.2}, "limits": limits})
    expect(page.locator(".page-bar [data-total=elapsed_s] .page-amount")).to_have_text("0 s")
    expect(page.get_by_role("meter", name="Time").first).to_have_attribute("aria-valuetext", "0 s of 1 min")
    page.evaluate(put, {"ticks": False, "state": "paused", "paused": {"for_s": 0.2}})
    expect(page.locator(".page-since")).to_have_text("0 s")


def test_the_clock_knows_the_time_before_what_came_is_drawn(opened: Opened) -> None:
    page = opened(family())
    run = live(page, 3)
    totals = {"ticks": True, "totals": {**run["totals"], "elapsed_s": 70.0}}
    page.evaluate("fields => store.put('long', fields)", totals)
    time = page.locator(".page-bar [data-total=elapsed_s] .page-amount")
    expect(time).to_have_text("1 min 10 s")
    expect(time).to_have_text("1 min 11 s")
    page.evaluate("() => { window.requestAnimationFrame = () => 1; }")  # a page that is busy
    page.evaluate("fields => store.put('long', fields)", {"totals": {**run["totals"], "elapsed_s": 130.0}})
    expect(time).to_have_text("2 min 10 s")


def test_figures_in_columns_are_whole_at_every_width(opened: Opened) -> None:
    page = opened(family())
    live(page, 3)
    runs = [large("one", 123_456, 0.123456), large("two", 1_234_567, 1.2345)]
    four = {name: {"label": name} for name in ("go", "step", "pause", "stop")}
    together = {"runs": ["one", "two"], "buttons": four, "why_not": dict.fromkeys(four, ""), "words": ["round 1"]}
    page.evaluate(
        "([runs, all]) => { runs.forEach((run) => store.put(run.id, run)); store.set({ all, open: 'one' }); }", [runs, together]
    )
    expect(page.locator(".page-column")).to_have_count(2)
    for width in NARROW:
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate(CUT, ".page-column") == [], width


def test_the_line_of_a_limit_is_dragged_and_moved_with_keys(opened: Opened) -> None:
    page = opened(family())
    expect(page.get_by_role("slider", name="Limit: Tokens")).to_have_count(0)  # in a file nothing can be changed
    live(page, 10)
    handle = page.get_by_role("slider", name="Limit: Cost")
    expect(handle).to_be_visible()
    box = handle.bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x, y + 10)
    page.mouse.move(x, y + 20)
    limits = "sent.filter((one) => one.do === 'limit')"
    assert page.evaluate(limits) == []
    page.mouse.up()
    (sent,) = page.evaluate(limits)
    assert sent["run"] == "long" and sent["name"] == "max_cost"
    assert 0.05 < sent["value"] < 0.12
    tokens = page.get_by_role("slider", name="Limit: Tokens")
    tokens.focus()
    page.keyboard.press("ArrowUp")
    assert page.evaluate("sent.at(-1).name") == "max_tokens"
    assert page.evaluate("sent.at(-1).value") > 2_001
    for key in ("ArrowDown", "ArrowLeft"):
        page.keyboard.press(key)
    assert page.evaluate("sent.at(-1).value") < 2_001
    before = page.evaluate("sent.find((one) => one.name === 'max_cost').value")
    handle.focus()
    page.keyboard.press("ArrowDown")
    assert page.evaluate("sent.at(-1).name") == "max_cost" and page.evaluate("sent.at(-1).value") < before


def test_the_words_of_a_dragged_line_go_when_it_is_let_go_or_the_run_ends(opened: Opened) -> None:
    page = opened(family())
    run = live(page, 10)
    words = "getComputedStyle(document.querySelectorAll('.page-handle')[1], '::after').content"
    handle = page.get_by_role("slider", name="Limit: Cost")
    page.get_by_role("searchbox").focus()  # from a text box, the focus on the handle is shown as that of a keyboard

    def grasp() -> None:
        box = handle.bounding_box()
        assert box is not None
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        page.mouse.move(x, y)
        page.mouse.down()
        page.mouse.move(x, y + 10)
        page.mouse.move(x, y + 20)
        assert "$" in page.evaluate(words)

    def in_force() -> None:
        value = page.evaluate("sent.at(-1).value")
        limits = [{**one, "limit": value} if one["unit"] == "usd" else one for one in run["limits"]]
        page.evaluate("fields => store.put('long', fields)", {"limits": limits})
        page.wait_for_timeout(100)

    grasp()
    page.mouse.up()
    in_force()
    assert page.evaluate(words) == "none"
    page.keyboard.press("ArrowUp")
    in_force()
    assert "$" in page.evaluate(words), "while keys move it"
    page.keyboard.press("Tab")
    page.wait_for_timeout(100)
    assert page.evaluate(words) == "none"
    grasp()
    page.evaluate("fields => store.put('long', fields)", {"state": "ended", "end": family()[0]["end"]})
    expect(handle).to_be_hidden()
    page.mouse.up()
    page.evaluate("fields => store.put('long', fields)", {"state": "running", "end": None})
    expect(handle).to_be_visible()
    assert page.evaluate(words) == "none"


LABEL_AND_CURVE = """() => {
  const chart = document.querySelector('.page-chart'), label = chart.querySelector('.page-tick.limit').getBBox();
  const curve = chart.querySelector('.page-curve:not(.beside)'), length = curve.getTotalLength();
  for (let at = 0; at <= length; at += 1) {
    const { x, y } = curve.getPointAtLength(at);
    if (x > label.x && x < label.x + label.width && y > label.y && y < label.y + label.height) return [x, y];
  }
  return null;
}"""


@pytest.mark.parametrize("share", [0.12, 0.5, 0.92, 1.02])
def test_the_label_of_a_limit_is_where_the_curve_is_not(opened: Opened, share: float) -> None:
    steps = [a_step(n, says("One more."), total_tokens=round(1_000 * min(1, n / 6))) for n in range(1, 11)]
    run = a_run("one", steps)
    run["limits"][1] |= {"limit": round(1_000 * share), "share": 1 / share}
    page = opened([run])
    expect(page.locator(".page-chart").first).to_contain_text("limit ")
    assert page.evaluate(LABEL_AND_CURVE) is None


# Safety ---------------------------------------------------------------------------------------------------------------------

MARKUP = '</script></style><script>window.owned = 1</script><img src="/owned.png" onerror="window.owned = 2">'
HOSTILE = (
    MARKUP + "<svg onload=window.owned=3>"
    '"\'><a href="javascript:window.owned=4">x</a> $\\href{/owned}{x}$ \u202ereversed <b hidden>'
)


@pytest.mark.parametrize(
    "text", [HOSTILE, "W" * 5_000, "constructor", "__proto__", ""], ids=["markup", "endless", "name", "proto", "empty"]
)
def test_texts_stay_text(opened: Opened, text: str) -> None:
    page = opened(hostile_run(text), 1440, 900)
    page.locator("[data-section=runs] summary").click()
    page.get_by_role("button", name="Next step").click()
    page.get_by_role("searchbox").fill(text[:200])
    page.get_by_role("searchbox").press("Enter")
    for action in ("c", "]"):
        transcript(page).focus()
        page.keyboard.press(action)
        page.wait_for_timeout(150)
        assert page.evaluate("window.owned === undefined")
        assert page.locator(f"{ROOT} :is(script, img, a, b[hidden], [onerror], [onload])").count() == 0
        assert page.evaluate(STICKS_OUT) == []
    if text == HOSTILE:
        page.keyboard.press("[")
        expect(page.locator(".page-bar h1")).to_have_text(text)


def test_html_that_python_failed_to_clean_runs_nothing(opened: Opened) -> None:
    """The second line of defence: the policy of the file refuses scripts, handlers and requests."""
    run = a_run("one", [a_step(1, says('<img src="data:," onerror="window.owned = 1">'), "end_turn")])
    page = opened([run], may_complain=True)
    page.wait_for_timeout(300)
    assert page.evaluate("window.owned === undefined")


# For everybody --------------------------------------------------------------------------------------------------------------


def test_axe_finds_nothing_serious(opened: Opened) -> None:
    page = opened(family())
    page.locator("[data-section=runs] summary").click()
    chip(page, "max_turns 3").click()
    step(page, 2).locator(".agentlab-call summary").click()
    step(page, 2).get_by_text("Details").click()
    page.get_by_role("searchbox").fill("look")
    expect(page.locator(".page-found")).not_to_be_empty()
    assert faults_in_both_schemes(page, ROOT) == []
    page.get_by_role("button", name="Compare", exact=True).click()
    expect(page.get_by_role("region", name="Comparison")).to_be_visible()
    assert faults_in_both_schemes(page, ROOT) == []
    page.get_by_role("button", name="Close").click()
    page.get_by_role("button", name="Keys and marks").click()
    assert faults_in_both_schemes(page, ".page-help") == []
    page.keyboard.press("Escape")
    live(page, 10)
    expect(page.get_by_role("slider", name="Limit: Cost")).to_be_visible()
    assert faults_in_both_schemes(page, ROOT) == []


ANSWER = """# Plan

See [the timetable](https://example.org/table), or `IC 41`:

| train | departs |
|---|---:|
| IC 41 | 07:30 |

> Trains may be late.

```python
def plan(city: str, day: int = 12) -> list[str]:
    # the early ones first
    return [f"{city} {day}", None, 3.5]
```
"""


def test_a_real_run_is_shown(opened: Opened) -> None:
    def weather(city: str) -> dict[str, object]:
        """Give the forecast."""
        if city == "Atlantis":
            raise ValueError("no such city")
        return {"city": city, "sky": "sunny", "high_c": 24.5, "warnings": None}

    model = ScriptedProvider([called("weather", {"city": "Graz"}), called("weather", {"city": "Atlantis"}), say(ANSWER)])
    run = lab.Agent(model, tools=[weather], instructions="Plan trips.").run(
        "**When** does it leave?", budget=lab.Budget(max_turns=9)
    )
    run.worker.launch()
    assert run.wait(60) is not None
    page = opened(run.to_html(), 1440, 4_000)  # high enough for all steps: axe looks at them once
    for n in (1, 2):
        step(page, n).locator(".agentlab-call > summary").click()
        step(page, n).get_by_text("Details").click()
        for summary in step(page, n).locator(".agentlab-section > summary").all():
            summary.click()
    expect(step(page, 3).get_by_role("table")).to_contain_text("07:30")
    expect(step(page, 3).get_by_role("link", name="the timetable")).to_be_visible()
    assert faults_in_both_schemes(page, ROOT) == []
    assert page.evaluate(STICKS_OUT) == []


@pytest.mark.parametrize("width", [900, 420])
def test_axe_finds_nothing_serious_on_small_screens(opened: Opened, width: int) -> None:
    page = opened(family(), width, 800)
    assert faults(page, ROOT) == []


FOCUSED = """() => {
    const here = document.activeElement;
    if (!here || !here.closest('.agentlab-page')) return null;
    const style = getComputedStyle(here);
    const outlined = style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 1;
    const place = [...document.querySelectorAll('.agentlab-page *')].indexOf(here);
    return [place, outlined, here.ariaLabel || here.textContent.slice(0, 40)];
}"""
REACHABLE = """() => { const all = [...document.querySelectorAll('.agentlab-page *')];
    return all.filter(one => one.matches('button, input, select, summary, a[href], [tabindex="0"]'))
        .filter(one => one.checkVisibility({ visibilityProperty: true })).map(one => all.indexOf(one)); }"""


@pytest.mark.parametrize("comparing", [False, True], ids=["transcript", "comparison"])
def test_every_control_is_reached_with_tab_and_seen_to_be(opened: Opened, comparing: bool) -> None:
    page = opened(family())
    page.keyboard.press("]")
    if comparing:
        page.keyboard.press("c")
    reached = []
    page.keyboard.press("Tab")
    while (focused := page.evaluate(FOCUSED)) is not None and len(reached) < 100:
        reached.append(focused)
        page.keyboard.press("Tab")
    wanted = set(page.evaluate(REACHABLE))
    assert wanted <= {place for place, _, _ in reached}
    assert [name for _, outlined, name in reached if not outlined] == []


def test_reduced_motion_is_honoured(opened: Opened) -> None:
    moving = (
        "[...document.querySelectorAll('.agentlab-page *')].flatMap(one => ['', '::before'].map(part => getComputedStyle(one, part)))"
        ".filter(style => parseFloat(style.transitionDuration) > 0 || style.animationName !== 'none').length"
    )
    assert opened(family()).evaluate(moving) > 0
    assert opened(family(), reduced_motion="reduce").evaluate(moving) == 0


def test_the_whole_transcript_is_printed(opened: Opened) -> None:
    page = opened(long_run(120))
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    expect(page.locator(".page-item.step")).to_have_count(120)
    expect(page.locator(".agentlab-call:not([open])")).to_have_count(0)
    cut = (
        "[...document.querySelectorAll('.page-frame, .page-main, .page-transcript')].filter(one => one.checkVisibility() && "
        "one.scrollHeight > one.clientHeight + 1).map(one => one.className)"
    )
    assert page.evaluate(cut) == []
    assert page.evaluate("document.documentElement.scrollHeight") > 10_000
    page.evaluate("for (const name of ['afterprint', 'beforeprint', 'afterprint']) dispatchEvent(new Event(name))")
    page.emulate_media(media="screen")
    expect(page.locator(".page-item.step")).not_to_have_count(120)
    expect(step(page, 1).locator(".agentlab-call").first).not_to_have_attribute("open", "")


def test_a_print_without_all_texts_says_so(opened: Opened) -> None:
    page = opened(family())
    live(page, 3)
    more(page, 4, 60)
    said = "getComputedStyle(document.querySelector('.page-transcript'), '::before').content"
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate(said) in ("none", '""')
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    page.evaluate("store.append('long', [...Array(30).keys()].map((place) => ({ n: place + 61, size: 4000 })))")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert "Without the texts of 30 steps: to print all, save the run as a file" in page.evaluate(said)


def test_a_comparison_is_printed_whole(opened: Opened) -> None:
    (run,) = long_run(80)
    page = opened([run, {**run, "id": "twin", "name": "twin"}])
    page.keyboard.press("c")
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    expect(page.locator(".page-item.pair")).to_have_count(82)
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    page.emulate_media(media="screen")
    expect(page.locator(".page-item.pair")).not_to_have_count(82)


def test_calls_that_wait_for_approval_are_shown(opened: Opened) -> None:
    pending = [{"tool": "pay", "arguments": MARKUP, "step": 2, "why": "approve has 'pay'"}]
    page = opened([a_run("one", [a_step(1, says("Hm."))], state="waiting", end=None, pending=pending)])
    end = transcript(page).get_by_role("article", name="End")
    expect(end).to_contain_text("waiting for approval")
    (waits,) = page.get_by_role("list", name="Calls that wait for approval").get_by_role("listitem").all()
    expect(waits).to_have_text(f"pay{MARKUP}approve has 'pay'")
    expect(end).to_be_in_viewport(ratio=0.99)
    assert page.evaluate("window.owned === undefined") and page.evaluate(STICKS_OUT) == []


def test_a_run_without_steps_and_times(opened: Opened) -> None:
    idle = a_run("idle", [], "idle", state="idle", end=None)
    bare = a_step(1, says("Done."), "end_turn", duration_s=None, started_s=None, tokens=None, cost_usd=None,
                  spans=[], reads="", details="")  # fmt: skip
    unknown = {"steps": 1, "tokens": None, "cost_usd": None, "elapsed_s": None}
    page = opened([idle, a_run("bare", [bare], "bare", totals=unknown, limits=[])])
    expect(transcript(page)).to_contain_text("not started yet")
    expect(page.get_by_role("slider", name="Step", exact=True)).to_be_hidden()
    chip(page, "bare").click()
    expect(step(page, 1)).to_contain_text("tokens unknown")
    expect(page.locator(".page-bar")).not_to_contain_text("Time")
    expect(page.locator(".page-chart").first).to_contain_text("not reported")

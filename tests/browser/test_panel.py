"""The panel in a real JupyterLab: every user action, clicked."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Locator, expect

from .lab_page import DARK, LIGHT, LabPage
from .panels import BEGUN_AFTER, SLOW_RUN

PICTURES = Path(__file__).parents[2] / "test-output"  # screenshots for review


@pytest.fixture
def panel(lab: LabPage) -> LabPage:
    """A page with the panel of a run of up to 2,000 slow steps, not yet started."""
    lab.open(lab.jupyter.write_notebook("panel", [SLOW_RUN, "print('the kernel answers')"]))
    lab.run_cell(0)
    expect(lab.button("Run")).to_be_enabled()
    return lab


def no_limit(page: LabPage, label: str) -> Locator:
    """The "no limit" box in the row of this field."""
    row = page.page.locator(".widget-hbox").filter(has=page.page.get_by_label(label, exact=True)).last
    return row.get_by_label("no limit", exact=True)


def test_lowering_max_turns_during_a_run_ends_it_for_that_reason(panel: LabPage) -> None:
    panel.button("Run").click()
    panel.wait_for_steps(3)
    panel.set_number("max_turns", 12)
    panel.wait_for_output(0, re.compile(r"truncated · turn_limit — Budget reached: max_turns \d+ of 12"))
    steps = int(panel.kernel_value("len(run.history)"))
    assert steps == 12 or panel.kernel_value(BEGUN_AFTER) == "0", "the limit took effect long after it was set"
    assert panel.kernel_value("run.limits.max_turns") == "12"
    assert panel.kernel_value("str(run.result.stop_reason)") == "'turn_limit'"
    expect(panel.button("Run")).to_be_disabled()
    expect(panel.button("Run")).to_have_attribute("title", "The run has ended.")


def test_a_leaf_of_the_stop_condition_is_edited_during_the_run(panel: LabPage) -> None:
    panel.button("Run").click()
    panel.wait_for_steps(2)
    panel.set_number("StepCountIs", 8)
    panel.wait_for_output(0, re.compile(r"stop_condition — Stop condition met: StepCountIs \d+ of 8"))
    panel.wait_for_output(0, re.compile(r"Fired: StepCountIs \d+ of 8"))
    assert "StepCountIs(steps=8)" in panel.kernel_value("repr(run.limits.stop)")


def test_step_pause_resume_and_stop(panel: LabPage) -> None:
    panel.button("Step").click()
    panel.wait_for_status(re.compile(r"^ready.*step 1\b"))
    assert panel.kernel_value("len(run.history)") == "1"

    panel.button("Run").click()
    panel.wait_for_steps(4)
    panel.button("Pause").click()
    panel.wait_for_status(re.compile("^paused"))
    paused_at = panel.kernel_value("len(run.history)")
    panel.page.wait_for_timeout(600)
    assert panel.kernel_value("len(run.history)") == paused_at

    panel.button("Resume").click()
    panel.wait_for_steps(int(paused_at) + 2)
    panel.button("Stop").click()
    panel.wait_for_output(0, "explicit_stop — Stopped by the person: the Stop button")


def test_an_invalid_value_says_why_and_the_old_one_stays_in_force(panel: LabPage) -> None:
    panel.set_number("max_turns", -3)
    panel.wait_for_output(
        0, "Budget(max_turns=-3): max_turns must be at least 1. None means no limit; left out, it is 20. Still in force: 2000."
    )
    assert panel.kernel_value("run.limits.max_turns") == "2000"
    panel.set_number("max_turns", 9)
    expect(panel.output(0)).not_to_contain_text("Still in force")
    assert panel.kernel_value("run.limits.max_turns") == "9"


def test_no_limit_is_a_checkbox(panel: LabPage) -> None:
    box = no_limit(panel, "max_tokens")
    box.check()
    expect(panel.number("max_tokens")).to_be_disabled()
    panel.wait_for_kernel("run.limits.max_tokens", "None")
    box.uncheck()
    panel.wait_for_kernel("run.limits.max_tokens", "50000000")
    no_limit(panel, "max_cost (USD)").uncheck()
    panel.set_number("max_cost (USD)", 0.25)
    panel.wait_for_output(0, "$0 of $0.25")
    panel.wait_for_kernel("run.limits.max_cost", "Decimal('0.25')")


def test_a_change_in_code_appears_in_the_panel(panel: LabPage) -> None:
    panel.kernel_value("setattr(run.limits, 'max_turns', 33)")
    expect(panel.number("max_turns")).to_have_value("33")
    panel.kernel_value("setattr(run.limits, 'stop', lab.StepCountIs(44))")
    expect(panel.number("StepCountIs")).to_have_value("44")


def test_the_cell_returns_before_the_run_ends(panel: LabPage) -> None:
    panel.button("Run").click()
    panel.wait_for_steps(2)
    panel.run_cell(1)
    panel.wait_for_output(1, "the kernel answers")
    assert panel.kernel_value("str(run.state)") == "'running'"


@pytest.mark.own_page
def test_the_panel_is_live_after_a_reload(panel: LabPage) -> None:
    panel.save()
    panel.reload()
    panel.button("Run").click()
    panel.wait_for_steps(2)
    panel.set_number("max_turns", 5)
    panel.wait_for_output(0, "turn_limit")


def test_the_page_reports_a_lost_kernel_after_a_restart(panel: LabPage) -> None:
    content = "getComputedStyle(document.querySelector('.agentlab-panel'), '::before').content"
    assert "is gone" not in panel.page.evaluate(content)
    panel.restart_kernel()
    panel.page.wait_for_function(f"() => {content}.includes('The kernel behind this panel is gone')")
    panel.screenshot(PICTURES / "panel-kernel-gone.png", of=panel.output(0))


def test_the_saved_notebook_shows_the_end_without_a_kernel(panel: LabPage) -> None:
    panel.button("Run").click()
    panel.wait_for_steps(2)
    panel.set_number("max_turns", 4)
    panel.wait_for_output(0, "turn_limit")
    data = panel.wait_for_saved(0, "turn_limit")["data"]
    assert "turn_limit" in "".join(data["text/plain"])
    assert data["image/png"]


STREAMED_RUN = """
import threading
from datetime import date
from pathlib import Path
import agentlab as lab

def get_weather(city: str, day: date) -> dict:
    "The weather forecast for a city."
    return {"city": city, "sky": "rain", "high_c": 17}

fixture = Path(lab.__file__).parents[1] / "fixtures" / "question" / "anthropic-stream.yaml"
with lab.replay(fixture, match="order", pace=2.0):
    agent = lab.Agent("anthropic:claude-sonnet-4-6", tools=[get_weather], stream=True)
    run = agent.run("Do I need an umbrella in Graz on Saturday, 12 June 2027?")

streamed, until = "", {30: threading.Event(), 60: threading.Event()}

def hold(event):
    "Pieces behind so many characters of the second answer wait until the test lets them go on."
    global streamed
    if isinstance(event, lab.events.TextReceived) and event.step == 2:
        streamed += event.text
        for length, go_on in until.items():
            if len(streamed) > length:
                go_on.wait(60)

panel = run.panel()
run.observe(hold)
panel
"""

NOTE_LENGTHS = """() => {
    window.lengths = [];
    new MutationObserver(() => {
        const length = document.querySelector('.agentlab-answer-box pre')?.textContent.length;
        if (length !== undefined && window.lengths.at(-1) !== length) window.lengths.push(length);
    }).observe(document.querySelector('.agentlab-answer-box'), {childList: true, subtree: true});
}"""


def test_a_streamed_answer_arrives_in_the_page_piece_by_piece(lab: LabPage) -> None:
    lab.open(lab.jupyter.write_notebook("streamed", [STREAMED_RUN]))
    lab.run_cell(0)
    expect(lab.button("Run")).to_be_enabled()
    expect(lab.output(0)).to_contain_text("Answer — none yet")
    lab.page.evaluate(NOTE_LENGTHS)
    box = lab.page.locator(".agentlab-answer-box")
    before = box.bounding_box()
    lab.button("Run").click()

    lab.page.wait_for_function(
        "() => document.querySelector('.agentlab-answer-box pre').textContent.startsWith('Yes. The forecast')"
    )
    assert lab.kernel_value("run.result is None") == "True", "this was visible before the end"
    lab.kernel_value("until[30].set()")
    lab.page.wait_for_function("() => window.lengths.some(length => length > 30)")
    expect(lab.output(0).get_by_role("log", name="Answer of step 2")).to_have_attribute("aria-busy", "true")
    lab.screenshot(PICTURES / "panel-streaming.png", of=lab.output(0))
    during = box.bounding_box()
    lab.use_theme(DARK)
    lab.screenshot(PICTURES / "panel-streaming-dark.png", of=lab.output(0))
    lab.kernel_value("until[60].set()")

    lab.wait_for_output(0, "is rain, with a high of 17 °C, so an umbrella is a good idea.")
    lab.wait_for_output(0, "terminated · completed")
    lengths = lab.page.evaluate("window.lengths")
    text = lab.kernel_value("run.result.text")
    partial = [length for length in lengths[lengths.index(min(lengths)) :] if 0 < length < len(text) - 2]
    assert len(set(partial)) >= 2, f"the text came at once: {lengths}"
    assert before is not None and during is not None
    assert before["height"] == pytest.approx(during["height"], abs=1), "the content below moves"
    lab.screenshot(PICTURES / "panel-streamed-dark.png", of=lab.output(0))
    lab.use_theme(LIGHT)
    lab.screenshot(PICTURES / "panel-streamed.png", of=lab.output(0))
    data = lab.wait_for_saved(0, "so an umbrella is a good idea.</pre>")["data"]
    assert "".join(data["text/plain"]).endswith("so an umbrella is a good idea.")


LONG_AND_HOSTILE_RUN = """
import asyncio
import agentlab as lab
from agentlab.testing import say

HOSTILE = '</pre><script>window.owned = 1</script><img src=x onerror="window.owned = 2"> $x^2$ '

class Speaker:
    name, model = "speaker", "aloud"
    async def respond(self, request, context):
        text = ""
        for number in range(400):
            while number >= until:
                await asyncio.sleep(0.01)
            piece = HOSTILE if number % 40 == 39 else f"line {number}\\n"
            text += piece
            context.on_text(piece)
            await asyncio.sleep(0.01)
        return say(text)

until = 250
run = lab.Agent(Speaker()).run("go")
run.panel()
"""


def test_a_long_hostile_answer_stays_text_and_its_end_is_in_view(lab: LabPage) -> None:
    lab.open(lab.jupyter.write_notebook("hostile", [LONG_AND_HOSTILE_RUN]))
    lab.run_cell(0)
    lab.button("Run").click()
    lab.page.wait_for_function("() => /the last 2,000 of/.test(document.querySelector('.agentlab-answer-label')?.textContent)")
    box = lab.page.locator(".agentlab-answer-box")
    box.focus()
    is_at_end = """() => {
        const box = document.querySelector('.agentlab-answer-box').getBoundingClientRect();
        const text = document.querySelector('.agentlab-answer-box pre').getBoundingClientRect();
        return text.height > box.height && Math.abs(text.bottom - box.bottom) < 8;
    }"""
    assert lab.page.evaluate(is_at_end)
    shown = box.inner_text()
    lab.kernel_value("globals().update(until=300)")
    lab.page.wait_for_function("shown => document.querySelector('.agentlab-answer-box').innerText !== shown", arg=shown)
    assert lab.page.evaluate("document.activeElement.classList.contains('agentlab-answer-box')"), "a redraw removed the focus"
    assert lab.page.evaluate(is_at_end)
    lab.screenshot(PICTURES / "panel-long-answer.png", of=lab.output(0))
    lab.kernel_value("globals().update(until=400)")
    lab.wait_for_output(0, "terminated · completed")
    expect(box.locator("pre")).to_contain_text("line 398")
    expect(box.locator("pre")).to_contain_text('<script>window.owned = 1</script><img src=x onerror="window.owned = 2"> $x^2$')
    assert lab.page.evaluate(is_at_end)
    box.focus()
    lab.page.keyboard.press("PageUp")
    lab.page.wait_for_function("() => document.querySelector('.agentlab-answer-box').scrollTop < 0")
    assert lab.page.evaluate("window.owned === undefined")
    assert lab.page.locator(".agentlab-panel img[src=x], .agentlab-panel script").count() == 0

"""The end of a run and its timeline in a real JupyterLab: every remedy for an end is a button."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Locator, expect

from .lab_page import DARK, LIGHT, NOTEBOOK, LabPage
from .panels import SLOW_RUN

PICTURES = Path(__file__).parents[2] / "test-output"  # screenshots for review

SHORT_RUN = SLOW_RUN.replace("max_turns=2_000", "max_turns=4")

FILTERED_RUN = """
import agentlab as lab
from agentlab.testing import ScriptedProvider, say
from agentlab.model.finish_reasons import FinishReason

def answer(request, index):
    if any("bees" in str(message) for message in request.messages):
        return say("Bees make honey.")
    return say("", finish=FinishReason.CONTENT_FILTERED)

run = lab.Agent(ScriptedProvider(answer)).run("Tell me about <wasps>.")
panel = run.panel()
panel
"""

FAILING_RUN = """
import agentlab as lab
from agentlab.testing import ScriptedProvider

def answer(request, index):
    raise RuntimeError("the model's <b>machine</b> is off")

run = lab.Agent(ScriptedProvider(answer)).run("go")
run.panel()
"""


def open_and_run(page: LabPage, name: str, cell: str, end: str) -> None:
    page.page.set_viewport_size({"width": 1280, "height": 1500})
    page.open(page.jupyter.write_notebook(name, [cell]))
    page.run_cell(0)
    page.button("Run").click()
    page.wait_for_output(0, end)


def offers(page: LabPage) -> Locator:
    return page.output(0).locator("button.agentlab-offer:visible")


def picture(page: LabPage) -> Locator:
    return page.output(0).locator("img[alt^='Timeline of']:visible")


def test_raising_the_limit_continues_from_the_end_of_the_run(lab: LabPage) -> None:
    open_and_run(lab, "raise", SHORT_RUN, "truncated · turn_limit — Budget reached: max_turns 4 of 4")
    more = lab.button("Raise the turn limit to 8 and continue")
    expect(more).to_have_attribute("title", re.compile("all steps kept"))
    expect(lab.output(0)).to_contain_text("the branch continues from the last step")
    lab.page.wait_for_timeout(800)
    lab.screenshot(PICTURES / "panel-end.png", of=lab.output(0))
    lab.use_theme(DARK)
    lab.screenshot(PICTURES / "panel-end-dark.png", of=lab.output(0))
    lab.use_theme(LIGHT)
    more.click()
    lab.wait_for_output(0, "Budget reached: max_turns 8 of 8")
    assert lab.kernel_value("[len(one.history) for one in run.branches]") == "[8]"
    assert lab.kernel_value("(len(run.history), run.limits.max_turns)") == "(4, 4)", "the run itself is unchanged"
    expect(lab.button("Raise the turn limit to 16 and continue")).to_be_visible()


def test_two_quick_clicks_make_one_branch(lab: LabPage) -> None:
    open_and_run(lab, "twice", SHORT_RUN, "turn_limit")
    lab.page.wait_for_timeout(800)
    offers(lab).first.dblclick()
    lab.wait_for_output(0, "Budget reached: max_turns 8 of 8")
    assert lab.kernel_value("len(run.branches)") == "1"


def test_another_prompt_is_typed_and_started(lab: LabPage) -> None:
    open_and_run(lab, "prompt", FILTERED_RUN, "truncated · content_filtered")
    lab.page.wait_for_timeout(800)
    lab.press("Edit the prompt and start again", "Enter")
    box = lab.output(0).locator(".agentlab-ending").get_by_label("Prompt", exact=True)
    expect(box).to_have_value("Tell me about <wasps>.")
    expect(box).to_be_focused()
    lab.screenshot(PICTURES / "panel-edit-prompt.png", of=lab.output(0))
    box.fill("  ")
    lab.button("Start with this prompt").click()
    expect(lab.output(0).locator(".agentlab-fault")).to_contain_text("prompt")
    box.fill("Tell me about <bees>.")
    lab.button("Start with this prompt").click()
    lab.wait_for_output(0, "terminated · completed")
    lab.wait_for_output(0, "Bees make honey.")
    assert lab.kernel_value("run.branches[-1].prompt") == "'Tell me about <bees>.'"


def test_an_error_says_what_went_wrong_and_what_to_do(lab: LabPage) -> None:
    open_and_run(lab, "error", FAILING_RUN, "truncated · error")
    expect(lab.output(0).locator(".agentlab-end:visible")).to_contain_text("the model's <b>machine</b> is off")
    lab.page.wait_for_timeout(800)
    lab.screenshot(PICTURES / "panel-error.png", of=lab.output(0))
    expect(lab.output(0).locator(".agentlab-ending")).to_contain_text(re.compile("Repeat|run.fork"))


def test_the_timeline_grows_during_the_run_and_marks_the_chosen_step(lab: LabPage) -> None:
    slower = SLOW_RUN.replace("sleep(0.1)", "sleep(0.3)")  # a loaded machine draws the timeline every few seconds
    lab.page.set_viewport_size({"width": 1280, "height": 1500})
    lab.open(lab.jupyter.write_notebook("timeline", [slower.replace("run.panel()", "panel = run.panel()\npanel")]))
    lab.run_cell(0)
    lab.button("Run").click()
    lab.page.get_by_role("tab", name="Timeline", exact=True).click()
    expect(picture(lab)).to_have_attribute("alt", re.compile(r"\d steps, .* still running"))
    seen = picture(lab).get_attribute("alt")
    expect(picture(lab)).not_to_have_attribute("alt", str(seen))
    lab.set_number("max_turns", 12)
    expect(picture(lab)).to_have_attribute("alt", re.compile("1 change of limits, ended after .* turn_limit"))
    lab.kernel_value("panel.run_view.state.choose(3)")
    expect(lab.output(0)).to_contain_text("Step 3 is the one you chose: it has a dashed frame.")
    lab.page.wait_for_timeout(500)
    lab.screenshot(PICTURES / "panel-timeline.png", of=lab.output(0))
    lab.use_theme(DARK)
    lab.screenshot(PICTURES / "panel-timeline-dark.png", of=lab.output(0))


CONTINUED_RUN = """
from pathlib import Path
import agentlab as lab
from agentlab import Budget, ContinuationPolicy

local = lab.Provider("compatible", base_url="http://127.0.0.1:8091/v1", model="gemma-3-270m")
fixture = Path(lab.__file__).parents[1] / "fixtures" / "local" / "continued-text" / "chat.yaml"
patient = ContinuationPolicy(hint="Continue exactly where you stopped. Do not repeat anything.")
with lab.replay(fixture, match="order"):
    run = lab.Agent(local, continuation=patient).run("Name the months of the year.", budget=Budget(max_tokens_per_turn=8))
run.panel()
"""


@pytest.mark.own_page
def test_a_reopened_notebook_shows_the_end_with_its_pictures(lab: LabPage) -> None:
    """By then the kernel is another one or gone: there is no widget, and the output has to contain everything."""
    open_and_run(lab, "saved", CONTINUED_RUN, "terminated · completed")
    data = lab.wait_for_saved(0, "terminated · completed")["data"]
    assert "".join(data["text/html"]).count("<img ") == 2
    assert data["image/png"], "for readers that show pictures only"
    lab.page.evaluate(f"async () => {{ {NOTEBOOK} await session.shutdown(); }}")
    lab.reload()
    expect(picture(lab)).to_be_visible()
    expect(lab.output(0).locator("img")).to_have_count(2)
    expect(lab.output(0)).to_contain_text("terminated · completed — The model ended its turn.")
    failed = lab.output(0).get_by_text("Error displaying widget")
    expect(failed).to_have_count(1)
    expect(failed).to_be_hidden()
    lab.screenshot(PICTURES / "panel-next-day.png", of=lab.output(0))
    lab.run_cell(0)
    expect(lab.button("Run")).to_be_visible()
    expect(lab.output(0).locator(".agentlab-kept")).to_be_hidden()

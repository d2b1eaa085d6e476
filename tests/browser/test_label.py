"""The labelling widget in JupyterLab, by keyboard alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Locator, expect

from .axe import faults_in_both_themes
from .lab_page import LabPage

LABEL = ".agentlab-label"

CELL = """
import agentlab as lab
from agentlab.testing import ScriptedProvider, say

HOSTILE = '<img src=x onerror="window.harmed = 1"><script>window.harmed = 1</script> [link](javascript:alert(1))'
LONG = "\\n\\n".join(f"{n}. A long answer with **bold** words and `code`." for n in range(60))

def answering(name, texts):
    script = lambda request, index: say(texts[int(request.messages[-1].text.split()[-1]) - 1])
    return lab.Agent(ScriptedProvider(script, name=name), name=name)

agents = [
    answering("alpha", ["**Paris**", HOSTILE, LONG]),
    answering("beta", ["Rome", "Lima, I think.", "| a | b |\\n|---|---|\\n| 1 | 2 |"]),
]
tasks = [{"prompt": f"Question number {n}", "target": target} for n, target in enumerate(["Paris", "Lima", {"rows": [[1, 2]]}], 1)]
results = await lab.Experiment(agents, tasks, repeats=2).run(progress=False)
"""
SINGLE = 'labels = lab.label(results, "labels.jsonl", rater="anna", question="Is the answer right?")\nlabels'
PAIRS = 'pairs = lab.label(results, "pairs.jsonl", rater="anna", by="agent")\npairs'


@pytest.fixture
def files(lab: LabPage) -> Path:
    """The folder of the kernel, without labels of an earlier attempt."""
    for name in ("labels.jsonl", "pairs.jsonl"):
        (lab.jupyter.root / name).unlink(missing_ok=True)
    return lab.jupyter.root


def opened(lab: LabPage, cell: str) -> Locator:
    lab.open(lab.jupyter.write_notebook("label", [CELL, cell]))
    lab.run_all()
    widget = lab.page.locator(LABEL)
    expect(widget.get_by_text("1 of")).to_be_visible()
    return widget


@pytest.mark.usefixtures("files")
def test_answers_are_labelled_by_keyboard_alone(lab: LabPage) -> None:
    lab.page.set_viewport_size({"width": 1440, "height": 900})
    widget, keyboard = opened(lab, SINGLE), lab.page.keyboard
    assert not any(name in widget.inner_text() for name in ("alpha", "beta", "scripted"))
    box = widget.bounding_box()
    assert box is not None
    assert box["height"] <= 700
    said, counter = widget.get_by_role("status"), widget.locator(".label-progress")
    lab.picture("label-light", widget)

    widget.focus()
    keyboard.press("1")
    expect(said).to_have_text("Saved: correct.")
    expect(counter).to_have_text("2 of 6 · 1 labelled")
    keyboard.press("w")
    expect(counter).to_have_text("3 of 6 · 2 labelled")
    keyboard.press("u")
    expect(said).to_have_text("The last label is taken back.")
    expect(counter).to_have_text("2 of 6 · 1 labelled")
    keyboard.press("s")
    expect(counter).to_have_text("3 of 6 · 1 labelled")
    keyboard.press("h")
    expect(widget.get_by_role("region", name="Target")).to_be_hidden()
    keyboard.press("h")
    expect(widget.get_by_role("region", name="Target")).to_be_visible()
    keyboard.press("ArrowLeft")
    keyboard.press("ArrowLeft")
    expect(counter).to_have_text("1 of 6 · 1 labelled")
    expect(widget.get_by_role("button", name="correct")).to_have_attribute("aria-pressed", "true")
    keyboard.press("ArrowRight")
    expect(counter).to_have_text("2 of 6 · 1 labelled")
    for done in range(2, 7):
        keyboard.press("2")
        expect(counter).to_contain_text(f"{done} labelled")
    expect(widget).to_contain_text("All 6 are labelled")
    lab.wait_for_saved(1, "6 of 6 answers labelled")
    for key in ("d", "d", "x", "ArrowDown", "b"):  # JupyterLab's keys for cells
        keyboard.press(key)
    assert lab.page.locator(".jp-CodeCell").count() == 2
    assert lab.kernel_value("sorted(labels.frame['grade'])") == "['correct', 'wrong', 'wrong', 'wrong', 'wrong', 'wrong']"
    assert lab.page.evaluate("window.harmed") is None
    lab.run_cell(1)  # begins again from the file
    expect(lab.page.locator(LABEL)).to_contain_text("All 6 are labelled")


PLACE = "one => one.getBoundingClientRect().top - one.closest('.agentlab-label').getBoundingClientRect().top"


@pytest.mark.usefixtures("files")
def test_a_box_is_as_high_as_its_answer_and_the_buttons_only_move_down(lab: LabPage) -> None:
    lab.page.set_viewport_size({"width": 1440, "height": 900})
    widget = opened(lab, SINGLE)
    heights, ends = {}, []
    for place in range(1, 7):
        expect(widget.locator(".label-progress")).to_contain_text(f"{place} of 6")
        box = widget.get_by_role("region", name="Answer")
        text, height = box.inner_text().strip(), box.evaluate("box => box.offsetHeight")
        heights[text] = height, box.evaluate("box => box.scrollHeight > box.clientHeight")
        ends.append(widget.get_by_role("button", name="correct").evaluate(PLACE))
        lab.page.keyboard.press("ArrowRight") if place > 1 else widget.press("ArrowRight")
    (long,) = (text for text in heights if "A long answer" in text)
    assert all(height < 100 for text, (height, _) in heights.items() if text in ("Paris", "Rome", "Lima, I think."))
    assert heights[long][1] and not heights["Paris"][1], "only the long one scrolls"
    assert ends == sorted(ends)
    assert widget.evaluate("one => one.offsetHeight") <= 640


@pytest.mark.usefixtures("files")
def test_axe_finds_no_serious_fault_while_pairs_are_labelled(lab: LabPage) -> None:
    widget = opened(lab, PAIRS)
    assert not faults_in_both_themes(lab, LABEL)
    lab.picture("label-pairs-dark", widget)
    widget.focus()
    for key in "abe":
        before = widget.locator(".label-progress").inner_text()
        lab.page.keyboard.press(key)
        expect(widget.locator(".label-progress")).not_to_have_text(before)
    expect(widget).to_contain_text("All 3 are labelled")
    assert not faults_in_both_themes(lab, LABEL)
    assert lab.kernel_value("sorted(pairs.frame['answer'].isna())") == "[False, False, True]"

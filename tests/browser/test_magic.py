"""`%load_ext agentlab` in JupyterLab: from a prompt to a panel in one cell, completion of model names, and values as outputs."""

from __future__ import annotations

import json
from pathlib import Path

from playwright.sync_api import expect

from .lab_page import DARK, LIGHT, LabPage
from .widget_page import LIVE

FIXTURES = Path(__file__).parents[2] / "fixtures" / "trip"
QUICKSTART = Path(__file__).parents[2] / "notebooks" / "01_quickstart.ipynb"
LOAD = "%load_ext agentlab\nimport agentlab as lab"
PROMPT = (
    "I live in Vienna. On Saturday, 12 June 2027, I want to spend a day in Graz or in Salzburg, "
    "wherever the weather is better. Which trains should I take?"
)
INSTRUCTIONS = "You plan day trips by train. Look things up before you decide. Hand in your answer with finalize."
ASKED = f"""%%agent anthropic:claude-sonnet-4-6 --stop "HasToolCall('finalize') | StepCountIs(8)" --max-cost 0.05 \
--tools get_weather,find_trains,finalize --instructions "{INSTRUCTIONS}" --replay {FIXTURES}
{PROMPT}"""
VALUES = """
import agentlab as lab
from IPython.display import display
from agentlab.testing import ScriptedProvider, call, say

def look(city: str) -> str:
    "Look out of the window."
    return "<b>rain</b>"

agent = lab.Agent(
    ScriptedProvider([call("look", {"city": "Graz"}), say("It <b>rains</b>. " * 60)]),
    tools=[look], stop=lab.StepCountIs(8) | (lab.HasToolCall("finalize") & ~lab.MaxTokensUsed(5_000)),
)
run = agent.run("Where does it rain?")
result = await run
step = run.history[0]
display(agent, run, run.history, step, run.messages[2], lab.Budget(max_cost=0.05), run.limits, run.limits.stop, step.readings,
        result.usage, agent.tools["look"], lab.Provider("anthropic", model="claude-sonnet-4-6", api_key="sk-ant-" + "a" * 40), result)
""".strip()


def tools_of_the_quickstart() -> str:
    """The cells that define the quickstart's tools."""
    cells = json.loads(QUICKSTART.read_text(encoding="utf-8"))["cells"]
    sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    return "\n\n\n".join([sources[0], *(source for source in sources if "def get_weather" in source)])


def test_a_prompt_in_a_cell_becomes_a_live_panel(lab: LabPage) -> None:
    lab.open(lab.jupyter.write_notebook("magic", [LOAD, tools_of_the_quickstart(), ASKED, "run"]))
    lab.run_cell(0)
    lab.run_cell(1)
    lab.run_cell(2)
    panel = lab.output(2).locator(LIVE)
    expect(panel).to_contain_text("ended")
    expect(panel).to_contain_text("HasToolCall")
    assert lab.kernel_value("(run is _run, run.result.stop_reason.value, run.agent.name)") == (
        "(True, 'stop_condition', 'anthropic:claude-sonnet-4-6')"
    )
    lab.run_cell(3)
    lab.wait_for_output(3, "stop_condition")


def test_tab_completes_model_names(lab: LabPage) -> None:
    lab.open(lab.jupyter.write_notebook("tab", [LOAD, 'agent = lab.Agent("anthropic:claude-h', "%%agent mist"]))
    lab.run_cell(0)
    for index, taken in ((1, 'agent = lab.Agent("anthropic:claude-haiku-4-5'), (2, "%%agent mistral:")):
        editor = lab.cell(index).locator(".cm-content")
        editor.click()
        lab.page.keyboard.press("Control+End")
        lab.page.keyboard.press("Tab")
        expect(lab.page.locator(".jp-Completer:visible")).to_contain_text(taken.split()[-1].removeprefix('lab.Agent("'))
        lab.page.keyboard.press("Enter")
        expect(editor).to_contain_text(taken)


def test_values_as_outputs_in_both_themes(lab: LabPage) -> None:
    lab.open(lab.jupyter.write_notebook("values", [VALUES]))
    lab.page.set_viewport_size({"width": 1280, "height": 4200})
    lab.run_cell(0)
    cards = lab.output(0).locator(".agentlab-card")
    expect(cards).to_have_count(12)
    for theme in (LIGHT, DARK):
        lab.use_theme(theme)
        lab.picture(f"values-{theme.split()[-1].lower()}")
        assert lab.page.locator(".agentlab-card td b, .agentlab-card script").count() == 0
        box = lab.output(0).bounding_box()
        assert box is not None
        for card in cards.all():
            inner = card.bounding_box()
            assert inner is not None
            assert inner["x"] + inner["width"] <= box["x"] + box["width"] + 1
    expect(lab.output(0)).not_to_contain_text("sk-ant-")

"""The README's screenshots of the panel, taken from recorded runs in a real JupyterLab. `make pictures` copies them to the
notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from playwright.sync_api import Locator

from .lab_page import DARK, LabPage
from .widget_page import LIVE

PICTURES = Path(__file__).parents[2] / "test-output" / "pictures"

RECORDED_RUN = """
import asyncio
from pathlib import Path
import agentlab as lab
from agentlab import Budget, HasToolCall, StepCountIs

searched = 0

async def search_lost_property(words: str) -> str:
    "Search the railway's lost property office."
    global searched
    searched += 1
    while not Path(f"step-{searched}").exists():  # the pictures are taken at the pace of who takes them, not of the machine
        await asyncio.sleep(0.02)
    return f"Nothing fits {words!r}."

clerk = lab.Agent("openai:gpt-5.4-mini", tools=[search_lost_property], instructions="Do not give up easily.")
with lab.replay(Path(lab.__file__).parents[1] / "fixtures" / "runaway", match="order", pace=0.8):
    run = clerk.run("I left a green umbrella on the train from Graz to Vienna. Please find it.",
                    stop=HasToolCall("finalize") | StepCountIs(10), budget=Budget(max_turns=20, max_tokens=4_000, max_cost=0.004))
run.panel()
"""


def let(lab: LabPage, *steps: int) -> None:
    """Release the tool of these steps of RECORDED_RUN."""
    for step in steps:
        (lab.jupyter.root / f"step-{step}").touch()


NUMBER = """(part, number) => {
    const box = part.getBoundingClientRect(), panel = part.closest('.agentlab-page').getBoundingClientRect();
    const mark = document.createElement('div');
    mark.className = 'picture-number';
    mark.textContent = number;
    const left = Math.min(box.right + 1, panel.right - 22), top = Math.max(box.top - 14, panel.top + 2);
    mark.style.cssText = `position:fixed; left:${left}px; top:${top}px; width:20px; height:20px; border-radius:50%; z-index:99999;
        font:bold 12px/20px sans-serif; text-align:center; color:#fff; background:#a3006d; box-shadow:0 0 0 2px #fff`;
    document.body.append(mark);
}"""


def picture_of_parts(lab: LabPage, panel: Locator, path: Path, parts: Sequence[Locator]) -> None:
    """Take a picture in which each part has its number, from 1, at its upper right corner; docs/howto/panel.md explains them."""
    panel.scroll_into_view_if_needed()
    for number, part in enumerate(parts, start=1):
        part.evaluate(NUMBER, number)
    lab.screenshot(path, of=panel)
    lab.page.evaluate("document.querySelectorAll('.picture-number').forEach(mark => mark.remove())")


FAILING_RUN = """
from pathlib import Path
import agentlab as lab

with lab.replay(Path(lab.__file__).parents[1] / "fixtures" / "rare" / "openai-quota.yaml", match="order"):
    run = lab.Agent("openai:gpt-4o", retry=lab.RetryPolicy(attempts=1)).run("Where is my umbrella?")
run.panel()
"""


def test_idle_running_stopped_and_dark(lab: LabPage) -> None:
    lab.page.set_viewport_size({"width": 1440, "height": 1100})
    lab.open(lab.jupyter.write_notebook("recorded", [RECORDED_RUN]))
    lab.run_cell(0)
    lab.wait_until_enabled("Run")
    panel = lab.output(0).locator(LIVE)
    lab.screenshot(PICTURES / "panel-idle.png", of=panel)
    let(lab, 1, 2, 3, 4, 5)
    lab.button("Run").click()
    lab.wait_for_steps(5)
    lab.screenshot(PICTURES / "panel-running.png", of=panel)
    live = lab.live
    parts = [
        lab.status.get_by_text("running"), lab.status.locator("[data-total=steps]"), lab.button("Stop"),
        live.locator(".page-scrubber button").last, live.locator("summary", has_text="search_lost_property").last,
        live.locator(".page-branch-here").last,
        live.locator(".page-limit-rows input").locator("visible=true").first,
        live.locator(".page-limit-rows select").locator("visible=true").first, live.get_by_text("Tokens and cost").first,
        live.get_by_label("Next message"), live.get_by_label("Save as file"),
    ]  # fmt: skip
    picture_of_parts(lab, panel, PICTURES / "panel-parts.png", parts)
    lab.kernel_value("run.limits.edit(stop=HasToolCall('finalize') | StepCountIs(7))")
    let(lab, 6, 7)
    lab.wait_for_status("ended")
    lab.screenshot(PICTURES / "panel-stopped.png", of=panel)
    ended = [
        live.get_by_text("Why it ended").first, live.get_by_text("The provider said").last,
        live.get_by_role("button", name="Raise StepCountIs").first, live.locator(".page-reads").last,
    ]  # fmt: skip
    picture_of_parts(lab, panel, PICTURES / "panel-parts-ended.png", ended)
    lab.use_theme(DARK)
    assert lab.screenshot(PICTURES / "panel-dark.png", of=panel).stat().st_size > 10_000


def test_error(lab: LabPage) -> None:
    lab.page.set_viewport_size({"width": 1440, "height": 1100})
    lab.open(lab.jupyter.write_notebook("failing", [FAILING_RUN]))
    lab.run_cell(0)
    lab.button("Run").click()
    lab.wait_for_status("ended")
    assert lab.screenshot(PICTURES / "panel-error.png", of=lab.output(0).locator(LIVE)).stat().st_size > 5_000

"""The README's animation: a limit is edited during the run, the run stops there, says why, and continues with one click."""

from __future__ import annotations

import io
import re
from pathlib import Path

from PIL import Image
from playwright.sync_api import expect

from .lab_page import LabPage
from .test_pictures import PICTURES, RECORDED_RUN, let
from .widget_page import LIVE

HEIGHT = 830
"""Size of the animation in pixels: the panel down to its limits, including the stop reason above them."""
MOST_BYTES = 1_500_000


class Frames:
    """Screenshots of the upper part of the panel, all of one size, with the duration of each."""

    def __init__(self, lab: LabPage) -> None:
        self._lab = lab
        self._shots: list[tuple[Image.Image, int]] = []

    def take(self, shown_ms: int) -> None:
        """Add a screenshot of the current panel."""
        box = self._lab.output(0).locator(LIVE).bounding_box()
        assert box is not None
        clip = {"x": box["x"], "y": box["y"], "width": box["width"], "height": HEIGHT}
        shot = self._lab.page.screenshot(clip=clip)
        self._shots.append((Image.open(io.BytesIO(shot)).convert("RGB"), shown_ms))

    def save(self, path: Path) -> int:
        """Write a GIF with one palette for all frames, so that nothing flickers; return its size in bytes."""
        images = [image for image, _ in self._shots]
        assert len({image.size for image in images}) == 1
        together = Image.new("RGB", (images[0].width, HEIGHT * len(images)))
        for number, image in enumerate(images):
            together.paste(image, (0, HEIGHT * number))
        # these colours are kept exactly
        commonest = sorted(together.getcolors(together.width * together.height), reverse=True)[:256]
        palette = Image.new("P", (1, 1))
        palette.putpalette([part for _, colour in commonest for part in colour])
        first, *rest = [image.quantize(palette=palette, dither=Image.Dither.NONE) for image in images]
        path.parent.mkdir(parents=True, exist_ok=True)
        first.save(path, save_all=True, append_images=rest, duration=[shown for _, shown in self._shots], loop=0, optimize=True)
        return path.stat().st_size


def test_an_edited_limit_stops_the_run_which_then_continues(lab: LabPage) -> None:
    lab.page.set_viewport_size({"width": 1280, "height": 2200})
    lab.open(lab.jupyter.write_notebook("moving", [RECORDED_RUN]))
    lab.run_cell(0)
    expect(lab.button("Run")).to_be_enabled()
    panel = lab.output(0).locator(LIVE)
    frames = Frames(lab)
    frames.take(1_000)
    lab.button("Run").click()
    for steps in (1, 2, 3):
        let(lab, steps)
        lab.wait_for_steps(steps)
        expect(panel.locator("img.agentlab-chart")).to_have_attribute("alt", re.compile(f" {steps} step"))
        frames.take(700)
    lab.number("StepCountIs").fill("5")
    frames.take(1_200)
    lab.number("StepCountIs").press("Enter")
    lab.wait_for_kernel("run.limits.conditions['StepCountIs'].steps", "5")
    let(lab, 4)
    lab.wait_for_steps(4)
    expect(panel.locator("img.agentlab-chart")).to_have_attribute("alt", re.compile(" 4 step"))
    frames.take(700)
    let(lab, 5)
    lab.wait_for_output(0, "Stop condition met: StepCountIs 5 of 5")
    expect(panel).to_contain_text("The run has ended: branch it")
    expect(panel.locator("img.agentlab-chart")).to_have_attribute("alt", re.compile(" 5 steps"))
    on = lab.button("Raise StepCountIs to 10 and continue")
    frames.take(3_000)
    on.hover()
    frames.take(700)
    on.click()
    for steps in (6, 7, 8, 9):
        let(lab, steps)
        lab.wait_for_steps(steps)
        expect(panel.locator("img.agentlab-chart")).to_have_attribute("alt", re.compile(f" {steps} step"))
        frames.take(700)
    let(lab, 10)
    lab.wait_for_output(0, "Stop condition met: StepCountIs 10 of 10")
    expect(panel).to_contain_text("The run has ended: branch it")
    expect(panel.locator("img.agentlab-chart")).to_have_attribute("alt", re.compile(" 10 steps"))
    frames.take(3_000)
    size = frames.save(PICTURES / "panel.gif")
    assert 20_000 < size < MOST_BYTES, size

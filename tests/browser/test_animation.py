"""The README's animation: a limit's line is dragged while the agent runs, the run ends there, says why, and continues with a click."""

from __future__ import annotations

import io
from pathlib import Path

from PIL import Image
from playwright.sync_api import expect

from .lab_page import LabPage
from .test_pictures import PICTURES, RECORDED_RUN, let
from .widget_page import LIVE

MOST_BYTES = 1_800_000
HEIGHT = 700
"""The panel's height in pixels once it has a conversation; it grows up to there."""
POINTER = """([x, y]) => {
    const shown = document.getElementById('pointer') || document.body.appendChild(document.createElement('div'));
    shown.id = 'pointer';
    shown.style = `position:fixed; z-index:9999; left:${x}px; top:${y}px; width:0; height:0; pointer-events:none; rotate:-12deg;
        filter:drop-shadow(0 0 1px #fff); border:solid transparent; border-width:0 11px 17px 0; border-left:11px solid #111`;
}"""


class Frames:
    """Screenshots of the panel, all of one size, with the duration of each; the pointer is drawn, since screenshots leave it out."""

    def __init__(self, lab: LabPage) -> None:
        self._lab = lab
        self._box = lab.output(0).locator(LIVE).bounding_box()
        self._shots: list[tuple[Image.Image, int]] = []

    def take(self, shown_ms: int, pointer: tuple[float, float] | None = None) -> None:
        """Add a screenshot of the current panel."""
        assert self._box is not None
        self._lab.page.evaluate(POINTER, list(pointer or (-50, -50)))
        shot = self._lab.page.screenshot(clip={**self._box, "height": HEIGHT})
        self._shots.append((Image.open(io.BytesIO(shot)).convert("RGB"), shown_ms))

    def save(self, path: Path) -> int:
        """Write a GIF with one palette for all frames, so that nothing flickers; return its size in bytes."""
        images = [image for image, _ in self._shots]
        assert len({image.size for image in images}) == 1
        together = Image.new("RGB", (images[0].width, images[0].height * len(images)))
        for number, image in enumerate(images):
            together.paste(image, (0, image.height * number))
        # these colours are kept exactly
        commonest = sorted(together.getcolors(together.width * together.height), reverse=True)[:256]
        palette = Image.new("P", (1, 1))
        palette.putpalette([part for _, colour in commonest for part in colour])
        first, *rest = [image.quantize(palette=palette, dither=Image.Dither.NONE) for image in images]
        path.parent.mkdir(parents=True, exist_ok=True)
        first.save(path, save_all=True, append_images=rest, duration=[shown for _, shown in self._shots], loop=0, optimize=True)
        return path.stat().st_size


def test_a_dragged_limit_ends_the_run_which_then_continues(lab: LabPage) -> None:
    page = lab.page
    page.set_viewport_size({"width": 1440, "height": 1340})
    lab.open(lab.jupyter.write_notebook("moving", [RECORDED_RUN]))
    lab.run_cell(0)
    lab.wait_until_enabled("Run")
    panel = lab.output(0).locator(LIVE)
    handle = panel.locator(".page-handle").first  # of the tokens
    frames = Frames(lab)
    frames.take(1_200)
    lab.button("Run").click()
    for steps in (1, 2, 3, 4):
        let(lab, steps)
        lab.wait_for_steps(steps)
        frames.take(650)
    at = handle.bounding_box()
    assert at is not None
    x, y = at["x"] + at["width"] / 2, at["y"] + at["height"] / 2
    frames.take(500, (x, y))
    page.mouse.move(x, y)
    page.mouse.down()
    for by in (8, 16, 24, 31):
        page.mouse.move(x, y + by)
        frames.take(180, (x, y + by))
    page.mouse.up()
    frames.take(900, (x, y + 31))
    limit = int(lab.kernel_value("run.limits.max_tokens"))
    assert limit < 4_000
    for steps in range(5, 11):
        let(lab, steps)
    expect(panel.get_by_role("status").first).to_contain_text("ended")
    assert lab.kernel_value("str(run.result.stop_reason)") == "'token_budget'"
    frames.take(3_000)
    on = panel.get_by_role("button", name="Raise the token budget").first
    box = on.bounding_box()
    assert box is not None
    frames.take(700, (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2))
    on.click()
    lab.wait_for_status("of 4,400")
    for steps in (9, 10):
        lab.wait_for_steps(steps)
        frames.take(900)
    expect(panel.get_by_role("status").first).to_contain_text("ended")
    frames.take(3_500)
    size = frames.save(PICTURES / "panel.gif")
    assert 20_000 < size < MOST_BYTES, size

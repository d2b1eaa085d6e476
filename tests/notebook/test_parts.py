"""Images and files on the page of a run, in cards, frames and prints."""

from __future__ import annotations

import asyncio
import random
import re
from pathlib import Path
from typing import Any

import pandas as pd
import PIL.Image
import pytest

import agentlab as lab
from agentlab.model.parts import Part
from agentlab.notebook.page.steps import Shown, message_html, step_html
from agentlab.testing import ScriptedProvider, call
from tests.model.test_parts import PDF, picture

IMAGE, DOCUMENT = lab.Image(picture()), lab.Document(PDF, name="<b>May</b>.pdf")
SOURCE = f'src="data:image/png;base64,{IMAGE.base64}"'


def look() -> list[Any]:
    """Look."""
    return ["It is\n<i>here</i>:", IMAGE, DOCUMENT]


async def _ended() -> Any:
    run = lab.Agent(ScriptedProvider([call("look"), "Done."]), tools=[look]).run(["What is", IMAGE, "and", DOCUMENT])
    await run
    return run


@pytest.fixture(scope="module")
def run() -> Any:
    return asyncio.run(_ended())


def test_the_prompt_shows_images_and_names_files(run: Any) -> None:
    html = message_html(run.messages[0], "")
    assert html.count("<img") == html.count(SOURCE) == 1
    assert html.index("What is") < html.index("<img") < html.index("and") < html.index("pdf &lt;b&gt;May")
    assert 'alt="image png 64x48, ' in html
    assert "[image" not in html


def test_a_frame_is_a_table_in_the_prompt_and_in_a_result() -> None:
    frame = pd.DataFrame({"city": ["<b>Graz</b>"], "km": [1.5]})

    def table() -> pd.DataFrame:
        """Return the table."""
        return frame

    async def go() -> Any:
        run = lab.Agent(ScriptedProvider([call("table"), "Graz."]), tools=[table]).run(["Which of", frame, "is it?"])
        await run
        return run

    run = asyncio.run(go())
    for html in (message_html(run.messages[0], ""), step_html(run, run.history[0], Shown())):
        assert re.search(r"<th[^>]*>city</th>", html)
        assert re.search(r"<td[^>]*>1\.5</td>", html)
        assert "<b>Graz" not in html
    assert "<p>is it?</p>" in message_html(run.messages[0], "")


def test_a_result_shows_them_in_their_order(run: Any) -> None:
    html = step_html(run, run.history[0], Shown())
    assert html.count("<img") == html.count(SOURCE) == 1
    assert html.index("here") < html.index(SOURCE) < html.index("pdf &lt;b&gt;May")
    assert "What the model read" not in html


@pytest.mark.parametrize("part", [lab.Image("https://example.com/a.png"), lab.Audio(b"fLaC1234")], ids=["url", "audio"])
def test_nothing_is_loaded_from_elsewhere(part: Part) -> None:
    html = message_html(lab.Message("user", [part]), "")
    assert "<img" not in html
    assert "src=" not in html
    assert part.text[1:-1] in html


def test_a_large_image_is_made_smaller_and_one_that_is_none_is_named() -> None:
    large = lab.Image(PIL.Image.effect_noise((1500, 1500), 90))
    assert large.size_bytes > 500_000
    html = message_html(lab.Message("user", [large]), "")
    assert len(html) < large.size_bytes
    pretends = lab.Image(b"\x89PNG\r\n\x1a\n" + b"<script>" * 100_000)
    html = message_html(lab.Message("user", [pretends]), "")
    assert "<img" not in html
    assert pretends.text[1:-1] in html


def test_cards_show_images_of_a_checked_type(run: Any) -> None:
    for value in (IMAGE, run.messages[0], run.messages[2], run.history[0].tool_results[0]):
        html = value._repr_mimebundle_()["text/html"]
        assert re.findall(r"<img[^>]*src=\"([^\"]*)\"", html) == [f"data:image/png;base64,{IMAGE.base64}"]
        assert "<b>May" not in html
    for value in (DOCUMENT, lab.Image("https://example.com/a.png")):
        assert "<img" not in value._repr_mimebundle_()["text/html"]


def test_frames_and_prints_have_the_line_and_no_bytes(run: Any) -> None:
    line = f"What is\n{IMAGE.text}\nand\n{DOCUMENT.text}"
    assert run.prompt == line
    shown = [repr(one) for one in (run, run.result, run.history, run.messages[0], *run.events)]
    for text in [*shown, str(run.result), run.result.to_frame().to_csv(), lab.frame(run).to_csv()]:
        assert IMAGE.base64[:40] not in text
        assert "\\x89PNG" not in text


def test_frames_of_megabytes_of_images_are_small_files(tmp_path: Path) -> None:
    large = lab.Image(b"\x89PNG\r\n\x1a\n" + random.Random(1).randbytes(3_000_000))

    def show() -> list[Any]:
        """Show it."""
        return ["See", large, pd.DataFrame({"a": [1]})]

    async def go() -> Any:
        store = lab.Store(tmp_path / "runs.db")
        run = lab.Agent(ScriptedProvider([call("show"), "Done."]), tools=[show], observers=[store]).run(["What is", large])
        await run
        store.export(tmp_path / "exported")
        return run

    run = asyncio.run(go())
    for what in ("runs", "steps", "calls", "tools", "events", "readings", "termination"):
        frame = run.result.to_frame(what)
        frame.to_parquet(tmp_path / f"{what}.parquet")
        frame.to_csv(tmp_path / f"{what}.csv")
        assert len(pd.read_parquet(tmp_path / f"{what}.parquet")) == len(frame)
    files = [*tmp_path.glob("*.parquet"), *tmp_path.glob("*.csv"), *(tmp_path / "exported").glob("*")]
    assert len(files) >= 16
    assert max(file.stat().st_size for file in files) < 100_000

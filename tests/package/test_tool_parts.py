"""Tools that return images, documents and audio: what the model gets, and what else is kept."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pandas as pd
import PIL.Image
import pytest
from engine.builders import execute
from matplotlib.figure import Figure

import agentlab as lab
from agentlab._internal import secrets
from agentlab.model.messages import ToolCall, ToolResult
from agentlab.model.parts import Part
from agentlab.notebook.page.steps import Shown, step_html
from agentlab.testing import ScriptedProvider, call
from agentlab.tools import as_tools
from tests.model.test_parts import PDF, picture, sound

IMAGE, DOCUMENT = lab.Image(picture()), lab.Document(PDF, name="May.pdf")

TABLE = pd.DataFrame({"a": [1]})


def result_of(value: Any) -> ToolResult:
    def look() -> Any:
        """Look."""
        return value

    return asyncio.run(execute(ToolCall("1", "look", "{}"), as_tools([look])))


async def ended(run: Any) -> Any:
    return await run


CASES: dict[str, tuple[Any, list[Any]]] = {
    "a part": (IMAGE, [IMAGE]),
    "a list": (["Before", IMAGE, {"page": 1}, DOCUMENT], ["Before", IMAGE, '{"page":1}', DOCUMENT]),
    "a tuple": ((IMAGE, "after"), [IMAGE, "after"]),
    "audio": (lab.Audio(sound()), [lab.Audio(sound())]),
    "text": ("only text", ["only text"]),
    "a list of text": (["a", "b"], ['["a","b"]']),
    "a frame": (TABLE, ["| a |\n| --- |\n| 1 |"]),
    "a frame beside text": (["See", TABLE], ["See\n| a |\n| --- |\n| 1 |\n"]),
    "a frame beside a part": ([TABLE, IMAGE, TABLE], ["| a |\n| --- |\n| 1 |\n", IMAGE, "| a |\n| --- |\n| 1 |\n"]),
    "the line of a part": (IMAGE.text, [IMAGE.text]),
}


@pytest.mark.parametrize(("value", "pieces"), CASES.values(), ids=CASES)
def test_parts_are_sent_in_their_order(value: Any, pieces: list[Any]) -> None:
    result = result_of(value)
    assert result.pieces == pieces
    assert result.value is value
    assert result.error is None


def test_an_image_of_pillow_and_a_figure_become_images() -> None:
    figure = Figure(figsize=(2, 1))
    for value in (PIL.Image.new("RGB", (4, 5)), figure, [figure, "see"]):
        result = result_of(value)
        assert [part.media_type for part in result.parts] == ["image/png"]
        assert result.error is None


def test_an_object_that_pretends_to_be_a_figure_is_not_touched() -> None:
    class Sly:
        def __getattr__(self, name: str) -> Any:
            raise AssertionError(name)

    assert (result_of({"it": [Sly()]})).error == "unserialisable"


def test_a_file_that_is_not_there_and_raw_bytes_are_errors_that_say_so() -> None:
    def look() -> lab.Image:
        """Look."""
        return lab.Image("gone.png")

    missing = asyncio.run(execute(ToolCall("1", "look", "{}"), as_tools([look])))
    assert (missing.error, missing.parts) == ("exception", ())
    assert missing.content.startswith("look raised ConfigurationError: lab.Image('gone.png'): there is no such file in ")
    raw = result_of(IMAGE.data)
    assert raw.error == "unserialisable"
    assert "return lab.Image, lab.Document or lab.Audio for the bytes of an image or a file" in raw.content
    assert raw.value == IMAGE.data
    inside = result_of({"map": IMAGE})
    assert inside.content.endswith("ValueError: images and files cannot be inside a dict: return a list of texts and parts.")


def test_keys_are_redacted_beside_a_part() -> None:
    secrets.remember(["an-odd-key-of-some-length-0123456789"])
    result = result_of(["the key an-odd-key-of-some-length-0123456789", IMAGE])
    assert "0123456789" not in str(result.pieces)
    assert result.parts == (IMAGE,)
    assert result.pieces[-1] == IMAGE


def test_a_run_sends_them_and_middleware_may_change_the_text() -> None:
    def look() -> list[str | Part]:
        """Look."""
        return ["secret", IMAGE]

    async def censor(tool_call: ToolCall, execute: Any) -> ToolResult:
        result = await execute(tool_call)
        return lab.ToolResult(tool_call.id, tool_call.name, result.content.replace("secret", "…"), parts=result.parts)

    run = lab.Agent(ScriptedProvider([call("look"), "A square."]), tools=[look], tool_middleware=[censor]).run("?")
    assert asyncio.run(ended(run)).text == "A square."
    (result,) = run.messages[2].tool_results
    assert result.pieces == ["…", IMAGE]
    frame = run.result.to_frame() if run.result else None
    assert picture()[:20].hex() not in str(frame)
    assert IMAGE.base64[:30] not in json.dumps(step_html(run, run.history[0], Shown()), default=str).replace(IMAGE.base64, "")
    branch = run.fork(at=1, tool_results={result.call_id: ["Other", DOCUMENT]})
    assert branch.messages[2].tool_results[0].pieces == ["Other", DOCUMENT]
    branch = run.fork(at=1, tool_results={result.call_id: f"See {IMAGE.text}"})
    assert branch.messages[2].tool_results[0].pieces == ["See ", IMAGE]

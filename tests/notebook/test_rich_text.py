"""Texts and values of others as HTML: markdown, code, tables and images are shown as such, and nothing in them acts."""

from __future__ import annotations

import base64
import json
import os
import re
from io import BytesIO
from typing import Any

import matplotlib as mpl
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from inert import HOSTILE, text_of, what_acts
from matplotlib.figure import Figure
from measured_work import calls_in
from PIL import Image

from agentlab._internal import secrets as known_keys
from agentlab.notebook.page import rich_text
from agentlab.notebook.page.rich_text import at_most, code, fields_html, markdown, sanitised, value_html

KEY = "sk-" + "a1B2c3D4" * 4


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_text_is_inert(text: str) -> None:
    for html in (markdown(text), markdown(f"a\n\n{text}\n\nb"), code(text), code(text, "html"), code(json.dumps({text: [text]}))):
        assert what_acts(html) == []
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", html)
        html.encode()
    assert what_acts(sanitised(text)) == []


@given(st.text(st.characters(codec="utf-8") | st.sampled_from("<>\"'&[]()!`*_~|\\/:#-=\n \x00"), max_size=120))
def test_any_text_is_inert(text: str) -> None:
    assert what_acts(markdown(text)) == []
    assert what_acts(code(text)) == []
    assert what_acts(sanitised(text)) == []


@given(
    st.lists(
        st.sampled_from(
            ["[x](", "javascript:", "https://e.example", ")", "<", ">", "![", "](", "`", "\n", "|", "-|-", "&#106;", "\\", '"']
        ),
        max_size=16,
    )
)
def test_any_markup_is_inert(pieces: list[str]) -> None:
    assert what_acts(markdown("".join(pieces))) == []


def test_markdown_is_rendered() -> None:
    text = "# Title\n\nA **bold** and ~~struck~~ *word*,\nnext line.\n\n| a | b |\n|---|--:|\n| 1 | 2 |\n\n- one\n- two\n\n"
    text += "```python\nx = 1  # why\n```"
    html = markdown(text)
    for part in (
        "<h3>Title</h3>",
        "<strong>bold</strong>",
        "<s>struck</s>",
        "<em>word</em>,<br>",
        '<td class="number">2</td>',
        "<li>one</li>",
    ):
        assert part in html
    assert '<span class="c1"># why</span>' in html and 'class="agentlab-table"' in html
    assert html.startswith('<div class="agentlab-md tex2jax_ignore mathjax_ignore" dir="auto">')


def test_links_lead_out_and_remote_images_are_links() -> None:
    html = markdown("[a](https://a.example/?q=1&r=2) <b@c.example> ![a chart](https://d.example/e.png)")
    found = re.findall('<a href="([^"]*)" target="_blank" rel="noopener noreferrer nofollow">([^<]*)</a>', html)
    assert found == [
        ("https://a.example/?q=1&amp;r=2", "a"), ("mailto:b@c.example", "b@c.example"), ("https://d.example/e.png", "[a chart]"),
    ]  # fmt: skip
    assert "<img" not in html


def test_math_stays_as_it_was_written() -> None:
    assert r"$\frac{1}{2}$ and $5 to $10" in text_of(markdown(r"$\frac{1}{2}$ and $5 to $10"))


def test_json_is_indented_and_coloured_and_other_text_is_not() -> None:
    html = code('{"a": [1, true, "<b>"]}')
    assert '<span class="nt">"a"</span>' in html and '<span class="s2">"&lt;b&gt;"</span>' in html and "agentlab-json" in html
    assert json.loads(text_of(html)) == {"a": [1, True, "<b>"]}
    assert text_of(code("[not json")) == "[not json" and "agentlab-json" not in code("[not json")
    assert text_of(code('{"a": 1}{"b"')) == '{"a": 1}{"b"'
    assert "\\u202e" in code('{"a": "\u202ex"}'), "what is invisible is written as it was sent"


@pytest.mark.parametrize("language", ["python", "PYTHON", "nonsense", "", "brainfuck", "c++"])
def test_code_blocks_keep_their_text(language: str) -> None:
    assert "x = 1 < 2" in text_of(markdown(f"```{language}\nx = 1 < 2\n```"))


def test_keys_are_removed_however_they_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    own = "q7Zs-0wn.Secret_of4Person"
    monkeypatch.setenv("MY_API_KEY", own)
    known_keys.read_environment()
    for text in (
        KEY,
        own,
        f"**{KEY}**",
        KEY.replace("-", "\\-"),
        own.replace("-", "&#45;"),
        f"[x](https://e.example/?key={KEY})",
        f"`{own}`",
    ):
        for html in (markdown(text), code(text), code(json.dumps({"a": text})), markdown(f"```json\n{json.dumps(text)}\n```")):
            assert KEY not in html and own not in html
        assert "a1B2c3D4a1B2" not in markdown(text)
    assert "a1B2c3D4a1B2" not in code('{"a": "' + "".join(f"\\u{ord(each):04x}" for each in KEY) + '"}')
    frame = pd.DataFrame({KEY: [own]})
    assert KEY not in value_html(frame) and own not in value_html(frame)
    monkeypatch.undo()
    known_keys.read_environment()


def test_a_key_with_signs_of_markup_is_removed_from_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    own = "r&d<2027>hunter-4711"
    monkeypatch.setenv("DB_PASSWORD", own)
    known_keys.read_environment()
    index = pd.Index([f"row {own}"], name=f"names {own}")
    for frame in (pd.DataFrame({f"db {own}": [f"at {own}"], "list": [[own]]}, index), pd.Series([f"x<y {own}"], index)):
        html = value_html(frame)
        assert "REDACTED" in html and "hunter" not in html and "r&amp;d" not in html
    assert "x&lt;y REDACTED" in html
    monkeypatch.undo()
    known_keys.read_environment()


def test_a_key_at_the_cut_is_not_halved() -> None:
    text = "x" * (rich_text.LONGEST_PROSE - 10) + " " + KEY
    assert "sk-a1" not in markdown(text) and "sk-a1" not in code(text)


def test_long_texts_are_cut_and_say_where_the_whole_is() -> None:
    assert "… 5 more characters: all of it is run.history[0].text" in text_of(
        markdown("x" * (rich_text.LONGEST_PROSE + 5), "run.history[0].text")
    )
    assert len(code('{"a": "' + "x" * 10**6)) < 25_000


def test_a_typed_answer_is_shown_whole_or_says_where_the_whole_is() -> None:
    words = " ".join(f"word{n}" for n in range(400))
    html = fields_html({"summary": words, **{f"field{n}": n for n in range(60)}}, "run.output")
    assert words in html and html.count("<tr>") == rich_text.MOST_ROWS
    assert "… 11 more fields: all of it is run.output" in html
    with at_most(4):
        assert "<td>word<div" in fields_html({"summary": words}, "run.output")
        assert "… 3,085 more characters: all of it is run.output" in fields_html({"summary": words}, "run.output")


@pytest.mark.parametrize(
    "piece", ["[", "![", "*a **b ", "`", "> ", "- ", "<", "&", "|", "~~", "[a](", "\\", "\n", "_", '"', "{", "[[]("]
)
def test_the_work_for_a_text_grows_with_its_length(piece: str) -> None:
    short, long = (calls_in(lambda times=times: markdown(piece * times)) for times in (500, 1000))  # type: ignore[misc]
    assert long < 2.6 * short + 2_000


# Values -------------------------------------------------------------------------------------------------------------------------


def png(width: int = 40, height: int = 20, *, noise: bool = False) -> bytes:
    """A picture."""
    image = (
        Image.frombytes("RGB", (width, height), os.urandom(3 * width * height)) if noise else Image.new("RGB", (width, height))
    )
    drawn = BytesIO()
    image.save(drawn, format="PNG")
    return drawn.getvalue()


def figure() -> Figure:
    """A figure."""
    made = Figure(figsize=(2, 1))
    made.subplots().plot([1, 2])
    return made


def jpeg() -> bytes:
    """A photograph."""
    drawn = BytesIO()
    Image.new("RGB", (8, 8)).save(drawn, format="JPEG")
    return drawn.getvalue()


def test_a_frame_is_a_table() -> None:
    html = value_html(pd.DataFrame({"train": ["IC 41", "<script>alert(1)</script>"], "eur": [29.0, float("nan")]}))
    assert "<th>train</th>" in html and "&lt;script&gt;" in html and "2 rows, 2 columns" in html
    assert what_acts(html) == []
    long = value_html(pd.DataFrame({f"c{number}": range(5_000) for number in range(60)}))
    assert "5,000 rows, 60 columns; the first 50 and 30 are shown" in long and long.count("<tr>") == 51
    assert "1 row, 1 column<" in value_html(pd.Series([1], name="x"))


@pytest.mark.parametrize(
    ("value", "kind"),
    [(png(), "png"), (bytearray(png()), "png"), (jpeg(), "jpeg"), (Image.new("L", (4, 4)), "png"), (figure(), "png")],
    ids=["png", "bytearray", "jpeg", "pil", "matplotlib"],
)  # fmt: skip
def test_a_picture_is_an_image(value: Any, kind: str) -> None:
    html = value_html(value)
    assert f'src="data:image/{kind};base64,' in html and 'class="agentlab-image"' in html
    assert what_acts(html) == []
    with Image.open(BytesIO(base64.b64decode(re.findall('base64,([^"]*)', html)[0]))) as image:
        image.load()


def test_a_large_picture_is_made_smaller_and_what_is_none_is_left_to_its_text() -> None:
    drawn = value_html(png(1400, 900, noise=True))
    assert len(drawn) < 1.4 * rich_text.LARGEST_IMAGE
    assert value_html(b"\x89PNG\r\n\x1a\n" + b"\0" * 900_000) == ""
    for value in (
        None,
        "text",
        "data:image/png;base64,AAAA",
        1,
        b"",
        b"bytes",
        b"<svg onload='alert(1)'>",
        b"RIFFxxxxWAVE",
        {"a": 1},
        [b"x"],
    ):
        assert value_html(value) == ""


class Rude:
    """Raises whatever is asked of it."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(name)


class Mute:
    """Has no text."""

    def __repr__(self) -> str:
        raise RuntimeError


class Lies:
    """Says that markup is its picture."""

    def _repr_png_(self) -> Any:
        return '"><script>alert(1)</script>'


def test_what_raises_or_lies_is_left_to_its_text() -> None:
    assert value_html(Rude()) == "" == value_html(Lies())
    assert value_html(pd.DataFrame({"a": [Mute()]})) == ""


def test_no_figure_is_left_open() -> None:
    before = mpl.rcParams["figure.dpi"]
    value_html(figure())
    assert mpl.rcParams["figure.dpi"] == before

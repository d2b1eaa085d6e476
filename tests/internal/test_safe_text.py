"""Text from outside, made safe for a page, a terminal or a picture."""

from __future__ import annotations

import asyncio
import io
from xml.etree import ElementTree

import pytest

import agentlab as lab
from agentlab._internal.safe_text import label, one_line, printable, whole
from agentlab.errors import ConfigurationError
from agentlab.notebook.explorer.controls import Html
from agentlab.testing import ScriptedProvider, call, say

KEY = "sk-" + "planted0123456789abcdef"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("two\nlines\tand\r\nmore", "two\nlines\tand\nmore"),
        ("\x1b[31mred\x00\x9b", "\ufffd[31mred\ufffd\ufffd"),
        ("half \ud83d and \ud83d\ude00", "half \ufffd and 😀"),
        (f"the key {KEY}", "the key REDACTED"),
    ],
)
def test_printable_replaces_control_characters(text: str, shown: str) -> None:
    assert printable(text) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a name", "a name"),
        ("a\n\x1b[0m \u202eb", "a [0m b"),
        ("", "unnamed"),
        ("x" * 100, "x" * 40 + "…" + "x" * 39),
        (f"{'a ' * 40}{KEY}", "a " * 20 + "… " + "a " * 15 + "REDACTED"),  # redacted before it is cut
    ],
)
def test_one_line_shortens_to_a_single_line(text: str, shown: str) -> None:
    assert one_line(text) == shown
    assert len(one_line(text)) <= 80


def test_whole_keeps_encodable_text_and_a_label_has_no_formula() -> None:
    assert whole("grün 😀") == "grün 😀"
    assert label(r"$\frac{1}{2}$") == "＄＼frac{1}{2}＄"


def test_errors_and_reprs_send_no_terminal_codes() -> None:
    assert "\x1b" not in str(ConfigurationError("tool '\x1b[2J'"))
    run = lab.Agent(ScriptedProvider([say("x")]), name="a\x1b[2J\nb").run("go")
    assert repr(run).startswith("Run(a [2J b, ")


def test_html_of_the_panel_contains_no_formulas() -> None:
    sent = Html("a $x$")
    assert sent.value == "a $x$"
    assert 'class="tex2jax_ignore mathjax_ignore"' in sent.get_state()["value"]
    assert Html("").get_state()["value"] == ""


def test_a_lone_surrogate_in_a_tool_call_raises_no_raw_error() -> None:
    async def go() -> lab.RunResult:
        return await lab.Agent(ScriptedProvider([call("no\ud83d", '{"q": "\ud83d"}'), say("done")])).run("go")

    result = asyncio.run(go())
    assert result.text == "done"
    assert lab.frame([result], "tools")["tool"].to_list() == ["no?"]


def test_a_plot_of_a_hostile_name_is_valid_svg() -> None:
    async def go() -> lab.RunResult:
        return await lab.Agent(ScriptedProvider([say("x")], name="a\x00\x1b[31m", model="$\\frac{$")).run("go")

    axes = lab.plots.bands(lab.frame([asyncio.run(go())]))
    out = io.StringIO()
    axes.figure.savefig(out, format="svg")
    ElementTree.fromstring(out.getvalue()[out.getvalue().index("<svg") :])
    assert "\x1b" not in axes.alt

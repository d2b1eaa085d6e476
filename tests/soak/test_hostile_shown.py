"""Hostile text from a model, a tool or a provider: it stays text in every display, and pictures are still drawn."""

from __future__ import annotations

import asyncio
import io
import re
import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import html5lib
import matplotlib as mpl
import pandas as pd
import pytest

import agentlab as lab
from agentlab.errors import ProviderConnectionError
from agentlab.limits.combinators import Custom
from agentlab.model.finish_reasons import Confidence, TerminationSignal
from agentlab.testing import ScriptedProvider, call, say

from .displays import Displayable, all_of, displays_of, of_picture
from .table import show

# conditions that name hostile tools are intended here
pytestmark = pytest.mark.filterwarnings("ignore:[\\s\\S]*can never be met:agentlab.errors.AgentlabWarning")

M = "zqx"
"""In each of the hostile texts, for elements, attributes and addresses that could result from it."""

TEXTS: dict[str, str] = {
    "elements": f"</pre></td></style></script></textarea></select><{M} {M}=1><script>{M}()</script><img src={M} onerror={M}()>",
    "attributes": f'" \'> {M}="1" onmouseover=\'{M}()\' style=background:url({M}) x="',
    "entities": f"&lt;{M}&gt; &#60;script&#62;{M} &quot; &amp;#60;{M}>",
    "comments": f"<!-- {M} --> --><{M}><![CDATA[<{M}>]]> <?{M}?>",
    "links": f"[x](javascript:{M}()) <javascript:{M}> ![i](http://{M}.example/i.png) `{M}`\n# {M}",
    "mathtext": rf"$\frac{{$ {M} $\href{{javascript:{M}()}}{{x}}$ \({M}\) \[{M}\] $$\unknown{{{M}}}$$ $x_{{1}}^{{2}}$",
    "an underscore": f"_{M}_hidden",
    "dollars": f"$ {M} $5 $",
    "ANSI, NUL": f"\x1b[31m{M}\x1b[0m\x1b]8;;http://{M}.example\x07x\x1b]8;;\x07\x1b[2J\r\x08\x9b31m\x00\x7f",
    "directions": f"\u202e{M}\u2067\u05e9\u05dc\u05d5\u05dd\u200b\u200d\ufeff e" + "\u0301" * 60,
    "lines": f"{M}\n\n\r\nsecond\tline\x0b\x0c\u2028\u2029third",
    "20,000 letters": f"{M} " + "W" * 20_000,
    "halves": f"{M} \ud83d \ude00 \uffff",
    "formats": f"{{{M}}} %s %({M})s {{0.__class__}} %n",
    "emoji": f"{M} 👩‍👩‍👧‍👦🏳️‍🌈 漢字 नमस्ते",
}
SHORT = [name for name in TEXTS if name != "20,000 letters"]


def runs_of(text: str) -> list[lab.Run]:
    """Runs with this text in every free-text position: one completes, one fails, one is ended or broken by a condition, one is
    a branch."""

    def archive(query: str = "") -> str:
        """Look it up."""
        if "fail" in query:
            raise ValueError(text)
        return text

    def answer(request: Any, index: int) -> Any:
        if index == 4 and request.instructions == "fails":
            raise ProviderConnectionError(text)
        calls = {1: call(text, text, id=text), 2: call("archive", {"query": text}), 3: call("archive", {"query": "fail"})}
        response = calls.get(index) or say(text)
        signal = TerminationSignal(response.signal.finish_reason, Confidence.LOW, text, text, text)
        return replace(response, text=text, reasoning=text, signal=signal, model=text, response_id=text, raw={text: text})

    def met(history: lab.RunHistory) -> str:
        return text if len(history) > 1 else ""

    def raises(history: lab.RunHistory) -> bool:
        raise RuntimeError(text)

    met.__name__ = raises.__name__ = text
    stops = ("", None), ("fails", None), ("", Custom(met) | lab.HasToolCall(text, "nothing")), ("", Custom(raises))
    runs = []
    for place, (instructions, stop) in enumerate(stops):
        name = f"{text}{place}" if place else text
        model = ScriptedProvider(answer, name=name, model=text)
        agent = lab.Agent(model, tools=[archive], name=name, instructions=instructions)
        runs.append(agent.run(text, stop=stop, budget=lab.Budget(max_turns=5)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", lab.AgentlabWarning)
        asyncio.run(_to_the_end(runs))
        runs.append(runs[0].fork(at=1, message=text))
        asyncio.run(_to_the_end(runs[-1:]))
    return runs


async def _to_the_end(runs: list[lab.Run]) -> None:
    for run in runs:
        await run


# Faults of a display ------------------------------------------------------------------------------------------------------------

OURS = re.compile("bdi|b|i|p|h2|div|span|pre|code|br|ul|li|dl|dt|dd|style|img|details|summary|caption|table|thead|tbody|tr|th|td")
RENDERED = re.compile("a|blockquote|del|em|h[3-6]|hr|ol|s|small|strong")
"""Elements of a text that is rendered as markdown."""
LINK = re.compile(r"(?i)(https?|mailto):.*")
TEXT_ATTRIBUTES = re.compile(r"alt|title|aria-[a-z]+|data-[a-z-]+|label")
PICTURE = re.compile(r"data:image/png;base64,[A-Za-z0-9+/]+=*")
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
LONGEST_ALT = 20_000


def wrong_with(one: Displayable) -> Iterator[str]:
    """The faults of a displayed hostile text that is not plain text."""
    if one.kind == "html":
        yield from _wrong_with_html(one.text, formulas=not _is_frame(one))
    elif one.kind == "svg":
        yield from _wrong_with_svg(one.text)
    if "alt" in one.where and len(one.text) > LONGEST_ALT:
        yield f"{len(one.text):,} characters"
    if one.kind in ("text", "trait") and not _is_frame(one) and not _is_typed_in(one) and CONTROL.search(one.text):
        yield f"a control character in {one.text[:60]!a}"


def _is_frame(one: Displayable) -> bool:
    """True if pandas displays it: the data themselves, unchanged."""
    return one.where.startswith(("frame", "summary", "paired", "backtest")) or ".frame" in one.where or ".others" in one.where


def _is_typed_in(one: Displayable) -> bool:
    """True if it is in an editable box."""
    return one.where.endswith(("data, value", "data, chosen"))


def _wrong_with_html(text: str, *, formulas: bool) -> Iterator[str]:
    tree = html5lib.parseFragment(text, treebuilder="etree", namespaceHTMLElements=False)
    for element in tree.iter():
        tag = element.tag
        if not isinstance(tag, str):
            yield f"a comment {str(element.text)[:40]!a}"
            continue
        if not OURS.fullmatch(tag) and not RENDERED.fullmatch(tag) and tag != "DOCUMENT_FRAGMENT":
            yield f"an element {tag}"
        if tag == "style" and M in (element.text or ""):
            yield "a style"
        for name, value in element.attrib.items():
            if name == "src":  # the drawn letters of a picture may form any text
                if not PICTURE.fullmatch(value):
                    yield f"an address {value[:40]!a}"
                continue
            if (tag, name) == ("a", "href") and LINK.fullmatch(value):
                if element.attrib.get("rel") != "noopener noreferrer nofollow":
                    yield "a link that says where it comes from"
                continue
            is_ours = TEXT_ATTRIBUTES.fullmatch(name) or M not in value
            if M in name or name.startswith("on") or name in ("href", "action", "srcdoc", "xlink:href") or not is_ours:
                yield f"an attribute {tag}.{name}"
    if formulas:
        yield from _formulas(tree, ignored=False)
        if found := CONTROL.search("".join(tree.itertext())):
            yield f"a control character {found[0]!a}"


def _formulas(element: Any, *, ignored: bool) -> Iterator[str]:
    """Texts that MathJax would render as formulas."""
    ignored = ignored or "mathjax_ignore" in element.get("class", "") or element.tag in ("pre", "code", "style")
    for text in (element.text, *(child.tail for child in element)):
        if not ignored and re.search(r"\$[^$]+\$|\\\(|\\\[", text or ""):
            yield f"a formula {text[:40]!a}"
    for child in element:
        if isinstance(child.tag, str):
            yield from _formulas(child, ignored=ignored)


def _wrong_with_svg(text: str) -> Iterator[str]:
    if "<!DOCTYPE" in text:
        text = text.partition(">")[0] and text[text.index("<svg") :]
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        yield f"no XML: {error}"
        return
    for element in root.iter():
        tag = element.tag.rpartition("}")[2]
        if tag in ("a", "script", "foreignObject", "iframe") or M in tag:
            yield f"an element {tag}"
        for name, value in element.attrib.items():
            if M in name or name.startswith("on") or (name.endswith("href") and not value.startswith(("#", "data:image/png"))):
                yield f"an attribute {tag}.{name}"


# The tests ----------------------------------------------------------------------------------------------------------------------


def test_the_checks_detect_each_fault() -> None:
    wrong = {
        "html": [
            f"<{M}>",
            "<a href='javascript:1'>",
            "<b onclick=1>",
            "<img src=x>",
            "<img src='data:image/png;base64,AA,B'>",
            "<!-- c -->",
            "a $x$",
            "\x1b",
            f"<b class={M}>",
        ],
        "svg": ["<svg><a/></svg>", "<svg", "<svg>\x00</svg>", '<svg href="http://x"/>'],
        "text": ["\x1b[31m", "\ud83d"],
    }
    missed = [
        (kind, text) for kind, texts in wrong.items() for text in texts if not list(wrong_with(Displayable(kind, "x", text)))
    ]  # type: ignore[arg-type]
    assert missed == []
    assert list(wrong_with(Displayable("html", "x", f'<div class="mathjax_ignore"><b title="{M}">$x$</b></div>'))) == []


def _row(name: str, shown: Iterator[Displayable]) -> tuple[list[object], list[tuple[str, str, str]]]:
    """A row of the table, and its faults."""
    kinds = dict.fromkeys(("html", "text", "trait", "svg"), 0)
    wrong = []
    for one in shown:
        kinds[one.kind] += 1
        wrong += [(name, one.where, what) for what in wrong_with(one)]
    return [name, *kinds.values(), len(wrong) or "text"], wrong


COLUMNS = ["text, in every free place", "HTML", "plain text", "texts of widgets", "SVG", "outcome"]


@pytest.mark.timeout(300)
def test_hostile_output_is_shown_as_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTLAB_FRONTEND", "none")
    everything = " ".join(TEXTS[name] for name in SHORT)
    row, wrong = _row("all of these at once", displays_of(runs_of(everything)))
    show("hostile-shown", COLUMNS, [row])
    assert wrong == []


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_each_hostile_text_is_shown_as_text_in_every_display_and_plot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTLAB_FRONTEND", "none")
    rows, wrong = [], []
    for name, text in TEXTS.items():
        row, found = _row(name, all_of(runs_of(text)))
        rows.append(row)
        wrong += found
    show("hostile-shown-each", COLUMNS, rows)
    assert wrong == []


@pytest.mark.parametrize("text", TEXTS.values(), ids=list(TEXTS))
def test_a_run_with_hostile_output_finishes(text: str) -> None:
    assert [run.result is not None and str(run.result.stop_reason) for run in runs_of(text)] == [
        "completed", "error", "stop_condition", "error", "completed",
    ]  # fmt: skip


def frames_of(texts: list[str]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Frames as another program may have written them: a group for each text, which is in every text column."""
    runs, steps = [], []
    for place, text in enumerate(texts):
        words = dict.fromkeys(("provider", "model", "prompt", "tools"), text)
        for repeat in range(2):
            run_id = f"{text}{place}.{repeat}"
            runs.append({
                **words, "run_id": run_id, "stop_reason": text, "terminated": True, "truncated": False, "steps": 2,
                "total_tokens": 100 + place + repeat, "cost_usd": 0.01 * (1 + place + repeat),
            })  # fmt: skip
            steps += [
                {
                    **words, "run_id": run_id, "step": step, "stop_reason": text if step == 2 else None, "tool_calls": 1,
                    "cumulative_tokens": 50 * step + place, "cumulative_cost_usd": 0.01 * step, "max_tokens": 1000,
                }
                for step in (1, 2)
            ]  # fmt: skip
    return pd.DataFrame(runs), pd.DataFrame(steps)


@pytest.mark.soak
def test_plots_draw_names_letter_by_letter() -> None:
    plots, rows, wrong = lab.plots, [], []
    names = [name for name in TEXTS if name != "halves"]  # which no frame can hold
    for part in (names[:7], names[7:]):
        runs, steps = frames_of([TEXTS[name] for name in part])
        made = {
            "curves": lambda steps=steps: plots.curves(steps),
            "stop_reasons": lambda runs=runs: plots.stop_reasons(runs),
            "bands": lambda steps=steps: plots.bands(steps),
            "survival": lambda runs=runs: plots.survival(runs),
            "estimates": lambda runs=runs: plots.estimates(runs),
            "cost_success": lambda runs=runs: plots.cost_success(runs),
            "small_multiples": lambda steps=steps: plots.small_multiples(plots.tokens, steps),
        }
        for plot, draw in made.items():
            row, found = _row(f"{plot}: {part[0]} … {part[-1]}", of_picture(plot, drawn := draw()))
            written = _texts_in(drawn)
            lost = [name for name in part if not any(_beginning(TEXTS[name]) in text for text in written)]
            rows.append([row[0], len(part) - len(lost), ", ".join(lost) or "none", row[-1]])
            wrong += found + [(plot, name, "not drawn") for name in lost]
    show("hostile-plots", ["plot of groups", "names drawn as they are", "lost", "outcome"], rows)
    assert wrong == []


def _texts_in(drawn: Any) -> list[str]:
    out = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none"}):
        getattr(drawn, "figure", drawn).savefig(out, format="svg")
    root = ElementTree.fromstring(out.getvalue()[out.getvalue().index("<svg") :])
    return ["".join(element.itertext()).strip() for element in root.iter() if element.tag.endswith("}text")]


def _beginning(text: str) -> str:
    """The first letters that can be drawn."""
    plain = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return re.split(r"[^ -~]", plain)[0][:7].strip()

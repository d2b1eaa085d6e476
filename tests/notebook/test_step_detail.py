"""One step, what it said and its details: that no part of it can do harm, hide, mislead or slow the page down."""

from __future__ import annotations

import asyncio
import html
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from measured_work import calls_in, takes_no_more

import agentlab as lab
from agentlab import Budget, HasToolCall, StepCountIs
from agentlab.agent import Run
from agentlab.model.finish_reasons import FinishReason
from agentlab.model.messages import ToolCall
from agentlab.model.responses import ModelResponse
from agentlab.notebook.page import rich_text, step_detail
from agentlab.notebook.page.rich_text import LONGEST_CODE
from agentlab.notebook.page.steps import Shown, step_html
from agentlab.testing import ScriptedProvider, call, say

HOSTILE = '</pre></details><script>alert(1)</script><img src=x onerror="alert(2)">'
KEY = "sk-" + "a1B2c3D4" * 4


def search(query: str) -> str:
    """Search."""
    if query == "fail":
        raise ValueError("the archive is closed")
    return json.dumps({"hits": [], "query": query})


def run_of(script: Sequence[Any], steps: int | None = None, **more: Any) -> Run:
    """A run on a script with this many steps taken, or all of them."""
    run = lab.Agent(ScriptedProvider(script), tools=[search], instructions=more.pop("instructions", "")).run("Find it.", **more)

    async def go() -> None:
        for _ in range(len(script) if steps is None else steps):
            await run.step()

    asyncio.run(go())
    return run


def raw_of(response: ModelResponse, raw: Any) -> ModelResponse:
    return replace(response, raw=raw)


def detail(run: Run, index: int) -> str:
    """What a step said and did, and all its details."""
    step = run.history[index - 1]
    return step_html(run, step, Shown()) + step_detail.sections(step, step_detail.SECTIONS)


def shown(run: Run, index: int) -> str:
    """The same as a user reads it."""
    return html.unescape(re.sub(r"<[^>]+>", " ", detail(run, index)))


@pytest.mark.filterwarnings("ignore:.* can never be met")  # on purpose
def test_a_step_is_shown_in_full() -> None:
    script = [raw_of(call("search", {"query": "umbrella"}, cost="0.002"), {"usage": {"total": 15}}), say("Nothing.")]
    stop = HasToolCall("search") | StepCountIs(9)
    run = run_of(script, 1, instructions="Be brief.", stop=stop, budget=Budget(max_turns=5, max_tokens=100))
    step_text = re.sub(r"\s+", " ", shown(run, 1))
    for sentence in (
        "ends the run as stop_condition",
        '{ "query" : "umbrella" }',
        '{ "hits" : [], "query" : "umbrella" }',
        "$0.002 reported",
        "finish_reason = tool_calls (high confidence)",
        "HasToolCall: 1 of search — met ◀ decided",
        "StepCountIs: 1 of 9 — not met",
        "max_tokens 100 tokens — 85 left",
        "max_turns 5 steps — 4 left",
        '{ "usage": { "total": 15 } }',
    ):
        assert sentence in step_text, sentence


async def _step(run: Run) -> None:
    await run.step()


def test_a_failed_tool_and_an_unexecuted_one_are_distinguished() -> None:
    calls = (ToolCall("1", "search", '{"query": "fail"}'), ToolCall("2", "search", '{"query": "half', closed=False))
    response = replace(say(finish=FinishReason.TOOL_CALLS), tool_calls=calls)
    run = lab.Agent(ScriptedProvider([response, say("so be it")]), tools=[search], continuation=None).run("go")
    asyncio.run(_step(run))
    step_text = re.sub(r"\s+", " ", shown(run, 1))
    assert '{"query": "half' in step_text
    assert "not executed" in step_text


def test_a_step_without_an_answer_says_what_went_wrong() -> None:
    run = run_of([lab.errors.ProviderError(f"refused: {KEY}")], 1)
    step_text = shown(run, 1)
    assert "No answer was received." in step_text and "No response came back" in step_text
    assert "ProviderError: refused: REDACTED" in step_text
    assert KEY not in detail(run, 1)


def test_outside_text_is_never_html() -> None:
    script = [
        raw_of(call(HOSTILE, HOSTILE), {HOSTILE: HOSTILE}),
        replace(say(HOSTILE), reasoning=HOSTILE, refusal=HOSTILE, model=HOSTILE, response_id=HOSTILE),
    ]
    run = run_of(script, stop=lambda history: False)
    for index in (1, 2):
        page = detail(run, index)
        assert "<script" not in page and "<img" not in page
        assert page.count("</details>") == page.count("<details ")
        assert page.count("</pre>") == page.count("<pre ")
        assert "&lt;script&gt;" in page


def test_keys_are_shown_nowhere() -> None:
    long = "x" * (LONGEST_CODE - 10) + " " + KEY  # the cut would leave half of it
    run = run_of([raw_of(call("search", {"query": long}), {"api_key": "hunter2-hunter2", "echo": KEY}), say(KEY)])
    pages = detail(run, 1) + detail(run, 2)
    assert KEY[:9] not in pages and "hunter2" not in pages
    assert pages.count("REDACTED") >= 3


def test_a_megabyte_slows_neither_the_page_nor_the_redraw() -> None:
    def pages_of(size: int) -> Callable[[], list[str]]:
        big = "<&> \u202e" * size
        raw = {"choices": [{"message": big, "finish_reason": "stop"}], "many": list(range(size // 2)), "deep": _deep(2_000)}
        run = run_of([raw_of(call("search", {"query": big}), raw), raw_of(say(big), raw)])
        return lambda: [detail(run, index) for index in (1, 2)]

    small, large = pages_of(20_000), pages_of(200_000)
    pages = large()
    assert max(map(len, pages)) < 500_000
    assert calls_in(large) <= 1.1 * calls_in(small)
    assert takes_no_more(large, than=small, times=3)
    assert "more characters: all of it is run.history[1].text" in pages[1]
    assert '"finish_reason": "stop"' in pages[1], "the end of the long text is visible"


def _deep(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


def test_text_keeps_its_characters_and_code_shows_invisible_ones() -> None:
    sly = "safe\u202egnp.exe\u200b می\u200cخواهم 👩\u200d🔬"
    run = run_of([raw_of(call("search", json.dumps({"query": sly}, ensure_ascii=False)), {"said": sly}), say(sly)])
    answer, tools = detail(run, 2), detail(run, 1)
    assert sly in answer, "joiners belong to the script"
    assert "Invisible characters in it: right-to-left override (1), zero width space (1)." in answer
    assert "\u202e" not in tools.replace(sly, "") and "\\u202egnp.exe\\u200b" in tools
    assert all('dir="auto"' in block for block in re.findall(r"<pre [^>]*>", answer + tools))


def test_invisible_characters_beyond_the_first_plane_are_escaped_as_in_json() -> None:
    assert json.loads(f'"{rich_text.seen("a" + chr(0xE0041) + chr(0x200B))}"') == "a" + chr(0xE0041) + chr(0x200B)


def test_the_pieces_of_a_continued_answer_and_dropped_text_are_shown() -> None:
    start = f"The harbour of {HOSTILE} and {KEY} was very qui"
    cut = say(start, finish=FinishReason.MAX_TOKENS)
    run = run_of([cut, replace(say(f"{start}et."), text=f"{start}et."), say("next")], 1)
    assert run.history[0].text == f"{start}et."
    step_text = shown(run, 1)
    assert f"Call 2 continues at character {len(start)}: dropped {len(start)} repeated characters: 'The harbour" in step_text
    assert "<script>" not in detail(run, 1)
    assert KEY not in detail(run, 1)
    once = run_of([say("half", finish=FinishReason.MAX_TOKENS), say(" and half")], 1)
    assert "Call 2 continues at character 4." in shown(once, 1)
    assert "continues" not in shown(run_of([say("whole")], 1), 1)

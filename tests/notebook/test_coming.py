"""The step under way on the page: the answer while it streams in, and the tools and sub-agents at work."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import re
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from html import unescape
from pathlib import Path

import pytest
from live_page import Data, LivePage
from measured_work import calls_in
from soak.planted_keys import IN_ENVIRONMENT, KEYS, SENT, found_in
from thread_tools import drawn, wait_until
from typing_extensions import TypedDict

import agentlab as lab
from agentlab import StepCountIs
from agentlab._internal import secrets as known_keys
from agentlab.agent import Run
from agentlab.engine.client import CallContext
from agentlab.model.finish_reasons import FinishReason
from agentlab.model.messages import ModelRequest
from agentlab.model.responses import Hole, ModelResponse
from agentlab.notebook.panel import coming
from agentlab.notebook.panel.coming import LONGEST_ANSWER, LONGEST_TAIL, Coming
from agentlab.records.events import Event, StepStarted, TextReceived, ToolStarted
from agentlab.testing import ScriptedProvider, call, say

FIXTURES = Path(__file__).parents[2] / "fixtures"
Speech = Callable[[CallContext], Awaitable[ModelResponse]]


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coming, "SHOWN_AFTER_S", 0.0)


@dataclass(frozen=True, slots=True)
class Speaker:
    """A model whose calls are coroutines that emit their text piece by piece."""

    speeches: tuple[Speech, ...]
    name: str = "speaker"
    model: str = "aloud"

    async def respond(self, request: ModelRequest, context: CallContext) -> ModelResponse:
        """Run the next speech."""
        return await self.speeches[min(context.index, len(self.speeches)) - 1](context)


def speech(*pieces: str, look: Callable[[], object] = lambda: None, then: ModelResponse | Exception | None = None) -> Speech:
    """A call that emits these pieces, calls the check after each, and answers with them or with the result of `then`."""

    async def speak(context: CallContext) -> ModelResponse:
        for piece in pieces:
            context.on_text(piece)
            look()
        if isinstance(then, Exception):
            raise then
        return say("".join(pieces)) if then is None else replace(then, text="".join(pieces))

    return speak


class Watched:
    """A run whose step under way is read when a speech asks for it."""

    def __init__(self, *, tools: tuple[Callable[..., object], ...] = (), **more: object) -> None:
        self.seen: list[Data | None] = []
        self._live: Data | None = None
        self._tools, self._more = tools, more

    def look(self) -> None:
        news = new_of(self.coming)
        if "live" in news:
            self._live = news["live"] and LivePage._grown(self._live, _as_json(news["live"]))
        self.seen.append(self._live)

    def run(self, *speeches: Speech, **limits: object) -> Run:
        run = lab.Agent(Speaker(speeches), tools=self._tools, **self._more).run("go", **limits)  # type: ignore[arg-type]
        self.coming = Coming(run)
        run.observe(self.coming.take)
        return run

    def texts(self) -> list[str]:
        return [text_of(live) for live in self.seen]


def new_of(coming: Coming) -> Data:
    coming.read()
    return coming.news(coming._run.timeline.complete_steps)


def _as_json(live: Data) -> Data:
    return {**live, "calls": {str(place): dict(call) for place, call in live.get("calls", {}).items()}}


def text_of(live: Data | None) -> str:
    """The text that is shown of the answer."""
    html = "" if live is None else "".join([*live["blocks"], live["tail"]])
    return unescape(re.sub("<[^>]*>", "", html)).strip()


def to_the_end(run: Run) -> None:
    async def main() -> None:
        await run

    asyncio.run(main())


def look_up(word: str) -> str:
    """Look a word up."""
    return "nothing"


# While it streams -----------------------------------------------------------------------------------------------------------


def test_text_grows_word_by_word_and_is_then_a_step() -> None:
    watched = Watched()
    run = watched.run(speech("It ", "rai", "ns ", "in Graz", ". And", look=watched.look))
    assert new_of(watched.coming) == {}
    to_the_end(run)
    assert watched.texts() == ["It", "It", "It rains", "It rains in", "It rains in Graz."]
    assert {(live["n"], live["words"]) for live in watched.seen if live} == {(1, "streaming")}
    watched.look()
    assert watched.seen[-1] is None


def test_quick_steps_do_not_flicker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coming, "SHOWN_AFTER_S", 0.2)
    watched = Watched()

    async def speak(context: CallContext) -> ModelResponse:
        context.on_text("It rains. ")
        watched.look()
        time.sleep(0.25)
        watched.look()
        return say("It rains. ")

    to_the_end(watched.run(speak))
    assert watched.texts() == ["", "It rains."]


def test_a_step_that_waits_for_the_model_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coming, "WAITS_AFTER_S", 0.0)
    watched = Watched()
    to_the_end(watched.run(speech("", look=watched.look)))
    assert [live["words"] for live in watched.seen if live] == ["waiting for the model · 0 s"]


MARKDOWN = """# A plan

It is **certain** that it rains.

| city | rain |
|---|---|
| Graz | 80 % |

```python
def f(x):

    return x
```

1. one
2. two

   with more

> A quote <b>of</b> *this*.

The end of it."""


@pytest.mark.parametrize("size", [1, 7, 50, 10_000])
def test_blocks_are_rendered_once_and_come_out_as_in_the_step(size: int) -> None:
    watched = Watched()
    pieces = [MARKDOWN[at : at + size] for at in range(0, len(MARKDOWN), size)]
    run = watched.run(speech(*pieces, look=watched.look))
    to_the_end(run)
    last = watched.seen[-1]
    assert last is not None
    whole = lab.notebook.page.rich_text.markdown_piece("", MARKDOWN[: MARKDOWN.rindex(" ") + 1])
    assert "".join([*last["blocks"], last["tail"]]).replace("\n", "") == whole.replace("\n", "")
    for earlier, later in itertools.pairwise([live["blocks"] for live in watched.seen if live]):
        assert later[: len(earlier)] == earlier, "a complete block stays as it is"


@pytest.mark.parametrize(
    ("opening", "line", "tag"),
    [("```python\n", "value = 1  # a comment\n", "pre"), ("", "a line of one long paragraph\n", "p"),
     ("| a | b |\n|---|---|\n", "| one | two |\n", "table")],
)  # fmt: skip
def test_a_long_block_is_continued_in_another_one(opening: str, line: str, tag: str) -> None:
    watched = Watched()
    text = opening + line * 500
    to_the_end(watched.run(speech(*[text[at : at + 100] for at in range(0, len(text), 100)], look=watched.look)))
    last = watched.seen[-1]
    assert last is not None
    assert len(last["blocks"]) > 3
    assert all(f"<{tag}" in piece for piece in [*last["blocks"], last["tail"]])
    assert max(len(re.sub("<[^>]*>", "", live["tail"])) for live in watched.seen if live) <= LONGEST_TAIL + 100
    words = line.replace("|", " ").split()
    assert text_of(last).count(words[-1]) in (499, 500)


def test_the_cost_of_a_piece_does_not_depend_on_the_length() -> None:
    run = lab.Agent(ScriptedProvider(["x"])).run("go")
    watched = Coming(run)
    watched.take(StepStarted(0.0, 1, None))  # type: ignore[arg-type]

    def more() -> None:
        watched.take(TextReceived(0.0, 1, "A sentence with some words in it.\n\n" * 3, 1))
        new_of(watched)

    for _ in range(20):
        more()
    early = calls_in(more)
    for _ in range(500):
        more()
    assert calls_in(more) <= 1.5 * early  # of a text that is 26 times as long


def test_a_very_long_answer_is_cut_while_it_streams() -> None:
    watched = Watched()
    pieces = ["words of a line\n\n" * 1_000] * 8
    to_the_end(watched.run(speech(*pieces, look=watched.look)))
    last = watched.seen[-1]
    assert last is not None
    assert "".join(last["blocks"]).count("words") <= LONGEST_ANSWER // 16
    assert last["note"] == "The first 100,000 characters; the step will have the rest."


@pytest.fixture
def _planted(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, value in IN_ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    known_keys.read_environment()
    known_keys.remember([SENT])
    yield
    monkeypatch.undo()
    known_keys.read_environment()


@pytest.mark.usefixtures("_planted")
@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
def test_no_part_of_a_key_is_shown(key: str) -> None:
    watched = Watched()
    text = f"My key is {key} and that is all.\n\nReally."
    run = watched.run(speech(*text, look=watched.look))
    to_the_end(run)
    shown = [text for text in watched.texts() if "is all" in text]
    assert shown
    assert found_in("\n".join(watched.texts())) == []
    secret = key.removeprefix("Bearer ").removeprefix("-----BEGIN RSA PRIVATE KEY-----\n")
    assert all(secret[:12] not in text for text in watched.texts())


def test_hostile_markdown_is_inert() -> None:
    watched = Watched()
    text = '<script>alert(1)</script> <img src=x onerror="alert(2)"> [x](javascript:alert(3)) ![y](http://x/y.png) end '
    to_the_end(watched.run(speech(text, look=watched.look)))
    last = watched.seen[-1]
    assert last is not None
    assert not re.search(r"<script|<img|javascript:alert\(3\)\"", last["tail"])


# Typed answers and arguments ------------------------------------------------------------------------------------------------


class Trip(TypedDict):
    """A trip."""

    city: str
    days: int
    stops: list[str]


TRIP = '{"city": "Graz on the Mur", "days": 12, "stops": ["Bruck", "Leoben"]}'


def rows_of(live: Data | None) -> list[tuple[str, str]]:
    """The fields that are shown of an answer."""
    html = "" if live is None else live["tail"]
    found = re.findall(r"<tr><th>(.*?)</th><td>(.*?)</td></tr>", html, re.DOTALL)
    return [(name, unescape(re.sub("<[^>]*>", "", value)).strip()) for name, value in found]


@pytest.mark.parametrize("text", [TRIP, f"```json\n{TRIP}\n```"], ids=["plain", "in a code block"])
def test_a_typed_answer_is_shown_as_the_fields_that_are_there(text: str) -> None:
    watched = Watched(output=Trip)
    run = watched.run(speech(*text, look=watched.look))
    to_the_end(run)
    assert run.output == {"city": "Graz on the Mur", "days": 12, "stops": ["Bruck", "Leoben"]}
    shown = [rows_of(live) for live in watched.seen]
    assert [("city", "Graz on")] in [[(name, value.strip()) for name, value in rows] for rows in shown]
    assert not any(("days", "1") in rows for rows in shown), "half a number"
    assert [name for name, _ in shown[-1]] == ["city", "days", "stops"]
    assert not any('"city"' in text for text in watched.texts())
    assert all(len(after) >= len(before) for before, after in itertools.pairwise(shown)), "no field disappears again"


def test_an_answer_of_several_types_is_shown_without_its_wrapping() -> None:
    watched = Watched(output=Trip | int)
    to_the_end(watched.run(speech(f'{{"answer": {TRIP}', "}", look=watched.look)))
    assert rows_of(watched.seen[-1])[0] == ("city", "Graz on the Mur")


def written(*pieces: str, tool: str, look: Callable[[], object]) -> Speech:
    """A call whose answer is one tool call, with arguments that stream in."""

    async def speak(context: CallContext) -> ModelResponse:
        for piece in pieces:
            context.on_arguments(tool, piece, 0)
            look()
        return call(tool, "".join(pieces))

    return speak


def test_a_typed_answer_that_is_a_tool_call_is_shown_as_its_fields() -> None:
    watched = Watched(output=Trip)
    run = watched.run(written(*TRIP, tool="final_answer", look=watched.look))
    to_the_end(run)
    assert run.output == {"city": "Graz on the Mur", "days": 12, "stops": ["Bruck", "Leoben"]}
    shown = [rows_of(live) for live in watched.seen]
    assert [("city", "Graz on")] in shown
    assert [name for name, _ in shown[-1]] == ["city", "days", "stops"]
    assert {live["words"] for live in watched.seen if live} == {"streaming"}


def test_arguments_are_shown_while_they_are_written_and_then_the_call() -> None:
    watched = Watched(tools=(look_up,))

    def look(event: Event) -> None:
        if isinstance(event, ToolStarted):
            watched.look()

    long = '{"word": "' + "much " * 100 + '<b>a</b>"}'
    run = watched.run(written(*long.split(" "), tool="look_up", look=watched.look), speech("done"))
    run.observe(look)
    to_the_end(run)
    before, after = watched.seen[-2], watched.seen[-1]
    assert before is not None
    assert after is not None
    assert before["tail"].startswith('<div class="agentlab-note">look_up <code>…')
    assert len(before["tail"]) < 400
    assert "<b>" not in before["tail"]
    assert (after["tail"], [one["name"] for one in after["calls"]]) == ("", ["look_up"])


@pytest.mark.usefixtures("_planted")
@pytest.mark.parametrize("output", [None, Trip])
@pytest.mark.parametrize("tool", ["look_up", "final_answer"])
@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
def test_no_part_of_a_key_is_shown_while_arguments_are_written(key: str, tool: str, output: object) -> None:
    watched = Watched(tools=(look_up,), output=output)
    arguments = json.dumps({"word": f"{key} and", "city": f"the key {key} is", "days": 1, "stops": [key]})
    run = watched.run(written(*arguments, tool=tool, look=watched.look), speech("done"))
    to_the_end(run)
    assert found_in("\n".join(str(live) for live in watched.seen)) == []


# Tools and sub-agents -------------------------------------------------------------------------------------------------------


def test_tools_are_shown_while_they_run() -> None:
    watched = Watched()

    def look_around(word: str) -> str:
        """Look the word up, and at the page."""
        watched.look()
        return "nothing"

    watched._tools = (look_around,)
    calls = [*call("look_around", {"word": "x"}, id="1").tool_calls, *call("look_around", {"word": 5}, id="2").tool_calls]
    both = say("Wait.", calls=calls, finish=FinishReason.TOOL_CALLS)
    to_the_end(watched.run(speech("Wait.", then=both), stop=StepCountIs(1)))
    live = watched.seen[0]
    assert live is not None
    assert (live["words"], text_of(live)) == ("running tools", "Wait."), "the last word too: the answer is complete"
    under_way = {"name": "look_around", "arguments": '{"word": "x"}', "outcome": "running 0 s", "failed": False, "first": ""}
    assert live["calls"][0] == under_way
    if len(watched.seen) > 1:
        first = watched.seen[1]["calls"][0]  # type: ignore[index]
        assert (first["outcome"][:4], first["first"]) == ("done", "nothing")


def test_a_call_that_waits_for_approval_says_so_and_what_was_decided() -> None:
    watched = Watched(tools=(look_up,))

    def approver(asked: object) -> bool:
        watched.look()
        return True

    run = watched.run(speech(then=call("look_up", {"word": "x"})), stop=StepCountIs(1), approve=True, approver=approver)
    to_the_end(run)
    assert [one["calls"][0]["outcome"] for one in watched.seen if one] == ["waits for approval"]


def test_sub_agents_at_work_are_named() -> None:
    watched = Watched()
    inner = lab.Agent(Speaker((speech("In Linz. ", look=watched.look),)), name="scout")
    watched._tools = (inner.as_tool("scout"),)  # type: ignore[assignment]
    run = watched.run(speech(then=call("scout", {"task": "Go."})), speech("Done."))
    to_the_end(run)
    live = watched.seen[0]
    assert live is not None
    assert live["children"] == [run.children[0].id]


# Several calls in one step --------------------------------------------------------------------------------------------------


def test_a_retried_call_does_not_show_its_text_twice() -> None:
    watched = Watched()

    async def speak(context: CallContext) -> ModelResponse:
        context.on_text("First block.\n\nIt rai ")
        watched.look()
        context.on_retry(1, 0.0, "the connection broke")
        watched.look()
        context.on_text("It rains. ")
        watched.look()
        return say("It rains. ")

    to_the_end(watched.run(speak))
    assert watched.texts() == ["First block.\nIt rai", "", "It rains."]


def test_an_answer_that_lost_a_piece_is_asked_for_again() -> None:
    watched = Watched(stream=True)
    cut = say(finish=FinishReason.MAX_TOKENS)
    holed = replace(say(), holes=(Hole(4),))
    begin, lose = speech("I say: ", look=watched.look, then=cut), speech("pay Bob ", look=watched.look, then=holed)
    to_the_end(watched.run(begin, lose, speech("pay ", "not Bob ", look=watched.look)))
    assert watched.texts() == ["I say:", "I say: pay Bob", "I say: pay", "I say: pay not Bob"]


def test_a_paused_turn_continues_where_it_was() -> None:
    watched = Watched()
    run = watched.run(
        speech("First ", "half, ", look=watched.look, then=say(finish=FinishReason.PAUSED)),
        speech("second ", "half. ", look=watched.look),
    )
    to_the_end(run)
    assert watched.texts() == ["First", "First half,", "First half, second", "First half, second half."]


def test_a_middleware_that_asks_again_does_not_show_two_answers() -> None:
    async def twice(request: ModelRequest, ask: Callable[[ModelRequest], Awaitable[ModelResponse]]) -> ModelResponse:
        with contextlib.suppress(OSError):
            await ask(request)
        return await ask(request)

    for first in (None, OSError("broken")):
        watched = Watched(middleware=[twice])
        run = watched.run(speech("A guess. ", look=watched.look, then=first), speech("It ", "rains. ", look=watched.look))
        to_the_end(run)
        assert watched.texts() == ["A guess.", "It", "It rains."]


def test_the_newest_of_two_concurrent_calls_is_shown_unmixed() -> None:
    turns = asyncio.Barrier(2)

    def in_turns(*pieces: str) -> Speech:
        async def speak(context: CallContext) -> ModelResponse:
            for piece in pieces:
                await turns.wait()
                context.on_text(f"{piece} ")
                watched.look()
            return say("".join(pieces))

        return speak

    async def both(request: ModelRequest, ask: Callable[[ModelRequest], Awaitable[ModelResponse]]) -> ModelResponse:
        return (await asyncio.gather(ask(request), ask(request)))[1]

    watched = Watched(middleware=[both])
    to_the_end(watched.run(in_turns("a", "b", "c"), in_turns("1", "2", "3")))
    assert watched.texts()[-1] == "1 2 3"
    assert all("1 2 3".startswith(text) for text in watched.texts()[2:])


# How it ends ----------------------------------------------------------------------------------------------------------------


def test_text_before_a_cancel_stays_and_is_marked_as_not_in_the_history() -> None:
    watched = Watched()

    async def speak(context: CallContext) -> ModelResponse:
        context.on_text("It will rai")
        run.cancel()
        await asyncio.sleep(10)
        raise AssertionError

    run = watched.run(speak)
    to_the_end(run)
    watched.look()
    live = watched.seen[-1]
    assert live is not None
    assert (live["n"], live["words"], text_of(live)) == (1, "cut off", "It will rai")
    assert live["note"] == "The call was not answered: this text is not in the history."
    assert run.history[0].text == ""


def test_a_panel_opened_in_mid_answer_says_that_the_beginning_is_missing() -> None:
    late = Watched()

    async def speak(context: CallContext) -> ModelResponse:
        context.on_text("The beginning, ")
        late.coming = Coming(run)
        run.observe(late.coming.take)
        context.on_text("and the end. ")
        late.look()
        return say("The beginning, and the end. ")

    run = lab.Agent(Speaker((speak,))).run("go", observers=[lambda event: None])
    to_the_end(run)
    live = late.seen[0]
    assert live is not None
    assert text_of(live) == "and the end."
    assert live["note"] == "Only the end: the beginning was received before this panel was opened."


def test_thousands_of_steps_leave_nothing_behind() -> None:
    model = ScriptedProvider(lambda request, number: call("look_up", {"word": str(number)}))
    run = lab.Agent(model, tools=[look_up]).run("go", stop=StepCountIs(300), budget=lab.Budget(max_turns=400))
    watched = Coming(run)
    run.observe(watched.take)
    to_the_end(run)
    assert len(watched._waiting) < 10


# In the panel ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def _front_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTLAB_FRONTEND", "widgets")


async def in_the_background(run: Run) -> None:
    run.start()


async def awaited(run: Run) -> None:
    await run


async def by_steps(run: Run) -> None:
    while run.result is None:
        await run.step()


@pytest.mark.usefixtures("_front_end")
@pytest.mark.parametrize("drive", [in_the_background, awaited, by_steps])
def test_a_recorded_stream_arrives_on_the_page_at_its_own_pace(drive: Callable[[Run], Awaitable[None]]) -> None:
    def get_weather(city: str, day: str) -> dict[str, object]:
        """The weather forecast for a city.

        Args:
            city: name of the city
            day: day of the forecast
        """
        return {"city": city, "sky": "rain", "high_c": 17}

    with lab.replay(FIXTURES / "question" / "anthropic-stream.yaml", match="order", pace=1.0):
        agent = lab.Agent("anthropic:claude-sonnet-4-6", tools=[get_weather], stream=True)
        run = agent.run("Do I need an umbrella in Graz on Saturday, 12 June 2027?")
    page = LivePage(run.panel())
    partial: list[str] = []
    pieces: list[str] = []

    def let_it_be_drawn(event: Event) -> None:
        """The stream waits after its third and its sixth piece until they are shown, however slow drawing is here."""
        if isinstance(event, TextReceived) and event.step == 2:
            pieces.append(event.text)
            while len(pieces) in (3, 6):
                live = page.of(run)["live"]
                if live and live["n"] == 2 and (not partial or text_of(live) != partial[-1]):
                    partial.append(text_of(live))
                    return
                time.sleep(0.01)

    run.observe(let_it_be_drawn)

    async def main() -> None:
        await drive(run)

    asyncio.run(main())
    assert run.wait(60) is not None
    wait_until(lambda: page.of(run)["state"] == "ended" and len(page.steps(run)) == 2)
    assert run.result is not None
    assert len(partial) == 2
    text = unescape(re.sub("<[^>]*>", "", page.steps(run)[1]["html"])).strip()
    assert all(text.startswith(part) for part in partial)
    assert page.of(run)["live"] is None


@pytest.mark.usefixtures("_front_end")
def test_ten_thousand_pieces_cause_a_handful_of_messages() -> None:
    async def speak(context: CallContext) -> ModelResponse:
        for index in range(10_000):
            context.on_text("word ")
            if index % 100 == 0:
                await asyncio.sleep(0.005)
        return say("word " * 10_000)

    run = lab.Agent(Speaker((speak,))).run("go")
    page = LivePage(run.panel())
    started = time.monotonic()
    to_the_end(run)
    messages, took_s = len(page.messages), time.monotonic() - started
    drawn(page.panel)
    assert messages <= took_s / 0.2 + 3

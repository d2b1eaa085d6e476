"""The model's answer in the panel: while it streams, when it is complete, and when it was cut short."""

from __future__ import annotations

import asyncio
import itertools
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from agentlab.notebook.panel.answer import LONGEST, LONGEST_COMING, Answer, ShownAnswer, answer_html, answer_label_html
from thread_tools import drawn, wait_until

import agentlab as lab
from agentlab import Budget, StepCountIs
from agentlab.agent import Run
from agentlab.engine.client import CallContext
from agentlab.model.finish_reasons import FinishReason
from agentlab.model.messages import ModelRequest
from agentlab.model.responses import Hole, ModelResponse
from agentlab.notebook import markup
from agentlab.records.events import Event, TextReceived
from agentlab.testing import ScriptedProvider, call, say

FIXTURES = Path(__file__).parents[2] / "fixtures"
HOSTILE = "</pre><script>alert(1)</script><img src=x onerror=\"alert(2)\">\n\ud83d & 'so' on"
Speech = Callable[[CallContext], Awaitable[ModelResponse]]


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
    """An agent's run with an Answer that is checked when a speech asks for it."""

    def __init__(self, *, tools: tuple[Callable[..., object], ...] = (), **more: object) -> None:
        self.seen: list[ShownAnswer] = []
        self._tools, self._more = tools, more

    def look(self) -> None:
        self.seen.append(self.answer.catch_up())

    def run(self, *speeches: Speech, **limits: object) -> Run:
        run = lab.Agent(Speaker(speeches), tools=self._tools, **self._more).run("go", **limits)  # type: ignore[arg-type]
        self.answer = Answer(run)
        self.answer.watch()
        run.observe(self.answer.take)
        return run

    def texts(self) -> list[str]:
        return [view.text for view in self.seen]


def to_the_end(run: Run) -> None:
    async def main() -> None:
        await run

    asyncio.run(main())


def look_up(word: str) -> str:
    """Look a word up."""
    return "nothing"


def shown(value: str) -> str:
    """The text in the answer's HTML in the panel."""
    found = re.search(r"<pre [^>]*>\n(.*)</pre>", value, re.DOTALL)
    assert found is not None
    return found[1]


# While it streams -----------------------------------------------------------------------------------------------------------


def test_text_grows_piece_by_piece_and_is_then_in_the_history() -> None:
    watched = Watched()
    run = watched.run(speech("It ", "rains ", "in Graz.", look=watched.look))
    assert watched.answer.catch_up() == ShownAnswer("Answer", note="none yet")
    to_the_end(run)
    assert watched.texts() == ["It ", "It rains ", "It rains in Graz."]
    assert {view.label for view in watched.seen} == {"Answer of step 1"}
    assert all(view.coming for view in watched.seen)
    assert watched.answer.catch_up() == ShownAnswer("Answer of step 1", "It rains in Graz.", 17)


@pytest.mark.parametrize("length", [LONGEST_COMING, LONGEST_COMING + 1, 3 * LONGEST_COMING + 7])
def test_the_end_of_a_long_answer_is_shown_with_a_note_of_the_omitted_part(length: int) -> None:
    text = "".join(itertools.islice(itertools.cycle("0123456789 "), length))
    watched = Watched()
    pieces = [text[start : start + 300] for start in range(0, length, 300)]
    run = watched.run(speech(*pieces, look=watched.look))
    to_the_end(run)
    last = watched.seen[-1]
    assert last.text == text[-LONGEST_COMING:]
    assert last.about == ("" if length == LONGEST_COMING else f"the last 2,000 of {length:,} characters")
    assert watched.answer.catch_up().text == text, "once complete, a longer part of it fits"


def test_the_end_of_a_very_long_answer_is_kept() -> None:
    run = lab.Agent(ScriptedProvider(["x" * LONGEST + "the end"])).run("go")
    to_the_end(run)
    view = Answer(run).shown()
    assert (len(view.text), view.text[-7:], view.about) == (
        LONGEST,
        "the end",
        "the last 20,000 of 20,007 characters",
    )


def test_memory_does_not_grow_with_the_answer() -> None:
    watched = Watched()
    to_the_end(watched.run(speech(*["word "] * 10_000)))
    run = watched.run(speech(*["word "] * 10_000, look=watched.look))
    to_the_end(run)
    assert max(len(view.text) for view in watched.seen) == LONGEST_COMING
    assert watched.seen[-1].length == 50_000


def test_the_next_step_replaces_the_text_when_it_starts_to_stream() -> None:
    watched = Watched(tools=(look_up,))
    run = watched.run(
        speech("I look it up.", look=watched.look, then=call("look_up", {"word": "rain"})),
        speech(look=watched.look, then=call("look_up", {"word": "rain"})),
        speech("It rains.", look=watched.look),
    )
    to_the_end(run)
    assert [(view.label, view.text) for view in watched.seen] == [
        ("Answer of step 1", "I look it up."),
        ("Answer of step 3", "It rains."),
    ]


def test_tools_are_named_while_they_run_and_afterwards() -> None:
    watched = Watched()

    def look_around(word: str) -> str:
        """Look the word up, and at the answer."""
        watched.look()
        return "nothing"

    watched._tools = (look_around,)
    run = watched.run(
        speech("Wait. ", then=call("look_around", {"word": "x"})),
        speech(then=call("look_around", {"word": "y"})),
        stop=StepCountIs(2),
    )
    to_the_end(run)
    assert [(view.label, view.text, view.note, view.coming) for view in watched.seen] == [
        ("Answer of step 1", "Wait. ", "asks for look_around", True),
        ("Answer of step 2", 'look_around({"word": "y"})', "asks for look_around", True),
    ]


def test_a_panel_opened_in_mid_answer_says_that_the_beginning_is_missing() -> None:
    late: list[ShownAnswer] = []
    answers: list[Answer] = []

    async def speak(context: CallContext) -> ModelResponse:
        context.on_text("The beginning, ")
        answer = Answer(run)
        answer.watch()
        run.observe(answer.take)
        context.on_text("and the end.")
        late.append(answer.catch_up())
        answers.append(answer)
        return say("The beginning, and the end.")

    run = lab.Agent(Speaker((speak,))).run("go", observers=[lambda event: None])
    to_the_end(run)
    assert late[0].text == "and the end."
    assert late[0].about == "only its end: the beginning was received before this panel was opened"
    assert answers[0].catch_up() == ShownAnswer("Answer of step 1", "The beginning, and the end.", 27)


def test_a_retried_answer_does_not_show_its_text_twice() -> None:
    watched = Watched(stream=True)
    cut = say(finish=FinishReason.MAX_TOKENS)
    holed = replace(say(), holes=(Hole(4),))
    begin, lose = speech("I say: ", look=watched.look, then=cut), speech("pay Bob", look=watched.look, then=holed)
    to_the_end(watched.run(begin, lose, speech("pay ", "not Bob", look=watched.look)))
    assert watched.texts() == ["I say: ", "I say: pay Bob", "I say: pay ", "I say: pay not Bob"]
    assert watched.answer.catch_up().text == "I say: pay not Bob"


# Several calls in one step --------------------------------------------------------------------------------------------------


def test_a_retried_call_does_not_show_its_text_twice() -> None:
    watched = Watched()

    async def speak(context: CallContext) -> ModelResponse:
        context.on_text("It rai")
        watched.look()
        context.on_retry(1, 0.0, "the connection broke")
        watched.look()
        context.on_text("It rains.")
        watched.look()
        return say("It rains.")

    to_the_end(watched.run(speak))
    assert watched.texts() == ["It rai", "", "It rains."]


def test_a_paused_turn_continues_where_it_was() -> None:
    watched = Watched()
    run = watched.run(
        speech("First ", "half, ", look=watched.look, then=say(finish=FinishReason.PAUSED)),
        speech("second ", "half.", look=watched.look),
    )
    to_the_end(run)
    assert watched.texts() == ["First ", "First half, ", "First half, second ", "First half, second half."]
    assert watched.seen[-1].length == 24
    assert watched.answer.catch_up().text == run.history[0].text == "First half, second half."


def test_a_middleware_that_asks_again_does_not_show_two_answers() -> None:
    async def twice(request: ModelRequest, ask: Callable[[ModelRequest], Awaitable[ModelResponse]]) -> ModelResponse:
        await ask(request)
        return await ask(request)

    watched = Watched(middleware=[twice])
    run = watched.run(speech("A guess.", look=watched.look), speech("It ", "rains.", look=watched.look))
    to_the_end(run)
    assert watched.texts() == ["A guess.", "It ", "It rains."]
    assert watched.answer.catch_up().text == run.history[0].text == "It rains."


def test_a_middleware_that_catches_a_broken_call_does_not_show_its_text_twice() -> None:
    async def patient(request: ModelRequest, ask: Callable[[ModelRequest], Awaitable[ModelResponse]]) -> ModelResponse:
        try:
            return await ask(request)
        except OSError:
            return await ask(request)

    watched = Watched(middleware=[patient])
    run = watched.run(speech("It ra", look=watched.look, then=OSError("broken")), speech("It rains.", look=watched.look))
    to_the_end(run)
    assert watched.texts() == ["It ra", "It rains."]


def test_the_newest_of_two_concurrent_calls_is_shown_unmixed() -> None:
    turns = asyncio.Barrier(2)

    def in_turns(*pieces: str) -> Speech:
        async def speak(context: CallContext) -> ModelResponse:
            for piece in pieces:
                await turns.wait()
                context.on_text(piece)
                watched.look()
            return say("".join(pieces))

        return speak

    async def both(request: ModelRequest, ask: Callable[[ModelRequest], Awaitable[ModelResponse]]) -> ModelResponse:
        return (await asyncio.gather(ask(request), ask(request)))[1]

    watched = Watched(middleware=[both])
    run = watched.run(in_turns("a", "b", "c"), in_turns("1", "2", "3"))
    to_the_end(run)
    assert watched.texts()[-1] == "123"
    assert all("123".startswith(text) for text in watched.texts()[2:])


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
    view = watched.answer.catch_up()
    assert (view.label, view.text, view.coming) == ("Answer of step 1, cut off", "It will rai", False)
    assert "not in the history" in view.about
    assert run.history[0].text == ""


def test_at_the_end_the_last_text_is_shown_if_nothing_was_submitted() -> None:
    script = [say("I look it up.", calls=call("look_up", {"word": "a"}).tool_calls, finish=FinishReason.TOOL_CALLS)]
    run = lab.Agent(ScriptedProvider([*script, call("look_up", {"word": "b"})]), tools=[look_up]).run("go", stop=StepCountIs(2))
    to_the_end(run)
    assert Answer(run).shown() == ShownAnswer("Answer of step 1", "I look it up.", 13, "asks for look_up")


def test_an_answer_without_text_shows_its_tool_calls() -> None:
    calls = [*call("look_up", {"word": "a"}, id="1").tool_calls, *call("look_up", "not JSON", id="2").tool_calls]
    run = lab.Agent(ScriptedProvider([say(calls=calls, finish=FinishReason.TOOL_CALLS), ""]), tools=[look_up]).run("go")
    asyncio.run(run.step())
    view = Answer(run).shown()
    assert str(view) == 'Answer of step 1 (asks for look_up, look_up):\nlook_up({"word": "a"})\nlook_up(not JSON)'
    to_the_end(run)
    assert str(Answer(run).shown()) == "Answer of step 2 (no text)"


def test_a_refusal_is_shown() -> None:
    refused = replace(say(finish=FinishReason.CONTENT_FILTERED), refusal="I cannot help with that.")
    run = lab.Agent(ScriptedProvider([refused])).run("go")
    to_the_end(run)
    assert Answer(run).shown() == ShownAnswer("Answer of step 1", "I cannot help with that.", 24, "refused")


def test_a_long_list_of_tools_is_shortened() -> None:
    calls = [*itertools.chain.from_iterable(call("look_up", {"word": "a"}, id=str(index)).tool_calls for index in range(40))]
    run = lab.Agent(ScriptedProvider([say(calls=calls, finish=FinishReason.TOOL_CALLS)]), tools=[look_up])
    first = run.run("go", stop=StepCountIs(1))
    to_the_end(first)
    assert Answer(first).shown().about == f"asks for {', '.join(['look_up'] * 6)} and 34 more"


# In the panel ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def _front_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTLAB_FRONTEND", "widgets")


def values_of(widget: object) -> list[str]:
    """The values that a widget shows from now on, in order."""
    values: list[str] = []
    widget.observe(lambda change: values.append(change["new"]), "value")  # type: ignore[attr-defined]
    return values


async def in_the_background(run: Run) -> None:
    run.start()


async def awaited(run: Run) -> None:
    await run


async def by_steps(run: Run) -> None:
    while run.result is None:
        await run.step()


@pytest.mark.usefixtures("_front_end")
@pytest.mark.parametrize("drive", [in_the_background, awaited, by_steps])
def test_a_recorded_stream_arrives_in_the_panel_at_its_own_pace(drive: Callable[[Run], Awaitable[None]]) -> None:
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
    panel = run.panel()
    _ = panel.widget
    values = values_of(panel.run_view.answer.text)
    pieces: list[str] = []

    def coming() -> list[str]:
        return [shown(value) for value in values if "Answer of step 2" in value and 'aria-busy="true"' in value]

    def let_it_be_drawn(event: Event) -> None:
        """The stream waits after its third and its sixth piece until they are shown, however slow drawing is here."""
        if isinstance(event, TextReceived) and event.step == 2:
            pieces.append(event.text)
            while len(set(coming())) < {3: 1, 6: 2}.get(len(pieces), 0):
                time.sleep(0.01)

    run.observe(let_it_be_drawn)

    async def main() -> None:
        await drive(run)

    asyncio.run(main())
    assert run.wait(60) is not None
    assert run.result is not None
    wait_until(lambda: 'aria-busy="false" aria-label="Answer of step 2"' in panel.run_view.answer.text.value)
    partial = coming()
    assert all(later.startswith(earlier) for earlier, later in itertools.pairwise(partial))
    assert len(set(partial)) >= 2
    assert shown(panel.run_view.answer.text.value) == markup.escape(run.result.text, 10_000)


@pytest.mark.usefixtures("_front_end")
def test_ten_thousand_pieces_cause_a_handful_of_redraws() -> None:
    async def speak(context: CallContext) -> ModelResponse:
        for index in range(10_000):
            context.on_text("word ")
            if index % 100 == 0:
                await asyncio.sleep(0.005)
        return say("word " * 10_000)

    run = lab.Agent(Speaker((speak,))).run("go")
    panel = run.panel()
    _ = panel.widget
    values = values_of(panel.run_view.answer.text)
    started = time.monotonic()
    to_the_end(run)
    redraws = len(values)
    took_s = time.monotonic() - started
    drawn(panel)
    assert redraws <= took_s / 0.2 + 2
    assert max(map(len, values)) < LONGEST + 500


@pytest.mark.usefixtures("_front_end")
def test_a_panel_shows_nothing_of_a_fork() -> None:
    def runs_on() -> Speaker:
        return Speaker((speech("of the run", then=call("look_up", {"word": "x"})), speech("of the fork")))

    run = lab.Agent(runs_on(), tools=[look_up]).run("go", stop=StepCountIs(1))
    panel = run.panel()
    _ = panel.widget
    to_the_end(run)
    branch = run.fork(at=1, stop=StepCountIs(3))
    other = branch.panel()
    _ = other.widget
    assert shown(other.run_view.answer.text.value) == "of the run", "text taken from the run is shown before it continues"
    to_the_end(branch)
    for one in (panel, other):
        drawn(one)
    assert shown(panel.run_view.answer.text.value) == "of the run"
    assert shown(other.run_view.answer.text.value) == "of the fork"


def test_shown_output_is_plain_text() -> None:
    watched = Watched()
    run = watched.run(speech(HOSTILE[:9], HOSTILE[9:], look=watched.look))
    to_the_end(run)
    panel = run.panel()
    for view in (*watched.seen, ShownAnswer("Answer", HOSTILE, 1_000, HOSTILE)):
        for value in (answer_html(view), answer_label_html(view)):
            assert "<script" not in value and "<img" not in value and "</pre><" not in value.replace("</pre></div>", "")
            value.encode()
    for value in (panel.bundle()["text/html"], panel.bundle()["text/plain"]):
        value.encode()
    assert "<script" not in panel.bundle()["text/html"]
    assert "&lt;/pre&gt;&lt;script&gt;" in panel.bundle()["text/html"]


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("one\n\ttwo\n", "one\n\ttwo\n"),
        ("one\r\ntwo", "one\ntwo"),
        ("\x1b]52;c;cm0=\x07", "�]52;c;cm0=�"),
        ("\x9b31m \x00 \x7f", "�31m � �"),
        ("grüß 🌊 \u202e", "grüß 🌊 \u202e"),
    ],
)
def test_terminal_codes_are_made_visible(text: str, printed: str) -> None:
    assert markup.printable(text) == printed


def test_a_screen_reader_announces_the_complete_answer() -> None:
    coming, come = (
        answer_html(ShownAnswer("Answer of step 3", "It ra", 5, coming=True)),
        answer_html(ShownAnswer("Answer of step 3", "x", 1)),
    )
    for value, busy in ((coming, "true"), (come, "false")):
        assert f'role="log" aria-live="polite" aria-busy="{busy}" aria-label="Answer of step 3"' in value


def test_readers_without_a_kernel_see_the_final_answer() -> None:
    run = lab.Agent(ScriptedProvider(["The answer\nhas two lines."])).run("go", budget=Budget(max_turns=3))
    before = run.panel().bundle()
    to_the_end(run)
    bundle = run.panel().bundle()
    assert before["text/plain"].endswith("\nAnswer (none yet)")
    assert bundle["text/plain"].endswith("\nAnswer of step 1:\nThe answer\nhas two lines.")
    assert '<pre dir="auto">\nThe answer\nhas two lines.</pre>' in bundle["text/html"]

"""The panel without a front end, and the outputs stored in the notebook's file, read as other programs read them."""

from __future__ import annotations

import asyncio
import html
import re
from typing import Any

import nbformat
import nh3
import pytest
from IPython.display import display
from nbconvert import HTMLExporter

import agentlab as lab
from agentlab import Budget, ContinuationPolicy, MaxTokensUsed, StepCountIs
from agentlab.agent import Run
from agentlab.model.finish_reasons import FinishReason
from agentlab.notebook import live_view
from agentlab.notebook.panel import Panel, static
from agentlab.testing import ScriptedProvider, call, say

WIDGET = "application/vnd.jupyter.widget-view+json"
HOSTILE = '</pre></details><script>alert(1)</script><img src=x onerror="alert(2)"> $x^2$ [a](javascript:alert(3))'
KEY = "sk-" + "a1B2c3D4" * 4


async def search(query: str) -> str:
    """Search."""
    return "nothing"


def ended(script: Any, *, name: str = "", instructions: str = "", **more: Any) -> Run:
    agent = lab.Agent(ScriptedProvider(script), tools=[search], name=name, instructions=instructions)
    run = agent.run("Find it.", **more)
    asyncio.run(_to_the_end(run))
    return run


async def _to_the_end(run: Run) -> None:
    await run


def searching(turns: int, **more: Any) -> Run:
    return ended(
        lambda request, index: call("search", {"query": str(index)}, cost="0.001"), budget=Budget(max_turns=turns), **more
    )


def continued() -> Run:
    model = ScriptedProvider([say("half of ", finish=FinishReason.MAX_TOKENS), say("it")])
    run = lab.Agent(model, continuation=ContinuationPolicy()).run("Say it.")
    asyncio.run(_to_the_end(run))
    return run


def html_of(panel: Panel) -> str:
    return str(panel.bundle()["text/html"])


def words_of(panel: Panel) -> str:
    """What a reader sees where style sheets are removed, as code hosts do."""
    bare = nh3.clean(html_of(panel), tags=nh3.ALLOWED_TAGS | {"details", "summary"}, clean_content_tags={"style"}, attributes={})
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", bare)))


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The outputs of a display as they are stored in a notebook's file."""
    outputs: list[dict[str, Any]] = []

    def keep(data: dict[str, Any], metadata: dict[str, Any] | None = None, **more: object) -> None:
        outputs.append(nbformat.v4.new_output("display_data", data, metadata=metadata or {}))

    monkeypatch.setattr(live_view.display, "display", keep)
    monkeypatch.setattr(live_view.display, "update_display", keep)
    monkeypatch.setenv("AGENTLAB_FRONTEND", "none")
    return outputs


def as_page(outputs: list[dict[str, Any]]) -> str:
    cell = nbformat.v4.new_code_cell("run.panel()", outputs=outputs)
    page, _ = HTMLExporter().from_notebook_node(nbformat.v4.new_notebook(cells=[cell]))  # type: ignore[no-untyped-call]
    return str(page).partition("<body")[2]


# What it shows --------------------------------------------------------------------------------------------------------------------


def test_it_says_the_same_as_the_page_in_plain_words() -> None:
    script = [call("search", {"query": "umbrella"}, cost="0.001"), say("It is **here**.", cost="0.002")]
    run = ended(script, name="scout", instructions="Be brief.", stop=StepCountIs(5) | MaxTokensUsed(100))
    words = words_of(run.panel())
    for sentence in (
        "ended scout scripted:script 2 steps · 30 tokens · $0.003 cost",
        "Why it ended: completed The model ended its turn.",
        "Steps 2 of 5 40% StepCountIs 5 applies before max_turns 20",
        "Tokens 30 of 100 30% MaxTokensUsed",
        "Instructions Be brief.",
        "User Find it.",
        "Step 1 · tool calls · 15 tokens · $0.001 · search",
        'search {"query": "umbrella"} → done nothing arguments { "query" : "umbrella" } result nothing',
        "Step 2 · end turn · 15 tokens · $0.002 It is here .",
        "Conditions: StepCountIs 2 of 5, MaxTokensUsed 30 of 100",
    ):
        assert sentence in words, f"{sentence!r} is not in {words!r}"
    assert html_of(run.panel()).count("<details open>") == 1, "of the steps, the last one is open"


def test_an_early_end_says_how_to_continue() -> None:
    run = searching(3)
    words = words_of(run.panel())
    assert "ended early" in words and "Steps 3 of 3 100%, reached max_turns" in words
    assert "To continue: Raise the turn limit to 6 and continue" in words and "branch = run.apply()" in words


def test_changed_limits_are_named_at_their_step() -> None:
    run = lab.Agent(ScriptedProvider([call("search", {"query": "a"}), say("done")]), tools=[search]).run("Find it.")

    async def go() -> None:
        await run.step()
        run.limits.max_turns = 7
        await run

    asyncio.run(go())
    assert "max_turns 20 → 7" in words_of(run.panel())


def test_an_output_that_no_step_shows_is_shown() -> None:
    async def place(city: str) -> str:
        """Name the place."""
        return city

    script = [call("place", {"city": "Graz"})]
    run = lab.Agent(ScriptedProvider(script), tools=[place], terminating=lab.TerminatingTools(["place"])).run("Where?")
    asyncio.run(_to_the_end(run))
    assert run.result is not None and "Output Graz" in words_of(run.panel())


def test_a_run_that_has_not_begun_shows_its_prompt() -> None:
    words = words_of(lab.Agent(ScriptedProvider(["x"])).run("Where?").panel())
    assert words.strip().startswith("not started yet scripted:script 0 steps") and words.strip().endswith(
        "User Where? No steps yet."
    )


def test_a_run_with_branches_has_a_table_of_them() -> None:
    run = searching(3, name="scout")
    branch = run.fork(at=1)
    branch.limits.max_turns = 9
    words = words_of(run.panel())
    assert "1 scout scripted:script ended early 3 45 $0.003 turn limit" in words
    assert "2 max_turns 9 1, after step 1 scripted:script ready for the next step 1 15 $0.001" in words


def test_several_runs_are_compared_with_their_ends_and_last_answers() -> None:
    first, second = searching(2, name="slow"), ended([say("It is here.")], name="quick")
    panel = lab.panel([first, second])
    words = words_of(panel)
    assert "1 slow scripted:script ended early 2 30 $0.002 turn limit" in words
    assert "Run 1: slow , ended early Why it ended: turn limit" in words
    assert "Run 2: quick , ended Why it ended: completed" in words and "It is here." in words
    lines = panel.bundle()["text/plain"].splitlines()
    assert [line.partition(":")[0] for line in lines] == ["slow", "quick"]
    (picture,) = panel._static().pictures()
    assert "of 2 runs: 1 slow 30 after 2 steps, turn_limit; 2 quick" in picture.alt


def test_the_text_is_a_few_lines() -> None:
    text = ended([say("word " * 1_000)], name="scout").panel().bundle()["text/plain"]
    assert text.startswith("scout: RunResult(completed, terminated, 1 step")
    assert "Step 1 (the first 1,000 of 5,000 characters): word word" in text and len(text) < 1_500


# What it must not do --------------------------------------------------------------------------------------------------------------


def test_text_from_outside_is_inert_and_holds_no_key() -> None:
    script = [call(HOSTILE, {"query": HOSTILE, "key": KEY}), call("search", {"query": HOSTILE}), say(f"{HOSTILE} {KEY}")]
    run = ended(script, name=HOSTILE, instructions=HOSTILE)
    other = run.fork(at=1, tool_results={run.history[0].tool_calls[0].id: HOSTILE})
    for panel in (run.panel(), other.panel(), lab.panel([run, other])):
        page = html_of(panel)
        assert not re.search(r"<script|<img|<[^>]*\son\w+=|<[^>]*javascript:", page)
        assert "href" not in page and "&lt;script&gt;" in page
        assert page.count("<details") == page.count("</details>") and page.count("<pre") == page.count("</pre>")
        assert KEY[:9] not in page + panel.bundle()["text/plain"]
        assert 'class="agentlab-static ' in page and "tex2jax_ignore" in page, "math stays text"


def test_it_is_the_same_at_every_execution() -> None:
    for make in (continued, lambda: searching(3)):
        first, second = (make().panel()._static().outputs() for _ in range(2))
        assert first == second
        assert not re.search(r"\b\d+ ms\b|elapsed", first[0][0]["text/html"])


def test_a_long_run_is_cut_to_its_newest_steps() -> None:
    page = html_of(searching(static.MOST_STEPS + 5).panel())
    assert "5 earlier steps" in page and page.count("<summary><b>Step ") == static.MOST_STEPS


def test_long_texts_are_cut_and_say_so() -> None:
    run = ended([say("a " * 5_000)])
    page = html_of(run.panel())
    assert "… 6,000 more characters: all of it is run.history[0].text" in page and len(page) < 12_000


def test_many_long_steps_are_cut() -> None:
    text = "<b> " * 1_000
    run = ended(lambda request, index: call("search", {"query": "a"}, text=text), budget=Budget(max_turns=60))
    page = html_of(run.panel())
    assert "earlier steps" in page and len(page) < static.LARGEST + 50_000


# In notebooks ---------------------------------------------------------------------------------------------------------------------


def test_without_a_front_end_the_picture_is_a_separate_output(shown: list[Any]) -> None:
    continued().panel()._ipython_display_()
    assert [set(output["data"]) for output in shown] == [{"text/plain", "text/html"}, {"image/png"}]
    about = shown[1]["metadata"]["image/png"]
    assert about["alt"].startswith("Cumulative tokens per step of 1 run") and about["width"] == 900
    page = as_page(shown)
    assert page.count("<img") == 1 and "Why it ended: completed" in page


def test_before_the_first_step_nothing_is_drawn(shown: list[Any]) -> None:
    lab.Agent(ScriptedProvider(["x"])).run("go").panel()._ipython_display_()
    assert len(shown) == 1 and "No steps yet." in shown[0]["data"]["text/html"]


def test_the_static_form_with_its_picture_is_stored_beside_the_live_widget(
    shown: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTLAB_FRONTEND", "widgets")
    panel = continued().panel()
    panel._ipython_display_()
    live, kept = shown
    assert set(live["data"]) == {WIDGET, "text/plain"} and not live["data"]["text/plain"]
    assert kept["data"]["text/html"].count("<img ") == 1
    assert panel.widget.kept_class == panel._kept_class and panel._kept_class in kept["data"]["text/html"]
    page = as_page(shown)
    assert page.count("<img") == 1 and page.count("Why it ended: completed") == 1


def test_the_saved_copy_follows_runs_to_their_ends(shown: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTLAB_FRONTEND", "widgets")
    agent = lab.Agent(ScriptedProvider(["x", "y"]))
    panel = lab.panel([agent.run("a"), agent.run("b")])
    panel._ipython_display_()
    for run in panel.runs:
        asyncio.run(_to_the_end(run))
        panel._draw_safely()
    copies = [text for one in shown if (text := one["data"]["text/plain"])]
    assert [text.count("completed") for text in copies] == [0, 1, 2]


def test_the_saved_copy_shows_the_open_run(shown: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    run = lab.Agent(ScriptedProvider(["x", "y"])).run("go")
    asyncio.run(_to_the_end(run))
    branch = run.fork(at=1, message="And then?")
    asyncio.run(_to_the_end(branch))
    monkeypatch.setenv("AGENTLAB_FRONTEND", "widgets")
    panel = run.panel()
    panel._ipython_display_()
    for one in (branch, run):
        panel.run = one
        panel._draw_safely()
        assert shown[-1]["data"]["text/plain"] == panel.bundle()["text/plain"]


def test_the_display_of_ipython_accepts_the_outputs(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTLAB_FRONTEND", "none")
    display(searching(1).panel())
    assert "turn_limit" in capsys.readouterr().out

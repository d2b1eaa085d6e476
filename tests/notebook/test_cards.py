"""The display of every public value in a notebook: text and HTML, escaped, short, without keys, the same at every execution."""

from __future__ import annotations

import asyncio
import enum
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from html.parser import HTMLParser
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from measured_work import calls_in

import agentlab as lab
from agentlab.interop.rows import Imported
from agentlab.limits.condition_tree import condition_code
from agentlab.notebook.cards import FIRST, LAST, LONGEST_TEXT, MOST_ROWS
from agentlab.testing import ScriptedProvider, call, say

KEY = "sk-ant-" + "a1B2" * 8
HOSTILE = f'</td></table><script>alert(1)</script><img src=x onerror="alert(2)"> {KEY} \x1b[31m ' + "long " * 2_000
ALLOWED = {"div", "p", "b", "table", "thead", "tbody", "tr", "th", "td", "ul", "li", "pre", "code"}
MOST_LINES = 40
MOST_TABLE_ROWS = MOST_ROWS + FIRST + LAST + 3
MOST_HTML = 60_000


def look(city: str) -> str:
    """Look out of the window."""
    return HOSTILE


def scripted() -> lab.Agent:
    return lab.Agent(
        ScriptedProvider([call("look", {"city": HOSTILE}), say(HOSTILE)]),
        tools=[look],
        instructions=HOSTILE,
        stop=lab.StepCountIs(8) | (lab.HasToolCall("look", "</b><script>") & ~lab.MaxTokensUsed(5_000_000)),
        name=HOSTILE[:200],
    )


def ended() -> lab.Run:
    run = scripted().run(HOSTILE)
    asyncio.run(_to_the_end(run))
    return run


async def _to_the_end(run: Any) -> None:
    await run


def conducted() -> Any:
    experiment = lab.Experiment({"<b>it</b>": lab.Agent(ScriptedProvider(["<script>"]))}, {"p": "</td><script>"})
    return asyncio.run(experiment.run(progress=False))


def agreed() -> lab.Agreement:
    rows = [
        {"model": f"</td>{model}", "prompt_id": str(prompt), "stop_reason": "<script>"}
        for model in range(12)
        for prompt in range(3)
    ]
    return lab.agreement(pd.DataFrame(rows), by="model")


def proposed() -> lab.NextAction:
    run = scripted().run("go", budget=lab.Budget(max_turns=1), stop=lab.StepCountIs(9))
    asyncio.run(_to_the_end(run))
    return run.next_actions[0]


run = cache(ended)

MADE: dict[str, Callable[[], Any]] = {
    "Agent": scripted,
    "Agreement": agreed,
    "AllOf": lambda: lab.AllOf(*[lab.StepCountIs(number + 1) for number in range(200)]),
    "AnyOf": lambda: lab.StepCountIs(8) | lab.HasToolCall(HOSTILE),
    "Approval": lambda: lab.Approval.refuse(HOSTILE),
    "Audio": lambda: lab.Audio(b"fLaC1234", name=HOSTILE),
    "Budget": lambda: lab.Budget(max_cost=0.05, timeout=60),
    "Cell": lambda: lab.Cell(HOSTILE, HOSTILE, HOSTILE, 1, HOSTILE),
    "Chat": lambda: lab.Chat(scripted()),
    "ChatReply": lambda: lab.ChatReply(HOSTILE, True, ({"message": HOSTILE},), lab.StopReason.COMPLETED, HOSTILE, HOSTILE),
    "ContinuationPolicy": lambda: lab.ContinuationPolicy(hint=HOSTILE),
    "Custom": lambda: lab.Custom(lambda history: False, name=HOSTILE),
    "Decision": lambda: lab.Decision(lab.Action.ABORT, HOSTILE, lab.StopReason.ERROR, "retry"),
    "DecisionContext": lambda: lab.DecisionContext(run().history[0].calls[0].response, history=run().history),
    "Document": lambda: lab.Document(b"%PDF-1", name=HOSTILE),
    "DryRun": lambda: lab.Experiment({HOSTILE[:60]: scripted()}, {"p": HOSTILE}).dry_run(),
    "Experiment": lambda: lab.Experiment({f"{number}{HOSTILE[:60]}": scripted() for number in range(40)}, [HOSTILE]),
    "ExperimentResults": conducted,
    "FinishReasonIs": lambda: lab.FinishReasonIs(HOSTILE),
    "HasToolCall": lambda: lab.HasToolCall(HOSTILE),
    "Image": lambda: lab.Image("https://example.com/" + HOSTILE),
    "LiveSettings": lambda: scripted().run("go").limits,
    "Lockstep": lambda: lab.Lockstep([scripted().run("go") for _ in range(40)]),
    "MaxCost": lambda: lab.MaxCost(0.05),
    "MaxOutputTokens": lambda: lab.MaxOutputTokens(500),
    "MaxTokensUsed": lambda: lab.MaxTokensUsed(500),
    "MaxToolCalls": lambda: lab.MaxToolCalls(8, [HOSTILE]),
    "Repeats": lambda: lab.Repeats(3),
    "Message": lambda: lab.Message("assistant", HOSTILE, run().messages[1].tool_calls * 50),
    "Not": lambda: ~lab.HasToolCall(HOSTILE),
    "Off": lambda: lab.Off(lab.HasToolCall(HOSTILE)),
    "NextAction": proposed,
    "PendingCall": lambda: lab.PendingCall("c1", HOSTILE, HOSTILE, 1, HOSTILE, datetime(2026, 11, 23, tzinfo=UTC), "r1"),
    "Power": lambda: lab.power(spread=0.5, difference=0.1),
    "Provenance": lambda: lab.Agent(ScriptedProvider([]), tools=[look], options={HOSTILE: HOSTILE}).run(HOSTILE).provenance,
    "Reading": lambda: lab.Reading("AnyOf", children=tuple(lab.Reading(HOSTILE, HOSTILE, HOSTILE, True) for _ in range(200))),
    "RetryPolicy": lambda: lab.RetryPolicy(attempts=2),
    "Run": run,
    "RunHistory": lambda: run().history,
    "RunResult": lambda: run().result,
    "RunSettings": lambda: scripted().settings,
    "StepCountIs": lambda: lab.StepCountIs(8),
    "StepResult": lambda: run().history[0],
    "Stop": lambda: lab.Stop(HOSTILE, HOSTILE),
    "Store": lab.Store,
    "Suggestion": lambda: lab.Suggestion(0.9, "cost_usd", None, why=(HOSTILE[:200],)),
    "Suggestions": lambda: lab.Suggestions(
        ("model",),
        {HOSTILE[:200] + str(place): lab.Suggestion(0.9, "cost_usd", None, why=(HOSTILE[:200],)) for place in range(200)},
        pd.DataFrame({"model": [HOSTILE[:200]] * 200}),
    ),
    "Task": lambda: lab.Task(HOSTILE, HOSTILE, id=HOSTILE),
    "Tasks": lambda: lab.Tasks([{"id": f"{number}{HOSTILE}", "prompt": HOSTILE, "target": number} for number in range(200)]),
    "Telemetry": lab.Telemetry,
    "TerminatingTools": lambda: lab.TerminatingTools(["look"], nudge_message=HOSTILE),
    "TerminationSignal": lambda: lab.TerminationSignal(lab.FinishReason.ERROR, lab.Confidence.LOW, HOSTILE, HOSTILE, HOSTILE, HOSTILE),
    "Tool": lambda: lab.tool(name="look", description=HOSTILE)(look),
    "Tuning": lambda: searched(),  # noqa: PLW0108  defined below
    "Usage": lambda: lab.Usage(10, None),
    "Verification": lambda: lab.Verification(
        pd.DataFrame({"table": HOSTILE, "row": HOSTILE, "column": HOSTILE, "reported": "1", "repeated": "2", "equal": [False] * 200}),
        (HOSTILE,) * 200,
    ),
    # not classes of lab, but values that its functions return and values inside others
    "provider": lambda: lab.Provider("anthropic", model="</td><script>", api_key=KEY, headers={"x-key": KEY}),
    "openai": lambda: lab.Provider("openai", model="gpt-5.4-mini", api_key=KEY),
    "openai-responses": lambda: lab.Provider("openai-responses", model="gpt-5.4-mini", api_key=KEY),
    "gemini": lambda: lab.Provider("gemini", model="gemini-3.5-flash", api_key=KEY),
    "Capabilities": lambda: lab.capabilities("openai"),
    "Cost": lambda: run().history.cost,
    "Remaining": lambda: run().history[0].remaining,
    "ToolCall": lambda: run().messages[1].tool_calls[0],
    "ToolResult": lambda: run().messages[2].tool_results[0],
    "ModelCall": lambda: run().history[0].calls[0],
    "ModelResponse": lambda: run().history[0].calls[0].response,
    "McpServer": lambda: served(),  # noqa: PLW0108  defined below
    "McpServer, not open": lambda: lab.tools.from_mcp(["serve", "--key", KEY, HOSTILE], env={"KEY": KEY}),
    "own-condition": lambda: own_condition(),  # noqa: PLW0108  defined below
    "Imported": lambda: Imported(run().to_frame(), run().to_frame(), (HOSTILE[:200],), source="<script>"),
}  # fmt: skip
WITHOUT_A_VALUE = {
    "StopCondition",
    "RunDiff",
}  # the base of all conditions: see own-condition; a DataFrame, which pandas displays


def own_condition() -> lab.StopCondition:
    class Never(lab.StopCondition):
        def read(self, history: lab.RunHistory) -> lab.Reading:
            return lab.Reading("Never", met=False)

        def __repr__(self) -> str:
            return HOSTILE

    return Never()


@dataclass(frozen=True, slots=True)
class Slow(lab.StopCondition):
    seconds: float
    most: int | None = None


def served() -> Any:
    server: Any = lab.tools.from_mcp(f"https://example.com/mcp?api_key={KEY}", headers={"authorization": KEY}, name="places")
    server._tools = tuple(lab.tool(name=f"look{number}", description=HOSTILE)(look) for number in range(40))
    return server


def searched() -> lab.Tuning:
    study = lab.Experiment(
        {"a": lab.Agent(ScriptedProvider(lambda request, number: say("x", cost=0.01)))}, ["one", "two"], name="<script>"
    )
    space = {"instructions": [f"{number}{HOSTILE}" for number in range(40)]}

    async def found() -> lab.Tuning:
        return await lab.tune(study, space, objectives="-cost_usd", trials=2, held_out=0.5, progress=False)

    return asyncio.run(found())


class Tags(HTMLParser):
    """The tags of a text and the contents of their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.attributes: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append(tag)
        self.attributes |= {name for name, _ in attrs}


def test_every_public_class_has_a_display() -> None:
    classes = {name: value for name in lab.__all__ if inspect.isclass(value := getattr(lab, name))}
    words = {name for name, kind in classes.items() if issubclass(kind, enum.Enum | Exception)}
    assert set(classes) - words - WITHOUT_A_VALUE == {name for name in MADE if hasattr(lab, name)}


@pytest.mark.filterwarnings("ignore:.* can never be met")  # on purpose
@pytest.mark.parametrize("make", MADE.values(), ids=MADE.keys())
def test_the_display_is_short_and_safe(make: Callable[[], Any]) -> None:
    from IPython.core.formatters import DisplayFormatter

    value = make()
    shown, _ = DisplayFormatter().format(value)
    text, page = shown["text/plain"], shown["text/html"]
    assert len(text.splitlines()) <= MOST_LINES
    assert len(text) <= LONGEST_TEXT + 100
    tags = Tags(page)
    assert set(tags.found) <= ALLOWED
    assert tags.attributes <= {"style", "class", "colspan", "scope", "border"}
    assert tags.found.count("tr") <= MOST_TABLE_ROWS
    assert len(page) <= MOST_HTML
    assert "color" not in page  # the theme's colours apply
    for display in (text, page):
        assert KEY not in display
        assert KEY[:20] not in display
        assert "\x1b" not in display


def test_the_display_is_the_same_at_every_execution() -> None:
    for name in ("Run", "StepResult", "RunHistory"):
        first, second = (ended(), ended())
        pick = {"Run": lambda one: one, "StepResult": lambda one: one.history[0], "RunHistory": lambda one: one.history}[name]
        assert pick(first)._repr_mimebundle_() == pick(second)._repr_mimebundle_()


def test_unknown_values_are_shown_as_unknown_and_never_0() -> None:
    assert ">unknown<" in lab.Usage(10, None)._repr_mimebundle_()["text/html"]
    assert ">0<" not in lab.Usage(10, None)._repr_mimebundle_()["text/html"]
    assert ">unknown<" in ended().history._repr_mimebundle_()["text/html"]


def test_the_steps_of_a_card_add_up_to_its_totals_with_sub_agents() -> None:
    scout = lab.Agent(ScriptedProvider([say("Paris.", tokens=(200, 40), cost="0.02")]))
    script = [call("scout", {"task": "?"}, tokens=(10, 5), cost="0.001"), say("Done.", tokens=(10, 5), cost="0.001")]
    run = lab.Agent(ScriptedProvider(script), tools=[scout.as_tool("scout", "Finds it.")]).run("?")
    asyncio.run(_to_the_end(run))
    for value in (run, run.history):
        cells = re.findall(">([^<]+)</td>", value._repr_mimebundle_()["text/html"])
        assert [cells[place] for place, cell in enumerate(cells) if cell in ("270", "255", "15")] == ["270", "255", "15"]
        assert [cell for cell in cells if cell.startswith("0.0")] == ["0.022", "0.021", "0.001"]
    step = run.history[0]._repr_mimebundle_()["text/html"]
    assert ">255<" in step and ">0.021<" in step


def test_a_limit_that_is_left_out_says_what_that_means() -> None:
    cells = re.findall(">([^<]+)</td>", lab.Budget()._repr_mimebundle_()["text/html"])
    assert cells[cells.index("max_cost") + 1] == "no limit" and cells[cells.index("last_answer") + 1] == "none held back"
    html = lab.ContinuationPolicy()._repr_mimebundle_()["text/html"]
    assert "4 × the first cap" in html and "no limit" not in html


def test_a_history_of_10_000_steps_shows_its_ends_at_once() -> None:
    one = ended().history[0]
    history = lab.RunHistory([one] * 10_000)
    page = history._repr_mimebundle_()["text/html"]
    assert calls_in(history._repr_mimebundle_) < 1.2 * calls_in(lab.RunHistory([one] * 100)._repr_mimebundle_)
    assert "… 9,980 more …" in page
    assert Tags(page).found.count("tr") < MOST_TABLE_ROWS


def test_a_result_of_many_steps_shows_its_ends() -> None:
    model = ScriptedProvider(lambda request, index: call("look", {"city": str(index)}))
    long = lab.Agent(model, tools=[look]).run("go", budget=lab.Budget(max_turns=90))
    asyncio.run(_to_the_end(long))
    assert long.result is not None
    page = long.result._repr_mimebundle_()["text/html"]
    assert "… 50 more in" in page
    assert Tags(page).found.count("tr") == 42


def test_a_foreign_class_with_a_known_name_has_no_card() -> None:
    from agentlab.notebook.cards import card_of

    class Budget(SimpleNamespace):
        pass

    assert card_of(Budget(a=1)).title == "Budget"
    assert card_of(Budget(a=1)).table is None


def test_a_dry_run_without_a_bound_says_so_and_does_not_call_it_unknown() -> None:
    agent = lab.Agent(ScriptedProvider([say("Hi.")]))
    html = lab.Experiment([agent], ["?"], [{"budget": lab.Budget(max_calls=2)}]).dry_run()._repr_mimebundle_()["text/html"]
    assert "unknown" not in html.partition("token_limit")[2].partition("</tr>")[0]
    assert "no limit" in html.partition("token_limit")[2].partition("</tr>")[0]


def test_the_card_of_an_mcp_server_lists_its_tools() -> None:
    html = served()._repr_mimebundle_()["text/html"]
    assert "MCP server places" in html
    assert "https://example.com/mcp" in html
    assert html.count(">city<") == FIRST + LAST
    assert "… 20 more …" in html
    html = lab.tools.from_mcp("python stations.py")._repr_mimebundle_()["text/html"]
    assert "python stations.py" in html
    assert "Not open." in html


def test_a_tool_result_does_not_show_a_key_that_pandas_cuts() -> None:
    frame = pd.DataFrame({"login": [f"Header for the service: {KEY}"]})
    shown = lab.ToolResult("c1", "logins", "| login |", frame)._repr_mimebundle_()
    assert "service" not in shown["text/html"] + shown["text/plain"]
    assert "as returned" in lab.ToolResult("c1", "look", "as read", "as returned")._repr_mimebundle_()["text/html"]


def test_code_in_a_note_is_shown_as_code() -> None:
    html = lab.Agent(ScriptedProvider([say("Hi.")])).run("?")._repr_mimebundle_()["text/html"]
    assert "<code>run.panel()</code> shows it live" in html


def test_the_card_of_a_stop_condition_has_its_parts_as_code() -> None:
    stop = lab.MaxToolCalls(5) | (lab.MaxToolCalls(3, "look") & ~lab.Off(lab.MaxCost("0.05"))) | Slow(30)
    cells = re.findall(">([^<]*)</td>", stop._repr_mimebundle_()["text/html"])
    rows = [(name.strip("\N{NO-BREAK SPACE}"), *more) for name, *more in zip(*[iter(cells)] * 3, strict=True)]
    assert rows == [
        ("AnyOf", "any of the 3 below", ""),
        ("MaxToolCalls", "MaxToolCalls(5)", ""),
        ("AllOf", "all of the 2 below", ""),
        ("MaxToolCalls_2", "MaxToolCalls(3, [&#x27;look&#x27;])", ""),
        ("MaxCost", "MaxCost(0.05)", "not, off"),
        ("Slow", "Slow(seconds=30, most=None)", ""),
    ]


def test_a_card_shows_a_stop_condition_as_it_is_written() -> None:
    stop = lab.StepCountIs(3) | (lab.MaxCost("0.05") & ~lab.HasToolCall("look"))
    agent = lab.Agent(ScriptedProvider([say("Done.")]), tools=[look], stop=stop)
    written = "StepCountIs(3) | (MaxCost(0.05) &amp; ~HasToolCall(&#x27;look&#x27;))"
    for value in (agent, agent.run("go"), agent.run("go").limits, agent.run("go").limits.snapshot()):
        shown = value._repr_mimebundle_()["text/html"]
        assert written in shown
        assert "AnyOf" not in shown
    assert condition_code(lab.MaxCost([0.01, 0.05]) | lab.StepCountIs([2, 4])) == "MaxCost([0.01, 0.05]) | StepCountIs([2, 4])"

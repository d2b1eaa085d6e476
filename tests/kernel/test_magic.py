"""`%load_ext agentlab` in a real kernel: the cell magic, completion as a page requests it, and tracebacks that fit on a screen."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentlab.notebook.magics import argv_of

from .kernel import LiveKernel

REPOSITORY = Path(__file__).parents[2]
FIXTURES = REPOSITORY / "fixtures"
WIDGET = "application/vnd.jupyter.widget-view+json"
LINES = 25
"""Maximum number of lines in a traceback."""

TOOLS = '''
import os
for name in [name for name in os.environ if name.endswith("_API_KEY")]:
    del os.environ[name]
import agentlab as lab

def look(city: str) -> str:
    """Look out of the window."""
    return "rain"

def untyped(x):
    return x
'''
ASKED = f"""
%%agent openai:gpt-5.4-mini --stop "StepCountIs(1)" --max-cost 0.05 --max-turns 6 --tools look --replay {FIXTURES / "trip"} --name trip
Where does it rain?
""".lstrip()


@pytest.fixture(scope="module")
def ready() -> Iterator[LiveKernel]:
    with LiveKernel(environment={"PYTHONPATH": str(REPOSITORY)}) as live:
        live.execute(TOOLS)
        live.execute("%load_ext agentlab")
        yield live


def refused(kernel: LiveKernel, cell: str) -> str:
    """The error of a raising cell, without colours."""
    request = kernel.submit(cell)
    kernel.wait(lambda: request.done, what=f"the end of {cell!r}")
    return re.sub(r"\x1b\[[0-9;]*m", "", request.error or "") or request.printed


def completions(kernel: LiveKernel, code: str) -> tuple[list[str], str]:
    """The completions offered at the end of the code, and the part of the code that they replace."""
    reply: Any = kernel.client.complete(code, reply=True, timeout=60)
    content = reply["content"]
    assert content["status"] == "ok"
    return content["matches"], code[content["cursor_start"] : content["cursor_end"]]


def test_a_cell_starts_a_run_shows_its_panel_and_names_it(ready: LiveKernel) -> None:
    ready.execute("local = lab.Agent(lab.testing.ScriptedProvider([lab.testing.say('It rains.')]))")
    cell = ready.execute('%%agent --agent local --max-turns 6 --stop "StepCountIs(3)" --name trip\nWhere does it rain?\n')
    assert any(WIDGET in bundle for bundle in cell.displayed)
    assert "text/html" in cell.displayed[-1]
    ready.execute("trip.wait(50)")
    assert ready.value("[trip is _run, trip.prompt, trip.result.text, str(trip.limits.stop), trip.limits.max_turns]") == [
        True, "Where does it rain?", "It rains.", "StepCountIs(steps=3)", 6,
    ]  # fmt: skip


def test_a_request_missing_in_the_recording_is_reported_and_the_run_exists(ready: LiveKernel) -> None:
    ready.execute("import os; os.environ['AGENTLAB_FRONTEND'] = 'none'")
    try:
        message = refused(ready, ASKED)
    finally:
        ready.execute("del os.environ['AGENTLAB_FRONTEND']")
    assert message.startswith("UsageError: %%agent: No recording matches this request")
    assert "Traceback" not in message
    assert ready.value("[str(trip.result.stop_reason), len(trip.history)]") == ["error", 1]


def test_without_a_front_end_the_cell_shows_the_result(ready: LiveKernel) -> None:
    ready.execute("local = lab.Agent(lab.testing.ScriptedProvider([lab.testing.say('It rains.')]))")
    ready.execute("os.environ['AGENTLAB_FRONTEND'] = 'none'")
    cells = [ready.execute("%%agent --agent local\nWhere does it rain?") for _ in range(2)]
    ready.execute("del os.environ['AGENTLAB_FRONTEND']")
    for cell in cells:
        assert "It rains." in cell.displayed[0]["text/html"]
        assert "completed" in cell.displayed[0]["text/plain"]
        assert not any(WIDGET in bundle for bundle in cell.displayed)
    assert cells[0].displayed[0] == cells[1].displayed[0]


USES = {
    "no-model": ("%%agent\nhi", "The model is missing. Write %%agent provider:model"),
    "no-prompt": ("%%agent openai:x\n ", "the prompt is missing"),
    "unknown-provider": ("%%agent opena:x\nhi", "Did you mean 'openai'?"),
    "unknown-tool": ("%%agent openai:x --tools lok\nhi", "--tools lok: the variable 'lok' does not exist; define it in a cell above"),
    "unknown-option": ("%%agent openai:x --max-cots 3\nhi", "Did you mean '--max-cost'?"),
    "prompt-in-the-line": ("%%agent openai:x hello\nhi", "'hello' is not expected"),
    "limit": ("%%agent openai:x --max-cost lots\nhi", "max_cost='lots'"),
    "mistyped-condition": ("%%agent openai:x --stop StepCountI(4)\nhi", "did you mean 'StepCountIs'?"),
    "broken-condition": ("%%agent openai:x --stop StepCountIs(\nhi", "--stop 'StepCountIs(' cannot be evaluated"),
    "impossible-condition": ("%%agent openai:x --stop StepCountIs(0)\nhi", "steps must be at least 1"),
    "no-condition": ("%%agent openai:x --stop 5\nhi", "5 is not a stop condition"),
    "unknown-name": ("%%agent openai:x --stop Steps(3)\nhi", "NameError: name 'Steps' is not defined"),
    "no-folder": ("%%agent openai:x --replay nowhere\nhi", "nowhere does not exist"),
    "unknown-match": ("%%agent openai:x --replay sample:trip --match any\nhi", 'use "strict" (the same request) or "order"'),
    "bad-name": ("%%agent openai:x --name 3x\nhi", "--name 3x: this is not a valid variable name"),
    "not-an-agent": ("%%agent --agent look\nhi", "--agent look: this is a function"),
    "two-minds": ("%%agent openai:x --replay a --record b\nhi", "choose one of the two"),
    "open-quotation": ("%%agent openai:x --stop \"StepCountIs(3)\nhi", "close the quotation mark"),
    "open-value": ("%%agent openai:x --stop='StepCountIs(3)\nhi", "close the quotation mark"),
    "no-value": ("%%agent openai:x --stop\nhi", "--stop: expected one argument"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('a:b --instructions="Be brief" --max-cost 0.05', ["a:b", "--instructions=Be brief", "--max-cost", "0.05"]),
        ("--stop='MaxCost(1) | HasToolCall(\"x\")'", ['--stop=MaxCost(1) | HasToolCall("x")']),
        ('--stop "StepCountIs(4) | MaxCost(1)"', ["--stop", "StepCountIs(4) | MaxCost(1)"]),
        ("--instructions don't --replay C:\\runs --agent=", ["--instructions", "don't", "--replay", "C:\\runs", "--agent="]),
        ("", []),
    ],
)
def test_the_words_of_the_line_are_without_their_quotation_marks(line: str, words: list[str]) -> None:
    assert argv_of(line) == words


@pytest.mark.parametrize(("cell", "message"), USES.values(), ids=USES.keys())
def test_a_mistake_in_the_magic_is_one_message_without_a_traceback(ready: LiveKernel, cell: str, message: str) -> None:
    output = refused(ready, cell)
    assert output.startswith("UsageError: ")
    assert message in output
    assert len(output.splitlines()) == 1


def test_recordings_are_served_in_their_order(ready: LiveKernel) -> None:
    ready.execute("%%agent openai:gpt-5.4-mini --replay sample:question --match order --max-turns 1\nAnother question.")
    ready.execute("run.wait(50)")
    assert ready.value("str(run.result.stop_reason)") == "turn_limit"


def test_braces_dollars_and_model_output_are_not_evaluated(ready: LiveKernel) -> None:
    ready.execute("city = 'Graz'; local = lab.Agent(lab.testing.ScriptedProvider([lab.testing.say('{1/0}')]))")
    ready.execute('%%agent --agent local --stop "lambda history: bool({1: 2}) and len(history) > 3"\n{city} $city\n\n  {1/0}')
    ready.execute("run.wait(50)")
    assert ready.value("[run.prompt, run.result.text]") == ["{city} $city\n\n  {1/0}", "{1/0}"]


OFFERED = {
    "provider": ('lab.Agent("anth', "anth", ["anthropic:"]),
    "model": ('lab.Agent("anthropic:claude-sonnet-4-', "anthropic:claude-sonnet-4-", ["anthropic:claude-sonnet-4-6"]),
    "single-quotes": ("agent = lab.Agent('openai:gpt-5.4-m", "openai:gpt-5.4-m", ["openai:gpt-5.4-mini"]),
    "by-name": ('lab.Agent(tools=[look], model="gemini:gemini-3', "gemini:gemini-3", ["gemini:gemini-3.5-flash"]),
    "version": ('lab.Agent("gemini@v1:gemini-3', "gemini@v1:gemini-3", ["gemini@v1:gemini-3.5-flash"]),
    "slashes": ('lab.Agent("openrouter:anthropic/', "openrouter:anthropic/", ["openrouter:anthropic/claude-sonnet-4"]),
    "fork": ('run.fork(at=2, model="xai:grok-4', "xai:grok-4", ["xai:grok-4-0709"]),
    "Provider": ('lab.Provider("azu', "azu", ["azure", "azure-responses"]),
    "Provider-model": ('lab.Provider("anthropic", model="claude-haiku', "claude-haiku", ["claude-haiku-4-5"]),
    "later-line": ('x = 1\nlab.Agent("bedr', "bedr", ["bedrock:"]),
    "magic": ("%%agent anth", "anth", ["anthropic:"]),
    "magic-model": ("%%agent anthropic:claude-h", "anthropic:claude-h", ["anthropic:claude-haiku-4-5"]),
    "magic-option": ("%%agent openai:x --max-c", "--max-c", ["--max-calls", "--max-cost"]),
    "magic-tools": ("%%agent openai:x --tools untyped,lo", "lo", ["look"]),
    "limits": ("loose.limits.max_c", "max_c", ["max_calls", "max_cost"]),
    "names": ("lab.Step", "Step", ["StepCountIs", "StepResult"]),
}


@pytest.mark.parametrize(("code", "replaced", "offered"), OFFERED.values(), ids=OFFERED.keys())
def test_tab_completes(ready: LiveKernel, code: str, replaced: str, offered: list[str]) -> None:
    ready.execute("loose = lab.Agent('openai:gpt-5.4-mini').run('hi')")
    matches, fragment = completions(ready, code)
    assert fragment == replaced
    assert set(offered) <= set(matches)
    assert all(match.startswith(replaced) for match in matches)


def test_tab_offers_every_provider_at_once(ready: LiveKernel) -> None:
    for code in ('lab.Agent("', "%%agent "):
        matches, _ = completions(ready, code)
        assert set(matches) == {f"{name}:" for name in ready.value("sorted(lab.capabilities())")}


@pytest.mark.parametrize(
    "code", ['print("anth', 'x.Agent("anth', 'lab.Agent("anthropic", tools=["anth', 'lab.Agent("nobody:', "anth"]
)
def test_tab_offers_no_provider_elsewhere(ready: LiveKernel, code: str) -> None:
    assert "anthropic:" not in completions(ready, code)[0]


def test_tab_offers_only_public_names(ready: LiveKernel) -> None:
    matches, _ = completions(ready, "lab.")
    bare = {match.removeprefix("lab.").removeprefix(".") for match in matches}
    assert bare == {*ready.value("lab.__all__")}


MISTAKES = {
    "unknown-provider": "lab.Agent('antropic:claude-sonnet-4-6')",
    "no-provider": "lab.Agent('claude-sonnet-4-6')",
    "no-key": "await lab.Agent('anthropic:claude-sonnet-4-6').run('hi')",
    "no-key-step": "await lab.Agent('anthropic:claude-sonnet-4-6').run('hi').step()",
    "no-recording": f"with lab.replay({str(FIXTURES / 'trip')!r}):\n    run = lab.Agent('openai:gpt-5.4-mini').run('hi')\nawait run",
    "no-folder": "lab.replay('nowhere')",
    "limit": "lab.Budget(max_turns=-1)",
    "mistyped-limit": "lab.Budget(max_trns=1)",
    "live-limit": "loose = lab.Agent('openai:gpt-5.4-mini').run('hi')\nloose.limits.max_cost = -1",
    "mistyped-live-limit": "loose = lab.Agent('openai:gpt-5.4-mini').run('hi')\nloose.limits.max_cots = 1",
    "tool": "lab.Agent('openai:gpt-5.4-mini', tools=[untyped])",
    "condition": "lab.Agent('openai:gpt-5.4-mini', stop=5)",
    "prompt": "lab.Agent('openai:gpt-5.4-mini').run('')",
    "frame": "lab.Agent('openai:gpt-5.4-mini').run('hi').to_frame('step')",
    "name": "lab.Agnet('x')",
    "raise-for-stop": "loose = lab.Agent('openai:gpt-5.4-mini').run('hi')\nloose.stop('x')\n(await loose).raise_for_stop()",
}


@pytest.mark.parametrize("cell", MISTAKES.values(), ids=MISTAKES.keys())
def test_a_traceback_fits_on_a_screen(ready: LiveKernel, cell: str) -> None:
    output = refused(ready, cell)
    assert "Cell In[" in output  # at the user's own line
    assert "agentlab/" not in output.partition("Error: ")[0] or "__getattr__" in output
    assert len(output.splitlines()) <= LINES


def test_verbose_and_the_debugger_show_all_frames(ready: LiveKernel) -> None:
    ready.execute("%xmode Verbose")
    try:
        output = refused(ready, MISTAKES["limit"])
    finally:
        ready.execute("%xmode Context")
    assert "whole_number" in output
    refused(ready, MISTAKES["limit"])
    frames = "[frame.name for frame in __import__('traceback').extract_tb(__import__('sys').last_traceback)]"
    assert "whole_number" in ready.value(frames)


def test_user_code_called_by_agentlab_stays_in_the_traceback(ready: LiveKernel) -> None:
    ready.execute("def broken(request):\n    return lab.Budget(max_turns=0)\n")
    ready.execute("local = lab.Agent(lab.testing.ScriptedProvider(lambda request, index: broken(request)))")
    output = refused(ready, "await local.run('hi')")
    assert "in broken(request)" in output and "max_turns=0" in output


def test_nothing_is_registered_without_load_ext_and_unloading_removes_everything(kernel: LiveKernel) -> None:
    kernel.execute("import agentlab as lab")
    assert "anthropic:" not in completions(kernel, 'lab.Agent("anth')[0]
    assert not kernel.value("any('agentlab.notebook' in name for name in __import__('sys').modules)")
    kernel.execute("%load_ext agentlab")
    kernel.execute("%load_ext agentlab")
    kernel.execute("%reload_ext agentlab")
    assert "anthropic:" in completions(kernel, 'lab.Agent("anth')[0]
    kernel.execute("%unload_ext agentlab")
    assert "anthropic:" not in completions(kernel, 'lab.Agent("anth')[0]
    assert "UsageError: Cell magic `%%agent` not found" in refused(kernel, "%%agent openai:x\nhi")


def html_of(kernel: LiveKernel, code: str) -> str:
    """The HTML of the cell's last value."""
    return str(kernel.execute(code).displayed[-1]["text/html"])


def test_dollars_in_a_table_are_no_formula_while_the_extension_is_loaded(ready: LiveKernel) -> None:
    ready.execute("import pandas as pd\nframe = pd.DataFrame({'said': ['from $5 to $10']})")
    assert "mathjax_ignore" in html_of(ready, "frame")
    assert ready.value("pd.get_option('display.html.use_mathjax')") is True
    ready.execute("%unload_ext agentlab")
    assert "mathjax_ignore" not in html_of(ready, "frame")
    ready.execute(
        "html = get_ipython().display_formatter.formatters['text/html']\nhtml.for_type(pd.DataFrame, lambda frame: 'mine');"
    )
    ready.execute("%load_ext agentlab")
    assert html_of(ready, "frame") == "mine"
    ready.execute("%unload_ext agentlab")
    assert html_of(ready, "frame") == "mine"
    ready.execute("html.pop(pd.DataFrame)\n%load_ext agentlab")
    assert "mathjax_ignore" in html_of(ready, "frame")

"""The public names, invalid input at the front door, and what an import loads."""

from __future__ import annotations

import ast
import copy
import importlib
import inspect
import re
import subprocess
import sys
import typing
from collections.abc import Iterable
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
from engine.builders import agent, finalize, go, look, looping

import agentlab as lab
from agentlab import errors
from agentlab._internal.names import ELSEWHERE, hint_for
from agentlab.engine.client import RetryPolicy
from agentlab.testing import ScriptedProvider

BAD_INPUT: dict[str, tuple[Any, type[Exception], str]] = {
    "empty-prompt": (lambda: agent(["end"]).run(""), errors.ConfigurationError, "prompt='': pass the task as text"),
    "blank-prompt": (lambda: agent(["end"]).run(" \n"), errors.ConfigurationError, "pass the task as text"),
    "no-prompt": (lambda: agent(["end"]).run(None), errors.ConfigurationError, "prompt=None"),
    "prompt-list": (lambda: agent(["end"]).run([7]), errors.ConfigurationError, "prompt=…: 7 is neither text nor a part"),
    "instructions": (lambda: agent(["end"], instructions=None), errors.ConfigurationError, "instructions=None: pass text"),
    "budget-number": (lambda: agent(["end"]).run("go", budget=5), errors.LimitError, "budget=5: pass a Budget"),
    "budget-dict": (lambda: agent(["end"], budget={"max_turns": 3}), errors.LimitError, "pass a Budget"),
    "fork-budget": (
        lambda: looping().run("go").fork(0, budget={"max_turns": 3}), errors.LimitError, "budget={'max_turns': 3}: pass a Budget",
    ),
    "fork-agent": (
        lambda: looping().run("go").fork(0, agent="openai:gpt-5.4-mini"),
        errors.ConfigurationError,
        "fork(agent='openai:gpt-5.4-mini'): pass an Agent, or a model alone as model=",
    ),
    "messages": (
        lambda: agent(["end"]).run("go", messages=[{"role": "user", "content": "hi"}]),
        errors.ConfigurationError,
        "messages[0] is {'role': 'user', 'content': 'hi'}: pass messages of a run",
    ),
    "negative-limit": (lambda: lab.Budget(max_turns=-1), errors.LimitError, "max_turns=-1"),
    "mistyped-limit": (lambda: lab.Budget(max_tunrs=1), errors.LimitError, "Did you mean 'max_turns'?"),
    "mistyped-live-limit": (
        lambda: setattr(looping().run("go").limits, "max_tunrs", 1), errors.LimitError, "Did you mean 'max_turns'?",
    ),
    "condition-number": (lambda: agent(["end"], stop=5), errors.ConfigurationError, "5 is not a stop condition"),
    "condition-class": (lambda: agent(["end"], stop=lab.StepCountIs), errors.ConfigurationError, "StepCountIs("),
    "untyped-tool": (lambda: agent(["end"], tools=[lambda x: x]), errors.ToolDefinitionError, "<lambda>"),
    "tools-function": (lambda: agent(["end"], tools=look), errors.ToolDefinitionError, "pass a list of functions"),
    "unknown-provider": (lambda: lab.Agent("opneai:gpt"), errors.UnknownProviderError, "opneai"),
    "no-model": (lambda: lab.Agent("openai"), errors.UnknownProviderError, "'openai'"),
    "empty-model": (lambda: lab.Agent("openai:"), errors.UnknownProviderError, "'openai:'"),
    "empty-string": (lambda: lab.Agent(""), errors.UnknownProviderError, "''"),
    "model-object": (lambda: lab.Agent(5), errors.ConfigurationError, "5 is not a model: pass a string such as"),
    "no-attempts": (lambda: RetryPolicy(attempts=0), errors.LimitError, "attempts=0"),
    "negative-wait": (lambda: RetryPolicy(first_wait_s=-1), errors.LimitError, "first_wait_s=-1"),
    "endless-wait": (lambda: RetryPolicy(longest_wait_s=float("inf")), errors.LimitError, "longest_wait_s=inf"),
    "unknown-name": (lambda: lab.Agnet, AttributeError, "agentlab has no name 'Agnet'"),
}  # fmt: skip


@pytest.mark.parametrize(("do", "error", "message"), BAD_INPUT.values(), ids=BAD_INPUT.keys())
def test_invalid_input_is_an_error_that_names_the_value(do: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        do()
    assert message in str(caught.value)


def test_an_unknown_front_end_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTLAB_FRONTEND", "yes")
    with pytest.raises(ValueError, match=r"AGENTLAB_FRONTEND='yes': set it to 'widgets' or 'none'"):
        agent(["end"]).run("go").start()


def test_every_error_is_in_the_tree_at_the_top_of_its_file() -> None:
    classes = [value for value in vars(errors).values() if isinstance(value, type) and value.__module__ == errors.__name__]
    assert len(classes) > 20
    for each in classes:
        assert each.__name__ in (errors.__doc__ or "") or each is errors.AgentlabWarning
        assert each.__doc__
        if each not in (errors.AgentlabWarning, errors.StopRequested):
            assert issubclass(each, errors.AgentlabError)


def test_every_public_name_exists_and_is_listed() -> None:
    for name in lab.__all__:
        assert getattr(lab, name) is not None
    assert set(lab.__all__) <= set(dir(lab))
    assert lab.frame.__module__ == "agentlab.records.frames"
    with pytest.raises(AttributeError, match=r"agentlab\.providers has no name 'Chat'\. It has: Capabilities"):
        _ = lab.providers.Chat
    with pytest.raises(AttributeError, match=r"agentlab\.plots has no name 'curve'\. Did you mean 'curves'\?"):
        _ = lab.plots.curve
    assert not hasattr(lab, "Budgt") and getattr(lab.plots, "curve", None) is None


@pytest.mark.parametrize("name", [*(one for one in lab.__all__ if type(getattr(lab, one)) is type(lab)), "testing.faults"])
def test_a_public_module_offers_only_its_public_names(name: str) -> None:
    module = lab
    for part in name.split("."):
        module = getattr(module, part)
    data = {"PlotAxes", "PlotFigure", *(one for one in module.__all__ if one.endswith("_data"))} if name == "plots" else set()
    assert dir(module) == sorted({*module.__all__} - data)
    for one in module.__all__:
        value = getattr(module, one)
        assert not isinstance(value, type) or value.__module__.startswith("agentlab"), one
    with pytest.raises(AttributeError, match=rf"agentlab\.{re.escape(name)} has no name 'turn_limit'\. "):
        module.turn_limit  # noqa: B018  what is missing is asked for


OTHERS = (
    "UnifiedTerminationSignal", "TerminationReason", "NormalizedStopReason", "TerminationDetector", "TerminationDetectionRegistry",
    "TerminationDecisionEngine", "StreamingTerminationHandler", "Any", "All", "IsStopConditionMet", "StopConditions",
    "OrchestrationResult", "TurnResult", "ToolOutput", "Orchestrator", "terminating_config", "tool_ids", "stop_conditions", "stop_when",
    "maxTurns", "max_steps", "max_iterations", "recursion_limit", "request_limit", "system_prompt", "output_type",
    "continuation_attempt", "continuation_terminated", "tool_payload_repair", "turn_started", "TurnCompleted", "run_ended",
)  # fmt: skip


@pytest.mark.parametrize("module", ["agentlab", "agentlab.errors", "agentlab.events", "agentlab.termination"])
def test_a_name_of_another_tool_leads_to_ours(module: str) -> None:
    for name in OTHERS:
        with pytest.raises(AttributeError) as caught:
            getattr(attrgetter(module.partition(".")[2])(lab) if "." in module else lab, name)
        assert str(caught.value) == f"{module} has no name {name!r}. {hint_for(name)}"
        assert hint_for(name).startswith("Write `")


def test_every_event_is_found_in_snake_case() -> None:
    for event in set(lab.events.__all__) - {"Event", "RunObserver"}:
        assert hint_for(re.sub(r"\B([A-Z])", r"_\1", event).lower()) == f"Write `lab.events.{event}`."


@pytest.mark.parametrize("name", ELSEWHERE)
def test_code_in_a_hint_is_valid(name: str) -> None:
    assert name not in lab.__all__
    result = looping(stop=lab.StepCountIs(1)).run("go").start().wait()
    signal = result.history[0].signal
    script, run, store = looping(), looping().run("go"), lab.Store()
    scope = {"lab": lab, "finalize": finalize, "result": result, "step": result.history[0], "signal": signal, "payload": {}}
    scope |= {"agent": script, "run": run, "store": store}
    for code in re.findall("`([^`]+)`", ELSEWHERE[name]):
        if "await " in code or code.startswith(("asyncio", "main")):
            compile(code, name, "eval", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)  # a whole script
            continue
        eval(f"lab.Agent('openai:gpt-5', tools=[finalize], {code})" if re.match(r"\w+=", code) else code, scope)


def test_the_names_of_other_tools_are_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "names.md").read_text()
    rows = [f"| `{name}` | {here.replace('|', chr(92) + '|')} |" for name, here in ELSEWHERE.items()]
    assert [line for line in page.splitlines() if line.startswith("| `")] == rows


KEYWORDS: dict[str, tuple[Any, str]] = {
    "tool": (lambda: lab.Agent("openai:gpt-5", tool=[look]), "Agent takes no 'tool'. Did you mean 'tools'? It takes: model, tools,"),
    "system_prompt": (lambda: lab.Agent("openai:gpt-5", system_prompt="Be brief."), 'Write `instructions="…"`.'),
    "top_p": (lambda: lab.Agent("openai:gpt-5", top_p=0.9), 'Write `options={"top_p": 0.9}`.'),
    "output_type": (lambda: lab.Agent("openai:gpt-5", output_type=int), "Write `output=list[str]`, or another type"),
    "agent-camel-case": (lambda: lab.Agent("openai:gpt-5", maxTurns=3), "Write `budget=lab.Budget(max_turns=3)`."),
    "agent-retries": (lambda: lab.Agent("openai:gpt-5", attempts=3), "Write `retry=lab.RetryPolicy(attempts=3)`."),
    "nothing-like-it": (lambda: lab.Agent("openai:gpt-5", colour=3), "Agent takes no 'colour'. It takes: model, tools,"),
    "run-limit": (lambda: looping().run("x", max_turns=3), "run takes no 'max_turns'. Write `budget=lab.Budget(max_turns=3)`."),
    "max_tokens": (
        lambda: lab.Agent("openai:gpt-5", max_tokens=9),
        "Write `budget=lab.Budget(max_tokens=9)` for the total, or `budget=lab.Budget(max_tokens_per_turn=9)` for each answer.",
    ),
    "options": (lambda: lab.Agent("openai:gpt-5", options="top_p=1"), """options='top_p=1': pass a dict, such as {"top_p": 0.9}."""),  # type: ignore[arg-type]
    "experiment-executor": (lambda: lab.Experiment([looping()], ["?"], executor=None), "Write `study.run(executor=…)`."),
    "run-max_steps": (lambda: looping().run("x", max_steps=3), "Write `budget=lab.Budget(max_turns=3)`."),
    "run-nearly": (lambda: looping().run("x", max_turn=3), "Did you mean `budget=lab.Budget(max_turns=3)`?"),
    "run-max_iterations": (lambda: looping().run("x", max_iterations=3), "Write `budget=lab.Budget(max_turns=3)`."),
    "run-recursion_limit": (lambda: looping().run("x", recursion_limit=3), "Write `budget=lab.Budget(max_turns=3)`."),
    "run-request_limit": (lambda: looping().run("x", request_limit=3), "Write `budget=lab.Budget(max_calls=3)`."),
    "run-stop_conditions": (lambda: looping().run("x", stop_conditions=[]), "Write `stop=lab.StepCountIs(8) | lab.HasToolCall"),
    "run-stop_when": (lambda: looping().run("x", stop_when=None), "Write `stop=lab.StepCountIs(8) | lab.HasToolCall"),
    "run-tool_ids": (lambda: looping().run("x", tool_ids=["a"]), "Write `terminating=lab.TerminatingTools(tools=…)`."),
    "run-terminating_config": (lambda: looping().run("x", terminating_config={}), "Write `terminating=lab.TerminatingTools("),
    "run-nudge": (lambda: looping().run("x", nudge_message="a"), "`terminating=lab.TerminatingTools(tools=[…], nudge_message=…)`"),
    "run-agents-own": (lambda: looping().run("x", tools=[look]), "Write `lab.Agent(…, tools=…)`."),
    "run-temperature": (lambda: looping().run("x", temperature=1), "Write `lab.Agent(…, temperature=1)`."),
    "run-top_p": (lambda: looping().run("x", top_p=1), 'Write `lab.Agent(…, options={"top_p": 0.9})`.'),
    "fork": (lambda: looping().run("x").fork(0, max_cost=0.5), "fork takes no 'max_cost'. Write `budget=lab.Budget(max_cost=0.5)`."),
    "tool-timeout": (lambda: lab.tool(look, timeout=5), "tool takes no 'timeout'. Did you mean 'timeout_s'? It takes: name,"),  # type: ignore[call-overload]
    "as_tool": (lambda: looping().as_tool("a", max_turns=3), "Write `budget=lab.Budget(max_turns=3)`."),
    "experiment-of-all": (lambda: lab.Experiment([looping()], ["?"], max_cost=5), "Write `budget=lab.Budget(max_cost=5)`."),
    "experiment-of-each": (lambda: lab.Experiment([looping()], ["?"], max_turns=5), "`settings=[dict(budget=lab.Budget(max_turns=5))]"),
    "experiment-settings": (lambda: lab.Experiment([looping()], ["?"], [{"max_turns": 5}]), "Write `budget=lab.Budget(max_turns=5)`."),
    "experiment-run": (lambda: go(lab.Experiment([looping()], ["?"]).run(concurency=5)), "Did you mean 'concurrency'?"),
    "budget-max_steps": (lambda: lab.Budget(max_steps=3), "Budget takes no 'max_steps'. Did you mean 'max_turns'?"),
    "budget-stop": (lambda: lab.Budget(stop_when=3), "Write `lab.Agent(…, stop=lab.StepCountIs(8)"),
    "continuation": (lambda: lab.ContinuationPolicy(max_continuations=1), "Did you mean 'max_continuations_per_turn'?"),
    "terminating": (lambda: lab.TerminatingTools(tool_ids=["a"]), "Did you mean 'tools'?"),
    "retry": (lambda: lab.RetryPolicy(max_retries=2), "Did you mean 'attempts'?"),
    "settings": (lambda: lab.RunSettings(max_turns=2), "Write `budget=lab.Budget(max_turns=2)`."),
    "condition": (lambda: lab.StepCountIs(max_steps=3), "StepCountIs takes no 'max_steps'. It takes: steps."),
    "condition-of-names": (lambda: lab.HasToolCall(name="a"), "Write its names without a keyword: HasToolCall(…)."),
    "backtest": (lambda: lab.backtest([], budget={"max_steps": [3]}), "There is no limit 'max_steps'. Did you mean 'max_turns'?"),
}  # fmt: skip


@pytest.mark.parametrize(("write", "message"), KEYWORDS.values(), ids=KEYWORDS.keys())
def test_an_unknown_keyword_says_what_to_write(write: Any, message: str) -> None:
    with pytest.raises(errors.ConfigurationError) as caught:
        write()
    assert message in str(caught.value)


ONLY_LISTED = ("usage", "description", "verbose", "colour", "rate_limit", "memory", "max_rounds")
TYPOS = {
    "max_tunrs": "`budget=lab.Budget(max_turns=3)`", "max_step": "`budget=lab.Budget(max_turns=3)`", "tool": "'tools'",
    "instruction": "'instructions'", "observer": "'observers'", "streams": "'stream'", "temprature": "'temperature'",
}  # fmt: skip
MEANT = {
    "stop_sequences": '`options={"stop": ["END"]}`', "StopSequences": '`options={"stop": ["END"]}`', "thinking": "`reasoning_effort=",
    "step_limit": "`budget=lab.Budget(max_turns=3)`.", "top_k": '`options={"top_k": 40}`.', "deps": "a closure",
    "deps_type": "a closure",
    "run_config": "its settings as arguments of `lab.Agent`.", "cancellation_token": "`run.cancel()`.",
    "input": '`agent.run("…")`', "message": '`agent.run("…")`', "user_prompt": '`agent.run("…")`', "prompt": "`agent.run(prompt=…)`.",
    "messages": "`agent.run(…, messages=…)`.", "max_messages": "`stop=lab.StepCountIs(8)`",
    "max_consecutive_auto_reply": "`budget=lab.Budget(max_turns=3)`.", "maxConsecutiveAutoReply": "`budget=lab.Budget(max_turns=3)`.",
    "hooks": "`observers=[print]`", "system": '`instructions="…"`.', "store": "`store.keep(run)`.",
    "mcp_servers": "`await lab.tools.from_mcp(",
    "max_time": "`budget=lab.Budget(timeout=3)`.", "max_duration": "`budget=lab.Budget(timeout=3)`.",
    "working_limit": "`budget=lab.Budget(timeout=3)`.", "max_requests": "`budget=lab.Budget(max_calls=3)`.",
    "max_tool_calls": "`stop=lab.MaxToolCalls(8)`", "tool_calls_limit": "`stop=lab.MaxToolCalls(8)`",
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "message"),
    [
        *((name, f"Write {message}") for name, message in MEANT.items()),
        *((name, f"Did you mean {message}?") for name, message in TYPOS.items()),
        *((name, "It takes: model, tools,") for name in ONLY_LISTED),
    ],
)
def test_advice_covers_known_names_and_misspellings(name: str, message: str) -> None:
    with pytest.raises(errors.ConfigurationError) as caught:
        lab.Agent("openai:gpt-5", **{name: 3})  # type: ignore[arg-type]
    assert str(caught.value).startswith(f"Agent takes no {name!r}. {message}")


@pytest.mark.parametrize(
    ("name", "message"),
    {
        "max_time": "Did you mean 'timeout'?", "max_duration": "Did you mean 'timeout'?", "working_limit": "Did you mean 'timeout'?",
        "max_requests": "Did you mean 'max_calls'?", "max_tunrs": "Did you mean 'max_turns'?", "max_step": "Did you mean 'max_turns'?",
        "max_tool_calls": "Write `lab.Agent(…, stop=lab.MaxToolCalls(8))`",
        "tool_calls_limit": "Write `lab.Agent(…, stop=lab.MaxToolCalls(8))`", "seconds": "It takes: max_turns,",
    }.items(),
)  # fmt: skip
def test_a_limit_of_another_tool_equals_its_counterpart_here(name: str, message: str) -> None:
    with pytest.raises(errors.LimitError) as caught:
        lab.Budget(**{name: 3})  # type: ignore[arg-type]
    assert str(caught.value).startswith(f"Budget takes no {name!r}. {message}")


@pytest.mark.parametrize(
    ("name", "message"),
    {
        "hooks": "Write `observers=[print]`", "usage": "It takes: prompt,", "store": "Write `store.keep(run)`.",
        "input": 'Write `agent.run("…")`', "message": 'Write `agent.run("…")`', "tool": "Did you mean `lab.Agent(…, tools=3)`?",
    }.items(),
)  # fmt: skip
def test_a_keyword_of_another_tools_run(name: str, message: str) -> None:
    with pytest.raises(errors.ConfigurationError) as caught:
        looping().run("x", **{name: 3})
    assert str(caught.value).startswith(f"run takes no {name!r}. {message}")


@pytest.mark.parametrize(
    ("name", "message"),
    {
        "ModelRetry": 'Write `ValueError("…")`, raised in the tool', "UsageLimits": "Write `lab.Budget`.",
        "TerminationCondition": "Write `lab.StopCondition`.", "MaxMessageTermination": "Write `lab.StepCountIs`.",
        "run_sync": 'Write `await agent.run("…")` in a notebook; in a script `asyncio.run(main())`',
        "MissingKeyError": "Write `lab.errors.MissingKeyError`.",
        "ToolStarted": "Write `lab.events.ToolStarted`.", "message": "Did you mean 'Message'?",
        "Telemetri": "Did you mean 'Telemetry'?",

        "Wizard": "`dir(agentlab)` lists",
    }.items(),
)  # fmt: skip
def test_an_unknown_name_of_lab(name: str, message: str) -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(lab, name)
    assert str(caught.value).startswith(f"agentlab has no name {name!r}. {message}")


def test_an_agent_is_asked_for_another_tools_method() -> None:
    with pytest.raises(AttributeError) as caught:
        looping().run_sync("go")  # type: ignore[attr-defined]
    assert str(caught.value).startswith(
        "An agent has no 'run_sync'. Write `await agent.run(\"…\")` in a notebook; in a script `asyncio.run(main())` with it in `main`."
    )
    with pytest.raises(AttributeError, match=r"^'Agent' object has no attribute 'wizard'$"):
        looping().wizard  # type: ignore[attr-defined]  # noqa: B018
    assert not hasattr(looping(), "_repr_html_of_another_tool_")
    assert copy.copy(looping()).name == looping().name


@pytest.mark.parametrize("begin", [iter, list, tuple, lambda run: run[0], lambda run: [step for step in run]])  # noqa: C416
def test_a_run_is_not_iterated_without_async(begin: Any) -> None:
    both = lab.Lockstep([looping().run("go"), looping().run("go")])
    result = looping(stop=lab.StepCountIs(1)).run("go").start().wait()
    for one, message in [
        (looping().run("go"), "A run is not a list: write `async for step in run`, or run.start() to take all steps"),
        (both, "A lockstep is not a list: write `async for steps in lockstep`, or lockstep.start()"),
        (result, "A result is not a list: result.history has its steps"),
    ]:
        with pytest.raises(TypeError, match=re.escape(message)):
            next(iter(begin(one)))
        assert not isinstance(one, Iterable)


def test_a_key_as_a_wrong_keyword_is_not_repeated() -> None:
    key = "sk-" + "a1B2c3D4" * 4
    with pytest.raises(errors.ConfigurationError, match=r"Write `lab\.Provider\(") as caught:
        lab.Agent("openai:gpt-5", api_key=key)  # type: ignore[call-arg]
    assert key not in str(caught.value)


@pytest.mark.parametrize(
    "target",
    [lab.Agent, lab.Agent.run, lab.Run.fork, lab.Experiment, lab.Experiment.run, lab.Budget],
    ids=lambda one: one.__qualname__,
)
def test_signatures_are_unchanged(target: Any) -> None:
    parameters = inspect.signature(target).parameters.values()
    assert len(parameters) > 3
    assert not {one.kind for one in parameters} & {inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL}
    assert inspect.iscoroutinefunction(inspect.unwrap(target)) is (target is lab.Experiment.run)


def test_lab_any_is_not_typing_any() -> None:
    for module in (lab, lab.errors, lab.plots, lab.providers):
        assert getattr(module, "Any", None) is not typing.Any


IMPORT_CHECK = """
import os, sys
before = set(os.listdir())
import agentlab
from agentlab import Agent, Budget, StepCountIs, tool
assert not {"matplotlib", "ipywidgets"} & set(sys.modules)
assert set(os.listdir()) == before
"""


def test_importing_prints_nothing_writes_nothing_and_loads_neither_plots_nor_widgets(tmp_path: Any) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", IMPORT_CHECK], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


RUNS_CHECK = """
import asyncio, sys
import agentlab as lab
from agentlab.testing import ScriptedProvider

async def main():
    scripted = await lab.Agent(ScriptedProvider(["Done."])).run("Go.")
    with lab.replay("sample:question", match="order"):
        recorded = await lab.Agent("openai:gpt-5.4-mini").run("?", budget=lab.Budget(max_turns=1))
    assert [len(result.to_frame()) for result in (scripted, recorded)] == [1, 1]
    assert not {"matplotlib", "ipywidgets"} & set(sys.modules)

asyncio.run(main())
"""


def test_a_scripted_run_and_a_replay_load_neither_plots_nor_widgets() -> None:
    done = subprocess.run([sys.executable, "-W", "error", "-c", RUNS_CHECK], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_type_checkers_know_the_public_names_by_the_same_places() -> None:
    tree = ast.parse(Path(lab.__file__).read_text())
    (block,) = (one for one in tree.body if isinstance(one, ast.If) and ast.unparse(one.test) == "TYPE_CHECKING")
    places = {
        each.asname or each.name: (one.module, each.name)
        for one in block.body
        if isinstance(one, ast.ImportFrom) and one.module != "typing"
        for each in one.names
    }
    assert ast.unparse(block.body[-1]) == "frame = to_frame"
    places["frame"] = places.pop("to_frame")
    assert sorted(places) == lab.__all__
    for name, (module, inner) in places.items():
        assert getattr(lab, name) is getattr(importlib.import_module(module), inner), name


PRICES_CHECK = """
import asyncio, sys
import agentlab as lab

def begun(event):
    if isinstance(event, lab.events.StepStarted):
        assert "genai_prices.data" in sys.modules

with lab.replay("sample:question", match="order"):
    run = lab.Agent("openai:gpt-5.4-mini", observers=[begun]).run("?", budget=lab.Budget(max_turns=1))
assert "genai_prices.data" not in sys.modules

async def main():
    result = await run
    assert result.cost.usd is not None and len(result.history) == 1

asyncio.run(main())
"""


def test_reading_the_price_list_is_no_part_of_the_first_step() -> None:
    """It takes as long as a short call."""
    done = subprocess.run([sys.executable, "-W", "error", "-c", PRICES_CHECK], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_every_run_reads_a_script_from_its_start() -> None:
    made = lab.Agent(ScriptedProvider(["end"]))

    async def main() -> list[str]:
        return [(await made.run("go")).text for _ in range(2)]

    assert go(main()) == ["end", "end"]
    assert repr(made) == "Agent(scripted:script, budget=Budget(max_turns=20))"
    assert repr(looping(stop=lab.StepCountIs(3))) == (
        "Agent(scripted:script, tools=[look, finalize], budget=Budget(max_turns=20), stop=StepCountIs(steps=3))"
    )


def test_the_documentation_lists_every_provider_and_what_it_reports() -> None:
    from pathlib import Path

    page = (Path(__file__).parents[2] / "docs" / "howto" / "providers.md").read_text()
    table = [line for line in page.splitlines() if line.startswith("| `")]
    for name, can in lab.capabilities().items():
        (row,) = [line for line in table if f"`{name}`" in line.split("|")[1]]
        assert ("reported" in row) is (can.reports_cost and not name.startswith("compatible")), name


@pytest.mark.parametrize(
    ("keyword", "value"), [("retry", 3), ("middleware", [5]), ("tool_middleware", 5), ("observers", [None])], ids=str
)
def test_an_uncallable_tool_is_refused_when_the_agent_is_made(keyword: str, value: object) -> None:
    with pytest.raises(errors.ConfigurationError, match=f"{keyword}="):
        lab.Agent("openai:gpt-5", **{keyword: value})  # type: ignore[arg-type]

"""Errors for unknown names and keywords, which suggest the equivalent of another tool's name or the nearest name.

Modules that need this one are imported only when an error is created.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from importlib import import_module
from operator import attrgetter
from typing import Any, NoReturn, TypeVar

from agentlab._internal.display import rendered
from agentlab._internal.errors import AgentlabError, ConfigurationError, LimitError

_EVENTS = (
    "RunStarted", "RunPaused", "RunResumed", "RunEnded", "StepStarted", "StepCompleted", "Nudged", "LastAnswerAsked", "CallRetried",
    "AskedAgain", "OutputRejected", "TextReceived", "ArgumentsReceived",
    "StopReasonObserved", "ContinuationAttempted", "ContinuationEnded", "ToolPayloadRepair", "ToolStarted",
    "ToolProgress", "ToolFinished", "ApprovalRequested", "ApprovalGiven", "ChildStarted", "ChildEnded", "LimitsChanged", "Warned",
)  # fmt: skip

_HINTS = {
    # why something ended
    "`lab.TerminationSignal`": "UnifiedTerminationSignal",
    "`lab.FinishReason`, why one response ended": "NormalizedStopReason",
    "`lab.StopReason`, why a run ended": "TerminationReason",
    '`lab.detect("openai", payload)`, or `lab.signals.get("openai")` for the detector itself': "TerminationDetector",
    "`lab.signals.register`, or `lab.signals.SignalRegistry()` for a separate registry": "TerminationDetectionRegistry",
    "`lab.decide(signal)`": "TerminationDecisionEngine",
    '`lab.signals.stream("openai")`': "StreamingTerminationHandler",
    # stop conditions
    "`lab.AnyOf`, or join conditions with |": "Any",
    "`lab.AllOf`, or join conditions with &": "All",
    "`lab.is_stop_condition_met`": "IsStopConditionMet",
    '`lab.StepCountIs(8) | lab.HasToolCall("finalize")`': "StopConditions",
    '`stop=lab.StepCountIs(8) | lab.HasToolCall("finalize")`': "stop_conditions stop_when termination_condition",
    "`lab.StopCondition`": "TerminationCondition",
    "`lab.StepCountIs`": "MaxMessageTermination",
    "`stop=lab.StepCountIs(8)`, which counts steps": "max_messages",
    "`stop=lab.MaxToolCalls(8)`": "max_tool_calls tool_calls_limit",
    # limits
    "`budget=lab.Budget(max_turns=8)`": "maxTurns max_steps max_iterations recursion_limit step_limit max_consecutive_auto_reply",
    "`budget=lab.Budget(max_calls=8)`": "max_requests request_limit usage_limits",
    "`lab.Budget`": "UsageLimits",
    "`budget=lab.Budget(max_tokens=10_000)`": "total_tokens_limit token_limit",
    "`budget=lab.Budget(max_tokens_per_turn=1_000)`": "max_output_tokens max_completion_tokens",
    "`budget=lab.Budget(max_cost=0.05)`": "cost_limit max_budget_usd",
    "`budget=lab.Budget(timeout=60)`": "time_limit working_limit max_time max_duration",
    "`retry=lab.RetryPolicy(attempts=4)`": "max_retries",
    # agents and their results
    "`lab.Agent`": "Orchestrator",
    "`lab.RunResult`": "OrchestrationResult",
    "`lab.StepResult`": "TurnResult",
    "`step.tool_results`, with the result of each tool; a tool that returns `lab.Stop` ends the run": "ToolOutput",
    '`lab.Stop("Task complete", output=42)`, returned from the tool: it ends the run': "ToolOutput.stop",
    '`ValueError("…")`, raised in the tool: the model reads the message': "ModelRetry",
    "a closure or a bound method as the tool, which has the tool's dependencies": "deps deps_type",
    '`await lab.tools.from_mcp("python server.py")`, and add its tools to those of the agent': "mcp_servers",
    "`observers=[print]` to see each event, or give `lab.Agent` a middleware that changes calls": "hooks",
    "its settings as arguments of `lab.Agent`": "run_config",
    '`await agent.run("…")` in a notebook; in a script `asyncio.run(main())` with it in `main`': "run_sync",
    "`run.cancel()`": "cancellation_token",
    "`store.keep(run)`": "store",
    '`agent.run("…")`: the prompt is the first argument': "input message user_prompt",
    '`instructions="…"`': "system system_prompt system_message",
    '`options={"top_p": 0.9}`': "top_p",
    '`options={"top_k": 40}`': "top_k",
    '`options={"stop": ["END"]}`; Anthropic calls it `"stop_sequences"`, Gemini and Bedrock `"stopSequences"`': "stop_sequences",
    '`reasoning_effort="low"`': "thinking",
    '`lab.Provider("openai", model="gpt-5.4-mini", api_key="…")`, or set the provider\'s environment variable': "api_key",
    '`lab.Provider("compatible", model="gemma3", base_url="http://127.0.0.1:8080/v1")`': "base_url",
    "`output=list[str]`, or another type": "output_type output_schema response_format response_model response_type result_type",
    '`terminating=lab.TerminatingTools(["finalize"])`': "terminating_config",
    '`terminating=lab.TerminatingTools(tools=["finalize"])`': "tool_ids",
    # scorers
    "`lab.scorers.Exact()`": "ExactMatch",
    "`lab.scorers.Includes()`": "Contains",
    "`lab.scorers.Matches(r'\\d+')`": "Regex RegexMatch",
    "`lab.scorers.F1()`": "TokenF1",
    "`lab.scorers.JsonEqual()`": "JsonMatch",
    '`lab.scorers.Judge("openai:gpt-5.4-mini", "It is polite.", budget=lab.Budget(max_calls=3))`': "LLMJudge ModelGradedQa",
    "`lab.events.ContinuationAttempted`": "continuation_attempt",
    "`lab.events.ContinuationEnded`": "continuation_terminated",
    # events of earlier versions
    "`lab.events.StepStarted`": "TurnStarted turn_started",
    "`lab.events.StepCompleted`": "TurnCompleted turn_completed",
}
"""By code in agentlab: its names in other tools and in earlier versions."""

ELSEWHERE = {
    **{name: ours for ours, names in _HINTS.items() for name in names.split()},
    **{re.sub("(?<=[a-z])(?=[A-Z])", "_", event).lower(): f"`lab.events.{event}`" for event in _EVENTS},
}
"""By name in other tools and in earlier versions: the code in agentlab."""


@functools.cache
def _spelled() -> dict[str, str]:
    return {_plain(name): ours for name, ours in reversed(ELSEWHERE.items())}


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


def hint_for(name: str) -> str:
    """Return a sentence with the code to write instead of another tool's name, in any spelling of it; "" for an unknown name."""
    ours = ELSEWHERE.get(name) or _spelled().get(_plain(name))
    return f"Write {ours}." if ours else ""


def near(name: str, known: Sequence[str], cutoff: float = 0.78) -> str:
    """Return the known name that `name` misspells, else "". A lower cutoff also finds names that only share letters."""
    found = difflib.get_close_matches(name.lower(), [word.lower() for word in known], n=1, cutoff=cutoff)
    return next((word for word in known if found and word.lower() == found[0]), "")


def did_you_mean(name: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """Return a sentence, after a space, with the known name that is most like `name`; "" if none is."""
    meant = near(name, list(known), cutoff)
    return f" Did you mean {meant!r}?" if meant else ""


def unknown_name_error(module: str, name: str, known: Sequence[str]) -> AttributeError:
    """Return the error for `module.name`, where `known` are the existing names."""
    if name.startswith("_"):  # asked for by Python, IPython or pytest, which need no advice
        return AttributeError(f"module {module!r} has no attribute {name!r}", name=name)
    close = near(name, known)
    other_case = close.lower() == name.lower()
    hint = f"Write {ELSEWHERE[name]}." if name in ELSEWHERE and not other_case else ""
    is_class = name[:1].isupper() and not hint  # not for `from agentlab import module`, while errors are still being imported
    for other, place in (("errors", "errors"), ("events", "records.events")) if is_class else ():
        if name in getattr(import_module(f"agentlab.{place}"), "__all__", ()):
            hint = f"Write `lab.{other}.{name}`."
    hint = hint or ("" if other_case else hint_for(name))
    if not hint:
        there = f"It has: {', '.join(known)}." if len(known) <= 30 else f"`dir({module})` lists its names."
        hint = f"Did you mean {close!r}? {there}" if close else there
    error = AttributeError(f"{module} has no name {name!r}. {hint}")
    error._render_traceback_ = lambda: rendered(error)  # type: ignore[attr-defined]
    return error


def defined_in(module: Mapping[str, object]) -> list[str]:
    """Return the public names that a module defines, without imported ones; `module` is its `globals()`."""
    here = module["__name__"]
    return sorted(name for name, value in module.items() if name[0] != "_" and getattr(value, "__module__", None) == here)


def module_hooks(module: str, names: Sequence[str]) -> tuple[Callable[[str], NoReturn], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` for a module: completion offers only `names`, and the error for another name suggests one."""

    def missing(name: str) -> NoReturn:
        raise unknown_name_error(module, name, names)

    return missing, lambda: list(names)


# Keywords -------------------------------------------------------------------------------------------------------------------

C = TypeVar("C", bound=Callable[..., Any])

_HOLDERS = {
    "budget": ("agentlab.limits.budget", "Budget"),
    "continuation": ("agentlab.limits.policies", "ContinuationPolicy"),
    "terminating": ("agentlab.limits.policies", "TerminatingTools"),
    "retry": ("agentlab.engine.client", "RetryPolicy"),
}
"""Keywords whose value is a dataclass: users may write one of its fields in place of the keyword."""

_SETTINGS = ("budget", "stop", "policy", "continuation", "terminating")
"""Settings in which the runs of an experiment may differ."""

_ONLY_PER_RUN = ("max_turns", "max_tokens_per_turn")
"""Limits of a single run, which the budget of an experiment does not have."""


def helps_with_keywords(target: C) -> C:
    """Raise an error that suggests the right keyword for an unknown one, in calls of a function or of the `__init__` of a class made by
    `values.dataclass`.

    Setting an attribute of such a class is an error that says what to do instead. Editors and type checkers see the same signature as
    before.
    """
    if isinstance(target, type):
        vars(target)["__init__"].wrapped = functools.partial(_checking, owner=target.__name__, kind=LimitError)
        target.__setattr__ = _unchangeable  # type: ignore[assignment,method-assign]
        return target
    outer, _, name = target.__qualname__.rpartition(".")
    return _checking(target, outer if name == "__init__" else name, ConfigurationError)


def _unchangeable(self: Any, name: str, value: object) -> NoReturn:
    kind = type(self).__name__
    of_run = f"set `run.limits.{name}`, or " if kind == "Budget" else ""
    raise LimitError(f"A {kind} does not change: {of_run}make a new one with `dataclasses.replace(old, {name}=…)`.")


def _checking(function: C, owner: str, kind: type[AgentlabError]) -> C:
    known: list[str] = []  # read when a keyword is first given: a signature is slow to make

    @functools.wraps(function)
    def checked(*args: Any, **given: Any) -> Any:
        if given and not known:
            known.extend(_keywords(function))
        for name, value in given.items():
            if name not in known:
                parameters = inspect.signature(function).parameters.values()
                listed = next((each.name for each in parameters if each.kind is each.VAR_POSITIONAL), "")
                positional = f"Write its {listed} without a keyword: {owner}(…)." if listed and not known else ""
                hint = positional or advice(name, known, owner=owner, value=value)
                raise kind(f"{owner} takes no {name!r}. {hint}")
        return function(*args, **given)

    return checked  # type: ignore[return-value]


def _keywords(function: Callable[..., Any]) -> list[str]:
    parameters = inspect.signature(function).parameters.values()
    named = [each.name for each in parameters if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)]
    return [name for name in named if name != "self"]


def advice(name: str, known: Sequence[str], *, owner: str = "", value: object = None, lists: str = "It takes") -> str:
    """Return a hint for a keyword that `owner` does not take; it takes those in `known`.

    A field of a budget is shown within a budget, with the given `value` if that is a number. `lists` introduces the list of `known`.
    """
    takes = f"{lists}: {', '.join(known)}."
    plain = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    with_unit = f"{plain}_s"
    close = with_unit if with_unit in known else near(plain, known)
    if close in (plain, with_unit):
        return f"Did you mean {close!r}? {takes}"
    if hint := _hint(name if name in ELSEWHERE else plain, known, owner, value, takes):
        return hint
    if close:
        return f"Did you mean {close!r}? {takes}"
    fields = [field for keyword in _HOLDERS if keyword in known for field in _fields(keyword)]
    others = [other for other, ours in ELSEWHERE.items() if re.match(r"`\w+=", ours)]
    nearest = near(plain, [*fields, *_parameters("Agent"), *others], 0.85)  # a looser match finds time_limit for rate_limit
    hint = _hint(nearest, known, owner, value, takes) if nearest else ""
    code = re.match("Write (`[^`]+`)", hint)
    return f"Did you mean {code[1]}? {takes}" if code else hint or takes


def _hint(name: str, known: Sequence[str], owner: str, value: object, takes: str) -> str:
    """Return a hint for a name of another tool, or for a keyword of agentlab that belongs elsewhere; "" for other names."""
    foreign = hint_for(name)
    if not foreign:
        code = _code(name, known, owner, value)
        if code and name == "max_tokens":  # in the vendors' APIs it caps one answer
            return f"Write `{code}` for the total, or `{_code('max_tokens_per_turn', known, owner, value)}` for each answer."
        return f"Write `{code}`." if code else ""
    field = re.search(r"`(\w+)=lab\.(\w+)\((\w+)=", foreign)
    if field is not None and field[3] in known and owner in ("", field[2]):
        return f"Did you mean {field[3]!r}? {takes}"
    keyword = re.search(r"`(\w+)=", foreign)
    if keyword is None or (keyword[1] in known and field is None):
        return foreign
    if keyword[1] not in known and len(known) == 1:
        return takes  # an agent's arguments would not help with a condition
    if field is not None:
        return f"Write `{_code(field[3], known, owner, value, field[1])}`."
    return re.sub(r"`(\w+=[^`]*)`", r"`lab.Agent(…, \1)`", foreign, count=1)


def _code(name: str, known: Sequence[str], owner: str, value: object, holder: str = "") -> str:
    """Return the code that passes a keyword of agentlab where it belongs; "" for an unknown keyword."""
    is_number = holder in ("", "budget") and isinstance(value, int | float | Decimal)
    code, keyword = f"{name}={value if is_number else '…'}", name
    if holder or name not in _parameters("Agent"):
        keyword = holder or next((key for key in _HOLDERS if name in _fields(key)), "")
        if not keyword:
            if owner == "Experiment" and name in _parameters("Experiment.run", "agentlab.experiments.experiment"):
                return f"study.run({name}=…)"
            is_of_run = owner == "Agent" and name in _parameters("Agent.run")
            return f"agent.run({'' if name == 'prompt' else '…, '}{name}=…)" if is_of_run else ""
        needed = [f"{key}=[…]" for key, field in _fields(keyword).items() if field.default is dataclasses.MISSING and key != name]
        code = f"{keyword}=lab.{_HOLDERS[keyword][1]}({', '.join([*needed, code])})"
    if owner == "Experiment" and keyword in _SETTINGS and (keyword not in known or name in _ONLY_PER_RUN):
        return f"settings=[dict({code})]"
    return code if keyword in known else f"lab.Agent(…, {code})"


def _parameters(name: str, module: str = "agentlab.agent") -> list[str]:
    """Return the parameters of `Agent` or of a method."""
    return [each for each in inspect.signature(attrgetter(name)(import_module(module))).parameters if each != "self"]


def _fields(keyword: str) -> dict[str, dataclasses.Field[Any]]:
    module, name = _HOLDERS[keyword]
    return {field.name: field for field in dataclasses.fields(getattr(import_module(module), name))}

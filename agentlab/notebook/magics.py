"""`%load_ext agentlab`: the cell magic `%%agent`, Tab completion of models, and tables without formulas.

Loading the extension registers them; `import agentlab` changes nothing in IPython. The code after `--stop` is written by the user and
evaluated with the user's variables. Text from a model is never evaluated.
"""

from __future__ import annotations

import ast
import dataclasses
import keyword
import re
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from difflib import get_close_matches
from typing import Any

from IPython.core.completer import CompletionContext, SimpleCompletion, SimpleMatcherResult, context_matcher
from IPython.core.error import UsageError
from IPython.core.magic import no_var_expand
from IPython.core.magic_arguments import argument, construct_parser
from IPython.display import display

import agentlab
from agentlab._internal.kernel import has_page
from agentlab._internal.redaction import redact
from agentlab.agent import Agent, Run
from agentlab.errors import AgentlabError
from agentlab.limits.budget import Budget
from agentlab.limits.combinators import StopCondition
from agentlab.limits.fields import unknown_name
from agentlab.model.pricing import models_of
from agentlab.notebook.cards import show_frames_as_pandas_does, show_frames_as_written
from agentlab.providers import registry as _registry
from agentlab.tools import Tool

LIMITS = tuple(field.name for field in dataclasses.fields(Budget))
_OWN = ("agent", "tools", "instructions", "stop", "terminating", "stream", "replay", "match", "record", "name")
FLAGS = tuple(f"--{name.replace('_', '-')}" for name in (*_OWN, *LIMITS))


def _limit(field: dataclasses.Field[Any]) -> Any:
    unit, text = field.metadata.get("unit", ""), field.metadata.get("help", "")
    return argument(
        f"--{field.name.replace('_', '-')}", metavar=unit.upper() or "WHAT", help=f"{text}; `none`: no limit" if unit else text
    )


DECLARED = (
    argument("model", nargs="?", help="provider:model, such as anthropic:claude-sonnet-4-6"),
    argument("--agent", metavar="NAME", help="a variable with a lab.Agent; with a model: the same agent on that model"),
    argument("--tools", metavar="NAMES", help="functions defined above, separated by commas: get_weather,finalize"),
    argument("--instructions", metavar="TEXT", help="the agent's instructions, in quotation marks"),
    argument("--stop", metavar="CODE", help="when to stop, in Python: \"StepCountIs(4) | HasToolCall('finalize')\""),
    argument("--terminating", metavar="NAMES", help="names of the tools that end the run"),
    argument("--stream", action="store_true", help="stream the answer"),
    argument("--replay", metavar="FOLDER", help="replay this recording: no key, no network"),
    argument("--match", default="strict", metavar="HOW", help="with --replay: strict, or order to serve the recordings in order"),
    argument("--record", metavar="FOLDER", help="record the responses in this folder"),
    argument("--name", default="run", metavar="NAME", help="the variable for the run; `run` by default"),
    *map(_limit, dataclasses.fields(Budget)),
)


_WORD = re.compile(r"""(--[\w-]+=)?("[^"]*"|'[^']*'|\S+)""")


def argv_of(line: str) -> list[str]:
    """Return the words of the magic's line, without the quotation marks around a word or around the value after `=`."""
    words = []
    for option, word in _WORD.findall(line):
        is_quoted = word[0] in "\"'"
        if is_quoted and (len(word) == 1 or word[-1] != word[0]):
            raise UsageError(f"%%agent: {word} in {line!r} has no end: close the quotation mark.")
        words.append(option + (word[1:-1] if is_quoted else word))
    return words


def limit_of(name: str, text: str) -> Any:
    """Return the value of a limit: a number, None for `none`, or other text, which Budget refuses."""
    if text.lower() == "none":
        return None
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def unknown_option(word: str) -> str:
    """Return the message for a word that is not an option."""
    if not word.startswith("-"):
        return f"{word!r} is not expected: only options may follow the model; put text with spaces in quotation marks."
    return unknown_name("option", word.partition("=")[0], list(FLAGS))


def used_models(names: Mapping[str, Any]) -> set[str]:
    """Return the `provider:model` of each agent among these variables."""
    models = [value.model for value in tuple(names.values()) if isinstance(value, Agent)]
    return {f"{model.name}:{model.model}" for model in models if model.name in _registry.names()}


def matching_models(begun: str, names: Mapping[str, Any]) -> list[str]:
    """Return the completions of `begun`: providers with a colon, and after the colon their models."""
    name, colon, _ = begun.partition(":")
    if not colon:
        return [f"{one}:" for one in _registry.names() if one.startswith(begun)]
    bare, _ = _registry.split_version(name)
    if bare not in _registry.names():
        return []
    whole = {f"{name}:{model}" for model in models_of(bare)} | used_models(names)
    return sorted(one for one in whole if one.startswith(begun))


_CALLED = re.compile(r"""(?P<what>[A-Za-z_][\w.]*)\(\s*(?:(?:model|name)\s*=\s*)?(?P<mark>["'])(?P<begun>[^"'\n]*)\Z""")
"""Matches the first argument of a call if it is a string that is still open."""
_MODEL = re.compile(r"""(?P<before>[^\n]*?)\bmodel\s*=\s*(?P<mark>["'])(?P<begun>[^"'\n]*)\Z""")
_PROVIDER_BEFORE = re.compile(r"""\bProvider\(\s*["']([^"'\n]+)["'][^()\n]*\Z""")
_TAKE_A_MODEL = ("Agent", "with_model")
_USUAL = ("lab", "agentlab")
_MAGIC = re.compile(r"\A\s*%%agent(?P<words>[ \t][^\n]*)\Z")
_ATTRIBUTE = "_agentlab_matcher"


def register_completion(shell: Any) -> None:
    """Add the matcher to this IPython."""
    if not hasattr(shell, _ATTRIBUTE):
        setattr(shell, _ATTRIBUTE, matcher(shell.user_ns))
        shell.Completer.custom_matchers.append(getattr(shell, _ATTRIBUTE))


def unregister_completion(shell: Any) -> None:
    """Remove the matcher."""
    ours = shell.__dict__.pop(_ATTRIBUTE, None)
    if ours in shell.Completer.custom_matchers:
        shell.Completer.custom_matchers.remove(ours)


def matcher(names: Mapping[str, Any]) -> Callable[[CompletionContext], SimpleMatcherResult]:
    """Return the matcher that completes with these variables.

    IPython calls it at every completion (its API of version 2, https://ipython.readthedocs.io), so it looks at the text first.
    """

    @context_matcher(identifier="agentlab.models")  # type: ignore[untyped-decorator]
    def agentlab_models(context: CompletionContext) -> SimpleMatcherResult:
        lines = context.full_text.split("\n")[: context.cursor_line + 1]
        before = "\n".join([*lines[:-1], lines[-1][: context.cursor_position]])
        begun, found = completed(before, names)
        return {
            "completions": [SimpleCompletion(one, type="agentlab") for one in found],
            "matched_fragment": begun,
            "suppress": bool(found),
            "ordered": True,
        }

    made: Callable[[CompletionContext], SimpleMatcherResult] = agentlab_models
    return made


def completed(before: str, names: Mapping[str, Any]) -> tuple[str, list[str]]:
    """Return the text in front of the cursor and its completions; both empty if agentlab has none."""
    if (line := _MAGIC.match(before)) is not None:
        return _in_the_magic(line["words"], names)
    if (call := _CALLED.search(before)) is not None:
        kind = _ours(call["what"], names, before)
        if kind == "Provider":
            return call["begun"], [one for one in _registry.names() if one.startswith(call["begun"])]
        return call["begun"], matching_models(call["begun"], names) if kind in _TAKE_A_MODEL else []
    if (named := _MODEL.search(before)) is not None:
        begun = named["begun"]
        provider = _PROVIDER_BEFORE.search(before[: named.start("begun") - 1])
        if provider is not None:
            prefix = f"{provider[1]}:"
            return begun, [one.removeprefix(prefix) for one in matching_models(prefix + begun, names)]
        if any(word in before for word in (".fork(", "Agent(")):
            return begun, matching_models(begun, names)
    return "", []


def _ours(path: str, names: Mapping[str, Any], before: str) -> str:
    """Return `Agent` of `lab.Agent` if it is agentlab's. If the import has not run yet, the text decides."""
    *heads, last = path.split(".")
    if last == "with_model":
        return last
    if not heads:
        return last if names.get(last, getattr(agentlab, last, None)) is getattr(agentlab, last, names) else ""
    if len(heads) != 1:
        return ""
    known = names.get(heads[0])
    is_ours = known is agentlab or (known is None and (heads[0] in _USUAL or f"agentlab as {heads[0]}" in before))
    return last if is_ours else ""


def _in_the_magic(words: str, names: Mapping[str, Any]) -> tuple[str, list[str]]:
    *earlier, last = re.split(r"[ \t=]", words)
    option = earlier[-1] if earlier else ""
    if last.startswith("-"):
        return last, [flag for flag in FLAGS if flag.startswith(last)]
    if option == "--agent":
        return last, _variables(names, last, _is_an_agent)
    if option == "--tools":
        begun = last.rpartition(",")[2]
        return begun, _variables(names, begun, _is_a_tool)
    if option.startswith("--") and option != "--stream":
        return "", []  # a path, which IPython completes, a number, or code
    return last, matching_models(last, names)


def _variables(names: Mapping[str, Any], begun: str, fits: Callable[[object], bool]) -> list[str]:
    mine = {name: value for name, value in tuple(names.items()) if name.startswith(begun) and not name.startswith("_")}
    return sorted(name for name, value in mine.items() if fits(value))


def _is_an_agent(value: object) -> bool:
    return isinstance(value, Agent)


def _is_a_tool(value: object) -> bool:
    return isinstance(value, Tool) or (callable(value) and getattr(value, "__module__", None) == "__main__")


NAME = "agent"
LAST = "_run"

ABOUT = """Run an agent and watch it. The text of the cell is the prompt, and the run's panel appears below the cell.

    %%agent anthropic:claude-sonnet-4-6 --stop "StepCountIs(4)" --max-cost 0.05 --tools get_weather,finalize
    Plan a day trip.

The run is then in the variables `run` and `_run`: `run.result`, `run.to_frame()`, `run.limits.max_cost = 0.10`. Without a live page
it is run to its end and shown as text and tables. Settings that are left out have the defaults of an Agent."""


def agent_cell(shell: Any) -> Callable[[str, str], None]:
    """Return the magic for this IPython."""

    def agent(line: str, cell: str) -> None:
        try:
            chosen, unknown = parser.parse_known_args(argv_of(line))
            if unknown:
                raise UsageError(f"%%{NAME}: {unknown_option(unknown[0])}")
            run = _made(shell.user_ns, chosen, cell)
            shell.user_ns[chosen.name] = shell.user_ns[LAST] = run  # before it starts, so that a failed run can be inspected
            _show(run)
        except AgentlabError as error:
            raise UsageError(f"%%{NAME}: {error}") from None

    agent.__doc__ = ABOUT
    for declared in reversed(DECLARED):
        agent = declared(agent)
    parser = agent.parser = construct_parser(agent)  # type: ignore[attr-defined]
    parser.prog, parser.allow_abbrev = f"%%{NAME}", False
    agent.__doc__ = f"{ABOUT}\n\n{parser.format_help()[parser.format_help().find('positional') :]}"
    made: Callable[[str, str], None] = no_var_expand(agent)
    return made


def _show(run: Run) -> None:
    if has_page():
        display(run.panel())
        run.start()
        return
    try:
        run.start()
    finally:  # the static panel also shows a failed run
        display(run.panel())


def _made(names: dict[str, Any], chosen: Any, cell: str) -> Run:
    """Return the requested run. Raises UsageError and AgentlabError."""
    if not chosen.name.isidentifier() or keyword.iskeyword(chosen.name):
        raise UsageError(f"--name {chosen.name}: this is not a valid variable name; write e.g. --name run.")
    if not cell.strip():
        raise UsageError(f"%%{NAME}: the prompt is missing; write it below the line of the magic.")
    if chosen.replay is not None and chosen.record is not None:
        raise UsageError("--replay and --record: choose one of the two.")
    limits = {name: limit_of(name, text) for name in LIMITS if (text := getattr(chosen, name)) is not None}
    agent = _agent(names, chosen)
    options: dict[str, Any] = {"stop": None if chosen.stop is None else _condition(names, chosen.stop)}
    if limits:
        options["budget"] = agentlab.Budget(**limits)
    if chosen.terminating is not None:
        options["terminating"] = _split(chosen.terminating)
    with _wire(chosen):
        return agent.run(cell.strip("\n"), **options)


def _wire(chosen: Any) -> AbstractContextManager[object]:
    if chosen.replay is not None:
        return agentlab.replay(chosen.replay, chosen.match)
    return nullcontext() if chosen.record is None else agentlab.record(chosen.record)


def _agent(names: dict[str, Any], chosen: Any) -> Agent:
    if chosen.agent is None:
        if chosen.model is None:
            raise UsageError(
                f"The model is missing. Write %%{NAME} provider:model, such as openai:gpt-5.4-mini, or --agent NAME."
            )
        tools = [_named(names, "--tools", name) for name in _split(chosen.tools or "")]
        return Agent(chosen.model, tools=tools, instructions=chosen.instructions or "", stream=chosen.stream)
    clash = [flag for flag in ("tools", "instructions") if getattr(chosen, flag) is not None] + ["stream"] * chosen.stream
    if clash:
        raise UsageError(f"--agent {chosen.agent} has {clash[0]} already: leave out --{clash[0]}, or --agent.")
    agent = _named(names, "--agent", chosen.agent)
    if not isinstance(agent, Agent):
        raise UsageError(
            f"--agent {chosen.agent}: this is a {type(agent).__name__}; pass the name of a variable with a lab.Agent."
        )
    return agent if chosen.model is None else agent.with_model(chosen.model)


def _split(text: str) -> list[str]:
    return [name for part in text.split(",") if (name := part.strip())]


def _named(names: dict[str, Any], option: str, name: str) -> Any:
    """Return the variable with this name; nothing is evaluated."""
    if name not in names:
        like = _variables(names, "", _is_an_agent if option == "--agent" else _is_a_tool)
        there = f" Variables of this type: {', '.join(like[:8])}." if like else ""
        raise UsageError(f"{option} {name}: the variable {name!r} does not exist; define it in a cell above.{there}")
    return names[name]


def _condition(names: dict[str, Any], code: str) -> object:
    """Evaluate `--stop` with the user's variables. agentlab's conditions need no import."""
    ours = {name: value for name in agentlab.__all__ if isinstance(value := getattr(agentlab, name), type)}
    conditions = {name: kind for name, kind in ours.items() if issubclass(kind, StopCondition) and name not in names}
    try:
        return eval(code, names, conditions)  # noqa: S307  the user wrote it in the cell
    except AgentlabError:
        raise
    except Exception as error:
        text = redact(f"{type(error).__name__}: {error}")
        if isinstance(error, NameError) and (near := get_close_matches(str(error.name), conditions, n=1)):
            text += f"; did you mean {near[0]!r}?"
        raise UsageError(f'--stop {code!r} cannot be evaluated ({text}). Write e.g. --stop "StepCountIs(4)".') from None


def load(shell: Any) -> None:
    """Register everything; repeating it has no effect."""
    shell.register_magic_function(agent_cell(shell), "cell", NAME)
    register_completion(shell)
    show_frames_as_written(shell)


def unload(shell: Any) -> None:
    """Unregister everything."""
    shell.magics_manager.magics["cell"].pop(NAME, None)
    unregister_completion(shell)
    show_frames_as_pandas_does(shell)

"""The cell magic `%%agent`: the shortest way from a prompt to a panel.

What stands behind `--stop` is code of the person at the keyboard, and evaluated as such, among their own names. What a model says is
never evaluated.
"""

from __future__ import annotations

import keyword
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from difflib import get_close_matches
from typing import Any

from IPython.core.error import UsageError
from IPython.core.magic import no_var_expand
from IPython.core.magic_arguments import construct_parser
from IPython.display import display

import agentlab
from agentlab.agent import Agent
from agentlab.errors import AgentlabError
from agentlab.jupyter import frontend
from agentlab.magics.options import DECLARED, LIMITS, argv_of, limit_of, unknown_option
from agentlab.redaction import without_keys
from agentlab.run import Run
from agentlab.stop import StopCondition
from agentlab.tools import Tool

NAME = "agent"
LAST = "_run"

ABOUT = """Ask an agent, and watch it: the cell's text is the prompt, below it comes the panel of the run.

    %%agent anthropic:claude-sonnet-4-6 --stop "StepCountIs(4)" --max-cost 0.05 --tools get_weather,finalize
    Plan a day trip.

The run is then `run`, and `_run` as well: `run.result`, `run.to_frame()`, `run.limits.max_cost = 0.10`. Where nobody can click it
is run to its end, and shown as text and tables. Settings that are left out are an Agent's usual ones."""


def agent_cell(shell: Any) -> Callable[[str, str], None]:
    """The magic for this IPython."""

    def agent(line: str, cell: str) -> None:
        try:
            chosen, unknown = parser.parse_known_args(argv_of(line))
            if unknown:
                raise UsageError(f"%%{NAME}: {unknown_option(unknown[0])}")
            run = _made(shell.user_ns, chosen, cell)
            shell.user_ns[chosen.name] = shell.user_ns[LAST] = run  # before it starts: whatever comes of it can be looked at
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
    if frontend.is_present():
        display(run.panel())
        run.start()
        return
    try:
        run.start()
    finally:  # what stays as it is shows the end, also that of a run that failed
        display(run.panel())


def _made(names: dict[str, Any], chosen: Any, cell: str) -> Run:
    """The run that is asked for. Raises UsageError and AgentlabError, whose messages say what to write instead."""
    if not chosen.name.isidentifier() or keyword.iskeyword(chosen.name):
        raise UsageError(f"--name {chosen.name}: that is no name for a variable; write e.g. --name run.")
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
        return agentlab.replay(chosen.replay)
    return nullcontext() if chosen.record is None else agentlab.record(chosen.record)


def _agent(names: dict[str, Any], chosen: Any) -> Agent:
    if chosen.agent is None:
        if chosen.model is None:
            raise UsageError(f"Who is asked? Write %%{NAME} provider:model, such as openai:gpt-5.4-mini, or --agent NAME.")
        tools = [_named(names, "--tools", name) for name in _split(chosen.tools or "")]
        return Agent(chosen.model, tools=tools, instructions=chosen.instructions or "", stream=chosen.stream)
    clash = [flag for flag in ("tools", "instructions") if getattr(chosen, flag) is not None] + ["stream"] * chosen.stream
    if clash:
        raise UsageError(f"--agent {chosen.agent} has its own {clash[0]}: leave --{clash[0]} out, or --agent.")
    agent = _named(names, "--agent", chosen.agent)
    if not isinstance(agent, Agent):
        raise UsageError(f"--agent {chosen.agent}: that is a {type(agent).__name__}; name a variable with a lab.Agent in it.")
    return agent if chosen.model is None else agent.with_model(chosen.model)


def _split(text: str) -> list[str]:
    return [name for part in text.split(",") if (name := part.strip())]


def _named(names: dict[str, Any], option: str, name: str) -> Any:
    """What the person calls by this name: a plain one, nothing is evaluated."""
    if name not in names:
        fit = Agent if option == "--agent" else Tool
        like = [each for each, value in names.items() if not each.startswith("_") and _fits(value, fit)]
        there = f" There is: {', '.join(sorted(like)[:8])}." if like else ""
        raise UsageError(f"{option} {name}: there is no variable {name!r}; define it in a cell above.{there}")
    return names[name]


def _fits(value: object, kind: type) -> bool:
    return isinstance(value, kind) or (kind is Tool and getattr(value, "__module__", "") == "__main__" and callable(value))


def _condition(names: dict[str, Any], code: str) -> object:
    """What `--stop` says, by the person's own names; those of agentlab's conditions are there without an import."""
    ours = {name: value for name in agentlab.__all__ if isinstance(value := getattr(agentlab, name), type)}
    conditions = {name: kind for name, kind in ours.items() if issubclass(kind, StopCondition) and name not in names}
    try:
        return eval(code, names, conditions)  # noqa: S307  as if the person had written it in the cell
    except AgentlabError:
        raise
    except Exception as error:
        told = without_keys(f"{type(error).__name__}: {error}")
        if isinstance(error, NameError) and (near := get_close_matches(str(error.name), conditions, n=1)):
            told += f"; did you mean {near[0]!r}?"
        raise UsageError(f'--stop {code!r} cannot be evaluated ({told}). Write e.g. --stop "StepCountIs(4)".') from None

"""The cells of an experiment (agent, prompt, settings, repeat), and the checks of a grid."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, KeysView, Mapping, Sequence, Set
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeAlias, TypeVar, cast

from agentlab._internal.display import Displayable
from agentlab._internal.names import advice
from agentlab._internal.redaction import redact
from agentlab._internal.safe_text import whole
from agentlab.agent import Agent, Run
from agentlab.errors import ConfigurationError
from agentlab.experiments.tasks import Tasks
from agentlab.limits.fields import unknown_name, whole_number
from agentlab.limits.settings import PARTS
from agentlab.transport import Transport

T = TypeVar("T")

DEFAULT = "default"
"""The name of the settings if none are given."""

AXES = ("agent", "prompt_id", "settings", "repeat")


@dataclass(frozen=True, slots=True)
class Cell(Displayable):
    """One run of an experiment, by the names of its parts: `prompt_id` is the id of the task, `prompt` its text.
    `repeat` counts from 1.

    Example:
        >>> lab.Experiment({"brief": brief}, {"capital": "?"}, where=lambda cell: cell.repeat == 1, repeats=3).grid.cells
        (Cell(agent='brief', prompt_id='capital', settings='default', repeat=1),)
    """

    agent: str
    prompt_id: str
    settings: str
    repeat: int
    prompt: str = field(default="", repr=False)

    @property
    def label(self) -> str:
        """The cell as one text, the label of its recordings.

        Example:
            >>> lab.Cell("brief", "capital", "short", 2).label
            'brief/capital/short/2'
        """
        return f"{self.agent}/{self.prompt_id}/{self.settings}/{self.repeat}"


Where: TypeAlias = Callable[[Cell], object]


@dataclass(frozen=True, slots=True)
class Grid:
    """All cells of an experiment, in order, and the parts behind their names."""

    name: str
    agents: Mapping[str, Agent]
    tasks: Tasks
    settings: Mapping[str, Mapping[str, Any]]
    cells: tuple[Cell, ...]

    def run_id(self, cell: Cell, attempt: int = 1) -> str:
        """Return the id of the cell's run, the same in every process."""
        return f"{self.name}#{cell.label}" + (f"~{attempt}" if attempt > 1 else "")

    def one_of_each_pair(self) -> dict[tuple[str, str], Cell]:
        """Return one cell for each pair of agent and settings."""
        return {(cell.agent, cell.settings): cell for cell in self.cells}

    def provider_of(self, cell: Cell) -> str:
        """Return the name of the cell's provider."""
        return self.agents[cell.agent].model.name

    def run_of(self, cell: Cell, *, transport: Transport | None = None, **more: Any) -> Run:
        """Return a new run of the cell."""
        prompt = self.tasks[cell.prompt_id].prompt
        return self.agents[cell.agent].run(prompt, transport=transport, **self.settings[cell.settings], **more)


def grid(
    name: object,
    agents: object,
    tasks: object,
    settings: object,
    *,
    repeats: int,
    where: Where | None,
    cells: Iterable[object] | None,
) -> Grid:
    """Return a checked grid: all combinations of the parts, or the given cells. Raises ConfigurationError, also if no cell is left."""
    if not isinstance(name, str) or not name.strip() or "#" in name:
        raise ConfigurationError(f"name={name!r}: pass a name without '#', since the ids of the runs begin with it.")
    whole_number("Experiment", "repeats", repeats)
    by_agent, given, by_settings = _agents(agents), Tasks(cast(Any, tasks)), _settings(settings)
    _check_tools(by_agent, given)
    by_prompt = {task.id: task.text for task in given}
    named = [
        Cell(agent, prompt, setting, repeat, text)
        for agent in by_agent
        for prompt, text in by_prompt.items()
        for setting in by_settings
        for repeat in range(1, repeats + 1)
    ]
    if cells is not None:
        rows = cells.to_dict("records") if hasattr(cells, "columns") and hasattr(cells, "to_dict") else cells  # a DataFrame
        named = [one for given in _listed("cells", rows) for one in _given(given, by_agent, by_prompt, by_settings, repeats)]
    checked = Grid(
        name,
        MappingProxyType(by_agent),
        given,
        MappingProxyType(by_settings),
        tuple(_filtered(named, where)),
    )
    _check(checked)
    return checked


def _check(grid: Grid) -> None:
    seen: dict[str, Cell] = {}
    for cell in grid.cells:
        run_id = grid.run_id(cell)
        if redact(run_id) != run_id:
            raise ConfigurationError(f"{run_id!r} contains a key: use names without keys, since run ids consist of them.")
        if whole(run_id) != run_id:  # a name from a file, cut within an escaped emoji or not in UTF-8
            raise ConfigurationError(
                f"{run_id!r} contains half a surrogate pair, which cannot be stored: rename the agent, the task id or the settings. An "
                "agent without a name has that of its model; pass agents={'name': agent}."
            )
        if run_id in seen:
            if cell == seen[run_id]:
                raise ConfigurationError(f"The cell {cell!r} is given twice: leave one out, or increase repeats.")
            raise ConfigurationError(f"{seen[run_id]!r} and {cell!r} would have the same run id: use names without '/' and '~'.")
        seen[run_id] = cell
    for cell in grid.one_of_each_pair().values():  # a terminating tool that the agent does not have, no stop condition, …
        try:
            grid.run_of(cell)
        except ConfigurationError as error:
            raise type(error)(f"Agent {cell.agent!r} with settings {cell.settings!r}: {error}") from error


# The parts ----------------------------------------------------------------------------------------------------------------------


def _listed(what: str, given: object) -> Sequence[Any]:
    if isinstance(given, str | bytes | Agent) or not isinstance(given, Iterable):
        raise ConfigurationError(f"{what}={given!r}: pass a list, such as {what}=[…].")
    if isinstance(given, Set) and not isinstance(given, KeysView):
        raise ConfigurationError(f"{what}={given!r}: pass a list, since run ids depend on the order and a set has none.")
    listed = list(given)
    if not listed:
        raise ConfigurationError(f"{what}=[]: pass at least one item.")
    return listed


def _named(what: str, given: object, name_of: Callable[[int, Any], str]) -> dict[str, Any]:
    """Return the values by name. Raises ConfigurationError for a duplicate name."""
    if isinstance(given, Mapping):
        pairs = [*given.items()]
        _listed(what, pairs)
        wrong = next((name for name, _ in pairs if not isinstance(name, str) or not name.strip()), None)
        if wrong is not None:
            raise ConfigurationError(f"{what}: {wrong!r} is not a name: use a non-empty text.")
        return dict(pairs)
    named: dict[str, Any] = {}
    for number, value in enumerate(_listed(what, given), 1):
        name = name_of(number, value)
        if name in named:
            raise ConfigurationError(
                f"Two of the {what} are called {name!r}: pass a dict with a name for each, such as {what}={{'first': …, 'second': …}}."
            )
        named[name] = value
    return named


def _agents(given: object) -> dict[str, Agent]:
    def name_of(number: int, agent: object) -> str:
        return agent.name if isinstance(agent, Agent) else str(number)

    named = _named("agents", given, name_of)
    for agent in named.values():
        if not isinstance(agent, Agent):
            raise ConfigurationError(f"agents: {agent!r} is not an agent: pass one, such as lab.Agent({agent!r}).")
    return named


def _check_tools(agents: Mapping[str, Agent], tasks: Tasks) -> None:
    """Raise ConfigurationError if a task has results of a tool that an agent lacks."""
    for task in tasks:
        for name, agent in agents.items() if task.tools else ():
            missing = next((tool for tool in task.tools if tool not in agent.tools), None)
            if missing is not None:
                hint = unknown_name("tool", missing, list(agent.tools))
                raise ConfigurationError(f"The task {task.id!r} has results of a tool that agent {name!r} lacks: {hint}")


def _settings(given: object) -> dict[str, Mapping[str, Any]]:
    if given is None:
        return {DEFAULT: MappingProxyType({})}
    named = _named("settings", given, lambda number, one: f"s{number}")
    for name, one in named.items():
        if not isinstance(one, Mapping):
            raise ConfigurationError(
                f"settings: {name!r} is {one!r}: pass a dict, such as dict(budget=Budget(max_turns=5), stop=…)."
            )
        for key in one:
            if key not in PARTS:
                hint = advice(str(key), list(PARTS), value=one[key], lists="There is")
                raise ConfigurationError(f"settings: {name!r} has {key!r}. {hint}")
    return {name: dict(one) for name, one in named.items()}


def _given(
    given: object, agents: Mapping[str, Any], prompts: Mapping[str, str], settings: Mapping[str, Any], repeats: int
) -> list[Cell]:
    """Return the cells of a tuple (agent, prompt_id), with settings and repeat if needed, or of such a dict."""
    if isinstance(given, Cell):
        values: dict[str, Any] = {axis: getattr(given, axis) for axis in AXES}
    elif isinstance(given, Mapping):
        values = dict(given)
    elif isinstance(given, Sequence) and not isinstance(given, str):
        values = dict(zip(AXES, given, strict=False)) if len(given) <= len(AXES) else {"": given}
    else:
        values = {"": given}
    unknown = [key for key in values if key not in AXES]
    if unknown or "agent" not in values or "prompt_id" not in values:
        raise ConfigurationError(
            f"cells: {given!r}: pass (agent, prompt_id), (agent, prompt_id, settings) or (agent, prompt_id, settings, repeat), by name."
        )
    if "settings" not in values:
        if len(settings) > 1:
            raise ConfigurationError(f"cells: {given!r} names no settings: choose one of {', '.join(settings)}.")
        values["settings"] = next(iter(settings))
    for axis, known in (("agent", agents), ("prompt_id", prompts), ("settings", settings)):
        if values[axis] not in known:
            raise ConfigurationError(f"cells: {unknown_name(axis, str(values[axis]), list(known))}")
    text = prompts[values["prompt_id"]]
    wanted = range(1, repeats + 1) if "repeat" not in values else [whole_number("cells", "repeat", values["repeat"])]
    return [Cell(values["agent"], values["prompt_id"], values["settings"], repeat, text) for repeat in wanted]


def _filtered(cells: list[Cell], where: Where | None) -> list[Cell]:
    if where is None:
        return cells
    if not callable(where):
        raise ConfigurationError(f"where={where!r}: pass a function of a cell, such as lambda cell: cell.agent == 'a'.")
    stored = []
    for cell in cells:
        answer = where(cell)
        if inspect.isawaitable(answer):
            raise ConfigurationError(f"where={where!r} is async: pass a plain function of a cell.")
        if answer:
            stored.append(cell)
    if not stored:
        raise ConfigurationError(f"where={where!r} excludes all {len(cells)} cells. The first cell was {cells[0]!r}.")
    return stored

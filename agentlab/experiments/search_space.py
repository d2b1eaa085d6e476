"""The space of a search over settings: each parameter with its values, and an agent and tasks with chosen values. For `lab.tune`."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from agentlab._internal.redaction import redact
from agentlab.agent import Agent
from agentlab.analysis.grids import grids
from agentlab.errors import ConfigurationError
from agentlab.experiments.grid import Grid
from agentlab.experiments.tasks import PROMPT, Tasks
from agentlab.limits.budget import Budget
from agentlab.limits.combinators import StopCondition
from agentlab.limits.fields import unknown_name
from agentlab.model.messages import Parameters
from agentlab.providers.base import checked_parameters

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

LIMITS = tuple(field.name for field in dataclasses.fields(Budget) if field.name != "missing_usage")
OF_REQUESTS = tuple(field.name for field in dataclasses.fields(Parameters))
NAMES = ("agent", "settings", "model", "instructions", "prompt", "stop", *LIMITS, *OF_REQUESTS)
"""The parameters that a space may have."""

Plain: TypeAlias = str | bool | int | float | None
"""The values that Optuna stores. Other values are written as text there."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of the space. `choices` maps the text or number that Optuna stores to the value; empty for a range."""

    name: str
    distribution: BaseDistribution
    choices: Mapping[Plain, Any] = field(default_factory=dict)

    @property
    def ends(self) -> list[Plain]:
        """All choices, or both ends of the range."""
        distribution: Any = self.distribution
        return list(self.choices) or [distribution.low, distribution.high]

    def value(self, chosen: Plain) -> Any:
        """Return the value of a choice of Optuna."""
        return self.choices[chosen] if self.choices else chosen


class Space:
    """The checked space of an experiment's agents and settings. Raises ConfigurationError, or LimitError for an invalid limit."""

    def __init__(self, given: object, grid: Grid) -> None:
        if not isinstance(given, Mapping) or not given:
            raise ConfigurationError(f"space={given!r}: pass a dict of parameters, such as {{'max_turns': [2, 4, 8]}}.")
        for name in given:
            if name not in NAMES:
                raise ConfigurationError(f"space: {unknown_name('parameter', str(name), list(NAMES))}")
        for name, several in (("agent", grid.agents), ("settings", grid.settings)):
            if name in given and (wrong := [one for one in _listed(name, given[name]) if one not in several]):
                raise ConfigurationError(f"space: {unknown_name(name, str(wrong[0]), list(several))}")
            if name not in given and len(several) > 1:
                raise ConfigurationError(
                    f"The experiment has {len(several)} {name.rstrip('s')}s: add {name!r} to the space, such as "
                    f"{{{name!r}: {list(several)!r}}}, or leave one {name.rstrip('s')} in the experiment."
                )
        self.grid = grid
        self.parameters: dict[str, Parameter] = {name: _parameter(name, values) for name, values in given.items()}
        for name, one in self.parameters.items():
            some = {other: next(iter(self.parameters[other].choices)) for other in ("agent", "settings") if other in given}
            for value in one.ends:  # raises the error of a value that an agent, or a task, does not take
                self.agent({**some, name: value})
                self.tasks(grid.tasks, {name: value})

    @property
    def distributions(self) -> dict[str, BaseDistribution]:
        """The parameters as Optuna's distributions."""
        return {name: one.distribution for name, one in self.parameters.items()}

    def cell_names(self, chosen: Mapping[str, Plain]) -> tuple[str, str]:
        """Return the names of the agent and of the settings of these choices."""
        agents, settings = self.grid.agents, self.grid.settings
        return str(chosen.get("agent", next(iter(agents)))), str(chosen.get("settings", next(iter(settings))))

    def template(self, chosen: Mapping[str, Plain]) -> Any:
        """Return the template of the prompts."""
        return self.parameters["prompt"].value(chosen["prompt"]) if "prompt" in chosen else PROMPT

    def tasks(self, tasks: Tasks, chosen: Mapping[str, Plain]) -> Tasks:
        """Return the tasks with their prompts in the template of these choices."""
        template = self.template(chosen)
        return tasks if template == PROMPT else tasks.with_prompt(template)

    def agent(self, chosen: Mapping[str, Plain]) -> Agent:
        """Return the agent with these choices; its limits are the defaults of its runs."""
        agent_name, settings_name = self.cell_names(chosen)
        values = {name: self.parameters[name].value(one) for name, one in chosen.items()}
        before = self.grid.agents[agent_name]
        agent = copy.copy(before) if "model" not in values else before.with_model(values["model"])
        if "instructions" in values:
            if not isinstance(values["instructions"], str):
                raise ConfigurationError(f"space: instructions={values['instructions']!r}: pass texts.")
            agent.instructions = values["instructions"]
        sent = {name: values[name] for name in OF_REQUESTS if name in values}
        agent.parameters = checked_parameters(dataclasses.replace(agent.parameters, **sent), tuple(agent.tools))
        settings = before.settings_for(**self.grid.settings[settings_name])
        limits = {name: values[name] for name in LIMITS if name in values}
        changed: dict[str, Any] = {"budget": dataclasses.replace(settings.budget, **limits)} if limits else {}
        agent.settings = dataclasses.replace(settings, **changed, **({"stop": values["stop"]} if "stop" in values else {}))
        return agent


def _listed(name: str, given: Any) -> list[Any]:
    """Return the values of a parameter that is no range. A stop condition with lists is one value for each combination."""
    if isinstance(given, StopCondition):
        return [grid.stop_at(point) for grid in grids(given, None) for point in grid.points()]
    if not isinstance(given, list):
        raise ConfigurationError(f"space: {name}={given!r}: pass a list of values, or a range of numbers such as (2, 16).")
    listed = given
    if name == "stop":
        listed = [one for value in given for one in ([None] if value is None else _listed(name, grids(value, None)[0].stop))]
    if not listed:
        raise ConfigurationError(f"space: {name}=[]: pass at least one value.")
    return listed


def _parameter(name: str, given: Any) -> Parameter:
    from optuna.distributions import BaseDistribution, CategoricalDistribution

    if isinstance(given, CategoricalDistribution):
        given = list(given.choices)
    if isinstance(given, BaseDistribution):
        return Parameter(name, given)
    if isinstance(given, tuple):
        return Parameter(name, _range(name, given))
    choices: dict[Plain, Any] = {}
    for value in _listed(name, given):
        written = _written(name, value)
        if written in choices:
            raise ConfigurationError(f"space: {name} has {written!r} twice: leave one out, or give them different names.")
        choices[written] = value
    return Parameter(name, CategoricalDistribution(list(choices)), choices)


def _range(name: str, given: tuple[Any, ...]) -> BaseDistribution:
    from optuna.distributions import FloatDistribution, IntDistribution

    low, high, *more = (*given, None, None)[: max(2, len(given))]
    if more not in ([], ["log"]) or not all(isinstance(one, int | float) and not isinstance(one, bool) for one in (low, high)):
        raise ConfigurationError(
            f"space: {name}={given!r}: a range is (low, high) or (low, high, 'log'). For values, pass a list."
        )
    if not low < high or (more and low <= 0):
        why = "needs numbers above 0" if low < high else "is empty"
        raise ConfigurationError(f"space: the range {name}={given!r} {why}: pass the lower end first, such as (2, 16).")
    if all(isinstance(one, int) for one in (low, high)) and name not in ("temperature", "max_cost", "timeout"):
        return IntDistribution(low, high, log=bool(more))
    return FloatDistribution(float(low), float(high), log=bool(more))


def _written(name: str, value: Any) -> Plain:
    """Return the text or number for a value in Optuna's storage and in frames, without keys."""
    if isinstance(value, str):
        return redact(value)
    if value is None or isinstance(value, bool | int | float):
        return value
    if name == "model" and hasattr(value, "model"):
        return redact(f"{value.name}:{value.model}")
    return redact(repr(value))

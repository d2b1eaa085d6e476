"""A run put together again from what a storage holds of it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, cast

from agentlab import message_json
from agentlab.agent import Agent
from agentlab.engine.client import CallContext
from agentlab.engine.plan import RunPlan
from agentlab.engine.snapshot import Ending, Origin, RunPrefix
from agentlab.errors import ConfigurationError, StorageError
from agentlab.history import RunHistory
from agentlab.results import Reading, StepResult
from agentlab.run import Run
from agentlab.settings import RunSettings, as_policy
from agentlab.stop import Custom, as_condition
from agentlab.storage import Storage, StoredRun, run_json
from agentlab.storage.but_for_keys import same_but_for_keys
from agentlab.storage.cut_off import cut_off, holds, of_end
from agentlab.storage.run_json import Forgotten
from agentlab.termination import Policy
from agentlab.transport import current
from agentlab.types import ModelRequest, ModelResponse, StopReason


def rebuilt(
    storage: Storage,
    kept: StoredRun,
    agent: Agent | None,
    *,
    stop: object = None,
    policy: Policy | None = None,
    defaults: RunSettings | None = None,
) -> Run:
    """The run as it stood after its last step; functions that it had are those of the same name in `defaults`, the agent's own if None.

    Raises StorageError where what is kept is damaged, ConfigurationError for another agent than the run had.
    """
    try:
        return _rebuilt(storage, kept, agent, defaults, stop=stop, policy=policy)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
        if isinstance(error, ConfigurationError):
            raise
        raise StorageError(
            f"What is kept of the run {kept.head.run_id!r} is damaged ({type(error).__name__}: {error}): delete it, or mend it."
        ) from error


def _rebuilt(
    storage: Storage, kept: StoredRun, agent: Agent | None, defaults: RunSettings | None, *, stop: object, policy: Policy | None
) -> Run:
    head = json.loads(kept.head.body)
    end = None if kept.end is None else json.loads(kept.end)
    messages = [message_json.made(one) for one in head["messages"]]
    first, marks, happened = len(messages), list[int](), list[Any]()

    def kept_steps() -> Iterator[Any]:  # one at a time: what a step was read from is let go before the next one is read
        for stored in storage.steps(kept.head.run_id):
            one = run_json.with_results(json.loads(stored.body))
            messages.extend(message_json.made(message) for message in one["messages"])
            marks.append(len(messages))
            happened.append(one["events"])  # they may tell of later steps
            yield one["step"]

    history = RunHistory(_made_steps(kept_steps()), of_end(end) or cut_off(storage, [kept]).get(kept.head.run_id, ()))
    by = _agent_of(head) if agent is None else _checked(agent, kept.head.run_id, head)
    settings = _settings(head, history, end, defaults or by.settings, stop=stop, policy=policy)
    history = _with_functions(history, settings)
    happened += [] if end is None else [end["events"]]
    plan = RunPlan(
        by,
        RunPrefix(head["prompt"], messages, history, tuple(marks), head["prompt_at"], first),
        settings,
        current(),
        inherited=by.observers,
        origin=Origin(
            forked_at=head["forked_at"],
            parent_step=head.get("parent_step"),
            called_by=head.get("called_by"),
            parent_run_id=head["parent_run_id"],
        ),
        run_id=kept.head.run_id,
        events=[event for some in happened for event in run_json.made_events(some, history)],
        holds=holds(storage, kept),
        ending=None if end is None else _ending(end),
        ended_at_s=0.0 if end is None else end["at_s"],
    )
    return Run(plan)


def _made_steps(kept: Iterable[Any]) -> Iterator[StepResult]:
    """The steps; as long as the settings stay the same they are one object, as they were in the run."""
    before: StepResult | None = None
    settings: object = None
    for one in kept:
        if before is not None and isinstance(one, dict) and one.get("settings") == settings:
            step = replace(run_json.made(StepResult, {**one, "settings": {}}), settings=before.settings)
        else:
            step = run_json.made(StepResult, one)
            settings = one.get("settings")
        before = step
        yield step


def _ending(end: dict[str, Any]) -> Ending:
    return Ending(
        StopReason(end["stop_reason"]),
        end["detail"],
        tuple([run_json.made(Reading, one) for one in end["conditions_met"]]),
        run_json.given(end["output"]),
        end["stopped_by"],
        run_json.given(end["error"]),
    )


# Settings --------------------------------------------------------------------------------------------------------------------


def _settings(
    head: dict[str, Any],
    history: RunHistory,
    end: dict[str, Any] | None,
    own: RunSettings,
    *,
    stop: object,
    policy: Policy | None,
) -> RunSettings:
    """As they stood last: at the end, for the last step, or, where the run has taken none since it was kept, at that time."""
    if end is not None and end["settings"] is not None:
        settings = run_json.made(RunSettings, end["settings"])
    elif history.last is not None and len(history) > head["steps_before"]:
        settings = history.last.settings
    else:
        settings = run_json.made(RunSettings, head["settings"])
    settings = _with_own_words(settings, own)
    if stop is not None:
        settings = replace(settings, stop=as_condition(stop))
    return settings if policy is None else replace(settings, policy=as_policy(policy))


def _with_own_words(settings: RunSettings, own: RunSettings) -> RunSettings:
    """The settings that were kept, with the parts of `own` that say the same: those have their functions, and what were keys."""
    parts = {name: getattr(own, name) for name in ("stop", "policy", "continuation", "terminating")}
    same = {name: one for name, one in parts.items() if one is not None and _is_kept_as(one, getattr(settings, name))}
    return replace(settings, **same) if same else settings


def _is_kept_as(value: object, kept: object) -> bool:
    return same_but_for_keys(run_json.plain(kept), run_json.plain(value))


def _with_functions(history: RunHistory, settings: RunSettings) -> RunHistory:
    """The history, whose last step has the stop condition with its functions, where it was that one: that it is the same one still
    decides what can be proposed about the end."""
    last = history.last
    if last is None or last.settings.stop in (None, settings.stop):
        return history
    if not _is_kept_as(settings.stop, last.settings.stop):
        return history
    return RunHistory([*history[:-1], replace(last, settings=replace(last.settings, stop=settings.stop))], history.cut_off)


def refuse_what_is_forgotten(run: Run) -> None:
    """Raises ConfigurationError for a run that cannot go on, since its model, stop condition or policy is known by its name only."""
    if isinstance(run.agent.model, Remembered):
        run.agent.model.refuse()
    settings = run.limits.snapshot()
    leaves = () if settings.stop is None else settings.stop.leaves(that_count=True)
    for leaf in leaves:
        if isinstance(leaf, Custom) and isinstance(leaf.predicate, Forgotten):
            raise ConfigurationError(
                f"Of the condition {leaf.name!r} only the name was kept: pass the whole stop condition again, resume(…, stop=…). "
                f"It was {settings.stop!r}."
            )
    if isinstance(settings.policy, Forgotten):
        raise ConfigurationError(
            f"Of the policy {settings.policy.__name__!r} only the name was kept: pass it again, resume(…, policy=…)."
        )


# The agent -------------------------------------------------------------------------------------------------------------------


class Remembered:
    """A model of which only the name is known; it can be looked at, and not be asked."""

    def __init__(self, name: str, model: str, tools: list[str]) -> None:
        self.name, self.model, self._tools = name, model, tools

    async def respond(self, request: ModelRequest, context: CallContext) -> ModelResponse:
        """Raises ConfigurationError."""
        self.refuse()
        raise AssertionError

    def refuse(self) -> None:
        """Raises ConfigurationError."""
        tools = f" with its tools ({', '.join(self._tools)})" if self._tools else ""
        raise ConfigurationError(
            f"Of the agent {self.name}:{self.model} only the name was kept: to go on, pass it{tools}, as in "
            "store.resume(run_id, agent)."
        )


def _agent_of(head: dict[str, Any]) -> Agent:
    """The agent that the run had, where it can be made of what is kept: of names alone, see `Agent.is_made_of_names`."""
    provider, model = head["provider"], head["model"]
    more: dict[str, Any] = {name: head[name] for name in ("instructions", "options", "stream")}
    if head["can_be_made_again"]:
        try:
            return Agent(f"{provider}:{model}", name=head["agent"], **more)
        except ConfigurationError:  # a provider of a package that is not installed here
            pass
    return Agent(cast(Any, Remembered(provider, model, head["tools"])), name=head["agent"], **more)


def _checked(agent: Agent, run_id: str, head: dict[str, Any]) -> Agent:
    """The agent, where it is such a one as the run had."""
    had, has = [head["provider"], head["model"]], [agent.model.name, agent.model.model]
    if not same_but_for_keys(had, has):
        raise ConfigurationError(
            f"The run {run_id!r} was of {':'.join(had)}, not of {':'.join(has)}: pass such an agent, or branch the run onto "
            f"this one with store.load({run_id!r}).fork(at=…, agent=…)."
        )
    missing = [
        name for name in head["tools"] if name not in agent.tools and not any(same_but_for_keys(name, own) for own in agent.tools)
    ]
    if missing:
        raise ConfigurationError(
            f"The run {run_id!r} had tools that the agent has not: {', '.join(missing)}. Pass an agent with them."
        )
    return agent

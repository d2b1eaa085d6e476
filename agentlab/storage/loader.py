"""Rebuilds a run from a storage."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, cast

from agentlab.agent import Agent
from agentlab.engine.client import CallContext
from agentlab.engine.plan import RunPlan
from agentlab.engine.snapshot import Ending, Origin, RunPrefix
from agentlab.engine.termination import Policy
from agentlab.errors import ConfigurationError, StorageError
from agentlab.limits.combinators import Custom, as_condition
from agentlab.limits.reading import Reading
from agentlab.limits.settings import RunSettings, as_policy
from agentlab.model import messages as message_json
from agentlab.model.finish_reasons import StopReason
from agentlab.model.requests import ModelRequest
from agentlab.model.responses import ModelResponse
from agentlab.records.history import RunHistory
from agentlab.records.step import StepResult
from agentlab.run import Run
from agentlab.storage import Storage, StoredRun, codec
from agentlab.storage.codec import MissingFunction, equal_when_redacted
from agentlab.storage.interrupted import interrupted_use, interrupted_use_at_end, load_holds
from agentlab.transport import current


def load_run(
    storage: Storage,
    stored: StoredRun,
    agent: Agent | None,
    *,
    stop: object = None,
    policy: Policy | None = None,
    defaults: RunSettings | None = None,
) -> Run:
    """Return the run after its last stored step; its functions are those of the same name in `defaults` or the agent's settings.

    Raises StorageError if the stored data are damaged, ConfigurationError for another agent than the run had.
    """
    try:
        return _load_run(storage, stored, agent, defaults, stop=stop, policy=policy)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
        if isinstance(error, ConfigurationError):
            raise
        raise StorageError(
            f"The stored run {stored.head.run_id!r} is damaged ({type(error).__name__}: {error}): delete or repair it."
        ) from error


def _load_run(
    storage: Storage, stored: StoredRun, agent: Agent | None, defaults: RunSettings | None, *, stop: object, policy: Policy | None
) -> Run:
    run_id, head = stored.head.run_id, json.loads(stored.head.body)
    end = None if stored.end is None else json.loads(stored.end)
    messages = [message_json.made(one) for one in head["messages"]]
    first, marks, happened = len(messages), list[int](), list[Any]()

    def stored_steps() -> Iterator[Any]:  # one at a time: the JSON of a step is freed before the next one is read
        for one in storage.steps(run_id):
            body = codec.restore_results(json.loads(one.body))
            messages.extend(message_json.made(message) for message in body["messages"])
            marks.append(len(messages))
            happened.append(body["events"])  # decoded later: they may refer to later steps
            yield body["step"]

    unfinished = interrupted_use_at_end(end) or interrupted_use(storage, [stored]).get(run_id, ())
    history = RunHistory(_decode_steps(stored_steps()), unfinished)
    agent = _agent_of(head) if agent is None else _checked_agent(agent, run_id, head)
    settings = _settings(head, history, end, defaults or agent.settings, stop=stop, policy=policy)
    history = _with_functions(history, settings)
    happened += [] if end is None else [end["events"]]
    plan = RunPlan(
        agent,
        RunPrefix(head["prompt"], messages, history, tuple(marks), head["prompt_at"], first),
        settings,
        current(),
        inherited=agent.observers,
        origin=Origin(
            forked_at=head["forked_at"],
            parent_step=head.get("parent_step"),
            called_by=head.get("called_by"),
            parent_run_id=head["parent_run_id"],
        ),
        run_id=run_id,
        events=[event for some in happened for event in codec.events_from_jsonable(some, history)],
        holds=load_holds(storage, stored),
        ending=None if end is None else _ending(end),
        ended_at_s=0.0 if end is None else end["at_s"],
    )
    return Run(plan)


def _decode_steps(stored: Iterable[Any]) -> Iterator[StepResult]:
    """Decode the steps; equal settings of successive steps are one object, as they were in the run."""
    before: StepResult | None = None
    settings: object = None
    for one in stored:
        if before is not None and isinstance(one, dict) and one.get("settings") == settings:
            step = replace(codec.from_jsonable(StepResult, {**one, "settings": {}}), settings=before.settings)
        else:
            step = codec.from_jsonable(StepResult, one)
            settings = one.get("settings")
        before = step
        yield step


def _ending(end: dict[str, Any]) -> Ending:
    return Ending(
        StopReason(end["stop_reason"]),
        end["detail"],
        tuple([codec.from_jsonable(Reading, one) for one in end["conditions_met"]]),
        codec.user_value_from_jsonable(end["output"]),
        end["stopped_by"],
        codec.user_value_from_jsonable(end["error"]),
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
    """Return the last settings: of the end, of the last step, or, if the run has taken none since it was stored, of its head."""
    if end is not None and end["settings"] is not None:
        settings = codec.from_jsonable(RunSettings, end["settings"])
    elif history.last is not None and len(history) > head["steps_before"]:
        settings = history.last.settings
    else:
        settings = codec.from_jsonable(RunSettings, head["settings"])
    parts = {name: getattr(own, name) for name in ("stop", "policy", "continuation", "terminating")}  # with their functions
    settings = replace(
        settings, **{name: one for name, one in parts.items() if one is not None and _is_stored_as(one, getattr(settings, name))}
    )
    if stop is not None:
        settings = replace(settings, stop=as_condition(stop))
    return settings if policy is None else replace(settings, policy=as_policy(policy))


def _is_stored_as(value: object, stored: object) -> bool:
    return equal_when_redacted(codec.to_jsonable(stored), codec.to_jsonable(value))


def _with_functions(history: RunHistory, settings: RunSettings) -> RunHistory:
    """Give the last step the stop condition with its functions if it is the same one: next actions depend on that."""
    last = history.last
    if last is None or last.settings.stop in (None, settings.stop) or not _is_stored_as(settings.stop, last.settings.stop):
        return history
    return RunHistory([*history[:-1], replace(last, settings=replace(last.settings, stop=settings.stop))], history.cut_off)


def check_resumable(run: Run) -> None:
    """Raise ConfigurationError if only the name of the run's model, stop condition or policy is stored."""
    if isinstance(run.agent.model, NamedModel):
        run.agent.model.refuse()
    settings = run.limits.snapshot()
    leaves = () if settings.stop is None else settings.stop.leaves(that_count=True)
    for leaf in leaves:
        if isinstance(leaf, Custom) and isinstance(leaf.predicate, MissingFunction):
            raise ConfigurationError(
                f"Only the name of the condition {leaf.name!r} was stored: pass the whole stop condition again, resume(…, stop=…). "
                f"It was {settings.stop!r}."
            )
    if isinstance(settings.policy, MissingFunction):
        raise ConfigurationError(
            f"Only the name of the policy {settings.policy.__name__!r} was stored: pass it again, resume(…, policy=…)."
        )


# The agent -------------------------------------------------------------------------------------------------------------------


class NamedModel:
    """A model of which only the name is known: its run can be read but not resumed."""

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
            f"Only the name of the agent {self.name}:{self.model} was stored: to continue, pass it{tools}, as in "
            "store.resume(run_id, agent)."
        )


def _agent_of(head: dict[str, Any]) -> Agent:
    """Return the run's agent if names alone define it (see `Agent.is_made_of_names`), else one that can only be read."""
    provider, model = head["provider"], head["model"]
    more: dict[str, Any] = {name: head[name] for name in ("instructions", "options", "stream")}
    if head["can_be_made_again"]:
        try:
            return Agent(f"{provider}:{model}", name=head["agent"], **more)
        except ConfigurationError:  # a provider from a package that is not installed here
            pass
    return Agent(cast(Any, NamedModel(provider, model, head["tools"])), name=head["agent"], **more)


def _checked_agent(agent: Agent, run_id: str, head: dict[str, Any]) -> Agent:
    """Return the agent if it has the model and the tools that the run had."""
    had, has = [head["provider"], head["model"]], [agent.model.name, agent.model.model]
    if not equal_when_redacted(had, has):
        raise ConfigurationError(
            f"The run {run_id!r} is of {':'.join(had)}, not of {':'.join(has)}: pass such an agent, or branch the run onto "
            f"this one with store.load({run_id!r}).fork(at=…, agent=…)."
        )
    missing = [name for name in head["tools"] if not any(equal_when_redacted(name, own) for own in agent.tools)]
    if missing:
        raise ConfigurationError(
            f"The run {run_id!r} had tools that the agent does not have: {', '.join(missing)}. Pass an agent with them."
        )
    return agent

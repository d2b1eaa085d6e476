"""Rebuilds a run from its stored data, also if its process ended within a step."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, cast

from agentlab.agent import Agent, Run
from agentlab.engine.client import CallContext
from agentlab.engine.plan import Ending, Hold, Origin, RunPlan, RunPrefix
from agentlab.engine.termination import Policy
from agentlab.errors import ConfigurationError, StorageError
from agentlab.limits.combinators import Custom, as_condition
from agentlab.limits.reading import Reading
from agentlab.limits.settings import RunSettings, as_policy
from agentlab.model import messages as message_json
from agentlab.model.finish_reasons import StopReason
from agentlab.model.messages import ModelRequest, ToolCall
from agentlab.model.responses import ModelResponse
from agentlab.records.history import RunHistory
from agentlab.records.step import ChildUse, StepResult
from agentlab.storage import Storage, StoredRun, codec
from agentlab.storage.codec import MissingFunction, equal_when_redacted
from agentlab.transport import current

# Interrupted steps --------------------------------------------------------------------------------------------------------------
#
# While a step runs, the sub-agents that it has called are in a note beside the run. If the run is loaded or resumed and that step is
# not stored, their usage counts in the run. Once the step has been taken again, they are in its `children`.
#
# Before a tool with `idempotent=False` starts, its call is stored in a note too, since it may have run when the run is resumed. The
# note then keeps the call and the step in which it was repeated, for branches that begin before that step.

SUB_AGENTS_NOTE = "sub-agents of the step under way"
"""The name of the note of sub-agents."""

BEGUN_TOOLS_NOTE = "tools that were begun"
"""The name of the note of tools that may have run."""


def children_note(step: int, children: Iterable[tuple[str, str, str]]) -> dict[str, Any]:
    """Return the note of sub-agents: each with its run's id, the tool call's id and the tool's name."""
    return {"step": step, "children": list(children)}


def holds_note(step: int, holds: Iterable[Hold]) -> dict[str, Any]:
    """Return the note of tools that may have run: each with its call, and the step in which the call was repeated."""
    calls = [
        {"id": hold.call.id, "name": hold.call.name, "arguments": hold.call.arguments, "answered": hold.answered}
        for hold in holds
    ]
    return {"step": step, "calls": calls}


def load_holds(storage: Storage, run: StoredRun) -> tuple[Hold, ...]:
    """Return the calls that were started in the interrupted step, and earlier ones that have been repeated since."""
    text = storage.notes(BEGUN_TOOLS_NOTE, [run.head.run_id]).get(run.head.run_id)
    note: dict[str, Any] = {"step": 0, "calls": ()} if text is None else json.loads(text)
    holds = [
        Hold(ToolCall(call["id"], call["name"], call["arguments"]), call.get("answered")).at(run.steps) for call in note["calls"]
    ]
    return tuple([hold for hold in holds if hold.answered is not None or note["step"] > run.steps])


def interrupted_use(storage: Storage, runs: Iterable[StoredRun]) -> dict[str, tuple[ChildUse, ...]]:
    """Return the usage of sub-agents in the interrupted step of each run, by run id, for runs with such usage."""
    open_runs = {run.head.run_id: run for run in runs if run.end is None}
    notes = storage.notes(SUB_AGENTS_NOTE, list(open_runs)) if open_runs else {}
    found: dict[str, tuple[ChildUse, ...]] = {}
    for run_id, text in notes.items():
        note = json.loads(text)
        if note["step"] > open_runs[run_id].steps:
            uses = [use for child in note["children"] if (use := _use(storage, *child)) is not None]
            found |= {run_id: tuple(uses)} if uses else {}
    return found


def interrupted_use_at_end(end: Mapping[str, Any] | None) -> tuple[ChildUse, ...]:
    """Return the usage of sub-agents in the interrupted step of a run that ended without taking that step again."""
    return () if end is None else tuple([codec.from_jsonable(ChildUse, one) for one in end.get("cut_off", ())])


def find(storage: Storage, run_id: str) -> StoredRun | None:
    """Return the run, or None if it is not stored."""
    try:
        return storage.runs([run_id])[0]
    except StorageError as error:
        if f"no run {run_id!r}" in str(error):
            return None
        raise


def _use(storage: Storage, run_id: str, call_id: str, tool: str) -> ChildUse | None:
    """Return the usage of a sub-agent's run, including its own sub-agents; None if it had not started, or was deleted."""
    run = find(storage, run_id)
    if run is None:
        return None
    end = None if run.end is None else json.loads(run.end)
    forked_at = json.loads(run.head.body)["forked_at"] or 0
    steps = (codec.from_jsonable(StepResult, json.loads(one.body)["step"]) for one in storage.steps(run_id)[forked_at:])
    used = RunHistory(steps, interrupted_use_at_end(end) or interrupted_use(storage, [run]).get(run_id, ()))
    reason = None if end is None else StopReason(end["stop_reason"])
    totals = (len(used), used.calls, used.usage, used.cost, used.known_tokens, used.known_cost_usd)
    return ChildUse(run_id, call_id, tool, f"{tool} (cut off)", reason, *totals, cut_off=True)


# Runs ---------------------------------------------------------------------------------------------------------------------------


def load_run(
    storage: Storage,
    stored: StoredRun,
    agent: Agent | None,
    *,
    stop: object = None,
    policy: Policy | None = None,
    defaults: RunSettings | None = None,
) -> Run:
    """Return the run after its last stored step; its functions are those of the same name in `defaults` or in the agent's settings.

    Raises StorageError if the stored data is damaged, ConfigurationError if the agent does not fit the run.
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

    def stored_steps() -> Iterator[Any]:  # one at a time: the JSON of a step is freed before the next step is read
        for step in storage.steps(run_id):
            body = codec.restore_results(json.loads(step.body))
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
    """Decode the steps; equal settings of successive steps become one object, as they were in the run."""
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
    """Return the latest settings: those of the run's end, else those of its last step, else those of its head (for a run without a step
    since it was first stored)."""
    if end is not None and end["settings"] is not None:
        settings = codec.from_jsonable(RunSettings, end["settings"])
    elif history.last is not None and len(history) > head["steps_before"]:
        settings = history.last.settings
    else:
        settings = codec.from_jsonable(RunSettings, head["settings"])
    parts = {name: getattr(own, name) for name in ("stop", "policy", "continuation", "terminating")}  # with their functions
    same = {name: part for name, part in parts.items() if part is not None and _is_stored_as(part, getattr(settings, name))}
    settings = replace(settings, **same)
    if stop is not None:
        settings = replace(settings, stop=as_condition(stop))
    return settings if policy is None else replace(settings, policy=as_policy(policy))


def _is_stored_as(value: object, stored: object) -> bool:
    return equal_when_redacted(codec.to_jsonable(stored), codec.to_jsonable(value))


def _with_functions(history: RunHistory, settings: RunSettings) -> RunHistory:
    """Give the last step the stop condition with its functions, if it is the same condition; next actions compare the two."""
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
    """A model that was stored by its name only: its run can be read but not resumed."""

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
    """Return the run's agent if names alone define it (see `Agent.is_made_of_names`), else an agent that can only be read."""
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
            f"The run {run_id!r} used {':'.join(had)}, but the agent uses {':'.join(has)}: pass an agent with the run's model, or "
            f"branch the run onto this agent with store.load({run_id!r}).fork(at=…, agent=…)."
        )
    missing = [name for name in head["tools"] if not any(equal_when_redacted(name, own) for own in agent.tools)]
    if missing:
        raise ConfigurationError(
            f"The run {run_id!r} had tools that the agent does not have: {', '.join(missing)}. Pass an agent with these tools."
        )
    return agent

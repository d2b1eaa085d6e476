"""Rebuilds a run from its stored data, also if its process ended within a step."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, cast

from agentlab.agent import Agent, Run
from agentlab.engine.client import CallContext
from agentlab.engine.control import Given, PendingCall
from agentlab.engine.plan import Ending, Hold, Origin, RunPlan, RunPrefix, SuspendedStep
from agentlab.engine.termination import Policy
from agentlab.errors import ConfigurationError, StorageError
from agentlab.limits.combinators import Custom, StopCondition, as_condition
from agentlab.limits.reading import Reading
from agentlab.limits.settings import RunSettings, as_approve, as_policy
from agentlab.model import messages as message_json
from agentlab.model.finish_reasons import StopReason
from agentlab.model.messages import ModelRequest, Parameters, ToolCall
from agentlab.model.parts import hold
from agentlab.model.responses import ModelResponse
from agentlab.records.history import RunHistory
from agentlab.records.provenance import Setup, parameters_of
from agentlab.records.step import ChildUse, StepResult
from agentlab.storage import Storage, StoredRun, codec
from agentlab.storage.base import PART_NOTE
from agentlab.storage.codec import MissingFunction, equal_when_redacted
from agentlab.tools.outputs import OutputType
from agentlab.transport import current

# Interrupted steps --------------------------------------------------------------------------------------------------------------
#
# While a step runs, the sub-agents that it has called are in a note beside the run. If the run is loaded or resumed and that step is
# not stored, their usage counts in the run. Once the step has been taken again, they are in its `children`.
#
# Before a tool with `idempotent=False` starts, its call is stored in a note too, since it may have run when the run is resumed. The
# note then keeps the call and the step in which it was repeated, for branches that begin before that step.
#
# A step that waits for approval is kept in a note with all it has so far, the calls that were asked about, and the decisions. It is
# written again with each decision, each pause, and before and after each further tool call. The time from the note until the run is
# loaded counts, unless the run was paused. If a call was begun and has no result, it may have run: its decision is dropped, and the
# person is asked again.

SUB_AGENTS_NOTE = "sub-agents of the step under way"
"""The name of the note of sub-agents: each with its run's id, the tool call's id and the tool's name."""

WAITING_NOTE = "step that waits for approval"
"""The name of the note of a step that waits for approval, with the decisions so far."""

BEGUN_TOOLS_NOTE = "tools that were begun"
"""The name of the note of tools that may have run."""

RESUMED_NOTE = "processes that resumed the run"
"""The name of the note of the processes that resumed a run, as far as their versions or commits differ from those before."""


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


def load_waiting(storage: Storage, run: StoredRun) -> dict[str, Any] | None:
    """Return the note of the step that waits for approval, if that step is not stored since."""
    text = storage.notes(WAITING_NOTE, [run.head.run_id]).get(run.head.run_id) if run.end is None else None
    note: dict[str, Any] | None = None if text is None else json.loads(text)
    return note if note is not None and note["step"] == run.steps + 1 else None


def _suspended(note: dict[str, Any], run_id: str, step: StepResult) -> SuspendedStep:
    asked = [codec.from_jsonable(PendingCall, one) for one in note["asked"]]
    given = {call_id: codec.from_jsonable(Given, one) for call_id, one in note["given"].items()}
    done = {result.call_id for result in step.tool_results}
    since = datetime.now(UTC) if note["paused"] else datetime.fromisoformat(note["at"])
    if (begun := note["begun"]) and begun not in done:
        given.pop(begun, None)
        call = next(one for one in step.tool_calls if one.id == begun)
        since = datetime.now(UTC)
        why = "it was begun before, and its process ended: it may have run already"
        again = PendingCall(call.id, call.name, call.arguments, step.index, why, since, run_id)
        asked = [one for one in asked if one.call_id != begun] + [again]
    waits_at = next((call.id for call in step.tool_calls if call.id not in done), None)
    return SuspendedStep(step, tuple(asked), given, waits_at if any(one.call_id == waits_at for one in asked) else None, since)


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
    approve: object = None,
    defaults: RunSettings | None = None,
) -> Run:
    """Return the run after its last stored step; its functions are those of the same name in `defaults` or in the agent's settings.

    Raises StorageError if the stored data is damaged, ConfigurationError if the agent does not fit the run.
    """
    try:
        return _load_run(storage, stored, agent, defaults, stop=stop, policy=policy, approve=approve)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
        if isinstance(error, ConfigurationError):
            raise
        raise StorageError(
            f"The stored run {stored.head.run_id!r} is damaged ({type(error).__name__}: {error}): delete or repair it."
        ) from error


def _load_run(
    storage: Storage,
    stored: StoredRun,
    agent: Agent | None,
    defaults: RunSettings | None,
    *,
    stop: object,
    policy: Policy | None,
    approve: object,
) -> Run:
    run_id, head = stored.head.run_id, json.loads(stored.head.body)
    held = dict[str, object]()  # keeps the bytes until the messages have them
    load_parts(storage, run_id, stored.head.body, held)
    end = None if stored.end is None else json.loads(stored.end)
    messages = [message_json.made(one) for one in head["messages"]]
    first, marks, happened = len(messages), list[int](), list[Any]()

    def stored_steps() -> Iterator[Any]:  # one at a time: the JSON of a step is freed before the next step is read
        for step in storage.steps(run_id):
            load_parts(storage, run_id, step.body, held)
            body = codec.restore_results(json.loads(step.body))
            messages.extend(message_json.made(message) for message in body["messages"])
            marks.append(len(messages))
            happened.append(body["events"])  # decoded later: they may refer to later steps
            yield body["step"]

    note, waiting = load_waiting(storage, stored), None
    if note is not None:
        load_parts(storage, run_id, json.dumps(note["body"]), held)
        waiting = _suspended(note, run_id, codec.from_jsonable(StepResult, codec.restore_results(note["body"])["step"]))
    unfinished = interrupted_use_at_end(end) or interrupted_use(storage, [stored]).get(run_id, ())
    holds = load_holds(storage, stored)
    if waiting is not None:  # its sub-agents and tools that have ended are in it
        counted = {child.run_id for child in waiting.step.children if not child.cut_off}
        unfinished = tuple([use for use in unfinished if use.run_id not in counted])
        done = {result.call_id for result in waiting.step.tool_results}
        holds = tuple([hold for hold in holds if hold.answered is not None or hold.call.id not in done])
    history = RunHistory(_decode_steps(stored_steps()), unfinished)
    if note is not None:
        messages.extend(message_json.made(message) for message in note["body"]["messages"])
        happened.append(note["body"]["events"])
    agent = _agent_of(head) if agent is None else _checked_agent(agent, run_id, head)
    latest = None if waiting is None else waiting.step.settings
    settings = _settings(head, history, end, latest, defaults or agent.settings, stop=stop, policy=policy)
    if approve is not None:
        settings = replace(settings, approve=as_approve(approve, agent.tools))
    history = _with_functions(history, settings)
    happened += [] if end is None else [end["events"]]
    plan = RunPlan(
        agent,
        RunPrefix(head["prompt"], messages, history, tuple(marks), head["prompt_at"], first, tuple(head.get("asked_at", ()))),
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
        holds=holds,
        approver=agent.approver,
        suspended=waiting,
        ending=None if end is None else _ending(end, agent.output_type),
        ended_at_s=0.0 if end is None else end["at_s"],
        setup=load_setup(storage, run_id, head),
    )
    return Run(plan)


def load_setup(storage: Storage, run_id: str, head: Mapping[str, Any]) -> Setup:
    """Return what the run began with; stores of earlier versions have its parameters only."""
    later = json.loads(storage.notes(RESUMED_NOTE, [run_id]).get(run_id, "[]"))
    made = head.get("made") or {"parameters": parameters_of(head.get("parameters") or {}, head["options"], stream=head["stream"])}
    return Setup.from_dict(made, later)


def load_parts(storage: Storage, run_id: str, text: str, held: dict[str, object]) -> None:
    """Read the bytes of the images and files that a stored text refers to, if they are not there yet, into `held`."""
    for sha256 in _PART.findall(text):
        if sha256 not in held and (found := storage.notes(PART_NOTE + sha256, [run_id])):
            held[sha256] = hold(base64.b64decode(found[run_id]))


_PART = re.compile(r'"sha256":\s*"([0-9a-f]{64})"')


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


def _ending(end: dict[str, Any], output_type: OutputType | None) -> Ending:
    output = codec.user_value_from_jsonable(end["output"])
    return Ending(
        StopReason(end["stop_reason"]),
        end["detail"],
        tuple([codec.from_jsonable(Reading, one) for one in end["conditions_met"]]),
        output if output_type is None or output is None else output_type.accept(output),
        end["stopped_by"],
        codec.user_value_from_jsonable(end["error"]),
    )


# Settings --------------------------------------------------------------------------------------------------------------------


def _settings(
    head: dict[str, Any],
    history: RunHistory,
    end: dict[str, Any] | None,
    latest: RunSettings | None,
    own: RunSettings,
    *,
    stop: object,
    policy: Policy | None,
) -> RunSettings:
    """Return the latest settings: those of the run's end, else of the step that waits for approval, else of its last step, else of its
    head (for a run without a step since it was first stored)."""
    if end is not None and end["settings"] is not None:
        settings = codec.from_jsonable(RunSettings, end["settings"])
    elif latest is not None:
        settings = latest
    elif history.last is not None and len(history) > head["steps_before"]:
        settings = history.last.settings
    else:
        settings = codec.from_jsonable(RunSettings, head["settings"])
    parts = {
        name: getattr(own, name) for name in ("stop", "policy", "continuation", "terminating", "approve")
    }  # with their functions
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
    """Raise ConfigurationError if only the name of the run's model, policy, or a function of its conditions is stored."""
    if isinstance(run.agent.model, NamedModel):
        run.agent.model.refuse()
    settings = run.limits.snapshot()
    _check_functions("stop condition", "stop", settings.stop, [] if settings.stop is None else [settings.stop])
    _check_functions("list", "approve", list(settings.approve), settings.approve)
    if isinstance(settings.policy, MissingFunction):
        raise ConfigurationError(
            f"Only the name of the policy {settings.policy.__name__!r} was stored: pass it again, resume(…, policy=…)."
        )


def _check_functions(what: str, argument: str, value: object, conditions: Iterable[object]) -> None:
    for condition in conditions:
        for leaf in condition.leaves(that_count=True) if isinstance(condition, StopCondition) else ():
            if isinstance(leaf, Custom) and isinstance(leaf.predicate, MissingFunction):
                raise ConfigurationError(
                    f"Only the name of the condition {leaf.name!r} was stored: pass the whole {what} again, resume(…, {argument}=…). "
                    f"It was {value!r}."
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
    agent = None
    if head["can_be_made_again"]:
        with suppress(ConfigurationError):  # a provider from a package that is not installed here
            agent = Agent(f"{provider}:{model}", name=head["agent"], **more)
    agent = agent or Agent(cast(Any, NamedModel(provider, model, head["tools"])), name=head["agent"], **more)
    agent.parameters = Parameters(**(head.get("parameters") or {}))
    return agent


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

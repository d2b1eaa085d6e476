"""A run as frozen values: the plan that it begins with, its first steps for a fork, why it ended, and its snapshot for stores."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Generic, Protocol, TypeAlias, TypeVar, cast

from agentlab._internal.values import dataclass
from agentlab.engine.client import Model
from agentlab.engine.control import Given, PendingCall
from agentlab.errors import ConfigurationError
from agentlab.limits.policies import TerminatingTools
from agentlab.limits.reading import Reading
from agentlab.limits.settings import RunSettings
from agentlab.model.conversation import Conversation
from agentlab.model.finish_reasons import FinishReason, StopReason
from agentlab.model.messages import JSON, Message, ModelRequest, Parameters, ToolCall, ToolResult, ToolSpec, user_message
from agentlab.model.parts import Content, split
from agentlab.model.responses import ModelResponse
from agentlab.records.events import Event, RunObserver
from agentlab.records.history import RunHistory
from agentlab.records.provenance import LazySetup, Setup
from agentlab.records.result import INCREASE_BUDGET, RunResult
from agentlab.records.step import StepResult
from agentlab.tools import Tool
from agentlab.tools.outputs import OutputType
from agentlab.transport import Transport

Ask: TypeAlias = Callable[[ModelRequest], Awaitable[ModelResponse]]
RunTool: TypeAlias = Callable[[ToolCall], Awaitable[ToolResult]]
Blame: TypeAlias = Callable[[str, Exception], None]

R = TypeVar("R")

LAST_ANSWER = (
    "The budget of this run is nearly used up. Give your final answer now, from what you have found so far. "
    "You cannot call tools any more."
)
LIMIT_RAISED = "The budget of this run was raised. Continue with the task; you may call tools again."
"""Do not change prompts: recordings are matched by them."""


class AgentSpec(Protocol):
    """What the engine needs of an agent; documented in `lab.Agent`."""

    model: Model
    name: str
    instructions: str
    tools: Mapping[str, Tool]
    tool_specs: tuple[ToolSpec, ...]
    parameters: Parameters
    options: Mapping[str, JSON]
    stream: bool
    observers: tuple[RunObserver, ...]
    max_depth: int | None
    output_type: OutputType | None
    output_retries: int
    middleware: Any
    tool_middleware: Any

    def with_model(self, model: Any) -> Any:
        """Return the same agent on another model."""

    def known_terminating(self, terminating: TerminatingTools | None) -> TerminatingTools | None:
        """Check that the agent has these tools."""

    def through_middleware(self, ask: Ask, blame: Blame) -> Ask:
        """Return `ask` with the middleware around it; `blame` is called with the source of an exception."""
        ...

    def through_tool_middleware(self, execute: RunTool, blame: Blame) -> RunTool:
        """Return `execute` with the middleware around it."""
        ...


@dataclass(frozen=True, slots=True)
class Ending:
    """Why the run ends, with the fields of RunResult."""

    stop_reason: StopReason
    detail: str
    conditions_met: tuple[Reading, ...] = ()
    output: object = None
    stopped_by: str = ""
    error: BaseException | None = None


@dataclass(frozen=True, slots=True)
class Origin(Generic[R]):
    """Where a run came from: a fork of another run, a tool call of another run, or neither.

    `parent` is the run that it was forked from, `forked_at` the number of steps that it took over. `caller` is the run whose tool
    started it, in step `parent_step` by the tool call `called_by`. `parent_run_id` is the id of the parent, or else of the caller; a
    run from a store has it even if those runs are not loaded. All are None for a run that is neither a fork nor a child.

    Example:
        >>> branch = ended.fork(at=2)
        >>> branch.origin.parent is ended, branch.origin.forked_at
        (True, 2)
    """

    parent: R | None = None
    forked_at: int | None = None
    caller: R | None = None
    parent_step: int | None = None
    called_by: str | None = None
    parent_run_id: str | None = None


@dataclass(frozen=True, slots=True)
class Hold:
    """A tool call that may have run before its process died in the middle of the step: it is not repeated without permission.

    `answered` is the step in which the tool was called again, None before that. A branch that begins before that step has the hold
    too. `by` is the id of that call: if a middleware executes the same call twice, both are held.
    """

    call: ToolCall
    answered: int | None = None
    by: str = ""

    def at(self, steps: int) -> Hold:
        """Return the hold as it was after this number of steps."""
        return self if self.answered is None or self.answered <= steps else Hold(self.call)


@dataclass(frozen=True, slots=True)
class RunPrefix:
    """The beginning of a run, up to some step.

    `marks` are the lengths of the conversation after each step, `first_length` is its length before the first step, and `prompt_at` is
    the index of the prompt in it. `asked_at` are the steps after which a fork added a message.
    """

    prompt: str
    messages: Sequence[Message]
    history: RunHistory
    marks: Sequence[int]
    prompt_at: int
    first_length: int
    asked_at: tuple[int, ...] = ()

    @classmethod
    def of_messages(cls, messages: Sequence[Message]) -> RunPrefix:
        """Return the beginning of a run without steps. Its prompt is the newest message that is not from the model or a tool."""
        places = range(len(messages) - 1, -1, -1)
        place = next((at for at in places if messages[at].role not in ("assistant", "tool")), None)
        prompt = "" if place is None else messages[place].text
        return cls(prompt, messages, RunHistory(), (), len(messages) - 1 if place is None else place, len(messages))

    def messages_of(self, step: int) -> Sequence[Message]:
        """Return the messages that this step added; 0 returns those before the first step."""
        steps, marks = len(self.history), self.marks
        if isinstance(step, bool) or not isinstance(step, int) or not 0 <= step <= steps:
            raise ConfigurationError(f"messages_of({step!r}): give the number of a step, 0 to {steps}.")
        begin = 0 if step == 0 else self.first_length if step == 1 else marks[step - 2]
        end = self.first_length if step == 0 else marks[step - 1] if step <= len(marks) else len(self.messages)
        return self.messages[begin:end]

    def until(self, at: int) -> RunPrefix:
        """Return the first `at` steps. Raises ConfigurationError if there are fewer."""
        if isinstance(at, bool) or not isinstance(at, int) or not 0 <= at <= len(self.marks):
            raise ConfigurationError(f"fork(at={at!r}): give the number of steps to keep, 0 to {len(self.marks)}.")
        history = self.history.prefix(at)
        if history.last is not None:  # the stop reason of this run does not apply to the branch
            history.amend(replace(history.last, stop_reason=None))
        length = self.marks[at - 1] if at else self.first_length
        asked_at = tuple([step for step in self.asked_at if step <= at])
        return replace(
            self, messages=tuple(self.messages[:length]), history=history, marks=tuple(self.marks[:at]), asked_at=asked_at
        )

    def reopened(self) -> RunPrefix:
        """Return the same with the last step under way: not in the history, and its tool calls without results."""
        messages = self.messages[:-1] if self.messages[-1].role == "tool" else self.messages
        return replace(self, messages=messages, history=self.history.prefix(len(self.history) - 1), marks=self.marks[:-1])

    def with_prompt(self, prompt: Content) -> RunPrefix:
        """Replace the prompt; other text keeps the parts whose lines it has. Raises ConfigurationError for an empty one."""
        made = user_message(prompt, "fork(prompt={!r}): pass the task as text, or omit it to keep the run's prompt.")
        before, after = self.messages[: self.prompt_at], self.messages[self.prompt_at + 1 :]
        replaced = self.messages[len(before) : len(before) + 1]
        if isinstance(prompt, str) and replaced:
            made = replace(made, parts=tuple([part for part in split(made.text, replaced[0].parts) if not isinstance(part, str)]))
        return replace(self, prompt=made.text, messages=(*before, made, *after))

    def with_message(self, message: Content) -> RunPrefix:
        """Append a user message. After a last answer, a note says that tools may be called again. Raises ConfigurationError for an
        empty one."""
        made = user_message(message, "fork(message={!r}): pass a message to the model as text, or omit it.")
        last = self.history.last
        before = self if last is None or not last.last_answer else self._followed_by(Message("system", LIMIT_RAISED))
        return replace(before._followed_by(made), asked_at=(*self.asked_at, len(self.history)))

    def with_tool_results(self, given: Mapping[str, Content]) -> RunPrefix:
        """Replace results of the last step's tools, by the ids of their calls. Raises ConfigurationError for an unknown id."""
        place, open_message = self._newest_tool_message()
        known = [result.call_id for result in open_message.tool_results]
        for call_id, text in given.items():
            if call_id not in known:
                step = f"Step {len(self.history)} has" if known else "The newest step that is kept has no tool call:"
                raise ConfigurationError(
                    f"fork(tool_results={{{call_id!r}: …}}): {step} {', '.join(map(repr, known)) or 'none'}."
                )
            if not isinstance(text, str | list | tuple):
                raise ConfigurationError(f"fork(tool_results={{{call_id!r}: {text!r}}}): pass the result as text.")
        results = [_as_given(result, given) for result in open_message.tool_results]
        messages = list(self.messages)
        last = self.history.last
        if last is None or not given:
            return self
        messages[place] = replace(open_message, tool_results=tuple(results))
        executed = {result.call_id for result in last.tool_results}
        history = self.history.prefix(len(self.history))
        history.amend(
            replace(last, tool_results=tuple([one for one in results if one.call_id in executed or one.call_id in given]))
        )
        return replace(self, messages=tuple(messages), history=history)

    def answerable(self, hint: str) -> RunPrefix:
        """Make sure that the model has something to answer: most providers reject a conversation that ends with the model's answer.

        If the answer was cut off, append the `hint` that asks for the rest. If the provider paused, the conversation is sent back
        unchanged. Raises ConfigurationError if the model had finished.
        """
        last, newest = self.history.last, self.messages[-1] if self.messages else None
        if last is None or newest is None or newest.role != "assistant" or not newest.text.strip():
            return self
        if last.finish_reason is FinishReason.PAUSED:
            return self
        is_cut = last.finish_reason is FinishReason.MAX_TOKENS or last.decision.suggestion == INCREASE_BUDGET  # half a tool call
        if is_cut and last.decision.stop_reason is not StopReason.COMPLETED:
            return self._followed_by(Message("system", hint))
        at = len(self.history)
        raise ConfigurationError(
            f"fork(at={at}): the model finished with step {at} ({last.decision.reason.rstrip('.')}), so there is nothing to ask it. "
            f"Add message=…, or keep fewer steps (at={at - 1}) to take step {at} again."
        )

    def conversation(self) -> Conversation:
        """Return the messages as a mutable conversation."""
        return Conversation(self.messages)

    def _followed_by(self, message: Message) -> RunPrefix:
        """Append a message. A branch of the branch at the same step has it too."""
        messages = (*self.messages, message)
        if not self.marks:
            return replace(self, messages=messages, first_length=len(messages))
        return replace(self, messages=messages, marks=(*self.marks[:-1], len(messages)))

    def _newest_tool_message(self) -> tuple[int, Message]:
        begin = self.marks[-2] if len(self.marks) > 1 else self.first_length
        places = range(len(self.messages) - 1, begin - 1, -1) if self.marks else ()
        found = next((place for place in places if self.messages[place].role == "tool"), None)
        return (0, Message("tool")) if found is None else (found, self.messages[found])


def _as_given(result: ToolResult, given: Mapping[str, Content]) -> ToolResult:
    if result.call_id not in given:
        return result
    text = given[result.call_id]
    return replace(result, content=cast(str, text), value=text, error=None, stop=None)  # a list is joined


@dataclass(frozen=True, slots=True)
class SuspendedStep:
    """A step that waits for approval, from a store or from the run that is branched: what it has so far, the calls that were asked
    about, and the decisions.

    `since` is when the step was noted: the time since then counts. None: it counts from the first step of the branch.
    """

    step: StepResult
    asked: tuple[PendingCall, ...]
    given: Mapping[str, Given]
    waits_at: str | None
    since: datetime | None = None


NO_ORIGIN: Origin[Any] = Origin()
"""The origin of a run that is neither a fork nor a child."""


@dataclass(frozen=True, slots=True)
class RunPlan:
    """What a run begins with. A new run has an agent, a prompt, settings and a transport. A fork also has steps and an origin. A run
    from a store also has its id, its events, and its ending if it ended.

    `observers` receive the events of the run, `inherited` those of its forks and child runs; None means the same observers. `setup` is
    that of a run from a store.
    """

    agent: AgentSpec
    prefix: RunPrefix
    settings: RunSettings
    transport: Transport
    observers: Sequence[RunObserver] = ()
    inherited: Sequence[RunObserver] | None = None
    origin: Origin[Any] = NO_ORIGIN
    run_id: str | None = None
    events: Sequence[Event] = ()
    holds: tuple[Hold, ...] = ()
    again: Callable[[ToolCall], object] | None = None
    approver: Callable[[PendingCall], object] | None = None
    suspended: SuspendedStep | None = None
    ending: Ending | None = None
    ended_at_s: float = 0.0
    setup: Setup | None = None


@dataclass(frozen=True, slots=True)
class RunSnapshot:
    """A run at one moment, for stores and forks. The cost of taking one does not depend on the length of the run.

    `prefix` holds the conversation and the history. Both may grow afterwards; `steps` is the number of steps that are complete now.
    `result` is None while the run is running. If the run ends with its last step, the result is set before RunEnded is emitted.
    """

    run_id: str
    agent: AgentSpec
    prefix: RunPrefix
    steps: int
    settings: RunSettings
    events: Sequence[Event]
    result: RunResult | None
    elapsed_s: float
    origin: Origin[Any]
    holds: tuple[Hold, ...]
    setup: LazySetup

"""An agent: a model with tools and instructions. It has no state; `agent.run(prompt)` creates a Run, which holds the state.

The methods of a Run are in `agentlab.run`.
"""

from __future__ import annotations

import copy
import types
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, cast, overload

from agentlab._internal.asyncio_tools import name_of
from agentlab._internal.display import Displayable
from agentlab._internal.names import did_you_mean, helps_with_keywords, hint_for
from agentlab._internal.safe_text import one_line
from agentlab.engine import call_context
from agentlab.engine.client import HttpModel, Model, RetryPolicy
from agentlab.engine.control import Approval, PendingCall
from agentlab.engine.plan import RunPlan, RunPrefix
from agentlab.engine.termination import Policy
from agentlab.engine.timeline import refuse_async
from agentlab.engine.unreachable import never_met, warn_of
from agentlab.errors import ConfigurationError, LimitError, ToolDefinitionError
from agentlab.limits.budget import Budget
from agentlab.limits.combinators import as_condition
from agentlab.limits.policies import CONTINUATION, ContinuationPolicy, TerminatingTools
from agentlab.limits.settings import RunSettings, as_approve, as_budget, as_continuation, as_policy, as_terminating
from agentlab.model.conversation import Conversation
from agentlab.model.messages import JSON, Effort, Message, ModelRequest, Parameters, ToolCall, ToolResult, ToolSpec, user_message
from agentlab.model.parts import Content
from agentlab.model.responses import ModelResponse
from agentlab.providers.base import Provider, checked_parameters
from agentlab.providers.registry import resolve
from agentlab.records.events import RunObserver
from agentlab.records.result import Out
from agentlab.run import Run as RunOf
from agentlab.tools import Function, McpServer, Tool, as_tools
from agentlab.tools.outputs import FINAL_ANSWER, OutputType, output_type
from agentlab.transport import Transport, current

if TYPE_CHECKING:
    from typing_extensions import TypedDict, Unpack

    class _Keywords(TypedDict, total=False):
        """The keywords of an Agent besides `output`, for type checkers."""

        tools: Iterable[Tool | Function | McpServer]
        output_retries: int
        instructions: str
        budget: Budget | None
        stop: object
        policy: Policy | None
        continuation: ContinuationPolicy | None
        terminating: TerminatingTools | Sequence[str | Tool | Function] | None
        approve: object
        approver: Approver | None
        stream: bool
        temperature: float | None
        seed: int | None
        reasoning_effort: Effort | None
        tool_choice: str | None
        parallel_tool_calls: bool | None
        options: Mapping[str, JSON] | None
        middleware: Sequence[Middleware]
        tool_middleware: Sequence[ToolMiddleware]
        retry: RetryPolicy | None
        http_client: Any
        observers: Sequence[RunObserver]
        name: str | None
        max_depth: int | None


G = TypeVar("G")
T = TypeVar("T")
F = TypeVar("F")

Ask: TypeAlias = Callable[[ModelRequest], Awaitable[ModelResponse]]
Middleware: TypeAlias = Callable[[ModelRequest, Ask], Awaitable[ModelResponse]]
"""Wraps each model call: takes the request and the next function to call, returns the response; may raise StopRequested."""
RunTool: TypeAlias = Callable[[ToolCall], Awaitable[ToolResult]]
ToolMiddleware: TypeAlias = Callable[[ToolCall, RunTool], Awaitable[ToolResult]]
"""Wraps each tool call: takes the call and the function that executes it, returns the result; may raise StopRequested."""
Blame: TypeAlias = Callable[[str, Exception], None]
Approver: TypeAlias = Callable[[PendingCall], "bool | Approval | Awaitable[bool | Approval]"]
"""Decides on a tool call that waits for approval: True, False or an Approval."""


class Agent(Displayable, Generic[Out]):
    """A model with tools and instructions.

        agent = lab.Agent("anthropic:claude-sonnet-4-6", tools=[search, finalize], instructions="…")
        result = await agent.run("Compare …", stop=StepCountIs(8), budget=Budget(max_cost=0.05))

    model         `provider:model`, a `lab.Provider(…)`, or any object with `respond` (see agentlab.testing)
    tools         functions with annotations, sync or async, `lab.tool(…)` of one, or classes made from pydantic's BaseModel
    output        the type of the answer: a pydantic model, a dataclass, a TypedDict, or a union of these. `result.output` is then a
                  value of it, or None if the run was cut off. The model gets its schema by the structured output of its API, or as
                  a tool named `final_answer`
    output_retries  how often the model is asked again for an answer that fits; each time is a step
    budget, stop  defaults for its runs; the default budget is `Budget(max_turns=20)`
    policy        a function `(signal, context) -> Decision`, sync or async, default for its runs: decides what to do with a response
    continuation  a ContinuationPolicy, default for its runs: limits the calls that continue a truncated answer; None: no continuation
    terminating   names of the tools that end a run, or TerminatingTools: if an answer calls no tool, the model is reminded
    approve       tools or patterns of their names, default for its runs: a person is asked before such a tool is called; True:
                  before every tool; a stop condition among them: before every tool once it is met
    approver      a function `(call) -> decision`, sync or async, that decides on these calls; see `lab.Approval`. A run without
                  `approve` and without sub-agents that begins with an approver warns
    stream        True to request the answer as a stream
    temperature   from 0 to 2; Anthropic's models take at most 1
    seed          makes sampling repeatable, as far as the server can
    reasoning_effort   how much the model reasons: none, minimal, low, medium, high, xhigh or max
    tool_choice   `auto`, `required`, `none` or the name of a tool, in each request: with `required` or a name, the run ends with a
                  terminating tool or a limit
    parallel_tool_calls   False: the model calls at most one tool per answer
                  A value that the provider or the model is known to refuse raises ConfigurationError before anything is sent
    options       further fields of the provider's request body, such as {"top_p": 0.9}
    middleware    async functions `(request, ask) -> response` around each model call, the first outermost
    tool_middleware   async functions `(call, execute) -> result` around each tool call: they may change the arguments or the result,
                  return a different `ToolResult`, or end the run with StopRequested
    retry         how failed calls are retried
    http_client   your own `httpx.AsyncClient`, or one of httpx2, for a `provider:model` string; see `lab.Provider`
    observers     callables that receive every event of every run
    name          the agent's name in panels, reports, and the frames of experiments; the name of the model by default
    max_depth     depth of child runs below an outermost run of this agent: 3 allows a sub-agent of a sub-agent of a sub-agent;
                  0: none; None: no limit

    Example:
        >>> with lab.replay("fixtures/trip"):
        ...     result = await agent.run(TASK, budget=lab.Budget(max_cost=0.05))
        >>> result.stop_reason, len(result.history), result.cost.usd
        (<StopReason.STOP_CONDITION: 'stop_condition'>, 4, Decimal('0.014346'))
    """

    model: Model
    tools: Mapping[str, Tool]
    tool_specs: tuple[ToolSpec, ...]
    instructions: str
    settings: RunSettings
    stream: bool
    options: Mapping[str, JSON]
    middleware: tuple[Middleware, ...]
    tool_middleware: tuple[ToolMiddleware, ...]
    observers: tuple[RunObserver, ...]
    name: str
    max_depth: int | None = call_context.MAX_DEPTH  # these five for agents pickled before they existed
    approver: Approver | None = None
    parameters: Parameters = Parameters()
    output_type: OutputType | None = None
    output_retries: int = 2

    @overload
    def __init__(self: Agent[T | None], model: str | Provider | Model, *, output: type[T], **more: Unpack[_Keywords]) -> None: ...
    @overload
    def __init__(self, model: str | Provider | Model, *, output: Any = None, **more: Unpack[_Keywords]) -> None: ...
    @helps_with_keywords
    def __init__(
        self,
        model: str | Provider | Model,
        *,
        tools: Iterable[Tool | Function | McpServer] = (),
        output: Any = None,
        output_retries: int = 2,
        instructions: str = "",
        budget: Budget | None = None,
        stop: object = None,
        policy: Policy | None = None,
        continuation: ContinuationPolicy | None = CONTINUATION,
        terminating: TerminatingTools | Sequence[str | Tool | Function] | None = None,
        approve: object = None,
        approver: Approver | None = None,
        stream: bool = False,
        temperature: float | None = None,
        seed: int | None = None,
        reasoning_effort: Effort | None = None,
        tool_choice: str | None = None,
        parallel_tool_calls: bool | None = None,
        options: Mapping[str, JSON] | None = None,
        middleware: Sequence[Middleware] = (),
        tool_middleware: Sequence[ToolMiddleware] = (),
        retry: RetryPolicy | None = None,
        http_client: Any = None,
        observers: Sequence[RunObserver] = (),
        name: str | None = None,
        max_depth: int | None = call_context.MAX_DEPTH,
    ) -> None:
        if not isinstance(instructions, str):
            raise ConfigurationError(f"instructions={instructions!r}: pass text.")
        if retry is not None and not isinstance(retry, RetryPolicy):
            raise ConfigurationError(
                f"retry={retry!r}: pass lab.RetryPolicy(attempts=4), for example; attempts=1 means no retry."
            )
        self.model = _as_model(model, retry or RetryPolicy(), http_client)
        self.tools = types.MappingProxyType(as_tools(tools))
        self.tool_specs = tuple([tool.spec for tool in self.tools.values()])
        self.instructions = instructions
        self.output_type = self._as_output_type(output)
        self.output_retries = _checked_retries(output_retries)
        self.settings = replace(RunSettings(), continuation=as_continuation(continuation))
        self.settings = self.settings_for(budget=budget, stop=stop, policy=policy, terminating=terminating, approve=approve)
        self.approver = _as_approver(approver)
        self.stream = stream
        parameters = Parameters(temperature, seed, reasoning_effort, tool_choice, parallel_tool_calls)
        self.parameters = checked_parameters(parameters, tuple(self.tools))
        if options is not None and not isinstance(options, Mapping):
            raise ConfigurationError(f'options={options!r}: pass a dict, such as {{"top_p": 0.9}}.')
        self.options = types.MappingProxyType(dict(options or {}))
        self.middleware = _functions("middleware", middleware)
        self.tool_middleware = _functions("tool_middleware", tool_middleware)
        self.observers = _functions("observers", observers)
        self.name = name or _name_of(self.model)
        if max_depth is not None and (isinstance(max_depth, bool) or not isinstance(max_depth, int) or max_depth < 0):
            raise LimitError(f"max_depth={max_depth!r}: pass a whole number, 0 for no sub-agents, or None for no limit.")
        self.max_depth = max_depth

    if not TYPE_CHECKING:  # otherwise type checkers would accept any attribute

        def __setattr__(self, name, value):
            if type(self) is Agent and name not in Agent.__annotations__:
                raise AttributeError(
                    f"agent.{name} cannot be set: pass it to lab.Agent(…), or for a single run to agent.run(…), which also takes the "
                    "limits.",
                    name=name,
                    obj=self,
                )
            super().__setattr__(name, value)

        def __getattr__(self, name):
            hint = "" if name.startswith("_") else hint_for(name)
            message = f"An agent has no {name!r}. {hint}" if hint else f"{type(self).__name__!r} object has no attribute {name!r}"
            raise AttributeError(message, name=name, obj=self)

    @helps_with_keywords
    def run(
        self,
        prompt: Content,
        *,
        stop: object = None,
        budget: Budget | None = None,
        policy: Policy | None = None,
        continuation: ContinuationPolicy | None = None,
        terminating: TerminatingTools | Sequence[str | Tool | Function] | None = None,
        approve: object = None,
        approver: Approver | None = None,
        messages: Iterable[Message] = (),
        observers: Sequence[RunObserver] = (),
        transport: Transport | None = None,
    ) -> Run[Out]:
        """Return a new run on this prompt: `await` it, step through it, or `start()` it. The prompt is text, or a list of texts and
        parts, such as `["What is this?", lab.Image("map.png")]`.

        A setting of None means the agent's default; so `continuation=None` does not turn continuation off here, unlike in `Agent`.
        `approve` names the tools that a person is asked about, and `approver` decides on them (see `lab.Approval`); without an
        approver, see `run.approve`. `messages` are an earlier conversation, placed before the prompt. `transport` is by default that of
        the surrounding `lab.replay` or `lab.record`, which the run keeps after the `with` block.

        Example:
            >>> run = brief.run("What is the capital of France?", budget=lab.Budget(max_turns=3))
            >>> run
            Run(scripted:script, ready, 0 steps, Budget(max_turns=3))
            >>> (await run).text
            'Paris.'
        """
        message = user_message(prompt, "prompt={!r}: pass the task as text, or as a list of texts and parts.")
        call_context.refuse_too_deep()
        settings = self.settings_for(
            budget=budget, stop=stop, policy=policy, continuation=continuation, terminating=terminating, approve=approve
        )
        warn_of(never_met(settings, self), stacklevel=3)
        conversation = Conversation(_messages(messages))
        conversation.append(message)
        return self.run_on(conversation, settings, transport, observers, _as_approver(approver))

    def run_on(
        self,
        conversation: Conversation,
        settings: RunSettings,
        transport: Transport | None = None,
        observers: Sequence[RunObserver] = (),
        approver: Approver | None = None,
    ) -> Run[Out]:
        """Return a run on a conversation; its prompt is the newest message that is not from the assistant or a tool."""
        prefix = RunPrefix.of_messages(conversation)
        watched_by = (*self.observers, *_functions("observers", observers))
        return Run(RunPlan(self, prefix, settings, transport or current(), watched_by, approver=approver or self.approver))

    def settings_for(
        self,
        *,
        budget: Budget | None = None,
        stop: object = None,
        policy: Policy | None = None,
        continuation: ContinuationPolicy | None = None,
        terminating: TerminatingTools | Sequence[str | Tool | Function] | None = None,
        approve: object = None,
    ) -> RunSettings:
        """Return the settings that a run begins with, by default those of the agent."""
        given: tuple[tuple[str, Any, Callable[[Any], object]], ...] = (
            ("budget", budget, as_budget),
            ("stop", stop, as_condition),
            ("policy", policy, as_policy),
            ("continuation", continuation, as_continuation),
            ("terminating", terminating, lambda one: self.known_terminating(as_terminating(one))),
            ("approve", approve, lambda one: as_approve(one, self.tools)),
        )
        changes: dict[str, Any] = {name: checked(value) for name, value, checked in given if value is not None}
        return replace(self.settings, **changes)

    @helps_with_keywords
    def as_tool(
        self,
        name: str,
        description: str = "",
        *,
        budget: Budget | None = None,
        stop: object = None,
        terminating: TerminatingTools | Sequence[str | Tool | Function] | None = None,
        parallel: bool = False,
    ) -> Tool:
        """Return this agent as a tool for another agent, which calls it with a `task` and receives its answer.

            research = Agent("…", tools=[search]).as_tool("research", "Looks things up.", budget=Budget(max_tokens=5_000))
            agent = Agent("…", tools=[research])

        budget, stop, terminating   settings of each of its runs, by default those of the agent
        parallel                    several calls of one answer run at the same time, each within an equal share of what is left

        A child run is limited by the calls, tokens, money and time that its caller has left, and its usage counts there. Its steps are
        counted separately, up to the `max_turns` of the outermost run. Runs may be nested up to `max_depth` of the outermost agent (3
        by default). The caller's model is informed how the run ended and what is left, and may continue it: `continue_run`,
        `raise_budget`, `fresh_context`. `run.children` lists the child runs. Raises the errors of `run` and `lab.tool`.

        Example:
            >>> scout = brief.as_tool("scout", "Knows capitals.", budget=lab.Budget(max_turns=2))
            >>> script = [call("scout", {"task": "Capital of France?"}), "It is Paris."]
            >>> planner = lab.Agent(ScriptedProvider(script), tools=[scout])
            >>> result = await planner.run("Where shall I go?")
            >>> result.text, result.history[0].children[0].handle
            ('It is Paris.', 'scout-1')
        """
        from agentlab.subagent import as_tool

        return as_tool(self, name, description, budget=budget, stop=stop, terminating=terminating, parallel=parallel)

    def with_model(self, model: str | Provider | Model) -> Agent[Out]:
        """Return the same agent on another model; its name follows the model unless it was set. If `model` is a string, an
        `http_client` stays.

        Example:
            >>> agent.with_model("openai:gpt-5.4-mini").name
            'openai:gpt-5.4-mini'
        """
        other = copy.copy(self)
        if isinstance(self.model, HttpModel):
            other.model = _as_model(model, self.model.retry, self.model.http_client if isinstance(model, str) else None)
        else:
            other.model = _as_model(model, RetryPolicy())
        if self.name == _name_of(self.model):
            other.name = _name_of(other.model)
        return other

    @property
    def is_made_of_names(self) -> bool:
        """True if the names of provider and model alone describe the agent: no tools, middleware, type of answers, address or key."""
        model = self.model
        if not isinstance(model, HttpModel) or self.tools or self.middleware or self.output_type is not None:
            return False
        try:
            return model == HttpModel(resolve(f"{model.name}:{model.model}"))
        except ConfigurationError:
            return False

    def _as_output_type(self, output: Any) -> OutputType | None:
        if output is None:
            return None
        if FINAL_ANSWER in self.tools:
            raise ToolDefinitionError(
                f"output={output!r} may be asked for as a tool named {FINAL_ANSWER!r}, and tools has one of that name: rename it."
            )
        return output_type(output)

    def known_terminating(self, terminating: TerminatingTools | None) -> TerminatingTools | None:
        """Return the terminating tools. Raises ToolDefinitionError for a name that is not one of the agent's tools, and
        ConfigurationError if the agent has an `output`, since a typed answer ends the run."""
        if terminating is not None and self.output_type is not None:
            raise ConfigurationError("output=… and terminating=… both decide which answer ends a run: leave one of them out.")
        for name in terminating.tools if terminating is not None else ():
            if name not in self.tools:
                hint = did_you_mean(name, self.tools)
                raise ToolDefinitionError(
                    f"The agent does not have the terminating tool {name!r}.{hint} Its tools: {', '.join(self.tools) or 'none'}."
                )
        return terminating

    def through_middleware(self, ask: Ask, blame: Blame) -> Ask:
        """Wrap `ask` in the middleware; `blame` is called with each layer that raises, the innermost first."""
        for layer in reversed(self.middleware):
            ask = _wrapped(layer, ask, ModelResponse, "response", blame)
        return ask

    def through_tool_middleware(self, execute: RunTool, blame: Blame) -> RunTool:
        """Wrap `execute` in the tool middleware, like `through_middleware`."""
        for layer in reversed(self.tool_middleware):
            execute = _wrapped(layer, execute, ToolResult, "result", blame)
        return execute

    def __getstate__(self) -> dict[str, object]:
        """Return the state for another process, with read-only views as dicts."""
        return {**vars(self), "tools": dict(self.tools), "options": dict(self.options)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.tools, self.options = types.MappingProxyType(state["tools"]), types.MappingProxyType(state["options"])

    def __repr__(self) -> str:
        output = f", output={self.output_type.name}" if self.output_type is not None else ""
        tools = f", tools=[{', '.join(map(one_line, self.tools))}]" if self.tools else ""
        stop = f", stop={self.settings.stop!r}" if self.settings.stop is not None else ""
        return f"Agent({one_line(_name_of(self.model))}{tools}{output}, budget={self.settings.budget!r}{stop})"


class Run(RunOf[Agent[Out], Out]):
    """An agent working on one prompt; made by `agent.run(prompt)`.

    `limits` are live and can be edited at any time, from any thread. A run uses one event loop at a time; calls from other loops are
    passed on to it. It is made of parts: `timeline` records what happens, `control` holds requests to pause or stop, `stepper` takes
    the steps, `worker` keeps them on one event loop, `branches` are the runs that were forked from it, `origin` is where it came from.

    Example:
        >>> with lab.replay("fixtures/trip"):
        ...     run = agent.run(TASK)
        >>> step = await run.step()
        >>> [call.name for call in step.tool_calls]
        ['get_weather', 'get_weather']
        >>> run.limits.max_turns = 10
        >>> (await run).stop_reason
        <StopReason.STOP_CONDITION: 'stop_condition'>
    """


def _functions(name: str, given: Iterable[F]) -> tuple[F, ...]:
    """Return the functions given as one keyword of an agent."""
    given = tuple(given) if isinstance(given, Iterable) else (given,)
    if wrong := [one for one in given if not callable(one)]:
        raise ConfigurationError(f"{name}=[{wrong[0]!r}]: pass functions, such as {name}=[mine].")
    if name == "observers":
        for one in given:
            refuse_async(one)
    return given


def _checked_retries(retries: int) -> int:
    if isinstance(retries, bool) or not isinstance(retries, int) or retries < 0:
        raise LimitError(f"output_retries={retries!r}: pass a whole number; 0 means that the first answer has to fit.")
    return retries


def _as_approver(approver: Approver | None) -> Approver | None:
    if approver is None or callable(approver):
        return approver
    raise ConfigurationError(f"approver={approver!r}: pass a function that takes the call, such as approver=lambda call: True.")


def _name_of(model: Model) -> str:
    return f"{model.name}:{model.model}"


def _as_model(model: str | Provider | Model, retry: RetryPolicy, http_client: Any = None) -> Model:
    if isinstance(model, str):
        return HttpModel(resolve(model, http_client=http_client), retry)
    if http_client is not None:
        raise ConfigurationError(
            "http_client is for a model given as a string: pass it to lab.Provider(…, http_client=…) instead."
        )
    if hasattr(model, "build_request"):
        return HttpModel(cast(Provider, model), retry)
    if hasattr(model, "respond"):
        return model
    raise ConfigurationError(
        f"{model!r} is not a model: pass a string such as 'openai:gpt-4.1-mini', or lab.Provider(name, model=…, base_url=…)."
    )


def _messages(messages: Iterable[Message]) -> Iterator[Message]:
    for place, message in enumerate(messages):
        if not isinstance(message, Message):
            raise ConfigurationError(
                f"messages[{place}] is {one_line(repr(message))}: pass messages of a run, such as earlier.messages, or "
                "Message('user', 'Hi')."
            )
        yield message


def _wrapped(
    layer: Callable[[G, Callable[[G], Awaitable[T]]], Awaitable[T]],
    inner: Callable[[G], Awaitable[T]],
    kind: type[T],
    what: str,
    blame: Blame,
) -> Callable[[G], Awaitable[T]]:
    async def wrapper(given: G) -> T:
        try:
            answer = await layer(given, inner)
        except Exception as error:
            blame(f"The middleware {name_of(layer)}", error)
            raise
        if not isinstance(answer, kind):
            how = "return await ask(request)" if what == "response" else "return await execute(call)"
            raise ConfigurationError(f"The middleware {layer!r} returned {answer!r}: return the {what}, as in `{how}`.")
        return answer

    return wrapper

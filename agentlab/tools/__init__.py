"""Tools: plain functions, sync or async, offered to a model.

    def get_weather(city: str, days: int = 1) -> dict: ...        # docstring: its description; annotations: its schema

    @lab.tool(timeout_s=5)
    async def search(query: str) -> list[str]: ...

    @lab.tool(on_cancel="wait")                                   # a cancelled run waits for it
    async def book(train: str) -> str: ...

    find = lab.tool(client.call, name="find", schema={"type": "object", …})    # JSON Schema
    server = await lab.tools.from_mcp("python server.py")         # the tools of an MCP server: Agent(tools=[*server])

A tool may return `lab.Image`, `lab.Document` or `lab.Audio`, or a list with text and such parts.

The arguments are validated before the function is called. Every failure goes back to the model as the result of the call.

May import: `limits` and what is below it.

    schemas  schemas of tools: signatures, pydantic classes, JSON Schema, tools of other libraries
    outputs  typed answers: the type, its schema for a wire, the check of an answer
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import inspect
import json
import math
import os
import sys
import time
import types
import typing
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias, overload

import pydantic

from agentlab._internal.asyncio_tools import (
    GRACE_S,
    call_on_thread,
    can_start_threads,
    cancel_and_wait,
    cut_before,
    is_async,
    settling,
)
from agentlab._internal.display import Displayable
from agentlab._internal.errors import FixtureError, StopRequested, ToolDefinitionError
from agentlab._internal.names import helps_with_keywords, module_hooks
from agentlab._internal.redaction import in_words, redact
from agentlab._internal.values import dataclass
from agentlab.limits.fields import in_seconds, seconds
from agentlab.model.messages import Stop, ToolCall, ToolResult, ToolSpec
from agentlab.model.parts import as_content, as_text, without_keys
from agentlab.tools import schemas
from agentlab.tools.schemas import Function as Function
from agentlab.tools.schemas import Schema

__all__ = ["McpServer", "Tool", "from_mcp", "tool"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = module_hooks(__name__, __all__)

OnCancel: TypeAlias = Literal["cancel", "wait"]

INTERRUPTED = "The run was cut off while this call was under way; what it did is not known."

_LEFT_BEHIND = " It did not end when it was cancelled, and was left behind: it may still be running."

_ON_A_THREAD = " Its thread was left behind: it may still be running."


@dataclass(frozen=True, slots=True)
class Tool(Displayable):
    """A function that a model can call.

    `timeout_s` limits one call (None: only the run's timeout does). A sync function runs on a separate thread, so that it cannot block
    other agents, unless `inline` is set. A thread that does not return by its timeout is abandoned, since Python cannot end it. In a
    browser, which has no threads, a sync function runs as with `inline`: nothing else runs until it returns, and no timeout ends it.

    `on_cancel` applies when the run is cancelled, interrupted or out of time. With `cancel`, an async function is cancelled (its
    `finally` is awaited, at most 2 s), and one on a thread is abandoned; its outcome is unknown. With `wait`, the run ends when the
    call is done, and keeps its result; only its own `timeout_s` and a second cancel interrupt it. An async function that does not end
    within 2 s of its cancellation is abandoned too, with a warning: it may still be running.

    `idempotent=False` is for actions that must not be repeated, such as a payment. When a store resumes a run whose process died in the
    middle of a step, a call that had begun may have run: it is executed again only if `resume(…, again=…)` allows it.

    `parallel` is for tools that may run beside others. Neighbouring calls of one answer whose tools all have it run at the same time;
    any other call runs alone, in order. The results stay in the order of the calls, and a failure, a stop or a cancel in one of them
    keeps the results of the others. Sub-agents that run at the same time get equal shares of what their caller has left.

    Every exception of the function becomes its result, including SystemExit and its own cancellation. Only a KeyboardInterrupt on the
    thread of the loop is raised, since a person caused it. A StopRequested ends the run.

    Example:
        >>> @lab.tool
        ... def add(a: int, b: int = 1) -> int:
        ...     'Add two numbers.'
        ...     return a + b
        >>> add.spec.parameters["required"], add.validate('{"a": 2}')
        (['a'], {'a': 2, 'b': 1})
    """

    function: Function
    spec: ToolSpec
    arguments_model: type[pydantic.BaseModel]
    timeout_s: float | None = None
    inline: bool = False
    on_cancel: OnCancel = "cancel"
    idempotent: bool = True
    takes: str = ""
    parallel: bool = False

    @property
    def name(self) -> str:
        """The tool's name for the model.

        Example:
            >>> lab.tool(search).name
            'search'
        """
        return self.spec.name

    @property
    def is_async(self) -> bool:
        """True if the function is awaited.

        Example:
            >>> lab.tool(search).is_async
            False
        """
        return is_async(self.function)

    def validate(self, arguments: str) -> dict[str, Any]:
        """Return the validated arguments for the function. Raises pydantic.ValidationError, also for invalid or truncated JSON.

        Example:
            >>> lab.tool(search).validate('{"words": "umbrella"}')
            {'words': 'umbrella'}
        """
        model = self.arguments_model.__pydantic_validator__.validate_json(arguments if arguments.strip() else "{}")
        if isinstance(model, schemas.JsonArguments):
            return dict(model.root)
        if self.takes == schemas.FIELDS:
            return dict(model)
        if self.takes:
            return {self.takes: model}
        return {name.removeprefix(schemas.PREFIX): value for name, value in vars(model).items()}

    def __repr__(self) -> str:
        return redact(f"Tool({self.name})")

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the function, from which the tool is rebuilt; if a decorator replaced it by the tool, pickle the import path."""
        module, name = getattr(self.function, "__module__", ""), getattr(self.function, "__qualname__", "")
        if module != "__main__" and _named(module, name) is self:
            return _named, (module, name)
        model = self.arguments_model
        schema = model.given if issubclass(model, schemas.JsonArguments) else model if self.takes else None
        more = (self.timeout_s, self.inline, self.on_cancel, self.idempotent, self.parallel, schema)
        return _make, (self.function, self.name, self.spec.description, *more)


def _named(module: str, name: str) -> Any:
    found: Any = sys.modules.get(module)
    if found is None and module:
        with contextlib.suppress(ImportError):
            found = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    timeout_s: float | timedelta | None = None,
    inline: bool = False,
    on_cancel: OnCancel = "cancel",
    idempotent: bool = True,
    parallel: bool = False,
    schema: Schema | None = None,
) -> Callable[[Function], Tool]: ...


@overload
def tool(
    function: Function,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    timeout_s: float | timedelta | None = None,
    inline: bool = False,
    on_cancel: OnCancel = "cancel",
    idempotent: bool = True,
    parallel: bool = False,
    schema: Schema | None = None,
) -> Tool: ...


@helps_with_keywords
def tool(
    function: Function | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    timeout_s: float | timedelta | None = None,
    inline: bool = False,
    on_cancel: OnCancel = "cancel",
    idempotent: bool = True,
    parallel: bool = False,
    schema: Schema | None = None,
) -> Tool | Callable[[Function], Tool]:
    """Make a Tool from a function: as a decorator with or without arguments, or as a call.

    With `schema`, a subclass of pydantic's BaseModel, the model fills in that class. The function takes its fields, or the instance as
    its one parameter: a parameter with the name of a field is that field, unless its annotation is the class. Such a class is also a
    tool without a function, `Agent(tools=[Answer])`; its result is the instance.

    With a JSON schema of the arguments as `schema`, the function needs no annotations and may take `**arguments`. It gets them as plain
    JSON values, once they fit the schema. A function definition of OpenAI, Anthropic, Gemini or MCP is also such a schema, with a name
    and a description. Tool objects of LangChain, pydantic-ai and Inspect are tools as they are: `Agent(tools=[theirs])`.

    Raises ToolDefinitionError for a function whose parameters a model cannot fill in.

    Example:
        >>> @lab.tool(timeout_s=5)
        ... async def look_up(word: str) -> str:
        ...     'Look a word up.'
        ...     return word.upper()
        >>> look_up.name, look_up.timeout_s, look_up.spec.description
        ('look_up', 5, 'Look a word up.')
        >>> from pydantic import BaseModel
        >>> class Trip(BaseModel):
        ...     city: str
        ...     days: int = 1
        >>> @lab.tool(schema=Trip)
        ... def book(trip):
        ...     'Book a trip.'
        ...     return f"{trip.city} for {trip.days} days"
        >>> book.spec.parameters["required"], book.validate('{"city": "Graz"}')
        (['city'], {'trip': Trip(city='Graz', days=1)})
        >>> def plan(city: str, days: int) -> str:
        ...     return f"{city} for {days} days"
        >>> lab.tool(schema=Trip)(plan).validate('{"city": "Graz"}')
        {'city': 'Graz', 'days': 1}
        >>> def anything(**arguments):
        ...     return arguments
        >>> schema = {"type": "object", "properties": {"city": {"enum": ["Graz", "Linz"]}}, "required": ["city"]}
        >>> lab.tool(anything, name="visit", schema=schema).validate('{"city": "Linz"}')
        {'city': 'Linz'}
    """

    def make(target: Function) -> Tool:
        return _make(target, name, description, timeout_s, inline, on_cancel, idempotent, parallel, schema)

    return make if function is None else make(function)


def as_tools(tools: Iterable[Tool | Function | McpServer]) -> dict[str, Tool]:
    """Return Tools, functions and the tools of MCP servers by name. Raises ToolDefinitionError for anything else, and for
    duplicate names."""
    if isinstance(tools, Tool | str) or not isinstance(tools, Iterable) or schemas.recognised(tools) is not None:
        raise ToolDefinitionError(f"tools={tools!r}: pass a list of functions, such as tools=[search, finalize].")
    named: dict[str, Tool] = {}
    for item in (one for given in tools for one in (given if isinstance(given, McpServer) else (given,))):
        made = item if isinstance(item, Tool) else _make(item)
        if made.name in named:
            raise ToolDefinitionError(
                f"Two tools have the name {made.name!r}: give one of them another name with lab.tool(name=…), or those of an MCP "
                "server a prefix with from_mcp(…, prefix=…)."
            )
        named[made.name] = made
    return named


class McpServer(Sequence[Tool], Displayable):
    """The tools of an MCP server, made by `lab.tools.from_mcp`; use them as `Agent(tools=[*server])`, or `[server]`.

    `async with` starts the server and ends it; `await` only starts it, `close` ends it. Runs on any event loop may call its tools. A
    server that dies fails the calls under way, and is started again by the next one. If it changes its list of tools, this sequence
    changes too; an agent keeps the tools that it was made with, and its run warns. `run.fork(…, agent=…)` continues with another agent.
    Images, audio and PDFs in its results are parts (`lab.Image`, …).

    Example:
        >>> with lab.replay("fixtures/mcp"):
        ...     server = await lab.tools.from_mcp("python stations.py")
        >>> server
        McpServer('stations', ['find_station', 'departures'])
    """

    name: str

    def _listed(self) -> Sequence[Tool]:
        raise NotImplementedError

    async def open(self) -> Self:
        """Start the server and list its tools. Raises McpError if that fails; within `lab.replay` the list is the recorded one.

        Example:
            >>> with lab.replay("fixtures/mcp"):
            ...     server = await lab.tools.from_mcp("python stations.py").open()
            >>> len(server)
            2
        """
        raise NotImplementedError

    async def close(self) -> None:
        """End the server; its tools fail from now on.

        Example:
            >>> server = lab.tools.from_mcp("python stations.py")
            >>> await server.close()
            >>> server
            McpServer('stations', not open)
        """
        raise NotImplementedError

    @overload
    def __getitem__(self, place: int) -> Tool: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Tool]: ...
    def __getitem__(self, place: int | slice) -> Tool | Sequence[Tool]:
        return self._listed()[place]

    def __len__(self) -> int:
        return len(self._listed())

    def __await__(self) -> Generator[Any, Any, Self]:
        return self.open().__await__()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        names = vars(self).get("_tools")
        return redact(f"McpServer({self.name!r}, {'not open' if names is None else [one.name for one in names]})")


def from_mcp(
    server: str | Sequence[str],
    *,
    name: str = "",
    prefix: str = "",
    env: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    headers: Mapping[str, str] | None = None,
    timeout_s: float | timedelta | None = None,
    start_timeout_s: float | timedelta = 60,
    parallel: bool = False,
) -> McpServer:
    """Return the tools of an MCP server. It is started by `async with` or `await`, and needs `agentlab-jupyter[mcp]`.

    `server` is the URL of a server over streamable HTTP, or the command that starts one over stdio, as a list or as text. `name` stands
    for the server in recordings and errors (by default from the URL or the command), `prefix` is added to the names of its tools. `env`
    and `cwd` are for a command, which gets PATH, HOME and the like, but none of the keys in the environment; `headers` are for a URL.
    `timeout_s` limits each call, `start_timeout_s` the start and then the list of tools. With `parallel`, several calls of one answer
    run at the same time.

    Its answers are recorded by `lab.record`; in `lab.replay` the server is never started.

    Example:
        >>> with lab.replay("fixtures/mcp"):
        ...     async with lab.tools.from_mcp("python stations.py") as server:
        ...         agent = lab.Agent("anthropic:claude-sonnet-4-6", tools=[*server])
        >>> list(agent.tools)
        ['find_station', 'departures']
    """
    limit_s = None if timeout_s is None else seconds("from_mcp", "timeout_s", timeout_s)
    start_limit_s = seconds("from_mcp", "start_timeout_s", start_timeout_s)
    settings = (name, prefix, env, cwd, headers, limit_s, start_limit_s, parallel)
    from agentlab.interop import mcp_tools

    return mcp_tools.from_mcp(server, *settings)


@dataclass(slots=True, eq=False)
class Executed:
    """The outcome of one call. `cut` is a cancellation during the call, or the exception of a middleware: the caller records the result
    and then raises it. `left_behind` is True if an async function was abandoned since it did not end when it was cancelled."""

    result: ToolResult
    cut: BaseException | None = None
    left_behind: bool = False


async def execute_call(tool_call: ToolCall, tools: Mapping[str, Tool]) -> Executed:
    """Run one call. Raises only an interrupt; any other failure is a result for the model."""
    started = time.perf_counter()
    executed = await _execute(tool_call, tools)
    result, fill = executed.result, object.__setattr__  # no one else holds the result yet
    fill(result, "content", without_keys(result.content, result.parts))  # the model's server must not get keys of this process
    fill(result, "arguments", tool_call.arguments)
    fill(result, "duration_s", time.perf_counter() - started)
    return executed


async def _execute(tool_call: ToolCall, tools: Mapping[str, Tool]) -> Executed:
    target = tools.get(tool_call.name)
    if target is None:
        there_is = ", ".join(tools) or "none"
        return _failed(tool_call, "unknown_tool", f"There is no tool {tool_call.name!r}. Available tools: {there_is}.")
    if not tool_call.closed:
        return _failed(
            tool_call, "not_executed", "The call was cut off before its end and was not executed. Send it again, complete."
        )
    try:
        arguments = target.validate(tool_call.arguments)
    except pydantic.ValidationError as error:
        return _failed(
            tool_call, "invalid_arguments", f"The arguments are not valid, nothing was executed. {schemas.problems(error)}"
        )
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a validator raised what pydantic does not catch, such as a KeyError
        content = (
            f"The arguments of {tool_call.name} are not valid, nothing was executed. Their validation raised {in_words(error)}"
        )
        return _failed(tool_call, "invalid_arguments", content, value=error)
    outcome = await _call(target, arguments)
    executed = _result(tool_call, target, outcome)
    executed.cut, executed.left_behind = outcome.cut, outcome.left_behind
    return executed


def _result(tool_call: ToolCall, target: Tool, outcome: _Outcome) -> Executed:
    if not outcome.ended or isinstance(outcome.error, asyncio.CancelledError):
        running = _LEFT_BEHIND if outcome.left_behind else "" if outcome.ended else _ON_A_THREAD
        if outcome.out_of_time:
            content = f"{tool_call.name} did not finish within its limit of {target.timeout_s:g} s.{running}"
            return _failed(tool_call, "timeout", content)
        if outcome.cut is not None:
            return _failed(tool_call, "interrupted", INTERRUPTED + running)
    value, error = outcome.value, outcome.error
    if isinstance(error, StopRequested):
        return _stopped(tool_call, Stop(error.reason, error.output))
    if error is not None:
        if isinstance(error, FixtureError):  # a recording that lacks this call ends the run, as one that lacks a response does
            outcome.cut = error
        return _failed(tool_call, "exception", f"{tool_call.name} raised {in_words(error)}", value=error)
    if isinstance(value, Stop):
        return _stopped(tool_call, value)
    try:
        text, parts = as_content(value)
        return Executed(ToolResult(tool_call.id, tool_call.name, text, value, parts=parts))
    except KeyboardInterrupt:
        raise
    except BaseException as problem:  # also exceptions of lazy values
        content = f"{tool_call.name} returned {type(value).__name__}, which cannot be turned into JSON: {in_words(problem)}"
        return _failed(tool_call, "unserialisable", content, value=value)


@dataclass(slots=True, eq=False)
class _Outcome:
    """The outcome of a function: a value, an exception, or a timeout."""

    value: Any = None
    error: BaseException | None = None
    ended: bool = True
    out_of_time: bool = False
    cut: BaseException | None = None
    left_behind: bool = False


async def _call(target: Tool, arguments: dict[str, Any]) -> _Outcome:
    until_s = None if target.timeout_s is None else time.monotonic() + target.timeout_s
    if target.is_async or target.inline or not can_start_threads():
        value, error = _call_inline(target.function, arguments)
    else:
        future = call_on_thread(target.function, arguments, f"agentlab-tool-{target.name}")
        cut = await _wait(future, until_s)
        if not future.done():
            return _Outcome(ended=False, out_of_time=cut is None, cut=cut)
        value, error = future.result()
        if cut is not None:
            return _Outcome(value, error, cut=cut)
    if error is not None or not (type(value) is types.CoroutineType or inspect.isawaitable(value)):
        return _Outcome(value, error)
    return await _awaited(target, value, until_s)


async def _awaited(target: Tool, awaitable: Awaitable[Any], until_s: float | None) -> _Outcome:
    """Await the result of an async function in a separate task, which is abandoned if it does not end."""
    task, end = settling(awaitable, f"agentlab-tool-{target.name}")
    try:
        cut = await (_wait(end, until_s) if until_s is not None else cut_before(end))
        late, out_of_time = not task.done(), cut is None
        if late:
            grace_s = None if getattr(target.function, "ends_when_cancelled", False) else GRACE_S
            ended, another = await cancel_and_wait([task], grace_s)
            cut = cut or another
    finally:
        task.cancel()  # if this coroutine itself was closed
    if late and not ended:
        return _Outcome(ended=False, out_of_time=out_of_time, cut=cut, left_behind=True)
    value, error = (None, asyncio.CancelledError()) if task.cancelled() else task.result()
    if isinstance(error, KeyboardInterrupt):  # from a person: it must end the run, not only the task
        raise error
    return _Outcome(value, error, out_of_time=late and out_of_time, cut=cut)


def _call_inline(function: Function, arguments: dict[str, Any]) -> tuple[Any, BaseException | None]:
    """Return the value or the exception of a function. An interrupt is raised: on the loop's thread it comes from a person."""
    try:
        return function(**arguments), None
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return None, error


async def _wait(work: asyncio.Future[Any], until_s: float | None) -> asyncio.CancelledError | None:
    """Wait until the work is done or the time is up; return a cancellation that arrives meanwhile."""
    try:
        await asyncio.wait([work], timeout=None if until_s is None else max(0.0, until_s - time.monotonic()))
    except asyncio.CancelledError as cut:
        return cut
    return None


def _failed(tool_call: ToolCall, error: str, content: str, value: Any = None) -> Executed:
    return Executed(ToolResult(tool_call.id, tool_call.name, content, value, error))


def _stopped(tool_call: ToolCall, stop: Stop) -> Executed:
    try:
        content = as_text(stop.output) if stop.output is not None else stop.reason
    except KeyboardInterrupt:
        raise
    except BaseException:  # the output is for a person and need not have a JSON form
        content = stop.reason
    return Executed(ToolResult(tool_call.id, tool_call.name, content, stop.output, stop=stop))


# From a function to a tool ----------------------------------------------------------------------------------------------------


def _make(  # noqa: PLR0917  the order of `__reduce__`
    function: Function,
    name: str | None = None,
    description: str | None = None,
    timeout_s: float | timedelta | None = None,
    inline: bool = False,
    on_cancel: OnCancel = "cancel",
    idempotent: bool = True,
    parallel: bool = False,
    schema: Schema | None = None,
) -> Tool:
    function, name, schema, summary = schemas.unpacked(function, name, schema)
    takes = ""
    name = name or schemas.name_of(function)
    if isinstance(function, type) and issubclass(function, pydantic.BaseModel):
        schema, inline = schema or function, True
        function = schemas.itself
    if not callable(function) or isinstance(function, type):
        is_agent = hasattr(function, "as_tool")
        instead = 'agent.as_tool("name", "description")' if is_agent else "a function whose parameters have annotations"
        raise ToolDefinitionError(f"{function!r} is not a function: pass {instead}.")
    schemas.check_name(name)
    timeout_s = in_seconds(timeout_s)
    if timeout_s is not None and not (isinstance(timeout_s, int | float) and math.isfinite(timeout_s) and timeout_s > 0):
        raise ToolDefinitionError(f"The tool {name!r} has timeout_s={timeout_s!r}: give seconds above 0, or None for no limit.")
    if on_cancel not in typing.get_args(OnCancel):
        raise ToolDefinitionError(f"The tool {name!r} has on_cancel={on_cancel!r}: choose 'cancel' or 'wait'.")
    if schema is None:
        in_docstring, model, parameters = schemas.described(name, function)
    elif isinstance(schema, Mapping):
        model, parameters = schemas.of_json_schema(name, schema)
        schemas.refuse_misfit(name, function, parameters)
        in_docstring = "" if summary else schemas.summary_of(function)
    else:
        takes, in_docstring, model, parameters = schemas.of_model(name, function, schema)
    spec = ToolSpec(name, description or summary or in_docstring, parameters, json.dumps(parameters))
    return Tool(function, spec, model, timeout_s, inline, on_cancel, idempotent, takes, parallel)

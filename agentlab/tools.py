"""Tools: plain functions, sync or async, offered to a model.

    def get_weather(city: str, days: int = 1) -> dict: ...        # the docstring describes it, the annotations are its schema

    @lab.tool(timeout_s=5)
    async def search(query: str) -> list[str]: ...

    @lab.tool(on_cancel="wait")                                   # a run that is cancelled meanwhile waits for it
    async def book(train: str) -> str: ...

What the model sends is validated before the function sees it. Whatever goes wrong is handed back to the model as the call's result.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import importlib
import inspect
import json
import math
import sys
import threading
import time
import typing
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, TypeAlias, overload

import pydantic
import pydantic_core

from agentlab.errors import StopRequested, ToolDefinitionError
from agentlab.limits import in_seconds
from agentlab.predicates import is_async
from agentlab.redaction import in_words, known_hidden, without_keys
from agentlab.shown import Shown
from agentlab.tool_schema import PREFIX, Function, described, unwrapped
from agentlab.types import Stop, ToolCall, ToolResult, ToolSpec

NAME_RULE = "letters, digits, _ and -, at most 64"
OnCancel: TypeAlias = Literal["cancel", "wait"]


@dataclass(frozen=True, slots=True)
class Tool(Shown):
    """A function that a model can call.

    `timeout_s` bounds one call (None: the run's own timeout alone does). A sync function runs on a thread of its own, so that it
    cannot hold up other agents, unless `inline` is set. After a time-out a thread that does not come back is left behind, since
    Python cannot end it.

    `on_cancel` says what becomes of a call where the run is cancelled, interrupted or out of time: with `cancel` an async function
    is cancelled (its `finally` is awaited), and one on a thread is left behind; what came of it is not known. With `wait` the
    run ends once the call is done, and its result is kept; only its own `timeout_s`, and a second cancel, cut it off.

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

    @property
    def name(self) -> str:
        """The name the model calls it by.

        Example:
            >>> lab.tool(search).name
            'search'
        """
        return self.spec.name

    @property
    def is_async(self) -> bool:
        """Whether the function is awaited.

        Example:
            >>> lab.tool(search).is_async
            False
        """
        return is_async(self.function)

    def validate(self, arguments: str) -> dict[str, Any]:
        """The arguments as the function takes them. Raises pydantic.ValidationError, also for JSON that is broken or cut off.

        Example:
            >>> lab.tool(search).validate('{"words": "umbrella"}')
            {'words': 'umbrella'}
        """
        model = self.arguments_model.model_validate_json(arguments if arguments.strip() else "{}")
        return {name.removeprefix(PREFIX): getattr(model, name) for name in type(model).model_fields}

    def __repr__(self) -> str:
        return without_keys(f"Tool({self.name})")

    def __reduce__(self) -> tuple[Any, ...]:
        """To another process goes the function, which it makes a tool of again; where a decorator has put the tool in the place of its
        function, the name that both have."""
        module, name = getattr(self.function, "__module__", ""), getattr(self.function, "__qualname__", "")
        if module != "__main__" and _named(module, name) is self:
            return _named, (module, name)
        return _make, (self.function, self.name, self.spec.description, self.timeout_s, self.inline, self.on_cancel)


def _named(module: str, name: str) -> Any:
    found: Any = sys.modules.get(module)
    if found is None and module:
        with contextlib.suppress(ImportError):
            found = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


@overload
def tool(function: Function, /) -> Tool: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    timeout_s: float | timedelta | None = None,
    inline: bool = False,
    on_cancel: OnCancel = "cancel",
) -> Callable[[Function], Tool]: ...
def tool(
    function: Function | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    timeout_s: float | timedelta | None = None,
    inline: bool = False,
    on_cancel: OnCancel = "cancel",
) -> Tool | Callable[[Function], Tool]:
    """Make a Tool of a function; as a decorator with or without arguments, or as a call.

    Raises ToolDefinitionError for a function whose parameters a model cannot fill in.

    Example:
        >>> @lab.tool(timeout_s=5)
        ... async def look_up(word: str) -> str:
        ...     'Look a word up.'
        ...     return word.upper()
        >>> look_up.name, look_up.timeout_s, look_up.spec.description
        ('look_up', 5, 'Look a word up.')
    """

    def make(target: Function) -> Tool:
        return _make(target, name, description, timeout_s, inline, on_cancel)

    return make if function is None else make(function)


def as_tools(tools: Iterable[Tool | Function]) -> dict[str, Tool]:
    """Tools by name, made of Tools and plain functions. Raises ToolDefinitionError for what is neither, and for a name given twice."""
    if isinstance(tools, Tool | str) or not isinstance(tools, Iterable):
        raise ToolDefinitionError(f"tools={tools!r}: pass a list of functions, such as tools=[search, finalize].")
    named: dict[str, Tool] = {}
    for item in tools:
        made = item if isinstance(item, Tool) else _make(item)
        if made.name in named:
            raise ToolDefinitionError(f"Two tools are called {made.name!r}: give one of them another with lab.tool(name=…).")
        named[made.name] = made
    return named


async def execute(tool_call: ToolCall, tools: Mapping[str, Tool]) -> ToolResult:
    """Run one call and say what came of it. Only cancellation is raised: all else is a result, which tells the model what to mend."""
    started = time.perf_counter()
    result = await _execute(tool_call, tools)
    return ToolResult(
        result.call_id,
        result.name,
        known_hidden(result.content),  # a key of this process is no affair of a model's, and of a server's behind it
        result.value,
        result.error,
        tool_call.arguments,
        time.perf_counter() - started,
        result.stop,
    )


async def _execute(tool_call: ToolCall, tools: Mapping[str, Tool]) -> ToolResult:
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
        return _failed(tool_call, "invalid_arguments", f"The arguments are not valid, nothing was executed. {_in_words(error)}")
    try:
        value = await _call(target, arguments)
    except StopRequested as stop:
        return _stopped(tool_call, Stop(stop.reason, stop.output))
    except _OutOfTime:
        return _failed(tool_call, "timeout", f"{tool_call.name} did not finish within its limit of {target.timeout_s:g} s.")
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():  # it is the run that is cancelled
            raise
        return _raised(tool_call, error)
    except (Exception, SystemExit) as error:  # the model is told; the person sees it in the tools frame
        return _raised(tool_call, error)
    if isinstance(value, Stop):
        return _stopped(tool_call, value)
    try:
        return ToolResult(tool_call.id, tool_call.name, as_text(value), value)
    except Exception as error:  # also whatever a lazy value raises while it is read
        said = f"{tool_call.name} returned {type(value).__name__}, which cannot be turned into JSON: {in_words(error)}"
        return _failed(tool_call, "unserialisable", said, value=value)


def as_text(value: object) -> str:
    """What the model gets to read: text as it is, anything else as JSON. Raises ValueError for what has no JSON."""
    return value if isinstance(value, str) else pydantic_core.to_json(value).decode()


async def _call(target: Tool, arguments: dict[str, Any]) -> Any:
    if target.is_async or target.inline:
        return (
            await _inline(target, arguments) if target.timeout_s is None else await _limited(target, _inline(target, arguments))
        )
    return await _limited(target, _awaited(_on_a_thread(target, arguments)))


class _OutOfTime(Exception):  # noqa: N818  it never leaves this module
    """The tool's own limit was reached: not a TimeoutError, which the function itself may raise."""


async def _inline(target: Tool, arguments: dict[str, Any]) -> Any:
    value = target.function(**arguments)
    return await value if inspect.isawaitable(value) else value


async def _awaited(future: Awaitable[Any]) -> Any:
    value = await future
    return await value if inspect.isawaitable(value) else value  # of a sync wrapper around an async function


async def _limited(target: Tool, awaitable: Awaitable[Any]) -> Any:
    try:
        async with asyncio.timeout(target.timeout_s) as scope:
            return await awaitable
    except TimeoutError:
        if scope.expired():
            raise _OutOfTime from None
        raise


def _on_a_thread(target: Tool, arguments: dict[str, Any]) -> asyncio.Future[Any]:
    """Call a sync function on a daemon thread of its own: one that never returns must not keep the interpreter alive, as the threads
    of an executor would."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()
    context = contextvars.copy_context()

    def settle(setter: Callable[[Any], None], outcome: Any) -> None:
        if not future.done():
            setter(outcome)

    def report(setter: Callable[[Any], None], outcome: Any) -> None:
        try:
            loop.call_soon_threadsafe(settle, setter, outcome)
        except RuntimeError:  # the loop was closed meanwhile: nobody waits any more
            return

    def work() -> None:
        try:
            value = context.run(target.function, **arguments)
        except StopIteration as error:  # a future refuses to carry one
            report(future.set_exception, RuntimeError(f"StopIteration: {error}"))
        except BaseException as error:
            report(future.set_exception, error if isinstance(error, Exception | SystemExit) else RuntimeError(repr(error)))
        else:
            report(future.set_result, value)

    threading.Thread(target=work, name=f"agentlab-tool-{target.name}", daemon=True).start()
    return future


def _failed(tool_call: ToolCall, error: str, content: str, value: Any = None) -> ToolResult:
    return ToolResult(tool_call.id, tool_call.name, content, value, error)


def _raised(tool_call: ToolCall, error: BaseException) -> ToolResult:
    return _failed(tool_call, "exception", f"{tool_call.name} raised {in_words(error)}", value=error)


def _stopped(tool_call: ToolCall, stop: Stop) -> ToolResult:
    try:
        content = as_text(stop.output) if stop.output is not None else stop.reason
    except Exception:  # the output is for the person; it needs no JSON
        content = stop.reason
    return ToolResult(tool_call.id, tool_call.name, content, stop.output, stop=stop)


def _in_words(error: pydantic.ValidationError) -> str:
    problems = []
    for problem in error.errors(include_url=False, include_context=False):
        place = ".".join(map(str, problem["loc"]))
        problems.append(f"{place}: {problem['msg']}" if place else str(problem["msg"]))
    return "; ".join(problems)


# From a function to a tool ----------------------------------------------------------------------------------------------------


def _make(  # noqa: PLR0917  in this order `__reduce__` hands them on
    function: Function,
    name: str | None = None,
    description: str | None = None,
    timeout_s: float | timedelta | None = None,
    inline: bool = False,
    on_cancel: OnCancel = "cancel",
) -> Tool:
    if not callable(function) or isinstance(function, type):
        raise ToolDefinitionError(f"{function!r} is not a function: pass a function whose parameters have annotations.")
    called = name or str(getattr(unwrapped(function), "__name__", type(function).__name__))
    if not 0 < len(called) <= 64 or not all(letter.isascii() and (letter.isalnum() or letter in "_-") for letter in called):
        raise ToolDefinitionError(f"{called!r} cannot be a tool's name ({NAME_RULE}): give one with lab.tool(name=…).")
    timeout_s = in_seconds(timeout_s)
    if timeout_s is not None and not (isinstance(timeout_s, int | float) and math.isfinite(timeout_s) and timeout_s > 0):
        raise ToolDefinitionError(f"The tool {called!r} has timeout_s={timeout_s!r}: give seconds above 0, or None for no limit.")
    if on_cancel not in typing.get_args(OnCancel):
        raise ToolDefinitionError(f"The tool {called!r} has on_cancel={on_cancel!r}: choose 'cancel' or 'wait'.")
    told, model, schema = described(called, function)
    return Tool(function, ToolSpec(called, description or told, schema, json.dumps(schema)), model, timeout_s, inline, on_cancel)

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
from agentlab.shelter import GRACE_S, ends
from agentlab.shown import Shown
from agentlab.tool_schema import PREFIX, Function, described, itself, of_model, unwrapped
from agentlab.types import Stop, ToolCall, ToolResult, ToolSpec

NAME_RULE = "letters, digits, _ and -, at most 64"
OnCancel: TypeAlias = Literal["cancel", "wait"]

INTERRUPTED = "The run was cut off while this call was under way; what it did is not known."
_LEFT_BEHIND = " It did not end when it was cancelled, and was left behind: it may still be running."
_ON_A_THREAD = " Its thread was left behind: it may still be running."


@dataclass(frozen=True, slots=True)
class Tool(Shown):
    """A function that a model can call.

    `timeout_s` bounds one call (None: the run's own timeout alone does). A sync function runs on a thread of its own, so that it
    cannot hold up other agents, unless `inline` is set. After a time-out a thread that does not come back is left behind, since
    Python cannot end it.

    `on_cancel` says what becomes of a call where the run is cancelled, interrupted or out of time: with `cancel` an async function
    is cancelled (its `finally` is awaited, at most 2 s), and one on a thread is left behind; its outcome is not known. With `wait`
    the run ends once the call is done, and its result is kept; only its own `timeout_s`, and a second cancel, cut it off. An async
    function that does not end within 2 s of its cancel is left behind too, with a warning: it may still be running.

    `idempotent` False is for what must not be done twice, such as a payment. Where a store resumes a run whose process ended in
    mid-step, a call that was begun may have run: it is executed again only if `resume(…, again=…)` says so.

    Whatever the function raises is its result, SystemExit and a cancel of its own too. Only a KeyboardInterrupt passes, where the
    function is on the thread of the loop: it is the person's. A StopRequested ends the run.

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
        if self.takes:
            return {self.takes: model}
        return {name.removeprefix(PREFIX): getattr(model, name) for name in type(model).model_fields}

    def __repr__(self) -> str:
        return without_keys(f"Tool({self.name})")

    def __reduce__(self) -> tuple[Any, ...]:
        """To another process goes the function, which it makes a tool of again; where a decorator has put the tool in the place of its
        function, the name that both have."""
        module, name = getattr(self.function, "__module__", ""), getattr(self.function, "__qualname__", "")
        if module != "__main__" and _named(module, name) is self:
            return _named, (module, name)
        more = (self.timeout_s, self.inline, self.on_cancel, self.idempotent, self.arguments_model if self.takes else None)
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
def tool(function: Function, /) -> Tool: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    timeout_s: float | timedelta | None = None,
    inline: bool = False,
    on_cancel: OnCancel = "cancel",
    idempotent: bool = True,
    schema: type[pydantic.BaseModel] | None = None,
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
    idempotent: bool = True,
    schema: type[pydantic.BaseModel] | None = None,
) -> Tool | Callable[[Function], Tool]:
    """Make a Tool of a function; as a decorator with or without arguments, or as a call.

    With `schema`, a class made from pydantic's BaseModel, the class is what the model fills in, and the function takes one parameter:
    the instance. Such a class is a tool by itself too, `Agent(tools=[Answer])`; its result is the instance.

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
    """

    def make(target: Function) -> Tool:
        return _make(target, name, description, timeout_s, inline, on_cancel, idempotent, schema)

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


@dataclass(slots=True)
class Executed:
    """What one call led to. `cut` is the cancel that came meanwhile, or what a middleware raised: the caller keeps the result, and then
    raises it. `left_behind` is True if an async function did not end when it was cancelled, and may still be running."""

    result: ToolResult
    cut: BaseException | None = None
    left_behind: bool = False


async def execute(tool_call: ToolCall, tools: Mapping[str, Tool]) -> ToolResult:
    """Run one call and return its result. Raises only a cancel and an interrupt; all else is a result, from which the model learns what
    to mend."""
    executed = await carried_out(tool_call, tools)
    if executed.cut is not None:
        raise executed.cut
    return executed.result


async def carried_out(tool_call: ToolCall, tools: Mapping[str, Tool]) -> Executed:
    """Run one call. Raises only an interrupt."""
    started = time.perf_counter()
    executed = await _execute(tool_call, tools)
    result = executed.result
    executed.result = ToolResult(
        result.call_id,
        result.name,
        known_hidden(result.content),  # a key of this process is no affair of a model's, and of a server's behind it
        result.value,
        result.error,
        tool_call.arguments,
        time.perf_counter() - started,
        result.stop,
    )
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
        return _failed(tool_call, "invalid_arguments", f"The arguments are not valid, nothing was executed. {_in_words(error)}")
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a validator raised what pydantic does not catch, such as a KeyError
        said = f"The arguments of {tool_call.name} are not valid, nothing was executed. Their validation raised {in_words(error)}"
        return _failed(tool_call, "invalid_arguments", said, value=error)
    came = await _call(target, arguments)
    executed = _result(tool_call, target, came)
    executed.cut, executed.left_behind = came.cut, came.left_behind
    return executed


def _result(tool_call: ToolCall, target: Tool, came: _Came) -> Executed:
    if not came.ended or isinstance(came.error, asyncio.CancelledError):
        still = _LEFT_BEHIND if came.left_behind else "" if came.ended else _ON_A_THREAD
        if came.out_of_time:
            said = f"{tool_call.name} did not finish within its limit of {target.timeout_s:g} s.{still}"
            return _failed(tool_call, "timeout", said)
        if came.cut is not None:
            return _failed(tool_call, "interrupted", INTERRUPTED + still)
    value, error = came.value, came.error
    if isinstance(error, StopRequested):
        return _stopped(tool_call, Stop(error.reason, error.output))
    if error is not None:  # the model is told; the person sees it in the tools frame
        return _failed(tool_call, "exception", f"{tool_call.name} raised {in_words(error)}", value=error)
    if isinstance(value, Stop):
        return _stopped(tool_call, value)
    try:
        return Executed(ToolResult(tool_call.id, tool_call.name, as_text(value), value))
    except KeyboardInterrupt:
        raise
    except BaseException as problem:  # also whatever a lazy value raises while it is read
        said = f"{tool_call.name} returned {type(value).__name__}, which cannot be turned into JSON: {in_words(problem)}"
        return _failed(tool_call, "unserialisable", said, value=value)


def as_text(value: object) -> str:
    """What the model gets to read: text as it is, anything else as JSON. Raises ValueError for what has no JSON."""
    return value if isinstance(value, str) else pydantic_core.to_json(value).decode()


@dataclass(slots=True)
class _Came:
    """What a function came to: a value or an exception, or no end within its time."""

    value: Any = None
    error: BaseException | None = None
    ended: bool = True
    out_of_time: bool = False
    cut: asyncio.CancelledError | None = None
    left_behind: bool = False


async def _call(target: Tool, arguments: dict[str, Any]) -> _Came:
    until_s = None if target.timeout_s is None else time.monotonic() + target.timeout_s
    if target.is_async or target.inline:
        value, error = _tried(target.function, arguments)
    else:
        future = _on_a_thread(target, arguments)
        cut = await _waited(future, until_s)
        if not future.done():
            return _Came(ended=False, out_of_time=cut is None, cut=cut)
        value, error = future.result()
        if cut is not None:
            return _Came(value, error, cut=cut)
    if error is not None or not inspect.isawaitable(value):
        return _Came(value, error)
    return await _awaited(target, value, until_s)


async def _awaited(target: Tool, awaitable: Awaitable[Any], until_s: float | None) -> _Came:
    """Await what the function returned in a separate task, which is left behind if it does not end."""
    task = asyncio.create_task(_carried(awaitable), name=f"agentlab-tool-{target.name}")
    try:
        cut = await _waited(task, until_s)
        late, out_of_time = not task.done(), cut is None
        if late:
            grace_s = None if getattr(target.function, "ends_when_cancelled", False) else GRACE_S
            ended, another = await ends([task], grace_s)
            cut = cut or another
    finally:
        task.cancel()  # where this very coroutine was thrown away
    if late and not ended:
        return _Came(ended=False, out_of_time=out_of_time, cut=cut, left_behind=True)
    value, error = (None, asyncio.CancelledError()) if task.cancelled() else task.result()
    if isinstance(error, KeyboardInterrupt):  # the person's: it ends the run, here and not in the task
        raise error
    return _Came(value, error, out_of_time=late and out_of_time, cut=cut)


async def _carried(awaitable: Awaitable[Any]) -> tuple[Any, BaseException | None]:
    """What an awaitable gives or raises, as a value: asyncio lets some exceptions of a task out of its loop."""
    try:
        return await awaitable, None
    except BaseException as error:
        return None, error


def _tried(function: Function, arguments: dict[str, Any]) -> tuple[Any, BaseException | None]:
    """What a function gives or raises. Only an interrupt passes: on the loop's thread it is the person's."""
    try:
        return function(**arguments), None
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return None, error


async def _waited(work: asyncio.Future[Any], until_s: float | None) -> asyncio.CancelledError | None:
    """Wait for the end of the work, at most until then; the cancel that came meanwhile."""
    try:
        await asyncio.wait([work], timeout=None if until_s is None else max(0.0, until_s - time.monotonic()))
    except asyncio.CancelledError as cut:
        return cut
    return None


def _on_a_thread(target: Tool, arguments: dict[str, Any]) -> asyncio.Future[tuple[Any, BaseException | None]]:
    """Call a sync function on a daemon thread of its own: one that never returns must not keep the interpreter alive, as the threads
    of an executor would."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()
    context = contextvars.copy_context()

    def settle(outcome: tuple[Any, BaseException | None]) -> None:
        if not future.done():
            future.set_result(outcome)

    def work() -> None:
        outcome: tuple[Any, BaseException | None]
        try:
            outcome = context.run(target.function, **arguments), None
        except BaseException as error:  # an interrupt too: the person's comes on the main thread only
            outcome = None, error
        with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile: nobody waits any more
            loop.call_soon_threadsafe(settle, outcome)

    try:
        threading.Thread(target=work, name=f"agentlab-tool-{target.name}", daemon=True).start()
    except RuntimeError as error:  # there are too many threads
        future.set_result((None, error))
    return future


def _failed(tool_call: ToolCall, error: str, content: str, value: Any = None) -> Executed:
    return Executed(ToolResult(tool_call.id, tool_call.name, content, value, error))


def _stopped(tool_call: ToolCall, stop: Stop) -> Executed:
    try:
        content = as_text(stop.output) if stop.output is not None else stop.reason
    except KeyboardInterrupt:
        raise
    except BaseException:  # the output is for the person; it needs no JSON
        content = stop.reason
    return Executed(ToolResult(tool_call.id, tool_call.name, content, stop.output, stop=stop))


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
    idempotent: bool = True,
    schema: type[pydantic.BaseModel] | None = None,
) -> Tool:
    called = name or str(getattr(unwrapped(function), "__name__", type(function).__name__))
    if isinstance(function, type) and issubclass(function, pydantic.BaseModel):
        schema, inline = schema or function, True
        function = itself
    if not callable(function) or isinstance(function, type):
        raise ToolDefinitionError(f"{function!r} is not a function: pass a function whose parameters have annotations.")
    if not 0 < len(called) <= 64 or not all(letter.isascii() and (letter.isalnum() or letter in "_-") for letter in called):
        raise ToolDefinitionError(f"{called!r} cannot be a tool's name ({NAME_RULE}): give one with lab.tool(name=…).")
    timeout_s = in_seconds(timeout_s)
    if timeout_s is not None and not (isinstance(timeout_s, int | float) and math.isfinite(timeout_s) and timeout_s > 0):
        raise ToolDefinitionError(f"The tool {called!r} has timeout_s={timeout_s!r}: give seconds above 0, or None for no limit.")
    if on_cancel not in typing.get_args(OnCancel):
        raise ToolDefinitionError(f"The tool {called!r} has on_cancel={on_cancel!r}: choose 'cancel' or 'wait'.")
    takes = ""
    if schema is None:
        told, model, parameters = described(called, function)
    else:
        takes, told, model, parameters = of_model(called, function, schema)
    spec = ToolSpec(called, description or told, parameters, json.dumps(parameters))
    return Tool(function, spec, model, timeout_s, inline, on_cancel, idempotent, takes)

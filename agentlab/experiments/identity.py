"""The identity of the parts that made a run, the same in every process: the model's address, the tools, hashes of functions.

It is stored with each run, so that a resumed experiment detects changes under the same names. A function's hash covers its
bytecode, constants, defaults and closures, the plain values and agents among the globals that it reads, and the functions of the same
module that it calls; comments and formatting do not count. Of lists, dicts and other objects only the type counts, since they may
change during the runs; in a frozen dataclass, such as a scorer, their values count. Bytecode of different versions of Python is not
compared.
"""

from __future__ import annotations

import contextlib
import dataclasses
import dis
import functools
import hashlib
import inspect
import json
import sys
import types
from collections.abc import Iterator, Mapping
from decimal import Decimal
from enum import Enum
from typing import Any

from agentlab._internal.asyncio_tools import name_of
from agentlab.agent import Agent
from agentlab.engine.client import HttpModel
from agentlab.experiments.tasks import Task
from agentlab.limits.combinators import Custom
from agentlab.limits.condition_tree import describe
from agentlab.limits.settings import RunSettings
from agentlab.storage import codec
from agentlab.storage.codec import equal_when_redacted

MADE_BY = "made by"
"""The name of the stored note with the identity."""

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
_PLAIN = str | bytes | int | float | complex | bool | None


def made_by(agent: Agent, settings: RunSettings) -> dict[str, Any]:
    """Return the identity of a run of this agent with these settings, without the parts that are stored with every run."""
    functions: dict[str, object] = {f"tool {name}": tool.function for name, tool in agent.tools.items()}
    functions |= {f"middleware {name_of(one)}": one for one in (*agent.middleware, *agent.tool_middleware)}
    functions |= {} if isinstance(agent.model, HttpModel) else {f"model {agent.model.name}": agent.model.respond}
    leaves = () if settings.stop is None else describe(settings.stop).items()
    functions |= {f"stop condition {name}": leaf.predicate if isinstance(leaf, Custom) else leaf.read for name, leaf in leaves}
    functions |= {} if settings.policy is None else {f"policy {name_of(settings.policy)}": settings.policy}
    schemas = {f"schema of tool {spec.name}": _hash([spec.description, spec.parameters_json]) for spec in agent.tool_specs}
    sent = {"stream": agent.stream, **_address(agent), **schemas}
    code = {name: code_of(one) for name, one in functions.items()}
    return {"python": PYTHON, "sent": sent, "code": code}


def with_task(made: Mapping[str, Any] | None, task: Task) -> Mapping[str, Any] | None:
    """Return the identity of a run on this task: the results of tools that it has change what the model reads."""
    if made is None or not task.tools:
        return made
    return {**made, "sent": {**made["sent"], "results of tools in the task": _hash(sorted(task.tools.items()))}}


def differences(stored: str | None, now: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Return the names of changes in the requests to the model (with both values if that helps), and in the code of functions. Empty
    if an earlier version of agentlab stored no identity."""
    if stored is None:
        return [], []
    then = json.loads(stored)
    before = {name: then["sent"].get(name, value) for name, value in now["sent"].items()}
    sent = [
        _difference(name, before[name], one) for name, one in now["sent"].items() if not equal_when_redacted(before[name], one)
    ]
    same_python = then["python"] == now["python"]
    code = [name for name, value in now["code"].items() if same_python and then["code"].get(name, value) != value]
    return sent, code


def _difference(name: str, then: object, now: object) -> str:
    return name if name.startswith("schema") else f"{name} ({then!r} then, {now!r} now)"


def _address(agent: Agent) -> dict[str, Any]:
    """Return the fields of a provider that define its requests, without keys and headers; for a user's own model only the base_url."""
    provider: Any = agent.model.provider if isinstance(agent.model, HttpModel) else agent.model
    names = ["base_url"]
    if isinstance(agent.model, HttpModel) and hasattr(provider, "__dataclass_fields__"):
        names = [field.name for field in dataclasses.fields(provider) if field.repr and field.name not in ("name", "model")]
    values = {name: getattr(provider, name, None) for name in names}
    return {name: one for name, one in values.items() if isinstance(one, _PLAIN)}


# Code ---------------------------------------------------------------------------------------------------------------------------


def code_of(function: object) -> str:
    """Return a hash of a function's code and of the values that it uses, as described above."""
    return _hash(list(_function(function, set())))


def _hash(value: object) -> str:
    return hashlib.sha256(repr(value).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _function(function: Any, seen: set[int]) -> Iterator[object]:
    if isinstance(function, functools.partial):
        yield from _function(function.func, seen)
        yield _value((*function.args, *sorted(function.keywords.items())), seen)
        return
    if isinstance(function, types.MethodType):
        yield from _held(function.__self__, seen)
        function = function.__func__
    if not isinstance(function, types.FunctionType):
        yield getattr(function, "__qualname__", type(function).__qualname__)
        called = inspect.getattr_static(type(function), "__call__", None)
        if isinstance(called, types.FunctionType):  # a callable object
            yield from _held(function, seen)
            yield from _function(called, seen)
        if hasattr(function, "__wrapped__"):  # a cache around a function
            yield from _function(function.__wrapped__, seen)
        return
    if id(function) in seen:
        return
    seen.add(id(function))
    if (function.__module__ or "").startswith("agentlab."):  # a new version of agentlab is not a change
        yield function.__qualname__
        return
    yield from _code(function.__code__)
    yield _value((*(function.__defaults__ or ()), *sorted((function.__kwdefaults__ or {}).items())), seen)
    counted = _counted(function.__code__)
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        if name in counted:  # the function itself changes it
            continue
        with contextlib.suppress(ValueError):  # not set yet
            yield name, _value(cell.cell_contents, seen)
    if hasattr(function, "__wrapped__"):
        yield from _function(function.__wrapped__, seen)
    for name in _globals(function.__code__):
        other = function.__globals__.get(name)
        is_near = isinstance(other, types.FunctionType) and other.__module__ == function.__module__
        if is_near or isinstance(other, Agent) or (isinstance(other, _PLAIN) and name in function.__globals__):
            yield name, _value(other, seen)


@functools.lru_cache(maxsize=256)
def _code(code: types.CodeType) -> tuple[object, ...]:
    """Return the parts of the code that change what it does."""
    parts: list[object] = [code.co_code.hex(), code.co_names]
    is_first_read = any(one.arg == 0 for one in dis.get_instructions(code) if one.opcode in dis.hasconst)
    for place, constant in enumerate(code.co_consts):
        if isinstance(constant, types.CodeType):
            parts += _code(constant)
        elif place or constant is None or is_first_read:  # else it is the docstring, or (Python 3.14) left over
            parts.append(sorted(map(repr, constant)) if isinstance(constant, frozenset) else repr(constant))
    return tuple(parts)


@functools.lru_cache(maxsize=256)
def _counted(code: types.CodeType) -> frozenset[str]:
    """Return the names of the closure that the code sets."""
    return frozenset(one.argval for one in dis.get_instructions(code) if one.opname == "STORE_DEREF")


@functools.lru_cache(maxsize=256)
def _globals(code: types.CodeType) -> tuple[str, ...]:
    """Return the globals that the code reads, inner functions included, and does not set."""
    read = {one.argval for one in dis.get_instructions(code) if one.opname == "LOAD_GLOBAL"}
    read = read.union(*[_globals(one) for one in code.co_consts if isinstance(one, types.CodeType)])
    return tuple(sorted(read - {one.argval for one in dis.get_instructions(code) if one.opname == "STORE_GLOBAL"}))


def _held(owner: Any, seen: set[int]) -> Iterator[object]:
    """Yield values of a method's object: all fields of a frozen dataclass, otherwise agents and settings only."""
    parameters: Any = getattr(type(owner), "__dataclass_params__", None)
    if parameters is not None and parameters.frozen:
        yield from ((name, _field(getattr(owner, name), seen)) for name in type(owner).__dataclass_fields__)
        return
    for name, value in sorted(getattr(owner, "__dict__", {}).items()):
        if isinstance(value, Agent | RunSettings):
            yield name, _value(value, seen)


def _field(value: Any, seen: set[int]) -> object:
    """Return the identity of a field of a frozen dataclass, also of what is in it; of a provider without its keys."""
    if isinstance(value, Mapping):
        return [(repr(key), _field(one, seen)) for key, one in value.items()]
    if isinstance(value, list | tuple):
        return [_field(one, seen) for one in value]
    if isinstance(value, Enum | Decimal):
        return repr(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type) and not callable(value):
        return [
            type(value).__qualname__,
            *[_field(getattr(value, one.name), seen) for one in dataclasses.fields(value) if one.repr],
        ]
    return _value(value, seen)


def _value(value: object, seen: set[int]) -> object:
    """Return the identity of a value that a function uses: of a plain one the value, of others the type, since they may change."""
    if isinstance(value, _PLAIN):
        return repr(value)
    if isinstance(value, tuple):
        return [_value(one, seen) for one in value]
    if isinstance(value, RunSettings):
        return codec.encode(value)
    if isinstance(value, Agent):
        return list(_agent(value, seen))
    if callable(value) and not isinstance(value, type):
        return list(_function(value, seen))
    return type(value).__qualname__


def _agent(agent: Agent, seen: set[int]) -> Iterator[object]:
    if id(agent) not in seen:
        seen.add(id(agent))
        yield agent.model.name, agent.model.model, sorted(_address(agent).items()), agent.instructions, agent.stream
        yield (
            json.dumps({**agent.parameters.given(), **agent.options}, sort_keys=True, default=repr),
            codec.encode(agent.settings),
        )
        for tool in agent.tools.values():
            yield tool.name, tool.spec.description, tool.spec.parameters_json, list(_function(tool.function, seen))

"""What a model is told of a function: its docstring, and its parameters as a JSON schema made from the annotations."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import pydantic

from agentlab.errors import ToolDefinitionError

Function: TypeAlias = Callable[..., Any]
PREFIX = "argument_"
"""Keeps a parameter called `schema` or `copy` apart from the methods of a pydantic model."""


def described(name: str, function: Function) -> tuple[str, type[pydantic.BaseModel], dict[str, Any]]:
    """What the docstring says of the function, the model that validates its arguments, and that one's JSON schema.

    Raises ToolDefinitionError for a function whose parameters a model cannot fill in.
    """
    told, per_parameter = _docstring(inspect.getdoc(unwrapped(function)) or "")
    model = _arguments_model(name, function, per_parameter)
    try:
        schema = model.model_json_schema()
    except pydantic.errors.PydanticUserError as error:
        raise _no_schema(name, error) from error
    for leaf in (schema, *schema.get("properties", {}).values()):
        leaf.pop("title", None)  # pydantic's titles only repeat the names, and every token is paid for
    schema.setdefault("properties", {})
    return told, model, schema


def unwrapped(function: Function) -> Function:
    """The function inside a functools.partial: it has the name, the docstring and the annotations."""
    while isinstance(function, functools.partial):
        function = function.func
    return function


def _open_parameters(name: str, function: Function) -> list[inspect.Parameter]:
    """What a model is to fill in: all parameters that a functools.partial does not hold already."""
    try:
        parameters = inspect.signature(function).parameters
    except ValueError as error:
        raise ToolDefinitionError(f"The tool {name!r} has no signature: write a function around it, with annotations.") from error
    held = function.keywords if isinstance(function, functools.partial) else {}
    return [parameter for parameter in parameters.values() if parameter.name not in held]


def _no_schema(name: str, error: Exception) -> ToolDefinitionError:
    reason = str(error).splitlines()[0]
    return ToolDefinitionError(f"The tool {name!r} has a parameter that has no JSON schema: {reason}")


def _arguments_model(name: str, function: Function, per_parameter: Mapping[str, str]) -> type[pydantic.BaseModel]:
    inner = unwrapped(function)
    try:
        hints = typing.get_type_hints(inner if inspect.isroutine(inner) else type(inner).__call__, include_extras=True)
    except (NameError, AttributeError, SyntaxError, TypeError) as error:
        raise ToolDefinitionError(f"The tool {name!r} has an annotation that cannot be resolved: {error}.") from error
    fields: dict[str, Any] = {}
    for parameter in _open_parameters(name, function):
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise ToolDefinitionError(
                f"The tool {name!r} takes {parameter}, which a model cannot fill in: use named parameters with annotations."
            )
        if parameter.name not in hints:
            raise ToolDefinitionError(
                f"The tool {name!r} has no annotation for its parameter {parameter.name!r}: write its type, "
                f"such as `{parameter.name}: str`, so that a model knows what to send."
            )
        default = ... if parameter.default is parameter.empty else parameter.default
        told = per_parameter.get(parameter.name)  # where there is none, that of an Annotated stays
        more: dict[str, Any] = {"description": told} if told else {}
        fields[PREFIX + parameter.name] = (hints[parameter.name], pydantic.Field(default, alias=parameter.name, **more))
    try:
        return pydantic.create_model(name, __config__=pydantic.ConfigDict(extra="forbid", allow_inf_nan=False), **fields)
    except (pydantic.errors.PydanticUserError, NameError, TypeError) as error:
        raise _no_schema(name, error) from error


def _docstring(text: str) -> tuple[str, dict[str, str]]:
    """What a docstring says of the function, and of each parameter, in Google's, NumPy's or Sphinx's style."""
    if not text:
        return "", {}
    import griffe  # griffelib; only tools with a docstring pay for it

    quiet = {style: {"warnings": False} for style in ("google", "numpy", "sphinx")}
    sections = griffe.parse_auto(griffe.Docstring(text), per_style_options=quiet)  # type: ignore[arg-type]
    told = "\n\n".join(str(section.value) for section in sections if section.kind is griffe.DocstringSectionKind.text)
    described = {
        item.name: item.description
        for section in sections
        if section.kind is griffe.DocstringSectionKind.parameters
        for item in section.value
    }
    return told, described

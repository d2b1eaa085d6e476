"""The description of a function for a model: its docstring, and its parameters as a JSON schema from the annotations."""

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
"""Prefix of fields, so that a parameter called `schema` or `copy` does not clash with the methods of a pydantic model."""


def itself(given: Any) -> Any:
    """Return the argument; the function of a tool that is a class."""
    return given


def of_model(name: str, function: Function, schema: object) -> tuple[str, str, type[pydantic.BaseModel], dict[str, Any]]:
    """Describe a tool that takes one instance of a pydantic class: its parameter, its description, the class and the JSON schema.

    Raises ToolDefinitionError for another class, and for a function that does not take exactly one parameter.
    """
    if not (isinstance(schema, type) and issubclass(schema, pydantic.BaseModel)):
        raise ToolDefinitionError(f"The tool {name!r} has schema={schema!r}: pass a class made from pydantic.BaseModel.")
    parameters = _open_parameters(name, function)
    if len(parameters) != 1 or parameters[0].kind not in (
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        inspect.Parameter.KEYWORD_ONLY,
    ):
        raise ToolDefinitionError(
            f"The tool {name!r} has schema={schema.__name__} and takes ({', '.join(map(str, parameters))}): give it one parameter, "
            f"which gets the {schema.__name__}."
        )
    try:
        parsed = schema.model_json_schema()
    except pydantic.errors.PydanticUserError as error:
        raise _no_schema(name, error) from error
    if "$ref" in parsed:  # the schema of a recursive class is among the definitions
        own_name = parsed.pop("$ref").removeprefix("#/$defs/")
        parsed = {**parsed["$defs"][own_name], **parsed}
    if parsed.get("type") != "object":
        raise ToolDefinitionError(f"The tool {name!r} has schema={schema.__name__}, which is no object: give the class fields.")
    own = str(parsed.pop("description", ""))
    summary, _ = ("", None) if function is itself else _docstring(inspect.getdoc(unwrapped(function)) or "")
    return parameters[0].name, summary or own, schema, _without_titles(parsed)


def _without_titles(schema: dict[str, Any]) -> dict[str, Any]:
    for leaf in (schema, *schema.get("properties", {}).values()):
        leaf.pop("title", None)  # pydantic's titles only repeat the names, and every token is paid for
    schema.setdefault("properties", {})
    return schema


def described(name: str, function: Function) -> tuple[str, type[pydantic.BaseModel], dict[str, Any]]:
    """Return the description of the function, the model that validates its arguments, and its JSON schema.

    Raises ToolDefinitionError for a function whose parameters a model cannot fill in.
    """
    summary, per_parameter = _docstring(inspect.getdoc(unwrapped(function)) or "")
    model = _arguments_model(name, function, per_parameter)
    try:
        schema = model.model_json_schema()
    except pydantic.errors.PydanticUserError as error:
        raise _no_schema(name, error) from error
    return summary, model, _without_titles(schema)


def unwrapped(function: Function) -> Function:
    """Return the function inside a functools.partial, which has the name, the docstring and the annotations."""
    while isinstance(function, functools.partial):
        function = function.func
    return function


def _open_parameters(name: str, function: Function) -> list[inspect.Parameter]:
    """Return the parameters that a model must fill in: all that a functools.partial does not hold already."""
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
        text = per_parameter.get(parameter.name)  # without one, the description of an Annotated holds
        more: dict[str, Any] = {"description": text} if text else {}
        fields[PREFIX + parameter.name] = (hints[parameter.name], pydantic.Field(default, alias=parameter.name, **more))
    try:
        return pydantic.create_model(name, __config__=pydantic.ConfigDict(extra="forbid", allow_inf_nan=False), **fields)
    except (pydantic.errors.PydanticUserError, NameError, TypeError) as error:
        raise _no_schema(name, error) from error


def _docstring(text: str) -> tuple[str, dict[str, str]]:
    """Return a docstring's text on the function and on each parameter, in the style of Google, NumPy or Sphinx."""
    if not text:
        return "", {}
    import griffe  # griffelib; only tools with a docstring pay for it

    quiet = {style: {"warnings": False} for style in ("google", "numpy", "sphinx")}
    sections = griffe.parse_auto(griffe.Docstring(text), per_style_options=quiet)  # type: ignore[arg-type]
    summary = "\n\n".join(str(section.value) for section in sections if section.kind is griffe.DocstringSectionKind.text)
    parameters = {
        item.name: item.description
        for section in sections
        if section.kind is griffe.DocstringSectionKind.parameters
        for item in section.value
    }
    return summary, parameters

"""Schemas of tools: from a signature, from a pydantic class, from JSON Schema, and from the tool objects of other libraries.

    lab.tool(search)                                               the signature and the docstring
    lab.tool(book, schema=Trip)                                    a pydantic class
    lab.tool(call, schema={"type": "object", …})                   JSON Schema, or an OpenAI function definition
    Agent(tools=[a LangChain, pydantic-ai or Inspect tool])        recognised by its attributes; no such library is imported

A JSON schema has two forms: as it was given it checks the arguments, and as every provider accepts it (`on_the_wire`) it is sent.
"""

from __future__ import annotations

import base64
import functools
import inspect
import json
import math
import textwrap
import typing
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import griffe
import pydantic
import pydantic_core
from pydantic.fields import FieldInfo

from agentlab._internal.errors import ConfigurationError, ToolDefinitionError
from agentlab._internal.redaction import in_words
from agentlab._internal.values import dataclass
from agentlab.model.messages import JSON
from agentlab.model.parts import Audio, Document, Image, Part, part_of

Function: typing.TypeAlias = Callable[..., Any]

Schema: typing.TypeAlias = type[pydantic.BaseModel] | Mapping[str, JSON]
"""The arguments of a tool: a pydantic class, a JSON schema, or a vendor's function definition."""

# From a signature, or from a pydantic class ---------------------------------------------------------------------------------------

PREFIX = "argument_"
"""Prefix of fields, so that a parameter called `schema` or `copy` does not clash with a method of the pydantic model."""


def itself(given: Any) -> Any:
    """Return the argument: the function of a tool that is a pydantic class."""
    return given


FIELDS = "**"
"""In place of a parameter's name: the function takes the fields of the class."""


def of_model(name: str, function: Function, schema: object) -> tuple[str, str, type[pydantic.BaseModel], dict[str, Any]]:
    """Describe a tool whose arguments are a pydantic class: the parameter that gets the instance (FIELDS if the function takes the
    fields), its description, the class and the JSON schema.

    Raises ToolDefinitionError for another class, and for a function that takes neither the instance nor all fields.
    """
    if not (isinstance(schema, type) and issubclass(schema, pydantic.BaseModel)):
        raise ToolDefinitionError(
            f"The tool {name!r} has schema={schema!r}: pass a class made from pydantic.BaseModel, or a JSON schema."
        )
    takes = _taken(name, function, schema)
    parsed = _json_schema(name, schema)
    if "$ref" in parsed:  # the schema of a recursive class is among the definitions
        own_name = parsed.pop("$ref").removeprefix("#/$defs/")
        parsed = {**parsed["$defs"][own_name], **parsed}
    if parsed.get("type") != "object":
        raise ToolDefinitionError(
            f"The tool {name!r} has schema={schema.__name__}, which is not an object: give the class fields."
        )
    own = str(parsed.pop("description", ""))
    summary, _ = ("", None) if function is itself else _docstring(inspect.getdoc(unwrapped(function)) or "")
    return takes, summary or own, schema, _without_titles(parsed)


def _taken(name: str, function: Function, schema: type[pydantic.BaseModel]) -> str:
    """Return the parameter that gets the instance of the class, or FIELDS. A parameter with the name of a field is that field, unless
    its annotation is the class."""
    parameters = _open_parameters(name, function)
    named = [one for one in parameters if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)]
    is_single = len(parameters) == len(named) == 1
    if is_single and (
        function is itself or named[0].name not in schema.model_fields or _is_the_class(function, named[0], schema)
    ):
        return named[0].name
    takes_any = any(one.kind is one.VAR_KEYWORD for one in parameters)
    missing = [] if takes_any else schema.model_fields.keys() - {one.name for one in named}
    further = [one for one in parameters if one.default is one.empty and one.kind is not one.VAR_KEYWORD]
    further = [one for one in further if one not in named or one.name not in schema.model_fields]
    if missing or further:
        raise ToolDefinitionError(
            f"The tool {name!r} has schema={schema.__name__} and takes ({', '.join(map(str, parameters))}): give it one parameter, "
            f"which gets the {schema.__name__}, or one for each field: {', '.join(schema.model_fields)}."
        )
    return FIELDS


def _is_the_class(function: Function, parameter: inspect.Parameter, schema: type[pydantic.BaseModel]) -> bool:
    """True if the annotation of a parameter is this class, or one that it is made from."""
    try:
        annotation = typing.get_type_hints(unwrapped(function)).get(parameter.name)
    except (NameError, AttributeError, SyntaxError, TypeError):  # such as the name of a class in a function
        return bool(parameter.annotation == schema.__name__)
    return isinstance(annotation, type) and issubclass(schema, annotation)


def _without_titles(schema: dict[str, Any]) -> dict[str, Any]:
    for leaf in (schema, *schema.get("properties", {}).values()):
        if isinstance(leaf, dict):
            leaf.pop("title", None)  # pydantic's titles only repeat the names, and every token costs money
    schema.setdefault("properties", {})
    return schema


def described(name: str, function: Function) -> tuple[str, type[pydantic.BaseModel], dict[str, Any]]:
    """Return the description of the function, the model that validates its arguments, and its JSON schema.

    Raises ToolDefinitionError for a function whose parameters a model cannot fill in.
    """
    summary, per_parameter = _docstring(inspect.getdoc(unwrapped(function)) or "")
    model = _arguments_model(name, function, per_parameter)
    return summary, model, _without_titles(_json_schema(name, model))


def _json_schema(name: str, model: type[pydantic.BaseModel]) -> dict[str, Any]:
    try:
        schema: dict[str, Any] = _finite(model.model_json_schema())
    except pydantic.errors.PydanticUserError as error:
        raise _no_schema(name, error) from error
    return schema


def _finite(part: JSON) -> JSON:
    """Return a schema without the defaults and limits that JSON cannot express, such as `math.inf`."""
    if isinstance(part, list):
        return [_finite(one) for one in part]
    if not isinstance(part, dict):
        return part
    return {key: _finite(value) for key, value in part.items() if not (isinstance(value, float) and not math.isfinite(value))}


def unwrapped(function: Function) -> Function:
    """Return the function inside a functools.partial, which has the name, the docstring and the annotations."""
    while isinstance(function, functools.partial):
        function = function.func
    return function


def name_of(function: Function) -> str:
    """Return the name of a function, or of the class of an object."""
    return str(getattr(unwrapped(function), "__name__", type(function).__name__))


def summary_of(function: Function) -> str:
    """Return the description of a function in its docstring."""
    return _docstring(inspect.getdoc(unwrapped(function)) or "")[0]


def _open_parameters(name: str, function: Function) -> list[inspect.Parameter]:
    """Return the parameters that a model must fill in: those that no functools.partial sets."""
    try:
        parameters = inspect.signature(function).parameters
    except ValueError as error:
        raise ToolDefinitionError(f"The tool {name!r} has no signature: wrap it in a function with annotations.") from error
    preset = function.keywords if isinstance(function, functools.partial) else {}
    return [parameter for parameter in parameters.values() if parameter.name not in preset]


def _no_schema(name: str, error: Exception) -> ToolDefinitionError:
    is_nested = isinstance(error, pydantic_core.SchemaError)  # such as a pattern that Rust's regular expressions do not have
    reason = " ".join(str(error).rpartition("SchemaError: ")[2].split()) if is_nested else str(error).splitlines()[0]
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
                f"The tool {name!r} takes {parameter}, which a model cannot fill in: use named parameters with annotations, or "
                "pass a JSON schema, lab.tool(…, schema={…})."
            )
        if parameter.name == "self" and parameter.name not in hints:
            raise ToolDefinitionError(
                f"The tool {name!r} is a method without its object: pass the method of an object, such as `shop.{name}` for "
                "`shop = Shop()`."
            )
        if parameter.name not in hints:
            raise ToolDefinitionError(
                f"The tool {name!r} has no annotation for its parameter {parameter.name!r}: write its type, "
                f"such as `{parameter.name}: str`, so that a model knows what to send."
            )
        text = per_parameter.get(parameter.name)  # without one, the description of an Annotated or a Field is used
        more: dict[str, Any] = {"description": text} if text else {}
        hint = _with_text(hints[parameter.name])
        if isinstance(parameter.default, FieldInfo):
            hint = typing.Annotated[hint, parameter.default]
        elif parameter.default is not parameter.empty:
            more["default"] = parameter.default
        fields[PREFIX + parameter.name] = (hint, pydantic.Field(alias=parameter.name, **more))
    try:
        return pydantic.create_model(name, __config__=pydantic.ConfigDict(extra="forbid", allow_inf_nan=False), **fields)
    except (pydantic.errors.PydanticUserError, pydantic_core.SchemaError, NameError, TypeError) as error:
        raise _no_schema(name, error) from error


def _with_text(hint: Any) -> Any:
    """Return an annotation with the text of an `Annotated[int, "how many days"]` as its description."""
    metadata = getattr(hint, "__metadata__", ())
    text = next((one for one in metadata if isinstance(one, str)), None)
    return typing.Annotated[hint.__origin__, pydantic.Field(description=text), *metadata] if text else hint


def _docstring(text: str) -> tuple[str, dict[str, str]]:
    """Return the description of the function and of each parameter, from a docstring in the style of Google, NumPy or Sphinx."""
    if not text:
        return "", {}
    kinds = griffe.DocstringSectionKind
    options: dict[str, dict[str, bool]] = {style: {"warnings": False} for style in ("google", "numpy", "sphinx")}
    options["google"] |= {"returns_multiple_items": False, "returns_named_value": False}
    text = text.replace("\nWarnings:\n", "\nWarning:\n")  # griffe takes the former for Python's warnings
    sections = griffe.parse_auto(griffe.Docstring(text), per_style_options=options)  # type: ignore[arg-type]
    described = (kinds.parameters, kinds.other_parameters)
    parameters = {item.name: item.description for section in sections if section.kind in described for item in section.value}
    not_sent = (*described, kinds.raises, kinds.warns, kinds.deprecated)  # of an exception the model reads the text
    return "\n\n".join(_section(one) for one in sections if one.kind not in not_sent), parameters


def _section(section: Any) -> str:
    """Return a section of a docstring as the model reads it, in the style of Google."""
    value, kind = section.value, section.kind.value
    if kind == "text":
        return str(value)
    if kind == "admonition":
        kind, pieces = value.kind.replace("-", " "), [value.contents]
    elif kind == "examples":
        pieces = ["\n\n".join(text for _, text in value)]
    else:
        pieces = [": ".join(str(part) for part in (one.name, one.annotation, one.description) if part) for one in value]
    title = section.title or kind.capitalize()
    if not title.lower().startswith(kind):  # "at most", of "Important: at most" above "three words."
        title, pieces = kind.capitalize(), [title, *pieces]
    return f"{title}:\n" + textwrap.indent("\n".join(pieces).rstrip(), "    ")


# From JSON Schema -----------------------------------------------------------------------------------------------------------------

_COMBINED = ("anyOf", "oneOf", "allOf")

_SHOWN_PROBLEMS, _SHOWN_CHARS = 10, 300
"""How many problems of a call the model reads, and how long each may be."""


def _said(error: Any) -> str:
    """Return what jsonschema says, with the choices that did not fit."""
    choices = ", or ".join(choice.message[:_SHOWN_CHARS] for choice in error.context[:3])
    return f"{error.message[:_SHOWN_CHARS]}{f' ({choices})' if choices else ''}"


class JsonArguments(pydantic.RootModel[dict[str, Any]]):
    """The arguments of a tool with a JSON schema. Subclasses, from `of_json_schema`, have the schema and its validator."""

    given: ClassVar[Mapping[str, JSON]]
    checker: ClassVar[Any]

    @pydantic.model_validator(mode="after")
    def _check(self) -> JsonArguments:
        """Refuse arguments that do not fit the schema, with each place and what is wrong there."""
        from jsonschema.exceptions import best_match

        json.dumps(self.root, allow_nan=False)  # NaN and Infinity are no JSON
        problems = []
        for error in [best_match([one]) for one in self.checker.iter_errors(self.root)][:_SHOWN_PROBLEMS]:
            text = _said(error)
            problems.append(f"{'.'.join(map(str, error.absolute_path))}: {text}" if error.absolute_path else text)
        if problems:
            raise pydantic_core.PydanticCustomError("json_schema", "{problems}", {"problems": "; ".join(problems)})
        return self


def of_json_schema(name: str, schema: Mapping[str, JSON]) -> tuple[type[JsonArguments], dict[str, Any]]:
    """Return the model that validates arguments against a JSON schema, and the schema as it is sent.

    Raises ToolDefinitionError for a schema that is none, and for one that does not describe an object.
    """
    from jsonschema import SchemaError, validators  # needs a compiled package, which a page in a browser may not have
    from referencing import Registry

    try:
        given: dict[str, Any] = json.loads(json.dumps(schema, allow_nan=False))
        kind = validators.validator_for(given, default=validators.Draft202012Validator)
        kind.check_schema(given)
    except (TypeError, ValueError, RecursionError) as error:
        raise ToolDefinitionError(f"The tool {name!r} has a schema that is not JSON: {in_words(error)}.") from error
    except SchemaError as error:
        place = ".".join(map(str, error.absolute_path)) or "its top level"
        raise ToolDefinitionError(
            f"The tool {name!r} has a schema that is not JSON Schema, at {place}: {_said(error)}"
        ) from error
    if given.get("type", "object") not in ("object", ["object"]):
        raise ToolDefinitionError(
            f"The tool {name!r} has a schema of type {given['type']!r}: arguments are an object, so write type 'object', with a "
            "property for each argument."
        )
    given["type"] = "object"
    checker = kind(given, registry=Registry())  # an empty registry: no address in a schema is ever opened
    model = type(name, (JsonArguments,), {"given": given, "checker": checker, "__module__": __name__})
    return model, on_the_wire(name, given)


def on_the_wire(name: str, given: Mapping[str, JSON]) -> dict[str, Any]:
    """Return a JSON schema in the form that every provider accepts.

    Each `$ref` names an entry of `$defs`, and the top level is a plain object: `anyOf`, `oneOf` and `allOf` there, which Anthropic and
    OpenAI refuse, become its properties. Raises ToolDefinitionError for a `$ref` that points to nothing in the schema.
    """
    names: dict[str, str] = {}
    definitions: dict[str, JSON] = {}

    def local(ref: str) -> str:
        """Return the name in `$defs` of the target of a `$ref`, which is added to them."""
        if ref not in names:
            target = _target(name, given, ref)
            short = "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in ref.rpartition("/")[2])
            while short in definitions:
                short += "_"
            names[ref], definitions[short] = short, None
            definitions[short] = rewritten(target)
        return names[ref]

    def rewritten(part: JSON) -> JSON:
        if isinstance(part, list):
            return [rewritten(one) for one in part]
        if not isinstance(part, dict):
            return part
        found: dict[str, JSON] = {}
        for key, value in part.items():
            if key == "$ref" and isinstance(value, str):
                found[key] = f"#/$defs/{local(value)}"
            elif key in _BY_NAME and isinstance(value, dict):
                found[key] = {inner: rewritten(schema) for inner, schema in value.items()}
            elif key not in _NOT_SENT:
                found[key] = value if key in _VALUES else rewritten(value)
        return found

    sent: dict[str, Any] = rewritten(_flat(name, given, given))
    return _without_titles(sent | ({"$defs": definitions} if definitions else {}))


_BY_NAME = ("properties", "patternProperties", "dependentSchemas")
_VALUES = ("enum", "const", "default", "examples", "required", "dependentRequired")
_NOT_SENT = ("$defs", "definitions", "$schema", "$id", "$comment")
_NOT_AT_THE_TOP = (*_COMBINED, "$ref", "not", "if", "then", "else", "enum")


def _target(name: str, root: JSON, ref: str) -> JSON:
    """Return the part of a schema that a `$ref` points to."""
    found, (head, *places) = root, ref.split("/")
    try:
        if head != "#":
            raise KeyError(ref)
        for place in places:
            key = place.replace("~1", "/").replace("~0", "~")
            found = found[int(key)] if isinstance(found, list) else found[key]
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise ToolDefinitionError(
            f"The tool {name!r} has a schema with $ref {ref!r}, which points to nothing in it: write refs such as '#/$defs/Place', "
            "with the schema of Place in $defs."
        ) from error
    return found


def _flat(name: str, schema: JSON, root: JSON, depth: int = 0) -> dict[str, Any]:
    """Return a schema of an object without `$ref` and combinations at its top level."""
    if not isinstance(schema, dict) or depth > 8:
        return {}
    flat: dict[str, Any] = {key: value for key, value in schema.items() if key not in _NOT_AT_THE_TOP}
    properties, required = dict(flat.get("properties", {})), list(flat.get("required", ()))
    combined = [(key, schema[key]) for key in _COMBINED if isinstance(schema.get(key), list)]
    combined += [("allOf", [_target(name, root, schema["$ref"])])] if "$ref" in schema else []
    for key, branches in combined:
        parts = [_flat(name, branch, root, depth + 1) for branch in branches]
        for argument, one in [(argument, one) for part in parts for argument, one in part.get("properties", {}).items()]:
            known = properties.setdefault(argument, one)
            choices = known["anyOf"] if isinstance(known, dict) and known.keys() == {"anyOf"} else [known]
            if key != "allOf" and one not in (known, *choices):
                properties[argument] = {"anyOf": [*choices, one]}
        in_each = [set(part.get("required", ())) for part in parts]
        if in_each:
            required += sorted(set().union(*in_each) if key == "allOf" else set.intersection(*in_each))
        if key == "allOf":
            flat = {**{inner: value for part in parts for inner, value in part.items()}, **flat}
    flat |= {"type": "object", "properties": properties}
    return flat | ({"required": list(dict.fromkeys(required))} if required else {})


_ARGUMENTS = ("parameters", "input_schema", "inputSchema")


def from_definition(name: str, schema: Mapping[str, JSON]) -> tuple[str | None, str, Mapping[str, JSON]]:
    """Return name, description and schema of a vendor's function definition; of a JSON schema its description, and no name.

    OpenAI and Gemini call the schema `parameters`, Anthropic `input_schema`, and MCP `inputSchema`.
    """
    inner = schema.get("function", schema) if schema.get("type") == "function" else schema
    named = isinstance(inner, Mapping) and isinstance(inner.get("name"), str)
    arguments = next((inner[key] for key in _ARGUMENTS if inner.get(key)), None) if named else None
    if schema.get("type") != "function" and arguments is None:
        return None, str(schema.get("description", "")), {key: value for key, value in schema.items() if key != "description"}
    if not named:
        raise ToolDefinitionError(
            f"The tool {name!r} has a function definition without a name: write {{'type': 'function', 'function': {{'name': …, "
            "'description': …, 'parameters': {…}}}."
        )
    return inner["name"], str(inner.get("description") or ""), arguments or {"type": "object", "properties": {}}


def refuse_misfit(name: str, function: Function, schema: Mapping[str, JSON]) -> None:
    """Raise ToolDefinitionError for a function that cannot be called with the arguments that its schema allows."""
    try:
        parameters = _open_parameters(name, function)
    except ToolDefinitionError:  # without a signature: Python checks it when it is called
        return
    named = {one.name: one for one in parameters if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)}
    takes_any = any(one.kind is one.VAR_KEYWORD for one in parameters)
    unknown = [one for one in schema["properties"] if one not in named and not takes_any]
    needed = [one.name for one in named.values() if one.default is one.empty and one.name not in schema.get("required", ())]
    if unknown or needed:
        problem = f"does not take {unknown[0]!r}, a property of" if unknown else f"needs {needed[0]!r}, which is not required by"
        raise ToolDefinitionError(
            f"The function of the tool {name!r} {problem} its schema: give both the same arguments, or take **arguments."
        )


def problems(error: pydantic.ValidationError) -> str:
    """Return what is wrong with the arguments of a call."""
    found = []
    for problem in error.errors(include_url=False, include_context=False):
        place = ".".join(map(str, problem["loc"]))
        found.append(f"{place}: {problem['msg']}" if place else str(problem["msg"]))
    return "; ".join(found)


# Tools of other libraries ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Foreign:
    """A tool of another library: what the model sees of it, and the function. Without `schema`, its signature is the schema."""

    name: str
    description: str
    schema: Mapping[str, JSON] | None
    call: Function


@dataclass(frozen=True, slots=True)
class _LangChain:
    """Calls a LangChain tool, with its own validation and callbacks."""

    tool: Any

    async def __call__(self, /, **arguments: Any) -> Any:
        return _with_parts(await self.tool.ainvoke(arguments))


@dataclass(frozen=True, slots=True)
class _PydanticAI:
    """Calls a pydantic-ai tool, with the arguments as the types of its signature."""

    tool: Any

    async def __call__(self, /, **arguments: Any) -> Any:
        schema = self.tool.function_schema
        return _with_parts(await schema.call(schema.validator.validate_python(arguments), None))


_KINDS_OF_URLS = {"image": Image, "image_url": Image, "file": Document, "document-url": Document, "audio": Audio}
_KINDS_OF_URLS |= {"image-url": Image, "audio-url": Audio}


def _with_parts(value: Any) -> Any:
    """Return the value of another library's tool with its images, documents and audio as parts.

    LangChain has them as dicts in a list, which may be the content of a message; pydantic-ai as a BinaryContent or an ImageUrl (or
    AudioUrl, DocumentUrl), which may be in a ToolReturn.
    """
    if hasattr(value, "content_blocks"):
        value = value.content
    elif hasattr(value, "return_value") and hasattr(value, "content"):
        more = value.content or ()
        value = [value.return_value, *([more] if isinstance(more, str) else more)]
    items = value if isinstance(value, list | tuple) else [value]
    pieces = [_piece_of(item) for item in items]
    if not any(isinstance(piece, Part) for piece in pieces):
        return value
    return pieces if items is value else pieces[0]


def _piece_of(item: Any) -> Any:
    """Return a part, or the text of a dict that has one; any other value as it is."""
    is_dict = isinstance(item, Mapping)
    kind = item.get("type") if is_dict else getattr(item, "kind", None)
    if is_dict and kind == "text":
        return item.get("text")
    url = (item.get("image_url") or item.get("url")) if is_dict else getattr(item, "url", None)
    url = url.get("url") if isinstance(url, Mapping) else url
    data = (item.get("base64") or item.get("data")) if is_dict else getattr(item, "data", None)
    try:
        if kind in _KINDS_OF_URLS and isinstance(url, str):
            return _KINDS_OF_URLS[kind](url)
        data = base64.b64decode(data) if is_dict and isinstance(data, str) else data
        return (part_of(data) if isinstance(data, bytes) and kind is not None else None) or item
    except (ValueError, ConfigurationError):
        return item


def recognised(given: Any) -> Foreign | None:
    """Return the tool of another library as a Foreign; None for anything else. Raises ToolDefinitionError for one that cannot work.

    LangChain tools have `args_schema` and `ainvoke`; pydantic-ai's have a `function_schema` with `json_schema`, `validator` and `call`;
    Inspect's are functions with `__registry_info__`, and a ToolDef with `parameters` and such a function as `tool`.
    """
    if isinstance(given, type):
        return None
    if hasattr(given, "args_schema") and hasattr(given, "ainvoke"):
        shape = getattr(given, "tool_call_schema", None) or given.args_schema  # the former lacks arguments that LangChain injects
        if not isinstance(shape, Mapping):
            shape = shape.model_json_schema() if hasattr(shape, "model_json_schema") else shape.schema()
        return Foreign(given.name, given.description or "", shape, _LangChain(given))
    if all(hasattr(getattr(given, "function_schema", None), part) for part in ("json_schema", "validator", "call")):
        for wrong, remedy in {"takes_ctx": "pass a tool without RunContext", "requires_approval": "use Agent(approve=…)"}.items():
            if getattr(given, wrong, False):
                raise ToolDefinitionError(
                    f"The pydantic-ai tool {given.name!r} has {wrong}=True, which agentlab lacks: {remedy}."
                )
        return Foreign(given.name, given.description or "", given.function_schema.json_schema, _PydanticAI(given))
    if callable(getattr(given, "tool", None)) and hasattr(getattr(given, "parameters", None), "model_dump"):
        return Foreign(given.name, given.description, given.parameters.model_dump(exclude_none=True), given.tool)
    registered, described_as = getattr(given, "__registry_info__", None), getattr(given, "__TOOL_DESCRIPTION__", None)
    if getattr(registered, "type", "") != "tool" or registered is None:
        return None
    if not hasattr(given, "__registry_params__"):
        raise ToolDefinitionError(f"{given!r} makes an Inspect tool: call it, as in tools=[{given.__name__}()].")
    name = registered.name.rpartition("/")[2]
    if described_as is None:
        return Foreign(name, "", None, given)
    return Foreign(
        described_as.name or name, described_as.description or "", described_as.parameters.model_dump(exclude_none=True), given
    )


def unpacked(function: Function, name: str | None, schema: Schema | None) -> tuple[Function, str | None, Schema | None, str]:
    """Return function, name, schema and description of a tool, some of which may be in a tool object or in a function definition."""
    if isinstance(function, Mapping):
        raise ToolDefinitionError(
            f"{function!r} is a definition without a function: write lab.tool(function, schema=definition), with the function to call."
        )
    summary = ""
    if (foreign := recognised(function)) is not None:
        function, name, summary = foreign.call, name or foreign.name, foreign.description
        schema = foreign.schema if schema is None else schema
    if isinstance(schema, Mapping):
        named, defined, schema = from_definition(name or name_of(function), schema)
        name, summary = name or named, summary or defined
    return function, name, schema, summary


def check_name(name: str) -> None:
    """Raise ToolDefinitionError for a name that some provider refuses."""
    if not 0 < len(name) <= 64 or not all(letter.isascii() and (letter.isalnum() or letter in "_-") for letter in name):
        raise ToolDefinitionError(
            f"{name!r} cannot be a tool's name (letters, digits, _ and -, at most 64): set one with lab.tool(name=…)."
        )

"""Typed answers: the type of an agent's output, its JSON schema in the form that a wire accepts, and the check of an answer.

A wire with structured output gets the schema, and the answer is text. On any other wire the model calls a tool named `final_answer`,
whose arguments are the answer. pydantic checks both.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

import pydantic
import pydantic_core

from agentlab._internal.errors import ConfigurationError
from agentlab._internal.redaction import in_words, redact_known
from agentlab._internal.safe_text import cut
from agentlab._internal.values import dataclass
from agentlab.model.messages import JSON, OutputForm, ToolCall, ToolResult, ToolSpec
from agentlab.tools.schemas import problems

FINAL_ANSWER = "final_answer"
"""The name of the tool whose arguments are the answer."""

_DESCRIPTION = "Give the final answer. Call this once, alone, when the task is done."
_FENCED = re.compile(r"```(?:json)?\s*\n(.*)\n\s*```", re.DOTALL)
_FENCE = re.compile(r"\A\s*```(?:json)?\s*|\n\s*```\s*\Z")
_SHOWN_CHARS = 2_000
_REF = "$ref"


@dataclass(frozen=True, slots=True)
class Checked:
    """An answer that was checked: its value, or the `problems` with it."""

    value: Any = None
    problems: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class OutputType:
    """The type of an agent's output: a pydantic model, a dataclass, a TypedDict, a union of these, or any type that pydantic checks.

    `schema` describes an object: a type that is none is its property `answer`. `strict` is the schema in the form that OpenAI,
    Anthropic and Bedrock accept, None if that form cannot express it. `spec` describes the tool.
    """

    kind: Any
    name: str
    schema: Mapping[str, JSON]
    strict: Mapping[str, JSON] | None
    spec: ToolSpec
    _adapter: pydantic.TypeAdapter[Any]
    _outer: pydantic.TypeAdapter[Any] | None

    def form_for(self, model: object, tools: Iterable[object]) -> OutputForm:
        """Return the form for a model: that of its wire (`output_form`), or a tool if that form cannot express the type."""
        ask = getattr(model, "output_form", None)
        form: OutputForm = "tool" if ask is None else ask(with_tools=any(True for _ in tools))
        return "tool" if form == "strict" and self.strict is None else form

    def schema_in(self, form: OutputForm) -> Mapping[str, JSON] | None:
        """Return the schema to send; None if the answer comes as a tool call."""
        return {"schema": self.schema, "strict": self.strict, "tool": None}[form]

    def read(self, text: str) -> Checked:
        """Check an answer: JSON text, perhaps in a Markdown code block, the arguments of the tool, or plain text for a type of text."""
        said = text = text.strip()
        if (fenced := _FENCED.fullmatch(text)) is not None:
            text = fenced[1]
        adapter = self._adapter if self._outer is None else self._outer
        try:
            value = adapter.validate_json(text)
        except pydantic.ValidationError as error:
            if self._outer is not None:
                with contextlib.suppress(Exception):  # a model often leaves out the object around it
                    return Checked(self._adapter.validate_json(text))
                of_json = "{" if self.kind is str else "{["
                if text and text[0] not in of_json:  # else it is JSON with an error, which is reported
                    with contextlib.suppress(Exception):
                        return Checked(self._adapter.validate_python(said, strict=True))
            return Checked(problems=redact_known(cut(problems(error), _SHOWN_CHARS)))
        except Exception as error:  # a validator raised what pydantic does not catch, such as a KeyError
            return Checked(problems=f"its validation raised {in_words(error)}")
        return Checked(value if self._outer is None else value.answer)

    def read_call(self, tool_call: ToolCall) -> ToolResult:
        """Check the arguments of the tool, and return its result: the answer as JSON, or an error for the model."""
        call_id, name, arguments = tool_call.id, tool_call.name, tool_call.arguments
        if not tool_call.closed:
            content = "The call was cut off before its end. Send it again, complete."
            return ToolResult(call_id, name, content, None, "not_executed", arguments)
        checked = self.read(arguments)
        if checked.problems:
            content = f"The answer does not fit {self.name}: {checked.problems}"
            return ToolResult(call_id, name, content, None, "invalid_arguments", arguments)
        return ToolResult(call_id, name, redact_known(json.dumps(self.plain(checked.value))), checked.value, None, arguments)

    def begun(self, text: str) -> JSON:
        """Return what is there of an answer that is still written, not checked; None if that is no JSON."""
        try:
            data = pydantic_core.from_json(_FENCE.sub("", text), allow_partial="trailing-strings")
        except ValueError:
            return None
        return data if self._outer is None or not isinstance(data, dict) else data.get("answer")

    def accept(self, value: object) -> Any:
        """Return a value of this type for another output, such as that of a tool or of a store; None if it does not fit."""
        try:
            return self._adapter.validate_python(value)
        except Exception:
            return None

    def plain(self, value: object) -> JSON:
        """Return an output as JSON values."""
        return self._adapter.dump_python(value, mode="json")

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the type, from which the rest is rebuilt."""
        return output_type, (self.kind,)


def output_type(kind: Any) -> OutputType:
    """Return an OutputType. Raises ConfigurationError for a type that pydantic cannot check or describe."""
    is_type = isinstance(kind, type) or hasattr(kind, "__origin__") or hasattr(kind, "__args__")
    name = re.sub(r"\b(?:\w+\.)+", "", kind.__name__ if isinstance(kind, type) else str(kind)) if is_type else cut(repr(kind), 80)
    outer = None
    try:
        if not is_type:
            raise TypeError("it is not a type")
        adapter = pydantic.TypeAdapter(kind)
        schema = adapter.json_schema()
        if schema.get("type") != "object" or "properties" not in schema:
            outer = pydantic.TypeAdapter(pydantic.create_model(FINAL_ANSWER, answer=(kind, ...)))
            schema = outer.json_schema()
    except (pydantic.errors.PydanticUserError, pydantic_core.SchemaError, TypeError, NameError) as error:
        raise ConfigurationError(
            f"output={name}: {str(error).splitlines()[0].rstrip('.')}. Pass a class made from pydantic.BaseModel, a "
            "dataclass, a TypedDict (that of typing_extensions before Python 3.12), or a union of these."
        ) from error
    schema = _mapped(schema, _without_title)
    text = json.dumps(schema, ensure_ascii=False, separators=(",", ":"))
    about = schema.get("description", "")
    spec = ToolSpec(FINAL_ANSWER, f"{_DESCRIPTION} {about}".strip(), schema, text)
    return OutputType(kind, name, schema, _strict(schema), spec, adapter, outer)


# Schemas ------------------------------------------------------------------------------------------------------------------------

_BY_NAME = ("properties", "$defs")
_SCHEMAS = ("items", "anyOf", "oneOf", "allOf", "prefixItems", "additionalProperties")


def _mapped(schema: Any, change: Any) -> Any:
    """Return a schema with `change` applied to each schema in it, the inner ones first."""
    if isinstance(schema, list):
        return [_mapped(one, change) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found: dict[str, JSON] = {}
    for key, value in schema.items():
        if key in _BY_NAME and isinstance(value, dict):
            found[key] = {name: _mapped(one, change) for name, one in value.items()}
        else:
            found[key] = _mapped(value, change) if key in _SCHEMAS else value
    return change(found)


def _without_title(schema: dict[str, JSON]) -> dict[str, JSON]:
    schema.pop("title", None)  # pydantic's titles only repeat the names, and every token costs money
    return schema


class _NotStrict(Exception):  # noqa: N818  a signal, not an error
    """The strict form cannot express the schema."""


_KEPT = ("type", "enum", "const", "items", "anyOf", "description", "properties", "$defs")
_FORMATS = ("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid")


def _strict(schema: dict[str, JSON]) -> dict[str, JSON] | None:
    """Return a schema in the strict form: every object is closed and all its fields are required, and there are no constraints, which
    are put into words. None for recursive types, open dictionaries and tuples, which it cannot express.

    https://developers.openai.com/api/docs/guides/structured-outputs, https://platform.claude.com/docs/en/build-with-claude/structured-outputs
    and https://docs.aws.amazon.com/bedrock/latest/userguide/structured-output.html, read 2026-11-23.
    """
    if _is_recursive(schema.get("$defs", {})):
        return None
    try:
        strict: dict[str, JSON] = _mapped(schema, _closed)
    except _NotStrict:
        return None
    return strict


def _closed(schema: dict[str, JSON]) -> dict[str, JSON]:
    if "oneOf" in schema:
        schema = {"anyOf": schema.pop("oneOf"), **schema}
    is_object = schema.get("type") == "object"
    is_open = is_object and ("properties" not in schema or schema.get("additionalProperties", False) is not False)
    if is_open or not schema.keys() & {"type", "enum", "const", "anyOf", _REF} or schema.keys() & {"prefixItems", "allOf"}:
        raise _NotStrict
    if schema.get("type") == "array" and "items" not in schema:
        raise _NotStrict
    if _REF in schema:
        description = schema.get("description")
        ref = {_REF: schema[_REF]}
        return ref if description is None else {"anyOf": [ref], "description": description}
    found = {key: value for key, value in schema.items() if key in _KEPT}
    if schema.get("format") in _FORMATS:
        found["format"] = schema["format"]
    if is_object:
        found |= {"required": list(schema["properties"]), "additionalProperties": False}
    said = (*found, "additionalProperties", "required", "discriminator")
    rest = [
        f"{key}: {json.dumps(value)}"
        for key, value in schema.items()
        if key not in said and (key != "default" or value is not None)
    ]
    if rest:
        found["description"] = f"{found.get('description', '')} ({', '.join(rest)})".strip()
    return found


def _is_recursive(definitions: Mapping[str, JSON]) -> bool:
    """True if a definition refers to itself, directly or through others."""
    refers = {
        name: {other for other in definitions if f'"#/$defs/{other}"' in json.dumps(part)} for name, part in definitions.items()
    }
    done: set[str] = set()
    while ready := {name for name, others in refers.items() if name not in done and others <= done}:
        done |= ready
    return done != refers.keys()

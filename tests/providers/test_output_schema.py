"""The schema of a typed answer on each wire. The vendors' own types and strict schemas are the second opinion."""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Annotated, Any, Literal

import botocore.session
import pytest
from botocore.validate import ParamValidator
from pydantic import BaseModel, Field, TypeAdapter
from typing_extensions import TypedDict

import agentlab as lab
from agentlab.engine.client import HttpModel
from agentlab.model.messages import Message, ModelRequest, Parameters
from agentlab.tools.outputs import OutputType, output_type


class Leg(BaseModel):
    """One train."""

    train: str = Field(description="its number", pattern="[A-Z]+ [0-9]+")
    title: str | None = None
    km: Annotated[float, Field(gt=0)]


class Trip(BaseModel):
    day: date
    legs: list[Leg] = Field(min_length=1)
    longest: Leg = Field(description="the longest one")
    price: Decimal = Decimal(0)


class Rail(BaseModel):
    kind: Literal["rail"]
    leg: Leg


@dataclass
class Bus:
    kind: Literal["bus"]
    line: int


class Walk(TypedDict, total=False):
    minutes: int


class Node(BaseModel):
    children: list[Node] = []


class Open(BaseModel):
    counts: dict[str, int]


Way = Annotated[Rail | Bus, Field(discriminator="kind")]
STRICT = {"model": Trip, "dataclass": Bus, "typed-dict": Walk, "union": Rail | Bus, "discriminated": Way, "list": list[Walk]}
NOT_STRICT = {"recursive": Node, "open-dictionary": Open, "tuple": tuple[int, str], "anything": Annotated[Any, "any"]}


def each(kinds: dict[str, Any]) -> Any:
    return pytest.mark.parametrize("kind", list(kinds.values()), ids=list(kinds))


def in_order(schema: Any) -> Any:
    return json.loads(json.dumps(schema, sort_keys=True))


def without_types_of_literals(schema: Any) -> Any:
    if isinstance(schema, list):
        return [without_types_of_literals(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    literal = schema.keys() & {"enum", "const"}
    return {key: without_types_of_literals(value) for key, value in schema.items() if key != "type" or not literal}


@each(STRICT)
def test_openais_client_would_not_change_the_strict_schema(kind: Any) -> None:
    from openai.lib._pydantic import _ensure_strict_json_schema

    strict = output_type(kind).strict
    assert strict is not None
    theirs = copy.deepcopy(dict(strict))
    assert in_order(_ensure_strict_json_schema(theirs, path=(), root=theirs)) == in_order(strict)


@each(STRICT)
def test_anthropics_client_would_not_change_the_strict_schema(kind: Any) -> None:
    from anthropic.lib._parse._transform import transform_schema

    strict = output_type(kind).strict
    assert strict is not None
    assert in_order(transform_schema(dict(strict))) == in_order(without_types_of_literals(strict))


@each(NOT_STRICT)
def test_a_type_that_strict_cannot_express_is_a_tool(kind: Any) -> None:
    given = output_type(kind)
    assert given.strict is None
    assert given.form_for(model("openai:gpt-5.4-mini"), ()) == "tool"
    assert given.form_for(model("gemini:gemini-3.5-flash"), ()) == "schema"


def test_constraints_and_defaults_are_put_into_words() -> None:
    leg = output_type(Leg).strict
    assert leg is not None
    assert leg["properties"]["train"] == {"description": 'its number (pattern: "[A-Z]+ [0-9]+")', "type": "string"}
    assert leg["properties"]["km"] == {"type": "number", "description": "(exclusiveMinimum: 0)"}
    assert leg["required"] == ["train", "title", "km"]
    assert leg["properties"]["title"] == {"anyOf": [{"type": "string"}, {"type": "null"}]}


# Wires ----------------------------------------------------------------------------------------------------------------------


def model(name: str) -> HttpModel:
    found = lab.Agent(name).model
    assert isinstance(found, HttpModel)
    return found


def sent(name: str, given: OutputType, options: dict[str, Any] | None = None) -> dict[str, Any]:
    asked = model(name)
    schema = given.schema_in(given.form_for(asked, ()))
    assert schema is not None
    request = ModelRequest([Message("user", "Hi")], options=options or {}, output_schema=schema)
    body: dict[str, Any] = json.loads(asked.provider.build_request(request).body)
    return body


TRIP = output_type(Trip)


def test_chat_completions() -> None:
    from openai.types.shared_params import ResponseFormatJSONSchema

    body = sent("openai:gpt-5.4-mini", TRIP)
    TypeAdapter(ResponseFormatJSONSchema).validate_python(body["response_format"])
    assert body["response_format"]["json_schema"] == {"name": "final_answer", "schema": TRIP.strict, "strict": True}


def test_responses_keeps_other_fields_of_text() -> None:
    from openai.types.responses import ResponseTextConfigParam

    body = sent("openai-responses:gpt-5.4-mini", TRIP, {"text": {"verbosity": "low"}})
    TypeAdapter(ResponseTextConfigParam).validate_python(body["text"])
    assert body["text"]["verbosity"] == "low"
    assert body["text"]["format"]["schema"] == TRIP.strict


def test_anthropic_keeps_other_fields_of_output_config() -> None:
    from anthropic.types import OutputConfigParam

    body = sent("anthropic:claude-sonnet-4-6", TRIP, {"output_config": {"effort": "low"}})
    TypeAdapter(OutputConfigParam).validate_python(body["output_config"])
    assert body["output_config"] == {"effort": "low", "format": {"type": "json_schema", "schema": TRIP.strict}}
    server = lab.Provider("anthropic", model="claude-sonnet-4-6")
    asked = ModelRequest([Message("user", "Hi")], output_schema=TRIP.strict, parameters=Parameters(reasoning_effort="low"))
    assert json.loads(server.build_request(asked).body)["output_config"] == body["output_config"]


def test_gemini_gets_the_schema_as_it_is() -> None:
    from google.genai import types as google_types

    body = sent("gemini:gemini-3.5-flash", TRIP, {"temperature": 0})
    config = google_types.GenerationConfig.model_validate(body["generationConfig"])
    assert (config.temperature, config.response_mime_type, config.response_json_schema) == (0, "application/json", TRIP.schema)


def test_bedrock_sends_the_schema_as_text() -> None:
    body = sent("bedrock:us.anthropic.claude-sonnet-4-5-20250929-v1:0", TRIP)
    service = botocore.session.get_session().get_service_model("bedrock-runtime")
    report = ParamValidator().validate({**body, "modelId": "m"}, service.operation_model("Converse").input_shape)
    assert not report.has_errors(), report.generate_report()
    structure = body["outputConfig"]["textFormat"]["structure"]["jsonSchema"]
    assert (structure["name"], json.loads(structure["schema"])) == ("final_answer", TRIP.strict)


@pytest.mark.parametrize(
    ("name", "without_tools", "with_tools"),
    [
        ("openai:gpt-5.4-mini", "strict", "strict"),
        ("openai:gpt-4-turbo", "tool", "tool"),
        ("openai:gpt-4.1", "strict", "strict"),
        ("openai-responses:gpt-4o-2024-05-13", "tool", "tool"),
        ("openai-responses:gpt-4o", "strict", "strict"),
        ("anthropic:claude-sonnet-4-20250514", "tool", "tool"),
        ("anthropic:claude-3-5-haiku-latest", "tool", "tool"),
        ("anthropic:claude-opus-4-1", "strict", "strict"),
        ("anthropic-vertex:claude-sonnet-4@20250514", "tool", "tool"),
        ("anthropic-vertex:claude-sonnet-4-5@20250929", "strict", "strict"),
        ("anthropic:some-other-model", "tool", "tool"),
        ("gemini:gemini-2.5-flash", "schema", "tool"),
        ("gemini:gemini-3.5-flash", "schema", "schema"),
        ("xai:grok-3", "strict", "tool"),
        ("xai-responses:grok-4.3", "strict", "strict"),
        ("bedrock:amazon.nova-lite-v1:0", "tool", "tool"),
        ("bedrock:anthropic.claude-sonnet-4-20250514-v1:0", "tool", "tool"),
        ("bedrock:us.anthropic.claude-haiku-4-5-20251001-v1:0", "strict", "strict"),
        ("openrouter:openai/gpt-5.4-mini", "tool", "tool"),
    ],
)
def test_the_form_by_model(name: str, without_tools: str, with_tools: str) -> None:
    asked = model(name)
    assert (asked.output_form(with_tools=False), asked.output_form(with_tools=True)) == (without_tools, with_tools)


def test_a_compatible_server_says_whether_it_takes_a_schema() -> None:
    for name in ("compatible", "compatible-responses"):
        for structured in (True, False):
            server = lab.Provider(name, model="m", base_url="http://127.0.0.1:1/v1", structured=structured)
            assert TRIP.form_for(HttpModel(server), ()) == ("strict" if structured else "tool")

"""Tools with a JSON schema, and tools of other libraries: what a model sees of them, and what their functions get."""

from __future__ import annotations

import json
import pickle
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from engine.builders import call_tool, go
from providers.bodies import provider

import agentlab as lab
from agentlab.errors import ToolDefinitionError
from agentlab.model.messages import Message, ModelRequest
from agentlab.testing import call
from agentlab.tools import as_tools, tool
from tests.model.test_parts import PDF, picture, sound

TRIP: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "Trip",
    "description": "Plan a trip.",
    "type": "object",
    "properties": {
        "to": {"$ref": "#/$defs/Place"},
        "by": {"enum": ["train", "bus", None]},
        "days": {"type": ["integer", "null"], "minimum": 1},
        "via": {"type": "array", "items": {"$ref": "#/properties/to"}, "maxItems": 2},
        "note": {"type": "string", "nullable": True},
    },
    "required": ["to"],
    "additionalProperties": False,
    "$defs": {
        "Place": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "near": {"$ref": "#/$defs/Place"}},
            "required": ["city"],
            "additionalProperties": False,
        }
    },
}


def anything(**arguments: Any) -> dict[str, Any]:
    """Return the arguments."""
    return arguments


# JSON Schema ------------------------------------------------------------------------------------------------------------------


def test_a_function_with_a_schema_gets_plain_json_values_once_they_fit() -> None:
    made = lab.tool(anything, name="plan", schema=TRIP, timeout_s=5)
    assert (made.name, made.spec.description, made.timeout_s) == ("plan", "Plan a trip.", 5)
    sent = {"to": {"city": "Graz", "near": {"city": "Linz"}}, "by": None, "days": None, "self": "me"}
    assert call_tool(made, json.dumps(sent)).error == "invalid_arguments"
    del sent["self"]
    assert call_tool(made, json.dumps(sent)).value == sent
    assert call_tool(pickle.loads(pickle.dumps(made)), json.dumps(sent)).value == sent


def test_names_that_are_no_identifiers_are_arguments_too() -> None:
    made = tool(anything, schema={"properties": {"self": {}, "a-b": {}, "class": {}}})
    assert call_tool(made, '{"self": 1, "a-b": 2, "class": [3]}').value == {"self": 1, "a-b": 2, "class": [3]}


REFUSED: dict[str, tuple[str, str]] = {
    "missing": ("{}", "'to' is a required property"),
    "nested": ('{"to": {"city": "Graz", "near": {"city": 5}}}', "to.near.city: 5 is not of type 'string'"),
    "enum": ('{"to": {"city": "Graz"}, "by": "car"}', "by: 'car' is not one of ['train', 'bus', None]"),
    "at the limit": ('{"to": {"city": "Graz"}, "days": 0}', "days: 0 is less than the minimum of 1"),
    "item": ('{"to": {"city": "Graz"}, "via": [{"city": "Linz"}, {}]}', "via.1: 'city' is a required property"),
    "unknown": ('{"to": {"city": "Graz"}, "when": 1}', "Additional properties are not allowed ('when' was unexpected)"),
    "no object": ("[1]", "Input should be an object"),
    "no JSON": ('{"to": ', "Invalid JSON: EOF while parsing"),
    "several": ('{"to": {"city": 5}, "days": 0}', "to.city: 5 is not of type 'string'; days: 0 is less"),
    "NaN": ('{"to": {"city": "Graz"}, "days": NaN}', "Out of range float values are not JSON compliant"),
}


@pytest.mark.parametrize(("arguments", "problem"), REFUSED.values(), ids=REFUSED.keys())
def test_the_model_reads_what_is_wrong_and_where(arguments: str, problem: str) -> None:
    result = call_tool(tool(anything, schema=TRIP), arguments)
    assert result.error == "invalid_arguments"
    assert problem in result.content


def test_a_refused_call_is_repeated_by_the_model_and_a_long_value_is_cut() -> None:
    script = [call("plan", {"to": {"city": ["x"] * 5_000}}), call("plan", {"to": {"city": "Graz"}}), "Done."]
    plan = tool(anything, name="plan", schema=TRIP)
    result = go(to_the_end(lab.Agent(lab.testing.ScriptedProvider(script), tools=[plan]).run("?")))
    first, second = (step.tool_results[0] for step in result.history[:2])
    assert (first.error, len(first.content) < 500, second.value) == ("invalid_arguments", True, {"to": {"city": "Graz"}})


async def to_the_end(run: Any) -> Any:
    return await run


def needs(city: str, days: int) -> None: ...


NO_SCHEMAS: dict[str, tuple[Any, Any, str]] = {
    "not JSON": (anything, {"type": "object", "properties": {1, 2}}, "a schema that is not JSON: TypeError"),
    "not a schema": (anything, {"type": "objekt"}, "('objekt' is not one of ['array', 'boolean', "),
    "not a schema inside": (anything, {"properties": {"a": {"minimum": "1"}}}, "not JSON Schema, at properties.a.minimum"),
    "a pattern": (anything, {"properties": {"a": {"pattern": "("}}}, "not JSON Schema, at properties.a.pattern"),
    "a list": (anything, {"type": "array"}, "a schema of type 'array': arguments are an object"),
    "a ref to nothing": (anything, {"properties": {"a": {"$ref": "#/$defs/A"}}}, "$ref '#/$defs/A', which points to nothing"),
    "a ref to an address": (anything, {"properties": {"a": {"$ref": "http://x.example/a.json"}}}, "points to nothing in it"),
    "an unknown argument": (needs, {"properties": {"town": {}}}, "does not take 'town', a property of its schema"),
    "an argument that may lack": (needs, {"properties": {"city": {}, "days": {}}, "required": ["city"]}, "needs 'days', which"),
    "no name": (anything, {"type": "function", "function": {"parameters": {}}}, "a function definition without a name"),
}


@pytest.mark.parametrize(("function", "schema", "message"), NO_SCHEMAS.values(), ids=NO_SCHEMAS.keys())
def test_a_schema_that_is_none_is_refused(function: Any, schema: Any, message: str) -> None:
    with pytest.raises(ToolDefinitionError) as caught:
        tool(function, schema=schema)
    assert message in str(caught.value)


# On each wire -----------------------------------------------------------------------------------------------------------------

ROUTE, FILE = {"properties": {"route": {"type": "string"}}, "required": ["route"]}, {"required": ["file"]}
FOLDED: dict[str, tuple[dict[str, Any], dict[str, Any], list[str]]] = {
    "required either": ({"properties": {"file": {}}, "anyOf": [ROUTE, FILE]}, {"file": {}, "route": {"type": "string"}}, []),
    "both": (
        {"allOf": [ROUTE, {"properties": {"file": {}}, **FILE}]},
        {"route": {"type": "string"}, "file": {}},
        ["file", "route"],
    ),
    "shared": (
        {
            "oneOf": [
                {"properties": {"a": {"const": 1}}, "required": ["a"]},
                {"properties": {"a": {"const": 2}}, "required": ["a"]},
            ]
        },
        {"a": {"anyOf": [{"const": 1}, {"const": 2}]}},
        ["a"],
    ),
    "a ref": ({"$ref": "#/$defs/R", "$defs": {"R": ROUTE}}, {"route": {"type": "string"}}, ["route"]),
    "a schema for anything": ({}, {}, []),
    "draft 7": (
        {"properties": {"a": {"$ref": "#/definitions/A"}}, "definitions": {"A": {"type": "string"}}},
        {"a": {"$ref": "#/$defs/A"}},
        [],
    ),
    "values are not schemas": (
        {"properties": {"$id": {"enum": [{"$ref": "x"}]}, "title": {"title": "T", "default": {"$id": 1}}}},
        {"$id": {"enum": [{"$ref": "x"}]}, "title": {"default": {"$id": 1}}},
        [],
    ),
}


@pytest.mark.parametrize(("schema", "properties", "required"), FOLDED.values(), ids=FOLDED.keys())
def test_the_top_level_is_sent_as_a_plain_object(schema: dict[str, Any], properties: Any, required: list[str]) -> None:
    sent = tool(anything, schema=schema).spec.parameters
    assert (sent["type"], sent["properties"], sent.get("required", [])) == ("object", properties, required)
    assert not {"anyOf", "oneOf", "allOf", "$ref", "$schema", "definitions"} & sent.keys()


def test_what_is_folded_away_is_still_checked() -> None:
    made = tool(anything, schema=FOLDED["required either"][0])
    assert call_tool(made, '{"route": "x"}').error is None
    assert "'route' is a required property" in call_tool(made, "{}").content


def test_a_schema_that_contains_itself_is_sent_whole() -> None:
    sent = tool(anything, schema={"properties": {"value": {}, "next": {"$ref": "#"}}, "required": ["value"]}).spec.parameters
    assert sent["properties"]["next"] == {"$ref": "#/$defs/_"}
    assert sent["$defs"]["_"]["properties"]["next"] == {"$ref": "#/$defs/_"}


PLACES = {
    "openai": lambda body: body["tools"][0]["function"]["parameters"],
    "openai-responses": lambda body: body["tools"][0]["parameters"],
    "anthropic": lambda body: body["tools"][0]["input_schema"],
    "gemini": lambda body: body["tools"][0]["functionDeclarations"][0]["parametersJsonSchema"],
    "bedrock": lambda body: body["toolConfig"]["tools"][0]["toolSpec"]["inputSchema"]["json"],
}


@pytest.mark.parametrize("name", PLACES)
def test_the_schema_reaches_each_wire(name: str) -> None:
    made = tool(anything, name="plan", schema=TRIP)
    body = json.loads(provider(name).build_request(ModelRequest([Message("user", "Hi")], "", (made.spec,), 9)).body)
    sent = PLACES[name](body)
    assert sent == made.spec.parameters
    assert sent["properties"]["via"]["items"] == {"$ref": "#/$defs/to"}  # Gemini accepts references to $defs only
    assert sent["$defs"]["to"] == {"$ref": "#/$defs/Place"}
    assert sent["$defs"]["Place"] == TRIP["$defs"]["Place"]
    assert {name: sent["properties"][name] for name in ("by", "days", "note")} == {
        name: TRIP["properties"][name] for name in ("by", "days", "note")
    }
    if name == "anthropic":
        pytest.importorskip("anthropic.types").ToolParam(**body["tools"][0])
    if name == "gemini":
        pytest.importorskip("google.genai.types").FunctionDeclaration.model_validate(body["tools"][0]["functionDeclarations"][0])


# Function definitions of the vendors --------------------------------------------------------------------------------------------

DEFINITION = {"name": "look_up", "description": "Look a word up.", "parameters": {"type": "object", "properties": {"word": {}}}}


REST, ARGUMENTS = {key: DEFINITION[key] for key in ("name", "description")}, DEFINITION["parameters"]
DEFINITIONS: dict[str, dict[str, Any]] = {
    "chat": {"type": "function", "function": DEFINITION},
    "responses": {"type": "function", **DEFINITION},
    "gemini": DEFINITION,
    "anthropic": {**REST, "input_schema": ARGUMENTS},
    "mcp": {**REST, "inputSchema": ARGUMENTS},
}


@pytest.mark.parametrize("definition", DEFINITIONS.values(), ids=DEFINITIONS.keys())
def test_a_definition_is_a_schema_with_a_name(definition: dict[str, Any]) -> None:
    made = lab.tool(anything, schema=definition)
    assert (made.name, made.spec.description, list(made.spec.parameters["properties"])) == (
        "look_up",
        "Look a word up.",
        ["word"],
    )
    assert lab.tool(anything, schema=definition, name="find", description="Mine.").spec.description == "Mine."
    assert pickle.loads(pickle.dumps(made)).name == "look_up"
    with pytest.raises(
        ToolDefinitionError, match=r"a definition without a function: write lab\.tool\(function, schema=definition\)"
    ):
        as_tools([definition])


def test_a_schema_with_a_property_called_parameters_is_no_definition() -> None:
    schema = {"type": "object", "properties": {"name": {}, "parameters": {"type": "object"}}}
    assert lab.tool(anything, schema=schema).spec.parameters == schema


# Tools of other libraries ---------------------------------------------------------------------------------------------------------

CITY = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}


@dataclass
class LangChainShaped:
    name: str = "forecast"
    description: str = "Tell the weather."
    args_schema: Any = None

    async def ainvoke(self, arguments: dict[str, Any]) -> str:
        if arguments["city"] == "Atlantis":
            raise ValueError("it sank")
        return f"{arguments['city']}: sun"


async def sunny(city: str, days: int = 1) -> str:
    """Tell the weather."""
    if city == "Atlantis":
        raise ValueError("it sank")
    return f"{city}: sun"


@dataclass
class FunctionSchemaShaped:
    json_schema: Any

    validator = SimpleNamespace(validate_python=lambda arguments: arguments)

    async def call(self, arguments: dict[str, Any], context: None) -> str:
        return await sunny(**arguments)


def pydantic_ai_shaped(**more: Any) -> Any:
    described = {"name": "forecast", "description": "Tell the weather.", "function_schema": FunctionSchemaShaped(CITY)}
    return SimpleNamespace(**described, **more)


def inspect_shaped(*, called: bool = True) -> Any:
    async def execute(city: str, days: int = 1) -> str:
        """Tell the weather."""
        return await sunny(city, days)

    execute.__registry_info__ = SimpleNamespace(type="tool", name="weather/forecast")  # type: ignore[attr-defined]
    if called:
        execute.__registry_params__ = {}  # type: ignore[attr-defined]
    return execute


def described_inspect_shaped() -> Any:
    made, parameters = inspect_shaped(), SimpleNamespace(model_dump=lambda exclude_none: CITY)
    made.__TOOL_DESCRIPTION__ = SimpleNamespace(name="forecast", description="Tell the weather.", parameters=parameters)
    return made


def real_langchain() -> Any:
    return pytest.importorskip("langchain_core.tools").tool("forecast")(sunny)


def real_langchain_sync() -> Any:
    def forecast(city: str, days: int = 1) -> str:
        """Tell the weather."""
        return go(sunny(city, days))

    return pytest.importorskip("langchain_core.tools").StructuredTool.from_function(forecast)


def real_pydantic_ai() -> Any:
    return pytest.importorskip("pydantic_ai").Tool(sunny, name="forecast")


def real_inspect() -> Any:
    return pytest.importorskip("inspect_ai.tool").ToolDef(
        sunny, name="forecast", description="Tell the weather.", parameters={"city": "where", "days": "how many"}
    )


SHAPES = {
    "LangChain's shape": lambda: LangChainShaped(args_schema=CITY),
    "pydantic-ai's shape": pydantic_ai_shaped,
    "Inspect's shape": inspect_shaped,
    "Inspect's shape, described": described_inspect_shaped,
    "LangChain": real_langchain,
    "LangChain, sync": real_langchain_sync,
    "pydantic-ai": real_pydantic_ai,
    "Inspect's ToolDef": real_inspect,
    "Inspect": lambda: real_inspect().as_tool(),
}


@pytest.mark.parametrize("made", SHAPES.values(), ids=SHAPES.keys())
def test_a_tool_of_another_library_is_a_tool(made: Any) -> None:
    theirs = made()
    ours = as_tools([theirs])["forecast"]
    assert ours.spec.description == "Tell the weather."
    assert list(ours.spec.parameters["properties"]) == ["city", "days"]
    assert ours.spec.parameters["required"] == ["city"]
    assert call_tool(ours, '{"city": "Graz", "days": 2}').content == "Graz: sun"
    assert call_tool(ours, '{"city": 5}').error == "invalid_arguments"
    failed = call_tool(ours, '{"city": "Atlantis"}')
    assert (failed.error, failed.content) == ("exception", "forecast raised ValueError: it sank")
    assert lab.tool(theirs, name="mine", description="Mine.").spec.description == "Mine."


def langchain_returning(value: Any) -> Any:
    def forecast(city: str) -> Any:
        """Tell the weather."""
        return value

    return pytest.importorskip("langchain_core.tools").StructuredTool.from_function(forecast)


def pydantic_ai_returning(make: Any) -> Any:
    async def forecast(city: str) -> Any:
        """Tell the weather."""
        return make(pytest.importorskip("pydantic_ai"))

    return pytest.importorskip("pydantic_ai").Tool(forecast)


def langchain_message() -> Any:
    content = [{"type": "text", "text": "sun"}, {"type": "image", "base64": IMAGE.base64, "mime_type": "image/png"}]
    return langchain_returning(pytest.importorskip("langchain_core.messages").ToolMessage(content, tool_call_id="1"))


IMAGE, URL = lab.Image(picture()), "https://example.com/a.png"
AUDIO, TABLE = lab.Audio(sound()), lab.Document(PDF)
WITH_PARTS: dict[str, tuple[Any, list[Any]]] = {
    "LangChain, as OpenAI": (
        lambda: langchain_returning(
            [
                {"type": "text", "text": "sun"},
                {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{IMAGE.base64}"}},
            ]
        ),
        ["sun", IMAGE],
    ),
    "LangChain": (
        lambda: langchain_returning(
            [
                {"type": "image", "base64": IMAGE.base64, "mime_type": "image/png"},
                {"type": "audio", "base64": AUDIO.base64, "mime_type": "audio/wav"},
                {"type": "file", "source_type": "base64", "data": TABLE.base64, "mime_type": "application/pdf"},
                {"type": "image", "url": URL},
            ]
        ),
        [IMAGE, AUDIO, TABLE, lab.Image(URL)],
    ),
    "LangChain's message": (langchain_message, ["sun", IMAGE]),
    "LangChain, other dicts": (
        lambda: langchain_returning([{"type": "image", "base64": "AAAA"}, {"url": URL}]),
        ['[{"type":"image","base64":"AAAA"},{"url":"https://example.com/a.png"}]'],
    ),
    "pydantic-ai": (lambda: pydantic_ai_returning(lambda ai: ai.BinaryContent(IMAGE.data, media_type="image/png")), [IMAGE]),
    "pydantic-ai's URL": (lambda: pydantic_ai_returning(lambda ai: ai.ImageUrl(URL)), [lab.Image(URL)]),
    "pydantic-ai's ToolReturn": (
        lambda: pydantic_ai_returning(
            lambda ai: ai.ToolReturn({"sky": "blue"}, content=["See", ai.BinaryContent(TABLE.data, media_type="application/pdf")])
        ),
        ['{"sky":"blue"}\nSee', TABLE],
    ),
}


@pytest.mark.parametrize(("made", "pieces"), WITH_PARTS.values(), ids=WITH_PARTS.keys())
def test_images_audio_and_files_of_another_library_are_parts(made: Any, pieces: list[Any]) -> None:
    result = call_tool(as_tools([made()])["forecast"], '{"city": "Graz"}')
    assert result.error is None
    assert result.pieces == pieces


@pytest.mark.parametrize("made", [SHAPES["LangChain's shape"], real_pydantic_ai], ids=["shape", "pydantic-ai"])
def test_a_tool_of_another_library_can_be_pickled(made: Any) -> None:
    ours = pickle.loads(pickle.dumps(as_tools([made()])["forecast"]))
    assert call_tool(ours, '{"city": "Graz"}').content == "Graz: sun"


UNUSABLE: dict[str, tuple[Any, str]] = {
    "context": (
        lambda: pydantic_ai_shaped(takes_ctx=True),
        "has takes_ctx=True, which agentlab lacks: pass a tool without RunContext",
    ),
    "approval": (lambda: pydantic_ai_shaped(requires_approval=True), "which agentlab lacks: use Agent(approve=…)"),
    "not called": (lambda: inspect_shaped(called=False), "makes an Inspect tool: call it, as in tools=[execute()]"),
}


def test_one_tool_that_is_no_list_is_refused() -> None:
    with pytest.raises(ToolDefinitionError, match="pass a list of functions"):
        as_tools(langchain_returning("sun"))


@pytest.mark.parametrize(("made", "message"), UNUSABLE.values(), ids=UNUSABLE.keys())
def test_a_tool_of_another_library_that_cannot_work_is_refused(made: Any, message: str) -> None:
    with pytest.raises(ToolDefinitionError) as caught:
        as_tools([made()])
    assert message in str(caught.value)

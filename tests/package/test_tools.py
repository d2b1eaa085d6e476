"""Tools: the schema in the request, the accepted arguments, and every failure of a call."""

from __future__ import annotations

import asyncio
import contextvars
import dataclasses
import datetime as dt
import enum
import functools
import json
import math
import pickle
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Optional

import numpy as np
import pandas as pd
import pydantic
import pytest
from engine.builders import assert_is_whole, call_tool, execute, go, look, run_of
from hypothesis import given, settings
from hypothesis import strategies as st

import agentlab as lab
from agentlab.errors import ToolDefinitionError
from agentlab.limits.live import LiveSettings
from agentlab.model.messages import ToolCall
from agentlab.notebook.page.steps import Shown, step_html
from agentlab.testing import call, say
from agentlab.tools import as_tools, tool

# The schema -----------------------------------------------------------------------------------------------------------------


class Place(pydantic.BaseModel):
    city: str
    zip_code: str | None = None


@dataclass
class Span:
    start: int
    stop: int = 10


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


def nothing() -> None: ...
def one(city: str) -> None: ...
def default(city: str, days: int = 3) -> None: ...
def optional(city: Optional[str] = None) -> None: ...  # noqa: UP045
def either(value: int | str) -> None: ...
def literal(unit: Literal["C", "F"] = "C") -> None: ...
def rows(items: list[dict[str, int]]) -> None: ...
def model(place: Place) -> None: ...
def data(span: Span) -> None: ...
def colour(colour: Colour) -> None: ...
def annotated(count: Annotated[int, pydantic.Field(ge=1, le=9, description="how many")]) -> None: ...
def field(city: str = pydantic.Field(description="the city")) -> None: ...
def field_default(days: int = pydantic.Field(3, ge=1, le=7, alias="many")) -> None: ...
def field_factory(cities: list[str] = pydantic.Field(default_factory=lambda: ["Graz"])) -> None: ...  # noqa: B008
def text(days: Annotated[int, "how many days", "or more"] = 3) -> None: ...
def text_and_field(days: Annotated[int, "how many", pydantic.Field(description="days")]) -> None: ...
def endless(price: float = math.inf, default: float = math.nan) -> None: ...
def endless_field(price: float = pydantic.Field(math.inf, ge=0, le=math.inf)) -> None: ...
def keyword_only(*, city: str) -> None: ...
def awkward(schema: str, copy: int, _hidden: bool, self_: str, model_config: str, argument_x: str = "") -> None: ...
def anything(value: Any) -> None: ...
def when(day: dt.date) -> None: ...
def mapping(scores: dict[str, float]) -> None: ...


SCHEMAS: dict[Callable[..., Any], tuple[dict[str, Any], list[str]]] = {
    nothing: ({}, []),
    one: ({"city": {"type": "string"}}, ["city"]),
    default: ({"city": {"type": "string"}, "days": {"type": "integer", "default": 3}}, ["city"]),
    optional: ({"city": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None}}, []),
    either: ({"value": {"anyOf": [{"type": "integer"}, {"type": "string"}]}}, ["value"]),
    literal: ({"unit": {"enum": ["C", "F"], "type": "string", "default": "C"}}, []),
    rows: ({"items": {"items": {"additionalProperties": {"type": "integer"}, "type": "object"}, "type": "array"}}, ["items"]),
    model: ({"place": {"$ref": "#/$defs/Place"}}, ["place"]),
    data: ({"span": {"$ref": "#/$defs/Span"}}, ["span"]),
    colour: ({"colour": {"$ref": "#/$defs/Colour"}}, ["colour"]),
    annotated: ({"count": {"type": "integer", "minimum": 1, "maximum": 9, "description": "how many"}}, ["count"]),
    field: ({"city": {"type": "string", "description": "the city"}}, ["city"]),
    field_default: ({"days": {"type": "integer", "minimum": 1, "maximum": 7, "default": 3}}, []),
    field_factory: ({"cities": {"type": "array", "items": {"type": "string"}}}, []),
    text: ({"days": {"type": "integer", "default": 3, "description": "how many days"}}, []),
    text_and_field: ({"days": {"type": "integer", "description": "days"}}, ["days"]),
    endless: ({"price": {"type": "number"}, "default": {"type": "number"}}, []),
    endless_field: ({"price": {"type": "number", "minimum": 0}}, []),
    keyword_only: ({"city": {"type": "string"}}, ["city"]),
    awkward: (
        {
            "schema": {"type": "string"},
            "copy": {"type": "integer"},
            "_hidden": {"type": "boolean"},
            "self_": {"type": "string"},
            "model_config": {"type": "string"},
            "argument_x": {"type": "string", "default": ""},
        },
        ["schema", "copy", "_hidden", "self_", "model_config"],
    ),
    anything: ({"value": {}}, ["value"]),
    when: ({"day": {"type": "string", "format": "date"}}, ["day"]),
    mapping: ({"scores": {"additionalProperties": {"type": "number"}, "type": "object"}}, ["scores"]),
}


@pytest.mark.parametrize("function", SCHEMAS, ids=lambda function: function.__name__)
def test_the_schema_follows_the_signature(function: Callable[..., Any]) -> None:
    properties, required = SCHEMAS[function]
    spec = tool(function).spec
    assert spec.name == function.__name__
    assert spec.parameters["type"] == "object"
    assert spec.parameters["properties"] == properties
    assert spec.parameters.get("required", []) == required
    assert spec.parameters["additionalProperties"] is False
    assert json.loads(spec.parameters_json, parse_constant=pytest.fail) == spec.parameters
    assert "title" not in spec.parameters


VALUES: list[tuple[Callable[..., Any], str, dict[str, Any]]] = [
    (nothing, "", {}),
    (nothing, "  ", {}),
    (nothing, "{}", {}),
    (one, '{"city": "Rome"}', {"city": "Rome"}),
    (default, '{"city": "Rome"}', {"city": "Rome", "days": 3}),
    (default, '{"city": "Rome", "days": "5"}', {"city": "Rome", "days": 5}),
    (optional, '{"city": null}', {"city": None}),
    (literal, '{"unit": "F"}', {"unit": "F"}),
    (field, '{"city": "Rome"}', {"city": "Rome"}),
    (endless_field, "{}", {"price": math.inf}),
    (field_default, "", {"days": 3}),
    (field_default, '{"days": "7"}', {"days": 7}),
    (field_factory, "{}", {"cities": ["Graz"]}),
    (rows, '{"items": [{"a": 1}, {}]}', {"items": [{"a": 1}, {}]}),
    (model, '{"place": {"city": "Rome"}}', {"place": Place(city="Rome")}),
    (data, '{"span": {"start": 1}}', {"span": Span(1)}),
    (colour, '{"colour": "red"}', {"colour": Colour.RED}),
    (when, '{"day": "2025-01-31"}', {"day": dt.date(2025, 1, 31)}),
    (keyword_only, '{"city": "Zürich \\u00e9"}', {"city": "Zürich é"}),
]


@pytest.mark.parametrize(("function", "arguments", "values"), VALUES, ids=lambda value: getattr(value, "__name__", str(value)))
def test_the_function_gets_the_arguments_as_its_own_types(
    function: Callable[..., Any], arguments: str, values: dict[str, Any]
) -> None:
    assert tool(function).validate(arguments) == values


def test_awkward_parameter_names_are_passed_under_their_own_names() -> None:
    sent = {"schema": "s", "copy": 1, "_hidden": True, "self_": "x", "model_config": "m", "argument_x": "y"}
    assert tool(awkward).validate(json.dumps(sent)) == sent


def google(city: str, days: int = 1) -> None:
    """Look at the weather.

    It knows the future.

    Args:
        city: where to look
        days: how far ahead
    """


def numpy(city: str, days: int = 1) -> None:
    """Look at the weather.

    It knows the future.

    Parameters
    ----------
    city : str
        where to look
    days : int
        how far ahead
    """


def sphinx(city: str, days: int = 1) -> None:
    """Look at the weather.

    It knows the future.

    :param city: where to look
    :param days: how far ahead
    """


@pytest.mark.parametrize("function", [google, numpy, sphinx], ids=lambda function: function.__name__)
def test_the_docstring_describes_tool_and_parameters(function: Callable[..., Any]) -> None:
    spec = tool(function).spec
    assert spec.description == "Look at the weather.\n\nIt knows the future."
    described = {name: each.get("description") for name, each in spec.parameters["properties"].items()}
    assert described == {"city": "where to look", "days": "how far ahead"}


def google_sections(city: str) -> None:
    """Look at the weather.

    SQL:
        rain(city, mm)

    Important: at most
        three cities.

    Args:
        city: where to look

    Keyword Args:
        days: how far ahead

    Returns: what you need,
        pairs of day: degrees,
        newest first.

    Raises:
        ValueError: if there is no such city

    Warnings:
        It costs money.

    Examples:
        Rain in Graz:

        >>> look("Graz")

    Then read the news.
    """


def numpy_sections(city: str) -> None:
    """Look at the weather.

    Parameters
    ----------
    city : str
        where to look

    Returns
    -------
    list of float
        degrees

    Warns
    -----
    UserWarning
        for old data

    Notes
    -----
    In German only.
    """


def sphinx_sections(city: str) -> None:
    """Look at the weather.

    :param city: where to look
    :returns: degrees
    :raises ValueError: if there is no such city
    """


SECTIONS = {
    google_sections: [
        "SQL:\n    rain(city, mm)",
        "Important:\n    at most\n    three cities.",
        "Returns:\n    what you need,\n    pairs of day: degrees,\n    newest first.",
        "Warning:\n    It costs money.",
        'Examples:\n    Rain in Graz:\n\n    >>> look("Graz")',
        "Then read the news.",
    ],
    numpy_sections: ["Returns:\n    list of float: degrees", "Notes:\n    In German only."],
    sphinx_sections: ["Returns:\n    degrees"],
}


@pytest.mark.parametrize("function", SECTIONS, ids=lambda function: function.__name__)
def test_the_model_reads_all_sections_of_a_docstring_but_exceptions(function: Callable[..., Any]) -> None:
    spec = tool(function).spec
    assert spec.description.split("\n\n", 1) == ["Look at the weather.", "\n\n".join(SECTIONS[function])]
    assert spec.parameters["properties"]["city"]["description"] == "where to look"


def test_the_sections_of_a_docstring_do_not_depend_on_its_parameters() -> None:
    def look_up(city: str) -> None:
        """Look up.

        See Also:
            The map.

        Returns:
            A list.
        """

    assert tool(look_up).spec.description == "Look up.\n\nSee Also:\n    The map.\n\nReturns:\n    A list."


def test_keyword_arguments_are_described() -> None:
    def look_up(*, days: int) -> None:
        """Look up.

        Keyword Args:
            days: how far ahead
        """

    assert tool(look_up).spec.parameters["properties"]["days"]["description"] == "how far ahead"


def test_a_plain_docstring_is_the_description() -> None:
    def look_up(city: str) -> None:
        """Look up: cities, towns.

        Returns a list. See also: the map.
        """

    spec = tool(look_up).spec
    assert spec.description.startswith("Look up: cities, towns.")
    assert "See also: the map." in spec.description
    assert tool(description="Mine.", name="mine")(look_up).spec.description == "Mine."
    assert tool(one).spec.description == ""


def test_the_docstring_takes_precedence_over_the_annotation() -> None:
    def both(
        count: Annotated[int, pydantic.Field(description="from the annotation")],
        size: int = pydantic.Field(3, description="from the default", le=9),
        unit: Annotated[str, "from the text"] = "cm",
    ) -> None:
        """Count.

        Args:
            count: from the docstring
            size: from the docstring
            unit: from the docstring
        """

    properties = tool(both).spec.parameters["properties"]
    assert [one["description"] for one in properties.values()] == ["from the docstring"] * 3
    assert properties["size"]["maximum"] == 9


@pytest.mark.parametrize(("function", "sent"), [(field, "{}"), (field_default, '{"days": 8}')], ids=["required", "limit"])
def test_a_field_as_default_checks_the_arguments(function: Callable[..., Any], sent: str) -> None:
    assert call_tool(tool(function), sent).error == "invalid_arguments"


# Objects that can be tools --------------------------------------------------------------------------------------------------


class Shop:
    """A shop with things in it."""

    def find(self, thing: str) -> str:
        """Find a thing."""
        return f"found {thing}"

    @staticmethod
    def price(thing: str) -> int:
        """Its price."""
        return len(thing)

    @classmethod
    async def open_(cls, hour: int) -> bool:
        """Whether it is open."""
        return hour > 8

    def __call__(self, thing: str) -> str:
        return f"sold {thing}"


def with_index(query: str, index: str, limit: int = 3) -> str:
    """Search an index."""
    return f"{query} in {index}, {limit}"


@pytest.mark.parametrize(
    ("function", "name", "arguments", "content"),
    [
        (Shop().find, "find", {"thing": "hat"}, "found hat"),
        (Shop.price, "price", {"thing": "hat"}, "3"),
        (Shop.open_, "open_", {"hour": 9}, "true"),
        (Shop(), "Shop", {"thing": "hat"}, "sold hat"),
        (functools.partial(with_index, index="news"), "with_index", {"query": "cats"}, "cats in news, 3"),
        (functools.partial(with_index, "cats"), "with_index", {"index": "news"}, "cats in news, 3"),
    ],
    ids=["method", "static", "async-classmethod", "object", "partial", "partial-by-position"],
)
def test_every_callable_is_a_tool(function: Any, name: str, arguments: dict[str, Any], content: str) -> None:
    made = tool(function)
    assert made.name == name
    result = call_tool(made, json.dumps(arguments))
    assert (result.content, result.error) == (content, None)


def test_bound_arguments_of_a_partial_are_hidden_from_the_model() -> None:
    made = tool(functools.partial(with_index, index="news"))
    assert list(made.spec.parameters["properties"]) == ["query", "limit"]
    assert made.spec.description == "Search an index."
    assert call_tool(made, '{"query": "cats", "index": "secrets"}').error == "invalid_arguments"


class Answer(pydantic.BaseModel):
    """The answer to hand in."""

    city: str = pydantic.Field(description="where to go")
    days: int = pydantic.Field(default=1, ge=1)
    stops: list[Place] = []
    via: str = pydantic.Field(default="", alias="through")


class Numbers(pydantic.RootModel[list[int]]):
    """A list."""


def any_number(*trips: Answer) -> None: ...


def book(trip):  # type: ignore[no-untyped-def]
    """Book it."""
    assert type(trip) is Answer
    return f"{trip.city}, {trip.days}, {[stop.city for stop in trip.stops]}, {trip.via}"


async def book_later(*, trip: object) -> str:
    """Book it."""
    return str(book(trip))


@pytest.mark.parametrize("function", [book, book_later], ids=["sync", "async"])
def test_a_class_as_parameter_is_a_schema_and_arrives_as_an_instance(function: Any) -> None:
    made = pickle.loads(pickle.dumps(tool(schema=Answer, timeout_s=30)(function)))
    assert (made.spec.description, made.timeout_s, list(made.spec.parameters["properties"])) == (
        "Book it.",
        30,
        ["city", "days", "stops", "through"],
    )
    assert made.spec.parameters["properties"]["city"] == {"type": "string", "description": "where to go"}
    assert made.spec.parameters["required"] == ["city"]
    assert json.loads(made.spec.parameters_json) == made.spec.parameters
    sent = {"city": "Graz", "days": 2, "stops": [{"city": "Linz"}], "through": "Wels"}
    assert call_tool(made, json.dumps(sent)).content == "Graz, 2, ['Linz'], Wels"
    wrong = call_tool(made, '{"city": "Graz", "days": 0}')
    assert wrong.error == "invalid_arguments"
    assert wrong.content == "The arguments are not valid, nothing was executed. days: Input should be greater than or equal to 1"


class Range(pydantic.BaseModel):
    least: float = 0
    most: float = math.inf


class Search(pydantic.BaseModel):
    within: Range = Range()
    factor: float = math.inf


def find(search: Search) -> str:
    return str(search.within.most + search.factor)


@pytest.mark.parametrize("made", [tool(find), tool(find, schema=Search)], ids=["parameter", "schema"])
def test_a_default_that_is_no_json_is_not_sent(made: lab.tools.Tool) -> None:
    assert '"most": {"title": "Most", "type": "number"}' in made.spec.parameters_json
    assert "Infinity" not in made.spec.parameters_json
    sent = "{}" if made.takes else '{"search": {}}'
    assert call_tool(made, sent).content == "inf"


def test_a_class_is_a_tool_and_a_terminating_one_returns_the_instance() -> None:
    script = [call("Answer", {"city": "Graz", "days": "many"}), call("Answer", {"city": "Graz"})]
    made = lab.Agent(lab.testing.ScriptedProvider(script), tools=[Answer], terminating=["Answer"])
    assert made.tools["Answer"].spec.description == "The answer to hand in."
    assert "description" not in made.tools["Answer"].spec.parameters
    run = pickle.loads(pickle.dumps(made)).run("go")
    result = go(ended(run))
    assert (result.stop_reason, result.output) == (lab.StopReason.TERMINATING_TOOL, Answer(city="Graz"))
    assert result.history[0].tool_results[0].error == "invalid_arguments"
    assert json.loads(result.history[1].tool_results[0].content) == {"city": "Graz", "days": 1, "stops": [], "through": ""}
    assert tool(name="answer", description="Mine.")(Answer).spec.description == "Mine."


def only_city(city: str) -> str:
    return city


class complete_task(pydantic.BaseModel):  # noqa: N801  the name that the documentation of other tools uses
    result: str


def complete_task_func(result: str) -> str:
    """Complete the task."""
    return f"Task completed: {result}"


def complete_with_the_object(result: complete_task) -> str:
    return f"Task completed: {result!r}"


def complete_without_annotation(result):  # type: ignore[no-untyped-def]
    return f"Task completed: {result}"


def complete_by_another_name(task):  # type: ignore[no-untyped-def]
    return f"Task completed: {task!r}"


async def complete_later(*, result: str) -> str:
    return f"Task completed: {result}"


def complete_with_more(result: str, shout: bool = False, **more: Any) -> str:
    return f"Task completed: {result}, {shout}, {more}"


def complete_with_any(**fields: Any) -> str:
    return f"Task completed: {fields}"


COMPLETIONS = {
    "the specification's": (complete_task_func, "Task completed: ok"),
    "the object": (complete_with_the_object, "Task completed: complete_task(result='ok')"),
    "a field without annotation": (complete_without_annotation, "Task completed: ok"),
    "the object by another name": (complete_by_another_name, "Task completed: complete_task(result='ok')"),
    "async": (complete_later, "Task completed: ok"),
    "further parameters": (complete_with_more, "Task completed: ok, False, {}"),
    "any fields": (complete_with_any, "Task completed: {'result': 'ok'}"),
}


@pytest.mark.parametrize(("function", "content"), COMPLETIONS.values(), ids=COMPLETIONS.keys())
def test_a_function_gets_the_fields_or_the_object_whichever_it_takes(function: Any, content: str) -> None:
    made = lab.tool(name="complete_task", schema=complete_task)(function)
    for one in (made, pickle.loads(pickle.dumps(made))):
        agent = lab.Agent(
            lab.testing.ScriptedProvider([call("complete_task", {"result": "ok"})]), tools=[one], terminating=["complete_task"]
        )
        result = go(ended(agent.run("go")))
        assert (result.stop_reason, result.output) == (lab.StopReason.TERMINATING_TOOL, content)
        assert result.history[0].tool_results[0].content == content
        wrong = call_tool(one, '{"result": 5}')
        assert wrong.error == "invalid_arguments"
    assert list(made.spec.parameters["properties"]) == ["result"]


class Given(pydantic.BaseModel):
    given: str


def test_a_class_with_any_field_is_a_tool() -> None:
    assert json.loads(call_tool(tool(Given), '{"given": "x"}').content) == {"given": "x"}


def test_fields_in_a_class_keep_their_types_and_defaults() -> None:
    def plan(stops: list[Any], city: str, via: str, days: int) -> str:
        return f"{city}, {days}, {[stop.city for stop in stops]}, {via!r}"

    made = tool(plan, schema=Answer)
    assert call_tool(made, '{"city": "Graz", "stops": [{"city": "Linz"}]}').content == "Graz, 1, ['Linz'], ''"


NO_SCHEMAS: dict[str, tuple[Any, Any, str]] = {
    "no-class": (book, "Answer", "has schema='Answer': pass a class made from pydantic.BaseModel"),
    "another-class": (book, Span, "pass a class made from pydantic.BaseModel"),
    "no-parameter": (nothing, Answer, r"takes \(\): give it one parameter, which gets the Answer"),
    "two-parameters": (with_index, Answer, "give it one parameter"),
    "any-number": (any_number, Answer, r"takes \(\*trips: 'Answer'\): give it one parameter"),
    "one-field-of-several": (only_city, Answer, "or one for each field: city, days, stops, via"),
    "no-object": (book, Numbers, "which is not an object"),
}


@pytest.mark.parametrize(("function", "schema", "message"), NO_SCHEMAS.values(), ids=NO_SCHEMAS.keys())
def test_an_impossible_schema_is_refused(function: Any, schema: Any, message: str) -> None:
    with pytest.raises(ToolDefinitionError, match=message):
        tool(schema=schema)(function)


def untyped(city, days: int = 1):
    """No annotation."""


def star(*cities: str) -> None: ...
def double_star(**cities: str) -> None: ...
def by_position(city: str, /) -> None: ...
def unresolved(city: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821
def broken_annotation(city: "list[") -> None: ...  # noqa: F722
def look_ahead(name: Annotated[str, pydantic.Field(pattern="^(?!admin).*$")]) -> None: ...
def callback(then: Callable[[int], int]) -> None: ...
def thread(lock: threading.Thread) -> None: ...


DEFINITIONS: dict[str, tuple[Any, str]] = {
    "method-without-its-object": (threading.Thread.join, "pass the method of an object, such as `shop.join` for `shop = Shop()`"),
    "no-annotation": (untyped, "no annotation for its parameter 'city': write its type, such as `city: str`"),
    "star": (star, "takes *cities: 'str', which a model cannot fill in"),
    "double-star": (double_star, "annotations, or pass a JSON schema, lab.tool(…, schema={…})"),
    "positional-only": (by_position, "takes city: 'str'"),
    "unresolved-annotation": (unresolved, "name 'Nowhere' is not defined"),
    "broken-annotation": (broken_annotation, "an annotation that cannot be resolved"),
    "no-schema": (callback, "has a parameter that has no JSON schema"),
    "no-regex": (look_ahead, "no JSON schema: regex parse error: ^(?!admin).*$ ^^^ error: look-around"),
    "no-schema-at-all": (thread, "has a parameter that has no JSON schema"),
    "class": (Shop, "is not a function"),
    "text": ("search", "'search' is not a function"),
    "agent": (lab.Agent(lab.testing.ScriptedProvider([])), "is not a function: pass agent.as_tool("),
    "nothing": (None, "None is not a function"),
    "builtin-without-signature": (max, "has no signature"),
    "lambda": (lambda: 1, "'<lambda>' cannot be a tool's name"),
}


@pytest.mark.parametrize(("function", "message"), DEFINITIONS.values(), ids=DEFINITIONS.keys())
def test_an_unusable_function_is_refused_by_name(function: Any, message: str) -> None:
    with pytest.raises(ToolDefinitionError) as caught:
        as_tools([function])
    assert message in str(caught.value)


NAMES = {
    "a": True, "get_weather": True, "get-weather": True, "A9": True, "x" * 64: True,
    "x" * 65: False, "get weather": False, "get.weather": False, "größe": False, "a/b": False,
}  # fmt: skip


@pytest.mark.parametrize(("name", "allowed"), NAMES.items(), ids=lambda value: str(value)[:12])
def test_tool_names(name: str, allowed: bool) -> None:
    if allowed:
        assert tool(name=name)(one).name == name
    else:
        with pytest.raises(ToolDefinitionError, match="letters, digits, _ and -, at most 64"):
            tool(name=name)(one)


@pytest.mark.parametrize("timeout_s", [0, -1, float("nan"), float("inf"), "5"], ids=repr)
def test_invalid_time_limits_are_refused(timeout_s: Any) -> None:
    with pytest.raises(ToolDefinitionError, match="timeout_s"):
        tool(timeout_s=timeout_s)(one)


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(ToolDefinitionError, match="Two tools have the name 'one'"):
        as_tools([one, tool(name="one")(default)])
    assert list(as_tools([one, tool(name="two")(one)])) == ["one", "two"]


@pytest.mark.parametrize("tools", [look, one, "search", 5], ids=["tool", "function", "text", "number"])
def test_tools_must_be_a_list(tools: Any) -> None:
    with pytest.raises(ToolDefinitionError, match=r"pass a list of functions, such as tools=\[search"):
        lab.Agent(lab.testing.ScriptedProvider(["end"]), tools=tools)


def test_the_decorator_with_and_without_arguments() -> None:
    @lab.tool
    def plain(x: int) -> int:
        return x

    @lab.tool(timeout_s=5, name="named")
    async def dressed(x: int) -> int:
        return x

    assert (plain.name, plain.timeout_s, plain.is_async, repr(plain)) == ("plain", None, False, "Tool(plain)")
    assert (dressed.name, dressed.timeout_s, dressed.is_async) == ("named", 5, True)
    assert plain.function(3) == 3


# Arguments from the model -----------------------------------------------------------------------------------------------------

INVALID = {
    "missing": (one, "{}", "city: Field required"),
    "wrong-type": (default, '{"city": "Rome", "days": "soon"}', "days: Input should be a valid integer"),
    "unknown-argument": (one, '{"city": "Rome", "day": 1}', "day: Extra inputs are not permitted"),
    "not-in-the-list": (literal, '{"unit": "K"}', "unit: Input should be 'C' or 'F'"),
    "deep": (model, '{"place": {"zip_code": "1"}}', "place.city: Field required"),
    "out-of-range": (annotated, '{"count": 10}', "count: Input should be less than or equal to 9"),
    "broken-json": (one, '{"city": Rome}', "Invalid JSON"),
    "cut-off-json": (one, '{"city": "Ro', "Invalid JSON: EOF"),
    "no-object": (one, '["Rome"]', "Input should be an object"),
    "null": (one, "null", "Input should be an object"),
    "several": (default, '{"days": "soon", "x": 1}', "city: Field required; days: "),
    "our-own-prefix": (one, '{"argument_city": "Rome"}', "city: Field required"),
}


@pytest.mark.parametrize(("function", "arguments", "message"), INVALID.values(), ids=INVALID.keys())
def test_wrong_arguments_are_explained_to_the_model(function: Any, arguments: str, message: str) -> None:
    result = call_tool(function, arguments)
    assert result.error == "invalid_arguments"
    assert message in result.content
    assert "nothing was executed" in result.content
    assert "pydantic" not in result.content
    assert result.arguments == arguments


def test_an_unknown_tool_is_answered_with_the_known_ones() -> None:
    result = go(execute(ToolCall("c1", "serach", "{}"), as_tools([one, default])))
    assert result.error == "unknown_tool"
    assert result.content == "There is no tool 'serach'. Available tools: one, default."
    assert go(execute(ToolCall("c1", "x", "{}"), {})).content.endswith("Available tools: none.")


def test_a_call_that_was_cut_off_is_not_executed() -> None:
    made = as_tools([one])
    result = go(execute(ToolCall("c1", "one", '{"city": "Rome"}', closed=False), made))
    assert result.error == "not_executed"


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=30))
def test_any_arguments_get_a_result(arguments: str) -> None:
    result = call_tool(tool(inline=True)(default), arguments)
    assert result.error in (None, "invalid_arguments")
    assert result.content


# Results ----------------------------------------------------------------------------------------------------------------------


def lazily(fail: bool) -> Iterator[int]:
    yield 1
    if fail:
        raise KeyError("half way")


RETURNS: dict[str, tuple[Any, str]] = {
    "text": ("as it is", "as it is"),
    "empty": ("", ""),
    "number": (3, "3"),
    "none": (None, "null"),
    "list": ([1, "a", None], '[1,"a",null]'),
    "dict": ({"é": 1.5}, '{"é":1.5}'),
    "model": (Place(city="Rome"), '{"city":"Rome","zip_code":null}'),
    "dataclass": (Span(1), '{"start":1,"stop":10}'),
    "date": (dt.date(2025, 1, 31), '"2025-01-31"'),
    "set": ({3}, "[3]"),
    "generator": (lazily(False), "[1]"),
    "sum of a column": (pd.Series([1, 2]).sum(), "3"),
    "comparison of a column": ({"any": pd.Series([1, 2]).gt(1).any()}, '{"any":true}'),
    "missing": (
        [{"at": pd.NaT, "n": pd.NA}, {"at": pd.Timestamp("2027-06-12")}],
        '[{"at":null,"n":null},{"at":"2027-06-12T00:00:00"}]',
    ),
    "array": ({"values": [np.arange(4).reshape(2, 2)]}, '{"values":[[[0,1],[2,3]]]}'),
}


@pytest.mark.parametrize(("value", "content"), RETURNS.values(), ids=RETURNS.keys())
def test_a_tools_return_value_becomes_text_or_json(value: Any, content: str) -> None:
    result = call_tool(lambda: value, name="f")
    assert (result.content, result.error, result.value) == (content, None, value)
    assert result.duration_s >= 0


loop: list[Any] = []
loop.append(loop)


@pytest.mark.parametrize(
    "value",
    [object(), threading.Lock(), loop, lazily(True), b"\xff", {1: object()}, lambda: 1],
    ids=lambda value: type(value).__name__,
)
def test_a_value_without_a_json_form_is_reported(value: Any) -> None:
    result = call_tool(lambda: value, name="f")
    assert result.error == "unserialisable"
    assert f"f returned {type(value).__name__}, which cannot be turned into JSON" in result.content
    assert result.value is value


ERRORS = [
    ValueError("bad city"), KeyError("x"), ZeroDivisionError(), StopIteration("done"), TimeoutError("of its own"), TimeoutError(),
    SystemExit(2), asyncio.CancelledError("its own"), RecursionError("deep"), MemoryError(), AssertionError(),
]  # fmt: skip


@pytest.mark.parametrize("timeout_s", [None, 30], ids=["without-limit", "with-limit"])
@pytest.mark.parametrize("kind", ["thread", "inline", "async"])
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: repr(error)[:20])
def test_a_tools_exception_is_reported_to_the_model(error: BaseException, kind: str, timeout_s: float | None) -> None:
    def sync() -> Any:
        raise error

    async def later() -> Any:
        await asyncio.sleep(0)
        raise error

    result = call_tool(later if kind == "async" else sync, name="f", inline=kind == "inline", timeout_s=timeout_s)
    assert result.error == "exception"
    assert result.content.startswith("f raised ")
    assert type(error).__name__ in result.content
    assert str(error) in result.content or isinstance(error, StopIteration)  # Python itself rewords that one
    assert isinstance(result.value, BaseException)


class Unspeakable(Exception):  # noqa: N818
    """An exception without a text."""

    def __str__(self) -> str:
        raise RuntimeError("no words")

    __repr__ = __str__


class Abrupt(BaseException):
    """A program-ending exception, also without a text."""

    def __str__(self) -> str:
        raise SystemExit(3)

    __repr__ = __str__


class Speechless:
    """A value that raises on every access."""

    def __repr__(self) -> str:
        raise Abrupt

    def __iter__(self) -> Iterator[int]:
        raise Abrupt

    __str__ = __repr__


def abruptly() -> Iterator[int]:
    yield 1
    raise Abrupt


HOSTILE = [
    Unspeakable(),
    Abrupt(),
    GeneratorExit("own"),
    asyncio.CancelledError("own"),
    SystemExit(2),
    BaseExceptionGroup("g", [Abrupt()]),
]


@pytest.mark.parametrize("how", ["thread", "inline", "async", "async, waited for"])
@pytest.mark.parametrize("error", HOSTILE, ids=lambda error: type(error).__name__)
def test_no_exception_of_a_tool_escapes_the_run(error: BaseException, how: str) -> None:
    def sync() -> str:
        raise error

    async def later() -> str:
        await asyncio.sleep(0)
        raise error

    made = lab.tool(name="t", inline=how == "inline", on_cancel="wait" if "waited" in how else "cancel")
    assert_is_reported(made(later if how.startswith("async") else sync), "exception", type(error).__name__)


@pytest.mark.parametrize("value", [Speechless(), {"deep": [Speechless()]}, abruptly()], ids=["value", "in-a-dict", "generator"])
def test_no_exception_of_a_returned_value_escapes_the_run(value: Any) -> None:
    assert_is_reported(lab.tool(name="t")(lambda: value), "unserialisable", "cannot be turned into JSON")


def assert_is_reported(made: lab.Tool, error: str, message: str) -> None:
    """Assert that the model gets the error, the run continues, a store keeps it, and all of it can be displayed."""
    store = lab.Store()
    run = run_of([call("t"), "I see."], tools=[made], observers=[store])
    result = go(ended(run))
    assert_is_whole(run)
    tool_result = result.history[0].tool_results[0]
    assert (result.text, tool_result.error) == ("I see.", error)
    assert message in tool_result.content
    assert repr(tool_result) and tool_result._repr_mimebundle_()
    assert result.to_frame("tools")["error"].tolist() == [error]
    assert store.load(run.id).history[0].tool_results[0].content == tool_result.content


async def ended(run: lab.Run) -> lab.RunResult:
    return await run


@pytest.mark.parametrize("how", ["inline", "async"])
def test_an_interrupt_is_the_users_and_ends_the_run(how: str) -> None:
    def sync() -> str:
        raise KeyboardInterrupt

    async def later() -> str:
        raise KeyboardInterrupt

    run = run_of([call("t"), "never asked"], tools=[lab.tool(name="t", inline=True)(later if how == "async" else sync)])
    with pytest.raises(KeyboardInterrupt):
        go(ended(run))
    assert_is_whole(run)
    assert [one.error for one in run.history[0].tool_results] == ["interrupted"]


def test_a_keyboard_interrupt_on_a_thread_is_the_tools_own() -> None:
    def sync() -> str:
        raise KeyboardInterrupt

    assert_is_reported(lab.tool(name="t")(sync), "exception", "KeyboardInterrupt")


def test_exceptions_without_a_text_in_observers_listeners_and_conditions_are_reported() -> None:
    def watch(event: object) -> None:
        raise Unspeakable

    def decide(history: object) -> bool:
        raise Unspeakable

    run = run_of(["end"], observers=[watch], stop=decide)
    limits = LiveSettings()
    limits.subscribe(lambda before, after, by: watch(by))
    with pytest.warns(lab.errors.AgentlabWarning, match="A listener .* raised Unspeakable: <Unspeakable, whose text raised"):
        limits.max_turns = 5
    with pytest.warns(lab.errors.AgentlabWarning, match="The observer .* raised Unspeakable: <Unspeakable, whose text raised"):
        result = go(ended(run))
    assert result.stop_reason is lab.StopReason.ERROR
    assert "raised Unspeakable: <Unspeakable, whose text raised RuntimeError>" in result.detail
    assert_is_whole(run)


def test_a_raising_tool_ends_no_run() -> None:
    @lab.tool
    def broken() -> str:
        raise ValueError("no such city")

    run = run_of([call("broken"), "I see."], tools=[broken])

    async def main() -> lab.RunResult:
        return await run

    result = go(main())
    assert result.stop_reason is lab.StopReason.COMPLETED
    assert result.history[0].tool_results[0].is_error
    assert result.messages[2].tool_results[0].content == "broken raised ValueError: no such city"
    assert_is_whole(run)


# Threads, time limits ---------------------------------------------------------------------------------------------------------

here: contextvars.ContextVar[str] = contextvars.ContextVar("here", default="nowhere")


@pytest.mark.parametrize(("inline", "own_thread"), [(False, True), (True, False)], ids=["thread", "inline"])
def test_a_sync_tool_runs_on_its_own_thread_unless_inline(inline: bool, own_thread: bool) -> None:
    where: list[Any] = []

    def f() -> None:
        where.append((threading.current_thread(), here.get()))

    async def main() -> None:
        here.set("in the run")
        made = tool(inline=inline)(f)
        await execute(ToolCall("c1", "f", "{}"), {"f": made})

    go(main())
    thread, seen = where[0]
    assert (thread is not threading.main_thread()) is own_thread
    assert seen == "in the run"
    if own_thread:
        assert thread.daemon
        assert thread.name == "agentlab-tool-f"


def test_a_blocking_tool_does_not_block_others() -> None:
    release = threading.Event()

    def f() -> str:
        release.wait(60)
        return "released"

    async def main() -> str:
        running = asyncio.ensure_future(execute(ToolCall("c1", "f", "{}"), {"f": tool(f)}))
        await asyncio.sleep(0.02)
        assert not running.done()
        release.set()
        return (await running).content

    assert go(main()) == "released"


wake = threading.Event()
"""Set when a tool that sleeps on a thread may wake early."""


def sleeps(seconds: float) -> str:
    wake.wait(seconds)
    return "awake"


async def sleeps_later(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "awake"


@pytest.mark.parametrize("function", [sleeps, sleeps_later], ids=["sync", "async"])
@pytest.mark.parametrize(("seconds", "limit", "error"), [(0.0, 60.0, None), (60.0, 0.05, "timeout")], ids=["in-time", "too-late"])
def test_the_time_limit_of_a_tool(function: Any, seconds: float, limit: float, error: str | None) -> None:
    wake.clear()
    result = call_tool(function, json.dumps({"seconds": seconds}), timeout_s=limit)
    wake.set()
    assert result.error == error
    late = f"{function.__name__} did not finish within its limit of 0.05 s."
    left = " Its thread was left behind: it may still be running." if function is sleeps else ""
    assert result.content == ("awake" if error is None else late + left)


def test_a_hanging_tool_does_not_hang_the_run() -> None:
    release = threading.Event()

    @lab.tool(timeout_s=0.05)
    def hangs() -> str:
        """Never come back."""
        release.wait(60)
        return "too late"

    run = run_of([call("hangs"), "never mind"], tools=[hangs])

    async def main() -> lab.RunResult:
        result = await run
        release.set()
        await asyncio.sleep(0.01)  # a late result is dropped
        return result

    result = go(main())
    assert result.text == "never mind"
    assert result.history[0].tool_results[0].error == "timeout"
    assert_is_whole(run)


def test_results_after_the_loop_has_closed_are_dropped() -> None:
    release, done = threading.Event(), threading.Event()

    def f() -> str:
        release.wait(60)
        done.set()
        return "too late"

    assert call_tool(f, timeout_s=0.02).error == "timeout"
    release.set()
    assert done.wait(60)


def test_a_sync_wrapper_around_an_async_function_is_awaited() -> None:
    def wrapped(q: str) -> Any:
        return sleeps_later(0)

    assert call_tool(wrapped, '{"q": "x"}').content == "awake"
    assert call_tool(wrapped, '{"q": "x"}', inline=True).content == "awake"


# Ending the run from a tool ---------------------------------------------------------------------------------------------------


def returned(reason: str) -> lab.Stop:
    """Stop by returning."""
    return lab.Stop(reason, {"answer": 42})


async def returned_later(reason: str) -> lab.Stop:
    """Stop by returning, async."""
    return lab.Stop(reason, {"answer": 42})


def raised(reason: str) -> str:
    """Stop by raising."""
    raise lab.StopRequested(reason, output={"answer": 42})


async def raised_later(reason: str) -> str:
    """Stop by raising, async."""
    raise lab.StopRequested(reason, output={"answer": 42})


@pytest.mark.parametrize("function", [returned, returned_later, raised, raised_later], ids=lambda function: function.__name__)
def test_a_tool_ends_the_run(function: Any) -> None:
    first = call(function.__name__, {"reason": "found it"}, id="a")
    both = say(finish=lab.FinishReason.TOOL_CALLS, calls=[*first.tool_calls, *call("look", id="b").tool_calls], text="so:")
    run = run_of([call("look"), both, "never asked"], tools=[look, function])

    async def main() -> lab.RunResult:
        return await run

    result = go(main())
    assert (result.stop_reason, result.stopped_by, result.output) == (lab.StopReason.EXPLICIT_STOP, "tool", {"answer": 42})
    assert result.detail == "Stopped by the tool: found it"
    assert result.terminated
    assert len(result.history) == 2
    assert [(each.call_id, each.error) for each in result.messages[-1].tool_results] == [("a", None), ("b", "not_executed")]
    assert result.messages[-1].tool_results[0].content == '{"answer":42}'
    assert [each.name for each in result.history[-1].tool_results] == [function.__name__]
    assert_is_whole(run)


def test_a_stop_without_output_or_with_output_without_a_json_form() -> None:
    thing = object()
    assert call_tool(lambda: lab.Stop("why"), name="f").content == "why"
    result = call_tool(lambda: lab.Stop("why", thing), name="f")
    assert (result.content, result.error) == ("why", None)
    assert result.stop is not None
    assert result.stop.output is thing


def test_calls_run_in_order_and_each_gets_a_unique_id() -> None:
    """Some servers send no ids, or equal ones."""
    seen = []

    @lab.tool(inline=True)
    def note(x: int) -> int:
        """Take a note."""
        seen.append(x)
        return x * 10

    calls = [ToolCall("same", "note", json.dumps({"x": x})) for x in (1, 2, 3)]
    run = run_of([say(finish=lab.FinishReason.TOOL_CALLS, calls=calls), "end"], tools=[note])

    async def main() -> lab.RunResult:
        return await run

    result = go(main())
    assert seen == [1, 2, 3]
    assert [each.id for each in result.history[0].tool_calls] == ["same", "same_2", "same_3"]
    assert [each.call_id for each in result.messages[2].tool_results] == ["same", "same_2", "same_3"]
    assert [each.content for each in result.messages[2].tool_results] == ["10", "20", "30"]


# Middleware around tools ------------------------------------------------------------------------------------------------------


def through(*layers: Any, script: Any = None, **more: Any) -> lab.Run:
    """A run whose tool `look` is called with "here" through this middleware."""
    run = run_of(script or [call("look", {"q": "here"}), "end"], tool_middleware=layers, **more)
    go(ended(run))
    assert_is_whole(run)
    return run


async def let_pass(call: ToolCall, execute: Any) -> Any:
    return await execute(call)


async def elsewhere(call: ToolCall, execute: Any) -> Any:
    return await execute(dataclasses.replace(call, arguments='{"q": "there"}'))


async def louder(call: ToolCall, execute: Any) -> Any:
    result = await execute(call)
    return dataclasses.replace(result, content=result.content.upper())


async def deny(call: ToolCall, execute: Any) -> Any:
    return lab.ToolResult(call.id, call.name, "Ask first.", error="denied")


async def cached(call: ToolCall, execute: Any) -> Any:
    return lab.ToolResult("another id", "another name", "from a cache")


async def twice(call: ToolCall, execute: Any) -> Any:
    await execute(call)
    return await execute(call)


async def break_arguments(call: ToolCall, execute: Any) -> Any:
    return await execute(dataclasses.replace(call, arguments='{"nothing": 1}'))


CHANGES: dict[str, tuple[Any, str, str | None, str | None, str]] = {
    "passes": ([let_pass, let_pass], "saw here", None, None, ""),
    "changes-the-arguments": ([elsewhere], "saw there", None, '{"q": "there"}', "arguments"),
    "changes-the-result": ([louder], "SAW HERE", None, None, "result"),
    "changes-both": ([louder, elsewhere], "SAW THERE", None, '{"q": "there"}', "arguments and result"),
    "denies": ([let_pass, deny], "Ask first.", "denied", None, "answer"),
    "answers": ([cached], "from a cache", None, None, "answer"),
    "executes-twice": ([twice], "saw here", None, None, ""),
    "wrong-arguments": ([break_arguments], "The arguments are not valid", "invalid_arguments", '{"nothing": 1}', "arguments"),
}


@pytest.mark.parametrize(("layers", "content", "error", "executed", "changed"), CHANGES.values(), ids=CHANGES.keys())
def test_the_requested_and_the_executed_call_are_both_kept(
    layers: Any, content: str, error: str | None, executed: str | None, changed: str
) -> None:
    store = lab.Store()
    run = through(*layers, observers=[store])
    step, result = run.history[0], run.history[0].tool_results[0]
    assert (step.tool_calls[0].arguments, result.arguments) == ('{"q": "here"}', '{"q": "here"}')
    assert result.content.startswith(content)
    assert (result.call_id, result.name, result.error) == (step.tool_calls[0].id, "look", error)
    assert (result.executed_arguments, result.middleware) == (executed, changed)
    assert run.messages[2].tool_results == (result,)
    assert run.result is not None
    row = run.to_frame("tools").iloc[0]
    assert (row["arguments"], row["content"]) == ('{"q": "here"}', result.content)
    assert [None if pd.isna(row[name]) else row[name] for name in ("executed_arguments", "middleware")] == [
        executed,
        changed or None,
    ]
    kept = store.load(run.id)
    assert kept.history[0].tool_results[0] == result
    assert kept.messages[2].tool_results[0].middleware == changed
    page = step_html(run, run.history[0], Shown())
    assert ("Changed by a middleware" in page) == ("result" in changed)
    assert ("Answered by a middleware, not executed" in page) == (changed == "answer")
    assert ("Executed with other arguments, by a middleware" in page) == (executed is not None)


def test_middleware_is_nested_in_order_and_counts_towards_the_time_limit() -> None:
    order: list[str] = []

    def layer(name: str) -> Any:
        async def middleware(call: ToolCall, execute: Any) -> Any:
            order.append(f"{name} asks")
            result = await execute(call)
            order.append(f"{name} answers")
            return result

        return middleware

    through(layer("A"), layer("B"))
    assert order == ["A asks", "B asks", "B answers", "A answers"]


@pytest.mark.parametrize("first", [False, True], ids=["before", "after"])
def test_a_tool_middleware_may_end_the_run(first: bool) -> None:
    async def guard(call: ToolCall, execute: Any) -> Any:
        if first:
            await execute(call)
        raise lab.StopRequested("enough", output=7)

    run = through(guard)
    assert run.result is not None
    assert (run.result.stop_reason, run.result.stopped_by, run.result.output) == (lab.StopReason.EXPLICIT_STOP, "middleware", 7)
    assert [one.error for one in run.history[0].tool_results] == [None if first else "not_executed"]


@pytest.mark.parametrize("executed", [False, True], ids=["before", "after"])
def test_a_bug_in_a_middleware_is_an_error_result_that_loses_nothing(executed: bool) -> None:
    async def buggy(call: ToolCall, execute: Any) -> Any:
        if executed:
            await execute(call)
        raise KeyError("oops")

    run = through(let_pass, buggy)
    assert run.result is not None
    assert (run.result.stop_reason, run.result.detail) == (lab.StopReason.ERROR, "The middleware buggy raised KeyError: 'oops'")
    assert isinstance(run.result.error, KeyError)
    assert [one.error for one in run.history[0].tool_results] == [None if executed else "not_executed"]


async def forget(call: ToolCall, execute: Any) -> Any:
    await execute(call)


async def rename(call: ToolCall, execute: Any) -> Any:
    return await execute(dataclasses.replace(call, name="finalize"))


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (forget, r"forget.* returned None: return the result, as in `return await execute\(call\)`"),
        (rename, "change only its arguments"),
    ],
)
def test_a_forbidden_action_of_a_middleware_is_raised_and_recorded(layer: Any, message: str) -> None:
    run = run_of([call("look"), "end"], tool_middleware=[layer])
    with pytest.raises(lab.errors.ConfigurationError, match=message):
        go(ended(run))
    assert run.result is not None
    assert run.result.stop_reason is lab.StopReason.ERROR
    assert_is_whole(run)


@pytest.mark.parametrize(("layer", "ends"), [(let_pass, True), (cached, True), (deny, False)])
def test_a_denied_terminating_tool_ends_nothing(layer: Any, ends: bool) -> None:
    script = [call("finalize", {"answer": "42"}), call("finalize", {"answer": "42"})]
    made = lab.Agent(lab.testing.ScriptedProvider(script), tools=[tool(name="finalize")(one_answer)], tool_middleware=[layer])
    run = made.run("go", terminating=["finalize"], budget=lab.Budget(max_turns=2))
    assert (go(ended(run)).stop_reason is lab.StopReason.TERMINATING_TOOL) is ends
    assert_is_whole(run)


def test_a_cut_call_reaches_no_middleware_and_an_unknown_tool_does() -> None:
    seen: list[ToolCall] = []

    async def watch(call: ToolCall, execute: Any) -> Any:
        seen.append(call)
        return await execute(call)

    cut = call("look", '{"q": "he')
    through(watch, script=[cut, call("nowhere"), "end"], continuation=lab.ContinuationPolicy())
    assert [one.name for one in seen] == ["nowhere"]


class Coded(pydantic.BaseModel):
    code: str

    @pydantic.field_validator("code")
    @classmethod
    def known(cls, code: str) -> str:
        if code == "exit":
            raise SystemExit(3)
        return {"de": "Germany"}[code]


@pytest.mark.parametrize(("code", "says"), [("xx", "KeyError: 'xx'"), ("exit", "SystemExit: 3")])
@pytest.mark.parametrize("whole", [True, False], ids=["schema", "parameter"])
def test_an_exception_of_a_validator_is_the_calls_result(code: str, says: str, whole: bool) -> None:
    def look_up(country: Coded) -> str:
        return country.code

    made = tool(schema=Coded)(look_up) if whole else tool(look_up)
    arguments = {"code": code} if whole else {"country": {"code": code}}
    script = [call("look_up", arguments), call("look_up", json.loads(json.dumps(arguments).replace(code, "de"))), "end"]
    run = lab.Agent(lab.testing.ScriptedProvider(script), tools=[made]).run("go")
    result = go(ended(run))
    failed, fine = result.history[0].tool_results[0], result.history[1].tool_results[0]
    assert (failed.error, fine.content, result.stop_reason) == ("invalid_arguments", "Germany", lab.StopReason.COMPLETED)
    assert failed.content == f"The arguments of look_up are not valid, nothing was executed. Their validation raised {says}"


class Node(pydantic.BaseModel):
    """A tree."""

    name: str
    kids: list[Node] = []


class Nodes(pydantic.RootModel["list[Nodes]"]):
    """No object, and recursive."""


def test_a_recursive_class_is_a_tool() -> None:
    for made in (tool(name="Node", schema=Node)(lambda tree: tree), as_tools([Node])["Node"]):
        schema = made.spec.parameters
        assert (schema["type"], schema["required"], set(schema["properties"])) == ("object", ["name"], {"name", "kids"})
        assert schema["properties"]["kids"]["items"] == {"$ref": "#/$defs/Node"}
        assert "$ref" not in schema
        assert schema["$defs"]["Node"]["type"] == "object"
    assert as_tools([Node])["Node"].spec.description == "A tree."
    result = call_tool(as_tools([Node])["Node"], '{"name": "a", "kids": [{"name": "b"}]}')
    assert result.value == Node(name="a", kids=[Node(name="b")])
    assert call_tool(as_tools([Node])["Node"], '{"name": "a", "kids": [{}]}').error == "invalid_arguments"
    with pytest.raises(ToolDefinitionError, match="which is not an object"):
        as_tools([Nodes])


@pytest.mark.usefixtures("fake_time")
def test_a_cancel_keeps_the_calls_executed_before_it() -> None:
    async def wait(call: ToolCall, execute: Any) -> Any:
        result = await execute(call)
        await asyncio.sleep(3600)
        return result

    run = through(wait, budget=lab.Budget(timeout=5))
    assert run.result is not None
    assert run.result.stop_reason is lab.StopReason.TIMEOUT
    assert [one.content for one in run.history[0].tool_results] == ["saw here"]


def one_answer(answer: str) -> str:
    """Give the answer."""
    return answer

"""The tasks of the local model, so that each end of a response is recorded from a real model.

The model is small and a base model, so the instructions contain two worked examples, written with the headings of
`gemma_tools.jinja`, which it imitates. Each scenario was tried on the chat completions, the Messages and the
Responses address of llama-server, with and without streaming: the same request has the same answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

_WEATHER = {"Paris": "rain, 12 C", "Lima": "fog, 17 C", "Rome": "sun, 22 C"}


def get_weather(city: str) -> str:
    """The weather now in a city."""
    return _WEATHER.get(city, "unknown")


def convert(celsius: float) -> str:
    """Celsius to Fahrenheit."""
    return f"{celsius * 9 / 5 + 32:.1f} F"


def finalize(answer: str) -> str:
    """Give the final answer."""
    return answer


def next_number(number: int) -> str:
    """The number after a number."""
    return str(number + 1)


@dataclass(frozen=True)
class Place:
    """A city."""

    city: str
    country: str
    is_capital: bool


@dataclass(frozen=True, slots=True)
class LocalTool:
    """A tool as the request describes it, and its function."""

    function: Callable[..., str]
    """Answers a call. Its name and its docstring are the tool's."""
    parameters: Mapping[str, Any]
    """JSON schema of the arguments."""

    @property
    def name(self) -> str:
        """The tool's name."""
        return self.function.__name__

    @property
    def description(self) -> str:
        """The tool's description in the request."""
        return self.function.__doc__ or ""


def _tool(function: Callable[..., str], **properties: str) -> LocalTool:
    """A tool whose arguments, given with their JSON types, are all required."""
    return LocalTool(
        function,
        {
            "type": "object",
            "properties": {name: {"type": kind} for name, kind in properties.items()},
            "required": list(properties),
        },
    )


GET_WEATHER = _tool(get_weather, city="string")
CONVERT = _tool(convert, celsius="number")
FINALIZE = _tool(finalize, answer="string")
NEXT_NUMBER = _tool(next_number, number="integer")


@dataclass(frozen=True, slots=True)
class Scenario:
    """One task for the local model."""

    name: str
    """Of the cassette."""
    shows: str
    """The kind of end that it demonstrates."""
    instructions: str
    prompt: str
    finish_reasons: tuple[str, ...]
    """Of the model calls in order, as chat completions name them."""
    tools: tuple[LocalTool, ...] = ()
    turns: int | None = None
    """Of the run; None: as many as there are finish reasons."""
    max_tokens: int = 64
    """Cap on the tokens of one response."""
    continuation: str | None = None
    """The user's message after each cut answer; None means the first cut is the end."""
    prefill: bool = False
    """True if the model continues its own text instead."""
    output: type | None = None
    """The type of the answer."""
    structured: bool = False
    """True if the server gets the schema of the answer, which then cannot be anything else; otherwise the answer is a tool call."""
    wires: tuple[str, ...] = ("chat", "messages", "responses")
    """The wires on which it was tried; a model this small may answer differently if the prompt differs by a line."""
    extra: Mapping[str, Any] = field(default_factory=lambda: {"temperature": 0, "seed": 1})
    """Further fields of the request's body. The server has the same values without them."""


TO_FAHRENHEIT = """\
Look up the weather, convert the temperature, then finalize.

## Question
How warm is it in Oslo?
## Answer
<tool_call>
{"name": "get_weather", "arguments": {"city": "Oslo"}}
</tool_call>
## Result
snow, -3 C
## Answer
<tool_call>
{"name": "convert", "arguments": {"celsius": -3}}
</tool_call>
## Result
26.6 F
## Answer
<tool_call>
{"name": "finalize", "arguments": {"answer": "It is 26.6 F in Oslo."}}
</tool_call>
## Question
How warm is it in Cairo?
## Answer
<tool_call>
{"name": "get_weather", "arguments": {"city": "Cairo"}}
</tool_call>
## Result
sun, 31 C
## Answer
<tool_call>
{"name": "convert", "arguments": {"celsius": 31}}
</tool_call>
## Result
87.8 F
## Answer
<tool_call>
{"name": "finalize", "arguments": {"answer": "It is 87.8 F in Cairo."}}
</tool_call>"""

WEATHER = """\
Answer with the help of the tool.

## Question
What is the weather in Oslo?
## Answer
<tool_call>
{"name": "get_weather", "arguments": {"city": "Oslo"}}
</tool_call>
## Result
snow, -3 C
## Answer
It is snowing in Oslo, at -3 C.
## Question
What is the weather in Cairo?
## Answer
<tool_call>
{"name": "get_weather", "arguments": {"city": "Cairo"}}
</tool_call>
## Result
sun, 31 C
## Answer
It is sunny in Cairo, at 31 C."""

COUNTING = """\
Count up with the tool and never stop.

## Question
Count from 3.
## Answer
<tool_call>
{"name": "next_number", "arguments": {"number": 3}}
</tool_call>
## Result
4
## Answer
<tool_call>
{"name": "next_number", "arguments": {"number": 4}}
</tool_call>
## Result
5
## Answer
<tool_call>
{"name": "next_number", "arguments": {"number": 5}}
</tool_call>"""

CAPITALS = """\
Answer the question in one sentence.

## Question
What is the capital of Italy?
## Answer
Rome is the capital of Italy.
## Question
What is the capital of Spain?
## Answer
Madrid is the capital of Spain."""

CONTINUE = "Continue exactly where you stopped. Do not repeat anything."
"""The user's message after a cut answer. The model continues only if its instructions contain exactly these words."""

LISTS = f"""\
Answer with a list.

## Question
Count from one to twelve.
## Answer
one, two, three, four, five,
## Question
{CONTINUE}
## Answer
six, seven, eight, nine, ten,
## Question
{CONTINUE}
## Answer
eleven, twelve.
## Question
Name the days of the week.
## Answer
Monday, Tuesday, Wednesday, Thursday,
## Question
{CONTINUE}
## Answer
Friday, Saturday, Sunday."""

WITHOUT_SPACES = LISTS.replace(", ", ",")
"""The server strips the space at the start of a piece, so the pieces of this list fit together."""

WHOLE_LISTS = """\
Answer with a list.

## Question
Count from one to twelve.
## Answer
one, two, three, four, five, six, seven, eight, nine, ten, eleven, twelve.
## Question
Name the days of the week.
## Answer
Monday, Tuesday, Wednesday, Thursday, Friday, Saturday, Sunday."""

PLACES = """\
Say where the city is.

## Question
Oslo?
## Answer
{"city": "Oslo", "country": "Norway", "is_capital": true}
## Question
Milan?
## Answer
{"city": "Milan", "country": "Italy", "is_capital": false}"""

CALLED_PLACES = """\
Say where the city is, with the tool final_answer.

## Question
Oslo?
## Answer
<tool_call>
{"name": "final_answer", "arguments": {"city": "Oslo", "country": "Norway", "is_capital": true}}
</tool_call>
## Question
Milan?
## Answer
<tool_call>
{"name": "final_answer", "arguments": {"city": "Milan", "country": "Italy", "is_capital": false}}
</tool_call>"""

SCENARIOS = (
    Scenario(
        name="typed-answer",
        shows="an answer that the server holds to the schema of its type",
        instructions=PLACES,
        prompt="Paris?",
        output=Place,
        structured=True,
        finish_reasons=("stop",),
        wires=("chat", "responses"),
    ),
    Scenario(
        name="typed-answer-by-tool",
        shows="the same answer as a call of the tool final_answer",
        instructions=CALLED_PLACES,
        prompt="Paris?",
        output=Place,
        finish_reasons=("tool_calls",),
    ),
    Scenario(
        name="terminating-tool",
        shows="three steps: two tools, then the tool that ends the run",
        instructions=TO_FAHRENHEIT,
        prompt="How warm is it in Paris?",
        tools=(GET_WEATHER, CONVERT, FINALIZE),
        finish_reasons=("tool_calls", "tool_calls", "tool_calls"),
    ),
    Scenario(
        name="tool-then-answer",
        shows="a tool call, then an answer that ends of itself",
        instructions=WEATHER,
        prompt="What is the weather in Lima?",
        tools=(GET_WEATHER,),
        finish_reasons=("tool_calls", "stop"),
    ),
    Scenario(
        name="endless-tools",
        shows="a run that never ends of itself, for limits on turns and tokens",
        instructions=COUNTING,
        prompt="Count from 1.",
        tools=(NEXT_NUMBER,),
        finish_reasons=("tool_calls",) * 6,
    ),
    Scenario(
        name="plain-answer",
        shows="a plain answer that ends of itself",
        instructions=CAPITALS,
        prompt="What is the capital of France?",
        finish_reasons=("stop",),
    ),
    Scenario(
        name="truncated-text",
        shows="a plain answer cut at the cap",
        instructions=LISTS,
        prompt="Name the months of the year.",
        max_tokens=8,
        finish_reasons=("length",),
    ),
    Scenario(
        name="continued-text",
        shows="the same answer, continued twice until it ends of itself",
        instructions=WITHOUT_SPACES,
        prompt="Name the months of the year.",
        max_tokens=8,
        continuation=CONTINUE,
        turns=1,
        finish_reasons=("length", "length", "stop"),
        wires=("chat", "messages"),
    ),
    Scenario(
        name="prefilled-text",
        shows="the same answer, continued twice right behind its own words",
        instructions=WHOLE_LISTS,
        prompt="Name the months of the year.",
        max_tokens=8,
        continuation=CONTINUE,
        prefill=True,
        turns=1,
        finish_reasons=("length", "length", "stop"),
        wires=("chat",),
    ),
    Scenario(
        name="truncated-tool-call",
        shows="a tool call cut within its arguments",
        instructions=TO_FAHRENHEIT,
        prompt="How warm is it in Paris?",
        tools=(GET_WEATHER, CONVERT, FINALIZE),
        max_tokens=22,
        finish_reasons=("length",),
    ),
    Scenario(
        name="repaired-tool-call",
        shows="a tool call cut within its arguments, and said again whole when the model is asked",
        instructions=TO_FAHRENHEIT,
        prompt="How warm is it in Paris?",
        tools=(GET_WEATHER, CONVERT, FINALIZE),
        max_tokens=22,
        continuation="How warm is it in Paris?",
        turns=1,
        finish_reasons=("length", "tool_calls"),
    ),
    Scenario(
        name="truncated-after-arguments",
        shows="a tool call cut between its last argument and its end: the arguments are whole, the call is not",
        instructions=TO_FAHRENHEIT,
        prompt="How warm is it in Paris?",
        tools=(GET_WEATHER, CONVERT, FINALIZE),
        max_tokens=26,
        finish_reasons=("length",),
    ),
    Scenario(
        name="truncated-terminating-tool",
        shows="two tools, then the terminating tool cut within its arguments, which must not end the run as if whole",
        instructions=TO_FAHRENHEIT,
        prompt="How warm is it in Paris?",
        tools=(GET_WEATHER, CONVERT, FINALIZE),
        max_tokens=30,
        finish_reasons=("tool_calls", "tool_calls", "length"),
    ),
)

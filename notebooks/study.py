"""The study of the course: two small models, tasks with known answers, and the tools for them.

`fixtures/study` has the tasks and the recorded responses. The notebooks replay them; `make record-local` records them.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import agentlab as lab

FOLDER = Path(__file__).resolve().parent.parent / "fixtures" / "study"

PRICES = {"tea": 2.1, "coffee": 2.9, "juice": 3.2, "water": 1.5, "soup": 5.4, "sandwich": 4.6, "cake": 3.7, "apple": 0.8}
STOCK = {"tea": 80, "coffee": 60, "juice": 35, "water": 90, "soup": 24, "sandwich": 18, "cake": 9, "apple": 140}
TRAINS = {
    ("Graz", "Vienna"): [
        "R 10 leaves 07:30 arrives 10:10",
        "IC 12 leaves 09:15 arrives 11:45",
        "RJ 14 leaves 13:05 arrives 15:35",
    ],
    ("Vienna", "Linz"): [
        "RJ 20 leaves 08:00 arrives 09:20",
        "RJ 22 leaves 12:30 arrives 13:50",
        "RJ 24 leaves 18:10 arrives 19:30",
    ],
    ("Linz", "Salzburg"): ["R 30 leaves 10:05 arrives 11:15", "R 32 leaves 16:40 arrives 17:50"],
    ("Salzburg", "Graz"): ["IC 51 leaves 11:20 arrives 15:25"],
}
_OPERATORS: dict[type, Any] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}


@lab.tool(inline=True)
def calculate(expression: str) -> float:
    """Work out an arithmetic expression.

    Args:
        expression: numbers, + - * / and brackets, such as "3 * (4 + 5)"
    """
    return round(_value(ast.parse(expression, mode="eval").body), 6)


def _value(node: ast.AST) -> float:
    """The value of an expression of numbers. The model's text is parsed, never evaluated as code."""
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return node.value
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](_value(node.left), _value(node.right))
    if isinstance(node, ast.UnaryOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](_value(node.operand))
    raise ValueError("only numbers, + - * / and brackets")


@lab.tool(inline=True)
def price(item: str) -> str:
    """The price of one item in EUR."""
    return str(PRICES.get(_singular(item), "no such item"))


@lab.tool(inline=True)
def stock(item: str) -> str:
    """How many pieces of an item are in stock."""
    return str(STOCK.get(_singular(item), "no such item"))


def _singular(item: str) -> str:
    word = item.strip().lower()
    return next((known for known in PRICES if word in (known, f"{known}s", f"{known}es")), word)


@lab.tool(inline=True)
def trains(origin: str, destination: str) -> str:
    """All trains of a day from one city to another."""
    return "; ".join(TRAINS.get((origin.strip().title(), destination.strip().title()), ["no trains"]))


@lab.tool(inline=True)
def weekday(day: date) -> str:
    """The day of the week of a date (YYYY-MM-DD)."""
    return f"{day:%A}"


@lab.tool(inline=True)
def add_days(day: date, days: int) -> str:
    """The date a number of days after a date (YYYY-MM-DD); before it, if the number is negative."""
    return (day + timedelta(days)).isoformat()


@lab.tool(inline=True)
def days_between(start: date, end: date) -> int:
    """The number of days from one date to another (YYYY-MM-DD)."""
    return (end - start).days


@lab.tool(inline=True)
def finalize(answer: str) -> str:
    """Hand in the final answer: a number, a word, a time or a date."""
    return answer


TOOLS = [calculate, price, stock, trains, weekday, add_days, days_between, finalize]

RULES = """\
Answer with the functions. Look up prices, stock and trains, and calculate every number: never guess. Dates are YYYY-MM-DD.
When you know the answer, call finalize with nothing but the number, the word, the time or the date.
If there is no such item, no such train, or no function for it, call finalize with "unknown"."""

QWEN = (
    RULES
    + """

An example.
Question: What do 4 juices cost together?
You: [TOOL_CALL]{"name": "price", "arguments": {"item": "juice"}}[/TOOL_CALL]
Result: 3.2
You: [TOOL_CALL]{"name": "calculate", "arguments": {"expression": "4 * 3.2"}}[/TOOL_CALL]
Result: 12.8
You: [TOOL_CALL]{"name": "finalize", "arguments": {"answer": "12.8"}}[/TOOL_CALL]"""
)

GEMMA = (
    RULES
    + """

## Question
What do 4 juices cost together?
## Answer
<tool_call>
{"name": "price", "arguments": {"item": "juice"}}
</tool_call>
## Result
3.2
## Answer
<tool_call>
{"name": "calculate", "arguments": {"expression": "4 * 3.2"}}
</tool_call>
## Result
12.8
## Answer
<tool_call>
{"name": "finalize", "arguments": {"answer": "12.8"}}
</tool_call>
## Question
When does the first train from Vienna to Linz leave?
## Answer
<tool_call>
{"name": "trains", "arguments": {"origin": "Vienna", "destination": "Linz"}}
</tool_call>
## Result
RJ 20 leaves 08:00 arrives 09:20; RJ 22 leaves 12:30 arrives 13:50; RJ 24 leaves 18:10 arrives 19:30
## Answer
<tool_call>
{"name": "finalize", "arguments": {"answer": "08:00"}}
</tool_call>
## Question
What day of the week is 2026-11-26?
## Answer
<tool_call>
{"name": "weekday", "arguments": {"day": "2026-11-26"}}
</tool_call>
## Result
Thursday
## Answer
<tool_call>
{"name": "finalize", "arguments": {"answer": "Thursday"}}
</tool_call>"""
)
"""A base model needs more examples, in the headings of its template."""

# Models, agents and settings ---------------------------------------------------------------------------------------------------

MODELS = {"gemma": "gemma-3-270m", "qwen": "qwen2.5-coder-1.5b"}
"""The short names of the models, and the names in requests and responses."""

WIRES = ("chat", "messages", "responses")
"""The wires on which the models were asked. The position of a wire, from 1, is the seed of its runs."""

TEMPERATURES = {"cool": 0.2, "warm": 0.8}

NUDGE = "Call finalize with your answer now, in the form of the example."

SETTINGS = {
    name: {
        "budget": lab.Budget(max_turns=6, max_tokens_per_turn=cap),
        "terminating": lab.TerminatingTools(["finalize"], nudge_message=NUDGE),
        "continuation": lab.ContinuationPolicy(max_continuations_per_turn=2),
    }
    for name, cap in {"short": 40, "long": 192}.items()
}
"""The settings of the recording, by their cap on one answer: 40 or 192 tokens."""

ADDRESS = "http://127.0.0.1:8091"
"""Of the server on the machine that made the recordings. A replay sends nothing there."""


def agent(model: str, temperature: str, wire: str) -> lab.Agent:
    """The agent of one model, temperature and wire, by their names above."""
    name, headers = MODELS[model], {"Connection": "close"}
    if wire == "messages":
        provider = lab.Provider("anthropic", model=name, base_url=ADDRESS, api_key="none", headers=headers)
    else:
        kind = "compatible" if wire == "chat" else "compatible-responses"
        provider = lab.Provider(kind, model=name, base_url=f"{ADDRESS}/v1", headers=headers)
    options = {"temperature": TEMPERATURES[temperature], "seed": WIRES.index(wire) + 1}
    instructions = {"gemma": GEMMA, "qwen": QWEN}[model]
    return lab.Agent(provider, tools=TOOLS, instructions=instructions, options=options, name=f"{model} {temperature} {wire}")


def agents(*models: str, wires: Sequence[str] = WIRES) -> dict[str, lab.Agent]:
    """The agents of these models, or of both: each at two temperatures, on each wire."""
    made = [agent(model, how, wire) for wire in wires for model in models or MODELS for how in TEMPERATURES]
    return {one.name: one for one in made}


# Tasks and scores --------------------------------------------------------------------------------------------------------------


def tasks() -> lab.Tasks:
    """The 68 tasks with their answers."""
    return lab.Tasks(FOLDER / "tasks.jsonl")


def solved(result: lab.RunResult, task: lab.Task) -> bool:
    """True if the run handed in the right answer: the number, or the words of the target in an answer of at most eight words."""
    if not isinstance(result.output, str):
        return False
    if isinstance(task.target, str | list):
        given = " ".join(re.findall(r"\w+(?:[:.-]\w+)*", result.output.lower()))
        targets = [task.target] if isinstance(task.target, str) else task.target
        return len(given.split()) <= 8 and any(f" {target.lower()} " in f" {given} " for target in targets)
    numbers = re.findall(r"-?\d+(?:\.\d+)?", result.output.replace(",", ""))
    return bool(numbers) and abs(float(numbers[-1]) - float(task.target)) < 0.005

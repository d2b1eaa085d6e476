"""`python -m agentlab demo`, `lab` and `serve`: a demo in the terminal, the course in JupyterLab, an agent over HTTP."""

from __future__ import annotations

import argparse
import asyncio
import io
import os
import shutil
import sys
import textwrap
from collections.abc import Sequence
from datetime import date
from pathlib import Path

from agentlab._internal.safe_text import printable
from agentlab.agent import Agent
from agentlab.errors import AgentlabError
from agentlab.limits.budget import Budget
from agentlab.limits.conditions import HasToolCall, StepCountIs
from agentlab.records.step import StepResult
from agentlab.transport.selection import replay

EXTRA = "agentlab-jupyter[serve]"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = argparse.ArgumentParser("python -m agentlab", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    command = commands.add_parser("demo", help="run an agent on recorded responses, in this terminal: no key, no network")
    command.set_defaults(run=lambda _: demo())
    command = commands.add_parser("lab", help="open the course in JupyterLab; options of JupyterLab follow after --")
    command.add_argument("folder", nargs="?", type=Path, help="the folder for the notebooks; agentlab-course by default")
    command.set_defaults(run=lambda chosen: _open_course(chosen.folder, options))
    command = commands.add_parser(
        "serve", help="serve an agent over HTTP: POST /chat, /chat/invoke, /chat/add-ai-message and more"
    )
    if given[:1] == ["serve"]:  # the others need no web framework
        try:
            from agentlab.serving import app
        except ModuleNotFoundError as error:
            if error.name not in ("fastapi", "starlette", "uvicorn"):
                raise
            return _print_error(f"`serve` needs {error.name}: pip install '{EXTRA}'")
        app.add_arguments(command)
        command.set_defaults(run=app.run)
    options: list[str] = []
    if given[:1] == ["lab"] and "--" in given:
        options = given[given.index("--") + 1 :]
        given = given[: given.index("--")]
    chosen = parser.parse_args(given)
    try:
        return int(chosen.run(chosen))
    except AgentlabError as error:
        return _print_error(str(error))


def _open_course(folder: Path | None, options: Sequence[str]) -> int:
    from agentlab.notebook.course import open_course

    return open_course(folder, options)


def _print_error(problem: str) -> int:
    print(problem, file=sys.stderr)  # noqa: T201  a command prints its errors
    return 2


# The demo -----------------------------------------------------------------------------------------------------------------------

MODELS = ("openai:gpt-5.4-mini", "anthropic:claude-sonnet-4-6", "gemini:gemini-3.5-flash")
LOWER = Budget(max_cost=0.005)
INSTRUCTIONS = "You plan day trips by train. Look things up before you decide. Hand in your answer with finalize."
PROMPT = (
    "I live in Vienna. On Saturday, 12 June 2027, I want to spend a day in Graz or in Salzburg, wherever the weather is better. "
    "Which trains should I take?"
)
"""A replay compares requests word by word: these two and the tools below are those of the recording."""

FORECAST = {"Graz": ("rain", 17), "Salzburg": ("sunny", 24)}
TIMETABLE: dict[tuple[str, str], list[dict[str, object]]] = {
    ("Vienna", "Salzburg"): [
        {"train": "IC 41", "departs": "07:30", "arrives": "10:02", "eur": 29},
        {"train": "RJ 60", "departs": "09:12", "arrives": "11:34", "eur": 41},
    ],
    ("Salzburg", "Vienna"): [
        {"train": "RJ 67", "departs": "17:26", "arrives": "19:48", "eur": 41},
        {"train": "IC 48", "departs": "19:56", "arrives": "22:28", "eur": 29},
    ],
}


def get_weather(city: str, day: date) -> dict[str, object]:
    """The weather forecast for a city.

    Args:
        city: name of the city
        day: day of the forecast
    """
    sky, high_c = FORECAST.get(city, ("cloudy", 20))
    return {"city": city, "sky": sky, "high_c": high_c}


def find_trains(origin: str, destination: str, day: date) -> list[dict[str, object]]:
    """Direct trains from one city to another.

    Args:
        origin: city to leave from
        destination: city to arrive in
        day: day of travel
    """
    return TIMETABLE.get((origin, destination), [])


def finalize(answer: str) -> str:
    """Hand in the final answer. Call this once, when you are done."""
    return answer


def demo() -> int:
    """Run the agent of the sample "trip" on each of its providers, then under a lower limit; print every step and why it stopped."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # the recorded answers have characters that a terminal may lack
    asyncio.run(_demo())
    return 0


async def _demo() -> None:
    _print("A day trip: one agent, one task, three providers", style=BOLD)
    _print("Their answers are recorded (sample:trip): no key, no network. Costs are what the recorded tokens would cost.", "")
    _print(f"Task: {PROMPT}", "A run stops at a call of finalize, or after 8 steps.")
    runs = {model: (model, Budget()) for model in MODELS}
    runs[f"{MODELS[1]}, at most ${LOWER.max_cost}"] = (MODELS[1], LOWER)
    results = {}
    for title, (model, budget) in runs.items():
        _print("", title, style=BOLD)
        agent = Agent(model, tools=[get_weather, find_trains, finalize], instructions=INSTRUCTIONS)
        with replay("sample:trip"):
            run = agent.run(PROMPT, stop=HasToolCall("finalize") | StepCountIs(8), budget=budget)
        async for step in run:
            _print_step(step)
        results[title.partition(":")[2]] = result = await run
        _print(f"Stopped ({result.stop_reason}): {result.detail}", style=BOLD)
    _print("The cost of a call is known only afterwards, so a run can exceed its limit by one call.")
    wide = max(map(len, results))
    _print("", f"{'run':{wide}}  {'stop reason':14}  steps  tokens     cost", style=BOLD)
    for title, result in results.items():
        tokens = result.usage.total_tokens
        _print(f"{title:{wide}}  {result.stop_reason:14}  {len(result.history):5}  {tokens:6,}  ${result.cost.known_usd:.4f}")
    _print("", "Next, the same in JupyterLab with a live panel, tables and plots:")
    _print('  pip install "agentlab-jupyter[lab]"', "  python -m agentlab lab")


def _print_step(step: StepResult) -> None:
    """Print the answer of a step, its tool calls and their results, each on one line."""
    _print(f"Step {step.index}: {step.all_tokens:,} tokens, ${step.cost.known_usd:.4f}")
    if step.text:
        _print(f"  {step.text}", cut=True)
    for call, result in zip(step.tool_calls, step.tool_results, strict=True):
        _print(f"  {call.name}({call.arguments})", cut=True)
        if call.name == "finalize":
            _print(*(f"    {line}" for line in result.content.splitlines() if line))
        else:
            _print(f"    {result.content}", style=DIM, cut=True)


BOLD, DIM = "1", "2"


def _print(*lines: str, style: str = "", cut: bool = False) -> None:
    """Print lines, wrapped at the width of the terminal or cut there, in a style if it is a terminal that shows styles."""
    width = min(shutil.get_terminal_size().columns, 120)
    styled = style and sys.stdout.isatty() and not os.environ.get("NO_COLOR") and (os.name != "nt" or "WT_SESSION" in os.environ)
    for line in map(printable, lines):
        if cut:
            shown = " " * (len(line) - len(line.lstrip())) + " ".join(line.split())
            shown = shown if len(shown) <= width else shown[: width - 3] + "..."
        else:
            indent = line[: len(line) - len(line.lstrip())]
            shown = textwrap.fill(line, width, subsequent_indent=indent)
        sys.stdout.write(f"\x1b[{style}m{shown}\x1b[0m\n" if styled else f"{shown}\n")


if __name__ == "__main__":
    sys.exit(main())

"""Notebook cells with runs and panels, for tests that need any run."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .lab_page import LabPage


def open_cell(page: LabPage, name: str, cell: str) -> None:
    """Open a notebook with this cell, and run it: a panel with a Run button comes up."""
    page.open(page.jupyter.write_notebook(name, [cell]))
    page.run_cell(0)
    page.wait_until_enabled("Run")


SLOW_RUN = """
import asyncio
import agentlab as lab
from agentlab import Budget, HasToolCall, StepCountIs
from agentlab.testing import ScriptedProvider, call

async def search(query: str) -> str:
    "Search the archive."
    await asyncio.sleep(0.1)
    return f"nothing about {query}"

model = ScriptedProvider(lambda request, index: call("search", {"query": f"try {index}"}, tokens=(200 + 10 * index, 20), cost=0.001))
run = lab.Agent(model, tools=[search]).run(
    "Find it.", stop=HasToolCall("finalize") | StepCountIs(2_000), budget=Budget(max_turns=2_000, max_tokens=50_000_000)
)
run.panel()
"""
"""Up to 2,000 steps of a tenth of a second each: longer than any test, until the test ends it."""

BUSY = """
import time
from pathlib import Path
while not Path("enough").exists():
    time.sleep(0.05)
"""
"""A cell that runs until the test makes the file `enough`."""

EVENTS = "[type(event).__name__ for event in run.events]"
BEGUN_AFTER = f"{EVENTS}[{EVENTS}.index('LimitsChanged'):].count('StepStarted')"
"""The number of steps of `run` that started after the first change of its limits."""

ROW = """
import agentlab as lab
from agentlab import Budget
from agentlab.testing import ScriptedProvider, call

async def search(query: str) -> str:
    "Search the archive."
    return f"nothing about {query}"

def made(name, tokens):
    script = lambda request, index: call("search", {"query": f"try {index}"}, tokens=(tokens, 20), cost=0.001)
    model = ScriptedProvider(script, name=name)
    return lab.Agent(model, tools=[search], name=name).run("Find it.", budget=Budget(max_turns=6, max_tokens=50_000))

runs = [made("one", 150), made("two", 300)]
lab.panel(runs)
"""
"""Two runs side by side."""

EXPLORER = """
import agentlab as lab
from agentlab import StepCountIs
from agentlab.testing import ScriptedProvider, call, say

def search(query: str) -> str:
    "Search the archive."
    return f"nothing about {query}"

def made(steps, tokens):
    def script(request, index):
        return say("Done.", tokens=(tokens, 20), cost=0.001) if index == steps else call(
            "search", {"query": f"try {index}"}, tokens=(tokens, 20), cost=0.001)
    return lab.Agent(ScriptedProvider(script), tools=[search]).run("Find it.", stop=StepCountIs(10))

runs = [made(3 + place % 9, 100 + 10 * place) for place in range(40)]
for run in runs:
    await run
explorer = lab.explore(runs)
explorer
"""
"""Forty runs of 3 to 10 steps, four of them truncated, with a slider for each limit."""

TRIP = """
import asyncio
import agentlab as lab
from agentlab import Budget
from agentlab.testing import ScriptedProvider, call, say

booked = []

async def book_hotel(city: str, nights: int = 1) -> str:
    "Book a room."
    booked.append(nights)
    return f"A room for {nights} nights in {city} is booked."

async def look_up(city: str) -> dict:
    "Look up the weather."
    await asyncio.sleep(1)
    return {"city": city, "sky": "rain", "high_c": 17}

hotel = call("book_hotel", {"city": "Graz", "nights": 2}, id="first").tool_calls
hotel_2 = call("book_hotel", {"city": "Linz", "nights": 1}, id="second").tool_calls
model = ScriptedProvider([
    call("look_up", {"city": "Graz"}, text="I look at the **weather** first.", tokens=(620, 40), cost="0.0021"),
    say(finish=lab.FinishReason.TOOL_CALLS, calls=hotel, tokens=(710, 42), cost="0.0024"),
    say("It rains. A room for **two nights** is booked.", tokens=(800, 90), cost="0.0041"),
    say("It is about 200 km.", tokens=(900, 30), cost="0.003"),
])
run = lab.Agent(model, tools=[book_hotel, look_up], name="travel guide", instructions="Be short.").run(
    "Book me a room in Graz, and tell me about the weather.", budget=Budget(max_turns=3, max_cost=0.05), approve=["book_*"]
)
run.panel()
"""
"""A run whose second step waits for approval."""

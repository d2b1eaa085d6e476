"""The import of an agent class in a fresh process with compiled bytecode, minus the time of the bare interpreter."""

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from tests.benchmarks.peers.setup import ROOT, peers_python
from tests.benchmarks.table import Row, attempt, least

PEERS = {
    "autogen": "from autogen_agentchat.agents import AssistantAgent",
    "smolagents": "from smolagents import ToolCallingAgent",
    "pydantic-ai": "from pydantic_ai import Agent",
}
REPEATS = 5
Command = tuple[str | Path, str]
"""An interpreter and the code that it runs."""


def process_ms(python: str | Path, code: str, bytecode: str) -> float:
    """CPU milliseconds (user and system) of one process from start to end. `bytecode` is its folder for bytecode, which
    overrides the environment."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = bytecode
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([python, "-c", code], cwd=ROOT, env=environment, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000


def least_ms(codes: dict[str, Command]) -> dict[str, float]:
    """The least of several runs of each, in turn, after one run that compiles the bytecode."""
    with tempfile.TemporaryDirectory() as bytecode:
        rounds = [{name: process_ms(*code, bytecode) for name, code in codes.items()} for _ in range(REPEATS + 1)][1:]
    return {name: min(taken[name] for taken in rounds) for name in codes}


def floor() -> dict[str, Command]:
    """The bare interpreter."""
    return {"bare": (sys.executable, "pass")}


def peers() -> dict[str, Command]:
    """The peers, and the bare interpreter of their environment."""
    codes = {"bare, peers": "pass"} | PEERS
    return {name: (peers_python(), code) for name, code in codes.items()}


def ours() -> dict[str, Command]:
    """The package alone, and with the class that every user needs next, in case it is imported lazily."""
    if find_spec("agentlab") is None or find_spec("agentlab.agent") is None:
        raise ImportError("agentlab.agent")
    return {"package": (sys.executable, "import agentlab"), "class": (sys.executable, "from agentlab import Agent")}


def rows(with_peers: bool) -> Iterator[Row]:
    """One line for the package, one for the class."""
    candidates, why_not = attempt(ours)
    times = least_ms(floor() | (peers() if with_peers else {}) | (candidates or {}))
    bare, bare_peers = times["bare"], times.get("bare, peers", 0.0)
    if with_peers:
        print("  " + ", ".join(f"{name} {times[name] - bare_peers:,.0f} ms" for name in PEERS))
    best = least({name: times[name] - bare_peers for name in PEERS if name in times})
    for benchmark, name in (("import agentlab", "package"), ("from agentlab import Agent", "class")):
        yield Row(
            benchmark=benchmark,
            unit="ms",
            goal="<= 1/5 of the fastest peer",
            at_most=1 / 5,
            floor=bare,
            peer=best,
            ours=times[name] - bare if name in times else None,
            against=best.value if best else None,
            why_not=why_not,
        )

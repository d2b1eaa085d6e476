"""A user's type checker on the installed wheel: every public name is typed, and no Any is in place of a type.

Two checkers at their strictest: mypy and pyright. They also check all Python blocks in the README and in the documentation.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path

import pytest

import agentlab as lab
from tests.supply.wheels import build_wheel

REPOSITORY = Path(__file__).parents[2]

PROGRAM = """
import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing_extensions import TypedDict, assert_type

import agentlab as lab
from agentlab import AllOf, AnyOf, Budget, FinishReasonIs, HasToolCall, MaxCost, MaxTokensUsed, Not, Off, StepCountIs


def get_weather(city: str) -> dict[str, str]:
    return {city: "rain"}


@lab.tool(timeout_s=5.0)
async def finalize(answer: str) -> str:
    return answer


def policy(signal: lab.TerminationSignal, context: lab.DecisionContext) -> lab.Decision:
    return lab.decide(signal, context)


async def main() -> lab.RunResult:
    agent = lab.Agent(
        lab.Provider("anthropic", model="claude-sonnet-4-6"),
        tools=[get_weather, finalize],
        budget=Budget(max_cost=0.05, timeout=timedelta(minutes=1)),
        stop=StepCountIs(8) | HasToolCall("finalize") & ~MaxTokensUsed(5_000),
        policy=policy,
        terminating=lab.TerminatingTools(["finalize", get_weather]),
        continuation=lab.ContinuationPolicy(max_continuations_per_turn=2),
        retry=lab.RetryPolicy(attempts=2, longest_wait_s=timedelta(seconds=5)),
    )
    with lab.replay("fixtures/trip"):
        run = agent.run("Plan a trip.", terminating=[get_weather])
    step = await run.step()
    if step is not None:
        reveal_type(step.finish_reason)
        reveal_type(step.usage.total_tokens)
    async for each in run:
        reveal_type(each)
    run.limits.edit(max_turns=3)
    run.limits.max_cost = 0.10
    run.limits.timeout = timedelta(minutes=2)
    run.limits.tools = ["finalize"]
    branch = run.fork(at=1, model="openai:gpt-5.4-mini")
    result = await branch
    reveal_type(agent.tools)
    reveal_type(agent.settings)
    reveal_type(run)
    reveal_type(branch.history[0])
    reveal_type(run.next_actions)
    reveal_type(result.stop_reason)
    reveal_type(result.cost.usd)
    reveal_type(result.conditions_met)
    reveal_type(result.to_frame())
    budget = run.limits.budget
    reveal_type(budget.max_cost)
    reveal_type(budget.timeout)
    reveal_type(branch.limits.max_cost)
    reveal_type(branch.limits.timeout)
    reveal_type(branch.limits.tools)
    return result


class Trip(TypedDict):
    city: str


@dataclass
class Bus:
    line: int


async def typed() -> str:
    agent = lab.Agent("openai:gpt-5.4-mini", output=Trip, instructions="Plan a trip.")
    run = agent.with_model("anthropic:claude-sonnet-4-6").run("Where to?")
    result = await run
    assert_type(result.output, Trip | None)
    assert_type(run.fork(at=1).output, Trip | None)
    assert_type(result.raise_for_stop().output, Trip)
    assert_type(lab.Store().load("first", agent).output, Trip | None)
    assert_type(lab.Store().resume("first", agent).output, Trip | None)
    plain: lab.Run = lab.Store().load("first")
    either: lab.Agent[Trip | Bus | None] = lab.Agent("openai:gpt-5.4-mini", output=Trip | Bus)
    other = (await either.run("Where to?")).output
    assert_type(other, Trip | Bus | None)
    if isinstance(other, Bus):
        assert_type(other.line, int)
    reveal_type(lab.Agent("openai:gpt-5.4-mini", output=Bus))
    reveal_type(lab.Agent("openai:gpt-5.4-mini"))
    return plain.id + result.raise_for_stop().output["city"]


conditions: list[lab.StopCondition] = [
    AnyOf(StepCountIs(1), MaxCost(0.1)), AllOf(StepCountIs(1), FinishReasonIs("end_turn")), Not(StepCountIs(1)), Off(StepCountIs(2)),
    lab.Custom(lambda history: len(history) > 3),
]
reveal_type(lab.capabilities("openai"))
reveal_type(lab.capabilities())
reveal_type(lab.detect("openai", {}))
reveal_type(lab.Store())
reveal_type(lab.StepCountIs(1) | lab.StepCountIs(2))
asyncio.run(main())
"""
REVEALED = [
    "agentlab.model.finish_reasons.FinishReason | None",
    "int | None",
    "agentlab.records.step.StepResult",
    "typing.Mapping[str, agentlab.tools.Tool]",
    "agentlab.limits.settings.RunSettings",
    "agentlab.agent.Run[Any]",
    "agentlab.records.step.StepResult",
    "tuple[agentlab.engine.next_actions.NextAction, ...]",
    "agentlab.model.finish_reasons.StopReason",
    "decimal.Decimal | None",
    "tuple[agentlab.limits.reading.Reading, ...]",
    "pandas.DataFrame",
    *("decimal.Decimal | None", "float | None") * 2,
    "tuple[str, ...]",
    "agentlab.agent.Agent[program.Bus | None]",
    "agentlab.agent.Agent[Any]",
    "agentlab.providers.base.Capabilities",
    "dict[str, agentlab.providers.base.Capabilities]",
    "agentlab.model.finish_reasons.TerminationSignal",
    "agentlab.storage.store.Store",
    "agentlab.limits.combinators.StopCondition",
]


NAMES = "import agentlab as lab\n" + "".join(f"reveal_type(lab.{name})\n" for name in lab.__all__)
WRONG = """
lab.Budget(max_cots=3)
lab.Agent("", tool=[])
if lab.StepCountIs(1): pass
def edit(run: lab.Run) -> None:
    run.limits.max_stpes = 3
"""
"""Mistakes that a checker should find."""

PRESUPPOSED = """
import concurrent.futures
from collections.abc import Awaitable, Callable
from typing import Any

import pandas as pd

import agentlab as lab
from agentlab import Budget, HasToolCall, MaxCost, StepCountIs

agent: lab.Agent
agent_a: lab.Agent
agent_b: lab.Agent
result: lab.RunResult
other: lab.RunResult
results: list[lab.RunResult]
steps: pd.DataFrame
run_id: str
key: str
payload: bytes
chunks: list[bytes]
BODIES: dict[str, dict[str, Any]]
STREAM: bytes
ray: Any
client: Any
langchain_tool: Any
pydantic_ai_tool: Any
inspect_tool: Any


def get_weather(city: str) -> str: return city
def find_trains(city: str) -> str: return city
def search(words: str) -> str: return words
def pay(eur: int) -> str: return str(eur)
def finalize(answer: str) -> str: return answer


async def page() -> None:
"""
"""Names that pages assume. A page is one function, since a notebook awaits at the top level."""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the contents of the wheel, as pip would install it."""
    folder = tmp_path_factory.mktemp("installed")
    zipfile.ZipFile(build_wheel(folder / "wheels")).extractall(folder / "site")
    return folder


@pytest.fixture(scope="module")
def pages(installed: Path) -> Path:
    """A folder with one module for each page that shows Python: its blocks in order."""
    folder = installed / "pages"
    folder.mkdir()
    for page in (REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))):
        blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
        if blocks:
            name = "_".join(page.relative_to(REPOSITORY).with_suffix("").parts).replace("-", "_")
            (folder / f"{name}.py").write_text(PRESUPPOSED + textwrap.indent("\n\n".join(blocks), "    "), encoding="utf-8")
    assert len(list(folder.iterdir())) >= 15
    return folder


# mypy ------------------------------------------------------------------------------------------------------------------------------


MYPY = """
[mypy]
strict = True
disallow_any_expr = False

# What agentlab, Optuna and matplotlib use inside. No public type of agentlab depends on it.
[mypy-sqlalchemy.*,alembic.*,PIL.*,prompt_toolkit.*,pyparsing.*,rich.*,tornado.*]
follow_imports = skip
[mypy-markdown_it.*,IPython.*,traitlets.*,jinja2.*,truststore.*,wcwidth.*,zmq.*]
follow_imports = skip

# One page passes our transport to these clients: pyright checks that.
[mypy-anthropic.*,openai.*]
follow_imports = skip
"""
"""Together the libraries that are not followed take two thirds of mypy's time."""


@pytest.fixture(scope="module")
def mypy(installed: Path, pages: Path) -> dict[str, str]:
    """What mypy --strict says of a user's program, of all public names and of the pages, by file.

    It runs once, since the types of the libraries take most of its time, and outside the repository.
    """
    (installed / "program.py").write_text(PROGRAM, encoding="utf-8")
    (installed / "names.py").write_text(NAMES, encoding="utf-8")
    (installed / "mypy.ini").write_text(MYPY, encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--no-incremental", "--cache-dir", os.devnull, "--follow-imports=silent"]
    command += ["program.py", "names.py", *map(str, pages.iterdir())]
    # With MYPYPATH, agentlab would be checked as the user's own code; as an installed package only its types count
    here = {"MYPYPATH": str(installed / "site"), "PATH": "/usr/bin:/bin", "HOME": str(installed)}
    done = subprocess.run(command, cwd=installed, env=here, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    by_file: dict[str, str] = {}
    for line in done.stdout.splitlines(keepends=True):
        name = Path(line.partition(":")[0]).name
        by_file[name] = by_file.get(name, "") + line
    return by_file


@pytest.mark.timeout(300)
def test_a_users_program_has_the_intended_types(installed: Path, mypy: dict[str, str]) -> None:
    assert (installed / "site" / "agentlab" / "py.typed").exists()
    said = mypy["program.py"]
    assert ": error:" not in said, said
    short = [
        re.sub(r"\bpandas\S*DataFrame", "pandas.DataFrame", revealed) for revealed in re.findall(r'Revealed type is "(.*)"', said)
    ]
    assert [revealed.replace("builtins.", "").replace("pandas.core.frame.", "pandas.") for revealed in short] == REVEALED


@pytest.mark.timeout(300)
def test_every_public_name_has_a_type(mypy: dict[str, str]) -> None:
    said = mypy["names.py"]
    assert ": error:" not in said, said
    revealed = re.findall(r'Revealed type is "(.*)"', said)
    assert len(revealed) == len(lab.__all__)
    untyped = [name for name, kind in zip(lab.__all__, revealed, strict=True) if kind in ("Any", "builtins.object")]
    assert untyped == []


@pytest.mark.timeout(300)
def test_code_in_readme_and_documentation_is_typed_strictly(mypy: dict[str, str]) -> None:
    assert "".join(said for said in mypy.values() if ": error:" in said) == ""


# pyright ---------------------------------------------------------------------------------------------------------------------------

NOT_OF_A_SCRIPT = ("Expression", "Variable", "Import", "Function", "Class", "CallResult")
"""pyright's `reportUnused…` rules, which notebooks break everywhere: a value as output, a name for the next cell."""


@pytest.fixture(scope="module")
def pyright(installed: Path, pages: Path) -> dict[str, list[str]]:
    """What strict pyright says of the pages, of all public names and of some mistakes, by file: errors and revealed types."""
    (installed / "wrong.py").write_text(NAMES + WRONG, encoding="utf-8")
    settings = {
        "typeCheckingMode": "strict",
        "extraPaths": [str(installed / "site")],
        "pythonVersion": "3.11",
        **{f"reportUnused{kind}": False for kind in NOT_OF_A_SCRIPT},
        "include": ["pages", "wrong.py"],
    }
    (installed / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    command = [sys.executable, "-m", "basedpyright", "-p", str(installed), "--pythonpath", sys.executable, "--outputjson"]
    done = subprocess.run(command, cwd=installed, capture_output=True, text=True, check=False)
    assert done.stdout.strip().startswith("{"), done.stderr
    reported = json.loads(done.stdout)
    assert reported["summary"]["filesAnalyzed"] == 1 + len(list(pages.iterdir()))
    by_file: dict[str, list[str]] = {}
    for one in reported["generalDiagnostics"]:
        by_file.setdefault(Path(one["file"]).name, []).append(one["message"])
    return by_file


@pytest.mark.timeout(300)
def test_code_in_readme_and_documentation_is_typed_strictly_for_pyright(pyright: dict[str, list[str]]) -> None:
    assert list(pyright) == ["wrong.py"], pyright


@pytest.mark.timeout(300)
def test_pyright_knows_every_public_name_and_no_other(pyright: dict[str, list[str]]) -> None:
    report = pyright["wrong.py"]
    known = re.findall(r'Type of "lab\.(\w+)" is "(.*)"', "\n".join(report))
    assert sorted(name for name, _ in known) == lab.__all__
    assert [name for name, kind in known if "Unknown" in kind or kind == "Any"] == []
    errors = [one for one in report if 'Type of "lab.' not in one]
    for part in ("max_cots", 'No overloads for "__init__"', 'returns type "NoReturn" rather than "bool"', "max_stpes"):
        assert sum(part in one for one in errors) == 1, errors
    assert len(errors) == 4

"""What a user's type checker sees of the installed wheel: every public name, each with its type, and no Any where a type is meant."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import agentlab as lab

REPOSITORY = Path(__file__).parents[2]

PROGRAM = """
import asyncio
from decimal import Decimal

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
        budget=Budget(max_cost=Decimal("0.05"), timeout=30),
        stop=StepCountIs(8) | HasToolCall("finalize") & ~MaxTokensUsed(5_000),
        policy=policy,
        terminating=lab.TerminatingTools(("finalize",)),
        continuation=lab.ContinuationPolicy(max_continuations_per_turn=2),
        retry=lab.RetryPolicy(attempts=2),
    )
    with lab.replay("fixtures/trip"):
        run = agent.run("Plan a trip.")
    step = await run.step()
    if step is not None:
        reveal_type(step.finish_reason)
        reveal_type(step.usage.total_tokens)
    async for each in run:
        reveal_type(each)
    run.limits.edit(max_turns=3)
    branch = run.fork(at=1, model="openai:gpt-5.4-mini")
    result = await branch
    reveal_type(agent.tools)
    reveal_type(agent.settings)
    reveal_type(run)
    reveal_type(branch.history[0])
    reveal_type(run.proposals)
    reveal_type(result.stop_reason)
    reveal_type(result.cost.usd)
    reveal_type(result.conditions_met)
    reveal_type(result.to_frame())
    return result


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
    "agentlab.types.FinishReason | None",
    "int | None",
    "agentlab.step_result.StepResult",
    "typing.Mapping[str, agentlab.tools.Tool]",
    "agentlab.settings.RunSettings",
    "agentlab.run.Run",
    "agentlab.step_result.StepResult",
    "tuple[agentlab.going_on.Proposal, ...]",
    "agentlab.types.StopReason",
    "decimal.Decimal | None",
    "tuple[agentlab.step_result.Reading, ...]",
    "pandas.DataFrame",
    "agentlab.providers._base.Capabilities",
    "dict[str, agentlab.providers._base.Capabilities]",
    "agentlab.types.TerminationSignal",
    "agentlab.storage.store.Store",
    "agentlab.stop_condition.StopCondition",
]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the wheel holds, as pip would put it there."""
    folder = tmp_path_factory.mktemp("installed")
    wheels = folder / "wheels"
    build = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--no-build-isolation",
        "-w",
        str(wheels),
    ]
    done = subprocess.run([*build, str(REPOSITORY)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (wheel,) = wheels.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(folder / "site")
    return folder


def checked(installed: Path, program: str) -> subprocess.CompletedProcess[str]:
    """What mypy --strict says of a program of a user, run from elsewhere than the repository."""
    (installed / "program.py").write_text(program, encoding="utf-8")
    (installed / "mypy.ini").write_text("[mypy]\nstrict = True\ndisallow_any_expr = False\n", encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--cache-dir", str(installed / "cache"), "program.py"]
    # MYPYPATH would have agentlab checked as the user's own code; as an installed package only its types count
    here = {"MYPYPATH": str(installed / "site"), "PATH": "/usr/bin:/bin", "HOME": str(installed)}
    return subprocess.run(
        [*command, "--follow-imports=silent"], cwd=installed, env=here, capture_output=True, text=True, check=False
    )


@pytest.mark.timeout(300)
def test_a_users_program_has_the_types_that_are_meant(installed: Path) -> None:
    assert (installed / "site" / "agentlab" / "py.typed").exists()
    done = checked(installed, PROGRAM)
    assert ": error:" not in done.stdout, done.stdout
    short = [
        re.sub(r"\bpandas\S*DataFrame", "pandas.DataFrame", told) for told in re.findall(r'Revealed type is "(.*)"', done.stdout)
    ]
    assert [told.replace("builtins.", "").replace("pandas.core.frame.", "pandas.") for told in short] == REVEALED


@pytest.mark.timeout(300)
def test_every_public_name_has_a_type(installed: Path) -> None:
    program = "import agentlab as lab\n" + "".join(f"reveal_type(lab.{name})\n" for name in lab.__all__)
    done = checked(installed, program)
    assert ": error:" not in done.stdout, done.stdout
    told = re.findall(r'Revealed type is "(.*)"', done.stdout)
    assert len(told) == len(lab.__all__)
    untyped = [name for name, kind in zip(lab.__all__, told, strict=True) if kind in ("Any", "builtins.object")]
    assert untyped == []

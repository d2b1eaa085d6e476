"""The tests with the lowest versions that pyproject.toml allows: `make lowest`.

The environment is `.venv-lowest`, made from the pins in lowest.txt beside this file. `make lowest ARGS=lock` makes new pins
from the lower bounds of all requirements of agentlab and its extras; their dependencies are as new as possible, and packages
that only tests need are as in constraints.txt.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.supply.declared import CONSTRAINTS, OF_A_USER, REPOSITORY, declared, pins

ENVIRONMENT = REPOSITORY / ".venv-lowest"
LOCK = Path(__file__).parent / "lowest.txt"
UV = "uv==0.13.9"

TOOLS = (
    "cryptography",
    "html5lib",
    "hypothesis",
    "nbclient",
    "nbconvert",
    "pytest",
    "pytest-socket",
    "pytest-timeout",
    "pytest-xdist",
    "socksio",
    "vcrpy",
)
"""The tests' other requirements, as new as in every other environment."""

NOT_NEEDED = ("jupyterlab",)
"""Extras for opening notebooks, which these tests do not do."""

BESIDE = ("opentelemetry-sdk>=1.32", "pyparsing>=3.2,<3.3", "statsmodels>=0.14.4")
"""The SDK needs its API, and the lowest scipy an early statsmodels, which is an oracle. Matplotlib 3.9 triggers a warning of
pyparsing 3.3, and warnings are errors here."""

LEFT_OUT = (
    "tests/browser", "tests/kernel", "tests/live", "tests/soak",
    # vendors' libraries as oracles, which are newer than the bounds
    "tests/fixtures/test_vendors.py", "tests/providers/test_azure.py", "tests/providers/test_output_schema.py",
    "tests/providers/test_parameters.py", "tests/providers/test_parts.py", "tests/transport/test_clients.py",
    "tests/interop/test_otel_round_trip.py", "tests/interop/test_import_otel.py", "tests/interop/test_mcp_tools.py",
    "tests/serving/test_schema.py",
    # these build wheels, or check types or imports, with packages that only development needs
    "tests/package/test_typed.py", "tests/package/test_layout.py", "tests/supply", "tests/pyodide",
    "tests/docs",  # the site is built with the newest versions, and examples show frames as the newest pandas prints them
)  # fmt: skip
ORACLES = (
    "tests/model/test_charges.py::test_tiers_and_long_prompts[fast costs twice as much]",  # prices that older price data does not have
    "tests/providers/test_bedrock.py::test_the_finish_reasons_are_the_vendors",  # an older botocore has fewer values
    "tests/providers/test_bedrock_fixtures.py::test_the_vendors_model_knows_requests_and_responses",
)
CORE = (
    "tests/limits",
    "tests/model",
    "tests/records",
    "tests/engine",
    "tests/storage",
    "tests/experiments/test_experiment.py",
    "tests/plots",
    "tests/notebook",
    "tests/transport",
    "tests/analysis",
)


def wanted() -> list[str]:
    """The input of the lock."""
    own = [requirement for name, requirement in declared(OF_A_USER).items() if name not in NOT_NEEDED]
    pinned = pins(CONSTRAINTS)
    return [*own, *BESIDE, *(f"{name}=={pinned[name]}" for name in TOOLS)]


def lock() -> int:
    """Write new pins."""
    with tempfile.TemporaryDirectory() as place:
        subprocess.run([sys.executable, "-m", "venv", place], check=True)
        tool = Path(place) / "bin"
        subprocess.run([str(tool / "python"), "-m", "pip", "install", "--quiet", UV], check=True)
        asked = Path(place) / "wanted.in"
        asked.write_text("\n".join(wanted()) + "\n")
        command = [str(tool / "uv"), "pip", "compile", "--quiet", "--resolution", "lowest-direct", "--python-version", "3.11"]
        done = subprocess.run([*command, "--no-annotate", "--no-header", str(asked)], check=True, capture_output=True, text=True)
    LOCK.write_text(f"# The lowest versions that pyproject.toml allows; made by: make lowest ARGS=lock\n{done.stdout}")
    return 0


def environment() -> Path:
    """The Python of an environment with the pins, made if it is missing."""
    python, ready = ENVIRONMENT / "bin" / "python", ENVIRONMENT / "ready"
    if not ready.exists() or ready.read_text() != LOCK.read_text():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(ENVIRONMENT)], check=True)
        install = [str(python), "-m", "pip", "install", "--quiet"]
        subprocess.run([*install, "--requirement", str(LOCK)], check=True, cwd=REPOSITORY)
        subprocess.run([*install, "--no-deps", "--editable", "."], check=True, cwd=REPOSITORY)
        ready.write_text(LOCK.read_text())
    return python


def main(arguments: list[str]) -> int:
    """Lock, or run the tests: `core` is the part that is run for every change."""
    if arguments == ["lock"]:
        return lock()
    chosen = CORE if arguments == ["core"] else ("tests",)
    leave = [*(f"--ignore={one}" for one in LEFT_OUT), *(f"--deselect={one}" for one in ORACLES)]
    marks = "not kernel and not browser and not pyodide and not live and not inspect and not soak"
    at_once = ["--numprocesses", os.environ.get("WORKERS", "2"), "--dist", "loadfile"]  # as `make test` does
    command = [str(environment()), "-m", "pytest", "-q", "-p", "no:cacheprovider", *at_once, "-m", marks, *leave, *chosen]
    return subprocess.run(command, cwd=REPOSITORY, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

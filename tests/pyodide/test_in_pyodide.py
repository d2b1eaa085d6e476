"""Agentlab's wheel in Pyodide: what runs in a browser without threads and processes."""

from __future__ import annotations

import json
import re
import subprocess
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.supply.declared import REPOSITORY, declared
from tests.supply.wheels import build_wheel

from .environment import NODE, PYODIDE, UnreachableError, environment

HERE = Path(__file__).parent
PROGRAM = HERE / "program.py"
CHECKS = re.findall(r"^async def (check_\w+)", PROGRAM.read_text(), re.MULTILINE)

pytestmark = [pytest.mark.pyodide, pytest.mark.timeout(600)]  # the first run downloads 25 MB


@pytest.fixture(scope="module")
def faults(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The traceback of each check, "" if it passed."""
    try:
        made = environment()
    except UnreachableError as error:
        pytest.skip(f"Pyodide {PYODIDE} cannot be downloaded: {error}")
    folder = tmp_path_factory.mktemp("wheel")
    wheel = build_wheel(folder)
    zipfile.ZipFile(wheel).extractall(folder / "site")
    mounts = {made / "site": "/site", folder / "site": "/wheel", REPOSITORY / "fixtures": "/fixtures"}
    command = [str(NODE), str(HERE / "run.mjs"), str(PROGRAM), str(made / "node_modules")]
    done = subprocess.run(
        [*command, *(f"{mounted}={place}" for mounted, place in mounts.items())], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"check"')]
    return {line["check"]: line["fault"] for line in lines}


@pytest.mark.parametrize("check", CHECKS)
def test_in_pyodide(check: str, faults: dict[str, str]) -> None:
    assert faults[check] == "", faults[check]


def test_what_has_no_build_for_pyodide_is_not_required_there() -> None:
    marker = Requirement(declared()["psutil"]).marker
    assert marker is not None and not marker.evaluate({"sys_platform": "emscripten"})

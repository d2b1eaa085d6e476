"""The built wheel, and the packages that it requires, taken from this environment: no package index is needed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

from tests.supply.declared import REPOSITORY, name_of

NO_NETWORK = """
import socket
def refuse(what, host):
    if host not in ("127.0.0.1", "::1", "localhost", "", None):
        raise OSError(f"there is no network in this test: {host}")
    return what
connect, look_up = socket.socket.connect, socket.getaddrinfo
socket.socket.connect = lambda self, to: refuse(connect, to[0] if isinstance(to, tuple) else None)(self, to)
socket.getaddrinfo = lambda host, *more, **named: refuse(look_up, host)(host, *more, **named)
"""
"""The start of a program that may not leave this machine."""


def build_wheel(folder: Path) -> Path:
    """Build the wheel into a folder. Hatchling is called directly: pip would take twice as long for the same file."""
    make = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    done = subprocess.run(make, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return next(folder.glob("*.whl"))


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

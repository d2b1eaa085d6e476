"""The required packages according to pyproject.toml and constraints.txt."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
CONSTRAINTS = REPOSITORY / "constraints.txt"

OF_A_USER = ("bedrock", "vertex", "telemetry", "cluster", "parquet", "tune", "serve", "lab")
"""The extras for users of agentlab that can be installed at their lowest versions together: `inspect` has a separate environment, and
`mcp` requires a newer pydantic than agentlab itself."""


def name_of(requirement: str) -> str:
    """The name in a requirement, in the normalized spelling of package indexes."""
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert found is not None, requirement
    return re.sub(r"[-_.]+", "-", found.group()).lower()


def pins(path: Path) -> dict[str, str]:
    """The version of each package in a file of pins. Raise ValueError for a line that is no pin or a duplicate."""
    found: dict[str, str] = {}
    for line in path.read_text().splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        name, equal, version = line.partition("==")
        if not equal or not re.fullmatch(r"[A-Za-z0-9.!+_-]+", version):
            raise ValueError(f"{path.name}: {line!r} pins nothing: NAME==VERSION is wanted.")
        if name_of(name) in found:
            raise ValueError(f"{path.name}: {name} is there twice.")
        found[name_of(name)] = version
    return found


def declared(extras: Iterable[str] = ()) -> dict[str, str]:
    """The requirements of agentlab and of these extras, by name."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    listed = [*project["dependencies"], *(one for extra in extras for one in project["optional-dependencies"][extra])]
    return {name_of(one): one for one in listed}


def lower_bound(requirement: str) -> str | None:
    """The lowest version that a requirement allows; None if it has no lower bound."""
    found = re.search(r">=\s*([A-Za-z0-9.]+)", requirement)
    return found and found.group(1)

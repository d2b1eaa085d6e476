"""Which files are meant: a file, a folder, a pattern, or a list of those."""

from __future__ import annotations

import glob
from collections.abc import Iterable
from pathlib import Path
from typing import TypeAlias

from agentlab.errors import ConfigurationError

Where: TypeAlias = str | Path | Iterable[str | Path]


def files_of(where: Where, endings: tuple[str, ...], what: str) -> list[Path]:
    """The files, each once; those of a folder by name, at any depth. Raises ConfigurationError where there is none."""
    if not isinstance(where, str | Path | Iterable):
        raise ConfigurationError(
            f"{what}: {type(where).__name__} is no path; pass a file, a folder, a pattern or a list of them."
        )
    several = [where] if isinstance(where, str | Path) else list(where)
    found: dict[Path, None] = {}
    for one in several:
        if not isinstance(one, str | Path):
            raise ConfigurationError(
                f"{what}: {type(one).__name__} is no path; pass a file, a folder, a pattern or a list of them."
            )
        path = Path(one)
        if path.is_dir():
            here = sorted(inner for inner in path.rglob("*") if inner.name.endswith(endings) and inner.is_file())
        elif path.is_file():
            here = [path]
        else:
            here = sorted(Path(name) for name in glob.glob(str(one), recursive=True) if Path(name).is_file())  # noqa: PTH207  of any root
        if not here:
            raise ConfigurationError(
                f"{what}: there is nothing at {str(one)!r}; pass a file, a folder with {' or '.join(endings)} files, or a pattern."
            )
        found |= dict.fromkeys(here)
    if not found:
        raise ConfigurationError(f"{what}: the list is empty; pass at least one file.")
    return list(found)

"""`python -m agentlab lab`: opens the course in JupyterLab, from a clone or from a copy of the installed files."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from agentlab.errors import ConfigurationError

PACKAGE = Path(__file__).parents[1]
FOLDER = "agentlab-course"
FIRST = "notebooks/01_quickstart.ipynb"
EXTRA = "agentlab-jupyter[lab]"
REPOSITORY = "https://github.com/agentlab-jupyter/agentlab"

_LINK_OUTSIDE = re.compile(rb"\]\(\.\./(?!fixtures/)")
"""The start of a link in a notebook to a file that is in the repository only, such as a page of the documentation."""


def open_course(folder: Path | None = None, options: Sequence[str] = ()) -> int:
    """Lay out the course in a folder and run JupyterLab there until it ends; return the exit status.

    Without a folder, a clone opens in place, and an installed package makes `agentlab-course`. `options` are those of JupyterLab.
    Raises ConfigurationError if the course cannot be copied to the folder.
    """
    folder = (folder or _clone() or Path(FOLDER)).expanduser().absolute()
    kept = [] if folder == _clone() else lay_out(folder)
    _say(f"The course is in {folder}.")
    if kept:
        _say(
            f"Kept as they are, because they differ from those of agentlab: {', '.join(kept)}. "
            "For new copies, name another folder: python -m agentlab lab FOLDER"
        )
    if importlib.util.find_spec("jupyterlab") is None:
        _say(f'JupyterLab is not installed: pip install "{EXTRA}", or open {FIRST} in another editor for notebooks.')
        return 1
    from jupyterlab.labapp import main

    root = ["--allow-root"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    started = main([f"--ServerApp.root_dir={folder}", f"--LabApp.default_url=/lab/tree/{FIRST}", *root, *options])
    return int(started or 0)


def lay_out(folder: Path) -> list[str]:
    """Copy the notebooks and their recordings to a folder. Existing files are kept; return the names of those that differ.

    Raises ConfigurationError if the folder cannot be written.
    """
    kept = []
    try:
        for name, source in _files():
            target, content = folder / name, source.read_bytes()
            if source.suffix == ".ipynb":
                content = _LINK_OUTSIDE.sub(f"]({REPOSITORY}/blob/main/".encode(), content)
            if not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content)
            elif target.read_bytes() != content:
                kept.append(name)
    except OSError as error:
        raise ConfigurationError(
            f"The course cannot be copied to {folder}: {error.strerror or error}. Name another folder: python -m agentlab lab FOLDER"
        ) from error
    return kept


def _clone() -> Path | None:
    """The root of the clone that agentlab is imported from; None for an installed package."""
    root = PACKAGE.parent
    return root if (root / FIRST).exists() else None


def _files() -> Iterator[tuple[str, Path]]:
    """Yield the files of the course: each name in the folder of a reader, and where the file is."""
    root = _clone()
    for name, place in (
        ("notebooks", root / "notebooks" if root else PACKAGE / "course"),
        ("fixtures", root / "fixtures" if root else PACKAGE / "samples"),
    ):
        for path in sorted(place.rglob("*")):
            parts = path.relative_to(place).parts
            if path.is_file() and not any(part.startswith((".", "__pycache__")) for part in parts):
                yield "/".join((name, *parts)), path


def _say(text: str) -> None:
    print(text, file=sys.stderr)  # noqa: T201  a command prints what it does

"""`python -m agentlab lab`: opens the course in JupyterLab, from a clone or from a copy of the installed files."""

from __future__ import annotations

import filecmp
import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from agentlab.errors import ConfigurationError

PACKAGE = Path(__file__).parents[1]
FOLDER = "agentlab-course"
FIRST = "notebooks/01_quickstart.ipynb"
EXTRA = "agentlab-jupyter[lab]"


def open_course(folder: Path | None = None, options: Sequence[str] = ()) -> int:
    """Lay out the course in a folder and run JupyterLab there until it ends; return the exit status.

    Without a folder, a clone opens in place, and an installed package makes `agentlab-course`. `options` are those of JupyterLab.
    Raises ConfigurationError if the course is not installed, or cannot be copied to the folder.
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

    Raises ConfigurationError if the course is not installed, or the folder cannot be written.
    """
    kept = []
    try:
        for name, source in _files():
            target = folder / name
            if not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, target)
            elif not filecmp.cmp(source, target, shallow=False):
                kept.append(name)
    except OSError as error:
        raise ConfigurationError(
            f"The course cannot be copied to {folder}: {error.strerror or error}. Name another folder: python -m agentlab lab FOLDER"
        ) from error
    return kept


def _clone() -> Path | None:
    """The root of the clone that agentlab is imported from; None for an installed package, which has the samples within it."""
    root = PACKAGE.parent
    return root if (root / FIRST).exists() and not (PACKAGE / "samples").exists() else None


def _files() -> Iterator[tuple[str, Path]]:
    """Yield the files of the course: each name in the folder of a reader, and where the file is."""
    course = _clone() or PACKAGE / "course"
    if not course.exists():
        raise ConfigurationError(f'The course is not installed: pip install "{EXTRA}"')
    for name, place in (
        ("notebooks", course / "notebooks"),
        ("fixtures", course / "fixtures"),
        ("fixtures", PACKAGE / "samples"),  # of an installed package
    ):
        for path in sorted(place.rglob("*")):
            parts = path.relative_to(place).parts
            if path.is_file() and not any(part.startswith((".", "__pycache__")) for part in parts):
                yield "/".join((name, *parts)), path


def _say(text: str) -> None:
    print(text, file=sys.stderr)  # noqa: T201  a command prints what it does

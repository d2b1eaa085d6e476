"""What to say of a path at which there is nothing: where the same may lie, else what lies near."""

from __future__ import annotations

import difflib
import os
from contextlib import suppress
from pathlib import Path

FOLDERS_UP = 4


def instead_of(path: Path) -> str:
    """The end of the sentence "… does not exist": the path that was probably meant, else what the nearest folder holds."""
    meant = None
    with suppress(OSError):  # a folder that is not to be read
        meant = _from_another_folder(path) or _nearly_so_called(path)
    if meant is not None:
        return f". Did you mean {meant.as_posix()!r}? That is there."
    folder = next((one for one in path.absolute().parents if one.is_dir()), None)
    if folder is None:
        return ": no folder above it exists."
    return f": the nearest folder that does, {os.path.normpath(folder)}, holds {listing(folder)}."


def listing(folder: Path) -> str:
    """A few names of what a folder holds."""
    names = sorted(entry.name + "/" * entry.is_dir() for entry in folder.iterdir() if not entry.name.startswith("."))
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return ", ".join(names[:8]) + more if names else "nothing"


def _from_another_folder(path: Path) -> Path | None:
    """The same as seen from the folder of a notebook, or from one above it: `../fixtures/trip` for `fixtures/trip`, and back."""
    if path.is_absolute():
        return None
    named = Path(*(part for part in path.parts if part != ".."))
    places = (Path(*[".."] * up, named) for up in range(FOLDERS_UP + 1))
    return next((place for place in places if place.exists()), None)


def _nearly_so_called(path: Path) -> Path | None:
    """The path with its first name that does not exist replaced by one that is nearly the same, where all of that exists."""
    parts = path.parts
    missing = next((at for at in range(len(parts)) if not Path(*parts[: at + 1]).exists()), len(parts))
    folder = Path(*parts[:missing])
    if missing == len(parts) or not folder.is_dir():
        return None
    near = difflib.get_close_matches(parts[missing], [entry.name for entry in folder.iterdir()], n=3)
    whole = (Path(folder, name, *parts[missing + 1 :]) for name in near)
    return next((one for one in whole if one.exists()), None)

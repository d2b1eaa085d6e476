"""Loads an agent from a user's file: `package.module:agent`, `folder/module.py:agent` or `folder/notebook.ipynb:agent`.

A module is imported. The code cells of a notebook, up to the cell that defines the name, are executed in the notebook's folder, as in
Jupyter, and their output is dropped, also that of `display`. IPython's lines (`%…`, `!…`, `?name`, `name?`) and cells that begin with
`%%` are skipped.
"""

from __future__ import annotations

import ast
import asyncio
import builtins
import contextlib
import dis
import importlib
import importlib.util
import io
import json
import os
import re
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentlab.errors import ConfigurationError
from agentlab.limits.fields import unknown_name

NOTEBOOK_MODULE = "__notebook__"
_IPYTHON = re.compile(r"\s*([%!?]|[\w.*\[\]]+\?\??\s*$)")
_FORM = "write it as module:name, folder/module.py:name or folder/notebook.ipynb:name"


@dataclass(frozen=True, slots=True)
class _Cell:
    """A code cell. `number` counts all cells of the notebook from 1."""

    number: int
    tree: ast.Module


def load(target: str) -> Any:
    """Return the object that `target` names. For a notebook, the working directory changes to its folder, whose files its tools may
    open.

    Raises ConfigurationError for a file, cell or name that does not exist, and for code that fails.
    """
    place, _, name = target.rpartition(":")
    if not place or not name.isidentifier():
        raise ConfigurationError(f"{target!r} is not the name of an agent: {_FORM}.")
    if place.endswith(".ipynb"):
        return _from_notebook(_existing(place), name)
    module = _from_file(_existing(place)) if place.endswith(".py") else _imported(place)
    return _named(vars(module), name, place)


def _existing(place: str) -> Path:
    path = Path(place)
    if not path.is_file():
        raise ConfigurationError(f"There is no file {place!r} in {Path.cwd()}: check the path; {_FORM}.")
    return path.resolve()


def _imported(place: str) -> types.ModuleType:
    _add_to_path(Path.cwd())
    try:
        return importlib.import_module(place)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{place}.".startswith(f"{error.name}."):
            raise _failed(f"Importing {place!r}", error) from error
        raise ConfigurationError(f"There is no module {place!r}: run the command in its folder, or {_FORM}.") from error
    except Exception as error:
        raise _failed(f"Importing {place!r}", error) from error


def _from_file(path: Path) -> types.ModuleType:
    _add_to_path(path.parent)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None  # noqa: S101, PT018  for the type checker: the name ends in .py
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[path.stem]
        raise _failed(f"Executing {path.name}", error) from error
    return module


def _from_notebook(path: Path, name: str) -> Any:
    cells, known = list[_Cell](), set[str]()
    for cell in _cells(path):  # those below the one that binds the name may be drafts
        cells.append(cell)
        known |= (bound := _bound(cell.tree))
        if name in bound:
            break
    else:
        raise ConfigurationError(unknown_name(f"name defined in {path.name}:", name, sorted(known)))
    os.chdir(path.parent)
    _add_to_path(path.parent)
    module = types.ModuleType(NOTEBOOK_MODULE)
    sys.modules[NOTEBOOK_MODULE] = module  # dataclasses and pydantic resolve annotations there
    vars(module)["__builtins__"] = {**vars(builtins), "display": lambda *values, **options: None}
    with asyncio.Runner() as runner, contextlib.redirect_stdout(io.StringIO()):
        for cell in cells:
            runner.run(_execute(cell, path, vars(module)))
    return _named(vars(module), name, f"{path.name}, cell {cells[-1].number},")


def _cells(path: Path) -> Iterator[_Cell]:
    """Yield the parsed code cells."""
    try:
        cells = json.loads(path.read_text("utf-8"))["cells"]
        sources = [(number, cell["source"]) for number, cell in enumerate(cells, 1) if cell["cell_type"] == "code"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ConfigurationError(f"{path.name} is not a notebook in format 4: save it with Jupyter again.") from error
    for number, source in sources:
        try:
            tree = _parsed("".join(source), f"{path.name}[{number}]")
        except (SyntaxError, ValueError) as error:
            raise _failed(f"Cell {number} of {path.name}", error) from error
        yield _Cell(number, tree)


def _parsed(source: str, name: str) -> ast.Module:
    """Parse a cell, without IPython's lines if these make it invalid; line numbers do not change."""
    if source.lstrip().startswith("%%"):
        return ast.parse("", name)
    with contextlib.suppress(SyntaxError):
        return ast.parse(source, name)
    python = "\n".join("" if _IPYTHON.match(line) else line for line in source.splitlines())
    return ast.parse(python, name)


def _bound(tree: ast.Module) -> set[str]:
    """Return the names that a cell defines at its top level."""
    code = compile(tree, "cell", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    return {one.argval for one in dis.get_instructions(code) if one.opname in ("STORE_NAME", "STORE_GLOBAL")}


async def _execute(cell: _Cell, path: Path, names: dict[str, Any]) -> None:
    code = compile(cell.tree, f"{path.name}[{cell.number}]", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    try:
        pending = eval(code, names)  # noqa: S307  the user's own notebook, to be executed
        if asyncio.iscoroutine(pending):
            await pending
    except Exception as error:
        raise _failed(f"Cell {cell.number} of {path.name}", error) from error


def _named(names: dict[str, Any], name: str, place: str) -> Any:
    if name not in names:
        known = [known for known in names if not known.startswith("_")]
        raise ConfigurationError(unknown_name(f"name defined in {place}:", name, known))
    return names[name]


def _failed(action: str, error: Exception) -> ConfigurationError:
    return ConfigurationError(f"{action} failed with {type(error).__name__}: {error}. Fix that first.")


def _add_to_path(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

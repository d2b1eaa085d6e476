"""Runs the examples in docstrings as they are typed in a notebook: `await` works at the top level."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import doctest
import functools
import importlib.util
import io
import re
import sys
import traceback
from pathlib import Path
from types import CoroutineType, ModuleType
from typing import Any

REPOSITORY = Path(__file__).parents[2]
SETUP_PAGE = REPOSITORY / "docs" / "reference" / "examples.md"
COMPARED = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def public() -> ModuleType:
    """docs/public_names.py, which is not in a package."""
    name = "public_names"
    if name not in sys.modules:
        found = importlib.util.spec_from_file_location(name, REPOSITORY / "docs" / f"{name}.py")
        assert found is not None and found.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(found)
        found.loader.exec_module(sys.modules[name])
    return sys.modules[name]


def setup_source() -> str:
    """The start of every example: the first block of code of the page that defines it."""
    found = re.search(r"```python\n(.*?)```", SETUP_PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    return found[1]


RECORDED = frozenset(("run", "ended", "result", "others"))
"""What that block assigns in the runs that it replays."""


RESULTS = frozenset(("result", "others"))
"""Those of them that never change: all examples share them."""


def set_up(notebook: Notebook, examples: list[doctest.Example]) -> None:
    """Run that block, without what these examples do not use: agents and runs take longer than most examples."""
    used = names_in(ast.parse("".join(example.source for example in examples)))
    recorded = used & RECORDED
    notebook.run(_setup_with(frozenset(used - RESULTS if recorded <= RESULTS else used)))
    if recorded and recorded <= RESULTS:
        notebook.names.update(_results())


SLOW = re.compile(r"\w+ = (await )?lab\.(suggest|tune|verify)\(")
"""Statements whose values take long and never change: the examples that begin alike, up to such a statement, share them."""


def begun(notebook: Notebook, examples: list[doctest.Example]) -> list[doctest.Example]:
    """Set the notebook up for these examples, and return those which are still to be run in it."""
    sources = [example.source for example in examples]
    slow = next((number for number, source in enumerate(sources, 1) if SLOW.match(source)), 0)
    if not slow or any(example.want for example in examples[:slow]):
        set_up(notebook, examples)
        return examples
    notebook.names.update(_names_after(tuple(sources[:slow])))
    return examples[slow:]


@functools.cache
def _names_after(sources: tuple[str, ...]) -> dict[str, Any]:
    with Notebook() as notebook:
        set_up(notebook, [doctest.Example(source, "") for source in sources])
        for source in sources:
            notebook.run(source, "single")
        return notebook.names


@functools.cache
def _results() -> dict[str, Any]:
    with Notebook() as notebook:
        notebook.run(_setup_with(RESULTS))
        return {name: notebook.names[name] for name in RESULTS}


@functools.cache
def _setup_with(used: frozenset[str]) -> str:
    setup = ast.parse(setup_source())
    assert names_in(setup) >= RECORDED
    setup.body = _needed(setup.body, set(used))
    return ast.unparse(setup)


def _needed(statements: list[ast.stmt], used: set[str]) -> list[ast.stmt]:
    """The statements that assign these names, and those that assign what these need, which is added to `used`."""
    needed: list[ast.stmt] = []
    for statement in reversed(statements):
        if isinstance(statement, ast.With):
            statement.body = _needed(statement.body, used)
            is_needed = bool(statement.body)
        else:  # a recorded run is needed with what happens to it
            is_needed = bool(used & (_assigned(statement) | names_in(statement) & RECORDED))
        if is_needed:
            used |= names_in(statement)
            needed.insert(0, statement)
    return needed


def _assigned(statement: ast.stmt) -> set[str]:
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return {alias.asname or alias.name for alias in statement.names}
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {statement.name}
    return {node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def names_in(code: ast.AST) -> set[str]:
    """The variables that this code uses or assigns."""
    return {node.id for node in ast.walk(code) if isinstance(node, ast.Name)}


class Notebook:
    """A namespace, and an event loop for cells that contain `await`."""

    def __init__(self) -> None:
        self.names: dict[str, Any] = {"__name__": "__main__"}
        self._loop = asyncio.Runner()

    def __enter__(self) -> Notebook:
        return self

    def __exit__(self, *of_an_error: object) -> None:
        self._loop.close()

    def run(self, source: str, mode: str = "exec") -> None:
        """Execute this as a cell ("exec") or as one statement whose value is shown ("single")."""
        code = compile(source, "<example>", mode, ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, True)
        done = eval(code, self.names)
        if isinstance(done, CoroutineType):
            self._loop.run(done)

    def run_source(self, source: str) -> tuple[str, str]:
        """The output of one statement, and the last line of its traceback if it raises."""
        out, raised = io.StringIO(), ""
        hook, sys.displayhook = sys.displayhook, sys.__displayhook__
        try:
            with contextlib.redirect_stdout(out):
                self.run(source, "single")
        except Exception as error:
            raised = traceback.format_exception_only(error)[-1]
        finally:
            sys.displayhook = hook
            self.names.pop("_", None)
        return out.getvalue(), raised


def examples_of(value: object) -> list[doctest.Example]:
    """The `>>>` examples in an object's docstring."""
    return doctest.DocTestParser().get_examples(value.__doc__ or "")


def failures(examples: list[doctest.Example], notebook: Notebook) -> list[str]:
    """The differences between these examples and their outputs, as doctest reports them."""
    checker, found = doctest.OutputChecker(), []
    for example in examples:
        out, raised = notebook.run_source(example.source)
        if raised and example.exc_msg is not None:
            good = checker.check_output(example.exc_msg, raised, COMPARED)
        else:
            good = not raised and example.exc_msg is None and checker.check_output(example.want, out, COMPARED)
        if not good:
            wanted = example.want or "nothing"
            found.append(f">>> {example.source}said:\n{out}{raised}\nwanted:\n{wanted}")
    return found

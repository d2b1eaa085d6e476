"""The layout of the package: a short first level, and one direction of imports."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import grimp
import pytest

import agentlab as lab

PACKAGE = Path(lab.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))
LAYERS: list[str] = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0][
    "layers"
]

IN_FUNCTIONS = {
    ("agentlab._internal.display", "agentlab.notebook.cards"): "a value's card in a notebook",
    ("agentlab.agent", "agentlab.subagent"): "`agent.as_tool()`",
    ("agentlab.analysis.suggestion", "agentlab.plots.what_if_frontier"): "`suggestion.plot()`",
    ("agentlab.experiments.results", "agentlab.experiments.frames"): "`results.frame()`, `results.export()`",
    ("agentlab.experiments.results", "agentlab.notebook.report"): "`results.report()`",
    ("agentlab.records.result", "agentlab.records.frames"): "`result.to_frame()`, its card",
    ("agentlab.run", "agentlab.notebook.page"): "`run.to_html()`",
    ("agentlab.run", "agentlab.notebook.panel"): "`run.panel()`",
    ("agentlab.storage.store", "agentlab.storage.frames"): "`store.frame()`",
    ("agentlab.storage.store", "agentlab.storage.parquet"): "`store.export()`, `store.import_from()`",
    ("agentlab.tools", "agentlab.interop.mcp_tools"): "`lab.tools.from_mcp()`",
}
"""Imports within functions that go upwards or close a circle, and why."""


def test_the_first_level_is_short() -> None:
    modules = [path.stem for path in PACKAGE.glob("*.py")]
    packages = [path.parent.name for path in PACKAGE.glob("*/__init__.py")]
    assert len(modules) + len(packages) <= 22, sorted([*modules, *packages])
    assert len(LAYERS) <= 17


def test_every_first_level_package_and_module_has_a_layer() -> None:
    named = {name.strip() for layer in LAYERS for name in layer.replace("|", ":").split(":")}
    there = {f"agentlab.{path.stem}" for path in PACKAGE.glob("*.py") if path.stem != "__init__"}
    assert named == there | {f"agentlab.{path.parent.name}" for path in PACKAGE.glob("*/__init__.py")}


@pytest.fixture(scope="module")
def imports() -> dict[str, set[str]]:
    """The modules of agentlab that each module imports, also for types alone; without the root and IN_FUNCTIONS."""
    graph = grimp.build_graph("agentlab", exclude_type_checking_imports=False, cache_dir=None)
    # the root has the names of all packages; these need its version, its folder, or its names in code
    assert graph.find_modules_that_directly_import("agentlab") == {
        "agentlab._internal.display", "agentlab.interop.otel_spans", "agentlab.notebook.magics", "agentlab.notebook.report",
        "agentlab.records.provenance", "agentlab.serving.app",
    }  # fmt: skip
    for importer, imported in IN_FUNCTIONS:
        assert graph.direct_import_exists(importer=importer, imported=imported)
        graph.remove_import(importer=importer, imported=imported)
    return {name: graph.find_modules_directly_imported_by(name) - {"agentlab"} for name in graph.modules - {"agentlab"}}


def test_type_only_imports_point_downwards_too(imports: dict[str, set[str]]) -> None:
    levels = [[name.strip() for name in layer.replace("|", ":").split(":")] for layer in LAYERS]
    height = {name: place for place, level in enumerate(levels) for name in level}
    upwards = []
    for importer, imported in ((one, other) for one, others in imports.items() for other in others):
        above, below = (".".join(name.split(".")[:2]) for name in (importer, imported))
        if above != below and height[above] > height[below]:
            upwards.append(f"{importer} imports {imported}")
    assert upwards == []


def test_no_modules_import_each_other_even_for_types(imports: dict[str, set[str]]) -> None:
    left = dict(imports)
    while free := {name for name, imported in left.items() if left.keys().isdisjoint(imported)}:
        left = {name: imported for name, imported in left.items() if name not in free}
    assert sorted(left) == []  # what is left is in a cycle, or imports one


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*/__init__.py")), ids=lambda path: path.parent.name)
def test_a_package_docstring_lists_its_imports_and_modules(path: Path) -> None:
    doc = ast.get_docstring(ast.parse(path.read_text())) or ""
    listed = re.findall(r"^    (\w+)  +\S", doc.partition("May import: ")[2], re.MULTILINE)
    here = {one.stem for one in path.parent.glob("*.py")} | {one.parent.name for one in path.parent.glob("*/__init__.py")}
    assert "\nMay import: " in doc
    assert path.parent.name == "providers" or {*listed} == here - {"__init__"}  # a vendor's file has the vendor's name
    assert {*listed} < here


def test_the_plots_module_offers_only_plots() -> None:
    assert all(callable(getattr(lab.plots, name)) for name in dir(lab.plots) if not name.startswith("_"))
    assert sorted(dir(lab.plots)) == sorted(re.findall(r"^    lab\.plots\.(\w+)\(", lab.plots.__doc__, re.MULTILINE))


def test_a_file_that_starts_a_thread_asks_first_whether_there_are_threads() -> None:
    """Without them, as in a browser, it does the work on the event loop."""
    never_without = {
        "kernel.py",  # ipykernel has threads of its own
        "contracts.py",  # tests of storages
    }
    starts = re.compile(r"threading\.(Thread|Timer)\(|to_thread\(|run_in_executor\(|ThreadPoolExecutor\(|multiprocessing\.")
    starting = {path.name for path in FILES if starts.search(path.read_text())}
    assert {"asyncio_tools.py", "explorer.py", "redrawer.py", "worker.py"} <= starting - never_without
    asking = {path.name for path in FILES if "can_start_threads()" in path.read_text()}
    assert starting - asking == never_without


def test_modules_are_imported_by_name_at_a_few_places_only() -> None:
    found = {str(path.relative_to(PACKAGE)) for path in FILES if re.search(r"\bimport_module\(", path.read_text())}
    assert found == {
        "__init__.py",  # public names, imported when they are first used
        "_internal/names.py",  # the names that an error suggests
        "providers/registry.py",  # a provider by its name
        "serving/loader.py",  # a user's file
        "testing/__init__.py",  # public names, imported when they are first used
        "tools/__init__.py",  # a function restored from a pickle
    }

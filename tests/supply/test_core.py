"""The core without the notebook toolkit: here with the toolkit's packages blocked, and as the built wheel with its own requirements."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

import agentlab as lab
from agentlab._internal.lazy import NOTEBOOK_PACKAGES
from release import build, readme
from tests.supply.declared import REPOSITORY, declared, name_of

PROGRAM = Path(__file__).with_name("core_program.py")
INDIRECT = {"numpy", "ipython", "traitlets"}
"""Packages that others of the toolkit require, and that agentlab imports too."""

BLOCKED = NOTEBOOK_PACKAGES - (set() if sys.platform == "linux" else {"psutil"})
"""On macOS and Windows the core requires psutil too."""
BLOCK = f"""
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {sorted(BLOCKED)}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Block())
sys.argv = sys.argv[1:]
exec(compile(open(sys.argv[0]).read(), sys.argv[0], "exec"))
"""


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


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, zipfile.ZipFile]:
    """The wheels of both distributions, by name."""
    folder = tmp_path_factory.mktemp("wheels")
    sources = folder / "toolkit"
    sources.mkdir()
    build.write_toolkit(sources)
    make = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-index", "--no-build-isolation", "-w", str(folder)]
    done = subprocess.run([*make, str(REPOSITORY), str(sources)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return {path.name.partition("-")[0]: zipfile.ZipFile(path) for path in folder.glob("*.whl")}


@pytest.fixture(scope="module")
def installed(wheels: dict[str, zipfile.ZipFile], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel of the core and exactly the packages that it requires, as pip would install them."""
    folder = tmp_path_factory.mktemp("core")
    wheels["agentlab_core"].extractall(folder)
    for one in closure(list(declared().values())).values():
        for name in files_of(one):
            (folder / name).symlink_to(str(one.locate_file(name)))
    return folder


@pytest.fixture(params=["blocked", "wheel"])
def answer(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The output of the program."""
    arguments = [str(PROGRAM), str(REPOSITORY)]
    path = str(REPOSITORY) if request.param == "blocked" else str(request.getfixturevalue("installed"))
    how = ["-W", "error", *(["-c", BLOCK] if request.param == "blocked" else ["-S"])]  # -S: without this environment's packages
    here = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run([sys.executable, *how, *arguments], env=here, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_agents_limits_recordings_stores_and_experiments_work(answer: dict[str, Any]) -> None:
    assert (answer["ended"], answer["steps"], answer["usd"]) == ("stop_condition", 4, "0.014346")
    assert answer["stored"] == "stop_condition"
    assert answer["experiment"] == "ExperimentResults('experiment', 1 runs: 1 ended)"
    assert answer["detected"] == "STOP"
    assert answer["shown"].startswith("RunResult(stop_condition, ")


def test_what_needs_the_toolkit_says_what_to_install(answer: dict[str, Any]) -> None:
    sentence = re.compile(
        r"ConfigurationError: [\w.]+(\(\))? needs ([\w.]+), which is not installed: pip install agentlab-jupyter\."
    )
    for code, said in answer["expressions"].items():
        found = sentence.fullmatch(said)
        assert found is not None, f"{code} gives {said}"
        assert found[2].partition(".")[0] in NOTEBOOK_PACKAGES
    needy = {name for name, said in answer["names"].items() if said}
    assert all(sentence.fullmatch(answer["names"][name]) for name in needy)
    assert {"frame", "plots", "panel", "browse", "summary", "backtest"} <= needy
    assert not needy & {
        "Agent",
        "Budget",
        "Chat",
        "Experiment",
        "Provider",
        "Store",
        "Tasks",
        "detect",
        "record",
        "replay",
        "testing",
    }


def test_the_packages_of_the_toolkit_are_those_of_the_extra() -> None:
    modules = metadata.packages_distributions()
    of_toolkit = {name_of(one) for module in NOTEBOOK_PACKAGES for one in modules[module]}
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    assert of_toolkit - INDIRECT == {name_of(one) for one in project["optional-dependencies"]["notebook"]}


def test_one_distribution_has_the_files_and_the_other_requires_it(wheels: dict[str, zipfile.ZipFile]) -> None:
    core, toolkit = wheels["agentlab_core"], wheels["agentlab_jupyter"]
    assert "agentlab/__init__.py" in core.namelist()
    assert {name.split("/")[0] for name in toolkit.namelist()} == {f"agentlab_jupyter-{lab.__version__}.dist-info"}
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    made = build.toolkit(project)
    assert made["dependencies"] == [f"agentlab-core[notebook]=={lab.__version__}"]
    assert {"lab", "serve", "bedrock"} < set(made["optional-dependencies"]) == set(project["optional-dependencies"]) - {
        "notebook", "docs", "dev",
    }  # fmt: skip


def test_the_version_is_the_same_everywhere() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    citation = (REPOSITORY / "CITATION.cff").read_text()
    assert project["version"] == lab.__version__
    assert f"\nversion: {lab.__version__}\n" in citation
    assert f"\nrepository-code: {project['urls']['Source']}\n" in citation


# The long description ---------------------------------------------------------------------------------------------------------


def test_links_of_the_long_description_lead_to_files_of_the_repository(wheels: dict[str, zipfile.ZipFile]) -> None:
    for wheel in wheels.values():
        (path,) = (name for name in wheel.namelist() if name.endswith("/METADATA"))
        text = re.sub(r"```.*?```", "", wheel.read(path).decode(), flags=re.DOTALL)
        links = re.findall(r"\]\(([^)\s]+)\)", text)
        assert len(links) > 40
        assert [link for link in links if not link.startswith(("https://", "#"))] == []
        repository = "https://github.com/agentlab-jupyter/agentlab"
        within = re.findall(rf"\]\({repository}/(raw|blob)/main/([^)#\s]+)", text)
        assert len(within) > 40
        assert [file for _, file in within if not (REPOSITORY / file).exists()] == []
        assert {Path(file).suffix for kind, file in within if kind == "raw"} <= {".png", ".gif", ".svg"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[a](b.md#c)", "[a](R/blob/main/b.md#c)"),
        ("![a](b.png)", "![a](R/raw/main/b.png)"),
        ("[![a](b.svg)](https://x.org/)", "[![a](R/raw/main/b.svg)](https://x.org/)"),
        ("[![a](b.svg)](c.md)", "[![a](R/raw/main/b.svg)](R/blob/main/c.md)"),
        ("[`a[0]`](b.md)", "[`a[0]`](R/blob/main/b.md)"),
        ("[a](#b) [c](https://d.org/e) [f](mailto:g@h.org)", "[a](#b) [c](https://d.org/e) [f](mailto:g@h.org)"),
        ("```python\nx[0](y)\n```\n[a](b)", "```python\nx[0](y)\n```\n[a](R/blob/main/b)"),
    ],
)
def test_relative_links_become_absolute(text: str, expected: str) -> None:
    assert readme.absolute(text, "R") == expected


# Another project with this import name ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("beside", "warns"),
    [
        ("agentlab-0.4.2.dist-info", True),
        ("agentlab_core-0.1.0.dist-info", False),
        ("agentlab_jupyter-0.1.0.dist-info", False),
        ("", False),
    ],
)
def test_the_import_warns_of_another_distribution_of_this_name(tmp_path: Path, beside: str, warns: bool) -> None:
    (tmp_path / "agentlab").symlink_to(Path(lab.__file__).parent)
    (tmp_path / (beside or "other")).mkdir()
    code = "import warnings\nwith warnings.catch_warnings(record=True) as found:\n    import agentlab\n"
    code += "print([(str(one.message), one.filename) for one in found])"
    here = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=here, cwd=tmp_path, capture_output=True, text=True, check=True)
    found = ast.literal_eval(done.stdout)
    assert len(found) == warns
    for message, file in found:
        assert "pip uninstall agentlab" in message
        assert file == "<string>"  # the import, not a file of agentlab

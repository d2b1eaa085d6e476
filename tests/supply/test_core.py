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
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from hatchling.builders.wheel import WheelBuilder

import agentlab as lab
from agentlab._internal.lazy import NOTEBOOK_PACKAGES
from release import build, readme
from tests.supply.declared import REPOSITORY, declared, name_of
from tests.supply.wheels import link

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


@pytest.fixture(scope="module")
def installed(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel of the core and exactly the packages that it requires, as pip would install them."""
    folder = tmp_path_factory.mktemp("core")
    zipfile.ZipFile(wheels["agentlab_core"]).extractall(folder)
    link(list(declared().values()), folder)
    return folder


@pytest.fixture(scope="module", params=["blocked", "wheel"])
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


def test_one_distribution_has_the_code_and_the_other_requires_it(wheels: dict[str, Path]) -> None:
    core, toolkit = (set(zipfile.ZipFile(wheels[name]).namelist()) for name in ("agentlab_core", "agentlab_jupyter"))
    assert "agentlab/__init__.py" in core
    assert {"/".join(name.split("/")[:2]) for name in toolkit if not name.startswith("agentlab_jupyter-")} == {"agentlab/course"}
    assert core.isdisjoint(toolkit)  # so that installing or removing one leaves the other whole
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


# The samples --------------------------------------------------------------------------------------------------------------------

REPLAYS = """
import asyncio, json, agentlab as lab
from agentlab.transport.samples import sample
async def one(name):
    local = lab.Provider("compatible", base_url="http://127.0.0.1:8091/v1", model="gemma-3-270m")
    agent = lab.Agent(local if name == "local" else "openai:gpt-5.4-mini", continuation=None)
    with lab.replay(f"sample:{name}", match="order"):
        return (await agent.run("?", budget=lab.Budget(max_turns=1))).history[0].finish_reason
print(json.dumps([{name: asyncio.run(one(name)) for name in lab.samples()}, str(sample("trip"))]))
"""


def without_toolkit(installed: Path, *arguments: str, cwd: Path) -> str:
    """The output of Python with the core alone, in another folder than the clone's."""
    here = {**os.environ, "PYTHONPATH": str(installed)}
    command = [sys.executable, "-W", "error", "-S", *arguments]
    done = subprocess.run(command, env=here, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_wheel_has_the_samples_and_nothing_else_of_the_fixtures(wheels: dict[str, Path]) -> None:
    files = [one for one in zipfile.ZipFile(wheels["agentlab_core"]).infolist() if one.filename.startswith("agentlab/samples/")]
    assert {one.filename.split("/")[2] for one in files} == set(lab.samples())
    assert sum(one.compress_size for one in files) < 300_000


def test_an_editable_install_copies_no_sample() -> None:
    """It would be a copy beside the clone that no later edit reaches; hatchling copies there what `force-include` names."""
    assert WheelBuilder(str(REPOSITORY)).config.get_force_include() == {}


def test_each_sample_replays_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    ends, folder = json.loads(without_toolkit(installed, "-c", REPLAYS, cwd=tmp_path))
    assert set(ends) == set(lab.samples())
    assert set(ends.values()) <= {"end_turn", "tool_calls", "max_tokens"}
    assert folder == str(installed / "agentlab" / "samples" / "trip")


def test_an_unknown_sample_is_an_error_with_the_names() -> None:
    with pytest.raises(
        lab.errors.FixtureNotFoundError, match=r"'sample:tripp' is not one of the samples: board, .*mean 'sample:trip'"
    ):
        lab.replay("sample:tripp")


# The long description ---------------------------------------------------------------------------------------------------------


def test_links_of_the_long_description_lead_to_files_of_the_repository(wheels: dict[str, Path]) -> None:
    for wheel in map(zipfile.ZipFile, wheels.values()):
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

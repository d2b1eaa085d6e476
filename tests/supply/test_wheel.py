"""The built wheel: it works with exactly the packages that it requires and without a network, and has the samples and the course."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

import agentlab as lab
from release import readme
from tests.docs.test_readme import block_of
from tests.supply.declared import REPOSITORY, declared
from tests.supply.wheels import NO_NETWORK, link


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and exactly the packages that it requires, as pip would install them."""
    folder = tmp_path_factory.mktemp("installed")
    zipfile.ZipFile(wheel).extractall(folder)
    link(list(declared().values()), folder)
    return folder


def output_of(code: str, installed: Path, cwd: Path) -> str:
    """The output of a program with these packages alone, in another folder than the clone's."""
    here = {**os.environ, "PYTHONPATH": str(installed), "AGENTLAB_FRONTEND": "none"}
    command = [sys.executable, "-W", "error", "-S", "-c", code]  # -S: without this environment's packages
    done = subprocess.run(command, env=here, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


AS_IN_A_CELL = """
import ast, asyncio
code = compile({block!r}, "README.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
names = {{}}
asyncio.run(eval(code, names))
print(names["result"].stop_reason, names["other"].provider, len(names["result"].to_frame()))
"""


def test_the_first_block_of_the_readme_runs_with_the_requirements_alone(installed: Path, tmp_path: Path) -> None:
    code = NO_NETWORK + AS_IN_A_CELL.format(block=block_of("What it looks like"))
    assert output_of(code, installed, tmp_path) == "stop_condition openai 4\n"
    assert {"httpx", "pandas"} <= {path.name for path in installed.iterdir()}


def test_the_version_is_the_same_everywhere() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    citation = (REPOSITORY / "CITATION.cff").read_text()
    assert project["version"] == lab.__version__
    assert f"\nversion: {lab.__version__}\n" in citation
    assert f"\nrepository-code: {project['urls']['Source']}\n" in citation


# Samples and course ---------------------------------------------------------------------------------------------------------------

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


def test_each_sample_replays_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    ends, folder = json.loads(output_of(REPLAYS, installed, tmp_path))
    assert set(ends) == set(lab.samples())
    assert set(ends.values()) <= {"end_turn", "tool_calls", "max_tokens"}
    assert folder == str(installed / "agentlab" / "samples" / "trip")


def test_the_wheel_has_the_notebooks_and_the_recordings(wheel: Path) -> None:
    files = set(zipfile.ZipFile(wheel).namelist())
    recordings = subprocess.run(["git", "ls-files", "fixtures"], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert {f"agentlab/samples/{name.removeprefix('fixtures/')}" for name in recordings.stdout.split()} <= files
    course = {name.removeprefix("agentlab/course/") for name in files if name.startswith("agentlab/course/")}
    notebooks = {path.name for path in (REPOSITORY / "notebooks").glob("*.ipynb")}
    assert course == notebooks | {"stand_in.py", "stations.py", "study.py", "images/board.png"}


def test_an_editable_install_copies_no_sample() -> None:
    """It would be a copy beside the clone that no later edit reaches; hatchling copies there what `force-include` names."""
    assert WheelBuilder(str(REPOSITORY)).config.get_force_include() == {}


def test_an_unknown_sample_is_an_error_with_the_names() -> None:
    with pytest.raises(
        lab.errors.FixtureNotFoundError, match=r"'sample:tripp' is not one of the samples: board, .*mean 'sample:trip'"
    ):
        lab.replay("sample:tripp")


# The long description ---------------------------------------------------------------------------------------------------------


def test_links_of_the_long_description_lead_to_files_of_the_repository(wheel: Path) -> None:
    opened = zipfile.ZipFile(wheel)
    (path,) = (name for name in opened.namelist() if name.endswith("/METADATA"))
    text = re.sub(r"```.*?```", "", opened.read(path).decode(), flags=re.DOTALL)
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
        assert "pip uninstall agentlab, then pip install --force-reinstall --no-deps agentlab-jupyter" in message
        assert file == "<string>"  # the import, not a file of agentlab

"""Builds both distributions into dist/: `python release/build.py`, with `build` and `hatchling` installed.

agentlab-core    the code, and the recordings that come with it (agentlab/samples); requires what agents, limits, providers and
                 recordings need
agentlab-jupyter the course (agentlab/course): notebooks, and the recordings that only they use; requires agentlab-core of the same
                 version with the extra `notebook`, and has the same other extras

So `pip install agentlab-jupyter` installs the whole toolkit, `pip install agentlab-core` the core alone, and installing one after
the other neither overwrites nor removes a file. The first is made from pyproject.toml and the second from `toolkit` below, so that
requirements are in one place.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY / "release"))

from readme import absolute  # noqa: E402

NOT_FORWARDED = ("notebook", "docs", "dev")
"""The extras that agentlab-jupyter has already, or that only a clone needs."""

NOT_OF_COURSE = ("demo.py", "refresh.py")
"""Programs in notebooks/ that only a clone needs."""

_LINK = re.compile(r"\]\(([^)\s:#]+)")


def toolkit(project: dict[str, Any]) -> dict[str, Any]:
    """Return the table `project` of agentlab-jupyter, for that of agentlab-core."""
    core = f"{project['name']}[{{}}]=={project['version']}"
    kept = ("version", "description", "requires-python", "license", "license-files", "authors", "keywords", "classifiers", "urls")
    return {
        "name": "agentlab-jupyter",
        **{key: project[key] for key in kept},
        "readme": "README.md",
        "dependencies": [core.format("notebook")],
        "optional-dependencies": {
            extra: [core.format(extra)] for extra in project["optional-dependencies"] if extra not in NOT_FORWARDED
        },
    }


def write_toolkit(folder: Path) -> None:
    """Write the sources of agentlab-jupyter into a new or empty folder: pyproject.toml, README, licence and the course."""
    folder.mkdir(parents=True, exist_ok=True)
    project = _table("project")
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    (folder / "README.md").write_text(absolute(readme, project["urls"]["Homepage"]), encoding="utf-8")
    shutil.copy(REPOSITORY / "LICENSE", folder)
    write_course(folder / "agentlab" / "course", project["urls"]["Homepage"])
    made = toolkit(project)
    tables = {
        "project": made,
        "project.urls": made.pop("urls"),
        "project.optional-dependencies": made.pop("optional-dependencies"),
    }
    lines = ['[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"', _of_wheel()]
    for name, table in tables.items():
        lines.append("\n".join([f"[{name}]", *(f"{key} = {_toml(value)}" for key, value in table.items())]))
    (folder / "pyproject.toml").write_text("\n\n".join(lines) + "\n", encoding="utf-8")


def _of_wheel() -> str:
    return '[tool.hatch.build.targets.wheel]\npackages = ["agentlab"]'


def write_course(folder: Path, repository: str) -> None:
    """Write the course into a folder: its notebooks with their modules and pictures, and all recordings that are not in agentlab-core.

    Links to other files of this repository become links to this address.
    """
    notebooks, fixtures = folder / "notebooks", folder / "fixtures"
    notebooks.mkdir(parents=True)
    for path in sorted((REPOSITORY / "notebooks").glob("*.py")):
        if path.name not in NOT_OF_COURSE:
            shutil.copy(path, notebooks)
    for path in sorted((REPOSITORY / "notebooks").glob("*.ipynb")):
        text = path.read_text(encoding="utf-8")
        for link in {link for link in _LINK.findall(text) if link.startswith("images/")}:
            (notebooks / "images").mkdir(exist_ok=True)
            shutil.copy(REPOSITORY / "notebooks" / link, notebooks / "images")
        text = re.sub(r"\]\(\.\./(?!fixtures/)", f"]({repository}/blob/main/", text)
        (notebooks / path.name).write_text(text, encoding="utf-8", newline="\n")
    samples = _table("tool")["hatch"]["build"]["targets"]["wheel"]["sources"]
    shutil.copytree(
        REPOSITORY / "fixtures", fixtures, ignore=lambda place, names: [name for name in names if f"fixtures/{name}" in samples]
    )


def _table(name: str) -> dict[str, Any]:
    """Return a table of pyproject.toml."""
    table: dict[str, Any] = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))[name]
    return table


def _toml(value: object) -> str:
    """Return a value as TOML: texts, and lists of texts and of tables with texts."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml(inner)}" for key, inner in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value)


def main(arguments: list[str]) -> int:
    """Build both; return 0, or an exit status of `python -m build` if one fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", type=Path, default=REPOSITORY / "dist", help="the folder for the files; dist by default")
    parser.add_argument("--sources", type=Path, help="build nothing; write the sources of agentlab-jupyter into this folder")
    parser.add_argument("options", nargs="*", help="options of `python -m build`, after --: --wheel, --no-isolation")
    given = parser.parse_args(arguments)
    if given.sources:
        write_toolkit(given.sources)
        return 0
    build = [sys.executable, "-m", "build", "--outdir", str(given.to.resolve()), *given.options]
    with tempfile.TemporaryDirectory() as folder:
        write_toolkit(Path(folder))
        return max(subprocess.run([*build, str(place)], check=False).returncode for place in (REPOSITORY, folder))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Paths, commands and names in the pages and notebooks exist in the repository."""

from __future__ import annotations

import importlib.util
import json
import re
import tomllib
from pathlib import Path

import pytest

import agentlab as lab

from .examples import REPOSITORY

PAGES = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "notebooks/*.ipynb", "fixtures/README.md")
    for path in REPOSITORY.glob(pattern)
    if ".ipynb_checkpoints" not in path.parts
)
PARTS = "agentlab|tests|docs|fixtures|_internal|engine|limits|model|notebook|providers|records|storage|transport"
NOT_THERE = {"lab.old", "lab.new", "lab.tokens_left", "lab.Any", "lab.Budgt", "lab.Proposal", "lab.TerminationReason"}
"""Names that the pages mention as examples, or because they do not exist."""
MADE = {"fixtures/mine", "fixtures/weather"}
"""Folders that the reader makes."""

each_page = pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(REPOSITORY)))


def text_of(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    return "\n".join("".join(cell["source"]) for cell in json.loads(text)["cells"]) if path.suffix == ".ipynb" else text


@pytest.mark.parametrize("path", [*PAGES, REPOSITORY / "Makefile", REPOSITORY / "pyproject.toml"], ids=lambda path: path.name)
def test_paths_exist(path: Path) -> None:
    text = text_of(path)
    named = {*re.findall(rf"`((?:{PARTS})/[\w./-]*)`", text), *re.findall(r"\btests/[\w./-]+\.py\b", text)} - MADE
    assert [one for one in named if not any((place / one).exists() for place in (REPOSITORY, REPOSITORY / "agentlab"))] == []


@each_page
def test_commands_exist(path: Path) -> None:
    text = text_of(path)
    targets = set(re.findall(r"^([\w-]+):", (REPOSITORY / "Makefile").read_text(), re.MULTILINE))
    assert {*re.findall(r"(?:`|^    |^\$ )make ([\w-]+)", text, re.MULTILINE)} <= targets
    assert [one for one in re.findall(r"python -m (tests[\w.]+)", text) if importlib.util.find_spec(one) is None] == []


@each_page
def test_public_names_exist(path: Path) -> None:
    for name in {*re.findall(r"\blab(?:\.[A-Za-z_]\w*)+", text_of(path))} - NOT_THERE:
        value: object = lab
        for part in name.split(".")[1:]:
            assert hasattr(value, part), name
            value = getattr(value, part)


def test_the_map_has_the_order_of_the_imports() -> None:
    table = (REPOSITORY / "CONTRIBUTING.md").read_text().partition("## The map\n")[2].partition("\n## ")[0]
    rows = [set(re.findall(r"`(\w+)`", row)) for row in re.findall(r"^\| (`.+?) \|", table, re.MULTILINE)]
    contract = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]
    layers = [set(re.findall(r"agentlab\.(\w+)", layer)) - {"__main__"} for layer in contract["layers"]]
    assert rows == layers[::-1]


def test_the_way_of_a_step_names_what_its_files_define() -> None:
    page = REPOSITORY / "docs" / "concepts" / "how.md"
    found = re.findall(r"`(\w+)`(?: in)?\s+\(?\[`[\w/.]+`\]\(([^)]+)\)", page.read_text())
    assert len(found) >= 8
    for name, file in found:
        assert re.search(rf"^(class|async def|def) {name}\b", (page.parent / file).read_text(), re.MULTILINE), (name, file)

"""All notebooks have one form: what you will be able to do, numbered sections, exercises with hidden answers, what to read next."""

from __future__ import annotations

import ast
import re
from itertools import pairwise
from pathlib import Path

import pytest

from .course import FOLDER, PATHS, answers, read, texts

HEADING = re.compile(r"^## (.+)$", re.MULTILINE)
LINK = re.compile(r"\[[^\]]+\]\(([^)#\s]+)\)")
PRINTED = re.compile(r"^```text\n.*?^```$", re.DOTALL | re.MULTILINE)
WIDEST = 160

every_notebook = pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)


def test_there_are_seven() -> None:
    assert [path.stem[:2] for path in PATHS] == [f"0{number}" for number in range(1, 8)]


@every_notebook
def test_it_opens_with_what_you_will_be_able_to_do(path: Path) -> None:
    first = read(path).cells[0]
    assert first.cell_type == "markdown"
    assert first.source.startswith("# ")
    assert "After this notebook you can\n\n1. " in first.source
    assert "neither an API key nor a network" in first.source


@every_notebook
def test_its_sections_are_numbered_and_it_ends_with_exercises_and_what_to_read(path: Path) -> None:
    headings = HEADING.findall("\n".join(texts(read(path))))
    *sections, turn, further = headings
    assert (turn, further) == ("Your turn", "Read on")
    assert [section.partition(". ")[0] for section in sections] == [str(number) for number in range(1, len(sections) + 1)]


@every_notebook
def test_each_exercise_has_its_answer(path: Path) -> None:
    notebook = read(path)
    last = "\n".join(texts(notebook)).partition("## Your turn\n")[2]
    asked = re.findall(r"^(\d)\. ", last.partition("<details>")[0], re.MULTILINE)
    assert asked == [str(number) for number in range(1, len(asked) + 1)]
    assert len(asked) >= 2
    assert [answer.title for answer in answers(notebook)] == [f"Answer {number}" for number in asked]


@pytest.mark.parametrize(("path", "following"), list(pairwise(PATHS)), ids=lambda path: path.stem)
def test_it_leads_on_to_the_next_one(path: Path, following: Path) -> None:
    further = "\n".join(texts(read(path))).partition("## Read on\n")[2]
    assert further.strip().startswith(f"[{following.name}]({following.name})")


@every_notebook
def test_what_it_links_to_is_there(path: Path) -> None:
    for target in LINK.findall("\n".join(texts(read(path)))):
        assert target.startswith("https://") or (FOLDER / target).exists(), target


@every_notebook
def test_no_line_is_too_long_to_be_read(path: Path) -> None:
    for cell in read(path).cells:
        for line in PRINTED.sub("", cell.source).splitlines():
            assert len(line) <= WIDEST or line.startswith("|"), line


@every_notebook
def test_its_outputs_say_nothing_of_the_machine(path: Path) -> None:
    for cell in read(path).cells:
        for output in cell.get("outputs", ()):
            assert output.output_type != "error"
            data = output.get("data", {})
            said = "".join([output.get("text", ""), data.get("text/plain", ""), data.get("text/html", "")])
            assert not re.search(r"/(?:tmp|home|root|work|Users)/|127\.0\.0\.1[:-]\d|site-packages|0x[0-9a-f]{6}", said), said[
                :300
            ]


def test_the_recipe_of_a_condition_is_the_one_of_the_notebook() -> None:
    """CONTRIBUTING.md and notebook 07 show the same class."""
    recipes = re.findall(r"^```python\n(.+?)^```$", (FOLDER.parent / "CONTRIBUTING.md").read_text(), re.DOTALL | re.MULTILINE)
    (recipe,) = [recipe for recipe in recipes if "(StopCondition)" in recipe]
    shown = [cell.source for cell in read(PATHS[-1]).cells if cell.source.startswith("@dataclass")]
    assert ast.dump(ast.parse(recipe)) in [ast.dump(ast.parse(source)) for source in shown]


def test_the_readme_has_the_course() -> None:
    readme = (FOLDER.parent / "README.md").read_text()
    assert [path.name for path in PATHS] == re.findall(r"^\| \[.+\]\(notebooks/(.+)\) \|", readme, re.MULTILINE)

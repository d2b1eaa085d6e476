"""All notebooks have the same form: learning goals, numbered sections, exercises with hidden answers, and what to read next."""

from __future__ import annotations

import ast
import re
from itertools import pairwise
from pathlib import Path

import nbformat
import pytest

from .course import FOLDER, MINUTES, PATHS, answers, minutes, read, texts

HEADING = re.compile(r"^## (.+)$", re.MULTILINE)
LINK = re.compile(r"\[[^\]]+\]\(([^)#\s]+)\)")
PRINTED = re.compile(r"^```text\n.*?^```$", re.DOTALL | re.MULTILINE)
WIDEST = 160

WRITTEN, RECORDED = "written by hand", re.compile(r"recorded from (a real model|two real models)\b.* on llama.cpp's server")

every_notebook = pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)


def test_there_are_eight() -> None:
    assert [path.stem[:2] for path in PATHS] == [f"0{number}" for number in range(1, 9)]


@every_notebook
def test_it_opens_with_the_learning_goals(path: Path) -> None:
    first = read(path).cells[0]
    assert first.cell_type == "markdown"
    assert first.source.startswith("# ")
    assert "After this notebook you can\n\n1. " in first.source
    assert "neither an API key nor a network" in first.source


@every_notebook
def test_it_takes_at_most_ten_minutes(path: Path) -> None:
    assert minutes(read(path)) <= MINUTES


def test_the_time_counts_words_lines_and_cells_but_no_hidden_answer() -> None:
    hidden = "<details><summary>Answer 1</summary>\n" + "word " * 500 + "\n</details>"
    prose = nbformat.v4.new_markdown_cell("word " * 400 + hidden)
    code = nbformat.v4.new_code_cell("x = 1\n\n" * 60)
    assert minutes(nbformat.v4.new_notebook(cells=[prose])) == 2
    assert minutes(nbformat.v4.new_notebook(cells=[prose, code])) == 2 + 2 + 0.25


@every_notebook
def test_its_first_cell_says_where_the_responses_come_from(path: Path) -> None:
    first = re.sub(r"\s+", " ", read(path).cells[0].source)
    recorded = RECORDED.search(first) is not None
    assert WRITTEN in first or recorded
    used = "\n".join(cell.source for cell in read(path).cells if cell.cell_type == "code")
    assert recorded == ("../fixtures/local" in used or "study.FOLDER" in used)


@every_notebook
def test_its_cells_are_numbered_in_order(path: Path) -> None:
    cells = read(path).cells
    assert [cell.id for cell in cells] == [f"cell-{number}" for number in range(len(cells))]


@every_notebook
def test_its_sections_are_numbered_and_exercises_and_next_reading_follow(path: Path) -> None:
    headings = HEADING.findall("\n".join(texts(read(path))))
    *sections, exercises, next_reading = headings
    assert (exercises, next_reading) == ("Your turn", "Read on")
    assert [section.partition(". ")[0] for section in sections] == [str(number) for number in range(1, len(sections) + 1)]


@every_notebook
def test_each_exercise_has_its_answer(path: Path) -> None:
    notebook = read(path)
    last = "\n".join(texts(notebook)).partition("## Your turn\n")[2]
    numbers = re.findall(r"^(\d)\. ", last.partition("<details>")[0], re.MULTILINE)
    assert numbers == [str(number) for number in range(1, len(numbers) + 1)]
    assert len(numbers) >= 2
    assert [answer.title for answer in answers(notebook)] == [f"Answer {number}" for number in numbers]


@pytest.mark.parametrize(("path", "following"), list(pairwise(PATHS)), ids=lambda path: path.stem)
def test_it_leads_on_to_the_next_one(path: Path, following: Path) -> None:
    next_reading = "\n".join(texts(read(path))).partition("## Read on\n")[2]
    assert next_reading.strip().startswith(f"[{following.name}]({following.name})")


@every_notebook
def test_its_link_targets_exist(path: Path) -> None:
    for target in LINK.findall("\n".join(texts(read(path)))):
        assert target.startswith("https://") or (FOLDER / target).exists(), target


@every_notebook
def test_no_line_is_too_long_to_read(path: Path) -> None:
    for cell in read(path).cells:
        for line in PRINTED.sub("", cell.source).splitlines():
            assert len(line) <= WIDEST or line.startswith("|"), line


@every_notebook
def test_its_outputs_do_not_depend_on_the_machine(path: Path) -> None:
    for cell in read(path).cells:
        for output in cell.get("outputs", ()):
            assert output.output_type != "error"
            data = output.get("data", {})
            text = "".join([output.get("text", ""), data.get("text/plain", ""), data.get("text/html", "")])
            assert not re.search(r"/(?:tmp|home|root|work|Users)/|127\.0\.0\.1[:-]\d|site-packages|0x[0-9a-f]{6}", text), text[
                :300
            ]


def test_the_condition_recipe_is_the_same_in_contributing_and_the_notebook() -> None:
    """CONTRIBUTING.md and notebook 07 show the same class."""
    _, _, section = (FOLDER.parent / "CONTRIBUTING.md").read_text().partition("## Add a stop condition\n")
    (recipe,) = re.findall(r"^```python\n(.+?)^```$", section.partition("\n## ")[0], re.DOTALL | re.MULTILINE)
    shown = [cell.source for cell in read(FOLDER / "07_extend.ipynb").cells if cell.source.startswith("@dataclass")]
    assert ast.dump(ast.parse(recipe)) in [ast.dump(ast.parse(source)) for source in shown]


def test_the_readme_lists_the_course() -> None:
    readme = (FOLDER.parent / "README.md").read_text()
    assert [path.name for path in PATHS] == re.findall(r"^\| \[.+\]\(notebooks/(.+)\) \|", readme, re.MULTILINE)

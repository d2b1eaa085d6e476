"""The notebooks of the course, in order, and their contents."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import nbformat

FOLDER = Path(__file__).parents[2] / "notebooks"
PATHS = sorted(FOLDER.glob("0*.ipynb"))

MINUTES = 10
"""The longest time that a notebook takes to read."""

_DETAILS = re.compile(r"<details><summary>(.+?)</summary>\n(.*?)\n</details>", re.DOTALL)
_FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Answer:
    """The answer to an exercise: its code, and the output printed below it (None if there is none)."""

    title: str
    code: str
    output: str | None


def read(path: Path) -> nbformat.NotebookNode:
    return nbformat.read(path, as_version=4)


def texts(notebook: nbformat.NotebookNode) -> list[str]:
    """Return the sources of the markdown cells."""
    return [cell.source for cell in notebook.cells if cell.cell_type == "markdown"]


def answers(notebook: nbformat.NotebookNode) -> list[Answer]:
    """Return all hidden answers, in order."""
    found = []
    for title, content in _DETAILS.findall("\n".join(texts(notebook))):
        fences = _FENCE.findall(content)
        kinds = [kind for kind, _ in fences]
        assert kinds in (["python"], ["python", "text"]), f"{title}: expected code and then its output, got {kinds}"
        found.append(Answer(title, fences[0][1], fences[1][1] if len(fences) > 1 else None))
    return found


def minutes(notebook: nbformat.NotebookNode) -> float:
    """Return the time to read a notebook without its hidden answers: a minute for 200 words, 30 lines of code or 4 code cells."""
    words = len(_DETAILS.sub("", "\n".join(texts(notebook))).split())
    code = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    lines = sum(bool(line.strip()) for source in code for line in source.splitlines())
    return words / 200 + lines / 30 + len(code) / 4

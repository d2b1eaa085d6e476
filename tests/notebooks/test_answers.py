"""The hidden answers to the exercises work where they stand, behind their notebook's cells, and print what the reader is told."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from .course import FOLDER, PATHS, answers, read

pytestmark = pytest.mark.kernel


def printed(cell: nbformat.NotebookNode) -> str:
    """What a cell prints, and the text of its last value."""
    said = ""
    for output in cell.outputs:
        if output.output_type == "stream" and output.name == "stdout":
            said += output.text
        elif output.output_type == "execute_result":
            said += output.data["text/plain"]
    return said


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
@pytest.mark.timeout(300)
@pytest.mark.filterwarnings("default")  # of the kernel's own process, and the client that talks to it
def test_the_answers_work_and_print_what_is_said(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTLAB_FRONTEND", "none")
    notebook = read(path)
    given = answers(notebook)
    cells = [nbformat.v4.new_code_cell(answer.code) for answer in given]
    notebook.cells = [cell for cell in notebook.cells if cell.cell_type == "code"] + cells
    client = NotebookClient(notebook, timeout=200, kernel_name="python3", resources={"metadata": {"path": str(FOLDER)}})
    client.execute()
    for answer, cell in zip(given, cells, strict=True):
        if answer.output is not None:
            assert printed(cell).strip() == answer.output.strip(), answer.title

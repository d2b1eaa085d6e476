"""The hidden answers run after the cells of their notebook and print the output shown to the reader."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from .course import FOLDER, PATHS, answers, read

pytestmark = pytest.mark.kernel


def printed(cell: nbformat.NotebookNode) -> str:
    """Return the printed output of a cell and the text of its last value."""
    text = ""
    for output in cell.outputs:
        if output.output_type == "stream" and output.name == "stdout":
            text += output.text
        elif output.output_type == "execute_result":
            text += output.data["text/plain"]
    return text


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
@pytest.mark.timeout(300)
@pytest.mark.filterwarnings("default")  # warnings of the kernel process and of its client
def test_the_answers_run_and_print_the_output_shown(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTLAB_FRONTEND", "none")
    notebook = read(path)
    expected = answers(notebook)
    cells = [nbformat.v4.new_code_cell(answer.code) for answer in expected]
    notebook.cells = [cell for cell in notebook.cells if cell.cell_type == "code"] + cells
    client = NotebookClient(notebook, timeout=200, kernel_name="python3", resources={"metadata": {"path": str(FOLDER)}})
    client.execute()
    for answer, cell in zip(expected, cells, strict=True):
        if answer.output is not None:
            assert printed(cell).strip() == answer.output.strip(), answer.title

"""Execute the notebooks and write their outputs back, clean: no times, no counts of earlier runs, only the metadata that is needed.

A cell with the tag `timed` draws how long things took, which differs each time: where its texts are the same but for the seconds, its
outputs stay as they are. Clear them to have them anew.

python notebooks/refresh.py                    all of them
python notebooks/refresh.py 01_quickstart      one
"""

from __future__ import annotations

import copy
import os
import re
import sys
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

TIMED = "timed"
HERE = Path(__file__).resolve().parent
KERNEL = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def without_seconds(outputs: list[Any]) -> list[str]:
    """The texts of a cell's outputs, without pictures and without what a clock said."""
    texts = [
        output.get("text", "")
        + "".join(text for kind, text in sorted(output.get("data", {}).items()) if kind.startswith("text/"))
        for output in outputs
    ]
    return [re.sub(r"[\d.]+ m?s\b", "… s", text) for text in texts]


def refresh(path: Path) -> None:
    """Execute one notebook from its own folder, as somebody does whom nobody watches, and write it back."""
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook,
        timeout=300,
        kernel_name="python3",
        record_timing=False,
        coalesce_streams=True,
        resources={"metadata": {"path": str(path.parent)}},
    )
    before = {cell.id: copy.deepcopy(cell.outputs) for cell in notebook.cells if TIMED in cell.metadata.get("tags", ())}
    client.execute()
    for cell in notebook.cells:
        if cell.id in before and without_seconds(cell.outputs) == without_seconds(before[cell.id]):
            cell["outputs"] = before[cell.id]
    notebook["metadata"] = KERNEL
    for cell in notebook.cells:
        cell["metadata"] = {"tags": cell.metadata.tags} if cell.metadata.get("tags") else {}
    nbformat.validate(notebook)
    path.write_text(nbformat.writes(notebook) + "\n", encoding="utf-8")


if __name__ == "__main__":
    os.environ["AGENTLAB_FRONTEND"] = "none"
    for name in sys.argv[1:] or [path.stem for path in sorted(HERE.glob("*.ipynb"))]:
        refresh(HERE / f"{name.removesuffix('.ipynb')}.ipynb")

"""Execute the notebooks and save their outputs without times, execution counts of earlier runs and unneeded metadata.

A cell with the tag `timed` shows durations, which differ on each run. If only the seconds in its texts have changed, its saved
outputs are kept. Clear them to regenerate them.

python notebooks/refresh.py                    all notebooks
python notebooks/refresh.py 01_quickstart      one notebook
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


def texts_without_seconds(outputs: list[Any]) -> list[str]:
    """Return the texts of a cell's outputs, without pictures and with seconds masked."""
    texts = [
        output.get("text", "")
        + "".join(text for kind, text in sorted(output.get("data", {}).items()) if kind.startswith("text/"))
        for output in outputs
    ]
    return [re.sub(r"[\d.]+ m?s\b", "… s", text) for text in texts]


def refresh(path: Path) -> None:
    """Execute one notebook in its folder and save it."""
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook,
        timeout=300,
        kernel_name="python3",
        record_timing=False,
        coalesce_streams=True,
        resources={"metadata": {"path": str(path.parent)}},
    )
    saved = {cell.id: copy.deepcopy(cell.outputs) for cell in notebook.cells if TIMED in cell.metadata.get("tags", ())}
    client.execute()
    for cell in notebook.cells:
        if cell.id in saved and texts_without_seconds(cell.outputs) == texts_without_seconds(saved[cell.id]):
            cell["outputs"] = saved[cell.id]
    notebook["metadata"] = KERNEL
    for cell in notebook.cells:
        cell["metadata"] = {"tags": cell.metadata.tags} if cell.metadata.get("tags") else {}
    nbformat.validate(notebook)
    path.write_text(nbformat.writes(notebook) + "\n", encoding="utf-8")


if __name__ == "__main__":
    os.environ["AGENTLAB_FRONTEND"] = "none"
    for name in sys.argv[1:] or [path.stem for path in sorted(HERE.glob("*.ipynb"))]:
        refresh(HERE / f"{name.removesuffix('.ipynb')}.ipynb")

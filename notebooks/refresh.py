"""Execute the notebooks and write their outputs back, clean: no times, no counts of earlier runs, only the metadata that is needed.

python notebooks/refresh.py                    all of them
python notebooks/refresh.py 01_quickstart      one
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).resolve().parent
KERNEL = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


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
    client.execute()
    notebook["metadata"] = KERNEL
    for cell in notebook.cells:
        cell["metadata"] = {"tags": cell.metadata.tags} if cell.metadata.get("tags") else {}
    nbformat.validate(notebook)
    path.write_text(nbformat.writes(notebook) + "\n", encoding="utf-8")


if __name__ == "__main__":
    os.environ["AGENTLAB_FRONTEND"] = "none"
    for name in sys.argv[1:] or [path.stem for path in sorted(HERE.glob("*.ipynb"))]:
        refresh(HERE / f"{name.removesuffix('.ipynb')}.ipynb")

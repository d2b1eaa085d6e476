"""Execute the quickstart on recorded fixtures, print its tables, and save its plots as PNG. Needs no key and no network.

Run `make demo`, or `python notebooks/demo.py` in an environment with agentlab-jupyter[lab].
"""

from __future__ import annotations

import base64
import os
import re
import sys
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

HERE = Path(__file__).resolve().parent
NOTEBOOK = HERE / "01_quickstart.ipynb"
OUTPUT = HERE.parent / "demo-output"
DEMO_TAG = "demo"  # tag of the cells whose text is printed


def main() -> int:
    """Run the demo and return the exit status: 0 if every cell ran."""
    os.environ["AGENTLAB_FRONTEND"] = "none"
    OUTPUT.mkdir(exist_ok=True)
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    started = time.monotonic()
    print_paragraph(f"Executing {NOTEBOOK.name} on recorded fixtures ({len(notebook.cells)} cells)")
    client = NotebookClient(
        notebook,
        timeout=300,
        kernel_name="python3",
        resources={"metadata": {"path": str(HERE)}},
        extra_arguments=["--IPKernelApp.log_level=40"],  # errors only: unencrypted TCP is no risk on one machine
    )
    try:
        client.execute()
    except CellExecutionError as error:
        print_paragraph(str(error))
        return 1
    nbformat.write(notebook, OUTPUT / NOTEBOOK.name)
    pictures = []
    heading = "figure"
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            match = re.search(r"^#+ +[\d. ]*(.+)$", cell.source, re.MULTILINE)
            heading = re.sub(r"[^a-z0-9]+", "-", match.group(1).lower()).strip("-") if match else heading
            continue
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            if DEMO_TAG in cell.metadata.get("tags", ()):
                print_paragraph(output.get("text") or data.get("text/plain", ""))
            if "image/png" in data:
                pictures.append(OUTPUT / f"{len(pictures) + 1}-{heading[:40]}.png")
                pictures[-1].write_bytes(base64.b64decode(data["image/png"]))
    print_paragraph(f"{len(pictures)} plots in {OUTPUT.name}/: {', '.join(picture.name for picture in pictures)}")
    print_paragraph(f"Done in {time.monotonic() - started:.0f} s. To open the same notebook with a live panel: make lab")
    return 0


def print_paragraph(text: str) -> None:
    """Print the text and an empty line."""
    sys.stdout.write(text.rstrip() + "\n\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())

"""Execute the quickstart on its recorded fixtures, print its tables, and write its plots as PNG. No key, no network.

Run it with `make demo`, or with `python notebooks/demo.py` in an environment that has agentlab-jupyter[lab].
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
SHOWN = "demo"  # the tag of the cells whose text is printed


def main() -> int:
    """Run the demo; the exit status is 0 where every cell ran."""
    os.environ["AGENTLAB_FRONTEND"] = "none"
    OUTPUT.mkdir(exist_ok=True)
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    started = time.monotonic()
    say(f"Executing {NOTEBOOK.name} on recorded fixtures ({len(notebook.cells)} cells)")
    client = NotebookClient(
        notebook,
        timeout=300,
        kernel_name="python3",
        resources={"metadata": {"path": str(HERE)}},
        extra_arguments=["--IPKernelApp.log_level=40"],  # errors only: its warning of unencrypted TCP is about other machines
    )
    try:
        client.execute()
    except CellExecutionError as error:
        say(str(error))
        return 1
    nbformat.write(notebook, OUTPUT / NOTEBOOK.name)
    pictures = []
    heading = "figure"
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            found = re.search(r"^#+ +[\d. ]*(.+)$", cell.source, re.MULTILINE)
            heading = re.sub(r"[^a-z0-9]+", "-", found.group(1).lower()).strip("-") if found else heading
            continue
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            if SHOWN in cell.metadata.get("tags", ()):
                say(output.get("text") or data.get("text/plain", ""))
            if "image/png" in data:
                pictures.append(OUTPUT / f"{len(pictures) + 1}-{heading[:40]}.png")
                pictures[-1].write_bytes(base64.b64decode(data["image/png"]))
    say(f"{len(pictures)} plots in {OUTPUT.name}/: {', '.join(picture.name for picture in pictures)}")
    say(f"Done in {time.monotonic() - started:.0f} s. Open the same notebook live, with the panel to click on: make lab")
    return 0


def say(text: str) -> None:
    """Print a paragraph."""
    sys.stdout.write(text.rstrip() + "\n\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())

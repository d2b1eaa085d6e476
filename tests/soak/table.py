"""The attempts and their results as a plain text table: printed, and kept in test-output/soak."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "test-output" / "soak"


def show(name: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """The rows under their columns; printed under `name`, and written to test-output/soak/NAME.txt."""
    lines = [[str(column) for column in columns], *([str(value) for value in row] for row in rows)]
    widths = [max(len(line[place]) for line in lines) for place in range(len(columns))]
    text = "\n".join("  ".join(value.ljust(width) for value, width in zip(line, widths, strict=True)).rstrip() for line in lines)
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / f"{name}.txt").write_text(text + "\n")
    print(f"\n{name}\n{text}")
    return text

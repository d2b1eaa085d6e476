"""The importer of Inspect's logs, its standard errors, and its tools in an agent, with Inspect itself: `make inspect`.

Inspect brings sixty packages and needs an older fsspec than the others here, so it gets a separate environment, `.venv-inspect`.
`python -m tests.interop.with_inspect record` records its reader's output for the logs that it makes; the tests that run without
Inspect read this recording.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from agentlab.interop import inspect_reader

REPOSITORY = Path(__file__).parents[2]
ENVIRONMENT = REPOSITORY / ".venv-inspect"
NEEDED = ("inspect-ai==0.3.285", "pandas==3.1.1", "pyarrow>=18", "hypothesis", "pytest", "pytest-socket", "pytest-timeout")
LINES = Path(__file__).parent / "inspect_lines.jsonl"
MAKER = Path(__file__).parent / "make_inspect_logs.py"
VARIABLE = "AGENTLAB_INSPECT_PYTHON"


def environment() -> Path:
    """The Python of an environment with Inspect, made if it is missing."""
    python = ENVIRONMENT / "bin" / "python"
    if not (ENVIRONMENT / "ready").exists():
        subprocess.run([sys.executable, "-m", "venv", str(ENVIRONMENT)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *NEEDED, "--editable", str(REPOSITORY)], check=True)
        (ENVIRONMENT / "ready").touch()
    return python


def make_logs(python: str | Path, folder: Path) -> None:
    """Have Inspect evaluate the tasks of the maker."""
    subprocess.run([str(python), str(MAKER), str(folder)], check=True, cwd=folder, capture_output=True)


def record(python: Path) -> None:
    """The reader's output, with the names of the logs instead of their paths."""
    with tempfile.TemporaryDirectory() as folder:
        make_logs(python, Path(folder))
        logs = sorted(str(path) for path in Path(folder).glob("*.eval"))
        reader = [str(python), str(inspect_reader.__file__), *logs]
        printed = subprocess.run(reader, check=True, capture_output=True, text=True).stdout
    lines = [json.loads(line) for line in printed.splitlines()]
    kept = [json.dumps({**line, "log": Path(line["log"]).name}) for line in lines]
    LINES.write_text("\n".join(kept) + "\n", encoding="utf-8")


def main() -> int:
    """Run the tests with Inspect installed, or record."""
    python = environment()
    if sys.argv[1:] == ["record"]:
        record(python)
        return 0
    files = [str(Path(__file__).parent / name) for name in ("test_import_inspect.py", "test_inspect_errors.py")]
    command = [sys.executable, "-m", "pytest", "-m", "", *files, *sys.argv[1:]]
    failed = subprocess.run(command, env={**os.environ, VARIABLE: str(python)}, cwd=REPOSITORY, check=False).returncode
    tools = [
        *("-o", "addopts=", "-W", "default"),
        str(REPOSITORY / "tests" / "package" / "test_tool_schemas.py"),
        "-k",
        "Inspect",
    ]
    return subprocess.run([str(python), "-m", "pytest", *tools], cwd=REPOSITORY, check=False).returncode or failed


if __name__ == "__main__":
    sys.exit(main())

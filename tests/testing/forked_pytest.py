"""Runs of pytest in forks of one process that has imported pytest and agentlab: to import them takes longer than a small run.

`python -m tests.testing.forked_pytest` reads a request from each line of its input and answers with a line: the exit code.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

import pytest

PLUGIN = "agentlab.testing.pytest_plugin"
LARGE = (
    "agentlab.agent",
    "agentlab.engine.stepper",
    "agentlab.providers.compatible",
    "agentlab.tools.schemas",
    "agentlab.transport.replaying",
    "genai_prices.data",
    "httpx",
    "httpx2",
    "yaml",
)
"""What the runs import, apart from the plugin, which each run loads itself."""


class ForkedPytest:
    """The process, for a `with` block."""

    def __enter__(self) -> ForkedPytest:
        command = [sys.executable, "-m", "tests.testing.forked_pytest"]
        root = Path(__file__).parents[2]
        self._process = subprocess.Popen(command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def run(self, pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
        """As `pytester.runpytest_subprocess`."""
        printed = [pytester.path / "stdout", pytester.path / "stderr"]
        asked = {"arguments": arguments, "folder": str(pytester.path), "environment": dict(os.environ)}
        assert self._process.stdin is not None and self._process.stdout is not None
        print(json.dumps(asked | {"printed": [*map(str, printed)]}), file=self._process.stdin, flush=True)
        code = int(self._process.stdout.readline())
        lines = [path.read_text("utf-8").splitlines() for path in printed]
        for path in printed:
            path.unlink()
        return pytest.RunResult(code, *lines, duration=0)


def run_in_a_fork(request: dict[str, Any]) -> int:
    """Run pytest as a new process would in this folder; return its exit code."""
    process = os.fork()
    if process:
        return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    code = 70
    try:
        for number, path in enumerate(request["printed"], 1):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.chdir(request["folder"])
        os.environ.clear()
        os.environ.update(request["environment"])
        code = int(pytest.main(request["arguments"]))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    for name in LARGE:
        importlib.import_module(name)
    gc.freeze()  # or each run looks through all of this
    assert PLUGIN not in sys.modules
    for line in sys.stdin:
        print(run_in_a_fork(json.loads(line)), flush=True)

"""A scorer that runs the program in an answer, with tests, in a process of its own."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

from agentlab._internal.asyncio_tools import off_the_loop
from agentlab.errors import ConfigurationError
from agentlab.experiments.scorers.base import Score
from agentlab.experiments.tasks import Task
from agentlab.records.result import RunResult

if sys.platform != "emscripten":  # which starts no processes
    import psutil

_HARNESS = """
import sys
sign, memory, seconds = sys.stdin.readline().split()
program, tests = sys.stdin.read().split(sign)
try:
    import resource
except ImportError:
    pass
else:
    for what, most in (("AS", int(memory)), ("CPU", int(seconds)), ("FSIZE", 10_000_000), ("CORE", 0), ("NOFILE", 64)):
        what = getattr(resource, "RLIMIT_" + what)
        hard = resource.getrlimit(what)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(what, (most, most))
names = {"__name__": "program"}
exec(compile(program, "program.py", "exec"), names)
exec(compile(tests, "tests.py", "exec"), names)
with open("passed", "w") as file:
    file.write(sign)
"""

_OUTPUT_CHARS = 20_000


@dataclass(frozen=True, slots=True)
class Code:
    """True if the Python program in the answer (its last code block, else the whole answer) passes the tests.

    `tests` is Python code that raises if the program is wrong, such as `assert add(1, 2) == 3`; by default `tests` in the task's
    metadata, else the target. Both run in a new process, in an empty folder, without the environment's keys, for at most `timeout_s`
    seconds; each process has at most `memory_mb` of memory and as many seconds of computing time (Linux and macOS), and writes files
    of at most 10 MB. At the end its child processes are killed. This is no sandbox: the program has the rights of your user, reads your
    files, reaches the network, and can pass any test if it is written to deceive. Run answers of untrusted models in a container.

    Example:
        >>> task = lab.Task("Write a function add.", target="assert add(1, 2) == 3")
        >>> await lab.scorers.Code()(await brief.run("Write a function add."), task)
        Score(value=False, why='SyntaxError: invalid syntax', parts={})
    """

    tests: str | None = None
    timeout_s: float = 10
    memory_mb: int = 512

    @property
    def needs_target(self) -> bool:
        """False: the tests may be in the metadata."""
        return False

    async def __call__(self, result: RunResult, task: Task) -> Score:
        """Return the score of one run."""
        tests = self.tests or task.metadata.get("tests") or task.target
        if not isinstance(tests, str) or not tests.strip():
            raise ConfigurationError(
                f"Code: the task {task.id!r} has no tests: pass tests=…, metadata={{'tests': …}}, or tests as the target."
            )
        return await off_the_loop(partial(self._run, program_in(result.text), tests))

    def _run(self, program: str, tests: str) -> Score:
        sign = secrets.token_hex(16)
        with tempfile.TemporaryDirectory(prefix="agentlab-", ignore_cleanup_errors=True) as folder:
            with Path(folder, "errors").open("wb") as errors:
                process = _started(folder, errors)
                head = f"{sign} {self.memory_mb * 2**20} {int(self.timeout_s) + 1}\n"
                try:
                    process.communicate((head + program + sign + tests).encode("utf-8", "replace"), timeout=self.timeout_s)
                    late = False
                except subprocess.TimeoutExpired:
                    late = True
                finally:
                    _kill(process, folder)
            if late:
                return Score(False, f"still running after {self.timeout_s:g} s")
            with contextlib.suppress(OSError):
                if Path(folder, "passed").read_text(encoding="utf-8") == sign:
                    return Score(True)
            lines = Path(folder, "errors").read_bytes()[-_OUTPUT_CHARS:].decode("utf-8", "replace").strip().splitlines()
        return Score(False, lines[-1][:300] if lines else f"ended before the tests, with exit code {process.returncode}")


def _started(folder: str, errors: IO[bytes]) -> subprocess.Popen[bytes]:
    """Start this interpreter in the folder. Raises ConfigurationError if it starts no processes, as in a browser."""
    system = {name: os.environ[name] for name in ("SYSTEMROOT",) if name in os.environ}  # Windows starts no Python without it
    try:
        return subprocess.Popen(  # noqa: S603  this interpreter
            [sys.executable, "-I", "-B", "-X", "utf8", "-c", _HARNESS],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            cwd=folder,
            env={"PATH": os.defpath, "HOME": folder, "TMPDIR": folder, **system},
            start_new_session=True,
        )
    except OSError as error:
        raise ConfigurationError(
            f"Code runs each answer in a process of its own, and none can be started here: {error.strerror}. Score these runs on a "
            "Python outside the browser, with results.rescore(…)."
        ) from error


def _kill(process: subprocess.Popen[bytes], folder: str) -> None:
    """End the process, everything in its group, and what has left the group: it still has the environment that it was given."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    process.wait()
    for other in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if other.environ().get("TMPDIR") == folder:
                other.kill()


def program_in(answer: str) -> str:
    """Return the last code block of an answer, else the whole answer."""
    blocks: list[str] = re.findall(r"```[^\n`]*\n(.*?)```", answer, re.DOTALL)
    return blocks[-1] if blocks else answer

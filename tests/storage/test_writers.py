"""The process that writes a run: identified through Linux, and through psutil on other systems."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable

import pytest

from agentlab.storage import writer

READERS = [writer._from_proc, writer._from_psutil]
ASK = "import os, sys; from agentlab.storage import writer; print(getattr(writer, sys.argv[1])(int(sys.argv[2])))"


@pytest.mark.parametrize("begun_at", READERS)
def test_a_live_process_is_distinguished_from_a_dead_one(begun_at: Callable[[int], str]) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        began = begun_at(child.pid)
        assert began
        assert began == begun_at(child.pid) != begun_at(os.getpid())
        assert child.stdin is not None
        child.stdin.close()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert begun_at(child.pid) == "", "it has ended, though its exit code has not been collected"
        child.wait()
        assert begun_at(child.pid) == ""


@pytest.mark.parametrize("begun_at", READERS)
def test_every_process_gets_the_same_answer(begun_at: Callable[[int], str]) -> None:
    asked = [sys.executable, "-c", ASK, begun_at.__name__, str(os.getpid())]
    assert subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip() == begun_at(os.getpid())


@pytest.mark.parametrize(
    "name", ["", "{", "[]", "[1, 2, 3, 4]", '["{host}", "../../x", "", 1]', '["{host}", -1, "", 1]', "[" * 100_000]
)
def test_a_name_from_another_machine_is_unknown(name: str) -> None:
    name = name.replace("{host}", socket.gethostname())
    assert writer.is_writer_alive(name) is None
    assert not writer.is_writer_here(name)
    assert writer.writer_text(name) == "an unknown process"

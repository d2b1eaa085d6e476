"""Which process writes to a run, and whether it still is there."""

from __future__ import annotations

import itertools
import json
import os
import socket
from collections.abc import Callable
from functools import cache
from pathlib import Path

from agentlab.printable import one_line

_numbers = itertools.count(1)
_MOST_PROCESSES = 2**31

NOBODY = "nobody"
"""The name in the place of a writer that has let go of its run, so that any process may resume it."""


def new_name() -> str:
    """A name for one writer in this process, that no other writer ever has."""
    return json.dumps([socket.gethostname(), os.getpid(), _begun_at(os.getpid()), next(_numbers)])


def is_alive(name: str) -> bool | None:
    """Whether that writer's process still is there; None for one of another machine, of which that cannot be said."""
    if name == NOBODY:
        return False
    host, process, begun_at = _read(name)
    if host != socket.gethostname():
        return None
    return bool(_begun_at(process) == begun_at)


def is_here(name: str) -> bool:
    """Whether that is a writer of this very process."""
    host, process, begun_at = _read(name)
    return bool((host, process, begun_at) == (socket.gethostname(), os.getpid(), _begun_at(os.getpid())))


def told(name: str) -> str:
    """A writer's name for people."""
    host, process, _ = _read(name)
    return f"process {process} on {one_line(host)}" if host else "a process that the store does not name"


def _read(name: str) -> tuple[str, int, str]:
    """Host, process and its beginning; an empty host where a file from elsewhere holds no writer's name."""
    try:
        host, process, begun_at, _ = json.loads(name)
    except (ValueError, TypeError, RecursionError):
        return "", 0, ""
    is_one = isinstance(host, str) and type(process) is int and 0 < process < _MOST_PROCESSES and isinstance(begun_at, str)
    return (host, process, begun_at) if is_one else ("", 0, "")


@cache
def _reader() -> Callable[[int], str]:
    return _from_proc if Path("/proc/self/stat").exists() else _from_psutil


def _begun_at(process: int) -> str:
    """When a process began, or an empty text where there is none: ids are used again, together with the time they are not."""
    return _reader()(process)


def _from_proc(process: int) -> str:
    try:
        told = Path(f"/proc/{process}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
    state, *rest = told.rpartition(")")[2].split()
    return "" if state in "ZX" else rest[18]


def _from_psutil(process: int) -> str:
    """Where there is no /proc, as on macOS and Windows."""
    import psutil

    try:
        asked = psutil.Process(process)
        return "" if asked.status() == psutil.STATUS_ZOMBIE else repr(asked.create_time())
    except psutil.NoSuchProcess:
        return ""
    except psutil.AccessDenied:
        return "there"  # somebody else's: it cannot be told from a later one with this id

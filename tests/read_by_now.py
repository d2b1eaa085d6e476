"""Whether what a server in a test has sent was taken by its client: chunks are to arrive one by one on a busy machine too."""

from __future__ import annotations

import socket
import time
from pathlib import Path

PATIENCE_S = 60.0
_TABLE = Path("/proc/net/tcp")


def wait_until_read(connection: socket.socket) -> None:
    """Wait until the client, on this machine, has nothing of it left to read. Where there is no such table nothing is waited for."""
    port, until = connection.getpeername()[1], time.monotonic() + PATIENCE_S
    while _unread(port) and time.monotonic() < until:
        time.sleep(0.001)


def _unread(port: int) -> bool:
    """Whether a socket at this port of 127.0.0.1 has bytes that nobody has read yet."""
    if not _TABLE.exists():
        return False
    rows = (line.split() for line in _TABLE.read_text().splitlines()[1:])
    return any(row[1] == f"0100007F:{port:04X}" and int(row[4].partition(":")[2], 16) for row in rows)

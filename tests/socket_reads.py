"""Waits until a client has read the bytes that a test's server sent: chunks must arrive one by one on a busy machine too."""

from __future__ import annotations

import socket
import time
from pathlib import Path

PATIENCE_S = 60.0
_TABLE = Path("/proc/net/tcp")


def wait_until_read(connection: socket.socket) -> None:
    """Wait until the client, on this machine, has read everything. Without a table of sockets, do not wait."""
    port, until = connection.getpeername()[1], time.monotonic() + PATIENCE_S
    while _unread(port) and time.monotonic() < until:
        time.sleep(0.001)


def _unread(port: int) -> bool:
    """True if a socket at this port of 127.0.0.1 has unread bytes."""
    if not _TABLE.exists():
        return False
    rows = (line.split() for line in _TABLE.read_text().splitlines()[1:])
    return any(row[1] == f"0100007F:{port:04X}" and int(row[4].partition(":")[2], 16) for row in rows)

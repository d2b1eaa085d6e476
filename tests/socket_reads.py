"""Waits until a client has read the bytes that a test's server sent: chunks must arrive one by one on a busy machine too."""

from __future__ import annotations

import socket
import struct
import time
from pathlib import Path
from typing import TypeAlias

Address: TypeAlias = tuple[str, int]

PATIENCE_S = 60.0
_TABLE = Path("/proc/net/tcp")
_SOCK_DIAG, _BY_FAMILY, _REQUEST = 4, 20, 1  # of Linux's netlink


def wait_until_read(connection: socket.socket) -> None:
    """Wait until the client, on this machine, has read everything. Without a table of sockets, do not wait."""
    here, there, until = connection.getsockname(), connection.getpeername(), time.monotonic() + PATIENCE_S
    while _unread(there, here) and time.monotonic() < until:
        time.sleep(0.001)


def _unread(at: Address, peer: Address) -> int:
    """The unread bytes of the socket at this address of 127.0.0.1 whose peer is at the other."""
    found = _asked(at, peer)
    if found is not None:
        return found
    if _asked(peer, at) is not None or not _TABLE.exists():  # the client has left
        return 0
    rows = (line.split() for line in _TABLE.read_text().splitlines()[1:])
    return sum(int(row[4].partition(":")[2], 16) for row in rows if row[1] == f"0100007F:{at[1]:04X}")


def _asked(at: Address, peer: Address) -> int | None:
    """The same from the kernel by one question, since its table takes 7 ms to write; None if it does not know the socket."""
    if not hasattr(socket, "AF_NETLINK"):
        return None
    ports = struct.pack("!HH", at[1], peer[1])
    addresses = b"".join(socket.inet_aton(address).ljust(16, b"\0") for address, _ in (at, peer))
    asked = struct.pack("=BBBxI", socket.AF_INET, socket.IPPROTO_TCP, 0, 0xFFFFFFFF) + ports + addresses
    asked += struct.pack("=III", 0, 0xFFFFFFFF, 0xFFFFFFFF)  # any interface, any cookie
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as kernel:
            kernel.send(struct.pack("=IHHII", 16 + len(asked), _BY_FAMILY, _REQUEST, 0, 0) + asked)
            answer = kernel.recv(8_192)
    except OSError:
        return None
    (kind,) = struct.unpack_from("=4xH", answer)
    return int(struct.unpack_from("=I", answer, 72)[0]) if kind == _BY_FAMILY else None

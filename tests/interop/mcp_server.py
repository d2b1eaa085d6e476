"""An MCP server for tests, over stdio, or over streamable HTTP on the port in its argument. It writes its process id to a file.

Its imports take most of a test's time. With `fork <socket>`, one process imports them, and each `mcp_start.py <socket>` is a server.
"""

from __future__ import annotations

import asyncio
import base64
import gc
import json
import logging
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Annotated, Any

from mcp.server.mcpserver import Audio, Context, Image, MCPServer
from mcp.types import BlobResourceContents, EmbeddedResource
from mcp_media import PNG, WAV
from pydantic import Field

server = MCPServer("stations", log_level="CRITICAL")


def folder() -> Path:
    """What the server leaves for a test."""
    return Path(os.environ.get("STATIONS_FOLDER", "."))


@server.tool()
def find_station(name: Annotated[str, Field(description="the name, or its beginning")], limit: int = 3) -> str:
    """Find a station."""
    return f"{name} Hbf"


@server.tool()
def departures(station: str) -> dict[str, Any]:
    """List the next departures."""
    (folder() / "calls").open("a").write(f"{station}\n")
    return {"station": station, "trains": [{"to": "Linz", "at": "10:02"}]}


@server.tool()
def buy(station: str) -> str:
    """Buy a ticket."""
    raise ValueError("a bug in the server")


@server.tool(name="map.of", structured_output=False)
def map_of(station: str) -> list[Any]:
    """Show the map."""
    return [f"The map of {station}:", Image(data=PNG, format="png"), Image(data=b"0123456789", format="png")]


@server.tool()
def announcement() -> Audio:
    """Play the announcement."""
    return Audio(data=WAV, format="wav")


@server.tool()
def timetable() -> EmbeddedResource:
    """Return the timetable."""
    blob = base64.b64encode(b"%PDF-1.7\n1 0 obj\n").decode()
    uri, kind = "file:///tables/May%202026.pdf", "application/pdf"
    return EmbeddedResource(type="resource", resource=BlobResourceContents(uri=uri, mime_type=kind, blob=blob))


@server.tool()
async def crawl(pages: int, context: Context) -> str:
    """Read pages, slowly if there are more than 3."""
    for page in range(1, pages + 1):
        await context.report_progress(page, pages, f"page {page}")
        if page == 3 and pages > 3:
            try:
                await asyncio.sleep(60)
            finally:
                (folder() / "cancelled").touch()
    return f"{pages} pages"


@server.tool()
def die() -> str:
    """End the server in the middle of the call."""
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"


waiting = asyncio.Event()


@server.tool()
async def meet(name: str) -> str:
    """Wait until somebody named last is there too."""
    if name == "last":
        waiting.set()
    await waiting.wait()
    return f"{name} met"


@server.tool()
async def extend(context: Context) -> str:
    """Add a tool to the list."""
    server.add_tool(lambda: "new", name="extra", description="An extra tool.")
    await context.notify_tools_changed()
    return "extended"


@server.tool()
async def renew(context: Context) -> str:
    """Remove a tool, and change another."""
    server.remove_tool("departures")
    server.remove_tool("find_station")
    server.add_tool(lambda city: f"{city} Hbf", name="find_station", description="Find the main station of a city.")
    await context.notify_tools_changed()
    return "renewed"


def run(*port: str) -> None:
    """Serve until the client closes the input, or on a port."""
    (folder() / "pid").write_text(str(os.getpid()))
    if port:
        server.run("streamable-http", host="127.0.0.1", port=int(port[0]))
    else:
        server.run()


def fork_at(path: str) -> None:
    """Fork a server for each program that asks at this socket, with the arguments, the environment, and the streams of that program."""
    import uvicorn.lifespan.on  # what only a server over HTTP would import
    import uvicorn.loops.auto
    import uvicorn.protocols.http.auto
    import uvicorn.protocols.websockets.auto  # noqa: F401

    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the servers
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen(64)
        while True:
            asking, _ = listening.accept()
            if os.fork() == 0:
                listening.close()
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                said, streams, *_ = socket.recv_fds(asking, 1 << 20, 3)
                for number, stream in enumerate(streams):
                    os.dup2(stream, number)
                    os.close(stream)
                arguments, environment = json.loads(said)
                os.environ.update(environment)
                run(*arguments)
                os._exit(0)
            asking.close()


if __name__ == "__main__":
    logging.disable()
    if sys.argv[1:2] == ["fork"]:
        fork_at(sys.argv[2])
    else:
        run(*sys.argv[1:])

"""An MCP server for tests, over stdio, or over streamable HTTP on the port in its argument. It writes its process id to a file."""

from __future__ import annotations

import asyncio
import base64
import logging
import os
import signal
import sys
from pathlib import Path
from typing import Annotated, Any

from mcp.server.mcpserver import Audio, Context, Image, MCPServer
from mcp.types import BlobResourceContents, EmbeddedResource
from pydantic import Field

server = MCPServer("stations", log_level="CRITICAL")
FOLDER = Path(os.environ.get("STATIONS_FOLDER", "."))
PNG = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAIAAAADCAIAAAA2iEnWAAAAC0lEQVR4nGNggAEAAA8AARjAtgcAAAAASUVORK5CYII=")
WAV = b"RIFF\x24\0\0\0WAVEfmt \x10\0\0\0\1\0\1\0\x40\x1f\0\0\x40\x1f\0\0\1\0\x08\0data\0\0\0\0"


@server.tool()
def find_station(name: Annotated[str, Field(description="the name, or its beginning")], limit: int = 3) -> str:
    """Find a station."""
    return f"{name} Hbf"


@server.tool()
def departures(station: str) -> dict[str, Any]:
    """List the next departures."""
    (FOLDER / "calls").open("a").write(f"{station}\n")
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
                (FOLDER / "cancelled").touch()
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


if __name__ == "__main__":
    logging.disable()
    (FOLDER / "pid").write_text(str(os.getpid()))
    if len(sys.argv) > 1:
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
    else:
        server.run()

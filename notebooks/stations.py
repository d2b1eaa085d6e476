"""An MCP server with two tools, for notebook 08: the stops of a train, and a plan of a station. `python stations.py` starts it."""

import io

from matplotlib.figure import Figure
from mcp.server.mcpserver import Image, MCPServer

server = MCPServer("stations", log_level="CRITICAL")

STOPS = {
    "EC 164": [("Graz Hbf", "09:45"), ("Bruck/Mur", "10:20"), ("Selzthal", "11:42"), ("Salzburg Hbf", "13:48")],
    "IC 502": [("Graz Hbf", "10:02"), ("Bruck/Mur", "10:37"), ("Selzthal", "11:58"), ("Linz Hbf", "13:12")],
}


@server.tool()
def stops_of(train: str) -> list[dict[str, str]]:
    """List the stops of a train and its times there."""
    return [{"station": station, "time": time} for station, time in STOPS[train]]


@server.tool(structured_output=False)
def plan_of(station: str) -> Image:
    """Draw the plan of a station's platforms."""
    figure = Figure(figsize=(4, 2.2), dpi=80)
    axes = figure.subplots()
    for place, platform in enumerate(("1", "3", "5", "7")):
        axes.barh(place, 8, height=0.5, color="#b9c4d0")
        axes.text(0.2, place, f"platform {platform}", va="center")
    axes.bar(4, 4.2, width=0.6, bottom=-0.6, color="#5b6b7d")
    axes.set_title(f"{station}: the passage is in the middle")
    axes.set_axis_off()
    made = io.BytesIO()
    figure.savefig(made, format="png")
    return Image(data=made.getvalue(), format="png")


if __name__ == "__main__":
    server.run()

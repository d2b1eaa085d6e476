"""The explorer: tries limits on recorded runs, with a slider for each limit."""

from agentlab.notebook.explorer.explorer import Explorer, explore

__all__ = ["Explorer", "explore"]

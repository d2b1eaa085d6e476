"""Limits tried on recorded runs with a slider each."""

from agentlab.notebook.explorer.explorer import Explorer, explore

__all__ = ["Explorer", "explore"]

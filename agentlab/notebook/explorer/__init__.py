"""The explorer: limits tried on recorded runs with a slider each.

May import: `notebook.panel` and what is below it.

    explorer  `lab.explore`
    limits    the limits and their values
    figures   figures of what they led to
"""

from agentlab.notebook.explorer.explorer import Explorer, explore

__all__ = ["Explorer", "explore"]

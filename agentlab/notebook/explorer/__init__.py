"""The explorer: tries limits on recorded runs, with a slider for each limit.

May import: `notebook.panel` and what is below it.

    explorer  `lab.explore`
    limits    the limits and their values
    figures   the outcome of the limits: figures and a picture
"""

from agentlab.notebook.explorer.explorer import Explorer, explore

__all__ = ["Explorer", "explore"]

"""The explorer: tries limits on recorded runs, with a slider for each limit.

May import: `notebook.live_view`, `notebook.markup`, and what is below `notebook`.

    explorer  `lab.explore`
    limits    the limits and their values
    controls  the controls: number, slider, button
    figures   the outcome of the limits: figures and a picture
"""

from agentlab.notebook.explorer.explorer import Explorer, explore

__all__ = ["Explorer", "explore"]

"""The panel: the live control of a run in a notebook. The only place that imports ipywidgets."""

from __future__ import annotations

from agentlab.errors import ConfigurationError
from agentlab.run import Run
from agentlab.widgets.live_panel import Panel


def panel(run: Run) -> Panel:
    """The live control of `run`: run, step, pause, stop; edit every limit while it goes on; see why it stopped.

    Where nobody can click it shows the run as a static table and picture. Several panels may show one run.
    """
    if not isinstance(run, Run):
        raise ConfigurationError(f"panel({run!r}): pass a run, as agent.run(…) gives it.")
    return Panel(run)


__all__ = ["Panel", "panel"]

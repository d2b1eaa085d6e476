"""The panel: the live control of runs in a notebook.

May import: `notebook.page`, `notebook.live_view`, `notebook.markup`, and what is below `notebook`.

    live_panel   the panel: displays the page, and carries out its commands
    page_widget  the page in a notebook, and the messages between it and the kernel
    feed         what is new for the page
    coming       an answer that is streaming in
    actions      commands: run, step, pause, stop
    settings     commands: limits and stop condition
    inputs       the inputs of single values
    branching    commands: branches
    static       the panel for readers without a kernel
"""

from __future__ import annotations

from collections.abc import Iterable

from agentlab.agent import Agent, Run
from agentlab.engine.lockstep import Lockstep
from agentlab.errors import ConfigurationError
from agentlab.notebook.panel.live_panel import Panel
from agentlab.records.result import RunResult

MOST_RUNS = 8
"""More runs do not fit side by side, and cannot be distinguished in one chart."""


def panel(run_or_runs: Run | Iterable[Run] | Lockstep, agents: Iterable[Agent] = ()) -> Panel:
    """Control a run live: run, step, pause, stop; edit every limit while it runs; branch it; see why it stopped.

    Several runs in a list, or a `Lockstep` of them, are compared and take their steps together. `agents` can be
    chosen for a branch. Without a live page, the runs are shown as static tables and pictures. Several panels may show one run.
    Errors: ConfigurationError for anything but a run, for a run that is given twice, and for an empty list.

    Example:
        >>> lab.panel(ended)
        Panel(Run(anthropic:claude-sonnet-4-6, ended, stop_condition, 4 steps, Budget(max_turns=20)))
        >>> lab.panel([ended, brief.run("?")])
        Panel([Run(anthropic:claude-sonnet-4-6, ended, stop_condition, 4 steps, Budget(max_turns=20)), Run(...
    """
    offered: object = agents
    if not isinstance(offered, Iterable):
        raise ConfigurationError(f"panel(…, agents={offered!r}): pass agents in a list.")
    known = tuple(agents)
    for agent in known:
        if not hasattr(agent, "with_model"):
            raise ConfigurationError(f"panel(…, agents=[{agent!r}]): pass agents made with lab.Agent(…).")
    if isinstance(run_or_runs, Run):
        return Panel((run_or_runs,), known)
    if isinstance(run_or_runs, Lockstep):
        return Panel(run_or_runs, known)
    given: object = run_or_runs
    if isinstance(given, RunResult):
        raise _not_a_run(f"panel({given!r})", given)
    if not isinstance(run_or_runs, Iterable) or isinstance(given, str):
        raise ConfigurationError(f"panel({run_or_runs!r}): pass a run from agent.run(…), or several in a list.")
    runs = tuple(run_or_runs)
    for one in runs:
        if not isinstance(one, Run):
            raise _not_a_run(f"panel([… {one!r} …])", one)
        if sum(other is one for other in runs) > 1:
            raise ConfigurationError(f"panel([… {one!r} …]): this run is listed twice. Fork it, or remove one.")
    if len(runs) > MOST_RUNS:
        raise ConfigurationError(
            f"panel() of {len(runs)} runs: at most {MOST_RUNS} fit side by side. Show some of them, or compare them all with "
            "lab.plots.curves(lab.frame(runs))."
        )
    if not runs:
        raise ConfigurationError("panel([]): pass at least one run from agent.run(…).")
    return Panel(runs, known)


def _not_a_run(call: str, given: object) -> ConfigurationError:
    if isinstance(given, RunResult):
        return ConfigurationError(f"{call}: this is a result. Keep its run: `run = agent.run(…); await run`, and pass that.")
    return ConfigurationError(f"{call}: this is not a run; pass runs from agent.run(…).")


__all__ = ["Panel", "panel"]

"""The HTML of a family of runs: the table of all branches, and the line that says which run is shown."""

from __future__ import annotations

import html
from collections.abc import Sequence

from agentlab.engine.run_tree import RunNode, differences
from agentlab.run import Run
from agentlab.widgets import markup

HEADS = ("run", "forked", "what is different", "state", "steps", "tokens", "cost", "ended by")
_NUMBERS = (4, 5, 6)
_LONGEST_DIFFERENCE = 160


def table(members: Sequence[RunNode[Run]], shown: Run) -> str:
    """All runs of a family, each branch below the run that it was forked from; the one that is shown is marked."""
    heads = "".join(f'<th scope="col"{_align(place)}>{name}</th>' for place, name in enumerate(HEADS))
    rows = "".join(_row(member, member.run is shown) for member in members)
    return (
        '<table class="agentlab-steps agentlab-family" aria-label="This run and its branches">'
        f"<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"
    )


def _row(member: RunNode[Run], is_shown: bool) -> str:
    run, history = member.run, member.run.history
    model = f"{run.agent.model.name}:{run.agent.model.model}"
    indent = f"padding-left:{min(member.depth, 8) * 1.3:.1f}em"
    name = (
        f'<span style="{indent}">{"↳ " if member.depth else ""}<b>{member.name}</b></span> '
        f'<code class="agentlab-note">{html.escape(run.id[:6])}</code>'
    )
    mark = ' <b class="agentlab-here">◀ shown</b>' if is_shown else ""
    cells = (
        name + mark,
        _origin(member),
        markup.escape(markup.printable(told(run) or model), _LONGEST_DIFFERENCE),
        html.escape(str(run.state)),
        str(len(history)),
        markup.tokens(history.tokens),
        markup.dollars(history.cost_usd),
        "" if run.result is None else html.escape(str(run.result.stop_reason)),
    )
    body = "".join(f"<td{_align(place)}>{cell}</td>" for place, cell in enumerate(cells))
    current = ' aria-current="true"' if is_shown else ""
    return f'<tr data-run="{html.escape(run.id, quote=True)}"{current}>{body}</tr>'


def _origin(member: RunNode[Run]) -> str:
    if member.parent is None:
        return ""
    if member.called_in is not None:
        return f"called by {member.parent.name} in step {member.called_in}"
    return f"from {member.parent.name} at step {member.forked_at}"


def told(run: Run) -> str:
    """What is different from the run it was forked from, in words; empty for a run that is no branch."""
    if run.origin.parent is None:
        return "" if run.origin.caller is None else f"sub-agent {run.agent.name}"
    return "; ".join(differences(run)) or "nothing: the same again"


def strip(member: RunNode[Run], others: int) -> str:
    """Which run is shown, where there are others: branches, and runs of sub-agents."""
    if member.parent is None:
        runs = "1 other run" if others == 1 else f"{others} other runs"
        said = f"Run <b>{member.name}</b>: the first of its family, with {runs} (see the tab Branches)."
    elif member.called_in is not None:
        where = f"called by run {member.parent.name} in step {member.called_in}"
        what = markup.escape(markup.printable(told(member.run)), _LONGEST_DIFFERENCE)
        said = f"Run <b>{member.name}</b>: {what}, {where}."
    else:
        what = markup.escape(markup.printable(told(member.run)), _LONGEST_DIFFERENCE)
        where = f"of run {member.parent.name} at step {member.forked_at}"
        said = f"Run <b>{member.name}</b>: a branch {where} — {what}."
    return f'<div class="agentlab-strip">{said}</div>'


def _align(place: int) -> str:
    return ' class="number"' if place in _NUMBERS else ""

"""Branches from the page: what the form for one offers, and how code gets hold of the shown run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from agentlab.agent import Run

if TYPE_CHECKING:
    from agentlab.notebook.panel.panel import Panel

JSON = dict[str, Any]
Message = Mapping[str, Any]


def branch(panel: Panel, run: Run, message: Message) -> None:
    """Make a branch that keeps so many steps, and show it."""
    panel.open(run.fork(message["step"]))


COMMANDS = {"branch": branch}

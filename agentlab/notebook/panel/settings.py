"""The limits of a run as forms for the page, and the person's edits of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from agentlab.agent import Run

if TYPE_CHECKING:
    from agentlab.notebook.panel.panel import Panel

JSON = dict[str, Any]
Message = Mapping[str, Any]


def settings_data(run: Run) -> JSON:
    """Return all limits of a run with what their controls need."""
    return {}


def limit(panel: Panel, run: Run, message: Message) -> None:
    """Set a limit by its name, as in the rows of the page: a field of the budget, or a condition."""


COMMANDS = {"limit": limit}

"""What the page has of each run, and what is new since the last message."""

from __future__ import annotations

from typing import Any

from agentlab.agent import Run
from agentlab.engine.run_tree import family_of
from agentlab.notebook.page.data import run_data
from agentlab.notebook.page.steps import Shown
from agentlab.notebook.panel.actions import buttons
from agentlab.notebook.panel.settings import settings_data

JSON = dict[str, Any]


class Feed:
    """The news of the families of some runs."""

    def __init__(self, runs: tuple[Run, ...]) -> None:
        self._runs = runs
        self._sent: dict[str, JSON] = {}

    def forget(self) -> None:
        """The page has nothing."""
        self._sent.clear()

    def news(self) -> JSON:
        """Return what is new, and note it as sent; empty if nothing is."""
        family = {node.run.id: node.run for run in self._runs for node in family_of(run)}
        ids = {run_id: run_id for run_id in family}
        runs, steps = {}, {}
        for run_id, run in family.items():
            data = run_data(run, Shown(), ids) | {"buttons": buttons(run), "settings": settings_data(run)}
            before = self._sent.get(run_id, {})
            self._sent[run_id] = data
            fields = {name: value for name, value in data.items() if name != "steps" and before.get(name, ...) != value}
            rows = data["steps"][len(before.get("steps", ())) :]
            if fields:
                runs[run_id] = fields
            if rows:
                steps[run_id] = rows
        return {name: value for name, value in (("runs", runs), ("steps", steps)) if value}

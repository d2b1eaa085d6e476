"""The page in a notebook: one anywidget, and the messages between it and the kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import anywidget
import traitlets

from agentlab._internal.redaction import redact
from agentlab.agent import Agent, Run
from agentlab.engine.lockstep import Lockstep
from agentlab.errors import AgentlabError
from agentlab.notebook.page import live_script, style

Handle = Callable[[Mapping[str, Any]], Any]
"""Carries out a command of the page, such as `{"do": "go", "run": "…"}`, and returns what the page waits for, as JSON; raises if it is
refused."""


class PanelOfRuns(Protocol):
    """The panel, for the commands of the page."""

    @property
    def run(self) -> Run:
        """The run that is shown."""

    @property
    def runs(self) -> Sequence[Run]:
        """The runs that were given."""

    @property
    def lockstep(self) -> Lockstep | None:
        """Takes the steps of several runs."""

    @property
    def agents(self) -> Mapping[str, Agent]:
        """Agents that can be chosen for a branch, by name."""

    @property
    def feed(self) -> Any:
        """What the page has of each run, a `Feed`."""

    def open(self, run: Run) -> None:
        """Show this run."""

    def to_html(self) -> str | Path:
        """Return the page as a file."""


class PageWidget(anywidget.AnyWidget):
    """Shows the page. What it shows is sent as messages: the widget has no state that a page could bring back."""

    _esm = traitlets.Unicode().tag(sync=True)
    _css = traitlets.Unicode().tag(sync=True)
    kept_class = traitlets.Unicode("").tag(sync=True)
    """The class of the saved copy, which the live page hides."""

    def __init__(self, handle: Handle, kept_class: str) -> None:
        super().__init__(kept_class=kept_class)
        self._handle = handle
        self.on_msg(lambda widget, content, buffers: self.received(content))

    @traitlets.default("_esm")
    def _script(self) -> str:
        return live_script()

    @traitlets.default("_css")
    def _style(self) -> str:
        return style()

    def received(self, content: object) -> None:
        """Carry out a command, and answer it with its value or with the error."""
        match content:
            case {"do": str(), "id": int(number)}:
                try:
                    answer = {"value": self._handle(content)}  # type: ignore[arg-type]
                except Exception as error:
                    answer = {"error": in_words(error)}
                self.send({"kind": "answer", "id": number, **answer})

    def tell(self, message: Mapping[str, Any]) -> None:
        """Send news to the page."""
        self.send({"kind": "news", **message})


def in_words(error: Exception) -> str:
    """Return an error as the page shows it."""
    return redact(str(error) if isinstance(error, AgentlabError) else f"{type(error).__name__}: {error}")

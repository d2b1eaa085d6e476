"""What is clicked in the panel's tables and charts. An addition: where the page has no anywidget, numbers and buttons do the same."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import anywidget
import ipywidgets as widgets
import traitlets

from agentlab.engine.run_tree import family_of
from agentlab.errors import ConfigurationError
from agentlab.run import Run
from agentlab.widgets.scene import Scene

SCRIPT = Path(__file__).with_suffix(".js")


class Clicks(anywidget.AnyWidget):
    """The page's side: shows nothing, and sends what was clicked as a message. See pointer.js."""

    _esm = traitlets.Unicode().tag(sync=True)

    @traitlets.default("_esm")
    def _script(self) -> str:
        return _read_script()


@functools.cache
def _read_script() -> str:
    return SCRIPT.read_text(encoding="utf-8")


class Pointer:
    """Listens for clicks: on a step (a row of a table, a point of a chart), on a run, on a section of a step's detail.

    `on_section(name, is_open)` hears of a section that was opened or closed; `on_run(run)` of a run that was clicked, which without it
    is opened. What comes from the page is checked like anything else from outside.
    """

    def __init__(
        self,
        scene: Scene,
        on_section: Callable[[str, bool], None] | None = None,
        on_run: Callable[[Run], None] | None = None,
    ) -> None:
        self._scene = scene
        self._on_section, self._on_run = on_section, on_run or scene.open
        self.clicks = Clicks()
        self.view = widgets.Box(
            [self.clicks], layout=widgets.Layout(display="none")
        )  # also where the page cannot make it, and says so
        self.clicks.on_msg(lambda widget, content, buffers: self.clicked(content))

    def clicked(self, content: object) -> None:
        """Do what a message of the page asks for."""
        match content:
            case {"run": str(run_id)}:
                self._scene.do(lambda: self._on_run(self._run_with(run_id)))
            case {"step": int(step)} if not isinstance(step, bool):
                self._scene.do(lambda: self._scene.choose(step))
            case {"section": str(name), "open": bool(is_open)} if self._on_section is not None:
                self._on_section(name, is_open)

    def _run_with(self, run_id: str) -> Run:
        for member in family_of(self._scene.run):
            if member.run_id == run_id:
                return member.run
        raise ConfigurationError(f"Run {run_id[:40]!r} is no branch of this run, nor one that it was forked from.")

    def show(self) -> bool:
        """Nothing is shown."""
        return False

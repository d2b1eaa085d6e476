"""The panel: the page of runs, live. It shows the runs and carries out what the page asks for; it has no state of the runs."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from agentlab._internal.kernel import has_page
from agentlab.agent import Agent, Run
from agentlab.engine.lockstep import Lockstep
from agentlab.engine.run_tree import family_of
from agentlab.engine.worker import RunState
from agentlab.errors import ConfigurationError
from agentlab.notebook.live_view import LiveView
from agentlab.notebook.page import to_html
from agentlab.notebook.page.data import unique_name
from agentlab.notebook.panel import actions, branching, feed, settings
from agentlab.notebook.panel.feed import Feed
from agentlab.notebook.panel.page_widget import PageWidget
from agentlab.notebook.panel.static import StaticPanel
from agentlab.notebook.redrawer import redrawer
from agentlab.records.events import Event

COMMANDS = {**actions.COMMANDS, **settings.COMMANDS, **branching.COMMANDS}
"""What the page may ask for, by its name in messages. Each is called with the panel, the run and the message."""


class Panel(LiveView):
    """The live control of runs and their branches. It shows the runs and writes to `run.limits`; it has no state itself.

    As the last expression of a cell it displays itself. `run` is the one that is shown, `runs` those that were given, `lockstep` takes
    the steps of several. `bundle()` is the view without a kernel. `agents` can be chosen for a branch.
    """

    def __init__(self, runs: Iterable[Run] | Lockstep, agents: Iterable[Agent] = ()) -> None:
        super().__init__()
        self.runs = runs.runs if isinstance(runs, Lockstep) else tuple(runs)
        self.lockstep = runs if isinstance(runs, Lockstep) else Lockstep(self.runs) if len(self.runs) > 1 else None
        self.run = self.runs[0]
        names = Counter[str]()
        self.agents = {unique_name(agent.name, names): agent for agent in agents}
        self.feed = Feed(self.runs)
        self._watched: set[str] = set()
        self._pages: set[str] = set()
        self._unheard = False
        self._together: dict[str, Any] | None = None
        self._leave: dict[str, Callable[[], None]] = {}

    # Live -------------------------------------------------------------------------------------------------------------------

    @property
    def widget(self) -> PageWidget:
        """The live widget, created on first access."""
        if self._widget is None:
            self._redrawer = redrawer(self._draw_safely, self._is_under_way)
            self._widget = PageWidget(self.carry_out, self._kept_class)
            self._watch()
        return self._widget  # type: ignore[no-any-return]

    def open(self, run: Run) -> None:
        """Show this run: a branch, or the run that it was forked from."""
        self.run = run
        if self._widget is not None:
            self._watch()
            with self._drawing:
                self._tell(open=run.id)
            self._redrawer.mark(soon=True)

    def carry_out(self, message: Mapping[str, Any]) -> Any:
        """Do what the page asks for, and return its answer. Raises what the action raises."""
        name = message["do"]
        if name in ("hello", "bye"):
            self._greet(str(message.get("page", "")), is_there=name == "hello")
            return None
        run = self._run_with(message.get("run"))
        if name in feed.READS:
            return feed.READS[name](self, run, message)
        if name == "open":
            self.run = run
            return None
        if name not in COMMANDS:
            raise ConfigurationError(f"{str(name)[:40]!r}: this panel has no such command.")
        try:
            return COMMANDS[name](self, run, message)
        finally:
            self._watch()
            self._redrawer.mark(soon=True)

    def _greet(self, page: str, *, is_there: bool) -> None:
        """A page shows this panel from now on, and has nothing yet; or it does no longer."""
        with self._drawing:
            if is_there:
                self._unheard = False
                self._tell()  # the other pages have everything so far
            self._pages = self._pages | {page} if is_there else self._pages - {page}
            if is_there:
                self._watch()
                self.feed.forget()
                self._together = None
                self._tell(open=self.run.id, page=page)
        if not self._pages:
            leaving, self._leave = self._leave, {}
            for leave in leaving.values():
                leave()

    def _run_with(self, run_id: object) -> Run:
        for one in self.runs:
            for member in family_of(one):
                if member.run_id == run_id:
                    return member.run
        raise ConfigurationError(f"Run {str(run_id)[:40]!r} is not one of this panel's runs, nor a branch of one.")

    def _watch(self) -> None:
        """Redraw whenever a run of the family changes. While a page is there, a person can decide on tool calls."""
        for one in self.runs:
            for member in family_of(one):
                run = member.run
                if self._pages and run.id not in self._leave and run.state is not RunState.ENDED:
                    self._leave[run.id] = run.control.attend()
                if run.id in self._watched:
                    continue
                self._watched.add(run.id)
                run.branches.watch(lambda branch: self._mark())
                if run.state is not RunState.ENDED:
                    run.observe(self._observer(self.feed.of(run)))
                    run.limits.subscribe(lambda before, after, by: self._redrawer.mark())

    def _observer(self, of_run: feed.RunFeed) -> Callable[[Event], None]:
        take, mark = of_run.take, self._redrawer.mark

        def observe(event: Event) -> None:
            take(event)
            mark()

        return observe

    def _mark(self) -> None:
        self._watch()
        self._redrawer.mark()

    def _tell(self, **more: Any) -> None:
        if not self._pages:  # a page that opens later says so, and gets everything
            if not self._unheard:
                return
            self.feed.forget()
            more = {"open": self.run.id, "page": "every", **more}
        news = self.feed.news() | more
        together = actions.together(self.lockstep)
        if together != self._together:
            self._together = news["all"] = together
        if news:
            self.widget.tell(news)

    def _show(self) -> None:
        self._tell()

    def _report(self, fault: str) -> None:
        self.widget.tell({"fault": fault})

    def _display_(self) -> Any:
        """Return what marimo shows: the live widget, anew if the cell is executed again, which closes the one before.

        marimo reads no messages while a cell awaits a run. Until the page is heard, each message has everything.
        """
        if not has_page():
            return super()._display_()
        if self._widget is not None and getattr(self._widget.comm, "_closed", False):
            self._widget, self._pages = PageWidget(self.carry_out, self._kept_class), set()
        self._unheard = not self._pages
        return self.widget

    def _is_under_way(self) -> bool:
        return any(member.run.state is RunState.RUNNING for one in self.runs for member in family_of(one))

    def _finished(self) -> object:
        return frozenset(one.id for one in (*self.runs, self.run) if one.result is not None) or None

    # Without a kernel -------------------------------------------------------------------------------------------------------

    def to_html(
        self, path: str | os.PathLike[str] | None = None, *, timing: bool = True, raw: bool | Iterable[int] = False
    ) -> str | Path:
        """Write the runs and their branches as one HTML file; see `Run.to_html`."""
        return to_html(self.runs, path, timing=timing, raw=raw)

    def _static(self) -> StaticPanel:
        return StaticPanel(self.run, self.runs)

    def __repr__(self) -> str:
        return f"Panel({self.run!r})" if self.lockstep is None else f"Panel({list(self.runs)!r})"

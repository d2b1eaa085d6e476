"""The browser of a store: a grid of its runs, which opens and compares them in the page."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import traitlets

from agentlab._internal.formatting import counted
from agentlab._internal.redaction import text_of
from agentlab._internal.safe_text import cut, one_line, printable
from agentlab.errors import AgentlabError, ConfigurationError
from agentlab.notebook import markup
from agentlab.notebook.live_view import LiveView, Picture, StaticOutputs, panel_html
from agentlab.notebook.page import browse_script, document, written
from agentlab.notebook.page.data import as_json, page_data
from agentlab.notebook.page.steps import on_one_line
from agentlab.notebook.panel.page_widget import PageWidget
from agentlab.storage.listing import RunSummary, summaries
from agentlab.storage.store import Store

JSON = dict[str, Any]

LONGEST_PROMPT = 300
"""Characters of a prompt that are listed and filtered by."""
MOST_STATIC = 50
"""Runs in the table for readers without a kernel."""

_FIELDS = tuple(field.name for field in fields(RunSummary))


def browse(store: Store | str | os.PathLike[str]) -> Browser:
    """Return a grid of the runs in a store: filter and sort them, open one, compare the ticked ones.

    `store` is the path of a SQLite file, or a `lab.Store`. As the last expression of a cell the grid displays itself; Refresh reads the
    store again, with the runs that any process has added. Runs are opened read-only: nothing in the store changes. The page also has
    the code that loads a run, and for an interrupted or waiting run the code that resumes it. Without a live page, the newest 50 runs
    are shown as a table.

    `to_html("runs.html")` writes the grid as one file that works without a kernel and without a network. It holds the runs too, the
    newest first, up to `max_mb` megabytes (20); the others are listed, but cannot be opened there.
    Errors: ConfigurationError if there is no such file, and for anything but a path or a store; StorageError for another kind of file.

    Example:
        >>> store = lab.Store()
        >>> run = store.keep(brief.run("What is the capital of France?"))
        >>> result = await run
        >>> lab.browse(store)
        Browser(Store('MemoryStorage'))
        >>> len(lab.browse(store).to_html()) > 10_000
        True
        >>> lab.browse("no.db")
        Traceback (most recent call last):
            ...
        agentlab.errors.ConfigurationError: browse('no.db'): there is no such file. lab.Store('no.db') makes one, and...
    """
    given: object = store
    if isinstance(given, Store):
        return Browser(given, _name_of(given), "store")
    if not isinstance(given, str | os.PathLike) or not (path := os.fspath(given)) or not isinstance(path, str):
        raise ConfigurationError(
            f"browse({cut(text_of(given, repr), 80)}): pass the path of a store, such as 'runs.db', or a lab.Store."
        )
    file = Path(path).expanduser()
    if not file.is_file():
        what = (
            "that is a folder; pass the file of a store"
            if file.is_dir()
            else (f"there is no such file. lab.Store({path!r}) makes one, and lab.Agent(…, observers=[store]) records runs in it")
        )
        raise ConfigurationError(f"browse({path!r}): {what}.")
    return Browser(Store(file), file.name, f"lab.Store({path!r})")


def _name_of(store: Store) -> str:
    path = getattr(store.storage, "path", "")
    return Path(path).name if path and path != ":memory:" else "Runs in memory"


class Browser(LiveView):
    """The runs of a store. It reads the store each time that a page asks, and has no state of the runs.

    As the last expression of a cell it displays itself. `code` is what gets hold of the store in code.
    """

    def __init__(self, store: Store, name: str, code: str) -> None:
        super().__init__()
        self.store = store
        self._name, self._code = one_line(name), code

    @property
    def widget(self) -> PageWidget:
        """The live widget, created on first access."""
        if self._widget is None:
            self._widget = _BrowseWidget(self.carry_out, self._kept_class)
        return self._widget  # type: ignore[no-any-return]

    def carry_out(self, message: Mapping[str, Any]) -> Any:
        """Do what the page asks for, and return its answer. Raises what reading the store raises."""
        match message:
            case {"do": "hello"}:
                return None
            case {"do": "list"}:
                return self._listing(summaries(self.store))
            case {"do": "open", "runs": [_, *_] as ids}:
                runs = [self.store.load(str(run_id)) for run_id in ids]
                return as_json(page_data(runs, self._name))
        raise ConfigurationError(f"{str(message.get('do'))[:40]!r}: the browser of a store has no such command.")

    def _listing(self, runs: list[RunSummary]) -> JSON:
        safe = functools.cache(on_one_line)
        prompt = functools.cache(lambda text: on_one_line(cut(text, LONGEST_PROMPT), LONGEST_PROMPT))

        def values(run: RunSummary) -> list[Any]:
            said: JSON = {"agent": safe(run.agent), "model": safe(run.model), "prompt": prompt(run.prompt)}
            said |= {"stop_reason": run.stop_reason and safe(run.stop_reason), "waits_for": list(map(safe, run.waits_for))}
            return [said[name] if name in said else getattr(run, name) for name in _FIELDS]

        named = ["id", *_FIELDS[1:]]
        return {"title": self._name, "store": self._code, "fields": named, "rows": [values(run) for run in runs]}

    # Without a kernel -------------------------------------------------------------------------------------------------------

    def to_html(self, path: str | os.PathLike[str] | None = None, *, max_mb: float = 20) -> str | Path:
        """Return the grid as one HTML file; with a path write it there and return the path. See `lab.browse`.

        Raises ConfigurationError for a `max_mb` that is not a number of at least 0, and for a path that cannot be written.
        """
        if not isinstance(max_mb, int | float) or isinstance(max_mb, bool) or not max_mb >= 0:
            raise ConfigurationError(
                f"to_html(max_mb={max_mb!r}): pass a number of megabytes, such as 20; 0 lists the runs only."
            )
        return written(path, lambda: self._page(max_mb))

    def _page(self, max_mb: float) -> str:
        runs = summaries(self.store)
        held, data, left = dict[str, int](), dict[str, str](), max_mb * 1e6
        for run in runs if left else ():
            try:
                text = as_json(page_data([self.store.load(run.run_id)], self._name))
            except AgentlabError:  # a damaged run
                continue
            size = len(text.encode())
            if size > left and size <= max_mb * 1e6:
                break
            if size <= left:
                held[run.run_id] = len(held)
                data[f"agentlab-run-{held[run.run_id]}"] = text
                left -= size
        about = ""
        if len(held) < len(runs):
            about = (
                f"{len(held):,} of {counted(len(runs), 'run')} can be opened in this file, the newest first, up to {max_mb:g} MB."
            )
        code = "store" if self._code == "store" else f"lab.Store({self._name!r})"  # without the folders of this machine
        listing = as_json({**self._listing(runs), "store": code, "held": held, "about": about, "runs": []})
        return document(self._name, {"agentlab-runs": listing, **data}, browse_script(live=False))

    def _static(self) -> StaticOutputs:
        return _Table(self._name, summaries(self.store))

    def __repr__(self) -> str:
        return f"Browser({self.store!r})"


class _BrowseWidget(PageWidget):
    @traitlets.default("_esm")
    def _script(self) -> str:
        return browse_script(live=True)


class _Table(StaticOutputs):
    """The newest runs as a table, for readers without a kernel."""

    def __init__(self, name: str, runs: list[RunSummary]) -> None:
        self._name, self._runs = name, runs

    def text(self) -> str:
        """One line for each run."""
        lines = [self._title()]
        for run in self._runs[:MOST_STATIC]:
            used = [counted(run.steps, "step"), f"{markup.tokens(run.tokens)} tokens", f"{markup.dollars(run.cost_usd)} cost"]
            lines.append(f"{run.run_id}  {one_line(run.agent)}  {_outcome(run)}  {', '.join(used)}  {one_line(run.prompt)}")
        return printable("\n".join(lines))

    def html(self, pictures: str = "") -> str:
        """The table."""
        heads = ["Run", "Agent", "Model", "Prompt", "State", "Steps", "Tokens", "Cost", "Time", "Started (UTC)"]
        rows = []
        for run in self._runs[:MOST_STATIC]:
            named = [markup.Markup(markup.name(text)) if text else "unknown" for text in (run.run_id, run.agent, run.model)]
            time = "unknown" if run.elapsed_s is None else markup.duration(run.elapsed_s)
            used = [f"{run.steps:,}", markup.tokens(run.tokens), markup.dollars(run.cost_usd), time]
            begun = datetime.fromtimestamp(run.begun_at, UTC).strftime("%Y-%m-%d %H:%M")
            prompt = markup.Markup(f"<bdi>{markup.escape(one_line(run.prompt, 100))}</bdi>") if run.prompt else ""
            rows.append((*named, prompt, _outcome(run), *used, begun))
        table = markup.table(heads, rows, numbers=(5, 6, 7, 8)) if rows else markup.note(_TO_FILL)
        return panel_html(f"<b>{markup.escape(self._title())}</b>", table)

    def pictures(self) -> list[Picture]:
        """None."""
        return []

    def _title(self) -> str:
        number, newest = len(self._runs), f", the newest {MOST_STATIC}" if len(self._runs) > MOST_STATIC else ""
        return f"{self._name}: {counted(number, 'run')}{newest}"


_TO_FILL = (
    "This store has no runs yet. Record the runs of an agent with lab.Agent(…, observers=[store]), or one with store.keep(run)."
)


def _outcome(run: RunSummary) -> str:
    if run.stop_reason is not None:
        return one_line(run.stop_reason.replace("_", " "))
    return {"waiting": "waiting for approval", "damaged": "cannot be read"}.get(run.state, run.state)

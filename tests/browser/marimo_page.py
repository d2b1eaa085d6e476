"""A real marimo server on loopback, and a page of it. marimo has no Jupyter kernel, and shows widgets in shadow trees."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from playwright.sync_api import Page, expect

from .jupyter import JupyterServer
from .widget_page import WidgetPage

APP = "app.py"
START_MS = 90_000  # a new process imports agentlab


class Marimo(JupyterServer):
    """marimo's editor, or with `run` its apps, which show outputs only and are executed for each visitor."""

    name = "marimo"
    probe = "health"

    def __init__(self, environment: Mapping[str, str], mode: Literal["edit", "run"] = "edit") -> None:
        super().__init__(environment=environment)
        self.mode = mode
        self._written = itertools.count()

    def write_notebook(self, name: str, cells: Sequence[str]) -> Path:
        """Write a notebook of these cells under the server's root; a server of apps has a single one.

        Each test has its own file, since the server resumes the session of a notebook whose test is run a second time.
        """
        path = self.root / (f"{name}-{next(self._written)}.py" if self.mode == "edit" else APP)
        bodies = [f"@app.cell\nasync def _():\n{textwrap.indent(cell.strip(), '    ')}\n" for cell in cells]
        path.write_text("\n\n".join(["import marimo\n\napp = marimo.App(width='full')", *bodies]), encoding="utf-8")
        return path

    def page_url(self, notebook: Path) -> str:
        """The page of this notebook."""
        return f"{self.url}?file={notebook.name}" if self.mode == "edit" else self.url

    def _prepare(self) -> None:
        if self.mode == "run":
            self.write_notebook(APP, [])

    def _write_kernelspec(self) -> None:
        """marimo has its own kernels."""

    def _arguments(self) -> list[str]:
        what = [str(self.root), "--skip-update-check"] if self.mode == "edit" else [str(self.root / APP)]
        return ["-m", "marimo", "-y", self.mode, *what, "--headless", "--no-token", f"-p{self.port}"]

    def _address(self) -> str:
        return f"http://127.0.0.1:{self.port}/"


class MarimoPage(WidgetPage):
    """A page of marimo."""

    def __init__(self, page: Page, marimo: Marimo, timeout_s: float = 30) -> None:
        super().__init__(page, timeout_s)
        self.marimo = marimo

    def open(self, notebook: Path) -> None:
        """Open the page of a notebook; in the editor, execute its cells."""
        self.page.goto(self.marimo.page_url(notebook))
        if self.marimo.mode == "edit":
            stale = self.page.locator(".needs-run")
            expect(stale.first).to_be_visible()
            while stale.count():  # a click before the page is connected is lost
                self.page.get_by_test_id("run-button").last.click()
                self.page.wait_for_timeout(500)

    def wait_for_panel(self) -> None:
        """Wait until the panel has its data."""
        expect(self.button("Run")).to_be_visible(timeout=START_MS)

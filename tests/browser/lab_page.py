"""One browser page with a notebook open in JupyterLab: run cells, press buttons, change numbers, read outputs.

`LabPage` drives Playwright's synchronous interface. While Playwright runs, its thread has a running event loop, so that
`asyncio.run` fails there: tests that use a page are plain functions, and the browser is closed after the last of them.
"""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

from playwright.sync_api import Error, Locator, Page, expect

from .jupyter import JupyterLab
from .widget_page import POLLING_MS, WidgetPage

LIGHT, DARK = "JupyterLab Light", "JupyterLab Dark"
OPEN_TIMEOUT_S = 90

# JupyterLab's own objects, which --expose-app-in-browser makes available to a page.
NOTEBOOK = "const app = window.jupyterapp; const panel = app.shell.currentWidget; const session = panel.context.sessionContext;"
IS_READY = """() => {
    const panel = window.jupyterapp?.shell?.currentWidget;
    const session = panel?.context?.sessionContext;
    return Boolean(panel?.content?.widgets && panel.context.isReady && session.isReady
        && session.session?.kernel && session.kernelDisplayStatus === 'idle');
}"""


class LabPage(WidgetPage):
    """A notebook in JupyterLab or Notebook 7. Every failed wait raises a Playwright error that says what was awaited."""

    css = "css:light"  # a notebook has no shadow trees: Playwright need not look for them in thousands of elements at each poll
    outputs = ".jp-Notebook .jp-Cell-outputArea"

    def __init__(self, page: Page, jupyter: JupyterLab, timeout_s: float = 30) -> None:
        super().__init__(page, timeout_s)
        self.jupyter = jupyter

    def open(self, notebook: Path) -> None:
        """Open a notebook under the server's root, and wait until its kernel is idle."""
        self.page.goto(self.jupyter.page_url(notebook))
        self.wait_until_ready()

    def reload(self) -> None:
        """Reload the page, as with F5."""
        self.page.reload()
        self.wait_until_ready()

    def wait_until_ready(self) -> None:
        """Wait until the notebook is shown, its kernel is idle, and no dialog is open."""
        try:
            self.page.wait_for_function(IS_READY, polling=POLLING_MS, timeout=OPEN_TIMEOUT_S * 1000)
        except Error as problem:
            raise AssertionError(f"the notebook did not come up: {self._state()}\n{self.jupyter.log()}") from problem
        dialog = self.page.locator(".jp-Dialog")
        if dialog.count() and "Directory not found" in dialog.first.inner_text():
            dialog.first.get_by_role("button").last.click()  # the file browser, while the last test's notebooks were deleted
        elif dialog.count():
            raise AssertionError(f"a dialog is in the way: {dialog.first.inner_text()!r}")

    def wait_until_busy(self) -> None:
        """Wait until a cell that was sent without waiting is running."""
        self.page.wait_for_function(f"() => {{ {NOTEBOOK} return session.kernelDisplayStatus === 'busy'; }}", polling=POLLING_MS)

    def run_cell(self, index: int, *, wait: bool = True) -> None:
        """Run the cell at this index, counted from 0; with `wait`, until it ends."""
        self._run(f"panel.content.activeCellIndex = {index}; app.commands.execute('notebook:run-cell')", wait)

    def run_all(self, *, wait: bool = True) -> None:
        """Run every cell; with `wait`, until the last one ends."""
        self._run("app.commands.execute('notebook:run-all-cells')", wait)

    def cell(self, index: int) -> Locator:
        """The cell at this index."""
        return self.page.locator(f"{self.css}=.jp-Notebook .jp-Cell").nth(index)

    def output(self, index: int) -> Locator:
        """The output below the cell at this index, including its widgets."""
        return self.cell(index).locator(".jp-Cell-outputArea")

    def wait_for_output(self, index: int, text: str | re.Pattern[str], timeout_s: float | None = None) -> None:
        """Wait until the cell's output contains the text."""
        expect(self.output(index)).to_contain_text(text, timeout=self._timeout_ms if timeout_s is None else timeout_s * 1000)

    def use_theme(self, theme: str) -> None:
        """Switch JupyterLab's theme, `DARK` or `LIGHT`, and wait until the page shows it."""
        self.page.evaluate("theme => window.jupyterapp.commands.execute('apputils:change-theme', { theme })", theme)
        self.page.wait_for_function("theme => document.body.dataset.jpThemeName === theme", arg=theme, polling=POLLING_MS)
        expect(self.page.locator(".jp-LabSplash, #jupyterlab-splash")).to_have_count(0)

    def save(self) -> dict[str, Any]:
        """Save the notebook and return the content of its file."""
        path = self.page.evaluate(f"async () => {{ {NOTEBOOK} await panel.context.save(); return panel.context.path; }}")
        document: dict[str, Any] = json.loads((self.jupyter.root / path).read_text(encoding="utf-8"))
        return document

    def wait_for_saved(self, index: int, text: str) -> dict[str, Any]:
        """Save the notebook until the HTML of the cell's output contains this text; return that output."""
        deadline = time.monotonic() + self._timeout_ms / 1000
        while True:
            for output in self.save()["cells"][index]["outputs"]:
                if text in "".join(output.get("data", {}).get("text/html", "")):
                    return dict(output)
            assert time.monotonic() < deadline, f"{text!r} did not come into what is saved"
            self.page.wait_for_timeout(100)

    def kernel_value(self, expression: str) -> str:
        """The repr of an expression in the kernel, evaluated silently. It waits for a running cell, but not for recent clicks
        and input, which arrive on another channel (a subshell).
        """
        ask = """async expression => { %s
            const ask = { code: '', silent: true, store_history: false, user_expressions: { value: expression } };
            const reply = await session.session.kernel.requestExecute(ask).done;
            const value = reply.content.user_expressions.value;
            return value.status === 'ok' ? value.data['text/plain'] : value.ename + ': ' + value.evalue;
        }"""
        return str(self.page.evaluate(ask % NOTEBOOK, expression))

    def wait_for_kernel(self, expression: str, value: str) -> None:
        """Wait until the expression has this repr in the kernel: the click or input has arrived there."""
        deadline = time.monotonic() + self._timeout_ms / 1000
        while (found := self.kernel_value(expression)) != value:
            assert time.monotonic() < deadline, f"{expression} is {found}, not {value}"
            self.page.wait_for_timeout(50)

    def restart_kernel(self) -> None:
        """Restart the kernel without JupyterLab's confirmation."""
        self.page.evaluate(f"async () => {{ {NOTEBOOK} await session.session.kernel.restart(); }}")
        self.wait_until_ready()

    def interrupt(self) -> None:
        """Press the square stop button."""
        self.page.evaluate(f"() => {{ {NOTEBOOK} return app.commands.execute('notebook:interrupt-kernel'); }}")

    def _run(self, script: str, wait: bool) -> None:
        """Run a script in the page; its last expression is a promise, awaited or ignored."""
        head, _, last = script.rpartition(";")
        self.page.evaluate(f"async () => {{ {NOTEBOOK} {head}; {'await' if wait else 'void'} {last}; }}")

    def _state(self) -> str:
        dialogs = self.page.locator(".jp-Dialog").all_inner_texts()
        return f"dialogs {dialogs}, at {self.page.url.split('?')[0]}, console {self.console[-10:]}"

"""One page with JupyterLab open, one notebook in it and one kernel, lent to one test after another: loading Lab, opening a notebook
and starting a kernel take longer than most tests.

A test finds the same state as in a new page: the cells of its notebook only, the light theme, a kernel without names, widgets or
runs. State that cannot be reset is discarded, and the next test gets a new page.
"""

from __future__ import annotations

import contextlib
import urllib.error
from functools import cache
from pathlib import Path
from typing import Any

from end_and_forget import END_AND_FORGET
from playwright.sync_api import Browser, BrowserContext, Error, Page, ViewportSize

from .jupyter import KERNEL_NAME, JupyterLab, JupyterServer
from .lab_page import LIGHT, NOTEBOOK, OPEN_TIMEOUT_S, POLLING_MS, LabPage

VIEWPORT: ViewportSize = {"width": 1280, "height": 900}
KERNEL_TIMEOUT_S = 30

ASK = """async ([code, seconds]) => { %s
    const ask = { code, silent: true, store_history: false, user_expressions: { left: '__left' } };
    const asked = session.session.kernel.requestExecute(ask).done;
    const late = new Promise(resolve => setTimeout(resolve, 1000 * seconds, null));
    const reply = await Promise.race([asked, late]);
    return reply?.content?.user_expressions?.left?.data?.['text/plain'] ?? 'no answer';
}"""

PLACE = "shared.ipynb"  # the file of the notebook that is open, under the server's root

CLOSE = """all => {
    const shell = window.jupyterapp.shell;
    for (const panel of [...shell.widgets('main')].filter(panel => all || !panel.context)) {
        if (panel.context) panel.context.model.dirty = false;
        panel.dispose();
    }
    for (const panel of shell.widgets('main')) shell.activateById(panel.id);
}"""

OPEN = "async path => { await window.jupyterapp.commands.execute('docmanager:open', { path, factory: 'Notebook' }); }"

READ_AGAIN = """async () => {
    const panel = window.jupyterapp.shell.currentWidget;
    panel.context.model.dirty = false;
    await panel.context.revert();
    panel.content.node.scrollTop = 0;
    panel.content.mode = 'command';
    panel.content.activate();
}"""


@cache
def context_of(server: JupyterServer, browser: Browser) -> BrowserContext:
    """The browser context of all pages of a server: they share what the browser keeps, such as JupyterLab's compiled code."""
    return browser.new_context(viewport=VIEWPORT)


class SharedPage(LabPage):
    """A JupyterLab page with one notebook, on the kernel of its desk: to open another one, its cells are replaced."""

    def __init__(self, page: Page, jupyter: JupyterLab) -> None:
        super().__init__(page, jupyter)
        self.session: dict[str, Any] | None = None  # the server's session with the kernel that the last test left in order
        self._load()

    def open(self, notebook: Path) -> None:
        """Show the cells of this notebook and wait until the kernel is idle."""
        (self.jupyter.root / PLACE).write_bytes(notebook.read_bytes())
        if self.session is None:
            self.session = self._begin()
        else:
            self.page.evaluate(READ_AGAIN)
        self.wait_until_ready()

    def reload(self) -> None:
        """Reload the page once JupyterLab has saved that the notebook is open, which it does some time afterwards."""
        while PLACE not in str(self.jupyter.request("lab/api/workspaces/shared")["data"].get("layout-restorer:data")):
            self.page.wait_for_timeout(POLLING_MS)
        super().reload()

    def put_in_order(self) -> None:
        """Reset the page and the kernel to their state before the test."""
        self.page.evaluate(CLOSE, False)
        if self.session is not None:
            left = self.page.evaluate(ASK % NOTEBOOK, [END_AND_FORGET, KERNEL_TIMEOUT_S])
            if left != "[]":
                self.page.evaluate(CLOSE, True)
                self.end_kernel()
        if self.page.locator("body").get_attribute("data-jp-theme-name") != LIGHT:
            self.use_theme(LIGHT)
        self.page.set_viewport_size(VIEWPORT)
        self.console.clear()

    def end_kernel(self) -> None:
        """Give the next test a new kernel."""
        if self.session is not None:
            with contextlib.suppress(urllib.error.HTTPError):  # the server no longer knows it
                self.jupyter.request(f"api/sessions/{self.session['id']}", "DELETE")
            self.session = None

    def _load(self) -> None:
        """Load Lab, without a notebook."""
        self.page.goto(f"{self.jupyter.url}lab/workspaces/shared?token={self.jupyter.token}&reset")
        self.page.wait_for_function(
            "() => Boolean(window.jupyterapp?.restored)", polling=POLLING_MS, timeout=OPEN_TIMEOUT_S * 1000
        )
        self.page.evaluate("async () => { await window.jupyterapp.restored; }")

    def _begin(self) -> dict[str, Any]:
        """Start a kernel and open the notebook, whose file is written, with it."""
        kernel = {"name": KERNEL_NAME}
        asked = {"path": PLACE, "name": PLACE, "type": "notebook", "kernel": kernel}
        session: dict[str, Any] = self.jupyter.request("api/sessions", "POST", asked)
        self.page.evaluate(OPEN, PLACE)
        return session


class SharedNotebook7(SharedPage):
    """The same in Notebook 7, whose page is that of one notebook."""

    reload = LabPage.reload  # the notebook is in the page's address

    def _load(self) -> None:
        """There is no page without a notebook."""

    def _begin(self) -> dict[str, Any]:
        self.page.goto(self.jupyter.page_url(self.jupyter.root / PLACE))
        self.wait_until_ready()
        (session,) = self.jupyter.request("api/sessions")
        return dict(session)


class Desk:
    """Lends the shared page and takes it back."""

    def __init__(self, browser: Browser, jupyter: JupyterLab, kind: type[SharedPage] = SharedPage) -> None:
        self.browser = browser
        self.jupyter = jupyter
        self._kind = kind
        self._page: SharedPage | None = None

    @property
    def session_id(self) -> str | None:
        """The id of the shared kernel's session on the server, None if there is none yet."""
        return self._page.session["id"] if self._page is not None and self._page.session is not None else None

    def lend(self) -> SharedPage:
        """The page in its initial state."""
        if self._page is None:
            self._page = self._kind(context_of(self.jupyter, self.browser).new_page(), self.jupyter)
        return self._page

    def take_back(self, *, broken: bool) -> None:
        """Reset the page; with `broken`, or if that fails, the next test gets a new one."""
        page = self._page
        assert page is not None
        try:
            if not broken:
                page.put_in_order()
        except Error:
            broken = True
        if broken:
            self.close()
        self.jupyter.tidy(keep=self.session_id)

    def close(self) -> None:
        """Close the page and end its kernel."""
        if self._page is not None:
            self._page.end_kernel()
            self._page.page.close()
            self._page = None

"""One page with JupyterLab open and one kernel, lent to one test after another: loading Lab and starting a kernel take longer
than most tests.

A test finds the same state as in a new page: no open notebook, the light theme, a kernel without names, widgets or runs. State that
cannot be reset is discarded, and the next test gets a new page.
"""

from __future__ import annotations

import contextlib
import urllib.error
from functools import cache
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, BrowserContext, Error, Page, ViewportSize

from .jupyter import KERNEL_NAME, JupyterLab, JupyterServer
from .lab_page import LIGHT, NOTEBOOK, OPEN_TIMEOUT_S, LabPage

VIEWPORT: ViewportSize = {"width": 1280, "height": 900}
KERNEL_TIMEOUT_S = 30

END_AND_FORGET = """
def __end_and_forget():
    import gc, sys, threading, time
    lab, view = map(sys.modules.get, ("agentlab", "agentlab.notebook.live_view"))
    known = gc.get_objects()
    for one in known if view else ():
        if view.LiveView in type(one).__mro__:
            one._shown_live = False  # no picture of the end for a notebook that is closed next
    for one in known if lab else ():
        if type(one) in (lab.Run, lab.Lockstep):
            one.cancel()
    del known
    for widgets in filter(None, [sys.modules.get("ipywidgets")]):
        widgets.Widget.close_all()
    deadline = time.monotonic() + 5
    def left():
        while (names := [thread.name for thread in threading.enumerate() if thread.name.startswith("agentlab-")]):
            if time.monotonic() > deadline:
                break
            time.sleep(0.01)
        return names
    left()
    get_ipython().reset(new_session=False)
    gc.collect()
    gc.freeze()  # what the libraries made: the next collections leave it out
    return left()
__left = __end_and_forget()
"""

ASK = """async ([code, seconds]) => { %s
    const ask = { code, silent: true, store_history: false, user_expressions: { left: '__left' } };
    const asked = session.session.kernel.requestExecute(ask).done;
    const late = new Promise(resolve => setTimeout(resolve, 1000 * seconds, null));
    const reply = await Promise.race([asked, late]);
    return reply?.content?.user_expressions?.left?.data?.['text/plain'] ?? 'no answer';
}"""

CLOSE = """() => {
    for (const panel of [...window.jupyterapp.shell.widgets('main')].filter(panel => panel.context)) {
        panel.context.model.dirty = false;
        panel.dispose();
    }
}"""

OPEN = "async path => { await window.jupyterapp.commands.execute('docmanager:open', { path, factory: 'Notebook' }); }"


@cache
def context_of(server: JupyterServer, browser: Browser) -> BrowserContext:
    """The browser context of all pages of a server: they share what the browser keeps, such as JupyterLab's compiled code."""
    return browser.new_context(viewport=VIEWPORT)


class SharedPage(LabPage):
    """A JupyterLab page that opens notebooks in tabs, on the kernel of its desk."""

    def __init__(self, page: Page, jupyter: JupyterLab) -> None:
        super().__init__(page, jupyter)
        self.session: dict[str, Any] | None = None  # the server's session id, with the kernel that the last test left in order
        page.goto(f"{jupyter.url}lab/workspaces/shared?token={jupyter.token}&reset")
        page.wait_for_function("() => Boolean(window.jupyterapp?.restored)", timeout=OPEN_TIMEOUT_S * 1000)
        page.evaluate("async () => { await window.jupyterapp.restored; }")

    def open(self, notebook: Path) -> None:
        """Open a notebook in a new tab and wait until its kernel is idle."""
        path = notebook.relative_to(self.jupyter.root).as_posix()
        if self.session is None:
            kernel = {"name": KERNEL_NAME}
            self.session = self.jupyter.request(
                "api/sessions", "POST", {"path": path, "name": path, "type": "notebook", "kernel": kernel}
            )
        else:
            self.jupyter.request(f"api/sessions/{self.session['id']}", "PATCH", {"path": path, "name": path})
        self.page.evaluate(OPEN, path)
        self.wait_until_ready()

    def put_in_order(self) -> None:
        """Reset the page and the kernel to their state before the test."""
        if self.session is not None:
            left = self.page.evaluate(ASK % NOTEBOOK, [END_AND_FORGET, KERNEL_TIMEOUT_S])
            if left != "[]":
                self.end_kernel()
        self.page.evaluate(CLOSE)
        if self.page.locator("body").get_attribute("data-jp-theme-name") != LIGHT:
            self.use_theme(LIGHT)
        self.page.set_viewport_size(VIEWPORT)
        self.console.clear()

    def end_kernel(self) -> None:
        """Give the next test a new page."""
        if self.session is not None:
            with contextlib.suppress(urllib.error.HTTPError):  # the server no longer knows it
                self.jupyter.request(f"api/sessions/{self.session['id']}", "DELETE")
            self.session = None


class Desk:
    """Lends the shared page and takes it back."""

    def __init__(self, browser: Browser, jupyter: JupyterLab) -> None:
        self.browser = browser
        self.jupyter = jupyter
        self._page: SharedPage | None = None

    @property
    def session_id(self) -> str | None:
        """The id of the shared kernel's session on the server, None if there is none yet."""
        return self._page.session["id"] if self._page is not None and self._page.session is not None else None

    def lend(self) -> SharedPage:
        """The page in its initial state."""
        if self._page is None:
            self._page = SharedPage(context_of(self.jupyter, self.browser).new_page(), self.jupyter)
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

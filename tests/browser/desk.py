"""One page with JupyterLab open and one kernel, lent to one test after another: loading Lab and starting a kernel take longer
than most tests do.

A test finds what it would find in a page of its own: no notebook open, the light theme, a kernel without names, widgets or runs.
What cannot be put back in order is thrown away, and the next test has it new.
"""

from __future__ import annotations

import contextlib
import urllib.error
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Error, Page, ViewportSize

from .jupyter import KERNEL_NAME, JupyterLab
from .lab_page import LIGHT, NOTEBOOK, OPEN_TIMEOUT_S, LabPage

VIEWPORT: ViewportSize = {"width": 1280, "height": 900}
KERNEL_TIMEOUT_S = 30

END_AND_FORGET = """
def __end_and_forget():
    import gc, sys, threading, time
    lab = sys.modules.get("agentlab")
    if lab is not None:
        for one in [one for one in gc.get_objects() if type(one) in (lab.Run, lab.Lockstep)]:
            one.cancel()
    for widgets in filter(None, [sys.modules.get("ipywidgets")]):
        widgets.Widget.close_all()
    deadline = time.monotonic() + 5
    def left():
        return [thread.name for thread in threading.enumerate() if thread.name.startswith("agentlab-")]
    while left() and time.monotonic() < deadline:
        time.sleep(0.01)
    get_ipython().reset(new_session=False)
    gc.collect()
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


class SharedPage(LabPage):
    """A page of Lab that opens notebooks in tabs, on the kernel that it has from its desk."""

    def __init__(self, page: Page, jupyter: JupyterLab) -> None:
        super().__init__(page, jupyter)
        self.session: dict[str, Any] | None = None  # of the server, with the kernel that the last test left in order
        page.goto(f"{jupyter.url}lab/workspaces/shared?token={jupyter.token}&reset")
        page.wait_for_function("() => Boolean(window.jupyterapp?.restored)", timeout=OPEN_TIMEOUT_S * 1000)
        page.evaluate("async () => { await window.jupyterapp.restored; }")

    def open(self, notebook: Path) -> None:
        """Open a notebook in a tab of its own, and wait until its kernel is idle."""
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
        """Leave the page and the kernel as they were before the test."""
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
        """The next test has a new one."""
        if self.session is not None:
            with contextlib.suppress(urllib.error.HTTPError):  # a server that knows it no more
                self.jupyter.request(f"api/sessions/{self.session['id']}", "DELETE")
            self.session = None


class Desk:
    """Where the shared page is lent and given back."""

    def __init__(self, browser: Browser, jupyter: JupyterLab) -> None:
        self.browser = browser
        self.jupyter = jupyter
        self._page: SharedPage | None = None

    @property
    def session_id(self) -> str | None:
        """What the server calls the session of the shared kernel, None as long as there is none."""
        return self._page.session["id"] if self._page is not None and self._page.session is not None else None

    def lend(self) -> SharedPage:
        """The page, in order."""
        if self._page is None:
            self._page = SharedPage(self.browser.new_context(viewport=VIEWPORT).new_page(), self.jupyter)
        return self._page

    def take_back(self, *, broken: bool) -> None:
        """Put the page in order; with `broken`, or where that cannot be done, the next test has a new one."""
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
            self._page.page.context.close()
            self._page = None

"""A browser page with widgets in it: press buttons, change numbers, read what stands there, whichever front end shows it."""

from __future__ import annotations

import re
from pathlib import Path

from playwright.sync_api import ConsoleMessage, Locator, Page, expect

LIVE = ".agentlab-panel.jupyter-widgets"
"""The live panel: beside it stands, out of sight, what readers without a kernel see."""


class WidgetPage:
    """What the pages of all front ends have in common. `outputs` is a selector of all places that widgets stand in.

    The kernel draws a panel part by part, and each value comes to the page by itself: what one part says does not yet stand in the
    next. So a test waits for the very thing that it is about to press or to read.
    """

    outputs = "body"

    def __init__(self, page: Page, timeout_s: float = 30) -> None:
        self.page = page
        self.console: list[str] = []  # what the page wrote to the browser's console
        self._timeout_ms = timeout_s * 1000
        page.set_default_timeout(self._timeout_ms)
        page.on("console", self._note)

    def button(self, text: str) -> Locator:
        """The widget button with this text."""
        return self._outputs().get_by_role("button", name=text, exact=True)

    def press(self, text: str, key: str) -> None:
        """Press this button with a key, as soon as it can be pressed: a click waits for that, a key is lost on it until then."""
        self.focus(text)
        self.page.keyboard.press(key)

    def focus(self, text: str) -> None:
        """Give this button the focus, as soon as it can have it."""
        expect(self.button(text)).to_be_enabled()
        self.button(text).focus()
        expect(self.button(text)).to_be_focused()

    def number(self, label: str) -> Locator:
        """The number box that carries this label (a widget's description)."""
        return self._outputs().get_by_label(label, exact=True).and_(self.page.locator("input"))

    def set_number(self, label: str, value: float) -> None:
        """Type a number into the box and leave it with Tab, which is what makes the widget take it."""
        box = self.number(label)
        box.fill(str(value))
        box.press("Tab")

    @property
    def status(self) -> Locator:
        """The line of the live panel that says where its run is; "ready" and "paused" may well stand elsewhere, too."""
        return self.page.locator(f"{LIVE} .agentlab-status").locator("visible=true")

    def wait_for_status(self, text: str | re.Pattern[str]) -> None:
        """Wait until the line says so."""
        expect(self.status).to_contain_text(text)

    def wait_for_steps(self, number: int, timeout_s: float | None = None) -> None:
        """Wait until the panel says that so many steps have been taken."""
        status = f"document.querySelector('{LIVE} .agentlab-status')"
        taken = f"number => Number({status}?.innerText.match(/step (\\d+)/)?.[1]) >= number"
        self.page.wait_for_function(taken, arg=number, timeout=self._timeout_ms if timeout_s is None else timeout_s * 1000)

    def wait_for_pointer(self, of: Locator | None = None) -> None:
        """Wait until rows and charts can be clicked, in the live panel or in what is given: clicks are lost until then."""
        expect((self.page.locator(LIVE) if of is None else of).locator(".agentlab-pointer")).not_to_have_count(0)

    def screenshot(self, path: Path, of: Locator | None = None) -> Path:
        """Save a picture of the page, or of one part of it."""
        path.parent.mkdir(parents=True, exist_ok=True)
        if of is None:
            self.page.screenshot(path=path)
        else:
            of.screenshot(path=path)
        return path

    def _outputs(self) -> Locator:
        return self.page.locator(self.outputs)

    def _note(self, message: ConsoleMessage) -> None:
        self.console.append(f"{message.type}: {message.text}")

"""A browser page with widgets: press buttons, change numbers, read texts, in any front end."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import ConsoleMessage, Locator, Page, expect

POLLING_MS = 50  # Playwright's default is every frame, which makes the page draw frames all the time
LIVE = ".agentlab-page:has(> .page-frame)"
"""The live page, next to the hidden copy for readers without a kernel."""
VIEW = ".agentlab-panel.jupyter-widgets"
"""A live view made of widgets, such as the explorer."""


class WidgetPage:
    """Shared by the pages of all front ends. `outputs` is a selector of all elements that contain widgets.

    The kernel's news arrive in the page some time after they happen, and explorers are drawn part by part. So a test waits for exactly
    the element that it presses or reads next.
    """

    css = "css"
    """Playwright's way to read a selector."""
    outputs = "body"

    def __init__(self, page: Page, timeout_s: float = 30) -> None:
        self.page = page
        self.console: list[str] = []  # messages in the browser's console
        self._timeout_ms = timeout_s * 1000
        page.set_default_timeout(self._timeout_ms)
        page.on("console", self._note)

    def button(self, text: str) -> Locator:
        """The button with this text."""
        return self._outputs().get_by_role("button", name=text, exact=True)

    def wait_until_enabled(self, text: str, within: Locator | None = None) -> None:
        """Wait until the button with this text can be pressed; `within` is where it is if there are several.

        First in a cheap way: whenever `expect` does not find its button, Playwright describes the whole page for its error message.
        """
        within = within or self._outputs()
        within.locator("button:enabled", has_text=text).locator("visible=true").first.wait_for()
        expect(within.get_by_role("button", name=text, exact=True)).to_be_enabled()

    def press(self, text: str, key: str) -> None:
        """Press this button with a key as soon as it is enabled: a click waits for that, a key press would be lost."""
        self.focus(text)
        self.page.keyboard.press(key)

    def focus(self, text: str) -> None:
        """Focus this button as soon as it can be focused."""
        self.wait_until_enabled(text)
        self.button(text).focus()
        expect(self.button(text)).to_be_focused()

    def number(self, label: str) -> Locator:
        """The number box with this label."""
        return self._outputs().get_by_label(label, exact=True).and_(self.page.locator("input"))

    def set_number(self, label: str, value: float) -> None:
        """Type a number into the box and leave it with Tab, which sends it to the kernel."""
        box = self.number(label)
        box.fill(str(value))
        box.press("Tab")

    @property
    def live(self) -> Locator:
        """The live page that is visible."""
        return self.page.locator(f"{self.css}={LIVE}").locator("visible=true")

    @property
    def status(self) -> Locator:
        """The bar of the live page: the state first, then what was used; words like "paused" may also appear elsewhere."""
        return self.live.locator(".page-bar")

    def wait_for_status(self, text: str | re.Pattern[str], timeout_s: float | None = None) -> None:
        """Wait until the bar has this text. `expect` would look after 0.1, 0.35, 0.85, 1.85 s, …, and describe the page each time."""
        pattern = re.compile(re.escape(text)) if isinstance(text, str) else text
        self._wait(lambda bar: pattern.search(bar) is not None, self.status, f"not {pattern.pattern!r}", timeout_s)

    def wait_for_steps(self, number: int, timeout_s: float | None = None) -> None:
        """Wait until the bar shows this number of steps."""
        steps = self.status.locator("[data-total=steps]")  # a locator, since marimo's pages are in shadow trees
        self._wait(
            lambda text: int(re.sub(r"[^\d,].*|,", "", text) or 0) >= number, steps.first, f"not {number} steps", timeout_s
        )

    def _wait(self, met: Callable[[str], bool], part: Locator, wanted: str, timeout_s: float | None) -> None:
        """Wait until the text of a part of the bar is as wanted."""
        deadline = time.monotonic() + (self._timeout_ms / 1000 if timeout_s is None else timeout_s)
        while not met(text := " ".join((part.text_content() or "").split())):
            assert time.monotonic() < deadline, f"the bar says {text!r}, {wanted}"
            self.page.wait_for_timeout(POLLING_MS)

    def screenshot(self, path: Path, of: Locator | None = None) -> Path:
        """Save a screenshot of the page or of one part of it."""
        path.parent.mkdir(parents=True, exist_ok=True)
        if of is None:
            self.page.screenshot(path=path)
        else:
            of.screenshot(path=path)
        return path

    def picture(self, name: str, of: Locator | None = None) -> None:
        """Keep a picture for a person to look at, if AGENTLAB_PICTURES names a folder for them: to make it takes a while."""
        if folder := os.environ.get("AGENTLAB_PICTURES"):
            self.screenshot(Path(folder) / f"{name}.png", of)

    def _outputs(self) -> Locator:
        return self.page.locator(f"{self.css}={self.outputs}")

    def _note(self, message: ConsoleMessage) -> None:
        self.console.append(f"{message.type}: {message.text}")

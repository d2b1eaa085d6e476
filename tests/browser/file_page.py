"""One browser page for all files, opened in it in turn: a page and its process of their own would take as long as a short test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Dialog, Page


class FilePage:
    """Opens files, and notes what none of them may do: write a warning or an error, ask for anything, or open a dialog."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._context: BrowserContext | None = None
        self._files: set[str] = set()
        self._wrong: list[str] = []
        self._may_complain = False

    def open(
        self,
        file: Path,
        width: int = 1440,
        height: int = 900,
        *,
        may_complain: bool = False,
        beside: bool = False,
        color_scheme: Any = "light",
        reduced_motion: Any = "no-preference",
    ) -> Page:
        """The page with this file, as if it were new; with `beside`, a second one, which leaves the first as it is."""
        page = self._context.pages[0] if self._context and not beside else self._another()
        self._may_complain = may_complain
        self._files.add(file.as_uri())
        page.set_viewport_size({"width": width, "height": height})
        page.emulate_media(media="null", color_scheme=color_scheme, reduced_motion=reduced_motion)
        page.mouse.move(0, 0)
        page.goto(file.as_uri())
        return page

    def take_back(self) -> list[str]:
        """Empty the page; return what was noted."""
        for place, page in enumerate(self._context.pages if self._context else []):
            page.goto("about:blank")  # all that the file has done is known by then
            if place:
                page.close()
        self._files.clear()
        wrong, self._wrong = self._wrong, []
        return wrong

    def close(self) -> None:
        """Close the page: the next file gets a new one."""
        if self._context is not None:
            self._context.close()
            self._context = None

    def picture(self, path: Path) -> None:
        """Save a screenshot of the page that was opened last."""
        if self._context is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._context.pages[-1].screenshot(path=path)

    def _another(self) -> Page:
        self._context = self._context or self._browser.new_context()
        page = self._context.new_page()
        page.on("console", self._console)
        page.on("pageerror", lambda error: self._wrong.append(str(error)))
        page.on("request", lambda asked: self._wrong.append(asked.url) if asked.url not in self._files else None)
        page.on("dialog", self._dialog)
        return page

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and not self._may_complain:
            self._wrong.append(message.text)

    def _dialog(self, dialog: Dialog) -> None:
        self._wrong.append(dialog.message)
        dialog.dismiss()

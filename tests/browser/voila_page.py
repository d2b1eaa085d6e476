"""One browser page that Voilà made from a notebook: its cells have already run when it opens."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Page, expect

from .jupyter import Voila
from .widget_page import LIVE, WidgetPage


class VoilaPage(WidgetPage):
    """A page of Voilà."""

    def __init__(self, page: Page, voila: Voila, timeout_s: float = 30) -> None:
        super().__init__(page, timeout_s)
        self.voila = voila

    def open(self, notebook: Path) -> None:
        """Open the page of a notebook under the server's root, and wait until its widgets are shown."""
        self.page.goto(self.voila.page_url(notebook))
        expect(self.page.locator(f"{LIVE}, .jupyter-widgets").first).to_be_attached()

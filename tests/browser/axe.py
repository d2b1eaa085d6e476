"""The accessibility faults that axe-core finds in a part of the page. No rule is excluded and no fault is ignored."""

from __future__ import annotations

from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

from .widget_page import LIVE

GRAVE = ("serious", "critical")


def faults(page: Page, of: str = LIVE) -> list[str]:
    """The serious and critical faults inside the selector's elements, one line each."""
    results: dict[str, Any] = Axe().run(page, context=of, options={"resultTypes": ["violations"]}).response
    found = []
    for fault in results["violations"]:
        if fault["impact"] in GRAVE:
            for node in fault["nodes"]:
                why = "; ".join(check["message"] for kind in ("any", "all", "none") for check in node[kind])
                found.append(f"{fault['id']} ({fault['impact']}): {node['html'][:300]} — {why}")
    assert results["passes"], f"axe looked at nothing in {of}"
    return found

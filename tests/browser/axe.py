"""The accessibility faults that axe-core finds in a part of the page. No rule is excluded and no fault is ignored."""

from __future__ import annotations

from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

from .lab_page import DARK, LIGHT, LabPage
from .widget_page import LIVE

SCRIPT = Axe().axe_script
GRAVE = ["serious", "critical"]
COLOURS = [
    "color-contrast",
    "link-in-text-block",
]  # all that looks at colours: enough for another theme of what was looked at before
STILL = """
/* JupyterLab's body has no height and hides what is outside: axe would take the whole page for hidden. */
body {min-height:100vh}
/* Layers by `contain` or `opacity`, which axe takes to lie below their positioned ancestors: it would see a wrong ground, or none. */
.page-frame, .page-transcript, .page-pair, .agentlab-note {position:relative}
/* The bar beside the current step: axe judges no text of an element that has such a one. */
.page-item[aria-current]::before {display:none !important}
/* A colour on its way to another one is not judged. */
*, ::before, ::after {transition:none !important}
"""
"""The style of the page while axe looks at it. It moves nothing."""
RUN = """async ([of, grave, only, style]) => {
    const still = new CSSStyleSheet();
    still.replaceSync(style);
    document.adoptedStyleSheets.push(still);
    const { violations, passes } = await axe.run(of, { resultTypes: ['violations'], ...(only && { runOnly: only }) });
    document.adoptedStyleSheets = document.adoptedStyleSheets.filter(one => one !== still);
    return { faults: violations.filter(one => grave.includes(one.impact)), passed: passes.length };
}"""
"""What passes is only counted: to send it takes a third of the time."""


def faults(page: Page, of: str = LIVE, *, only: list[str] | None = None) -> list[str]:
    """The serious and critical faults inside the selector's elements, one line each; with `only`, those that these rules find."""
    if page.evaluate("typeof axe === 'undefined'"):
        page.evaluate(SCRIPT)
    results: dict[str, Any] = page.evaluate(RUN, [of, GRAVE, only, STILL])
    found = []
    for fault in results["faults"]:
        for node in fault["nodes"]:
            why = "; ".join(check["message"] for kind in ("any", "all", "none") for check in node[kind])
            found.append(f"{fault['id']} ({fault['impact']}): {node['html'][:300]} — {why}")
    assert only or results["passed"], f"axe looked at nothing in {of}"
    return found


def faults_in_both_schemes(page: Page, of: str) -> list[str]:
    """Those in a file, whose page is light or dark as its reader prefers."""
    page.emulate_media(color_scheme="light")
    light = faults(page, of)
    page.emulate_media(color_scheme="dark")
    return light + [f"dark: {one}" for one in faults(page, of, only=COLOURS)]


def faults_in_both_themes(lab: LabPage, of: str = LIVE) -> list[str]:
    """Those in JupyterLab, which is left in the other theme: to change it takes as long as a look at one."""
    found = faults(lab.page, of)
    dark = lab.page.locator("body").get_attribute("data-jp-theme-name") == DARK
    lab.use_theme(LIGHT if dark else DARK)
    return found + [f"in the other theme: {one}" for one in faults(lab.page, of, only=COLOURS)]

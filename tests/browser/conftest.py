"""One JupyterLab for all browser tests, one browser a module, a fresh page a test."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from .jupyter import JupyterLab
from .lab_page import LabPage

HERE = Path(__file__).parent
REPOSITORY = HERE.parent.parent
PICTURES = REPOSITORY / "test-output" / "browser"  # of failed tests
CHROMIUMS = (os.environ.get("AGENTLAB_CHROMIUM", ""), "chromium", "chromium-browser", "google-chrome")
CHROMIUM_FLAGS = [
    "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip

failed = pytest.StashKey[bool]()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this folder, so that `-m "not browser"` leaves them out."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.browser)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Remember whether the test failed, so that its page can be shown."""
    report = yield
    if report.when == "call":  # type: ignore[attr-defined]
        item.stash[failed] = report.failed  # type: ignore[attr-defined]
    return report


@pytest.fixture(scope="session")
def chromium() -> str:
    """The path of Debian's chromium. Without it the tests fail: a panel nobody has looked at is not tested."""
    for name in CHROMIUMS:
        path = shutil.which(name)
        if path is not None:
            return path
    pytest.fail("browser tests need chromium: apt-get install chromium (or leave them out with -m 'not browser')", pytrace=False)


@pytest.fixture(scope="session")
def jupyter() -> Iterator[JupyterLab]:
    """A running JupyterLab whose kernels can import agentlab."""
    path = os.pathsep.join(filter(None, [str(REPOSITORY), os.environ.get("PYTHONPATH")]))
    with JupyterLab(environment={"PYTHONPATH": path}) as lab:
        yield lab


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Browser]:
    """A headless chromium. Closed with its module, since Playwright keeps an event loop running in this thread."""
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=chromium, headless=True, args=CHROMIUM_FLAGS)
        yield launched
        launched.close()


@pytest.fixture
def lab(jupyter: JupyterLab, browser: Browser, request: pytest.FixtureRequest) -> Iterator[LabPage]:
    """A page of its own; if the test fails, its picture and both logs are kept. Its kernels end with the test."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = LabPage(context.new_page(), jupyter)
    yield page
    if request.node.stash.get(failed, False):
        name = re.sub(r"\W+", "-", request.node.nodeid).strip("-")
        picture = page.screenshot(PICTURES / f"{name}.png")
        print(f"the page is in {picture.relative_to(REPOSITORY)}")
        print("the browser's console:", *page.console[-20:], "JupyterLab's log:", jupyter.log(), sep="\n")
    context.close()
    jupyter.tidy()

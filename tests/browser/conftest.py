"""One server of each kind and one browser for all browser tests; most of them share one page and kernel in turn."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from .desk import Desk, SharedNotebook7, context_of
from .file_page import FilePage
from .jupyter import JupyterLab, JupyterServer, Notebook7, Voila
from .lab_page import LabPage
from .marimo_page import Marimo, MarimoPage
from .voila_page import VoilaPage
from .widget_page import WidgetPage

HERE = Path(__file__).parent
REPOSITORY = HERE.parent.parent
PICTURES = REPOSITORY / "test-output" / "browser"  # of failed tests
CHROMIUMS = (os.environ.get("AGENTLAB_CHROMIUM", ""), "chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
CHROMIUM_FLAGS = [
    "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--js-flags=--single-threaded",  # helper threads cost more than they save where all CPUs are busy
]  # fmt: skip

Server = TypeVar("Server", bound=JupyterServer)
APage = TypeVar("APage", bound=WidgetPage)

expect.set_options(timeout=30_000)  # a loaded machine takes longer than Playwright's default of 5 s

failed = pytest.StashKey[bool]()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this folder, so that `-m "not browser"` skips it. A test that fails is run once more, and shown as rerun: on a
    loaded machine one in a few hundred fails for a reason of the browser. What is broken fails twice."""
    for item in items:
        if item.nodeid.startswith("tests/browser/"):
            item.add_marker(pytest.mark.browser)
            item.add_marker(pytest.mark.flaky(reruns=1))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Record whether the test failed, so that its page can be saved."""
    report = yield
    if report.when == "call":  # type: ignore[attr-defined]
        item.stash[failed] = report.failed  # type: ignore[attr-defined]
    return report


@pytest.fixture(scope="session")
def chromium() -> str:
    """The path of Debian's chromium. Without it the tests fail: a panel that was never rendered is not tested."""
    for name in CHROMIUMS:
        path = shutil.which(name)
        if path is not None:
            return path
    pytest.fail(
        "browser tests need Chromium: run tests/install_chromium, or leave them out with -m 'not browser'",
        pytrace=False,
    )


@pytest.fixture(scope="package")
def jupyter() -> Iterator[JupyterLab]:
    """A running JupyterLab whose kernels can import agentlab."""
    with JupyterLab(environment=with_agentlab()) as lab:
        yield lab


@pytest.fixture(scope="package")
def notebook7() -> Iterator[Notebook7]:
    """A running Notebook 7."""
    with Notebook7(environment=with_agentlab()) as server:
        yield server


@pytest.fixture(scope="package")
def voila() -> Iterator[Voila]:
    """A running Voilà."""
    with Voila(environment=with_agentlab()) as server:
        yield server


@pytest.fixture(scope="package")
def marimo() -> Iterator[Marimo]:
    """A running editor of marimo."""
    with Marimo(with_agentlab()) as server:
        yield server


@pytest.fixture(scope="package")
def marimo_apps() -> Iterator[Marimo]:
    """A running server of marimo's apps."""
    with Marimo(with_agentlab(), "run") as server:
        yield server


def with_agentlab() -> dict[str, str]:
    """The environment that lets the kernels import this checkout of agentlab."""
    return {"PYTHONPATH": os.pathsep.join(filter(None, [str(REPOSITORY), os.environ.get("PYTHONPATH")]))}


@pytest.fixture(scope="package")
def browser(chromium: str) -> Iterator[Browser]:
    """A headless chromium, closed after the last test of this folder, since Playwright keeps an event loop running in this thread."""
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=chromium, headless=True, args=CHROMIUM_FLAGS)
        yield launched
        launched.close()


@pytest.fixture(scope="package")
def desk(jupyter: JupyterLab, browser: Browser) -> Iterator[Desk]:
    """The shared page and kernel of JupyterLab."""
    shared = Desk(browser, jupyter)
    yield shared
    shared.close()


@pytest.fixture(scope="package")
def desk7(notebook7: Notebook7, browser: Browser) -> Iterator[Desk]:
    """Those of Notebook 7."""
    shared = Desk(browser, notebook7, SharedNotebook7)
    yield shared
    shared.close()


@pytest.fixture
def lab(desk: Desk, request: pytest.FixtureRequest) -> Iterator[LabPage]:
    """A JupyterLab page in which the test opens its notebook; if the test fails, its screenshot and both logs are kept.

    It is shared and reset between tests.
    """
    with lent(desk, request) as page:
        yield page


@pytest.fixture
def notebook_page(desk7: Desk, request: pytest.FixtureRequest) -> Iterator[LabPage]:
    """The same in Notebook 7."""
    with lent(desk7, request) as page:
        yield page


@pytest.fixture
def voila_page(voila: Voila, browser: Browser, request: pytest.FixtureRequest) -> Iterator[VoilaPage]:
    """The same in Voilà."""
    with fresh_page(VoilaPage, voila, browser, request) as page:
        yield page


@pytest.fixture
def marimo_page(marimo: Marimo, browser: Browser, request: pytest.FixtureRequest) -> Iterator[MarimoPage]:
    """The same in marimo's editor."""
    with fresh_page(MarimoPage, marimo, browser, request) as page:
        yield page


@pytest.fixture
def marimo_app(marimo_apps: Marimo, browser: Browser, request: pytest.FixtureRequest) -> Iterator[MarimoPage]:
    """The same as an app of marimo."""
    with fresh_page(MarimoPage, marimo_apps, browser, request) as page:
        yield page


@pytest.fixture(scope="package")
def shared_file_page(browser: Browser) -> Iterator[FilePage]:
    """The shared page for files."""
    shared = FilePage(browser)
    yield shared
    shared.close()


@pytest.fixture
def open_file(shared_file_page: FilePage, request: pytest.FixtureRequest) -> Iterator[Callable[..., Page]]:
    """Opens a file. The test fails if the page writes a warning or an error, asks for anything, or opens a dialog."""
    yield shared_file_page.open
    if request.node.stash.get(failed, True):
        shared_file_page.picture(PICTURES / f"{re.sub(r'[^a-z0-9]+', '-', request.node.name)}.png")
        shared_file_page.close()
    assert shared_file_page.take_back() == []


@contextlib.contextmanager
def lent(desk: Desk, request: pytest.FixtureRequest) -> Iterator[LabPage]:
    """The shared page, for one test."""
    page = desk.lend()
    yield page
    try:
        keep_if_failed(page, desk.jupyter, request)
    finally:
        desk.take_back(broken=request.node.stash.get(failed, True))


@contextlib.contextmanager
def fresh_page(
    kind: Callable[[Page, Server], APage],
    server: Server,
    browser: Browser,
    request: pytest.FixtureRequest,
) -> Iterator[APage]:
    """A new page; files that explain a failure are kept."""
    page = kind(context_of(server, browser).new_page(), server)
    yield page
    keep_if_failed(page, server, request)
    page.page.close()
    server.tidy()


def keep_if_failed(page: WidgetPage, server: JupyterServer, request: pytest.FixtureRequest) -> None:
    """Save the files that explain a failure."""
    if request.node.stash.get(failed, False):
        name = re.sub(r"\W+", "-", request.node.nodeid).strip("-")
        picture = page.screenshot(PICTURES / f"{name}.png")
        print(f"the page is in {picture.relative_to(REPOSITORY)}")
        print("the browser's console:", *page.console[-20:], f"{server.name}'s log:", server.log(), sep="\n")

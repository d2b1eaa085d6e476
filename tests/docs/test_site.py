"""The documentation site: it builds without a warning, has no broken link, and works in a browser without a network."""

from __future__ import annotations

import http.server
import json
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import agentlab as lab

from .examples import REPOSITORY, public
from .pages import Page, broken, is_outside, pages_of

EVERYWHERE = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "notebooks/*.ipynb", "fixtures/README.md")
    for path in REPOSITORY.glob(pattern)
    if ".ipynb_checkpoints" not in path.parts
)


pytestmark = pytest.mark.timeout(300)  # the first test waits for the site


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as `make docs` builds it."""
    place = tmp_path_factory.mktemp("site").resolve()
    how = ["-W", "--keep-going", "-n", "-q", "-c", "docs", "-d", str(place / "doctrees")]
    command = [sys.executable, "-m", "sphinx", *how, ".", str(place / "html")]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return place / "html"


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return pages_of(site)


def test_no_link_is_broken(pages: dict[Path, Page], site: Path) -> None:
    found = {str(path.relative_to(site)): wrong for path, page in pages.items() if (wrong := broken(pages, page))}
    assert found == {}
    assert sum(len(page.links) for page in pages.values()) > 1_000


def test_a_broken_link_is_detected(tmp_path: Path) -> None:
    there, here = tmp_path / "there.html", tmp_path / "here.html"
    there.write_text('<p id="known"></p>')
    links = ["there.html#known", "there.html#unknown", "gone.html", "#no"]
    here.write_text("".join(f'<a href="{link}">a</a>' for link in links) + '<img src="no.png">')
    found = pages_of(tmp_path)
    assert broken(found, found[here]) == ["there.html#unknown", "gone.html", "#no", "no.png"]


def test_pages_load_no_external_files(pages: dict[Path, Page]) -> None:
    assert {
        link for page in pages.values() for link in page.loaded if is_outside(link) and not link.startswith("data:image/")
    } == set()


def test_every_public_name_is_in_the_reference(pages: dict[Path, Page], site: Path) -> None:
    anchors = {anchor for path, page in pages.items() if path.parent == site / "docs" / "reference" for anchor in page.anchors}
    missing = [name for name in public().everything() if f"agentlab.{name}" not in anchors]
    assert missing == [], "name them in a page of docs/reference"


def test_every_notebook_has_a_page(pages: dict[Path, Page], site: Path) -> None:
    course = pages[site / "docs" / "course.html"]
    for notebook in REPOSITORY.glob("notebooks/*.ipynb"):
        assert site / "notebooks" / f"{notebook.stem}.html" in pages
        assert f"../notebooks/{notebook.stem}.html" in course.links
    for name in ("CHANGELOG", "CONTRIBUTING", "README", "fixtures/README"):
        assert site / f"{name}.html" in pages


def test_every_page_is_markdown_too_and_in_the_index_for_programs(pages: dict[Path, Page], site: Path) -> None:
    index = (site / "llms.txt").read_text(encoding="utf-8")
    listed = re.findall(r"^- \[.+?\]\((\S+?)\)", index, re.MULTILINE)
    assert index.startswith("# agentlab\n\n> ")
    assert len(listed) == len(set(listed))
    of_sources = {path for path in pages if path.with_suffix(".md").exists()}
    assert {site / name for name in listed} == {path.with_suffix(".md") for path in of_sources} - {site / "docs" / "index.md"}
    assert {str(path.relative_to(site)) for path in set(pages) - of_sources} <= {
        "genindex.html",
        "search.html",
        "py-modindex.html",
        "index.html",
    }
    for path in of_sources:
        assert f'<link rel="alternate" type="text/markdown" href="{path.stem}.md">' in path.read_text(encoding="utf-8")
        text = path.with_suffix(".md").read_text(encoding="utf-8")
        assert text.startswith("# ")
        assert not re.search(r"^(```\{|:::|\.\. \w)", text, re.MULTILINE), path


def test_links_of_the_markdown_lead_to_markdown(site: Path) -> None:
    wrong = {}
    for path in [*(site / "docs").rglob("*.md"), *(site / "notebooks").glob("*.md")]:
        text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
        links = [link.partition("#")[0] for link in re.findall(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)", text) if not is_outside(link)]
        if missing := [link for link in links if link.endswith(".md") and not (path.parent / link).exists()]:
            wrong[str(path.relative_to(site))] = missing
    assert wrong == {}


def test_the_gallery_shows_a_picture_below_each_plot(site: Path) -> None:
    page = (site / "docs" / "gallery.html").read_text(encoding="utf-8")
    shown = re.findall(r'<a href="[^"]+"><img class="drawn" src="\.\./(_images/gallery-\d+\.png)" alt="([^"]+)"', page)
    assert len(shown) == len(
        re.findall(r"^lab\.plots\.", (REPOSITORY / "docs" / "gallery.md").read_text(encoding="utf-8"), re.MULTILINE)
    )
    assert all((site / file).read_bytes().startswith(b"\x89PNG") and len(alt) > 20 for file, alt in shown)


def test_every_stop_reason_is_documented() -> None:
    reasons_page = (REPOSITORY / "docs" / "concepts" / "reasons.md").read_text(encoding="utf-8")
    for kind in (lab.FinishReason, lab.StopReason):
        assert [one.name for one in kind if f"| `{one.name}` |" not in reasons_page] == []
    for elsewhere, here in re.findall(r"\| `(\w+)` \| `(\w+Reason\.\w+)` \|", reasons_page):
        kind, _, name = here.partition(".")
        assert name in getattr(lab, kind).__members__, elsewhere
    assert len(re.findall(r"`\w+Reason\.\w+` \|", reasons_page)) == 7


def test_every_finish_reason_of_a_wire_is_documented() -> None:
    reasons_page = (REPOSITORY / "docs" / "concepts" / "reasons.md").read_text(encoding="utf-8")
    alike: dict[str, list[str]] = {}
    for name, can in lab.capabilities().items():
        alike.setdefault(repr(can.reasons), []).append(f"`{name}`")
    rows = []
    for names in alike.values():
        for reason, fields in lab.capabilities(names[0].strip("`")).reasons.items():
            words = {field: [f"`{one}`" for one in values if isinstance(one, str)] for field, values in fields.items()}
            where = "; ".join(f"`{field}`: {', '.join(of_field)}" for field, of_field in words.items())
            rows.append(f"| {', '.join(names)} | {where} | {reason.name} |")
    assert [
        line for line in reasons_page.splitlines() if line.endswith(tuple(f" {one.name} |" for one in lab.FinishReason))
    ] == rows


@pytest.mark.parametrize("path", EVERYWHERE, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_links_between_files_work_on_a_code_host(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        text = "\n".join("".join(cell["source"]) for cell in json.loads(text)["cells"] if cell["cell_type"] == "markdown")
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    linked = [link.partition("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", text) if not is_outside(link)]
    assert [link for link in linked if link and not (path.parent / link).exists()] == []


# In a browser ---------------------------------------------------------------------------------------------------------------


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: the test checks the requests."""


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """The address of the site."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(site)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from browser.conftest import CHROMIUM_FLAGS, CHROMIUMS
    from playwright.sync_api import sync_playwright

    path = next((found for name in CHROMIUMS if (found := shutil.which(name))), None)
    assert path is not None, "this test needs Chromium: run tests/install_chromium, or leave it out with -m 'not browser'"
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=path, args=[*CHROMIUM_FLAGS, "--no-sandbox"])
        yield opened
        opened.close()


@pytest.mark.browser
@pytest.mark.parametrize(
    ("asked", "first"),
    [("StepCountIs", "agentlab.StepCountIs"), ("ReplayMissError", "ReplayMissError"), ("natural_completion", "Reasons")],
)
def test_the_search_finds_pages(browser: Any, address: str, asked: str, first: str) -> None:
    page = browser.new_page()
    page.goto(f"{address}docs/index.html")
    page.fill(".sidebar-search", asked)
    page.press(".sidebar-search", "Enter")
    page.wait_for_selector("#search-results ul.search li a")
    found = page.query_selector_all("#search-results ul.search li > a")
    assert first in found[0].inner_text()
    assert not [
        link for link in found if "../README.html" in (link.get_attribute("href") or "") or link.inner_text() == "agentlab"
    ]
    page.click("#search-results ul.search li > a")
    page.wait_for_selector(f"article >> text={asked}")
    page.close()


WIDE, NARROW = 1280, 390
READ_WITH_AXE = ("docs/gallery.html", "docs/howto/browse.html", "docs/concepts/edges.html", "docs/reference/limits.html")
"""Short pages that together have each kind of element, of table and of coloured text."""
SCROLLS_BY_KEYBOARD = """[...document.querySelectorAll("pre")].every(code => code.closest("details:not([open])")
    || (code.scrollWidth > code.clientWidth) === (code.tabIndex === 0))"""
LOOKED_AT = (
    "",
    "docs/gallery.html",
    "docs/howto/recipes.html",
    "docs/howto/browse.html",
    "docs/concepts/edges.html",
    "docs/start/index.html",
    "docs/concepts/reasons.html",
    "docs/reference/limits.html",
    "docs/reference/running.html",
    "notebooks/01_quickstart.html",
)


@pytest.mark.browser
def test_pages_are_readable_and_send_no_external_request(browser: Any, address: str) -> None:
    """On a wide and on a narrow window, light and dark: each page is loaded once, and follows the window and the reader's wish."""
    from browser.axe import faults_in_both_schemes

    context = browser.new_context(viewport={"width": WIDE, "height": 900})
    page = context.new_page()
    wrong: list[str] = []
    page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    page.on("request", lambda asked: wrong.append(asked.url) if not asked.url.startswith((address, "data:")) else None)
    for name in LOOKED_AT:
        page.goto(address + name)
        page.wait_for_selector("article h1")
        for width, scheme in ((NARROW, "light"), (NARROW, "dark"), (WIDE, "dark"), (WIDE, "light")):
            page.set_viewport_size({"width": width, "height": 900})
            page.emulate_media(color_scheme=scheme)
            across = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            assert across <= 0, f"{name} is {across} pixels too wide in {width}, {scheme}"
            red = int(page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0]"))
            assert (red < 64) is (scheme == "dark"), f"{name} in {width}, {scheme}"
            page.wait_for_function(SCROLLS_BY_KEYBOARD)
        if name in READ_WITH_AXE:
            assert faults_in_both_schemes(page, "body") == []
    assert wrong == []
    context.close()

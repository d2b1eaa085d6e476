"""The pages of a built site: their links and their link targets."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


@dataclass
class Page(HTMLParser):
    """One page."""

    path: Path
    links: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        HTMLParser.__init__(self)
        self.feed(self.path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Record the tag's id, links and loaded files."""
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if given.get(name)}
        if "href" in given and tag in ("a", "area"):
            self.links.append(given["href"])
        elif "href" in given and tag == "link" and given.get("rel") in ("stylesheet", "icon", "preload", "prefetch"):
            self.loaded.append(given["href"])
        if "src" in given:
            self.loaded.append(given["src"])


def pages_of(site: Path) -> dict[Path, Page]:
    """All pages, by their path."""
    return {path: Page(path) for path in sorted(site.rglob("*.html")) if "_static" not in path.parts}


def is_outside(link: str) -> bool:
    """True if a link leaves the site."""
    return bool(urlsplit(link).scheme or urlsplit(link).netloc)


def broken(pages: dict[Path, Page], page: Page) -> list[str]:
    """The links and loaded files of a page that do not exist on the site."""
    found = []
    for link in [*page.links, *page.loaded]:
        if is_outside(link):
            continue
        parts = urlsplit(link)
        target = (page.path.parent / unquote(parts.path)).resolve() if parts.path else page.path.resolve()
        is_anchor = not parts.fragment or target not in pages or unquote(parts.fragment) in pages[target].anchors
        if not target.is_file() or not is_anchor:
            found.append(link)
    return found

"""Whether HTML can do nothing but be read: parsed as browsers do, it has no element, attribute or address that acts."""

from __future__ import annotations

import re
from typing import Any

import html5lib

_ACTING = {
    "script", "style", "iframe", "object", "embed", "form", "input", "button", "textarea", "select", "svg", "math", "link", "meta",
    "base", "template", "video", "audio", "source", "frame", "frameset", "noscript", "marquee", "html", "head", "body",
}  # fmt: skip
_ATTRIBUTES = {
    "class", "dir", "href", "src", "alt", "width", "height", "rel", "target", "open", "data-section", "start", "tabindex", "colspan",
    "rowspan", "scope",
}  # fmt: skip


def what_acts(html: str) -> list[str]:
    """What is in this HTML that could act, load or leave the page; empty for HTML that is only read."""
    found = []
    for element in html5lib.parseFragment(html, treebuilder="etree", namespaceHTMLElements=False).iter():
        tag: Any = element.tag
        if element.tag == "DOCUMENT_FRAGMENT":
            continue
        if not isinstance(tag, str) or tag.lower() in _ACTING or not re.fullmatch("[a-z0-9]+", tag):
            found.append(f"<{tag}>")
            continue
        for name, value in element.attrib.items():
            if name not in _ATTRIBUTES:
                found.append(f"<{tag} {name}>")
            if name == "href" and not re.match("https?://|mailto:", value):
                found.append(f"<{tag} href={value[:60]!r}>")
            if name == "src" and not re.match("data:image/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]*$", value):
                found.append(f"<{tag} src={value[:60]!r}>")
        if tag == "a" and {"noopener", "noreferrer", "nofollow"} - set(element.get("rel", "").split()):
            found.append("<a> without rel")
    return found


def text_of(html: str) -> str:
    """What is read of this HTML."""
    return "".join(html5lib.parseFragment(html, treebuilder="etree", namespaceHTMLElements=False).itertext())

"""Text of models, tools and servers made fit to be shown: no keys, no HTML of its own, no control characters, not too long."""

from __future__ import annotations

import html
import re

from agentlab.providers._read import whole_text
from agentlab.redaction import without_keys

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def escape(value: object, longest: int = 300) -> str:
    """Any text as harmless HTML, cut where it is long; control characters are made visible."""
    return html.escape(cut(value, longest))


def cut(value: object, longest: int = 300) -> str:
    """The same as plain text."""
    text = without_keys(str(value)[: 4 * longest + 4096])  # looked through before it is cut: half a key is a key too
    return printable(text if len(text) <= longest else text[: longest - 1] + "…")


def printable(text: str) -> str:
    """Text with its line breaks and tabs, and without keys; other control characters, such as those that steer a terminal, and halves
    of characters are made visible."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", whole_text(without_keys(text).replace("\r\n", "\n")))

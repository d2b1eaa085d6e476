"""Makes text from outside safe for a page, a terminal or a picture: removes keys and control characters."""

from __future__ import annotations

import html
import re

from agentlab._internal.redaction import redact, text_of

AS_WRITTEN = "tex2jax_ignore mathjax_ignore"
"""CSS classes for HTML in which `$…$` stays text. Elsewhere JupyterLab renders it as a formula, which may be a link or cover the
page."""

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_STEERING = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ufffe\uffff]+")
_MATH = str.maketrans({"$": "\N{FULLWIDTH DOLLAR SIGN}", "\\": "\N{FULLWIDTH REVERSE SOLIDUS}"})


def whole(text: str) -> str:
    """Return text that can be encoded as UTF-8.

    Some servers split a stream between the two `\\ud83d\\ude00` escapes of one character. Adjacent halves are joined into the
    character; a single half becomes U+FFFD.
    """
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def printable(text: str) -> str:
    """Return text without keys. Line breaks and tabs are kept; other control characters and halves of characters become U+FFFD."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", whole(redact(text).replace("\r\n", "\n")))


def cut(value: object, longest: int = 300) -> str:
    """Return any value as safe text of at most `longest` characters."""
    text = printable(text_of(value)[: 4 * longest + 4096])  # redacted before it is cut: half a key is secret too
    return text if len(text) <= longest else text[: longest - 1] + "…"


def escape(value: object, longest: int = 300) -> str:
    """Return any value as safe HTML, cut if it is long."""
    return html.escape(cut(value, longest))


def one_line(text: str, longest: int = 80) -> str:
    """Return a name from outside for use in a sentence: on one line, cut in its middle, without characters that reverse the text."""
    return short(_STEERING.sub(" ", whole(redact(text))), longest)


def short(text: str, longest: int) -> str:
    """Return words on one line, cut in the middle if they are long, since versions are at the end."""
    return cut_middle(" ".join(text.split()) or "unnamed", longest)


def cut_middle(text: str, longest: int) -> str:
    """Return a text with its middle left out if it is long."""
    if len(text) <= longest:
        return text
    tail = (longest - 1) // 2
    return f"{text[: longest - 1 - tail]}…{text[-tail:]}"


def label(text: str, longest: int = 60) -> str:
    """Return a name for the label of a control, where JupyterLab always renders formulas."""
    return one_line(text, longest).translate(_MATH)

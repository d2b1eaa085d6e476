"""Text from outside as it may stand on a page, in a terminal or in a picture: without keys, and with nothing in it that acts."""

from __future__ import annotations

import html
import re

from agentlab.redaction import text_of, without_keys

AS_WRITTEN = "tex2jax_ignore mathjax_ignore"
"""Classes for HTML in which `$…$` stays text: elsewhere JupyterLab makes a formula of it, which may be a link, or cover the page."""

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_STEERING = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ufffe\uffff]+")
_ACCENT = r"[\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]"
_TOWER = re.compile(f"({_ACCENT}{{3}}){_ACCENT}+")
"""Accents on one letter, more than any language has: they would stand over the lines above."""
_MATH = str.maketrans({"$": "\N{FULLWIDTH DOLLAR SIGN}", "\\": "\N{FULLWIDTH REVERSE SOLIDUS}"})


def whole(text: str) -> str:
    """Text that can be encoded as UTF-8.

    Some servers cut a stream between the two `\\ud83d\\ude00` escapes of one character. Joined, the halves are one character again;
    a half that stayed alone becomes U+FFFD.
    """
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def printable(text: str) -> str:
    """Text with its line breaks and tabs, and without keys; other control characters, such as those that steer a terminal, and halves
    of characters are made visible."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", whole(without_keys(text).replace("\r\n", "\n")))


def cut(value: object, longest: int = 300) -> str:
    """The same, cut where it is long."""
    text = without_keys(text_of(value)[: 4 * longest + 4096])  # looked through before it is cut: half a key is a key too
    return printable(text if len(text) <= longest else text[: longest - 1] + "…")


def escape(value: object, longest: int = 300) -> str:
    """Any text as harmless HTML, cut where it is long; control characters are made visible."""
    return html.escape(cut(value, longest))


def one_line(text: str, longest: int = 80) -> str:
    """A name from outside in a sentence of ours: on one line, cut in its middle, turning nothing round that stands beside it."""
    return short(_STEERING.sub(" ", whole(without_keys(text))), longest)


def short(text: str, longest: int) -> str:
    """Words on one line and no higher than that, cut in the middle, since versions stand at the end."""
    plain = " ".join(text.split()) or "unnamed"
    if not plain.isascii():
        plain = _TOWER.sub(r"\1", plain)
    if len(plain) <= longest:
        return plain
    tail = (longest - 1) // 2
    return f"{plain[: longest - 1 - tail]}…{plain[-tail:]}"


def label(text: str, longest: int = 60) -> str:
    """The same for the label of a control, in which JupyterLab looks for formulas too and nothing can forbid it."""
    return one_line(text, longest).translate(_MATH)

"""Text from outside as it is shown in the detail of a step: cut before it is escaped, without keys, and nothing in it unseen.

Two kinds. `prose` is text that people read (an answer, a prompt): its characters stay as they are, since joiners and marks of direction
belong to real scripts, and a note names those that cannot be seen. `code` is what was sent, exactly (arguments, a raw response):
what cannot be seen is written as an escape.
"""

from __future__ import annotations

import html
import itertools
import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping

from agentlab.redaction import REDACTED, Redactor, is_secret_name
from agentlab.types import JSON
from agentlab.widgets.markup import escape, printable

LONGEST_PROSE, LONGEST_CODE, LONGEST_RAW = 8_000, 4_000, 20_000
"""So many characters are shown of a message, of a tool call's arguments or result, of a raw response."""

_MARGIN = 4_096
"""So much more is looked through for keys, so that the cut does not leave half of one."""

_UNSEEN = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0"
    "\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
"""What has no shape of its own: marks and overrides of direction, zero width, fillers, tags, variation selectors."""

_OF_SCRIPTS = frozenset("\u200c\u200d\ufe0e\ufe0f")
"""Joiners and the styles of emoji: real text is full of them, so that no note is due."""

_MOST_NAMED = 4

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+', re.DOTALL)
_DEEPEST_INDENT = 16
_MOST_VALUES, _MOST_ITEMS, _DEEPEST, _LONGEST_STRING = 4_000, 200, 24, 2_000

_LINES_IN_SIGHT, _CHARACTERS_A_LINE = 12, 60
_LONGEST_LINE = 1_000


def section(name: str, title: str, body: str, *, is_open: bool, about: str = "") -> str:
    """A part that opens and closes, by mouse and keyboard; `title` and `about` are plain text, `body` is HTML."""
    said = f' <span class="agentlab-note">{escape(about)}</span>' if about else ""
    opened = " open" if is_open else ""
    return (
        f'<details class="agentlab-section" data-section="{escape(name)}"{opened}>'
        f"<summary>{escape(title)}{said}</summary><div>{body}</div></details>"
    )


def note(text: str) -> str:
    """Something said beside what is shown; plain text."""
    return f'<div class="agentlab-note">{escape(text, 1_000)}</div>'


def prose(text: str, where: str, longest: int = LONGEST_PROSE) -> str:
    """Text to read, its direction kept to itself; `where` says in Python where all of it is."""
    shown, about = _cut(text, longest, where)
    unseen = _unseen_in(shown)
    return _block("agentlab-prose", html.escape(printable(shown))) + "".join(map(note, filter(None, (about, unseen))))


def code(text: str, where: str, longest: int = LONGEST_CODE) -> str:
    """Text as it was sent: JSON with line breaks where it is JSON, otherwise as it is."""
    shown, about = _cut(text, longest, where)
    pretty = indented(shown) if not about and shown[:1] in "{[" else shown
    return _block("agentlab-code", html.escape(seen(printable(pretty)))) + (note(about) if about else "")


def raw(value: JSON, where: str, longest: int = LONGEST_RAW) -> str:
    """A provider's response as JSON. Long strings are shortened, so that what stands after them is seen too."""
    text = json.dumps(_Shortening().of(value), indent=2, ensure_ascii=False, default=str)
    shown, about = _cut(text, longest, where)
    return _block("agentlab-code", html.escape(seen(printable(shown)))) + (note(about) if about else "")


class _Shortening:
    """Makes a value that can be shown of any JSON: long strings and lists cut with a word of what is left out, secrets hidden."""

    def __init__(self) -> None:
        self.left = _MOST_VALUES

    def of(self, value: JSON, level: int = 0) -> JSON:
        self.left -= 1
        if isinstance(value, str):
            left_out = len(value) - _LONGEST_STRING
            return value if left_out <= 0 else f"{_clean(value, _LONGEST_STRING)}… ({left_out:,} more characters)"
        if not isinstance(value, Mapping | list | tuple):
            return value
        if level >= _DEEPEST or self.left <= 0:
            return "… (left out)"
        if isinstance(value, Mapping):
            named = ((str(name)[:200], part) for name, part in itertools.islice(value.items(), _MOST_ITEMS))
            kept = {name: REDACTED if is_secret_name(name) else self.of(part, level + 1) for name, part in named}
            return kept if len(value) <= _MOST_ITEMS else {**kept, "…": f"{len(value) - _MOST_ITEMS:,} more fields"}
        listed = [self.of(part, level + 1) for part in value[:_MOST_ITEMS]]
        return listed if len(value) <= _MOST_ITEMS else [*listed, f"… ({len(value) - _MOST_ITEMS:,} more items)"]


def indented(text: str) -> str:
    """JSON text with line breaks; its values stay letter by letter as they were. Text that is no JSON comes back as it is."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return text
    out: list[str] = []
    level, before = 0, ""
    for part in _TOKEN.findall(text):
        if part in "}]":
            level -= 1
            out.append(part if before in ("{", "[") else _line(level) + part)
        elif before in ("{", "[", ","):
            out.append(_line(level) + part)
        else:
            out.append(part)
        if part in "{[":
            level += 1
        elif part == ":":
            out.append(" ")
        before = part
    return "".join(out)


def _line(level: int) -> str:
    return "\n" + "  " * min(level, _DEEPEST_INDENT)


def seen(text: str) -> str:
    """Text in which what has no shape is written as JSON would escape it."""
    return text if text.isascii() else _UNSEEN.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def _unseen_in(text: str) -> str:
    """Which characters of a text cannot be seen, apart from those that scripts need."""
    if text.isascii():
        return ""
    found = Counter(character for character in _UNSEEN.findall(text) if character not in _OF_SCRIPTS)
    if not found:
        return ""
    named = [
        f"{unicodedata.name(each, f'U+{ord(each):04X}').lower()} ({number})" for each, number in found.most_common(_MOST_NAMED)
    ]
    more = f" and {len(found) - _MOST_NAMED} others" if len(found) > _MOST_NAMED else ""
    return f"Not to be seen in it: {', '.join(named)}{more}."


def _cut(text: str, longest: int, where: str) -> tuple[str, str]:
    """The beginning of a text without keys, and what is to be said of the rest."""
    left_out = len(text) - longest
    return _clean(text, longest), "" if left_out <= 0 else f"… {left_out:,} more characters: all of it is {where}"


def _clean(text: str, longest: int) -> str:
    """The beginning of a text with what looks like a key replaced: looked through first, then cut."""
    return Redactor().text(text[: longest + _MARGIN])[:longest]


def _block(css: str, escaped: str) -> str:
    """A box of text; one that scrolls is in reach of the keyboard."""
    scrolls = escaped.count("\n") + len(escaped) / _CHARACTERS_A_LINE > _LINES_IN_SIGHT
    reach = ' tabindex="0"' if scrolls else ""
    return f'<pre class="{css}" dir="auto"{reach}>\n{escaped}</pre>'  # the first line break of a <pre> is no part of it


def line(text: str) -> str:
    """A sentence or a value, at most _LONGEST_LINE characters of it."""
    return escape(printable(seen(_clean(text, 2 * _LONGEST_LINE))), _LONGEST_LINE)


def facts(rows: Iterable[tuple[str, object]]) -> str:
    """Names and values, one a line; both are plain text. Those without a value are left out."""
    told = [(name, str(value)) for name, value in rows if value is not None and value != ""]
    lines = "".join(f"<dt>{escape(name)}</dt><dd>{line(value)}</dd>" for name, value in told)
    return f'<dl class="agentlab-facts">{lines}</dl>'


def seconds(value: float) -> str:
    """A duration in words."""
    if value >= 0.9995:
        return f"{value:,.2f} s"
    return f"{1_000 * value:.0f} ms" if value >= 0.0005 else "<1 ms"

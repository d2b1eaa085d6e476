"""Texts and values from outside as safe HTML: markdown, code, JSON, tables and images.

Keys and control characters are removed from a text first. What is made of it is sanitised by an allow-list: no script, style, handler,
form or frame; links lead to http, https and mail only; images are embedded PNG, JPEG, GIF or WebP. Remote images become links, and math
stays text.
"""

from __future__ import annotations

import base64
import json
import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, lru_cache
from html import escape as quoted
from html import unescape
from io import BytesIO
from typing import Any

import nh3
from markdown_it import MarkdownIt
from markdown_it.token import Token
from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name
from pygments.token import STANDARD_TYPES
from pygments.util import ClassNotFound

from agentlab._internal.formatting import counted
from agentlab._internal.redaction import redact
from agentlab._internal.safe_text import AS_WRITTEN, escape, printable, whole
from agentlab.model.parts import Part

LONGEST_PROSE, LONGEST_CODE, LONGEST_COLOURED = 100_000, 20_000, 20_000
"""Characters shown of a text and of code or JSON, and up to which code is coloured."""
MOST_ROWS, MOST_COLUMNS = 50, 30
"""Rows and columns shown of a table."""
LARGEST_IMAGE, WIDEST_IMAGE = 500_000, 1_000
"""Bytes of an image that is embedded; a larger one is drawn again, at most so many pixels wide and high."""
_MARGIN = 4_096
"""Characters beyond the cut that are searched for keys, so that no half of a key remains."""

_UNSEEN = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0"
    "\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
"""Invisible characters: direction marks and overrides, zero width, fillers, tags, variation selectors."""

_OF_SCRIPTS = frozenset("\u200c\u200d\ufe0e\ufe0f")
"""Joiners and emoji styles: common in real text, so that no note names them."""

LANGUAGES = {
    "bash", "c", "c++", "console", "cpp", "csharp", "css", "csv", "diff", "dockerfile", "go", "html", "ini", "java",
    "javascript", "js", "json", "jsx", "julia", "kotlin", "latex", "lua", "make", "makefile", "markdown", "md", "php", "py",
    "pycon", "python", "python3", "r", "rb", "ruby", "rs", "rust", "scala", "sh", "shell", "sql", "swift", "tex", "toml", "ts",
    "tsx", "typescript", "xml", "yaml", "yml", "zsh",
}  # fmt: skip
"""Languages of code blocks that are coloured; others are shown plain."""

# The sanitiser ------------------------------------------------------------------------------------------------------------------

_TAGS = {
    "a", "b", "bdi", "blockquote", "br", "code", "dd", "del", "details", "div", "dl", "dt", "em", "figcaption", "figure", "h3",
    "h4", "h5", "h6", "hr", "i", "img", "li", "ol", "p", "pre", "s", "small", "span", "strong", "summary", "table", "tbody",
    "td", "th", "thead", "tr", "ul",
}  # fmt: skip
_ATTRIBUTES = {
    "*": {"class", "dir"},
    "a": {"href"},
    "details": {"open", "data-section"},
    "img": {"src", "alt", "width", "height"},
    "ol": {"start"},
    "pre": {"tabindex"},
    "div": {"tabindex"},
    "th": {"colspan", "rowspan", "scope"},
    "td": {"colspan", "rowspan"},
}
_IMAGE_START = re.compile(r"data:image/(?:png|jpeg|gif|webp);base64,")
_LINK_START = re.compile(r"(?i)https?://|mailto:")


def _filtered(tag: str, name: str, value: str) -> str | None:
    """Keep links to pages and mail, and images that are embedded."""
    if name == "src":
        return value if _IMAGE_START.match(value) else None
    if name == "href":
        return value if _LINK_START.match(value) else None
    return value


@cache
def _cleaner() -> nh3.Cleaner:
    return nh3.Cleaner(
        tags=_TAGS,
        clean_content_tags={"script", "style", "template", "noscript", "iframe", "object", "svg", "math"},
        attributes=_ATTRIBUTES,
        attribute_filter=_filtered,
        link_rel="noopener noreferrer nofollow",
        set_tag_attribute_values={"a": {"target": "_blank"}},
        url_schemes={"http", "https", "mailto", "data"},
    )


def sanitised(html: str) -> str:
    """Return HTML in which nothing is left but the tags and attributes of the allow-list."""
    return _cleaner().clean(whole(html))


# Texts --------------------------------------------------------------------------------------------------------------------------


def markdown(text: str, where: str = "") -> str:
    """Return a text as rendered markdown; `where` names the place of the whole text in Python."""
    shown, note = _cut(text, LONGEST_PROSE, where)
    html = redact(_markdown().render(shown))  # once more: an escape in the markdown may have hidden a key
    unseen = unseen_in(shown)
    note += f'<div class="agentlab-note">{unseen}</div>' if unseen else ""
    return f'<div class="agentlab-md {AS_WRITTEN}" dir="auto">{sanitised(html)}{note}</div>'


def markdown_piece(carried: str, text: str) -> str:
    """Return a piece of a text that streams in; `carried` opens a block that began before it."""
    html = sanitised(redact(_markdown().render(printable(carried + text))))
    return f'<div class="agentlab-continued">{html}</div>' if carried else html


def settled_pieces(carried: str, text: str, longest: int) -> tuple[list[str], str, str]:
    """Split a text that streams in: return the HTML of its complete blocks, what opens the last one, and the text of the last one.

    Of a last block of more than `longest` characters a part is left; in a fence or a table, its first lines open it again.
    A block is split between lines, and never inside a private key: its beginning alone would not be recognised in the next piece.
    """
    tokens = [token for token in _markdown().parse(carried + text) if token.level == 0 and token.nesting >= 0 and token.map]
    done = []
    lines = (carried + text).splitlines(keepends=True)
    if len(tokens) > 1:
        at = tokens[-1].map[0]  # type: ignore[index]
        done.append(markdown_piece(carried, "".join(lines[:at])[len(carried) :]))
        carried, text, lines = "", "".join(lines[at:]), lines[at:]
    at = text.rfind("\n", 0, len(text) - longest // 2) + 1
    if len(text) > longest and at and "PRIVATE KEY-----" not in text:
        done.append(markdown_piece(carried, text[:at]))
        opening = {"fence": 1, "table_open": 2}.get(tokens[-1].type, 0) if tokens else 0
        carried, text = "".join(lines[:opening]), text[at:]
    return done, carried, text


def seen(text: str) -> str:
    """Text with invisible characters written as JSON would escape them."""
    return text if text.isascii() else _UNSEEN.sub(lambda match: json.dumps(match[0])[1:-1], text)


def unseen_in(text: str) -> str:
    """Return a sentence that names the invisible characters, apart from those that scripts need; empty if there are none."""
    if text.isascii():
        return ""
    found = Counter(character for character in _UNSEEN.findall(text) if character not in _OF_SCRIPTS)
    names = [f"{unicodedata.name(each, f'U+{ord(each):04X}').lower()} ({count})" for each, count in found.most_common(4)]
    more = f" and {len(found) - 4} others" if len(found) > 4 else ""
    return f"Invisible characters in it: {', '.join(names)}{more}." if names else ""


def code(text: str, language: str = "", where: str = "") -> str:
    """Return code, coloured if the language is known; JSON is indented."""
    shown, note = _cut(text, LONGEST_CODE, where)
    if not note and language in ("", "json") and shown[:1] in ("{", "["):
        shown, language = _indented(shown)
    return f"{_pre(shown, language)}{note}"


_LONGEST: ContextVar[int] = ContextVar("longest", default=LONGEST_PROSE)


@contextmanager
def at_most(characters: int) -> Iterator[None]:
    """Inside the block, show so many characters of each text and of each piece of code."""
    token = _LONGEST.set(characters)
    try:
        yield
    finally:
        _LONGEST.reset(token)


def _cut(text: str, longest: int, where: str) -> tuple[str, str]:
    """Return the beginning of a text, safe but not escaped, and a remark on the rest as HTML."""
    longest = min(longest, _LONGEST.get())
    left_out = len(text) - longest
    if left_out <= 0:
        return printable(text), ""
    return printable(text[: longest + _MARGIN])[:longest], _left_out(left_out, "characters", where)


def _left_out(count: int, what: str, where: str) -> str:
    place = f": all of it is {where}" if where else ""
    return f'<div class="agentlab-note">… {count:,} more {what}{escape(place)}</div>'


def _indented(text: str) -> tuple[str, str]:
    """Return JSON with line breaks, and its language; other text as it is."""
    try:
        return printable(json.dumps(json.loads(text), indent=2, ensure_ascii=False)), "json"  # once more: escapes are gone
    except (ValueError, RecursionError):
        return text, ""


def _pre(text: str, language: str) -> str:
    """Return a box of code. One that scrolls can be reached by the keyboard."""
    text = seen(text)
    lexer = _lexer(language.lower()) if len(text) <= LONGEST_COLOURED else None
    html = quoted(text, quote=False) if lexer is None else _coloured(text, lexer)
    css = "agentlab-code agentlab-json" if language == "json" else "agentlab-code"
    reach = ' tabindex="0"' if text.count("\n") > 10 or len(text) > 600 else ""
    return f'<pre class="{css}" dir="auto"{reach}>\n{html}</pre>'  # HTML drops the first line break of a <pre>


@lru_cache(maxsize=64)
def _lexer(language: str) -> Lexer | None:
    try:
        return get_lexer_by_name(language, stripnl=False, ensurenl=False) if language in LANGUAGES else None
    except ClassNotFound:
        return None


_PLAIN = frozenset(("", "w", "n", "p", "o", "err"))
"""Pygments' classes of names, marks and spaces, which have no colour: fewer elements in the page."""


def _coloured(text: str, lexer: Lexer) -> str:
    parts, css, run = [], "", ""
    for kind, piece in lexer.get_tokens(text):
        its = STANDARD_TYPES.get(kind, "")
        its = "" if its in _PLAIN else its
        if its != css and run:
            parts.append(_span(run, css))
            run = ""
        css, run = its, run + piece
    return "".join([*parts, _span(run, css)])


def _span(text: str, css: str) -> str:
    return f'<span class="{css}">{quoted(text, quote=False)}</span>' if css else quoted(text, quote=False)


# Markdown -----------------------------------------------------------------------------------------------------------------------


@cache
def _markdown() -> MarkdownIt:
    """Return a parser of CommonMark with tables and strikethrough, without HTML; the line breaks of the text stay."""
    parser = MarkdownIt("commonmark", {"html": False, "breaks": True}).enable(["table", "strikethrough"])
    parser.disable(["html_block", "html_inline"])
    for name, rule in _RULES.items():
        parser.add_render_rule(name, rule)
    return parser


def _fence(renderer: Any, tokens: Sequence[Token], place: int, options: Any, env: MutableMapping[str, Any]) -> str:
    token = tokens[place]
    return _pre(token.content.rstrip("\n"), (token.info.split() or [""])[0].lower())


def _image(renderer: Any, tokens: Sequence[Token], place: int, options: Any, env: MutableMapping[str, Any]) -> str:
    """Return a link in place of an image, which would be fetched from elsewhere."""
    token = tokens[place]
    name, source = quoted(token.content or "image"), str(token.attrGet("src") or "")
    if not source.lower().startswith(("http:", "https:")):
        return f"[{name}]"
    return f'<a href="{quoted(source)}">[{name}]</a>'


def _heading(renderer: Any, tokens: Sequence[Token], place: int, options: Any, env: MutableMapping[str, Any]) -> str:
    """Return the tag of a heading, below those of the page."""
    token = tokens[place]
    level = min(6, int(token.tag[1:]) + 2)
    return f"<h{level}>" if token.nesting == 1 else f"</h{level}>\n"


def _cell(renderer: Any, tokens: Sequence[Token], place: int, options: Any, env: MutableMapping[str, Any]) -> str:
    """Return a cell of a table; its alignment is a class, not a style."""
    token = tokens[place]
    right = str(token.attrGet("style") or "").endswith("right")
    return f'<{token.tag} class="number">' if right else f"<{token.tag}>"


def _table(renderer: Any, tokens: Sequence[Token], place: int, options: Any, env: MutableMapping[str, Any]) -> str:
    return '<div class="agentlab-table" tabindex="0"><table>'


def _table_end(renderer: Any, tokens: Sequence[Token], place: int, options: Any, env: MutableMapping[str, Any]) -> str:
    return "</table></div>\n"


_RULES: dict[str, Callable[..., str]] = {
    "fence": _fence,
    "code_block": _fence,
    "image": _image,
    "heading_open": _heading,
    "heading_close": _heading,
    "th_open": _cell,
    "td_open": _cell,
    "table_open": _table,
    "table_close": _table_end,
}

# Values -------------------------------------------------------------------------------------------------------------------------


def value_html(value: object) -> str:
    """Return a table or an image for a value that is one; empty for any other, or where making it fails."""
    try:
        html = _table_of(value) or _image_of(value)
    except Exception:  # a value is anybody's object
        return ""
    return sanitised(html) if html else ""


def fields_html(data: object, where: str = "") -> str:
    """Return a JSON object as a table of its fields, any other JSON value as code."""
    if not isinstance(data, dict) or not data:
        return code(json.dumps(data, ensure_ascii=False), where=where)
    rows = []
    for name, value in list(data.items())[:MOST_ROWS]:
        inner = isinstance(value, dict | list) and bool(value)
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        shown, remark = _cut(text, LONGEST_PROSE, where)
        cell = code(text, where=where) if inner else quoted(seen(shown)) + remark
        rows.append(f"<tr><th>{escape(seen(str(name)))}</th><td>{cell}</td></tr>")
    left_out = len(data) - len(rows)
    more = _left_out(left_out, "fields", where) if left_out else ""
    return sanitised(f'<div class="agentlab-table" tabindex="0"><table><tbody>{"".join(rows)}</tbody></table></div>{more}')


def part_html(part: Part) -> str:
    """Return an image as an image, and any other part as a line with its name, type and size."""
    shown = ""
    if part.kind == "image" and part.is_held:
        try:
            shown = _embedded(part.data, part.text[1:-1])
        except Exception:  # Pillow, which makes large images smaller, refuses this one
            shown = ""
    return sanitised(shown or f'<div class="agentlab-note">{escape(part.text[1:-1])}</div>')


def _class_of(module: str, name: str) -> type:
    """Return a class of a library, or a class that nothing is of where the library is not loaded."""
    loaded = sys.modules.get(module)
    return type(None) if loaded is None else getattr(loaded, name, type(None))


def _table_of(value: object) -> str:
    """Return a DataFrame or a Series as a table."""
    if value is None or not isinstance(value, (_class_of("pandas", "DataFrame"), _class_of("pandas", "Series"))):
        return ""
    frame: Any = value if hasattr(value, "columns") else value.to_frame()  # type: ignore[attr-defined]
    rows, columns = frame.shape
    shown = frame.iloc[:MOST_ROWS, :MOST_COLUMNS]
    html = shown.to_html(border=0, max_rows=None, max_cols=None, justify="left")
    # A key with & < > is recognised only as it was before pandas escaped it.
    html = re.sub("[^<>]+(?=<)", lambda text: quoted(printable(unescape(text[0])), quote=False), html)
    more = f"{counted(rows, 'row')}, {counted(columns, 'column')}"
    if shown.shape != frame.shape:
        more += f"; the first {shown.shape[0]:,} and {shown.shape[1]:,} are shown"
    return f'<div class="agentlab-table" tabindex="0">{html}</div><div class="agentlab-note">{more}</div>'


_SIGNATURES = {b"\x89PNG\r\n\x1a\n": "png", b"\xff\xd8\xff": "jpeg", b"GIF8": "gif", b"RIFF": "webp"}


def _image_of(value: object) -> str:
    """Return the bytes of an image, an image of PIL, a figure of matplotlib, or what has a PNG for notebooks, as an image."""
    if value is None or isinstance(value, str):
        return ""
    if isinstance(value, _class_of("matplotlib.figure", "Figure")):
        drawn = BytesIO()
        value.savefig(drawn, format="png", dpi=100)  # type: ignore[attr-defined]
        data: object = drawn.getvalue()
    elif isinstance(value, bytes | bytearray | memoryview):
        data = bytes(value)
    else:
        drawn_as = getattr(value, "_repr_png_", None)
        data = drawn_as() if callable(drawn_as) else None
    return _embedded(data) if isinstance(data, bytes) else ""


def _embedded(data: bytes, alt: str = "image returned by the tool") -> str:
    kind = next((kind for start, kind in _SIGNATURES.items() if data.startswith(start)), "")
    if not kind or (kind == "webp" and data[8:12] != b"WEBP"):
        return ""
    if len(data) > LARGEST_IMAGE:
        data, kind = _smaller(data), "png"
    if len(data) > LARGEST_IMAGE:
        return f'<div class="agentlab-note">An image of {len(data):,} bytes is left out.</div>'
    source = f"data:image/{kind};base64,{base64.b64encode(data).decode()}"
    return f'<img class="agentlab-image" src="{source}" alt="{escape(alt)}">'


def _smaller(data: bytes) -> bytes:
    from PIL import Image

    image = Image.open(BytesIO(data))
    image.thumbnail((WIDEST_IMAGE, WIDEST_IMAGE))
    drawn = BytesIO()
    image.save(drawn, format="PNG", optimize=True)
    return drawn.getvalue()

"""Convert agentlab's docstrings to reStructuredText. They are written for the Help pane, where markup would be in the way.

A docstring may hold paragraphs, `code`, lists, tables of names and meanings (two or more spaces between), blocks indented by
four spaces (code, drawings), and `Example:` above a block of `>>>`. Everything else is plain text, whatever characters it contains.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from typing import Any

from public_names import link_to

_COLUMNS = re.compile(r"(?P<name>\S.*?)(?P<gap> {2,})(?P<meaning>\S.*)")
_LIST = re.compile(r"[-*] ")
_SPECIAL = re.compile(r"([\\*_|<>`:\[\]])")
_PIECES = re.compile(r"(`+)(.+?)\1", re.DOTALL)


def as_rst(lines: list[str]) -> list[str]:
    """Return a docstring in the house style as lines of reStructuredText."""
    made: list[str] = []
    for block in _blocks(lines):
        made += [*_block_as_rst(block), ""]
    return made


def _blocks(lines: list[str]) -> Iterator[list[str]]:
    """Yield the blocks between blank lines; consecutive indented blocks are one block."""
    block: list[str] = []
    for line in [*lines, ""]:
        if line.strip():
            if block and not block[-1].strip() and not line.startswith("    "):
                yield _stripped(block)
                block = []
            if block and not _indented(block) and block[-1].rstrip().endswith(":") and line.startswith("    "):
                yield block  # a line that introduces the indented block below it
                block = []
            block.append(line)
        elif block and (_indented(block) or block == ["Example:"]):
            block.append(line)
        elif block:
            yield block
            block = []
    if block:
        yield _stripped(block)


def _stripped(block: list[str]) -> list[str]:
    while block and not block[-1].strip():
        block = block[:-1]
    return block


def _indented(block: list[str]) -> bool:
    return block[0].startswith("    ")


def _block_as_rst(block: list[str]) -> list[str]:
    if block[0].strip() == "Example:":
        return [".. rubric:: Example"]
    if _indented(block):
        return _literal(textwrap.dedent("\n".join(block)).splitlines())
    if any(line.startswith("----") for line in block):
        return _literal(block)
    if _is_table(block):
        return _definitions(block)
    if _LIST.match(block[0]):
        return [("" if _LIST.match(line) else "  ") + _text(line.strip(), start=line[:2]) for line in block]
    return _text("\n".join(line.strip() for line in block)).splitlines()


def _literal(lines: list[str]) -> list[str]:
    if lines[0].startswith(">>>"):
        language = "pycon"
    else:
        language = (
            "python" if any(re.search(r"\blab\.|\w\(.*\)|^class ", line) for line in lines) and _is_python(lines) else "text"
        )
    return [f".. code-block:: {language}", "", *("   " + line for line in lines)]


def _is_python(lines: list[str]) -> bool:
    try:
        compile("\n".join(lines).replace("…", "..."), "docstring", "exec", flags=0x2000)  # with await at the top
    except SyntaxError:
        return False
    return True


def _is_table(block: list[str]) -> bool:
    return sum(1 for line in block if not line.startswith(" ") and _COLUMNS.match(line)) >= max(1, len(block) // 4)


def _definitions(block: list[str]) -> list[str]:
    made: list[str] = []
    for line in block:
        row = None if line.startswith(" ") else _COLUMNS.match(line)
        if row:
            made += [*([""] if made else []), f"``{row['name']}``", "   " + _text(row["meaning"])]
        else:
            made.append("   " + _text(line.strip()))
    return made


def _text(text: str, start: str = "") -> str:
    """Return a paragraph: text in backticks is code, or a link if it is a public name; no other character has a meaning."""
    if start and text.startswith(start):
        return start + _text(text[len(start) :])
    made, at = "", 0
    for piece in _PIECES.finditer(text):
        made += _escaped(text[at : piece.start()]) + _code(" ".join(piece[2].split()), made, text[piece.end() : piece.end() + 1])
        at = piece.end()
    return made + _escaped(text[at:])


def _code(code: str, before: str, after: str) -> str:
    target = link_to(code)
    made = f":py:obj:`{code} <{target}>`" if target else f"``{code}``"
    return (
        ("\\ " if before and not before[-1].isspace() and before[-1] not in "(" else "")
        + made
        + ("\\ " if after.isalnum() else "")
    )


def _escaped(text: str) -> str:
    """Escape every character with a meaning in reStructuredText, except those of `**bold**`."""
    return "".join(
        piece if number % 2 else _SPECIAL.sub(r"\\\1", piece) for number, piece in enumerate(re.split(r"(\*\*[^*]+\*\*)", text))
    )


def _process(*event: Any) -> None:
    lines: list[str] = event[-1]
    lines[:] = as_rst(lines)


def setup(app: Any) -> dict[str, bool]:
    """Connect the conversion before napoleon, which then handles only its own sections."""
    app.connect("autodoc-process-docstring", _process, priority=100)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

"""A card: a title, rows of a name and a value, a table, a line below. Here it becomes HTML, and nowhere else is that made of one."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from agentlab.condition_code import condition_code
from agentlab.printable import AS_WRITTEN, escape
from agentlab.redaction import text_of
from agentlab.stop import StopCondition

MOST_ROWS = 24
FIRST, LAST = 10, 10
"""So many rows of a long table are shown, of its beginning and of its end."""
LONGEST_VALUE = 300
"""Characters of a value."""
LONGEST_NAME = 80
UNKNOWN = "unknown"

_LEFT = "text-align:left;vertical-align:top"
_NAME = f"{_LEFT};min-width:6em"
_VALUE = f"{_LEFT};white-space:pre-wrap;overflow-wrap:anywhere;max-width:60em"


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under column heads; of a long one the first and the last, `count` in all."""

    heads: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]
    count: int

    @property
    def left_out(self) -> int:
        """Rows that are not shown."""
        return self.count - len(self.rows)


@dataclass(frozen=True, slots=True)
class Card:
    """What is shown of a value. Values may be anything: they are told in words and escaped when the card becomes HTML."""

    title: str
    rows: tuple[tuple[str, object], ...] = ()
    table: Table | None = None
    note: str = ""


def ends_of(whole: Sequence[Any]) -> tuple[list[Any], int]:
    """The first and the last of a long sequence, and how many there are; the rest is not touched."""
    count = len(whole)
    if count <= FIRST + LAST:
        return list(whole), count
    return [*(whole[at] for at in range(FIRST)), *(whole[at] for at in range(count - LAST, count))], count


def in_words(value: object) -> str:
    """A value for people: None is unknown unless the card has said otherwise."""
    if value is None:
        return UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Decimal):
        return f"{value.normalize():f}"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Mapping | list | tuple | set | frozenset) and not value:
        return "none"
    if isinstance(value, StopCondition):
        return condition_code(value)
    return text_of(value, repr)


def as_html(card: Card) -> str:
    """The card, with nothing in it that a page could run."""
    rows = "".join(
        f'<tr><th scope="row" style="{_NAME}">{escape(name, LONGEST_NAME)}</th><td style="{_VALUE}">{_cell(value)}</td></tr>'
        for name, value in card.rows[:MOST_ROWS]
    )
    more = len(card.rows) - MOST_ROWS
    parts = [
        f'<p style="margin:0 0 2px"><b>{escape(card.title)}</b></p>',
        f"<table><tbody>{rows}</tbody></table>" if rows else "",
        f"<p>… and {more:,} more</p>" if more > 0 else "",
        "" if card.table is None else _table(card.table),
        f"<p>{_with_code(card.note)}</p>" if card.note else "",
    ]
    return f'<div class="agentlab-card {AS_WRITTEN}">{"".join(parts)}</div>'


def _with_code(note: str) -> str:
    """A note, with code in it where it says so by backticks."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(note))


def _table(table: Table) -> str:
    heads = "".join(f'<th scope="col" style="{_LEFT}">{escape(head, LONGEST_NAME)}</th>' for head in table.heads)
    rows = [_row(row) for row in table.rows]
    if table.left_out:
        gap = f'<tr><td colspan="{len(table.heads)}" style="{_LEFT}">… {table.left_out:,} more …</td></tr>'
        rows.insert(FIRST, gap)
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _row(cells: tuple[object, ...]) -> str:
    told = "".join(f'<td style="{_VALUE}">{_cell(cell)}</td>' for cell in cells)
    return f"<tr>{told}</tr>"


def _cell(value: object) -> str:
    return escape(in_words(value), LONGEST_VALUE)

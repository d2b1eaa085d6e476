"""What a notebook shows of each public value: a small table, the same at every execution (no times, no ids), and its repr as text.

Everything is escaped, cut where it is long, and readable on white and on black. Neither pandas nor ipywidgets is loaded for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from agentlab.cards import of_runs, of_values
from agentlab.cards.card import Card, as_html
from agentlab.printable import cut

LONGEST_TEXT = 2_000
"""Characters of a repr."""

_CARDS: Mapping[str, Callable[[Any], Card]] = {**of_values.CARDS, **of_runs.CARDS}


def bundle(value: object) -> dict[str, str]:
    """The value as text and as HTML, for `_repr_mimebundle_`."""
    return {"text/plain": cut(repr(value), LONGEST_TEXT), "text/html": as_html(card_of(value))}


def card_of(value: object) -> Card:
    """What is shown of a value: by the name of its class, or of the first of its bases that has a card."""
    for kind in type(value).__mro__:
        if kind.__name__ in _CARDS and kind.__module__.startswith("agentlab"):
            return _CARDS[kind.__name__](value)
    return of_values.fields_of(value)

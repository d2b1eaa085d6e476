"""The rows of an explorer: for each limit a number, a box for none, and a slider; for tools a box each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from typing import Any

import ipywidgets as widgets

from agentlab.printable import label
from agentlab.widgets import markup
from agentlab.widgets.chosen_limits import ChosenLimits
from agentlab.widgets.drawing import is_drawing
from agentlab.widgets.fields import Face, NumberField
from agentlab.widgets.page_parts import RangeSlider
from agentlab.widgets.tried_limits import Offer, Value
from agentlab.widgets.written import Html

NO_LIMIT, AS_RECORDED = "no limit", "as recorded"
"""What None is: no limit, or each run's own where these differ."""


class LimitRow:
    """One limit: what is typed, ticked, slid, or set from code is the same value."""

    def __init__(self, offer: Offer, chosen: ChosenLimits, none: str = NO_LIMIT) -> None:
        self.offer, self._chosen, self._name = offer, chosen, offer.kind.name
        value, kind = chosen[self._name], offer.kind
        middle = offer.values[len(offer.values) // 2]
        told = f"{self._name}: {none}, or a value from {offer.values[0]} to {offer.values[-1]} and beyond"
        face = Face(kind.label, unit=kind.unit, help=told, nothing=none, start=middle, label_width="7.5em", width="14.5em")
        self.number = NumberField(face, kind.number, value, self._write)
        words = [f"{kind.label} {_in_words(one, kind.unit)}" for one in offer.values]
        self.slider = RangeSlider(
            label=f"{kind.label}, slider", texts=[*words, f"{kind.label}: {none}"], place=offer.place_of(value)
        )
        self.slider.observe(self._slid, "place")
        self.view = widgets.VBox([self.number.view, self.slider], _dom_classes=("agentlab-limit-row",))

    def show(self) -> None:
        """Bring number and slider up to date."""
        self.number.follow(lambda: self._chosen[self._name])
        self.slider.place = self.offer.place_of(self._chosen[self._name])

    def _write(self, value: Value) -> None:
        self._chosen[self._name] = value

    def _slid(self, change: Any) -> None:
        place = change["new"]
        if is_drawing() or place == self.offer.place_of(self._chosen[self._name]):
            return
        self._chosen[self._name] = None if place >= len(self.offer.values) else self.offer.values[place]


class ToolTicks:
    """The tools that were called: a box each; a run stops when one of those that are ticked was called."""

    def __init__(self, offer: Offer, chosen: ChosenLimits, none: str = NO_LIMIT) -> None:
        self._chosen, self._name = chosen, offer.kind.name
        self.boxes = {
            name: widgets.Checkbox(
                value=name in (chosen[self._name] or ()), description=label(name), indent=False,
                tooltip="Stop when this tool was called", layout={"width": "auto"}, _dom_classes=("agentlab-tick",),
            )
            for name in offer.values
        }  # fmt: skip
        for name, box in self.boxes.items():
            box.observe(self._ticking(name), "value")
        each = "" if none == NO_LIMIT else f" ({none} while none is ticked)"
        head = Html(f"Stop when one of these tools was called{each}:", _dom_classes=("agentlab-tools-head",))
        self.view = widgets.VBox([head, widgets.HBox(list(self.boxes.values()), _dom_classes=("agentlab-ticks",))])

    def show(self) -> None:
        """Bring the boxes up to date."""
        for name, box in self.boxes.items():
            box.value = name in (self._chosen[self._name] or ())

    def _ticking(self, name: str) -> Callable[[Any], None]:
        def ticked(change: Any) -> None:
            names = self._chosen[self._name] or ()
            if not is_drawing() and (name in names) != change["new"]:
                others = tuple(one for one in names if one != name)
                self._chosen[self._name] = ((*others, name) if change["new"] else others) or None

        return ticked


def rows_of(offered: Mapping[str, Offer], chosen: ChosenLimits, differing: Set[str]) -> dict[str, LimitRow | ToolTicks]:
    """A row for each limit that there are values for; of those that are `differing` each run has its own."""
    return {
        name: (ToolTicks if offer.kind.number is tuple else LimitRow)(
            offer, chosen, AS_RECORDED if name in differing else NO_LIMIT
        )
        for name, offer in offered.items()
        if offer.values
    }


def left_out(offered: Mapping[str, Offer]) -> str:
    """The limits that there is no slider for, and why."""
    return "".join(markup.note(f"{offer.kind.label}: {offer.why_not}.") for offer in offered.values() if not offer.values)


def _in_words(value: Value, unit: str) -> str:
    return (
        f"{value:,} {unit}".strip() if isinstance(value, int) else f"{value:f} {unit}" if unit == "USD" else f"{value:g} {unit}"
    )

"""The controls of a panel's values: a number, a text, names, a choice, yes or no; and the choice of one for a dataclass field.

The control is chosen by the field's type and its metadata (unit, minimum, maximum, start, help, none), so a new condition or limit has
its control without a line here. A value that is refused shows its error beside the control, and the old one stays in force.
"""

from __future__ import annotations

import dataclasses
import enum
import math
import threading
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import ipywidgets as widgets

from agentlab._internal.redaction import redact
from agentlab._internal.safe_text import label as label_of
from agentlab.errors import ConfigurationError, LimitError
from agentlab.limits.fields import start_of, whole_number
from agentlab.notebook import markup
from agentlab.notebook.live_view import is_drawing
from agentlab.notebook.markup import Html

Write = Callable[[Any], None]
"""Receives a new value; raises if it is refused."""

UNITS_TO_SAY = ("USD", "s")
LINE = "agentlab-first-line"
"""Style of a label of which only the first line is visible; screen readers read the rest."""


@dataclass(frozen=True, slots=True)
class Face:
    """The presentation of a value: `label` is its name, `about` its owner if the label alone is ambiguous, `nothing` the word for None
    (empty if None is not allowed), `start` the value offered first."""

    label: str
    about: str = ""
    unit: str = ""
    help: str = ""
    nothing: str = ""
    start: Any = None
    label_width: str = "11em"
    width: str = "19em"

    @property
    def description(self) -> str:
        """The text of the label."""
        unit = f" ({self.unit})" if self.unit in UNITS_TO_SAY else ""
        return f"{self.label}{unit}\nof {self.about}" if self.about else f"{self.label}{unit}"

    def dress(self, **more: Any) -> dict[str, Any]:
        """The arguments that all controls share."""
        return {
            "description": self.description,
            "tooltip": self.help,
            "style": {"description_width": self.label_width},
            "layout": {"width": self.width, "flex": "0 1 auto", "min_width": "0"},
            "_dom_classes": ("agentlab-field", LINE),
            **more,
        }


class Field:
    """A control and its message. `view` has both below each other; `pick`, if any, is a list to choose from."""

    pick: Any = None

    def __init__(self, face: Face, value: Any, write: Write, control: Any, *, beside: Sequence[Any] = ()) -> None:
        self._lock = threading.RLock()  # edits and redraws arrive on different threads
        self.face, self._shown, self._write = face, value, write
        self.box = control
        self.control = widgets.HBox([control, *beside], _dom_classes=("agentlab-field-row",)) if beside else control
        self.message = Html(_dom_classes=("agentlab-message",))
        self._display(value)
        control.observe(self._changed, "value")

    @property
    def view(self) -> Any:
        """The control with the message below it."""
        return widgets.VBox([self.control, self.message])

    def show(self, value: Any) -> None:
        """Show the value in force; one that is shown already is left alone, so that typing is not disturbed."""
        self.follow(lambda: value)

    def follow(self, read: Callable[[], Any]) -> None:
        """Show the value that `read` returns now; an edit since an earlier reading is kept."""
        with self._lock:
            value = read()
            if value == self._shown and type(value) is type(self._shown):
                return
            self._shown = value
            self._display(value)
            self.message.value = ""

    def rename(self, label: str, about: str = "") -> None:
        """Change the label."""
        if (label, about) != (self.face.label, self.face.about):
            self.face = dataclasses.replace(self.face, label=label, about=about)
            self.box.description = self.face.description

    def enable(self, on: bool) -> None:
        """Enable or disable editing."""
        self.box.disabled = not on

    @property
    def entered(self) -> Any:
        """The value in the control, in force or not."""
        return self._entered(self.box.value)

    def _display(self, value: Any) -> None:
        raise NotImplementedError

    def _entered(self, shown: Any) -> Any:
        """The value for the content of the control."""
        return shown

    def _in_words(self, value: Any) -> str:
        return self.face.nothing if value is None else redact(str(value))

    def _changed(self, change: Any) -> None:
        if not is_drawing():
            self._try(self._entered(change["new"]))

    def _try(self, value: Any) -> None:
        if value == self._shown:
            self.message.value = ""
            return
        try:
            self._write(value)
        except Exception as error:  # a user's condition may raise anything
            text = str(error) if isinstance(error, ConfigurationError) else f"{type(error).__name__}: {error}"
            self.message.value = markup.fault(f"{text} Still in force: {self._in_words(self._shown)}.")
        else:
            with self._lock:  # not during the write, whose subscribers may wait for a redraw
                self._shown = value
                self._display(value)  # another change may have come in between
                self.message.value = ""


class NumberField(Field):
    """A number box; if None is allowed, with a check box for it."""

    def __init__(self, face: Face, kind: type, value: Any, write: Write) -> None:
        self._kind = kind
        first = face.start if value is None else value
        first = 1 if first is None else first
        step = 0.01 if kind is Decimal else 1.0
        # A FloatText for whole numbers too: an IntText turns 5.5 into 5, and 1e3 into 1, without an error.
        self.number = widgets.FloatText(**face.dress(value=float(first), step=step))
        self.unlimited: Any = None
        if face.nothing:
            self.unlimited = widgets.Checkbox(
                value=value is None,
                description=face.nothing,
                tooltip=f"{face.nothing} on {face.label}",
                indent=False,
                layout={"width": "auto"},
                _dom_classes=("agentlab-tick",),
            )
            self.unlimited.observe(self._switched, "value")
        self._enabled = True
        super().__init__(face, value, write, self.number, beside=[self.unlimited] if face.nothing else [])

    def enable(self, on: bool) -> None:
        """Enable or disable editing; the number only if there is a limit."""
        self._enabled = on
        if self.unlimited is not None:
            self.unlimited.disabled = not on
        self.number.disabled = not on or self._is_unlimited

    def _display(self, value: Any) -> None:
        if value is not None:
            self.number.value = float(value)
        if self.unlimited is not None:
            self.unlimited.value = value is None
        self.number.disabled = self._is_unlimited or not self._enabled

    @property
    def _is_unlimited(self) -> bool:
        return self.unlimited is not None and bool(self.unlimited.value)

    def _entered(self, shown: Any) -> Any:
        return as_typed(shown) if self._kind is int else Decimal(str(shown)) if self._kind is Decimal else shown

    def _changed(self, change: Any) -> None:
        if not self._is_unlimited:
            super()._changed(change)

    def _switched(self, change: Any) -> None:
        if is_drawing():
            return
        self.number.disabled = change["new"] or not self._enabled
        self._try(None if change["new"] else self._entered(self.number.value))


def as_typed(number: float) -> int | float:
    """Return the number of a box, which has floats only: an int if it is whole; a fraction stays, and is refused later."""
    return int(number) if number.is_integer() else number


class TextField(Field):
    """A box for text, of several lines if it is long. An empty box is None if that is allowed."""

    def __init__(self, face: Face, value: str | None, write: Write, *, is_long: bool = False) -> None:
        make = widgets.Textarea if is_long else widgets.Text
        rows = {"rows": 4} if is_long else {}
        self.text = make(**face.dress(continuous_update=False, placeholder=face.nothing, **rows))
        super().__init__(face, value, write, self.text)

    def _display(self, value: str | None) -> None:
        self.text.value = redact(value or "")

    def _entered(self, shown: str) -> str | None:
        if self._shown and shown == redact(self._shown):  # a key is not shown; it stays unless the text is edited
            return str(self._shown)
        return shown if shown.strip() or not self.face.nothing else None


class NamesField(Field):
    """A box for names separated by commas. `make` converts them to the type of the value. With `known` names, a list beside the box
    adds or removes the chosen one; others can be typed."""

    def __init__(
        self,
        face: Face,
        value: Iterable[str] | None,
        write: Write,
        *,
        make: Callable[[Iterable[str]], Any] = tuple,
        known: Iterable[str] = (),
    ) -> None:
        self._make, self._known = make, tuple(map(str, known))
        self.text = widgets.Text(**face.dress(continuous_update=False, placeholder=face.nothing))
        if self._known:
            self.pick = widgets.Dropdown(
                options=[""], layout={"width": "auto"}, style={"description_width": "0"},
                _dom_classes=("agentlab-field", "agentlab-quiet", "agentlab-pick"),
            )  # fmt: skip
            self.pick.observe(self._picked, "value")
        super().__init__(face, value, write, self.text)
        self._name_the_pick()

    def rename(self, label: str, about: str = "") -> None:
        """Change the label."""
        super().rename(label, about)
        self._name_the_pick()

    def enable(self, on: bool) -> None:
        """Enable or disable editing."""
        super().enable(on)
        if self.pick is not None:
            self.pick.disabled = not on

    def _name_the_pick(self) -> None:
        if self.pick is not None:
            self.pick.description = self.pick.tooltip = f"Choose for {self.face.label}"

    def _display(self, value: Iterable[str] | None) -> None:
        self.text.value = self._in_words(value) if value else ""
        if self.pick is not None:
            names = set(map(str, value or ()))
            options = [("choose …", ""), *((f"{'✓ ' * (name in names)}{label_of(name)}", name) for name in self._known)]
            if options != list(self.pick.options):
                self.pick.options = options

    def _picked(self, change: Any) -> None:
        name = change["new"]
        if not name or is_drawing():
            return
        names = [str(one) for one in self._shown or ()]
        chosen = [one for one in names if one != name] if name in names else [*names, name]
        self._try(None if not chosen and self.face.nothing else self._make(chosen))
        self.pick.value = ""

    def _in_words(self, value: Iterable[str] | None) -> str:
        return self.face.nothing if value is None else ", ".join(redact(str(one)) for one in value)

    def _entered(self, shown: str) -> Any:
        known = {redact(str(one)): str(one) for one in self._shown or ()}  # values that contain a key are shown redacted
        names = [known.get(name.strip(), name.strip()) for name in shown.split(",") if name.strip()]
        return None if not names and self.face.nothing else self._make(names)


class ChoiceField(Field):
    """One of several values; None is one of them if it is allowed."""

    def __init__(self, face: Face, choices: Iterable[Any], value: Any, write: Write) -> None:
        self._choices = [*([None] if face.nothing else []), *choices]
        if value not in self._choices:
            self._choices.append(value)
        options = [(face.nothing if choice is None else redact(str(choice)), choice) for choice in self._choices]
        self.choice = widgets.Dropdown(**face.dress(options=options, value=value))
        super().__init__(face, value, write, self.choice)

    def _display(self, value: Any) -> None:
        if value not in self._choices:
            self._choices.append(value)
            self.choice.options = [*self.choice.options, (self._in_words(value), value)]
        self.choice.value = value


class CheckField(Field):
    """Yes or no."""

    def __init__(self, face: Face, value: bool, write: Write) -> None:
        dress = face.dress(value=value, indent=False)
        self.check = widgets.Checkbox(**{**dress, "style": {}, "_dom_classes": ("agentlab-tick", LINE)})
        super().__init__(face, value, write, self.check)

    def _display(self, value: bool) -> None:
        self.check.value = value


class ShownField(Field):
    """A value of a type without a control: shown, and edited from code only."""

    def __init__(self, face: Face, value: Any, kind: str) -> None:
        self._kind = kind
        super().__init__(face, value, _refuse, Html())

    def rename(self, label: str, about: str = "") -> None:
        """Change the label."""
        self.face = dataclasses.replace(self.face, label=label, about=about)
        self._display(self._shown)

    def enable(self, on: bool) -> None:
        """Nothing can be edited here."""

    def _display(self, value: Any) -> None:
        name, shown = markup.escape(self.face.label), markup.escape(repr(value), 120)
        self.box.value = f"{name}: <code>{shown}</code> {markup.aside(f'({self._kind}: set it from code)')}"

    def _changed(self, change: Any) -> None:
        """The text is not edited in the page."""


def _refuse(value: Any) -> None:
    raise ConfigurationError(f"{value!r}: set this value from code.")


NUMBERS = (int, Decimal, float)
LONG = 60
"""Length of a text from which its box has several lines."""


def hints_of(kind: type) -> Mapping[str, Any]:
    """The types of a class's fields; empty if they cannot be resolved, as for names defined inside a function."""
    try:
        return typing.get_type_hints(kind)
    except Exception:
        return {}


def face_of(field: dataclasses.Field[Any], label: str, *, nothing: str = "", **more: Any) -> Face:
    """The presentation of a field, from its metadata."""
    start = start_of(field)
    return Face(
        label,
        unit=field.metadata.get("unit", ""),
        help=field.metadata.get("help", ""),
        nothing=nothing,
        start=None if start is dataclasses.MISSING else start,
        **more,
    )


def field_for(
    owner: type,
    field: dataclasses.Field[Any],
    value: Any,
    write: Write,
    *,
    label: str,
    nothing: str = "no limit",
    known: Mapping[str, Iterable[str]] | None = None,
    **more: Any,
) -> Field:
    """The control for a dataclass field. `nothing` is the word for None; `known` has names to choose from, by the field's metadata
    `known`."""
    hint = _bare(hints_of(owner).get(field.name, type(value)))
    kinds = _alternatives(hint)
    optional = type(None) in kinds
    kinds = tuple(kind for kind in kinds if kind is not type(None))
    word = field.metadata.get("none", nothing) if optional else ""
    face = face_of(field, label, nothing=word, **more)
    if all(typing.get_origin(kind) is typing.Literal for kind in kinds) and kinds:
        choices = [choice for kind in kinds for choice in typing.get_args(kind)]
        return ChoiceField(face, [choice for choice in choices if choice is not None], value, write)
    if len(kinds) == 1 and isinstance(kinds[0], type) and issubclass(kinds[0], enum.Enum):
        return ChoiceField(face, list(kinds[0]), value, write)
    if kinds == (bool,):
        return ChoiceField(face, [True, False], value, write) if optional else CheckField(face, value, write)
    numbers = [kind for kind in kinds if kind in NUMBERS]
    if numbers and (len(numbers) == len(kinds) or Decimal in numbers):  # a Decimal may be given as text
        kind = Decimal if Decimal in numbers else float if float in numbers else int
        return NumberField(face, kind, value, _within(owner, field, kind, write))
    if kinds == (str,):
        is_long = field.metadata.get("lines", 1) > 1 or "\n" in (value or "") or len(value or "") > LONG
        return TextField(face, value, write, is_long=is_long)
    if len(kinds) == 1 and (make := _makes_names(kinds[0])) is not None:
        return NamesField(face, value, write, make=make, known=(known or {}).get(field.metadata.get("known", ""), ()))
    return ShownField(face, value, _name_of(hint))


def _within(owner: type, field: dataclasses.Field[Any], kind: type, write: Write) -> Write:
    """The same, with a check of the bounds in the field's metadata and of whole numbers, for classes that do not check them."""
    least, most = field.metadata.get("minimum"), field.metadata.get("maximum")
    if owner.__module__.partition(".")[0] == "agentlab":
        return write

    def write_within(value: Any) -> None:
        if kind is int and isinstance(value, float):
            whole_number(owner.__name__, field.name, value, 0 if least is None else math.ceil(least))
        if value is not None and least is not None and not value >= least:
            raise LimitError(f"{owner.__name__}({field.name}={value}): {field.name} must be at least {least}.")
        if value is not None and most is not None and not value <= most:
            raise LimitError(f"{owner.__name__}({field.name}={value}): {field.name} must be at most {most}.")
        write(value)

    return write_within


def _bare(hint: Any) -> Any:
    """The type inside Annotated, NewType and Final."""
    while True:
        if typing.get_origin(hint) in (typing.Annotated, typing.Final):
            hint = typing.get_args(hint)[0]
        elif isinstance(hint, typing.NewType):
            hint = hint.__supertype__
        else:
            return hint


def _alternatives(hint: Any) -> tuple[Any, ...]:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return tuple(inner for part in typing.get_args(hint) for inner in _alternatives(_bare(part)))
    return (hint,)


def _makes_names(kind: Any) -> Any:
    """The collection type, if the field is a collection of names."""
    made = typing.get_origin(kind)
    if made not in (tuple, list, set, frozenset):
        return None
    items = [part for part in typing.get_args(kind) if part is not Ellipsis]
    if made is tuple and typing.get_args(kind)[-1:] != (Ellipsis,):
        return None
    return made if len(items) == 1 and str in _alternatives(_bare(items[0])) else None


def _name_of(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint).replace("typing.", "")

"""Which control suits a field of a dataclass: by its type, and by what its metadata says (unit, minimum, maximum, start, help, none).

So a new condition, or a new limit, has its control with no line in this folder.
"""

from __future__ import annotations

import dataclasses
import enum
import math
import types
import typing
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

from agentlab.errors import LimitError
from agentlab.limits import start_of, whole_number
from agentlab.widgets.fields import (
    CheckField,
    ChoiceField,
    Face,
    Field,
    NamesField,
    NumberField,
    ShownField,
    TextField,
    Write,
)

NUMBERS = (int, Decimal, float)
LONG = 60
"""From so many characters on a text has several lines."""


def hints_of(kind: type) -> Mapping[str, Any]:
    """The types of a class's fields; none where they cannot be found out, as for names that are known in a function only."""
    try:
        return typing.get_type_hints(kind)
    except Exception:
        return {}


def face_of(field: dataclasses.Field[Any], label: str, *, nothing: str = "", **more: Any) -> Face:
    """What the metadata of a field says about its control."""
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
    """The control for this field of a dataclass, in the way in which it may be edited. `nothing` is the word for None.
    `known` has names to choose from, by what the field's metadata says that they are."""
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
    if numbers and (len(numbers) == len(kinds) or Decimal in numbers):  # a Decimal may be given as text too
        kind = Decimal if Decimal in numbers else float if float in numbers else int
        return NumberField(face, kind, value, _within(owner, field, kind, write))
    if kinds == (str,):
        is_long = field.metadata.get("lines", 1) > 1 or "\n" in (value or "") or len(value or "") > LONG
        return TextField(face, value, write, is_long=is_long)
    if len(kinds) == 1 and (make := _makes_names(kinds[0])) is not None:
        return NamesField(face, value, write, make=make, known=(known or {}).get(field.metadata.get("known", ""), ()))
    return ShownField(face, value, _name_of(hint))


def _within(owner: type, field: dataclasses.Field[Any], kind: type, write: Write) -> Write:
    """The same, for a class that does not check its values itself: nothing beyond the bounds in the field's metadata, and no fraction
    where a whole number is wanted."""
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
    """The type itself, out of Annotated, NewType and Final."""
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
    """What makes a collection of names, if that is what is wanted here."""
    made = typing.get_origin(kind)
    if made not in (tuple, list, set, frozenset):
        return None
    items = [part for part in typing.get_args(kind) if part is not Ellipsis]
    if made is tuple and typing.get_args(kind)[-1:] != (Ellipsis,):
        return None
    return made if len(items) == 1 and str in _alternatives(_bare(items[0])) else None


def _name_of(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint).replace("typing.", "")

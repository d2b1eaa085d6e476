"""A field of a dataclass as a control of the page, and the value that a person enters there.

The control follows from the field's type and metadata (unit, minimum, maximum, start, help, none, lines, known), so that a new limit or
condition has its control without a line here.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import math
import re
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from agentlab._internal.redaction import redact
from agentlab._internal.safe_text import cut
from agentlab.errors import ConfigurationError, LimitError
from agentlab.limits.fields import start_of, whole_number

JSON = dict[str, Any]
NUMBERS = (int, Decimal, float)
LONG = 60
"""Length of a text from which its box has several lines."""
TIMES = {"ms": "0.001", "s": "1", "min": "60", "h": "3600"}
SIZES = {"k": "1000", "m": "1000000"}
_NUMBER = re.compile(r"\$?\s*([+-]?(?:[1-9]\d{0,2}(?:[,_ ]\d{3})+|\d+)?(?:\.\d*)?(?:e[+-]?\d+)?)\s*([a-z]*)", re.IGNORECASE)
"""A number with or without separators of thousands, and a letter for its size or unit."""


@dataclass(frozen=True, slots=True)
class Kind:
    """How the values of a field are entered: `control` is number, text, names, choice, check or shown; `type` the type of a number or
    of the collection of names; `choices` the values to choose from."""

    control: str
    type: Any = None
    choices: tuple[Any, ...] = ()
    optional: bool = False
    hint: str = ""


def kind_of(owner: type, name: str, value: object) -> Kind:
    """Return how a field is entered."""
    return _kind_of(owner, name, type(value))  # type: ignore[arg-type]


@functools.lru_cache(maxsize=512)
def _kind_of(owner: type, name: str, found: type) -> Kind:
    """Return the same; `found` is the type of the value, for hints that cannot be resolved."""
    try:
        hint = typing.get_type_hints(owner).get(name, found)
    except Exception:  # names defined inside a function
        hint = found
    kinds = _alternatives(hint)
    optional = type(None) in kinds
    kinds = tuple(kind for kind in kinds if kind is not type(None))
    numbers = [kind for kind in kinds if kind in NUMBERS]
    if kinds and all(typing.get_origin(kind) is typing.Literal for kind in kinds):
        choices = [choice for kind in kinds for choice in typing.get_args(kind) if choice is not None]
        return Kind("choice", choices=tuple(choices), optional=optional)
    if len(kinds) == 1 and isinstance(kinds[0], type) and issubclass(kinds[0], enum.Enum):
        return Kind("choice", choices=tuple(kinds[0]), optional=optional)
    if kinds == (bool,):
        return Kind("choice", choices=(True, False), optional=True) if optional else Kind("check")
    if numbers and (len(numbers) == len(kinds) or Decimal in numbers):  # a Decimal may be given as text
        return Kind("number", Decimal if Decimal in numbers else float if float in numbers else int, optional=optional)
    if kinds == (str,):
        return Kind("text", optional=optional)
    if len(kinds) == 1 and (made := _collection_of_names(kinds[0])) is not None:
        return Kind("names", made, optional=optional)
    return Kind("shown", hint=hint.__name__ if isinstance(hint, type) else str(hint).replace("typing.", ""))


def field_data(
    owner: type,
    field: dataclasses.Field[Any],
    value: Any,
    none: str = "no limit",
    known: Mapping[str, Iterable[str]] | None = None,
) -> JSON:
    """Return a field as the page needs it for its control. `none` is the word for None; `known` has names to choose from, by the
    field's metadata `known`."""
    kind, data = kind_of(owner, field.name, value), field.metadata
    start = start_of(field)
    found = {
        "name": field.name,
        "label": data.get("label", field.name).removeprefix("the "),
        "control": kind.control,
        "value": shown(kind, value),
        "unit": {"USD": "usd"}.get(data.get("unit", ""), data.get("unit", "")),
        "help": data.get("help", ""),
        "none": data.get("none", none) if kind.optional else "",
        "start": None if start is dataclasses.MISSING else shown(kind, start),
    }
    if kind.control == "choice":
        found["choices"] = [shown(kind, choice) for choice in _choices(kind, value)]
    elif kind.control == "names":
        found["known"] = [redact(str(name)) for name in (known or {}).get(data.get("known", ""), ())]
        found["chosen"] = [redact(str(name)) for name in value or ()]
    elif kind.control == "text":
        found["long"] = data.get("lines", 1) > 1 or "\n" in (value or "") or len(value or "") > LONG
    elif kind.control == "shown":
        found["help"] = f"{kind.hint}: set it from code"
    return found


def shown(kind: Kind, value: Any) -> Any:
    """Return a value as its control shows it: text, a boolean, or None. Keys are redacted."""
    if value is None or kind.control == "check":
        return value
    if kind.control == "names":
        return ", ".join(redact(str(name)) for name in value)
    if kind.control == "number":
        if isinstance(value, float) and not math.isfinite(value):
            return str(value)
        exact = value if isinstance(value, int) else Decimal(str(value))
        comma = "," if kind.type is int else ""  # elsewhere it is refused when it is typed
        return f"{int(exact):{comma}}" if exact == int(exact) else f"{exact:{comma}f}"
    return redact(value) if kind.control == "text" else cut(value if kind.control == "choice" else repr(value), 200)


def entered(owner: type, field: dataclasses.Field[Any], typed: Any, now: Any) -> Any:
    """Return the value for what the page sends; `now` is the value in force. Raises LimitError for what cannot be read.

    None is None; names come as text, or as `{"toggle": name}`, which adds or removes one.
    """
    kind = kind_of(owner, field.name, now)
    value: Any = None
    if typed is None and kind.optional:
        pass
    elif kind.control == "number":
        value = _number(field, kind.type, typed)
    elif kind.control == "names":
        value = _names(kind, typed, now)
    elif kind.control == "choice":
        value = next((choice for choice in _choices(kind, now) if shown(kind, choice) == typed), ...)
        if value is ...:
            raise LimitError(f"{field.name}: {cut(typed, 40)!r} is not one of the choices.")
    elif kind.control == "check":
        value = bool(typed)
    elif kind.control == "text":
        text = str(typed)
        # A key is not shown; it stays unless the text is edited.
        value = now if now and text == redact(now) else text if text.strip() or not kind.optional else None
    else:
        raise ConfigurationError(f"{field.name}: set this value from code.")
    _check_bounds(owner, field, kind, value)
    return value


def _choices(kind: Kind, value: Any) -> list[Any]:
    """Return the values to choose from; one set in code is among them."""
    return [*kind.choices, *([] if value is None or value in kind.choices else [value])]


def _number(field: dataclasses.Field[Any], kind: type, typed: Any) -> int | float | Decimal:
    read = _NUMBER.fullmatch(str(typed).strip())
    sizes = TIMES if field.metadata.get("unit") == "s" else SIZES
    # 1,500 is one and a half in half of the world, and 1.500 is fifteen hundred there
    unclear = re.fullmatch(r"\d{1,3}\.\d{3}", str(typed).strip()) if kind is int else "," in str(typed)
    if read is None or not any(map(str.isdigit, read[1])) or (read[2] and read[2].lower() not in sizes) or unclear:
        such = "8 or 10,000" if kind is int else "0.05 or 1500"
        raise LimitError(f"{field.name}: {cut(typed, 40)!r} is not a number; write it as {such}.")
    number = Decimal(re.sub("[,_ ]", "", read[1])) * Decimal(sizes.get(read[2].lower(), 1))
    if kind is Decimal:
        return number
    return int(number) if kind is int and number == int(number) else float(number)  # a fraction is refused by the owner


def _names(kind: Kind, typed: Any, now: Any) -> Any:
    held = {redact(str(one)): str(one) for one in now or ()}  # names that contain a key are shown redacted
    if isinstance(typed, dict):
        name = str(typed.get("toggle"))
        names = [one for one in held if one != name] if name in held else [*held, name]
    else:
        names = [name.strip() for name in str(typed).split(",") if name.strip()]
    return None if not names and kind.optional else kind.type(held.get(name, name) for name in names)


def _check_bounds(owner: type, field: dataclasses.Field[Any], kind: Kind, value: Any) -> None:
    """Check the bounds in the field's metadata, and whole numbers, for classes that do not check them."""
    least, most = field.metadata.get("minimum"), field.metadata.get("maximum")
    if owner.__module__.partition(".")[0] == "agentlab" or value is None:
        return
    if kind.type is int and isinstance(value, float):
        whole_number(owner.__name__, field.name, value, 0 if least is None else math.ceil(least))
    if least is not None and not value >= least:
        raise LimitError(f"{owner.__name__}({field.name}={value}): {field.name} must be at least {least}.")
    if most is not None and not value <= most:
        raise LimitError(f"{owner.__name__}({field.name}={value}): {field.name} must be at most {most}.")


# Types ------------------------------------------------------------------------------------------------------------------------


def _alternatives(hint: Any) -> tuple[Any, ...]:
    return typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)


def _collection_of_names(kind: Any) -> Any:
    """Return the collection type, if the field is a collection of names."""
    made, items = typing.get_origin(kind), typing.get_args(kind)
    of_any_length = made in (list, set, frozenset) or (made is tuple and items[1:] == (...,))
    return made if of_any_length and str in _alternatives(items[0]) else None

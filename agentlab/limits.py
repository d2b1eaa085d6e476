"""Limits as fields of a dataclass: how a field declares one, and how a value is checked."""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Callable, Mapping
from datetime import timedelta
from decimal import Decimal, InvalidOperation
from types import MappingProxyType
from typing import Any

from agentlab.errors import LimitError
from agentlab.no_such_name import advice

NO_LIMIT = " None means no limit, and so does leaving it out."


def limit_field(
    *,
    unit: str,
    minimum: float,
    help: str,  # noqa: A002
    default: Any = dataclasses.MISSING,
    start: Any = None,
    metadata: Mapping[str, Any] = MappingProxyType({}),
) -> Any:
    """A dataclass field that holds a limit; the panel builds its control from the metadata.

    `start` is the first value of the control when the limit is switched on; None means the default, or else the minimum.

    Example:
        >>> from dataclasses import dataclass
        >>> @dataclass(frozen=True, slots=True)
        ... class StepTakes(lab.StopCondition):
        ...     seconds: float = lab.limit_field(unit="s", minimum=0, start=30, help="stop after a step that takes so long")
        ...     def read(self, history):
        ...         took = history.last.duration_s
        ...         return lab.Reading("StepTakes", took, self.seconds, took >= self.seconds)
        >>> (await brief.run("?", stop=StepTakes(30))).to_frame()["StepTakes.met"].tolist()
        [False]
    """
    about = {"unit": unit, "minimum": minimum, "help": help, "start": start, **metadata}
    return dataclasses.field(default=default, metadata=about)


def limit_fields(condition: object) -> tuple[dataclasses.Field[Any], ...]:
    """The fields of a condition, a budget or a policy that hold a limit: those with a unit."""
    fields = dataclasses.fields(condition) if dataclasses.is_dataclass(condition) else ()
    return tuple(field for field in fields if "unit" in field.metadata)


def known_words(condition: object) -> tuple[str, tuple[Any, ...]]:
    """Return what the words of a condition name (`known` in the metadata: "tools", "finish reasons"), and the words."""
    for field in dataclasses.fields(condition) if dataclasses.is_dataclass(condition) else ():
        if "known" in field.metadata:
            return field.metadata["known"], getattr(condition, field.name)
    return "", ()


def start_of(field: dataclasses.Field[Any]) -> Any:
    """Return the first value that a control offers for the field; `dataclasses.MISSING` where none is known."""
    start = field.metadata.get("start")
    if start is not None:
        return start
    if field.default is not dataclasses.MISSING:
        return field.default
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.metadata.get("minimum", dataclasses.MISSING)


def check_limits(owner: object) -> None:
    """Check and normalize the limits of a frozen dataclass. None is allowed where the metadata explains it (`none_means`)."""
    for field in limit_fields(owner):
        value, none = getattr(owner, field.name), field.metadata.get("none_means", "")
        if value is not None or not none:
            kind = type(owner).__name__
            check = CHECKS.get(field.metadata["unit"])
            if check is None:
                whole_number(kind, field.name, value, field.metadata["minimum"], none)
            else:
                object.__setattr__(owner, field.name, check(kind, field.name, value, none))


def whole_number(owner: str, name: str, value: object, minimum: int = 1, otherwise: str = "") -> int:
    """Return `value` as a count of at least `minimum`. Raises a LimitError that names it and ends with `otherwise`."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise LimitError(
            f"{owner}({name}={value!r}): {name} is a whole number, such as {max(minimum, 8)}; got {type(value).__name__}."
        )
    if value < minimum:
        raise LimitError(f"{owner}({name}={value!r}): {name} must be at least {minimum}.{otherwise}")
    return value


def money(owner: str, name: str, value: object, otherwise: str = "") -> Decimal:
    """Return `value` as exact US dollars above 0. Raises a LimitError that names it."""
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        raise LimitError(
            f"{owner}({name}={value!r}): {name} is an amount in US dollars, such as 0.05; got {type(value).__name__}."
        )
    try:
        amount = Decimal(str(value))
    except InvalidOperation:
        raise LimitError(f"{owner}({name}={value!r}): {name} is an amount in US dollars, such as 0.05.") from None
    if not amount.is_finite() or amount <= 0:
        raise LimitError(f"{owner}({name}={value!r}): {name} must be above 0 US dollars.{otherwise}")
    return amount


def in_seconds(value: Any) -> Any:
    """Return a timedelta as seconds, anything else as it is."""
    return value.total_seconds() if isinstance(value, timedelta) else value


def seconds(owner: str, name: str, value: object, otherwise: str = "") -> float:
    """Return `value`, a number or a timedelta, as seconds above 0. Raises a LimitError that names it."""
    value = in_seconds(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise LimitError(
            f"{owner}({name}={value!r}): {name} is a number of seconds, such as 30, or a timedelta; got {type(value).__name__}."
        )
    if not math.isfinite(value) or value <= 0:
        raise LimitError(f"{owner}({name}={value!r}): {name} must be above 0 seconds.{otherwise}")
    return float(value)


CHECKS: Mapping[str, Callable[[str, str, object, str], Any]] = {"USD": money, "s": seconds}
"""Checks of a value by its unit; the others are whole numbers."""


def reached(value: Any, known: Any, limit: Any) -> tuple[Any, Any, bool | None]:
    """Return (value, limit, met) of a total. One that is unknown (None) is met only if its known part already reaches the limit."""
    if value is None:
        return None, limit, True if known >= limit else None
    return value, limit, value >= limit


def no_such(kind: str, name: str, known: list[str]) -> str:
    """Return the message for an unknown name, with the nearest known one."""
    if kind == "limit":
        return f"There is no limit {name!r}. {advice(name, known, lists='There is')}"
    near = difflib.get_close_matches(name, known, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return f"There is no {kind} {name!r}.{hint} There is: {', '.join(known) or 'none'}."

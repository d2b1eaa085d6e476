"""Limits as fields of a dataclass: their declaration, and checks of their values."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from decimal import Decimal, InvalidOperation
from types import MappingProxyType
from typing import Any

from agentlab._internal.errors import LimitError
from agentlab._internal.names import advice, did_you_mean

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
    """Declare a dataclass field with a limit; the panel builds its control from the metadata.

    `start` is the first value of the control when the limit is switched on; None means the default, or else the minimum.

    Example:
        >>> from dataclasses import dataclass
        >>> @dataclass(frozen=True, slots=True)
        ... class StepTakes(lab.StopCondition):
        ...     seconds: float = lab.limit_field(unit="s", minimum=0, start=30, help="stop after a step that takes this long")
        ...     def read(self, history):
        ...         took = history.last.duration_s
        ...         return lab.Reading("StepTakes", took, self.seconds, took >= self.seconds)
        >>> (await brief.run("?", stop=StepTakes(30))).to_frame()["StepTakes.met"].tolist()
        [False]
    """
    return dataclasses.field(
        default=default, metadata={"unit": unit, "minimum": minimum, "help": help, "start": start, **metadata}
    )


def limit_fields(condition: object) -> tuple[dataclasses.Field[Any], ...]:
    """Return the fields with a limit of a condition, a budget or a policy: those with a unit."""
    fields = dataclasses.fields(condition) if dataclasses.is_dataclass(condition) else ()
    return tuple(field for field in fields if "unit" in field.metadata)


def known_words(condition: object) -> tuple[str, tuple[Any, ...]]:
    """Return the kind of words that a condition holds (`known` in the metadata: "tools", "finish reasons"), and the words."""
    for field in dataclasses.fields(condition) if dataclasses.is_dataclass(condition) else ():
        if "known" in field.metadata:
            return field.metadata["known"], getattr(condition, field.name)
    return "", ()


def start_of(field: dataclasses.Field[Any]) -> Any:
    """Return the first value that a control offers for the field; `dataclasses.MISSING` if none is known."""
    start = field.metadata.get("start")
    if start is not None:
        return start
    if field.default is not dataclasses.MISSING:
        return field.default
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.metadata.get("minimum", dataclasses.MISSING)


def check_limits(owner: object) -> None:
    """Check and normalize the limits of a frozen dataclass. None is allowed if the metadata explains it (`none_means`)."""
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
    """Return `value` if it is a count of at least `minimum`. Raises LimitError otherwise, with the text `otherwise` at its end."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise LimitError(
            f"{owner}({name}={value!r}): {name} is a whole number, such as {max(minimum, 8)}; got {type(value).__name__}."
        )
    if value < minimum:
        raise LimitError(f"{owner}({name}={value!r}): {name} must be at least {minimum}.{otherwise}")
    return value


def money(owner: str, name: str, value: object, otherwise: str = "") -> Decimal:
    """Return `value` as exact US dollars above 0. Raises LimitError for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        raise LimitError(
            f"{owner}({name}={value!r}): {name} is an amount in US dollars, such as 0.05; got {type(value).__name__}."
        )
    try:
        amount = Decimal(str(value))
    except InvalidOperation:
        raise LimitError(f"{owner}({name}={value!r}): {name} is an amount in US dollars, such as 0.05.") from None
    if not amount.is_finite() or amount <= 0:
        raise LimitError(f"{owner}({name}={value!r}): {name} must be above 0 US dollars, and finite.{otherwise}")
    return amount


def in_seconds(value: Any) -> Any:
    """Return a timedelta as seconds, anything else unchanged."""
    return value.total_seconds() if isinstance(value, timedelta) else value


def seconds(owner: str, name: str, value: object, otherwise: str = "") -> float:
    """Return `value`, a number or a timedelta, as seconds above 0. Raises LimitError for anything else."""
    value = in_seconds(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise LimitError(
            f"{owner}({name}={value!r}): {name} is a number of seconds, such as 30, or a timedelta; got {type(value).__name__}."
        )
    if not math.isfinite(value) or value <= 0:
        raise LimitError(f"{owner}({name}={value!r}): {name} must be above 0 seconds, and finite.{otherwise}")
    return float(value)


CHECKS: Mapping[str, Callable[[str, str, object, str], Any]] = {"USD": money, "s": seconds}
"""The check of a value by its unit; values of other units are whole numbers."""


def reached(value: Any, known: Any, limit: Any) -> tuple[Any, Any, bool | None]:
    """Return (value, limit, met) for a total. If it is unknown (None), it is met only if its known part reaches the limit."""
    if value is None:
        return None, limit, True if known >= limit else None
    return value, limit, value >= limit


def unknown_name(kind: str, name: str, known: list[str]) -> str:
    """Return the error message for an unknown name, with the most similar known one."""
    if kind == "limit":
        return f"There is no limit {name!r}. {advice(name, known, lists='Choose from')}"
    return f"There is no {kind} {name!r}.{did_you_mean(name, known)} Choose from: {', '.join(known) or 'none'}."


class Choices(tuple[Any, ...]):
    """The values of a grid for one parameter, all checked."""

    __slots__ = ()

    def __repr__(self) -> str:
        return repr(list(self))


def one_or_several(check: Callable[[str, str, object], Any], owner: str, name: str, value: object) -> Any:
    """Return the checked `value`; for a list, a range or an array, return the checked values as Choices."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        return check(owner, name, value)
    given = value.tolist() if hasattr(value, "tolist") else list(value)
    if not given:
        raise LimitError(f"{owner}({name}=[]): the list is empty; give the values to try, such as [2, 4, 8].")
    return Choices(dict.fromkeys(check(owner, name, one) for one in given))


def choices_of(condition: object) -> dict[str, Choices]:
    """Return the fields of a single condition that have several values."""
    if not dataclasses.is_dataclass(condition):
        return {}
    values = ((field.name, getattr(condition, field.name)) for field in dataclasses.fields(condition))
    return {name: value for name, value in values if isinstance(value, Choices)}


def any_of(given: tuple[Any, ...], checked: Callable[[tuple[Any, ...]], Any]) -> Any:
    """Return the checked alternative words; for a list, return its entries, each a word or a tuple of words, as Choices."""
    if not (len(given) == 1 and isinstance(given[0], list)):
        return checked(given)
    several = [checked((one,) if isinstance(one, str) else tuple(one)) for one in given[0]]
    return Choices(dict.fromkeys(several)) if several else checked(())


def words_as_code(given: tuple[Any, ...]) -> str:
    """Return alternative words as code."""
    if isinstance(given, Choices):
        return repr([str(several[0]) if len(several) == 1 else tuple(map(str, several)) for several in given])
    return ", ".join(repr(str(name)) for name in given)


def amounts_as_code(amount: object) -> str:
    """Return one amount or several as code."""
    return f"[{', '.join(map(str, amount))}]" if isinstance(amount, Choices) else str(amount)

"""The numbers that a person sets: how a field declares one, and how a value is checked."""

from __future__ import annotations

import dataclasses
import difflib
import math
from datetime import timedelta
from decimal import Decimal, InvalidOperation
from typing import Any

from agentlab.errors import LimitError
from agentlab.no_such_name import advice

LARGEST = 2**63 - 1
"""What a column of whole numbers can hold."""


def limit_field(
    *,
    unit: str,
    minimum: float,
    help: str,  # noqa: A002
    default: Any = dataclasses.MISSING,
    start: Any = None,
) -> Any:
    """A dataclass field that holds a limit; the metadata is what a control in the panel is made of.

    `start` is what the control offers where the limit is set for the first time; None: the default, or else the minimum.

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
    return dataclasses.field(default=default, metadata={"unit": unit, "minimum": minimum, "help": help, "start": start})


def limit_fields(condition: object) -> tuple[dataclasses.Field[Any], ...]:
    """The fields of a condition, a budget or a policy that hold a limit: those with a unit."""
    fields = dataclasses.fields(condition) if dataclasses.is_dataclass(condition) else ()
    return tuple(field for field in fields if "unit" in field.metadata)


def start_of(field: dataclasses.Field[Any]) -> Any:
    """What a control offers where the field is set for the first time; `dataclasses.MISSING` where nothing is known."""
    start = field.metadata.get("start")
    if start is not None:
        return start
    if field.default is not dataclasses.MISSING:
        return field.default
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.metadata.get("minimum", dataclasses.MISSING)


NO_LIMIT = " None means no limit, and so does leaving it out."


def whole_number(owner: str, name: str, value: object, minimum: int = 1, otherwise: str = "") -> int:
    """`value` as a count of at least `minimum`, or a LimitError that names it and says what else there is, `otherwise`."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise LimitError(
            f"{owner}({name}={value!r}): {name} is a whole number, such as {max(minimum, 8)}; got {type(value).__name__}."
        )
    if value < minimum:
        raise LimitError(f"{owner}({name}={value!r}): {name} must be at least {minimum}.{otherwise}")
    if value > LARGEST:
        raise LimitError(f"{owner}({name}={value!r}): {name} must be at most {LARGEST}.{otherwise}")
    return value


def money(owner: str, name: str, value: object, otherwise: str = "") -> Decimal:
    """`value` as US dollars above 0, exact, or a LimitError that names it."""
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
    """A timedelta as seconds, anything else as it is."""
    return value.total_seconds() if isinstance(value, timedelta) else value


def seconds(owner: str, name: str, value: object, otherwise: str = "") -> float:
    """`value`, a number or a timedelta, as seconds above 0, or a LimitError that names it."""
    value = in_seconds(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise LimitError(
            f"{owner}({name}={value!r}): {name} is a number of seconds, such as 30, or a timedelta; got {type(value).__name__}."
        )
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number) or number <= 0:
        raise LimitError(f"{owner}({name}={value!r}): {name} must be above 0 seconds.{otherwise}")
    return number


def reached(value: Any, known: Any, limit: Any) -> tuple[Any, Any, bool | None]:
    """(value, limit, met) of a sum that may be unknown: then it is met only where the known part already reaches the limit."""
    if value is None:
        return None, limit, True if known >= limit else None
    return value, limit, value >= limit


def no_such(kind: str, name: str, known: list[str]) -> str:
    """What to say of a name that there is none of; with the nearest one that there is."""
    if kind == "limit":
        return f"There is no limit {name!r}. {advice(name, known, lists='There is')}"
    near = difflib.get_close_matches(name, known, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return f"There is no {kind} {name!r}.{hint} There is: {', '.join(known) or 'none'}."

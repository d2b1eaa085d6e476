"""Numbers as people read them: limits as they were set, measurements without the digits that tell nobody anything."""

from __future__ import annotations

from decimal import ROUND_DOWN, Decimal
from typing import Any

_UNITS = {"max_cost": "USD", "MaxCost": "USD", "timeout": "s"}
"""Of the readings whose names say what they are; that of somebody's own condition is not known here."""


def in_words(value: object, unit: str = "") -> str:
    """A limit as people write it: `40,000`, `$0.10`, `2 min`."""
    if unit == "USD" and isinstance(value, Decimal | float | int):
        return _dollars(Decimal(str(value)))
    if unit == "s" and isinstance(value, int | float):
        return _duration(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,g}" if isinstance(value, float) else str(value)


def read_of(name: str, value: Any, limit: Any) -> str:
    """What was read, and of what: `3.1 s of 3 s`, `$0.03 of $0.025`, `769 of 500`."""
    return measured(name, value) + ("" if limit is None else f" of {as_set(name, limit)}")


def measured(name: str, value: Any) -> str:
    """What was read by the condition, or of the limit, of this name."""
    unit = _UNITS.get(name, "")
    if value is None:
        return "unknown"
    if isinstance(value, bool):
        return str(value)
    if unit == "USD" and isinstance(value, Decimal | float | int):
        return _dollars(_rounded(Decimal(str(value))))
    if unit == "s" and isinstance(value, int | float):
        return _duration(round(value) if 60 <= value < float("inf") else value)
    if isinstance(value, float):
        return _digits(value, 4)
    return exactly(value)


def as_set(name: str, limit: Any) -> str:
    """The limit of this name, exact."""
    unit = _UNITS.get(name, "")
    if isinstance(limit, bool) or unit == "":
        return _digits(limit, 12) if isinstance(limit, float) else exactly(limit)
    return in_words(limit, unit)


def exactly(value: object) -> str:
    """Money without trailing zeros and exponents, anything else as it is."""
    return f"{value.normalize():f}" if isinstance(value, Decimal) and _is_common(value) else str(value)


def _is_common(amount: Decimal) -> bool:
    """Whether it can be written out: nobody reads the zeros of the others, nor are there infinitely many dollars."""
    return amount.is_finite() and abs(amount.adjusted()) < 24


def _digits(value: float, most: int) -> str:
    """So many digits that count, and never fewer than stand before the point; no exponent."""
    if value - value != 0:  # an infinity, or no number
        return str(value)
    exact = Decimal(f"{value:.{most}g}") if abs(value) < 10**most else Decimal(round(value))
    return f"{exact.normalize():f}"


def _rounded(amount: Decimal) -> Decimal:
    """To a millionth of a dollar, or three digits where it is less than that. Down, for what is below a limit is not at it."""
    unit = Decimal("0.000001")
    if not _is_common(amount):
        return amount
    if amount and abs(amount) < unit:
        unit = Decimal(1).scaleb(amount.adjusted() - 2)
    return amount.quantize(unit, ROUND_DOWN) if amount.adjusted() < 20 else amount


def about_dollars(amount: Decimal) -> str:
    """Money that is added to while people look at it: four digits behind the point."""
    if not _is_common(amount) or 0 < abs(amount) < Decimal("0.0001"):
        return measured("max_cost", amount)
    return f"${amount:.4f}"


def _dollars(amount: Decimal) -> str:
    if not _is_common(amount):
        return f"${amount}"
    whole_cents = amount == round(amount, 2)
    return f"${amount:,.2f}" if whole_cents else f"${amount.normalize():,f}"


def _duration(seconds: float) -> str:
    if not seconds < float("inf"):
        return f"{seconds} s"
    if seconds < 60 or seconds != int(seconds):
        return f"{_digits(seconds, 3)} s" if seconds < 1000 else f"{seconds:,.0f} s"
    hours, rest = divmod(int(seconds), 3600)
    minutes, left = divmod(rest, 60)
    return " ".join(f"{count:,} {unit}" for count, unit in ((hours, "h"), (minutes, "min"), (left, "s")) if count)


def counted(number: int, word: str) -> str:
    """A number with its word: 1 run, 2 runs."""
    return f"{number:,} {word}{'s' * (number != 1)}"

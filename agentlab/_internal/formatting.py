"""Formats numbers for people: limits exactly as set, measurements without insignificant digits."""

from __future__ import annotations

from decimal import ROUND_DOWN, Decimal
from typing import Any

_UNITS = {"max_cost": "USD", "MaxCost": "USD", "timeout": "s"}
"""Units of readings by name. The units of users' conditions are not known here."""


def in_words(value: object, unit: str = "") -> str:
    """Format a limit: `40,000`, `$0.10`, `2 min`."""
    if unit == "USD" and isinstance(value, Decimal | float | int):
        return _dollars(Decimal(str(value)))
    if unit == "s" and isinstance(value, int | float):
        return _duration(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,g}" if isinstance(value, float) else str(value)


def read_of(name: str, value: Any, limit: Any) -> str:
    """Format a reading: `3.1 s of 3 s`, `$0.03 of $0.025`, `769 of 500`."""
    return measured(name, value) + ("" if limit is None else f" of {as_set(name, limit)}")


def measured(name: str, value: Any) -> str:
    """Format the value of the condition or limit of this name."""
    unit = _UNITS.get(name, "")
    if value is None:
        return "unknown"
    if isinstance(value, bool):
        return str(value)
    if unit == "USD" and isinstance(value, Decimal | float | int):
        return _dollars(_rounded(Decimal(str(value))))
    if unit == "s" and isinstance(value, int | float):
        return _duration(round(value) if value >= 60 else value)
    if isinstance(value, float):
        return _digits(value, 4)
    return exactly(value)


def as_set(name: str, limit: Any) -> str:
    """Format the limit of this name, exactly."""
    unit = _UNITS.get(name, "")
    if isinstance(limit, bool) or unit == "":
        return _digits(limit, 12) if isinstance(limit, float) else exactly(limit)
    return in_words(limit, unit)


def exactly(value: object) -> str:
    """Format money without trailing zeros and exponents, anything else as it is."""
    return f"{value.normalize():f}" if isinstance(value, Decimal) else str(value)


def _digits(value: float, most: int) -> str:
    """Format with at most this many significant digits, but with all digits before the point, and without an exponent."""
    if value - value != 0:  # infinite, or not a number
        return str(value)
    exact = Decimal(f"{value:.{most}g}") if abs(value) < 10**most else Decimal(round(value))
    return f"{exact.normalize():f}"


def _rounded(amount: Decimal) -> Decimal:
    """Round down to a millionth of a dollar, or to three digits if less: an amount below a limit must not look like the limit."""
    unit = Decimal("0.000001")
    if amount and abs(amount) < unit:
        unit = Decimal(1).scaleb(amount.adjusted() - 2)
    return amount.quantize(unit, ROUND_DOWN)


def about_dollars(amount: Decimal) -> str:
    """Format a growing amount of money with four decimals."""
    if 0 < abs(amount) < Decimal("0.0001"):
        return measured("max_cost", amount)
    return f"${amount:.4f}"


def _dollars(amount: Decimal) -> str:
    whole_cents = amount == round(amount, 2)
    return f"${amount:,.2f}" if whole_cents else f"${amount.normalize():,f}"


def _duration(seconds: float) -> str:
    if seconds < 60 or seconds != int(seconds):
        return f"{_digits(seconds, 3)} s" if seconds < 1000 else f"{seconds:,.0f} s"
    hours, rest = divmod(int(seconds), 3600)
    minutes, left = divmod(rest, 60)
    return " ".join(f"{count:,} {unit}" for count, unit in ((hours, "h"), (minutes, "min"), (left, "s")) if count)


def counted(number: int, word: str) -> str:
    """Format a number with its noun: 1 run, 2 runs."""
    return f"{number:,} {word}{'s' * (number != 1)}"


def percent(share: float) -> str:
    """Format a level or another share that was set: 95%, 99.9%."""
    return f"{100 * share:.10g}%"

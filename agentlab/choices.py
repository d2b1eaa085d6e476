"""Value grids: `StepCountIs([2, 4, 8])` is not one condition but three, for `lab.backtest`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

from agentlab.errors import LimitError


class Choices(tuple[Any, ...]):
    """The values of a grid for one parameter, each valid by itself."""

    __slots__ = ()

    def __repr__(self) -> str:
        return repr(list(self))


def one_or_several(check: Callable[[str, str, object], Any], owner: str, name: str, value: object) -> Any:
    """Return `value` checked; of a list, a range or an array the checked values as Choices."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        return check(owner, name, value)
    given = value.tolist() if hasattr(value, "tolist") else list(value)
    if not given:
        raise LimitError(f"{owner}({name}=[]): an empty list; give the values to try, such as [2, 4, 8].")
    return Choices(dict.fromkeys(check(owner, name, one) for one in given))


def choices_of(condition: object) -> dict[str, Choices]:
    """Return the fields of a single condition that hold several values."""
    if not dataclasses.is_dataclass(condition):
        return {}
    values = ((field.name, getattr(condition, field.name)) for field in dataclasses.fields(condition))
    return {name: value for name, value in values if isinstance(value, Choices)}


def any_of(given: tuple[Any, ...], checked: Callable[[tuple[Any, ...]], Any]) -> Any:
    """Return alternative words, checked; of a list its entries, each a word or a tuple of words, as Choices."""
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

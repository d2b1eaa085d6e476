"""Values: the quick decorator makes the same classes as the standard one."""

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from agentlab._internal import values


@values.dataclass(frozen=True, slots=True)
class Kept:
    """A value of a module, which can be pickled."""

    name: str
    count: int = 2


def made_by(decorator: Any) -> tuple[Any, Any, Any]:
    class Base:
        __slots__ = ()

    @decorator(frozen=True, slots=True)
    class Value(Base):
        """A value."""

        name: str
        parts: dict[str, int] = dataclasses.field(default_factory=dict, hash=False)
        count: int = dataclasses.field(default=0, compare=False)
        hidden: int = dataclasses.field(default=1, repr=False)
        total: ClassVar[int] = 7

    @decorator(frozen=True, slots=True)
    class Longer(Value):
        """A value with a further field, and one that is not given."""

        _: dataclasses.KW_ONLY
        length: int = 3
        double: int = dataclasses.field(init=False, default=0)

        def __post_init__(self) -> None:
            object.__setattr__(self, "double", 2 * self.length)

    @decorator(frozen=True, slots=True, repr=False, eq=False)
    class Plain(Base):
        """A value that defines methods."""

        size: int

        def __repr__(self) -> str:
            return f"<{self.size}>"

    return Value, Longer, Plain


CHECKS: dict[str, Callable[[Any, Any, Any], object]] = {
    "signatures": lambda value, longer, plain: [str(inspect.signature(kind)) for kind in (value, longer, plain)],
    "annotations": lambda value, longer, plain: (longer.__init__.__annotations__, value.__annotations__, longer.__annotations__),
    "fields": lambda value, longer, plain: [(each.name, each.type, each.default) for each in dataclasses.fields(longer)],
    "patterns": lambda value, longer, plain: (value.__match_args__, longer.__match_args__),
    "slots": lambda value, longer, plain: (value.__slots__, longer.__slots__, hasattr(longer("a"), "__dict__")),
    "parameters": lambda value, longer, plain: (value.__dataclass_params__.frozen, plain.__dataclass_params__.eq),
    "repr": lambda value, longer, plain: [repr(one) for one in (value("a", count=5), longer("a", length=4), plain(3))],
    "equal": lambda value, longer, plain: (
        value("a", count=1) == value("a", count=2),
        value("a") == value("b"),
        value("a") == longer("a"),
        plain(1) == plain(1),
    ),
    "hash": lambda value, longer, plain: (hash(value("a")), hash(longer("a", length=1)), hash(value("a", {"b": 1}))),
    "replace": lambda value, longer, plain: repr(dataclasses.replace(value("a", {"b": 1}), count=3)),
    "copy": lambda value, longer, plain: repr(copy.deepcopy(longer("a", {"b": 1}, length=9))),
    "asdict": lambda value, longer, plain: dataclasses.asdict(longer("a")),
    "own default": lambda value, longer, plain: value("a").parts is not value("a").parts,
    "class": lambda value, longer, plain: (type(longer("a")) is longer, longer("a").__class__ is longer, value.total),
}


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
def test_a_class_is_like_that_of_the_standard_decorator(check: Callable[[Any, Any, Any], object]) -> None:
    assert check(*made_by(values.dataclass)) == check(*made_by(dataclasses.dataclass))


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(lambda kind: setattr(kind("a"), "count", 2), id="set"),
        pytest.param(lambda kind: delattr(kind("a"), "count"), id="delete"),
        pytest.param(lambda kind: kind(), id="too few arguments"),
        pytest.param(lambda kind: kind("a", other=1), id="unknown keyword"),
    ],
)
def test_the_errors_are_those_of_the_standard_decorator(wrong: Callable[[Any], object]) -> None:
    raised = []
    for decorator in (values.dataclass, dataclasses.dataclass):
        with pytest.raises((dataclasses.FrozenInstanceError, TypeError)) as error:
            wrong(made_by(decorator)[0])
        raised.append((error.type, str(error.value)))
    assert raised[0] == raised[1]


def test_a_subclass_has_further_attributes_and_keeps_its_class() -> None:
    class Noted(Kept):
        pass

    noted = Noted("a")
    noted.note = "n"  # type: ignore[attr-defined]
    assert (type(noted), noted.count, repr(noted)[-21:]) == (Noted, 2, "Noted(name='a', count=2)"[-21:])
    with pytest.raises(dataclasses.FrozenInstanceError):
        noted.count = 3  # type: ignore[misc]


def test_a_standard_dataclass_may_extend_a_value() -> None:
    @dataclasses.dataclass(frozen=True, slots=True)
    class More(Kept):
        size: int = 1

    assert (More("a", size=4).size, More("a"), More("a") == More("a")) == (4, More("a", 2, 1), True)


def test_a_value_survives_pickle() -> None:
    assert pickle.loads(pickle.dumps(Kept("a", 3))) == Kept("a", 3)


def test_other_dataclasses_are_standard_ones() -> None:
    @values.dataclass(slots=True)
    class Mutable:
        count: int = 0

    value = Mutable()
    value.count = 2
    assert value == Mutable(2)

"""Frozen dataclasses that are quick to define and quick to make.

`dataclass` here takes the place of the standard one, which it uses for everything that is not frozen and slotted. The standard one
compiles seven functions per class at import, and its `__init__` sets each field of a frozen value by a call of `object.__setattr__`.
This one compiles `__init__` alone, when it is first needed. A value is filled in while it has the class of its open twin, a subclass
without added slots whose attributes can be set; the last statement gives the value its own class.
"""

from __future__ import annotations

import dataclasses
import inspect
import reprlib
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # a type checker knows the standard one
    from dataclasses import dataclass as dataclass  # noqa: PLC0414  imported from here
else:

    def dataclass(kind=None, /, *, frozen=False, slots=False, init=True, repr=True, eq=True, **more):  # noqa: A002
        """Define a dataclass, with the parameters of the standard decorator."""

        def decorated(kind):
            if not frozen or not slots or more:
                return dataclasses.dataclass(kind, frozen=frozen, slots=slots, init=init, repr=repr, eq=eq, **more)
            return _frozen(kind, init, repr, eq)

        return decorated if kind is None else decorated(kind)


class _Factory:
    def __repr__(self) -> str:
        return "<factory>"


_FACTORY = _Factory()
"""The default of a parameter whose field has a default_factory, as signatures show it."""


_SPECIAL = ("ClassVar", "InitVar", "KW_ONLY")
"""What the standard decorator looks for in each annotation, with regular expressions: other annotations are `object` to it."""


def _frozen(kind: Any, init: bool, with_repr: bool, eq: bool) -> Any:
    own, types = vars(kind), inspect.get_annotations(kind)
    has_hash = own.get("__hash__") is not None or ("__hash__" in own and "__eq__" not in own)
    bases = [
        params for base in kind.__mro__[1:] if (params := vars(base).get("__dataclass_params__")) is not None and params.frozen
    ]
    for params in bases:
        params.frozen = False  # the class is declared without `frozen` below, which its bases would not allow
    kind.__annotations__ = {
        name: given if any(word in str(given) for word in _SPECIAL) else object for name, given in types.items()
    }
    try:
        made: Any = dataclasses.dataclass(kind, init=False, repr=False, eq=False, slots=True)
    finally:
        for params in bases:
            params.frozen = True
    made.__annotations__ = types
    for name, field in made.__dataclass_fields__.items():
        field.type = types.get(name, field.type)
    params, own, fields = made.__dataclass_params__, vars(made), dataclasses.fields(made)
    params.frozen, params.init, params.repr, params.eq = True, init, with_repr, eq
    names = tuple([field.name for field in fields])
    added: dict[str, Any] = {"__getstate__": _getstate, "__setstate__": _setstate}
    if init:
        added["__init__"] = _Init(made)
    if with_repr:
        added["__repr__"] = _repr([field.name for field in fields if field.repr])
    if eq:
        values = _getter([field.name for field in fields if field.compare])
        added["__eq__"] = _eq(values)
    for name, function in added.items():
        if name not in own:
            setattr(made, name, function)
    if eq and not has_hash:
        made.__hash__ = _hash(_getter([field.name for field in fields if (field.compare if field.hash is None else field.hash)]))
    made.__setattr__, made.__delattr__ = _refusals(made, names)
    return made


# __init__ -----------------------------------------------------------------------------------------------------------------------


class _Init:
    """The `__init__` of a class until it is first needed: it is then compiled, wrapped, and takes this one's place."""

    __slots__ = ("_kind", "wrapped")

    def __init__(self, kind: Any) -> None:
        self._kind = kind
        self.wrapped: Callable[[Any], Any] = lambda made: made

    def __get__(self, value: Any, owner: Any = None) -> Any:
        made = self.wrapped(_compiled(self._kind))
        if vars(self._kind)["__init__"] is self:
            self._kind.__init__ = made
        return made if value is None else made.__get__(value, owner)


def _compiled(kind: Any) -> Any:
    """Return the `__init__` of a class. The values of a subclass are not given the class of the twin."""
    named: dict[str, Any] = {"_kind": kind, "_open": _twin(kind), "_set": object.__setattr__, "_FACTORY": _FACTORY}
    parameters, by_keyword, lines = ["self"], list[str](), list[str]()
    assigned: list[tuple[str, str]] = []
    for field in dataclasses.fields(kind):
        name, value = field.name, field.name
        default, factory = field.default, field.default_factory
        if default is not dataclasses.MISSING:
            named[f"_d_{name}"] = default
        if factory is not dataclasses.MISSING:
            named[f"_f_{name}"] = factory
            lines.append(f"{name} = _f_{name}() if {name} is _FACTORY else {name}" if field.init else f"{name} = _f_{name}()")
        if field.init:
            shown = "_FACTORY" if factory is not dataclasses.MISSING else f"_d_{name}" if f"_d_{name}" in named else ""
            (by_keyword if field.kw_only else parameters).append(f"{name}={shown}" if shown else name)
        elif factory is dataclasses.MISSING:
            if default is dataclasses.MISSING:
                continue  # __post_init__ sets it
            value = f"_d_{name}"
        assigned.append((name, value))
    parameters += ["*", *by_keyword] if by_keyword else []
    text = [f"def __init__({', '.join(parameters)}):", *(f"  {line}" for line in lines), "  if self.__class__ is _kind:"]
    text += ["    _set(self, '__class__', _open)", *(f"    self.{name} = {value}" for name, value in assigned)]
    text += [
        "    self.__class__ = _kind",
        "  else:",
        *(f"    _set(self, {name!r}, {value})" for name, value in assigned),
        "    pass",
    ]
    if hasattr(kind, "__post_init__"):
        text.append("  self.__post_init__()")
    exec("\n".join(text), named)  # noqa: S102  as the standard decorator does
    made = named["__init__"]
    made.__module__, made.__qualname__ = kind.__module__, f"{kind.__qualname__}.__init__"
    made.__annotations__ = {field.name: field.type for field in dataclasses.fields(kind) if field.init} | {"return": None}
    return made


def _twin(kind: Any) -> Any:
    """Return a class with the same layout, whose attributes can be set."""
    free = {"__slots__": (), "__setattr__": object.__setattr__, "__delattr__": object.__delattr__, "__module__": kind.__module__}
    return type(kind)(f"_Open{kind.__name__}", (kind,), free)


# The other methods --------------------------------------------------------------------------------------------------------------


def _getter(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    """Return a function that returns these attributes of a value as a tuple."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda value: tuple([getattr(value, name) for name in names])


def _eq(values: Callable[[Any], tuple[Any, ...]]) -> Any:
    def __eq__(self: Any, other: object) -> Any:  # noqa: N807
        if self is other:
            return True
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    return __eq__


def _hash(values: Callable[[Any], tuple[Any, ...]]) -> Any:
    def __hash__(self: Any) -> int:  # noqa: N807
        return hash(values(self))

    return __hash__


def _repr(names: list[str]) -> Any:
    @reprlib.recursive_repr()
    def __repr__(self: Any) -> str:  # noqa: N807
        return f"{type(self).__qualname__}({', '.join([f'{name}={getattr(self, name)!r}' for name in names])})"

    return __repr__


def _refusals(kind: Any, names: tuple[str, ...]) -> tuple[Any, Any]:
    """Return `__setattr__` and `__delattr__` of a frozen class. A subclass may have further attributes."""

    def __setattr__(self: Any, name: str, value: object) -> None:  # noqa: N807
        if type(self) is kind or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(kind, self).__setattr__(name, value)

    def __delattr__(self: Any, name: str) -> None:  # noqa: N807
        if type(self) is kind or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(kind, self).__delattr__(name)

    return __setattr__, __delattr__


def _getstate(self: Any) -> list[Any]:
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _setstate(self: Any, state: list[Any]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)

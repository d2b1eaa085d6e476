"""The base class of stop conditions, their combinations with | & ~, and conditions made from functions.

A condition returns a Reading, which shows the parts of a combination that were met.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from decimal import Decimal
from typing import Any, ClassVar, NoReturn, TypeAlias

from agentlab._internal.asyncio_tools import discard, is_async, name_of
from agentlab._internal.display import Displayable
from agentlab._internal.errors import ConfigurationError
from agentlab._internal.names import helps_with_keywords
from agentlab._internal.redaction import redacted_repr
from agentlab._internal.safe_text import one_line
from agentlab._internal.values import dataclass
from agentlab.limits.fields import in_seconds, limit_fields
from agentlab.limits.reading import Reading, Scalar, Totals

Predicate: TypeAlias = Callable[[Any], Any]
"""A function of the RunHistory, sync or async."""


class StopCondition(Displayable):
    """Base class of stop conditions. A new condition is a frozen dataclass with `read`; declare its limits with `limit_field`.

    Example:
        >>> from dataclasses import dataclass
        >>> @dataclass(frozen=True, slots=True)
        ... class TextsAre(lab.StopCondition):
        ...     texts: int
        ...     def read(self, history):
        ...         texts = sum(bool(step.text) for step in history)
        ...         return lab.Reading("TextsAre", texts, self.texts, texts >= self.texts)
        >>> (TextsAre(1) | lab.StepCountIs(9)).read(result.history).met
        True
    """

    __slots__ = ()
    parts: ClassVar[tuple[StopCondition, ...]] = ()
    may_wait: ClassVar[bool] = False
    is_off: ClassVar[bool] = False
    total: ClassVar[str | None] = None
    """The running total of the history that the value equals: "steps", "tokens" or "cost"; None for any other condition.

    The limit is then the only field with a unit."""
    goal: ClassVar[bool] = False
    """True if meeting the condition means that the task was done, as for HasToolCall."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Redact the repr. A dataclass without slots receives its repr later."""
        super().__init_subclass__(**options)
        if "__repr__" in vars(cls):
            redacted_repr(cls)

    def __post_init__(self) -> None:
        """Convert a timedelta if a field counts seconds."""
        for field in limit_fields(self):
            if field.metadata["unit"] == "s" and isinstance(value := getattr(self, field.name), timedelta):
                object.__setattr__(self, field.name, in_seconds(value))

    @property
    def short_name(self) -> str:
        """The name of the condition in `run.limits.conditions`, in columns and in the panel; a suffix makes it unique there.

        Example:
            >>> lab.StepCountIs(8).short_name
            'StepCountIs'
        """
        return type(self).__name__

    def read(self, history: Any) -> Reading:
        """Read the condition after the newest step of a RunHistory.

        Example:
            >>> lab.StepCountIs(8).read(result.history)
            Reading(name='StepCountIs', value=4, limit=8, met=False, children=(), goal=False)
        """
        raise NotImplementedError

    def combine(self, readings: Iterator[Reading]) -> Reading:
        """Return the reading of this tree from the readings of its leaves, in the order of `leaves()`.

        Example:
            >>> tree = ~lab.StepCountIs(4)
            >>> tree.combine(leaf.read(result.history) for leaf in tree.leaves()).met
            False
        """
        return next(readings)

    def leaves(self, *, that_count: bool = False) -> Iterator[StopCondition]:
        """Yield the single conditions of this tree in the order they were written; `that_count` omits those that are turned off.

        Example:
            >>> list((lab.StepCountIs(8) & ~lab.HasToolCall("search")).leaves())
            [StepCountIs(steps=8), HasToolCall('search')]
        """
        if not self.parts:
            yield self
        for part in () if that_count and self.is_off else self.parts:
            yield from part.leaves(that_count=that_count)

    def with_leaf(self, leaf: StopCondition, new: StopCondition) -> StopCondition:
        """Return this tree with one of its leaves, found by identity, replaced.

        Example:
            >>> steps = lab.StepCountIs(8)
            >>> (steps | lab.MaxCost("0.05")).with_leaf(steps, lab.StepCountIs(3))
            AnyOf(StepCountIs(steps=3), MaxCost(0.05))
        """
        if self is leaf:
            return new
        if not self.parts:
            return self
        return self.with_parts(tuple(part.with_leaf(leaf, new) for part in self.parts))

    def changed(self, **fields: Any) -> StopCondition:
        """Return this condition with other values, checked like new ones.

        Example:
            >>> lab.StepCountIs(8).changed(steps=3)
            StepCountIs(steps=3)
        """
        variadic = variadic_field(type(self))  # type: ignore[arg-type]
        if not variadic:
            return dataclasses.replace(self, **fields)  # type: ignore[type-var]
        words = fields.get(variadic, getattr(self, variadic))
        return type(self)(*([words] if isinstance(words, str) else words))

    def with_parts(self, parts: tuple[StopCondition, ...]) -> StopCondition:
        """Return a combination of the same kind with other parts.

        Example:
            >>> (lab.StepCountIs(8) | lab.MaxCost("0.05")).with_parts((lab.StepCountIs(3), lab.HasToolCall("finalize")))
            AnyOf(StepCountIs(steps=3), HasToolCall('finalize'))
        """
        return type(self)(*parts)

    def __or__(self, other: StopCondition | Predicate) -> StopCondition:
        return AnyOf(*_flat(AnyOf, self, other)) if _usable(other) else NotImplemented

    def __ror__(self, other: Predicate) -> StopCondition:
        return AnyOf(*_flat(AnyOf, other, self)) if _usable(other) else NotImplemented

    def __and__(self, other: StopCondition | Predicate) -> StopCondition:
        return AllOf(*_flat(AllOf, self, other)) if _usable(other) else NotImplemented

    def __rand__(self, other: Predicate) -> StopCondition:
        return AllOf(*_flat(AllOf, other, self)) if _usable(other) else NotImplemented

    def __invert__(self) -> StopCondition:
        return Not(self)

    def __bool__(self) -> NoReturn:
        """Raise an error for `or`, which cannot be overloaded and would silently drop a part."""
        raise ConfigurationError(
            f"{one_line(repr(self))} has no truth value: write a | b for `a or b`, a & b for `a and b`, ~a for `not a`; "
            "to check whether a condition is set, write `a is not None`."
        )


@functools.lru_cache
def variadic_field(kind: type) -> str:
    """Return the field that a condition takes as variadic arguments, such as `names` of HasToolCall(*names); "" if none."""
    parameters = inspect.signature(kind).parameters.values()
    return next((one.name for one in parameters if one.kind is one.VAR_POSITIONAL), "")


def _usable(other: object) -> bool:
    return isinstance(other, StopCondition) or (callable(other) and not isinstance(other, type))


def as_condition(condition: object) -> StopCondition:
    """Return a StopCondition from a condition, a function, or a list of them, which is met if any of them is."""
    if isinstance(condition, StopCondition):
        return condition
    if isinstance(condition, type):
        raise ConfigurationError(f"{condition.__name__} is a class, not a stop condition: write {condition.__name__}(…).")
    if callable(condition):
        return Custom(condition)
    if isinstance(condition, list | tuple):
        if not condition:
            raise ConfigurationError("The list of stop conditions is empty: omit `stop` for no condition.")
        return as_condition(condition[0]) if len(condition) == 1 else AnyOf(*condition)
    raise ConfigurationError(
        f"{condition!r} is not a stop condition: pass one such as StepCountIs(8), a function of the history, or a list of these."
    )


def _flat(kind: type[StopCondition], *conditions: object) -> Iterator[StopCondition]:
    for condition in map(as_condition, conditions):
        if type(condition) is kind:
            yield from condition.parts
        else:
            yield condition


# Combinations ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, init=False, repr=False)
class _Combination(StopCondition):
    parts: tuple[StopCondition, ...]  # type: ignore[misc]
    may_wait: bool = dataclasses.field(compare=False)  # type: ignore[misc]
    is_off: bool = dataclasses.field(compare=False)  # type: ignore[misc]

    def __init__(self, *conditions: StopCondition | Predicate) -> None:
        parts = tuple(map(as_condition, conditions))
        if not parts:
            raise ConfigurationError(f"{type(self).__name__}() needs at least one condition.")
        object.__setattr__(self, "parts", parts)
        object.__setattr__(self, "may_wait", any(part.may_wait for part in parts))
        object.__setattr__(self, "is_off", all(part.is_off for part in parts))

    def read(self, history: Totals) -> Reading:
        return self._combined(tuple([part.read(history) for part in self.parts]))

    def combine(self, readings: Iterator[Reading]) -> Reading:
        return self._combined(tuple([part.combine(readings) for part in self.parts]))

    def _combined(self, children: tuple[Reading, ...]) -> Reading:
        raise NotImplementedError

    def _is_open(self, children: tuple[Reading, ...]) -> bool:
        """True if an active part is undecided, or no part is active. Parts that are turned off have no answer."""
        return self.is_off or any(child.met is None and not part.is_off for part, child in zip(self.parts, children, strict=True))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self.parts))})"


class AnyOf(_Combination):
    """Met if any of its conditions is met, not met if none is, undecided otherwise.

    Example:
        >>> either = lab.StepCountIs(8) | lab.HasToolCall("finalize")
        >>> either
        AnyOf(StepCountIs(steps=8), HasToolCall('finalize'))
        >>> [str(reading) for reading in either.read(result.history).leaves()]
        ['StepCountIs 4 of 8', 'HasToolCall(finalize): 1 call']
    """

    def _combined(self, children: tuple[Reading, ...]) -> Reading:
        met: bool | None = False
        for child in children:
            if child.met:
                met = True
                break
            if child.met is None:
                met = None
        return Reading("AnyOf", met=met if met is not None or self._is_open(children) else False, children=children)


class AllOf(_Combination):
    """Met if all of its conditions are met, not met if one is not, undecided otherwise.

    Example:
        >>> both = lab.StepCountIs(2) & lab.HasToolCall("finalize")
        >>> both.read(result.history).met, both.read(result.history.prefix(2)).met
        (True, False)
    """

    def _combined(self, children: tuple[Reading, ...]) -> Reading:
        met: bool | None = True
        for child in children:
            if child.met is False:
                met = False
                break
            if child.met is None:
                met = None
        return Reading("AllOf", met=met if met is not None or self._is_open(children) else True, children=children)


class Not(_Combination):
    """Met if its condition is not met.

    Example:
        >>> no_search = ~lab.HasToolCall("search")
        >>> no_search.read(result.history).met
        True
        >>> ~no_search
        HasToolCall('search')
    """

    def __init__(self, condition: StopCondition | Predicate) -> None:
        super().__init__(condition)

    def _combined(self, children: tuple[Reading, ...]) -> Reading:
        met = children[0].met
        return Reading("Not", met=None if met is None else not met, children=children)

    def __invert__(self) -> StopCondition:
        return self.parts[0]


class Off(_Combination):
    """A condition that is turned off: it keeps its values, but does not count.

    A combination is off if all its parts are. A whole condition that is off is never met. Conditions that are off are still read, so
    that their values are recorded (without `met`), but functions are not called.

    Example:
        >>> stop = lab.Off(lab.StepCountIs(2)) | lab.StepCountIs(3)
        >>> (await endless.run("?", stop=stop)).detail
        'Stop condition met: StepCountIs 3 of 3.'
    """

    def __init__(self, condition: StopCondition | Predicate) -> None:
        super().__init__(condition)
        object.__setattr__(self, "may_wait", False)
        object.__setattr__(self, "is_off", True)

    def read(self, history: Totals) -> Reading:
        """Read the values of the condition, without `met`."""
        return self.combine(read_off(leaf, history) for leaf in self.leaves())

    def _combined(self, children: tuple[Reading, ...]) -> Reading:
        return Reading("Off", children=tuple(child.undecided() for child in children))


# Functions ------------------------------------------------------------------------------------------------------------------------


@helps_with_keywords
@dataclass(frozen=True, slots=True)
class Custom(StopCondition):
    """Met if the predicate returns a true value. The predicate receives the history and may be async.

    Example:
        >>> seen_twice = lab.Custom(lambda history: history.tool_count("search") >= 2)
        >>> len((await endless.run("?", stop=seen_twice)).history)
        2
    """

    predicate: Predicate
    name: str = ""
    may_wait: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not callable(self.predicate) or isinstance(self.predicate, type):
            raise ConfigurationError(
                f"Custom({self.predicate!r}): pass a function that takes the history, such as lambda history: …"
            )
        if not self.name:
            object.__setattr__(self, "name", name_of(self.predicate))

    @property
    def short_name(self) -> str:
        """The name of the predicate."""
        return self.name

    @property
    def is_async(self) -> bool:
        """True if the predicate is known to be async without calling it."""
        return is_async(self.predicate)

    def read(self, history: Totals) -> Reading:
        """Call the predicate. If it must be awaited, the reading is undecided."""
        if self.is_async:
            return self.open_reading()
        answer = self.predicate(history)
        if inspect.isawaitable(answer):
            discard(answer)
            return self.open_reading()
        return self.reading_of(answer)

    def ask(self, history: Totals) -> Reading | Awaitable[Any]:
        """Call the predicate; return its reading, or an awaitable whose result is passed to `reading_of`."""
        answer = self.predicate(history)
        return answer if inspect.isawaitable(answer) else self.reading_of(answer)

    def reading_of(self, answer: object) -> Reading:
        """Return the reading for a return value of the predicate."""
        value: Scalar = answer if isinstance(answer, bool | int | float | str | Decimal) else bool(answer)
        return Reading(self.name, value, None, bool(answer))

    def open_reading(self) -> Reading:
        """Return the reading of a predicate that was not awaited."""
        return Reading(self.name)

    def __repr__(self) -> str:
        return f"Custom({self.name})"


def read_off(leaf: StopCondition, history: Totals) -> Reading:
    """Read a leaf that is turned off. Functions are not called, and errors of a user's condition are ignored."""
    if isinstance(leaf, Custom):
        return leaf.open_reading()
    try:
        return leaf.read(history)
    except Exception:
        return Reading(type(leaf).__name__)

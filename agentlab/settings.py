"""What bounds a run, and the one place where it can be changed while the run goes on."""

from __future__ import annotations

import dataclasses
import threading
import warnings
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, cast

from agentlab.budget import DEFAULT_TURNS, Budget, DefaultTurns, MissingUsage
from agentlab.choices import choices_of
from agentlab.continuation import CONTINUATION, NO_CONTINUATION, ContinuationPolicy
from agentlab.errors import AgentlabWarning, ConfigurationError, LimitError
from agentlab.leaf_names import describe, known_name
from agentlab.limits import no_such
from agentlab.no_such_name import helps_with_keywords
from agentlab.redaction import in_words, shown_without_keys
from agentlab.results import Decision
from agentlab.shown import Shown
from agentlab.stop import StopCondition, as_condition
from agentlab.stop_tree import leaf_switched
from agentlab.terminating import TerminatingTools

if TYPE_CHECKING:
    from agentlab.tools import Tool

LimitListener: TypeAlias = Callable[["RunSettings", "RunSettings", str], object]


@helps_with_keywords
@shown_without_keys
@dataclass(frozen=True, slots=True)
class RunSettings(Shown):
    """All that bounds a run at one moment. One of these is read per step, and kept on it.

    `policy` decides what follows from the end of each response, sync or async, see `agentlab.termination`; None is its standard table.
    `continuation` caps going on with a cut response; `terminating` names the tools that end the run, None: a plain answer does.

    Where no person set the budget's max_turns, it is the largest count of steps or calls that one did set, and 20 at least: a default
    cuts no limit off, and bounds what else may have no end.

    Example:
        >>> run.limits.snapshot() == lab.RunSettings(stop=lab.HasToolCall("finalize") | lab.StepCountIs(8))
        True
        >>> result.history[0].settings.budget
        Budget(max_turns=20)
    """

    budget: Budget = Budget()
    stop: StopCondition | None = None
    policy: Callable[..., Decision | Awaitable[Decision]] | None = None
    continuation: ContinuationPolicy = CONTINUATION
    terminating: TerminatingTools | None = None

    def __post_init__(self) -> None:
        for leaf in () if self.stop is None else self.stop.leaves():
            if choices_of(leaf):
                raise LimitError(f"{leaf!r} is a grid for lab.backtest(…): a run takes one value in each place.")
        turns = self.budget.max_turns
        if isinstance(turns, DefaultTurns) and turns != (most := max(DEFAULT_TURNS, *self._counts())):
            object.__setattr__(self, "budget", dataclasses.replace(self.budget, max_turns=DefaultTurns(most)))

    def _counts(self) -> Iterator[int]:
        """The limits on steps and calls, of which each turn takes one at least."""
        yield self.budget.max_calls or 0
        yield 0 if self.terminating is None else self.terminating.max_invocations
        for leaf in () if self.stop is None else self.stop.leaves(that_count=True):
            for field in getattr(leaf, "__dataclass_fields__", {}).values():
                value = getattr(leaf, field.name)
                if field.metadata.get("unit") in ("steps", "turns", "calls") and isinstance(value, int):
                    yield value


def as_policy(policy: object) -> Callable[..., Decision | Awaitable[Decision]] | None:
    """A policy, or None for the standard one. Raises ConfigurationError for what cannot be called."""
    if policy is None or callable(policy):
        return policy
    raise ConfigurationError(f"policy={policy!r}: pass a function of (signal, context) that returns a Decision, or None.")


def as_continuation(continuation: object) -> ContinuationPolicy:
    """A continuation policy; 0, False or None mean that nothing is continued. Raises ConfigurationError for anything else."""
    if isinstance(continuation, ContinuationPolicy):
        return continuation
    if continuation is None or (isinstance(continuation, int) and not continuation):
        return NO_CONTINUATION
    raise ConfigurationError(
        f"continuation={continuation!r}: pass a ContinuationPolicy, such as ContinuationPolicy(max_continuations_per_turn=2)."
    )


def as_terminating(terminating: object) -> TerminatingTools | None:
    """Terminating tools, from a list of names too. Raises LimitError for what names no tool."""
    if terminating is None or isinstance(terminating, TerminatingTools):
        return terminating
    return TerminatingTools(cast("tuple[str, ...]", terminating))  # it says itself what is wrong


def _as_budget(budget: object) -> Budget:
    if isinstance(budget, Budget):
        return budget
    raise ConfigurationError(f"limits.budget = {budget!r}: pass a Budget, such as Budget(max_cost=0.10).")


def _as_stop(condition: object) -> StopCondition | None:
    return None if condition is None else as_condition(condition)


PARTS: dict[str, Callable[[object], object]] = {
    "budget": _as_budget,
    "stop": _as_stop,
    "policy": as_policy,
    "continuation": as_continuation,
    "terminating": as_terminating,
}
"""The parts of RunSettings, and what checks a new one."""

EDITABLE: dict[str, type] = {"budget": Budget, "continuation": ContinuationPolicy, "terminating": TerminatingTools}
"""The parts of RunSettings whose fields can be changed one by one."""

PART_OF = {field.name: part for part, kind in EDITABLE.items() for field in dataclasses.fields(kind)}
"""Which part a field belongs to; no two parts have a field of the same name."""


if TYPE_CHECKING:
    Read = TypeVar("Read")
    Written = TypeVar("Written")

    class _Live(Generic[Read, Written]):
        """A property, as type checkers see it, whose value comes back in one type and may be set in more."""

        def __get__(self, holder: object, kind: type) -> Read: ...
        def __set__(self, holder: object, value: Written) -> None: ...


def _live(name: str) -> Any:
    def get(self: LiveSettings) -> Any:
        return getattr(getattr(self.snapshot(), PART_OF[name]), name, None)

    def set_(self: LiveSettings, value: Any) -> None:
        self.edit(**{name: value})

    return property(get, set_, doc=f"`{EDITABLE[PART_OF[name]].__name__}.{name}`, live.")


@shown_without_keys
class LiveSettings(Shown):
    """The settings of a run as they are now: read and written from code, from the panel and from the loop alike.

        run.limits.max_cost = 0.10
        run.limits.stop = StepCountIs(4) | run.limits.stop
        run.limits.edit_leaf("StepCountIs", steps=3)
        run.limits.switch_leaf("StepCountIs", on=False)

    Every change replaces one immutable RunSettings under a lock, on any thread. It is checked first: a value that cannot be raises a
    LimitError and changes nothing. A change takes effect at the loop's next reading.

    Example:
        >>> run.limits.max_cost = 0.10
        >>> run.limits.max_cost
        Decimal('0.1')
        >>> run.limits.max_turns = 0
        Traceback (most recent call last):
            ...
        agentlab.errors.LimitError: Budget(max_turns=0): max_turns must be at least 1. None means no limit; left out, it...
        >>> run.limits.max_turns
        20
    """

    __slots__ = ("_listeners", "_lock", "_settings")

    max_turns: int | None = _live("max_turns")
    max_calls: int | None = _live("max_calls")
    max_tokens: int | None = _live("max_tokens")
    max_tokens_per_turn: int | None = _live("max_tokens_per_turn")
    max_cost: _Live[Decimal | None, Decimal | float | str | None] = _live("max_cost")
    timeout: _Live[float | None, float | timedelta | None] = _live("timeout")
    missing_usage: MissingUsage = _live("missing_usage")
    max_continuations_per_turn: int = _live("max_continuations_per_turn")
    max_total_completion_tokens_per_turn: int | None = _live("max_total_completion_tokens_per_turn")
    max_total_output_chars_per_turn: int = _live("max_total_output_chars_per_turn")
    max_tool_repair_attempts: int = _live("max_tool_repair_attempts")
    hint: str = _live("hint")
    tools: _Live[tuple[str, ...], Iterable[str | Tool | Callable[..., Any]]] = _live("tools")
    consecutive_nudges: int = _live("consecutive_nudges")
    nudge_message: str = _live("nudge_message")
    max_invocations: int = _live("max_invocations")

    def __init__(self, settings: RunSettings | None = None) -> None:
        self._settings = settings or RunSettings()
        self._lock = threading.RLock()
        self._listeners: list[LimitListener] = []

    def snapshot(self) -> RunSettings:
        """The settings as they are now; immutable.

        Example:
            >>> before = run.limits.snapshot()
            >>> run.limits.max_turns = 5
            >>> before.budget.max_turns
            20
        """
        return self._settings

    @property
    def budget(self) -> Budget:
        """The whole budget, live.

        Example:
            >>> run.limits.budget = lab.Budget(max_turns=3)
            >>> run.limits.max_turns
            3
        """
        return self._settings.budget

    @budget.setter
    def budget(self, budget: Budget) -> None:
        self.edit(budget=budget)

    @property
    def stop(self) -> StopCondition | None:
        """The stop condition, live. Set it to a condition, a function, a list, or None.

        Example:
            >>> run.limits.stop = lab.StepCountIs(2) | lab.MaxCost(0.05)
            >>> (await run).detail
            'Stop condition met: StepCountIs 2 of 2.'
        """
        return self._settings.stop

    @stop.setter
    def stop(self, condition: object) -> None:
        self.edit(stop=condition)

    @property
    def policy(self) -> Callable[..., Decision | Awaitable[Decision]] | None:
        """What decides on the end of a response, live: a function of signal and context, or None for the standard table.

        Example:
            >>> run.limits.policy = lab.termination.lenient
            >>> run.limits.policy.__name__
            'lenient'
        """
        return self._settings.policy

    @policy.setter
    def policy(self, policy: Callable[..., Decision | Awaitable[Decision]] | None) -> None:
        self.edit(policy=policy)

    @property
    def continuation(self) -> ContinuationPolicy:
        """The caps on going on with a cut answer, live.

        Example:
            >>> run.limits.continuation = lab.ContinuationPolicy(max_continuations_per_turn=0)
            >>> run.limits.max_continuations_per_turn
            0
        """
        return self._settings.continuation

    @continuation.setter
    def continuation(self, continuation: ContinuationPolicy) -> None:
        self.edit(continuation=continuation)

    @property
    def terminating(self) -> TerminatingTools | None:
        """The tools that end the run, live; None: a plain answer does.

        Example:
            >>> run.limits.terminating = ["finalize"]
            >>> run.limits.consecutive_nudges
            1
        """
        return self._settings.terminating

    @terminating.setter
    def terminating(self, terminating: object) -> None:
        self.edit(terminating=terminating)

    @property
    def leaves(self) -> dict[str, StopCondition]:
        """The single conditions of `stop`, by a name unique in it.

        Example:
            >>> run.limits.leaves
            {'HasToolCall': HasToolCall('finalize'), 'StepCountIs': StepCountIs(steps=8)}
        """
        return {} if self._settings.stop is None else dict(describe(self._settings.stop))

    def edit(self, *, by: str = "code", **fields: Any) -> RunSettings:
        """Change fields of the budget, the continuation policy or the terminating tools, all or none; returns the new settings.

        `budget`, `stop`, `policy`, `continuation` and `terminating` are replaced as a whole, before any of their fields; None takes the
        latter four away. `by` says who did it, in the LimitsChanged event.

        Example:
            >>> run.limits.edit(max_turns=5, max_cost=0.02).budget
            Budget(max_turns=5, max_cost=0.02)
        """
        for name in fields:
            if name not in PART_OF and name not in PARTS:
                raise LimitError(no_such("limit", name, [*PART_OF, *PARTS]))
        wholes = {name: PARTS[name](fields.pop(name)) for name in PARTS if name in fields}

        def changed(now: RunSettings) -> RunSettings:
            now = dataclasses.replace(now, **cast("dict[str, Any]", wholes))
            for part in dict.fromkeys(PART_OF[name] for name in fields):
                mine = {name: value for name, value in fields.items() if PART_OF[name] == part}
                old = getattr(now, part)
                if old is None and "tools" not in mine:
                    raise LimitError(
                        f"{next(iter(mine))} belongs to the terminating tools, and this run has none: set "
                        'limits.terminating = TerminatingTools(["finalize"]) first.'
                    )
                new = TerminatingTools(**mine) if old is None else dataclasses.replace(old, **mine)
                now = dataclasses.replace(now, **cast("dict[str, Any]", {part: new}))
            return now

        return self._swap(changed, by)

    def edit_leaf(self, name: str, /, *, by: str = "code", **fields: Any) -> RunSettings:
        """Change one condition of `stop`, by its name in `leaves`; returns the new settings.

        Example:
            >>> run.limits.edit_leaf("StepCountIs", steps=3).stop
            AnyOf(HasToolCall('finalize'), StepCountIs(steps=3))
        """

        def changed(now: RunSettings) -> RunSettings:
            leaves = {} if now.stop is None else describe(now.stop)
            called = known_name(name, leaves)
            if now.stop is None or called not in leaves:
                raise LimitError(no_such("stop condition", called, list(leaves)))
            known = [field.name for field in dataclasses.fields(leaves[called])]  # type: ignore[arg-type]
            for field_name in fields:
                if field_name not in known:
                    raise LimitError(no_such(f"field of {called}", field_name, known))
            return dataclasses.replace(now, stop=now.stop.with_leaf(leaves[called], leaves[called].changed(**fields)))

        return self._swap(changed, by)

    def switch_leaf(self, name: str, on: bool, *, by: str = "code") -> RunSettings:
        """Turn one condition of `stop` off, so that it is kept and does not count, or on again; by its name in `leaves`.

        The others count as before: turned on within a group that is off, it leaves the rest of the group off. Returns the new settings.

        Example:
            >>> run.limits.switch_leaf("StepCountIs", on=False).stop
            AnyOf(HasToolCall('finalize'), Off(StepCountIs(steps=8)))
        """

        def changed(now: RunSettings) -> RunSettings:
            if now.stop is None:
                raise LimitError(no_such("stop condition", name, []))
            return dataclasses.replace(now, stop=leaf_switched(now.stop, name, on))

        return self._swap(changed, by)

    def subscribe(self, listener: LimitListener) -> Callable[[], None]:
        """Call `listener(before, after, by)` after each change, on the thread that made it; returns what ends that.

        What a listener raises is a warning: the change holds.

        Example:
            >>> seen = []
            >>> end = run.limits.subscribe(lambda before, after, by: seen.append((after.budget.max_turns, by)))
            >>> run.limits.max_turns = 5
            >>> end()
            >>> seen
            [(5, 'code')]
        """
        self._listeners.append(listener)

        def unsubscribe() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return unsubscribe

    def _swap(self, change: Callable[[RunSettings], RunSettings], by: str) -> RunSettings:
        with self._lock:
            before = self._settings
            after = change(before)
            if after == before and type(after.budget.max_turns) is type(before.budget.max_turns):  # a person may set the default
                return before
            self._settings = after
            for listener in tuple(self._listeners):
                try:
                    listener(before, after, by)
                except Exception as error:
                    told = f"A listener to changed limits raised {in_words(error)}. The change holds."
                    warnings.warn(told, AgentlabWarning, stacklevel=2)
        return after

    if not TYPE_CHECKING:  # with these, type checkers would take any name for an attribute

        def __getattr__(self, name):
            raise AttributeError(no_such("limit", name, [*PART_OF, *PARTS]))

        def __setattr__(self, name, value):
            if not hasattr(type(self), name):
                raise LimitError(no_such("limit", name, [*PART_OF, *PARTS]))
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        return f"LiveSettings({self._settings.budget!r}, stop={self._settings.stop!r})"

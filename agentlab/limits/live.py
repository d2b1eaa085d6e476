"""The live limits of a run: one frozen RunSettings, replaced under a lock; the engine reads it before and after each step."""

from __future__ import annotations

import dataclasses
import threading
import warnings
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, cast

from agentlab._internal.display import Displayable
from agentlab._internal.errors import AgentlabWarning, LimitError
from agentlab._internal.redaction import in_words, redacted_repr
from agentlab.limits.budget import Budget, MissingUsage
from agentlab.limits.combinators import StopCondition
from agentlab.limits.condition_tree import describe, leaf_switched
from agentlab.limits.fields import unknown_name
from agentlab.limits.policies import ContinuationPolicy, TerminatingTools
from agentlab.limits.reading import Decision
from agentlab.limits.settings import EDITABLE, PART_OF, PARTS, Read, RunSettings, Written, as_approve

# Live settings --------------------------------------------------------------------------------------------------------------

LimitListener: TypeAlias = Callable[[RunSettings, RunSettings, str], object]
"""Called with the settings before and after a change, and its author."""


class _Live(Generic[Read, Written]):
    """A field of one part of LiveSettings. Reading gives one type; writing accepts more types."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name, self._part = name, PART_OF[name]
        self.__doc__ = f"`{EDITABLE[self._part].__name__}.{name}`, live."

    def __get__(self, settings: Any, owner: type) -> Read:
        return self if settings is None else getattr(getattr(settings.snapshot(), self._part), self._name, None)  # type: ignore[return-value]

    def __set__(self, settings: Any, value: Written) -> None:
        settings.edit(**{self._name: value})


@redacted_repr
class LiveSettings(Displayable):
    """The current settings of a run, which code and the panel edit and the run reads.

        run.limits.max_cost = 0.10
        run.limits.stop = StepCountIs(4) | run.limits.stop
        run.limits.edit_condition("StepCountIs", steps=3)
        run.limits.toggle_condition("StepCountIs", on=False)

    Every change replaces one immutable RunSettings under a lock, from any thread. It is checked first: an impossible value raises
    LimitError and changes nothing. A change takes effect when the run next reads the settings.

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

    __slots__ = ("_listeners", "_lock", "_settings", "_tools")

    max_turns = _Live[int | None, int | None]()
    max_calls = _Live[int | None, int | None]()
    max_tokens = _Live[int | None, int | None]()
    max_tokens_per_turn = _Live[int | None, int | None]()
    max_cost = _Live[Decimal | None, Decimal | float | str | None]()
    timeout = _Live[float | None, float | timedelta | None]()
    missing_usage = _Live[MissingUsage, MissingUsage]()
    last_answer = _Live[float | None, float | None]()
    max_continuations_per_turn = _Live[int, int]()
    max_total_completion_tokens_per_turn = _Live[int | None, int | None]()
    max_total_output_chars_per_turn = _Live[int, int]()
    max_tool_repair_attempts = _Live[int, int]()
    hint = _Live[str, str]()
    tools = _Live[tuple[str, ...], Iterable[Any]]()
    consecutive_nudges = _Live[int, int]()
    nudge_message = _Live[str, str]()
    max_invocations = _Live[int, int]()

    def __init__(self, settings: RunSettings | None = None, tools: Mapping[str, Any] | None = None) -> None:
        self._settings = settings or RunSettings()
        self._tools = tools
        self._lock = threading.RLock()
        self._listeners: list[LimitListener] = []

    def snapshot(self) -> RunSettings:
        """Return the current settings, immutable.

        Example:
            >>> before = run.limits.snapshot()
            >>> run.limits.max_turns = 5
            >>> before.budget.max_turns
            20
        """
        return self._settings

    @property
    def budget(self) -> Budget:
        """The budget as a whole, live.

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
        """The policy that decides what to do with a response, live: a function of signal and context, or None for the standard table.

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
        """The limits on continuing a truncated answer, live.

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
        """The tools that end the run, live. None: an answer without tool calls ends it.

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
    def approve(self) -> tuple[str | StopCondition, ...]:
        """What a person is asked before, live: patterns of tool names, and conditions that ask before any tool once they are met.

        Set it to a list, also of the agent's tools, to True for every tool, or to None.

        Example:
            >>> run.limits.approve = ["find_*", lab.MaxCost(0.01)]
            >>> run.limits.approve
            ('find_*', MaxCost(0.01))
            >>> run.limits.approve = ["pay"]
            Traceback (most recent call last):
                ...
            agentlab.errors.LimitError: approve: no tool of the agent fits 'pay'. Its tools: get_weather, find_trains, final...
        """
        return self._settings.approve

    @approve.setter
    def approve(self, approve: object) -> None:
        self.edit(approve=approve)

    @property
    def conditions(self) -> dict[str, StopCondition]:
        """The single conditions of `stop`, by unique names.

        Example:
            >>> run.limits.conditions
            {'HasToolCall': HasToolCall('finalize'), 'StepCountIs': StepCountIs(steps=8)}
        """
        return {} if self._settings.stop is None else dict(describe(self._settings.stop))

    def edit(self, *, by: str = "code", **fields: Any) -> RunSettings:
        """Change fields of the budget, the continuation policy or the terminating tools, all or none. Returns the new settings.

        `budget`, `stop`, `policy`, `continuation`, `terminating` and `approve` are replaced as a whole, before single fields change;
        None removes the latter five. `by` names the author in the LimitsChanged event.

        Example:
            >>> run.limits.edit(max_turns=5, max_cost=0.02).budget
            Budget(max_turns=5, max_cost=0.02)
        """
        for name in fields:
            if name not in PART_OF and name not in PARTS:
                raise LimitError(unknown_name("limit", name, [*PART_OF, *PARTS]))
        approve = {"approve": as_approve(fields.pop("approve"), self._tools)} if "approve" in fields else {}
        wholes = {name: PARTS[name](fields.pop(name)) for name in PARTS if name in fields} | approve

        def changed(now: RunSettings) -> RunSettings:
            now = dataclasses.replace(now, **cast("dict[str, Any]", wholes))
            for part in dict.fromkeys(PART_OF[name] for name in fields):
                mine = {name: value for name, value in fields.items() if PART_OF[name] == part}
                old = getattr(now, part)
                if old is None and "tools" not in mine:
                    raise LimitError(
                        f"{next(iter(mine))} is a field of the terminating tools, which this run does not have: set "
                        'limits.terminating = TerminatingTools(["finalize"]) first.'
                    )
                new = TerminatingTools(**mine) if old is None else dataclasses.replace(old, **mine)
                now = dataclasses.replace(now, **cast("dict[str, Any]", {part: new}))
            return now

        return self._swap(changed, by)

    def edit_condition(self, name: str, /, *, by: str = "code", **fields: Any) -> RunSettings:
        """Change one condition of `stop`, by its name in `conditions`. Returns the new settings.

        Example:
            >>> run.limits.edit_condition("StepCountIs", steps=3).stop
            AnyOf(HasToolCall('finalize'), StepCountIs(steps=3))
        """

        def changed(now: RunSettings) -> RunSettings:
            leaves = {} if now.stop is None else describe(now.stop)
            if now.stop is None or name not in leaves:
                raise LimitError(unknown_name("stop condition", name, list(leaves)))
            known = [field.name for field in dataclasses.fields(leaves[name])]  # type: ignore[arg-type]
            for field_name in fields:
                if field_name not in known:
                    raise LimitError(unknown_name(f"field of {name}", field_name, known))
            return dataclasses.replace(now, stop=now.stop.with_leaf(leaves[name], leaves[name].changed(**fields)))

        return self._swap(changed, by)

    def toggle_condition(self, name: str, on: bool, *, by: str = "code") -> RunSettings:
        """Turn one condition of `stop` on or off, by its name in `conditions`. A condition that is off keeps its values.

        The other conditions do not change: if the condition is turned on within a group that is off, the rest of the group stays off.
        Returns the new settings.

        Example:
            >>> run.limits.toggle_condition("StepCountIs", on=False).stop
            AnyOf(HasToolCall('finalize'), Off(StepCountIs(steps=8)))
        """

        def changed(now: RunSettings) -> RunSettings:
            if now.stop is None:
                raise LimitError(unknown_name("stop condition", name, []))
            return dataclasses.replace(now, stop=leaf_switched(now.stop, name, on))

        return self._swap(changed, by)

    def subscribe(self, listener: LimitListener) -> Callable[[], None]:
        """Call `listener(before, after, by)` after each change, on the thread that made it; return a function that unsubscribes.

        An error in a listener becomes a warning; the change remains.

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
            same_kind = type(after.budget.max_turns) is type(before.budget.max_turns)  # an explicit default is a change
            if after == before and same_kind:
                return before
            self._settings = after
            for listener in tuple(self._listeners):
                try:
                    listener(before, after, by)
                except Exception as error:
                    message = f"A listener for changed limits raised {in_words(error)}. The change is in force."
                    warnings.warn(message, AgentlabWarning, stacklevel=2)
        return after

    if not TYPE_CHECKING:  # otherwise type checkers would accept any attribute

        def __getattr__(self, name):
            raise AttributeError(unknown_name("limit", name, [*PART_OF, *PARTS]))

        def __setattr__(self, name, value):
            if not hasattr(type(self), name):
                raise LimitError(unknown_name("limit", name, [*PART_OF, *PARTS]))
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        return f"LiveSettings({self._settings.budget!r}, stop={self._settings.stop!r})"

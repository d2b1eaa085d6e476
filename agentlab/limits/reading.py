"""The readings of conditions and budgets, the decision on a response, and the rest of a budget.

All values are frozen; times are seconds, money is US dollars.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from decimal import Decimal
from enum import StrEnum
from typing import Any, Protocol, TypeAlias

from agentlab._internal.display import Displayable
from agentlab._internal.formatting import as_set, read_of
from agentlab._internal.redaction import redact, redacted_repr
from agentlab._internal.values import dataclass
from agentlab.model.finish_reasons import StopReason
from agentlab.model.messages import JSON
from agentlab.model.usage import Usage


class Totals(Protocol):
    """The steps of a run with running totals; `RunHistory` is one.

    `tokens` and `cost_usd` are None as soon as a part is unknown; `known_tokens` and `known_cost_usd` are the sums of the known parts.
    """

    calls: int
    known_tokens: int
    known_output_tokens: int
    known_cost_usd: Decimal
    elapsed_s: float
    usage: Usage
    tool_calls: int

    @property
    def tokens(self) -> int | None:
        """All tokens so far; None if a part is unknown."""
        ...

    @property
    def cost_usd(self) -> Decimal | None:
        """The cost so far in US dollars; None if a part is unknown."""
        ...

    @property
    def last(self) -> Any:
        """The newest step, or None."""
        ...

    def tool_count(self, name: str) -> int:
        """Return how often the model called this tool."""
        ...

    @property
    def most_repeated(self) -> int:
        """How often the model made its most frequent tool call, with the same arguments; 0 without calls."""
        ...

    def has_finish(self, reason: str) -> bool:
        """True if any response ended for this reason."""
        ...

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Any]: ...


# Readings and decisions --------------------------------------------------------------------------------------------------------

Scalar: TypeAlias = int | float | Decimal | str | bool | None


@redacted_repr
@dataclass(frozen=True, slots=True)
class Reading(Displayable):
    """The reading of a condition after one step: its value, its limit, and whether it was met.

    `value` None means unknown (usage that was not reported). `met` None means undecided: a value is unknown, or an async condition was
    not awaited since the others had decided. A combination has `children` and no value. `goal` is True if meeting the condition means
    that the agent finished its task (it called `finalize`), not that it was cut off. A condition that is turned off keeps its values,
    has `met` None, and is the child of a reading named `Off`.

    Example:
        >>> reading = lab.StepCountIs(8).read(result.history)
        >>> reading.value, reading.limit, reading.met
        (4, 8, False)
        >>> str(reading)
        'StepCountIs 4 of 8'
    """

    name: str
    value: Scalar = None
    limit: Scalar = None
    met: bool | None = None
    children: tuple[Reading, ...] = ()
    goal: bool = False

    def leaves(self) -> Iterator[Reading]:
        """Yield the readings of the single conditions, in the order they were written.

        Example:
            >>> reading = (lab.StepCountIs(8) | lab.HasToolCall("finalize")).read(result.history)
            >>> [(one.name, one.met) for one in reading.leaves()]
            [('StepCountIs', False), ('HasToolCall', True)]
        """
        if not self.children:
            yield self
        for child in self.children:
            yield from child.leaves()

    def deciding(self) -> Iterator[Reading]:
        """Yield the leaf readings that caused this one to be met; none if it is not met.

        Example:
            >>> reading = (lab.StepCountIs(4) | lab.MaxCost(1)).read(result.history)
            >>> [str(one) for one in reading.deciding()]
            ['StepCountIs 4 of 4']
        """
        if not self.met:
            return
        if not self.children:
            yield self
            return
        if self.name == "Not":
            yield self.that_counts() or self
            return
        for child in self.children:
            yield from child.deciding()

    def undecided(self) -> Reading:
        """Return this reading with `met` None everywhere, as for a condition that is turned off."""
        return replace(self, met=None, children=tuple(child.undecided() for child in self.children))

    def that_counts(self) -> Reading | None:
        """Return this reading without the parts that are turned off; None if nothing is left."""
        if not self.children:
            return self
        kept = () if self.name == "Off" else tuple(child for each in self.children if (child := each.that_counts()) is not None)
        if not kept:
            return None
        unchanged = len(kept) == len(self.children) and all(map(operator.is_, kept, self.children))
        return self if unchanged else replace(self, children=kept)

    def __str__(self) -> str:
        return redact(self._text())

    def _text(self) -> str:
        if self.name == "Not" and self.children:
            return f"not {self.children[0]._text()}"
        if self.name == "Off" and self.children:
            return f"{self.children[0]._text()} (off)"
        if self.children:
            return f"{self.name}({', '.join(child._text() for child in self.children)})"
        if self.goal:
            return f"{self.name}({self.limit}): {self.value} call{'s' * (self.value != 1)}"
        if self.value is None and self.met:  # the known part reaches the limit
            return f"{self.name} at least {as_set(self.name, self.limit)} (not all is known)"
        return f"{self.name} {read_of(self.name, self.value, self.limit)}"


class Action(StrEnum):
    """The action of a run after a response.

    Example:
        >>> [step.decision.action.value for step in result.history]
        ['execute_tools', 'execute_tools', 'execute_tools', 'execute_tools']
    """

    EXECUTE_TOOLS = "execute_tools"
    ASK_AGAIN = "ask_again"
    CONTINUE_OUTPUT = "continue_output"
    REPAIR_TOOL_CALL = "repair_tool_call"
    RESUME = "resume"
    NUDGE = "nudge"
    REJECT_OUTPUT = "reject_output"
    COMPLETE = "complete"
    ABORT = "abort"


@redacted_repr
@dataclass(frozen=True, slots=True)
class Decision(Displayable):
    """The action of a run after a response, and its reason in one sentence. `stop_reason` is set if the action ends the run.
    `suggestion` is advice for a person: `retry`, `modify_prompt`, `increase_budget`, `stop`, or None.

    Example:
        >>> [step.decision.reason for step in (await brief.run("?")).history]
        ['The model ended its turn.']
    """

    action: Action
    reason: str
    stop_reason: StopReason | None = None
    suggestion: str | None = None
    metadata: Mapping[str, JSON] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Remaining(Displayable):
    """The rest of each limit of the budget. None: there is no limit, or the usage is unknown; `known_tokens` and `known_cost_usd` of
    the history are then lower bounds."""

    turns: int | None = None
    calls: int | None = None
    tokens: int | None = None
    cost_usd: Decimal | None = None
    time_s: float | None = None

"""The limits of a run: how many turns, calls, tokens, dollars and seconds it may take."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from agentlab.errors import LimitError
from agentlab.history import RunHistory
from agentlab.limits import NO_LIMIT, limit_field, money, reached, seconds, whole_number
from agentlab.no_such_name import helps_with_keywords
from agentlab.results import ModelCall, Reading, Remaining
from agentlab.shown import Shown
from agentlab.types import StopReason

MissingUsage: TypeAlias = Literal["warn", "estimate", "fail", "charge_cap"]


class DefaultTurns(int):
    """Turns that no person set. They yield to a larger count that a person did set, see RunSettings; 20 otherwise."""

    __slots__ = ()


DEFAULT_TURNS = DefaultTurns(20)


@helps_with_keywords
@dataclass(frozen=True, slots=True, repr=False)
class Budget(Shown):
    """Limits of a run. None means no limit; a budget is met AT its limit, and then starts no further call.

    max_turns            steps of the loop; 20 unless you say otherwise, and more where a count that you set is larger (max_calls, a
                         StepCountIs, the max_invocations of terminating tools)
    max_calls            round trips to the model, over all steps
    max_tokens           input and output tokens of all calls; may be passed by one call, since usage is known only afterwards
    max_tokens_per_turn  the output cap given to the provider, lowered to what is left of max_tokens
    max_cost             US dollars; may be passed by one call
    timeout              seconds, or a timedelta, of wall time from the first step; time paused by the person does not count
    missing_usage        a provider that reports no usage: `warn` once, `estimate` from the text (4 characters a token), `fail`, or
                         `charge_cap` (the output cap, and an estimate of the input)

    Example:
        >>> lab.Budget(max_turns=5, max_cost=0.05)
        Budget(max_turns=5, max_cost=0.05)
        >>> run = endless.run("?", budget=lab.Budget(max_turns=5, max_cost="0.025"))
        >>> (await run).detail
        'Budget reached: max_cost $0.03 of $0.025.'
        >>> lab.Budget(max_tunrs=5)
        Traceback (most recent call last):
            ...
        agentlab.errors.LimitError: Budget takes no 'max_tunrs'. Did you mean 'max_turns'? It takes: max_turns, max_...
    """

    max_turns: int | None = limit_field(default=DEFAULT_TURNS, unit="turns", minimum=1, start=20, help="steps of the loop")
    max_calls: int | None = limit_field(default=None, unit="calls", minimum=1, start=40, help="round trips to the model")
    max_tokens: int | None = limit_field(
        default=None, unit="tokens", minimum=1, start=10_000, help="input and output tokens of all calls"
    )
    max_tokens_per_turn: int | None = limit_field(
        default=None, unit="tokens", minimum=1, start=1_000, help="output cap of one response"
    )
    max_cost: Decimal | None = limit_field(default=None, unit="USD", minimum=0, start=0.10, help="cost of all calls")
    timeout: float | None = limit_field(
        default=None, unit="s", minimum=0, start=60.0, help="active wall time from the first step"
    )
    missing_usage: MissingUsage = dataclasses.field(
        default="warn", metadata={"help": "what to do where a provider reports no usage"}
    )

    if TYPE_CHECKING:  # as users write it; the attributes are as they come back

        def __init__(  # noqa: PLR0917  in the order of the fields
            self,
            max_turns: int | None = 20,
            max_calls: int | None = None,
            max_tokens: int | None = None,
            max_tokens_per_turn: int | None = None,
            max_cost: Decimal | float | str | None = None,
            timeout: float | timedelta | None = None,
            missing_usage: MissingUsage = "warn",
        ) -> None: ...

    def __post_init__(self) -> None:
        for name in ("max_turns", "max_calls", "max_tokens", "max_tokens_per_turn"):
            if getattr(self, name) is not None:
                otherwise = " None means no limit; left out, it is 20." if name == "max_turns" else NO_LIMIT
                whole_number("Budget", name, getattr(self, name), otherwise=otherwise)
        if self.max_cost is not None:
            object.__setattr__(self, "max_cost", money("Budget", "max_cost", self.max_cost, NO_LIMIT))
        if self.timeout is not None:
            object.__setattr__(self, "timeout", seconds("Budget", "timeout", self.timeout, NO_LIMIT))
        if self.missing_usage not in get_args(MissingUsage):
            raise LimitError(f"Budget(missing_usage={self.missing_usage!r}): choose one of {', '.join(get_args(MissingUsage))}.")

    def __repr__(self) -> str:
        shown = [
            f"{field.name}={getattr(self, field.name)!s}" for field in dataclasses.fields(self) if _is_worth_showing(self, field)
        ]
        return f"Budget({', '.join(shown)})"

    @property
    def is_unlimited(self) -> bool:
        """Whether nothing at all bounds the run.

        Example:
            >>> lab.Budget().is_unlimited, lab.Budget(max_turns=None).is_unlimited
            (False, True)
        """
        limits = (self.max_turns, self.max_calls, self.max_tokens, self.max_cost, self.timeout)
        return all(limit is None for limit in limits)

    def readings(
        self, history: RunHistory, elapsed_s: float, turns: int | None = None, calls: int | None = None
    ) -> list[Reading]:
        """What is used of each limit that is set, in the order in which they are looked at.

        `turns` and `calls` are those of the history unless a step is under way.

        Example:
            >>> [str(reading) for reading in lab.Budget(max_turns=8, max_cost=0.05).readings(result.history, elapsed_s=1.0)]
            ['max_turns 4 of 8', 'max_cost $0.014346 of $0.05']
        """
        used_turns = len(history) if turns is None else turns
        used_calls = history.calls if calls is None else calls
        found = []
        if self.max_turns is not None:
            found.append(Reading("max_turns", used_turns, self.max_turns, used_turns >= self.max_turns))
        if self.max_calls is not None:
            found.append(Reading("max_calls", used_calls, self.max_calls, used_calls >= self.max_calls))
        if self.max_tokens is not None:
            found.append(Reading("max_tokens", *reached(history.tokens, history.known_tokens, self.max_tokens)))
        if self.max_cost is not None:
            found.append(Reading("max_cost", *reached(history.cost_usd, history.known_cost_usd, self.max_cost)))
        if self.timeout is not None:
            found.append(Reading("timeout", elapsed_s, self.timeout, elapsed_s >= self.timeout))
        return found

    def exhausted(self, history: RunHistory, elapsed_s: float) -> Reading | None:
        """The first limit that is met, or None; the default of the turns only where no other is.

        Example:
            >>> lab.Budget(max_turns=4).exhausted(result.history, elapsed_s=1.0)
            Reading(name='max_turns', value=4, limit=4, met=True, children=(), goal=False)
        """
        if not self._is_spent(history, elapsed_s):
            return None
        met = [reading for reading in self.readings(history, elapsed_s) if reading.met]
        return next((reading for reading in met if not isinstance(reading.limit, DefaultTurns)), met[0])

    def _is_spent(self, history: RunHistory, elapsed_s: float) -> bool:
        """Whether any limit is met, without making its reading: this is asked twice a step and mostly answered with no. What is known
        is a lower bound of what was used, and the same where all of it is known."""
        return (
            (self.max_turns is not None and len(history) >= self.max_turns)
            or (self.max_calls is not None and history.calls >= self.max_calls)
            or (self.max_tokens is not None and history.known_tokens >= self.max_tokens)
            or (self.max_cost is not None and history.known_cost_usd >= self.max_cost)
            or (self.timeout is not None and elapsed_s >= self.timeout)
        )

    def remaining(self, history: RunHistory, elapsed_s: float) -> Remaining:
        """What is left on each dimension, never below 0; None where there is no limit or the use is unknown.

        Example:
            >>> left = lab.Budget(max_turns=8, max_tokens=5000).remaining(result.history, elapsed_s=1.0)
            >>> left.turns, left.tokens, left.cost_usd
            (4, 1854, None)
        """
        tokens, cost = history.tokens, history.cost_usd
        return Remaining(
            None if self.max_turns is None else max(0, self.max_turns - len(history)),
            None if self.max_calls is None else max(0, self.max_calls - history.calls),
            None if self.max_tokens is None or tokens is None else max(0, self.max_tokens - tokens),
            None if self.max_cost is None or cost is None else max(Decimal(0), self.max_cost - cost),
            None if self.timeout is None else max(0.0, self.timeout - elapsed_s),
        )

    def remaining_within(self, history: RunHistory, calls: Sequence[ModelCall], elapsed_s: float) -> Remaining:
        """What is left within a step that has made these calls, once the step and its next call are counted."""
        left = self.remaining(history, elapsed_s)
        tokens, cost = [call.usage.total_tokens for call in calls], [call.cost.usd for call in calls]
        return Remaining(
            None if left.turns is None else max(0, left.turns - 1),
            None if left.calls is None else max(0, left.calls - len(calls) - 1),
            None if left.tokens is None or None in tokens else max(0, left.tokens - sum(filter(None, tokens))),
            None if left.cost_usd is None or None in cost else max(Decimal(0), left.cost_usd - sum(filter(None, cost))),
            left.time_s,
        )

    def output_cap(self, known_tokens: int) -> int | None:
        """The output cap of the next call: `max_tokens_per_turn`, lowered to what is left of `max_tokens`.

        None without `max_tokens_per_turn`: a provider refuses a cap above its model's own, which nobody here knows.

        Example:
            >>> lab.Budget(max_tokens_per_turn=500, max_tokens=1000).output_cap(known_tokens=800)
            200
        """
        if self.max_tokens_per_turn is None or self.max_tokens is None:
            return self.max_tokens_per_turn
        return min(self.max_tokens_per_turn, max(1, self.max_tokens - known_tokens))


def _is_worth_showing(budget: Budget, field: dataclasses.Field[Any]) -> bool:
    """Every limit that is set, the turns in any case, and what was chosen by hand."""
    return field.name == "max_turns" or getattr(budget, field.name) != field.default


LIMIT_REASONS = {
    "max_turns": StopReason.TURN_LIMIT,
    "max_calls": StopReason.CALL_LIMIT,
    "max_tokens": StopReason.TOKEN_BUDGET,
    "max_cost": StopReason.COST_BUDGET,
    "timeout": StopReason.TIMEOUT,
}
"""Which reason a met limit of the budget gives."""

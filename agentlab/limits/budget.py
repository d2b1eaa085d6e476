"""The budget of a run: limits on steps, calls, tokens, US dollars and seconds."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from agentlab._internal.display import Displayable
from agentlab._internal.errors import LimitError
from agentlab._internal.names import helps_with_keywords
from agentlab._internal.values import dataclass
from agentlab.limits.fields import NO_LIMIT, check_limits, limit_field, limit_fields, reached
from agentlab.limits.reading import Reading, Remaining, Totals
from agentlab.model.finish_reasons import StopReason

MissingUsage: TypeAlias = Literal["warn", "estimate", "fail", "charge_cap"]


class DefaultTurns(int):
    """The default of max_turns. It yields to a larger count that a person set, see RunSettings."""

    __slots__ = ()


DEFAULT_TURNS = DefaultTurns(20)


LEAST_OUTPUT_TOKENS = 16
"""An output cap is not lowered below this to what is left of `max_tokens`: OpenAI's Responses API rejects smaller caps, which would end
the run with an error. https://github.com/vectorize-io/hindsight/issues/58, read 2026-11-28."""

USED: Mapping[str, Callable[[Totals], tuple[Any, Any]]] = {
    "steps": lambda history: (len(history), len(history)),
    "calls": lambda history: (history.calls, history.calls),
    "tokens": lambda history: (history.tokens, history.known_tokens),
    "cost": lambda history: (history.cost_usd, history.known_cost_usd),
}
"""Readers of the running totals of a history. Each returns the total, None if a part is unknown, and the sum of the known parts."""


def _limit_on(total: str, reason: StopReason, label: str, none: str = NO_LIMIT) -> dict[str, Any]:
    return {"total": total, "reason": reason, "label": label, "none_means": none}


@helps_with_keywords
@dataclass(frozen=True, slots=True, repr=False)
class Budget(Displayable):
    """Limits of a run. None means no limit. A limit is met when it is reached; no further call is started then.

    max_turns            steps of the loop; 20 by default, or more if you set another count that is larger (max_calls, a StepCountIs,
                         the max_invocations of terminating tools)
    max_calls            round trips to the model, over all steps
    max_tokens           input and output tokens of all calls; one call may exceed it, since usage is known only afterwards
    max_tokens_per_turn  the output cap sent to the provider, lowered to what is left of max_tokens
    max_cost             US dollars; one call may exceed it
    timeout              seconds, or a timedelta, of wall time from the first step, with the wait for approval, without pauses
    missing_usage        if a provider reports no usage: `warn` once, `estimate` from the text (4 characters per token), `fail`, or
                         `charge_cap` (the output cap, and an estimate of the input)
    last_answer          a share of each limit, such as 0.15, that is held back for one last answer: when the rest is used up, the
                         model is asked once for its final answer, without tools. Of max_turns and max_calls it is the last one

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

    max_turns: int | None = limit_field(
        default=DEFAULT_TURNS,
        unit="steps",
        minimum=1,
        start=20,
        help="steps of the loop",
        metadata=_limit_on("steps", StopReason.TURN_LIMIT, "the turn limit", " None means no limit; left out, it is 20."),
    )
    max_calls: int | None = limit_field(
        default=None,
        unit="calls",
        minimum=1,
        start=40,
        help="round trips to the model",
        metadata=_limit_on("calls", StopReason.CALL_LIMIT, "the call limit"),
    )
    max_tokens: int | None = limit_field(
        default=None,
        unit="tokens",
        minimum=1,
        start=10_000,
        help="input and output tokens of all calls",
        metadata=_limit_on("tokens", StopReason.TOKEN_BUDGET, "the token budget"),
    )
    max_tokens_per_turn: int | None = limit_field(
        default=None,
        unit="tokens",
        minimum=1,
        start=1_000,
        help="output cap of one response",
        metadata={"label": "the output cap", "none_means": NO_LIMIT},
    )
    max_cost: Decimal | None = limit_field(
        default=None,
        unit="USD",
        minimum=0,
        start=0.10,
        help="cost of all calls",
        metadata=_limit_on("cost", StopReason.COST_BUDGET, "the cost budget"),
    )
    timeout: float | None = limit_field(
        default=None,
        unit="s",
        minimum=0,
        start=60.0,
        help="wall time from the first step; the wait for approval counts, a pause does not",
        metadata=_limit_on("time", StopReason.TIMEOUT, "the time limit"),
    )
    missing_usage: MissingUsage = dataclasses.field(
        default="warn", metadata={"help": "what to do if a provider reports no usage"}
    )
    last_answer: float | None = dataclasses.field(
        default=None,
        metadata={"help": "share of each limit that is held back for one last answer without tools", "none": "none held back"},
    )

    if TYPE_CHECKING:  # the arguments take more types than the attributes have

        def __init__(  # noqa: PLR0917  in the order of the fields
            self,
            max_turns: int | None = 20,
            max_calls: int | None = None,
            max_tokens: int | None = None,
            max_tokens_per_turn: int | None = None,
            max_cost: Decimal | float | str | None = None,
            timeout: float | timedelta | None = None,
            missing_usage: MissingUsage = "warn",
            last_answer: float | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        check_limits(self)
        if self.missing_usage not in get_args(MissingUsage):
            raise LimitError(f"Budget(missing_usage={self.missing_usage!r}): choose one of {', '.join(get_args(MissingUsage))}.")
        share: object = self.last_answer
        if share is not None and (isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share < 1):
            raise LimitError(
                f"Budget(last_answer={share!r}): pass a share above 0 and below 1, such as 0.15 for 15% of each limit, or None."
            )

    def __repr__(self) -> str:
        shown = [
            f"{field.name}={getattr(self, field.name)!s}"
            for field in dataclasses.fields(self)
            if field.name == "max_turns" or getattr(self, field.name) != field.default
        ]
        return f"Budget({', '.join(shown)})"

    @property
    def is_unlimited(self) -> bool:
        """True if no limit is set.

        Example:
            >>> lab.Budget().is_unlimited, lab.Budget(max_turns=None).is_unlimited
            (False, True)
        """
        return all(getattr(self, name) is None for name in TOTAL_OF)

    def before_last_answer(self) -> Budget:
        """Return the limits without the share that is held back for a last answer; the budget itself without `last_answer`.

        Example:
            >>> lab.Budget(max_turns=8, max_tokens=10_000, last_answer=0.15).before_last_answer()
            Budget(max_turns=7, max_tokens=8500)
        """
        if self.last_answer is None:
            return self
        limits: dict[str, Any] = {name: limit for name in TOTAL_OF if (limit := getattr(self, name)) is not None}
        for name, limit in limits.items():
            if TOTAL_OF[name] in ("steps", "calls"):  # one is the least that leaves room for work
                limits[name] = type(limit)(max(1, limit - 1))
            elif isinstance(limit, int):
                limits[name] = max(1, limit - math.ceil(limit * self.last_answer))
            else:
                limits[name] = limit * type(limit)(str(1 - self.last_answer))
        return dataclasses.replace(self, last_answer=None, **limits)

    def readings(self, history: Totals, elapsed_s: float) -> list[Reading]:
        """Return the usage for each limit that is set.

        Example:
            >>> [str(reading) for reading in lab.Budget(max_turns=8, max_cost=0.05).readings(result.history, elapsed_s=1.0)]
            ['max_turns 4 of 8', 'max_cost $0.014346 of $0.05']
        """
        found = []
        for name, total in TOTAL_OF.items():
            if (limit := getattr(self, name)) is not None:
                used, known = (elapsed_s, elapsed_s) if total == "time" else USED[total](history)
                found.append(Reading(name, *reached(used, known, limit)))
        return found

    def exhausted(self, history: Totals, elapsed_s: float) -> Reading | None:
        """Return the first limit that is met, or None. The default of max_turns comes last.

        Example:
            >>> lab.Budget(max_turns=4).exhausted(result.history, elapsed_s=1.0)
            Reading(name='max_turns', value=4, limit=4, met=True, children=(), goal=False)
        """
        if not (  # called twice per step: readings are created only if a limit is met
            (self.max_turns is not None and len(history) >= self.max_turns)
            or (self.max_calls is not None and history.calls >= self.max_calls)
            or (self.max_tokens is not None and history.known_tokens >= self.max_tokens)
            or (self.max_cost is not None and history.known_cost_usd >= self.max_cost)
            or (self.timeout is not None and elapsed_s >= self.timeout)
        ):
            return None
        met = [reading for reading in self.readings(history, elapsed_s) if reading.met]
        return next((reading for reading in met if not isinstance(reading.limit, DefaultTurns)), met[0])

    def remaining(self, history: Totals, elapsed_s: float) -> Remaining:
        """Return the rest of each limit, at least 0; None if there is no limit or the usage is unknown.

        Example:
            >>> left = lab.Budget(max_turns=8, max_tokens=5000).remaining(result.history, elapsed_s=1.0)
            >>> left.turns, left.tokens, left.cost_usd
            (4, 1854, None)
        """
        return Remaining(
            None if self.max_turns is None else _left(self.max_turns, len(history)),
            None if self.max_calls is None else _left(self.max_calls, history.calls),
            None if self.max_tokens is None else _left(self.max_tokens, history.tokens),
            None if self.max_cost is None else _left(self.max_cost, history.cost_usd),
            None if self.timeout is None else _left(self.timeout, elapsed_s),
        )

    def remaining_within(self, history: Totals, calls: Sequence[Any], elapsed_s: float) -> Remaining:
        """Return the rest of each limit within a step, after these calls, less the step itself and its next call."""
        left = self.remaining(history, elapsed_s)
        return Remaining(
            _left(left.turns, 1),
            _left(left.calls, len(calls) + 1),
            _left(left.tokens, _sum([call.usage.total_tokens for call in calls])),
            _left(left.cost_usd, _sum([call.cost.usd for call in calls])),
            left.time_s,
        )

    def output_cap(self, known_tokens: int) -> int | None:
        """Return the output cap of the next call: `max_tokens_per_turn`, lowered to what is left of `max_tokens`, but not below 16.

        None without `max_tokens_per_turn`: providers reject a cap above the model's maximum, which is not known here.

        Example:
            >>> lab.Budget(max_tokens_per_turn=500, max_tokens=1000).output_cap(known_tokens=800)
            200
        """
        if self.max_tokens_per_turn is None or self.max_tokens is None:
            return self.max_tokens_per_turn
        return min(self.max_tokens_per_turn, max(LEAST_OUTPUT_TOKENS, self.max_tokens - known_tokens))


def _left(limit: Any, used: Any) -> Any:
    if limit is None or used is None:
        return None
    left = limit - used
    return left if left > 0 else type(left)()


def _sum(parts: Sequence[Any]) -> Any:
    """Return the sum; None if a part is unknown."""
    return None if None in parts else sum(parts)


TOTAL_OF = {field.name: field.metadata["total"] for field in limit_fields(Budget) if "total" in field.metadata}
"""The limits of a budget in the order in which they are checked, and the running total that each applies to."""

LIMIT_REASONS: dict[str, StopReason] = {
    field.name: field.metadata["reason"] for field in limit_fields(Budget) if "reason" in field.metadata
}
"""The stop reason for each limit of the budget."""

"""The built-in stop conditions.

    StepCountIs(8) | HasToolCall("finalize")        either
    MaxCost(0.05) & ~HasToolCall("search")          both, and no search
    StepCountIs(8) | (lambda history: "done" in history[-1].text)
    Off(StepCountIs(8)) | MaxCost(0.05)             the first is turned off
    StepCountIs([2, 4, 8])                          a grid of three conditions, for `lab.backtest`

A condition is met AT its limit (>=).
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any, ClassVar

from agentlab._internal.errors import LimitError
from agentlab._internal.names import helps_with_keywords
from agentlab._internal.values import dataclass
from agentlab.limits.combinators import AllOf, AnyOf, Custom, Not, Off, Predicate, StopCondition, as_condition, read_off
from agentlab.limits.fields import (
    amounts_as_code,
    any_of,
    limit_field,
    money,
    one_or_several,
    reached,
    whole_number,
    words_as_code,
)
from agentlab.limits.reading import Reading, Totals
from agentlab.model.finish_reasons import FinishReason

__all__ = [
    "AllOf",
    "AnyOf",
    "Custom",
    "FinishReasonIs",
    "HasToolCall",
    "MaxCost",
    "MaxOutputTokens",
    "MaxTokensUsed",
    "MaxToolCalls",
    "Not",
    "Off",
    "Predicate",
    "Repeats",
    "StepCountIs",
    "StopCondition",
    "as_condition",
    "read_off",
]


@functools.lru_cache(maxsize=64)
def _either(words: tuple[str, ...]) -> str:
    return " or ".join(map(str, words))


@functools.lru_cache(maxsize=256)
def _often(name: str, value: int | str | None, limit: str, met: bool, goal: bool = False) -> Reading:
    """Return a reading that is the same after most steps: it is made once, and kept once."""
    return Reading(name, value, limit, met, goal=goal)


@dataclass(frozen=True, slots=True, init=False)
class StepCountIs(StopCondition):
    """Met after this many steps.

    Example:
        >>> (await endless.run("?", stop=lab.StepCountIs(3))).detail
        'Stop condition met: StepCountIs 3 of 3.'
        >>> lab.StepCountIs(4).read(result.history).met, lab.StepCountIs(5).read(result.history).met
        (True, False)
    """

    steps: int = limit_field(unit="steps", minimum=1, start=8, help="stop after this many steps")
    total: ClassVar[str | None] = "steps"

    @helps_with_keywords
    def __init__(self, steps: int | Iterable[int]) -> None:
        object.__setattr__(self, "steps", one_or_several(whole_number, "StepCountIs", "steps", steps))

    def read(self, history: Totals) -> Reading:
        """Compare the steps so far with the limit."""
        count = len(history)
        return Reading("StepCountIs", count, self.steps, count >= self.steps)


@dataclass(frozen=True, slots=True, init=False)
class MaxTokensUsed(StopCondition):
    """Met when the run has used this many tokens, input and output of all calls.

    If a provider reports no usage, the sum is unknown; the condition is then met only if the known part reaches the limit.

    Example:
        >>> lab.MaxTokensUsed(3000).read(result.history)
        Reading(name='MaxTokensUsed', value=3146, limit=3000, met=True, children=(), goal=False)
    """

    tokens: int = limit_field(unit="tokens", minimum=1, start=10_000, help="stop when this many tokens were used")
    total: ClassVar[str | None] = "tokens"

    @helps_with_keywords
    def __init__(self, tokens: int | Iterable[int]) -> None:
        object.__setattr__(self, "tokens", one_or_several(whole_number, "MaxTokensUsed", "tokens", tokens))

    def read(self, history: Totals) -> Reading:
        """Compare the tokens so far with the limit."""
        return Reading("MaxTokensUsed", *reached(history.tokens, history.known_tokens, self.tokens))


@dataclass(frozen=True, slots=True)
class MaxCost(StopCondition):
    """Met when the run has cost this many US dollars. Unknown prices are handled like unknown tokens.

    Example:
        >>> str(lab.MaxCost(0.05).read(result.history))
        'MaxCost $0.014346 of $0.05'
        >>> (await endless.run("?", stop=lab.MaxCost("0.03"))).detail
        'Stop condition met: MaxCost $0.03 of $0.03.'
    """

    usd: Decimal = limit_field(unit="USD", minimum=0, start=0.10, help="stop when this many US dollars were spent")
    total: ClassVar[str | None] = "cost"

    @helps_with_keywords
    def __init__(self, usd: Decimal | float | str | Iterable[Decimal | float | str]) -> None:
        object.__setattr__(self, "usd", one_or_several(money, "MaxCost", "usd", usd))

    def read(self, history: Totals) -> Reading:
        """Compare the US dollars so far with the limit."""
        return Reading("MaxCost", *reached(history.cost_usd, history.known_cost_usd, self.usd))

    def __repr__(self) -> str:
        return f"MaxCost({amounts_as_code(self.usd)})"


@dataclass(frozen=True, slots=True, init=False)
class HasToolCall(StopCondition):
    """Met when the model has called one of these tools in any step so far.

    Example:
        >>> lab.HasToolCall("search", "finalize").read(result.history)
        Reading(name='HasToolCall', value=1, limit='search or finalize', met=True, children=(), goal=True)
    """

    names: tuple[str, ...] = dataclasses.field(
        metadata={"help": "stop when one of these tools was called", "start": ("finalize",), "known": "tools"}
    )
    goal: ClassVar[bool] = True

    @helps_with_keywords
    def __init__(self, *names: str | list[str | tuple[str, ...]]) -> None:
        object.__setattr__(self, "names", any_of(names, self._checked))

    @staticmethod
    def _checked(names: tuple[Any, ...]) -> tuple[str, ...]:
        if not names or not all(isinstance(name, str) and name for name in names):
            raise LimitError(
                f'HasToolCall({", ".join(map(repr, names))}): name the tools as text, such as HasToolCall("finalize").'
            )
        return names

    def read(self, history: Totals) -> Reading:
        """Count the calls; the limit lists the names."""
        count = sum([history.tool_count(name) for name in self.names])
        return _often("HasToolCall", count, _either(self.names), count > 0, self.goal)

    def __repr__(self) -> str:
        return f"HasToolCall({words_as_code(self.names)})"


@dataclass(frozen=True, slots=True, init=False)
class FinishReasonIs(StopCondition):
    """Met when a response ended for one of these reasons: a FinishReason, or a provider's own word such as `length`.

    Example:
        >>> lab.FinishReasonIs("max_tokens").read(result.history).met
        False
        >>> lab.FinishReasonIs("tool_use").read(result.history).met
        True
    """

    reasons: tuple[FinishReason | str, ...] = dataclasses.field(
        metadata={"help": "stop when a response ended for this reason", "start": ("max_tokens",), "known": "finish reasons"}
    )

    @helps_with_keywords
    def __init__(self, *reasons: FinishReason | str | list[FinishReason | str | tuple[FinishReason | str, ...]]) -> None:
        object.__setattr__(self, "reasons", any_of(reasons, self._checked))

    @staticmethod
    def _checked(reasons: tuple[Any, ...]) -> tuple[FinishReason | str, ...]:
        if not reasons or not all(isinstance(reason, str) and reason for reason in reasons):
            known = ", ".join(FinishReason)
            raise LimitError(
                f"FinishReasonIs({', '.join(map(repr, reasons))}): give a FinishReason ({known}) or a provider's own word as text."
            )
        return reasons

    def read(self, history: Totals) -> Reading:
        """Check all responses. The value is the newest finish reason; the limit lists the reasons."""
        last = history.last
        met = any(map(history.has_finish, self.reasons))
        reason = None if last is None else last.finish_reason
        return _often("FinishReasonIs", None if reason is None else reason.value, _either(self.reasons), met)

    def __repr__(self) -> str:
        return f"FinishReasonIs({words_as_code(self.reasons)})"


@dataclass(frozen=True, slots=True, init=False)
class MaxOutputTokens(StopCondition):
    """Met when the models have written this many tokens, in all calls of the run; what they read does not count.

    Unknown usage is handled like that of MaxTokensUsed.

    Example:
        >>> str(lab.MaxOutputTokens(500).read(result.history))
        'MaxOutputTokens 409 of 500'
    """

    tokens: int = limit_field(unit="tokens", minimum=1, start=2_000, help="stop when this many tokens were written")

    @helps_with_keywords
    def __init__(self, tokens: int | Iterable[int]) -> None:
        object.__setattr__(self, "tokens", one_or_several(whole_number, "MaxOutputTokens", "tokens", tokens))

    def read(self, history: Totals) -> Reading:
        """Compare the output tokens so far with the limit."""
        known = history.known_output_tokens
        return Reading("MaxOutputTokens", *reached(history.usage.output_tokens, known, self.tokens))


@dataclass(frozen=True, slots=True, init=False)
class MaxToolCalls(StopCondition):
    """Met when the model has made this many tool calls: of any tool, or of those that are named, together.

    It is read after a step, so the calls of the step that reaches the limit are all executed.

    Example:
        >>> lab.MaxToolCalls(8).read(result.history).value
        6
        >>> str(lab.MaxToolCalls(2, "get_weather").read(result.history))
        'MaxToolCalls 2 of 2'
    """

    calls: int = limit_field(unit="calls", minimum=1, start=10, help="stop after this many tool calls")
    names: tuple[str, ...] = dataclasses.field(
        default=(), metadata={"help": "count the calls of these tools; none: of all tools", "start": (), "known": "tools"}
    )

    @helps_with_keywords
    def __init__(self, calls: int | Iterable[int], names: str | Sequence[str] = ()) -> None:
        several = (names,) if isinstance(names, str) else tuple(names)
        if not all(isinstance(name, str) and name for name in several):
            raise LimitError(f'MaxToolCalls({calls!r}, {names!r}): name the tools as text, such as MaxToolCalls(3, "search").')
        object.__setattr__(self, "calls", one_or_several(whole_number, "MaxToolCalls", "calls", calls))
        object.__setattr__(self, "names", several)

    def read(self, history: Totals) -> Reading:
        """Compare the calls so far with the limit."""
        count = sum(map(history.tool_count, self.names)) if self.names else history.tool_calls
        return Reading("MaxToolCalls", count, self.calls, count >= self.calls)

    def __repr__(self) -> str:
        return f"MaxToolCalls({self.calls!r}{f', {list(self.names)!r}' if self.names else ''})"


@dataclass(frozen=True, slots=True, init=False)
class Repeats(StopCondition):
    """Met when the model has made the same tool call, with the same arguments, this many times in the run.

    The order and the layout of the arguments do not matter. The value is the count of the most frequent call.

    Example:
        >>> (await endless.run("?", stop=lab.Repeats(3))).detail
        'Stop condition met: Repeats 3 of 3.'
        >>> lab.Repeats(3).read(result.history).value
        1
    """

    times: int = limit_field(unit="times", minimum=2, start=3, help="stop when the same call was made this many times")

    @helps_with_keywords
    def __init__(self, times: int | Iterable[int]) -> None:
        object.__setattr__(self, "times", one_or_several(functools.partial(whole_number, minimum=2), "Repeats", "times", times))

    def read(self, history: Totals) -> Reading:
        """Compare the count of the most frequent call with the limit."""
        count = history.most_repeated
        return Reading("Repeats", count, self.times, count >= self.times)

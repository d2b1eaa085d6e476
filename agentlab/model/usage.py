"""The usage and cost of model calls, each with its source. `None` means unknown, never zero."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import field, fields
from decimal import Decimal
from enum import StrEnum
from operator import attrgetter
from typing import Any, TypeAlias, TypeGuard

from agentlab._internal.display import Displayable
from agentlab._internal.errors import AgentlabError
from agentlab._internal.values import dataclass

Number: TypeAlias = int | float | Decimal


class CostSource(StrEnum):
    """Source of a cost."""

    REPORTED = "reported"
    PRICED = "priced"
    UNKNOWN = "unknown"


class UsageSource(StrEnum):
    """Source of a token count. All but REPORTED result from `Budget(missing_usage=…)`."""

    REPORTED = "reported"
    ESTIMATED = "estimated"
    CHARGED_CAP = "charged_cap"
    UNKNOWN = "unknown"


def shown_fields(value: Usage | Cost) -> Iterator[tuple[str, object]]:
    """Yield the main fields of a usage or a cost, and all others that are set."""
    always = 6 if isinstance(value, Usage) else 2
    for place, field_ in enumerate(fields(value)):
        part = getattr(value, field_.name)
        if place < always or part != field_.default:
            yield field_.name, part


def _repr(value: Usage | Cost) -> str:
    return f"{type(value).__name__}({', '.join(f'{name}={part!r}' for name, part in shown_fields(value))})"


@dataclass(frozen=True, slots=True, repr=False)
class Usage(Displayable):
    """Tokens and searches of one or several calls, counted in the same way for all providers. `None` means not reported.

    `input_tokens` includes cache reads and writes; `total_tokens` is input + output; `reasoning_tokens` are part of `output_tokens`.
    `cache_write_1h_tokens` are the part of `cache_write_tokens` that is cached for an hour. Tokens of audio, images and video are part
    of the input, the output or the cache reads. A sum with an unknown part is unknown.

    `web_searches` and `file_searches` are searches that the provider ran and charges for. If the wire always lists the provider's tools
    that were used, a missing entry means 0, not None.

    `service_tier` is the provider's word for the tier of the call (`flex`, `priority`, `batch`, `fast`); a sum lists all of them.
    `also_charged` names additional charges, such as `code execution`, which make the cost unknown.

    Example:
        >>> lab.Usage(input_tokens=100, output_tokens=20).total_tokens
        120
        >>> lab.Usage(input_tokens=100).total_tokens is None  # unknown, not 100
        True
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None
    source: UsageSource = UsageSource.UNKNOWN
    cache_write_1h_tokens: int | None = None
    input_audio_tokens: int | None = None
    output_audio_tokens: int | None = None
    cache_read_audio_tokens: int | None = None
    input_image_tokens: int | None = None
    output_image_tokens: int | None = None
    cache_read_image_tokens: int | None = None
    input_video_tokens: int | None = None
    web_searches: int | None = None
    file_searches: int | None = None
    service_tier: str | None = None
    also_charged: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return _repr(self)

    @property
    def total_tokens(self) -> int | None:
        """Input plus output; None if either is unknown.

        Example:
            >>> lab.Usage(100, 20).total_tokens, lab.Usage(100).total_tokens
            (120, None)
        """
        if self.input_tokens is None or self.output_tokens is None:
            return None
        return self.input_tokens + self.output_tokens

    @property
    def known_tokens(self) -> int:
        """A lower bound of `total_tokens`: the parts that were reported.

        Example:
            >>> lab.Usage(input_tokens=100).known_tokens
            100
        """
        return (self.input_tokens or 0) + (self.output_tokens or 0)

    def __add__(self, other: Usage | int) -> Usage:
        if isinstance(other, Usage):
            return add_usage(self, other)
        return self if other == 0 else NotImplemented

    __radd__ = __add__  # `sum` begins with 0


@dataclass(frozen=True, slots=True, repr=False)
class Cost(Displayable):
    """The cost of one or several calls in US dollars. `usd` is None if and only if `source` is UNKNOWN.

    `reason` explains why it is unknown; `at_least_usd` is then the known part, which counts against `max_cost`. `price_list` names the
    price list, and the day of the prices.

    Costs can be added with `+` and `sum`, as in `history.cost`. With an unknown part the sum is unknown; `known_usd` is the known part.

    A known cost is also compared, formatted and converted as its number of US dollars. An unknown one is formatted as `unknown`; to
    compare or convert it raises AgentlabError with the reason.

    Example:
        >>> spent = sum(step.cost for step in result.history)
        >>> spent.usd, spent >= 0.01, f"${spent:.4f}", float(spent)
        (Decimal('0.014346'), True, '$0.0143', 0.014346)
    """

    usd: Decimal | None = None
    source: CostSource = CostSource.UNKNOWN
    reason: str = field(default="", compare=False)
    price_list: str = field(default="", compare=False)
    at_least_usd: Decimal = field(default=Decimal(0), compare=False)

    def __repr__(self) -> str:
        return _repr(self)

    @property
    def known_usd(self) -> Decimal:
        """The cost, or if it is unknown its known part."""
        return self.at_least_usd if self.usd is None else self.usd

    def __add__(self, other: Cost | Number) -> Cost:
        if isinstance(other, Cost):
            return add_cost(self, other)
        if not _is_number(other):
            return NotImplemented
        return add_cost(self, Cost(_number(other), CostSource.REPORTED)) if other else self

    __radd__ = __add__

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Cost):
            return (self.usd, self.source) == (other.usd, other.source)
        return self.usd == _number(other) if _is_number(other) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.usd)

    def __lt__(self, other: Cost | Number) -> bool:
        return _number(self) < _number(other) if _is_number(other) else NotImplemented

    def __le__(self, other: Cost | Number) -> bool:
        return _number(self) <= _number(other) if _is_number(other) else NotImplemented

    def __gt__(self, other: Cost | Number) -> bool:
        return _number(self) > _number(other) if _is_number(other) else NotImplemented

    def __ge__(self, other: Cost | Number) -> bool:
        return _number(self) >= _number(other) if _is_number(other) else NotImplemented

    def __float__(self) -> float:
        return float(_number(self))

    def __format__(self, spec: str) -> str:
        if self.usd is not None:
            return format(self.usd, spec)
        alignment = re.match(r"(?:.?[<>^])?[0-9]*", spec)
        return format("unknown", alignment[0] if alignment else "")


# Sums ----------------------------------------------------------------------------------------------------------------------

_COUNTS = tuple(part.name for part in fields(Usage) if part.name not in ("source", "service_tier", "also_charged"))
_FURTHER = _COUNTS[5:]
_further_counts = attrgetter(*_FURTHER)
_NONE_FURTHER = (None,) * len(_FURTHER)
_USAGE_ORDER = (UsageSource.REPORTED, UsageSource.ESTIMATED, UsageSource.CHARGED_CAP, UsageSource.UNKNOWN)
_COST_ORDER = (CostSource.REPORTED, CostSource.PRICED, CostSource.UNKNOWN)

_ZEROS: dict[str, Any] = dict.fromkeys(_COUNTS, 0)
NOTHING_USED = Usage(**_ZEROS, source=UsageSource.REPORTED)
"""The usage of no calls: the start of a sum."""

FREE = Cost(Decimal(0), CostSource.REPORTED)
"""The cost of no calls: the start of a sum."""


def add_usage(left: Usage, right: Usage) -> Usage:
    """Return the sum of two usages. Counts that are unknown in one are unknown in the sum; the source is the less reliable one."""
    source = left.source if left.source is right.source else max(left.source, right.source, key=_USAGE_ORDER.index)
    more: dict[str, Any] = {}
    if left.service_tier or right.service_tier:
        more["service_tier"] = _union(left.service_tier, right.service_tier)
    if left.also_charged or right.also_charged:
        more["also_charged"] = tuple(dict.fromkeys(left.also_charged + right.also_charged))
    if (ours := _further_counts(left)) != _NONE_FURTHER and (others := _further_counts(right)) != _NONE_FURTHER:
        for name, a, b in zip(_FURTHER, ours, others, strict=True):
            more[name] = _plus(a, b)
    return Usage(
        _plus(left.input_tokens, right.input_tokens),
        _plus(left.output_tokens, right.output_tokens),
        _plus(left.cache_read_tokens, right.cache_read_tokens),
        _plus(left.cache_write_tokens, right.cache_write_tokens),
        _plus(left.reasoning_tokens, right.reasoning_tokens),
        source,
        **more,
    )


def _plus(left: int | None, right: int | None) -> int | None:
    return None if left is None or right is None else left + right


def add_cost(left: Cost, right: Cost) -> Cost:
    """Return the sum of two costs. It is unknown if one is, with the first reason; the source is the less reliable one."""
    source = left.source if left.source is right.source else max(left.source, right.source, key=_COST_ORDER.index)
    lists = _union(left.price_list or None, right.price_list or None) or ""
    if left.usd is None or right.usd is None:
        return Cost(None, source, left.reason or right.reason, lists, left.known_usd + right.known_usd)
    return Cost(left.usd + right.usd, source, "", lists)


def _is_number(value: object) -> TypeGuard[Cost | Number]:
    return isinstance(value, Cost | Number) and not isinstance(value, bool)


def _number(value: Cost | Number) -> Decimal:
    """Return US dollars; a float as it is written, so that a cost of 0.1 is at a limit of 0.1. Raises AgentlabError if unknown."""
    if not isinstance(value, Cost):
        return Decimal(str(value)) if isinstance(value, float) else Decimal(value)
    if value.usd is None:
        reason = value.reason.rstrip(".") or "no reason is recorded"
        raise AgentlabError(
            f"The cost is unknown: {reason}. Its known part is {value.known_usd} US dollars: use `cost.known_usd` of a step, or "
            "`history.known_cost_usd`."
        )
    return value.usd


def _union(left: str | None, right: str | None) -> str | None:
    """Return the comma-separated words of both, each once."""
    if left == right or not left or not right:
        return left or right
    return ", ".join(dict.fromkeys([*left.split(", "), *right.split(", ")]))

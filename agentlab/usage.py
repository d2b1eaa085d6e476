"""What calls of a model use, tokens and money, each with its source. `None` means unknown, never zero."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum

from agentlab.shown import Shown


class CostSource(StrEnum):
    """Where a cost comes from."""

    REPORTED = "reported"
    PRICED = "priced"
    UNKNOWN = "unknown"


class UsageSource(StrEnum):
    """Where a token count comes from. Everything but REPORTED is a person's choice in `Budget(missing_usage=…)`."""

    REPORTED = "reported"
    ESTIMATED = "estimated"
    CHARGED_CAP = "charged_cap"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Usage(Shown):
    """Tokens of one or several calls, by one convention for all providers. `None` means that it was not reported.

    `input_tokens` includes what was read from and written to a cache; `total_tokens` is input + output; `reasoning_tokens` are
    part of `output_tokens`. A sum with an unknown part is unknown.

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

    @property
    def total_tokens(self) -> int | None:
        """Input plus output, or None where either is unknown.

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


@dataclass(frozen=True, slots=True)
class Cost(Shown):
    """Money of one or several calls, in US dollars; `usd` is None exactly where `source` is UNKNOWN."""

    usd: Decimal | None = None
    source: CostSource = CostSource.UNKNOWN

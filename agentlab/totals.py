"""What stop conditions and budgets read of a run: its running totals."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any, Protocol


class Totals(Protocol):
    """The steps of a run with running totals; `RunHistory` is one.

    `tokens` and `cost_usd` are None as soon as a part is unknown; `known_tokens` and `known_cost_usd` are the sums of the known parts.
    """

    calls: int
    known_tokens: int
    known_cost_usd: Decimal
    elapsed_s: float

    @property
    def tokens(self) -> int | None:
        """All tokens so far; None where a part is unknown."""
        ...

    @property
    def cost_usd(self) -> Decimal | None:
        """All US dollars so far; None where a part is unknown."""
        ...

    @property
    def last(self) -> Any:
        """The newest step, or None."""
        ...

    def tool_count(self, name: str) -> int:
        """Return how often the model called this tool."""
        ...

    def has_finish(self, reason: str) -> bool:
        """True if any response ended for this reason."""
        ...

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Any]: ...

"""The table that is printed at the end, and its JSON."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TypeVar

T = TypeVar("T")
NOT_THERE = "not available yet"


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured value and its conditions."""

    name: str
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row. All values are in `unit`; None means not measured.

    `ratio` is `ours` / `against`, where `against` is the goal's reference: the floor, the best peer, our own smaller run, or the
    limit itself. `at_most` is the goal for that ratio; None makes the row informational.
    """

    benchmark: str
    unit: str
    goal: str = ""
    at_most: float | None = None
    floor: float | None = None
    peer: Figure | None = None
    ours: float | None = None
    against: float | None = None
    why_not: str = ""

    @property
    def ratio(self) -> float | None:
        """The ratio of the goal, or None if one of its sides is missing."""
        return self.ours / self.against if self.ours is not None and self.against else None

    @property
    def verdict(self) -> str:
        """`met`, `missed`, the missing side, or an empty text for a row without a goal."""
        if self.ours is None:
            return NOT_THERE
        if self.at_most is None:
            return ""
        if self.ratio is None:
            return "nothing to compare"
        return "met" if self.ratio <= self.at_most else "missed"

    def as_dict(self) -> dict[str, object]:
        """The row as JSON values."""
        return asdict(self) | {"ratio": self.ratio, "verdict": self.verdict}


def attempt(candidate: Callable[[], T]) -> tuple[T | None, str]:
    """A candidate's value, or None and the reason if the package lacks the part."""
    try:
        return candidate(), ""
    except ImportError as missing:
        return None, missing.name or missing.msg


def least(values: Mapping[str, float | None]) -> Figure | None:
    """The smallest of the measured values."""
    figures = [Figure(name, value) for name, value in values.items() if value is not None]
    return min(figures, key=lambda figure: figure.value, default=None)


def number(value: float | None) -> str:
    """Three significant digits with thousands separators; a dash for None."""
    if value is None:
        return "–"
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2 if abs(value) >= 0.1 else 3
    return f"{value:,.{digits}f}"


def render(rows: Sequence[Row]) -> str:
    """The rows as an aligned markdown table."""
    lines = [("benchmark", "unit", "goal", "floor", "best peer", "agentlab", "ratio", "")]
    for row in rows:
        peer = f"{number(row.peer.value)} {row.peer.name}" if row.peer else "–"
        cells = (number(row.floor), peer, number(row.ours), number(row.ratio))
        lines.append((row.benchmark, row.unit, row.goal, *cells, row.verdict))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    texts = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in lines]
    texts.insert(1, "| " + " | ".join("-" * width for width in widths) + " |")
    return "\n".join(texts + sorted({f"{NOT_THERE}: {row.why_not}" for row in rows if row.why_not}))

"""The steps around the one that is looked at, as a table. What it costs does not grow with the run: sums are kept, rows are few."""

from __future__ import annotations

from decimal import Decimal

from agentlab.results import StepResult
from agentlab.run import Run
from agentlab.widgets.detail_markup import seconds, seen
from agentlab.widgets.markup import dollars, escape, printable, tokens

MOST_ROWS = 12
HEADS = (("step", True), ("finish reason", False), ("tools", False), ("tokens", True), ("so far", True), ("cost", True),
         ("so far", True), ("time", True))  # fmt: skip
"""The columns, and whether they hold numbers."""

Sums = tuple[int | None, Decimal | None]


class StepTable:
    """The table of a run's steps; reads only those that are new."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._sums: list[Sums] = [(0, Decimal(0))]

    def html(self, chosen: int | None) -> str:
        """The newest steps, or those around the chosen one, of which the row is marked."""
        steps = self._count()
        if not steps:
            return '<p class="agentlab-note">No steps yet.</p>'
        first, last = window(steps, chosen)
        rows = "".join(_row(step, self._sums[step.index], step.index == chosen) for step in self._run.history[first - 1 : last])
        head = "".join(f'<th scope="col"{_css(is_number)}>{name}</th>' for name, is_number in HEADS)
        return (
            f'<table class="agentlab-steps agentlab-step-table"><caption>{_caption(first, last, steps)}</caption>'
            f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
        )

    def _count(self) -> int:
        """How many steps there are, their sums taken in. A step is amended, but not what it used."""
        for step in self._run.history[len(self._sums) - 1 :]:
            so_far, cost = self._sums[-1]
            used, paid = step.all_tokens, step.all_cost_usd
            self._sums.append(
                (None if so_far is None or used is None else so_far + used, None if cost is None or paid is None else cost + paid)
            )
        return len(self._sums) - 1


def window(steps: int, chosen: int | None, most: int = MOST_ROWS) -> tuple[int, int]:
    """The first and last step that are shown: the newest, or `chosen` in the middle as far as that goes."""
    last = steps if chosen is None else min(steps, max(most, chosen + most // 2 - 1))
    return max(1, last - most + 1), last


def _caption(first: int, last: int, steps: int) -> str:
    shown = f"step {first}" if first == last else f"steps {first:,} to {last:,}"
    beside = [f"{first - 1:,} earlier"] * (first > 1) + [f"{steps - last:,} later"] * (last < steps)
    return f"{shown} of {steps:,}" + (f" ({', '.join(beside)})" if beside else "")


def _row(step: StepResult, sums: Sums, is_chosen: bool) -> str:
    failed = sum(result.is_error for result in step.tool_results)
    called = seen(printable(", ".join(call.name for call in step.tool_calls[:20])[:300])) + (
        f" ({failed} failed)" if failed else ""
    )
    texts = (
        f"{'▸ ' if is_chosen else ''}{step.index}",
        step.finish_reason or "no answer",
        called,
        tokens(step.all_tokens),
        tokens(sums[0]),
        dollars(step.all_cost_usd),
        dollars(sums[1]),
        seconds(step.duration_s),
    )
    cells = "".join(f"<td{_css(is_number)}>{escape(text, 120)}</td>" for text, (_, is_number) in zip(texts, HEADS, strict=True))
    mark = ' aria-current="step"' if is_chosen else ""
    return f'<tr data-step="{step.index}"{mark}>{cells}</tr>'


def _css(is_number: bool) -> str:
    return ' class="number"' if is_number else ""

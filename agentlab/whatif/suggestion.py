"""The answer of `lab.suggest`: limits for a run, what to expect of them, and how far that can be trusted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import pandas as pd

from agentlab import sugar
from agentlab.budget import Budget
from agentlab.condition_code import condition_code
from agentlab.errors import ConfigurationError
from agentlab.printable import AS_WRITTEN, cut, escape, printable
from agentlab.stop import StopCondition
from agentlab.whatif.grids import Grid
from agentlab.whatif.spelled import budget_code

CostIn: TypeAlias = Literal["cost_usd", "tokens", "time_s", "steps"]
AXES = {"cost_usd": "cost_mean", "tokens": "tokens_mean", "time_s": "time_mean", "steps": "step_mean"}
"""The column of a backtest's frame for each measure of cost."""
DRAWING = "agentlab.plots.what_if_frontier:what_if_with_suggestion"
NO_INTERVAL = "No interval for"
"""The start of sentences that say why a figure has no interval."""
DEFAULT_TURNS = Budget().max_turns or 0
"""The turns of a run whose budget has no other number."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """A stop condition and a budget, for `agent.run`, and the code that makes them."""

    stop: StopCondition | None
    budget: Budget | None
    """None: the default one is enough, no recorded run reached its 20 turns."""
    code: str


@dataclass(frozen=True, slots=True, repr=False)
class Suggestion:
    """What `lab.suggest` found: limits for a run, and what to expect of them. False where there are none, see `why`.

    `kept`, `saved` and `cost` are measured on runs that had no part in choosing, each with its interval; None is not known. `kept` is a
    share of the successes, `saved` a share of what the same runs cost in the record, `cost` and `cost_recorded` are means per run, in
    the unit of `cost_in`.

    Example:
        >>> found = lab.suggest([result])
        >>> bool(found), found.why[0]
        (False, 'Only 1 of 1 run had reached their goal, and it takes 5: record more runs, or say with goal=… wh...
    """

    keep: float
    """The share of the successes that was to be kept."""
    cost_in: CostIn
    found: Configuration | None
    kept: float | None = None
    kept_low: float | None = None
    kept_high: float | None = None
    saved: float | None = None
    saved_low: float | None = None
    saved_high: float | None = None
    cost: float | None = None
    cost_low: float | None = None
    cost_high: float | None = None
    cost_recorded: float | None = None
    """What the same runs cost in the record."""
    runs: int = 0
    units: int = 0
    """Independent units in these runs: prompts, recordings or runs, see `lab.suggest`."""
    successes: int = 0
    """Runs that had reached their goal in the record."""
    unknown_share: float | None = None
    """Of the held-out runs, those that were cut off in the record before the limits: what they would have cost is left out."""
    folds: int = 0
    same_choice: int = 0
    """In how many of the folds the same configuration was chosen; with few of them others are about as good, see `frame`."""
    why: tuple[str, ...] = ()
    """How it was found and how far it can be trusted, in sentences; where there is no suggestion, why not."""
    frame: pd.DataFrame = field(default_factory=pd.DataFrame, compare=False)
    """One row per candidate, as in `lab.backtest`, and `code`; `kept_share` and `spent_mean`, by which it is chosen; `chosen`;
    `folds_chosen`, how many folds chose it, and from their held-out runs `held_out_runs`, `held_out_kept` and `held_out_cost`."""

    def __bool__(self) -> bool:
        return self.found is not None

    @property
    def stop(self) -> StopCondition | None:
        """The condition for `agent.run(stop=…)`; None: none. Raises ConfigurationError where there is no suggestion.

        Example:
            >>> results = [await brief.run("?") for _ in range(30)] + [await endless.run("?") for _ in range(10)]
            >>> lab.suggest(results, lab.StepCountIs([1, 9]), cost="tokens").stop
            StepCountIs(steps=1)
        """
        return self._chosen().stop

    @property
    def budget(self) -> Budget | None:
        """The budget for `agent.run(budget=…)`; None: the default one. Raises ConfigurationError where there is no suggestion.

        Example:
            >>> results = [await brief.run("?") for _ in range(30)] + [await endless.run("?") for _ in range(10)]
            >>> lab.suggest(results, budget={"max_turns": [1, 20]}, cost="tokens").budget
            Budget(max_turns=1)
        """
        return self._chosen().budget

    @property
    def code(self) -> str:
        """Both as text to paste, `stop=StepCountIs(4) | MaxCost(0.02)`. Raises ConfigurationError where there is no suggestion.

        Example:
            >>> results = [await brief.run("?") for _ in range(30)] + [await endless.run("?") for _ in range(10)]
            >>> lab.suggest(results, lab.StepCountIs([1, 9]), cost="tokens").code
            'stop=StepCountIs(1)'
        """
        return self._chosen().code

    def plot(self, **options: Any) -> Any:
        """The candidates, cost against success, with a ring around the chosen one: `lab.plots.what_if(frame)`, and its options.

        Raises ConfigurationError where no candidate was tried.

        Example:
            >>> results = [await brief.run("?") for _ in range(30)] + [await endless.run("?") for _ in range(10)]
            >>> lab.suggest(results, lab.StepCountIs([1, 9]), cost="tokens").plot().alt
            'Reached the goal against tokens per run (mean), 2 configurations. on the Pareto frontier StepCountIs 1: ...
        """
        if self.frame.empty:
            raise ConfigurationError(f"There are no candidates to show: {' '.join(self.why)}")
        options = {"x": AXES[self.cost_in], "y": "success_rate", **options}
        return sugar.call(DRAWING, self.frame, self.code if self else "", **options)

    def _chosen(self) -> Configuration:
        if self.found is None:
            raise ConfigurationError(f"There is no suggestion: {' '.join(self.why)}")
        return self.found

    def __repr__(self) -> str:
        if self.found is None:
            return cut(f"Suggestion(none: {' '.join(self.why)})", 2_000)
        return printable(f"Suggestion({self.found.code}; on runs it was not chosen on it {self.in_short()})")

    def in_short(self) -> str:
        """The shares kept and saved, in words.

        Example:
            >>> results = [await brief.run("?") for _ in range(30)] + [await endless.run("?") for _ in range(10)]
            >>> lab.suggest(results, lab.StepCountIs([1, 9]), cost="tokens").in_short()
            'keeps 100.0% (88.6% to 100.0%) of the successes and saves 82.6% (72.4% to 90.0%) of the tokens'
        """
        kept = with_interval(self.kept, self.kept_low, self.kept_high)
        saved = with_interval(self.saved, self.saved_low, self.saved_high)
        return f"keeps {kept} of the successes and saves {saved} of {IN_WORDS[self.cost_in]}"

    def _repr_html_(self) -> str:
        head = "<p>No suggestion</p>" if self.found is None else f"<pre>{escape(self.found.code, 2_000)}</pre>"
        why = "".join(f"<li>{escape(sentence, 1_000)}</li>" for sentence in self.why)
        return f'<div class="{AS_WRITTEN}">{head}<ul>{why}</ul></div>'


def configuration(grid: Grid, longest: int) -> Configuration:
    """A grid of one point for a run. A budget without a number of turns would end it after 20: where a recorded run took more, the
    budget says that there is no such limit."""
    limits = dict(grid.budget)
    if "max_turns" not in limits and longest > DEFAULT_TURNS:
        limits["max_turns"] = None
    code = f"stop={'None' if grid.stop is None else condition_code(grid.stop)}"
    if not limits:
        return Configuration(grid.stop, None, code)
    return Configuration(grid.stop, Budget(**limits), f"{code}, budget={budget_code(limits)}")


def sentences(found: Suggestion, *, candidates: int, own_share: float, unit: str, level: float) -> Iterator[str]:
    """A suggestion in words."""
    code = found.code
    yield (
        f"{code} is the cheapest of {candidates:,} configurations that keep at least {found.keep:.4g} of the {found.successes:,} "
        f"successes in {found.runs:,} runs: on these same runs it keeps {own_share:.1%}, which is optimistic: it was chosen on them."
    )
    before, after = amount(found.cost_recorded, found.cost_in), amount(found.cost, found.cost_in)
    yield (
        f"On runs it was not chosen on ({found.folds} parts, by {unit}, {found.units:,} in all) the rule {found.in_short()} "
        f"(intervals at {level:.4g}): "
        f"{after} per run instead of {before}."
    )
    if found.kept is not None and found.kept < found.keep:
        yield f"That is less than {found.keep:.4g}: to keep that much, ask for more."
    same = f"In {found.same_choice} of {found.folds} parts the same configuration was chosen"
    yield f"{same}." if 2 * found.same_choice > found.folds else f"{same}: others are about as good, see frame."
    if found.found is not None and found.found.stop is None and found.found.budget is None:
        what = "no limit" if found.unknown_share else "the record itself"
        yield f"No limit that was tried keeps as much for less: the suggestion is {what}."


IN_WORDS = {"cost_usd": "the cost", "tokens": "the tokens", "time_s": "the time", "steps": "the steps"}
_UNITS = {"cost_usd": "USD", "tokens": "tokens", "time_s": "s", "steps": "steps"}


def amount(value: float | None, cost_in: str) -> str:
    """A mean with its unit."""
    return "unknown" if value is None else f"{value:,.4g} {_UNITS[cost_in]}"


def with_interval(value: float | None, low: float | None, high: float | None) -> str:
    """A share with its interval, where there is one."""
    if value is None:
        return "an unknown share"
    return f"{value:.1%} (no interval)" if low is None or high is None else f"{value:.1%} ({low:.1%} to {high:.1%})"

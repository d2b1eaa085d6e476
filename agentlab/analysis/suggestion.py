"""The result of `lab.suggest`: limits for a run, their expected effect, and its uncertainty."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import pandas as pd

from agentlab._internal.safe_text import AS_WRITTEN, cut, escape, printable
from agentlab.analysis.compare import TOO_FEW
from agentlab.analysis.grids import Grid, budget_code
from agentlab.errors import ConfigurationError
from agentlab.limits.budget import Budget
from agentlab.limits.combinators import StopCondition
from agentlab.limits.condition_tree import condition_code
from agentlab.limits.fields import unknown_name

CostIn: TypeAlias = Literal["cost_usd", "tokens", "time_s", "steps"]

AXES = {"cost_usd": "cost_mean", "tokens": "tokens_mean", "time_s": "time_mean", "steps": "step_mean"}
"""The column of a backtest's frame for each measure of cost."""

NO_INTERVAL = "No interval for"
"""The start of sentences that say why a figure has no interval."""

DEFAULT_TURNS = Budget().max_turns or 0
"""The steps of a run whose budget sets no max_turns."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """A stop condition and a budget for `agent.run`, and both as code."""

    stop: StopCondition | None
    budget: Budget | None
    """None if the default is enough: no recorded run reached its 20 turns."""
    code: str


@dataclass(frozen=True, slots=True, repr=False)
class Suggestion:
    """The result of `lab.suggest`: limits for a run and their expected effect. False if there are none, see `why`.

    `kept`, `saved` and `cost` are measured on runs that were not used to choose the limits, each with its interval; None means unknown.
    `kept` is a share of the successes, `saved` a share of the recorded cost of the same runs; `cost` and `cost_recorded` are means per
    run, in the unit of `cost_in`.

    Example:
        >>> found = lab.suggest([result])
        >>> bool(found), found.why[0]
        (False, 'Only 1 of 1 run had reached their goal, and 5 are needed: record more runs, or define success w...
    """

    keep: float
    """The share of the successes to keep, as requested."""
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
    """The cost of the same runs in the record."""
    runs: int = 0
    units: int = 0
    """Independent units in these runs: prompts, recordings or runs, see `lab.suggest`."""
    successes: int = 0
    """Runs that had reached their goal in the record."""
    unknown_share: float | None = None
    """The share of the held-out runs that were cut off in the record before the limits; their full cost is unknown and left out."""
    folds: int = 0
    same_choice: int = 0
    """Number of folds that chose the same configuration; if it is small, others are about as good, see `frame`."""
    confidence: float | None = None
    """The chance that the limits truly keep at least `keep`, as requested; None: it was not bounded."""
    why: tuple[str, ...] = ()
    """Sentences on how the suggestion was chosen and on its uncertainty, or why there is none."""
    frame: pd.DataFrame = field(default_factory=pd.DataFrame, compare=False)
    """One row per candidate, as in `lab.backtest`, and `code`; `kept_share` and `spent_mean`, by which it is chosen; `chosen`;
    `folds_chosen`, how many folds chose it, and from their held-out runs `held_out_runs`, `held_out_kept` and `held_out_cost`."""

    def __bool__(self) -> bool:
        return self.found is not None

    @property
    def stop(self) -> StopCondition | None:
        """The condition for `agent.run(stop=…)`; None: no condition. Raises ConfigurationError if there is no suggestion.

        Example:
            >>> results = [await brief.run("?") for _ in range(30)] + [await endless.run("?") for _ in range(10)]
            >>> found = lab.suggest(results, lab.StepCountIs([1, 9]), cost="tokens")
            >>> found.stop
            StepCountIs(steps=1)
        """
        return self._chosen().stop

    @property
    def budget(self) -> Budget | None:
        """The budget for `agent.run(budget=…)`; None: the default one. Raises ConfigurationError if there is no suggestion.

        Example:
            >>> results = [await brief.run("?") for _ in range(30)] + [await endless.run("?") for _ in range(10)]
            >>> lab.suggest(results, budget={"max_turns": [1, 20]}, cost="tokens").budget
            Budget(max_turns=1)
        """
        return self._chosen().budget

    @property
    def code(self) -> str:
        """Both as code, `stop=StepCountIs(4) | MaxCost(0.02)`. Raises ConfigurationError if there is no suggestion.

        Example:
            >>> results = [await brief.run("?") for _ in range(30)] + [await endless.run("?") for _ in range(10)]
            >>> found = lab.suggest(results, lab.StepCountIs([1, 9]), cost="tokens")
            >>> found.code
            'stop=StepCountIs(1)'
        """
        return self._chosen().code

    def plot(self, **options: Any) -> Any:
        """Draw the candidates, cost against success, with a ring around the chosen one. `options` are those of `lab.plots.what_if`.

        Raises ConfigurationError if no candidate was tried.

        Example:
            >>> results = [await brief.run("?") for _ in range(30)] + [await endless.run("?") for _ in range(10)]
            >>> found = lab.suggest(results, lab.StepCountIs([1, 9]), cost="tokens")
            >>> found.plot().alt
            'Reached the goal against tokens per run (mean), 2 configurations. Pareto frontier: StepCountIs 1 ...
        """
        from agentlab.plots.what_if_frontier import what_if_with_suggestion

        if self.frame.empty:
            raise ConfigurationError(f"There are no candidates to show: {' '.join(self.why)}")
        options = {"x": AXES[self.cost_in], "y": "success_rate", **options}
        return what_if_with_suggestion(self.frame, self.code if self else "", **options)

    def _chosen(self) -> Configuration:
        if self.found is None:
            raise ConfigurationError(f"There is no suggestion: {' '.join(self.why)}")
        return self.found

    def __repr__(self) -> str:
        if self.found is None:
            return cut(f"Suggestion(none: {' '.join(self.why)})", 2_000)
        return printable(f"Suggestion({self.found.code}; on held-out runs the rule {self.in_short()})")

    def in_short(self) -> str:
        """The shares kept and saved, in words.

        Example:
            >>> results = [await brief.run("?") for _ in range(30)] + [await endless.run("?") for _ in range(10)]
            >>> found = lab.suggest(results, lab.StepCountIs([1, 9]), cost="tokens")
            >>> found.in_short()
            'keeps 100.0% (88.4% to 100.0%) of the successes and saves 82.6% (72.4% to 90.0%) of the tokens'
        """
        kept = with_interval(self.kept, self.kept_low, self.kept_high)
        saved = with_interval(self.saved, self.saved_low, self.saved_high)
        return f"keeps {kept} of the successes and saves {saved} of {IN_WORDS[self.cost_in]}"

    def _repr_html_(self) -> str:
        head = "<p>No suggestion</p>" if self.found is None else f"<pre>{escape(self.found.code, 2_000)}</pre>"
        why = "".join(f"<li>{escape(sentence, 1_000)}</li>" for sentence in self.why)
        return f'<div class="{AS_WRITTEN}">{head}<ul>{why}</ul></div>'


def configuration(grid: Grid, longest: int) -> Configuration:
    """Return a grid of one point as a Configuration. A budget without max_turns would end a run after 20 turns: if a recorded run took
    more, the budget has max_turns=None."""
    limits = dict(grid.budget)
    if "max_turns" not in limits and longest > DEFAULT_TURNS:
        limits["max_turns"] = None
    code = f"stop={'None' if grid.stop is None else condition_code(grid.stop)}"
    if not limits:
        return Configuration(grid.stop, None, code)
    return Configuration(grid.stop, Budget(**limits), f"{code}, budget={budget_code(limits)}")


def sentences(found: Suggestion, *, candidates: int, own_share: float, unit: str, level: float) -> Iterator[str]:
    """Yield a suggestion in words."""
    code = found.code
    if found.confidence is not None:
        yield (
            f"{code} is the cheapest configuration that is shown to keep at least {found.keep:.4g} of the successes with a confidence "
            f"of {found.confidence:.4g}, of {candidates:,}. It was chosen on one half of the {found.runs:,} runs and tested on the "
            f"other, divided by {unit}. On the second half it {found.in_short()} (intervals at {level:.4g})."
        )
        return
    yield (
        f"{code} is the cheapest of {candidates:,} configurations that keep at least {found.keep:.4g} of the {found.successes:,} "
        f"successes in {found.runs:,} runs. On these runs it keeps {own_share:.1%}, which is optimistic, since it was chosen on them."
    )
    before, after = amount(found.cost_recorded, found.cost_in), amount(found.cost, found.cost_in)
    yield (
        f"On held-out runs ({found.folds} parts, by {unit}, {found.units:,} in all) the rule {found.in_short()} "
        f"(intervals at {level:.4g}): "
        f"{after} per run instead of {before}."
    )
    is_no_limit = found.found is not None and found.found.stop is None and found.found.budget is None
    if found.kept is not None and found.kept < found.keep and not is_no_limit:
        yield f"That is less than {found.keep:.4g}: to keep that much, pass a higher value of keep."
    same = f"In {found.same_choice} of {found.folds} parts the same configuration was chosen"
    yield f"{same}." if 2 * found.same_choice > found.folds else f"{same}: others are about as good, see frame."
    if is_no_limit:
        what = "no limit" if found.unknown_share else "the record itself"
        yield f"No limit that was tried keeps as much at a lower cost: the suggestion is {what}."


IN_WORDS = {"cost_usd": "the cost", "tokens": "the tokens", "time_s": "the time", "steps": "the steps"}

_UNITS = {"cost_usd": "USD", "tokens": "tokens", "time_s": "s", "steps": "steps"}


def amount(value: float | None, cost_in: str) -> str:
    """Return a mean with its unit as text."""
    return "unknown" if value is None else f"{value:,.4g} {_UNITS[cost_in]}"


def with_interval(value: float | None, low: float | None, high: float | None) -> str:
    """Return a share with its interval as text."""
    if value is None:
        return "an unknown share"
    return f"{value:.1%} (no interval)" if low is None or high is None else f"{value:.1%} ({low:.1%} to {high:.1%})"


SHOWN_GROUPS = 40
"""Number of groups shown; the frame has all of them."""

_FIGURES = (
    "kept", "kept_low", "kept_high", "saved", "saved_low", "saved_high", "cost", "cost_low", "cost_high", "cost_recorded",
    "unknown_share",
)  # fmt: skip

_COUNTS = ("runs", "units", "successes", "folds", "same_choice")


@dataclass(frozen=True, repr=False)
class Suggestions:
    """A Suggestion for each group of runs, by the group's name: `found["gpt-5-mini"]`, `found.groups.items()`.

    Each is the result of `lab.suggest` for the runs of that group alone. True if any group has a suggestion; a group with too few runs
    has a Suggestion that is False, and its `why` has the reason.

    Example:
        >>> both = await lab.Experiment({"brief": brief, "endless": endless}, ["?"], repeats=20).run(progress=False)
        >>> found = lab.suggest(both, lab.StepCountIs([1, 9]), cost="tokens", by="agent")
        >>> list(found), found["brief"].code
        (['brief', 'endless'], 'stop=StepCountIs(1)')
    """

    by: tuple[str, ...]
    """The columns that define the groups."""
    groups: Mapping[str, Suggestion]
    """By name, in the order of their first runs; the values of several columns are joined as in a comparison, `openai · gpt-5-mini`."""
    keys: pd.DataFrame
    """One row per group: the values of the columns of `by`."""

    @functools.cached_property
    def frame(self) -> pd.DataFrame:
        """One row per group: the columns of `by`; `code` (NA: there is no suggestion, `no_suggestion` says why); `runs`, independent
        `units`, `successes`, `folds`, `same_choice`; `kept`, `saved`, `cost`, each with `_low` and `_high`, `cost_recorded` and
        `unknown_share`, all from runs that were not used to choose; `small_sample` and `no_interval`, in words.

        Example:
            >>> both = await lab.Experiment({"brief": brief, "endless": endless}, ["?"], repeats=20).run(progress=False)
            >>> found = lab.suggest(both, lab.StepCountIs([1, 9]), cost="tokens", by="agent")
            >>> found.frame[["agent", "code", "runs", "kept"]]
                 agent                 code  runs  kept
            0    brief  stop=StepCountIs(1)    20   1.0
            1  endless                 <NA>    20  <NA>
        """
        found = list(self.groups.values())

        def of(values: Sequence[Any], dtype: Any) -> Any:
            return pd.array(list(values), dtype=dtype)

        return pd.DataFrame(
            {
                **{name: self.keys[name].array for name in self.by},
                "code": of([one.code if one else None for one in found], "string"),
                **{name: of([getattr(one, name) for one in found], "Int64") for name in _COUNTS},
                **{name: of([getattr(one, name) for one in found], "Float64") for name in _FIGURES},
                "no_suggestion": of([None if one else " ".join(one.why) for one in found], "string"),
                "small_sample": of([_sentences(one, lambda words: TOO_FEW in words) for one in found], "string"),
                "no_interval": of([_sentences(one, lambda words: words.startswith(NO_INTERVAL)) for one in found], "string"),
            }
        )

    @functools.cached_property
    def candidates(self) -> pd.DataFrame:
        """All candidates of all groups: the rows of each Suggestion's `frame`, with the columns of `by` before the figures.

        Example:
            >>> both = await lab.Experiment({"brief": brief, "endless": endless}, ["?"], repeats=20).run(progress=False)
            >>> found = lab.suggest(both, lab.StepCountIs([1, 9]), cost="tokens", by="agent")
            >>> found.candidates[["StepCountIs", "agent", "tokens_mean", "chosen"]]
               StepCountIs  agent  tokens_mean  chosen
            0            1  brief         15.0    True
            1            9  brief         15.0   False
        """
        parts: list[pd.DataFrame] = []
        fronts: dict[str, None] = {}
        for place, one in enumerate(self.groups.values()):
            if one.frame.empty:
                continue
            axes = one.frame.columns[: one.frame.columns.get_loc("runs")]
            fronts |= dict.fromkeys(axes)
            values = self.keys.iloc[[place] * len(one.frame)].reset_index(drop=True)
            parts.append(pd.concat([one.frame[axes], values, one.frame[one.frame.columns[len(axes) :]]], axis=1))
        if not parts:
            return pd.DataFrame()
        whole = pd.concat(parts, ignore_index=True)
        after = [name for name in parts[0].columns if name not in fronts]
        return whole[[*fronts, *after]]

    def plot(self, **options: Any) -> Any:
        """Draw the candidates of all groups, cost against success, with a ring around each suggested one. `options` are those of
        `lab.plots.what_if`. Raises ConfigurationError if no candidate was tried.

        Example:
            >>> both = await lab.Experiment({"brief": brief, "endless": endless}, ["?"], repeats=20).run(progress=False)
            >>> found = lab.suggest(both, lab.StepCountIs([1, 9]), cost="tokens", by="agent")
            >>> found.plot().alt
            'Reached the goal against tokens per run (mean), 2 configurations. Pareto frontier of brief: StepCou...
        """
        from agentlab.plots.what_if_frontier import what_if_with_suggestion

        table = self.candidates
        if table.empty:
            reasons = " ".join(f"{name}: {' '.join(one.why)}" for name, one in self.groups.items())
            raise ConfigurationError(f"There are no candidates to show: {cut(reasons, 2_000)}")
        cost_in = next(iter(self.groups.values())).cost_in
        options = {"x": AXES[cost_in], "y": "success_rate", "by": list(self.by), **options}
        code = "; ".join(f"{name}: {one.code}" for name, one in self.groups.items() if one)
        return what_if_with_suggestion(table, code, **options)

    def __getitem__(self, name: str) -> Suggestion:
        if name not in self.groups:
            raise ConfigurationError(unknown_name("group", str(name), list(self.groups)))
        return self.groups[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.groups)

    def __contains__(self, name: object) -> bool:
        return name in self.groups

    def __len__(self) -> int:
        return len(self.groups)

    def __bool__(self) -> bool:
        return any(self.groups.values())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Suggestions) and (self.by, dict(self.groups)) == (other.by, dict(other.groups))

    def __hash__(self) -> int:
        return hash((self.by, tuple(self.groups)))

    def __repr__(self) -> str:
        found = "; ".join(f"{name}: {one.code if one else 'none'}" for name, one in self.groups.items())
        return cut(f"Suggestions(by {', '.join(self.by)}: {found})", 2_000)

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th>{escape(name, 200)}</th><td><code>{escape(one.code, 500) if one else 'none'}</code></td>"
            f"<td>{escape(f'On held-out runs the rule {one.in_short()}.' if one else ' '.join(one.why), 500)}</td>"
            f"<td>{escape(_sentences(one, lambda words: TOO_FEW in words) or '', 500)}</td></tr>"
            for name, one in list(self.groups.items())[:SHOWN_GROUPS]
        )
        more = f"<p>… and {len(self.groups) - SHOWN_GROUPS:,} more in <code>.frame</code></p>" if len(self) > SHOWN_GROUPS else ""
        head = f"<p>{escape(printable('By ' + ', '.join(self.by)), 300)}</p>"
        return f'<div class="{AS_WRITTEN}">{head}<table>{rows}</table>{more}</div>'


def _sentences(one: Suggestion, which: Any) -> str | None:
    """Return the sentences of a suggestion that `which` accepts; None if there are none."""
    return " ".join(words for words in one.why if one and which(words)) or None

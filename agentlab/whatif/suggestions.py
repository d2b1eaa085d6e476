"""The answer of `lab.suggest(…, by=…)`: a suggestion for each group of runs, and all of them as a frame."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from agentlab import sugar
from agentlab.comparing.compare import TOO_FEW
from agentlab.errors import ConfigurationError
from agentlab.limits import no_such
from agentlab.printable import AS_WRITTEN, cut, escape, printable
from agentlab.whatif.suggestion import AXES, DRAWING, NO_INTERVAL, Suggestion

MOST_SHOWN = 40
"""So many groups are shown; the frame has them all."""

_FIGURES = (
    "kept", "kept_low", "kept_high", "saved", "saved_low", "saved_high", "cost", "cost_low", "cost_high", "cost_recorded",
    "unknown_share",
)  # fmt: skip
_COUNTS = ("runs", "units", "successes", "folds", "same_choice")


@dataclass(frozen=True, repr=False)
class Suggestions:
    """A Suggestion for each group of runs, by the group's name: `found["gpt-5-mini"]`, `found.groups.items()`.

    Each is the answer of `lab.suggest` for the runs of that group alone. True where any group has one; a group with too few runs has a
    Suggestion that is False and says why.

    Example:
        >>> both = await lab.Experiment({"brief": brief, "endless": endless}, ["?"], repeats=20).run(progress=False)
        >>> found = lab.suggest(both, lab.StepCountIs([1, 9]), cost="tokens", by="agent")
        >>> list(found), found["brief"].code
        (['brief', 'endless'], 'stop=StepCountIs(1)')
    """

    by: tuple[str, ...]
    """The columns that make the groups."""
    groups: Mapping[str, Suggestion]
    """By name, in the order of their first runs; the values of several columns are joined as in a comparison, `openai · gpt-5-mini`."""
    keys: pd.DataFrame
    """One row per group: the values of the columns of `by`."""

    @functools.cached_property
    def frame(self) -> pd.DataFrame:
        """One row per group: the columns of `by`; `code` (NA: there is no suggestion, `no_suggestion` says why); `runs`, independent
        `units`, `successes`, `folds`, `same_choice`; `kept`, `saved`, `cost`, each with `_low` and `_high`, `cost_recorded` and
        `unknown_share`, all from runs that had no part in choosing; `small_sample` and `no_interval`, in words.

        Example:
            >>> both = await lab.Experiment({"brief": brief, "endless": endless}, ["?"], repeats=20).run(progress=False)
            >>> lab.suggest(both, lab.StepCountIs([1, 9]), cost="tokens", by="agent").frame[["agent", "code", "runs", "kept"]]
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
        """The candidates of all groups, cost against success, with a ring around each that is suggested: `lab.plots.what_if`, and its
        options. Raises ConfigurationError where no candidate was tried.

        Example:
            >>> both = await lab.Experiment({"brief": brief, "endless": endless}, ["?"], repeats=20).run(progress=False)
            >>> lab.suggest(both, lab.StepCountIs([1, 9]), cost="tokens", by="agent").plot().alt
            'Reached the goal against tokens per run (mean), 2 configurations. brief: on the Pareto frontier StepC...
        """
        table = self.candidates
        if table.empty:
            raise ConfigurationError(f"There are no candidates to show: {_reasons(self.groups)}")
        cost_in = next(iter(self.groups.values())).cost_in
        options = {"x": AXES[cost_in], "y": "success_rate", "by": list(self.by), **options}
        code = "; ".join(f"{name}: {one.code}" for name, one in self.groups.items() if one)
        return sugar.call(DRAWING, table, code, **options)

    def __getitem__(self, name: str) -> Suggestion:
        if name not in self.groups:
            raise ConfigurationError(no_such("group", str(name), list(self.groups)))
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
            f"<td>{escape(f'On runs it was not chosen on it {one.in_short()}.' if one else ' '.join(one.why), 500)}</td>"
            f"<td>{escape(_sentences(one, lambda words: TOO_FEW in words) or '', 500)}</td></tr>"
            for name, one in list(self.groups.items())[:MOST_SHOWN]
        )
        more = f"<p>… and {len(self.groups) - MOST_SHOWN:,} more in <code>.frame</code></p>" if len(self) > MOST_SHOWN else ""
        head = f"<p>{escape(printable('By ' + ', '.join(self.by)), 300)}</p>"
        return f'<div class="{AS_WRITTEN}">{head}<table>{rows}</table>{more}</div>'


def _sentences(one: Suggestion, which: Any) -> str | None:
    """The sentences of a suggestion that `which` accepts; None where there are none."""
    return " ".join(words for words in one.why if one and which(words)) or None


def _reasons(groups: Mapping[str, Suggestion]) -> str:
    return cut(" ".join(f"{name}: {' '.join(one.why)}" for name, one in groups.items()), 2_000)

"""What an import gives: two frames, and what is to be said of them."""

from __future__ import annotations

from dataclasses import dataclass, field

import pandas as pd

from agentlab.printable import AS_WRITTEN, cut, escape, printable
from agentlab.recorder import SHOWN, table_of

ROWS_SHOWN = 10
LONGEST_TEXT = 4_000


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Imported:
    """Runs that were read from a record.

    `steps` has a row a step and `runs` a row a run, with the columns and dtypes of agentlab's own frames. `notes` are sentences on what
    was left out, and why, and on how the record was read where that could have been done otherwise. `source` says what was read.

    Example:
        >>> store = lab.Store()
        >>> kept = await store.keep(endless.run("?", stop=lab.StepCountIs(2)))
        >>> found = lab.importers.store(store)
        >>> found
        Imported(1 run, 2 steps from Store('MemoryStorage'))
        >>> lab.backtest(found.steps, lab.StepCountIs([1, 2]))["tokens_saved"].tolist()
        [15.0, 0.0]
    """

    steps: pd.DataFrame
    runs: pd.DataFrame
    notes: tuple[str, ...] = ()
    source: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "notes", tuple(map(printable, self.notes)))  # they quote what was read
        object.__setattr__(self, "source", printable(self.source))

    def __repr__(self) -> str:
        counted = f"{_many(len(self.runs), 'run')}, {_many(len(self.steps), 'step')}"
        told = "".join(f"\n  - {note}" for note in self.notes)
        return cut(f"Imported({counted}{' from ' if self.source else ''}{self.source}){told}", LONGEST_TEXT)

    def _repr_html_(self) -> str:
        shown = self.steps[["run_id", *SHOWN, "stop_reason"]].head(ROWS_SHOWN)
        table = table_of(shown)
        head = f"{_many(len(self.runs), 'run')}, {_many(len(self.steps), 'step')}"
        more = len(self.steps) - len(shown)
        parts = [
            f"<p><b>{head}</b>{escape(f' from {self.source}') if self.source else ''}</p>",
            f"<ul>{''.join(f'<li>{escape(note, 1_000)}</li>' for note in self.notes)}</ul>" if self.notes else "",
            table,
            f"<p>… and {_many(more, 'more step')} in <code>.steps</code></p>" if more else "",
        ]
        return f'<div class="{AS_WRITTEN}">{"".join(parts)}</div>'


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' * (count != 1)}"

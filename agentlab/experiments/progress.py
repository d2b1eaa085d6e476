"""One progress bar per provider: runs done, cost so far, time left. Drawn on a terminal or in a notebook."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from typing import Any

from agentlab._internal.kernel import front_end
from agentlab._internal.safe_text import one_line
from agentlab.experiments.shared_budget import Spent

REDRAW_INTERVAL_S = 0.5


class Progress:
    """The progress of an experiment by provider. `total` and `done` count runs; with `shown` there are bars."""

    def __init__(self, total: Mapping[str, int], done: Mapping[str, int], *, shown: bool) -> None:
        self.total, self.done, self.failed = dict(total), Counter(done), Counter[str]()
        self._spent: dict[str, Spent] = {}
        self._sums = dict.fromkeys(total, Spent())
        self._bars = (
            {provider: _bar(provider, count, self.done[provider]) for provider, count in total.items()}
            if shown and _can_be_seen()
            else {}
        )

    def spent(self, provider: str, run_id: str, spent: Spent) -> None:
        """Record what a run has used so far."""
        self._sums[provider] = self._sums[provider].with_part(self._spent.get(run_id, Spent()), spent)
        self._spent[run_id] = spent
        self._draw(provider, 0)

    def ended(self, provider: str, *, failed: bool) -> None:
        """Record that a run has ended."""
        self.done[provider] += 1
        self.failed[provider] += failed
        self._draw(provider, 1)

    def _draw(self, provider: str, ended: int) -> None:
        if provider in self._bars:
            self._bars[provider].set_postfix_str(self.text(provider), refresh=False)
            self._bars[provider].update(ended)

    def text(self, provider: str) -> str:
        """Return cost so far, and failures, in words."""
        return self._sums[provider].dollars + (f", {self.failed[provider]} failed" if self.failed[provider] else "")

    def close(self) -> None:
        """Close the bars; they stay as they are."""
        for provider, bar in self._bars.items():
            bar.set_postfix_str(self.text(provider), refresh=True)
            bar.close()


def _bar(provider: str, total: int, done: int) -> Any:
    from tqdm.auto import tqdm

    return tqdm(desc=one_line(provider), total=total, initial=done, unit="run", mininterval=REDRAW_INTERVAL_S, miniters=0)


def _can_be_seen() -> bool:
    return front_end.is_present() or sys.stderr.isatty()

"""What the page has of each run, and what is new since the last message.

A message costs what is new, however long the run: events and steps are read once, and the text of a step is made for the newest ones
only. The page asks for the others when they come into view.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from html import unescape
from typing import Any

from agentlab.agent import Run
from agentlab.engine.run_tree import family_of
from agentlab.engine.worker import RunState
from agentlab.notebook.page.data import fixed_data, state_data, unique_name
from agentlab.notebook.page.steps import EVERYTHING, Steps
from agentlab.notebook.panel.actions import live_data
from agentlab.notebook.panel.coming import Coming
from agentlab.notebook.panel.page_widget import PanelOfRuns as Panel
from agentlab.notebook.panel.settings import settings_data
from agentlab.records.events import Event
from agentlab.records.step import StepResult

JSON = dict[str, Any]
Message = Mapping[str, Any]

NEWEST, NEWEST_LATER = 30, 10
"""The newest steps that are sent with their texts in the first message, and in each later one."""
MOST_ASKED = 200
"""The most steps of one answer."""
SEARCH_S = 0.1
"""The time that one answer to a search may take; the page asks for the rest."""

_EMPTY = {"action": "execute_tools", "children": []}
"""Fields that are left out if they have this value; those that are None are, too."""
_NOW = ("value", "share", "met")
"""Fields of a limit's row that change with the run."""


class Feed:
    """The news of the families of some runs."""

    def __init__(self, runs: tuple[Run, ...]) -> None:
        self._runs = runs
        self._feeds: dict[str, RunFeed] = {}

    def of(self, run: Run) -> RunFeed:
        """Return the feed of a run."""
        if run.id not in self._feeds:
            self._feeds[run.id] = RunFeed(run)
        return self._feeds[run.id]

    def forget(self) -> None:
        """The page has nothing."""
        for one in self._feeds.values():
            one.forget()

    def news(self) -> JSON:
        """Return what is new, and note it as sent; empty if nothing is. If it raises, everything is new the next time."""
        found: dict[str, JSON] = {"runs": {}, "steps": {}, "marks": {}}
        names: Counter[str] = Counter()
        family = {node.run.id: node.run for run in self._runs for node in family_of(run)}
        try:
            for run_id, run in family.items():
                parent = run.origin.parent
                kept_by = self._feeds.get(parent.id) if parent is not None else None
                for kind, new in self.of(run).news(family, names, kept_by).items():
                    if new:
                        found[kind][run_id] = new
        except Exception:
            self.forget()
            raise
        return {kind: new for kind, new in found.items() if new}


class RunFeed:
    """The news of one run. `take` is called on the run's loop."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.steps = Steps(run, EVERYTHING)
        self._coming = Coming(run)
        self._fixed: JSON | None = None
        self._texts: dict[int, str] = {}  # of searched steps
        self.forget()

    def take(self, event: Event) -> None:
        """Note an event of the step under way."""
        self._coming.take(event)

    def forget(self) -> None:
        """The page has nothing."""
        self._head: JSON = {}
        self._name = ""
        self._limits: list[JSON] = []
        self._last: StepResult | None = None
        self.sent_steps = self._sent_marks = self._keyed = 0
        self._state: tuple[object, ...] = ()
        self._coming.forget()

    def news(self, family: Mapping[str, Run], names: Counter[str], parent: RunFeed | None) -> JSON:
        """Return the fields, steps and marks that the page does not have. Of a branch, `kept` is the number of steps that it
        shares with its parent, which the page has."""
        run, first = self.run, not self._head
        compared = len(family) > 1
        now = *self._as_it_is(), compared
        if not first and run.state is RunState.ENDED and self._state == (*now, names[self._name]):
            names[self._name] += 1  # as it was, like most runs of a large family
            return {}
        self._coming.read()  # first, so that the steps which it says are complete are among those that are sent
        steps = self._taken()
        head = self._changed(names)
        self._state = (*now, names[self._name] - 1)
        if first:
            self._fixed = self._fixed or fixed_data(run, {one: one for one in family})
            head = {**self._fixed, **head, "kept": 0}
            if parent is not None:
                self.sent_steps = self._keyed = head["kept"] = _shared(run, parent)
        rows = self._new_steps(steps, NEWEST if first else NEWEST_LATER)
        if compared:  # a run alone needs no keys, which take longer than all else of a row
            rows += [{"n": n, "same": self.steps.keys(n)} for n in range(self._keyed + 1, self.sent_steps + 1)]
            self._keyed = self.sent_steps
        marks = self.steps.marks[self._sent_marks :]
        self._sent_marks += len(marks)
        return {"runs": head | self._coming.news(self.sent_steps), "steps": rows, "marks": marks}

    def _as_it_is(self) -> tuple[object, ...]:
        """Return what the news of an ended run depend on."""
        run, parent = self.run, self.run.origin.parent
        others = None if parent is None else parent.limits.snapshot()
        return run.state, run.result, run.limits.snapshot(), others, len(run.events), len(run.branches.descendants), run.pending

    def _taken(self) -> int:
        """Return the number of steps that are complete."""
        steps = self.steps.catch_up()
        return steps if self.run.state is RunState.ENDED else min(steps, self.run.timeline.complete_steps)

    def _changed(self, names: Counter[str]) -> JSON:
        run = self.run
        data = {**state_data(run, EVERYTHING), **live_data(run), "settings": settings_data(run)}
        self._name = data["name"]
        data["name"] = unique_name(self._name, names)
        head = {name: value for name, value in data.items() if self._head.get(name, ...) != value}
        if head.get("ticks"):  # the page's clock begins with the time now
            head["totals"] = data["totals"]
        if "totals" in head and (before := self._head.get("totals")):
            head["totals"] = {name: value for name, value in head["totals"].items() if before[name] != value}
        if "limits" in head:
            fixed = [{name: value for name, value in row.items() if name not in _NOW} for row in data["limits"]]
            if fixed == self._limits:  # only the readings are new
                del head["limits"]
                head["readings"] = [[row[name] for name in _NOW] for row in data["limits"]]
            self._limits = fixed
        if data["ticks"] and {*head} == {"totals"} and {*head["totals"]} == {"elapsed_s"}:
            data["totals"], head = self._head["totals"], {}  # the page has a clock
        self._head = data
        return head

    def _new_steps(self, steps: int, with_text: int) -> list[JSON]:
        last = self.run.history[self.sent_steps - 1] if self.sent_steps else None
        if last is not None and self._last is not None and last is not self._last:
            self.sent_steps -= 1  # it is another object now: the end of the run is written on its last step
            self._keyed = min(self._keyed, self.sent_steps)
        rows = []
        for n in range(self.sent_steps + 1, steps + 1):
            row = self.steps.outline(n)
            rows.append({name: value for name, value in row.items() if _EMPTY.get(name) != value})
            rows[-1] |= self.steps.content(n) if n > steps - with_text else {"size": self._size(n)}
        self.sent_steps = max(steps, self.sent_steps)
        self._last = self.run.history[self.sent_steps - 1] if self.sent_steps else None
        return rows

    def _size(self, n: int) -> int:
        """Return about how long the text of a step is, for its height before it is there."""
        step = self.run.history[n - 1]
        return len(step.text) + 400 * len(step.tool_calls)

    def text_of(self, n: int) -> str:
        """Return the text of a step as the page shows it, in lower case, without the times of its tool calls."""
        if n not in self._texts:
            html = re.sub(r'<span class="agentlab-call-outcome">[^<]*</span>', " ", self.steps.content(n)["html"])
            self._texts[n] = unescape(re.sub(r"<[^>]*>", "", html)).lower()
        return self._texts[n]


def _shared(run: Run, parent: RunFeed) -> int:
    """Return how many of the first steps are those of the parent, as far as the page has them."""
    ours, theirs, steps = run.history, parent.run.history, 0
    most = min(len(ours), parent.sent_steps)
    while steps < most and ours[steps] is theirs[steps]:
        steps += 1
    return steps


# What the page asks for -----------------------------------------------------------------------------------------------------


def steps(panel: Panel, run: Run, message: Message) -> list[JSON]:
    """Return the texts of steps, by their numbers."""
    feed = panel.feed.of(run)
    return [feed.steps.content(n) for n in _numbers(message["steps"], len(run.history))]


def details(panel: Panel, run: Run, message: Message) -> str:
    """Return one step in full."""
    feed = panel.feed.of(run)
    return "".join(feed.steps.details(n) for n in _numbers([message["step"]], len(run.history)))


def search(panel: Panel, run: Run, message: Message) -> JSON:
    """Return the steps in which a text is found, from step `from` on as far as the time allows; `next` is the step to ask for next."""
    feed, query, until = panel.feed.of(run), str(message["query"]).lower(), time.monotonic() + SEARCH_S
    found: list[int] = []
    for n in range(max(1, int(message["from"])), feed.sent_steps + 1):
        if time.monotonic() > until:
            return {"found": found, "next": n}
        if query in feed.text_of(n):
            found.append(n)
    return {"found": found, "next": None}


def _numbers(asked: Sequence[object], most: int) -> list[int]:
    return [n for n in asked[:MOST_ASKED] if isinstance(n, int) and 1 <= n <= most]


READS: dict[str, Callable[[Panel, Run, Message], Any]] = {"steps": steps, "details": details, "search": search}
"""Commands of the page that change nothing."""

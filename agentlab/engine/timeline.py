"""The record of a run: conversation, history, events and active time. The only place that records events and notifies observers."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from agentlab._internal.asyncio_tools import is_async, name_of
from agentlab._internal.redaction import in_words, text_of
from agentlab.engine.plan import RunPrefix
from agentlab.errors import AgentlabWarning, ConfigurationError
from agentlab.model.conversation import Conversation
from agentlab.model.messages import Message
from agentlab.records import events
from agentlab.records.history import RunHistory
from agentlab.records.step import StepResult

_NOT_KEPT = frozenset({events.TextReceived, events.ArgumentsReceived})


class Clock:
    """Counts the active seconds of a run: its steps and the wait for approval in them, without pauses and the time between manual
    steps. Starts and stops may nest."""

    __slots__ = ("_active", "_before", "_lock", "_since")

    def __init__(self, elapsed_s: float = 0.0) -> None:
        self._before = elapsed_s
        self._since = 0.0
        self._active = 0
        self._lock = threading.Lock()

    @property
    def runs(self) -> bool:
        """True while it counts: it was started more often than stopped."""
        return self._active > 0

    def start(self) -> None:
        """Start counting."""
        with self._lock:
            self._active += 1
            if self._active == 1:
                self._since = time.monotonic()

    def stop(self) -> None:
        """Stop counting, if this matches the first start."""
        with self._lock:
            self._active -= 1
            if self._active == 0:
                self._before += time.monotonic() - self._since

    def elapsed_s(self) -> float:
        """Return the active seconds so far."""
        with self._lock:
            return self._before + (time.monotonic() - self._since if self._active > 0 else 0.0)


def refuse_async(observer: object) -> None:
    """Raise ConfigurationError for an observer that would have to be awaited."""
    if is_async(observer):
        raise ConfigurationError(f"The observer {name_of(observer)} is async, and nothing would await it: pass a plain function.")


class Timeline:
    """The record of one run. `observers` receive each event; forks and child runs begin with `inherited`.

    `next_step` is the number of the step under way, or of the next one.
    """

    __slots__ = (
        "_faulty",
        "_has_ended",
        "_lock",
        "_marks",
        "_prompt_at",
        "_warned",
        "asked_at",
        "clock",
        "conversation",
        "events",
        "first_length",
        "history",
        "inherited",
        "next_step",
        "observers",
        "prompt",
        "run_id",
    )

    def __init__(
        self,
        prefix: RunPrefix,
        run_id: str,
        observers: Iterable[events.RunObserver] = (),
        inherited: Iterable[events.RunObserver] | None = None,
    ) -> None:
        self.run_id, self.prompt = run_id, prefix.prompt
        self.conversation = Conversation(prefix.messages)
        self.history: RunHistory = prefix.history
        self.next_step = len(self.history) + 1
        self.events: list[events.Event] = []
        self.clock = Clock(self.history.elapsed_s)
        self.observers: tuple[events.RunObserver, ...] = tuple(observers)
        self.inherited: tuple[events.RunObserver, ...] = self.observers if inherited is None else tuple(inherited)
        self.first_length = prefix.first_length
        self.asked_at = prefix.asked_at
        self._prompt_at = prefix.prompt_at
        self._marks = list(prefix.marks)
        self._has_ended = False
        self._warned: set[str] = set()
        self._faulty: set[int] = set()
        self._lock = threading.Lock()

    @property
    def complete_steps(self) -> int:
        """The number of complete steps; the last one of the history may still be incomplete."""
        return len(self._marks)

    def prefix(self) -> RunPrefix:
        """Return the run so far; its conversation, history and marks are live."""
        return RunPrefix(
            self.prompt, self.conversation, self.history, self._marks, self._prompt_at, self.first_length, self.asked_at
        )

    def messages_of(self, step: int) -> Sequence[Message]:
        """Return the messages that this step (from 1) added to the conversation: the answer, the results of tools, a reminder.

        0 returns the messages before the first step, including the prompt. Raises ConfigurationError for an unknown step.

        Example:
            >>> ended.timeline.messages_of(1)[-1].tool_results[0].content
            '{"city":"Graz","sky":"rain","high_c":17}'
        """
        return self.prefix().messages_of(step)

    # Recording --------------------------------------------------------------------------------------------------------------

    def append(self, step: StepResult) -> None:
        """Record a step; `complete` follows once its readings are known."""
        self.history.append(step)
        self.next_step += 1

    def complete(self) -> None:
        """Mark the last step as complete: stores may write it, and forks may begin after it."""
        self._marks.append(len(self.conversation))

    def emit(self, event: events.Event) -> None:
        """Record an event, with the run's id, and notify the observers. After RunEnded nothing is recorded, for example a late pause by
        another thread.

        If an observer raises, a warning reports it once and the run continues.
        """
        kind, event = type(event), replace(event, run_id=self.run_id)
        with self._lock:
            if self._has_ended:
                return
            if kind is events.RunEnded:
                self._has_ended = True
            if kind not in _NOT_KEPT:
                self.events.append(event)
        for observer in self.observers:
            try:
                observer(event)
            except Exception as error:
                if id(observer) not in self._faulty:
                    self._faulty.add(id(observer))
                    message = f"The observer {text_of(observer, repr)} raised {in_words(error)}. The run continues."
                    warnings.warn(message, AgentlabWarning, stacklevel=2)

    def warn_once(self, message: str) -> None:
        """Emit this warning, once per run."""
        if message not in self._warned:
            self._warned.add(message)
            self.emit(events.Warned(self.clock.elapsed_s(), message))
            warnings.warn(message, AgentlabWarning, stacklevel=2)

    # Observers --------------------------------------------------------------------------------------------------------------

    def observe(self, observer: events.RunObserver) -> Callable[[], None]:
        """Notify `observer` of every event from now on; return a function that ends this. An async one is an error."""
        refuse_async(observer)
        self.observers = (*self.observers, observer)
        return lambda: self.forget(observer)

    def forget(self, observer: events.RunObserver) -> None:
        """Stop notifying this observer."""
        self.observers = tuple([one for one in self.observers if one is not observer])

    def inherit(self, observer: events.RunObserver) -> None:
        """Make forks and child runs of this run notify `observer` too, from their beginning."""
        if observer not in self.inherited:
            self.inherited = (*self.inherited, observer)

    def follow(self, run: object) -> None:
        """Replace each observer that keeps state per run by its observer for this run, which has more of it than its id."""
        per_run = [(one, getattr(one, "follow_run", None)) for one in self.observers]
        self.observers = tuple([one if of is None else of(run) for one, of in per_run])

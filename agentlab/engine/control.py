"""Pause, stop, cancel, and the approval of tool calls: requests from any thread, kept until the run acts on them."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Literal, TypeAlias, get_args

from agentlab._internal.display import Displayable
from agentlab._internal.errors import ConfigurationError
from agentlab._internal.redaction import in_words, redacted_repr, text_of
from agentlab._internal.values import dataclass

# Approvals ----------------------------------------------------------------------------------------------------------------------

Decided: TypeAlias = Literal["approved", "edited", "answered", "refused"]


@redacted_repr
@dataclass(frozen=True, slots=True)
class Approval(Displayable):
    """A decision on a tool call that waits for approval: `allow`, `answer` or `refuse`.

    `decision` is `approved`, `edited` (the tool gets `arguments`, JSON text), `answered` (the model reads `text` in place of a result)
    or `refused` (`text` is the reason).

    Example:
        >>> lab.Approval.allow({"city": "Graz"})
        Approval(decision='edited', arguments='{"city": "Graz"}', text='')
        >>> lab.Approval.refuse("Too expensive.").decision
        'refused'
    """

    decision: Decided = "approved"
    arguments: str | None = None
    text: str = ""

    def __post_init__(self) -> None:
        if self.decision not in get_args(Decided):
            raise ConfigurationError(
                f"Approval({self.decision!r}): choose {', '.join(map(repr, get_args(Decided)))}, or write "
                "lab.Approval.refuse(), for example."
            )
        if (self.decision == "edited") is not (_json_object(self.arguments) is not None):
            raise ConfigurationError(
                f"Approval({self.decision!r}, arguments={self.arguments!r}): 'edited', and no other decision, has arguments, as the "
                'text of a JSON object; write lab.Approval.allow({"city": "Graz"}), for example.'
            )
        if not isinstance(self.text, str):
            raise ConfigurationError(f"Approval({self.decision!r}, text={self.text!r}): pass the text as a string.")

    @classmethod
    def allow(cls, arguments: Mapping[str, object] | str | None = None) -> Approval:
        """Call the tool, with other arguments if they are given: a dict, or the text of a JSON object.

        Example:
            >>> lab.Approval.allow().decision
            'approved'
        """
        if arguments is None:
            return cls()
        text: object = arguments
        if isinstance(arguments, Mapping):
            try:
                text = json.dumps(dict(arguments), ensure_ascii=False, allow_nan=False)
            except (TypeError, ValueError, RecursionError) as error:
                raise ConfigurationError(
                    f"arguments={arguments!r} cannot be written as JSON ({in_words(error)}): pass text, numbers, True, False, None, "
                    "lists and dicts."
                ) from error
        if (checked := _json_object(text)) is not None:
            return cls("edited", checked)
        raise ConfigurationError(
            f'arguments={arguments!r}: pass the arguments of the tool as a dict, such as {{"city": "Graz"}}.'
        )

    @classmethod
    def answer(cls, text: str) -> Approval:
        """Do not call the tool: the model reads `text` as its result.

        Example:
            >>> lab.Approval.answer("IC 41, seat 12.").text
            'IC 41, seat 12.'
        """
        if not isinstance(text, str):
            raise ConfigurationError(f"answer={text!r}: pass the result as text.")
        return cls("answered", None, text)

    @classmethod
    def refuse(cls, message: str = "") -> Approval:
        """Do not call the tool: the model reads an error with this message.

        Example:
            >>> lab.Approval.refuse().decision
            'refused'
        """
        if not isinstance(message, str):
            raise ConfigurationError(f"refuse={message!r}: pass a message to the model as text.")
        return cls("refused", None, message)


def _json_object(text: object) -> str | None:
    """Return the text if it is that of a JSON object."""
    try:
        return text if isinstance(text, str) and isinstance(json.loads(text), dict) else None
    except (ValueError, RecursionError):
        return None


def as_approval(decision: object) -> Approval:
    """Return the decision of an approver: an Approval, or True or False. Raises ConfigurationError for anything else."""
    if isinstance(decision, Approval):
        return decision
    if isinstance(decision, bool):
        return Approval.allow() if decision else Approval.refuse()
    raise ConfigurationError(
        f"The approver returned {text_of(decision, repr)}: return True, False, or lab.Approval.allow(), for example."
    )


@redacted_repr
@dataclass(frozen=True, slots=True)
class PendingCall(Displayable):
    """A tool call that waits for approval: `arguments` as the model sent them, `why` the run asks, and `since` when.

    Example:
        >>> careful = lab.Agent(ScriptedProvider([call("search", {"words": "umbrella"})]), tools=[search], approve=["search"])
        >>> run = careful.run("?")
        >>> (await run).stop_reason
        <StopReason.AWAITING_APPROVAL: 'awaiting_approval'>
        >>> run.pending[0].tool, run.pending[0].arguments, run.pending[0].why
        ('search', '{"words": "umbrella"}', "approve has 'search'")
    """

    call_id: str
    tool: str
    arguments: str
    step: int
    why: str
    since: datetime
    run_id: str

    @property
    def waited_s(self) -> float:
        """Seconds since the run asked.

        Example:
            >>> careful = lab.Agent(ScriptedProvider([call("search", {"words": "umbrella"})]), tools=[search], approve=["search"])
            >>> run = careful.run("?")
            >>> (await run).truncated
            True
            >>> run.pending[0].waited_s >= 0
            True
        """
        return max(0.0, (datetime.now(UTC) - self.since).total_seconds())


@dataclass(frozen=True, slots=True)
class Given:
    """A decision on a call, and the seconds until it was made. `cause` is why the approver gave none; the call is then refused."""

    approval: Approval
    waited_s: float
    cause: str = ""


class StepSuspended(BaseException):
    """The step is left at a tool call that waits for approval. The step builder is kept, and the step continues there."""


class Approvals:
    """The calls of the step under way that a person was asked about, and the decisions so far.

    `waits_at` is the id of the call at which the step was left. Until it is decided, the step cannot continue.
    """

    __slots__ = ("_lock", "asked", "given", "waits_at")

    def __init__(self) -> None:
        self.asked: dict[str, PendingCall] = {}
        self.given: dict[str, Given] = {}
        self.waits_at: str | None = None
        self._lock = threading.Lock()

    @property
    def pending(self) -> tuple[PendingCall, ...]:
        """The calls without a decision."""
        return tuple([call for call in tuple(self.asked.values()) if call.call_id not in self.given])

    @property
    def waits(self) -> bool:
        """True if the next call has no decision."""
        return self.waits_at is not None and self.waits_at not in self.given

    def ask(self, calls: Iterable[PendingCall]) -> None:
        """Add calls that wait."""
        self.asked |= {call.call_id: call for call in calls}

    def decide(self, call_id: str, approval: Approval, cause: str = "") -> tuple[PendingCall, Given] | None:
        """Keep a decision; None if the call is not asked about, or decided already: the first decision counts."""
        with self._lock:
            if call_id not in self.asked or call_id in self.given:
                return None
            call = self.asked[call_id]
            given = self.given[call_id] = Given(approval, call.waited_s, cause)
        return call, given

    def clear(self) -> None:
        """Forget all: the step is over."""
        with self._lock:
            self.asked, self.given, self.waits_at = {}, {}, None


# Pause, stop, cancel ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StopRequest:
    """A request to end the run. `who` is its source: `tool`, `middleware` or `person`."""

    reason: str
    output: object
    who: str


class Control:
    """Requests to one run, or to several in lockstep. It has no reference to a run: the stepper reads it between steps.

    `stop_request` and `cancelled` are never reset. Pauses count only until `close()`, which is called when the run ends.
    `below` has the controls of child runs that wait for approval without a person, so that the tool calls that started them wait too.
    """

    __slots__ = (
        "_attending", "_closed", "_lock", "_paused_at", "_paused_s", "approvals", "below", "cancelled", "is_paused", "stop_request",
    )  # fmt: skip

    def __init__(self) -> None:
        self.approvals = Approvals()
        self.below: tuple[Control, ...] = ()
        self._attending = 0
        self.is_paused = False
        self.stop_request: StopRequest | None = None
        self.cancelled = False
        self._closed = False
        self._paused_at, self._paused_s = 0.0, 0.0
        self._lock = threading.Lock()

    @property
    def pausing(self) -> bool:
        """True if a pause was requested; it takes effect after the step under way.

        Example:
            >>> run.pause()
            >>> run.control.pausing
            True
        """
        return self.is_paused and not self._closed

    @property
    def paused_s(self) -> float:
        """Seconds for which a person has paused the run. They do not count against the timeout.

        Example:
            >>> run.control.paused_s
            0.0
        """
        return self._paused_s + (time.monotonic() - self._paused_at if self.pausing else 0.0)

    @property
    def waits(self) -> bool:
        """True if the step under way was left at a tool call that waits for approval, here or in a child run.

        Example:
            >>> run.control.waits
            False
        """
        if self.approvals.waits_at is None and not self.below:
            return False
        return self.approvals.waits or (bool(self.below) and all(one.waits for one in self.below))

    @property
    def waits_for(self) -> str:
        """What the step under way waits for, in words; "" if it does not wait.

        Example:
            >>> run.control.waits_for
            ''
        """
        if not self.waits:
            return ""
        waiting = self.below
        if self.approvals.waits:
            return f"the call of {self.approvals.asked[self.approvals.waits_at or ''].tool} waited for approval"
        return waiting[0].waits_for

    @property
    def attended(self) -> bool:
        """True if a person is there who can decide on calls: the run goes on in the background, or its live panel is shown.

        Example:
            >>> leave = run.control.attend()
            >>> run.control.attended
            True
            >>> leave()
        """
        return self._attending > 0

    def attend(self) -> Callable[[], None]:
        """Say that a person is there; return a function that ends this.

        Example:
            >>> leave = run.control.attend()
            >>> leave()
            >>> run.control.attended
            False
        """
        with self._lock:
            self._attending += 1
        left = False

        def leave() -> None:
            nonlocal left
            with self._lock:
                self._attending -= not left
                left = True

        return leave

    @property
    def must_end(self) -> bool:
        """True if the run has to end before its next step."""
        return self.cancelled or self.stop_request is not None

    def pause(self) -> bool:
        """Request a pause. Returns False if one was requested already."""
        with self._lock:
            if self.is_paused:
                return False
            self._paused_at, self.is_paused = time.monotonic(), True  # in this order: other threads read them without the lock
            return True

    def resume(self) -> float | None:
        """End the pause. Returns its seconds, or None if there was no pause."""
        with self._lock:
            if not self.is_paused:
                return None
            paused_s = time.monotonic() - self._paused_at
            self.is_paused, self._paused_s = False, self._paused_s + paused_s
            return paused_s

    def close(self) -> None:
        """End the effect of pauses: the run has ended."""
        self._closed = True

"""Policies: limits on continuing a truncated response within one step, and the tools that end a run."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from agentlab._internal.display import Displayable
from agentlab._internal.errors import LimitError
from agentlab._internal.names import helps_with_keywords
from agentlab._internal.redaction import redacted_repr
from agentlab._internal.values import dataclass
from agentlab.limits.fields import check_limits, limit_field

RECOVERY_HINT = (
    "Previous response was truncated by token limit.\n"
    "Continue exactly from where you left off.\n"
    "If you intended a tool call, emit one complete tool call payload only.\n"
    "Do not repeat already-sent text."
)
"""The request to continue, for models that accept no prefill."""

FIRST_CAPS = 4
"""By default, a continued answer may grow to this many times its first cap."""

_NO_CAP = f" None means {FIRST_CAPS} times the first call's cap, and so does leaving it out."


@helps_with_keywords
@redacted_repr
@dataclass(frozen=True, slots=True)
class ContinuationPolicy(Displayable):
    """Limits on continuing a response that was cut off at its output cap. All are counted per step, and editable live.

    max_continuations_per_turn              further calls for the rest of a truncated answer; 0 means none
    max_total_completion_tokens_per_turn    output tokens of all calls of the step; None means 4 times the first call's cap
    max_total_output_chars_per_turn         characters of the answer
    max_tool_repair_attempts                further calls for a truncated tool call; 0 means none
    hint                                    the request to continue, for models that accept no prefill: a system message, or a user
                                            message if the provider accepts no system message within a conversation

    No further call is made if what is left of the step's tokens, or of `max_tokens`, lowers its output cap below 16.

    Example:
        >>> policy = lab.ContinuationPolicy(max_continuations_per_turn=1)
        >>> half = say("A cut", finish=lab.FinishReason.MAX_TOKENS)
        >>> cut = lab.Agent(ScriptedProvider([half, say(" answer.")]), continuation=policy)
        >>> (await cut.run("?")).text
        'A cut answer.'
    """

    max_continuations_per_turn: int = limit_field(
        default=3,
        unit="calls",
        minimum=0,
        help="further calls for the rest of a truncated answer; 0: none",
        metadata={"label": "the continuations of an answer"},
    )
    max_total_completion_tokens_per_turn: int | None = limit_field(
        default=None,
        unit="tokens",
        minimum=1,
        start=4_000,
        help="output of all calls of a step; none set: 4 times the first cap",
        metadata={"label": "the output tokens of a step", "none_means": _NO_CAP, "none": f"{FIRST_CAPS} × the first cap"},
    )
    max_total_output_chars_per_turn: int = limit_field(
        default=120_000,
        unit="characters",
        minimum=1,
        help="characters of a step's answer",
        metadata={"label": "the characters of a step"},
    )
    max_tool_repair_attempts: int = limit_field(
        default=1,
        unit="calls",
        minimum=0,
        help="further calls for a truncated tool call; 0: none",
        metadata={"label": "the repairs of a tool call"},
    )
    hint: str = dataclasses.field(default=RECOVERY_HINT, metadata={"help": "the request to continue a truncated answer"})

    def __post_init__(self) -> None:
        check_limits(self)
        if not isinstance(self.hint, str) or not self.hint.strip():
            raise LimitError(f"ContinuationPolicy(hint={self.hint!r}): pass a text that tells the model what to do.")

    def completion_tokens(self, first_cap: int | None) -> int | None:
        """Return the limit on the step's output tokens, given the cap of its first call; None if neither is known.

        Example:
            >>> lab.ContinuationPolicy().completion_tokens(first_cap=500)
            2000
        """
        if self.max_total_completion_tokens_per_turn is not None:
            return self.max_total_completion_tokens_per_turn
        return None if first_cap is None else FIRST_CAPS * first_cap


CONTINUATION = ContinuationPolicy()
"""The default policy."""

NO_CONTINUATION = ContinuationPolicy(max_continuations_per_turn=0, max_tool_repair_attempts=0)
"""The policy that never continues a truncated answer."""

NUDGE_MESSAGE = (
    "You are currently in an autonomous execution mode with no user interaction. "
    "You must complete your task by calling one of the terminating tools."
)


NUDGES_EXCEEDED = "Max consecutive nudges exceeded"
INVOCATIONS_EXCEEDED = "Max invocations exceeded"
"""The details of a run that ended at a limit of its terminating tools begin with these words."""


@helps_with_keywords
@redacted_repr
@dataclass(frozen=True, slots=True)
class TerminatingTools(Displayable):
    """Tools that end the run: a run with terminating tools ends only when one of them has been called, or at a limit.

        agent.run("…", terminating=TerminatingTools(["finalize", "give_up"]))

    tools               names of the agent's tools; the first of them that succeeds ends the run, and its value is the result's output
    consecutive_nudges  reminders in a row after answers without a tool call; 0 means none
    nudge_message       the reminder: a system message if the provider accepts one within a conversation, else a user message
    max_invocations     round trips to the model in the whole run, then CALL_LIMIT; the default of max_turns yields to it

    Example:
        >>> script = [say("I think I am done."), call("finalize", {"answer": "IC 41"})]
        >>> clerk = lab.Agent(ScriptedProvider(script), tools=[finalize])
        >>> result = await clerk.run("?", terminating=lab.TerminatingTools(["finalize"], consecutive_nudges=2))
        >>> result.stop_reason, result.output, len(result.history)
        (<StopReason.TERMINATING_TOOL: 'terminating_tool'>, 'IC 41', 2)
    """

    tools: tuple[str, ...]
    consecutive_nudges: int = limit_field(
        default=1, unit="nudges", minimum=0, help="reminders in a row; 0: none", metadata={"label": "the reminders in a row"}
    )
    nudge_message: str = dataclasses.field(default=NUDGE_MESSAGE, metadata={"help": "the reminder, as the model gets it"})
    max_invocations: int = limit_field(
        default=64,
        unit="calls",
        minimum=1,
        help="round trips to the model in the run",
        metadata={"label": "the call limit of the terminating tools"},
    )

    if TYPE_CHECKING:  # the argument takes more types than the attribute has

        def __init__(
            self,
            tools: Iterable[Any],  # names, Tools or functions
            consecutive_nudges: int = 1,
            nudge_message: str = NUDGE_MESSAGE,
            max_invocations: int = 64,
        ) -> None: ...

    def __post_init__(self) -> None:
        given: object = self.tools
        if isinstance(given, str) or not isinstance(given, Iterable):
            raise LimitError(f'TerminatingTools(tools={self.tools!r}): give the names in a list, such as ["finalize"].')
        names = tuple(getattr(tool, "name", None) or getattr(tool, "__name__", tool) for tool in given)
        if not names or not all(isinstance(name, str) and name for name in names):
            raise LimitError(f'TerminatingTools(tools={self.tools!r}): name at least one tool, such as ["finalize"].')
        object.__setattr__(self, "tools", names)
        check_limits(self)
        if not isinstance(self.nudge_message, str) or not self.nudge_message.strip():
            raise LimitError(
                f"TerminatingTools(nudge_message={self.nudge_message!r}): pass a text that tells the model what to do."
            )

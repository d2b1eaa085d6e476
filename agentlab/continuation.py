"""Caps on continuing a truncated response within one step."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from agentlab.errors import LimitError
from agentlab.limits import check_limits, limit_field
from agentlab.no_such_name import helps_with_keywords
from agentlab.redaction import shown_without_keys
from agentlab.shown import Shown

RECOVERY_HINT = (
    "Previous response was truncated by token limit.\n"
    "Continue exactly from where you left off.\n"
    "If you intended a tool call, emit one complete tool call payload only.\n"
    "Do not repeat already-sent text."
)
"""The prompt for a model that cannot be given the beginning of its answer as a prefill."""

FIRST_CAPS = 4
"""By default an answer may grow to this many times its first cap."""

_NO_CAP = f" None means {FIRST_CAPS} times the first call's cap, and so does leaving it out."


@helps_with_keywords
@shown_without_keys
@dataclass(frozen=True, slots=True)
class ContinuationPolicy(Shown):
    """Caps on continuing a response that was cut off at its token cap. All are counted per step, and editable live.

    max_continuations_per_turn              further calls for the rest of a truncated answer; 0 means none
    max_total_completion_tokens_per_turn    output tokens of all calls of the step; None means 4 times the first call's cap
    max_total_output_chars_per_turn         characters of the answer
    max_tool_repair_attempts                further calls for a truncated tool call; 0 means none
    hint                                    the prompt to continue, where the model cannot be given its own words as a prefill

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
        metadata={"label": "the output tokens of a step", "none_means": _NO_CAP},
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
    hint: str = dataclasses.field(default=RECOVERY_HINT, metadata={"help": "the prompt to continue a truncated answer"})

    def __post_init__(self) -> None:
        check_limits(self)
        if not isinstance(self.hint, str) or not self.hint.strip():
            raise LimitError(f"ContinuationPolicy(hint={self.hint!r}): say in words what the model is to do.")

    def completion_tokens(self, first_cap: int | None) -> int | None:
        """Return the cap on the step's output tokens, given that of its first call; None if neither is known.

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
"""A truncated answer is not continued."""

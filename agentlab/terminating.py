"""Tools that end a run, for an agent without a user: an answer that calls none of them gets a reminder."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agentlab.errors import LimitError
from agentlab.limits import check_limits, limit_field
from agentlab.no_such_name import helps_with_keywords
from agentlab.redaction import shown_without_keys
from agentlab.shown import Shown

NUDGE_MESSAGE = (
    "You are currently in an autonomous execution mode with no user interaction. "
    "You must complete your task by calling one of the terminating tools."
)


@helps_with_keywords
@shown_without_keys
@dataclass(frozen=True, slots=True)
class TerminatingTools(Shown):
    """The run ends when one of these tools has been called, and not before.

        agent.run("…", terminating=TerminatingTools(["finalize", "give_up"]))

    tools               names of the agent's tools; the first of them that succeeds ends the run, and its value is the result's output
    consecutive_nudges  how often in a row an answer without any tool call gets the reminder; 0 means never
    nudge_message       the reminder; a system message where the provider accepts one in mid-conversation, else a user message
    max_invocations     round trips to the model in the whole run, which then ends as CALL_LIMIT. The default of max_turns yields to it

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
            raise LimitError(f"TerminatingTools(nudge_message={self.nudge_message!r}): say in words what the model is to do.")

"""All that a run begins with, as one frozen value; and what the engine needs of an agent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from agentlab.engine.snapshot import Ending, Hold, Origin, RunPrefix

if TYPE_CHECKING:
    from agentlab.engine.client import Model
    from agentlab.events import Event, RunObserver
    from agentlab.settings import RunSettings
    from agentlab.terminating import TerminatingTools
    from agentlab.tools import Tool
    from agentlab.transport import Transport
    from agentlab.types import JSON, ModelRequest, ModelResponse, ToolCall, ToolResult, ToolSpec


NO_ORIGIN: Origin[Any] = Origin()
"""Of a run that came from no other."""


class AgentSpec(Protocol):
    """What the engine needs of an agent; `lab.Agent` has it all."""

    model: Model
    name: str
    instructions: str
    tools: Mapping[str, Tool]
    tool_specs: tuple[ToolSpec, ...]
    options: Mapping[str, JSON]
    stream: bool
    observers: tuple[RunObserver, ...]
    max_depth: int | None

    @property
    def middleware(self) -> Sequence[object]:
        """Functions around each model call."""
        ...

    @property
    def tool_middleware(self) -> Sequence[object]:
        """Functions around each tool call."""
        ...

    def with_model(self, model: Any) -> Any:
        """Return the same agent on another model."""
        ...

    def known_terminating(self, terminating: TerminatingTools | None) -> TerminatingTools | None:
        """Check that the agent has these tools."""
        ...

    def through_middleware(
        self, ask: Callable[[ModelRequest], Awaitable[ModelResponse]], blame: Callable[[str, Exception], None]
    ) -> Callable[[ModelRequest], Awaitable[ModelResponse]]:
        """Return `ask` with the middleware around it; `blame` is called with what raised an exception."""
        ...

    def through_tool_middleware(
        self, execute: Callable[[ToolCall], Awaitable[ToolResult]], blame: Callable[[str, Exception], None]
    ) -> Callable[[ToolCall], Awaitable[ToolResult]]:
        """Return `execute` with the middleware around it."""
        ...


@dataclass(frozen=True, slots=True)
class RunPlan:
    """All that a run begins with. A new run has an agent, a prompt, settings and a transport; a fork also has steps and an origin; a
    run from a store has its id, its events and perhaps its ending, too.

    `observers` get the events of the run, `inherited` those of the runs that come from it; None: the same.
    """

    agent: AgentSpec
    prefix: RunPrefix
    settings: RunSettings
    transport: Transport
    observers: Sequence[RunObserver] = ()
    inherited: Sequence[RunObserver] | None = None
    origin: Origin[Any] = NO_ORIGIN
    run_id: str | None = None
    events: Sequence[Event] = ()
    holds: tuple[Hold, ...] = ()
    again: Callable[[ToolCall], object] | None = None
    ending: Ending | None = None
    ended_at_s: float = 0.0

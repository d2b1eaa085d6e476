"""What a run begins with, as one frozen value, and the interfaces of agents and runs, which are above the engine."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from agentlab.engine.snapshot import Ending, Hold, Origin, RunPrefix

if TYPE_CHECKING:
    from typing import TypeAlias

    from agentlab.engine.branches import Branches
    from agentlab.engine.client import Model
    from agentlab.engine.control import Control
    from agentlab.engine.stepper import Stepper
    from agentlab.engine.timeline import Timeline
    from agentlab.engine.worker import Worker
    from agentlab.limits.live import LiveSettings
    from agentlab.limits.policies import TerminatingTools
    from agentlab.limits.settings import RunSettings
    from agentlab.model.messages import JSON, ModelRequest, ToolCall, ToolResult, ToolSpec
    from agentlab.model.responses import ModelResponse
    from agentlab.records.events import Event, RunObserver
    from agentlab.records.history import RunHistory
    from agentlab.records.result import RunResult
    from agentlab.tools import Tool
    from agentlab.transport import Transport

    Ask: TypeAlias = Callable[[ModelRequest], Awaitable[ModelResponse]]
    RunTool: TypeAlias = Callable[[ToolCall], Awaitable[ToolResult]]
    Blame: TypeAlias = Callable[[str, Exception], None]


NO_ORIGIN: Origin[Any] = Origin()
"""The origin of a run that is neither a fork nor a child."""


class AgentSpec(Protocol):
    """What the engine needs of an agent; documented in `lab.Agent`."""

    model: Model
    name: str
    instructions: str
    tools: Mapping[str, Tool]
    tool_specs: tuple[ToolSpec, ...]
    options: Mapping[str, JSON]
    stream: bool
    observers: tuple[RunObserver, ...]
    max_depth: int | None
    middleware: Any
    tool_middleware: Any

    def with_model(self, model: Any) -> Any:
        """Return the same agent on another model."""

    def known_terminating(self, terminating: TerminatingTools | None) -> TerminatingTools | None:
        """Check that the agent has these tools."""

    def through_middleware(self, ask: Ask, blame: Blame) -> Ask:
        """Return `ask` with the middleware around it; `blame` is called with the source of an exception."""
        ...

    def through_tool_middleware(self, execute: RunTool, blame: Blame) -> RunTool:
        """Return `execute` with the middleware around it."""
        ...


class RunLike(Protocol):
    """What the engine needs of a run; documented in `lab.Run`."""

    limits: LiveSettings
    timeline: Timeline
    control: Control
    stepper: Stepper
    worker: Worker[Any, Any]
    branches: Branches[Any]

    @property
    def id(self) -> str:
        """The id."""
        ...

    @property
    def agent(self) -> Any:
        """The agent."""
        ...

    @property
    def prompt(self) -> str:
        """The task."""
        ...

    @property
    def history(self) -> RunHistory:
        """The steps."""
        ...

    @property
    def events(self) -> Sequence[Event]:
        """The events so far."""
        ...

    @property
    def result(self) -> RunResult | None:
        """The result, None before the end."""
        ...

    @property
    def origin(self) -> Origin[Any]:
        """Where it came from."""
        ...


@dataclass(frozen=True, slots=True)
class RunPlan:
    """What a run begins with. A new run has an agent, a prompt, settings and a transport. A fork also has steps and an origin. A run
    from a store also has its id, its events, and its ending if it ended.

    `observers` receive the events of the run, `inherited` those of its forks and child runs; None means the same observers.
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

"""agentlab runs LLM agents one step at a time in a notebook.

    import agentlab as lab
    from agentlab import StepCountIs, HasToolCall, Budget

    agent = lab.Agent("anthropic:claude-sonnet-4-6", tools=[search, finalize])
    with lab.replay("fixtures/quickstart"):
        run = agent.run("Compare …", stop=HasToolCall("finalize") | StepCountIs(8), budget=Budget(max_cost=0.05))
    run.panel()

Every name below is imported when it is first used, so `import agentlab` is fast, prints nothing and writes no file.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    from agentlab import errors as errors
    from agentlab import events as events
    from agentlab import interop
    from agentlab import plots as plots
    from agentlab import providers as providers
    from agentlab import storage as storage
    from agentlab import termination as termination
    from agentlab import testing as testing
    from agentlab.agent import Agent as Agent
    from agentlab.budget import Budget as Budget
    from agentlab.comparing.agreements import Agreement as Agreement
    from agentlab.comparing.agreements import agreement as agreement
    from agentlab.comparing.compare import paired as paired
    from agentlab.comparing.compare import summary as summary
    from agentlab.continuation import ContinuationPolicy as ContinuationPolicy
    from agentlab.engine.client import RetryPolicy
    from agentlab.engine.lockstep import Lockstep
    from agentlab.engine.next_actions import NextAction as NextAction
    from agentlab.errors import AgentlabError as AgentlabError
    from agentlab.errors import AgentlabWarning as AgentlabWarning
    from agentlab.errors import StopRequested as StopRequested
    from agentlab.experiments.estimate import DryRun as DryRun
    from agentlab.experiments.experiment import Experiment as Experiment
    from agentlab.experiments.grid import Cell as Cell
    from agentlab.experiments.results import ExperimentResults as ExperimentResults
    from agentlab.history import RunHistory as RunHistory
    from agentlab.interop import otel_export
    from agentlab.interop.otel_export import Telemetry as Telemetry
    from agentlab.limits import limit_field as limit_field
    from agentlab.notebook.explorer.explorer import explore as explore
    from agentlab.notebook.panel import panel as panel
    from agentlab.providers import finish_detection
    from agentlab.providers.finish_detection import detect as detect
    from agentlab.providers.registry import Provider, capabilities
    from agentlab.recorder import termination_report as termination_report
    from agentlab.recorder import to_frame
    from agentlab.results import Action as Action
    from agentlab.results import Decision as Decision
    from agentlab.results import Reading as Reading
    from agentlab.results import RunResult as RunResult
    from agentlab.results import StepResult as StepResult
    from agentlab.run import Run as Run
    from agentlab.run import RunState as RunState
    from agentlab.serving.chat import Chat as Chat
    from agentlab.serving.chat import ChatReply as ChatReply
    from agentlab.settings import LiveSettings as LiveSettings
    from agentlab.settings import RunSettings as RunSettings
    from agentlab.stop import AllOf as AllOf
    from agentlab.stop import AnyOf as AnyOf
    from agentlab.stop import Custom as Custom
    from agentlab.stop import FinishReasonIs as FinishReasonIs
    from agentlab.stop import HasToolCall as HasToolCall
    from agentlab.stop import MaxCost as MaxCost
    from agentlab.stop import MaxTokensUsed as MaxTokensUsed
    from agentlab.stop import Not as Not
    from agentlab.stop import Off as Off
    from agentlab.stop import StepCountIs as StepCountIs
    from agentlab.stop import StopCondition as StopCondition
    from agentlab.storage.store import Store as Store
    from agentlab.terminating import TerminatingTools as TerminatingTools
    from agentlab.termination import DecisionContext as DecisionContext
    from agentlab.termination import decide as decide
    from agentlab.termination import is_stop_condition_met as is_stop_condition_met
    from agentlab.tools import Tool as Tool
    from agentlab.tools import tool as tool
    from agentlab.transport import record as record
    from agentlab.transport import replay as replay
    from agentlab.types import Confidence as Confidence
    from agentlab.types import FinishReason as FinishReason
    from agentlab.types import Message as Message
    from agentlab.types import Stop as Stop
    from agentlab.types import StopReason as StopReason
    from agentlab.types import TerminationSignal as TerminationSignal
    from agentlab.types import ToolCall as ToolCall
    from agentlab.types import ToolResult as ToolResult
    from agentlab.types import Usage as Usage
    from agentlab.whatif.backtest import backtest as backtest
    from agentlab.whatif.suggest import Suggestion as Suggestion
    from agentlab.whatif.suggest import Suggestions as Suggestions
    from agentlab.whatif.suggest import suggest as suggest

    frame = to_frame
    importers = interop
    telemetry = otel_export
    signals = finish_detection

_PLACES = {
    "agentlab.agent": ("Agent",),
    "agentlab.comparing.agreements": ("Agreement", "agreement"),
    "agentlab.whatif.backtest": ("backtest",),
    "agentlab.engine.client": ("RetryPolicy",),
    "agentlab.serving.chat": ("Chat", "ChatReply"),
    "agentlab.whatif.suggest": ("Suggestion", "Suggestions", "suggest"),
    "agentlab.comparing.compare": ("paired", "summary"),
    "agentlab.continuation": ("ContinuationPolicy",),
    "agentlab.errors": ("AgentlabError", "AgentlabWarning", "StopRequested"),
    "agentlab.experiments.estimate": ("DryRun",),
    "agentlab.experiments.experiment": ("Experiment",),
    "agentlab.experiments.results": ("ExperimentResults",),
    "agentlab.engine.next_actions": ("NextAction",),
    "agentlab.experiments.grid": ("Cell",),
    "agentlab.history": ("RunHistory",),
    "agentlab.limits": ("limit_field",),
    "agentlab.lockstep": ("Lockstep",),
    "agentlab.providers.registry": ("Provider", "capabilities"),
    "agentlab.engine.lockstep": ("Lockstep",),
    "agentlab.providers._registry": ("Provider", "capabilities"),
    "agentlab.recorder": ("termination_report",),
    "agentlab.results": ("Action", "Decision", "Reading", "RunResult", "StepResult"),
    "agentlab.run": ("Run", "RunState"),
    "agentlab.budget": ("Budget",),
    "agentlab.settings": ("LiveSettings", "RunSettings"),
    "agentlab.providers.finish_detection": ("detect",),
    "agentlab.stop": (
        "AllOf",
        "AnyOf",
        "Custom",
        "FinishReasonIs",
        "HasToolCall",
        "MaxCost",
        "MaxTokensUsed",
        "Not",
        "Off",
        "StepCountIs",
        "StopCondition",
    ),
    "agentlab.storage.store": ("Store",),
    "agentlab.interop.otel_export": ("Telemetry",),
    "agentlab.terminating": ("TerminatingTools",),
    "agentlab.termination": ("DecisionContext", "decide", "is_stop_condition_met"),
    "agentlab.tools": ("Tool", "tool"),
    "agentlab.transport": ("record", "replay"),
    "agentlab.types": (
        "Confidence",
        "FinishReason",
        "Message",
        "Stop",
        "StopReason",
        "TerminationSignal",
        "ToolCall",
        "ToolResult",
        "Usage",
    ),
    "agentlab.notebook.panel": ("panel",),
    "agentlab.notebook.explorer.explorer": ("explore",),
}
_PLACE_OF = {name: place for place, names in _PLACES.items() for name in names}
_RENAMED = {"frame": ("agentlab.recorder", "to_frame")}
_MODULES = {
    "errors": "agentlab.errors",
    "events": "agentlab.events",
    "importers": "agentlab.interop",
    "plots": "agentlab.plots",
    "providers": "agentlab.providers",
    "signals": "agentlab.signals",
    "storage": "agentlab.storage",
    "telemetry": "agentlab.interop.otel_export",
    "termination": "agentlab.termination",
    "testing": "agentlab.testing",
    **{name: f"agentlab.{name}" for name in ("errors", "events", "importers", "plots", "providers", "storage", "telemetry")},
    "signals": "agentlab.providers.finish_detection",
    **{name: f"agentlab.{name}" for name in ("termination", "testing")},
}

__all__ = sorted([*_PLACE_OF, *_RENAMED, *_MODULES])  # noqa: PLE0605  a sorted list is a list

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(_MODULES[name])
    place, inner = (_PLACE_OF[name], name) if name in _PLACE_OF else _RENAMED.get(name, ("", ""))
    if not place:
        raise import_module("agentlab.no_such_name").no_such_name("agentlab", name, __all__)
    value = getattr(import_module(place), inner)
    globals()[name] = value
    return value


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext agentlab`: the magic `%%agent`, completion of models by Tab, and tables in which `$` is a dollar sign."""
    import_module("agentlab.notebook.magics").load(shell)


def unload_ipython_extension(shell: Any) -> None:
    """`%unload_ext agentlab`: remove them again."""
    import_module("agentlab.notebook.magics").unload(shell)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]

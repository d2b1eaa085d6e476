"""agentlab runs LLM agents one step at a time in a notebook.

    import agentlab as lab
    from agentlab import StepCountIs, HasToolCall, Budget

    agent = lab.Agent("anthropic:claude-sonnet-4-6", tools=[search, finalize])
    with lab.replay("fixtures/quickstart"):
        run = agent.run("Compare …", stop=HasToolCall("finalize") | StepCountIs(8), budget=Budget(max_cost=0.05))
    run.panel()

Every name below is imported when it is first used, so that a script that only replays does not import the plots. `import agentlab`
prints nothing and writes no file.

    agent     `lab.Agent`: a model, its tools and default limits
    run       `lab.Run`: what a person does with a run
    tools     defines a tool, calls its function, and turns its exception into a result for the model
    subagent  an agent as a tool of another
    errors    every error and warning
"""

from __future__ import annotations

import pathlib
import warnings
from importlib import import_module
from typing import TYPE_CHECKING

from agentlab._internal.names import unknown_name_error

if TYPE_CHECKING:
    from typing import Any

    from agentlab import errors as errors
    from agentlab import interop as importers  # noqa: F401
    from agentlab import plots as plots
    from agentlab import providers as providers
    from agentlab import storage as storage
    from agentlab import testing as testing
    from agentlab import tools as tools
    from agentlab.agent import Agent as Agent
    from agentlab.agent import Run as Run
    from agentlab.analysis.agreement import Agreement as Agreement
    from agentlab.analysis.agreement import agreement as agreement
    from agentlab.analysis.backtest import backtest as backtest
    from agentlab.analysis.compare import paired as paired
    from agentlab.analysis.compare import summary as summary
    from agentlab.analysis.diff import RunDiff as RunDiff
    from agentlab.analysis.diff import diff as diff
    from agentlab.analysis.origins import provenance as provenance
    from agentlab.analysis.passes import pass_at_k as pass_at_k
    from agentlab.analysis.power import Power as Power
    from agentlab.analysis.power import power as power
    from agentlab.analysis.raters import raters as raters
    from agentlab.analysis.reprice import reprice as reprice
    from agentlab.analysis.suggest import suggest as suggest
    from agentlab.analysis.suggestion import Suggestion as Suggestion
    from agentlab.analysis.suggestion import Suggestions as Suggestions
    from agentlab.engine import termination as termination
    from agentlab.engine.client import RetryPolicy as RetryPolicy
    from agentlab.engine.control import Approval as Approval
    from agentlab.engine.control import PendingCall as PendingCall
    from agentlab.engine.lockstep import Lockstep as Lockstep
    from agentlab.engine.next_actions import NextAction as NextAction
    from agentlab.engine.termination import DecisionContext as DecisionContext
    from agentlab.engine.termination import decide as decide
    from agentlab.engine.termination import is_stop_condition_met as is_stop_condition_met
    from agentlab.engine.worker import RunState as RunState
    from agentlab.errors import AgentlabError as AgentlabError
    from agentlab.errors import AgentlabWarning as AgentlabWarning
    from agentlab.errors import StopRequested as StopRequested
    from agentlab.experiments import scorers as scorers
    from agentlab.experiments.experiment import Experiment as Experiment
    from agentlab.experiments.grid import Cell as Cell
    from agentlab.experiments.results import ExperimentResults as ExperimentResults
    from agentlab.experiments.shared_budget import DryRun as DryRun
    from agentlab.experiments.tasks import Task as Task
    from agentlab.experiments.tasks import Tasks as Tasks
    from agentlab.experiments.tune import tune as tune
    from agentlab.experiments.tuning import Tuning as Tuning
    from agentlab.experiments.verify import Verification as Verification
    from agentlab.experiments.verify import verify as verify
    from agentlab.interop import otel_export as telemetry  # noqa: F401
    from agentlab.interop.otel_export import Telemetry as Telemetry
    from agentlab.limits.budget import Budget as Budget
    from agentlab.limits.combinators import AllOf as AllOf
    from agentlab.limits.combinators import AnyOf as AnyOf
    from agentlab.limits.combinators import Custom as Custom
    from agentlab.limits.combinators import Not as Not
    from agentlab.limits.combinators import Off as Off
    from agentlab.limits.combinators import StopCondition as StopCondition
    from agentlab.limits.conditions import FinishReasonIs as FinishReasonIs
    from agentlab.limits.conditions import HasToolCall as HasToolCall
    from agentlab.limits.conditions import MaxCost as MaxCost
    from agentlab.limits.conditions import MaxOutputTokens as MaxOutputTokens
    from agentlab.limits.conditions import MaxTokensUsed as MaxTokensUsed
    from agentlab.limits.conditions import MaxToolCalls as MaxToolCalls
    from agentlab.limits.conditions import Repeats as Repeats
    from agentlab.limits.conditions import StepCountIs as StepCountIs
    from agentlab.limits.fields import limit_field as limit_field
    from agentlab.limits.live import LiveSettings as LiveSettings
    from agentlab.limits.policies import ContinuationPolicy as ContinuationPolicy
    from agentlab.limits.policies import TerminatingTools as TerminatingTools
    from agentlab.limits.reading import Action as Action
    from agentlab.limits.reading import Decision as Decision
    from agentlab.limits.reading import Reading as Reading
    from agentlab.limits.settings import RunSettings as RunSettings
    from agentlab.model.finish_reasons import Confidence as Confidence
    from agentlab.model.finish_reasons import FinishReason as FinishReason
    from agentlab.model.finish_reasons import StopReason as StopReason
    from agentlab.model.finish_reasons import TerminationSignal as TerminationSignal
    from agentlab.model.messages import Message as Message
    from agentlab.model.messages import Stop as Stop
    from agentlab.model.messages import ToolCall as ToolCall
    from agentlab.model.messages import ToolResult as ToolResult
    from agentlab.model.parts import Audio as Audio
    from agentlab.model.parts import Document as Document
    from agentlab.model.parts import Image as Image
    from agentlab.model.usage import Usage as Usage
    from agentlab.notebook.browse import browse as browse
    from agentlab.notebook.explorer.explorer import explore as explore
    from agentlab.notebook.label import label as label
    from agentlab.notebook.panel import panel as panel
    from agentlab.providers import finish_detection as signals  # noqa: F401
    from agentlab.providers.finish_detection import detect as detect
    from agentlab.providers.registry import Provider as Provider
    from agentlab.providers.registry import capabilities as capabilities
    from agentlab.records import events as events
    from agentlab.records.frames import termination_report as termination_report
    from agentlab.records.frames import to_frame
    from agentlab.records.history import RunHistory as RunHistory
    from agentlab.records.provenance import Provenance as Provenance
    from agentlab.records.result import RunResult as RunResult
    from agentlab.records.step import StepResult as StepResult
    from agentlab.serving.chat import Chat as Chat
    from agentlab.serving.chat import ChatReply as ChatReply
    from agentlab.storage.store import Store as Store
    from agentlab.tools import Tool as Tool
    from agentlab.tools import tool as tool
    from agentlab.transport import record as record
    from agentlab.transport.samples import samples as samples
    from agentlab.transport.selection import replay as replay

    frame = to_frame

_NAMES = {
    "agent": "Agent Run",
    "analysis.agreement": "Agreement agreement",
    "analysis.backtest": "backtest",
    "analysis.compare": "paired summary",
    "analysis.diff": "RunDiff diff",
    "analysis.origins": "provenance",
    "analysis.passes": "pass_at_k",
    "analysis.power": "Power power",
    "analysis.raters": "raters",
    "analysis.reprice": "reprice",
    "analysis.suggest": "suggest",
    "analysis.suggestion": "Suggestion Suggestions",
    "engine.client": "RetryPolicy",
    "engine.control": "Approval PendingCall",
    "engine.lockstep": "Lockstep",
    "engine.next_actions": "NextAction",
    "engine.termination": "DecisionContext decide is_stop_condition_met",
    "engine.worker": "RunState",
    "errors": "AgentlabError AgentlabWarning StopRequested",
    "experiments.shared_budget": "DryRun",
    "experiments.experiment": "Experiment",
    "experiments.grid": "Cell",
    "experiments.results": "ExperimentResults",
    "experiments.tasks": "Task Tasks",
    "experiments.verify": "Verification verify",
    "experiments.tune": "tune",
    "experiments.tuning": "Tuning",
    "interop.otel_export": "Telemetry",
    "limits.budget": "Budget",
    "limits.combinators": "AllOf AnyOf Custom Not Off StopCondition",
    "limits.conditions": "FinishReasonIs HasToolCall MaxCost MaxOutputTokens MaxTokensUsed MaxToolCalls Repeats StepCountIs",
    "limits.fields": "limit_field",
    "limits.live": "LiveSettings",
    "limits.policies": "ContinuationPolicy TerminatingTools",
    "limits.reading": "Action Decision Reading",
    "limits.settings": "RunSettings",
    "model.finish_reasons": "Confidence FinishReason StopReason TerminationSignal",
    "model.messages": "Message Stop ToolCall ToolResult",
    "model.parts": "Audio Document Image",
    "model.usage": "Usage",
    "notebook.browse": "browse",
    "notebook.explorer.explorer": "explore",
    "notebook.label": "label",
    "notebook.panel": "panel",
    "providers.finish_detection": "detect",
    "providers.registry": "Provider capabilities",
    "records.frames": "termination_report",
    "records.history": "RunHistory",
    "records.provenance": "Provenance",
    "records.result": "RunResult",
    "records.step": "StepResult",
    "serving.chat": "Chat ChatReply",
    "storage.store": "Store",
    "tools": "Tool tool",
    "transport": "record",
    "transport.samples": "samples",
    "transport.selection": "replay",
}
"""The public names by the module that defines them."""

_PLACES = {name: f"{module}:{name}" for module, names in _NAMES.items() for name in names.split()} | {
    "errors": "errors",
    "events": "records.events",
    "frame": "records.frames:to_frame",
    "importers": "interop",
    "plots": "plots",
    "providers": "providers",
    "scorers": "experiments.scorers",
    "signals": "providers.finish_detection",
    "storage": "storage",
    "telemetry": "interop.otel_export",
    "termination": "engine.termination",
    "testing": "testing",
    "tools": "tools",
}

__all__ = sorted(_PLACES)  # noqa: PLE0605  a sorted list is a list

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise unknown_name_error("agentlab", name, __all__)
    place, _, inner = _PLACES[name].partition(":")
    module = import_module(f"agentlab.{place}")
    value = globals()[name] = getattr(module, inner) if inner else module
    return value


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext agentlab`: add the magic `%%agent`, Tab completion of models, and tables that show `$` as a dollar sign."""
    import_module("agentlab.notebook.magics").load(shell)


def unload_ipython_extension(shell: Any) -> None:
    """`%unload_ext agentlab`: remove the additions of `load_ipython_extension`."""
    import_module("agentlab.notebook.magics").unload(shell)


def _warn_of_namesake(folder: pathlib.Path) -> None:
    """Warn if this folder of packages also has the distribution `agentlab`, whose files have the same names as some of these."""
    if any(folder.glob("agentlab-*.dist-info")):
        warnings.warn(
            "The package `agentlab`, another project, is installed in the same environment and has the same import name, so files of "
            "both are mixed: pip uninstall agentlab, then pip install --force-reinstall --no-deps agentlab-jupyter.",
            stacklevel=3,
        )


_warn_of_namesake(pathlib.Path(__file__).parents[1])


def __dir__() -> list[str]:
    return [*__all__, "__version__"]

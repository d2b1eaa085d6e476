"""Cards of what runs, of what it left, and of where it is kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from agentlab.cards.card import Card, Table, ends_of
from agentlab.cards.of_values import NO_LIMIT, fields_of

if TYPE_CHECKING:
    from agentlab.agent import Agent
    from agentlab.engine.lockstep import Lockstep
    from agentlab.experiments.estimate import DryRun
    from agentlab.experiments.experiment import Experiment
    from agentlab.experiments.results import ExperimentResults
    from agentlab.history import RunHistory
    from agentlab.results import StepResult
    from agentlab.run import Run
    from agentlab.serving.chat import Chat, ChatReply
    from agentlab.storage.store import Store
    from agentlab.telemetry import Telemetry
    from agentlab.termination import DecisionContext

_STEP_HEADS = ("step", "finish reason", "tools", "tokens", "cost, USD", "stop reason")


def agent(value: Agent) -> Card:
    """What it is made of."""
    kept = value.settings
    rows: list[tuple[str, object]] = [
        ("model", f"{value.model.name}:{value.model.model}"),
        ("tools", ", ".join(value.tools) or "none"),
        ("instructions", value.instructions or "none"),
        ("budget", kept.budget),
        ("stop", "none" if kept.stop is None else kept.stop),
    ]
    if kept.terminating is not None:
        rows.append(("terminating", kept.terminating))
    if value.options:
        rows.append(("options", ", ".join(value.options)))
    return Card(f"Agent {value.name}", (*rows, ("stream", value.stream)))


def run(value: Run) -> Card:
    """How it stands, and its steps."""
    end = [] if value.result is None else [("ended", f"{value.result.stop_reason}: {value.result.detail}")]
    now = value.limits.snapshot()
    rows: list[tuple[str, object]] = [
        ("agent", value.agent.name),
        ("prompt", value.prompt),
        ("state", value.state),
        *end,
        *_totals(value.history),
        ("budget", now.budget),
        ("stop", "none" if now.stop is None else now.stop),
    ]
    note = "" if value.result is not None else "`run.panel()` shows it live; `await run` takes it to its end."
    return Card("Run", tuple(rows), _steps(value.history), note)


def history(value: RunHistory) -> Card:
    """The totals, and the steps."""
    return Card("RunHistory", tuple(_totals(value)), _steps(value))


def _totals(of: RunHistory) -> list[tuple[str, object]]:
    return [("steps", len(of)), ("calls", of.calls), ("tokens", of.tokens), ("cost, USD", of.cost_usd)]


def _steps(of: Sequence[StepResult]) -> Table | None:
    few, count = ends_of(of)
    rows = tuple(
        (
            one.index,
            "no answer" if one.finish_reason is None else one.finish_reason,
            ", ".join(call.name for call in one.tool_calls[:20]),
            one.usage.total_tokens,
            one.cost.usd,
            "" if one.stop_reason is None else one.stop_reason,
        )
        for one in few
    )
    return Table(_STEP_HEADS, rows, count) if rows else None


def step(value: StepResult) -> Card:
    """What it did, and what it took."""
    called, count = ends_of(value.tool_calls)
    rows: list[tuple[str, object]] = [("text", value.text)] if value.text else []
    rows += [(f"calls {call.name}", call.arguments) for call in called]
    rows += [("more calls", count - len(called))] if count > len(called) else []
    rows += [("finish reason", "no answer" if value.finish_reason is None else value.finish_reason)]
    rows += [("decision", f"{value.decision.action}: {value.decision.reason}")]
    rows += [("calls of the model", len(value.calls)), ("tokens", value.usage.total_tokens), ("cost, USD", value.cost.usd)]
    rows += [] if value.readings is None else [("conditions", f"{value.readings}")]
    rows += [] if value.error is None else [("error", f"{type(value.error).__name__}: {value.error}")]
    rows += [] if value.stop_reason is None else [("stop reason", value.stop_reason)]
    return Card(f"Step {value.index}", tuple(rows))


def lockstep(value: Lockstep) -> Card:
    """A row a run."""
    few, count = ends_of(value.runs)
    rows = tuple((one.agent.name, one.state, len(one.history), one.history.tokens, one.history.cost_usd) for one in few)
    table = Table(("agent", "state", "steps", "tokens", "cost, USD"), rows, count)
    return Card("Lockstep", (("state", value.state), ("rounds", value.round)), table)


def store(value: Store) -> Card:
    """Where it is; nothing is read for it."""
    behind = [("not yet written", len(value.unsaved))] if value.unsaved else []
    note = "`.frame()` lists the runs; `.load(run_id, agent)` has one back."
    return Card("Store", (("place", getattr(value.storage, "path", type(value.storage).__name__)), *behind), note=note)


def experiment(value: Experiment) -> Card:
    """The sizes of its parts, and their names."""
    grid = value.grid
    named = (("agents", grid.agents), ("prompts", grid.prompts), ("settings", grid.settings))
    rows = tuple((name, f"{len(parts):,}: {', '.join(ends_of(list(parts))[0])}") for name, parts in named)
    return Card(f"Experiment {grid.name}", (*rows, ("runs", len(grid.cells)), ("store", value.store)))


def results(value: ExperimentResults) -> Card:
    """How many runs stand how."""
    few, count = ends_of(list(value.problems.items()))
    table = Table(("run", "problem"), tuple(few), count) if few else None
    note = "`.runs` and `.steps` are tables of them, `.summary()` compares them, `.plot()` draws it."
    return Card(f"Results of {value.grid.name}", (("runs", len(value)), *value.states.items()), table, note)


def dry_run(value: DryRun) -> Card:
    """What is to be done at most; what nothing bounds says so."""
    bounds = ("call_limit", "token_limit", "cost_limit_usd")
    rows = [(name, NO_LIMIT if name in bounds and getattr(value, name) is None else held) for name, held in fields_of(value).rows]
    return Card("DryRun", tuple(rows), note=f"{value}")


def chat(value: Chat) -> Card:
    """Who answers, and where contexts are kept."""
    return Card("Chat", (("agent", value.agent.name), ("contexts", value.contexts.path)))


def reply(value: ChatReply) -> Card:
    """What was answered."""
    end = "the agent was not run" if value.stop_reason is None else f"{value.stop_reason}: {value.detail}"
    notice = [("notice", value.notice)] if value.notice else []
    rows = (
        ("response", value.response),
        *notice,
        ("ended", end),
        ("messages of the assistant saved", value.saved_ai_messages),
    )
    return Card("ChatReply", (*rows, ("messages of this request", len(value.messages))))


def telemetry(value: Telemetry) -> Card:
    """Whether texts go along."""
    return Card("Telemetry", (("texts of messages in the spans", bool(value.content)),))


def context(value: DecisionContext) -> Card:
    """The figures; what is large is named."""
    given = {name: held is not None for name, held in (("response", value.response), ("history", value.history))}
    rows = (
        ("turn", value.turn),
        ("call", value.call),
        ("requested cap, tokens", "none" if value.requested_cap is None else value.requested_cap),
    )
    return Card("DecisionContext", (*rows, ("settings", "none" if value.settings is None else value.settings), *given.items()))


CARDS: Mapping[str, Callable[[Any], Card]] = {
    "Agent": agent,
    "Chat": chat,
    "ChatReply": reply,
    "DecisionContext": context,
    "DryRun": dry_run,
    "Experiment": experiment,
    "ExperimentResults": results,
    "Lockstep": lockstep,
    "Run": run,
    "RunHistory": history,
    "StepResult": step,
    "Store": store,
    "Telemetry": telemetry,
}

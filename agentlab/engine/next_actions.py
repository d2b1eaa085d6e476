"""What can be done after a run has ended: `run.next_actions` lists the actions, `run.apply()` makes a branch that carries one out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, replace
from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias

from agentlab._internal.display import Displayable
from agentlab._internal.redaction import redacted_repr
from agentlab._internal.values import dataclass
from agentlab.engine.branches import RunLike
from agentlab.engine.control import PendingCall
from agentlab.engine.limit_increases import LimitIncrease, conditions_off, raised_conditions, raised_limits, twice
from agentlab.engine.plan import SuspendedStep
from agentlab.errors import ConfigurationError, MissingUsageError
from agentlab.limits.combinators import StopCondition
from agentlab.limits.condition_tree import describe
from agentlab.limits.live import LiveSettings
from agentlab.limits.reading import Action, Decision
from agentlab.limits.settings import RunSettings
from agentlab.model.finish_reasons import StopReason
from agentlab.records import events
from agentlab.records.result import MODIFY_PROMPT, RETRY, STOP, RunResult, advice_for
from agentlab.records.step import StepResult

Kind: TypeAlias = Literal["retry", "modify_prompt", "increase_budget", "continue"]

_EDITED_SINCE = ("The limits have been raised since", "The stop condition has been changed since")


@redacted_repr
@dataclass(frozen=True, slots=True)
class NextAction(Displayable):
    """An action after the end of a run: a branch from step `at` on, with some settings changed.

    `label` is the text of its button, `why` explains it in one sentence, which may quote a provider. `edits` are fields for
    `LiveSettings.edit` of the branch, `conditions` are fields of single conditions for `edit_condition`, and `off` has the conditions
    to turn off. `needs_prompt` is True if a person has to write another prompt.

    Example:
        >>> run = endless.run("?", stop=lab.StepCountIs(2))
        >>> result = await run
        >>> run.next_actions[0].label
        'Raise StepCountIs to 4 and continue'
        >>> (await run.apply(run.next_actions[0])).stop_reason
        <StopReason.STOP_CONDITION: 'stop_condition'>
    """

    kind: Kind
    label: str
    why: str
    at: int
    edits: Mapping[str, Any] = field(default_factory=dict)
    conditions: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    off: tuple[str, ...] = ()
    needs_prompt: bool = False


def next_actions(run: RunLike) -> tuple[NextAction, ...]:
    """Return the actions after the end of the run, the best first; empty before the end, and if there is nothing to do."""
    return () if run.result is None else tuple(_ACTIONS_BY_STOP_REASON[run.result.stop_reason](run, run.result))


def nothing_to_do(run: RunLike) -> str:
    """Return why there is no next action, in a sentence; "" if there is one."""
    result = run.result
    if result is None:
        return "The run has not ended yet."
    if next_actions(run):
        return ""
    if result.terminated:
        last = run.history.last
        known = last is None or last.decision.metadata.get("end") != "unknown"
        end = "The agent finished on its own" if known else result.detail.rstrip(".")
        return f"{end}: add a message with run.fork(at=…, message=…), or start another run with agent.run(…)."
    if result.stop_reason is StopReason.ERROR and _advice(run) == STOP:
        return (
            "A retry does not help: fix the key, the account, the address or the code. "
            f"Then run.fork(at={_usable_steps(run)}) repeats the step."
        )
    return f"Fix the reason of the end ({result.detail.rstrip('.')}), then fork the run: run.fork(at={_usable_steps(run)}, …)."


def chosen(run: RunLike, action: NextAction | None, prompt: object) -> NextAction:
    """Return the action to apply. Raises ConfigurationError if there is none, or if a prompt is missing."""
    if action is None:
        actions = next_actions(run)
        if not actions:
            raise ConfigurationError(f"apply(): there is no next action. {nothing_to_do(run)}")
        action = actions[0] if prompt is None else next((one for one in actions if one.needs_prompt), actions[0])
    if not isinstance(action, NextAction):
        raise ConfigurationError(f"apply({action!r}): pass one of run.next_actions, or nothing for the first one.")
    if action.needs_prompt and prompt is None:
        raise ConfigurationError(f"apply(): {action.label!r} needs another prompt: pass prompt=…")
    return action


def edited_since(run: RunLike) -> bool:
    """Return whether what ended the run has been raised or changed since."""
    return any(action.why.startswith(_EDITED_SINCE) for action in next_actions(run))


def settings_for(run: RunLike, action: NextAction) -> RunSettings:
    """Return the current settings of the run, with the changes of the action."""
    live = LiveSettings(run.limits.snapshot())
    live.edit(**action.edits)
    for name, fields in action.conditions.items():
        live.edit_condition(name, **fields)
    for name in action.off:
        live.toggle_condition(name, on=False)
    return live.snapshot()


# For each end ---------------------------------------------------------------------------------------------------------------


def _nothing(run: RunLike, result: RunResult) -> Iterator[NextAction]:
    yield from ()


def _after_a_limit(run: RunLike, result: RunResult) -> Iterator[NextAction]:
    at = _usable_steps(run)
    increase = raised_limits(run.limits.snapshot(), run.history, run.timeline.clock.elapsed_s())
    if increase:
        cause = "The limit ended the run, not the agent"
    elif run.origin.caller is None:
        cause = _EDITED_SINCE[0]
    else:
        cause = "The limit was its caller's, which does not apply to a branch, or has been raised since"
    then = "continues from the last step, with all steps kept"
    if waits := step_that_waited(run, at):
        then = f"waits for the decision on the call of {waits.asked[0].tool}, without another call of the model"
    yield _continue("increase_budget", increase, f"{cause}: the branch {then}.", at)


def _after_a_condition(run: RunLike, result: RunResult) -> Iterator[NextAction]:
    """A condition that is a goal completes the run; any other is a limit, like those of the budget."""
    last = run.history.last
    if result.terminated or last is None or last.readings is None:
        return
    settings, at = run.limits.snapshot(), len(run.history)
    increase = raised_limits(settings, run.history)
    if settings.stop is None or settings.stop != last.settings.stop:
        yield _continue("continue", increase, f"{_EDITED_SINCE[1]}.", at)
        return
    if raised := raised_conditions(settings.stop, last.readings, run.history):
        why = f"{result.detail.rstrip('.')}: with a higher limit the agent can continue."
        yield _continue("increase_budget", raised.and_also(increase), why, at)
    if off := conditions_off(settings.stop, last.readings):
        why = "A condition that is turned off keeps its values but no longer counts; the other limits still apply."
        yield _continue("continue", off.and_also(increase), why, at)


def _after_a_cut(run: RunLike, result: RunResult) -> Iterator[NextAction]:
    """Repeat the step with a larger output cap."""
    last, at = run.history[-1], len(run.history) - 1
    if last.decision.suggestion == MODIFY_PROMPT:
        yield _edit_prompt("The conversation does not fit into the model's window: a shorter prompt leaves room for the answer.")
        return
    settings, raised = run.limits.snapshot(), LimitIncrease()
    capped_by = last.decision.metadata.get("capped_by")
    if isinstance(capped_by, str) and (now := getattr(settings.continuation, capped_by)) is not None:
        raised = raised.with_field(capped_by, twice(now) or 1)
    cap = last.decision.metadata.get("max_tokens_per_turn")
    if isinstance(cap, int) and capped_by != "max_total_output_chars_per_turn":
        budget, before = settings.budget, run.history.prefix(at)
        raised = raised.with_field("max_tokens_per_turn", max(cap, budget.max_tokens_per_turn or 0))
        if budget.max_tokens is not None and budget.max_tokens - before.known_tokens < cap:  # the rest of max_tokens is a cap too
            raised = raised.with_field("max_tokens", max(twice(budget.max_tokens), before.known_tokens + twice(cap)))
    if raised:
        raised = raised.and_also(raised_limits(settings, run.history.prefix(at)))
        label = f"Raise {raised.words} and repeat step {at + 1}"
        yield NextAction("increase_budget", label, "The answer was cut off before its end.", at, raised.edits)
    else:
        yield _continue(
            "continue", LimitIncrease(), "The answer is incomplete; the model is asked for the rest.", len(run.history)
        )


def _after_a_filter(run: RunLike, result: RunResult) -> Iterator[NextAction]:
    yield _edit_prompt("A content filter withheld the prompt or the answer; another wording may be accepted.")


def _after_nudges(run: RunLike, result: RunResult) -> Iterator[NextAction]:
    yield _edit_prompt("The model does not call a terminating tool: explain in the prompt when to call it.")
    terminating = run.limits.snapshot().terminating
    if terminating is not None:
        raised = LimitIncrease().with_field("consecutive_nudges", twice(terminating.consecutive_nudges) or 1)
        at = len(run.history) - 1
        label, why = f"Raise {raised.words} and repeat step {at + 1}", "The model may call one after a further reminder."
        yield NextAction("increase_budget", label, why, at, raised.edits)


def _after_invalid_output(run: RunLike, result: RunResult) -> Iterator[NextAction]:
    yield _edit_prompt(f"The answers did not fit the type of the output: {result.detail}")
    at = len(run.history) - 1
    yield _repeat("retry", LimitIncrease(), "The model may answer otherwise the next time.", at)


def _after_an_error(run: RunLike, result: RunResult) -> Iterator[NextAction]:
    at = _usable_steps(run)
    if _condition_failed(run.history.last):
        settings = run.limits.snapshot()
        names = [] if settings.stop is None else _functions(settings.stop)
        if names:
            off = LimitIncrease(off=tuple(names))
            yield _continue("continue", off, f"The stop condition raised {type(result.error).__name__}.", at)
        return
    if isinstance(result.error, MissingUsageError):
        label, why = f"Only warn of missing usage and repeat step {at + 1}", "The provider does not report usage."
        yield NextAction("continue", label, why, at, {"missing_usage": "warn"})
        return
    advice = _advice(run)
    if advice == RETRY:
        increase = raised_limits(run.limits.snapshot(), run.history.prefix(at))
        yield _repeat("retry", increase, "The error may be temporary. The steps before it are kept.", at)
    elif advice == MODIFY_PROMPT:
        yield _edit_prompt(f"The provider rejects this prompt: {result.detail}")


def _after_a_stop(run: RunLike, result: RunResult) -> Iterator[NextAction]:
    last = run.history.last
    if result.stopped_by != "person" or (last is not None and last.decision.stop_reason is StopReason.COMPLETED):
        return
    yield from _resume(run, "A person stopped the run; the branch continues from there.")


def _after_a_cancel(run: RunLike, result: RunResult) -> Iterator[NextAction]:
    yield from _resume(run, "The run was cancelled; its complete steps are kept.")


def _after_waiting(run: RunLike, result: RunResult) -> Iterator[NextAction]:
    yield from _resume(run, "The run ended while it waited for approval; its complete steps are kept.")


def _resume(run: RunLike, why: str) -> Iterator[NextAction]:
    at = _usable_steps(run)
    increase = raised_limits(run.limits.snapshot(), run.history.prefix(at))
    yield _repeat("retry", increase, why, at) if at < len(run.history) else _continue("continue", increase, why, at)


_ACTIONS_BY_STOP_REASON: Mapping[StopReason, Callable[[RunLike, RunResult], Iterator[NextAction]]] = {
    StopReason.COMPLETED: _nothing,
    StopReason.TERMINATING_TOOL: _nothing,
    StopReason.EXPLICIT_STOP: _after_a_stop,
    StopReason.STOP_CONDITION: _after_a_condition,
    StopReason.TURN_LIMIT: _after_a_limit,
    StopReason.CALL_LIMIT: _after_a_limit,
    StopReason.TOKEN_BUDGET: _after_a_limit,
    StopReason.COST_BUDGET: _after_a_limit,
    StopReason.TIMEOUT: _after_a_limit,
    StopReason.TRUNCATED: _after_a_cut,
    StopReason.CONTENT_FILTERED: _after_a_filter,
    StopReason.NUDGES_EXHAUSTED: _after_nudges,
    StopReason.INVALID_OUTPUT: _after_invalid_output,
    StopReason.AWAITING_APPROVAL: _after_waiting,
    StopReason.CANCELLED: _after_a_cancel,
    StopReason.ERROR: _after_an_error,
}


# Helpers ----------------------------------------------------------------------------------------------------------


def _continue(kind: Kind, raised: LimitIncrease, why: str, at: int) -> NextAction:
    label = f"{raised.sentence} and continue" if raised else f"Continue from step {at}" if at else "Continue"
    return NextAction(kind, label, why, at, raised.edits, raised.conditions, raised.off)


def _repeat(kind: Kind, raised: LimitIncrease, why: str, at: int) -> NextAction:
    label = f"{raised.sentence} and repeat step {at + 1}" if raised else f"Repeat step {at + 1}"
    return NextAction(kind, label, why, at, raised.edits, raised.conditions, raised.off)


def _edit_prompt(why: str) -> NextAction:
    return NextAction("modify_prompt", "Edit the prompt and start again", why, 0, needs_prompt=True)


def step_that_waited(run: RunLike, at: int) -> SuspendedStep | None:
    """Return step `at` as it was when the timeout ended it while a call waited for approval; None if it did not end so.

    Calls that were decided and not executed wait again.
    """
    step = run.history[at - 1] if at else None
    if step is None or step.decision.stop_reason is not StopReason.TIMEOUT:
        return None
    done, now = {result.call_id for result in step.tool_results}, datetime.now(UTC)
    asked = {
        event.tool_call.id: PendingCall(
            event.tool_call.id, event.tool_call.name, event.tool_call.arguments, at, event.why, now, run.id
        )
        for event in run.events
        if isinstance(event, events.ApprovalRequested) and event.step == at and event.tool_call.id not in done
    }
    if not asked:
        return None
    first = next(call.id for call in step.tool_calls if call.id not in done)
    step = replace(step, decision=Decision(Action.EXECUTE_TOOLS, "The model asked for tools."), stop_reason=None)
    return SuspendedStep(step, tuple(asked.values()), {}, first if first in asked else None)


def _usable_steps(run: RunLike) -> int:
    """Return the number of steps that a branch can keep: all, or all but the last."""
    last, steps = run.history.last, len(run.history)
    if last is None:
        return 0
    if _condition_failed(last):
        return steps - (last.decision.stop_reason is StopReason.COMPLETED)
    return steps - (last.last_answer or last.error is not None or last.decision.stop_reason in _UNUSABLE)


_UNUSABLE = (
    StopReason.ERROR, StopReason.CANCELLED, StopReason.CONTENT_FILTERED, StopReason.NUDGES_EXHAUSTED, StopReason.INVALID_OUTPUT,
    StopReason.AWAITING_APPROVAL,
)  # fmt: skip


def _condition_failed(step: StepResult | None) -> bool:
    """True if the step succeeded, but the stop condition raised an error."""
    return step is not None and step.stop_reason is StopReason.ERROR and step.decision.stop_reason is not StopReason.ERROR


def _functions(condition: StopCondition) -> list[str]:
    """Return the names of conditions that are a user's functions, which may raise."""
    counting = list(map(id, condition.leaves(that_count=True)))
    return [name for name, leaf in describe(condition).items() if leaf.may_wait and id(leaf) in counting]


def _advice(run: RunLike) -> str | None:
    """Return the suggestion for the error that ended the run."""
    last, result = run.history.last, run.result
    if last is not None and last.decision.stop_reason is StopReason.ERROR:
        return last.decision.suggestion or RETRY
    return None if result is None or result.error is None else advice_for(result.error)

"""What a run leaves behind: its result, with its steps (step_result.py) and events. Frozen; times are seconds, money is US dollars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agentlab import errors, sugar
from agentlab.printable import cut
from agentlab.redaction import holds_no_key, shown_without_keys
from agentlab.step_result import (
    Action,
    ChildUse,
    Decision,
    ModelCall,
    Reading,
    Remaining,
    Scalar,
    Seam,
    StepResult,
    cost_usd_of,
    tokens_of,
)
from agentlab.types import Cost, Message, StopReason, Usage

if TYPE_CHECKING:
    import pandas as pd

    from agentlab.events import Event
    from agentlab.history import RunHistory

__all__ = [
    "Action",
    "ChildUse",
    "Decision",
    "ModelCall",
    "Reading",
    "Remaining",
    "RunResult",
    "Scalar",
    "Seam",
    "StepResult",
    "cost_usd_of",
    "tokens_of",
]

_STOPPED: Mapping[StopReason, type[errors.RunStopped]] = {
    StopReason.TURN_LIMIT: errors.TurnLimitReached,
    StopReason.CALL_LIMIT: errors.CallLimitReached,
    StopReason.TOKEN_BUDGET: errors.TokenBudgetReached,
    StopReason.COST_BUDGET: errors.CostBudgetReached,
    StopReason.TIMEOUT: errors.TimeoutReached,
    StopReason.STOP_CONDITION: errors.ConditionReached,
    StopReason.EXPLICIT_STOP: errors.ExplicitlyStopped,
    StopReason.TRUNCATED: errors.ResponseTruncated,
    StopReason.CONTENT_FILTERED: errors.ResponseFiltered,
    StopReason.NUDGES_EXHAUSTED: errors.NudgesExhausted,
    StopReason.CANCELLED: errors.RunCancelled,
    StopReason.ERROR: errors.RunFailed,
}

_SHOWN, _LOOKED_THROUGH = 80, 5_000
"""Characters of the answer that the repr shows, and that it looks through for keys."""


@shown_without_keys
@dataclass(frozen=True, slots=True)
class RunResult:
    """Everything a run left behind: it always comes back, whatever ended the run.

    `detail` says in one sentence why the run stopped; `conditions_met` are the readings that decided, also where another reason won;
    `output` what a tool or a middleware gave with its stop, or what the tool of a met `HasToolCall` gave (None otherwise); `error` the
    exception behind StopReason.ERROR; `stopped_by` who stopped it explicitly: `tool`, `middleware` or `person`. Of a fork,
    `parent_run_id` is the run it came from and `forked_at` the number of steps it has from there. Of a sub-agent's run it is the run
    that called it. Of both, where a tool call started them, `parent_step` is the step and `called_by` the id of that call.

    Example:
        >>> result
        RunResult(stop_condition, terminated, 4 steps, 'Stop condition met: HasToolCall(finalize): 1 call.', text='Salzburg, ...')
        >>> result.stop_reason, result.terminated, result.usage.total_tokens
        (<StopReason.STOP_CONDITION: 'stop_condition'>, True, 3146)
        >>> result.output[:26]
        'Salzburg, by a wide margin'
    """

    run_id: str
    provider: str
    model: str
    prompt: str
    history: RunHistory
    messages: Sequence[Message]
    events: Sequence[Event]
    stop_reason: StopReason
    detail: str
    conditions_met: tuple[Reading, ...] = ()
    output: Any = None
    error: BaseException | None = None
    stopped_by: str = ""
    parent_run_id: str | None = None
    forked_at: int | None = None
    parent_step: int | None = None
    called_by: str | None = None

    @property
    def text(self) -> str:
        """The answer, however the run ended: `output` as text where something was handed in, else the model's last text.

        The text of an output is what the model was given of it: JSON, unless it is a text. After a cut it is the text that there is.

        Example:
            >>> (await brief.run("What is the capital of France?")).text
            'Paris.'
            >>> result.text == result.output, result.model_text
            (True, 'I left out the day for the way back. Let me ask again.')
        """
        return self.model_text if self.output is None else self._output_text()

    @property
    def model_text(self) -> str:
        """The last text that the model said in the run, also where a tool handed in the answer.

        Example:
            >>> result.model_text
            'I left out the day for the way back. Let me ask again.'
        """
        return next((step.text for step in reversed(self.history) if step.text), "")

    def _output_text(self) -> str:
        """The text of the tool's result that holds the output; a store keeps that text, and not every object."""
        output, last = self.output, self.history.last
        for one in () if last is None else reversed(last.tool_results):
            if one.value is output or (type(one.value) is type(output) is str and one.value == output):
                return one.content
        try:
            text: str = sugar.call("agentlab.tools:as_text", output)
        except Exception:  # no JSON, or whatever a lazy value raises while it is read
            text = sugar.call("agentlab.redaction:text_of", output)
        return text

    @property
    def steps(self) -> RunHistory:
        """The steps of the run: another name of `history`.

        Example:
            >>> [step.total_tokens for step in result.steps]
            [637, 747, 824, 938]
        """
        return self.history

    @property
    def stopped_by_condition(self) -> bool:
        """Whether a stop condition was met at the last step, whichever reason won.

        Example:
            >>> result.stopped_by_condition, result.conditions_met
            (True, (Reading(name='HasToolCall', value=1, limit='finalize', met=True, children=(), goal=True),))
        """
        return bool(self.conditions_met)

    @property
    def terminated(self) -> bool:
        """Whether the agent came to an end of its own: it completed, or called a tool that was to end the run.

        Example:
            >>> result.terminated
            True
            >>> (await endless.run("?", budget=lab.Budget(max_turns=2))).terminated
            False
        """
        if self.stop_reason is StopReason.STOP_CONDITION:
            return any(reading.goal for reading in self.conditions_met)
        if self.stop_reason is StopReason.EXPLICIT_STOP:
            return self.stopped_by == "tool"
        return self.stop_reason in (StopReason.COMPLETED, StopReason.TERMINATING_TOOL)

    @property
    def truncated(self) -> bool:
        """Whether something cut the agent off.

        Example:
            >>> (await endless.run("?", budget=lab.Budget(max_turns=2))).truncated
            True
        """
        return not self.terminated

    @property
    def usage(self) -> Usage:
        """Tokens of the whole run, sub-agents included; `history.own_usage` is without them.

        Example:
            >>> result.usage.input_tokens, result.usage.output_tokens
            (2737, 409)
        """
        return self.history.usage

    @property
    def cost(self) -> Cost:
        """Money of the whole run, sub-agents included; `history.own_cost` is without them.

        Example:
            >>> result.cost
            Cost(usd=Decimal('0.014346'), source=<CostSource.PRICED: 'priced'>, price_list='genai-prices ...')
        """
        return self.history.cost

    def raise_for_stop(self) -> RunResult:
        """Raise the RunStopped error of a run that something cut off; return the result of one that came to an end of its own.

        Example:
            >>> result.raise_for_stop() is result
            True
            >>> (await endless.run("?", budget=lab.Budget(max_turns=2))).raise_for_stop()
            Traceback (most recent call last):
                ...
            agentlab.errors.TurnLimitReached: Budget reached: max_turns 2 of 2.
        """
        if self.terminated:
            return self
        raise _STOPPED[self.stop_reason](self.detail, self) from self._cause()

    def _cause(self) -> BaseException | None:
        """The error that ended the run, unless it says a key: it is as one's own code raised it. The detail tells it without keys."""
        return self.error if self.error is None or holds_no_key(self.error) else None

    def to_frame(self, what: str = "steps") -> pd.DataFrame:
        """A DataFrame of this run: `steps` (a row a step), `calls`, `tools`, `events`, `readings` or `termination`.

        Example:
            >>> result.to_frame()[["step", "input_tokens", "output_tokens"]].tail(2)
               step  input_tokens  output_tokens
            2     3           753             71
            3     4           838            100
        """
        frame: pd.DataFrame = sugar.call("agentlab.recorder:to_frame", self, what)
        return frame

    def __repr__(self) -> str:
        end = "terminated" if self.terminated else "truncated"
        steps = len(self.history)
        answer = cut(" ".join(self.text[:_LOOKED_THROUGH].split()), _SHOWN)
        text = f", text={answer!r}" if answer else ""
        return f"RunResult({self.stop_reason}, {end}, {steps} step{'s' * (steps != 1)}, {self.detail!r}{text})"

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        bundle: dict[str, str] = sugar.call("agentlab.recorder:result_bundle", self)
        return bundle

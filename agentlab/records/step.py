"""One step of a run: its model calls, tool results, readings, decision, and the usage of sub-agents.

All values are frozen; times are seconds, money is US dollars.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from typing import Any, TypeVar

from agentlab._internal.display import Displayable
from agentlab._internal.formatting import exactly
from agentlab._internal.redaction import redact, redacted_repr
from agentlab._internal.values import dataclass
from agentlab.limits.reading import Decision, Reading, Remaining
from agentlab.limits.settings import RunSettings
from agentlab.model.finish_reasons import FinishReason, StopReason, TerminationSignal
from agentlab.model.messages import ToolCall, ToolResult
from agentlab.model.responses import Hole, ModelResponse, moved
from agentlab.model.usage import Cost, Usage

N = TypeVar("N", int, Decimal)


@dataclass(frozen=True, slots=True)
class ModelCall(Displayable):
    """One round trip to the model.

    `index` counts the run's calls from 1. `usage` counts against the budget; its `source` says whether the provider reported it.
    `started_s` is the time since the run's first step, `retries` the number of failed attempts before this answer. `used` is False if
    a middleware discarded the answer, or if it lost a piece and was requested again: it was paid for, but is not part of the step's
    text. `decision` is set if it led to another call in the same step; the decision after the last call is `StepResult.decision`.
    """

    index: int
    response: ModelResponse
    usage: Usage
    cost: Cost
    started_s: float
    duration_s: float
    requested_cap: int | None = None
    retries: int = 0
    used: bool = True
    decision: Decision | None = None


@redacted_repr
@dataclass(frozen=True, slots=True)
class Seam:
    """The place in the text of a step where the text of a further call begins.

    `call` is the `index` of that call and `place` the number of characters of the step's text before it. `dropped` is the text that
    was left out there: a repetition, or the trailing white space of a prefilled answer. Nothing is ever added.
    """

    call: int
    place: int
    dropped: str = ""

    def __str__(self) -> str:
        place = f"Call {self.call} continues at character {self.place:,}"
        if not self.dropped:
            return f"{place}."
        kind = f"{'blank' if self.dropped.isspace() else 'repeated'} character{'s' * (len(self.dropped) != 1)}"
        return redact(f"{place}: dropped {len(self.dropped):,} {kind}: {self.dropped!r}")


@redacted_repr
@dataclass(frozen=True, slots=True)
class ChildUse:
    """The usage of a sub-agent's run within one step of its caller, including its own sub-agents.

    `handle` is the name by which the model refers to it (`research-1`), `call_id` the tool call that started it, `tool` the name of
    that tool. If it continues an earlier run, only the new part counts. `known_*` are sums of the known parts, lower bounds.
    `stop_reason` is None if the run had not ended when the step was interrupted. `cut_off` is True if it belongs to an earlier attempt
    at the step, whose process died: the step was repeated, but the attempt was paid for.
    """

    run_id: str
    call_id: str
    tool: str
    handle: str
    stop_reason: StopReason | None
    steps: int
    calls: int
    usage: Usage
    cost: Cost
    known_tokens: int
    known_cost_usd: Decimal
    cut_off: bool = False


@redacted_repr
@dataclass(frozen=True, slots=True, repr=False)
class StepResult(Displayable):
    """One step of the run: the model's answer, from one or several calls, and the tools it called.

    `index` counts from 1. `usage` and `cost` are sums over `calls`; the usage of sub-agents is in `children`. `seams` are the places
    where the texts of several calls meet. `last_answer` is True if the model was asked for its final answer, without tools, since a
    limit was nearly used up (`Budget(last_answer=…)`). `settings` are the limits that applied to the step; `readings` is the reading of
    the stop condition after it (None without a condition). `stop_reason` is set on the run's last step, `error` if an exception ended
    the step.

    Example:
        >>> result.history[0]
        StepResult(1, tool_calls, tools=['get_weather', 'get_weather'], tokens=637, cost_usd=0.003207)
        >>> result.history[0].tool_results[0].content
        '{"city":"Graz","sky":"rain","high_c":17}'
    """

    index: int
    calls: tuple[ModelCall, ...]
    tool_results: tuple[ToolResult, ...]
    usage: Usage
    cost: Cost
    decision: Decision
    settings: RunSettings
    remaining: Remaining
    readings: Reading | None
    started_s: float
    duration_s: float
    stop_reason: StopReason | None = None
    error: BaseException | None = None
    answer: ModelResponse | None = None
    children: tuple[ChildUse, ...] = ()
    seams: tuple[Seam, ...] = ()
    last_answer: bool = False

    def __repr__(self) -> str:
        parts = [f"StepResult({self.index}", str(self.finish_reason or "no answer")]
        if self.tool_calls:
            parts.append(f"tools={[call.name for call in self.tool_calls]}")
        if self.holes:
            parts.append(f"holes={len(self.holes)}")
        tokens = "unknown" if self.usage.total_tokens is None else self.usage.total_tokens
        parts += [f"tokens={tokens}", f"cost_usd={'unknown' if self.cost.usd is None else exactly(self.cost.usd)}"]
        if self.stop_reason is not None:
            parts.append(f"stop_reason={self.stop_reason}")
        return ", ".join(parts) + ")"

    @property
    def total_tokens(self) -> int | None:
        """Tokens of the step without sub-agents; None if the provider does not report them.

        Example:
            >>> result.history[0].total_tokens
            637
        """
        return self.usage.total_tokens

    @property
    def child_tokens(self) -> int | None:
        """Tokens of the sub-agents called in this step; None if a part is unknown.

        Example:
            >>> planner = lab.Agent(ScriptedProvider([call("scout", {"task": "Go."}), "Done."]), tools=[brief.as_tool("scout")])
            >>> step = (await planner.run("?")).history[0]
            >>> step.usage.total_tokens, step.child_tokens, step.all_tokens
            (15, 15, 30)
        """
        return tokens_of(self.children)

    @property
    def child_cost_usd(self) -> Decimal | None:
        """Cost of the sub-agents called in this step; None if a part is unknown.

        Example:
            >>> result.history[0].child_cost_usd  # no sub-agent was called
            Decimal('0')
        """
        return cost_usd_of(self.children)

    @property
    def all_tokens(self) -> int | None:
        """Tokens of the step, including sub-agents; None if a part is unknown.

        Example:
            >>> result.history[0].all_tokens
            637
        """
        return _sum([self.usage.total_tokens, self.child_tokens], 0) if self.children else self.usage.total_tokens

    @property
    def all_cost_usd(self) -> Decimal | None:
        """Cost of the step, including sub-agents; None if a part is unknown.

        Example:
            >>> result.history[0].all_cost_usd
            Decimal('0.003207')
        """
        return _sum([self.cost.usd, self.child_cost_usd], Decimal(0)) if self.children else self.cost.usd

    @property
    def response(self) -> ModelResponse | None:
        """The last response of the step; None if no call returned one.

        Example:
            >>> result.history[0].response.model
            'claude-sonnet-4-6'
        """
        return self.calls[-1].response if self.calls else None

    @property
    def signal(self) -> TerminationSignal | None:
        """Why the step's last response ended.

        Example:
            >>> result.history[0].signal.raw_field, result.history[0].signal.raw_value
            ('stop_reason', 'tool_use')
        """
        return self.calls[-1].response.signal if self.calls else None

    @property
    def finish_reason(self) -> FinishReason | None:
        """Why the step's last response ended, in one word.

        Example:
            >>> [step.finish_reason.value for step in result.history]
            ['tool_calls', 'tool_calls', 'tool_calls', 'tool_calls']
        """
        return self.calls[-1].response.signal.finish_reason if self.calls else None

    @property
    def text(self) -> str:
        """The model's text from all calls of the step. `seams` are the places where texts meet, `holes` those where a piece is missing.

        Example:
            >>> result.history[0].text
            "I'll look at the forecast for both cities first."
        """
        if self.answer is not None:
            return self.answer.text
        if len(self.calls) == 1 and (only := self.calls[0]).used:
            return only.response.text
        return "".join([call.response.text for call in self.calls if call.used])

    @property
    def holes(self) -> tuple[Hole, ...]:
        """The places in `text` where a stream lost a piece; empty for a complete answer.

        Example:
            >>> result.history[0].holes
            ()
        """
        if self.answer is not None:
            return self.answer.holes
        found: list[Hole] = []
        before = 0
        for call in self.calls:
            if call.used:
                found += moved(call.response.holes, before)
                before += len(call.response.text)
        return tuple(found)

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The tool calls of the model, from all calls of the step.

        Example:
            >>> result.history[0].tool_calls[0].arguments
            '{"city":"Graz","day":"2027-06-12"}'
        """
        if self.answer is not None:
            return self.answer.tool_calls
        if len(self.calls) == 1:
            return self.calls[0].response.tool_calls
        return tuple([tool_call for call in self.calls if call.used for tool_call in call.response.tool_calls])


def _sum(parts: Iterable[N | None], start: N) -> N | None:
    for part in parts:
        if part is None:
            return None
        start = start + part
    return start


def tokens_of(children: Iterable[ChildUse]) -> int | None:
    """Return the tokens of sub-agents; None if a part is unknown."""
    return _sum([child.usage.total_tokens for child in children], 0)


def cost_usd_of(children: Iterable[ChildUse]) -> Decimal | None:
    """Return the cost of sub-agents; None if a part is unknown."""
    return _sum([child.cost.usd for child in children], Decimal(0))


# Whether two steps are the same --------------------------------------------------------------------------------------------


STEP_PARTS = ("prompt", "answer", "tool calls", "arguments", "tool results")


def difference_of(a: StepResult, b: StepResult) -> str:
    """Return the first thing in which two steps differ, as in `differs_in`; "" if none does."""
    parts = zip(STEP_PARTS[1:], _parts(a), _parts(b), strict=True)
    return next((name for name, one, other in parts if one != other), "")


def step_keys(step: StepResult, given: object) -> str:
    """Return a short key for each of `STEP_PARTS` of a step: two steps of which all keys are equal are the same for `diff`."""
    parts = (given, *_parts(step))
    return " ".join(hashlib.blake2b(repr(part).encode(errors="replace"), digest_size=4).hexdigest() for part in parts)


def _parts(step: StepResult) -> Iterator[object]:
    """Yield all of `STEP_PARTS` but the prompt. The arguments of a call are those of the model and those that the tool received."""
    responses = [call.response for call in step.calls if call.used] if step.answer is None else [step.answer]
    reasoning = "".join([response.reasoning for response in responses])
    yield step.text, reasoning, step.finish_reason, [response.refusal for response in responses if response.refusal]
    calls = step.tool_calls
    yield [call.name for call in calls]
    changed = {result.call_id: result.executed_arguments for result in step.tool_results}
    arguments = [(canonical(call.arguments), call.arguments, changed.get(call.id) or call.arguments) for call in calls]
    yield [(sent, sent if as_sent == run else canonical(run)) for sent, as_sent, run in arguments]
    yield [(result.name, result.content, result.error) for result in step.tool_results]


def canonical(text: str) -> str:
    """Return JSON in one spelling: keys in order, and equal numbers alike. Any other text is returned as it is."""
    try:
        return repr(_JSON.decode(text))
    except (ValueError, ArithmeticError, RecursionError):
        return text


_EXACT = Context(prec=MAX_PREC, Emin=MIN_EMIN, Emax=MAX_EMAX)


def _number(text: str) -> Decimal:
    return _EXACT.normalize(Decimal(text)) or Decimal(0)  # not -0


def _in_order(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return dict(sorted(dict(pairs).items()))


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


_JSON = json.JSONDecoder(parse_float=_number, parse_int=_number, parse_constant=_refuse, object_pairs_hook=_in_order)

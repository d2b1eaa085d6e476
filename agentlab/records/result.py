"""The result of a run, with its steps and events; the errors of `raise_for_stop`; and what a person can do after a stop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, Generic

from pydantic_core import to_json

from agentlab._internal.errors import AgentlabError, ConfigurationError, FixtureError, ProviderStatusError
from agentlab._internal.formatting import counted
from agentlab._internal.redaction import is_free_of_keys, redacted_repr, text_of
from agentlab._internal.safe_text import cut
from agentlab._internal.values import dataclass
from agentlab.limits.reading import Reading
from agentlab.model.finish_reasons import StopReason, TerminationSignal
from agentlab.model.messages import JSON, Message
from agentlab.model.responses import ModelResponse
from agentlab.model.usage import Cost, Usage
from agentlab.records.history import RunHistory
from agentlab.records.provenance import LazySetup, Provenance, Setup, provenance_of

if TYPE_CHECKING:
    import pandas as pd
    from typing_extensions import TypeVar

    Out = TypeVar("Out", default=Any)
    Out_co = TypeVar("Out_co", default=Any, covariant=True)
    T = TypeVar("T")
else:
    from typing import TypeVar

    Out = TypeVar("Out")  # the type of the output, None included
    Out_co = TypeVar("Out_co")  # noqa: PLC0105  the same, in the result, which cannot change; a default needs Python 3.13
    T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Event:
    """The base class of all events. `run_id` is the id of the event's run, which is set when the event is emitted.

    Example:
        >>> sorted({type(event).__name__ for event in result.events})[:4]
        ['RunEnded', 'RunStarted', 'StepCompleted', 'StepStarted']
        >>> {event.run_id for event in result.events} == {result.run_id}
        True
    """

    at_s: float
    run_id: str = field(default="", kw_only=True)


@redacted_repr
@dataclass(frozen=True, slots=True)
class RunResult(Generic[Out_co]):
    """The result of a run. Every run returns one, for any stop reason.

    `detail` explains in one sentence why the run stopped. `conditions_met` are the readings that were met at the last step, even if
    another reason had precedence. `output` is the typed answer of an agent with an `output`, else the value of a tool that ended the
    run, or the one passed to StopRequested; else None.
    `error` is the exception behind StopReason.ERROR. `stopped_by` is the source of an explicit stop: `tool`, `middleware` or `person`.

    For a fork, `parent_run_id` is the run it was forked from and `forked_at` the number of steps that it took over. For a sub-agent's
    run, `parent_run_id` is the calling run, `parent_step` the step and `called_by` the id of the tool call that started it. If a fork
    added a message, the answer is that of the steps after `asked_at`.

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
    output: Out_co = None  # type: ignore[assignment]
    error: BaseException | None = None
    stopped_by: str = ""
    parent_run_id: str | None = None
    forked_at: int | None = None
    parent_step: int | None = None
    called_by: str | None = None
    asked_at: int = 0
    setup: LazySetup = field(default=LazySetup(setup=Setup()), compare=False, repr=False)

    @property
    def text(self) -> str:
        """The answer: `output` as text if there is one, else the model's last text, even if it was cut off.

        An output that is not text is given as the JSON that the model received. An answer to an earlier message does not
        count: the text is "" if the run ended before the model answered the one of `fork(message=…)`.

        Example:
            >>> (await brief.run("What is the capital of France?")).text
            'Paris.'
            >>> result.text == result.output, result.model_text
            (True, 'I left out the day for the way back. Let me ask again.')
        """
        return self.model_text if self.output is None else self._output_text()

    @property
    def model_text(self) -> str:
        """The model's last text in the run, even if the answer is the output of a tool.

        Example:
            >>> result.model_text
            'I left out the day for the way back. Let me ask again.'
        """
        return next((step.text for step in reversed(self.history) if step.text and step.index > self.asked_at), "")

    def _output_text(self) -> str:
        """Return the output as text, if possible the content of its tool result: a store keeps that, but not every object."""
        output: Any = self.output
        last = self.history.last
        for result in () if last is None else reversed(last.tool_results):
            if result.value is output or (type(result.value) is type(output) is str and result.value == output):
                return result.content
        try:
            return output if isinstance(output, str) else to_json(output).decode()
        except Exception:  # not JSON, or an object that raises when it is serialized
            return text_of(output)

    @property
    def steps(self) -> RunHistory:
        """The steps of the run: an alias of `history`.

        Example:
            >>> [step.total_tokens for step in result.steps]
            [637, 747, 824, 938]
        """
        return self.history

    @property
    def stopped_by_condition(self) -> bool:
        """True if a stop condition was met at the last step, even if another reason had precedence.

        Example:
            >>> result.stopped_by_condition, result.conditions_met
            (True, (Reading(name='HasToolCall', value=1, limit='finalize', met=True, children=(), goal=True),))
        """
        return bool(self.conditions_met)

    @property
    def terminated(self) -> bool:
        """True if the agent finished on its own: it completed, or called a tool that ends the run.

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
        """True if something cut the agent off.

        Example:
            >>> (await endless.run("?", budget=lab.Budget(max_turns=2))).truncated
            True
        """
        return not self.terminated

    @property
    def usage(self) -> Usage:
        """Tokens of the whole run, including sub-agents; `history.own_usage` excludes them.

        Example:
            >>> result.usage.input_tokens, result.usage.output_tokens
            (2737, 409)
        """
        return self.history.usage

    @property
    def cost(self) -> Cost:
        """Cost of the whole run, including sub-agents; `history.own_cost` excludes them.

        Example:
            >>> result.cost
            Cost(usd=Decimal('0.014346'), source=<CostSource.PRICED: 'priced'>, price_list='genai-prices ...')
        """
        return self.history.cost

    @property
    def provenance(self) -> Provenance:
        """What made the run: versions, the git commit, the model as its responses name it, parameters, recordings, hashes.

        Example:
            >>> result.provenance.response_models, result.provenance.replayed
            (('claude-sonnet-4-6',), True)
        """
        return provenance_of(self.provider, self.model, self.setup.get(), self.history)

    def raise_for_stop(self: RunResult[T | None]) -> RunResult[T]:
        """Raise the matching RunStopped error if something cut the agent off, else return the result.

        Example:
            >>> result.raise_for_stop() is result
            True
            >>> (await endless.run("?", budget=lab.Budget(max_turns=2))).raise_for_stop()
            Traceback (most recent call last):
                ...
            agentlab.errors.TurnLimitReached: Budget reached: max_turns 2 of 2.
        """
        if self.terminated:
            return self  # type: ignore[return-value]  # an agent that finished has given its output
        cause = (
            self.error if self.error is None or is_free_of_keys(self.error) else None
        )  # else only the redacted detail is raised
        raise _STOPPED[self.stop_reason](self.detail, self) from cause

    if not TYPE_CHECKING:  # otherwise type checkers would accept any attribute

        def __getattr__(self, name):
            message = f"{type(self).__name__!r} object has no attribute {name!r}"
            if name in ("to_html", "panel"):
                message = (
                    f"A result has no {name!r}; its run has. Keep the run: `run = agent.run(…); await run`, then run.{name}(…)."
                )
            raise AttributeError(message, name=name, obj=self)

        def __getitem__(self, place):  # also called by `for step in result`
            raise TypeError("A result is not a list: result.history has its steps, result.messages its messages.")

    def to_frame(self, what: str = "steps") -> pd.DataFrame:
        """Return a DataFrame of this run: `steps` (one row per step), `calls`, `tools`, `events`, `readings` or `termination`.

        Example:
            >>> result.to_frame()[["step", "input_tokens", "output_tokens"]].tail(2)
               step  input_tokens  output_tokens
            2     3           753             71
            3     4           838            100
        """
        from agentlab.records.frames import to_frame

        return to_frame(self, what)

    def __repr__(self) -> str:
        end = "terminated" if self.terminated else "truncated"
        answer = cut(" ".join(self.text[:5_000].split()), 80)
        text = f", text={answer!r}" if answer else ""
        return f"RunResult({self.stop_reason}, {end}, {counted(len(self.history), 'step')}, {self.detail!r}{text})"

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        from agentlab.records.frames import result_bundle

        return result_bundle(self)


# Raised by `raise_for_stop` ----------------------------------------------------------------------------------------------------


class RunStopped(AgentlabError):  # noqa: N818  an outcome, requested as an exception
    """Raised by `result.raise_for_stop()`: the agent did not finish on its own. `result` has all steps.

    Example:
        >>> try:
        ...     (await endless.run("?", stop=lab.StepCountIs(2))).raise_for_stop()
        ... except lab.errors.RunStopped as stopped:
        ...     print(type(stopped).__name__, len(stopped.result.history))
        ConditionReached 2
    """

    def __init__(self, message: str, result: RunResult) -> None:
        super().__init__(message)
        self.result = result


class TurnLimitReached(RunStopped):
    """`Budget.max_turns` was reached.

    Example:
        >>> (await endless.run("?", budget=lab.Budget(max_turns=2))).raise_for_stop()
        Traceback (most recent call last):
            ...
        agentlab.errors.TurnLimitReached: Budget reached: max_turns 2 of 2.
    """


class CallLimitReached(RunStopped):
    """`Budget.max_calls` was reached.

    Example:
        >>> (await endless.run("?", budget=lab.Budget(max_calls=2))).raise_for_stop()
        Traceback (most recent call last):
            ...
        agentlab.errors.CallLimitReached: Budget reached: max_calls 2 of 2.
    """


class TokenBudgetReached(RunStopped):
    """`Budget.max_tokens` was reached.

    Example:
        >>> (await endless.run("?", budget=lab.Budget(max_tokens=30))).raise_for_stop()
        Traceback (most recent call last):
            ...
        agentlab.errors.TokenBudgetReached: Budget reached: max_tokens 30 of 30.
    """


class CostBudgetReached(RunStopped):
    """`Budget.max_cost` was reached.

    Example:
        >>> (await endless.run("?", budget=lab.Budget(max_cost="0.02"))).raise_for_stop()
        Traceback (most recent call last):
            ...
        agentlab.errors.CostBudgetReached: Budget reached: max_cost $0.02 of $0.02.
    """


class TimeoutReached(RunStopped):
    """`Budget.timeout` was reached.

    Example:
        >>> (await endless.run("?", budget=lab.Budget(timeout=0.000001))).raise_for_stop()
        Traceback (most recent call last):
            ...
        agentlab.errors.TimeoutReached: Budget reached: timeout ...
    """


class ConditionReached(RunStopped):
    """A stop condition was met before the agent finished on its own.

    Example:
        >>> (await endless.run("?", stop=lab.StepCountIs(2))).raise_for_stop()
        Traceback (most recent call last):
            ...
        agentlab.errors.ConditionReached: Stop condition met: StepCountIs 2 of 2.
    """


class ExplicitlyStopped(RunStopped):
    """A person, a tool or a middleware stopped the run.

    Example:
        >>> run = endless.run("?")
        >>> run.stop("enough")
        >>> run.result.raise_for_stop()
        Traceback (most recent call last):
            ...
        agentlab.errors.ExplicitlyStopped: Stopped by the person: enough
    """


class ResponseTruncated(RunStopped):
    """A response was cut off at its output cap.

    Example:
        >>> cut = lab.Agent(ScriptedProvider([say("A cut answ", finish=lab.FinishReason.MAX_TOKENS)]), continuation=None)
        >>> (await cut.run("?")).raise_for_stop()
        Traceback (most recent call last):
            ...
        agentlab.errors.ResponseTruncated: The response was cut off at its output cap.
    """


class ResponseFiltered(RunStopped):
    """A content filter withheld or cut a response.

    Example:
        >>> held_back = lab.Agent(ScriptedProvider([say(finish=lab.FinishReason.CONTENT_FILTERED)]))
        >>> (await held_back.run("?")).raise_for_stop()
        Traceback (most recent call last):
            ...
        agentlab.errors.ResponseFiltered: The response ended with content_filtered.
    """


class NudgesExhausted(RunStopped):
    """The agent repeatedly answered without a tool call.

    Example:
        >>> clerk = lab.Agent(ScriptedProvider(["I am done."] * 9), tools=[finalize], terminating=["finalize"])
        >>> (await clerk.run("?")).raise_for_stop()
        Traceback (most recent call last):
            ...
        agentlab.errors.NudgesExhausted: Max consecutive nudges exceeded: 1 of 1, and no terminating tool was called.
    """


class InvalidOutput(RunStopped):
    """The model's answers did not fit the type of the agent's `output`.

    Example:
        >>> clerk = lab.Agent(ScriptedProvider(["Tomorrow."] * 9), output=Trip, output_retries=1)
        >>> (await clerk.run("?")).raise_for_stop()
        Traceback (most recent call last):
            ...
        agentlab.errors.InvalidOutput: 2 answers did not fit Trip. The last one: Invalid JSON: ...
    """


class AwaitingApproval(RunStopped):
    """The run waits for a person to approve a tool call.

    Example:
        >>> careful = lab.Agent(ScriptedProvider([call("search", {"words": "umbrella"})]), tools=[search], approve=["search"])
        >>> (await careful.run("?")).raise_for_stop()
        Traceback (most recent call last):
            ...
        agentlab.errors.AwaitingApproval: Waiting for approval of search({"words": "umbrella"}): call run.approve(), th...
    """


class RunCancelled(RunStopped):
    """The run was cancelled.

    Example:
        >>> run = endless.run("?")
        >>> run.cancel()
        >>> run.result.raise_for_stop()
        Traceback (most recent call last):
            ...
        agentlab.errors.RunCancelled: Cancelled after step 0.
    """


class RunFailed(RunStopped):
    """An error ended the run; it is the `__cause__`.

    Example:
        >>> failing = lab.Agent(ScriptedProvider([lab.errors.ProviderError("no answer")]))
        >>> (await failing.run("?")).raise_for_stop()
        Traceback (most recent call last):
            ...
        agentlab.errors.RunFailed: ProviderError: no answer
    """


_STOPPED: Mapping[StopReason, type[RunStopped]] = {
    StopReason.TURN_LIMIT: TurnLimitReached,
    StopReason.CALL_LIMIT: CallLimitReached,
    StopReason.TOKEN_BUDGET: TokenBudgetReached,
    StopReason.COST_BUDGET: CostBudgetReached,
    StopReason.TIMEOUT: TimeoutReached,
    StopReason.STOP_CONDITION: ConditionReached,
    StopReason.EXPLICIT_STOP: ExplicitlyStopped,
    StopReason.TRUNCATED: ResponseTruncated,
    StopReason.CONTENT_FILTERED: ResponseFiltered,
    StopReason.NUDGES_EXHAUSTED: NudgesExhausted,
    StopReason.INVALID_OUTPUT: InvalidOutput,
    StopReason.AWAITING_APPROVAL: AwaitingApproval,
    StopReason.CANCELLED: RunCancelled,
    StopReason.ERROR: RunFailed,
}

for _error in (RunStopped, *_STOPPED.values()):
    _error.__module__ = "agentlab.errors"  # where users find it: the name in tracebacks and pickles


# What to do after a stop --------------------------------------------------------------------------------------------------------

RETRY, MODIFY_PROMPT, INCREASE_BUDGET, STOP = "retry", "modify_prompt", "increase_budget", "stop"

FOR_STOP_REASON: Mapping[StopReason, str] = {
    StopReason.COMPLETED: STOP,
    StopReason.TERMINATING_TOOL: STOP,
    StopReason.EXPLICIT_STOP: STOP,
    StopReason.STOP_CONDITION: STOP,
    StopReason.TURN_LIMIT: INCREASE_BUDGET,
    StopReason.CALL_LIMIT: INCREASE_BUDGET,
    StopReason.TOKEN_BUDGET: INCREASE_BUDGET,
    StopReason.COST_BUDGET: INCREASE_BUDGET,
    StopReason.TIMEOUT: INCREASE_BUDGET,
    StopReason.TRUNCATED: INCREASE_BUDGET,
    StopReason.CONTENT_FILTERED: MODIFY_PROMPT,
    StopReason.NUDGES_EXHAUSTED: MODIFY_PROMPT,
    StopReason.INVALID_OUTPUT: MODIFY_PROMPT,
    StopReason.AWAITING_APPROVAL: RETRY,
    StopReason.CANCELLED: RETRY,
    StopReason.ERROR: RETRY,
}
"""The suggestion by stop reason, unless the last response gives a more specific one."""

FOR_ERROR: Mapping[str | int, str] = {
    # the request is rejected: change it
    "invalid_request_error": MODIFY_PROMPT,
    "invalid_request": MODIFY_PROMPT,
    "invalid_argument": MODIFY_PROMPT,
    "invalid_prompt": MODIFY_PROMPT,
    "failed_precondition": MODIFY_PROMPT,
    "validationexception": MODIFY_PROMPT,
    "bad_request": MODIFY_PROMPT,
    "request_too_large": MODIFY_PROMPT,
    "context_length_exceeded": MODIFY_PROMPT,
    "string_above_max_length": MODIFY_PROMPT,
    "exceed_context_size_error": MODIFY_PROMPT,
    "content_filter": MODIFY_PROMPT,
    "content_policy_violation": MODIFY_PROMPT,
    "responsibleaipolicyviolation": MODIFY_PROMPT,
    400: MODIFY_PROMPT,
    413: MODIFY_PROMPT,
    422: MODIFY_PROMPT,
    # the key, the account or the address is wrong: a retry does not help
    "authentication_error": STOP,
    "unauthenticated": STOP,
    "unauthorized": STOP,
    "invalid_api_key": STOP,
    "permission_error": STOP,
    "permission_denied": STOP,
    "accessdeniedexception": STOP,
    "unrecognizedclientexception": STOP,
    "billing_error": STOP,
    "insufficient_quota": STOP,
    "not_found_error": STOP,
    "not_found": STOP,
    "model_not_found": STOP,
    "resourcenotfoundexception": STOP,
    401: STOP,
    402: STOP,
    403: STOP,
    404: STOP,
}
"""The suggestion by the provider's error code in lower case, or by status. All others (overload, rate limits, server errors): `retry`.

Sources, read 2026-11-22: https://platform.openai.com/docs/guides/error-codes,
https://platform.claude.com/docs/en/api/errors, https://ai.google.dev/gemini-api/docs/troubleshooting,
https://docs.aws.amazon.com/bedrock/latest/userguide/troubleshooting-api-error-codes.html,
https://openrouter.ai/docs/api-reference/errors.
"""

LARGER = 2
"""The factor from the last output cap to the suggested one."""


def for_error(signal: TerminationSignal) -> str:
    """Return the suggestion for an error in a response."""
    if signal.repairable:
        return RETRY
    status = signal.metadata.get("status") if signal.metadata else None
    for code in (signal.raw_value, status):
        word = code.lower() if isinstance(code, str) else code
        found = FOR_ERROR.get(int(word) if isinstance(word, str) and word.isdecimal() else word)  # type: ignore[arg-type]
        if found is not None:
            return found
    return RETRY


def advice_for(error: BaseException) -> str:
    """Return the suggestion for a call that failed without a response. Errors in the code or in a recording would recur: `stop`."""
    if isinstance(error, ConfigurationError | FixtureError):
        return STOP
    if not isinstance(error, ProviderStatusError):
        return RETRY
    return FOR_ERROR.get(error.code.lower()) or FOR_ERROR.get(error.status, RETRY)


def larger_cap(requested_cap: int | None, response: ModelResponse | None) -> dict[str, JSON]:
    """Return the output cap to try next, as metadata of a decision; empty if neither a cap nor the usage is known."""
    cap = requested_cap or (response.usage.output_tokens if response is not None else None)
    return {"max_tokens_per_turn": LARGER * cap} if cap else {}

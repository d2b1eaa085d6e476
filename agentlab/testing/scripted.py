"""A model that answers from a script."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from typing import Any, TypeAlias

from agentlab._internal.formatting import counted
from agentlab._internal.redaction import redacted_repr
from agentlab._internal.safe_text import one_line
from agentlab._internal.values import dataclass
from agentlab.engine.client import CallContext
from agentlab.errors import ConfigurationError, FixtureError
from agentlab.model.finish_reasons import Confidence, FinishReason, TerminationSignal
from agentlab.model.messages import ModelRequest, ToolCall
from agentlab.model.responses import ModelResponse
from agentlab.model.usage import Usage, UsageSource

Said: TypeAlias = ModelResponse | str | Exception
Script: TypeAlias = Sequence[Said] | Callable[[ModelRequest, int], Said]


@redacted_repr
@dataclass(frozen=True, slots=True)
class ScriptedProvider:
    """A model that answers from a script, immediately and without a network.

    `script` is a sequence of answers, or a function that takes the request and the number of the call, from 1, and returns an answer.
    An answer is a ModelResponse (see `say` and `call`), a text (a completed answer), or an exception to raise. Every run reads the
    script from its start.

    Example:
        >>> model = ScriptedProvider([call("search", {"words": "umbrella"}), say("Nothing found.", tokens=(40, 6), cost="0.001")])
        >>> result = await lab.Agent(model, tools=[search]).run("?")
        >>> result.text, result.usage.total_tokens, result.history[1].cost.usd
        ('Nothing found.', 61, Decimal('0.001'))
    """

    script: Script
    name: str = "scripted"
    model: str = "script"

    def __post_init__(self) -> None:
        if isinstance(self.script, str) or not (callable(self.script) or isinstance(self.script, Sequence)):
            raise ConfigurationError(f"ScriptedProvider({one_line(repr(self.script))}): pass a list of answers, or a function.")

    async def respond(self, request: ModelRequest, context: CallContext) -> ModelResponse:
        """Return the script's next answer."""
        answer: Any
        if callable(self.script):
            answer = self.script(request, context.index)
        elif context.index <= len(self.script):
            answer = self.script[context.index - 1]
        else:
            raise FixtureError(
                f"The script has {counted(len(self.script), 'answer')}, but the run requests answer {context.index}: add another one."
            )
        if isinstance(answer, Exception):
            raise answer
        response = say(answer) if isinstance(answer, str) else answer
        if not isinstance(response, ModelResponse):
            if inspect.iscoroutine(response):
                response.close()
            raise ConfigurationError(
                f"The script's answer {context.index} is {one_line(repr(answer))}: write a text, say(…), call(…), or an exception such "
                "as TimeoutError(). A function of a script is not async, and returns one of these."
            )
        if response.text:
            context.on_text(response.text)
        return response


def usage(input_tokens: int | None, output_tokens: int | None) -> Usage:
    """Return a usage as a provider reports it; None for a missing count.

    Example:
        >>> lab.testing.usage(10, 5).total_tokens, lab.testing.usage(10, None).total_tokens
        (15, None)
    """
    known = input_tokens is not None and output_tokens is not None
    return Usage(input_tokens, output_tokens, source=UsageSource.REPORTED if known else UsageSource.UNKNOWN)


def say(
    text: str = "",
    *,
    finish: FinishReason = FinishReason.END_TURN,
    tokens: tuple[int | None, int | None] = (10, 5),
    cost: float | str | None = None,
    calls: Sequence[ToolCall] = (),
) -> ModelResponse:
    """Return a response with this text; `tokens` are (input, output), `cost` is the provider's, in US dollars. Raises
    ConfigurationError for values of other types.

    Example:
        >>> say("A cut answ", finish=lab.FinishReason.MAX_TOKENS).signal.finish_reason
        <FinishReason.MAX_TOKENS: 'max_tokens'>
        >>> say("Hello.", tokens=(None, None)).usage.total_tokens is None
        True
    """
    checks = (
        ("text", text, isinstance(text, str), "pass text."),
        ("finish", finish, isinstance(finish, FinishReason), "pass a lab.FinishReason, such as lab.FinishReason.MAX_TOKENS."),
        (
            "tokens",
            tokens,
            isinstance(tokens, tuple | list) and len(tokens) == 2,
            "pass those of input and output, such as (40, 6).",
        ),
        ("calls", calls, _are_calls(calls), 'pass ToolCalls, such as [*call("search").tool_calls, *call("read").tool_calls].'),
    )
    for name, value, right, advice in checks:
        if not right:
            raise ConfigurationError(f"say({name}={one_line(repr(value))}): {advice}")
    try:
        cost_usd = None if cost is None else Decimal(str(cost))
    except InvalidOperation:
        raise ConfigurationError(f"say(cost={cost!r}): pass an amount in US dollars, such as 0.05.") from None
    signal = TerminationSignal(finish, Confidence.HIGH, "scripted", "finish_reason", finish.value)
    return ModelResponse(text, signal, tuple(calls), usage(*tokens), model="script", cost_usd=cost_usd)


def _are_calls(calls: object) -> bool:
    return isinstance(calls, Sequence) and all(isinstance(one, ToolCall) for one in calls)


def call(name: str, arguments: dict[str, Any] | str | None = None, *, id: str = "", **more: Any) -> ModelResponse:  # noqa: A002
    """Return a response that calls one tool; `arguments` is a dict or raw JSON text, `more` are `text`, `tokens` and `cost` as in
    `say`. Raises ConfigurationError for others.

    Example:
        >>> call("search", {"words": "umbrella"}).tool_calls[0]
        ToolCall(id='call_search', name='search', arguments='{"words": "umbrella"}', closed=True)
    """
    for key, value in more.items():
        if key not in ("text", "tokens", "cost"):
            right = one_line(f"call({name!r}, {{{key!r}: {value!r}}})")
            raise ConfigurationError(f"call() takes no {key!r}; the arguments of the tool are a dict: {right}.")
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
    tool_call = ToolCall(id or f"call_{name}", name, text)
    return replace(say(finish=FinishReason.TOOL_CALLS, **more), tool_calls=(tool_call,))

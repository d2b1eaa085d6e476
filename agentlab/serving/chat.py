"""Conversations with an agent that are kept: the chat endpoints as plain methods.

    chat = lab.Chat(agent, path="chat.sqlite")
    reply = await chat.chat("anna", "Do I need an umbrella in Graz?")        # the conversation of the context "anna" goes on
    reply = await chat.invoke("Summarise the news.", terminating_config={"tool_ids": ["finalize"]})
    await chat.add_ai_message("anna", "Your parcel has arrived.")            # the agent is not run
    reply.response, reply.stop_reason, reply.generated_messages

`python -m agentlab serve module:agent` offers the same three over HTTP (serve.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeAlias, TypeVar

from agentlab.errors import ChatInputError, ConfigurationError, LimitError, RunFailed, ToolDefinitionError
from agentlab.limits import no_such
from agentlab.redaction import shown_without_keys
from agentlab.results import RunResult
from agentlab.serving.contexts import IN_MEMORY, Contexts
from agentlab.serving.one_at_a_time import OneAtATime
from agentlab.shown import Shown
from agentlab.terminating import TerminatingTools
from agentlab.tools import as_text
from agentlab.transport import Transport, current
from agentlab.types import FinishReason, Message, StopReason

if TYPE_CHECKING:
    from agentlab.agent import Agent
    from agentlab.run import Run

LONGEST_ID = 200
"""Characters of a context's id."""

TerminatingConfig: TypeAlias = Mapping[str, Any] | TerminatingTools | Sequence[str]
"""{"tool_ids": [...], "consecutive_nudges": 1, "nudge_message": "…", "max_invocations": 64}, or what `agent.run` takes."""

_FIELDS = {
    "tool_ids": "tools",
    "consecutive_nudges": "consecutive_nudges",
    "nudge_message": "nudge_message",
    "max_invocations": "max_invocations",
}
_CUT = (StopReason.TRUNCATED, StopReason.CONTENT_FILTERED)
_CUT_ANSWERS = (FinishReason.MAX_TOKENS, FinishReason.CONTEXT_WINDOW_EXCEEDED, FinishReason.CONTENT_FILTERED)
T = TypeVar("T")


@shown_without_keys
@dataclass(frozen=True, slots=True)
class ChatReply(Shown):
    """What one request led to.

    response            the answer's text, or what a tool gave with which the run ended, as text; with `notice` at its end where the
                        answer was cut
    saved_ai_messages   the assistant's messages that the context has gained; none without a context
    generated_messages  all that came of the request, in order: the assistant's messages, tool results and reminders
    stop_reason         why the run ended; None where the agent was not run
    detail              the same in one sentence
    notice              says that the answer is not whole; empty where it is
    result              the run's whole result; None where the agent was not run

    Example:
        >>> reply = await lab.Chat(brief).chat("anna", "What is the capital of France?")
        >>> reply.response, reply.stop_reason, reply.result.usage.total_tokens
        ('Paris.', <StopReason.COMPLETED: 'completed'>, 15)
    """

    response: str
    saved_ai_messages: tuple[Message, ...]
    generated_messages: tuple[Message, ...]
    stop_reason: StopReason | None = None
    detail: str = ""
    notice: str = ""
    result: RunResult | None = field(default=None, repr=False, compare=False)


class Chat(Shown):
    """An agent in conversations that are kept, each under the id of its context.

        chat = lab.Chat(agent, path="chat.sqlite")

    path        the SQLite file of the contexts; in memory unless given
    transport   where the agent's requests go: that of the surrounding `lab.replay` or `lab.record` unless given, captured now

    An id that was not used before begins a new context. A context is used by one request at a time: a second one waits for the first.
    A request is saved as a whole when its run has ended, and one that fails leaves the context as it was. Limits are outcomes: what a
    run brought until it was cut off is saved and returned, with its stop_reason.

    Raises ChatInputError for what was said wrongly, RunFailed (or what was wrong with the set-up) where the run ended as ERROR, and
    ContextChangedError where another process wrote to the context meanwhile; nothing is saved then.

    Example:
        >>> chat = lab.Chat(brief)  # path="chat.sqlite" keeps it
        >>> reply = await chat.chat("anna", "What is the capital of France?")
        >>> reply.response, reply.stop_reason
        ('Paris.', <StopReason.COMPLETED: 'completed'>)
        >>> [message.text for message in chat.messages("anna")]
        ['What is the capital of France?', 'Paris.']
    """

    def __init__(self, agent: Agent, path: str | Path = IN_MEMORY, *, transport: Transport | None = None) -> None:
        if not callable(getattr(agent, "run", None)):
            raise ConfigurationError(f"Chat(agent={agent!r}): pass an agent, such as lab.Agent('openai:gpt-5.4-mini').")
        self.agent = agent
        self.contexts: Contexts = Contexts(path)
        self.transport: Transport = transport or current()
        self._turns = OneAtATime()

    async def chat(self, context_id: str, message: str, terminating_config: TerminatingConfig | None = None) -> ChatReply:
        """Say something in a context: the agent answers it, knowing the conversation so far, and both are saved.

        `terminating_config` names the tools that end the run (see TerminatingTools); without it the agent's own setting holds.

        Example:
            >>> chat = lab.Chat(brief)
            >>> (await chat.chat("anna", "What is the capital of France?")).response
            'Paris.'
            >>> await chat.chat("anna", "")
            Traceback (most recent call last):
                ...
            agentlab.errors.ChatInputError: message='': say something, as text.
        """
        return await self._answer(_checked_id(context_id), _checked_text("message", message), terminating_config)

    async def invoke(
        self, prompt: str, terminating_config: TerminatingConfig | None = None, *, context_id: str | None = None
    ) -> ChatReply:
        """Run the agent on a prompt. With a context this is `chat`; without, it knows nothing of other requests, and nothing is kept.

        Example:
            >>> chat = lab.Chat(brief)
            >>> (await chat.invoke("What is the capital of France?")).response
            'Paris.'
            >>> chat.context_ids()  # nothing was kept
            []
        """
        checked = None if context_id is None else _checked_id(context_id)
        return await self._answer(checked, _checked_text("prompt", prompt), terminating_config)

    async def add_ai_message(self, context_id: str, message: str) -> ChatReply:
        """Put words into the assistant's mouth: the message is added to the context as the assistant's; the agent is not run.

        Example:
            >>> chat = lab.Chat(brief)
            >>> reply = await chat.add_ai_message("anna", "Your parcel has arrived.")
            >>> chat.messages("anna")[0].role
            'assistant'
        """
        said = Message("assistant", _checked_text("message", message))
        async with self._turns.holding(_checked_id(context_id)):
            before = await _off_the_loop(lambda: self.contexts.messages(context_id))
            await _off_the_loop(lambda: self.contexts.append(context_id, [said], after=len(before)))
        return ChatReply(said.text, (said,), ())

    def messages(self, context_id: str) -> tuple[Message, ...]:
        """The conversation of a context; empty where there is none yet.

        Example:
            >>> chat = lab.Chat(brief)
            >>> reply = await chat.chat("anna", "What is the capital of France?")
            >>> [(message.role, message.text) for message in chat.messages("anna")]
            [('user', 'What is the capital of France?'), ('assistant', 'Paris.')]
        """
        return tuple(self.contexts.messages(_checked_id(context_id)))

    def context_ids(self) -> list[str]:
        """The contexts that hold anything, sorted.

        Example:
            >>> chat = lab.Chat(brief)
            >>> reply = await chat.chat("anna", "Hello.")
            >>> chat.context_ids()
            ['anna']
        """
        return self.contexts.ids()

    def close(self) -> None:
        """Close the file of the contexts.

        Example:
            >>> with lab.Chat(brief) as chat:  # closed at the end
            ...     reply = await chat.invoke("What is the capital of France?")
            >>> reply.response
            'Paris.'
        """
        self.contexts.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Chat({self.agent!r}, path={self.contexts.path!r})"

    async def _answer(self, context_id: str | None, said: str, config: TerminatingConfig | None) -> ChatReply:
        async with AsyncExitStack() as held:
            before: list[Message] = []
            if context_id is not None:
                await held.enter_async_context(self._turns.holding(context_id))
                before = await _off_the_loop(lambda: self.contexts.messages(context_id))
            result = await self._run(said, before, config)
            if result.stop_reason is StopReason.ERROR:
                raise RunFailed(result.detail, result) from result.error
            generated = tuple(result.messages[len(before) + 1 :])
            kept = _complete_turns(generated) if context_id is not None else ()
            if context_id is not None and kept:
                new = [Message("user", said), *kept]
                await _off_the_loop(lambda: self.contexts.append(context_id, new, after=len(before)))
        saved = tuple([message for message in kept if message.role == "assistant"])
        notice = _notice(result)
        response = "\n\n".join([part for part in (_answer_text(result), notice) if part])
        return ChatReply(response, saved, generated, result.stop_reason, result.detail, notice, result)

    def _run(self, said: str, before: Sequence[Message], config: TerminatingConfig | None) -> Run:
        try:
            return self.agent.run(said, messages=before, terminating=_terminating(config), transport=self.transport)
        except (LimitError, ToolDefinitionError) as error:  # the agent's own settings were checked when it was made
            raise ChatInputError(f"terminating_config: {error}") from error


def _complete_turns(generated: Sequence[Message]) -> tuple[Message, ...]:
    """What may stand in a conversation that goes on: no reminder without an answer at its end, and no empty answer."""
    kept = list(generated)
    while kept and (kept[-1].role == "user" or _is_empty(kept[-1])):
        kept.pop()
    return tuple(kept)


def _is_empty(message: Message) -> bool:
    return message.role == "assistant" and not message.text.strip() and not message.tool_calls


def _answer_text(result: RunResult) -> str:
    """The answer, or what the run's last tool handed in; as the model was told it, where it cannot be made JSON."""
    handed_in = result.history[-1].tool_results[-1:] if result.history else ()
    if result.stop_reason is StopReason.TERMINATING_TOOL and handed_in:
        return handed_in[0].content
    if result.output is None:
        return result.text
    try:
        return as_text(result.output)
    except Exception:  # whatever a lazy value raises while it is read
        return handed_in[0].content if handed_in else str(result.output)


def _notice(result: RunResult) -> str:
    """What is said where the answer is not whole."""
    last = result.history[-1].finish_reason if result.history else None
    if result.terminated or (result.stop_reason not in _CUT and last not in _CUT_ANSWERS):
        return ""
    return f"[{result.detail}]"


def _terminating(config: TerminatingConfig | None) -> TerminatingTools | Sequence[str] | None:
    """The endpoint's fields, which are called otherwise than those of TerminatingTools. Raises LimitError."""
    if config is None or not isinstance(config, Mapping):
        return config
    for name in config:
        if name not in _FIELDS:
            raise LimitError(no_such("field", str(name), list(_FIELDS)))
    if "tool_ids" not in config:
        raise LimitError('tool_ids is missing: name the tools that end the run, such as {"tool_ids": ["finalize"]}.')
    return TerminatingTools(**{_FIELDS[name]: value for name, value in config.items() if value is not None})


def _checked_id(context_id: object) -> str:
    if isinstance(context_id, str) and 0 < len(context_id) <= LONGEST_ID and context_id.isascii() and context_id.isprintable():
        return context_id
    raise ChatInputError(f"context_id={_shown(context_id)}: give 1 to {LONGEST_ID} printable ASCII characters, such as 'anna'.")


def _checked_text(name: str, text: object) -> str:
    if not isinstance(text, str) or not text.strip():
        raise ChatInputError(f"{name}={_shown(text)}: say something, as text.")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ChatInputError(f"{name} holds half a surrogate pair at character {error.start}: send valid Unicode.") from error
    return text


def _shown(value: object) -> str:
    shown = ascii(value)
    return shown if len(shown) <= LONGEST_ID else f"{shown[:LONGEST_ID]}…"


async def _off_the_loop(work: Callable[[], T]) -> T:
    """Do this on a thread, so that a slow disk holds up nobody else; wait for its end also where the request is cancelled."""
    done = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(done)
    except asyncio.CancelledError:
        await asyncio.wait([done])
        done.cancelled() or done.exception()  # looked at, so that asyncio does not complain of it
        raise

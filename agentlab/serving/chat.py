"""Stored conversations with an agent: the chat endpoints as plain methods.

    chat = lab.Chat(agent, path="chat.sqlite")
    reply = await chat.chat("anna", "Do I need an umbrella in Graz?")        # continues the conversation "anna"
    reply = await chat.invoke("anna", {"tool_ids": ["finalize"]})            # runs the agent on the context
    reply = await chat.add_ai_message("anna", "Say good bye.")               # the agent writes its next message as instructed
    reply = await chat.ask("Summarise the news.")                            # without a context; nothing is saved
    reply = await chat.add_message("anna", "Your parcel has arrived.")       # the agent does not run
    reply.response, reply.stop_reason, reply.generated_messages

`python -m agentlab serve module:agent` offers the same five over HTTP (app.py).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias, TypeVar
from weakref import WeakValueDictionary

import pydantic_core

from agentlab._internal.asyncio_tools import needs_await, off_the_loop
from agentlab._internal.display import Displayable
from agentlab._internal.redaction import redacted_repr, text_of
from agentlab._internal.safe_text import whole
from agentlab.agent import Agent, Run
from agentlab.engine.plan import LAST_ANSWER
from agentlab.errors import ChatInputError, ConfigurationError, ContextNotFoundError, LimitError, RunFailed, ToolDefinitionError
from agentlab.limits.fields import unknown_name
from agentlab.limits.policies import TerminatingTools
from agentlab.limits.settings import as_terminating
from agentlab.model.conversation import Conversation
from agentlab.model.finish_reasons import StopReason
from agentlab.model.messages import Message, ToolCall
from agentlab.model.parts import Content, as_text, joined
from agentlab.records.result import RunResult
from agentlab.serving.contexts import IN_MEMORY, Contexts
from agentlab.transport import Transport, current

MAX_ID_LENGTH = 200
"""Characters of a context's id."""

TerminatingConfig: TypeAlias = Mapping[str, Any] | TerminatingTools | Sequence[str]
"""{"tool_ids": [...], "consecutive_nudges": 1, "nudge_message": "…", "max_invocations": 64}, or as for `agent.run`."""

_FIELDS = {
    "tool_ids": "tools",
    "consecutive_nudges": "consecutive_nudges",
    "nudge_message": "nudge_message",
    "max_invocations": "max_invocations",
}
T = TypeVar("T")


@redacted_repr
@dataclass(frozen=True, slots=True)
class ChatReply(Displayable):
    """The reply to one request.

    response            the answer's text, or the text of the terminating tool that ended the run; followed by `notice`, if there is one
    saved_ai_messages   True if messages of the assistant were added to the context; never without a context
    generated_messages  the request's own message and all that followed, in order, each a dict in one of the forms below; empty if the
                        agent did not run
    stop_reason         why the run ended; None if the agent did not run
    detail              why the run ended, in one sentence
    notice              says what ended the run before the agent was done, such as a limit; empty if the agent was done
    result              the run's whole result; None if the agent did not run
    messages            the same messages as agentlab's Message objects, with their roles

        {"sender": "human", "message": "…"}     the request's own message or prompt
        {"sender": "ai", "message": "…"}        a text of the assistant
        {"sender": "system", "message": "…"}    a text that the run added, such as a reminder
        {"type": "tool_call", "tool_call_id": "…", "tool_name": "…", "tool_input": {…}}
        {"type": "tool_response", "tool_call_id": "…", "tool_output": "…"}

    A `tool_input` is {"raw": "…"} if the model wrote no JSON object.

    Example:
        >>> reply = await lab.Chat(brief).chat("anna", "What is the capital of France?")
        >>> reply.response, reply.stop_reason, reply.result.usage.total_tokens
        ('Paris.', <StopReason.COMPLETED: 'completed'>, 15)
        >>> reply.generated_messages[1], reply.saved_ai_messages
        ({'sender': 'ai', 'message': 'Paris.'}, True)
    """

    response: str
    saved_ai_messages: bool
    generated_messages: tuple[Mapping[str, Any], ...]
    stop_reason: StopReason | None = None
    detail: str = ""
    notice: str = ""
    result: RunResult | None = field(default=None, repr=False, compare=False)
    messages: tuple[Message, ...] = ()


class Chat(Displayable):
    """An agent with stored conversations, each under the id of its context.

        chat = lab.Chat(agent, path="chat.sqlite")

    path        the SQLite file of the contexts; by default they are in memory
    tool_ids    additional ids of the agent's tools, such as {"7f3a": "finalize"}: a terminating_config names tools by id or by name
    transport   sends the agent's requests; by default that of the surrounding `lab.replay` or `lab.record` when the Chat is created

    A new id begins a new context. A context is used by one request of an event loop at a time: a second one waits for the first. A
    request is saved as a whole when its run has ended; a request that fails does not change the context. Limits are outcomes: the
    messages until a limit was reached are saved and returned, with the stop_reason; `reply.result.raise_for_stop()` raises.

    Raises ChatInputError for invalid arguments, RunFailed (or the ConfigurationError) if the run ended as ERROR, and
    ContextChangedError if another process or event loop wrote to the context meanwhile; nothing is saved then.

    Example:
        >>> chat = lab.Chat(brief)  # path="chat.sqlite" stores it
        >>> reply = await chat.chat("anna", "What is the capital of France?")
        >>> reply.response, reply.stop_reason
        ('Paris.', <StopReason.COMPLETED: 'completed'>)
        >>> [message.text for message in chat.messages("anna")]
        ['What is the capital of France?', 'Paris.']
    """

    def __init__(
        self,
        agent: Agent,
        path: str | Path = IN_MEMORY,
        *,
        tool_ids: Mapping[str, str] | None = None,
        transport: Transport | None = None,
    ) -> None:
        if not callable(getattr(agent, "run", None)):
            raise ConfigurationError(f"Chat(agent={agent!r}): pass an agent, such as lab.Agent('openai:gpt-5.4-mini').")
        self.agent = agent
        self.tool_ids: dict[str, str] = dict(tool_ids or {})
        for tool_id, name in self.tool_ids.items():
            if name not in agent.tools or (tool_id in agent.tools and tool_id != name):
                raise ConfigurationError(
                    f"Chat(tool_ids={{{tool_id!r}: {name!r}}}): map an id that is not a tool's name to the name of one of the agent's "
                    f"tools: {', '.join(agent.tools) or 'none'}."
                )
        self.contexts: Contexts = Contexts(path)
        self.transport: Transport = transport or current()
        self._locks = WeakValueDictionary[tuple[int, str], asyncio.Lock]()  # by event loop and context

    @needs_await("chat.chat(…)")
    async def chat(self, context_id: str, message: Content, terminating_config: TerminatingConfig | None = None) -> ChatReply:
        """Send a message in a context: the agent answers it, with the conversation so far, and both are saved.

        `message` is text, or a list of texts and parts such as `lab.Image`. `terminating_config` names the tools that end the run (see
        TerminatingTools); without it the agent's own setting applies.

        Example:
            >>> chat = lab.Chat(brief)
            >>> (await chat.chat("anna", "What is the capital of France?")).response
            'Paris.'
            >>> await chat.chat("anna", "")
            Traceback (most recent call last):
                ...
            agentlab.errors.ChatInputError: message='': pass a non-empty text.
        """
        new_message = _user_message("message", message)
        return await self._answer(_checked_id(context_id), new_message, terminating_config)

    @needs_await("chat.invoke(…)")
    async def invoke(self, context_id: str, terminating_config: TerminatingConfig | None = None) -> ChatReply:
        """Run the agent on a context without a further message, and save its answer.

        Some providers refuse a conversation that ends with the assistant's own words: append another message with `add_message`.

        Example:
            >>> chat = lab.Chat(brief)
            >>> reply = await chat.add_message("anna", "What is the capital of France?", role="user")
            >>> (await chat.invoke("anna")).response
            'Paris.'
            >>> await chat.invoke("ben")
            Traceback (most recent call last):
                ...
            agentlab.errors.ContextNotFoundError: The context 'ben' has no message: begin it with chat or add_message, or ask...
        """
        return await self._answer(_checked_id(context_id), None, terminating_config)

    @needs_await("chat.add_ai_message(…)")
    async def add_ai_message(
        self, context_id: str, prompt: str | None = None, terminating_config: TerminatingConfig | None = None
    ) -> ChatReply:
        """Let the agent write the assistant's next message, as the `prompt` instructs it. Without a prompt it is the same as `invoke`.

        The prompt is appended to the conversation as a system message (as a user message if the provider accepts no system message
        there), and is saved with the answer. Without it, the context could begin with an assistant's message, or have two in a row,
        which some providers refuse.

        Example:
            >>> chat = lab.Chat(brief)
            >>> (await chat.add_ai_message("anna", "Name the capital of France.")).response
            'Paris.'
            >>> chat.messages("anna")[-1].role
            'assistant'
        """
        new_message = None if prompt is None else Message("system", _checked_text("prompt", prompt))
        return await self._answer(_checked_id(context_id), new_message, terminating_config)

    @needs_await("chat.ask(…)")
    async def ask(self, prompt: Content, terminating_config: TerminatingConfig | None = None) -> ChatReply:
        """Run the agent on a prompt without a context: it sees no other requests, and nothing is saved.

        Example:
            >>> chat = lab.Chat(brief)
            >>> (await chat.ask("What is the capital of France?")).response
            'Paris.'
            >>> chat.context_ids()  # nothing was saved
            []
        """
        return await self._answer(None, _user_message("prompt", prompt), terminating_config)

    @needs_await("chat.add_message(…)")
    async def add_message(self, context_id: str, message: Content, role: Literal["assistant", "user"] = "assistant") -> ChatReply:
        """Add a message of the assistant or of the user to the context; the agent does not run. Only one of the user may have parts.

        Example:
            >>> chat = lab.Chat(brief)
            >>> reply = await chat.add_message("anna", "Your parcel has arrived.")
            >>> chat.messages("anna")[0].role
            'assistant'
        """
        if role not in ("assistant", "user"):
            raise ChatInputError(f"role={_shown(role)}: pass 'assistant' or 'user'.")
        is_users = role == "user"
        new_message = _user_message("message", message) if is_users else Message(role, _checked_text("message", message))
        async with self._lock(_checked_id(context_id)):
            before = await _in_thread(lambda: self.contexts.messages(context_id))
            await _in_thread(lambda: self.contexts.append(context_id, [new_message], after=len(before)))
        return ChatReply(new_message.text, role == "assistant", (), messages=(new_message,))

    def messages(self, context_id: str) -> tuple[Message, ...]:
        """Return the conversation of a context; empty for a new context.

        Example:
            >>> chat = lab.Chat(brief)
            >>> reply = await chat.chat("anna", "What is the capital of France?")
            >>> [(message.role, message.text) for message in chat.messages("anna")]
            [('user', 'What is the capital of France?'), ('assistant', 'Paris.')]
        """
        return tuple(self.contexts.messages(_checked_id(context_id)))

    def context_ids(self) -> list[str]:
        """Return the ids of all contexts, sorted.

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
            ...     reply = await chat.ask("What is the capital of France?")
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

    def _lock(self, context_id: str) -> asyncio.Lock:
        return self._locks.setdefault((id(asyncio.get_running_loop()), context_id), asyncio.Lock())

    async def _answer(self, context_id: str | None, new_message: Message | None, config: TerminatingConfig | None) -> ChatReply:
        async with AsyncExitStack() as locks:
            before: list[Message] = []
            if context_id is not None:
                await locks.enter_async_context(self._lock(context_id))
                before = await _in_thread(lambda: self.contexts.messages(context_id))
            if new_message is None and not before:
                raise ContextNotFoundError(
                    f"The context {context_id!r} has no message: begin it with chat or add_message, or ask without a context."
                )
            run = self._run(before, new_message, config)
            await run
            run.stepper.end_waiting()
            result = run.stepper.outcome
            if result.stop_reason is StopReason.ERROR:
                raise RunFailed(result.detail, result) from result.error
            new = tuple(result.messages[len(before) :])
            kept = _complete_turns(new) if context_id is not None else ()
            if context_id is not None and kept:
                await _in_thread(lambda: self.contexts.append(context_id, kept, after=len(before)))
        saved = any(message.role == "assistant" for message in kept)
        notice = _notice(result)
        response = "\n\n".join([part for part in (_answer_text(result), notice) if part])
        generated = _generated(new, new_message)
        return ChatReply(response, saved, generated, result.stop_reason, result.detail, notice, result, new)

    def _run(self, before: Sequence[Message], new_message: Message | None, config: TerminatingConfig | None) -> Run:
        conversation = Conversation(before if new_message is None else [*before, new_message])
        try:
            settings = self.agent.settings_for(terminating=self._terminating(config))
        except (LimitError, ToolDefinitionError) as error:  # the agent's own settings were checked when it was created
            raise ChatInputError(f"terminating_config: {error}") from error
        return self.agent.run_on(conversation, settings, self.transport)

    def _terminating(self, config: TerminatingConfig | None) -> TerminatingTools | None:
        """Translate the endpoint's fields into those of TerminatingTools. Raises LimitError."""
        if isinstance(config, Mapping):
            for name in config:
                if name not in _FIELDS:
                    raise LimitError(unknown_name("field", str(name), list(_FIELDS)))
            if "tool_ids" not in config:
                raise LimitError('tool_ids is missing: name the tools that end the run, such as {"tool_ids": ["finalize"]}.')
            config = TerminatingTools(**{_FIELDS[name]: value for name, value in config.items() if value is not None})
        terminating = as_terminating(config)
        if terminating is None:
            return None
        return replace(terminating, tools=tuple([self.tool_ids.get(name, name) for name in terminating.tools]))


def _generated(messages: Sequence[Message], own: Message | None) -> tuple[Mapping[str, Any], ...]:
    """Return messages in the form of the chat endpoints, in which each text, tool call and tool result is an item. `own` is the
    request's own message, the only one from a person."""
    found: list[Mapping[str, Any]] = []
    for message in messages:
        if message.text:
            sender = "ai" if message.role == "assistant" else "human" if message is own else "system"
            found.append({"sender": sender, "message": message.text})
        for call in message.tool_calls:
            form = {"type": "tool_call", "tool_call_id": call.id, "tool_name": call.name}
            found.append({**form, "tool_input": _tool_input(call)})
        for result in message.tool_results:
            found.append({"type": "tool_response", "tool_call_id": result.call_id, "tool_output": result.content})
    return tuple(found)


def _tool_input(call: ToolCall) -> dict[str, Any]:
    """Return the arguments as a JSON object, also if the model wrote something else."""
    try:
        found = pydantic_core.from_json(whole(call.arguments.strip() or "{}"))
        json.dumps(found, allow_nan=False)
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {"raw": call.arguments}


def _complete_turns(new: Sequence[Message]) -> tuple[Message, ...]:
    """Drop unanswered messages and empty answers from the end, so that the conversation can continue. The request for a last answer
    concerned the budget of these turns."""
    kept = [message for message in new if message != Message("system", LAST_ANSWER)]
    while kept and (kept[-1].role in ("user", "system") or _is_empty(kept[-1])):
        kept.pop()
    return tuple(kept)


def _is_empty(message: Message) -> bool:
    return message.role == "assistant" and not message.text.strip() and not message.tool_calls


def _answer_text(result: RunResult) -> str:
    """Return the answer, or the output of the run's last tool (the text for the model if the output cannot be encoded)."""
    outputs = result.history[-1].tool_results[-1:] if result.history else ()
    if result.stop_reason is StopReason.TERMINATING_TOOL and outputs:
        return outputs[0].content
    if result.output is None:
        return result.text
    try:
        return as_text(result.output)
    except KeyboardInterrupt:
        raise
    except BaseException:  # a lazy value may raise any error while it is read
        return outputs[0].content if outputs else text_of(result.output)


def _notice(result: RunResult) -> str:
    """Return the notice for a run that ended before the agent was done."""
    if result.stop_reason is StopReason.AWAITING_APPROVAL:
        return "[A tool call needed an approval, and a chat has no one to ask without Agent(approver=…): it was not executed.]"
    return "" if result.terminated else f"[{result.detail}]"


def _checked_id(context_id: object) -> str:
    if isinstance(context_id, str) and 0 < len(context_id) <= MAX_ID_LENGTH and context_id.isascii() and context_id.isprintable():
        return context_id
    raise ChatInputError(
        f"context_id={_shown(context_id)}: pass 1 to {MAX_ID_LENGTH} printable ASCII characters, such as 'anna'."
    )


def _user_message(name: str, content: Content) -> Message:
    """Return the message of a text, or of a list of texts and parts. Raises ChatInputError."""
    if not isinstance(content, list | tuple):
        return Message("user", _checked_text(name, content))
    try:
        text, parts = joined(content, f"{name}=[…]")
    except ConfigurationError as error:
        raise ChatInputError(str(error)) from error
    return Message("user", _checked_text(name, text), parts=parts)


def _checked_text(name: str, text: object) -> str:
    if not isinstance(text, str) or not text.strip():
        raise ChatInputError(f"{name}={_shown(text)}: pass a non-empty text.")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ChatInputError(f"{name} contains half a surrogate pair at character {error.start}: send valid Unicode.") from error
    return text


def _shown(value: object) -> str:
    shown = ascii(value)
    return shown if len(shown) <= MAX_ID_LENGTH else f"{shown[:MAX_ID_LENGTH]}…"


async def _in_thread(work: Callable[[], T]) -> T:
    """Run the work in a thread, so that a slow disk delays no other request. Wait for its end even if the request is cancelled."""
    done = asyncio.ensure_future(off_the_loop(work))
    try:
        return await asyncio.shield(done)
    except asyncio.CancelledError:
        await asyncio.wait([done])
        done.cancelled() or done.exception()  # retrieve it, otherwise asyncio logs it
        raise

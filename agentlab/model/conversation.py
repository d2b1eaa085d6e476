"""The messages of a run: append only, with cheap views and cached encodings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import overload

from agentlab.model.messages import Message, ToolResult

NOT_DONE = "The run ended before this call; it was not executed."


class Conversation(Sequence[Message]):
    """Messages in order, append only.

    `view()` returns a read-only sequence of the current messages in O(1); messages added later do not change it. `encoded()` caches the
    bytes of each message per wire, so that each request of a long run encodes only the new messages.
    """

    __slots__ = ("_characters", "_counted", "_encoded", "_messages")

    def __init__(self, messages: Iterable[Message] = ()) -> None:
        self._messages: list[Message] = []
        self._messages.extend(messages)
        self._encoded: dict[str, list[bytes | None]] = {}
        self._counted = self._characters = 0

    @property
    def characters(self) -> int:
        """The characters of all messages; each is counted at most once."""
        for message in self._messages[self._counted :]:
            self._characters += _characters(message)
        self._counted = len(self._messages)
        return self._characters

    def append(self, message: Message) -> None:
        """Append a message."""
        self._messages.append(message)

    def answer_open_calls(self, results: Sequence[ToolResult]) -> None:
        """Answer the tool calls of the last message with their results. Calls without one get the error `not_executed`."""
        last = self._messages[-1]
        if last.role != "assistant" or not last.tool_calls:
            return
        if len(results) < len(last.tool_calls):
            given = {result.call_id: result for result in results}
            results = [
                given.get(call.id) or ToolResult(call.id, call.name, NOT_DONE, error="not_executed") for call in last.tool_calls
            ]
        self._messages.append(Message("tool", tool_results=tuple(results)))

    def replace_last(self, message: Message) -> None:
        """Replace the last message."""
        if self._counted == len(self._messages):
            self._characters -= _characters(self._messages[-1])
            self._counted -= 1
        self._messages[-1] = message
        for done in self._encoded.values():
            del done[len(self._messages) - 1 :]

    def view(self, tail: Sequence[Message] | None = None) -> ConversationView:
        """Return a view of the current messages. If a `tail` is given, its messages replace the last one."""
        if tail is None:
            return ConversationView(self, len(self._messages))
        return ConversationView(self, len(self._messages) - 1, tuple(tail))

    def encoded(self, wire: str, encode: Callable[[Message], bytes], length: int) -> list[bytes]:
        """Return the bytes of the first `length` messages for `wire`; each message without images and files is encoded at most once.
        The others are encoded each time: their bytes are kept once, in the message."""
        done = self._encoded.setdefault(wire, [])
        done.extend(None if any(message.all_parts()) else encode(message) for message in self._messages[len(done) : length])
        return [encode(self._messages[place]) if one is None else one for place, one in enumerate(done[:length])]

    def __len__(self) -> int:
        return len(self._messages)

    def __iter__(self) -> Iterator[Message]:
        return iter(self._messages)

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | Sequence[Message]:
        return self._messages[index]


def _characters(message: Message) -> int:
    return (
        len(message.text)
        + sum([len(call.name) + len(call.arguments) for call in message.tool_calls])
        + sum([len(result.content) for result in message.tool_results])
    )


class ConversationView(Sequence[Message]):
    """The first `length` messages of a conversation, followed by a `tail` that does not belong to it."""

    __slots__ = ("_conversation", "_length", "_tail")

    def __init__(self, conversation: Conversation, length: int, tail: tuple[Message, ...] = ()) -> None:
        self._conversation = conversation
        self._length = length
        self._tail = tail

    def encoded(self, wire: str, encode: Callable[[Message], bytes]) -> list[bytes]:
        """Return the bytes of the messages for `wire`; those of the conversation are encoded at most once."""
        encoded = self._conversation.encoded(wire, encode, self._length)
        return [*encoded, *map(encode, self._tail)] if self._tail else encoded

    def __len__(self) -> int:
        return self._length + len(self._tail)

    def __iter__(self) -> Iterator[Message]:
        yield from (self._conversation[index] for index in range(self._length))
        yield from self._tail

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | Sequence[Message]:
        if isinstance(index, slice):
            return [self[position] for position in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        index %= len(self)
        return self._conversation[index] if index < self._length else self._tail[index - self._length]


def encode_messages(messages: Sequence[Message], wire: str, encode: Callable[[Message], bytes]) -> list[bytes]:
    """Return the bytes of each message by `encode`, from the conversation's cache if there is one."""
    if isinstance(messages, ConversationView):
        return messages.encoded(wire, encode)
    return [encode(message) for message in messages]

"""The messages of a run, and the merge of a truncated text with its continuation.

When texts are merged, the second piece is appended unchanged, unless it begins with a repetition that no exact continuation can
begin with: the first piece ends within a word, a sentence or a line, and the second starts again at that sentence or line, some
words before, or with the whole answer (`the boats were asl` and `The boats were asleep`). A dropped repetition has at least 16
characters and four different words (eight over several lines), occurs once in each piece, and is followed by new text. Possible
coincidences stay: anything shorter, digits, cells, a single name or address, white space, and everything after a space or line
break, since data, code and songs repeat whole lines. Nothing is added.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import overload

from agentlab.model.messages import Message, ToolResult

SHORTEST = 16
"""Characters of a repetition that cannot be chance."""

FEWEST_WORDS, FEWEST_WORDS_OF_LINES = 4, 8
"""Different words of a repetition within one line, and over several lines: blocks of code repeat a few words by chance."""

SHORTEST_LINE = 4
"""Characters of an unfinished line that is repeated after a code fence, which shows that the block begins again."""

_WORDS_ONLY = re.compile(r"[\w'’-]+(?:[,;:.!?]? [\w'’-]+)*[.!?]?")

_SENTENCE_END = re.compile(r"[.!?][\"'”’)]?\s+\Z")

_MARK = re.compile(r"(?:[-*+] |#{1,6} |`{3}|~{3})\S")

_FENCE = re.compile(r"^[ \t]*(`{3,}|~{3,})[ \t]*([^`\n]*?)[ \t]*$", re.MULTILINE)

_FENCE_AGAIN = re.compile(r"(?:`{3,}|~{3,})[ \t]*([\w+#.-]+)[ \t]*\n")


def repeated(before: str, after: str) -> int:
    """Return the number of characters at the start of `after` that certainly repeat `before`; 0 if in doubt."""
    if not before or not after or before[-1].isspace():
        return 0
    fence = _FENCE_AGAIN.match(after)
    if fence is not None and before[-1].isalnum() and fence[1] == _open_block(before):  # a block is not opened within a line
        length = overlap(before, after[fence.end() :])
        start = len(before) - length
        if length < len(after) - fence.end() and _at_line_start(before, start) and len(before[start:].strip()) >= SHORTEST_LINE:
            return fence.end() + length
    length = overlap(before, after, SHORTEST)
    return length if SHORTEST <= length < len(after) and _is_sure(before, after, length) else 0


def _is_sure(before: str, after: str, length: int) -> bool:
    """True if an exact continuation cannot contain this repetition."""
    start, text = len(before) - length, after[:length]
    first, last, several_lines = text[0], text[-1], "\n" in text
    words = {word for word in text.split() if any(map(str.isalpha, word))}
    if len(words) < (FEWEST_WORDS_OF_LINES if several_lines else FEWEST_WORDS) or (first.isdigit() and last.isdigit()):
        return False
    if before.find(text) != start or after.find(text, 1) >= 0 or (text + text).find(text, 1) != length:
        return False  # a text that repeats itself may do so again
    if start == 0 and (several_lines or first in "{["):  # the whole answer, started again within a line
        return several_lines or last.isalnum()
    at_line_start = _at_line_start(before, start)
    if at_line_start and _MARK.match(text) is not None:
        return last.isalnum()
    if not first.isalnum() or (start and not before[start - 1].isspace()):
        return False
    at_start = at_line_start or _SENTENCE_END.search(before, max(start - 8, 0), start) is not None
    if last in ".!?":  # a sentence, followed by the next one without a space
        return at_start and first.isupper()
    return last.isalnum() and (at_start or _WORDS_ONLY.fullmatch(text) is not None)


def overlap(before: str, after: str, shortest: int = 1) -> int:
    """Return the length of the longest start of `after` that is an end of `before`, 0 if there is none of `shortest` characters."""
    tail, end = before[-shortest:], len(after)
    while (place := after.rfind(tail, 0, end)) >= 0:
        length = place + len(tail)
        if before.endswith(after[:length]):
            return length
        end = length - 1
    return 0


def _at_line_start(text: str, place: int) -> bool:
    """True if only indentation is before this place in its line."""
    return not text[text.rfind("\n", 0, place) + 1 : place].strip()


def _open_block(text: str) -> str | None:
    """Return the language of the code block that is open at the end of the text; None if none is."""
    fence = language = ""
    for found in _FENCE.finditer(text):
        if not fence:
            fence, language = found[1], found[2]
        elif found[1].startswith(fence) and not found[2]:
            fence = ""
    return language if fence else None


NOT_DONE = "The run ended before this call; it was not executed."


class Conversation(Sequence[Message]):
    """Messages in order, append only.

    `view()` is a read-only sequence of the current messages, in O(1); messages added later do not change it. `encoded()` caches each
    message's bytes per wire, so that a request of a long run encodes only the new messages.
    """

    __slots__ = ("_encoded", "_messages", "characters")

    def __init__(self, messages: Iterable[Message] = ()) -> None:
        self._messages: list[Message] = []
        self._encoded: dict[str, list[bytes]] = {}
        self.characters = 0
        for message in messages:
            self.append(message)

    def append(self, message: Message) -> None:
        """Add a message at the end; `characters` counts the text of all messages."""
        self._messages.append(message)
        self.characters += _characters(message)

    def answer_open_calls(self, results: Sequence[ToolResult]) -> None:
        """Answer the tool calls of the last message with these results, in order; calls without one get `not_executed`."""
        last = self._messages[-1]
        if last.role != "assistant" or not last.tool_calls:
            return
        rest = [ToolResult(call.id, call.name, NOT_DONE, error="not_executed") for call in last.tool_calls[len(results) :]]
        self.append(Message("tool", tool_results=(*results, *rest)))

    def replace_last(self, message: Message) -> None:
        """Replace the last message."""
        self.characters -= _characters(self._messages[-1])
        self._messages[-1] = message
        self.characters += _characters(message)
        for done in self._encoded.values():
            del done[len(self._messages) - 1 :]

    def view(self, tail: Sequence[Message] | None = None) -> ConversationView:
        """Return the current messages, fixed in length. The messages of a `tail` replace the last one."""
        if tail is None:
            return ConversationView(self, len(self._messages))
        return ConversationView(self, len(self._messages) - 1, tuple(tail))

    def encoded(self, wire: str, encode: Callable[[Message], bytes], length: int) -> list[bytes]:
        """Return the first `length` messages in `wire`'s bytes, each encoded at most once."""
        done = self._encoded.setdefault(wire, [])
        done.extend(encode(message) for message in self._messages[len(done) : length])
        return done if len(done) == length else done[:length]

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
    """The first `length` messages of a conversation, followed by a `tail` that is not part of it."""

    __slots__ = ("_conversation", "_length", "_tail")

    def __init__(self, conversation: Conversation, length: int, tail: tuple[Message, ...] = ()) -> None:
        self._conversation = conversation
        self._length = length
        self._tail = tail

    def encoded(self, wire: str, encode: Callable[[Message], bytes]) -> list[bytes]:
        """Return the messages in `wire`'s bytes; those of the conversation are encoded at most once."""
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
    """Return each message as bytes by `encode`, from the conversation's cache if it has one."""
    if isinstance(messages, ConversationView):
        return messages.encoded(wire, encode)
    return [encode(message) for message in messages]

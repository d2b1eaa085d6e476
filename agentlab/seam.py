"""Merging the two pieces of a text that was cut: where the model continues, and what it repeats.

The second piece is appended unchanged, unless it begins with a repetition that no exact continuation can begin with: the first piece
ends within a word, a sentence or a line, and the second starts again at that sentence or line, some words before, or with the whole
answer (`the boats were asl` and `The boats were asleep`). A dropped repetition has at least 16 characters and four different words
(eight over several lines), occurs once in each piece, and is followed by new text. What could be chance is kept: anything shorter,
digits, cells, a single name or address, white space, and everything after a space or line break, since data, code and songs repeat
whole lines. Nothing is ever added.
"""

from __future__ import annotations

import re

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

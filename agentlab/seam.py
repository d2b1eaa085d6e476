"""Two pieces of one text put together: what a model said before it was cut, and what it said when it was asked to go on.

Asked to go on exactly where they stopped, models do just that, or begin again with the last word, line, sentence or all of it, open a
code fence again, or say an ellipsis first. So the longest end of the first piece with which the second one begins is taken once.

Where a text repeats itself just at the cut (`bal` and `l`, `10` and `000`) no rule can tell going on from saying again; a provider that
goes on behind its own words is spared the question.
"""

from __future__ import annotations

import re

LONGEST_OVERLAP = 8_000
"""Characters that are looked at for an overlap, on either side of the seam."""

SURE_OVERLAP = 4
"""Characters from which on a repetition is seen behind an ellipsis or an opened fence."""

_LEAD_IN = re.compile(r"\s*(?:\.{3}|…)?\s*")
_FENCE = re.compile(r"^[ \t]*(?:`{3,}|~{3,})", re.MULTILINE)
_FENCE_AGAIN = re.compile(r"\s*(?:`{3,}|~{3,})[\w+#.-]+[ \t]*\n")  # without a language it closes the block


def joined(before: str, after: str) -> str:
    """The text of both pieces, with nothing doubled or lost at the seam."""
    repeated = overlap(before, after)
    if repeated or not before or not after:
        return before + after[repeated:]
    again = _FENCE_AGAIN.match(after)
    if again is not None and _in_fence(before):  # the code block is still open
        rest = after[again.end() :]
        return before + rest[overlap(before, rest) :]
    lead = _LEAD_IN.match(after)
    if lead is not None and lead.end():
        rest = after[lead.end() :]
        repeated = overlap(before, rest)
        if repeated >= SURE_OVERLAP:
            return before + rest[repeated:]
    return before + (" " if _lost_its_space(before, after) else "") + after


def _lost_its_space(before: str, after: str) -> bool:
    """Whether the space between two words is missing: several servers strip the beginning of what a model says."""
    if before[-1] in ",;":
        return after[0].isalpha()
    return before[-1] in ".!?:" and after[0].isupper()


def overlap(before: str, after: str) -> int:
    """The length of the longest beginning of `after` that is an end of `before`, in linear time (Knuth, Morris and Pratt)."""
    before, after = before[-LONGEST_OVERLAP:], after[:LONGEST_OVERLAP]
    if not before or not after:
        return 0
    table = [0] * len(after)
    matched = 0
    for position in range(1, len(after)):
        while matched and after[position] != after[matched]:
            matched = table[matched - 1]
        matched += after[position] == after[matched]
        table[position] = matched
    matched = 0
    for character in before:
        if matched == len(after):
            matched = table[matched - 1]
        while matched and character != after[matched]:
            matched = table[matched - 1]
        matched += character == after[matched]
    return matched


def _in_fence(text: str) -> bool:
    return len(_FENCE.findall(text)) % 2 == 1

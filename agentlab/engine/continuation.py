"""Further calls for an answer that was cut off: what to ask, how the two texts are joined, and how many calls are allowed.

When two texts are merged, the second is appended unchanged, unless it begins with a repetition that cannot be chance: no exact
continuation would be glued to the first text like that (`the boats were asl` and `The boats were asleep`). See `repeated`. Nothing is
ever added.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import replace

from agentlab._internal.values import dataclass
from agentlab.engine.termination import is_cut_off
from agentlab.limits.budget import LEAST_OUTPUT_TOKENS
from agentlab.limits.policies import ContinuationPolicy
from agentlab.limits.reading import Action, Decision
from agentlab.model.finish_reasons import FinishReason, StopReason
from agentlab.model.messages import Message, ToolCall
from agentlab.model.responses import ModelResponse, moved
from agentlab.providers.wires.read import free_id
from agentlab.records.events import ContinuationOutcome
from agentlab.records.result import INCREASE_BUDGET, larger_cap
from agentlab.records.step import ModelCall, Seam

FEWEST_TOKENS = 8
"""With fewer tokens in a prefill, the token count is no evidence of an echo."""


@dataclass(frozen=True, slots=True)
class ContinuationRequest:
    """A request for the rest of an answer: the answer so far, and the messages sent in its place.

    `exact` is True if the answer is prefilled: the model continues exactly where it ended. `tokens` counts the tokens of the answer so
    far, None if not known.
    """

    so_far: ModelResponse
    messages: tuple[Message, ...]
    exact: bool
    cap: int | None = None
    tokens: int | None = None

    def merge(self, rest: ModelResponse, call: int) -> tuple[ModelResponse, Seam | None]:
        """Merge the rest, from the call of this number: one text, the complete tool calls of both, and the finish reason of the rest.

        Also returns the seam between the two texts, if both have text.
        """
        said, seam = self.so_far.text, None
        before = len(said)
        if said and rest.text:
            given = said.rstrip() if self.exact else said  # a prefill is sent without trailing white space
            again = self._echoed(given, rest) if self.exact else repeated(given, rest.text)
            seam = Seam(call, len(given), said[len(given) :] + rest.text[:again])
            said, before = given + rest.text[again:], len(given) - again
        merged = replace(
            rest,
            text=said or rest.text,
            tool_calls=_calls_of_both(self.so_far.tool_calls, rest.tool_calls),
            reasoning=self.so_far.reasoning + rest.reasoning,
            native=None,
            holes=(*self.so_far.holes, *moved(rest.holes, before)),
        )
        return merged, seam

    def _echoed(self, given: str, rest: ModelResponse) -> int:
        """Return the length of a prefill that the server repeats before the rest, as llama.cpp does; 0 if in doubt.

        The token count shows an echo: if the text counts fewer tokens than the prefill alone, the prefill was not generated again.
        """
        generated = rest.usage.output_tokens
        if self.tokens is None or generated is None or self.tokens < FEWEST_TOKENS:
            return len(given) if repeated(given, rest.text) == len(given) else 0
        is_echo = rest.text.startswith(given) and generated - (len(rest.text) > len(given)) < self.tokens
        return len(given) if is_echo else 0


def _calls_of_both(first: tuple[ToolCall, ...], rest: tuple[ToolCall, ...]) -> tuple[ToolCall, ...]:
    """Return the complete calls of the first answer, then those of the rest; ids stay unique.

    The model does not see which of its calls were complete and repeats them: each repetition is left out once.
    """
    calls = [call for call in first if not is_cut_off(call)]
    earlier = [(call.name, call.arguments) for call in calls]
    ids = {call.id for call in calls}
    for call in rest:
        if (call.name, call.arguments) in earlier:
            earlier.remove((call.name, call.arguments))
            continue
        new_id = free_id(call.id, ids)
        ids.add(new_id)
        calls.append(call if new_id == call.id else replace(call, id=new_id))
    return tuple(calls)


def _tokens_of_text(calls: list[ModelCall]) -> int | None:
    """Return the tokens of the text of these calls; None if unknown, or if some tokens were not for text."""
    total = 0
    for response in [call.response for call in calls if call.used]:
        tokens, paused = response.usage.output_tokens, response.signal.finish_reason is FinishReason.PAUSED
        if tokens is None or paused or response.tool_calls or response.usage.reasoning_tokens:
            return None
        total += tokens
    return total


class FurtherCalls:
    """Counts the further calls within one step: `continuations` for the rest of a text, `repairs` for an incomplete tool call."""

    __slots__ = ("continuations", "cut_s", "issue", "outcome", "policy", "repairs", "repairs_reported")

    def __init__(self, policy: ContinuationPolicy) -> None:
        self.policy = policy
        self.continuations = 0
        self.repairs = 0
        self.repairs_reported = 0
        self.issue = ""
        self.outcome: ContinuationOutcome = "completed"
        self.cut_s = 0.0

    @property
    def attempts(self) -> int:
        """Further calls of either kind."""
        return self.continuations + self.repairs

    def pending(self, action: Action, calls: list[ModelCall], answer: ModelResponse, policy: ContinuationPolicy) -> str:
        """Return the event in ContinuePending: `allowed`, or `at_cap` with the kind of cap in `self.outcome`."""
        self.policy = policy
        made, most = (
            (self.repairs, policy.max_tool_repair_attempts)
            if action is Action.REPAIR_TOOL_CALL
            else (self.continuations, policy.max_continuations_per_turn)
        )
        if made >= most:
            self.outcome = "retry_limit"
            return "at_cap"
        left = self.tokens_left(calls)
        if (left is not None and left < least_tokens(calls)) or len(answer.text) >= policy.max_total_output_chars_per_turn:
            self.outcome = "budget_exhausted"
            return "at_cap"
        return "allowed"

    def tokens_left(self, calls: list[ModelCall]) -> int | None:
        """Return the output tokens that are left for the step; None if not known. The policy derives the total from the first call's
        cap, or if it had none from its output tokens."""
        first = calls[0]
        cap = self.policy.completion_tokens(first.requested_cap or first.usage.output_tokens)
        return None if cap is None else cap - sum(call.usage.output_tokens or 0 for call in calls)

    def request(self, answer: ModelResponse, action: Action, calls: list[ModelCall], *, prefills: bool) -> ContinuationRequest:
        """Count a further call, and return its request."""
        cap, left = calls[-1].requested_cap, self.tokens_left(calls)
        if action is Action.REPAIR_TOOL_CALL:
            self.repairs += 1
            prefills = False  # an incomplete call is not a text to continue
            cap = None if cap is None else left  # the same cap would cut it off again
        else:
            self.continuations += 1
            cap = cap if cap is None or left is None else min(cap, left)
        prefills = prefills and not answer.reasoning  # Anthropic and llama.cpp reject a prefill for a reasoning model
        said = answer.text.rstrip() if prefills else answer.text
        partial = (Message("assistant", said),) if said.strip() else ()
        hint = () if prefills and partial else (Message("system", self.policy.hint),)
        return ContinuationRequest(answer, (*partial, *hint), bool(prefills and partial), cap, _tokens_of_text(calls))

    def give_up(self, calls: list[ModelCall], answer: ModelResponse, why: str = "") -> Decision:
        """Return the decision of AbortPartial: the answer is kept, with a notice. `why` is given if the cause is not a cap."""
        problem = "A tool call was cut off and was not executed" if self.issue else "The answer was cut off and is incomplete"
        metadata = {
            **larger_cap(max(call.requested_cap or 0 for call in calls), answer),
            "outcome": self.outcome,
            "attempts": self.attempts,
        }
        if not why:
            cap, effect = self._reached_cap(calls, answer)
            why, metadata["capped_by"] = f"{effect} ({cap})", cap
        return Decision(Action.ABORT, f"{problem}: {why}.", StopReason.TRUNCATED, INCREASE_BUDGET, metadata)

    def _reached_cap(self, calls: list[ModelCall], answer: ModelResponse) -> tuple[str, str]:
        """Return the field of the policy that allowed no further call, and its effect in words."""
        left, first = self.tokens_left(calls), calls[0]
        if self.outcome == "budget_exhausted" and left is not None and left < least_tokens(calls):
            most = self.policy.completion_tokens(first.requested_cap or first.usage.output_tokens)
            rest = f" but for {left}" if left > 0 else ""
            return "max_total_completion_tokens_per_turn", f"the step's {most} output tokens are used{rest}"
        if self.outcome == "budget_exhausted":
            return "max_total_output_chars_per_turn", f"it has {len(answer.text):,} characters"
        if self.issue:
            return "max_tool_repair_attempts", f"the model was asked {self.repairs} more time{'s' * (self.repairs != 1)}"
        return "max_continuations_per_turn", f"it was continued {self.continuations} time{'s' * (self.continuations != 1)}"


def least_tokens(calls: Sequence[ModelCall]) -> int:
    """Return the fewest tokens that a further call needs: `LEAST_OUTPUT_TOKENS`, or the output cap if it is lower. 1 without a cap."""
    return min(LEAST_OUTPUT_TOKENS, calls[-1].requested_cap or 1)


def has_incomplete_call(response: ModelResponse) -> bool:
    """True if a tool call of the response is incomplete, or the provider could not parse it."""
    signal, calls = response.signal, response.tool_calls
    cut = signal.finish_reason is FinishReason.MAX_TOKENS and not all(call.arguments.strip() for call in calls)
    return signal.repairable or cut or any(map(is_cut_off, calls))


def issue_of(response: ModelResponse) -> str:
    """Return what is wrong with a tool call that the model is asked to repeat."""
    return "malformed" if response.signal.finish_reason is FinishReason.ERROR else "incomplete"


# What the second text repeats ---------------------------------------------------------------------------------------------------

SHORTEST = 16
"""The fewest characters of a repetition that cannot be chance; in scripts without spaces, the fewest different letters."""

FEWEST_WORDS, FEWEST_WORDS_OF_LINES = 4, 8
"""The fewest different words of a repetition in one line, and over several lines: blocks of code repeat a few words by chance."""

SEAM = 4
"""So many characters on each side of a seam: if they meet elsewhere too, the text joins its parts like this."""

SHORTEST_LINE = 4
"""The fewest characters of an unfinished line whose repetition after a code fence shows that the block begins again."""

_IDENTIFIER = re.compile(r"\d[^\W\d_]|[^\W\d_]\d|_")

_CODE = re.compile(rf"[=<>{{}}|\\/@^~`+#]|\w[(\[]|[^\W\d_][,:;.][^\W\d_]|{_IDENTIFIER.pattern}")
"""Characters of data, code and addresses, which a word of prose does not have."""

_SENTENCE_END = re.compile(r"[.!?؟۔।][\"'”’)]?\s+\Z")

_MARK = re.compile(r"(?:[-*+] |#{1,6} |`{3}|~{3})(?=\S)")

_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)
"""Scripts without spaces between words: Thai, Lao, Burmese, Khmer, Japanese, Chinese."""

_FENCE = re.compile(r"^[ \t]*(`{3,}|~{3,})[ \t]*([^`\n]*?)[ \t]*$", re.MULTILINE)

_FENCE_AGAIN = re.compile(r"(?:`{3,}|~{3,})[ \t]*([\w+#.-]+)[ \t]*\n")


def repeated(before: str, after: str) -> int:
    """Return the number of characters at the start of `after` that certainly repeat the end of `before`; 0 if in doubt.

    A repetition has at least 16 characters, occurs once in each text, and is followed by new text. It is certain where it would be
    glued to the first text without the space or the mark that the text has elsewhere, that is if it is

    - prose of four different words (eight over several lines) from the start of a word, up to a letter or the end of a sentence;
    - in a script without spaces, 16 different letters: of one clause, or from the start of a clause to four letters of another;
    - the whole answer, over several lines or as JSON, unless it ends in a bracket or semicolon;
    - the unfinished line of a block of code, after the fence of the block.

    Numbers, identifiers and texts in capitals have no words, and no repetition begins or ends in an address.
    """
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
    seam = text[-SEAM:] + text[:SEAM]
    if before.find(text) != start or after.find(text, 1) >= 0 or (before + after).count(seam) > 1:
        return False  # a text that repeats itself may do so again
    if _is_unspaced(text[0]) and _is_unspaced(text[-1]):
        return _is_sure_unspaced(before[:start], text)
    words, several_lines = {word for word in text.split() if _is_word(word)}, "\n" in text
    if len(words) < (FEWEST_WORDS_OF_LINES if several_lines else FEWEST_WORDS) or text.isupper():
        return False
    if start == 0 and several_lines and text[-1] not in "}])>;":
        return True
    if start == 0 and text[0] in "{[" and text[-1].isalnum():
        return True
    at_line_start = _at_line_start(before, start)
    prose = _MARK.sub("", text, count=1) if at_line_start else text
    begins_word = prose[0].isalnum() and (start == 0 or before[start - 1].isspace())
    first, *_, last = prose.split()
    if not begins_word or _CODE.search(f"{first} {last}") or (text[0].isdigit() and text[-1].isdigit()):
        return False
    if text[-1] in ".!?؟۔।":  # a sentence, followed by the next one without a space
        return not prose[0].islower() and (at_line_start or _SENTENCE_END.search(before, max(start - 8, 0), start) is not None)
    return _in_word(text[-1])


def _is_sure_unspaced(head: str, text: str) -> bool:
    """The same for a text in a script without spaces, after this head: the last clause of the text and the first follow each other."""
    last_clause = text[1 + max((place for place, one in enumerate(text) if not _in_word(one)), default=-1) :]
    letters, last_letters = (len(set(filter(_is_unspaced, part))) for part in (text, last_clause))
    if letters < SHORTEST or last_letters < FEWEST_WORDS or head.endswith(text[-1]):
        return False
    return last_clause == text or not head or not _in_word(head[-1])


def _is_unspaced(character: str) -> bool:
    """True for a letter of a script without spaces, but for no numeral."""
    return _UNSPACED.match(character) is not None and _in_word(character) and not character.isnumeric()


def _in_word(character: str) -> bool:
    """True for a letter, a digit, or a mark that belongs to the letter before it, such as a vowel in Hindi or Thai."""
    return character.isalnum() or unicodedata.category(character).startswith("M")


def _is_word(text: str) -> bool:
    """True for a word of at least two letters, which is no number or identifier."""
    return sum(map(str.isalpha, text)) > 1 and _IDENTIFIER.search(text) is None


def overlap(before: str, after: str, shortest: int = 1) -> int:
    """Return the length of the longest start of `after` that is also an end of `before`; 0 if none has `shortest` characters."""
    tail, end = before[-shortest:], len(after)
    while (place := after.rfind(tail, 0, end)) >= 0:
        length = place + len(tail)
        if before.endswith(after[:length]):
            return length
        end = length - 1
    return 0


def _at_line_start(text: str, place: int) -> bool:
    """True if only indentation precedes this place in its line."""
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

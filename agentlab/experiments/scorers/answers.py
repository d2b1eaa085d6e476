"""Scorers that compare an answer with the target of its task. The answer is `result.text`: the output if the run has one, else the
model's last text, also if a limit ended the run. If the target is a list, one of its values has to be met."""

from __future__ import annotations

import contextlib
import json
import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, ClassVar

from agentlab._internal.safe_text import cut
from agentlab.errors import ConfigurationError
from agentlab.experiments.scorers.base import Score
from agentlab.experiments.tasks import Task
from agentlab.records.result import RunResult


def targets_of(task: Task, scorer: object) -> list[Any]:
    """Return the right answers. Raises ConfigurationError if the task has none."""
    if task.target is None or task.target == []:
        raise ConfigurationError(f"{type(scorer).__name__} compares with a target, and the task {task.id!r} has none.")
    return task.target if isinstance(task.target, list) else [task.target]


def _as_text(target: Any) -> str:
    return target if isinstance(target, str) else json.dumps(target, ensure_ascii=False)


def _shown(text: str) -> str:
    return repr(cut(text, 120))


@dataclass(frozen=True, slots=True)
class Exact:
    """True if the answer is the target, except for white space around it.

    Example:
        >>> lab.scorers.Exact()(await brief.run("What is the capital of France?"), lab.Task("?", target="Paris."))
        Score(value=True, why="'Paris.'", parts={})
    """

    needs_target: ClassVar[bool] = True

    def __call__(self, result: RunResult, task: Task) -> Score:
        """Return the score of one run."""
        answer = result.text.strip()
        return Score(answer in [_as_text(one).strip() for one in targets_of(task, self)], _shown(answer))


@dataclass(frozen=True, slots=True)
class Normalised:
    """True if the answer is the target, without regard to case, punctuation, white space and the articles a, an and the.

    Example:
        >>> lab.scorers.Normalised()(await brief.run("What is the capital of France?"), lab.Task("?", target="paris")).value
        True
    """

    needs_target: ClassVar[bool] = True

    def __call__(self, result: RunResult, task: Task) -> Score:
        """Return the score of one run."""
        answer = normalised(result.text)
        return Score(answer in [normalised(_as_text(one)) for one in targets_of(task, self)], _shown(answer))


def normalised(text: str) -> str:
    """Return a text in lower case, without punctuation and English articles, with single spaces (NFKC)."""
    text = unicodedata.normalize("NFKC", text).casefold()
    text = "".join(" " if unicodedata.category(sign)[0] in "PZC" else sign for sign in text)
    return " ".join(word for word in text.split() if word not in ("a", "an", "the"))


@dataclass(frozen=True, slots=True)
class Includes:
    """True if the target occurs in the answer; of several targets one, or with `all` every one.

    Example:
        >>> lab.scorers.Includes()(await brief.run("What is the capital of France?"), lab.Task("?", target="paris")).value
        True
    """

    all: bool = False
    ignore_case: bool = True
    needs_target: ClassVar[bool] = True

    def __call__(self, result: RunResult, task: Task) -> Score:
        """Return the score of one run."""
        targets = [_as_text(one) for one in targets_of(task, self)]
        answer = result.text.casefold() if self.ignore_case else result.text
        missing = [one for one in targets if (one.casefold() if self.ignore_case else one) not in answer]
        right = not missing if self.all else len(missing) < len(targets)
        return Score(right, "" if right else f"without {', '.join(map(_shown, missing))}")


@dataclass(frozen=True, slots=True)
class Matches:
    r"""True if a regular expression is found in the answer. With a group in it, the last match's group has to be the target.

    Example:
        >>> capital = lab.scorers.Matches(r"(\w+)\.")
        >>> capital(await brief.run("What is the capital of France?"), lab.Task("?", target="Paris"))
        Score(value=True, why="'Paris'", parts={})
    """

    pattern: str
    ignore_case: bool = False

    def __post_init__(self) -> None:
        try:
            re.compile(self.pattern)
        except (re.error, TypeError) as error:
            raise ConfigurationError(f"Matches({self.pattern!r}): {error}.") from error

    @property
    def needs_target(self) -> bool:
        """True if the expression has a group."""
        return re.compile(self.pattern).groups > 0

    def __call__(self, result: RunResult, task: Task) -> Score:
        """Return the score of one run."""
        found = [*re.finditer(self.pattern, result.text, re.IGNORECASE if self.ignore_case else 0)]
        if not found:
            return Score(False, f"no match of {self.pattern!r}")
        if not self.needs_target:
            return Score(True, _shown(found[-1].group()))
        group = next((one for one in found[-1].groups() if one is not None), "")
        targets = [_as_text(one) for one in targets_of(task, self)]
        same = [group.casefold() == one.casefold() if self.ignore_case else group == one for one in targets]
        return Score(any(same), _shown(group))


_NUMBER = re.compile(
    r"(?<![\w.])([-+\u2212]?)(?:(\d++(?:[,'\u00a0\u2009\u202f]\d++)*+)((?:\.\d+)?)|()(\.\d+))((?:[eE][-+]?\d+)?)"
)
"""Sign, digits with separators, fraction, exponent. Possessive, so that a long answer takes no longer than its length."""
_THOUSANDS = re.compile(r"\d{1,3}(?:\D\d{2,3})*\D\d{3}")
_MOST_FAULTS = 1_000
"""Places of an answer that are tried as JSON in vain: each may be read to the end."""


@dataclass(frozen=True, slots=True)
class Numeric:
    """True if a number of the answer is the target, up to `tolerance` or to the share `relative` of the target.

    `which` number: `last`, `first`, or `only`, which is wrong if the answer has several. Commas, thin spaces and apostrophes separate
    thousands; a single comma that is not followed by three digits is a decimal comma. Units and percent signs are not read.

    Example:
        >>> lab.scorers.Numeric(0.01)(await brief.run("What is the capital of France?"), lab.Task("?", target=3.14))
        Score(value=False, why='no number', parts={})
    """

    tolerance: float = 0
    relative: float = 0
    which: str = "last"
    needs_target: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.which not in ("last", "first", "only"):
            raise ConfigurationError(f"Numeric(which={self.which!r}): choose last, first or only.")
        for name in ("tolerance", "relative"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
                raise ConfigurationError(f"Numeric({name}={value!r}): pass a number of at least 0.")

    def __call__(self, result: RunResult, task: Task) -> Score:
        """Return the score of one run."""
        targets = [_target_number(one, task) for one in targets_of(task, self)]
        numbers = numbers_in(result.text)
        if not numbers:
            return Score(False, "no number")
        if self.which == "only" and len(set(numbers)) > 1:
            return Score(False, f"{len(numbers)} numbers")
        number = numbers[0 if self.which == "first" else -1]
        return Score(any(self._is(number, one) for one in targets), f"read {number}")

    def _is(self, number: Decimal, target: Decimal) -> bool:
        allowed = max(Decimal(str(self.tolerance)), Decimal(str(self.relative)) * abs(target))
        return abs(number - target) <= allowed


def numbers_in(text: str) -> list[Decimal]:
    """Return the numbers of a text in order."""
    found = []
    for sign, digits, fraction, _, alone, exponent in _NUMBER.findall(text):
        parts = re.split(r"\D", digits)
        if _THOUSANDS.fullmatch(digits):
            parts = ["".join(parts)]
        elif "," in digits and len(parts) == 2 and not fraction:
            parts = [digits.replace(",", ".")]
        parts[0] = sign.replace("\u2212", "-") + parts[0]
        parts[-1] += fraction + alone + exponent
        found += [number for number in map(Decimal, parts) if abs(number.adjusted()) <= 1_000]
    return found


def _target_number(target: Any, task: Task) -> Decimal:
    numbers = [] if isinstance(target, bool) else numbers_in(str(target))
    if len(numbers) != 1:
        raise ConfigurationError(f"Numeric: the target {target!r} of the task {task.id!r} is not a number.")
    return numbers[0]


@dataclass(frozen=True, slots=True)
class JsonEqual:
    """True if the answer is JSON that equals the target, numbers up to `tolerance`; also for the output of an agent with `output=`.

    The JSON may be in a code block, or between other text. The order of keys does not matter, that of lists unless `any_order`. With
    `subset`, the answer may have further keys.

    Example:
        >>> lab.scorers.JsonEqual()(await brief.run("What is the capital of France?"), lab.Task("?", target={"city": "Paris"}))
        Score(value=False, why='no JSON', parts={})
    """

    tolerance: float = 0
    any_order: bool = False
    subset: bool = False
    needs_target: ClassVar[bool] = True

    def __call__(self, result: RunResult, task: Task) -> Score:
        """Return the score of one run."""
        targets_of(task, self)
        found = json_in(result.text)
        if found is _NO_JSON:
            return Score(False, "no JSON")
        target = json_or(task.target) if isinstance(task.target, str) else task.target
        why = self._difference(found, target, "")
        return Score(not why, why)

    def _difference(self, found: Any, target: Any, where: str) -> str:
        """Return where the two differ; "" if they do not."""
        at = where or "the answer"
        if isinstance(target, Mapping) and isinstance(found, Mapping):
            missing = [key for key in target if key not in found]
            more = [] if self.subset else [key for key in found if key not in target]
            if missing or more:
                return f"{at} {'lacks' if missing else 'has also'} {(missing or more)[0]!r}"
            each = (self._difference(found[key], target[key], f"{where}.{key}" if where else str(key)) for key in target)
            return next((one for one in each if one), "")
        if isinstance(target, list) and isinstance(found, list):
            if len(target) != len(found):
                return f"{at} has {len(found)} values, not {len(target)}"
            if self.any_order:
                left = list(found)
                for one in target:
                    place = next((n for n, other in enumerate(left) if not self._difference(other, one, "")), None)
                    if place is None:
                        return f"{at} lacks {_shown(_as_text(one))}"
                    del left[place]
                return ""
            each = (
                self._difference(one, other, f"{where}[{n}]") for n, (one, other) in enumerate(zip(found, target, strict=True))
            )
            return next((one for one in each if one), "")
        numbers = [isinstance(one, int | float) and not isinstance(one, bool) for one in (found, target)]
        same = abs(found - target) <= self.tolerance if all(numbers) else found == target and type(found) is type(target)
        return "" if same else f"{at} is {_shown(_as_text(found))}"


_NO_JSON = object()


def json_in(text: str) -> Any:
    """Return the JSON of an answer: the whole text, its last code block, or its last object or list; else _NO_JSON."""
    blocks = re.findall(r"```(?:json)?[ \t]*\n(.*?)```", text, re.DOTALL)
    for candidate in (text, *reversed(blocks)):
        with contextlib.suppress(ValueError, RecursionError):
            return json.loads(candidate)
    decoder, end, found, faults = json.JSONDecoder(), 0, _NO_JSON, 0
    for match in re.finditer(r"[{\[]", text):
        if match.start() >= end and faults < _MOST_FAULTS:
            try:
                found, end = decoder.raw_decode(text, match.start())
            except (ValueError, RecursionError):
                faults += 1
    return found


def json_or(text: str) -> Any:
    """Return a target that is JSON as text, such as in a table; else the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text


@dataclass(frozen=True, slots=True)
class Choice:
    """True if the answer names the right option, by its letter or its text; the target is either of them.

    `options` are by default the `choices` in the task's metadata. The letter is read after "answer", at the beginning, or alone. An
    answer that names no option or several is wrong.

    Example:
        >>> city = lab.Task("The capital of France? A) Rome B) Paris", target="B")
        >>> lab.scorers.Choice(["Rome", "Paris"])(await brief.run("What is the capital of France?"), city)
        Score(value=True, why='B', parts={})
    """

    options: Sequence[str] | None = None
    needs_target: ClassVar[bool] = True

    def __call__(self, result: RunResult, task: Task) -> Score:
        """Return the score of one run."""
        options = self.options if self.options is not None else task.metadata.get("choices")
        if not options:
            raise ConfigurationError(
                f"Choice: the task {task.id!r} has no choices: pass options=[…], or metadata={{'choices': […]}}."
            )
        letters = {chr(ord("A") + n): one for n, one in enumerate(options)}
        named = self._named(result.text, letters)
        wanted = set[str]()
        for target in targets_of(task, self):
            of = {letter for letter, one in letters.items() if target in (letter, letter.lower(), one)}
            if not of:
                raise ConfigurationError(f"Choice: the target {target!r} of the task {task.id!r} is none of {list(options)}.")
            wanted |= of
        why = " and ".join(named) or "names no option"
        return Score(len(named) == 1 and named[0] in wanted, why)

    @staticmethod
    def _named(text: str, letters: Mapping[str, str]) -> list[str]:
        span = "".join(letters)
        said = re.findall(rf"(?i:answer)\W{{1,4}}(?:(?i:is)\W{{1,4}})?(?:(?i:option)\s+)?([{span}])(?![\w'])", text)
        if said:
            return [said[-1]]
        alone = re.match(rf"\W*([{span}{span.lower()}])\W*$", text) or re.match(rf"\s*\**\(?([{span}])(?:[).:]|\*\*)", text)
        if alone:
            return [alone[1].upper()]
        plain = f" {normalised(text)} "
        found = [letter for letter, one in letters.items() if f" {normalised(one)} " in plain]
        inside = {a for a in found for b in found if a != b and normalised(letters[a]) in normalised(letters[b])}
        return [letter for letter in found if letter not in inside]


@dataclass(frozen=True, slots=True)
class F1:
    """The F1 of the words in answer and target, normalised as by `Normalised`; of several targets the best. P. Rajpurkar et al., SQuAD
    (2016).

    Example:
        >>> lab.scorers.F1()(await brief.run("What is the capital of France?"), lab.Task("?", target="Paris, F.")).value
        0.6666666666666666
    """

    needs_target: ClassVar[bool] = True

    def __call__(self, result: RunResult, task: Task) -> Score:
        """Return the score of one run."""
        words = normalised(result.text).split()
        return Score(max(f1_of(words, normalised(_as_text(one)).split()) for one in targets_of(task, self)))


def f1_of(found: list[str], target: list[str]) -> float:
    """Return the harmonic mean of precision and recall of two bags of words; 1 if both are empty."""
    if not found or not target:
        return float(found == target)
    common = (Counter(found) & Counter(target)).total()
    return 2 * common / (len(found) + len(target))

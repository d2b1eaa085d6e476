"""The options of `%%agent`: those of an agent and a run, and one for each limit of a Budget."""

from __future__ import annotations

import ast
import dataclasses
import shlex
from typing import Any

from IPython.core.error import UsageError
from IPython.core.magic_arguments import argument

from agentlab.budget import Budget
from agentlab.limits import no_such

LIMITS = tuple(field.name for field in dataclasses.fields(Budget))
_OWN = ("agent", "tools", "instructions", "stop", "terminating", "stream", "replay", "record", "name")
FLAGS = tuple(f"--{name.replace('_', '-')}" for name in (*_OWN, *LIMITS))


def _limit(field: dataclasses.Field[Any]) -> Any:
    unit, told = field.metadata.get("unit", ""), field.metadata.get("help", "")
    return argument(
        f"--{field.name.replace('_', '-')}", metavar=unit.upper() or "WHAT", help=f"{told}; `none`: no limit" if unit else told
    )


DECLARED = (
    argument("model", nargs="?", help="provider:model, such as anthropic:claude-sonnet-4-6"),
    argument("--agent", metavar="NAME", help="a variable with a lab.Agent; with a model: the same agent on that model"),
    argument("--tools", metavar="NAMES", help="functions defined above, with commas between them: get_weather,finalize"),
    argument("--instructions", metavar="TEXT", help="what the agent is told beforehand, in quotation marks"),
    argument("--stop", metavar="CODE", help="when to stop, in Python: \"StepCountIs(4) | HasToolCall('finalize')\""),
    argument("--terminating", metavar="NAMES", help="names of the tools that end the run"),
    argument("--stream", action="store_true", help="ask for the answer as a stream"),
    argument("--replay", metavar="FOLDER", help="answer from this recording: no key, no network"),
    argument("--record", metavar="FOLDER", help="write down what comes back"),
    argument("--name", default="run", metavar="NAME", help="the variable that the run is given; `run` unless said"),
    *map(_limit, dataclasses.fields(Budget)),
)


def argv_of(line: str) -> list[str]:
    """The words of the magic's line. Quotation marks around a word, or around what follows its `=`, are taken away."""
    cut = shlex.shlex(line, posix=False, punctuation_chars=False)  # not posix: the backslashes of paths stay
    cut.whitespace_split, cut.commenters = True, ""
    try:
        words = list(cut)
    except ValueError as error:
        raise UsageError(f"%%agent: {error} in {line!r}: close the quotation mark.") from None
    return [_unquoted(word) for word in words]


def _unquoted(word: str) -> str:
    option, equals, value = word.partition("=")
    if word.startswith("--") and equals:
        return f"{option}={_unquoted(value)}"
    return word[1:-1] if len(word) > 1 and word[0] == word[-1] and word[0] in "\"'" else word


def limit_of(name: str, text: str) -> Any:
    """A limit's value as it was written: a number, `none`, or a word. A Budget says what it cannot be."""
    if text.lower() == "none":
        return None
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def unknown_option(word: str) -> str:
    """What to say of a word that is none of the options."""
    if not word.startswith("-"):
        return f"{word!r} is too much: after the model come options; what has spaces in it stands in quotation marks."
    return no_such("option", word.partition("=")[0], list(FLAGS))

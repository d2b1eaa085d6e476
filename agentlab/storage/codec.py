"""Steps and settings as JSON text, for keeping them, and back again: what comes back equals what was kept.

    text = encode(step)
    step = decode(StepResult, text)

Fields are read off the dataclasses, so that a new one needs no line here; one that is missing in an older text gets its default. Three
things are Python objects that no text can hold: what a tool returned stays where it is plain JSON, and is its text otherwise; an
exception comes back as a StoredError that says the same; a function (a policy, a Custom condition) by its name only, see `Forgotten`.
The text is plain ASCII, so that halves of surrogate pairs, which models do send, come back as they were.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
import re
import sys
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from typing import Any, TypeVar, cast

from agentlab import events, message_json, stop
from agentlab.budget import Budget, DefaultTurns
from agentlab.errors import ConfigurationError, StoredError
from agentlab.predicates import name_of
from agentlab.redaction import REDACTED, SHORTEST_SECRET, Redactor, text_of, without_keys
from agentlab.results import StepResult
from agentlab.settings import RunSettings
from agentlab.stop import Custom, StopCondition
from agentlab.types import Message, ToolResult, Usage

T = TypeVar("T")


class Forgotten:
    """Stands for a function of which only the name was kept; calling it raises."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __call__(self, *given: object) -> Any:
        """Raises ConfigurationError."""
        raise ConfigurationError(
            f"Only the name of {self.__name__!r} was kept, not the function: pass it again, such as stop=… or policy=…."
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Forgotten) and other.__name__ == self.__name__

    def __hash__(self) -> int:
        return hash(self.__name__)

    def __repr__(self) -> str:
        return f"<{self.__name__}, of which only the name was kept>"


def encode(value: object) -> str:
    """A step, settings, or any other dataclass of a run as JSON text."""
    return json.dumps(plain(value), separators=(",", ":"))


def decode(kind: type[T], text: str) -> T:
    """What `encode` made this text of. Raises ValueError for any other text."""
    return made(kind, json.loads(text))


def plain(value: object) -> Any:
    """The same as `encode`, before it is text: for what stands inside something larger."""
    return _plain(value)


def made(kind: type[T], kept: object) -> T:
    """What `plain` made this of. Raises ValueError for anything else."""
    try:
        result: T = _made(kind, kept)
    except (TypeError, KeyError, AttributeError, IndexError, ArithmeticError, ConfigurationError) as error:
        raise ValueError(f"not a {kind.__name__}: {type(error).__name__}: {error}") from error
    return result


def plain_step(step: StepResult, messages: Sequence[Message], happened: Iterable[events.Event]) -> dict[str, Any]:
    """A step with its messages and events. The result of a tool, which may be long, stands in the step, and elsewhere by its place
    there."""
    place_of = {id(result): place for place, result in enumerate(step.tool_results)}
    said = [message_json.plain(message, place_of) for message in messages]
    return {"step": _plain(step), "messages": said, "events": [plain_event(event, place_of) for event in happened]}


def with_results(kept: dict[str, Any]) -> dict[str, Any]:
    """What `plain_step` gave, with each result where it belongs."""
    results = kept["step"].get("tool_results", ())
    for message in kept["messages"]:
        if "tool_results" in message:
            message["tool_results"] = [
                message_json.of_step(results[one["of_step"]]) if "of_step" in one else one for one in message["tool_results"]
            ]
    for event in kept["events"]:
        if "of_step" in event:
            event["result"] = results[event.pop("of_step")]
    return kept


def plain_event(event: events.Event, place_of: Mapping[int, int] = types.MappingProxyType({})) -> dict[str, Any]:
    """An event of a run; of a step only its number, since the step is kept itself, and of a tool's result that is in it the place."""
    kept: dict[str, Any] = {"event": type(event).__name__, "at_s": event.at_s}
    if isinstance(event, events.TurnCompleted):
        return {**kept, "step": event.step.index, "cumulative_usage": _plain(event.cumulative_usage)}
    if isinstance(event, events.ToolFinished) and id(event.result) in place_of:
        return {**kept, "turn": event.turn, "of_step": place_of[id(event.result)]}
    return {**kept, **_plain(event)}


def made_events(kept: Iterable[Mapping[str, Any]], history: Sequence[StepResult]) -> list[events.Event]:
    """The events that `plain_event` made these of, without those of a kind that is not known here. Raises ValueError for anything
    else."""
    return [event for one in kept if (event := _made_event(one, history)) is not None]


def _made_event(kept: Mapping[str, Any], history: Sequence[StepResult]) -> events.Event | None:
    kind = KINDS_OF_EVENTS.get(kept.get("event", ""))
    if kind is None:
        return None
    if kind is events.TurnCompleted:
        return events.TurnCompleted(kept["at_s"], history[kept["step"] - 1], made(Usage, kept["cumulative_usage"]))
    return made(kind, {name: one for name, one in kept.items() if name != "event"})


KINDS_OF_EVENTS = {kind.__name__: kind for kind in events.Event.__subclasses__()}


# There ----------------------------------------------------------------------------------------------------------------------


def _plain(value: Any) -> Any:
    kind: Any = type(value)
    return value if kind in _AS_THEY_ARE else _way_of(kind)(value)


@functools.cache
def _way_of(kind: Any) -> Callable[[Any], Any]:
    """How values of this type are written."""
    if issubclass(kind, Enum):
        return lambda value: value.value
    if kind is Decimal:
        return lambda value: {"decimal": str(value)}
    if kind is datetime:
        return datetime.isoformat
    if kind in (tuple, list):
        return lambda value: [_plain(one) for one in value]
    if issubclass(kind, Mapping):
        return lambda value: {str(name): _plain(one) for name, one in value.items()}
    if issubclass(kind, StopCondition):
        return _plain_condition
    if issubclass(kind, BaseException):
        return _plain_error
    if kind is RunSettings:
        return _plain_settings
    if kind is ToolResult:
        return _plain_result
    if dataclasses.is_dataclass(kind):
        return _plain_fields
    if any("__call__" in vars(base) for base in kind.__mro__):
        return lambda value: {"function": name_of(value)}
    return next((one for one in (str, int, float) if issubclass(kind, one)), text_of)  # numpy's float64 is a float


def _plain_error(error: BaseException) -> dict[str, Any]:
    kind = error.kind if isinstance(error, StoredError) else type(error).__name__
    return {"exception": kind, "message": Redactor().text(text_of(error))}


def _plain_result(result: ToolResult) -> dict[str, Any]:
    """What a tool returned is mostly the very text that the model was given of it."""
    kept = _plain_fields(result)
    return {**kept, "value": _THE_CONTENT} if result.value is result.content else kept


_THE_CONTENT = {"content": True}
_newest: tuple[RunSettings, dict[str, Any]] | None = None


def _plain_settings(settings: RunSettings) -> dict[str, Any]:
    """The settings of a run are the same at each of its steps, mostly: those that were written last are not taken apart again."""
    global _newest  # noqa: PLW0603  one assignment, so any thread may do it
    known = _newest
    if known is not None and known[0] is settings:
        return known[1]
    kept = _plain_fields(settings)
    _newest = (settings, kept)
    return kept


def _plain_fields(value: Any) -> dict[str, Any]:
    kind: Any = type(value)
    kept: dict[str, Any] = {}
    for name, to_plain, default in _fields(kind):
        one = getattr(value, name)
        if one is default or _is_default(one, default):  # what is as it always is need not be kept
            continue
        kept[name] = one if type(one) in _AS_THEY_ARE and to_plain is _plain else to_plain(one)
    return kept


def _is_default(one: Any, default: Any) -> bool:
    """True if the value follows from nothing being said. A default of the turns follows from the other limits; a person may have set
    the same number."""
    if type(one) is DefaultTurns:
        return True
    if type(one) is not type(default) or one != default:
        return False
    return not isinstance(one, Budget) or type(one.max_turns) is DefaultTurns


_AS_THEY_ARE = frozenset({str, int, float, bool, type(None)})


def loosely(value: Any) -> Any:
    """What a person's own code gave, as it is where JSON says the same, and else as text."""
    if value is None:
        return None
    if type(value) is str:  # as most tools answer
        return {"json": value}
    if isinstance(value, BaseException):
        return _plain(value)
    try:
        same = bool(json.loads(json.dumps(value, allow_nan=False)) == value)
    except Exception:  # it is of somebody else's making, down to how it compares
        same = False
    return {"json": value} if same else {"text": text_of(value)}


def _as_it_is(value: Any) -> Any:
    """What came as JSON."""
    return value


@functools.cache
def _fields(kind: Any) -> tuple[tuple[str, Callable[[Any], Any], object], ...]:
    """Name, how it is written, and default of each field."""
    hints = _hints(kind)
    return tuple((field.name, _writer(field.name, hints[field.name]), _default(field)) for field in dataclasses.fields(kind))


def _writer(name: str, hint: object) -> Callable[[Any], Any]:
    if hint is not Any:
        return _plain
    return loosely if name in GIVEN else _as_it_is


GIVEN = ("value", "output")
"""Fields of type Any that hold what a person's own code gave; all others hold JSON."""


def _default(field: dataclasses.Field[Any]) -> object:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    names: dict[str, Any] = {"RunSettings": RunSettings}  # which step_result.py imports for the type checker only
    for base in reversed(kind.__mro__):
        names |= vars(sys.modules[base.__module__])
    return typing.get_type_hints(kind, names)


def _plain_condition(condition: StopCondition) -> dict[str, Any]:
    kind = type(condition)
    kept: dict[str, Any] = {"condition": kind.__name__}
    if not _is_built_in(kind):
        kept["module"] = kind.__module__
    if condition.parts:
        return {**kept, "parts": [_plain_condition(part) for part in condition.parts]}
    if isinstance(condition, Custom):
        return {**kept, "fields": {"name": condition.name}}
    fields: Iterable[dataclasses.Field[Any]] = dataclasses.fields(condition) if dataclasses.is_dataclass(condition) else ()
    return {**kept, "fields": {field.name: _plain(getattr(condition, field.name)) for field in fields}}


# And back -------------------------------------------------------------------------------------------------------------------


def _made(hint: Any, kept: Any) -> Any:
    return _way_back(hint)(kept)


@functools.cache
def _way_back(hint: Any) -> Callable[[Any], Any]:
    """How what is kept of such a field is read. Types are looked at once here, and not at each value: a run has thousands."""
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return _way_back_of_several(typing.get_args(hint))
    if origin in (tuple, list):
        each = _way_back(typing.get_args(hint)[0])
        return lambda kept: tuple([each(one) for one in kept])
    if origin is not None and isinstance(origin, type) and issubclass(origin, Mapping):
        return _as_it_is
    if origin is typing.Literal or hint is Any:
        return _as_it_is
    if origin is not None or hint is Callable:
        return _function
    return _way_back_of_type(hint) if isinstance(hint, type) else _as_it_is


def _way_back_of_type(kind: type) -> Callable[[Any], Any]:
    if issubclass(kind, StopCondition):
        return _condition
    if issubclass(kind, BaseException):
        return lambda kept: StoredError(kept["exception"], kept["message"])
    if kind is ToolResult:
        return lambda kept: _dataclass(kind, {**kept, "value": {"json": kept["content"]}} if _is_content(kept) else kept)
    if dataclasses.is_dataclass(kind):
        return functools.partial(_dataclass, kind)
    if issubclass(kind, Enum):
        return cast(Callable[[Any], Any], kind)
    if kind is Decimal:
        return lambda kept: Decimal(kept["decimal"])
    if kind is datetime:
        return datetime.fromisoformat
    return functools.partial(_simple, kind) if kind in _AS_THEY_ARE else _as_it_is


def _is_content(kept: Mapping[str, Any]) -> bool:
    return kept.get("value") == _THE_CONTENT


def _simple(kind: type, kept: Any) -> Any:
    if type(kept) is kind:
        return kept
    if kind is float and type(kept) is int:
        return float(kept)
    raise ValueError(f"{kept!r} is no {kind.__name__}")


def _way_back_of_several(kinds: tuple[Any, ...]) -> Callable[[Any], Any]:
    """A value whose field may hold one of several types."""
    members: dict[Any, Enum] = {}
    for kind in kinds:
        if isinstance(kind, type) and issubclass(kind, Enum):
            members = {one.value: one for one in kind} | members  # what two kinds have is the first's
    whole_is_float = float in kinds and int not in kinds
    rest = [kind for kind in kinds if kind is not type(None) and kind not in _AS_THEY_ARE and kind is not Decimal]

    def read(kept: Any) -> Any:
        if isinstance(kept, str) and datetime in kinds:
            return datetime.fromisoformat(kept)
        if kept is None or isinstance(kept, str | int | float | bool):
            if kept in members:
                return members[kept]
            return float(kept) if whole_is_float and isinstance(kept, int) and not isinstance(kept, bool) else kept
        if isinstance(kept, dict) and set(kept) == {"decimal"}:
            return Decimal(kept["decimal"])
        return _made(rest[0], kept) if rest else kept

    return read


def _function(kept: Any) -> Any:
    return None if kept is None else Forgotten(kept["function"])


@functools.cache
def _ways_back(kind: Any) -> dict[str, Callable[[Any], Any]]:
    """How each field is read, by its name."""
    return {name: given if name in GIVEN and hint is Any else _way_back(hint) for name, hint in _hints(kind).items()}


def _dataclass(kind: Any, kept: Mapping[str, Any]) -> Any:
    ways = _ways_back(kind)
    return kind(**{name: ways[name](one) for name, one in kept.items() if name in ways})  # one of a newer version is left aside


def given(kept: Any) -> Any:
    """What `loosely` made this of, or its text."""
    if kept is None:
        return None
    if "exception" in kept:
        return StoredError(kept["exception"], kept["message"])
    return kept["json"] if "json" in kept else kept["text"]


def _condition(kept: Mapping[str, Any]) -> StopCondition:
    name, module = kept["condition"], kept.get("module")
    if name == "Custom":
        return Custom(Forgotten(kept["fields"]["name"]), kept["fields"]["name"])
    # The last of that name: a class that was made anew, as dataclasses with slots are, stands behind the one it replaced.
    own = reversed(list(_kinds(StopCondition)))
    kind: Any = next(
        (one for one in own if one.__name__ == name and (one.__module__ == module if module else _is_built_in(one))), None
    )
    try:
        if "parts" in kept:
            return cast(StopCondition, kind(*map(_condition, kept["parts"])))
        hints = _hints(kind)
        fields = {field: _made(hints[field], one) for field, one in kept["fields"].items() if field in hints}
        if any(
            one.kind is one.VAR_POSITIONAL for one in inspect.signature(kind).parameters.values()
        ):  # such as HasToolCall(*names)
            return cast(StopCondition, kind(*next(iter(fields.values()))))
        return cast(StopCondition, kind(**fields))
    except Exception:
        if module is None:
            raise
        return Custom(Forgotten(name), name)  # somebody's own: its module is not imported here, or it has changed since


def _is_built_in(kind: type) -> bool:
    """Whether it is one of `agentlab.stop`; of others the module is kept beside the name."""
    return getattr(stop, kind.__name__, None) is kind


def _kinds(root: type[StopCondition]) -> Iterator[type[StopCondition]]:
    for kind in root.__subclasses__():
        yield kind
        yield from _kinds(kind)


# Keys ------------------------------------------------------------------------------------------------------------------------


Hide = Callable[[str], str]

_MARKS = re.compile(f"(?:{REDACTED})+(?:{'|'.join(REDACTED[:length] for length in range(len(REDACTED) - 1, 0, -1))})?")
"""What stands in the place of a key; in base64 it is as long as that was."""
_A_KEY = rf"(?:(?i:bearer|basic|token|key)\s)?\S{{{SHORTEST_SECRET},}}"
"""What may have stood there."""


def hidden(text: str, hide: Hide) -> str:
    """JSON text without keys. Numbers stay, and so do the names of fields, but for what is a key in any text: the shorter keys of a
    provider may be the digits of a number, or a word."""
    without = hide(text)
    if without == text:
        return text
    try:
        return json.dumps(in_texts(json.loads(text), hide), separators=(",", ":"))
    except RecursionError:  # a model may nest as deep as it likes
        return without


def in_texts(value: Any, hide: Hide) -> Any:
    """A JSON value with all texts in it hidden."""
    if isinstance(value, str):
        return hide(value)
    if isinstance(value, list):
        return [in_texts(one, hide) for one in value]
    if isinstance(value, dict):
        return {without_keys(name): in_texts(one, hide) for name, one in value.items()}
    return value


def same_but_for_keys(kept: Any, meant: Any, hide: Hide = without_keys) -> bool:
    """Whether a JSON value that is kept may be made of this one, whichever keys were known then and are known now."""
    if kept == meant:
        return True
    # What is written instead of a key may, with what stands around it, look like one: both have been through it as often.
    return _same(in_texts(kept, hide), in_texts(in_texts(meant, hide), hide))


def _same(kept: Any, meant: Any) -> bool:
    if isinstance(kept, str) and isinstance(meant, str):
        return kept == meant or (REDACTED in kept and _as_it_may_have_been(kept).fullmatch(meant) is not None)
    if isinstance(kept, list) and isinstance(meant, list):
        return len(kept) == len(meant) and all(map(_same, kept, meant))
    if isinstance(kept, Mapping) and isinstance(meant, Mapping):
        return len(kept) == len(meant) and _same_fields(kept, meant)
    return bool(kept == meant)


def _same_fields(kept: Mapping[str, Any], meant: Mapping[str, Any]) -> bool:
    left = dict(meant)
    for name, value in sorted(kept.items(), key=lambda one: one[0] not in meant):  # names that are the same first
        of = [name] if name in left else [other for other in left if _same(name, other)]
        found = next((other for other in of if _same(value, left[other])), None)
        if found is None:
            return False
        del left[found]
    return True


@lru_cache(maxsize=256)
def _as_it_may_have_been(kept: str) -> re.Pattern[str]:
    return re.compile(_A_KEY.join(map(re.escape, _MARKS.split(kept))))

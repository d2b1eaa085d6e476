"""Encodes steps, settings and events as JSON, and decodes them: decoded values equal the encoded ones. Also removes keys from JSON.

    text = encode(step)
    step = from_jsonable(StepResult, json.loads(text))

The fields are those of the dataclasses; a field that is missing in older text gets its default. Three kinds of values have no JSON
form: a tool's return value is stored as it is if it is plain JSON, else as its text; an exception becomes a StoredError with the same
message; a function (a policy, a Custom condition) is stored by its name only, see `MissingFunction`. The text is plain ASCII, which
preserves halves of surrogate pairs that models send.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from enum import Enum
from typing import Any, TypeAlias, TypeVar, cast

from agentlab._internal.asyncio_tools import name_of
from agentlab._internal.redaction import redact as redact_keys
from agentlab._internal.redaction import text_of
from agentlab.errors import ConfigurationError, StoredError
from agentlab.limits import conditions as stop
from agentlab.limits.budget import Budget, DefaultTurns
from agentlab.limits.combinators import Custom, StopCondition
from agentlab.limits.settings import RunSettings
from agentlab.model import messages as message_json
from agentlab.model.messages import Message, ToolResult
from agentlab.model.parts import Part
from agentlab.model.usage import Usage
from agentlab.records import events
from agentlab.records.events import EARLIER_NAMES
from agentlab.records.step import StepResult

T = TypeVar("T")
Redact: TypeAlias = Callable[[str], str]


class MissingFunction:
    """Takes the place of a function that was stored by its name only; calling it raises ConfigurationError."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __call__(self, *arguments: object) -> Any:
        """Raises ConfigurationError."""
        raise ConfigurationError(
            f"Only the name of {self.__name__!r} was stored, not the function: pass it again: stop=…, policy=… or approve=…."
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MissingFunction) and other.__name__ == self.__name__

    def __hash__(self) -> int:
        return hash(self.__name__)

    def __repr__(self) -> str:
        return f"<{self.__name__}: only the name was stored>"


def encode(value: object) -> str:
    """Return a step, settings, or any other dataclass of a run as JSON text."""
    return json.dumps(to_jsonable(value), separators=(",", ":"))


def to_jsonable(value: Any) -> Any:
    """Return a value as JSON objects, as `encode` writes them, to be part of a larger object."""
    kind: Any = type(value)
    return value if kind in _PLAIN else _encoder_of(kind)(value)


def from_jsonable(kind: type[T], stored: object) -> T:
    """Return the object from the result of `to_jsonable`. Raises ValueError for anything else."""
    try:
        result: T = _decoder_of(cast(Any, kind))(stored)
    except (TypeError, KeyError, AttributeError, IndexError, ArithmeticError, ConfigurationError) as error:
        raise ValueError(f"not a {kind.__name__}: {type(error).__name__}: {error}") from error
    return result


def step_to_jsonable(step: StepResult, messages: Sequence[Message], happened: Iterable[events.Event]) -> dict[str, Any]:
    """Return a step with its messages and events. Tool results, which may be long, are in the step only; messages and events refer to
    them."""
    place_of = {id(result): place for place, result in enumerate(step.tool_results)}
    return {
        "step": to_jsonable(step),
        "messages": [message_json.plain(message, place_of) for message in messages],
        "events": [event_to_jsonable(event, place_of) for event in happened],
    }


def restore_results(stored: dict[str, Any]) -> dict[str, Any]:
    """Replace the references to tool results in the output of `step_to_jsonable` with the results, in place."""
    results = stored["step"].get("tool_results", ())
    for message in stored["messages"]:
        if "tool_results" in message:
            message["tool_results"] = [
                message_json.of_step(results[item["of_step"]]) if "of_step" in item else item for item in message["tool_results"]
            ]
    for event in stored["events"]:
        if "of_step" in event:
            event["result"] = results[event.pop("of_step")]
    return stored


def event_to_jsonable(event: events.Event, place_of: Mapping[int, int] = types.MappingProxyType({})) -> dict[str, Any]:
    """Return an event. A completed step is replaced by its number; a tool result whose id is in `place_of` is replaced by its place."""
    stored: dict[str, Any] = {"event": type(event).__name__, "at_s": event.at_s, "run_id": event.run_id}
    if isinstance(event, events.StepCompleted):
        return {**stored, "step": event.step.index, "cumulative_usage": to_jsonable(event.cumulative_usage)}
    if isinstance(event, events.ToolFinished) and id(event.result) in place_of:
        return {**stored, "step": event.step, "of_step": place_of[id(event.result)]}
    return {**stored, **to_jsonable(event)}


def events_from_jsonable(stored: Iterable[Mapping[str, Any]], history: Sequence[StepResult]) -> list[events.Event]:
    """Return the events from results of `event_to_jsonable`, without kinds that only a newer version knows. Raises ValueError."""
    return [event for item in stored if (event := _event(item, history)) is not None]


def _event(stored: Mapping[str, Any], history: Sequence[StepResult]) -> events.Event | None:
    name = stored.get("event", "")
    kind = EVENT_KINDS.get(EARLIER_NAMES.get(name, name))
    if kind is None:
        return None
    if kind is events.StepCompleted:
        usage, run_id = from_jsonable(Usage, stored["cumulative_usage"]), stored.get("run_id", "")
        return events.StepCompleted(stored["at_s"], history[stored["step"] - 1], usage, run_id=run_id)
    renamed = {"turn": "step"}  # in stores of earlier versions
    return from_jsonable(kind, {renamed.get(name, name): value for name, value in stored.items() if name != "event"})


EVENT_KINDS = {kind.__name__: kind for kind in events.Event.__subclasses__()}


# Without keys ----------------------------------------------------------------------------------------------------------------


def redact_json(text: str, redact: Redact = redact_keys) -> str:
    """Return JSON text without keys. Numbers and names of fields are not changed, even if they contain a short key."""
    redacted = redact(text)
    if redacted == text:
        return text
    try:
        return json.dumps(_redact_strings(json.loads(text), redact), separators=(",", ":"))
    except RecursionError:  # a model may nest arguments to any depth
        return redacted


def _redact_strings(value: Any, redact: Redact) -> Any:
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, list):
        return [_redact_strings(item, redact) for item in value]
    if isinstance(value, dict):
        return {redact_keys(name): _redact_strings(item, redact) for name, item in value.items()}
    return value


def equal_when_redacted(stored: Any, value: Any, redact: Redact = redact_keys) -> bool:
    """True if a stored JSON value equals this one, apart from redacted keys."""
    if stored == value:
        return True
    # REDACTED and the text around it may look like a key: both sides are redacted equally often.
    return bool(_redact_strings(stored, redact) == _redact_strings(_redact_strings(value, redact), redact))


# Encoding --------------------------------------------------------------------------------------------------------------------

_PLAIN = frozenset({str, int, float, bool, type(None)})
_USER_FIELDS = ("value", "output")
"""Fields of type Any whose value was returned by a user's code; all other fields of type Any contain JSON."""
_SAME_AS_CONTENT = {"content": True}
"""Stored in place of a tool's return value that equals the text for the model."""


@functools.cache
def _encoder_of(kind: Any) -> Callable[[Any], Any]:
    """Return the function that encodes values of this type."""
    if issubclass(kind, Enum):
        return lambda value: value.value
    if kind is Decimal:
        return lambda value: {"decimal": str(value)}
    if kind is datetime:
        return datetime.isoformat
    if kind in (tuple, list):
        return lambda value: [to_jsonable(item) for item in value]
    if issubclass(kind, Mapping):
        return lambda value: {str(name): to_jsonable(item) for name, item in value.items()}
    if issubclass(kind, StopCondition):
        return _encode_condition
    if issubclass(kind, BaseException):
        return _encode_error
    if kind is RunSettings:
        return _encode_settings
    if issubclass(kind, Part):
        return kind.to_jsonable  # type: ignore[no-any-return]
    if kind is ToolResult:
        return lambda value: _encode_fields(value) | ({"value": _SAME_AS_CONTENT} if value.value is value.content else {})
    if dataclasses.is_dataclass(kind):
        return _encode_fields
    if any("__call__" in vars(base) for base in kind.__mro__):
        return lambda value: {"function": name_of(value)}
    return next((plain for plain in (str, int, float) if issubclass(kind, plain)), text_of)  # numpy's float64 is a float


def _encode_error(error: BaseException) -> dict[str, Any]:
    return {"exception": error.kind if isinstance(error, StoredError) else type(error).__name__, "message": text_of(error)}


_last_settings: tuple[RunSettings, dict[str, Any]] | None = None


def _encode_settings(settings: RunSettings) -> dict[str, Any]:
    """Encode settings once for consecutive steps that share them, as most steps of a run do."""
    global _last_settings  # noqa: PLW0603  a single assignment, so any thread may do it
    known = _last_settings
    if known is not None and known[0] is settings:
        return known[1]
    encoded = _encode_fields(settings)
    _last_settings = (settings, encoded)
    return encoded


def _encode_fields(value: Any) -> dict[str, Any]:
    encoded: dict[str, Any] = {}
    for name, encoder, default in _fields(cast(Any, type(value))):
        part = getattr(value, name)
        if part is not default and not _is_default(part, default):
            encoded[name] = part if type(part) in _PLAIN and encoder is to_jsonable else encoder(part)
    return encoded


def _is_default(value: Any, default: Any) -> bool:
    """True if the value need not be stored. The default of max_turns depends on the other limits; a user may set the same number."""
    if type(value) is DefaultTurns:
        return True
    if type(value) is not type(default) or value != default:
        return False
    return not isinstance(value, Budget) or type(value.max_turns) is DefaultTurns


@functools.cache
def _fields(kind: Any) -> tuple[tuple[str, Callable[[Any], Any], object], ...]:
    """Return name, encoder and default of each field of a dataclass."""
    hints = _hints(kind)
    found = []
    for field in dataclasses.fields(kind):
        encoder = to_jsonable if hints[field.name] is not Any else user_value_to_jsonable if field.name in _USER_FIELDS else _same
        default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        found.append((field.name, encoder, default))
    return tuple(found)


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    return typing.get_type_hints(kind, localns={"RunSettings": RunSettings})  # imported only for the type checker in its module


def user_value_to_jsonable(value: Any) -> Any:
    """Return a value that a user's code returned, as it is if JSON can represent it exactly, else as text."""
    if value is None:
        return None
    if type(value) is str:  # the most common result of tools
        return {"json": value}
    if isinstance(value, BaseException):
        return _encode_error(value)
    try:
        same = bool(json.loads(json.dumps(value, allow_nan=False)) == value)
    except Exception:  # a user's object may raise even when it is compared
        same = False
    return {"json": value} if same else {"text": text_of(value)}


def user_value_from_jsonable(stored: Any) -> Any:
    """Return the value that was passed to `user_value_to_jsonable`, or its text."""
    if stored is None:
        return None
    if "exception" in stored:
        return StoredError(stored["exception"], stored["message"])
    return stored["json"] if "json" in stored else stored["text"]


def _same(value: Any) -> Any:
    return value


def _encode_condition(condition: StopCondition) -> dict[str, Any]:
    kind = type(condition)
    encoded: dict[str, Any] = {"condition": kind.__name__}
    if not _is_built_in(kind):
        encoded["module"] = kind.__module__
    if condition.parts:
        return {**encoded, "parts": [_encode_condition(part) for part in condition.parts]}
    if isinstance(condition, Custom):
        return {**encoded, "fields": {"name": condition.name}}
    fields: Iterable[dataclasses.Field[Any]] = dataclasses.fields(condition) if dataclasses.is_dataclass(condition) else ()
    return {**encoded, "fields": {field.name: to_jsonable(getattr(condition, field.name)) for field in fields}}


# Decoding --------------------------------------------------------------------------------------------------------------------


@functools.cache
def _decoder_of(hint: Any) -> Callable[[Any], Any]:
    """Return the function that decodes values of this type. Types are inspected once here, not for each value."""
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return _union_decoder(typing.get_args(hint))
    if origin in (tuple, list):
        decode_item = _decoder_of(typing.get_args(hint)[0])
        return lambda stored: tuple([decode_item(item) for item in stored])
    if hint is Any or origin is typing.Literal or (isinstance(origin, type) and issubclass(origin, Mapping)):
        return _same
    if origin is not None or hint is Callable:
        return lambda stored: None if stored is None else MissingFunction(stored["function"])
    return _type_decoder(hint) if isinstance(hint, type) else _same


def _type_decoder(kind: type) -> Callable[[Any], Any]:
    if issubclass(kind, StopCondition):
        return _decode_condition
    if issubclass(kind, BaseException):
        return lambda stored: StoredError(stored["exception"], stored["message"])
    if kind is ToolResult:
        return _decode_tool_result
    if issubclass(kind, Part):
        return Part.from_jsonable
    if dataclasses.is_dataclass(kind):
        return functools.partial(_decode_fields, kind)
    if issubclass(kind, Enum):
        return cast(Callable[[Any], Any], kind)
    if kind is Decimal:
        return lambda stored: Decimal(stored["decimal"])
    if kind is datetime:
        return datetime.fromisoformat
    return functools.partial(_checked, kind) if kind in _PLAIN else _same


def _checked(kind: type, stored: Any) -> Any:
    if type(stored) is kind:
        return stored
    if kind is float and type(stored) is int:
        return float(stored)
    raise ValueError(f"{stored!r} is not a {kind.__name__}")


def _decode_fields(kind: Any, stored: Mapping[str, Any]) -> Any:
    decoders = _field_decoders(kind)
    return kind(**{name: decoders[name](value) for name, value in stored.items() if name in decoders})  # without newer fields


@functools.cache
def _field_decoders(kind: Any) -> dict[str, Callable[[Any], Any]]:
    return {
        name: user_value_from_jsonable if name in _USER_FIELDS and hint is Any else _decoder_of(hint)
        for name, hint in _hints(kind).items()
    }


def _decode_tool_result(stored: Mapping[str, Any]) -> Any:
    if stored.get("value") == _SAME_AS_CONTENT:
        stored = {**stored, "value": {"json": stored["content"]}}
    return _decode_fields(ToolResult, stored)


def _union_decoder(kinds: tuple[Any, ...]) -> Callable[[Any], Any]:
    members: dict[Any, Enum] = {}
    for kind in kinds:
        if isinstance(kind, type) and issubclass(kind, Enum):
            members = {member.value: member for member in kind} | members  # the first enum has precedence
    whole_is_float = float in kinds and int not in kinds
    rest = [kind for kind in kinds if kind not in _PLAIN and kind is not Decimal]

    def decode_union(stored: Any) -> Any:
        if isinstance(stored, str) and datetime in kinds:
            return datetime.fromisoformat(stored)
        if stored is None or isinstance(stored, str | int | float | bool):
            if stored in members:
                return members[stored]
            return float(stored) if whole_is_float and isinstance(stored, int) and not isinstance(stored, bool) else stored
        if isinstance(stored, dict) and set(stored) == {"decimal"}:
            return Decimal(stored["decimal"])
        return _decoder_of(rest[0])(stored) if rest else stored

    return decode_union


def _decode_condition(stored: Mapping[str, Any]) -> StopCondition:
    name, module = stored["condition"], stored.get("module")
    if name == "Custom":
        return Custom(MissingFunction(stored["fields"]["name"]), stored["fields"]["name"])
    # The last class of that name: `@dataclass(slots=True)` creates a second class, which comes after the one that it replaces.
    kind: Any = next(
        (
            condition
            for condition in reversed(list(_subclasses(StopCondition)))
            if condition.__name__ == name and (condition.__module__ == module if module else _is_built_in(condition))
        ),
        None,
    )
    try:
        if "parts" in stored:
            return cast(StopCondition, kind(*map(_decode_condition, stored["parts"])))
        hints = _hints(kind)
        fields = {field: _decoder_of(hints[field])(value) for field, value in stored["fields"].items() if field in hints}
        if any(each.kind is each.VAR_POSITIONAL for each in inspect.signature(kind).parameters.values()):  # HasToolCall(*names)
            return cast(StopCondition, kind(*next(iter(fields.values()))))
        return cast(StopCondition, kind(**fields))
    except Exception:
        if module is None:
            raise
        return Custom(MissingFunction(name), name)  # a user's condition whose module is not imported here, or has changed


def _is_built_in(kind: type) -> bool:
    return getattr(stop, kind.__name__, None) is kind


def _subclasses(root: type[StopCondition]) -> Iterator[type[StopCondition]]:
    for kind in root.__subclasses__():
        yield kind
        yield from _subclasses(kind)

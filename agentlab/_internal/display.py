"""Displays values and errors in a notebook: the base class of values with a rich display, and tracebacks without agentlab's frames."""

from __future__ import annotations

import functools
import os
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from types import TracebackType
from typing import Any

import agentlab


class Displayable:
    """Adds a rich display: short text and HTML, escaped and without keys. It does not change `repr`."""

    __slots__ = ()

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        from agentlab.notebook.cards import bundle

        return bundle(self)


HERE = agentlab.__path__[0] + os.sep

SHORTENED = ("Context", "Plain")
"""IPython's modes (`%xmode`) in which frames are left out."""


def rendered(error: BaseException) -> list[str]:
    """Return the traceback as the running IPython shows it, without agentlab's frames; without IPython, as Python does."""
    formatter = getattr(_shell(), "InteractiveTB", None)
    if formatter is None:
        return traceback.format_exception(error)
    if formatter.mode not in SHORTENED:
        return list(formatter.structured_traceback(type(error), error, error.__traceback__))
    chain = list(_chain(error))
    tracebacks = [cause.__traceback__ for cause in chain]
    frames = [_frames(trace) for trace in tracebacks]
    kept = [_user_frames(each) for each in frames]
    try:
        for cause, each in zip(chain, kept, strict=True):
            cause.__traceback__ = _joined(each)
        lines = list(formatter.structured_traceback(type(error), error, error.__traceback__))
    finally:
        for cause, before in zip(chain, tracebacks, strict=True):
            cause.__traceback__ = before
    left_out = sum(map(len, frames)) - sum(map(len, kept))
    if left_out:
        lines.insert(len(lines) - 1, f"(inside agentlab: {left_out} more, which `%xmode Verbose` shows)\n")
    return lines


def _shell() -> Any:
    ipython = sys.modules.get("IPython")
    return ipython.get_ipython() if ipython is not None else None


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield the error and its causes, as Python shows them."""
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        yield cause
        cause = cause.__cause__ if cause.__cause__ is not None else None if cause.__suppress_context__ else cause.__context__


def _frames(trace: TracebackType | None) -> list[TracebackType]:
    found = []
    while trace is not None:
        found.append(trace)
        trace = trace.tb_next
    return found


def _user_frames(frames: list[TracebackType]) -> list[TracebackType]:
    """Return the frames before agentlab's first one, and the user's frames after it."""
    places = [frame.tb_frame.f_code.co_filename for frame in frames]
    first = next((at for at, place in enumerate(places) if place.startswith(HERE)), len(frames))
    while 0 < first < len(frames) and places[first - 1] == "<string>":  # the generated `__init__` of a dataclass
        first -= 1
    return frames[:first] + [frame for frame, place in zip(frames[first:], places[first:], strict=True) if _is_user_code(place)]


@functools.cache
def _library_places() -> tuple[str, ...]:
    return tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})


def _is_user_code(place: str) -> bool:
    return not place.startswith((HERE, *_library_places())) and place != "<string>" and not place.startswith("<frozen ")


def _joined(frames: list[TracebackType]) -> TracebackType | None:
    trace = None
    for frame in reversed(frames):
        trace = TracebackType(trace, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return trace

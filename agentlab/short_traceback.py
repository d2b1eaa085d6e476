"""A traceback that fits on a screen: where the person's own code stands, and what was wrong there.

IPython asks an exception for its traceback, by `_render_traceback_`; agentlab's errors answer with this. What lies between the cell and
the place that found the fault is left out, since it says nothing about the fault; code of the person's further down (a tool, a
condition) stays. `%xmode Verbose` shows all of it, and so do `%debug` and a plain Python: the exception itself stays as it is.
"""

from __future__ import annotations

import sys
import sysconfig
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

HERE = str(Path(__file__).parent)
LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
SHORTENED = ("Context", "Plain")
"""IPython's modes (`%xmode`) in which frames are shown and left out."""


def rendered(error: BaseException) -> list[str]:
    """The traceback as the running IPython shows it, without agentlab's own frames; where there is none, as Python does."""
    formatter = getattr(_shell(), "InteractiveTB", None)
    if formatter is None:
        return traceback.format_exception(error)
    if formatter.mode not in SHORTENED:
        return list(formatter.structured_traceback(type(error), error, error.__traceback__))
    chain = list(_chain(error))
    whole = [one.__traceback__ for one in chain]
    frames = [_frames(one) for one in whole]
    kept = [_kept(each) for each in frames]
    try:
        for one, each in zip(chain, kept, strict=True):
            one.__traceback__ = _joined(each)
        lines = list(formatter.structured_traceback(type(error), error, error.__traceback__))
    finally:
        for one, before in zip(chain, whole, strict=True):
            one.__traceback__ = before
    left_out = sum(map(len, frames)) - sum(map(len, kept))
    if left_out:
        lines.insert(len(lines) - 1, f"(inside agentlab: {left_out} more, which `%xmode Verbose` shows)\n")
    return lines


def _shell() -> Any:
    ipython = sys.modules.get("IPython")
    return ipython.get_ipython() if ipython is not None else None


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error, and those that are shown as what it came of."""
    seen: set[int] = set()
    one: BaseException | None = error
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        yield one
        one = one.__cause__ if one.__cause__ is not None else None if one.__suppress_context__ else one.__context__


def _frames(trace: TracebackType | None) -> list[TracebackType]:
    found = []
    while trace is not None:
        found.append(trace)
        trace = trace.tb_next
    return found


def _kept(frames: list[TracebackType]) -> list[TracebackType]:
    """What stands before agentlab's first frame, and after it the person's own."""
    places = [frame.tb_frame.f_code.co_filename for frame in frames]
    first = next((at for at, place in enumerate(places) if place.startswith(HERE)), len(frames))
    while 0 < first < len(frames) and places[first - 1] == "<string>":  # the `__init__` that a dataclass makes
        first -= 1
    return frames[:first] + [frame for frame, place in zip(frames[first:], places[first:], strict=True) if _is_a_persons(place)]


def _is_a_persons(place: str) -> bool:
    return not place.startswith((HERE, *LIBRARIES)) and place != "<string>" and not place.startswith("<frozen ")


def _joined(frames: list[TracebackType]) -> TracebackType | None:
    made = None
    for frame in reversed(frames):
        made = TracebackType(made, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return made

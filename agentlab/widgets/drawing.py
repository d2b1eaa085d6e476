"""Whether a control changes because the panel is drawn, or because a person did something.

The panel is drawn on a thread of its own, and what a person does arrives on another, perhaps in the middle of it. A control tells of
either in the same way; by then what it shows may already be something else, so that comparing values does not tell them apart.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator


class _OfThisThread(threading.local):
    on = False


_HERE = _OfThisThread()


@contextlib.contextmanager
def drawing() -> Iterator[None]:
    """Stands around what brings controls up to date on this thread."""
    before, _HERE.on = _HERE.on, True
    try:
        yield
    finally:
        _HERE.on = before


def is_drawing() -> bool:
    """Whether this thread is at that: what a control tells of then is no wish of a person."""
    return _HERE.on

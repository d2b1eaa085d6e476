"""The square stop button of a notebook, for runs in the background.

An idle kernel ignores the interrupt that the button sends, so a run in the background would not stop. While such runs are under way,
this module replaces the idle kernel's handler, and restores it afterwards. An executing cell keeps its own handler: the interrupt is
then for the cell. Without a kernel, or without a loop in it, nothing is done.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

RETRY_S = 0.05
"""Time between two attempts to install the handler while a cell is executing."""

_lock = threading.Lock()
_watched: list[Callable[[], object]] = []
_old: list[Any] = []


def watch(stop: Callable[[], object]) -> Callable[[], None]:
    """Call `stop` when the person interrupts the idle kernel; returns a function that ends this. Both may be called from any thread."""
    with _lock:
        _watched.append(stop)
    _on_main_loop(_install)

    def end() -> None:
        with _lock:
            if stop in _watched:
                _watched.remove(stop)
        _on_main_loop(_uninstall)

    return end


def _on_main_loop(work: Callable[[], object], delay_s: float = 0.0) -> None:
    """Schedule this on the kernel's main thread, the only one that can set handlers."""
    loop = getattr(_kernel(), "io_loop", None)
    if loop is not None:
        loop.add_callback(loop.call_later, delay_s, work)


def _kernel() -> Any:
    ipython = sys.modules.get("IPython")
    return getattr(ipython.get_ipython(), "kernel", None) if ipython is not None else None


def _install() -> None:
    if _old or not _watched or threading.current_thread() is not threading.main_thread():
        return
    present = signal.getsignal(signal.SIGINT)
    if present is signal.default_int_handler:  # a cell is executing; the kernel restores the idle handler afterwards
        _on_main_loop(_install, RETRY_S)
        return
    _old.append(signal.signal(signal.SIGINT, _interrupted))


def _uninstall() -> None:
    if not _old or _watched or threading.current_thread() is not threading.main_thread():
        return
    if signal.getsignal(signal.SIGINT) is not _interrupted:  # a cell is executing; the kernel restores ours afterwards
        _on_main_loop(_uninstall, RETRY_S)
        return
    signal.signal(signal.SIGINT, _old.pop())


def _interrupted(number: int, frame: FrameType | None) -> None:
    with _lock:
        stops = tuple(_watched)
    for stop in stops:
        # On another thread: the interrupted one may hold the lock that the stop needs.
        threading.Thread(target=stop, name="agentlab-interrupt", daemon=True).start()
    if _old and callable(_old[0]):
        _old[0](number, frame)

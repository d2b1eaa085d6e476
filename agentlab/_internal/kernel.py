"""The notebook that runs this code: detection of a live page, the stop button, and workarounds for ipykernel."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from types import FrameType
from typing import Any

# The page -----------------------------------------------------------------------------------------------------------------------

VARIABLE = "AGENTLAB_FRONTEND"
"""`widgets` or `none` in this environment variable overrides the detection."""


def has_page() -> bool:
    """True if this code runs in a notebook whose page can show widgets and send back clicks.

    A page lets the kernel ask for input and says so in each request (`allow_stdin`); programs that execute notebooks without a page
    (nbclient, nbval, papermill, nbconvert) do not. Messages of widgets only come from a page. Voila executes as nbclient does, and
    shows a page afterwards. A terminal attached to a kernel (`jupyter console`) looks like a page: use the override.
    """
    wish = os.environ.get(VARIABLE, "")
    if wish not in ("", "none", "widgets"):
        raise ValueError(f"{VARIABLE}={wish!r}: set it to 'widgets' or 'none', or leave it unset for automatic detection.")
    return wish == "widgets" if wish else _detected_page()


def _detected_page() -> bool:
    kernel = running_kernel()
    if kernel is None or "PYTEST_CURRENT_TEST" in os.environ:  # a script, a terminal, or pytest started from a notebook
        return False
    if "google.colab" in sys.modules or os.environ.get("SERVER_SOFTWARE", "").startswith("voila/"):
        return True
    try:
        request = kernel.get_parent("shell")
    except LookupError:  # ipykernel 7.0, called from a thread
        return False
    if request.get("header", {}).get("msg_type") in ("comm_open", "comm_msg"):
        return True
    return bool(request.get("content", {}).get("allow_stdin", False))


def running_kernel() -> Any | None:
    """The ipykernel of this process, without importing ipykernel."""
    kernel_class = getattr(sys.modules.get("ipykernel.kernelbase"), "Kernel", None)
    return kernel_class.instance() if kernel_class is not None and kernel_class.initialized() else None


# The stop button ----------------------------------------------------------------------------------------------------------------
#
# An idle kernel ignores the interrupt that the button sends, so a run in the background would not stop. While such runs are under
# way, the idle kernel's handler is replaced, and restored afterwards. An executing cell keeps its own handler: the interrupt is then
# for the cell. Without a kernel, or without a loop in it, nothing is done.

RETRY_S = 0.05
"""Time between two attempts to install the handler while a cell is executing."""

_lock = threading.Lock()
_watched: list[Callable[[], object]] = []
_old: list[Any] = []


def on_stop_button(stop: Callable[[], object]) -> Callable[[], None]:
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


# ipykernel ---------------------------------------------------------------------------------------------------------------------
#
# All uses of ipykernel's private API are here. They let the panel's messages reach a kernel that awaits a run, and answer them.
#
# Three problems, each worked around only if the kernel has the features in question:
#
# 1. ipykernel 7.4 sends a widget's message to the shell that last published for that widget, whatever subshell the page
#    named. `adopt` restores the rule of 7.0 to 7.3 for a widget: the page decides.
# 2. ipykernel 7.4 handles a widget's message beside an async cell without a status "busy" and "idle". ipywidgets' page waits
#    for that "idle" before it sends the next change, so the control is dead. The adopted widgets' messages get both.
# 3. Before 7.4 such a message waits until the async cell has ended. Inside `letting_through()` the adopted widgets'
#    messages are handled at once; all others wait their turn, in order.
#
# Only comm_msg of adopted widgets is touched. Everything runs on the kernel's main thread. A comm_msg handler is synchronous, so
# "set the parent, handle, restore the parent" cannot be interleaved with anything else. Tested with ipykernel 6.17 to 7.4; a kernel
# with other features is left alone.

TICK_S = 0.25


class KernelMend:
    """The workarounds for one kernel; `parts` names those in force, empty if none applies."""

    def __init__(self, kernel: Any | None) -> None:
        self._kernel: Any = kernel
        self._adopted: set[str] = set()
        self._depth = 0
        self._open = contextlib.ExitStack()
        self.parts: list[str] = []
        self._letting_through: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext
        if kernel is None or not has_common_features(kernel):
            return
        dispatch: Any = getattr(kernel, "dispatch_shell", None)
        takes = set(inspect.signature(dispatch).parameters) if dispatch else set()
        if "concurrent" in takes:  # 7.4
            self._mend_concurrent(dispatch)
        elif "subshell_id" in takes and hasattr(kernel, "_main_asyncio_lock"):  # 7.0 to 7.3
            self._letting_through = self._around_the_lock
            self.parts.append("let through the lock")
        elif hasattr(getattr(kernel, "msg_queue", None), "put_nowait"):  # 6
            self._letting_through = self._around_the_queue
            self.parts.append("let through the queue")

    def adopt(self, comm: Any) -> None:
        """Handle the messages of this widget's comm (`widget.comm`)."""
        if self._kernel is None or comm is None:
            return
        self._adopted.add(comm.comm_id)
        if callable(getattr(comm, "_reply_subshell_for", None)):  # 7.4
            comm._reply_subshell_for = keep_subshell

    @contextlib.contextmanager
    def letting_through(self) -> Iterator[None]:
        """Inside the block, adopted widgets' messages do not wait for the cell; blocks may overlap (gather)."""
        if self._depth == 0:
            self._open.enter_context(self._letting_through())
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            if self._depth == 0:
                self._open.close()

    def _mend_concurrent(self, dispatch: Callable[..., Any]) -> None:
        async def dispatch_shell(msg: Any, /, subshell_id: Any = None, *, concurrent: bool = False) -> None:
            if concurrent:
                mine = self._mine(msg)
                if mine is not None:
                    self._handle(*mine)
                    return
            await dispatch(msg, subshell_id=subshell_id, concurrent=concurrent)

        self._kernel.dispatch_shell = dispatch_shell
        self.parts.append("statuses beside an async cell")

    @contextlib.contextmanager
    def _around_the_lock(self) -> Iterator[None]:
        """7.0 to 7.3: every message takes the kernel's lock and is then dispatched. Here it is inspected before the lock."""
        kernel, lock, dispatch = self._kernel, self._kernel._main_asyncio_lock, self._kernel.dispatch_shell

        async def dispatch_shell(msg: Any, /, subshell_id: Any = None) -> None:
            if subshell_id is not None:  # a subshell's thread, which has its own lock
                await dispatch(msg, subshell_id=subshell_id)
                return
            mine = self._mine(msg)
            if mine is not None:
                self._handle(*mine)
                return
            async with lock:  # in order, as before
                await dispatch(msg, subshell_id=None)

        kernel._main_asyncio_lock, kernel.dispatch_shell = contextlib.nullcontext(), dispatch_shell
        try:
            yield
        finally:
            kernel._main_asyncio_lock = lock
            del kernel.dispatch_shell  # the class's own again

    @contextlib.contextmanager
    def _around_the_queue(self) -> Iterator[None]:
        """6: messages go through one queue; adopted ones are handled before it."""
        messages = self._kernel.msg_queue
        put = messages.put_nowait

        def put_nowait(item: Any) -> None:
            try:
                _, dispatch, args = item
                mine = self._mine(args[0]) if dispatch == self._kernel.dispatch_shell else None
            except (TypeError, ValueError, IndexError):
                mine = None
            if mine is None:
                put(item)
            else:
                self._handle(*mine)

        messages.put_nowait = put_nowait
        try:
            yield
        finally:
            del messages.put_nowait

    def _mine(self, frames: Any) -> tuple[Any, Any] | None:
        """Return the identities and the message, if it is a comm_msg of an adopted widget."""
        session = self._kernel.session
        try:
            idents, rest = session.feed_identities(frames, copy=False)
            peek = session.deserialize(rest, content=False, copy=False)  # peeking does not consume the signature
            if peek["header"]["msg_type"] != "comm_msg":
                return None
            if session.unpack(peek["content"])["comm_id"] not in self._adopted:
                return None
            return idents, session.deserialize(rest, content=True, copy=False)
        except Exception:  # the kernel itself reports what is wrong with it
            return None

    def _handle(self, idents: Any, message: Any) -> None:
        """Handle a message as dispatch_shell does, without its SIGINT handling, whose saved handler is the cell's."""
        kernel = self._kernel
        before_ident, before = kernel._parent_ident["shell"], kernel.get_parent("shell")
        kernel.set_parent(idents, message, channel="shell")
        try:
            kernel._publish_status("busy", "shell")
            kernel.shell_handlers["comm_msg"](kernel.shell_stream, idents, message)
        except Exception:
            kernel.log.exception("Exception in message handler:")
        finally:
            for stream in (sys.stdout, sys.stderr):
                if stream is not None:
                    stream.flush()
            kernel._publish_status("idle", "shell")
            kernel.set_parent(before_ident, before, channel="shell")


def keep_subshell(data: Any, default: Any) -> Any:
    """Return the subshell that the page named, as 7.0 to 7.3 do."""
    return default


def has_common_features(kernel: Any) -> bool:
    """True if the kernel has everything that `_mine` and `_handle` use."""
    names = ("session", "set_parent", "get_parent", "_publish_status", "_parent_ident", "shell_handlers", "shell_stream", "log")
    return all(hasattr(kernel, name) for name in names) and "comm_msg" in kernel.shell_handlers


def mend() -> KernelMend:
    """Return the workaround for this process's kernel; without a kernel, one that does nothing."""
    kernel = running_kernel()
    if kernel is None:
        return KernelMend(None)
    found: KernelMend | None = getattr(kernel, "_agentlab_mend", None)
    if found is None:
        found = KernelMend(kernel)
        kernel._agentlab_mend = found
    return found


@contextlib.asynccontextmanager
async def waiting() -> AsyncIterator[None]:
    """Wrap what a cell awaits: the panel's messages get through, and the stop button acts within TICK_S.

    An interrupt is only seen when the loop wakes up, which a cell that awaits a slow provider would not do. Nothing is done outside a
    kernel's main thread.
    """
    if "ipykernel.kernelbase" not in sys.modules or threading.current_thread() is not threading.main_thread():
        yield
        return
    ticking = asyncio.ensure_future(_tick())
    try:
        with mend().letting_through():
            yield
    finally:
        ticking.cancel()


async def _tick() -> None:
    while True:  # noqa: ASYNC110  only wakes the loop
        await asyncio.sleep(TICK_S)

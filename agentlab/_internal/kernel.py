"""The notebook's kernel: detects a live page, handles the stop button, and works around ipykernel's problems."""

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

    A page allows the kernel to ask for input, and says so in each request (`allow_stdin`); programs that execute notebooks without a
    page (nbclient, nbval, papermill, nbconvert) do not. Only a page sends messages of widgets. Voila executes like nbclient, and shows
    a page afterwards. A terminal attached to a kernel (`jupyter console`) looks like a page: set the environment variable there.
    """
    override = os.environ.get(VARIABLE, "")
    if override not in ("", "none", "widgets"):
        raise ValueError(f"{VARIABLE}={override!r}: set it to 'widgets' or 'none', or leave it unset for automatic detection.")
    return override == "widgets" if override else _detected_page()


def _detected_page() -> bool:
    if "PYTEST_CURRENT_TEST" in os.environ:  # pytest started from a notebook
        return False
    kernel = running_kernel()
    if kernel is None:
        return has_marimo_page()
    if "google.colab" in sys.modules:
        return not has_old_widgets()
    if os.environ.get("SERVER_SOFTWARE", "").startswith("voila/"):
        return True
    try:
        request = kernel.get_parent("shell")
    except LookupError:  # ipykernel 7.0, called from a thread
        return False
    if request.get("header", {}).get("msg_type") in ("comm_open", "comm_msg"):
        return True
    return bool(request.get("content", {}).get("allow_stdin", False))


def has_old_widgets() -> bool:
    """True if this process runs with ipywidgets 7, as on Colab until its session is restarted."""
    return str(getattr(sys.modules.get("ipywidgets"), "__version__", "8")).startswith("7.")


def has_marimo_page() -> bool:
    """True if this thread runs a marimo notebook for a browser. marimo has no Jupyter kernel; an export runs without a request."""
    marimo = sys.modules.get("marimo")
    return marimo is not None and bool(marimo.running_in_notebook()) and marimo.app_meta().request is not None


def running_kernel() -> Any | None:
    """Return the ipykernel of this process, without importing ipykernel."""
    kernel_class = getattr(sys.modules.get("ipykernel.kernelbase"), "Kernel", None)
    return kernel_class.instance() if kernel_class is not None and kernel_class.initialized() else None


# The stop button ----------------------------------------------------------------------------------------------------------------
#
# An idle kernel ignores the interrupt that the button sends, so a run in the background would not stop. While such runs are active, the
# idle kernel's handler is replaced, and restored afterwards. An executing cell keeps its own handler: the interrupt is then for the
# cell. Without a kernel, or in a kernel without an event loop, nothing is done.

RETRY_S = 0.05
"""Time between two attempts to install the handler while a cell is executing."""

_lock = threading.Lock()
_watched: list[Callable[[], object]] = []
_old: list[Any] = []


def on_stop_button(stop: Callable[[], object]) -> Callable[[], None]:
    """Call `stop` when the user interrupts the idle kernel. Returns a function that ends this. Both may be called from any thread."""
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
    """Schedule work on the kernel's main thread, the only thread that can set handlers."""
    loop = getattr(running_kernel(), "io_loop", None)
    if loop is not None:
        loop.add_callback(loop.call_later, delay_s, work)


def _install() -> None:
    if _old or not _watched or threading.current_thread() is not threading.main_thread():
        return
    present = signal.getsignal(signal.SIGINT)
    idle = getattr(running_kernel(), "saved_sigint_handler", present)
    if present is not idle:  # a cell is executing, or awaits something; the kernel restores the idle handler afterwards
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
        # On another thread, since the interrupted one may hold the lock that `stop` needs.
        threading.Thread(target=stop, name="agentlab-interrupt", daemon=True).start()
    if _old and callable(_old[0]):
        _old[0](number, frame)


# ipykernel ---------------------------------------------------------------------------------------------------------------------
#
# All uses of ipykernel's private API are here. They let the panel's messages reach a kernel that awaits a run, and answer the messages.
#
# Each of three problems is worked around only if the kernel has the features in question:
#
# 1. ipykernel 7.4 sends a widget's message to the shell that last published for that widget, whatever subshell the page
#    named. `adopt` restores the behaviour of 7.0 to 7.3 for a widget: the page decides.
# 2. ipykernel 7.4 handles a widget's message beside an async cell without a status "busy" and "idle". ipywidgets' page waits
#    for that "idle" before it sends the next change, so the control does not react. Messages of adopted widgets get both.
# 3. Before 7.4, such a message waits until the async cell has ended. Inside `letting_through()`, messages of adopted widgets
#    are handled immediately; all other messages wait, in order.
#
# Only comm_msg of adopted widgets is affected. Everything runs on the kernel's main thread. A comm_msg handler is synchronous, so
# nothing can happen between setting the parent, handling the message and restoring the parent. Tested with ipykernel 6.17 to 7.4; a
# kernel with other features is not changed.

TICK_S = 0.25


class KernelWorkarounds:
    """The workarounds for one kernel; `parts` names the active ones."""

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
        parameters = set(inspect.signature(dispatch).parameters) if dispatch else set()
        if "concurrent" in parameters:  # 7.4
            self._send_statuses(dispatch)
        elif "subshell_id" in parameters and hasattr(kernel, "_main_asyncio_lock"):  # 7.0 to 7.3
            self._letting_through = self._around_the_lock
            self.parts.append("let through the lock")
        elif hasattr(getattr(kernel, "msg_queue", None), "put_nowait"):  # 6
            self._letting_through = self._around_the_queue
            self.parts.append("let through the queue")

    def adopt(self, comm: Any) -> None:
        """Apply the workarounds to the messages of this widget's comm (`widget.comm`)."""
        if self._kernel is None or comm is None:
            return
        self._adopted.add(comm.comm_id)
        if callable(getattr(comm, "_reply_subshell_for", None)):  # 7.4
            comm._reply_subshell_for = keep_subshell

    @contextlib.contextmanager
    def letting_through(self) -> Iterator[None]:
        """Handle messages of adopted widgets without waiting for the cell, within the block. Blocks may overlap (gather)."""
        if self._depth == 0:
            self._open.enter_context(self._letting_through())
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            if self._depth == 0:
                self._open.close()

    def _send_statuses(self, dispatch: Callable[..., Any]) -> None:
        """7.4: handle adopted messages beside an async cell with their statuses."""

        async def dispatch_shell(msg: Any, /, subshell_id: Any = None, *, concurrent: bool = False) -> None:
            if concurrent:
                adopted = self._adopted_message(msg)
                if adopted is not None:
                    self._handle(*adopted)
                    return
            await dispatch(msg, subshell_id=subshell_id, concurrent=concurrent)

        self._kernel.dispatch_shell = dispatch_shell
        self.parts.append("statuses beside an async cell")

    @contextlib.contextmanager
    def _around_the_lock(self) -> Iterator[None]:
        """7.0 to 7.3: every message acquires the kernel's lock before it is dispatched. Handle adopted messages before the lock."""
        kernel, lock, dispatch = self._kernel, self._kernel._main_asyncio_lock, self._kernel.dispatch_shell

        async def dispatch_shell(msg: Any, /, subshell_id: Any = None) -> None:
            if subshell_id is not None:  # a subshell's thread, which has its own lock
                await dispatch(msg, subshell_id=subshell_id)
                return
            adopted = self._adopted_message(msg)
            if adopted is not None:
                self._handle(*adopted)
                return
            async with lock:  # in order, as before
                await dispatch(msg, subshell_id=None)

        kernel._main_asyncio_lock, kernel.dispatch_shell = contextlib.nullcontext(), dispatch_shell
        try:
            yield
        finally:
            kernel._main_asyncio_lock = lock
            del kernel.dispatch_shell  # restores the class's method

    @contextlib.contextmanager
    def _around_the_queue(self) -> Iterator[None]:
        """6: messages go through one queue. Handle adopted messages before the queue."""
        messages = self._kernel.msg_queue
        put = messages.put_nowait

        def put_nowait(item: Any) -> None:
            try:
                _, dispatch, args = item
                adopted = self._adopted_message(args[0]) if dispatch == self._kernel.dispatch_shell else None
            except (TypeError, ValueError, IndexError):
                adopted = None
            if adopted is None:
                put(item)
            else:
                self._handle(*adopted)

        messages.put_nowait = put_nowait
        try:
            yield
        finally:
            del messages.put_nowait

    def _adopted_message(self, frames: Any) -> tuple[Any, Any] | None:
        """Return the identities and the message if it is a comm_msg of an adopted widget, else None."""
        session = self._kernel.session
        try:
            idents, rest = session.feed_identities(frames, copy=False)
            peek = session.deserialize(rest, content=False, copy=False)  # peeking does not consume the signature
            if peek["header"]["msg_type"] != "comm_msg":
                return None
            if session.unpack(peek["content"])["comm_id"] not in self._adopted:
                return None
            return idents, session.deserialize(rest, content=True, copy=False)
        except Exception:  # the kernel itself reports errors in a message
            return None

    def _handle(self, idents: Any, message: Any) -> None:
        """Handle a message like dispatch_shell, but without its SIGINT handling, whose saved handler is the cell's."""
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
    """True if the kernel has everything that `_adopted_message` and `_handle` use."""
    names = ("session", "set_parent", "get_parent", "_publish_status", "_parent_ident", "shell_handlers", "shell_stream", "log")
    return all(hasattr(kernel, name) for name in names) and "comm_msg" in kernel.shell_handlers


def kernel_workarounds() -> KernelWorkarounds:
    """Return the workarounds for this process's kernel; without a kernel, they do nothing."""
    kernel = running_kernel()
    if kernel is None:
        return KernelWorkarounds(None)
    found: KernelWorkarounds | None = getattr(kernel, "_agentlab_workarounds", None)
    if found is None:
        found = KernelWorkarounds(kernel)
        kernel._agentlab_workarounds = found
    return found


@contextlib.asynccontextmanager
async def waiting() -> AsyncIterator[None]:
    """Wrap the await of a cell, so that the panel's messages are handled meanwhile, and the stop button acts within TICK_S.

    An interrupt is noticed only when the event loop wakes up, which may not happen while a cell awaits a slow provider. Outside a
    kernel's main thread, nothing is done.
    """
    if "ipykernel.kernelbase" not in sys.modules or threading.current_thread() is not threading.main_thread():
        yield
        return
    ticking = asyncio.ensure_future(_tick())
    try:
        with kernel_workarounds().letting_through():
            yield
    finally:
        ticking.cancel()


async def _tick() -> None:
    while True:  # noqa: ASYNC110  it wakes the loop, and waits for nothing
        await asyncio.sleep(TICK_S)

"""A real Jupyter kernel in a separate process, driven as a front end drives it."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import KernelManager

Message = dict[str, Any]
PATIENCE_S = 60.0  # a kernel on a busy machine is slow: a message missing after this time is not coming

# Python executables, separated as in PATH; each needs ipykernel and agentlab's dependencies, not agentlab itself.
PYTHONS_VARIABLE = "AGENTLAB_KERNEL_PYTHONS"
OF_OTHER_JUPYTERS = ("JUPYTER", "JPY_", "IPYTHON", "PYTEST_", "AGENTLAB_")  # the kernels of the tests inherit none of these


class KernelProblemError(Exception):
    """The kernel did not start, did not answer in time, or a cell raised."""


def kernel_pythons() -> list[str]:
    """The Pythons whose kernels are tested: those of AGENTLAB_KERNEL_PYTHONS, otherwise the current one."""
    named = os.environ.get(PYTHONS_VARIABLE, "")
    return [python for python in named.split(os.pathsep) if python] or [sys.executable]


@functools.cache  # called for every test
def ipykernel_version(python: str) -> str:
    """The version of ipykernel in that Python's environment, such as '7.4.0'."""
    ask = "from importlib.metadata import version; print(version('ipykernel'))"
    answer = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=False)
    if answer.returncode:
        message = f"{python} has no ipykernel; install ipykernel and ipywidgets there, or change {PYTHONS_VARIABLE}"
        raise KernelProblemError(f"{message}\n{answer.stderr}")
    return answer.stdout.strip()


def clean_environment(home: Path) -> dict[str, str]:
    """This process's environment without the variables of an outer Jupyter or pytest, and with a separate home."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(OF_OTHER_JUPYTERS)}
    places = {"HOME": home, "IPYTHONDIR": home / "ipython", "JUPYTER_RUNTIME_DIR": home / "runtime"}
    return kept | {name: str(place) for name, place in places.items()}


def write_kernelspec(folder: Path, python: str) -> None:
    """Write `folder`/python3/kernel.json, the specification of a kernel that runs on exactly this Python."""
    argv = [python, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec = {"argv": argv, "display_name": "Python 3 (ipykernel)", "language": "python", "metadata": {"debugger": False}}
    (folder / "python3").mkdir(parents=True)
    (folder / "python3" / "kernel.json").write_text(json.dumps(spec), encoding="utf-8")


@dataclass(slots=True)
class Request:
    """One message sent to the kernel, with the messages published in reply so far."""

    id: str
    expects_reply: bool = False  # a cell is answered, a widget's message is not
    replied: bool = False
    busy: bool = False
    idle: bool = False
    printed: str = ""
    displayed: list[Message] = field(default_factory=list)  # mime bundles
    error: str | None = None

    @property
    def done(self) -> bool:
        """True if the kernel has reported that it is done.

        For a cell that is both its reply and "idle": ipykernel 7.0 to 7.3 may lose a message that arrives between the
        two, and then hangs for good (ipykernel#1554).
        """
        return self.idle and (self.replied or not self.expects_reply)


class LiveKernel:
    """Start a kernel with `with LiveKernel() as kernel:`; it ends with the block.

    Nothing is read in the background: messages arrive while `execute` or `wait` runs. `wait` is the only place that
    reads, and it calls every listener with every published message, in order.
    """

    def __init__(self, python: str = sys.executable, environment: Mapping[str, str] | None = None) -> None:
        self.python = python
        self.requests: dict[str, Request] = {}
        self.listeners: list[Callable[[Message], None]] = []
        self._home = Path(tempfile.mkdtemp(prefix="kernel-"))
        self._environment = clean_environment(self._home) | dict(environment or {})
        write_kernelspec(self._home / "kernels", python)
        specs = KernelSpecManager(kernel_dirs=[str(self._home / "kernels")], ensure_native_kernel=False)
        self._manager = KernelManager(kernel_name="python3", kernel_spec_manager=specs)
        self._manager.connection_file = str(self._home / "connection.json")
        self._client: BlockingKernelClient | None = None
        self._log = self._home / "log.txt"

    def __enter__(self) -> LiveKernel:
        with self._log.open("wb") as log:
            self._manager.start_kernel(env=self._environment, cwd=str(self._home), stdout=log, stderr=log)
        client = self._manager.client()
        assert isinstance(client, BlockingKernelClient)
        self._client = client
        client.start_channels()
        try:
            client.wait_for_ready(timeout=PATIENCE_S)
        except RuntimeError as problem:
            log_text = self.log()
            self.__exit__(None, None, None)
            raise KernelProblemError(f"the kernel of {self.python} did not start\n{log_text}") from problem
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._client is not None:
            self._client.stop_channels()
        self._manager.shutdown_kernel(now=True)
        shutil.rmtree(self._home, ignore_errors=True)

    @property
    def client(self) -> BlockingKernelClient:
        """The client of the running kernel."""
        if self._client is None:
            raise KernelProblemError("the kernel is not running; use `with LiveKernel() as kernel:`")
        return self._client

    def log(self) -> str:
        """The output of the kernel's process itself, outside any cell."""
        return self._log.read_text(encoding="utf-8", errors="replace")[-4000:]

    def submit(self, code: str, *, allow_stdin: bool = True) -> Request:
        """Send a cell and return at once."""
        request = self._track(self.client.execute(code, allow_stdin=allow_stdin, stop_on_error=False))
        request.expects_reply = True
        return request

    def execute(self, code: str, *, timeout: float = PATIENCE_S) -> Request:
        """Run a cell to its end; raise if it raises."""
        request = self.submit(code)
        self.wait(lambda: request.done, timeout, f"the end of the cell {code!r}")
        if request.error is not None:
            raise KernelProblemError(f"the cell {code!r} raised\n{request.error}")
        return request

    def value(self, expression: str) -> Any:
        """The value of an expression in the kernel, which must have a JSON form."""
        return json.loads(self.execute(f"import json; print(json.dumps({expression}))").printed)

    def send(self, message_type: str, content: Message, *, subshell: str | None = None) -> Request:
        """Send one message on the shell channel, to the main shell or to a subshell."""
        message = self.client.session.msg(message_type, content)
        if subshell is not None:
            message["header"]["subshell_id"] = subshell
        self.client.shell_channel.send(message)
        return self._track(message["header"]["msg_id"])

    def new_subshell(self) -> str | None:
        """The id of a new subshell, or None if this kernel has none (ipykernel before 7)."""
        info = self.client.kernel_info(reply=True, timeout=PATIENCE_S)
        if "kernel subshells" not in info["content"].get("supported_features", []):
            return None
        message = self.client.session.msg("create_subshell_request", {})
        self.client.control_channel.send(message)
        while True:
            reply = self.client.get_control_msg(timeout=PATIENCE_S)
            if reply["parent_header"].get("msg_id") == message["header"]["msg_id"]:
                return str(reply["content"]["subshell_id"])

    def interrupt(self) -> None:
        """Interrupt the kernel, like the stop button."""
        self._manager.interrupt_kernel()

    def wait(self, until: Callable[[], bool], timeout: float = PATIENCE_S, what: str = "the condition") -> None:
        """Read published messages until the condition holds."""
        deadline = time.monotonic() + timeout
        while not until():
            left = deadline - time.monotonic()
            if left <= 0:
                raise KernelProblemError(f"waited {timeout} s in vain for {what}\n{self.log()}")
            with contextlib.suppress(queue.Empty):
                self._note(self.client.get_iopub_msg(timeout=min(left, 0.05)))
            self._note_replies()

    def wait_for(self, seconds: float) -> None:
        """Read published messages for this time."""
        end = time.monotonic() + seconds
        self.wait(lambda: time.monotonic() >= end, seconds + 10)

    def _track(self, message_id: str) -> Request:
        return self.requests.setdefault(message_id, Request(message_id))

    def _note_replies(self) -> None:
        while self.client.shell_channel.msg_ready():
            request = self.requests.get(self.client.get_shell_msg(timeout=PATIENCE_S)["parent_header"].get("msg_id", ""))
            if request is not None:
                request.replied = True

    def _note(self, message: Message) -> None:
        content = message["content"]
        request = self.requests.get(message["parent_header"].get("msg_id", ""))
        if request is not None:
            match message["msg_type"]:
                case "status":
                    request.busy = request.busy or content["execution_state"] == "busy"
                    request.idle = request.idle or content["execution_state"] == "idle"
                case "stream":
                    request.printed += content["text"]
                case "display_data" | "execute_result":
                    request.displayed.append(content["data"])
                case "error":
                    request.error = "\n".join(content["traceback"])
        for listener in self.listeners:
            listener(message)

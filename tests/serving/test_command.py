"""`python -m agentlab serve`: agents from modules and notebooks, and contexts that survive the process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from agentlab.__main__ import main
from agentlab.errors import ConfigurationError
from agentlab.serving.loader import NOTEBOOK_MODULE, load

from .builders import PATIENCE_S, ROOT, process

AGENT = """
import asyncio
from pathlib import Path
import agentlab as lab
from agentlab.testing import ScriptedProvider

def finalize(answer: str) -> str:
    return answer

def model(request, index):
    return " | ".join(message.text for message in request.messages if message.role == "user")

async def slowly(request, ask):
    if "slow" in request.messages[-1].text:
        Path("in-the-middle").touch()
        await asyncio.sleep(60)
    return await ask(request)

agent = lab.Agent(ScriptedProvider(model), tools=[finalize], middleware=[slowly])
number = 5
"""


def notebook(folder: Path, *cells: str | list[str], name: str = "book.ipynb") -> Path:
    """A notebook with these code cells, each after a text cell."""
    path = folder / name
    listed: list[dict[str, Any]] = []
    for cell in cells:
        listed += [{"cell_type": "markdown", "source": "text"}, {"cell_type": "code", "source": cell, "outputs": []}]
    path.write_text(json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": listed}))
    return path


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "bots_for_tests.py").write_text(AGENT)
    yield tmp_path
    for name in [name for name in sys.modules if name.endswith("_for_tests") or name == NOTEBOOK_MODULE]:
        del sys.modules[name]


def test_contexts_survive_every_end_of_the_process(folder: Path) -> None:
    for end, known in [
        (signal.SIGTERM, []),
        (signal.SIGKILL, ["1"]),
        (signal.SIGINT, ["1", "2"]),
        (signal.SIGTERM, ["1", "2", "3"]),
    ]:
        message = str(len(known) + 1)
        with process("bots_for_tests:agent", "--db", "kept.sqlite", cwd=folder, end=end) as client:
            answer = client.post("/chat", json={"context_id": "a", "message": message})
            assert answer.json()["response"] == " | ".join([*known, message])
    assert (folder / "kept.sqlite").exists()


def test_a_crash_in_the_middle_of_a_request_leaves_the_context_unchanged(folder: Path) -> None:
    def ask(client: httpx.Client, message: str) -> httpx.Response:
        return client.post("/chat", json={"context_id": "a", "message": message})

    def give_up(url: httpx.URL) -> None:
        with httpx.Client(base_url=url, timeout=60, trust_env=False) as client, pytest.raises(httpx.TransportError):
            ask(client, "slow")

    with process("bots_for_tests:agent", cwd=folder, end=signal.SIGKILL) as client:
        ask(client, "1")
        waiting = threading.Thread(target=give_up, args=(client.base_url,))
        waiting.start()
        until = time.monotonic() + PATIENCE_S
        while not (folder / "in-the-middle").exists():
            assert time.monotonic() < until, "the request never reached the agent"
            time.sleep(0.01)
    waiting.join(PATIENCE_S)
    assert not waiting.is_alive()
    assert (folder / "agentlab-chat.sqlite").exists()
    with process("bots_for_tests:agent", cwd=folder) as client:
        assert ask(client, "2").json()["response"] == "1 | 2"


def test_a_token_comes_from_the_environment_or_the_command_line(folder: Path) -> None:
    body = {"prompt": "go"}
    with process(
        "bots_for_tests:agent", "--db", ":memory:", cwd=folder, env={"AGENTLAB_SERVE_TOKEN": "from-the-environment"}
    ) as client:
        assert client.post("/chat/ask", json=body).status_code == 401
        allowed = {"authorization": "Bearer from-the-environment"}
        assert client.post("/chat/ask", json=body, headers=allowed).status_code == 200
    assert not (folder / "agentlab-chat.sqlite").exists()


def test_the_quickstart_notebook_is_served(folder: Path) -> None:
    notebook = ROOT / "notebooks" / "01_quickstart.ipynb"
    with process(f"{notebook}:searcher", "--db", "kept.sqlite", cwd=folder) as client:
        description = client.get("/openapi.json").json()["info"]["description"]
        assert "search_lost_property" in description
    assert (folder / "kept.sqlite").exists()  # in the working folder of the command, not in that of the notebook


def test_a_chat_from_a_notebook_keeps_its_recordings(folder: Path) -> None:
    notebook(
        folder,
        "import agentlab as lab\nfrom tests.fixtures.scenarios import get_weather",
        f"with lab.replay({str(ROOT / 'fixtures' / 'question')!r}, match='order'):\n"
        "    chat = lab.Chat(lab.Agent('openai:gpt-5.4-mini', tools=[get_weather]), path='own.sqlite')",
    )
    with process("book.ipynb:chat", cwd=folder) as client:
        reply = client.post("/chat", json={"context_id": "a", "message": "Do I need an umbrella?"}).json()
        assert reply["stop_reason"] == "completed"
        assert [message["role"] for message in reply["messages"]] == ["user", "assistant", "tool", "assistant"]
    assert (folder / "own.sqlite").exists()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["bots_for_tests:agent", "--host", "0.0.0.0"], "--host 0.0.0.0 can be reached from other machines: set a token"),
        (["bots_for_tests:agent", "--host", "lab.example"], "set a token with AGENTLAB_SERVE_TOKEN"),
        (["bots_for_tests:agent", "--token", ""], "The token cannot be used"),
        (["bots_for_tests:agent", "--token", "two words"], "without spaces"),
        (["bots_for_tests:agent", "--port", "70000"], "--port 70000: pass a number from 0 to 65535"),
        (["bots_for_tests:agent", "--db", "none/c.sqlite"], "Pass a file in a folder that exists"),
        (["bots_for_tests:number"], "'bots_for_tests:number' is int: name an Agent, or a Chat"),
        (["bots_for_tests"], "'bots_for_tests' is not the name of an agent: write it as module:name"),
        (["bots_for_tests:"], "is not the name of an agent"),
        (["bots_for_tests:agnet"], "Did you mean 'agent'?"),
        (["boots_for_tests:agent"], "There is no module 'boots_for_tests'"),
        (["no/file.py:agent"], "There is no file 'no/file.py'"),
        (["no.ipynb:agent"], "There is no file 'no.ipynb'"),
    ],
)
def test_an_object_that_cannot_be_served_is_reported(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, arguments: list[str], reason: str
) -> None:
    monkeypatch.delenv("AGENTLAB_SERVE_TOKEN", raising=False)
    assert main(["serve", *arguments]) == 2
    output = capsys.readouterr().err
    assert reason in output
    assert "Traceback" not in output


def test_without_the_extra_the_error_says_what_to_install(folder: Path) -> None:
    check = "import sys; sys.modules['uvicorn'] = sys.modules['fastapi'] = None; sys.argv[1:] = ['serve', 'x:y']; " \
            "from agentlab.__main__ import main; sys.exit(main())"  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", check], capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    assert done.returncode == 2
    assert done.stderr == "`serve` needs fastapi: pip install 'agentlab-jupyter[serve]'\n"


# Loading -------------------------------------------------------------------------------------------------------------------


def test_a_notebook_is_executed_up_to_the_cell_that_defines_the_name(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "sub").mkdir()
    (folder / "sub" / "data.txt").write_text("beside it")
    (folder / "sub" / "helper_for_tests.py").write_text("helped = 1")
    path = notebook(
        folder / "sub",
        ["import asyncio\n", "from dataclasses import dataclass\n", "from pathlib import Path"],
        "%matplotlib inline\n!ls\nprint('hello')",
        "%%bash\nexit 1",
        "import helper_for_tests\ntext = Path('data.txt').read_text()",
        "task = asyncio.create_task(asyncio.sleep(0, 'awaited'))",
        "told = await task\ntold",
        "number = (7\n    % 4)",
        "display(number, display_id=True)\n?display\ndisplay?\n  asyncio.sleep??\nasked = '''\nWhat is it?\n'''",
        "@dataclass\nclass Named:\n    name: 'str' = text\n\nwanted = [told, Named().name, number, asked]",
        "1 / 0",
        "a draft of",
        name="book.ipynb",
    )
    assert load(f"{path.relative_to(folder)}:wanted") == ["awaited", "beside it", 3, "\nWhat is it?\n"]
    assert capsys.readouterr().out == ""
    assert Path.cwd() == (folder / "sub").resolve()
    assert NOTEBOOK_MODULE in sys.modules


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        (["agent = 1 / 0"], "Cell 2 of book.ipynb failed with ZeroDivisionError: division by zero. Fix that first."),
        (["x = 1", "raise KeyError(5)", "agent = 1"], "Cell 4 of book.ipynb failed with KeyError"),
        (["agent ="], "Cell 2 of book.ipynb failed with SyntaxError"),
        (["agents = 1"], "There is no name defined in book.ipynb: 'agent'. Did you mean 'agents'?"),
        (["def f():\n    agent = 1"], "Choose from: f."),
        (["if False:\n    agent = 1"], "There is no name defined in book.ipynb: 'agent'"),  # Python leaves such a line out
        (["if []:\n    agent = 1"], "There is no name defined in book.ipynb, cell 2,: 'agent'"),
    ],
)
def test_a_notebook_without_the_name_is_reported(folder: Path, cells: list[str], reason: str) -> None:
    notebook(folder, *cells)
    with pytest.raises(ConfigurationError) as caught:
        load("book.ipynb:agent")
    assert reason in str(caught.value)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"cells": [5]}', '{"worksheets": []}', "\x00"])
def test_a_file_that_is_no_notebook_is_reported(folder: Path, text: str) -> None:
    (folder / "book.ipynb").write_text(text)
    with pytest.raises(ConfigurationError, match="not a notebook in format 4"):
        load("book.ipynb:agent")


def test_a_module_is_loaded_by_name_or_by_file(folder: Path) -> None:
    (folder / "sub").mkdir()
    (folder / "sub" / "other_for_tests.py").write_text("import beside_for_tests\nagent = beside_for_tests.value")
    (folder / "sub" / "beside_for_tests.py").write_text("value = 3")
    (folder / "broken_for_tests.py").write_text("import no_such_module_at_all")
    assert load("bots_for_tests:number") == load("bots_for_tests.py:number") == 5
    assert load("sub/other_for_tests.py:agent") == 3
    for target in ("broken_for_tests:agent", "broken_for_tests.py:agent"):
        with pytest.raises(ConfigurationError, match="ModuleNotFoundError: No module named 'no_such_module_at_all'"):
            load(target)

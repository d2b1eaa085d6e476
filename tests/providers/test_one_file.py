"""A provider is one file: found by its name, without an edit anywhere else, and independent of other providers."""

from __future__ import annotations

import ast
import asyncio
import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import agentlab as lab
import agentlab.providers
from agentlab.providers import registry

FOLDER = Path(agentlab.providers.__file__).parent

NEW = '''
"""A new server, on the chat completions wire."""

from dataclasses import dataclass
from typing import ClassVar

from agentlab.providers import Capabilities, ChatCompletions


@dataclass(frozen=True, slots=True)
class NewServer(ChatCompletions):
    """A new server."""

    name: ClassVar[str] = "new-server"
    wire: ClassVar[str] = "new-server.chat"
    cap_field: ClassVar[str] = "max_tokens"
    capabilities: ClassVar[Capabilities] = Capabilities(reports_cost=True)

    base_url: str = "https://new.example/v1"

    def auth_headers(self) -> dict[str, str]:
        """No key."""
        return {}


PROVIDERS = (NewServer,)
'''

CASSETTE = """
version: 1
origin: synthetic
interactions:
- request: {method: POST, uri: https://new.example/v1/chat/completions, body: '', headers: {}}
  response:
    status: {code: 200, message: OK}
    headers: {content-type: [application/json]}
    body:
      string: '{"choices": [{"message": {"content": "Hi"}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 3,
        "completion_tokens": 1, "cost": 0.25}}'
"""


@pytest.fixture
def new_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "new_server.py").write_text(NEW)
    (tmp_path / "fixture.yaml").write_text(CASSETTE)
    monkeypatch.setattr(agentlab.providers, "__path__", [*agentlab.providers.__path__, str(tmp_path)])
    registry._files.cache_clear()
    yield tmp_path
    monkeypatch.undo()
    registry._files.cache_clear()
    sys.modules.pop("agentlab.providers.new_server", None)


def test_one_file_and_its_fixture_are_a_provider(new_server: Path) -> None:
    assert "new-server" in registry.names()
    assert lab.capabilities("new-server").reports_cost
    assert lab.capabilities("new-server").reasons == lab.capabilities("openai").reasons
    assert lab.detect("new-server", {"choices": [{"finish_reason": "length"}]}).finish_reason is lab.FinishReason.MAX_TOKENS

    async def run() -> lab.RunResult:
        with lab.replay(new_server / "fixture.yaml", match="order"):
            return await lab.Agent("new-server:m").run("Hello")

    result = asyncio.run(run())
    assert (result.text, str(result.cost.usd), result.cost.source) == ("Hi", "0.25", "reported")


def vendor_files() -> list[Path]:
    return sorted(path for path in FOLDER.glob("*.py") if "\nPROVIDERS = " in path.read_text())


def test_the_name_of_a_provider_begins_with_its_file_name() -> None:
    for path in vendor_files():
        kinds = importlib.import_module(f"agentlab.providers.{path.stem}").PROVIDERS
        assert all(f"{kind.name}-".startswith(f"{path.stem}-") for kind in kinds)


def test_only_the_requested_file_is_imported() -> None:
    ask = "import sys; import agentlab as lab; lab.Provider('openai-responses', model='m')"
    code = f"{ask}; print(*[name for name in sys.modules if name.startswith('agentlab.providers.')])"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    others = {f"agentlab.providers.{path.stem}" for path in vendor_files()} - {"agentlab.providers.openai"}
    assert "agentlab.providers.openai" in loaded and not others & set(loaded)


@pytest.mark.parametrize("path", vendor_files(), ids=lambda path: path.stem)
def test_a_provider_imports_no_other_provider(path: Path) -> None:
    """An import-linter contract would name each provider and so be a second place to edit."""
    others = {f"agentlab.providers.{other.stem}" for other in vendor_files()} - {f"agentlab.providers.{path.stem}"}
    imported: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            imported |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            imported |= {node.module} | {f"{node.module}.{name.name}" for name in node.names}
    assert not imported & others


def test_the_shared_parts_import_no_provider() -> None:
    names = {path.stem for path in vendor_files()}
    for path in set(FOLDER.rglob("*.py")) - set(vendor_files()):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("agentlab.providers"):
                asked = {node.module.rpartition(".")[2]} | {name.name for name in node.names}
                assert not asked & names, path.name

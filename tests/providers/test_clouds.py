"""Gemini and Claude on Google Cloud, and Claude in Microsoft Foundry: addresses, bodies and credentials, on a server on loopback."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

import agentlab as lab
from agentlab.errors import ConfigurationError, MissingKeyError
from agentlab.model.messages import Message, ModelRequest
from agentlab.model.pricing import cost_of
from agentlab.model.usage import Usage
from agentlab.providers import base

CLAUDE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-sonnet-4-6",
    "content": [{"type": "text", "text": "Paris."}],
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 5, "output_tokens": 2},
}
GEMINI = {
    "candidates": [{"content": {"role": "model", "parts": [{"text": "Paris."}]}, "finishReason": "STOP"}],
    "usageMetadata": {"promptTokenCount": 5, "candidatesTokenCount": 2, "totalTokenCount": 7},
}
TOKEN = {"access_token": "a-made-up-token", "expires_in": 3600, "token_type": "Bearer"}
NO_VARIABLES = ("GOOGLE_CLOUD_PROJECT", "GOOGLE_CLOUD_LOCATION", "ANTHROPIC_FOUNDRY_BASE_URL", "ANTHROPIC_FOUNDRY_RESOURCE")
QUESTION = ModelRequest((Message("user", "Capital of France?"),))


class Server(ThreadingHTTPServer):
    """Keeps each request, and answers it as the server that its path belongs to."""

    seen: list[tuple[str, dict[str, str], bytes]]

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.seen.append((self.path, {name.lower(): value for name, value in self.headers.items()}, body))
        answer = json.dumps(TOKEN if self.path == "/token" else GEMINI if "generateContent" in self.path else CLAUDE).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server(("127.0.0.1", 0), Handler)
    running.seen = []
    thread = Thread(target=running.serve_forever, args=(0.01,))
    thread.start()
    yield running
    running.shutdown()
    thread.join()
    running.server_close()


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in NO_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    base._google_credentials.cache_clear()
    yield
    base._google_credentials.cache_clear()


@pytest.fixture
def service_account(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A service account with a made-up key, whose tokens come from the server on loopback."""
    pytest.importorskip("cryptography", reason="makes the key; another library signs with it")
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()).decode()
    account = {
        "type": "service_account",
        "project_id": "made-up",
        "private_key_id": "1",
        "private_key": pem,
        "client_email": "nobody@made-up.iam.gserviceaccount.com",
        "token_uri": f"{server.address}/token",
    }
    (tmp_path / "account.json").write_text(json.dumps(account))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "account.json"))


def ask(model: Any) -> lab.RunResult:
    async def run() -> lab.RunResult:
        return await lab.Agent(model).run("Capital of France?")

    return asyncio.run(run())


PLACE = "projects/my-project/locations/europe-west4/publishers"


@pytest.mark.parametrize(
    ("name", "model", "path"),
    [
        ("gemini-vertex", "gemini-3.5-flash", f"/v1/{PLACE}/google/models/gemini-3.5-flash:generateContent"),
        ("anthropic-vertex", "claude-sonnet-4-5@20250929", f"/v1/{PLACE}/anthropic/models/claude-sonnet-4-5@20250929:rawPredict"),
    ],
)
@pytest.mark.usefixtures("service_account")
def test_a_run_on_google_cloud(name: str, model: str, path: str, server: Server) -> None:
    made = lab.Provider(name, model=model, base_url=f"{server.address}/v1", project="my-project", location="europe-west4")
    result = ask(made)
    assert (result.text, result.history[-1].signal.provider) == ("Paris.", name)
    (token_path, _, grant), (found, headers, sent) = server.seen
    assert (token_path, b"jwt-bearer" in grant) == ("/token", True)
    assert (found, headers["authorization"]) == (path, "Bearer a-made-up-token")
    body = json.loads(sent)
    if name == "anthropic-vertex":
        assert body["anthropic_version"] == "vertex-2023-10-16"
        assert "model" not in body
        assert "anthropic-version" not in headers
    ask(made)
    assert [path for path, _, _ in server.seen].count("/token") == 1  # the token is kept


@pytest.mark.parametrize("name", ["gemini-vertex", "anthropic-vertex"])
def test_a_given_token_is_sent(name: str, server: Server) -> None:
    ask(lab.Provider(name, model="m", base_url=f"{server.address}/v1", project="p", api_key="my-token"))
    [(path, headers, _)] = server.seen
    assert headers["authorization"] == "Bearer my-token"
    assert "/projects/p/locations/global/" in path


@pytest.mark.parametrize(
    ("location", "address"),
    [
        ("", "https://aiplatform.googleapis.com/v1/"),
        ("global", "https://aiplatform.googleapis.com/v1/"),
        ("eu", "https://aiplatform.eu.rep.googleapis.com/v1/"),
        ("europe-west4", "https://europe-west4-aiplatform.googleapis.com/v1/"),
    ],
)
def test_the_address_of_a_location(location: str, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "my-project")
    for name in ("gemini-vertex", "anthropic-vertex"):
        url = lab.Provider(name, model="m", location=location).build_request(QUESTION).url
        assert url.startswith(f"{address}projects/my-project/locations/{location or 'global'}/publishers/")
    monkeypatch.setenv("GOOGLE_CLOUD_LOCATION", "us-east5")
    assert "/us-east5/" in lab.Provider("gemini-vertex", model="m").build_request(QUESTION).url


def test_paths_of_tuned_models_and_streams() -> None:
    made = lab.Provider("gemini-vertex@v1beta1", model="endpoints/123", project="p")
    streamed = ModelRequest(QUESTION.messages, stream=True)
    url = "https://aiplatform.googleapis.com/v1beta1/projects/p/locations/global/endpoints/123:streamGenerateContent?alt=sse"
    assert made.build_request(streamed).url == url
    claude = lab.Provider("anthropic-vertex", model="m", project="p").build_request(streamed)
    assert claude.url.endswith("/models/m:streamRawPredict")
    assert json.loads(claude.body)["stream"] is True


def test_what_is_missing_on_google_cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = lab.Provider("gemini-vertex", model="m")
    with pytest.raises(ConfigurationError, match="GOOGLE_CLOUD_PROJECT"):
        made.build_request(QUESTION)
    with pytest.raises(ConfigurationError, match="location='a b' is not a location"):
        lab.Provider("anthropic-vertex", model="m", location="a b")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "nothing.json"))
    with pytest.raises(MissingKeyError, match="GOOGLE_APPLICATION_CREDENTIALS"):
        made.auth_headers()
    monkeypatch.setattr(base, "find_spec", lambda name: None)
    with pytest.raises(MissingKeyError, match=r"pip install 'agentlab-jupyter\[vertex\]'"):
        made.check_key()  # type: ignore[attr-defined]


def test_claude_in_foundry(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_FOUNDRY_API_KEY", "a-made-up-key")
    monkeypatch.setenv("ANTHROPIC_FOUNDRY_BASE_URL", f"{server.address}/anthropic")
    result = ask("anthropic-foundry:my-claude")
    assert (result.text, result.history[-1].signal.provider) == ("Paris.", "anthropic-foundry")
    [(path, headers, sent)] = server.seen
    assert (path, headers["x-api-key"]) == ("/anthropic/v1/messages", "a-made-up-key")
    assert json.loads(sent)["model"] == "my-claude"
    assert headers["anthropic-version"] == "2023-06-01"


def test_the_address_and_the_key_of_foundry(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match="ANTHROPIC_FOUNDRY_RESOURCE"):
        lab.Provider("anthropic-foundry", model="m")
    monkeypatch.setenv("ANTHROPIC_FOUNDRY_RESOURCE", "mine")
    made = lab.Provider("anthropic-foundry", model="m")
    assert made.build_request(QUESTION).url == "https://mine.services.ai.azure.com/anthropic/v1/messages"
    monkeypatch.delenv("ANTHROPIC_FOUNDRY_API_KEY", raising=False)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "anthropics-own")  # is not sent to Azure
    with pytest.raises(MissingKeyError, match="ANTHROPIC_FOUNDRY_API_KEY"):
        made.auth_headers()
    token = {"authorization": "Bearer entra"}
    assert lab.Provider("anthropic-foundry", model="m", headers=token).auth_headers() == token


def test_prices_of_clouds() -> None:
    at, usage = datetime(2026, 11, 23, tzinfo=UTC), Usage(1_000, 1_000)
    vertex = "https://aiplatform.googleapis.com/v1"
    assert cost_of("anthropic-vertex", "claude-sonnet-4-5@20250929", usage, at=at, address=vertex).usd
    assert cost_of("gemini-vertex", "gemini-2.5-flash", usage, at=at, address=vertex).usd
    in_region = vertex.replace("//", "//us-east5-")
    for name, model in (("anthropic-vertex", "claude-sonnet-4-5"), ("gemini-vertex", "gemini-3.5-flash")):
        assert cost_of(name, model, usage, at=at, address=vertex).usd
        assert "at Google Cloud's global address" in cost_of(name, model, usage, at=at, address=in_region).reason
    assert cost_of("gemini-vertex", "gemini-2.5-flash", usage, at=at, address=in_region).usd
    foundry = "https://mine.services.ai.azure.com/anthropic"
    assert cost_of("anthropic-foundry", "claude-sonnet-4-6", usage, at=at, address=foundry).usd

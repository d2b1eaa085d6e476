"""Providers that are rows of a table: address, key, body, finish reasons and prices of each, on a server on loopback."""

from __future__ import annotations

import asyncio
import json
import pickle
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

import pytest

import agentlab as lab
from agentlab.errors import ConfigurationError, MissingKeyError
from agentlab.model.finish_reasons import FinishReason
from agentlab.model.pricing import cost_of
from agentlab.model.usage import CostSource, Usage
from agentlab.providers.compatible import PRESETS, Preset

EACH = pytest.mark.parametrize("preset", PRESETS, ids=lambda preset: preset.name)
NAMES = [
    *("mistral", "groq", "deepseek", "together", "fireworks", "cerebras", "moonshot", "cohere", "huggingface"),
    *("ollama", "lmstudio", "vllm", "llama-cpp"),
]
MODELS = {
    "mistral": "mistral-large-latest",
    "groq": "llama-3.3-70b-versatile",
    "deepseek": "deepseek-chat",
    "together": "meta-llama/Llama-3.3-70B-Instruct-Turbo",
    "fireworks": "accounts/fireworks/models/gpt-oss-120b",
    "cerebras": "gpt-oss-120b",
    "moonshot": "kimi-k2",
    "cohere": "command-r-plus",
    "huggingface": "openai/gpt-oss-120b:cerebras",
}
"""A model of each server that has prices."""

ANSWER = {
    "id": "r1",
    "object": "chat.completion",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Paris."}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 1_000, "completion_tokens": 1_000, "total_tokens": 2_000, "cost": 0},
}


class Server(ThreadingHTTPServer):
    """Keeps each request, and answers it."""

    seen: list[tuple[str, dict[str, str], dict[str, Any]]]


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.seen.append((self.path, {name.lower(): value for name, value in self.headers.items()}, body))
        answer = json.dumps(ANSWER).encode()
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


async def asked(agent: lab.Agent) -> lab.RunResult:
    return await agent.run("Capital of France?")


def at(server: Server, preset: Preset) -> str:
    """Return the server's address with the path of the preset's own."""
    return f"http://127.0.0.1:{server.server_port}{urlsplit(preset.address).path}"


def test_the_presets() -> None:
    assert [preset.name for preset in PRESETS] == NAMES
    assert set(NAMES) <= set(lab.capabilities())


@EACH
def test_a_row_is_complete(preset: Preset) -> None:
    assert preset.pages
    assert all(page.startswith("https://") for page in preset.pages)
    assert datetime.strptime(preset.read, "%Y-%m-%d")
    made = lab.Provider(preset.name, model="m", api_key="k")
    assert (made.name, made.wire, getattr(made, "base_url", "")) == (preset.name, f"{preset.name}.chat", preset.address)
    assert pickle.loads(pickle.dumps(made)) == made
    assert "'k'" not in repr(made)
    with pytest.raises(ConfigurationError, match="has no API versions"):
        lab.Provider(f"{preset.name}@v2", model="m")


@EACH
def test_a_run_sends_address_key_and_body(preset: Preset, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in preset.keys[:1]:
        monkeypatch.setenv(variable, "a-made-up-key")
    key = None if preset.keys else "a-made-up-key"
    model = lab.Provider(preset.name, model="some/model", base_url=at(server, preset), api_key=key)
    result = asyncio.run(asked(lab.Agent(model, budget=lab.Budget(max_tokens_per_turn=77))))
    assert (result.text, result.history[-1].signal.finish_reason) == ("Paris.", FinishReason.END_TURN)
    assert result.cost.usd is None  # a server on loopback has no price, whatever its name
    [(path, headers, body)] = server.seen
    assert path == f"{urlsplit(preset.address).path}/chat/completions"
    assert headers["authorization"] == "Bearer a-made-up-key"
    question = {"role": "user", "content": "Capital of France?"}
    assert body == {"model": "some/model", "messages": [question], preset.cap_field: 77}


@EACH
def test_a_key_is_missing(preset: Preset, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in preset.keys:
        monkeypatch.delenv(variable, raising=False)
    provider = lab.Provider(preset.name, model="m", base_url="http://127.0.0.1:1/v1")
    if not preset.keys:
        assert provider.auth_headers() == {}
        return
    with pytest.raises(MissingKeyError, match=f"Set the environment variable {' or '.join(preset.keys)},") as error:
        provider.auth_headers()
    assert f'lab.Provider("{preset.name}"' in str(error.value)


@pytest.mark.parametrize(
    ("name", "word", "meaning"),
    [
        ("mistral", "model_length", FinishReason.CONTEXT_WINDOW_EXCEEDED),
        ("deepseek", "insufficient_system_resource", FinishReason.ERROR),
        ("deepseek", "aborted", FinishReason.CANCELLED),
        ("together", "eos", FinishReason.END_TURN),
        ("huggingface", "eos_token", FinishReason.END_TURN),
        ("huggingface", "stop_sequence", FinishReason.STOP_SEQUENCE),
        ("vllm", "abort", FinishReason.CANCELLED),
        ("groq", "eos", FinishReason.UNKNOWN),
    ],
)
def test_finish_reasons_of_a_row(name: str, word: str, meaning: FinishReason) -> None:
    body = {"choices": [{"message": {"content": "Hi"}, "finish_reason": word}]}
    signal = lab.detect(name, body)
    assert (signal.finish_reason, signal.raw_value) == (meaning, word)
    assert (word in lab.capabilities(name).reasons.get(meaning, {}).get("choices[].finish_reason", ())) is (name != "groq")


@EACH
def test_the_documentation_has_the_row(preset: Preset) -> None:
    page = (Path(__file__).parents[2] / "docs" / "howto" / "providers.md").read_text()
    key = " or ".join(f"`{name}`" for name in preset.keys) or "none, or `api_key=`"
    cost = "priced" if preset.prices else "unknown"
    words = ", ".join(f"`{word}`: {meaning.name}" for word, meaning in preset.reasons.items())
    found = ", ".join(f"[{number}]({address})" for number, address in enumerate(preset.pages, 1))
    checked = f"{found}, {preset.read}" + (f"; not confirmed: {preset.unverified}" if preset.unverified else "")
    form = "schema" if preset.structured else "tool call"
    assert (
        f"| `{preset.name}` | {preset.title} | `{preset.address}` | {key} | {cost} | {form} | {words} | {checked} |"
        in page.splitlines()
    )


@EACH
def test_a_typed_answer(preset: Preset) -> None:
    made = lab.Provider(preset.name, model="m", api_key="k")
    assert made.output_form(with_tools=False) == ("strict" if preset.structured else "tool")
    assert made.output_form(with_tools=True) == "tool"


def test_the_server_that_answers_at_hugging_face_decides_the_price() -> None:
    def cost(model: str, **kwargs: str) -> lab.Cost:
        address = "https://router.huggingface.co/v1"
        return cost_of(
            "huggingface", model, Usage(1_000, 1_000), at=datetime(2026, 11, 23, tzinfo=UTC), address=address, **kwargs
        )

    named = cost("openai/gpt-oss-120b:cerebras").usd
    assert named is not None
    assert cost("gpt-oss-120b", requested="openai/gpt-oss-120b:cerebras").usd == named
    for model in ("openai/gpt-oss-120b", "openai/gpt-oss-120b:fastest"):
        assert "depends on the server that answers" in cost(model).reason


@EACH
def test_finish_reasons_of_the_wire(preset: Preset) -> None:
    for word, meaning in {"length": FinishReason.MAX_TOKENS, "content_filter": FinishReason.CONTENT_FILTERED}.items():
        body = {"choices": [{"message": {"content": "Hi"}, "finish_reason": word}]}
        assert lab.detect(preset.name, body).finish_reason is meaning


@EACH
def test_prices(preset: Preset) -> None:
    """A server with a seller in the price list has prices at its own address; the cost of the others is unknown, never 0."""
    now, usage = datetime(2026, 11, 23, tzinfo=UTC), Usage(input_tokens=1_000, output_tokens=1_000)
    cost = cost_of(preset.name, MODELS.get(preset.name, "m"), usage, at=now, address=preset.address)
    assert bool(preset.prices) is (preset.name in MODELS)
    if preset.prices:
        assert cost.source is CostSource.PRICED
        assert cost.usd
        assert cost_of(preset.name, MODELS[preset.name], usage, at=now).usd == cost.usd
        server = ":cerebras" if preset.name == "huggingface" else ""
        unlisted = cost_of(preset.name, f"no-such-model{server}", usage, at=now, address=preset.address)
        assert "has no model 'no-such-model'" in unlisted.reason
    else:
        assert (cost.usd, cost.source) == (None, CostSource.UNKNOWN)
        assert f"does not have the server {urlsplit(preset.address).hostname}" in cost.reason

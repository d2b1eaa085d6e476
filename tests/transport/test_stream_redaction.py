"""A key that a stream sends in pieces is in no recording, and the stream remains valid."""

from __future__ import annotations

import json

import pytest

from agentlab._internal import secrets as known_keys
from agentlab._internal.redaction import Redactor
from agentlab.transport.stream_redaction import redact_lines

KEY = "sk-proj-Planted0123456789abcdefXYZ"


def _said(data: bytes) -> list[str]:
    return [json.loads(line[6:])["delta"]["text"] for line in data.splitlines() if line.startswith(b"data: {")]


@pytest.mark.parametrize("size", [1, 3, 7, 40])
def test_a_key_in_pieces_is_removed_and_the_rest_kept(size: int) -> None:
    text = f"Use {KEY} , and nothing else."
    events = [
        b"data: " + json.dumps({"type": "delta", "id": "same", "delta": {"text": text[at : at + size]}}).encode() + b"\n\n"
        for at in range(0, len(text), size)
    ]
    data, sizes = redact_lines(Redactor(), b"".join(events) + b"data: [DONE]\n\n", (*map(len, events), 14))
    assert "".join(_said(data)) == "Use REDACTED , and nothing else."
    assert (len(sizes), sum(sizes)) == (len(events) + 1, len(data))
    assert data.endswith(b"data: [DONE]\n\n")


def test_a_stream_without_keys_keeps_its_bytes() -> None:
    data = b'data: {"a": "x", "b":  1}\r\n\r\ndata: no json\n\n{"a": "y"}\n'
    assert redact_lines(Redactor(), data, (5, len(data) - 5)) == (data, (5, len(data) - 5))


def test_keys_of_the_environment() -> None:
    kept = {"A_API_KEY": "abc123abc123", "AWS_SESSION_TOKEN": "x" * 30, "DB_PASSWORD": "hunter2hunter2"}
    kept |= {
        f"{name}_KEY": f"of{name}0123456789" for name in ("RAPIDAPI", "SERPAPI", "TAVILY", "AWS_ACCESS", "WEATHER_API", "OPENAI")
    }
    others = {
        "GREETING": "abc123abc124", "POSTGRES_PASSWORD": "postgres", "USE_TOKEN": "true", "SOME_TOKEN": "123456789012345",
        "GOOGLE_CREDENTIALS": "/home/anna/credentials1.json", "LONG_SECRET": "two words and 1 more",
        "SSH_PUBLIC_KEY": "AAAAB3NzaC1yc2EAAAADAQABAAABgQC7", "MONKEY": "abc123abc125", "SSH_KEY": "/home/anna/.ssh/id_1.pem",
    }  # fmt: skip
    assert known_keys.in_environment(kept | others) == frozenset(kept.values())

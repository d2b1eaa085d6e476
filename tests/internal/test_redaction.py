from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from measured_work import takes_no_more

from agentlab._internal.redaction import (
    _KEY_PATTERNS,
    Redactor,
    _literals,
    kept_request_headers,
    kept_response_headers,
    redact_url,
    secrets_in_headers,
    secrets_in_url,
)

# Built here, so that no scanner takes this file for a leak.
LOOK_LIKE_KEYS = {
    "openai": "sk-" + "proj-abcDEF0123456789",
    "anthropic": "sk-" + "ant-api03-" + "x" * 40,
    "openrouter": "sk-" + "or-v1-" + "0" * 32,
    "xai": "xai-" + "A1" * 20,
    "google": "AI" + "za" + "Sy" + "b" * 33,
    "aws": "AK" + "IA" + "ABCDEFGHIJKLMNOP",
    "bedrock": "AB" + "SK" + "Qm" * 30,
    "github": "gh" + "p_" + "a1" * 18,
    "huggingface": "hf" + "_" + "a" * 34,
    "groq": "gs" + "k_" + "a1" * 20,
    "jwt": "ey" + "JhbGciOiJI." + "eyJzdWIiOiIx." + "c2lnbmF0dXJl",
    "organisation": "org-" + "a1B2" * 6,
}


AROUND = ["{}", "my key is {}, keep it", '{{"k": "{}"}}', "a\\n{}", "https://h/x?q={}&z=1", "x={}\n", "\\u0027{}'", "Bearer {}"]


@pytest.mark.parametrize("key", LOOK_LIKE_KEYS.values(), ids=LOOK_LIKE_KEYS)
def test_text_that_looks_like_a_key_is_redacted(key: str) -> None:
    for around in AROUND:
        redacted = Redactor().text(around.format(key))
        assert key not in redacted
        assert "REDACTED" in redacted
        assert redacted.replace("REDACTED", key) == around.format(key)


_LITERALS = list(_KEY_PATTERNS)
_PIECES = sorted(
    {literal[begin:end] for literal in _LITERALS for begin in range(len(literal)) for end in range(len(literal) + 1)}
)


@given(st.lists(st.sampled_from(_PIECES) | st.binary(max_size=3)).map(b"".join))
def test_the_quick_check_agrees_with_a_search_for_each_key_prefix(data: bytes) -> None:
    assert any(literal.search(data) for literal in _literals()) == any(literal in data for literal in _LITERALS)


@pytest.mark.parametrize("literal", _LITERALS)
def test_the_quick_check_finds_each_key_prefix(literal: bytes) -> None:
    for data in (literal, b"x" + literal, literal + b"x", b"-_9A" * 5 + literal + b"-_9A"):
        assert any(literal.search(data) for literal in _literals())


@pytest.mark.parametrize(
    "text",
    [
        "a task-oriented-planning-system",
        "risk-averse-investors-and-others",
        "sk-short",
        "AKIAbut-not",
        "the bearer of this",
        "a bearer authentication-scheme",
        "Basic internationalization",
        "no desk-and-chair-combination",
        "Bearer REDACTED",
        "max_tokens",
        "",
    ],
)
def test_other_words_are_kept(text: str) -> None:
    assert Redactor().text(text) == text


@pytest.mark.parametrize(
    "secret", ['with"quote and space', "back\\slash/slash", "plain-s3cret", "Bearer plain-s3cret", "ünïcode-geheim"]
)
def test_known_secrets_are_redacted_in_every_spelling(secret: str) -> None:
    from urllib.parse import quote

    redactor = Redactor([secret])
    bare = secret.removeprefix("Bearer ")
    for form in (secret, bare, json.dumps(bare, ensure_ascii=False)[1:-1], quote(bare), quote(bare, safe="")):
        assert redactor.text(f"<{form}>") in ("<REDACTED>", "<Bearer REDACTED>"), form


@pytest.mark.parametrize("placeholder", ["none", "EMPTY", "local", "x", "", "Bearer none", "lm-studio", "Ollama", "not-needed"])
def test_placeholders_are_no_secrets(placeholder: str) -> None:
    assert (
        Redactor([placeholder]).text(f"say {placeholder.removeprefix('Bearer ')} of it")
        == f"say {placeholder.removeprefix('Bearer ')} of it"
    )


def test_headers_are_kept_by_an_allow_list() -> None:
    sent = {
        "Content-Type": "a/b",
        "Authorization": "Bearer abc",
        "X-Api-Key": "k",
        "x-goog-api-key": "k",
        "Cookie": "c",
        "anthropic-version": "v",
    }
    assert kept_request_headers(sent) == {"content-type": "a/b", "anthropic-version": "v"}
    got = {
        "Content-Type": "a/b",
        "Set-Cookie": "c",
        "openai-organization": "acme",
        "Retry-After": "2",
        "x-ratelimit-remaining-tokens": "9",
        "cf-ray": "1",
    }
    assert kept_response_headers(got) == {"content-type": "a/b", "retry-after": "2", "x-ratelimit-remaining-tokens": "9"}


def test_secrets_are_found_in_other_headers() -> None:
    headers = {
        "Authorization": "Bearer abcdefgh",
        "x-ratelimit-reset-tokens": "2026-01-01T00:00:00Z",
        "Set-Cookie": "s=1",
        "accept": "a",
    }
    assert secrets_in_headers(headers) == {"Bearer abcdefgh", "s=1"}
    assert secrets_in_headers({"anything": "v"}, sure=True) == {"v"}


@pytest.mark.parametrize(
    ("url", "written"),
    [
        ("https://h/p?key=abc&alt=sse", "https://h/p?key=REDACTED&alt=sse"),
        ("https://h/p?a=1&API_KEY=abc", "https://h/p?a=1&API_KEY=REDACTED"),
        ("https://h/p?access_token=abc", "https://h/p?access_token=REDACTED"),
        ("https://h/p?X-Amz-Signature=abc&X-Amz-Credential=d", "https://h/p?X-Amz-Signature=REDACTED&X-Amz-Credential=REDACTED"),
        ("https://user:pass@h:8080/p", "https://h:8080/p"),
        ("https://h/p?api-version=2024-10-21", "https://h/p?api-version=2024-10-21"),
        ("https://h/p?pageToken=abc&max_tokens=5&keyword=x", "https://h/p?pageToken=abc&max_tokens=5&keyword=x"),
        (
            "https://h/p?subscription-key=a&x-amz-security-token=b",
            "https://h/p?subscription-key=REDACTED&x-amz-security-token=REDACTED",
        ),
        ("https://h/p?flag&b=#part", "https://h/p?flag&b"),
        ("https://h/" + LOOK_LIKE_KEYS["openai"] + "/x", "https://h/REDACTED/x"),
    ],
)
def test_urls_are_redacted(url: str, written: str) -> None:
    assert redact_url(url) == written


def test_secrets_of_a_url_are_found() -> None:
    assert secrets_in_url("https://u:p%40ss@h/?key=a%20b&q=1") == {"p@ss", "a b"}


@given(st.lists(st.sampled_from([b"abc", b"SECRET-VALUE", b"SECRET", b"-VALUE", b"\n", b"12345678"]), max_size=12))
def test_chunk_sizes_follow_the_redaction(pieces: list[bytes]) -> None:
    data, sizes = b"".join(pieces), tuple(map(len, pieces))
    redacted, moved = Redactor(["SECRET-VALUE"]).body(data, sizes)
    assert redacted == data.replace(b"SECRET-VALUE", b"REDACTED")
    assert sum(moved) == len(redacted)
    assert len(moved) == len(sizes)
    assert all(size >= 0 for size in moved)
    # the text between chunk boundaries is the same text, redacted
    position = new = 0
    for size, after in zip(sizes, moved, strict=True):
        position, new = position + size, new + after
        left = Redactor(["SECRET-VALUE"]).body(data[:position])[0]
        if data[:position].count(b"SECRET-VALUE") + data[position:].count(b"SECRET-VALUE") == data.count(b"SECRET-VALUE"):
            assert redacted[:new] == left


def test_a_scan_of_text_without_keys_is_quick() -> None:
    text = json.dumps([{"role": "user", "content": "a long conversation about lighthouses " * 50}] * 500)
    redactor = Redactor(["a-secret-that-is-not-there"])
    assert redactor.text(text) == text
    assert takes_no_more(lambda: redactor.text(text), than=lambda: json.loads(text), times=20)


@pytest.mark.parametrize("text", ["-----BEGIN PRIVATE KEY-----abc ", "-----BEGIN A", "eyJhbGciOiJI."])
def test_the_time_of_a_scan_is_linear_in_the_length(text: str) -> None:
    """Ten times the text takes at most about ten times the work."""
    redactor = Redactor()
    short, long = text * (20_000 // len(text)), text * (200_000 // len(text))
    assert takes_no_more(lambda: redactor.text(long), than=lambda: redactor.text(short), times=25)

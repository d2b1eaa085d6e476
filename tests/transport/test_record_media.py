"""Images and files in recordings: their bytes are written once, requests refer to them by their hash, and a replay needs only that."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import agentlab as lab
from agentlab.errors import ReplayMissError
from agentlab.model.messages import Message, ModelRequest
from agentlab.transport import current, record, replay
from agentlab.transport.request_matching import canonical_body, without_media
from tests.model.test_parts import PDF, picture, sound

from .conftest import asked
from .server import Server

IMAGE, DOCUMENT = lab.Image(picture(size=(9, 9))), lab.Document(PDF * 5)
NAMES = ("openai", "openai-responses", "anthropic", "gemini", "bedrock")


def sent(provider: str, *content: Any) -> bytes:
    return lab.Provider(provider, model="m").build_request(ModelRequest((Message("user", content),))).body


@pytest.mark.parametrize("provider", NAMES)
def test_bytes_are_found_on_every_wire(provider: str) -> None:
    found: dict[str, bytes] = {}
    body = without_media(sent(provider, "See", IMAGE, DOCUMENT), found)
    assert found == {IMAGE.sha256: IMAGE.data, DOCUMENT.sha256: DOCUMENT.data}
    assert IMAGE.base64 not in body.decode()
    assert DOCUMENT.base64 not in body.decode()
    json.loads(body)
    assert without_media(body) == body
    other = sent(provider, "See", lab.Image(picture(size=(9, 8))), DOCUMENT)
    assert canonical_body(body) == canonical_body(sent(provider, "See", IMAGE, DOCUMENT)) != canonical_body(other)


@pytest.mark.parametrize("provider", ["openai", "gemini", "bedrock"])
def test_bytes_of_audio(provider: str) -> None:
    audio, found = lab.Audio(sound()), dict[str, bytes]()
    without_media(sent(provider, audio), found)
    assert found == {audio.sha256: audio.data}


def test_other_base64_stays() -> None:
    body = json.dumps({"messages": [{"type": "redacted_thinking", "data": "QUJD" * 100}, {"text": IMAGE.base64}]}).encode()
    assert without_media(body) == body


def test_a_recording_has_the_bytes_once_and_replays(base: str, tmp_path: Path, provider: Server) -> None:
    bodies = [json.loads(sent("openai", text, IMAGE, DOCUMENT)) for text in ("One?", "Two?")]
    with record(tmp_path / "rec"):
        live = [asked(current(), f"{base}/gzip", body).json() for body in bodies]
    assert [IMAGE.base64 in seen.decode() for _, _, seen in provider.seen] == [True, True]
    (cassette,) = (tmp_path / "rec").glob("*.yaml")
    assert IMAGE.base64 not in cassette.read_text("utf-8")
    kept = {file.name: file.read_bytes() for file in (tmp_path / "rec" / "media").iterdir()}
    assert kept == {f"{IMAGE.sha256}.png": IMAGE.data, f"{DOCUMENT.sha256}.pdf": DOCUMENT.data}
    shutil.rmtree(tmp_path / "rec" / "media")
    with replay(tmp_path / "rec"):
        assert [asked(current(), f"{base}/gzip", body).json() for body in bodies] == live
        other = json.loads(sent("openai", "One?", lab.Image(picture(size=(9, 8))), DOCUMENT))
        with pytest.raises(ReplayMissError) as caught:
            asked(current(), f"{base}/gzip", other)
    assert IMAGE.sha256[:9] in str(caught.value)


def test_a_recording_with_the_bytes_in_it_replays(base: str, tmp_path: Path, provider: Server) -> None:
    """As other recorders write it."""
    with record(tmp_path / "rec"):
        live = asked(current(), f"{base}/gzip", json.loads(sent("anthropic", "What?", IMAGE))).json()
    (cassette,) = (tmp_path / "rec").glob("*.yaml")
    cassette.write_text(cassette.read_text("utf-8").replace(f"sha256:{IMAGE.sha256}", IMAGE.base64), "utf-8")
    with replay(tmp_path / "rec"):
        assert asked(current(), f"{base}/gzip", json.loads(sent("anthropic", "What?", IMAGE))).json() == live

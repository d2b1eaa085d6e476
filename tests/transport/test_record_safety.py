"""Concurrent recorders, power cuts, full disks, and changes in the folder by other programs."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from agentlab.errors import ConfigurationError, MalformedCassetteError
from agentlab.transport import record

from .conftest import ask, asked, interaction, interactions
from .server import Server

ROOT = Path(__file__).parents[2]


def test_concurrent_runs_lose_nothing(base: str, tmp_path: Path) -> None:
    recording = record(tmp_path)

    def work(number: int) -> None:
        async def several() -> None:
            await asyncio.gather(*(ask(recording, f"{base}/chat", {"n": [number, n]}) for n in range(5)))

        asyncio.run(several())

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(json.loads(one.body)["n"] for one in interactions(tmp_path)) == [
        [number, n] for number in range(6) for n in range(5)
    ]
    assert recording.recorder.count == 30


def test_requests_are_kept_in_the_order_they_were_sent(base: str, provider: Server, tmp_path: Path) -> None:
    async def both() -> None:
        recording = record(tmp_path)
        slow = asyncio.create_task(ask(recording, f"{base}/slow", {}))
        while not provider.seen:
            await asyncio.sleep(0.005)
        await ask(recording, f"{base}/chat", {})
        await slow

    asyncio.run(both())
    assert [one.uri.rpartition("/")[2] for one in interactions(tmp_path)] == ["slow", "chat"]


WRITER = """
import sys
from agentlab.transport.http import HttpRequest
from agentlab.transport.recording import Recorder
recorder = Recorder(sys.argv[1])
for number in range(int(sys.argv[3])):
    body = b'{"who": "%s", "n": %d}' % (sys.argv[2].encode(), number)
    tape = recorder.begin(HttpRequest("POST", "https://llm.example/v1", {}, body))
    tape.headers(200, "OK", {"content-type": "application/json"})
    tape.chunk(b'{"text": "' + b"words " * 200 + b'"}')
    tape.complete()
    print(number, flush=True)
"""


def writer(path: Path, who: str, count: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), who, str(count)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize("name", ["rec", "one.json"])
def test_several_processes_lose_nothing(tmp_path: Path, name: str) -> None:
    writers = [writer(tmp_path / name, who, 20) for who in "abc"]
    for one in writers:
        one.communicate(timeout=60)
        assert one.returncode == 0
    got = sorted((json.loads(one.body)["who"], json.loads(one.body)["n"]) for one in interactions(tmp_path / name))
    assert got == [(who, n) for who in "abc" for n in range(20)]


@pytest.mark.parametrize("patience_s", [0.0, 0.004, 0.009, 0.013])
def test_a_kill_during_a_write_leaves_the_file_intact(tmp_path: Path, patience_s: float) -> None:
    victim = writer(tmp_path, "a", 100_000)
    assert victim.stdout is not None
    done = [int(victim.stdout.readline()) for _ in range(8)]
    time.sleep(patience_s)
    os.kill(victim.pid, signal.SIGKILL)
    done += [int(line) for line in victim.stdout]
    victim.wait()
    victim.stdout.close()
    assert len(interactions(tmp_path)) in (len(done), len(done) + 1)
    survivor = writer(tmp_path, "b", 1)
    survivor.communicate(timeout=60)
    assert len(interactions(tmp_path)) in (len(done) + 1, len(done) + 2)
    assert [file for file in tmp_path.iterdir() if file.name.startswith(".")] == []


def test_edits_by_another_program_are_kept(base: str, tmp_path: Path) -> None:
    file = tmp_path / "one.json"
    recording = record(file)
    asked(recording, f"{base}/chat", {"q": 1})
    document = json.loads(file.read_text())
    document["interactions"].append(interaction({"q": "by hand"}))
    document["note"] = "kept"
    file.write_text(json.dumps(document))
    asked(recording, f"{base}/chat", {"q": 2})
    assert [json.loads(one.body)["q"] for one in interactions(file)] == ["by hand", 1, 2]
    assert json.loads(file.read_text())["note"] == "kept"
    file.unlink()
    asked(recording, f"{base}/chat", {"q": 3})
    assert [json.loads(one.body)["q"] for one in interactions(file)] == [1, 2, 3]


def test_links_and_modes_are_kept(base: str, tmp_path: Path) -> None:
    real = tmp_path / "elsewhere" / "real.json"
    real.parent.mkdir()
    real.write_text(json.dumps({"version": 1, "interactions": []}))
    real.chmod(0o600)
    (tmp_path / "rec").mkdir()
    (tmp_path / "rec" / "one.json").symlink_to(real)
    asked(record(tmp_path / "rec" / "one.json"), f"{base}/chat", {})
    assert (tmp_path / "rec" / "one.json").is_symlink()
    assert len(interactions(real)) == 1
    assert stat.S_IMODE(real.stat().st_mode) == 0o600


# failed writes ---------------------------------------------------------------------------------------------------------------------


def test_an_unwritable_place_is_refused_before_anything_is_sent(base: str, tmp_path: Path, provider: Server) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match="is a file: record into a folder"):
        record(tmp_path / "file")
    with pytest.raises(ConfigurationError, match="Cannot record into"):
        asked(record(tmp_path / "file" / "deep"), f"{base}/chat", {})
    assert provider.seen == []


def test_a_broken_cassette_at_the_target_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("a: [")
    with pytest.raises(MalformedCassetteError, match=r"a\.yaml"):
        record(tmp_path)
    assert (tmp_path / "a.yaml").read_text() == "a: ["


def test_a_full_disk_does_not_cost_the_answer(base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recording = record(tmp_path)

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.warns(RuntimeWarning, match="could not be recorded: .*No space left"):
            assert asked(recording, f"{base}/chat", {"q": 1}).status == 200
    assert asked(recording, f"{base}/chat", {"q": 2}).status == 200
    assert [json.loads(one.body)["q"] for one in interactions(tmp_path)] == [1, 2]


def test_a_half_saved_file_does_not_cost_the_answer(base: str, tmp_path: Path) -> None:
    recording = record(tmp_path)
    (tmp_path / "mine.json").write_text('{"version": 1, "inter')
    with pytest.warns(RuntimeWarning, match=r"could not be recorded: mine\.json"):
        assert asked(recording, f"{base}/chat", {"q": 1}).status == 200
    (tmp_path / "mine.json").write_text('{"version": 1, "interactions": []}')
    asked(recording, f"{base}/chat", {"q": 1})
    assert [json.loads(one.response.body)["count"] for one in interactions(tmp_path)] == [1, 2]


def test_making_a_recorder_writes_nothing(tmp_path: Path) -> None:
    record(tmp_path / "new")
    assert list(tmp_path.iterdir()) == []


def test_a_change_of_folder_does_not_move_the_recording(base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    recording = record("rec")
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    asked(recording, f"{base}/chat", {})
    assert len(interactions(tmp_path / "rec")) == 1

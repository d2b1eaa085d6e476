"""Malicious files on a real disk: where recordings are read and written, and as Inspect's logs."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from engine.server import serving

import agentlab as lab
from agentlab.errors import AgentlabError

from .planted_keys import SOURCES
from .table import show
from .test_hostile import _finished, outcome_of

MALFORMED, NOT_FOUND, CONFIGURATION, STORAGE = (
    "MalformedCassetteError",
    "FixtureNotFoundError",
    "ConfigurationError",
    "StorageError",
)
GOOD = json.dumps({
    "version": 1,
    "interactions": [{
        "request": {"method": "POST", "uri": "http://h/v1/chat/completions", "body": "{}", "headers": {}},
        "response": {"status": {"code": 200}, "headers": {}, "body": {"string": json.dumps({"choices": [
            {"message": {"role": "assistant", "content": "from the cassette"}, "finish_reason": "stop"}]})}},
    }],
})  # fmt: skip


def replayed(path: Path) -> str:
    """The answer of a run over the recording there."""
    with lab.replay(path, match="order"):
        run = lab.Agent(lab.Provider("compatible", model="m", base_url="http://h/v1"), retry=lab.RetryPolicy(attempts=1)).run(
            "go"
        )
        result = asyncio.run(_finished(run))
    if result.error is not None:
        raise result.error
    return result.text


def _fifo(at: Path) -> None:
    os.mkfifo(at)


Made = Callable[[Path], Any]


def _in_a_folder(name: str, made: Made, *, beside: bool = True) -> Made:
    def make(at: Path) -> None:
        at.mkdir()
        made(at / name)
        if beside:
            (at / "z.json").write_text(GOOD)

    return make


FROM = "from the cassette"


def _link(to: str) -> Made:
    return lambda at: at.symlink_to(to)


def _no_utf8(at: Path) -> None:
    Path(os.fsdecode(os.fsencode(at) + b"\xff.json")).write_text("{")


STEERS = "\x1b[31m\r\n\u202e.json"
READ: dict[str, tuple[str, Made, str]] = {
    "a folder that is not there, with ../ in its name": ("a/../../nowhere", lambda at: None, NOT_FOUND),
    "a pipe": ("x.yaml", _fifo, f"{MALFORMED}: neither a file nor a folder"),
    "a device": ("x.yaml", _link("/dev/zero"), f"{MALFORMED}: neither a file nor a folder"),
    "a pipe in a folder": ("f", _in_a_folder("a.yaml", _fifo), FROM),
    "a link to a device in a folder": ("f", _in_a_folder("a.yaml", _link("/dev/zero")), FROM),
    "a link to nothing in a folder": ("f", _in_a_folder("a.yaml", _link("/nowhere")), FROM),
    "a link to itself in a folder": ("f", _in_a_folder("a.yaml", lambda at: at.symlink_to(at)), FROM),
    "a folder linked into itself": ("f", _in_a_folder("a", lambda at: at.symlink_to(at.parent)), FROM),
    "a link out of the folder, to no cassette": (
        "f", _in_a_folder("a.yaml", _link("/etc/passwd")), f"{MALFORMED}: a.yaml",
    ),
    "a link to /proc/self/environ": ("f", _in_a_folder("a.yaml", _link("/proc/self/environ")), f"{MALFORMED}: a.yaml"),
    "a folder called x.yaml in it": ("f", _in_a_folder("x.yaml", lambda at: at.mkdir()), FROM),
    "control characters in a name": ("f", _in_a_folder(STEERS, lambda at: at.write_text("{")), f"{MALFORMED}: [31m .json"),
    "a name that is no UTF-8": (
        "f", _in_a_folder("x", _no_utf8), f"{MALFORMED}: x",
    ),
    "a name of 255 bytes": ("f", _in_a_folder("n" * 250 + ".json", lambda at: at.write_text(GOOD), beside=False), FROM),
    "an empty file": ("x.yaml", lambda at: at.write_text(""), f"{MALFORMED}: top level"),
}  # fmt: skip


@pytest.mark.skipif(sys.platform == "win32", reason="pipes and links")
def test_hostile_files_where_recordings_are_read(tmp_path: Path) -> None:
    rows, wrong = [], []
    for number, (name, (file, make, expected)) in enumerate(READ.items()):
        place = tmp_path / str(number)
        place.mkdir()
        make(place / file)
        answered: list[str] = []
        outcome = outcome_of(
            lambda place=place, file=file, answered=answered: answered.append(replayed(place / file)), longest=400
        )
        outcome = answered[0] if answered else outcome.replace(str(place), "…")
        rows.append([name, ascii(outcome[:110])[1:-1]])
        wrong += [] if _is(outcome, expected) else [(name, outcome, expected)]
    show("hostile-files-read", ["recordings are read from", "what happened"], rows)
    assert wrong == []
    assert "root:" not in str(rows)


def _is(outcome: str, expected: str) -> bool:
    if "|" in expected:
        return any(one in outcome for one in expected.split("|"))
    kind, _, word = expected.partition(": ")
    return outcome.startswith(kind) and word in outcome


def recorded(path: Path, prepare: Callable[[str], None]) -> str:
    """The warnings or the exception of a recorded run. `prepare` gets the name of the host's file before it starts."""
    outcome: list[str] = []
    source = SOURCES["environment, api_key= (nothing repeats them)"]
    with serving(script=source.says) as server, warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        prepare(server.base.partition("//")[2].partition("/")[0].replace(":", "-") + ".yaml")
        provider = lab.Provider("openai", model="../../m\x00/etc/passwd", base_url=server.base, api_key="k" * 20)
        agent = lab.Agent(provider, name="../../../x", retry=lab.RetryPolicy(attempts=1))
        try:
            with lab.record(path):
                result = asyncio.run(_finished(agent.run("go", budget=lab.Budget(max_turns=1))))
        except AgentlabError as error:
            return f"{type(error).__name__}: {error}"
    assert result.text == "Hello", "the answer was paid for, and is lost"
    outcome = [str(one.message) for one in warned if "record" in str(one.message)]
    return " ".join(outcome) or "recorded"


REFUSED = "could not be recorded"
WRITE: dict[str, tuple[Callable[[Path, Path], Any], str]] = {
    "nothing is": (lambda file, outside: None, "recorded"),
    "the temporary file is a link out of it": (
        lambda file, outside: file.with_name(f".{file.name}.tmp").symlink_to(outside),
        "recorded",
    ),
    "the host's file is a folder": (lambda file, outside: file.mkdir(), REFUSED),
    "another file is a broken cassette": (
        lambda file, outside: file.with_name("a.yaml").write_text("!!python/object:x {}"),
        MALFORMED,
    ),
}


@pytest.mark.skipif(sys.platform == "win32", reason="pipes and links")
def test_hostile_files_where_recordings_are_written(tmp_path: Path) -> None:
    rows, wrong = [], []
    for number, (name, (make, expected)) in enumerate(WRITE.items()):
        folder, outside = tmp_path / str(number) / "rec", tmp_path / str(number) / "outside.yaml"
        folder.mkdir(parents=True)
        outside.write_text(GOOD)
        outcome = recorded(folder, lambda file, make=make, folder=folder, outside=outside: make(folder / file, outside))
        files = [path for path in sorted(folder.parent.rglob("*")) if path.is_file() and not path.is_symlink()]
        without = [path.name for path in files if path.parent != folder]
        outcome = re.sub(r"127\.0\.0\.1-\d+", "HOST", " ".join(outcome.replace(str(folder), "…").split()))
        rows.append([name, outcome[:110], sum(path.parent == folder for path in files)])
        if expected not in outcome or outside.read_text() != GOOD or without != ["outside.yaml"]:
            wrong.append((name, outcome, without))
    show("hostile-files-written", ["recorded into a folder in which", "what happened", "files in it"], rows)
    assert wrong == []


# Inspect's logs ------------------------------------------------------------------------------------------------------------------


def _zip(*members: tuple[str, bytes | str]) -> Made:
    def make(at: Path) -> None:
        with zipfile.ZipFile(at, "w", zipfile.ZIP_DEFLATED) as log:
            for name, data in members:
                log.writestr(name, data)

    return make


def _cut(at: Path) -> None:
    _zip(("header.json", "{}" * 1000))(at)
    at.write_bytes(at.read_bytes()[:-30])


LOGS: dict[str, tuple[Made, str]] = {
    "noise": (lambda at: at.write_bytes(b"\x93" * 5000), "not a zip file"),
    "an empty file": (lambda at: at.write_bytes(b""), "not a zip file"),
    "a zip that is cut off": (_cut, "not a zip file"),
    "a zip with nothing in it": (_zip(), ""),
    "members with ../ and / in their names": (_zip(("../../owned", "x"), ("/tmp/owned", "x"), ("header.json", "{}")), ""),
    "a header that is no JSON": (_zip(("header.json", "{"), ("_journal/start.json", "{")), ""),
    "a header nested 100,000 deep": (_zip(("header.json", "[" * 100_000)), ""),
    "JSON of something else": (_zip(("header.json", json.dumps({"eval": 3, "samples": "x"}))), ""),
}


@pytest.mark.parametrize(
    "python", [None, pytest.param("inspect", marks=pytest.mark.inspect)], ids=["its reader not reached", "Inspect"]
)
def test_hostile_logs_of_inspect(tmp_path: Path, python: str | None) -> None:
    found = os.environ.get("AGENTLAB_INSPECT_PYTHON") if python else sys.executable
    rows, wrong = [], []
    before = {path for path in (Path("/tmp/owned"), tmp_path.parent / "owned") if path.exists()}
    for number, (name, (make, expected)) in enumerate(LOGS.items()):
        place = tmp_path / f"{number}.eval"
        make(place)
        outcome = outcome_of(lambda place=place: lab.importers.inspect(place, python=found), longest=400).replace(
            str(tmp_path), "…"
        )
        reached = python is None and not expected  # without Inspect it ends before the log would be read
        word = "does not have the package inspect-ai" if reached else expected or "No run can be read"
        rows.append([name, " ".join(outcome.split())[:130]])
        wrong += (
            []
            if outcome.startswith("ConfigurationError" if reached else "StorageError") and word in outcome
            else [(name, outcome)]
        )
    show(f"hostile-logs{'-with-inspect' if python else ''}", ["an .eval log", "what happened"], rows)
    assert wrong == []
    assert {path for path in (Path("/tmp/owned"), tmp_path.parent / "owned") if path.exists()} == before

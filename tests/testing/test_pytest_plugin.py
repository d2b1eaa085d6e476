"""The marker `agentlab_replay` and `--agentlab-record`, in pytest runs of their own.

They are forks of one process; test_howto_record.py starts new ones.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

import pytest

from tests.engine.server import Server, serving, whole
from tests.internal.test_redaction import LOOK_LIKE_KEYS

from .forked_pytest import PLUGIN, ForkedPytest

pytest_plugins = "pytester"

ANSWER = {"choices": [{"index": 0, "message": {"role": "assistant", "content": "Graz."}, "finish_reason": "stop"}]}

AGENT = """
    import asyncio, agentlab as lab, pytest

    async def asked(question="Where?"):
        return await lab.Agent(lab.Provider("compatible", base_url="{base}", model="m")).run(question)

    @pytest.mark.agentlab_replay
    @pytest.mark.parametrize("text", ["Graz.", "a/b"])
    def test_answer(text):
        result = asyncio.run(asked())
        assert text == "a/b" or result.text == text
"""


@pytest.fixture
def plugin(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A folder for pytest runs of their own, without the plugins of other packages, which take seconds to import."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    return pytester


BRIEF = "--tb=line"
"""To look up the source of each frame of an error takes longer than the rest of a run."""


class Run(Protocol):
    """Run pytest in the folder, with the plugin and without a cache."""

    def __call__(self, pytester: pytest.Pytester, *options: str) -> pytest.RunResult: ...


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    def ran(pytester: pytest.Pytester, *options: str) -> pytest.RunResult:
        return start(pytester, "-p", "no:cacheprovider", "-p", PLUGIN, *options)

    if sys.platform == "win32":  # it has no forks
        start = pytest.Pytester.runpytest_subprocess
        yield ran
    else:
        with ForkedPytest() as process:
            start = process.run
            yield ran


def answering(server: Server, times: int) -> None:
    assert len(server.asked) == times, [one.json for one in server.asked]


def test_once_records_and_none_replays(plugin: pytest.Pytester, run: Run) -> None:
    with serving(*[whole(ANSWER)] * 2) as server:
        plugin.makepyfile(test_trip=AGENT.format(base=server.base))
        missing = run(plugin, BRIEF)
        missing.assert_outcomes(failed=2)
        missing.stdout.fnmatch_lines("*test_answer-Graz..yaml does not exist. Record it: pytest --agentlab-record=once *")
        answering(server, 0)
        run(plugin, "--agentlab-record=once").assert_outcomes(passed=2)
        answering(server, 2)
    folder = plugin.path / "cassettes" / "test_trip"
    assert sorted(file.name for file in folder.iterdir()) == ["test_answer-Graz..yaml", "test_answer-a-b-0d56ea0d.yaml"]
    run(plugin).assert_outcomes(passed=2)
    run(plugin, "--agentlab-record=once").assert_outcomes(passed=2)


ONE_PROMPT = """
    import agentlab as lab, pytest

    pytestmark = pytest.mark.agentlab_replay
    TEXTS = ["2+2", "2-2", "a/b", "a b", "a::b", "a.b", "Graz", "Graz.", "-1", "1", "x" * 300, "x" * 299, ""]

    def answer():
        agent = lab.Agent(lab.Provider("compatible", base_url="{base}", model="m"))
        return agent.run("Which number?").start().wait().text

    class TestRed:
        def test_answer(self):
            assert answer() == "0"

    class TestBlue:
        def test_answer(self):
            assert answer() == "1"

        def test_without_a_request(self):
            pass

    def test_answer():
        assert answer() == "2"

    @pytest.mark.parametrize("text", TEXTS)
    def test_text(text):
        assert answer() == str(3 + TEXTS.index(text))
"""


def numbers() -> AbstractContextManager[Server]:
    """A model that answers its n-th request, from 0, with n."""
    count = itertools.count()
    message = ANSWER["choices"][0]
    return serving(
        script=lambda asked: whole({"choices": [message | {"message": {"role": "assistant", "content": str(next(count))}}]})
    )


def test_each_test_has_a_recording_of_its_own(plugin: pytest.Pytester, run: Run) -> None:
    with numbers() as server:
        plugin.makepyfile(test_trip=ONE_PROMPT.format(base=server.base))
        run(plugin, "--agentlab-record=once").assert_outcomes(passed=17)
        answering(server, 16)
    run(plugin).assert_outcomes(passed=17)
    names = {file.stem for file in (plugin.path / "cassettes" / "test_trip").iterdir()}
    assert {"TestRed.test_answer", "TestBlue.test_answer"} < names
    assert {
        "test_answer",
        "test_text-Graz",
        "test_text-2-2",
        "test_text-1",
        "test_text--1",
    } < names  # as before classes were named


def test_a_request_without_a_recording_fails_also_where_its_error_is_caught(plugin: pytest.Pytester, run: Run) -> None:
    plugin.makepyfile(
        """
        import contextlib, httpx, pytest

        @pytest.mark.agentlab_replay
        def test_one(agentlab_transport):
            with contextlib.suppress(Exception):
                httpx.Client(transport=agentlab_transport).post("https://llm.example/v1", json={})
        """
    )
    done = run(plugin, BRIEF)
    done.assert_outcomes(passed=1, errors=1)
    done.stdout.fnmatch_lines("*test_one.yaml does not exist. Record it: pytest --agentlab-record=once *::test_one")


@pytest.mark.parametrize("mode", ["none", "once"])
def test_wrong_arguments_of_the_mark_are_errors_in_each_mode(plugin: pytest.Pytester, run: Run, mode: str) -> None:
    wrong = ["mtach='order'", "'a.yaml', 'b.yaml'", "'a.yaml', path='b.yaml'"]
    tests = [f"@pytest.mark.agentlab_replay({given})\ndef test_{number}(): pass" for number, given in enumerate(wrong)]
    plugin.makepyfile("\n".join(["import pytest", *tests]))
    done = run(plugin, f"--agentlab-record={mode}")
    done.assert_outcomes(errors=3)
    for given in wrong:
        done.stdout.fnmatch_lines(
            f"@pytest.mark.agentlab_replay({given}): pass at most one path, and match= and pace= as to lab.replay."
        )


def test_rewrite_records_again(plugin: pytest.Pytester, run: Run) -> None:
    with serving(script=lambda asked: whole(ANSWER)) as server:
        plugin.makepyfile(test_trip=AGENT.format(base=server.base))
        run(plugin, "--agentlab-record=once").assert_outcomes(passed=2)
        plugin.makepyfile(test_trip=AGENT.format(base=server.base).replace("Where?", "Where to?"))
        changed = run(plugin, BRIEF)
        changed.assert_outcomes(failed=2)
        changed.stdout.fnmatch_lines("*ReplayMissError: No recording matches*")
        run(plugin, "--agentlab-record=rewrite").assert_outcomes(passed=2)
    recorded = (plugin.path / "cassettes" / "test_trip" / "test_answer-Graz..yaml").read_text()
    assert "Where to?" in recorded
    assert "Where?" not in recorded


CLIENTS = """
    import httpx, httpx2, pytest

    @pytest.mark.agentlab_replay("shared.json")
    @pytest.mark.parametrize("library", [httpx, httpx2])
    def test_sync(agentlab_transport, library):
        with library.Client(transport=agentlab_transport) as client:
            assert client.post("{base}", json={{}}).status_code == 200

    def test_without_a_mark(agentlab_transport):
        pass
"""


def test_other_clients_take_the_transport(plugin: pytest.Pytester, run: Run) -> None:
    with serving(whole({}), whole({})) as server:
        plugin.makepyfile(CLIENTS.format(base=server.base))
        run(plugin, "--agentlab-record=once", "-k", "sync").assert_outcomes(passed=2, deselected=1)
    assert len(json.loads((plugin.path / "shared.json").read_text())["interactions"]) == 2
    done = run(plugin)
    done.assert_outcomes(passed=2, errors=1, warnings=2)
    done.stdout.fnmatch_lines("*agentlab_transport needs @pytest.mark.agentlab_replay at test_without_a_mark.*")


def cassette(path: Path, *answers: object) -> None:
    entries = [
        {
            "request": {"method": "POST", "uri": "https://llm.example/v1", "body": "{}", "headers": {}},
            "response": {"status": {"code": 200, "message": "OK"}, "headers": {}, "body": {"string": json.dumps(answer)}},
        }
        for answer in answers
    ]
    path.write_text(json.dumps({"version": 1, "interactions": entries}))


def test_unused_recordings_and_keys_are_reported(plugin: pytest.Pytester, run: Run) -> None:
    cassette(plugin.path / "own.json", {}, {"key": LOOK_LIKE_KEYS["openai"]}, {})
    plugin.makepyfile(
        """
        import httpx, pytest

        @pytest.mark.agentlab_replay("own.json", match="order")
        @pytest.mark.parametrize("works", [True, False])
        def test_one(agentlab_transport, works):
            httpx.Client(transport=agentlab_transport).post("https://llm.example/v1", json={"q": 1})
            assert works
        """
    )
    done = run(plugin)
    done.assert_outcomes(passed=1, failed=1, warnings=2)  # the key once, for both tests
    done.stdout.fnmatch_lines(
        ["*own.json contains a key. Revoke it*", "*did not use own.json, interaction 2 and 1 more: delete it, or record again."]
    )
    assert LOOK_LIKE_KEYS["openai"] not in done.stdout.str()
    run(plugin, "-W", "error::agentlab.errors.AgentlabWarning").assert_outcomes(errors=1, failed=1)


def test_pytest_finds_the_plugin() -> None:
    declared = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]["entry-points"]["pytest11"]
    assert declared == {"agentlab": "agentlab.testing.pytest_plugin"}


def test_the_plugin_is_light() -> None:
    code = "import sys, pytest; before = {*sys.modules}; import agentlab.testing.pytest_plugin; print(*{*sys.modules} - before)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert {one for one in loaded if one.partition(".")[0] != "agentlab"} & {"httpx", "pydantic", "pandas", "yaml"} == set()
    assert "agentlab.transport" not in loaded

"""Which transport a run captures."""

from __future__ import annotations

import asyncio
import contextvars
import pickle
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from agentlab import transport
from agentlab.errors import ConfigurationError, ReplayMissError

from .conftest import asked, interaction

Write = Callable[..., Path]


@pytest.fixture
def replays(cassette: Write) -> list[transport.Replay]:
    return [transport.replay(cassette(interaction({"q": 1}, str(n)), name=f"{n}.json")) for n in (1, 2)]


def test_live_is_the_default_and_shared() -> None:
    assert transport.current() is transport.current()
    assert transport.current().needs_key is True
    assert repr(transport.current()) == "live transport"


def test_blocks_nest(replays: list[transport.Replay]) -> None:
    one, two = replays
    live = transport.current()
    with one as entered:
        assert entered is one is transport.current()
        with two:
            assert transport.current() is two
            with one:
                assert transport.current() is one
            assert transport.current() is two
        assert transport.current() is one
    assert transport.current() is live


def test_a_block_ends_when_it_raises(replays: list[transport.Replay]) -> None:
    live = transport.current()
    with pytest.raises(RuntimeError, match="boom"), replays[0]:
        raise RuntimeError("boom")
    assert transport.current() is live


def test_a_block_left_in_another_context_or_order(replays: list[transport.Replay]) -> None:
    one, two = replays
    live = transport.current()
    elsewhere = contextvars.copy_context()
    elsewhere.run(one.__enter__)
    one.__exit__(None, None, None)  # as when a cell that ran in its own context is left
    assert transport.current() is live
    assert elsewhere.run(transport.current) is one
    elsewhere.run(one.__exit__, None, None, None)
    assert elsewhere.run(transport.current) is live
    one.__enter__()
    two.__enter__()
    one.__exit__(None, None, None)
    assert transport.current() is two
    two.__exit__(None, None, None)
    assert transport.current() is live


def test_tasks_do_not_see_each_other(replays: list[transport.Replay]) -> None:
    async def hold(mine: transport.Replay) -> bool:
        with mine:
            await asyncio.sleep(0.01)
            return transport.current() is mine

    async def both() -> list[bool]:
        return await asyncio.gather(*(hold(one) for one in [*replays, *replays]))

    assert asyncio.run(both()) == [True] * 4


def test_a_captured_replay_outlives_its_block_and_works_in_any_thread_and_loop(replays: list[transport.Replay]) -> None:
    with replays[0]:
        captured = transport.current()
    seen: list[transport.Transport] = []
    thread = threading.Thread(target=lambda: seen.append(transport.current()))
    thread.start()
    thread.join()
    assert seen == [transport.current()]  # a new thread has none: that is why a run captures it
    with ThreadPoolExecutor(4) as pool:
        answers = list(
            pool.map(lambda n: asked(captured, "https://llm.example/v1/chat", {"q": 1}, replay_key=str(n)).json(), range(40))
        )
    assert answers == [1] * 40


def test_transports_can_be_pickled(replays: list[transport.Replay], tmp_path: Path) -> None:
    one = pickle.loads(pickle.dumps(replays[0]))
    assert asked(one, "https://llm.example/v1/chat", {"q": 1}).json() == 1
    assert repr(one) == repr(replays[0])
    assert pickle.loads(pickle.dumps(transport.current())) is transport.current()
    recording = pickle.loads(pickle.dumps(transport.record(tmp_path / "rec", origin="synthetic")))
    assert (recording.recorder.path, recording.recorder.origin) == (tmp_path / "rec", "synthetic")


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(AttributeError, match="has no name 'Nothing'"):
        transport.Nothing  # noqa: B018


def test_a_sample_is_not_recorded_into(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ReplayMissError, match=r'inside `with agentlab\.record\("fixtures/question"\)'):
        asked(transport.replay("sample:question"), "https://api.openai.com/v1/responses", {"q": "another"})
    with pytest.raises(ConfigurationError, match="record into a folder, such as 'fixtures/question'"):
        transport.record("sample:question")
    assert list(tmp_path.iterdir()) == []

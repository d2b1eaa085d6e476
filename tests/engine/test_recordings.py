"""The recording of a run replays as the same run: steps, usage, texts, failures and retries, alone and many at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from providers.bodies import WIRES, Answer

import agentlab as lab
from agentlab.errors import ProviderStatusError, ReplayMissError
from agentlab.model.finish_reasons import StopReason
from agentlab.records.events import Event

from .call_builders import (
    HELLO,
    LOOK,
    QUICK,
    agent,
    before_the_end,
    essence,
    finished,
    go,
    is_streamed,
    looking_for,
    reply_to,
    retried,
    stream_bytes,
    texts,
    whole_body,
)
from .server import JSON_TYPE, SSE_TYPE, Asked, Reply, Server, cut, raw, serving, status, stream, whole, zipped


def recorded(server: Server, folder: Path, wire: str = "compatible", **more: Any) -> lab.RunResult:
    """A run that is recorded."""
    with lab.record(folder):
        run = agent(server, wire, **more).run("go")
    return go(finished(run))


def replayed(server: Server, folder: Path, wire: str = "compatible", **more: Any) -> lab.RunResult:
    """The same run, without a key and without the server."""
    before = len(server.asked)
    with lab.replay(folder):
        run = agent(server, wire, key=None, **more).run("go")
    result = go(finished(run))
    assert len(server.asked) == before
    return result


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("name", ["", "turns.json", "turns.yaml"], ids=["folder", "json", "yaml"])
def test_a_run_with_tools_replays_the_same(wire: str, streaming: bool, name: str, tmp_path: Path) -> None:
    live: list[Event] = []
    again: list[Event] = []
    with serving(script=looking_for(lambda asked: ["tea", "milk"], wire)) as server:
        first = recorded(server, tmp_path / name, wire, stream=streaming, observers=[live.append])
        second = replayed(server, tmp_path / name, wire, stream=streaming, observers=[again.append])
    assert [step.text for step in first.history] == ["Step 1", "Step 2", "Seen: tea, milk"]
    assert [step.usage.input_tokens for step in first.history] == [10, 11, 10]
    assert essence(second) == essence(first)
    assert "".join(texts(again)) == "".join(texts(live)) == "Step 1Step 2Seen: tea, milk"
    assert [type(event) for event in second.events] == [type(event) for event in first.events]


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "stream"])
def test_a_last_answer_replays_the_same(wire: str, streaming: bool, tmp_path: Path) -> None:
    budget = lab.Budget(max_turns=2, last_answer=0.2)
    more: dict[str, Any] = {"stream": streaming, "budget": budget}
    with serving(reply_to(wire, LOOK, streaming=streaming), reply_to(wire, HELLO, streaming=streaming)) as server:
        first = recorded(server, tmp_path, wire, **more)
        second = replayed(server, tmp_path, wire, **more)
        asked = [str(one.json) for one in server.asked]
    assert (first.text, first.stop_reason) == ("Hello there", StopReason.TURN_LIMIT)
    assert [[step.last_answer for step in one.history] for one in (first, second)] == [[False, True]] * 2
    assert essence(second) == essence(first)
    assert ["nearly used up" in one for one in asked] == [False, True]
    forbids = {"anthropic": "'tool_choice': {'type': 'none'}", "gemini": "'mode': 'NONE'"}.get(wire, "'tool_choice': 'none'")
    assert [forbids in one for one in asked] == [False, True]


# Failures -------------------------------------------------------------------------------------------------------------------

REFUSAL = {"error": {"message": "Slow down."}}
FAILURES: dict[str, tuple[bool, tuple[Reply, ...]]] = {
    "429, then an answer": (False, (status(429, REFUSAL, ("retry-after", "0.2")), whole(whole_body("compatible", HELLO)))),
    "429 in milliseconds, then a stream": (
        True,
        (status(429, REFUSAL, ("retry-after-ms", "200")), reply_to("compatible", HELLO, streaming=True)),
    ),
    "503 and 500, then an answer": (False, (status(503), status(500), whole(whole_body("compatible", HELLO)))),
    "a body that breaks off, then an answer": (
        False,
        (cut(b'{"id": "r1"}', "leave"), whole(whole_body("compatible", HELLO))),
    ),
    "given up": (False, (status(429),) * 4),
    "asked to wait for too long": (False, (status(429, REFUSAL, ("retry-after", "60")),)),
    "refused": (False, (status(404),)),
    "refused in a later step": (True, (reply_to("compatible", LOOK, streaming=True), status(400))),
    "a stream that breaks off": (True, (stream(before_the_end("compatible", LOOK)[0], end="leave"),)),
    "a stream with no end": (True, (stream(before_the_end("compatible", LOOK)[0]),)),
    "a stream without content, then a stream": (True, (stream(end="leave"), reply_to("compatible", HELLO, streaming=True))),
    "a page": (False, (raw(b"<html>", ("content-type", "text/html")),)),
    "a page, for a stream": (True, (raw(b"<html>", ("content-type", "text/html")),)),
    "an empty body": (False, (raw(b"", JSON_TYPE),)),
    "JSON for a stream": (True, (whole(whole_body("compatible", HELLO)),)),
    "an error under 200": (True, (whole({"error": {"message": "Out of capacity"}}),)),
    "a stream in gzip": (True, (zipped(stream_bytes("compatible", HELLO), SSE_TYPE),)),
}


@pytest.mark.parametrize(("streaming", "replies"), FAILURES.values(), ids=FAILURES)
def test_failures_replay_the_same_without_waiting(streaming: bool, replies: tuple[Reply, ...], tmp_path: Path) -> None:
    with serving(*replies) as server:
        first = recorded(server, tmp_path, stream=streaming)
        assert len(server.asked) == len(replies)
        second = replayed(server, tmp_path, stream=streaming)
    assert (second.stop_reason, second.text, second.usage) == (first.stop_reason, first.text, first.usage)
    assert (type(second.error), len(second.history)) == (type(first.error), len(first.history))
    if isinstance(first.error, ProviderStatusError):
        assert str(second.error) == str(first.error)
    assert [event.attempt for event in retried(second)] == [event.attempt for event in retried(first)]
    assert [call.retries for step in second.history for call in step.calls] == [
        call.retries for step in first.history for call in step.calls
    ]
    assert [event.wait_s for event in retried(second)] == [0] * len(retried(first))


def test_an_exhausted_recording_is_no_transient_error(tmp_path: Path) -> None:
    """With more retries than there were in the recording."""
    with serving(status(500), status(500)) as server:
        policy = lab.RetryPolicy(attempts=2, first_wait_s=0)
        recorded(server, tmp_path, retry=policy)

        async def main() -> None:
            run = agent(server, key=None).run("go", transport=lab.replay(tmp_path))
            with pytest.raises(ReplayMissError, match="recorded 2 times"):
                await run
            assert run.result is not None
            assert len(retried(run.result)) == 2

        go(main())


# Many at once ---------------------------------------------------------------------------------------------------------------

MANY = 20


def topics(asked: Asked) -> list[str]:
    """Task n looks up n % 4 topics."""
    content = asked.body.split(b"task ")[1]
    number = int(content[: content.index(b'"')])
    return [f"topic {number}-{index}" for index in range(number % 4)]


async def at_once(one: lab.Agent, prompts: list[str]) -> list[lab.RunResult]:
    return await asyncio.gather(*(finished(one.run(prompt)) for prompt in prompts))


@pytest.mark.parametrize(("wire", "streaming"), [("openai", True), ("compatible", False), ("anthropic", True), ("gemini", False)])
def test_many_concurrent_runs_replay_the_same(wire: str, streaming: bool, tmp_path: Path) -> None:
    prompts = [f"task {number}" for number in range(MANY)]

    async def main() -> tuple[list[lab.RunResult], ...]:
        with lab.record(tmp_path):
            first = await at_once(agent(server, wire, stream=streaming), prompts)
        with lab.replay(tmp_path):
            one = agent(server, wire, key=None, stream=streaming)
            return first, await at_once(one, prompts), await at_once(one, prompts[::-1])

    with serving(script=looking_for(topics, wire)) as server:
        first, second, third = go(main())
    assert len(server.asked) == sum(number % 4 + 1 for number in range(MANY))
    assert [result.stop_reason for result in first] == [StopReason.COMPLETED] * MANY
    assert first[7].text == "Seen: topic 7-0, topic 7-1, topic 7-2"
    assert list(map(essence, second)) == list(map(essence, first))
    assert list(map(essence, third)) == list(map(essence, first))[::-1]


def test_many_equal_concurrent_runs_replay_the_same_each_time(tmp_path: Path) -> None:
    """The server answers each of them differently. In a replay every run goes through the recordings independently, from the
    first one."""
    numbers = iter(range(1000))

    def script(asked: Asked) -> Reply:
        return reply_to("compatible", Answer(text=(f"answer {next(numbers)}",)), streaming=is_streamed(asked))

    async def main() -> tuple[list[lab.RunResult], ...]:
        with lab.record(tmp_path):
            first = await at_once(agent(server), ["task"] * MANY)
        with lab.replay(tmp_path):
            one = agent(server, key=None)
            return first, await at_once(one, ["task"] * MANY), await at_once(one, ["task"] * MANY)

    with serving(script=script) as server:
        first, second, third = go(main())
    assert len({result.text for result in first}) == MANY
    assert len({result.text for result in second}) == 1
    assert list(map(essence, second)) == list(map(essence, third))


def test_concurrent_runs_replay_their_own_retries(tmp_path: Path) -> None:
    failed: set[bytes] = set()
    answer: Callable[[Asked], Reply] = looking_for(topics, "compatible")

    def script(asked: Asked) -> Reply:
        if asked.body in failed or len(asked.body) % 2:
            return answer(asked)
        failed.add(asked.body)
        return status(429, REFUSAL)

    prompts = [f"task {number}" for number in range(MANY)]

    async def main() -> tuple[list[lab.RunResult], ...]:
        with lab.record(tmp_path):
            first = await at_once(agent(server, retry=QUICK), prompts)
        with lab.replay(tmp_path):
            return first, await at_once(agent(server, key=None), prompts)

    with serving(script=script) as server:
        first, second = go(main())
    assert any(retried(result) for result in first)
    assert list(map(essence, second)) == list(map(essence, first))
    assert [len(retried(result)) for result in second] == [len(retried(result)) for result in first]

"""The fault injection for users' own tests: its effects, and its errors for invalid values."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import agentlab as lab
from agentlab.errors import ConfigurationError, ProviderConnectionError, ReplayMissError
from agentlab.testing import faults, faulty
from agentlab.testing.fault_bodies import Attempt, injected_answer
from agentlab.transport.http import HttpAnswer

FIXTURES = Path(__file__).parents[2] / "fixtures"
PROMPT = "Do I need an umbrella in Graz on Saturday, 12 June 2027?"


def asked(transport: Any = None, **more: Any) -> lab.RunResult:
    """The question of a shipped recording, sent to it."""
    from fixtures.scenarios import ALL

    fixture = next(one for one in ALL if one.id == "question/openai")

    async def main() -> lab.RunResult:
        return await fixture.agent().run(PROMPT, transport=transport, **more)

    return asyncio.run(main())


def recording() -> Any:
    return lab.replay(FIXTURES / "question" / "openai.yaml")


def retries(result: lab.RunResult) -> list[int]:
    return [call.retries for step in result.history for call in step.calls]


def test_a_with_block_wraps_the_surrounding_transport() -> None:
    with recording(), lab.testing.faulty(faults.Status(429), at=2) as broken:
        result = asked()
    assert (result.stop_reason, retries(result), broken.injected) == ("completed", [0, 1], 1)


def test_a_replay_inside_takes_the_place_of_the_faults() -> None:
    with lab.testing.faulty(faults.Status(429)) as switch, recording():
        assert (retries(asked()), switch.injected) == ([0, 0], 0)


def test_faulty_as_the_transport_of_a_run() -> None:
    result = asked(faulty(faults.Reset(after_bytes=40), over=recording()))
    assert (result.stop_reason, retries(result)) == ("completed", [1, 0])


@pytest.mark.parametrize(("at", "times", "expected"), [(1, 1, [1, 0]), (1, 3, [3, 0]), (2, 2, [0, 2]), (3, 1, [0, 0])])
def test_at_and_times_select_the_requests(at: int, times: int, expected: list[int]) -> None:
    for fault in (faults.Refused(), faults.Reset(30)):
        assert retries(asked(faulty(fault, at=at, times=times, over=recording()))) == expected


def test_always_affects_every_request() -> None:
    broken = faulty(faults.Refused(), times=None, over=recording())
    result = asked(broken)
    assert (result.stop_reason, broken.injected) == ("error", 4)
    assert isinstance(result.error, ProviderConnectionError)


def test_a_list_and_a_function_of_faults() -> None:
    assert retries(asked(faulty([None, faults.Refused(), faults.Status(503)], over=recording()))) == [0, 2]
    assert retries(asked(faulty(lambda number: faults.Refused() if number % 2 else None, over=recording()))) == [1, 1]


def test_nested_faults() -> None:
    inner = faulty(faults.Status(500), at=2, over=recording())
    outer = faulty(faults.Refused(), at=1, over=inner)
    assert retries(asked(outer)) == [1, 1]
    assert (inner.injected, outer.injected) == (1, 1)


def test_each_run_counts_its_own_requests() -> None:
    broken = faulty(faults.Refused(), over=recording())
    assert [retries(asked(broken)) for _ in range(3)] == [[1, 0]] * 3
    assert broken.injected == 3


def test_an_exhausted_recording_still_says_so() -> None:
    broken = faulty(faults.Relabelled(), at=1, times=None, over=recording())
    with pytest.raises(ReplayMissError):
        asyncio.run(ask_again(broken, 3))


async def ask_again(transport: Any, times: int) -> None:
    """One request, repeated in one run, with another one in between."""
    from agentlab.transport.http import HttpRequest

    first = recording().index.interactions[0]
    request = HttpRequest(first.method, first.uri, {}, first.body)
    other = HttpRequest(first.method, first.uri, {}, recording().index.interactions[1].body)
    for one in (request, request, other, request)[: times + 1]:
        async with transport.open(one, auth={}, replay_key="l", timeout_s=None) as answer:
            await answer.read()


def test_the_count_of_a_run_is_forgotten_with_it() -> None:
    from fixtures.scenarios import ALL

    fixture = next(one for one in ALL if one.id == "question/openai")
    broken = faulty(faults.Status(429), at=1, over=recording())

    async def main() -> list[lab.RunResult]:
        return [await fixture.agent().run(PROMPT, transport=broken).with_id("the same") for _ in range(2)]

    results = asyncio.run(main())
    assert [retries(one) for one in results] == [[1, 0], [1, 0]]
    assert {one.stop_reason for one in results} == {"completed"}


def test_faulty_can_be_pickled() -> None:
    broken = pickle.loads(pickle.dumps(faulty(faults.Status(429, retry_after_s=1), at=2, over=recording())))
    assert retries(asked(broken)) == [0, 1]
    assert repr(broken).startswith("faulty(Status(status=429, retry_after_s=1, body=None), at=2, times=1, over=replay(")


class Late(faults.Fault):
    """A custom fault."""

    async def answer(self, ask: Any, attempt: Attempt) -> Any:
        answer = await ask()
        body = await answer.read()
        return injected_answer(body, headers={**answer.headers, "content-type": "text/late"})


def test_a_custom_fault() -> None:
    broken = faulty(Late(), over=recording())
    assert (asked(broken).stop_reason, broken.injected) == ("completed", 1)


BODY = b'data: {"a": 1}\n\ndata: {"b": 2}\n\ndata: [DONE]\n\n'
CHANGED: dict[str, tuple[faults.Fault, bytes]] = {
    "slow": (faults.Slow(7, 0), BODY),
    "cut": (faults.Cut(9), BODY[:9]),
    "cut at 0": (faults.Cut(0), b""),
    "no JSON": (faults.InvalidJson("{oops}"), b"{oops}"),
    "cut behind the end": (faults.Cut(1000), BODY),
    "garbled": (faults.Garbled(3), b"dat\xe1" + BODY[4:]),
    "garbled behind the end": (faults.Garbled(1000), BODY),
    "twice": (faults.Repeated(), b'data: {"a": 1}\n\n' * 2 + b'data: {"b": 2}\n\n' * 2 + b"data: [DONE]\n\n" * 2),
    "padded": (faults.Padded(100_000), b"" + (b" " * 65_535 + b"\n") + (b" " * (100_000 - 65_537) + b"\n") + BODY),
}


@pytest.mark.parametrize(("fault", "expected"), CHANGED.values(), ids=CHANGED)
@pytest.mark.parametrize("size", [1, 5, 1000])
def test_the_effect_of_each_fault_on_a_body(fault: faults.Fault, expected: bytes, size: int) -> None:
    async def chunks() -> Any:
        for at in range(0, len(BODY), size):
            yield BODY[at : at + size]

    async def main() -> bytes:
        async def ask() -> HttpAnswer:
            return HttpAnswer(200, {}, chunks)

        return await (await fault.answer(ask, Attempt("here", 1.0))).read()

    assert asyncio.run(main()) == expected


@pytest.mark.parametrize("after", [0, 1, 9, len(BODY), 1000])
@pytest.mark.parametrize("kind", [faults.Reset, faults.BrokenGzip, lambda after: faults.Stalled(after, longest_s=0)])
def test_the_bytes_before_a_break(kind: Callable[[int], faults.Fault], after: int) -> None:
    async def main() -> bytes:
        async def ask() -> HttpAnswer:
            return injected_answer(BODY)

        came, error_text = b"", ""
        try:
            async for chunk in (await kind(after).answer(ask, Attempt("here", None))).chunks():
                came += chunk
        except ProviderConnectionError as error:
            error_text = str(error)
        assert error_text.startswith("here: ")
        return came

    assert asyncio.run(main()) == BODY[:after]


BAD: dict[str, tuple[Callable[[], object], str]] = {
    "reset": (lambda: faults.Reset(-1), "Reset(after_bytes=-1): pass a number of at least 0."),
    "stalled": (lambda: faults.Stalled(longest_s=-1), "Stalled(longest_s=-1): pass a number of at least 0."),
    "status": (lambda: faults.Status(200), "Status(200): pass an HTTP status from 300 to 599."),
    "wait": (lambda: faults.Status(429, retry_after_s=float("nan")), "Status(retry_after_s=nan): pass a number of at least 0."),
    "slow": (lambda: faults.Slow(0), "Slow(bytes_at_once=0): pass a number of at least 1."),
    "repeated": (lambda: faults.Repeated(1), "Repeated(times=1): pass a number of at least 2."),
    "at": (lambda: faulty(faults.Refused(), at=0), "faulty(at=0): pass the number of a request, from 1."),
    "times": (lambda: faulty(faults.Refused(), times=0), "faulty(times=0): pass a whole number of at least 1, or None"),
    "list and at": (lambda: faulty([faults.Refused()], at=2), "need a single fault"),
    "no fault": (lambda: faulty([429]), "429 is not a fault: pass one of agentlab.testing.faults"),  # type: ignore[list-item]
    "a class": (lambda: faulty([faults.Reset]), "is not a fault"),  # type: ignore[list-item]
    "nothing": (lambda: faulty(429), "429 is not a fault"),  # type: ignore[arg-type]
    "a class alone": (lambda: faulty(faults.Reset), "is not a fault"),  # type: ignore[arg-type]
}  # fmt: skip


@pytest.mark.parametrize(("make", "message"), BAD.values(), ids=BAD)
def test_an_invalid_value_is_named(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        make()
    assert message in str(caught.value)

"""From a parsed response to the reason why it ended; then the cost that `lab.detect` and `lab.decide` add."""

from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import partial
from typing import Any

from tests.benchmarks.bodies import BODIES
from tests.benchmarks.measure import Prepare, Thunk, interleaved, set_aside
from tests.benchmarks.sdk_bodies import VALIDATED
from tests.benchmarks.table import Figure, Row, attempt

TIMES = 100
"""Number of responses read together."""


def each(read: Callable[[dict[str, Any]], object], body: dict[str, Any]) -> Prepare:
    """One reading of as many copies of a body, since some readers change their input."""

    def ready() -> Thunk:
        copies = [deepcopy(body) for _ in range(TIMES)]

        def run() -> None:
            for copy in copies:
                read(copy)

        return run

    return ready


def peers(name: str, body: dict[str, Any]) -> dict[str, Prepare]:
    """The vendor's library makes its typed object from the body."""
    from tests.benchmarks.sdk_bodies import SDKS

    makers = SDKS[name]()
    for make in makers.values():
        make(deepcopy(body))
    set_aside()
    return {sdk: each(make, body) for sdk, make in makers.items()}


def ours(name: str, body: dict[str, Any], calls: bool) -> Prepare:
    """A provider's reading of the body, text and calls and usage included, and its signal."""
    from agentlab import FinishReason, Provider

    provider = Provider(name, model="scripted", base_url="http://127.0.0.1/v1")
    response = provider.parse(body)
    assert response.signal.finish_reason is (FinishReason.TOOL_CALLS if calls else FinishReason.END_TURN), response.signal
    assert len(response.tool_calls) == (2 if calls else 0)
    assert response.usage.input_tokens in (120, 2_000), response.usage
    return each(lambda body: provider.parse(body).signal, body)


def detect(name: str, body: dict[str, Any]) -> Prepare:
    """The same through the registry, by the provider's name."""
    import agentlab as lab

    assert lab.detect(name, body).raw_value is not None
    return each(partial(lab.detect, name), body)


def decide(name: str, body: dict[str, Any]) -> Prepare:
    """The decision on the signal, with the response as its context."""
    import agentlab as lab
    from agentlab.limits.reading import Action

    response = lab.Provider(name, model="scripted", base_url="http://127.0.0.1/v1").parse(body)
    context = lab.DecisionContext(response=response)
    assert lab.decide(response.signal, context).action is Action.EXECUTE_TOOLS
    return each(lambda _: lab.decide(response.signal, context), body)


def rows(with_peers: bool) -> Iterator[Row]:
    """For each wire a short answer and one with tool calls, next to the vendor's client; then the registry and the decision.

    The time of pydantic's validation of the vendor's types, which is compiled code, is printed as well.
    """
    for name, make in BODIES.items():
        for calls, what in ((False, "a short answer"), (True, "two tool calls")):
            body = make(calls)
            candidate, why_not = attempt(partial(ours, name, body, calls))
            candidates = (peers(name, body) if with_peers else {}) | ({"ours": candidate} if candidate else {})
            taken = {who: us / TIMES for who, us in interleaved(candidates, repeats=25, seconds=1.5).items()}
            read = taken.pop("ours", None)
            if with_peers:
                print(f"  {name}, {what}: " + ", ".join(f"{us:.1f} us {who}" for who, us in taken.items()), flush=True)
            client = next((Figure(who, us) for who, us in taken.items() if not who.endswith(VALIDATED)), None)
            yield Row(
                benchmark=f"signal of a parsed response, {name}, {what}",
                unit="us",
                goal="<= the vendor's own client",
                at_most=1.0,
                peer=client,
                ours=read,
                against=client.value if client else None,
                why_not=why_not,
            )
    yield from on_top()


def on_top() -> Iterator[Row]:
    """`lab.detect` in place of the provider's own parser, followed by `lab.decide`, relative to that parser."""
    body = BODIES["openai"](True)
    parts = {"parse": partial(ours, "openai", body, True), "lab.detect": partial(detect, "openai", body)}
    parts["lab.decide"] = partial(decide, "openai", body)
    found = {part: attempt(make) for part, make in parts.items()}
    candidates = {part: candidate for part, (candidate, _) in found.items() if candidate}
    taken = {part: us / TIMES for part, us in interleaved(candidates, repeats=25, seconds=1.5).items()}
    for part in ("lab.detect", "lab.decide"):
        yield Row(
            benchmark=f"{part}, openai, two tool calls",
            unit="us",
            floor=taken.get("parse"),
            ours=taken.get(part),
            against=taken.get("parse"),
            why_not=found[part][1],
        )

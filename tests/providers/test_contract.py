"""The contract for providers: agentlab's own satisfy it, a wrong one does not, and `verify` runs it as pytest does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest

import agentlab as lab
from agentlab import FinishReason
from agentlab.errors import ConfigurationError
from agentlab.model.responses import ModelResponse
from agentlab.providers import FINISH_REASONS, Capabilities, ChatCompletions, Dialect, Provider, Table, find_key
from agentlab.testing import ProviderContract, StorageContract, verify

from . import bedrock_bodies, bodies, responses_bodies
from .bodies import Answer, Call

ENDS = (FinishReason.END_TURN, FinishReason.TOOL_CALLS, FinishReason.MAX_TOKENS, FinishReason.CONTENT_FILTERED)
SAID = Answer(text=("wö",), reasoning=("hm",))
"""Short: the contract takes the square of its length. test_broken_streams.py and test_responses_streams.py cut longer ones."""


def answer(end: FinishReason) -> Answer:
    calls = (Call("f", {"a": 1}),) if end is FinishReason.TOOL_CALLS else ()
    return Answer(text=("Hello",), calls=calls, finish=end)


def made(name: str) -> Provider:
    return lab.Provider(name, model="some-model", base_url="http://127.0.0.1:1/v1", api_key="made-up-and-long-enough")


@pytest.mark.parametrize("name", bodies.WIRES, scope="class")
class TestChatMessagesAndGenerate(ProviderContract):
    @pytest.fixture
    def provider(self, name: str) -> Provider:
        return made(name)

    @pytest.fixture
    def bodies(self, name: str) -> list[tuple[Any, FinishReason]]:
        return [(bodies.whole(name, answer(end)), end) for end in ENDS]

    @pytest.fixture
    def stream(self, name: str) -> bytes:
        return bodies.stream(name, SAID)


@pytest.mark.parametrize("name", responses_bodies.RESPONSES, scope="class")
class TestResponses(ProviderContract):
    @pytest.fixture
    def provider(self, name: str) -> Provider:
        return made(name)

    @pytest.fixture
    def bodies(self) -> list[tuple[Any, FinishReason]]:
        return [(responses_bodies.whole(answer(end)), end) for end in ENDS]

    @pytest.fixture
    def stream(self) -> bytes:
        return responses_bodies.stream(Answer(text=("wö",)), "done only")  # the fewest events, too


class TestBedrock(ProviderContract):
    @pytest.fixture
    def provider(self) -> Provider:
        return made("bedrock")

    @pytest.fixture
    def bodies(self) -> list[tuple[Any, FinishReason]]:
        return [(bedrock_bodies.whole(answer(end)), end) for end in ENDS]

    @pytest.fixture
    def stream(self) -> bytes:
        return bedrock_bodies.stream(SAID)


# Custom providers, right and wrong -----------------------------------------------------------------------------------------

WORDS = Table(field="choices[].finish_reason", reasons={"fertig": FinishReason.END_TURN})


@dataclass(frozen=True, slots=True)
class Gateway(ChatCompletions):
    """A gateway with its own finish reason."""

    name: ClassVar[str] = "gateway"
    wire: ClassVar[str] = "gateway.chat"
    cap_field: ClassVar[str] = "max_tokens"
    capabilities: ClassVar[Capabilities] = Capabilities()
    dialect: ClassVar[Dialect] = Dialect(tables=(FINISH_REASONS, WORDS))

    base_url: str = "https://gateway.example/v1"

    def auth_headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {find_key(self.name, self.api_key, ('GATEWAY_API_KEY',))}"}


class Leaky(Gateway):
    """Shows its key."""

    def __repr__(self) -> str:
        return f"Leaky({self.api_key})"


class Hasty(Gateway):
    """Accepts every body as valid."""

    def parse(self, payload: Any, *, requested_cap: int | None = None) -> ModelResponse:
        whole = Gateway.parse(self, payload)
        assert payload["choices"]
        return replace(whole, text="?")


def held(kind: type[Gateway], **others: Callable[[], Any]) -> Any:
    fixtures: dict[str, Callable[[], Any]] = {
        "provider": lambda: kind(model="m", api_key="made-up-and-long-enough"),
        "bodies": lambda: [(bodies.chat("fertig"), FinishReason.END_TURN), (bodies.chat("length"), FinishReason.MAX_TOKENS)],
        "stream": lambda: bodies.stream("openai", SAID),
    }
    return verify(ProviderContract, **{**fixtures, **others})


def test_a_custom_provider_satisfies_the_contract() -> None:
    found = held(Gateway)
    assert found.ok
    assert repr(found).splitlines()[:2] == ["ProviderContract: 11 of 11 hold", "  holds     it names itself"]


def test_each_mistake_is_reported() -> None:
    assert set(held(Leaky).broken) == {"it shows no key"}
    hasty = held(Hasty)
    assert set(hasty.broken) == {"no response raises"}
    assert "BROKEN    no response raises: TypeError" in repr(hasty)
    wrong = held(Gateway, bodies=lambda: [(bodies.chat("stop"), FinishReason.MAX_TOKENS)])
    assert set(wrong.broken) == {"finish reasons are as documented"}
    assert "'stop' means max_tokens, and is read as end_turn" in repr(wrong)
    keyless = held(Gateway, provider=lambda: Gateway(model="m"))
    assert keyless.broken == {"it shows no key": "give the provider a made-up key for the test to look for"}


def test_skipped_tests_are_reported_and_do_not_count() -> None:
    found = held(Gateway, stream=lambda: None)
    assert (len(found.kept), len(found.left_out), found.ok) == (8, 3, True)
    assert "left out  streams do not mix: no stream was given" in repr(found)


def test_a_missing_fixture_is_reported() -> None:
    with pytest.raises(ConfigurationError, match=r"verify\(StorageContract\) needs make=, a function without arguments"):
        verify(StorageContract)


def test_each_test_gets_its_own_fixtures() -> None:
    class Contract:
        def test_one(self, place: list[int]) -> None:
            place.append(1)
            assert place == [1]

        test_two = test_one

    found = verify(Contract, place=list)
    assert (found.kept, found.ok) == (("one", "two"), True)
    assert not verify(type("Nothing", (), {})).ok

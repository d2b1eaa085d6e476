"""One conversation on every wire as a target for faults: a call, another call, and an answer. The second response is damaged."""

from __future__ import annotations

import functools
import json
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from providers import bedrock_bodies, bodies, responses_bodies
from providers.bodies import Answer, Call

import agentlab as lab
from agentlab.model.finish_reasons import FinishReason
from agentlab.model.messages import ModelRequest
from agentlab.providers.registry import names
from agentlab.transport import Replay, Transport
from agentlab.transport.cassette import parse_cassette
from agentlab.transport.replaying import ReplayIndex

NAMES = names()
KEY = "tok-" + "Zq81mN4pXw77-planted"
READERS = ("anthropic", "bedrock", "compatible", "gemini", "openai", "openai-responses", "openrouter", "xai")
"""One provider for each reader of answers: the others differ from these in addresses, keys and finish reasons only."""
SPOILT = 2
"""The number of the request that has the fault."""

ANSWERS = (
    Answer(text=("Let me ", "see"), calls=(Call("look", {"q": "tea"}),), finish=FinishReason.TOOL_CALLS),
    Answer(text=("And ", "now"), calls=(Call("look", {"q": "milk and sugar"}),), finish=FinishReason.TOOL_CALLS),
    Answer(text=("Hel", "lo ", "there")),
)
WHOLE = ("tea", "milk and sugar")
"""The arguments of the tool's calls if nothing goes wrong."""

PROMPT = "What is there?"

_looked: ContextVar[list[str]] = ContextVar("looked")


@lab.tool(inline=True)
def look(q: str) -> str:
    """Look something up."""
    _looked.get().append(q)
    return f"saw {q}"


@dataclass(frozen=True)
class Talk:
    """The conversation with one provider."""

    name: str
    streaming: bool

    @property
    def id(self) -> str:
        """The id of the test that uses it."""
        return f"{self.name}-{'stream' if self.streaming else 'whole'}"

    @property
    def kind(self) -> str:
        """The content type of the answers."""
        if not self.streaming:
            return "application/json"
        return "application/vnd.amazon.eventstream" if self.name == "bedrock" else "text/event-stream"

    def bodies(self, *answers: Answer) -> list[bytes]:
        """The answers as the provider's server sends them."""
        made = [self._body(answer) for answer in answers or ANSWERS]
        return [body if isinstance(body, bytes) else json.dumps(body).encode() for body in made]

    def _body(self, answer: Answer) -> bytes | dict[str, Any]:
        if self.name.endswith("-responses"):
            return responses_bodies.stream(answer) if self.streaming else responses_bodies.whole(answer)
        if self.name == "bedrock":
            return bedrock_bodies.stream(answer) if self.streaming else bedrock_bodies.whole(answer)
        return bodies.stream(self.name, answer) if self.streaming else bodies.whole(self.name, answer)

    def provider(self, base: str = "http://127.0.0.1:1/v1", key: str | None = KEY) -> lab.Provider:
        """The provider, at this address."""
        base = base.removesuffix("/v1") if self.name in ("bedrock", "anthropic", "anthropic-foundry") else base
        place = {"project": "made-up"} if self.name.endswith("-vertex") else {}
        return lab.Provider(self.name, model="some-model", base_url=base, api_key=key, **place)

    def recording(self) -> Replay:
        """The conversation as a recording that is served in its order."""
        return Replay(ReplayIndex([self._cassette()], "order"), 0.0)

    @functools.cache  # noqa: B019  there are few talks, and thousands of runs of each
    def _cassette(self) -> Any:
        asked = self.provider().build_request(ModelRequest((), "", (), None, {}, self.streaming))
        interactions: list[Any] = [
            {
                "request": {"method": asked.method, "uri": asked.url, "body": "", "headers": {}},
                "response": {"status": {"code": 200}, "headers": {"content-type": self.kind}, "body": {"string": body}},
            }
            for body in self.bodies()
        ]
        return parse_cassette({"interactions": interactions}, Path("talk"))

    async def held(
        self,
        transport: Transport | None,
        *,
        base: str = "http://127.0.0.1:1/v1",
        retry: lab.RetryPolicy | None = None,
        **more: Any,
    ) -> Held:
        """Run it and return the outcome."""
        looked: list[str] = []
        _looked.set(looked)
        policy = retry or lab.RetryPolicy(attempts=4, first_wait_s=0.001, longest_wait_s=0.2)
        agent = lab.Agent(self.provider(base), tools=[look], stream=self.streaming, retry=policy)
        run = agent.run(PROMPT, transport=transport, **more)
        return Held(await run, tuple(looked))


@dataclass(frozen=True)
class Held:
    """The outcome: the run's result, and the arguments of the tool's calls."""

    result: lab.RunResult
    looked: tuple[str, ...]

    @property
    def retries(self) -> list[Any]:
        """The retry events of the run."""
        return [event for event in self.result.events if type(event).__name__ == "CallRetried"]

    @property
    def outcome(self) -> str:
        """In one phrase: `answered`, `retried`, `asked again` (within the step), or the stop reason."""
        result = self.result
        if result.stop_reason != "completed":
            return str(result.stop_reason)
        if self.retries:
            return "retried"
        return "asked again" if any(len(step.calls) > 1 for step in result.history) else "answered"


TALKS = tuple(Talk(name, streaming) for name in NAMES for streaming in (False, True))

"""Any server that speaks OpenAI's chat completions: llama.cpp, vLLM, Ollama, LM Studio, gateways, other vendors.

The wire and its table of finish reasons are in `_chat_completions.py`. Such servers differ most in what they leave out: a key, usage,
finish reasons, ids. So nothing of that is expected here.

Any server that speaks the Responses wire: llama.cpp, vLLM, LM Studio, gateways, other vendors.

The wire and its tables of finish reasons are in `_responses.py`. Such servers differ most in what they leave out: a key, ids,
statuses, the output in the last event. So nothing of that is expected here, and nothing is sent that a simple server may not know.
Several of them, llama.cpp among them, say `completed` also where they stopped at the cap: an answer whose tokens equal the cap
counts as cut, MAX_TOKENS at MEDIUM confidence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from agentlab.errors import ConfigurationError
from agentlab.providers.base import Capabilities, check_key, clean_url
from agentlab.providers.wires.chat_provider import ChatCompletions
from agentlab.providers.wires.responses_provider import Responses


@dataclass(frozen=True, slots=True)
class Compatible(ChatCompletions):
    """A server on the chat completions wire at `base_url`, which is needed (for example `http://127.0.0.1:8080/v1`).

    `api_key` is optional, and the only key that is ever sent: no environment variable is read. `prefill` says that the server, given
    the beginning of an answer as the last message, goes on right behind it: a cut answer is then continued so.
    """

    name: ClassVar[str] = "compatible"
    wire: ClassVar[str] = "compatible.chat"
    cap_field: ClassVar[str] = "max_tokens"
    capabilities: ClassVar[Capabilities] = Capabilities(reports_cost=True)

    base_url: str = ""
    prefill: bool = False

    @property
    def prefills(self) -> bool:
        """Whether a cut answer is continued behind its own words."""
        return self.prefill

    def __post_init__(self) -> None:
        if not self.base_url:
            raise ConfigurationError(
                'A compatible server needs its address: lab.Provider("compatible", model=…, base_url="http://127.0.0.1:8080/v1")'
            )
        object.__setattr__(self, "base_url", clean_url(self.base_url, self.name))

    def auth_headers(self) -> dict[str, str]:
        """The key as a bearer token, or no header where no key was given."""
        key = {"authorization": f"Bearer {check_key(self.name, self.api_key)}"} if self.api_key else {}
        return {**self.headers, **key}


@dataclass(frozen=True, slots=True)
class CompatibleResponses(Responses):
    """A server on the Responses wire at `base_url`, which is needed (for example `http://127.0.0.1:8080/v1`).

    `api_key` is optional, and the only key that is ever sent: no environment variable is read.
    """

    name: ClassVar[str] = "compatible-responses"
    wire: ClassVar[str] = "compatible.responses"
    capabilities: ClassVar[Capabilities] = Capabilities(reports_cost=True)
    full_items: ClassVar[bool] = True
    trusted: ClassVar[bool] = False

    base_url: str = ""

    def __post_init__(self) -> None:
        if not self.base_url:
            raise ConfigurationError(
                "A compatible server needs its address: "
                'lab.Provider("compatible-responses", model=…, base_url="http://127.0.0.1:8080/v1")'
            )
        object.__setattr__(self, "base_url", clean_url(self.base_url, self.name))

    def auth_headers(self) -> dict[str, str]:
        """The key as a bearer token, or no header where no key was given."""
        key = {"authorization": f"Bearer {check_key(self.name, self.api_key)}"} if self.api_key else {}
        return {**self.headers, **key}


PROVIDERS = (Compatible, CompatibleResponses)

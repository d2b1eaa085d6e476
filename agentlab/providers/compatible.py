"""Any server that speaks chat completions or Responses: llama.cpp, vLLM, Ollama, LM Studio, gateways, other vendors.

The wires and their tables of finish reasons are in `wires/chat.py` and `wires/responses.py`. Some of these servers leave out a key,
usage, finish reasons, ids, statuses, or the output in the last event, so none of these is required here, and requests have no fields
that a simple server may not support. Several, including llama.cpp, send `completed` on the Responses wire although they stopped at the
cap: an answer with as many tokens as the cap counts as truncated, MAX_TOKENS at MEDIUM confidence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from agentlab.providers.base import Capabilities
from agentlab.providers.wires.chat_provider import ChatCompletions
from agentlab.providers.wires.responses_provider import Responses


@dataclass(frozen=True, slots=True)
class Compatible(ChatCompletions):
    """A server on the chat completions wire at `base_url`, which is required (for example `http://127.0.0.1:8080/v1`).

    `api_key` is optional and the only key that is ever sent: no environment variable is read. `prefill`: the server continues an answer
    if its beginning is the last message. A cut answer is then continued that way.
    """

    name: ClassVar[str] = "compatible"
    wire: ClassVar[str] = "compatible.chat"
    cap_field: ClassVar[str] = "max_tokens"
    capabilities: ClassVar[Capabilities] = Capabilities(reports_cost=True)

    base_url: str = ""
    prefill: bool = False

    @property
    def prefills(self) -> bool:
        """True if a cut answer is continued right after its text."""
        return self.prefill


@dataclass(frozen=True, slots=True)
class CompatibleResponses(Responses):
    """A server on the Responses wire at `base_url`, which is required (for example `http://127.0.0.1:8080/v1`).

    `api_key` is optional and the only key that is ever sent: no environment variable is read.
    """

    name: ClassVar[str] = "compatible-responses"
    wire: ClassVar[str] = "compatible.responses"
    capabilities: ClassVar[Capabilities] = Capabilities(reports_cost=True)
    full_items: ClassVar[bool] = True
    trusted: ClassVar[bool] = False

    base_url: str = ""


PROVIDERS = (Compatible, CompatibleResponses)

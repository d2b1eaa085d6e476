"""Any server that speaks the Responses wire: llama.cpp, vLLM, LM Studio, gateways, other vendors.

The wire and its tables of finish reasons are in `_responses.py`. Such servers differ most in what they leave out: a key, ids,
statuses, the output in the last event. So nothing of that is expected here, and nothing is sent that a simple server may not know.
Several of them, llama.cpp among them, say `completed` also where they stopped at the cap: an answer whose tokens equal the cap
counts as cut, MAX_TOKENS at MEDIUM confidence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from agentlab.errors import ConfigurationError
from agentlab.providers._base import Capabilities
from agentlab.providers._request import check_key, clean_url
from agentlab.providers._responses_provider import Responses


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


PROVIDER = CompatibleResponses

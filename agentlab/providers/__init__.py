"""Providers: pure translators between agentlab's values and a vendor's HTTP wire, one file per vendor.

Everything that your own provider needs can be imported from here; the files below may change.

    from agentlab.providers import Capabilities, ChatCompletions, Responses     a server on a known wire
    from agentlab.providers import Dialect, Table, FINISH_REASONS, find_key     its finish reasons and its key
    from agentlab.providers import HttpRequest, Provider, Signer, StreamParser  the protocols of a new wire

`registry` finds providers by name, here or by the entry point group `agentlab.providers`. `finish_detection` (`lab.signals`) reads why
recorded responses ended. `wires/` holds what several vendors share. No vendor's file imports another's; none does I/O.
`agentlab.testing.ProviderContract` has the tests for a provider.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from agentlab._internal.lazy import no_such_name

if TYPE_CHECKING:
    from typing import Any

    from agentlab.providers.base import Capabilities as Capabilities
    from agentlab.providers.base import Provider as Provider
    from agentlab.providers.base import Signer as Signer
    from agentlab.providers.base import StreamParser as StreamParser
    from agentlab.providers.base import find_key as find_key
    from agentlab.providers.wires.chat import FINISH_REASONS as FINISH_REASONS
    from agentlab.providers.wires.chat import Dialect as Dialect
    from agentlab.providers.wires.chat_provider import ChatCompletions as ChatCompletions
    from agentlab.providers.wires.finish_rules import Table as Table
    from agentlab.providers.wires.responses_provider import Responses as Responses
    from agentlab.transport.http import HttpRequest

_PLACE_OF = {
    "Capabilities": "agentlab.providers.base",
    "ChatCompletions": "agentlab.providers.wires.chat_provider",
    "Dialect": "agentlab.providers.wires.chat",
    "FINISH_REASONS": "agentlab.providers.wires.chat",
    "HttpRequest": "agentlab.transport.http",
    "Provider": "agentlab.providers.base",
    "Responses": "agentlab.providers.wires.responses_provider",
    "Signer": "agentlab.providers.base",
    "StreamParser": "agentlab.providers.base",
    "Table": "agentlab.providers.wires.finish_rules",
    "find_key": "agentlab.providers.base",
}

__all__ = sorted(_PLACE_OF)  # noqa: PLE0605  a sorted list is a list


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    if name not in _PLACE_OF:
        raise no_such_name("agentlab.providers", name, __all__)
    return getattr(import_module(_PLACE_OF[name]), name)


def __dir__() -> list[str]:
    return __all__

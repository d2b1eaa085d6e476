"""Providers: one file each, found by scanning this folder or by the entry point group `agentlab.providers`.

What a provider of your own is made of is here under names to rely on; the files with an underscore may change.

    from agentlab.providers import Capabilities, ChatCompletions, Responses     a server on a wire that is there already
    from agentlab.providers import Dialect, Table, FINISH_REASONS, find_key     its own finish reasons, its key
    from agentlab.providers import HttpRequest, Provider, Signer, StreamParser  a wire of its own: the protocols to fulfil

`agentlab.testing.ProviderContract` has the tests for it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from agentlab.no_such_name import no_such_name

if TYPE_CHECKING:
    from typing import Any

    from agentlab.providers._base import Capabilities as Capabilities
    from agentlab.providers._base import Provider as Provider
    from agentlab.providers._base import Signer as Signer
    from agentlab.providers._base import StreamParser as StreamParser
    from agentlab.providers._chat_completions import FINISH_REASONS as FINISH_REASONS
    from agentlab.providers._chat_completions import Dialect as Dialect
    from agentlab.providers._chat_provider import ChatCompletions as ChatCompletions
    from agentlab.providers._request import find_key as find_key
    from agentlab.providers._responses_provider import Responses as Responses
    from agentlab.providers._signals import Table as Table
    from agentlab.transport.http import HttpRequest as HttpRequest

_PLACE_OF = {
    "Capabilities": "agentlab.providers._base",
    "ChatCompletions": "agentlab.providers._chat_provider",
    "Dialect": "agentlab.providers._chat_completions",
    "FINISH_REASONS": "agentlab.providers._chat_completions",
    "HttpRequest": "agentlab.transport.http",
    "Provider": "agentlab.providers._base",
    "Responses": "agentlab.providers._responses_provider",
    "Signer": "agentlab.providers._base",
    "StreamParser": "agentlab.providers._base",
    "Table": "agentlab.providers._signals",
    "find_key": "agentlab.providers._request",
}

__all__ = sorted(_PLACE_OF)  # noqa: PLE0605  a sorted list is a list


def __getattr__(name: str) -> Any:
    """A public name, whose file is imported when it is asked for."""
    if name not in _PLACE_OF:
        raise no_such_name("agentlab.providers", name, __all__)
    return getattr(import_module(_PLACE_OF[name]), name)


def __dir__() -> list[str]:
    return __all__

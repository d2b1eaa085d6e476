"""Translates between agentlab's values and each vendor's HTTP wire, one file per vendor. Add a provider here.

Everything that your own provider needs can be imported from here; the files below may change.

    from agentlab.providers import Capabilities, ChatCompletions, Responses     a server on a known wire
    from agentlab.providers import Dialect, Table, FINISH_REASONS, find_key     its finish reasons and its key
    from agentlab.providers import HttpRequest, Provider, Signer, StreamParser  the protocols of a new wire

No vendor's file imports another vendor's, and none does I/O. `agentlab.testing.ProviderContract` has the tests for a provider.

May import: `transport` and what is below it.

    base              the `Provider` protocol, and helpers for requests
    registry          finds providers by name, here or by the entry point group `agentlab.providers`
    finish_detection  detects why a response ended, live or recorded (`lab.signals`)
    detectors         the detectors of known providers, and the one that reads unknown responses by their pattern
    wires             the wires that several vendors share
    openai            a vendor on a shared wire: copy this file for a new server on such a wire
    anthropic         a vendor with its own wire: copy this file for a new wire
    compatible        other servers on a shared wire: any by its address, and a table of those known by name: add a row there

The other files are the other vendors: azure, bedrock, gemini, openrouter, xai.
"""

from typing import TYPE_CHECKING

from agentlab._internal.names import module_hooks
from agentlab.providers.base import Capabilities, Provider, Signer, StreamParser, find_key
from agentlab.providers.wires.chat import FINISH_REASONS, Dialect
from agentlab.providers.wires.chat_provider import ChatCompletions
from agentlab.providers.wires.finish_rules import Table
from agentlab.providers.wires.responses_provider import Responses
from agentlab.transport.http import HttpRequest

__all__ = [
    "Capabilities",
    "ChatCompletions",
    "Dialect",
    "FINISH_REASONS",
    "HttpRequest",
    "Provider",
    "Responses",
    "Signer",
    "StreamParser",
    "Table",
    "find_key",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = module_hooks("agentlab.providers", __all__)

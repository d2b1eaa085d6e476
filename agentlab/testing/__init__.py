"""For tests and tutorials: a model that says what it was told to say, providers that fail as they are told to, and what a provider and
a place for runs have to fulfil. Nothing in agentlab imports this."""

from typing import TYPE_CHECKING

from agentlab.no_such_name import only
from agentlab.testing import faults
from agentlab.testing.faulty import Faulty, faulty
from agentlab.testing.provider import ProviderContract
from agentlab.testing.scripted import Said, Script, ScriptedProvider, call, say, usage
from agentlab.testing.storage import StorageContract
from agentlab.testing.verify import Verified, verify

__all__ = [
    "Faulty",
    "ProviderContract",
    "Said",
    "Script",
    "ScriptedProvider",
    "StorageContract",
    "Verified",
    "call",
    "faults",
    "faulty",
    "say",
    "usage",
    "verify",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = only(__name__, __all__)

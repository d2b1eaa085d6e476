"""For users' tests and tutorials: a scripted model, failing providers, and the contracts of providers and storages as tests.

May import everything; nothing in agentlab imports it.
"""

from typing import TYPE_CHECKING

from agentlab._internal.lazy import only
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

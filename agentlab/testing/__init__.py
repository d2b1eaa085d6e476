"""For users' tests and tutorials: a scripted model, failing providers, and contracts as tests. Nothing in agentlab imports it.

May import: everything.

    scripted      a model that answers from a script
    faulty        injects faults into requests
    faults        the faults
    fault_bodies  the faults that damage a body
    provider      the contract of a provider
    storage       the contract of a storage
    verify        runs a contract without pytest
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

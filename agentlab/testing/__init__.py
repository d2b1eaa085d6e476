"""For users' tests and tutorials: a scripted model, failing providers, and contracts as tests. No other package imports it.

May import: everything.

    scripted      a model that answers from a script
    faulty        injects faults into requests
    faults        all faults
    fault_bodies  the base of faults, and the faults that damage a body
    contracts     the tests that every provider, and every storage, has to pass
"""

from typing import TYPE_CHECKING

from agentlab._internal.lazy import module_hooks
from agentlab.testing import faults
from agentlab.testing.contracts import ProviderContract, StorageContract, Verified, verify
from agentlab.testing.faulty import Faulty, faulty
from agentlab.testing.scripted import Said, Script, ScriptedProvider, call, say, usage

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
    __getattr__, __dir__ = module_hooks(__name__, __all__)

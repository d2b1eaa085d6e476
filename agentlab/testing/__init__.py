"""For tests and tutorials of users: a scripted model, failing providers, recordings in pytest, contracts. No other package imports it.

May import: everything.

    scripted         a model that answers from a script
    fault_transport  injects faults into requests
    faults           all faults
    fault_bodies     the base of faults, and the faults that damage a body
    pytest_plugin    the marker `agentlab_replay`: tests on recordings
    contracts        the tests that every provider, and every storage, has to pass
"""

from typing import TYPE_CHECKING

from agentlab._internal.lazy import module_hooks

if TYPE_CHECKING:
    from agentlab.testing import faults
    from agentlab.testing.contracts import ProviderContract, StorageContract, Verified, verify
    from agentlab.testing.fault_transport import Faulty, faulty
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

_PLACES = {  # imported when first used: every pytest imports this package, since its plugin is in it
    **dict.fromkeys(("ProviderContract", "StorageContract", "Verified", "verify"), "agentlab.testing.contracts"),
    **dict.fromkeys(("Faulty", "faulty"), "agentlab.testing.fault_transport"),
    "faults": "agentlab.testing.faults",
    **dict.fromkeys(("Said", "Script", "ScriptedProvider", "call", "say", "usage"), "agentlab.testing.scripted"),
}

if not TYPE_CHECKING:
    __getattr__, __dir__ = module_hooks(__name__, __all__, _PLACES)

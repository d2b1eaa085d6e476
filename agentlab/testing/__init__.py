"""For tests and tutorials of users: a scripted model, failing providers, recordings in pytest, contracts. No other package imports it.

May import: everything.

    scripted         a model that answers from a script
    fault_transport  injects faults into requests
    faults           all faults
    fault_bodies     the base of faults, and the faults that damage a body
    pytest_plugin    the marker `agentlab_replay`: tests on recordings
    contracts        the tests that every provider, and every storage, has to pass
"""

from importlib import import_module
from typing import TYPE_CHECKING

from agentlab._internal.names import unknown_name_error

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
    **dict.fromkeys(("ProviderContract", "StorageContract", "Verified", "verify"), "contracts"),
    **dict.fromkeys(("Faulty", "faulty"), "fault_transport"),
    **dict.fromkeys(("Said", "Script", "ScriptedProvider", "call", "say", "usage"), "scripted"),
}

if not TYPE_CHECKING:

    def __getattr__(name):
        if name not in __all__:
            raise unknown_name_error(__name__, name, __all__)
        if name == "faults":
            return import_module("agentlab.testing.faults")
        return getattr(import_module(f"agentlab.testing.{_PLACES[name]}"), name)

    def __dir__():
        return __all__

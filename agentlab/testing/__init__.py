"""For tests and tutorials: a model that says what it was told to say, providers that fail as they are told to, and what a place for
runs has to fulfil. Nothing in agentlab imports this."""

from agentlab.testing import faults
from agentlab.testing.faulty import Faulty, faulty
from agentlab.testing.scripted import Said, Script, ScriptedProvider, call, say, usage
from agentlab.testing.storage import StorageContract

__all__ = ["Faulty", "Said", "Script", "ScriptedProvider", "StorageContract", "call", "faults", "faulty", "say", "usage"]

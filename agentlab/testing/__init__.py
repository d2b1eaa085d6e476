"""For tests and tutorials: a model that says what it was told to say, and what a place for runs has to fulfil. Nothing in agentlab
imports this."""

from agentlab.testing.scripted import Said, Script, ScriptedProvider, call, say, usage
from agentlab.testing.storage import StorageContract

__all__ = ["Said", "Script", "ScriptedProvider", "StorageContract", "call", "say", "usage"]

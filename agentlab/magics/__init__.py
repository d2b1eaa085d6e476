"""`%load_ext agentlab`: the cell magic `%%agent`, models completed by Tab, tables without formulas.

The only place that imports IPython's magics. Loading the extension is what registers them: `import agentlab` changes
nothing in anybody's IPython.
"""

from __future__ import annotations

from typing import Any

from agentlab.magics import completion, tables
from agentlab.magics.agent_magic import NAME, agent_cell


def load(shell: Any) -> None:
    """Register all of it; twice is as good as once."""
    shell.register_magic_function(agent_cell(shell), "cell", NAME)
    completion.register(shell)
    tables.register(shell)


def unload(shell: Any) -> None:
    """Take it away again."""
    shell.magics_manager.magics["cell"].pop(NAME, None)
    completion.unregister(shell)
    tables.unregister(shell)

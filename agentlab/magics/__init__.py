"""`%load_ext agentlab`: the cell magic `%%agent`, and models completed by Tab. The only place that imports IPython's magics.

Loading the extension is what registers both: `import agentlab` changes nothing in anybody's IPython.
"""

from __future__ import annotations

from typing import Any

from agentlab.magics import completion
from agentlab.magics.agent_magic import NAME, agent_cell


def load(shell: Any) -> None:
    """Register the magic and the completion; twice is as good as once."""
    shell.register_magic_function(agent_cell(shell), "cell", NAME)
    completion.register(shell)


def unload(shell: Any) -> None:
    """Take both away again."""
    shell.magics_manager.magics["cell"].pop(NAME, None)
    completion.unregister(shell)

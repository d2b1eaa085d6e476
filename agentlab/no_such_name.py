"""What a module raises for a name that it has not: the nearest one that it has, and in IPython without lines of agentlab's own.

Nothing of agentlab is imported here until it is shown: modules ask for this while they are imported themselves.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from importlib import import_module


def no_such_name(module: str, name: str, known: Sequence[str]) -> AttributeError:
    """The error for `module.name`, where `known` are the names that there are."""
    near = difflib.get_close_matches(name, known, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    there = f"It has: {', '.join(known)}." if len(known) <= 30 else f"`dir({module})` lists what it has."
    error = AttributeError(f"{module} has no name {name!r}.{hint} {there}")
    error._render_traceback_ = lambda: import_module("agentlab.short_traceback").rendered(error)  # type: ignore[attr-defined]
    return error

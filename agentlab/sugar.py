"""Methods of a value that a higher module implements, such as `result.to_frame()`.

The module is named at the call and imported then. So no module imports a higher one, and `import agentlab` stays light: the first frame
loads pandas, the first panel ipywidgets.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


def call(target: str, *args: Any, **kwargs: Any) -> Any:
    """Call `"module:function"` with the given arguments."""
    module, _, name = target.partition(":")
    return getattr(import_module(module), name)(*args, **kwargs)

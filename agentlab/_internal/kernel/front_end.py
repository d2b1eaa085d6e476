"""Detects a live page. The environment variable AGENTLAB_FRONTEND (`widgets` or `none`) overrides the detection."""

from __future__ import annotations

import os
import sys
from typing import Any

VARIABLE = "AGENTLAB_FRONTEND"


def is_present() -> bool:
    """True if this code runs in a notebook whose page can show widgets and send back clicks.

    A page lets the kernel ask for input and says so in each request (`allow_stdin`); programs that execute notebooks without a page
    (nbclient, nbval, papermill, nbconvert) do not. Messages of widgets only come from a page. Voila executes as nbclient does, and
    shows a page afterwards. A terminal attached to a kernel (`jupyter console`) looks like a page: use the override.
    """
    wish = os.environ.get(VARIABLE, "")
    if wish not in ("", "none", "widgets"):
        raise ValueError(f"{VARIABLE}={wish!r}: set it to 'widgets' or 'none', or leave it unset for automatic detection.")
    return wish == "widgets" if wish else _detected()


def _detected() -> bool:
    kernel = running_kernel()
    if kernel is None or "PYTEST_CURRENT_TEST" in os.environ:  # a script, a terminal, or pytest started from a notebook
        return False
    if "google.colab" in sys.modules or os.environ.get("SERVER_SOFTWARE", "").startswith("voila/"):
        return True
    try:
        request = kernel.get_parent("shell")
    except LookupError:  # ipykernel 7.0, called from a thread
        return False
    if request.get("header", {}).get("msg_type") in ("comm_open", "comm_msg"):
        return True
    return bool(request.get("content", {}).get("allow_stdin", False))


def running_kernel() -> Any | None:
    """The ipykernel of this process, without importing ipykernel."""
    kernel_class = getattr(sys.modules.get("ipykernel.kernelbase"), "Kernel", None)
    return kernel_class.instance() if kernel_class is not None and kernel_class.initialized() else None

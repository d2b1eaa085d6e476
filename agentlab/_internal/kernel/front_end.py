"""Is there anybody to click? One function decides; the environment variable AGENTLAB_FRONTEND (`widgets` or `none`) overrides it."""

from __future__ import annotations

import os
import sys
from typing import Any

from agentlab.errors import ConfigurationError

VARIABLE = "AGENTLAB_FRONTEND"


def is_present() -> bool:
    """Whether this code runs in a notebook whose page can show widgets and send back what a person does.

    A page lets the kernel ask its person for input and says so in each request (`allow_stdin`); what executes notebooks without a
    page (nbclient, nbval, papermill, nbconvert) does not. A message of a widget can only come from a page. Voila executes as nbclient
    does, and shows a page afterwards. A terminal attached to a kernel (`jupyter console`) looks like a page: use the override.
    """
    wish = os.environ.get(VARIABLE, "")
    if wish not in ("", "none", "widgets"):
        raise ConfigurationError(f"{VARIABLE}={wish!r}: set it to 'widgets' or 'none', or leave it out to let agentlab find out.")
    return wish == "widgets" if wish else _found_out()


def _found_out() -> bool:
    kernel = _running_kernel()
    if kernel is None or "PYTEST_CURRENT_TEST" in os.environ:  # a script, a terminal; pytest started from a notebook
        return False
    if "google.colab" in sys.modules or os.environ.get("SERVER_SOFTWARE", "").startswith("voila/"):
        return True
    try:
        request = kernel.get_parent("shell")
    except LookupError:  # ipykernel 7.0, asked from a thread
        return False
    if request.get("header", {}).get("msg_type") in ("comm_open", "comm_msg"):
        return True
    return bool(request.get("content", {}).get("allow_stdin", False))


def _running_kernel() -> Any | None:
    """The ipykernel of this process, without importing it where nobody has."""
    kernel_class = getattr(sys.modules.get("ipykernel.kernelbase"), "Kernel", None)
    return kernel_class.instance() if kernel_class is not None and kernel_class.initialized() else None

"""Is there anybody to click? One function decides; the environment variable AGENTLAB_FRONTEND (`widgets` or `none`) overrides it."""

from __future__ import annotations

import os
import sys
from typing import Any

from agentlab.errors import ConfigurationError

VARIABLE = "AGENTLAB_FRONTEND"


def is_present() -> bool:
    """Whether this code runs in a notebook whose page can show widgets and send back what a person does.

    A page lets the kernel ask its person for input and says so in each request (`allow_stdin`); what executes notebooks without a page
    (nbclient, nbval, papermill, nbconvert) does not. A message of a widget comes from a page in any case.
    """
    wish = os.environ.get(VARIABLE, "")
    if wish not in ("", "none", "widgets"):
        raise ConfigurationError(f"{VARIABLE}={wish!r}: set it to 'widgets' or 'none', or leave it out to let agentlab find out.")
    return wish == "widgets" if wish else _request_comes_from_a_page()


def _request_comes_from_a_page() -> bool:
    ipython = sys.modules.get("IPython")
    kernel: Any = getattr(ipython.get_ipython(), "kernel", None) if ipython is not None else None
    if kernel is None:
        return False
    request = kernel.get_parent("shell") or {}
    if str(request.get("header", {}).get("msg_type", "")).startswith("comm_"):
        return True
    return bool(request.get("content", {}).get("allow_stdin"))

"""Is there anybody to click? One function decides; the environment variable AGENTLAB_FRONTEND (`widgets` or `none`) overrides it."""

from __future__ import annotations

import os

from agentlab.errors import ConfigurationError

VARIABLE = "AGENTLAB_FRONTEND"


def is_present() -> bool:
    """Whether this code runs in a notebook whose page can show widgets and send back what a person does."""
    wish = os.environ.get(VARIABLE, "")
    if wish not in ("", "none", "widgets"):
        raise ConfigurationError(f"{VARIABLE}={wish!r}: set it to 'widgets' or 'none', or leave it out to let agentlab find out.")
    return wish == "widgets"

"""The test harness itself."""

from __future__ import annotations

import pytest

from .jupyter import JupyterLab, JupyterProblemError


class Ends(JupyterLab):
    """A server that ends at once."""

    def _arguments(self) -> list[str]:
        return ["-c", "raise SystemExit('the port is not free')"]


def test_a_server_that_cannot_start_says_why() -> None:
    with pytest.raises(JupyterProblemError, match="JupyterLab ended with code 1; its log:\nthe port is not free"), Ends():
        pass

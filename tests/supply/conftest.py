"""The wheel, built once for the tests of this folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.supply.wheels import build_wheel


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built wheel."""
    return build_wheel(tmp_path_factory.mktemp("wheel"))

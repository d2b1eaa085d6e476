"""The wheels of both distributions, built once for the tests of this folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.supply.wheels import build_wheels


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The wheels of both distributions, by name."""
    return build_wheels(tmp_path_factory.mktemp("wheels"))

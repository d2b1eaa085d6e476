"""Fixtures of the experiments' tests."""

from __future__ import annotations

import concurrent.futures
import multiprocessing
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="package", autouse=True)
def _importable() -> Any:
    """Let processes that are started here import the tests' modules."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[1]), str(Path(__file__).parents[2]), before or ""])
    multiprocessing.set_forkserver_preload(
        ["experiments.parts", "distributed"]
    )  # a worker takes longer to import them than to work
    yield
    os.environ.pop("PYTHONPATH") if before is None else os.environ.update(PYTHONPATH=before)


@pytest.fixture(scope="package")
def two_processes() -> Iterator[concurrent.futures.ProcessPoolExecutor]:
    """Two workers for all tests that do not kill them: starting one takes longer than such a test."""
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("forkserver")) as executor:
        yield executor

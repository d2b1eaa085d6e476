"""Real kernels: one per test where a file does not say otherwise, once for each Python of AGENTLAB_KERNEL_PYTHONS (see kernel.py)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from end_and_forget import END_AND_FORGET

from .front_end import FrontEnd
from .kernel import KernelProblemError, LiveKernel, ipykernel_version, kernel_pythons

HERE = Path(__file__).parent
REPOSITORY = HERE.parent.parent


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this folder, so that `-m "not kernel"` skips it."""
    for item in items:
        if item.nodeid.startswith("tests/kernel/"):
            item.add_marker(pytest.mark.kernel)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Repeat each test that uses `kernel_python` for each Python, with its version of ipykernel as the id."""
    if "kernel_python" in metafunc.fixturenames:
        pythons = kernel_pythons()
        metafunc.parametrize("kernel_python", pythons, ids=map(ipykernel_version, pythons), scope="session")


@pytest.fixture
def kernel(kernel_python: str) -> Iterator[LiveKernel]:
    """A fresh kernel that can import agentlab; its front end, if a test wants one, is simulated."""
    with started(kernel_python) as live:
        yield live


def started(python: str) -> LiveKernel:
    """A kernel that can import agentlab, for a `with` block."""
    path = os.pathsep.join(filter(None, [str(REPOSITORY), os.environ.get("PYTHONPATH")]))
    return LiveKernel(python, {"PYTHONPATH": path})


TIDY_UP = f"""
{END_AND_FORGET}
import os, tempfile
os.environ.pop("AGENTLAB_FRONTEND", None)
os.chdir(tempfile.mkdtemp(dir="."))
"""


@pytest.fixture(scope="package")
def kernels(kernel_python: str) -> Iterator[list[LiveKernel]]:
    """The kernel of all tests that leave it in order, once it is started; one that is in disorder is taken out."""
    kept: list[LiveKernel] = []
    yield kept
    for kernel in kept:
        kernel.__exit__(None, None, None)


@pytest.fixture
def tidied_kernel(kernels: list[LiveKernel], kernel_python: str) -> Iterator[LiveKernel]:
    """A kernel without names, widgets or runs, in an empty folder: to start one takes longer than most tests."""
    if not kernels:
        kernels.append(started(kernel_python).__enter__())
    (kernel,) = kernels
    yield kernel
    kernel.listeners.clear()
    try:
        kernel.execute(TIDY_UP)
        in_order = kernel.value("__left") == []
    except KernelProblemError:
        in_order = False
    if not in_order:
        kernels.remove(kernel)
        kernel.__exit__(None, None, None)


@pytest.fixture(params=["main", "subshell"])
def front_end(kernel: LiveKernel, request: pytest.FixtureRequest) -> FrontEnd:
    """A simulated page, once with its messages on the main shell and once on a subshell."""
    return FrontEnd(kernel, request.param)

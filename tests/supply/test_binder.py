"""Binder's input is consistent: its Python, its requirements among the pins, and the badge's notebook."""

from __future__ import annotations

import re
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from tests.supply import binder, lowest
from tests.supply.declared import CONSTRAINTS, REPOSITORY, declared, name_of, pins

AS_PINNED = Path(sys.prefix) != lowest.ENVIRONMENT
COPY = "COPY --chown=0:0 src/ ${REPO_DIR}/\n"
RUN = 'RUN ${KERNEL_PYTHON_PREFIX}/bin/pip install --no-cache-dir -r "binder/requirements.txt"\n'
SAID = "Building conda environment for python=3.11\n"


def lines() -> list[str]:
    """The requirements that Binder installs, without their comments."""
    return [line.split(" #")[0].strip() for line in (REPOSITORY / binder.REQUIREMENTS).read_text().splitlines() if line.strip()]


def test_binders_python_can_run_agentlab() -> None:
    wanted = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["requires-python"]
    assert (REPOSITORY / "binder" / "runtime.txt").read_text().strip() == f"python-{binder.PYTHON}"
    assert binder.PYTHON in SpecifierSet(wanted)


def test_its_requirements_are_ours_at_the_pinned_versions() -> None:
    constraints, own, *more = lines()
    assert (REPOSITORY / "binder" / constraints.removeprefix("-c ")).resolve() == CONSTRAINTS  # pip reads it relative to the file
    assert own == ".[lab]"
    assert "notebook" in more  # Binder's own is limited to an older Lab, and ours would break it
    assert not {name_of(one) for one in [*declared(["lab"]), *more]} - set(pins(CONSTRAINTS))


@pytest.mark.skipif(not AS_PINNED, reason="the lowest versions are not those that Binder has")
def test_the_pins_are_compatible() -> None:
    pinned = pins(CONSTRAINTS)
    todo = [Requirement(one) for one in [*declared(["lab"]).values(), *lines()[2:]]]
    seen: set[tuple[str, str]] = set()
    while todo:
        one = todo.pop()
        name = name_of(one.name)
        assert name in pinned, f"{one} is not pinned"
        assert one.specifier.contains(pinned[name], prereleases=True), f"{one}, and {name} is pinned to {pinned[name]}"
        for extra in {"", *one.extras}:
            if (name, extra) not in seen:
                seen.add((name, extra))
                below = map(Requirement, metadata.requires(name) or ())
                todo += [needed for needed in below if needed.marker is None or needed.marker.evaluate({"extra": extra})]
    assert len(seen) > 50


def test_the_badge_opens_an_existing_notebook() -> None:
    found = re.search(
        r"\(https://mybinder\.org/v2/gh/agentlab-jupyter/agentlab/main\?(\S+)\)", (REPOSITORY / "README.md").read_text()
    )
    assert found is not None
    (path,) = parse_qs(found.group(1))["urlpath"]
    assert (REPOSITORY / urlsplit(path).path.removeprefix("lab/tree/")).is_file()


@pytest.mark.parametrize(
    ("output", "messages"),
    [
        pytest.param(SAID + COPY + RUN, [], id="as it should be"),
        pytest.param(SAID.replace("3.11", "3.10") + COPY + RUN, ["python 3.10 would"], id="another python"),
        pytest.param(SAID + RUN + COPY, ["before the repository"], id="too early"),
        pytest.param(SAID + COPY, ["not be installed", "before the repository"], id="no requirements"),
        pytest.param("", ["python None would", "not be installed", "before the repository"], id="nothing"),
    ],
)
def test_the_output_of_repo2docker_is_parsed(output: str, messages: list[str]) -> None:
    found = binder.faults(binder.read(output))
    assert len(found) == len(messages)
    assert all(part in fault for part, fault in zip(messages, found, strict=True))


def test_the_packages_of_its_base_are_pins() -> None:
    place = "https://conda.example/conda-forge"
    lock = f"""@EXPLICIT
{place}/linux-64/openssl-3.5.4-h26f9b46_0.conda#0
{place}/linux-64/psutil-7.1.0-py311haee01d2_0.conda#1
{place}/noarch/jupyterhub-base-5.4.0-pyhc90fa1f_0.conda#2
{place}/noarch/typing_extensions-4.15.0-pyhcf101f3_0.conda#3
{place}/noarch/typing-extensions-4.15.0-h396c80c_0.conda#4
{place}/noarch/tzdata-2025b-h78e105d_0.conda#5
"""
    assert binder.base_of(lock) == ["jupyterhub==5.4.0", "psutil==7.1.0", "typing-extensions==4.15.0"]

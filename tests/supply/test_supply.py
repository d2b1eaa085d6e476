"""The pins match the installed versions, the lowest versions match the promise, and the audit reports what it knows."""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

import pytest

from tests.soak.table import show
from tests.supply import audit, lowest
from tests.supply.declared import CONSTRAINTS, OF_A_USER, REPOSITORY, declared, lower_bound, name_of, pins

OWN = ("agentlab-jupyter", "pip", "setuptools", "wheel")


def is_newer(version: str, bound: str) -> bool:
    """True if a version is at least the bound, judged by its numbers."""
    from packaging.version import Version

    return Version(version) >= Version(bound)


def test_every_installed_package_is_pinned_once_at_its_version() -> None:
    pinned = pins(lowest.LOCK if Path(sys.prefix) == lowest.ENVIRONMENT else CONSTRAINTS)
    here = {name_of(one.metadata["Name"]): one for one in metadata.distributions()}
    others = {name: one.version for name, one in here.items() if name not in OWN and pinned.get(name) != one.version}
    no_licence = [
        name
        for name, one in here.items()
        if name not in OWN
        and not (one.metadata.get("License-Expression") or one.metadata.get("License"))
        and not any(line.startswith("License ::") for line in one.metadata.get_all("Classifier") or ())
        and not any("licen" in str(file).lower() for file in one.files or ())
    ]
    rows = [
        ("installed", len(here)),
        ("pinned", len(pinned)),
        ("installed in another version than pinned, or not pinned", len(others)),
        ("with no licence in its metadata", len(no_licence)),
    ]
    show("supply", ["what", "packages"], rows)
    assert not others
    assert not no_licence


def test_the_lowest_versions_match_the_declared_bounds() -> None:
    locked = pins(lowest.LOCK)
    for name, requirement in declared(OF_A_USER).items():
        bound = lower_bound(requirement)
        assert bound is not None, f"{requirement} has no lower bound"
        if name not in lowest.NOT_NEEDED:
            assert is_newer(locked[name], bound)
            assert locked[name].startswith(bound), f"{requirement} is tested from {locked[name]} on only: make lowest ARGS=lock"


def lowest_python() -> str:
    """The first release that `requires-python` allows, in full: 3.11 means 3.11.0."""
    bound = lower_bound(tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["requires-python"])
    assert bound is not None
    return ".".join([*bound.split("."), "0", "0"][:3])


def too_new_for(python: str, packages: Iterable[tuple[str, str, str | None]]) -> list[str]:
    """The packages, each with its version and its Requires-Python, that do not install on this Python."""
    from packaging.specifiers import SpecifierSet

    return [
        f"{name} {version} needs Python {wanted}"
        for name, version, wanted in packages
        if wanted and not SpecifierSet(wanted).contains(python)
    ]


def test_every_pin_installs_on_the_lowest_supported_python() -> None:
    """Debian's is 3.11.2: a pin that needs a later one makes `make demo` end in pip's error."""
    here = [(one.metadata["Name"], one.version, one.metadata.get("Requires-Python")) for one in metadata.distributions()]
    assert too_new_for(lowest_python(), [one for one in here if name_of(one[0]) not in OWN]) == []


@pytest.mark.parametrize(
    ("wanted", "fits"),
    [(">=3.11.5", False), (">=3.12", False), (">=3.11", True), (">=3.9,!=3.9.0", True), ("<3.11", False), (None, True)],
)
def test_a_packages_requires_python_is_read(wanted: str | None, fits: bool) -> None:
    assert (too_new_for("3.11.0", [("a", "1", wanted)]) == []) is fits


@pytest.mark.parametrize("text", ["a>=1\n", "a==1\nA==2\n", "a-b==1\na_b==1\n", "a\n"])
def test_lines_without_a_pin_and_duplicates_are_refused(tmp_path, text: str) -> None:
    (tmp_path / "pins.txt").write_text(text)
    with pytest.raises(ValueError, match=r"pins nothing|twice"):
        pins(tmp_path / "pins.txt")


def answer(*dependencies: dict[str, object]) -> audit.Answer:
    """pip-audit's JSON, synthetic: written after its documentation."""
    return audit.read(json.dumps({"dependencies": dependencies, "fixes": []}))


FAULT = {"id": "PYSEC-2020-96", "aliases": ["CVE-2020-1747"], "fix_versions": ["5.3.1"], "description": "…"}
FAULTY = {"name": "pyyaml", "version": "5.3", "vulns": [FAULT]}
SOUND = {"name": "httpx", "version": "0.28.1", "vulns": []}
SKIPPED = {"name": "httpx", "skip_reason": "Dependency not found on PyPI and could not be audited: httpx (0.28.1)"}


@pytest.mark.parametrize(
    ("known", "found", "must", "status", "message"),
    [
        pytest.param(answer(FAULTY), answer(SOUND), False, 0, "1 pinned versions were looked up: 0 known", id="sound"),
        pytest.param(answer(FAULTY), answer(SOUND, FAULTY), False, 1, "CVE-2020-1747; mended in 5.3.1", id="a fault"),
        pytest.param(answer(SKIPPED), None, False, 0, "NOT AUDITED", id="no database"),
        pytest.param(None, None, False, 0, "NOT AUDITED", id="no answer"),
        pytest.param(answer(SKIPPED), None, True, 2, "NOT AUDITED", id="no database where there must be one"),
        pytest.param(answer(FAULTY), None, False, 2, "NOT AUDITED", id="the database became unavailable"),
        pytest.param(answer(FAULTY), answer(SKIPPED), True, 2, "1 could not be looked up: httpx", id="one package is unknown"),
    ],
)
def test_the_audit_reports_what_it_knows(known, found, must: bool, status: int, message: str) -> None:
    code, verdict_text = audit.verdict(known, found, must_look_up=must)
    assert code == status
    assert message in verdict_text


def test_an_invalid_report_is_refused() -> None:
    for text in ("", "{}", "[]", '{"dependencies": [{}]}'):
        with pytest.raises(ValueError):  # noqa: PT011  json's own, or ours
            audit.read(text)

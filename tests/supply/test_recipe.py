"""The conda recipe has the version and the requirements of pyproject.toml."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

from tests.supply.declared import REPOSITORY

CONDA_NAMES = {"matplotlib": "matplotlib-base"}
"""Packages whose name on conda-forge is another one; this one leaves out the graphical toolkits."""


@pytest.fixture(scope="module")
def recipe() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((REPOSITORY / "release" / "conda" / "recipe.yaml").read_text())
    return found


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    return found


def as_conda(requirements: list[str]) -> set[tuple[str, frozenset[str]]]:
    """The names and the bounds of requirements, without their markers."""
    return {(CONDA_NAMES.get(one.name, one.name), frozenset(map(str, one.specifier))) for one in map(Requirement, requirements)}


def test_the_requirements_are_those_of_pyproject(recipe: dict[str, Any], project: dict[str, Any]) -> None:
    split = [one.partition(" ") for one in recipe["requirements"]["run"] if not one.startswith("python ")]
    assert {(name, frozenset(bounds.split(","))) for name, _, bounds in split} == as_conda(project["dependencies"])
    assert recipe["package"]["name"] == project["name"]


def test_version_python_and_addresses_are_those_of_pyproject(recipe: dict[str, Any], project: dict[str, Any]) -> None:
    assert recipe["context"] == {
        "version": project["version"],
        "python_min": project["requires-python"].removeprefix(">="),
    }
    about, urls = recipe["about"], project["urls"]
    assert (about["homepage"], about["repository"], about["documentation"]) == (
        urls["Homepage"],
        urls["Source"],
        urls["Documentation"],
    )
    assert about["license"] == project["license"]

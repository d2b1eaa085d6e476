"""Every public name has an example, and the example gives the documented output."""

from __future__ import annotations

import doctest
import re
import tempfile
from pathlib import Path
from typing import Any

import pytest

import agentlab as lab

from .examples import REPOSITORY, Notebook, begun, examples_of, failures, public, setup_source

EVERYTHING: dict[str, Any] = public().everything()


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """A notebook at the root of the repository."""
    monkeypatch.chdir(REPOSITORY)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with Notebook() as opened:
        yield opened


@pytest.mark.parametrize("name", EVERYTHING)
def test_an_example_gives_its_documented_output(name: str, notebook: Notebook) -> None:
    examples = examples_of(EVERYTHING[name])
    assert examples, (
        f"agentlab.{name} has no example: write one below `Example:` in its docstring (or docs/public_names.py: INNER)."
    )
    assert any(example.want.strip() or example.exc_msg for example in examples), "it shows nothing"
    assert not failures(begun(notebook, examples), notebook)


def test_every_public_name_has_an_example() -> None:
    modules = {name for name in lab.__all__ if type(getattr(lab, name)) is type(lab)}
    assert set(lab.__all__) - modules <= set(EVERYTHING)
    assert {name.partition(".")[0] for name in EVERYTHING if name[0].islower() and "." in name} == modules
    assert len(EVERYTHING) > 300


def test_the_names_kept_out_of_the_reference_exist() -> None:
    """A name on the list of names outside the reference has to be removed from it when it is renamed or deleted."""
    names = public().public_names()
    for owner, inner in public().INNER.items():
        assert [name for name in inner if not hasattr(names[owner], name)] == [], owner


@pytest.mark.parametrize("page", sorted((REPOSITORY / "docs").rglob("*.md")), ids=lambda page: page.stem)
def test_code_on_a_page_is_valid_python(page: Path) -> None:
    for code in re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
        compile(code, page.name, "exec", flags=0x2000)  # with await at the top level


def test_a_wrong_example_is_detected(notebook: Notebook) -> None:
    notebook.run(setup_source())
    for wrong in (
        ">>> 1 + 1\n3",
        ">>> int('x')\n1",
        ">>> 1 + 1",
        ">>> 2\nTraceback (most recent call last):\n    ...\nValueError: no",
    ):
        assert failures(doctest.DocTestParser().get_examples(wrong + "\n"), notebook), wrong
    right = ">>> (await brief.run('?')).text\n'Paris.'\n>>> int('x')\nTraceback (most recent call last):\n    ...\nValueError: inv...\n"
    assert not failures(doctest.DocTestParser().get_examples(right), notebook)

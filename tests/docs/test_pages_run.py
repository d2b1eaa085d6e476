"""The code of the landing page, the first page, the recipes and the gallery runs from top to bottom, as in a notebook."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import agentlab as lab

from .examples import REPOSITORY, Notebook

PAGES = ("index", "start/index", "howto/recipes")


def blocks_of(page: str) -> list[str]:
    """The Python blocks of a page in docs/."""
    return re.findall(
        r"^```python\n(.*?)^```", (REPOSITORY / "docs" / f"{page}.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )


@pytest.mark.parametrize("page", PAGES)
def test_each_block_of_the_page_runs(page: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(REPOSITORY)
    monkeypatch.setenv("AGENTLAB_FRONTEND", "none")
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    blocks = blocks_of(page)
    assert len(blocks) >= 2
    with Notebook() as notebook:
        for block in blocks:
            notebook.run(block)
            for name in ("result", "run"):  # an error does not raise: it is the run's result
                assert "error" not in str(getattr(notebook.names.get(name), "stop_reason", "")), block
        assert isinstance(notebook.names["result"], lab.RunResult)


def test_the_gallery_has_every_plot() -> None:
    """The build draws it: `test_site` fails where a block does."""
    shown = set(re.findall(r"lab\.plots\.(\w+)", (REPOSITORY / "docs" / "gallery.md").read_text(encoding="utf-8")))
    plots = {name for name in lab.plots.__all__ if name.islower() and not name.endswith("_data")}
    assert plots <= shown

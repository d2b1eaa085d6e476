"""Draws the plots of a page: below each Python block that ends in a plot, the page shows the picture that the code gives.

A page asks for it with `draws: true` in its front matter. Its blocks run at the build, at the root of the repository, as the cells of
one notebook: `await` works at the top level. An error in a block is a warning of the build, which `make docs` turns into a failure.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import os
import shutil
from collections.abc import Iterator
from contextlib import chdir
from html import escape
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]


class Cells:
    """A namespace and an event loop for the blocks of one page."""

    def __init__(self) -> None:
        self._names: dict[str, Any] = {"__name__": "__main__"}
        self._loop = asyncio.Runner()

    def __enter__(self) -> Cells:
        return self

    def __exit__(self, *of_an_error: object) -> None:
        self._loop.close()

    def run(self, source: str) -> Any:
        """Execute a block, and return the value of its last expression; None if its last statement is none."""
        tree = ast.parse(source)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        self._evaluate(tree, "exec")
        return self._evaluate(ast.Expression(last.value), "eval") if isinstance(last, ast.Expr) else None

    def _evaluate(self, tree: Any, mode: str) -> Any:
        code = compile(tree, "<a block of the page>", mode, ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        value = eval(code, self._names)  # noqa: S307  a page of this repository
        return self._loop.run(value) if inspect.iscoroutine(value) and code.co_flags & inspect.CO_COROUTINE else value


def pictures(blocks: list[str]) -> Iterator[tuple[int, bytes, str, int]]:
    """Run the blocks, and yield for each plot the index of its block, a PNG, its description in words, and its width on the page."""
    os.environ["AGENTLAB_FRONTEND"] = "none"
    with chdir(REPOSITORY), Cells() as cells:
        for index, block in enumerate(blocks):
            value = cells.run(block)
            figure = getattr(value, "figure", value)
            if hasattr(figure, "png"):
                yield index, figure.png(), figure.alt, round(figure.get_figwidth() * figure.dpi)


def setup(app: Any) -> dict[str, bool]:
    """Draw while pages are read, and copy the pictures to the site at the end."""
    from docutils import nodes
    from sphinx.util import logging

    logger = logging.getLogger(__name__)
    folder = Path(app.doctreedir, "drawn")

    def draw(app: Any, doctree: Any) -> None:
        page = app.env.docname
        if not app.env.metadata[page].get("draws"):
            return
        blocks = [block for block in doctree.findall(nodes.literal_block) if block.get("language") == "python"]
        name, up = page.rpartition("/")[2], "../" * page.count("/")
        folder.mkdir(parents=True, exist_ok=True)
        try:
            for index, png, alt, width in pictures([block.astext() for block in blocks]):
                (folder / f"{name}-{index}.png").write_bytes(png)
                file = f"{up}_images/{name}-{index}.png"
                image = (
                    f'<a href="{file}"><img class="drawn" src="{file}" alt="{escape(alt)}" width="{width}" loading="lazy"></a>'
                )
                blocks[index].parent.insert(blocks[index].parent.index(blocks[index]) + 1, nodes.raw("", image, format="html"))
        except Exception as error:  # a broken example is reported as such, with the page
            logger.warning("a block of Python raises %s: %s", type(error).__name__, error, location=page)

    def copy(app: Any, error: Exception | None) -> None:
        if error is None and app.builder.format == "html" and folder.exists():
            shutil.copytree(folder, Path(app.outdir, "_images"), dirs_exist_ok=True)

    app.connect("doctree-read", draw)
    app.connect("build-finished", copy)
    return {"parallel_read_safe": False, "parallel_write_safe": True}

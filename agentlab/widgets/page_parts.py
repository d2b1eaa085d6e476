"""Two controls of the page that ipywidgets has not: a slider that everybody can use, and a button that copies. Beside each stands
what does the same where the page has no anywidget: a number box, and the text itself."""

from __future__ import annotations

import functools
from pathlib import Path

import anywidget
import traitlets

HERE = Path(__file__).parent


@functools.cache
def _script(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")


class RangeSlider(anywidget.AnyWidget):
    """A slider over a list of values, of which `texts` are the words; `place` is the chosen one, from 0. See range_slider.js."""

    _esm = traitlets.Unicode().tag(sync=True)
    label = traitlets.Unicode().tag(sync=True)
    texts = traitlets.List(traitlets.Unicode()).tag(sync=True)
    place = traitlets.Int().tag(sync=True)

    @traitlets.default("_esm")
    def _its_script(self) -> str:
        return _script("range_slider.js")

    @traitlets.validate("place")
    def _within(self, proposal: traitlets.Bunch) -> int:
        """What comes from the page is checked like anything else from outside."""
        return max(0, min(int(proposal["value"]), len(self.texts) - 1))


class CopyButton(anywidget.AnyWidget):
    """A button that puts `text` on the clipboard. See copy_button.js."""

    _esm = traitlets.Unicode().tag(sync=True)
    label = traitlets.Unicode("Copy as code").tag(sync=True)
    text = traitlets.Unicode().tag(sync=True)

    @traitlets.default("_esm")
    def _its_script(self) -> str:
        return _script("copy_button.js")

"""Soak tests show hundreds of runs and search what they show for texts: a picture's pixels hold none, and take most of the time."""

from __future__ import annotations

import base64

import pytest

from agentlab.plots.figure import PlotFigure

PIXEL = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")


@pytest.fixture(autouse=True)
def _no_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are made, but not rasterized; `displays.of_picture` draws each of them once, as SVG with its texts."""
    monkeypatch.setattr(PlotFigure, "png", lambda self, scale=1.0: PIXEL)
    monkeypatch.setattr("agentlab.notebook.explorer.figures.TradeOff._png", lambda self: PIXEL)

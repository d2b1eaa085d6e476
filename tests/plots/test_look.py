"""Contrast on dark and light, room for everything, the same bytes for the same data, and no pyplot."""

from __future__ import annotations

import base64
import io
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from nbclient import NotebookClient
from PIL import Image

import agentlab as lab
from agentlab import Budget, MaxTokensUsed
from agentlab.plots import PlotFigure, figure
from agentlab.plots.group_estimates import FILLS

from .builders import NA, looping, run_of, runs_of, steps_of

LIGHT, DARK = "#ffffff", "#111111"

# Contrast --------------------------------------------------------------------------------------------------------------------


def luminance(colour: str) -> float:
    """Relative luminance, WCAG 2.1."""
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted([luminance(one), luminance(other)])
    return (high + 0.05) / (low + 0.05)


def test_contrast_is_computed_as_in_wcag() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("background", [LIGHT, DARK])
def test_text_has_the_best_contrast_of_one_colour_on_both_backgrounds(background: str) -> None:
    best = contrast(LIGHT, DARK) ** 0.5  # of the colour in the middle

    assert contrast(figure.TEXT, background) >= 4.3
    assert contrast(figure.TEXT, background) == pytest.approx(best, rel=0.01)


@pytest.mark.parametrize("background", [LIGHT, DARK])
@pytest.mark.parametrize("colour", [*figure.COLOURS, *[colour for colour, _ in FILLS.values()]])
def test_lines_and_bars_are_legible_on_dark_and_light(colour: str, background: str) -> None:
    assert contrast(colour, background) >= 3.0


# Pictures --------------------------------------------------------------------------------------------------------------------


def everything() -> dict[str, PlotFigure]:
    """A picture of each kind with every possible element."""
    long = "provider-with-a-long-name:and-a-model-with-an-even-longer-one"
    steps = lab.frame(
        [
            run_of(looping((800, 200), "0.002", end=5), stop=MaxTokensUsed(9000), budget=Budget(max_tokens=6000, max_cost=0.02)),
            run_of(looping((700, 200), None), name=long, stop=MaxTokensUsed(9000), budget=Budget(max_tokens=6000, max_turns=7)),
            run_of(looping((None, None), None, end=2), name="three", budget=Budget(max_tokens=5000)),
        ]
    )
    runs = runs_of((long, True, "completed"), (long, False, "nudges_exhausted"), ("two", None, None))
    return {
        "tokens": lab.plots.tokens(steps).figure,
        "cost": lab.plots.cost(steps).figure,
        "curves": lab.plots.curves(steps),
        "stop_reasons": lab.plots.stop_reasons(runs).figure,
    }


@pytest.fixture(scope="module")
def pictures() -> dict[str, PlotFigure]:
    return everything()


@pytest.fixture(scope="module")
def pngs(pictures: dict[str, PlotFigure]) -> dict[str, bytes]:
    return {kind: picture.png() for kind, picture in pictures.items()}


KINDS = ["tokens", "cost", "curves", "stop_reasons"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_background_is_transparent(kind: str, pngs: dict[str, bytes]) -> None:
    picture = Image.open(io.BytesIO(pngs[kind])).convert("RGBA")
    alpha = picture.getchannel("A")

    assert alpha.getpixel((0, 0)) == 0
    clear = alpha.histogram()[0]
    assert clear > 0.7 * picture.width * picture.height
    assert alpha.getextrema()[1] == 255


@pytest.mark.parametrize("kind", KINDS)
def test_everything_stays_inside_the_picture_and_texts_do_not_overlap(kind: str, pictures: dict[str, PlotFigure]) -> None:
    figure = pictures[kind]
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    width, height = canvas.get_width_height()
    legends = [legend for legend in [*figure.legends, *[ax.get_legend() for ax in figure.axes]] if legend is not None]

    for artist in (*figure.axes, *legends):
        box = artist.get_tightbbox()
        assert box is not None
        assert box.x0 >= 0
        assert box.y0 >= 0
        assert box.x1 <= width + 1
        assert box.y1 <= height + 1
    for legend in legends:
        assert not any(legend.get_window_extent().overlaps(ax.get_window_extent()) for ax in figure.axes)
    for ax in figure.axes:
        boxes = [text.get_window_extent() for text in (*ax.texts, *ax.get_yticklabels()) if text.get_text().strip()]
        assert not any(one.overlaps(other) for place, one in enumerate(boxes) for other in boxes[place + 1 :])
        assert ax.get_window_extent().width > 0.33 * width * (1 if len(figure.axes) == 1 else 0.9)


@pytest.mark.parametrize("kind", ["tokens", "cost"])
def test_legible_at_640_by_360(kind: str, pictures: dict[str, PlotFigure], pngs: dict[str, bytes]) -> None:
    figure = pictures[kind]
    (ax,) = figure.axes

    assert Image.open(io.BytesIO(figure.png(scale=1))).size == (640, 360)
    assert Image.open(io.BytesIO(pngs[kind])).size == (1280, 720)
    texts = [*ax.get_xticklabels(), *ax.get_yticklabels(), *ax.get_legend().get_texts(), ax.xaxis.label, ax.yaxis.label]
    assert min(text.get_fontsize() for text in texts) >= 8.5


def test_the_same_data_give_the_same_bytes(pictures: dict[str, PlotFigure], pngs: dict[str, bytes]) -> None:
    # The names of runs are random, so two runs are not the same data; their drawings are equal.
    first, second = pictures, everything()

    for kind in KINDS:
        first[kind].png(scale=1)
        assert pngs[kind] == second[kind].png() == first[kind].png()
    other = lab.plots.tokens(steps_of(("one", [1, 2, 3]))).figure
    assert other.png(1) != lab.plots.tokens(steps_of(("one", [1, 2, 4]))).figure.png(1)


# Notebooks -------------------------------------------------------------------------------------------------------------------


def test_our_axes_show_their_figure() -> None:
    ax = lab.plots.tokens(steps_of(("one", [1, NA])))
    data, metadata = ax._repr_mimebundle_()  # type: ignore[attr-defined]

    assert isinstance(ax, Axes)
    assert base64.b64decode(data["image/png"]) == ax.figure.png()
    assert data["text/plain"] == ax.alt
    assert metadata == {"image/png": {"width": 640, "height": 360, "alt": ax.alt}}
    assert ax.figure.dpi == 100, "of the page, not of the picture"


def test_drawing_loads_no_pyplot() -> None:
    code = (
        "import sys, pandas as pd, agentlab as lab\n"
        "lab.plots.tokens(pd.DataFrame()).figure.png(), lab.plots.cost(pd.DataFrame()), lab.plots.curves(pd.DataFrame())\n"
        "lab.plots.stop_reasons(pd.DataFrame())._repr_mimebundle_()\n"
        "print([name for name in ('matplotlib.pyplot', 'ipywidgets', 'IPython') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"
    assert done.stderr == ""


CELLS = {
    "prepare": (
        "import pandas as pd, agentlab as lab\n"
        "steps = pd.DataFrame({'run_id': 'r', 'provider': 'p', 'step': [1, 2], 'cumulative_tokens': [1, 2],"
        " 'cumulative_cost_usd': [.1, .2]})"
    ),
    "axes": "lab.plots.tokens(steps)",
    "figure": "lab.plots.curves(steps)",
    "nothing": "_ = lab.plots.tokens(steps)",
    "pyplot": "import matplotlib.pyplot as plt\n%matplotlib inline",
    "axes, pyplot active": "lab.plots.tokens(steps)",
    "figure, pyplot active": "lab.plots.curves(steps)",
    "given axes": "figure, ax = plt.subplots()\n_ = lab.plots.tokens(steps, ax=ax)",
}


@pytest.mark.kernel
@pytest.mark.filterwarnings("ignore:Proactor event loop|zmq")
def test_a_notebook_shows_each_plot_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS.values()])
    NotebookClient(notebook, kernel_name="python3", timeout=60).execute()

    shown = {name: [output.data for output in cell.outputs] for name, cell in zip(CELLS, notebook.cells, strict=True)}
    assert {name: len(outputs) for name, outputs in shown.items()} == {
        "prepare": 0,
        "axes": 1,
        "figure": 1,
        "nothing": 0,
        "pyplot": 0,
        "axes, pyplot active": 1,
        "figure, pyplot active": 1,
        "given axes": 1,
    }
    for name in ("axes", "figure"):
        before, after = shown[name][0], shown[f"{name}, pyplot active"][0]
        assert before["text/plain"].startswith("Cumulative tokens per step of 1 run: p 2 after 2 steps")
        width = Image.open(io.BytesIO(base64.b64decode(before["image/png"]))).width
        assert width == {"axes": 1280, "figure": 1800}[name]
        assert before == after

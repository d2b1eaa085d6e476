"""Load: the cost of a run, a step and a row at ten times the number. Each measurement has a separate process."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.soak.table import show

HERE = Path(__file__).parents[2]

NOISE = 1.9
"""Noise between measurements on a busy machine; a figure that grows with the number grows tenfold."""

TIMES = 3
"""Maximum number of measurements of one kind."""

SIZES = {
    "runs_at_once": (100, 1_000, 10_000),
    "steps_in_a_run": (100, 1_000, 10_000),
    "steps_on_the_wire": (100, 1_000, 10_000),
    "steps_in_a_store": (10_000, 100_000, 1_000_000),
    "frame_of_a_store": (10_000, 100_000, 1_000_000),
    "backtest_of_a_store": (10_000, 100_000, 1_000_000),
    "timeouts_of_results": (100, 1_000, 10_000),
}

MAY_GROW = {
    ("steps_on_the_wire", "us_a_step"): 5.0,  # each request carries the whole conversation: the wire requires that
    ("steps_in_a_store", "open_ms"): 2.5,
}
"""Allowed growth of a figure per tenfold; other figures must not grow, except for noise."""

AT_MOST = {
    ("runs_at_once", "kb_a_run"): 60.0,
    ("runs_at_once", "objects_left_a_run"): 0.5,
    ("runs_at_once", "lanes_left"): 0.0,
    ("steps_in_a_run", "kb_a_step"): 12.0,
    ("steps_in_a_run", "load_kb_a_step"): 30.0,
    ("steps_in_a_store", "open_ms"): 50.0,
    ("steps_in_a_store", "runs_kb_a_run"): 8.0,
    ("steps_in_a_store", "summary_kb_a_run"): 4.0,
    ("frame_of_a_store", "kb_a_step"): 2.5,
    ("backtest_of_a_store", "kb_a_step"): 2.5,
    ("timeouts_of_results", "times_turns"): 12.0,
}
"""Bounds on the largest size, in the figure's own unit."""


Figures = list[dict[str, float]]
"""The figures of one kind of measurement at each size."""


def measured(kinds: Iterable[str], places: slice, folder: Path) -> dict[str, Figures]:
    """The measurements of these kinds, each in a separate process."""
    sizes = {what: SIZES[what][places] for what in kinds}
    asked = [f"{what}={size}" for what, some in sizes.items() for size in some]
    command = [sys.executable, "-m", "tests.soak.load", str(folder), *asked]
    done = subprocess.run(command, cwd=HERE, capture_output=True, text=True, timeout=3_600, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found = map(json.loads, done.stdout.splitlines())
    return {what: list(itertools.islice(found, len(some))) for what, some in sizes.items()}


def too_much(what: str, name: str, values: list[float]) -> list[str]:
    """Violations of a figure's bounds, over sizes that grow tenfold each."""
    before, last = values[-2:]
    bound = AT_MOST.get((what, name))
    if bound is not None:
        return [f"{name} of {what} is {last:.3g}, more than {bound:g}"] if last > bound else []
    grew = MAY_GROW.get((what, name), NOISE)
    if last > before * grew and last > 1.0:
        return [f"{name} of {what} grows from {before:.3g} to {last:.3g} in a tenfold, by more than {grew:g}"]
    return []


def wrong_in(what: str, found: Figures) -> list[str]:
    """Violations of the bounds of all figures of one kind."""
    return [one for name in found[0] if name != "steps" for one in too_much(what, name, [each[name] for each in found])]


def least(places: slice, folder: Path) -> dict[str, Figures]:
    """The figures at each size. Where one exceeds its bound, all sizes are measured again, and the least of each figure counts.

    Other load on the machine only adds to a figure, at random; growth with the size occurs every time.
    """
    all_found = measured(SIZES, places, folder)
    for _ in range(TIMES - 1):
        kinds = [what for what, found in all_found.items() if wrong_in(what, found)]
        if not kinds:
            break
        for what, again in measured(kinds, places, folder).items():
            pairs = zip(all_found[what], again, strict=True)
            all_found[what] = [{name: min(one[name], other[name]) for name in one} for one, other in pairs]
    return all_found


def over_sizes(name: str, places: slice, folder: Path) -> None:
    """Measure all at these sizes, print the table, and check the figures against their bounds."""
    rows, wrong = [], []
    for what, taken in least(places, folder).items():
        for figure in taken[0]:
            values = [one[figure] for one in taken]
            growth = [f"{after / before:.2f}" if before else "-" for before, after in itertools.pairwise(values)]
            rows.append([what.replace("_", " "), figure, *(f"{value:.3g}" for value in values), *growth])
        wrong += wrong_in(what, taken)
    sizes = ["smallest", "x 10", "x 100"][places]
    show(name, ["what", "figure", *sizes, *(f"growth {place + 1}" for place in range(len(sizes) - 1))], rows)
    assert not wrong, "\n".join(wrong)


@pytest.mark.timeout(300)
def test_ten_times_as_many_cost_no_more_each(tmp_path: Path) -> None:
    over_sizes("load", slice(0, 2), tmp_path)


@pytest.mark.soak
@pytest.mark.timeout(3_600)
def test_a_hundred_times_as_many_cost_no_more_each(tmp_path: Path) -> None:
    over_sizes("load-large", slice(0, 3), tmp_path)

"""The tree of runs: its data for each run, and its drawing."""

from __future__ import annotations

import asyncio
import io
from typing import Any

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from PIL import Image

import agentlab as lab
from agentlab import Budget, errors
from agentlab.agent import Run
from agentlab.plots import PlotFigure, tree_data
from agentlab.plots.branch_tree import SHOWN_LANES
from agentlab.testing import ScriptedProvider, call, say

from .builders import listed, look, looping

COLUMNS = [
    "run_id", "parent_run_id", "forked_at", "called_in", "kind", "first_step", "last_step", "steps", "lane", "provider", "model",
    "agent", "label", "changed", "stop_reason", "terminated", "tokens", "cost_usd",
]  # fmt: skip


def agent(name: str = "one", end: int = 0) -> lab.Agent:
    return lab.Agent(ScriptedProvider(looping(end=end), name=name, model="m1"), tools=[look])


def ended(run: Run) -> Run:
    async def to_the_end() -> None:
        await run

    asyncio.run(to_the_end())
    return run


@pytest.fixture(scope="module")
def family() -> list[Run]:
    """1 of 6 steps; 1.1 from its second, 1.2 from its fifth; 1.1.1 from the fourth of 1.1, 1.1.2 from the first step that 1.1
    shares with 1."""
    first = ended(agent().run("go", budget=Budget(max_turns=6)))
    early = ended(first.fork(2, agent=agent("two"), budget=Budget(max_turns=7)))
    late = ended(first.fork(5, budget=Budget(max_turns=8)))
    below = ended(early.fork(4, agent=agent("two", end=5)))
    waiting = early.fork(1)
    return [first, early, late, below, waiting]


def values(data: Any, *columns: str) -> list[tuple[Any, ...]]:
    return [tuple(listed(row)) for row in data[list(columns)].itertuples(index=False)]


def test_one_row_per_run_with_its_place_in_the_tree(family: list[Run]) -> None:
    data = tree_data(family[0])

    assert list(data.columns) == COLUMNS
    assert values(data, "lane", "label", "forked_at", "first_step", "steps", "stop_reason", "terminated") == [
        (0, "1", None, 0, 6, "turn_limit", False),
        (1, "1.2", 5, 5, 8, "turn_limit", False),
        (2, "1.1", 2, 2, 7, "turn_limit", False),
        (3, "1.1.1", 4, 4, 5, "completed", True),
        (4, "1.1.2", 1, 1, 1, None, None),
    ]
    assert data["changed"].fillna("").tolist() == ["", "max_turns 8", "max_turns 7", "", ""]
    assert values(data, "provider", "tokens", "cost_usd")[0] == ("one", 600, pytest.approx(0.006))
    assert set(map(str, data.dtypes)) <= {"string", "Int64", "Float64", "boolean"}


def test_the_tree_is_the_same_from_every_run(family: list[Run]) -> None:
    for run in family:
        assert tree_data(run).equals(tree_data(family[0]))
    assert tree_data(family).equals(tree_data(family[0]))


def test_results_are_joined_by_their_parents(family: list[Run]) -> None:
    results = [run.result for run in family if run.result is not None]

    assert values(tree_data(results), "label", "first_step") == [("1", 0), ("1.2", 5), ("1.1", 2), ("1.1.1", 4)]


def test_without_its_parent_a_branch_is_drawn_from_its_beginning(family: list[Run]) -> None:
    assert values(tree_data([family[3], family[2]]), "label", "first_step", "forked_at") == [("1", 0, 4), ("2", 0, 5)]


def test_each_runs_line_leaves_its_parents_line(family: list[Run]) -> None:
    ax = lab.plots.tree(family[0])

    lines = {line.get_gid(): line for line in ax.lines}
    forks = {run.id: lines[f"fork:{run.id}"].get_xydata().tolist() for run in family[1:]}
    assert forks[family[1].id] == [[2, 0], [2, 2]]
    assert forks[family[2].id] == [[5, 0], [5, 1]]
    assert forks[family[3].id] == [[4, 2], [4, 3]]
    assert forks[family[4].id] == [[1, 0], [1, 4]], "forked within the steps that 1.1 shares with 1: it leaves the line of 1"
    assert lines[f"run:{family[2].id}"].get_xydata().tolist() == [[5, 1], [8, 1]]
    assert f"open:{family[4].id}" in lines and f"open:{family[0].id}" not in lines
    assert [text.get_text() for text in ax.get_yticklabels()] == [
        "1  one",
        "1.2  max_turns 8",
        "1.1  two",
        "1.1.1  two",
        "1.1.2  two",
    ]
    assert [text.get_text() for text in ax.texts] == ["turn_limit", "turn_limit", "turn_limit", "completed", "not started"]


def test_a_sub_agent_is_beside_the_branch_that_called_it() -> None:
    answers = [call("look"), call("scout", {"task": "look"}), say("done"), call("scout", {"task": "look"}), say("done")]
    boss = lab.Agent(ScriptedProvider(answers, name="one", model="m1"), tools=[look, agent("two", 2).as_tool("scout", "Looks.")])
    first = ended(boss.run("go"))
    branch = ended(first.fork(1))
    scout, of_branch = first.children[0], branch.children[0]
    other = ended(first.fork(1, agent=agent("three", 3)))

    data = tree_data(first)
    assert data["run_id"].tolist() == [run.id for run in (first, scout, branch, of_branch, other)]
    assert values(data, "kind", "first_step", "last_step")[2:4] == [("branch", 1, 3), ("sub-agent", 2, 4)]
    lines = {line.get_gid(): line for line in lab.plots.tree(first).lines}
    assert lines[f"call:{of_branch.id}"].get_xydata().tolist() == [[2, 2], [2, 3]]


def test_providers_differ_in_colour_marker_and_line_style(family: list[Run]) -> None:
    ax = lab.plots.tree(family[0])
    lines = {line.get_gid(): line for line in ax.lines}

    def looks(run: Run) -> tuple[Any, ...]:
        line, marks = lines[f"run:{run.id}"], lines[f"steps:{run.id}"]
        return line.get_color(), str(line._unscaled_dash_pattern), marks.get_marker()  # type: ignore[attr-defined]

    one, two = looks(family[0]), looks(family[1])
    assert all(left != right for left, right in zip(one, two, strict=True))
    assert looks(family[2]) == one and looks(family[3]) == two


def test_the_alt_text_describes_the_tree(family: list[Run]) -> None:
    alt = lab.plots.tree(family[0]).alt  # type: ignore[attr-defined]

    assert alt.startswith(
        "Tree of 5 runs: 1  one, 6 steps, turn_limit; 1.2  max_turns 8 forked from 1 at step 5, 8 steps, turn_limit; "
    )
    assert "1.1.2  two forked from 1.1 at step 1, 1 step, not ended" in alt


def test_no_runs_and_other_objects() -> None:
    ax = lab.plots.tree([])
    assert [text.get_text() for text in ax.texts] == ["no runs yet"]
    for wrong in (3, "run", [1], None):
        with pytest.raises(errors.ConfigurationError, match="pass a run, a list of runs or results"):
            lab.plots.tree(wrong)  # type: ignore[arg-type]


def test_many_branches_stay_inside_the_picture_and_their_texts_apart() -> None:
    first = ended(agent().run("go", budget=Budget(max_turns=50)))
    for number in range(SHOWN_LANES + 3):
        first.fork(number % 50, agent=agent(f"a-provider-with-quite-a-long-name-{number % 5}"))
    figure = lab.plots.tree(first).figure
    assert isinstance(figure, PlotFigure)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    ax = figure.axes[0]
    width, height = canvas.get_width_height()
    box = ax.get_tightbbox()
    assert box is not None
    assert box.x0 >= 0 and box.y0 >= 0 and box.x1 <= width + 1 and box.y1 <= height + 1
    boxes = [text.get_window_extent() for text in ax.get_yticklabels()]
    assert not any(boxes[place].overlaps(boxes[place + 1]) for place in range(len(boxes) - 1))
    assert len(boxes) == SHOWN_LANES
    assert ax.get_xlabel() == "steps (and 4 more runs)"


def test_the_same_data_give_the_same_bytes_on_a_transparent_background(family: list[Run]) -> None:
    one, two = (lab.plots.tree(family[0]).figure for _ in range(2))
    assert isinstance(one, PlotFigure) and isinstance(two, PlotFigure)
    assert one.png() == two.png() == one.png()
    picture = Image.open(io.BytesIO(one.png())).convert("RGBA")
    assert picture.getchannel("A").getpixel((0, 0)) == 0


@pytest.mark.filterwarnings("ignore:HasToolCall:agentlab.errors.AgentlabWarning")
def test_a_branch_is_named_by_the_limits_that_changed_whatever_their_texts_are() -> None:
    first = ended(agent("\ud83done").run("go", budget=Budget(max_turns=3)))
    ended(first.fork(1, stop=lab.HasToolCall("\ud83d") | lab.StepCountIs(2)))
    ended(first.fork(2, agent=agent("two"), budget=Budget(max_turns=4)))
    ended(first.fork(2))
    data = tree_data(first)

    assert data["label"].tolist() == ["1", "1.2", "1.3", "1.1"]  # branches of one step are in order
    assert data["changed"].fillna("").tolist() == [
        "",
        "max_turns 4",
        "",
        r"stop AnyOf(HasToolCall('\ud83d'), StepCountIs(steps=2))",
    ]
    names = [text.get_text() for text in lab.plots.tree(first).get_yticklabels()]
    assert names[:3] == ["1  \ufffdone", "1.2  two", "1.3  \ufffdone"], "another model says more than a limit"


def test_named_agents_on_one_model_differ_in_name_and_colour() -> None:
    def named(name: str) -> Run:
        return ended(lab.Agent(ScriptedProvider([say("done")], name="one", model="m1"), name=name).run("go"))

    first, second = named("brief"), named("thorough")
    ax = lab.plots.tree([first, second])
    lines = {line.get_gid(): line for line in ax.lines}

    assert [text.get_text() for text in ax.get_yticklabels()] == ["1  brief", "2  thorough"]
    assert lines[f"run:{first.id}"].get_color() != lines[f"run:{second.id}"].get_color()

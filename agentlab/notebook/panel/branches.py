"""The branches of a run: the form for a new branch, the tree of runs as a table and a picture, and the line with the shown run."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import ipywidgets as widgets

from agentlab._internal.redaction import redact
from agentlab._internal.safe_text import printable
from agentlab.agent import Run
from agentlab.engine.run_tree import RunNode, differences, family_of
from agentlab.engine.worker import RunState
from agentlab.errors import AgentlabError, ConfigurationError
from agentlab.model.finish_reasons import StopReason
from agentlab.model.messages import ToolResult
from agentlab.notebook import markup
from agentlab.notebook.live_view import PanelState, drawing, is_drawing
from agentlab.notebook.markup import Html, Markup
from agentlab.notebook.panel.fields import as_typed
from agentlab.notebook.panel.pictures import Courses, PacedPicture, figure_html, state_of, tree_figure

THIS_AGENT, ANOTHER_MODEL = "", "another"
LONGEST_RESULT = 20_000
"""A longer tool result is not put into the page; typed text replaces it."""

_ROW = {"flex_flow": "row wrap"}


class Branches:
    """The form, and below it the tree of runs. A click on a row of the table and the list "Show run" show that run in the panel."""

    title = "Branches"

    def __init__(self, state: PanelState) -> None:
        self._state = state
        self._courses = Courses()
        self._tree = PacedPicture(lambda: figure_html(tree_figure(state.run)))
        self._curves = PacedPicture(
            lambda: figure_html(self._courses.figure([(one.name, one.run) for one in family_of(state.run)]))
        )
        self.form = ForkForm(state)
        self.table = Html()
        self.choice = widgets.Dropdown(
            description="Show run", options=[("1", state.run.id)], style={"description_width": "initial"},
            layout=widgets.Layout(width="auto", max_width="32em"),
        )  # fmt: skip
        self.choice.observe(self._chosen, "value")
        self.tree, self.curves = Html(), Html()
        self.view = widgets.VBox([self.form.view, self.choice, self.table, self.tree, self.curves])

    def show(self) -> bool:
        """Update form, table and pictures."""
        members = family_of(self._state.run)
        self.form.show()
        self._offer(members)
        self.table.value = family_table(members, self._state.run)
        runs = [member.run for member in members]
        if len(runs) == 1:
            self.tree.value = '<p class="agentlab-note">The first branch adds a tree of runs and a comparison here.</p>'
            return False
        state, under_way = state_of(runs), any(run.state is RunState.RUNNING for run in runs)
        self.tree.value = self._tree.as_html(state, under_way=under_way)
        self.curves.value = self._curves.as_html(state, under_way=under_way)
        return False

    def _offer(self, members: tuple[RunNode[Run], ...]) -> None:
        options = [(_label(member), member.run_id) for member in members]
        with drawing():
            if list(self.choice.options) != options:
                self.choice.options = options  # which selects the first of them
            self.choice.value = self._state.run.id

    def _chosen(self, change: Any) -> None:
        if is_drawing() or change["new"] in (None, self._state.run.id):
            return
        found = next((one.run for one in family_of(self._state.run) if one.run_id == change["new"]), None)
        if found is not None:
            self._state.do(lambda: self._state.open(found))


def _label(member: RunNode[Run]) -> str:
    return printable(f"{member.name}  {difference_to_parent(member.run) or _model_of(member.run)}")[:70]


def _model_of(run: Run) -> str:
    return f"{run.agent.model.name}:{run.agent.model.model}"


class ForkForm:
    """The form for a new branch: how many steps to keep, and what to change. Errors are shown beside the button."""

    def __init__(self, state: PanelState) -> None:
        self._state = state
        self._lock = threading.RLock()  # edits and redraws arrive on different threads
        self._offered_steps = 0
        self._steps_are_chosen = False
        self._shown_for: tuple[float, int] | None = None
        self._edited: dict[tuple[float, str], str] = {}
        self.keep = widgets.FloatText(
            description="Keep steps", step=1.0, style={"description_width": "11em"}, layout=widgets.Layout(width="15em")
        )
        self.of = Html()
        self.model = _wide(widgets.Dropdown, "Model", options=self._models())
        self.other_model = _wide(widgets.Text, "provider:model", placeholder="anthropic:claude-sonnet-4", continuous_update=False)
        self.other_model.layout.display = "none"
        self.prompt = _text_area("Prompt", value=redact(state.run.prompt))
        self.message = _text_area("Add a message", placeholder="one more message after the kept steps")
        self.result = _wide(widgets.Dropdown, "Tool result")
        self.content = _text_area("Content")
        self.button = widgets.Button(
            description="Branch", button_style="primary",
            tooltip="Make the branch and show it; it waits for Run or Step, and its limits can be edited first",
        )  # fmt: skip
        self.error = Html()
        self.keep.observe(self._steps_chosen, "value")
        self.model.observe(self._model_chosen, "value")
        self.result.observe(lambda change: self._show_content(), "value")
        self.content.observe(self._content_edited, "value")
        self.button.on_click(lambda _: state.do(self.branch))
        steps = widgets.HBox([self.keep, self.of], layout=widgets.Layout(**_ROW))
        done = widgets.HBox([self.button, self.error], layout=widgets.Layout(**_ROW, align_items="center"))
        left = widgets.VBox([steps, self.model, self.other_model, self.prompt, self.message], layout=_column())
        right = widgets.VBox([self.result, self.content, done], layout=_column())
        self.view = widgets.HBox([left, right], layout=widgets.Layout(**_ROW, grid_gap="0 24px"))
        self.show()

    def show(self) -> bool:
        """Update the number of steps, and the steps to keep until the person has typed a number."""
        run, steps = self._state.run, len(self._state.run.history)
        self.of.value = markup.aside(f"of {steps} (0: start again)")
        with self._lock:
            if not self._steps_are_chosen:
                self._offered_steps = self._state.chosen or _useful_steps(run)
                self.keep.value = self._offered_steps
            self._show_results()
        return False

    @property
    def kept(self) -> int | float:
        """The typed number of steps to keep."""
        return as_typed(self.keep.value)

    def _models(self) -> list[tuple[str, str]]:
        others = [(name, f"agent {name}") for name in self._state.agents]
        return [(f"this one ({printable(_model_of(self._state.run))})", THIS_AGENT), *others, ("another model …", ANOTHER_MODEL)]

    def _show_results(self) -> None:
        at = self.kept
        results = results_of(self._state.run, at)
        shown_for = (at, len(results))
        if shown_for == self._shown_for:
            return
        self._shown_for = shown_for
        names = [(printable(f"{one.name}  ({one.call_id})")[:80], one.call_id) for one in results]
        none = f"step {at} has none" if at else "the branch keeps no step"
        self.result.options = names or [(none, "")]
        self.result.index = 0
        self.result.disabled = self.content.disabled = not names
        self.result.tooltip = self.content.tooltip = "" if names else f"There is no tool result to change: {none}."
        self._show_content()

    def _show_content(self) -> None:
        chosen = self._chosen_result()
        given = "" if chosen is None else redact(chosen.content)
        too_long = len(given) > LONGEST_RESULT
        self.content.placeholder = f"{len(given):,} characters: typed text replaces them" if too_long else ""
        key = (self.kept, "" if chosen is None else chosen.call_id)
        self.content.value = self._edited.get(key, "" if too_long else given)

    def _chosen_result(self) -> ToolResult | None:
        results = results_of(self._state.run, self.kept)
        return next((one for one in results if one.call_id == self.result.value), None)

    # Edits by the person ----------------------------------------------------------------------------------------------------

    def _steps_chosen(self, change: Any) -> None:
        with self._lock:
            if change["new"] == self._offered_steps:
                return
            self._steps_are_chosen = True
            self.keep.value = change["new"]  # a redraw may have come in between
            steps = len(self._state.run.history)
            fine = isinstance(self.kept, int) and 0 <= self.kept <= steps
            self.error.value = "" if fine else markup.fault(f"Keep steps {self.kept}: choose a number from 0 to {steps}.")
            self._show_results()

    def _model_chosen(self, change: Any) -> None:
        self.other_model.layout.display = None if change["new"] == ANOTHER_MODEL else "none"

    def _content_edited(self, change: Any) -> None:
        chosen = self._chosen_result()
        if chosen is None or is_drawing():
            return
        key, text = (self.kept, chosen.call_id), change["new"]
        shown = redact(chosen.content)
        if text == (shown if len(shown) <= LONGEST_RESULT else ""):
            self._edited.pop(key, None)
        else:
            self._edited[key] = text
            self._steps_are_chosen = True  # the text belongs to this step

    def branch(self) -> None:
        """Make the branch and show it, or show the error beside the button."""
        try:
            made = self._state.run.fork(self.kept, **self._changes())  # type: ignore[arg-type]  # a fraction is refused
        except (AgentlabError, ValueError, TypeError) as error:
            self.error.value = markup.fault(str(error))
            return
        self.error.value = ""
        self._state.open(made)

    def _changes(self) -> dict[str, Any]:
        """The arguments for `Run.fork`."""
        changes: dict[str, Any] = {}
        if self.model.value == ANOTHER_MODEL:
            if not self.other_model.value.strip():
                raise ConfigurationError("Model: write it as provider:model, such as openai:gpt-4.1-mini.")
            changes["model"] = self.other_model.value.strip()
        elif self.model.value != THIS_AGENT:
            changes["agent"] = self._state.agents[self.model.value.removeprefix("agent ")]
        if self.prompt.value != redact(self._state.run.prompt):
            changes["prompt"] = self.prompt.value
        if self.message.value.strip():
            changes["message"] = self.message.value
        results = {call_id: text for (at, call_id), text in self._edited.items() if at == self.kept}
        if results:
            changes["tool_results"] = results
        return changes


def results_of(run: Run, at: float) -> tuple[ToolResult, ...]:
    """The tool results of step `at`; empty if there is no such step."""
    if not isinstance(at, int) or not 1 <= at <= len(run.history):
        return ()
    results = [message.tool_results for message in run.timeline.messages_of(at) if message.role == "tool"]
    return tuple(results[-1]) if results else ()


def _useful_steps(run: Run) -> int:
    """Return the number of steps, less the last one of a completed run: after it, the model needs a new message."""
    completed = run.result is not None and run.result.stop_reason is StopReason.COMPLETED
    return max(0, len(run.history) - completed)


def _wide(kind: Any, label: str, **more: Any) -> Any:
    return kind(
        description=label, style={"description_width": "11em"}, layout=widgets.Layout(width="auto", min_width="16em"), **more
    )


def _text_area(label: str, **more: Any) -> widgets.Textarea:
    return _wide(widgets.Textarea, label, rows=2, continuous_update=False, **more)


def _column() -> widgets.Layout:
    return widgets.Layout(flex="1 1 24em", min_width="20em", max_width="46em")


# The tree of runs -----------------------------------------------------------------------------------------------------------


def family_table(members: Sequence[RunNode[Run]], shown: Run) -> str:
    """All runs, each branch below the run that it was forked from, with the shown run marked."""
    return markup.table(
        ("run", "forked", "what is different", "state", "steps", "tokens", "cost", "ended by"),
        [_row(member, member.run is shown) for member in members],
        numbers=(4, 5, 6),
        css="agentlab-family",
        attributes=' aria-label="This run and its branches"',
        row_attributes=[
            f' data-run="{markup.escape(member.run.id)}"' + (' aria-current="true"' if member.run is shown else "")
            for member in members
        ],
    )


def _row(member: RunNode[Run], is_shown: bool) -> tuple[object, ...]:
    run, history = member.run, member.run.history
    name = (
        f'<span style="padding-left:{min(member.depth, 8) * 1.3:.1f}em">{"↳ " if member.depth else ""}<b>{member.name}</b></span> '
        f'<code class="agentlab-note">{markup.escape(run.id[:6])}</code>'
        + (' <b class="agentlab-here">◀ shown</b>' if is_shown else "")
    )
    if member.parent is None:
        origin = ""
    elif member.called_in is not None:
        origin = f"called by {member.parent.name} in step {member.called_in}"
    else:
        origin = f"from {member.parent.name} at step {member.forked_at}"
    return (
        Markup(name),
        origin,
        difference_to_parent(run) or _model_of(run),
        run.state,
        len(history),
        markup.tokens(history.tokens),
        markup.dollars(history.cost_usd),
        "" if run.result is None else run.result.stop_reason,
    )


def difference_to_parent(run: Run) -> str:
    """Return how a branch differs from the run it was forked from; empty for a run that is not a branch."""
    if run.origin.parent is None:
        return "" if run.origin.caller is None else f"sub-agent {run.agent.name}"
    return "; ".join(differences(run)) or "no difference"


def family_line(member: RunNode[Run], others: int) -> str:
    """Return the name and origin of the shown run, as one line."""
    different = markup.escape(difference_to_parent(member.run), 160)
    if member.parent is None:
        runs = "1 other run" if others == 1 else f"{others} other runs"
        text = f"the first of its family, with {runs} (see the tab Branches)"
    elif member.called_in is not None:
        text = f"{different}, called by run {member.parent.name} in step {member.called_in}"
    else:
        text = f"a branch of run {member.parent.name} at step {member.forked_at} — {different}"
    return f'<div class="agentlab-strip">Run <b>{member.name}</b>: {text}.</div>'


class Lineage:
    """The line above the panel: the shown run, and the way back to its parent. Hidden while the run is the only one.

    It observes every run of the tree, branches made in code included.
    """

    def __init__(self, state: PanelState) -> None:
        self._state = state
        self._observed: set[str] = set()
        self.text = Html()
        self.back = widgets.Button(layout=widgets.Layout(width="auto"))
        self.back.on_click(lambda _: state.do(self._go_back))
        self.view = widgets.HBox(
            [self.text, self.back],
            layout=widgets.Layout(**_ROW, align_items="center", grid_gap="4px 12px", display="none"),
        )

    def show(self) -> bool:
        """Update the line."""
        family = family_of(self._state.run)
        for member in family:
            self._observe(member.run)
        here = next(member for member in family if member.run is self._state.run)
        self.view.layout.display = "none" if len(family) == 1 else None
        self.text.value = family_line(here, len(family) - 1)
        self.back.layout.display = "none" if here.parent is None else None
        if here.parent is not None:
            self.back.description = f"Back to run {here.parent.name}"
            self.back.tooltip = "Show the parent of this run"
        return False

    def _observe(self, run: Run) -> None:
        if run.id in self._observed:
            return
        self._observed.add(run.id)
        redraw = self._state.redraw
        run.branches.watch(lambda branch: redraw())
        if run is not self._state.run and run.result is None:  # the run view observes its own run
            run.observe(lambda event: redraw())

    def _go_back(self) -> None:
        parent = self._state.run.origin.parent or self._state.run.origin.caller
        if parent is not None:
            self._state.open(parent)

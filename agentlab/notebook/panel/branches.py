"""Other futures of a run: how a branch is made, all runs of the family as a table and a tree, and their tokens and cost compared."""

from __future__ import annotations

import html
import threading
from collections.abc import Callable, Sequence
from typing import Any

import ipywidgets as widgets

from agentlab.engine.run_tree import RunNode, differences, family_of
from agentlab.errors import AgentlabError, ConfigurationError
from agentlab.notebook.panel import markup
from agentlab.notebook.panel.fields import as_typed
from agentlab.notebook.panel.markup import Html
from agentlab.notebook.panel.pictures import Courses, KeptPicture, state_of, tree_figure
from agentlab.notebook.panel.state import PanelState, drawing, is_drawing
from agentlab.redaction import without_keys
from agentlab.run import Run, RunState
from agentlab.types import StopReason, ToolResult


class Branches:
    """The form, and below it the family. A row of the table and the list "Show run" do the same: they show that run in the panel."""

    title = "Branches"

    def __init__(self, scene: PanelState) -> None:
        self._scene = scene
        self._courses = Courses()
        self._tree = KeptPicture(lambda: tree_figure(scene.run))
        self._curves = KeptPicture(lambda: self._courses.figure([(one.name, one.run) for one in family_of(scene.run)]))
        self.form = ForkForm(scene)
        self.table = Html()
        self.choice = widgets.Dropdown(
            description="Show run", options=[("1", scene.run.id)], style={"description_width": "initial"},
            layout=widgets.Layout(width="auto", max_width="32em"),
        )  # fmt: skip
        self.choice.observe(self._chosen, "value")
        self.tree, self.curves = Html(), Html()
        self.view = widgets.VBox([self.form.view, self.choice, self.table, self.tree, self.curves])

    def show(self) -> bool:
        """Bring the family up to date. Pictures only where there is more than one run, and only where something has changed."""
        members = family_of(self._scene.run)
        self.form.show()
        self._offer(members)
        self.table.value = family_table(members, self._scene.run)
        runs = [member.run for member in members]
        if len(runs) == 1:
            self.tree.value = (
                '<p class="agentlab-note">With the first branch, the tree of runs and their comparison stand here.</p>'
            )
            return False
        state, going_on = state_of(runs), any(run.state is RunState.RUNNING for run in runs)
        self.tree.value = self._tree.as_html(state, going_on=going_on)
        self.curves.value = self._curves.as_html(state, going_on=going_on)
        return False

    def _offer(self, members: tuple[RunNode[Run], ...]) -> None:
        here = self._scene.run.id
        options = [(_label(member), member.run_id) for member in members]
        with drawing():
            if list(self.choice.options) != options:
                self.choice.options = options  # which chooses the first of them
            self.choice.value = here

    def _chosen(self, change: Any) -> None:
        if is_drawing() or change["new"] in (None, self._scene.run.id):
            return
        found = next((one.run for one in family_of(self._scene.run) if one.run_id == change["new"]), None)
        if found is not None:
            self._scene.do(lambda: self._scene.open(found))


def _label(member: RunNode[Run]) -> str:
    different = differences_in_words(member.run)
    model = member.run.agent.model
    return markup.printable(f"{member.name}  {different or f'{model.name}:{model.model}'}")[:70]


THIS_AGENT, ANOTHER_MODEL = "", "another"
LONGEST_RESULT = 20_000
"""A longer tool result is not put into the page; what is typed takes its place."""

_STYLE = {"description_width": "11em"}
_WIDE = {"width": "auto", "min_width": "16em"}


class ForkForm:
    """Fields and a button. What cannot be is said beside the button, and nothing that was typed is lost."""

    def __init__(self, scene: PanelState) -> None:
        self._scene = scene
        self._lock = threading.RLock()  # an edit and the redraw come on threads of their own
        self._offered_steps = 0
        self._steps_are_chosen = False
        self._shown_for: tuple[float, int] | None = None
        self._edited: dict[tuple[float, str], str] = {}
        self.keep = widgets.FloatText(description="Keep steps", step=1.0, style=_STYLE, layout=widgets.Layout(width="15em"))
        self.of = Html()
        self.model = widgets.Dropdown(description="Model", options=self._models(), style=_STYLE, layout=_wide())
        self.other_model = widgets.Text(
            description="provider:model", placeholder="anthropic:claude-sonnet-4", continuous_update=False, style=_STYLE,
            layout=_wide(display="none"),
        )  # fmt: skip
        self.prompt = widgets.Textarea(
            description="Prompt",
            value=without_keys(scene.run.prompt),
            rows=2,
            continuous_update=False,
            style=_STYLE,
            layout=_wide(),
        )
        self.message = widgets.Textarea(
            description="Say something more", placeholder="one more message after the kept steps", rows=2,
            continuous_update=False, style=_STYLE, layout=_wide(),
        )  # fmt: skip
        self.result = widgets.Dropdown(description="Tool result", style=_STYLE, layout=_wide())
        self.content = widgets.Textarea(
            description="What it gave", rows=2, continuous_update=False, style=_STYLE, layout=_wide()
        )  # fmt: skip
        self.button = widgets.Button(
            description="Branch", button_style="primary",
            tooltip="Make the branch and show it; it waits for Run or Step, and its limits can be edited first",
        )  # fmt: skip
        self.told = Html()
        self.keep.observe(self._steps_chosen, "value")
        self.model.observe(self._model_chosen, "value")
        self.result.observe(lambda change: self._show_content(), "value")
        self.content.observe(self._content_edited, "value")
        self.button.on_click(lambda _: scene.do(self.branch))
        steps = widgets.HBox([self.keep, self.of], layout=widgets.Layout(flex_flow="row wrap"))
        done = widgets.HBox([self.button, self.told], layout=widgets.Layout(flex_flow="row wrap", align_items="center"))
        asked = widgets.VBox([steps, self.model, self.other_model, self.prompt, self.message], layout=_column())
        given = widgets.VBox([self.result, self.content, done], layout=_column())
        self.view = widgets.HBox([asked, given], layout=widgets.Layout(flex_flow="row wrap", grid_gap="0 24px"))
        self.show()

    # Up to date with the run ------------------------------------------------------------------------------------------------

    def show(self) -> bool:
        """Follow the run: the steps that there are, and those to keep as long as nobody has typed a number."""
        run, steps = self._scene.run, len(self._scene.run.history)
        self.of.value = f'<span class="agentlab-note">of {steps} (0: start again)</span>'
        with self._lock:
            if not self._steps_are_chosen:
                self._offered_steps = self._scene.chosen or _useful_steps(run)
                self.keep.value = self._offered_steps
            self._show_results()
        return False

    @property
    def kept(self) -> int | float:
        """How many steps to keep, as typed."""
        return as_typed(self.keep.value)

    def _models(self) -> list[tuple[str, str]]:
        model = self._scene.run.agent.model
        others = [(f"{name}", f"agent {name}") for name in self._scene.agents]
        return [
            (f"this one ({markup.printable(f'{model.name}:{model.model}')})", THIS_AGENT),
            *others,
            ("another model …", ANOTHER_MODEL),
        ]

    def _show_results(self) -> None:
        at = self.kept
        results = results_of(self._scene.run, at)
        shown_for = (at, len(results))
        if shown_for == self._shown_for:
            return
        self._shown_for = shown_for
        names = [(markup.printable(f"{one.name}  ({one.call_id})")[:80], one.call_id) for one in results]
        none = f"step {at} has none" if at else "no step is kept"
        self.result.options = names or [(none, "")]
        self.result.index = 0
        self.result.disabled = self.content.disabled = not names
        self.result.tooltip = self.content.tooltip = "" if names else f"There is no tool result to change: {none}."
        self._show_content()

    def _show_content(self) -> None:
        chosen = self._chosen_result()
        given = "" if chosen is None else without_keys(chosen.content)
        too_long = len(given) > LONGEST_RESULT
        self.content.placeholder = f"{len(given):,} characters: what you type takes their place" if too_long else ""
        key = (self.kept, "" if chosen is None else chosen.call_id)
        self.content.value = self._edited.get(key, "" if too_long else given)

    def _chosen_result(self) -> ToolResult | None:
        results = results_of(self._scene.run, self.kept)
        return next((one for one in results if one.call_id == self.result.value), None)

    # What a person does ------------------------------------------------------------------------------------------------------

    def _steps_chosen(self, change: Any) -> None:
        with self._lock:
            if change["new"] == self._offered_steps:
                return
            self._steps_are_chosen = True
            self.keep.value = change["new"]  # also where a redraw came in between
            steps = len(self._scene.run.history)
            there_are = f"there are 0 to {steps} steps to keep"
            fine = isinstance(self.kept, int) and 0 <= self.kept <= steps
            self.told.value = "" if fine else markup.fault(f"Keep steps {self.kept}: {there_are}.")
            self._show_results()

    def _model_chosen(self, change: Any) -> None:
        self.other_model.layout.display = None if change["new"] == ANOTHER_MODEL else "none"

    def _content_edited(self, change: Any) -> None:
        chosen = self._chosen_result()
        if chosen is None or is_drawing():
            return
        key, text = (self.kept, chosen.call_id), change["new"]
        shown = without_keys(chosen.content)
        if text == (shown if len(shown) <= LONGEST_RESULT else ""):
            self._edited.pop(key, None)
        else:
            self._edited[key] = text
            self._steps_are_chosen = True  # the text belongs to this step

    def branch(self) -> None:
        """Make the branch and show it; where it cannot be, say why beside the button."""
        try:
            made = self._scene.run.fork(self.kept, **self._wishes())  # type: ignore[arg-type]  # a fraction is refused
        except (AgentlabError, ValueError, TypeError) as error:
            self.told.value = markup.fault(str(error))
            return
        self.told.value = ""
        self._scene.open(made)

    def _wishes(self) -> dict[str, Any]:
        """What is to be different, as `Run.fork` takes it."""
        wishes: dict[str, Any] = {}
        if self.model.value == ANOTHER_MODEL:
            if not self.other_model.value.strip():
                raise ConfigurationError("Model: write it as provider:model, such as openai:gpt-4.1-mini.")
            wishes["model"] = self.other_model.value.strip()
        elif self.model.value != THIS_AGENT:
            wishes["agent"] = self._scene.agents[self.model.value.removeprefix("agent ")]
        if self.prompt.value != without_keys(self._scene.run.prompt):
            wishes["prompt"] = self.prompt.value
        if self.message.value.strip():
            wishes["message"] = self.message.value
        results = {call_id: text for (at, call_id), text in self._edited.items() if at == self.kept}
        if results:
            wishes["tool_results"] = results
        return wishes


def results_of(run: Run, at: float) -> tuple[ToolResult, ...]:
    """What the tools of step `at` gave the model; nothing where there is no such step."""
    if not isinstance(at, int) or not 1 <= at <= len(run.history):
        return ()
    told = [message.tool_results for message in run.messages_of(at) if message.role == "tool"]
    return tuple(told[-1]) if told else ()


def _useful_steps(run: Run) -> int:
    """All steps; but where the model has had its say one less, since there is nothing to ask it without a new message."""
    completed = run.result is not None and run.result.stop_reason is StopReason.COMPLETED
    return max(0, len(run.history) - completed)


def _wide(**more: Any) -> widgets.Layout:
    return widgets.Layout(**_WIDE, **more)


def _column() -> widgets.Layout:
    return widgets.Layout(flex="1 1 24em", min_width="20em", max_width="46em")


FAMILY_HEADS = ("run", "forked", "what is different", "state", "steps", "tokens", "cost", "ended by")
_NUMBERS = (4, 5, 6)
_LONGEST_DIFFERENCE = 160


def family_table(members: Sequence[RunNode[Run]], shown: Run) -> str:
    """All runs of a family, each branch below the run that it was forked from; the one that is shown is marked."""
    heads = "".join(f'<th scope="col"{_align(place)}>{name}</th>' for place, name in enumerate(FAMILY_HEADS))
    rows = "".join(_row(member, member.run is shown) for member in members)
    return (
        '<table class="agentlab-steps agentlab-family" aria-label="This run and its branches">'
        f"<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"
    )


def _row(member: RunNode[Run], is_shown: bool) -> str:
    run, history = member.run, member.run.history
    model = f"{run.agent.model.name}:{run.agent.model.model}"
    indent = f"padding-left:{min(member.depth, 8) * 1.3:.1f}em"
    name = (
        f'<span style="{indent}">{"↳ " if member.depth else ""}<b>{member.name}</b></span> '
        f'<code class="agentlab-note">{html.escape(run.id[:6])}</code>'
    )
    mark = ' <b class="agentlab-here">◀ shown</b>' if is_shown else ""
    cells = (
        name + mark,
        _origin(member),
        markup.escape(markup.printable(differences_in_words(run) or model), _LONGEST_DIFFERENCE),
        html.escape(str(run.state)),
        str(len(history)),
        markup.tokens(history.tokens),
        markup.dollars(history.cost_usd),
        "" if run.result is None else html.escape(str(run.result.stop_reason)),
    )
    body = "".join(f"<td{_align(place)}>{cell}</td>" for place, cell in enumerate(cells))
    current = ' aria-current="true"' if is_shown else ""
    return f'<tr data-run="{html.escape(run.id, quote=True)}"{current}>{body}</tr>'


def _origin(member: RunNode[Run]) -> str:
    if member.parent is None:
        return ""
    if member.called_in is not None:
        return f"called by {member.parent.name} in step {member.called_in}"
    return f"from {member.parent.name} at step {member.forked_at}"


def differences_in_words(run: Run) -> str:
    """What is different from the run it was forked from, in words; empty for a run that is no branch."""
    if run.parent is None:
        return "" if run.caller is None else f"sub-agent {run.agent.name}"
    return "; ".join(differences(run)) or "nothing: the same again"


def family_line(member: RunNode[Run], others: int) -> str:
    """Which run is shown, where there are others: branches, and runs of sub-agents."""
    if member.parent is None:
        runs = "1 other run" if others == 1 else f"{others} other runs"
        said = f"Run <b>{member.name}</b>: the first of its family, with {runs} (see the tab Branches)."
    elif member.called_in is not None:
        where = f"called by run {member.parent.name} in step {member.called_in}"
        what = markup.escape(markup.printable(differences_in_words(member.run)), _LONGEST_DIFFERENCE)
        said = f"Run <b>{member.name}</b>: {what}, {where}."
    else:
        what = markup.escape(markup.printable(differences_in_words(member.run)), _LONGEST_DIFFERENCE)
        where = f"of run {member.parent.name} at step {member.forked_at}"
        said = f"Run <b>{member.name}</b>: a branch {where} — {what}."
    return f'<div class="agentlab-strip">{said}</div>'


def _align(place: int) -> str:
    return ' class="number"' if place in _NUMBERS else ""


class Lineage:
    """Empty while the run is the only one. It hears of every run of the family, also of branches that are made in code."""

    def __init__(self, scene: PanelState) -> None:
        self._scene = scene
        self._heard_of: dict[str, Run] = {}
        self.told = Html()
        self.back = widgets.Button(layout=widgets.Layout(width="auto"))
        self.back.on_click(lambda _: scene.do(self._go_back))
        self.view = widgets.HBox([self.told, self.back], layout=widgets.Layout(align_items="center", grid_gap="4px 12px"))
        self.view.layout.flex_flow = "row wrap"
        self.view.layout.display = "none"

    def show(self) -> bool:
        """Bring it up to date with the family."""
        family = family_of(self._scene.run)
        for member in family:
            self._listen_to(member.run)
        here = next(member for member in family if member.run is self._scene.run)
        self.view.layout.display = "none" if len(family) == 1 else None
        self.told.value = family_line(here, len(family) - 1)
        self.back.layout.display = "none" if here.parent is None else None
        if here.parent is not None:
            self.back.description = f"Back to run {here.parent.name}"
            self.back.tooltip = "Show the run that this one came from"
        return False

    def _listen_to(self, run: Run) -> None:
        if run.id in self._heard_of:
            return
        self._heard_of[run.id] = run
        redraw: Callable[[], None] = self._scene.redraw
        run.watch_forks(lambda branch: redraw())
        if run is not self._scene.run and run.result is None:  # the run_view hears its own
            run.observe(lambda event: redraw())

    def _go_back(self) -> None:
        parent = self._scene.run.parent or self._scene.run.caller
        if parent is not None:
            self._scene.open(parent)

"""The form that makes a branch: how many steps to keep, and what is to be different from there on."""

from __future__ import annotations

import threading
from typing import Any

import ipywidgets as widgets

from agentlab.errors import AgentlabError, ConfigurationError
from agentlab.redaction import without_keys
from agentlab.run import Run
from agentlab.types import StopReason, ToolResult
from agentlab.widgets import markup
from agentlab.widgets.drawing import is_drawing
from agentlab.widgets.fields import as_typed
from agentlab.widgets.scene import Scene
from agentlab.widgets.written import Html

THIS_AGENT, ANOTHER_MODEL = "", "another"
LONGEST_RESULT = 20_000
"""A longer tool result is not put into the page; what is typed takes its place."""

_STYLE = {"description_width": "11em"}
_WIDE = {"width": "auto", "min_width": "16em"}


class ForkForm:
    """Fields and a button. What cannot be is said beside the button, and nothing that was typed is lost."""

    def __init__(self, scene: Scene) -> None:
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
    told = [message.tool_results for message in run.timeline.messages_of(at) if message.role == "tool"]
    return tuple(told[-1]) if told else ()


def _useful_steps(run: Run) -> int:
    """All steps; but where the model has had its say one less, since there is nothing to ask it without a new message."""
    completed = run.result is not None and run.result.stop_reason is StopReason.COMPLETED
    return max(0, len(run.history) - completed)


def _wide(**more: Any) -> widgets.Layout:
    return widgets.Layout(**_WIDE, **more)


def _column() -> widgets.Layout:
    return widgets.Layout(flex="1 1 24em", min_width="20em", max_width="46em")

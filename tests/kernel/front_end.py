"""The browser's half of the widgets, simulated: models that mirror the kernel's widgets and send changes to them.

The rules are those of ipywidgets' own front end (`WidgetModel.sync` in @jupyter-widgets/base): a model sends one change
at a time; further ones are merged and sent when the kernel has reported "idle" for the previous one. A click is sent
at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .kernel import LiveKernel, Message, Request


@dataclass(slots=True)
class Model:
    """One widget as the browser knows it."""

    id: str
    state: dict[str, Any]
    under_way: Request | None = None
    held_back: dict[str, Any] = field(default_factory=dict)  # changes that wait for an "idle"


class FrontEnd:
    """The state and actions of a page with this kernel's widgets.

    `route` is the way of widget messages to the kernel. "main" is the main shell, used by front ends without
    subshells, such as JupyterLab before 4.4. "subshell" is one subshell for all widgets, JupyterLab's default since then
    (its setting commsOverSubshells: perCommTarget) if the kernel offers subshells; otherwise it is the main shell.
    """

    def __init__(self, kernel: LiveKernel, route: str = "main") -> None:
        self._kernel = kernel
        self.subshell = kernel.new_subshell() if route == "subshell" else None
        self.models: dict[str, Model] = {}
        self.news: list[Message] = []
        self._asked = 0
        kernel.listeners.append(self._read)

    def model(self, **traits: Any) -> Model:
        """The newest widget whose state has these values, such as `model(description="limit")`."""
        for model in reversed(self.models.values()):
            if all(model.state.get(name) == value for name, value in traits.items()):
                return model
        known = [model.state.get("description") or model.state.get("_model_name") for model in self.models.values()]
        raise LookupError(f"no widget has {traits}; the page has {known}")

    def change(self, model: Model, **traits: Any) -> None:
        """Change a control as a user does, throttled as in ipywidgets."""
        model.state.update(traits)
        model.held_back.update(traits)
        self._send_held_back(model)

    def click(self, model: Model) -> Request:
        """Press a button as a user does."""
        return self._send(model, {"method": "custom", "content": {"event": "click"}})

    def ask(self, run_id: str, do: str, **more: Any) -> Request:
        """Send a command as the page of a panel does."""
        page = self.model(_model_module="anywidget")
        self._asked += 1
        return self._send(page, {"method": "custom", "content": {"do": do, "id": self._asked, "run": run_id, **more}})

    def shown(self, run_id: str, name: str) -> Any:
        """The newest value of this field of a run that the page was sent; None if there is none."""
        found = [news["runs"][run_id][name] for news in self.news if name in news.get("runs", {}).get(run_id, {})]
        return found[-1] if found else None

    def _send_held_back(self, model: Model) -> None:
        if model.held_back and (model.under_way is None or model.under_way.idle):
            changes, model.held_back = model.held_back, {}
            model.under_way = self._send(model, {"method": "update", "state": changes, "buffer_paths": []})

    def _send(self, model: Model, data: Message) -> Request:
        return self._kernel.send("comm_msg", {"comm_id": model.id, "data": data}, subshell=self.subshell)

    def _read(self, message: Message) -> None:
        content = message["content"]
        match message["msg_type"]:
            case "comm_open" if content["target_name"] == "jupyter.widget":
                self.models[content["comm_id"]] = Model(content["comm_id"], dict(content["data"]["state"]))
            case "comm_msg" if content["comm_id"] in self.models:
                match content["data"]:
                    case {"method": "update", "state": state}:
                        self.models[content["comm_id"]].state.update(state)
                    case {"method": "custom", "content": {"kind": "news"} as news}:
                        self.news.append(news)
            case "comm_close":
                self.models.pop(content["comm_id"], None)
            case "status" if content["execution_state"] == "idle":
                for model in self.models.values():
                    self._send_held_back(model)

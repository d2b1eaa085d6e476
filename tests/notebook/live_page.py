"""A page of the panel without a browser: it puts the kernel's messages together as page/live.js does."""

from __future__ import annotations

import json
from typing import Any

from agentlab.agent import Run
from agentlab.notebook.panel.live_panel import Panel

Data = dict[str, Any]
NO_STEP: Data = {"words": "", "note": "", "tail": "", "blocks": [], "calls": [], "children": []}


class LivePage:
    """What a page shows of a panel. `messages` has all that arrived."""

    def __init__(self, panel: Panel, name: str = "page") -> None:
        self.panel, self.name = panel, name
        self.messages: list[Data] = []
        self.runs: dict[str, Data] = {}
        send = panel.widget.send

        def sent(content: Data, buffers: Any = None) -> None:
            send(content, buffers)
            if content["kind"] == "news" and content.get("page", name) == name:
                self._take(json.loads(json.dumps(content, allow_nan=False)))

        panel.widget.send = sent
        panel.carry_out({"do": "hello", "page": name})

    def ask(self, do: str, run: Run, **more: Any) -> Any:
        """Send a command and return the answer, as JSON."""
        return json.loads(json.dumps(self.panel.carry_out({"do": do, "run": run.id, **more}), allow_nan=False))

    def of(self, run: Run) -> Data:
        """What the page has of a run."""
        return self.runs[run.id]

    def steps(self, run: Run) -> list[Data]:
        """What the page has of the steps of a run, in order."""
        steps = self.of(run)["steps"]
        assert [*steps] == [*range(1, len(steps) + 1)]
        return [*steps.values()]

    def _take(self, message: Data) -> None:
        self.messages.append(message)
        whole = "page" in message
        for run_id, fields in message.get("runs", {}).items():
            if run_id not in self.runs and "id" not in fields:
                continue  # everything about it is on its way
            run = self.runs.setdefault(run_id, {"steps": {}, "marks": [], "live": None, "totals": {}})
            live, kept, readings = fields.pop("live", ...), fields.pop("kept", 0), fields.pop("readings", [])
            run["totals"] |= fields.pop("totals", {})
            run.update(fields)
            for row, now in zip(run["limits"], readings, strict=False):
                row |= dict(zip(("value", "share", "met"), now, strict=True))
            if kept:
                run["steps"] = {n: self.runs[run["parent"]]["steps"][n] for n in range(1, kept + 1)}
            if live is not ...:
                run["live"] = live and self._grown(run["live"], live)
        for run_id, rows in message.get("steps", {}).items():
            for row in rows if run_id in self.runs else ():
                self.runs[run_id]["steps"].setdefault(row["n"], {}).update(row)
        for run_id, marks in message.get("marks", {}).items():
            run = self.runs[run_id]
            run["marks"] = [*([] if whole else run["marks"]), *marks]

    @staticmethod
    def _grown(before: Data | None, new: Data) -> Data:
        fresh, first = new.pop("fresh", False), new.pop("first", 0)
        old = NO_STEP if fresh or before is None else before
        calls = [dict(call) for call in old["calls"]]
        for place, call in new.pop("calls", {}).items():
            calls[int(place) :] = [{**(calls[int(place)] if int(place) < len(calls) else {}), **call}, *calls[int(place) + 1 :]]
        blocks = [*old["blocks"][:first], *new.pop("blocks")] if "blocks" in new else old["blocks"]
        return {**old, **new, "calls": calls, "blocks": blocks}

"""A run as it stands for readers without a kernel: text, an HTML table, a picture."""

from __future__ import annotations

from typing import Any

from agentlab.run import Run
from agentlab.widgets import markup
from agentlab.widgets.answer import Said
from agentlab.widgets.curve import Curve
from agentlab.widgets.style import STYLE


def bundle(run: Run, curve: Curve, said: Said) -> dict[str, Any]:
    """The mime bundle. Times are left out, so that it is the same at every execution on recorded fixtures."""
    told = f"{run.result}" if run.result is not None else f"{run}"
    parts = (
        STYLE,
        markup.status(run, timing=False),
        markup.end(run.result),
        markup.answer_label(said),
        markup.answer(said) if said.text else "",
        markup.meters(run, timing=False),
        markup.steps(run),
    )
    return {
        "text/plain": markup.printable(f"{run.agent.name}: {told}\n{said}"),
        "text/html": f'<div class="agentlab-panel">{"".join(parts)}</div>',
        "image/png": curve.as_base64(),
    }

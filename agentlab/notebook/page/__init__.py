"""The page of runs as one HTML file: transcript, timeline, charts, limits and branches, without a kernel and without a network.

May import: `notebook.markup`, and what is below `notebook`.

    data         runs as plain JSON
    steps        their steps as plain JSON
    rich_text    texts and values as safe HTML
    step_detail  one step in full
"""

from __future__ import annotations

import base64
import hashlib
import html
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from agentlab._internal.formatting import counted
from agentlab._internal.redaction import text_of
from agentlab._internal.safe_text import AS_WRITTEN, cut, one_line
from agentlab.agent import Run
from agentlab.engine.run_tree import family_of
from agentlab.errors import ConfigurationError
from agentlab.notebook.page.data import as_json, page_data
from agentlab.notebook.page.steps import Shown

SCRIPTS = ("dom", "charts", "window", "transcript", "side", "seek", "diff", "controls", "inputs", "settings", "branching", "main")
"""The page's JavaScript in its order. The files share one scope."""


@cache
def script() -> str:
    """Return the JavaScript of the page as one text."""
    return "\n".join(map(_script, SCRIPTS))


@cache
def live_script() -> str:
    """Return the same as a module for a live widget."""
    return f"{script()}\n{_script('live')}\nexport default {{ render }};\n"


@cache
def browse_script(*, live: bool) -> str:
    """Return the JavaScript of the runs in a store: for a file, or as a module for a live widget."""
    more = f"{_script('live')}\nexport default {{ render: renderBrowse }};\n" if live else ""
    return f"{script()}\n{_script('grid')}\n{_script('browse')}\n{more}"


@cache
def label_script() -> str:
    """Return the JavaScript of the widget that labels answers."""
    return "\n".join(map(_script, ("dom", "main", "live", "label"))) + "\nexport default { render: renderLabel };\n"


def label_style() -> str:
    """Return its style sheet."""
    return style() + Path(__file__).with_name("label.css").read_text(encoding="utf-8")


def _script(name: str) -> str:
    return Path(__file__).with_name(f"{name}.js").read_text(encoding="utf-8")


@cache
def style() -> str:
    """Return the page's style sheet."""
    return "".join(Path(__file__).with_name(name).read_text(encoding="utf-8") for name in ("page.css", "widths.css"))


def page_html(runs: Sequence[Run], *, timing: bool = True, raw: bool | Iterable[int] = False) -> str:
    """Return the page of these runs and of their families; the first one is shown first. See `Run.to_html`."""
    if not isinstance(timing, bool):
        raise ConfigurationError(f"to_html(timing={timing!r}): pass True or False.")
    shown = Shown(timing, raw if isinstance(raw, bool) else _numbers(raw, runs))
    title = f"{runs[0].agent.name}: {cut(runs[0].prompt, 400)}" if len(runs) == 1 else counted(len(runs), "run")
    return document(title, {"agentlab-data": as_json(page_data(runs, title, shown))}, script())


def document(title: str, data: Mapping[str, str], code: str) -> str:
    """Return an HTML file with this data, as JSON for script elements by their ids, and a script that shows it."""
    code = f"\n{code}\n"
    hashed = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
    # `style` attributes set the sizes of bars; everything else is refused: another script, the network, forms, frames.
    policy = (
        f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{hashed}'; base-uri 'none'; "
        "form-action 'none'"
    )
    elements = "\n".join(f'<script type="application/json" id="{name}">{text}</script>' for name, text in data.items())
    return html_file(
        title,
        policy,
        style(),
        f"""<div class="agentlab-page {AS_WRITTEN}"></div>
<noscript>This page of agentlab shows its runs by a script, which is in the file. Open it in a browser that runs scripts.</noscript>
{elements}
<script>{code}</script>""",
    )


def html_file(title: str, policy: str, style_sheet: str, body: str) -> str:
    """Return a self-contained HTML file. `policy` is its content security policy; `body` is markup."""
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>{html.escape(one_line(title, 200))}</title>
<style>
{style_sheet}</style>
</head>
<body>
{body}
</body>
</html>
"""


def _numbers(raw: object, runs: Sequence[Run]) -> frozenset[int]:
    """Return the numbers of steps. Raises ConfigurationError for anything else, and for steps that no run has."""
    numbers: list[Any] = list(raw) if isinstance(raw, Iterable) and not isinstance(raw, str | bytes) else [None]
    if not all(isinstance(one, int) and not isinstance(one, bool) for one in numbers):
        such = raw if isinstance(raw, int) else 3
        raise ConfigurationError(
            f"to_html(raw={cut(text_of(raw, repr), 80)}): pass True for all steps, or the numbers of steps in a list, such as [{such}]."
        )
    longest = max(len(node.run.history) for run in runs for node in family_of(run))
    for one in numbers:
        if not 1 <= one <= longest:
            there = f"they are numbered from 1 to {longest}" if longest else "no step has been taken yet"
            raise ConfigurationError(f"to_html(raw={cut(repr(numbers), 80)}): there is no step {one}; {there}.")
    return frozenset(numbers)


def to_html(
    runs: Sequence[Run],
    path: str | os.PathLike[str] | None = None,
    *,
    timing: bool = True,
    raw: bool | Iterable[int] = False,
) -> str | Path:
    """Return the page as text; with a path write it there and return the path. See `Run.to_html`.

    Raises ConfigurationError for a folder that does not exist, for a path that is a folder, and for anything but a path.
    """
    return written(path, lambda: page_html(runs, timing=timing, raw=raw))


def written(
    path: str | os.PathLike[str] | None, page: Callable[[], str], *, method: str = "to_html", example: str = "run.html"
) -> str | Path:
    """Return the page as text; with a path write it there and return the path. The path is checked before the page is made. Errors
    name the `method`, and give the `example` of a file."""
    if path is None:
        return page()
    try:
        file = Path(path).expanduser()
        is_path = bool(os.fspath(path)) and "\0" not in str(file)
    except (TypeError, RuntimeError):  # bytes; a home folder that is not known
        is_path = False
    if not is_path:
        raise ConfigurationError(f"{method}({cut(text_of(path, repr), 80)}): name a file, such as {method}({example!r}).")
    if file.is_dir():
        raise ConfigurationError(
            f"{method}({os.fspath(path)!r}): that is a folder; name a file in it, such as {str(file / example)!r}."
        )
    if not file.parent.is_dir():
        raise ConfigurationError(f"{method}({os.fspath(path)!r}): there is no folder {str(file.parent)!r}; make it first.")
    file.write_text(page(), encoding="utf-8", newline="\n")
    return file

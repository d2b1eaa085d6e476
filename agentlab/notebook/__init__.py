"""The notebook interface: panel, explorer, browser, cards and magics. The only importer of ipywidgets, anywidget and IPython.

May import: `experiments` and what is below it; not `serving`.

    markup     pieces of HTML
    live_view  display of a live view, with a copy for readers without a kernel
    redrawer   redraws a live view soon after each change
    page       `run.to_html()`
    report     `results.report()`
    panel      `run.panel()`, `lab.panel`
    explorer   `lab.explore`
    browse     `lab.browse`
    label      `lab.label`
    cards      the display of each public value
    magics     `%load_ext agentlab`
    course     `python -m agentlab lab`
"""

__all__ = [
    "markup",
    "live_view",
    "redrawer",
    "page",
    "report",
    "panel",
    "explorer",
    "browse",
    "label",
    "cards",
    "magics",
    "course",
]

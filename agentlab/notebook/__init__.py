"""The notebook interface: cards, the panel, the explorer, and the magics. The only importer of ipywidgets, anywidget and IPython.

May import: `experiments` and what is below it; not `serving`.

    cards     the display of each public value
    panel     `run.panel()`, `lab.panel`
    page      `run.to_html()`
    explorer  `lab.explore`
    browse    `lab.browse`
    magics    `%load_ext agentlab`
"""

__all__ = ["cards", "panel", "page", "explorer", "browse", "magics"]

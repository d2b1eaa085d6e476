"""Configuration of the documentation site: `make docs` builds it into build/docs from pages, notebooks and docstrings.

The source directory is the repository, so that a link between a notebook, CHANGELOG.md and a page here is the same on the site and on
a code host. Only files that match `include_patterns` are read.
"""

from __future__ import annotations

import gc
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

import agentlab  # noqa: E402

# The trees of all pages live to the end: to visit them again and again takes a fifth of a build.
gc.set_threshold(100_000, 50, 1_000)

project = "agentlab"
author = "the agentlab authors"
project_copyright = "the agentlab authors. MIT licence"
version = release = agentlab.__version__
language = "en"

extensions = ["myst_nb", "sphinx.ext.autodoc", "house_style", "public_names", "drawn_plots", "plain_pages"]
root_doc = "docs/index"
include_patterns = [
    "docs/**.md",
    "docs/**.rst",
    "notebooks/*.ipynb",
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "fixtures/README.md",
]
exclude_patterns = [".*", "build", "test-output", "demo-output", "tests", "agentlab", "**/.ipynb_checkpoints"]

# Notebooks: committed outputs are shown, nothing is executed.
nb_execution_mode = "off"
nb_merge_streams = True
nb_mime_priority_overrides = [("html", "image/png", 0), ("html", "text/html", 10)]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
nb_ipywidgets_js = {}  # no external script: the outputs are tables and pictures

suppress_warnings = ["misc.highlighting_failure"]  # `…` marks omitted code

# Docstrings
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
autodoc_member_order = "bysource"
add_module_names = False
maximum_signature_line_length = 88
toc_object_entries_show_parents = "hide"

# Look
html_theme = "furo"
html_title = "agentlab"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_favicon = "_static/favicon.svg"
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {"navigation_with_keys": True}
pygments_style = "a11y-high-contrast-light"
pygments_dark_style = "a11y-high-contrast-dark"


def setup(app: Any) -> None:
    """Keep the README out of the search, since it summarises other pages, and write the entry page."""
    app.connect("doctree-read", lambda app, _: app.env.metadata["README"].update(nosearch=True))
    app.connect("build-finished", _write_entry_page)


def _write_entry_page(app: Any, error: Exception | None) -> None:
    """Write an index.html at the root of the site that redirects to the first page below docs/."""
    if error is None and app.builder.name == "html":
        head = '<!doctype html><meta charset="utf-8"><title>agentlab</title><link rel="icon" href="_static/favicon.svg">'
        to = '<meta http-equiv="refresh" content="0; url=docs/index.html"><a href="docs/index.html">agentlab</a>'
        Path(app.outdir, "index.html").write_text(f"{head}{to}\n", encoding="utf-8")


# `make docs-links`, which needs a network
linkcheck_ignore = [r"https?://(127\.0\.0\.1|localhost)\b.*"]
linkcheck_timeout = 20

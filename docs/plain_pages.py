"""Writes each page of the site as Markdown too, beside its HTML, and `llms.txt`, an index of them for programs that read documentation.

`docs/howto/tools.html` is also `docs/howto/tools.md`. Pages keep their source; notebooks become text and code; a page of the reference
has the signatures and docstrings of its names.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from public_names import NOT_CALLED, members, public_names

SUMMARY = (
    "agentlab runs LLM agents one step at a time in a notebook: edit limits while they run, see why they stopped, get every step as a "
    "row of a DataFrame, compare providers. Everything works on recorded responses. Install: pip install agentlab-jupyter. "
    "Use: import agentlab as lab."
)

_DIRECTIVE = re.compile(r"^(`{3,}|:{3,})\{(\w+)\}(.*?)\n(.*?)^\1\n?", re.MULTILINE | re.DOTALL)
_NAMES = re.compile(r"^\.\. public-names::((?: +\S+)*(?:\n +\S+)*)", re.MULTILINE)
_LINK = re.compile(r"(\]\((?!\w+:)[^)#\s]+)\.(?:ipynb|rst)(?=[)#])")


def as_markdown(path: Path) -> str:
    """Return the source of a page, a notebook or a page of the reference as plain Markdown."""
    text = path.read_text(encoding="utf-8")
    made = {".md": _of_page, ".ipynb": _of_notebook, ".rst": _of_reference}[path.suffix](text)
    return _LINK.sub(r"\1.md", made).strip() + "\n"


def about(markdown: str) -> str:
    """Return the first sentence below the title, without links; for a page of the reference, the names that it documents."""
    first = [*re.split(r"\n\s*\n", markdown, maxsplit=2), ""][1].strip()
    if re.match(r"[A-Z`*(]", first) and not first.startswith("```") and not first.endswith(":"):
        plain = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(first.split()))
        return re.split(r"(?<=[.?])\s", plain)[0]
    names = re.findall(r"^### `lab\.([\w.]+)", markdown, re.MULTILINE)
    return f"{', '.join(names)}." if names else ""


def _of_page(text: str) -> str:
    text = re.sub(r"\A---\n.*?^---\n", "", text, flags=re.MULTILINE | re.DOTALL)
    return _DIRECTIVE.sub(_of_directive, text)


def _of_directive(found: re.Match[str]) -> str:
    """Return a picture or the content of a box as Markdown; tables of contents are left out."""
    _, kind, argument, content = found.groups()
    options = dict(re.findall(r"^:(\w+): (.*)$", content, re.MULTILINE))
    if kind in ("image", "figure"):
        return f"![{options.get('alt', '')}]({argument.strip()})\n"
    return "" if kind == "toctree" else re.sub(r"^:\w+:.*\n", "", content, flags=re.MULTILINE)


def _of_notebook(text: str) -> str:
    cells = json.loads(text)["cells"]
    sources = [("".join(cell["source"]), cell["cell_type"]) for cell in cells]
    return "\n\n".join(
        source if kind == "markdown" else f"```python\n{source}\n```" for source, kind in sources if source.strip()
    )


def _of_reference(text: str) -> str:
    """Return titles, texts and the documented names of a page in reStructuredText."""
    text = re.sub(r"^(.+)\n=+$", r"# \1", text, flags=re.MULTILINE)
    text = re.sub(r"^(.+)\n-+$", r"## \1", text, flags=re.MULTILINE)
    text = re.sub(r"^\.\. automodule:: (\S+)", lambda found: _docstring(import_module(found[1])), text, flags=re.MULTILINE)
    return _NAMES.sub(lambda found: "\n\n".join(part for name in found[1].split() for part in _of_name(name)), text)


def _of_name(name: str) -> Iterator[str]:
    """Yield a heading with the signature and the docstring, for a name and for its methods and properties."""
    value = public_names()[name]
    yield f"### `lab.{name}{'' if name in NOT_CALLED else _signature(value)}`\n\n{_docstring(value)}"
    for member in members(name):
        inner = inspect.getattr_static(value, member)
        inner = getattr(inner, "__func__", inner)
        yield f"#### `{name.rpartition('.')[2]}.{member}{_signature(inner)}`\n\n{_docstring(inner)}"


def _signature(value: object) -> str:
    try:
        signature = str(inspect.signature(value)) if callable(value) else ""
    except ValueError:  # an enum, an error
        return ""
    return re.sub(r"(: |-> )'([^']*)'", r"\1\2", signature)  # annotations are texts


def _docstring(value: object) -> str:
    return f"```text\n{inspect.getdoc(value) or ''}\n```"


def index(pages: dict[str, str], titles: dict[str, str], sections: dict[str, list[str]]) -> str:
    """Return llms.txt: title, summary, and the pages of each section with what they are about."""
    lines = ["# agentlab", "", f"> {SUMMARY}"]
    for caption, names in sections.items():
        lines += ["", f"## {caption}", ""]
        for name in names:
            text = about(pages[name])
            lines.append(f"- [{titles[name]}]({name}.md)" + (f": {text}" if text else ""))
    return "\n".join(lines) + "\n"


def setup(app: Any) -> dict[str, bool]:
    """Write the files at the end of a build of the site, and name each page's Markdown in its head."""
    from sphinx import addnodes

    def below(env: Any, name: str) -> Iterator[str]:
        """Yield a page and the pages in its tables of contents, depth first."""
        yield name
        for inner in env.toctree_includes.get(name, ()):
            yield from below(env, inner)

    def sections(env: Any) -> dict[str, list[str]]:
        trees = env.get_doctree(app.config.root_doc).findall(addnodes.toctree)
        return {tree["caption"]: [page for entry in tree["includefiles"] for page in below(env, entry)] for tree in trees}

    def write(app: Any, error: Exception | None) -> None:
        if error is not None or app.builder.name != "html":
            return
        pages = {name: as_markdown(Path(app.env.doc2path(name))) for name in app.env.found_docs}
        for name, markdown in pages.items():
            Path(app.outdir, f"{name}.md").write_text(markdown, encoding="utf-8")
        titles = {name: title.astext() for name, title in app.env.titles.items()}
        Path(app.outdir, "llms.txt").write_text(index(pages, titles, sections(app.env)), encoding="utf-8")

    def mention(app: Any, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
        if doctree is not None:
            file = f"{page.rpartition('/')[2]}.md"
            context["metatags"] = context.get("metatags", "") + f'<link rel="alternate" type="text/markdown" href="{file}">'

    app.connect("build-finished", write)
    app.connect("html-page-context", mention)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

"""The public names of agentlab, and the directive that documents them: `.. public-names:: Agent Run errors.LimitError`.

The public names are those in `agentlab.__all__`, those without an underscore in its public modules, and the methods and properties of
their classes. The names in `INNER` are excluded: they are for other files of agentlab and may change at any time.
"""

from __future__ import annotations

import enum
import inspect
import types
from collections.abc import Iterator, Mapping
from functools import cache, cached_property
from typing import Any

import agentlab

_PART = ("base64", "format", "from_jsonable", "is_held", "to_jsonable")

INNER: Mapping[str, tuple[str, ...]] = {
    "Agent": ("is_made_of_names", "known_terminating", "run_on", "settings_for", "through_middleware", "through_tool_middleware"),
    "Audio": _PART,
    "Budget": ("remaining_within",),
    "Document": _PART,
    "Experiment": ("variant",),
    "Image": _PART,
    "Message": ("all_parts",),
    "Reading": ("that_counts", "undecided"),
    "RunHistory": ("amend", "append", "counting"),
    "Store": ("follow_run", "state_of", "unsaved_run"),
    "Task": ("target_hash",),
    "Telemetry": ("follow_run",),
    "signals.SignalRegistry": ("reread",),
    "scorers.Code": ("needs_target",),
    "scorers.Matches": ("needs_target",),
    "scorers.ToolUse": ("needs_target",),
    "storage.SqliteStorage": ("announce_columns", "excerpts", "keep_columns", "kept_columns", "together"),
    "plots.PlotAxes": ("set",),
    "plots.PlotFigure": ("bundle", "set"),
    "providers.Dialect": ("says_nothing", "table_of"),
    "testing.Faulty": ("needs_key", "open", "run_continues", "run_ended"),
    "testing.ScriptedProvider": ("respond",),
}  # fmt: skip

_CONTRACTS = (agentlab.testing.ProviderContract, agentlab.testing.StorageContract)
"""Classes whose methods are tests: pytest finds them, users do not call them."""

_ALIKE = (agentlab.StopCondition, agentlab.testing.faults.Fault, *_CONTRACTS)
"""Classes whose subclasses have the same methods: the methods are shown once, at the base class."""

_FULFILS: Mapping[str, str] = {
    "providers.ChatCompletions": "providers.Provider",
    "providers.Responses": "providers.Provider",
    "storage.MemoryStorage": "storage.Storage",
    "storage.SqliteStorage": "storage.Storage",
}
"""Classes that implement a protocol: the methods are shown at the protocol."""

NOT_CALLED = (
    "Run", "RunDiff", "ExperimentResults", "Provenance", "Verification",
    "plots.PlotAxes", "plots.PlotFigure", "providers.Provider", "providers.Signer",
    "providers.StreamParser", "storage.Storage", "testing.Faulty", "testing.ProviderContract", "testing.StorageContract",
)  # fmt: skip
"""Classes that users do not call: functions create their objects, so the reference shows no arguments."""


@cache
def public_names() -> dict[str, Any]:
    """Return every public name below `agentlab.` with its value."""
    found: dict[str, Any] = {}
    for name in agentlab.__all__:
        value = getattr(agentlab, name)
        if not isinstance(value, types.ModuleType):
            found[name] = value
            continue
        found |= {f"{name}.{inner}": one for inner, one in _names_of(value)}
    for name, value in _names_of(agentlab.testing.faults):
        found[f"testing.faults.{name}"] = value
    return found


def _names_of(module: types.ModuleType) -> Iterator[tuple[str, Any]]:
    for name in getattr(module, "__all__", None) or [each for each in vars(module) if not each.startswith("_")]:
        value = getattr(module, name)
        if isinstance(value, types.ModuleType) or not callable(value) or getattr(value, "__origin__", None) is not None:
            continue
        if hasattr(module, "__all__") or value.__module__ in (module.__name__, f"{module.__name__}.{name}"):
            yield name, value


def top_level_name(name: str) -> str | None:
    """Return the top-level name of a module's name that `agentlab` itself exports too, else None. The reference shows it there."""
    module, _, last = name.rpartition(".")
    return last if module and last in agentlab.__all__ and getattr(agentlab, last) == public_names()[name] else None


def members(name: str) -> list[str]:
    """Return the public methods and properties of a class, unordered."""
    value = public_names()[name]
    if not inspect.isclass(value) or issubclass(value, (enum.Enum, BaseException, *_CONTRACTS)):
        return []
    if issubclass(value, _ALIKE) and value not in _ALIKE:
        return []
    elsewhere = {*INNER.get(name, ()), *(dir(public_names()[_FULFILS[name]]) if name in _FULFILS else ())}
    return [each for each in dir(value) if not each.startswith("_") and each not in elsewhere and _is_offered(value, each)]


def _is_offered(cls: type, name: str) -> bool:
    owner = next(each for each in cls.__mro__ if name in vars(each))
    if not owner.__module__.startswith("agentlab"):
        return False
    value = vars(owner)[name]
    if isinstance(value, property):
        return "<locals>" not in getattr(value.fget, "__qualname__", "")  # generated fields
    return isinstance(value, types.FunctionType | classmethod | staticmethod | cached_property)


def everything() -> dict[str, Any]:
    """Return every public name with its methods and properties (`Run.fork`), each once."""
    found: dict[str, Any] = {}
    for name, value in public_names().items():
        if top_level_name(name) is None:
            found[name] = value
            found |= {f"{name}.{member}": inspect.getattr_static(value, member) for member in members(name)}
    return found


@cache
def _targets() -> dict[str, str]:
    names = {name: f"agentlab.{name}" for name in everything()}
    names |= {name: f"agentlab.{shown}" for name in public_names() if (shown := top_level_name(name))}
    return (
        names
        | {f"agentlab.{name}": target for name, target in names.items()}
        | {f"lab.{name}": target for name, target in names.items()}
    )


def link_to(code: str) -> str | None:
    """Return the link target of code in a text, such as `Run.fork`, `lab.detect` or `run.fork(…)`; None if it is not public."""
    name = code.partition("(")[0]
    if name[:1].islower() and "." in name and not name.startswith(("lab.", "agentlab.")):
        name = _OBJECTS.get(name.partition(".")[0], "?") + "." + name.partition(".")[2] if name not in _targets() else name
    elif name[:1].islower() and "." not in name:
        return None  # `stop`, `panel`: more often an argument than a function
    return _targets().get(name)


_OBJECTS = {
    "run": "Run", "result": "RunResult", "step": "StepResult", "agent": "Agent", "store": "Store", "study": "Experiment",
    "chat": "Chat", "results": "ExperimentResults", "history": "RunHistory", "budget": "Budget",
}  # fmt: skip


# For Sphinx -----------------------------------------------------------------------------------------------------------------


@cache
def _by_target() -> dict[str, dict[str, None]]:
    """Return public names by what a signature calls them, so that a type in it becomes a link: by the module and name of their
    definition, by that name alone, and by the public name itself.
    """
    found: dict[tuple[str, str], str] = {}
    for name, value in everything().items():
        module, inner = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
        if module and inner:
            found.setdefault((module, inner), f"agentlab.{name}")
    targets: dict[str, dict[str, None]] = {}
    for (module, inner), public in found.items():
        for target in (f"{module}.{inner}", inner, public, public.removeprefix("agentlab.")):
            targets.setdefault(target, {})[public] = None
    return targets


def _resolve(app: Any, env: Any, node: Any, contnode: Any) -> Any:
    """Resolve a reference such as `agentlab.agent.Run` or `Run` in a signature. Names from other packages stay plain text."""
    if node.get("refdomain") != "py":
        return None
    target: str = node["reftarget"]
    for public in _by_target().get(target, ()):
        shown = env.get_domain("py").objects.get(public)
        if shown is not None:
            from sphinx.util.nodes import make_refnode

            return make_refnode(app.builder, node["refdoc"], shown.docname, shown.node_id, contnode, public)
    if node.get("refexplicit") or (target.startswith("agentlab.") and target.count(".") == 1):
        return None  # written by hand: it has to exist
    return contnode


def _link_code(app: Any, doctree: Any) -> None:
    """Turn code in a page, such as `lab.Store`, into a link. The source has no markup, so that it is readable on a code host."""
    from docutils import nodes
    from sphinx.addnodes import pending_xref

    if not app.env.docname.startswith(("docs/howto/", "docs/concepts/")):
        return
    for code in list(doctree.findall(nodes.literal)):
        target = link_to(code.astext())
        if target is not None and isinstance(code.parent, nodes.paragraph | nodes.strong | nodes.emphasis):
            linked = pending_xref("", refdomain="py", reftype="obj", reftarget=target, refdoc=app.env.docname, refwarn=True)
            code.replace_self(linked)
            linked += code


def _signature(*event: Any) -> tuple[str, str] | None:
    name = event[2]
    return ("", "") if name.removeprefix("agentlab.") in NOT_CALLED else None


def setup(app: Any) -> dict[str, bool]:
    """Register the directive `public-names`, and links in signatures and texts."""
    from sphinx.util.docutils import SphinxDirective

    class PublicNames(SphinxDirective):
        """Show the docstrings of these names and of their members."""

        required_arguments = 1
        final_argument_whitespace = True
        has_content = False

        def run(self) -> list[Any]:
            lines: list[str] = []
            for name in self.arguments[0].split():
                value = public_names().get(name)
                if value is None:
                    raise self.error(f"public-names: agentlab has no public name {name!r}.")
                kind = "class" if inspect.isclass(value) else "function"
                lines += [f".. auto{kind}:: agentlab.{name}"]
                if members(name):
                    lines += [f"   :members: {', '.join(members(name))}"]
                lines += [""]
            return self.parse_text_to_nodes("\n".join(lines))

    app.add_directive("public-names", PublicNames)
    app.connect("missing-reference", _resolve)
    app.connect("doctree-read", _link_code)
    app.connect("autodoc-process-signature", _signature)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

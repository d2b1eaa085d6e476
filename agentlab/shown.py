"""Values that a notebook shows as a small table beside their repr. `agentlab.notebook.display` makes it and is loaded on first use."""

from __future__ import annotations

from importlib import import_module


class Shown:
    """Gives a class its rich display: text and HTML, short, escaped and without keys. `repr` stays what it is."""

    __slots__ = ()

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        bundle: dict[str, str] = import_module("agentlab.notebook.display").bundle(self)
        return bundle

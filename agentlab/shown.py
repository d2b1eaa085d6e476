"""Base class of values that a notebook displays as a small table, made by `agentlab.cards`."""

from __future__ import annotations

from importlib import import_module


class Shown:
    """Adds a rich display: text and HTML, short, escaped and without keys. `repr` does not change."""

    __slots__ = ()

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        bundle: dict[str, str] = import_module("agentlab.notebook.display").bundle(self)
        return bundle

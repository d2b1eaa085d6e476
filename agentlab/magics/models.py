"""The models that a `provider:model` can name: those of the price book, which comes with a package, and those used in this session."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentlab.pricing import models_of
from agentlab.providers import registry


def providers() -> tuple[str, ...]:
    """The names of all providers."""
    return registry.names()


def used(names: Mapping[str, Any]) -> set[str]:
    """`provider:model` of the agents among these variables."""
    from agentlab.agent import Agent

    models = [value.model for value in tuple(names.values()) if isinstance(value, Agent)]
    return {f"{model.name}:{model.model}" for model in models if model.name in providers()}


def fitting(begun: str, names: Mapping[str, Any]) -> list[str]:
    """What `begun` can become: providers with a colon, and behind the colon their models."""
    name, colon, _ = begun.partition(":")
    if not colon:
        return [f"{one}:" for one in providers() if one.startswith(begun)]
    bare, _ = registry.split_version(name)
    if bare not in providers():
        return []
    whole = {f"{name}:{model}" for model in models_of(bare)} | used(names)
    return sorted(one for one in whole if one.startswith(begun))

"""The request of one call to a model: the conversation, the tools and the options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from agentlab._internal.redaction import redacted_repr
from agentlab.model.messages import JSON, Message

# Requests --------------------------------------------------------------------------------------------------------------------


@redacted_repr
@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as a model sees it. `parameters` is a JSON schema of type object, `parameters_json` the same as text."""

    name: str
    description: str
    parameters: Mapping[str, JSON]
    parameters_json: str


@redacted_repr
@dataclass(frozen=True, slots=True)
class ModelRequest:
    """A request to a model, independent of the provider.

    `messages` is read-only, and may be a view of fixed length on a growing conversation. With `max_output_tokens` None the provider's
    default cap applies. `options` are fields that are merged into the top level of the provider's request body.
    """

    messages: Sequence[Message]
    instructions: str = ""
    tools: tuple[ToolSpec, ...] = ()
    max_output_tokens: int | None = None
    options: Mapping[str, JSON] = field(default_factory=dict)
    stream: bool = False

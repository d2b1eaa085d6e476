"""Transports: send requests to the provider, record the responses, or replay them from a recording.

`selection` chooses the transport of a run (`lab.record`, `lab.replay`, `current()`); `live` is the only user of httpx; `recording` and
`replaying` write and serve cassettes, whose format is in `cassette` and `cassette_format`.
Imports `_internal`, errors, model and limits only.
"""

from typing import TYPE_CHECKING, Any

from agentlab.transport.selection import Record, Replay, Switch, Transport, current, is_chosen, record, replay

if TYPE_CHECKING:
    from agentlab.transport.live import LiveTransport, RecordTransport, ReplayTransport

__all__ = [
    "LiveTransport",
    "Record",
    "RecordTransport",
    "Replay",
    "ReplayTransport",
    "Switch",
    "Transport",
    "current",
    "is_chosen",
    "record",
    "replay",
]


def __getattr__(name: str) -> Any:
    """Import the transports built on httpx on first access."""
    if name in ("LiveTransport", "RecordTransport", "ReplayTransport"):
        from agentlab.transport import live

        return getattr(live, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

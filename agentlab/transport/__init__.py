"""Sends requests to a provider, records the responses, or answers requests from a recording.

May import: `errors`, `records` and what is below them.

    selection         `lab.record` and `lab.replay`: chooses the transport of a run
    http              requests and responses as plain values
    live              sends requests with httpx, over its own connections or with a user's client
    clients           record and replay in your own HTTP client, also inside a vendor's SDK
    recording         writes cassettes
    replaying         chooses the recorded response to a request, and explains a miss
    samples           the recordings that come with agentlab
    request_matching  decides whether two requests are the same, and describes their differences
    cassette          the format of cassettes: reads and checks their fields
    cassette_text     reads and writes the text of cassettes, YAML or JSON
    stream_redaction  removes keys from recorded streams
    aws_eventstream   reads and writes the binary event streams of Bedrock
"""

from typing import TYPE_CHECKING

from agentlab._internal.lazy import module_hooks
from agentlab.transport.selection import Record, Replay, Switch, Transport, current, is_chosen, record, replay

if TYPE_CHECKING:
    from agentlab.transport.clients import RecordTransport, ReplayTransport
    from agentlab.transport.live import LiveTransport

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

_CLIENTS = "agentlab.transport.clients"
_PLACES = {
    "LiveTransport": "agentlab.transport.live",
    "RecordTransport": _CLIENTS,
    "ReplayTransport": _CLIENTS,
}  # imported when used

if not TYPE_CHECKING:
    __getattr__, __dir__ = module_hooks(__name__, __all__, _PLACES)

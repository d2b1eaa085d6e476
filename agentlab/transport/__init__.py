"""The bytes of a request: sent to the provider, sent and recorded, or answered from a recording.

May import: `errors`, `records` and what is below them.

    selection         chooses the transport of a run: `lab.record`, `lab.replay`
    http              requests and responses as plain values
    live              the only user of httpx
    recording         writes cassettes
    replaying         chooses the recorded response to a request, and explains a miss
    request_matching  when two requests are the same, and what differs
    cassette          the format: what a cassette holds, and how it is read
    cassette_text     its text: YAML and JSON, read safely and written
    stream_redaction  removes keys from recorded streams
    aws_eventstream   binary event streams, as Bedrock's
"""

from typing import TYPE_CHECKING

from agentlab._internal.lazy import only
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

_HTTPX = "agentlab.transport.live"  # these load httpx, when one of them is first used
_PLACES = {"LiveTransport": _HTTPX, "RecordTransport": _HTTPX, "ReplayTransport": _HTTPX}

if not TYPE_CHECKING:
    __getattr__, __dir__ = only(__name__, __all__, _PLACES)

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

from agentlab._internal.names import module_hooks
from agentlab.transport.clients import RecordTransport, ReplayTransport
from agentlab.transport.selection import Record, Replay, Switch, Transport, current, is_chosen, record, replay

__all__ = [
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

if not TYPE_CHECKING:
    __getattr__, __dir__ = module_hooks(__name__, __all__)

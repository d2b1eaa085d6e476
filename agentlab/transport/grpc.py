"""Reads gRPC samples of xAI's SDK in cassettes as the equivalent HTTP interactions.

    - request_sample: {json, raw}           or request_stream
      response_sample: {json, raw}          or response_stream: {chunks_json: [{chunk}, …], chunks_raw}

Each is served as a POST to chat completions with the sample's JSON as its body; a stream as one event per chunk, and `[DONE]`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from agentlab.model.messages import JSON

ADDRESS = "https://api.x.ai/v1/chat/completions"


def as_http(entry: Mapping[str, JSON]) -> dict[str, JSON] | None:
    """Return the interaction in HTTP's form; None if it is not such a sample."""
    asked = _part(entry, "request_sample", "json") or _part(entry, "request_stream", "json")
    whole, chunks = _part(entry, "response_sample", "json"), _part(entry, "response_stream", "chunks_json")
    if not isinstance(asked, dict):
        return None
    if isinstance(whole, dict):
        kind, body = "application/json", _text(whole)
    elif isinstance(chunks, list):
        kind, body = (
            "text/event-stream",
            "".join(f"data: {_text(_unwrapped(chunk))}\n\n" for chunk in chunks) + "data: [DONE]\n\n",
        )
    else:
        return None
    request = {"method": "POST", "uri": ADDRESS, "body": _text(asked), "headers": {"content-type": ["application/json"]}}
    response = {"status": {"code": 200, "message": "OK"}, "headers": {"content-type": [kind]}, "body": {"string": body}}
    return {"request": request, "response": response, **({"lane": entry["lane"]} if "lane" in entry else {})}


def _part(entry: Mapping[str, JSON], name: str, key: str) -> JSON:
    part = entry.get(name)
    return part.get(key) if isinstance(part, dict) else None


def _unwrapped(chunk: JSON) -> JSON:
    return chunk["chunk"] if isinstance(chunk, dict) and isinstance(chunk.get("chunk"), dict) else chunk


def _text(value: JSON) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)

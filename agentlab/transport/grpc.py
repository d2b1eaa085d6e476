"""Cassettes that hold what xAI's SDK said and got over gRPC, as the HTTP that would have carried the same.

    - request_sample: {json, raw}           or request_stream
      response_sample: {json, raw}          or response_stream: {chunks_json: [{chunk}, …], chunks_raw}

Each is served as a POST to chat completions whose body is the sample's JSON; a stream as one event a chunk, and `[DONE]`. Whether a
provider understands the sample is the provider's affair.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from agentlab.types import JSON

ADDRESS = "https://api.x.ai/v1/chat/completions"


def as_http(entry: Mapping[str, JSON]) -> dict[str, JSON] | None:
    """The interaction as a cassette would hold it in HTTP; None where it is no sample of this kind."""
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

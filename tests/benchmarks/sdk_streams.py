"""The vendors' own clients reading a streamed answer from bytes. No HTTP: their readers get a response that holds the bytes."""
# mypy: disable-error-code="import-not-found,misc,no-any-return,unused-ignore,no-untyped-call"

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

import httpx2

from tests.benchmarks.streams import STREAMS

Reader = Callable[[list[bytes]], Callable[[], str]]
"""From the pieces to a function that reads them once and returns the text."""


def _response(pieces: list[bytes]) -> httpx2.Response:
    return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=iter(pieces))


@cache
def openai_client() -> Any:
    """A client that is never connected."""
    from openai import OpenAI

    return OpenAI(api_key="none")


def openai_chat(pieces: list[bytes]) -> Callable[[], str]:
    """Its Stream of chunks."""
    from openai import Stream
    from openai.types.chat import ChatCompletionChunk

    client = openai_client()
    stream = Stream[ChatCompletionChunk](cast_to=ChatCompletionChunk, response=_response(pieces), client=client)
    return lambda: "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)


def openai_responses(pieces: list[bytes]) -> Callable[[], str]:
    """Its Stream of events."""
    from openai import Stream
    from openai.types.responses import ResponseStreamEvent

    client, kind = openai_client(), "response.output_text.delta"
    stream: Any = Stream(cast_to=ResponseStreamEvent, response=_response(pieces), client=client)
    return lambda: "".join(event.delta for event in stream if event.type == kind)


def anthropic(pieces: list[bytes]) -> Callable[[], str]:
    """Its Stream of events."""
    from anthropic import Anthropic, Stream
    from anthropic.types import RawMessageStreamEvent

    client = Anthropic(api_key="none")
    stream: Any = Stream(cast_to=RawMessageStreamEvent, response=_response(pieces), client=client)
    return lambda: "".join(event.delta.text for event in stream if event.type == "content_block_delta")


def google(pieces: list[bytes]) -> Callable[[], str]:
    """Its segments, then the objects it makes of them."""
    import json

    from google.genai._api_client import HttpResponse
    from google.genai.models import _GenerateContentResponse_from_mldev as from_mldev
    from google.genai.types import GenerateContentResponse

    stream = HttpResponse({}, _response(pieces))

    def chunks() -> Iterator[GenerateContentResponse]:
        for segment in stream.segments():
            body = json.dumps(segment)  # as its `request_streamed` passes a segment on
            yield GenerateContentResponse._from_response(response=from_mldev(json.loads(body), None, None), kwargs={})

    return lambda: "".join(chunk.text or "" for chunk in chunks())


@cache
def converse_shapes() -> tuple[Any, Any, Any]:
    """Its parser, the shape of a whole response, and the shape of the stream's events."""
    import botocore.loaders
    from botocore.model import ServiceModel
    from botocore.parsers import EventStreamJSONParser, RestJSONParser

    service = ServiceModel(botocore.loaders.Loader().load_service_model("bedrock-runtime", "service-2"), "bedrock-runtime")
    stream = service.operation_model("ConverseStream").get_event_stream_output()
    return (RestJSONParser(), service.operation_model("Converse").output_shape, (EventStreamJSONParser(), stream))


def botocore(pieces: list[bytes]) -> Callable[[], str]:
    """Its EventStream."""
    from botocore.eventstream import EventStream

    class Body:
        def stream(self) -> Iterator[bytes]:
            yield from pieces

    parser, shape = converse_shapes()[2]
    events = EventStream(Body(), shape, parser, "ConverseStream")
    return lambda: "".join(event["contentBlockDelta"]["delta"]["text"] for event in events if "contentBlockDelta" in event)


SDKS: Mapping[str, tuple[str, Reader]] = {
    **dict.fromkeys(STREAMS, ("openai", openai_chat)),
    "openai-responses": ("openai", openai_responses),
    "anthropic": ("anthropic", anthropic),
    "gemini": ("google-genai", google),
    "bedrock": ("botocore", botocore),
}
"""By provider: the name of the client, and its reader."""

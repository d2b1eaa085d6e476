"""The vendors' own clients turning a parsed response into their typed object."""
# mypy: disable-error-code="import-not-found,misc,no-any-return,unused-ignore,no-untyped-call"

from collections.abc import Callable, Mapping
from typing import Any

from tests.benchmarks.sdk_streams import converse_shapes

Maker = Callable[[dict[str, Any]], object]
VALIDATED = ", validated"
"""Suffix of variants other than the client's own: pydantic's validation of the client's types."""


def openai_chat() -> dict[str, Maker]:
    """As the vendor's client does, and as pydantic would."""
    from openai._models import construct_type
    from openai.types.chat import ChatCompletion

    return {
        "openai": lambda body: construct_type(type_=ChatCompletion, value=body),
        "openai" + VALIDATED: ChatCompletion.model_validate,
    }


def openai_responses() -> dict[str, Maker]:
    """As the vendor's client does, and as pydantic would."""
    from openai._models import construct_type
    from openai.types.responses import Response

    return {"openai": lambda body: construct_type(type_=Response, value=body), "openai" + VALIDATED: Response.model_validate}


def anthropic() -> dict[str, Maker]:
    """As the vendor's client does, and as pydantic would."""
    from anthropic._models import construct_type
    from anthropic.types import Message

    return {"anthropic": lambda body: construct_type(type_=Message, value=body), "anthropic" + VALIDATED: Message.model_validate}


def google() -> dict[str, Maker]:
    """As the vendor's client does (which changes the body), and as pydantic would."""
    from google.genai.models import _GenerateContentResponse_from_mldev as from_mldev
    from google.genai.types import GenerateContentResponse

    return {
        "google-genai": lambda body: GenerateContentResponse._from_response(response=from_mldev(body, None, None), kwargs={}),
        "google-genai" + VALIDATED: GenerateContentResponse.model_validate,
    }


def botocore() -> dict[str, Maker]:
    """As botocore's parser does after the JSON is read: into plain dicts."""
    parser, shape, _ = converse_shapes()
    return {"botocore": lambda body: parser._parse_shape(shape, body)}


SDKS: Mapping[str, Callable[[], dict[str, Maker]]] = {
    "openai": openai_chat,
    "openrouter": openai_chat,
    "openai-responses": openai_responses,
    "anthropic": anthropic,
    "gemini": google,
    "bedrock": botocore,
}
"""By provider: variants of the vendor's library, by name."""

"""The synthetic fixtures of Bedrock satisfy the vendor's own library: its service model knows each request, body and frame."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from botocore.eventstream import EventStreamBuffer
from botocore.validate import ParamValidator

from agentlab.providers.bedrock import Bedrock
from agentlab.transport.aws_eventstream import CONTENT_TYPE
from agentlab.transport.cassette import Interaction, load_cassette

FOLDER = Path(__file__).parents[2] / "fixtures"
NOT_OF_THE_VENDOR = {"unknown-word", "throttled", "error-in-200", "torn-frame", "torn-metadata", "damaged-frame"}
FILES = [
    path
    for path in sorted(FOLDER.glob("*/bedrock*.yaml"))
    if path.stem.removeprefix("bedrock-").removesuffix("-stream") not in NOT_OF_THE_VENDOR
]
CASES = [
    pytest.param(one, id=f"{path.parent.name}/{path.stem}-{number}")
    for path in FILES
    for number, one in enumerate(load_cassette(path).interactions, 1)
]
MODEL = botocore.session.get_session().get_service_model("bedrock-runtime")
CONVERSE, STREAM = MODEL.operation_model("Converse"), MODEL.operation_model("ConverseStream")
PADDING = "p"  # unknown to the service model


def unknown(value: Any, shape: Any, path: str = "") -> list[str]:
    """Keys and enumeration values that the vendor's model does not know."""
    if shape.type_name == "structure" and not getattr(shape, "is_document_type", False):
        assert isinstance(value, dict), path
        found = [f"{path}.{name}" for name in value.keys() - shape.members.keys() - {PADDING}]
        found += [f"{path}.{name} is missing" for name in shape.required_members if name not in value]
        inside = [(shape.members[name], f"{path}.{name}", part) for name, part in value.items() if name in shape.members]
        return found + [what for member, place, part in inside for what in unknown(part, member, place)]
    if shape.type_name == "list":
        return [what for part in value for what in unknown(part, shape.member, f"{path}[]")]
    if shape.type_name == "string" and shape.enum and value not in shape.enum:
        return [f"{path}={value}"]
    return []


def test_there_are_at_least_20_fixtures():
    assert len(FILES) >= 20


@pytest.mark.parametrize("interaction", CASES)
def test_the_vendors_model_knows_requests_and_responses(interaction: Interaction):
    response = interaction.response
    if interaction.body:
        report = ParamValidator().validate({"modelId": "m", **json.loads(interaction.body)}, CONVERSE.input_shape)
        assert not report.has_errors(), report.generate_report()
    if response.headers["content-type"] == "application/json":
        assert unknown(json.loads(response.body), CONVERSE.output_shape) == []
        return
    shape = STREAM.output_shape.members["stream"]
    for name, payload in events(response.body, response.headers["content-type"]):
        assert unknown(payload, shape.members[name], name) == []


def events(body: bytes, kind: str) -> list[tuple[str, Any]]:
    if kind != CONTENT_TYPE:  # rewritten, one per line
        return [next(iter(json.loads(line).items())) for line in body.splitlines()]
    buffer = EventStreamBuffer()
    buffer.add_data(body)
    return [
        (message.headers.get(":event-type") or message.headers[":exception-type"], json.loads(message.payload))
        for message in buffer
    ]


def test_the_streamed_question_equals_the_whole_one():
    whole, streamed = (load_cassette(FOLDER / "question" / name).interactions for name in ("bedrock.yaml", "bedrock-stream.yaml"))
    for one, other in zip(whole, streamed, strict=True):
        parser = Bedrock(model="m").stream_parser()
        for piece in other.response.pieces():
            parser.feed(piece)
        expected = Bedrock(model="m").parse(json.loads(one.response.body))
        assert parser.finish() == expected.signal
        assert (parser.response().text, parser.response().usage) == (expected.text, expected.usage)
        assert parser.response().native == expected.native

"""Images, documents and audio on each wire. The vendors' own types and Bedrock's service model read what is sent."""

from __future__ import annotations

import asyncio
import base64
import copy
import json
from typing import Any

import botocore.session
import pydantic
import pytest
from botocore.validate import ParamValidator
from engine import server

import agentlab as lab
from agentlab.errors import ConfigurationError
from agentlab.model.finish_reasons import FinishReason
from agentlab.model.messages import Message, ModelRequest, ToolCall, ToolResult
from agentlab.model.parts import Part
from tests.model.test_parts import PDF, picture, sound

from .bodies import Answer, Call, whole

IMAGE, DOCUMENT, AUDIO = lab.Image(picture()), lab.Document(PDF, name="May.pdf"), lab.Audio(sound())
IMAGE_URL, DOCUMENT_URL = lab.Image("https://example.com/a.png"), lab.Document("https://example.com/a.pdf")
AUDIO_URL = lab.Audio("https://example.com/a.mp3")
PARTS = {"image": IMAGE, "document": DOCUMENT, "audio": AUDIO, "image url": IMAGE_URL, "document url": DOCUMENT_URL}
PARTS |= {"audio url": AUDIO_URL}

CHAT = ("openai", "azure", "openrouter", "xai", "compatible")
RESPONSES = ("openai-responses", "azure-responses", "openrouter-responses", "xai-responses", "compatible-responses")
WIRE = {"anthropic-foundry": "anthropic", "gemini-vertex": "gemini", "anthropic-vertex": "anthropic-vertex"}
ALL = (*CHAT, *RESPONSES, "anthropic", "gemini", "bedrock", *WIRE)

TAKEN = {
    "chat": ("image", "document", "audio", "image url"),
    "responses": ("image", "document", "image url", "document url"),
    "anthropic": ("image", "document", "image url", "document url"),
    "anthropic-vertex": ("image", "document"),
    "gemini": tuple(PARTS),
    "bedrock": ("image", "document", "audio"),
}
TAKEN_IN_RESULTS = {
    "chat": TAKEN["chat"],
    "responses": TAKEN["responses"],
    "anthropic": TAKEN["anthropic"],
    "anthropic-vertex": TAKEN["anthropic-vertex"],
    "gemini": ("image", "document", "image url", "document url"),
    "bedrock": ("image", "document"),
}


def wire_of(provider: str) -> str:
    return "responses" if provider in RESPONSES else "chat" if provider in CHAT else WIRE.get(provider, provider)


def body(provider: str, *messages: Message) -> Any:
    more = {"base_url": "https://example.com"} if provider.startswith(("azure", "compatible", "anthropic-foundry")) else {}
    more |= {"project": "p"} if provider.endswith("vertex") else {}
    made = lab.Provider(provider, model="m", **more)
    return json.loads(made.build_request(ModelRequest(messages)).body)


def with_result(*content: object) -> tuple[Message, ...]:
    call, result = ToolCall("call_1", "look", "{}"), ToolResult("call_1", "look", content)
    return Message("user", "Look."), Message("assistant", "", (call,)), Message("tool", tool_results=(result,))


def cases(taken: dict[str, tuple[str, ...]], *, wanted: bool) -> list[Any]:
    return [
        pytest.param(provider, part, id=f"{provider}-{name}")
        for provider in ALL
        for name, part in PARTS.items()
        if (name in taken[wire_of(provider)]) is wanted
    ]


# The vendors' types ----------------------------------------------------------------------------------------------------------


def same(kind: Any, value: Any) -> None:
    """The vendor's type reads the value, and knows each of its keys."""
    assert pydantic.TypeAdapter(kind).validate_python(copy.deepcopy(value)) == value


def check_chat(sent: Any) -> None:
    from openai.types.chat import ChatCompletionContentPartParam, ChatCompletionToolMessageParam

    for message in sent["messages"]:
        if message["role"] == "tool":
            same(ChatCompletionToolMessageParam, message)
        elif isinstance(message["content"], list):
            assert message["role"] == "user"
            for part in message["content"]:
                same(ChatCompletionContentPartParam, part)


def check_responses(sent: Any) -> None:
    from openai.types.responses import ResponseInputContentParam
    from openai.types.responses.response_input_param import FunctionCallOutput

    for item in sent["input"]:
        if item.get("type") == "function_call_output":
            same(FunctionCallOutput, item)
        elif isinstance(item.get("content"), list):
            assert item["role"] == "user"
            for part in item["content"]:
                same(ResponseInputContentParam, part)


def check_anthropic(sent: Any) -> None:
    from anthropic.types import DocumentBlockParam, ImageBlockParam, TextBlockParam

    kinds: dict[str, Any] = {"text": TextBlockParam, "image": ImageBlockParam, "document": DocumentBlockParam}
    for message in sent["messages"]:
        for block in message["content"] if isinstance(message["content"], list) else ():
            for inner in block["content"] if block["type"] == "tool_result" else [block]:
                if inner["type"] != "tool_use":
                    same(kinds[inner["type"]], inner)


def check_gemini(sent: Any) -> None:
    from google.genai import types as gemini

    for content in sent["contents"]:
        read = gemini.Content.model_validate(content)  # an unknown key is an error
        for part in read.parts or []:
            if part.inline_data is not None:
                assert part.inline_data.data in (IMAGE.data, PDF, AUDIO.data)


def check_bedrock(sent: Any) -> None:
    shape = botocore.session.Session().get_service_model("bedrock-runtime").shape_for("ConverseRequest")

    def decoded(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: base64.b64decode(part) if key == "bytes" else decoded(part) for key, part in value.items()}
        return [decoded(part) for part in value] if isinstance(value, list) else value

    report = ParamValidator().validate({"modelId": "m", **decoded(sent)}, shape)
    assert not report.has_errors(), report.generate_report()


CHECKS = {
    "chat": check_chat,
    "responses": check_responses,
    "anthropic": check_anthropic,
    "anthropic-vertex": check_anthropic,
    "gemini": check_gemini,
    "bedrock": check_bedrock,
}


@pytest.mark.parametrize(("provider", "part"), cases(TAKEN, wanted=True))
def test_vendors_read_the_parts_of_a_prompt(provider: str, part: Part) -> None:
    sent = body(provider, Message("user", ["Before", part, "and after."]))
    CHECKS[wire_of(provider)](sent)
    text = json.dumps(sent)
    assert (part.url or part.base64) in text
    assert text.index("Before") < text.index(part.url or part.base64) < text.index("and after.")
    assert part.text not in text


@pytest.mark.parametrize(("provider", "part"), cases(TAKEN_IN_RESULTS, wanted=True))
def test_vendors_read_the_parts_of_a_result(provider: str, part: Part) -> None:
    sent = body(provider, *with_result("Before", part, "and after."))
    CHECKS[wire_of(provider)](sent)
    assert json.dumps(sent).count(f'{part.url or part.base64}"') == 1


@pytest.mark.parametrize(("provider", "part"), cases(TAKEN, wanted=False))
def test_a_wire_refuses_what_it_does_not_take(provider: str, part: Part) -> None:
    with pytest.raises(ConfigurationError, match=r"cannot be sent: .* takes no (audio|URL)"):
        body(provider, Message("user", ["See", part]))


@pytest.mark.parametrize(("provider", "part"), cases(TAKEN_IN_RESULTS, wanted=False))
def test_a_wire_refuses_a_result_that_it_does_not_take(provider: str, part: Part) -> None:
    with pytest.raises(ConfigurationError, match=r"cannot be sent: .* takes (no|only)"):
        body(provider, *with_result(part))


@pytest.mark.parametrize("provider", ALL)
def test_text_without_parts_is_sent_as_before(provider: str) -> None:
    line = f"Is {IMAGE.text} a line?"
    assert line in json.dumps(body(provider, Message("user", line)))
    assert body(provider, *with_result("Two", "lines")) == body(provider, *with_result("Two\nlines"))


# Details ---------------------------------------------------------------------------------------------------------------------


def test_results_of_several_calls_are_followed_by_one_message_with_their_parts() -> None:
    results = tuple(ToolResult(name, "look", ["See", part]) for name, part in (("a", IMAGE), ("b", DOCUMENT), ("c", "nothing")))
    *tools, user = body("openai", Message("tool", tool_results=results))["messages"]
    assert [one["tool_call_id"] for one in tools] == ["a", "b", "c"]
    assert tools[0]["content"] == f"See\n{IMAGE.text}"
    assert [part.get("text") or part["type"] for part in user["content"]] == [IMAGE.text, "image_url", DOCUMENT.text, "file"]


def test_a_cached_prefix_ends_at_the_part() -> None:
    marked = lab.Image(picture(), cache_control="1h")
    prompt = Message("user", [marked, "What is this?"])
    (message,) = body("anthropic", prompt)["messages"]
    assert message["content"][0]["cache_control"] == {"type": "ephemeral", "ttl": "1h"}
    assert "cache_control" not in message["content"][1]
    check_anthropic(body("anthropic", prompt))
    (message,) = body("bedrock", prompt)["messages"]
    assert [next(iter(block)) for block in message["content"]] == ["image", "cachePoint", "text"]
    check_bedrock(body("bedrock", prompt))
    sent = body("bedrock", *with_result(marked))
    assert sent["messages"][-1]["content"][1] == {"cachePoint": {"type": "default", "ttl": "1h"}}
    check_bedrock(sent)
    for provider in [one for one in ALL if not wire_of(one).startswith(("anthropic", "bedrock"))]:
        assert "cache" not in json.dumps(body(provider, prompt)).replace(marked.base64, "")


def test_media_types_and_sizes_of_a_vendor() -> None:
    with pytest.raises(ConfigurationError, match=r"Gemini takes image/png, image/jpeg, image/webp, not image/gif\. Convert it"):
        body("gemini", Message("user", [lab.Image(picture("GIF"))]))
    with pytest.raises(ConfigurationError, match="takes audio/wav, audio/mp3, not audio/flac"):
        body("openai", Message("user", [lab.Audio(b"fLaC" + bytes(9))]))
    for provider, most in (("gemini", 50), ("openai", 50), ("openai-responses", 50)):
        with pytest.raises(ConfigurationError, match=rf"takes at most {most} MB for a document\. Make it smaller"):
            body(provider, Message("user", [lab.Document(PDF + bytes(most * 10**6))]))
    with pytest.raises(ConfigurationError, match=r"Anthropic takes at most 10 MB for an image\. Make it smaller"):
        body("anthropic", Message("user", [lab.Image(picture() + bytes(10**7))]))
    with pytest.raises(ConfigurationError, match=r"Gemini takes at most 104,857,600\. Images and files are a third larger"):
        body("gemini", Message("user", [lab.Document(PDF + bytes(4 * 10**7)), lab.Document(PDF + bytes(4 * 10**7 + 1))]))


def test_a_whole_request_is_as_large_as_the_vendor_takes_it() -> None:
    def size_of(count: int) -> int:
        request = ModelRequest((Message("user", [lab.Document(PDF + bytes(count * 3 - len(PDF) % 3))]),))
        return len(lab.Provider("anthropic", model="m").build_request(request).body)

    most = 1_000 + (32 * 2**20 - size_of(1_000)) // 4
    assert 32 * 2**20 - 4 < size_of(most) <= 32 * 2**20
    with pytest.raises(
        ConfigurationError, match=r"This request has 33,554,43\d bytes; Anthropic takes at most 33,554,432\. Images"
    ):
        size_of(most + 1)


def test_bedrock_gets_a_text_beside_a_document() -> None:
    (message,) = body("bedrock", Message("user", [DOCUMENT]))["messages"]
    assert [next(iter(block)) for block in message["content"]] == ["document", "text"]
    assert message["content"][1]["text"] == DOCUMENT.text
    (message,) = body("bedrock", Message("user", [IMAGE]))["messages"]
    assert [next(iter(block)) for block in message["content"]] == ["image"]


def test_a_result_that_the_wire_refuses_ends_the_run_and_nothing_is_lost() -> None:
    def speak() -> Part:
        """Speak."""
        return AUDIO

    asked = Answer(text=("Listen:",), calls=(Call("speak", {}),), finish=FinishReason.TOOL_CALLS)
    replies = [server.whole(whole("anthropic", answer)) for answer in (asked, Answer(text=("Fine.",)))]

    async def go(base: str) -> None:
        run = lab.Agent(lab.Provider("anthropic", model="m", base_url=base, api_key="k"), tools=[speak]).run("?")
        with pytest.raises(ConfigurationError, match="cannot be sent: Anthropic takes no audio"):
            await run
        assert run.result is not None
        assert (run.result.stop_reason, run.result.history[0].text) == (lab.StopReason.ERROR, "Listen:")
        (result,) = run.result.history[0].tool_results
        assert result.parts == (AUDIO,)
        branch = await run.fork(at=1, tool_results={result.call_id: "It is silence."})
        assert (branch.stop_reason, branch.text) == (lab.StopReason.COMPLETED, "Fine.")

    with server.serving(*replies) as served:
        asyncio.run(go(served.base))


def test_names_of_documents_that_bedrock_takes() -> None:
    other = lab.Document(PDF + b"2", name="Größe_(a).pdf")
    (message,) = body("bedrock", Message("user", [lab.Document(PDF), other]))["messages"]
    assert [block["document"]["name"] for block in message["content"][:2]] == [
        f"document {lab.Document(PDF).sha256[:8]}",
        f"Gr e (a) pdf {other.sha256[:8]}",
    ]


@pytest.mark.parametrize("role", ["system", "assistant"])
def test_only_a_user_has_parts(role: Any) -> None:
    with pytest.raises(ConfigurationError, match="only a user message has images and files"):
        Message(role, ["See", IMAGE])

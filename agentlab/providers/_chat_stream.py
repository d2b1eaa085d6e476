"""A stream of chat completion chunks, put together into the body that the whole answer would have been."""

from __future__ import annotations

from typing import Any

from agentlab.providers import _read as read
from agentlab.providers._chat_completions import REASONING_KEYS, Origin, content_text, read_body, read_signal
from agentlab.providers._signals import Ended, Facts
from agentlab.providers._stream import BodyParser
from agentlab.types import (
    JSON,
    ModelResponse,
    ReasoningDelta,
    SignalSeen,
    StreamEvent,
    TerminationSignal,
    TextDelta,
    ToolCallDelta,
)

_TOP = ("id", "object", "created", "model", "provider", "system_fingerprint", "service_tier")


class _Call:
    """One tool call as its pieces come in."""

    __slots__ = ("arguments", "id", "index", "more", "name", "number")

    def __init__(self, number: int, index: JSON) -> None:
        self.number = number
        self.index = index
        self.id = ""
        self.name = ""
        self.arguments: list[str] = []
        self.more: dict[str, Any] = {}


class ChatStreamParser(BodyParser):
    """The state of one stream of chunks."""

    def __init__(self, origin: Origin) -> None:
        self._origin = origin
        super().__init__()

    def _clear(self) -> None:
        self._body: dict[str, Any] = {}
        self._text: list[str] = []
        self._reasoning: dict[str, list[str]] = {}
        self._details: list[JSON] = []
        self._refusal: list[str] = []
        self._calls: list[_Call] = []
        self._finish: JSON = None
        self._native_finish: JSON = None

    def _take(self, name: bytes, chunk: dict[str, Any], told: list[StreamEvent]) -> None:
        choices = chunk.get("choices")
        if choices and type(choices) is list:
            choice = choices[0]
            if len(choices) > 1 or type(choice) is not dict or choice.get("index"):
                choice = next((item for item in choices if isinstance(item, dict) and not item.get("index")), None)
            if choice is not None:
                self._choice(choice, told)
        elif chunk.get("object") == "error":
            self._fail(chunk, told)
        body = self._body
        if "model" not in body:  # the first chunk tells all of them, as a rule
            for key in _TOP:
                if key not in body and chunk.get(key) is not None:
                    body[key] = chunk[key]
        if chunk.get("usage"):
            body["usage"] = chunk["usage"]
        elif "x_groq" in chunk and read.as_dict(chunk["x_groq"]).get("usage"):
            body["x_groq"] = chunk["x_groq"]

    def _choice(self, choice: dict[str, Any], told: list[StreamEvent]) -> None:
        delta = choice.get("delta") or choice.get("message")
        if type(delta) is dict:
            content = delta.get("content")
            if content:
                if type(content) is str:
                    self._text.append(content)
                    told.append(TextDelta(content))
                else:
                    self._parts(content, told)
            if len(delta) > 1 or not content:
                self._rest_of_delta(delta, told)
        finish = choice.get("finish_reason")
        if finish is None and len(choice) <= 4:  # index, delta, finish_reason, logprobs
            return
        if choice.get("native_finish_reason") is not None:
            self._native_finish = choice["native_finish_reason"]
        if choice.get("error"):
            self._fail(choice["error"], told)
        if isinstance(choice.get("usage"), dict):
            self._body["usage"] = choice["usage"]
        if finish == "" and self._finish is None:  # some servers send it in each chunk before the last
            self._finish = finish
        elif finish not in (None, "", self._finish):
            self._finish = finish
            told.append(SignalSeen(self._signal_now()))

    def _parts(self, content: JSON, told: list[StreamEvent]) -> None:
        """Content that comes as a list of parts."""
        text, thoughts = content_text(content)
        if thoughts:
            self._reasoning.setdefault("reasoning_content", []).append(thoughts)
            told.append(ReasoningDelta(thoughts))
        if text:
            self._text.append(text)
            told.append(TextDelta(text))

    def _rest_of_delta(self, delta: dict[str, Any], told: list[StreamEvent]) -> None:
        thought = ""
        for key, value in delta.items():
            if not value or key in ("content", "role"):
                continue
            if key == "tool_calls":
                for entry in read.as_list(value):
                    if isinstance(entry, dict):
                        self._call(entry, told)
            elif key in REASONING_KEYS:
                if isinstance(value, str):
                    self._reasoning.setdefault(key, []).append(value)
                    thought = thought or value
            elif key == "reasoning_details":
                self._details.extend(read.as_list(value))
            elif key == "refusal":
                if isinstance(value, str):
                    self._refusal.append(value)
            elif key == "function_call" and isinstance(value, dict):
                self._call({"index": 0, "function": value}, told)
        if thought:
            told.append(ReasoningDelta(thought))

    def _call(self, entry: dict[str, Any], told: list[StreamEvent]) -> None:
        function = read.as_dict(entry.get("function"))
        index, call_id, name = entry.get("index"), entry.get("id"), function.get("name")
        calls = self._calls
        if calls and calls[-1].index == index and not call_id and not name:
            call = calls[-1]
        else:
            call = self._which(index, call_id, name)
            if isinstance(call_id, str) and call_id:
                call.id = call_id
            if isinstance(name, str) and name and name != call.name:
                call.name += name
        piece = function.get("arguments")
        arguments = piece if isinstance(piece, str) else "" if piece is None else read.dumps(piece).decode()
        if arguments:
            call.arguments.append(arguments)
        if len(entry) > 3:
            call.more.update({key: value for key, value in entry.items() if key not in ("index", "id", "type", "function")})
        told.append(ToolCallDelta(call.number, call.id or f"call_{call.number + 1}", call.name, arguments))

    def _which(self, index: JSON, call_id: JSON, name: JSON) -> _Call:
        """The call that a piece belongs to. Most servers number the calls; some give all of them one number, or none."""
        for call in reversed(self._calls):
            if index is not None and call.index != index:
                continue
            if call_id and call.id:
                begins = call_id != call.id
            else:  # a name where arguments stand already: another call, unless a numbered one repeats its own name
                begins = bool(name) and bool(call.arguments) and (index is None or name != call.name)
            if not begins:
                return call
            break
        call = _Call(len(self._calls), index)
        self._calls.append(call)
        return call

    def _signal_now(self) -> TerminationSignal:
        """What can be said while the stream goes on."""
        return read_signal(
            self._finish,
            Facts(
                tool_calls=len(self._calls),
                complete_calls=all(read.is_json("".join(call.arguments) or "{}") for call in self._calls),
                answered=bool(self._text or self._calls),
                refused=bool(self._refusal),
                damaged=self._damaged,
                error=self._error,
                metadata={"native_finish_reason": self._native_finish} if isinstance(self._native_finish, str) else {},
            ),
            self._origin,
        )

    def _read(self, body: JSON, ended: Ended, damaged: bool) -> ModelResponse:
        return read_body(body, self._origin, ended=ended, damaged=damaged)

    def _assembled(self) -> dict[str, Any]:
        """The body of the same answer, not streamed."""
        message: dict[str, Any] = {"role": "assistant", "content": "".join(self._text) or None}
        if self._refusal:
            message["refusal"] = "".join(self._refusal)
        for key, pieces in self._reasoning.items():
            message[key] = "".join(pieces)
        if self._details:
            message["reasoning_details"] = self._details
        if self._calls:
            message["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": "".join(call.arguments)},
                    **call.more,
                }
                for call in self._calls
            ]
        choice: dict[str, Any] = {"index": 0, "message": message, "finish_reason": self._finish}
        if self._native_finish is not None:
            choice["native_finish_reason"] = self._native_finish
        return {**self._body, "choices": [choice]}

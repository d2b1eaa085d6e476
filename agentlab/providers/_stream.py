"""What all stream parsers share: bytes to chunks, chunks to a body, and the body read like a whole one."""

from __future__ import annotations

from pydantic_core import from_json

from agentlab.providers import _read as read
from agentlab.providers._incoming import Incoming
from agentlab.providers._signals import Ended, find_error
from agentlab.types import JSON, ModelResponse, SignalSeen, StreamEvent, TerminationSignal


class BodyParser:
    """The state of one stream. A wire says what a chunk adds (`_take`), what body came of it (`_assembled`), how
    that is read (`_read`), and what can be said of the end while the stream goes on (`_signal_now`)."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget everything, to be used for another stream."""
        self._incoming = Incoming()
        self._error: JSON = None
        self._done = False
        self._damaged = False
        self._torn = False
        self._response: ModelResponse | None = None
        self._clear()

    def feed(self, data: bytes) -> list[StreamEvent]:
        """Take the next bytes and tell what they add."""
        told: list[StreamEvent] = []
        for name, event in self._incoming.feed(data):
            if name or event == b"[DONE]":
                self._event(name, event, told)
                continue
            try:  # the short way for a plain chunk
                chunk = from_json(event)
            except ValueError:
                self._event(name, event, told)
                continue
            if type(chunk) is dict and "error" not in chunk:
                self._take(name, chunk, told)
            else:
                self._chunk(name, chunk, told)
        return told

    def finish(self) -> TerminationSignal:
        """The stream has ended: why."""
        return self.response().signal

    def response(self) -> ModelResponse:
        """What was put together from the stream."""
        if self._response is None:
            self._take_rest()
            body = self._assembled()
            if self._error is not None:
                body["error"] = self._error
            self._response = self._read(body, self._ended(), self._damaged)
        return self._response

    @property
    def sound(self) -> bool:
        """Whether the stream came to its own end with nothing lost; known after `finish`."""
        return not self._damaged and not self._torn and self._ended() != "unmarked"

    def _take_rest(self) -> None:
        """Take what was on its way. An event that was cut off there is how a stream breaks off (`_torn`), and no damage to what came
        before it."""
        damaged = self._damaged or self._incoming.damaged
        events, values = self._incoming.finish()
        for name, data in events:
            self._event(name, data, [])
        for value in values:
            self._chunk(b"", value, [])
        now = self._damaged or self._incoming.damaged
        self._torn = now and not damaged and not self._incoming.is_json
        self._damaged = now and not self._torn

    def _event(self, name: bytes, data: bytes, told: list[StreamEvent]) -> None:
        if data == b"[DONE]":
            self._done = True
            return
        try:
            chunk = read.loads(data)
        except ValueError:
            self._damaged = True
            if name == b"error":
                self._fail(data.decode("utf-8", "replace"), told)
            return
        self._chunk(name, chunk, told)

    def _chunk(self, name: bytes, chunk: JSON, told: list[StreamEvent]) -> None:
        if isinstance(chunk, dict):
            if chunk.get("error"):
                self._fail(chunk["error"], told)
            elif name == b"error":
                self._fail(find_error(chunk) or chunk or "error", told)
            self._take(name, chunk, told)
        else:
            self._damaged = True

    def _fail(self, error: JSON, told: list[StreamEvent]) -> None:
        if self._error is None:
            self._error = error
            told.append(SignalSeen(self._signal_now()))

    def _ended(self) -> Ended:
        return "marked" if self._done else "whole" if self._incoming.is_json else "unmarked"

    def _clear(self) -> None:
        raise NotImplementedError

    def _take(self, name: bytes, chunk: dict[str, JSON], told: list[StreamEvent]) -> None:
        raise NotImplementedError

    def _assembled(self) -> dict[str, JSON]:
        raise NotImplementedError

    def _read(self, body: JSON, ended: Ended, damaged: bool) -> ModelResponse:
        raise NotImplementedError

    def _signal_now(self) -> TerminationSignal:
        raise NotImplementedError

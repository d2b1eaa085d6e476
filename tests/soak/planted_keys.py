"""Planted keys, the places where they are planted, and the search for them.

The keys are made up and assembled from pieces, so that no scanner of the sources takes them for real ones.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from engine.call_builders import before_the_end, is_streamed, pieces
from engine.server import Asked, Reply, raw, status, stream, whole
from providers.bodies import Answer, Call
from providers.bodies import whole as body_of

import agentlab as lab
from agentlab.model.finish_reasons import FinishReason

WIRE = "openai"

SENT = "Zq81/mN4p+Xw77planted=="
"""The key of the provider, given as api_key=: of no known form, and encoded differently in JSON and URLs."""
IN_ENVIRONMENT = {
    "PLANTED_API_KEY": "e7Hc20vQplantedInTheEnvironment",
    "AZURE_OPENAI_API_KEY": "0f3c9a7715be4d08" + "a2c6d1e4f5b69788",
    "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/" + "K7MDENG/bPxRfiCYplanted321",
    "AWS_SESSION_TOKEN": "FwoGZXIv" + "YXdzEPlanted//////////wEaDMk3+9q8Lz1rT0bN5yK=",
}
KNOWN = {"api_key=": SENT, **IN_ENVIRONMENT}
LOOK_LIKE_KEYS = {
    "sk-": "sk-" + "proj-Planted0123456789abcdefXYZ",
    "AKIA": "AKIA" + "PLANTED234567XYZ",
    "AIza": "AIza" + "SyPlanted-0123456789abcdefghijk",
    "ghp_": "ghp_" + "planted0123456789ABCDEFGHIJ",
    "Bearer": "Bearer plantedOpaque.0123456789-abc",
    "JWT": "eyJ" + "hbGciOiJQbGFudGVk." + "eyJ" + "zdWIiOiJwbGFudGVkIn0.c2lnbmF0dXJlUGxhbnRlZA",
    "private key": "-----BEGIN RSA "
    + "PRIVATE KEY-----\nMIIEpAIBAAKCAQEAplanted0123456789\nabcdefgh==\n-----END RSA "
    + "PRIVATE KEY-----",
}
KEYS = KNOWN | LOOK_LIKE_KEYS


def spellings(key: str) -> set[str]:
    """The forms of a key to search for: itself, its longest word, and its JSON and URL encodings."""
    bare = key.removeprefix("Bearer ")
    words = [word for word in re.findall(r"[A-Za-z0-9]+", bare) if word not in ("BEGIN", "END", "RSA", "PRIVATE", "KEY")]
    found = {bare, max(words, key=len), json.dumps(bare)[1:-1], quote(bare), quote(bare, safe="")}
    return found | {bare.replace("/", "\\/")}


LOOKED_FOR: dict[str, set[str]] = {name: spellings(key) for name, key in KEYS.items()}


def found_in(text: str) -> list[str]:
    """The names of the planted keys of which any form is in a text."""
    return sorted(name for name, forms in LOOKED_FOR.items() if any(form in text for form in forms))


ALL = " ; ".join(KEYS.values())
"""All of them in one text."""
KNOWN_ONES = " ; ".join(KNOWN.values())


# Servers: their answers and how they send them --------------------------------------------------------------------------------

Said = Callable[[Asked], Reply]


def _answered(*texts: str) -> Said:
    answer = Answer(text=texts)
    return lambda asked: stream(*pieces(WIRE, answer)) if is_streamed(asked) else whole(body_of(WIRE, answer))


def _calling(arguments: dict[str, Any], tool: str = "look") -> Said:
    """Calls the tool first, then answers."""

    def script(asked: Asked) -> Reply:
        if b'"role":"tool"' in asked.body.replace(b" ", b""):
            return _answered("Done.")(asked)
        calling = Answer(text=("I look.",), calls=(Call(tool, arguments),), finish=FinishReason.TOOL_CALLS)
        return stream(*pieces(WIRE, calling)) if is_streamed(asked) else whole(body_of(WIRE, calling))

    return script


def _broken_off(asked: Asked) -> Reply:
    before, _ = before_the_end(
        WIRE, Answer(text=("Your keys: ", *(key[at : at + 9] for key in KEYS.values() for at in range(0, len(key), 9))))
    )
    return stream(before, end="reset")


def _error_in_mid_stream(asked: Asked) -> Reply:
    before, _ = before_the_end(WIRE, Answer())
    return stream(before, b"data: " + json.dumps({"error": {"message": ALL, "code": SENT}}).encode() + b"\n\n")


def _bytewise(asked: Asked) -> Reply:
    """A stream whose chunks end anywhere, also within keys."""
    whole_body = b"".join(pieces(WIRE, Answer(text=("So: " + ALL,))))
    return stream(*(whole_body[at : at + 7] for at in range(0, len(whole_body), 7)))


def _header_line_that_is_none(asked: Asked) -> Reply:
    """The HTTP library repeats such a line in its error."""

    def reply(to: Any) -> None:
        to.wfile.write(b"HTTP/1.1 200 OK\r\nx-broken " + ALL.replace("\n", " ").encode() + b"\r\n\r\n")
        to.close_connection = True

    return reply


def _in_headers(code: int, *names: str) -> Said:
    value = ALL.replace("\n", " ")
    body = json.dumps(body_of(WIRE, Answer()) if code == 200 else {"error": {"message": "no"}}).encode()
    headers = [(name, value) for name in names]
    return lambda asked: raw(body, ("content-type", "application/json"), *headers, code=code)


def _split(text: str, size: int = 5) -> tuple[str, ...]:
    return tuple(text[at : at + size] for at in range(0, len(text), size))


@dataclass(frozen=True)
class Source:
    """Places of planted keys: the server's answer, and other values of the run. `sinks` None: all are searched."""

    says: Said
    streamed: bool = False
    prompt: str = "go"
    instructions: str = ""
    options: dict[str, Any] | None = None
    tool: str = "nothing"
    tool_raises: bool = False
    tool_stops: bool = False
    tool_name: str = "look"
    tool_description: str = "Look something up."
    name: str | None = None
    stop_raises: bool = False
    settings: Callable[[], dict[str, Any]] = dict


@dataclass(frozen=True, slots=True)
class Says(lab.StopCondition):
    """Met when the model says a word: a condition as users write them, without any redaction."""

    word: str

    def read(self, history: lab.RunHistory) -> lab.Reading:
        newest_text = history[-1].text
        return lab.Reading(f"Says({self.word})", newest_text, self.word, self.word in newest_text)


def _in_conditions() -> dict[str, Any]:
    named = [lab.HasToolCall(*KEYS.values()), lab.FinishReasonIs(*KEYS.values())]
    return {"stop": [*map(Says, KEYS.values()), *named, lab.Off(lab.Custom(lambda history: True, ALL)), ~lab.Custom(len, ALL)]}


def _met() -> dict[str, Any]:
    return {"stop": lab.Custom(lambda history: True, ALL) & ~Says(SENT)}


def _in_settings() -> dict[str, Any]:
    return {
        "continuation": lab.ContinuationPolicy(hint=ALL),
        "terminating": lab.TerminatingTools([KEYS["sk-"]], nudge_message=ALL, consecutive_nudges=1),
    }


_TWICE = json.dumps(json.dumps(KNOWN_ONES).replace("/", "\\/"))
_ELSEWHERE = f"https://elsewhere.example/?api_key={quote(SENT, safe='')}&q={quote(ALL, safe='')}"

SOURCES: dict[str, Source] = {
    "environment, api_key= (nothing repeats them)": Source(_answered("Hello")),
    "prompt": Source(_answered("Hello"), prompt=f"Use {ALL}"),
    "instructions": Source(_answered("Hello"), instructions=f"Use {ALL}"),
    "request body (options)": Source(_answered("Hello"), options={"metadata": {"note": ALL}, "user": SENT}),
    "tool arguments": Source(_calling({"q": ALL})),
    "tool arguments, streamed": Source(_calling({"q": ALL}), streamed=True),
    "tool result": Source(_calling({"q": "it"}), tool=ALL),
    "tool error": Source(_calling({"q": "it"}), tool=ALL, tool_raises=True),
    "stop condition's error": Source(_answered("Hello"), stop_raises=True),
    "tool that stops the run": Source(_calling({"q": "it"}), tool=ALL, tool_stops=True),
    "tool's name and description": Source(_answered("Hello"), tool_name=KEYS["sk-"], tool_description=ALL),
    "tool's name, called": Source(_calling({"q": "it"}, KEYS["sk-"]), tool_name=KEYS["sk-"]),
    "agent's name": Source(_answered("Hello"), name=ALL),
    "conditions' words": Source(_answered("Hello"), settings=_in_conditions),
    "conditions' words, met": Source(_answered("Hello"), settings=_met),
    "settings' words": Source(_answered("Hello"), tool_name=KEYS["sk-"], settings=_in_settings),
    "answer": Source(_answered(ALL)),
    "answer, streamed, 7 bytes a chunk": Source(_bytewise, streamed=True),
    "answer, streamed, keys split over events": Source(_answered(*_split("Keys: " + ALL + " .")), streamed=True),
    "stream that breaks off": Source(_broken_off, streamed=True),
    "error in mid-stream": Source(_error_in_mid_stream, streamed=True),
    "error under 200": Source(lambda asked: whole({"error": {"message": ALL, "type": SENT}})),
    "401 body": Source(lambda asked: status(401, {"error": {"message": f"invalid key {ALL}", "code": SENT}})),
    "401 body, page": Source(lambda asked: raw(f"<p>{html.escape(ALL)}</p>".encode(), ("content-type", "text/html"), code=401)),
    "401 body, URL-encoded": Source(lambda asked: status(401, {"error": {"message": quote(KNOWN_ONES, safe="")}})),
    "401 body, JSON in JSON": Source(lambda asked: status(401, {"error": {"message": _TWICE}})),
    "503 body, again and again": Source(lambda asked: status(503, {"error": {"message": ALL}})),
    "response headers, 200": Source(_in_headers(200, "x-request-id", "x-echo", "set-cookie", "openai-version")),
    "response headers, 401": Source(_in_headers(401, "x-request-id", "www-authenticate", "x-ratelimit-limit")),
    "redirect (query string)": Source(
        lambda asked: raw(b"", ("location", _ELSEWHERE), code=302)
    ),
    "header line that is none": Source(_header_line_that_is_none),
}  # fmt: skip

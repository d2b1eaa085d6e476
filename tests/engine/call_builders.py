"""Shared by the tests of this folder: agents on a loopback server, its answers on each wire, and comparable results."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

from providers.bodies import Answer, Call
from providers.bodies import stream as stream_bytes
from providers.bodies import whole as whole_body

import agentlab as lab
from agentlab.model.finish_reasons import FinishReason
from agentlab.records.events import CallRetried, Event, TextReceived

from . import server
from .server import Asked, Reply, Server

KEY = "tok-Zq81mN4pXw77-planted"
QUICK = lab.RetryPolicy(attempts=4, first_wait_s=0.01, longest_wait_s=0.2)

go = asyncio.run

KEY_VARIABLE = {
    "openai": "OPENAI_API_KEY",
    "openrouter": "OPENROUTER_API_KEY",
    "xai": "XAI_API_KEY",
    "azure": "AZURE_OPENAI_API_KEY",
    "anthropic": "ANTHROPIC_API_KEY",
    "gemini": "GEMINI_API_KEY",
}

HELLO = Answer(text=("Hel", "lo ", "there"))
LOOK = Answer(text=("Let me see",), calls=(Call("look", {"q": "tea"}),), finish=FinishReason.TOOL_CALLS)


def agent(base: Server | str, wire: str = "compatible", *, key: str | None = KEY, **more: Any) -> lab.Agent:
    """An agent whose provider is the server, with the tool `look`, which keeps its arguments in `looked`."""
    url = base if isinstance(base, str) else base.base
    provider = lab.Provider(wire, model="some-model", base_url=url, api_key=key)
    more.setdefault("retry", QUICK)
    more.setdefault("tools", [look])
    return lab.Agent(provider, **more)


looked: list[str] = []


@lab.tool(inline=True)
def look(q: str) -> str:
    """Look something up."""
    looked.append(q)
    return f"saw {q}"


async def finished(run: lab.Run) -> lab.RunResult:
    """`await run`, as a coroutine."""
    return await run


def result_of(base: Server | str, wire: str = "compatible", *, budget: lab.Budget | None = None, **more: Any) -> lab.RunResult:
    """The result of a run."""
    return go(finished(agent(base, wire, **more).run("go", budget=budget)))


def reply_to(wire: str, answer: Answer, *, streaming: bool) -> Reply:
    """An answer in the server's format."""
    if streaming:
        return server.stream(*pieces(wire, answer))
    return server.whole(whole_body(wire, answer))


def pieces(wire: str, answer: Answer) -> list[bytes]:
    """A stream as a list of its events."""
    return [event + b"\n\n" for event in stream_bytes(wire, answer).split(b"\n\n") if event.strip()]


def before_the_end(wire: str, answer: Answer) -> tuple[bytes, bytes]:
    """A stream in two parts: the events before those that report the end, and the rest."""
    end = {"anthropic": b"event: message_delta", "gemini": b'"finishReason"'}.get(wire, b'"finish_reason": "')
    events = pieces(wire, answer)
    at = next(index for index, event in enumerate(events) if end in event)
    return b"".join(events[:at]), b"".join(events[at:])


def is_streamed(asked: Asked) -> bool:
    """True if a request asks for a stream."""
    return "streamGenerateContent" in asked.path or bool(asked.json.get("stream"))


def retried(result: lab.RunResult) -> list[CallRetried]:
    """The retry events of the run."""
    return [event for event in result.events if isinstance(event, CallRetried)]


def texts(events: Sequence[Event]) -> list[str]:
    """The pieces of text that an observer received."""
    return [event.text for event in events if isinstance(event, TextReceived)]


def essence(result: lab.RunResult) -> dict[str, Any]:
    """Everything in a result that is the same in every run, as plain values."""
    return {
        "stop": (result.stop_reason, result.detail, result.text),
        "usage": result.usage,
        "cost": result.cost,
        "messages": [(one.role, one.text, one.tool_calls, one.native) for one in result.messages],
        "steps": [
            (
                step.index,
                step.text,
                step.usage,
                step.cost,
                step.decision,
                step.tool_calls,
                [(one.call_id, one.name, one.content, one.error) for one in step.tool_results],
                [(one.index, one.response, one.usage, one.retries, one.requested_cap) for one in step.calls],
            )
            for step in result.history
        ],
    }


def everything_shown(*results: lab.RunResult) -> str:
    """Everything of these results that may be shown to a user, as one text."""
    shown = [lab.frame(list(results), what).to_csv() for what in ("steps", "calls", "tools", "events", "readings")]
    for result in results:
        shown += [repr(result), repr(list(result.history)), repr(list(result.events)), result.detail, repr(result.error)]
        shown += [str(step.error) for step in result.history]
        shown += [json.dumps(result._repr_mimebundle_())]
    return "\n".join(shown)


def looking_for(topics: Callable[[Asked], Sequence[str]], wire: str) -> Callable[[Asked], Reply]:
    """A script in which the model looks up each topic in turn and then reports the results."""

    def script(asked: Asked) -> Reply:
        wanted = topics(asked)
        done = asked.body.count(b"saw ")
        if done < len(wanted):
            arguments = {"q": wanted[done]}
            answer = Answer(
                text=("Step ", str(done + 1)),
                calls=(Call("look", arguments),),
                finish=FinishReason.TOOL_CALLS,
                input_tokens=10 + done,
            )
        else:
            answer = Answer(text=("Seen: ", ", ".join(wanted)), output_tokens=7)
        return reply_to(wire, answer, streaming=is_streamed(asked))

    return script

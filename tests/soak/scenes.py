"""Runs with an await in every possible place, each with a ledger of what its tools really did."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from engine.builders import Slow
from engine.call_builders import HELLO, LOOK, before_the_end, reply_to
from engine.call_builders import agent as agent_on
from engine.server import status, stream

import agentlab as lab
from agentlab import Budget, Custom, StepCountIs
from agentlab.model.finish_reasons import FinishReason
from agentlab.model.messages import ModelRequest, ToolCall
from agentlab.model.responses import ModelResponse
from agentlab.testing import Said, call, say


@dataclass
class Ledger:
    """The tools' own record of their actions, in order: `began`, `ended`, `cut`, `cleaned`, each with the tool's name."""

    entries: list[tuple[str, str]] = field(default_factory=list)

    def note(self, what: str, tool: str) -> None:
        """Record an action."""
        self.entries.append((what, tool))

    def count(self, what: str, tool: str) -> int:
        """How often that action of the tool was recorded."""
        return self.entries.count((what, tool))


Drive = Callable[[lab.Run], Awaitable[object]]


@dataclass(frozen=True)
class Scene:
    """One kind of run. `make` gets the ledger, the store as an observer and a server's address; `replies` are the server's."""

    make: Callable[[Ledger, Any, str], lab.Run]
    drive: Drive
    replies: tuple[Any, ...] = ()


async def to_the_end(run: lab.Run) -> object:
    """Like `await run` in a cell."""
    return await run


async def by_hand(run: lab.Run) -> object:
    """Step by step, as a user does."""
    while run.result is None:
        await run.step()
    return run.result


async def one_by_one(run: lab.Run) -> object:
    """With `async for`."""
    return [step async for step in run]


async def with_a_pause(run: lab.Run) -> object:
    """Paused after the first step, resumed a little later."""
    run.pause()
    await run.step()
    asyncio.get_running_loop().call_later(0.005, lambda: run.result is None and run.resume())
    return await run


# Tools --------------------------------------------------------------------------------------------------------------------------


def tools(ledger: Ledger, *names: str) -> list[Any]:
    """The tools of these names, of every kind. To describe a tool takes as long as a step: only the needed ones are made."""

    async def ponder() -> str:
        """Think for a few iterations of the loop, then clean up."""
        ledger.note("began", "ponder")
        try:
            for _ in range(3):
                await asyncio.sleep(0)
            ledger.note("ended", "ponder")
            return "thought"
        except asyncio.CancelledError:
            ledger.note("cut", "ponder")
            raise
        finally:
            try:
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                ledger.note("cleaned", "ponder")
            except asyncio.CancelledError:
                ledger.note("cut in clean-up", "ponder")
                raise

    def work() -> str:
        """Work on a thread."""
        ledger.note("began", "work")
        time.sleep(0.001)
        ledger.note("ended", "work")
        return "worked"

    async def shield() -> str:
        """Work that the tool itself shields from cancellation."""

        async def inner() -> str:
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            ledger.note("ended", "shield")
            return "kept"

        ledger.note("began", "shield")
        task = asyncio.ensure_future(inner())
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            await task
            raise

    async def book() -> str:
        """Work that must not be interrupted."""
        ledger.note("began", "book")
        for _ in range(3):
            await asyncio.sleep(0)
        ledger.note("ended", "book")
        return "booked"

    def pay() -> str:
        """The same on a thread."""
        ledger.note("began", "pay")
        time.sleep(0.002)
        ledger.note("ended", "pay")
        return "paid"

    async def limited() -> str:
        """With its own time limit."""
        ledger.note("began", "limited")
        await asyncio.sleep(0)
        ledger.note("ended", "limited")
        return "in time"

    async def finalize() -> str:
        """Hand in the answer."""
        ledger.note("began", "finalize")
        await asyncio.sleep(0)
        ledger.note("ended", "finalize")
        return "42"

    waits = {"on_cancel": "wait"}
    made = {ponder: {}, work: {}, shield: {}, book: waits, pay: waits, limited: {"timeout_s": 5}, finalize: {}}
    return [lab.tool(**more)(one) for one, more in made.items() if one.__name__ in names]  # type: ignore[call-overload]


def calls(*names: str) -> ModelResponse:
    """A response that calls these tools."""
    return say("so:", finish=FinishReason.TOOL_CALLS, calls=[ToolCall(f"c{n}", name, "{}") for n, name in enumerate(names)])


async def passing(request: ModelRequest, ask: Any) -> Any:
    """A middleware that waits before and after."""
    await asyncio.sleep(0)
    response = await ask(request)
    await asyncio.sleep(0)
    return response


async def weigh(history: lab.RunHistory) -> bool:
    """A slow condition."""
    for _ in range(2):
        await asyncio.sleep(0)
    return False


async def ponder_over(history: lab.RunHistory) -> bool:
    """Another condition, awaited together with the first."""
    await asyncio.sleep(0)
    return False


def scripted(
    *script: Said, stop: object = None, timeout: float | None = None, **more: Any
) -> Callable[[Ledger, Any, str], lab.Run]:
    """A run on a script, with the tools that it calls, and `ponder`."""
    called = {one.name for said in script if isinstance(said, ModelResponse) for one in said.tool_calls}

    def make(ledger: Ledger, store: Any, base: str) -> lab.Run:
        more.setdefault("continuation", None)
        terminating = more.get("terminating")
        kept = {name: value for name, value in more.items() if name != "terminating"}
        agent = lab.Agent(Slow(script), tools=tools(ledger, "ponder", *called), observers=[store], **kept)
        return agent.run("go", stop=stop, budget=Budget(max_turns=20, timeout=timeout), terminating=terminating)

    return make


def with_a_sub_agent(ledger: Ledger, store: Any, base: str) -> lab.Run:
    """A run that delegates to another agent, on the same store."""
    scout = lab.Agent(Slow([calls("ponder"), "found"]), tools=tools(ledger, "ponder"), name="scout", continuation=None)
    boss = lab.Agent(
        Slow([call("scout", {"task": "look"}), "done"]),
        tools=[scout.as_tool("scout", "Looks.")],
        observers=[store],
        continuation=None,
    )
    return boss.run("go")


def over_http(*, streaming: bool) -> Callable[[Ledger, Any, str], lab.Run]:
    """A run over a real connection."""

    def make(ledger: Ledger, store: Any, base: str) -> lab.Run:
        return agent_on(base, stream=streaming, observers=[store], retry=lab.RetryPolicy(3, 0.001, 0.002)).run("go")

    return make


LOOP = (calls("ponder"), "end")
CUT = say("The first half,", finish=FinishReason.MAX_TOKENS)
HALF, REST = before_the_end("compatible", HELLO)

SCENES: dict[str, Scene] = {
    "a plain call": Scene(scripted("one"), to_the_end),
    "a call over HTTP": Scene(
        over_http(streaming=False),
        to_the_end,
        (reply_to("compatible", LOOK, streaming=False), reply_to("compatible", HELLO, streaming=False)),
    ),
    "a streamed call": Scene(
        over_http(streaming=True), to_the_end, (reply_to("compatible", LOOK, streaming=True), stream(HALF, REST))
    ),
    "a stream that breaks off": Scene(over_http(streaming=True), to_the_end, (stream(HALF, end="reset"),)),
    "the wait before a retry": Scene(
        over_http(streaming=False), to_the_end, (status(503), status(503), reply_to("compatible", HELLO, streaming=False))
    ),
    "an async tool with clean-up": Scene(scripted(calls("ponder", "ponder"), "end"), to_the_end),
    "a tool on a thread": Scene(scripted(calls("work"), calls("work"), "end"), to_the_end),
    "a tool that shields its work": Scene(scripted(calls("shield"), "end"), to_the_end),
    "a tool with a time limit": Scene(scripted(calls("limited"), "end", timeout=60), to_the_end),
    "a tool that is waited for": Scene(scripted(calls("book", "ponder"), "end", timeout=60), to_the_end),
    "one on a thread, waited for": Scene(scripted(calls("pay", "book"), "end"), to_the_end),
    "a sub-agent": Scene(with_a_sub_agent, to_the_end),
    "async stop conditions": Scene(scripted(*LOOP, stop=StepCountIs(9) | Custom(weigh) | Custom(ponder_over)), to_the_end),
    "a middleware": Scene(scripted(*LOOP, middleware=[passing, passing]), to_the_end),
    "the rest of a cut answer": Scene(
        scripted(CUT, CUT, say("and the rest."), continuation=lab.ContinuationPolicy()), to_the_end
    ),
    "a tool call repaired": Scene(
        scripted(
            say(finish=FinishReason.MAX_TOKENS, calls=[ToolCall("c", "ponder", '{"a', closed=False)]),
            *LOOP,
            continuation=lab.ContinuationPolicy(),
        ),
        to_the_end,
    ),
    "reminders": Scene(
        scripted("well", calls("finalize"), terminating=lab.TerminatingTools(["finalize"], consecutive_nudges=2)), to_the_end
    ),
    "a pause": Scene(scripted(*LOOP), with_a_pause),
    "step() by step()": Scene(scripted(calls("ponder"), calls("work"), "end"), by_hand),
    "async for": Scene(scripted(*LOOP), one_by_one),
}

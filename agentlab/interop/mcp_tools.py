"""The tools of MCP servers, with the official client: `lab.tools.from_mcp`.

A server is a transport like a provider: it answers requests to `mcp://name/tools/list` and `mcp://name/tools/call`. So a recording
keeps its answers as it keeps those of models, and in a replay the server is never started. An answer is lines of JSON:

    {"began": "search"}                                        a call has been sent
    {"progress": 1, "total": 3, "message": "page 1"}           a progress notification
    {"tools": […]}                                             the list of tools, also after a call that changed it
    {"result": {…}} or {"error": "…"}                          the last line of a call

Every server is connected on agentlab's background thread, so that runs on any event loop can call it.
"""

from __future__ import annotations

import asyncio
import base64
import functools
import json
import os
import re
import shlex
import tempfile
import warnings
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import pydantic

from agentlab._internal.redaction import text_of
from agentlab._internal.safe_text import one_line
from agentlab.engine import call_context
from agentlab.engine.worker import background_loop
from agentlab.errors import AgentlabWarning, ConfigurationError, McpError, ProviderConnectionError, ToolDefinitionError
from agentlab.model.messages import JSON, ToolSpec
from agentlab.model.parts import Part, part_of
from agentlab.records import events
from agentlab.tools import McpServer, Tool, schemas, tool
from agentlab.transport.http import HttpAnswer, HttpRequest
from agentlab.transport.selection import Record, Transport, current, is_chosen

if TYPE_CHECKING:
    import mcp

MOST_EVENTS = 100
"""How many progress notifications of one call become events."""

MOST_PAGES = 100
"""How many pages of a server's list of tools are read."""

LIST_S = 5
"""How long the result of a call waits for a list of tools that changed meanwhile."""

CLOSED = -32000
"""The client's error code for a closed connection."""


@dataclass(frozen=True, slots=True)
class Where:
    """How a server is reached: a URL with headers, or a command with its environment and folder."""

    url: str
    command: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str | None
    headers: Mapping[str, str]
    start_timeout_s: float

    @property
    def label(self) -> str:
        """A name for the server: its host, or the program behind interpreters such as `python -m` and `npx -y`."""
        if self.url:
            return urlsplit(self.url).hostname or "mcp"
        words = [word for word in self.command[1:] if re.fullmatch(r"[\w./\\:@][\w./\\:@-]*", word)]
        return Path(words[0] if words else self.command[0]).stem


def from_mcp(  # noqa: PLR0917  the order in `agentlab.tools.from_mcp`, which has the keywords
    server: str | Sequence[str],
    name: str,
    prefix: str,
    env: Mapping[str, str] | None,
    cwd: str | os.PathLike[str] | None,
    headers: Mapping[str, str] | None,
    timeout_s: float | None,
    start_timeout_s: float,
    parallel: bool,
) -> McpServer:
    """Return the server; see `agentlab.tools.from_mcp`."""
    is_url = isinstance(server, str) and server.startswith(("http://", "https://"))
    command = () if is_url else tuple(shlex.split(server) if isinstance(server, str) else map(str, server))
    if not is_url and not command:
        raise ConfigurationError(f"from_mcp({server!r}): pass a URL, or a command such as [sys.executable, 'server.py'].")
    wrong = "env and cwd" if is_url and (env or cwd) else "headers" if headers and not is_url else ""
    if wrong:
        raise ConfigurationError(f"from_mcp({server!r}, …): {wrong} cannot be set for a {'URL' if is_url else 'command'}.")
    for option, given in (("env", env), ("headers", headers)):
        if given is not None and not isinstance(given, Mapping):
            raise ConfigurationError(f'from_mcp({server!r}, {option}=…): pass a dict, such as {{"NAME": "value"}}.')
    folder = None if cwd is None else os.fspath(cwd)
    where = Where(str(server) if is_url else "", command, dict(env or {}), folder, dict(headers or {}), start_timeout_s)
    label = re.sub(r"[^a-z0-9.-]+", "-", (name or where.label).lower()).strip(".-") or "mcp"
    return _Server(where, label, prefix, timeout_s, parallel=parallel)


class _Server(McpServer):
    """A server as the user holds it: its tools, which are listed when it is opened."""

    def __init__(self, where: Where, name: str, prefix: str, timeout_s: float | None, *, parallel: bool = False) -> None:
        self.name, self.where, self.prefix, self.timeout_s, self.parallel = name, where, prefix, timeout_s, parallel
        self.wire = Wire(where, name, self._take)
        self.lists: list[dict[str, ToolSpec]] = []  # each list of the server, the last one is in force
        self._tools: tuple[Tool, ...] | None = None
        self._taken: Sequence[Mapping[str, JSON]] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle how the server is reached; another process connects to it when it first calls a tool."""
        return functools.partial(_Server, parallel=self.parallel), (self.where, self.name, self.prefix, self.timeout_s)

    def _listed(self) -> tuple[Tool, ...]:
        if self._tools is None:
            raise ConfigurationError(
                f"The tools of the MCP server {self.name!r} are not known yet: write `async with lab.tools.from_mcp(…) as server`, or "
                "`server = await lab.tools.from_mcp(…)`."
            )
        return self._tools

    async def open(self) -> _Server:
        self.wire.is_closed = False
        key, transport = os.urandom(6).hex(), current() if is_chosen() else None
        async for _ in self.ask("list", {}, transport, key):
            pass
        if (forget := getattr(transport, "run_ended", None)) is not None:
            forget(key)
        return self

    async def close(self) -> None:
        await self.wire.close()

    def _made_of(self, listed: Sequence[Mapping[str, JSON]]) -> tuple[Tool, ...]:
        """Return the tools of a list. One with a schema that cannot be used is left out, with a warning."""
        made = []
        for one in listed:
            try:
                offered = tool(
                    _Call(self, str(one["name"]), len(self.lists)),
                    name=re.sub(r"[^A-Za-z0-9_-]", "_", f"{self.prefix}{one['name']}")[:64],
                    description=one.get("description") or one.get("title") or "",
                    timeout_s=self.timeout_s,
                    schema=one.get("inputSchema") or {},
                    idempotent=(one.get("annotations") or {}).get("idempotentHint") is not False,
                    parallel=self.parallel,
                )
            except ToolDefinitionError as error:
                warnings.warn(f"The MCP server {self.name!r} has a tool that is left out. {error}", AgentlabWarning, stacklevel=2)
            else:
                made.append(offered)
        self.lists.append({one.name: one.spec for one in made})
        return tuple(made)

    def changes_since(self, number: int) -> str:
        """Return the difference of the list in force and an earlier one; empty if there is none."""
        if number >= len(self.lists):  # the tool is from another process
            return ""
        old, new = self.lists[number], self.lists[-1]
        changed = {name for name in old.keys() & new.keys() if old[name] != new[name]}
        found = {"added": new.keys() - old, "removed": old.keys() - new, "changed": changed}
        return ", ".join(f"{what} {', '.join(sorted(names))}" for what, names in found.items() if names)

    def _take(self, listed: Sequence[Mapping[str, JSON]]) -> None:
        """Take a list, unless it is in force already. Runs warn of a change at the next call of a tool from an earlier list."""
        if listed != self._taken:
            self._taken, self._tools = listed, self._made_of(listed)

    async def ask(self, what: str, body: JSON, transport: Transport | None, key: str) -> AsyncIterator[dict[str, JSON]]:
        """Yield the lines of an answer, from the server or from a recording. Raises McpError for an error."""
        if isinstance(transport, Record):
            transport = Record(transport.recorder, self.wire)
        elif transport is None or transport.needs_key:
            transport = self.wire
        content = json.dumps(body, sort_keys=True).encode()
        request = HttpRequest("POST", f"mcp://{self.name}/tools/{what}", {"content-type": "application/json"}, content)
        secrets = {**self.where.headers, **self.where.env}
        async with transport.open(request, auth=secrets, replay_key=key, timeout_s=None) as answer:
            rest = b""
            async for chunk in answer.chunks():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    read = json.loads(line)
                    if "error" in read:
                        raise McpError(f"The MCP server {self.name!r}: {read['error']}")
                    if "tools" in read:
                        self._take(read["tools"])
                    yield read


@dataclass(frozen=True, slots=True)
class _Call:
    """The function of a tool: sends the call to the server, as the transport of the calling run says."""

    server: _Server
    tool: str
    list_number: int

    async def __call__(self, /, **arguments: Any) -> Any:
        here, body = call_context.here(), {"name": self.tool, "arguments": arguments}
        run = None if here is None else here.caller
        transport = run.transport if run is not None else current() if is_chosen() else None
        shown = 0
        result: Mapping[str, JSON] = {}
        try:
            async for line in self.server.ask("call", body, transport, run.replay_key if run is not None else ""):
                result = line.get("result", result)
                if here is not None and run is not None and "progress" in line and shown < MOST_EVENTS:
                    shown += 1
                    step, told = here.step, (line["progress"], line.get("total"), line.get("message") or "")
                    run.timeline.emit(
                        events.ToolProgress(run.timeline.clock.elapsed_s(), step, here.tool_call.id, self.tool, *told)
                    )
        except ProviderConnectionError:  # the recorded call was cut off by its time limit, as this one will be
            if self.server.timeout_s is None:
                raise
            await asyncio.sleep(self.server.timeout_s + 1)
        finally:
            if run is not None and (changes := self.server.changes_since(self.list_number)):
                run.timeline.warn_once(
                    f"The MCP server {self.server.name!r} changed its list of tools ({changes}). An agent keeps the tools that it was "
                    "made with: make a new one with tools=[*server]. run.fork(…, agent=…) continues this run with it."
                )
        return value_of(result, None if run is None else getattr(run.agent.model, "refuses_in_result", None))


def value_of(result: Mapping[str, JSON], refuses: Callable[[Part], str] | None = None) -> Any:
    """Return the value of a result: the texts and parts of its content if it has images, audio or PDFs; otherwise its structured
    content, else its text. Raises McpError for a failed call.

    Data of any other type is named in the text. So is a part that cannot be sent to the model: `refuses` gives the text.
    """
    content = [_piece_of(part, refuses) for part in result.get("content") or ()]
    texts = [piece if isinstance(piece, str) else piece.text for piece in content]
    if result.get("isError"):
        raise McpError("\n".join(texts) or "the tool failed, and the server does not say why.")
    if any(isinstance(piece, Part) for piece in content):  # the text has the structured content too, the protocol says
        return content[0] if len(content) == 1 else content
    structured = result.get("structuredContent")
    if structured is None:
        return "\n".join(texts)
    return structured["result"] if isinstance(structured, dict) and structured.keys() == {"result"} else structured


def _piece_of(part: Mapping[str, JSON], refuses: Callable[[Part], str] | None) -> str | Part:
    """Return one part of a result: as an image, a document or audio if its bytes are that, else as text."""
    inner = part.get("resource") or part
    if "text" in inner:
        return str(inner["text"])
    encoded = inner.get("data") or inner.get("blob")
    if encoded is None:
        return f"[{part.get('type')}: {inner.get('uri') or inner.get('name') or ''}]"
    try:
        made = part_of(base64.b64decode(encoded), unquote(urlsplit(inner.get("uri") or "").path.rpartition("/")[2]))
    except (ValueError, ConfigurationError):
        made = None
    if made is None:
        return f"[{inner.get('mimeType') or part.get('type')}, {len(encoded.rstrip('=')) * 3 // 4:,} bytes]"
    return (refuses(made) if refuses is not None else "") or made


# The connection -------------------------------------------------------------------------------------------------------------------


class Wire:
    """A server as a transport. `changed` receives a new list of tools.

    The server is connected by its first request, and again by the first one after it died. All of that runs on the background thread.
    """

    needs_key = True

    def __init__(self, where: Where, name: str, changed: Callable[[Sequence[Mapping[str, JSON]]], None]) -> None:
        self.where, self.name, self.changed = where, name, changed
        self.is_closed = False
        self.listed: list[dict[str, JSON]] | None = None
        self._connection: _Connection | None = None
        self._starting = asyncio.Lock()  # bound to the background loop by its first use

    @asynccontextmanager
    async def open(
        self, request: HttpRequest, *, auth: Mapping[str, str], replay_key: str, timeout_s: float | None, client: Any = None
    ) -> AsyncIterator[HttpAnswer]:
        """Send the request. If the caller stops reading the answer, the request is cancelled at the server."""
        loop = asyncio.get_running_loop()
        lines: asyncio.Queue[bytes | Exception | None] = asyncio.Queue()

        def give(line: dict[str, JSON] | Exception | None) -> None:
            with suppress(RuntimeError):  # the caller's loop was closed
                given = (
                    json.dumps(line, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"
                    if isinstance(line, dict)
                    else line
                )
                loop.call_soon_threadsafe(lines.put_nowait, given)

        work = asyncio.run_coroutine_threadsafe(self._answer(request, give), background_loop())
        try:
            yield HttpAnswer(200, {"content-type": "application/x-ndjson"}, functools.partial(_arriving, lines))
        finally:
            work.cancel()

    async def _answer(self, request: HttpRequest, give: Callable[[dict[str, JSON] | Exception | None], None]) -> None:
        """Send the request on the background thread, and give each line of its answer, and None after the last."""
        try:
            connection = await self._connected()
            if request.url.endswith("/list"):
                self.listed = await connection.first_list()
                give({"tools": self.listed})
            else:
                body = json.loads(request.body)
                give({"began": body["name"]})
                line = await connection.call(body["name"], body["arguments"], give)
                if (changed := await connection.change()) is not None:
                    give({"tools": changed})
                give(line)
            give(None)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            give(error)

    async def _connected(self) -> _Connection:
        try:
            import mcp  # noqa: F401
        except ImportError as error:
            raise ConfigurationError("MCP servers need the package mcp: pip install 'agentlab-jupyter[mcp]'.") from error
        if self.is_closed:
            raise McpError(f"The MCP server {self.name!r} is closed: open it again, or call it within its `async with` block.")
        async with self._starting:
            if self._connection is None or self._connection.has_ended:
                if self._connection is not None:
                    await self._connection.end()
                self._connection = await _Connection(self).start()
                if self.listed is not None:  # it was started again, perhaps with other tools
                    self._connection.list_again()
            return self._connection

    async def close(self) -> None:
        """End the server."""
        self.is_closed = True
        if self._connection is not None:
            ending = asyncio.run_coroutine_threadsafe(self._connection.end(), background_loop())
            await asyncio.wrap_future(ending)


async def _arriving(lines: asyncio.Queue[bytes | Exception | None]) -> AsyncIterator[bytes]:
    """Yield the lines of an answer while they arrive."""
    while (line := await lines.get()) is not None:
        if isinstance(line, Exception):
            raise line
        yield line


class _Connection:
    """One connection to a server, used on the background thread only.

    The client has to be closed by the task that opened it, so one task does both, and waits in between.
    """

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self._client: mcp.Client | None = None
        self._closing = asyncio.Event()
        self._owner: asyncio.Task[None] | None = None
        self._others: set[asyncio.Task[None]] = set()
        self._changed: list[dict[str, JSON]] | None = None
        self._status = ""
        self._stderr: Any = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115  closed with the connection

    @property
    def has_ended(self) -> bool:
        """True if the server cannot be called any more."""
        return self._closing.is_set() or self._owner is None or self._owner.done()

    async def start(self) -> _Connection:
        """Connect. Raises McpError if that fails, with the last line that the server wrote to stderr."""
        ready = asyncio.Event()
        self._owner = asyncio.create_task(self._run(ready), name=f"agentlab-mcp-{self.wire.name}")
        limit_s = self.wire.where.start_timeout_s
        waiting = asyncio.create_task(ready.wait())
        await asyncio.wait({waiting, self._owner}, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if ready.is_set():
            return self
        reason = f"it did not answer within start_timeout_s={limit_s:g}" if not self._owner.done() else self._reason()
        kind, place = ("URL", self.wire.where.url) if self.wire.where.url else ("command", shlex.join(self.wire.where.command))
        raise await self._unusable(reason, f" Check that {place} is the {kind} of an MCP server.")

    async def first_list(self) -> list[dict[str, JSON]]:
        """Return all tools that the server lists. Raises McpError if it does not, or takes longer than a start may."""
        limit_s, advice = self.wire.where.start_timeout_s, ""
        try:
            async with asyncio.timeout(limit_s):
                return await self.list()
        except TimeoutError:
            reason = f"it did not list its tools within start_timeout_s={limit_s:g}"
        except pydantic.ValidationError as error:
            reason = f"its list of tools is not valid: {schemas.problems(error)}"
            advice = (
                " The MCP client refuses the whole list: correct or remove that tool in the server (tools.0 is the first one)."
            )
        except Exception as error:
            reason = f"it did not list its tools: {text_of(error).rstrip('.')}"
        raise await self._unusable(reason, advice)

    async def _unusable(self, reason: str, advice: str = "") -> McpError:
        """End the connection and return the error, with the last line that the server wrote to stderr."""
        wrote = self._last_line()
        await self.end()
        return McpError(f"The MCP server {self.wire.name!r} cannot be used: {reason}.{wrote}{advice}")

    def _reason(self) -> str:
        """Return why the connection ended: the innermost error."""
        error = self._owner.exception() if self._owner is not None and not self._owner.cancelled() else None
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        text = "the connection was closed" if error is None else text_of(error).rstrip(".") or type(error).__name__
        return text + self._status

    def _last_line(self) -> str:
        if self._stderr.closed:
            return ""
        self._stderr.seek(0)
        lines = self._stderr.read()[-2_000:].strip().splitlines()
        return f" It wrote to stderr: {one_line(lines[-1])}." if lines else ""

    async def _run(self, ready: asyncio.Event) -> None:
        """Hold the connection open until it is closed."""
        import mcp
        from mcp.client.stdio import stdio_client
        from mcp.client.streamable_http import streamable_http_client

        async with AsyncExitStack() as stack:
            where = self.wire.where
            if where.url:
                import httpx2

                async def note(response: httpx2.Response) -> None:
                    self._status = f" (HTTP {response.status_code})" if response.status_code >= 400 else ""

                patience, hooks = httpx2.Timeout(30, read=None), {"response": [note]}
                http = httpx2.AsyncClient(headers=dict(where.headers), timeout=patience, event_hooks=hooks)
                reached: Any = streamable_http_client(where.url, http_client=await stack.enter_async_context(http))
            else:
                program = mcp.StdioServerParameters(
                    command=where.command[0], args=list(where.command[1:]), env=dict(where.env), cwd=where.cwd
                )
                reached = stdio_client(program, errlog=self._stderr)
            client = mcp.Client(reached, message_handler=self._handle, cache=None)
            self._client = await stack.enter_async_context(client)
            ready.set()
            listening = asyncio.create_task(self._listen(client))
            try:
                await self._closing.wait()
            finally:
                listening.cancel()

    async def _listen(self, client: mcp.Client) -> None:
        """Ask a server of the newer protocol to notify of changes; older ones do so unasked."""
        with suppress(Exception):
            async with client.listen(tools_list_changed=True) as changes:
                async for _ in changes:
                    pass  # the notification reaches `_handle` too

    async def _handle(self, message: object) -> None:
        """Read the list again once the server says that it changed."""
        if getattr(message, "method", "") == "notifications/tools/list_changed":
            self.list_again()

    def list_again(self) -> None:
        """Read the list again, beside the calls."""
        task = asyncio.create_task(self._list_again())
        self._others.add(task)
        task.add_done_callback(self._others.discard)

    async def _list_again(self) -> None:
        with suppress(Exception):
            listed = await self.list()
            if listed != self.wire.listed:
                self.wire.listed = self._changed = listed
                self.wire.changed(listed)

    async def change(self) -> list[dict[str, JSON]] | None:
        """Return the list of tools if it has changed since this was asked last, so that a recording has it."""
        if self._others:
            await asyncio.wait(self._others, timeout=LIST_S)
        changed, self._changed = self._changed, None
        return changed

    async def end(self) -> None:
        """Close the connection and wait for its end. A server that does not end by itself is killed by the client."""
        self._closing.set()
        if self._owner is not None:
            if self._client is None:
                self._owner.cancel()
            await asyncio.wait({self._owner})
            if not self._owner.cancelled():
                self._owner.exception()
        self._stderr.close()

    async def list(self) -> list[dict[str, JSON]]:
        """Return all tools that the server lists, page by page."""
        found, cursor = [], None
        for _ in range(MOST_PAGES):
            page = await self._while_it_lives("tools/list", self._alive().list_tools(cursor=cursor))
            found += [one.model_dump(mode="json", by_alias=True, exclude_none=True) for one in page.tools]
            if (cursor := page.next_cursor) is None:
                break
        return found

    async def call(self, name: str, arguments: dict[str, JSON], give: Callable[[dict[str, JSON]], None]) -> dict[str, JSON]:
        """Return the last line of the answer to a call. What the server refuses, or does not survive, is an error there."""

        async def progressed(progress: float, total: float | None, message: str | None) -> None:
            give({"progress": progress, "total": total, "message": message})

        try:
            result = await self._while_it_lives(name, self._alive().call_tool(name, arguments, progress_callback=progressed))
        except Exception as error:
            return {"error": text_of(error)}
        return {"result": result.model_dump(mode="json", by_alias=True, exclude_none=True, exclude={"meta"})}

    def _alive(self) -> mcp.Client:
        if self._client is None:
            raise McpError("it is not connected.")
        return self._client

    async def _while_it_lives(self, what: str, request: Any) -> Any:
        """Await a request. Raises McpError if the connection ends before its answer."""
        work = asyncio.ensure_future(request)
        try:
            await asyncio.wait({work} if self._owner is None else {work, self._owner}, return_when=asyncio.FIRST_COMPLETED)
            if work.done() and not work.cancelled() and getattr(work.exception(), "code", None) != CLOSED:
                return work.result()
        finally:
            work.cancel()
        self._closing.set()
        again = "connects" if self.wire.where.url else "starts it"
        raise McpError(f"it ended while {what} was under way; what the call did is not known. The next call {again} again.")

"""The chat endpoints over HTTP: an application for any ASGI server, and the command that starts one.

    python -m agentlab serve notebook_or_module:agent [--host 127.0.0.1] [--port 8000] [--token …] [--db agentlab-chat.sqlite]

    app = make_app(lab.Chat(agent, path="chat.sqlite"))

Needs the extra: pip install 'agentlab-jupyter[serve]'.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Any, Literal, TypeAlias

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from starlette.exceptions import HTTPException

import agentlab
from agentlab._internal.redaction import redact
from agentlab.agent import Agent
from agentlab.errors import (
    AgentlabError,
    ChatInputError,
    ConfigurationError,
    ContextChangedError,
    ContextNotFoundError,
    FixtureError,
    MissingUsageError,
    ProviderError,
    RunFailed,
    StorageError,
)
from agentlab.limits.policies import INVOCATIONS_EXCEEDED, NUDGE_MESSAGE, NUDGES_EXCEEDED
from agentlab.model.finish_reasons import StopReason
from agentlab.model.messages import Message
from agentlab.serving.access import AccessControl, is_loopback
from agentlab.serving.chat import MAX_ID_LENGTH, Chat, ChatReply
from agentlab.serving.loader import load

TOKEN_VARIABLE = "AGENTLAB_SERVE_TOKEN"  # noqa: S105  the name of a variable
DEFAULT_DATABASE = "agentlab-chat.sqlite"
SHUTDOWN_TIMEOUT_S = 30
"""The time that the server waits for running requests on shutdown."""

log = logging.getLogger("agentlab.serving.app")

_STATUSES = {
    400: "`not_json`: the body is not JSON. `invalid_input`: a value that this agent does not accept, such as an unknown tool id.",
    403: "`wrong_origin`: a page of another origin. `wrong_host`: another host name, on a server without a token.",
    404: "`no_context`: neither the context nor the request has a message.",
    409: "`context_changed`: another process wrote to the context meanwhile. Nothing was saved; send the request again.",
    413: "`body_too_large`: more than 1 MiB.",
    422: "`invalid_field`: a field is missing, unknown or has a value that is not allowed; the message names it.",
    500: "`setup` or `internal`: the agent is not set up correctly, or agentlab has an error; see the server's log.",
    502: "`provider`: the model's provider could not be reached, or answered with an error. Nothing was saved.",
    503: "`storage`: the file of the contexts cannot be read or written. Nothing was saved.",
}
_LIMIT_STATUS = 424
_LIMIT_TEXT = (
    "A limit of the request's `terminating_config` ended the run. `nudges_exhausted`: the answers called no tool, in spite of the "
    "reminders. `call_limit`: `max_invocations` was reached. The context has the messages, and can continue."
)


def make_app(chat: Chat, *, token: str | None = None, hosts: Sequence[str] = ()) -> FastAPI:
    """Return the application with the endpoints of this chat, which is closed when the server ends. If a `token` is given, every
    request must contain it; otherwise only requests to loopback host names, and to those in `hosts`, are answered."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        chat.close()

    statuses = {**_STATUSES, 401: "`unauthorized`: the token is missing or wrong."} if token is not None else _STATUSES
    app = FastAPI(
        title="agentlab chat",
        version=agentlab.__version__,
        description=f"Conversations with the agent {chat.agent.name}. Its tools: {', '.join(chat.agent.tools) or 'none'}.",
        docs_url=None,  # both pages load scripts from other servers
        redoc_url=None,
        lifespan=lifespan,
        responses={status: {"model": ErrorBody, "description": text} for status, text in sorted(statuses.items())},
    )

    runs: dict[int | str, dict[str, Any]] = {_LIMIT_STATUS: {"model": LimitErrorBody, "description": _LIMIT_TEXT}}

    @app.post(
        "/chat",
        response_model_exclude_unset=True,
        operation_id="chat",
        summary="Send a message in a context",
        responses=runs,
    )
    async def say(body: ChatBody) -> ServedReply:
        """Append the user's message to the context, run the agent on the conversation, and save message and answer.

        A context is used by one request at a time: a second request waits. Message and answer are saved together when the run has
        ended; a request that fails, or that has no answer, does not change the context.
        """
        config = _config(body.terminating_config)
        return _ended(await chat.chat(body.context_id, body.message, config), config)

    @app.post(
        "/chat/invoke",
        response_model_exclude_unset=True,
        operation_id="invoke",
        summary="Run the agent on a context",
        responses=runs,
    )
    async def invoke(body: InvokeBody) -> ServedReply:
        """Run the agent on the context without a further message, and save the answer. A context without a message is refused; some
        providers refuse a context that ends with the assistant's own words."""
        config = _config(body.terminating_config)
        return _ended(await chat.invoke(body.context_id, config), config)

    @app.post(
        "/chat/add-ai-message",
        response_model_exclude_unset=True,
        operation_id="add_ai_message",
        summary="Have the agent write the assistant's next message",
        responses=runs,
    )
    async def add_ai_message(body: AddAiMessageBody) -> ServedReply:
        """Run the agent with the prompt after the conversation, as an instruction, and save prompt and answer in the context. Without a
        prompt it is the same as /chat/invoke."""
        config = _config(body.terminating_config)
        return _ended(await chat.add_ai_message(body.context_id, body.prompt, config), config)

    @app.post(
        "/chat/ask",
        response_model_exclude_unset=True,
        operation_id="ask",
        summary="Run the agent without a context",
        responses=runs,
    )
    async def ask(body: AskBody) -> ServedReply:
        """Run the agent on a prompt, without the messages of other requests; nothing is saved."""
        config = _config(body.terminating_config)
        return _ended(await chat.ask(body.prompt, config), config)

    @app.post("/chat/add-message", response_model_exclude_unset=True, operation_id="add_message", summary="Add a message")
    async def add_message(body: AddMessageBody) -> ServedReply:
        """Add a message of the assistant or of the user to the context. The agent does not run: nothing is generated, and `stop_reason`
        is null."""
        return served(await chat.add_message(body.context_id, body.message, body.role))

    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(_LimitReachedError, _limit_reached)
    for kind in (AgentlabError, Exception):
        app.add_exception_handler(kind, _failed)
    _complete_document(app, chat, token)
    app.add_middleware(AccessControl, token=token, hosts=frozenset(hosts))
    return app


def _config(config: TerminatingConfig | None) -> dict[str, Any] | None:
    return None if config is None else config.model_dump()


class _LimitReachedError(Exception):
    """The run ended at a limit of the request's terminating_config."""

    def __init__(self, reply: ChatReply) -> None:
        self.reply = reply


def _ended(reply: ChatReply, config: dict[str, Any] | None) -> ServedReply:
    """Return the reply for sending. Raises _LimitReachedError."""
    if config is not None and reply.detail.startswith((NUDGES_EXCEEDED, INVOCATIONS_EXCEEDED)):
        raise _LimitReachedError(reply)
    return served(reply)


def _complete_document(app: FastAPI, chat: Chat, token: str | None) -> None:
    """Add the parts of the OpenAPI document that types cannot express: the names of the tools, and the token."""
    components = app.openapi()["components"]
    tools = list(chat.agent.tools)
    if tools:
        tool_ids = components["schemas"]["TerminatingConfig"]["properties"]["tool_ids"]
        tool_ids["items"]["enum"] = [*tools, *[tool_id for tool_id in chat.tool_ids if tool_id not in tools]]
        tool_ids["examples"] = [tools[-1:]]
    if token is not None:
        components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        app.openapi()["security"] = [{"token": []}]


# Errors ------------------------------------------------------------------------------------------------------------------------


def _error(status: int, kind: str, message: str, headers: dict[str, str] | None = None) -> JSONResponse:
    return JSONResponse({"error": {"type": kind, "message": _sendable(message)}}, status, headers)


async def _invalid(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)  # noqa: S101  registered for this type only
    problems = error.errors()
    if any(problem["type"] == "json_invalid" for problem in problems):
        where = problems[0]["loc"][-1]
        return _error(400, "not_json", f"The body is not JSON (at character {where}): send an object as application/json.")
    texts = [f"{'.'.join(map(str, problem['loc'][1:])) or 'body'}: {problem['msg']}" for problem in problems[:10]]
    return _error(422, "invalid_field", f"{'; '.join(texts)}. See /openapi.json for the fields of {request.url.path}.")


async def _http(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)  # noqa: S101  registered for this type only
    headers = dict(error.headers or {})
    if error.status_code == 404:
        paths = "/chat, /chat/invoke, /chat/add-ai-message, /chat/ask and /chat/add-message"
        return _error(404, "not_found", f"There is no {request.url.path[:200]!a}. Paths: {paths}.", headers)
    if error.status_code == 405:
        return _error(405, "wrong_method", f"{request.url.path} accepts {headers.get('Allow', 'POST')}.", headers)
    return _error(error.status_code, "not_json", f"{error.detail}: send an object as application/json.", headers)


async def _limit_reached(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, _LimitReachedError)  # noqa: S101  registered for this type only
    reply = served(error.reply).model_dump(mode="json", exclude_unset=True)
    body = {
        "error": {"type": reply["stop_reason"], "message": reply["detail"]},
        "generated_messages": reply["generated_messages"],
        "messages": reply["messages"],
    }
    return JSONResponse(body, _LIMIT_STATUS)


async def _failed(request: Request, error: Exception) -> JSONResponse:
    """Turn an error of a run into a response, by its cause."""
    if isinstance(error, ContextNotFoundError):
        return _error(404, "no_context", str(error))
    if isinstance(error, ChatInputError):
        return _error(400, "invalid_input", str(error))
    if isinstance(error, ContextChangedError):
        return _error(409, "context_changed", str(error))
    if isinstance(error, StorageError):
        log.error("%s", error)
        return _error(503, "storage", f"{error} Check the server's disk and its --db.")
    cause = error.__cause__ if isinstance(error, RunFailed) else error
    if isinstance(cause, ProviderError | FixtureError | MissingUsageError) or (cause is None and isinstance(error, RunFailed)):
        return _error(502, "provider", str(error))
    if isinstance(error, ConfigurationError):
        return _error(500, "setup", str(error))
    if isinstance(error, AgentlabError):  # any other error is raised again after this response, and the server logs it
        log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return _error(500, "internal", f"{type(cause).__name__}: see the server's log.")


# The command -------------------------------------------------------------------------------------------------------------------


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `serve`."""
    parser.add_argument("target", help="module:name, folder/module.py:name or folder/notebook.ipynb:name of an Agent or a Chat")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on; any but loopback needs a token")
    parser.add_argument("--port", type=int, default=8000, help="port to listen on; 0 takes a free one")
    parser.add_argument(
        "--token",
        default=None,
        help=f"the bearer token that clients must send; {TOKEN_VARIABLE} is safer, since process lists show arguments",
    )
    parser.add_argument(
        "--db", default=None, help=f"SQLite file of the contexts (default {DEFAULT_DATABASE}; ':memory:' stores none)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Serve until interrupted. Raises ConfigurationError for invalid arguments."""
    import uvicorn

    token = arguments.token if arguments.token is not None else os.environ.get(TOKEN_VARIABLE) or None
    if token is not None and (not token.isascii() or not token.isprintable() or not token.strip() or " " in token):
        raise ConfigurationError(
            f"The token cannot be used: pass visible ASCII characters without spaces, with --token or {TOKEN_VARIABLE}."
        )
    if token is None and not is_loopback(arguments.host):
        raise ConfigurationError(
            f"--host {arguments.host} can be reached from other machines: set a token with {TOKEN_VARIABLE} or --token, or use "
            "127.0.0.1."
        )
    if not 0 <= arguments.port <= 65535:
        raise ConfigurationError(f"--port {arguments.port}: pass a number from 0 to 65535.")
    database = None if arguments.db is None else _absolute(arguments.db)
    default = _absolute(DEFAULT_DATABASE)  # before a notebook changes the working directory to its folder
    found = load(arguments.target)
    if isinstance(found, Chat):
        if database is not None:
            raise ConfigurationError(
                f"{arguments.target!r} is a Chat, which has its own file: leave out --db, or name the agent instead."
            )
        chat = found
    elif isinstance(found, Agent):
        chat = Chat(found, default if database is None else database)
    else:
        raise ConfigurationError(f"{arguments.target!r} is {type(found).__name__}: name an Agent, or a Chat.")
    print(f"Serving {chat.agent!r}; contexts in {chat.contexts.path}", file=sys.stderr)  # noqa: T201  a command reports what it does
    uvicorn.run(
        make_app(chat, token=token, hosts=[arguments.host]),
        host=arguments.host,
        port=arguments.port,
        timeout_graceful_shutdown=SHUTDOWN_TIMEOUT_S,
        server_header=False,
    )
    return 0


def _absolute(database: str) -> str:
    return database if database == ":memory:" else os.path.abspath(database)  # noqa: PTH100  the file need not exist


MAX_INVOCATIONS = 1_000
"""The largest count in a request: each invocation or nudge is a model call, or may lead to one."""

ContextId: TypeAlias = Annotated[
    str,
    Field(
        min_length=1,
        max_length=MAX_ID_LENGTH,
        pattern=r"^[ -~]+$",
        description="The conversation's id, in printable ASCII. A new id begins a new conversation.",
        examples=["anna"],
    ),
]
_NOT_BLANK = r"[^\s\x1c-\x1f]"
WholeNumber: TypeAlias = Annotated[
    int, BeforeValidator(lambda value: int(value) if isinstance(value, float) and value.is_integer() else value)
]
"""A whole number; 3.0 is 3, since JSON has one kind of number."""

Text: TypeAlias = Annotated[str, Field(min_length=1, pattern=_NOT_BLANK)]


class _Body(BaseModel):
    """A request body without unknown fields, and without numbers as text."""

    model_config = ConfigDict(extra="forbid", strict=True)


class TerminatingConfig(_Body):
    """The tools that end the run, and the reminders for an answer that calls none of them."""

    tool_ids: list[Annotated[str, Field(min_length=1)]] = Field(
        min_length=1, description="Names or ids of the agent's tools; the first tool that succeeds ends the run."
    )
    consecutive_nudges: WholeNumber = Field(
        default=1,
        ge=0,
        le=MAX_INVOCATIONS,
        description="Reminders in a row for answers without a tool call; 0 turns them off.",
    )
    nudge_message: str = Field(default=NUDGE_MESSAGE, min_length=1, pattern=_NOT_BLANK, description="The reminder.")
    max_invocations: WholeNumber = Field(default=64, ge=1, le=MAX_INVOCATIONS, description="Round trips to the model in the run.")


Terminating: TypeAlias = Annotated[
    TerminatingConfig | None, Field(description="Let tools end the run; without it the agent's own setting applies.")
]


class ChatBody(_Body):
    """A message of the user in a context."""

    context_id: ContextId
    message: Text = Field(description="The user's message.", examples=["Do I need an umbrella in Graz?"])
    terminating_config: Terminating = None


class InvokeBody(_Body):
    """A context on which the agent runs without a further message."""

    context_id: ContextId
    terminating_config: Terminating = None


class AddAiMessageBody(_Body):
    """An instruction for the assistant's next message in a context."""

    context_id: ContextId
    prompt: Text | None = Field(
        default=None,
        description="The instruction for the assistant's next message; without one the agent runs on the context as it is.",
        examples=["Say good bye."],
    )
    terminating_config: Terminating = None


class AskBody(_Body):
    """A prompt for the agent, without a context."""

    prompt: Text = Field(description="The task.", examples=["Do I need an umbrella in Graz?"])
    terminating_config: Terminating = None


class AddMessageBody(_Body):
    """A message that is added to a context; the agent does not run."""

    context_id: ContextId
    message: Text = Field(description="The text.", examples=["Your parcel has arrived."])
    role: Literal["assistant", "user"] = Field(default="assistant", description="The author of the message.")


class SaidMessage(BaseModel):
    """A text."""

    sender: Literal["human", "ai", "system"] = Field(
        description="`human` for the request's own message or prompt; `ai` for the assistant; `system` for a reminder."
    )
    message: str


class MadeToolCall(BaseModel):
    """A call of a tool."""

    type: Literal["tool_call"]
    tool_call_id: str
    tool_name: str
    tool_input: dict[str, Any] = Field(description='The arguments; {"raw": "…"} if the model wrote no JSON object.')


class ToolResponse(BaseModel):
    """The result of a tool call."""

    type: Literal["tool_response"]
    tool_call_id: str
    tool_output: str = Field(description="The text for the model.")


class ServedToolCall(BaseModel):
    """A tool call of the model."""

    id: str
    name: str
    arguments: str = Field(description="JSON as text, as the model wrote it.")


class ServedToolResult(BaseModel):
    """The result of a tool call."""

    call_id: str
    name: str
    content: str = Field(description="The text for the model.")
    error: str | None = Field(default=None, description="What went wrong, in one word; null is success.")


class ServedMessage(BaseModel):
    """One message of a conversation."""

    role: Literal["user", "assistant", "tool", "system"] = Field(description="`system` for a reminder and an instruction.")
    content: str
    tool_calls: list[ServedToolCall] = Field(default=[], description="Left out if there are none.")
    tool_results: list[ServedToolResult] = Field(default=[], description="Left out if there are none.")


class ServedReply(BaseModel):
    """The reply to a request."""

    response: str = Field(
        description="The answer, or the text of the terminating tool. If a limit ended the run, it ends with the notice."
    )
    saved_ai_messages: bool = Field(description="True if the context has gained messages of the assistant.")
    generated_messages: list[SaidMessage | MadeToolCall | ToolResponse] = Field(
        description="The request's own message and all that followed, in order."
    )
    stop_reason: StopReason | None = Field(
        description="Why the run ended. A limit of the agent is not an error: status 200, with the answer so far. null if the agent "
        "did not run."
    )
    detail: str = Field(description="Why the run ended, in one sentence.")
    notice: str = Field(
        description="What ended the run before the agent was done, such as a limit, in brackets; empty if the agent was done."
    )
    messages: list[ServedMessage] = Field(description="The request's messages in agentlab's own form, with their roles.")


class ErrorDetail(BaseModel):
    """An error."""

    type: str = Field(description="The kind of error, in one word.", examples=["invalid_field"])
    message: str = Field(description="What is wrong, and what to do next.")


class ErrorBody(BaseModel):
    """The body of every response that is not a success."""

    error: ErrorDetail


class LimitErrorBody(ErrorBody):
    """The body of a response to a run that ended at a limit of the request's terminating_config."""

    generated_messages: list[SaidMessage | MadeToolCall | ToolResponse] = Field(description="As in a reply.")
    messages: list[ServedMessage] = Field(description="As in a reply.")


def served(reply: ChatReply) -> ServedReply:
    """Return a reply for sending: without keys, and without lone surrogates, which UTF-8 cannot encode."""
    body = {
        "response": reply.response,
        "saved_ai_messages": reply.saved_ai_messages,
        "generated_messages": list(reply.generated_messages),
        "stop_reason": reply.stop_reason,
        "detail": reply.detail,
        "notice": reply.notice,
        "messages": [_message(message) for message in reply.messages],
    }
    return ServedReply.model_validate(json.loads(_sendable(json.dumps(body, ensure_ascii=False))))


def _message(message: Message) -> dict[str, Any]:
    """Return a message; empty fields are left out of the response."""
    body: dict[str, Any] = {"role": message.role, "content": message.text}
    if message.tool_calls:
        body["tool_calls"] = [{"id": call.id, "name": call.name, "arguments": call.arguments} for call in message.tool_calls]
    if message.tool_results:
        body["tool_results"] = [
            {"call_id": one.call_id, "name": one.name, "content": one.content, "error": one.error} for one in message.tool_results
        ]
    return body


def _sendable(text: str) -> str:
    text = redact(text)
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")

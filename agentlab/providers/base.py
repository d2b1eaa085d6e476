"""The provider protocol: translates between agentlab's values and one vendor's HTTP wire, without I/O or state.

Also helpers for requests: merging options into the body, checking addresses and keys, API versions such as `gemini@v1`, and
Google Cloud's credentials.
"""

from __future__ import annotations

import functools
import os
import re
import threading
import urllib.parse
from collections.abc import Mapping, Sequence
from dataclasses import field
from importlib.util import find_spec
from typing import Any, ClassVar, Protocol, get_args

from agentlab._internal.display import Displayable
from agentlab._internal.names import did_you_mean
from agentlab._internal.redaction import redact
from agentlab._internal.values import dataclass
from agentlab.errors import ConfigurationError, MissingKeyError
from agentlab.model.finish_reasons import FinishReason, TerminationSignal
from agentlab.model.messages import JSON, TOOL_CHOICES, Effort, ModelRequest, OutputForm, Parameters
from agentlab.model.responses import ModelResponse, StreamEvent
from agentlab.providers.wires import read
from agentlab.providers.wires.finish_rules import Table, body_message
from agentlab.transport.http import HttpRequest


@dataclass(frozen=True, slots=True)
class Capabilities(Displayable):
    """The capabilities of a provider's wire. `tables` are its finish reasons; a subclass of ChatCompletions or Responses gets those of
    its wire.

    Example:
        >>> from agentlab.providers import Capabilities
        >>> Capabilities(streaming=False)
        Capabilities(streaming=False, tools=True, reports_usage=True, reports_cost=False)
    """

    streaming: bool = True
    tools: bool = True
    reports_usage: bool = True
    reports_cost: bool = False
    tables: tuple[Table, ...] = field(default=(), repr=False, compare=False)

    @property
    def reasons(self) -> Mapping[FinishReason, Mapping[str, tuple[str | int, ...]]]:
        """The finish reasons that the wire can send, each with the fields and values that mean it. If the wire also ends tool calls
        with an ordinary end, its values are listed under both.

        Example:
            >>> lab.capabilities("anthropic").reasons[lab.FinishReason.PAUSED]
            {'stop_reason': ('pause_turn', 'compaction')}
            >>> lab.FinishReason.PAUSED in lab.capabilities("openai").reasons
            False
        """
        found: dict[FinishReason, dict[str, tuple[str | int, ...]]] = {}
        for table in self.tables:
            for value, reason in table.reasons.items():
                with_calls = (FinishReason.TOOL_CALLS,) if table.stop_with_calls and reason is FinishReason.END_TURN else ()
                for meaning in (reason, *with_calls):
                    values = found.setdefault(meaning, {})
                    values[table.field] = (*values.get(table.field, ()), value)
        return {reason: found[reason] for reason in FinishReason if reason in found}


class StreamParser(Protocol):
    """Parses one stream. The bytes may be split anywhere.

    Example:
        >>> parser = lab.Provider("openai", model="gpt-5.4-mini").stream_parser()
        >>> whole = b'data: {"choices": [{"delta": {"content": "Paris."}, "finish_reason": "stop"}]}\\n\\ndata: [DONE]\\n\\n'
        >>> for piece in (whole[:50], whole[50:]):
        ...     events = parser.feed(piece)
        >>> parser.finish().finish_reason, parser.response().text, parser.sound
        (<FinishReason.END_TURN: 'end_turn'>, 'Paris.', True)
    """

    def feed(self, data: bytes) -> list[StreamEvent]:
        """Parse the next bytes and return the events that they complete. Never raises, whatever the provider sends.

        Example:
            >>> parser = lab.Provider("openai", model="gpt-5.4-mini").stream_parser()
            >>> parser.feed(b'data: {"choices": [{"delta": {"content": "Par')
            []
            >>> parser.feed(b'is."}}]}\\n\\n')
            [TextDelta(text='Paris.')]
        """
        ...

    def finish(self) -> TerminationSignal:
        """Return why the stream ended. A stream that broke off is MEDIUM or LOW, never a clean end.

        Example:
            >>> parser = lab.Provider("openai", model="gpt-5.4-mini").stream_parser()
            >>> events = parser.feed(b'data: {"choices": [{"delta": {"content": "Paris."}}]}\\n\\n')
            >>> signal = parser.finish()
            >>> signal.confidence, signal.message
            (<Confidence.LOW: 'low'>, 'The stream broke off before a finish reason.')
        """
        ...

    def response(self) -> ModelResponse:
        """Return the response assembled from the stream; before `finish`, from the pieces so far, and the stream goes on.

        Example:
            >>> parser = lab.Provider("openai", model="gpt-5.4-mini").stream_parser()
            >>> events = parser.feed(b'data: {"choices": [{"delta": {"content": "Par"}}]}\\n\\n')
            >>> parser.response().text
            'Par'
            >>> events = parser.feed(b'data: {"choices": [{"delta": {"content": "is."}}]}\\n\\n')
            >>> signal = parser.finish()
            >>> parser.response().text
            'Paris.'
        """
        ...

    @property
    def sound(self) -> bool:
        """True if the stream is complete and nothing was lost; known after `finish`.

        Example:
            >>> parser = lab.Provider("openai", model="gpt-5.4-mini").stream_parser()
            >>> events = parser.feed(b'data: {"choices": [{"delta": {"content": "Paris."}, "finish_reason": "stop"}]}\\n\\n')
            >>> parser.finish().finish_reason, parser.sound  # its end marker, `data: [DONE]`, is missing
            (<FinishReason.END_TURN: 'end_turn'>, False)
        """
        ...

    @property
    def cut_short(self) -> bool:
        """True if the body ended within an event, or before the first; known after `finish`.

        Example:
            >>> parser = lab.Provider("openai", model="gpt-5.4-mini").stream_parser()
            >>> events = parser.feed(b'data: {"choices": [{"del')
            >>> parser.finish().confidence, parser.cut_short
            (<Confidence.LOW: 'low'>, True)
        """
        ...

    def reset(self) -> None:
        """Reset the parser, for another stream.

        Example:
            >>> parser = lab.Provider("openai", model="gpt-5.4-mini").stream_parser()
            >>> events = parser.feed(b'data: {"choices": [{"delta": {"content": "Paris."}}]}\\n\\n')
            >>> parser.reset()
            >>> parser.finish().confidence, parser.response().text
            (<Confidence.LOW: 'low'>, '')
        """
        ...


class Provider(Protocol):
    """One vendor's wire, bound to a model. Immutable; one object may serve any number of runs and streams at once.

    Example:
        >>> openai = lab.Provider("openai", model="gpt-5.4-mini", api_key="a key")
        >>> openai.name, openai.model, openai.wire
        ('openai', 'gpt-5.4-mini', 'openai.chat')
    """

    @property
    def name(self) -> str:
        """The name in `provider:model` strings.

        Example:
            >>> lab.Provider("azure", model="gpt-5.4-mini", base_url="https://example.openai.azure.com").name
            'azure'
        """
        ...

    @property
    def wire(self) -> str:
        """The name of the message format. Providers that share it accept each other's NativeContent.

        Example:
            >>> lab.Provider("gemini", model="gemini-3.5-flash").wire
            'gemini.generate'
        """
        ...

    @property
    def model(self) -> str:
        """The requested model.

        Example:
            >>> lab.Provider("gemini", model="gemini-3.5-flash").model
            'gemini-3.5-flash'
        """
        ...

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities of the wire.

        Example:
            >>> lab.Provider("openrouter", model="openai/gpt-5.4-mini").capabilities.reports_cost
            True
        """
        ...

    def build_request(self, request: ModelRequest) -> HttpRequest:
        """Return the HTTP request for a model request; `request.stream` asks for a stream.

        Example:
            >>> openai = lab.Provider("openai", model="gpt-5.4-mini", api_key="a key")
            >>> from agentlab.model.messages import ModelRequest
            >>> request = openai.build_request(ModelRequest((lab.Message("user", "Where is the Louvre?"),)))
            >>> request.method, request.url
            ('POST', 'https://api.openai.com/v1/chat/completions')
            >>> request.body
            b'{"model":"gpt-5.4-mini","messages":[{"role":"user","content":"Where is the Louvre?"}]}'
        """
        ...

    def auth_headers(self) -> dict[str, str]:
        """Return the headers with the key. Raises MissingKeyError, which names the environment variable to set. Also called before the
        first step of a live run.

        A provider that signs each request also has a method `sign` (see `Signer`), which is called instead.

        Example:
            >>> openai = lab.Provider("openai", model="gpt-5.4-mini", api_key="a key")
            >>> openai.auth_headers()
            {'authorization': 'Bearer a key'}
        """
        ...

    def parse(self, payload: JSON, *, requested_cap: int | None = None) -> ModelResponse:
        """Read a whole response body, already parsed as JSON. Never raises, whatever the provider sends.

        Example:
            >>> openai = lab.Provider("openai", model="gpt-5.4-mini", api_key="a key")
            >>> answer = openai.parse({"choices": [{"message": {"content": "In Paris."}, "finish_reason": "length"}]})
            >>> answer.text, answer.signal.finish_reason, answer.usage.total_tokens
            ('In Paris.', <FinishReason.MAX_TOKENS: 'max_tokens'>, None)
        """
        ...

    def stream_parser(self, *, requested_cap: int | None = None) -> StreamParser:
        """Return a new parser for one stream.

        Example:
            >>> openai = lab.Provider("openai", model="gpt-5.4-mini", api_key="a key")
            >>> openai.stream_parser().feed(b'data: {"choices": [{"delta": {"content": "Paris."}}]}\\n\\n')
            [TextDelta(text='Paris.')]
        """
        ...

    def error_message(self, payload: JSON) -> str:
        """Return the vendor's message in an error body, or an empty string.

        Example:
            >>> openai = lab.Provider("openai", model="gpt-5.4-mini", api_key="a key")
            >>> openai.error_message({"error": {"message": "No such model."}})
            'No such model.'
        """
        ...


class Signer(Protocol):
    """A provider whose authentication depends on the request.

    It may also have `check_key()`, which raises MissingKeyError before the first step if no key can be found.

    Example:
        >>> hasattr(lab.Provider("bedrock", model="amazon.nova-lite-v1:0"), "sign")
        True
    """

    def sign(self, request: HttpRequest) -> dict[str, str]:
        """Return the headers that authenticate this request. Called for live calls only and off the event loop, so it may block.
        Raises MissingKeyError.

        Example:
            >>> from agentlab.model.messages import ModelRequest
            >>> bedrock = lab.Provider("bedrock", model="amazon.nova-lite-v1:0", api_key="a key")
            >>> request = bedrock.build_request(ModelRequest((lab.Message("user", "Where is the Louvre?"),)))
            >>> bedrock.sign(request)
            {'authorization': 'Bearer a key'}
        """
        ...


@dataclass(frozen=True, slots=True)
class Server(Displayable):
    """The base of most providers: a server at `base_url`. The key and additional `headers` are sent with live calls only, by the
    user's own `http_client`, an AsyncClient of httpx or httpx2, if there is one.

    `key_variables` are the environment variables for the key; without them the key is optional. `structured_output` is the form in
    which the wire takes the schema of a typed answer; with `tool`, the default, the model gives such an answer as a tool call.
    """

    name: ClassVar[str]
    wire: ClassVar[str]
    capabilities: ClassVar[Capabilities]
    key_variables: ClassVar[tuple[str, ...]] = ()
    structured_output: ClassVar[OutputForm] = "tool"

    model: str
    base_url: str
    api_key: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)
    http_client: Any = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not self.base_url:
            example = f'lab.Provider("{self.name}", model=…, base_url="http://127.0.0.1:8080/v1")'
            raise ConfigurationError(f"The provider {self.name} needs the address of its server: {example}")
        object.__setattr__(self, "base_url", clean_url(self.base_url, self.name))

    def auth_headers(self) -> dict[str, str]:
        """Return the key as a bearer token. Raises MissingKeyError."""
        if not self.key_variables and not self.api_key:
            return dict(self.headers)
        return {**self.headers, "authorization": f"Bearer {find_key(self.name, self.api_key, self.key_variables)}"}

    def output_form(self, *, with_tools: bool) -> OutputForm:
        """Return the form in which this model takes the schema of a typed answer, in requests with or without tools.

        Example:
            >>> old = lab.Provider("gemini", model="gemini-2.5-flash")
            >>> old.output_form(with_tools=False), old.output_form(with_tools=True)
            ('schema', 'tool')
        """
        return self.structured_output

    def error_message(self, payload: JSON) -> str:
        """Return the vendor's message in an error body, or an empty string."""
        return body_message(payload)


# Requests ------------------------------------------------------------------------------------------------------------------


def content_headers(*, stream: bool) -> dict[str, str]:
    """Return the headers for the formats of request and response."""
    return {"content-type": "application/json", "accept": "text/event-stream" if stream else "application/json"}


def merge_options(fields: dict[str, bytes], options: Mapping[str, JSON], *, reserved: Sequence[str]) -> None:
    """Add the user's `options` to the fields of a request body, in place.

    A field that the request already has keeps its value, so that a budget's output cap applies. Arrays are extended (a vendor's
    server-side tools), and objects are merged. `reserved` fields and another type than theirs raise ConfigurationError.
    """
    for name, value in options.items():
        if name in reserved:
            raise ConfigurationError(
                f"options[{name!r}] cannot be set by options: agentlab writes {', '.join(reserved)} itself. Leave it out."
            )
        try:
            encoded = read.dumps(value)
        except TypeError as error:
            raise ConfigurationError(f"options[{name!r}] cannot be sent as JSON: {error}") from None
        if name not in fields:
            fields[name] = encoded
        elif fields[name].startswith(b"["):
            if not isinstance(value, list | tuple):
                raise ConfigurationError(f"options[{name!r}] is {value!r}: pass a list, which is added to the request's own.")
            fields[name] = fields[name][:-1] + b"," + encoded[1:] if value else fields[name]
        elif fields[name].startswith(b"{") and isinstance(value, Mapping):
            fields[name] = read.dumps({**value, **read.loads(fields[name])})


def checked_parameters(asked: Parameters, tools: Sequence[str]) -> Parameters:
    """Return an agent's parameters. Raises ConfigurationError for a value that no provider takes."""
    heat, seed, effort, choice = asked.temperature, asked.seed, asked.reasoning_effort, asked.tool_choice
    if heat is not None and (isinstance(heat, bool) or not isinstance(heat, int | float) or not 0 <= heat <= 2):
        raise ConfigurationError(f"temperature={heat!r}: pass a number from 0 to 2.")
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int)):
        raise ConfigurationError(f"seed={seed!r}: pass a whole number.")
    if effort is not None and effort not in get_args(Effort):
        raise ConfigurationError(f"reasoning_effort={effort!r}: choose one of {', '.join(get_args(Effort))}.")
    if choice is not None and choice not in (*TOOL_CHOICES, *tools):
        hint = did_you_mean(str(choice), [*TOOL_CHOICES, *tools])
        raise ConfigurationError(
            f"tool_choice={choice!r} is not a tool of the agent.{hint} Choose {', '.join(TOOL_CHOICES)}, or one of its tools: "
            f"{', '.join(tools) or 'none'}."
        )
    if asked.parallel_tool_calls not in (None, True, False):
        raise ConfigurationError(f"parallel_tool_calls={asked.parallel_tool_calls!r}: pass True or False.")
    return asked


def refuse_lacking(parameters: Parameters, lacks: Sequence[str], provider: str) -> None:
    """Raise ConfigurationError for a parameter in `lacks`: a name, or a name and a value as `tool_choice=required`. The value `name`
    of `tool_choice` is any tool's name."""
    for name, value in parameters.given().items():
        kind = "name" if name == "tool_choice" and value not in TOOL_CHOICES else value
        if name in lacks or f"{name}={kind}" in lacks:
            raise ConfigurationError(
                f"{name}={value!r}: {provider} does not take {'this parameter' if name in lacks else 'this value'}. Leave it out, or "
                "pass a field of the server's own in options={…}."
            )


_CLAUDE_UNHEATED = re.compile(r"claude-(?:(?:fable|mythos|opus|sonnet)-5|haiku-5-5|opus-4-[78])")
_CLAUDE_UNFORCED = re.compile(r"claude-(?:(?:fable|mythos)-5-[12]|(?:opus|sonnet)-5-5)")
_CLAUDE_REASONING = re.compile(r"claude-(?:(?:fable|mythos)-5|mythos-preview|opus-5-5)")
_CLAUDE_46 = re.compile(r"claude-(?:opus|sonnet)-4-6")
# https://platform.claude.com/docs/en/about-claude/models/migration-guide and the profiles of pydantic-ai 2.68, read 2026-11-25.


def refuse_for_claude(asked: Parameters, model: str) -> None:
    """Raise ConfigurationError for a parameter that this model of Claude refuses, on whichever server it runs."""
    heat, effort, choice = asked.temperature, asked.reasoning_effort, asked.tool_choice
    for is_asked, models, value, reason in (
        (heat not in (None, 1), _CLAUDE_UNHEATED, f"temperature={heat!r}", "takes no temperature but 1"),
        (choice not in (None, "auto", "none"), _CLAUDE_UNFORCED, f"tool_choice={choice!r}", "takes no forced tool choice"),
        (effort == "none", _CLAUDE_REASONING, f"reasoning_effort={effort!r}", "always reasons"),
        (effort == "xhigh", _CLAUDE_46, f"reasoning_effort={effort!r}", "takes low, medium, high or max"),
    ):
        if is_asked and models.search(model):
            raise ConfigurationError(f"{value}: {model} {reason}. Leave it out.")


def clean_url(base_url: str, provider: str) -> str:
    """Return a base address without a final slash. Raises ConfigurationError if it is not an HTTP address, or if it may contain a
    secret, since addresses are shown and recorded."""
    if not base_url.startswith(("http://", "https://")):
        raise ConfigurationError(
            f"base_url={base_url!r} of {provider} is not an address. It must begin with https:// or http://."
        )
    if "@" in base_url or "?" in base_url or "#" in base_url:
        raise ConfigurationError(
            f"The base_url of {provider} contains a user name, a password or a query. Pass keys as api_key= or headers=."
        )
    return base_url.rstrip("/")


def find_key(provider: str, api_key: str | None, variables: Sequence[str]) -> str:
    """Return the given key, or the key in the first environment variable that is set. Raises MissingKeyError.

    Example:
        >>> from agentlab.providers import find_key
        >>> find_key("kiosk", "a key", ["KIOSK_API_KEY"])
        'a key'
        >>> find_key("kiosk", None, ["KIOSK_API_KEY"])
        Traceback (most recent call last):
            ...
        agentlab.errors.MissingKeyError: No API key for kiosk. Set the environment variable KIOSK_API_KEY, or pass...
    """
    key = api_key or next((value for name in variables if (value := os.environ.get(name, "").strip())), "")
    if not key:
        raise MissingKeyError(
            f"No API key for {provider}. Set the environment variable {' or '.join(variables)}, or pass "
            f'lab.Provider("{provider}", model=…, api_key=…); or run on recorded responses, without a key, inside lab.replay(folder).'
        )
    return check_key(provider, key)


def check_key(provider: str, key: str) -> str:
    """Return the key without surrounding white space. Raises ConfigurationError, which does not show the key, if a header cannot
    contain it."""
    key = key.strip()
    if not key.isascii() or not key.isprintable():
        raise ConfigurationError(f"The API key for {provider} contains an invalid character. Copy it again, in one line.")
    return key


# Versions ------------------------------------------------------------------------------------------------------------------

_IN_PATH = re.compile(r"v\d{1,3}(?:p\d{1,2})?(?:(?:alpha|beta|internal)\d{0,2})?", re.ASCII)
_DATED = re.compile(r"\d{4}-\d{2}-\d{2}(?:-preview)?", re.ASCII)


def place_version(base_url: str, version: str | None, provider: str) -> tuple[str, str | None]:
    """Return an address that ends in its version, and that version.

    `version` replaces the version at the end of the address, or is appended. None keeps the address; the version returned is then None
    if the address has none. Raises ConfigurationError for a malformed version.
    """
    bare, _, last = base_url.rpartition("/")
    in_address = last if _IN_PATH.fullmatch(last) else None
    if version is None:
        return base_url, in_address
    if not isinstance(version, str) or not _IN_PATH.fullmatch(version):
        raise _malformed_version(version, provider, "v1")
    return f"{bare if in_address else base_url}/{version}", version


def check_date(version: str, provider: str) -> str:
    """Return the version if it is a date. Raises ConfigurationError for another format."""
    if not isinstance(version, str) or not _DATED.fullmatch(version):
        raise _malformed_version(version, provider, "2023-06-01")
    return version


def _malformed_version(version: object, provider: str, example: str) -> ConfigurationError:
    shown = redact(repr(version))
    return ConfigurationError(f"{shown} is not an API version of {provider}. Write a version such as {provider}@{example}:model.")


# Google Cloud --------------------------------------------------------------------------------------------------------------
#
# Addresses and variables as in the vendors' clients (google-genai 3.4, anthropic 2.12); credentials by google-auth.

_GOOGLE_EXTRA = "pip install 'agentlab-jupyter[vertex]'"
_REGION = re.compile(r"[a-z0-9-]+")


class GoogleCloud:
    """What the providers on Vertex AI share: the place of a project, and an access token, given or found by google-auth."""

    __slots__ = ()
    name: ClassVar[str]
    base_url: str
    project: str
    location: str
    api_key: str | None
    headers: Mapping[str, str]

    def find_place(self) -> None:
        """Set the location, else that of GOOGLE_CLOUD_LOCATION, else `global`; and its address. Raises ConfigurationError."""
        location = self.location or os.environ.get("GOOGLE_CLOUD_LOCATION", "").strip() or "global"
        if not _REGION.fullmatch(location):
            raise ConfigurationError(f"location={location!r} is not a location of Google Cloud. Pass one such as 'europe-west4'.")
        host = "aiplatform" if location == "global" else f"{location}-aiplatform"
        host = f"aiplatform.{location}.rep" if location in ("us", "eu") else host
        object.__setattr__(self, "location", location)
        object.__setattr__(self, "base_url", clean_url(self.base_url or f"https://{host}.googleapis.com/v1", self.name))

    def place(self) -> str:
        """Return the path of the project and the location. Raises ConfigurationError if no project is known."""
        project = self.project or os.environ.get("GOOGLE_CLOUD_PROJECT", "").strip()
        if not project:
            raise ConfigurationError(
                f"{self.name} needs a project of Google Cloud: set the environment variable GOOGLE_CLOUD_PROJECT, or pass "
                f'lab.Provider("{self.name}", model=…, project="my-project").'
            )
        return f"projects/{urllib.parse.quote(project, safe=':')}/locations/{self.location}"

    def check_key(self) -> None:
        """Raise MissingKeyError if there is neither a token nor google-auth."""
        if not self.api_key and (find_spec("google") is None or find_spec("google.auth") is None):
            raise MissingKeyError(f"{self.name} finds your Google Cloud credentials with google-auth: {_GOOGLE_EXTRA}.")

    def auth_headers(self) -> dict[str, str]:
        """Return the given access token, else one for the application default credentials. Blocks: it may read files and use the
        network. Raises MissingKeyError."""
        return {**self.headers, "authorization": f"Bearer {self._token()}"}

    def sign(self, request: HttpRequest) -> dict[str, str]:
        """Return the same: tokens expire, so each request gets one."""
        return self.auth_headers()

    def _token(self) -> str:
        if self.api_key:
            return check_key(self.name, self.api_key)
        self.check_key()
        from google.auth.exceptions import DefaultCredentialsError, RefreshError

        with _google_lock:
            try:
                credentials, request = _google_credentials()
                if not credentials.valid:
                    credentials.refresh(request)
            except (DefaultCredentialsError, RefreshError) as error:
                reason = str(error).rstrip(".")
                raise MissingKeyError(
                    f"No Google Cloud credentials for {self.name}: {reason}. Run `gcloud auth application-default login`, or set "
                    "GOOGLE_APPLICATION_CREDENTIALS to the file of a service account."
                ) from None
        return str(credentials.token)


_google_lock = threading.Lock()


@functools.cache
def _google_credentials() -> Any:
    import google.auth
    from google.auth.transport.requests import Request

    credentials, _ = google.auth.default(scopes=["https://www.googleapis.com/auth/cloud-platform"])
    return credentials, Request()

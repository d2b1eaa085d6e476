"""The errors that any package may raise; `agentlab.errors` is where users find them, and has the tree."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from agentlab._internal.display import rendered
from agentlab._internal.safe_text import printable


def _safe(args: tuple[object, ...]) -> Iterator[object]:
    """Redact keys and escape control characters in texts: messages quote providers, models and tools."""
    return (printable(arg) if isinstance(arg, str) else arg for arg in args)


class AgentlabError(Exception):
    """Base class of all errors of agentlab. Messages contain no keys and no control characters.

    Example:
        >>> lab.Agent("openai")
        Traceback (most recent call last):
            ...
        agentlab.errors.UnknownProviderError: 'openai' is not a provider and a model: write provider:model, e.g....
    """

    def __init__(self, *args: object) -> None:
        super().__init__(*_safe(args))

    def __reduce__(self) -> Any:
        """Pickle the message and the attributes; the default would call `__init__` with the message alone."""
        return _unpickled, (type(self), self.args), self.__dict__

    def _render_traceback_(self) -> list[str]:
        """Return the traceback for IPython: only the user's code and the message."""
        return rendered(self)


def _unpickled(kind: type[AgentlabError], args: tuple[object, ...]) -> AgentlabError:
    error = kind.__new__(kind, *args)
    error.args = args
    return error


class ConfigurationError(AgentlabError, ValueError):
    """The configuration cannot work. The message names the value and a remedy.

    Example:
        >>> lab.Agent(5)
        Traceback (most recent call last):
            ...
        agentlab.errors.ConfigurationError: 5 is not a model: pass a string such as 'openai:gpt-4.1-mini', or la...
    """


class UnknownProviderError(ConfigurationError):
    """The provider's name is unknown, or the string is not `provider:model`.

    Example:
        >>> lab.Agent("opneai:gpt-5.4-mini")
        Traceback (most recent call last):
            ...
        agentlab.errors.UnknownProviderError: No provider 'opneai'. Did you mean 'openai'? Providers: anthropic,...
    """


class MissingKeyError(ConfigurationError):
    """A live call needs an API key, but none was found.

    Example:
        >>> await lab.Agent("openai:gpt-5.4-mini").run("Hello.")
        Traceback (most recent call last):
            ...
        agentlab.errors.MissingKeyError: No API key for openai. Set the environment variable OPENAI_API_KEY, or...
    """


class LimitError(ConfigurationError):
    """A limit or another setting with an impossible value.

    Example:
        >>> lab.Budget(max_turns=0)
        Traceback (most recent call last):
            ...
        agentlab.errors.LimitError: Budget(max_turns=0): max_turns must be at least 1. None means no limit; left out, it...
    """


class ToolDefinitionError(ConfigurationError):
    """A function that cannot be offered to a model as a tool.

    Example:
        >>> lab.tool(lambda words: words)
        Traceback (most recent call last):
            ...
        agentlab.errors.ToolDefinitionError: '<lambda>' cannot be a tool's name (letters, digits, _ and -, at mo...
    """


class ChatInputError(ConfigurationError):
    """An input of a Chat is not valid; the message names the field.

    Example:
        >>> await lab.Chat(brief).chat("anna", " ")
        Traceback (most recent call last):
            ...
        agentlab.errors.ChatInputError: message=' ': pass a non-empty text.
    """


class ContextNotFoundError(ChatInputError, LookupError):
    """`Chat.invoke` was called for a context without messages.

    Example:
        >>> await lab.Chat(brief).invoke("anna")
        Traceback (most recent call last):
            ...
        agentlab.errors.ContextNotFoundError: The context 'anna' has no message: begin it with chat or add_message, or ask...
    """


class FixtureError(AgentlabError):
    """Recorded responses that cannot be used.

    Example:
        >>> issubclass(lab.errors.ReplayMissError, lab.errors.FixtureError)
        True
        >>> lab.replay("no-such-folder")
        Traceback (most recent call last):
            ...
        agentlab.errors.FixtureNotFoundError: no-such-folder does not exist:...
    """


class FixtureNotFoundError(FixtureError, FileNotFoundError):
    """The fixture folder or file does not exist, or has no cassette.

    Example:
        >>> lab.replay("no-such-folder")
        Traceback (most recent call last):
            ...
        agentlab.errors.FixtureNotFoundError: no-such-folder does not exist:...
    """


class MalformedCassetteError(FixtureError, ValueError):
    """A cassette that cannot be read.

    Example:
        >>> from pathlib import Path
        >>> from tempfile import mkdtemp
        >>> path = Path(mkdtemp()) / "broken.yaml"
        >>> written = path.write_text("interactions: 5")
        >>> lab.replay(path)
        Traceback (most recent call last):
            ...
        agentlab.errors.MalformedCassetteError: broken.yaml, the top level: expected a mapping with a list `inte...
    """


class ReplayMissError(FixtureError, LookupError):
    """A request matches no recording. The message shows the most similar recording and the differences.

    Example:
        >>> with lab.replay("fixtures/trip"):
        ...     result = await agent.run("Another question.")
        Traceback (most recent call last):
            ...
        agentlab.errors.ReplayMissError: No recording matches this request to POST api.anthropic.com/v1/messages...
    """


class ProviderError(AgentlabError):
    """The provider could not be reached, or answered with an error.

    Example:
        >>> result = await lab.Agent(ScriptedProvider([lab.errors.ProviderError("no answer")])).run("?")
        >>> result.stop_reason, result.error
        (<StopReason.ERROR: 'error'>, ProviderError('no answer'))
    """


class ProviderConnectionError(ProviderError):
    """No complete response: the connection was refused, reset or timed out, or the response ended early.

    Example:
        >>> from agentlab.testing import faults, faulty
        >>> with lab.replay("fixtures/trip"), faulty(faults.Refused(), times=None):
        ...     result = await agent.run(TASK)
        >>> type(result.error).__name__, result.stop_reason
        ('ProviderConnectionError', <StopReason.ERROR: 'error'>)
    """


class ProviderStatusError(ProviderError):
    """An HTTP status outside 200 to 299.

    `status` is the HTTP status code; `retry_after_s` the seconds that the provider asks to wait, None if it does not say; `code` the
    provider's own error code, such as `insufficient_quota`, or ""; `rate_limit` the account's limits as a `RateLimit`, None if the
    headers do not contain them.

    Example:
        >>> from agentlab.testing import faults, faulty
        >>> with lab.replay("fixtures/trip"), faulty(faults.Status(429, retry_after_s=2), times=None):
        ...     result = await agent.run(TASK)
        >>> result.error.status, result.error.retry_after_s
        (429, 2.0)
    """

    def __init__(
        self,
        message: str,
        *,
        status: int,
        retry_after_s: float | None = None,
        code: str = "",
        rate_limit: Any = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.retry_after_s = retry_after_s
        self.rate_limit = rate_limit


class ProviderPayloadError(ProviderError):
    """A body that is not what the provider documents (not JSON, or not an object).

    Example:
        >>> from agentlab.testing import faults, faulty
        >>> with lab.replay("fixtures/trip"), faulty(faults.Page(), times=None):
        ...     result = await agent.run(TASK)
        >>> type(result.error).__name__
        'ProviderPayloadError'
    """


class ProviderStreamError(ProviderError):
    """A streamed answer lost a piece in transit, and repeated requests did not return a complete one. The text of the step is what was
    received; its `holes` are the places where pieces are missing.

    Example:
        >>> from dataclasses import replace
        >>> from agentlab.model.responses import Hole
        >>> holed = replace(say("pay 100 to Bob"), holes=(Hole(8),))
        >>> result = await lab.Agent(ScriptedProvider([holed] * 3)).run("?")
        >>> type(result.error).__name__, result.text, result.history[0].holes[0].place
        ('ProviderStreamError', 'pay 100 to Bob', 8)
    """


class McpError(AgentlabError):
    """An MCP server cannot be started, has ended, or reports that a call failed. In a run, the model reads it as the tool's result.

    Example:
        >>> await lab.tools.from_mcp("no-such-command")
        Traceback (most recent call last):
            ...
        agentlab.errors.McpError: The MCP server 'no-such-command' cannot be used: [Errno 2] No such file or directory: 'no-such-...
    """


class MissingUsageError(AgentlabError):
    """The provider reported no usage, and the budget has `missing_usage="fail"`.

    Example:
        >>> silent = lab.Agent(ScriptedProvider([say("Hello.", tokens=(None, None))]))
        >>> result = await silent.run("?", budget=lab.Budget(max_tokens=100, missing_usage="fail"))
        >>> type(result.error).__name__
        'MissingUsageError'
    """


class ContextChangedError(AgentlabError):
    """Another process or event loop wrote to a chat's context during a request; nothing was saved.

    Example:
        >>> from agentlab.serving.contexts import Contexts
        >>> contexts = Contexts()
        >>> contexts.append("anna", [lab.Message("user", "Hello.")], after=0)
        >>> contexts.append("anna", [lab.Message("user", "Hello?")], after=0)
        Traceback (most recent call last):
            ...
        agentlab.errors.ContextChangedError: The context 'anna' had 0 messages when the request began, and now h...
    """


class StorageError(AgentlabError):
    """Runs cannot be written to, or read from, a store. The message names the place and a remedy.

    Example:
        >>> lab.Store().load("monday")
        Traceback (most recent call last):
            ...
        agentlab.errors.StorageError: There is no run 'monday' in this store, which has 0 runs.
    """


class StoredError(AgentlabError):
    """The error that ended a stored run. `kind` is the name of its class.

    Example:
        >>> store = lab.Store()
        >>> result = await store.keep(lab.Agent(ScriptedProvider([lab.errors.ProviderError("no answer")])).run("?"))
        >>> store.load(result.run_id).result.error.kind
        'ProviderError'
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StoredError) and (other.kind, str(other)) == (self.kind, str(self))

    def __hash__(self) -> int:
        return hash((self.kind, str(self)))


class RunEndedError(AgentlabError):
    """A step was requested from a run that has ended.

    Example:
        >>> await ended.step()
        Traceback (most recent call last):
            ...
        agentlab.errors.RunEndedError: The run has ended (stop_condition: Stop condition met: HasToolCall(finali...
    """


class AgentlabWarning(UserWarning):
    """A problem that does not end the run, such as a limit that cannot be enforced, or a run without any limit.

    Example:
        >>> import warnings
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     result = await brief.run("?", budget=lab.Budget(max_turns=None))
        >>> str(caught[0].message)[:21]
        'This run has no limit'
    """

    def __init__(self, *args: object) -> None:
        super().__init__(*_safe(args))


class StopRequested(Exception):  # noqa: N818  a request, like StopIteration, not an error
    """Raise this in a tool or a middleware to end the run, with a reason and optionally the run's output.

    Example:
        >>> def check(city: str) -> str:
        ...     'Check a city.'
        ...     raise lab.StopRequested("the city is closed", output=city)
        >>> result = await lab.Agent(ScriptedProvider([call("check", {"city": "Graz"})]), tools=[check]).run("?")
        >>> result.detail, result.output
        ('Stopped by the tool: the city is closed', 'Graz')
    """

    def __init__(self, reason: str, output: Any = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.output = output


for _public in [value for value in globals().values() if getattr(value, "__module__", "") == __name__]:
    _public.__module__ = "agentlab.errors"  # the name in tracebacks and pickles

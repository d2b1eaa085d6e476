"""Every error of agentlab.

    AgentlabError
    ├── ConfigurationError            what the person wrote cannot work (also a ValueError)
    │   ├── UnknownProviderError
    │   ├── MissingKeyError
    │   ├── LimitError                a limit, or another setting, with an impossible value
    │   ├── ToolDefinitionError       a function that cannot be offered as a tool
    │   └── ChatInputError            a field of what was said to a Chat
    ├── FixtureError                  recorded responses that cannot be used
    │   ├── FixtureNotFoundError
    │   ├── MalformedCassetteError
    │   └── ReplayMissError           a request that matches nothing recorded
    ├── ProviderError                 the provider could not be reached, or answered with an error
    │   ├── ProviderConnectionError
    │   ├── ProviderStatusError
    │   └── ProviderPayloadError
    ├── MissingUsageError             Budget(missing_usage="fail") and a response without usage
    ├── ContextChangedError           another process wrote to a chat's context meanwhile
    ├── StorageError                  runs cannot be written to, or read from, where they are kept
    ├── StoredError                   an error of a run that was kept: it says the same as the one that was
    ├── RunEndedError                 a step was asked of a run that has ended
    └── RunStopped                    from `result.raise_for_stop()`, with the result on it
        ├── TurnLimitReached, CallLimitReached, TokenBudgetReached, CostBudgetReached, TimeoutReached
        ├── ConditionReached, ExplicitlyStopped, ResponseTruncated, ResponseFiltered, NudgesExhausted
        └── RunCancelled, RunFailed

    StopRequested                     not an error: raise it in a tool or a middleware to end the run

Limits are outcomes, never exceptions: a run that reaches one returns its result. A ConfigurationError or a FixtureError inside
a run is raised, after what happened so far was recorded; a ProviderError ends the run as ERROR and is kept on the result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentlab.printable import printable

if TYPE_CHECKING:
    from agentlab.results import RunResult


class AgentlabError(Exception):
    """Root of all errors that agentlab raises on purpose. What they say of others' words holds no keys, and steers no terminal."""

    def __init__(self, *said: object) -> None:
        super().__init__(*(printable(one) if type(one) is str else one for one in said))


class ConfigurationError(AgentlabError, ValueError):
    """What was asked for cannot work; the message names the value and the next step."""


class UnknownProviderError(ConfigurationError):
    """No provider of that name, or a string that is not `provider:model`."""


class MissingKeyError(ConfigurationError):
    """A live call needs an API key and none was found."""


class LimitError(ConfigurationError):
    """A limit or another setting with an impossible value."""


class ToolDefinitionError(ConfigurationError):
    """A function that cannot be offered to a model as a tool."""


class ChatInputError(ConfigurationError):
    """What was said to a Chat cannot be taken; the message names the field."""


class FixtureError(AgentlabError):
    """Recorded responses that cannot be used."""


class FixtureNotFoundError(FixtureError, FileNotFoundError):
    """The fixture folder or file does not exist, or holds no cassette."""


class MalformedCassetteError(FixtureError, ValueError):
    """A cassette that cannot be read."""


class ReplayMissError(FixtureError, LookupError):
    """A request that matches nothing recorded; the message shows the nearest recording and what differs."""


class ProviderError(AgentlabError):
    """The provider could not be reached, or answered with an error."""


class ProviderConnectionError(ProviderError):
    """No answer: connection refused, reset, timed out, or a response that broke off."""


class ProviderStatusError(ProviderError):
    """An HTTP status outside 200 to 299.

    `status` is the HTTP status code, `retry_after_s` how long the provider asks to wait (None: it does not say), `code` the provider's
    own word for what is wrong, such as `insufficient_quota` (empty: it has none).
    """

    def __init__(self, message: str, *, status: int, retry_after_s: float | None = None, code: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.retry_after_s = retry_after_s


class ProviderPayloadError(ProviderError):
    """A body that is not what the provider documents (not JSON, or not an object)."""


class MissingUsageError(AgentlabError):
    """The provider reported no usage and `Budget(missing_usage="fail")` was asked for."""


class ContextChangedError(AgentlabError):
    """Another process wrote to a chat's context while a request was under way; nothing was saved."""


class StorageError(AgentlabError):
    """Runs cannot be written to, or read from, where they are kept; the message names the place and the next step."""


class StoredError(AgentlabError):
    """An error that ended a run, read back from where the run was kept. `kind` is the name of the class it had."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StoredError) and (other.kind, str(other)) == (self.kind, str(self))

    def __hash__(self) -> int:
        return hash((self.kind, str(self)))


class RunEndedError(AgentlabError):
    """A step was asked of a run that has ended."""


class AgentlabWarning(UserWarning):
    """Something that a person should know and that ends nothing: a limit that cannot be watched, a run without any limit."""

    def __init__(self, *said: object) -> None:
        super().__init__(*(printable(one) if type(one) is str else one for one in said))


class StopRequested(Exception):  # noqa: N818  a request, like StopIteration, not an error
    """Raise this in a tool or in a middleware to end the run, with a reason and, if there is one, the run's output."""

    def __init__(self, reason: str, output: Any = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.output = output


class RunStopped(AgentlabError):  # noqa: N818  an outcome turned into an exception at the caller's wish
    """From `result.raise_for_stop()`: the run did not come to an end of its own. `result` holds every step."""

    def __init__(self, message: str, result: RunResult) -> None:
        super().__init__(message)
        self.result = result


class TurnLimitReached(RunStopped):
    """`Budget.max_turns` was reached."""


class CallLimitReached(RunStopped):
    """`Budget.max_calls` was reached."""


class TokenBudgetReached(RunStopped):
    """`Budget.max_tokens` was reached."""


class CostBudgetReached(RunStopped):
    """`Budget.max_cost` was reached."""


class TimeoutReached(RunStopped):
    """`Budget.timeout` was reached."""


class ConditionReached(RunStopped):
    """A stop condition was met before the agent came to an end of its own."""


class ExplicitlyStopped(RunStopped):
    """A person, a tool or a middleware stopped the run."""


class ResponseTruncated(RunStopped):
    """A response was cut off at its output cap."""


class ResponseFiltered(RunStopped):
    """A response was withheld or cut by a content filter."""


class NudgesExhausted(RunStopped):
    """The agent kept answering without a tool call."""


class RunCancelled(RunStopped):
    """The run was cancelled."""


class RunFailed(RunStopped):
    """An error ended the run; it is the `__cause__` of this one."""

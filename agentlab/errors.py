"""The errors of agentlab.

    AgentlabError
    ├── ConfigurationError            the configuration cannot work (also a ValueError)
    │   ├── UnknownProviderError
    │   ├── MissingKeyError
    │   ├── LimitError                a limit, or another setting, with an impossible value
    │   ├── ToolDefinitionError       a function that cannot be offered as a tool
    │   └── ChatInputError            a field of a Chat's input
    │       └── ContextNotFoundError  a context that has no messages
    ├── FixtureError                  recorded responses that cannot be used
    │   ├── FixtureNotFoundError
    │   ├── MalformedCassetteError
    │   └── ReplayMissError           a request that matches nothing recorded
    ├── ProviderError                 the provider could not be reached, or answered with an error
    │   ├── ProviderConnectionError
    │   ├── ProviderStatusError
    │   ├── ProviderPayloadError
    │   └── ProviderStreamError       a piece of a streamed answer was lost in transit
    ├── McpError                      an MCP server cannot be started, has ended, or reports that a call failed
    ├── MissingUsageError             a response has no usage, and Budget(missing_usage="fail") is set
    ├── ContextChangedError           another process or event loop wrote to a chat's context
    ├── StorageError                  runs cannot be written to, or read from, a store
    ├── StoredError                   the error of a stored run, with the message of the original
    ├── RunEndedError                 a step was requested from a run that has ended
    └── RunStopped                    from `result.raise_for_stop()`, with the result on it
        ├── TurnLimitReached, CallLimitReached, TokenBudgetReached, CostBudgetReached, TimeoutReached
        ├── ConditionReached, ExplicitlyStopped, ResponseTruncated, ResponseFiltered, NudgesExhausted, InvalidOutput
        └── AwaitingApproval, RunCancelled, RunFailed

    StopRequested                     not an error: raise it in a tool or a middleware to end the run

Limits are outcomes, never exceptions: a run that reaches one returns its result. A ConfigurationError or a FixtureError inside
a run is raised after the steps so far are recorded. A ProviderError ends the run with ERROR and is stored in the result.

Errors and warnings redact their own messages and escape control characters; code that raises them need not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentlab._internal.errors import (
    AgentlabError,
    AgentlabWarning,
    ChatInputError,
    ConfigurationError,
    ContextChangedError,
    ContextNotFoundError,
    FixtureError,
    FixtureNotFoundError,
    LimitError,
    MalformedCassetteError,
    McpError,
    MissingKeyError,
    MissingUsageError,
    ProviderConnectionError,
    ProviderError,
    ProviderPayloadError,
    ProviderStatusError,
    ProviderStreamError,
    ReplayMissError,
    RunEndedError,
    StopRequested,
    StorageError,
    StoredError,
    ToolDefinitionError,
    UnknownProviderError,
    _unpickled,  # noqa: F401  pickles name it
)
from agentlab._internal.names import module_hooks
from agentlab.records.result import (
    AwaitingApproval,
    CallLimitReached,
    ConditionReached,
    CostBudgetReached,
    ExplicitlyStopped,
    InvalidOutput,
    NudgesExhausted,
    ResponseFiltered,
    ResponseTruncated,
    RunCancelled,
    RunFailed,
    RunStopped,
    TimeoutReached,
    TokenBudgetReached,
    TurnLimitReached,
)

__all__ = [
    "AgentlabError",
    "AgentlabWarning",
    "AwaitingApproval",
    "CallLimitReached",
    "ChatInputError",
    "ConditionReached",
    "ConfigurationError",
    "ContextChangedError",
    "ContextNotFoundError",
    "CostBudgetReached",
    "ExplicitlyStopped",
    "FixtureError",
    "FixtureNotFoundError",
    "InvalidOutput",
    "LimitError",
    "MalformedCassetteError",
    "McpError",
    "MissingKeyError",
    "MissingUsageError",
    "NudgesExhausted",
    "ProviderConnectionError",
    "ProviderError",
    "ProviderPayloadError",
    "ProviderStatusError",
    "ProviderStreamError",
    "ReplayMissError",
    "ResponseFiltered",
    "ResponseTruncated",
    "RunCancelled",
    "RunEndedError",
    "RunFailed",
    "RunStopped",
    "StopRequested",
    "StorageError",
    "StoredError",
    "TimeoutReached",
    "TokenBudgetReached",
    "ToolDefinitionError",
    "TurnLimitReached",
    "UnknownProviderError",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = module_hooks(__name__, __all__)

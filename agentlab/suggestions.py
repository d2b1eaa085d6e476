"""What a person could do about an end: `retry`, `modify_prompt`, `increase_budget`, or `stop` (there is nothing to do)."""

from __future__ import annotations

from collections.abc import Mapping

from agentlab.errors import ConfigurationError, FixtureError, ProviderStatusError
from agentlab.types import JSON, ModelResponse, StopReason, TerminationSignal

RETRY, MODIFY_PROMPT, INCREASE_BUDGET, STOP = "retry", "modify_prompt", "increase_budget", "stop"

FOR_STOP_REASON: Mapping[StopReason, str] = {
    StopReason.COMPLETED: STOP,
    StopReason.TERMINATING_TOOL: STOP,
    StopReason.EXPLICIT_STOP: STOP,
    StopReason.STOP_CONDITION: STOP,
    StopReason.TURN_LIMIT: INCREASE_BUDGET,
    StopReason.CALL_LIMIT: INCREASE_BUDGET,
    StopReason.TOKEN_BUDGET: INCREASE_BUDGET,
    StopReason.COST_BUDGET: INCREASE_BUDGET,
    StopReason.TIMEOUT: INCREASE_BUDGET,
    StopReason.TRUNCATED: INCREASE_BUDGET,
    StopReason.CONTENT_FILTERED: MODIFY_PROMPT,
    StopReason.NUDGES_EXHAUSTED: MODIFY_PROMPT,
    StopReason.CANCELLED: RETRY,
    StopReason.ERROR: RETRY,
}
"""What suits the end of a run where its last response says no more."""

FOR_ERROR: Mapping[str | int, str] = {
    # what was asked cannot be answered so
    "invalid_request_error": MODIFY_PROMPT,
    "invalid_request": MODIFY_PROMPT,
    "invalid_argument": MODIFY_PROMPT,
    "invalid_prompt": MODIFY_PROMPT,
    "failed_precondition": MODIFY_PROMPT,
    "validationexception": MODIFY_PROMPT,
    "bad_request": MODIFY_PROMPT,
    "request_too_large": MODIFY_PROMPT,
    "context_length_exceeded": MODIFY_PROMPT,
    "string_above_max_length": MODIFY_PROMPT,
    "exceed_context_size_error": MODIFY_PROMPT,
    "content_filter": MODIFY_PROMPT,
    "content_policy_violation": MODIFY_PROMPT,
    "responsibleaipolicyviolation": MODIFY_PROMPT,
    400: MODIFY_PROMPT,
    413: MODIFY_PROMPT,
    422: MODIFY_PROMPT,
    # the key, the account or the address: asking again changes nothing
    "authentication_error": STOP,
    "unauthenticated": STOP,
    "unauthorized": STOP,
    "invalid_api_key": STOP,
    "permission_error": STOP,
    "permission_denied": STOP,
    "accessdeniedexception": STOP,
    "unrecognizedclientexception": STOP,
    "billing_error": STOP,
    "insufficient_quota": STOP,
    "not_found_error": STOP,
    "not_found": STOP,
    "model_not_found": STOP,
    "resourcenotfoundexception": STOP,
    401: STOP,
    402: STOP,
    403: STOP,
    404: STOP,
}
"""By what kind of error the provider names, in lower case; any other (overload, rate limits, faults of the server) may pass: `retry`.

The vendors' pages on errors, read 2026-11-22: https://platform.openai.com/docs/guides/error-codes,
https://platform.claude.com/docs/en/api/errors, https://ai.google.dev/gemini-api/docs/troubleshooting,
https://docs.aws.amazon.com/bedrock/latest/userguide/troubleshooting-api-error-codes.html, https://openrouter.ai/docs/api-reference/errors.
"""

LARGER = 2
"""How many times the cap, or what came under it, is suggested as the next one."""


def for_error(signal: TerminationSignal) -> str:
    """What suits an error, by the kind that the provider names."""
    if signal.repairable:
        return RETRY
    status = signal.metadata.get("status") if signal.metadata else None
    for said in (signal.raw_value, status):
        word = said.lower() if isinstance(said, str) else said
        found = FOR_ERROR.get(int(word) if isinstance(word, str) and word.isdecimal() else word)  # type: ignore[arg-type]
        if found is not None:
            return found
    return RETRY


def for_failure(error: BaseException) -> str:
    """What suits a call that failed without a response. What is wrong in the code or missing in a recording will be so again."""
    if isinstance(error, ConfigurationError | FixtureError):
        return STOP
    if not isinstance(error, ProviderStatusError):
        return RETRY
    return FOR_ERROR.get(error.code.lower()) or FOR_ERROR.get(error.status, RETRY)


def larger_cap(requested_cap: int | None, response: ModelResponse | None) -> dict[str, JSON]:
    """The output cap to try next, in tokens, as metadata of a decision; nothing where neither a cap nor the usage is known."""
    had = requested_cap or (response.usage.output_tokens if response is not None else None)
    return {"max_tokens_per_turn": LARGER * had} if had else {}

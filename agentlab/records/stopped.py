"""Suggestions after a stop: `retry`, `modify_prompt`, `increase_budget`, or `stop` (nothing to do)."""

from __future__ import annotations

from collections.abc import Mapping

from agentlab.errors import ConfigurationError, FixtureError, ProviderStatusError
from agentlab.model.finish_reasons import StopReason, TerminationSignal
from agentlab.model.messages import JSON
from agentlab.model.responses import ModelResponse

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
"""The suggestion by stop reason, if the last response gives no better one."""

FOR_ERROR: Mapping[str | int, str] = {
    # the request itself is refused
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
    # the key, the account or the address: a retry changes nothing
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
"""The suggestion by the provider's error code in lower case, or by status. All others (overload, rate limits, server errors): `retry`.

The vendors' pages on errors, read 2026-11-22: https://platform.openai.com/docs/guides/error-codes,
https://platform.claude.com/docs/en/api/errors, https://ai.google.dev/gemini-api/docs/troubleshooting,
https://docs.aws.amazon.com/bedrock/latest/userguide/troubleshooting-api-error-codes.html,
https://openrouter.ai/docs/api-reference/errors.
"""

LARGER = 2
"""The suggested output cap is this many times the last one."""


def for_error(signal: TerminationSignal) -> str:
    """Return the suggestion for an error in a response."""
    if signal.repairable:
        return RETRY
    status = signal.metadata.get("status") if signal.metadata else None
    for code in (signal.raw_value, status):
        word = code.lower() if isinstance(code, str) else code
        found = FOR_ERROR.get(int(word) if isinstance(word, str) and word.isdecimal() else word)  # type: ignore[arg-type]
        if found is not None:
            return found
    return RETRY


def for_failure(error: BaseException) -> str:
    """Return the suggestion for a call that failed without a response; errors in the code or in a recording will recur."""
    if isinstance(error, ConfigurationError | FixtureError):
        return STOP
    if not isinstance(error, ProviderStatusError):
        return RETRY
    return FOR_ERROR.get(error.code.lower()) or FOR_ERROR.get(error.status, RETRY)


def larger_cap(requested_cap: int | None, response: ModelResponse | None) -> dict[str, JSON]:
    """Return the output cap to try next, as metadata of a decision; empty if neither a cap nor the usage is known."""
    cap = requested_cap or (response.usage.output_tokens if response is not None else None)
    return {"max_tokens_per_turn": LARGER * cap} if cap else {}

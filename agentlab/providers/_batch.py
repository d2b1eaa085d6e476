"""The answer inside a line of a batch's results, as vendors hand them out: the body of one response, and what became of it.

Vendor pages, read 2026-11-22: https://platform.openai.com/docs/guides/batch,
https://platform.claude.com/docs/en/build-with-claude/batch-processing, https://ai.google.dev/gemini-api/docs/batch-api and
https://docs.aws.amazon.com/bedrock/latest/userguide/batch-inference-results.html.
"""

from __future__ import annotations

from typing import Any

from agentlab.providers import _read as read
from agentlab.types import JSON, Confidence, FinishReason, TerminationSignal

_NOT_RUN = {"canceled": FinishReason.CANCELLED, "expired": FinishReason.ERROR}
"""What Anthropic says of a request that its batch never came to."""

_OF_GEMINI = ("candidates", "promptFeedback", "usageMetadata")


def answer_of(line: JSON) -> tuple[JSON, int]:
    """The body of the answer in a line of results, and its HTTP status; of anything else what it is, and 200."""
    fields = read.as_dict(line)
    response = read.as_dict(fields.get("response"))
    if "custom_id" in fields:
        if "body" in response:
            return response["body"], read.count(response.get("status_code")) or 200
        return _of_anthropic(fields), 200
    if not response.keys().isdisjoint(_OF_GEMINI) and "candidates" not in fields:
        return response, 200
    return (fields["modelOutput"] if isinstance(fields.get("modelOutput"), dict) else line), 200


def never_run(line: JSON, provider: str) -> TerminationSignal | None:
    """The signal of a line about a request that was not run; None for every other."""
    fields = read.as_dict(line)
    word = read.as_dict(fields.get("result")).get("type") if "custom_id" in fields else None
    if not isinstance(word, str) or word not in _NOT_RUN:
        return None
    return TerminationSignal(
        finish_reason=_NOT_RUN[word],
        confidence=Confidence.HIGH,
        provider=provider,
        raw_field="result.type",
        raw_value=word,
        message=f"The batch did not come to this request: it is {word}.",
    )


def _of_anthropic(fields: dict[str, Any]) -> JSON:
    result = read.as_dict(fields.get("result"))
    if result.get("type") == "succeeded" and isinstance(result.get("message"), dict):
        return result["message"]
    if result.get("type") == "errored" and isinstance(result.get("error"), dict):
        return result["error"]
    return fields

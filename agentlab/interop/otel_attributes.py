"""The names of spans, metrics and attributes, in one place, since OpenTelemetry's names are still in development.

`gen_ai.*` as in https://github.com/open-telemetry/semantic-conventions-genai, docs/gen-ai: gen-ai-spans.md, gen-ai-agent-spans.md and
gen-ai-metrics.md, read on 22 November 2026. The package opentelemetry-semantic-conventions marks these names as moved to that
repository, so they are written out here. `server.*` and `error.type` are stable.
"""

from __future__ import annotations

OPERATION = "gen_ai.operation.name"
CHAT, INVOKE_AGENT, EXECUTE_TOOL = "chat", "invoke_agent", "execute_tool"

AGENT = "gen_ai.agent.name"
PROVIDER = "gen_ai.provider.name"
REQUEST_MODEL = "gen_ai.request.model"
REQUEST_MAX_TOKENS = "gen_ai.request.max_tokens"
REQUEST_STREAM = "gen_ai.request.stream"
RESPONSE_MODEL = "gen_ai.response.model"
RESPONSE_ID = "gen_ai.response.id"
FINISH_REASONS = "gen_ai.response.finish_reasons"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
CACHE_READ_TOKENS = "gen_ai.usage.cache_read.input_tokens"
CACHE_WRITE_TOKENS = "gen_ai.usage.cache_creation.input_tokens"
REASONING_TOKENS = "gen_ai.usage.reasoning.output_tokens"
TOOL = "gen_ai.tool.name"
TOOL_TYPE = "gen_ai.tool.type"
TOOL_CALL_ID = "gen_ai.tool.call.id"
TOKEN_TYPE = "gen_ai.token.type"  # noqa: S105  not a password

# With `content=True` only.
SYSTEM_INSTRUCTIONS = "gen_ai.system_instructions"
INPUT_MESSAGES = "gen_ai.input.messages"
OUTPUT_MESSAGES = "gen_ai.output.messages"
TOOL_ARGUMENTS = "gen_ai.tool.call.arguments"
TOOL_RESULT = "gen_ai.tool.call.result"

SERVER_ADDRESS, SERVER_PORT, ERROR_TYPE = "server.address", "server.port", "error.type"

TOKEN_USAGE = "gen_ai.client.token.usage"  # noqa: S105  not a password
OPERATION_DURATION = "gen_ai.client.operation.duration"
TOKEN_BUCKETS = [4.0**power for power in range(14)]
DURATION_BUCKETS = [0.01 * 2**power for power in range(14)]
"""The boundaries of gen-ai-metrics.md: 1 to 67,108,864 tokens, 0.01 to 81.92 s."""

_PROVIDERS = {
    "azure": "azure.ai.openai",
    "bedrock": "aws.bedrock",
    "anthropic-foundry": "azure.ai.inference",
    "anthropic-vertex": "gcp.vertex_ai",
    "gemini": "gcp.gemini",
    "gemini-vertex": "gcp.vertex_ai",
    "mistral": "mistral_ai",
    "xai": "x_ai",
}  # the providers that have another name in the conventions


def provider_name(name: str) -> str:
    """Return the conventions' name of a provider: `gemini@v1` is `gcp.gemini`, `openai-responses` is `openai`."""
    bare = name.partition("@")[0].removesuffix("-responses")
    return _PROVIDERS.get(bare, bare)


# agentlab's own ------------------------------------------------------------------------------------------------------------------

RUN_ID = "agentlab.run.id"
PARENT_RUN_ID = "agentlab.run.parent_id"
STOP_REASON = "agentlab.stop_reason"
STEPS = "agentlab.steps"
STEP = "agentlab.step"
CALL = "agentlab.call"
FINISH_REASON = "agentlab.finish_reason"
RETRIES = "agentlab.retries"
COST_USD = "agentlab.cost_usd"
COST_SOURCE = "agentlab.cost_source"
COST_NOTE = "agentlab.cost_note"
OUTCOME = "agentlab.continuation.outcome"

CONTINUATIONS = "agentlab.continuations"
TRUNCATION_EXITS = "agentlab.truncation_exits"
CONTINUATION_ATTEMPTS = "agentlab.continuation.attempts"
CONTINUATION_DURATION = "agentlab.continuation.duration"
DETECTION_DURATION = "agentlab.detection.duration"
DETECTION_BUCKETS = [1e-5 * 4**power for power in range(10)]
"""0.01 ms to 2.6 s."""
ATTEMPT_BUCKETS = [0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 16.0]

"""AutoGen: one AssistantAgent whose model asks for one tool call per step."""
# mypy: disable-error-code="import-not-found,misc,no-any-return,unused-ignore"

import logging
from collections.abc import AsyncGenerator, Sequence
from typing import Any

from autogen_agentchat.agents import AssistantAgent
from autogen_core import FunctionCall
from autogen_core.model_context import UnboundedChatCompletionContext
from autogen_core.models import ChatCompletionClient, CreateResult, ModelInfo, RequestUsage

from tests.benchmarks.measure import Prepare, Thunk, await_it
from tests.benchmarks.peers.report import report

USAGE = RequestUsage(prompt_tokens=10, completion_tokens=5)


class Scripted(ChatCompletionClient):
    """Answers without a network: `steps` tool calls, then a text."""

    component_type = "model"

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.asked = 0

    async def create(self, messages: Sequence[Any], **_: Any) -> CreateResult:
        self.asked += 1
        if self.asked > self.steps:
            return CreateResult(finish_reason="stop", content="done", usage=USAGE, cached=False)
        call = FunctionCall(id=f"call_{self.asked}", name="lookup", arguments='{"key": "a"}')
        return CreateResult(finish_reason="function_calls", content=[call], usage=USAGE, cached=False)

    def create_stream(self, messages: Sequence[Any], **_: Any) -> AsyncGenerator[Any, None]:
        raise NotImplementedError

    async def close(self) -> None:
        pass

    def actual_usage(self) -> RequestUsage:
        return USAGE

    def total_usage(self) -> RequestUsage:
        return USAGE

    def count_tokens(self, messages: Sequence[Any], **_: Any) -> int:
        return 0

    def remaining_tokens(self, messages: Sequence[Any], **_: Any) -> int:
        return 1_000_000

    @property
    def capabilities(self) -> ModelInfo:
        return self.model_info

    @property
    def model_info(self) -> ModelInfo:
        return ModelInfo(vision=False, function_calling=True, json_output=False, family="unknown", structured_output=False)


async def lookup(key: str) -> str:
    """Look up a key."""
    return "value of " + key


def prepare(steps: int) -> Prepare:
    def ready() -> Thunk:
        model = Scripted(steps)
        agent = AssistantAgent(
            "bench",
            model_client=model,
            tools=[lookup],
            model_context=UnboundedChatCompletionContext(),
            max_tool_iterations=steps + 1,
            reflect_on_tool_use=False,
        )

        def run() -> None:
            result = await_it(agent.run(task="go"))
            assert result.messages[-1].content == "done", result.messages[-1]
            assert model.asked == steps + 1, model.asked

        return run

    return ready


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)  # its event log would dominate the measurement
    report(prepare)

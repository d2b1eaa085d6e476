"""pydantic-ai: one Agent over a FunctionModel that asks for one tool call per step."""
# mypy: disable-error-code="import-not-found,misc,untyped-decorator,unused-ignore"

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage, UsageLimits

from tests.benchmarks.measure import Prepare, Thunk, await_it
from tests.benchmarks.peers.report import report


def prepare(steps: int) -> Prepare:
    def ready() -> Thunk:
        asked = 0

        async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
            nonlocal asked
            asked += 1
            usage = RequestUsage(input_tokens=10, output_tokens=5)
            if asked > steps:
                return ModelResponse(parts=[TextPart("done")], usage=usage)
            call = ToolCallPart("lookup", {"key": "a"}, tool_call_id=f"call_{asked}")
            return ModelResponse(parts=[call], usage=usage)

        agent = Agent(FunctionModel(answer))

        @agent.tool_plain
        async def lookup(key: str) -> str:
            """Look up a key."""
            return "value of " + key

        def run() -> None:
            result = await_it(agent.run("go", usage_limits=UsageLimits(request_limit=None)))
            assert result.output == "done", result.output
            assert asked == steps + 1, asked

        return run

    return ready


if __name__ == "__main__":
    report(prepare)

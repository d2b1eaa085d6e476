"""smolagents: one ToolCallingAgent whose model asks for one tool call per step."""
# mypy: disable-error-code="import-not-found,misc,untyped-decorator,unused-ignore"

from typing import Any

from smolagents import ChatMessage, LogLevel, MessageRole, Model, TokenUsage, ToolCallingAgent, tool
from smolagents.models import ChatMessageToolCall, ChatMessageToolCallFunction

from tests.benchmarks.measure import Prepare, Thunk
from tests.benchmarks.peers.report import report


class Scripted(Model):
    """Answers without a network: `steps` tool calls, then the final answer."""

    def __init__(self, steps: int) -> None:
        super().__init__(model_id="scripted")
        self.steps = steps
        self.asked = 0

    def generate(self, messages: list[Any], **_: Any) -> ChatMessage:
        self.asked += 1
        if self.asked > self.steps:
            function = ChatMessageToolCallFunction(name="final_answer", arguments={"answer": "done"})
        else:
            function = ChatMessageToolCallFunction(name="lookup", arguments={"key": "a"})
        call = ChatMessageToolCall(id=f"call_{self.asked}", type="function", function=function)
        usage = TokenUsage(input_tokens=10, output_tokens=5)
        return ChatMessage(role=MessageRole.ASSISTANT, content="", tool_calls=[call], token_usage=usage)


@tool
def lookup(key: str) -> str:
    """Look up a key.

    Args:
        key: what to look up
    """
    return "value of " + key


def prepare(steps: int) -> Prepare:
    def ready() -> Thunk:
        model = Scripted(steps)
        agent = ToolCallingAgent([lookup], model, max_steps=steps + 1, verbosity_level=LogLevel.OFF)

        def run() -> None:
            answer = agent.run("go")
            assert answer == "done", answer
            assert model.asked == steps + 1, model.asked

        return run

    return ready


if __name__ == "__main__":
    report(prepare)

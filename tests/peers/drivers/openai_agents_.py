"""OpenAI's Agents SDK."""
# mypy: disable-error-code="import-not-found,misc,no-any-return,unused-ignore"

from typing import Any

from agents import Agent, MaxTurnsExceeded, OpenAIChatCompletionsModel, Runner, RunResult, function_tool, set_tracing_disabled
from agents.items import ToolCallOutputItem
from openai import AsyncOpenAI

from tests.peers.driving import PROMPT, STEPS, WEATHER, Facts, Tools, asked, main, raised


def agent(address: str, tools: Tools) -> Agent[Any]:
    model = OpenAIChatCompletionsModel("scripted", AsyncOpenAI(base_url=address, api_key="none"))
    return Agent("clerk", model=model, tools=[function_tool(tools.search_lost_property), function_tool(tools.get_weather)])


async def run(address: str, prompt: str, tools: Tools, **options: Any) -> Facts:
    counts: Facts = {}
    try:
        result: Any = await Runner.run(agent(address, tools), prompt, **options)
    except MaxTurnsExceeded as error:
        result, counts = error.run_data, {**raised(error), "kept_by": "error.run_data"}
    except Exception as error:
        return {**raised(error), "searches": tools.searches, "forecasts": tools.forecasts}
    usage = result.context_wrapper.usage
    return {
        "came_back": "result",
        "kept": sum(isinstance(item, ToolCallOutputItem) for item in result.new_items),
        "text": result.final_output if isinstance(result, RunResult) else None,
        "told": "length" if "'length'" in repr(result.raw_responses) else None,
        "usage": [usage.input_tokens, usage.output_tokens],
        "searches": tools.searches,
        "forecasts": tools.forecasts,
        **counts,
    }


async def limit(address: str) -> Facts:
    facts = await run(address, PROMPT, Tools(), max_turns=STEPS)
    return {**facts, "how": f"max_turns={STEPS}; error_handlers= can turn it into a result"}


async def which(address: str) -> Facts:
    return {**await run(address, PROMPT, Tools(), max_turns=STEPS), "joined": "one limit"}


async def simple(address: str) -> Facts:
    return await run(address, WEATHER, Tools())


async def fork(address: str) -> Facts:
    items: list[Any] = []
    try:
        items = (await Runner.run(agent(address, Tools()), PROMPT, max_turns=2)).new_items
    except MaxTurnsExceeded as error:
        items = error.run_data.new_items if error.run_data else []
    past: Any = [{"role": "user", "content": PROMPT}, *(item.to_input_item() for item in items[:2])]
    before = asked(address)
    await Runner.run(agent(address, Tools()), past, max_turns=20)
    return {"from": len(past) - 2, "more": asked(address) - before, "how": "to_input_item() of earlier items as input"}


SCENARIOS = {
    "limit": limit,
    "which": which,
    "no_usage": simple,
    "cut_call": simple,
    "cut_before_arguments": simple,
    "cut_text": simple,
    "fork": fork,
}

NAMES = {
    "typed": "agents:AgentOutputSchema",
    "mcp": "agents.mcp:MCPServerStdio",
    "approval": "agents:ToolApprovalItem",
    "sessions": "agents:SQLiteSession",
}

if __name__ == "__main__":
    set_tracing_disabled(True)
    main("openai-agents", ("openai-agents",), SCENARIOS, NAMES)

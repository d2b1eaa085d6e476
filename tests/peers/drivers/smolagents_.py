"""smolagents: a ToolCallingAgent."""
# mypy: disable-error-code="import-not-found,misc,no-any-return,untyped-decorator,unused-ignore"

import asyncio
from typing import Any

from smolagents import LogLevel, OpenAIModel, ToolCallingAgent, tool

from tests.peers.driving import PROMPT, STEPS, WEATHER, Facts, Tools, asked, main, raised


def agent(address: str, tools: Tools, **options: Any) -> ToolCallingAgent:
    @tool
    def search_lost_property(words: str) -> str:
        """Search the railway's lost property office.

        Args:
            words: what to look for
        """
        return asyncio.run(tools.search_lost_property(words))

    @tool
    def get_weather(city: str = "Graz") -> str:
        """The weather in a city.

        Args:
            city: where
        """
        return asyncio.run(tools.get_weather(city))

    model = OpenAIModel("scripted", api_base=address, api_key="none")
    return ToolCallingAgent([search_lost_property, get_weather], model, verbosity_level=LogLevel.OFF, **options)


async def run(address: str, prompt: str, tools: Tools, **options: Any) -> Facts:
    made = agent(address, tools, **options)
    try:
        result = await asyncio.to_thread(made.run, prompt, return_full_result=True)
    except Exception as error:
        return {**raised(error), "searches": tools.searches, "forecasts": tools.forecasts}
    acted = [step for step in result.steps if step.get("tool_calls")]
    errors = [str(step["error"].get("message"))[:120] for step in result.steps if step.get("error")]
    return {
        "came_back": "result",
        "says": result.state if result.state != "success" else None,
        "kept": sum(step.get("observations") is not None for step in acted),
        "text": str(result.output),
        "usage": [result.token_usage.input_tokens, result.token_usage.output_tokens] if result.token_usage else None,
        "errors": errors[:2],
        "searches": tools.searches,
        "forecasts": tools.forecasts,
    }


async def limit(address: str) -> Facts:
    return {
        **await run(address, PROMPT, Tools(), max_steps=STEPS),
        "how": f"max_steps={STEPS}; it asks once more for a last answer",
    }


async def which(address: str) -> Facts:
    return {**await run(address, PROMPT, Tools(), max_steps=STEPS), "joined": "one limit"}


async def simple(address: str) -> Facts:
    return await run(address, WEATHER, Tools(), max_steps=3)


async def step(address: str) -> Facts:
    steps = agent(address, Tools()).run(PROMPT, stream=True, max_steps=STEPS)
    next(one for one in steps if type(one).__name__ == "ActionStep")
    return {"after_one": asked(address), "how": "run(stream=True) gives a step at a time"}


SCENARIOS = {
    "limit": limit,
    "which": which,
    "no_usage": simple,
    "cut_call": simple,
    "cut_before_arguments": simple,
    "cut_text": simple,
    "step": step,
}

NAMES = {"code": "smolagents:CodeAgent", "mcp": "smolagents:MCPClient"}

if __name__ == "__main__":
    main("smolagents", ("smolagents",), SCENARIOS, NAMES)

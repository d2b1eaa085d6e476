"""AutoGen: a team of one AssistantAgent."""
# mypy: disable-error-code="import-not-found,misc,no-any-return,unused-ignore"

import logging

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import TaskResult
from autogen_agentchat.conditions import (
    FunctionalTermination,
    MaxMessageTermination,
    TextMessageTermination,
    TokenUsageTermination,
)
from autogen_agentchat.messages import ToolCallExecutionEvent
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core.models import ModelFamily
from autogen_ext.models.openai import OpenAIChatCompletionClient

from tests.peers.driving import MANY, PROMPT, WEATHER, Facts, Tools, asked, main, raised


def assistant(address: str, tools: Tools) -> AssistantAgent:
    info = {
        "vision": False,
        "function_calling": True,
        "json_output": False,
        "family": ModelFamily.UNKNOWN,
        "structured_output": False,
    }
    model = OpenAIChatCompletionClient(model="scripted", base_url=address, api_key="none", model_info=info)  # type: ignore[arg-type]
    return AssistantAgent("clerk", model, tools=[tools.search_lost_property, tools.get_weather], reflect_on_tool_use=False)


async def run(address: str, prompt: str, tools: Tools, termination: object = None) -> Facts:
    answered = TextMessageTermination("clerk")
    team = RoundRobinGroupChat(
        [assistant(address, tools)], termination_condition=answered | termination if termination else answered
    )  # type: ignore[operator]
    try:
        result: TaskResult = await team.run(task=prompt)
    except Exception as error:
        return {**raised(error), "searches": tools.searches, "forecasts": tools.forecasts}
    kept = sum(len(one.content) for one in result.messages if isinstance(one, ToolCallExecutionEvent))
    usage = next((one.models_usage for one in reversed(result.messages) if one.models_usage), None)
    return {
        "came_back": "result",
        "says": result.stop_reason,
        "kept": kept,
        "text": getattr(result.messages[-1], "content", None),
        "told": "length" if '"length"' in result.model_dump_json() else None,
        "usage": [usage.prompt_tokens, usage.completion_tokens] if usage else None,
        "searches": tools.searches,
        "forecasts": tools.forecasts,
    }


async def limit(address: str) -> Facts:
    return {**await run(address, PROMPT, Tools(), MaxMessageTermination(8)), "how": "MaxMessageTermination(8)"}


async def which(address: str) -> Facts:
    limits = MaxMessageTermination(8) | (TokenUsageTermination(max_total_token=MANY) & MaxMessageTermination(2))
    return {**await run(address, PROMPT, Tools(), limits), "joined": "`|` `&`"}


async def tokens(address: str) -> Facts:
    return {
        **await run(address, PROMPT, Tools(), TokenUsageTermination(max_total_token=500)),
        "how": "TokenUsageTermination(500)",
    }


async def edit(address: str) -> Facts:
    held = {"limit": 3}
    tools = Tools(lambda number: held.update(limit=6) if number == 2 else None)
    limits = FunctionalTermination(lambda messages: tools.searches >= held["limit"])
    return {
        **await run(address, PROMPT, tools, limits),
        "how": "FunctionalTermination with a custom function that reads a variable",
    }


async def simple(address: str) -> Facts:
    return await run(address, WEATHER, Tools())


async def step(address: str) -> Facts:
    agent = assistant(address, Tools())
    await agent.run(task=PROMPT)
    return {"after_one": asked(address), "how": "AssistantAgent.run(), one iteration of tools at a time; run() again continues"}


async def fork(address: str) -> Facts:
    agent = assistant(address, Tools())
    await agent.run(task=PROMPT)
    state = await agent.save_state()
    branch = assistant(address, Tools())
    await branch.load_state(state)
    before = asked(address)
    await branch.run()
    return {"from": 1, "more": asked(address) - before, "how": "save_state(), load_state() into another agent"}


SCENARIOS = {
    "limit": limit,
    "which": which,
    "tokens": tokens,
    "edit": edit,
    "no_usage": simple,
    "cut_call": simple,
    "cut_before_arguments": simple,
    "cut_text": simple,
    "step": step,
    "fork": fork,
}

NAMES = {
    "media": "autogen_agentchat.messages:MultiModalMessage",
    "typed": "autogen_agentchat.messages:StructuredMessage",
    "approval": "autogen_agentchat.agents:UserProxyAgent",
    "graphs": "autogen_agentchat.teams:GraphFlow",
}

if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    main("autogen", ("autogen-agentchat", "autogen-ext"), SCENARIOS, NAMES)

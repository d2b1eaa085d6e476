"""pydantic-ai."""
# mypy: disable-error-code="import-not-found,misc,no-any-return,unused-ignore"

from typing import Any

from pydantic_ai import Agent, RunContext, capture_run_messages
from pydantic_ai.messages import ModelMessage, ModelResponse, ToolReturnPart
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.usage import RunUsage, UsageLimits

from tests.peers.driving import MANY, PROMPT, STEPS, WEATHER, Facts, Tools, asked, main, raised


def agent(address: str, tools: Tools) -> Agent:
    model = OpenAIChatModel("scripted", provider=OpenAIProvider(base_url=address, api_key="none"))
    return Agent(model, tools=[tools.search_lost_property, tools.get_weather])


def results_in(messages: list[ModelMessage]) -> int:
    return sum(isinstance(part, ToolReturnPart) for message in messages for part in message.parts)


async def run(address: str, prompt: str, tools: Tools, limits: UsageLimits) -> Facts:
    with capture_run_messages() as messages:
        try:
            result = await agent(address, tools).run(prompt, usage_limits=limits)
            facts: Facts = {
                "came_back": "result",
                "text": result.output,
                "usage": [result.usage.input_tokens, result.usage.output_tokens],
            }
        except Exception as error:
            facts = raised(error)
    last = next((message for message in reversed(messages) if isinstance(message, ModelResponse)), None)
    reason = last.finish_reason if last else None
    return {**facts, "kept": results_in(messages), "searches": tools.searches, "forecasts": tools.forecasts, "told": reason}


async def limit(address: str) -> Facts:
    facts = await run(address, PROMPT, Tools(), UsageLimits(request_limit=STEPS))
    return {**facts, "kept_by": "capture_run_messages()", "how": f"UsageLimits(request_limit={STEPS})"}


async def which(address: str) -> Facts:
    facts = await run(address, PROMPT, Tools(), UsageLimits(request_limit=STEPS, total_tokens_limit=MANY))
    return {**facts, "joined": "the first of several"}


async def tokens(address: str) -> Facts:
    facts = await run(address, PROMPT, Tools(), UsageLimits(total_tokens_limit=500))
    return {**facts, "how": "UsageLimits(total_tokens_limit=500)"}


async def edit(address: str) -> Facts:
    limits = UsageLimits(request_limit=3)
    tools = Tools(lambda number: setattr(limits, "request_limit", 6) if number == 2 else None)
    return {**await run(address, PROMPT, tools, limits), "how": "limits.request_limit = 6"}


async def simple(address: str) -> Facts:
    return await run(address, WEATHER, Tools(), UsageLimits())


async def step(address: str) -> Facts:
    async with agent(address, Tools()).iter(PROMPT) as going:
        node: Any = going.next_node
        while not Agent.is_call_tools_node(node):
            node = await going.next(node)
        return {"after_one": asked(address), "how": "agent.iter(…), run.next(node)"}


async def fork(address: str) -> Facts:
    tools = Tools()
    with capture_run_messages() as messages:
        try:
            await agent(address, tools).run(PROMPT, usage_limits=UsageLimits(request_limit=3))
        except Exception as error:
            raised(error)
    past = messages[:3] if results_in(messages[:3]) else messages[:4]  # the prompt, a call, its result
    before = asked(address)
    again = await agent(address, tools).run(message_history=past, usage_limits=UsageLimits(request_limit=None))
    return {"from": results_in(past), "more": asked(address) - before, "end": again.output[:40], "how": "message_history="}


async def sub_agent(address: str) -> Facts:
    tools = Tools()
    child = agent(address, tools)
    usage, limits = RunUsage(), UsageLimits(total_tokens_limit=500, request_limit=None)
    parent: Any = Agent(OpenAIChatModel("scripted", provider=OpenAIProvider(base_url=address, api_key="none")))

    @parent.tool
    async def search_lost_property(ctx: RunContext[None], words: str) -> str:
        return (await child.run(words, usage=ctx.usage, usage_limits=limits)).output

    try:
        await parent.run(PROMPT, usage=usage, usage_limits=limits)
        facts: Facts = {"came_back": "result"}
    except Exception as error:
        facts = raised(error)
    return {**facts, "how": "usage=ctx.usage, usage_limits= given in the call of the child"}


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
    "sub_agent": sub_agent,
}

NAMES = {
    "media": "pydantic_ai:ImageUrl",
    "typed": "pydantic_ai:NativeOutput",
    "approval": "pydantic_ai:DeferredToolRequests",
    "graphs": "pydantic_graph:Graph",
}

if __name__ == "__main__":
    main("pydantic-ai", ("pydantic-ai-slim",), SCENARIOS, NAMES)

"""LangGraph, through LangChain's agent on top of it."""
# mypy: disable-error-code="import-not-found,misc,no-any-return,unused-ignore"

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import ModelCallLimitMiddleware, ToolCallLimitMiddleware
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import StructuredTool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from tests.peers.driving import PROMPT, STEPS, WEATHER, Facts, Tools, asked, main, raised

THREAD: Any = {"configurable": {"thread_id": "one"}}


def agent(address: str, tools: Tools, **options: Any) -> Any:
    model = ChatOpenAI(model="scripted", base_url=address, api_key="none")  # type: ignore[arg-type]
    made = [StructuredTool.from_function(coroutine=one) for one in (tools.search_lost_property, tools.get_weather)]
    return create_agent(model, made, **options)


async def run(address: str, prompt: str, tools: Tools, config: Any = None, **options: Any) -> Facts:
    made = agent(address, tools, **options)
    try:
        state = await made.ainvoke({"messages": [("user", prompt)]}, config)
    except Exception as error:
        saved = (await made.aget_state(config)).values["messages"] if options.get("checkpointer") else []
        kept = sum(isinstance(message, ToolMessage) for message in saved)
        return {**raised(error), "kept": kept, "searches": tools.searches, "forecasts": tools.forecasts}
    messages = state["messages"]
    last = next(message for message in reversed(messages) if isinstance(message, AIMessage))
    return {
        "came_back": "result",
        "says": last.text if "limit" in last.text else None,
        "kept": sum(isinstance(message, ToolMessage) for message in messages),
        "text": last.text,
        "told": last.response_metadata.get("finish_reason"),
        "usage": [last.usage_metadata["input_tokens"], last.usage_metadata["output_tokens"]] if last.usage_metadata else None,
        "searches": tools.searches,
        "forecasts": tools.forecasts,
    }


async def limit(address: str) -> Facts:
    facts = await run(address, PROMPT, Tools(), middleware=[ModelCallLimitMiddleware(run_limit=STEPS)])
    bare = await run(address, PROMPT, Tools(), {**THREAD, "recursion_limit": 2 * STEPS}, checkpointer=InMemorySaver())
    return {
        **facts,
        "how": f"ModelCallLimitMiddleware(run_limit={STEPS})",
        "otherwise": {**bare, "how": "recursion_limit, with a checkpointer"},
    }


async def which(address: str) -> Facts:
    limits = [ModelCallLimitMiddleware(run_limit=STEPS), ToolCallLimitMiddleware(run_limit=100, exit_behavior="end")]
    return {**await run(address, PROMPT, Tools(), middleware=limits), "joined": "the first of several"}


async def edit(address: str) -> Facts:
    limits = ModelCallLimitMiddleware(run_limit=3)
    tools = Tools(lambda number: setattr(limits, "run_limit", 6) if number == 2 else None)
    return {**await run(address, PROMPT, tools, middleware=[limits]), "how": "middleware.run_limit = 6"}


async def simple(address: str) -> Facts:
    return await run(address, WEATHER, Tools())


async def step(address: str) -> Facts:
    made = agent(address, Tools(), checkpointer=InMemorySaver(), interrupt_before=["model"])
    await made.ainvoke({"messages": [("user", PROMPT)]}, THREAD)
    await made.ainvoke(None, THREAD)
    return {"after_one": asked(address), "how": 'interrupt_before=["model"], then invoke(None)'}


async def fork(address: str) -> Facts:
    made = agent(address, Tools(), checkpointer=InMemorySaver(), middleware=[ModelCallLimitMiddleware(run_limit=STEPS)])
    await made.ainvoke({"messages": [("user", PROMPT)]}, THREAD)
    past = [one async for one in made.aget_state_history(THREAD)]
    kept = {sum(isinstance(message, ToolMessage) for message in one.values.get("messages", ())): one for one in past}
    before = asked(address)
    await made.ainvoke(None, kept[1].config)
    return {"from": 1, "more": asked(address) - before, "how": "invoke(None, config of an earlier checkpoint)"}


async def killed(address: str) -> Facts:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "checkpoints.db"
        command = [sys.executable, "-m", __spec__.name, "--die", address, str(file)]
        done = subprocess.run(command, check=False)
        before = asked(address)
        tools = Tools()
        async with AsyncSqliteSaver.from_conn_string(str(file)) as saver:
            state = await agent(address, tools, checkpointer=saver).ainvoke(None, THREAD)
    kept = sum(isinstance(message, ToolMessage) for message in state["messages"])
    return {
        "died": done.returncode,
        "before": before,
        "kept": kept,
        "searches": tools.searches,
        "how": "AsyncSqliteSaver, then invoke(None)",
    }


async def die(address: str, file: str) -> None:
    tools = Tools(lambda number: os._exit(9) if number == 3 else None)
    async with AsyncSqliteSaver.from_conn_string(file) as saver:
        await agent(address, tools, checkpointer=saver).ainvoke({"messages": [("user", PROMPT)]}, THREAD, durability="sync")


SCENARIOS = {
    "limit": limit,
    "which": which,
    "edit": edit,
    "no_usage": simple,
    "cut_call": simple,
    "cut_before_arguments": simple,
    "cut_text": simple,
    "step": step,
    "fork": fork,
    "killed": killed,
}

NAMES = {
    "media": "langchain.messages:HumanMessage",
    "typed": "langchain.agents.structured_output:ToolStrategy",
    "approval": "langchain.agents.middleware:HumanInTheLoopMiddleware",
    "graphs": "langgraph.graph:StateGraph",
}

if __name__ == "__main__":
    if sys.argv[1] == "--die":
        import asyncio

        asyncio.run(die(sys.argv[2], sys.argv[3]))
    else:
        packages = ("langgraph", "langchain", "langchain-openai", "langgraph-checkpoint-sqlite")
        main("langgraph", packages, SCENARIOS, NAMES)

"""Inspect: a task of one sample, solved by an agent in its plain tool loop."""
# mypy: disable-error-code="import-not-found,misc,no-any-return,untyped-decorator,unused-ignore"

import tempfile
from typing import Any

from inspect_ai import Task, eval_async
from inspect_ai.agent import as_tool, react
from inspect_ai.dataset import Sample
from inspect_ai.log import EvalLog
from inspect_ai.model import get_model
from inspect_ai.solver import TaskState, chain, solver, use_tools
from inspect_ai.solver import generate as plain_loop
from inspect_ai.tool import ToolDef

from tests.peers.driving import MANY, PROMPT, STEPS, WEATHER, Facts, Tools, main


@solver
def remembered(into: dict[str, TaskState]) -> Any:
    async def solve(state: TaskState, generate: Any) -> TaskState:
        into["state"] = state
        return state

    return solve


def definitions(tools: Tools) -> list[ToolDef]:
    async def search_lost_property(words: str) -> str:
        return await tools.search_lost_property(words)

    async def get_weather(city: str = "Graz") -> str:
        return await tools.get_weather(city)

    search = ToolDef(
        search_lost_property, "search_lost_property", "Search the lost property office.", {"words": "what to look for"}
    )
    return [search, ToolDef(get_weather, "get_weather", "The weather in a city.", {"city": "where"})]


async def run(address: str, prompt: str, tools: Tools, state: dict[str, TaskState] | None = None, **limits: Any) -> Facts:
    agent = limits.pop("agent", None)
    before: dict[str, TaskState] = {} if state is None else state
    model = get_model("openai/scripted", base_url=address, api_key="none", memoize=False, responses_api=False)
    with tempfile.TemporaryDirectory() as logs:
        loop = agent or plain_loop()
        task = Task(dataset=[Sample(prompt)], solver=chain(remembered(before), use_tools(*definitions(tools)), loop))
        (log,) = await eval_async(task, model=model, log_dir=logs, **limits)
        return facts_of(log, tools)  # its samples are read from the file on access


def facts_of(log: EvalLog, tools: Tools) -> Facts:
    (sample,) = log.samples or []
    kept = sum(message.role == "tool" for message in sample.messages)
    usage = next(iter(sample.model_usage.values()), None)
    return {
        "came_back": "result" if log.status == "success" else "error",
        "says": f"type={sample.limit.type!r} limit={sample.limit.limit}" if sample.limit else None,
        "failure": sample.error.message[:200] if sample.error else None,
        "kept": kept,
        "text": sample.output.completion,
        "told": sample.output.stop_reason,
        "usage": [usage.input_tokens, usage.output_tokens] if usage else None,
        "searches": tools.searches,
        "forecasts": tools.forecasts,
    }


async def limit(address: str) -> Facts:
    return {**await run(address, PROMPT, Tools(), turn_limit=STEPS), "how": f"turn_limit={STEPS}"}


async def which(address: str) -> Facts:
    return {
        **await run(address, PROMPT, Tools(), turn_limit=STEPS, token_limit=MANY),
        "as_data": True,
        "joined": "the first of several",
    }


async def tokens(address: str) -> Facts:
    return {**await run(address, PROMPT, Tools(), token_limit=500), "how": "token_limit=500"}


async def edit(address: str) -> Facts:
    held: dict[str, TaskState] = {}
    tools = Tools(lambda number: setattr(held["state"], "message_limit", 13) if number == 2 else None)
    return {**await run(address, PROMPT, tools, held, message_limit=7), "how": "state.message_limit = 13"}


async def simple(address: str) -> Facts:
    return await run(address, WEATHER, Tools())


async def sub_agent(address: str) -> Facts:
    tools = Tools()
    child = react(name="search_lost_property", description="Searches.", tools=definitions(tools)[:1], submit=False)
    parent = react(tools=[as_tool(child)], submit=False)
    return {
        **await run(address, PROMPT, tools, agent=parent, token_limit=500),
        "how": "token_limit= of the sample counts all agents in it",
    }


SCENARIOS = {
    "limit": limit,
    "which": which,
    "tokens": tokens,
    "edit": edit,
    "no_usage": simple,
    "cut_call": simple,
    "cut_before_arguments": simple,
    "cut_text": simple,
    "sub_agent": sub_agent,
}

NAMES = {
    "media": "inspect_ai.model:ContentImage",
    "typed": "inspect_ai.model:ResponseSchema",
    "mcp": "inspect_ai.tool:mcp_server_stdio",
    "approval": "inspect_ai.approval:ApprovalPolicy",
    "frames": "inspect_ai.analysis:samples_df",
    "scorers": "inspect_ai.scorer:stderr",
}

if __name__ == "__main__":
    main("inspect", ("inspect-ai",), SCENARIOS, NAMES)

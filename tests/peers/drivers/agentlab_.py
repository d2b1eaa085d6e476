"""agentlab in the same scenarios as the others. Runs in this project's own environment."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import agentlab as lab
from agentlab import Budget, FinishReasonIs, MaxTokensUsed, StepCountIs
from tests.peers.driving import MANY, PROMPT, STEPS, WEATHER, Facts, Tools, asked, main


def agent(address: str, tools: Tools, **options: Any) -> lab.Agent:
    model = lab.Provider("compatible", base_url=address, model="scripted")
    return lab.Agent(model, tools=[tools.search_lost_property, tools.get_weather, *options.pop("more", ())], **options)


def facts_of(result: lab.RunResult, tools: Tools) -> Facts:
    last = result.history[-1]
    return {
        "came_back": "result",
        "says": f"{result.stop_reason}: {result.detail}",
        "met": [f"{one.name} value={one.value} limit={one.limit}" for one in result.conditions_met],
        "kept": sum(len(step.tool_results) for step in result.history),
        "text": result.text,
        "told": str(last.finish_reason),
        "usage": [last.usage.input_tokens, last.usage.output_tokens],
        "searches": tools.searches,
        "forecasts": tools.forecasts,
    }


async def run(address: str, prompt: str, tools: Tools, **options: Any) -> Facts:
    return facts_of(await agent(address, tools).run(prompt, **options), tools)


async def limit(address: str) -> Facts:
    return {**await run(address, PROMPT, Tools(), budget=Budget(max_turns=STEPS)), "how": f"Budget(max_turns={STEPS})"}


async def which(address: str) -> Facts:
    condition = FinishReasonIs("content_filter") | StepCountIs(STEPS) | (MaxTokensUsed(MANY) & ~StepCountIs(1))
    return {**await run(address, PROMPT, Tools(), stop=condition), "as_data": True, "joined": "`|` `&` `~`"}


async def tokens(address: str) -> Facts:
    return {**await run(address, PROMPT, Tools(), budget=Budget(max_tokens=500)), "how": "Budget(max_tokens=500)"}


async def edit(address: str) -> Facts:
    def raise_it(number: int) -> None:
        if number == 2:
            going.limits.max_turns = 6

    tools = Tools(raise_it)
    going = agent(address, tools).run(PROMPT, budget=Budget(max_turns=3))
    return {**facts_of(await going, tools), "how": "run.limits.max_turns = 6, or the field in the panel"}


async def simple(address: str) -> Facts:
    return await run(address, WEATHER, Tools())


async def step(address: str) -> Facts:
    await agent(address, Tools()).run(PROMPT).step()
    return {"after_one": asked(address), "how": "await run.step()"}


async def fork(address: str) -> Facts:
    going = agent(address, Tools()).run(PROMPT, budget=Budget(max_turns=2))
    await going
    before = asked(address)
    branch = going.fork(at=1)
    branch.limits.max_turns = 20
    await branch
    return {"from": 1, "more": asked(address) - before, "how": "run.fork(at=1), with another model, prompt or result"}


async def killed(address: str) -> Facts:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "runs.db"
        command = [sys.executable, "-m", "tests.peers.drivers.agentlab_", "--die", address, str(file)]
        done = await asyncio.to_thread(subprocess.run, command, check=False)
        before = asked(address)
        tools = Tools()
        store = lab.Store(file)
        try:
            (run_id,) = store.frame("runs").run_id
            result = await store.resume(run_id, agent(address, tools))
        finally:
            store.close()
    kept = sum(len(one.tool_results) for one in result.history)
    return {
        "died": done.returncode,
        "before": before,
        "kept": kept,
        "searches": tools.searches,
        "how": "store.resume(run_id, agent)",
    }


async def die(address: str, file: str) -> None:
    tools = Tools(lambda number: os._exit(9) if number == 3 else None)
    await agent(address, tools, observers=[lab.Store(file)]).run(PROMPT)


async def sub_agent(address: str) -> Facts:
    tools = Tools()
    child = agent(address, tools).as_tool("search_lost_property", "Searches.")
    parent = lab.Agent(lab.Provider("compatible", base_url=address, model="scripted"), tools=[child])
    result = await parent.run(PROMPT, budget=Budget(max_tokens=500))
    return {**facts_of(result, tools), "how": "always: a sub-agent has what its caller has left"}


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
    "killed": killed,
    "sub_agent": sub_agent,
}

if __name__ == "__main__":
    if sys.argv[1] == "--die":
        asyncio.run(die(sys.argv[2], sys.argv[3]))
    else:
        main("agentlab", (), SCENARIOS, {})

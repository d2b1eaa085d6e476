"""What is not run: the rows of the table, what was read in the documentation of each version, and what each does better.

A cell here stands in italics in the table. "not tried" is that; "none found" means that documentation and package were looked through.
"""

from __future__ import annotations

from collections.abc import Mapping

ROWS: Mapping[str, str] = {
    "limit": "At a limit you get",
    "which": "Which limit it was is told",
    "joined": "Limits are joined by",
    "edit": "A limit is changed while it runs",
    "no_usage": "Tokens that the provider does not report",
    "cut_call": "A tool call cut off at the cap",
    "cut_text": "An answer cut off at the cap",
    "step": "One step at a time; a branch from an earlier step",
    "killed": "Goes on after the process was killed",
    "sub_agent": "A sub-agent within its caller's tokens",
    "look": "Where a run is looked at",
    "evals": "Evals and comparisons",
    "in_out": "Images in; typed answers; MCP; approval of tools",
    "beyond": "Beyond one agent; languages; age",
}
"""The rows in order, by the name that they have in `judged.py` and here."""

NAMES: Mapping[str, str] = {
    "agentlab": "agentlab",
    "pydantic-ai": "pydantic-ai",
    "autogen": "AutoGen",
    "inspect": "Inspect",
    "langgraph": "LangGraph",
    "ai-sdk": "Vercel AI SDK",
    "openrouter": "OpenRouter agent",
    "openai-agents": "OpenAI Agents SDK",
    "smolagents": "smolagents",
}
IN_README = ("agentlab", "pydantic-ai", "autogen", "inspect", "langgraph", "ai-sdk")

READ: Mapping[str, Mapping[str, str]] = {
    "agentlab": {
        "look": "a live panel in the notebook; rows of a DataFrame; OpenTelemetry",
        "evals": "experiments, intervals, what-if on recorded runs; no scorers, no data sets",
        "in_out": "no; no; no; a person steps, or pauses",
        "beyond": "sub-agents; Python; new, 0.1",
    },
    "pydantic-ai": {
        "killed": "yes, by Temporal, DBOS, Prefect",
        "look": "Logfire, OpenTelemetry",
        "evals": "pydantic-evals: data sets, scorers",
        "in_out": "yes; yes; yes; yes",
        "beyond": "graphs; Python; stable, 2.x",
    },
    "autogen": {
        "killed": "by hand, from the state you saved",
        "sub_agent": "not tried",
        "look": "AutoGen Studio, OpenTelemetry",
        "evals": "agbench, in its repository",
        "in_out": "yes; yes; yes; by a UserProxyAgent",
        "beyond": "teams, graphs, distributed; Python, .NET; in maintenance",
    },
    "inspect": {
        "step": "not tried",
        "killed": "yes, from checkpoints",
        "look": "its log viewer, live too; rows of a DataFrame",
        "evals": "what it is made for: scorers, data sets, sandboxes, many ready evals",
        "in_out": "yes; yes; yes; yes",
        "beyond": "sub-agents, hand-offs, agents of others; Python; widely used, 0.3",
    },
    "langgraph": {
        "sub_agent": "no token limit of its own",
        "look": "LangSmith Studio",
        "evals": "LangSmith",
        "in_out": "yes; yes; yes, by an adapter; yes",
        "beyond": "graphs of any form; Python, TypeScript; stable, 1.x",
    },
    "ai-sdk": {
        "killed": "yes, by its WorkflowAgent",
        "sub_agent": "not tried",
        "look": "DevTools, OpenTelemetry",
        "evals": "none found",
        "in_out": "yes; yes; yes; yes",
        "beyond": "workflows, web pages that stream; TypeScript; stable, 7.x",
    },
    "openrouter": {
        "step": "not tried",
        "killed": "not tried; it has a state to keep",
        "sub_agent": "not tried",
        "look": "hooks",
        "evals": "none found",
        "in_out": "not tried; not tried; not tried; yes",
        "beyond": "TypeScript; beta, 0.8",
    },
    "openai-agents": {
        "edit": "not tried",
        "step": "not tried",
        "killed": "by Temporal and others; sessions in SQLite",
        "sub_agent": "no token limit of its own",
        "look": "traces at OpenAI",
        "evals": "OpenAI's platform",
        "in_out": "yes; yes; yes; yes",
        "beyond": "hand-offs, guardrails, voice; Python, TypeScript; widely used, 0.24",
    },
    "smolagents": {
        "edit": "not tried",
        "killed": "none found",
        "sub_agent": "no token limit of its own",
        "look": "OpenTelemetry, a Gradio page",
        "evals": "none found",
        "in_out": "yes; none found; yes; not tried",
        "beyond": "agents that write Python, in sandboxes; Python; stable, 1.x",
    },
}
"""By framework and row. What was run takes the place of what stands here."""

BETTER: Mapping[str, str] = {
    "pydantic-ai": "typed answers, asked again until they validate; dependency injection; far more providers, MCP, durable execution "
    "on several engines. For an application in production take it.",
    "autogen": "conversations of several agents: teams, selectors, swarms, graphs, a runtime over processes, a studio without code. "
    "Its README points new users to Microsoft's Agent Framework.",
    "inspect": "evals: scorers, data sets, sandboxes, approval policies, a log viewer. `inspect ctl` changes the limits of a running "
    "eval from another terminal. agentlab reads its logs.",
    "langgraph": "control flow: any graph, with a checkpoint after every node, so that after a kill not even the answer under way is "
    "asked again, which agentlab does; interrupts for people; hosting.",
    "ai-sdk": "the web: streams into React, Vue, Svelte and Angular, dozens of providers. In TypeScript there is no agentlab at all.",
    "openrouter": "the shortest way to hundreds of models behind one key, with limits on cost built in and hooks around every step.",
    "openai-agents": "hand-offs, guardrails, voice, and all that OpenAI hosts; at `max_turns` its exception carries the whole run.",
    "smolagents": "agents that act by writing Python, run in a sandbox, and code small enough to read in an evening.",
}

SOURCES: Mapping[str, str] = {
    "pydantic-ai": "https://ai.pydantic.dev (durable execution, evals, MCP, input, output, deferred tools)",
    "autogen": "https://microsoft.github.io/autogen/stable (teams, messages, MCP, state), and the README of its repository",
    "inspect": "https://inspect.aisi.org.uk (checkpointing, approval, tools, analysis), `inspect ctl config --help`",
    "langgraph": "https://docs.langchain.com (persistence, interrupts, structured output, MCP adapters, LangSmith)",
    "ai-sdk": "what the package `ai` has under `docs/` (loop control, tool approvals, MCP, DevTools, WorkflowAgent)",
    "openrouter": "the README in the package `@openrouter/agent`",
    "openai-agents": "https://openai.github.io/openai-agents-python (human in the loop, MCP, sessions, tracing)",
    "smolagents": "https://huggingface.co/docs/smolagents (secure code execution, telemetry, MCP)",
}

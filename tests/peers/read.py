"""The parts of the table that are not run: its rows, facts from the documentation of each version, and the strengths of each framework.

A cell from here is in italics in the table. "none found" means that documentation and package were searched.
"""

from __future__ import annotations

from collections.abc import Mapping

ROWS: Mapping[str, str] = {
    "limit": "At a limit you get",
    "which": "The limit that was reached is reported",
    "joined": "Limits are combined by",
    "edit": "A limit can be changed during the run",
    "no_usage": "Tokens that the provider does not report",
    "cut_call": "A tool call truncated at the cap",
    "cut_text": "An answer truncated at the cap",
    "step": "One step at a time; a branch from an earlier step",
    "killed": "Resumes after the process was killed",
    "sub_agent": "A sub-agent within its caller's tokens",
    "look": "Tools to inspect a run",
    "evals": "Evals and comparisons",
    "in_out": "Images in; typed answers; MCP; approval of tools",
    "beyond": "Beyond one agent; languages; age",
}
"""The rows in order, by their name in `judged.py` and here."""

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
        "evals": "tasks, scorers, experiments, intervals, what-if on recorded runs; no ready evals, no sandboxes",
        "in_out": "yes; yes; yes; yes",
        "beyond": "sub-agents; Python; new, 0.1",
    },
    "pydantic-ai": {
        "killed": "yes, by Temporal, DBOS, Prefect",
        "look": "Logfire, OpenTelemetry",
        "evals": "pydantic-evals: datasets, scorers",
        "in_out": "yes; yes; yes; yes",
        "beyond": "graphs; Python; stable, 2.x",
    },
    "autogen": {
        "killed": "manually, from saved state",
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
        "evals": "its main purpose: scorers, datasets, sandboxes, many ready evals",
        "in_out": "yes; yes; yes; yes",
        "beyond": "sub-agents, hand-offs, third-party agents; Python; widely used, 0.3",
    },
    "langgraph": {
        "sub_agent": "no separate token limit",
        "look": "LangSmith Studio",
        "evals": "LangSmith",
        "in_out": "yes; yes; yes, by an adapter; yes",
        "beyond": "arbitrary graphs; Python, TypeScript; stable, 1.x",
    },
    "ai-sdk": {
        "killed": "yes, by its WorkflowAgent",
        "sub_agent": "not tried",
        "look": "DevTools, OpenTelemetry",
        "evals": "none found",
        "in_out": "yes; yes; yes; yes",
        "beyond": "workflows, streaming web pages; TypeScript; stable, 7.x",
    },
    "openrouter": {
        "step": "not tried",
        "killed": "not tried; its state can be saved",
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
        "sub_agent": "no separate token limit",
        "look": "traces at OpenAI",
        "evals": "OpenAI's platform",
        "in_out": "yes; yes; yes; yes",
        "beyond": "hand-offs, guardrails, voice; Python, TypeScript; widely used, 0.24",
    },
    "smolagents": {
        "edit": "not tried",
        "killed": "none found",
        "sub_agent": "no separate token limit",
        "look": "OpenTelemetry, a Gradio page",
        "evals": "none found",
        "in_out": "yes; none found; yes; not tried",
        "beyond": "agents that write Python, in sandboxes; Python; stable, 1.x",
    },
}
"""By framework and row. An observation replaces the text here."""

BETTER: Mapping[str, str] = {
    "pydantic-ai": "typed answers, requested again until they validate; dependency injection; far more providers, MCP, durable "
    "execution on several engines. It is the better choice for an application in production.",
    "autogen": "conversations of several agents: teams, selectors, swarms, graphs, a distributed runtime, a no-code studio. "
    "Its README points new users to Microsoft's Agent Framework.",
    "inspect": "evals: scorers, datasets, sandboxes, approval policies, a log viewer. `inspect ctl` changes the limits of a running "
    "eval from another terminal. agentlab reads its logs.",
    "langgraph": "control flow: any graph, with a checkpoint after every node. After a kill not even the current answer is requested "
    "again; agentlab requests it again. Human-in-the-loop interrupts; hosting.",
    "ai-sdk": "the web: streams into React, Vue, Svelte and Angular, dozens of providers. agentlab does not exist for TypeScript.",
    "openrouter": "the shortest way to hundreds of models with one key, with built-in limits on cost and hooks around every step.",
    "openai-agents": "hand-offs, guardrails, voice, and everything that OpenAI hosts; at `max_turns` its exception contains the "
    "whole run.",
    "smolagents": "agents that act by writing Python, which runs in a sandbox; its code base is small enough to read in an evening.",
}

SOURCES: Mapping[str, str] = {
    "pydantic-ai": "https://ai.pydantic.dev (durable execution, evals, MCP, input, output, deferred tools)",
    "autogen": "https://microsoft.github.io/autogen/stable (teams, messages, MCP, state), and the README of its repository",
    "inspect": "https://inspect.aisi.org.uk (checkpointing, approval, tools, analysis), `inspect ctl config --help`",
    "langgraph": "https://docs.langchain.com (persistence, interrupts, structured output, MCP adapters, LangSmith)",
    "ai-sdk": "the folder `docs/` of the package `ai` (loop control, tool approvals, MCP, DevTools, WorkflowAgent)",
    "openrouter": "the README in the package `@openrouter/agent`",
    "openai-agents": "https://openai.github.io/openai-agents-python (human in the loop, MCP, sessions, tracing)",
    "smolagents": "https://huggingface.co/docs/smolagents (secure code execution, telemetry, MCP)",
}

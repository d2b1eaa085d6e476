// Vercel's AI SDK: generateText with tools and stopWhen.

import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, isStepCount, tool } from "ai";
import { z } from "zod";

import { MANY, PROMPT, STEPS, Tools, WEATHER, asked, main, raised } from "./driving.mjs";

globalThis.AI_SDK_LOG_WARNINGS = false;

function options(address, tools) {
  return {
    model: createOpenAICompatible({ name: "loopback", baseURL: address, apiKey: "none" })("scripted"),
    tools: {
      search_lost_property: tool({
        description: "Search the railway's lost property office.",
        inputSchema: z.object({ words: z.string() }),
        execute: async (input) => tools.search(input),
      }),
      get_weather: tool({
        description: "The weather in a city.",
        inputSchema: z.object({ city: z.string().default("Graz") }),
        execute: async (input) => tools.weather(input),
      }),
    },
  };
}

const tokensOf = (steps) => steps.reduce((sum, step) => sum + (step.usage.totalTokens ?? 0), 0);

async function run(address, prompt, tools, stopWhen) {
  let result;
  try {
    result = await generateText({ ...options(address, tools), prompt, stopWhen });
  } catch (error) {
    return { ...raised(error), searches: tools.searches, forecasts: tools.forecasts };
  }
  const usage = result.totalUsage;
  return {
    came_back: "result",
    says: null,
    kept: result.steps.flatMap((step) => step.toolResults).length,
    text: result.text,
    told: result.finishReason,
    usage: [usage.inputTokens ?? null, usage.outputTokens ?? null],
    searches: tools.searches,
    forecasts: tools.forecasts,
  };
}

const simple = (address) => run(address, WEATHER, new Tools(), isStepCount(5));

await main("ai-sdk", ["ai", "@ai-sdk/openai-compatible"], {
  limit: async (address) => ({ ...(await run(address, PROMPT, new Tools(), isStepCount(STEPS))), how: `stopWhen: isStepCount(${STEPS})` }),
  which: async (address) => {
    const stopWhen = [isStepCount(STEPS), ({ steps }) => tokensOf(steps) >= MANY];
    return { ...(await run(address, PROMPT, new Tools(), stopWhen)), joined: "the first of several" };
  },
  tokens: async (address) => {
    const facts = await run(address, PROMPT, new Tools(), ({ steps }) => tokensOf(steps) >= 500);
    return { ...facts, how: "a custom function in stopWhen" };
  },
  edit: async (address) => {
    let limit = 3;
    const tools = new Tools((number) => {
      if (number === 2) limit = 6;
    });
    const facts = await run(address, PROMPT, tools, ({ steps }) => steps.length >= limit);
    return { ...facts, how: "a custom function in stopWhen that reads a variable" };
  },
  no_usage: simple,
  cut_call: simple,
  cut_before_arguments: simple,
  cut_text: simple,
  step: async (address) => {
    await generateText({ ...options(address, new Tools()), prompt: PROMPT, stopWhen: isStepCount(1) });
    return { after_one: await asked(address), how: "isStepCount(1), then again with response.messages" };
  },
  fork: async (address) => {
    const first = await generateText({ ...options(address, new Tools()), prompt: PROMPT, stopWhen: isStepCount(2) });
    const past = [{ role: "user", content: PROMPT }, ...first.response.messages.slice(0, 2)];
    const before = await asked(address);
    await generateText({ ...options(address, new Tools()), messages: past, stopWhen: isStepCount(20) });
    return { from: 1, more: (await asked(address)) - before, how: "messages: earlier response.messages" };
  },
}, { typed: "ai:Output", approval: "ai:InvalidToolApprovalError", mcp: "@ai-sdk/mcp:createMCPClient" });

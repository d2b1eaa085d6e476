// OpenRouter's agent toolkit: callModel with tools and stopWhen. It speaks the Responses API.

import { OpenRouter } from "@openrouter/sdk";
import { callModel, maxTokensUsed, stepCountIs, tool } from "@openrouter/agent";
import { z } from "zod";

import { MANY, PROMPT, STEPS, Tools, WEATHER, main, raised } from "./driving.mjs";

function toolsFor(tools) {
  return [
    tool({
      name: "search_lost_property",
      description: "Search the railway's lost property office.",
      inputSchema: z.object({ words: z.string() }),
      outputSchema: z.string(),
      execute: async (input) => tools.search(input),
    }),
    tool({
      name: "get_weather",
      description: "The weather in a city.",
      inputSchema: z.object({ city: z.string().default("Graz") }),
      outputSchema: z.string(),
      execute: async (input) => tools.weather(input),
    }),
  ];
}

async function run(address, prompt, tools, stopWhen) {
  const client = new OpenRouter({ apiKey: "none", serverURL: address, retryConfig: { strategy: "none" } });
  let response, usage, stopped = null;
  const hooks = {
    SessionEnd: [{ handler: (payload) => void (usage = payload.totalUsage) }],
    Stop: [{ handler: (payload) => void (stopped = payload.reason) }],
  };
  let items = 0;
  try {
    const result = callModel(client, { model: "scripted", input: prompt, tools: toolsFor(tools), stopWhen, allowFinalResponse: false, hooks });
    for await (const event of result.getFullResponsesStream()) items += event.type === "tool.result" ? 1 : 0;
    response = await result.getResponse();
  } catch (error) {
    return { ...raised(error), kept: items, searches: tools.searches, forecasts: tools.forecasts, usage };
  }
  const said = response.output.filter((item) => item.type === "message").flatMap((item) => item.content);
  return {
    came_back: "result",
    says: stopped,
    kept: items,
    text: said.map((part) => part.text).join(""),
    told: response.incompleteDetails?.reason ?? response.status,
    usage: response.usage ? [response.usage.inputTokens, response.usage.outputTokens] : null,
    total: usage ?? null,
    searches: tools.searches,
    forecasts: tools.forecasts,
  };
}

const simple = (address) => run(address, WEATHER, new Tools(), stepCountIs(5));

await main("openrouter", ["@openrouter/agent", "@openrouter/sdk"], {
  limit: async (address) => ({ ...(await run(address, PROMPT, new Tools(), stepCountIs(STEPS))), how: `stopWhen: stepCountIs(${STEPS})` }),
  which: async (address) => ({
    ...(await run(address, PROMPT, new Tools(), [stepCountIs(STEPS), maxTokensUsed(MANY)])),
    joined: "the first of several",
  }),
  tokens: async (address) => ({ ...(await run(address, PROMPT, new Tools(), maxTokensUsed(500))), how: "maxTokensUsed(500)" }),
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
}, { cost: "@openrouter/agent:maxCost", hooks: "@openrouter/agent:HooksManager" });

// What the two drivers in JavaScript have in common; the words are those of driving.py.

import { readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";

export const PROMPT = "I left a green umbrella on the train from Graz to Vienna. Please find it.";
export const WEATHER = "What is the weather?";
export const STEPS = 4;
export const MANY = 10_000_000;
const PATIENCE_MS = 60_000;

export class Tools {
  searches = 0;
  forecasts = [];

  constructor(during = () => {}) {
    this.during = during;
  }

  search({ words }) {
    this.searches += 1;
    this.during(this.searches);
    return `Nothing fits '${words}'.`;
  }

  weather({ city }) {
    this.forecasts.push(city);
    return `Rain in ${city}.`;
  }
}

export async function asked(address) {
  return (await fetch(`${address}/asked`)).json();
}

export function raised(error) {
  return { came_back: "exception", error: error.name, says: String(error.message).replace(/\s+/g, " ").slice(0, 200) };
}

function versionOf(name) {
  const require = createRequire(join(process.cwd(), "package.json"));
  let folder = dirname(require.resolve(name));
  for (; ; folder = dirname(folder)) {
    try {
      const about = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
      if (about.name === name) return about.version;
    } catch {
      // a folder above has it
    }
  }
}

export async function main(who, packages, wanted, names) {
  const [root, file] = process.argv.slice(2);
  const facts = {};
  for (const [name, scenario] of Object.entries(wanted)) {
    const address = `${root}/${name}/${who}/v1`;
    const late = new Promise((_, fail) => setTimeout(() => fail(new Error("it took too long")), PATIENCE_MS).unref());
    let seen;
    try {
      seen = await Promise.race([scenario(address), late]);
    } catch (failure) {
      seen = { failed: `${failure.name}: ${failure.message}`.slice(0, 300) };
    }
    facts[name] = { ...seen, requests: await asked(address) };
  }
  const versions = Object.fromEntries(packages.map((name) => [name, versionOf(name)]));
  for (const place of Object.values(names)) {
    const [module, name] = place.split(":");
    if (!(name in (await import(module)))) throw new Error(`${place} is not there`);
  }
  writeFileSync(file, JSON.stringify({ versions, facts, names }));
  process.exit(0);
}

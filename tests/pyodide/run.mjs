// Runs a Python program in Pyodide: node run.mjs PROGRAM NODE_MODULES FOLDER=PLACE…, with each folder mounted at a place.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [program, modules, ...mounts] = process.argv.slice(2);
const { loadPyodide } = await import(pathToFileURL(`${modules}/pyodide/pyodide.mjs`).href);
const pyodide = await loadPyodide();
for (const mount of mounts) {
  const [folder, place] = mount.split("=");
  pyodide.mountNodeFS(place, folder);
}
try {
  await pyodide.runPythonAsync(readFileSync(program, "utf8"));
} catch (error) {
  console.error(error.message); // node would print all of Pyodide's source with an error that nothing catches
  process.exit(1);
}

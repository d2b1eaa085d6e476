// Branches: made from any step of the open run, and several runs side by side.

/** The button below a step (0: below the prompt) that makes a branch there; null in a file. */
function branchHere(store, run, step, send) {
  return null;
}

/** Several runs side by side, a column each. */
function makeColumns(store, send) {
  const node = make("div", { class: "page-columns", hidden: true });
  return { node, update: () => {} };
}

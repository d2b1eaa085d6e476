// The runs of a store: the grid, and in its place the page of the runs that are opened.

/** Return a text as Python code, in ASCII. */
function pythonText(text) {
  const escaped = text.replace(/["\\]/g, "\\$&").replace(/[^\x20-\x7e]/gu, (one) => {
    const code = one.codePointAt(0).toString(16);
    return code.length > 4 ? `\\U${code.padStart(8, "0")}` : `\\u${code.padStart(4, "0")}`;
  });
  return `"${escaped}"`;
}

/** How code gets hold of opened runs, and how it continues one: `[label, code]` each. */
function codeFor(rows, store) {
  const loads = rows.map((row) => `${store}.load(${pythonText(row.id)})`);
  if (rows.length === 2) return [["In code", `a, b = ${loads.join(", ")}; lab.diff(a, b)`]];
  if (rows.length > 2) {
    return [["In code", `runs = [${store}.load(one) for one in (${rows.map((row) => pythonText(row.id)).join(", ")})]`]];
  }
  const [row] = rows;
  const lines = [["In code", `run = ${loads[0]}`]];
  if (row.resumable === false) return lines;
  const given = [pythonText(row.id), row.needs_agent && "agent", row.resumable === null && "take_over=True"].filter(Boolean);
  const label = row.resumable === null ? "To continue, once its process is gone" : "To continue";
  lines.push([label, `run = ${store}.resume(${given.join(", ")})`]);
  return lines;
}

/**
 * Show the runs of a store in `root`. `source` has `list()` and `open(ids)`, which return promises of the listing and of the data of
 * pages; `source.live` is false in a file. Return a function that takes all of it down.
 */
function mountBrowse(root, source) {
  let store = "store";
  let unmount = null;
  let opening = 0;
  let pageStore = null;
  const grid = makeGrid({ onOpen: open, onRefresh: source.live ? refresh : null });
  const back = make("button", { type: "button", class: "page-button", onclick: close }, "\u2190 All runs");
  const codes = make("div", { class: "page-browse-codes" });
  const page = make("div", {});
  const said = make("div", { class: "page-grid-empty", role: "status" });
  const opened = make(
    "div",
    { class: "page-browse-run", hidden: true },
    make("div", { class: "page-browse-back" }, back, codes),
    said,
    page,
  );
  opened.addEventListener("keydown", leave, true);
  root.classList.add("agentlab-page", "tex2jax_ignore", "mathjax_ignore");
  root.replaceChildren(grid.node, opened);

  async function refresh() {
    grid.busy(true);
    try {
      const listing = await source.list();
      store = listing.store;
      grid.busy(false);
      grid.take(listing);
    } catch (error) {
      grid.busy(false);
      grid.fault(error.message);
    }
  }

  async function open(rows) {
    const ours = ++opening;
    unmount?.();
    unmount = pageStore = null;
    const lines = codeFor(rows, store);
    codes.replaceChildren(
      ...lines.map(([label, code]) => {
        const shown = make("code", {}, code);
        return make("div", { class: "page-code" }, make("small", {}, label), shown, copyButton(code, shown, label));
      }),
    );
    grid.node.hidden = true;
    opened.hidden = false;
    page.hidden = true;
    said.hidden = false;
    said.textContent = "Opening\u2026";
    back.focus({ preventScroll: true });
    try {
      if (!rows.every(grid.canOpen)) {
        throw new Error(
          "This run is listed but not in this file, which would be too large. Open it from the store, with the code above.",
        );
      }
      const data = await source.open(rows.map((row) => row.id));
      if (ours !== opening) return;
      const states = new Map(rows.filter((row) => row.state !== "ended").map((row) => [row.id, row.state]));
      for (const run of data.runs) run.state = states.get(run.id) || run.state; // a run that was loaded is idle
      said.hidden = true;
      page.hidden = false;
      pageStore = makeStore(data);
      unmount = mountPage(page, pageStore);
      if (rows.length === 2) pageStore.set({ open: rows[1].id, compare: rows[0].id }); // what was there first is on the left
    } catch (error) {
      if (ours === opening) said.textContent = error.message;
    }
  }

  function close() {
    opening++;
    unmount?.();
    unmount = pageStore = null;
    opened.hidden = true;
    grid.node.hidden = false;
    grid.focus();
  }

  /** Esc closes a dialog or the comparison, else leaves the page. In a notebook the page hears only keys that are pressed in it. */
  function leave(event) {
    if (event.key !== "Escape" || event.target.matches("input, textarea, select") || opened.querySelector("dialog[open]"))
      return;
    event.preventDefault();
    event.stopPropagation();
    if (pageStore && pageStore.view.compare !== null) pageStore.set({ compare: null });
    else close();
  }

  const unshield = shieldKeys(root);
  refresh();
  return () => {
    unmount?.();
    unshield();
    root.replaceChildren();
  };
}

/** In a notebook, the kernel lists and loads the runs. */
function renderBrowse({ model, el }) {
  const root = el.appendChild(make("div"));
  const kept = model.get("kept_class");
  if (kept) root.before(make("style", {}, `.${CSS.escape(kept)} {display:none}`));
  const { send, listen, leave } = makeSend(model);
  const hello = () => send({ do: "hello" });
  const unwatch = watchKernel(model, hello, () => leave(GONE));
  model.on("msg:custom", listen);
  const unmount = mountBrowse(root, {
    live: true,
    list: () => send({ do: "list" }),
    open: (runs) => send({ do: "open", runs }).then(JSON.parse),
  });
  return () => {
    unwatch();
    model.off("msg:custom", listen);
    unmount();
    leave("This view was closed.");
  };
}

/** In a file, the data is in the page: of each run that it holds in an element by itself. */
function openBrowseFile() {
  const data = document.getElementById("agentlab-runs");
  if (!data) return;
  const listing = JSON.parse(data.textContent);
  const pageOf = (id) => JSON.parse(document.getElementById(`agentlab-run-${listing.held[id]}`).textContent);
  document.documentElement.classList.add("agentlab-file");
  mountBrowse(document.querySelector(".agentlab-page"), {
    live: false,
    list: async () => listing,
    open: async (ids) => {
      const runs = new Map();
      for (const run of ids.flatMap((id) => pageOf(id).runs)) if (!runs.has(run.id)) runs.set(run.id, run);
      return { title: listing.title, open: ids[0], runs: [...runs.values()] };
    },
  });
}

openBrowseFile();

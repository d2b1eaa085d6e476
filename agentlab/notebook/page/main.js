// The page: its parts in place, and what happens between them.

/**
 * Build the page of one or more runs in `root`.
 *
 * `store` is what `makeStore` returns; the page follows it. `send(message)` reaches the kernel; it is null in a file, where nothing can be
 * changed. Return a function that takes the page down.
 */
function mountPage(root, store, send = null) {
  const onLimit = send ? (name, value) => send({ do: "limit", run: store.view.open, name, value }) : null;
  const toggleCompare = () => compare(store);
  const bar = makeBar(store);
  const comparing = make("button", { type: "button", class: "page-button", onclick: toggleCompare }, "Compare");
  const chips = makeChips(store, comparing);
  const inCode = makeInCode(store, send);
  chips.node.append(inCode.node, comparing);
  const scrubber = makeScrubber(store);
  const transcript = makeTranscript(store, send);
  const diff = makeDiff(store);
  const conversation = () => (store.view.compare === null ? transcript : diff);
  const help = makeHelp();
  const search = makeSearch(store, {
    onFound(query, steps) {
      transcript.find(query);
      scrubber.mark(steps);
    },
    onGo(step) {
      store.set({ compare: null });
      store.choose(step);
      transcript.revealHit(step);
    },
    onLeave: () => conversation().focus(),
  });
  const charts = MEASURES.map((measure) => makeChart(store, measure, onLimit));
  const plots = make("div", { class: "page-charts" }, ...charts.map((chart) => chart.node));
  const usage = section("Tokens and cost", plots, { name: "charts" });
  const settings = send ? makeSettings(store, send) : makeLimits();
  const drawerParts = [makeEnd(store), settings, makeActions(store, send), makeStep(), makeRuns(store), makeMade()];
  const [end, limits, actions, step, runs, made] = drawerParts.map((one) => one.node);
  const drawer = make(
    "aside",
    { class: "page-drawer", tabindex: -1, "aria-label": "About the run" },
    make("div", { class: "page-sections" }, [end, limits, actions, settings.rest, usage.node, step, runs, made]),
  );
  const flip = make(
    "button",
    { type: "button", class: "page-button page-flip", "aria-pressed": "false", onclick: () => turn() },
    "Overview",
  );
  const ask = make(
    "button",
    {
      type: "button",
      class: "page-button icon",
      "aria-label": "Keys and marks",
      title: "Keys and marks (?)",
      onclick: () => help.showModal(),
    },
    "?",
  );
  const controls = send ? [makeControls(store, send)] : [];
  const all = send ? [makeAll(store, send)] : [];
  const columns = send ? makeColumns(store, send) : null;
  if (columns) comparing.before(columns.button);
  const live = send ? [columns, makeApprovals(store, send), makeChat(store, send), makeFault(store)] : [];
  const tools = make(
    "div",
    { class: "page-tools" },
    controls.map((one) => one.node),
    scrubber.node,
    search.node,
    flip,
    send && makeSave(store, send),
    ask,
  );
  const frame = make(
    "div",
    { class: "page-frame" },
    bar.node,
    chips.node,
    all.map((one) => one.node),
    tools,
    make(
      "main",
      { class: "page-main", "aria-label": "The conversation" },
      transcript.node,
      make("div", { class: "page-ring" }), // around the transcript when it has the focus
      diff.node,
      live.map((one) => one.node),
    ),
    drawer,
    help,
  );
  root.classList.add("agentlab-page", "tex2jax_ignore", "mathjax_ignore");
  root.replaceChildren(frame);

  new ResizeObserver(() => grow(false)).observe(transcript.node);
  const parts = [bar, chips, inCode, diff, scrubber, search, ...charts, ...drawerParts, ...controls, ...all, ...live];
  let last = {};
  let waiting = 0;
  let growing = 0;

  function turn() {
    const on = frame.classList.toggle("turned");
    flip.setAttribute("aria-pressed", String(on));
    flip.textContent = on ? "Transcript" : "Overview";
  }

  /** A short conversation has a low page in a notebook. Once it needs the room, it has it, and keeps it. */
  function grow(beside) {
    clearTimeout(growing); // heights that are guessed at first are measured by then
    if (root.classList.contains("tall")) return;
    growing = setTimeout(() => {
      const { scrollHeight, clientHeight } = transcript.node;
      if (beside || scrollHeight > clientHeight + 1) root.classList.add("tall");
    }, 100);
  }

  function refresh({ person = false } = {}) {
    cancelAnimationFrame(waiting);
    waiting = 0;
    const run = store.run();
    const state = { store, view: store.view, run, step: run?.steps[store.view.step - 1] || null };
    const beside = store.view.compare !== null;
    const hidden = beside || areBeside(store.view);
    frame.classList.toggle("beside", areBeside(store.view));
    if (state.step?.html === null) store.need(run.id, [state.step.n]).catch(() => {}); // the drawer shows it
    transcript.node.hidden = hidden;
    diff.node.hidden = !beside;
    const had = root.contains(focused());
    // The transcript first: it reads its place, for which the browser would otherwise lay out what the others have changed. Of another
    // run last: its height depends on what is above it.
    const order = last.open === store.view.open ? [transcript, ...parts] : [...parts, transcript];
    order.forEach((one) => one.update(state));
    const at = focused();
    // What had the focus is gone, or takes it no more, such as a button or a box of a run that has ended.
    if (had && (!root.contains(at) || at.disabled || !at.checkVisibility())) conversation().focus();
    grow(hidden);
    // What a person chooses is brought into view; a step that arrives is not: at the end, the list keeps to the end by itself.
    const moved = last.open === store.view.open && last.step !== store.view.step;
    if (moved && person) conversation().reveal(store.view.step);
    if (last.compare === null && beside) diff.goToFirst();
    if (last.hidden && !hidden) transcript.list.update();
    last = { open: store.view.open, step: store.view.step, compare: store.view.compare, hidden };
  }
  /** Changes that come together are drawn once; a choice of the person at once. */
  const unsubscribe = store.subscribe((what) => {
    if (what === "view") refresh({ person: true });
    else waiting ||= requestAnimationFrame(() => refresh());
  });

  const keyed = document.documentElement.classList.contains("agentlab-file") ? document : root; // in a notebook, other keys are not ours
  const keys = (event) => pageKey(event, { root, store, search, help, toggleCompare });
  const toPrint = () => conversation().print(true);
  const fromPrint = () => conversation().print(false);
  const unshield = shieldKeys(root);
  keyed.addEventListener("keydown", keys);
  addEventListener("beforeprint", toPrint);
  addEventListener("afterprint", fromPrint);
  refresh();
  return () => {
    unsubscribe();
    cancelAnimationFrame(waiting);
    unshield();
    keyed.removeEventListener("keydown", keys);
    removeEventListener("beforeprint", toPrint);
    removeEventListener("afterprint", fromPrint);
    root.replaceChildren();
  };
}

/**
 * Keep keys from JupyterLab, which would run, move or delete cells at those that are meant for the page; its keys with Ctrl, such as to
 * save, stay. Return a function that ends this.
 */
function shieldKeys(root) {
  const shield = ({ target, key, ctrlKey, metaKey }) => {
    // On the element itself: its own selectors are tried before those of what is around it.
    if (root.contains(target)) target.toggleAttribute("data-lm-suppress-shortcuts", key === "Enter" || !(ctrlKey || metaKey));
  };
  addEventListener("keydown", shield, true);
  return () => removeEventListener("keydown", shield, true);
}

/** Keys that hold in the whole page, unless text is typed. */
function pageKey(event, { root, store, search, help, toggleCompare }) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  if (event.target.matches("input:not([type=range]), textarea, select") || help.open) return;
  const action = {
    "/": () => search.input.focus(),
    "?": () => help.showModal(),
    c: toggleCompare,
    b: () => root.querySelector(".page-transcript [aria-current=step] .page-branch-here")?.click(),
    s: () => store.view.all && store.set({ beside: !store.view.beside, compare: null }),
    "[": () => openBeside(store, -1),
    "]": () => openBeside(store, 1),
    Escape: () => store.set({ compare: null }),
  }[event.key];
  if (!action) return;
  event.preventDefault();
  action();
}

function openBeside(store, by) {
  const rows = treeOf(store.runs());
  const at = rows.findIndex(({ run }) => run.id === store.view.open) + by;
  if (rows[at]) store.set({ open: rows[at].run.id, beside: store.view.beside });
}

/** Compare the open run with the one that it branched from, else with the next one; or end the comparison. */
function compare(store) {
  if (store.view.compare !== null) {
    store.set({ compare: null });
    return;
  }
  const run = store.run();
  const others = treeOf(store.runs())
    .map((row) => row.run)
    .filter((one) => one !== run);
  const parent = others.find((one) => one.id === run.parent && known(run.forked_at));
  const branch = others.find((one) => one.parent === run.id && known(one.forked_at));
  if (parent) store.set({ compare: parent.id });
  else if (branch)
    store.set({ open: branch.id, compare: run.id }); // what was there first is on the left
  else if (others.length) store.set({ compare: others[0].id });
}

/** In a file, the data is in the page. */
function openFile() {
  const data = document.getElementById("agentlab-data");
  if (!data) return;
  const root = document.querySelector(".agentlab-page") || document.body.appendChild(make("div"));
  document.documentElement.classList.add("agentlab-file");
  mountPage(root, makeStore(JSON.parse(data.textContent)));
}

openFile();

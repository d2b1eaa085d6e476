// The parts around the transcript: the bar, the runs, the drawer, and the help.

// The bar --------------------------------------------------------------------------------------------------------------------

const GAUGES = [
  { title: "Steps", unit: "steps", total: "steps" },
  { title: "Tokens", unit: "tokens", total: "tokens" },
  { title: "Cost", unit: "usd", total: "cost_usd" },
  { title: "Time", unit: "s", total: "elapsed_s" },
];

/** State, agent and model, and what was used so far, each with a meter where a limit holds. */
function makeBar(store) {
  const said = make("span", { role: "status" });
  const icon = make("span");
  const since = make("span", { class: "page-since", "aria-hidden": "true" });
  const badge = make("span", { class: "page-badge" }, icon, said, since);
  const names = make("div", { class: "page-names" });
  const who = make("div", { class: "page-who" }, badge, names);
  const gauges = make("div", { class: "page-gauges" });
  const node = make("header", { class: "page-bar" }, who, gauges);
  const tick = makeClock(node, store, since);
  const draw = part(
    node,
    (state) => ["state", "soon", "end", "totals", "limits", "id"].map((name) => state.run?.[name]),
    ({ run }) => {
      if (!run) return;
      const [shape, tone, word] = stateOf(run);
      const now = [word, run.soon].filter(Boolean).join(", ");
      if (said.textContent !== now) {
        badge.className = `page-badge ${tone}`;
        icon.replaceChildren(mark(shape, "", 9));
        said.textContent = now;
      }
      const [title, ...others] = [...new Set([run.agent, run.model].filter(Boolean))];
      const about = others.map((name) => make("bdi", { class: "page-model" }, name));
      names.replaceChildren(make("h1", {}, make("bdi", {}, title || store.title || "Run")), ...about);
      gauges.replaceChildren(...GAUGES.map((one) => gaugeOf(run, one)).filter(Boolean));
    },
  );
  return {
    node,
    update(state) {
      draw.update(state);
      tick(state.run);
    },
  };
}

/**
 * The clocks of a live run, which need no message: of the time while it counts, and of the pause. A number that the kernel sends
 * is the time at which it came.
 */
function makeClock(node, store, since) {
  let timer = 0;

  function show() {
    const run = store.run();
    const time = node.querySelector("[data-total=elapsed_s] .page-amount");
    if (run.ticks && time) time.textContent = amount(Math.floor(elapsedOf(run)), "s");
    since.textContent = run.paused ? amount(Math.floor(run.paused.for_s + passed(run.paused)), "s") : "";
  }
  return (run) => {
    if (!run) return;
    for (const one of store.runs()) for (const what of [one.totals, one.paused]) if (what) passed(what);
    clearInterval(timer);
    if (run.ticks || run.paused) timer = setInterval(() => (node.isConnected ? show() : clearInterval(timer)), 250);
    if (run.buttons !== null && known(run.totals.elapsed_s)) show();
  };
}

function gaugeOf(run, gauge) {
  const { title, unit, total } = gauge;
  const value = run.totals[total];
  if (unit === "s" && !known(value)) return null; // times are left out of this page
  const row = limitOf(run, gauge);
  const bound = row ? make("span", { class: "page-quiet" }, ` of ${amount(row.limit, unit)}`) : null;
  return make(
    "div",
    { class: "page-gauge" },
    make("span", { class: "page-label" }, title),
    make("span", { class: "page-value", "data-total": total }, make("span", { class: "page-amount" }, amount(value, unit)), bound),
    row ? meterOf(row) : make("span", { class: "page-meter none" }),
  );
}

/** A meter with colour and pattern: near its limit from four fifths on, or reached. */
function meterOf(row) {
  const percent = Math.max(0, Math.min(100, 100 * row.share));
  const state = row.met ? "met" : row.share >= 0.8 ? "near" : "";
  const bar = make("span", { class: `page-fill ${state}` });
  bar.style.width = `${percent.toFixed(1)}%`;
  bar.hidden = percent === 0;
  return make(
    "span",
    {
      class: "page-meter",
      role: "meter",
      "aria-label": row.label,
      "aria-valuemin": 0,
      "aria-valuemax": 100,
      "aria-valuenow": percent.toFixed(0),
      "aria-valuetext": usedOf(row),
    },
    bar,
  );
}

/** How much of a limit is used, in words. */
function usedOf(row) {
  const value = row.value === null ? "unknown" : amount(row.value, row.unit);
  const state = row.off
    ? "off"
    : row.met
      ? known(row.share)
        ? "reached"
        : "met"
      : known(row.share) && row.share >= 0.8
        ? "near"
        : "";
  if (row.goal) {
    if (typeof row.value === "string") return row.value;
    return row.value ? `called ${row.value === 1 ? "once" : `${amount(row.value, "")} times`}` : "not called yet";
  }
  const bound = row.limit === null || row.limit === undefined ? value : `${value} of ${amount(row.limit, row.unit)}`;
  return state ? `${bound}, ${state}` : bound;
}

// The runs -------------------------------------------------------------------------------------------------------------------

const allRuns = (state) => [...state.store.runs(), state.view.open, state.view.compare];

/** A chip for each conversation, in the order of the tree; it opens the newest run. None where there is one run only. */
function makeChips(store, button) {
  const row = make("nav", { class: "page-chips", "aria-label": "Runs" });
  const node = make("div", { class: "page-runs" }, row);
  const chips = new Map(); // they stay, so that the focus does
  let brought = "";

  /** Bring the chip of the open run into view, past the first one, which stays. It scrolls the row only, and not what the page is in. */
  function bring() {
    const chip = row.querySelector('[aria-current="true"]');
    const first = row.firstElementChild;
    if (!chip || chip === first) return void (row.scrollLeft = 0);
    const stays = getComputedStyle(first).position === "sticky" ? first.offsetWidth + 6 : 0;
    const [view, box] = [row, chip].map((one) => one.getBoundingClientRect());
    row.scrollLeft += Math.min(0, box.left - view.left - stays) || Math.max(0, box.right - view.right + 3);
  }
  new ResizeObserver(bring).observe(row);
  return part(node, allRuns, ({ view }) => {
    const rows = treeOf(store.runs());
    node.hidden = button.hidden = rows.length < 2;
    let place = 0;
    for (const { run, depth } of rows) {
      const chain = conversationOf(run, store.runs());
      if (chain[0] !== run) continue;
      const newest = chain.at(-1);
      const open = () => store.set({ open: chips.get(run.id).newest, beside: false });
      const chip = chips.get(run.id) || { node: make("button", { type: "button", onclick: open }) };
      chips.set(run.id, chip);
      chip.newest = newest.id;
      const [shape, tone, word] = stateOf(newest);
      const at = chain.findIndex((one) => one.id === view.open);
      const messages =
        chain.length === 1
          ? null
          : at < 0 || at === chain.length - 1
            ? plural(chain.length, "message")
            : `message ${at + 1} of ${chain.length}`;
      chip.node.className = `page-chip${depth ? " below" : ""}`;
      chip.node.title = [run.name || run.agent, originOf(run, store), messages, word].filter(Boolean).join(", ");
      chip.node.setAttribute("aria-current", String(at >= 0));
      chip.node.replaceChildren(
        depth ? (run.called_by ? make("span", { "aria-hidden": "true" }, "\u21b3") : mark("branch", "plain", 9)) : "",
        make("bdi", {}, run.name || run.agent),
        ...(messages ? [make("small", {}, messages)] : []),
        mark(shape, tone, 9),
      );
      if (row.children[place] !== chip.node) row.insertBefore(chip.node, row.children[place] || null);
      place++;
    }
    row.classList.toggle("one", row.querySelectorAll(".page-chip:not(.below)").length < 2);
    if (brought !== `${view.open} ${place}`) bring(); // else a person may have scrolled
    brought = `${view.open} ${place}`;
    button.setAttribute("aria-pressed", String(view.compare !== null));
  });
}

/** The tree of runs with what each has used: the names say what differs. */
function makeRuns(store) {
  const heads = ["Run", "Steps", "Tokens", "Cost"].map((title) => make("th", { scope: "col" }, title));
  const lines = make("tbody", {});
  const body = make("div", { class: "page-scroll" }, make("table", { class: "page-table" }, make("thead", {}, make("tr", {}, heads)), lines));
  const { node, aside } = section("Runs", body, { name: "runs", open: false });
  const made = new Map();
  return part(node, allRuns, ({ view }) => {
    const rows = treeOf(store.runs());
    node.hidden = rows.length < 2;
    aside.textContent = count(rows.length);
    rows.forEach(({ run, depth }, place) => {
      if (!made.has(run.id)) made.set(run.id, runRow(store, run.id));
      const row = made.get(run.id);
      row.update(run, depth, run.id === view.open);
      if (lines.children[place] !== row.node) lines.insertBefore(row.node, lines.children[place] ?? null);
    });
    while (lines.children.length > rows.length) lines.lastChild.remove();
  });
}

/** A row stays the same element while steps arrive: a click that begins before a step ends on it, and it keeps the focus. */
function runRow(store, id) {
  const open = make("button", { type: "button", class: "page-link" });
  open.addEventListener("click", () => store.set({ open: id }));
  const about = make("small", {});
  const name = make("div", { class: "page-run" }, make("span", {}), open, about);
  const cells = ["steps", "tokens", "cost"].map(() => make("td", {}));
  const node = make("tr", {}, make("th", { scope: "row" }, name), ...cells);
  const update = (run, depth, isOpen) => {
    const [shape, tone, word] = stateOf(run);
    name.firstChild.replaceWith(mark(shape, tone, 9));
    name.style.paddingLeft = `${Math.min(depth, 6) * 14}px`;
    open.textContent = run.name || run.agent;
    about.textContent = [run.end ? words(run.end.stop_reason) : word, originOf(run, store, false)].filter(Boolean).join(", ");
    const shown = [count(run.totals.steps), count(run.totals.tokens), dollars(run.totals.cost_usd)];
    cells.forEach((cell, place) => (cell.textContent = shown[place]));
    if (isOpen) node.setAttribute("aria-current", "true");
    else node.removeAttribute("aria-current");
  };
  return { node, update };
}

// The drawer -----------------------------------------------------------------------------------------------------------------

/** Why the run ended, in the words of the run, and its output where the last step does not show it. */
function makeEnd(store) {
  const body = make("div", { class: "page-end" });
  const { node } = section("Why it ended", body, { name: "end" });
  return part(
    node,
    (state) => [state.run?.end, state.run?.state, state.run?.id, state.run?.steps.length],
    ({ run }) => {
      const end = run?.end;
      node.hidden = !end;
      if (!end) return; // the badge has the state
      const [shape, tone] = stateOf(run);
      body.className = `page-end ${tone}`;
      const fired = end.fired.filter((one) => !end.detail.includes(one));
      body.replaceChildren(
        make(
          "p",
          { class: "page-reason" },
          mark(shape, tone),
          make("b", {}, words(end.stop_reason)),
          make("span", { class: "page-quiet" }, stateWords(run)),
        ),
        ...(end.detail ? [make("p", {}, end.detail)] : []),
        ...(fired.length ? [make("p", {}, make("span", { class: "page-quiet" }, "Fired: "), fired.join(", "))] : []),
        ...(end.signal ? [make("p", { class: "page-quiet" }, end.signal)] : []),
        ...outputOf(store, run),
      );
    },
  );
}

/** The output, unless it is the answer of the last step: that one is a click away. */
function outputOf(store, run) {
  const last = run.steps.at(-1);
  if (!run.end.output_html) return [];
  const toEnd = make(
    "button",
    { type: "button", class: "page-link", onclick: () => store.choose(Infinity) },
    `Show the answer, in step ${last?.n}`,
  );
  if (last && last.html?.includes(run.end.output_html)) return [make("p", {}, toEnd)];
  return [
    make("div", { class: "page-label" }, "Output"),
    fill(make("div", { class: "page-output", tabindex: 0, role: "region", "aria-label": "Output" }), run.end.output_html),
  ];
}

/** One row for each thing that is limited. */
function makeLimits() {
  const body = make("ul", { class: "page-limits" });
  const { node } = section("Limits", body, { name: "limits" });
  return part(
    node,
    (state) => [state.run?.limits],
    ({ run }) => {
      node.hidden = !run?.limits.length;
      body.replaceChildren(
        ...(run?.limits || []).map((row) => {
          const others = row.with.filter((name) => name !== row.name);
          const names = others.length ? make("small", {}, row.order || row.with.join(", ")) : null;
          const name = make(
            "span",
            { class: "page-limit-name" },
            make("bdi", {}, row.label || row.name),
            names ? null : make("small", {}, row.name),
          );
          return make(
            "li",
            { class: row.off ? "off" : row.met ? "met" : "" },
            name,
            make("span", { class: "page-limit-used" }, usedOf(row)),
            known(row.share) && !row.goal && !row.off ? meterOf(row) : null,
            names,
          );
        }),
      );
    },
  );
}

/** What took the time of the chosen step, and its outcome. */
function makeStep() {
  const body = make("div");
  const { node, aside } = section("Step", body, { name: "step" });
  const title = node.querySelector("h2");
  return part(
    node,
    (state) => [state.step, state.run?.id],
    ({ run, step }) => {
      node.hidden = !step;
      if (!step) return;
      const [shape, tone] = finishOf(step);
      title.textContent = `Step ${count(step.n)}`;
      aside.textContent = known(step.duration_s) ? seconds(step.duration_s) : "";
      const facts = [
        ["finish reason", [mark(shape, tone), words(step.finish) || "no answer"]],
        ["then", words(step.action)],
        ["ended the run", words(step.stop_reason)],
        ["conditions", step.reads],
        ["limits", inWords(limitsAt(run, step.n))],
      ];
      body.replaceChildren(
        timelineOf(step) || "",
        make(
          "dl",
          { class: "page-facts-list" },
          facts
            .filter(([, value]) => value && value.length)
            .map(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]),
        ),
      );
    },
  );
}

/** What made the run: versions, model, address, hashes. Live there is none: it is in `run.provenance`. */
function makeMade() {
  const body = make("dl", { class: "page-facts-list" });
  const { node } = section("Provenance", body, { name: "made", open: false });
  return part(
    node,
    (state) => [state.run?.made],
    ({ run }) => {
      node.hidden = !run?.made.length;
      body.replaceChildren(...(run?.made || []).flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]));
    },
  );
}

/** Ways to continue, each with the code for it; where there is a kernel, a button does it, and the code is folded. */
function makeActions(store, send = null) {
  const unfolded = new Set();
  const drafts = new Map(); // prompts that are being edited, by run
  const body = make("ul", { class: "page-actions" });
  const { node } = section("To continue", body, { name: "actions" });
  return part(
    node,
    (state) => [state.run?.actions, state.run?.id, state.run?.code],
    ({ run }) => {
      node.hidden = !run?.actions.length;
      body.replaceChildren(
        ...(run?.actions || []).map((action, place) => {
          const text = action.code.replaceAll(/\brun\./g, `${run.code || "run"}.`);
          const code = make("code", { tabindex: 0 }, text); // it scrolls
          const block = make("div", { class: "page-code" }, code, copyButton(text, code, action.label));
          return make(
            "li",
            {},
            send ? actionForm(store, send, run, action, place, drafts) : make("b", {}, action.label),
            make("p", { class: "page-quiet" }, action.why),
            action.code && (send ? foldOfCode(block, action.label, unfolded) : block),
          );
        }),
      );
    },
  );
}

/** The button that continues in this way, with a box for the prompt where another one is needed. What is typed is kept for each run. */
function actionForm(store, send, run, action, place, drafts) {
  const input = action.needs_prompt ? make("textarea", { class: "page-text", rows: 3, "aria-label": "The new prompt" }) : null;
  if (input) input.value = drafts.get(run.id) ?? run.prompt;
  input?.addEventListener("input", () => drafts.set(run.id, input.value));
  const command = makeCommand(store, send);
  const press = async () => (await command({ do: "proceed", place, label: action.label, prompt: input?.value })) && drafts.delete(run.id);
  const button = makeButton({ label: action.label, shape: "play", kind: place ? "" : "main", press });
  return make("div", { class: "page-act" }, input, button.node);
}

function foldOfCode(block, label, unfolded) {
  const fold = make("details", { class: "page-act-code", open: unfolded.has(label) }, make("summary", {}, "In code"), block);
  fold.addEventListener("toggle", () => unfolded[fold.open ? "add" : "delete"](label));
  return fold;
}

function copyButton(text, shown, label) {
  const said = make("span", { role: "status" }, "Copy");
  const say = (word) => {
    said.textContent = word;
    setTimeout(() => (said.textContent = "Copy"), 1500);
  };
  const button = make("button", { type: "button", class: "page-button", "aria-label": `Copy the code: ${label}` }, said);
  button.addEventListener("click", () => copy(text, shown).then(say));
  return button;
}

/** Copy a text; where the page may not, the text is selected, so that a key does it. Return what to say. */
async function copy(text, shown) {
  try {
    await navigator.clipboard.writeText(text);
    return "Copied";
  } catch {
    getSelection().selectAllChildren(shown);
    return document.execCommand("copy") ? "Copied" : "Selected";
  }
}

// Help -----------------------------------------------------------------------------------------------------------------------

const KEYS = [
  ["j  k", "next step, previous step, in the transcript"],
  ["\u2193  \u2191", "the same; a long step scrolls first"],
  ["Home  End", "the beginning, the end"],
  ["/", "search"],
  ["Enter  Shift+Enter", "next hit, previous hit, in the search box"],
  ["[  ]", "previous run, next run"],
  ["c", "compare two runs, and back"],
  ["b", "branch at the chosen step, in a notebook"],
  ["s", "all runs side by side, and back, in a notebook"],
  ["?", "this list"],
  ["Esc", "close"],
];

function makeHelp() {
  const rows = KEYS.map(([keys, what]) =>
    make(
      "tr",
      {},
      make(
        "th",
        { scope: "row" },
        keys.split("  ").map((key) => [make("kbd", {}, key), " "]),
      ),
      make("td", {}, what),
    ),
  );
  const shapes = Object.entries(FINISHES).map(([name, [shape, tone]]) => make("li", {}, mark(shape, tone), words(name)));
  shapes.push(make("li", {}, mark("ring", "warn"), "unknown"));
  const close = make("button", { type: "button", class: "page-button", onclick: () => dialog.close() }, "Close");
  const dialog = make(
    "dialog",
    { class: "page-help", "aria-label": "Keys and marks" },
    make("h2", {}, "Keys"),
    make("table", {}, make("tbody", {}, rows)),
    make("h2", {}, "How a step finished"),
    make("ul", {}, shapes),
    close,
  );
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  return dialog;
}

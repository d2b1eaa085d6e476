// The parts around the transcript: bar, runs, scrubber, search, and the drawer.

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
 * The clocks of a live run, which need no message: of the time while it is running, and of the pause. A number that the kernel sends
 * is the time at which it came.
 */
function makeClock(node, store, since) {
  let timer = 0;
  const came = new WeakMap();
  const passed = (what) => (performance.now() - came.get(what)) / 1000;

  function show() {
    const run = store.run();
    const time = node.querySelector("[data-total=elapsed_s] .page-amount");
    if (run.state === "running" && time) time.textContent = seconds(Math.floor(run.totals.elapsed_s + passed(run.totals)));
    since.textContent = run.paused ? `${seconds(Math.floor(run.paused.for_s + passed(run.paused)))}` : "";
  }
  return (run) => {
    if (!run) return;
    for (const one of store.runs())
      for (const what of [one.totals, one.paused]) if (what && !came.has(what)) came.set(what, performance.now());
    const ticks = run.buttons !== null && (run.state === "running" || run.paused);
    clearInterval(timer);
    if (ticks) timer = setInterval(() => (node.isConnected ? show() : clearInterval(timer)), 250);
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
    make("span", { class: "page-value", "data-total": total }, make("span", { class: "page-amount" }, value === 0 && unit === "s" ? "0 s" : amount(value, unit)), bound),
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
    row.querySelector('[aria-current="true"]')?.scrollIntoView({ block: "nearest", inline: "nearest" });
    button.setAttribute("aria-pressed", String(view.compare !== null));
  });
}

/** The tree of runs with what each has used: the names say what differs. */
function makeRuns(store) {
  const body = make("div", { class: "page-scroll" });
  const { node, aside } = section("Runs", body, { name: "runs", open: false });
  return part(node, allRuns, ({ view }) => {
    const rows = treeOf(store.runs());
    const focused = body.contains(document.activeElement)
      ? [...body.querySelectorAll("button")].indexOf(document.activeElement)
      : -1;
    node.hidden = rows.length < 2;
    aside.textContent = count(rows.length);
    const heads = ["Run", "Steps", "Tokens", "Cost"].map((title) => make("th", { scope: "col" }, title));
    const lines = rows.map(({ run, depth }) => runRow(store, run, depth, run.id === view.open));
    const table = make("table", { class: "page-table" }, make("thead", {}, make("tr", {}, heads)), make("tbody", {}, lines));
    body.replaceChildren(table);
    body.querySelectorAll("button")[focused]?.focus();
  });
}

function runRow(store, run, depth, isOpen) {
  const [shape, tone, word] = stateOf(run);
  const about = [run.end ? words(run.end.stop_reason) : word, originOf(run, store, false)].filter(Boolean).join(", ");
  const open = make("button", { type: "button", class: "page-link" }, run.name || run.agent);
  open.addEventListener("click", () => store.set({ open: run.id }));
  const name = make("div", { class: "page-run" }, mark(shape, tone, 9), open, make("small", {}, about));
  name.style.paddingLeft = `${Math.min(depth, 6) * 14}px`;
  const cells = [count(run.totals.steps), count(run.totals.tokens), dollars(run.totals.cost_usd)];
  return make(
    "tr",
    { "aria-current": isOpen && "true" },
    make("th", { scope: "row" }, name),
    ...cells.map((cell) => make("td", {}, cell)),
  );
}

// The scrubber ---------------------------------------------------------------------------------------------------------------

const THUMB = 14; // pixels, as in the style sheet

/** A slider over the steps, with a tick for each: shaped and coloured by its finish reason. */
function makeScrubber(store) {
  const slider = make("input", {
    type: "range",
    min: 1,
    step: 1,
    "aria-label": "Step",
    oninput: () => store.choose(Number(slider.value)),
  });
  const ticks = draw("svg", { "aria-hidden": "true", height: 32 });
  const track = make("div", { class: "page-track" }, slider, ticks);
  const label = make("span", { class: "page-step" });
  const go = (by) => () => store.choose(store.view.step + by);
  const button = (name, sign, by) =>
    make("button", { type: "button", class: "page-button icon", "aria-label": name, title: name, onclick: go(by) }, sign);
  const node = make(
    "div",
    { class: "page-scrubber", role: "group", "aria-label": "Steps" },
    button("Previous step", "\u2039", -1),
    track,
    button("Next step", "\u203a", 1),
    label,
  );
  let hits = new Set();

  function redraw() {
    const run = store.run();
    const width = track.clientWidth;
    if (!run || !width) return;
    ticks.setAttribute("width", width);
    ticks.replaceChildren(...ticksOf(run, width, hits));
  }
  function point() {
    const { step } = store.view;
    const steps = store.steps();
    node.hidden = steps.length === 0;
    slider.max = Math.max(1, steps.length);
    slider.value = step;
    label.textContent = `Step ${count(step)} of ${count(steps.length)}`;
    slider.setAttribute("aria-valuetext", [label.textContent, words(steps[step - 1]?.finish)].filter(Boolean).join(", "));
  }
  new ResizeObserver(redraw).observe(track);
  const drawn = part(node, (state) => [state.run, state.run?.steps], redraw);
  const chosen = part(node, (state) => [state.run, state.view.step], point);
  return {
    node,
    update: (state) => [chosen, drawn].forEach((one) => one.update(state)),
    mark(found) {
      hits = new Set(found);
      redraw();
    },
  };
}

/** Ticks, at most one for each few pixels: where several fall together, the gravest is shown. */
function ticksOf(run, width, hits) {
  const steps = run.steps.length;
  const x = (n) => (steps < 2 ? THUMB / 2 : THUMB / 2 + ((n - 1) * (width - THUMB)) / (steps - 1));
  const column = (n) => Math.round(x(n) / (steps > width / 9 ? 4 : 1));
  const columns = new Map();
  for (const step of run.steps) {
    const [shape, tone] = finishOf(step);
    const at = column(step.n);
    const there = columns.get(at);
    if (!there || RANK[tone] > RANK[there.tone]) columns.set(at, { n: step.n, shape, tone, hit: there?.hit || hits.has(step.n) });
    else if (hits.has(step.n)) there.hit = true;
  }
  const crowded = steps > width / 9;
  const found = [];
  for (const { n, shape, tone, hit } of columns.values()) {
    const place = `translate(${(x(n) - 4.5).toFixed(1)} 11.5) scale(.9)`;
    if (hit) found.push(draw("rect", { x: x(n) - 1.5, y: 1, width: 3, height: 30, class: "page-hit-tick" }));
    if (crowded && tone === "plain")
      found.push(draw("rect", { x: x(n) - 0.5, y: 13, width: 1, height: 6, class: "page-mark plain" }));
    else found.push(draw("path", { d: SHAPES[shape], transform: place, "fill-rule": "evenodd", class: `page-mark ${tone}` }));
  }
  const marks = new Map(run.marks.filter((one) => one.step >= 1 && one.step <= steps).map((one) => [column(one.step), one]));
  for (const one of marks.values()) {
    found.push(
      draw("path", {
        d: "M0 0h6l-3 5z",
        transform: `translate(${(x(one.step) - 3).toFixed(1)} 0)`,
        class: `page-mark ${one.kind === "warning" ? "warn" : "live"}`,
      }),
    );
  }
  return found;
}

// Search ---------------------------------------------------------------------------------------------------------------------

/**
 * A search box over the texts of all steps of the open run.
 *
 * `onFound` gets the text and the steps with hits, `onGo` the step to show; `onLeave` moves the focus on.
 */
function makeSearch(store, { onFound, onGo, onLeave }) {
  const input = make("input", {
    type: "search",
    placeholder: "Search",
    "aria-label": "Search the transcript",
    autocomplete: "off",
    spellcheck: "false",
  });
  const answer = make("output", { class: "page-found" });
  const button = (name, sign, by) =>
    make("button", { type: "button", class: "page-button icon", "aria-label": name, title: name, onclick: () => go(by) }, sign);
  const buttons = make(
    "span",
    { class: "page-search-go" },
    button("Previous hit", "\u2191", -1),
    button("Next hit", "\u2193", 1),
  );
  const node = make("div", { class: "page-search", role: "search" }, input, answer, buttons);
  let found = [];
  let waiting = 0;
  let round = 0;
  let looking = false;
  let wanted = false; // the first hit is to be shown as soon as it is known

  function show() {
    const query = store.view.query.trim();
    const at = found.indexOf(store.view.step);
    answer.textContent = !query
      ? ""
      : !found.length
        ? "no hits"
        : at < 0
          ? plural(found.length, "step")
          : `${count(at + 1)} of ${plural(found.length, "step")}`;
    buttons.hidden = !found.length;
  }
  function go(by) {
    if (!found.length) return;
    const { step } = store.view;
    const next = by > 0 ? (found.find((n) => n > step) ?? found[0]) : (found.findLast((n) => n < step) ?? found.at(-1));
    onGo(next);
    show();
  }
  /** Thousands of steps are read in slices, so that typing is not held up. */
  async function look() {
    const mine = ++round;
    looking = true;
    await null; // what the search leads to comes after the drawing that has started it
    if (mine !== round) return;
    const query = store.view.query.trim().toLowerCase();
    const hits = [];
    for (let from = 1; query && from !== null; ) {
      const answer = store.search(query, from);
      if (!answer) break;
      const { found: more, next } = await answer;
      if (mine !== round) return;
      hits.push(...more);
      from = next;
      if (from === null) return finish(query, hits);
    }
    let since = performance.now();
    for (const step of query ? store.steps() : []) {
      if (textOf(step).includes(query)) hits.push(step.n);
      if (performance.now() - since < 10) continue;
      await new Promise((resolve) => setTimeout(resolve));
      if (mine !== round) return;
      since = performance.now();
    }
    finish(query, hits);
  }
  function finish(query, hits) {
    found = hits;
    looking = false;
    onFound(query, found);
    show();
    if (!wanted) return;
    wanted = false; // Enter was pressed before all was searched
    if (found.length) onGo(found.find((n) => n >= store.view.step) ?? found[0]);
    show();
  }
  input.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => store.set({ query: input.value }), 120);
  });
  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter") {
      clearTimeout(waiting);
      const fresh = store.view.query !== input.value;
      if (fresh || looking) wanted = true;
      store.set({ query: input.value }); // which looks for it
      if (!fresh && !wanted) go(event.shiftKey ? -1 : 1);
    } else if (event.key === "Escape") {
      input.value = "";
      store.set({ query: "" });
      onLeave();
    }
  });
  const searched = part(node, (state) => [state.view.query, state.run?.steps], look);
  const pointed = part(node, (state) => [state.view.step], show);
  return { node, input, update: (state) => [searched, pointed].forEach((one) => one.update(state)) };
}

// The drawer -----------------------------------------------------------------------------------------------------------------

/** Why the run ended, in the words of the run, and its output where the last step does not show it. */
function makeEnd(store, send = null) {
  const body = make("div", { class: "page-end" });
  const { node } = section("Why it ended", body, { name: "end" });
  const title = node.querySelector("h2");
  return part(
    node,
    (state) => [state.run?.end, state.run?.state, state.run?.id, state.run?.pending, state.run?.steps.length],
    ({ run }) => {
      const [shape, tone] = run ? stateOf(run) : ["ring", "plain"];
      const end = run?.end;
      title.textContent = end ? "Why it ended" : "State";
      body.className = `page-end ${tone}`;
      if (!end) {
        body.replaceChildren(
          make("p", {}, mark(shape, tone), " ", run ? stateWords(run) : ""),
          (!send && pendingOf(run)) || "",
        );
        return;
      }
      const [why, kind] = endWords(end);
      const fired = end.fired.filter((one) => !end.detail.includes(one));
      body.replaceChildren(
        make(
          "p",
          { class: "page-reason" },
          mark(shape, tone),
          make("b", {}, why),
          kind && make("span", { class: "page-quiet" }, kind),
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

/** Ways to continue, each with the code for it; where there is a kernel, a button does it. */
function makeActions(store, send = null) {
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
          const code = make("code", {}, text);
          return make(
            "li",
            {},
            send ? actionForm(store, send, run, action, place) : make("b", {}, action.label),
            make("p", { class: "page-quiet" }, action.why),
            action.code ? make("div", { class: "page-code" }, code, copyButton(text, code, action.label)) : null,
          );
        }),
      );
    },
  );
}

/** The button that continues in this way, with a box for the prompt where another one is needed. */
function actionForm(store, send, run, action, place) {
  const input = action.needs_prompt ? make("textarea", { class: "page-text", rows: 3, "aria-label": "The new prompt" }) : null;
  if (input) input.value = run.prompt;
  const command = makeCommand(store, send);
  const press = () => command({ do: "proceed", place, label: action.label, prompt: input?.value });
  const button = makeButton({ label: action.label, shape: "play", kind: place ? "" : "main", press });
  return make("div", { class: "page-act" }, input, button.node);
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
